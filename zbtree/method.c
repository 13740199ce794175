/*
 * zbtree/method.c - zundo.set_index_method: gives an index the other access
 * method, btree or zbtree, while the table is in use.
 *
 * A twin of the index is built as by CREATE INDEX CONCURRENTLY. Then the two
 * exchange, as in REINDEX CONCURRENTLY, their names and all that depends on
 * them, and the old one is dropped. The server exports the steps of these
 * commands; each is a transaction here. The other one of two such indexes,
 * which is not valid, is named after the OID of the one that has the user's
 * name, so that the next call finds and drops what an error or a crash has
 * left. If a command has rebuilt it, it is valid, and the call refuses.
 *
 * Locks: ShareUpdateExclusiveLock on the table and the indexes, of the session,
 * so it is held to the end of the call; no other command for indexes of the
 * table runs beside it. They are waited for without a snapshot: the call that
 * has them waits for older snapshots. Crash points: "index-step", after each
 * commit.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/relation.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_opclass.h"
#include "commands/defrem.h"
#include "commands/progress.h"
#include "common/compat_commands.h"
#include "common/zundo.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

/* What a call works on. */
typedef struct MethodChange
{
	Oid			table;
	Oid			index;
	Oid			method;			/* the new one */
	LOCKTAG		tag;			/* of the table */
	LockRelId	locks[4];		/* of the session */
	int			nlocks;
} MethodChange;

PG_FUNCTION_INFO_V1(zundo_set_index_method);
PGDLLEXPORT Datum zundo_set_index_method(PG_FUNCTION_ARGS);

/* ---- steps ---- */

/* Locks the table or index to the end of the call. */
static void
lock_for_session(MethodChange *c, Relation rel)
{
	Assert(c->nlocks < lengthof(c->locks));
	c->locks[c->nlocks] = rel->rd_lockInfo.lockRelId;
	LockRelationIdForSession(&c->locks[c->nlocks++], ShareUpdateExclusiveLock);
}

/* Ends the transaction. The next one has no snapshot yet. */
static void
commit(void)
{
	SPI_commit();
	ZUNDO_FAULT("index-step");
	CHECK_FOR_INTERRUPTS();
}

static void
begin_step(void)
{
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
end_step(void)
{
	PopActiveSnapshot();
	commit();
}

/* Waits for transactions that hold locks on the table which conflict. */
static void
wait_for_lockers(const MethodChange *c, LOCKMODE mode, int phase)
{
	Assert(!ActiveSnapshotSet());
	pgstat_progress_update_param(PROGRESS_CREATEIDX_PHASE, phase);
	WaitForLockers(c->tag, mode, true);
}

/* ---- the index before ---- */

/*
 * Raises an error if the access method of the index cannot be changed to
 * c->method. The table and the index are locked.
 */
static void
check(const MethodChange *c, Relation table, Relation index)
{
	bool		to_zbtree = c->method != BTREE_AM_OID;
	const char *name = RelationGetRelationName(index);

	if (index->rd_rel->relkind != RELKIND_INDEX || index->rd_rel->relispartition)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change the access method of partitioned index \"%s\" or of one "
						"of its partitions", name),
				 errhint("Create an index with the other access method, and drop this one.")));
	if (table->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change the access method of index \"%s\" of a temporary table",
						name),
				 errhint("Create an index with the other access method, and drop this one.")));
	if (to_zbtree)
		zbtree_check_table(table, index);
	if (!index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid", name),
				 errhint("Drop it, or rebuild it with REINDEX INDEX.")));
	if (index->rd_index->indisexclusion)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot change the access method of index \"%s\" of an exclusion "
						"constraint", name),
				 errdetail("Such an index cannot be built concurrently.")));
	if (to_zbtree && index->rd_index->indisunique &&
		!GetIndexAmRoutineByAmId(c->method, false)->amcanunique)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"%s\" does not support unique indexes", "zbtree")));
	if (to_zbtree && !index->rd_index->indimmediate)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("index \"%s\" cannot use access method \"zbtree\"", name),
				 errdetail("Its constraint is deferrable.")));
}

