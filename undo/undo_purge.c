/*
 * undo/undo_purge.c - zundo.purge(): wipes the old values in free extents.
 *
 * An extent that is given back keeps its bytes until it is taken again, and so
 * old values outlive DROP TABLE. Called by SQL only. Only the data of each page
 * are wiped; the headers stay, because they show if the map has missed writes
 * (UNDO-42). In an extent that is in use, only those pages are wiped that have
 * not been written since the extent was taken. Overflow pages are not wiped:
 * they hold no values of rows.
 *
 * Locks: the alloc lock, for one extent at a time, so that no process takes the
 * extent meanwhile; then the lock of one page after the other.
 *
 * Crash points: none. Each page is logged as an image, without its hole;
 * replay wipes it, on a standby too.
 */
#include "undo/undo_internal.h"

#include "access/table.h"
#include "access/xloginsert.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "undo/undo_overflow.h"

/*
 * Returns whether nothing is behind the header. False for a page that was never
 * written or cannot be read; these look alike.
 */
static bool
is_wiped(Page page)
{
	int			lower = ((PageHeader) page)->pd_lower;

	if (PageIsNew(page) || lower > ZU_PAGE_DATA)
		return false;
	for (int i = ZU_PAGE_DATA; i < BLCKSZ; i++)
	{
		if (((char *) page)[i] != 0)
			return false;
	}
	return true;
}

/* An extent as the map describes it. */
typedef struct Known
{
	uint32		extent;
	uint32		generation;
	bool		free;
} Known;

/*
 * Returns whether nothing on the page is needed: the map and the page call the
 * extent free, or the page is of an earlier allocation of the same extent; any
 * other page that does not belong there may be damage. To a reader that follows
 * an old pointer a wiped page looks like one that was given back. Page locked.
 */
static bool
may_wipe(Page page, const Known *known)
{
	ZuPageHeader *h = zu_page_header(page);

	if (is_wiped(page) || zu_overflow_page(page))
		return false;
	return known->free ||
		(!PageIsNew(page) && h->magic == ZU_PAGE_MAGIC && h->extent == known->extent &&
		 zu_generation_newer(known->generation, h->generation));
}

/* Wipes the page if it may be wiped; returns the number of bytes wiped. */
static int
wipe_page(BlockNumber block, const Known *known)
{
	/*
	 * damage in a free extent does not matter; in an extent in use it must
	 * not be covered by an empty buffer
	 */
	Buffer		buf = zu_read_block(block, known->free ? RBM_ZERO_ON_ERROR : RBM_NORMAL);
	Page		page = BufferGetPage(buf);
	ZuPageHeader *h = zu_page_header(page);
	int			wiped = 0;

	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	if (may_wipe(page, known))
	{
		START_CRIT_SECTION();
		if (!PageIsNew(page) && h->magic == ZU_PAGE_MAGIC && h->extent == known->extent)
		{
			memset((char *) page + ZU_PAGE_DATA, 0, BLCKSZ - ZU_PAGE_DATA);
			h->first_record = 0;
			((PageHeader) page)->pd_lower = ZU_PAGE_DATA;
		}
		else
			PageInit(page, BLCKSZ, 0);
		MarkBufferDirty(buf);
		log_newpage_buffer(buf, true);
		END_CRIT_SECTION();
		wiped = BLCKSZ - ZU_PAGE_DATA;
	}
	UnlockReleaseBuffer(buf);
	return wiped;
}

/* Fills known from the map. Alloc lock held; the extent is below the limit. */
static void
look_up(Known *known)
{
	Buffer		buf = zu_twins_share(zu_map_block(known->extent));
	ZuMapEntry *entry = zu_map_entry(BufferGetPage(buf), known->extent);

	known->generation = entry->generation;
	known->free = entry->state == ZU_EXTENT_FREE;
	UnlockReleaseBuffer(buf);
}

/*
 * Wipes the extent if it is free, or, with !is_free, if it is in use; returns
 * the number of bytes wiped. Alloc lock held. Raises an error if the pages of a
 * free extent say that it is in use.
 */
static uint64
wipe_extent(uint32 extent, bool is_free)
{
	Known		known = {extent};
	uint64		wiped = 0;

	look_up(&known);
	if (known.free != is_free)
		return 0;
	if (known.free)
		zu_check_unused(extent);
	for (int page = 0; page < ZU_EXTENT_PAGES; page++)
		wiped += wipe_page(zu_extent_block(extent) + page, &known);
	return wiped;
}

/*
 * Applies wipe_extent to all extents; returns the number of bytes wiped. Takes
 * the alloc lock for each extent.
 */
static uint64
wipe_all(ZuEntry *entry, bool is_free)
{
	uint64		wiped = 0;
	bool		more = true;

	for (uint32 extent = 0; more; extent++)
	{
		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
		more = extent < pg_atomic_read_u32(&entry->limit);
		if (more)
			wiped += wipe_extent(extent, is_free);
		LWLockRelease(zu_alloc_lock(entry));
	}
	return wiped;
}

/*
 * zu_purge: See undo.h. The pages are flushed because the file is not to have
 * the values any more when this returns.
 */
uint64
zu_purge(void)
{
	Relation	rel;
	uint64		wiped;

	zu_attach_database();
	zu_require_logs();
	wiped = wipe_all(zu_my.entry, true);
	wiped += wipe_all(zu_my.entry, false);
	rel = table_open(zu_my.reloid, AccessShareLock);
	zu_unpin_page();
	FlushRelationBuffers(rel);
	table_close(rel, NoLock);
	return wiped;
}
