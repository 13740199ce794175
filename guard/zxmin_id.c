/*
 * guard/zxmin_id.c - refuses uses of xmin as an id.
 *
 * In a query xmin shows the token of the version (TOKEN-1 in tuple/ztts.c): a
 * number that stays as long as the row does, and tells nothing else. On heap it
 * is the id of the transaction that wrote the version. A question about that id
 * gets another answer, or an error. guard/README.md has the reasons.
 *
 *	GUARD-2	A query that uses xmin of a zheap table as an id is refused when it
 *		is planned: in an order, in functions of ids, as the largest or smallest
 *		one, or beside the own id in any other way than "is it equal?".
 *
 * The planner calls zxmin_plan_table before it looks at the level's
 * expressions, but after views, subqueries and functions have been expanded:
 * then expressions can still be replaced, and xmin of a view's column is seen
 * as such. No locks, no buffers, no crash points.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language_d.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "common/compat_commands.h"
#include "common/zundo.h"
#include "guard/ztables.h"
#include "guard/zxmin_id.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "optimizer/tlist.h"
#include "parser/parse_relation.h"
#include "parser/parsetree.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(zundo_xmin_or_own);

/* The member of a set of columns that stands for xmin. */
#define XMIN_MEMBER (MinTransactionIdAttributeNumber - FirstLowInvalidHeapAttributeNumber)

/*
 * Returns xmin of a row for a comparison with the own transaction id. The
 * arguments are xmin, cmax and tableoid of the row. Returns our top-level
 * transaction's id if our transaction has written it; of a row of zheap that
 * was written by others a number that is not that id; of other rows xmin.
 */
Datum
zundo_xmin_or_own(PG_FUNCTION_ARGS)
{
	TransactionId xmin = PG_GETARG_TRANSACTIONID(0);
	TransactionId own = GetTopTransactionIdIfAny();

	if (!ztables_is_zheap(PG_GETARG_OID(2)))
		PG_RETURN_TRANSACTIONID(xmin);
	if (DatumGetCommandId(PG_GETARG_DATUM(1)) != InvalidCommandId)
		PG_RETURN_TRANSACTIONID(own);
	PG_RETURN_TRANSACTIONID(xmin == own ? FrozenTransactionId : xmin);
}

/* ---- what shows xmin in a query level ---- */

/* Whose xmin is looked for in the expressions of a query level. */
typedef struct XminSearch
{
	Index		varno;			/* the relation */
	Bitmapset  *columns;		/* its columns that show xmin, as attno -
								 * FirstLowInvalidHeapAttributeNumber */
	Bitmapset  *params;			/* parameters of a subplan that show it */
	PlannerGlobal *glob;		/* of the planner, for its subplans */
	Oid			or_own;			/* zundo.xmin_or_own, or InvalidOid */
	List	   *added;			/* Vars of columns that calls of it need */
} XminSearch;

/*
 * Returns whether the value of an expression depends on an xmin that is looked
 * for, other than by a condition or an aggregate.
 */
static bool
yields_xmin(Node *node, XminSearch *search)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
			return ((Var *) node)->varno == search->varno && ((Var *) node)->varlevelsup == 0 &&
				bms_is_member(((Var *) node)->varattno - FirstLowInvalidHeapAttributeNumber,
							  search->columns);
		case T_Param:
			return ((Param *) node)->paramkind == PARAM_EXEC &&
				bms_is_member(((Param *) node)->paramid, search->params);
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcid == search->or_own ||
				((FuncExpr *) node)->funcresulttype == BOOLOID)
				return false;
			break;
		case T_OpExpr:
			if (((OpExpr *) node)->opresulttype == BOOLOID)
				return false;
			break;
		case T_BoolExpr:
		case T_NullTest:
		case T_DistinctExpr:
		case T_ScalarArrayOpExpr:
		case T_RowCompareExpr:
		case T_SubPlan:
		case T_Aggref:
		case T_WindowFunc:
			return false;
		default:
			break;
	}
	return expression_tree_walker(node, yields_xmin, search);
}

/* ---- comparisons with the own transaction id ---- */

/*
 * Returns the function zundo.xmin_or_own, or InvalidOid in a database without
 * the extension. The user need not have rights in its schema. In such a
 * database anybody may have made a schema and a function of these names; but
 * only a superuser makes functions in C.
 */
