/*
 * guard/drop_guard.c - keeps DROP EXTENSION zundo CASCADE from dropping
 * rows.
 *
 * Called by the ProcessUtility hook in hooks.c. If the user may drop the
 * extension at all, locks the undo log and every zheap table as the command
 * itself would do next, and raises an error if one of them holds rows, unless
 * zundo.drop_rows_with_extension is on. Does the same for DROP OWNED ...
 * CASCADE of a role that owns the extension. CASCADE of any other object that
 * reaches the extension is refused: by then the tables have been dropped, and
 * nobody knows whether they held rows.
 *
 * Locks: AccessExclusiveLock on zundo.undo_log, then on the zheap tables, to
 * the end of the transaction. Crash points: none.
 *
 *	HEAP-6	no row of a zheap table is dropped together with the extension
 *		unless the setting says so. (Other sessions' temporary tables are not
 *		looked at.) Not asserted: the server drops what depends on the
 *		extension later, without another call; t/093_heap_tools drops
 *		extensions.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "common/compat_commands.h"
#include "common/zundo.h"
#include "guard/heap_readers.h"
#include "guard/ztables.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "undo/undo.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Returns whether the table, which is locked, holds a row now. */
static bool
has_rows(Relation rel)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = zc_beginscan(rel, snapshot);
	bool		found = table_scan_getnextslot(scan, ForwardScanDirection, slot);

	Assert(CheckRelationLockedByMe(rel, AccessExclusiveLock, false));
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return found;
}

/*
 * Locks zundo.undo_log, if it exists (AccessExclusiveLock). A transaction that
 * gives a table the access method zheap holds AccessShareLock on the undo log
 * until it ends. So on return the catalog shows all zheap tables, and there
 * will be no other one before our transaction ends.
 */
static void
lock_undo_log(void)
{
	Oid			reloid = zu_find_relation();

	if (OidIsValid(reloid))
		LockRelationOid(reloid, AccessExclusiveLock);
}

/*
 * Locks all zheap tables and the undo log (AccessExclusiveLock). Raises an
 * error if one of the tables holds rows. The undo log comes after the tables
 * that exist, because a transaction that has read one of them may need it to
 * write. Then the list is complete.
 */
static void
check_rows(void)
{
	ListCell   *lc;

	foreach(lc, ztables_list(false))
		LockRelationOid(lfirst_oid(lc), AccessExclusiveLock);
	lock_undo_log();
	foreach(lc, ztables_list(false))
	{
		Relation	rel = try_relation_open(lfirst_oid(lc), AccessExclusiveLock);

		if (rel == NULL)
			continue;
		if (has_rows(rel))
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("cannot drop extension zundo because zheap table \"%s\" contains rows",
							RelationGetRelationName(rel)),
					 errdetail("CASCADE would drop all zheap tables of this database."),
					 errhint("Change their access method with ALTER TABLE ... SET ACCESS METHOD, "
							 "drop them, "
							 "or set \"zundo.drop_rows_with_extension\" to \"on\".")));
		relation_close(rel, NoLock);
	}
}

/*
 * Returns the role that owns the extension, or InvalidOid if the extension
 * does not exist.
 */
static Oid
extension_owner(Oid extension)
{
	Relation	catalog = table_open(ExtensionRelationId, AccessShareLock);
	TableScanDesc scan = table_beginscan_catalog(catalog, 0, NULL);
	Oid			owner = InvalidOid;
	HeapTuple	tuple;

	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_extension form = (Form_pg_extension) GETSTRUCT(tuple);

		if (form->oid == extension)
			owner = form->extowner;
	}
	table_endscan(scan);
	table_close(catalog, AccessShareLock);
	return owner;
}

/*
 * Returns whether the command drops the extension because it names it, or its
 * owner.
 */
static bool
names_extension(Node *node, Oid zundo)
{
	ListCell   *lc;

	if (IsA(node, DropStmt))
	{
		DropStmt   *drop = (DropStmt *) node;

		if (drop->removeType != OBJECT_EXTENSION)
			return false;
		foreach(lc, drop->objects)
		{
			if (strcmp(strVal(lfirst(lc)), "zundo") == 0)
				return true;
		}
	}
	else if (IsA(node, DropOwnedStmt))
	{
		DropOwnedStmt *drop = (DropOwnedStmt *) node;

		foreach(lc, drop->roles)
		{
			if (get_rolespec_oid(lfirst_node(RoleSpec, lc), false) == extension_owner(zundo))
				return true;
		}
	}
	return false;
}

/* Returns whether the command drops what depends on its objects. */
static bool
cascades(Node *node)
{
	ListCell   *lc;

	if (IsA(node, DropStmt))
		return ((DropStmt *) node)->behavior == DROP_CASCADE;
	if (IsA(node, DropOwnedStmt))
		return ((DropOwnedStmt *) node)->behavior == DROP_CASCADE;
	if (IsA(node, AlterTableStmt))
	{
		foreach(lc, ((AlterTableStmt *) node)->cmds)
		{
			if (lfirst_node(AlterTableCmd, lc)->behavior == DROP_CASCADE)
				return true;
		}
	}
	return false;
}

/* zdrop_guard_check: See heap_readers.h. */
void
zdrop_guard_check(Node *command)
{
	Oid			zundo;

	if (zundo_drop_rows_with_extension || !cascades(command))
		return;
	zundo = get_extension_oid("zundo", true);
	if (OidIsValid(zundo) && names_extension(command, zundo) &&
		zc_owns_extension(zundo, GetUserId()))
		check_rows();
}

/*
 * zdrop_guard_on_access: See heap_readers.h. What depends on the extension has
 * been dropped before, and comes back when the command is rolled back.
 */
void
zdrop_guard_on_access(ObjectAccessType access, Oid class, Oid object)
{
	if (access == OAT_DROP && class == ExtensionRelationId &&
		object == get_extension_oid("zundo", true))
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop extension zundo by CASCADE from another object"),
				 errdetail("CASCADE would drop all zheap tables of this database."),
				 errhint("Drop the extension first, or set \"zundo.drop_rows_with_extension\" "
						 "to \"on\".")));
}

/* zdrop_guard_is_needed: See heap_readers.h. */
bool
zdrop_guard_is_needed(Node *command)
{
	Oid			zundo;

	if (zundo_drop_rows_with_extension || !cascades(command))
		return false;
	zundo = get_extension_oid("zundo", true);
	return OidIsValid(zundo) && !names_extension(command, zundo);
}
