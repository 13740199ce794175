/*
 * tuple/zdelta.c - the difference between two versions of a row.
 *
 * Owns the encoding of deltas in undo and WAL records (layout in ztuple.h).
 * Called by dml/ (compute, put), page/ and mvcc/ (zdelta_undo_apply), change/
 * (zdelta_wal_apply and the other zdelta_wal_ functions). Pure functions: no
 * locks, no crash points.
 *
 * Invariant:
 *	DELTA-1	Runs are in ascending order and do not overlap. A resized delta
 *		has exactly one run; any other delta changes no length. Decoders read
 *		only [p, end) and write only dst[0, cap), and return NULL for a delta
 *		that violates this.
 */
#include "postgres.h"

#include "common/varint.h"
#include "tuple/ztuple.h"

#define DELTA_RESIZED	0x80
/*
 * A run ends at this many equal bytes: fewer cost less inside the run than the
 * head of another run.
 */
#define RUN_GAP			3

/* One run of a packed delta. */
typedef struct PackedRun
{
	uint32		off;
	uint32		oldlen;
	uint32		newlen;
	const char *oldbytes;
	const char *newbytes;		/* WAL form only */
} PackedRun;

/* The state of reading a packed delta. */
typedef struct DeltaReader
{
	const char *p;
	const char *end;
	int			nruns;
	bool		resized;
	bool		wal;			/* new bytes follow the old ones */
	uint32		floor;			/* the next run starts here or later (DELTA-1) */
} DeltaReader;

/* Returns the first i in [from, to) with a[i] != b[i], or 'to' if none. */
static inline Size
first_difference(const char *a, const char *b, Size from, Size to)
{
	Assert(from <= to);
	while (to - from >= sizeof(uint64))
	{
		uint64		x;
		uint64		y;

		memcpy(&x, a + from, sizeof(x));
		memcpy(&y, b + from, sizeof(y));
		if (x != y)
			break;
		from += sizeof(uint64);
	}
	while (from < to && a[from] == b[from])
		from++;
	return from;
}

/*
 * Returns the number of equal bytes right before a_end and b_end, at most max.
 */
static inline Size
common_suffix(const char *a_end, const char *b_end, Size max)
{
	Size		n = 0;

	while (max - n >= sizeof(uint64))
	{
		uint64		x;
		uint64		y;

		memcpy(&x, a_end - n - sizeof(x), sizeof(x));
		memcpy(&y, b_end - n - sizeof(y), sizeof(y));
		if (x != y)
			break;
		n += sizeof(uint64);
	}
	while (n < max && a_end[-1 - (ssize_t) n] == b_end[-1 - (ssize_t) n])
		n++;
	return n;
}

/* Sets run i of the delta. */
static inline void
set_run(ZDelta *d, int i, Size off, Size oldlen, Size newlen)
{
	Assert(i >= 0 && i < ZDELTA_MAX_RUNS);
	Assert(off + Max(oldlen, newlen) < BLCKSZ);
	Assert(i == 0 || off >= (Size) d->run[i - 1].off + d->run[i - 1].oldlen);	/* DELTA-1 */
	d->run[i].off = (uint16) off;
	d->run[i].oldlen = (uint16) oldlen;
	d->run[i].newlen = (uint16) newlen;
}

/* Makes the one run between common prefix and suffix (DELTA-1). */
static void
compute_resized(const char *oldbytes, Size oldlen, const char *newbytes, Size newlen, ZDelta *d)
{
	Size		shorter = Min(oldlen, newlen);
	Size		prefix = first_difference(oldbytes, newbytes, 0, shorter);
	Size		suffix = common_suffix(oldbytes + oldlen, newbytes + newlen, shorter - prefix);

	d->resized = true;
	d->nruns = 1;
	set_run(d, 0, prefix, oldlen - prefix - suffix, newlen - prefix - suffix);
}

/* zdelta_compute: See ztuple.h. */
void
zdelta_compute(const char *oldbytes, Size oldlen, const char *newbytes, Size newlen, ZDelta *d)
{
	Size		pos = 0;

	Assert(oldlen < BLCKSZ && newlen < BLCKSZ);

	if (oldlen != newlen)
	{
		compute_resized(oldbytes, oldlen, newbytes, newlen, d);
		return;
	}

	d->resized = false;
	d->nruns = 0;
	for (;;)
	{
		Size		start = first_difference(oldbytes, newbytes, pos, oldlen);
		Size		stop = start + 1;	/* after the last differing byte */

		if (start == oldlen)
			return;
		if (d->nruns == ZDELTA_MAX_RUNS)
			break;
		for (pos = stop; pos < oldlen && pos - stop < RUN_GAP; pos++)
		{
			if (oldbytes[pos] != newbytes[pos])
				stop = pos + 1;
		}
		set_run(d, d->nruns++, start, stop - start, stop - start);
	}

	{
		Size		first = d->run[0].off;
		Size		suffix = common_suffix(oldbytes + oldlen, newbytes + newlen, oldlen - first);

		d->nruns = 1;
		set_run(d, 0, first, oldlen - first - suffix, oldlen - first - suffix);
	}
}