static Oid
find_or_own(void)
{
	Oid			types[] = {XIDOID, CIDOID, OIDOID};
	Oid			schema = get_namespace_oid("zundo", true);
	Oid			result = InvalidOid;
	HeapTuple	tuple;

	if (!OidIsValid(schema))
		return InvalidOid;
	tuple = SearchSysCache3(PROCNAMEARGSNSP, CStringGetDatum("xmin_or_own"),
							PointerGetDatum(buildoidvector(types, lengthof(types))),
							ObjectIdGetDatum(schema));
	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	if (((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId)
		result = ((Form_pg_proc) GETSTRUCT(tuple))->oid;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Returns where the expression stands that *place is with casts around it.
 */
static Node **
without_casts(Node **place)
{
	for (;;)
	{
		Node	   *node = *place;

		if (IsA(node, RelabelType))
			place = (Node **) &((RelabelType *) node)->arg;
		else if (IsA(node, CoerceViaIO))
			place = (Node **) &((CoerceViaIO *) node)->arg;
		else if (IsA(node, FuncExpr) && ((FuncExpr *) node)->args != NIL &&
				 ((FuncExpr *) node)->funcformat != COERCE_EXPLICIT_CALL)
			place = (Node **) &linitial(((FuncExpr *) node)->args);
		else
			return place;
	}
}

/* Returns whether the function returns the own transaction id. */
static bool
returns_own_xid(Oid function)
{
	return function == F_PG_CURRENT_XACT_ID || function == F_PG_CURRENT_XACT_ID_IF_ASSIGNED ||
		function == F_TXID_CURRENT || function == F_TXID_CURRENT_IF_ASSIGNED;
}

/*
 * Returns whether an expression is the own transaction id, perhaps in another
 * type, or modulo a constant, as txid_current() % 2^32 is the id without its
 * epoch; or an array of nothing else.
 */
static bool
is_own_xid(Node *node)
{
	ListCell   *lc;

	node = *without_casts(&node);
	if (IsA(node, OpExpr) && list_length(((OpExpr *) node)->args) == 2 &&
		IsA(lsecond(((OpExpr *) node)->args), Const))
	{
		RegProcedure code = get_opcode(((OpExpr *) node)->opno);

		return (code == F_INT8MOD || code == F_INT4MOD || code == F_NUMERIC_MOD ||
				code == F_INT8AND) &&
			is_own_xid(linitial(((OpExpr *) node)->args));
	}
	if (IsA(node, FuncExpr))
		return returns_own_xid(((FuncExpr *) node)->funcid);
	if (!IsA(node, ArrayExpr) || ((ArrayExpr *) node)->elements == NIL)
		return false;
	foreach(lc, ((ArrayExpr *) node)->elements)
	{
		if (!is_own_xid(lfirst(lc)))
			return false;
	}
	return true;
}

/*
 * Returns whether the operator asks whether two values are equal, or whether
 * not.
 */
static bool
is_equality(Oid opno)
{
	RegProcedure estimator = get_oprrest(opno);

	return estimator == F_EQSEL || estimator == F_NEQSEL;
}

/* Returns the system column of the row whose xmin is var. */
static Expr *
system_column(XminSearch *search, const Var *xmin, AttrNumber attno, Oid type)
{
	Var		   *var = copyObject(unconstify(Var *, xmin));

	var->varattno = attno;
	var->varattnosyn = 0;
	var->varnosyn = 0;
	var->vartype = type;
	search->added = lappend(search->added, var);
	return (Expr *) var;
}

/*
 * If *arg is xmin, with or without casts, replaces it by a call of
 * zundo.xmin_or_own. The expression is copied: other parts of the query may
 * share it.
 */
static void
replace_xmin(Node **arg, XminSearch *search)
{
	Node	   *node = *without_casts(arg);
	Node	  **place;
	const Var  *xmin;
	List	   *args;

	if (!OidIsValid(search->or_own) || !IsA(node, Var) ||
		((Var *) node)->varattno != MinTransactionIdAttributeNumber ||
		!yields_xmin(node, search))
		return;
	*arg = copyObject(*arg);
	place = without_casts(arg);
	xmin = (Var *) *place;
	args = list_make3(copyObject(*place),
					  system_column(search, xmin, MaxCommandIdAttributeNumber, CIDOID),
					  system_column(search, xmin, TableOidAttributeNumber, OIDOID));
	*place = (Node *) makeFuncExpr(search->or_own, XIDOID, args, InvalidOid, InvalidOid,
								   COERCE_EXPLICIT_CALL);
}

/* Replaces xmin in an operator's arguments if the other one is the own id. */
static void
replace_beside_own(List *args, XminSearch *search)
{
	if (list_length(args) != 2)
		return;
	if (is_own_xid(lsecond(args)))
		replace_xmin((Node **) &linitial(args), search);
	else if (is_own_xid(linitial(args)))
		replace_xmin((Node **) &lsecond(args), search);
}

/* Does the same for CASE xmin WHEN, if all its values are the own id. */
static void
replace_in_case(CaseExpr *expr, XminSearch *search)
{
	ListCell   *lc;

	if (expr->arg == NULL)
		return;
	foreach(lc, expr->args)
	{
		Node	   *when = (Node *) lfirst_node(CaseWhen, lc)->expr;

		if (!IsA(when, OpExpr) || !is_equality(((OpExpr *) when)->opno) ||
			list_length(((OpExpr *) when)->args) != 2 ||
			!is_own_xid(lsecond(((OpExpr *) when)->args)))
			return;
	}
	replace_xmin((Node **) &expr->arg, search);
}

/*
 * Has comparisons of xmin with the own transaction id answered by
 * zundo.xmin_or_own, in all expressions below node.
 */
static bool
replace_walker(Node *node, XminSearch *search)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_OpExpr:
		case T_DistinctExpr:
		case T_NullIfExpr:
			if (is_equality(((OpExpr *) node)->opno))
				replace_beside_own(((OpExpr *) node)->args, search);
			break;
		case T_ScalarArrayOpExpr:
			if (is_equality(((ScalarArrayOpExpr *) node)->opno))
				replace_beside_own(((ScalarArrayOpExpr *) node)->args, search);
			break;
		case T_CaseExpr:
			replace_in_case((CaseExpr *) node, search);
			break;
		default:
			break;
	}
	return expression_tree_walker(node, replace_walker, search);
}

/* ---- GUARD-2: uses of xmin as an id ---- */

/* Raises the error for a use of xmin of this table as an id. */
static void zc_noreturn pg_attribute_cold
refuse_xmin(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot use xmin of zheap table \"%s\" as a transaction ID",
					get_rel_name(relid)),
			 errdetail("It tells whether a row has changed, but not which transaction wrote it, "
					   "nor which rows are newer."),
			 errhint("Use a version column maintained by a trigger that executes "
					 "zundo.row_version(). Whether the current transaction wrote a row, "
					 "zundo.xmin_or_own(xmin, cmax, tableoid) tells.")));
	pg_unreachable();
}

