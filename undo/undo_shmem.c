/*
 * undo/undo_shmem.c - the shared table of undo logs, and attaching to it.
 *
 * Owns the shared arrays of entries, one per database in use, of their locks, and of sets of logs, and
 * this backend's link to the entry of its database (zu_my). Called at load, at
 * scan and DML begin, by redo to find an entry, and at process exit.
 *
 * Locks: the table lock protects keys and reference counts. It is the innermost lock
 * here: redo takes it shared with a buffer locked, so nobody may lock a buffer
 * while holding it.
 *
 * Crash points: none; nothing here is durable. After a crash every entry is gone and the
 * first user loads it from the pages.
 *
 * Invariants
 *	U1	an entry exists exactly while its reference count is positive. There is one for each process that can be
 *		connected to a database, so that a reader never lacks one; zundo.max_databases bounds the sets of logs, which
 *		databases need that are written.
 *	U2	`oldest` of an entry never decreases, and neither a visibility test nor an
 *		allocation happens before it was loaded (state EMPTY), whatever errors come in between.
 *	U3	redo never fails for want of an entry: without one there is no reader.
 */
#include "undo/undo_internal.h"
#include "undo/undo_request.h"
#include "undo/undo_temp.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/shmem.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#define LOCKS_PER_ENTRY (ZU_FENCES + 2)
#define SPARE_LOGS		32
#define LEAST_LOGS		128

/*
 * Two tables. Entries: what readers need of a database, small, and enough for every process to be in another database.
 * Sets of logs: what writers and the discarder need besides, large, and zundo.max_databases of them.
 */
typedef struct ZuShared
{
	int			nlogs;			/* in a set */
	int			nentries;
	int			nsets;
	int			entries_used;	/* none beyond has been used yet; table lock */
	ZuEntry		entries[FLEXIBLE_ARRAY_MEMBER];
} ZuShared;

ZuBackend	zu_my;

static ZuDoubt no_doubt;
ZuDoubt    *zu_doubt = &no_doubt;

static ZuShared *shared = NULL;
static ZuLogSet *sets = NULL;
static LWLockPadded *locks = NULL;	/* 0: table lock; then LOCKS_PER_ENTRY each */
static bool exit_registered = false;
static bool callback_registered = false;

/* ---- size and start ---- */

static int
logs_wanted(void)
{
	return Min(Max(MaxBackends + SPARE_LOGS, LEAST_LOGS), PG_UINT16_MAX);
}

static Size
set_size(int nlogs)
{
	return MAXALIGN(add_size(offsetof(ZuLogSet, logs), mul_size(nlogs, sizeof(ZuLog))));
}

/* entries_size: of the header and the entries: one for each process that can be connected to a database (U1). */
static Size
entries_size(void)
{
	return MAXALIGN(add_size(offsetof(ZuShared, entries), mul_size(MaxBackends, sizeof(ZuEntry))));
}

Size
zu_shmem_size(void)
{
	return add_size(entries_size(), mul_size(zundo_max_databases, set_size(logs_wanted())));
}

void
zu_shmem_request(void)
{
	RequestAddinShmemSpace(zu_shmem_size());
	RequestAddinShmemSpace(zu_pin_shmem_size());
	RequestNamedLWLockTranche("zundo", 1 + MaxBackends * LOCKS_PER_ENTRY);
}

static ZuLogSet *
set_at(int i)
{
	return (ZuLogSet *) ((char *) sets + i * set_size(shared->nlogs));
}

static void
init_log(ZuLog *log)
{
	pg_atomic_init_u64(&log->insert, InvalidUndoPtr);
	pg_atomic_init_u64(&log->insert_sequence, 0);
	pg_atomic_init_u64(&log->discard, InvalidUndoPtr);
	pg_atomic_init_u64(&log->discard_sequence, 0);
	pg_atomic_init_u64(&log->discards, 0);
	pg_atomic_init_u32(&log->nextents, 0);
	pg_atomic_init_u32(&log->owner, 0);
	memset(&log->ahead, 0, sizeof(log->ahead));
	log->last_sequence = 0;
	log->sealed = false;
	log->closed = false;
	log->excused = false;
	log->hold = InvalidZXid;
	log->unread_end = InvalidZXid;
	log->detached = 0;
}

