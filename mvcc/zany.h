/*
 * mvcc/zany.h - SnapshotAny by TID (rules ANY-1 to ANY-5).
 */
#ifndef ZUNDO_ZANY_H
#define ZUNDO_ZANY_H

#include "mvcc/zvis.h"

/*
 * zany_fetch: as zvis_fetch, for SnapshotAny by TID. slot: where the caller
 * will show it, NULL if nowhere. by_tid: one version in particular is wanted;
 * raises ERRCODE_INTERNAL_ERROR if it cannot be told which (ANY-5).
 */
extern void zany_fetch(Relation rel, Buffer buf, OffsetNumber off, TupleTableSlot *slot,
					   bool by_tid, ZVersion *version);

/*
 * zany_unclear: returns how often ANY-5 has applied since the server's start,
 * which must have loaded the library.
 */
extern void zany_unclear(uint64 *answered, uint64 *refused);

/* For the hooks in zundo.c: the counters. */
extern Size zany_shmem_size(void);
extern void zany_shmem_startup(void);

/*
 * zany_fetch_by_handle: the version that tid, a handle (mvcc/zhandle.h),
 * names; *real = its row's TID. A handle that names nothing gives found =
 * false.
 */
extern void zany_fetch_by_handle(Relation rel, ItemPointer tid, ZVersion *version,
								 ItemPointer real);

/*
 * zany_fetch_kept: the new version of the event whose old one was fetched just
 * before; NULL = it is not that.
 */
extern const ZVersion *zany_fetch_kept(Relation rel, ItemPointer tid);

/*
 * zany_is_newest: is the version that our own record writer made still the
 * row's newest one, and live?
 */
extern bool zany_is_newest(Relation rel, ItemPointer tid, UndoPtr writer);

/*
 * zany_is_conflict_slot: is slot where the current executor level locks the
 * row that an INSERT ... ON CONFLICT DO UPDATE has met?
 */
extern bool zany_is_conflict_slot(TupleTableSlot *slot);

#endif
