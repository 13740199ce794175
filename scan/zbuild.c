/*
 * scan/zbuild.c - feeding index builds from a zheap table.
 *
 * Called through zam.c by CREATE INDEX, REINDEX and BRIN summarization; in
 * parallel workers too. The table block is locked only while it is copied, and
 * stays pinned until its rows have been fed. Nothing is written to the table;
 * zu_log_conflict writes a WAL record.
 *
 * Rules for an ordinary build, which excludes concurrent writers (BUILD-7 is in
 * zbuild_serial.c):
 *	BUILD-1	a row is entered with its newest version, own or committed; a
 *		deleted or moved row that some snapshot still sees with its last
 *		version, as not alive: no uniqueness check.
 *	BUILD-3	snapshots that would miss versions are kept away from the index, or
 *		ended:
 *		(a) if a snapshot sees an older version of a row than the one entered,
 *			its key may be another one: ii_BrokenHotChain keeps such snapshots
 *			away from the index, as with heap's HOT chains. Snapshots of
 *			standbys that are older than those of this server are ended
 *			(zu_log_conflict), unless there is nothing that they could miss
 *			(may_leave_out);
 *		(b) a concurrent build has no entries for versions that were replaced
 *			or deleted before the snapshot of the validation scan. On this
 *			server no snapshot needs them: the command waits for all older
 *			snapshots before the index is used. It does not know those of
 *			standbys: they are ended.
 *		Example: a row's key was 1, and is 2. The index has 2; a query with an
 *		older snapshot reads the table.
 *	BUILD-5	an index that is rebuilt covers the older versions that a snapshot
 *		may need, since REINDEX keeps no snapshot away from a valid index, if
 *		updates leave them to it:
 *		(a) in a zbtree index to which updates add entries (ZBTREE-3) a row
 *			with ZH_STALE_KEYS is entered with the key of each such version
 *			that satisfies the predicate, equal keys once. The versions of
 *			other rows have had one key, or none, as long as the index is
 *			valid. Versions from before a change of a value that was or became
 *			stored out of line are left out as by BUILD-3: scans take such a
 *			value for that of each entry of its TID (ZBTREE-4). While an index
 *			is valid, such a change moves the row (ZBTREE-3), so these versions
 *			are older than the index;
 *		(b) a block-summarizing index (BRIN), whose columns updates change in
 *			place, covers all such versions. Those that only snapshots see
 *			which are kept away from the index by its indcheckxmin are left
 *			out, as CREATE INDEX did: they need not fit its expressions.
 *		Example: a row had the keys 1 and 2 and has 3, and a snapshot needs 2:
 *		the rebuilt zbtree index has 2 and 3.
 *
 * In "any visible" mode (summarization) other transactions write meanwhile; all
 * versions that some snapshot sees or may come to see are fed. A concurrent
 * build enters what its MVCC snapshot sees; writers and the validation scan do
 * the rest (BUILD-3b).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/transam.h"
#include "catalog/index.h"
#include "catalog/pg_am.h"
#include "commands/progress.h"
#include "executor/executor.h"
#include "lib/rbtree.h"
#include "miscadmin.h"
#include "mvcc/zhistory.h"
#include "pgstat.h"
#include "scan/zscan_internal.h"
#include "storage/lmgr.h"
#include "tuple/ztuple.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/tuplesort.h"
#include "zbtree/predicate.h"
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
	bool		all_versions;	/* any visible mode, or BUILD-5b */
	bool		all_keys;		/* BUILD-5 */
	bool		mark_is_lost;	/* the leader would not see ii_BrokenHotChain
								 * (BUILD-7) */
	Bitmapset  *compared;		/* if all_keys: the key columns, and those of
								 * the predicate */
	MemoryContext keys;			/* for the keys of one row */
	double		live;			/* rows counted */
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
} Feeder;

/* zbuild_is_btree: See zscan_internal.h. */
bool
zbuild_is_btree(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID || zbtree_is(index);
}

/*
 * Returns the columns of the table by which scans of the index tell versions of
 * a row apart, as numbers above FirstLowInvalidHeapAttributeNumber: the key
 * columns, and those of the predicate. The index has no expressions.
 */
