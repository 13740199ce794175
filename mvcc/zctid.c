/*
 * mvcc/zctid.c - statements that name the rows they change by ctid.
 *
 * DELETE FROM t WHERE ctid IN (SELECT ctid FROM t WHERE done LIMIT 1000) comes
 * to a row that another transaction has changed since the snapshot, perhaps so
 * that it is not done any more. Under READ COMMITTED the server locks the
 * newest version and evaluates the plan again, but with the rows of the
 * subquery as the snapshot shows them. On heap the newest version has another
 * ctid, so the condition fails, and the row is left alone. Here an update in
 * place keeps the ctid, and the condition would hold. Hence:
 *
 *	(GUARD-4)	UPDATE, DELETE, MERGE and SELECT FOR UPDATE leave a row alone
 *				that was updated in place since the snapshot, if each row that
 *				they change or lock has to satisfy ctid = value. So does a
 *				statement that has locked the newest version before, as by
 *				SELECT ctid ... FOR UPDATE in a subquery: on heap that returns
 *				the new ctid, at which the snapshot sees no row.
 *
 * The tuple lock of dml/zlock.c asks for this when it has met such a row,
 * which is rare; the plan is searched only then. A condition counts only where
 * it must hold for every row that is returned: in each part of an OR, and not
 * on the preserved side of an outer join. It does not count if the value is
 * the ctid of a row that is locked with this one, as in a.ctid = b.ctid FOR
 * UPDATE: on heap both follow the update. Nor if the value comes from a
 * volatile function: on heap it may find the new ctid when it is called again.
 * Wherever this file is in doubt, the condition does not count, and the row is
 * changed as if it had been named by a key. No locks, no buffers, no crash
 * points.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_operator.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "mvcc/zctid.h"
#include "mvcc/zlevel.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"

/* Whose ctid is looked for. */
typedef struct CtidOf
{
	Bitmapset  *rels;			/* members of the range table */
	Bitmapset  *params;			/* parameters of nested loops and of subplans
								 * that are ctid of one of these */
} CtidOf;

/* The relation of a plan whose rows are changed or locked. */
typedef struct CtidTarget
{
	const PlannedStmt *stmt;
	CtidOf		row;			/* the relation, and those locked with it that
								 * must be the same row of the table */
	CtidOf		moving;			/* the relation, and those whose rows are
								 * locked with its rows: on heap each of these
								 * rows gets the ctid of its newest version */
	bool		same;			/* conditions looked for: true: ctid is equal
								 * to the ctid of a relation in 'moving';
								 * false: to any other value */
} CtidTarget;

static bool is_ctid(Plan *plan, Node *node, const CtidOf *of);
static bool plan_names(Plan *plan, const CtidTarget *target);

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

/*
 * Returns whether the column number resno of the plan's result is such a ctid.
 */
static bool
column_is_ctid(Plan *plan, int resno, const CtidOf *of)
{
	TargetEntry *entry;

	if (plan == NULL || resno < 1 || resno > list_length(plan->targetlist))
		return false;
	entry = list_nth_node(TargetEntry, plan->targetlist, resno - 1);
	return is_ctid(plan, (Node *) entry->expr, of);
}

/* Returns whether one column of the plan's result is such a ctid. */
static bool
returns_ctid(Plan *plan, const CtidOf *of)
{
	for (int resno = 1; plan != NULL && resno <= list_length(plan->targetlist); resno++)
		if (column_is_ctid(plan, resno, of))
			return true;
	return false;
}

/* Returns the plans whose results an Append returns, or NIL. */
static List *
appended(Plan *plan)
{
	if (IsA(plan, Append))
		return ((Append *) plan)->appendplans;
	if (IsA(plan, MergeAppend))
		return ((MergeAppend *) plan)->mergeplans;
	return NIL;
}

/* Returns whether an expression of the plan is such a ctid. */
static bool
is_ctid(Plan *plan, Node *node, const CtidOf *of)
{
	const Var  *var;
	ListCell   *lc;

	check_stack_depth();
	node = zctid_without_casts(node);
	var = (Var *) node;
	if (IsA(node, Param))
		return ((Param *) node)->paramkind == PARAM_EXEC &&
			bms_is_member(((Param *) node)->paramid, of->params);
	if (!IsA(node, Var))
		return false;
	if (var->varno == INNER_VAR)
		return column_is_ctid(innerPlan(plan), var->varattno, of);
	if (var->varno != OUTER_VAR)
		return var->varno > 0 && bms_is_member(var->varno, of->rels) &&
			var->varattno == SelfItemPointerAttributeNumber;
	foreach(lc, appended(plan))
	{
		if (column_is_ctid(lfirst(lc), var->varattno, of))
			return true;
	}
	return column_is_ctid(outerPlan(plan), var->varattno, of);
}

