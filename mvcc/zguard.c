/*
 * mvcc/zguard.c - xmin as a guard of updates.
 *
 * Applications read a row, and later change it only if it is still the version
 * that they have read: UPDATE ... WHERE id = $1 AND xmin = $2, or ctid = $2.
 * On heap both change with each update. Here ctid does not, and the
 * transaction that wrote a version is known only while its undo is kept.
 * mvcc/README.md has the reasons for what is done about it. Owned here:
 *
 *	(GUARD-1)	queries that see different versions of a row are never shown
 *				the same xmin (zguard_forgotten_xmin). OLD.xmin in trigger
 *				functions may be 0, which says nothing about the author.
 *	(GUARD-2)	a query that compares xmin of a zheap table is refused when it
 *				is planned, since GUARD-1 would make it find changes where
 *				there are none. Exceptions: zundo.allow_xmin_comparison is on,
 *				or the query asks whether xmin is the own transaction id.
 *
 * GUARD-1 makes lost updates impossible, however the comparison is hidden: in
 * a function, in a subquery, in the application. GUARD-2 is there to say why.
 * The checks are called by hooks.c, zguard_forgotten_xmin for system columns
 * by tuple/, through ztts_forgotten_xmin_hook. No locks, no buffers, no crash
 * points.
 */
#include "postgres.h"

#include "access/commit_ts.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_aggregate.h"
#include "catalog/pg_inherits.h"
#include "commands/trigger.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "mvcc/zguard.h"
#include "mvcc/zvis.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"
#include "replication/logicalworker.h"
#include "tuple/ztts.h"
#include "undo/undo_temp.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/xid8.h"

PG_FUNCTION_INFO_V1(zundo_row_version);

/* The top bit of a 32-bit transaction id. */
#define TOP_BIT ((TransactionId) 0x80000000)

/* ---- GUARD-1: what xmin shows ---- */

/*
 * Writes a warning to the log, once for each apply worker that looks for
 * conflicts: it cannot detect conflicts with the author of this row, since
 * that is not known any more.
 */
static void
warn_of_conflicts(Oid relid)
{
	static bool warned = false;

	if (warned || !track_commit_timestamp || !IsLogicalWorker())
		return;
	warned = true;
	ereport(WARNING,
			(errmsg("cannot detect all conflicts with local changes of zheap table \"%s\"",
					get_rel_name(relid)),
			 errdetail("The transaction that wrote a row is known only while its undo is kept. "
					   "Each worker gives this warning only once.")));
}

/*
 * zguard_forgotten_xmin: See zguard.h. Returns `oldest` with the top bit of
 * its lower half inverted (GUARD-1). No transaction in use has that id. Of two
 * such numbers of one row's versions the second is that of a later `oldest`:
 * the author that replaced the first version is invisible to the snapshot of
 * the reader of the first number, so it is not before the first `oldest`, but
 * it is before the second.
 */
TransactionId
zguard_forgotten_xmin(const ZHeapSlot *slot)
{
	Oid			relid = slot->base.tts_tableOid;
	TransactionId xid;

	zu_attach_database();
	if (zuptr_is_temp(slot->chain) ||
		(zu_temp_oldest() > FirstNormalTransactionId && OidIsValid(relid) &&
		 get_rel_persistence(relid) == RELPERSISTENCE_TEMP))
		xid = zxid_to_xid(zu_temp_oldest());
	else
		xid = zxid_to_xid(zu_oldest());
	if (ZC_APPLY_LOOKS_AT_XMIN)
		warn_of_conflicts(relid);

	/*
	 * 0, 1 and 2 have meanings of their own: an id that would become one of
	 * them is shown as it is; no other id becomes that number.
	 */
	if (!TransactionIdIsNormal(xid ^ TOP_BIT))
		return xid;
	return xid ^ TOP_BIT;
}

/* ---- GUARD-2: comparisons of xmin ---- */

