/*
 * monitor/index_check.c - zundo.check_index, which compares a zbtree index with
 * its table, and zundo.index_entries, which counts the index's entries.
 *
 * Called from SQL. May run beside any other activity, and on a standby. The
 * check has two passes. The first reads every row of the table and searches the
 * index, by a descent from the root, for the entry of each version that a
 * snapshot can need. The second reads the leaf pages from left to right. It
 * meets each entry that exists during the whole pass, because page splits move
 * entries to the right only.
 *
 * The second pass works on a copy of the leaf page, so an entry can seem wrong
 * because it has been deleted since. Such an entry is searched again and judged
 * with its leaf page locked. Then the result is reliable, because an entry is
 * always deleted before its line pointer becomes unused, and before its row
 * loses ZH_STALE_KEYS.
 *
 * Invariants tested here:
 *	INDEX-1	Each version of a row that a snapshot can need has its entry. A
 *			fault is reported with block and item of the table, all others with
 *			those of the index.
 *	INDEX-2	The line pointer that an entry names is in use.
 *	INDEX-3	The entries of the leaf level have one TID each (ZBTREE-2) and are
 *			in ascending order of key and TID, without duplicates, and none is
 *			above its page's high key.
 *	INDEX-4	A live row has ZH_STALE_KEYS if it has an entry whose key none of
 *			its versions has, or one with the key of the newest version whose
 *			plain columns do not have its bytes (ZBTREE-7).
 *	INDEX-6	An entry that is marked dead has the key of no version that a
 *			snapshot can need which is taken now. Older ones, to which the
 *			bound of the marks does not apply, may need it (MARK-1).
 *	INDEX-8	A snapshot sees no two rows with the same key in a unique index
 *			(ZBTREE-19). Not tested for a deferrable index, since our own
 *			transaction may have such rows.
 *	E	The check of the page raised an error, whose message is the detail.
 *
 * Locks: AccessShareLock on table and index; share locks of a leaf page, then
 * of a table page. No crash points.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/pg_authid.h"
#include "common/compat_commands.h"
#include "common/compat_nbtree.h"
#include "miscadmin.h"
#include "monitor/faults.h"
#include "monitor/index_judge.h"
#include "monitor/monitor.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "zbtree/zbtree.h"

PGDLLEXPORT Datum zundo_check_index(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_index_entries(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_check_index);
PG_FUNCTION_INFO_V1(zundo_index_entries);

typedef struct IndexCheck
{
	ZIndexJudge *judge;
	MemoryContext outer;		/* of the call */
	BlockNumber block;			/* of the table, then of the index */
	ZFaults		faults;			/* of one page */
	void		(*test) (struct IndexCheck *check); /* that check_safely runs */
	IndexTuple	last;			/* last entry of the leaf pages read so far;
								 * in outer */
	bool		equal;			/* it has the key of the entry before it, */
	bool		held;			/* and one of the entries with this key has a
								 * row with the key (INDEX-8) */
	BlockNumber next;			/* leaf page to the right, or P_NONE */
	int64		pages;			/* leaf pages read */
	int64		entries;
	int64		stale;
	int64		dead;			/* entries that are marked dead */
	PGAlignedBlock page;
} IndexCheck;

static void fault(IndexCheck *check, const char *invariant, OffsetNumber item,
				  const char *fmt,...) pg_attribute_printf(4, 5);

/* Notes a fault of the current block. */
static void
fault(IndexCheck *check, const char *invariant, OffsetNumber item, const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	zfaults_add(&check->faults, check->block, item, invariant, fmt, args);
	va_end(args);
}

/* ---- the table's rows ---- */

/*
 * Checks the rows of one block (INDEX-1). If the entry of a version seems to be
 * missing, copies the page again and checks the row once more: the version may
 * have become unnecessary, and its entry deleted, since the first copy.
 */
