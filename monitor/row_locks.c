/*
 * monitor/row_locks.c - zundo.row_locks: which transactions hold rows of a
 * table.
 *
 * Called from SQL; reads every page of the table under its share lock. Takes
 * no lock but AccessShareLock on the table, assigns no xid. No crash points.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/subtrans.h"
#include "access/transam.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "monitor/monitor.h"
#include "mvcc/zlockers.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "undo/undo.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

PGDLLEXPORT Datum zundo_row_locks(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_row_locks);

/* Returns the mode in the words of pgrowlocks. */
static const char *
mode_name(const ZHolder *holder)
{
	static const char *const names[] = {"Key Share", "Share", "No Key Update", "Update"};

	Assert(holder->mode < lengthof(names));
	return holder->change ? names[holder->mode] : psprintf("For %s", names[holder->mode]);
}

/*
 * Returns the pid of the backend that runs a (sub)transaction; 0 = none, as
 * for a prepared transaction.
 */
static int
backend_of(ZXid xid)
{
	TransactionId x = zxid_to_xid(xid);

	Assert(zxid_possible(xid));
	/* pg_subtrans has no older ones: those have ended meanwhile */
	if (TransactionIdFollowsOrEquals(x, TransactionXmin))
		x = SubTransGetTopmostTransaction(x);
	return BackendXidGetPid(x);
}

/*
 * zundo.row_locks(regclass): returns one row per row and (sub)transaction that
 * holds it. Needs SELECT on the table, or the role pg_stat_scan_tables.
 */
Datum
zundo_row_locks(PG_FUNCTION_ARGS)
{
	Relation	rel = zmon_open_table(PG_GETARG_OID(0));
	BlockNumber nblocks = zrel_nblocks(rel);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zundo row locks",
												  ALLOCSET_DEFAULT_SIZES);

	if (pg_class_aclcheck(RelationGetRelid(rel), GetUserId(), ACL_SELECT) != ACLCHECK_OK &&
		!has_privs_of_role(GetUserId(), ROLE_PG_STAT_SCAN_TABLES))
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, RelationGetRelationName(rel));
	InitMaterializedSRF(fcinfo, 0);
	zu_attach_database();
	for (BlockNumber block = 0; block < nblocks; block++)
	{
		MemoryContext old = MemoryContextSwitchTo(context);
		ZHolder    *holders;
		int			n;

		CHECK_FOR_INTERRUPTS();
		holders = zlockers_holders(rel, block, &n);
		for (int i = 0; i < n; i++)
		{
			Datum		values[4];
			bool		nulls[4] = {false};
			ItemPointerData tid;
			int			pid = backend_of(holders[i].xid);

			ItemPointerSet(&tid, block, holders[i].off);
			values[0] = PointerGetDatum(&tid);
			values[1] = zmon_xid(holders[i].xid, &nulls[1]);
			values[2] = CStringGetTextDatum(mode_name(&holders[i]));
			values[3] = Int32GetDatum(pid);
			nulls[3] = (pid == 0);
			zmon_put(fcinfo, values, nulls);
		}
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	MemoryContextDelete(context);
	relation_close(rel, AccessShareLock);
	return (Datum) 0;
}
