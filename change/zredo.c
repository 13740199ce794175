/*
 * change/zredo.c - replay of zundo's WAL.
 *
 * Row changes are decoded (zwal.c), applied to the table page by the functions
 * that DML used (change/zapply.c), and their undo bytes are put where they were.
 * Buffers are locked in the order of the lock hierarchy and released only when
 * all pages of the record are written, so that a standby's reader never finds
 * a slot whose record is not there yet.
 */
#include "postgres.h"

#include "access/bufmask.h"
#include "access/xlogutils.h"
#include "change/zapply.h"
#include "page/zoverflow.h"
#include "page/zvmap.h"
#include "change/zredo.h"

/* Most pages of one record: two table pages, their overflow pages and the undo pages. */
#define MAX_HELD (4 + ZU_MAX_PAGES)

static void
malformed(XLogReaderState *record)
{
	elog(PANIC, "zundo: malformed WAL record %s at %X/%X",
		 zwal_identify(XLogRecGetInfo(record)) ? zwal_identify(XLogRecGetInfo(record)) : "?",
		 LSN_FORMAT_ARGS(record->ReadRecPtr));
}

/* Lock block id for redo; *page is set if it must be changed. */
static Buffer
read_block(XLogReaderState *record, uint8 id, bool init, Page *page)
{
	Buffer		buf;

	*page = NULL;
	if (init)
	{
		buf = XLogInitBufferForRedo(record, id);
		*page = BufferGetPage(buf);
		zpage_init(*page);
	}
	else if (XLogReadBufferForRedo(record, id, &buf) == BLK_NEEDS_REDO)
		*page = BufferGetPage(buf);
	return buf;
}

static void
finish_page(XLogReaderState *record, Buffer buf, Page page)
{
	if (page == NULL)
		return;
	PageSetLSN(page, record->EndRecPtr);
	MarkBufferDirty(buf);
}

static void
apply_slot(Page page, const ZWalChange *change, int irec, uint32 slotno, uint32 grow_to, bool live,
		   bool overflow)
{
	ZSlotChange sc;

	sc.common = (change->rec[irec].type == ZUR_LOCKS);
	sc.overflow = overflow;
	sc.slotno = slotno;
	sc.grow_to = grow_to;
	sc.xid = sc.common ? change->rec[irec].hold : change->rec[irec].xid;
	sc.ptr = change->ptr[irec];
	sc.live_chain = live;
	sc.undo_length = change->rec[irec].length;
	zapply_slot(page, &sc);
}

static void
apply_update(XLogReaderState *record, Page page, const ZWalChange *change)
{
	static char row[BLCKSZ];
	OffsetNumber off = change->rec[0].offset;
	ItemId		lp = PageGetItemId(page, off);
	ZHeader		current;
	Size		len;

	if (!ItemIdIsNormal(lp))
		malformed(record);
	current = zheader_get(zpage_row(page, lp));
	len = zpage_row_length(page, lp);
	memcpy(row, zpage_row(page, lp), len);
	len -= ZTUPLE_HEADER_SIZE;
	if (zdelta_wal_apply(change->delta, change->delta_end, row + ZTUPLE_HEADER_SIZE, &len,
						 BLCKSZ - ZTUPLE_HEADER_SIZE) != change->delta_end)
		malformed(record);
	zheader_set(row, zheader_updated(current, change->has_new_header ? change->new_header : current,
									 change->slotno, change->key_change) &
				~(change->clear_locks ? ZH_LOCK_MASK : 0));
	zapply_update(page, off, row, len + ZTUPLE_HEADER_SIZE, change->clear_locks);
}

static void
apply_multi_insert(XLogReaderState *record, Page page, const ZWalChange *change)
{
	const char *p = change->row;
	const char *end = p + change->row_length;
	OffsetNumber off = change->rec[0].offset;

	for (int i = 0; i < change->rec[0].nrows; i++)
	{
		uint16		len;

		if (end - p < 2)
			malformed(record);
		memcpy(&len, p, 2);
		p += 2;
		if (end - p < len)
			malformed(record);
		zapply_insert(page, off + i, p, len);
		p += len;
	}
}