/* Returns whether it is a zheap table. The caller holds a lock on it. */
static bool
is_zheap(Oid relid)
{
	Relation	rel = table_open(relid, NoLock);
	bool		result = (table_slot_callbacks(rel) == &TTSOpsZHeap);

	table_close(rel, NoLock);
	return result;
}

/* Raises the error for a comparison of xmin of this table. */
static void zc_noreturn pg_attribute_cold
refuse_xmin(Oid relid)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot compare xmin of zheap table \"%s\"", get_rel_name(relid)),
			 errdetail("The transaction that wrote a row is known only while its undo is kept, "
					   "so xmin does not tell whether the row has changed since it was read."),
			 errhint("Use a version column maintained by a trigger that executes "
					 "zundo.row_version(), "
					 "or set \"zundo.allow_xmin_comparison\" to \"on\".")));
	pg_unreachable();
}

/* Whose xmin is looked for in an expression. */
typedef struct XminSearch
{
	PlannerInfo *root;
	Index		only;			/* this relation of the query; 0 = any zheap
								 * table */
	Oid			found;			/* the zheap table, if 'only' was 0 */
} XminSearch;

/*
 * Returns a zheap table to which rows of the query's relation number varno can
 * belong: the relation itself, or a child of it. InvalidOid if there is none.
 */
static Oid
zheap_table(PlannerInfo *root, Index varno)
{
	RangeTblEntry *rte = planner_rt_fetch(varno, root);

	Assert(varno > 0 && varno < (Index) root->simple_rel_array_size);
	if (rte->rtekind != RTE_RELATION)
		return InvalidOid;
	if (is_zheap(rte->relid))
		return rte->relid;
	if (!rte->inh || root->append_rel_array == NULL)
		return InvalidOid;
	for (int i = 1; i < root->simple_rel_array_size; i++)
	{
		Index		parent = i;

		rte = root->simple_rte_array[i];
		while (parent != varno && root->append_rel_array[parent] != NULL)
			parent = root->append_rel_array[parent]->parent_relid;
		if (parent == varno && rte != NULL && rte->rtekind == RTE_RELATION && is_zheap(rte->relid))
			return rte->relid;
	}
	return InvalidOid;
}

/*
 * Returns whether an expression names an xmin that search looks for; sets
 * search->found.
 */
static bool
find_xmin_walker(Node *node, XminSearch *search)
{
	if (node == NULL)
		return false;
	if (IsA(node, Var))
	{
		const Var  *var = (Var *) node;

		if (var->varattno != MinTransactionIdAttributeNumber || var->varlevelsup != 0)
			return false;
		if (search->only != 0)
			return var->varno == search->only;
		search->found = zheap_table(search->root, var->varno);
		return OidIsValid(search->found);
	}
	if (IsA(node, RestrictInfo))
		return find_xmin_walker((Node *) ((RestrictInfo *) node)->clause, search);
	return expression_tree_walker(node, find_xmin_walker, search);
}

/* Returns whether the aggregate compares its arguments. */
static bool
sorts(const Aggref *agg)
{
	HeapTuple	tuple;
	bool		result;

	if (agg->aggdistinct != NIL || agg->aggorder != NIL)
		return true;
	tuple = SearchSysCache1(AGGFNOID, ObjectIdGetDatum(agg->aggfnoid));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = OidIsValid(((Form_pg_aggregate) GETSTRUCT(tuple))->aggsortop);
	ReleaseSysCache(tuple);
	return result;
}

/* Returns the expression without the casts around it. */
static Node *
without_casts(Node *node)
{
	for (;;)
	{
		if (IsA(node, RelabelType))
			node = (Node *) ((RelabelType *) node)->arg;
		else if (IsA(node, CoerceViaIO))
			node = (Node *) ((CoerceViaIO *) node)->arg;
		else if (IsA(node, FuncExpr) && ((FuncExpr *) node)->args != NIL &&
				 ((FuncExpr *) node)->funcformat != COERCE_EXPLICIT_CALL)
			node = linitial(((FuncExpr *) node)->args);
		else
			return node;
	}
}

