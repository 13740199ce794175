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
 *
 *	ZBTREE-23	(unchanged) The fetch compares nothing if the snapshot is an
 *		MVCC one and sees the row as it is on its page, the row lacks
 *		ZH_STALE_KEYS, and the page's LSN is not above the position up to which
 *		WAL was written before the scan read its first entry. The page has not
 *		changed since then, so the row lacked the flag when the scan read the
 *		entry, which therefore has the row's bytes (ZBTREE-7).
 *		(a) Without the LSN this would be wrong: the scan has a copy of the
 *			entry, and VACUUM may have deleted the entry since, and then have
 *			taken the flag off. A record that was written by then was inserted
 *			earlier, with its page and those of the records before it changed;
 *			any other one gives its page a higher LSN.
 *		(b) Not for unlogged and temporary tables, nor for one that is created
 *			without WAL, whose LSNs say nothing of that; nor during recovery.
 *		(c) The position is read once for a scan, which can return to a mark,
 *			and to entries that it read long ago.
 *		Example: a scan begins at 0/5000. Pages with an LSN up to that need no
 *		comparison; a page that somebody has changed since does.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/xlog.h"
#include "common/compat_nbtree.h"
#include "common/zundo.h"
#include "nodes/tidbitmap.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "zbtree/bound.h"
#include "zbtree/predicate.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

/* An estimate of the planner looks at no more entries (is_estimate). */
#define ESTIMATE_TRIES 1000

/*
 * zbtree_counts: See zbtree.h. Compares only columns that an update in place
 * may change: plain columns whose value is not stored out of line. Compares
 * bytes first, which is faster than calling a comparison function. A predicate
 * that is not simple holds for all versions of the TID or for none (ZBTREE-3).
 */
bool
zbtree_counts(Relation index, IndexTuple entry, TupleTableSlot *slot)
{
	TupleDesc	desc = RelationGetDescr(index);
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	ZPredicate *predicate;

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
		if (has_null || (att->attbyval ? has == expected :
						 datumIsEqual(has, expected, false, att->attlen)))
			continue;
		if (att->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(has)))
			continue;
		if (DatumGetInt32(FunctionCall2Coll(index_getprocinfo(index, i + 1, BTORDER_PROC),
											index->rd_indcollation[i], has, expected)) != 0)
			return false;
	}
	if (!zpredicate_exists(index))
		return true;
	if (!zpredicate_find(index, &predicate))
		predicate = zpredicate_get(index);
	return zpredicate_holds(predicate, slot);
}

/*
 * zbtree_rescan: See zbtree_internal.h. Starts or restarts the scan as nbtree
 * does. nbtree copies the entries of a leaf page only if the scan is
 * index-only, so xs_want_itup is set during its call. Whether the scan keeps
 * its leaf pages pinned is then decided anew from what the executor asked for.
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
 * Returns whether the planner looks for the first or last value of the index
 * (get_actual_variable_endpoint), which needs no exact answer.
 */
static bool
is_estimate(IndexScanDesc scan)
{
	Snapshot	snapshot = scan->xs_snapshot;

	return snapshot != InvalidSnapshot && snapshot->snapshot_type == SNAPSHOT_NON_VACUUMABLE;
}

/*
 * Sets whether nbtree skips entries that are marked as dead on the leaf pages
 * that it reads from now on (MARK-3). Returns whether the caller must call
 * zbound_leave after it has read them. In indexes of temporary tables, nbtree
 * alone sets marks, for rows that are dead to all, so each scan may skip them.
 */
static bool
begin_reading(IndexScanDesc scan)
{
	bool		entered = false;
	Snapshot	snapshot = scan->xs_snapshot;

	if (RelationUsesLocalBuffers(scan->indexRelation))
		return false;
	if (scan->xactStartedInRecovery || snapshot == InvalidSnapshot)
		scan->ignore_killed_tuples = false;
	else if (IsMVCCSnapshot(snapshot))
		scan->ignore_killed_tuples = zbound_enter(snapshot, &entered);
	else
		scan->ignore_killed_tuples = snapshot->snapshot_type == SNAPSHOT_SELF ||
			snapshot->snapshot_type == SNAPSHOT_DIRTY || is_estimate(scan);
	return entered;
}

/*
 * Returns whether btgettuple will read another leaf page to find the next entry
 * in this direction. True if the scan has not begun.
 */
