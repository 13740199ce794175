/*
 * scan/zbuild.c - feeding index builds from a zheap table.
 *
 * Called through zam.c by CREATE INDEX, REINDEX and BRIN summarization; in
 * parallel workers too. The table block is locked only while it is copied, and
 * stays pinned until its rows have been fed. Nothing is written to the table;
 * zu_log_conflict writes a WAL record.
 *
 * Rules for an ordinary build, which excludes concurrent writers:
 *	BUILD-1	a row is entered with its newest version, own or committed. Not
 *			asserted: the build reads each row once; zundo.check_index and
 *			amcheck compare a finished index with the table.
 *	BUILD-2	a deleted or moved row that some snapshot still sees is entered
 *			with its last version, as not alive: no uniqueness check. Not
 *			asserted: a snapshot that sees the row may be on a standby, or end
 *			meanwhile.
 *	BUILD-3	if a snapshot sees an older version of a row than the one entered,
 *			its key may be another one: ii_BrokenHotChain keeps such snapshots
 *			away from the index, as with heap's HOT chains. It does not keep
 *			snapshots of standbys away that are older than those of this
 *			server: they are ended (zu_log_conflict).
 *	BUILD-5	in a zbtree index to which updates add entries (ZBTREE-3) a row with
 *			ZH_STALE_KEYS is entered with the key of each version that a
 *			snapshot may need, equal keys once: REINDEX keeps no snapshot away
 *			from a valid index. The versions of other rows have had one key as
 *			long as the index is valid.
 *
 * In "any visible" mode (BRIN) other transactions write meanwhile; all
 * versions that some snapshot sees or may come to see are fed. A concurrent
 * build enters what its MVCC snapshot sees; writers and the validation scan do
 * the rest:
 *	BUILD-4	the index has no entries for versions that were replaced or deleted
 *			before the snapshot of the validation scan. On this server no
 *			snapshot needs them: the command waits for all older snapshots
 *			before the index is used. It does not know those of standbys: they
 *			are ended (zu_log_conflict). Not asserted: it is about commands and
 *			snapshots of other processes, which the server keeps away.
 */
#include "postgres.h"

#include "access/genam.h"
#include "catalog/index.h"
#include "commands/progress.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "mvcc/zhistory.h"
#include "pgstat.h"
#include "scan/zscan_internal.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"
#include "zbtree/zbtree.h"

/* One index being fed. */
typedef struct Feeder
{
	Relation	rel;
	Relation	index;
	IndexInfo  *info;
	EState	   *estate;
	ExprContext *econtext;
	ExprState  *predicate;
	TupleTableSlot *slot;
	IndexBuildCallback callback;
	void	   *callback_state;
	bool		anyvisible;
	bool		all_keys;		/* BUILD-5 */
	MemoryContext keys;			/* for the keys of one row */
	double		live;			/* rows counted */
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
} Feeder;

/*
 * Prepares to feed rows of rel to index, with an executor state of its own for
 * the index's expressions and predicate.
 */
static void
feeder_begin(Feeder *feeder, Relation rel, Relation index, IndexInfo *info)
{
	memset(feeder, 0, sizeof(*feeder));
	feeder->rel = rel;
	feeder->index = index;
	feeder->info = info;
	feeder->estate = CreateExecutorState();
	feeder->econtext = GetPerTupleExprContext(feeder->estate);
	feeder->slot = table_slot_create(rel, NULL);
	feeder->econtext->ecxt_scantuple = feeder->slot;
	feeder->predicate = ExecPrepareQual(info->ii_Predicate, feeder->estate);
	feeder->all_keys = zbtree_is(index) && info->ii_Expressions == NIL && info->ii_Predicate == NIL;
	feeder->keys = AllocSetContextCreate(CurrentMemoryContext, "zheap index keys",
										 ALLOCSET_DEFAULT_SIZES);
}

/* Frees what feeder_begin has created. */
static void
feeder_end(Feeder *feeder)
{
	MemoryContextDelete(feeder->keys);
	ExecDropSingleTupleTableSlot(feeder->slot);
	FreeExecutorState(feeder->estate);
	/* both were allocated in the executor state */
	feeder->info->ii_ExpressionsState = NIL;
	feeder->info->ii_PredicateState = NULL;
}

