/*
 * mvcc/zctid_outside.c - whether a ctid comes from outside the statement.
 *
 * GUARD-3 (mvcc/zctid.c) refuses changes of rows that a statement names by
 * such a ctid. The condition may stand in a scan (ctid = $1) or in a join,
 * whose other side returns the values (FROM unnest($1) c WHERE t.ctid = c).
 * This file finds it in the plan, and follows the variables of both operands
 * down the plan to the scans that return them. No locks, no buffers, no crash
 * points.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/transam.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "mvcc/zctid.h"
#include "nodes/nodeFuncs.h"
#include "utils/lsyscache.h"

/* A node of the statement's plan, whose expressions are looked at. */
typedef struct PlanPlace
{
	const PlannedStmt *stmt;
	Plan	   *plan;
	const SubPlan *in;			/* of value IN (SELECT ...): the expression's
								 * parameters are this one's results; or NULL */
	int		   *budget;			/* number of variables that may still be
								 * followed */
} PlanPlace;

/*
 * A query may use a column of a WITH query several times, which uses a column
 * of another one several times, and so on; each use is followed anew.
 */
#define MAX_VARIABLES	10000

/*
 * What sets a parameter of the executor: the place of the expression, and the
 * expression; NULL if it is not found.
 */
typedef struct ParamSource
{
	PlanPlace	place;
	Node	   *value;
} ParamSource;

static bool is_inside_walker(Node *node, PlanPlace *place);

/* Returns the expression without casts to and from text. */
static Node *
without_casts(Node *node)
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

/*
 * If node is an equality that can compare a ctid, also as text or by IS NOT
 * DISTINCT FROM, sets *left and *right to its operands without casts, and
 * returns true. Of = ANY and = ALL one operand is the array.
 */
static bool
is_equality(Node *node, Node **left, Node **right)
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
	*left = without_casts(linitial(args));
	*right = without_casts(lsecond(args));
	return true;
}

/*
 * Returns whether the function may read the table: it is volatile, or it is a
 * stable one of a user's, which reads it with the statement's snapshot. The
 * server's own stable ones, such as current_setting(), do not.
 */
static bool
may_read(Oid function, void *context)
{
	char		volatility = func_volatile(function);

	return volatility == PROVOLATILE_VOLATILE ||
		(volatility == PROVOLATILE_STABLE && function >= FirstNormalObjectId);
}

/* Returns the expression of column resno of the plan's result, or NULL. */
static Node *
column_of(const Plan *plan, int resno)
{
	/* what INSERT, UPDATE and MERGE return is not followed further */
	if (plan == NULL || IsA(plan, SetOp) ||
		(IsA(plan, ModifyTable) && ((const ModifyTable *) plan)->operation != CMD_DELETE) ||
		resno < 1 || resno > list_length(plan->targetlist))
		return NULL;
	return (Node *) list_nth_node(TargetEntry, plan->targetlist, resno - 1)->expr;
}

/*
 * Returns the plans whose results the plan returns as OUTER_VAR or INNER_VAR,
 * or the plan of a subquery.
 */
static List *
children_of(const Plan *plan, int varno)
{
	if (varno == INNER_VAR)
		return innerPlan(plan) != NULL ? list_make1(innerPlan(plan)) : NIL;
	if (IsA(plan, Append))
		return ((const Append *) plan)->appendplans;
	if (IsA(plan, MergeAppend))
		return ((const MergeAppend *) plan)->mergeplans;
	if (IsA(plan, SubqueryScan))
		return list_make1(((const SubqueryScan *) plan)->subplan);
	if (IsA(plan, RecursiveUnion))
		return list_make2(outerPlan(plan), innerPlan(plan));
	return outerPlan(plan) != NULL ? list_make1(outerPlan(plan)) : NIL;
}

/* Returns the plan that a scan of a subquery or of a WITH query reads. */
static Plan *
scanned_plan(const PlanPlace *place)
{
	if (IsA(place->plan, SubqueryScan))
		return ((SubqueryScan *) place->plan)->subplan;
	if (IsA(place->plan, CteScan))
		return list_nth(place->stmt->subplans, ((CteScan *) place->plan)->ctePlanId - 1);
	return NULL;
}

/* ---- what sets a parameter ---- */

