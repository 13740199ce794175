/*
 * tuple/zlayout.c - layouts of rows, and rows as heap tuples.
 *
 * All bytes may come from a damaged record, so every length is checked against
 * the bytes that are there.
 */
#include "postgres.h"

#include "common/varint.h"
#include "tuple/zlayout.h"

/* The alignments that an attribute can have, in the order of their codes. */
static const uint8 alignments[] = {1, ALIGNOF_SHORT, ALIGNOF_INT, ALIGNOF_DOUBLE};

/* Returns the code of an attribute's alignment. */
static int
alignment_code(char attalign)
{
	switch (attalign)
	{
		case TYPALIGN_CHAR:
			return 0;
		case TYPALIGN_SHORT:
			return 1;
		case TYPALIGN_INT:
			return 2;
		default:
			Assert(attalign == TYPALIGN_DOUBLE);
			return 3;
	}
}

/* Returns the code of an attribute's length. */
static int
length_code(int attlen)
{
	if (attlen == -1)
		return ZLAYOUT_VARLENA;
	if (attlen == -2)
		return ZLAYOUT_CSTRING;
	Assert(attlen > 0);
	return attlen < ZLAYOUT_VARLENA ? attlen : ZLAYOUT_LONG;
}

/*
 * zlayout_max_size: See zlayout.h. A column that differs from the one before
 * takes at most 4 bytes, the count of a run's further columns 4 more.
 */
Size
zlayout_max_size(TupleDesc desc)
{
	return 8 + 8 * (Size) desc->natts;
}

/* zlayout_put: See zlayout.h. */
char *
zlayout_put(char *p, TupleDesc desc)
{
	int			run;

	p = zvarint_put(p, desc->natts);
	for (int i = 0; i < desc->natts; i += run)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		int			code = length_code(att->attlen);

		run = 1;
		while (i + run < desc->natts && TupleDescAttr(desc, i + run)->attlen == att->attlen &&
			   TupleDescAttr(desc, i + run)->attalign == att->attalign)
			run++;
		*p++ = (char) (alignment_code(att->attalign) << 6 | code);
		if (code == ZLAYOUT_LONG)
			p = zvarint_put(p, att->attlen);
		if (run > 1)
		{
			*p++ = ZLAYOUT_AGAIN;
			p = zvarint_put(p, run - 1);
		}
	}
	return p;
}

/*
 * Reads the code of one column, or of further columns like the last one, and
 * adds them to the layout, which gets at most natts. Returns the byte after
 * them, or NULL.
 */
static const char *
get_columns(const char *p, const char *end, ZLayout *layout, uint32 natts)
{
	uint32		value = 0;
	uint8		code;

	if (p == end)
		return NULL;
	Assert(layout->natts < (int) natts);
	code = (uint8) *p++;
	if (code == ZLAYOUT_AGAIN)
	{
		p = zvarint_get(p, end, &value);
		if (p == NULL || layout->natts == 0 || value > natts - layout->natts)
			return NULL;
		for (uint32 i = 0; i < value; i++, layout->natts++)
			layout->column[layout->natts] = layout->column[layout->natts - 1];
		return p;
	}
	layout->column[layout->natts].alignment = alignments[code >> 6];
	code &= 0x3F;
	value = code;
	if (code == ZLAYOUT_LONG)
		p = zvarint_get(p, end, &value);
	if (p == NULL || value == 0 || value > PG_INT16_MAX)
		return NULL;
	layout->column[layout->natts++].length =
		code == ZLAYOUT_VARLENA ? -1 : code == ZLAYOUT_CSTRING ? -2 : (int16) value;
	return p;
}

/* zlayout_get: See zlayout.h. */
const char *
zlayout_get(const char *p, const char *end, ZLayout *layout)
{
	uint32		natts = 0;

	layout->natts = 0;
	p = zvarint_get(p, end, &natts);
	if (p == NULL || natts > MaxHeapAttributeNumber)
		return NULL;
	while (p != NULL && layout->natts < (int) natts)
		p = get_columns(p, end, layout, natts);
	return p;
}

/*
 * Returns the length of the varlena at p, or 0 if it does not end before end.
 */
static Size
varlena_size(const char *p, const char *end)
{
	struct
	{
		int32		header;
	}			word;
	Size		size;

	if (p == end)
		return 0;
	if (VARATT_IS_1B_E(p))
		size = end - p >= 2 && VARTAG_EXTERNAL(p) == VARTAG_ONDISK ? VARSIZE_EXTERNAL(p) : 0;
	else if (VARATT_IS_1B(p))
		size = VARSIZE_1B(p);
	else if (end - p < (ptrdiff_t) sizeof(word))
		return 0;
	else
	{
		/* the value is not aligned */
		memcpy(&word, p, sizeof(word));
		size = VARSIZE_4B(&word);
		if (size < sizeof(word))
			return 0;
	}
	return size <= (Size) (end - p) ? size : 0;
}

/* Returns the bytes of the column at p, or 0 if it does not end before end. */
static Size
column_size(int length, const char *p, const char *end)
{
	Size		size;

	if (length == -1)
		return varlena_size(p, end);
	size = length > 0 ? length : strnlen(p, end - p) + 1;
	return size <= (Size) (end - p) ? size : 0;
}

/* A row while its columns are read. */
typedef struct Columns
{
	int			natts;
	const uint8 *nulls;			/* NULL: it has none */
	const char *first;			/* the first column's bytes */
	const char *end;
	Size		hoff;			/* where they begin in the heap tuple */
} Columns;