/* The change of block 0. */
static void
apply_change(XLogReaderState *record, Page page, const ZWalChange *change)
{
	const ZuRecord *rec = &change->rec[0];
	bool		live = (change->flags & (ZWD_PREV | ZWD_LIVE_CHAIN)) != 0;
	bool		overflow = XLogRecHasBlockRef(record, ZWAL_OVERFLOW_BLOCK);

	if (change->opcode == ZWAL_IMAGE)
	{
		zapply_image(page, change->ptr[0]);
		return;
	}
	/* inline locks that became records: the last one is the slot's */
	apply_slot(page, change, change->opcode == ZWAL_LOCK ? change->nrecords - 1 : 0, change->slotno,
			   change->grow_to, live, overflow);
	switch (change->opcode)
	{
		case ZWAL_INSERT:
			zapply_insert(page, rec->offset, change->row, change->row_length);
			break;
		case ZWAL_MULTI_INSERT:
			apply_multi_insert(record, page, change);
			break;
		case ZWAL_UPDATE:
			apply_update(record, page, change);
			break;
		case ZWAL_DELETE:
			zapply_delete(page, rec->offset, change->slotno, ZSTATE_DELETED,
						  (rec->xflags & ZUX_OTHER_PART) != 0);
			break;
		case ZWAL_MOVE:
			zapply_delete(page, rec->offset, change->slotno, ZSTATE_MOVED, false);
			break;
		case ZWAL_LOCK:
			/* where locks became records the rows have had their hints, or are there no more */
			if ((change->flags & ZWD_CONVERTED) == 0)
				zapply_lock(page, rec->offset, rec->type == ZUR_LOCKS ? zlocks_first_mode(rec) : rec->lockmode);
			break;
		default:
			malformed(record);
	}
}

/* The new row of a MOVE, on its own page or on the old row's. */
static void
apply_move_target(XLogReaderState *record, Page page, const ZWalChange *change, bool same_page)
{
	if (same_page)
		apply_slot(page, change, 1, change->slotno, 0, false,
				   XLogRecHasBlockRef(record, ZWAL_OVERFLOW_BLOCK));
	else
		apply_slot(page, change, 1, change->new_slotno, change->new_grow_to,
				   change->rec[1].prev != InvalidUndoPtr,
				   XLogRecHasBlockRef(record, ZWAL_OVERFLOW_BLOCK + 1));
	if (change->nrecords == 3)
		zapply_common_locks(page, change->locks_slotno, change->locks_grow_to, change->rec[2].hold,
							change->ptr[2]);
	zapply_insert(page, change->rec[1].offset, change->row, change->row_length);
}

/*
 * Lock overflow page 'which' (0 or 1) of a row change and set the slot that lies there. Invalid if
 * the record has none. The buffer stays locked.
 */
static Buffer
apply_overflow(XLogReaderState *record, const ZWalChange *change, int which)
{
	uint32		slotno = which == 0 ? change->slotno : change->new_slotno;
	bool		twice;
	Buffer		buf;
	Page		page;

	if (likely(!XLogRecHasBlockRef(record, ZWAL_OVERFLOW_BLOCK + which)))
		return InvalidBuffer;
	/* both halves of a move on one page share the slot, which was changed twice (O1) */
	twice = (which == 0 && change->nrecords >= 2 && change->rec[0].type == ZUR_MOVE &&
			 change->rec[0].block == change->rec[1].block);
	buf = read_block(record, ZWAL_OVERFLOW_BLOCK + which, false, &page);
	if (page != NULL)
	{
		if (!zoverflow_has_slot(page, slotno))
			malformed(record);
		for (int irec = which; irec <= which + (twice ? 1 : 0); irec++)
			if (change->rec[irec].type == ZUR_LOCKS)
				zoverflow_set_lock_slot(page, slotno, change->rec[irec].hold, change->ptr[irec]);
			else
				zoverflow_set_slot(page, slotno, change->rec[irec].xid, change->ptr[irec]);
		finish_page(record, buf, page);
	}
	return buf;
}