static Bitmapset *
compared_columns(Relation index)
{
	Bitmapset  *columns = zpredicate_exists(index) ? zpredicate_columns(index) : NULL;

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		columns = bms_add_member(columns, index->rd_index->indkey.values[i] -
								 FirstLowInvalidHeapAttributeNumber);
	return columns;
}

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
	feeder->all_keys = zbtree_is(index) && info->ii_Expressions == NIL &&
		(!zpredicate_exists(index) || zpredicate_is_simple(index));
	if (feeder->all_keys)
		feeder->compared = compared_columns(index);
	feeder->keys = AllocSetContextCreate(CurrentMemoryContext, "zheap index keys",
										 ALLOCSET_DEFAULT_SIZES);
}

/*
 * Returns whether the index summarizes blocks and is being rebuilt (BUILD-5b).
 * An index that is being created covers the newest versions only, as old ones
 * may not fit its expressions; BUILD-3 keeps old snapshots away from it. An
 * index that was not valid before it is rebuilt is treated as a new one.
 */
static bool
is_rebuilt_summary(Relation index)
{
	return zc_index_summarizes(index) && index->rd_index->indisvalid &&
		ReindexIsProcessingIndex(RelationGetRelid(index));
}

/*
 * Returns the horizon of the versions to be fed: that of the table, or the id
 * before which the xmin of a snapshot keeps it from using the index, if that is
 * newer (BUILD-5b). In the second case REINDEX must not reset indcheckxmin.
 */
static TransactionId
feeder_horizon(Feeder *feeder, TransactionId horizon)
{
	Relation	index = feeder->index;
	TransactionId xmin;

	Assert(TransactionIdIsNormal(horizon));
	if (!feeder->all_versions || !index->rd_index->indcheckxmin)
		return horizon;
	xmin = HeapTupleHeaderGetXmin(index->rd_indextuple->t_data);
	if (!TransactionIdIsNormal(xmin) || !TransactionIdFollows(xmin, horizon))
		return horizon;
	feeder->info->ii_BrokenHotChain = true;
	return xmin;
}

/* Frees what feeder_begin has created. */
static void
feeder_end(Feeder *feeder)
{
	MemoryContextDelete(feeder->keys);
	bms_free(feeder->compared);
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
	ztts_set_author(feeder->slot, version->xid, FirstCommandId, InvalidUndoPtr);
}

/*
 * Feeds every version of a row (any visible mode, BUILD-5b). Returns false if
 * the page must be loaded again; versions already fed may then be fed once
 * more. The row counts as live if its newest version is.
 */
static bool
feed_all_versions(Feeder *feeder, ZHistory *history, BlockNumber block, OffsetNumber off)
{
	ZHistoryVersion version;
	ZHistoryResult result = zhistory_first(history, off, &version);
	bool		alive = (result == ZHISTORY_VERSION && version.live);

	Assert(feeder->all_versions);
	while (result == ZHISTORY_VERSION)
	{
		if (version.live)
		{
			take_version(feeder, &version, block, off);
			feed(feeder, true);
		}
		result = zhistory_next(history, &version);
	}
	if (result == ZHISTORY_RETRY)
		return false;
	if (alive)
		count_row(feeder);
	return true;
}

/*
 * The key of a version, kept until all versions of its row have been read. In
 * the tree it ends with the last column of the index: there may be millions.
 */
typedef struct VersionKey
{
	RBTNode		node;			/* first: of a tree of different keys */
	bool		isnull[INDEX_MAX_KEYS];
	Datum		values[INDEX_MAX_KEYS]; /* last: see key_size */
} VersionKey;

/* Returns the size of a key of this index in the tree. */
static inline Size
key_size(Relation index)
{
	return offsetof(VersionKey, values) +
		IndexRelationGetNumberOfAttributes(index) * sizeof(Datum);
}

/* Compares two keys; callback of the tree. */
static int
compare_keys(const RBTNode *a, const RBTNode *b, void *index)
{
	const VersionKey *x = (const VersionKey *) a;
	const VersionKey *y = (const VersionKey *) b;

	return zbtree_compare_keys(index, x->values, x->isnull, y->values, y->isnull);
}

