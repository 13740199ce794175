/*
 * undo/undo_scan.c - reading a log forward, and what the logs look like now.
 *
 * Owns the parser of a log. Called by the discard pass, rollback, the monitor and
 * at load (to test a log's tail).
 *
 * Locks: none between calls; a page is copied under its share lock.
 *
 * Crash points: none; reads only.
 *
 * Invariants
 *	U11	all pages of an extent before the last one that is written are full. Where its data end, the log ends (at the
 *		insert position), or the next extent that was entered names just that place as `prev`; extents in
 *		between were taken and never entered. A scan that finds it otherwise has met damage.
 *	U38	a page's topxid is the transaction of the record that it begins with or in: the last one with ZUF_FIRST before.
 *	U12	a scan never reads past the insert position it was given: everything before that was
 *		completely written when it was published.
 */
#include "undo/undo_internal.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* ---- the parser ---- */

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
	scan->skip_settled = false;
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

UndoPtr
zu_scan_position(ZuScan *scan)
{
	const ZuExtent *e;

	if (scan->current >= scan->nextents)
		return scan->end;
	e = &scan->extents[scan->current];
	return zuptr_make(e->generation, e->extent, zu_byte_at(scan->page, scan->off));
}

/* load_page: have page 'page' of the extent with this index in scan->copy; false if it is not written. */
static bool
load_page(ZuScan *scan, int index, int page)
{
	const ZuExtent *e = &scan->extents[index];
	const ZuPageHeader *h = zu_page_header((Page) scan->copy.data);

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

/* fetch_extents: add the extents that the log has taken since the scan's last one; false if there are none. */
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

/* is_gone: has the extent been discarded since it was found in the map? Its log's other extents may still be freed. */
static bool
is_gone(const ZuExtent *e)
{
	ZuEntry    *entry = zu_my.entry;

	if (!zu_extent_live(e))
		return true;
	return pg_atomic_read_u32(&entry->state) == ZU_ENTRY_LOGS &&
		pg_atomic_read_u64(&entry->logs[e->logno].discard_sequence) > e->sequence;
}

/* broken: what it means that the scan cannot go on at its position. */
static ZuStep
broken(ZuScan *scan)
{
	return is_gone(&scan->extents[scan->current]) ? ZU_STEP_GONE : ZU_STEP_CORRUPT;
}

/* is_skipped: does the scan pass over the extent with this index? */
static inline bool
is_skipped(const ZuScan *scan, int index)
{
	return scan->skip_settled && scan->extents[index].settled;
}

/* enter_extent: moves the scan to the first byte of another extent; notes where the data of the last one end. */
static void
enter_extent(ZuScan *scan, int index)
{
	scan->extents[scan->current].end = zu_byte_at(scan->page, scan->off);
	scan->current = index;
	scan->page = 0;
	scan->off = ZU_PAGE_DATA;
}

/* skip_extent: moves the scan from the first byte of a settled extent to the end of its data. */
static void
skip_extent(ZuScan *scan)
{
	uint32		end = scan->extents[scan->current].end;

	scan->page = end >= ZU_EXTENT_END ? ZU_EXTENT_PAGES : (int) (end / BLCKSZ);
	scan->off = end >= ZU_EXTENT_END ? ZU_PAGE_DATA : (int) (end % BLCKSZ);
	scan->topxid = InvalidZXid;
}

/*
 * next_extent: move to the extent in which the log goes on from the scan's position, where the data of the
 * current one end (U11). False if none says so.
 */
static bool
next_extent(ZuScan *scan)
{
	UndoPtr		from = zu_scan_position(scan);

	for (int i = scan->current + 1; i < scan->nextents || fetch_extents(scan); i++)
	{
		CHECK_FOR_INTERRUPTS();
		/* of two settled neighbours the map tells that the log went from one to the other */
		if (i == scan->current + 1 && is_skipped(scan, scan->current) && is_skipped(scan, i) &&
			scan->extents[i].sequence == scan->extents[scan->current].sequence + 1)
		{
			enter_extent(scan, i);
			return true;
		}
		if (!load_page(scan, i, 0))
			continue;			/* never entered, if the next one that was says so */
		if (zu_page_header((Page) scan->copy.data)->prev != from)
			break;
		enter_extent(scan, i);
		return true;
	}
	return false;
}

/*
 * straddling_record: collect into scan->record the record that starts at the scan's
 * position and leaves its page. Moves the position behind it and returns its
 * length; 0 if it is not all there.
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

/* follows: is rec, which has brought the scan to the page in scan->copy, of the transaction that began the page (U38)? */
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

/* read_record: the record at the scan's position, which lies before the end of the page's data; false if there is none. */
static bool
read_record(ZuScan *scan, ZuRecord *rec, UndoPtr *ptr)
{
	int			lower = ((PageHeader) scan->copy.data)->pd_lower;
	char	   *start = scan->copy.data + scan->off;
	Size		avail = lower - scan->off;
	Size		len = zur_peek_length(start, avail);
	bool		begins_page = (scan->off == ZU_PAGE_DATA);

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
		if (is_skipped(scan, scan->current) && scan->page == 0 && scan->off == ZU_PAGE_DATA && !last)
		{
			*ptr = zu_scan_position(scan);
			skip_extent(scan);
			return ZU_STEP_SETTLED;
		}
		if (!(is_skipped(scan, scan->current) && zu_byte_at(scan->page, scan->off) >= e->end) &&
			load_page(scan, scan->current, scan->page) &&
			scan->off < ((PageHeader) scan->copy.data)->pd_lower)
			/* bytes may make no sense because the extent has another owner now */
			return read_record(scan, rec, ptr) ? ZU_STEP_RECORD : broken(scan);
		if (last || !next_extent(scan))
			return broken(scan);
	}
}

