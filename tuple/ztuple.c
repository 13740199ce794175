/*
 * tuple/ztuple.c - forming rows from values, and values from rows.
 *
 * Owns the encoding of columns (layout in ztuple.h): there is no padding, so
 * the bytes of a column depend on its value and type only. Called by dml/ and
 * ztts.c (form), by ztts.c (deform), by dml/, zbtree/ and change/ (getattr).
 * Functions on memory only: no locks, no buffers, no crash points.
 *
 * Invariants:
 *	TUPLE-2	A row holds no pointer into memory: expanded and indirect values are
 *		flattened before it is formed; external ones are on-disk TOAST pointers.
 *	TUPLE-3	Deforming reads the row's bytes only. A column that would reach
 *		outside them is reported to the caller, which knows where the row comes
 *		from.
 *	TUPLE-4	Scratch memory does not move while values point into it: its size
 *		suffices for the whole row from the start.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "tuple/ztuple.h"
#include "utils/expandeddatum.h"

/*
 * Space for one row on an empty page: all but the page header, a line pointer,
 * the slots and the trailer. A row that fits keeps fitting, however often it is
 * repeated (TOKEN-5).
 */
#define EMPTY_PAGE_ROOM	(BLCKSZ - 24 - 4 - 4 * 16 - 16)

/* Returns the length of the null bitmap for natts columns. */
static inline Size
bitmap_size(int natts)
{
	return (natts + 7) / 8;
}

/* ztuple_corrupted: See ztuple.h. */
void
ztuple_corrupted(const char *relname, ItemPointer tid, int attno)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 relname != NULL && tid != NULL && ItemPointerIsValid(tid)
			 ? errmsg("row %u in block %u of relation \"%s\" is corrupted",
					  ItemPointerGetOffsetNumberNoCheck(tid), ItemPointerGetBlockNumberNoCheck(tid),
					  relname)
			 : errmsg("corrupted zheap row"),
			 attno > 0
			 ? errdetail("Column %d reaches beyond the end of the row.", attno)
			 : attno == ZTUPLE_COUNT
			 ? errdetail("The bytes behind its columns are not a count of repetitions.")
			 : errdetail("The row header is not valid."),
			 relname != NULL ? errhint("Run SELECT * FROM zundo.check('%s').", relname) : 0));
	pg_unreachable();
}

/* ---- forming ---- */

/*
 * Returns the varlena value in a form that can be stored (TUPLE-2): expanded
 * objects flattened, indirect TOAST pointers resolved, in palloc'd memory.
 */
static Datum
flatten(Datum value)
{
	struct varlena *ptr = (struct varlena *) DatumGetPointer(value);

	if (VARATT_IS_EXTERNAL_EXPANDED(ptr))
	{
		ExpandedObjectHeader *eoh = DatumGetEOHP(value);
		Size		size = EOH_get_flat_size(eoh);
		char	   *flat = palloc(size);

		EOH_flatten_into(eoh, flat, size);
		return PointerGetDatum(flat);
	}
	if (VARATT_IS_EXTERNAL_INDIRECT(ptr))
		return PointerGetDatum(detoast_external_attr(ptr));
	return value;
}

/* Returns the number of bytes that this flat varlena takes in a row. */
static inline Size
stored_varlena_size(ZcAttr att, const char *ptr)
{
	if (zc_attr_packable(att) && VARATT_CAN_MAKE_SHORT(ptr))
		return VARATT_CONVERTED_SHORT_SIZE(ptr);
	return VARSIZE_ANY(ptr);
}

/*
 * Returns the length of the row that holds the values of *array. Replaces
 * expanded objects and indirect TOAST pointers by flat values: in the array
 * itself or, with 'copy', in a palloc'd copy, which *array then is.
 */
