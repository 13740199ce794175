/*
 * monitor/repair.c - zundo.repair_undo: what is damaged in the undo log, and repairing what can be.
 *
 * Called from SQL, by superusers. The work on pages is undo/undo_repair.c's.
 *
 * Locks: as there; none between findings.
 *
 * Invariant
 *	R1	nothing that is done here makes a row wrong or a change undone that should not be: what would is left as
 *		it is, and said.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "monitor/monitor.h"
#include "undo/undo.h"
#include "utils/builtins.h"

PGDLLEXPORT Datum zundo_repair_undo(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_repair_undo);

/* put_step: one row of the result. */
static void pg_attribute_printf(3, 4)
put_step(void *arg, BlockNumber block, const char *fmt,...)
{
	Datum		values[2];
	bool		nulls[2] = {0};
	StringInfoData text;

	initStringInfo(&text);
	for (;;)
	{
		va_list		args;
		int			needed;

		va_start(args, fmt);
		needed = appendStringInfoVA(&text, fmt, args);
		va_end(args);
		if (needed == 0)
			break;
		enlargeStringInfo(&text, needed);
	}
	values[0] = Int64GetDatum((int64) block);
	nulls[0] = block == InvalidBlockNumber;
	values[1] = CStringGetTextDatum(text.data);
	zmon_put((FunctionCallInfo) arg, values, nulls);
	pfree(text.data);
}

/* zundo.repair_undo(dry_run) -> one row for each thing that is done, or with dry_run would be. */
Datum
zundo_repair_undo(PG_FUNCTION_ARGS)
{
	bool		dry_run = PG_GETARG_BOOL(0);

	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to repair the undo log")));
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the undo log cannot be repaired during recovery"),
				 errhint("Repair it on the primary, or make this standby anew.")));
	InitMaterializedSRF(fcinfo, 0);
	zu_attach_unloaded();
	zu_repair_map(dry_run, put_step, fcinfo);
	return (Datum) 0;
}
