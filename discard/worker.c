/*
 * discard/worker.c - the undo worker of one database.
 *
 * A dynamic background worker that the launcher starts. Each cycle discards
 * undo that is not needed any more, rolls back the aborted transactions whose
 * undo it reads, and deletes stale entries of zbtree indexes; every few
 * seconds one truncates the free tail of the undo relation. The worker leaves
 * when zundo is not installed in the database, when there has been nothing to
 * do for a while, or when another database needs its place; writers ask for a
 * new one. Each cycle is one transaction without an xid and without a snapshot
 * that lasts; zundo.undo_log is locked in AccessShareLock during it. An error
 * ends the cycle, not the process. Crash points: "worker-cycle", in the
 * cycle's transaction.
 *
 * Its PGPROC carries the autovacuum flag: CREATE DATABASE ... TEMPLATE, DROP
 * DATABASE and the like end the process, and a backend that waits for a table
 * that the worker rolls back cancels the cycle.
 *
 * The worker assigns no xid: its own would hold back the horizon that it
 * computes. Before it leaves it looks once more (REQUEST-2a in
 * undo/undo_request.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/zcount.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "discard/discard_internal.h"
#include "zbtree/queue.h"

#define NAP_BUSY_MS		20		/* while undo goes away */
#define NAP_PINNED_MS	1000	/* longest nap while something holds undo back */
#define NAP_ERROR_MS	1000
#define IDLE_EXIT_MS	10000
#define TRUNCATE_MS		2000	/* between looks at the relation's tail */

PGDLLEXPORT void zundo_worker_main(Datum main_arg);

/* The result of a cycle. */
typedef enum CycleResult
{
	CYCLE_MOVED,				/* undo was discarded */
	CYCLE_PINNED,				/* there is undo, but it must stay */
	CYCLE_IDLE,					/* no undo, rollback or stale entry is left */
	CYCLE_GONE,					/* zundo is not installed here (any more) */
	CYCLE_NO_LOGS,				/* no set of logs is free in shared memory
								 * (zundo.max_databases) */
	CYCLE_FAILED				/* an error has ended it */
} CycleResult;

/*
 * Marks this process as one that the server may end or cancel as it does with
 * an autovacuum worker, or as one that it may not.
 */