static void
check_rows(IndexCheck *check)
{
	Page		page = zjudge_load(check->judge, check->block);

	Assert(check->pages == 0 && check->last == NULL);	/* block is one of the
														 * table */
	for (OffsetNumber off = FirstOffsetNumber; page != NULL && off <= PageGetMaxOffsetNumber(page);
		 off++)
	{
		ZMissing	missing;

		CHECK_FOR_INTERRUPTS();
		if (!zjudge_row(check->judge, off).found)
			continue;
		page = zjudge_load(check->judge, check->block);
		if (page == NULL || off > PageGetMaxOffsetNumber(page))
			break;
		missing = zjudge_row(check->judge, off);
		if (missing.found)
			/* BUILD-5, ZBTREE-6, ZBTREE-8 */
			fault(check, "INDEX-1", off, missing.newest ? "the row has no entry in the index"
				  : "an older version of the row, which a snapshot can need, has no entry in the "
				  "index");
	}
}

/* ---- the leaf pages ---- */

/*
 * Compares two index tuples in the order of the index, and returns a number
 * below, equal to or above 0. Key columns are compared first, then TIDs. A
 * tuple that lacks a key column or the TID, as high keys may, comes before one
 * that has it.
 */
static int
compare_tuples(Relation index, IndexTuple a, IndexTuple b)
{
	TupleDesc	desc = RelationGetDescr(index);
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	int			na = Min(BTreeTupleGetNAtts(a, index), nkeys);
	int			nb = Min(BTreeTupleGetNAtts(b, index), nkeys);
	ItemPointer tida = BTreeTupleGetHeapTID(a);
	ItemPointer tidb = BTreeTupleGetHeapTID(b);

	for (int i = 0; i < Min(na, nb); i++)
	{
		bool		anull,
					bnull;
		Datum		avalue = index_getattr(a, i + 1, desc, &anull);
		Datum		bvalue = index_getattr(b, i + 1, desc, &bnull);
		int			result;

		if (anull || bnull)
		{
			if (anull == bnull)
				continue;
			result = (anull == ((index->rd_indoption[i] & INDOPTION_NULLS_FIRST) != 0)) ? -1 : 1;
			return result;
		}
		result = DatumGetInt32(FunctionCall2Coll(index_getprocinfo(index, i + 1, BTORDER_PROC),
												 index->rd_indcollation[i], avalue, bvalue));
		if (result != 0)
			return ((index->rd_indoption[i] & INDOPTION_DESC) != 0) == (result > 0) ? -1 : 1;
	}
	if (na != nb)
		return na < nb ? -1 : 1;
	if (tida == NULL || tidb == NULL)
		return (tida != NULL) - (tidb != NULL);
	return ItemPointerCompare(tida, tidb);
}

/*
 * Checks an entry's form and its place in the order (INDEX-3).
 * Returns false if the form is wrong; then the entry cannot be judged.
 */
static bool
check_order(IndexCheck *check, OffsetNumber off, IndexTuple entry, IndexTuple before,
			IndexTuple high_key)
{
	int			result;

	if (BTreeTupleIsPivot(entry) || BTreeTupleIsPosting(entry))
	{
		/* ZBTREE-2 */
		fault(check, "INDEX-3", off, "the entry does not hold exactly one TID");
		return false;
	}
	if (before != NULL && (result = compare_tuples(check->judge->index, before, entry)) >= 0)
	{
		if (result == 0)
			fault(check, "INDEX-3", off, "the entry of (%u,%u) is there twice",
				  ItemPointerGetBlockNumberNoCheck(&entry->t_tid),
				  ItemPointerGetOffsetNumberNoCheck(&entry->t_tid));
		else
			fault(check, "INDEX-3", off, "the entry is out of order");
	}
	if (high_key != NULL && compare_tuples(check->judge->index, entry, high_key) > 0)
		fault(check, "INDEX-3", off, "the entry is beyond the high key of its page");
	return true;
}

/*
 * Searches an entry again and judges it with its leaf page locked. Sets *dead
 * to whether it is marked dead. Returns ZENTRY_STALE if the entry does not
 * exist any more.
 */
