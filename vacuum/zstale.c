/*
 * vacuum/zstale.c - VACUUM's note of rows with ZH_STALE_KEYS, and removing
 * those of their entries in zbtree indexes that are not needed.
 *
 * Called by zvacuum.c, which notes rows while it scans the table, cleans the
 * indexes when the note is full and at the end, and then has the flags removed.
 *
 * Locks: zstale_clean_index reads table pages and undo while nbtree holds a
 * leaf page locked (ZBTREE-8); zstale_clear locks one table page at a time.
 * Crash points: "stale-judged"; after an interrupted VACUUM the rows still have
 * the flag, so the next VACUUM finds them.
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "commands/vacuum.h"
#include "common/compat.h"
#include "dml/zdml.h"
#include "mvcc/zvis.h"
#include "mvcc/zvismap.h"
#include "storage/bufmgr.h"
#include "undo/undo.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "vacuum/zstale.h"
#include "zbtree/predicate.h"
#include "zbtree/refresh.h"
#include "zbtree/zbtree.h"

/*
 * At most this many versions are read for one entry. Only a row whose newest
 * version is before `oldest` can lose its flag, and such a row has one version;
 * an entry of a row with many versions may stay for the next VACUUM.
 */
#define MAX_VERSIONS 1000

/*
 * One block with noted rows. Its rows end where those of the next block begin.
 */
typedef struct StaleBlock
{
	BlockNumber block;
	XLogRecPtr	lsn;			/* of the page when it was noted */
	int64		first;			/* its first row in ZStale.rows */
} StaleBlock;

typedef struct StaleRow
{
	OffsetNumber off;
	bool		clearable;		/* its version is before `oldest`, and its
								 * entries have the version's bytes, as far as
								 * is known */
	bool		differs;		/* its entry in the index that is being
								 * cleaned has other bytes */
} StaleRow;

struct ZStale
{
	Relation	rel;
	Size		limit;			/* of memory, in bytes */
	StaleBlock *blocks;
	int			nblocks;
	int			max_blocks;
	StaleRow   *rows;
	int64		nrows;
	int64		max_rows;
	/* while an index is cleaned */
	ZHistory   *history;
	Relation	index;
	Buffer		buf;			/* table page looked at last, pinned */
	MemoryContext context;		/* for one entry */
};

/* zstale_begin: See zstale.h. Allocates the arrays when a row is noted. */
ZStale *
zstale_begin(Relation rel, int kilobytes)
{
	ZStale	   *stale = palloc0(sizeof(ZStale));

	stale->rel = rel;
	stale->limit = (Size) kilobytes * 1024;
	stale->buf = InvalidBuffer;
	return stale;
}

/* zstale_end: See zstale.h. */
void
zstale_end(ZStale *stale)
{
	if (stale->blocks != NULL)
		pfree(stale->blocks);
	if (stale->rows != NULL)
		pfree(stale->rows);
	pfree(stale);
}

/* Makes space for one more block and the rows that it may have. */
static void
make_space(ZStale *stale)
{
	if (stale->blocks == NULL)
	{
		stale->max_blocks = 64;
		stale->max_rows = 2 * ZHEAP_MAX_OFFSET;
		stale->blocks = palloc(stale->max_blocks * sizeof(StaleBlock));
		stale->rows = palloc(stale->max_rows * sizeof(StaleRow));
	}
	if (stale->nblocks == stale->max_blocks)
	{
		stale->max_blocks *= 2;
		stale->blocks = repalloc_huge(stale->blocks, stale->max_blocks * sizeof(StaleBlock));
	}
	if (stale->nrows + ZHEAP_MAX_OFFSET > stale->max_rows)
	{
		stale->max_rows *= 2;
		stale->rows = repalloc_huge(stale->rows, stale->max_rows * sizeof(StaleRow));
	}
}

/* zstale_note: See zstale.h. */
bool
zstale_note(ZStale *stale, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber offsets[ZHEAP_MAX_OFFSET];
	int			n = zpage_stale_keys(page, offsets);
	ZXid		oldest = zslots_oldest(page);
	StaleBlock *b;

	if (n == 0)
		return false;
	make_space(stale);
	b = &stale->blocks[stale->nblocks++];
	b->block = BufferGetBlockNumber(buf);
	b->lsn = PageGetLSN(page);
	b->first = stale->nrows;
	Assert(stale->nblocks == 1 || b->block > b[-1].block);
	for (int i = 0; i < n; i++)
	{
		ZHeader		header = zheader_get(zpage_row(page, PageGetItemId(page, offsets[i])));

		stale->rows[stale->nrows].off = offsets[i];
		stale->rows[stale->nrows].differs = false;
		stale->rows[stale->nrows++].clearable = zslots_row_settled(page, header, oldest);
	}
	return true;
}