static void
check_owner(const MethodChange *c, const char *name)
{
	if (!zc_owns_relation(c->table, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, name);
}

/*
 * Locks the index and its table, and checks both. Returns whether the index has
 * another access method than c->method.
 */
static bool
begin(MethodChange *c, const char *method)
{
	Relation	table;
	Relation	index;
	Oid			zbtree = get_index_am_oid("zbtree", false);
	char	   *name = get_rel_name(c->index);
	bool		result;

	if (strcmp(method, "btree") != 0 && strcmp(method, "zbtree") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("access method of an index cannot be changed to \"%s\"", method),
				 errdetail("It can be changed from \"btree\" to \"zbtree\" and back.")));
	c->method = get_index_am_oid(method, false);
	c->table = IndexGetRelation(c->index, true);
	if (!OidIsValid(c->table))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not an index", name ? name : "?")));
	check_owner(c, name);

	/* the table first, as in REINDEX; wait without a snapshot */
	SPI_commit();
	table = try_relation_open(c->table, ShareUpdateExclusiveLock);
	InvalidateCatalogSnapshot();
	index = try_relation_open(c->index, ShareUpdateExclusiveLock);
	if (table == NULL || index == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("index \"%s\" was dropped or replaced by another command", name)));
	begin_step();
	check_owner(c, name);
	if (index->rd_rel->relam != BTREE_AM_OID && index->rd_rel->relam != zbtree)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("index \"%s\" has access method \"%s\"", RelationGetRelationName(index),
						get_am_name(index->rd_rel->relam)),
				 errdetail("It can be changed from \"btree\" to \"zbtree\" and back.")));
	check(c, table, index);
	lock_for_session(c, table);
	lock_for_session(c, index);
	SET_LOCKTAG_RELATION(c->tag, c->locks[0].dbId, c->locks[0].relId);
	result = index->rd_rel->relam != c->method;
	relation_close(index, NoLock);
	relation_close(table, NoLock);
	end_step();
	return result;
}

/* ---- the twin ---- */

/* Returns a name for the twin of the index that no relation has. */
static char *
twin_name(const MethodChange *c, Oid index)
{
	return ChooseRelationName("zundo", psprintf("%u", index), "twin",
							  get_rel_namespace(c->table), false);
}

/*
 * Returns the twin of c->index that an earlier call has left, or InvalidOid. It
 * may be dead, so it need not be in the list of the table's indexes.
 */
static Oid
leftover(const MethodChange *c)
{
	char	   *prefix = psprintf("zundo_%u_twin", c->index);
	Relation	indexes = table_open(IndexRelationId, AccessShareLock);
	Oid			result = InvalidOid;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_index_indrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(c->table));
	scan = systable_beginscan(indexes, IndexIndrelidIndexId, true, NULL, 1, &key);
	while (!OidIsValid(result) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Oid			index = ((Form_pg_index) GETSTRUCT(tuple))->indexrelid;

		if (strncmp(get_rel_name(index), prefix, strlen(prefix)) == 0)
			result = index;
	}
	systable_endscan(scan);
	table_close(indexes, AccessShareLock);
	return result;
}

/* Returns the operator classes of the index in fresh memory. */
static oidvector *
classes_of(HeapTuple index)
{
	bool		null;
	Datum		value = SysCacheGetAttr(INDEXRELID, index, Anum_pg_index_indclass, &null);

	return (oidvector *) PG_DETOAST_DATUM_COPY(value);
}

/*
 * Returns the expressions or the predicate of the index as they are stored:
 * those in an IndexInfo have been simplified.
 */
static List *
stored_trees(HeapTuple index, AttrNumber column)
{
	bool		null;
	Datum		value = SysCacheGetAttr(INDEXRELID, index, column, &null);
	Node	   *tree;

	if (null)
		return NIL;
	tree = stringToNode(TextDatumGetCString(value));
	return column == Anum_pg_index_indpred ? make_ands_implicit((Expr *) tree) : (List *) tree;
}

/*
 * Returns the storage parameters of the index, valid for the access method:
 * btree does not have access_method, and zbtree must have it for the index of a
 * constraint.
 */
static Datum
storage_parameters(Oid index, Oid method)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	bool		null;
	bool		reset = method == BTREE_AM_OID;
	Datum		value;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", index);
	value = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_reloptions, &null);
	value = null ? (Datum) 0 : PointerGetDatum(PG_DETOAST_DATUM_COPY(value));
	ReleaseSysCache(tuple);
	if (reset || OidIsValid(get_index_constraint(index)))
	{
		Node	   *zbtree = reset ? NULL : (Node *) makeString(pstrdup("zbtree"));

		value = transformRelOptions(value, list_make1(makeDefElem("access_method", zbtree, -1)),
									NULL, NULL, false, reset);
	}
	(void) index_reloptions(GetIndexAmRoutineByAmId(method, false)->amoptions, value, true);
	return value;
}

