/*
 * test/heap_tools.c - does what extensions and tools do that expect a heap
 * table.
 *
 * The functions write to a table with the server's functions for catalogs,
 * insert into it or scan it with heap's own functions, and exchange the files
 * of two tables in pg_class. Others call single functions of the table access
 * method. For t/031_stalled_rollback.pl, t/084_space.pl,
 * t/092_swapped_files.pl, t/093_heap_tools.pl and t/094_duties.pl.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "common/compat.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(zundo_test_catalog_insert);
PG_FUNCTION_INFO_V1(zundo_test_heap_insert);
PG_FUNCTION_INFO_V1(zundo_test_heap_multi_insert);
PG_FUNCTION_INFO_V1(zundo_test_heap_scan);
PG_FUNCTION_INFO_V1(zundo_test_hold_extension);
PG_FUNCTION_INFO_V1(zundo_test_swap_files);
PG_FUNCTION_INFO_V1(zundo_test_table_insert);
PG_FUNCTION_INFO_V1(zundo_test_table_delete);
PG_FUNCTION_INFO_V1(zundo_test_table_lock);
PG_FUNCTION_INFO_V1(zundo_test_table_fetch);
PG_FUNCTION_INFO_V1(zundo_test_index_delete);

/* Returns a row (id, 'note') for a table with columns (int, text). */
static HeapTuple
one_row(Relation rel, int32 id)
{
	Datum		values[2] = {Int32GetDatum(id), CStringGetTextDatum("note")};
	bool		nulls[2] = {false, false};

	return heap_form_tuple(RelationGetDescr(rel), values, nulls);
}

/*
 * zundo_test_catalog_insert(table, id): inserts a row with the server's
 * function for catalogs, which some extensions use for their own tables.
 */
Datum
zundo_test_catalog_insert(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);

	CatalogTupleInsert(rel, one_row(rel, PG_GETARG_INT32(1)));
	table_close(rel, RowExclusiveLock);
	CommandCounterIncrement();
	PG_RETURN_VOID();
}

/*
 * zundo_test_hold_extension(table): holds the lock for extending the table
 * until the query is cancelled.
 */
Datum
zundo_test_hold_extension(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);

	LockRelationForExtension(rel, ExclusiveLock);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(10000);
	}
	PG_RETURN_VOID();
}

/*
 * zundo_test_heap_insert(table, id): inserts a row with heap's function, and
 * nothing into the table's indexes.
 */
Datum
zundo_test_heap_insert(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);

	heap_insert(rel, one_row(rel, PG_GETARG_INT32(1)), GetCurrentCommandId(true), 0, NULL);
	table_close(rel, RowExclusiveLock);
	PG_RETURN_VOID();
}

/*
 * zundo_test_heap_multi_insert(table, id): inserts a row with heap's function
 * for many rows, which tools use that copy tables.
 */
Datum
zundo_test_heap_multi_insert(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	BulkInsertState bistate = GetBulkInsertState();

	ExecStoreHeapTuple(one_row(rel, PG_GETARG_INT32(1)), slot, false);
	heap_multi_insert(rel, &slot, 1, GetCurrentCommandId(true), TABLE_INSERT_SKIP_FSM, bistate);
	FreeBulkInsertState(bistate);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, RowExclusiveLock);
	PG_RETURN_VOID();
}

/*
 * zundo_test_heap_scan(table): returns the number of rows that heap's own scan
 * finds.
 */
Datum
zundo_test_heap_scan(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	TableScanDesc scan = heap_beginscan(rel, GetActiveSnapshot(), 0, NULL, NULL,
										SO_TYPE_SEQSCAN | SO_ALLOW_PAGEMODE);
	TupleTableSlot *slot = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsBufferHeapTuple);
	int64		n = 0;

	while (heap_getnextslot(scan, ForwardScanDirection, slot))
		n++;
	ExecDropSingleTupleTableSlot(slot);
	heap_endscan(scan);
	table_close(rel, AccessShareLock);
	PG_RETURN_INT64(n);
}

/*
 * Sets file, tablespace, TOAST table and statistics in a relation's row of
 * pg_class to those of another relation.
 */
static void
swap_in(Relation catalog, HeapTuple to, const FormData_pg_class *from)
{
	Form_pg_class form = (Form_pg_class) GETSTRUCT(to);

	form->relfilenode = from->relfilenode;
	form->reltablespace = from->reltablespace;
	form->reltoastrelid = from->reltoastrelid;
	form->relfrozenxid = from->relfrozenxid;
	form->relminmxid = from->relminmxid;
	form->relpages = from->relpages;
	form->reltuples = from->reltuples;
	CatalogTupleUpdate(catalog, &to->t_self, to);
}

