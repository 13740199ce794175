/*
 * tuple/ztuple.h - the row format: 5-byte header, null bitmap, unaligned columns.
 *
 * A row is:	header (5 bytes) | null bitmap ((natts+7)/8 bytes, only if
 *				ZH_NULLS) | columns without padding.
 *
 * Header bits (40, little endian, by memcpy):
 *	0-10 natts | 11-19 slot (0 = visible to all) | 20 nulls | 21 external |
 *	22-23 state | 24 other partition | 25-27 lock hint | 28 key change |
 *	29 stale index keys possible | 30 speculative | 31 slack | 32-39 zero
 *
 * Columns: fixed length: attlen bytes; by-value ones in native byte order.
 * varlena: 1-byte header where the value is short enough and the storage
 * allows, else 4-byte header; external pointers as they are. cstring: with its 0.
 */
#ifndef ZUNDO_ZTUPLE_H
#define ZUNDO_ZTUPLE_H

#include "common/zundo.h"
#include "access/tupdesc.h"
#include "access/htup.h"
#include "executor/tuptable.h"

#define ZTUPLE_HEADER_SIZE	5

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
#define ZH_ZERO_MASK	(UINT64CONST(0xFF) << 32)

/* Row states; the same numbers stand in lp_len of a stub. */
#define ZSTATE_INSERTED 0
#define ZSTATE_UPDATED	1
#define ZSTATE_DELETED	2
#define ZSTATE_MOVED	3

static inline ZHeader
zheader_get(const char *row)
{
	uint32		low;

	memcpy(&low, row, 4);
	return (ZHeader) low | ((ZHeader) (uint8) row[4] << 32);
}

static inline void
zheader_set(char *row, ZHeader h)
{
	uint32		low = (uint32) h;

	memcpy(row, &low, 4);
	row[4] = (char) (h >> 32);
}

#define ZH_NATTS(h)		((int) ((h) & ZH_NATTS_MASK))
#define ZH_SLOT(h)		((int) (((h) & ZH_SLOT_MASK) >> ZH_SLOT_SHIFT))
#define ZH_STATE(h)		((int) (((h) & ZH_STATE_MASK) >> ZH_STATE_SHIFT))
#define ZH_LOCK(h)		((int) (((h) & ZH_LOCK_MASK) >> ZH_LOCK_SHIFT))
#define ZH_WITH_SLOT(h, s)	(((h) & ~ZH_SLOT_MASK) | ((ZHeader) (s) << ZH_SLOT_SHIFT))
#define ZH_WITH_STATE(h, s) (((h) & ~ZH_STATE_MASK) | ((ZHeader) (s) << ZH_STATE_SHIFT))
#define ZH_WITH_LOCK(h, l)	(((h) & ~ZH_LOCK_MASK) | ((ZHeader) (l) << ZH_LOCK_SHIFT))
/* ZH_LIVE: is the row there for who sees its newest version? */
#define ZH_LIVE(h)		(ZH_STATE(h) <= ZSTATE_UPDATED)

/*
 * A compact header is what undo keeps of a header: everything but slack and the
 * lock hint. 2 bytes, or 4 if natts/nulls/external differ from 'base'
 * (base = the header that the reader of the compact form will have; 0 forces the long form).
 */
extern int	zheader_compact_size(ZHeader h, ZHeader base);
extern char *zheader_compact_put(char *p, ZHeader h, ZHeader base);
extern const char *zheader_compact_get(const char *p, const char *end, ZHeader base, ZHeader *h);

/* zheader_compact_set_slot: give the header whose compact form is at p another slot. */
extern void zheader_compact_set_slot(char *p, int slot);

/*
 * zheader_updated: the header of a row after an in-place update: natts, nulls and external
 * from 'shape', lock hint and stale keys from 'current', the rest as given.
 */
static inline ZHeader
zheader_updated(ZHeader current, ZHeader shape, int slotno, bool key_change)
{
	ZHeader		h = (shape & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL)) |
		(current & (ZH_LOCK_MASK | ZH_STALE_KEYS));

	h = ZH_WITH_STATE(ZH_WITH_SLOT(h, slotno), ZSTATE_UPDATED);
	return key_change ? (h | ZH_KEY_CHANGE) : h;
}

/* Do two headers agree in what a compact short form omits? */
static inline bool
zheader_same_shape(ZHeader a, ZHeader b)
{
	return ((a ^ b) & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL)) == 0;
}

/* ---- forming and deforming ---- */

/*
 * ztuple_size / ztuple_form: the row that holds values/isnull. ztuple_form
 * writes exactly ztuple_size bytes to dst; the header has natts, nulls,
 * external, state 0, slot 0. Values must be flat: no expanded objects
 * (ztuple_size flattens them in place in 'values', palloc'd in the current context).
 * ztuple_size: error ERRCODE_PROGRAM_LIMIT_EXCEEDED if it exceeds ztuple_max_size().
 */
