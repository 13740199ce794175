/*
 * guard/zctid_outside.c - whether a statement names rows by a ctid from
 * outside.
 *
 * GUARD-3 (guard/zctid.c) lets such a statement change only rows that its
 * transaction holds. This file looks for the condition ctid = value in the
 * query before it is planned: then each variable names an entry of a range
 * table, and each level of the query knows the one around it. Of a change the
 * conditions are searched, and all queries from which its rows come, but not
 * what the rows are set to. guard/README.md has the rules. No locks, no
 * buffers, no crash points.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type_d.h"
#include "common/compat_commands.h"
#include "common/zundo.h"
#include "guard/zctid.h"
#include "guard/ztables.h"
#include "guard/zvalue.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

/* A condition of a level, and what else is known. */
typedef struct Condition
{
	const ZQueryLevel *level;
	List	   *together;		/* conditions that hold if it does */
	List	   *skipped;		/* RangeTblEntries whose ctids do not matter */
} Condition;

/* A join that also returns rows for which its conditions do not hold. */
typedef struct OuterJoin
{
	List	   *nullable;		/* RangeTblEntries whose columns are null then */
	List	   *conditions;
} OuterJoin;

static void search_query(const Query *query, const ZQueryLevel *outer, ZSearch *search);

/* ---- conditions ---- */

/*
 * If node says that two values are equal, sets left and right to them and
 * returns the function that compares them, else InvalidOid. Of = ANY and = ALL
 * one is an array.
 */
static RegProcedure
equality(Node *node, Node **left, Node **right)
{
	Oid			operator;
	List	   *args;

	if (is_notclause(node) && IsA(get_notclausearg(node), DistinctExpr))
		node = (Node *) get_notclausearg(node);
	else if (IsA(node, DistinctExpr))
		return InvalidOid;
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
		return InvalidOid;
	if (list_length(args) != 2)
		return InvalidOid;
	*left = linitial(args);
	*right = lsecond(args);
	return get_opcode(operator);
}

/* Returns whether an expression has variables of a level around its own. */
static bool
has_outer_variables(Node *node, const ZQueryLevel *level)
{
	for (int up = 1; (level = level->outer) != NULL; up++)
	{
		if (contain_vars_of_level(node, up))
			return true;
	}
	return false;
}

/*
 * Returns whether xmin is that of the row whose ctid is ctid, and token, with
 * which it is compared, was read when value was: it is from outside, and made
 * of constants and parameters, or comes from where value comes from.
 */
static bool
is_token(Node *xmin, Node *token, Node *ctid, Node *value, ZQueryLevel *level)
{
	const Var  *row = (Var *) zvalue_without_casts(ctid, false);
	const Var  *shown = (Var *) zvalue_without_casts(xmin, true);

	return IsA(row, Var) && row->varattno == SelfItemPointerAttributeNumber &&
		IsA(shown, Var) && shown->varattno == MinTransactionIdAttributeNumber &&
		row->varno == shown->varno && row->varlevelsup == shown->varlevelsup &&
		!zvalue_is_inside(token, level) && !contain_subplans(token) &&
		!has_outer_variables(token, level) &&
		bms_is_subset(zvalue_entries(token), zvalue_entries(value));
}

/*
 * Returns whether a condition on xmin holds, too, and so tells that the row is
 * still what it was when value, its ctid, was read. One of several tokens, as
 * in xmin = ANY, may be that of another row.
 */
static bool
is_proved(Node *ctid, Node *value, const Condition *condition)
{
	ZQueryLevel level = *condition->level;
	ListCell   *lc;

	foreach(lc, condition->together)
	{
		Node	   *left = NULL;
		Node	   *right = NULL;
		RegProcedure function = equality(lfirst(lc), &left, &right);

		if (IsA(lfirst(lc), OpExpr) &&
			(function == F_XIDEQ || function == F_XIDEQINT4 || function == F_TEXTEQ ||
			 function == F_INT8EQ) &&
			(is_token(left, right, ctid, value, &level) ||
			 is_token(right, left, ctid, value, &level)))
			return true;
	}
	return false;
}

/*
 * Notes the tables whose rows are named if ctid is the ctid of a row, and value
 * from outside.
 */
static void
look_at_operands(Node *ctid, Node *value, const Condition *condition)
{
	ZQueryLevel level = *condition->level;
	List	   *tables = zvalue_tables(ctid, &level);
	ListCell   *lc;

	if (tables == NIL || zvalue_is_inside(value, &level) || is_proved(ctid, value, condition))
		return;
	foreach(lc, tables)
	{
		if (!list_member_ptr(condition->skipped, lfirst(lc)))
			level.search->named = list_append_unique_ptr(level.search->named, lfirst(lc));
	}
}

