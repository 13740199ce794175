/*
 * undo/undo_pin.c - what keeps undo from being discarded, and how transactions
 * of clients that do so are canceled.
 *
 * Owns, in shared memory, a mark for each process: that it waits for space in
 * the undo log, that its transaction was canceled for the undo that it keeps,
 * and what it holds as a reader of old versions. Called by undo_full.c, by the
 * functions of hooks.c that replace or complete the error of a canceled
 * transaction, by discard/ and monitor/ (zu_describe_pin), and by readers of
 * old versions (zu_hold).
 *
 * A statement is canceled by SIGINT, as pg_cancel_backend does it, and raises
 * the server's error at the next place where it looks for signals; the hooks
 * turn this into ERRCODE_SNAPSHOT_TOO_OLD if the mark names their process and
 * transaction. A backend that waits for its client does not react to SIGINT: if
 * it still waits after a time of grace, it is ended by SIGTERM. So is one whose
 * transaction continues after CANCEL_TRIES signals: PL/pgSQL can catch the
 * error. A signal may arrive when the transaction has just ended, as with
 * pg_cancel_backend: the next statement is canceled then, with the server's
 * error.
 *
 * Locks: ProcArrayLock shared while processes are looked at and signalled, so
 * that no process leaves meanwhile. Then the marks' spinlock. A discard pass,
 * or a process that looks for holds, has the spinlock alone.
 *
 * Crash points: none; nothing here is durable.
 *
 * Invariant
 *	UNDO-33	a signal ends nothing else than what pins undo:
 *		(a) it goes only to the process and transaction that were found to pin,
 *			which are looked at again under the lock; no more than one in
 *			CANCEL_GRACE_MS. A mark means nothing to the next transaction, nor
 *			to the next user of the place;
 *		(b) only clients' transactions are canceled, and the work of autovacuum
 *			on one table, where functions of its owner run: not our own, no
 *			walsender, no background worker, nor those of roles in
 *			zundo.undo_full_exempt, by the role that logged in. Example: SET
 *			ROLE to an exempt role does not protect a session.
 */
#include "undo/undo_internal.h"

#include <signal.h>

#include "access/twophase.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"
#include "utils/wait_event.h"

#define CANCEL_GRACE_MS	1000
/* How often a transaction is canceled before its session is terminated. */
#define CANCEL_TRIES	3

#define VICTIM_DETAIL \
	"The transaction kept old row versions while the undo log was full " \
	"(zundo.undo_limit), and was canceled (zundo.undo_full = cancel)."
#define VICTIM_HINT \
	"Repeat the transaction. Keep it shorter, or increase \"zundo.undo_limit\"."

typedef struct Mark
{
	int			waiter;			/* pid of the process that waits for space ... */
	TimestampTz waits_until;	/* ... if this time has not passed */
	int			pid;			/* pid of the victim, 0 = none; lxid is its
								 * transaction */
	LocalTransactionId lxid;
	TimestampTz since;			/* time of the last signal; before that, when
								 * the victim was found idle */
	int			cancelled;		/* how often */
	bool		terminated;
	int			holder;			/* pid of the process that holds ... */
	LocalTransactionId hold_lxid;	/* ... in this transaction ... */
	ZXid		held;			/* `oldest` at or before this (zu_hold) */
} Mark;

typedef struct Marks
{
	slock_t		mutex;
	int			n;				/* the marks are indexed by process number */
	Mark		marks[FLEXIBLE_ARRAY_MEMBER];
} Marks;

static Marks *shared = NULL;

/* How often this process holds: calls of zu_hold without a zu_hold_end yet. */
static int	hold_depth = 0;

Size
zu_pin_shmem_size(void)
{
	return add_size(offsetof(Marks, marks), mul_size(MaxBackends, sizeof(Mark)));
}

/* zu_pin_shmem_startup: See undo_internal.h. */
void
zu_pin_shmem_startup(void)
{
	bool		found;

	shared = ShmemInitStruct("zundo undo waits", zu_pin_shmem_size(), &found);
	if (found)
		return;
	memset(shared, 0, zu_pin_shmem_size());
	SpinLockInit(&shared->mutex);
	shared->n = MaxBackends;
}

/* ---- readers of old versions ---- */

