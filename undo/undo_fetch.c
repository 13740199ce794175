/*
 * undo/undo_fetch.c - following an undo pointer.
 *
 * Owns reading of single records. Called by visibility, rollback and scans,
 * often with a table page locked.
 *
 * Locks: fence (shared) -> one undo page (shared); see undo_page.c.
 *
 * Crash points: none; reads only.
 *
 * Invariant
 *	UNDO-10	absence proves nothing:
 *		(a) a record is returned only from pages of the pointer's generation,
 *			and only if it is of the table page that the caller expects;
 *		(b) it is reported as discarded only if the map or the log's discard
 *			pointer says that it may be.
 *		Anything else is damage, an error in all builds. Images may be missing
 *		at any time for readers that look for a shortcut (zu_fetch_saved).
 */
#include "undo/undo_internal.h"

#include "common/zcount.h"

/* ---- what is not there ---- */

/*
 * A map page that has missed writes is assumed to lag behind by at most this
 * many allocations of an extent.
 */
#define MAX_LOST_GENERATIONS	1024

/*
 * Returns whether the log has discarded the place of ptr; map is the entry of
 * the extent of ptr. False on a standby, where the discard pointer is not
 * known.
 */
static bool
is_before_discard(const ZuMapEntry *map, UndoPtr ptr)
{
	ZuEntry    *entry = zu_my.entry;
	const ZuLog *log;
	UndoPtr		discard;

	if (RecoveryInProgress() || !zu_entry_has(entry, ZU_ENTRY_LOGS) ||
		map->logno >= zu_nlogs())
		return false;
	log = &entry->logs[map->logno];

	/*
	 * the discarder publishes the sequence first; read after the pointer, it
	 * is as new as the pointer or newer
	 */
	discard = pg_atomic_read_u64((pg_atomic_uint64 *) &log->discard);
	pg_read_barrier();
	if (map->sequence < pg_atomic_read_u64((pg_atomic_uint64 *) &log->discard_sequence))
		return true;
	return zuptr_extent(discard) == zuptr_extent(ptr) &&
		zuptr_generation(discard) == zuptr_generation(ptr) &&
		zuptr_byte(ptr) < zuptr_byte(discard);
}

/*
 * Returns whether the map or the log's discard pointer says that the record at
 * ptr, which was not found, may be gone. Compares the generation of the pointer
 * with that of the map entry; if they are equal, the state of the extent and
 * the discard pointer decide. Takes the map page's share lock.
 */
static bool
is_discarded(UndoPtr ptr)
{
	ZuMapEntry	map;
	uint32		ahead;

	if (!zu_read_map_entry(zuptr_extent(ptr), &map))
		return true;			/* cut off with the file's tail */

	/*
	 * The usual comparison of generations does not do here: a pointer to an
	 * image may be older than half the circle of generations. But a pointer
	 * from after the last write of the map that was lost is only a little
	 * ahead of the map.
	 */
	ahead = (zuptr_generation(ptr) - map.generation) & ZU_MAX_GENERATION;
	if (ahead != 0)
		return ahead > MAX_LOST_GENERATIONS;
	return map.state == ZU_EXTENT_FREE ||
		(map.state == ZU_EXTENT_LOG && is_before_discard(&map, ptr));
}

/* Raises the error for a record that is neither there nor discarded. */
static void
report_lost(UndoPtr ptr, RelFileNumber relnumber, BlockNumber block)
{
	BlockNumber undo_block = zu_extent_block(zuptr_extent(ptr)) + zuptr_byte(ptr) / BLCKSZ;

	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of relation \"%s\" has lost an undo record", undo_block,
					"zundo.undo_log"),
			 errdetail("Block %u of the relation with file number %u needs the record at offset "
					   "%u, which was not discarded.",
					   block, relnumber, zuptr_byte(ptr) % BLCKSZ),
			 errhint("Check the storage of this database, and restore the database from a backup "
					 "if pages are damaged.")));
}

/* ---- records ---- */

