/*
 * change/zchange.c - the frame of every change that carries undo.
 *
 * Called by dml/ with the table pages of the change and their overflow pages
 * locked. Locks undo pages after those, then the visibility map's page, and
 * releases them.
 *
 * Crash points: before the WAL record nothing has happened except that, at
 * most, an empty page was added at the relation's end; after it, replay makes
 * the same change. The caller names the fault point that follows the record.
 */
#include "postgres.h"

#include "change/zchange.h"
#include "miscadmin.h"
#include "page/zvmap.h"

/* Marks the change's table pages and overflow pages dirty. */
static void
mark_dirty(const ZChange *change)
{
	for (int i = 0; i < 2; i++)
	{
		const ZChangePage *p = &change->page[i];

		if (BufferIsValid(p->buf))
			MarkBufferDirty(p->buf);
		if (unlikely(BufferIsValid(p->overflow_buf)))
			MarkBufferDirty(p->overflow_buf);
	}
}

/* Clears the bit of the change's page in the visibility map (VMAP-2). */
static void
clear_bit(const ZChange *change)
{
	(void) zvmap_clear(BufferGetPage(change->map), BufferGetBlockNumber(change->page[0].buf));
	MarkBufferDirty(change->map);
}

/*
 * Sets the LSN of the change's table pages and of the map's page, if they are
 * logged, and of its overflow pages, which always are. Table pages of unlogged
 * tables get a number of the server's instead, by which VACUUM tells that they
 * have changed (ZBTREE-9). Releases the overflow pages and the map's page.
 */
static void
finish_pages(ZChange *change, XLogRecPtr recptr)
{
	for (int i = 1; i >= 0; i--)
	{
		ZChangePage *p = &change->page[i];

		if (change->logged && BufferIsValid(p->buf))
			PageSetLSN(p->page, recptr);
		else if (unlikely(change->rec[0].xflags & ZUX_UNLOGGED) && BufferIsValid(p->buf))
		{
			XLogRecPtr	number = GetFakeLSNForUnloggedRel();

			PageSetLSN(p->page, number);
		}
		if (unlikely(BufferIsValid(p->overflow_buf)))
		{
			PageSetLSN(p->overflow, recptr);
			UnlockReleaseBuffer(p->overflow_buf);
		}
	}
	if (unlikely(BufferIsValid(change->map)))
	{
		if (change->logged)
			PageSetLSN(BufferGetPage(change->map), recptr);
		UnlockReleaseBuffer(change->map);
	}
}

/*
 * Chooses the places of the change's records in the undo log and locks the undo
 * pages. Raises errors of reading undo pages.
 */
static void
place_records(ZChange *change)
{
	ZuRecord   *records[ZU_MAX_RECORDS];

	for (int i = 0; i < change->nrecords; i++)
		records[i] = &change->rec[i];
	zu_op_prepare(&change->op, records, change->nrecords, change->topxid);
	for (int i = 1; i < change->nrecords; i++)
		if (change->rec[i].prev == ZCHANGE_ON_RECORD_BEFORE)
			change->rec[i].prev = change->op.ptr[i - 1];
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether each page whose rows change is known to be flagged
 * all-visible if it is (VMAP-2).
 */
static bool
flags_are_known(const ZChange *change)
{
	const ZChangePage *p = change->page;

	if (change->opcode == ZWAL_LOCK || change->opcode == ZWAL_IMAGE || p[0].page == NULL)
		return !BufferIsValid(change->map);
	return (p[0].init || PageIsAllVisible(p[0].page) == change->was_visible) &&
		(p[1].page == NULL || p[1].init || !PageIsAllVisible(p[1].page)) &&
		(!BufferIsValid(change->map) || (change->was_visible && p[1].page == NULL));
}
#endif

/*
 * zchange_do: See zchange.h. The WAL record of a temporary table's change, and
 * its space, are left out: its undo is private to the backend and not logged.
 */
void
zchange_do(ZChange *change, const char *fault)
{
	static ZChangeWal wal;		/* 25 kB, as with ZDmlSpace in dml/ */
	XLogRecPtr	recptr = InvalidXLogRecPtr;

	Assert(CritSectionCount == 0);
	Assert(change->rec[0].prev != ZCHANGE_ON_RECORD_BEFORE);

	/* prepare */
	place_records(change);
	if (likely(!change->op.temp))
	{
		zchange_encode(change, &wal);
		change->op.packed = wal.packed;
	}
	zchange_ensure_space(change);

	Assert(flags_are_known(change));	/* VMAP-2 */
	if (unlikely(BufferIsValid(change->map)))
		LockBuffer(change->map, BUFFER_LOCK_EXCLUSIVE);

	/* apply */
	START_CRIT_SECTION();
	zchange_apply(change);
	mark_dirty(change);
	if (unlikely(BufferIsValid(change->map)))
		clear_bit(change);
	zu_op_write(&change->op);
	if (likely(!change->op.temp))
		recptr = zchange_log(change, &wal);
	finish_pages(change, recptr);
	zu_op_finish(&change->op, recptr);
	if (fault != NULL)
		ZUNDO_FAULT(fault);
	END_CRIT_SECTION();
}

/*
 * zchange_insert_covered: See zchange.h. Neither slot nor undo changes. The
 * record that covers the row, if it needs one, was logged before, so whatever
 * part of the WAL survives a crash has it as well.
 */
void
zchange_insert_covered(Buffer buf, const ZCoveredRow *new, const char *fault)
{
	Page		page = BufferGetPage(buf);
	ZHeader		h = new->header;

	Assert(CritSectionCount == 0);
	Assert(ZH_SLOT(h) <= zpage_nslots(page));
	Assert(ZH_LIVE(h) && ZH_NATTS(h) == ZH_NATTS(zheader_get(new->row)));
	Assert(zpage_has_space(page, new->off, new->length));
	Assert(!PageIsAllVisible(page));	/* VMAP-2 */

	START_CRIT_SECTION();
	zpage_put_row(page, new->off, new->row, new->length);
	zpage_set_header(page, new->off, h);
	MarkBufferDirty(buf);
	if (new->logged)
	{
		/* a variable: PageSetLSN is a macro before 16 and evaluates it twice */
		XLogRecPtr	end = zchange_log_covered(buf, new);

		PageSetLSN(page, end);
	}
	if (fault != NULL)
		ZUNDO_FAULT(fault);
	END_CRIT_SECTION();
}

/* zchange_delete_covered: See zchange.h. As zchange_insert_covered. */
void
zchange_delete_covered(Buffer buf, const ZCoveredRow *old, const char *fault)
{
	Page		page = BufferGetPage(buf);
	XLogRecPtr	end;

	Assert(CritSectionCount == 0);
	Assert(old->logged && ZH_SLOT(old->header) <= zpage_nslots(page));
	Assert(!PageIsAllVisible(page));	/* VMAP-2 */

	START_CRIT_SECTION();
	zpage_end_row(page, old->off, ZH_SLOT(old->header), ZSTATE_DELETED,
				  (old->header & ZH_OTHER_PART) != 0);
	MarkBufferDirty(buf);
	end = zchange_log_covered_delete(buf, old);
	PageSetLSN(page, end);
	if (fault != NULL)
		ZUNDO_FAULT(fault);
	END_CRIT_SECTION();
}
