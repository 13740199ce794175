/*
 * guard/zxmin_id.h - uses of xmin as an id: answered in another way, or refused
 * (GUARD-2).
 */
#ifndef ZUNDO_ZXMIN_ID_H
#define ZUNDO_ZXMIN_ID_H

#include "nodes/pathnodes.h"

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
