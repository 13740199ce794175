/*
 * undo/undo_shmem.c - the shared tables of undo logs: memory and locks.
 *
 * Owns the shared arrays of entries, one per database in use, of their locks,
 * and of sets of logs, and the variable zu_my, which undo_attach.c maintains.
 * Called when the library is loaded, by undo_attach.c and undo_load.c, by redo
 * to find an entry, and at process exit.
 *
 * Locks: the table lock protects keys and reference counts. It is the
 * innermost lock here: redo takes it shared with a buffer locked, so no
 * process may lock a buffer while it holds the table lock.
 *
 * Crash points: none; nothing here is durable. After a crash every entry is
 * gone, and the first session of a database loads it from the pages.
 *
 * An entry exists exactly while its reference count is positive. There is
 * space for one per process that can be connected to a database, so that a
 * reader never lacks one; zundo.max_databases limits only the sets of logs,
 * which a database needs when it is written.
 *
 * Invariant
 *	UNDO-2	`oldest` of a database
 *		(a) never decreases;
 *		(b) is loaded before anything depends on it: no visibility test and no
 *			allocation is made in state EMPTY, whatever errors come in between;
 *		(c) is above no xid that may still write, neither in shared memory nor
 *			in the meta page. It begins as the oldest running transaction, redo
 *			of DISCARD makes the server's next xid pass it, a meta page ahead
 *			of the server's xids is refused (undo_load.c), and each writer
 *			checks its own xid (zwriter_start).
 *		Example: after a crash the server's next xid is 1,000, and the meta
 *		page says 1,200: it is of another server, and is refused.
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

#define LOCKS_PER_ENTRY 2
/*
 * A set has SPARE_LOGS more logs than there can be processes, because closed
 * logs are not attached to any; and at least LEAST_LOGS, because a database
 * that has a log of a higher number cannot be loaded (load_logs), as when
 * max_connections was reduced.
 */
#define SPARE_LOGS		32
#define LEAST_LOGS		128

/*
 * Two tables. Entries hold what readers need of a database; they are small, and
 * there is one for each process, as every process may be in another database.
 * Sets of logs hold what writers and the discarder need besides; they are
 * large, and there are zundo.max_databases of them.
 */
typedef union ZuEntryPadded
{
	ZuEntry		entry;
	char		pad[TYPEALIGN(PG_CACHE_LINE_SIZE, sizeof(ZuEntry))];
} ZuEntryPadded;

typedef struct ZuShared
{
	int			nlogs;			/* in a set */
	int			nentries;
	int			nsets;
	int			entries_used;	/* those from here on were never used; table
								 * lock */
	/* from here on nothing shares a cache line with something else */
	char		pad[PG_CACHE_LINE_SIZE - 4 * sizeof(int)];
	ZuEntryPadded entries[FLEXIBLE_ARRAY_MEMBER];
} ZuShared;

StaticAssertDecl(offsetof(ZuShared, entries) == PG_CACHE_LINE_SIZE &&
				 offsetof(ZuLogSet, logs) == PG_CACHE_LINE_SIZE, "alignment of shared memory");

ZuBackend	zu_my;

/* Where this process finds the parts of shared memory. */
typedef struct SharedParts
{
	ZuShared   *shared;			/* NULL = shared memory is not set up */
	ZuLogSet   *sets;
	LWLockPadded *locks;		/* 0: table lock; then LOCKS_PER_ENTRY for
								 * each entry; then a fence for each process */
	ZuDoubt		no_doubt;		/* of a process without an entry */
} SharedParts;

static SharedParts at;

ZuDoubt    *zu_doubt = &at.no_doubt;

/* ---- size and start ---- */

/* Returns how many logs each set has: more than one for each process. */
static int
logs_wanted(void)
{
	return Min(Max(MaxBackends + SPARE_LOGS, LEAST_LOGS), PG_UINT16_MAX);
}

/* Returns the size of a set of nlogs logs. */
static Size
set_size(int nlogs)
{
	return CACHELINEALIGN(add_size(offsetof(ZuLogSet, logs), mul_size(nlogs, sizeof(ZuLog))));
}

