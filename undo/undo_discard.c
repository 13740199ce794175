/*
 * undo/undo_discard.c - giving undo back: horizon, discard, tail truncation, freeze limit.
 *
 * Owns the discard pass and its private memory of what it has parsed: per log the scan's
 * position and a queue of transactions that are not discarded yet, so that each record is
 * parsed once however long a snapshot holds it. Called by workers, VACUUM and the monitor.
 *
 * Locks: the entry's discarder flag for a whole pass (it is not an LWLock: resolving aborts takes
 * long and must be interruptible); the alloc lock only while extents are freed or truncated.
 *
 * Crash points
 *	before DISCARD			discard pointers and `oldest` fall back to older values, which are safe
 *	after DISCARD			the extents are free; the logs begin at their oldest remaining extent
 *	between TRUNCATE and the file's truncation		blocks beyond the limit stay; they are used again
 *
 * Invariants
 *	U17	a transaction is discarded only if it is settled - each of its (sub)transactions has committed, or has
 *		aborted and was undone on every page - and all their xids, the subtransactions' too, < the new `oldest`.
 *	U18	oldest = min(first unsettled top xid over all logs, H); H was taken before the
 *		insert positions were read, so a transaction not yet seen has an xid >= H. Settled ones whose undo is
 *		kept, merged as they are, do not count: they overlap from log to log, and all would wait for all.
 *		Those whose LOCKS records name a transaction >= H count: who reads these asks how their writer ended. They are
 *		not merged with others, so that each counts with its own xid.
 *	By both, an aborted transaction that cannot be undone yet keeps the undo of all younger ones, in
 *	every log: whoever meets a record that has gone knows that its xid < `oldest` (U7).
 *	U28	a LOCKS record is discarded only when the youngest transaction that it, or a record below
 *		it in its chain, names is < the new `oldest`: until then that one may be at work, or prepared.
 *	U52	an extent is marked as settled in the map only if each of its records is of a settled transaction, with
 *		hold < H, and none was discarded before: then its summary says all that the discard pass
 *		needs, after a restart too.
 *	U19	the conflict horizon of a DISCARD record covers everything that has come below `oldest` since the last
 *		one, and the record is logged before the `oldest` that relies on it is published.
 */
#include "undo/undo_internal.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xloginsert.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* Neighbours that are settled are merged up to this many bytes. */
#define MERGE_BYTES			(64 * 1024)
/* `oldest` is made durable without freeing when it is this far ahead ... */
#define LOG_AFTER_XIDS		1000
#define LOG_AFTER_MS		1000
/* ... or, however idle the undo log is, this far. */
#define LOG_AFTER_XIDS_IDLE 10000
/* Extents of a log that nobody has written for this long are freed to the last. */
#define IDLE_LOG_MS			3000
/* A log is taken from an idle session only if its extent lies so far behind the number of those in use. */
#define TAIL_SLACK			8
/* Between looks at whether the worker has done what it was asked for. */
#define BY_WORKER_NAP_MS	5

/* A place in a log: where a transaction's records end. */
typedef struct Place
{
	uint64		sequence;
	UndoPtr		ptr;
} Place;

/* One transaction of the queue, or several settled ones that follow each other. */
typedef struct Pending
{
	ZXid		min_top;
	ZXid		max_top;
	ZXid		max_xid;		/* subtransactions too */
	ZXid		hold;			/* youngest locker that its LOCKS records name (U28); 0 = none */
	Place		first;
	Place		end;
	bool		settled;		/* all ended; committed, or aborted and undone */
	uint32		count;			/* transactions */
	uint64		records;		/* of an unsettled one */
	uint64		bytes;
	ZuAbort    *abort;			/* it has aborted and is not undone yet; else NULL */
	int			nxids;			/* subtransactions that wrote */
	int			xids_size;
	ZXid	   *xids;
	ZXid		last_xid;
} Pending;

typedef struct LogQueue
{
	uint64		discards;		/* ZuLog.discards as we left it */
	UndoPtr		seen_insert;	/* the log's insert position, and since when it is that */
	TimestampTz seen_since;
	int			head;
	int			tail;			/* behind the last */
	int			size;
	Pending    *items;
	bool		skipped;		/* it has items that were taken from the map */
	bool		stuck;			/* what follows cannot be read; the log is closed */
	bool		needless;		/* ... and nobody needs it */
	ZXid		checked;		/* see zu_damage_is_needless */
	ZuScan		scan;			/* at the end */
} LogQueue;

static MemoryContext queue_context = NULL;
static LogQueue **queues = NULL;	/* by log number */
static ZuEntry *queues_of = NULL;
static RelFileNumber queues_relnumber = InvalidRelFileNumber;
static ZuResolved *resolved = NULL; /* lives and dies with the queues */
static bool discarding = false;
static bool truncating = false;

/* ---- private memory ---- */

void
zu_discard_forget(void)
{
	if (queue_context != NULL)
		MemoryContextDelete(queue_context);
	queue_context = NULL;
	queues = NULL;
	resolved = NULL;
	queues_of = NULL;
}

static void
prepare_queues(ZuEntry *entry)
{
	if (queues != NULL && queues_of == entry && queues_relnumber == entry->relnumber)
		return;
	zu_discard_forget();
	queue_context = AllocSetContextCreate(TopMemoryContext, "zundo discard", ALLOCSET_DEFAULT_SIZES);
	queues = MemoryContextAllocZero(queue_context, zu_nlogs() * sizeof(LogQueue *));
	resolved = MemoryContextAllocZero(queue_context, sizeof(ZuResolved));
	queues_of = entry;
	queues_relnumber = entry->relnumber;
}

