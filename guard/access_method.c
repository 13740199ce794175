/*
 * guard/access_method.c - the access method of tables that other modules'
 * code fills.
 *
 * An extension's C code may read and write its tables by heap's functions
 * (CatalogTupleInsert, heap_insert), and a tool may exchange the files of two
 * tables in pg_class. Neither looks at the access method, so a table must have
 * the right one before such code reaches it. Called by the ProcessUtility hook
 * in hooks.c.
 *
 *	HEAP-2	a table that an extension's script makes is heap's where
 *		default_table_access_method is zheap, unless the script says USING
 *		zheap. Not asserted: the script's own words are not known when the
 *		table is made; t/093_heap_tools runs scripts.
 *	HEAP-3	a table of an extension is not changed to zheap afterwards. Not
 *			asserted: it is about commands that are refused; t/093_heap_tools
 *			has them.
 *	HEAP-4	the copy that pg_repack makes of a table, repack.table_OID, whose
 *		file it exchanges for the table's, has the access method of the table.
 *		Not asserted: the names are the only link of the two tables;
 *		t/093_heap_tools runs the tools.
 *
 * guard/heap_callers.c refuses heap's functions that reach a zheap table
 * nevertheless. Locks: none. Crash points: none.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "common/zundo.h"
#include "guard/heap_readers.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/*
 * Returns whether am is the access method zheap. NULL stands for the default.
 */
static bool
names_zheap(const char *am)
{
	return strcmp(am ? am : default_table_access_method, "zheap") == 0;
}

/* zaccess_method_for_script: See heap_readers.h. */
int
zaccess_method_for_script(Node *command)
{
	int			level;

	if (!(IsA(command, CreateExtensionStmt) || IsA(command, AlterExtensionStmt)) ||
		!names_zheap(NULL))
		return 0;
	level = NewGUCNestLevel();
	(void) set_config_option("default_table_access_method", "heap", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	return level;
}

/* zaccess_method_name: See heap_readers.h. */
char *
zaccess_method_name(Oid reloid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(reloid));
	char	   *am;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	am = get_am_name(((Form_pg_class) GETSTRUCT(tuple))->relam);
	ReleaseSysCache(tuple);
	return am;
}

/*
 * Raises ERRCODE_FEATURE_NOT_SUPPORTED if the table to be changed to zheap
 * belongs to an extension (HEAP-3). The script of an extension decides on its
 * own tables; pg_upgrade repeats what was decided before.
 */
static void
check_extension(Oid reloid)
{
	Oid			extension = InvalidOid;

	if (OidIsValid(reloid) && !creating_extension && !IsBinaryUpgrade)
		extension = getExtensionOfObject(RelationRelationId, reloid);
	if (OidIsValid(extension))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" of extension \"%s\" cannot be changed to access method "
						"\"zheap\"",
						get_rel_name(reloid), get_extension_name(extension)),
				 errdetail("C code of the extension may write to the table with heap "
						   "functions, which would corrupt it."),
				 errhint("If the extension uses only SQL, remove the table from it with "
						 "ALTER EXTENSION ... DROP TABLE before the change.")));
}

/* zaccess_method_check: See heap_readers.h. */
void
zaccess_method_check(Node *command)
{
	AlterTableStmt *stmt = (AlterTableStmt *) command;
	ListCell   *lc;

	if (!IsA(command, AlterTableStmt))
		return;
	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_SetAccessMethod && names_zheap(cmd->name))
			check_extension(RangeVarGetRelid(stmt->relation, NoLock, true));
	}
}

/*
 * Returns the OID of the table that the name repack.table_OID stands for, or
 * InvalidOid for any other name.
 */
static Oid
repacked_table(const RangeVar *name)
{
	static const char prefix[] = "table_";
	char	   *end;
	unsigned long oid;

	if (name->schemaname == NULL || strcmp(name->schemaname, "repack") != 0 ||
		strncmp(name->relname, prefix, sizeof(prefix) - 1) != 0)
		return InvalidOid;
	oid = strtoul(name->relname + sizeof(prefix) - 1, &end, 10);
	return *end == '\0' && oid <= OID_MAX ? (Oid) oid : InvalidOid;
}

/*
 * Returns the place where the command that creates a table has the table's
 * name (*name) and its access method, which may be NULL. Returns NULL for any
 * other command.
 */
static char **
access_method_named(Node *command, RangeVar **name)
{
	if (IsA(command, CreateTableAsStmt))
	{
		IntoClause *into = ((CreateTableAsStmt *) command)->into;

		*name = into->rel;
		return &into->accessMethod;
	}
	if (IsA(command, CreateStmt))
	{
		*name = ((CreateStmt *) command)->relation;
		return &((CreateStmt *) command)->accessMethod;
	}
	return NULL;
}

/* zaccess_method_of_copy: See heap_readers.h. */
PlannedStmt *
zaccess_method_of_copy(PlannedStmt *pstmt)
{
	RangeVar   *name;
	char	  **named = access_method_named(pstmt->utilityStmt, &name);
	Oid			original;
	char	   *am;

	if (named == NULL || *named != NULL || name == NULL)
		return pstmt;
	original = repacked_table(name);
	am = OidIsValid(original) ? zaccess_method_name(original) : NULL;
	if (am == NULL)
		return pstmt;
	pstmt = copyObject(pstmt);
	*access_method_named(pstmt->utilityStmt, &name) = am;
	return pstmt;
}
