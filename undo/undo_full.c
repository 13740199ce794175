/*
 * undo/undo_full.c - what a writer does when zundo.undo_limit is reached
 * (zundo.undo_full).
 *
 * Owns the waits for room. Called when an extent is to be allocated, for undo
 * or for slot overflow pages, and by nobody else: rollbacks and the discard
 * pass allocate none, so that what makes room never waits for it.
 *
 * Locks: none of ours or of the server's light ones is held by who waits; of
 * the server's heavy ones and of pins there are those of its transaction, as
 * with a wait for a row.
 *
 * Crash points: none; nothing here is durable.
 *
 * Invariants
 *	UNDO-31	who waits holds no LWLock, so no buffer lock; interrupts are served.
 *	UNDO-32	nobody waits longer than zundo.undo_full_timeout, nor for what
 *		cannot come while it waits: for undo that its own transaction keeps,
 *		for a prepared transaction or a replication slot, for somebody who
 *		waits for it. Of writers that wait for each other's undo, the one with
 *		the oldest snapshot fails by this.
 */
#include "undo/undo_internal.h"
#include "undo/undo_request.h"

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
 * So long a log that was left empty may yet give its extents back: what
 * undo_discard.c calls idle, and a nap of the worker.
 */
#define EMPTY_LOG_MS	6500
/* Processes that are looked at in search of a circle. */
#define MAX_WAITERS		64

/*
 * The part of zundo.undo_limit that only superusers may fill, so that they can
 * still put things right.
 */
#define RESERVE_PART	16

/* limit_in_extents: what the current user may fill. */
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

/* report_full: raise the error; why: a sentence more, or NULL. */
static void
report_full(ZuEntry *entry, const char *why)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("undo of this database has reached \"zundo.undo_limit\""),
			 errdetail("%u MB are in use, the limit is %d MB.%s%s%s",
					   pg_atomic_read_u32(&entry->used) / EXTENTS_PER_MB, zundo_undo_limit,
					   superuser() ? "" : " The last sixteenth is for superusers.",
					   why ? " " : "", why ? why : ""),
			 errhint("See zundo.stat_horizon for what prevents undo from being discarded.")));
}

/* ---- is it hopeless? ---- */

/*
 * count_logs: those that keep at least one extent because a session is
 * attached; and those left empty, whose extents go soon.
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
 * is_discarded: has all gone that transactions before xid have left? xid is
 * the oldest that anybody keeps, and all else stays as long as it does. A pass
 * that has published this `oldest` has freed the extents when it is no longer
 * under way.
 */
static bool
is_discarded(ZuEntry *entry, TransactionId xid)
{
	if (pg_atomic_read_u64(&entry->oldest) < zxid_widen(xid))
		return false;
	pg_memory_barrier();
	return pg_atomic_read_u32(&entry->discarder) == 0;
}

/*
 * waits_for_me: does process pid wait for a lock of ours, or for somebody who
 * does?
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
 * why_cramped: why there can be no room even when all others have ended; NULL
 * = there can.
 */
static const char *
why_cramped(uint64 attached, uint64 own_bytes)
{
	uint64		own = own_bytes / ZU_EXTENT_ROOM;

	if (own + attached < limit_in_extents())
		return NULL;
	if (attached >= limit_in_extents())
		return psprintf("%d sessions that have written to zheap tables occupy %d kB each.",
						(int) attached, ZU_EXTENT_PAGES * BLCKSZ / 1024);
	return psprintf("This transaction has written %d MB itself.",
					(int) (own_bytes / (1024 * 1024)));
}

/*
 * why_hopeless: why what is kept will not go while we wait; NULL = it may. All
 * else has been discarded. Our snapshot is as old as any transaction that was
 * under way when it was taken, and stays so when that one ends.
 */
