/*
 * convert/convert.c - zundo.convert and zundo.convert_cleanup. README.md has
 * the way of a conversion and what each step relies on.
 *
 * A procedure in C: it commits after each step, so no transaction lasts longer
 * than a step. What it knows is in memory; what it has made is found by name
 * and by dependencies (made_by_attempt).
 *
 * Locks: README.md. Crash points: each commit.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/heap.h"
#include "catalog/indexing.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "catalog/toasting.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "common/compat_commands.h"
#include "common/zundo.h"
#include "convert/convert_internal.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/predicate.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(zundo_convert);
PG_FUNCTION_INFO_V1(zundo_convert_cleanup);
PG_FUNCTION_INFO_V1(zundo_convert_refused);

/* ---- transactions ---- */

/* Begins what needs a snapshot: the newest one, as the locks are held. */
static void
take_snapshot(ZConversion *c)
{
	PushActiveSnapshot(GetLatestSnapshot());
	MemoryContextSwitchTo(c->scratch);
}

/*
 * Ends the transaction. The next one, which has no snapshot yet, reads what is
 * committed whatever default_transaction_isolation is.
 */
static void
next_transaction(void)
{
	SPI_commit();
	XactIsoLevel = XACT_READ_COMMITTED;
	PreventCommandIfReadOnly("zundo.convert");
}

/* Commits what take_snapshot has begun. */
static void
commit(ZConversion *c)
{
	PopActiveSnapshot();
	next_transaction();
	MemoryContextSwitchTo(c->context);
	MemoryContextReset(c->scratch);
	ZUNDO_FAULT("convert-committed");
}

static void
report_change(Oid table)
{
	char	   *name = get_rel_name(table);

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("table \"%s\" was changed by another command while it was converted",
					name ? name : "?"),
			 errhint("Call zundo.convert_cleanup, then zundo.convert again.")));
}

/* Appends file, tablespace, storage parameters and the like of the relation. */
static void
describe_relation(StringInfo text, Oid reloid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(reloid));
	Form_pg_class form;
	Datum		options;
	bool		null;
	ListCell   *lc;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", reloid);
	form = (Form_pg_class) GETSTRUCT(tuple);
	appendStringInfo(text, "/%u %u %u %u %u %u %c%c%d", reloid, (Oid) form->relfilenode,
					 form->reltablespace, form->relam, form->relowner, form->reltoastrelid,
					 form->relpersistence, form->relkind,
					 form->relnamespace == zconvert_schema() &&
					 (form->relhastriggers || form->relhasrules || form->relrowsecurity));
	options = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_reloptions, &null);
	if (!null)
	{
		foreach(lc, untransformRelOptions(options))
		{
			DefElem    *option = lfirst_node(DefElem, lc);

			appendStringInfo(text, " %s=%s", option->defname,
							 option->arg ? strVal(option->arg) : "");
		}
	}
	ReleaseSysCache(tuple);
}

/*
 * Returns a text that differs if the file of the table, of its TOAST table or
 * of an index, or anything that determines what is in it, has changed.
 */
static char *
shape_of(Oid table)
{
	Relation	rel = table_open(table, NoLock);
	StringInfoData text;
	ListCell   *lc;
	char		fires = '-';
	TransactionId xmin = InvalidTransactionId;
	Oid			trigger;

	initStringInfo(&text);
	describe_relation(&text, table);
	if (OidIsValid(rel->rd_rel->reltoastrelid))
		describe_relation(&text, rel->rd_rel->reltoastrelid);
	for (int i = 0; i < RelationGetDescr(rel)->natts; i++)
	{
		Form_pg_attribute a = TupleDescAttr(RelationGetDescr(rel), i);

		appendStringInfo(&text, "/%s %u %d %u %d%c%d%c%c", NameStr(a->attname), a->atttypid,
						 a->atttypmod, a->attcollation, a->attisdropped, a->attstorage,
						 a->attcompression, a->attgenerated ? a->attgenerated : '-',
						 a->attnotnull ? 'n' : '-');
	}
	foreach(lc, RelationGetIndexList(rel))
		describe_relation(&text, lfirst_oid(lc));
	trigger = zconvert_find_trigger(table, &fires, &xmin);
	appendStringInfo(&text, "/%u %c %u", trigger, fires, xmin);
	table_close(rel, NoLock);
	return text.data;
}