static ZEntryState
judge_locked(ZIndexJudge *judge, IndexTuple entry, bool *dead)
{
	OffsetNumber off;
	Buffer		buf = zjudge_find(judge, entry, &off);
	ItemId		lp;
	ZEntryState state;

	*dead = false;
	if (!BufferIsValid(buf))
		return ZENTRY_STALE;
	Assert(zc_buffer_locked(buf));
	lp = PageGetItemId(BufferGetPage(buf), off);
	*dead = ItemIdIsDead(lp);
	judge->loaded = InvalidBlockNumber;
	/* VACUUM may have replaced it since it was copied (ZBTREE-15) */
	state = zjudge_entry(judge, (IndexTuple) PageGetItem(BufferGetPage(buf), lp));
	_bt_relbuf(judge->index, buf);
	return state;
}

/*
 * Returns whether the entry is marked as dead and a new snapshot needs it. The
 * snapshot is taken while the leaf page is locked, so the marks on the page
 * were made with no bound above its xmin (MARK-3), or for versions whose author
 * it sees (MARK-1d).
 */
static bool
is_marked_wrongly(ZIndexJudge *judge, IndexTuple entry)
{
	bool		dead;
	ZEntryState state;

	judge->young = true;
	state = judge_locked(judge, entry, &dead);
	judge->young = false;
	judge->loaded = InvalidBlockNumber;
	return dead && state == ZENTRY_NEEDED;
}

/* Judges one entry (INDEX-2, INDEX-4, INDEX-6) and counts it. */
static void
check_entry(IndexCheck *check, OffsetNumber off, IndexTuple entry, bool dead)
{
	ZEntryState state = zjudge_entry(check->judge, entry);
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(&entry->t_tid);
	OffsetNumber item = ItemPointerGetOffsetNumberNoCheck(&entry->t_tid);

	Assert(!BTreeTupleIsPivot(entry) && !BTreeTupleIsPosting(entry));	/* INDEX-3 */
	if (state != ZENTRY_NEEDED && state != ZENTRY_STALE)
		state = judge_locked(check->judge, entry, &dead);
	check->entries++;
	check->stale += (state != ZENTRY_NEEDED && state != ZENTRY_DIFFERENT);
	check->dead += dead;
	if (state == ZENTRY_NO_ROW)
		fault(check, "INDEX-2", off, "the entry names (%u,%u), where no row is", block, item);
	else if (state == ZENTRY_UNTOLD)
		/* ZBTREE-7 */
		fault(check, "INDEX-4", off, "no version of row (%u,%u) has the key of the entry, and the "
			  "row is not marked as one with stale entries", block, item);
	else if (state == ZENTRY_DIFFERENT)
		/* ZBTREE-7, ZBTREE-14 */
		fault(check, "INDEX-4", off, "the entry of (%u,%u) has the row's key, but not its bytes, "
			  "and the row is not marked as one with stale entries", block, item);
	else if (state == ZENTRY_NEEDED && dead && is_marked_wrongly(check->judge, entry))
		/* MARK-1 */
		fault(check, "INDEX-6", off, "the entry of (%u,%u) is marked as dead, but a new snapshot "
			  "needs it", block, item);
}

/*
 * Returns whether a unique index allows one row only for two entries: their
 * keys are equal, and have no null, unless nulls count as equal.
 */
static bool
same_unique_key(Relation index, IndexTuple a, IndexTuple b)
{
	Datum		avalues[INDEX_MAX_KEYS];
	Datum		bvalues[INDEX_MAX_KEYS];
	bool		anull[INDEX_MAX_KEYS];
	bool		bnull[INDEX_MAX_KEYS];

	index_deform_tuple(a, RelationGetDescr(index), avalues, anull);
	index_deform_tuple(b, RelationGetDescr(index), bvalues, bnull);
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		if (anull[i] && !index->rd_index->indnullsnotdistinct)
			return false;
	return zbtree_same_key(index, avalues, anull, bvalues, bnull);
}

/*
 * Returns whether the row of the entry, as judge->latest sees it, has its key.
 */
static bool
has_row_with_key(ZIndexJudge *judge, IndexTuple entry)
{
	bool		found = table_tuple_fetch_row_version(judge->table, &entry->t_tid, judge->latest,
													  judge->slot) &&
	zbtree_counts(judge->index, entry, judge->slot);

	ExecClearTuple(judge->slot);
	return found;
}

