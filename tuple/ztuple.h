/*
 * tuple/ztuple.h - the row format: 5-byte header, null bitmap, unaligned
 * columns, count of repetitions.
 *
 * A row is:	header (5 bytes) | null bitmap ((natts+7)/8 bytes, only if
 *				ZH_NULLS) | columns without padding | count (TOKEN-5 in dml/).
 *
 * Header bits (40, little endian, by memcpy):
 *	0-10 natts | 11-19 slot (0 = visible to all) | 20 nulls | 21 external |
 *	22-23 state | 24 other partition | 25-27 lock hint | 28 key change |
 *	29 stale index keys possible | 30 speculative | 31 slack | 32-39 lock tag
 *
 * A column of fixed length takes attlen bytes; by-value ones are in native byte
 * order. A varlena has a 1-byte header where the value is short enough and the
 * column's storage allows that, else a 4-byte header; external TOAST pointers
 * stay as they are. A cstring includes its final 0.
 *
 * The count says how often in succession the row was updated to the bytes that
 * it had before. It is a little-endian integer of up to 8 bytes, the last of
 * which is not 0; a row that was not repeated has none. Nothing but the end of
 * the row says where it ends, and nothing but the number of columns in the
 * header where it begins.
 */
#ifndef ZUNDO_ZTUPLE_H
#define ZUNDO_ZTUPLE_H

#include "common/zundo.h"
#include "access/tupdesc.h"
#include "access/htup.h"
#include "executor/tuptable.h"
#include "nodes/lockoptions.h"

#define ZTUPLE_HEADER_SIZE	5
#define ZTUPLE_MAX_COUNT	8	/* bytes */

typedef uint64 ZHeader;			/* the low 40 bits are the header */

#define ZH_NATTS_MASK	UINT64CONST(0x7FF)
#define ZH_SLOT_SHIFT	11
#define ZH_SLOT_MASK	(UINT64CONST(0x1FF) << ZH_SLOT_SHIFT)
#define ZH_NULLS		(UINT64CONST(1) << 20)
#define ZH_EXTERNAL		(UINT64CONST(1) << 21)
#define ZH_STATE_SHIFT	22
#define ZH_STATE_MASK	(UINT64CONST(3) << ZH_STATE_SHIFT)
#define ZH_OTHER_PART	(UINT64CONST(1) << 24)
#define ZH_LOCK_SHIFT	25
#define ZH_LOCK_MASK	(UINT64CONST(7) << ZH_LOCK_SHIFT)
#define ZH_KEY_CHANGE	(UINT64CONST(1) << 28)
#define ZH_STALE_KEYS	(UINT64CONST(1) << 29)
#define ZH_SPECULATIVE	(UINT64CONST(1) << 30)
#define ZH_SLACK		(UINT64CONST(1) << 31)
#define ZH_TAG_SHIFT	32
#define ZH_TAG_MASK		(UINT64CONST(0xFF) << ZH_TAG_SHIFT)

/* Row states. A stub has the same numbers in lp_len. */
#define ZSTATE_INSERTED 0
#define ZSTATE_UPDATED	1
#define ZSTATE_DELETED	2
#define ZSTATE_MOVED	3

/* Returns the header of the row. */
static inline ZHeader
zheader_get(const char *row)
{
	uint32		low;

	memcpy(&low, row, 4);
	return (ZHeader) low | ((ZHeader) (uint8) row[4] << 32);
}

/* Writes the header of the row. */
static inline void
zheader_set(char *row, ZHeader h)
{
	uint32		low = (uint32) h;

	Assert((h & ~UINT64CONST(0xFFFFFFFFFF)) == 0);
	memcpy(row, &low, 4);
	row[4] = (char) (h >> 32);
}