static void
init_entry(ZuEntry *entry)
{
	entry->dboid = InvalidOid;
	entry->relnumber = InvalidRelFileNumber;
	entry->refcount = 0;
	pg_atomic_init_u32(&entry->state, ZU_ENTRY_EMPTY);
	pg_atomic_init_u64(&entry->oldest, InvalidZXid);
	pg_atomic_init_u32(&entry->limit, 0);
	pg_atomic_init_u32(&entry->used, 0);
	pg_atomic_init_u32(&entry->hint, 0);
	pg_atomic_init_u32(&entry->overflow_extents, 0);
	pg_atomic_init_u32(&entry->overflow_hint, 0);
	pg_atomic_init_u64(&entry->doubt.from, InvalidZXid);
	pg_atomic_init_u64(&entry->doubt.to, InvalidZXid);
	pg_atomic_init_u64(&entry->horizon, InvalidZXid);
	pg_atomic_init_u64(&entry->durable, InvalidZXid);
	pg_atomic_init_u64(&entry->conflict, InvalidZXid);
	pg_atomic_init_u32(&entry->discarder, 0);
	pg_atomic_init_u32(&entry->truncator, 0);
	ConditionVariableInit(&entry->truncated);
	pg_atomic_init_u32(&entry->worker, 0);
	pg_atomic_init_u32(&entry->passes_begun, 0);
	pg_atomic_init_u32(&entry->passes_done, 0);
	SpinLockInit(&entry->mutex);
	memset(&entry->freeze, 0, sizeof(entry->freeze));
	memset(&entry->freeze_logged, 0, sizeof(entry->freeze_logged));
	entry->logged = 0;
	entry->logs = NULL;
}

void
zu_shmem_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("zundo undo logs", zu_shmem_size(), &found);
	if (!found)
	{
		shared->nlogs = logs_wanted();
		shared->nentries = MaxBackends;
		shared->nsets = zundo_max_databases;
		shared->entries_used = 0;
		for (int i = 0; i < shared->nentries; i++)
			init_entry(&shared->entries[i]);
	}
	sets = (ZuLogSet *) ((char *) shared + entries_size());
	if (!found)
	{
		for (int i = 0; i < shared->nsets; i++)
			set_at(i)->owner = NULL;
	}
	zu_pin_shmem_startup();
	locks = GetNamedLWLockTranche("zundo");
	LWLockRelease(AddinShmemInitLock);
}

int
zu_nlogs(void)
{
	return shared->nlogs;
}

/* ---- locks ---- */

static LWLock *
table_lock(void)
{
	return &locks[0].lock;
}

static LWLock *
entry_lock(ZuEntry *entry, int n)
{
	Size		i = entry - shared->entries;

	return &locks[1 + i * LOCKS_PER_ENTRY + n].lock;
}

LWLock *
zu_fence_lock(ZuEntry *entry, int n)
{
	return entry_lock(entry, n % ZU_FENCES);
}

LWLock *
zu_alloc_lock(ZuEntry *entry)
{
	return entry_lock(entry, ZU_FENCES);
}

LWLock *
zu_load_lock(ZuEntry *entry)
{
	return entry_lock(entry, ZU_FENCES + 1);
}

void
zu_fences_acquire(ZuEntry *entry)
{
	for (int i = 0; i < ZU_FENCES; i++)
		LWLockAcquire(zu_fence_lock(entry, i), LW_EXCLUSIVE);
}

void
zu_fences_release(ZuEntry *entry)
{
	for (int i = ZU_FENCES - 1; i >= 0; i--)
		LWLockRelease(zu_fence_lock(entry, i));
}

void
zu_max64(pg_atomic_uint64 *v, uint64 to)
{
	uint64		old = pg_atomic_read_u64(v);

	while (old < to && !pg_atomic_compare_exchange_u64(v, &old, to))
		;
}

void
zu_end_discard(ZuEntry *entry)
{
	uint32		me = (uint32) MyProcPid;

	(void) pg_atomic_compare_exchange_u32(&entry->discarder, &me, 0);
}

void
zu_end_truncation(ZuEntry *entry)
{
	uint32		me = (uint32) MyProcPid;

	if (pg_atomic_compare_exchange_u32(&entry->truncator, &me, 0))
		ConditionVariableBroadcast(&entry->truncated);
}

/* ---- entries ---- */

/* find_entry: the entry of a relation, or NULL. Table lock held. */
static ZuEntry *
find_entry(Oid dboid, RelFileNumber relnumber)
{
	for (int i = 0; i < shared->entries_used; i++)
	{
		ZuEntry    *entry = &shared->entries[i];

		if (entry->dboid == dboid && entry->relnumber == relnumber)
			return entry;
	}
	return NULL;
}

ZuEntry *
zu_lock_entry_for_redo(RelFileLocator locator)
{
	ZuEntry    *entry;

	if (shared == NULL)
		return NULL;
	LWLockAcquire(table_lock(), LW_SHARED);
	entry = find_entry(locator.dbOid, locator.relNumber);
	if (entry == NULL)
		LWLockRelease(table_lock());
	return entry;
}