static const char *
why_hopeless(const ZuPin *pin, TransactionId own)
{
	if (pin->kind == ZU_PIN_NONE || TransactionIdPrecedes(own, pin->xid))
		return "This transaction itself prevents undo from being discarded: no other one has an "
			"older snapshot or transaction ID.";
	if (pin->kind == ZU_PIN_PREPARED)
		return psprintf("Prepared transaction %u prevents undo from being discarded.", pin->xid);
	if (pin->kind == ZU_PIN_SLOT)
		return psprintf("A replication slot with xmin %u prevents undo from being discarded.",
						pin->xid);
	if (own == pin->xid)
		return psprintf("Transaction %u of process %d prevents undo from being discarded, and so "
						"does the snapshot of this statement, which is as old.",
						pin->xid, pin->pid);
	return NULL;
}

/*
 * why_in_circle: who keeps undo waits for us; NULL = it does not, as far as is
 * known. Looks as often as the search for deadlocks.
 */
static const char *
why_in_circle(const ZuPin *pin, ZuFullWait *wait, TimestampTz now)
{
	if (pin->kind != ZU_PIN_OTHER && pin->kind != ZU_PIN_CLIENT)
		return NULL;
	if (!TimestampDifferenceExceeds(wait->looked, now, DeadlockTimeout))
		return NULL;
	wait->looked = now;
	if (!waits_for_me(pin->pid))
		return NULL;
	return psprintf("Process %d, which prevents undo from being discarded, waits for this "
					"transaction.", pin->pid);
}

/* why_too_late: the time is over; NULL = it is not. */
static const char *
why_too_late(const ZuPin *pin, const ZuFullWait *wait, TimestampTz now)
{
	if (zundo_undo_full_timeout == 0 ||
		!TimestampDifferenceExceeds(wait->since, now, zundo_undo_full_timeout))
		return NULL;
	if (pin->kind != ZU_PIN_OTHER && pin->kind != ZU_PIN_CLIENT)
		return psprintf("No undo was discarded within %d ms (\"zundo.undo_full_timeout\").",
						zundo_undo_full_timeout);
	return psprintf("Process %d%s still prevents undo from being discarded after a wait of %d ms "
					"(\"zundo.undo_full_timeout\").",
					pin->pid, pin->exempt ? ", which is exempt from cancellation "
					"(\"zundo.undo_full_exempt\")," : "",
					zundo_undo_full_timeout);
}

/* ---- waiting ---- */

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
 * may_cancel: does it help anybody to cancel who pins, and may it be? Who is
 * as old as our snapshot keeps the next statement from its room, if it has
 * that id itself. One that waits for room as well is left alone: it will find
 * out that nobody but itself keeps it.
 */
static bool
may_cancel(const ZuPin *pin, TransactionId own)
{
	return zundo_undo_full == ZUNDO_FULL_CANCEL && pin->kind == ZU_PIN_CLIENT && !pin->exempt &&
		(TransactionIdPrecedes(pin->xid, own) || (pin->xid == own && pin->owner)) &&
		!zu_is_waiting(pin);
}

void
zu_wait_for_room(ZuEntry *entry, ZuFullWait *wait)
{
	TimestampTz now = GetCurrentTimestamp();
	const char *why;
	uint64		attached;
	uint64		empty;
	bool		discarded;
	bool		cancel;
	TransactionId own;
	ZuPin		pin;

	if (zundo_undo_full == ZUNDO_FULL_ERROR || InterruptHoldoffCount > 0 || !IsUnderPostmaster)
		report_full(entry, NULL);
	if (wait->since == 0)
		wait->since = wait->looked = now;
	pin = zu_find_pin(&own);
	Assert(TransactionIdIsValid(own));
	discarded = is_discarded(entry, pin.kind != ZU_PIN_NONE && TransactionIdPrecedes(pin.xid, own)
							 ? pin.xid : own);
	count_logs(entry, &attached, &empty);
	/* what has been freed before we looked at all this is not missing */
	if (!zu_is_full(entry))
		return;

	cancel = may_cancel(&pin, own);
	why = why_cramped(attached, wait->own_bytes);
	if (why == NULL && discarded && !cancel &&
		(empty == 0 || TimestampDifferenceExceeds(wait->since, now, EMPTY_LOG_MS)))
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