/*
 * Copies the record at ptr into buf. Returns its length; 0 if a page is not of
 * the pointer's generation or has no data there; -1 if the bytes are there but
 * give no possible length. Fence held.
 */
static int
gather_record(UndoPtr ptr, char *buf)
{
	uint32		extent = zuptr_extent(ptr);
	uint32		generation = zuptr_generation(ptr);
	int			page = zuptr_byte(ptr) / BLCKSZ;
	int			off = zuptr_byte(ptr) % BLCKSZ;
	Size		have = 0;
	Size		want = 0;		/* the record's length, 0 = not known yet */

	if (off < ZU_PAGE_DATA)
		return 0;
	do
	{
		Buffer		bufno;
		Page		p;
		int			lower;
		Size		n;

		if (page >= ZU_EXTENT_PAGES)
			return -1;			/* UNDO-5 */
		bufno = zu_lock_page(extent, page, RBM_NORMAL);
		p = BufferGetPage(bufno);
		lower = ((PageHeader) p)->pd_lower;
		if (!zu_page_valid(p, extent, generation, page) || off >= lower)
		{
			UnlockReleaseBuffer(bufno);
			return 0;
		}
		while (off < lower && (want == 0 || have < want))
		{
			n = (want == 0 ? 3 : want) - have;
			n = Min(n, (Size) (lower - off));
			memcpy(buf + have, (char *) p + off, n);
			have += n;
			off += (int) n;
			if (want == 0 && have == 3)
			{
				want = zur_peek_length(buf, have);
				if (want == 0)
				{
					UnlockReleaseBuffer(bufno);
					return -1;
				}
			}
		}
		UnlockReleaseBuffer(bufno);
		page++;
		off = ZU_PAGE_DATA;
	} while (want == 0 || have < want);
	Assert(have == want && want <= ZUR_MAX_LENGTH);
	return (int) want;
}

/*
 * Does what gather_record does for any ptr, also for one of private undo, with
 * the fence held meanwhile.
 */
static inline int
gather_any(UndoPtr ptr, char *buf)
{
	int			len = 0;
	bool		taken;

	if (unlikely(zuptr_is_temp(ptr)))
		return zu_temp_gather(ptr, buf);
	taken = zu_fence_enter();
	if (ptr != InvalidUndoPtr &&
		zuptr_extent(ptr) < pg_atomic_read_u32(&zu_my.entry->limit))
		len = gather_record(ptr, buf);
	zu_fence_leave(taken);
	return len;
}

/*
 * zu_fetch, zu_try_fetch: See undo.h. Treat a record of another table page like
 * a missing one. Ask whether the record may have been discarded only after it
 * was not found.
 */
static inline ZuFetchResult
fetch(UndoPtr ptr, RelFileNumber expect_relnumber, BlockNumber expect_block,
	  ZuRecord *rec, char *buf, bool try)
{
	int			len;
	bool		is_record;

	Assert(zu_my.entry != NULL);
	zcount_read(ZCOUNT_READ, 1);
	len = gather_any(ptr, buf);
	is_record = len > 0 && zur_unpack(buf, len, rec) && zxid_possible(rec->xid);
	if (likely(is_record && rec->relnumber == expect_relnumber && rec->block == expect_block))
		return ZU_FETCHED;
	if (zuptr_is_temp(ptr) ? len == 0 || is_record : ptr == InvalidUndoPtr || is_discarded(ptr))
		return ZU_DISCARDED;
	if (try)
		return ZU_DAMAGED;
	if (len == 0 || is_record)
		report_lost(ptr, expect_relnumber, expect_block);
	zu_report_corrupt(zu_extent_block(zuptr_extent(ptr)) + zuptr_byte(ptr) / BLCKSZ,
					  zuptr_byte(ptr) % BLCKSZ);
}

ZuFetchResult
zu_fetch(UndoPtr ptr, RelFileNumber expect_relnumber, BlockNumber expect_block,
		 ZuRecord *rec, char *buf)
{
	return fetch(ptr, expect_relnumber, expect_block, rec, buf, false);
}