/*
 * Returns what the process with this number holds in this database, or
 * InvalidZXid. A mark means nothing when the transaction that has made it has
 * ended. Spinlock of the marks held.
 */
static ZXid
held_by(int procno)
{
	const Mark *mark = &shared->marks[procno];
	PGPROC	   *proc = &ProcGlobal->allProcs[procno];

	if (mark->holder == 0 || proc->pid != mark->holder ||
		zc_proc_lxid(proc) != mark->hold_lxid || proc->databaseId != MyDatabaseId)
		return InvalidZXid;
	return mark->held;
}

/*
 * Waits until the pass that has chosen 'oldest', if one is running, has
 * discarded what is before it.
 */
static void
wait_for_discard(ZXid oldest)
{
	ZuEntry    *entry = zu_my.entry;

	while (pg_atomic_read_u64(&entry->oldest) < oldest &&
		   pg_atomic_read_u32(&entry->discarder) != 0)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000L);
	}
}

/*
 * zu_hold: See undo.h. Under the spinlock, no pass can choose an `oldest`
 * between the look at what the last one has chosen and the note in the mark.
 */
TransactionId
zu_hold(TransactionId horizon)
{
	int			me = zc_my_proc_number();
	Mark	   *mark = &shared->marks[me];
	ZXid		before;
	ZXid		chosen;
	ZXid		hold;

	Assert(zu_my.entry != NULL && LocalTransactionIdIsValid(zc_proc_lxid(MyProc)));
	if (me >= shared->n)
		elog(ERROR, "process has no place for a hold");
	SpinLockAcquire(&shared->mutex);
	chosen = Max(zu_my.entry->chosen, pg_atomic_read_u64(&zu_my.entry->oldest));
	hold = Max(chosen, zu_my.entry->pruned);
	before = held_by(me);
	if (before == InvalidZXid)
		hold_depth = 0;			/* an error has left it as it was */
	mark->holder = MyProcPid;
	mark->hold_lxid = zc_proc_lxid(MyProc);
	mark->held = before == InvalidZXid ? hold : Min(before, hold);
	SpinLockRelease(&shared->mutex);
	hold_depth++;
	wait_for_discard(chosen);
	return zxid_to_xid(Max(hold, zxid_widen(horizon)));
}

void
zu_hold_end(void)
{
	Assert(hold_depth > 0);
	if (--hold_depth > 0)
		return;
	SpinLockAcquire(&shared->mutex);
	shared->marks[zc_my_proc_number()].holder = 0;
	SpinLockRelease(&shared->mutex);
}

/*
 * Returns the oldest of xid and what all processes hold. Spinlock of the marks
 * held.
 */
static ZXid
before_holds(ZXid xid)
{
	for (int i = 0; i < shared->n; i++)
	{
		ZXid		held = held_by(i);

		if (held != InvalidZXid)
			xid = Min(xid, held);
	}
	return xid;
}

ZXid
zu_choose_oldest(ZXid oldest)
{
	SpinLockAcquire(&shared->mutex);
	oldest = before_holds(oldest);
	zu_my.entry->chosen = Max(zu_my.entry->chosen, oldest);
	SpinLockRelease(&shared->mutex);
	return oldest;
}

/*
 * zu_unheld: See undo.h. Mostly that is so for an earlier call: what processes
 * hold is not before 'chosen' and 'pruned'.
 */
bool
zu_unheld(ZXid xid)
{
	ZuEntry    *entry = zu_my.entry;
	bool		unheld;

	SpinLockAcquire(&shared->mutex);
	unheld = xid < Max(entry->chosen, entry->pruned) || before_holds(xid + 1) > xid;
	if (unheld)
		entry->pruned = Max(entry->pruned, xid + 1);
	SpinLockRelease(&shared->mutex);
	return unheld;
}

int
zu_readers(ZuReader *out)
{
	int			n = 0;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < shared->n; i++)
	{
		ZXid		held = held_by(i);

		if (held == InvalidZXid)
			continue;
		out[n].pid = shared->marks[i].holder;
		out[n].xid = held;
		n++;
	}
	SpinLockRelease(&shared->mutex);
	return n;
}

/* ---- finding the pin ---- */

/*
 * Returns the oldest transaction whose undo proc keeps in this database,
 * counted as the server counts its horizons; InvalidTransactionId if none.
 * ProcArrayLock held.
 */
