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

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/attmap.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/heap.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_trigger.h"
#include "catalog/toasting.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "commands/tablecmds.h"
#include "common/pg_prng.h"
#include "common/zundo.h"
#include "convert/convert_internal.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "parser/parse_utilcmd.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/predicate.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* A refresh that finds no more notes is followed by the exchange. */
#define FEW_NOTES 500

/* A conversion in progress. */
typedef struct Conversion
{
	MemoryContext context;		/* of this struct's lists and strings */
	MemoryContext scratch;		/* of a transaction */
	Oid			table;
	Oid			method;			/* the new access method */
	int			lock_wait;		/* ms that others may wait behind us */
	int			step;			/* blocks that are copied in one transaction */
	int			pause;			/* ms after it */
	Oid			owner;
	Oid			copy;
	Oid			log;
	LockRelId	copy_lock;		/* locked by the session */
	LockRelId	log_lock;
	BlockNumber nblocks;		/* of the table when the trigger had been made */
	List	   *keys;			/* columns of the key, integers */
	List	   *operators;		/* their equality */
	List	   *indexes;		/* of the table */
	List	   *copies;			/* of the copy, in the same order */
	char	   *shape;			/* of the table (CONVERT-4) */
	char	   *copy_shape;
	char	   *log_shape;
	StringInfo	refusals;		/* see refuse */
} Conversion;

PG_FUNCTION_INFO_V1(zundo_convert);
PG_FUNCTION_INFO_V1(zundo_convert_cleanup);
PG_FUNCTION_INFO_V1(zundo_convert_refused);

/* ---- waiting and locking ---- */

/* Sleeps for some milliseconds, unless canceled. */
static void
sleep_ms(int ms)
{
	if (ms <= 0)
		return;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Sleeps for a random time before another attempt; the more attempts have
 * failed, the longer, up to 2 seconds.
 */
static void
sleep_before_retry(int attempts)
{
	double		longest = Min(20.0 * attempts, 2000.0);

	sleep_ms(1 + (int) (longest * pg_prng_double(&pg_global_prng_state)));
}

static void
set_local(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

/*
 * Locks an index or TOAST table at once, or raises the error of lock_timeout.
 */
static void
lock_at_once(Oid reloid, LOCKMODE mode)
{
	if (!ConditionalLockRelationOid(reloid, mode))
		ereport(ERROR, (errcode(ERRCODE_LOCK_NOT_AVAILABLE),
						errmsg_internal("could not lock relation %u", reloid)));
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

static void
report_missing(Oid table)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("table with OID %u does not exist", table)));
}

/*
 * Asks for the lock of the table, and before it of the copy, if one is given.
 * Waits for each of their locks for lock_wait ms at most, while others queue
 * behind us; the server's deadlock detection does not run in so short a time.
 * Returns whether all are held now, else none is. Raises an error if one of the
 * tables has been dropped.
 */
static bool
try_lock(Oid table, Oid copy, LOCKMODE mode, int lock_wait)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile bool exists = true;
	volatile bool locked = true;

	BeginInternalSubTransaction(NULL);
	PG_TRY();
	{
		int			level = NewGUCNestLevel();

		set_local("lock_timeout", psprintf("%d", lock_wait));
		exists = (!OidIsValid(copy) || lock_table(copy, mode)) && lock_table(table, mode);
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
		report_missing(table);
	return locked;
}

/* Asks again until the table is locked. */
static void
lock_patiently(Oid table, LOCKMODE mode, int lock_wait)
{
	for (int attempts = 1; !try_lock(table, InvalidOid, mode, lock_wait); attempts++)
		sleep_before_retry(attempts);
}

/* ---- transactions ---- */

/* Begins what needs a snapshot: the newest one, as the locks are held. */
static void
take_snapshot(Conversion *c)
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
commit(Conversion *c)
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
check_shapes(const Conversion *c)
{
	if (strcmp(shape_of(c->table), c->shape) != 0 ||
		strcmp(shape_of(c->copy), c->copy_shape) != 0 ||
		strcmp(shape_of(c->log), c->log_shape) != 0)
		report_change(c->table);
}

