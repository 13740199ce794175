/*
 * vacuum/zvacuum.c - VACUUM of one zheap table.
 *
 * Called through zam.c under ShareUpdateExclusiveLock. What is left to do for
 * VACUUM here: line pointers of rows that are dead to everybody and the index
 * entries that point to them, the free space map, the visibility map, the file's empty tail, and
 * the catalog's statistics. Rows need no freezing (slots hold 64-bit xids), so
 * VACUUM (FREEZE) and wraparound vacuums are this same function.
 *
 * Passes: (1) every block but those that the visibility map knows to be in order: undo aborted changes, prune, note LP_DEAD; (2)
 * whenever the note is full, and at the end: clean the indexes, then make the
 * noted line pointers LP_UNUSED. One buffer lock at a time, except that the
 * free space map is written beside none.
 *
 * Rules:
 *	L1	a line pointer becomes LP_UNUSED only after every index has been cleaned
 *		of its TID in this very vacuum (or there is no index). Without that it stays LP_DEAD, for a later vacuum.
 *	L2	a block is cut off the file only if it holds no line pointer and every
 *		slot's transaction is before `oldest`: no undo refers to it.
 *	L3	relfrozenxid only moves to values that zu_freeze_limit gives.
 *	L4	a block whose bit in the visibility map is set (VM1 in dml/README.md) needs nothing from here: all its rows are live, no other line
 *		pointer is in use, no change there is unfinished or aborted, and it has no overflow page (zoverflow_attach clears the bit).
 *
 * Crash points: each page change is one WAL record; a crash between the passes
 * leaves LP_DEAD line pointers for the next vacuum.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/multixact.h"
#include "access/visibilitymap.h"
#include "catalog/storage.h"
#include "commands/dbcommands.h"
#include "commands/progress.h"
#include "commands/vacuum.h"
#include "common/fault.h"
#include "discard/discard.h"
#include "dml/zdml.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "pgstat.h"
#include "portability/instr_time.h"
#include "postmaster/autovacuum.h"
#include "rollback/zrollback.h"
#include "storage/freespace.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "undo/undo_temp.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "vacuum/zdead.h"
#include "vacuum/zvacuum.h"

/* Truncate if the empty tail has this many blocks, or this fraction of the table. */
#define TRUNCATE_MIN_BLOCKS 1000
#define TRUNCATE_FRACTION 16

/* How long to try for the exclusive lock that truncation needs. */
#define TRUNCATE_LOCK_TRIES 100
#define TRUNCATE_LOCK_WAIT_MS 50
/* How often to see whether somebody waits for us meanwhile. */
#define TRUNCATE_CHECK_BLOCKS 32


/* How often and how long to wait for the worker's pass over the undo logs. */
#define DISCARD_TRIES 20
#define DISCARD_WAIT_MS 10

/* With INDEX_CLEANUP auto the indexes are left alone if fewer of the table's pages have dead line pointers, as on heap. */
#define BYPASS_FRACTION 0.02
#define BYPASS_BYTES ((int64) 32 * 1024 * 1024)

/* How often to see whether the table has become too old (vacuum_failsafe_age). */
#define URGENT_CHECK_BLOCKS ((BlockNumber) (((uint64) 4 * 1024 * 1024 * 1024) / BLCKSZ))

/* Blocks that need nothing are skipped if so many follow each other; fewer are read, as on heap, for the sake of read-ahead. */
#define SKIP_MIN_BLOCKS 32

/* How often to make the free space map's upper levels right. */
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
	bool		may_bypass;		/* leave the indexes alone if it is not worth while */
	bool		may_truncate;
	bool		may_skip;		/* blocks that the visibility map vouches for */
	bool		urgent;			/* the table is so old that nothing but relfrozenxid matters */
	BlockNumber nblocks;
	BlockNumber nread;			/* blocks that were not skipped */
	BlockNumber last_used;		/* 1 + the last block that was seen not to be empty */
	Buffer		map;			/* page of the visibility map, pinned; or Invalid */
	BlockNumber fsm_done;		/* upper levels of the map are right below */
	ZDead	   *dead;			/* line pointers that are to be freed */
	BlockNumber dead_blocks;	/* that any were noted on */
	BlockNumber last_dead;		/* the last of them */
	/* what was found and done */
	double		live_rows;
	double		dead_rows;		/* that remain */
	double		removed;
	int64		undone;
	int			index_passes;
	int64		nfreed;			/* blocks of this pass whose line pointers were freed */
	int64		bypassed;		/* line pointers that were left */
	BlockNumber truncated;
} ZVacuum;