/* free_details: frees what only an unsettled transaction needs. */
static void
free_details(Pending *p)
{
	if (p->xids != NULL)
		pfree(p->xids);
	p->xids = NULL;
	p->nxids = p->xids_size = 0;
	if (p->abort != NULL)
		pfree(p->abort);
	p->abort = NULL;
}

static void
drop_queue(int logno)
{
	LogQueue   *q = queues[logno];

	if (q == NULL)
		return;
	for (int i = q->head; i < q->tail; i++)
		free_details(&q->items[i]);
	if (q->items != NULL)
		pfree(q->items);
	if (q->scan.extents != NULL)
		pfree(q->scan.extents);
	pfree(q);
	queues[logno] = NULL;
}

/*
 * any_closed: is a log closed? Then whether somebody needs what is unread of it
 * depends on which transactions were rolled back (ZuResolved), and that stands in
 * their records only: no extent is passed over.
 */
static bool
any_closed(ZuEntry *entry)
{
	for (int i = 0; i < zu_nlogs(); i++)
		if (entry->logs[i].closed)
			return true;
	return false;
}

/* read_all_if_closed: has everything read anew if a log has been closed since extents were passed over. */
static void
read_all_if_closed(ZuEntry *entry)
{
	bool		skipped = false;

	for (int i = 0; i < zu_nlogs(); i++)
		skipped = skipped || (queues[i] != NULL && queues[i]->skipped);
	if (!skipped || !any_closed(entry))
		return;
	zu_discard_forget();
	prepare_queues(entry);
}

/* open_queue: the queue of a log, begun anew at its discard pointer if somebody else has moved that. */
static LogQueue *
open_queue(ZuLog *log, int logno, UndoPtr insert)
{
	LogQueue   *q = queues[logno];
	MemoryContext old;
	UndoPtr		discard;
	ZuExtent   *extents;
	int			n;
	int			at = 0;

	if (q != NULL && q->discards == pg_atomic_read_u64(&log->discards))
		return q;
	drop_queue(logno);
	discard = pg_atomic_read_u64(&log->discard);
	old = MemoryContextSwitchTo(queue_context);
	/* extents before the discard pointer are there if freeing them has failed once */
	extents = zu_collect_extents(logno, 0, &n);
	while (at < n && (extents[at].extent != zuptr_extent(discard) ||
					  extents[at].generation != zuptr_generation(discard)))
		at++;
	q = palloc0(sizeof(LogQueue));
	q->discards = pg_atomic_read_u64(&log->discards);
	zu_scan_init(&q->scan, logno, extents, n, zuptr_byte(discard), insert, queue_context);
	q->scan.skip_settled = !any_closed(zu_my.entry);
	q->scan.current = at;
	queues[logno] = q;
	MemoryContextSwitchTo(old);
	if (at == n)
	{
		drop_queue(logno);
		elog(ERROR, "undo log %d does not begin where its discard pointer says", logno);
	}
	return q;
}

/* ---- parsing ---- */

static Place
scan_place(ZuScan *scan)
{
	Place		p;

	p.sequence = scan->extents[scan->current].sequence;
	p.ptr = zu_scan_position(scan);
	return p;
}

static Pending *
push_pending(LogQueue *q, ZXid top, Place first)
{
	Pending    *p;

	if (q->tail == q->size)
	{
		if (q->head > q->size / 2)
		{
			memmove(q->items, q->items + q->head, (q->tail - q->head) * sizeof(Pending));
			q->tail -= q->head;
			q->head = 0;
		}
		else
		{
			int			size = Max(q->size * 2, 16);

			if (q->items == NULL)
				q->items = MemoryContextAllocHuge(queue_context, size * sizeof(Pending));
			else
				q->items = repalloc_huge(q->items, size * sizeof(Pending));
			q->size = size;
		}
	}
	p = &q->items[q->tail++];
	memset(p, 0, sizeof(*p));
	p->min_top = p->max_top = p->max_xid = p->last_xid = top;
	p->first = first;
	p->count = 1;
	return p;
}

/* push_settled: adds the extent that the scan has passed over, as the map knows it. */
static void
push_settled(LogQueue *q, UndoPtr start)
{
	const ZuExtent *e = &q->scan.extents[q->scan.current];
	Place		first = {e->sequence, start};
	Pending    *p = push_pending(q, e->oldest_top, first);

	p->max_top = p->max_xid = e->newest;
	p->settled = true;
	q->skipped = true;
	p->end = scan_place(&q->scan);
}

/* note_xid: remember that (sub)transaction xid wrote in p. */
static void
note_xid(Pending *p, ZXid xid)
{
	if (xid == p->last_xid)
		return;
	p->last_xid = xid;
	p->max_xid = Max(p->max_xid, xid);
	if (xid == p->min_top)
		return;
	if (xid < p->min_top)
	{
		/* only in a rest whose top is not known: the lowest xid stands for it */
		ZXid		lower = xid;

		xid = p->min_top;
		p->min_top = lower;
	}
	if (p->nxids > 0 && p->xids[p->nxids - 1] == xid)
		return;
	if (p->nxids == p->xids_size)
	{
		int			size = Max(p->xids_size * 2, 4);

		if (p->xids == NULL)
			p->xids = MemoryContextAlloc(queue_context, size * sizeof(ZXid));
		else
			p->xids = repalloc_huge(p->xids, size * sizeof(ZXid));
		p->xids_size = size;
	}
	p->xids[p->nxids++] = xid;
}