/* Returns whether the function takes a transaction id. */
static bool
takes_xid(Oid function)
{
	switch (function)
	{
		case F_AGE_XID:
		case F_PG_XACT_COMMIT_TIMESTAMP:
		case F_PG_XACT_COMMIT_TIMESTAMP_ORIGIN:
		case F_PG_XACT_STATUS:
		case F_TXID_STATUS:
		case F_PG_VISIBLE_IN_SNAPSHOT:
		case F_TXID_VISIBLE_IN_SNAPSHOT:
			return true;
		default:
			return false;
	}
}

/* Returns whether the aggregate is one of the largest or smallest value. */
static bool
has_sort_operator(Oid aggregate)
{
	HeapTuple	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(aggregate));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = OidIsValid(((Form_pg_aggregate) GETSTRUCT(tuple))->aggsortop);
	ReleaseSysCache(tuple);
	return result;
}

/* Returns whether the expression calls a function for the own id. */
static bool
calls_own_xid(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr) && returns_own_xid(((FuncExpr *) node)->funcid))
		return true;
	return expression_tree_walker(node, calls_own_xid, context);
}

/* Returns whether the node makes an id of the values of its arguments. */
static bool
wants_id(Node *node)
{
	switch (nodeTag(node))
	{
		case T_FuncExpr:
			return takes_xid(((FuncExpr *) node)->funcid);
		case T_OpExpr:
			/* arithmetic and comparisons; a text may have both in it */
			if (((OpExpr *) node)->opresulttype == BOOLOID && !is_equality(((OpExpr *) node)->opno))
				return true;
			return ((OpExpr *) node)->opresulttype != TEXTOID && calls_own_xid(node, NULL);
		case T_ScalarArrayOpExpr:
			return !is_equality(((ScalarArrayOpExpr *) node)->opno) || calls_own_xid(node, NULL);
		case T_DistinctExpr:
		case T_NullIfExpr:
			return calls_own_xid(node, NULL);
		case T_CaseExpr:
			return ((CaseExpr *) node)->arg != NULL && calls_own_xid(node, NULL);
		case T_Aggref:
			return has_sort_operator(((Aggref *) node)->aggfnoid);
		case T_WindowFunc:
			return has_sort_operator(((WindowFunc *) node)->winfnoid);
		case T_MinMaxExpr:
		case T_RowCompareExpr:
			return true;
		default:
			return false;
	}
}

