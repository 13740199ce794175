/*
 * scan/zscan_internal.h - the scan descriptor; not included from outside scan/.
 */
#ifndef ZUNDO_ZSCAN_INTERNAL_H
#define ZUNDO_ZSCAN_INTERNAL_H

#include "access/relscan.h"
#include "mvcc/zlevel.h"
#include "mvcc/zown.h"
#include "scan/zscan.h"
#include "storage/bufmgr.h"
#include "tuple/ztts.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * The number of versions of rows that one call may read, while a leaf page is
 * locked, to find entries of a zbtree index that no snapshot needs (ZBTREE-8),
 * or of one row, to find one with a key (ZBTREE-19).
 */
#define MAX_VERSIONS_JUDGED 1000

/*
 * The versions of a row that another transaction is changing (SCAN-7): those
 * that may become the newest one if it, or a subtransaction of it, aborts.
 */
typedef struct ZDoubt
{
	struct ZHistory *history;	/* NULL until the first such row */
	UndoPtr		shown;			/* author of the version shown before these */
	bool		loaded;			/* history stands at a version of the row */
	bool		more;			/* the last one has not been reached */
} ZDoubt;

/*
 * One scan of a table. The blocks to visit are 'nrange' blocks from
 * 'startblock' on, modulo nblocks; 'pos' counts them. In a parallel scan the
 * shared state hands out the blocks instead.
 */
typedef struct ZScan
{
	TableScanDescData base;		/* first: it is what callers see */
	BlockNumber nblocks;		/* of the table when the scan (re)started */
	BlockNumber startblock;
	BlockNumber nrange;
	BlockNumber pos;
	BlockNumber block;			/* loaded, or InvalidBlockNumber */
	bool		inited;			/* block and index are meaningful */
	bool		by_row;			/* zvis_page cannot answer for the snapshot
								 * (Dirty) */
	bool		beside;			/* by_row: versions before the current item's
								 * are due (SCAN-7) */
	ZDoubt		doubt;			/* these versions */
	BufferAccessStrategy strategy;
	ParallelBlockTableScanWorkerData *worker;	/* NULL in a serial scan */
	int			nitems;			/* on the loaded block: visible rows, or
								 * offsets if by_row */
	int			index;			/* current item */
	XLogRecPtr	lsn;			/* by_row: of the page when it was looked at
								 * last (SCAN-7b) */
	int			passes;			/* by_row: over the page */
	ZPageView  *view;			/* NULL before a block is loaded, and after
								 * the last row */
	uint32		nrecords;		/* undo records read by views given back */
	Buffer		buf;			/* by_row: pinned block */
	ZVersion   *version;		/* by_row */
	ItemPointerData mintid;		/* TID range scans */
	ItemPointerData maxtid;
	struct ReadStream *stream;	/* bitmap scans of 18: blocks that are read
								 * ahead */
	int			nselected;		/* bitmap scans: rows of the view, which has
								 * only those that the bitmap names */
} ZScan;

/*
 * zscan_refuse_historic: raises an error if the snapshot is one of logical
 * decoding, whose lists mean other transactions than those of an MVCC snapshot.
 * Every way to read rows calls it (SCAN-4).
 */
static inline void
zscan_refuse_historic(Snapshot snapshot)
{
	if (unlikely(snapshot != InvalidSnapshot && snapshot->snapshot_type == SNAPSHOT_HISTORIC_MVCC))
		zundo_not_supported("zheap tables cannot be read during logical decoding",
							"A zheap table cannot be a user catalog table.");
}

/*
 * zscan_refuse_deleted_search: raises an error if an apply worker looks for
 * deleted versions (SCAN-4). From 19 on it does so for a subscription with
 * retain_dead_tuples: it scans the table or an index with SnapshotAny, outside
 * of any query, and takes the slot for one of heap's.
 */
extern void zscan_refuse_deleted_search(Snapshot snapshot);

/*
 * zscan_reads_only: returns whether the statement neither changes the table nor
 * locks its rows. 19 tells the scan so, in the flags with which it
 * begins; before, it is found out. False for snapshots other than MVCC ones:
 * a search for duplicates is a part of an insertion.
 */