/* parse_log: take the records up to insert into the queue. */
static void
parse_log(LogQueue *q, UndoPtr insert)
{
	ZuRecord	rec;
	UndoPtr		ptr;
	ZuStep		step;

	if (q->stuck)
		return;
	zu_scan_extend(&q->scan, insert);
	for (;;)
	{
		Pending    *p;

		step = zu_scan_step(&q->scan, &rec, &ptr);
		if (step == ZU_STEP_SETTLED)
		{
			push_settled(q, ptr);
			continue;
		}
		if (step != ZU_STEP_RECORD)
			break;

		/*
		 * Without ZUF_FIRST the record goes on with the last transaction. That
		 * may be settled already, if it wrote this and ended between our reading
		 * of the insert position and our look at its state, or if the extent
		 * before was passed over. It may also be unknown, if the log begins with
		 * the rest of a transaction that was discarded.
		 */
		p = q->tail > q->head ? &q->items[q->tail - 1] : NULL;
		if ((rec.flags & ZUF_FIRST) || p == NULL || p->settled)
		{
			ZXid		top = q->scan.topxid != InvalidZXid ? q->scan.topxid : rec.topxid;
			Place		first = {q->scan.extents[q->scan.current].sequence, ptr};

			p = push_pending(q, top, first);
		}
		note_xid(p, rec.xid);
		p->records++;
		p->bytes += rec.length;
		if (rec.type == ZUR_LOCKS)
			p->hold = Max(p->hold, rec.hold);
		p->end = scan_place(&q->scan);
	}
	if (step == ZU_STEP_CORRUPT)
	{
		/* what could be read is handled; the other logs are too */
		q->stuck = true;
		zu_close_log(zu_my.entry, q->scan.logno, zu_scan_position(&q->scan));
	}
	if (step == ZU_STEP_GONE)
		elog(ERROR, "undo log %u was discarded by somebody else", q->scan.logno);
}

/* ---- settling ---- */

/* has_aborted: has one of p's (sub)transactions aborted? p's top has ended. */
static bool
has_aborted(const Pending *p, ZXid oldest)
{
	if (p->min_top < oldest)
		return false;
	if (!TransactionIdDidCommit(zxid_to_xid(p->min_top)))
		return true;
	for (int i = 0; i < p->nxids; i++)
		if (p->xids[i] >= oldest && !TransactionIdDidCommit(zxid_to_xid(p->xids[i])))
			return true;
	return false;
}

/*
 * abort_of: returns p's ZuAbort, which stays with it until it is settled. Its
 * counts are brought up to date: p may have been parsed further.
 */
static ZuAbort *
abort_of(Pending *p, uint32 logno)
{
	if (p->abort == NULL)
	{
		p->abort = MemoryContextAllocZero(queue_context, sizeof(ZuAbort));
		p->abort->logno = logno;
		p->abort->first = p->first.ptr;
		p->abort->topxid = p->min_top;
	}
	if (p->abort->records != p->records)
		p->abort->tried = false;
	p->abort->records = p->records;
	p->abort->bytes = p->bytes;
	return p->abort;
}

/* settle: find out whether p has ended, and have it undone if (part of) it aborted. */
static void
settle(Pending *p, uint32 logno, ZuResolveAbort resolve, void *arg, ZuDiscardStats *stats)
{
	ZXid		oldest = pg_atomic_read_u64(&zu_my.entry->oldest);

	/* in progress first: a transaction is marked committed before it leaves the array */
	if (p->min_top >= oldest && TransactionIdIsInProgress(zxid_to_xid(p->min_top)))
		return;
	if (has_aborted(p, oldest))
	{
		ZuAbort    *abort = abort_of(p, logno);

		if (resolve == NULL || !resolve(abort, arg))
		{
			stats->aborts_pending++;
			return;
		}
		zu_note_resolved(resolved, p->min_top, logno, queue_context);
		for (int i = 0; i < p->nxids; i++)
			zu_note_resolved(resolved, p->xids[i], logno, queue_context);
	}
	free_details(p);
	p->settled = true;
}

/*
 * mergeable: two settled neighbours that are small and in one extent. What counts for `oldest` though it is settled
 * (U18) stays alone until it does not: merged, it would count with the lowest xid of its neighbours.
 */
static bool
mergeable(const Pending *a, const Pending *b, ZXid horizon)
{
	return a->settled && b->settled && a->first.sequence == b->end.sequence &&
		a->hold < horizon && b->hold < horizon &&
		zuptr_byte(b->end.ptr) - zuptr_byte(a->first.ptr) <= MERGE_BYTES;
}

/* settle_queue: settle what can be, merge what is settled. Returns nothing; q's items keep their order. */
static void
settle_queue(LogQueue *q, uint32 logno, ZXid horizon, ZuResolveAbort resolve, void *arg,
			 ZuDiscardStats *stats)
{
	int			out = q->head;

	for (int i = q->head; i < q->tail; i++)
	{
		if (!q->items[i].settled)
		{
			CHECK_FOR_INTERRUPTS();
			settle(&q->items[i], logno, resolve, arg, stats);
		}
	}
	for (int i = q->head + 1; i < q->tail; i++)
	{
		Pending    *last = &q->items[out];
		Pending    *p = &q->items[i];

		if (mergeable(last, p, horizon))
		{
			last->min_top = Min(last->min_top, p->min_top);
			last->max_top = Max(last->max_top, p->max_top);
			last->max_xid = Max(last->max_xid, p->max_xid);
			last->hold = Max(last->hold, p->hold);
			last->end = p->end;
			last->count += p->count;
		}
		else if (++out != i)
			q->items[out] = *p;
	}
	if (q->tail > q->head)
		q->tail = out + 1;
}

