/*
 * undo/undo_states.c - what the logs look like now, and scans over them.
 *
 * Called by the discard pass, rollback and the monitor.
 *
 * Locks: none between calls; the alloc lock in zu_excuse_damage. Crash points:
 * none; nothing durable is changed.
 */
#include "undo/undo_internal.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* ---- scans ---- */

/* Raises the error that the log cannot be read at ptr. */
static void
report_place(UndoPtr ptr)
{
	zu_report_corrupt(zu_extent_block(zuptr_extent(ptr)) + zuptr_byte(ptr) / BLCKSZ,
					  zuptr_byte(ptr) % BLCKSZ);
}

/* Returns the index of the extent that ptr lies in; n if none of the n does. */
static int
extent_of(const ZuExtent *extents, int n, UndoPtr ptr)
{
	int			i = 0;

	while (i < n && (extents[i].extent != zuptr_extent(ptr) ||
					 extents[i].generation != zuptr_generation(ptr)))
		i++;
	return i;
}

/*
 * Returns a scan of logno from ptr to end. If ptr's extent is not in the log
 * any more, the scan is at its end; with 'owned', nobody else discards, so this
 * is damage and an error.
 */
static ZuScan *
begin(uint32 logno, UndoPtr ptr, UndoPtr end, bool owned)
{
	ZuScan	   *scan = palloc(sizeof(ZuScan));
	int			n;
	ZuExtent   *extents = zu_collect_extents((int) logno, 0, &n);
	int			i = extent_of(extents, n, ptr);

	if (owned && i == n)
		report_place(ptr);
	if (i > 0 && i < n)
		memmove(extents, extents + i, (n - i) * sizeof(ZuExtent));
	zu_scan_init(scan, logno, extents, n - i, zuptr_byte(ptr), end, CurrentMemoryContext);
	scan->owned = owned;
	return scan;
}

/*
 * Sets *discard and *insert to the positions of a log, also on a standby;
 * returns false if the log is empty.
 */
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
			pg_read_barrier();	/* as in read_state */
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

/*
 * zu_scan_begin: See undo.h. An empty log gives a scan that is at its end.
 */
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

/*
 * zu_scan_next: See undo.h. What damage means depends on the scan: a readable
 * one ends, an owned one closes the log and ends, any other raises an error.
 * An extent that was discarded meanwhile ends the scan, but is damage in an
 * owned one.
 */
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
		case ZU_STEP_RESOLVED:
			Assert(false);		/* only with skip_resolved */
			break;
		case ZU_STEP_END:
			break;
	}
	return false;
}

/* zu_scan_topxid: See undo.h. */
ZXid
zu_scan_topxid(const ZuScan *scan, const ZuRecord *rec)
{
	Assert(rec->topxid != InvalidZXid);
	return scan->topxid != InvalidZXid ? scan->topxid : rec->topxid;
}

void
zu_scan_end(ZuScan *scan)
{
	pfree(scan->extents);
	pfree(scan);
}

/* ---- states ---- */

/* zu_bytes_between: See undo.h. */
uint64
zu_bytes_between(uint64 sequence, UndoPtr from, uint64 end_sequence, UndoPtr end)
{
	int64		bytes = zu_byte_space(zuptr_byte(end));

	bytes -= zu_byte_space(zuptr_byte(from));
	if (end_sequence < sequence)
		return 0;				/* the positions were read while both moved */
	bytes += (int64) (end_sequence - sequence) * ZU_EXTENT_SPACE;
	return bytes > 0 ? (uint64) bytes : 0;
}

/*
 * Returns the logs as the map and the undo pages show them: the discard
 * position is the beginning of the oldest extent.
 */
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
		s->bytes = zu_bytes_between(first->sequence, s->discard, last->sequence, s->insert);
	}
	pfree(extents);
	return states;
}

/*
 * Fills s with the present state of log logno; returns false if the log has no
 * extent. The discard position is read before the insert position, which is
 * never behind it. Of each position the pointer is read before the sequence,
 * which is written first, so the sequence is as new or newer.
 */
static bool
read_state(uint32 logno, ZuLogState *s)
{
	ZuLog	   *log = &zu_my.entry->logs[logno];
	uint64		discard_sequence;
	uint64		insert_sequence;

	s->logno = logno;
	s->discard = pg_atomic_read_u64(&log->discard);
	pg_read_barrier();
	discard_sequence = pg_atomic_read_u64(&log->discard_sequence);
	pg_read_barrier();
	s->insert = pg_atomic_read_u64(&log->insert);
	pg_read_barrier();
	insert_sequence = pg_atomic_read_u64(&log->insert_sequence);
	s->pid = zu_log_pid(log);
	s->attached = s->pid != 0;
	s->extents = pg_atomic_read_u32(&log->nextents);
	s->bytes = zu_bytes_between(discard_sequence, s->discard, insert_sequence, s->insert);
	return s->insert != InvalidUndoPtr;
}

/*
 * zu_log_states: See undo.h. Computes the states from the pages in recovery,
 * where no log is loaded.
 */
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

/*
 * zu_bytes_in_use: See undo.h. Adds the logs up one by one, without an array
 * of them.
 */
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

/* ---- what transactions keep ---- */

/* Both are ordered by the number of the log. */
struct ZuKept
{
	int			nstates;
	ZuLogState *states;
	int			n;
	ZuExtent   *extents;
};

