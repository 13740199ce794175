/*
 * vacuum/zvacuum.c - VACUUM of one zheap table.
 *
 * Called through zam.c under ShareUpdateExclusiveLock. VACUUM of a zheap table
 * frees line pointers of rows that no snapshot sees and removes the index
 * entries that point to them, updates the free space map and the visibility
 * map, truncates the empty tail of the file, and updates the statistics in the
 * catalog. Rows need no freezing, since slots hold 64-bit xids, so VACUUM
 * (FREEZE) and vacuums against wraparound do the same.
 *
 * The first pass reads all blocks but those that the visibility map calls
 * all-visible: there nothing is to be undone, pruned or noted (VMAP-1), and no
 * overflow page to be taken away, since attaching one clears the bit. It
 * undoes aborted changes, prunes, and notes LP_DEAD line pointers. Whenever
 * the memory for these is full, and at the end, the second pass cleans the
 * indexes of them and makes them LP_UNUSED. At most one table page is locked
 * at any time, and none while the free space map is updated. While a table
 * page is locked, its overflow page, undo pages or a page of the visibility
 * map may be locked as well; so may, before it, a leaf page of a zbtree index
 * whose stale entries are looked at (zstale.c).
 *
 * Rules:
 *	VACUUM-1	A line pointer becomes LP_UNUSED only after this vacuum has
 *		removed its TID from every index. Otherwise it stays LP_DEAD for a
 *		later vacuum.
 *	VACUUM-2	A block is truncated only if it has no line pointer and the
 *		transactions of all its slots are before `oldest`, so that no undo
 *		refers to it.
 *	VACUUM-3	relfrozenxid is only set to values that zu_freeze_limit
 *		returns.
 *
 * Crash points: each change of a page is one WAL record. A crash between the
 * passes leaves LP_DEAD line pointers for the next vacuum.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/multixact.h"
#include "access/visibilitymap.h"
#include "catalog/storage.h"
#include "commands/progress.h"
#include "commands/vacuum.h"
#include "common/fault.h"
#include "discard/discard.h"
#include "dml/zdml.h"
#include "miscadmin.h"
#include "mvcc/zpageview.h"
#include "mvcc/zvis.h"
#include "mvcc/zxid.h"
#include "mvcc/zvismap.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/autovacuum.h"
#include "rollback/zrollback.h"
#include "storage/freespace.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "undo/undo_temp.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "vacuum/zdead.h"
#include "vacuum/zstale.h"
#include "vacuum/zvacreport.h"
#include "vacuum/zvacuum.h"
#include "zbtree/zbtree.h"

/*
 * The tail is truncated if it has this many empty blocks, or this fraction of
 * the table.
 */
#define TRUNCATE_MIN_BLOCKS 1000
#define TRUNCATE_FRACTION 16

/*
 * Attempts to get the exclusive lock that truncation needs, and time between.
 */
#define TRUNCATE_LOCK_TRIES 100
#define TRUNCATE_LOCK_WAIT_MS 50
/* Blocks between two tests whether another session waits for the table. */
#define TRUNCATE_CHECK_BLOCKS 32

/* How often and how long to wait for a pass that another process makes. */
#define DISCARD_TRIES 20
#define DISCARD_WAIT_MS 10

/*
 * With INDEX_CLEANUP auto indexes are not cleaned if less than this fraction of
 * the pages has dead line pointers, and these take less memory, as in heap.
 */
#define BYPASS_FRACTION 0.02
#define BYPASS_BYTES ((int64) 32 * 1024 * 1024)

/*
 * Blocks between two tests whether the table is older than vacuum_failsafe_age.
 */
#define URGENT_CHECK_BLOCKS ((BlockNumber) (((uint64) 4 * 1024 * 1024 * 1024) / BLCKSZ))

/*
 * All-visible blocks are skipped in runs of at least this many; shorter runs
 * are read, as in heap, so that the kernel's read-ahead works.
 */
#define SKIP_MIN_BLOCKS 32

/* Blocks between two updates of the upper levels of the free space map. */
#define FSM_VACUUM_BLOCKS 8192