/* ---- discarding ---- */

/* can_go: may p be discarded if `oldest` becomes this? */
static inline bool
can_go(const Pending *p, ZXid oldest)
{
	return p->settled && p->max_xid < oldest && p->hold < oldest;
}

/* new_oldest: the highest value that U18 and U37 allow. All logs have been parsed. */
static ZXid
new_oldest(ZuEntry *entry, ZXid horizon)
{
	ZXid		oldest = horizon;

	for (int log = 0; log < zu_nlogs(); log++)
	{
		LogQueue   *q = queues[log];

		if (q == NULL)
			continue;
		if (unlikely(entry->logs[log].closed))
		{
			q->needless = zu_damage_is_needless(&entry->logs[log], log, horizon, resolved, &q->checked);
			if (!q->needless)
				oldest = Min(oldest, entry->logs[log].hold);
		}
		for (int i = q->head; i < q->tail; i++)
			if (!q->items[i].settled || q->items[i].hold >= horizon)
				oldest = Min(oldest, q->items[i].min_top);
	}
	return oldest;
}

/* add_hold: enters a hold into the sorted array of n, of which the oldest are kept. */
static void
add_hold(ZuHold *holds, int *n, const ZuHold *hold)
{
	int			at = *n;

	if (at == ZU_MAX_HOLDS && holds[at - 1].xid <= hold->xid)
		return;
	if (at < ZU_MAX_HOLDS)
		(*n)++;
	else
		at--;
	for (; at > 0 && holds[at - 1].xid > hold->xid; at--)
		holds[at] = holds[at - 1];
	holds[at] = *hold;
}

/*
 * publish_holds: tells other backends what has kept `oldest` from the horizon.
 * Transactions in progress are not among it: the server's own views name them.
 */
static void
publish_holds(ZuEntry *entry, ZXid horizon)
{
	ZuHold		holds[ZU_MAX_HOLDS];
	int			n = 0;

	for (int log = 0; log < zu_nlogs(); log++)
	{
		const LogQueue *q = queues[log];

		if (q != NULL && entry->logs[log].closed && !q->needless)
		{
			ZuHold		hold = {ZU_HOLD_DAMAGE, log, entry->logs[log].hold, InvalidOid};

			add_hold(holds, &n, &hold);
		}
		for (int i = q != NULL ? q->head : 0; q != NULL && i < q->tail; i++)
		{
			const Pending *p = &q->items[i];
			ZuHold		hold = {ZU_HOLD_LOCKS, log, p->min_top, InvalidOid};

			if (p->abort != NULL)
			{
				hold.kind = ZU_HOLD_ROLLBACK;
				hold.records = p->records;
				hold.bytes = p->bytes;
				if (p->abort->nstalled > 0)
				{
					hold.reloid = p->abort->stalled[0].reloid;
					hold.failed = p->abort->stalled[0].not_before != 0;
				}
			}
			else if (!p->settled || p->hold < horizon)
				continue;
			add_hold(holds, &n, &hold);
		}
	}
	SpinLockAcquire(&entry->mutex);
	entry->nholds = n;
	memcpy(entry->holds, holds, n * sizeof(ZuHold));
	SpinLockRelease(&entry->mutex);
}

int
zu_holds(ZuHold *out)
{
	ZuEntry    *entry = zu_my.entry;
	int			n;

	SpinLockAcquire(&entry->mutex);
	n = entry->nholds;
	memcpy(out, entry->holds, n * sizeof(ZuHold));
	SpinLockRelease(&entry->mutex);
	return n;
}

/* note_conflict: standbys must hear of the transactions of p that come below `oldest` now. */
static void
note_conflict(const Pending *p, ZXid oldest)
{
	ZXid		newest = Min(p->max_top, oldest - 1);

	if (p->settled && p->min_top < oldest && newest >= pg_atomic_read_u64(&zu_my.entry->oldest))
		zu_max64(&zu_my.entry->conflict, newest);
}

/* discard_prefix: take the settled transactions below `oldest` off the queue's head and publish the log's new discard pointer. */
static void
discard_prefix(LogQueue *q, ZuLog *log, ZXid oldest, ZuDiscardStats *stats)
{
	Place		place;

	for (int i = q->head; i < q->tail; i++)
		note_conflict(&q->items[i], oldest);
	if (unlikely(q->needless))
		zu_max64(&zu_my.entry->conflict, Min(log->unread_end, oldest) - 1);
	place.sequence = pg_atomic_read_u64(&log->discard_sequence);
	place.ptr = pg_atomic_read_u64(&log->discard);
	while (q->head < q->tail && can_go(&q->items[q->head], oldest))
	{
		stats->transactions_discarded += q->items[q->head].count;
		place = q->items[q->head].end;
		q->head++;
	}
	if (q->head == q->tail)
	{
		q->head = q->tail = 0;
		place = scan_place(&q->scan);
	}
	if (place.ptr == pg_atomic_read_u64(&log->discard))
		return;
	pg_atomic_write_u64(&log->discard_sequence, place.sequence);
	pg_write_barrier();			/* is_before_discard reads them the other way round */
	pg_atomic_write_u64(&log->discard, place.ptr);
	q->discards = pg_atomic_fetch_add_u64(&log->discards, 1) + 1;
}

