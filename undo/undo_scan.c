/*
 * undo/undo_scan.c - reading a log forward.
 *
 * Owns the parser of a log. Called by the discard pass, undo_states.c and at
 * load (to test a log's tail).
 *
 * Locks: none between calls; a page is copied under its share lock.
 *
 * Crash points: none; reads only.
 *
 * Invariant
 *	UNDO-11	all pages of an extent before the last one that is written are
 *		full. Where its data end, the log ends (at the insert position), or the
 *		next extent that was entered names exactly that place as `prev`;
 *		extents in between were allocated but never entered. If a scan finds
 *		anything else, the log is damaged.
 */
#include "undo/undo_internal.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* ---- the parser ---- */

/*
 * zu_scan_init: See undo_entry.h. The flags owned, skip_resolved and readable
 * are false; the caller sets those that it needs.
 */
void
zu_scan_init(ZuScan *scan, uint32 logno, ZuExtent *extents, int n,
			 uint32 byte, UndoPtr end, MemoryContext context)
{
	scan->logno = logno;
	scan->extents = extents;
	scan->nextents = n;
	scan->current = 0;
	scan->page = byte >= ZU_EXTENT_END ? ZU_EXTENT_PAGES : (int) (byte / BLCKSZ);
	scan->off = byte >= ZU_EXTENT_END ? ZU_PAGE_DATA : (int) (byte % BLCKSZ);
	scan->end = end;
	scan->topxid = InvalidZXid;
	scan->owned = false;
	scan->skip_resolved = false;
	scan->readable = false;
	scan->loaded_index = -1;
	scan->loaded_page = -1;
	scan->context = context;
}

void
zu_scan_extend(ZuScan *scan, UndoPtr end)
{
	scan->end = end;
	scan->loaded_index = -1;
}

/*
 * zu_scan_position: See undo.h. The position is where the next record begins;
 * at the end of the extents it is the scan's end.
 */
UndoPtr
zu_scan_position(ZuScan *scan)
{
	const ZuExtent *e;

	if (scan->current >= scan->nextents)
		return scan->end;
	e = &scan->extents[scan->current];
	return zuptr_make(e->generation, e->extent, zu_byte_at(scan->page, scan->off));
}

/*
 * Makes scan->copy hold page 'page' of the extent with this index; false if
 * that page is not written as part of the log.
 */
static bool
load_page(ZuScan *scan, int index, int page)
{
	const ZuExtent *e = &scan->extents[index];
	const ZuPageHeader *h = zu_page_header((Page) scan->copy.data);

	Assert(index >= 0 && index < scan->nextents);
	if (scan->loaded_index == index && scan->loaded_page == page)
		return true;
	scan->loaded_index = -1;
	if (page >= ZU_EXTENT_PAGES ||
		!zu_copy_page(e->extent, e->generation, page, scan->copy.data, RBM_ZERO_ON_ERROR) ||
		h->logno != e->logno || h->sequence != e->sequence)
		return false;
	scan->loaded_index = index;
	scan->loaded_page = page;
	return true;
}

/*
 * Adds the extents that the log has taken since the scan's last one; false if
 * there are none.
 */
static bool
fetch_extents(ZuScan *scan)
{
	uint64		last = scan->extents[scan->nextents - 1].sequence;
	int			n;
	ZuExtent   *more = zu_collect_extents((int) scan->logno, last + 1, &n);

	if (n > 0)
	{
		MemoryContext old = MemoryContextSwitchTo(scan->context);

		scan->extents = repalloc_huge(scan->extents, (scan->nextents + n) * sizeof(ZuExtent));
		memcpy(scan->extents + scan->nextents, more, n * sizeof(ZuExtent));
		scan->nextents += n;
		MemoryContextSwitchTo(old);
	}
	pfree(more);
	return n > 0;
}

/*
 * Returns whether the extent has been discarded since it was found in the map.
 * The map may still assign it to the log then, because the discard pointer
 * moves before extents are freed.
 */
static bool
is_gone(const ZuExtent *e)
{
	ZuEntry    *entry = zu_my.entry;

	if (!zu_extent_live(e))
		return true;
	return zu_entry_has(entry, ZU_ENTRY_LOGS) &&
		pg_atomic_read_u64(&entry->logs[e->logno].discard_sequence) > e->sequence;
}

/*
 * Returns why the scan cannot continue at its position: the extent was
 * discarded meanwhile, or the log is damaged.
 */
static ZuStep
broken(ZuScan *scan)
{
	return is_gone(&scan->extents[scan->current]) ? ZU_STEP_GONE : ZU_STEP_CORRUPT;
}

/* Returns whether the scan passes over the extent with this index. */
static inline bool
is_skipped(const ZuScan *scan, int index)
{
	return scan->skip_resolved && scan->extents[index].resolved;
}

/*
 * Moves the scan to the first byte of another extent. Notes where the data of
 * the current one end.
 */
static void
enter_extent(ZuScan *scan, int index)
{
	Assert(index > scan->current && index < scan->nextents);
	scan->extents[scan->current].end = zu_byte_at(scan->page, scan->off);
	scan->current = index;
	scan->page = 0;
	scan->off = ZU_PAGE_DATA;
}

/*
 * Moves the scan from the first byte of a resolved extent to the end of its
 * data.
 */
static void
skip_extent(ZuScan *scan)
{
	uint32		end = scan->extents[scan->current].end;

	Assert(is_skipped(scan, scan->current));
	Assert(scan->page == 0 && scan->off == ZU_PAGE_DATA);
	scan->page = end >= ZU_EXTENT_END ? ZU_EXTENT_PAGES : (int) (end / BLCKSZ);
	scan->off = end >= ZU_EXTENT_END ? ZU_PAGE_DATA : (int) (end % BLCKSZ);
	scan->topxid = InvalidZXid;
}