typedef struct ZVacuum
{
	Relation	rel;
	BufferAccessStrategy strategy;
	int			level;			/* of messages */
	Relation   *indexes;
	int			nindexes;
	IndexBulkDeleteResult **index_stats;
	bool		clean_indexes;	/* of dead rows' entries */
	bool		finish_indexes;
	bool		may_bypass;		/* need not clean indexes of few TIDs */
	bool		may_truncate;
	bool		may_skip;		/* all-visible blocks */
	bool		urgent;			/* older than vacuum_failsafe_age */
	BlockNumber nblocks;
	BlockNumber last_used;		/* 1 + the last block found not empty */
	Buffer		map;			/* pinned page of the visibility map */
	BlockNumber fsm_done;		/* upper levels of the free space map are done
								 * up to here */
	ZDead	   *dead;			/* noted line pointers */
	BlockNumber last_dead;		/* the last block with noted line pointers */
	ZStale	   *stale;			/* noted rows with stale index keys */
	ZPageView  *view;			/* to count the rows of pages with changes in
								 * progress; NULL until it is needed */
	int64		nfreed;			/* blocks done by this second pass */
	ZVacuumFigures done;		/* of dead line pointers and stale keys, what
								 * the first pass has found */
} ZVacuum;

/* Returns how many kilobytes the noted line pointers may take. */
static int
dead_memory(void)
{
	if (MyBackendType == B_AUTOVAC_WORKER && autovacuum_work_mem != -1)
		return autovacuum_work_mem;
	return maintenance_work_mem;
}

/* ---- second pass ---- */

/*
 * Returns what the index AM needs to know. With 'estimated' the number of rows
 * is that of the catalog, because the table has not been read to its end.
 */
static IndexVacuumInfo
index_info(ZVacuum *vac, int i, bool estimated)
{
	IndexVacuumInfo info = {0};

	Assert(i >= 0 && i < vac->nindexes);
	info.index = vac->indexes[i];
	zc_set_heaprel(&info, vac->rel);
	info.analyze_only = false;
	info.estimated_count = estimated || vac->done.scanned < vac->nblocks;
	info.message_level = DEBUG2;
	info.num_heap_tuples = estimated ? Max(vac->rel->rd_rel->reltuples, 0) : vac->done.live_rows;
	info.strategy = vac->strategy;
	return info;
}

/*
 * Returns the space for new rows on the locked page in buf, for the free space
 * map: a writer that needs the space of rows that old snapshots need saves
 * them.
 */
static Size
page_free_space(Relation rel, Buffer buf)
{
	Page		page = BufferGetPage(buf);

	if (PageIsNew(page))
		return zpage_space_for_map(ZPAGE_NEW_SPACE);
	if (zpage_find_offset(page) == InvalidOffsetNumber)
		return 0;
	return zpage_space_for_map(zheap_free_space(rel, buf));
}

/*
 * Returns true if the page may be truncated (VACUUM-2). The page must be
 * locked.
 */
static bool
page_is_empty(Page page)
{
	ZXid		oldest;

	if (PageIsNew(page))
		return true;
	oldest = zslots_oldest(page);
	if (PageGetMaxOffsetNumber(page) != 0 || zpage_has_overflow(page))
		return false;
	for (int i = 1; i <= zpage_nslots(page); i++)
	{
		ZSlotAge	age = zslot_age(zpage_slot(page, i), oldest);

		if (age == ZAGE_LOCKS || age == ZAGE_YOUNG)
			return false;
	}
	return true;
}

/*
 * Records the free space of a block, and from time to time updates the upper
 * levels of the free space map.
 */
static void
record_free_space(ZVacuum *vac, BlockNumber block, Size space)
{
	Assert(space <= BLCKSZ && block >= vac->fsm_done);
	RecordPageWithFreeSpace(vac->rel, block, space);
	if (block >= vac->fsm_done + FSM_VACUUM_BLOCKS)
	{
		FreeSpaceMapVacuumRange(vac->rel, vac->fsm_done, block);
		vac->fsm_done = block;
	}
}

/*
 * Makes the noted line pointers of a block LP_UNUSED. Callback of
 * zdead_each_block. Raises ERRCODE_DATA_CORRUPTED for a damaged page.
 */
