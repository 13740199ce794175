/*
 * discard/pass.c - the discard pass: horizon, `oldest`, and the order of a
 * pass.
 *
 * Owns what this process remembers from pass to pass (Discarder). Called by
 * workers, VACUUM, rewrites and the monitor.
 *
 * Locks: the entry's discarder flag for a whole pass. It is not an LWLock:
 * undoing aborted transactions takes long and must be interruptible.
 *
 * Crash points: "log-parsed", after each log, and those of free.c.
 *
 * Invariants
 *	UNDO-7	undo is given back only when nobody can need it:
 *		(a) records of a transaction are discarded only if it is resolved -
 *			each of its (sub)transactions has committed, or has aborted and was
 *			undone on every page - and all their xids, the subtransactions'
 *			too, are < the new `oldest`;
 *		(b) a LOCKS record is kept, also, until the youngest transaction that
 *			it, or a record below it in its chain, names is < the new `oldest`:
 *			until then that one may be in progress, or prepared;
 *		(c) an extent becomes FREE only after `oldest` has passed, in shared
 *			memory, everything that it held.
 *		So a reader that finds a record discarded knows that its xid <
 *		`oldest`, and an aborted transaction that cannot be undone yet keeps
 *		the undo of all younger ones, in every log. Example: 100 has aborted,
 *		and its table is locked; the undo of 101, committed long ago, stays.
 *	UNDO-18	`oldest` is the least of
 *		(a) H, the horizon. It is taken before the insert positions are read,
 *			so a transaction not yet seen has an xid >= H;
 *		(b) the first unresolved top xid of each log;
 *		(c) the xid of each finished transaction of which LOCKS records name a
 *			transaction >= H, because readers of these records ask how their
 *			author ended. It is not merged with others in its queue;
 *		(d) the hold of each closed log that may still be needed (UNDO-37);
 *		(e) what readers of old versions hold (zu_hold). It is chosen last, in
 *			one step with the look at these: a reader that begins later takes
 *			what was chosen for its horizon.
 *		Other finished transactions whose undo is still retained do not count:
 *		merged entries of different logs overlap, so `oldest` would not
 *		advance. Example: H is 120, and 100, aborted, is not undone yet:
 *		`oldest` is 100, whatever has committed since.
 *	UNDO-19	before the new `oldest` is published
 *		(a) if a transaction has come below `oldest` since the last DISCARD
 *			record, one is logged whose conflict horizon covers all of these;
 *		(b) if `oldest` rises, all WAL is flushed, so that no crash takes back
 *			a commit before it. Otherwise the mark of a dead index entry, which
 *			is not logged, could reach the disk before the commit record of its
 *			deleter (synchronous_commit = off): after a crash the row would be
 *			there again, and the mark would hide it.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "common/zcount.h"
#include "discard/discard_internal.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/procarray.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* How long to wait for a pass of the worker, and between two looks at it. */
#define BY_WORKER_WAIT_MS	1000
#define BY_WORKER_NAP_MS	1

static Discarder my;

/*
 * Returns the highest `oldest` that UNDO-18 and UNDO-37 allow. All logs have
 * been parsed.
 */
static ZXid
new_oldest(const Pass *pass)
{
	ZXid		oldest = pass->horizon;

	Assert(pass->horizon != InvalidZXid);
	for (int logno = 0; logno < zu_nlogs(); logno++)
	{
		LogQueue   *q = pass->mine->queues[logno];
		ZuLog	   *log;

		if (q == NULL)
			continue;
		log = zpass_log(pass, q);
		if (unlikely(log->closed))
		{
			pg_read_barrier();	/* log->hold was written before */
			q->needless = zu_damage_is_needless(log, logno, pass->horizon, pass->mine->resolved,
												&q->checked);
			if (!q->needless)
				oldest = Min(oldest, log->hold);
		}
		for (int i = q->head; i < q->tail; i++)
			if (!q->items[i].resolved || q->items[i].hold >= pass->horizon)
				oldest = Min(oldest, q->items[i].min_top);
	}
	return oldest;
}

/*
 * Adds a hold to an array of n, sorted by xid, behind those of the same xid.
 * If the array is full, the hold with the highest xid is dropped.
 */
