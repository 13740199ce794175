/*
 * dml/ztoast.c - large values: which are compressed, and which go to the TOAST
 * table. Called by dml/ without a buffer lock.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/toast_helper.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "dml/zdml_internal.h"
#include "tuple/ztts.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
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
		values[best] = zchunk_store(rel, values[best], NULL, options);
	}
}

/*
 * Makes the row fit its target with the values that heap compresses and moves
 * out of line, in four rounds: those of storage EXTENDED are compressed, or
 * moved at once if they are too long alone; EXTENDED and EXTERNAL moved; MAIN
 * compressed; MAIN moved if the row would not fit on a page.
 */
static void
shorten(ToastTupleContext *toaster, ZcOptions options)
{
	Relation	rel = toaster->ttc_rel;
	TupleDesc	desc = RelationGetDescr(rel);
	bool		can_move = OidIsValid(rel->rd_rel->reltoastrelid);
	Size		header = SizeofHeapTupleHeader;

	if (toaster->ttc_flags & TOAST_HAS_NULLS)
		header += BITMAPLEN(desc->natts);
	for (int round = 1; round <= 4; round++)
	{
		bool		compress = round == 1 || round == 3;
		bool		storage_main = round >= 3;
		Size		target = round == 4 ? TOAST_TUPLE_TARGET_MAIN :
		RelationGetToastTupleTarget(rel, TOAST_TUPLE_TARGET);

		target -= MAXALIGN(header);
		while ((compress || can_move) &&
			   heap_compute_data_size(desc, toaster->ttc_values, toaster->ttc_isnull) > target)
		{
			int			i = toast_tuple_find_biggest_attribute(toaster, compress, storage_main);
			ToastAttrInfo *attr;

			if (i < 0)
				break;
			attr = &toaster->ttc_attr[i];
			if (compress && TupleDescAttr(desc, i)->attstorage == TYPSTORAGE_EXTERNAL)
				attr->tai_colflags |= TOASTCOL_INCOMPRESSIBLE;
			else if (compress)
				toast_tuple_try_compression(toaster, i);
			if (!compress || (round == 1 && can_move && attr->tai_size > target))
			{
				attr->tai_colflags |= TOASTCOL_IGNORE;
				toaster->ttc_values[i] = zchunk_store(rel, toaster->ttc_values[i],
													  attr->tai_oldexternal, options);
			}
		}
	}
}

/*
 * ztoast_row: See zdml_internal.h. Of the server's toaster the functions are
 * used that work on values: the row becomes no heap tuple. Values may be read,
 * compressed and copied, so all but the result is in a context of its own.
 */
char *
ztoast_row(Relation rel, const char *row, Size rowlen, ItemPointer otid, const char *oldrow,
		   Size oldlen, ZcOptions options, uint32 *len)
{
	TupleDesc	desc = RelationGetDescr(rel);
	const char *relname = RelationGetRelationName(rel);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zheap large values",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	ToastTupleContext toaster = {rel, values, isnull};
	char	   *result;

	ztuple_deform(row, rowlen, desc, values, isnull, relname, NULL);
	if (oldrow != NULL)
	{
		toaster.ttc_oldvalues = palloc(desc->natts * sizeof(Datum));
		toaster.ttc_oldisnull = palloc(desc->natts * sizeof(bool));
		ztuple_deform(oldrow, oldlen, desc, toaster.ttc_oldvalues, toaster.ttc_oldisnull, relname,
					  otid);
	}
	/* DECODE-1: what is logged is decided for chunks and row alike */
	(void) GetCurrentTransactionId();
	toaster.ttc_attr = palloc(desc->natts * sizeof(ToastAttrInfo));
	toast_tuple_init(&toaster);
	shorten(&toaster, options);
	if (ztuple_size_any(desc, values, isnull) <= HEAP_ROW_BYTES(desc->natts))
		move_plain_out(rel, values, isnull, options);
	*len = ztuple_size(desc, values, isnull);
	result = MemoryContextAlloc(caller, *len + ZTUPLE_MAX_COUNT);
	ztuple_form(desc, values, isnull, result, *len);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(context);
	return result;
}

/*
 * Deforms the row and replaces each value that is not in a TOAST table by a
 * null pointer. Returns the values, palloc'd.
 */
static struct varlena **
pointers_of(Relation rel, ItemPointer tid, const char *row, Size len)
{
	TupleDesc	desc = RelationGetDescr(rel);
	struct varlena **pointers = palloc(desc->natts * sizeof(struct varlena *));
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));

	(void) ztuple_deform(row, len, desc, values, isnull, RelationGetRelationName(rel), tid);
	for (int i = 0; i < desc->natts; i++)
	{
		pointers[i] = NULL;
		if (!isnull[i] && TupleDescAttr(desc, i)->attlen == -1 &&
			VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(values[i])))
			pointers[i] = (struct varlena *) DatumGetPointer(values[i]);
	}
	return pointers;
}

/* ztoast_delete: See zdml_internal.h. Compares the values column by column. */
void
ztoast_delete(Relation rel, ItemPointer tid, const char *row, Size len, const char *kept,
			  Size keptlen)
{
	int			natts = RelationGetDescr(rel)->natts;
	struct varlena **gone = pointers_of(rel, tid, row, len);
	struct varlena **keep = kept != NULL ? pointers_of(rel, tid, kept, keptlen) : NULL;

	for (int i = 0; i < natts; i++)
		if (gone[i] != NULL &&
			(keep == NULL || keep[i] == NULL || memcmp(gone[i], keep[i], TOAST_POINTER_SIZE) != 0))
			zchunk_delete(PointerGetDatum(gone[i]));
}