/*
 * zundo_test_swap_files(a, b): exchanges the files of two tables or two
 * indexes as pg_repack and pg_squeeze do, by changing only the catalog.
 * Neither may have a TOAST table.
 */
Datum
zundo_test_swap_files(PG_FUNCTION_ARGS)
{
	Oid			oids[2] = {PG_GETARG_OID(0), PG_GETARG_OID(1)};
	Relation	catalog = table_open(RelationRelationId, RowExclusiveLock);
	HeapTuple	tuples[2];
	FormData_pg_class forms[2];

	for (int i = 0; i < 2; i++)
	{
		LockRelationOid(oids[i], AccessExclusiveLock);
		tuples[i] = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(oids[i]));
		if (!HeapTupleIsValid(tuples[i]))
			elog(ERROR, "cache lookup failed for relation %u", oids[i]);
		memcpy(&forms[i], GETSTRUCT(tuples[i]), sizeof(FormData_pg_class));
		if (OidIsValid(forms[i].reltoastrelid))
			elog(ERROR, "relation %u has a TOAST table", oids[i]);
	}
	swap_in(catalog, tuples[0], &forms[1]);
	swap_in(catalog, tuples[1], &forms[0]);
	table_close(catalog, RowExclusiveLock);
	CommandCounterIncrement();
	PG_RETURN_VOID();
}

/*
 * zundo_test_table_insert(table, id, options): inserts a row, and returns its
 * TID.
 */
Datum
zundo_test_table_insert(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	ItemPointer tid = palloc(sizeof(ItemPointerData));

	ExecForceStoreHeapTuple(one_row(rel, PG_GETARG_INT32(1)), slot, false);
	table_tuple_insert(rel, slot, GetCurrentCommandId(true), PG_GETARG_INT32(2), NULL);
	*tid = slot->tts_tid;
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, RowExclusiveLock);
	PG_RETURN_POINTER(tid);
}

/*
 * zundo_test_table_delete(table, tid, wait): deletes a row, and returns the
 * TM_Result.
 */
Datum
zundo_test_table_delete(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	TM_FailureData tmfd;
	TM_Result	result;

	result = zc_tuple_delete(rel, (ItemPointer) PG_GETARG_POINTER(1), GetCurrentCommandId(true),
							 GetActiveSnapshot(), PG_GETARG_BOOL(2), &tmfd);
	table_close(rel, RowExclusiveLock);
	PG_RETURN_INT32(result);
}

/*
 * zundo_test_table_lock(table, tid, mode, policy, flags, earlier): locks a row
 * for the command whose number is less by `earlier`, and returns the TM_Result.
 */
Datum
zundo_test_table_lock(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TM_FailureData tmfd;
	TM_Result	result;

	result = table_tuple_lock(rel, (ItemPointer) PG_GETARG_POINTER(1), GetActiveSnapshot(), slot,
							  GetCurrentCommandId(false) - PG_GETARG_INT32(5), PG_GETARG_INT32(2),
							  PG_GETARG_INT32(3), PG_GETARG_INT32(4), &tmfd);
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, RowShareLock);
	PG_RETURN_INT32(result);
}

/*
 * zundo_test_table_fetch(table, tid): returns the second column of the row
 * that SnapshotSelf sees at tid, or null if it sees none.
 */
Datum
zundo_test_table_fetch(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	bool		isnull = true;
	text	   *note = NULL;

	if (table_tuple_fetch_row_version(rel, (ItemPointer) PG_GETARG_POINTER(1), SnapshotSelf, slot))
	{
		Datum		value = slot_getattr(slot, 2, &isnull);

		note = isnull ? NULL : DatumGetTextPCopy(value);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	if (isnull)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(note);
}

/*
 * zundo_test_index_delete(table, index, tid): returns whether the table
 * reports that the index entry of this row can be deleted.
 */
Datum
zundo_test_index_delete(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	Relation	index = index_open(PG_GETARG_OID(1), RowExclusiveLock);
	TM_IndexDelete entry = {.tid = *(ItemPointer) PG_GETARG_POINTER(2),.id = 0};
	TM_IndexStatus status = {.idxoffnum = FirstOffsetNumber,.promising = true,.freespace = 100};
	TM_IndexDeleteOp op = {
		.irel = index,.iblknum = 1,.bottomup = true,.bottomupfreespace = 1000,
		.ndeltids = 1,.deltids = &entry,.status = &status
	};

	(void) table_index_delete_tuples(rel, &op);
	index_close(index, RowExclusiveLock);
	table_close(rel, RowExclusiveLock);
	PG_RETURN_BOOL(status.knowndeletable);
}
