/*
 * mvcc/zhandle.h - names for single versions of rows, for queued trigger
 * events.
 *
 * A trigger event keeps nothing of a row but TIDs, and a TID names a row here,
 * not a version. So the old row of an update or a delete gets a *handle*
 * instead: a TID that no row can have. It names one change (an undo record of
 * our own), and means the version before it. The new row's TID of the same
 * event stays the row's own; the server fetches it right after the old one.
 * mvcc/README.md has the rules.
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
	SubTransactionId subid;		/* in which it was made */
} ZHandle;

/*
 * The offset of every handle: behind the last line pointer that a page can
 * have, before the server's special ones.
 */
#define ZHANDLE_OFFSET 0x8001

static inline bool
zhandle_is(const ItemPointerData *tid)
{
	return unlikely(ItemPointerGetOffsetNumberNoCheck(tid) == ZHANDLE_OFFSET);
}

/*
 * zhandle_make: make tid the handle for our own change of the row at (block,
 * off). Error out of memory.
 */
extern void zhandle_make(Relation rel, BlockNumber block, OffsetNumber off, UndoPtr change,
						 ItemPointer tid);

/*
 * zhandle_statement_begin: notes that query, which is no part of another one's
 * execution, begins to run, or goes on. zhandle_statement_end: if no other
 * such query has run since, forgets the handles that were made for its events,
 * all of which have been fired, unless they can be deferred (HANDLE-7).
 */
extern void zhandle_statement_begin(const QueryDesc *query);
extern void zhandle_statement_end(const QueryDesc *query);

/*
 * zhandle_find: what tid, a handle, names; NULL if nothing (any more). reloid:
 * of this table; Invalid = any.
 */
extern const ZHandle *zhandle_find(Oid reloid, const ItemPointerData *tid);

/* ---- the new version of an event, kept from the fetch of its old one ---- */

/*
 * zhandle_keep_new: version, made by the change of handle, will be wanted by
 * the next fetch of its row.
 */
extern void zhandle_keep_new(const ZHandle *handle, const ZVersion *version);

/*
 * zhandle_take_new: the version kept, if it is the row at tid of rel; else
 * NULL. It is kept no longer in any case.
 */
extern const ZVersion *zhandle_take_new(Relation rel, const ItemPointerData *tid);

/*
 * zhandle_at_subxact_abort: forgets what the subtransaction, and those within
 * it, have made (HANDLE-1). zhandle_at_xact_end: forgets everything.
 */
extern void zhandle_at_subxact_abort(SubTransactionId mySubid);
extern void zhandle_at_xact_end(void);

#endif