static bool
must_read(BTScanOpaque so, ScanDirection dir)
{
	if (!BTScanPosIsValid(so->currPos))
		return true;
	return ScanDirectionIsForward(dir) ? so->currPos.itemIndex >= so->currPos.lastItem
		: so->currPos.itemIndex <= so->currPos.firstItem;
}

/*
 * Returns a position in WAL up to which all changes of the table's pages have
 * been made, so that a page which is changed after this gets a higher LSN. It
 * may be behind the end. Returns InvalidXLogRecPtr if the scan must not trust
 * LSNs (ZBTREE-23).
 */
static XLogRecPtr
end_of_wal(IndexScanDesc scan)
{
	if (scan->xactStartedInRecovery || scan->heapRelation == NULL ||
		scan->xs_snapshot == InvalidSnapshot || !IsMVCCSnapshot(scan->xs_snapshot) ||
		!RelationNeedsWAL(scan->heapRelation))
		return InvalidXLogRecPtr;
	return GetXLogWriteRecPtr();
}

/*
 * Calls nbtree for the next entry. Returns false if there is none. Before that,
 * notes the last entry if its row had no version with its key, and marks the
 * noted entries if the scan is about to leave their leaf page.
 */
static bool
next_entry(IndexScanDesc scan, ScanDirection dir, ZExpectingFetch *fetch)
{
	bool		found;
	bool		entered;

	if (fetch != NULL && fetch->missed)
		zmarks_note(scan, &fetch->noted);
	if (!must_read((BTScanOpaque) scan->opaque, dir))
		return btgettuple(scan, dir);
	if (fetch != NULL && fetch->noted.n > 0)
		zmarks_set(scan, &fetch->noted);
	if (fetch != NULL && fetch->since == InvalidXLogRecPtr)
		fetch->since = end_of_wal(scan);
	entered = begin_reading(scan);
	found = btgettuple(scan, dir);
	if (entered)
		zbound_leave();
	return found;
}

/*
 * zbtree_gettuple: See zbtree_internal.h. Returns nbtree's next TID in
 * scan->xs_heaptid, and its entry in the state of the table's index fetch.
 * Raises an error if the scan has no such state.
 */
bool
zbtree_gettuple(IndexScanDesc scan, ScanDirection dir)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	ZExpectingFetch *fetch = (ZExpectingFetch *) scan->xs_heapfetch;

	/*
	 * the planner gives up after 100 pages of the table, which may be one
	 * here
	 */
	if (fetch != NULL && is_estimate(scan) && fetch->tries++ >= ESTIMATE_TRIES)
		return false;
	if (!next_entry(scan, dir, fetch))
		return false;
	if (fetch == NULL || so->currTuples == NULL)
		elog(ERROR, "scan of index \"%s\" has no table to check its entries with",
			 RelationGetRelationName(scan->indexRelation));
	fetch->missed = false;
	fetch->index = scan->indexRelation;
	fetch->entry = (IndexTuple) (so->currTuples +
								 so->currPos.items[so->currPos.itemIndex].tupleOffset);
	/* xs_itup is the entry, unless the fetch replaces it */
	fetch->returning = scan->xs_want_itup ? scan : NULL;
	scan->xs_hitup = NULL;
	return true;
}

/*
 * zbtree_getbitmap: See zbtree_internal.h. Gives each TID the mark that the
 * executor must check the scan's conditions; nbtree's own function would add
 * them without that mark.
 */
int64
zbtree_getbitmap(IndexScanDesc scan, TIDBitmap *tbm)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	int64		n = 0;

	if (!zc_bt_begin_arrays(so, scan))
		return 0;
	do
	{
		bool		entered = begin_reading(scan);
		bool		more = _bt_first(scan, ForwardScanDirection);

		if (entered)
			zbound_leave();

		while (more)
		{
			tbm_add_tuples(tbm, &so->currPos.items[so->currPos.itemIndex].heapTid, 1, true);
			n++;
			if (so->currPos.itemIndex < so->currPos.lastItem)
				so->currPos.itemIndex++;
			else
			{
				entered = begin_reading(scan);
				more = _bt_next(scan, ForwardScanDirection);
				if (entered)
					zbound_leave();
			}
		}
	} while (so->numArrayKeys != 0 && zc_bt_next_arrays(so, scan));
	return n;
}
