/*
 * zbtree/recheck.c - scans of a zbtree index, whose entries count only for
 * versions that have their key (ZBTREE-4).
 *
 * The scans are nbtree's. Before a TID is returned, the entry that it was found
 * in is left with the table's index fetch, which asks zbtree_counts about the
 * version that it has found. A bitmap forgets entries, so the executor is
 * asked to check its conditions again.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "common/zundo.h"
#include "nodes/tidbitmap.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

/*
 * Compares only what an update in place may change: plain columns that are not
 * stored out of line. Bytes are compared first, since calling a comparison
 * function takes longer.
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
 * Begins the scan anew as nbtree does. nbtree keeps copies of the entries for
 * index-only scans only, so it is asked for these; otherwise the scan is what
 * the executor wants, in particular as to pins.
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
	return true;
}

int64
zbtree_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
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
