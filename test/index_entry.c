/*
 * test/index_entry.c - makes wrong index entries and removes needed ones, for
 * t/085_index_entries.pl and t/086_check_index.pl.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "common/compat.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(zundo_test_add_entry);
PG_FUNCTION_INFO_V1(zundo_test_drop_entry);

/*
 * zundo_test_add_entry(table, index, source, target): adds an entry with the
 * key of the row at TID source and with TID target.
 */
Datum
zundo_test_add_entry(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	Relation	index = index_open(PG_GETARG_OID(1), RowExclusiveLock);
	IndexInfo  *info = BuildIndexInfo(index);
	EState	   *estate = CreateExecutorState();
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	if (!table_tuple_fetch_row_version(rel, (ItemPointer) PG_GETARG_POINTER(2),
									   GetActiveSnapshot(), slot))
		elog(ERROR, "no such row");
	GetPerTupleExprContext(estate)->ecxt_scantuple = slot;
	FormIndexDatum(info, slot, estate, values, isnull);
	(void) index_insert(index, values, isnull, (ItemPointer) PG_GETARG_POINTER(3), rel,
						UNIQUE_CHECK_NO, false, info);
	FreeExecutorState(estate);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, NoLock);
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/*
 * zundo_test_drop_entry(index, block, item): removes an item of a page of the
 * index, whether or not it is needed. Writes no WAL.
 */
Datum
zundo_test_drop_entry(PG_FUNCTION_ARGS)
{
	Relation	index = index_open(PG_GETARG_OID(0), RowExclusiveLock);
	Buffer		buf = ReadBuffer(index, (BlockNumber) PG_GETARG_INT64(1));

	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	PageIndexTupleDelete(BufferGetPage(buf), (OffsetNumber) PG_GETARG_INT32(2));
	MarkBufferDirty(buf);
	UnlockReleaseBuffer(buf);
	index_close(index, NoLock);
	PG_RETURN_VOID();
}