/* Writes offset and lengths of run i to p. */
static char *
put_run_head(char *p, const ZDelta *d, int i)
{
	p = zvarint_put(p, d->run[i].off);
	p = zvarint_put(p, d->run[i].oldlen);
	if (d->resized)
		p = zvarint_put(p, d->run[i].newlen);
	return p;
}

/* Copies len bytes to p and returns the byte after them. */
static char *
put_bytes(char *p, const char *src, Size len)
{
	memcpy(p, src, len);
	return p + len;
}

/* Returns the first byte of a packed delta. */
static inline char
delta_head(const ZDelta *d)
{
	Assert(d->nruns >= 0 && d->nruns <= ZDELTA_MAX_RUNS);
	Assert(!d->resized || d->nruns == 1);	/* DELTA-1 */
	return (char) (d->nruns | (d->resized ? DELTA_RESIZED : 0));
}

/* zdelta_undo_size: See ztuple.h. */
Size
zdelta_undo_size(const ZDelta *d)
{
	Size		size = 1;

	for (int i = 0; i < d->nruns; i++)
	{
		size += zvarint_size(d->run[i].off) + zvarint_size(d->run[i].oldlen);
		if (d->resized)
			size += zvarint_size(d->run[i].newlen);
		size += d->run[i].oldlen;
	}
	return size;
}

/* zdelta_undo_put: See ztuple.h. */
char *
zdelta_undo_put(char *p, const ZDelta *d, const char *oldbytes)
{
	*p++ = delta_head(d);
	for (int i = 0; i < d->nruns; i++)
	{
		p = put_run_head(p, d, i);
		p = put_bytes(p, oldbytes + d->run[i].off, d->run[i].oldlen);
	}
	return p;
}

/* zdelta_wal_put: See ztuple.h. */
char *
zdelta_wal_put(char *p, const ZDelta *d, const char *oldbytes, const char *newbytes)
{
	*p++ = delta_head(d);
	for (int i = 0; i < d->nruns; i++)
	{
		p = put_run_head(p, d, i);
		p = put_bytes(p, oldbytes + d->run[i].off, d->run[i].oldlen);
		p = put_bytes(p, newbytes + d->run[i].off, d->run[i].newlen);
	}
	return p;
}

/*
 * Prepares to read the packed delta at p. Returns false if its first byte is
 * not valid.
 */
static inline bool
reader_start(DeltaReader *r, const char *p, const char *end, bool wal)
{
	uint8		head;

	if (p == NULL || p >= end)
		return false;
	head = (uint8) *p;
	r->p = p + 1;
	r->end = end;
	r->wal = wal;
	r->floor = 0;
	r->resized = (head & DELTA_RESIZED) != 0;
	r->nruns = head & ~DELTA_RESIZED;
	if (r->resized)
		return r->nruns == 1;
	return r->nruns <= ZDELTA_MAX_RUNS;
}

/* Returns the next len bytes, or NULL if fewer are left. */
static inline const char *
reader_bytes(DeltaReader *r, uint32 len)
{
	const char *bytes = r->p;

	if (len > (Size) (r->end - r->p))
		return NULL;
	r->p += len;
	return bytes;
}

/*
 * Reads one run; returns false if it is not valid (DELTA-1). Inline, for
 * readers of long chains.
 */
static pg_attribute_always_inline bool
reader_next(DeltaReader *r, PackedRun *run)
{
	r->p = zvarint_get(r->p, r->end, &run->off);
	if (r->p == NULL)
		return false;
	r->p = zvarint_get(r->p, r->end, &run->oldlen);
	if (r->p == NULL)
		return false;
	run->newlen = run->oldlen;
	if (r->resized)
	{
		r->p = zvarint_get(r->p, r->end, &run->newlen);
		if (r->p == NULL)
			return false;
	}
	if (run->off >= BLCKSZ || run->oldlen >= BLCKSZ || run->newlen >= BLCKSZ ||
		run->off < r->floor)
		return false;
	r->floor = run->off + run->oldlen;

	run->oldbytes = reader_bytes(r, run->oldlen);
	if (run->oldbytes == NULL)
		return false;
	run->newbytes = NULL;
	if (r->wal)
	{
		run->newbytes = reader_bytes(r, run->newlen);
		if (run->newbytes == NULL)
			return false;
	}
	return true;
}

/*
 * Replaces 'cut' bytes at dst + off by 'len' bytes. Returns false if dst has
 * no 'cut' bytes there, or the result would exceed cap.
 */
