/*
 * undo/undo_ddl.c - which utility commands are allowed on zundo.undo_log.
 *
 * Called by the ProcessUtility hook (hooks.c), before anything is locked or
 * changed. Refuses what would make the undo log something other than the one
 * relation that zundo finds by its name: a renamed or rebuilt relation, or one
 * with children or rules. Refuses also what the server would refuse only after
 * it has requested AccessExclusiveLock, for which no right on the relation is
 * needed (DETACH PARTITION, a foreign table that is a PARTITION OF it): new
 * sessions and subtransactions that write to zheap tables would wait behind
 * that request. What reaches the access method (rewrites, copies, rows,
 * indexes) is refused by discard/undo_am.c. GRANT, COMMENT, OWNER TO, storage
 * parameters, VACUUM and ANALYZE are allowed. VACUUM FULL leaves the undo log
 * out, also when it is for the whole database; so does REPACK of the whole
 * database (19), which is run as VACUUM FULL of all other tables.
 *
 * The undo log is a materialized view, the only kind of relation with a file
 * and an access method that is no table: the server itself refuses to change
 * its rows and to publish it.
 *
 * The schema zundo is created by the script of CREATE EXTENSION: a schema that
 * existed before may belong to any user, and its objects could be mistaken for
 * the extension's.
 *
 * Locks: none. Crash points: none.
 */
#include "undo/undo_internal.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/vacuum.h"
#include "common/compat_commands.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_func.h"
#include "utils/lsyscache.h"

void
zu_ddl_refuse(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("\"zundo.undo_log\" cannot be %s", what),
			 errdetail("It holds the old row versions of this database's zheap tables and is "
					   "managed by zundo."),
			 errhint("See zundo.stat_undo for what it contains.")));
}

/*
 * Returns whether rv, a statement's relation, is zundo.undo_log. Takes no lock.
 */
static bool
names_undo_log(RangeVar *rv)
{
	return rv != NULL && strcmp(rv->relname, "undo_log") == 0 &&
		zu_is_undo_log(RangeVarGetRelid(rv, NoLock, true));
}

/* Returns whether a list of RangeVars names zundo.undo_log. */
static bool
list_names_undo_log(List *relations)
{
	ListCell   *lc;

	foreach(lc, relations)
		if (IsA(lfirst(lc), RangeVar) && names_undo_log(lfirst_node(RangeVar, lc)))
		return true;
	return false;
}

/*
 * Raises the error that zundo.undo_log cannot be <what>, if the command is
 * about zundo.undo_log.
 */
static void
refuse_if(bool is_it, const char *what)
{
	if (is_it)
		zu_ddl_refuse(what);
}

/*
 * Checks one action of an ALTER TABLE on zundo.undo_log, or on another table,
 * which may name zundo.undo_log as its parent or partition.
 */
static void
check_alter_command(AlterTableCmd *cmd, bool on_undo_log)
{
	switch (cmd->subtype)
	{
		case AT_ChangeOwner:
		case AT_SetRelOptions:
		case AT_ResetRelOptions:
		case AT_ReplaceRelOptions:
		case AT_SetTableSpace:	/* refused by the access method */
			return;
		case AT_SetUnLogged:
			refuse_if(on_undo_log, "made unlogged");
			break;
		case AT_AddInherit:
			refuse_if(names_undo_log((RangeVar *) cmd->def), "inherited from");
			break;
		case AT_AttachPartition:
			refuse_if(names_undo_log(((PartitionCmd *) cmd->def)->name), "made a partition");
			break;
		case AT_DetachPartition:
		case AT_DetachPartitionFinalize:
			refuse_if(names_undo_log(((PartitionCmd *) cmd->def)->name), "detached");
			break;
		default:
			break;
	}
	refuse_if(on_undo_log, "altered");
}

/* Checks every action of an ALTER TABLE. */
static void
check_alter_table(AlterTableStmt *stmt)
{
	bool		on_undo_log = names_undo_log(stmt->relation);
	ListCell   *lc;

	foreach(lc, stmt->cmds)
		if (IsA(lfirst(lc), AlterTableCmd))
		check_alter_command(lfirst_node(AlterTableCmd, lc), on_undo_log);
}

/*
 * Checks a RENAME of the undo log or of its schema, by whose name zundo finds
 * it.
 */
static void
check_rename(RenameStmt *stmt)
{
	refuse_if(names_undo_log(stmt->relation), "renamed");
	if (stmt->renameType == OBJECT_SCHEMA && strcmp(stmt->subname, "zundo") == 0)
		refuse_if(zu_is_undo_log(zu_find_relation()), "found under another schema name");
}

/*
 * Raises an error if the script of the extension is to create a schema zundo
 * that exists already.
 */
