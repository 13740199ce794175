/*
 * undo/undo_page.c - pages of zundo.undo_log: pinning, copying, beginning one.
 *
 * Owns the reader's side of the truncation fence, and the memory of which
 * buffer held a block. Called by everything in undo/ that reads pages.
 *
 * Locks: fence (shared) -> one undo page (shared). The fence is held while a
 * page is pinned, so that tail truncation never meets a reader's pin.
 *
 * Crash points: none.
 */
#include "undo/undo_internal.h"

#include "access/xloginsert.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "storage/buf_internals.h"
#include "undo/undo_overflow.h"

/* Alignment that direct I/O may ask for. */
#define READ_ALIGN		4096

/* The buffer that held a block last time: direct-mapped by block number. */
#define RECENT_BUFFERS	8192

typedef struct RecentBuffer
{
	BlockNumber block;
	Buffer		buffer;
} RecentBuffer;

/* What this backend knows as a reader. */
typedef struct Reader
{
	bool		fence_held;		/* by zu_read_begin; an error releases it */
	RecentBuffer recent[RECENT_BUFFERS];
} Reader;

static Reader my;

/* ---- the fence ---- */

/*
 * Returns whether the fence that zu_read_begin took is still held. An error
 * releases it without zu_read_end.
 */
static inline bool
fence_kept(void)
{
	if (likely(!my.fence_held))
		return false;
	my.fence_held = LWLockHeldByMe(zu_my_fence());
	return my.fence_held;
}

void
zu_read_begin(void)
{
	if (fence_kept())
		elog(ERROR, "zu_read_begin is not nestable");
	LWLockAcquire(zu_my_fence(), LW_SHARED);
	my.fence_held = true;
}

void
zu_read_end(void)
{
	if (fence_kept())
		LWLockRelease(zu_my_fence());
	my.fence_held = false;
}

bool
zu_fence_enter(void)
{
	if (fence_kept())
		return false;
	LWLockAcquire(zu_my_fence(), LW_SHARED);
	return true;
}

void
zu_fence_leave(bool taken)
{
	if (taken)
		LWLockRelease(zu_my_fence());
}

/* ---- pages ---- */

Buffer
zu_read_block(BlockNumber block, ReadBufferMode mode)
{
	zundo_abort_may_read(zu_my.locator, block);
	return ReadBufferWithoutRelcache(zu_my.locator, MAIN_FORKNUM, block, mode, NULL, true);
}

Buffer
zu_recent_block(BlockNumber block, ReadBufferMode mode)
{
	RecentBuffer *r = &my.recent[block % RECENT_BUFFERS];

	if (r->block != block || !BufferIsValid(r->buffer) ||
		!ReadRecentBuffer(zu_my.locator, MAIN_FORKNUM, block, r->buffer))
	{
		r->buffer = zu_read_block(block, mode);
		r->block = block;
	}
	return r->buffer;
}

Buffer
zu_lock_page(uint32 extent, int page, ReadBufferMode mode)
{
	Buffer		buf;

	/* the limit was checked under the fence; it may have been lowered since */
	Assert(LWLockHeldByMe(zu_my_fence()));
	Assert(page >= 0 && page < ZU_EXTENT_PAGES);
	zcount(ZCOUNT_PAGES, 1);
	buf = zu_recent_block(zu_extent_block(extent) + page, mode);
	zundo_abort_lock_buffer(buf, BUFFER_LOCK_SHARE);
	return buf;
}

/*
 * zu_copy_page: See undo_internal.h. Copies only up to pd_lower; the rest of
 * dst is left as it is.
 */
bool
zu_copy_page(uint32 extent, uint32 generation, int page, char *dst, ReadBufferMode mode)
{
	bool		taken = zu_fence_enter();
	bool		valid = false;

	if (extent < pg_atomic_read_u32(&zu_my.entry->limit))
	{
		Buffer		buf = zu_lock_page(extent, page, mode);
		Page		src = BufferGetPage(buf);

		valid = zu_page_valid(src, extent, generation, page);
		if (valid)
			memcpy(dst, src, ((PageHeader) src)->pd_lower);
		UnlockReleaseBuffer(buf);
	}
	zu_fence_leave(taken);
	return valid;
}

/*
 * zu_prefetch: See undo.h. Fetches the buffer's descriptor, the page header
 * and the first bytes of the record.
 */
void
zu_prefetch(UndoPtr ptr)
{
	BlockNumber block = zu_extent_block(zuptr_extent(ptr)) + zuptr_byte(ptr) / BLCKSZ;
	const RecentBuffer *r = &my.recent[block % RECENT_BUFFERS];

	if (!zuptr_is_temp(ptr) && r->block == block && BufferIsValid(r->buffer))
	{
		const char *page = (const char *) BufferGetBlock(r->buffer);

		zu_prefetch_line(GetBufferDescriptor(r->buffer - 1));
		zu_prefetch_line(page);
		zu_prefetch_line(page + zuptr_byte(ptr) % BLCKSZ);
	}
}

