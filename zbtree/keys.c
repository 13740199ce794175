/*
 * zbtree/keys.c - adding the entry of a row's new key to an index, and finding
 * out whether an entry is still needed (ZBTREE-6 to ZBTREE-8).
 *
 * Only plain columns are compared: an update that changes a column of an
 * expression does not get here (ZBTREE-3). Locks: nbtree's, on
 * pages of the index; zbtree_needed reads undo through mvcc/ while its caller
 * may hold a leaf page locked. Crash points: "key-found".
 */
#include "postgres.h"

#include "access/genam.h"
#include "common/compat_nbtree.h"
#include "common/fault.h"
#include "common/zundo.h"
#include "storage/predicate.h"
#include "tuple/ztts.h"
#include "tuple/ztuple.h"
#include "utils/datum.h"
#include "utils/rel.h"
#include "zbtree/predicate.h"
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

	if (!zbtree_is(index) || !form->indisvalid || form->indisexclusion ||
		(form->indisunique && !form->indimmediate))
		return false;
	for (int i = 0; i < form->indnatts; i++)
		if (form->indkey.values[i] <= 0)
			return false;
	return !zpredicate_exists(index) || zpredicate_is_simple(index);
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

int
zbtree_compare_keys(Relation index, const Datum *a, const bool *anull, const Datum *b,
					const bool *bnull)
{
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);

	for (int i = 0; i < nkeys; i++)
	{
		int			difference = (int) anull[i] - (int) bnull[i];

		if (!anull[i] && !bnull[i])
		{
			FmgrInfo   *compare = index_getprocinfo(index, i + 1, BTORDER_PROC);

			difference = DatumGetInt32(FunctionCall2Coll(compare, index->rd_indcollation[i], a[i],
														 b[i]));
		}
		if (difference != 0)
			return difference;
	}
	return 0;
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
 * Returns whether the index contains an entry with this key and TID. If it
 * does, the row has this key again: checks for a serialization conflict with
 * readers of the leaf page, as an insertion would, and removes the mark if the
 * entry is marked as dead. Locks the leaf page exclusively, so that no process
 * can mark the entry after this that examined the row before it was changed
 * (MARK-1).
 */
