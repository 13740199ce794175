/*
 * undo/undo_redo.c - redo of the undo log's own WAL records, and page masking.
 *
 * Owns redo of MAP, DISCARD and TRUNCATE. Called by the resource manager.
 *
 * Locks: map page before meta page, as on a primary. The shared entry, if
 * there is one, is brought up to date while the meta page is locked (see
 * zu_load_meta). If there is none, there is no reader whose view would have to
 * be changed.
 */
#include "undo/undo_internal.h"

#include "access/bufmask.h"
#include "access/transam.h"
#include "access/xlogutils.h"
#include "storage/standby.h"

/*
 * Returns the record's main data; raises an error if they have fewer than
 * 'size' bytes.
 */
static const char *
need_data(XLogReaderState *record, Size size)
{
	if (XLogRecGetDataLen(record) < size)
		elog(ERROR, "WAL record of the undo log is too short: %u bytes, needed %zu",
			 XLogRecGetDataLen(record), size);
	return XLogRecGetData(record);
}

/*
 * Extends the file to hold extents 0 .. nextents - 1, so that no reader below
 * the limit misses a block.
 */
static void
grow_in_redo(RelFileLocator locator, uint32 nextents)
{
	SMgrRelation smgr = smgropen(locator, INVALID_PROC_NUMBER);

	smgrcreate(smgr, MAIN_FORKNUM, true);
	zu_extend_to(smgr, nextents);
}

/*
 * Replays the summaries of resolved extents, which follow the record's fixed
 * part.
 */
static void
redo_resolved(XLogReaderState *record)
{
	xl_undo_resolved resolved[ZU_GROUP_EXTENTS];
	Size		len = XLogRecGetDataLen(record) - SizeOfUndoMap;
	ZuTwins		map;

	if (len > sizeof(resolved) || len % sizeof(xl_undo_resolved) != 0)
		elog(PANIC, "malformed WAL record of resolved extents");
	memcpy(resolved, XLogRecGetData(record) + SizeOfUndoMap, len);
	if (zu_twins_redo(&map, record, 0))
	{
		zu_set_resolved(zu_twins_page(&map), resolved, (int) (len / sizeof(xl_undo_resolved)));
		zu_twins_redone(&map, record);
	}
	zu_twins_unlock(&map);
}

/*
 * zu_redo_map: See undo.h. Raises the limit of the entry while the meta page
 * is locked: zu_load_meta reads both under its share lock.
 */
void
zu_redo_map(XLogReaderState *record)
{
	xl_undo_map xlrec = {0};
	RelFileLocator locator;
	BlockNumber block;
	ZuTwins		map;
	ZuTwins		meta;
	bool		apply = true;

	memcpy(&xlrec, need_data(record, SizeOfUndoMap), SizeOfUndoMap);
	if (xlrec.flags & ZWAL_MAP_RESOLVED)
	{
		redo_resolved(record);
		return;
	}
	XLogRecGetBlockTag(record, 0, &locator, NULL, &block);
	if (xlrec.flags & ZWAL_MAP_NEW_GROUP)
	{
		zu_twins_redo_new(&map, record);
		zu_map_init(zu_twins_page(&map), block, xlrec.floor);
	}
	else
		apply = zu_twins_redo(&map, record, 0);
	if (apply)
	{
		ZuMapEntry *entry = zu_map_entry(zu_twins_page(&map), xlrec.extent);

		entry->generation = xlrec.generation;
		entry->logno = (uint16) xlrec.logno;
		entry->state = (xlrec.flags & ZWAL_MAP_OVERFLOW) ? ZU_EXTENT_OVERFLOW : ZU_EXTENT_LOG;
		entry->resolved = 0;
		entry->sequence = xlrec.sequence;
		entry->oldest_top = entry->newest = 0;
		entry->end = 0;
		zu_twins_redone(&map, record);
	}
	if (xlrec.flags & ZWAL_MAP_GROWS)
	{
		ZuEntry    *entry;

		grow_in_redo(locator, xlrec.nextents);
		if (zu_twins_redo(&meta, record, 2))
		{
			zu_meta(zu_twins_page(&meta))->nextents = xlrec.nextents;
			zu_twins_redone(&meta, record);
		}
		entry = zu_lock_entry_for_redo(locator);
		if (entry != NULL)
		{
			pg_atomic_write_u32(&entry->limit, xlrec.nextents);
			zu_unlock_entry_for_redo();
		}
		zu_twins_unlock(&meta);
	}
	zu_twins_unlock(&map);
}

/* Marks the record's extents free on their map page. */
static void
free_in_redo(Page page, const char *numbers, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
	{
		uint32		extent;

		memcpy(&extent, numbers + i * sizeof(uint32), sizeof(uint32));
		zu_map_entry(page, extent)->state = ZU_EXTENT_FREE;
	}
}

