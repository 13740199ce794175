/*
 * change/zredo.c - replay of zundo's WAL.
 *
 * Row changes are decoded (zwal.c) and applied to the table page by the
 * functions that DML used (zapply.c); their undo bytes are put where they were.
 * Buffers are locked in the order of the lock hierarchy and released only when
 * all pages of the record are written, so that a standby's reader never finds a
 * slot whose record is not there yet.
 *
 * Invariant
 *	OVERFLOW-5	a record that concerns a slot of an overflow page finds its
 *		table page, if that is older than the record, with the number of that
 *		overflow page, as it was when the record was written. If it is not
 *		there, storage has lost a write of the table page. Then the page is
 *		marked (ZPAGE_LOST_OVERFLOW) instead of being changed, for else it
 *		would pass for a page that is newer than its overflow page (OVERFLOW-4):
 *		- replay leaves it alone until an image replaces it or it is made anew;
 *		- each reader or change of its rows gets an error (zpage_mark_lost);
 *		- its overflow page stays.
 *		Example: the write that gave block 5 the overflow page 9 was lost. The
 *		record of slot 14 names 9, but block 5 names none.
 */
#include "postgres.h"

#include "access/bufmask.h"
#include "access/itup.h"
#include "access/nbtree.h"
#include "access/nbtxlog.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "change/zchange.h"
#include "change/zredo.h"
#include "page/zoverflow.h"
#include "page/zvmap.h"

/*
 * The greatest number of pages in one record: two table pages, their overflow
 * pages and the undo pages.
 */
#define MAX_HELD (4 + ZU_MAX_PAGES)

/*
 * Raises the error for a record that cannot be replayed: recovery must not
 * continue past it.
 */
static void
malformed(XLogReaderState *record)
{
	elog(PANIC, "zundo: malformed WAL record %s at %X/%X",
		 zwal_identify(XLogRecGetInfo(record)) ? zwal_identify(XLogRecGetInfo(record)) : "?",
		 LSN_FORMAT_ARGS(record->ReadRecPtr));
}

/*
 * Locks block id of the record and returns its buffer, invalid if the page is
 * not there any more. Sets *page if the page must be changed: it is older than
 * the record, or the record makes it anew (init).
 */
static Buffer
read_block(XLogReaderState *record, uint8 id, bool init, Page *page)
{
	Buffer		buf;

	*page = NULL;
	if (init)
	{
		buf = XLogInitBufferForRedo(record, id);
		*page = BufferGetPage(buf);
	}
	else if (XLogReadBufferForRedo(record, id, &buf) == BLK_NEEDS_REDO)
		*page = BufferGetPage(buf);
	return buf;
}

/*
 * Locks block id of the record, a table page, as read_block does. A page that
 * is marked as lost (OVERFLOW-5) needs no change.
 */
static Buffer
read_table_block(XLogReaderState *record, uint8 id, bool init, Page *page)
{
	Buffer		buf = read_block(record, id, init, page);

	if (*page != NULL && !init &&
		unlikely(zpage_trailer(*page)->overflow == ZPAGE_LOST_OVERFLOW))
		*page = NULL;
	return buf;
}

/*
 * Sets the LSN of the page to the record's, and marks it dirty, if it was
 * changed.
 */
static void
finish_page(XLogReaderState *record, Buffer buf, Page page)
{
	if (page == NULL)
		return;
	PageSetLSN(page, record->EndRecPtr);
	MarkBufferDirty(buf);
}

/* Does what finish_page does, and unlocks the buffer, which may be invalid. */
static void
finish_block(XLogReaderState *record, Buffer buf, Page page)
{
	finish_page(record, buf, page);
	if (BufferIsValid(buf))
		UnlockReleaseBuffer(buf);
}

/*
 * Marks a table page whose overflow page is not the one that the record's
 * writer found there (OVERFLOW-5), and sets *page to NULL, so that it is not
 * changed.
 */
static void
mark_lost(XLogReaderState *record, Buffer buf, Page *page)
{
	RelFileLocator locator;
	ForkNumber	fork;
	BlockNumber block;

	BufferGetTag(buf, &locator, &fork, &block);
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of relation file %u is older than its overflow transaction slots",
					block, locator.relNumber),
			 errdetail("A write of this block was lost, as the WAL record at %X/%X shows.",
					   LSN_FORMAT_ARGS(record->ReadRecPtr)),
			 errhint("Restore the table from a backup.")));
	PageClearAllVisible(*page);
	zpage_mark_lost(*page);
	finish_page(record, buf, *page);
	*page = NULL;
}