static TransactionId
pinned_by_server(PGPROC *proc)
{
	TransactionId xid = *(volatile TransactionId *) &proc->xid;
	TransactionId xmin = *(volatile TransactionId *) &proc->xmin;

	if (proc->databaseId != MyDatabaseId && !(proc->statusFlags & PROC_AFFECTS_ALL_HORIZONS))
		return InvalidTransactionId;
	if (proc->statusFlags & (PROC_IN_VACUUM | PROC_IN_LOGICAL_DECODING))
		return InvalidTransactionId;

	/*
	 * the PGPROC of a prepared transaction that has ended looks like one that
	 * exists
	 */
	if (proc->pid == 0 && (!TransactionIdIsValid(xid) || ProcGlobal->xids[proc->pgxactoff] != xid))
		return InvalidTransactionId;
	if (!TransactionIdIsValid(xmin) ||
		(TransactionIdIsValid(xid) && TransactionIdPrecedes(xid, xmin)))
		return xid;
	return xmin;
}

/*
 * Returns the same, with what proc holds as a reader of old versions.
 * ProcArrayLock held.
 */
static TransactionId
pinned_by(PGPROC *proc)
{
	TransactionId xid = pinned_by_server(proc);
	int			procno = (int) (proc - ProcGlobal->allProcs);
	TransactionId held;

	if (procno >= shared->n || shared->marks[procno].holder == 0)
		return xid;
	SpinLockAcquire(&shared->mutex);
	held = zxid_to_xid(held_by(procno));
	SpinLockRelease(&shared->mutex);
	if (TransactionIdIsValid(held) &&
		(!TransactionIdIsValid(xid) || TransactionIdPrecedes(held, xid)))
		return held;
	return xid;
}

/* Returns whether process pid is a walsender. */
static bool
is_walsender(int pid)
{
	for (int i = 0; i < max_wal_senders; i++)
		if (*(volatile pid_t *) &WalSndCtl->walsnds[i].pid == pid)
			return true;
	return false;
}

/*
 * Returns a description of proc, which keeps the undo of xid and of younger
 * transactions. leader is the leader of its parallel query, or NULL.
 * ProcArrayLock held.
 */
static ZuPin
describe(PGPROC *proc, PGPROC *leader, TransactionId xid)
{
	ZuPin		pin = {ZU_PIN_PREPARED, xid, proc->xid == xid};
	uint32		event;

	if (leader != NULL)
		proc = leader;
	if (proc->pid == 0)
		return pin;
	pin.procno = (int) (proc - ProcGlobal->allProcs);
	pin.pid = proc->pid;
	pin.lxid = zc_proc_lxid(proc);
	pin.role = proc->roleId;
	event = *(volatile uint32 *) &proc->wait_event_info;
	pin.reading = event == WAIT_EVENT_CLIENT_READ;
	pin.writing = event == WAIT_EVENT_CLIENT_WRITE;
	if (proc->databaseId != MyDatabaseId || is_walsender(pin.pid) ||
		pin.pid == (int) pg_atomic_read_u32(&zu_my.entry->worker))
		pin.kind = ZU_PIN_OTHER;
	else if ((proc->statusFlags & PROC_IS_AUTOVACUUM) != 0)
		pin.kind = ZU_PIN_AUTOVACUUM;
	else if (zc_proc_is_background_worker(proc))
		pin.kind = ZU_PIN_OTHER;
	else
		pin.kind = ZU_PIN_CLIENT;
	return pin;
}

/*
 * Returns whether a counts more than b: the pin with the older xid does, then
 * the owner of that xid, then the kind that comes first in ZuPinKind, then one
 * that is exempt, then one that keeps a rollback from its table.
 */
static bool
counts_more(const ZuPin *a, const ZuPin *b)
{
	if (b->kind == ZU_PIN_NONE || a->xid != b->xid)
		return b->kind == ZU_PIN_NONE || TransactionIdPrecedes(a->xid, b->xid);
	if (a->owner != b->owner || a->kind != b->kind)
		return a->owner != b->owner ? a->owner : a->kind < b->kind;
	if (a->exempt != b->exempt)
		return a->exempt;
	return OidIsValid(a->table) && !OidIsValid(b->table);
}