/* add_extents: append n of 'from' to the array *list of *count. */
static void
add_extents(ZuExtent **list, int *count, const ZuExtent *from, int n)
{
	if (n <= 0)
		return;
	if (*list == NULL)
		*list = palloc(n * sizeof(ZuExtent));
	else
		*list = repalloc_huge(*list, (*count + n) * sizeof(ZuExtent));
	memcpy(*list + *count, from, n * sizeof(ZuExtent));
	*count += n;
}

/* passed_extents: how many of the queue's extents lie wholly before the log's discard pointer. */
static int
passed_extents(const LogQueue *q, ZuLog *log)
{
	uint64		sequence = pg_atomic_read_u64(&log->discard_sequence);
	int			n = 0;

	while (n < q->scan.nextents && q->scan.extents[n].sequence < sequence)
		n++;
	return n;
}

/* forget_extents: take the first n extents off the scan of q. */
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

/*
 * is_idle: has nothing been written to the log for a while, and is nothing left
 * in it? Its owner, if any, is in no transaction that writes. Alloc lock held.
 */
static bool
is_idle(const LogQueue *q, ZuLog *log, TimestampTz now)
{
	UndoPtr		insert = pg_atomic_read_u64(&log->insert);
	uint32		owner = pg_atomic_read_u32(&log->owner);

	if (log->closed || insert == InvalidUndoPtr || insert != pg_atomic_read_u64(&log->discard))
		return false;
	if (owner == 0)
		return TimestampDifferenceExceeds(log->detached, now, IDLE_LOG_MS);
	/* an idle session may keep a log that keeps no tail from being given back */
	if (zuptr_extent(insert) < pg_atomic_read_u32(&zu_my.entry->used) + TAIL_SLACK)
		return false;
	return (owner & ZU_LOG_HELD) == 0 && insert == q->seen_insert &&
		TimestampDifferenceExceeds(q->seen_since, now, IDLE_LOG_MS);
}

/*
 * take_log: takes a log from its owner, if it has one and is in no transaction
 * that writes. From then on the log is unattached, and its owner, which finds
 * that out in its next transaction, attaches another. Returns whether the log
 * may be freed: it was taken and, with must_be_empty, nothing has been written
 * to it since that was looked at. Alloc lock held.
 */
static bool
take_log(ZuLog *log, bool must_be_empty)
{
	uint32		owner = pg_atomic_read_u32(&log->owner);

	if (owner != 0)
	{
		if ((owner & ZU_LOG_HELD) != 0 ||
			!pg_atomic_compare_exchange_u32(&log->owner, &owner, 0))
			return false;
		log->detached = GetCurrentTimestamp();
		log->ahead.generation = 0;	/* only the owner knew it; it is freed with the rest */
	}
	/* the owner may have written a whole transaction before it lost the log */
	return !must_be_empty ||
		pg_atomic_read_u64(&log->insert) == pg_atomic_read_u64(&log->discard);
}

/*
 * is_left_over: does the map give extents to it though it has none? An error has come between reset_log and the end of freeing
 * them, or after an allocation. Nothing points there. Alloc lock held.
 */
static bool
is_left_over(ZuLog *log)
{
	return zu_log_pid(log) == 0 && pg_atomic_read_u64(&log->insert) == InvalidUndoPtr &&
		pg_atomic_read_u32(&log->nextents) > 0;
}

/* is_given_up: is it a closed log whose unread undo nobody needs, and has `oldest` passed all of it? */
static bool
is_given_up(const LogQueue *q, ZuLog *log, ZXid oldest)
{
	return log->closed && q->needless && oldest >= log->unread_end;
}

/* reset_log: the log has no extents any more. Alloc lock held. */
static void
reset_log(ZuLog *log)
{
	pg_atomic_write_u64(&log->insert, InvalidUndoPtr);
	pg_atomic_write_u64(&log->discard, InvalidUndoPtr);
	pg_atomic_fetch_add_u64(&log->discards, 1);
	log->ahead.generation = 0;
	log->sealed = log->closed = false;
}

/* add_last_extents: add what an idle log or one that has been left over (then from = 0) has from this sequence on. Alloc lock held. */
static void
add_last_extents(ZuExtent **list, int *count, int logno, uint64 from)
{
	ZuLog	   *log = &zu_my.entry->logs[logno];
	int			n;
	ZuExtent   *rest = zu_collect_extents(logno, from, &n);

	add_extents(list, count, rest, n);
	pfree(rest);
	if (n == 0 && from == 0)
		pg_atomic_write_u32(&log->nextents, 0);
	reset_log(log);
	drop_queue(logno);
}

/*
 * free_passed: free the extents that lie before the discard pointers, and all of
 * logs that are idle or left over. `oldest` is published.
 */