/*
 * zu_redo_discard: See undo.h. Resolves the conflict with snapshots of a
 * standby before anything that they may need is given up.
 */
void
zu_redo_discard(XLogReaderState *record)
{
	xl_undo_discard xlrec;
	ZuFreeze	freeze;
	RelFileLocator locator;
	BlockNumber block;
	ZuTwins		map;
	ZuTwins		meta;
	ZuEntry    *entry;
	const char *data = need_data(record, SizeOfUndoDiscard);

	memcpy(&xlrec, data, SizeOfUndoDiscard);
	freeze.now = xlrec.freeze_now;
	freeze.next = xlrec.freeze_next;
	freeze.after = xlrec.freeze_after;
	data = need_data(record, SizeOfUndoDiscard + (Size) xlrec.nextents * sizeof(uint32));
	XLogRecGetBlockTag(record, 0, &locator, NULL, &block);

	/*
	 * UNDO-2c: xids below `oldest` must not be assigned again. They are below
	 * the next xid anyway: each of them ended before this record was written,
	 * and replay of a transaction's end advances the next xid past it. If
	 * that were ever not so, the call below would advance it.
	 */
	Assert(U64FromFullTransactionId(ReadNextFullTransactionId()) >= xlrec.oldest);
	AdvanceNextFullTransactionIdPastXid(zu_xid_before(xlrec.oldest));

	if (InHotStandby && TransactionIdIsNormal(xlrec.conflict))
		zc_resolve_snapshot_conflict(xlrec.conflict, locator);

	if (xlrec.nextents > 0 && zu_twins_redo(&map, record, 2))
	{
		free_in_redo(zu_twins_page(&map), data + SizeOfUndoDiscard, xlrec.nextents);
		zu_twins_redone(&map, record);
	}
	if (zu_twins_redo(&meta, record, 0))
	{
		zu_meta(zu_twins_page(&meta))->oldest = xlrec.oldest;
		zu_meta(zu_twins_page(&meta))->freeze = freeze;
		zu_meta(zu_twins_page(&meta))->doubt_from = xlrec.doubt_from;
		zu_meta(zu_twins_page(&meta))->doubt_to = xlrec.doubt_to;
		zu_twins_redone(&meta, record);
	}
	entry = zu_lock_entry_for_redo(locator);
	if (entry != NULL)
	{
		pg_atomic_write_u64(&entry->doubt.from, xlrec.doubt_from);
		pg_atomic_write_u64(&entry->doubt.to, xlrec.doubt_to);
		zu_max64(&entry->oldest, xlrec.oldest);
		zu_max64(&entry->durable, xlrec.oldest);
		SpinLockAcquire(&entry->mutex);
		entry->freeze = entry->freeze_logged = freeze;
		SpinLockRelease(&entry->mutex);
		zu_unlock_entry_for_redo();
	}
	zu_twins_unlock(&meta);
	if (xlrec.nextents > 0)
		zu_twins_unlock(&map);
}

/*
 * zu_redo_truncate: See undo.h. Lowers the limit before the meta page changes,
 * so that no reader is left behind the new limit when the file is cut off, and
 * once more after it. After a repair of the meta page the limit may rise, and
 * the file grows with it. A record that only names blocks (UNDO-70) changes
 * nothing.
 */
void
zu_redo_truncate(XLogReaderState *record)
{
	xl_undo_truncate xlrec;
	RelFileLocator locator;
	BlockNumber block;
	ZuTwins		meta;
	ZuEntry    *entry;

	if (XLogRecGetDataLen(record) == 0)
		return;
	memcpy(&xlrec, need_data(record, SizeOfUndoTruncate), SizeOfUndoTruncate);
	XLogRecGetBlockTag(record, 0, &locator, NULL, &block);
	if (xlrec.nblocks == 0)
		grow_in_redo(locator, xlrec.nextents);	/* UNDO-4 */

	/* after this no reader has a page at or beyond the new limit pinned */
	entry = zu_lock_entry_for_redo(locator);
	if (entry != NULL)
	{
		zu_lower_limit(entry, xlrec.nextents);
		zu_unlock_entry_for_redo();
	}
	if (zu_twins_redo(&meta, record, 0))
	{
		zu_meta(zu_twins_page(&meta))->nextents = xlrec.nextents;
		zu_meta(zu_twins_page(&meta))->floor = xlrec.floor;
		zu_twins_redone(&meta, record);
	}
	entry = zu_lock_entry_for_redo(locator);
	if (entry != NULL)
	{
		/* an entry that was loaded since then has read the old limit */
		zu_lower_limit(entry, xlrec.nextents);
		zu_unlock_entry_for_redo();
	}
	zu_twins_unlock(&meta);
}

void
zu_mask_page(char *page, BlockNumber blkno)
{
	mask_page_lsn_and_checksum((Page) page);
	mask_page_hint_bits((Page) page);
	mask_unused_space((Page) page);
}