static inline Size
size_of_row(TupleDesc desc, Datum **array, const bool *isnull, bool copy)
{
	Datum	   *values = *array;
	Size		size = ZTUPLE_HEADER_SIZE;
	bool		nulls = false;

	Assert(desc->natts <= MaxHeapAttributeNumber);
	for (int i = 0; i < desc->natts; i++)
	{
		ZcAttr		att = zc_attr(desc, i);

		if (isnull[i])
			nulls = true;
		else if (att->attlen > 0)
			size += att->attlen;
		else if (att->attlen == -1)
		{
			if (unlikely(VARATT_IS_EXTERNAL(DatumGetPointer(values[i]))))
			{
				if (copy && values == *array)
				{
					values = palloc(desc->natts * sizeof(Datum));
					memcpy(values, *array, desc->natts * sizeof(Datum));
				}
				values[i] = flatten(values[i]);
			}
			size += stored_varlena_size(att, DatumGetPointer(values[i]));
		}
		else
			size += strlen(DatumGetCString(values[i])) + 1;
	}
	if (nulls)
		size += bitmap_size(desc->natts);
	*array = values;
	return size;
}

/* ztuple_size_any: See ztuple.h. */
Size
ztuple_size_any(TupleDesc desc, Datum *values, const bool *isnull)
{
	return size_of_row(desc, &values, isnull, false);
}

/* ztuple_size_shared: See ztuple.h. */
Size
ztuple_size_shared(TupleDesc desc, Datum **values, const bool *isnull)
{
	return size_of_row(desc, values, isnull, true);
}

/* ztuple_check_size: See ztuple.h. */
void
ztuple_check_size(Size len)
{
	if (len > ztuple_max_size())
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("row is too big: size %zu, maximum size %zu",
						len, ztuple_max_size()),
				 errdetail("A row takes %zu bytes; a table page has room for %zu.",
						   len, ztuple_max_size()),
				 errhint("Allow wide columns to be stored out of line with ALTER TABLE ... ALTER "
						 "COLUMN ... SET STORAGE EXTENDED.")));
}

/* ztuple_size: See ztuple.h. */
Size
ztuple_size(TupleDesc desc, Datum *values, const bool *isnull)
{
	Size		size = ztuple_size_any(desc, values, isnull);

	ztuple_check_size(size);
	return size;
}

/* ztuple_max_size: See ztuple.h. */
Size
ztuple_max_size(void)
{
	StaticAssertStmt(EMPTY_PAGE_ROOM <= MaxHeapTupleSize, "heap must be able to hold our rows");
	return EMPTY_PAGE_ROOM - ZTUPLE_MAX_COUNT;
}

/* Writes the bytes of a by-value datum to p. */
static inline void
put_byval(char *p, Datum value, int attlen)
{
	switch (attlen)
	{
		case 1:
			*p = DatumGetChar(value);
			break;
		case 2:
			{
				int16		v = DatumGetInt16(value);

				memcpy(p, &v, sizeof(v));
				break;
			}
		case 4:
			{
				int32		v = DatumGetInt32(value);

				memcpy(p, &v, sizeof(v));
				break;
			}
#if SIZEOF_DATUM == 8
		case 8:
			memcpy(p, &value, sizeof(value));
			break;
#endif
		default:
			elog(ERROR, "unsupported byval length: %d", attlen);
	}
}

/*
 * Writes a flat varlena to p, with a 1-byte header if that is allowed. Returns
 * the byte after it.
 */
static char *
put_varlena(char *p, ZcAttr att, const char *ptr)
{
	Size		size;

	Assert(!VARATT_IS_EXTERNAL(ptr) || VARATT_IS_EXTERNAL_ONDISK(ptr)); /* TUPLE-2 */
	if (zc_attr_packable(att) && VARATT_CAN_MAKE_SHORT(ptr))
	{
		size = VARATT_CONVERTED_SHORT_SIZE(ptr);
		SET_VARSIZE_SHORT(p, size);
		memcpy(p + VARHDRSZ_SHORT, VARDATA(ptr), size - VARHDRSZ_SHORT);
	}
	else
	{
		size = VARSIZE_ANY(ptr);
		memcpy(p, ptr, size);
	}
	return p + size;
}

