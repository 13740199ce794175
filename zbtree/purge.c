/*
 * zbtree/purge.c - deleting entries that are given by key and TID, unless they
 * are needed.
 *
 * Each entry's leaf page is found as for an insertion, and locked exclusively.
 * Then nbtree's function for bottom-up deletion is called with the entries that
 * were found there. It asks the table's access method which of them may be
 * deleted (zheap_index_delete_tuples in scan/), which decides by ZBTREE-8 as it
 * does when a leaf page is full.
 *
 * Locks: one leaf page at a time; WAL is nbtree's. No crash points: entries
 * that are not deleted stay until VACUUM deletes them.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "common/compat_nbtree.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "zbtree/predicate.h"
#include "zbtree/purge.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

/*
 * Entries passed to nbtree in one call. They may belong to as many table
 * blocks, and scan/zindex_delete.c looks at that many even if it finds nothing
 * to delete.
 */
#define MAX_TOGETHER	ZBTREE_PURGED_TOGETHER

/*
 * Inserts an offset into the n ascending ones, unless it is among them. Returns
 * how many there are now.
 */
static int
add_offset(OffsetNumber *offsets, int n, OffsetNumber off)
{
	int			at = n;

	for (int i = 0; i < n; i++)
		if (offsets[i] == off)
			return n;
	for (; at > 0 && offsets[at - 1] > off; at--)
		offsets[at] = offsets[at - 1];
	offsets[at] = off;
	return n + 1;
}

/*
 * Deletes those of the n entries that are not needed. They are on the leaf page
 * in buf, which is locked exclusively, at ascending offsets.
 */
static void
delete_unneeded(Relation index, Relation table, Buffer buf, const OffsetNumber *offsets, int n)
{
	Page		page = BufferGetPage(buf);
	TM_IndexDelete entries[MAX_TOGETHER];
	TM_IndexStatus states[MAX_TOGETHER];
	TM_IndexDeleteOp op = {0};

	Assert(n > 0 && n <= MAX_TOGETHER);
	Assert(zc_buffer_exclusive(buf));	/* ZBTREE-8 */
	op.irel = index;
	op.iblknum = BufferGetBlockNumber(buf);
	op.bottomup = true;			/* else nbtree expects a deletable one */
	op.bottomupfreespace = BLCKSZ;
	op.deltids = entries;
	op.status = states;
	op.ndeltids = n;
	for (int i = 0; i < n; i++)
	{
		ItemId		item = PageGetItemId(page, offsets[i]);

		entries[i].tid = ((IndexTuple) PageGetItem(page, item))->t_tid;
		entries[i].id = i;
		states[i].idxoffnum = offsets[i];
		states[i].knowndeletable = false;
		states[i].promising = true;
		states[i].freespace = ItemIdGetLength(item) + sizeof(ItemIdData);
	}
	_bt_delitems_delete_check(index, buf, table, &op);
}

/*
 * Purges the first of the n entries, and those after it that are on the same
 * leaf page, up to MAX_TOGETHER. Returns how many entries were looked at.
 */
static int
purge_leaf(Relation index, Relation table, IndexTuple *entries, int n)
{
	OffsetNumber offsets[MAX_TOGETHER];
	BTScanInsert key = _bt_mkscankey(index, entries[0]);
	Buffer		buf = zbtree_lock_leaf(index, table, key, ZBTREE_SEARCHES);
	int			nfound = 0;
	int			looked_at = 1;

	Assert(n > 0);
	if (!BufferIsValid(buf))
	{
		pfree(key);
		return looked_at;
	}
	for (;;)
	{
		OffsetNumber off = zbtree_find_entry(index, BufferGetPage(buf), key);

		pfree(key);
		if (OffsetNumberIsValid(off))
			nfound = add_offset(offsets, nfound, off);
		else if (looked_at > 1)
		{
			looked_at--;		/* it may be on another page */
			break;
		}
		if (looked_at == n || nfound == MAX_TOGETHER)
			break;
		key = _bt_mkscankey(index, entries[looked_at++]);
		if (!zbtree_belongs_here(index, BufferGetPage(buf), key))
		{
			pfree(key);
			looked_at--;
			break;
		}
	}
	if (nfound > 0)
		delete_unneeded(index, table, buf, offsets, nfound);
	_bt_relbuf(index, buf);
	return looked_at;
}

/* zbtree_purge: See purge.h. */
void
zbtree_purge(Relation index, Relation table, IndexTuple *entries, int n)
{
	Assert(zbtree_is(index) && !RelationUsesLocalBuffers(index));
	(void) zpredicate_get(index);	/* for zbtree_needed */
	for (int done = 0; done < n;)
	{
		CHECK_FOR_INTERRUPTS();
		done += purge_leaf(index, table, entries + done, n - done);
	}
}
