/*
 * discard/queue.c - what a process that discards remembers of the logs.
 *
 * Owns, for each log, the position of a scan and a queue of the transactions
 * that are not discarded yet, so that a process parses each record once
 * however long a snapshot keeps it. Called by pass.c.
 *
 * Locks: none; the process has the discarder flag. Crash points: none; nothing
 * here is durable.
 */
#include "postgres.h"

#include "common/zcount.h"
#include "discard/discard_internal.h"
#include "miscadmin.h"
#include "utils/memutils.h"

/* ---- memory ---- */

/* zqueue_forget_all: See discard_internal.h. */
void
zqueue_forget_all(Discarder *mine)
{
	if (mine->context != NULL)
		MemoryContextDelete(mine->context);
	memset(mine, 0, sizeof(*mine));
}

/*
 * zqueue_prepare: See discard_internal.h. The count of attachments tells an
 * entry that was left and joined again from one that was never left.
 */
void
zqueue_prepare(Discarder *mine, ZuEntry *entry)
{
	Assert(entry == zu_my.entry);
	if (mine->context != NULL && mine->entry == entry && mine->joined == zu_my.joined)
		return;
	zqueue_forget_all(mine);
	mine->context = AllocSetContextCreate(TopMemoryContext, "zundo discard",
										  ALLOCSET_DEFAULT_SIZES);
	mine->queues = MemoryContextAllocZero(mine->context, zu_nlogs() * sizeof(LogQueue *));
	mine->resolved = MemoryContextAllocZero(mine->context, sizeof(ZuResolved));
	mine->entry = entry;
	mine->joined = zu_my.joined;
}

/* zqueue_free_details: See discard_internal.h. */
void
zqueue_free_details(Pending *p)
{
	if (p->xids != NULL)
		pfree(p->xids);
	p->xids = NULL;
	p->nxids = p->xids_size = 0;
	if (p->abort != NULL)
		pfree(p->abort);
	p->abort = NULL;
}

void
zqueue_count_undone(Pending *p)
{
	zcount(ZCOUNT_ROLLBACKS, p->undone);
	p->undone = 0;
}

/*
 * zqueue_drop: See discard_internal.h. The next pass that finds the log in use
 * reads it from its discard pointer.
 */
void
zqueue_drop(Discarder *mine, int logno)
{
	LogQueue   *q = mine->queues[logno];

	Assert(logno >= 0 && logno < zu_nlogs());
	if (q == NULL)
		return;
	for (int i = q->head; i < q->tail; i++)
		zqueue_free_details(&q->items[i]);
	if (q->items != NULL)
		pfree(q->items);
	if (q->scan.extents != NULL)
		pfree(q->scan.extents);
	pfree(q);
	mine->queues[logno] = NULL;
}

/*
 * Returns whether a log of the database is closed. Then no extent is passed
 * over: whether the unread part of the closed log is needed depends on which
 * transactions were rolled back from other logs (ZuResolved), and that is
 * known from the records of those logs only, not from their summaries.
 */
static bool
any_closed(ZuEntry *entry)
{
	for (int i = 0; i < zu_nlogs(); i++)
		if (entry->logs[i].closed)
			return true;
	return false;
}

/*
 * zqueue_read_all_if_closed: See discard_internal.h. If no queue has a summary
 * taken from the map, nothing was passed over, and the queues are kept.
 */
void
zqueue_read_all_if_closed(Discarder *mine)
{
	ZuEntry    *entry = mine->entry;
	bool		skipped = false;

	for (int i = 0; i < zu_nlogs(); i++)
		skipped = skipped || (mine->queues[i] != NULL && mine->queues[i]->skipped);
	if (!skipped || !any_closed(entry))
		return;
	zqueue_forget_all(mine);
	zqueue_prepare(mine, entry);
}

/*
 * zqueue_open: See discard_internal.h. ZuLog.discards counts the moves of the
 * discard pointer: if it differs from the count that this process has noted,
 * another process has moved the pointer, and the queue is outdated. The scan
 * begins in the extent that the discard pointer names.
 */