/*
 * Computes the index columns of the row in the slot. Returns false if the
 * predicate excludes the row.
 */
static bool
feeder_values(Feeder *feeder)
{
	ResetExprContext(feeder->econtext);
	if (feeder->predicate != NULL && !ExecQual(feeder->predicate, feeder->econtext))
		return false;
	FormIndexDatum(feeder->info, feeder->slot, feeder->estate, feeder->values, feeder->isnull);
	return true;
}

/*
 * Passes the row in the slot to the index, unless the predicate excludes it.
 */
static void
feed(Feeder *feeder, bool alive)
{
	if (feeder_values(feeder))
		feeder->callback(feeder->index, &feeder->slot->tts_tid, feeder->values, feeder->isnull,
						 alive, feeder->callback_state);
}

/*
 * Counts a live row, in the result and in pg_stat_user_tables. (An MVCC scan
 * counts its rows there itself.)
 */
static void
count_row(Feeder *feeder)
{
	feeder->live += 1;
	pgstat_count_heap_getnext(feeder->rel);
}

/* Copies a version into the slot. */
static void
take_version(Feeder *feeder, const ZHistoryVersion *version, BlockNumber block, OffsetNumber off)
{
	ItemPointerData tid;

	ItemPointerSet(&tid, block, off);
	ztts_store_copy(feeder->slot, version->row, version->len, &tid, RelationGetRelid(feeder->rel));
	ztts_set_writer(feeder->slot, version->xid, FirstCommandId, InvalidUndoPtr);
}

/*
 * Feeds every version of a row (any visible mode). Returns false if the page
 * must be loaded again; versions already fed may then be fed once more.
 */
static bool
feed_all_versions(Feeder *feeder, ZHistory *history, BlockNumber block, OffsetNumber off)
{
	ZHistoryVersion version;
	ZHistoryResult result = zhistory_first(history, off, &version);
	bool		counted = false;

	Assert(feeder->anyvisible);
	while (result == ZHISTORY_VERSION)
	{
		if (version.live)
		{
			take_version(feeder, &version, block, off);
			feed(feeder, true);
			if (!counted)
				count_row(feeder);
			counted = true;
		}
		result = zhistory_next(history, &version);
	}
	return result != ZHISTORY_RETRY;
}

/* The key of a version, kept until all versions of its row have been read. */
typedef struct VersionKey
{
	struct VersionKey *next;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
} VersionKey;

/*
 * Adds the key of the version in the slot to the list, unless it is there.
 */
static void
keep_key(Feeder *feeder, VersionKey **list)
{
	TupleDesc	desc = RelationGetDescr(feeder->index);
	VersionKey *key;

	if (!feeder_values(feeder))
		return;
	for (key = *list; key != NULL; key = key->next)
		if (zbtree_same_key(feeder->index, key->values, key->isnull, feeder->values,
							feeder->isnull))
			return;
	key = palloc(sizeof(VersionKey));
	for (int i = 0; i < desc->natts; i++)
	{
		ZcAttr		att = zc_attr(desc, i);

		key->isnull[i] = feeder->isnull[i];
		key->values[i] = feeder->isnull[i] ? (Datum) 0 :
			datumCopy(feeder->values[i], att->attbyval, att->attlen);
	}
	key->next = *list;
	*list = key;
}

/*
 * Feeds the older versions of the row whose newest live version is in the slot
 * (BUILD-5). Returns false if the page must be loaded again; nothing has been
 * fed then.
 */