/*
 * Begins a step: locks table and copy, and takes a snapshot. The lock is not
 * waited for: DROP TABLE holds that of the table while it waits for the copy's,
 * which is ours.
 */
static void
begin_step(Conversion *c)
{
	while (!ConditionalLockRelationOid(c->table, AccessShareLock))
	{
		Relation	copy = table_open(c->copy, RowExclusiveLock);
		bool		awaited = LockHasWaitersRelation(copy, ShareUpdateExclusiveLock);

		table_close(copy, NoLock);
		if (awaited)
			report_change(c->table);
		sleep_ms(5);
	}
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(c->table)))
		report_change(c->table);
	LockRelationOid(c->copy, RowExclusiveLock);
	LockRelationOid(c->log, RowExclusiveLock);
	check_shapes(c);
	take_snapshot(c);
}

/* ---- commands ---- */

/* What leave_owner restores. */
typedef struct Caller
{
	Oid			user;
	int			context;
	int			level;
} Caller;

/*
 * Continues as the owner of the table, with settings on which the meaning of
 * expressions depends. Functions that a table's owner has written, which the
 * planner may call as well, never run with other rights.
 */
static Caller
become_owner(const Conversion *c)
{
	Caller		caller;

	GetUserIdAndSecContext(&caller.user, &caller.context);
	SetUserIdAndSecContext(c->owner, caller.context | SECURITY_RESTRICTED_OPERATION |
						   SECURITY_NOFORCE_RLS);
	caller.level = NewGUCNestLevel();
	set_local("search_path", "pg_catalog, pg_temp");
	set_local("default_tablespace", "");
	set_local("enable_tidscan", "on");
	return caller;
}

static void
leave_owner(const Caller *caller)
{
	AtEOXact_GUC(false, caller->level);
	SetUserIdAndSecContext(caller->user, caller->context);
}

/*
 * Executes the command as the owner, with the active snapshot. Returns the
 * number of rows.
 */
static uint64
run(const Conversion *c, const char *command, bool by_index)
{
	static const char *const methods[] = {
		"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material"
	};
	MemoryContext context = CurrentMemoryContext;
	Caller		caller = become_owner(c);
	SPIPlanPtr	plan;
	int			result;

	for (int i = 0; by_index && i < lengthof(methods); i++)
		set_local(methods[i], "off");
	plan = SPI_prepare(command, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\"", command);
	result = SPI_execute_snapshot(plan, NULL, NULL, GetActiveSnapshot(), InvalidSnapshot, false,
								  true, 0);
	SPI_freeplan(plan);
	if (result < 0)
		elog(ERROR, "\"%s\" failed: %s", command, SPI_result_code_string(result));
	leave_owner(&caller);
	MemoryContextSwitchTo(context);
	return SPI_processed;
}

static char *
name_of(Oid reloid)
{
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(reloid)),
									  get_rel_name(reloid));
}

/*
 * Returns the columns that are copied. A virtual generated column is null in
 * every row.
 */
static char *
columns_of(Oid table)
{
	Relation	rel = table_open(table, NoLock);
	StringInfoData list;

	initStringInfo(&list);
	for (int i = 0; i < RelationGetDescr(rel)->natts; i++)
	{
		Form_pg_attribute a = TupleDescAttr(RelationGetDescr(rel), i);

		if (!a->attisdropped && a->attgenerated != 'v')
			appendStringInfo(&list, "%s%s", list.len > 0 ? ", " : "",
							 quote_identifier(NameStr(a->attname)));
	}
	table_close(rel, NoLock);
	return list.data;
}

/* Returns the condition that rows of "one" and "log" have the same key. */
static char *
same_key(const Conversion *c)
{
	StringInfoData text;
	ListCell   *lc1;
	ListCell   *lc2;

	initStringInfo(&text);
	forboth(lc1, c->keys, lc2, c->operators)
	{
		const char *column = quote_identifier(get_attname(c->table, (AttrNumber) lfirst_int(lc1),
														  false));
		Oid			type = get_atttype(c->table, (AttrNumber) lfirst_int(lc1));

		if (text.len > 0)
			appendStringInfoString(&text, " AND ");
		generate_operator_clause(&text, psprintf("one.%s", column), type, lfirst_oid(lc2),
								 psprintf("log.%s", column), type);
	}
	return text.data;
}

