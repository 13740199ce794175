/*
 * mvcc/zhandle.h - names for single versions of rows, for queued trigger
 * events.
 *
 * A trigger event keeps nothing of a row but TIDs, and a TID names a row here,
 * not a version. So the old row of an update or a delete gets a *handle*
 * instead: a TID that no row can have. It names one change (an undo record of
 * our own transaction), and means the version before that change. The new
 * row's TID in the same event stays the TID of the row; the server fetches
 * that row right after the old one. mvcc/README.md has the rules HANDLE-1 to
 * HANDLE-7.
 */
#ifndef ZUNDO_ZHANDLE_H
#define ZUNDO_ZHANDLE_H

#include "executor/execdesc.h"
#include "mvcc/zvis.h"

/* What a handle names. */
typedef struct ZHandle
{
	UndoPtr		change;			/* the record of the update or delete */
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
 * zhandle_make: sets *tid to the handle for our own change of the row at
 * (block, off). Raises ERRCODE_PROGRAM_LIMIT_EXCEEDED if the transaction has
 * too many handles, and an error if memory is short.
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
 * zhandle_take_new: returns the version kept if it is one of the row at tid of
 * rel, else NULL. Drops it in any case; the result is valid until another
 * version is kept.
 */
extern const ZVersion *zhandle_take_new(Relation rel, const ItemPointerData *tid);

/*
 * zhandle_at_subxact_abort: forgets the handles that subtransaction mySubid
 * and those within it have made (HANDLE-1). zhandle_at_xact_end: forgets all
 * of them.
 */
extern void zhandle_at_subxact_abort(SubTransactionId mySubid);
extern void zhandle_at_xact_end(void);

#endif
