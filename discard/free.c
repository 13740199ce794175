/*
 * discard/free.c - discarding resolved undo, and freeing its extents.
 *
 * Called by pass.c when the new `oldest` is known.
 *
 * Locks: the alloc lock, only while extents are freed.
 *
 * Crash points: "taking-log", before a log is taken from its owner. A crash
 *	before DISCARD	discard pointers and `oldest` fall back to older values,
 *		which are safe
 *	after DISCARD	the extents are free; each log begins at its oldest
 *		remaining extent
 */
#include "postgres.h"

#include "common/fault.h"
#include "discard/discard_internal.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * All extents of a log without an owner are freed when the log has been empty,
 * and unattached, for this long; in a pass with every_log at once.
 */
#define IDLE_LOG_MS			3000
/*
 * An idle session keeps its empty log, unless the number of the log's extent is
 * at least this much more than the count of extents in use, in which the last
 * extents of unused logs are not counted (extents_to_keep). Such an extent lies
 * near the end of the file and keeps the file from being truncated.
 */
#define TAIL_SLACK			8

/* The extents that a pass frees, gathered from all logs. */
typedef struct Freed
{
	ZuExtent   *extents;
	int			n;
	uint32		keep;			/* empty logs of idle sessions keep extents
								 * with a lower number */
	long		idle_ms;		/* how long a log must have been empty */
} Freed;

/*
 * Returns whether p may be discarded once `oldest` has this value (UNDO-7a,
 * UNDO-7b).
 */
static inline bool
can_go(const Pending *p, ZXid oldest)
{
	return p->resolved && p->max_xid < oldest && p->hold < oldest;
}

/*
 * Raises the conflict horizon of the next DISCARD record to the newest
 * transaction of p that comes below `oldest` now (UNDO-19).
 */
static void
note_conflict(ZuEntry *entry, const Pending *p, ZXid oldest)
{
	ZXid		newest = Min(p->max_top, oldest - 1);

	if (p->resolved && p->min_top < oldest && newest >= pg_atomic_read_u64(&entry->oldest))
		zu_max64(&entry->conflict, newest);
}

/*
 * zfree_prefix: See discard_internal.h. If the queue becomes empty, all that
 * has been read is discarded.
 */
void
zfree_prefix(const Pass *pass, LogQueue *q, ZXid oldest)
{
	ZuLog	   *log = zpass_log(pass, q);
	Place		place;

	Assert(pg_atomic_read_u32(&pass->entry->discarder) == (uint32) MyProcPid);
	for (int i = q->head; i < q->tail; i++)
		note_conflict(pass->entry, &q->items[i], oldest);
	if (unlikely(q->needless))
		zu_max64(&pass->entry->conflict, Min(log->unread_end, oldest) - 1);
	place.sequence = pg_atomic_read_u64(&log->discard_sequence);
	place.ptr = pg_atomic_read_u64(&log->discard);
	while (q->head < q->tail && can_go(&q->items[q->head], oldest))
	{
		pass->stats->transactions_discarded += q->items[q->head].count;
		zqueue_count_undone(&q->items[q->head]);
		place = q->items[q->head].end;
		q->head++;
	}
	if (q->head == q->tail)
	{
		q->head = q->tail = 0;
		place = zqueue_place(q);
	}
	if (place.ptr == pg_atomic_read_u64(&log->discard))
		return;
	Assert(place.sequence >= pg_atomic_read_u64(&log->discard_sequence));
	pass->stats->bytes_discarded += zu_bytes_between(pg_atomic_read_u64(&log->discard_sequence),
													 pg_atomic_read_u64(&log->discard),
													 place.sequence, place.ptr);
	pg_atomic_write_u64(&log->discard_sequence, place.sequence);
	pg_write_barrier();			/* is_before_discard reads these two in
								 * reverse order */
	pg_atomic_write_u64(&log->discard, place.ptr);
	q->discards = pg_atomic_fetch_add_u64(&log->discards, 1) + 1;
}

/* Appends n extents to the list; does nothing if n is 0. */
static void
add_extents(Freed *freed, const ZuExtent *from, int n)
{
	if (n <= 0)
		return;
	if (freed->extents == NULL)
		freed->extents = palloc(n * sizeof(ZuExtent));
	else
		freed->extents = repalloc_huge(freed->extents, (freed->n + n) * sizeof(ZuExtent));
	memcpy(freed->extents + freed->n, from, n * sizeof(ZuExtent));
	freed->n += n;
}

/*
 * Returns how many of the queue's extents lie wholly before the log's discard
 * pointer.
 */