/* Copies the rows of a range of blocks. */
static void
copy_blocks(Conversion *c, BlockNumber first, BlockNumber end)
{
	char	   *columns = columns_of(c->table);

	(void) run(c, psprintf("INSERT INTO %s (%s) SELECT %s FROM ONLY %s "
						   "WHERE ctid >= '(%u,0)'::tid AND ctid < '(%u,0)'::tid",
						   name_of(c->copy), columns, columns, name_of(c->table), first, end),
			   false);
}

/*
 * Makes the copy what the table is to the active snapshot (CONVERT-1), if all
 * rows have been copied or noted. Returns the number of notes.
 */
static uint64
refresh(Conversion *c, bool by_index)
{
	char	   *columns = columns_of(c->table);
	char	   *copy = name_of(c->copy);
	char	   *log = name_of(c->log);
	char	   *noted = psprintf("WHERE EXISTS (SELECT FROM ONLY %s log WHERE %s)", log,
								 same_key(c));

	(void) run(c, psprintf("DELETE FROM ONLY %s one %s", copy, noted), by_index);
	(void) run(c, psprintf("INSERT INTO %s (%s) SELECT %s FROM ONLY %s one %s", copy, columns,
						   columns, name_of(c->table), noted), by_index);
	return run(c, psprintf("DELETE FROM ONLY %s", log), false);
}

/*
 * Returns the statement that creates on the copy what the index is on the
 * table: the same expressions, as trees, but no constraint. UNIQUE of an
 * exclusion constraint (WITHOUT OVERLAPS) is not a property of its index.
 */
static IndexStmt *
index_statement(Conversion *c, Oid index)
{
	Relation	rel = index_open(index, AccessShareLock);
	Relation	table = table_open(c->table, NoLock);
	int			natts = RelationGetDescr(table)->natts;
	AttrMap    *same = make_attrmap(natts);
	IndexStmt  *stmt;

	for (int i = 0; i < natts; i++)
		same->attnums[i] = (AttrNumber) (i + 1);
	stmt = generateClonedIndexStmt(NULL, rel, same, NULL);
	stmt->idxname = psprintf("index_%u_%d", c->table, list_length(c->copies) + 1);
	stmt->unique = rel->rd_index->indisunique && !rel->rd_index->indisexclusion;
	stmt->primary = false;
	stmt->isconstraint = false;
	stmt->deferrable = false;
	stmt->initdeferred = false;
	stmt->excludeOpNames = NIL;
	zc_no_overlaps(stmt);
	index_close(rel, NoLock);
	table_close(table, NoLock);
	return stmt;
}

/* Builds an index of the copy, without a lock of the table. */
static void
build_index(Conversion *c, Oid index)
{
	IndexStmt  *stmt;
	Caller		caller;
	ObjectAddress created;

	begin_step(c);
	caller = become_owner(c);
	stmt = index_statement(c, index);
	leave_owner(&caller);
	MemoryContextSwitchTo(c->context);
	stmt = copyObject(stmt);
	commit(c);

	take_snapshot(c);
	LockRelationOid(c->copy, ShareLock);
	caller = become_owner(c);
	created = zc_define_index(c->copy, stmt);
	leave_owner(&caller);
	CommandCounterIncrement();
	MemoryContextSwitchTo(c->context);
	c->copies = lappend_oid(c->copies, created.objectId);
	c->copy_shape = shape_of(c->copy);
	commit(c);
}

/* ---- checks ---- */

/*
 * Raises the error that the table cannot be converted, or appends the sentences
 * to those why it cannot, if the caller wants all of them.
 */
static void
refuse(const Conversion *c, const char *table, const char *why, const char *hint)
{
	if (c->refusals != NULL)
		appendStringInfo(c->refusals, "%s%s%s%s", c->refusals->len > 0 ? " " : "", why,
						 hint ? " " : "", hint ? hint : "");
	else
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" cannot be converted online", table),
				 errdetail_internal("%s", why),
				 hint ? errhint("%s", hint) : 0));
}