/* Looks for the parameter in what the plan node itself sets. */
static bool
node_sets_param(Plan *plan, int paramid, ParamSource *source)
{
	ListCell   *lc;

	foreach(lc, plan->initPlan)
	{
		const SubPlan *init = lfirst_node(SubPlan, lc);
		int			column = 1;
		ListCell   *param;

		foreach(param, init->setParam)
		{
			if (lfirst_int(param) == paramid)
			{
				source->place.plan = list_nth(source->place.stmt->subplans, init->plan_id - 1);
				source->value = column_of(source->place.plan, column);
				return true;
			}
			column++;
		}
	}
	if (IsA(plan, NestLoop))
	{
		foreach(lc, ((NestLoop *) plan)->nestParams)
		{
			const NestLoopParam *param = lfirst_node(NestLoopParam, lc);

			if (param->paramno == paramid)
			{
				source->place.plan = plan;
				source->value = (Node *) param->paramval;
				return true;
			}
		}
	}
	return false;
}

/* Looks for the parameter in a plan and all below it. */
static bool
find_param(Plan *plan, int paramid, ParamSource *source)
{
	ListCell   *lc;

	if (plan == NULL)
		return false;
	check_stack_depth();
	if (node_sets_param(plan, paramid, source))
		return true;
	foreach(lc, children_of(plan, OUTER_VAR))
	{
		if (find_param(lfirst(lc), paramid, source))
			return true;
	}
	return find_param(innerPlan(plan), paramid, source);
}

/* Returns what sets the executor's parameter in an expression of this place. */
static ParamSource
source_of_param(const PlanPlace *place, int paramid)
{
	ParamSource source = {{place->stmt, NULL, NULL, place->budget}, NULL};
	ListCell   *lc;
	int			column = 1;

	foreach(lc, place->in != NULL ? place->in->paramIds : NIL)
	{
		if (lfirst_int(lc) == paramid)
		{
			source.place.plan = list_nth(place->stmt->subplans, place->in->plan_id - 1);
			source.value = column_of(source.place.plan, column);
			return source;
		}
		column++;
	}
	if (find_param(place->stmt->planTree, paramid, &source))
		return source;
	foreach(lc, place->stmt->subplans)
	{
		if (find_param(lfirst(lc), paramid, &source))
			break;
	}
	return source;
}

/* ---- where a value comes from ---- */

/*
 * Returns whether column resno of the plan's result is from inside.
 */
static bool
column_is_inside(const PlanPlace *from, Plan *plan, int resno)
{
	PlanPlace	place = {from->stmt, plan, NULL, from->budget};
	Node	   *column = column_of(plan, resno);

	if (column != NULL && IsA(column, Const) && ((Const *) column)->constisnull)
		return true;			/* no row has it */
	return column == NULL || is_inside_walker(column, &place);
}

/*
 * Returns whether a variable of the plan node is from inside: a ctid that the
 * statement itself reads, or what cannot be followed to a scan.
 */
static bool
var_is_inside(const Var *var, PlanPlace *place)
{
	ListCell   *lc;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	if ((*place->budget)-- <= 0)
		return true;
	if (var->varno == OUTER_VAR || var->varno == INNER_VAR)
	{
		foreach(lc, children_of(place->plan, var->varno))
		{
			/* of an Append, one part that is from outside is enough */
			if (!column_is_inside(place, lfirst(lc), var->varattno))
				return false;
		}
		return true;
	}
	switch (nodeTag(place->plan))
	{
		case T_SeqScan:
		case T_SampleScan:
		case T_IndexScan:
		case T_BitmapHeapScan:
		case T_TidScan:
		case T_TidRangeScan:
		case T_ModifyTable:
			return var->varattno == SelfItemPointerAttributeNumber;
		case T_IndexOnlyScan:
		case T_NamedTuplestoreScan:
			return false;
		case T_FunctionScan:
			return is_inside_walker((Node *) ((FunctionScan *) place->plan)->functions, place);
		case T_TableFuncScan:
			return is_inside_walker((Node *) ((TableFuncScan *) place->plan)->tablefunc, place);
		case T_ValuesScan:
			return is_inside_walker((Node *) ((ValuesScan *) place->plan)->values_lists, place);
		case T_SubqueryScan:
		case T_CteScan:
			return column_is_inside(place, scanned_plan(place), var->varattno);
		default:
			return true;
	}
}

/*
 * Returns whether an expression of the plan node depends on such a variable, or
 * on a function that may have locked the rows, or have read them with the
 * statement's snapshot.
 */