void
zu_unlock_entry_for_redo(void)
{
	LWLockRelease(table_lock());
}

/* join_entry: find or make the entry of locator and count this backend in. There always is room (U1). */
static ZuEntry *
join_entry(RelFileLocator locator)
{
	ZuEntry    *entry;

	LWLockAcquire(table_lock(), LW_EXCLUSIVE);
	entry = find_entry(locator.dbOid, locator.relNumber);
	if (entry == NULL)
	{
		entry = find_entry(InvalidOid, InvalidRelFileNumber);
		if (entry == NULL)
		{
			if (shared->entries_used >= shared->nentries)
				elog(ERROR, "zundo has no entry left for a database");
			entry = &shared->entries[shared->entries_used++];
		}
		init_entry(entry);
		entry->dboid = locator.dbOid;
		entry->relnumber = locator.relNumber;
	}
	entry->refcount++;
	LWLockRelease(table_lock());
	return entry;
}

void
zu_take_logs(ZuEntry *entry)
{
	ZuLogSet   *set = NULL;

	if (entry->logs != NULL)
		return;
	LWLockAcquire(table_lock(), LW_EXCLUSIVE);
	for (int i = 0; i < shared->nsets && set == NULL; i++)
	{
		if (set_at(i)->owner == NULL)
			set = set_at(i);
	}
	if (set != NULL)
		set->owner = entry;
	LWLockRelease(table_lock());
	if (set == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many databases write zheap tables at the same time"),
				 errdetail("At most %d databases can do so (\"zundo.max_databases\").",
						   shared->nsets),
				 errhint("Increase \"zundo.max_databases\" and restart the server.")));
	for (int i = 0; i < shared->nlogs; i++)
		init_log(&set->logs[i]);
	entry->logs = set->logs;
}

/* drop_logs: give the entry's set of logs back. Table lock held; nobody else uses the entry any more. */
static void
drop_logs(ZuEntry *entry)
{
	if (entry->logs == NULL)
		return;
	for (int i = 0; i < shared->nsets; i++)
	{
		if (set_at(i)->owner == entry)
			set_at(i)->owner = NULL;
	}
	entry->logs = NULL;
}

/* leave_entry: give up everything this backend holds in its entry. */
static void
leave_entry(void)
{
	ZuEntry    *entry = zu_my.entry;

	if (entry == NULL)
		return;
	zu_log_detach();
	zu_end_discard(entry);
	zu_end_truncation(entry);
	zu_worker_detach();
	zu_my.entry = NULL;
	zu_doubt = &no_doubt;
	LWLockAcquire(table_lock(), LW_EXCLUSIVE);
	Assert(entry->refcount > 0);
	if (--entry->refcount == 0)
	{
		drop_logs(entry);
		entry->dboid = InvalidOid;
		entry->relnumber = InvalidRelFileNumber;
	}
	LWLockRelease(table_lock());
}

/*
 * at_exit: on_shmem_exit, not before_shmem_exit: the abort of a transaction
 * that is open at exit comes in between and may still read undo.
 */
static void
at_exit(int code, Datum arg)
{
	LWLockReleaseAll();
	leave_entry();
}

static void
relcache_changed(Datum arg, Oid reloid)
{
	if (!OidIsValid(reloid) || reloid == zu_my.reloid)
		zu_my.stale = true;
}

/* ---- attaching ---- */

static void
report_missing(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("zheap tables require extension \"zundo\" in this database"),
			 errdetail("The relation zundo.undo_log, which holds the old row versions, does not exist."),
			 errhint("Run CREATE EXTENSION zundo.")));
}

/* lookup_relation: OID of zundo.undo_log, Invalid if there is none. */
static Oid
lookup_relation(void)
{
	Oid			nspoid = get_namespace_oid("zundo", true);

	return OidIsValid(nspoid) ? get_relname_relid("undo_log", nspoid) : InvalidOid;
}

/* lock_relation: hold AccessShareLock to the end of the top-level transaction, also across ROLLBACK TO. */
static void
lock_relation(Oid reloid)
{
	ResourceOwner saved = CurrentResourceOwner;

	CurrentResourceOwner = TopTransactionResourceOwner;
	PG_TRY();
	{
		LockRelationOid(reloid, AccessShareLock);
	}
	PG_FINALLY();
	{
		CurrentResourceOwner = saved;
	}
	PG_END_TRY();
	zu_my.locked = true;
}