/* Copies a page of the log; false if the log has not written it. */
static bool
copy_page(const ZuExtent *extents, int page, char *copy)
{
	const ZuExtent *e = &extents[page / ZU_EXTENT_PAGES];
	const ZuPageHeader *h = zu_page_header((Page) copy);

	return zu_copy_page(e->extent, e->generation, page % ZU_EXTENT_PAGES, copy,
						RBM_ZERO_ON_ERROR) &&
		h->logno == e->logno && h->sequence == e->sequence;
}

/*
 * Returns the first of the log's pages from 'from' to before 'to' that xid or
 * a younger transaction has begun, 'to' if there is none: pages are numbered
 * through the extents. Takes it that transactions lie in the log as they are
 * numbered, as nearly all do.
 */
static int
first_page(const ZuExtent *extents, int from, int to, ZXid xid)
{
	PGAlignedBlock copy;

	while (from < to)
	{
		int			middle = from + (to - from) / 2;
		int			page = middle;

		CHECK_FOR_INTERRUPTS();
		while (page < to && !copy_page(extents, page, copy.data))
			page++;
		if (page < to && zu_page_header((Page) copy.data)->topxid < xid)
			from = page + 1;
		else
			to = middle;
	}
	return from;
}

/*
 * Returns the byte of the page at which xid or a younger transaction begins;
 * the end of its data if none does. An older one has begun the page. If the
 * last record continues on the next page, it is of the transaction that has
 * begun that one.
 */
static int
first_byte(const ZuExtent *extents, int page, ZXid xid)
{
	PGAlignedBlock copy;
	int			lower;
	int			off;

	if (!copy_page(extents, page, copy.data))
		return BLCKSZ;
	lower = ((PageHeader) copy.data)->pd_lower;
	off = zu_page_header((Page) copy.data)->first_record;
	if (off == 0)
		return lower;
	while (off < lower)
	{
		ZuRecord	rec;
		Size		len = zur_peek_length(copy.data + off, lower - off);

		if (len == 0 || len > lower - off || !zur_unpack(copy.data + off, len, &rec) ||
			((rec.flags & ZUF_FIRST) && rec.topxid >= xid))
			break;
		off += (int) len;
	}
	return off;
}

/*
 * Returns how much of a log, whose n extents these are, is of xid and younger
 * transactions, or lies behind one of them.
 */
static uint64
kept_of_log(const ZuLogState *s, const ZuExtent *extents, int n, ZXid xid)
{
	int			first = extent_of(extents, n, s->discard);
	int			last = extent_of(extents, n, s->insert);
	int			from;
	int			page;
	int			off;
	const ZuExtent *e;
	UndoPtr		at;
	uint64		before;

	if (first == n || last == n)
		return 0;				/* discarded meanwhile */
	from = first * ZU_EXTENT_PAGES + zuptr_byte(s->discard) / BLCKSZ;
	page = first_page(extents, from,
					  last * ZU_EXTENT_PAGES + Min(zuptr_byte(s->insert) / BLCKSZ + 1,
												   ZU_EXTENT_PAGES), xid);
	if (page == from)
		return s->bytes;
	page--;
	off = first_byte(extents, page, xid);
	e = &extents[page / ZU_EXTENT_PAGES];
	at = zuptr_make(e->generation, e->extent, zu_byte_at(page % ZU_EXTENT_PAGES, off));
	before = zu_bytes_between(extents[first].sequence, s->discard, e->sequence, at);
	return s->bytes - Min(before, s->bytes);
}

/* zu_look_at_kept: See undo.h. */
ZuKept *
zu_look_at_kept(void)
{
	ZuKept	   *kept = palloc(sizeof(ZuKept));

	kept->states = zu_log_states(&kept->nstates);
	kept->extents = zu_collect_extents(-1, 0, &kept->n);
	return kept;
}

/*
 * zu_bytes_kept: See undo.h. Reads few pages: the headers tell which
 * transaction has begun each.
 */
uint64
zu_bytes_kept(const ZuKept *kept, ZXid xid)
{
	int			to = 0;
	uint64		sum = 0;

	for (int i = 0; i < kept->nstates; i++)
	{
		int			from = to;

		while (from < kept->n && kept->extents[from].logno < kept->states[i].logno)
			from++;
		for (to = from; to < kept->n && kept->extents[to].logno == kept->states[i].logno;)
			to++;
		sum += kept_of_log(&kept->states[i], kept->extents + from, to - from, xid);
	}
	return sum;
}

/* ---- damage ---- */

/*
 * zu_damages: See undo.h. Reads closed logs without a lock: `hold` was written
 * before the log was marked closed, and what changes later is read as it is
 * now.
 */
ZuDamage *
zu_damages(int *n)
{
	ZuEntry    *entry = zu_my.entry;
	ZuDamage   *list = palloc(zu_nlogs() * sizeof(ZuDamage));

	*n = 0;
	zu_require_logs();
	for (int i = 0; i < zu_nlogs(); i++)
	{
		ZuLog	   *log = &entry->logs[i];
		ZuDamage   *d = &list[*n];

		if (!log->closed)
			continue;
		pg_read_barrier();
		d->logno = i;
		d->from = log->hold;
		d->to = log->unread_end;
		d->ended = d->to != InvalidZXid && pg_atomic_read_u64(&entry->horizon) >= d->to;
		d->excused = log->excused;
		(*n)++;
	}
	return list;
}

/*
 * zu_excuse_damage: See undo.h. Does nothing if the log has been given up
 * since, or closed anew.
 */
void
zu_excuse_damage(const ZuDamage *d)
{
	ZuEntry    *entry = zu_my.entry;
	ZuLog	   *log = &entry->logs[d->logno];

	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	if (log->closed && log->hold == d->from && log->unread_end == d->to)
		log->excused = true;
	LWLockRelease(zu_alloc_lock(entry));
}
