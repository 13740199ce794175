/*
 * change/zwal.h - the WAL records of changes to table pages.
 *
 * This file describes their layouts. Row changes have one encoder and one
 * bounds-checked decoder (change/zchange.h). The opcodes are in common/rmgr.h,
 * the layouts of the undo log's own records in undo/undo_wal.h.
 */
#ifndef ZUNDO_ZWAL_H
#define ZUNDO_ZWAL_H

#include "access/xlogreader.h"
#include "common/rmgr.h"
#include "common/zundo.h"
#include "lib/stringinfo.h"
#include "page/zpage.h"
#include "undo/undo.h"

/*----------
 * Row changes (INSERT, MULTI_INSERT, UPDATE, DELETE, MOVE, LOCK, IMAGE,
 * UNDO_ONLY).
 *
 * Blocks:
 *	0		table page (WILL_INIT with ZWD_PAGE_INIT); not in UNDO_ONLY
 *	1		MOVE: page of the new row, unless it is block 0
 *	ZWAL_MAP_BLOCK (the same number)
 *			page of the visibility map, if the change clears the bit of block 0;
 *			not in a MOVE between two pages
 *	ZWAL_UNDO_BLOCK ..
 *			undo pages; those after the first, and the first with
 *			ZWD_UNDO_INIT, are WILL_INIT
 *	ZWAL_OVERFLOW_BLOCK
 *			the overflow page of block 0, if the slot of the change is on it;
 *			the next block: that of the page of a MOVE's new row. In UNDO_ONLY
 *			as well, since overflow pages are logged whatever the table is.
 *			They are locked before the undo pages.
 *
 * Main data, "v" = varint:
 *	u8	flags ZWD_*
 *	v	generation of the undo extent
 *	with ZWD_UNDO_INIT or more than one undo page:
 *		v log number | 8 sequence of the extent | 6 top-level xid
 *		8 previous end of the log (with ZWD_UNDO_INIT, if the first undo page
 *		  is the first of its extent)
 *	u16	byte on the first undo page where the records begin
 *	then by opcode:
 *	INSERT without an undo page ("covered": the record at the slot's head is
 *	the row's, RANGE-2 in dml/, or the row needs none, FROZEN-1) has none of
 *	these fields, flags included:
 *		v slot (0 = visible to all) | v offset
 *		v natts << 2 | external << 1 | nulls; the row after its header
 *	DELETE without an undo page (covered, too):
 *		v slot | v offset << 1 | other partition
 *	every INSERT and UPDATE, and a DELETE, MOVE or IMAGE with ZWD_SPECIAL
 *	("compact": the undo records are built from these fields):
 *		v slot | v offset | v cid | v zigzag(relation number - relation OID)
 *		prev (ZWD_PREV; v generation, v extent, 3 bytes byte)
 *		6 topxid (ZWD_TOPXID) | u8 slots (ZWD_GROW) | v rows (ZWD_OPEN)
 *		INSERT:	v natts << 2 | external << 1 | nulls; the row after its header
 *		UPDATE:	u8 ZWU_* | long compact new header (ZWU_HEADER)
 *				compact old header (as in the undo record) | delta in WAL form
 *		DELETE:	u8 other partition | compact old header
 *		MOVE:	u8 key change | compact old header
 *				v offset of the new row, which is on block 0, too
 *				v natts << 2 | external << 1 | nulls of the new row
 *				with ZWD_PRUNE: v number of items, for each of them, in the
 *				order of offsets, v (offset - offset of the item before) << 3 |
 *				ZPruneAction: what block 0 is pruned of before all else;
 *				v conflict horizon
 *				delta in undo form, which turns the old row's bytes after its
 *				header into those of the new row; replay has the old one on
 *				block 0, if that is older than the record
 *		IMAGE:	v length of the payload of the undo record, of type ROWS
 *				items as with ZWD_PRUNE: the rows, which are on block 0 if that
 *				is older than the record, or is restored by it (SAVED-5)
 *	others ("literal": the packed undo records as they are):
 *		v slot | u8 slots (ZWD_GROW) | v number of undo records
 *		v length of them | undo records
 *		MULTI_INSERT: then for each row u16 length, row
 *		LOCK: several records if inline locks become records (ZWD_SPECIAL);
 *			the slot changes once, to the last of them
 *		MOVE: then v slot and u8 slots (0 = no growth) of the new row's page,
 *			u16 length, the new row; with a third undo record, LOCKS: v slot
 *			and u8 slots of the common lock slot on that page. If ZWM_LZ4 is
 *			set in the length, u16 compressed length follows, and the row is
 *			compressed. If ZWM_INIT is set, block 1 is WILL_INIT.
 *
 * For logical decoding, at wal_level = logical only, and only if the change is
 * to be shown (DECODE-2 in change/zlogical.h), the data of block 0:
 *	u8	what, ZWL_*
 *	layout of the rows (tuple/zlayout.h), unless nothing needs it
 *	v length, old row or its key (ZWL_OLD)
 *	UPDATE: v natts << 2 | external << 1 | nulls of the new row; its bytes after
 *		its header, without the new ones of the delta, which is in the main data
 * A MARK of a speculative insertion has the first byte alone. Of a part of
 * more than ZWL_MAX_NEAR bytes, block 0 has 'what' and u32 length, and the rest
 * is at the end of the main data. Old rows have their headers; of a key, all
 * other columns are NULL. Replay ignores all of this.
 *----------
 */
