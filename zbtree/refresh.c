/*
 * zbtree/refresh.c - replacing an entry by one with the bytes of its row, and
 * waiting for scans that may have read the old entry (ZBTREE-15). Called by
 * VACUUM.
 *
 * Locks: one leaf page at a time. nbtree has no WAL record for replacing an
 * entry, so it is logged as ZWAL_MARK. No crash points: until the flag of its
 * row is removed, either entry is valid.
 *
 *	ZBTREE-15	(refresh) Before VACUUM removes flags, it waits for all
 *		index-only scans that may have read an entry which has since been
 *		deleted, by VACUUM, page-full deletion or the purge, or which VACUUM
 *		has replaced:
 *		1. btbulkdelete takes a cleanup lock on each leaf page, even if it
 *			deletes nothing there, and follows page splits. So a scan that read
 *			a leaf page before btbulkdelete began has left it when btbulkdelete
 *			ends. It skips pages that were already deleted, so VACUUM takes a
 *			cleanup lock on those itself (zbtree_wait_for_scans), unless all of
 *			them are free for reuse: then no snapshot is older than their
 *			deletion.
 *		2. VACUUM replaces entries whose key is right but whose other bytes
 *			differ from the row's, each under an exclusive lock on its leaf
 *			page and with a WAL record of its own. The new entry has an equal
 *			key and the same TID, so the order of entries and the high keys
 *			stay valid. An entry is not replaced, and its row keeps the flag,
 *			if it has columns that are stored out of line, is longer than
 *			nbtree allows, or finds no space on its page.
 *		3. A second pass of btbulkdelete, which deletes nothing, waits for
 *			scans again.
 *		Example: a scan has read the entry of a = 5 and waits, the row has
 *		a = 9. If VACUUM deleted the entry, took the flag off and set the
 *		page's bit in the visibility map, the scan would return 5.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/xloginsert.h"
#include "change/zwal.h"
#include "common/compat_nbtree.h"
#include "common/rmgr.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "zbtree/refresh.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

/*
 * Returns a palloc'd entry of these values. Returns NULL if the index has
 * expressions, if a value is stored out of line, or if the entry might become
 * too long.
 */
static IndexTuple
form_entry(Relation index, ItemPointer tid, Datum *values, bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(index);
	IndexTuple	entry;
	Size		size = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		ZcAttr		att = zc_attr(desc, i);

		if (index->rd_index->indkey.values[i] == InvalidAttrNumber)
			return NULL;
		if (isnull[i] || att->attlen != -1)
			continue;
		if (VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
			return NULL;
		size += toast_raw_datum_size(values[i]);
	}
	if (size > BLCKSZ / 2)
		return NULL;
	entry = index_form_tuple(desc, values, isnull);
	entry->t_tid = *tid;
	return entry;
}

/* Logs that the entry at off of the leaf page in buf has been replaced. */
static void
log_entry(Buffer buf, OffsetNumber off, IndexTuple entry)
{
	xl_zheap_mark xlrec = {off, ZMARK_ENTRY};
	XLogRecPtr	recptr;

	Assert(CritSectionCount > 0);
	Assert(IndexTupleSize(entry) <= zc_bt_max_entry(BufferGetPage(buf)));
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfZheapMark);
	XLogRegisterData((char *) entry, IndexTupleSize(entry));
	XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
	recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_MARK);
	PageSetLSN(BufferGetPage(buf), recptr);
}

/*
 * Replaces the entry at off of the leaf page, which is locked exclusively, by
 * one with an equal key and the same TID. Logs the change. Returns false if the
 * page has no space.
 */
static bool
replace_entry(Relation index, Buffer buf, OffsetNumber off, IndexTuple entry)
{
	Page		page = BufferGetPage(buf);
	int			more = (int) MAXALIGN(IndexTupleSize(entry)) -
	(int) MAXALIGN(ItemIdGetLength(PageGetItemId(page, off)));

	Assert(zc_buffer_exclusive(buf));
	Assert(IndexTupleSize(entry) == MAXALIGN(IndexTupleSize(entry)));
	if (IndexTupleSize(entry) > zc_bt_max_entry(page) || more > (int) PageGetExactFreeSpace(page))
		return false;
	START_CRIT_SECTION();
	if (!PageIndexTupleOverwrite(page, off, (char *) entry, IndexTupleSize(entry)))
		elog(PANIC, "cannot replace entry %u in block %u of index \"%s\"", off,
			 BufferGetBlockNumber(buf), RelationGetRelationName(index));
	MarkBufferDirty(buf);
	if (RelationNeedsWAL(index))
		log_entry(buf, off, entry);
	END_CRIT_SECTION();
	return true;
}

/* zbtree_refresh: See refresh.h. */
bool
zbtree_refresh(Relation index, Relation table, ItemPointer tid, Datum *values, bool *isnull,
			   bool *written)
{
	IndexTuple	entry = form_entry(index, tid, values, isnull);
	BTScanInsert key;
	Buffer		buf;
	OffsetNumber off = InvalidOffsetNumber;
	bool		fresh = false;

	Assert(zbtree_is(index));
	if (entry == NULL)
		return false;
	key = _bt_mkscankey(index, entry);
	buf = zbtree_lock_leaf(index, table, key, ZBTREE_SEARCHES);
	if (BufferIsValid(buf))
	{
		Page		page = BufferGetPage(buf);

		off = zbtree_find_entry(index, page, key);
		if (OffsetNumberIsValid(off))
		{
			IndexTuple	present = (IndexTuple) PageGetItem(page, PageGetItemId(page, off));

			fresh = zbtree_has_content(index, present, values, isnull);
			if (!fresh)
				*written |= fresh = replace_entry(index, buf, off, entry);
		}
		_bt_relbuf(index, buf);
	}
	pfree(key);
	pfree(entry);
	return fresh;
}

/*
 * zbtree_wait_for_scans: See refresh.h. Takes a cleanup lock on each deleted
 * page and releases it again.
 */
void
zbtree_wait_for_scans(Relation index, BufferAccessStrategy strategy)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(index);

	for (BlockNumber block = BTREE_METAPAGE + 1; block < nblocks; block++)
	{
		Buffer		buf;
		Page		page;
		bool		deleted;

		CHECK_FOR_INTERRUPTS();
		buf = ReadBufferExtended(index, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
		LockBuffer(buf, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buf);
		deleted = PageIsNew(page) || P_IGNORE(BTPageGetOpaque(page));
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		if (deleted)
		{
			LockBufferForCleanup(buf);
			LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		}
		ReleaseBuffer(buf);
	}
}