/*
 * Returns whether an expression is the own transaction id, perhaps in another
 * type, or modulo a constant, as txid_current() % 2^32 is the id without its
 * epoch; or an array of nothing else.
 */
static bool
is_own_xid(Node *node)
{
	node = without_casts(node);
	if (IsA(node, OpExpr) && list_length(((OpExpr *) node)->args) == 2 &&
		IsA(lsecond(((OpExpr *) node)->args), Const))
	{
		RegProcedure code = get_opcode(((OpExpr *) node)->opno);

		return (code == F_INT8MOD || code == F_INT4MOD || code == F_NUMERIC_MOD) &&
			is_own_xid(linitial(((OpExpr *) node)->args));
	}
	if (IsA(node, ArrayExpr))
	{
		ListCell   *lc;

		foreach(lc, ((ArrayExpr *) node)->elements)
			if (!is_own_xid(lfirst(lc)))
			return false;
		return true;
	}
	if (!IsA(node, FuncExpr))
		return false;
	switch (((FuncExpr *) node)->funcid)
	{
		case F_PG_CURRENT_XACT_ID:
		case F_PG_CURRENT_XACT_ID_IF_ASSIGNED:
		case F_TXID_CURRENT:
		case F_TXID_CURRENT_IF_ASSIGNED:
			return true;
		default:
			return false;
	}
}

/*
 * Returns whether an operator only asks whether a column is the own transaction
 * id. If the column is xmin, that is exact, since the undo of the own
 * transaction's changes is kept. Which of two ids is older, or how far they are
 * apart, is not: a forgotten author's number means nothing.
 */
static bool
is_own_xid_test(Node *node)
{
	bool		of_array = IsA(node, ScalarArrayOpExpr);
	List	   *args = of_array ? ((ScalarArrayOpExpr *) node)->args : ((OpExpr *) node)->args;
	RegProcedure estimator;
	Node	   *left,
			   *right;

	if (list_length(args) != 2)
		return false;
	estimator = get_oprrest(of_array ? ((ScalarArrayOpExpr *) node)->opno
							: ((OpExpr *) node)->opno);
	if (estimator != F_EQSEL && estimator != F_NEQSEL)
		return false;
	left = without_casts(linitial(args));
	right = without_casts(lsecond(args));
	if (is_own_xid(left))
		return IsA(right, Var) || IsA(right, CaseTestExpr);
	return is_own_xid(right) && (IsA(left, Var) || IsA(left, CaseTestExpr));
}

/*
 * Returns whether a condition depends on an xmin that search looks for, other
 * than by comparing it with the own transaction id.
 */
static bool
is_condition_on_xmin_walker(Node *node, XminSearch *search)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_RestrictInfo:
			return is_condition_on_xmin_walker((Node *) ((RestrictInfo *) node)->clause, search);
		case T_NullTest:
			return false;
		case T_OpExpr:
		case T_DistinctExpr:
		case T_ScalarArrayOpExpr:
			if (is_own_xid_test(node))
				return false;
			break;
		case T_Var:
			return find_xmin_walker(node, search);
		default:
			break;
	}
	return expression_tree_walker(node, is_condition_on_xmin_walker, search);
}

/*
 * Returns whether an expression that is no condition compares xmin. It may
 * show xmin, as it is or through functions.
 */