static bool
replace_bytes(char *dst, Size *total, Size cap, uint32 off, uint32 cut, const char *bytes,
			  uint32 len)
{
	Assert(*total <= cap);
	if ((Size) off + cut > *total || *total - cut + len > cap)
		return false;
	if (cut != len)
		memmove(dst + off + len, dst + off + cut, *total - off - cut);
	memcpy(dst + off, bytes, len);
	*total = *total - cut + len;
	return true;
}

/* zdelta_undo_apply: See ztuple.h. */
const char *
zdelta_undo_apply(const char *p, const char *end, char *dst, Size *len, Size cap)
{
	DeltaReader r;
	PackedRun	run;

	if (!reader_start(&r, p, end, false))
		return NULL;
	for (int i = 0; i < r.nruns; i++)
	{
		if (!reader_next(&r, &run))
			return NULL;
		if (r.resized)
		{
			if (!replace_bytes(dst, len, cap, run.off, run.newlen, run.oldbytes, run.oldlen))
				return NULL;
		}
		else if (run.off + run.oldlen > *len)
			return NULL;
		else
			memcpy(dst + run.off, run.oldbytes, run.oldlen);
	}
	return r.p;
}

/*
 * zdelta_wal_apply: See ztuple.h. If dst does not have the old bytes of the
 * delta, the delta belongs to another version and is treated as not valid.
 */
const char *
zdelta_wal_apply(const char *p, const char *end, char *dst, Size *len, Size cap)
{
	DeltaReader r;
	PackedRun	run;

	if (!reader_start(&r, p, end, true))
		return NULL;
	for (int i = 0; i < r.nruns; i++)
	{
		if (!reader_next(&r, &run))
			return NULL;
		if ((Size) run.off + run.oldlen > *len ||
			memcmp(dst + run.off, run.oldbytes, run.oldlen) != 0)
			return NULL;
		if (!replace_bytes(dst, len, cap, run.off, run.oldlen, run.newbytes, run.newlen))
			return NULL;
	}
	return r.p;
}

/* zdelta_wal_to_undo: See ztuple.h. */
const char *
zdelta_wal_to_undo(const char *p, const char *end, char *dst, Size cap, Size *len)
{
	DeltaReader r;
	PackedRun	run;
	char	   *q = dst;

	if (!reader_start(&r, p, end, true) || cap < 1)
		return NULL;
	*q++ = *p;
	for (int i = 0; i < r.nruns; i++)
	{
		Size		need;

		if (!reader_next(&r, &run))
			return NULL;
		need = zvarint_size(run.off) + zvarint_size(run.oldlen) + run.oldlen;
		if (r.resized)
			need += zvarint_size(run.newlen);
		if (need > cap - (Size) (q - dst))
			return NULL;
		q = zvarint_put(q, run.off);
		q = zvarint_put(q, run.oldlen);
		if (r.resized)
			q = zvarint_put(q, run.newlen);
		q = put_bytes(q, run.oldbytes, run.oldlen);
	}
	*len = q - dst;
	return r.p;
}

/* zdelta_wal_take_out: See ztuple.h. */
char *
zdelta_wal_take_out(const char *p, const char *end, const char *newbytes, Size len, char *dst)
{
	DeltaReader r;
	PackedRun	run;
	Size		pos = 0;		/* in the newer bytes */

	if (!reader_start(&r, p, end, true))
		return NULL;
	for (int i = 0; i < r.nruns; i++)
	{
		if (!reader_next(&r, &run) || (Size) run.off + run.newlen > len)
			return NULL;
		Assert(run.off >= pos); /* DELTA-1 */
		dst = put_bytes(dst, newbytes + pos, run.off - pos);
		pos = run.off + run.newlen;
	}
	return put_bytes(dst, newbytes + pos, len - pos);
}

/* zdelta_wal_put_in: See ztuple.h. */
char *
zdelta_wal_put_in(const char *p, const char *end, const char *rest, Size len, char *dst, Size cap)
{
	DeltaReader r;
	PackedRun	run;
	char	   *q = dst;

	if (!reader_start(&r, p, end, true))
		return NULL;
	for (int i = 0; i < r.nruns; i++)
	{
		Size		kept;

		if (!reader_next(&r, &run))
			return NULL;
		Assert(run.off >= q - dst); /* DELTA-1 */
		kept = run.off - (q - dst);
		if (kept > len || (Size) run.off + run.newlen > cap)
			return NULL;
		q = put_bytes(q, rest, kept);
		q = put_bytes(q, run.newbytes, run.newlen);
		rest += kept;
		len -= kept;
	}
	if (len > cap - (Size) (q - dst))
		return NULL;
	return put_bytes(q, rest, len);
}