int64
zstale_count(const ZStale *stale)
{
	return stale->nrows;
}

bool
zstale_is_full(const ZStale *stale)
{
	return stale->nblocks * sizeof(StaleBlock) + stale->nrows * sizeof(StaleRow) > stale->limit;
}

void
zstale_empty(ZStale *stale)
{
	stale->nblocks = 0;
	stale->nrows = 0;
}

/* Returns the index in stale->rows that follows the last row of block i. */
static inline int64
end_of(const ZStale *stale, int i)
{
	return i + 1 < stale->nblocks ? stale->blocks[i + 1].first : stale->nrows;
}

/* Returns the note of the row at tid, or NULL if the row is not noted. */
static StaleRow *
find_row(const ZStale *stale, ItemPointer tid)
{
	BlockNumber block = ItemPointerGetBlockNumber(tid);
	OffsetNumber off = ItemPointerGetOffsetNumber(tid);
	int			low = 0;
	int			high = stale->nblocks;

	while (low < high)
	{
		int			mid = low + (high - low) / 2;

		if (stale->blocks[mid].block < block)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == stale->nblocks || stale->blocks[low].block != block)
		return NULL;
	for (int64 i = stale->blocks[low].first; i < end_of(stale, low); i++)
		if (stale->rows[i].off == off)
			return &stale->rows[i];
	return NULL;
}

/*
 * Reads the index's columns of the newest version of the row at off of the page
 * that stale->history has loaded. Returns false if the row is not live or the
 * index's predicate excludes it.
 */
static bool
read_newest(ZStale *stale, OffsetNumber off, Datum *values, bool *isnull)
{
	ZHistoryVersion version;
	ZPredicate *predicate;

	if (zhistory_first(stale->history, off, &version) != ZHISTORY_VERSION || !version.live ||
		!zpredicate_find(stale->index, &predicate) ||
		!zpredicate_holds_in(predicate, stale->rel, version.row, version.len))
		return false;
	zbtree_read_columns(stale->index, stale->rel, version.row, version.len, values, isnull);
	return true;
}

/*
 * Returns whether the entry has the bytes of the newest version of its row in
 * all columns. stale->history has loaded the row's page.
 */
static bool
has_newest_content(ZStale *stale, IndexTuple entry)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	if (!read_newest(stale, ItemPointerGetOffsetNumber(&entry->t_tid), values, isnull))
		return false;
	return zbtree_has_content(stale->index, entry, values, isnull);
}

/*
 * Returns whether an index entry can be deleted: its row is noted and the entry
 * is not needed (ZBTREE-8). Callback of index_bulk_delete. nbtree passes a
 * pointer to the TID within the entry, which is the beginning of the entry, and
 * holds the leaf page locked until the entry is deleted.
 */
static bool
is_stale(ItemPointer tid, void *arg)
{
	ZStale	   *stale = arg;
	IndexTuple	entry = (IndexTuple) tid;
	StaleRow   *row = find_row(stale, tid);
	MemoryContext caller;
	int			budget = MAX_VERSIONS;
	bool		loaded;
	bool		needed;

	StaticAssertStmt(offsetof(IndexTupleData, t_tid) == 0, "the TID begins an index tuple");
	if (row == NULL)
		return false;
	caller = MemoryContextSwitchTo(stale->context);
	stale->buf = ReleaseAndReadBuffer(stale->buf, stale->rel, ItemPointerGetBlockNumber(tid));
	loaded = zhistory_load(stale->history, stale->buf) != NULL;
	needed = !loaded || zbtree_needed(stale->index, entry, stale->history,
									  ItemPointerGetOffsetNumber(tid), &budget);
	if (needed && row->clearable && !(loaded && has_newest_content(stale, entry)))
		row->differs = true;
	MemoryContextSwitchTo(caller);
	MemoryContextReset(stale->context);
	if (!needed)
		ZUNDO_FAULT("stale-judged");
	return !needed;
}

/*
 * Replaces the entry of the row by one with the bytes of the row's version.
 * Sets row->clearable to false if that is not possible, and *written to true
 * if the index was changed.
 */
