/*
 * scan/zbitmap.c - bitmap scans.
 *
 * Up to 17 the executor hands over one block of the bitmap after the other;
 * from 18 on we take them from the scan's iterator. Either way a block's
 * visible rows come from a page view and are matched against the offsets that
 * the bitmap names. Holds no lock or pin between calls.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "nodes/tidbitmap.h"
#include "pgstat.h"
#include "scan/zscan_internal.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* Select row i of the view for the scan. */
static void
select_row(ZScan *scan, int i)
{
	scan->selected[scan->nselected++] = i;
}

/* Note for serializable transactions that the rows at 'offsets' of block are read, or all if noffsets is negative. */
static void
note_reads(ZScan *scan, BlockNumber block, const OffsetNumber *offsets, int noffsets)
{
	Relation	rel = scan->base.rs_rd;
	Buffer		buf;

	if (!zssi_needed(rel, scan->base.rs_snapshot))
		return;
	buf = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, scan->strategy);
	if (noffsets < 0)
	{
		LockBuffer(buf, BUFFER_LOCK_SHARE);
		noffsets = PageGetMaxOffsetNumber(BufferGetPage(buf));
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		offsets = NULL;
	}
	for (int i = 0; i < noffsets; i++)
		zssi_before_read(rel, buf, offsets ? offsets[i] : FirstOffsetNumber + i, scan->base.rs_snapshot);
	ReleaseBuffer(buf);
}

/*
 * Load a block and select its visible rows: those at 'offsets' (ascending), or
 * all if noffsets is negative. Blocks that did not exist when the scan began
 * hold nothing that its snapshot sees; serializable transactions look all the same.
 */
static void
select_block(ZScan *scan, BlockNumber block, const OffsetNumber *offsets, int noffsets)
{
	ZPageView  *view;
	int			next = 0;

	scan->nselected = 0;
	scan->index = 0;
	scan->block = block;
	if (block >= scan->nblocks && !IsolationIsSerializable())
		return;
	note_reads(scan, block, offsets, noffsets);
	view = zscan_view(scan);
	view->read = noffsets < 0 ? NULL : offsets;
	view->nread = noffsets;
	zscan_load(scan, block);
	view->read = NULL;
	for (int i = 0; i < view->nrows; i++)
	{
		if (noffsets >= 0)
		{
			while (next < noffsets && offsets[next] < view->offset[i])
				next++;
			if (next == noffsets)
				break;
			if (offsets[next] != view->offset[i])
				continue;
		}
		select_row(scan, i);
	}
}

/* Show the next selected row of the loaded block; false if there is none. */
static bool
next_selected(ZScan *scan, TupleTableSlot *slot)
{
	if (scan->index >= scan->nselected)
		return false;
	zscan_store(scan, scan->selected[scan->index++], slot);
	pgstat_count_heap_fetch(scan->base.rs_rd);
	return true;
}

#if ZC_BITMAP_BY_BLOCK

static bool
bitmap_next_block(TableScanDesc sscan, struct TBMIterateResult *tbmres)
{
	ZScan	   *scan = (ZScan *) sscan;

	select_block(scan, tbmres->blockno, tbmres->offsets, tbmres->ntuples);
	return scan->nselected > 0;
}

static bool
bitmap_next_tuple(TableScanDesc sscan, struct TBMIterateResult *tbmres, TupleTableSlot *slot)
{
	return next_selected((ZScan *) sscan, slot);
}

#else

static bool
bitmap_next_tuple(TableScanDesc sscan, TupleTableSlot *slot, bool *recheck,
				  uint64 *lossy_pages, uint64 *exact_pages)
{
	ZScan	   *scan = (ZScan *) sscan;
	TBMIterateResult result;
	OffsetNumber offsets[TBM_MAX_TUPLES_PER_PAGE];

	/* recheck speaks of the block of the row that is returned */
	while (!next_selected(scan, slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (!tbm_iterate(&sscan->st.rs_tbmiterator, &result))
		{
			ExecClearTuple(slot);
			return false;
		}
		if (result.lossy)
			(*lossy_pages)++;
		else
			(*exact_pages)++;
		*recheck = result.recheck;
		select_block(scan, result.blockno, offsets,
					 result.lossy ? -1 : tbm_extract_page_tuple(&result, offsets, lengthof(offsets)));
	}
	return true;
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