/*
 * Searches the subqueries of an expression. One behind <> ALL says which rows
 * are left alone, as one behind NOT does.
 */
static bool
search_subqueries(Node *node, ZQueryLevel *level)
{
	if (node == NULL)
		return false;
	if (!IsA(node, SubLink))
		return expression_tree_walker(node, search_subqueries, level);
	if (((SubLink *) node)->subLinkType != ALL_SUBLINK)
		search_query((Query *) ((SubLink *) node)->subselect, level, level->search);
	return false;
}

/*
 * Looks for conditions ctid = value in an expression, in its subqueries, and in
 * the columns that it uses. Returns false, so that the search continues.
 */
static bool
search_condition(Node *node, Condition *condition)
{
	ZQueryLevel level = *condition->level;
	Condition	part = *condition;
	Node	   *left = NULL;
	Node	   *right = NULL;
	RegProcedure function;
	List	   *sources = NIL;
	ListCell   *lc;

	if (node == NULL)
		return false;
	check_stack_depth();
	function = equality(node, &left, &right);
	if (function == F_TIDEQ || function == F_TEXTEQ)
	{
		look_at_operands(left, right, condition);
		look_at_operands(right, left, condition);
	}
	else if (is_notclause(node))
		return false;
	if (IsA(node, SubLink))
	{
		/* <> ALL has no equality, nor have rows that are compared by < or <> */
		if (((SubLink *) node)->testexpr != NULL)
		{
			part.level = &level;
			level.in = (SubLink *) node;
			(void) search_condition(((SubLink *) node)->testexpr, &part);
			level.in = NULL;
		}
		return search_subqueries(node, &level);
	}
	if (IsA(node, Var) && zvalue_sources(node, &level, &sources))
	{
		foreach(lc, sources)
		{
			const ZSource *source = lfirst(lc);
			Condition	column = {source->level};

			(void) search_condition(source->node, &column);
		}
		return false;
	}
	if (is_andclause(node))
		part.together = list_concat_copy(part.together, ((BoolExpr *) node)->args);
	return expression_tree_walker(node, search_condition, &part);
}

/* Does so for conditions that hold together, and with others. */
static void
search_conditions(List *conditions, List *others, const ZQueryLevel *level, List *skipped)
{
	Condition	all = {level, list_concat_copy(conditions, others), skipped};

	(void) search_condition((Node *) conditions, &all);
}

/*
 * Returns a condition as a list of conditions that hold together, with SQL
 * functions expanded, and NOT moved inside where that is possible.
 */
static List *
split(Node *condition)
{
	return make_ands_implicit((Expr *) eval_const_expressions(NULL, condition));
}

/* ---- the parts of a query ---- */

/* Searches what an entry of the level's range table reads. */
static void
search_entry(RangeTblEntry *rte, ZQueryLevel *level)
{
	const Query *cte = rte->rtekind == RTE_CTE ? zvalue_cte(rte, level) : NULL;

	if (rte->rtekind == RTE_SUBQUERY)
		search_query(rte->subquery, level, level->search);
	else if (cte != NULL && !list_member_ptr(level->search->seen, cte))
		search_query(cte, zvalue_level(level, rte->ctelevelsup), level->search);
	else if (rte->rtekind != RTE_CTE)
		(void) range_table_entry_walker(rte, search_subqueries, level, 0);
}

/*
 * Searches what a part of FROM reads. Adds its outer joins, and the conditions
 * that hold for all rows that it returns. Returns its entries of the range
 * table.
 */
static List *
search_from(Node *node, ZQueryLevel *level, List **conditions, List **outer_joins)
{
	const JoinExpr *join = (JoinExpr *) node;
	List	   *left,
			   *right;
	ListCell   *lc;

	if (IsA(node, RangeTblRef))
	{
		RangeTblEntry *rte = rt_fetch(((RangeTblRef *) node)->rtindex, level->query->rtable);

		search_entry(rte, level);
		return list_make1(rte);
	}
	if (IsA(node, FromExpr))
	{
		List	   *entries = NIL;

		foreach(lc, ((FromExpr *) node)->fromlist)
			entries = list_concat(entries, search_from(lfirst(lc), level, conditions, outer_joins));
		*conditions = list_concat(*conditions, split(((FromExpr *) node)->quals));
		return entries;
	}
	left = search_from(join->larg, level, conditions, outer_joins);
	right = search_from(join->rarg, level, conditions, outer_joins);
	if (join->jointype == JOIN_LEFT || join->jointype == JOIN_RIGHT)
	{
		OuterJoin  *outer = palloc(sizeof(OuterJoin));

		outer->nullable = join->jointype == JOIN_LEFT ? right : left;
		outer->conditions = split(join->quals);
		*outer_joins = lappend(*outer_joins, outer);
	}
	else
		*conditions = list_concat(*conditions, split(join->quals));
	return list_concat_copy(left, right);
}

