/*
 * undo/undo_full.c - what a writer does when zundo.undo_limit is reached
 * (zundo.undo_full).
 *
 * Owns the waits of writers until the database has less undo than the limit.
 * Called when an extent is to be allocated, for undo or for slot overflow
 * pages. Rollbacks and the discard pass, which make space, allocate no
 * extents, so they never wait here.
 *
 * Locks: a backend that waits holds no LWLock. It may hold heavyweight locks
 * and buffer pins of its transaction, as in a wait for a row.
 *
 * Crash points: none; nothing here is durable.
 *
 * Invariant
 *	UNDO-31	a backend that waits for space holds no LWLock, hence no buffer
 *		lock, and processes interrupts. It waits no longer than
 *		zundo.undo_full_timeout, nor for space that cannot come while it waits:
 *		because its own transaction keeps the undo, or a prepared transaction
 *		or a replication slot does, or a process that waits for this backend.
 *		Of writers that wait for each other's undo, the one with the oldest
 *		snapshot fails by this.
 */
#include "undo/undo_internal.h"
#include "undo/undo_request.h"

#include "common/zcount.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/timestamp.h"

#define EXTENTS_PER_MB	(1024 * 1024 / (ZU_EXTENT_PAGES * BLCKSZ))

#define FIRST_NAP_MS	10
#define LONGEST_NAP_MS	160
/*
 * How long a log that was left empty may take to give its extents back
 * (IDLE_LOG_MS of discard/free.c, and naps of the worker), and a pass to come.
 */
#define FREED_SOON_MS	6500
/* How many processes are looked at in search of a circle of waits. */
#define MAX_WAITERS		64

/*
 * The part of zundo.undo_limit that only superusers may fill, so that they can
 * still put things right.
 */
#define RESERVE_PART	16

/* Returns the number of extents that the current user may fill. */
static inline uint64
limit_in_extents(void)
{
	uint64		limit = (uint64) zundo_undo_limit * EXTENTS_PER_MB;

	return superuser() ? limit : limit - limit / RESERVE_PART;
}

bool
zu_is_full(ZuEntry *entry)
{
	return zundo_undo_limit > 0 && pg_atomic_read_u32(&entry->used) >= limit_in_extents();
}

/* Raises the error. why: one more sentence for its detail, or NULL. */
static void
report_full(ZuEntry *entry, const char *why)
{
	zcount(ZCOUNT_REFUSED, 1);
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("undo of this database has reached \"zundo.undo_limit\""),
			 errdetail("%u MB are in use, the limit is %d MB.%s%s%s",
					   pg_atomic_read_u32(&entry->used) / EXTENTS_PER_MB, zundo_undo_limit,
					   superuser() ? "" : " The last sixteenth is for superusers.",
					   why ? " " : "", why ? why : ""),
			 errhint("See zundo.stat_horizon for what prevents undo from being discarded.")));
}

/* ---- whether a wait is hopeless ---- */

/*
 * Counts the logs that keep at least one extent because a session is attached
 * (*attached), and the unattached ones that are empty, whose extents will soon
 * be freed (*empty).
 */
static void
count_logs(ZuEntry *entry, uint64 *attached, uint64 *empty)
{
	*attached = *empty = 0;
	for (int i = 0; i < zu_nlogs(); i++)
	{
		ZuLog	   *log = &entry->logs[i];
		UndoPtr		insert = pg_atomic_read_u64(&log->insert);

		if (insert == InvalidUndoPtr)
			continue;
		if (zu_log_pid(log) != 0)
			(*attached)++;
		else if (!log->closed && pg_atomic_read_u64(&log->discard) == insert)
			(*empty)++;
	}
}

/*
 * Returns whether row locks that are recorded in undo of an older transaction
 * keep `oldest` below xid, which determined the horizon of the last pass. They
 * count as long as a locker may be in progress (UNDO-7b), so as long as xid is
 * kept: its end is what the discard pass waits for.
 */
static bool
row_locks_keep(ZuEntry *entry, ZXid xid)
{
	ZuHold		holds[ZU_MAX_HOLDS];

	return pg_atomic_read_u64(&entry->horizon) >= xid && zu_holds(holds) > 0 &&
		holds[0].kind == ZU_HOLD_LOCKS && pg_atomic_read_u64(&entry->oldest) >= holds[0].xid;
}

/*
 * Returns whether all undo has been discarded that can be as long as
 * transaction xid and all later ones are kept by a snapshot, a transaction, a
 * slot or a lock, and its extents freed. The pass that published this `oldest`
 * has freed the extents once no pass is running.
 */