static void
redo_change(XLogReaderState *record)
{
	static ZWalChange change;
	Buffer		held[MAX_HELD];
	int			nheld = 0;
	Buffer		buf = InvalidBuffer,
				buf2 = InvalidBuffer;
	Page		page = NULL,
				page2 = NULL;
	bool		two_pages;

	if (!zwal_decode(record, &change))
		malformed(record);
	two_pages = (change.opcode == ZWAL_MOVE && XLogRecHasBlockRef(record, 1));
	if (change.opcode != ZWAL_UNDO_ONLY)
	{
		buf = read_block(record, 0, (change.flags & ZWD_PAGE_INIT) != 0, &page);
		if (BufferIsValid(buf))
			held[nheld++] = buf;
	}
	if (two_pages)
	{
		buf2 = read_block(record, 1, (change.flags & ZWD_NEW_PAGE_INIT) != 0, &page2);
		if (BufferIsValid(buf2))
			held[nheld++] = buf2;
	}
	for (int i = 0; i < 2; i++)
	{
		held[nheld] = apply_overflow(record, &change, i);
		if (BufferIsValid(held[nheld]))
			nheld++;
	}
	zu_redo_records(record, ZWAL_UNDO_BLOCK, change.nundo_pages, change.start, &change.place,
					change.undo, change.undo_length, change.rec_start,
					change.nrecords, &held[nheld]);
	nheld += change.nundo_pages;
	if (page != NULL)
	{
		apply_change(record, page, &change);
		if (change.opcode == ZWAL_MOVE && !two_pages)
			apply_move_target(record, page, &change, true);
		finish_page(record, buf, page);
	}
	if (page2 != NULL)
	{
		apply_move_target(record, page2, &change, false);
		finish_page(record, buf2, page2);
	}
	for (int i = nheld - 1; i >= 0; i--)
		if (BufferIsValid(held[i]))
			UnlockReleaseBuffer(held[i]);
}

static void
redo_rollback(XLogReaderState *record)
{
	static char raw[ZUR_MAX_LENGTH];
	xl_zheap_rollback xlrec;
	const char *p = XLogRecGetData(record) + SizeOfZheapRollback;
	const char *end = XLogRecGetData(record) + XLogRecGetDataLen(record);
	Buffer		buf = InvalidBuffer;
	Buffer		overflow = InvalidBuffer;
	Page		page = NULL;
	bool		in_overflow = XLogRecHasBlockRef(record, 1);

	memcpy(&xlrec, XLogRecGetData(record), SizeOfZheapRollback);
	if (XLogRecHasBlockRef(record, 0))
		buf = read_block(record, 0, false, &page);
	if (in_overflow)
	{
		Page		opage;

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
			if (rec.type == ZUR_LOCK)
				continue;
			if (rec.type != ZUR_INSERT)
				payload = zur_raw_payload(&rec, raw, sizeof(raw), &rawlen);
			if (!zpage_undo(page, &rec, payload, rawlen))
				malformed(record);
		}
		if (in_overflow)
			zpage_count_overflow_change(page);
		else
			zpage_set_slot(page, xlrec.slotno, xlrec.new_xid, xlrec.new_ptr);
		finish_page(record, buf, page);
	}
	if (BufferIsValid(overflow))
		UnlockReleaseBuffer(overflow);
	if (BufferIsValid(buf))
		UnlockReleaseBuffer(buf);
}

static void
redo_overflow(XLogReaderState *record)
{
	xl_zheap_overflow xlrec;
	Buffer		buf = InvalidBuffer;
	Buffer		overflow;
	Page		page = NULL;
	BlockNumber block;

	memcpy(&xlrec, XLogRecGetData(record), SizeOfZheapOverflow);
	zc_block_tag(record, 1, NULL, NULL, &block);
	if (XLogRecHasBlockRef(record, 0))
		buf = read_block(record, 0, false, &page);
	overflow = XLogInitBufferForRedo(record, 1);
	zu_overflow_init(BufferGetPage(overflow), xlrec.reloid, xlrec.relnumber, xlrec.block, xlrec.first,
					 xlrec.changes);
	finish_page(record, overflow, BufferGetPage(overflow));
	if (page != NULL)
	{
		zpage_set_overflow(page, xlrec.first != 0 ? block : 0, xlrec.changes);
		finish_page(record, buf, page);
	}
	UnlockReleaseBuffer(overflow);
	if (BufferIsValid(buf))
		UnlockReleaseBuffer(buf);
}

