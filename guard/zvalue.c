/*
 * guard/zvalue.c - what a value in a query is made of.
 *
 * Called by zctid_outside.c. No locks, no buffers, no crash points.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/transam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type_d.h"
#include "common/compat_commands.h"
#include "common/zundo.h"
#include "guard/zvalue.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"

/* The entries of a level's range table whose columns an expression uses. */
typedef struct Columns
{
	Bitmapset  *entries;
	Index		up;				/* levels between the expression and the level */
} Columns;

/* ---- what a variable stands for ---- */

/* Collects the entries whose columns an expression of the level uses. */
static bool
collect_entries(Node *node, Columns *columns)
{
	bool		result;

	if (node == NULL)
		return false;
	if (IsA(node, Var) && ((Var *) node)->varlevelsup == columns->up)
		columns->entries = bms_add_member(columns->entries, ((Var *) node)->varno);
	if (!IsA(node, Query))
		return expression_tree_walker(node, collect_entries, columns);
	columns->up++;
	result = query_tree_walker((Query *) node, collect_entries, columns, 0);
	columns->up--;
	return result;
}

Bitmapset *
zvalue_entries(Node *node)
{
	Columns		columns = {NULL, 0};

	(void) collect_entries(node, &columns);
	return columns.entries;
}

const ZQueryLevel *
zvalue_level(const ZQueryLevel *level, Index up)
{
	while (up-- > 0 && level != NULL)
		level = level->outer;
	return level;
}

/*
 * Adds an expression of a level, if it is known and no null, which names no
 * row.
 */
static void
add_source(Node *node, const ZQueryLevel *level, List **sources)
{
	ZSource    *source;

	if (node == NULL || level->search->budget-- <= 0 ||
		(IsA(node, Const) && ((Const *) node)->constisnull))
		return;
	source = palloc(sizeof(ZSource));
	source->node = node;
	source->level = level;
	*sources = lappend(*sources, source);
}

/* Adds the expression of column resno of a list, if it has one. */
static void
add_column(List *columns, int resno, const ZQueryLevel *level, List **sources)
{
	const TargetEntry *column = get_tle_by_resno(columns, resno);

	if (column != NULL)
		add_source((Node *) column->expr, level, sources);
}

/*
 * Adds what column resno of a query's result is made of: of a UNION, several
 * expressions. Of queries that change rows only what a DELETE returns is known.
 * setop: a part of the query's set operations, or NULL.
 */
static void
add_result(const Query *query, int resno, const ZQueryLevel *outer, Node *setop, List **sources)
{
	ZQueryLevel *level = palloc0(sizeof(ZQueryLevel));

	level->query = query;
	level->outer = outer;
	level->search = outer->search;
	if (setop == NULL && query->setOperations != NULL)
		add_result(query, resno, outer, query->setOperations, sources);
	else if (setop == NULL)
		add_column(query->commandType == CMD_SELECT ? query->targetList :
				   query->commandType == CMD_DELETE ? query->returningList : NIL,
				   resno, level, sources);
	else if (IsA(setop, RangeTblRef))
		add_result(rt_fetch(((RangeTblRef *) setop)->rtindex, query->rtable)->subquery, resno,
				   level, NULL, sources);
	else if (((SetOperationStmt *) setop)->op == SETOP_UNION)
	{
		add_result(query, resno, outer, ((SetOperationStmt *) setop)->larg, sources);
		add_result(query, resno, outer, ((SetOperationStmt *) setop)->rarg, sources);
	}
}

const Query *
zvalue_cte(const RangeTblEntry *rte, const ZQueryLevel *level)
{
	ListCell   *lc;

	level = zvalue_level(level, rte->ctelevelsup);
	foreach(lc, level != NULL && !rte->self_reference ? level->query->cteList : NIL)
	{
		const CommonTableExpr *cte = lfirst_node(CommonTableExpr, lc);

		if (strcmp(cte->ctename, rte->ctename) == 0)
			return (const Query *) cte->ctequery;
	}
	return NULL;
}

bool
zvalue_sources(Node *node, const ZQueryLevel *level, List **sources)
{
	const Var  *var = (const Var *) node;
	const RangeTblEntry *rte;
	const Query *query;
	List	   *columns;

	if (IsA(node, SubLink) && (((SubLink *) node)->subLinkType == EXPR_SUBLINK ||
							   ((SubLink *) node)->subLinkType == ARRAY_SUBLINK))
	{
		add_result((Query *) ((SubLink *) node)->subselect, 1, level, NULL, sources);
		return true;
	}
	if (IsA(node, Param) && ((Param *) node)->paramkind == PARAM_SUBLINK && level->in != NULL)
	{
		add_result((Query *) level->in->subselect, ((Param *) node)->paramid, level, NULL, sources);
		return true;
	}
	if (!IsA(node, Var) || (level = zvalue_level(level, var->varlevelsup)) == NULL)
		return false;
	query = level->query;
	rte = rt_fetch(var->varno, query->rtable);
	columns = rte->rtekind == RTE_JOIN ? rte->joinaliasvars : zc_group_expressions(rte);
	if (rte->rtekind == RTE_SUBQUERY)
		add_result(rte->subquery, var->varattno, level, NULL, sources);
	else if (rte->rtekind == RTE_CTE && (query = zvalue_cte(rte, level)) != NULL)
		add_result(query, var->varattno, zvalue_level(level, rte->ctelevelsup), NULL, sources);
	else if (query != NULL && query->onConflict != NULL &&
			 (int) var->varno == query->onConflict->exclRelIndex)
		add_column(query->targetList, var->varattno, level, sources);
	else if (columns != NIL && var->varattno > 0)
		add_source(list_nth(columns, var->varattno - 1), level, sources);
	else
		return columns != NIL || rte->rtekind == RTE_CTE;
	return true;
}

