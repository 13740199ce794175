/*
 * common/compat_commands.h - what compat.h is, for statements, plans, catalogs.
 */
#ifndef ZUNDO_COMPAT_COMMANDS_H
#define ZUNDO_COMPAT_COMMANDS_H

#include "commands/defrem.h"
#include "common/compat.h"
#include "nodes/parsenodes.h"

/* 19 tells the planner for which EXPLAIN it plans. */
#if PG_VERSION_NUM < 190000
#define ZC_PLANNER_PARAMS \
	Query *parse, const char *query_string, int cursor_options, ParamListInfo bound_params
#define ZC_PLANNER_ARGS parse, query_string, cursor_options, bound_params
#else
#define ZC_PLANNER_PARAMS \
	Query *parse, const char *query_string, int cursor_options, ParamListInfo bound_params, \
	struct ExplainState *explain
#define ZC_PLANNER_ARGS parse, query_string, cursor_options, bound_params, explain
#endif

/*
 * 19 replaced the hook that is called with what the planner knows of a table.
 * Both are called when rel is complete. Files that use these include
 * optimizer/plancat.h and optimizer/pathnode.h.
 */
#if PG_VERSION_NUM < 190000
#define ZcPlanTableHook get_relation_info_hook_type
#define zc_plan_table_hook get_relation_info_hook
#define ZC_PLAN_TABLE_PARAMS PlannerInfo *root, Oid table, bool inhparent, RelOptInfo *rel
#define ZC_PLAN_TABLE_ARGS root, table, inhparent, rel
#else
#define ZcPlanTableHook build_simple_rel_hook_type
#define zc_plan_table_hook build_simple_rel_hook
#define ZC_PLAN_TABLE_PARAMS PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte
#define ZC_PLAN_TABLE_ARGS root, rel, rte
#endif

/*
 * zc_restrict_search_path sets a safe search path, for functions of a table's
 * owner that run on behalf of another role. 17 and later do so in VACUUM and
 * similar commands (ZC_HAS_SAFE_PATH). Before, these commands run such
 * functions with the other role's path, and functions may rely on that. So on
 * earlier servers a caller sets the safe path only for a role that does not
 * have the rights of the owner.
 */
#if PG_VERSION_NUM < 170000
#define ZC_HAS_SAFE_PATH 0
#define zc_restrict_search_path() \
	((void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, \
							  PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false))
#else
#define ZC_HAS_SAFE_PATH 1
#define zc_restrict_search_path() RestrictSearchPath()
#endif

/*
 * 17 passes the options of operator classes and the targets for statistics of
 * the columns to index_create. Before, the former are part of the IndexInfo,
 * and index_concurrently_swap copies the latter.
 */
#if PG_VERSION_NUM < 170000
#define zc_index_create(table, name, info, columns, am, space, collations, classes, options, \
						flags, targets, params, how) \
	((void) (options), (void) (targets), \
	 index_create(table, name, InvalidOid, InvalidOid, InvalidOid, InvalidRelFileNumber, info, \
				  columns, am, space, collations, classes, flags, params, how, 0, false, false, \
				  NULL))
#else
#define zc_index_create(table, name, info, columns, am, space, collations, classes, options, \
						flags, targets, params, how) \
	index_create(table, name, InvalidOid, InvalidOid, InvalidOid, InvalidRelFileNumber, info, \
				 columns, am, space, collations, classes, options, flags, targets, params, how, \
				 0, false, false, NULL)
#endif

/*
 * zc_selected_columns returns the columns of a table of the query whose use
 * needs the right to read them, which 16 moved out of the range table.
 */
#if PG_VERSION_NUM < 160000
#define zc_selected_columns(query, rte) ((rte)->selectedCols)
#else
#define zc_selected_columns(query, rte) \
	((rte)->perminfoindex == 0 ? NULL \
	 : getRTEPermissionInfo((query)->rteperminfos, rte)->selectedCols)
#endif

/* The condition by which MERGE joins, which 17 keeps apart as well. */
#if PG_VERSION_NUM < 170000
#define zc_merge_join_condition(query) ((Node *) NULL)
#else
#define zc_merge_join_condition(query) ((query)->mergeJoinCondition)
#endif

/* Whether an action of MERGE is one of WHEN MATCHED; 17 knows a third kind. */
#if PG_VERSION_NUM < 170000
#define zc_is_of_matched(action) ((action)->matched)
#else
#define zc_is_of_matched(action) ((action)->matchKind == MERGE_WHEN_MATCHED)
#endif

/* The columns of the entry of a range table that stands for GROUP BY in 18. */
#if PG_VERSION_NUM < 180000
#define zc_group_expressions(rte) NIL
#else
#define zc_group_expressions(rte) ((rte)->groupexprs)
#endif

/* 16 made the checks of ownership and rights of all kinds of objects one. */
#if PG_VERSION_NUM < 160000
#define zc_owns_relation(reloid, role) pg_class_ownercheck(reloid, role)
#define zc_owns_extension(extension, role) pg_extension_ownercheck(extension, role)
#define zc_may_use_schema(schema, role) \
	(pg_namespace_aclcheck(schema, role, ACL_USAGE) == ACLCHECK_OK)
#else
#define zc_owns_relation(reloid, role) object_ownercheck(RelationRelationId, reloid, role)
#define zc_owns_extension(extension, role) object_ownercheck(ExtensionRelationId, extension, role)
#define zc_may_use_schema(schema, role) \
	(object_aclcheck(NamespaceRelationId, schema, role, ACL_USAGE) == ACLCHECK_OK)
