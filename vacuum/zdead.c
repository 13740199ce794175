/*
 * vacuum/zdead.c - dead line pointers noted by VACUUM, and removing their TIDs
 * from indexes.
 *
 * They are kept in the structure that the server's own VACUUM uses, a sorted
 * array in 15 and a radix tree from 17 on, so that the server's parallel
 * workers, which know nothing of zheap, can clean one index each.
 *
 * Locks: those that the caller has on the table and its indexes. zdead_note
 * may be called with a page locked. Crash points: none here; the index AMs log
 * their changes.
 */
#include "postgres.h"

#include "commands/progress.h"
#include "commands/vacuum.h"
#include "page/zpage.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "vacuum/zdead.h"

struct ZDead
{
	ParallelVacuumState *parallel;	/* or NULL */
#ifdef ZC_TID_STORE
	TidStore   *store;
	VacDeadItemsInfo *info;		/* limit and number of TIDs */
	Size		empty_bytes;	/* its size when empty, which in shared memory
								 * may exceed max_bytes */
#else
	VacDeadItems *items;
#endif
};

/* ---- the server's store ---- */

#ifdef ZC_TID_STORE

/* Returns the limit as parallel_vacuum_init expects it, in kilobytes. */
static int
store_limit(Relation rel, int kilobytes)
{
	return kilobytes;
}

/* Makes an empty store in local memory. */
static void
create_store(ZDead *dead, int limit)
{
	Assert(limit > 0);
	dead->info = palloc0(sizeof(VacDeadItemsInfo));
	dead->info->max_bytes = (Size) limit * 1024;
	dead->store = TidStoreCreateLocal(dead->info->max_bytes, true);
	dead->empty_bytes = TidStoreMemoryUsage(dead->store);
}

/* Uses the store in shared memory. */
static void
use_parallel_store(ZDead *dead)
{
	Assert(dead->parallel != NULL);
	dead->store = parallel_vacuum_get_dead_items(dead->parallel, &dead->info);
	dead->empty_bytes = TidStoreMemoryUsage(dead->store);
}

void
zdead_note(ZDead *dead, BlockNumber block, OffsetNumber *offsets, int n)
{
	Assert(n > 0 && n <= ZHEAP_MAX_OFFSET);
	TidStoreSetBlockOffsets(dead->store, block, offsets, n);
	dead->info->num_items += n;
	pgstat_progress_update_param(PROGRESS_VACUUM_DEAD_TUPLE_BYTES,
								 TidStoreMemoryUsage(dead->store));
	pgstat_progress_update_param(ZC_PROGRESS_DEAD_ITEMS, dead->info->num_items);
}

/* Returns the limit as the progress report has it, in bytes. */
static int64
shown_limit(const ZDead *dead)
{
	return dead->info->max_bytes;
}

bool
zdead_is_full(const ZDead *dead)
{
	return TidStoreMemoryUsage(dead->store) > Max(dead->info->max_bytes, dead->empty_bytes);
}

int64
zdead_count(const ZDead *dead)
{
	return dead->info->num_items;
}

void
zdead_empty(ZDead *dead)
{
	if (dead->info->num_items == 0)
		return;
	if (dead->parallel != NULL)
	{
		parallel_vacuum_reset_dead_items(dead->parallel);
		use_parallel_store(dead);
		return;
	}
	TidStoreDestroy(dead->store);
	dead->store = TidStoreCreateLocal(dead->info->max_bytes, true);
	dead->info->num_items = 0;
}

void
zdead_each_block(ZDead *dead, ZDeadBlock what, void *arg)
{
	TidStoreIter *iter = TidStoreBeginIterate(dead->store);
	TidStoreIterResult *found;

	while ((found = TidStoreIterateNext(iter)) != NULL)
	{
		OffsetNumber offsets[ZHEAP_MAX_OFFSET];
		int			n = zc_tidstore_offsets(found, offsets, ZHEAP_MAX_OFFSET);

		what(found->blkno, offsets, n, arg);
	}
	TidStoreEndIterate(iter);
}

IndexBulkDeleteResult *
zdead_clean_index(ZDead *dead, IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	return vac_bulkdel_one_index(info, stats, dead->store, dead->info);
}

/* Frees the store in local memory. */
static void
destroy_store(ZDead *dead)
{
	TidStoreDestroy(dead->store);
	pfree(dead->info);
}

#else

/*
 * Returns the limit as parallel_vacuum_init expects it, in TIDs: at most those
 * that the table can have, at least those of a page.
 */
static int
store_limit(Relation rel, int kilobytes)
{
	Size		bytes = Min((Size) kilobytes * 1024, MaxAllocSize);
	uint64		possible = (uint64) zrel_nblocks(rel) * ZHEAP_MAX_OFFSET;

	return (int) Max(Min(MAXDEADITEMS(bytes), possible), ZHEAP_MAX_OFFSET);
}