LogQueue *
zqueue_open(Discarder *mine, int logno, UndoPtr insert)
{
	LogQueue   *q = mine->queues[logno];
	ZuLog	   *log = &mine->entry->logs[logno];
	MemoryContext old;
	UndoPtr		discard;
	ZuExtent   *extents;
	int			n;
	int			at = 0;

	Assert(insert != InvalidUndoPtr);
	if (q != NULL && q->discards == pg_atomic_read_u64(&log->discards))
		return q;
	zqueue_drop(mine, logno);
	discard = pg_atomic_read_u64(&log->discard);
	old = MemoryContextSwitchTo(mine->context);

	/*
	 * extents before the discard pointer are still in the map if an attempt
	 * to free them has failed
	 */
	extents = zu_collect_extents(logno, 0, &n);
	while (at < n && (extents[at].extent != zuptr_extent(discard) ||
					  extents[at].generation != zuptr_generation(discard)))
		at++;
	q = palloc0(sizeof(LogQueue));
	q->logno = logno;
	q->discards = pg_atomic_read_u64(&log->discards);
	zu_scan_init(&q->scan, logno, extents, n, zuptr_byte(discard), insert, mine->context);
	q->scan.skip_resolved = !any_closed(mine->entry);
	q->scan.current = at;
	mine->queues[logno] = q;
	MemoryContextSwitchTo(old);
	if (at == n)
	{
		zqueue_drop(mine, logno);
		zu_report_changed_map(zuptr_extent(discard));
	}
	return q;
}

/* ---- parsing ---- */

/*
 * Adds a transaction to the end of the queue and returns its item. The item is
 * valid until the next one is added.
 */
static Pending *
push_pending(Discarder *mine, LogQueue *q, ZXid top, Place first)
{
	Pending    *p;

	Assert(q->head <= q->tail && q->tail <= q->size);
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
				q->items = MemoryContextAllocHuge(mine->context, size * sizeof(Pending));
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

/*
 * Adds the extent that the scan has passed over, which begins at start, as one
 * resolved item with the summary in the map.
 */
static void
push_resolved(Discarder *mine, LogQueue *q, UndoPtr start)
{
	const ZuExtent *e = &q->scan.extents[q->scan.current];
	Place		first = {e->sequence, start};
	Pending    *p = push_pending(mine, q, e->oldest_top, first);

	Assert(e->resolved);
	p->max_top = p->max_xid = e->newest;
	p->resolved = true;
	q->skipped = true;
	p->end = zqueue_place(q);
}

/* Remembers that (sub)transaction xid, of item p, has written. */
static void
note_xid(Discarder *mine, Pending *p, ZXid xid)
{
	Assert(p->min_top != InvalidZXid && xid != InvalidZXid);
	if (xid == p->last_xid)
		return;
	p->last_xid = xid;
	p->max_xid = Max(p->max_xid, xid);
	if (xid == p->min_top)
		return;
	if (xid < p->min_top)
	{
		/*
		 * Possible only if the beginning of the transaction was not read, so
		 * that its top-level xid is not known: the lowest xid found is used
		 * instead.
		 */
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
			p->xids = MemoryContextAlloc(mine->context, size * sizeof(ZXid));
		else
			p->xids = repalloc_huge(p->xids, size * sizeof(ZXid));
		p->xids_size = size;
	}
	p->xids[p->nxids++] = xid;
}

/*
 * zqueue_parse: See discard_internal.h. Counts the records and bytes of each
 * transaction on the way, for the rollback and the views.
 */
void
zqueue_parse(Discarder *mine, LogQueue *q, UndoPtr insert)
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
		if (step == ZU_STEP_RESOLVED)
		{
			push_resolved(mine, q, ptr);
			continue;
		}
		if (step != ZU_STEP_RECORD)
			break;

		/*
		 * A record without ZUF_FIRST belongs to the last transaction of the
		 * queue. There are two exceptions, in which the rest of the record's
		 * transaction gets an item of its own. First, the last item may be
		 * resolved already: its transaction wrote this record after the pass
		 * before had read the insert position, and ended before that pass
		 * looked at its state; or the extent before was passed over. Second,
		 * the queue may be empty: the log begins with the rest of a
		 * transaction whose first records were discarded.
		 */
		p = q->tail > q->head ? &q->items[q->tail - 1] : NULL;
		if ((rec.flags & ZUF_FIRST) || p == NULL || p->resolved)
		{
			ZXid		top = zu_scan_topxid(&q->scan, &rec);
			Place		first = {q->scan.extents[q->scan.current].sequence, ptr};

			p = push_pending(mine, q, top, first);
		}
		note_xid(mine, p, rec.xid);
		p->records++;
		p->bytes += rec.length;
		if (rec.type == ZUR_LOCKS)
			p->hold = Max(p->hold, rec.hold);
		p->end = zqueue_place(q);
	}
	if (step == ZU_STEP_CORRUPT)
	{
		/*
		 * The part that has been read, and the other logs, are resolved and
		 * discarded as usual.
		 */
		q->stuck = true;
		zu_close_log(mine->entry, q->scan.logno, zu_scan_position(&q->scan));
	}
	if (step == ZU_STEP_GONE)
		zu_report_changed_map(zuptr_extent(zu_scan_position(&q->scan)));
}
