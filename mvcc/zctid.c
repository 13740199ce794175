/*
 * mvcc/zctid.c - statements that compare ctids.
 *
 *	(GUARD-4)	a row that a lock has found updated in place since the
 *				snapshot has another TID in the slot than before
 *				(ZTID_NEWER), if the statement compares TIDs. So the server's
 *				own recheck finds ctid = value not true for it, as on heap.
 *
 * No locks, no buffers, no crash points.
 */
#include "postgres.h"

#include "catalog/pg_operator.h"
#include "catalog/pg_type_d.h"
#include "common/zundo.h"
#include "mvcc/zctid.h"
#include "mvcc/zlevel.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"

Node *
zctid_without_casts(Node *node)
{
	for (;;)
	{
		if (IsA(node, RelabelType))
			node = (Node *) ((RelabelType *) node)->arg;
		else if (IsA(node, CoerceViaIO))
			node = (Node *) ((CoerceViaIO *) node)->arg;
		else
			return node;
	}
}

bool
zctid_equality(Node *node, Node **left, Node **right)
{
	Oid			operator;
	List	   *args;

	if (is_notclause(node) && IsA(get_notclausearg(node), DistinctExpr))
		node = (Node *) get_notclausearg(node);
	else if (IsA(node, DistinctExpr))
		return false;
	if (IsA(node, OpExpr) || IsA(node, DistinctExpr))
	{
		operator = ((OpExpr *) node)->opno;
		args = ((OpExpr *) node)->args;
	}
	else if (IsA(node, ScalarArrayOpExpr))
	{
		operator = ((ScalarArrayOpExpr *) node)->opno;
		args = ((ScalarArrayOpExpr *) node)->args;
	}
	else
		return false;
	if (operator != TIDEqualOperator && operator != TextEqualOperator)
		return false;
	*left = zctid_without_casts(linitial(args));
	*right = zctid_without_casts(lsecond(args));
	return true;
}

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
