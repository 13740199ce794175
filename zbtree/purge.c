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
 * Owns rule ZBTREE-13. Locks: one leaf page at a time; WAL is nbtree's. No
 * crash points: entries that are not deleted stay until VACUUM deletes them.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "common/compat_nbtree.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "zbtree/purge.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

/*
 * Entries passed to nbtree in one call. They may belong to as many table
 * blocks, and scan/zfetch.c looks at that many even if it finds nothing to
 * delete.
 */
#define MAX_TOGETHER	ZBTREE_PURGED_TOGETHER

/* See lock_leaf. */
#define MAX_SEARCHES	3

/*
 * Returns whether the key is not above the high key of the leaf page, which is
 * locked.
 */
static bool
belongs_left_of_bound(Relation index, Page page, BTScanInsert key)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);

	Assert(P_ISLEAF(opaque) && !P_IGNORE(opaque));
	return P_RIGHTMOST(opaque) || _bt_compare(index, key, page, P_HIKEY) <= 0;
}

/*
 * Finds the leaf page where the key belongs. Returns it pinned and locked
 * exclusively, or InvalidBuffer if the index is empty. The search takes share
 * locks, because a search with exclusive locks may have to complete a page
 * split. If the page is split or deleted before it is locked exclusively,
 * searches again; returns InvalidBuffer after MAX_SEARCHES attempts.
 */
Buffer
zbtree_lock_leaf(Relation index, Relation table, BTScanInsert key)
{
	for (int i = 0; i < MAX_SEARCHES; i++)
	{
		Buffer		buf;
		Page		page;

		zc_bt_search(index, table, key, &buf, BT_READ);
		if (!BufferIsValid(buf))
			return InvalidBuffer;
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		page = BufferGetPage(buf);
		if (!P_IGNORE(BTPageGetOpaque(page)) && belongs_left_of_bound(index, page, key))
			return buf;
		_bt_relbuf(index, buf);
	}
	return InvalidBuffer;
}

/*
 * Returns the offset of the entry with this key and TID on the leaf page, or
 * InvalidOffsetNumber.
 */
OffsetNumber
zbtree_find_entry(Relation index, Page page, BTScanInsert key)
{
	OffsetNumber low = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	OffsetNumber high = PageGetMaxOffsetNumber(page) + 1;

	Assert(key->scantid != NULL);
	while (low < high)
	{
		OffsetNumber middle = low + (high - low) / 2;
		int32		difference = _bt_compare(index, key, page, middle);

		if (difference == 0)
			return middle;
		if (difference > 0)
			low = middle + 1;
		else
			high = middle;
	}
	return InvalidOffsetNumber;
}

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
	Assert(zc_buffer_exclusive(buf));	/* ZBTREE-13 */
	op.irel = index;
	op.iblknum = BufferGetBlockNumber(buf);
	op.bottomup = true;			/* perhaps none of them is deletable */
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
	Buffer		buf = zbtree_lock_leaf(index, table, key);
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
		if (!belongs_left_of_bound(index, BufferGetPage(buf), key))
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
	for (int done = 0; done < n;)
	{
		CHECK_FOR_INTERRUPTS();
		done += purge_leaf(index, table, entries + done, n - done);
	}
}