/*
 * ztuple_form: See ztuple.h. The header is written last, when the shape of the
 * row is known. Raises an internal error if len is not the row's length.
 */
void
ztuple_form(TupleDesc desc, const Datum *values, const bool *isnull, char *dst, Size len)
{
	ZHeader		h = (ZHeader) desc->natts;
	bits8	   *bits = NULL;
	char	   *p = dst + ZTUPLE_HEADER_SIZE;

	Assert(desc->natts <= MaxHeapAttributeNumber);
	for (int i = 0; i < desc->natts; i++)
	{
		if (isnull[i])
		{
			h |= ZH_NULLS;
			bits = (bits8 *) p;
			p += bitmap_size(desc->natts);
			memset(bits, 0, p - (char *) bits);
			break;
		}
	}

	for (int i = 0; i < desc->natts; i++)
	{
		ZcAttr		att = zc_attr(desc, i);

		if (isnull[i])
			continue;
		if (bits)
			bits[i >> 3] |= 1 << (i & 7);

		if (att->attbyval)
		{
			put_byval(p, values[i], att->attlen);
			p += att->attlen;
		}
		else if (att->attlen == -1)
		{
			const char *ptr = DatumGetPointer(values[i]);

			if (VARATT_IS_EXTERNAL(ptr))
			{
				h |= ZH_EXTERNAL;
				if (!VARATT_IS_EXTERNAL_ONDISK(ptr))
					elog(ERROR, "value of column %d is an expanded object", i + 1);
			}
			p = put_varlena(p, att, ptr);
		}
		else
		{
			Size		size;

			if (att->attlen > 0)
				size = (Size) att->attlen;
			else
				size = strlen(DatumGetCString(values[i])) + 1;
			memcpy(p, DatumGetPointer(values[i]), size);
			p += size;
		}
	}

	if ((Size) (p - dst) != len)
		elog(ERROR, "zheap row formed with %zu bytes instead of %zu", (Size) (p - dst), len);
	zheader_set(dst, h);
}

/* ---- deforming ---- */

/*
 * Returns the length of the varlena or cstring column at p, or 0 if it is not
 * valid or does not lie before end (TUPLE-3).
 */
static Size
unfixed_length(int attlen, const char *p, const char *end)
{
	Size		avail = end - p;
	Size		size;

	Assert(p <= end);
	if (avail < 1)
		return 0;
	if (attlen == -2)
	{
		size = strnlen(p, avail);
		if (size == avail)
			return 0;
		return size + 1;
	}

	if (VARATT_IS_1B_E(p))
	{
		if (avail < VARHDRSZ_EXTERNAL || VARTAG_1B_E(p) != VARTAG_ONDISK)
			return 0;
		size = VARSIZE_EXTERNAL(p);
	}
	else if (VARATT_IS_1B(p))
		size = VARSIZE_1B(p);
	else
	{
		uint32		word;

		if (avail < VARHDRSZ)
			return 0;
		memcpy(&word, p, sizeof(word));
#ifdef WORDS_BIGENDIAN
		size = word & 0x3FFFFFFF;
#else
		size = word >> 2;
#endif
		if (size < VARHDRSZ)
			return 0;
	}
	return size > avail ? 0 : size;
}

/*
 * Returns true if the server may read the column at p in place, because p is
 * aligned as it expects or the type needs no alignment.
 */
static inline bool
can_point(ZcAttr att, const char *p)
{
	if (att->attlen == -2 || (att->attlen == -1 && VARATT_IS_1B(p)))
		return true;
	return zc_attr_byte_aligned(att) || p == (const char *) MAXALIGN(p);
}

/* Returns true if values of this column may have to be copied to scratch. */
static inline bool
needs_scratch(ZcAttr att)
{
	return !att->attbyval && att->attlen != -2 && !zc_attr_byte_aligned(att);
}

