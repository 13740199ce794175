/*
 * scan/zbitmap.c - bitmap scans.
 *
 * Up to 17 the executor passes one block of the bitmap after the other; from
 * 18 on the scan takes them from its iterator, through a read stream that
 * reads ahead. Either way a block's rows come from a page view, which is asked
 * for the visible ones among those that the bitmap names.
 *
 * Called through zam.c by the executor. Between calls no lock is held, and no
 * pins but those of the stream and, for a temporary table, of the loaded
 * block. Nothing is written, but for bits of the visibility map (VMAP-1 in
 * mvcc/).
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "pgstat.h"
#include "scan/zscan_internal.h"
#include "storage/bufmgr.h"
#if !ZC_BITMAP_BY_BLOCK
#include "storage/read_stream.h"
#endif
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * Notes for serializable transactions that the rows at 'offsets' of the block
 * in buf are read, or all its rows if noffsets is negative. buf is pinned and
 * not locked.
 */
static void
note_reads(ZScan *scan, Buffer buf, const OffsetNumber *offsets, int noffsets)
{
	Relation	rel = scan->base.rs_rd;

	Assert(zc_buffer_unlocked(buf));
	if (!zssi_needed(rel, scan->base.rs_snapshot))
		return;
	if (noffsets < 0)
	{
		LockBuffer(buf, BUFFER_LOCK_SHARE);
		noffsets = PageGetMaxOffsetNumber(BufferGetPage(buf));
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		offsets = NULL;
	}
	for (int i = 0; i < noffsets; i++)
		zssi_before_read(rel, buf, offsets ? offsets[i] : FirstOffsetNumber + i,
						 scan->base.rs_snapshot);
}

/*
 * Returns whether the block can have rows for the scan. A block that did not
 * exist when the scan began holds nothing that its snapshot sees; a
 * serializable transaction reads it nevertheless, to meet changes that it does
 * not see.
 */
static inline bool
block_matters(const ZScan *scan, BlockNumber block)
{
	return block < scan->nblocks || IsolationIsSerializable();
}

/*
 * Loads a block, which is in buf (whose pin is taken over), and selects its
 * visible rows: those at 'offsets' (ascending), or all if noffsets is
 * negative.
 */
static void
select_rows(ZScan *scan, BlockNumber block, Buffer buf, const OffsetNumber *offsets, int noffsets)
{
	ZPageView  *view = zscan_view(scan);

	Assert(BufferGetBlockNumber(buf) == block);
	scan->nselected = 0;
	scan->index = 0;
	scan->block = block;
	note_reads(scan, buf, offsets, noffsets);
	view->read = noffsets < 0 ? NULL : offsets;
	view->nread = noffsets;
	zscan_load_buffer(scan, buf);
	view->read = NULL;
	scan->nselected = view->nrows;
}

/*
 * Shows the next selected row of the loaded block in slot; returns false if
 * there is none.
 */
static bool
next_selected(ZScan *scan, TupleTableSlot *slot)
{
	if (scan->index >= scan->nselected)
		return false;
	zscan_store(scan, scan->index++, slot);
	pgstat_count_heap_fetch(scan->base.rs_rd);
	return true;
}

#if ZC_BITMAP_BY_BLOCK

/* Loads the next block of the bitmap. Returns whether it has rows to show. */
static bool
bitmap_next_block(TableScanDesc sscan, struct TBMIterateResult *tbmres)
{
	ZScan	   *scan = (ZScan *) sscan;

	scan->nselected = 0;
	scan->index = 0;
	if (!block_matters(scan, tbmres->blockno))
		return false;
	select_rows(scan, tbmres->blockno, zscan_read(scan, tbmres->blockno), tbmres->offsets,
				tbmres->ntuples);
	if (scan->nselected > 0)
		return true;
	zscan_rest_view(scan);
	return false;
}

/*
 * Returns the next row that bitmap_next_block has selected, in the slot. After
 * the last one lets the view rest: the scan is not told which block of
 * the bitmap is the last. The executor clears the slot or loads another block.
 */
static bool
bitmap_next_tuple(TableScanDesc sscan, struct TBMIterateResult *tbmres, TupleTableSlot *slot)
{
	if (next_selected((ZScan *) sscan, slot))
		return true;
	zscan_rest_view((ZScan *) sscan);
	return false;
}

/* zbitmap_rewind: See zscan_internal.h. */
void
zbitmap_rewind(ZScan *scan, bool end)
{
}

#else

/*
 * Returns the next block of the bitmap, as the stream's callback. What the
 * bitmap says of the block is passed on with the buffer.
 */
static BlockNumber
next_of_bitmap(ReadStream *stream, void *arg, void *per_buffer_data)
{
	ZScan	   *scan = arg;
	TBMIterateResult *result = per_buffer_data;

	while (tbm_iterate(&scan->base.st.rs_tbmiterator, result))
	{
		CHECK_FOR_INTERRUPTS();
		if (block_matters(scan, result->blockno))
			return result->blockno;
	}
	return InvalidBlockNumber;
}

/*
 * Returns the scan's read stream, which is created in the scan's memory on
 * first use.
 */
static ReadStream *
stream_of_bitmap(ZScan *scan)
{
	if (scan->stream == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(scan));

		scan->stream = read_stream_begin_relation(READ_STREAM_DEFAULT | READ_STREAM_USE_BATCHING,
												  scan->strategy,
												  scan->base.rs_rd, MAIN_FORKNUM, next_of_bitmap,
												  scan, sizeof(TBMIterateResult));
		MemoryContextSwitchTo(old);
	}
	return scan->stream;
}

/*
 * Shows the next row in slot, from the loaded block or else from the next block
 * of the stream that has one. Returns false at the end of the bitmap.
 */
static bool
bitmap_next_tuple(TableScanDesc sscan, TupleTableSlot *slot, bool *recheck,
				  uint64 *lossy_pages, uint64 *exact_pages)
{
	ZScan	   *scan = (ZScan *) sscan;
	OffsetNumber offsets[TBM_MAX_TUPLES_PER_PAGE];

	/* *recheck is about the block of the row that is returned */
	while (!next_selected(scan, slot))
	{
		TBMIterateResult *result;
		Buffer		buf = read_stream_next_buffer(stream_of_bitmap(scan), (void **) &result);

		CHECK_FOR_INTERRUPTS();
		if (!BufferIsValid(buf))
		{
			ExecClearTuple(slot);
			zscan_drop_view(scan);
			return false;
		}
		if (result->lossy)
			(*lossy_pages)++;
		else
			(*exact_pages)++;
		*recheck = result->recheck;
		select_rows(scan, result->blockno, buf, offsets,
					result->lossy ? -1
					: tbm_extract_page_tuple(result, offsets, lengthof(offsets)));
	}
	return true;
}

/* zbitmap_rewind: See zscan_internal.h. */
void
zbitmap_rewind(ZScan *scan, bool end)
{
	if (scan->stream == NULL)
		return;
	if (end)
		read_stream_end(scan->stream);
	else
		read_stream_reset(scan->stream);
}

#endif

void
zbitmap_fill_callbacks(TableAmRoutine *routine)
{
#if ZC_BITMAP_BY_BLOCK
	routine->scan_bitmap_next_block = bitmap_next_block;
#endif
	routine->scan_bitmap_next_tuple = bitmap_next_tuple;
}
