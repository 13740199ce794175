/*
 * discard/launcher.c - the process that starts undo workers.
 *
 * One per cluster, registered at preload, connected to no database. After its
 * start (so also after a crash, a promotion, a restore) it has a worker look
 * at each database once; after that it sleeps until a process asks for a
 * worker (undo/undo_request.c). Starts one worker at a time.
 *
 * Locks: the LWLock of the request table, and AccessShareLock on pg_database
 * for the time of a scan. Crash points: none.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "discard/discard_internal.h"
#include "zbtree/queue.h"

#define RETRY_MS			3000	/* until the next attempt after a worker
									 * could not be started */
#define POLL_MS				200 /* between looks at whether a starting worker
								 * has come */
#define START_TIMEOUT_MS	30000	/* after which the launcher does not
									 * expect a worker any more */
#define WARN_INTERVAL_MS	60000
#define IDLE_MS				60000

PGDLLEXPORT void zundo_launcher_main(Datum main_arg);

/* The worker that is starting. */
typedef struct Start
{
	Oid			dboid;			/* InvalidOid = none */
	BackgroundWorkerHandle *handle;
	TimestampTz since;
	TimestampTz warned;			/* when it was logged last that no slot is
								 * free, 0 = never */
} Start;

/*
 * zworkers_register: See discard.h. Registers nothing during pg_upgrade, whose
 * servers run no workers of ours.
 */
void
zworkers_register(void)
{
	BackgroundWorker worker = {0};

	if (IsBinaryUpgrade)
		return;
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 5;
	strlcpy(worker.bgw_library_name, "zundo", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "zundo_launcher_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "zundo undo launcher", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "zundo undo launcher", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}

/*
 * Returns the OIDs of the databases that a worker can connect to, as a list in
 * the caller's memory context; closed: also those that accept no connections.
 * Runs a transaction of its own.
 */
static List *
databases(bool closed)
{
	MemoryContext context = CurrentMemoryContext;
	List	   *result = NIL;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	Assert(!IsTransactionState());
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database form = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old;

		if ((!form->datallowconn && !closed) || database_is_invalid_form(form))
			continue;
		old = MemoryContextSwitchTo(context);
		result = lappend_oid(result, form->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(context);
	return result;
}

/*
 * Returns whether a worker can connect to database dboid, for which a session
 * has requested one. The database may accept no connections any more: the
 * sessions that it had stay connected, and their undo must not pile up.
 */
static bool
can_connect(Oid dboid)
{
	List	   *all = databases(true);
	bool		result = list_member_oid(all, dboid);

	list_free(all);
	return result;
}

/* Logs, at most once a minute, that no worker can be started. */
static void
warn_no_slot(Start *start)
{
	TimestampTz now = GetCurrentTimestamp();

	if (start->warned != 0 && !TimestampDifferenceExceeds(start->warned, now, WARN_INTERVAL_MS))
		return;
	start->warned = now;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("no background worker slot is available for a zundo undo worker"),
			 errdetail("Undo is not discarded and large rollbacks are not completed until one "
					   "becomes available."),
			 errhint("Increase \"max_worker_processes\" (currently %d) by one for each database "
					 "that uses zundo.",
					 max_worker_processes)));
}

/*
 * Registers a worker for dboid, which is in state STARTING, with the
 * postmaster and fills *start. Returns false if there is no free slot.
 */
static bool
start_worker(Oid dboid, Start *start)
{
	BackgroundWorker worker = {0};

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION |
		ZC_BGWORKER_INTERRUPTIBLE;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "zundo", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "zundo_worker_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "zundo undo worker for database %u", dboid);
	strlcpy(worker.bgw_type, "zundo undo worker", sizeof(worker.bgw_type));
	worker.bgw_main_arg = ObjectIdGetDatum(dboid);
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &start->handle))
		return false;
	start->dboid = dboid;
	start->since = GetCurrentTimestamp();
	return true;
}