static void
free_block_items(BlockNumber block, const OffsetNumber *noted, int nnoted, void *arg)
{
	ZVacuum    *vac = arg;
	Buffer		buf;
	Page		page;
	OffsetNumber offsets[ZHEAP_MAX_OFFSET];
	int			n = 0;
	Size		space;

	Assert(nnoted > 0 && nnoted <= ZHEAP_MAX_OFFSET && block <= vac->last_dead);
	zc_vacuum_delay_point();
	buf = ReadBufferExtended(vac->rel, MAIN_FORKNUM, block, RBM_NORMAL, vac->strategy);
	page = BufferGetPage(buf);
	visibilitymap_pin(vac->rel, block, &vac->map);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	if (!zpage_is_valid(page))
		zvis_corrupt_page(vac->rel, block, page, InvalidOffsetNumber);
	for (int i = 0; i < nnoted; i++)
		if (noted[i] <= PageGetMaxOffsetNumber(page) && ItemIdIsDead(PageGetItemId(page, noted[i])))
			offsets[n++] = noted[i];
	zheap_make_unused(vac->rel, buf, offsets, n);
	vac->done.visible += zvismap_mark(vac->rel, buf, vac->map) ? 1 : 0;
	if (!page_is_empty(page))
		vac->last_used = Max(vac->last_used, block + 1);
	space = page_free_space(vac->rel, buf);
	UnlockReleaseBuffer(buf);
	RecordPageWithFreeSpace(vac->rel, block, space);
	pgstat_progress_update_param(PROGRESS_VACUUM_HEAP_BLKS_VACUUMED, ++vac->nfreed);
}

/* Makes all noted line pointers LP_UNUSED and forgets them. */
static void
free_items(ZVacuum *vac)
{
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_VACUUM_HEAP);
	vac->nfreed = 0;
	zdead_each_block(vac->dead, free_block_items, vac);
	zdead_empty(vac->dead);
}

/* Forgets the noted line pointers, which stay LP_DEAD. */
static void
leave_noted(ZVacuum *vac)
{
	if (zdead_count(vac->dead) == 0)
		return;
	vac->last_used = Max(vac->last_used, vac->last_dead + 1);
	vac->done.indexes = vac->urgent ? ZVACUUM_FAILSAFE : ZVACUUM_BYPASSED;
	zdead_empty(vac->dead);
}

/*
 * Returns true if the table is older than vacuum_failsafe_age. From the first
 * time on the vacuum does, as in heap, only what is necessary to advance
 * relfrozenxid, without cost delays.
 */
static bool
is_urgent(ZVacuum *vac)
{
	Form_pg_class form = vac->rel->rd_rel;

	if (vac->urgent || !TransactionIdIsNormal(form->relfrozenxid) ||
		!MultiXactIdIsValid(form->relminmxid) ||
		!zc_vacuum_is_urgent(form->relfrozenxid, form->relminmxid))
		return vac->urgent;
	vac->urgent = true;
	vac->clean_indexes = vac->finish_indexes = vac->may_truncate = false;
	vac->done.indexes = ZVACUUM_FAILSAFE;
	vac->strategy = NULL;
	zc_vacuum_set_urgent();
	VacuumCostActive = false;
	VacuumCostBalance = 0;
	ereport(WARNING,
			(errmsg("vacuum of zheap table \"%s\" bypasses index cleanup and truncation as a "
					"failsafe", RelationGetRelationName(vac->rel)),
			 errdetail("The table's relfrozenxid or relminmxid is older than "
					   "\"vacuum_failsafe_age\" or \"vacuum_multixact_failsafe_age\" allows."),
			 errhint("Run VACUUM again once the age of the table is below "
					 "\"vacuum_failsafe_age\". If this happens repeatedly, see zundo.stat_horizon "
					 "for what holds back the oldest transaction.")));
	return true;
}

/*
 * Removes the noted TIDs from all indexes. Returns false if the vacuum has
 * become urgent, so that some indexes were not cleaned.
 */