/* Raises an error unless table, copy and log are what they were (CONVERT-4). */
static void
check_shapes(const ZConversion *c)
{
	if (strcmp(shape_of(c->table), c->shape) != 0 ||
		strcmp(shape_of(c->copy), c->copy_shape) != 0 ||
		strcmp(shape_of(c->log), c->log_shape) != 0)
		report_change(c->table);
}

/*
 * Raises an error if another command waits for us, and we for it, as DROP TABLE
 * does, which locks the table and then the copy.
 */
static void
give_way(const ZConversion *c)
{
	if (zconvert_is_awaited(c->table, c->copy, c->log))
		report_change(c->table);
}

/*
 * Begins a step: locks table and copy, and takes a snapshot. The lock is not
 * waited for (give_way).
 */
static void
begin_step(ZConversion *c)
{
	for (int attempts = 1; !ConditionalLockRelationOid(c->table, AccessShareLock); attempts++)
	{
		give_way(c);
		zconvert_sleep_before_retry(attempts);
	}
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(c->table)))
		report_change(c->table);
	LockRelationOid(c->copy, RowExclusiveLock);
	LockRelationOid(c->log, RowExclusiveLock);
	check_shapes(c);
	take_snapshot(c);
}

/* Builds an index of the copy, without a lock of the table. */
static void
build_index(ZConversion *c, Oid index)
{
	IndexStmt  *stmt;
	ZConvertCaller caller;
	ObjectAddress created;

	begin_step(c);
	caller = zconvert_become_owner(c);
	stmt = zconvert_index_statement(c, index);
	zconvert_leave_owner(&caller);
	MemoryContextSwitchTo(c->context);
	stmt = copyObject(stmt);
	commit(c);

	take_snapshot(c);
	LockRelationOid(c->copy, ShareLock);
	caller = zconvert_become_owner(c);
	created = zc_define_index(c->copy, stmt);
	zconvert_leave_owner(&caller);
	CommandCounterIncrement();
	MemoryContextSwitchTo(c->context);
	c->copies = lappend_oid(c->copies, created.objectId);
	c->copy_shape = shape_of(c->copy);
	commit(c);
}

/* ---- an attempt begins and ends ---- */

/*
 * Returns the table of schema zundo that an attempt to convert the table has
 * made, "copy" or "log", or InvalidOid.
 */
static Oid
made_by_attempt(const char *what, Oid table)
{
	return get_relname_relid(psprintf("%s_%u", what, table), zconvert_schema());
}

/* Lets DROP TABLE of the table drop the relation as well. */
static void
depend_on(Oid reloid, Oid table)
{
	ObjectAddress object;
	ObjectAddress referenced;

	ObjectAddressSet(object, RelationRelationId, reloid);
	ObjectAddressSet(referenced, RelationRelationId, table);
	recordDependencyOn(&object, &referenced, DEPENDENCY_AUTO);
}

/* Returns the storage parameters of the relation, or 0. */
static Datum
options_of(Oid reloid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(reloid));
	Datum		options;
	bool		null;

	if (!HeapTupleIsValid(tuple))
		return (Datum) 0;
	options = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_reloptions, &null);
	options = null ? (Datum) 0 : datumCopy(options, false, -1);
	ReleaseSysCache(tuple);
	return options;
}

/*
 * Hides the columns of the relation from ALTER DOMAIN, which finds tables by
 * their columns' dependencies and reads their rows: those of a copy may be out
 * of date. The relation as a whole depends on the domain instead, since nobody
 * could read or dump it without.
 */