/* Keeps the first one of equal keys; callback of the tree. */
static void
keep_first(RBTNode *existing, const RBTNode *other, void *index)
{
}

/* Allocates a key; callback of the tree. */
static RBTNode *
new_key(void *index)
{
	return palloc(key_size(index));
}

/*
 * Adds the key of the version in the slot to the tree, unless an equal one is
 * there. Returns it as it is in the tree, or NULL if the predicate excludes the
 * version. The values are copied to the current memory context.
 */
static VersionKey *
keep_key(Feeder *feeder, RBTree *tree)
{
	TupleDesc	desc = RelationGetDescr(feeder->index);
	VersionKey	key;
	VersionKey *kept;
	bool		is_new;

	if (!feeder_values(feeder))
		return NULL;
	memcpy(key.values, feeder->values, sizeof(key.values));
	memcpy(key.isnull, feeder->isnull, sizeof(key.isnull));
	kept = (VersionKey *) rbt_insert(tree, &key.node, &is_new);
	for (int i = 0; is_new && i < desc->natts; i++)
	{
		ZcAttr		att = zc_attr(desc, i);

		kept->values[i] = kept->isnull[i] ? (Datum) 0 :
			datumCopy(kept->values[i], att->attbyval, att->attlen);
	}
	return kept;
}

/*
 * Returns whether the version before the one in the slot has other bytes in the
 * compared columns, and one of the two has a value of these columns out of line
 * (BUILD-5).
 */
static bool
changed_out_of_line(Feeder *feeder, const ZHistoryVersion *before)
{
	TupleDesc	desc = RelationGetDescr(feeder->rel);
	bool		changed = false;
	bool		external = false;
	int			i = -1;

	while ((i = bms_next_member(feeder->compared, i)) >= 0)
	{
		AttrNumber	attno = i + FirstLowInvalidHeapAttributeNumber;
		ZcAttr		att = zc_attr(desc, attno - 1);
		bool		anull,
					bnull;
		Datum		a = slot_getattr(feeder->slot, attno, &anull);
		Datum		b = ztuple_getattr(before->row, before->len, desc, attno, &bnull,
									   RelationGetRelationName(feeder->rel), NULL);

		if (anull != bnull || (!anull && !datumIsEqual(a, b, att->attbyval, att->attlen)))
			changed = true;
		if (att->attlen == -1 && ((!anull && VARATT_IS_EXTERNAL(DatumGetPointer(a))) ||
								  (!bnull && VARATT_IS_EXTERNAL(DatumGetPointer(b)))))
			external = true;
	}
	return changed && external;
}

/*
 * Feeds the keys of all versions of the row whose newest live version is in the
 * slot (BUILD-5). Returns false if the page must be loaded again; nothing has
 * been fed then.
 */