/*
 * Adds the parameter to those that are ctid of the target, or of what is locked
 * with it, if its value, an expression of the plan, is.
 */
static void
add_param(Plan *plan, int param, Node *value, CtidTarget *target)
{
	if (is_ctid(plan, value, &target->row))
		target->row.params = bms_add_member(bms_copy(target->row.params), param);
	if (is_ctid(plan, value, &target->moving))
		target->moving.params = bms_add_member(bms_copy(target->moving.params), param);
}

/*
 * Returns whether a subplan that has to return a row, as EXISTS and IN want,
 * does so only if ctid = value for the target, which is a parameter in it.
 */
static bool
subplan_names(Plan *plan, const SubPlan *subplan, const CtidTarget *target)
{
	CtidTarget	within = *target;
	ListCell   *param,
			   *value;

	forboth(param, subplan->parParam, value, subplan->args)
		add_param(plan, lfirst_int(param), lfirst(value), &within);
	return !bms_equal(within.row.params, target->row.params) &&
		plan_names(list_nth(target->stmt->subplans, subplan->plan_id - 1), &within);
}

/* Returns whether a condition of the plan is ctid = value for the target. */
static bool
is_condition(Plan *plan, Node *node, const CtidTarget *target)
{
	Node	   *left,
			   *right;
	ListCell   *lc;

	check_stack_depth();
	if (IsA(node, SubPlan))
	{
		SubPlan    *subplan = (SubPlan *) node;

		if (subplan->subLinkType == ANY_SUBLINK && is_condition(plan, subplan->testexpr, target))
			return true;
		return (subplan->subLinkType == ANY_SUBLINK || subplan->subLinkType == EXISTS_SUBLINK) &&
			subplan_names(plan, subplan, target);
	}
	if (is_andclause(node) || is_orclause(node))
	{
		bool		enough = is_andclause(node);

		foreach(lc, ((BoolExpr *) node)->args)
		{
			if (is_condition(plan, lfirst(lc), target) == enough)
				return enough;
		}
		return !enough;
	}
	if ((IsA(node, ScalarArrayOpExpr) && !((ScalarArrayOpExpr *) node)->useOr) ||
		!zctid_equality(node, &left, &right) ||
		contain_volatile_functions(left) || contain_volatile_functions(right))
		return false;
	return (is_ctid(plan, left, &target->row) &&
			is_ctid(plan, right, &target->moving) == target->same) ||
		(is_ctid(plan, right, &target->row) &&
		 is_ctid(plan, left, &target->moving) == target->same);
}

/* Returns whether one of the conditions is ctid = value for the target. */
static bool
one_is_condition(Plan *plan, List *conditions, const CtidTarget *target)
{
	ListCell   *lc;

	foreach(lc, conditions)
	{
		if (is_condition(plan, lfirst(lc), target))
			return true;
	}
	return false;
}

/*
 * Returns whether all conditions of a TID scan, which are alternatives, are
 * ctid = value for the target. WHERE CURRENT OF is none.
 */
static bool
tid_scan_names(TidScan *scan, const CtidTarget *target)
{
	ListCell   *lc;

	Assert(scan->tidquals != NIL);
	foreach(lc, scan->tidquals)
	{
		if (!is_condition(&scan->scan.plan, lfirst(lc), target))
			return false;
	}
	return true;
}

/*
 * Does plan_names's work for a join. What is joined to a row of an outer join's
 * preserved side says nothing about that row. A row of the other side, as MERGE
 * may have it, satisfies the conditions if it is there at all.
 */
static bool
join_names(Join *join, const CtidTarget *target)
{
	Plan	   *plan = &join->plan;
	CtidTarget	inner = *target;
	ListCell   *lc;

	if (join->jointype == JOIN_ANTI ||
		(join->jointype == JOIN_LEFT && !returns_ctid(innerPlan(plan), &target->row)))
		return plan_names(outerPlan(plan), target);
	if (ZC_IS_RIGHT_ANTI(join->jointype) ||
		(join->jointype == JOIN_RIGHT && !returns_ctid(outerPlan(plan), &target->row)))
		return plan_names(innerPlan(plan), target);
	if (join->jointype == JOIN_FULL)
		return false;
	Assert(join->jointype == JOIN_INNER || join->jointype == JOIN_SEMI ||
		   join->jointype == JOIN_LEFT || join->jointype == JOIN_RIGHT ||
		   ZC_IS_RIGHT_SEMI(join->jointype));
	if (one_is_condition(plan, join->joinqual, target) ||
		(IsA(join, HashJoin) &&
		 one_is_condition(plan, ((HashJoin *) join)->hashclauses, target)) ||
		(IsA(join, MergeJoin) &&
		 one_is_condition(plan, ((MergeJoin *) join)->mergeclauses, target)) ||
		plan_names(outerPlan(plan), target))
		return true;
	if (IsA(join, NestLoop))
	{
		foreach(lc, ((NestLoop *) join)->nestParams)
		{
			const NestLoopParam *param = lfirst_node(NestLoopParam, lc);

			add_param(plan, param->paramno, (Node *) param->paramval, &inner);
		}
	}
	return plan_names(innerPlan(plan), &inner);
}