/*
 * Calls mark_lost for a table page that is to be changed (*page is not NULL)
 * but does not have the record's block 'id' as its overflow page.
 */
static void
check_overflow(XLogReaderState *record, uint8 id, Buffer buf, Page *page)
{
	BlockNumber block;

	if (*page == NULL)
		return;
	XLogRecGetBlockTag(record, id, NULL, NULL, &block);
	if (unlikely(zpage_trailer(*page)->overflow != block))
		mark_lost(record, buf, page);
}

/*
 * Sets or clears the bit of the record's table page in the visibility map. If
 * the map's page was truncated away later, it is made anew for the time being,
 * as in replay of heap's records: the truncation's record takes only pages of
 * the main fork off the list of missing pages that the end of recovery checks.
 */
static void
change_visibility(XLogReaderState *record, bool set)
{
	BlockNumber block;
	Buffer		map;

	if (!XLogRecHasBlockRef(record, ZWAL_MAP_BLOCK))
		return;
	XLogRecGetBlockTag(record, 0, NULL, NULL, &block);
	if (XLogReadBufferForRedoExtended(record, ZWAL_MAP_BLOCK, RBM_ZERO_ON_ERROR, false,
									  &map) == BLK_NEEDS_REDO)
	{
		Page		page = BufferGetPage(map);

		if (PageIsNew(page))
			PageInit(page, BLCKSZ, 0);
		if (set)
			zvmap_set(page, block);
		else
			(void) zvmap_clear(page, block);
		finish_page(record, map, page);
	}
	if (BufferIsValid(map))
		UnlockReleaseBuffer(map);
}

/*
 * Ends the queries of a standby that may need rows which the record prunes
 * (SAVED-6).
 */
static void
end_old_snapshots(XLogReaderState *record, TransactionId conflict)
{
	RelFileLocator locator;

	if (!InHotStandby || !TransactionIdIsNormal(conflict))
		return;
	XLogRecGetBlockTag(record, 0, &locator, NULL, NULL);
	zc_resolve_snapshot_conflict(conflict, locator);
}

/* ---- row changes ---- */

/*
 * Locks the pages of the change. Fills held with their buffers and returns
 * their number.
 */
static int
lock_pages(XLogReaderState *record, ZChange *change, Buffer *held)
{
	int			npages = change->opcode == ZWAL_MOVE && !zchange_on_one_page(change) ? 2 : 1;
	int			n = 0;

	if (change->opcode == ZWAL_UNDO_ONLY)
		npages = 0;
	for (int i = 0; i < npages; i++)
	{
		ZChangePage *p = &change->page[i];

		p->buf = read_table_block(record, i, p->init, &p->page);
		if (BufferIsValid(p->buf))
			held[n++] = p->buf;
	}
	for (int i = 0; i < 2; i++)
	{
		ZChangePage *p = &change->page[i];

		if (likely(!p->slot.in_overflow))
			continue;
		p->overflow_buf = read_block(record, ZWAL_OVERFLOW_BLOCK + i, false, &p->overflow);
		if (BufferIsValid(p->overflow_buf))
			held[n++] = p->overflow_buf;
		if (p->overflow != NULL && !zoverflow_has_slot(p->overflow, p->slot.slotno))
			malformed(record);
		check_overflow(record, ZWAL_OVERFLOW_BLOCK + i, p->buf, &p->page);
	}
	return n;
}

/*
 * Returns whether the row that the change updates or ends is on its table page,
 * or the page needs no change.
 */
static bool
has_old_row(const ZChange *change)
{
	Page		page = change->page[0].page;
	OffsetNumber off = change->rec[0].offset;

	return page == NULL ||
		(zpage_item_ok(page, off) && off <= PageGetMaxOffsetNumber(page) &&
		 ItemIdIsNormal(PageGetItemId(page, off)) &&
		 zpage_row_length(page, PageGetItemId(page, off)) >= ZTUPLE_HEADER_SIZE);
}

/*
 * Completes the undo record of an IMAGE of rows by the table page, if that has
 * them: it is older than the record, or was restored from it. Otherwise the
 * undo record says that they are gone (SAVED-5).
 */
