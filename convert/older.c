/*
 * convert/older.c - snapshots that are older than the conversion of a table,
 * by zundo.convert or by an ALTER TABLE that rewrites it to or from zheap.
 *
 *	CONVERT-3	a snapshot that does not see the transaction which exchanged
 *		the files of a table never reads the table: its rows were written to
 *		the new file by transactions that the snapshot does not see either, so
 *		it would find none. The exchange inserts a row into zundo.converted and
 *		changes the table's row of pg_class, so a snapshot that sees the author
 *		of the latter, perhaps of a later change, but not itself, needs no look
 *		at the former. Both are rows of heap tables, and so on standbys and
 *		after a crash what they are on the primary.
 *
 * Shared memory has the newest transaction that may have exchanged files, so
 * that most queries need neither look. It begins with the last one before the
 * server's start: transactions that had been prepared then may commit later.
 *
 * Locks: AccessShareLock on zundo.converted to read, RowExclusiveLock to write.
 * Crash points: none.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "common/zundo.h"
#include "convert/convert.h"
#include "convert/convert_internal.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "undo/undo.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/*
 * The newest transaction that may have exchanged files, a FullTransactionId; 0
 * until it is looked at for the first time.
 */
static pg_atomic_uint64 *newest;

Size
zconvert_shmem_size(void)
{
	return sizeof(pg_atomic_uint64);
}

void
zconvert_shmem_startup(void)
{
	bool		found;

	newest = ShmemInitStruct("zundo conversions", zconvert_shmem_size(), &found);
	if (!found)
		pg_atomic_init_u64(newest, 0);
}

/* Notes the current transaction in shared memory. */
static void
note_newest(void)
{
	uint64		xid = U64FromFullTransactionId(GetTopFullTransactionId());
	uint64		old = pg_atomic_read_u64(newest);

	while (old < xid && !pg_atomic_compare_exchange_u64(newest, &old, xid))
		;
}

/*
 * Returns the newest transaction that may have exchanged files. Not for use in
 * recovery.
 */
static uint64
read_newest(void)
{
	uint64		xid = pg_atomic_read_u64(newest);
	FullTransactionId last;

	if (xid != 0)
		return xid;
	last = ReadNextFullTransactionId();
	FullTransactionIdRetreat(&last);
	/* unless another process has been faster: then xid is what it wrote */
	if (pg_atomic_compare_exchange_u64(newest, &xid, U64FromFullTransactionId(last)))
		xid = U64FromFullTransactionId(last);
	return xid;
}

/*
 * Returns whether a table may have been converted after the snapshot was taken.
 * The lock of that table, which we hold, was released after its conversion had
 * been noted.
 */
static bool
may_be_older(Snapshot snapshot)
{
	if (snapshot->snapshot_type != SNAPSHOT_MVCC)
		return false;
	if (snapshot->takenDuringRecovery)
		return true;
	return !TransactionIdPrecedes((TransactionId) read_newest(), snapshot->xmin);
}

/* zconvert_schema: See convert_internal.h. */
Oid
zconvert_schema(void)
{
	return get_namespace_oid("zundo", false);
}

/*
 * Returns whether the relation is the extension's list of converted tables. In
 * a database without the extension anybody may have made a schema and a
 * relation of these names.
 */
static bool
is_converted(Oid reloid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(reloid));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relkind == RELKIND_MATVIEW &&
		((Form_pg_class) GETSTRUCT(tuple))->relam == HEAP_TABLE_AM_OID;
	ReleaseSysCache(tuple);
	return result && zu_is_of_extension(RelationRelationId, reloid);
}

static bool
names_converted(const RangeVar *rv)
{
	return rv != NULL && strcmp(rv->relname, "converted") == 0 &&
		is_converted(RangeVarGetRelid(rv, NoLock, true));
}

/*
 * zconvert_check_command: See convert.h. Commands that rewrite the list but
 * keep its rows, and their authors, are allowed.
 */
void
zconvert_check_command(Node *command)
{
	const RangeVar *rv = NULL;
	const char *what = NULL;

	if (IsA(command, RefreshMatViewStmt))
	{
		rv = ((RefreshMatViewStmt *) command)->relation;
		what = "refreshed";
	}
	else if (IsA(command, RenameStmt))
	{
		rv = ((RenameStmt *) command)->relation;
		what = "renamed";
	}
	else if (IsA(command, AlterObjectSchemaStmt))
	{
		rv = ((AlterObjectSchemaStmt *) command)->relation;
		what = "moved to another schema";
	}
	else if (IsA(command, AlterExtensionContentsStmt) &&
			 ((AlterExtensionContentsStmt *) command)->action < 0 &&
			 (((AlterExtensionContentsStmt *) command)->objtype == OBJECT_TABLE ||
			  ((AlterExtensionContentsStmt *) command)->objtype == OBJECT_MATVIEW))
	{
		Node	   *object = ((AlterExtensionContentsStmt *) command)->object;

		rv = makeRangeVarFromNameList(castNode(List, object));
		what = "taken out of its extension";
	}
	if (!creating_extension && !IsBinaryUpgrade && names_converted(rv))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("\"zundo.converted\" cannot be %s", what),
				 errdetail("It says which tables older snapshots must not read.")));
}

/* Opens the list of converted tables, or returns NULL if there is none. */
static Relation
open_converted(LOCKMODE lockmode)
{
	Oid			schema = get_namespace_oid("zundo", true);
	Oid			reloid = OidIsValid(schema) ? get_relname_relid("converted", schema) : InvalidOid;

	return OidIsValid(reloid) && is_converted(reloid) ? table_open(reloid, lockmode) : NULL;
}