/*
 * Does plan_names's work for an Append: the member that reads the target must
 * have the condition, or all must have it for a parameter that is its ctid.
 */
static bool
append_names(Plan *plan, const CtidTarget *target)
{
	CtidTarget	member = *target;
	bool		all = target->row.params != NULL && appended(plan) != NIL;
	ListCell   *lc;

	member.row.params = NULL;
	foreach(lc, appended(plan))
	{
		if (plan_names(lfirst(lc), &member))
			return true;
		all = all && plan_names(lfirst(lc), target);
	}
	return all;
}

/*
 * Returns whether the plan returns only rows of the target, or rows joined to
 * them, that satisfy ctid = value for the target. A parameter may be the
 * target's ctid in a plan that does not read the target. What is below a
 * SubqueryScan is not evaluated again: its row is kept.
 */
static bool
plan_names(Plan *plan, const CtidTarget *target)
{
	if (plan == NULL)
		return false;
	check_stack_depth();
	if (one_is_condition(plan, plan->qual, target))
		return true;
	switch (nodeTag(plan))
	{
		case T_TidScan:
			return tid_scan_names((TidScan *) plan, target);
		case T_IndexScan:
			return one_is_condition(plan, ((IndexScan *) plan)->indexqualorig, target);
		case T_IndexOnlyScan:
			return one_is_condition(plan, ((IndexOnlyScan *) plan)->indexqual, target);
		case T_BitmapHeapScan:
			return one_is_condition(plan, ((BitmapHeapScan *) plan)->bitmapqualorig, target);
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			return join_names((Join *) plan, target);
		case T_Hash:
		case T_Material:
		case T_Memoize:
		case T_Sort:
		case T_IncrementalSort:
		case T_Unique:
		case T_Limit:
		case T_Result:
			return plan_names(outerPlan(plan), target);
		case T_Append:
		case T_MergeAppend:
			return append_names(plan, target);
		default:
			return false;
	}
}

/*
 * Returns whether the plan of the statement changes rows of relation relid only
 * by a condition on ctid.
 */
static bool
changes_by_ctid(const PlannedStmt *stmt, const Plan *plan, Oid relid)
{
	ListCell   *lc;

	if (!IsA(plan, ModifyTable))
		return false;
	foreach(lc, ((const ModifyTable *) plan)->resultRelations)
	{
		Bitmapset  *rels = bms_make_singleton(lfirst_int(lc));
		const CtidTarget target = {stmt, {rels, NULL}, {rels, NULL}, false};

		if (rt_fetch(lfirst_int(lc), stmt->rtable)->relid == relid)
			return plan_names(outerPlan(plan), &target);
	}
	return false;
}

/*
 * Returns the plan that locks the row of rel into this slot in order to change
 * it: the statement's own, or that of a WITH query.
 */
static const Plan *
plan_of_slot(const EState *estate, Relation rel, const TupleTableSlot *slot)
{
	ListCell   *lc;

	foreach(lc, estate->es_auxmodifytables)
	{
		const ModifyTableState *modify = lfirst_node(ModifyTableState, lc);

		for (int i = 0; i < modify->mt_nrels; i++)
		{
			const ResultRelInfo *info = &modify->resultRelInfo[i];

			if (RelationGetRelid(info->ri_RelationDesc) == RelationGetRelid(rel) &&
				(info->ri_TrigOldSlot == slot ||
				 modify->mt_epqstate.relsubs_slot[info->ri_RangeTableIndex - 1] == slot))
				return modify->ps.plan;
		}
	}
	return estate->es_plannedstmt->planTree;
}

/*
 * Returns the relation rti, and those of the locked ones that the plan joins to
 * it by their ctids, as in a.ctid = b.ctid.
 */
static Bitmapset *
same_row(const PlannedStmt *stmt, Plan *plan, int rti, const Bitmapset *locked)
{
	Bitmapset  *group = bms_make_singleton(rti);
	int			other = -1;

	while ((other = bms_next_member(locked, other)) >= 0)
	{
		const CtidTarget target = {stmt, {group, NULL}, {bms_make_singleton(other), NULL}, true};

		if (!bms_is_member(other, group) && plan_names(plan, &target))
		{
			group = bms_add_member(group, other);
			other = -1;			/* now an earlier one may belong to the group,
								 * too */
		}
	}
	return group;
}

