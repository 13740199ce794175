/*
 * undo/undo_cache.c - private copies of undo pages that one transaction reads
 * again and again.
 *
 * An old snapshot's scan takes back changes whose records are spread over all
 * undo pages: each table page needs some bytes of many of them. A pin and a
 * lock for every record, and the processor's walks of its own page tables, cost
 * more than reading the record. So a page that is read for the third time is
 * copied, and its records are read in the copy. A parallel query does not do
 * so: each of its processes would copy the same pages for its share of the
 * reads, and allocating that memory costs more than it saves.
 *
 * A rollback, and a scan that has not read many records yet, read each record
 * of a table page once, but mostly several of one undo page in succession. They
 * use a window (ZuWindow), which has a copy of that one undo page and belongs
 * to the caller.
 *
 * Memory: at most CACHE_PAGES pages, until the transaction ends; windows are
 * their callers'.
 * Locks: those of zu_fetch while a page is copied, none for reading a copy.
 * Crash points: none; reads only.
 *
 * Invariant
 *	UNDO-29	a record never changes once it is written, and what lies below a
 *		page's pd_lower stays until the page gets another generation, or is
 *		wiped by zundo.purge(), which happens only after the page has been
 *		given back. So a copy, or window, of a page of one generation has the
 *		records that were written there, up to the pd_lower that was copied,
 *		even after the page has been given back.
 */
#include "undo/undo_internal.h"

#ifndef WIN32
#include <sys/mman.h>
#endif

#include "access/xact.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#define CACHE_PAGES		4096
#define CACHE_ENTRIES	8192
/*
 * A page is copied, or copied again because it has grown, when a record that no
 * copy has was read from it this many times since.
 */
#define WORTH_A_COPY	3
/*
 * The copies are given up after this many attempts to copy a page for which
 * there was no space: the transaction reads other pages by then.
 */
#define TOO_OFTEN_REFUSED	(16 * CACHE_PAGES)
#define HUGE_PAGE		((Size) 2 * 1024 * 1024)
/* The processor's cache line, and the bytes of a usual record (prefetch). */
#define LINE			64
#define SHORT_RECORD	40

/* What is known of the undo page that occupies this place of the table. */
typedef struct CacheEntry
{
	BlockNumber block;
	uint32		generation;
	uint16		met;			/* reads without a copy that has the record */
	uint16		copied;			/* bytes that are copied, 0 = no copy */
	uint16		copy;			/* number of the copy */
} CacheEntry;

/* The copies of this backend's transaction. */
typedef struct Copies
{
	MemoryContext context;		/* memory of the copies; NULL = none yet */
	char	   *pages;			/* CACHE_PAGES pages, of which the first n are
								 * in use */
	int			n;
	int			nrefused;		/* how often there was no space for another
								 * copy */
	bool		no_memory;		/* the memory could not be allocated in this
								 * transaction */
	RelFileNumber log;			/* the undo log that the copies are of */
	CacheEntry	entries[CACHE_ENTRIES];
} Copies;

static Copies my;

/* Forgets all copies. Callback of the memory context that holds them. */
static void
forget_copies(void *arg)
{
	memset(&my, 0, sizeof(my));
}

/*
 * Allocates the memory for the copies of this transaction, if there is none
 * yet; returns whether there is. Only what is written to is really taken from
 * the system.
 */