static bool
clean_indexes(ZVacuum *vac)
{
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_VACUUM_INDEX);
	if (is_urgent(vac))
		return false;
	zc_progress_indexes(vac->nindexes, 0);
	if (zdead_is_parallel(vac->dead))
		zdead_clean_together(vac->dead, Max(vac->rel->rd_rel->reltuples, 0),
							 vac->done.index_passes);
	else
		for (int i = 0; i < vac->nindexes; i++)
		{
			IndexVacuumInfo info = index_info(vac, i, true);

			if (i > 0 && is_urgent(vac))
				return false;
			vac->index_stats[i] = zdead_clean_index(vac->dead, &info, vac->index_stats[i]);
			zc_progress_indexes(vac->nindexes, i + 1);
		}
	zc_progress_indexes(0, 0);
	vac->done.indexes = ZVACUUM_CLEANED;
	pgstat_progress_update_param(PROGRESS_VACUUM_NUM_INDEX_VACUUMS, ++vac->done.index_passes);
	return true;
}

/*
 * Removes the entries that nobody needs of rows with stale keys from all zbtree
 * indexes, then clears the flags of these rows (ZBTREE-9). With parallel
 * workers the statistics of indexes are theirs.
 */
static void
clean_stale(ZVacuum *vac)
{
	if (zstale_count(vac->stale) == 0 || is_urgent(vac))
		return;
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_VACUUM_INDEX);
	for (int i = 0; i < vac->nindexes; i++)
	{
		IndexVacuumInfo info = index_info(vac, i, true);
		bool		parallel = zdead_is_parallel(vac->dead);
		IndexBulkDeleteResult *stats = parallel ? NULL : vac->index_stats[i];

		if (!zbtree_is(vac->indexes[i]))
			continue;
		if (is_urgent(vac))
			return;
		stats = zstale_clean_index(vac->stale, &info, stats);
		if (parallel)
			pfree(stats);
		else
			vac->index_stats[i] = stats;
	}
	ZUNDO_FAULT("keys-cleaned");
	vac->done.visible += zstale_clear(vac->stale, vac->strategy, &vac->map);
}

/*
 * Removes the noted TIDs from the indexes, then frees line pointers (VACUUM-1).
 * Stale keys come before that, for they go by the LSN of the pages.
 */
static void
clean_noted(ZVacuum *vac)
{
	bool		cleaned = true;

	if (zdead_count(vac->dead) > 0)
		cleaned = clean_indexes(vac);
	clean_stale(vac);
	zstale_empty(vac->stale);
	if (zdead_count(vac->dead) == 0)
		return;
	if (!cleaned)
	{
		leave_noted(vac);
		return;
	}
	ZUNDO_FAULT("indexes-cleaned");
	free_items(vac);
}

/*
 * After the first pass: removes the remaining noted TIDs, or leaves them to a
 * later vacuum if they are few.
 */
static void
clean_rest(ZVacuum *vac)
{
	if (vac->may_bypass && vac->done.index_passes == 0 &&
		vac->done.dead_blocks < vac->nblocks * BYPASS_FRACTION &&
		vac->done.stale_blocks < Max(vac->nblocks * BYPASS_FRACTION, 1) &&
		zdead_count(vac->dead) * (int64) sizeof(ItemPointerData) < BYPASS_BYTES)
		leave_noted(vac);
	else
		clean_noted(vac);
}

/* ---- first pass ---- */

/*
 * Returns whether a transaction in progress has changed rows of the page, which
 * is locked. A damaged page is counted as it stands: to read it would be an
 * error, and VACUUM has other work to do on it.
 */
static bool
has_change_in_progress(Relation rel, BlockNumber block, Page page)
{
	static ZSlotView slots;
	bool		found = false;

	zslots_copy(rel, block, page, &slots);
	for (int s = 1; s <= slots.n; s++)
	{
		ZSlotAge	age = zslot_age(&slots.s[s], slots.oldest);

		if (age == ZAGE_LOST)
			return false;
		found = found || (age == ZAGE_YOUNG && zxid_status_at(ZSLOT_XID(&slots.s[s]), slots.oldest)
						  == ZXID_IN_PROGRESS);
	}
	return found && zpage_rows_ok(page);
}

/*
 * Counts the rows of a pruned page, which is locked exclusively, as they stand
 * there. Line pointers that are LP_DEAD count as neither live nor dead, as in
 * heap: this vacuum removes them, or leaves them deliberately.
 */
