/*
 * wal/zwal.h - WAL opcodes and record layouts of the zundo resource manager.
 *
 * One struct or encoding, one comment, one bounds-checked decoder used by redo
 * and by desc. Opcodes are the high 4 bits of the info byte.
 */
#ifndef ZUNDO_ZWAL_H
#define ZUNDO_ZWAL_H

#include "common/zundo.h"
#include "access/xlogreader.h"
#include "lib/stringinfo.h"
#include "page/zpage.h"
#include "undo/undo.h"

#define ZWAL_INSERT			0x00	/* one row */
#define ZWAL_MULTI_INSERT	0x10	/* a range of rows on one page */
#define ZWAL_UPDATE			0x20	/* one row in place */
#define ZWAL_DELETE			0x30	/* one row */
#define ZWAL_MOVE			0x40	/* a row to another TID */
#define ZWAL_LOCK			0x50	/* row lock */
#define ZWAL_ROLLBACK		0x60	/* aborted records taken off one page */
#define ZWAL_PRUNE			0x70	/* line pointers and compaction */
#define ZWAL_UNDO_ONLY		0x80	/* undo of a relation that is not logged itself */
#define ZWAL_MARK			0x90	/* speculative insertion settled; bit in the visibility map cleared */
#define ZWAL_OVERFLOW		0xA0	/* a table page gets or loses its slot overflow page */
#define ZWAL_UNDO_MAP		0xB0	/* an extent of the undo log is taken, or several are settled */
#define ZWAL_UNDO_DISCARD	0xC0	/* undo extents freed, `oldest` advanced */
#define ZWAL_UNDO_TRUNCATE	0xD0	/* tail of the undo relation given back */

/*
 * ZWAL_UNDO_MAP.		blocks 0, 1: both twins of the extent map page (holds the entry)
 *						blocks 2, 3: those of the meta page, only with ZWAL_MAP_GROWS
 *						The map page is WILL_INIT with ZWAL_MAP_NEW_GROUP.
 *						With ZWAL_MAP_SETTLED flags alone counts, and an
 *						xl_undo_settled follows for each extent.
 */
#define ZWAL_MAP_GROWS	1	/* the number of extents grew */
#define ZWAL_MAP_NEW_GROUP 2	/* first extent of a group */
#define ZWAL_MAP_OVERFLOW 4	/* the extent is for slot overflow pages, not for a log */
#define ZWAL_MAP_SETTLED 8	/* extents of one group get their summaries */

typedef struct xl_undo_map
{
	uint32		extent;
	uint32		generation;
	uint64		sequence;
	uint32		logno;
	uint32		nextents;		/* after it, for the meta page */
	uint32		floor;			/* generation of the new group's other extents */
	uint8		flags;
} xl_undo_map;

#define SizeOfUndoMap (offsetof(xl_undo_map, flags) + 1)

/* One settled extent; the fields of its map entry. */
typedef struct xl_undo_settled
{
	uint64		oldest_top;
	uint64		newest;
	uint32		extent;
	uint32		end;
} xl_undo_settled;

/*
 * ZWAL_UNDO_DISCARD.	blocks 0, 1: both twins of the meta page; 2, 3: those of the extents' map page, if there are any
 *						data: nextents uint32 extent numbers, ascending, that become free
 */
typedef struct xl_undo_discard
{
	uint64		oldest;			/* new value of the meta page's oldest */
	uint64		freeze_now;		/* new values of its freeze limit */
	uint64		freeze_next;
	uint64		freeze_after;
	uint64		doubt_from;		/* new values of its doubt window */
	uint64		doubt_to;
	TransactionId conflict;		/* newest discarded committed xid, for standby conflicts */
	uint32		nextents;
} xl_undo_discard;

#define SizeOfUndoDiscard (offsetof(xl_undo_discard, nextents) + sizeof(uint32))

/* ZWAL_UNDO_TRUNCATE.	blocks 0, 1: both twins of the meta page */
typedef struct xl_undo_truncate
{
	uint32		nextents;		/* that remain */
	BlockNumber nblocks;		/* that remain */
	uint32		floor;			/* newest generation ever cut off */
} xl_undo_truncate;

#define SizeOfUndoTruncate sizeof(xl_undo_truncate)

#define ZWAL_IMAGE			0xE0	/* a table page's image goes to undo */
#define ZWAL_INLINE_LOCK	0xF0	/* row lock kept in its slot, without undo */