/* Returns whether an expression or predicate of the index names a whole row. */
static bool
names_whole_row(Relation index)
{
	Bitmapset  *columns = NULL;

	pull_varattnos((Node *) RelationGetIndexExpressions(index), 1, &columns);
	pull_varattnos((Node *) RelationGetIndexPredicate(index), 1, &columns);
	return bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, columns);
}

/*
 * If the index can tell rows apart by columns that are never null, notes its
 * columns and the equality of each, unless another index has been noted.
 */
static void
take_key(Conversion *c, Relation rel, Relation index)
{
	Form_pg_index form = index->rd_index;
	List	   *keys = NIL;
	List	   *operators = NIL;

	if (c->keys != NIL || !form->indisunique || form->indisexclusion ||
		(index->rd_rel->relam != BTREE_AM_OID &&
		 index->rd_rel->relam != get_index_am_oid("zbtree", true)) ||
		RelationGetIndexExpressions(index) != NIL || RelationGetIndexPredicate(index) != NIL)
		return;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		AttrNumber	attnum = form->indkey.values[i];
		Form_pg_attribute column;
		Oid			operator;

		if (attnum <= 0)
			return;
		column = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
		if (!zc_never_null(RelationGetDescr(rel), attnum) || column->attgenerated == 'v')
			return;
		operator = get_opfamily_member(index->rd_opfamily[i], column->atttypid, column->atttypid,
									   BTEqualStrategyNumber);
		if (!OidIsValid(operator))
			operator = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i],
										   index->rd_opcintype[i], BTEqualStrategyNumber);
		if (!OidIsValid(operator))
			return;
		keys = lappend_int(keys, attnum);
		operators = lappend_oid(operators, operator);
	}
	c->keys = keys;
	c->operators = operators;
}

/*
 * Checks the indexes, and finds a key among them: the primary key, or else the
 * first that will do.
 */
static void
check_indexes(Conversion *c, Relation rel)
{
	Oid			zbtree = get_index_am_oid("zbtree", true);
	const char *table = RelationGetRelationName(rel);
	ListCell   *lc;

	c->indexes = RelationGetIndexList(rel);
	for (int primary = 1; primary >= 0; primary--)
	{
		foreach(lc, c->indexes)
		{
			Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

			if (index->rd_index->indisprimary != (primary == 1))
			{
				index_close(index, AccessShareLock);
				continue;
			}
			if (!index->rd_index->indisvalid || !index->rd_index->indisready ||
				!index->rd_index->indislive)
				refuse(c, table,
					   psprintf("Index \"%s\" is not valid.", RelationGetRelationName(index)),
					   "Drop or rebuild the index first.");
			if (index->rd_rel->relam == zbtree && c->method == HEAP_TABLE_AM_OID)
				refuse(c, table,
					   psprintf("Index \"%s\" is a zbtree index, which heap tables cannot have.",
								RelationGetRelationName(index)),
					   "First create a btree index in its place with CREATE INDEX CONCURRENTLY, "
					   "then drop it with DROP INDEX CONCURRENTLY.");
			if (names_whole_row(index))
				refuse(c, table,
					   psprintf("Index \"%s\" has an expression on the whole row.",
								RelationGetRelationName(index)),
					   "Drop the index first.");
			take_key(c, rel, index);
			index_close(index, AccessShareLock);
		}
	}
	if (c->keys == NIL)
		refuse(c, table, "It has no unique index on columns that are NOT NULL.",
			   "Add a primary key, or a NOT NULL column with a unique index.");
}

/*
 * Raises an error if the table is not the user's, or refuses it if it is of a
 * kind that is not converted online.
 */