static void
forget_domains(Oid reloid, TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
	{
		Oid			type = TupleDescAttr(desc, i)->atttypid;
		ObjectAddress object;
		ObjectAddress referenced;

		if (!OidIsValid(type) || get_typtype(type) != TYPTYPE_DOMAIN)
			continue;
		(void) deleteDependencyRecordsForSpecific(RelationRelationId, reloid, DEPENDENCY_NORMAL,
												  TypeRelationId, type);
		ObjectAddressSet(object, RelationRelationId, reloid);
		ObjectAddressSet(referenced, TypeRelationId, type);
		recordDependencyOn(&object, &referenced, DEPENDENCY_NORMAL);
		/* the next column may be of the same domain */
		CommandCounterIncrement();
	}
}

/*
 * Creates a table in schema zundo, for the owner of rel, and its TOAST table.
 * Decoding passes over it if it is marked as a rewrite.
 */
static Oid
create_table(Relation rel, const char *what, TupleDesc desc, Oid method, bool copy)
{
	Oid			table = RelationGetRelid(rel);
	Oid			toast = rel->rd_rel->reltoastrelid;
	Oid			result;

	result = heap_create_with_catalog(psprintf("%s_%u", what, table), zconvert_schema(),
									  copy ? rel->rd_rel->reltablespace : InvalidOid, InvalidOid,
									  InvalidOid, InvalidOid, rel->rd_rel->relowner, method, desc,
									  NIL, RELKIND_RELATION,
									  copy ? RELPERSISTENCE_PERMANENT : RELPERSISTENCE_UNLOGGED,
									  false, false, ONCOMMIT_NOOP,
									  copy ? options_of(table) : (Datum) 0, false, true, true,
									  copy ? table : InvalidOid, NULL);
	CommandCounterIncrement();
	if (copy)
		NewHeapCreateToastTable(result, OidIsValid(toast) ? options_of(toast) : (Datum) 0,
								AccessExclusiveLock, OidIsValid(toast) ? toast : table);
	else
		NewRelationCreateToastTable(result, (Datum) 0);
	CommandCounterIncrement();
	depend_on(result, table);
	forget_domains(result, desc);
	return result;
}

/*
 * Lets rows of the copy be deleted although a publication has all tables: the
 * server asks for a replica identity then.
 */
static void
set_replica_identity(Oid copy)
{
	Relation	catalog = table_open(RelationRelationId, RowExclusiveLock);
	HeapTuple	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(copy));

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", copy);
	((Form_pg_class) GETSTRUCT(tuple))->relreplident = REPLICA_IDENTITY_FULL;
	CatalogTupleUpdate(catalog, &tuple->t_self, tuple);
	heap_freetuple(tuple);
	table_close(catalog, RowExclusiveLock);
	CommandCounterIncrement();
}

/* Returns the columns of the log. */
static TupleDesc
log_desc(const ZConversion *c, Relation rel)
{
	TupleDesc	desc = CreateTemplateTupleDesc(list_length(c->keys));
	ListCell   *lc;

	foreach(lc, c->keys)
		TupleDescCopyEntry(desc, (AttrNumber) (foreach_current_index(lc) + 1),
						   RelationGetDescr(rel), (AttrNumber) lfirst_int(lc));
	return desc;
}

/*
 * Locks what shows that a session converts the table, or cleans up after an
 * attempt; raises an error if another session holds it. It is a lock of the
 * default method, so an error releases it.
 */
static void
lock_attempt(LOCKTAG *tag, Oid table, bool for_session)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, RelationRelationId, table, 1);
	if (LockAcquire(tag, ExclusiveLock, for_session, true) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("table \"%s\" is being converted by another session",
						get_rel_name(table)),
				 errhint("See zundo.conversions.")));
}

