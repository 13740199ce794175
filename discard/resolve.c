/*
 * discard/resolve.c - which transactions have ended, and undoing aborted ones.
 *
 * Called by pass.c for each log that has been parsed.
 *
 * Locks: none of its own; see zrollback_xact.c. Crash points: none.
 *
 * Invariant
 *	UNDO-52	an extent is marked as resolved in the map only if each of its
 *		records is of a resolved transaction, with hold < H, and no record was
 *		discarded before: then the extent's summary is all that the discard
 *		pass needs, after a restart too.
 */
#include "postgres.h"

#include "access/transam.h"
#include "discard/discard_internal.h"
#include "miscadmin.h"
#include "mvcc/zcommitted.h"
#include "mvcc/zxid.h"
#include "storage/procarray.h"
#include "utils/memutils.h"

/* Resolved neighbours are merged if they span at most this many bytes. */
#define MERGE_BYTES			(64 * 1024)
/* ZU_UNDO_SMALL undoes aborted transactions of at most this many records. */
#define SMALL_ABORT_RECORDS 10000

/*
 * Returns whether p's top-level transaction or one of its subtransactions has
 * aborted. The top-level transaction has ended. Xids below `oldest` are
 * resolved and not looked up. Commits found here are noted in shared memory, so
 * that readers need not read clog for them (VIS-9).
 */
static bool
has_aborted(const Pending *p, ZXid oldest)
{
	if (p->min_top < oldest)
		return false;
	if (!zxid_ended_committed(p->min_top))
		return true;
	for (int i = 0; i < p->nxids; i++)
		if (p->xids[i] >= oldest && !zxid_ended_committed(p->xids[i]))
			return true;
	return false;
}

/*
 * Returns p's ZuAbort, which is made on the first call and stays until p is
 * resolved. Brings its counts up to date, since p may have been parsed further;
 * then the records have to be read again.
 */
static ZuAbort *
abort_of(const Pass *pass, Pending *p, uint32 logno)
{
	Assert(!p->resolved);
	if (p->abort == NULL)
	{
		p->abort = MemoryContextAllocZero(pass->mine->context, sizeof(ZuAbort));
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

/*
 * Undoes an aborted transaction if the pass undoes ones of its size. Returns
 * whether it is undone on every page.
 */
static bool
undo_abort(const Pass *pass, ZuAbort *abort)
{
	if (pass->which == ZU_UNDO_NONE ||
		(pass->which == ZU_UNDO_SMALL && abort->records > SMALL_ABORT_RECORDS))
		return false;
	return zrollback_transaction(abort);
}

/*
 * Resolves p if its transaction has ended and, as far as it has aborted, is
 * undone on every page.
 */
static void
resolve(const Pass *pass, Pending *p, uint32 logno)
{
	ZXid		oldest = pg_atomic_read_u64(&pass->entry->oldest);

	Assert(!p->resolved);

	/*
	 * Test this before has_aborted reads clog: a transaction is marked there
	 * before it leaves the server's array of running ones.
	 */
	if (p->min_top >= oldest && !zcommitted_known(p->min_top) &&
		TransactionIdIsInProgress(zxid_to_xid(p->min_top)))
		return;
	if (has_aborted(p, oldest))
	{
		ZuAbort    *abort = abort_of(pass, p, logno);

		if (!undo_abort(pass, abort))
		{
			pass->stats->aborts_pending++;
			return;
		}
		p->undone = 1;
		zu_note_resolved(pass->mine->resolved, p->min_top, logno, pass->mine->context);
		for (int i = 0; i < p->nxids; i++)
			zu_note_resolved(pass->mine->resolved, p->xids[i], logno, pass->mine->context);
	}
	zqueue_free_details(p);
	p->resolved = true;
}

/*
 * Returns whether two resolved neighbours are small and in one extent, so that
 * they may become one item. An item that counts for `oldest` although it is
 * resolved (UNDO-18) stays alone as long as it counts: merged, it would count
 * with the lowest xid of its neighbours.
 */
static bool
mergeable(const Pending *a, const Pending *b, ZXid horizon)
{
	return a->resolved && b->resolved && a->first.sequence == b->end.sequence &&
		a->hold < horizon && b->hold < horizon &&
		zuptr_byte(b->end.ptr) - zuptr_byte(a->first.ptr) <= MERGE_BYTES;
}

/*
 * zresolve_queue: See discard_internal.h. Merging keeps a queue short while an
 * old snapshot retains the undo of many small transactions.
 */
void
zresolve_queue(const Pass *pass, LogQueue *q)
{
	int			out = q->head;

	Assert(pg_atomic_read_u32(&pass->entry->discarder) == (uint32) MyProcPid);
	for (int i = q->head; i < q->tail; i++)
	{
		if (!q->items[i].resolved)
		{
			CHECK_FOR_INTERRUPTS();
			resolve(pass, &q->items[i], q->logno);
		}
	}
	for (int i = q->head + 1; i < q->tail; i++)
	{
		Pending    *last = &q->items[out];
		Pending    *p = &q->items[i];

		if (mergeable(last, p, pass->horizon))
		{
			last->min_top = Min(last->min_top, p->min_top);
			last->max_top = Max(last->max_top, p->max_top);
			last->max_xid = Max(last->max_xid, p->max_xid);
			last->hold = Max(last->hold, p->hold);
			last->end = p->end;
			last->count += p->count;
			last->undone += p->undone;
		}
		else if (++out != i)
			q->items[out] = *p;
	}
	if (q->tail > q->head)
		q->tail = out + 1;
}

/*
 * zresolve_mark_extents: See discard_internal.h. Another process that discards
 * need not read these extents then. Leaves out the extent in which the discard
 * pointer lies, since its summary would not cover the records that were
 * discarded.
 */
void
zresolve_mark_extents(const Pass *pass, LogQueue *q)
{
	ZuScan	   *scan = &q->scan;
	ZuLog	   *log = zpass_log(pass, q);
	UndoPtr		discard = pg_atomic_read_u64(&log->discard);
	uint64		from = pg_atomic_read_u64(&log->discard_sequence);
	ZuExtent   *resolved = NULL;
	int			n = 0;
	int			item = q->head;

	Assert(pg_atomic_read_u32(&pass->entry->discarder) == (uint32) MyProcPid);
	if (zuptr_byte(discard) > ZU_PAGE_DATA)
		from++;
	for (int i = 0; i < scan->current; i++)
	{
		ZuExtent   *e = &scan->extents[i];
		bool		all = false;

		/*
		 * an extent that the log has never entered has no end, and no summary
		 */
		if (e->resolved || e->end == 0 || e->sequence < from)
			continue;
		while (item < q->tail && q->items[item].end.sequence < e->sequence)
			item++;
		e->newest = InvalidZXid;
		for (int j = item; j < q->tail && q->items[j].first.sequence <= e->sequence; j++)
		{
			const Pending *p = &q->items[j];

			all = p->resolved && p->hold < pass->horizon;
			if (!all)
				break;
			e->oldest_top = e->newest == InvalidZXid ? p->min_top : Min(e->oldest_top, p->min_top);
			e->newest = Max(e->newest, Max(p->hold, Max(p->max_top, p->max_xid)));
		}
		if (!all)
			continue;
		for (int j = item; j < q->tail && q->items[j].first.sequence <= e->sequence; j++)
			zqueue_count_undone(&q->items[j]);
		e->resolved = true;
		if (resolved == NULL)
			resolved = palloc(scan->current * sizeof(ZuExtent));
		resolved[n++] = *e;
	}
	if (n > 0)
	{
		zu_mark_resolved(resolved, n);
		pfree(resolved);
	}
}