static bool
is_discarded(ZuEntry *entry, TransactionId xid)
{
	if (pg_atomic_read_u64(&entry->oldest) < zxid_widen(xid) &&
		!row_locks_keep(entry, zxid_widen(xid)))
		return false;
	pg_memory_barrier();
	return pg_atomic_read_u32(&entry->discarder) == 0;
}

/*
 * Returns whether process pid waits for a lock of this backend, directly or
 * through other processes.
 */
static bool
waits_for_me(int pid)
{
	int			pids[MAX_WAITERS];
	int			n = 1;

	pids[0] = pid;
	for (int i = 0; i < n; i++)
	{
		Datum		answer = DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(pids[i]));
		ArrayType  *array = DatumGetArrayTypeP(answer);
		const int32 *blockers = (const int32 *) ARR_DATA_PTR(array);
		int			count = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));

		for (int j = 0; j < count; j++)
		{
			int			known = 0;

			if (blockers[j] == MyProcPid)
				return true;
			while (known < n && pids[known] != blockers[j])
				known++;
			if (known == n && n < MAX_WAITERS && blockers[j] > 0)
				pids[n++] = blockers[j];
		}
		pfree(array);
	}
	return false;
}

/*
 * Returns a sentence that says why there would be no space even if all other
 * transactions had ended, or NULL if there would be.
 */
static const char *
why_cramped(uint64 attached, uint64 own_bytes)
{
	uint64		own = own_bytes / ZU_EXTENT_SPACE;

	if (own + attached < limit_in_extents())
		return NULL;
	if (attached >= limit_in_extents())
		return psprintf("%d sessions that have written to zheap tables occupy %d kB each.",
						(int) attached, ZU_EXTENT_PAGES * BLCKSZ / 1024);
	return psprintf("This transaction has written %d MB itself.",
					(int) (own_bytes / (1024 * 1024)));
}

/* Returns the oldest transaction whose undo is kept, by the pin or by us. */
static TransactionId
kept_from(const ZuPin *pin, TransactionId own)
{
	return pin->kind != ZU_PIN_NONE && TransactionIdPrecedes(pin->xid, own) ? pin->xid : own;
}

/*
 * Returns a sentence that says why the undo that is kept cannot be discarded
 * while this backend waits, or NULL if it may be. All other undo has been
 * discarded. This statement's snapshot is as old as any transaction that was in
 * progress when it was taken, and stays so when that transaction ends.
 */
static const char *
why_hopeless(const ZuPin *pin, TransactionId own)
{
	if (pin->kind == ZU_PIN_NONE || TransactionIdPrecedes(own, pin->xid))
		return "This transaction itself prevents undo from being discarded: no other one has an "
			"older snapshot or transaction ID, or has locked a table that is to be rolled back.";
	if (pin->kind == ZU_PIN_PREPARED || pin->kind == ZU_PIN_SLOT)
		return zu_name_pin(pin);
	if (own == pin->xid && OidIsValid(pin->table))
		return zu_name_pin(pin);
	if (own == pin->xid)
		return psprintf("Transaction %u of process %d prevents undo from being discarded, and so "
						"does the snapshot of this statement, which is as old.",
						pin->xid, pin->pid);
	return NULL;
}

/*
 * Returns a sentence that says that the process which keeps undo waits for this
 * backend, or NULL if that is not known. Looks as often as the search for
 * deadlocks (deadlock_timeout).
 */
static const char *
why_in_circle(const ZuPin *pin, ZuFullWait *wait, TimestampTz now)
{
	if (pin->kind < ZU_PIN_OTHER)
		return NULL;
	if (!TimestampDifferenceExceeds(wait->looked, now, DeadlockTimeout))
		return NULL;
	wait->looked = now;
	if (!waits_for_me(pin->pid))
		return NULL;
	return psprintf("Process %d, which prevents undo from being discarded, waits for this "
					"transaction.", pin->pid);
}

/*
 * Returns a sentence that says that the timeout has expired, or NULL if it has
 * not.
 */
static const char *
why_too_late(const ZuPin *pin, const ZuFullWait *wait, TimestampTz now)
{
	if (zundo_undo_full_timeout == 0 ||
		!TimestampDifferenceExceeds(wait->since, now, zundo_undo_full_timeout))
		return NULL;
	if (pin->kind < ZU_PIN_OTHER)
		return psprintf("No undo was discarded within %d ms (\"zundo.undo_full_timeout\").",
						zundo_undo_full_timeout);
	return psprintf("Process %d%s still prevents undo from being discarded after a wait of %d ms "
					"(\"zundo.undo_full_timeout\").%s%s",
					pin->pid, pin->exempt ? ", which is exempt from cancellation "
					"(\"zundo.undo_full_exempt\")," : "",
					zundo_undo_full_timeout,
					OidIsValid(pin->table) ? " " : "", OidIsValid(pin->table) ? zu_name_pin(pin)
					: "");
}