static bool
compares_xmin_walker(Node *node, XminSearch *search)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_OpExpr:
			/* operators such as || make a text of it */
			if (((OpExpr *) node)->opresulttype != BOOLOID)
				break;
			return is_condition_on_xmin_walker(node, search);
		case T_DistinctExpr:
		case T_ScalarArrayOpExpr:
			return is_condition_on_xmin_walker(node, search);
		case T_NullIfExpr:
			return !is_own_xid_test(node) && find_xmin_walker(node, search);
		case T_RowCompareExpr:
		case T_MinMaxExpr:
		case T_SubPlan:
		case T_AlternativeSubPlan:
			return find_xmin_walker(node, search);
		case T_Aggref:
			return sorts((Aggref *) node) && find_xmin_walker(node, search);
		case T_CaseExpr:
			{
				CaseExpr   *expr = (CaseExpr *) node;
				ListCell   *lc;

				foreach(lc, expr->args)
				{
					Node	   *when = (Node *) lfirst_node(CaseWhen, lc)->expr;

					if (!(IsA(when, OpExpr) && is_own_xid_test(when)) &&
						find_xmin_walker((Node *) expr->arg, search))
						return true;
				}
				break;
			}
		default:
			break;
	}
	return expression_tree_walker(node, compares_xmin_walker, search);
}

/*
 * Refuses a target list in which xmin is compared, or sorts or groups the
 * rows. relid names the table in the error; InvalidOid: the one found.
 */
static void
check_list(List *tlist, XminSearch *search, Oid relid)
{
	ListCell   *lc;

	foreach(lc, tlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);

		if (compares_xmin_walker((Node *) entry->expr, search) ||
			(entry->ressortgroupref != 0 && find_xmin_walker((Node *) entry->expr, search)))
			refuse_xmin(OidIsValid(relid) ? relid : search->found);
	}
}

/* Refuses a condition that depends on xmin. */
static void
check_condition(Node *condition, XminSearch *search, Oid relid)
{
	if (is_condition_on_xmin_walker(condition, search))
		refuse_xmin(OidIsValid(relid) ? relid : search->found);
}

/* Refuses conditions on xmin in WHERE and ON. */
static void
check_joins(Node *node, XminSearch *search)
{
	ListCell   *lc;

	if (IsA(node, FromExpr))
	{
		foreach(lc, ((FromExpr *) node)->fromlist)
			check_joins(lfirst(lc), search);
		check_condition(((FromExpr *) node)->quals, search, InvalidOid);
	}
	else if (IsA(node, JoinExpr))
	{
		check_joins(((JoinExpr *) node)->larg, search);
		check_joins(((JoinExpr *) node)->rarg, search);
		check_condition(((JoinExpr *) node)->quals, search, InvalidOid);
	}
}

/*
 * Refuses comparisons of xmin of the table that the query changes, in places
 * where no scan reads it: in RETURNING, and in DO UPDATE of an INSERT. All
 * partitions of a partitioned table are checked, since the one that gets the
 * row is not known yet.
 */
static void
check_changed(PlannerInfo *root)
{
	Query	   *parse = root->parse;
	XminSearch	search = {.root = root,.only = parse->resultRelation};
	OnConflictExpr *conflict = parse->onConflict;
	List	   *children;
	ListCell   *lc;

	if (!find_xmin_walker((Node *) parse->returningList, &search) &&
		(conflict == NULL || (!find_xmin_walker(conflict->onConflictWhere, &search) &&
							  !find_xmin_walker((Node *) conflict->onConflictSet, &search))))
		return;
	children = find_all_inheritors(rt_fetch(parse->resultRelation, parse->rtable)->relid,
								   AccessShareLock, NULL);
	foreach(lc, children)
	{
		Oid			relid = lfirst_oid(lc);

		if (!is_zheap(relid))
			continue;
		check_list(parse->returningList, &search, relid);
		if (conflict == NULL)
			continue;
		check_list(conflict->onConflictSet, &search, relid);
		check_condition(conflict->onConflictWhere, &search, relid);
	}
}

/*
 * Returns whether the query wants xmin of the relation at all. The planner has
 * noted that, so the expressions of most queries need not be searched.
 */
static inline bool
reads_xmin(const RelOptInfo *rel, XminSearch *search)
{
	ListCell   *lc;

	if (rel->rtekind != RTE_RELATION)
		return false;
	if (rel->attr_needed != NULL &&
		!bms_is_empty(rel->attr_needed[MinTransactionIdAttributeNumber - rel->min_attr]))
		return true;
	search->only = rel->relid;
	foreach(lc, rel->baserestrictinfo)
	{
		if (find_xmin_walker(lfirst(lc), search))
			return true;
	}
	return false;
}