#define ZWL_LAST		0x01	/* last record of a row or of several: the
								 * TOAST chunks logged before it belong to
								 * these rows */
#define ZWL_OLD			0x02	/* the old row, or its key, is there */
#define ZWL_FAR			0x04	/* the rest is at the end of the main data */
#define ZWL_OLD_UNDO	0x08	/* UPDATE: the old row is to be made of the
								 * undo that the record has */
#define ZWL_TOAST		0x10	/* chunks: the row they belong to follows */
#define ZWL_IS_THERE	0x80	/* not in WAL: set by zchange_logical_part */

#define ZWL_MAX_NEAR	60000	/* a block has space for UINT16_MAX bytes */
#define ZWL_FAR_HEAD	5

#define ZWAL_MAP_BLOCK		1
#define ZWAL_UNDO_BLOCK		2
#define ZWAL_OVERFLOW_BLOCK (ZWAL_UNDO_BLOCK + ZU_MAX_PAGES)

#define ZWD_PAGE_INIT	0x01	/* block 0 is WILL_INIT */
#define ZWD_UNDO_INIT	0x02	/* the first undo page is WILL_INIT */
#define ZWD_FIRST		0x04	/* the first undo record has ZUF_FIRST */
#define ZWD_PREV		0x08	/* compact records: the chain is not empty */
#define ZWD_TOPXID		0x10	/* compact records: the change is one of a
								 * subtransaction */
#define ZWD_GROW		0x20	/* the page gets further inline slots */
#define ZWD_LIVE_CHAIN	0x40	/* literal records: ZChangeSlot.live_chain (in
								 * compact records ZWD_PREV means the same) */
#define ZWD_OPEN		0x40	/* INSERT, DELETE: the undo record is open and
								 * has this number of rows */
#define ZWD_PRUNE		0x40	/* compact MOVE: the page is pruned first */

/*
 * The meaning of this bit depends on the opcode, see special_fact() in zwal.c.
 * INSERT: the row's header names no slot; LOCK: inline locks became records,
 * and no row changes; DELETE, MOVE, IMAGE: the record is compact. Records of
 * other opcodes do not have it.
 */
#define ZWD_SPECIAL		0x80

/* Bits of the action in the items of a compact MOVE or IMAGE. */
#define ZWAL_PRUNE_ACTION	7

/* In the length of a literal MOVE's new row. */
#define ZWM_LZ4			0x8000
#define ZWM_INIT		0x4000

#define ZWU_KEY_CHANGE	0x01
#define ZWU_CLEAR_LOCKS 0x02
#define ZWU_HEADER		0x04	/* natts, nulls or external change */
#define ZWU_STALE_KEYS	0x08	/* the row gets ZH_STALE_KEYS */

/*----------
 * ZWAL_ROLLBACK
 *	block 0: table page, unless its table is not logged
 *	block 1: its overflow page, if the slot is on it
 *	data: xl_zheap_rollback, then nrecords packed undo records in the order in
 *		which they are undone. With REGBUF_FORCE_IMAGE there are none
 *		(nrecords = 0).
 *----------
 */