/*
 * Returns whether expressions of the level use columns of these entries of its
 * range table, perhaps as those of a join.
 */
static bool
use_columns(List *exprs, List *entries, const ZQueryLevel *level)
{
	Bitmapset  *used = zvalue_entries((Node *) exprs);
	int			rti = -1;

	while ((rti = bms_next_member(used, rti)) >= 0)
	{
		RangeTblEntry *rte = rt_fetch(rti, level->query->rtable);

		if (rte->rtekind == RTE_JOIN || list_member_ptr(entries, rte))
			return true;
	}
	return false;
}

/*
 * Returns whether which rows the level returns or changes may depend on whether
 * an outer join has found a row. WHERE column IS NULL asks only for rows for
 * which it has not.
 */
static bool
join_decides(const OuterJoin *join, const ZQueryLevel *level, List *conditions, List *outer_joins)
{
	const Query *query = level->query;
	List	   *exprs = query->commandType == CMD_SELECT ? list_make1(query->targetList) : NIL;
	ListCell   *lc;

	if (query->groupClause != NIL || query->groupingSets != NIL || query->mergeActionList != NIL)
		return true;
	foreach(lc, query->rtable)
	{
		if (lfirst_node(RangeTblEntry, lc)->lateral)
			return true;
	}
	foreach(lc, conditions)
	{
		const NullTest *test = lfirst(lc);

		if (!IsA(test, NullTest) || test->nulltesttype != IS_NULL || !IsA(test->arg, Var))
			exprs = lappend(exprs, lfirst(lc));
	}
	foreach(lc, outer_joins)
	{
		if (lfirst(lc) != join)
			exprs = lappend(exprs, ((OuterJoin *) lfirst(lc))->conditions);
	}
	return use_columns(exprs, join->nullable, level);
}

/* Searches the parts of UNION and INTERSECT, and the first one of EXCEPT. */
static void
search_set_operation(Node *node, ZQueryLevel *level)
{
	const SetOperationStmt *both = (const SetOperationStmt *) node;

	if (IsA(node, RangeTblRef))
		search_entry(rt_fetch(((RangeTblRef *) node)->rtindex, level->query->rtable), level);
	else
	{
		search_set_operation(both->larg, level);
		if (both->op != SETOP_EXCEPT)
			search_set_operation(both->rarg, level);
	}
}

/*
 * Returns whether the query updates or deletes rows. matched: MERGE only if it
 * does so with rows that its condition finds.
 */
static bool
changes_rows(const Query *query, bool matched)
{
	ListCell   *lc;

	foreach(lc, query->mergeActionList)
	{
		const MergeAction *action = lfirst_node(MergeAction, lc);

		if ((action->commandType == CMD_UPDATE || action->commandType == CMD_DELETE) &&
			(zc_is_of_matched(action) || !matched))
			return true;
	}
	return query->commandType == CMD_UPDATE || query->commandType == CMD_DELETE ||
		(query->onConflict != NULL && query->onConflict->action == ONCONFLICT_UPDATE);
}

/*
 * Searches a query: whether it names the rows that it changes or reads by a
 * ctid from outside. Not what it sets rows to, or returns of changed ones.
 */