static void
check_new_schema(CreateSchemaStmt *stmt)
{
	if (stmt->schemaname == NULL || strcmp(stmt->schemaname, "zundo") != 0 ||
		!OidIsValid(get_namespace_oid("zundo", true)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_SCHEMA),
			 errmsg("schema \"zundo\" already exists"),
			 errdetail("The extension creates its schema itself, because objects of other users "
					   "in it could be mistaken for its own."),
			 errhint("Drop or rename the schema, then run CREATE EXTENSION again.")));
}

/*
 * Refuses to take the undo log, its schema, or an access method out of the
 * extension. Without the extension, DROP ACCESS METHOD ... CASCADE would drop
 * all tables of the method, whether they hold rows or not.
 */
static void
check_extension_contents(AlterExtensionContentsStmt *stmt)
{
	if (stmt->action < 0 && stmt->objtype == OBJECT_SCHEMA && strcmp(stmt->extname, "zundo") == 0)
		refuse_if(strcmp(strVal(stmt->object), "zundo") == 0,
				  "left in a schema outside its extension");
	if (stmt->action < 0 && stmt->objtype == OBJECT_ACCESS_METHOD &&
		strcmp(stmt->extname, "zundo") == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" cannot be taken out of extension \"zundo\"",
						strVal(stmt->object)),
				 errdetail("DROP ACCESS METHOD could then drop tables that contain rows.")));
	if (stmt->action < 0 && (stmt->objtype == OBJECT_TABLE || stmt->objtype == OBJECT_MATVIEW))
		refuse_if(names_undo_log(makeRangeVarFromNameList(castNode(List, stmt->object))),
				  "taken out of its extension");
}

bool
zu_is_of_extension(Oid class, Oid object)
{
	Oid			extension = get_extension_oid("zundo", true);

	return OidIsValid(extension) && getExtensionOfObject(class, object) == extension;
}

/*
 * Refuses a second access method with a handler of the extension. Its tables
 * would not be found where tables of access method zheap are looked for, such
 * as zundo.repair_undo and the check of DROP EXTENSION.
 */
static void
check_handler(CreateAmStmt *stmt)
{
	static const Oid arguments[] = {INTERNALOID};
	Oid			handler = LookupFuncName(stmt->handler_name, 1, arguments, true);

	if (OidIsValid(handler) && zu_is_of_extension(ProcedureRelationId, handler))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" cannot have a handler of extension \"zundo\"",
						stmt->amname),
				 errhint("Use the access methods of the extension.")));
}

/*
 * Raises an error if the command would do something to zundo.undo_log or to the
 * access methods that is not supported.
 */
static void
check_command(Node *node)
{
	switch (nodeTag(node))
	{
		case T_AlterTableStmt:
			check_alter_table((AlterTableStmt *) node);
			break;
		case T_RenameStmt:
			check_rename((RenameStmt *) node);
			break;
		case T_AlterObjectSchemaStmt:
			refuse_if(names_undo_log(((AlterObjectSchemaStmt *) node)->relation),
					  "moved to another schema");
			break;
		case T_AlterExtensionContentsStmt:
			check_extension_contents((AlterExtensionContentsStmt *) node);
			break;
		case T_TruncateStmt:
			refuse_if(list_names_undo_log(((TruncateStmt *) node)->relations), "truncated");
			break;
		case T_CreateStmt:
		case T_CreateForeignTableStmt:	/* begins with a CreateStmt */
			refuse_if(list_names_undo_log(((CreateStmt *) node)->inhRelations), "inherited from");
			break;
		case T_CreateTrigStmt:
			refuse_if(names_undo_log(((CreateTrigStmt *) node)->relation), "given triggers");
			break;
		case T_RuleStmt:
			refuse_if(names_undo_log(((RuleStmt *) node)->relation), "given rules");
			break;
		case T_CreatePolicyStmt:
			refuse_if(names_undo_log(((CreatePolicyStmt *) node)->table), "given policies");
			break;
		case T_CreateAmStmt:
			check_handler((CreateAmStmt *) node);
			break;
		case T_CreateStatsStmt:
			refuse_if(list_names_undo_log(((CreateStatsStmt *) node)->relations),
					  "given statistics");
			break;
		case T_CopyStmt:
			refuse_if(names_undo_log(((CopyStmt *) node)->relation), "copied");
			break;
		case T_LockStmt:
			refuse_if(list_names_undo_log(((LockStmt *) node)->relations), "locked");
			break;
		case T_RefreshMatViewStmt:
			refuse_if(names_undo_log(((RefreshMatViewStmt *) node)->relation), "refreshed");
			break;
		case T_AlterObjectDependsStmt:
			refuse_if(names_undo_log(((AlterObjectDependsStmt *) node)->relation),
					  "made to depend on another extension");
			break;
		case T_IndexStmt:
			refuse_if(names_undo_log(((IndexStmt *) node)->relation), "indexed");
			break;
		default:
			refuse_if(names_undo_log(zc_clustered_relation(node)), "clustered or repacked");
			break;
	}
}