static void
take_rows(XLogReaderState *record, ZChange *change, ZChangeWork *work)
{
	ZChangePage *p = &change->page[0];
	Page		page = p->page;

	if (page == NULL && XLogRecBlockImageApply(record, 0))
		page = BufferGetPage(p->buf);
	if (page == NULL && !reachedConsistency)
		return;
	Assert(page != NULL || !BufferIsValid(p->buf) ||
		   zpage_trailer(BufferGetPage(p->buf))->overflow == ZPAGE_LOST_OVERFLOW);	/* SAVED-5 */
	if (page == NULL || !zchange_take_rows(change, work, page))
		elog(WARNING, "zundo: the rows that WAL record %X/%X saves are not on block %u",
			 LSN_FORMAT_ARGS(record->ReadRecPtr), change->rec[0].block);
}

/*
 * Replays a row change: locks all its pages, in the order of the lock
 * hierarchy, and changes those that are older than the record.
 */
static void
redo_change(XLogReaderState *record)
{
	ZChange		change;
	ZChangeWork work;
	char		row[BLCKSZ];
	Buffer		held[MAX_HELD];
	int			nheld;

	if (!zchange_decode(record, &change, &work))
		malformed(record);
	end_old_snapshots(record, change.conflict);
	nheld = lock_pages(record, &change, held);
	if (change.opcode == ZWAL_IMAGE && change.compact)
		take_rows(record, &change, &work);
	if (!change.covered)
		zu_op_redo(record, ZWAL_UNDO_BLOCK, &change.op, change.undo, &held[nheld]);
	nheld += change.op.npages;	/* whose buffers zu_op_redo has added */
	if ((change.opcode == ZWAL_UPDATE || change.opcode == ZWAL_DELETE ||
		 change.opcode == ZWAL_MOVE) && !has_old_row(&change))
		malformed(record);
	if ((change.opcode == ZWAL_UPDATE || (change.opcode == ZWAL_MOVE && change.compact)) &&
		change.page[0].page != NULL && !zchange_form_row(&change, row))
		malformed(record);
	if (change.opcode == ZWAL_UPDATE && change.page[0].page != NULL &&
		!zpage_replace_fits(change.page[0].page, change.rec[0].offset, change.row_length))
		malformed(record);
	if (change.opcode != ZWAL_MOVE || zchange_on_one_page(&change))
		change_visibility(record, false);
	zchange_apply(&change);
	for (int i = 0; i < 2; i++)
	{
		finish_page(record, change.page[i].buf, change.page[i].page);
		finish_page(record, change.page[i].overflow_buf, change.page[i].overflow);
	}
	for (int i = nheld - 1; i >= 0; i--)
		if (BufferIsValid(held[i]))
			UnlockReleaseBuffer(held[i]);
}

/* ---- other changes of table pages ---- */

/*
 * Replays ZWAL_ROLLBACK: takes the records' changes back and moves the slot's
 * head.
 */
static void
redo_rollback(XLogReaderState *record)
{
	char		raw[ZUR_MAX_LENGTH];
	xl_zheap_rollback xlrec;
	const char *p = XLogRecGetData(record) + SizeOfZheapRollback;
	const char *end = XLogRecGetData(record) + XLogRecGetDataLen(record);
	Buffer		buf = InvalidBuffer;
	Buffer		overflow = InvalidBuffer;
	Page		page = NULL;
	bool		in_overflow = XLogRecHasBlockRef(record, 1);

	if (XLogRecGetDataLen(record) < SizeOfZheapRollback)
		malformed(record);
	memcpy(&xlrec, XLogRecGetData(record), SizeOfZheapRollback);
	if (XLogRecHasBlockRef(record, 0))
		buf = read_table_block(record, 0, false, &page);
	if (in_overflow)
	{
		Page		opage;

		check_overflow(record, 1, buf, &page);
		overflow = read_block(record, 1, false, &opage);
		if (opage != NULL)
		{
			if (!zoverflow_has_slot(opage, xlrec.slotno))
				malformed(record);
			zoverflow_set_slot(opage, xlrec.slotno, xlrec.new_xid, xlrec.new_ptr);
			finish_page(record, overflow, opage);
		}
	}
	if (page != NULL)
	{
		for (int i = 0; i < xlrec.nrecords; i++)
		{
			ZuRecord	rec;
			Size		rawlen = 0;
			const char *payload = NULL;

			if (!zur_unpack(p, end - p, &rec))
				malformed(record);
			p += rec.length;
			if (rec.type != ZUR_INSERT && rec.type != ZUR_LOCK)
				payload = zur_raw_payload(&rec, raw, sizeof(raw), &rawlen);
			if (!zpage_undo(page, xlrec.slotno, &rec, payload, rawlen))
				malformed(record);
		}
		if (in_overflow)
			zpage_count_overflow_change(page);
		else
			zpage_set_slot(page, xlrec.slotno, xlrec.new_xid, xlrec.new_ptr);
	}
	if (BufferIsValid(overflow))
		UnlockReleaseBuffer(overflow);
	finish_block(record, buf, page);
}

