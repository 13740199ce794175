/*
 * mvcc/zlocks.h - reading row locks: lists of them, and all that hold the rows
 * of a page.
 */
#ifndef ZUNDO_ZLOCKS_H
#define ZUNDO_ZLOCKS_H

#include "common/zundo.h"
#include "mvcc/zchain.h"
#include "mvcc/zvis.h"
#include "nodes/lockoptions.h"

typedef struct ZLockScan
{
	OffsetNumber off;			/* the row that is asked for; 0 = all */
	ZXid		oldest;
	ZChain		chain;
	const char *entries;		/* of the record in hand */
	int			n;
	int			i;
	bool		writer_aborted;
	int			nrecords;
	char		buf[ZUR_MAX_LENGTH];
} ZLockScan;

/*
 * zlocklist_begin, zlocklist_next: the locks of transactions at work, ours
 * included, that a common lock slot names for the row at off, or all rows.
 * oldest: loaded while the page was locked that the slot was copied from.
 */
extern void zlocklist_begin(ZLockScan *scan, const ZPageSlot *slot, ZXid oldest,
							RelFileNumber relnumber, BlockNumber block, OffsetNumber off);
extern bool zlocklist_next(ZLockScan *scan, ZLockEntry *entry, ZXidStatus *status);

/* One (sub)transaction at work that holds a row, by a lock or by a change. */
typedef struct ZHolder
{
	OffsetNumber off;
	ZXid		xid;
	LockTupleMode mode;
	bool		change;
} ZHolder;

/*
 * zpage_holders: who holds rows of a block: palloc'd array of *n. Undo
 * attached, no buffer lock held.
 */
extern ZHolder *zpage_holders(Relation rel, BlockNumber block, int *n);

/*
 * zpage_locked_items: locked[off] of the ZHEAP_MAX_OFFSET + 1 elements = some
 * transaction at work, ours included, has a lock on the item at off, be there
 * a row or not. The page is locked.
 */
extern void zpage_locked_items(Relation rel, BlockNumber block, Page page, bool *locked);

#endif
