/*
 * zbtree/keys.c - the keys that a row's versions have in an index: adding the
 * entry of a new one, and whether one is still needed (ZBTREE-6 to ZBTREE-8).
 *
 * Only plain columns are looked at, for an update in place changes no others
 * (ZBTREE-3). Locks: nbtree's, on pages of the index; zbtree_needed reads the
 * table's pages and undo through mvcc/ while its caller may hold a leaf page
 * locked. Crash points: "key-found".
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
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

/* What ZBTREE-3 asks for. */
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
 * Returns whether two values of key column i (from 0 on) are equal. Bytes are
 * compared first, since calling a comparison function takes longer.
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
 * Reads the index's columns of a row of the table: those of the key, or all.
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

/*
 * Returns whether the index has this entry. If so, reports to SSI that the row
 * comes under this key again, as an insertion would.
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

/* Forms the entry for a search by key: included columns are null. */
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
 * Notes the replaced key for the worker (ZBTREE-12). Called when the entry of
 * the new key is in the index, so neither is too long for one.
 */
static void
note_stale(Relation index, const ZKeyChange *change, Datum *oldvalues, bool *oldnull,
		   Datum *values, bool *isnull)
{
	IndexTuple	old = form_key(index, change->tid, oldvalues, oldnull);
	IndexTuple	new = form_key(index, change->tid, values, isnull);

	/*
	 * the old key may have been compressed otherwise when it was entered, and
	 * be too long for the queue now: it waits for VACUUM
	 */
	if (IndexTupleSize(old) <= ZQUEUE_CHUNK / 2 && IndexTupleSize(new) <= ZQUEUE_CHUNK / 2)
		zqueue_note(index, change->table, old, new);
	pfree(old);
	pfree(new);
}

/*
 * A key that is equal to the old one has an entry. If the row never had another
 * one, the new key cannot have one; otherwise the row may have had it before.
 * A process that deletes entries looks at the row while the leaf page is locked
 * (ZBTREE-8), and the row has the new key already: so an entry that is found
 * here stays.
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

/* Returns whether the version has the entry's key. */
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
	/* undo went while it was read: somebody may need the entry */
	return result != ZHISTORY_END;
}