static void
count_rows(ZVacuum *vac, Page page)
{
	OffsetNumber maxoff = Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET);

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsNormal(lp) && ZH_LIVE(zheader_get(zpage_row(page, lp))))
			vac->done.live_rows += 1;
		else if (ItemIdIsUsed(lp) && !ItemIdIsDead(lp))
			vac->done.dead_rows += 1;
	}
}

/*
 * Counts the rows of a page with changes in progress as if these had not
 * happened, as heap and ANALYZE do: their transaction adds them when it
 * commits. buf is pinned and not locked.
 */
static void
count_committed_rows(ZVacuum *vac, Buffer buf)
{
	int			ndead = 0;
	Page		page;

	Assert(zc_buffer_unlocked(buf));
	if (vac->view == NULL)
		vac->view = zpageview_take(CurrentMemoryContext);
	zvis_page(vac->rel, buf, SnapshotSelf, vac->view);
	page = vac->view->page.data;
	for (OffsetNumber off = FirstOffsetNumber; off <= PageGetMaxOffsetNumber(page); off++)
		ndead += ItemIdIsDead(PageGetItemId(page, off)) ? 1 : 0;
	vac->done.live_rows += vac->view->nrows;
	vac->done.dead_rows += vac->view->dead_rows - ndead;
}

/*
 * Notes the dead line pointers of a pruned page, which is locked exclusively.
 * If there are no indexes, frees them at once.
 */
static void
note_dead(ZVacuum *vac, Buffer buf, BlockNumber block)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber dead[ZHEAP_MAX_OFFSET];
	int			ndead = 0;
	OffsetNumber maxoff = Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET);

	Assert(zc_buffer_exclusive(buf));
	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
		if (ItemIdIsDead(PageGetItemId(page, off)))
			dead[ndead++] = off;
	if (ndead == 0)
		return;
	vac->done.dead_blocks++;
	vac->done.dead_items += ndead;
	if (vac->nindexes == 0)
		zheap_make_unused(vac->rel, buf, dead, ndead);
	else if (vac->clean_indexes)
	{
		zdead_note(vac->dead, block, dead, ndead);
		vac->last_dead = block;
	}
}

/*
 * Returns the number of line pointers of rows, and of what is left of rows,
 * that are not LP_DEAD.
 */
static int
count_items(Page page)
{
	int			n = 0;
	OffsetNumber maxoff = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		n += ItemIdIsUsed(lp) && !ItemIdIsDead(lp) ? 1 : 0;
	}
	return n;
}

/*
 * Does the first pass for one block. Raises ERRCODE_DATA_CORRUPTED for a
 * damaged page.
 */
static void
vacuum_block(ZVacuum *vac, BlockNumber block)
{
	Buffer		buf = ReadBufferExtended(vac->rel, MAIN_FORKNUM, block, RBM_NORMAL, vac->strategy);
	Page		page = BufferGetPage(buf);
	Size		space;
	bool		noted = false;
	bool		unfinished = false;

	visibilitymap_pin(vac->rel, block, &vac->map);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	if (!PageIsNew(page))
	{
		int64		before = zdead_count(vac->dead);
		int			items;

		if (!zpage_is_valid(page))
			zvis_corrupt_page(vac->rel, block, page, InvalidOffsetNumber);
		vac->done.undone += zrollback_page(buf, vac->rel);
		zoverflow_release(vac->rel, buf);
		items = count_items(page);
		zheap_prune_page(vac->rel, buf);
		vac->done.rows_removed += items - count_items(page);
		unfinished = has_change_in_progress(vac->rel, block, page);
		if (!unfinished)
			count_rows(vac, page);
		note_dead(vac, buf, block);
		noted = zdead_count(vac->dead) > before;
		vac->done.visible += zvismap_mark(vac->rel, buf, vac->map) ? 1 : 0;
		if (vac->clean_indexes && zstale_note(vac->stale, buf))
			vac->done.stale_blocks++;
	}
	/* a page with noted items is tested when they have been freed */
	if (!noted && !page_is_empty(page))
		vac->last_used = Max(vac->last_used, block + 1);
	space = page_free_space(vac->rel, buf);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (unfinished)
		count_committed_rows(vac, buf);
	ReleaseBuffer(buf);
	record_free_space(vac, block, space);
}