extern Size ztuple_size(TupleDesc desc, Datum *values, const bool *isnull);
extern void ztuple_form(TupleDesc desc, const Datum *values, const bool *isnull, char *dst, Size len);

/*
 * ztuple_size_any: ztuple_size without the limit, for rows that are not (yet)
 * to be put on a page: slots, values before toasting. ztuple_check_size raises
 * the error for a size found so.
 */
extern Size ztuple_size_any(TupleDesc desc, Datum *values, const bool *isnull);
extern void ztuple_check_size(Size len);

/* Largest row: what heap could store too, so that ALTER ... SET ACCESS METHOD works both ways. */
extern Size ztuple_max_size(void);

/*
 * Deform state for one row. Columns are read left to right on demand; by-ref
 * values that the core reads in place and that are not aligned are copied to 'scratch'.
 */
typedef struct ZDeform
{
	const char *row;
	Size		len;
	uint32		off;			/* of the next column's bytes in row */
	int			next;			/* next attribute, 0-based */
	char	   *scratch;		/* aligned copies; capacity zdeform_scratch_size */
	Size		scratch_used;
} ZDeform;

/* zdeform_scratch_size: bytes of scratch that a row of len bytes can need under desc. 0 = none: no column needs it. */
extern Size zdeform_scratch_size(TupleDesc desc, Size len);

/*
 * zdeform_start: begin to read the row. scratch is MAXALIGNed and has zdeform_scratch_size bytes, or
 * is NULL if that is 0. False if the header is bad.
 */
extern bool zdeform_start(ZDeform *d, const char *row, Size len, char *scratch);

/*
 * zdeform_columns: fill values/isnull for attributes d->next .. natts-1 (natts <= the row's natts).
 * 0, or the number of the first column that would reach beyond the row's end.
 */
extern int	zdeform_columns(ZDeform *d, TupleDesc desc, int natts, Datum *values, bool *isnull);

/* zdeform_byval: the datum whose attlen bytes are at p. */
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
 * ztuple_corrupted: raise ERRCODE_DATA_CORRUPTED for the row at tid, at column attno or, if that is
 * 0, its header. relname, tid: NULL = not known.
 */
extern void ztuple_corrupted(const char *relname, ItemPointer tid, int attno) zc_noreturn pg_attribute_cold;

/*
 * ztuple_getattr: one column (1-based), missing attributes included; by-ref results are palloc'd when unaligned.
 * Error ztuple_corrupted, with relname and tid.
 */
extern Datum ztuple_getattr(const char *row, Size len, TupleDesc desc, int attno, bool *isnull,
							const char *relname, ItemPointer tid);

/* ztuple_to_heap: palloc'd HeapTuple with the same values. Error ztuple_corrupted, with relname and tid. */
extern HeapTuple ztuple_to_heap(const char *row, Size len, TupleDesc desc, const char *relname, ItemPointer tid);

/* ztuple_header_ok: is row well formed under natts etc.? Cheap structural test used by zundo.check; no tupdesc. */
extern bool ztuple_header_ok(const char *row, Size len);

/* ---- deltas (tuple/zdelta.c) ---- */

/*
 * The bytes in which two rows (without their headers) differ: up to
 * ZDELTA_MAX_RUNS runs. If the lengths are equal, runs are (off, len) pairs of
 * equal length on both sides; else there is one run (off, oldlen, newlen).
 * An empty delta (0 runs) is legal.
 *
 * Undo form:	byte: nruns | 0x80 if lengths differ; per run: varint off, varint oldlen,
 *				[varint newlen], old bytes.
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

extern void zdelta_compute(const char *oldbytes, Size oldlen, const char *newbytes, Size newlen, ZDelta *d);
extern Size zdelta_undo_size(const ZDelta *d);
extern char *zdelta_undo_put(char *p, const ZDelta *d, const char *oldbytes);
extern Size zdelta_wal_size(const ZDelta *d);
extern char *zdelta_wal_put(char *p, const ZDelta *d, const char *oldbytes, const char *newbytes);

/*
 * zdelta_undo_apply: dst (capacity cap) holds the newer bytes, *len of them; turn it into the
 * older. Returns the byte after the delta, NULL if malformed (dst is then unspecified).
 */
extern const char *zdelta_undo_apply(const char *p, const char *end, char *dst, Size *len, Size cap);

/* zdelta_wal_apply: the other direction, from the WAL form: older bytes become the newer. */
extern const char *zdelta_wal_apply(const char *p, const char *end, char *dst, Size *len, Size cap);

/* zdelta_wal_to_undo: rewrite the WAL form at p as the undo form at dst (cap bytes); *len = its size. Returns the byte after the WAL form or NULL. */
extern const char *zdelta_wal_to_undo(const char *p, const char *end, char *dst, Size cap, Size *len);

#endif