/* Returns whether one of the node's arguments is made of xmin. */
static bool
args_yield_xmin(Node *node, XminSearch *search)
{
	if (IsA(node, CaseExpr))
		return yields_xmin((Node *) ((CaseExpr *) node)->arg, search);
	return expression_tree_walker(node, yields_xmin, search);
}

static bool uses_as_id(Node *node, XminSearch *search);

/*
 * Returns whether a subplan to which xmin is passed as a parameter uses it as
 * an id. The subplan has been planned.
 */
static bool
subplan_uses_as_id(const SubPlan *subplan, XminSearch *search)
{
	XminSearch	inner = {.glob = search->glob,.or_own = search->or_own};
	const Query *parse;
	ListCell   *param,
			   *arg;

	forboth(param, subplan->parParam, arg, subplan->args)
	{
		if (yields_xmin(lfirst(arg), search))
			inner.params = bms_add_member(inner.params, lfirst_int(param));
	}
	if (bms_is_empty(inner.params))
		return false;
	parse = list_nth_node(PlannerInfo, search->glob->subroots, subplan->plan_id - 1)->parse;
	return uses_as_id((Node *) parse->targetList, &inner) ||
		uses_as_id((Node *) parse->jointree, &inner) || uses_as_id(parse->havingQual, &inner);
}

/* Returns whether an expression uses an xmin that is looked for as an id. */
static bool
uses_as_id(Node *node, XminSearch *search)
{
	if (node == NULL)
		return false;
	if (IsA(node, FuncExpr) && ((FuncExpr *) node)->funcid == search->or_own)
		return false;
	if (wants_id(node) && args_yield_xmin(node, search))
		return true;
	if (IsA(node, SubPlan) && subplan_uses_as_id((SubPlan *) node, search))
		return true;
	return expression_tree_walker(node, uses_as_id, search);
}

/* ---- the expressions of a query level ---- */

/* Returns all expressions that the level's plan evaluates for rows of scans. */
static List *
scan_expressions(PlannerInfo *root)
{
	Query	   *parse = root->parse;
	List	   *exprs = list_make5(root->processed_tlist, parse->jointree, parse->havingQual,
								   parse->withCheckOptions, zc_merge_join_condition(parse));
	ListCell   *lc;

	foreach(lc, parse->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		exprs = list_concat(exprs, list_make3(rte->securityQuals, rte->functions,
											  rte->values_lists));
	}
	return exprs;
}

/* Returns those that it evaluates for rows that it changes. */
static List *
change_expressions(const Query *parse)
{
	return list_make4(parse->returningList, parse->mergeActionList, parse->onConflict,
					  parse->withCheckOptions);
}

/*
 * Has comparisons of xmin with the own id answered in the level's expressions.
 * Columns that RETURNING and MERGE need then, of a table that the level does
 * not change, are added to what its plan returns.
 */
static void
replace_in_level(PlannerInfo *root, XminSearch *search)
{
	ListCell   *lc;

	(void) replace_walker((Node *) scan_expressions(root), search);
	search->added = NIL;
	(void) replace_walker((Node *) change_expressions(root->parse), search);
	foreach(lc, search->added)
	{
		List	   *tlist = root->processed_tlist;

		if (search->varno != (Index) root->parse->resultRelation &&
			tlist_member(lfirst(lc), tlist) == NULL)
			root->processed_tlist = lappend(tlist, makeTargetEntry(lfirst(lc),
																   list_length(tlist) + 1,
																   NULL, true));
	}
}

/*
 * Returns the columns that show xmin of the relation *varno of the level, or of
 * the relation of which it is a child, which *varno becomes then: a partitioned
 * table, or a UNION ALL.
 */