/* ---- scans of others ---- */

/* report_place: raise the error that the log cannot be read at ptr. */
static void
report_place(UndoPtr ptr)
{
	zu_report_corrupt(zu_extent_block(zuptr_extent(ptr)) + zuptr_byte(ptr) / BLCKSZ, zuptr_byte(ptr) % BLCKSZ);
}

/*
 * begin: a scan from ptr on. If ptr's extent is not in the log any more the scan is at its end, but of an owned one
 * that is damage.
 */
static ZuScan *
begin(uint32 logno, UndoPtr ptr, UndoPtr end, bool owned)
{
	ZuScan	   *scan = palloc(sizeof(ZuScan));
	int			n;
	ZuExtent   *extents = zu_collect_extents((int) logno, 0, &n);
	int			i = 0;

	while (i < n && (extents[i].extent != zuptr_extent(ptr) ||
					 extents[i].generation != zuptr_generation(ptr)))
		i++;
	if (owned && i == n)
		report_place(ptr);
	if (i > 0 && i < n)
		memmove(extents, extents + i, (n - i) * sizeof(ZuExtent));
	zu_scan_init(scan, logno, extents, n - i, zuptr_byte(ptr), end, CurrentMemoryContext);
	scan->owned = owned;
	return scan;
}

/* log_position: discard and insert pointer of a log, also on a standby; false if it is empty. */
static bool
log_position(uint32 logno, UndoPtr *discard, UndoPtr *insert)
{
	ZuLogState *states;
	int			n;
	bool		found = false;

	*discard = *insert = InvalidUndoPtr;
	if (!RecoveryInProgress())
	{
		zu_require_logs();
		if (logno < zu_nlogs())
		{
			*discard = pg_atomic_read_u64(&zu_my.entry->logs[logno].discard);
			*insert = pg_atomic_read_u64(&zu_my.entry->logs[logno].insert);
		}
		return *insert != InvalidUndoPtr;
	}
	states = zu_log_states(&n);
	for (int i = 0; i < n; i++)
		if (states[i].logno == logno)
		{
			*discard = states[i].discard;
			*insert = states[i].insert;
			found = true;
		}
	pfree(states);
	return found;
}

ZuScan *
zu_scan_begin(uint32 logno)
{
	UndoPtr		discard;
	UndoPtr		insert;

	if (!log_position(logno, &discard, &insert))
		discard = insert = InvalidUndoPtr;
	return begin(logno, discard, insert, false);
}

ZuScan *
zu_scan_begin_readable(uint32 logno)
{
	ZuScan	   *scan = zu_scan_begin(logno);

	scan->readable = true;
	return scan;
}

ZuScan *
zu_scan_begin_at(uint32 logno, UndoPtr ptr)
{
	UndoPtr		discard;
	UndoPtr		insert;

	if (!log_position(logno, &discard, &insert))
		insert = InvalidUndoPtr;
	return begin(logno, ptr, insert, true);
}