typedef struct xl_zheap_rollback
{
	uint64		new_xid;
	UndoPtr		new_ptr;
	uint16		slotno;
	uint16		nrecords;
} xl_zheap_rollback;

#define SizeOfZheapRollback (offsetof(xl_zheap_rollback, nrecords) + sizeof(uint16))

/*----------
 * ZWAL_OVERFLOW
 *	block 0: table page, unless its table is not logged or its file is gone
 *	block 1: overflow page, WILL_INIT: it belongs to the owner, whose further
 *		slots begin at 'first', or to no table page if that is 0
 *----------
 */
typedef struct xl_zheap_overflow
{
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
	uint16		first;
	uint16		changes;		/* where their count begins (OVERFLOW-3 in
								 * page/zoverflow.h) */
} xl_zheap_overflow;

#define SizeOfZheapOverflow (offsetof(xl_zheap_overflow, changes) + sizeof(uint16))

/*----------
 * ZWAL_INLINE_LOCK
 *	block 0: table page. The locker is the record's xid.
 *	data: u16 word (bits 0-8 offset, 9-10 LockTupleMode, ZWI_*), u8 slot,
 *		u8 slots (ZWI_GROW)
 *	With ZWI_TAG the row gets the slot's number as its lock tag, and the slot
 *	stays as it is. The record names no undo and has no slot's contents: redo
 *	adds to the slot on the page, so the page's LSN alone decides.
 *----------
 */
#define ZWI_FRESH	0x0800		/* the slot did not belong to the locker */
#define ZWI_GROW	0x1000		/* the page gets a further inline slot */
#define ZWI_TAG		0x2000		/* the row gets a lock tag */

typedef struct ZWalInlineLock
{
	OffsetNumber offset;
	int			mode;
	int			slotno;
	int			grow_to;		/* 0 = no growth */
	bool		fresh;
	bool		tag;			/* by the open LOCK in the slot's chain */
} ZWalInlineLock;

/*
 * zwal_log_inline_lock: inserts the record and returns its end. Called in
 * critical sections.
 */
extern XLogRecPtr zwal_log_inline_lock(Buffer buf, const ZWalInlineLock *lock);

/*
 * zwal_decode_inline_lock: decodes an INLINE_LOCK record into *lock. Returns
 * false if it is malformed.
 */
extern bool zwal_decode_inline_lock(XLogReaderState *record, ZWalInlineLock *lock);

/*----------
 * ZWAL_MARK
 *	block 0: table page; with ZMARK_ENTRY and ZMARK_ENTRIES_ALIVE a leaf page of
 *		an index: then the new entry or the offsets of the entries follow in
 *		the main data
 *	block 1: the page of the visibility map, with ZMARK_ALL_VISIBLE, and with
 *		ZMARK_NOT_ALL_VISIBLE if its bit was set. Incremental backups find
 *		changed pages by the blocks of WAL records.
 *----------
 */
#define ZMARK_GIVEN_UP		0	/* a speculative insertion */
#define ZMARK_CONFIRMED		1
#define ZMARK_NOT_ALL_VISIBLE 2 /* the page's bit in the visibility map is
								 * cleared */
#define ZMARK_ALL_VISIBLE	3	/* the bit is set */
#define ZMARK_ENTRY			4	/* block 0 is a leaf page of a zbtree index;
								 * its entry at offset is replaced by the one
								 * that follows */
#define ZMARK_ENTRIES_ALIVE	5	/* entries of a zbtree index are not dead any
								 * more */

typedef struct xl_zheap_mark
{
	OffsetNumber offset;		/* of the row of a speculative insertion; with
								 * ZMARK_ENTRY of the index entry; else 0 */
	uint8		what;
} xl_zheap_mark;

#define SizeOfZheapMark (offsetof(xl_zheap_mark, what) + 1)

/*
 * ZWAL_PRUNE.	block 0: table page; data: TransactionId conflict horizon, or 0
 *				(SAVED-6), ZPruneItem array.
 */

/*
 * zwal_desc: appends a description of the record to buf; rm_desc of the
 * resource manager. zwal_identify: returns the name of the kind of record,
 * NULL if there is none; rm_identify.
 */
extern void zwal_desc(StringInfo buf, XLogReaderState *record);
extern const char *zwal_identify(uint8 info);

#endif
