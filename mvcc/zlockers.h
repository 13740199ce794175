/*
 * mvcc/zlockers.h - reading row locks: the lists of common lock slots, and all
 * locks and changes that hold the rows of a page.
 */
#ifndef ZUNDO_ZLOCKERS_H
#define ZUNDO_ZLOCKERS_H

#include "common/zundo.h"
#include "mvcc/zchain.h"
#include "mvcc/zvis.h"
#include "nodes/lockoptions.h"

/* A walk over the locks that a common lock slot names. */
typedef struct ZLockScan
{
	OffsetNumber off;			/* the row whose locks are wanted; 0 = all
								 * rows */
	ZXid		oldest;
	ZChain		chain;
	const char *entries;		/* of the record read last */
	int			n;				/* number of entries */
	int			i;				/* the next one */
	bool		author_aborted; /* of that record */
	int			nrecords;		/* records read so far */
	char		buf[ZUR_MAX_LENGTH];
} ZLockScan;

/*
 * zlockers_begin: begins to read the locks that a common lock slot names for
 * the row at off, or for all rows if off is 0. oldest was loaded while the
 * page was locked from which the slot was copied. zlockers_next: finds the
 * next lock of a transaction in progress, ours included; returns false if
 * there is none. Raises ERRCODE_DATA_CORRUPTED if the slot points to a record
 * that is no list of locks.
 */
extern void zlockers_begin(ZLockScan *scan, const ZPageSlot *slot, ZXid oldest,
						   RelFileNumber relnumber, BlockNumber block, OffsetNumber off);
extern bool zlockers_next(ZLockScan *scan, ZLockEntry *entry, ZXidStatus *status);

/*
 * One (sub)transaction in progress that holds a row, by a lock or by a change.
 */
typedef struct ZHolder
{
	OffsetNumber off;
	ZXid		xid;
	LockTupleMode mode;
	bool		change;
} ZHolder;

/*
 * zlockers_holders: returns a palloc'd array of *n elements: the
 * (sub)transactions that hold rows of the block. On entry undo is attached and
 * no buffer lock is held.
 */
extern ZHolder *zlockers_holders(Relation rel, BlockNumber block, int *n);

/*
 * zlockers_locked_items: sets locked[off], for each of the ZHEAP_MAX_OFFSET + 1
 * elements, to whether a transaction in progress, ours included, has a lock on
 * the item at off; the item need not hold a row. The page is locked.
 */
extern void zlockers_locked_items(Relation rel, BlockNumber block, Page page, bool *locked);

#endif