static bool
make_space(void)
{
	MemoryContextCallback *callback;
	char	   *raw;

	if (my.pages != NULL || my.no_memory || !IsTransactionState())
		return my.pages != NULL;
	my.context = AllocSetContextCreate(TopTransactionContext, "zheap undo pages",
									   ALLOCSET_SMALL_SIZES);
	callback = MemoryContextAlloc(my.context, sizeof(MemoryContextCallback));
	callback->func = forget_copies;
	callback->arg = NULL;
	MemoryContextRegisterResetCallback(my.context, callback);
	raw = MemoryContextAllocExtended(my.context, CACHE_PAGES * (Size) BLCKSZ + HUGE_PAGE,
									 MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
	my.no_memory = (raw == NULL);
	if (my.no_memory)
		return false;
	my.pages = (char *) TYPEALIGN(HUGE_PAGE, raw);
#ifdef MADV_HUGEPAGE

	/*
	 * 2 MB pages save most of the page-table walks; without them nothing is
	 * lost
	 */
	(void) madvise(my.pages, CACHE_PAGES * (Size) BLCKSZ, MADV_HUGEPAGE);
#endif
	my.log = zu_my.locator.relNumber;
	return true;
}

/* Returns the bytes of the entry's copy. */
static inline char *
copy_of(const CacheEntry *entry)
{
	Assert(my.pages != NULL && entry->copy < CACHE_PAGES);
	return my.pages + entry->copy * (Size) BLCKSZ;
}

/*
 * Copies the page of ptr, once more if it has a copy. Returns false if there
 * is no space, if the transaction is in parallel mode, or if the page is not of
 * that generation any more.
 */
static bool
copy_page(CacheEntry *entry, UndoPtr ptr)
{
	bool		fresh = (entry->copied == 0);
	char	   *dst;

	if (IsInParallelMode() || !make_space())
		return false;
	if (fresh && my.n == CACHE_PAGES)
	{
		my.nrefused++;
		return false;
	}
	if (fresh)
		entry->copy = my.n;
	dst = copy_of(entry);
	if (!zu_copy_page(zuptr_extent(ptr), zuptr_generation(ptr), zuptr_byte(ptr) / BLCKSZ, dst,
					  RBM_NORMAL))
		return false;
	if (fresh)
		my.n++;
	entry->copied = ((PageHeader) dst)->pd_lower;
	Assert(my.n <= CACHE_PAGES && entry->copied <= BLCKSZ);
	return true;
}

/*
 * Returns the entry of ptr's page, or NULL if its place in the table belongs to
 * another page that is copied.
 */
static CacheEntry *
find_entry(UndoPtr ptr)
{
	BlockNumber block = zu_extent_block(zuptr_extent(ptr)) + zuptr_byte(ptr) / BLCKSZ;
	CacheEntry *entry = &my.entries[block % CACHE_ENTRIES];

	if (entry->block == block && entry->generation == zuptr_generation(ptr))
		return entry;
	if (entry->copied > 0)
		return NULL;
	entry->block = block;
	entry->generation = zuptr_generation(ptr);
	entry->met = 0;
	return entry;
}

/*
 * zu_cache_prefetch: See undo.h. Prefetches the record in the copy if the copy
 * has it, else in its buffer.
 */
void
zu_cache_prefetch(UndoPtr ptr)
{
	int			off = zuptr_byte(ptr) % BLCKSZ;
	BlockNumber block = zu_extent_block(zuptr_extent(ptr)) + zuptr_byte(ptr) / BLCKSZ;
	const CacheEntry *entry = &my.entries[block % CACHE_ENTRIES];

	if (zuptr_is_temp(ptr))
		return;
	if (entry->block == block && off < entry->copied)
	{
		const char *p = copy_of(entry) + off;

		zu_prefetch_line(p);
		/* the line after it too, if a short record would reach into it */
		if ((uintptr_t) p % LINE >LINE -SHORT_RECORD)
			zu_prefetch_line(p + SHORT_RECORD);
	}
	else
		zu_prefetch(ptr);
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether the record in the copy, with these bytes, equals that in the
 * log, or the log has discarded it; and whether *rec is what they say, also if
 * zur_is_alike has set only some of its fields.
 */
static bool
copy_is_right(UndoPtr ptr, const ZuRecord *rec, const char *bytes)
{
	char		buf[ZUR_MAX_LENGTH];
	ZuRecord	now;
	uint64		counts[ZCOUNT_ALL];
	bool		right;

	/* what is read for the assertion does not count */
	memcpy(counts, zcount_mine, sizeof(counts));
	right = zu_fetch(ptr, rec->relnumber, rec->block, &now, buf) == ZU_DISCARDED ||
		(now.length == rec->length && memcmp(buf, bytes, now.length) == 0 &&
		 now.type == rec->type && now.flags == rec->flags && now.xflags == rec->xflags &&
		 now.xid == rec->xid && now.topxid == rec->topxid && now.reloid == rec->reloid &&
		 now.offset == rec->offset && now.cid == rec->cid && now.as_of == rec->as_of &&
		 now.prev == rec->prev && now.nrows == rec->nrows && now.open == rec->open &&
		 now.lockmode == rec->lockmode && now.payload_len == rec->payload_len &&
		 (now.payload == NULL ? rec->payload == NULL :
		  rec->payload != NULL && rec->payload - bytes == now.payload - buf));
	memcpy(zcount_mine, counts, sizeof(counts));
	return right;
}
#endif

/*
 * Reads the record at ptr, which begins in the have bytes at p of a copy of its
 * page. Returns false for what is left to zu_fetch: records that continue on
 * the next page, those of another table page, and faults.
 */
static inline bool
read_copied(UndoPtr ptr, const char *p, Size have, RelFileNumber relnumber, BlockNumber block,
			ZuRecord *rec)
{
	if (!zur_unpack(p, have, rec) || rec->relnumber != relnumber || rec->block != block ||
		!zxid_possible(rec->xid))
		return false;
	Assert(copy_is_right(ptr, rec, p)); /* UNDO-29 */
	zcount_read(ZCOUNT_READ, 1);
	return true;
}

/*
 * zu_fetch_cached: See undo.h. Leaves to zu_fetch what a copy does not hold:
 * pages that are not copied (yet), and what read_copied does not read.
 */
ZuFetchResult
zu_fetch_cached(UndoPtr ptr, RelFileNumber expect_relnumber, BlockNumber expect_block,
				ZuRecord *rec, char *buf, const char **bytes)
{
	int			off = zuptr_byte(ptr) % BLCKSZ;
	CacheEntry *entry = NULL;

	if (ptr != InvalidUndoPtr && !zuptr_is_temp(ptr))
		entry = find_entry(ptr);
	if (entry != NULL && off >= entry->copied && ++entry->met >= WORTH_A_COPY)
	{
		entry->met = 0;
		if (!copy_page(entry, ptr))
			entry = NULL;
	}
	if (entry != NULL && off >= ZU_PAGE_DATA && off < entry->copied)
	{
		*bytes = copy_of(entry) + off;
		if (read_copied(ptr, *bytes, entry->copied - off, expect_relnumber, expect_block, rec))
			return ZU_FETCHED;
	}
	*bytes = buf;
	return zu_fetch(ptr, expect_relnumber, expect_block, rec, buf);
}

/*
 * zu_fetch_window: See undo.h. Leaves to zu_fetch what the copy does not hold,
 * as zu_fetch_cached does. Does not copy the page in the window again when it
 * has grown. Allocates nothing, so it may be called in abort callbacks.
 */
ZuFetchResult
zu_fetch_window(ZuWindow *window, UndoPtr ptr, RelFileNumber expect_relnumber,
				BlockNumber expect_block, ZuRecord *rec, char *buf, const char **bytes)
{
	int			off = zuptr_byte(ptr) % BLCKSZ;
	UndoPtr		first = ptr - off;

	*bytes = buf;
	if (ptr == InvalidUndoPtr || zuptr_is_temp(ptr))
		return zu_fetch(ptr, expect_relnumber, expect_block, rec, buf);
	if (window->first != first && window->last == first)
	{
		window->first = InvalidUndoPtr;
		if (zu_copy_page(zuptr_extent(ptr), zuptr_generation(ptr), zuptr_byte(ptr) / BLCKSZ,
						 window->page.data, RBM_NORMAL))
		{
			window->first = first;
			window->lower = ((PageHeader) window->page.data)->pd_lower;
		}
	}
	window->last = first;
	if (window->first == first && off >= ZU_PAGE_DATA && off < window->lower)
	{
		Assert(window->lower <= BLCKSZ);
		*bytes = window->page.data + off;
		if (read_copied(ptr, *bytes, window->lower - off, expect_relnumber, expect_block, rec))
			return ZU_FETCHED;
		*bytes = buf;
	}
	if (window->try)
		return zu_try_fetch(ptr, expect_relnumber, expect_block, rec, buf);
	return zu_fetch(ptr, expect_relnumber, expect_block, rec, buf);
}

Size
zu_copied_before(UndoPtr ptr, UndoPtr here)
{
	return ptr < here && here - ptr + ZU_PAGE_DATA <= zuptr_byte(here) % BLCKSZ ? here - ptr : 0;
}

bool
zu_copied_alike(UndoPtr ptr, const char *bytes, Size len, const ZurLayout *layout, ZuRecord *rec)
{
	if (!zur_is_alike(layout, bytes, len, rec))
		return false;
	Assert(copy_is_right(ptr, rec, bytes)); /* UNDO-29 */
	zcount_read(ZCOUNT_READ, 1);
	return true;
}

void
zu_cache_tidy(void)
{
	if (my.pages != NULL && (my.nrefused > TOO_OFTEN_REFUSED || my.log != zu_my.locator.relNumber))
		MemoryContextDelete(my.context);
}
