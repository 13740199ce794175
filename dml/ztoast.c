/*
 * dml/ztoast.c - large values. TOAST tables are heap: the core fills them.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_class.h"
#include "dml/zdml_internal.h"
#include "tuple/zslot.h"
#include "utils/rel.h"

bool
ztoast_needed(Relation rel, ZHeader new, Size len, ZHeader old)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_MATVIEW)
		return false;
	return ((new | old) & ZH_EXTERNAL) != 0 || len > TOAST_TUPLE_THRESHOLD;
}

char *
ztoast_row(Relation rel, TupleTableSlot *slot, ItemPointer otid, const char *oldrow, Size oldlen, int options,
		   uint32 *len)
{
	TupleDesc	desc = RelationGetDescr(rel);
	HeapTuple	new = ExecCopySlotHeapTuple(slot);
	HeapTuple	old = oldrow ? ztuple_to_heap(oldrow, oldlen, desc, RelationGetRelationName(rel), otid) : NULL;
	HeapTuple	toasted;
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	char	   *row;

	toasted = heap_toast_insert_or_update(rel, new, old, options);
	heap_deform_tuple(toasted, desc, values, isnull);
	*len = ztuple_size(desc, values, isnull);
	row = palloc(*len);
	ztuple_form(desc, values, isnull, row, *len);
	return row;
}

void
ztoast_delete(Relation rel, ItemPointer tid, const char *row, Size len, bool speculative)
{
	HeapTuple	old = ztuple_to_heap(row, len, RelationGetDescr(rel), RelationGetRelationName(rel), tid);

	heap_toast_delete(rel, old, speculative);
	heap_freetuple(old);
}