/*
 * zguard_check_query: See zguard.h. Checks all expressions of the level.
 * Called when its paths are complete: views and functions have been expanded
 * then. zundo.allow_xmin_comparison allows all comparisons.
 */
void
zguard_check_query(PlannerInfo *root)
{
	Query	   *parse = root->parse;
	bool		wanted = false;
	ListCell   *lc;

	if (zundo_allow_xmin_comparison)
		return;
	for (int i = 1; i < root->simple_rel_array_size; i++)
	{
		RelOptInfo *rel = root->simple_rel_array[i];
		XminSearch	search = {.root = root};

		if (rel == NULL || !reads_xmin(rel, &search))
			continue;
		wanted = true;
		search.only = 0;
		/* a child of UNION ALL has conditions that the query itself has not */
		foreach(lc, rel->baserestrictinfo)
			check_condition(lfirst(lc), &search, InvalidOid);
	}
	if (wanted)
	{
		XminSearch	search = {.root = root};

		check_joins((Node *) parse->jointree, &search);
		check_condition(parse->havingQual, &search, InvalidOid);
		check_list(parse->targetList, &search, InvalidOid);
		foreach(lc, parse->mergeActionList)
		{
			/* the server allows no system column in the actions' conditions */
			check_list(lfirst_node(MergeAction, lc)->targetList, &search, InvalidOid);
		}
	}
	if (parse->resultRelation != 0 && (parse->onConflict != NULL || parse->returningList != NIL))
		check_changed(root);
}

/* ---- instead of xmin: a column ---- */

/*
 * Puts the id of the transaction into the column, of type xid8, bigint or xid,
 * that the argument names. Called as a trigger BEFORE INSERT OR UPDATE FOR
 * EACH ROW; returns the new row. The column shows what xmin shows on heap, and
 * keeps it as long as the row exists. Raises an error if the trigger is
 * defined otherwise, or if there is no such column.
 */
Datum
zundo_row_version(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	TupleDesc	desc;
	HeapTuple	tuple;
	Datum		value;
	uint64		xid;
	bool		isnull = false;
	int			attno;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("zundo.row_version() must be called as a trigger")));
	if (!TRIGGER_FIRED_FOR_ROW(data->tg_event) || !TRIGGER_FIRED_BEFORE(data->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(data->tg_event) || data->tg_trigger->tgnargs != 1)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("zundo.row_version() must be fired BEFORE INSERT OR UPDATE FOR EACH ROW, "
						"with one argument"),
				 errhint("Use CREATE TRIGGER ... BEFORE INSERT OR UPDATE ON ... FOR EACH ROW "
						 "EXECUTE FUNCTION zundo.row_version('column').")));
	desc = RelationGetDescr(data->tg_relation);
	attno = SPI_fnumber(desc, data->tg_trigger->tgargs[0]);
	if (attno <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist",
						data->tg_trigger->tgargs[0], RelationGetRelationName(data->tg_relation))));
	xid = U64FromFullTransactionId(GetTopFullTransactionId());
	switch (SPI_gettypeid(desc, attno))
	{
		case XID8OID:
			value = FullTransactionIdGetDatum(FullTransactionIdFromU64(xid));
			break;
		case INT8OID:
			value = Int64GetDatum((int64) xid);
			break;
		case XIDOID:
			value = TransactionIdGetDatum((TransactionId) xid);
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("column \"%s\" of relation \"%s\" must be of type xid8, bigint or xid",
							data->tg_trigger->tgargs[0],
							RelationGetRelationName(data->tg_relation))));
	}
	tuple = TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple;
	return PointerGetDatum(heap_modify_tuple_by_cols(tuple, desc, 1, &attno, &value, &isnull));
}
