/*
 * zbtree/returned.c - index-only scans of a zbtree index: returning the columns
 * of the version that the snapshot sees, not those of the entry (ZBTREE-14).
 *
 * Owns: the row that is returned in place of an entry, which belongs to the
 * state of the table's index fetch. No locks, no crash points.
 *
 *	ZBTREE-14	(returned) An index-only scan returns the columns of the
 *		version that its snapshot sees, not those of the entry:
 *		(a) If the executor visits the table, the fetch compares the other
 *			bytes of version and entry once it has found the keys equal. If
 *			they differ, it returns the version's values in xs_hitup, which the
 *			executor reads, like xs_itup, only after the fetch. Columns of
 *			expressions are taken from the entry (COMPUTED-1).
 *		(b) If it does not, because the page's bit in the visibility map is
 *			set, no row of the page has the flag (VMAP-1), and the index
 *			contains only entries with the bytes of the newest versions
 *			(ZBTREE-7). The scan may have read its entry before VACUUM removed
 *			the flag; ZBTREE-15 excludes that, by means of the pin that an
 *			index-only scan keeps on the leaf page until it leaves the page.
 *		(c) On a standby the second case could go wrong: replay deletes entries
 *			and splits pages without waiting for pins, so a scan could hold a
 *			stale entry and then find the bit set; there is no recovery
 *			conflict, because the scan's snapshot sees the row's present
 *			version. Therefore amcanreturn returns false during recovery.
 *		Example: the entry has 1.0, the version that the snapshot sees 1.00:
 *		the keys are equal, and the scan returns 1.00.
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
 * zbtree_canreturn: See zbtree_internal.h. The amcanreturn callback. Returns
 * false on a standby, where plans must not have index-only scans of zbtree
 * indexes: replay sets bits of the visibility map without waiting for scans
 * (ZBTREE-14).
 */
bool
zbtree_canreturn(Relation index, int attno)
{
	Assert(attno >= 1 && attno <= IndexRelationGetNumberOfAttributes(index));
	return !RecoveryInProgress();
}

/*
 * Returns whether the version in slot has the same bytes as the entry in all
 * plain columns of the index.
 */
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
 * Returns a palloc'd description of the rows that this fetch returns. Plain
 * columns have the types of the table's columns, from which their values come:
 * 15 reads the row by the plan's description, which has these types.
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
 * zbtree_return_version: See zbtree.h. Leaves the result to nbtree, which
 * returns the entry, if the version has the entry's bytes. Columns of
 * expressions are taken from the entry: they are the same for all versions of a
 * TID (COMPUTED-1).
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

/* zbtree_fetch_end: See zbtree.h. */
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
 * zbtree_has_content: See zbtree.h. Does not fetch values that are stored out
 * of line, because the caller may hold the entry's page locked. In a key column
 * such a value counts as equal, since it is the same for all versions of a TID
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