/*
 * Returns the next block to read, from this one on. *run_end is the end of the
 * last run of all-visible blocks that was found, 0 at first. The last block is
 * always read, to find out whether the table has an empty tail.
 */
static BlockNumber
next_block(ZVacuum *vac, BlockNumber block, BlockNumber *run_end)
{
	BlockNumber end = block;

	if (!vac->may_skip || block < *run_end)
		return block;
	while (end + 1 < vac->nblocks &&
		   (visibilitymap_get_status(vac->rel, end, &vac->map) & VISIBILITYMAP_ALL_VISIBLE) != 0)
	{
		CHECK_FOR_INTERRUPTS();
		end++;
	}
	*run_end = end;
	return end - block < SKIP_MIN_BLOCKS ? block : end;
}

/* Does the first pass, and the second one as often as necessary. */
static void
scan_table(ZVacuum *vac)
{
	BlockNumber checked = 0;
	BlockNumber run_end = 0;

	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_SCAN_HEAP);
	pgstat_progress_update_param(PROGRESS_VACUUM_TOTAL_HEAP_BLKS, vac->nblocks);
	for (BlockNumber block = 0; block < vac->nblocks; block++)
	{
		block = next_block(vac, block, &run_end);
		zc_vacuum_delay_point();
		if (block - checked >= URGENT_CHECK_BLOCKS)
		{
			checked = block;
			if (is_urgent(vac))
				leave_noted(vac);
		}
		if (zdead_is_full(vac->dead) || zstale_is_full(vac->stale))
		{
			clean_noted(vac);
			pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_SCAN_HEAP);
		}
		vacuum_block(vac, block);
		vac->done.scanned++;
		pgstat_progress_update_param(PROGRESS_VACUUM_HEAP_BLKS_SCANNED, block + 1);
	}
	vac->done.live_rows = vac_estimate_reltuples(vac->rel, vac->nblocks, vac->done.scanned,
												 vac->done.live_rows);
	clean_rest(vac);
	FreeSpaceMapVacuumRange(vac->rel, vac->done.index_passes > 0 ? 0 : vac->fsm_done, vac->nblocks);
}

/* Calls amvacuumcleanup of every index. */
static void
finish_indexes(ZVacuum *vac)
{
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_INDEX_CLEANUP);
	zc_progress_indexes(vac->nindexes, 0);
	if (zdead_is_parallel(vac->dead))
		zdead_finish_together(vac->dead, vac->done.live_rows, vac->done.index_passes,
							  vac->done.scanned < vac->nblocks);
	else
		for (int i = 0; i < vac->nindexes; i++)
		{
			IndexVacuumInfo info = index_info(vac, i, false);

			vac->index_stats[i] = vac_cleanup_one_index(&info, vac->index_stats[i]);
			zc_progress_indexes(vac->nindexes, i + 1);
		}
	zc_progress_indexes(0, 0);
}

/* Updates pg_class for the indexes whose sizes are known now. */
static void
update_index_statistics(ZVacuum *vac)
{
	for (int i = 0; i < vac->nindexes; i++)
	{
		IndexBulkDeleteResult *stats = vac->index_stats[i];

		if (stats != NULL && !stats->estimated_count)
			zc_update_relstats(vac->indexes[i], stats->num_pages, stats->num_index_tuples, 0, false,
							   InvalidTransactionId, InvalidMultiXactId, NULL, NULL);
	}
}

/* ---- the empty tail ---- */

