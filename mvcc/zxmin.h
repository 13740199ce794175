/*
 * mvcc/zxmin.h - xmin: where it shows an id and not the token, and which uses
 * of it are answered in another way, or refused.
 */
#ifndef ZUNDO_ZXMIN_H
#define ZUNDO_ZXMIN_H

#include "nodes/pathnodes.h"
#include "tuple/ztts.h"

/*
 * zxmin_author: returns the id that xmin of the version in the slot shows
 * instead of its token (TOKEN-3, TOKEN-4), or InvalidTransactionId.
 * names_author: the caller asks whether our transaction has written the
 * version. May look up the author, so no page may be locked. Called through
 * ztts_author_xid_hook.
 */
extern TransactionId zxmin_author(ZHeapSlot *slot, bool names_author);

/*
 * zxmin_plan_table: has comparisons of xmin of a zheap table with the own
 * transaction id answered by zundo.xmin_or_own, and raises
 * ERRCODE_FEATURE_NOT_SUPPORTED if the query level uses xmin as an id
 * otherwise (GUARD-2). Called when the planner has begun with the table rel, so
 * before it looks at the level's conditions and at what they need.
 *
 * zxmin_plan_insert: does the same for the table into which the level inserts,
 * if it does: that is not a table that the planner looks at. Called when the
 * level's paths are known.
 */
extern void zxmin_plan_table(PlannerInfo *root, RelOptInfo *rel);
extern void zxmin_plan_insert(PlannerInfo *root);

#endif