static void
search_query(const Query *query, const ZQueryLevel *outer, ZSearch *search)
{
	ZQueryLevel level = {query, outer, search};
	List	   *conditions = NIL;
	List	   *outer_joins = NIL;
	ListCell   *lc;

	check_stack_depth();
	search->seen = lappend(search->seen, unconstify(Query *, query));
	if (query->setOperations != NULL)
		search_set_operation(query->setOperations, &level);
	if (query->commandType != CMD_MERGE || changes_rows(query, true))
	{
		(void) search_from((Node *) query->jointree, &level, &conditions, &outer_joins);
		conditions = list_concat(conditions, split(zc_merge_join_condition(query)));
	}
	conditions = list_concat(conditions, split(query->havingQual));
	foreach(lc, outer_joins)
	{
		const OuterJoin *join = lfirst(lc);

		if (join_decides(join, &level, conditions, outer_joins))
			search_conditions(join->conditions, conditions, &level, NIL);
		else if (use_columns(query->targetList, join->nullable, &level))
			search_conditions(join->conditions, conditions, &level, join->nullable);
	}
	search_conditions(conditions, NIL, &level, NIL);
	if (query->onConflict != NULL)
		search_conditions(split(query->onConflict->onConflictWhere), NIL, &level, NIL);
	foreach(lc, query->mergeActionList)
	{
		if (lfirst_node(MergeAction, lc)->commandType != CMD_INSERT)
			search_conditions(split(lfirst_node(MergeAction, lc)->qual), NIL, &level, NIL);
	}
	if (query->commandType == CMD_SELECT)
		(void) search_subqueries((Node *) query->targetList, &level);
}

/* ---- the statement ---- */

/* Returns whether a query, or one in it, has a ctid in it. */
static bool
has_ctid(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
		return ((Var *) node)->varattno == SelfItemPointerAttributeNumber;
	if (IsA(node, Query))
		return query_tree_walker((Query *) node, has_ctid, context, 0);
	return expression_tree_walker(node, has_ctid, context);
}

/*
 * Returns the tables of entries of range tables, with their child tables. The
 * entry of a partitioned table into which rows are inserted does not ask for
 * them.
 */
static List *
with_children(List *entries)
{
	List	   *tables = NIL;
	ListCell   *lc;

	foreach(lc, entries)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		tables = list_concat_unique_oid(tables,
										rte->inh || rte->relkind == RELKIND_PARTITIONED_TABLE ?
										find_all_inheritors(rte->relid, NoLock, NULL) :
										list_make1_oid(rte->relid));
	}
	return tables;
}

/*
 * Returns the entries of which the statement, or a query in WITH, changes rows.
 */
static List *
find_changed(const Query *query)
{
	List	   *entries = NIL;
	ListCell   *lc;

	if (changes_rows(query, false))
		entries = lappend(entries, rt_fetch(query->resultRelation, query->rtable));
	foreach(lc, query->cteList)
	{
		const Query *cte = (const Query *) lfirst_node(CommonTableExpr, lc)->ctequery;

		if (changes_rows(cte, false))
			entries = lappend(entries, rt_fetch(cte->resultRelation, cte->rtable));
	}
	return entries;
}

/*
 * Returns whether one of the tables is of zheap, or may be when a plan that is
 * made now is executed: no plan knows the partitions into which rows are
 * inserted, so it is not made anew when one of them becomes a table of zheap.
 */
static bool
may_be_zheap(List *entries)
{
	ListCell   *lc;

	foreach(lc, entries)
	{
		const RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->relkind == RELKIND_PARTITIONED_TABLE && !rte->inh)
			return true;
	}
	foreach(lc, with_children(entries))
	{
		if (ztables_is_zheap(lfirst_oid(lc)))
			return true;
	}
	return false;
}

/*
 * zctid_named_from_outside: See zctid.h. Of a statement that changes no zheap
 * table nothing is evaluated, as the search for conditions does (split).
 */
List *
zctid_named_from_outside(const Query *query)
{
	ZSearch		search = {.budget = MAX_VARIABLES};
	ZQueryLevel statement = {query, NULL, &search};
	List	   *changed;
	List	   *named;
	List	   *result = NIL;
	ListCell   *lc;

	if ((!changes_rows(query, false) && !query->hasModifyingCTE) ||
		!has_ctid(unconstify(Node *, (const Node *) query), NULL) ||
		!may_be_zheap(changed = find_changed(query)))
		return NIL;
	if (changes_rows(query, false))
		search_query(query, NULL, &search);
	foreach(lc, query->cteList)
	{
		const Query *cte = (const Query *) lfirst_node(CommonTableExpr, lc)->ctequery;

		if (changes_rows(cte, false) && !list_member_ptr(search.seen, cte))
			search_query(cte, &statement, &search);
	}
	named = search.named != NIL ? with_children(search.named) : NIL;
	foreach(lc, named != NIL ? with_children(changed) : NIL)
	{
		if (list_member_oid(named, lfirst_oid(lc)))
			result = lappend_oid(result, lfirst_oid(lc));
	}
	return result;
}
