/*
 * scan/zscan.c - sequential scans, serial and parallel, and TID range scans.
 *
 * Called through zam.c by the executor and by all other users of
 * table_beginscan. A block is read once: mvcc/ copies it under its share lock
 * and finds the visible rows; afterwards no lock is held, and no pin except on
 * a block of a temporary table or of a scan with a Dirty snapshot. Nothing is
 * written, but for bits of the visibility map (VMAP-1 in mvcc/).
 *
 * Invariants:
 *	SCAN-1	slots borrow bytes from the view; they are valid until the scan
 *		moves to another block, which happens only in a call that gets the slot
 *		again.
 *	SCAN-4	what must not see zheap's rows is refused, whichever way it reads:
 *		historic snapshots, and apply workers that look for deleted versions,
 *		which they would take for rows of heap.
 *	SCAN-7	a search with a Dirty snapshot misses no version that may become
 *		the newest; an apply worker that looks for its values must wait for it.
 *		So it is on heap, where each version is a row of its own.
 *		(a) A row that another transaction is changing is shown several times,
 *			with snapshot->xmax each time: its newest version, and each one
 *			before it down to the last committed one. If the change is rolled
 *			back, also to a savepoint, that version is the newest again. Index
 *			fetches do the same (zheap_index_fetch_tuple).
 *		(b) A forward scan reads a page again if the page has changed since it
 *			began to read it. Such a scan reads row by row, so a row may
 *			meanwhile move to a place that the scan has passed, or that was not
 *			there, or a row that was shown may get other values. There are at
 *			most as many passes as heap has row versions on a page.
 *		Example: the worker looks for (1, 'b'). The row was (1, 'a'), and a
 *		transaction in progress has made (1, 'b') of it, then (1, 'c'): the
 *		worker is shown all three, and waits.
 */
#include "postgres.h"

#include "access/skey.h"
#include "access/syncscan.h"
#include "access/xact.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "pgstat.h"
#include "replication/logicalworker.h"
#include "rollback/zrollback.h"
#include "scan/zscan_internal.h"
#include "storage/predicate.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Returns whether zvis_page cannot answer for this snapshot. */
static bool
snapshot_by_row(Snapshot snapshot)
{
	return snapshot != InvalidSnapshot && !IsMVCCSnapshot(snapshot) &&
		snapshot->snapshot_type != SNAPSHOT_ANY && snapshot->snapshot_type != SNAPSHOT_SELF;
}

/*
 * Chooses the access strategy, and whether the scan is synchronized with
 * others. Both are for tables larger than a quarter of shared buffers; in a
 * parallel scan the shared state decides on the latter.
 */
static void
choose_strategy(ZScan *scan, bool keep_start)
{
	TableScanDesc base = &scan->base;
	bool		large = scan->nblocks > NBuffers / 4 && !RelationUsesLocalBuffers(base->rs_rd);
	bool		sync = large && (base->rs_flags & SO_ALLOW_SYNC) != 0 && synchronize_seqscans;

	if (large && (base->rs_flags & SO_ALLOW_STRAT))
	{
		if (scan->strategy == NULL)
			scan->strategy = GetAccessStrategy(BAS_BULKREAD);
	}
	else if (scan->strategy != NULL)
	{
		FreeAccessStrategy(scan->strategy);
		scan->strategy = NULL;
	}
	if (base->rs_parallel != NULL)
		sync = base->rs_parallel->phs_syncscan;
	else if (!keep_start)
		scan->startblock = sync ? ss_get_location(base->rs_rd, scan->nblocks) : 0;
	if (sync)
		base->rs_flags |= SO_ALLOW_SYNC;
	else
		base->rs_flags &= ~SO_ALLOW_SYNC;
}

/*
 * Puts the scan before its first row. keep_start: a rescan begins at the same
 * block as the scan did.
 */
static void
start_scan(ZScan *scan, ScanKey key, bool keep_start)
{
	TableScanDesc base = &scan->base;

	if (base->rs_parallel != NULL)
		scan->nblocks = ((ParallelBlockTableScanDesc) base->rs_parallel)->phs_nblocks;
	else
		scan->nblocks = zrel_nblocks(base->rs_rd);
	choose_strategy(scan, keep_start);
	if (scan->startblock >= scan->nblocks)
		scan->startblock = 0;
	scan->nrange = scan->nblocks;
	scan->pos = 0;
	scan->block = InvalidBlockNumber;
	scan->inited = false;
	scan->beside = false;
	scan->nitems = 0;
	scan->nselected = 0;
	if (key != NULL && base->rs_nkeys > 0)
		memcpy(base->rs_key, key, base->rs_nkeys * sizeof(ScanKeyData));
	if (base->rs_flags & SO_TYPE_SEQSCAN)
		pgstat_count_heap_scan(base->rs_rd);
}