/*
 * Replays ZWAL_OVERFLOW: gives a table page its overflow page, or takes that
 * away.
 */
static void
redo_overflow(XLogReaderState *record)
{
	xl_zheap_overflow xlrec;
	Buffer		buf = InvalidBuffer;
	Buffer		overflow;
	Page		page = NULL;
	BlockNumber block;

	if (XLogRecGetDataLen(record) < SizeOfZheapOverflow)
		malformed(record);
	memcpy(&xlrec, XLogRecGetData(record), SizeOfZheapOverflow);
	XLogRecGetBlockTag(record, 1, NULL, NULL, &block);
	if (XLogRecHasBlockRef(record, 0))
		buf = read_table_block(record, 0, false, &page);
	if (xlrec.first == 0)
		check_overflow(record, 1, buf, &page);
	else if (page != NULL && zpage_has_overflow(page))
		mark_lost(record, buf, &page);
	overflow = XLogInitBufferForRedo(record, 1);
	zu_overflow_init(BufferGetPage(overflow), xlrec.reloid, xlrec.relnumber, xlrec.block,
					 xlrec.first, xlrec.changes);
	if (page != NULL)
		zpage_set_overflow(page, xlrec.first != 0 ? block : 0, xlrec.changes);
	finish_block(record, overflow, BufferGetPage(overflow));
	finish_block(record, buf, page);
}

/* Replays ZWAL_PRUNE. A page may be pruned of gaps alone, without items. */
static void
redo_prune(XLogReaderState *record)
{
	ZPruneItem	items[ZHEAP_MAX_OFFSET];
	TransactionId conflict;
	int			n = ((int) XLogRecGetDataLen(record) - (int) sizeof(conflict)) /
	(int) sizeof(ZPruneItem);
	Buffer		buf;
	Page		page;

	if (XLogRecGetDataLen(record) < sizeof(conflict) || n > ZHEAP_MAX_OFFSET)
		malformed(record);
	memcpy(&conflict, XLogRecGetData(record), sizeof(conflict));
	memcpy(items, XLogRecGetData(record) + sizeof(conflict), n * sizeof(ZPruneItem));
	end_old_snapshots(record, conflict);
	buf = read_table_block(record, 0, false, &page);
	if (page != NULL)
		zpage_prune(page, items, n);
	finish_block(record, buf, page);
}

/* Replays ZWAL_INLINE_LOCK; the locker is the record's xid. */
static void
redo_inline_lock(XLogReaderState *record)
{
	ZWalInlineLock lock;
	Buffer		buf;
	Page		page;

	if (!zwal_decode_inline_lock(record, &lock))
		malformed(record);
	buf = read_table_block(record, 0, false, &page);
	if (page != NULL)
		zapply_inline_lock(page, &lock, zxid_widen(XLogRecGetXid(record)));
	finish_block(record, buf, page);
}

/*
 * Replays a ZWAL_MARK that replaces an entry of an index (ZBTREE-15). As in
 * nbtree, items of leaf pages are where they were when the record was written.
 */
static void
redo_entry(XLogReaderState *record, OffsetNumber off)
{
	Size		size = XLogRecGetDataLen(record) - SizeOfZheapMark;
	PGAlignedBlock entry;
	Buffer		buf;
	Page		page;

	if (size < sizeof(IndexTupleData) || size > BLCKSZ / 2)
		malformed(record);
	memcpy(entry.data, XLogRecGetData(record) + SizeOfZheapMark, size);
	if (IndexTupleSize((IndexTuple) entry.data) != size)
		malformed(record);
	buf = read_block(record, 0, false, &page);
	if (page != NULL && !PageIndexTupleOverwrite(page, off, (char *) entry.data, size))
		malformed(record);
	finish_block(record, buf, page);
}

/*
 * Replays ZMARK_ENTRIES_ALIVE: entries of the leaf page of an index are not
 * dead any more.
 */