static int
passed_extents(const LogQueue *q, ZuLog *log)
{
	uint64		sequence = pg_atomic_read_u64(&log->discard_sequence);
	int			n = 0;

	while (n < q->scan.nextents && q->scan.extents[n].sequence < sequence)
		n++;
	return n;
}

/* Takes the first n extents off q's scan; they have been freed. */
static void
forget_extents(LogQueue *q, int n)
{
	ZuScan	   *scan = &q->scan;

	Assert(n <= scan->current);
	memmove(scan->extents, scan->extents + n, (scan->nextents - n) * sizeof(ZuExtent));
	scan->nextents -= n;
	scan->current -= n;
	scan->loaded_index = -1;
}

/* Returns whether everything in the log has been discarded. */
static bool
is_empty(ZuLog *log)
{
	UndoPtr		insert = pg_atomic_read_u64(&log->insert);

	return !log->closed && insert != InvalidUndoPtr && insert == pg_atomic_read_u64(&log->discard);
}

/*
 * Returns whether the log is empty and its owner, if it has one, is in no
 * transaction that writes and has not written for idle_ms.
 */
static bool
is_unused(const LogQueue *q, ZuLog *log, TimestampTz now, long idle_ms)
{
	uint32		owner = pg_atomic_read_u32(&log->owner);

	pg_read_barrier();			/* all of the log was published before owner */
	if (!is_empty(log) || (owner & ZU_LOG_HELD) != 0)
		return false;
	if (idle_ms == 0)
		return true;
	if (owner == 0)
		return TimestampDifferenceExceeds((TimestampTz) pg_atomic_read_u64(&log->idle_since), now,
										  idle_ms);
	return pg_atomic_read_u64(&log->insert) == q->seen_insert &&
		TimestampDifferenceExceeds(q->seen_since, now, idle_ms);
}

/*
 * Returns whether the log is unused and may lose its last extents: it is
 * unattached, or its extent keeps the file from being truncated. An idle
 * session may keep a log whose extent does not.
 */
static bool
is_idle(const LogQueue *q, ZuLog *log, const Freed *freed, TimestampTz now)
{
	return is_unused(q, log, now, freed->idle_ms) &&
		(zu_log_pid(log) == 0 || zuptr_extent(pg_atomic_read_u64(&log->insert)) >= freed->keep);
}

/*
 * Returns the number of extents that are in use, but for the last ones of
 * unused logs, and TAIL_SLACK more; 0 if no log is to keep its last one.
 */
static uint32
extents_to_keep(const Pass *pass, TimestampTz now)
{
	uint32		used = pg_atomic_read_u32(&pass->entry->used);
	uint32		unused = 0;

	if (pass->every_log)
		return 0;
	for (int i = 0; i < zu_nlogs(); i++)
		if (pass->mine->queues[i] != NULL &&
			is_unused(pass->mine->queues[i], &pass->entry->logs[i], now, IDLE_LOG_MS))
			unused++;
	return used - Min(used, unused) + TAIL_SLACK;
}

/*
 * Takes a log from its owner, if it has one and the owner is in no transaction
 * that writes. From then on the log is unattached; its former owner finds that
 * out in its next transaction and attaches another log. Returns whether all
 * extents of the log may be freed: nobody owns it now and, with must_be_empty,
 * nothing has been written to it since the caller looked. Alloc lock held.
 */
static bool
take_log(ZuLog *log, bool must_be_empty)
{
	uint32		owner = pg_atomic_read_u32(&log->owner);

	Assert(LWLockHeldByMe(zu_alloc_lock(zu_my.entry)));
	if (owner != 0)
	{
		ZUNDO_FAULT("taking-log");
		if ((owner & ZU_LOG_HELD) != 0 ||
			!pg_atomic_compare_exchange_u32(&log->owner, &owner, 0))
			return false;
	}

	/*
	 * the owner may have written a whole transaction between the look at the
	 * log and its loss
	 */
	return !must_be_empty ||
		pg_atomic_read_u64(&log->insert) == pg_atomic_read_u64(&log->discard);
}

/*
 * Returns whether the extent map still assigns extents to this empty log, to
 * which nothing points. That happens if freeing them failed after reset_log(),
 * or if an error followed an allocation.
 */
static bool
is_left_over(ZuLog *log)
{
	return zu_log_pid(log) == 0 && pg_atomic_read_u64(&log->insert) == InvalidUndoPtr &&
		pg_atomic_read_u32(&log->nextents) > 0;
}

/*
 * Returns whether a closed log can be freed: no transaction needs the part of
 * it that cannot be read, and `oldest` has passed that part's end.
 */
static bool
is_given_up(const LogQueue *q, ZuLog *log, ZXid oldest)
{
	return log->closed && q->needless && oldest >= log->unread_end;
}

