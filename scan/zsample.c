/*
 * scan/zsample.c - TABLESAMPLE and the blocks that ANALYZE samples.
 *
 * ANALYZE sees the newest version of each row that is our own or committed;
 * what others have deleted without having committed still counts as live, what
 * they have inserted is not counted. Holds no lock or pin between calls.
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

/* Take over a pinned block for ANALYZE. */
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

static bool
analyze_next_block(TableScanDesc sscan, ReadStream *stream)
{
	Buffer		buf = read_stream_next_buffer(stream, NULL);

	if (!BufferIsValid(buf))
		return false;
	analyze_block((ZScan *) sscan, buf);
	return true;
}

#else

static bool
analyze_next_block(TableScanDesc sscan, BlockNumber block, BufferAccessStrategy strategy)
{
	analyze_block((ZScan *) sscan,
				  ReadBufferExtended(sscan->rs_rd, MAIN_FORKNUM, block, RBM_NORMAL, strategy));
	return true;
}

#endif

static bool
analyze_next_tuple(TableScanDesc sscan, TransactionId oldest_xmin, double *liverows,
				   double *deadrows, TupleTableSlot *slot)
{
	ZScan	   *scan = (ZScan *) sscan;

	if (scan->index >= scan->nitems)
	{
		*deadrows += scan->view->dead_rows;
		ExecClearTuple(slot);
		return false;
	}
	zscan_store(scan, scan->index++, slot);
	*liverows += 1;
	return true;
}

/*
 * The next block of a sample scan whose method does not choose blocks itself.
 */
static BlockNumber
next_sequential_block(ZScan *scan)
{
	return zscan_next_block(scan, ForwardScanDirection) ? scan->block : InvalidBlockNumber;
}

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
		return false;
	zscan_load(scan, scan->block);
	return true;
}

/* Index in the view of the visible row at off, -1 if none. */
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
