/*
 * test/any_fetch.c - reads rows with SnapshotAny, as triggers and extensions
 * do: fetches by TID, and scans of an index. For t/077_unclear_fetch.pl.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "common/compat.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "storage/itemptr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(zundo_test_fetch_any);
PG_FUNCTION_INFO_V1(zundo_test_scan_any);

/*
 * zundo_test_fetch_any(table, tid): returns the row's first column, or null if
 * no row is found.
 */
Datum
zundo_test_fetch_any(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	char	   *text = NULL;

	if (table_tuple_fetch_row_version(rel, (ItemPointer) PG_GETARG_POINTER(1), SnapshotAny, slot))
	{
		Oid			output;
		bool		is_varlena;
		bool		isnull;
		Datum		value = slot_getattr(slot, 1, &isnull);

		getTypeOutputInfo(TupleDescAttr(RelationGetDescr(rel), 0)->atttypid, &output, &is_varlena);
		text = isnull ? NULL : OidOutputFunctionCall(output, value);
	}
	ExecDropSingleTupleTableSlot(slot);
	table_close(rel, AccessShareLock);
	if (text == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(text));
}

/*
 * zundo_test_scan_any(table, index): returns the number of rows that a scan of
 * the index finds.
 */
Datum
zundo_test_scan_any(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), AccessShareLock);
	Relation	index = index_open(PG_GETARG_OID(1), AccessShareLock);
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	IndexScanDesc scan = zc_index_beginscan(rel, index, SnapshotAny);
	int64		n = 0;

	index_rescan(scan, NULL, 0, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
		n++;
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	index_close(index, AccessShareLock);
	table_close(rel, AccessShareLock);
	PG_RETURN_INT64(n);
}
