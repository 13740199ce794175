/*
 * tuple/zheader.c - the compact form of a row header, and checks of headers.
 *
 * Owns the compact form, in which undo and WAL records keep a header. Called by
 * dml/ and change/ (put), page/, mvcc/ and change/ (get). Pure functions: no
 * locks, no crash points.
 *
 * Compact form, little endian:
 *
 *	BITS   FIELD
 *	0      1 = long form, 4 bytes; 0 = short form, 2 bytes
 *	1-9    slot
 *	10-11  state
 *	12     other partition
 *	13     key change
 *	14     stale keys
 *	15     speculative
 *	16-26  number of attributes	(long form only, from here on)
 *	27     nulls
 *	28     external
 *	29-31  zero
 *
 * Invariant:
 *	HEADER-1	A compact header has no lock hint, lock tag or slack bit: these
 *		describe the row's place on the page and not the version.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "tuple/ztuple.h"

#define ZH_SHAPE	(ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL)

#define COMPACT_LONG	0x1
#define COMPACT_SLOT_SHIFT	1
#define COMPACT_ZERO	(UINT32_C(7) << 29)
/*
 * Neighbouring fields that are neighbours in a header too, and how much farther
 * left, or right, they are there.
 */
#define COMPACT_SLOT	UINT32_C(0x03FE)
#define SLOT_LEFT		10
#define COMPACT_STATE	UINT32_C(0x1C00)	/* and other partition */
#define STATE_LEFT		12
#define COMPACT_FLAGS	UINT32_C(0xE000)	/* key change, stale keys,
											 * speculative */
#define FLAGS_LEFT		15
#define COMPACT_NATTS	(UINT32_C(0x7FF) << 16)
#define NATTS_RIGHT		16
#define COMPACT_SHAPE	(UINT32_C(3) << 27) /* nulls, external */
#define SHAPE_RIGHT		7

StaticAssertDecl((ZHeader) COMPACT_SLOT << SLOT_LEFT == ZH_SLOT_MASK &&
				 (ZHeader) COMPACT_STATE << STATE_LEFT == (ZH_STATE_MASK | ZH_OTHER_PART) &&
				 (ZHeader) COMPACT_FLAGS << FLAGS_LEFT ==
				 (ZH_KEY_CHANGE | ZH_STALE_KEYS | ZH_SPECULATIVE) &&
				 COMPACT_NATTS >> NATTS_RIGHT == ZH_NATTS_MASK &&
				 COMPACT_SHAPE >> SHAPE_RIGHT == (ZH_NULLS | ZH_EXTERNAL),
				 "fields of the compact form");

/*
 * Returns true if the compact form of h must contain its shape (attributes,
 * nulls, external): unless the header that the reader will have, the base, has
 * the same shape, other than 0.
 */
static inline bool
needs_long_form(ZHeader h, ZHeader base)
{
	return (base & ZH_SHAPE) == 0 || ((h ^ base) & ZH_SHAPE) != 0;
}

/* zheader_compact_put: See ztuple.h. */
char *
zheader_compact_put(char *p, ZHeader h, ZHeader base)
{
	uint32		c = 0;

	Assert(ZH_NATTS(h) <= MaxHeapAttributeNumber);

	c |= (uint32) (h >> SLOT_LEFT) & COMPACT_SLOT;
	c |= (uint32) (h >> STATE_LEFT) & COMPACT_STATE;
	c |= (uint32) (h >> FLAGS_LEFT) & COMPACT_FLAGS;
	if (needs_long_form(h, base))
	{
		c |= COMPACT_LONG;
		c |= (uint32) (h << NATTS_RIGHT) & COMPACT_NATTS;
		c |= (uint32) (h << SHAPE_RIGHT) & COMPACT_SHAPE;
	}

	*p++ = (char) c;
	*p++ = (char) (c >> 8);
	if (c & COMPACT_LONG)
	{
		*p++ = (char) (c >> 16);
		*p++ = (char) (c >> 24);
	}
	return p;
}

/*
 * zheader_compact_get: See ztuple.h. Trusts nothing, since undo and WAL may be
 * damaged: refuses a long form with bits or a number of attributes that no
 * header has, and a short form without a base.
 */
const char *
zheader_compact_get(const char *p, const char *end, ZHeader base, ZHeader *h)
{
	uint32		c;
	ZHeader		r;

	Assert(p <= end);
	if (end - p < 2)
		return NULL;
	c = (uint8) p[0] | (uint32) (uint8) p[1] << 8;
	p += 2;

	if (c & COMPACT_LONG)
	{
		if (end - p < 2)
			return NULL;
		c |= (uint32) (uint8) p[0] << 16 | (uint32) (uint8) p[1] << 24;
		p += 2;
		if (c & COMPACT_ZERO)
			return NULL;
		r = (c & COMPACT_NATTS) >> NATTS_RIGHT;
		if (r > MaxHeapAttributeNumber)
			return NULL;
		r |= (c & COMPACT_SHAPE) >> SHAPE_RIGHT;
	}
	else
	{
		if ((base & ZH_SHAPE) == 0)
			return NULL;
		r = base & ZH_SHAPE;
	}

	r |= (ZHeader) (c & COMPACT_SLOT) << SLOT_LEFT;
	r |= (ZHeader) (c & COMPACT_STATE) << STATE_LEFT;
	r |= (ZHeader) (c & COMPACT_FLAGS) << FLAGS_LEFT;
	Assert((r & (ZH_LOCK_MASK | ZH_SLACK | ZH_TAG_MASK)) == 0); /* HEADER-1 */
	*h = r;
	return p;
}

/* zheader_compact_set_slot: See ztuple.h. */
void
zheader_compact_set_slot(char *p, int slot)
{
	uint32		c = (uint32) (uint8) p[0] | (uint32) (uint8) p[1] << 8;

	Assert(slot >= 0 && slot <= 0x1FF);
	c = (c & ~COMPACT_SLOT) | (uint32) slot << COMPACT_SLOT_SHIFT;
	p[0] = (char) c;
	p[1] = (char) (c >> 8);
}

/* ztuple_header_ok: See ztuple.h. */
bool
ztuple_header_ok(const char *row, Size len)
{
	ZHeader		h;

	if (len < ZTUPLE_HEADER_SIZE)
		return false;
	h = zheader_get(row);
	if (ZH_NATTS(h) > MaxHeapAttributeNumber)
		return false;
	if ((h & ZH_NULLS) && len < ZTUPLE_HEADER_SIZE + (Size) (ZH_NATTS(h) + 7) / 8)
		return false;
	return true;
}
