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
#include "mvcc/zlevel.h"
#include "mvcc/zvis.h"

/* What a handle names. */
typedef struct ZHandle
{
	UndoPtr		change;			/* the record of the update or delete */
	ZChangedRow *rows;			/* of that change; NULL: they are in a file */
	uint64		place;			/* in the file */
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

/* zhandle_old_version: makes *version the row before the change. */
extern void zhandle_old_version(const ZChangedRow *rows, ZVersion *version);

/*
 * zhandle_make: sets *tid to the handle for our own change of the row at
 * (block, off), and keeps copies of its rows. Raises
 * ERRCODE_PROGRAM_LIMIT_EXCEEDED if the transaction has too many handles, and
 * the errors of a temporary file.
 */
extern void zhandle_make(Relation rel, BlockNumber block, OffsetNumber off,
						 const ZChangedRow *rows, ItemPointer tid);

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

/*
 * zhandle_fetch: makes *version the row before the change that the handle
 * names, and keeps the row after it for zhandle_take_new, if the change was an
 * update in place.
 */
extern void zhandle_fetch(const ZHandle *handle, ZVersion *version);

/*
 * zhandle_take_new: returns the version that zhandle_fetch has kept if it is
 * one of the row at tid of rel, else NULL. Drops it in any case; the result is
 * valid until another version is kept.
 */
extern const ZVersion *zhandle_take_new(Relation rel, const ItemPointerData *tid);

#ifdef USE_ASSERT_CHECKING
/* zhandle_kept_new: returns the version kept for the handle, or NULL. */
extern const ZVersion *zhandle_kept_new(const ZHandle *handle);
#endif

/*
 * zhandle_before_end: closes the file before a transaction commits or is
 * prepared; all events have fired. May raise an error.
 *
 * zhandle_at_subxact_abort: forgets the handles that subtransaction mySubid
 * and those within it have made (HANDLE-7). zhandle_at_xact_end: forgets all
 * of them.
 */
extern void zhandle_before_end(void);
extern void zhandle_at_subxact_abort(SubTransactionId mySubid);
extern void zhandle_at_xact_end(void);

#endif
