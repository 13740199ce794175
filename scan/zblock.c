/*
 * scan/zblock.c - the blocks of a scan: which one is next, and its rows.
 *
 * Called by all kinds of scans in scan/. A block is read once: mvcc/ copies it
 * under its share lock and finds the visible rows; afterwards no lock is held,
 * and no pin except on a block of a temporary table. Nothing is written, but
 * for the block's bit in the visibility map (VMAP-1 in mvcc/). Invariant
 * SCAN-1 in zscan.c.
 */
#include "postgres.h"

#include "access/syncscan.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "mvcc/zvismap.h"
#include "scan/zscan_internal.h"
#include "utils/memutils.h"
#include "utils/rel.h"

ZPageView *
zscan_view(ZScan *scan)
{
	if (scan->view != NULL)
		zpageview_wake(scan->view);
	else
	{
		scan->view = zpageview_take(GetMemoryChunkContext(scan));
		scan->view->nrecords = scan->nrecords;
	}
	return scan->view;
}

void
zscan_rest_view(ZScan *scan)
{
	if (scan->view == NULL)
		return;
	scan->nrecords = scan->view->nrecords;
	zpageview_rest(&scan->view);
}

void
zscan_drop_view(ZScan *scan)
{
	if (scan->view == NULL)
		return;
	scan->nrecords = scan->view->nrecords;
	zpageview_give_back(scan->view);
	scan->view = NULL;
}

void
zscan_release(ZScan *scan)
{
	if (BufferIsValid(scan->buf))
		ReleaseBuffer(scan->buf);
	scan->buf = InvalidBuffer;
}

/*
 * zscan_limit: See zscan_internal.h. Restricts the range. A start beyond the
 * table's end gives an empty one.
 */
void
zscan_limit(ZScan *scan, BlockNumber start, BlockNumber count)
{
	Assert(!scan->inited);
	if (start >= scan->nblocks)
	{
		scan->startblock = 0;
		scan->nrange = 0;
		return;
	}
	scan->startblock = start;
	scan->nrange = Min(count, scan->nblocks - start);
}

/*
 * Takes the next block that the shared state of a parallel scan hands out.
 * Returns false if there is none left.
 */
static bool
next_parallel_block(ZScan *scan)
{
	ParallelBlockTableScanDesc pscan = (ParallelBlockTableScanDesc) scan->base.rs_parallel;

	if (!scan->inited)
	{
		bool		range = (scan->base.rs_flags & SO_TYPE_TIDRANGESCAN) != 0;

		zc_parallel_scan_init(scan->base.rs_rd, scan->worker, pscan,
							  range ? scan->startblock : InvalidBlockNumber,
							  range ? scan->nrange : InvalidBlockNumber);
	}
	scan->block = table_block_parallelscan_nextpage(scan->base.rs_rd, scan->worker, pscan);
	scan->inited = (scan->block != InvalidBlockNumber);
	return scan->inited;
}

/*
 * zscan_next_block: See zscan_internal.h. Moves 'pos' up or, in a backward
 * scan, down over the same blocks; a backward scan is no longer
 * synchronized with others. After either end the scan stands before its first
 * block again.
 */
bool
zscan_next_block(ZScan *scan, ScanDirection direction)
{
	bool		forward = !ScanDirectionIsBackward(direction);
	bool		more;

	CHECK_FOR_INTERRUPTS();
	if (scan->base.rs_parallel != NULL)
	{
		Assert(forward);
		return next_parallel_block(scan);
	}
	Assert(!scan->inited || scan->nblocks > 0);
	if (!forward)
		scan->base.rs_flags &= ~SO_ALLOW_SYNC;
	if (!scan->inited)
	{
		more = scan->nrange > 0;
		scan->pos = forward ? 0 : scan->nrange - 1;
	}
	else if (forward)
	{
		uint64		next = (uint64) scan->startblock + ++scan->pos;

		more = scan->pos < scan->nrange;

		/*
		 * when the scan ends, this reports its start as the place to join at
		 */
		if (scan->base.rs_flags & SO_ALLOW_SYNC)
			ss_report_location(scan->base.rs_rd, (BlockNumber) (next % scan->nblocks));
	}
	else
		more = scan->pos-- > 0;
	scan->inited = more;
	scan->block = more ?
		(BlockNumber) (((uint64) scan->startblock + scan->pos) % scan->nblocks)
		: InvalidBlockNumber;
	return more;
}

/*
 * zscan_blocks_done: See zscan_internal.h. Counts, in a parallel scan, the
 * blocks from the shared start to the block that this process has reached.
 */
BlockNumber
zscan_blocks_done(ZScan *scan)
{
	ParallelBlockTableScanDesc pscan = (ParallelBlockTableScanDesc) scan->base.rs_parallel;

	if (!scan->inited)
		return pscan != NULL ? scan->nblocks : scan->nrange;
	if (pscan == NULL)
		return scan->pos;
	if (scan->block >= pscan->phs_startblock)
		return scan->block - pscan->phs_startblock;
	return scan->nblocks - pscan->phs_startblock + scan->block;
}

Buffer
zscan_read(ZScan *scan, BlockNumber block)
{
	zscan_release(scan);
	return ReadBufferExtended(scan->base.rs_rd, MAIN_FORKNUM, block, RBM_NORMAL, scan->strategy);
}

void
zscan_load(ZScan *scan, BlockNumber block)
{
	zscan_load_buffer(scan, zscan_read(scan, block));
}

/*
 * zscan_load_buffer: See zscan_internal.h. Fills the view by zvis_page. A
 * block of a temporary table stays pinned until the next one is read.
 */
void
zscan_load_buffer(ZScan *scan, Buffer buf)
{
	Relation	rel = scan->base.rs_rd;

	Assert(BufferGetBlockNumber(buf) == scan->block);
	Assert(zu_loaded());		/* also after invalidations */
	zscan_release(scan);

	/*
	 * As on heap, a serializable transaction that cannot commit any more
	 * fails at the next page that it reads.
	 */
	(void) zssi_needed(rel, scan->base.rs_snapshot);
	zvis_page(rel, buf, scan->base.rs_snapshot, zscan_view(scan));
	if (zscan_reads_only(rel, scan->base.rs_snapshot, scan->base.rs_flags))
		zvismap_after_read(rel, buf, scan->view);

	/*
	 * As on heap, an open scan of a temporary table occupies one of the
	 * session's few local buffers, so that statements fail for want of them
	 * in the same cases.
	 */
	if (RelationUsesLocalBuffers(rel))
		scan->buf = buf;
	else
		ReleaseBuffer(buf);
}

void
zscan_store(ZScan *scan, int i, TupleTableSlot *slot)
{
	zscan_show(scan, i, slot);
}