/* Kilobytes for the note of dead line pointers. */
static int
dead_memory(void)
{
	if (MyBackendType == B_AUTOVAC_WORKER && autovacuum_work_mem != -1)
		return autovacuum_work_mem;
	return maintenance_work_mem;
}

/* ---- second pass ---- */

static IndexVacuumInfo
index_info(ZVacuum *vac, int i, bool estimated)
{
	IndexVacuumInfo info = {0};

	info.index = vac->indexes[i];
	zc_set_heaprel(&info, vac->rel);
	info.analyze_only = false;
	info.estimated_count = estimated || vac->nread < vac->nblocks;
	info.message_level = DEBUG2;
	info.num_heap_tuples = estimated ? Max(vac->rel->rd_rel->reltuples, 0) : vac->live_rows;
	info.strategy = vac->strategy;
	return info;
}

/* Room that the page offers to new rows, for the free space map. */
static Size
page_free_space(Page page)
{
	if (PageIsNew(page))
		return BLCKSZ - SizeOfPageHeaderData - sizeof(ZPageTrailer) -
			ZPAGE_INITIAL_SLOTS * sizeof(ZPageSlot);
	if (zpage_find_offset(page) == InvalidOffsetNumber)
		return 0;
	return Max(zpage_hole(page), 0);
}

/* Is the page out of everybody's use (L2)? */
static bool
page_is_empty(Page page)
{
	ZXid		oldest;

	if (PageIsNew(page))
		return true;
	oldest = zpage_oldest(page);
	if (PageGetMaxOffsetNumber(page) != 0 || zpage_has_overflow(page))
		return false;
	for (int i = 1; i <= zpage_nslots(page); i++)
		if (ZSLOT_XID(zpage_slot(page, i)) >= oldest)
			return false;
	return true;
}

/* Record the free space of a block just seen; now and then in the map's upper levels too. */
static void
record_free_space(ZVacuum *vac, BlockNumber block, Size space)
{
	RecordPageWithFreeSpace(vac->rel, block, space);
	if (block >= vac->fsm_done + FSM_VACUUM_BLOCKS)
	{
		FreeSpaceMapVacuumRange(vac->rel, vac->fsm_done, block);
		vac->fsm_done = block;
	}
}

/* Make n noted line pointers of a block LP_UNUSED. Called for each by zdead_each_block. */
static void
free_block_items(BlockNumber block, const OffsetNumber *noted, int nnoted, void *arg)
{
	ZVacuum    *vac = arg;
	Buffer		buf;
	Page		page;
	OffsetNumber offsets[ZHEAP_MAX_OFFSET];
	int			n = 0;
	Size		space;

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
	n = zheap_make_unused(vac->rel, buf, offsets, n);
	zheap_mark_all_visible(vac->rel, buf, vac->map);
	if (!page_is_empty(page))
		vac->last_used = Max(vac->last_used, block + 1);
	space = page_free_space(page);
	UnlockReleaseBuffer(buf);
	vac->removed += n;
	RecordPageWithFreeSpace(vac->rel, block, space);
	pgstat_progress_update_param(PROGRESS_VACUUM_HEAP_BLKS_VACUUMED, ++vac->nfreed);
}

/* Make all noted line pointers LP_UNUSED. */
static void
free_items(ZVacuum *vac)
{
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_VACUUM_HEAP);
	vac->nfreed = 0;
	zdead_each_block(vac->dead, free_block_items, vac);
	zdead_empty(vac->dead);
}

/* The noted line pointers stay as they are. */
static void
leave_noted(ZVacuum *vac)
{
	if (zdead_count(vac->dead) == 0)
		return;
	vac->last_used = Max(vac->last_used, vac->last_dead + 1);
	vac->bypassed += zdead_count(vac->dead);
	zdead_empty(vac->dead);
}

/*
 * See whether the table is older than vacuum_failsafe_age allows. From then on, as on heap, only what lets its relfrozenxid advance is
 * done, at full speed. True if it is so.
 */
