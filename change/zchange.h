/*
 * change/zchange.h - a change of rows, or of the locks on them, as a value.
 *
 * DML fills a ZChange while it prepares a change, and zchange_do makes the
 * change. The decoder fills one from a WAL record, and replay makes the change
 * by the same function, zchange_apply.
 *
 * Changes that carry no undo (inline locks, pruning, marks) are no ZChange.
 */
#ifndef ZUNDO_ZCHANGE_H
#define ZUNDO_ZCHANGE_H

#include "access/xlogreader.h"
#include "change/zwal.h"
#include "common/rmgr.h"
#include "page/zpage.h"
#include "storage/bufmgr.h"
#include "undo/undo.h"

/* The transaction slot of a page that takes a record of the change. */
typedef struct ZChangeSlot
{
	uint32		slotno;			/* 0 = none */
	uint32		grow_to;		/* inline slots that the page must have first;
								 * 0 = as it is */
	bool		live_chain;		/* snapshots may walk the chain that the
								 * record is pushed on */
	bool		in_overflow;	/* the slot lies on the page's overflow page */
} ZChangeSlot;

/* A table page in a change. Both buffers are locked exclusively. */
typedef struct ZChangePage
{
	Buffer		buf;
	Page		page;			/* NULL: nothing is to be done on the page */
	Buffer		overflow_buf;	/* invalid if the slot is inline */
	Page		overflow;		/* NULL: nothing is to be done on the overflow
								 * page */
	bool		init;			/* the page is new */
	ZChangeSlot slot;
} ZChangePage;

/*
 * A change of one row, of several new rows on one page, or of nothing but undo.
 *
 * The records are pushed on the slots' chains. Of a MOVE, rec[0] is for the old
 * row, rec[1] for the new one, and rec[2], if there is one, of type LOCKS for
 * the locks that move along. Several records of a LOCK are one chain, and the
 * slot points to the last of them. All other changes have one record.
 *
 * A MOVE on one page (zchange_on_one_page) has only page[0]; page[1].slot
 * repeats its slot.
 */
typedef struct ZChange
{
	uint8		opcode;			/* ZWAL_*; ZWAL_UNDO_ONLY: no table page
								 * changes */
	bool		logged;			/* the table pages are WAL-logged */
	bool		frozen;			/* INSERT: the row's header names no slot */
	bool		covered;		/* INSERT, DELETE: no record is pushed, the
								 * one at the slot's head is the row's
								 * (RANGE-2), or the row needs none (frozen);
								 * rec[0] has only type, place and xflags */
	bool		converted;		/* LOCK: inline locks become records; no row
								 * changes */
	bool		compact;		/* DELETE, MOVE on one page, IMAGE of rows:
								 * the WAL record has the fields of the undo
								 * records */
	bool		prunes;			/* compact MOVE: prunes its page before
								 * anything else, by 'prune' */
	bool		clear_locks;	/* UPDATE: the row loses its lock hint */
	bool		stale_keys;		/* UPDATE: the row gets ZH_STALE_KEYS, which
								 * it does not have */
	bool		new_shape;		/* UPDATE: number of attributes, nulls or
								 * external change */
	bool		was_visible;	/* page[0] is flagged all-visible before the
								 * change (VMAP-2); not set by the decoder */
	uint16		old_header_length;	/* UPDATE: of the old header in the
									 * record's payload */
	ZHeader		shape;			/* UPDATE with new_shape: header with the new
								 * shape. Compact MOVE, set by the decoder:
								 * the new row's header */
	ZXid		topxid;
	ZChangePage page[2];		/* page of the row; page of a MOVE's new row,
								 * if that is another */
	Buffer		map;			/* page of the visibility map, pinned, if
								 * page[0] has its bit set there: the change
								 * clears the bit. Not with page[1] */
	ZChangeSlot locks;			/* MOVE with LOCKS: common lock slot of the
								 * new row's page */

	/*
	 * INSERT, MOVE: the new row. UPDATE: what the row becomes. Of an UPDATE,
	 * and of a compact MOVE, the decoder does not know it; replay sets it.
	 * MULTI_INSERT: the new rows, each after its length (uint16).
	 */
	const char *row;
	uint32		row_length;
	const char *delta;			/* UPDATE, if logged: what follows the
								 * headers, in WAL form. Compact MOVE: the
								 * same from the old row to the new one, in
								 * undo form */
	uint32		delta_length;
	const ZPruneItem *prune;	/* with 'prunes': the nprune items, in the
								 * order of their offsets. With none of them,
								 * the rows of the page are moved together.
								 * Compact IMAGE: those of the saved rows */
	int			nprune;
	TransactionId conflict;		/* with 'prunes': conflict horizon (SAVED-6) */
	const char *undo;			/* the packed undo records; set by the
								 * decoder. DML leaves it NULL */
	const char *logical;		/* what logical decoding needs of the change
								 * (change/zlogical.h); NULL if it is not to
								 * be shown. Not set by the decoder */
	uint32		logical_length;

	int			nrecords;
	ZuRecord	rec[ZU_MAX_RECORDS];
	ZuOp		op;				/* where the records lie in the undo log */
} ZChange;

