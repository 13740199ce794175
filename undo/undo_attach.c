/*
 * undo/undo_attach.c - attaching this backend to its database's undo.
 *
 * Owns this backend's link to the entry of its database (zu_my): looks the
 * relation up, joins the entry, has it loaded, and leaves it. Called at scan
 * and DML begin, by the undo worker, and at process exit.
 *
 * Locks: AccessShareLock on zundo.undo_log, to the end of the transaction; for
 * a scan of a locked table, and for changes outside of subtransactions and
 * cursors, only if the relation has to be looked up.
 *
 * Crash points: none. Fault point: "first-look".
 */
#include "undo/undo_internal.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "undo/undo_request.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/syscache.h"

/*
 * True while want_look searches the map. Other sessions do not search, because
 * they find the meta page loaded. So if this session ends before the search
 * does, it has to ask for a worker (at_exit).
 */
static bool looking = false;

/* Gives up everything that this backend holds in its entry. */
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
	zu_leave_entry();
}

/*
 * Leaves the entry at process exit. An on_shmem_exit callback, not
 * before_shmem_exit: the abort of a transaction that is open at exit comes in
 * between and may still read undo. A session that is terminated while it looks
 * for undo asks for a worker instead.
 */
static void
at_exit(int code, Datum arg)
{
	LWLockReleaseAll();
	if (looking)
		zworkers_wake(MyDatabaseId);
	leave_entry();
}

/* Relcache callback: the undo log has to be looked up again. */
static void
relcache_changed(Datum arg, Oid reloid)
{
	if (!OidIsValid(reloid) || reloid == zu_my.reloid)
		zu_my.stale = true;
}

/* Raises the error for a database without CREATE EXTENSION. */
static void
report_missing(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("zheap tables require extension \"zundo\" in this database"),
			 errdetail("The relation zundo.undo_log, which holds the old row versions, does not "
					   "exist."),
			 errhint("Run CREATE EXTENSION zundo.")));
}

Oid
zu_find_relation(void)
{
	Oid			nspoid = get_namespace_oid("zundo", true);

	return OidIsValid(nspoid) ? get_relname_relid("undo_log", nspoid) : InvalidOid;
}

bool
zu_is_undo_log(Oid reloid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(reloid));
	char	   *am = NULL;

	if (!HeapTupleIsValid(tuple))
		return false;
	if (OidIsValid(((Form_pg_class) GETSTRUCT(tuple))->relam))
		am = get_am_name(((Form_pg_class) GETSTRUCT(tuple))->relam);
	ReleaseSysCache(tuple);
	return am != NULL && strcmp(am, "zundo_undo") == 0;
}

/*
 * Takes AccessShareLock and keeps it to the end of the top-level transaction,
 * also across ROLLBACK TO.
 */
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

/*
 * Locks and checks zundo.undo_log, and sets zu_my's OID and locator. Leaves the
 * entry if it belongs to another file. Raises an error if there is no such
 * relation, or if it is not an undo log.
 */
static void
open_relation(void)
{
	for (;;)
	{
		Oid			reloid = zu_find_relation();
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
		if (!zu_is_undo_log(reloid))
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
 * Asks for a worker if the database has undo. Called when the database's first
 * user for some time has loaded the meta page: the database may be a copy of
 * another one that was made while aborts were pending there. Pending aborts
 * have their records in an extent of a log. Where nothing is pending, the
 * worker gives the last such extent back, so a database that is only read does
 * not start a worker again and again. If an error or a cancel ends the search,
 * asks for a worker, too: later sessions do not search.
 */
static void
want_look(void)
{
	/* an undo worker looks itself; a worker of autovacuum does not */
	if (((MyProc->statusFlags & PROC_IS_AUTOVACUUM) && MyBgworkerEntry != NULL) ||
		RecoveryInProgress())
		return;
	looking = true;
	PG_TRY();
	{
		ZUNDO_FAULT("first-look");
		if (zu_any_log_extent())
			zworkers_wake(MyDatabaseId);
	}
	PG_CATCH();
	{
		looking = false;
		zworkers_wake(MyDatabaseId);
		PG_RE_THROW();
	}
	PG_END_TRY();
	looking = false;
}

/*
 * zu_attach_unloaded: See undo.h. Also has the relcache callback and the exit
 * callback registered, each once per process.
 */
void
zu_attach_unloaded(void)
{
	if (!zu_shmem_ready())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zundo must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"zundo\" to \"shared_preload_libraries\" and restart the server.")));
	if (!zu_my.watched)
	{
		CacheRegisterRelcacheCallback(relcache_changed, (Datum) 0);
		zu_my.watched = true;
	}
	open_relation();
	if (zu_my.entry == NULL)
	{
		if (zu_my.joined == 0)
			on_shmem_exit(at_exit, (Datum) 0);
		zu_join_entry(zu_my.locator);
	}
}

/*
 * Returns whether the meta page is loaded. What recovery has loaded does not do
 * after it: replay may not have noticed that the page has missed writes.
 */
static bool
is_loaded(void)
{
	return likely(zu_entry_has(zu_my.entry, ZU_ENTRY_VALID)) ||
		(zu_entry_has(zu_my.entry, ZU_ENTRY_STANDBY) && RecoveryInProgress());
}

/*
 * zu_attach_for_table: See undo.h. Does nothing if the entry is joined, loaded
 * and not stale.
 */
void
zu_attach_for_table(void)
{
	/* loading the meta page may have failed the last time (UNDO-2) */
	if (likely(zu_my.entry != NULL && !zu_my.stale && is_loaded()))
		return;
	zu_attach_unloaded();
	if (!is_loaded())
	{
		zu_load_meta(zu_my.entry);
		want_look();
	}
}

/* zu_attach_database: See undo.h. Takes the lock once per transaction. */
void
zu_attach_database(void)
{
	if (likely(zu_my.entry != NULL && !zu_my.stale) && !zu_my.locked)
		lock_relation(zu_my.reloid);
	zu_attach_for_table();
}

/*
 * Returns whether the locks that are taken now stay to the end of the
 * transaction. Those of a subtransaction do not; nor do those of a cursor, or
 * of another portal with a name, which go if a later FETCH fails in a
 * subtransaction (AtSubAbort_Portals).
 */
static inline bool
locks_stay(void)
{
	return GetCurrentTransactionNestLevel() == 1 &&
		(ActivePortal == NULL || ActivePortal->name[0] == '\0');
}

/*
 * zu_attach_for_change: See undo.h. What the top level has locked stays locked,
 * and the undo log with it: 'locked' holds for later subtransactions, too.
 */
void
zu_attach_for_change(void)
{
	if (!zu_my.locked && locks_stay())
		zu_my.locked = true;
	zu_attach_database();
}

void
zu_lock_for_new_table(void)
{
	Oid			reloid = zu_find_relation();

	if (OidIsValid(reloid))
		lock_relation(reloid);
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