void
zu_ddl_check(Node *command)
{
	/* scripts of extensions, zundo's among them, and pg_upgrade are trusted */
	if (!creating_extension && !IsBinaryUpgrade)
		check_command(command);
	else if (creating_extension && IsA(command, CreateSchemaStmt))
		check_new_schema((CreateSchemaStmt *) command);
}

/* Returns whether VACUUM has this option, and it is on. */
static bool
vacuum_says(VacuumStmt *stmt, const char *option)
{
	bool		on = false;
	ListCell   *lc;

	foreach(lc, stmt->options)
		if (strcmp(lfirst_node(DefElem, lc)->defname, option) == 0)
		on = defGetBoolean(lfirst_node(DefElem, lc));
	return on;
}

/*
 * Returns what VACUUM without a list of tables would process, as such a list
 * without the relation undo_log. As VACUUM does there, leaves out with a
 * warning what the user may not vacuum. That is checked here, because VACUUM
 * locks the tables of a list before it checks them.
 */
static List *
all_but(Oid undo_log)
{
	Relation	catalog = table_open(RelationRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(catalog, 0, NULL);
	List	   *relations = NIL;
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_class rel = (Form_pg_class) GETSTRUCT(tuple);

		if (rel->oid != undo_log &&
			(rel->relkind == RELKIND_RELATION || rel->relkind == RELKIND_MATVIEW ||
			 rel->relkind == RELKIND_PARTITIONED_TABLE) &&
			zc_may_vacuum(rel->oid, rel))
			relations = lappend(relations, makeVacuumRelation(NULL, rel->oid, NIL));
	}
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	return relations;
}

/*
 * Returns the VACUUM FULL that does what REPACK of all tables does, without the
 * undo log; NULL if there is no table that the user may vacuum. REPACK itself
 * cannot be given a list of tables. No lock on the undo log is requested: new
 * sessions and subtransactions that write would wait behind it.
 */
static PlannedStmt *
repack_others(PlannedStmt *pstmt, bool verbose, Oid undo_log, bool toplevel)
{
	VacuumStmt *stmt = makeNode(VacuumStmt);

	PreventInTransactionBlock(toplevel, "REPACK");
	stmt->is_vacuumcmd = true;
	stmt->options = list_make1(makeDefElem("full", NULL, -1));
	if (verbose)
		stmt->options = lappend(stmt->options, makeDefElem("verbose", NULL, -1));
	stmt->rels = all_but(undo_log);
	if (stmt->rels == NIL)
		return NULL;
	pstmt = copyObject(pstmt);
	pstmt->utilityStmt = (Node *) stmt;
	return pstmt;
}

/*
 * zu_ddl_pass_by: See undo.h. Leaves the undo log out of VACUUM FULL and of
 * REPACK without a table, because its blocks cannot be moved; the other tables
 * of the database, or of the list, are processed.
 */
PlannedStmt *
zu_ddl_pass_by(PlannedStmt *pstmt, bool toplevel)
{
	VacuumStmt *stmt = (VacuumStmt *) pstmt->utilityStmt;
	bool		repack,
				verbose;
	Oid			undo_log;
	List	   *relations = NIL;
	ListCell   *lc;

	repack = zc_repacks_all(pstmt->utilityStmt, &verbose);
	if (!repack &&
		(!IsA(stmt, VacuumStmt) || !stmt->is_vacuumcmd || !vacuum_says(stmt, "full") ||
		 vacuum_says(stmt, "only_database_stats")))
		return pstmt;
	undo_log = zu_find_relation();
	if (!zu_is_undo_log(undo_log))
		return pstmt;
	if (repack)
		return repack_others(pstmt, verbose, undo_log, toplevel);
	foreach(lc, stmt->rels)
	{
		VacuumRelation *rel = lfirst_node(VacuumRelation, lc);

		if (rel->oid == undo_log || names_undo_log(rel->relation))
			ereport(WARNING,
					(errmsg("skipping \"undo_log\" --- its blocks cannot be moved")));
		else
			relations = lappend(relations, rel);
	}
	if (list_length(relations) == list_length(stmt->rels) && stmt->rels != NIL)
		return pstmt;
	if (stmt->rels == NIL)
	{
		PreventInTransactionBlock(toplevel, "VACUUM");
		relations = all_but(undo_log);
	}
	if (relations == NIL)
		return NULL;
	pstmt = copyObject(pstmt);
	((VacuumStmt *) pstmt->utilityStmt)->rels = copyObject(relations);
	return pstmt;
}