static void
check_table(const Conversion *c)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(c->table));
	Form_pg_class form;
	const char *name;
	bool		partitioned;

	if (!HeapTupleIsValid(tuple))
		report_missing(c->table);
	form = (Form_pg_class) GETSTRUCT(tuple);
	name = NameStr(form->relname);
	partitioned = form->relkind == RELKIND_PARTITIONED_TABLE;
	if (!zc_owns_relation(c->table, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
	if (partitioned && !ZC_PARTITIONED_TABLE_HAS_METHOD)
		refuse(c, name, "It is a partitioned table.", "Convert its partitions.");
	else if ((form->relkind != RELKIND_RELATION && !partitioned) ||
			 IsSystemClass(c->table, form) || form->relisshared)
		refuse(c, name, "It is not an ordinary table.", NULL);
	else if (form->relpersistence != RELPERSISTENCE_PERMANENT)
		refuse(c, name, "It is a temporary or unlogged table.",
			   "Use ALTER TABLE ... SET ACCESS METHOD.");
	else if (OidIsValid(getExtensionOfObject(RelationRelationId, c->table)))
		refuse(c, name, "It belongs to an extension.", NULL);
	else if (form->relnamespace == zconvert_schema())
		refuse(c, name, "It is what an attempt to convert a table has left.", NULL);
	else if (!partitioned && form->relam != HEAP_TABLE_AM_OID &&
			 form->relam != get_table_am_oid("zheap", false))
		refuse(c, name, "Its access method is neither heap nor zheap.", NULL);
	ReleaseSysCache(tuple);
}

/*
 * Checks what has to be read from the table, which the caller has opened;
 * check_table has passed it.
 */
static void
check_contents(Conversion *c, Relation rel)
{
	Caller		caller;

	if (RelationIsUsedAsCatalogTable(rel))
		refuse(c, RelationGetRelationName(rel), "It has user_catalog_table set.", NULL);
	c->owner = rel->rd_rel->relowner;
	caller = become_owner(c);
	check_indexes(c, rel);
	leave_owner(&caller);
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
log_desc(const Conversion *c, Relation rel)
{
	TupleDesc	desc = CreateTemplateTupleDesc(list_length(c->keys));
	ListCell   *lc;

	foreach(lc, c->keys)
		TupleDescCopyEntry(desc, (AttrNumber) (foreach_current_index(lc) + 1),
						   RelationGetDescr(rel), (AttrNumber) lfirst_int(lc));
	return desc;
}

/*
 * Sets the tag of the lock by which a session shows that it works on the
 * attempt. It is a lock of the default method, so an error releases it.
 */
static void
set_attempt_tag(LOCKTAG *tag, Oid copy)
{
	SET_LOCKTAG_OBJECT(*tag, MyDatabaseId, RelationRelationId, copy, 1);
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
begin_conversion(Conversion *c)
{
	char		fires;
	TransactionId xmin;
	Relation	rel;
	LOCKTAG		tag;

	lock_patiently(c->table, ShareRowExclusiveLock, c->lock_wait);
	take_snapshot(c);
	MemoryContextSwitchTo(c->context);
	check_table(c);
	rel = table_open(c->table, NoLock);
	if (OidIsValid(made_by_attempt("copy", c->table)) ||
		OidIsValid(made_by_attempt("log", c->table)) ||
		OidIsValid(zconvert_find_trigger(c->table, &fires, &xmin)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("table \"%s\" is being converted, or an attempt has left something",
						RelationGetRelationName(rel)),
				 errhint("See zundo.conversions. If no session converts the table, call "
						 "zundo.convert_cleanup.")));
	check_contents(c, rel);
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
	c->copy_lock = lock_for_session(c->copy, ShareUpdateExclusiveLock);
	c->log_lock = lock_for_session(c->log, AccessShareLock);
	set_attempt_tag(&tag, c->copy);
	(void) LockAcquire(&tag, ExclusiveLock, true, false);
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
 * Returns false if a lock could not be had.
 */
static bool
try_exchange(Conversion *c)
{
	Relation	rel;
	Relation	copy;

	if (!try_lock(c->table, c->copy, AccessExclusiveLock, c->lock_wait))
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
	(void) refresh(c, true);
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
end_conversion(Conversion *c)
{
	LOCKTAG		tag;

	take_snapshot(c);
	LockRelationOid(c->copy, AccessExclusiveLock);
	LockRelationOid(c->log, AccessExclusiveLock);
	set_attempt_tag(&tag, c->copy);
	(void) LockRelease(&tag, ExclusiveLock, true);
	UnlockRelationIdForSession(&c->copy_lock, ShareUpdateExclusiveLock);
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
convert_partitioned(Conversion *c)
{
	AlterTableCmd *command = makeNode(AlterTableCmd);

	command->subtype = AT_SetAccessMethod;
	command->name = get_am_name(c->method);
	lock_patiently(c->table, AccessExclusiveLock, c->lock_wait);
	take_snapshot(c);
	check_table(c);
	AlterTableInternal(c->table, list_make1(command), false);
	PopActiveSnapshot();
	SPI_commit();
}

static void
convert(Conversion *c)
{
	ListCell   *lc;
	bool		partitioned;

	check_table(c);
	partitioned = get_rel_relkind(c->table) == RELKIND_PARTITIONED_TABLE;
	next_transaction();
	if (partitioned)
	{
		convert_partitioned(c);
		return;
	}
	begin_conversion(c);
	for (BlockNumber block = 0; block < c->nblocks; block += c->step)
	{
		begin_step(c);
		copy_blocks(c, block, (BlockNumber) Min((uint64) block + c->step, c->nblocks));
		commit(c);
		sleep_ms(c->pause);
		if (c->nblocks - block <= c->step)
			break;
	}

	/* unique indexes can be built only when the rows are those of a snapshot */
	begin_step(c);
	(void) refresh(c, false);
	commit(c);
	foreach(lc, c->indexes)
		build_index(c, lfirst_oid(lc));
	for (int attempts = 1;; attempts++)
	{
		uint64		notes;

		begin_step(c);
		notes = refresh(c, false);
		commit(c);
		if (attempts % 100 == 0)
			ereport(NOTICE,
					(errmsg("files of table \"%s\" could not be exchanged after %d attempts",
							get_rel_name(c->table), attempts),
					 errdetail("The last refresh has found " UINT64_FORMAT " notes.", notes)));
		if (notes > FEW_NOTES)
			continue;
		if (try_exchange(c))
			break;
		sleep_before_retry(attempts);
	}
	end_conversion(c);
}

/* ---- the procedures ---- */

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
	Conversion	c = {.table = PG_GETARG_OID(0)};

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
	convert(&c);
	SPI_finish();
	PG_RETURN_VOID();
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

	require_no_transaction(fcinfo, "zundo.convert_cleanup");
	if (lock_wait < 1 || lock_wait >= DeadlockTimeout)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock_wait must be positive and shorter than \"deadlock_timeout\"")));
	if (!zc_owns_relation(table, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(table));
	copy = made_by_attempt("copy", table);
	set_attempt_tag(&tag, copy);
	if (OidIsValid(copy) && LockAcquire(&tag, ExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("table \"%s\" is being converted by another session",
						get_rel_name(table)),
				 errhint("See zundo.conversions.")));
	if (OidIsValid(copy))
		lock_patiently(copy, AccessExclusiveLock, lock_wait);
	if (OidIsValid(zconvert_find_trigger(table, &fires, &xmin)))
		lock_patiently(table, AccessExclusiveLock, lock_wait);
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
	Conversion	c = {.table = PG_GETARG_OID(0),.refusals = makeStringInfo()};
	Relation	rel;

	c.method = target_method(NameStr(*PG_GETARG_NAME(1)));
	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(c.table)))
		PG_RETURN_NULL();
	if (!zc_owns_relation(c.table, GetUserId()))
		PG_RETURN_TEXT_P(cstring_to_text("It belongs to another role."));
	check_table(&c);
	rel = try_relation_open(c.table, AccessShareLock);
	if (rel == NULL)
		PG_RETURN_NULL();
	if (c.refusals->len == 0 && rel->rd_rel->relkind == RELKIND_RELATION)
		check_contents(&c, rel);
	relation_close(rel, AccessShareLock);
	if (c.refusals->len == 0)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(c.refusals->data));
}