static void
add_hold(ZuHold *holds, int *n, const ZuHold *hold)
{
	int			at = *n;

	Assert(at <= ZU_MAX_HOLDS);
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
 * Adds the holds of a transaction that is not undone: one for each table that
 * is noted as locked or damaged, or one without a table. hold is filled but for
 * what only rollbacks have.
 */
static void
add_rollback(ZuHold *holds, int *n, ZuHold hold, const Pending *p)
{
	const ZuAbort *abort = p->abort;

	Assert(abort->nstalled <= ZU_MAX_STALLED);
	hold.kind = ZU_HOLD_ROLLBACK;
	hold.records = p->records;
	hold.bytes = p->bytes;
	if (abort->nstalled == 0)
		add_hold(holds, n, &hold);
	for (int i = 0; i < abort->nstalled; i++)
	{
		hold.reloid = abort->stalled[i].blocked;
		hold.failed = abort->stalled[i].not_before != 0;
		add_hold(holds, n, &hold);
	}
}

/*
 * Stores in the shared entry what has kept `oldest` below the horizon, for
 * zundo.stat_horizon. Leaves out transactions in progress, since the server's
 * own views name them.
 */
static void
publish_holds(const Pass *pass)
{
	ZuEntry    *entry = pass->entry;
	ZuHold		holds[ZU_MAX_HOLDS];
	int			n = 0;

	for (int log = 0; log < zu_nlogs(); log++)
	{
		const LogQueue *q = pass->mine->queues[log];

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
				add_rollback(holds, &n, hold, p);
			else if (p->resolved && p->hold >= pass->horizon)
				add_hold(holds, &n, &hold);
		}
	}
	SpinLockAcquire(&entry->mutex);
	entry->nholds = n;
	memcpy(entry->holds, holds, n * sizeof(ZuHold));
	SpinLockRelease(&entry->mutex);
}

/*
 * Returns the horizon H of this database, never less than in an earlier pass,
 * or InvalidZXid if it cannot be computed. Locks zundo.undo_log
 * (AccessShareLock, to the end of the transaction).
 */