static void
set_dispensable(bool dispensable)
{
	if (dispensable == ((MyProc->statusFlags & PROC_IS_AUTOVACUUM) != 0))
		return;
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	if (dispensable)
		MyProc->statusFlags |= PROC_IS_AUTOVACUUM;
	else
		MyProc->statusFlags &= ~PROC_IS_AUTOVACUUM;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/*
 * Makes this process count, or not count any more, as the database's worker in
 * undo/. Called in every cycle, since zundo may have been dropped and created
 * again.
 */
static void
count_me(bool count)
{
	if (count)
		zu_worker_attach();
	else
		zu_worker_detach();
}

/* Exit callback: the process ceases to count as the database's worker. */
static void
uncount_at_exit(int code, Datum arg)
{
	count_me(false);
}

/*
 * Attaches to this database's undo and locks zundo.undo_log (AccessShareLock)
 * in the current transaction. Returns false if zundo is not installed, or is
 * being dropped.
 */
static bool
open_undo(void)
{
	Oid			relid = InvalidOid;

	if (OidIsValid(get_extension_oid("zundo", true)))
		relid = zu_find_relation();
	if (!OidIsValid(relid))
		return false;
	LockRelationOid(relid, AccessShareLock);
	/* It may have been dropped while we waited for the lock. */
	if (zu_find_relation() != relid)
		return false;
	zu_attach_database();
	return true;
}

/*
 * Frees the tail of the undo relation, and overflow pages whose owner does not
 * exist any more, at most once in TRUNCATE_MS. The tail comes first: the search
 * for owners raises an error if a table page cannot be read.
 */
static void
maybe_give_back(void)
{
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (last != 0 && !TimestampDifferenceExceeds(last, now, TRUNCATE_MS))
		return;
	last = now;
	zu_truncate_tail();
	zheap_sweep_overflow();
}

/*
 * Makes a discard pass, and the other work of a cycle, in a transaction that
 * the caller has begun. With count, this process counts as the database's
 * worker from here on.
 */
static CycleResult
run_cycle(bool count, ZWatch *watch)
{
	ZuDiscardStats stats = {0};
	bool		done;
	bool		purged;

	if (!open_undo())
		return CYCLE_GONE;
	if (count)
		count_me(true);
	ZUNDO_FAULT("worker-cycle");

	/*
	 * The catalog snapshot of the look-ups above must not hold the horizon
	 * back.
	 */
	InvalidateCatalogSnapshot();

	/*
	 * A pass that has queued for a table keeps its lock. If a session that
	 * waits for the table could cancel it, one that asks for the lock again
	 * and again would end each pass that takes longer than deadlock_timeout.
	 */
	if (zrollback_queue())
		set_dispensable(false);
	done = zu_discard(ZU_UNDO_ALL, false, &stats);
	if (done)
	{
		zwatch_look(watch, stats.bytes_left);
		zuhistory_look(stats.bytes_left);
	}
	maybe_give_back();
	purged = zkeys_purge();

	/*
	 * Another process is discarding. How much undo it will leave is not known
	 * yet, so stay.
	 */
	if (!done)
		return CYCLE_PINNED;
	if (stats.bytes_discarded > 0 || stats.transactions_discarded > 0 || purged)
		return CYCLE_MOVED;

	/*
	 * Stay while undo is left: perhaps no process will ask for a worker when
	 * the transaction that keeps it ends.
	 */
	if (stats.bytes_left == 0 && stats.aborts_pending == 0 && zkeyqueue_is_empty())
		return CYCLE_IDLE;
	return CYCLE_PINNED;
}

/*
 * Runs a cycle as a transaction of its own and returns its result. An error is
 * logged and ends only the transaction. A cancellation, by a backend that
 * waits for one of our locks, is not logged.
 */
static CycleResult
run_cycle_safely(bool count, MemoryContext context, ZWatch *watch)
{
	volatile CycleResult result = CYCLE_FAILED;
	TimestampTz begun = GetCurrentTimestamp();

	Assert(!IsTransactionState());
	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		pgstat_report_activity(STATE_RUNNING, "discarding undo");
		StartTransactionCommand();
		result = run_cycle(count, watch);
		Assert(!FullTransactionIdIsValid(GetTopFullTransactionIdIfAny()));
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		result = (geterrcode() == ERRCODE_CONFIGURATION_LIMIT_EXCEEDED && !zu_writable())
			? CYCLE_NO_LOGS : CYCLE_FAILED;
		if (geterrcode() != ERRCODE_QUERY_CANCELED)
			EmitErrorReport();

		/*
		 * If memory runs out, an error may leave the handler of a rollback's
		 * subtransaction, which is then still open.
		 */
		AbortOutOfAnyTransaction();
		FlushErrorState();
		QueryCancelPending = false;
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	set_dispensable(true);
	zworkers_report_progress(0, 0, 0, 0);
	MemoryContextSwitchTo(context);
	MemoryContextReset(context);
	if (result != CYCLE_GONE)
	{
		zcount(ZCOUNT_CYCLES, 1);
		zcount(ZCOUNT_CYCLE_TIME, (uint64) (GetCurrentTimestamp() - begun));
		zcount_flush();
	}
	pgstat_report_stat(false);
	pgstat_report_activity(STATE_IDLE, NULL);
	return result;
}

/*
 * Sleeps for ms, or until a request or a signal comes, and handles signals.
 * Does not return after SIGTERM.
 */
static void
nap(long ms, uint32 wait_event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, wait_event);
	ResetLatch(MyLatch);
	if (ProcDiePending)
		proc_exit(1);
	QueryCancelPending = false; /* no cycle is running that could be canceled */
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/*
 * Returns how many milliseconds to sleep after a cycle, given the nap before
 * it.
 */
static long
next_nap(CycleResult result, long previous)
{
	Assert(previous > 0);
	switch (result)
	{
		case CYCLE_MOVED:
			return NAP_BUSY_MS;
		case CYCLE_FAILED:
			return NAP_ERROR_MS;
		default:
			return Min(Max(previous, NAP_BUSY_MS) * 2, NAP_PINNED_MS);
	}
}

/*
 * Makes a last pass after the process has ceased to count as the database's
 * worker (REQUEST-2a). Returns true if the process may exit: there is nothing
 * to do, no request has come, and its entry in the shared table is free.
 */
static bool
try_to_leave(MemoryContext context, ZWatch *watch)
{
	CycleResult result;

	count_me(false);
	result = run_cycle_safely(false, context, watch);
	return (result == CYCLE_IDLE || result == CYCLE_GONE) && zwtable_release(true);
}

/*
 * zundo_worker_main: entry point of a worker; main_arg is the database's OID.
 * Exits when there is nothing left to do, or another database needs its
 * background worker slot.
 */
void
zundo_worker_main(Datum main_arg)
{
	Oid			dboid = DatumGetObjectId(main_arg);
	MemoryContext context;
	uint32		wait_event;
	TimestampTz idle_since = 0;
	long		ms = NAP_BUSY_MS;
	bool		first = true;
	ZWatch		watch = {0};

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	if (IsBinaryUpgrade || !zwtable_claim(dboid))
		proc_exit(0);
	zworkers_force_settings();
	BackgroundWorkerInitializeConnectionByOid(dboid, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	set_dispensable(true);
	pgstat_report_appname("zundo undo worker");
	wait_event = zc_new_wait_event("ZundoWorkerMain");
	before_shmem_exit(uncount_at_exit, (Datum) 0);
	context = AllocSetContextCreate(TopMemoryContext, "zundo undo worker", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);

	for (;;)
	{
		CycleResult result;
		bool		requested = zwtable_take_request();

		if (requested)
			ms = NAP_BUSY_MS;
		result = run_cycle_safely(true, context, &watch);
		if (result == CYCLE_GONE)
		{
			zkeyqueue_forget(dboid);
			(void) zwtable_release(false);
			break;
		}
		if (result == CYCLE_NO_LOGS)
		{
			count_me(false);	/* as below */
			zwtable_give_up(requested);
			break;
		}
		if (result != CYCLE_IDLE || requested)
			idle_since = 0;
		else if (idle_since == 0)
			idle_since = GetCurrentTimestamp();

		/*
		 * A worker that the launcher has started without a request leaves
		 * after one cycle if that found nothing to do.
		 */
		if (idle_since != 0 &&
			(first || TimestampDifferenceExceeds(idle_since, GetCurrentTimestamp(), IDLE_EXIT_MS)))
		{
			if (try_to_leave(context, &watch))
				break;
			idle_since = 0;
		}
		first = false;
		if (zwtable_must_yield(result == CYCLE_PINNED))
		{
			count_me(false);	/* from here on writers ask anew (REQUEST-2a) */
			zwtable_yield();
			break;
		}
		ms = next_nap(result, ms);
		nap(ms, wait_event);
	}
	proc_exit(0);
}
