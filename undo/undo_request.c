/*
 * undo/undo_request.c - requests for undo workers, and which worker serves
 * which database.
 *
 * Owns a small array in shared memory under one LWLock (a leaf: nothing is
 * locked while it is held). Called by any backend (requests, progress), the
 * launcher and the workers of discard/. Lost in a crash; the launcher then
 * looks at every database.
 *
 * There is at most one entry per database, and at most one worker per entry.
 *
 * Invariant:
 *	REQUEST-2	no request is lost:
 *		(a) one that is made while a worker runs is seen by that worker before
 *			its entry becomes free, or leaves the entry WANTED. Before a worker
 *			leaves because there is nothing to do, it ceases to count as the
 *			database's worker, and then looks once more: it sees what was
 *			written before, and a process that writes afterwards asks for a new
 *			worker. A worker that gives up (zwtable_give_up) frees its entry in
 *			any case; then a request makes the launcher look at all databases
 *			again;
 *		(b) a worker that has begun its first cycle and is ended by force
 *			leaves its entry WANTED: no other process may know of the undo that
 *			is left;
 *		(c) so does one that yields its slot: its database gets a worker again
 *			when others have had their turn.
 *		Example: the worker finds nothing to do. A session writes undo and,
 *		since the worker still counts, asks for none. The worker ceases to
 *		count, looks again, and stays.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "undo/undo_request.h"
#include "utils/timestamp.h"

/*
 * How long a database gets no new worker after its worker was ended by force,
 * which CREATE DATABASE ... TEMPLATE and the like do and need time for, or has
 * yielded its background worker slot to another database.
 */
#define ZWORKER_RESPITE_MS	3000

/*
 * How long a worker stays before it must yield its background worker slot to
 * another database: one whose last cycle could give nothing back, and one that
 * makes progress.
 */
#define ZWORKER_TURN_MS			3000
#define ZWORKER_LONG_TURN_MS	30000

/* How long a worker that was asked to yield may take to leave. */
#define YIELD_TIME_MS	1000

typedef struct WorkerEntry
{
	Oid			dboid;
	ZWorkerState state;
	bool		requested;		/* a backend has asked for a worker since the
								 * worker last looked */
	TimestampTz not_before;		/* WANTED: no worker is started before this
								 * time (ZWORKER_RESPITE_MS) */
	int			pid;			/* RUNNING */
	Latch	   *latch;			/* RUNNING */
	TimestampTz since;			/* RUNNING: when the worker claimed the entry */
	bool		pinned;			/* RUNNING: its last cycle could give nothing
								 * back */
	bool		must_yield;		/* RUNNING: another database needs its
								 * background worker slot */
	uint64		xid;			/* transaction being rolled back, 0 = none */
	uint64		records_done;
	uint64		records_total;
	uint64		bytes;
} WorkerEntry;

typedef struct WorkerTable
{
	LWLock		lock;
	int			tranche;
	bool		rescan;			/* the launcher must look at all databases: a
								 * request found the table full, or a worker
								 * gave up */
	Latch	   *launcher;		/* NULL = none runs */
	TimestampTz yield_asked;	/* when a worker was last asked to yield */
	int			next;			/* entry to start next if it is wanted: round
								 * robin, so that no database starves */
	int			nentries;
	WorkerEntry entries[FLEXIBLE_ARRAY_MEMBER];
} WorkerTable;

/* What this process knows of the table, and a worker of its entry. */
typedef struct MyWorker
{
	WorkerTable *table;			/* NULL = shared memory is not set up */
	WorkerEntry *entry;			/* NULL = this process is no worker */
	bool		at_work;		/* the worker has begun its first cycle */
} MyWorker;

static MyWorker my;

Size
zworkers_shmem_size(void)
{
	return add_size(offsetof(WorkerTable, entries),
					mul_size(zundo_max_databases, sizeof(WorkerEntry)));
}