/* Tries to lock the table exclusively without blocking others for long. */
static bool
lock_for_truncation(Relation rel)
{
	for (int tries = 0; tries < TRUNCATE_LOCK_TRIES; tries++)
	{
		if (ConditionalLockRelation(rel, AccessExclusiveLock))
			return true;
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 TRUNCATE_LOCK_WAIT_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
	return false;
}

/*
 * Returns 1 + the last block that is not empty, reading backwards from
 * nblocks. The table must be locked exclusively. Stops early if another
 * session waits for the table.
 */
static BlockNumber
find_tail(ZVacuum *vac, BlockNumber nblocks)
{
	while (nblocks > vac->last_used)
	{
		Buffer		buf;
		bool		empty;

		CHECK_FOR_INTERRUPTS();
		if (nblocks % TRUNCATE_CHECK_BLOCKS == 0 &&
			LockHasWaitersRelation(vac->rel, AccessExclusiveLock))
		{
			ereport(vac->level,
					(errmsg("table \"%s\": suspending truncate due to conflicting lock request",
							RelationGetRelationName(vac->rel))));
			break;
		}
		buf = ReadBufferExtended(vac->rel, MAIN_FORKNUM, nblocks - 1, RBM_NORMAL, vac->strategy);
		LockBuffer(buf, BUFFER_LOCK_SHARE);
		empty = page_is_empty(BufferGetPage(buf));
		UnlockReleaseBuffer(buf);
		if (!empty)
			break;
		nblocks--;
	}
	return nblocks;
}

/* Truncates the empty tail of the file if that is worthwhile. */
static void
truncate_tail(ZVacuum *vac)
{
	BlockNumber empty = vac->nblocks - vac->last_used;
	BlockNumber now;
	BlockNumber keep;

	if (empty == 0 || (empty < TRUNCATE_MIN_BLOCKS && empty < vac->nblocks / TRUNCATE_FRACTION))
		return;
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_TRUNCATE);
	if (!lock_for_truncation(vac->rel))
	{
		ereport(vac->level,
				(errmsg("table \"%s\": stopping truncate due to conflicting lock request",
						RelationGetRelationName(vac->rel))));
		return;
	}
	now = zrel_nblocks(vac->rel);
	/* if the table was extended meanwhile, its tail is in use */
	keep = (now == vac->nblocks) ? find_tail(vac, now) : now;
	if (keep < now)
	{
		RelationTruncate(vac->rel, keep);
		vac->done.truncated = now - keep;
		vac->nblocks = keep;
		ereport(vac->level,
				(errmsg("table \"%s\": truncated %u to %u pages",
						RelationGetRelationName(vac->rel), now, keep)));
	}
	UnlockRelation(vac->rel, AccessExclusiveLock);
}

/* ---- ends ---- */

/*
 * Advances `oldest` as far as possible, so that rows that died recently are
 * found to be dead; VACUUM itself holds back no horizon. Between the tables of
 * a VACUUM of many nothing may have changed; then there is nothing to do.
 * Leaves large aborted transactions to the worker; in single-user mode, where
 * there is none, undoes all of them. If a worker runs, it makes the pass, and
 * we wait for that, but not for long: if an old snapshot exists, reading all
 * undo that is kept may take longer than the rest of VACUUM.
 */
