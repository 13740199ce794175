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
 *	U11	an extent's data ends on its first page that is not full, or before its first page
 *		that is not of its generation; the log then goes on in the extent with the next
 *		higher sequence.
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

/* load_page: have page 'page' of the current extent in scan->copy; false if it is not written. */
static bool
load_page(ZuScan *scan, int page)
{
	const ZuExtent *e = &scan->extents[scan->current];

	if (scan->loaded_index == scan->current && scan->loaded_page == page)
		return true;
	scan->loaded_index = -1;
	if (page >= ZU_EXTENT_PAGES ||
		!zu_copy_page(e->extent, e->generation, page, scan->copy.data))
		return false;
	scan->loaded_index = scan->current;
	scan->loaded_page = page;
	return true;
}

/* next_extent: move to the log's next extent; false if there is none yet. */
static bool
next_extent(ZuScan *scan)
{
	if (scan->current + 1 >= scan->nextents)
	{
		uint64		last = scan->extents[scan->nextents - 1].sequence;
		int			n;
		ZuExtent   *more = zu_collect_extents((int) scan->logno, last + 1, &n);

		if (n > 0)
		{
			MemoryContext old = MemoryContextSwitchTo(scan->context);

			scan->extents = repalloc_huge(scan->extents,
										  (scan->nextents + n) * sizeof(ZuExtent));
			memcpy(scan->extents + scan->nextents, more, n * sizeof(ZuExtent));
			scan->nextents += n;
			MemoryContextSwitchTo(old);
		}
		pfree(more);
		if (n == 0)
			return false;
	}
	scan->current++;
	scan->page = 0;
	scan->off = ZU_PAGE_DATA;
	scan->loaded_index = -1;
	CHECK_FOR_INTERRUPTS();
	return true;
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
		if (!load_page(scan, page))
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

/* read_record: the record at the scan's position, which lies before the end of the page's data. */
static ZuStep
read_record(ZuScan *scan, ZuRecord *rec, UndoPtr *ptr)
{
	int			lower = ((PageHeader) scan->copy.data)->pd_lower;
	char	   *start = scan->copy.data + scan->off;
	Size		avail = lower - scan->off;
	Size		len = zur_peek_length(start, avail);

	*ptr = zu_scan_position(scan);
	if (len != 0 && len <= avail)
	{
		if (!zur_unpack(start, len, rec))
			return ZU_STEP_CORRUPT;
		scan->off += (int) len;
		return ZU_STEP_RECORD;
	}
	if ((len == 0 && avail >= 3) || lower < BLCKSZ)
		return ZU_STEP_CORRUPT;
	len = straddling_record(scan);
	if (len == 0 || !zur_unpack(scan->record, len, rec))
		return ZU_STEP_CORRUPT;
	return ZU_STEP_RECORD;
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
		if (load_page(scan, scan->page))
		{
			if (scan->off < ((PageHeader) scan->copy.data)->pd_lower)
			{
				ZuStep		step = read_record(scan, rec, ptr);

				/* bytes that make no sense because the extent has another owner now? */
				if (step == ZU_STEP_CORRUPT && !zu_extent_live(e))
					return ZU_STEP_GONE;
				return step;
			}
		}
		else if (scan->page == 0 && !last && !zu_extent_live(e))
			return ZU_STEP_GONE;	/* else it was left without a record */
		if (last)
			return zu_extent_live(e) ? ZU_STEP_CORRUPT : ZU_STEP_GONE;
		if (!next_extent(scan))
			return ZU_STEP_END;
	}
}

/* ---- scans of others ---- */

/* begin: a scan from ptr on; one that is at its end if ptr's extent is not in the log any more. */
static ZuScan *
begin(uint32 logno, UndoPtr ptr, UndoPtr end)
{
	ZuScan	   *scan = palloc(sizeof(ZuScan));
	int			n;
	ZuExtent   *extents = zu_collect_extents((int) logno, 0, &n);
	int			i = 0;

	while (i < n && (extents[i].extent != zuptr_extent(ptr) ||
					 extents[i].generation != zuptr_generation(ptr)))
		i++;
	if (i > 0 && i < n)
		memmove(extents, extents + i, (n - i) * sizeof(ZuExtent));
	zu_scan_init(scan, logno, extents, n - i, zuptr_byte(ptr), end, CurrentMemoryContext);
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
	return begin(logno, discard, insert);
}

ZuScan *
zu_scan_begin_at(uint32 logno, UndoPtr ptr)
{
	UndoPtr		discard;
	UndoPtr		insert;

	if (!log_position(logno, &discard, &insert))
		insert = InvalidUndoPtr;
	return begin(logno, ptr, insert);
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
			zu_report_corrupt(zu_extent_block(zuptr_extent(*ptr)) + zuptr_byte(*ptr) / BLCKSZ,
							  zuptr_byte(*ptr) % BLCKSZ);
			break;
		case ZU_STEP_END:
		case ZU_STEP_GONE:
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
		s->insert = zu_find_insert(last);
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
