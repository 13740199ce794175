/*
 * tuple/ztts.c - the TupleTableSlot operations of zheap tables.
 *
 * Owns ZHeapSlot. The executor calls the operations; scans and DML call the
 * functions declared in ztts.h. Uses only the slot's memory: no locks, no
 * buffers, no crash points.
 *
 * A slot that is not empty holds either a row (row != NULL) of borrowed or own
 * bytes, or virtual contents (row == NULL, all of tts_values set).
 *
 * Invariants:
 *	TOKEN-1	In a query xmin shows the token of the version: a function of its
 *		stored bytes behind the header (ztuple_token). They are rebuilt byte
 *		for byte wherever an older version is read, so every reader of the
 *		version sees the same token.
 *	TOKEN-2	A slot shows the token of what was stored of its contents, also if
 *		it has the columns in another form: not toasted, or as an old row with
 *		fewer columns (ztts_stored).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "tuple/zlayout.h"
#include "tuple/ztts.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

/* A cleared slot keeps up to this much memory for its next row. */
#define KEEP_BYTES	(64 * 1024)

void		(*ztts_lookup_author_hook) (ZHeapSlot *slot) = NULL;
TransactionId (*ztts_author_xid_hook) (ZHeapSlot *slot, bool names_author) = NULL;

/* Resets what the slot knows of the version's author. */
static inline void
forget_author(ZHeapSlot *z)
{
	z->author_known = false;
	z->xmin = InvalidZXid;
	z->cmin = InvalidCommandId;
	z->token = InvalidTransactionId;
	z->author = InvalidUndoPtr;
	z->xmax = InvalidZXid;
	z->chain_xid = InvalidZXid;
	z->chain = InvalidUndoPtr;
	z->relnumber = InvalidRelFileNumber;
}

/* Makes the slot show these bytes. No value outlives the bytes before. */
static inline void
set_row(ZHeapSlot *z, const char *row, uint32 len)
{
	z->row = row;
	z->len = len;
	z->token = InvalidTransactionId;
	z->base.tts_nvalid = 0;
	z->base.tts_flags &= ~TTS_FLAG_EMPTY;
}

/* Copies row to the slot's own memory, which row may point into. */
static void
own_copy(ZHeapSlot *z, const char *row, uint32 len)
{
	if (len > z->own_size || z->own == NULL)
	{
		Size		size = Max(len, 128);
		char	   *bytes = MemoryContextAlloc(z->base.tts_mcxt, size);

		memcpy(bytes, row, len);
		if (z->own)
			pfree(z->own);
		z->own = bytes;
		z->own_size = size;
	}
	else
		memmove(z->own, row, len);
	z->own_formed = false;
	set_row(z, z->own, len);
}

/* Returns the row of these values, of any size, in mcxt. */
static char *
form_bytes(TupleDesc desc, Datum *values, const bool *isnull, MemoryContext mcxt, uint32 *len)
{
	Datum	   *flat = values;
	Size		size = ztuple_size_shared(desc, &flat, isnull);
	char	   *bytes = MemoryContextAlloc(mcxt, size);

	ztuple_form(desc, flat, isnull, bytes, size);
	if (flat != values)
		pfree(flat);
	*len = (uint32) size;
	return bytes;
}

/*
 * Forms the row of these values, which may point into the slot's own memory,
 * and makes it the slot's own row.
 */
static void
own_form(ZHeapSlot *z, Datum *values, const bool *isnull)
{
	uint32		len;
	char	   *bytes = form_bytes(z->base.tts_tupleDescriptor, values, isnull,
								   z->base.tts_mcxt, &len);

	if (z->own)
		pfree(z->own);
	z->own = bytes;
	z->own_size = len;
	z->own_formed = true;
	set_row(z, bytes, len);
}

/*
 * Does the same with values of another slot. Since they do not point into this
 * slot's memory, that is reused if it is large enough.
 */
