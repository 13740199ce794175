/*
 * zbtree/purge.c - deleting stale entries that are known by key and TID.
 *
 * Each entry is searched as an insertion would search its place. It is deleted
 * by nbtree's own code for entries of dead rows, which asks the table's access
 * method which of them are (zheap_index_delete_tuples in scan/), while the leaf
 * page is locked exclusively: so the answer is that of page-full deletion
 * (ZBTREE-8).
 *
 * Owns rule ZBTREE-13. Locks: one leaf page at a time; WAL is nbtree's. No
 * crash points: what is not deleted waits for VACUUM.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "zbtree/purge.h"
#include "zbtree/zbtree.h"

/*
 * Entries that are deleted together, of as many table blocks. Bottom-up
 * deletion must look at all of these blocks, though it finds nothing there
 * (scan/zfetch.c).
 */
#define MAX_TOGETHER	ZBTREE_PURGED_TOGETHER

/* A page may be split between its two locks; then it is searched anew. */
#define MAX_SEARCHES	3

/*
 * Returns whether the leaf page, which is locked, is the one where the key
 * belongs, as far as the page's upper bound tells.
 */
static bool
belongs_left_of_bound(Relation index, Page page, BTScanInsert key)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);

	Assert(P_ISLEAF(opaque) && !P_IGNORE(opaque));
	return P_RIGHTMOST(opaque) || _bt_compare(index, key, page, P_HIKEY) <= 0;
}

/*
 * Finds the leaf page where the key belongs and locks it exclusively. It is
 * searched with share locks: a search with exclusive ones may have to complete
 * a split. Returns InvalidBuffer if the index is empty, or changes too fast.
 */
static Buffer
lock_leaf(Relation index, Relation table, BTScanInsert key)
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
static OffsetNumber
find_entry(Relation index, Page page, BTScanInsert key)
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

/* Adds an offset to n in ascending order, unless it is there already. */
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
 * Deletes those of the n entries, which are on the exclusively locked leaf page
 * in the order of offsets, that nobody needs.
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
	op.bottomup = true;			/* none of them needs to be deletable */
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
 * Looks at the first of the n entries, and at those after it as long as they
 * are on the same leaf page. Returns how many were looked at.
 */
static int
purge_leaf(Relation index, Relation table, IndexTuple *entries, int n)
{
	OffsetNumber offsets[MAX_TOGETHER];
	BTScanInsert key = _bt_mkscankey(index, entries[0]);
	Buffer		buf = lock_leaf(index, table, key);
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
		OffsetNumber off = find_entry(index, BufferGetPage(buf), key);

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