/* Returns the statistics target of a column of the index. */
static NullableDatum
statistics_target(Oid index, int column)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(index), Int16GetDatum(column));
	NullableDatum target;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for attribute %d of relation %u", column, index);
	target.value = SysCacheGetAttr(ATTNUM, tuple, Anum_pg_attribute_attstattarget,
								   &target.isnull);
	ReleaseSysCache(tuple);
	return target;
}

/*
 * Enters the twin into the catalogs. Returns its OID. As in the server's
 * index_concurrently_create_copy, the twin is neither a partition nor the index
 * of a constraint, since it gets this from the old one later.
 */
static Oid
create_twin(MethodChange *c)
{
	Relation	table = table_open(c->table, NoLock);
	Relation	index = index_open(c->index, NoLock);
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(c->index));
	IndexInfo  *info;
	oidvector  *classes;
	List	   *columns = NIL;
	Datum	   *options = palloc(sizeof(Datum) * INDEX_MAX_KEYS);
	NullableDatum *targets = palloc(sizeof(NullableDatum) * INDEX_MAX_KEYS);
	Oid			twin;
	Relation	rel;
	Oid			user;
	int			context;
	int			level = NewGUCNestLevel();

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", c->index);

	/* what simplifies expressions calls functions of the owner */
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(table->rd_rel->relowner, context | SECURITY_RESTRICTED_OPERATION);
	if (ZC_HAS_SAFE_PATH || !has_privs_of_role(user, table->rd_rel->relowner))
		zc_restrict_search_path();

	info = BuildIndexInfo(index);
	info->ii_Expressions = stored_trees(tuple, Anum_pg_index_indexprs);
	info->ii_Predicate = stored_trees(tuple, Anum_pg_index_indpred);
	info->ii_ExpressionsState = NIL;
	info->ii_PredicateState = NULL;
	info->ii_Am = c->method;
	info->ii_ReadyForInserts = false;
	info->ii_Concurrent = true;
	classes = classes_of(tuple);
	for (int i = 0; i < classes->dim1; i++)
		classes->values[i] = zbtree_class_for(classes->values[i], c->method, false);
	for (int i = 0; i < info->ii_NumIndexAttrs; i++)
	{
		columns = lappend(columns, NameStr(TupleDescAttr(RelationGetDescr(index), i)->attname));
		options[i] = get_attoptions(c->index, i + 1);
		targets[i] = statistics_target(c->index, i + 1);
	}
	twin = zc_index_create(table, twin_name(c, c->index), info, columns, c->method,
						   index->rd_rel->reltablespace, index->rd_indcollation,
						   classes->values, options, index->rd_indoption, targets,
						   storage_parameters(c->index, c->method),
						   INDEX_CREATE_SKIP_BUILD | INDEX_CREATE_CONCURRENT);
	rel = index_open(twin, ShareUpdateExclusiveLock);
	if (c->method != BTREE_AM_OID)
		zbtree_check_classes(rel);
	lock_for_session(c, rel);
	index_close(rel, NoLock);

	AtEOXact_GUC(false, level);
	SetUserIdAndSecContext(user, context);
	ReleaseSysCache(tuple);
	index_close(index, NoLock);
	table_close(table, NoLock);
	return twin;
}

/*
 * Fills the twin, whose creation is committed, so that it has an entry for each
 * row that any snapshot sees.
 */
static void
build_twin(const MethodChange *c, Oid twin)
{
	Snapshot	snapshot;
	TransactionId limit;

	pgstat_progress_update_param(PROGRESS_CREATEIDX_INDEX_OID, twin);
	wait_for_lockers(c, ShareLock, PROGRESS_CREATEIDX_PHASE_WAIT_1);
	commit();
	begin_step();
	pgstat_progress_update_param(PROGRESS_CREATEIDX_PHASE, PROGRESS_CREATEIDX_PHASE_BUILD);
	index_concurrently_build(c->table, twin);
	end_step();

	wait_for_lockers(c, ShareLock, PROGRESS_CREATEIDX_PHASE_WAIT_2);
	commit();
	snapshot = RegisterSnapshot(GetTransactionSnapshot());
	PushActiveSnapshot(snapshot);
	validate_index(c->table, twin, snapshot);
	limit = snapshot->xmin;
	PopActiveSnapshot();
	UnregisterSnapshot(snapshot);
	commit();

	/* others that wait in the same way must not wait for a snapshot of ours */
	Assert(!TransactionIdIsValid(MyProc->xmin));
	pgstat_progress_update_param(PROGRESS_CREATEIDX_PHASE, PROGRESS_CREATEIDX_PHASE_WAIT_3);
	WaitForOlderSnapshots(limit, true);
	commit();
}