/*
 * Checks that of the entries with one key only one has a row with that key
 * (INDEX-8). before is the entry to the left.
 */
static void
check_unique(IndexCheck *check, OffsetNumber off, IndexTuple entry, IndexTuple before)
{
	ZIndexJudge *judge = check->judge;
	bool		equal = before != NULL && same_unique_key(judge->index, before, entry);

	if (equal)
	{
		bool		held = check->equal ? check->held : has_row_with_key(judge, before);
		bool		holds = has_row_with_key(judge, entry);

		if (held && holds)
			fault(check, "INDEX-8", off, "row (%u,%u) has the same key as another one",
				  ItemPointerGetBlockNumberNoCheck(&entry->t_tid),
				  ItemPointerGetOffsetNumberNoCheck(&entry->t_tid));
		check->held = held || holds;
	}
	check->equal = equal;
}

/*
 * Copies the leaf page check->block and sets check->next to its right sibling.
 * Returns false if the page has no entries because it is being deleted. Raises
 * ERRCODE_INDEX_CORRUPTED if the page is no leaf page, or if more leaf pages
 * have been read than the index has blocks.
 */
static bool
copy_leaf(IndexCheck *check)
{
	Relation	index = check->judge->index;
	BTPageOpaque opaque;
	Buffer		buf;

	Assert(check->block != P_NONE);
	if (check->pages++ > (int64) RelationGetNumberOfBlocks(index))
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("leaf pages of index \"%s\" form a circle",
						RelationGetRelationName(index))));
	buf = _bt_getbuf(index, check->block, BT_READ);
	memcpy(check->page.data, BufferGetPage(buf), BLCKSZ);
	_bt_relbuf(index, buf);
	opaque = BTPageGetOpaque((Page) check->page.data);
	check->next = opaque->btpo_next;
	if (!P_ISLEAF(opaque) && !P_IGNORE(opaque))
		ereport(ERROR,
				(errcode(ERRCODE_INDEX_CORRUPTED),
				 errmsg("block %u of index \"%s\" is not a leaf page", check->block,
						RelationGetRelationName(index))));
	return !P_IGNORE(opaque);
}

/*
 * Checks all entries of the leaf page check->block. Keeps a copy of its last
 * entry, with which the first entry of the next page is compared.
 */
static void
check_leaf(IndexCheck *check)
{
	Page		page = (Page) check->page.data;
	BTPageOpaque opaque;
	IndexTuple	before = check->last;
	IndexTuple	high_key = NULL;
	MemoryContext old;

	Assert(CurrentMemoryContext == check->faults.context);
	if (!copy_leaf(check))
		return;
	opaque = BTPageGetOpaque(page);
	check->judge->loaded = InvalidBlockNumber;
	if (!P_RIGHTMOST(opaque))
		high_key = (IndexTuple) PageGetItem(page, PageGetItemId(page, P_HIKEY));
	for (OffsetNumber off = P_FIRSTDATAKEY(opaque); off <= PageGetMaxOffsetNumber(page); off++)
	{
		ItemId		lp = PageGetItemId(page, off);
		IndexTuple	entry = (IndexTuple) PageGetItem(page, lp);

		CHECK_FOR_INTERRUPTS();
		if (check_order(check, off, entry, before, high_key))
		{
			check_entry(check, off, entry, ItemIdIsDead(lp));
			if (check->judge->index->rd_index->indisunique &&
				check->judge->index->rd_index->indimmediate)
				check_unique(check, off, entry, before);
			before = entry;
		}
	}
	old = MemoryContextSwitchTo(check->outer);
	if (before != check->last)
	{
		if (check->last != NULL)
			pfree(check->last);
		check->last = CopyIndexTuple(before);
	}
	MemoryContextSwitchTo(old);
}

/*
 * Sets check->next to the leftmost leaf page, or to P_NONE for an empty index.
 */
static void
find_first_leaf(IndexCheck *check)
{
	Buffer		buf = zc_bt_leftmost(check->judge->index);

	check->next = P_NONE;
	if (!BufferIsValid(buf))
		return;
	check->next = BufferGetBlockNumber(buf);
	_bt_relbuf(check->judge->index, buf);
}

