/*
 * monitor/repair.c - zundo.repair_undo: finding damage in the undo log, and
 * repairing what can be repaired.
 *
 * Called from SQL, by superusers. The pages of zundo.undo_log are repaired by
 * undo/damage/undo_repair.c.
 *
 * A log of which something cannot be read keeps `oldest` back as long as what
 * is lost may be needed (undo/damage/undo_damage.c). Whether it is needed is
 * known from the tables' pages only: a slot there names each transaction that
 * is not undone. Where a repair would make a row wrong, the damage is left as
 * it is, and reported (UNDO-63).
 *
 * Locks: those of undo/damage/undo_repair.c; none is held between two findings.
 * Tables in AccessShareLock, one after the other. Crash points: none of its
 * own.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "discard/discard.h"
#include "funcapi.h"
#include "guard/ztables.h"
#include "miscadmin.h"
#include "monitor/monitor.h"
#include "mvcc/zvis.h"
#include "rollback/zrollback.h"
#include "tuple/ztts.h"
#include "undo/undo.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

PGDLLEXPORT Datum zundo_repair_undo(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_repair_undo);

static void put_step(void *arg, BlockNumber block, const char *fmt,...) pg_attribute_printf(3, 4);

/* Adds one row to the result; block InvalidBlockNumber = null. */
static void
put_step(void *arg, BlockNumber block, const char *fmt,...)
{
	Datum		values[2];
	bool		nulls[2] = {0};
	va_list		args;
	char	   *text;

	va_start(args, fmt);
	text = zmon_vprintf(fmt, args);

	va_end(args);
	values[0] = Int64GetDatum((int64) block);
	nulls[0] = block == InvalidBlockNumber;
	values[1] = CStringGetTextDatum(text);
	zmon_put((FunctionCallInfo) arg, values, nulls);
	pfree(text);
}

/* ---- logs of which something cannot be read ---- */

/*
 * Returns whether the slot's chain is needed and may lie in what d has lost.
 * The transactions whose undo d has lost have ended.
 */
static bool
is_lost(const ZPageSlot *slot, const ZuDamage *d)
{
	ZXid		xid = ZSLOT_XID(slot);

	return xid >= d->from && xid < d->to && slot->ptr != InvalidUndoPtr &&
		!zslot_locks_only(slot) && !TransactionIdDidCommit(zxid_to_xid(xid));
}

/* Transactions that a step names, without repetitions. */
typedef struct Named
{
	int			n;
	bool		others;			/* there are more than fit */
	ZXid		xids[8];
} Named;

/* Adds a transaction that is not named yet. */
static void
add_name(Named *named, ZXid xid)
{
	Assert(xid != InvalidZXid);
	for (int i = 0; i < named->n; i++)
		if (named->xids[i] == xid)
			return;
	if (named->n == lengthof(named->xids))
		named->others = true;
	else
		named->xids[named->n++] = xid;
}

/* Returns "742, 744" or "742, 744 and others", palloc'd. */
static char *
list_names(const Named *named)
{
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < named->n; i++)
		appendStringInfo(&list, "%s" UINT64_FORMAT, i == 0 ? "" : ", ", (uint64) named->xids[i]);
	if (named->others)
		appendStringInfoString(&list, " and others");
	return list.data;
}

/*
 * Returns the number of rel's pages that have such a slot; adds their
 * transactions to *named. Raises an error if a page cannot be read.
 */
static BlockNumber
pages_lost(Relation rel, const ZuDamage *d, ZSlotView *view, Named *named)
{
	BlockNumber nblocks = zrel_nblocks(rel);
	BlockNumber n = 0;
	PGAlignedBlock copy;

	Assert(d->ended && CheckRelationLockedByMe(rel, AccessShareLock, true));
	for (BlockNumber block = 0; block < nblocks; block++)
	{
		bool		lost = false;

		CHECK_FOR_INTERRUPTS();
		if (!zmon_copy_page(rel, block, &copy, view))
			continue;
		for (int s = 1; s <= view->n; s++)
			if (is_lost(&view->s[s], d))
			{
				lost = true;
				add_name(named, ZSLOT_XID(&view->s[s]));
			}
		n += lost;
	}
	return n;
}