/*
 * Returns the size of the header and of the entries, one for each process that
 * can be connected to a database.
 */
static Size
entries_size(void)
{
	return add_size(offsetof(ZuShared, entries), mul_size(MaxBackends, sizeof(ZuEntryPadded)));
}

/* Returns the size of both tables: entries, then sets of logs. */
static Size
zu_shmem_size(void)
{
	return add_size(entries_size(), mul_size(zundo_max_databases, set_size(logs_wanted())));
}

void
zu_shmem_request(void)
{
	RequestAddinShmemSpace(zu_shmem_size());
	RequestAddinShmemSpace(zu_pin_shmem_size());
	RequestNamedLWLockTranche("zundo", 1 + MaxBackends * (LOCKS_PER_ENTRY + 1));
}

/* Returns the set of logs with this number. */
static ZuLogSet *
set_at(int i)
{
	Assert(i >= 0 && i < at.shared->nsets);
	return (ZuLogSet *) ((char *) at.sets + i * set_size(at.shared->nlogs));
}

/* Makes log an unused log. */
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
	pg_atomic_init_u64(&log->idle_since, 0);
}

/* Makes entry an unused one, with nothing loaded. */
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
	entry->chosen = InvalidZXid;
	entry->pruned = InvalidZXid;
	entry->nholds = 0;
	entry->logs = NULL;
}

/* zu_shmem_startup: See undo.h. */
void
zu_shmem_startup(void)
{
	bool		found;

	at.shared = ShmemInitStruct("zundo undo logs", zu_shmem_size(), &found);
	if (!found)
	{
		at.shared->nlogs = logs_wanted();
		at.shared->nentries = MaxBackends;
		at.shared->nsets = zundo_max_databases;
		at.shared->entries_used = 0;
		for (int i = 0; i < at.shared->nentries; i++)
			init_entry(&at.shared->entries[i].entry);
	}
	at.sets = (ZuLogSet *) ((char *) at.shared + entries_size());
	if (!found)
	{
		for (int i = 0; i < at.shared->nsets; i++)
			set_at(i)->owner = NULL;
	}
	zu_pin_shmem_startup();
	at.locks = GetNamedLWLockTranche("zundo");
}

bool
zu_shmem_ready(void)
{
	return at.shared != NULL;
}

int
zu_nlogs(void)
{
	return at.shared->nlogs;
}

/* ---- locks ---- */

/* Returns the lock of keys and reference counts of all entries. */
static LWLock *
table_lock(void)
{
	return &at.locks[0].lock;
}

/* Returns lock n of those that the entry has (LOCKS_PER_ENTRY). */
static LWLock *
entry_lock(ZuEntry *entry, int n)
{
	Size		i = (ZuEntryPadded *) entry - at.shared->entries;

	return &at.locks[1 + i * LOCKS_PER_ENTRY + n].lock;
}

/* Returns the fence of the process with this number. */
static LWLock *
fence_lock(int procno)
{
	return &at.locks[1 + at.shared->nentries * LOCKS_PER_ENTRY + procno].lock;
}

LWLock *
zu_my_fence(void)
{
	int			procno = (int) zc_my_proc_number();

	/* only processes that can be connected to a database read undo */
	Assert(procno >= 0 && procno < at.shared->nentries);
	return fence_lock(procno);
}

LWLock *
zu_alloc_lock(ZuEntry *entry)
{
	return entry_lock(entry, 0);
}

LWLock *
zu_load_lock(ZuEntry *entry)
{
	return entry_lock(entry, 1);
}

/*
 * zu_lower_limit: See undo_entry.h. Takes the fences of all processes, of
 * those of other databases too: these may have to wait a moment.
 */