/* zworkers_shmem_startup: See undo_request.h. */
void
zworkers_shmem_startup(void)
{
	bool		found;

	my.table = ShmemInitStruct("zundo workers", zworkers_shmem_size(), &found);
	if (!found)
	{
		memset(my.table, 0, zworkers_shmem_size());
		my.table->tranche = zc_new_tranche("zundo_workers");
		LWLockInitialize(&my.table->lock, my.table->tranche);
		my.table->nentries = zundo_max_databases;
	}
	zc_register_tranche(my.table->tranche, "zundo_workers");
}

/* Returns the entry of the database that is not FREE, or NULL. Lock held. */
static WorkerEntry *
find_entry(Oid dboid)
{
	Assert(LWLockHeldByMe(&my.table->lock));
	for (int i = 0; i < my.table->nentries; i++)
		if (my.table->entries[i].state != ZWORKER_FREE && my.table->entries[i].dboid == dboid)
			return &my.table->entries[i];
	return NULL;
}

/*
 * Returns a free entry, cleared and set to dboid; NULL if there is none. Lock
 * held exclusively. The caller sets its state.
 */
static WorkerEntry *
take_entry(Oid dboid)
{
	Assert(LWLockHeldByMeInMode(&my.table->lock, LW_EXCLUSIVE));
	for (int i = 0; i < my.table->nentries; i++)
		if (my.table->entries[i].state == ZWORKER_FREE)
		{
			memset(&my.table->entries[i], 0, sizeof(WorkerEntry));
			my.table->entries[i].dboid = dboid;
			return &my.table->entries[i];
		}
	return NULL;
}

/*
 * zworkers_wake: See undo_request.h. Wakes the database's worker if it is
 * running, otherwise the launcher. If the table is full, has the launcher look
 * at all databases again.
 */
void
zworkers_wake(Oid dboid)
{
	WorkerEntry *entry;
	Latch	   *latch;

	if (my.table == NULL || !OidIsValid(dboid))
		return;
	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	latch = my.table->launcher;
	entry = find_entry(dboid);
	if (entry == NULL)
	{
		entry = take_entry(dboid);
		if (entry == NULL)
			my.table->rescan = true;
		else
			entry->state = ZWORKER_WANTED;
	}
	else if (entry->state == ZWORKER_RUNNING)
		latch = entry->latch;
	if (entry != NULL)
		entry->requested = true;
	if (latch != NULL)
		SetLatch(latch);
	LWLockRelease(&my.table->lock);
}

/*
 * zwtable_set_launcher: See undo_request.h. A worker that the last launcher
 * has started but that has not arrived is WANTED again.
 */
void
zwtable_set_launcher(bool is_launcher)
{
	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	my.table->launcher = is_launcher ? MyLatch : NULL;
	for (int i = 0; i < my.table->nentries; i++)
		if (my.table->entries[i].state == ZWORKER_STARTING)
			my.table->entries[i].state = ZWORKER_WANTED;
	LWLockRelease(&my.table->lock);
}

bool
zwtable_rescan_wanted(void)
{
	bool		rescan;

	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	rescan = my.table->rescan;
	my.table->rescan = false;
	LWLockRelease(&my.table->lock);
	return rescan;
}

/*
 * zwtable_want: See undo_request.h. Leaves an entry that exists as it is: its
 * worker is running or will be started.
 */
bool
zwtable_want(Oid dboid)
{
	WorkerEntry *entry;

	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	entry = find_entry(dboid);
	if (entry == NULL)
	{
		entry = take_entry(dboid);
		if (entry != NULL)
			entry->state = ZWORKER_WANTED;
	}
	LWLockRelease(&my.table->lock);
	return entry != NULL;
}

/*
 * zwtable_next_wanted: See undo_request.h. Goes round robin, so that no
 * database starves.
 */
Oid
zwtable_next_wanted(void)
{
	TimestampTz now = GetCurrentTimestamp();
	Oid			dboid = InvalidOid;

	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < my.table->nentries && !OidIsValid(dboid); i++)
	{
		WorkerEntry *entry = &my.table->entries[my.table->next++ % my.table->nentries];

		if (entry->state == ZWORKER_WANTED && entry->not_before <= now)
		{
			entry->state = ZWORKER_STARTING;
			dboid = entry->dboid;
		}
	}
	my.table->next %= Max(my.table->nentries, 1);
	LWLockRelease(&my.table->lock);
	return dboid;
}