static bool
feed_all_keys(Feeder *feeder, ZHistory *history, BlockNumber block, OffsetNumber off, bool alive)
{
	MemoryContext caller = MemoryContextSwitchTo(feeder->keys);
	ZHistoryVersion version;
	ZHistoryResult result;
	VersionKey *keys = NULL;
	VersionKey *newest;
	ItemPointerData tid;

	Assert(feeder->all_keys && feeder->predicate == NULL);
	ItemPointerSet(&tid, block, off);
	keep_key(feeder, &keys);
	newest = keys;
	while ((result = zhistory_next(history, &version)) == ZHISTORY_VERSION)
	{
		CHECK_FOR_INTERRUPTS();
		if (!version.live)
			continue;
		take_version(feeder, &version, block, off);
		keep_key(feeder, &keys);
	}
	MemoryContextSwitchTo(caller);
	if (result == ZHISTORY_END)
		for (VersionKey *key = keys; key != NULL; key = key->next)
			feeder->callback(feeder->index, &tid, key->values, key->isnull,
							 alive && key == newest, feeder->callback_state);
	MemoryContextReset(feeder->keys);
	return result == ZHISTORY_END;
}

/*
 * Returns whether the row at off may have had several keys: its header on the
 * page has ZH_STALE_KEYS, whichever version is fed, or it is a stub, which does
 * not tell.
 */
static bool
may_have_keys(const Feeder *feeder, const ZHistory *history, OffsetNumber off)
{
	Page		page = zhistory_page(history);
	ItemId		lp = PageGetItemId(page, off);

	return feeder->all_keys &&
		(!ItemIdIsNormal(lp) || (zheader_get(zpage_row(page, lp)) & ZH_STALE_KEYS) != 0);
}

/*
 * Feeds one row of an ordinary build (BUILD-1, BUILD-2, BUILD-3). Returns
 * false if the page must be loaded again and the row tried once more; nothing
 * has been fed then. Waits for a transaction in progress that has changed the
 * row.
 */
static bool
feed_row(Feeder *feeder, ZHistory *history, BlockNumber block, OffsetNumber off)
{
	ZHistoryVersion version;
	ZHistoryResult result = zhistory_first(history, off, &version);
	bool		alive;
	bool		broken = false;

	Assert(!feeder->anyvisible);
	if (result != ZHISTORY_VERSION)
		return result == ZHISTORY_END;
	if (version.status == ZXID_IN_PROGRESS)
	{
		ItemPointerData tid;

		/*
		 * The table lock should have kept this transaction away. Wait for its
		 * end, then look at the row again.
		 */
		ItemPointerSet(&tid, block, off);
		XactLockTableWait(zxid_to_xid(version.xid), feeder->rel, &tid, XLTW_InsertIndexUnique);
		return false;
	}
	alive = version.live;
	if (!alive)
	{
		result = zhistory_next(history, &version);
		if (result != ZHISTORY_VERSION)
			return result == ZHISTORY_END;
		if (!version.live)
			return true;
	}
	take_version(feeder, &version, block, off);
	if (!version.settled && may_have_keys(feeder, history, off))
	{
		if (!feed_all_keys(feeder, history, block, off, alive))
			return false;
		if (alive)
			count_row(feeder);
		return true;
	}
	if (!version.settled)
	{
		result = zhistory_next(history, &version);
		if (result == ZHISTORY_RETRY)
			return false;
		broken = (result == ZHISTORY_VERSION);
	}
	if (broken)
		feeder->info->ii_BrokenHotChain = true;
	if (alive)
		count_row(feeder);
	feed(feeder, alive);
	return true;
}

/*
 * Feeds a row that is visible to all, without reading undo. Returns false, with
 * nothing fed, if the row's history must be read; returns true also if there is
 * nothing to feed.
 */
static bool
feed_settled(Feeder *feeder, Page page, BlockNumber block, OffsetNumber off, ZXid oldest)
{
	ItemId		lp = PageGetItemId(page, off);
	const char *row;
	ZHeader		header;
	int			s;
	ItemPointerData tid;

	if (ItemIdIsRedirected(lp))
		return false;
	if (!ItemIdIsNormal(lp))
		return true;
	row = zpage_row(page, lp);
	header = zheader_get(row);
	s = ZH_SLOT(header);
	if (s > zpage_nslots(page))
		return false;
	if (s > 0 && !zslot_locks_only(zpage_slot(page, s)) && zslot_xid(zpage_slot(page, s)) >= oldest)
		return false;
	if (!ZH_LIVE(header))
		return true;
	ItemPointerSet(&tid, block, off);
	ztts_store_copy(feeder->slot, row, zpage_row_length(page, lp), &tid,
					RelationGetRelid(feeder->rel));
	ztts_set_writer(feeder->slot, InvalidZXid, FirstCommandId, InvalidUndoPtr);
	count_row(feeder);
	feed(feeder, true);
	return true;
}