static void
advance_oldest(Relation rel)
{
	ZuDiscardStats stats;

	if (RelationUsesLocalBuffers(rel))
	{
		zrollback_temp();
		return;
	}
	if (zu_oldest_is_horizon() || zu_discard_by_worker())
		return;
	for (int tries = 0; tries < DISCARD_TRIES; tries++)
	{
		if (zu_discard(IsUnderPostmaster ? ZU_UNDO_SMALL : ZU_UNDO_ALL, false, &stats))
			break;
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 DISCARD_WAIT_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

/*
 * Returns the new relfrozenxid (VACUUM-3), or InvalidTransactionId to keep it.
 */
static TransactionId
frozen_xid(Relation rel)
{
	TransactionId xid;

	/*
	 * The undo of a temporary table has been discarded by now, so the status
	 * of its authors is not needed any more.
	 */
	if (RelationUsesLocalBuffers(rel))
		return zu_temp_pending() ? InvalidTransactionId : GetOldestNonRemovableTransactionId(rel);
	xid = zxid_to_xid(zu_freeze_limit());

	return TransactionIdIsNormal(xid) ? xid : InvalidTransactionId;
}

/* Updates pg_class and reports to the cumulative statistics system. */
static void
update_statistics(ZVacuum *vac, TimestampTz start)
{
	ZVacuumFigures *done = &vac->done;
	BlockNumber all_visible;

	done->pages = vac->nblocks;
	done->frozenxid[0] = vac->rel->rd_rel->relfrozenxid;
	done->frozenxid[1] = frozen_xid(vac->rel);
	done->minmulti[0] = vac->rel->rd_rel->relminmxid;
	done->minmulti[1] = GetOldestMultiXactId();
	visibilitymap_count(vac->rel, &all_visible, NULL);
	zc_update_relstats(vac->rel, vac->nblocks, done->live_rows, all_visible, vac->nindexes > 0,
					   done->frozenxid[1], done->minmulti[1], &done->frozenxid_updated,
					   &done->minmulti_updated);
	zc_report_vacuum(vac->rel, done->live_rows, done->dead_rows, start);
}

/*
 * Returns palloc'd copies of the names of the indexes, which are closed when
 * they are reported.
 */
static char **
index_names(ZVacuum *vac)
{
	char	  **names = palloc(Max(vac->nindexes, 1) * sizeof(char *));

	for (int i = 0; i < vac->nindexes; i++)
		names[i] = pstrdup(RelationGetRelationName(vac->indexes[i]));
	return names;
}

/*
 * zheap_relation_vacuum: See zvacuum.h. The steps are those of README.md, in
 * their order. What is skipped depends on params and on the age of the table
 * (is_urgent).
 */
void
zheap_relation_vacuum(Relation rel, ZC_VACUUM_PARAMS * params, BufferAccessStrategy bstrategy)
{
	ZVacuum		vac = {0};
	ZVacuumUsage usage;
	char	  **names;

	Assert(CheckRelationLockedByMe(rel, ShareUpdateExclusiveLock, true));
	zu_attach_database();
	zvacreport_begin(rel, params, &usage);
	pgstat_progress_start_command(PROGRESS_COMMAND_VACUUM, RelationGetRelid(rel));
	advance_oldest(rel);
	vac.rel = rel;
	vac.strategy = bstrategy;
	vac.level = (params->options & VACOPT_VERBOSE) != 0 ? INFO : DEBUG2;
	vac.done.cutoff = RelationUsesLocalBuffers(rel) ? GetOldestNonRemovableTransactionId(rel)
		: zxid_to_xid(zu_oldest());
	vac_open_indexes(rel, RowExclusiveLock, &vac.nindexes, &vac.indexes);
	vac.index_stats = palloc0(Max(vac.nindexes, 1) * sizeof(IndexBulkDeleteResult *));
	names = index_names(&vac);
	vac.clean_indexes = vac.finish_indexes = (params->index_cleanup != VACOPTVALUE_DISABLED);
	vac.may_bypass = (params->index_cleanup != VACOPTVALUE_ENABLED);
	vac.may_truncate = (params->truncate != VACOPTVALUE_DISABLED);
	/* without reltuples, rows on skipped blocks cannot be estimated */
	vac.may_skip = (params->options & VACOPT_DISABLE_PAGE_SKIPPING) == 0 &&
		rel->rd_rel->reltuples >= 0;
	vac.nblocks = vac.done.pages_before = zrel_nblocks(rel);
	if (!vac.clean_indexes && vac.nindexes > 0)
		vac.done.indexes = ZVACUUM_BYPASSED;
	(void) is_urgent(&vac);
	vac.dead = zdead_begin(rel, vac.indexes, vac.nindexes, vac.clean_indexes ? params->nworkers
						   : -1, dead_memory(),
						   (params->options & VACOPT_VERBOSE) != 0, vac.strategy);
	vac.stale = zstale_begin(rel, dead_memory());

	scan_table(&vac);
	zstale_end(vac.stale);
	if (vac.view != NULL)
		zpageview_give_back(vac.view);
	if (BufferIsValid(vac.map))
		ReleaseBuffer(vac.map);
	if (!is_urgent(&vac) && vac.finish_indexes)
		finish_indexes(&vac);
	zdead_end(vac.dead, vac.index_stats);
	if (vac.finish_indexes)
		update_index_statistics(&vac);
	vac_close_indexes(vac.nindexes, vac.indexes, NoLock);
	if (vac.may_truncate)
		truncate_tail(&vac);
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_FINAL_CLEANUP);
	update_statistics(&vac, usage.time);
	pgstat_progress_end_command();
	zvacreport_end(rel, params, &usage, &vac.done, vac.nindexes, names, vac.index_stats);
}