bool
zwtable_has_wanted(void)
{
	bool		found = false;

	LWLockAcquire(&my.table->lock, LW_SHARED);
	for (int i = 0; i < my.table->nentries; i++)
		found |= (my.table->entries[i].state == ZWORKER_WANTED);
	LWLockRelease(&my.table->lock);
	return found;
}

bool
zwtable_is_starting(Oid dboid)
{
	WorkerEntry *entry;
	bool		starting;

	LWLockAcquire(&my.table->lock, LW_SHARED);
	entry = find_entry(dboid);
	starting = (entry != NULL && entry->state == ZWORKER_STARTING);
	LWLockRelease(&my.table->lock);
	return starting;
}

void
zwtable_start_failed(Oid dboid, bool give_up)
{
	WorkerEntry *entry;

	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	entry = find_entry(dboid);
	if (entry != NULL && entry->state == ZWORKER_STARTING)
		entry->state = give_up ? ZWORKER_FREE : ZWORKER_WANTED;
	LWLockRelease(&my.table->lock);
}

/*
 * Exit callback of a worker: whatever has happened, the database must be able
 * to get a worker again. If a worker in the middle of its work ends this way,
 * its entry becomes WANTED after a respite (REQUEST-2b).
 */
static void
release_at_exit(int code, Datum arg)
{
	if (my.entry == NULL)
		return;
	if (my.at_work)
	{
		LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
		my.entry->requested = true;
		my.entry->not_before = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
														   ZWORKER_RESPITE_MS);
		LWLockRelease(&my.table->lock);
	}
	(void) zwtable_release(false);
}

/*
 * zwtable_claim: See undo_request.h. Also registers the exit callback, and
 * wakes the launcher, which may start the next worker.
 */
bool
zwtable_claim(Oid dboid)
{
	WorkerEntry *entry;

	Assert(my.entry == NULL);
	before_shmem_exit(release_at_exit, (Datum) 0);
	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	entry = find_entry(dboid);
	if (entry == NULL)
		entry = take_entry(dboid);
	else if (entry->state == ZWORKER_RUNNING)
		entry = NULL;
	if (entry != NULL)
	{
		entry->state = ZWORKER_RUNNING;
		entry->pid = MyProcPid;
		entry->latch = MyLatch;
		entry->since = GetCurrentTimestamp();
		entry->pinned = entry->must_yield = false;
		my.entry = entry;
		if (my.table->launcher != NULL)
			SetLatch(my.table->launcher);
	}
	Assert(entry == NULL || find_entry(dboid) == entry);
	LWLockRelease(&my.table->lock);
	return entry != NULL;
}

/*
 * zwtable_take_request: See undo_request.h. The first call notes that the
 * worker has begun to work (REQUEST-2b).
 */
bool
zwtable_take_request(void)
{
	bool		requested;

	Assert(my.entry != NULL && my.entry->state == ZWORKER_RUNNING);
	my.at_work = true;
	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	requested = my.entry->requested;
	my.entry->requested = false;
	my.entry->not_before = 0;
	LWLockRelease(&my.table->lock);
	return requested;
}

/*
 * zwtable_ask_to_yield: See undo_request.h. Asks at most one worker per
 * YIELD_TIME_MS. Returns true also if one was asked in that time.
 */
bool
zwtable_ask_to_yield(void)
{
	TimestampTz now = GetCurrentTimestamp();
	WorkerEntry *best = NULL;
	bool		asked;

	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);

	/*
	 * a worker that was asked a moment ago may be leaving while its slot is
	 * not free yet
	 */
	asked = !TimestampDifferenceExceeds(my.table->yield_asked, now, YIELD_TIME_MS);
	for (int i = 0; i < my.table->nentries; i++)
	{
		WorkerEntry *entry = &my.table->entries[i];
		int			turn = entry->pinned ? ZWORKER_TURN_MS : ZWORKER_LONG_TURN_MS;

		if (entry->state != ZWORKER_RUNNING)
			continue;

		/*
		 * a worker that was asked earlier and has not left yet does not
		 * prevent another one from being asked
		 */
		if (!entry->must_yield && TimestampDifferenceExceeds(entry->since, now, turn) &&
			(best == NULL || entry->pinned > best->pinned ||
			 (entry->pinned == best->pinned && entry->since < best->since)))
			best = entry;
	}
	if (best != NULL && !asked)
	{
		best->must_yield = asked = true;
		my.table->yield_asked = now;
		SetLatch(best->latch);
	}
	LWLockRelease(&my.table->lock);
	return asked;
}