static void
refresh_entry(ZStale *stale, BlockNumber block, StaleRow *row, bool *written)
{
	MemoryContext caller = MemoryContextSwitchTo(stale->context);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	ItemPointerData tid;

	Assert(row->clearable);
	ItemPointerSet(&tid, block, row->off);
	row->clearable = read_newest(stale, row->off, values, isnull) &&
		zbtree_refresh(stale->index, stale->rel, &tid, values, isnull, written);
	MemoryContextSwitchTo(caller);
	MemoryContextReset(stale->context);
}

/*
 * Replaces the entries that differ from their rows. Returns whether the index
 * was changed.
 */
static bool
refresh_entries(ZStale *stale)
{
	bool		written = false;

	for (int i = 0; i < stale->nblocks; i++)
	{
		bool		loaded = false;

		for (int64 k = stale->blocks[i].first; k < end_of(stale, i); k++)
		{
			StaleRow   *row = &stale->rows[k];

			if (!row->differs)
				continue;
			row->differs = false;
			if (!loaded)
			{
				zc_vacuum_delay_point();
				stale->buf = ReleaseAndReadBuffer(stale->buf, stale->rel,
												  stale->blocks[i].block);
				loaded = zhistory_load(stale->history, stale->buf) != NULL;
			}
			if (loaded)
				refresh_entry(stale, stale->blocks[i].block, row, &written);
			else
				row->clearable = false;
		}
	}
	return written;
}

/* Callback of index_bulk_delete: deletes nothing. */
static bool
keep_all(ItemPointer tid, void *arg)
{
	return false;
}

/*
 * zstale_clean_index: See zstale.h. When it returns, no index-only scan is left
 * that has read an entry which was removed or replaced here (ZBTREE-15): such
 * scans keep a pin on their leaf page, and index_bulk_delete waits for the pins
 * of all leaf pages except those that are deleted already.
 */
IndexBulkDeleteResult *
zstale_clean_index(ZStale *stale, IndexVacuumInfo *info, IndexBulkDeleteResult *stats)
{
	Assert(zbtree_is(info->index));
	(void) zpredicate_get(info->index); /* for zbtree_needed and read_newest */
	stale->index = info->index;
	stale->history = zhistory_create(stale->rel, zxid_to_xid(zu_oldest()));
	stale->context = AllocSetContextCreate(CurrentMemoryContext, "zheap index keys",
										   ALLOCSET_DEFAULT_SIZES);
	stats = index_bulk_delete(info, stats, is_stale, stale);
	if (refresh_entries(stale))
		stats = index_bulk_delete(info, stats, keep_all, NULL);
	if (stats->pages_deleted > stats->pages_free)
		zbtree_wait_for_scans(info->index, info->strategy);
	if (BufferIsValid(stale->buf))
		ReleaseBuffer(stale->buf);
	stale->buf = InvalidBuffer;
	MemoryContextDelete(stale->context);
	zhistory_free(stale->history);
	return stats;
}

/*
 * zstale_clear: See zstale.h. Removes the flag from rows that were settled
 * when they were noted and whose page still has the same LSN. Such a row has
 * had no other version in between, not even an aborted one, so no session has
 * added an entry for it that the cleaning of the indexes could have missed.
 * Changes of unlogged tables set the LSN as well (zchange.c). A temporary
 * table is changed by its own session only, which runs this VACUUM.
 */
BlockNumber
zstale_clear(ZStale *stale, BufferAccessStrategy strategy, Buffer *map)
{
	BlockNumber visible = 0;

	Assert(RelationNeedsWAL(stale->rel) ||
		   stale->rel->rd_rel->relpersistence != RELPERSISTENCE_PERMANENT);
	for (int i = 0; i < stale->nblocks; i++)
	{
		StaleBlock *b = &stale->blocks[i];
		OffsetNumber offsets[ZHEAP_MAX_OFFSET];
		int			n = 0;
		Buffer		buf;
		Page		page;

		for (int64 k = b->first; k < end_of(stale, i); k++)
			if (stale->rows[k].clearable)
				offsets[n++] = stale->rows[k].off;
		if (n == 0)
			continue;
		zc_vacuum_delay_point();
		buf = ReadBufferExtended(stale->rel, MAIN_FORKNUM, b->block, RBM_NORMAL, strategy);
		page = BufferGetPage(buf);
		visibilitymap_pin(stale->rel, b->block, map);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		if (PageGetLSN(page) == b->lsn && zpage_is_valid(page))
		{
			zheap_clear_stale(stale->rel, buf, offsets, n);
			visible += zvismap_mark(stale->rel, buf, *map) ? 1 : 0;
		}
		UnlockReleaseBuffer(buf);
	}
	return visible;
}