void
zscan_refuse_deleted_search(Snapshot snapshot)
{
	if (likely(snapshot == InvalidSnapshot || snapshot->snapshot_type != SNAPSHOT_ANY ||
			   !IsLogicalWorker()) ||
		zlevel_current()->outer != NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("the deleted rows of a zheap table cannot be searched"),
			 errdetail("The subscription's apply worker looks for a deleted row in heap's format."),
			 errhint("Disable the subscription, set its option retain_dead_tuples to false, "
					 "and enable it again.")));
}

/*
 * zheap_scan_begin: See zscan.h. Before a scan of a temporary table undoes
 * what ended transactions of this backend have left there: readers do not need
 * that, but each of them would walk over the aborted changes.
 */
TableScanDesc
zheap_scan_begin(Relation rel, Snapshot snapshot, int nkeys, struct ScanKeyData *key,
				 ParallelTableScanDesc pscan, uint32 flags)
{
	ZScan	   *scan;

	/*
	 * pg_upgrade creates empty TOAST tables, and builds their indexes, before
	 * zundo.undo_log
	 */
	if (!IsBinaryUpgrade)
		zu_attach_for_table();
	zscan_refuse_historic(snapshot);

	if (RelationUsesLocalBuffers(rel) && !RELATION_IS_OTHER_TEMP(rel))
		zrollback_temp();
	RelationIncrementReferenceCount(rel);
	scan = palloc0(sizeof(ZScan));
	scan->base.rs_rd = rel;
	scan->base.rs_snapshot = snapshot;
	scan->base.rs_nkeys = nkeys;
	scan->base.rs_flags = flags;
	scan->base.rs_parallel = pscan;
	scan->base.rs_key = nkeys > 0 ? palloc(nkeys * sizeof(ScanKeyData)) : NULL;
	scan->by_row = snapshot_by_row(snapshot);
	if (pscan != NULL)
		scan->worker = palloc0(sizeof(ParallelBlockTableScanWorkerData));
	if (flags & (SO_TYPE_SEQSCAN | SO_TYPE_SAMPLESCAN | SO_TYPE_TIDRANGESCAN))
		PredicateLockRelation(rel, snapshot);
	start_scan(scan, key, false);
	return &scan->base;
}

/* zheap_scan_end: See zscan.h. */
void
zheap_scan_end(TableScanDesc sscan)
{
	ZScan	   *scan = (ZScan *) sscan;

	zscan_release(scan);
	zbitmap_rewind(scan, true);
	RelationDecrementReferenceCount(sscan->rs_rd);
	if (scan->strategy != NULL)
		FreeAccessStrategy(scan->strategy);
	if (sscan->rs_flags & SO_TEMP_SNAPSHOT)
		UnregisterSnapshot(sscan->rs_snapshot);
	zscan_drop_view(scan);
	if (scan->version != NULL)
		pfree(scan->version);
	zdoubt_end(&scan->doubt);
	if (scan->worker != NULL)
		pfree(scan->worker);
	if (sscan->rs_key != NULL)
		pfree(sscan->rs_key);
	pfree(scan);
}

/* Sets or clears a flag of the scan. */
static void
set_flag(TableScanDesc scan, uint32 flag, bool on)
{
	if (on)
		scan->rs_flags |= flag;
	else
		scan->rs_flags &= ~flag;
}

/*
 * zheap_scan_rescan: See zscan.h. Reads the number of blocks anew, as the
 * table may have grown.
 */
void
zheap_scan_rescan(TableScanDesc sscan, struct ScanKeyData *key, bool set_params, bool allow_strat,
				  bool allow_sync, bool allow_pagemode)
{
	ZScan	   *scan = (ZScan *) sscan;

	if (set_params)
	{
		set_flag(sscan, SO_ALLOW_STRAT, allow_strat);
		set_flag(sscan, SO_ALLOW_SYNC, allow_sync);
		set_flag(sscan, SO_ALLOW_PAGEMODE, allow_pagemode);
	}
	zscan_release(scan);
	zbitmap_rewind(scan, false);
	scan->by_row = snapshot_by_row(sscan->rs_snapshot);
	start_scan(scan, key, true);
}