/* Makes an empty store in local memory. */
static void
create_store(ZDead *dead, int limit)
{
	Assert(limit >= ZHEAP_MAX_OFFSET);
	dead->items = palloc(vac_max_items_to_alloc_size(limit));
	dead->items->max_items = limit;
	dead->items->num_items = 0;
}

/* Uses the store in shared memory. */
static void
use_parallel_store(ZDead *dead)
{
	Assert(dead->parallel != NULL);
	dead->items = parallel_vacuum_get_dead_items(dead->parallel);
}

void
zdead_note(ZDead *dead, BlockNumber block, OffsetNumber *offsets, int n)
{
	Assert(dead->items->num_items + n <= dead->items->max_items);
	for (int i = 0; i < n; i++, dead->items->num_items++)
		ItemPointerSet(&dead->items->items[dead->items->num_items], block, offsets[i]);
	pgstat_progress_update_param(ZC_PROGRESS_DEAD_ITEMS, dead->items->num_items);
}

/* Returns the limit as the progress report has it, in line pointers. */
static int64
shown_limit(const ZDead *dead)
{
	return dead->items->max_items;
}

bool
zdead_is_full(const ZDead *dead)
{
	return dead->items->num_items + ZHEAP_MAX_OFFSET > dead->items->max_items;
}

int64
zdead_count(const ZDead *dead)
{
	return dead->items->num_items;
}

void
zdead_empty(ZDead *dead)
{
	dead->items->num_items = 0;
}

void
zdead_each_block(ZDead *dead, ZDeadBlock what, void *arg)
{
	for (int i = 0; i < dead->items->num_items;)
	{
		BlockNumber block = ItemPointerGetBlockNumber(&dead->items->items[i]);
		OffsetNumber offsets[ZHEAP_MAX_OFFSET];
		int			n = 0;

		for (; i < dead->items->num_items &&
			 ItemPointerGetBlockNumber(&dead->items->items[i]) == block; i++)
			offsets[n++] = ItemPointerGetOffsetNumber(&dead->items->items[i]);
		what(block, offsets, n, arg);
	}
}

IndexBulkDeleteResult *
zdead_clean_index(ZDead *dead, IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	return vac_bulkdel_one_index(info, stats, dead->items);
}

/* Frees the store in local memory. */
static void
destroy_store(ZDead *dead)
{
	pfree(dead->items);
}

#endif

/* ---- with and without workers ---- */

/*
 * Starts parallel workers if the table and its indexes allow that. Returns
 * NULL if the vacuum is not parallel.
 */
static ParallelVacuumState *
begin_parallel(Relation rel, Relation *indexes, int nindexes, int nworkers, int limit, bool verbose,
			   BufferAccessStrategy strategy)
{
	if (nworkers < 0 || nindexes < 2)
		return NULL;
	if (RelationUsesLocalBuffers(rel))
	{
		if (nworkers > 0)
			ereport(WARNING,
					(errmsg("disabling parallel option of vacuum on \"%s\" --- cannot vacuum "
							"temporary tables in parallel",
							RelationGetRelationName(rel))));
		return NULL;
	}
	return parallel_vacuum_init(rel, indexes, nindexes, nworkers, limit, verbose ? INFO : DEBUG2,
								strategy);
}

/* zdead_begin: See zdead.h. */
ZDead *
zdead_begin(Relation rel, Relation *indexes, int nindexes, int nworkers, int kilobytes,
			bool verbose, BufferAccessStrategy strategy)
{
	ZDead	   *dead = palloc0(sizeof(ZDead));
	int			limit = store_limit(rel, kilobytes);

	dead->parallel = begin_parallel(rel, indexes, nindexes, nworkers, limit, verbose, strategy);
	if (dead->parallel != NULL)
		use_parallel_store(dead);
	else
		create_store(dead, limit);
	pgstat_progress_update_param(ZC_PROGRESS_MAX_DEAD, shown_limit(dead));
	return dead;
}

bool
zdead_is_parallel(const ZDead *dead)
{
	return dead->parallel != NULL;
}

void
zdead_clean_together(ZDead *dead, double rows, int earlier)
{
	Assert(zdead_is_parallel(dead));
	parallel_vacuum_bulkdel_all_indexes(dead->parallel, (long) rows, earlier ZC_WORKER_STATS);
}

void
zdead_finish_together(ZDead *dead, double rows, int cleaned, bool estimated)
{
	Assert(zdead_is_parallel(dead));
	parallel_vacuum_cleanup_all_indexes(dead->parallel, (long) rows, cleaned,
										estimated ZC_WORKER_STATS);
}

void
zdead_end(ZDead *dead, IndexBulkDeleteResult **stats)
{
	if (dead->parallel != NULL)
		parallel_vacuum_end(dead->parallel, stats);
	else
		destroy_store(dead);
	pfree(dead);
}