static Bitmapset *
find_columns(PlannerInfo *root, Index *varno)
{
	XminSearch	child = {.columns = bms_make_singleton(XMIN_MEMBER)};

	while (root->append_rel_array != NULL && root->append_rel_array[*varno] != NULL)
	{
		const AppendRelInfo *info = root->append_rel_array[*varno];
		int			attno = -FirstLowInvalidHeapAttributeNumber;
		Bitmapset  *columns = NULL;
		ListCell   *lc;

		child.varno = *varno;
		*varno = info->parent_relid;
		if (planner_rt_fetch(*varno, root)->rtekind == RTE_RELATION)
			continue;
		foreach(lc, info->translated_vars)
		{
			attno++;
			if (yields_xmin(lfirst(lc), &child))
				columns = bms_add_member(columns, attno);
		}
		child.columns = columns;
	}
	return child.columns;
}

/*
 * Returns whether the query can name xmin of the relation, or of a partitioned
 * table of which it is a part: the columns whose use needs a privilege have
 * been noted when the query was parsed. Conditions of row security need none.
 */
static bool
may_name_xmin(PlannerInfo *root, Index varno)
{
	for (;;)
	{
		RangeTblEntry *rte = planner_rt_fetch(varno, root);

		if (rte->securityQuals != NIL)
			return true;
		if (rte->rtekind == RTE_RELATION &&
			bms_is_member(XMIN_MEMBER, zc_selected_columns(root->parse, rte)))
			return true;
		if (root->append_rel_array == NULL || root->append_rel_array[varno] == NULL)
			return root->parse->withCheckOptions != NIL;
		varno = root->append_rel_array[varno]->parent_relid;
	}
}

/*
 * zxmin_plan_table: See zxmin.h. Of a partitioned table, comparisons with the
 * own id are replaced before its children are known; the function tells which
 * of them are zheap. Other uses are refused when a child is one.
 */
void
zxmin_plan_table(PlannerInfo *root, RelOptInfo *rel)
{
	RangeTblEntry *rte = planner_rt_fetch(rel->relid, root);
	XminSearch	search = {.varno = rel->relid,.glob = root->glob};
	XminSearch	child;
	bool		zheap;
	ListCell   *lc;

	if (root->parse->jointree == NULL || rte->rtekind != RTE_RELATION ||
		!may_name_xmin(root, rel->relid))
		return;
	zheap = ztables_is_zheap(rte->relid);
	if (!zheap && !rte->inh)
		return;
	search.or_own = find_or_own();
	child = search;
	child.columns = bms_make_singleton(XMIN_MEMBER);
	search.columns = find_columns(root, &search.varno);

	/* the columns of UNION ALL's children are expressions of their own */
	foreach(lc, root->append_rel_list)
		(void) replace_walker((Node *) lfirst_node(AppendRelInfo, lc)->translated_vars, &child);
	if (search.varno == rel->relid)
		replace_in_level(root, &search);
	if (rte->inh)
		return;
	foreach(lc, root->append_rel_list)
	{
		if (uses_as_id((Node *) lfirst_node(AppendRelInfo, lc)->translated_vars, &child))
			refuse_xmin(rte->relid);
	}
	if (uses_as_id((Node *) scan_expressions(root), &search) ||
		uses_as_id((Node *) change_expressions(root->parse), &search))
		refuse_xmin(rte->relid);
}

/*
 * zxmin_plan_insert: See zxmin.h. All partitions of a partitioned table count,
 * since the one that gets the row is not known yet.
 */
void
zxmin_plan_insert(PlannerInfo *root)
{
	Query	   *parse = root->parse;
	XminSearch	search = {.varno = parse->resultRelation,.glob = root->glob};
	RangeTblEntry *rte;
	ListCell   *lc;

	if (parse->commandType != CMD_INSERT ||
		(parse->returningList == NIL && parse->onConflict == NULL &&
		 parse->withCheckOptions == NIL))
		return;
	rte = rt_fetch(parse->resultRelation, parse->rtable);
	if (rte->rtekind != RTE_RELATION ||
		(parse->withCheckOptions == NIL &&
		 !bms_is_member(XMIN_MEMBER, zc_selected_columns(parse, rte))))
		return;
	search.or_own = find_or_own();
	search.columns = bms_make_singleton(XMIN_MEMBER);
	(void) replace_walker((Node *) change_expressions(parse), &search);
	if (!uses_as_id((Node *) change_expressions(parse), &search))
		return;
	foreach(lc, find_all_inheritors(rte->relid, AccessShareLock, NULL))
	{
		if (ztables_is_zheap(lfirst_oid(lc)))
			refuse_xmin(lfirst_oid(lc));
	}
}
