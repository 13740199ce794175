/*
 * convert/copy.c - the commands that fill the copy, and that build its
 * indexes. All run as the owner of the table.
 *
 * Locks: the callers hold those of the tables; AccessShareLock on indexes.
 * Crash points: none.
 */
#include "postgres.h"

#include "access/attmap.h"
#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "common/compat_commands.h"
#include "convert/convert_internal.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "parser/parse_utilcmd.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/queryenvironment.h"
#include "utils/ruleutils.h"
#include "utils/snapmgr.h"
#include "utils/tuplestore.h"

/* zconvert_set_local: See convert_internal.h. */
void
zconvert_set_local(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
							 false);
}

/*
 * zconvert_become_owner: See convert_internal.h. Sets what the meaning of
 * expressions depends on.
 */
ZConvertCaller
zconvert_become_owner(const ZConversion *c)
{
	ZConvertCaller caller;

	GetUserIdAndSecContext(&caller.user, &caller.context);
	SetUserIdAndSecContext(c->owner, caller.context | SECURITY_RESTRICTED_OPERATION |
						   SECURITY_NOFORCE_RLS);
	caller.level = NewGUCNestLevel();
	zconvert_set_local("search_path", "pg_catalog, pg_temp");
	zconvert_set_local("default_tablespace", "");
	zconvert_set_local("enable_tidscan", "on");
	return caller;
}

/* zconvert_leave_owner: See convert_internal.h. */
void
zconvert_leave_owner(const ZConvertCaller *caller)
{
	AtEOXact_GUC(false, caller->level);
	SetUserIdAndSecContext(caller->user, caller->context);
}

/*
 * Executes the command as the owner, with the active snapshot.
 */
static void
run(const ZConversion *c, const char *command, bool by_index)
{
	static const char *const methods[] = {
		"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "enable_material"
	};
	MemoryContext context = CurrentMemoryContext;
	ZConvertCaller caller = zconvert_become_owner(c);
	SPIPlanPtr	plan;
	int			result;

	for (int i = 0; by_index && i < lengthof(methods); i++)
		zconvert_set_local(methods[i], "off");
	plan = SPI_prepare(command, 0, NULL);
	if (plan == NULL)
		elog(ERROR, "could not prepare \"%s\"", command);
	result = SPI_execute_snapshot(plan, NULL, NULL, GetActiveSnapshot(), InvalidSnapshot, false,
								  true, 0);
	SPI_freeplan(plan);
	if (result < 0)
		elog(ERROR, "\"%s\" failed: %s", command, SPI_result_code_string(result));
	zconvert_leave_owner(&caller);
	MemoryContextSwitchTo(context);
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

/* Returns the condition that rows of "one" and "notes" have the same key. */
static char *
same_key(const ZConversion *c)
{
	StringInfoData text;
	ListCell   *lc1;
	ListCell   *lc2;
	ListCell   *lc3;

	initStringInfo(&text);
	forthree(lc1, c->keys, lc2, c->operators, lc3, c->collations)
	{
		const char *column = quote_identifier(get_attname(c->table, (AttrNumber) lfirst_int(lc1),
														  false));
		Oid			type = get_atttype(c->table, (AttrNumber) lfirst_int(lc1));
		Oid			collation = lfirst_oid(lc3);
		char	   *note = psprintf("notes.%s", column);

		if (text.len > 0)
			appendStringInfoString(&text, " AND ");
		if (OidIsValid(collation))
			note = psprintf("(%s COLLATE %s)", note, generate_collation_name(collation));
		generate_operator_clause(&text, psprintf("one.%s", column), type, lfirst_oid(lc2), note,
								 type);
	}
	return text.data;
}

/* zconvert_copy_blocks: See convert_internal.h. */
void
zconvert_copy_blocks(ZConversion *c, BlockNumber first, BlockNumber end)
{
	char	   *columns = columns_of(c->table);

	run(c, psprintf("INSERT INTO %s (%s) SELECT %s FROM ONLY %s "
					"WHERE ctid >= '(%u,0)'::tid AND ctid < '(%u,0)'::tid",
					name_of(c->copy), columns, columns, name_of(c->table), first, end),
		false);
}

/*
 * Lets the commands read the notes that the active snapshot sees, but at most
 * 'most', as table "notes". The log also has those that former refreshes have
 * dealt with, so it is read only once. Returns the number of notes.
 */
static uint64
begin_notes(ZConversion *c, int64 most)
{
	Relation	log = table_open(c->log, NoLock);
	TupleTableSlot *slot = table_slot_create(log, NULL);
	TableScanDesc scan = zc_beginscan(log, GetActiveSnapshot());
	Tuplestorestate *notes = tuplestore_begin_heap(false, false, work_mem);
	EphemeralNamedRelation relation = palloc0(sizeof(EphemeralNamedRelationData));
	MemoryContext context;

	while (tuplestore_tuple_count(notes) < most &&
		   table_scan_getnextslot(scan, ForwardScanDirection, slot))
		tuplestore_puttupleslot(notes, slot);
	relation->md.name = pstrdup("notes");
	relation->md.tupdesc = CreateTupleDescCopy(RelationGetDescr(log));
	relation->md.enrtype = ENR_NAMED_TUPLESTORE;
	relation->md.enrtuples = (double) tuplestore_tuple_count(notes);
	relation->reldata = notes;
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	table_close(log, NoLock);

	/* SPI keeps its list of such tables to the end of the procedure */
	context = MemoryContextSwitchTo(c->context);
	if (SPI_register_relation(relation) != SPI_OK_REL_REGISTER)
		elog(ERROR, "SPI_register_relation failed");
	MemoryContextSwitchTo(context);
	c->notes = notes;
	return (uint64) tuplestore_tuple_count(notes);
}

static void
end_notes(ZConversion *c)
{
	(void) SPI_unregister_relation("notes");
	tuplestore_end(c->notes);
	c->notes = NULL;
}

/* zconvert_refresh: See convert_internal.h. */
uint64
zconvert_refresh(ZConversion *c, bool last)
{
	/* with the search path for which names are written */
	ZConvertCaller caller = zconvert_become_owner(c);
	char	   *columns = columns_of(c->table);
	char	   *copy = name_of(c->copy);
	char	   *noted = psprintf("WHERE EXISTS (SELECT FROM notes WHERE %s)", same_key(c));
	uint64		count = begin_notes(c, last ? c->many + 1 : PG_INT64_MAX);

	zconvert_leave_owner(&caller);
	if (count > 0 && (!last || count <= (uint64) c->many))
	{
		run(c, psprintf("DELETE FROM ONLY %s one %s", copy, noted), last);
		run(c, psprintf("INSERT INTO %s (%s) SELECT %s FROM ONLY %s one %s", copy, columns,
						columns, name_of(c->table), noted), last);
		if (!last)
			run(c, psprintf("DELETE FROM ONLY %s", name_of(c->log)), false);
	}
	end_notes(c);
	return count;
}

/* zconvert_index_statement: See convert_internal.h. */
IndexStmt *
zconvert_index_statement(ZConversion *c, Oid index)
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