ZuFetchResult
zu_try_fetch(UndoPtr ptr, RelFileNumber expect_relnumber, BlockNumber expect_block,
			 ZuRecord *rec, char *buf)
{
	return fetch(ptr, expect_relnumber, expect_block, rec, buf, true);
}

/* ---- headers of records (ZuHeader) ---- */

/*
 * Reads the record that begins in len bytes at src. Returns false if it is not
 * there as a whole, or is no record of this table page.
 */
static inline bool
read_record(const char *src, Size len, RelFileNumber relnumber, BlockNumber block, ZuRecord *rec)
{
	return zur_unpack(src, len, rec) && zxid_possible(rec->xid) && rec->relnumber == relnumber &&
		rec->block == block;
}

/*
 * zu_fetch_saved: See undo.h. Does not ask the map why the record is missing: a
 * pointer to an image may be of any age, and after 2^20 generations of its
 * extent, less a few, is_discarded takes it for a new one.
 */
bool
zu_fetch_saved(UndoPtr ptr, RelFileNumber expect_relnumber, BlockNumber expect_block,
			   ZuRecord *rec, char *buf)
{
	int			len;

	Assert(zu_my.entry != NULL);
	/* temporary tables have no images; a damaged page may say so */
	if (zuptr_is_temp(ptr))
		return false;
	len = gather_any(ptr, buf);
	return len > 0 && read_record(buf, len, expect_relnumber, expect_block, rec) &&
		zrecord_is_saved(rec->type);
}

/*
 * Reads, as read_record does, the record at ptr, which begins in len bytes at
 * src, and fills *header with its header. Returns false if read_record does.
 */
static bool
take_header(UndoPtr ptr, const char *src, Size len, RelFileNumber relnumber, BlockNumber block,
			ZuHeader *header)
{
	ZuRecord	rec;

	if (!read_record(src, len, relnumber, block, &rec))
		return false;
	header->ptr = ptr;
	header->prev = rec.prev;
	header->xid = rec.xid;
	header->cid = rec.cid;
	header->as_of = rec.as_of;
	zu_header_about(header, &rec);
	header->xflags = rec.xflags;
	return true;
}

/* Does zu_fetch_headers' work for private undo. */
static int
temp_headers(UndoPtr ptr, RelFileNumber relnumber, BlockNumber block, ZuHeader *headers, int max)
{
	char		buf[ZUR_MAX_LENGTH];
	int			n = 0;

	while (n < max && ptr != InvalidUndoPtr && zuptr_is_temp(ptr))
	{
		int			len = zu_temp_gather(ptr, buf);

		if (len <= 0 || !take_header(ptr, buf, len, relnumber, block, &headers[n]))
			break;
		ptr = headers[n++].prev;
	}
	return n;
}

/* Does zu_fetch_headers' work under the lock of the undo page of ptr. */
static int
headers_on_page(UndoPtr ptr, RelFileNumber relnumber, BlockNumber block, ZuHeader *headers, int max)
{
	uint32		extent = zuptr_extent(ptr);
	int			page = zuptr_byte(ptr) / BLCKSZ;
	UndoPtr		first = ptr - zuptr_byte(ptr) % BLCKSZ; /* byte 0 of the page */
	Buffer		bufno = zu_lock_page(extent, page, RBM_NORMAL);
	Page		p = BufferGetPage(bufno);
	int			lower = ((PageHeader) p)->pd_lower;
	int			n = 0;

	if (zu_page_valid(p, extent, zuptr_generation(ptr), page))
	{
		while (n < max && ptr - first < BLCKSZ)
		{
			int			off = (int) (ptr - first);

			if (off < ZU_PAGE_DATA || off >= lower ||
				!take_header(ptr, (char *) p + off, lower - off, relnumber, block, &headers[n]))
				break;
			ptr = headers[n++].prev;
		}
	}
	UnlockReleaseBuffer(bufno);
	return n;
}