void
zu_lower_limit(ZuEntry *entry, uint32 nextents)
{
	pg_atomic_write_u32(&entry->limit, nextents);
	pg_memory_barrier();
	for (int i = 0; i < at.shared->nentries; i++)
	{
		LWLockAcquire(fence_lock(i), LW_EXCLUSIVE);
		LWLockRelease(fence_lock(i));
	}
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

/*
 * Returns the entry of a relation, or NULL. InvalidOid and InvalidRelFileNumber
 * find an unused entry. Table lock held.
 */
static ZuEntry *
find_entry(Oid dboid, RelFileNumber relnumber)
{
	Assert(LWLockHeldByMe(table_lock()));
	for (int i = 0; i < at.shared->entries_used; i++)
	{
		ZuEntry    *entry = &at.shared->entries[i].entry;

		if (entry->dboid == dboid && entry->relnumber == relnumber)
			return entry;
	}
	return NULL;
}

/*
 * zu_lock_entry_for_redo: See undo_entry.h. Before shared memory is set up
 * there is no entry.
 */
ZuEntry *
zu_lock_entry_for_redo(RelFileLocator locator)
{
	ZuEntry    *entry;

	if (at.shared == NULL)
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

/*
 * zu_join_entry: See undo_entry.h. Searches and creates the entry under the
 * exclusive table lock. A new entry is EMPTY; the caller has it loaded.
 */
void
zu_join_entry(RelFileLocator locator)
{
	ZuEntry    *entry;

	Assert(zu_my.entry == NULL);
	LWLockAcquire(table_lock(), LW_EXCLUSIVE);
	entry = find_entry(locator.dbOid, locator.relNumber);
	if (entry == NULL)
	{
		entry = find_entry(InvalidOid, InvalidRelFileNumber);
		if (entry == NULL)
		{
			if (at.shared->entries_used >= at.shared->nentries)
				elog(ERROR, "zundo has no entry left for a database");
			entry = &at.shared->entries[at.shared->entries_used++].entry;
		}
		init_entry(entry);
		entry->dboid = locator.dbOid;
		entry->relnumber = locator.relNumber;
	}
	entry->refcount++;
	LWLockRelease(table_lock());
	zu_my.entry = entry;
	zu_my.joined++;
	zu_doubt = &entry->doubt;
}

/*
 * zu_take_logs: See undo_entry.h. The table lock is not needed to initialise
 * the logs: the set belongs to this entry by then, and the caller holds the
 * load lock, which excludes other processes of this database.
 */
void
zu_take_logs(ZuEntry *entry)
{
	ZuLogSet   *set = NULL;

	Assert(LWLockHeldByMe(zu_load_lock(entry)));
	if (entry->logs != NULL)
		return;
	LWLockAcquire(table_lock(), LW_EXCLUSIVE);
	for (int i = 0; i < at.shared->nsets && set == NULL; i++)
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
						   at.shared->nsets),
				 errhint("Increase \"zundo.max_databases\" and restart the server.")));
	for (int i = 0; i < at.shared->nlogs; i++)
		init_log(&set->logs[i]);
	entry->logs = set->logs;
}

/*
 * Gives the entry's set of logs back. Table lock held; no other process uses
 * the entry any more.
 */
static void
drop_logs(ZuEntry *entry)
{
	Assert(LWLockHeldByMeInMode(table_lock(), LW_EXCLUSIVE) && entry->refcount == 0);
	if (entry->logs == NULL)
		return;
	for (int i = 0; i < at.shared->nsets; i++)
	{
		if (set_at(i)->owner == entry)
			set_at(i)->owner = NULL;
	}
	entry->logs = NULL;
}

/*
 * zu_leave_entry: See undo_entry.h. Frees the entry and its logs when the last
 * process leaves.
 */
void
zu_leave_entry(void)
{
	ZuEntry    *entry = zu_my.entry;

	zu_my.entry = NULL;
	zu_doubt = &at.no_doubt;
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

/* ---- this backend's entry ---- */

bool
zu_loaded(void)
{
	return zu_my.entry != NULL && zu_entry_has(zu_my.entry, ZU_ENTRY_STANDBY);
}

bool
zu_attached(void)
{
	return zu_loaded() && !zu_my.stale;
}

bool
zu_writable(void)
{
	return zu_attached() && zu_entry_has(zu_my.entry, ZU_ENTRY_LOGS);
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
