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
 * -3 and -7.
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
	uint64		place;			/* of the rows (mvcc/zspill.h) */
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
 * zhandle_make: sets *tid to a handle for our own change of the row at (block,
 * off), and keeps copies of its rows. Leaves *tid alone if no trigger of the
 * table fires in this session. Raises ERRCODE_PROGRAM_LIMIT_EXCEEDED if the
 * transaction has too many handles, and the errors of a temporary file.
 */
extern void zhandle_make(Relation rel, BlockNumber block, OffsetNumber off,
						 const ZChangedRow *rows, ItemPointer tid);

/*
 * zhandle_find: returns what the handle tid names, or NULL if it names nothing
 * (any more), or a row of another table than reloid. With InvalidOid any table
 * will do.
 */
extern const ZHandle *zhandle_find(Oid reloid, const ItemPointerData *tid);

/*
 * zhandle_fetch: makes *version the row before the change that the handle
 * names, and keeps the row after it for zhandle_take_new, if the change was an
 * update in place. Raises the errors of a temporary file, and
 * ERRCODE_DATA_CORRUPTED if the rows are not those of this change.
 *
 * zhandle_kept_new: returns the version that is kept, or NULL.
 *
 * zhandle_take_new: returns it if it is one of the row at tid of rel, else
 * NULL. Drops it in any case; the result is valid until another one is kept.
 */
extern void zhandle_fetch(const ZHandle *handle, ZVersion *version);
extern const ZVersion *zhandle_kept_new(void);
extern const ZVersion *zhandle_take_new(Relation rel, const ItemPointerData *tid);

/*
 * zhandle_query_begin: notes that a query has been started; its triggers, and
 * those of the queries within it for which this is not called, fire when it
 * ends. zhandle_query_end: forgets the handles that have been made since, all
 * of whose events have fired, unless these can be deferred (HANDLE-7). Both are
 * for queries without EXEC_FLAG_SKIP_TRIGGERS.
 */
extern void zhandle_query_begin(const EState *estate);
extern void zhandle_query_end(const EState *estate);

/*
 * zhandle_count: returns how many handles there are. zhandle_all_fired: forgets
 * handles after SET CONSTRAINTS ALL IMMEDIATE, which has fired all events that
 * were deferred before it, when there were 'before' handles: those that this
 * subtransaction has made. A rollback of it would bring the events before it
 * back. Does nothing if the fired triggers have left handles: one may have
 * deferred its events again.
 */
extern uint32 zhandle_count(void);
extern void zhandle_all_fired(uint32 before);

/*
 * zhandle_at_subxact_abort: forgets the handles that subtransaction mySubid
 * and those within it have made (HANDLE-7). zhandle_at_xact_end: forgets all
 * of them. Raise no error.
 */
extern void zhandle_at_subxact_abort(SubTransactionId mySubid);
extern void zhandle_at_xact_end(void);

#endif