/*
 * Reports the tables that need what a damaged log has lost. If no table needs
 * it, has the log given up, but with dry_run only says so. Raises an error if
 * a page of a table cannot be read.
 */
static void
repair_log(const ZuDamage *d, bool dry_run, FunctionCallInfo fcinfo)
{
	ZSlotView  *view = palloc(sizeof(ZSlotView));
	int			needed = 0;
	ListCell   *lc;

	if (!d->ended)
	{
		put_step(fcinfo, InvalidBlockNumber, "undo log %u: a part cannot be read (transactions "
				 "from " UINT64_FORMAT " on), and transactions in progress may need it; run the "
				 "repair again after they have ended",
				 d->logno, (uint64) d->from);
		return;
	}
	foreach(lc, ztables_list(true))
	{
		Relation	rel = try_relation_open(lfirst_oid(lc), AccessShareLock);
		BlockNumber n;
		Named		named = {0};

		if (rel == NULL)
			continue;
		/* undo of temporary tables is not in the shared logs */
		if (ztts_is_zheap(rel) &&
			!RelationUsesLocalBuffers(rel) &&
			(n = pages_lost(rel, d, view, &named)) > 0)
		{
			needed++;
			put_step(fcinfo, InvalidBlockNumber,
					 "undo log %u: table %s needs the part that cannot be read: %u pages have "
					 "changes of aborted transactions (%s); copy the readable rows, then drop or "
					 "truncate the table",
					 d->logno,
					 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(rel)),
												RelationGetRelationName(rel)),
					 n, list_names(&named));
		}
		relation_close(rel, AccessShareLock);
	}
	if (needed == 0 && !d->excused)
	{
		put_step(fcinfo, InvalidBlockNumber, "undo log %u: a part cannot be read (transactions "
				 UINT64_FORMAT " to " UINT64_FORMAT "), and no table needs it; the part is "
				 "given up", d->logno, (uint64) d->from, (uint64) d->to - 1);
		if (!dry_run)
			zu_excuse_damage(d);
	}
	pfree(view);
}

/*
 * Makes two discard passes. The first one meets what cannot be read; the second
 * one knows that the transactions of that time have ended. Returns false if
 * another process does not let us.
 */
static bool
discard_twice(void)
{
	ZuDiscardStats stats;

	return zmon_discard(ZU_UNDO_ALL, false, &stats) && zmon_discard(ZU_UNDO_ALL, false, &stats);
}

/*
 * Reports on all damaged logs, and gives those up that no table needs. Even
 * with dry_run it makes discard passes: only they find out what cannot be
 * read, and whether its transactions have ended. If it cannot, that is a step,
 * for an error would lose the steps that have been done; the passes at the end
 * may be left to others.
 */
static void
repair_logs(bool dry_run, FunctionCallInfo fcinfo)
{
	int			n;
	ZuDamage   *damages;

	Assert(!RecoveryInProgress());
	if (!discard_twice())
	{
		put_step(fcinfo, InvalidBlockNumber, "undo log: not searched for damage, since another "
				 "process discards undo; call zundo.repair_undo() again");
		return;
	}
	damages = zu_damages(&n);
	for (int i = 0; i < n; i++)
		repair_log(&damages[i], dry_run, fcinfo);
	if (n > 0 && !dry_run)
		(void) discard_twice();
}

/*
 * zundo.repair_undo(dry_run): returns one row for each thing that is done or,
 * with dry_run, would be done. Raises an error unless called by a superuser,
 * on a primary, in a transaction without an xid.
 */
Datum
zundo_repair_undo(PG_FUNCTION_ARGS)
{
	bool		dry_run;

	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to repair the undo log")));
	if (PG_ARGISNULL(0))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("dry_run must not be null")));
	dry_run = PG_GETARG_BOOL(0);
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot repair the undo log during recovery"),
				 errhint("Call zundo.repair_undo() on the primary server, or rebuild "
						 "this standby.")));
	if (TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("zundo.repair_undo() cannot run in a transaction that has modified data"),
				 errhint("Call it in a separate transaction.")));
	InitMaterializedSRF(fcinfo, 0);
	zu_attach_unloaded();
	if (zu_repair_map(dry_run, put_step, fcinfo))
		repair_logs(dry_run, fcinfo);
	return (Datum) 0;
}