/*
 * Ends the wait for the starting worker when it has claimed its entry, has
 * exited, or has not come in START_TIMEOUT_MS. In the last case the request
 * stays.
 */
static void
check_start(Start *start)
{
	pid_t		pid;

	if (!OidIsValid(start->dboid))
		return;
	if (zwtable_is_starting(start->dboid))
	{
		if (GetBackgroundWorkerPid(start->handle, &pid) == BGWH_STOPPED)
			zwtable_start_failed(start->dboid, true);
		else if (TimestampDifferenceExceeds(start->since, GetCurrentTimestamp(), START_TIMEOUT_MS))
			zwtable_start_failed(start->dboid, false);
		else
			return;
	}
	pfree(start->handle);
	start->dboid = InvalidOid;
}

/*
 * Starts the next wanted worker. If none is wanted, requests one for the first
 * database of 'todo', which is taken off the list. If no background worker
 * slot is free, asks a running worker to leave. Returns how many milliseconds
 * to sleep at most; 0 = do not sleep.
 */
static long
start_next(Start *start, List **todo)
{
	Oid			dboid;

	if (OidIsValid(start->dboid))
		return POLL_MS;
	if (*todo != NIL && !zwtable_has_wanted())
	{
		if (!zwtable_want(linitial_oid(*todo)))
			return RETRY_MS;
		*todo = list_delete_first(*todo);
	}
	dboid = zwtable_next_wanted();
	if (!OidIsValid(dboid))
		return zwtable_has_wanted() ? RETRY_MS : *todo == NIL ? IDLE_MS : POLL_MS;
	if (!can_connect(dboid))
	{
		zkeyqueue_forget(dboid);
		zwtable_start_failed(dboid, true);
		return 0;
	}
	if (!start_worker(dboid, start))
	{
		zwtable_start_failed(dboid, false);
		if (zwtable_ask_to_yield())
			return POLL_MS;
		warn_no_slot(start);
		return RETRY_MS;
	}
	return POLL_MS;
}

/* Exit callback: keeps later requests from waking this process. */
static void
forget_launcher(int code, Datum arg)
{
	zwtable_set_launcher(false);
}

/*
 * zundo_launcher_main: entry point of the launcher. Never returns: the process
 * ends by a signal, with the postmaster, or by an error, after which the
 * postmaster starts it again in five seconds.
 */
void
zundo_launcher_main(Datum main_arg)
{
	MemoryContext context;
	List	   *todo;
	TimestampTz listed;			/* when todo was filled last */
	bool		rescan = false; /* todo is to be filled again */
	Start		start = {0};
	uint32		wait_event;

	pqsignal(SIGTERM, die);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	BackgroundWorkerUnblockSignals();
	zworkers_force_settings();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	wait_event = zc_new_wait_event("ZundoLauncherMain");

	context = AllocSetContextCreate(TopMemoryContext, "zundo launcher", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(context);
	before_shmem_exit(forget_launcher, (Datum) 0);
	zwtable_set_launcher(true);
	todo = databases(false);
	listed = GetCurrentTimestamp();

	for (;;)
	{
		long		timeout;

		if (ProcDiePending)
			proc_exit(1);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		check_start(&start);

		/*
		 * While the table is full, requests come in faster than workers serve
		 * them: the databases are listed again at most once in RETRY_MS.
		 */
		rescan = zwtable_rescan_wanted() || rescan;
		if (rescan && todo == NIL &&
			TimestampDifferenceExceeds(listed, GetCurrentTimestamp(), RETRY_MS))
		{
			todo = databases(false);
			listed = GetCurrentTimestamp();
			rescan = false;
		}
		timeout = start_next(&start, &todo);
		if (rescan)
			timeout = Min(timeout, RETRY_MS);
		pgstat_report_activity(STATE_IDLE, NULL);
		if (timeout == 0)
			continue;
		(void) WaitLatch(MyLatch,
						 WL_LATCH_SET | WL_EXIT_ON_PM_DEATH | WL_TIMEOUT,
						 timeout, wait_event);
		ResetLatch(MyLatch);
	}
}