/*
 * Fills columns. Returns false if the header is malformed, or the row has more
 * than natts columns.
 */
static bool
read_header(int natts, const char *row, Size len, Columns *columns)
{
	ZHeader		h;

	if (len < ZTUPLE_HEADER_SIZE || !ztuple_header_ok(row, len))
		return false;
	h = zheader_get(row);
	columns->natts = ZH_NATTS(h);
	columns->nulls = NULL;
	columns->first = row + ZTUPLE_HEADER_SIZE;
	columns->end = row + len;
	columns->hoff = SizeofHeapTupleHeader;
	if (h & ZH_NULLS)
	{
		columns->nulls = (const uint8 *) columns->first;
		columns->first += BITMAPLEN(columns->natts);
		columns->hoff += BITMAPLEN(columns->natts);
	}
	columns->hoff = MAXALIGN(columns->hoff);
	return columns->natts <= natts && columns->first <= columns->end;
}

/* Copies a column; most have one of these lengths. */
static inline void
copy_column(char *dst, const char *p, Size size)
{
	if (size == 4)
		memcpy(dst, p, 4);
	else if (size == 8)
		memcpy(dst, p, 8);
	else
		memcpy(dst, p, size);
}

/*
 * Goes through the columns, whose layout is desc's, or 'layout' if that is
 * NULL. Returns the length of the heap tuple, or 0. Writes the values to dst,
 * and what they need in t_infomask to *infomask, unless dst is NULL. Values
 * with a 1-byte header are not aligned in a heap tuple.
 */
static pg_attribute_always_inline Size
place_columns(const ZLayout *layout, TupleDesc desc, const Columns *columns, char *dst,
			  uint16 *infomask)
{
	const char *p = columns->first;
	Size		off = columns->hoff;

	for (int i = 0; i < columns->natts; i++)
	{
		int			length = desc ? TupleDescAttr(desc, i)->attlen : layout->column[i].length;
		Size		size;

		if (columns->nulls != NULL && att_isnull(i, columns->nulls))
			continue;
		size = column_size(length, p, columns->end);
		if (size == 0)
			return 0;
		if (length != -1 || !VARATT_IS_1B(p))
			off = desc ? att_align_nominal(off, TupleDescAttr(desc, i)->attalign) :
				TYPEALIGN(layout->column[i].alignment, off);
		if (dst != NULL)
		{
			copy_column(dst + off, p, size);
			if (length < 0)
				*infomask |= HEAP_HASVARWIDTH;
			if (length == -1 && VARATT_IS_1B_E(p))
				*infomask |= HEAP_HASEXTERNAL;
		}
		off += size;
		p += size;
	}
	return ztuple_count_ok(p, columns->end - p) ? off : 0;
}

/*
 * Sets the members of the tuple, and the fields of its header, which is zero;
 * the columns take size bytes with it.
 */
static void
set_header(HeapTuple tuple, const Columns *columns, Size size, uint16 infomask)
{
	HeapTupleHeader header = tuple->t_data;

	tuple->t_len = size;
	ItemPointerSetInvalid(&tuple->t_self);
	tuple->t_tableOid = InvalidOid;
	header->t_infomask = infomask | (columns->nulls != NULL ? HEAP_HASNULL : 0);
	HeapTupleHeaderSetNatts(header, columns->natts);
	header->t_hoff = columns->hoff;
	if (columns->nulls != NULL)
		memcpy(header->t_bits, columns->nulls, BITMAPLEN(columns->natts));
}

/* zlayout_tuple_size: See zlayout.h. */
Size
zlayout_tuple_size(const ZLayout *layout, const char *row, Size len)
{
	Columns		columns;

	if (!read_header(layout->natts, row, len, &columns))
		return 0;
	return place_columns(layout, NULL, &columns, NULL, NULL);
}

/*
 * zlayout_form_tuple: See zlayout.h. The padding between values is zero, as in
 * tuples that heap forms.
 */
void
zlayout_form_tuple(const ZLayout *layout, const char *row, Size len, HeapTuple tuple)
{
	Columns		columns;
	Size		size = zlayout_tuple_size(layout, row, len);
	uint16		infomask = 0;

	Assert(size > 0);
	(void) read_header(layout->natts, row, len, &columns);
	memset(tuple->t_data, 0, size);
	(void) place_columns(layout, NULL, &columns, (char *) tuple->t_data, &infomask);
	set_header(tuple, &columns, size, infomask);
}

/*
 * With more columns than this, the padding is computed before it is allocated.
 */
#define FEW_COLUMNS 32

/* zlayout_copy_tuple: See zlayout.h. */
HeapTuple
zlayout_copy_tuple(TupleDesc desc, const char *row, Size len)
{
	Columns		columns;
	HeapTuple	tuple;
	Size		size;
	uint16		infomask = 0;

	if (!read_header(desc->natts, row, len, &columns) || columns.natts != desc->natts)
		return NULL;
	if (desc->natts <= FEW_COLUMNS)
		size = columns.hoff + len + desc->natts * (MAXIMUM_ALIGNOF - 1);
	else if ((size = place_columns(NULL, desc, &columns, NULL, NULL)) == 0)
		return NULL;
	tuple = palloc0(HEAPTUPLESIZE + size);
	tuple->t_data = (HeapTupleHeader) ((char *) tuple + HEAPTUPLESIZE);
	size = place_columns(NULL, desc, &columns, (char *) tuple->t_data, &infomask);
	if (size == 0)
	{
		pfree(tuple);
		return NULL;
	}
	set_header(tuple, &columns, size, infomask);
	return tuple;
}