static ZXid
take_horizon(ZuEntry *entry)
{
	Relation	rel = table_open(zu_my.reloid, AccessShareLock);
	ZXid		horizon = InvalidZXid;

	/*
	 * for a relation that this transaction has created the server returns the
	 * horizon of a temporary table
	 */
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

/*
 * Reads all logs up to their insert positions and resolves the transactions
 * that have ended. The insert position is read before the log's extents are
 * listed, so the list has all extents up to it.
 */
static void
parse_logs(const Pass *pass)
{
	Assert(pg_atomic_read_u32(&pass->entry->discarder) == (uint32) MyProcPid);
	Assert(pass->horizon != InvalidZXid);	/* taken before, by UNDO-18 */
	for (int i = 0; i < zu_nlogs(); i++)
	{
		UndoPtr		insert = pg_atomic_read_u64(&pass->entry->logs[i].insert);
		LogQueue   *q;

		if (insert == InvalidUndoPtr)
		{
			zqueue_drop(pass->mine, i);
			continue;
		}
		pg_read_barrier();
		q = zqueue_open(pass->mine, i, insert);
		if (q->seen_insert != insert)
		{
			q->seen_insert = insert;
			q->seen_since = GetCurrentTimestamp();
		}
		zqueue_parse(pass->mine, q, insert);
		ZUNDO_FAULT("log-parsed");
		zresolve_queue(pass, q);
	}
}

/*
 * Returns the end of what has been inserted into WAL. If the next record
 * begins a page, GetXLogInsertRecPtr returns a position after the page's
 * header, which no flush can reach yet.
 */
static XLogRecPtr
inserted_wal(void)
{
	XLogRecPtr	ptr = GetXLogInsertRecPtr();

	if (XLogSegmentOffset(ptr, wal_segment_size) == SizeOfXLogLongPHD)
		return ptr - SizeOfXLogLongPHD;
	if (ptr % XLOG_BLCKSZ == SizeOfXLogShortPHD)
		return ptr - SizeOfXLogShortPHD;
	return ptr;
}

/*
 * Makes one pass, in the order that UNDO-7, UNDO-18 and UNDO-19 demand. Does
 * nothing if the horizon is not known. This process has the discarder flag.
 */
static void
discard_pass(Pass *pass)
{
	ZuEntry    *entry = pass->entry;
	LogQueue  **queues;
	ZXid		oldest;
	uint64		before = zu_bytes_in_use();

	Assert(pg_atomic_read_u32(&entry->discarder) == (uint32) MyProcPid);
	pass->horizon = take_horizon(entry);
	if (pass->horizon == InvalidZXid)
		return;
	zqueue_prepare(pass->mine, entry);
	zqueue_read_all_if_closed(pass->mine);
	parse_logs(pass);
	queues = pass->mine->queues;
	oldest = zu_choose_oldest(new_oldest(pass));
	Assert(oldest <= pass->horizon);	/* UNDO-18 */
	publish_holds(pass);
	for (int i = 0; i < zu_nlogs(); i++)
		if (queues[i] != NULL)
			zfree_prefix(pass, queues[i], oldest);
	zfreeze_advance(entry);		/* WAL records of this pass carry it */

	/*
	 * The DISCARD record must come first in WAL: from the moment `oldest` is
	 * published, slots are reused and rows pruned in WAL records that rely on
	 * it (UNDO-19).
	 */
	if (pg_atomic_read_u64(&entry->conflict) != InvalidZXid)
		zu_log_oldest(oldest);
	Assert(pg_atomic_read_u64(&entry->conflict) == InvalidZXid);	/* UNDO-19 */
	if (oldest > pg_atomic_read_u64(&entry->oldest))
		XLogFlush(inserted_wal());	/* UNDO-19b */
	/* UNDO-7: publish before anything becomes allocatable */
	zu_max64(&entry->oldest, oldest);
	zfree_extents(pass, oldest);
	for (int i = 0; i < zu_nlogs(); i++)
		if (queues[i] != NULL && pg_atomic_read_u64(&entry->logs[i].insert) != InvalidUndoPtr)
			zresolve_mark_extents(pass, queues[i]);
	zu_forget_resolved(pass->mine->resolved, oldest);
	zfreeze_log_if_due(entry, pg_atomic_read_u64(&entry->oldest));
	pass->stats->bytes_left = zu_bytes_in_use();
	zcount(ZCOUNT_DISCARDED, pass->stats->bytes_discarded);
	zcount_kept(before);
}

/*
 * zu_discard: See discard.h. The discarder flag admits one process at a time.
 * An error, which may leave the queues half changed, drops them, and ends a
 * subtransaction that it has left open.
 */
bool
zu_discard(ZuUndoAborts which, bool every_log, ZuDiscardStats *stats)
{
	Pass		pass = {.mine = &my,.which = which,.every_log = every_log,.stats = stats};
	ZuEntry    *entry;
	uint32		nobody = 0;
	uint32		number;
	int			level = GetCurrentTransactionNestLevel();

	memset(stats, 0, sizeof(*stats));
	zu_attach_database();
	if (RecoveryInProgress())
		return false;
	zu_require_logs();
	pass.entry = entry = zu_my.entry;
	if (!pg_atomic_compare_exchange_u32(&entry->discarder, &nobody, (uint32) MyProcPid))
		return false;
	number = pg_atomic_add_fetch_u32(&entry->passes_begun, 1);
	PG_TRY();
	{
		discard_pass(&pass);
	}
	PG_CATCH();
	{
		/* parse all again in the next pass */
		zqueue_forget_all(&my);
		zu_end_discard(entry);

		/*
		 * If memory runs out, an error may leave the handler of a rollback's
		 * subtransaction, which is then still open. A client's session would
		 * stay in it: its next statements, and its ROLLBACK, would fail.
		 */
		while (GetCurrentTransactionNestLevel() > level)
			RollbackAndReleaseCurrentSubTransaction();
		PG_RE_THROW();
	}
	PG_END_TRY();
	pg_atomic_write_u32(&entry->passes_done, number);
	zu_end_discard(entry);
	stats->oldest = zu_oldest();
	return true;
}

/* zu_oldest_is_horizon: See discard.h. */
bool
zu_oldest_is_horizon(void)
{
	ZXid		horizon;

	zu_attach_database();
	if (RecoveryInProgress())
		return false;
	horizon = take_horizon(zu_my.entry);
	return horizon != InvalidZXid && zu_oldest() >= horizon;
}

/*
 * zu_discard_by_worker: See discard.h. Wakes the worker and compares the
 * numbers of passes begun and done until a pass with a higher number than the
 * last one begun has ended.
 */
bool
zu_discard_by_worker(void)
{
	ZuEntry    *entry;
	TimestampTz since = GetCurrentTimestamp();
	uint32		begun;

	zu_attach_database();
	entry = zu_my.entry;
	begun = pg_atomic_read_u32(&entry->passes_begun);
	for (;;)
	{
		/*
		 * a pass that began before the call may have missed what has ended
		 * since
		 */
		if ((int32) (pg_atomic_read_u32(&entry->passes_done) - begun) > 0)
		{
			pg_read_barrier();	/* the caller reads what the pass has written */
			return true;
		}
		if (pg_atomic_read_u32(&entry->worker) == 0 ||
			TimestampDifferenceExceeds(since, GetCurrentTimestamp(), BY_WORKER_WAIT_MS))
			return false;
		zworkers_wake(MyDatabaseId);
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, BY_WORKER_NAP_MS,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}