/* Memory for what the decoder builds. */
typedef struct ZChangeWork
{
	ZPruneItem	prune[ZHEAP_MAX_OFFSET];	/* ZChange.prune */
	char		bytes[ZUR_MAX_LENGTH];	/* the new row, or the payload of the
										 * first undo record */
	char		packed[ZUR_MAX_LENGTH + 64];	/* compact records: the packed
												 * undo records */
} ZChangeWork;

/*
 * Value of prev for a record that is pushed on the one before it in the same
 * change.
 */
#define ZCHANGE_ON_RECORD_BEFORE (~InvalidUndoPtr)

/*
 * zchange_begin: makes change an empty one with this number of records. The
 * caller fills in what the opcode needs, and the records.
 */
static inline void
zchange_begin(ZChange *change, uint8 opcode, int nrecords)
{
	Assert(nrecords > 0 && nrecords <= ZU_MAX_RECORDS);
	memset(change, 0, offsetof(ZChange, nrecords));
	change->opcode = opcode;
	change->nrecords = nrecords;
}

/* zchange_on_one_page: returns whether a row moves within its page. */
static inline bool
zchange_on_one_page(const ZChange *change)
{
	return change->nrecords > 1 && change->rec[0].type == ZUR_MOVE &&
		change->rec[0].block == change->rec[1].block;
}

/*
 * zchange_do: makes the change: places the records in the undo log, applies
 * the change to its pages and logs all of it. On entry the pages of the change
 * are locked and undo is reserved (zu_op_reserve); no critical section is open.
 * On return the table pages are still locked, the overflow pages and the map's
 * page are released, and change->op says where the records are. fault is the
 * fault point inside the critical section that follows the WAL record, or
 * NULL. Raises errors of reading undo pages; nothing has changed then.
 */
extern void zchange_do(ZChange *change, const char *fault);

/*
 * A row that is inserted, or deleted, and that the record at the head of a slot
 * covers (RANGE-2 in dml/), or a new one that needs no record (FROZEN-1).
 */
typedef struct ZCoveredRow
{
	OffsetNumber off;
	ZHeader		header;			/* names the slot; none if the row needs no
								 * record. Of a deletion only ZH_OTHER_PART
								 * counts besides */
	const char *row;			/* the new row; of its header only the shape
								 * counts */
	uint32		length;
	bool		logged;			/* the table page is WAL-logged */
	const char *logical;		/* as in ZChange */
	uint32		logical_length;
} ZCoveredRow;

/*
 * zchange_insert_covered: puts the row at its place, and logs it if the table
 * is logged. On entry and return the page is exclusively locked, and has space.
 * fault is as for zchange_do.
 */
extern void zchange_insert_covered(Buffer buf, const ZCoveredRow *new, const char *fault);

/*
 * zchange_delete_covered: deletes the row, of a logged table, and logs that. On
 * entry and return the page is exclusively locked.
 */
extern void zchange_delete_covered(Buffer buf, const ZCoveredRow *old, const char *fault);

/*
 * zchange_apply: makes the change on its table and overflow pages. Cannot fail:
 * everything was checked while the change was prepared or decoded. Called in
 * critical sections and by replay, with the pages exclusively locked. Leaves
 * undo pages and the visibility map alone.
 */
extern void zchange_apply(const ZChange *change);

