/*
 * zbtree/returned.c - what an index-only scan of a zbtree index returns: the
 * columns of the version that counts, not those of the entry (ZBTREE-14).
 *
 * Owns: the row that is returned in place of an entry, which belongs to the
 * table's index fetch. No locks, no crash points.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "common/compat.h"
#include "common/zundo.h"
#include "utils/datum.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

/*
 * Callback of the index AM. On a standby no column is returned, so plans have
 * no index-only scans there: nothing holds the replay of the visibility map
 * back while a scan stands on a leaf page (ZBTREE-14).
 */
bool
zbtree_canreturn(Relation index, int attno)
{
	Assert(attno >= 1 && attno <= IndexRelationGetNumberOfAttributes(index));
	return !RecoveryInProgress();
}

/* Returns whether the slot has the bytes of the entry in all plain columns. */
static bool
same_bytes(Relation index, IndexTuple entry, TupleTableSlot *slot)
{
	TupleDesc	desc = RelationGetDescr(index);

	for (int i = 0; i < desc->natts; i++)
	{
		AttrNumber	attno = index->rd_index->indkey.values[i];
		ZcAttr		att = zc_attr(desc, i);
		Datum		a,
					b;
		bool		anull,
					bnull;

		if (attno == InvalidAttrNumber)
			continue;
		a = index_getattr(entry, i + 1, desc, &anull);
		b = slot_getattr(slot, attno, &bnull);
		if (anull != bnull || (!anull && !datumIsEqual(a, b, att->attbyval, att->attlen)))
			return false;
	}
	return true;
}

/*
 * Returns the description of the rows that this fetch returns. Plain columns
 * are as in the table, where their values come from: 15 reads the row by the
 * plan's description, which has the table's types.
 */
static TupleDesc
returned_desc(ZExpectingFetch *fetch)
{
	TupleDesc	from_index = RelationGetDescr(fetch->index);
	TupleDesc	from_table = RelationGetDescr(fetch->base.rel);
	TupleDesc	desc = CreateTemplateTupleDesc(from_index->natts);

	for (int i = 0; i < from_index->natts; i++)
	{
		AttrNumber	attno = fetch->index->rd_index->indkey.values[i];

		Assert(attno >= 0);
		if (attno > 0)
			TupleDescCopyEntry(desc, i + 1, from_table, attno);
		else
			TupleDescCopyEntry(desc, i + 1, from_index, i + 1);
	}
	zc_desc_complete(desc);
	return desc;
}

/*
 * The entry's bytes are returned if they are the version's. Columns of
 * expressions are the same for all versions of a TID (COMPUTED-1), and are
 * always the entry's.
 */
void
zbtree_return_version(ZExpectingFetch *fetch, TupleTableSlot *slot)
{
	TupleDesc	from_index = RelationGetDescr(fetch->index);
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	MemoryContext caller;

	Assert(fetch->returning != NULL && fetch->entry != NULL);	/* ZBTREE-14 */
	if (same_bytes(fetch->index, fetch->entry, slot))
		return;
	for (int i = 0; i < from_index->natts; i++)
	{
		AttrNumber	attno = fetch->index->rd_index->indkey.values[i];

		values[i] = attno > 0 ? slot_getattr(slot, attno, &isnull[i]) :
			index_getattr(fetch->entry, i + 1, from_index, &isnull[i]);
	}
	caller = MemoryContextSwitchTo(GetMemoryChunkContext(fetch));
	if (fetch->returned_desc == NULL)
		fetch->returned_desc = returned_desc(fetch);
	if (fetch->returned != NULL)
		heap_freetuple(fetch->returned);
	fetch->returned = heap_form_tuple(fetch->returned_desc, values, isnull);
	MemoryContextSwitchTo(caller);
	fetch->returning->xs_hitup = fetch->returned;
	fetch->returning->xs_hitupdesc = fetch->returned_desc;
}

void
zbtree_fetch_end(ZExpectingFetch *fetch)
{
	if (fetch->returned != NULL)
		heap_freetuple(fetch->returned);
	if (fetch->returned_desc != NULL)
		FreeTupleDesc(fetch->returned_desc);
	fetch->returned = NULL;
	fetch->returned_desc = NULL;
}

/*
 * Values that are stored out of line are not read, for the entry's page may be
 * locked. In key columns they are the same for all versions of a TID
 * (ZBTREE-3). Compressed values are decompressed.
 */
bool
zbtree_has_content(Relation index, IndexTuple entry, const Datum *values, const bool *isnull)
{
	TupleDesc	desc = RelationGetDescr(index);
	int			nkeys = IndexRelationGetNumberOfKeyAttributes(index);

	for (int i = 0; i < desc->natts; i++)
	{
		ZcAttr		att = zc_attr(desc, i);
		Datum		has;
		bool		has_null;

		if (index->rd_index->indkey.values[i] == InvalidAttrNumber)
			continue;
		has = index_getattr(entry, i + 1, desc, &has_null);
		if (has_null != isnull[i])
			return false;
		if (has_null || datumIsEqual(has, values[i], att->attbyval, att->attlen))
			continue;
		if (att->attlen != -1)
			return false;
		if (!VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
		{
			if (!datum_image_eq(has, values[i], att->attbyval, att->attlen))
				return false;
		}
		else if (i >= nkeys)
			return false;
	}
	return true;
}
