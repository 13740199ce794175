/*
 * zbtree/keys.c - adding the entry of a row's new key to an index, and finding
 * out whether an entry is still needed (ZBTREE-6 to ZBTREE-8).
 *
 * Only plain columns are compared: an update that changes a column of an
 * expression or predicate does not get here (ZBTREE-3). Locks: nbtree's, on
 * pages of the index; zbtree_needed reads undo through mvcc/ while its caller
 * may hold a leaf page locked. Crash points: "key-found".
 */
#include "postgres.h"

#include "access/genam.h"
#include "common/compat_nbtree.h"
#include "common/fault.h"
#include "common/zundo.h"
#include "storage/predicate.h"
#include "tuple/ztuple.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "zbtree/queue.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

bool
zbtree_is(Relation index)
{
	return index->rd_indam->amrescan == zbtree_rescan;
}

/*
 * zbtree_keys_stay: See zbtree.h. Tests the conditions of ZBTREE-3 that concern
 * the index; dml/ tests those that concern the row.
 */
bool
zbtree_keys_stay(Relation index)
{
	Form_pg_index form = index->rd_index;

	if (!zbtree_is(index) || !form->indisvalid || form->indisexclusion || form->indisunique)
		return false;
	for (int i = 0; i < form->indnatts; i++)
		if (form->indkey.values[i] <= 0)
			return false;
	return heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

/*
 * Returns whether two values of key column i (from 0 on) are equal. Compares
 * bytes first, which is faster than calling a comparison function.
 */
static bool
same_value(Relation index, int i, Datum a, bool anull, Datum b, bool bnull)
{
	ZcAttr		att = zc_attr(RelationGetDescr(index), i);

	if (anull || bnull)
		return anull && bnull;
	if (datumIsEqual(a, b, att->attbyval, att->attlen))
		return true;
	return DatumGetInt32(FunctionCall2Coll(index_getprocinfo(index, i + 1, BTORDER_PROC),
										   index->rd_indcollation[i], a, b)) == 0;
}

bool
zbtree_same_key(Relation index, const Datum *a, const bool *anull, const Datum *b,
				const bool *bnull)
{
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);

	for (int i = 0; i < nkeys; i++)
		if (!same_value(index, i, a[i], anull[i], b[i], bnull[i]))
			return false;
	return true;
}

/*
 * Reads the values of the first n columns of the index from a row of the table.
 * All of them are plain columns.
 */
static void
read_columns(Relation index, Relation table, const char *row, Size len, int n, Datum *values,
			 bool *isnull)
{
	for (int i = 0; i < n; i++)
	{
		Assert(index->rd_index->indkey.values[i] > 0);
		values[i] = ztuple_getattr(row, len, RelationGetDescr(table),
								   index->rd_index->indkey.values[i], &isnull[i],
								   RelationGetRelationName(table), NULL);
	}
}

/* zbtree_read_columns: See zbtree.h. */
void
zbtree_read_columns(Relation index, Relation table, const char *row, Size len, Datum *values,
					bool *isnull)
{
	for (int i = 0; i < IndexRelationGetNumberOfAttributes(index); i++)
	{
		AttrNumber	attno = index->rd_index->indkey.values[i];

		isnull[i] = true;
		if (attno > 0)
			values[i] = ztuple_getattr(row, len, RelationGetDescr(table), attno, &isnull[i],
									   RelationGetRelationName(table), NULL);
	}
}

/*
 * Returns whether the index contains an entry with this key and TID. If so,
 * checks for a serialization conflict with readers of the leaf page, as an
 * insertion would: the row has this key again. Raises ERRCODE_INDEX_CORRUPTED
 * if the entry is marked dead.
 */
static bool
has_entry(Relation index, Relation table, IndexTuple entry)
{
	BTInsertStateData search = {0};
	BTScanInsert key = _bt_mkscankey(index, entry);
	bool		found = false;

	zc_bt_search(index, table, key, &search.buf, BT_READ);
	if (BufferIsValid(search.buf))
	{
		Page		page = BufferGetPage(search.buf);
		OffsetNumber off;

		search.itup = entry;
		search.itemsz = MAXALIGN(IndexTupleSize(entry));
		search.itup_key = key;
		off = _bt_binsrch_insert(index, &search);
		found = off <= PageGetMaxOffsetNumber(page) && _bt_compare(index, key, page, off) == 0;
		if (found && ItemIdIsDead(PageGetItemId(page, off)))
			ereport(ERROR,
					(errcode(ERRCODE_INDEX_CORRUPTED),
					 errmsg("entry %u in block %u of index \"%s\" is marked dead, but its row "
							"is not", off, BufferGetBlockNumber(search.buf),
							RelationGetRelationName(index)),
					 errhint("Rebuild the index with REINDEX.")));
		if (found)
			CheckForSerializableConflictIn(index, NULL, BufferGetBlockNumber(search.buf));
		_bt_relbuf(index, search.buf);
	}
	pfree(key);
	return found;
}