static bool
is_urgent(ZVacuum *vac)
{
	Form_pg_class form = vac->rel->rd_rel;

	if (vac->urgent || !TransactionIdIsNormal(form->relfrozenxid) || !MultiXactIdIsValid(form->relminmxid) ||
		!zc_vacuum_is_urgent(form->relfrozenxid, form->relminmxid))
		return vac->urgent;
	vac->urgent = true;
	vac->clean_indexes = vac->finish_indexes = vac->may_truncate = false;
	vac->strategy = NULL;
	zc_vacuum_set_urgent();
	VacuumCostActive = false;
	VacuumCostBalance = 0;
	ereport(WARNING,
			(errmsg("vacuum of zheap table \"%s\" bypasses index cleanup and truncation as a "
					"failsafe", RelationGetRelationName(vac->rel)),
			 errdetail("The table's relfrozenxid or relminmxid is older than \"vacuum_failsafe_age\" or \"vacuum_multixact_failsafe_age\" allows."),
			 errhint("Run VACUUM again once the age of the table is below "
					 "\"vacuum_failsafe_age\". If this happens repeatedly, see zundo.stat_horizon "
					 "for what holds back the oldest transaction.")));
	return true;
}

/* Clean the indexes of the noted TIDs. False: the table has become too old for that, and some were not cleaned. */
static bool
clean_indexes(ZVacuum *vac)
{
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_VACUUM_INDEX);
	if (is_urgent(vac))
		return false;
	zc_progress_indexes(vac->nindexes, 0);
	if (zdead_is_parallel(vac->dead))
		zdead_clean_together(vac->dead, Max(vac->rel->rd_rel->reltuples, 0), vac->index_passes);
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
	pgstat_progress_update_param(PROGRESS_VACUUM_NUM_INDEX_VACUUMS, ++vac->index_passes);
	return true;
}

/* Clean the indexes of the noted TIDs, then free the line pointers (L1). */
static void
clean_noted(ZVacuum *vac)
{
	if (zdead_count(vac->dead) == 0)
		return;
	if (!clean_indexes(vac))
	{
		leave_noted(vac);
		return;
	}
	ZUNDO_FAULT("indexes-cleaned");
	free_items(vac);
}

/* The table has been read, and what is dead noted: clean the indexes, or leave them for another time if that is little. */
static void
clean_rest(ZVacuum *vac)
{
	if (vac->may_bypass && vac->index_passes == 0 && vac->dead_blocks < vac->nblocks * BYPASS_FRACTION &&
		zdead_count(vac->dead) * (int64) sizeof(ItemPointerData) < BYPASS_BYTES)
		leave_noted(vac);
	else
		clean_noted(vac);
}

/* ---- first pass ---- */

/*
 * Count the rows of a pruned page and note its dead line pointers. The page is
 * exclusively locked. Without indexes dead line pointers are freed at once.
 */
static void
look_at_items(ZVacuum *vac, Buffer buf, BlockNumber block)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber dead[ZHEAP_MAX_OFFSET];
	int			ndead = 0;
	OffsetNumber maxoff = Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET);

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsDead(lp))
			dead[ndead++] = off;
		else if (ItemIdIsNormal(lp) && ZH_LIVE(zheader_get(zpage_row(page, lp))))
			vac->live_rows += 1;
		else if (ItemIdIsUsed(lp))
			vac->dead_rows += 1;
	}
	if (ndead == 0)
		return;
	if (vac->nindexes == 0)
	{
		int			removed = zheap_make_unused(vac->rel, buf, dead, ndead);

		vac->removed += removed;
		vac->dead_rows += ndead - removed;
	}
	else if (vac->clean_indexes)
	{
		zdead_note(vac->dead, block, dead, ndead);
		vac->dead_blocks++;
		vac->last_dead = block;
	}
	else
		vac->dead_rows += ndead;
}

/* Number of line pointers in use. */
static int
used_items(Page page)
{
	int			n = 0;
	OffsetNumber maxoff = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
		n += ItemIdIsUsed(PageGetItemId(page, off)) ? 1 : 0;
	return n;
}