#define ZH_NATTS(h)		((int) ((h) & ZH_NATTS_MASK))
#define ZH_SLOT(h)		((int) (((h) & ZH_SLOT_MASK) >> ZH_SLOT_SHIFT))
#define ZH_STATE(h)		((int) (((h) & ZH_STATE_MASK) >> ZH_STATE_SHIFT))
#define ZH_LOCK(h)		((int) (((h) & ZH_LOCK_MASK) >> ZH_LOCK_SHIFT))
#define ZH_TAG(h)		((int) (((h) & ZH_TAG_MASK) >> ZH_TAG_SHIFT))
#define ZH_WITH_SLOT(h, s)	(((h) & ~ZH_SLOT_MASK) | ((ZHeader) (s) << ZH_SLOT_SHIFT))
#define ZH_WITH_STATE(h, s) (((h) & ~ZH_STATE_MASK) | ((ZHeader) (s) << ZH_STATE_SHIFT))
#define ZH_WITH_LOCK(h, l)	(((h) & ~ZH_LOCK_MASK) | ((ZHeader) (l) << ZH_LOCK_SHIFT))
#define ZH_WITH_TAG(h, t)	(((h) & ~ZH_TAG_MASK) | ((ZHeader) (t) << ZH_TAG_SHIFT))
#define ZH_WITHOUT_LOCKS(h)	((h) & ~(ZH_LOCK_MASK | ZH_TAG_MASK))
/*
 * Returns the mode in which an open LOCK of this mode locks a row by its tag
 * (TAG-1 in dml/).
 */
static inline int
zheader_tag_mode(ZHeader h, int mode)
{
	return ZH_LOCK(h) == LockTupleExclusive + 1 ? LockTupleExclusive : mode;
}

/* True unless the newest version has been deleted or moved to another TID. */
#define ZH_LIVE(h)		(ZH_STATE(h) <= ZSTATE_UPDATED)

/*
 * A compact header holds everything of a header but slack, lock hint and lock
 * tag. It takes 2 bytes, or 4 if natts, nulls or external differ from 'base',
 * the header that the reader of the compact form will have. A base of 0 forces
 * the long form.
 *
 * zheader_compact_put: writes the compact form of h at p, which must have space
 * for it. Returns the byte after it.
 *
 * zheader_compact_get: reads the compact form at p into *h, taking the shape
 * from base if the form is short. Returns the byte after the form, or NULL if
 * the bytes end before it does or are not valid. *h has no lock hint, lock tag
 * or slack bit (HEADER-1).
 */
#define ZHEADER_COMPACT_MAX 4

extern char *zheader_compact_put(char *p, ZHeader h, ZHeader base);
extern const char *zheader_compact_get(const char *p, const char *end, ZHeader base, ZHeader *h);

/*
 * zheader_compact_set_slot: changes the slot in the compact header at p.
 */
extern void zheader_compact_set_slot(char *p, int slot);

/* zheader_of_new: returns the header of a new row of this shape. */
static inline ZHeader
zheader_of_new(ZHeader shape)
{
	return shape & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL);
}

/*
 * zheader_updated: returns the header of a row after an in-place update. Takes
 * natts, nulls and external from 'shape', lock hint, lock tag and stale keys
 * from 'current'.
 */
static inline ZHeader
zheader_updated(ZHeader current, ZHeader shape, int slotno, bool key_change)
{
	ZHeader		h = shape & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL);

	h |= current & (ZH_LOCK_MASK | ZH_TAG_MASK | ZH_STALE_KEYS);
	h = ZH_WITH_STATE(ZH_WITH_SLOT(h, slotno), ZSTATE_UPDATED);
	return key_change ? (h | ZH_KEY_CHANGE) : h;
}

/*
 * zheader_same_shape: returns true if two headers have the same natts, nulls
 * and external, which the short compact form omits.
 */
static inline bool
zheader_same_shape(ZHeader a, ZHeader b)
{
	return ((a ^ b) & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL)) == 0;
}

/*
 * zheader_same_compact: returns true if two headers have the same compact form,
 * a short one, each with itself as its base.
 */
static inline bool
zheader_same_compact(ZHeader a, ZHeader b)
{
	const ZHeader shape = ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL;

	return (a & shape) != 0 && (b & shape) != 0 &&
		((a ^ b) & ~(shape | ZH_LOCK_MASK | ZH_TAG_MASK | ZH_SLACK)) == 0;
}

/* ---- forming and deforming ---- */