/* ---- the functions ---- */

/* Calls check->test, for the function that runs it in a subtransaction. */
static void
run_test(void *arg)
{
	IndexCheck *check = arg;

	check->test(check);
}

/*
 * Runs 'test' in a subtransaction. An error that it raises is noted as fault E,
 * except for a cancellation and lack of memory, which are raised again. Returns
 * false after an error.
 */
static bool
check_safely(IndexCheck *check, void (*test) (IndexCheck *))
{
	char	   *error;

	check->test = test;
	error = zfaults_try(&check->faults, run_test, check);
	if (error != NULL)
		fault(check, "E", 0, "%s", error);
	return error == NULL;
}

/*
 * Checks the leaf pages from left to right. Stops after an error, because the
 * right sibling may not be known then.
 */
static void
check_leaves(FunctionCallInfo fcinfo, IndexCheck *check)
{
	bool		sound = check_safely(check, find_first_leaf);

	while (sound && check->next != P_NONE)
	{
		CHECK_FOR_INTERRUPTS();
		check->block = check->next;
		sound = check_safely(check, check_leaf);
		zfaults_put(fcinfo, &check->faults);
	}
	zfaults_put(fcinfo, &check->faults);
}

/*
 * Raises ERRCODE_INSUFFICIENT_PRIVILEGE unless the user owns the index or has
 * the privileges of pg_stat_scan_tables.
 */
static void
require_owner(Oid indexoid)
{
	char	   *name = get_rel_name(indexoid);

	if (!has_privs_of_role(GetUserId(), ROLE_PG_STAT_SCAN_TABLES) && name != NULL &&
		!zc_owns_relation(indexoid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_INDEX, name);
}

/*
 * Opens index and table and returns a palloc'd check of them. Raises the errors
 * of zjudge_open.
 */
static IndexCheck *
check_begin(Oid indexoid)
{
	IndexCheck *check = palloc0(sizeof(IndexCheck));

	check->judge = zjudge_open(indexoid);
	check->outer = CurrentMemoryContext;
	zfaults_begin(&check->faults, "zundo index check");
	return check;
}

/* zundo.check_index(regclass): returns one row per fault. */
Datum
zundo_check_index(PG_FUNCTION_ARGS)
{
	IndexCheck *check;
	BlockNumber nblocks;

	require_owner(PG_GETARG_OID(0));
	InitMaterializedSRF(fcinfo, 0);
	check = check_begin(PG_GETARG_OID(0));
	nblocks = zrel_nblocks(check->judge->table);
	for (check->block = 0; check->block < nblocks; check->block++)
	{
		CHECK_FOR_INTERRUPTS();
		(void) check_safely(check, check_rows);
		zfaults_put(fcinfo, &check->faults);
	}
	check_leaves(fcinfo, check);
	zjudge_close(check->judge);
	return (Datum) 0;
}

/*
 * zundo.index_entries(regclass): returns one row: how many leaf pages and
 * entries the index has, how many of the entries have the key of no version
 * that still exists, and how many are marked dead. Does not report faults.
 */
Datum
zundo_index_entries(PG_FUNCTION_ARGS)
{
	IndexCheck *check;
	Datum		values[4];
	bool		nulls[4] = {0};

	require_owner(PG_GETARG_OID(0));
	InitMaterializedSRF(fcinfo, 0);
	check = check_begin(PG_GETARG_OID(0));
	MemoryContextSwitchTo(check->faults.context);
	find_first_leaf(check);
	while (check->next != P_NONE)
	{
		CHECK_FOR_INTERRUPTS();
		check->block = check->next;
		check_leaf(check);
		zfaults_forget(&check->faults);
	}
	MemoryContextSwitchTo(check->outer);
	values[0] = Int64GetDatum(check->pages);
	values[1] = Int64GetDatum(check->entries);
	values[2] = Int64GetDatum(check->stale);
	values[3] = Int64GetDatum(check->dead);
	zmon_put(fcinfo, values, nulls);
	zjudge_close(check->judge);
	return (Datum) 0;
}