/*
 * Returns whether role is one of zundo.undo_full_exempt, or a member of one.
 * Reads catalogs.
 */
static bool
is_exempt(Oid role)
{
	char	   *names = pstrdup(zundo_undo_full_exempt);
	List	   *list;
	ListCell   *lc;
	bool		exempt = false;

	/* the syntax was checked when the setting was made */
	if (!OidIsValid(role) || !SplitIdentifierString(names, ',', &list))
		return false;
	foreach(lc, list)
	{
		Oid			named;

		if (strcmp(lfirst(lc), ZUNDO_SUPERUSERS) == 0)
			exempt |= superuser_arg(role);
		else if (OidIsValid(named = get_role_oid(lfirst(lc), true)))
			exempt |= is_member_of_role_nosuper(role, named);
	}
	list_free(list);
	pfree(names);
	return exempt;
}

/*
 * Notes in its mark that a transaction may become a victim. Spinlock of the
 * marks held.
 */
static void
note_victim(Mark *mark, const ZuPin *pin, TimestampTz now)
{
	bool		is_new = mark->pid != pin->pid || mark->lxid != pin->lxid;

	if (is_new)
	{
		mark->pid = pin->pid;
		mark->lxid = pin->lxid;
		mark->cancelled = 0;
		mark->terminated = false;
	}
	if (is_new || (mark->cancelled == 0 && !pin->reading))
		mark->since = now;
}

/* zu_holds: See undo.h. Copies under the spinlock of the entry. */
int
zu_holds(ZuHold *out)
{
	ZuEntry    *entry = zu_my.entry;
	int			n;

	Assert(zu_my.entry != NULL);
	SpinLockAcquire(&entry->mutex);
	n = entry->nholds;
	memcpy(out, entry->holds, n * sizeof(ZuHold));
	SpinLockRelease(&entry->mutex);
	return n;
}

/* ---- locks that keep a rollback from its table ---- */

/*
 * Returns whether the process of the lock table's entry holds, or waits for, a
 * lock on the table that conflicts with a rollback's. The worker does not wait
 * in the queue, so all that do are in front of it.
 */
static bool
is_in_the_way(const LockInstanceData *lock, Oid table)
{
	return lock->locktag.locktag_type == LOCKTAG_RELATION &&
		lock->locktag.locktag_field1 == MyDatabaseId && lock->locktag.locktag_field2 == table &&
		((lock->holdMask & LOCKBIT_ON(ZU_ROLLBACK_CONFLICT)) != 0 ||
		 lock->waitLockMode == ZU_ROLLBACK_CONFLICT);
}

/*
 * Returns a list of palloc'd pins: the processes and prepared transactions of
 * 'locks' that keep the rollback of xid from locking the table. Leaves out our
 * own, and those that are in another transaction by now; *mine says whether our
 * own is among them.
 */
static List *
find_lockers(const LockData *locks, Oid table, TransactionId xid, bool *mine)
{
	List	   *pins = NIL;
	ListCell   *lc;

	*mine = false;
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];
		ZuPin	   *pin;

		if (!is_in_the_way(lock, table))
			continue;
		if (lock->pid == MyProcPid)
		{
			*mine = true;
			continue;
		}
		pin = palloc0(sizeof(ZuPin));
		pin->kind = ZU_PIN_PREPARED;
		pin->xid = xid;
		pin->pid = lock->pid;
		pin->lxid = zc_lock_lxid(lock);
		pin->table = table;
		pin->queued = (lock->holdMask & LOCKBIT_ON(ZU_ROLLBACK_CONFLICT)) == 0;
		pins = lappend(pins, pin);
	}
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	foreach(lc, pins)
	{
		ZuPin	   *pin = lfirst(lc);
		PGPROC	   *proc = pin->pid == 0 ? NULL : BackendPidGetProcWithLock(pin->pid);

		if (proc != NULL && LocalTransactionIdIsValid(pin->lxid) &&
			zc_proc_lxid(proc) == pin->lxid)
		{
			ZuPin		found = describe(proc, NULL, xid);

			found.owner = false;
			found.table = table;
			found.queued = pin->queued;
			*pin = found;
		}
		else if (pin->pid != 0)
			pins = foreach_delete_current(pins, lc);
	}
	LWLockRelease(ProcArrayLock);
	/* not under ProcArrayLock: this may read catalogs */
	foreach(lc, pins)
	{
		ZuPin	   *pin = lfirst(lc);

		pin->exempt = pin->kind == ZU_PIN_CLIENT && is_exempt(pin->role);
	}
	return pins;
}