static void
vacuum_block(ZVacuum *vac, BlockNumber block)
{
	Buffer		buf = ReadBufferExtended(vac->rel, MAIN_FORKNUM, block, RBM_NORMAL, vac->strategy);
	Page		page = BufferGetPage(buf);
	Size		space;
	bool		noted = false;

	visibilitymap_pin(vac->rel, block, &vac->map);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	if (!PageIsNew(page))
	{
		int64		before = zdead_count(vac->dead);
		int			used;

		if (!zpage_is_valid(page))
			zvis_corrupt_page(vac->rel, block, page, InvalidOffsetNumber);
		vac->undone += zrollback_page(buf, vac->rel);
		(void) zoverflow_release(vac->rel, buf);
		used = used_items(page);
		zheap_prune_page(vac->rel, buf);
		vac->removed += used - used_items(page);
		look_at_items(vac, buf, block);
		noted = zdead_count(vac->dead) > before;
		zheap_mark_all_visible(vac->rel, buf, vac->map);
	}
	/* a page with noted items is judged when they have been freed */
	if (!noted && !page_is_empty(page))
		vac->last_used = Max(vac->last_used, block + 1);
	space = page_free_space(page);
	UnlockReleaseBuffer(buf);
	record_free_space(vac, block, space);
}

/*
 * The next block to read, from this one on; *run_end is where the last run of skippable blocks ended that was looked at (0 at first). The
 * last block is always read: it tells whether the table has an empty tail.
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
		if (zdead_is_full(vac->dead))
		{
			clean_noted(vac);
			pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_SCAN_HEAP);
		}
		vacuum_block(vac, block);
		vac->nread++;
		pgstat_progress_update_param(PROGRESS_VACUUM_HEAP_BLKS_SCANNED, block + 1);
		pgstat_progress_update_param(ZC_PROGRESS_DEAD_ITEMS, zdead_count(vac->dead));
	}
	vac->live_rows = vac_estimate_reltuples(vac->rel, vac->nblocks, vac->nread, vac->live_rows);
	clean_rest(vac);
	FreeSpaceMapVacuumRange(vac->rel, vac->index_passes > 0 ? 0 : vac->fsm_done, vac->nblocks);
}

/* Let every index finish its vacuum. */
static void
finish_indexes(ZVacuum *vac)
{
	pgstat_progress_update_param(PROGRESS_VACUUM_PHASE, PROGRESS_VACUUM_PHASE_INDEX_CLEANUP);
	zc_progress_indexes(vac->nindexes, 0);
	if (zdead_is_parallel(vac->dead))
		zdead_finish_together(vac->dead, vac->live_rows, vac->index_passes, vac->nread < vac->nblocks);
	else
		for (int i = 0; i < vac->nindexes; i++)
		{
			IndexVacuumInfo info = index_info(vac, i, false);

			vac->index_stats[i] = vac_cleanup_one_index(&info, vac->index_stats[i]);
			zc_progress_indexes(vac->nindexes, i + 1);
		}
	zc_progress_indexes(0, 0);
}

/* Tell the catalog the sizes of the indexes that were looked at. */
static void
update_index_statistics(ZVacuum *vac)
{
	for (int i = 0; i < vac->nindexes; i++)
	{
		IndexBulkDeleteResult *stats = vac->index_stats[i];

		if (stats != NULL && !stats->estimated_count)
			zc_update_relstats(vac->indexes[i], stats->num_pages, stats->num_index_tuples, 0, false,
							   InvalidTransactionId, InvalidMultiXactId);
	}
}

/* ---- the empty tail ---- */

/* Lock the table exclusively without making anybody wait for long. */
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
 * With the table locked exclusively: 1 + the last block that is not empty, by
 * a look backwards from nblocks; stops early if somebody waits for the table.
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
			break;
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
		return;
	now = zrel_nblocks(vac->rel);
	/* somebody has extended the table: the tail is wanted */
	keep = (now == vac->nblocks) ? find_tail(vac, now) : now;
	if (keep < now)
	{
		RelationTruncate(vac->rel, keep);
		vac->truncated = now - keep;
		vac->nblocks = keep;
	}
	UnlockRelation(vac->rel, AccessExclusiveLock);
}

/* ---- ends ---- */

/*
 * Let `oldest` advance as far as it can, so that what is dead by now is seen as
 * dead: VACUUM itself holds no horizon back. Large aborted transactions are left to the worker; in single-user
 * mode there is none, so all are undone here. If there is a worker, have it make the pass, and wait for it, but not for long:
 * with an old snapshot about, reading all undo that is kept may take longer than the rest of VACUUM.
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
	if (zu_discard_by_worker(DISCARD_TRIES * DISCARD_WAIT_MS))
		return;
	for (int tries = 0; tries < DISCARD_TRIES; tries++)
	{
		if (zu_discard(IsUnderPostmaster ? ZU_UNDO_SMALL : ZU_UNDO_ALL, &stats))
			break;
		CHECK_FOR_INTERRUPTS();
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 DISCARD_WAIT_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
	}
}

/* The value for relfrozenxid (L3); Invalid leaves it as it is. */
static TransactionId
frozen_xid(Relation rel)
{
	TransactionId xid;

	/* its undo has gone by now, so whoever has written it needs no status any more */
	if (RelationUsesLocalBuffers(rel))
		return zu_temp_pending() ? InvalidTransactionId : GetOldestNonRemovableTransactionId(rel);
	xid = zxid_to_xid(zu_freeze_limit());

	return TransactionIdIsNormal(xid) ? xid : InvalidTransactionId;
}

