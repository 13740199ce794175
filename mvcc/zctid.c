/*
 * mvcc/zctid.c - statements that name rows by ctid. Owned here:
 *
 *	(GUARD-3)	a statement that names rows of a table by a ctid from outside
 *				(zctid_outside.c), of which nobody knows when it was read,
 *				changes only those that its transaction has locked FOR SHARE
 *				or stronger, or has written, before. Exceptions: the table is
 *				temporary, or locked against other writers, or
 *				zundo.allow_ctid_guard is on.
 *	(GUARD-4)	to the conditions of a statement that compares TIDs, a row
 *				that a lock has found updated in place since the snapshot has
 *				another TID than before (ZTID_NEWER), as on heap.
 *
 * hooks.c calls the check at the start of a statement, dml/ asks for each row
 * that is changed or locked. No locks, no buffers, no crash points.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type_d.h"
#include "common/zundo.h"
#include "executor/executor.h"
#include "mvcc/zctid.h"
#include "mvcc/zlevel.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "tuple/ztts.h"
#include "utils/rel.h"

/* ---- GUARD-3: rows named by a ctid from outside ---- */

/*
 * A statement in execution that names rows of these tables by a ctid from
 * outside. It lives in the statement's memory.
 */
typedef struct NamingStatement
{
	struct NamingStatement *next;
	const EState *estate;
	List	   *named;			/* tables of which it names rows */
	List	   *asked;			/* those of them whose rows it changes */
	MemoryContextCallback at_end;
} NamingStatement;

/* Those with tables in 'asked', the innermost one first. */
static NamingStatement *naming = NULL;

bool		zctid_asking = false;

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

/*
 * Returns whether this transaction may have locked or changed rows of rel. Both
 * need a transaction id; a lock shows in the transaction's lock on the table, a
 * change in its statistics, if they are kept.
 */
static bool
may_hold_rows(Relation rel)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		(CheckRelationLockedByMe(rel, RowShareLock, false) ||
		 !pgstat_should_count_relation(rel) || rel->pgstat_info->trans != NULL);
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
					 "UPDATE, identify it by a key, or set "
					 "\"zundo.allow_ctid_guard\" to \"on\".")));
	pg_unreachable();
}

bool
zctid_asks(Relation rel)
{
	const EState *estate = zlevel_current()->estate;

	for (const NamingStatement *statement = naming; statement != NULL; statement = statement->next)
	{
		if (statement->estate == estate)
			return list_member_oid(statement->asked, RelationGetRelid(rel)) &&
				others_may_change(rel);
	}
	return false;
}

/* Forgets a statement whose memory is about to be freed. */
static void
forget_statement(void *arg)
{
	NamingStatement **link = &naming;

	while (*link != NULL && *link != arg)
		link = &(*link)->next;
	if (*link != NULL)
		*link = (*link)->next;
	zctid_asking = (naming != NULL);
}

/* Adds the tables of which this plan node, or one below it, names rows. */
static bool
add_named_tables(PlanState *state, NamingStatement *statement)
{
	const PlannedStmt *stmt = statement->estate->es_plannedstmt;
	Bitmapset  *rels = zctid_named_from_outside(stmt, state->plan);
	int			rti = -1;

	while ((rti = bms_next_member(rels, rti)) >= 0)
		statement->named = list_append_unique_oid(statement->named,
												  rt_fetch(rti, stmt->rtable)->relid);
	return planstate_tree_walker(state, add_named_tables, statement);
}

/* Returns whether rel is what INSERT names if the rows go to its partitions. */
static bool
is_partitioned(Relation rel)
{
	return rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
}

/*
 * Returns whether the node updates or deletes rows of a zheap table, or does so
 * if the rows that it inserts are there.
 */
static bool
changes_zheap(const ModifyTableState *node)
{
	if (node->operation == CMD_INSERT &&
		((ModifyTable *) node->ps.plan)->onConflictWhere == NULL)
		return false;
	for (int i = 0; i < node->mt_nrels; i++)
	{
		Relation	rel = node->resultRelInfo[i].ri_RelationDesc;

		if (is_partitioned(rel) || table_slot_callbacks(rel) == &TTSOpsZHeap)
			return true;
	}
	return false;
}

/*
 * Adds the tables of which the node changes rows, and the statement names
 * some, to those whose rows are asked. Refuses the statement at once if no row
 * of any of them can answer. The table's rows may be named elsewhere in the
 * statement, as in id = (SELECT id FROM t WHERE ctid = $1). Of a partitioned
 * table that INSERT ... ON CONFLICT names, all partitions are asked: which of
 * them get rows is not known yet.
 */
static void
ask_rows(const ModifyTableState *node, NamingStatement *statement)
{
	Relation	refused = NULL;
	bool		held = false;

	for (int i = 0; i < node->mt_nrels; i++)
	{
		Relation	rel = node->resultRelInfo[i].ri_RelationDesc;

		if (is_partitioned(rel))
		{
			if (list_member_oid(statement->named, RelationGetRelid(rel)))
				statement->asked = list_concat_unique_oid(statement->asked,
														  find_all_inheritors(RelationGetRelid(rel),
																			  NoLock, NULL));
			continue;
		}
		if (!list_member_oid(statement->named, RelationGetRelid(rel)) ||
			table_slot_callbacks(rel) != &TTSOpsZHeap || !others_may_change(rel))
			continue;
		held |= may_hold_rows(rel);
		if (refused == NULL)
			refused = rel;
		statement->asked = list_append_unique_oid(statement->asked, RelationGetRelid(rel));
	}
	if (refused != NULL && !held)
		zctid_refuse(refused);
}

/*
 * zctid_check_statement: See zctid.h. Looks at all ModifyTable nodes: the
 * statement's own, and those of WITH queries.
 */
void
zctid_check_statement(QueryDesc *query, int eflags)
{
	EState	   *estate = query->estate;
	NamingStatement *statement;
	MemoryContext caller;
	List	   *nodes = NIL;
	ListCell   *lc;

	if (query->planstate == NULL || (eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0 ||
		zundo_allow_ctid_guard)
		return;
	if (IsA(query->planstate, ModifyTableState) &&
		changes_zheap((ModifyTableState *) query->planstate))
		nodes = lappend(nodes, query->planstate);
	foreach(lc, estate->es_auxmodifytables)
	{
		if (changes_zheap(lfirst_node(ModifyTableState, lc)))
			nodes = lappend(nodes, lfirst(lc));
	}
	if (nodes == NIL)
		return;
	caller = MemoryContextSwitchTo(estate->es_query_cxt);
	statement = palloc0(sizeof(NamingStatement));
	statement->estate = estate;
	(void) add_named_tables(query->planstate, statement);
	foreach(lc, nodes)
		ask_rows(lfirst(lc), statement);
	if (statement->asked != NIL)
	{
		statement->next = naming;
		statement->at_end.func = forget_statement;
		statement->at_end.arg = statement;
		MemoryContextRegisterResetCallback(estate->es_query_cxt, &statement->at_end);
		naming = statement;
		zctid_asking = true;
	}
	MemoryContextSwitchTo(caller);
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