/*
 * Lets the rollbacks count that wait for the lock of a table: a process that
 * keeps them from it keeps the undo of their transactions and of all younger
 * ones, though it may have neither a transaction id nor a snapshot. The last
 * discard pass tells the rollbacks, the lock table the processes. *oldest is
 * the pin that counts most, and *own as in zu_find_pin.
 */
static void
count_lockers(ZuPin *oldest, TransactionId *own)
{
	ZuHold		holds[ZU_MAX_HOLDS];
	int			n = zu_holds(holds);
	LockData   *locks = NULL;

	for (int i = 0; i < n; i++)
	{
		TransactionId xid = zxid_to_xid(holds[i].xid);
		List	   *pins;
		ListCell   *lc;
		bool		mine;

		if (holds[i].kind != ZU_HOLD_ROLLBACK || !OidIsValid(holds[i].reloid) || holds[i].failed)
			continue;
		if (oldest->kind != ZU_PIN_NONE && TransactionIdPrecedes(oldest->xid, xid))
			break;
		if (locks == NULL)
			locks = GetLockStatusData();
		pins = find_lockers(locks, holds[i].reloid, xid, &mine);
		if (mine && (!TransactionIdIsValid(*own) || TransactionIdPrecedes(xid, *own)))
			*own = xid;
		foreach(lc, pins)
			if (counts_more(lfirst(lc), oldest))
			*oldest = *(ZuPin *) lfirst(lc);
		list_free_deep(pins);
	}
	if (locks != NULL)
	{
		pfree(locks->locks);
		pfree(locks);
	}
}

/*
 * zu_find_pin: See undo_internal.h. Compares all processes and prepared
 * transactions, then the replication slots, then processes that keep a
 * rollback from its table. The catalog look-up for the exempt roles comes
 * after ProcArrayLock, which must not be held for it. With zundo.undo_full =
 * cancel, the time of grace begins for all transactions that keep our own from
 * space: one role may have many.
 */
ZuPin
zu_find_pin(TransactionId *own)
{
	int			nprocs = (int) ProcGlobal->allProcCount + max_prepared_xacts;
	ZuPin		oldest = {ZU_PIN_NONE};
	ZuPin		slot = {ZU_PIN_SLOT};
	bool		notes = zundo_undo_full == ZUNDO_FULL_CANCEL;
	TimestampTz now = GetCurrentTimestamp();

	LWLockAcquire(ProcArrayLock, LW_SHARED);
	*own = pinned_by(MyProc);
	for (int i = 0; i < nprocs; i++)
	{
		PGPROC	   *proc = &ProcGlobal->allProcs[i];
		PGPROC	   *leader = *(PGPROC *volatile *) &proc->lockGroupLeader;
		TransactionId xid = pinned_by(proc);
		ZuPin		pin;

		/* parallel workers of this query have the snapshot of this process */
		if (!TransactionIdIsValid(xid) || proc == MyProc || leader == MyProc)
			continue;
		pin = describe(proc, leader, xid);
		if (counts_more(&pin, &oldest))
			oldest = pin;
		if (notes && pin.kind == ZU_PIN_CLIENT && pin.procno < shared->n &&
			TransactionIdPrecedes(xid, *own))
		{
			SpinLockAcquire(&shared->mutex);
			note_victim(&shared->marks[pin.procno], &pin, now);
			SpinLockRelease(&shared->mutex);
		}
	}
	LWLockRelease(ProcArrayLock);
	ProcArrayGetReplicationSlotXmin(&slot.xid, NULL);
	if (TransactionIdIsValid(slot.xid) && counts_more(&slot, &oldest))
		oldest = slot;
	/* not under ProcArrayLock: this may read catalogs */
	oldest.exempt = oldest.kind == ZU_PIN_CLIENT && is_exempt(oldest.role);
	count_lockers(&oldest, own);
	return oldest;
}

