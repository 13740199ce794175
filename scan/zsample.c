/*
 * scan/zsample.c - TABLESAMPLE and the blocks that ANALYZE samples.
 *
 * ANALYZE sees the newest version of each row that is our own or committed. A
 * row that another transaction in progress has deleted counts as live, one
 * that it has inserted is not counted. Called through zam.c. Between calls no
 * lock is held, and no pin except on a block of a temporary table. Nothing is
 * written, but for bits of the visibility map that a sample scan sets (VMAP-1
 * in mvcc/).
 */
#include "postgres.h"

#include "access/syncscan.h"
#include "access/tsmapi.h"
#include "miscadmin.h"
#include "nodes/execnodes.h"
#include "pgstat.h"
#include "scan/zscan_internal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#if ZC_ANALYZE_STREAM
#include "storage/read_stream.h"
#endif

/*
 * Loads the block in buf, which is pinned, for ANALYZE, and releases the pin.
 */
static void
analyze_block(ZScan *scan, Buffer buf)
{
	scan->block = BufferGetBlockNumber(buf);
	zvis_page(scan->base.rs_rd, buf, SnapshotSelf, zscan_view(scan));
	ReleaseBuffer(buf);
	scan->index = 0;
	scan->nitems = scan->view->nrows;
}

#if ZC_ANALYZE_STREAM

/* Loads the stream's next block. Returns false if there is none. */
static bool
analyze_next_block(TableScanDesc sscan, ReadStream *stream)
{
	Buffer		buf = read_stream_next_buffer(stream, NULL);

	if (!BufferIsValid(buf))
	{
		zscan_drop_view((ZScan *) sscan);
		return false;
	}
	analyze_block((ZScan *) sscan, buf);
	return true;
}

#else

/* Loads the block. Always returns true: no block is left out of the sample. */
static bool
analyze_next_block(TableScanDesc sscan, BlockNumber block, BufferAccessStrategy strategy)
{
	analyze_block((ZScan *) sscan,
				  ReadBufferExtended(sscan->rs_rd, MAIN_FORKNUM, block, RBM_NORMAL, strategy));
	return true;
}

#endif

/*
 * Shows the next row of the block in slot. After the last one adds the block's
 * deleted rows to *deadrows and returns false.
 */
static bool
analyze_next_tuple(TableScanDesc sscan, ZC_ANALYZE_HORIZON_PARAM double *liverows,
				   double *deadrows, TupleTableSlot *slot)
{
	ZScan	   *scan = (ZScan *) sscan;

	Assert(scan->view != NULL && scan->index <= scan->nitems);
	if (scan->index >= scan->nitems)
	{
		*deadrows += scan->view->dead_rows;
		ExecClearTuple(slot);
		return false;
	}
	zscan_store(scan, scan->index++, slot);
	/* statistics are of columns: spare the copy of the row its token's hash */
	((ZHeapSlot *) slot)->token = FirstNormalTransactionId;
	*liverows += 1;
	return true;
}

/*
 * Returns the next block of a sample scan whose method does not choose blocks
 * itself; InvalidBlockNumber at the end.
 */
static BlockNumber
next_sequential_block(ZScan *scan)
{
	return zscan_next_block(scan, ForwardScanDirection) ? scan->block : InvalidBlockNumber;
}

/*
 * Loads the next block of the sample. Returns false at its end. The executor
 * has cleared its slot.
 */
static bool
sample_next_block(TableScanDesc sscan, struct SampleScanState *scanstate)
{
	ZScan	   *scan = (ZScan *) sscan;
	TsmRoutine *tsm = scanstate->tsmroutine;

	if (scan->nblocks == 0)
		return false;
	CHECK_FOR_INTERRUPTS();
	if (tsm->NextSampleBlock)
		scan->block = tsm->NextSampleBlock(scanstate, scan->nblocks);
	else
		scan->block = next_sequential_block(scan);
	if (scan->block == InvalidBlockNumber)
	{
		zscan_release(scan);
		zscan_drop_view(scan);
		return false;
	}
	zscan_load(scan, scan->block);
	return true;
}

/*
 * Returns the index in the view of the visible row at off, -1 if there is
 * none.
 */
static int
find_offset(const ZPageView *view, OffsetNumber off)
{
	int			low = 0;
	int			high = view->nrows - 1;

	while (low <= high)
	{
		int			middle = (low + high) / 2;

		if (view->offset[middle] == off)
			return middle;
		if (view->offset[middle] < off)
			low = middle + 1;
		else
			high = middle - 1;
	}
	return -1;
}

/*
 * Shows in slot the next row that the method chooses among the block's line
 * pointers and the snapshot sees. Returns false after the last one.
 */
static bool
sample_next_tuple(TableScanDesc sscan, struct SampleScanState *scanstate, TupleTableSlot *slot)
{
	ZScan	   *scan = (ZScan *) sscan;
	TsmRoutine *tsm = scanstate->tsmroutine;
	OffsetNumber maxoff = PageGetMaxOffsetNumber(scan->view->page.data);

	for (;;)
	{
		OffsetNumber off;
		int			i;

		CHECK_FOR_INTERRUPTS();
		off = tsm->NextSampleTuple(scanstate, scan->block, maxoff);
		if (!OffsetNumberIsValid(off))
		{
			ExecClearTuple(slot);
			return false;
		}
		i = find_offset(scan->view, off);
		if (i >= 0)
		{
			zscan_store(scan, i, slot);
			pgstat_count_heap_getnext(sscan->rs_rd);
			return true;
		}
	}
}

void
zsample_fill_callbacks(TableAmRoutine *routine)
{
	routine->scan_analyze_next_block = analyze_next_block;
	routine->scan_analyze_next_tuple = analyze_next_tuple;
	routine->scan_sample_next_block = sample_next_block;
	routine->scan_sample_next_tuple = sample_next_tuple;
}