/*
 * Row changes (INSERT, MULTI_INSERT, UPDATE, DELETE, MOVE, LOCK, IMAGE, UNDO_ONLY).
 *
 * Blocks:	0	table page (WILL_INIT with ZWD_PAGE_INIT); not in UNDO_ONLY
 *			1	MOVE: page of the new row, unless it is block 0
 *			ZWAL_UNDO_BLOCK ..	undo pages; those after the first, and the first with
 *				ZWD_UNDO_INIT, are WILL_INIT
 *			ZWAL_OVERFLOW_BLOCK: the overflow page of block 0, if the change's slot lies there;
 *				the next: that of the page of a MOVE's new row. In UNDO_ONLY too: these pages
 *				are logged whatever the table is. They are locked before the undo pages.
 *
 * Main data, "v" = varint:
 *	u8	flags ZWD_*
 *	v	generation of the undo extent
 *	ZWD_UNDO_INIT or more than one undo page:
 *		v log number | 8 sequence of the extent | 6 top-level xid
 *		8 end of the log before (ZWD_UNDO_INIT and the first undo page begins its extent)
 *	u16	byte on the first undo page where the records begin
 *	then by opcode:
 *	INSERT, UPDATE ("compact": the undo record is built from these fields):
 *		v slot | v offset | v cid | v zigzag(relation number - relation OID)
 *		prev (ZWD_PREV; v generation, v extent, 3 bytes byte) | 6 topxid (ZWD_TOPXID) | u8 slots (ZWD_GROW)
 *		INSERT:	v natts << 2 | external << 1 | nulls; the row after its header
 *		UPDATE:	u8 ZWU_* | long compact new header (ZWU_HEADER) | compact old header
 *				(as in the undo record) | delta in WAL form
 *	others ("literal": the packed undo records as they are):
 *		v slot | u8 slots (ZWD_GROW) | v number of undo records | v length of them | undo records
 *		MULTI_INSERT: then per row u16 length, row
 *		LOCK: several records if inline locks become records (ZWD_CONVERTED); one slot change to the last
 *		MOVE: then v slot and u8 slots (0 = no growth) of the new row's page, u16 length, the new row;
 *			with a third undo record, LOCKS: v slot and u8 slots of the common lock slot on that page
 */
#define ZWAL_UNDO_BLOCK		2
#define ZWAL_OVERFLOW_BLOCK (ZWAL_UNDO_BLOCK + ZU_MAX_PAGES)

#define ZWD_PAGE_INIT	0x01
#define ZWD_UNDO_INIT	0x02
#define ZWD_FIRST		0x04
#define ZWD_PREV		0x08
#define ZWD_TOPXID		0x10
#define ZWD_GROW		0x20
#define ZWD_LIVE_CHAIN	0x40	/* literal records: see ZSlotChange; compact ones: same as ZWD_PREV */
#define ZWD_NEW_PAGE_INIT 0x80	/* MOVE: block 1 is WILL_INIT */
#define ZWD_CONVERTED	0x80	/* LOCK: inline locks became records; what they lock may have moved on, and no row changes */

#define ZWD_FROZEN		0x80	/* INSERT: the row's header names no slot */

#define ZWU_KEY_CHANGE	0x01
#define ZWU_CLEAR_LOCKS 0x02
#define ZWU_HEADER		0x04	/* natts, nulls or external change */

/* A row change decoded. Pointers point into the WAL record or into 'work'. */
typedef struct ZWalChange
{
	uint8		opcode;
	uint8		flags;
	ZuPlace		place;
	uint16		start;
	uint32		slotno;
	uint32		grow_to;
	bool		clear_locks;
	int			nrecords;
	ZuRecord	rec[ZU_MAX_RECORDS];
	UndoPtr		ptr[ZU_MAX_RECORDS];
	const char *undo;			/* packed records: literal bytes, or packed into work */
	uint32		undo_length;
	uint16		rec_start[ZU_MAX_RECORDS];	/* byte of each record in undo */
	int			nundo_pages;
	/* INSERT: the complete row; MOVE: the new row; MULTI_INSERT: the rows */
	const char *row;
	uint32		row_length;
	uint32		new_slotno;		/* MOVE */
	uint32		new_grow_to;
	uint32		locks_slotno;	/* MOVE with a LOCKS record */
	uint32		locks_grow_to;
	/* UPDATE */
	bool		key_change;
	bool		has_new_header;
	ZHeader		new_header;		/* if has_new_header: its natts, nulls, external */
	const char *delta;
	const char *delta_end;
	char		work[2 * ZUR_MAX_LENGTH];
} ZWalChange;

/* zwal_decode: read a row change record. False if malformed. Touches no page. */
extern bool zwal_decode(XLogReaderState *record, ZWalChange *change);

/* ---- building (called inside critical sections; nothing allocates) ---- */