/* zdeform_scratch_size: See ztuple.h. */
Size
zdeform_scratch_size(TupleDesc desc, Size len)
{
	int			ncopied = 0;

	for (int i = 0; i < desc->natts; i++)
	{
		if (needs_scratch(zc_attr(desc, i)))
			ncopied++;
	}
	return ncopied == 0 ? 0 : len + (Size) ncopied * (MAXIMUM_ALIGNOF - 1);
}

/* Copies the size bytes at p to scratch, aligned. */
static inline Datum
to_scratch(ZDeform *d, const char *p, Size size)
{
	char	   *copy = d->scratch + d->scratch_used;

	Assert(d->scratch != NULL);
	Assert(copy == (char *) MAXALIGN(copy));
	memcpy(copy, p, size);
	d->scratch_used += MAXALIGN(size);
	return PointerGetDatum(copy);
}

/* zdeform_start: See ztuple.h. */
bool
zdeform_start(ZDeform *d, const char *row, Size len, char *scratch)
{
	ZHeader		h;

	Assert(scratch == (char *) MAXALIGN(scratch));
	if (unlikely(!ztuple_header_ok(row, len)))
		return false;
	h = zheader_get(row);
	d->row = row;
	d->len = (uint32) len;
	d->off = ZTUPLE_HEADER_SIZE + ((h & ZH_NULLS) ? bitmap_size(ZH_NATTS(h)) : 0);
	d->next = 0;
	d->scratch = scratch;
	d->scratch_used = 0;
	return true;
}

/*
 * zdeform_columns: See ztuple.h. Continues at the column where the last call
 * ended. Compares each length with the end of the row before it reads a value.
 */
int
zdeform_columns(ZDeform *d, TupleDesc desc, int natts, Datum *values, bool *isnull)
{
	ZHeader		h = zheader_get(d->row);
	const bits8 *bits = (h & ZH_NULLS) ? (const bits8 *) d->row + ZTUPLE_HEADER_SIZE : NULL;
	const char *p = d->row + d->off;
	const char *end = d->row + d->len;
	int			i;

	Assert(natts <= ZH_NATTS(h));
	Assert(natts <= desc->natts);
	Assert(d->off <= d->len);

	for (i = d->next; i < natts; i++)
	{
		ZcAttr		att = zc_attr(desc, i);
		int			attlen = att->attlen;
		Size		size;

		if (bits != NULL && (bits[i >> 3] & (1 << (i & 7))) == 0)
		{
			values[i] = (Datum) 0;
			isnull[i] = true;
			continue;
		}
		isnull[i] = false;

		if (likely(attlen > 0))
		{
			if (unlikely(attlen > end - p))
				return i + 1;
			if (att->attbyval)
			{
				values[i] = zdeform_byval(p, attlen);
				p += attlen;
				continue;
			}
			size = attlen;
		}
		else
		{
			size = unfixed_length(attlen, p, end);
			if (unlikely(size == 0))
				return i + 1;
		}

		if (can_point(att, p))
			values[i] = PointerGetDatum(p);
		else if (likely(d->scratch != NULL))
			values[i] = to_scratch(d, p, size);
		else
		{
			d->off = p - d->row;
			d->next = i;
			return ZDEFORM_NEEDS_SCRATCH;
		}
		p += size;
	}

	Assert(p <= end);			/* TUPLE-3 */
	d->off = p - d->row;
	d->next = Max(d->next, natts);
	return 0;
}

/*
 * ztuple_getattr: See ztuple.h. Walks over the columns before the one wanted
 * without forming their values.
 */
