/*
 * undo/undo_overflow.c - slot overflow pages: finding free ones, and the table
 * pages that own the others.
 *
 * Owns the extents in state OVERFLOW and the headers of their pages. Called by
 * DML when a table page has no slot left, by readers of slots, and by the
 * worker's clean-up.
 *
 * A page gets its owner and loses it in one WAL record with the table page
 * that points to it (ZWAL_OVERFLOW, written by dml/ and vacuum/); between
 * zu_overflow_reserve and that record nothing is noted anywhere, so an error
 * or a crash in between leaves nothing behind.
 *
 * Locks: table page -> overflow page -> map page (shared). Reserving and
 * freeing hold the alloc lock and lock overflow pages one at a time; freeing
 * holds the map page exclusively and takes the overflow pages' locks only if
 * they are free at once.
 *
 * Crash points: before MAP, a free extent of overflow pages without owners;
 * after it, an extent without used pages, which the next
 * zu_overflow_free_extents frees.
 *
 * Invariants
 *	UNDO-20	an overflow page with an owner is pointed to by exactly that table
 *		page and changes only while that page is locked exclusively. The
 *		exception is a page whose owner's file was dropped or emptied: the
 *		worker frees it.
 *	UNDO-67	each page of an extent is an overflow page before the extent gets
 *		the state OVERFLOW, and stays one until the extent leaves it, which it
 *		does only while no page has an owner (zu_free_overflow_extent asks each
 *		one with the map page locked). So a page of zeros has lost its
 *		contents, and maybe an owner: it is not given to a table page, and
 *		keeps its extent.
 */
#include "undo/undo_internal.h"
#include "undo/undo_overflow.h"

#include "miscadmin.h"

/*
 * zu_overflow_lock: See undo_overflow.h. Checks the block number and the
 * overflow page's owner, since a damaged table page may contain any number.
 */
Buffer
zu_overflow_lock(BlockNumber block, RelFileNumber relnumber, BlockNumber table_block, int mode)
{
	Buffer		buf;
	ZuOverflowHeader *h;
	uint32		extent;
	uint32		page;

	Assert(mode == BUFFER_LOCK_SHARE || mode == BUFFER_LOCK_EXCLUSIVE);
	if (!zu_block_position(block, &extent, &page) ||
		extent >= pg_atomic_read_u32(&zu_my.entry->limit))
		return InvalidBuffer;
	buf = zu_read_block(block, RBM_NORMAL);
	zundo_abort_lock_buffer(buf, mode);
	h = zu_overflow_header(BufferGetPage(buf));
	if (zu_overflow_owned(BufferGetPage(buf)) && h->relnumber == relnumber &&
		h->block == table_block)
		return buf;
	UnlockReleaseBuffer(buf);
	return InvalidBuffer;
}

/* ---- finding a free page ---- */

/* Returns whether the locked page is an overflow page without an owner. */
static bool
is_unowned(Page page)
{
	return zu_overflow_page(page) && !zu_overflow_owned(page);
}

/*
 * Returns whether the page is an overflow page without an owner, as seen under
 * its share lock. The extent is below the limit; the alloc lock is held, so the
 * limit stays.
 */
static bool
page_is_free(BlockNumber block)
{
	Buffer		buf = zu_read_block(block, RBM_NORMAL);
	bool		found;

	Assert(LWLockHeldByMe(zu_alloc_lock(zu_my.entry)));
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	found = is_unowned(BufferGetPage(buf));
	UnlockReleaseBuffer(buf);
	return found;
}

/*
 * Returns a free page of the extents from block 'from' up to, but not
 * including, 'to'; InvalidBlockNumber if there is none. Alloc lock held.
 */
static BlockNumber
find_page(const uint32 *extents, int n, BlockNumber from, BlockNumber to)
{
	for (int i = 0; i < n; i++)
	{
		BlockNumber start = zu_extent_block(extents[i]);

		for (BlockNumber block = Max(start, from);
			 block < start + ZU_EXTENT_PAGES && block < to; block++)
			if (page_is_free(block))
				return block;
	}
	return InvalidBlockNumber;
}