/*
 * ztuple_size: returns the length of the row that holds values/isnull. Flattens
 * expanded objects and indirect TOAST pointers, replacing them in 'values' by
 * copies in the current memory context. Raises ERRCODE_PROGRAM_LIMIT_EXCEEDED
 * if the length exceeds ztuple_max_size().
 *
 * ztuple_form: writes that row to dst, exactly len = ztuple_size bytes. The
 * values must be flat. The header has natts, nulls and external; its state and
 * slot are 0.
 */
extern Size ztuple_size(TupleDesc desc, Datum *values, const bool *isnull);
extern void ztuple_form(TupleDesc desc, const Datum *values, const bool *isnull, char *dst,
						Size len);

/*
 * ztuple_size_any: returns the same length, but raises no error if it exceeds
 * ztuple_max_size(): for rows in slots, whose values may be toasted later.
 */
extern Size ztuple_size_any(TupleDesc desc, Datum *values, const bool *isnull);

/*
 * ztuple_size_shared: does the same without changing the array: if a value has
 * to be replaced, *values becomes a palloc'd copy of the array.
 *
 * ztuple_check_size: raises ERRCODE_PROGRAM_LIMIT_EXCEEDED if len, the length
 * of a row without its count, exceeds ztuple_max_size().
 */
extern Size ztuple_size_shared(TupleDesc desc, Datum **values, const bool *isnull);
extern void ztuple_check_size(Size len);

/*
 * ztuple_max_size: returns the length of the largest row without a count: with
 * the longest count it still fits on an empty page. heap can store a row of
 * that length too, so that ALTER TABLE ... SET ACCESS METHOD works in both
 * directions.
 */
extern Size ztuple_max_size(void);

/* ---- counts of repetitions ---- */

#define ZTUPLE_COUNT	(-1)	/* the "column" of a damaged count */

/*
 * ztuple_count_ok: returns whether the n bytes at p, which are those behind the
 * last column of a row, are none, or a count.
 */
static inline bool
ztuple_count_ok(const char *p, Size n)
{
	return n == 0 || (n <= ZTUPLE_MAX_COUNT && p[n - 1] != 0);
}

/*
 * ztuple_count: returns the number that the n bytes of a count stand for.
 */
extern uint64 ztuple_count(const char *p, Size n);

/*
 * ztuple_length: returns the length of the row without its count. If the row is
 * damaged, returns 0 and sets *bad to what ztuple_corrupted takes: a column's
 * number, 0, or ZTUPLE_COUNT if what is behind the last column is no count.
 */
extern Size ztuple_length(const char *row, Size len, TupleDesc desc, int *bad);

/*
 * ztuple_repeat: prepares 'row' to replace 'old'. 'row' has len bytes, without
 * a count, and space for ZTUPLE_MAX_COUNT more. If the old row has the same
 * columns, byte for byte, appends a count that is one more than that of the old
 * row. Returns the length of the row, whose bytes differ from those of the old
 * one in any case (TOKEN-5).
 *
 * ztuple_count_up: does the same. ztuple_repeat calls it for rows that begin
 * alike; most differ in their first columns.
 */
extern Size ztuple_count_up(char *row, Size len, const char *old, Size oldlen);

static inline Size
ztuple_repeat(char *row, Size len, const char *old, Size oldlen)
{
	const Size	begin = Min(len, ZTUPLE_HEADER_SIZE + 4 * sizeof(uint64));

	if (oldlen - len > ZTUPLE_MAX_COUNT)
		return len;
	for (Size pos = ZTUPLE_HEADER_SIZE; pos + sizeof(uint64) <= begin; pos += sizeof(uint64))
	{
		uint64		a;
		uint64		b;

		memcpy(&a, row + pos, sizeof(a));
		memcpy(&b, old + pos, sizeof(b));
		if (a != b)
			return len;
	}
	return ztuple_count_up(row, len, old, oldlen);
}

/*
 * The state of deforming one row. Columns are read from left to right on
 * demand. By-reference values that the server reads in place and that are not
 * aligned in the row are copied to 'scratch'.
 */
