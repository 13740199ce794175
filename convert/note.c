/*
 * convert/note.c - the trigger that notes which rows of a table change.
 *
 * Only keys are noted, in an unlogged heap table, the log: that of the new row
 * and, if it differs, that of the old one. The trigger is an internal one of
 * the server, so that no dump has it, and fires whatever
 * session_replication_role is. If the log or the key does not exist any more,
 * the conversion cannot succeed, since it compares both, and the change of the
 * row does.
 *
 * Locks: RowExclusiveLock on the log, to the end of the transaction. Crash
 * points: none.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "common/zundo.h"
#include "convert/convert_internal.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "parser/parse_func.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(zundo_convert_note);

/* zconvert_make_trigger: See convert_internal.h. */
Oid
zconvert_make_trigger(Relation rel, Oid log, List *keys)
{
	CreateTrigStmt *stmt = makeNode(CreateTrigStmt);
	Oid			function;
	ListCell   *lc;

	Assert(CheckRelationLockedByMe(rel, ShareRowExclusiveLock, true));
	stmt->trigname = "zundo_convert";
	stmt->relation = makeRangeVar(get_namespace_name(RelationGetNamespace(rel)),
								  pstrdup(RelationGetRelationName(rel)), -1);
	stmt->funcname = list_make2(makeString("zundo"), makeString("convert_note"));
	stmt->args = list_make1(makeString(psprintf("%u", log)));
	foreach(lc, keys)
		stmt->args = lappend(stmt->args, makeString(psprintf("%d", lfirst_int(lc))));
	stmt->row = true;
	stmt->timing = TRIGGER_TYPE_AFTER;
	stmt->events = TRIGGER_TYPE_INSERT | TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE;
	function = LookupFuncName(stmt->funcname, 0, NULL, false);
	return CreateTriggerFiringOn(stmt, NULL, RelationGetRelid(rel), InvalidOid, InvalidOid,
								 InvalidOid, function, InvalidOid, NULL, true, false,
								 TRIGGER_FIRES_ALWAYS).objectId;
}

/* zconvert_find_trigger: See convert_internal.h. */
Oid
zconvert_find_trigger(Oid table, char *fires, TransactionId *xmin)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	Oid			function =
	LookupFuncName(list_make2(makeString("zundo"), makeString("convert_note")),
				   0, NULL, false);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	Oid			result = InvalidOid;

	ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(table));
	scan = systable_beginscan(catalog, TriggerRelidNameIndexId, true, NULL, 1, &key);
	while (!OidIsValid(result) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);

		if (form->tgfoid != function || !form->tgisinternal)
			continue;
		result = form->oid;
		*fires = form->tgenabled;
		*xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return result;
}

/* Returns the number of the key's column i in the table. */
static AttrNumber
key_column(const Trigger *trigger, int i)
{
	return (AttrNumber) pg_strtoint16(trigger->tgargs[i + 1]);
}

/*
 * Returns whether the log is that of the table, whose OID another table may
 * have got, and its columns are still those of the table's key.
 */
static bool
fits(Relation rel, Relation log, const Trigger *trigger)
{
	TupleDesc	desc = RelationGetDescr(log);

	if (desc->natts != trigger->tgnargs - 1 ||
		log->rd_rel->relpersistence != RELPERSISTENCE_UNLOGGED ||
		RelationGetNamespace(log) != zconvert_schema() ||
		strcmp(RelationGetRelationName(log), psprintf("log_%u", RelationGetRelid(rel))) != 0)
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		AttrNumber	attnum = key_column(trigger, i);
		Form_pg_attribute column;

		if (attnum > RelationGetDescr(rel)->natts)
			return false;
		column = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
		if (column->attisdropped || column->atttypid != TupleDescAttr(desc, i)->atttypid)
			return false;
	}
	return true;
}

/*
 * Inserts the key of the row into the log. A column of the key is null only
 * after another command has changed the table.
 */
static void
note_key(Relation log, const Trigger *trigger, TupleTableSlot *row)
{
	TupleTableSlot *note = MakeSingleTupleTableSlot(RelationGetDescr(log), &TTSOpsVirtual);
	bool		complete = true;

	ExecClearTuple(note);
	for (int i = 0; i < trigger->tgnargs - 1; i++)
	{
		note->tts_values[i] = slot_getattr(row, key_column(trigger, i), &note->tts_isnull[i]);
		if (note->tts_isnull[i])
			complete = false;
	}
	ExecStoreVirtualTuple(note);
	if (complete)
		table_tuple_insert(log, note, GetCurrentCommandId(true), 0, NULL);
	ExecDropSingleTupleTableSlot(note);
}

/* Returns whether both rows have the same bytes in the key's columns. */
static bool
same_key(Relation rel, const Trigger *trigger, TupleTableSlot *one, TupleTableSlot *two)
{
	for (int i = 0; i < trigger->tgnargs - 1; i++)
	{
		AttrNumber	attnum = key_column(trigger, i);
		Form_pg_attribute column = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
		bool		null1;
		bool		null2;
		Datum		value1 = slot_getattr(one, attnum, &null1);
		Datum		value2 = slot_getattr(two, attnum, &null2);

		if (null1 || null2 || !datum_image_eq(value1, value2, column->attbyval, column->attlen))
			return false;
	}
	return true;
}

/*
 * zundo.convert_note(log, columns...): the trigger function. Nobody but
 * zconvert_make_trigger can make a trigger of it.
 */
Datum
zundo_convert_note(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	Trigger    *trigger;
	Relation	log;

	if (!CALLED_AS_TRIGGER(fcinfo) || !data->tg_trigger->tgisinternal ||
		data->tg_trigger->tgnargs < 2)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("zundo.convert_note is for triggers of zundo.convert only")));
	trigger = data->tg_trigger;
	log = try_table_open(atooid(trigger->tgargs[0]), RowExclusiveLock);
	if (log == NULL)
		return PointerGetDatum(NULL);
	if (fits(data->tg_relation, log, trigger))
	{
		note_key(log, trigger, data->tg_trigslot);
		if (TRIGGER_FIRED_BY_UPDATE(data->tg_event) &&
			!same_key(data->tg_relation, trigger, data->tg_trigslot, data->tg_newslot))
			note_key(log, trigger, data->tg_newslot);
	}
	table_close(log, NoLock);
	return PointerGetDatum(NULL);
}
