/*
 * zbtree/leaf.c - finding the leaf page and the place of an entry that is given
 * by key and TID; removing marks from entries.
 *
 * Called by keys.c, purge.c, refresh.c and by index deletion in scan/. Locks:
 * one leaf page, exclusively, that the caller unlocks. WAL: ZWAL_MARK. Crash
 * points: "marks-cleared".
 *
 *	MARK-4	A mark is removed with a WAL record only: that of a page split or a
 *		deletion, which nbtree writes, or ZWAL_MARK with ZMARK_ENTRIES_ALIVE. A
 *		mark may be on disk already. If it were removed without a WAL record,
 *		it could be back after a crash, although a transaction that has since
 *		given the row its key again found no mark to remove. So at each place
 *		in WAL, replay has no mark that the primary did not have there.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "change/zwal.h"
#include "common/compat_nbtree.h"
#include "common/fault.h"
#include "common/rmgr.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

bool
zbtree_belongs_here(Relation index, Page page, BTScanInsert key)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);

	Assert(P_ISLEAF(opaque) && !P_IGNORE(opaque));
	return P_RIGHTMOST(opaque) || _bt_compare(index, key, page, P_HIKEY) <= 0;
}

/*
 * zbtree_lock_leaf: See zbtree_internal.h. Searches with share locks, because a
 * search with exclusive locks may have to complete a page split, and locks the
 * leaf page exclusively afterwards. The page may have been split or deleted in
 * between; then it searches again.
 */
Buffer
zbtree_lock_leaf(Relation index, Relation table, BTScanInsert key, int n)
{
	for (int i = 0; i < n; i++)
	{
		Buffer		buf;
		Page		page;

		CHECK_FOR_INTERRUPTS();
		zc_bt_search(index, table, key, &buf, BT_READ);
		if (!BufferIsValid(buf))
			return InvalidBuffer;
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		page = BufferGetPage(buf);
		if (!P_IGNORE(BTPageGetOpaque(page)) && zbtree_belongs_here(index, page, key))
			return buf;
		_bt_relbuf(index, buf);
	}
	return InvalidBuffer;
}

/* zbtree_find_entry: See zbtree_internal.h. A binary search. */
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
 * zbtree_clear_marks: See zbtree.h. nbtree has no WAL record for this, so it is
 * logged as ZWAL_MARK.
 */
void
zbtree_clear_marks(Relation index, Buffer buf, OffsetNumber *offsets, int n)
{
	Page		page = BufferGetPage(buf);

	Assert(n > 0 && zc_buffer_exclusive(buf));
	Assert(!RecoveryInProgress());
	START_CRIT_SECTION();
	for (int i = 0; i < n; i++)
	{
		ItemId		item = PageGetItemId(page, offsets[i]);

		Assert(ItemIdIsDead(item) && ItemIdHasStorage(item));
		ItemIdSetNormal(item, ItemIdGetOffset(item), ItemIdGetLength(item));
	}
	MarkBufferDirty(buf);
	if (RelationNeedsWAL(index))
	{
		xl_zheap_mark xlrec = {InvalidOffsetNumber, ZMARK_ENTRIES_ALIVE};
		XLogRecPtr	recptr;

		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfZheapMark);
		XLogRegisterData((char *) offsets, n * sizeof(OffsetNumber));
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
		recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_MARK);
		PageSetLSN(page, recptr);
	}
	END_CRIT_SECTION();
	ZUNDO_FAULT("marks-cleared");
}