typedef struct ZDeform
{
	const char *row;
	char	   *scratch;		/* aligned copies; capacity
								 * zdeform_scratch_size */
	uint32		scratch_used;
	uint32		len;
	uint32		off;			/* of the next column's bytes in row */
	int			next;			/* next attribute, 0-based */
} ZDeform;

/*
 * zdeform_scratch_size: returns the bytes of scratch that a row of len bytes
 * can need, 0 if no column needs any.
 */
extern Size zdeform_scratch_size(TupleDesc desc, Size len);

/*
 * zdeform_start: prepares to read the row. scratch must be MAXALIGNed and have
 * zdeform_scratch_size bytes, or be NULL. Returns false if the header is not
 * valid.
 */
extern bool zdeform_start(ZDeform *d, const char *row, Size len, char *scratch);

/*
 * zdeform_columns: fills values/isnull for the attributes d->next .. natts - 1;
 * natts must not exceed the row's. Returns 0, or the number (from 1) of the
 * first column that would reach beyond the end of the row; or, at the first
 * column that needs scratch, ZDEFORM_NEEDS_SCRATCH if d->scratch is NULL. The
 * caller sets it then, and calls again.
 */
#define ZDEFORM_NEEDS_SCRATCH	(-1)

extern int	zdeform_columns(ZDeform *d, TupleDesc desc, int natts, Datum *values, bool *isnull);

/* zdeform_byval: returns the by-value datum whose attlen bytes are at p. */
static inline Datum
zdeform_byval(const char *p, int attlen)
{
	switch (attlen)
	{
		case 4:
			{
				int32		v;

				memcpy(&v, p, sizeof(v));
				return Int32GetDatum(v);
			}
#if SIZEOF_DATUM == 8
		case 8:
			{
				Datum		v;

				memcpy(&v, p, sizeof(v));
				return v;
			}
#endif
		case 2:
			{
				int16		v;

				memcpy(&v, p, sizeof(v));
				return Int16GetDatum(v);
			}
		case 1:
			return CharGetDatum(*p);
		default:
			elog(ERROR, "unsupported byval length: %d", attlen);
			return 0;
	}
}

/*
 * ztuple_corrupted: raises ERRCODE_DATA_CORRUPTED for column attno of the row
 * at tid, for its header if attno is 0, or for its count if attno is
 * ZTUPLE_COUNT. relname and tid are NULL if not known.
 */
extern void ztuple_corrupted(const char *relname, ItemPointer tid,
							 int attno) zc_noreturn pg_attribute_cold;

/*
 * ztuple_getattr: returns column attno (from 1), or its missing value if the
 * row has fewer columns. A by-reference result points into the row, or to a
 * palloc'd copy if it is not aligned there. Raises ztuple_corrupted with
 * relname and tid.
 */
extern Datum ztuple_getattr(const char *row, Size len, TupleDesc desc, int attno, bool *isnull,
							const char *relname, ItemPointer tid);

/*
 * ztuple_same_external: returns whether two rows have the same on-disk TOAST
 * pointers in the same columns, and no others. Raises ztuple_corrupted with
 * relname and tid, which are those of row a.
 */
extern bool ztuple_same_external(TupleDesc desc, const char *a, Size alen, const char *b, Size blen,
								 const char *relname, ItemPointer tid);

/*
 * ztuple_same_bytes: returns whether two rows have the same columns, byte for
 * byte, and the same count.
 */
static inline bool
ztuple_same_bytes(const char *a, Size alen, const char *b, Size blen)
{
	const ZHeader shape = ZH_NATTS_MASK | ZH_NULLS;

	return alen == blen && (zheader_get(a) & shape) == (zheader_get(b) & shape) &&
		memcmp(a + ZTUPLE_HEADER_SIZE, b + ZTUPLE_HEADER_SIZE, alen - ZTUPLE_HEADER_SIZE) == 0;
}

/*
 * ztuple_token: returns what xmin shows of a row (TOKEN-1 in tuple/ztts.c): a
 * hash of all bytes behind the header, never 0, 1 or 2. Of the header only the
 * number of columns and the nulls bit count: the rest belongs to the row's
 * place or to its locks.
 */
extern TransactionId ztuple_token(const char *row, Size len);