/* Locks a relation that the attempt has made for the session. */
static LockRelId
lock_for_session(Oid reloid, LOCKMODE mode)
{
	Relation	rel = relation_open(reloid, mode);
	LockRelId	id = rel->rd_lockInfo.lockRelId;

	LockRelationIdForSession(&id, mode);
	relation_close(rel, NoLock);
	return id;
}

/*
 * Step 1: creates copy, log and trigger. The lock waits for all transactions
 * that have changed rows of the table, or may do so without the trigger.
 */
static void
begin_conversion(ZConversion *c)
{
	char		fires;
	TransactionId xmin;
	Relation	rel;

	zconvert_lock(c->table, ShareRowExclusiveLock, c->lock_wait);
	take_snapshot(c);
	MemoryContextSwitchTo(c->context);
	zconvert_check_table(c);
	rel = table_open(c->table, NoLock);
	if (OidIsValid(made_by_attempt("copy", c->table)) ||
		OidIsValid(made_by_attempt("log", c->table)) ||
		OidIsValid(zconvert_find_trigger(c->table, &fires, &xmin)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("an attempt to convert table \"%s\" has left something",
						RelationGetRelationName(rel)),
				 errhint("Call zundo.convert_cleanup.")));
	zconvert_check_contents(c, rel);
	c->copy = create_table(rel, "copy", CreateTupleDescCopy(RelationGetDescr(rel)), c->method,
						   true);
	set_replica_identity(c->copy);
	c->log = create_table(rel, "log", log_desc(c, rel), HEAP_TABLE_AM_OID, false);
	(void) zconvert_make_trigger(rel, c->log, c->keys);
	CommandCounterIncrement();
	c->nblocks = RelationGetNumberOfBlocks(rel);
	table_close(rel, NoLock);
	c->shape = shape_of(c->table);
	c->copy_shape = shape_of(c->copy);
	c->log_shape = shape_of(c->log);
	c->copy_lock = lock_for_session(c->copy, ShareLock);
	c->log_lock = lock_for_session(c->log, AccessShareLock);
	commit(c);
}

/*
 * Drops the relation if it exists. Where a dump was restored, its name may be
 * that of another role's leftover.
 */
