/*
 * mvcc/zany.h - SnapshotAny by TID (rules ANY-1 to ANY-5).
 */
#ifndef ZUNDO_ZANY_H
#define ZUNDO_ZANY_H

#include "mvcc/zvis.h"

/*
 * zany_fetch: fetches the version of the row at off that SnapshotAny means, as
 * zvis_fetch does for other snapshots. slot is where the caller will show the
 * version, or NULL. by_tid means that the caller wants one version in
 * particular; then raises ERRCODE_INTERNAL_ERROR if no rule before ANY-5 tells
 * which one. On entry and on return buf is pinned and not locked, and undo is
 * attached.
 */
extern void zany_fetch(Relation rel, Buffer buf, OffsetNumber off, TupleTableSlot *slot,
					   bool by_tid, ZVersion *version);

/*
 * zany_fetch_by_handle: fetches the version that the handle tid
 * (mvcc/zhandle.h) names, and sets *real to the TID of its row. Sets
 * version->found to false if the handle names nothing any more. For an
 * in-place update also keeps the new version for zany_fetch_kept. Undo is
 * attached.
 */
extern void zany_fetch_by_handle(Relation rel, ItemPointer tid, ZVersion *version,
								 ItemPointer real);

/*
 * zany_fetch_kept: returns the new version that the last call of
 * zany_fetch_by_handle has kept, if it is one of the row at tid; else NULL.
 * Drops it in any case. The result is valid until the next fetch by handle.
 */
extern const ZVersion *zany_fetch_kept(Relation rel, ItemPointer tid);

/*
 * zany_is_newest: returns whether the row at tid is live and its newest
 * version, aborted ones aside, is the one that our own record author made.
 * Undo is attached.
 */
extern bool zany_is_newest(Relation rel, ItemPointer tid, UndoPtr author);

/*
 * zany_is_conflict_slot: returns whether slot is the one into which the
 * current executor level fetches or locks the existing row of an INSERT ... ON
 * CONFLICT DO UPDATE or DO SELECT.
 */
extern bool zany_is_conflict_slot(TupleTableSlot *slot);

/*
 * zany_asks_for_author: returns whether a version that is fetched into slot
 * with SnapshotAny is for a trigger: then xmin tells the server, and a WHEN
 * condition, whether our transaction has written it (TOKEN-3). Queries that
 * fetch so, as MERGE and RETURNING do, want the token.
 */
extern bool zany_asks_for_author(TupleTableSlot *slot);

#endif