/*
 * ztuple_deform: fills values and isnull for all columns of desc. By-reference
 * values point into the row, or into the palloc'd memory that it returns; NULL
 * if none is needed. Raises ztuple_corrupted with relname and tid.
 */
extern char *ztuple_deform(const char *row, Size len, TupleDesc desc, Datum *values, bool *isnull,
						   const char *relname, ItemPointer tid);

/*
 * ztuple_header_ok: returns true if the header is valid and the null bitmap
 * lies within len. Cheap; needs no tuple descriptor; never reads outside the
 * len bytes at row.
 */
extern bool ztuple_header_ok(const char *row, Size len);

/* ---- deltas (tuple/zdelta.c) ---- */

/*
 * The bytes in which two rows, without their headers, differ: up to
 * ZDELTA_MAX_RUNS runs. If the rows are of equal length, each run has the same
 * length on both sides; else there is exactly one run. A delta without runs is
 * valid.
 *
 * Undo form:	byte: nruns | 0x80 if lengths differ; for each run: varint off,
 *				varint oldlen, [varint newlen], old bytes.
 * WAL form:	the same, with the new bytes after each run's old bytes.
 */
#define ZDELTA_MAX_RUNS 8

typedef struct ZDelta
{
	int			nruns;
	bool		resized;
	struct
	{
		uint16		off,
					oldlen,
					newlen;
	}			run[ZDELTA_MAX_RUNS];
} ZDelta;

/*
 * zdelta_compute: fills *d with the bytes in which two rows differ, both
 * without their headers and shorter than a page. Rows of equal length with
 * more than ZDELTA_MAX_RUNS separate differences get one run from the first to
 * the last.
 *
 * zdelta_undo_size: returns the length of d's undo form.
 *
 * zdelta_undo_put, zdelta_wal_put: write d's undo form, or WAL form, to p and
 * return the byte after it.
 */
extern void zdelta_compute(const char *oldbytes, Size oldlen, const char *newbytes, Size newlen,
						   ZDelta *d);
extern Size zdelta_undo_size(const ZDelta *d);
extern char *zdelta_undo_put(char *p, const ZDelta *d, const char *oldbytes);
extern char *zdelta_wal_put(char *p, const ZDelta *d, const char *oldbytes, const char *newbytes);

/*
 * zdelta_undo_apply: turns the newer bytes in dst, *len of them, into the older
 * ones and sets *len; dst has space for cap bytes. Returns the byte after the
 * delta, or NULL if the delta is not valid or does not fit dst, whose contents
 * are undefined then.
 */
extern const char *zdelta_undo_apply(const char *p, const char *end, char *dst, Size *len,
									 Size cap);

/*
 * zdelta_wal_apply: turns the older bytes in dst into the newer ones, by the
 * WAL form. Returns as zdelta_undo_apply.
 */
extern const char *zdelta_wal_apply(const char *p, const char *end, char *dst, Size *len, Size cap);

/*
 * zdelta_wal_to_undo: converts the WAL form at p to the undo form at dst,
 * which has space for cap bytes, and sets *len to its size. Returns the byte
 * after the WAL form, or NULL if that is not valid or the undo form does not
 * fit.
 */
extern const char *zdelta_wal_to_undo(const char *p, const char *end, char *dst, Size cap,
									  Size *len);

/*
 * zdelta_wal_take_out: copies the newer bytes, len of them, to dst, which has
 * space for len bytes, except the runs whose new bytes are in the WAL form at
 * p. Returns the end of the copy, or NULL if the delta is not valid or does not
 * fit.
 *
 * zdelta_wal_put_in: does the reverse: builds the newer bytes in dst, which has
 * space for cap bytes, from 'rest', the len bytes that zdelta_wal_take_out has
 * copied, and the new bytes in the WAL form at p. Returns the end of the newer
 * bytes, or NULL.
 */
extern char *zdelta_wal_take_out(const char *p, const char *end, const char *newbytes, Size len,
								 char *dst);
extern char *zdelta_wal_put_in(const char *p, const char *end, const char *rest, Size len,
							   char *dst, Size cap);

#endif