static bool
feed_all_keys(Feeder *feeder, ZHistory *history, BlockNumber block, OffsetNumber off, bool alive)
{
	MemoryContext caller = MemoryContextSwitchTo(feeder->keys);
	ZHistoryVersion version;
	ZHistoryResult result;
	RBTree	   *keys;
	RBTreeIterator iterator;
	VersionKey *newest;
	VersionKey *key;
	ItemPointerData tid;
	bool		broken = false;

	Assert(feeder->all_keys);
	ItemPointerSet(&tid, block, off);
	keys = rbt_create(key_size(feeder->index), compare_keys, keep_first, new_key, NULL,
					  feeder->index);
	newest = keep_key(feeder, keys);
	while ((result = zhistory_next(history, &version)) == ZHISTORY_VERSION)
	{
		CHECK_FOR_INTERRUPTS();
		if (!version.live)
			continue;
		broken = changed_out_of_line(feeder, &version);
		if (broken)
			break;
		take_version(feeder, &version, block, off);
		(void) keep_key(feeder, keys);
	}
	MemoryContextSwitchTo(caller);
	if (result != ZHISTORY_RETRY)
	{
		if (broken)
			feeder->info->ii_BrokenHotChain = true;
		rbt_begin_iterate(keys, LeftRightWalk, &iterator);
		while ((key = (VersionKey *) rbt_iterate(&iterator)) != NULL)
			feeder->callback(feeder->index, &tid, key->values, key->isnull,
							 alive && key == newest, feeder->callback_state);
	}
	MemoryContextReset(feeder->keys);
	return result != ZHISTORY_RETRY;
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
 * Feeds one row of an ordinary build (BUILD-1, BUILD-3). Returns
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

	Assert(!feeder->all_versions);
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
	{
		if (feeder->mark_is_lost)
			elog(ERROR, "index \"%s\" cannot be built by parallel workers beside kept old versions",
				 RelationGetRelationName(feeder->index));	/* BUILD-7 */
		feeder->info->ii_BrokenHotChain = true;
	}
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
	ItemPointerData tid;

	if (ItemIdIsRedirected(lp))
		return false;
	if (!ItemIdIsNormal(lp))
		return true;
	row = zpage_row(page, lp);
	header = zheader_get(row);
	if (!zslots_row_settled(page, header, oldest))
		return false;
	if (!ZH_LIVE(header))
		return true;
	ItemPointerSet(&tid, block, off);
	ztts_store_copy(feeder->slot, row, zpage_row_length(page, lp), &tid,
					RelationGetRelid(feeder->rel));
	ztts_set_author(feeder->slot, InvalidZXid, FirstCommandId, InvalidUndoPtr);
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
			(feeder->all_versions ? feed_all_versions(feeder, history, block, off)
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
 * Returns whether a build may leave out versions that snapshots of standbys
 * need (BUILD-3). No other transaction sees a version in a table that our
 * transaction has created; for such a table the server returns a horizon that
 * takes no other snapshot into account, so a conflict would end nearly all
 * queries of standbys, also with hot_standby_feedback.
 */
static bool
may_leave_out(Relation rel, const ZScan *scan)
{
	return RelationNeedsWAL(rel) && scan->nblocks > 0 &&
		rel->rd_createSubid == InvalidSubTransactionId;
}

/*
 * Feeds the newest versions, or all in "any visible" mode. Ends snapshots of
 * standbys that are older than the horizon of this build (BUILD-3). Keys and
 * expressions may need values out of line of old versions.
 */
static void
feed_newest(Feeder *feeder, ZScan *scan, bool progress)
{
	bool		holds;
	TransactionId horizon = zhistory_hold(feeder->rel,
										  GetOldestNonRemovableTransactionId(feeder->rel),
										  &holds);
	ZHistory   *history;


	/* if the mark would be lost, there are no older versions (BUILD-7) */
	history = zhistory_create(feeder->rel, feeder->mark_is_lost ? horizon :
							  feeder_horizon(feeder, horizon));
	zhistory_reads_values(history, holds);
	Assert(!IsMVCCSnapshot(scan->base.rs_snapshot));
	if (may_leave_out(feeder->rel, scan))
		zu_log_conflict(horizon);

	while (zscan_next_block(scan, ForwardScanDirection))
	{
		report_done(scan, progress);
		feed_block(feeder, scan, history, scan->block);
	}
	zhistory_free(history);
	zhistory_release(holds);
}

/*
 * zheap_index_build_range_scan: See zscan.h. A concurrent build gets an MVCC
 * snapshot, any other one SnapshotAny; a scan that the caller passes (a
 * parallel build) has a snapshot already.
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
	feeder.all_versions = anyvisible || is_rebuilt_summary(index);
	if (sscan == NULL)
	{
		Snapshot	snapshot = SnapshotAny;

		if (info->ii_Concurrent)
			snapshot = registered = RegisterSnapshot(GetTransactionSnapshot());
		sscan = table_beginscan_strat(rel, snapshot, 0, NULL, true, allow_sync);
	}
	scan = (ZScan *) sscan;
	feeder.mark_is_lost = sscan->rs_parallel != NULL && !zbuild_is_btree(index);
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
	 * may have been rebuilt meanwhile (build in zbtree/zbtree.c).
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
 * scan's snapshot sees (BUILD-3b). A snapshot taken after the record has been
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

/* zheap_index_validate_scan: See zscan.h. */
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