/* Feeds all rows of one block. The block stays pinned meanwhile. */
static void
feed_block(Feeder *feeder, ZScan *scan, ZHistory *history, BlockNumber block)
{
	Buffer		buf = ReadBufferExtended(feeder->rel, MAIN_FORKNUM, block, RBM_NORMAL,
										 scan->strategy);
	Page		page = zhistory_load(history, buf);
	OffsetNumber off = FirstOffsetNumber;

	while (page != NULL && off <= PageGetMaxOffsetNumber(page))
	{
		CHECK_FOR_INTERRUPTS();
		if (feed_settled(feeder, page, block, off, zhistory_oldest(history)) ||
			(feeder->anyvisible ? feed_all_versions(feeder, history, block, off)
			 : feed_row(feeder, history, block, off)))
			off++;
		else
			page = zhistory_load(history, buf);
	}
	ReleaseBuffer(buf);
}

/* Reports how far the scan is. */
static void
report_done(ZScan *scan, bool progress)
{
	if (progress)
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_DONE, zscan_blocks_done(scan));
}

/* Feeds the rows that the scan's MVCC snapshot sees (a concurrent build). */
static void
feed_visible(Feeder *feeder, ZScan *scan, bool progress)
{
	BlockNumber previous = InvalidBlockNumber;

	Assert(IsMVCCSnapshot(scan->base.rs_snapshot));
	while (zheap_scan_getnextslot(&scan->base, ForwardScanDirection, feeder->slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (scan->block != previous)
			report_done(scan, progress);
		previous = scan->block;
		feeder->live += 1;
		feed(feeder, true);
	}
}

/*
 * Feeds the newest versions, or all in "any visible" mode. Ends snapshots of
 * standbys that are older than the horizon of this build (BUILD-3).
 */
static void
feed_newest(Feeder *feeder, ZScan *scan, bool progress)
{
	TransactionId horizon = GetOldestNonRemovableTransactionId(feeder->rel);
	ZHistory   *history = zhistory_create(feeder->rel, horizon);

	Assert(!IsMVCCSnapshot(scan->base.rs_snapshot));	/* BUILD-3 */
	if (RelationNeedsWAL(feeder->rel))
		zu_log_conflict(horizon);

	while (zscan_next_block(scan, ForwardScanDirection))
	{
		report_done(scan, progress);
		feed_block(feeder, scan, history, scan->block);
	}
	zhistory_free(history);
}

/*
 * Feeds the rows and returns the number of live ones. A concurrent build gets
 * an MVCC snapshot, any other one SnapshotAny; a scan that the caller passes
 * (a parallel build) has a snapshot already.
 */
double
zheap_index_build_range_scan(Relation rel, Relation index, struct IndexInfo *info, bool allow_sync,
							 bool anyvisible, bool progress, BlockNumber start_blockno,
							 BlockNumber numblocks, IndexBuildCallback callback,
							 void *callback_state, TableScanDesc sscan)
{
	Feeder		feeder;
	ZScan	   *scan;
	Snapshot	registered = InvalidSnapshot;
	Oid			am = index->rd_rel->relam;

	feeder_begin(&feeder, rel, index, info);
	feeder.callback = callback;
	feeder.callback_state = callback_state;
	feeder.anyvisible = anyvisible;
	if (sscan == NULL)
	{
		Snapshot	snapshot = SnapshotAny;

		if (info->ii_Concurrent)
			snapshot = registered = RegisterSnapshot(GetTransactionSnapshot());
		sscan = table_beginscan_strat(rel, snapshot, 0, NULL, true, allow_sync);
	}
	scan = (ZScan *) sscan;
	if (!allow_sync)
		zscan_limit(scan, start_blockno, numblocks);
	if (progress)
		pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL,
									 sscan->rs_parallel != NULL ? scan->nblocks : scan->nrange);

	if (IsMVCCSnapshot(sscan->rs_snapshot))
		feed_visible(&feeder, scan, progress);
	else
		feed_newest(&feeder, scan, progress);
	report_done(scan, progress);

	table_endscan(sscan);
	if (registered != InvalidSnapshot)
		UnregisterSnapshot(registered);
	feeder_end(&feeder);

	/*
	 * The caller may have changed what the relcache entry says, and the entry
	 * may have been rebuilt meanwhile (ZBTREE-1).
	 */
	index->rd_rel->relam = am;
	return feeder.live;
}