/* zu_name_pin: See undo_internal.h. */
char *
zu_name_pin(const ZuPin *pin)
{
	char	   *table = OidIsValid(pin->table) ? get_rel_name(pin->table) : NULL;

	Assert(pin->kind != ZU_PIN_NONE);
	if (table != NULL)
		return psprintf("%s prevents undo from being discarded: the rollback of transaction %u "
						"waits for %s AccessExclusiveLock on table \"%s\".",
						pin->kind == ZU_PIN_PREPARED ? "A prepared transaction" :
						psprintf("Process %d", pin->pid), pin->xid,
						pin->queued ? "its request for" : "its", table);
	switch (pin->kind)
	{
		case ZU_PIN_NONE:
		case ZU_PIN_PREPARED:
			break;
		case ZU_PIN_SLOT:
			return psprintf("A replication slot with xmin %u prevents undo from being discarded.",
							pin->xid);
		case ZU_PIN_OTHER:
		case ZU_PIN_AUTOVACUUM:
		case ZU_PIN_CLIENT:
			return psprintf("Process %d prevents undo from being discarded with %s %u.", pin->pid,
							pin->owner ? "transaction" : "a snapshot with xmin", pin->xid);
	}
	return psprintf("Prepared transaction %u prevents undo from being discarded.", pin->xid);
}

/* Returns the entry of process pid in pg_stat_activity, NULL if it has none. */
static const PgBackendStatus *
activity_of(int pid)
{
	int			n = pgstat_fetch_stat_numbackends();

	for (int i = 1; i <= n; i++)
	{
		LocalPgBackendStatus *local = pgstat_get_local_beentry_by_index(i);

		if (local != NULL && local->backendStatus.st_procpid == pid)
			return &local->backendStatus;
	}
	return NULL;
}

/* Returns the application name of process pid, "" if it has none. */
static const char *
application_of(int pid)
{
	const PgBackendStatus *activity = activity_of(pid);

	return activity == NULL || activity->st_appname == NULL ? "" : activity->st_appname;
}

/*
 * zu_describe_pin: See undo.h. Names the same pin that a writer waits for at
 * zundo.undo_limit.
 */
char *
zu_describe_pin(ZXid *xid)
{
	TransactionId own;
	ZuPin		pin = zu_find_pin(&own);
	char	   *role;

	*xid = pin.kind == ZU_PIN_NONE ? InvalidZXid : zxid_widen(pin.xid);
	if (pin.kind == ZU_PIN_NONE)
		return pstrdup("No transaction or snapshot prevents undo from being discarded.");
	role = OidIsValid(pin.role) ? GetUserNameFromId(pin.role, true) : NULL;
	if (pin.pid == 0 || role == NULL)
		return zu_name_pin(&pin);
	return psprintf("%s Its role is \"%s\", its application \"%s\".",
					zu_name_pin(&pin), role, application_of(pin.pid));
}

/*
 * zu_find_keeper: See undo.h. A rollback that waits for a lock is left out: the
 * pin is the process that has the lock.
 */
void
zu_find_keeper(ZuKeeper *keeper)
{
	static const ZuKeeperKind of_hold[] = {ZU_KEEPER_ROLLBACK, ZU_KEEPER_LOCKS, ZU_KEEPER_DAMAGE};
	static const ZuKeeperKind kinds[] = {ZU_KEEPER_NONE, ZU_KEEPER_PREPARED, ZU_KEEPER_SLOT};
	ZuHold		holds[ZU_MAX_HOLDS];
	TransactionId own;
	ZuPin		pin = zu_find_pin(&own);
	const PgBackendStatus *activity;

	memset(keeper, 0, sizeof(*keeper));
	if (zu_holds(holds) > 0 && holds[0].xid <= pg_atomic_read_u64(&zu_my.entry->oldest) &&
		(holds[0].kind != ZU_HOLD_ROLLBACK || holds[0].failed))
	{
		keeper->kind = of_hold[holds[0].kind];
		return;
	}
	keeper->kind = pin.kind < lengthof(kinds) ? kinds[pin.kind] : ZU_KEEPER_PROCESS;
	if (keeper->kind != ZU_KEEPER_PROCESS)
		return;
	keeper->pid = pin.pid;
	keeper->role = pin.role;
	activity = activity_of(pin.pid);
	if (activity == NULL)
		return;
	strlcpy(keeper->application, application_of(pin.pid), NAMEDATALEN);
	keeper->since = activity->st_xact_start_timestamp;
	keeper->query = (int64) activity->st_query_id;
}