/*
 * Reads the header of the record at ptr, which does not lie on one undo page.
 * Returns 1, or 0 if it is missing or damaged. The caller holds the fence.
 */
static int
straddling_header(UndoPtr ptr, RelFileNumber relnumber, BlockNumber block, ZuHeader *header)
{
	char		buf[ZUR_MAX_LENGTH];
	int			len = gather_record(ptr, buf);

	return len > 0 && take_header(ptr, buf, len, relnumber, block, header) ? 1 : 0;
}

/*
 * zu_fetch_headers: See undo.h. Reads nothing of the payloads, so that records
 * of 35 bytes cost a small part of what zu_fetch costs for each.
 */
int
zu_fetch_headers(UndoPtr ptr, RelFileNumber expect_relnumber, BlockNumber expect_block,
				 ZuHeader *headers, int max)
{
	bool		taken;
	int			n = 0;

	Assert(zu_my.entry != NULL && ptr != InvalidUndoPtr && max <= ZU_MAX_HEADERS);
	if (unlikely(zuptr_is_temp(ptr)))
		return temp_headers(ptr, expect_relnumber, expect_block, headers, max);
	taken = zu_fence_enter();
	if (zuptr_extent(ptr) < pg_atomic_read_u32(&zu_my.entry->limit))
	{
		n = headers_on_page(ptr, expect_relnumber, expect_block, headers, max);
		if (n == 0)
			n = straddling_header(ptr, expect_relnumber, expect_block, headers);
	}
	zu_fence_leave(taken);
	zcount_read(ZCOUNT_READ, n);
	return n;
}

/* At most this many records are passed under one lock of an undo page. */
#define MAX_SKIPPED		256

/*
 * zu_skip: See undo.h. Reads the records on the undo page itself, all but
 * their payloads, and remembers nothing of them. A record that is like the one
 * before in all but offset and prev is not unpacked (zur_is_alike).
 */
UndoPtr
zu_skip(UndoPtr ptr, const ZuRecord *like, OffsetNumber off, int *n)
{
	UndoPtr		first = ptr - zuptr_byte(ptr) % BLCKSZ; /* byte 0 of the page */
	bool		taken;
	Buffer		bufno;
	Page		p;
	int			lower;
	ZuRecord	rec = {0};
	ZurLayout	layout = {0};
	bool		alike = false;	/* layout is set, and rec of this layout */

	Assert(zu_my.entry != NULL && ptr != InvalidUndoPtr && !zuptr_is_temp(ptr));
	taken = zu_fence_enter();
	if (zuptr_extent(ptr) >= pg_atomic_read_u32(&zu_my.entry->limit))
	{
		zu_fence_leave(taken);
		return ptr;
	}
	bufno = zu_lock_page(zuptr_extent(ptr), zuptr_byte(ptr) / BLCKSZ, RBM_NORMAL);
	p = BufferGetPage(bufno);
	lower = zu_page_valid(p, zuptr_extent(ptr), zuptr_generation(ptr), zuptr_byte(ptr) / BLCKSZ) ?
		((PageHeader) p)->pd_lower : 0;
	for (int i = 0; i < MAX_SKIPPED && ptr - first < BLCKSZ; i++)
	{
		int			at = (int) (ptr - first);
		const char *src = (const char *) p + at;

		if (at < ZU_PAGE_DATA || at >= lower)
			break;
		if (!alike || !zur_is_alike(&layout, src, lower - at, &rec))
		{
			if (!read_record(src, lower - at, like->relnumber, like->block, &rec) ||
				rec.xid != like->xid || rec.cid != like->cid ||
				(rec.nrows > 1 && off > rec.offset && off < rec.offset + rec.nrows) ||
				(rec.type == ZUR_LOCK && rec.open))
				break;
			alike = zur_layout(src, &rec, &layout);
		}
		if (rec.offset == off)
			break;
		ptr = rec.prev;
		(*n)++;
		zcount_read(ZCOUNT_READ, 1);
	}
	UnlockReleaseBuffer(bufno);
	zu_fence_leave(taken);
	return ptr;
}