static void
update_statistics(ZVacuum *vac, TimestampTz start)
{
	BlockNumber all_visible;

	visibilitymap_count(vac->rel, &all_visible, NULL);
	zc_update_relstats(vac->rel, vac->nblocks, vac->live_rows, all_visible, vac->nindexes > 0,
					   frozen_xid(vac->rel), GetOldestMultiXactId());
	zc_report_vacuum(vac->rel, vac->live_rows, vac->dead_rows, start);
}

/* Say what was done: VACUUM (VERBOSE), or the server log for slow autovacuums. */
static void
report(ZVacuum *vac, const VacuumParams *params, TimestampTz start)
{
	bool		verbose = (params->options & VACOPT_VERBOSE) != 0;
	bool		logged = (MyBackendType == B_AUTOVAC_WORKER && params->log_min_duration >= 0 &&
						  (params->log_min_duration == 0 ||
						   TimestampDifferenceExceeds(start, GetCurrentTimestamp(),
													  params->log_min_duration)));

	if (!verbose && !logged)
		return;
	ereport(verbose ? INFO : LOG,
	/* by these words of the server's own autovacuum tools find it in the log */
			(errmsg("%s \"%s.%s.%s\": index scans: %d", verbose ? "vacuumed zheap table" : "automatic vacuum of table",
					get_database_name(MyDatabaseId), get_namespace_name(RelationGetNamespace(vac->rel)),
					RelationGetRelationName(vac->rel), vac->index_passes),
			 errdetail("pages: %u remain, %u read, %u truncated; rows: %.0f live, %.0f dead but not yet removable; "
					   "line pointers: %.0f removed, %lld left to a vacuum that cleans the indexes; aborted changes undone: %lld",
					   vac->nblocks, vac->nread, vac->truncated, vac->live_rows, vac->dead_rows,
					   vac->removed, (long long) vac->bypassed, (long long) vac->undone)));
}

/*
 * zheap_relation_vacuum: the relation_vacuum callback. On entry rel is locked
 * ShareUpdateExclusive and a snapshot is active; holds no buffer on return.
 */
void
zheap_relation_vacuum(Relation rel, struct VacuumParams *params, BufferAccessStrategy bstrategy)
{
	ZVacuum		vac = {0};
	TimestampTz start = GetCurrentTimestamp();

	zu_attach_database();
	pgstat_progress_start_command(PROGRESS_COMMAND_VACUUM, RelationGetRelid(rel));
	advance_oldest(rel);
	vac.rel = rel;
	vac.strategy = bstrategy;
	vac_open_indexes(rel, RowExclusiveLock, &vac.nindexes, &vac.indexes);
	vac.index_stats = palloc0(Max(vac.nindexes, 1) * sizeof(IndexBulkDeleteResult *));
	vac.clean_indexes = vac.finish_indexes = (params->index_cleanup != VACOPTVALUE_DISABLED);
	vac.may_bypass = (params->index_cleanup != VACOPTVALUE_ENABLED);
	vac.may_truncate = (params->truncate != VACOPTVALUE_DISABLED);
	/* a table whose size is not known is counted as a whole */
	vac.may_skip = (params->options & VACOPT_DISABLE_PAGE_SKIPPING) == 0 && rel->rd_rel->reltuples >= 0;
	vac.nblocks = zrel_nblocks(rel);
	(void) is_urgent(&vac);
	vac.dead = zdead_begin(rel, vac.indexes, vac.nindexes, vac.clean_indexes ? params->nworkers : -1, dead_memory(),
						   (params->options & VACOPT_VERBOSE) != 0, vac.strategy);

	scan_table(&vac);
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
	update_statistics(&vac, start);
	report(&vac, params, start);
	pgstat_progress_end_command();
}