/*
 * Begins a pass over the pinned page. Returns false if the page has not changed
 * since the pass before, or there were too many (SCAN-7b).
 */
static bool
begin_pass(ZScan *scan)
{
	Page		page = BufferGetPage(scan->buf);
	XLogRecPtr	lsn;
	int			maxoff;

	Assert(scan->by_row && zc_buffer_unlocked(scan->buf));
	LockBuffer(scan->buf, BUFFER_LOCK_SHARE);
	lsn = PageGetLSN(page);
	maxoff = PageGetMaxOffsetNumber(page);
	LockBuffer(scan->buf, BUFFER_LOCK_UNLOCK);
	if (scan->passes > 0 && (lsn == scan->lsn || scan->passes >= MaxHeapTuplesPerPage))
		return false;
	scan->passes++;
	scan->lsn = lsn;
	scan->nitems = maxoff;
	return true;
}

/* Pins the block for row by row answers, and begins the first pass over it. */
static void
pin_for_rows(ZScan *scan, BlockNumber block)
{
	Assert(scan->by_row && block < scan->nblocks);
	if (scan->version == NULL)
		scan->version = MemoryContextAlloc(GetMemoryChunkContext(scan), sizeof(ZVersion));
	zscan_release(scan);
	scan->buf = ReadBufferExtended(scan->base.rs_rd, MAIN_FORKNUM, block, RBM_NORMAL,
								   scan->strategy);
	scan->passes = 0;
	(void) begin_pass(scan);
}

/*
 * Shows the current item in slot; returns false if the snapshot does not see
 * it.
 */
static bool
store_current(ZScan *scan, TupleTableSlot *slot)
{
	Relation	rel = scan->base.rs_rd;
	ZVersion   *version = scan->version;
	ItemPointerData tid;

	Assert(scan->index >= 0 && scan->index < scan->nitems);
	if (!scan->by_row)
	{
		zscan_store(scan, scan->index, slot);
		return true;
	}
	ItemPointerSet(&tid, scan->block, FirstOffsetNumber + scan->index);
	zcount_reads(rel, false);
	zvis_fetch(rel, scan->buf, FirstOffsetNumber + scan->index, scan->base.rs_snapshot, version,
			   NULL);
	scan->beside = version->found && TransactionIdIsValid(scan->base.rs_snapshot->xmax);
	if (!version->found)
		return false;
	zversion_show(rel, version, &tid, slot);
	if (scan->beside)
		zdoubt_begin(&scan->doubt, slot);
	return true;
}

/*
 * Shows the next older version of the current item that may become the newest
 * if the transaction in snapshot->xmax aborts (SCAN-7). Returns false if there
 * is none.
 */
static bool
store_before(ZScan *scan, TupleTableSlot *slot)
{
	Assert(scan->by_row && TransactionIdIsValid(scan->base.rs_snapshot->xmax)); /* SCAN-7 */
	scan->beside = zdoubt_next(&scan->doubt, scan->base.rs_rd, scan->buf,
							   FirstOffsetNumber + scan->index, scan, slot);
	return scan->beside;
}

/*
 * Moves to the next item, across the ends of blocks; returns false at the end
 * of the scan.
 */
static bool
next_item(ZScan *scan, ScanDirection direction)
{
	bool		forward = !ScanDirectionIsBackward(direction);

	if (scan->inited)
	{
		scan->index += forward ? 1 : -1;
		if (scan->index >= 0 && scan->index < scan->nitems)
			return true;
		if (scan->by_row && forward && begin_pass(scan) && scan->nitems > 0)
		{
			scan->index = 0;
			return true;
		}
	}
	while (zscan_next_block(scan, direction))
	{
		if (scan->by_row)
			pin_for_rows(scan, scan->block);
		else
		{
			zscan_load(scan, scan->block);
			scan->nitems = scan->view->nrows;
		}
		scan->index = forward ? 0 : scan->nitems - 1;
		if (scan->nitems > 0)
			return true;
	}
	return false;
}

/*
 * Puts the scan, which has no more rows in this direction, before its first
 * block again, clears slot, and gives the view back.
 */
static void
finish(ZScan *scan, TupleTableSlot *slot)
{
	scan->inited = false;
	scan->nitems = 0;
	zscan_release(scan);
	ExecClearTuple(slot);
	zscan_drop_view(scan);
}