bool
zu_scan_next(ZuScan *scan, ZuRecord *rec, UndoPtr *ptr)
{
	switch (zu_scan_step(scan, rec, ptr))
	{
		case ZU_STEP_RECORD:
			return true;
		case ZU_STEP_CORRUPT:
			*ptr = zu_scan_position(scan);
			if (scan->readable)
				break;
			if (!scan->owned)
				report_place(*ptr);
			/* from now on `oldest` is held for what follows */
			zu_close_log(zu_my.entry, scan->logno, *ptr);
			break;
		case ZU_STEP_GONE:
			if (scan->owned)
				report_place(zu_scan_position(scan));
			break;
		case ZU_STEP_SETTLED:
			Assert(false);		/* only with skip_settled */
			break;
		case ZU_STEP_END:
			break;
	}
	return false;
}

void
zu_scan_end(ZuScan *scan)
{
	pfree(scan->extents);
	pfree(scan);
}

/* ---- states ---- */

/* kept_bytes: data bytes between two positions of a log. */
static uint64
kept_bytes(uint64 discard_sequence, UndoPtr discard, uint64 insert_sequence, UndoPtr insert)
{
	int64		bytes = (int64) zu_byte_room(zuptr_byte(insert)) - zu_byte_room(zuptr_byte(discard));

	if (insert_sequence < discard_sequence)
		return 0;				/* read while both moved */
	bytes += (int64) (insert_sequence - discard_sequence) * ZU_EXTENT_ROOM;
	return bytes > 0 ? (uint64) bytes : 0;
}

/* standby_states: the logs as the map and the undo pages show them. */
static ZuLogState *
standby_states(int *nlogs)
{
	int			n;
	ZuExtent   *extents = zu_collect_extents(-1, 0, &n);
	ZuLogState *states = palloc0(Max(n, 1) * sizeof(ZuLogState));

	*nlogs = 0;
	for (int i = 0; i < n;)
	{
		ZuLogState *s = &states[(*nlogs)++];
		const ZuExtent *first = &extents[i];
		const ZuExtent *last;

		while (i < n && extents[i].logno == first->logno)
			i++;
		last = &extents[i - 1];
		s->logno = first->logno;
		s->extents = (uint32) (last - first + 1);
		s->discard = zuptr_make(first->generation, first->extent, ZU_PAGE_DATA);
		s->insert = zu_find_insert(last, NULL);
		if (s->insert == InvalidUndoPtr)
			s->insert = zuptr_make(last->generation, last->extent, ZU_PAGE_DATA);
		s->bytes = kept_bytes(first->sequence, s->discard, last->sequence, s->insert);
	}
	pfree(extents);
	return states;
}

/* read_state: log logno as it is now; false if it has no extent. */
static bool
read_state(uint32 logno, ZuLogState *s)
{
	ZuLog	   *log = &zu_my.entry->logs[logno];
	uint64		discard_sequence = pg_atomic_read_u64(&log->discard_sequence);
	uint64		insert_sequence;

	s->logno = logno;
	s->discard = pg_atomic_read_u64(&log->discard);
	insert_sequence = pg_atomic_read_u64(&log->insert_sequence);
	s->insert = pg_atomic_read_u64(&log->insert);
	s->pid = zu_log_pid(log);
	s->attached = s->pid != 0;
	s->extents = pg_atomic_read_u32(&log->nextents);
	s->bytes = kept_bytes(discard_sequence, s->discard, insert_sequence, s->insert);
	return s->insert != InvalidUndoPtr;
}

ZuLogState *
zu_log_states(int *nlogs)
{
	ZuLogState *states;

	if (RecoveryInProgress())
		return standby_states(nlogs);
	zu_require_logs();
	states = palloc0(zu_nlogs() * sizeof(ZuLogState));
	*nlogs = 0;
	for (int i = 0; i < zu_nlogs(); i++)
		if (read_state(i, &states[*nlogs]))
			(*nlogs)++;
	return states;
}

uint64
zu_bytes_in_use(void)
{
	uint64		sum = 0;
	ZuLogState	one;

	if (RecoveryInProgress())
	{
		int			n;
		ZuLogState *states = standby_states(&n);

		for (int i = 0; i < n; i++)
			sum += states[i].bytes;
		pfree(states);
		return sum;
	}
	zu_require_logs();
	for (int i = 0; i < zu_nlogs(); i++)
		if (read_state(i, &one))
			sum += one.bytes;
	return sum;
}

int
zu_holds(ZuHold *out)
{
	ZuEntry    *entry = zu_my.entry;
	int			n;

	Assert(zu_attached());
	SpinLockAcquire(&entry->mutex);
	n = entry->nholds;
	memcpy(out, entry->holds, n * sizeof(ZuHold));
	SpinLockRelease(&entry->mutex);
	return n;
}