/*
 * Returns whether SELECT FOR UPDATE and its kind lock rows of relation rti in
 * this plan node only by a condition on ctid. locked are the relations of the
 * same table that the node locks.
 */
static bool
mark_locks_by_ctid(const PlannedStmt *stmt, LockRows *node, int rti, Bitmapset *locked)
{
	CtidTarget	target = {stmt, {NULL, NULL}, {locked, NULL}, false};

	target.row.rels = same_row(stmt, outerPlan(node), rti, locked);
	return plan_names(outerPlan(node), &target);
}

/* Returns the relations of which this plan node locks rows of table relid. */
static Bitmapset *
locked_by_node(const PlannedStmt *stmt, const LockRows *node, Oid relid)
{
	Bitmapset  *locked = NULL;
	ListCell   *lc;

	foreach(lc, node->rowMarks)
	{
		const PlanRowMark *mark = lfirst_node(PlanRowMark, lc);

		if (RowMarkRequiresRowShareLock(mark->markType) && !mark->isParent &&
			rt_fetch(mark->rti, stmt->rtable)->relid == relid)
			locked = bms_add_member(locked, mark->rti);
	}
	return locked;
}

/*
 * Looks at the rows of relation relid that SELECT FOR UPDATE and its kind lock
 * in this plan node. Sets *locks if it locks any, and returns false if it does
 * that without a condition on ctid.
 */
static bool
node_locks_by_ctid(const PlannedStmt *stmt, LockRows *node, Oid relid, bool *locks)
{
	Bitmapset  *locked = locked_by_node(stmt, node, relid);
	int			rti = -1;

	while ((rti = bms_next_member(locked, rti)) >= 0)
	{
		*locks = true;
		if (!mark_locks_by_ctid(stmt, node, rti, locked))
			return false;
	}
	return true;
}

/* Does what node_locks_by_ctid does, for all LockRows nodes of the plan. */
static bool
locks_by_ctid(const PlannedStmt *stmt, Plan *plan, Oid relid, bool *locks)
{
	ListCell   *lc;

	if (plan == NULL)
		return true;
	check_stack_depth();
	if (IsA(plan, LockRows) && !node_locks_by_ctid(stmt, (LockRows *) plan, relid, locks))
		return false;
	if (IsA(plan, SubqueryScan) &&
		!locks_by_ctid(stmt, ((SubqueryScan *) plan)->subplan, relid, locks))
		return false;
	foreach(lc, appended(plan))
	{
		if (!locks_by_ctid(stmt, lfirst(lc), relid, locks))
			return false;
	}
	return locks_by_ctid(stmt, outerPlan(plan), relid, locks) &&
		locks_by_ctid(stmt, innerPlan(plan), relid, locks);
}

/* The plan node that locks rows into a slot, and the relation that it locks. */
typedef struct Locker
{
	const TupleTableSlot *slot;
	LockRows   *node;
	int			rti;
} Locker;

/* Sets node and rti of the locker, and returns true, if they are found. */
static bool
find_locker(PlanState *state, Locker *locker)
{
	ListCell   *lc;

	if (IsA(state, LockRowsState))
	{
		const LockRowsState *node = (LockRowsState *) state;

		foreach(lc, node->lr_arowMarks)
		{
			int			rti = ((ExecAuxRowMark *) lfirst(lc))->rowmark->rti;

			if (node->lr_epqstate.relsubs_slot[rti - 1] == locker->slot)
			{
				locker->node = (LockRows *) state->plan;
				locker->rti = rti;
				return true;
			}
		}
	}
	return planstate_tree_walker(state, find_locker, locker);
}

bool
zctid_names_row(Relation rel, bool locks_only, const TupleTableSlot *slot)
{
	const ZLevel *level = zlevel_current();
	const PlannedStmt *stmt = level->estate != NULL ? level->estate->es_plannedstmt : NULL;
	Oid			relid = RelationGetRelid(rel);
	Locker		locker = {.slot = slot};
	bool		found = false;
	ListCell   *lc;

	if (stmt == NULL)
		return false;
	if (!locks_only)
		return changes_by_ctid(stmt, plan_of_slot(level->estate, rel, slot), relid);
	if (level->plan != NULL && find_locker(level->plan, &locker))
		return mark_locks_by_ctid(stmt, locker.node, locker.rti,
								  locked_by_node(stmt, locker.node, relid));

	/* a plan that is evaluated again for one row has states of its own */
	if (!locks_by_ctid(stmt, stmt->planTree, relid, &found))
		return false;
	foreach(lc, stmt->subplans)
	{
		if (!locks_by_ctid(stmt, lfirst(lc), relid, &found))
			return false;
	}
	return found;
}
