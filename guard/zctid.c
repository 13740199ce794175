/*
 * guard/zctid.c - statements that name rows by ctid. Owned here:
 *
 *	(GUARD-3)	a statement that names rows of a table by a ctid from outside
 *				(zctid_outside.c), of which nobody knows when it was read,
 *				changes only those that its transaction has locked FOR SHARE
 *				or stronger, or has written, before. Exceptions: the statement
 *				compares the row's xmin with what was read with the ctid; the
 *				table is temporary, or locked against other writers; or
 *				zundo.allow_ctid_guard is on.
 *	(GUARD-4)	to the conditions of a statement that compares TIDs, a row
 *				that a lock has found updated in place since the snapshot has
 *				another TID than before (ZTID_NEWER), as on heap.
 *
 * hooks.c has the tables noted in each plan and calls the check at the start
 * of a statement, dml/ asks for each row that is changed or locked. No locks,
 * no buffers, no crash points.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type_d.h"
#include "common/zundo.h"
#include "executor/executor.h"
#include "guard/zctid.h"
#include "mvcc/zlevel.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "storage/lmgr.h"
#include "tuple/ztts.h"
#include "utils/rel.h"

/* ---- GUARD-3: rows named by a ctid from outside ---- */

/*
 * The plan has an item for each table of which it changes rows that the
 * statement names. They stand among those that invalidate the plan: plan caches
 * keep these, and no invalidation is for a cache of this number.
 */
#define NAMED_TABLE	(-1)

void
zctid_keep_named(PlannedStmt *stmt, List *tables)
{
	ListCell   *lc;

	foreach(lc, tables)
	{
		PlanInvalItem *item = makeNode(PlanInvalItem);

		item->cacheId = NAMED_TABLE;
		item->hashValue = lfirst_oid(lc);
		stmt->invalItems = lappend(stmt->invalItems, item);
	}
}

/* Returns whether the plan has an item for this table. */
static bool
names_rows(const PlannedStmt *stmt, Relation rel)
{
	ListCell   *lc;

	foreach(lc, stmt->invalItems)
	{
		const PlanInvalItem *item = lfirst_node(PlanInvalItem, lc);

		if (item->cacheId == NAMED_TABLE && item->hashValue == RelationGetRelid(rel))
			return true;
	}
	return false;
}

/*
 * Returns whether other transactions may change rows of rel. They cannot if it
 * is temporary, or if this one has locked it against them, as REFRESH
 * MATERIALIZED VIEW CONCURRENTLY does.
 */
static bool
others_may_change(Relation rel)
{
	return !RelationUsesLocalBuffers(rel) && !CheckRelationLockedByMe(rel, ShareLock, true);
}

void
zctid_refuse(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot change a row of zheap table \"%s\" by a ctid from outside the "
					"statement",
					RelationGetRelationName(rel)),
			 errdetail("An update keeps the ctid of the row, so the ctid does not tell "
					   "whether the row has changed since it was read."),
			 errhint("Lock the row first in the same transaction with SELECT ... FOR "
					 "UPDATE, compare its xmin, too, identify it by a key, or set "
					 "\"zundo.allow_ctid_guard\" to \"on\".")));
	pg_unreachable();
}

bool
zctid_asks(Relation rel)
{
	return !zundo_allow_ctid_guard && names_rows(zlevel_current()->query->plannedstmt, rel) &&
		others_may_change(rel);
}

/*
 * zctid_check_statement: See zctid.h. A transaction without an id has neither
 * locked nor changed rows.
 */
void
zctid_check_statement(QueryDesc *query, int eflags)
{
	ListCell   *lc;

	if (likely(query->plannedstmt->invalItems == NIL) || (eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0 ||
		zundo_allow_ctid_guard || TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return;
	foreach(lc, query->estate->es_opened_result_relations)
	{
		Relation	rel = ((ResultRelInfo *) lfirst(lc))->ri_RelationDesc;

		if (names_rows(query->plannedstmt, rel) && ztts_is_zheap(rel) &&
			others_may_change(rel))
			zctid_refuse(rel);
	}
}

/* ---- GUARD-4: statements that compare ctids ---- */

/* Returns whether an expression has a TID in it, or an array of them. */
static bool
names_tid(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if ((IsA(node, Var) || IsA(node, Param) || IsA(node, Const)) &&
		(exprType(node) == TIDOID || exprType(node) == TIDARRAYOID))
		return true;
	return expression_tree_walker(node, names_tid, context);
}

/*
 * Returns whether one of the conditions has a TID in it. One with a volatile
 * function does not count: when it is evaluated again, the function may look
 * the row up anew.
 */
static bool
one_compares(List *conditions)
{
	ListCell   *lc;

	foreach(lc, conditions)
	{
		if (names_tid(lfirst(lc), NULL) && !contain_volatile_functions(lfirst(lc)))
			return true;
	}
	return false;
}

/* Returns whether a condition of the node, or of one below it, has one. */
static bool
compares_tids(PlanState *state, void *context)
{
	Plan	   *plan = state->plan;
	ListCell   *lc;

	if (IsA(plan, TidScan) || IsA(plan, TidRangeScan) || one_compares(plan->qual))
		return true;
	if (IsA(plan, NestLoop) || IsA(plan, HashJoin) || IsA(plan, MergeJoin))
	{
		if (one_compares(((Join *) plan)->joinqual) ||
			(IsA(plan, HashJoin) && one_compares(((HashJoin *) plan)->hashclauses)) ||
			(IsA(plan, MergeJoin) && one_compares(((MergeJoin *) plan)->mergeclauses)))
			return true;
		foreach(lc, IsA(plan, NestLoop) ? ((NestLoop *) plan)->nestParams : NIL)
		{
			if (names_tid((Node *) lfirst_node(NestLoopParam, lc)->paramval, NULL))
				return true;
		}
	}
	return planstate_tree_walker(state, compares_tids, context);
}

/*
 * zctid_is_compared: See zctid.h. WITH queries that change rows have plan
 * states of their own.
 */
bool
zctid_is_compared(void)
{
	const ZLevel *level = zlevel_current();
	ListCell   *lc;

	if (level->plan == NULL)
		return false;
	if (compares_tids(level->plan, NULL))
		return true;
	foreach(lc, level->estate->es_subplanstates)
	{
		if (lfirst(lc) != NULL && compares_tids(lfirst(lc), NULL))
			return true;
	}
	return false;
}
