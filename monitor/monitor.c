/*
 * monitor/monitor.c - the SQL functions that show undo logs, undo records and
 * rollbacks, and what all functions of monitor/ share.
 *
 * Called from SQL only (zundo--1.0.sql, which also grants the rights). Works
 * on copies: no function holds a page lock while it forms its result. Only
 * zundo_discard, zundo_purge and zundo_stat_reset change anything; and
 * zundo_stat_database removes the counters of databases that were dropped.
 *
 * Locks: AccessShareLock on tables, conditionally for stat_rollback. No crash
 * points.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "common/zcount.h"
#include "discard/discard.h"
#include "miscadmin.h"
#include "monitor/monitor.h"
#include "mvcc/zany.h"
#include "mvcc/zvis.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "tuple/ztts.h"
#include "undo/undo.h"
#include "undo/undo_request.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "utils/xid8.h"

/*
 * stat_rollback reads at most this many records of each log to find aborted
 * transactions that are not undone.
 */
#define MAX_PENDING_RECORDS 100000

/* How long zmon_discard waits for another process that discards. */
#define DISCARD_PATIENCE_MS	5000

PGDLLEXPORT Datum zundo_undo_bytes_in_use(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_stat_kept(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_stat_undo(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_stat_rollback(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_stat_holds(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_stat_database(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_stat_tables(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_stat_history(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_last_statement(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_stat_reset(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_undo_records(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_discard(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_purge(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_undo_bytes_in_use);
PG_FUNCTION_INFO_V1(zundo_stat_kept);
PG_FUNCTION_INFO_V1(zundo_stat_undo);
PG_FUNCTION_INFO_V1(zundo_stat_rollback);
PG_FUNCTION_INFO_V1(zundo_stat_holds);
PG_FUNCTION_INFO_V1(zundo_stat_database);
PG_FUNCTION_INFO_V1(zundo_stat_tables);
PG_FUNCTION_INFO_V1(zundo_stat_history);
PG_FUNCTION_INFO_V1(zundo_last_statement);
PG_FUNCTION_INFO_V1(zundo_stat_reset);
PG_FUNCTION_INFO_V1(zundo_undo_records);
PG_FUNCTION_INFO_V1(zundo_discard);
PG_FUNCTION_INFO_V1(zundo_purge);

/* ---- shared helpers ---- */

/* zmon_open: See monitor.h. */
Relation
zmon_open(Oid reloid)
{
	Relation	rel = try_relation_open(reloid, AccessShareLock);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", reloid)));
	return rel;
}

/* zmon_open_table: See monitor.h. */
Relation
zmon_open_table(Oid reloid)
{
	Relation	rel = zmon_open(reloid);

	if (!ztts_is_zheap(rel))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a zheap table", RelationGetRelationName(rel)),
				 errhint("Tables of access method \"zheap\" are listed in zundo.table_sizes.")));
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary tables of other sessions")));
	return rel;
}

void
zmon_require_superuser(void)
{
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to inspect pages and undo records"),
				 errdetail("Their contents bypass row security and include deleted rows.")));
}

void
zmon_put(FunctionCallInfo fcinfo, Datum *values, bool *nulls)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	Assert(rsinfo != NULL && rsinfo->setResult != NULL);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
}

/*
 * zmon_vprintf: See monitor.h. Tries again with a larger buffer until the text
 * fits.
 */
char *
zmon_vprintf(const char *fmt, va_list args)
{
	StringInfoData text;

	initStringInfo(&text);
	for (;;)
	{
		va_list		copy;
		int			needed;

		va_copy(copy, args);
		needed = appendStringInfoVA(&text, fmt, copy);
		va_end(copy);
		if (needed == 0)
			return text.data;

		enlargeStringInfo(&text, needed);
	}
}

Datum
zmon_pointer(UndoPtr ptr, bool *isnull)
{
	*isnull = (ptr == InvalidUndoPtr);
	if (*isnull)
		return (Datum) 0;
	return CStringGetTextDatum(psprintf("%u.%u.%u", zuptr_generation(ptr),
										zuptr_extent(ptr), zuptr_byte(ptr)));
}

Datum
zmon_xid(ZXid xid, bool *isnull)
{
	*isnull = (xid == InvalidZXid);
	return *isnull ? (Datum) 0 : FullTransactionIdGetDatum(FullTransactionIdFromU64(xid));
}

Datum
zmon_text_array(const char **strings, int n)
{
	Datum	   *elements = palloc(Max(n, 1) * sizeof(Datum));

	for (int i = 0; i < n; i++)
		elements[i] = CStringGetTextDatum(strings[i]);
	return PointerGetDatum(construct_array(elements, n, TEXTOID, -1, false, TYPALIGN_INT));
}

/* zmon_status_name: See monitor.h. */
const char *
zmon_status_name(ZXidStatus status)
{
	switch (status)
	{
		case ZXID_ALL_VISIBLE:
			return "visible to all";
		case ZXID_OWN:
			return "own";
		case ZXID_IN_PROGRESS:
			return "in progress";
		case ZXID_COMMITTED:
			return "committed";
		case ZXID_ABORTED:
			return "aborted";
	}
	return "?";
}

/* zmon_discard: See monitor.h. */
bool
zmon_discard(ZuUndoAborts which, bool every_log, ZuDiscardStats *stats)
{
	Assert(!TransactionIdIsValid(GetTopTransactionIdIfAny()));
	for (int ms = 0; !zu_discard(which, every_log, stats); ms++)
	{
		if (ms >= DISCARD_PATIENCE_MS)
			return false;
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000L);
	}
	return true;
}

/* ---- undo ---- */

/* zundo.undo_bytes_in_use(): returns the bytes of undo that are kept. */
Datum
zundo_undo_bytes_in_use(PG_FUNCTION_ARGS)
{
	zu_attach_database();
	PG_RETURN_INT64((int64) zu_bytes_in_use());
}

/*
 * zundo_stat_kept(xid): returns the bytes that a holder of xid keeps. A query
 * looks at the logs once, for all of its rows.
 */
Datum
zundo_stat_kept(PG_FUNCTION_ARGS)
{
	FmgrInfo   *call = fcinfo->flinfo;

	zu_attach_database();
	if (call->fn_extra == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(call->fn_mcxt);

		call->fn_extra = zu_look_at_kept();
		MemoryContextSwitchTo(old);
	}
	PG_RETURN_INT64((int64) zu_bytes_kept(call->fn_extra,
										  zxid_widen(PG_GETARG_TRANSACTIONID(0))));
}

/* zundo_stat_undo(): returns one row per log. */
Datum
zundo_stat_undo(PG_FUNCTION_ARGS)
{
	ZuLogState *states;
	ZXid		oldest;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	zu_attach_database();
	states = zu_log_states(&n);
	oldest = zu_oldest();
	for (int i = 0; i < n; i++)
	{
		const ZuLogState *s = &states[i];
		Datum		values[8];
		bool		nulls[8] = {0};

		values[0] = Int32GetDatum((int32) s->logno);
		values[1] = Int32GetDatum(s->pid);
		nulls[1] = (s->pid == 0);
		values[2] = BoolGetDatum(s->attached);
		values[3] = Int64GetDatum((int64) s->bytes);
		values[4] = Int32GetDatum((int32) s->extents);
		values[5] = zmon_pointer(s->discard, &nulls[5]);
		values[6] = zmon_pointer(s->insert, &nulls[6]);
		values[7] = zmon_xid(oldest, &nulls[7]);
		zmon_put(fcinfo, values, nulls);
	}
	return (Datum) 0;
}

/*
 * zundo_stat_database(): returns the counters of each database. On a standby,
 * databases that were dropped lose theirs here.
 */
Datum
zundo_stat_database(PG_FUNCTION_ARGS)
{
	ZCounts    *counts;
	int			n;

	zundo_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	zcount_flush();				/* what this session has kept back */
	n = zcount_copy(&counts);
	InvalidateCatalogSnapshot();	/* or it may not show a new database */
	for (int i = 0; i < n; i++)
	{
		const ZCounts *c = &counts[i];
		Datum		values[3 + ZCOUNT_KINDS];
		bool		nulls[3 + ZCOUNT_KINDS] = {0};

		if (OidIsValid(c->dboid) &&
			!SearchSysCacheExists1(DATABASEOID, ObjectIdGetDatum(c->dboid)))
		{
			zcount_drop(c->dboid);
			zuhistory_remove(c->dboid);
			continue;
		}
		values[0] = ObjectIdGetDatum(c->dboid);
		nulls[0] = !OidIsValid(c->dboid);
		values[1] = TimestampTzGetDatum(c->reset);
		values[2] = Int64GetDatum((int64) c->peak);
		for (int k = 0; k < ZCOUNT_KINDS; k++)
			values[3 + k] = Int64GetDatum((int64) c->n[k]);
		zmon_put(fcinfo, values, nulls);
	}
	return (Datum) 0;
}

/* zundo_stat_tables(): returns the counters of each table of the database. */
Datum
zundo_stat_tables(PG_FUNCTION_ARGS)
{
	ZTableCounts *counts;
	int			n;

	zundo_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	zcount_flush();
	n = zcount_table_copy(MyDatabaseId, &counts);
	for (int i = 0; i < n; i++)
	{
		Datum		values[1 + ZCOUNT_TABLE_COLUMNS];
		bool		nulls[1 + ZCOUNT_TABLE_COLUMNS] = {0};

		values[0] = ObjectIdGetDatum(counts[i].relid);
		for (int k = 0; k < ZCOUNT_TABLE_COLUMNS; k++)
			values[1 + k] = Int64GetDatum((int64) counts[i].n[k]);
		zmon_put(fcinfo, values, nulls);
	}
	return (Datum) 0;
}

/*
 * zundo_stat_history(): returns the samples of zundo.undo_history. Hides of
 * the process that kept undo what pg_stat_activity hides, and its application.
 */
Datum
zundo_stat_history(PG_FUNCTION_ARGS)
{
	static const char *const kinds[] = {NULL, "prepared transaction", "replication slot",
	"backend", "rollback", "row locks", "damaged undo log"};
	bool		all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	ZuSample   *samples;
	int			n;

	zundo_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	n = zuhistory_read(&samples);
	for (int i = 0; i < n; i++)
	{
		const ZuSample *s = &samples[i];
		const ZuKeeper *k = &s->keeper;
		bool		is_process = k->kind == ZU_KEEPER_PROCESS;
		bool		may_see = is_process && (all || has_privs_of_role(GetUserId(), k->role));
		Datum		values[9];
		bool		nulls[9] = {0};

		values[0] = TimestampTzGetDatum(s->time);
		values[1] = Int64GetDatum((int64) s->kept);
		/* since the sample before, or since zundo.stat_reset */
		values[2] = Int64GetDatum((int64) (i == 0 ? 0 : s->written >= s[-1].written
										   ? s->written - s[-1].written : s->written));
		nulls[2] = (i == 0);
		nulls[3] = (k->kind == ZU_KEEPER_NONE);
		values[3] = nulls[3] ? (Datum) 0 : CStringGetTextDatum(kinds[k->kind]);
		values[4] = Int32GetDatum(k->pid);
		nulls[4] = !is_process;
		values[5] = ObjectIdGetDatum(k->role);
		nulls[5] = !OidIsValid(k->role);
		values[6] = CStringGetTextDatum(k->application);
		nulls[6] = !may_see;
		values[7] = TimestampTzGetDatum(k->since);
		nulls[7] = !may_see || k->since == 0;
		values[8] = Int64GetDatum(k->query);
		nulls[8] = !may_see || k->query == 0;
		zmon_put(fcinfo, values, nulls);
	}
	return (Datum) 0;
}

/*
 * zundo.last_statement(): returns what was counted in this session's last
 * top-level statement that did not call it.
 */
Datum
zundo_last_statement(PG_FUNCTION_ARGS)
{
	static const ZCounter shown[] = {ZCOUNT_WRITTEN, ZCOUNT_UPDATED, ZCOUNT_MOVED, ZCOUNT_READ,
	ZCOUNT_REBUILT, ZCOUNT_IMAGES_MADE, ZCOUNT_IMAGES_USED};
	uint64		last[ZCOUNT_TABLE_KINDS];
	Datum		values[lengthof(shown)];
	bool		nulls[lengthof(shown)] = {0};

	InitMaterializedSRF(fcinfo, 0);
	zcount_last_statement(last);
	for (int i = 0; i < lengthof(shown); i++)
	{
		Assert(shown[i] < lengthof(last));
		values[i] = Int64GetDatum((int64) last[shown[i]]);
	}
	zmon_put(fcinfo, values, nulls);
	return (Datum) 0;
}

/*
 * zundo.stat_reset(): sets the counters of the current database and of its
 * tables to 0.
 */
Datum
zundo_stat_reset(PG_FUNCTION_ARGS)
{
	zundo_require_preload();
	zcount_flush();
	zcount_reset(MyDatabaseId);
	PG_RETURN_VOID();
}

typedef struct PageAddress
{
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
} PageAddress;

/* The aborted records of one transaction, summed up by a scan of its log. */
typedef struct Pending
{
	ZXid		topxid;
	uint64		records;
	uint64		bytes;
	PageAddress first;			/* pages of the first and the last of these
								 * records */
	PageAddress last;
} Pending;

/*
 * Returns whether the newest record of a slot's chain is of an aborted
 * transaction. Locks the page in share mode.
 */
static bool
has_aborted_slot(Relation rel, BlockNumber block)
{
	ZSlotView  *view = palloc(sizeof(ZSlotView));
	Buffer		buf = ReadBuffer(rel, block);
	bool		found = false;

	Assert(CheckRelationLockedByMe(rel, AccessShareLock, true));
	view->n = 0;
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (zpage_is_valid(BufferGetPage(buf)))
		zslots_copy(rel, block, BufferGetPage(buf), view);
	UnlockReleaseBuffer(buf);
	for (int i = 1; i <= view->n && !found; i++)
		found = zslot_age(&view->s[i], view->oldest) == ZAGE_YOUNG &&
			zxid_possible(ZSLOT_XID(&view->s[i])) &&
			zxid_status_at(ZSLOT_XID(&view->s[i]), view->oldest) == ZXID_ABORTED;
	pfree(view);
	return found;
}

/*
 * Returns whether the page may carry changes that are still to be undone. A
 * page whose table cannot be locked without waiting counts as such; one that
 * does not exist any more does not.
 */
static bool
page_is_pending(const PageAddress *page)
{
	Relation	rel;
	bool		pending = false;

	if (!ConditionalLockRelationOid(page->reloid, AccessShareLock))
		return true;
	rel = try_relation_open(page->reloid, NoLock);
	if (rel != NULL)
	{
		if (RELATION_IS_OTHER_TEMP(rel))
			pending = true;
		else if (rel->rd_locator.relNumber == page->relnumber &&
				 ztts_is_zheap(rel) &&
				 page->block < zrel_nblocks(rel))
			pending = has_aborted_slot(rel, page->block);
		relation_close(rel, NoLock);
	}
	UnlockRelationOid(page->reloid, AccessShareLock);
	return pending;
}

/*
 * What is known of rollbacks from workers and from the last discard pass; used
 * to show each transaction once.
 */
typedef struct Rollbacks
{
	FunctionCallInfo fcinfo;
	const ZRollbackProgress *active;
	int			nactive;
	ZuHold		holds[ZU_MAX_HOLDS];
	int			nholds;
} Rollbacks;

/* Returns whether a worker rolls back transaction xid of this database now. */
static bool
is_active(const Rollbacks *r, ZXid xid)
{
	for (int i = 0; i < r->nactive; i++)
		if (r->active[i].dboid == MyDatabaseId && r->active[i].xid == xid)
			return true;
	return false;
}

/* Returns whether the last discard pass has left transaction xid not undone. */
static bool
is_held(const Rollbacks *r, ZXid xid)
{
	for (int i = 0; i < r->nholds; i++)
		if (r->holds[i].kind == ZU_HOLD_ROLLBACK && r->holds[i].xid == xid)
			return true;
	return false;
}

/*
 * Adds a row for a rollback of this database that no worker is doing now. Its
 * bytes and records are null if they are not those of the whole transaction.
 */
static void
put_waiting(Rollbacks *r, ZXid xid, const char *state, bool whole, uint64 bytes, uint64 records)
{
	Datum		values[7];
	bool		nulls[7] = {0};

	Assert(xid != InvalidZXid);
	values[0] = ObjectIdGetDatum(MyDatabaseId);
	nulls[1] = true;
	values[1] = (Datum) 0;
	values[2] = zmon_xid(xid, &nulls[2]);
	values[3] = CStringGetTextDatum(state);
	values[4] = Int64GetDatum((int64) bytes);
	values[5] = Int64GetDatum(0);
	values[6] = Int64GetDatum((int64) records);
	nulls[4] = nulls[6] = !whole;
	zmon_put(r->fcinfo, values, nulls);
}

/* Adds rows for the rollbacks that the last discard pass has left undone. */
static void
put_holds(Rollbacks *r)
{
	for (int i = 0; i < r->nholds; i++)
	{
		const ZuHold *h = &r->holds[i];

		/* a rollback that waits for several tables has one row */
		if (h->kind == ZU_HOLD_ROLLBACK && !is_active(r, h->xid) &&
			(i == 0 || h[-1].kind != ZU_HOLD_ROLLBACK || h[-1].xid != h->xid))
			put_waiting(r, h->xid,
						h->failed ? "failed" : OidIsValid(h->reloid) ? "waiting for lock"
						: "waiting", true, h->bytes, h->records);
	}
}

/*
 * Adds a row for a transaction with aborted records, unless it is shown
 * already, or its first and last page show that the records are undone and
 * only remain to be discarded. With whole, p sums up all its records.
 */
static void
put_pending(Rollbacks *r, const Pending *p, bool whole)
{
	Assert(p->records == 0 || p->topxid != InvalidZXid);
	if (p->records > 0 && !is_active(r, p->topxid) && !is_held(r, p->topxid) &&
		(page_is_pending(&p->first) || page_is_pending(&p->last)))
		put_waiting(r, p->topxid, "waiting", whole, p->bytes, p->records);
}

/*
 * Adds rows for the transactions with aborted records among the oldest
 * MAX_PENDING_RECORDS of one log.
 */
static void
put_pending_of_log(Rollbacks *r, uint32 logno)
{
	ZuScan	   *scan = zu_scan_begin_readable(logno);
	Pending		p = {0};
	ZuRecord	rec;
	UndoPtr		ptr;
	ZXid		last = InvalidZXid;
	bool		aborted = false;
	bool		whole = true;

	for (int i = 0; zu_scan_next(scan, &rec, &ptr); i++)
	{
		CHECK_FOR_INTERRUPTS();
		if (i >= MAX_PENDING_RECORDS)
		{
			whole = (rec.flags & ZUF_FIRST) != 0;
			break;
		}
		/* as in zqueue_parse, the log may begin within a transaction */
		if (i == 0 || (rec.flags & ZUF_FIRST))
		{
			put_pending(r, &p, true);
			memset(&p, 0, sizeof(p));
			p.topxid = zu_scan_topxid(scan, &rec);
		}
		if (rec.xid != last)
		{
			last = rec.xid;
			aborted = (zxid_status(rec.xid) == ZXID_ABORTED);
		}
		if (aborted && !zrecord_is_saved(rec.type))
		{
			p.last.reloid = rec.reloid;
			p.last.relnumber = rec.relnumber;
			p.last.block = rec.block;
			if (p.records == 0)
				p.first = p.last;
			p.records++;
			p.bytes += rec.length;
		}
	}
	put_pending(r, &p, whole);
	zu_scan_end(scan);
}

/*
 * zundo_stat_rollback(): returns the rollbacks in progress in all databases,
 * and those that wait in this one.
 */
Datum
zundo_stat_rollback(PG_FUNCTION_ARGS)
{
	ZRollbackProgress *active = palloc(Max(zundo_max_databases, 1) * sizeof(ZRollbackProgress));
	int			nactive = zworkers_progress(active, zundo_max_databases);
	Rollbacks	r = {fcinfo, active, nactive};
	ZuLogState *states;
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < nactive; i++)
	{
		Datum		values[7];
		bool		nulls[7] = {0};

		values[0] = ObjectIdGetDatum(active[i].dboid);
		values[1] = Int32GetDatum(active[i].pid);
		values[2] = zmon_xid(active[i].xid, &nulls[2]);
		values[3] = CStringGetTextDatum("rolling back");
		values[4] = Int64GetDatum((int64) active[i].bytes);
		values[5] = Int64GetDatum((int64) active[i].records_done);
		values[6] = Int64GetDatum((int64) active[i].records_total);
		nulls[6] = (active[i].records_total == 0);
		zmon_put(fcinfo, values, nulls);
	}
	zu_attach_database();
	r.nholds = zu_holds(r.holds);
	put_holds(&r);
	states = zu_log_states(&n);
	for (int i = 0; i < n; i++)
		if (states[i].bytes > 0)
			put_pending_of_log(&r, states[i].logno);
	return (Datum) 0;
}

/*
 * zundo_stat_holds(): returns what holds `oldest` back in this database,
 * beside snapshots.
 */
Datum
zundo_stat_holds(PG_FUNCTION_ARGS)
{
	static const char *const kinds[] = {"rollback", "row locks", "damaged undo log"};
	ZuHold		holds[ZU_MAX_HOLDS];
	ZuReader   *readers = palloc(MaxBackends * sizeof(ZuReader));
	int			n;

	InitMaterializedSRF(fcinfo, 0);
	zu_attach_database();
	n = zu_holds(holds);
	for (int i = 0; i < n; i++)
	{
		Datum		values[6];
		bool		nulls[6] = {false, false, false, false, false, true};

		Assert(holds[i].kind < lengthof(kinds));
		values[0] = CStringGetTextDatum(kinds[holds[i].kind]);
		values[1] = Int32GetDatum((int32) holds[i].logno);
		values[2] = zmon_xid(holds[i].xid, &nulls[2]);
		values[3] = ObjectIdGetDatum(holds[i].reloid);
		nulls[3] = !OidIsValid(holds[i].reloid);
		values[4] = BoolGetDatum(holds[i].failed);
		zmon_put(fcinfo, values, nulls);
	}
	n = zu_readers(readers);
	for (int i = 0; i < n; i++)
	{
		Datum		values[6] = {CStringGetTextDatum("reader of old versions")};
		bool		nulls[6] = {false, true, false, true, false, false};

		values[2] = zmon_xid(readers[i].xid, &nulls[2]);
		values[4] = BoolGetDatum(false);
		values[5] = Int32GetDatum(readers[i].pid);
		zmon_put(fcinfo, values, nulls);
	}
	return (Datum) 0;
}

/* Returns the name of a type of undo records, "?" if there is none. */
static const char *
record_type_name(ZuRecordType type)
{
	static const char *const names[] = {"?", "INSERT", "UPDATE", "DELETE", "MOVE", "LOCK", "IMAGE",
	"LOCKS", "ROWS"};

	return ((int) type >= 1 && (int) type < (int) lengthof(names)) ? names[type] : names[0];
}

/* Returns the names of the flags that are set in a record, as text[]. */
static Datum
record_flags(const ZuRecord *rec)
{
	const char *flags[12];
	int			n = 0;

	if (rec->flags & ZUF_FIRST)
		flags[n++] = "first";
	if (rec->xflags & ZUX_LZ4)
		flags[n++] = "lz4";
	if (rec->xflags & ZUX_UNLOGGED)
		flags[n++] = "unlogged";
	if (rec->type == ZUR_INSERT && (rec->xflags & ZUX_SPECULATIVE))
		flags[n++] = "speculative";
	if (rec->open)
		flags[n++] = "open";
	if (rec->xflags & ZUX_MOVED_IN)
		flags[n++] = "moved in";
	if (rec->xflags & ZUX_KEY_CHANGE)
		flags[n++] = "key change";
	if (rec->xflags & ZUX_OTHER_PART)
		flags[n++] = "other partition";
	if (rec->xflags & ZUX_TEMP)
		flags[n++] = "temporary";
	if (TransactionIdIsValid(rec->as_of))
		flags[n++] = "as of";
	return zmon_text_array(flags, n);
}

/*
 * Adds a row for the record at ptr of a log, of top-level transaction topxid.
 */
static void
put_record(FunctionCallInfo fcinfo, uint32 logno, const ZuRecord *rec, ZXid topxid,
		   UndoPtr ptr)
{
	Datum		values[14];
	bool		nulls[14] = {0};

	Assert(rec->type >= ZUR_INSERT && rec->length > 0);
	values[0] = Int32GetDatum((int32) logno);
	values[1] = zmon_pointer(ptr, &nulls[1]);
	values[2] = CStringGetTextDatum(record_type_name(rec->type));
	values[3] = zmon_xid(rec->xid, &nulls[3]);
	values[4] = zmon_xid(topxid, &nulls[4]);
	values[5] = CStringGetTextDatum(zmon_status_name(zxid_status(rec->xid)));
	values[6] = ObjectIdGetDatum(rec->reloid);
	values[7] = Int64GetDatum((int64) rec->block);
	values[8] = Int32GetDatum(rec->offset);
	values[9] = Int32GetDatum(zrecord_range(rec));
	values[10] = Int64GetDatum((int64) rec->cid);
	values[11] = zmon_pointer(rec->prev, &nulls[11]);
	values[12] = Int32GetDatum(rec->length);
	values[13] = record_flags(rec);
	zmon_put(fcinfo, values, nulls);
}

/*
 * zundo.undo_records(log int, max_records int): returns the oldest records of
 * one log, or of each log if it is null. For superusers.
 */
Datum
zundo_undo_records(PG_FUNCTION_ARGS)
{
	bool		all = PG_ARGISNULL(0);
	uint32		wanted = all ? 0 : (uint32) PG_GETARG_INT32(0);
	int			max = PG_ARGISNULL(1) ? PG_INT32_MAX : PG_GETARG_INT32(1);
	ZuLogState *states;
	int			n;

	zmon_require_superuser();
	InitMaterializedSRF(fcinfo, 0);
	zu_attach_database();
	states = zu_log_states(&n);
	for (int i = 0; i < n; i++)
	{
		ZuScan	   *scan;
		ZuRecord	rec;
		UndoPtr		ptr;

		if (!all && states[i].logno != wanted)
			continue;
		scan = zu_scan_begin(states[i].logno);
		for (int r = 0; r < max && zu_scan_next(scan, &rec, &ptr); r++)
		{
			CHECK_FOR_INTERRUPTS();
			put_record(fcinfo, states[i].logno, &rec, zu_scan_topxid(scan, &rec), ptr);
		}
		zu_scan_end(scan);
	}
	return (Datum) 0;
}

/*
 * zundo.discard(): makes a pass as a worker does and returns the bytes freed.
 * The caller's own snapshot counts in the horizon. Raises an error if its
 * transaction has written, and in recovery.
 */
Datum
zundo_discard(PG_FUNCTION_ARGS)
{
	ZuDiscardStats stats = {0};

	PreventCommandDuringRecovery("zundo.discard()");
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("zundo.discard() cannot run in a transaction that has modified data"),
				 errhint("Call it in a separate transaction.")));
	zu_attach_database();
	(void) zmon_discard(ZU_UNDO_ALL, false, &stats);
	PG_RETURN_INT64((int64) stats.bytes_discarded);
}

/*
 * Has all empty logs give back their last extents, unless our transaction has
 * written.
 */
static void
empty_logs(void)
{
	ZuDiscardStats stats;

	zu_attach_database();
	if (!TransactionIdIsValid(GetTopTransactionIdIfAny()))
		(void) zmon_discard(ZU_UNDO_NONE, true, &stats);
}

/*
 * zundo.purge(): wipes old values from the free extents of zundo.undo_log and
 * returns the bytes wiped. For superusers. Raises an error in recovery.
 */
Datum
zundo_purge(PG_FUNCTION_ARGS)
{
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to purge the undo log")));
	PreventCommandDuringRecovery("zundo.purge()");
	empty_logs();
	PG_RETURN_INT64((int64) zu_purge());
}