static bool
has_entry(Relation index, Relation table, IndexTuple entry)
{
	BTScanInsert key = _bt_mkscankey(index, entry);
	Buffer		buf = zbtree_lock_leaf(index, table, key, INT_MAX);
	bool		found = false;

	if (BufferIsValid(buf))
	{
		OffsetNumber off = zbtree_find_entry(index, BufferGetPage(buf), key);

		found = OffsetNumberIsValid(off);
		if (found)
			CheckForSerializableConflictIn(index, NULL, BufferGetBlockNumber(buf));
		if (found && ItemIdIsDead(PageGetItemId(BufferGetPage(buf), off)))
			zbtree_clear_marks(index, buf, &off, 1);
		_bt_relbuf(index, buf);
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

/* The key of a row in an index, before or after an update. */
typedef struct RowKey
{
	bool		entered;		/* the row satisfies the index's predicate */
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
} RowKey;

/*
 * Notes the old and the new key for the queue (queue.c), as far as they have
 * entries. The index contains that of the new key already, so nbtree has
 * checked that it is not too long.
 */
static void
note_stale(Relation index, const ZKeyChange *change, RowKey *oldkey, RowKey *newkey)
{
	IndexTuple	old = NULL;
	IndexTuple	new = NULL;

	if (oldkey->entered)
		old = form_key(index, change->tid, oldkey->values, oldkey->isnull);
	if (newkey->entered)
		new = form_key(index, change->tid, newkey->values, newkey->isnull);

	/*
	 * The old key can be longer than it is in the index, where it may be
	 * compressed in another way. If it is too long for the queue, its entry
	 * stays until VACUUM deletes it.
	 */
	if ((old == NULL || IndexTupleSize(old) <= ZQUEUE_CHUNK / 2) &&
		(new == NULL || IndexTupleSize(new) <= ZQUEUE_CHUNK / 2))
		zkeyqueue_note(index, change->table, old, new);
	if (old != NULL)
		pfree(old);
	if (new != NULL)
		pfree(new);
}

/*
 * Returns whether no other row may have this key in the index.
 */
static bool
must_be_unique(Relation index, const RowKey *key)
{
	if (!index->rd_index->indisunique)
		return false;
	if (index->rd_index->indnullsnotdistinct)
		return true;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		if (key->isnull[i])
			return false;
	return true;
}

/*
 * Makes sure that the index has an entry with the key of the updated row.
 * Returns whether there was one. In a unique index no other row may have the
 * key; if the entry was there, another row may have got the key since our row
 * lost it, so nbtree is asked to check without inserting (ZBTREE-20). No page
 * may be locked. Raises errors of nbtree and of comparison functions.
 */
static bool
enter_key(Relation index, const ZKeyChange *change, RowKey *key)
{
	bool		found = false;
	bool		unique = must_be_unique(index, key);

	Assert(key->entered);
	if (change->stale)
	{
		IndexTuple	entry = index_form_tuple(RelationGetDescr(index), key->values, key->isnull);

		entry->t_tid = *change->tid;
		found = has_entry(index, change->table, entry);
		pfree(entry);
		if (found)
			ZUNDO_FAULT("key-found");
	}
	if (!found || unique)
		(void) index_insert(index, key->values, key->isnull, change->tid, change->table,
							!unique ? UNIQUE_CHECK_NO : found ? UNIQUE_CHECK_EXISTING
							: UNIQUE_CHECK_YES, true, NULL);
	return found;
}

/*
 * zbtree_add_key: See zbtree.h. A row without ZH_STALE_KEYS has entries of its
 * old key only (ZBTREE-7), so the new key is inserted without a search. Other
 * rows may have had the new key before, and the index may still contain its
 * entry. An entry that the search finds will not be deleted: a process that
 * deletes entries reads the row while it holds the leaf page locked (ZBTREE-8),
 * and the row has the new key already.
 */
int
zbtree_add_key(Relation index, const ZKeyChange *change)
{
	int			natts = IndexRelationGetNumberOfAttributes(index);
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);
	ZPredicate *predicate = zpredicate_get(index);
	RowKey		old;
	RowKey		new;
	int			stale;

	Assert(zbtree_is(index) && !ztid_is_newer(change->tid));	/* GUARD-4 */
	old.entered = zpredicate_holds_in(predicate, change->table, change->old, change->oldlen);
	new.entered = zpredicate_holds_in(predicate, change->table, change->new, change->newlen);
	if (!old.entered && !new.entered)
		return 0;
	read_columns(index, change->table, change->new, change->newlen, natts, new.values, new.isnull);
	read_columns(index, change->table, change->old, change->oldlen, nkeys, old.values, old.isnull);
	if (old.entered && new.entered &&
		zbtree_same_key(index, new.values, new.isnull, old.values, old.isnull))
		return 0;
	stale = old.entered ? 1 : 0;
	if (new.entered && enter_key(index, change, &new))
		stale--;
	note_stale(index, change, &old, &new);
	return stale;
}

/*
 * Returns whether the version has the entry's key. Compares the same columns as
 * zbtree_counts. The caller tests the predicate.
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
	Relation	table = zhistory_table(history);
	ZHistoryVersion version;
	ZHistoryResult result;
	ZPredicate *predicate;

	Assert(zbtree_is(index));
	if (!zpredicate_find(index, &predicate))
		return true;
	for (result = zhistory_first(history, off, &version); result == ZHISTORY_VERSION;
		 result = zhistory_next(history, &version))
	{
		if (--*budget < 0)
			return true;
		if (version.live && has_key(index, table, entry, &version) &&
			zpredicate_holds_in(predicate, table, version.row, version.len))
			return true;
	}

	/*
	 * If the history could not be read to its end because undo was discarded
	 * meanwhile, the entry may be needed.
	 */
	return result != ZHISTORY_END;
}