/* The slot side of a change; mirrors ZSlotChange. */
typedef struct ZWalSlot
{
	int			slotno;
	int			grow_to;		/* 0 = no growth */
	bool		live_chain;
	Buffer		overflow;		/* where the slot lies, exclusively locked; Invalid = inline */
	Buffer		new_overflow;	/* MOVE to another page: the same for the new row's slot */
} ZWalSlot;

/*
 * zwal_ensure_space: make XLogInsert take the block references of op, and of overflow
 * pages if there are any. After zu_prepare, before the critical section.
 */
extern void zwal_ensure_space(const ZuOp *op, bool overflow);

/* zwal_log_insert: one row inserted, as its header says; buf is its page. Returns the record's end. */
extern XLogRecPtr zwal_log_insert(Buffer buf, bool page_init, const ZWalSlot *slot, ZuOp *op,
								  const char *row, Size len);

/*
 * zwal_log_update: one row updated in place; delta is between the bytes after the headers.
 * newrow's header is complete; op's record 0 is the UPDATE.
 */
extern XLogRecPtr zwal_log_update(Buffer buf, const ZWalSlot *slot, ZuOp *op, bool clear_locks,
								  const char *oldrow, const char *newrow, const ZDelta *delta);

/*
 * zwal_log_literal: any other row change. undo_bytes: op's packed records, one after the other. data1/data2: further
 * bytes as the opcode wants them. buf2: MOVE's second page or InvalidBuffer. Of a temporary table nothing is logged.
 */
extern XLogRecPtr zwal_log_literal(uint8 opcode, uint8 flags, Buffer buf, Buffer buf2,
								   const ZWalSlot *slot, ZuOp *op, const char *undo_bytes,
								   const char *data, Size data_len);

/*
 * ZWAL_ROLLBACK.	block 0: table page, unless its table is not logged
 *		block 1: its overflow page, if the slot lies there
 *		data: xl_zheap_rollback, then nrecords packed undo records in the order in which they
 *		are undone. With REGBUF_FORCE_IMAGE none are given (nrecords = 0).
 */
typedef struct xl_zheap_rollback
{
	uint64		new_xid;
	UndoPtr		new_ptr;
	uint16		slotno;
	uint16		nrecords;
} xl_zheap_rollback;

#define SizeOfZheapRollback (offsetof(xl_zheap_rollback, nrecords) + sizeof(uint16))

/*
 * ZWAL_OVERFLOW.	block 0: table page, unless its table is not logged or its file is gone
 *		block 1: overflow page, WILL_INIT: it belongs to the owner, whose further slots begin at
 *		'first'; or to nobody, if that is 0
 */
typedef struct xl_zheap_overflow
{
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
	uint16		first;
} xl_zheap_overflow;

#define SizeOfZheapOverflow (offsetof(xl_zheap_overflow, first) + sizeof(uint16))

/*
 * ZWAL_INLINE_LOCK.	block 0: table page. The locker is the record's xid.
 *		data: u16 word (bits 0-8 offset, 9-10 LockTupleMode, ZWI_*), u8 slot, u8 slots (ZWI_GROW)
 */
#define ZWI_FRESH	0x0800		/* the slot was another's, or free */
#define ZWI_GROW	0x1000

typedef struct ZWalInlineLock
{
	OffsetNumber offset;
	int			mode;
	int			slotno;
	int			grow_to;		/* 0 = no growth */
	bool		fresh;
} ZWalInlineLock;

extern XLogRecPtr zwal_log_inline_lock(Buffer buf, const ZWalInlineLock *lock);
/* zwal_decode_inline_lock: false if malformed. */
extern bool zwal_decode_inline_lock(XLogReaderState *record, ZWalInlineLock *lock);

/*
 * ZWAL_MARK.	block 0: table page; block 1: with ZMARK_NOT_ALL_VISIBLE, the visibility map's page if its bit was set.
 * Who reads the WAL to see which pages have changed (incremental backups) must find the map's page there.
 */
#define ZMARK_GIVEN_UP		0	/* a speculative insertion */
#define ZMARK_CONFIRMED		1
#define ZMARK_NOT_ALL_VISIBLE 2	/* the page's bit in the visibility map is cleared */

typedef struct xl_zheap_mark
{
	OffsetNumber offset;		/* 0 with ZMARK_NOT_ALL_VISIBLE */
	uint8		what;
} xl_zheap_mark;

#define SizeOfZheapMark (offsetof(xl_zheap_mark, what) + 1)

/* ZWAL_PRUNE.	block 0: table page; data: ZPruneItem array. */

extern void zwal_desc(StringInfo buf, XLogReaderState *record);
extern const char *zwal_identify(uint8 info);

#endif