Datum
ztuple_getattr(const char *row, Size len, TupleDesc desc, int attno, bool *isnull,
			   const char *relname, ItemPointer tid)
{
	ZDeform		d;
	ZHeader		h;
	const bits8 *bits;
	const char *p;
	const char *end = row + len;

	Assert(attno >= 1 && attno <= desc->natts);
	if (!zdeform_start(&d, row, len, NULL))
		ztuple_corrupted(relname, tid, 0);
	h = zheader_get(row);
	if (attno > ZH_NATTS(h))
		return getmissingattr(desc, attno, isnull);

	bits = (h & ZH_NULLS) ? (const bits8 *) row + ZTUPLE_HEADER_SIZE : NULL;
	p = row + d.off;
	for (int i = 0;; i++)
	{
		ZcAttr		att = zc_attr(desc, i);
		bool		absent = bits != NULL && (bits[i >> 3] & (1 << (i & 7))) == 0;
		Size		size = 0;

		if (!absent)
		{
			if (att->attlen <= 0)
				size = unfixed_length(att->attlen, p, end);
			else if (att->attlen <= end - p)
				size = att->attlen;
			if (size == 0)
				ztuple_corrupted(relname, tid, i + 1);
		}
		if (i == attno - 1)
		{
			*isnull = absent;
			if (absent)
				return (Datum) 0;
			if (att->attbyval)
				return zdeform_byval(p, att->attlen);
			if (can_point(att, p))
				return PointerGetDatum(p);
			return PointerGetDatum(memcpy(palloc(size), p, size));
		}
		p += size;
	}
}

/* ---- counts of repetitions ---- */

/* ztuple_count: See ztuple.h. */
uint64
ztuple_count(const char *p, Size n)
{
	uint64		count = 0;

	Assert(n <= ZTUPLE_MAX_COUNT);
	while (n > 0)
		count = count << 8 | (uint8) p[--n];
	return count;
}

/*
 * ztuple_length: See ztuple.h. Walks over the columns without forming their
 * values.
 */
Size
ztuple_length(const char *row, Size len, TupleDesc desc, int *bad)
{
	ZDeform		d;
	ZHeader		h;
	const bits8 *bits;
	const char *p;
	const char *end = row + len;

	*bad = 0;
	if (!zdeform_start(&d, row, len, NULL))
		return 0;
	h = zheader_get(row);
	if (ZH_NATTS(h) > desc->natts)
		return 0;
	bits = (h & ZH_NULLS) ? (const bits8 *) row + ZTUPLE_HEADER_SIZE : NULL;
	p = row + d.off;
	for (int i = 0; i < ZH_NATTS(h); i++)
	{
		int			attlen = zc_attr(desc, i)->attlen;
		Size		size = attlen;

		if (bits != NULL && (bits[i >> 3] & (1 << (i & 7))) == 0)
			continue;
		if (attlen <= 0)
			size = unfixed_length(attlen, p, end);
		if (size == 0 || size > (Size) (end - p))
		{
			*bad = i + 1;
			return 0;
		}
		p += size;
	}
	if (!ztuple_count_ok(p, end - p))
	{
		*bad = ZTUPLE_COUNT;
		return 0;
	}
	return p - row;
}

/*
 * ztuple_count_up: See ztuple.h. If both rows begin with the new one's bytes,
 * the columns of both end there, since each column's length follows from its
 * bytes. The count goes up to 2^64; no row lives to see it begin again.
 */
Size
ztuple_count_up(char *row, Size len, const char *old, Size oldlen)
{
	const ZHeader shape = ZH_NATTS_MASK | ZH_NULLS;
	Size		end = len;

	if (oldlen - len > ZTUPLE_MAX_COUNT ||
		((zheader_get(row) ^ zheader_get(old)) & shape) != 0 ||
		memcmp(row + ZTUPLE_HEADER_SIZE, old + ZTUPLE_HEADER_SIZE, len - ZTUPLE_HEADER_SIZE) != 0)
		return len;
	memcpy(row + len, old + len, oldlen - len);
	for (; end < oldlen; end++)
		if (++row[end] != 0)
			return oldlen;
	if (end - len == ZTUPLE_MAX_COUNT)
		end = len;
	row[end] = 1;
	return end + 1;
}

/*
 * Returns the external value of the first column from d->next on that has one,
 * and moves d to the column after it; NULL if none is left. If a column
 * reaches beyond the end of the row, returns NULL and sets *bad to the
 * column's number (from 1).
 */