static void
drop(Oid reloid)
{
	ObjectAddress object;

	if (!OidIsValid(reloid))
		return;
	if (!zc_owns_relation(reloid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(reloid));
	ObjectAddressSet(object, RelationRelationId, reloid);
	performDeletion(&object, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
}

/*
 * Drops the trigger of the table, which is locked exclusively, if it has one.
 */
static void
drop_trigger(Oid table)
{
	char		fires;
	TransactionId xmin;
	ObjectAddress object;
	Oid			trigger = zconvert_find_trigger(table, &fires, &xmin);

	if (!OidIsValid(trigger))
		return;
	ObjectAddressSet(object, TriggerRelationId, trigger);
	performDeletion(&object, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
}

/*
 * Last step but one: tries to lock the table, and then exchanges the files.
 * Returns false if a lock could not be had, or so much has changed since the
 * last refresh that the table would be locked for long.
 */
static bool
try_exchange(ZConversion *c)
{
	Relation	rel;
	Relation	copy;

	if (!zconvert_try_lock(c->table, c->copy, AccessExclusiveLock, c->lock_wait))
		return false;
	LockRelationOid(c->log, RowExclusiveLock);
	check_shapes(c);
	rel = table_open(c->table, NoLock);
	copy = table_open(c->copy, NoLock);
	CheckTableNotInUse(rel, "zundo.convert");
	CheckTableNotInUse(copy, "zundo.convert");
	if (list_difference_oid(RelationGetIndexList(copy), c->copies) != NIL ||
		list_length(c->copies) != list_length(c->indexes))
		report_change(c->table);
	table_close(copy, NoLock);

	take_snapshot(c);
	if (zconvert_refresh(c, true) > (uint64) c->many)
	{
		c->many *= 2;
		table_close(rel, NoLock);
		commit(c);
		return false;
	}
	TransferPredicateLocksToHeapRelation(rel);
	table_close(rel, NoLock);
	drop_trigger(c->table);
	zconvert_note_exchange(c->table);
	zconvert_exchange(c->table, c->copy, c->indexes, c->copies);
	commit(c);
	return true;
}

/*
 * Drops what the attempt has made: the copy has the old file now. The caller's
 * next transaction has its own isolation level.
 */
static void
end_conversion(ZConversion *c)
{
	take_snapshot(c);
	LockRelationOid(c->copy, AccessExclusiveLock);
	LockRelationOid(c->log, AccessExclusiveLock);
	UnlockRelationIdForSession(&c->copy_lock, ShareLock);
	UnlockRelationIdForSession(&c->log_lock, AccessShareLock);
	drop(c->copy);
	drop(c->log);
	PopActiveSnapshot();
	SPI_commit();
}

/*
 * Changes the access method of a partitioned table, which only says what new
 * partitions get.
 */
static void
convert_partitioned(ZConversion *c)
{
	AlterTableCmd *command = makeNode(AlterTableCmd);

	command->subtype = AT_SetAccessMethod;
	command->name = get_am_name(c->method);
	zconvert_lock(c->table, AccessExclusiveLock, c->lock_wait);
	take_snapshot(c);
	zconvert_check_table(c);
	AlterTableInternal(c->table, list_make1(command), false);
	PopActiveSnapshot();
	SPI_commit();
}

static void
convert(ZConversion *c)
{
	ListCell   *lc;

	begin_conversion(c);
	c->many = ZCONVERT_MANY_NOTES;
	for (BlockNumber block = 0; block < c->nblocks; block += c->step)
	{
		begin_step(c);
		zconvert_copy_blocks(c, block, (BlockNumber) Min((uint64) block + c->step, c->nblocks));
		commit(c);
		zconvert_sleep(c->pause);
		if (c->nblocks - block <= c->step)
			break;
	}

	/* unique indexes can be built only when the rows are those of a snapshot */
	begin_step(c);
	(void) zconvert_refresh(c, false);
	commit(c);
	foreach(lc, c->indexes)
		build_index(c, lfirst_oid(lc));
	for (int attempts = 1;; attempts++)
	{
		uint64		notes;

		begin_step(c);
		notes = zconvert_refresh(c, false);
		commit(c);
		if (attempts % 100 == 0)
			ereport(NOTICE,
					(errmsg("files of table \"%s\" could not be exchanged after %d attempts",
							get_rel_name(c->table), attempts),
					 errdetail("The last refresh has found " UINT64_FORMAT " notes.", notes)));
		if (notes > ZCONVERT_FEW_NOTES)
			continue;
		if (try_exchange(c))
			break;
		give_way(c);
		zconvert_sleep_before_retry(attempts);
	}
	end_conversion(c);
}

/* ---- the procedures ---- */

/* Raises an error if an argument is null: procedures cannot be STRICT. */
static void
require_arguments(FunctionCallInfo fcinfo, const char *name)
{
	for (int i = 0; i < PG_NARGS(); i++)
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument %d of %s must not be null", i + 1, name)));
}

/* Raises an error unless the procedure can commit. */
static void
require_no_transaction(FunctionCallInfo fcinfo, const char *name)
{
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block", name)));
	PreventCommandDuringRecovery(name);
}

/* Returns the OID of the access method to which tables shall be converted. */
static Oid
target_method(const char *name)
{
	if (strcmp(name, "heap") != 0 && strcmp(name, "zheap") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("tables can be converted to access methods \"heap\" and \"zheap\" only")));
	return get_table_am_oid(name, false);
}

/*
 * zundo.convert(rel, am, lock_wait, step, pause); times in ms, steps in blocks.
 */
Datum
zundo_convert(PG_FUNCTION_ARGS)
{
	ZConversion c = {.table = PG_GETARG_OID(0)};
	LOCKTAG		attempt;
	bool		partitioned;

	require_arguments(fcinfo, "zundo.convert");
	c.lock_wait = PG_GETARG_INT32(2);
	c.step = PG_GETARG_INT32(3);
	c.pause = PG_GETARG_INT32(4);
	require_no_transaction(fcinfo, "zundo.convert");
	if (c.lock_wait < 1 || c.lock_wait >= DeadlockTimeout || c.step < 1 || c.pause < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock_wait and step must be positive, lock_wait shorter than "
						"\"deadlock_timeout\", and pause not negative")));
	c.method = target_method(NameStr(*PG_GETARG_NAME(1)));
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	c.context = CurrentMemoryContext;
	c.scratch = AllocSetContextCreate(c.context, "zundo conversion", ALLOCSET_DEFAULT_SIZES);
	zconvert_check_table(&c);
	partitioned = get_rel_relkind(c.table) == RELKIND_PARTITIONED_TABLE;
	lock_attempt(&attempt, c.table, true);
	next_transaction();
	if (partitioned)
		convert_partitioned(&c);
	else
		convert(&c);
	(void) LockRelease(&attempt, ExclusiveLock, true);
	SPI_finish();
	PG_RETURN_VOID();
}

