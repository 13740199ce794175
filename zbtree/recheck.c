/*
 * zbtree/recheck.c - scans of a zbtree index, and the check that a row version
 * has the key of the entry that led to it (ZBTREE-4).
 *
 * nbtree's code does the scans. When it returns a TID, zbtree_gettuple stores
 * the TID's entry in the state of the table's index fetch. The fetch calls
 * zbtree_counts with the version that the snapshot sees. A bitmap contains TIDs
 * without entries; for bitmap scans the executor checks the scan's conditions
 * again instead.
 *
 * Locks: nbtree's. No crash points.
 */
#include "postgres.h"

#include "access/genam.h"
#include "common/compat_nbtree.h"
#include "common/zundo.h"
#include "nodes/tidbitmap.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

/*
 * zbtree_counts: See zbtree.h. Compares only columns that an update in place
 * may change: plain columns whose value is not stored out of line. Compares
 * bytes first, which is faster than calling a comparison function.
 */
bool
zbtree_counts(Relation index, IndexTuple entry, TupleTableSlot *slot)
{
	TupleDesc	desc = RelationGetDescr(index);
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);

	for (int i = 0; i < nkeys; i++)
	{
		AttrNumber	attno = index->rd_index->indkey.values[i];
		ZcAttr		att = zc_attr(desc, i);
		Datum		has,
					expected;
		bool		has_null,
					expected_null;

		if (attno == InvalidAttrNumber)
			continue;
		expected = index_getattr(entry, i + 1, desc, &expected_null);
		has = slot_getattr(slot, attno, &has_null);
		if (has_null != expected_null)
			return false;
		if (has_null || datumIsEqual(has, expected, att->attbyval, att->attlen))
			continue;
		if (att->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(has)))
			continue;
		if (DatumGetInt32(FunctionCall2Coll(index_getprocinfo(index, i + 1, BTORDER_PROC),
											index->rd_indcollation[i], has, expected)) != 0)
			return false;
	}
	return true;
}

/*
 * Starts or restarts the scan as nbtree does. nbtree copies the entries of a
 * leaf page only if the scan is index-only, so xs_want_itup is set during its
 * call. Whether the scan keeps its leaf pages pinned is then decided anew from
 * what the executor asked for.
 */
void
zbtree_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys, int norderbys)
{
	bool		want = scan->xs_want_itup;

	if (scan->xs_heapfetch != NULL)
		scan->xs_want_itup = true;
	btrescan(scan, keys, nkeys, orderbys, norderbys);
	scan->xs_want_itup = want;
	zc_bt_choose_pins((BTScanOpaque) scan->opaque, scan);
}

/*
 * Returns nbtree's next TID in scan->xs_heaptid, and its entry in the state of
 * the table's index fetch. Raises an error if the scan has no such state.
 */
bool
zbtree_gettuple(IndexScanDesc scan, ScanDirection dir)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	ZExpectingFetch *fetch = (ZExpectingFetch *) scan->xs_heapfetch;

	if (!btgettuple(scan, dir))
		return false;
	if (fetch == NULL || so->currTuples == NULL)
		elog(ERROR, "scan of index \"%s\" has no table to check its entries with",
			 RelationGetRelationName(scan->indexRelation));
	fetch->index = scan->indexRelation;
	fetch->entry = (IndexTuple) (so->currTuples +
								 so->currPos.items[so->currPos.itemIndex].tupleOffset);
	/* xs_itup is the entry, unless the fetch replaces it */
	fetch->returning = scan->xs_want_itup ? scan : NULL;
	scan->xs_hitup = NULL;
	return true;
}

/*
 * Adds the TIDs of all matching entries to the bitmap, each with the mark that
 * the executor must check the scan's conditions. Returns their number. nbtree's
 * own function would add them without that mark.
 */
int64
zbtree_getbitmap(
				 IndexScanDesc scan, TIDBitmap *tbm)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	int64		n = 0;

	if (!zc_bt_begin_arrays(so, scan))
		return 0;
	do
	{
		bool		more = _bt_first(scan, ForwardScanDirection);

		while (more)
		{
			tbm_add_tuples(tbm, &so->currPos.items[so->currPos.itemIndex].heapTid, 1, true);
			n++;
			if (so->currPos.itemIndex < so->currPos.lastItem)
				so->currPos.itemIndex++;
			else
				more = _bt_next(scan, ForwardScanDirection);
		}
	} while (so->numArrayKeys != 0 && zc_bt_next_arrays(so, scan));
	return n;
}