static inline bool
zscan_reads_only(Relation rel, Snapshot snapshot, uint32 flags)
{
	if (!IsMVCCSnapshot(snapshot))
		return false;
#if ZC_TELLS_READ_ONLY
	return (flags & SO_HINT_REL_READ_ONLY) != 0;
#else
	return zlevel_reads_only(rel);
#endif
}

/*
 * zscan_view: returns the scan's page view, which it takes if the scan has
 * none. The view's memory is that of the scan.
 *
 * zscan_drop_view: gives the view back if the scan has one, after its last row,
 * since a statement over many tables ends their scans only when it ends itself.
 * The view becomes the backend's spare one, which the next scan takes. The slot
 * that showed its rows has been cleared, or is not read any more.
 *
 * zscan_rest_view: lets the next scan take the view if this one does not need
 * it again. Slots are not read any more, as above.
 */
extern ZPageView *zscan_view(ZScan *scan);
extern void zscan_drop_view(ZScan *scan);
extern void zscan_rest_view(ZScan *scan);

/*
 * zscan_next_block: moves to the next block in this direction; returns false
 * at the end. Loads nothing, pins nothing.
 */
extern bool zscan_next_block(ZScan *scan, ScanDirection direction);

/*
 * zdoubt_begin: prepares *doubt, which is all zeros at first, for a row whose
 * newest version slot shows, and which another transaction is changing.
 *
 * zdoubt_next: shows in slot the next older version of that row, which is at
 * off of the block in buf (pinned and not locked), down to the last committed
 * one. Returns false if there is none. Allocates in the memory context of
 * owner, a chunk that lives as long as *doubt. Raises ERRCODE_DATA_CORRUPTED
 * for a damaged page or chain.
 *
 * zdoubt_end: frees what zdoubt_next has allocated.
 */
extern void zdoubt_begin(ZDoubt *doubt, TupleTableSlot *slot);
extern bool zdoubt_next(ZDoubt *doubt, Relation rel, Buffer buf, OffsetNumber off, void *owner,
						TupleTableSlot *slot);
extern void zdoubt_end(ZDoubt *doubt);

/*
 * zscan_release: unpins the block that the scan keeps pinned, for row by row
 * answers or because its table is temporary.
 */
extern void zscan_release(ZScan *scan);

/*
 * zscan_read: releases the block that the scan holds, and returns a pin on
 * 'block'.
 */
extern Buffer zscan_read(ZScan *scan, BlockNumber block);

/*
 * zscan_load_buffer: fills the view with the rows of the block in buf that the
 * scan's snapshot sees. Takes over the pin.
 */
extern void zscan_load_buffer(ZScan *scan, Buffer buf);

/*
 * zscan_load: reads 'block' and fills the view from it, as zscan_load_buffer.
 * Holds no pin on return, except on a block of a temporary table.
 */
extern void zscan_load(ZScan *scan, BlockNumber block);

/*
 * zscan_show: shows row i of the view in slot, valid until the scan moves to
 * another block.
 */
static inline void
zscan_show(ZScan *scan, int i, TupleTableSlot *slot)
{
	ZPageView  *view = scan->view;
	Relation	rel = scan->base.rs_rd;
	ZXid		chain_xid;
	UndoPtr		chain = zpageview_chain(view, i, &chain_xid);

	ztts_show(slot, view->row[i], view->len[i], scan->block, view->offset[i],
			  RelationGetRelid(rel), chain_xid, chain, rel->rd_locator.relNumber);
}

/*
 * zscan_store: does what zscan_show does, not inlined: for callers outside of
 * the hot loop of zheap_scan_getnextslot.
 */
extern void zscan_store(ZScan *scan, int i, TupleTableSlot *slot);

/*
 * zscan_blocks_done: returns how many blocks the whole scan has reached, for
 * progress reports.
 */
extern BlockNumber zscan_blocks_done(ZScan *scan);