/* ---- where a value comes from ---- */

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

/*
 * Returns whether a column of a function, of XMLTABLE and the like, or of
 * VALUES is from inside. Of several rows in VALUES one that is from outside is
 * enough; a null names no row.
 */
static bool
column_is_inside(RangeTblEntry *rte, AttrNumber column, ZQueryLevel *level)
{
	ListCell   *lc;

	if (rte->rtekind == RTE_VALUES && column > 0)
	{
		foreach(lc, rte->values_lists)
		{
			Node	   *value = list_nth(lfirst_node(List, lc), column - 1);

			CHECK_FOR_INTERRUPTS();
			if (!(IsA(value, Const) && ((Const *) value)->constisnull) &&
				!zvalue_is_inside(value, level))
				return false;
		}
		return true;
	}
	if (rte->rtekind == RTE_FUNCTION && column > 0)
	{
		foreach(lc, rte->functions)
		{
			const RangeTblFunction *function = lfirst_node(RangeTblFunction, lc);

			if (column <= function->funccolcount)
				return zvalue_is_inside(function->funcexpr, level);
			column -= function->funccolcount;
		}
	}
	return range_table_entry_walker(rte, zvalue_is_inside, level, 0);
}

bool
zvalue_is_inside(Node *node, ZQueryLevel *level)
{
	List	   *sources = NIL;
	const RangeTblEntry *rte;
	const ZQueryLevel *home;
	ListCell   *lc;

	if (node == NULL)
		return false;
	check_stack_depth();
	if (zvalue_sources(node, level, &sources))
	{
		foreach(lc, sources)
		{
			const ZSource *source = lfirst(lc);

			CHECK_FOR_INTERRUPTS();
			if (!zvalue_is_inside(source->node, unconstify(ZQueryLevel *, source->level)))
				return false;
		}
		return true;
	}
	if (IsA(node, Param))
		return ((Param *) node)->paramkind != PARAM_EXTERN;
	if (!IsA(node, Var))
		return IsA(node, SubLink) || check_functions_in_node(node, may_read, NULL) ||
			expression_tree_walker(node, zvalue_is_inside, level);
	home = zvalue_level(level, ((Var *) node)->varlevelsup);
	if (home == NULL)
		return true;
	rte = rt_fetch(((Var *) node)->varno, home->query->rtable);
	switch (rte->rtekind)
	{
		case RTE_RELATION:
			return rte->relkind == RELKIND_FOREIGN_TABLE ||
				((Var *) node)->varattno == SelfItemPointerAttributeNumber ||
				((Var *) node)->varattno == MinTransactionIdAttributeNumber;
		case RTE_FUNCTION:
		case RTE_TABLEFUNC:
		case RTE_VALUES:
			return column_is_inside(unconstify(RangeTblEntry *, rte), ((Var *) node)->varattno,
									unconstify(ZQueryLevel *, home));
		default:
			return rte->rtekind != RTE_NAMEDTUPLESTORE;
	}
}

Node *
zvalue_without_casts(Node *node, bool in_full)
{
	for (;;)
	{
		if (IsA(node, RelabelType))
			node = (Node *) ((RelabelType *) node)->arg;
		else if (IsA(node, CoerceViaIO) &&
				 (!in_full || exprType(node) == TEXTOID || exprType(node) == VARCHAROID ||
				  exprType(node) == INT8OID))
			node = (Node *) ((CoerceViaIO *) node)->arg;
		else
			return node;
	}
}

List *
zvalue_tables(Node *ctid, const ZQueryLevel *level)
{
	Node	   *node = zvalue_without_casts(ctid, false);
	List	   *sources = NIL;
	List	   *tables = NIL;
	ListCell   *lc;

	check_stack_depth();
	if (zvalue_sources(node, level, &sources))
	{
		foreach(lc, sources)
		{
			const ZSource *source = lfirst(lc);

			tables = list_concat(tables, zvalue_tables(source->node, source->level));
		}
	}
	else if (IsA(node, Var) && ((Var *) node)->varattno == SelfItemPointerAttributeNumber &&
			 (level = zvalue_level(level, ((Var *) node)->varlevelsup)) != NULL)
		tables = list_make1(rt_fetch(((Var *) node)->varno, level->query->rtable));
	return tables;
}
