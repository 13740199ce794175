/*
 * convert/lock.c - locks that others do not wait behind for long.
 *
 * Locks: those that the callers ask for. Crash points: none.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "common/pg_prng.h"
#include "convert/convert_internal.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(zundo_size_unless_locked);

/* zconvert_sleep: See convert_internal.h. */
void
zconvert_sleep(int ms)
{
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), ms);
	long		rest = ms;

	/* the latch is set also for other reasons than a cancel */
	while (rest > 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, rest,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		rest = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), end);
	}
}

/* zconvert_sleep_before_retry: See convert_internal.h. */
void
zconvert_sleep_before_retry(int attempts)
{
	double		longest = Min(20.0 * attempts, 2000.0);

	zconvert_sleep(1 + (int) (longest * pg_prng_double(&pg_global_prng_state)));
}

/* zconvert_wait_for_lock: See convert_internal.h. */
void
zconvert_wait_for_lock(Oid table, int attempts)
{
	char	   *name = get_rel_name(table);

	if (attempts % 100 == 10)
		ereport(NOTICE,
				(errmsg("table \"%s\" could not be locked after %d attempts",
						name ? name : "?", attempts),
				 errhint("See blocked_by in zundo.conversions.")));
	zconvert_sleep_before_retry(attempts);
}

/* Raises the error of lock_timeout, which zconvert_try_lock expects. */
static void
report_not_available(Oid reloid)
{
	ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
					errmsg_internal("could not lock relation %u", reloid)));
}

/* Locks an index or TOAST table at once. */
static void
lock_at_once(Oid reloid, LOCKMODE mode)
{
	if (!ConditionalLockRelationOid(reloid, mode))
		report_not_available(reloid);
}

/*
 * Locks the table's row of pg_class at once. GRANT changes it without a lock
 * of the table; we would wait for the end of its transaction with our lock.
 * The scan's pin keeps the row from being pruned, of which a copy of the cache
 * knows nothing; the caller changes what the cache has.
 */
static void
lock_row(Oid table)
{
	Relation	catalog = table_open(RelationRelationId, RowExclusiveLock);
	HeapTuple	cached = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	HeapTuple	tuple;
	ScanKeyData key;
	SysScanDesc scan;
	Buffer		buffer;
	TM_FailureData failure;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(table));
	scan = systable_beginscan(catalog, ClassOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (!HeapTupleIsValid(cached) || !HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", table);
	if (!ItemPointerEquals(&tuple->t_self, &cached->t_self))
		report_not_available(table);
	if (heap_lock_tuple(catalog, tuple, GetCurrentCommandId(true), LockTupleNoKeyExclusive,
						LockWaitError, false, &buffer, &failure) != TM_Ok)
		report_not_available(table);
	ReleaseBuffer(buffer);
	systable_endscan(scan);
	ReleaseSysCache(cached);
	table_close(catalog, RowExclusiveLock);
}

/*
 * Locks the table, and with AccessExclusiveLock also its indexes and its TOAST
 * table with its index, for which it does not wait. Returns false if the table
 * does not exist.
 */
static bool
lock_table(Oid table, LOCKMODE mode)
{
	Relation	rel = try_relation_open(table, mode);
	ListCell   *lc;

	if (rel == NULL)
		return false;
	if (mode == AccessExclusiveLock)
	{
		Oid			toast = rel->rd_rel->reltoastrelid;

		foreach(lc, RelationGetIndexList(rel))
			lock_at_once(lfirst_oid(lc), mode);
		if (OidIsValid(toast))
		{
			lock_at_once(toast, mode);
			(void) lock_table(toast, mode);
		}
	}
	relation_close(rel, NoLock);
	return true;
}

/* Returns whether the lock is one of the relation. */
static bool
is_lock_of(const LockInstanceData *lock, Oid reloid)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, reloid);
	return memcmp(&lock->locktag, &tag, sizeof(tag)) == 0;
}

/* zconvert_report_missing: See convert_internal.h. */
void
zconvert_report_missing(Oid table)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("table with OID %u does not exist", table)));
}

/*
 * zconvert_try_lock: See convert_internal.h. The server's deadlock detection
 * does not run in so short a time.
 */
bool
zconvert_try_lock(Oid table, Oid copy, LOCKMODE mode, int lock_wait)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool exists = true;
	volatile bool locked = true;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		int			level = NewGUCNestLevel();

		zconvert_set_local("lock_timeout", psprintf("%d", lock_wait));
		exists = (!OidIsValid(copy) || lock_table(copy, mode)) && lock_table(table, mode);
		if (exists)
			lock_row(table);
		AtEOXact_GUC(true, level);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		if (error->sqlerrcode != ERRCODE_LOCK_NOT_AVAILABLE &&
			error->sqlerrcode != ERRCODE_T_R_DEADLOCK_DETECTED)
			PG_RE_THROW();
		FlushErrorState();
		FreeErrorData(error);
		RollbackAndReleaseCurrentSubTransaction();
		locked = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	if (!exists)
		zconvert_report_missing(table);
	return locked;
}

/* zconvert_is_awaited: See convert_internal.h. */
bool
zconvert_is_awaited(Oid table, Oid copy, Oid log)
{
	LockData   *locks = GetLockStatusData();
	bool		result = false;

	for (int i = 0; i < locks->nelements && !result; i++)
	{
		const LockInstanceData *waiter = &locks->locks[i];

		if (waiter->waitLockMode == NoLock || waiter->pid == MyProcPid ||
			(!is_lock_of(waiter, copy) && !is_lock_of(waiter, log)))
			continue;
		for (int j = 0; j < locks->nelements && !result; j++)
			result = locks->locks[j].pid == waiter->pid && locks->locks[j].holdMask != 0 &&
				is_lock_of(&locks->locks[j], table);
	}
	pfree(locks->locks);
	pfree(locks);
	return result;
}

/*
 * zundo.size_unless_locked(rel): returns pg_table_size, or null if its lock
 * could not be had at once, or the table does not exist.
 */
Datum
zundo_size_unless_locked(PG_FUNCTION_ARGS)
{
	Oid			table = PG_GETARG_OID(0);
	Datum		size = (Datum) 0;
	bool		exists;

	if (!ConditionalLockRelationOid(table, AccessShareLock))
		PG_RETURN_NULL();
	exists = SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table));
	if (exists)
		size = DirectFunctionCall1(pg_table_size, ObjectIdGetDatum(table));
	UnlockRelationOid(table, AccessShareLock);
	if (!exists)
		PG_RETURN_NULL();
	PG_RETURN_DATUM(size);
}

/* zconvert_lock: See convert_internal.h. */
void
zconvert_lock(Oid table, LOCKMODE mode, int lock_wait)
{
	for (int n = 1; !zconvert_try_lock(table, InvalidOid, mode, lock_wait); n++)
		zconvert_wait_for_lock(table, n);
}