/* Locks the table and its copy, if it has one, exclusively. */
static void
lock_both(Oid table, Oid copy, int lock_wait)
{
	for (int n = 1; !zconvert_try_lock(table, copy, AccessExclusiveLock, lock_wait); n++)
		zconvert_wait_for_lock(table, n);
}

/*
 * zundo.convert_cleanup(rel, lock_wait): drops what an attempt has left that
 * no session works on.
 */
Datum
zundo_convert_cleanup(PG_FUNCTION_ARGS)
{
	Oid			table = PG_GETARG_OID(0);
	int			lock_wait = PG_GETARG_INT32(1);
	Oid			copy;
	char		fires;
	TransactionId xmin;
	LOCKTAG		tag;

	require_arguments(fcinfo, "zundo.convert_cleanup");
	require_no_transaction(fcinfo, "zundo.convert_cleanup");
	if (lock_wait < 1 || lock_wait >= DeadlockTimeout)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock_wait must be positive and shorter than \"deadlock_timeout\"")));
	if (!zc_owns_relation(table, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(table));
	lock_attempt(&tag, table, false);
	copy = made_by_attempt("copy", table);
	/* both or none: DROP TABLE has the table's when it waits for the copy's */
	if (OidIsValid(zconvert_find_trigger(table, &fires, &xmin)))
		lock_both(table, copy, lock_wait);
	else if (OidIsValid(copy))
		zconvert_lock(copy, AccessExclusiveLock, lock_wait);
	drop_trigger(table);
	drop(made_by_attempt("copy", table));
	drop(made_by_attempt("log", table));
	PG_RETURN_VOID();
}

/*
 * zundo.convert_refused(rel, am): returns why the table would be refused, in
 * sentences, or null; null also if it does not exist.
 */
Datum
zundo_convert_refused(PG_FUNCTION_ARGS)
{
	ZConversion c = {.table = PG_GETARG_OID(0),.refusals = makeStringInfo()};
	Relation	rel;

	c.method = target_method(NameStr(*PG_GETARG_NAME(1)));
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(c.table)))
		PG_RETURN_NULL();
	if (!zc_owns_relation(c.table, GetUserId()))
		PG_RETURN_TEXT_P(cstring_to_text("It belongs to another role."));
	zconvert_check_table(&c);
	rel = try_relation_open(c.table, AccessShareLock);
	if (rel == NULL)
		PG_RETURN_NULL();
	if (c.refusals->len == 0 && rel->rd_rel->relkind == RELKIND_RELATION)
		zconvert_check_contents(&c, rel);
	relation_close(rel, AccessShareLock);
	if (c.refusals->len == 0)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(c.refusals->data));
}