static void
own_form_of_other(ZHeapSlot *z, Datum *values, const bool *isnull)
{
	TupleDesc	desc = z->base.tts_tupleDescriptor;
	Datum	   *flat = values;
	Size		size = ztuple_size_shared(desc, &flat, isnull);

	if (size > z->own_size || z->own == NULL)
	{
		Size		room = Max(size, 128);
		char	   *bytes = MemoryContextAlloc(z->base.tts_mcxt, room);

		if (z->own)
			pfree(z->own);
		z->own = bytes;
		z->own_size = room;
	}
	ztuple_form(desc, flat, isnull, z->own, size);
	if (flat != values)
		pfree(flat);
	z->own_formed = true;
	set_row(z, z->own, size);
}

/*
 * Returns scratch memory for the slot's present row. It is replaced only before
 * the row's first column that needs it is deformed (TUPLE-4).
 */
static pg_noinline char *
get_scratch(ZHeapSlot *z)
{
	Size		need;

	Assert(z->row != NULL);
	if (unlikely(z->scratch_extra < 0))
		z->scratch_extra = (int32) zdeform_scratch_size(z->base.tts_tupleDescriptor, 0);
	need = (Size) z->len + z->scratch_extra;
	if (need > z->scratch_size)
	{
		char	   *scratch;

		Assert(z->deform.scratch == NULL);	/* TUPLE-4 */
		need = Max(need + need / 4, 256);
		scratch = MemoryContextAllocHuge(z->base.tts_mcxt, need);
		if (z->scratch)
			pfree(z->scratch);
		z->scratch = scratch;
		z->scratch_size = (uint32) need;
	}
	return z->scratch;
}

/* Frees own bytes and scratch that are larger than keep. */
static void
release_memory(ZHeapSlot *z, Size keep)
{
	if (z->own && z->own_size > keep)
	{
		pfree(z->own);
		z->own = NULL;
		z->own_size = 0;
	}
	if (z->scratch && z->scratch_size > keep)
	{
		pfree(z->scratch);
		z->scratch = NULL;
		z->scratch_size = 0;
	}
}

/* ---- slot operations; see executor/tuptable.h for what each has to do ---- */

/* Sets up an empty slot. */
static void
ztts_init(TupleTableSlot *slot)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	z->row = NULL;
	z->len = 0;
	z->own = NULL;
	z->own_size = 0;
	z->own_formed = false;
	z->scratch = NULL;
	z->scratch_size = 0;
	z->scratch_extra = -1;
	z->nprefix = -2;
	forget_author(z);
}

/* Frees all memory of the slot. */
static void
ztts_release(TupleTableSlot *slot)
{
	release_memory((ZHeapSlot *) slot, 0);
}

/*
 * Empties the slot. Memory of up to KEEP_BYTES is kept for the next row. Every
 * scan begins with an empty slot, and clears it.
 */
static void
ztts_clear(TupleTableSlot *slot)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	ItemPointerSetInvalid(&slot->tts_tid);
	if (TTS_EMPTY(slot))
	{
		Assert(z->row == NULL && slot->tts_nvalid == 0 && !z->author_known);
		return;
	}
	release_memory(z, KEEP_BYTES);
	if (!TTS_FIXED(slot))
	{
		/* the slot may get another descriptor now */
		z->scratch_extra = -1;
		z->nprefix = -2;
	}
	z->row = NULL;
	z->len = 0;
	forget_author(z);
	slot->tts_nvalid = 0;
	slot->tts_flags |= TTS_FLAG_EMPTY;
}

/*
 * Finds how many leading columns have a fixed length and are passed by value,
 * and where each of them ends; not for the first row, since many slots get but
 * one.
 */
static pg_noinline void
plan_prefix(ZHeapSlot *z)
{
	TupleDesc	desc = z->base.tts_tupleDescriptor;
	int			end = 0;
	int			n = 0;

	if (z->nprefix == -2)
	{
		z->nprefix = -1;
		return;
	}

	while (n < Min(desc->natts, ZTTS_PREFIX))
	{
		ZcAttr		att = zc_attr(desc, n);

		if (!att->attbyval || att->attlen <= 0)
			break;
		end += att->attlen;
		z->prefix_end[n++] = (uint8) end;
	}
	z->nprefix = (int8) n;
}

/*
 * Deforms the first natts columns, from the first one that is not valid yet.
 * All of them belong to the prefix, and none is null. Returns false if the row
 * is too short for them, which the general path reports.
 */