/*
 * zu_page_init: See undo_internal.h. Initialises an undo page without records.
 * DML and redo share it.
 */
void
zu_page_init(Page page, uint32 extent, int pageno, const ZuPlace *place)
{
	ZuPageHeader *h = zu_page_header(page);

	Assert(pageno >= 0 && pageno < ZU_EXTENT_PAGES && extent < ZU_MAX_EXTENTS);
	Assert(place->generation != 0 && place->generation <= ZU_MAX_GENERATION);
	PageInit(page, BLCKSZ, 0);
	h->generation = place->generation;
	h->extent = extent;
	h->logno = (uint16) place->logno;
	h->first_record = 0;
	h->magic = ZU_PAGE_MAGIC;
	h->page = (uint16) pageno;
	h->sequence = place->sequence;
	h->prev = pageno == 0 ? place->prev : InvalidUndoPtr;
	h->topxid = place->topxid;
	((PageHeader) page)->pd_lower = ZU_PAGE_DATA;
}

/*
 * zu_overflow_init: See undo_overflow.h. Initialises the page for DML and redo
 * alike. A page without an owner gets no fields but the magic.
 */
void
zu_overflow_init(Page page, Oid reloid, RelFileNumber relnumber, BlockNumber block, int first,
				 uint16 changes)
{
	ZuOverflowHeader *h = zu_overflow_header(page);

	Assert(first >= 0 && first <= PG_UINT16_MAX && (first == 0 || OidIsValid(reloid)));
	PageInit(page, BLCKSZ, 0);
	h->magic = ZU_OVERFLOW_MAGIC;
	if (first != 0)
	{
		h->reloid = reloid;
		h->relnumber = relnumber;
		h->block = block;
		h->first = (uint16) first;
		h->changes = changes;
	}
	((PageHeader) page)->pd_lower = ZU_OVERFLOW_DATA;
}

/*
 * zu_overflow_init_extent: See undo_overflow.h. Each page gets a WAL record of
 * its own, of some hundred bytes: an image without the space for slots.
 */
void
zu_overflow_init_extent(uint32 extent)
{
	Assert(LWLockHeldByMe(zu_alloc_lock(zu_my.entry)));
	for (int page = 0; page < ZU_EXTENT_PAGES; page++)
	{
		Buffer		buf = zu_read_block(zu_extent_block(extent) + page, RBM_ZERO_AND_LOCK);

		START_CRIT_SECTION();
		zu_overflow_init(BufferGetPage(buf), InvalidOid, InvalidRelFileNumber, 0, 0, 0);
		MarkBufferDirty(buf);
		(void) log_newpage_buffer(buf, true);
		END_CRIT_SECTION();
		UnlockReleaseBuffer(buf);
	}
}

/*
 * zu_block_is_zero: See undo_internal.h. Reads from the file, into a buffer of
 * its own that is aligned for direct I/O.
 */
bool
zu_block_is_zero(BlockNumber block)
{
	char		unaligned[BLCKSZ + READ_ALIGN];
	char	   *bytes = (char *) TYPEALIGN(READ_ALIGN, unaligned);
	uint64	   *words = (uint64 *) bytes;

	smgrread(smgropen(zu_my.locator, INVALID_PROC_NUMBER), MAIN_FORKNUM, block, bytes);
	for (int i = 0; i < BLCKSZ / (int) sizeof(uint64); i++)
		if (words[i] != 0)
			return false;
	return true;
}

BlockNumber
zu_file_blocks(void)
{
	return smgrnblocks(smgropen(zu_my.locator, INVALID_PROC_NUMBER), MAIN_FORKNUM);
}

/*
 * zu_copy_block: See undo_internal.h. Asks for the length of the file each
 * time.
 */
void
zu_copy_block(BlockNumber block, char *dst, bool *damaged)
{
	Buffer		buf;

	if (block >= zu_file_blocks())
	{
		memset(dst, 0, BLCKSZ);
		*damaged = true;
		return;
	}
	buf = zu_read_block(block, RBM_ZERO_ON_ERROR);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	memcpy(dst, BufferGetPage(buf), BLCKSZ);
	UnlockReleaseBuffer(buf);
	*damaged = PageIsNew((Page) dst) && !zu_block_is_zero(block);
}

void
zu_report_corrupt(BlockNumber block, uint32 offset)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid undo record in block %u of relation \"%s\"", block, "zundo.undo_log"),
			 errdetail("The record at offset %u cannot be decoded.", offset),
			 errhint("Check the storage of this database, and restore the database from a backup "
					 "if pages are damaged.")));
}
