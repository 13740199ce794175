/*
 * discard/freeze.c - the freeze limit, and making `oldest` durable.
 *
 * The freeze limit (ZuFreeze) is a durable `oldest` that no backend is behind
 * any more: every snapshot of the cluster has passed the xid that was next
 * when it was published; see "relfrozenxid" in undo/README.md. Called by
 * pass.c and, for relfrozenxid, by VACUUM.
 *
 * Locks: the entry's spinlock; those of zu_log_oldest. Crash points: none.
 */
#include "postgres.h"

#include "discard/discard_internal.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

/*
 * A pass that brings transactions with undo below `oldest` logs `oldest`
 * itself (discard_pass). Otherwise `oldest` is made durable when the freeze
 * limit has changed and LOG_AFTER_MS have passed since the last DISCARD
 * record, or at once when it is LOG_AFTER_XIDS xids ahead of the durable one.
 */
#define LOG_AFTER_MS		1000
#define LOG_AFTER_XIDS		10000

/*
 * zfreeze_advance: See discard_internal.h. The pair (next, after) stays as it
 * is until the horizon has reached 'after', across restarts and through times
 * in which nobody uses this database: otherwise a horizon that is always a
 * little behind would never reach it.
 */
void
zfreeze_advance(ZuEntry *entry)
{
	ZXid		horizon = zxid_widen(GetOldestNonRemovableTransactionId(NULL));
	ZXid		durable = Min(pg_atomic_read_u64(&entry->durable),
							  pg_atomic_read_u64(&entry->oldest));
	ZXid		next = zxid_from_full(ReadNextFullTransactionId());
	ZuFreeze   *freeze = &entry->freeze;

	Assert(!RecoveryInProgress());
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

/*
 * zfreeze_log_if_due: See discard_internal.h. Writes a DISCARD record if a
 * change of the freeze limit waits for one, at most once in LOG_AFTER_MS, or if
 * `oldest` is LOG_AFTER_XIDS ahead.
 */
void
zfreeze_log_if_due(ZuEntry *entry, ZXid oldest)
{
	ZXid		durable = pg_atomic_read_u64(&entry->durable);
	TimestampTz logged;
	bool		freeze_waits;

	Assert(pg_atomic_read_u32(&entry->discarder) == (uint32) MyProcPid);
	Assert(pg_atomic_read_u64(&entry->conflict) == InvalidZXid);
	SpinLockAcquire(&entry->mutex);
	logged = entry->logged;
	freeze_waits = memcmp(&entry->freeze, &entry->freeze_logged, sizeof(ZuFreeze)) != 0;
	SpinLockRelease(&entry->mutex);
	if (oldest >= durable + LOG_AFTER_XIDS ||
		(freeze_waits && TimestampDifferenceExceeds(logged, GetCurrentTimestamp(), LOG_AFTER_MS)))
		zu_log_oldest(oldest);
}

/* zu_freeze_limit: See discard.h. On a primary, advances the limit first. */
ZXid
zu_freeze_limit(void)
{
	ZuEntry    *entry;
	ZXid		limit;

	zu_attach_database();
	entry = zu_my.entry;
	if (!RecoveryInProgress())
		zfreeze_advance(entry);
	SpinLockAcquire(&entry->mutex);
	limit = entry->freeze.now;
	SpinLockRelease(&entry->mutex);
	return limit;
}