/*
 * Returns an index tuple for a search by key and TID. Sets the included columns
 * to null, also in isnull.
 */
static IndexTuple
form_key(Relation index, ItemPointer tid, Datum *values, bool *isnull)
{
	IndexTuple	entry;

	for (int i = IndexRelationGetNumberOfKeyAttributes(index);
		 i < IndexRelationGetNumberOfAttributes(index); i++)
		isnull[i] = true;
	entry = index_form_tuple(RelationGetDescr(index), values, isnull);
	entry->t_tid = *tid;
	return entry;
}

/*
 * Notes the old and the new key for the queue (ZBTREE-12). The index contains
 * an entry of the new key already, so nbtree has checked that it is not too
 * long.
 */
static void
note_stale(Relation index, const ZKeyChange *change, Datum *oldvalues, bool *oldnull,
		   Datum *values, bool *isnull)
{
	IndexTuple	old = form_key(index, change->tid, oldvalues, oldnull);
	IndexTuple	new = form_key(index, change->tid, values, isnull);

	/*
	 * The old key can be longer than it is in the index, where it may be
	 * compressed in another way. If it is too long for the queue, its entry
	 * stays until VACUUM deletes it.
	 */
	if (IndexTupleSize(old) <= ZQUEUE_CHUNK / 2 && IndexTupleSize(new) <= ZQUEUE_CHUNK / 2)
		zqueue_note(index, change->table, old, new);
	pfree(old);
	pfree(new);
}

/*
 * zbtree_add_key: See zbtree.h. A row without ZH_STALE_KEYS has entries of its
 * old key only (ZBTREE-7), so the new key is inserted without a search. Other
 * rows may have had the new key before, and the index may still contain its
 * entry. An entry that the search finds will not be deleted: a process that
 * deletes entries reads the row while it holds the leaf page locked (ZBTREE-8),
 * and the row has the new key already.
 */
void
zbtree_add_key(Relation index, const ZKeyChange *change)
{
	int			natts = IndexRelationGetNumberOfAttributes(index);
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	Datum		oldvalues[INDEX_MAX_KEYS];
	bool		oldnull[INDEX_MAX_KEYS];
	bool		found = false;

	Assert(zbtree_is(index));
	read_columns(index, change->table, change->new, change->newlen, natts, values, isnull);
	read_columns(index, change->table, change->old, change->oldlen, nkeys, oldvalues, oldnull);
	if (zbtree_same_key(index, values, isnull, oldvalues, oldnull))
		return;
	if (change->stale)
	{
		IndexTuple	entry = index_form_tuple(RelationGetDescr(index), values, isnull);

		entry->t_tid = *change->tid;
		found = has_entry(index, change->table, entry);
		pfree(entry);
		if (found)
			ZUNDO_FAULT("key-found");
	}
	if (!found)
		(void) index_insert(index, values, isnull, change->tid, change->table, UNIQUE_CHECK_NO,
							true, NULL);
	note_stale(index, change, oldvalues, oldnull, values, isnull);
}

/*
 * Returns whether the version has the entry's key. Compares the same columns as
 * zbtree_counts.
 */
static bool
has_key(Relation index, Relation table, IndexTuple entry, const ZHistoryVersion *version)
{
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	TupleDesc	desc = RelationGetDescr(index);

	for (int i = 0; i < nkeys; i++)
	{
		AttrNumber	attno = index->rd_index->indkey.values[i];
		Datum		has,
					expected;
		bool		has_null,
					expected_null;

		if (attno <= 0)
			continue;
		has = ztuple_getattr(version->row, version->len, RelationGetDescr(table), attno,
							 &has_null, RelationGetRelationName(table), NULL);
		if (!has_null && zc_attr(desc, i)->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(has)))
			continue;
		expected = index_getattr(entry, i + 1, desc, &expected_null);
		if (!same_value(index, i, has, has_null, expected, expected_null))
			return false;
	}
	return true;
}

/* zbtree_needed: See zbtree.h. */
bool
zbtree_needed(Relation index, IndexTuple entry, ZHistory *history, OffsetNumber off, int *budget)
{
	ZHistoryVersion version;
	ZHistoryResult result;

	Assert(zbtree_is(index));
	for (result = zhistory_first(history, off, &version); result == ZHISTORY_VERSION;
		 result = zhistory_next(history, &version))
	{
		if (--*budget < 0)
			return true;
		if (version.live && has_key(index, zhistory_table(history), entry, &version))
			return true;
	}

	/*
	 * If the history could not be read to its end because undo was discarded
	 * meanwhile, the entry may be needed.
	 */
	return result != ZHISTORY_END;
}