/* Makes the log an unused one, without extents. Alloc lock held. */
static void
reset_log(ZuLog *log)
{
	Assert(zu_log_pid(log) == 0);	/* UNDO-13 */
	pg_atomic_write_u64(&log->insert, InvalidUndoPtr);
	pg_atomic_write_u64(&log->discard, InvalidUndoPtr);
	pg_atomic_fetch_add_u64(&log->discards, 1);
	log->ahead.generation = 0;
	log->sealed = log->closed = false;
}

/*
 * Appends all extents of a log from this sequence on to the list, makes the
 * log an unused one and drops its queue. Alloc lock held.
 */
static void
add_last_extents(const Pass *pass, Freed *freed, int logno, uint64 from)
{
	ZuLog	   *log = &pass->entry->logs[logno];
	int			n;
	ZuExtent   *rest = zu_collect_extents(logno, from, &n);

	Assert(LWLockHeldByMe(zu_alloc_lock(pass->entry)));
	add_extents(freed, rest, n);
	pfree(rest);
	/* none, but of a log that is given up */
	if (pg_atomic_read_u64(&log->insert) != InvalidUndoPtr)
		pass->stats->bytes_discarded +=
			zu_bytes_between(pg_atomic_read_u64(&log->discard_sequence),
							 pg_atomic_read_u64(&log->discard),
							 pg_atomic_read_u64(&log->insert_sequence),
							 pg_atomic_read_u64(&log->insert));

	/*
	 * If an error followed the record that freed extents, they are still
	 * counted. Without this the log would be left over in every pass.
	 */
	if (n == 0 && from == 0)
		pg_atomic_write_u32(&log->nextents, 0);
	reset_log(log);
	zqueue_drop(pass->mine, logno);
}

/*
 * Appends the extents that lie before the discard pointers. Returns whether
 * all extents of some log may be freed.
 */
static bool
add_passed(const Pass *pass, Freed *freed, ZXid oldest, TimestampTz now)
{
	bool		idle = false;

	for (int i = 0; i < zu_nlogs(); i++)
	{
		const LogQueue *q = pass->mine->queues[i];
		ZuLog	   *log = &pass->entry->logs[i];

		if (q != NULL)
			add_extents(freed, q->scan.extents, passed_extents(q, log));
		idle = idle ||
			(q != NULL ? is_idle(q, log, freed, now) || is_given_up(q, log, oldest)
			 : is_left_over(log));
	}
	return idle;
}

/*
 * Appends the remaining extents of a log that is idle, left over or given up;
 * add_passed has listed those before its discard pointer. Alloc lock held.
 */
static void
add_last(const Pass *pass, Freed *freed, int logno, ZXid oldest, TimestampTz now)
{
	const LogQueue *q = pass->mine->queues[logno];
	ZuLog	   *log = &pass->entry->logs[logno];

	Assert(LWLockHeldByMe(zu_alloc_lock(pass->entry)));
	if (q == NULL)
	{
		if (is_left_over(log))
			add_last_extents(pass, freed, logno, 0);
	}
	else if (is_given_up(q, log, oldest) && take_log(log, false))
	{
		ereport(LOG,
				(errmsg("gave up damaged undo log %d, which no transaction needs any more",
						logno)));
		add_last_extents(pass, freed, logno, pg_atomic_read_u64(&log->discard_sequence));
	}
	else if (is_idle(q, log, freed, now) && take_log(log, true))
		add_last_extents(pass, freed, logno, pg_atomic_read_u64(&log->discard_sequence));
}

/*
 * zfree_extents: See discard_internal.h. Looks for idle logs once without the
 * alloc lock, which is needed only if there is something to free, and decides
 * under it. The extents leave the scans of the queues last, since the list is
 * made from these.
 */
void
zfree_extents(const Pass *pass, ZXid oldest)
{
	ZuEntry    *entry = pass->entry;
	TimestampTz now = GetCurrentTimestamp();
	Freed		freed = {.keep = extents_to_keep(pass, now),
	.idle_ms = pass->every_log ? 0 : IDLE_LOG_MS};
	bool		idle = add_passed(pass, &freed, oldest, now);

	if (freed.n == 0 && !idle)
		return;
	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	for (int i = 0; i < zu_nlogs() && idle; i++)
		add_last(pass, &freed, i, oldest, now);
	zu_free_extents(freed.extents, freed.n, oldest);
	LWLockRelease(zu_alloc_lock(entry));
	for (int i = 0; i < zu_nlogs(); i++)
	{
		LogQueue   *q = pass->mine->queues[i];

		if (q != NULL)
			forget_extents(q, passed_extents(q, &entry->logs[i]));
	}
	if (freed.extents != NULL)
		pfree(freed.extents);
}