/*
 * Moves the scan to the extent in which the log continues from the scan's
 * position, where the data of the current extent end (UNDO-11). Returns false
 * if no extent says that the log continues there.
 */
static bool
next_extent(ZuScan *scan)
{
	UndoPtr		from = zu_scan_position(scan);

	for (int i = scan->current + 1; i < scan->nextents || fetch_extents(scan); i++)
	{
		CHECK_FOR_INTERRUPTS();

		/*
		 * for two resolved neighbours the map says that the log continued
		 * from one in the other
		 */
		if (i == scan->current + 1 && is_skipped(scan, scan->current) && is_skipped(scan, i) &&
			scan->extents[i].sequence == scan->extents[scan->current].sequence + 1)
		{
			enter_extent(scan, i);
			return true;
		}
		if (!load_page(scan, i, 0))
			continue;			/* never entered, if the first page of a later
								 * extent says so */
		if (zu_page_header((Page) scan->copy.data)->prev != from)
			break;
		enter_extent(scan, i);
		return true;
	}
	return false;
}

/*
 * Collects into scan->record the record that starts at the scan's position and
 * continues on the next page. Moves the position behind it and returns its
 * length; 0 if part of it is missing.
 */
static Size
straddling_record(ZuScan *scan)
{
	int			page = scan->page;
	int			off = scan->off;
	Size		have = 0;
	Size		want = 3;
	bool		known = false;

	while (have < want)
	{
		int			lower;
		Size		n;

		if (off >= BLCKSZ)
		{
			page++;
			off = ZU_PAGE_DATA;
		}
		if (!load_page(scan, scan->current, page))
			return 0;
		lower = ((PageHeader) scan->copy.data)->pd_lower;
		if (off >= lower)
			return 0;
		n = Min(want - have, (Size) (lower - off));
		memcpy(scan->record + have, scan->copy.data + off, n);
		have += n;
		off += (int) n;
		if (have == want && !known)
		{
			known = true;
			want = zur_peek_length(scan->record, have);
			if (want == 0)
				return 0;
		}
	}
	scan->page = page;
	scan->off = off;
	return want;
}

/*
 * Returns whether rec may be the first record of the page in scan->copy:
 * whether rec is of the transaction that began the page (UNDO-16). True if rec
 * does not begin the page, or if the transaction is not known yet.
 */
static bool
follows(ZuScan *scan, const ZuRecord *rec, bool begins_page)
{
	ZXid		began = zu_page_header((Page) scan->copy.data)->topxid;

	if (rec->flags & ZUF_FIRST)
		scan->topxid = rec->topxid;
	else if (scan->topxid == InvalidZXid && begins_page)
		scan->topxid = began;
	return !begins_page || scan->topxid == InvalidZXid || began == scan->topxid;
}

/*
 * Reads the record at the scan's position, which lies before the end of the
 * page's data; false if there is no valid one.
 */
static bool
read_record(ZuScan *scan, ZuRecord *rec, UndoPtr *ptr)
{
	int			lower = ((PageHeader) scan->copy.data)->pd_lower;
	char	   *start = scan->copy.data + scan->off;
	Size		avail = lower - scan->off;
	Size		len = zur_peek_length(start, avail);
	bool		begins_page = (scan->off == ZU_PAGE_DATA);

	Assert(scan->off < lower && lower <= BLCKSZ);
	*ptr = zu_scan_position(scan);
	if (len != 0 && len <= avail)
	{
		if (!zur_unpack(start, len, rec) || !follows(scan, rec, begins_page))
			return false;
		scan->off += (int) len;
		return true;
	}
	if ((len == 0 && avail >= 3) || lower < BLCKSZ)
		return false;
	len = straddling_record(scan);
	return len != 0 && zur_unpack(scan->record, len, rec) && follows(scan, rec, true);
}

/*
 * zu_scan_step: See undo_entry.h. Loops until it has a record, the end, or a
 * reason why there is none: a step may first have to enter another page or
 * extent.
 */
ZuStep
zu_scan_step(ZuScan *scan, ZuRecord *rec, UndoPtr *ptr)
{
	for (;;)
	{
		const ZuExtent *e;
		bool		last;

		if (scan->current >= scan->nextents || scan->end == InvalidUndoPtr)
			return ZU_STEP_END;
		e = &scan->extents[scan->current];
		last = e->extent == zuptr_extent(scan->end) &&
			e->generation == zuptr_generation(scan->end);
		if (last && zu_byte_at(scan->page, scan->off) >= zuptr_byte(scan->end))
			return ZU_STEP_END;
		if (scan->off >= BLCKSZ)
		{
			scan->page++;
			scan->off = ZU_PAGE_DATA;
		}
		if (is_skipped(scan, scan->current) && scan->page == 0 && scan->off == ZU_PAGE_DATA &&
			!last)
		{
			*ptr = zu_scan_position(scan);
			skip_extent(scan);
			return ZU_STEP_RESOLVED;
		}
		if (!(is_skipped(scan, scan->current) && zu_byte_at(scan->page, scan->off) >= e->end) &&
			load_page(scan, scan->current, scan->page) &&
			scan->off < ((PageHeader) scan->copy.data)->pd_lower)

			/*
			 * the bytes may be invalid because the extent has been given to
			 * another log meanwhile
			 */
			return read_record(scan, rec, ptr) ? ZU_STEP_RECORD : broken(scan);
		if (last || !next_extent(scan))
			return broken(scan);
	}
}