/*
 * zscan_limit: restricts the scan to count blocks from start on
 * (InvalidBlockNumber: to the end). Called before the first row.
 */
extern void zscan_limit(ZScan *scan, BlockNumber start, BlockNumber count);

/*
 * zbitmap_rewind: resets the read stream of a bitmap scan that begins anew, or
 * ends it (end). Does nothing for other scans.
 */
extern void zbitmap_rewind(ZScan *scan, bool end);

/*
 * zbitmap_fill_callbacks, zsample_fill_callbacks: fill in the callbacks of
 * zbitmap.c, or of zsample.c.
 */
extern void zbitmap_fill_callbacks(TableAmRoutine *routine);
extern void zsample_fill_callbacks(TableAmRoutine *routine);

/*
 * zbuild_is_btree: returns whether nbtree's code builds the index. It sets
 * relam to that of btree meanwhile.
 */
extern bool zbuild_is_btree(Relation index);

/* ---- rows that an index scan need not fetch (zunseen.c) ---- */

typedef struct ZUnseenPage
{
	BlockNumber block;			/* InvalidBlockNumber: none */
	int			nfetched;		/* rows of it that were fetched in vain */
	uint64		rows[ZOFFSETS_WORDS];
} ZUnseenPage;

/* Pages that are remembered, each at the place block % ZUNSEEN_PAGES. */
#define ZUNSEEN_PAGES	256

typedef struct ZUnseen
{
	int			nfetched;		/* rows fetched in vain */
	ZXid		oldest;			/* zu_oldest() before the pages were looked at */
	uint64		nlate;			/* zown_nlate() before that */
	ZUnseenPage *pages;			/* NULL: none yet */
	ZPageView  *view;			/* of the page that was looked at last; NULL:
								 * none yet */
	BlockNumber block;			/* the view's */
	int			at;				/* row of the view at which to look first */
	BlockNumber last;			/* the block of the rows that streak counts */
	int			streak;			/* number of rows, one after the other, that
								 * were walked, or returned from the view */
} ZUnseen;

/*
 * zunseen_note: notes that a row was fetched from the page in buf in vain: the
 * scan's MVCC snapshot sees no version of it, or one with another key; and that
 * it is not dead to all. walked: undo was read for it. zunseen_walked: notes
 * that undo was read for a row of the page in buf. owner was palloc'd where the
 * memory shall be.
 * zunseen_has: returns whether the snapshot sees no version of the row at tid,
 * as far as that is remembered. zunseen_find: returns the place in unseen->view
 * of the version of the row at tid that the snapshot sees, if it is there, else
 * -1. zunseen_forget: frees the memory.
 */
extern void zunseen_note(ZUnseen *unseen, void *owner, Relation rel, Buffer buf,
						 Snapshot snapshot, bool walked);
extern void zunseen_walked(ZUnseen *unseen, void *owner, Relation rel, Buffer buf,
						   Snapshot snapshot);
extern void zunseen_forget(ZUnseen *unseen);
extern int	zunseen_in_view(ZUnseen *unseen, OffsetNumber off);

/* See above. */
static inline bool
zunseen_has(const ZUnseen *unseen, ItemPointer tid)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(tid);
	OffsetNumber off = ItemPointerGetOffsetNumberNoCheck(tid);
	const ZUnseenPage *page;

	if (unseen->pages == NULL)
		return false;
	page = &unseen->pages[block % ZUNSEEN_PAGES];
	return page->block == block && off <= ZHEAP_MAX_OFFSET &&
		(page->rows[off / 64] & UINT64CONST(1) << (off % 64)) != 0 &&
		unseen->oldest == zu_oldest() && likely(unseen->nlate == zown_nlate());
}

/* See above. */
static inline int
zunseen_find(ZUnseen *unseen, ItemPointer tid)
{
	if (likely(unseen->view == NULL) ||
		unseen->block != ItemPointerGetBlockNumberNoCheck(tid) ||
		unlikely(unseen->nlate != zown_nlate()))
		return -1;
	return zunseen_in_view(unseen, ItemPointerGetOffsetNumberNoCheck(tid));
}

#endif