/*
 * Returns a sentence that names what keeps the undo, or NULL if some of it will
 * be discarded by itself, so that no transaction is to blame.
 */
static const char *
why_kept(ZuEntry *entry)
{
	TransactionId own;
	ZuPin		pin = zu_find_pin(&own);
	const char *why;

	Assert(TransactionIdIsValid(own));
	if (!is_discarded(entry, kept_from(&pin, own)))
		return NULL;
	why = why_hopeless(&pin, own);
	return why != NULL ? why : zu_name_pin(&pin);
}

/* ---- waiting ---- */

/*
 * Wakes the worker and sleeps, twice as long as the last time up to
 * LONGEST_NAP_MS. Processes interrupts.
 */
static void
take_nap(ZuFullWait *wait, TimestampTz now)
{
	static uint32 wait_event = 0;

	if (wait_event == 0)
		wait_event = zc_new_wait_event("ZundoUndoFull");
	wait->nap = Min(Max(wait->nap * 2, FIRST_NAP_MS), LONGEST_NAP_MS);
	zu_note_waiting(TimestampTzPlusMilliseconds(now, wait->nap + 1000));
	zworkers_wake(MyDatabaseId);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, wait->nap,
					 wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Returns whether zundo.undo_full and UNDO-33 allow the transaction that pins
 * to be canceled, and whether that makes space for this statement or the next
 * one. A transaction whose own xid equals the xmin of this statement's
 * snapshot, or which keeps the rollback of that xid from a table, still blocks
 * the next statement, so cancelling it is worthwhile even though it comes too
 * late for this one. A process that waits for space itself is left alone: its
 * own wait ends when nothing else keeps the undo.
 */
static bool
may_cancel(const ZuPin *pin, TransactionId own)
{
	return zundo_undo_full == ZUNDO_FULL_CANCEL && zu_may_cancel(pin) &&
		(TransactionIdPrecedes(pin->xid, own) ||
		 (pin->xid == own && (pin->owner || OidIsValid(pin->table))));
}

/*
 * zu_wait_for_space: See undo_internal.h. Finds out, in this order, whether
 * there is space by now, whether there can ever be any (why_cramped), whether
 * waiting is hopeless, whether it closes a circle of waits, and whether the
 * timeout has expired. Ignores that it is hopeless or closes a circle if the
 * transaction that pins may be canceled. Cancels only when everything that
 * can be discarded has been.
 */
void
zu_wait_for_space(ZuEntry *entry, ZuFullWait *wait)
{
	TimestampTz now = GetCurrentTimestamp();
	const char *why;
	uint64		attached;
	uint64		empty;
	bool		discarded;
	bool		cancel;
	TransactionId own;
	ZuPin		pin;

	if (InterruptHoldoffCount > 0 || !IsUnderPostmaster)
		report_full(entry, NULL);
	if (zundo_undo_full == ZUNDO_FULL_ERROR)
		report_full(entry, why_kept(entry));
	if (wait->since == 0)
	{
		wait->since = wait->looked = now;
		zcount(ZCOUNT_WAITED, 1);
	}
	pin = zu_find_pin(&own);
	Assert(TransactionIdIsValid(own));
	discarded = is_discarded(entry, kept_from(&pin, own));
	count_logs(entry, &attached, &empty);
	/* space that was freed before this was read must not count as missing */
	if (!zu_is_full(entry))
		return;

	cancel = may_cancel(&pin, own);
	why = why_cramped(attached, wait->own_bytes);

	/*
	 * empty logs will be freed soon; the transaction whose row locks held the
	 * last pass back may have ended since
	 */
	if (why == NULL && discarded && !cancel &&
		((empty == 0 && !row_locks_keep(entry, zxid_widen(own))) ||
		 TimestampDifferenceExceeds(wait->since, now, FREED_SOON_MS)))
		why = why_hopeless(&pin, own);
	if (why == NULL && !cancel)
		why = why_in_circle(&pin, wait, now);
	if (why == NULL)
		why = why_too_late(&pin, wait, now);
	if (why != NULL)
		report_full(entry, why);
	if (cancel && discarded)
		zu_cancel_pin(&pin);
	take_nap(wait, now);
}