static inline bool
deform_prefix(ZHeapSlot *z, int natts)
{
	int			first = z->base.tts_nvalid;
	const char *columns = z->row + ZTUPLE_HEADER_SIZE;
	int			at = first > 0 ? z->prefix_end[first - 1] : 0;
	Datum	   *values = z->base.tts_values;
	bool	   *isnull = z->base.tts_isnull;

	Assert(natts > first && natts <= z->nprefix);
	if (unlikely(z->len < (uint32) ZTUPLE_HEADER_SIZE + z->prefix_end[natts - 1]))
		return false;
	for (int i = first; i < natts; i++)
	{
		values[i] = zdeform_byval(columns + at, z->prefix_end[i] - at);
		isnull[i] = false;
		at = z->prefix_end[i];
	}
	z->deform.row = z->row;
	z->deform.len = z->len;
	z->deform.off = ZTUPLE_HEADER_SIZE + at;
	z->deform.next = natts;
	z->deform.scratch = NULL;
	z->deform.scratch_used = 0;
	z->base.tts_nvalid = natts;
	return true;
}

/*
 * Raises ERRCODE_DATA_CORRUPTED for column attno of the slot's row, or for its
 * header if attno is 0.
 */
static void slot_corrupted(TupleTableSlot *slot, int attno) zc_noreturn pg_attribute_cold;

static void
slot_corrupted(TupleTableSlot *slot, int attno)
{
	ztuple_corrupted(OidIsValid(slot->tts_tableOid) ? get_rel_name(slot->tts_tableOid) : NULL,
					 &slot->tts_tid, attno);
}

/*
 * Deforms the first natts columns of the row, from the first one that is not
 * valid yet. Columns that the row does not have are filled with their missing
 * values. Raises ERRCODE_DATA_CORRUPTED if the row's bytes do not make sense.
 */
static void
ztts_getsomeattrs(TupleTableSlot *slot, int natts)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;
	ZHeader		header;
	int			present;
	int			bad;

	Assert(!TTS_EMPTY(slot));
	if (unlikely(z->row == NULL))
		elog(ERROR, "column %d requested of a virtual tuple with %d columns",
			 natts, slot->tts_nvalid);

	Assert(slot->tts_nvalid == 0 || z->deform.row == z->row);
	header = zheader_get(z->row);
	present = Min(natts, ZH_NATTS(header));
	if (unlikely(z->nprefix < 0) && slot->tts_nvalid == 0)
		plan_prefix(z);
	if (present > slot->tts_nvalid && present <= z->nprefix && !(header & ZH_NULLS) &&
		deform_prefix(z, present))
	{
		zc_slot_fill_missing(slot, present, natts);
		return;
	}
	if (slot->tts_nvalid == 0)
	{
		if (unlikely(!zdeform_start(&z->deform, z->row, z->len, NULL)))
			slot_corrupted(slot, 0);
	}

	if (present > slot->tts_nvalid)
	{
		while ((bad = zdeform_columns(&z->deform, slot->tts_tupleDescriptor, present,
									  slot->tts_values, slot->tts_isnull)) == ZDEFORM_NEEDS_SCRATCH)
			z->deform.scratch = get_scratch(z);
		/* TUPLE-4 */
		Assert(z->deform.scratch == NULL || z->deform.scratch == z->scratch);
		Assert(z->deform.scratch_used <= z->scratch_size);
		if (unlikely(bad != 0))
			slot_corrupted(slot, bad);
		slot->tts_nvalid = present;
	}
	zc_slot_fill_missing(slot, present, natts);
}

/*
 * Finds xmin and cmin if they are not known yet. Returns false if the slot
 * holds virtual contents that no transaction has written.
 */
static bool
find_author(ZHeapSlot *z)
{
	if (z->author_known)
		return true;
	if (z->row == NULL)
		return false;
	if (z->chain != InvalidUndoPtr && ztts_lookup_author_hook != NULL)
		ztts_lookup_author_hook(z);
	z->author_known = true;
	return true;
}