/* ---- processes that wait ---- */

/*
 * zu_note_waiting: See undo_internal.h. Does nothing in a process without a
 * mark.
 */
void
zu_note_waiting(TimestampTz until)
{
	int			me = zc_my_proc_number();

	if (me >= shared->n)
		return;
	SpinLockAcquire(&shared->mutex);
	shared->marks[me].waiter = MyProcPid;
	shared->marks[me].waits_until = until;
	SpinLockRelease(&shared->mutex);
}

/*
 * Returns whether the pin's process itself waits for space. A mark counts only
 * until the time that its process has noted, so an old one means nothing.
 */
static bool
is_waiting(const ZuPin *pin)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		result;

	if (pin->procno >= shared->n)
		return false;
	SpinLockAcquire(&shared->mutex);
	result = shared->marks[pin->procno].waiter == pin->pid &&
		shared->marks[pin->procno].waits_until > now;
	SpinLockRelease(&shared->mutex);
	return result;
}

/* zu_anybody_waits: See undo.h. */
bool
zu_anybody_waits(void)
{
	TimestampTz now = GetCurrentTimestamp();
	bool		result = false;

	SpinLockAcquire(&shared->mutex);
	for (int i = 0; i < shared->n && !result; i++)
		result = shared->marks[i].waits_until > now;
	SpinLockRelease(&shared->mutex);
	return result;
}

/* ---- cancelling ---- */

/*
 * Returns the signal that is due now, 0 if none, and notes it in the victim's
 * mark; sets *first to false if the same signal was sent before. Spinlock of
 * the marks held.
 */
static int
next_signal(Mark *mark, const ZuPin *pin, TimestampTz now, bool *first)
{
	bool		over;

	*first = true;
	note_victim(mark, pin, now);
	over = TimestampDifferenceExceeds(mark->since, now, CANCEL_GRACE_MS);
	if (mark->terminated)
		return 0;
	if (over && pin->kind == ZU_PIN_CLIENT &&
		(pin->reading || (pin->writing && mark->cancelled > 0) || mark->cancelled >= CANCEL_TRIES))
	{
		mark->terminated = true;
		return SIGTERM;
	}

	/*
	 * after the time of grace the victim may be in another statement, because
	 * the signal came between two, so SIGINT is repeated
	 */
	if (pin->reading || (mark->cancelled > 0 && !over))
		return 0;
	*first = mark->cancelled == 0;
	mark->cancelled++;
	mark->since = now;
	return SIGINT;
}

/* zu_may_cancel: See undo_internal.h. */
bool
zu_may_cancel(const ZuPin *pin)
{
	return (pin->kind == ZU_PIN_CLIENT || pin->kind == ZU_PIN_AUTOVACUUM) && !pin->exempt &&
		!is_waiting(pin);
}

/*
 * Returns whether the process is still in the transaction that was found to
 * pin. ProcArrayLock held.
 */
static bool
still_pins(const ZuPin *pin)
{
	PGPROC	   *proc = &ProcGlobal->allProcs[pin->procno];

	return proc->pid == pin->pid && zc_proc_lxid(proc) == pin->lxid &&
		proc->databaseId == MyDatabaseId;
}

/*
 * Looks at the process again, and signals it, under ProcArrayLock (UNDO-33).
 * Reports to the server log only.
 */