#endif

/* 17 allows roles other than the owner to vacuum a table. */
#if PG_VERSION_NUM < 170000
#define zc_may_vacuum(reloid, form) vacuum_is_relation_owner(reloid, form, VACOPT_VACUUM)
#else
#define zc_may_vacuum(reloid, form) vacuum_is_permitted_for_relation(reloid, form, VACOPT_VACUUM)
#endif

/*
 * zc_dropped_oid: returns the OID in an item that says whose statistics are to
 * be dropped. In 18 it has 64 bits.
 */
#if PG_VERSION_NUM < 180000
#define zc_dropped_oid(item) ((item)->objoid)
#else
#define zc_dropped_oid(item) ((Oid) (item)->objid_lo)
#endif

/* 18 has a function for ordering operators of any index access method. */
#if PG_VERSION_NUM < 180000
#define zc_op_is_comparison(op) (get_op_btree_interpretation(op) != NIL)
#else
#define zc_op_is_comparison(op) (get_op_index_interpretation(op) != NIL)
#endif

/*
 * 19 has REPACK. Returns whether node is such a command for all tables of the
 * database in their present order, and sets *verbose. The server does not take
 * ANALYZE and CONCURRENTLY without a table, so such a command is left to it.
 */
static inline bool
zc_repacks_all(Node *node, bool *verbose)
{
	*verbose = false;
#if PG_VERSION_NUM >= 190000
	if (IsA(node, RepackStmt))
	{
		RepackStmt *stmt = (RepackStmt *) node;
		ListCell   *lc;

		if (stmt->command != REPACK_COMMAND_REPACK || stmt->relation != NULL || stmt->usingindex)
			return false;
		foreach(lc, stmt->params)
		{
			DefElem    *option = lfirst_node(DefElem, lc);

			if (strcmp(option->defname, "verbose") != 0)
				return false;
			*verbose = defGetBoolean(option);
		}
		return true;
	}
#endif
	return false;
}

/* Returns the table that a CLUSTER or REPACK names, or NULL. */
static inline RangeVar *
zc_clustered_relation(Node *node)
{
#if PG_VERSION_NUM < 190000
	return IsA(node, ClusterStmt) ? ((ClusterStmt *) node)->relation : NULL;
#else
	VacuumRelation *table = IsA(node, RepackStmt) ? ((RepackStmt *) node)->relation : NULL;

	return table != NULL ? table->relation : NULL;
#endif
}

/*
 * 19 has MERGE PARTITIONS and SPLIT PARTITION. Returns whether node is such a
 * command.
 */
static inline bool
zc_moves_partitions(Node *node)
{
#if PG_VERSION_NUM >= 190000
	if (IsA(node, AlterTableStmt))
	{
		AlterTableType type = linitial_node(AlterTableCmd,
											((AlterTableStmt *) node)->cmds)->subtype;

		return type == AT_MergePartitions || type == AT_SplitPartition;
	}
#endif
	return false;
}

/* 18 added pg_class.relallfrozen: exchanges it in two rows of pg_class. */
#if PG_VERSION_NUM >= 180000
#define zc_swap_relallfrozen(one, two) \
	do { \
		int32		zc_saved = (one)->relallfrozen; \
		(one)->relallfrozen = (two)->relallfrozen; \
		(two)->relallfrozen = zc_saved; \
	} while (0)
#else
#define zc_swap_relallfrozen(one, two) ((void) 0)
#endif

/*
 * 18 has constraints NOT NULL NOT VALID. Returns whether the column of a table
 * is null in no row.
 */
static inline bool
zc_never_null(TupleDesc desc, AttrNumber attnum)
{
#if PG_VERSION_NUM >= 180000
	return TupleDescCompactAttr(desc, attnum - 1)->attnullability == ATTNULLABLE_VALID;
#else
	return TupleDescAttr(desc, attnum - 1)->attnotnull;
#endif
}

/* 17 gave partitioned tables an access method, which new partitions get. */
#if PG_VERSION_NUM >= 170000
#define ZC_PARTITIONED_TABLE_HAS_METHOD true
#else
#define ZC_PARTITIONED_TABLE_HAS_METHOD false
#endif

/* 18 added WITHOUT OVERLAPS: makes the statement create an index without it. */
#if PG_VERSION_NUM >= 180000
#define zc_no_overlaps(stmt) ((stmt)->iswithoutoverlaps = false)
#else
#define zc_no_overlaps(stmt) ((void) 0)
#endif

/*
 * 16 and 19 gave DefineIndex more parameters. Creates the index of the table
 * without asking for rights.
 */
#if PG_VERSION_NUM >= 190000
#define zc_define_index(table, stmt) \
	DefineIndex(NULL, table, stmt, InvalidOid, InvalidOid, InvalidOid, -1, false, false, false, \
				false, true)
#elif PG_VERSION_NUM >= 160000
#define zc_define_index(table, stmt) \
	DefineIndex(table, stmt, InvalidOid, InvalidOid, InvalidOid, -1, false, false, false, \
				false, true)
#else
#define zc_define_index(table, stmt) \
	DefineIndex(table, stmt, InvalidOid, InvalidOid, InvalidOid, false, false, false, false, true)
#endif

#endif