/*
 * Returns a free page of the existing overflow extents, InvalidBlockNumber if
 * there is none. Searches from the hint on, then before it. Alloc lock held.
 */
static BlockNumber
find_free(ZuEntry *entry)
{
	BlockNumber hint = pg_atomic_read_u32(&entry->overflow_hint);
	int			n;
	uint32	   *extents = zu_collect_overflow(&n);
	BlockNumber block = find_page(extents, n, hint, InvalidBlockNumber);

	Assert(LWLockHeldByMe(zu_alloc_lock(entry)));
	if (block == InvalidBlockNumber)
		block = find_page(extents, n, 0, hint);
	pfree(extents);
	return block;
}

/*
 * zu_overflow_reserve: See undo_overflow.h. Waits, without the alloc lock, if
 * there is no free page and no space for an extent.
 */
BlockNumber
zu_overflow_reserve(void)
{
	ZuEntry    *entry = zu_my.entry;
	BlockNumber block;
	ZuFullWait	wait = {.own_bytes = zu_my_transaction_bytes()};

	Assert(InterruptHoldoffCount == 0); /* no lock is held (UNDO-31) */
	CHECK_FOR_INTERRUPTS();
	zu_require_logs();
	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	while ((block = find_free(entry)) == InvalidBlockNumber &&
		   (zu_is_full(entry) || zu_growth_must_wait(entry)))
	{
		LWLockRelease(zu_alloc_lock(entry));
		zu_wait_for_truncation(entry);
		if (zu_is_full(entry))
			zu_wait_for_space(entry, &wait);
		LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	}
	if (block == InvalidBlockNumber)
		block = zu_extent_block(zu_alloc_overflow_extent());
	/* so that another backend does not find the same page first */
	pg_atomic_write_u32(&entry->overflow_hint, block + 1);
	LWLockRelease(zu_alloc_lock(entry));
	ZUNDO_FAULT("overflow-reserved");
	return block;
}

/*
 * zu_overflow_take: See undo_overflow.h. Returns InvalidBuffer rather than
 * wait for the page's lock, because it holds a fence.
 */
Buffer
zu_overflow_take(BlockNumber block)
{
	uint32		extent;
	uint32		page;
	bool		taken;
	Buffer		buf = InvalidBuffer;

	if (block == InvalidBlockNumber || !zu_block_position(block, &extent, &page))
		return InvalidBuffer;
	taken = zu_fence_enter();
	if (extent < pg_atomic_read_u32(&zu_my.entry->limit))
	{
		buf = zu_read_block(block, RBM_NORMAL);

		/*
		 * no waiting with the fence held: the holder of the page lock may
		 * need a fence
		 */
		if (!ConditionalLockBuffer(buf))
		{
			ReleaseBuffer(buf);
			buf = InvalidBuffer;
		}

		/*
		 * while the page is locked, its extent cannot leave the state
		 * OVERFLOW (UNDO-67)
		 */
		else if (!is_unowned(BufferGetPage(buf)) || !zu_is_overflow_extent(extent))
		{
			UnlockReleaseBuffer(buf);
			buf = InvalidBuffer;
		}
	}
	zu_fence_leave(taken);
	return buf;
}

/* ---- cleaning up ---- */

/*
 * Describes page 'page' of an overflow extent in *p. Returns false if the page
 * has no owner, or if the extent is none of overflow pages any more, since no
 * lock keeps it.
 */
static bool
list_page(uint32 extent, int page, ZuOverflowPage *p)
{
	bool		taken = zu_fence_enter();
	bool		listed = false;

	if (extent < pg_atomic_read_u32(&zu_my.entry->limit))
	{
		Buffer		buf = zu_read_block(zu_extent_block(extent) + page, RBM_NORMAL);
		const ZuOverflowHeader *h = zu_overflow_header(BufferGetPage(buf));

		LockBuffer(buf, BUFFER_LOCK_SHARE);
		p->lost = !zu_overflow_page(BufferGetPage(buf));
		p->overflow = BufferGetBlockNumber(buf);
		p->reloid = h->reloid;
		p->relnumber = h->relnumber;
		p->block = h->block;
		p->lsn = BufferGetLSNAtomic(buf);
		/* while the page is locked, an extent of overflow pages stays one */
		listed = zu_overflow_owned(BufferGetPage(buf)) ||
			(p->lost && zu_is_overflow_extent(extent));
		UnlockReleaseBuffer(buf);
	}
	zu_fence_leave(taken);
	return listed;
}