/*
 * zchange_form_row: completes a decoded UPDATE, or a compact MOVE:
 * forms in row (BLCKSZ bytes) the new row. The old one is on change's table
 * page, which is as it was before the change. Returns false if the delta does
 * not fit to that row.
 */
extern bool zchange_form_row(ZChange *change, char *row);

/*
 * zchange_rows_on_page: forms in payload (BLCKSZ bytes) the payload of a ROWS
 * record of the rows that the items name. Returns its length, or 0 if one of
 * them is not on the page. zchange_take_rows: completes a decoded compact
 * IMAGE, whose rows are on the page, with them. Returns false if they do not
 * fit its length. Without it the undo record says that they are not there.
 */
extern int	zchange_rows_on_page(Page page, const ZPruneItem *items, int n, char *payload);
extern bool zchange_take_rows(ZChange *change, ZChangeWork *work, Page page);

/*
 * zapply_inline_lock: grows the inline slots to lock->grow_to if that is not 0,
 * adds the lock to its slot, which xid owns or, if lock->fresh is set, gets,
 * and sets the row's lock hint. With lock->tag gives the row the slot's tag and
 * the hint, and leaves slots alone. Cannot fail; called as zchange_apply is.
 */
extern void zapply_inline_lock(Page page, const ZWalInlineLock *lock, ZXid xid);

/*
 * zapply_speculative: confirms the speculative row at off, or marks it deleted.
 * Cannot fail; called as zchange_apply is.
 */
extern void zapply_speculative(Page page, OffsetNumber off, bool confirmed);

/* ---- in WAL (zwal.c, zwal_compact.c, zwal_literal.c) ---- */

#define ZCHANGE_MAX_PARTS	6
#define ZCHANGE_HEAD_MAX	128
#define ZCHANGE_TAIL_MAX	16
#define ZCHANGE_PRUNE_MAX	(5 + 2 + 2 * ZHEAP_MAX_OFFSET)

/*
 * The main data of a WAL record, in parts. Some point into the ZChange, some
 * into the fields below.
 */
typedef struct ZChangeWal
{
	uint8		opcode;
	int			nparts;
	struct
	{
		const char *data;
		uint32		length;
	}			part[ZCHANGE_MAX_PARTS];
	const char *packed;			/* the packed undo records, if the record has
								 * them; else NULL */
	char		head[ZCHANGE_HEAD_MAX];
	char		middle[ZCHANGE_TAIL_MAX];
	char		tail[ZCHANGE_TAIL_MAX];
	char		prune[ZCHANGE_PRUNE_MAX];
	char		records[ZU_MAX_RECORDS * ZUR_MAX_LENGTH];
} ZChangeWal;

/*
 * zchange_encode: fills wal with the main data of the change's record. On entry
 * the places of the records are known (zu_op_prepare). The change must not be
 * altered while wal is in use, since wal points into it.
 */
extern void zchange_encode(const ZChange *change, ZChangeWal *wal);

/*
 * zchange_ensure_space: makes space for the change's block references in the
 * WAL record. May allocate, so it is called before the critical section.
 */
extern void zchange_ensure_space(const ZChange *change);

/*
 * zchange_log: inserts the record and returns its end. Called in critical
 * sections.
 */
extern XLogRecPtr zchange_log(ZChange *change, const ZChangeWal *wal);

/*
 * zchange_log_covered, zchange_log_covered_delete: insert the record of
 * zchange_insert_covered or zchange_delete_covered and return its end. Called
 * in critical sections.
 */
extern XLogRecPtr zchange_log_covered(Buffer buf, const ZCoveredRow *new);
extern XLogRecPtr zchange_log_covered_delete(Buffer buf, const ZCoveredRow *old);

/*
 * zchange_logical_part: returns what the record, a row change or a MARK, has
 * for logical decoding, after its first byte, which is put in *what, and sets
 * *length. Returns NULL if the record is not to be decoded, or if that part is
 * malformed; *what is 0 in the first case only.
 */
extern const char *zchange_logical_part(XLogReaderState *record, uint8 *what, uint32 *length);

/*
 * zchange_decode: fills change from a row change record; work is memory for
 * what the record does not contain as such. Reads no page and sets none in
 * change. Returns false if the record is malformed.
 */
extern bool zchange_decode(XLogReaderState *record, ZChange *change, ZChangeWork *work);

#endif