/* The TIDs that the new index contains already, in order. */
typedef struct IndexedTids
{
	Tuplesortstate *sort;
	bool		valid;			/* false before the first and after the last */
	bool		at_end;
	ItemPointerData tid;
} IndexedTids;

/*
 * Returns whether tid is among them. Calls must come in ascending order of
 * tid.
 */
static bool
is_indexed(IndexedTids *tids, ItemPointer tid)
{
	Assert(ItemPointerIsValid(tid));
	while (!tids->at_end && (!tids->valid || ItemPointerCompare(&tids->tid, tid) < 0))
	{
		Datum		value;
		bool		isnull;

		tids->valid = zc_tuplesort_getdatum(tids->sort, &value, &isnull);
		tids->at_end = !tids->valid;
		if (tids->valid)
			itemptr_decode(&tids->tid, DatumGetInt64(value));
	}
	return tids->valid && ItemPointerEquals(&tids->tid, tid);
}

/*
 * Ends the snapshots of standbys that may not see all that the validation
 * scan's snapshot sees (BUILD-4). A snapshot taken after the record has been
 * replayed sees all of it: what this one sees had committed, and was logged,
 * before. Any other is older, so the oldest transaction in progress at its
 * time is the same or older: its xmin is at most that of this snapshot. If no
 * transaction was in progress for this snapshot, its xmin is the next id; a
 * snapshot that misses a transaction which has ended then has a smaller xmin.
 */
static void
end_older_snapshots(Relation rel, Snapshot snapshot)
{
	TransactionId horizon = snapshot->xmin;

	if (!RelationNeedsWAL(rel))
		return;
	if (TransactionIdPrecedes(horizon, snapshot->xmax))
		TransactionIdAdvance(horizon);
	zu_attach_database();
	zu_log_conflict(horizon);
}

/*
 * Merges the rows that the snapshot sees with the sorted TIDs of the index,
 * and inserts those that are missing.
 */
void
zheap_index_validate_scan(Relation rel, Relation index, struct IndexInfo *info, Snapshot snapshot,
						  struct ValidateIndexState *state)
{
	Feeder		feeder;
	IndexedTids tids = {0};
	BlockNumber previous = InvalidBlockNumber;
	TableScanDesc sscan;
	ZScan	   *scan;

	end_older_snapshots(rel, snapshot);
	feeder_begin(&feeder, rel, index, info);
	tids.sort = state->tuplesort;

	/*
	 * from block 0 on, in the order of the sorted TIDs: not synchronized with
	 * other scans
	 */
	sscan = table_beginscan_strat(rel, snapshot, 0, NULL, true, false);
	scan = (ZScan *) sscan;
	pgstat_progress_update_param(PROGRESS_SCAN_BLOCKS_TOTAL, scan->nblocks);

	while (zheap_scan_getnextslot(sscan, ForwardScanDirection, feeder.slot))
	{
		CHECK_FOR_INTERRUPTS();
		state->htups += 1;
		if (scan->block != previous)
			report_done(scan, true);
		previous = scan->block;
		if (is_indexed(&tids, &feeder.slot->tts_tid) || !feeder_values(&feeder))
			continue;
		index_insert(index, feeder.values, feeder.isnull, &feeder.slot->tts_tid, rel,
					 info->ii_Unique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, info);
		state->tups_inserted += 1;
	}

	table_endscan(sscan);
	feeder_end(&feeder);
}