static void
free_passed(ZuEntry *entry, ZXid oldest)
{
	ZuExtent   *list = NULL;
	int			count = 0;
	bool		idle = false;
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < zu_nlogs(); i++)
	{
		if (queues[i] != NULL)
			add_extents(&list, &count, queues[i]->scan.extents,
						passed_extents(queues[i], &entry->logs[i]));
		idle = idle || (queues[i] != NULL ?
						is_idle(queues[i], &entry->logs[i], now) || is_given_up(queues[i], &entry->logs[i], oldest) :
						is_left_over(&entry->logs[i]));
	}
	if (count == 0 && !idle)
		return;
	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	for (int i = 0; i < zu_nlogs(); i++)
	{
		ZuLog	   *log = &entry->logs[i];

		/* its extents before that are in the list already */
		if (queues[i] != NULL && idle && is_given_up(queues[i], log, oldest) && take_log(log, false))
		{
			ereport(LOG,
					(errmsg("undo log %d, which is damaged, is given up: nobody needs it any more", i)));
			add_last_extents(&list, &count, i, pg_atomic_read_u64(&log->discard_sequence));
		}
		else if (queues[i] != NULL && idle && is_idle(queues[i], log, now) && take_log(log, true))
			add_last_extents(&list, &count, i, pg_atomic_read_u64(&log->discard_sequence));
		else if (queues[i] == NULL && idle && is_left_over(log))
			add_last_extents(&list, &count, i, 0);
	}
	zu_free_extents(list, count, oldest);
	LWLockRelease(zu_alloc_lock(entry));
	for (int i = 0; i < zu_nlogs(); i++)
		if (queues[i] != NULL)
			forget_extents(queues[i], passed_extents(queues[i], &entry->logs[i]));
	if (list != NULL)
		pfree(list);
}

/*
 * mark_settled: makes it known in the map which of a log's extents hold nothing
 * but settled undo that must be kept. Another process that discards then needs
 * not read them (U52). The extent that the discard pointer lies in is left out:
 * its summary would not cover what has gone.
 */
static void
mark_settled(LogQueue *q, ZuLog *log, ZXid horizon)
{
	ZuScan	   *scan = &q->scan;
	UndoPtr		discard = pg_atomic_read_u64(&log->discard);
	uint64		from = pg_atomic_read_u64(&log->discard_sequence);
	ZuExtent   *settled = NULL;
	int			n = 0;
	int			item = q->head;

	if (zuptr_byte(discard) > ZU_PAGE_DATA)
		from++;
	for (int i = 0; i < scan->current; i++)
	{
		ZuExtent   *e = &scan->extents[i];
		bool		all = false;

		/* one that was never entered has no end, and no summary */
		if (e->settled || e->end == 0 || e->sequence < from)
			continue;
		while (item < q->tail && q->items[item].end.sequence < e->sequence)
			item++;
		e->newest = InvalidZXid;
		for (int j = item; j < q->tail && q->items[j].first.sequence <= e->sequence; j++)
		{
			const Pending *p = &q->items[j];

			all = p->settled && p->hold < horizon;
			if (!all)
				break;
			e->oldest_top = e->newest == InvalidZXid ? p->min_top : Min(e->oldest_top, p->min_top);
			e->newest = Max(e->newest, Max(p->hold, Max(p->max_top, p->max_xid)));
		}
		if (!all)
			continue;
		e->settled = true;
		if (settled == NULL)
			settled = palloc(scan->current * sizeof(ZuExtent));
		settled[n++] = *e;
	}
	if (n > 0)
	{
		zu_mark_settled(settled, n);
		pfree(settled);
	}
}

/* log_if_due: make `oldest` and the freeze limit durable now and then, so that relfrozenxid can follow. */
static void
log_if_due(ZuEntry *entry, ZXid oldest)
{
	ZXid		durable = pg_atomic_read_u64(&entry->durable);
	TimestampTz logged;
	bool		freeze_waits;

	SpinLockAcquire(&entry->mutex);
	logged = entry->logged;
	freeze_waits = memcmp(&entry->freeze, &entry->freeze_logged, sizeof(ZuFreeze)) != 0;
	SpinLockRelease(&entry->mutex);
	if (oldest < durable + LOG_AFTER_XIDS && !freeze_waits)
		return;
	if (oldest >= durable + LOG_AFTER_XIDS_IDLE ||
		((freeze_waits || pg_atomic_read_u64(&entry->conflict) != InvalidZXid) &&
		 TimestampDifferenceExceeds(logged, GetCurrentTimestamp(), LOG_AFTER_MS)))
		zu_log_oldest(oldest);
}

/*
 * advance_freeze: see zu_freeze_limit. The pair (next, after) stays as it is until the horizon has reached it, over
 * restarts and through times in which nobody uses this database: else a horizon that is always a little
 * behind would never reach it.
 */
static void
advance_freeze(ZuEntry *entry)
{
	ZXid		horizon = zxid_widen(GetOldestNonRemovableTransactionId(NULL));
	ZXid		durable = Min(pg_atomic_read_u64(&entry->durable), pg_atomic_read_u64(&entry->oldest));
	ZXid		next = zxid_from_full(zc_next_full_xid());
	ZuFreeze   *freeze = &entry->freeze;

	SpinLockAcquire(&entry->mutex);
	if (freeze->next != InvalidZXid && horizon >= freeze->after)
	{
		freeze->now = Max(freeze->now, freeze->next);
		freeze->next = InvalidZXid;
	}
	if (freeze->next == InvalidZXid && durable > freeze->now)
	{
		freeze->next = durable;
		freeze->after = next;
	}
	SpinLockRelease(&entry->mutex);
}

/* take_horizon: H of this database, never less than before; Invalid if it cannot be told yet. */
static ZXid
take_horizon(ZuEntry *entry)
{
	Relation	rel = table_open(zu_my.reloid, AccessShareLock);
	ZXid		horizon = InvalidZXid;

	/* a relation of this very transaction is held to be nobody else's business */
	if (rel->rd_createSubid == InvalidSubTransactionId)
	{
		InvalidateCatalogSnapshot();
		horizon = zxid_widen(GetOldestNonRemovableTransactionId(rel));
		zu_max64(&entry->horizon, horizon);
		horizon = pg_atomic_read_u64(&entry->horizon);
	}
	table_close(rel, NoLock);
	return horizon;
}