static const char *
next_external(ZDeform *d, TupleDesc desc, int *bad)
{
	ZHeader		h = zheader_get(d->row);
	const bits8 *bits = (h & ZH_NULLS) ? (const bits8 *) d->row + ZTUPLE_HEADER_SIZE : NULL;
	const char *p = d->row + d->off;
	const char *end = d->row + d->len;
	int			natts = (h & ZH_EXTERNAL) ? Min(ZH_NATTS(h), desc->natts) : 0;

	while (d->next < natts)
	{
		int			i = d->next++;
		int			attlen = zc_attr(desc, i)->attlen;
		Size		size = attlen;
		bool		external;

		if (bits != NULL && (bits[i >> 3] & (1 << (i & 7))) == 0)
			continue;
		if (attlen <= 0)
			size = unfixed_length(attlen, p, end);
		if (size == 0 || size > (Size) (end - p))
		{
			*bad = i + 1;
			return NULL;
		}
		external = (attlen == -1 && VARATT_IS_EXTERNAL(p));
		p += size;
		d->off = p - d->row;
		if (external)
			return p - size;
	}
	return NULL;
}

/*
 * ztuple_same_external: See ztuple.h. Compares one pair of pointers at a time.
 */
bool
ztuple_same_external(TupleDesc desc, const char *a, Size alen, const char *b, Size blen,
					 const char *relname, ItemPointer tid)
{
	ZDeform		da;
	ZDeform		db;
	int			bad = 0;

	if (!zdeform_start(&da, a, alen, NULL))
		ztuple_corrupted(relname, tid, 0);
	if (!zdeform_start(&db, b, blen, NULL))
		ztuple_corrupted(NULL, NULL, 0);
	for (;;)
	{
		const char *pa = next_external(&da, desc, &bad);
		const char *pb;

		if (bad != 0)
			ztuple_corrupted(relname, tid, bad);
		pb = next_external(&db, desc, &bad);
		if (bad != 0)
			ztuple_corrupted(NULL, NULL, bad);
		if (pa == NULL || pb == NULL)
			return pa == pb;
		if (da.next != db.next || memcmp(pa, pb, TOAST_POINTER_SIZE) != 0)
			return false;
	}
}

/*
 * ztuple_deform: See ztuple.h. Attributes that the row does not have get their
 * missing values.
 */
char *
ztuple_deform(const char *row, Size len, TupleDesc desc, Datum *values, bool *isnull,
			  const char *relname, ItemPointer tid)
{
	Size		scratch_size = zdeform_scratch_size(desc, len);
	char	   *scratch = scratch_size > 0 ? palloc_extended(scratch_size, MCXT_ALLOC_HUGE) : NULL;
	ZDeform		d;
	int			natts;
	int			bad;

	if (!zdeform_start(&d, row, len, scratch))
		ztuple_corrupted(relname, tid, 0);
	natts = Min(ZH_NATTS(zheader_get(row)), desc->natts);
	bad = zdeform_columns(&d, desc, natts, values, isnull);
	if (bad != 0)
		ztuple_corrupted(relname, tid, bad);
	for (int i = natts; i < desc->natts; i++)
		values[i] = getmissingattr(desc, i + 1, &isnull[i]);
	return scratch;
}

/*
 * ztuple_token: See ztuple.h. The identifier of the database system makes the
 * tokens of each one different, so that rows with the same token cannot be
 * prepared elsewhere.
 */
TransactionId
ztuple_token(const char *row, Size len)
{
	ZHeader		shape = zheader_get(row) & (ZH_NATTS_MASK | ZH_NULLS);
	uint64		hash;
	TransactionId token;

	Assert(len >= ZTUPLE_HEADER_SIZE);
	hash = hash_bytes_extended((const unsigned char *) row + ZTUPLE_HEADER_SIZE,
							   (int) (len - ZTUPLE_HEADER_SIZE),
							   hash_combine64(GetSystemIdentifier(), shape));
	token = (TransactionId) (hash ^ (hash >> 32));
	return TransactionIdIsNormal(token) ? token : token + FirstNormalTransactionId;
}