static void
redo_prune(XLogReaderState *record)
{
	ZPruneItem	items[ZHEAP_MAX_OFFSET];
	int			n = XLogRecGetDataLen(record) / sizeof(ZPruneItem);
	Buffer		buf;
	Page		page;

	if (n > ZHEAP_MAX_OFFSET)
		malformed(record);
	/* a page may be pruned of holes alone; without items the record has no data to point to */
	if (n > 0)
		memcpy(items, XLogRecGetData(record), n * sizeof(ZPruneItem));
	buf = read_block(record, 0, false, &page);
	if (page != NULL)
	{
		zpage_prune(page, items, n);
		finish_page(record, buf, page);
	}
	if (BufferIsValid(buf))
		UnlockReleaseBuffer(buf);
}

static void
redo_inline_lock(XLogReaderState *record)
{
	ZWalInlineLock lock;
	Buffer		buf;
	Page		page;

	if (!zwal_decode_inline_lock(record, &lock))
		malformed(record);
	buf = read_block(record, 0, false, &page);
	if (page != NULL)
	{
		zapply_inline_lock(page, lock.slotno, lock.grow_to, lock.fresh, zxid_widen(XLogRecGetXid(record)),
						   lock.offset, lock.mode);
		finish_page(record, buf, page);
	}
	if (BufferIsValid(buf))
		UnlockReleaseBuffer(buf);
}

/*
 * Clear the bit of the record's table page in the visibility map. The map's page may have gone since, with the table's tail, and
 * without full-page images this is its first record: then it comes again for the time being, as in replay of heap's records. Else
 * the end of recovery would miss it, for the truncation's record takes only the table's own missing pages off the list of those.
 */
static void
clear_visibility(XLogReaderState *record)
{
	BlockNumber block;
	Buffer		map;

	if (!XLogRecHasBlockRef(record, 1))
		return;
	zc_block_tag(record, 0, NULL, NULL, &block);
	if (XLogReadBufferForRedoExtended(record, 1, RBM_ZERO_ON_ERROR, false, &map) == BLK_NEEDS_REDO)
	{
		Page		page = BufferGetPage(map);

		if (PageIsNew(page))
			PageInit(page, BLCKSZ, 0);
		(void) zvmap_clear(page, block);
		finish_page(record, map, page);
	}
	if (BufferIsValid(map))
		UnlockReleaseBuffer(map);
}

static void
redo_mark(XLogReaderState *record)
{
	xl_zheap_mark xlrec;
	Buffer		buf;
	Page		page;

	memcpy(&xlrec, XLogRecGetData(record), SizeOfZheapMark);
	buf = read_block(record, 0, false, &page);
	if (xlrec.what == ZMARK_NOT_ALL_VISIBLE)
		clear_visibility(record);
	if (page != NULL)
	{
		if (xlrec.what == ZMARK_NOT_ALL_VISIBLE)
			PageClearAllVisible(page);
		else
			zapply_speculative(page, xlrec.offset, xlrec.what == ZMARK_CONFIRMED);
		finish_page(record, buf, page);
	}
	if (BufferIsValid(buf))
		UnlockReleaseBuffer(buf);
}

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

void
zredo_mask(char *page, BlockNumber block)
{
	if (((PageHeader) page)->pd_special < BLCKSZ)
	{
		/* a table page: its trailer makes the special space non-empty */
		mask_page_lsn_and_checksum(page);
		mask_page_hint_bits(page);
		mask_unused_space(page);
	}
	else
		zu_mask_page(page, block);
}