static void
discard_pass(ZuEntry *entry, ZuResolveAbort resolve, void *arg, ZuDiscardStats *stats)
{
	ZXid		horizon = take_horizon(entry);
	ZXid		oldest;
	uint64		before = zu_bytes_in_use();

	if (horizon == InvalidZXid)
		return;
	prepare_queues(entry);
	read_all_if_closed(entry);
	for (int i = 0; i < zu_nlogs(); i++)
	{
		ZuLog	   *log = &entry->logs[i];
		UndoPtr		insert = pg_atomic_read_u64(&log->insert);
		LogQueue   *q;

		if (insert == InvalidUndoPtr)
		{
			drop_queue(i);
			continue;
		}
		pg_read_barrier();
		q = open_queue(log, i, insert);
		if (q->seen_insert != insert)
		{
			q->seen_insert = insert;
			q->seen_since = GetCurrentTimestamp();
		}
		parse_log(q, insert);
		settle_queue(q, i, horizon, resolve, arg, stats);
	}
	oldest = new_oldest(entry, horizon);
	publish_holds(entry, horizon);
	for (int i = 0; i < zu_nlogs(); i++)
		if (queues[i] != NULL)
			discard_prefix(queues[i], &entry->logs[i], oldest, stats);
	advance_freeze(entry);		/* before WAL is written, which takes it along */
	/*
	 * A standby must hear of it first: from the moment `oldest` is published, slots
	 * are reused and rows pruned in WAL records that rely on it.
	 */
	if (pg_atomic_read_u64(&entry->conflict) != InvalidZXid)
		zu_log_oldest(oldest);
	/* U7: publish before anything becomes allocatable */
	zu_max64(&entry->oldest, oldest);
	free_passed(entry, oldest);
	for (int i = 0; i < zu_nlogs(); i++)
		if (queues[i] != NULL && pg_atomic_read_u64(&entry->logs[i].insert) != InvalidUndoPtr)
			mark_settled(queues[i], &entry->logs[i], horizon);
	zu_forget_resolved(resolved, oldest);
	log_if_due(entry, pg_atomic_read_u64(&entry->oldest));
	stats->bytes_left = zu_bytes_in_use();
	stats->bytes_discarded = before > stats->bytes_left ? before - stats->bytes_left : 0;
}

void
zu_discard_release(void)
{
	if (discarding && zu_my.entry != NULL)
		pg_atomic_write_u32(&zu_my.entry->discarder, 0);
	discarding = false;
}

void
zu_truncate_release(void)
{
	if (truncating && zu_my.entry != NULL)
	{
		pg_atomic_write_u32(&zu_my.entry->truncator, 0);
		ConditionVariableBroadcast(&zu_my.entry->truncated);
	}
	truncating = false;
}

bool
zu_discard(ZuResolveAbort resolve, void *arg, ZuDiscardStats *stats)
{
	ZuEntry    *entry;
	uint32		nobody = 0;
	uint32		pass;

	memset(stats, 0, sizeof(*stats));
	zu_attach_database();
	entry = zu_my.entry;
	if (RecoveryInProgress() || discarding)
		return false;
	zu_require_logs();
	if (!pg_atomic_compare_exchange_u32(&entry->discarder, &nobody, (uint32) MyProcPid))
		return false;
	discarding = true;
	pass = pg_atomic_add_fetch_u32(&entry->passes_begun, 1);
	PG_TRY();
	{
		discard_pass(entry, resolve, arg, stats);
	}
	PG_CATCH();
	{
		/* the queues may be half changed: parse again next time */
		zu_discard_forget();
		zu_discard_release();
		PG_RE_THROW();
	}
	PG_END_TRY();
	pg_atomic_write_u32(&entry->passes_done, pass);
	zu_discard_release();
	stats->oldest = zu_oldest();
	return true;
}