static void
redo_entries_alive(XLogReaderState *record)
{
	char	   *at = XLogRecGetData(record) + SizeOfZheapMark;
	char	   *end = XLogRecGetData(record) + XLogRecGetDataLen(record);
	Page		page;
	Buffer		buf = read_block(record, 0, false, &page);

	for (; page != NULL && at + sizeof(OffsetNumber) <= end; at += sizeof(OffsetNumber))
	{
		OffsetNumber off;
		ItemId		item;

		memcpy(&off, at, sizeof(off));
		if (off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page) ||
			!ItemIdHasStorage(PageGetItemId(page, off)))
			malformed(record);
		item = PageGetItemId(page, off);
		ItemIdSetNormal(item, ItemIdGetOffset(item), ItemIdGetLength(item));
	}
	finish_block(record, buf, page);
}

/*
 * Replays ZWAL_MARK. The map's bit is set or cleared even if the table page is
 * newer than the record: what counts is the LSN of the map's page.
 */
static void
redo_mark(XLogReaderState *record)
{
	xl_zheap_mark xlrec;
	Buffer		buf;
	Page		page;

	if (XLogRecGetDataLen(record) < SizeOfZheapMark)
		malformed(record);
	memcpy(&xlrec, XLogRecGetData(record), SizeOfZheapMark);
	if (xlrec.what == ZMARK_ENTRY)
	{
		redo_entry(record, xlrec.offset);
		return;
	}
	if (xlrec.what == ZMARK_ENTRIES_ALIVE)
	{
		redo_entries_alive(record);
		return;
	}
	buf = read_table_block(record, 0, false, &page);
	if (xlrec.what == ZMARK_NOT_ALL_VISIBLE)
		change_visibility(record, false);
	else if (xlrec.what == ZMARK_ALL_VISIBLE)
		change_visibility(record, true);
	if (page != NULL)
	{
		if (xlrec.what == ZMARK_NOT_ALL_VISIBLE)
			PageClearAllVisible(page);
		else if (xlrec.what == ZMARK_ALL_VISIBLE)
			zpage_set_all_visible(page);
		else
			zapply_speculative(page, xlrec.offset, xlrec.what == ZMARK_CONFIRMED);
	}
	finish_block(record, buf, page);
}

/* zredo: See zredo.h. Calls the function that replays this kind of record. */
void
zredo(XLogReaderState *record)
{
	switch (XLogRecGetInfo(record) & ~XLR_INFO_MASK)
	{
		case ZWAL_INSERT:
		case ZWAL_MULTI_INSERT:
		case ZWAL_UPDATE:
		case ZWAL_DELETE:
		case ZWAL_MOVE:
		case ZWAL_LOCK:
		case ZWAL_IMAGE:
		case ZWAL_UNDO_ONLY:
			redo_change(record);
			break;
		case ZWAL_ROLLBACK:
			redo_rollback(record);
			break;
		case ZWAL_PRUNE:
			redo_prune(record);
			break;
		case ZWAL_OVERFLOW:
			redo_overflow(record);
			break;
		case ZWAL_MARK:
			redo_mark(record);
			break;
		case ZWAL_INLINE_LOCK:
			redo_inline_lock(record);
			break;
		case ZWAL_UNDO_MAP:
			zu_redo_map(record);
			break;
		case ZWAL_UNDO_DISCARD:
			zu_redo_discard(record);
			break;
		case ZWAL_UNDO_TRUNCATE:
			zu_redo_truncate(record);
			break;
		default:
			malformed(record);
	}
}

/*
 * zredo_mask: See zredo.h. Blanks what is not logged: LSN, checksum, hint bits
 * and free space.
 */
void
zredo_mask(char *page, BlockNumber block)
{
	if (((PageHeader) page)->pd_special == BLCKSZ - MAXALIGN(sizeof(BTPageOpaqueData)))
	{
		/* an index page: that of a table has a slot beside its trailer */
		StaticAssertStmt(sizeof(ZPageTrailer) == MAXALIGN(sizeof(BTPageOpaqueData)),
						 "special spaces without slots are equal");
		btree_mask(page, block);
	}
	else if (((PageHeader) page)->pd_special < BLCKSZ)
	{
		/* a table page: its trailer makes the special space non-empty */
		mask_page_lsn_and_checksum(page);
		mask_page_hint_bits(page);
		mask_unused_space(page);
	}
	else
		zu_mask_page(page, block);
}
