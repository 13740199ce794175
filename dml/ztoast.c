/*
 * dml/ztoast.c - large values, which go to the TOAST table. TOAST tables are
 * heap, written by the server's functions, which also log the chunks for
 * decoding if the row will be (DECODE-1). Called by dml/ without a buffer lock.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/toast_internals.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "dml/zdml_internal.h"
#include "tuple/ztts.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

/*
 * The size, as a zheap row, of the widest row that heap may be able to hold.
 * Each short value of a PLAIN column may take 3 bytes less on heap.
 */
#define HEAP_ROW_BYTES(natts) \
	(MaxHeapTupleSize - SizeofHeapTupleHeader + ZTUPLE_HEADER_SIZE + 3 * (natts))

bool
ztoast_needed(Relation rel, ZHeader new, Size len, ZHeader old)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_MATVIEW)
		return false;
	return ((new | old) & ZH_EXTERNAL) != 0 || len > TOAST_TUPLE_THRESHOLD;
}

/*
 * ztoast_keeps: See zdml_internal.h. The toaster deletes external values of
 * the old row that the new one does not have in the same column, stores those
 * that only the new one has, and shortens rows that exceed the table's target.
 * So it has nothing to do if both rows have the same external values and the
 * new row is short.
 */
bool
ztoast_keeps(Relation rel, ItemPointer tid, const char *old, Size oldlen, const char *new,
			 Size newlen)
{
	Size		target = RelationGetToastTupleTarget(rel, TOAST_TUPLE_TARGET);

	return newlen <= Min(target, TOAST_TUPLE_THRESHOLD) &&
		ztuple_same_external(RelationGetDescr(rel), old, oldlen, new, newlen,
							 RelationGetRelationName(rel), tid);
}

/*
 * Moves values of PLAIN columns out of line, largest first, until the row fits.
 * A row of heap may be 8160 bytes wide, one of zheap 8076: a row between these
 * sizes would otherwise be refused although heap holds it. Values of types that
 * are never toasted stay, since functions of these types may rely on that. Does
 * nothing without a TOAST table.
 */
static void
move_plain_out(Relation rel, Datum *values, const bool *isnull, ZcOptions options)
{
	TupleDesc	desc = RelationGetDescr(rel);

	if (!OidIsValid(rel->rd_rel->reltoastrelid))
		return;
	while (ztuple_size_any(desc, values, isnull) > ztuple_max_size())
	{
		int			best = -1;
		Size		best_size = TOAST_POINTER_SIZE;

		for (int i = 0; i < desc->natts; i++)
		{
			Form_pg_attribute att = TupleDescAttr(desc, i);
			Size		size;

			if (isnull[i] || att->attlen != -1 || VARATT_IS_EXTERNAL(DatumGetPointer(values[i])) ||
				get_typstorage(att->atttypid) == TYPSTORAGE_PLAIN)
				continue;
			size = VARSIZE_ANY(DatumGetPointer(values[i]));
			if (size > best_size)
			{
				best = i;
				best_size = size;
			}
		}
		if (best < 0)
			return;
		values[best] = toast_save_datum(rel, values[best], NULL, options);
	}
}

/*
 * ztoast_row: See zdml_internal.h. The server's toaster works on heap tuples,
 * so the row becomes one and is formed again from the result.
 */
char *
ztoast_row(Relation rel, TupleTableSlot *slot, ItemPointer otid, const char *oldrow, Size oldlen,
		   ZcOptions options, uint32 *len)
{
	TupleDesc	desc = RelationGetDescr(rel);
	HeapTuple	new = ExecCopySlotHeapTuple(slot);
	HeapTuple	old = NULL;
	HeapTuple	toasted;
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	char	   *row;

	if (oldrow != NULL)
		old = ztuple_to_heap(oldrow, oldlen, desc, RelationGetRelationName(rel), otid);
	/* DECODE-1: what is logged is decided for chunks and row alike */
	(void) GetCurrentTransactionId();
	toasted = heap_toast_insert_or_update(rel, new, old, options);
	heap_deform_tuple(toasted, desc, values, isnull);
	if (ztuple_size_any(desc, values, isnull) <= HEAP_ROW_BYTES(desc->natts))
		move_plain_out(rel, values, isnull, options);
	*len = ztuple_size(desc, values, isnull);
	row = palloc(*len + ZTUPLE_MAX_COUNT);
	ztuple_form(desc, values, isnull, row, *len);
	return row;
}

void
ztoast_delete(Relation rel, ItemPointer tid, const char *row, Size len, bool speculative)
{
	HeapTuple	old = ztuple_to_heap(row, len, RelationGetDescr(rel), RelationGetRelationName(rel),
									 tid);

	heap_toast_delete(rel, old, speculative);
	heap_freetuple(old);
}