/* Returns whether the known author of the version is our transaction. */
static bool
is_our_own(const ZHeapSlot *z)
{
	Assert(z->author_known);
	return z->xmin != InvalidZXid &&
		TransactionIdIsCurrentTransactionId(zxid_to_xid(z->xmin));
}

/* Returns the token of the slot's contents (TOKEN-1, TOKEN-2). */
static TransactionId
token_of(ZHeapSlot *z)
{
	TransactionId token;
	uint32		len;
	char	   *formed;

	if (TransactionIdIsNormal(z->token))
		return z->token;
	if (z->row != NULL)
		token = ztuple_token(z->row, z->len);
	else
	{
		formed = form_bytes(z->base.tts_tupleDescriptor, z->base.tts_values, z->base.tts_isnull,
							CurrentMemoryContext, &len);
		token = ztuple_token(formed, len);
		pfree(formed);
	}
	if (z->token == InvalidTransactionId)
		z->token = token;
	return token;
}

/*
 * Returns the value of the system column xmin: the token, or an id of the
 * version's author where one is asked for (TOKEN-3, TOKEN-4).
 */
static TransactionId
shown_xmin(ZHeapSlot *z, bool names_author)
{
	TransactionId xid = InvalidTransactionId;

	if (ztts_author_xid_hook != NULL)
		xid = ztts_author_xid_hook(z, names_author || z->token == ZTTS_NAMES_AUTHOR);
	return TransactionIdIsValid(xid) ? xid : token_of(z);
}

/*
 * Returns tableoid and ctid of any contents; xmin, cmin, cmax and xmax of those
 * that have been stored, and raises ERRCODE_FEATURE_NOT_SUPPORTED for others.
 * For cmin and cmax looks up the author. cmax is InvalidCommandId unless our
 * own transaction has written the version: by that zundo.xmin_or_own tells
 * whether it has.
 */
static Datum
ztts_getsysattr(TupleTableSlot *slot, int attnum, bool *isnull)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	Assert(!TTS_EMPTY(slot));

	*isnull = false;
	if (attnum == TableOidAttributeNumber)
		return ObjectIdGetDatum(slot->tts_tableOid);
	if (attnum == SelfItemPointerAttributeNumber)
		return PointerGetDatum(&slot->tts_tid);

	if (attnum == MinTransactionIdAttributeNumber && (z->row != NULL || z->author_known))
		return TransactionIdGetDatum(shown_xmin(z, false));
	if (!find_author(z))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot retrieve a system column in this context")));

	switch (attnum)
	{
		case MaxCommandIdAttributeNumber:
			return CommandIdGetDatum(is_our_own(z) ? z->cmin : InvalidCommandId);
		case MinCommandIdAttributeNumber:
			return CommandIdGetDatum(z->xmin == InvalidZXid ? FirstCommandId : z->cmin);
		case MaxTransactionIdAttributeNumber:
			return TransactionIdGetDatum(z->xmax == InvalidZXid ? InvalidTransactionId
										 : zxid_to_xid(z->xmax));
		default:
			elog(ERROR, "invalid system column number: %d", attnum);
			return (Datum) 0;
	}
}

#if ZC_HAS_IS_CURRENT_XACT_TUPLE
/*
 * Returns whether our own transaction has written the version. Raises
 * ERRCODE_FEATURE_NOT_SUPPORTED, as heap does, for virtual contents.
 */
static bool
ztts_is_current_xact_tuple(TupleTableSlot *slot)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	Assert(!TTS_EMPTY(slot));

	if (!find_author(z))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("don't have a storage tuple in this context")));

	return is_our_own(z);
}
#endif

/*
 * Copies borrowed bytes, or forms a row of virtual contents, so that the slot
 * depends on no memory but its own.
 */
static void
ztts_materialize(TupleTableSlot *slot)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;
	TransactionId token = z->token;

	Assert(!TTS_EMPTY(slot));

	if (z->row == NULL)
		own_form(z, slot->tts_values, slot->tts_isnull);
	else if (z->row != z->own)
		own_copy(z, z->row, z->len);
	z->token = token;			/* of what has been stored */
	Assert(GetMemoryChunkContext((char *) z->row) == slot->tts_mcxt);
}

/*
 * Copies the row's bytes with all that is known of its author from a slot of a
 * zheap table, and forms a row of the values of another slot.
 */