bool
zwtable_must_yield(bool pinned)
{
	bool		must;

	Assert(my.entry != NULL && my.entry->state == ZWORKER_RUNNING);
	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	my.entry->pinned = pinned;
	must = my.entry->must_yield;
	LWLockRelease(&my.table->lock);
	return must;
}

/*
 * zwtable_yield: See undo_request.h. Notes a request of its own, so the entry
 * becomes WANTED (REQUEST-2c).
 */
void
zwtable_yield(void)
{
	Assert(my.entry != NULL);
	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	my.entry->requested = true;
	my.entry->not_before = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ZWORKER_RESPITE_MS);
	LWLockRelease(&my.table->lock);
	(void) zwtable_release(false);
}

/*
 * zwtable_release: See undo_request.h. Frees the entry, or leaves it WANTED if
 * there is a request (REQUEST-2), and wakes the launcher. Does nothing in a
 * process that has no entry.
 */
bool
zwtable_release(bool unless_requested)
{
	if (my.entry == NULL)
		return true;
	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	if (my.entry->requested && unless_requested)
	{
		LWLockRelease(&my.table->lock);
		return false;
	}
	Assert(my.entry->state == ZWORKER_RUNNING && my.entry->pid == MyProcPid);
	my.entry->xid = 0;
	my.entry->pid = 0;
	my.entry->latch = NULL;
	my.entry->state = my.entry->requested ? ZWORKER_WANTED : ZWORKER_FREE;
	my.entry = NULL;
	if (my.table->launcher != NULL)
		SetLatch(my.table->launcher);
	LWLockRelease(&my.table->lock);
	return true;
}

/*
 * zwtable_give_up: See undo_request.h. Keeps a request as a mark for the
 * launcher to look at all databases again.
 */
void
zwtable_give_up(bool again)
{
	Assert(my.entry != NULL);
	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	my.table->rescan = my.table->rescan || again || my.entry->requested;
	my.entry->requested = false;
	LWLockRelease(&my.table->lock);
	(void) zwtable_release(false);
}

/*
 * zworkers_report_progress: See undo_request.h. Needs no check of the state:
 * only a RUNNING worker has an entry.
 */
void
zworkers_report_progress(uint64 xid, uint64 records_done, uint64 records_total, uint64 bytes)
{
	if (my.entry == NULL)
		return;
	LWLockAcquire(&my.table->lock, LW_EXCLUSIVE);
	my.entry->xid = xid;
	my.entry->records_done = records_done;
	my.entry->records_total = records_total;
	my.entry->bytes = bytes;
	LWLockRelease(&my.table->lock);
}

/*
 * zworkers_progress: See undo_request.h. Lists RUNNING workers that have
 * reported a transaction.
 */
int
zworkers_progress(ZRollbackProgress *out, int max)
{
	int			n = 0;

	if (my.table == NULL)
		return 0;
	LWLockAcquire(&my.table->lock, LW_SHARED);
	for (int i = 0; i < my.table->nentries && n < max; i++)
	{
		const WorkerEntry *entry = &my.table->entries[i];

		if (entry->state != ZWORKER_RUNNING || entry->xid == 0)
			continue;
		out[n].dboid = entry->dboid;
		out[n].pid = entry->pid;
		out[n].xid = entry->xid;
		out[n].records_done = entry->records_done;
		out[n].records_total = entry->records_total;
		out[n].bytes = entry->bytes;
		n++;
	}
	LWLockRelease(&my.table->lock);
	return n;
}