/*
 * zu_overflow_list: See undo_overflow.h. Looks at each page under its share
 * lock, one at a time, so owners may change meanwhile: the caller checks again
 * (zu_overflow_lock_owned).
 */
ZuOverflowPage *
zu_overflow_list(int *n)
{
	int			capacity = ZU_EXTENT_PAGES;
	ZuOverflowPage *list = palloc(capacity * sizeof(ZuOverflowPage));
	uint32	   *extents;
	int			nextents;

	*n = 0;
	zu_require_logs();
	if (pg_atomic_read_u32(&zu_my.entry->overflow_extents) == 0)
		return list;
	extents = zu_collect_overflow(&nextents);
	for (int i = 0; i < nextents; i++)
	{
		if (*n + ZU_EXTENT_PAGES > capacity)
		{
			capacity = *n + Max(capacity, ZU_EXTENT_PAGES);
			list = repalloc_huge(list, capacity * sizeof(ZuOverflowPage));
		}
		for (int page = 0; page < ZU_EXTENT_PAGES; page++)
			*n += list_page(extents[i], page, &list[*n]) ? 1 : 0;
		CHECK_FOR_INTERRUPTS();
	}
	pfree(extents);
	return list;
}

/*
 * zu_overflow_lock_owned: See undo_overflow.h. Compares all that identifies
 * the owner, the OID of the table included, since the page may have another
 * owner by now.
 */
Buffer
zu_overflow_lock_owned(const ZuOverflowPage *p)
{
	Buffer		buf = zu_read_block(p->overflow, RBM_NORMAL);
	ZuOverflowHeader *h;

	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	h = zu_overflow_header(BufferGetPage(buf));
	if (zu_overflow_owned(BufferGetPage(buf)) && h->reloid == p->reloid &&
		h->relnumber == p->relnumber && h->block == p->block)
		return buf;
	UnlockReleaseBuffer(buf);
	return InvalidBuffer;
}

/*
 * Returns whether no page of the extent has an owner, and no process is about
 * to give one to a page. Map page locked exclusively.
 */
static bool
extent_is_unused(uint32 extent)
{
	for (int page = 0; page < ZU_EXTENT_PAGES; page++)
	{
		BlockNumber block = zu_extent_block(extent) + page;
		Buffer		buf = zu_read_block(block, RBM_NORMAL);
		bool		unused = false;

		if (ConditionalLockBuffer(buf))
		{
			unused = is_unowned(BufferGetPage(buf));
			LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		}
		ReleaseBuffer(buf);
		if (!unused)
			return false;
	}
	return true;
}

/*
 * zu_overflow_free_extents: See undo_overflow.h. Looks at the pages of an
 * extent first without the map page locked, so as not to keep other processes
 * from the map.
 */
void
zu_overflow_free_extents(void)
{
	ZuEntry    *entry = zu_my.entry;
	uint32	   *extents;
	int			n;

	zu_require_logs();
	if (pg_atomic_read_u32(&entry->overflow_extents) == 0)
		return;
	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	extents = zu_collect_overflow(&n);
	for (int i = 0; i < n; i++)
	{
		BlockNumber start = zu_extent_block(extents[i]);
		int			page = 0;

		while (page < ZU_EXTENT_PAGES && page_is_free(start + page))
			page++;
		if (page == ZU_EXTENT_PAGES)
			zu_free_overflow_extent(extents[i], extent_is_unused);
	}
	LWLockRelease(zu_alloc_lock(entry));
	pfree(extents);
}