static void
ztts_copyslot(TupleTableSlot *dstslot, TupleTableSlot *srcslot)
{
	ZHeapSlot  *dst = (ZHeapSlot *) dstslot;
	ZHeapSlot  *src = TTS_IS_ZHEAP(srcslot) ? (ZHeapSlot *) srcslot : NULL;

	if (src == NULL || src->row == NULL)
		slot_getallattrs(srcslot);

	ExecClearTuple(dstslot);
	if (src != NULL && src->row != NULL)
		own_copy(dst, src->row, src->len);
	else
		own_form_of_other(dst, srcslot->tts_values, srcslot->tts_isnull);

	if (src != NULL)
	{
		dst->author_known = src->author_known;
		dst->xmin = src->xmin;
		dst->cmin = src->cmin;
		dst->token = src->token;
		dst->author = src->author;
		dst->xmax = src->xmax;
		dst->chain_xid = src->chain_xid;
		dst->chain = src->chain;
		dst->relnumber = src->relnumber;
	}
	dstslot->tts_tid = srcslot->tts_tid;
	dstslot->tts_tableOid = srcslot->tts_tableOid;
}

/*
 * Returns a heap tuple with the slot's values, in palloc'd memory. Trigger
 * functions read its xmin: that is our own id if our transaction has written
 * the version, else its token (TOKEN-3); 0 for a row that was not stored.
 */
static HeapTuple
ztts_copy_heap_tuple(TupleTableSlot *slot)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;
	HeapTuple	tuple = NULL;
	TransactionId xmin = InvalidTransactionId;
	CommandId	cmin = FirstCommandId;

	if (z->row != NULL)
		tuple = zlayout_copy_tuple(slot->tts_tupleDescriptor, z->row, z->len);
	if (tuple == NULL)
	{
		slot_getallattrs(slot);
		tuple = heap_form_tuple(slot->tts_tupleDescriptor, slot->tts_values, slot->tts_isnull);
	}
	tuple->t_self = ztid_real(&slot->tts_tid);
	tuple->t_tableOid = slot->tts_tableOid;

	if (ItemPointerIsValid(&slot->tts_tid) && (z->row != NULL || z->author_known))
		xmin = shown_xmin(z, true);
	if (z->author_known && z->xmin != InvalidZXid)
		cmin = z->cmin;
	HeapTupleHeaderSetXmin(tuple->t_data, xmin);
	HeapTupleHeaderSetXmax(tuple->t_data, InvalidTransactionId);
	HeapTupleHeaderSetCmin(tuple->t_data, cmin);
	tuple->t_data->t_infomask |= HEAP_XMAX_INVALID;
	tuple->t_data->t_ctid = tuple->t_self;
	return tuple;
}

/* Returns a palloc'd MinimalTuple of the row. */
static MinimalTuple
ztts_copy_minimal_tuple(TupleTableSlot *slot ZC_EXTRA_PARAM)
{
	slot_getallattrs(slot);
	return heap_form_minimal_tuple(slot->tts_tupleDescriptor, slot->tts_values,
								   slot->tts_isnull ZC_EXTRA_ARG);
}

const TupleTableSlotOps TTSOpsZHeap = {
	.base_slot_size = sizeof(ZHeapSlot),
	.init = ztts_init,
	.release = ztts_release,
	.clear = ztts_clear,
	.getsomeattrs = ztts_getsomeattrs,
	.getsysattr = ztts_getsysattr,
#if ZC_HAS_IS_CURRENT_XACT_TUPLE
	.is_current_xact_tuple = ztts_is_current_xact_tuple,
#endif
	.materialize = ztts_materialize,
	.copyslot = ztts_copyslot,
	.get_heap_tuple = NULL,
	.get_minimal_tuple = NULL,
	.copy_heap_tuple = ztts_copy_heap_tuple,
	.copy_minimal_tuple = ztts_copy_minimal_tuple
};

bool
ztts_is_zheap(Relation rel)
{
	return rel->rd_tableam != NULL && table_slot_callbacks(rel) == &TTSOpsZHeap;
}

/* ---- for scans and DML ---- */

