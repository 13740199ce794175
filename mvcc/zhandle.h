/*
 * mvcc/zhandle.h - names for single versions of rows, for queued trigger
 * events.
 *
 * A trigger event keeps nothing of a row but TIDs, and a TID names a row here,
 * not a version. So the old row of an update or a delete gets a *handle*
 * instead: a TID that no row can have. It names one change (an undo record of
 * our own transaction), and means the version before that change. The new
 * row's TID in the same event stays the TID of the row; the server fetches
 * that row right after the old one. mvcc/README.md has the rules HANDLE-1,
 * -3, -7 and -8.
 */
#ifndef ZUNDO_ZHANDLE_H
#define ZUNDO_ZHANDLE_H

#include "executor/execdesc.h"
#include "mvcc/zvis.h"

/* A row before and after one of our own changes, in memory. */
typedef struct ZChangedRow
{
	UndoPtr		change;			/* the record of the update or delete */
	ZXid		xid;			/* of the change */
	CommandId	cid;
	ZXid		chain_xid;		/* where the search for the author of the old
								 * row begins, as in ZVersion */
	UndoPtr		chain;
	const char *old;
	const char *new;
	uint32		oldlen;
	uint32		newlen;			/* 0: the row was not updated in place */
} ZChangedRow;

/* What a handle names. */
typedef struct ZHandle
{
	UndoPtr		change;			/* the record of the update or delete */
	const ZChangedRow *rows;	/* of that change; NULL: to be found by a walk */
	Oid			reloid;
	BlockNumber block;
	OffsetNumber off;
	SubTransactionId subid;		/* the subtransaction that made the handle */
} ZHandle;

/*
 * The offset of every handle: greater than that of any line pointer on a page,
 * and less than the special offsets of the server.
 */
#define ZHANDLE_OFFSET 0x8001

/* zhandle_is: returns whether tid is a handle, of this transaction or not. */
static inline bool
zhandle_is(const ItemPointerData *tid)
{
	return unlikely(ItemPointerGetOffsetNumberNoCheck(tid) == ZHANDLE_OFFSET);
}

/*
 * zhandle_keep_rows: keeps copies of the rows of our last change for which an
 * event may be queued, until the next such change. zhandle_kept_rows: returns
 * them, or NULL if they are of another change than this one (HANDLE-8).
 */
extern void zhandle_keep_rows(const ZChangedRow *rows);
extern const ZChangedRow *zhandle_kept_rows(UndoPtr change);

/* zhandle_old_version: makes *version the row before the change. */
extern void zhandle_old_version(const ZChangedRow *rows, ZVersion *version);

/*
 * zhandle_make: sets *tid to the handle for our own change of the row at
 * (block, off), and remembers the rows that are kept for the change, if memory
 * allows. Raises ERRCODE_PROGRAM_LIMIT_EXCEEDED if the transaction has too many
 * handles, and an error if memory is short.
 */
extern void zhandle_make(Relation rel, BlockNumber block, OffsetNumber off, UndoPtr change,
						 ItemPointer tid);

/*
 * zhandle_statement_begin: notes that query, which does not run within another
 * query, begins or continues to run. zhandle_statement_end: if no other such
 * query has run since, forgets the handles that were made for the events of
 * query, all of which have fired, unless their events can be deferred
 * (HANDLE-7).
 */
extern void zhandle_statement_begin(const QueryDesc *query);
extern void zhandle_statement_end(const QueryDesc *query);

/*
 * zhandle_find: returns what the handle tid names, or NULL if it names nothing
 * (any more), or a row of another table than reloid. With InvalidOid any table
 * will do.
 */
extern const ZHandle *zhandle_find(Oid reloid, const ItemPointerData *tid);

/* ---- the new version of an event, kept from the fetch of its old one ---- */

/*
 * zhandle_keep_new: keeps a copy of version, which the change of handle made,
 * for the next fetch of its row.
 */
extern void zhandle_keep_new(const ZHandle *handle, const ZVersion *version);

/*
 * zhandle_keep_new_row: does so with the row that the handle has in memory, if
 * the change was an update in place.
 */
extern void zhandle_keep_new_row(const ZHandle *handle);

/*
 * zhandle_take_new: returns the version kept if it is one of the row at tid of
 * rel, else NULL. Drops it in any case; the result is valid until another
 * version is kept.
 */
extern const ZVersion *zhandle_take_new(Relation rel, const ItemPointerData *tid);

/*
 * zhandle_at_subxact_abort: forgets the handles that subtransaction mySubid
 * and those within it have made (HANDLE-7). zhandle_at_xact_end: forgets all
 * of them.
 */
extern void zhandle_at_subxact_abort(SubTransactionId mySubid);
extern void zhandle_at_xact_end(void);

#endif