/* ---- exchange and drop ---- */

/* Makes the index depend on its own operator classes, and on no others. */
static void
depend_on_classes(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	ObjectAddresses *classes = new_object_addresses();
	ObjectAddress object;
	oidvector  *oids;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", index);
	oids = classes_of(tuple);
	ReleaseSysCache(tuple);
	for (int i = 0; i < oids->dim1; i++)
	{
		ObjectAddressSet(object, OperatorClassRelationId, oids->values[i]);
		add_exact_object_address(&object, classes);
	}
	deleteDependencyRecordsForClass(RelationRelationId, index, OperatorClassRelationId,
									DEPENDENCY_NORMAL);
	ObjectAddressSet(object, RelationRelationId, index);
	record_object_address_dependencies(&object, classes, DEPENDENCY_NORMAL);
	free_object_addresses(classes);
}

/*
 * Exchanges the two. The server's function, made for two indexes of one access
 * method, exchanges all dependencies, also those on operator classes.
 */
static void
exchange(const MethodChange *c, Oid twin)
{
	begin_step();
	index_concurrently_swap(twin, c->index, twin_name(c, twin));
	CommandCounterIncrement();
	depend_on_classes(twin);
	depend_on_classes(c->index);
	CacheInvalidateRelcacheByRelid(c->table);
	end_step();
}

/* Drops an index of the table that is not valid, when nobody reads it. */
static void
drop(const MethodChange *c, Oid index)
{
	ObjectAddress object;

	wait_for_lockers(c, AccessExclusiveLock, PROGRESS_CREATEIDX_PHASE_WAIT_4);
	begin_step();
	index_concurrently_set_dead(c->table, index);
	end_step();
	wait_for_lockers(c, AccessExclusiveLock, PROGRESS_CREATEIDX_PHASE_WAIT_5);
	begin_step();
	ObjectAddressSet(object, RelationRelationId, index);
	performDeletion(&object, DROP_RESTRICT,
					PERFORM_DELETION_CONCURRENT_LOCK | PERFORM_DELETION_INTERNAL);
	end_step();
}

/*
 * Drops what an earlier call for the index has left, and says so. A valid index
 * is not dropped, since queries may use it.
 */
static void
drop_leftover(MethodChange *c)
{
	Oid			oid = leftover(c);
	Relation	index;
	char	   *name;

	if (!OidIsValid(oid))
		return;
	index = index_open(oid, ShareUpdateExclusiveLock);
	name = pstrdup(RelationGetRelationName(index));
	if (index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\", which an earlier call has left, is valid", name),
				 errdetail("Another command has rebuilt it."),
				 errhint("Drop it with DROP INDEX CONCURRENTLY, and repeat the call.")));
	lock_for_session(c, index);
	index_close(index, NoLock);
	ereport(NOTICE,
			(errmsg("dropping invalid index \"%s\", which an earlier call has left", name)));
	commit();
	drop(c, oid);
}

/*
 * zundo.set_index_method(index, method): a procedure, since it commits each
 * step.
 */
Datum
zundo_set_index_method(PG_FUNCTION_ARGS)
{
	MethodChange c = {0};
	const char *method;

	/* a procedure cannot be STRICT */
	for (int i = 0; i < 2; i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"%s\" must not be null", i == 0 ? "index" : "method")));
	}
	c.index = PG_GETARG_OID(0);
	method = NameStr(*PG_GETARG_NAME(1));
	zundo_require_preload();
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		castNode(CallContext, fcinfo->context)->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block", "zundo.set_index_method")));
	PreventCommandIfReadOnly("zundo.set_index_method");
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	if (begin(&c, method))
	{
		Oid			twin;

		pgstat_progress_start_command(PROGRESS_COMMAND_CREATE_INDEX, c.table);
		pgstat_progress_update_param(PROGRESS_CREATEIDX_COMMAND,
									 PROGRESS_CREATEIDX_COMMAND_REINDEX_CONCURRENTLY);
		drop_leftover(&c);
		begin_step();
		twin = create_twin(&c);
		end_step();
		build_twin(&c, twin);
		exchange(&c, twin);
		drop(&c, c.index);
		pgstat_progress_end_command();
	}
	else
		drop_leftover(&c);
	while (c.nlocks > 0)
		UnlockRelationIdForSession(&c.locks[--c.nlocks], ShareUpdateExclusiveLock);
	SPI_finish();
	PG_RETURN_VOID();
}