/* is_undo_log: Returns whether rel has the access method of the undo log. */
static bool
is_undo_log(Relation rel)
{
	char	   *am = OidIsValid(rel->rd_rel->relam) ? get_am_name(rel->rd_rel->relam) : NULL;

	return am != NULL && strcmp(am, "zundo_undo") == 0;
}

/*
 * open_relation: lock and check zundo.undo_log, set zu_my's OID and locator.
 * Errors: not there, or not a relation of ours.
 */
static void
open_relation(void)
{
	for (;;)
	{
		Oid			reloid = lookup_relation();
		Relation	rel;

		if (!OidIsValid(reloid))
		{
			leave_entry();
			zu_my.reloid = InvalidOid;
			report_missing();
		}
		lock_relation(reloid);
		rel = try_relation_open(reloid, NoLock);
		if (rel == NULL)
			continue;			/* dropped while we waited for the lock */
		if (!is_undo_log(rel))
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("relation \"zundo.undo_log\" is not an undo log"),
					 errdetail("Its access method is not \"zundo_undo\"."),
					 errhint("Drop schema \"zundo\" and run CREATE EXTENSION zundo.")));
		zu_my.stale = false;
		if (zu_my.entry != NULL &&
			(zu_my.entry->dboid != rel->rd_locator.dbOid ||
			 zu_my.entry->relnumber != rel->rd_locator.relNumber))
			leave_entry();
		zu_my.reloid = reloid;
		zu_my.locator = rel->rd_locator;
		relation_close(rel, NoLock);
		return;
	}
}

/*
 * want_look: the database's first user for some time has found undo there. It may be a copy of another
 * database, made while aborts were pending there: have a worker look at it. Whatever is pending has its records in an
 * extent of a log; where nothing is, the worker gives the last of these back, so in a database that is only read
 * nobody is called again.
 */
static void
want_look(void)
{
	if (!(MyProc->statusFlags & PROC_IS_AUTOVACUUM) &&
		!RecoveryInProgress() && zu_any_log_extent())
		zworkers_wake(MyDatabaseId);
}

void
zu_attach_unloaded(void)
{
	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zundo must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"zundo\" to \"shared_preload_libraries\" and restart the server.")));
	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(relcache_changed, (Datum) 0);
		callback_registered = true;
	}
	open_relation();
	if (zu_my.entry == NULL)
	{
		if (!exit_registered)
		{
			on_shmem_exit(at_exit, (Datum) 0);
			exit_registered = true;
		}
		zu_my.entry = join_entry(zu_my.locator);
		zu_my.joined++;
		zu_doubt = &zu_my.entry->doubt;
	}
}

void
zu_attach_database(void)
{
	if (likely(zu_my.entry != NULL && !zu_my.stale))
	{
		if (!zu_my.locked)
			lock_relation(zu_my.reloid);
		/* its loading may have failed the last time (U2) */
		if (likely(!zu_my.stale && pg_atomic_read_u32(&zu_my.entry->state) != ZU_ENTRY_EMPTY))
			return;
	}
	zu_attach_unloaded();
	if (pg_atomic_read_u32(&zu_my.entry->state) == ZU_ENTRY_EMPTY)
	{
		zu_load_meta(zu_my.entry);
		want_look();
	}
	pg_read_barrier();
}

bool
zu_attached(void)
{
	return zu_my.entry != NULL && !zu_my.stale &&
		pg_atomic_read_u32(&zu_my.entry->state) != ZU_ENTRY_EMPTY;
}

bool
zu_writable(void)
{
	return zu_attached() && pg_atomic_read_u32(&zu_my.entry->state) == ZU_ENTRY_LOGS;
}

RelFileLocator
zu_relation_locator(void)
{
	return zu_my.locator;
}

Oid
zu_relation_oid(void)
{
	return zu_my.reloid;
}

ZXid
zu_oldest(void)
{
	Assert(zu_my.entry != NULL);
	return pg_atomic_read_u64(&zu_my.entry->oldest);
}

ZXid
zu_oldest_for(UndoPtr ptr)
{
	return unlikely(zuptr_is_temp(ptr)) ? zu_temp_oldest() : zu_oldest();
}

/* ---- workers ---- */

void
zu_worker_attach(void)
{
	zu_attach_database();
	pg_atomic_write_u32(&zu_my.entry->worker, (uint32) MyProcPid);
}

void
zu_worker_detach(void)
{
	uint32		me = (uint32) MyProcPid;

	if (zu_my.entry != NULL)
		(void) pg_atomic_compare_exchange_u32(&zu_my.entry->worker, &me, 0);
}