static void
cancel_process(const ZuPin *pin)
{
	TimestampTz now = GetCurrentTimestamp();
	int			signal = 0;
	bool		first = false;

	Assert(zu_may_cancel(pin) && pin->pid != MyProcPid);
	if (pin->procno >= shared->n)
		return;
	LWLockAcquire(ProcArrayLock, LW_SHARED);
	if (still_pins(pin))
	{
		SpinLockAcquire(&shared->mutex);
		signal = next_signal(&shared->marks[pin->procno], pin, now, &first);
		SpinLockRelease(&shared->mutex);
		if (signal != 0)
			(void) kill(pin->pid, signal);
	}
	LWLockRelease(ProcArrayLock);
	if (signal == SIGTERM)
		ereport(LOG_SERVER_ONLY,
				(pin->reading || pin->writing ?
				 errmsg("terminated process %d, which waits for its client and prevents undo of "
						"transaction %u and later ones from being discarded",
						pin->pid, pin->xid) :
				 errmsg("terminated process %d, which continues after cancellation and prevents "
						"undo of transaction %u and later ones from being discarded",
						pin->pid, pin->xid),
				 errdetail("Process %d waits for space below \"zundo.undo_limit\", and "
						   "\"zundo.undo_full\" is \"cancel\".", MyProcPid)));
	else if (signal == SIGINT && first)
		ereport(LOG_SERVER_ONLY,
				(errmsg("canceled the statement of process %d, which prevents undo of transaction "
						"%u and later ones from being discarded",
						pin->pid, pin->xid),
				 errdetail("Process %d waits for space below \"zundo.undo_limit\", and "
						   "\"zundo.undo_full\" is \"cancel\".", MyProcPid)));
}

/*
 * zu_cancel_pin: See undo_internal.h. Of processes that are in the way of a
 * rollback all are canceled together: one after the other, each with its time
 * of grace, new ones could come faster.
 */
void
zu_cancel_pin(const ZuPin *pin)
{
	LockData   *locks;
	List	   *pins;
	ListCell   *lc;
	bool		mine;

	if (!OidIsValid(pin->table))
	{
		cancel_process(pin);
		return;
	}
	locks = GetLockStatusData();
	pins = find_lockers(locks, pin->table, pin->xid, &mine);
	foreach(lc, pins)
	{
		ZuPin	   *locker = lfirst(lc);

		if (zu_may_cancel(locker))
			cancel_process(locker);
	}
	list_free_deep(pins);
	pfree(locks->locks);
	pfree(locks);
}

/*
 * Returns whether another process has canceled the current transaction for its
 * undo, or with 'terminated' has ended this session for it.
 */
static bool
am_victim(bool terminated)
{
	int			me = zc_my_proc_number();
	const Mark *mark;
	bool		result;

	if (shared == NULL || me < 0 || me >= shared->n)
		return false;
	mark = &shared->marks[me];
	SpinLockAcquire(&shared->mutex);
	result = mark->pid == MyProcPid && mark->lxid == zc_proc_lxid(MyProc) &&
		(terminated ? mark->terminated : mark->cancelled > 0);
	SpinLockRelease(&shared->mutex);
	return result;
}

/*
 * zu_explain_end: See undo.h. Called with each message before it goes to the
 * server log and the client. The server's message for SIGTERM is the same for
 * every sender; if zu_cancel_pin was the sender, DETAIL and HINT are added.
 */
void
zu_explain_end(ErrorData *error)
{
	if (error->elevel == FATAL && error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN &&
		error->detail == NULL &&
		MyProc != NULL && am_victim(true))
	{
		MemoryContext old = MemoryContextSwitchTo(ErrorContext);

		zcount(ZCOUNT_CANCELED, 1);
		error->detail = pstrdup(VICTIM_DETAIL);
		error->hint = pstrdup(VICTIM_HINT);

		/* from 19 on the log has a detail of its own, the sender */
		if (error->detail_log != NULL)
			error->detail_log = psprintf("%s %s", error->detail, error->detail_log);
		MemoryContextSwitchTo(old);
	}
}

/*
 * zu_error_of_victim: See undo.h. Copies the error to TopTransactionContext,
 * which outlives the statement, and throws the copy.
 */
void
zu_error_of_victim(void)
{
	MemoryContext old;
	ErrorData  *error;

	if (geterrcode() != ERRCODE_QUERY_CANCELED || TopTransactionContext == NULL ||
		!am_victim(false))
		return;
	old = MemoryContextSwitchTo(TopTransactionContext);
	error = CopyErrorData();
	FlushErrorState();
	zcount(ZCOUNT_CANCELED, 1);
	error->sqlerrcode = ERRCODE_SNAPSHOT_TOO_OLD;
	error->message = pstrdup("snapshot too old");
	error->detail = pstrdup(VICTIM_DETAIL);
	error->hint = pstrdup(VICTIM_HINT);
	MemoryContextSwitchTo(old);
	ReThrowError(error);
}