/* Returns whether the row in slot satisfies the scan's keys. */
static bool
keys_match(TableScanDesc scan, TupleTableSlot *slot)
{
	for (int i = 0; i < scan->rs_nkeys; i++)
	{
		ScanKey		key = &scan->rs_key[i];
		bool		isnull;
		Datum		value;

		if (key->sk_flags & SK_ISNULL)
			return false;
		value = slot_getattr(slot, key->sk_attno, &isnull);
		if (isnull ||
			!DatumGetBool(FunctionCall2Coll(&key->sk_func, key->sk_collation, value,
											key->sk_argument)))
			return false;
	}
	return true;
}

/*
 * Shows the next row that is visible and satisfies the keys, without counting
 * it. Returns false, with slot cleared, if there is none.
 */
static bool
next_row(ZScan *scan, ScanDirection direction, TupleTableSlot *slot)
{
	bool		found;

	for (;;)
	{
		if (scan->beside)
			found = store_before(scan, slot);
		else if (next_item(scan, direction))
			found = store_current(scan, slot);
		else
			break;
		if (found && keys_match(&scan->base, slot))
			return true;
	}
	finish(scan, slot);
	return false;
}

/*
 * zheap_scan_getnextslot: See zscan.h. Handles the usual case, the next row of
 * the loaded block, without a further call. As on heap,
 * NoMovementScanDirection shows the current row again.
 */
bool
zheap_scan_getnextslot(TableScanDesc sscan, ScanDirection direction, TupleTableSlot *slot)
{
	ZScan	   *scan = (ZScan *) sscan;

	/* the usual case: the next row of the loaded block */
	if (likely(ScanDirectionIsForward(direction) && scan->inited && !scan->by_row &&
			   sscan->rs_nkeys == 0 && scan->index >= 0 && scan->index + 1 < scan->nitems))
	{
		zscan_show(scan, ++scan->index, slot);
		pgstat_count_heap_getnext(sscan->rs_rd);
		return true;
	}

	/*
	 * Not in zheap_scan_begin: an apply worker that replays a TRUNCATE builds
	 * indexes, for which it begins a scan with SnapshotAny as well, but reads
	 * the rows by zheap_index_build_range_scan.
	 */
	if (!scan->inited)
		zscan_refuse_deleted_search(sscan->rs_snapshot);
	if (ScanDirectionIsNoMovement(direction))
	{
		if (scan->inited && store_current(scan, slot))
			return true;
		ExecClearTuple(slot);
		return false;
	}
	if (!next_row(scan, direction, slot))
	{
		Assert(scan->view == NULL);
		return false;
	}
	pgstat_count_heap_getnext(sscan->rs_rd);
	return true;
}

/*
 * zheap_scan_set_tidrange: See zscan.h. The rows of the first and last block
 * of the range are filtered when they are read.
 */
void
zheap_scan_set_tidrange(TableScanDesc sscan, ItemPointer mintid, ItemPointer maxtid)
{
	ZScan	   *scan = (ZScan *) sscan;
	BlockNumber first = ItemPointerGetBlockNumberNoCheck(mintid);
	BlockNumber last = ItemPointerGetBlockNumberNoCheck(maxtid);

	ItemPointerCopy(mintid, &scan->mintid);
	ItemPointerCopy(maxtid, &scan->maxtid);
	if (ItemPointerCompare(mintid, maxtid) > 0 || first >= scan->nblocks)
		zscan_limit(scan, scan->nblocks, 0);
	else
		zscan_limit(scan, first, Min(last, scan->nblocks - 1) - first + 1);
}

/* zheap_scan_getnextslot_tidrange: See zscan.h. */
bool
zheap_scan_getnextslot_tidrange(TableScanDesc sscan, ScanDirection direction, TupleTableSlot *slot)
{
	ZScan	   *scan = (ZScan *) sscan;
	bool		forward = !ScanDirectionIsBackward(direction);

	while (next_row(scan, direction, slot))
	{
		bool		below = ItemPointerCompare(&slot->tts_tid, &scan->mintid) < 0;
		bool		above = ItemPointerCompare(&slot->tts_tid, &scan->maxtid) > 0;

		if (!below && !above)
		{
			pgstat_count_heap_getnext(sscan->rs_rd);
			return true;
		}
		if (forward ? above : below)
			break;
	}
	finish(scan, slot);
	return false;
}

void
zheap_fill_scan_callbacks(TableAmRoutine *routine)
{
	zbitmap_fill_callbacks(routine);
	zsample_fill_callbacks(routine);
}