/*
 * ztts_store_borrowed: See ztts.h. The version counts as visible to all until
 * ztts_set_author or ztts_set_chain is called.
 */
void
ztts_store_borrowed(TupleTableSlot *slot, const char *row, uint32 len,
					ItemPointer tid, Oid tableoid)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	Assert(TTS_IS_ZHEAP(slot));
	Assert(row != NULL);
	set_row(z, row, len);
	forget_author(z);
	slot->tts_tid = *tid;
	slot->tts_tableOid = tableoid;
}

/* ztts_store_copy: See ztts.h. */
void
ztts_store_copy(TupleTableSlot *slot, const char *row, uint32 len,
				ItemPointer tid, Oid tableoid)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	Assert(TTS_IS_ZHEAP(slot));
	own_copy(z, row, len);
	forget_author(z);
	slot->tts_tid = *tid;
	slot->tts_tableOid = tableoid;
}

/* ztts_set_author: See ztts.h. */
void
ztts_set_author(TupleTableSlot *slot, ZXid xmin, CommandId cmin, UndoPtr author)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	Assert(TTS_IS_ZHEAP(slot) && !TTS_EMPTY(slot));
	z->author_known = true;
	z->xmin = xmin;
	z->cmin = cmin;
	z->author = author;
}

/* ztts_set_xmax: See ztts.h. */
void
ztts_set_xmax(TupleTableSlot *slot, ZXid xmax)
{
	Assert(TTS_IS_ZHEAP(slot) && !TTS_EMPTY(slot));
	((ZHeapSlot *) slot)->xmax = xmax;
}

/* ztts_set_chain: See ztts.h. */
void
ztts_set_chain(TupleTableSlot *slot, ZXid chain_xid, UndoPtr chain, RelFileNumber relnumber)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	Assert(TTS_IS_ZHEAP(slot) && !TTS_EMPTY(slot));
	z->author_known = false;
	z->chain_xid = chain_xid;
	z->chain = chain;
	z->relnumber = relnumber;
}

/*
 * ztts_form_row: See ztts.h. The result may be larger than a page: the caller
 * must toast it or call ztuple_check_size before it is put on one.
 */
const char *
ztts_form_row(TupleTableSlot *slot, TupleDesc desc, uint32 *len)
{
	if (TTS_IS_ZHEAP(slot))
	{
		ZHeapSlot  *z = (ZHeapSlot *) slot;

		if (z->row != NULL && z->len >= ZTUPLE_HEADER_SIZE &&
			ZH_NATTS(zheader_get(z->row)) == desc->natts)
		{
			*len = z->len;
			return z->row;
		}
	}
	slot_getallattrs(slot);
	return form_bytes(desc, slot->tts_values, slot->tts_isnull, CurrentMemoryContext, len);
}

/* ztts_name_author: See ztts.h. */
void
ztts_name_author(TupleTableSlot *slot)
{
	Assert(TTS_IS_ZHEAP(slot) && !TTS_EMPTY(slot));
	((ZHeapSlot *) slot)->token = ZTTS_NAMES_AUTHOR;
}

/* ztts_stored: See ztts.h. */
void
ztts_stored(TupleTableSlot *slot, const char *row, Size len)
{
	Assert(TTS_IS_ZHEAP(slot) && !TTS_EMPTY(slot));
	((ZHeapSlot *) slot)->token = ztuple_token(row, len);
}

/* ztts_shows: See ztts.h. */
bool
ztts_shows(TupleTableSlot *slot, const char *row, Size len)
{
	return !TTS_IS_ZHEAP(slot) || token_of((ZHeapSlot *) slot) == ztuple_token(row, len);
}

/*
 * ztts_length: See ztts.h. Reads the columns of stored rows only: what the slot
 * itself has formed has no count.
 */
uint32
ztts_length(TupleTableSlot *slot, const char *row, uint32 len)
{
	Size		length;
	int			bad;

	if (ztts_formed(slot, row))
		return len;
	Assert(len == ((ZHeapSlot *) slot)->len);
	length = ztuple_length(row, len, slot->tts_tupleDescriptor, &bad);
	if (unlikely(length == 0))
		slot_corrupted(slot, bad);
	return length;
}