static bool
is_inside_walker(Node *node, PlanPlace *place)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
	{
		ParamSource source;

		if (((Param *) node)->paramkind == PARAM_EXTERN)
			return false;
		if (((Param *) node)->paramkind != PARAM_EXEC)
			return true;
		source = source_of_param(place, ((Param *) node)->paramid);
		return source.value == NULL || is_inside_walker(source.value, &source.place);
	}
	if (IsA(node, Var))
		return var_is_inside((Var *) node, place);
	return IsA(node, SubPlan) || IsA(node, AlternativeSubPlan) ||
		check_functions_in_node(node, may_read, NULL) ||
		expression_tree_walker(node, is_inside_walker, place);
}

/*
 * Adds to *rels the relations whose ctid an expression of the plan node is:
 * none or one, or one for each member of an Append.
 */
static void
add_ctids(Node *node, PlanPlace place, Bitmapset **rels)
{
	const Var  *var;
	ListCell   *lc;

	check_stack_depth();
	CHECK_FOR_INTERRUPTS();
	if (node == NULL)
		return;
	node = without_casts(node);
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_EXEC)
	{
		ParamSource source = source_of_param(&place, ((Param *) node)->paramid);

		add_ctids(source.value, source.place, rels);
		return;
	}
	if (!IsA(node, Var))
		return;
	var = (Var *) node;
	if (var->varno == OUTER_VAR || var->varno == INNER_VAR)
	{
		foreach(lc, children_of(place.plan, var->varno))
		{
			PlanPlace	child = {place.stmt, lfirst(lc), NULL, place.budget};

			add_ctids(column_of(child.plan, var->varattno), child, rels);
		}
	}
	else if (var->varno > 0 && var->varattno == SelfItemPointerAttributeNumber)
		*rels = bms_add_member(*rels, var->varno);
}

/* ---- conditions ---- */

/* Looks for conditions ctid = value, the values being from outside. */
typedef struct ConditionSearch
{
	PlanPlace	place;
	Bitmapset  *found;			/* whose ctids they are */
} ConditionSearch;

/* Adds to search->found if the operands are such. */
static void
look_at_operands(Node *ctid, Node *value, ConditionSearch *search)
{
	Bitmapset  *rels = NULL;

	add_ctids(ctid, search->place, &rels);
	if (rels != NULL && !is_inside_walker(value, &search->place))
		search->found = bms_add_members(search->found, rels);
}

/*
 * Does so for all such conditions in an expression. Returns false, so that the
 * search continues.
 */
static bool
condition_walker(Node *node, ConditionSearch *search)
{
	Node	   *left,
			   *right;

	if (node == NULL)
		return false;
	if (is_equality(node, &left, &right))
	{
		look_at_operands(left, right, search);
		look_at_operands(right, left, search);
	}
	if (is_notclause(node) && IsA(get_notclausearg(node), SubPlan))
		return false;			/* NOT IN */
	if (IsA(node, SubPlan) && ((SubPlan *) node)->subLinkType == ANY_SUBLINK)
	{
		ConditionSearch within = *search;

		within.place.in = (SubPlan *) node;
		(void) condition_walker(((SubPlan *) node)->testexpr, &within);
		search->found = within.found;
	}
	return expression_tree_walker(node, condition_walker, search);
}

/*
 * Does so for the conditions of a join. An antijoin returns the rows for which
 * they do not hold.
 */
static void
look_at_join(Join *join, ConditionSearch *search)
{
	if (join->jointype == JOIN_ANTI || ZC_IS_RIGHT_ANTI(join->jointype))
		return;
	(void) condition_walker((Node *) join->joinqual, search);
	if (IsA(join, HashJoin))
		(void) condition_walker((Node *) ((HashJoin *) join)->hashclauses, search);
	if (IsA(join, MergeJoin))
		(void) condition_walker((Node *) ((MergeJoin *) join)->mergeclauses, search);
}

Bitmapset *
zctid_named_from_outside(const PlannedStmt *stmt, Plan *plan)
{
	int			budget = MAX_VARIABLES;
	ConditionSearch search = {{stmt, plan, NULL, &budget}, NULL};

	(void) condition_walker((Node *) plan->qual, &search);
	switch (nodeTag(plan))
	{
		case T_TidScan:
			(void) condition_walker((Node *) ((TidScan *) plan)->tidquals, &search);
			break;
		case T_NestLoop:
		case T_MergeJoin:
		case T_HashJoin:
			look_at_join((Join *) plan, &search);
			break;
		case T_ModifyTable:
			(void) condition_walker(((ModifyTable *) plan)->onConflictWhere, &search);
			break;
		default:
			break;
	}
	return search.found;
}