/*
 * Begins a scan of the table's rows in the list that are committed or our own.
 * An MVCC snapshot would make it a read that SERIALIZABLE keeps track of, and
 * find conflicts between commands that have none.
 */
static SysScanDesc
scan_converted(Relation converted, Oid table)
{
	ScanKeyData key;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(table));
	return systable_beginscan(converted, InvalidOid, false, SnapshotSelf, 1, &key);
}

/*
 * zconvert_note_exchange: See convert_internal.h. The row is not decoded. Rows
 * of former conversions stay: their deletion would be decoded.
 */
void
zconvert_note_exchange(Oid table)
{
	Relation	converted = open_converted(RowExclusiveLock);
	Datum		value = ObjectIdGetDatum(table);
	bool		null = false;
	HeapTuple	tuple;

	if (converted == NULL)
		return;
	tuple = heap_form_tuple(RelationGetDescr(converted), &value, &null);
	heap_insert(converted, tuple, GetCurrentCommandId(true), HEAP_INSERT_NO_LOGICAL, NULL);
	heap_freetuple(tuple);
	table_close(converted, NoLock);
	note_newest();
}

/*
 * Returns whether the snapshot does not see what transaction xid has written.
 */
static bool
is_newer(TransactionId xid, Snapshot snapshot)
{
	return !TransactionIdPrecedes(xid, snapshot->xmin) &&
		!TransactionIdIsCurrentTransactionId(xid) && XidInMVCCSnapshot(xid, snapshot);
}

/*
 * Returns whether the table's row of pg_class is newer than the snapshot. One
 * that our own transaction has written may replace a newer one.
 */
static bool
was_changed(Oid table, Snapshot snapshot)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	TransactionId xmin;

	if (!HeapTupleIsValid(tuple))
		return false;
	xmin = HeapTupleHeaderGetXmin(tuple->t_data);
	ReleaseSysCache(tuple);
	return TransactionIdIsCurrentTransactionId(xmin) || is_newer(xmin, snapshot);
}

/* Returns whether the list says that the table's file is newer, too. */
static bool
was_converted(Oid table, Snapshot snapshot)
{
	Relation	converted = open_converted(AccessShareLock);
	SysScanDesc scan;
	HeapTuple	tuple;
	bool		result = false;

	if (converted == NULL)
		return false;
	scan = scan_converted(converted, table);
	while (!result && HeapTupleIsValid(tuple = systable_getnext(scan)))
		result = is_newer(HeapTupleHeaderGetXmin(tuple->t_data), snapshot);
	systable_endscan(scan);
	table_close(converted, AccessShareLock);
	return result;
}

static void
check_table(Oid table, Snapshot snapshot)
{
	if (was_changed(table, snapshot) && was_converted(table, snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("could not serialize access because table \"%s\" was rewritten after the "
						"snapshot was taken",
						get_rel_name(table)),
				 errhint("The transaction might succeed if retried.")));
}

/*
 * zconvert_check_query: See convert.h. A parallel worker checks, too: functions
 * that it executes read tables which its leader has not checked.
 */
void
zconvert_check_query(QueryDesc *query, int eflags)
{
	Snapshot	snapshot = query->snapshot;
	ListCell   *lc;

	if (snapshot == NULL || !may_be_older(snapshot) ||
		(eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	foreach(lc, query->plannedstmt->rtable)
	{
		RangeTblEntry *entry = lfirst_node(RangeTblEntry, lc);

		if (entry->rtekind == RTE_RELATION)
			check_table(entry->relid, snapshot);
	}
}

/*
 * zconvert_check_copy: See convert.h. COPY of a partitioned table, which 19
 * has, reads the partitions.
 */
void
zconvert_check_copy(const Node *command)
{
	const CopyStmt *stmt = (const CopyStmt *) command;
	List	   *tables;
	ListCell   *lc;
	Oid			table;

	if (!IsA(command, CopyStmt) || stmt->is_from || stmt->relation == NULL || !ActiveSnapshotSet())
		return;
	table = RangeVarGetRelid(stmt->relation, AccessShareLock, true);
	if (!OidIsValid(table) || !may_be_older(GetActiveSnapshot()))
		return;
	if (get_rel_relkind(table) == RELKIND_PARTITIONED_TABLE)
		tables = find_all_inheritors(table, AccessShareLock, NULL);
	else
		tables = list_make1_oid(table);
	foreach(lc, tables)
		check_table(lfirst_oid(lc), GetActiveSnapshot());
}

/* ---- ALTER TABLE ---- */

/* Returns whether the access method of the table is zheap. */
static bool
is_zheap(Oid table)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relam == get_table_am_oid("zheap", true);
	ReleaseSysCache(tuple);
	return result;
}

/*
 * zconvert_on_access: See convert.h. The server calls the hook when a rewritten
 * table and the new one, whose relrewrite names it, have exchanged files, and
 * shows the catalog as it was before.
 */
void
zconvert_on_access(ObjectAccessType access, Oid class, Oid object, int part)
{
	HeapTuple	tuple;
	Form_pg_class form;

	if (access != OAT_POST_ALTER || class != RelationRelationId || part != 0)
		return;
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(object));
	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_class) GETSTRUCT(tuple);
	if (OidIsValid(form->relrewrite) && form->relkind == RELKIND_RELATION &&
		form->relpersistence != RELPERSISTENCE_TEMP &&
		(is_zheap(object) || is_zheap(form->relrewrite)))
		zconvert_note_exchange(form->relrewrite);
	ReleaseSysCache(tuple);
}