bool
zu_discard_by_worker(long timeout_ms)
{
	ZuEntry    *entry;
	TimestampTz since = GetCurrentTimestamp();
	uint32		begun;

	zu_attach_database();
	entry = zu_my.entry;
	begun = pg_atomic_read_u32(&entry->passes_begun);
	for (;;)
	{
		/* one that had begun before may have missed what has ended since */
		if ((int32) (pg_atomic_read_u32(&entry->passes_done) - begun) > 0)
			return true;
		if (pg_atomic_read_u32(&entry->worker) == 0 || zu_wake_launcher_hook == NULL ||
			TimestampDifferenceExceeds(since, GetCurrentTimestamp(), timeout_ms))
			return false;
		zu_wake_launcher_hook(MyDatabaseId);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, BY_WORKER_NAP_MS, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

ZXid
zu_freeze_limit(void)
{
	ZuEntry    *entry;
	ZXid		limit;

	zu_attach_database();
	entry = zu_my.entry;
	if (!RecoveryInProgress())
		advance_freeze(entry);
	SpinLockAcquire(&entry->mutex);
	limit = entry->freeze.now;
	SpinLockRelease(&entry->mutex);
	return limit;
}

/* ---- tail truncation ---- */

/* extents_needed: number of extents up to the highest one in use. Alloc lock held. */
static uint32
extents_needed(ZuEntry *entry)
{
	uint32		extent = pg_atomic_read_u32(&entry->limit);

	while (extent > 0)
	{
		uint32		group = (extent - 1) / ZU_GROUP_EXTENTS * ZU_GROUP_EXTENTS;
		Buffer		buf = zu_twins_share(zu_map_block(extent - 1));
		bool		found = false;

		while (extent > group && !found)
		{
			found = zu_map_entry(BufferGetPage(buf), extent - 1)->state != ZU_EXTENT_FREE;
			if (!found)
				extent--;
		}
		UnlockReleaseBuffer(buf);
		if (found)
			break;
	}
	return Max(extent, ZU_MIN_EXTENTS);
}

/* newest_generation: the newest one of floor and of the whole groups that are cut off when 'nextents' of 'limit' remain (U41). */
static uint32
newest_generation(uint32 nextents, uint32 limit, uint32 floor)
{
	uint32		group = (nextents + ZU_GROUP_EXTENTS - 1) / ZU_GROUP_EXTENTS * ZU_GROUP_EXTENTS;

	for (; group < limit; group += ZU_GROUP_EXTENTS)
	{
		Buffer		buf = zu_twins_share(zu_map_block(group));

		for (uint32 i = 0; i < ZU_GROUP_EXTENTS; i++)
		{
			uint32		generation = zu_map_entry(BufferGetPage(buf), i)->generation;

			if (generation != 0 && (floor == 0 || zu_generation_newer(generation, floor)))
				floor = generation;
		}
		UnlockReleaseBuffer(buf);
	}
	return floor;
}

/* lower_limit: readers, meta page and WAL agree that extents from nextents on are no more. */
static void
lower_limit(ZuEntry *entry, uint32 nextents, BlockNumber nblocks)
{
	ZuTwins		meta;
	xl_undo_truncate xlrec = {0};
	XLogRecPtr	recptr;
	uint32		limit = pg_atomic_read_u32(&entry->limit);
	Buffer		buf = zu_twins_share(ZU_META_BLOCK);

	xlrec.floor = zu_meta(BufferGetPage(buf))->floor;
	UnlockReleaseBuffer(buf);
	/* the alloc lock keeps the floor and the map's generations as they are */
	xlrec.floor = newest_generation(nextents, limit, xlrec.floor);

	/* nobody who has looked at the old limit still reads when we get the fences */
	zu_fences_acquire(entry);
	pg_atomic_write_u32(&entry->limit, nextents);
	zu_fences_release(entry);

	PG_TRY();
	{
		zu_twins_lock(&meta, ZU_META_BLOCK);
	}
	PG_CATCH();
	{
		/* all is as before, the floor too, which the next growth goes by (U41) */
		pg_atomic_write_u32(&entry->limit, limit);
		PG_RE_THROW();
	}
	PG_END_TRY();
	xlrec.nextents = nextents;
	xlrec.nblocks = nblocks;
	START_CRIT_SECTION();
	zu_meta(zu_twins_page(&meta))->nextents = nextents;
	zu_meta(zu_twins_page(&meta))->floor = xlrec.floor;
	zu_twins_changed(&meta);
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfUndoTruncate);
	zu_twins_register(&meta, 0, 0);
	recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_UNDO_TRUNCATE);
	zu_twins_set_lsn(&meta, recptr);
	END_CRIT_SECTION();
	zu_twins_unlock(&meta);
}

/*
 * cut_file: cuts the file off behind nblocks. The server's own truncation: its
 * WAL record, its care for checkpoints in between. It takes its time with a
 * large file, so no LWLock is held: allocations below the limit go on, growth
 * waits (zu_growth_must_wait), and nobody reads there any more. Returns the
 * number of blocks given back.
 */
static BlockNumber
cut_file(Relation rel, BlockNumber nblocks)
{
	volatile BlockNumber given = 0;

	PG_TRY();
	{
		given = smgrnblocks(RelationGetSmgr(rel), MAIN_FORKNUM) - nblocks;
		ZUNDO_FAULT("truncate");
		RelationTruncate(rel, nblocks);
	}
	PG_CATCH();
	{
		zu_truncate_release();
		PG_RE_THROW();
	}
	PG_END_TRY();
	zu_truncate_release();
	return given;
}

/*
 * give_up_tail: takes the free extents at the end out of the log's reach.
 * Returns the number of blocks that remain, or InvalidBlockNumber if there is
 * nothing to cut off; else cut_file must be called.
 */
static BlockNumber
give_up_tail(ZuEntry *entry, Relation rel)
{
	BlockNumber nblocks = InvalidBlockNumber;
	uint32		needed;

	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	needed = extents_needed(entry);
	if (rel->rd_createSubid == InvalidSubTransactionId &&
		needed < pg_atomic_read_u32(&entry->limit) &&
		pg_atomic_read_u32(&entry->truncator) == 0)
	{
		nblocks = zu_nblocks_for(needed);
		lower_limit(entry, needed, nblocks);
		truncating = true;
		pg_atomic_write_u32(&entry->truncator, (uint32) MyProcPid);
		if (pg_atomic_read_u32(&entry->hint) > needed)
			pg_atomic_write_u32(&entry->hint, needed);
	}
	LWLockRelease(zu_alloc_lock(entry));
	return nblocks;
}

BlockNumber
zu_truncate_tail(void)
{
	Relation	rel;
	BlockNumber nblocks;
	BlockNumber given = 0;

	zu_attach_database();
	if (RecoveryInProgress())
		return 0;
	zu_require_logs();
	rel = table_open(zu_my.reloid, AccessShareLock);
	nblocks = give_up_tail(zu_my.entry, rel);
	if (nblocks != InvalidBlockNumber)
		given = cut_file(rel, nblocks);
	table_close(rel, NoLock);
	return given;
}
