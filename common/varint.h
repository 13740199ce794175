/*
 * common/varint.h - unsigned integers in one to five bytes (LEB128).
 *
 * Undo records, the deltas of updates and WAL records are written with them.
 */
#ifndef ZUNDO_VARINT_H
#define ZUNDO_VARINT_H

#include "postgres.h"

/*
 * zvarint_size: returns the number of bytes that zvarint_put writes for v.
 *
 * zvarint_put_long: does what zvarint_put does, for a number of any size.
 *
 * zvarint_get: reads one varint from the bytes p .. end - 1 into *v. Returns
 * the byte after it, or NULL if the bytes end before it does, its value
 * exceeds 32 bits, or it has more bytes than zvarint_put writes.
 * zvarint_get_long does that for a number of any size.
 */
extern int	zvarint_size(uint32 v);
extern char *zvarint_put_long(char *p, uint32 v);
extern const char *zvarint_get_long(const char *p, const char *end, uint32 *v);

static inline const char *
zvarint_get(const char *p, const char *end, uint32 *v)
{
	if (unlikely(p >= end || (uint8) *p >= 0x80))
		return zvarint_get_long(p, end, v);
	*v = (uint8) *p;
	return p + 1;
}

/*
 * Writes v at p, which has space for it; returns the byte after it. Most
 * numbers take one byte.
 */
static inline char *
zvarint_put(char *p, uint32 v)
{
	if (unlikely(v >= 0x80))
		return zvarint_put_long(p, v);
	*p = (char) v;
	return p + 1;
}

/* Maps small positive and negative numbers to small unsigned ones. */
static inline uint32
zigzag_encode(int32 v)
{
	return ((uint32) v << 1) ^ (uint32) (v >> 31);
}

/* Returns the number that zigzag_encode has mapped to v. */
static inline int32
zigzag_decode(uint32 v)
{
	int32		result = (int32) (v >> 1) ^ -(int32) (v & 1);

	Assert(zigzag_encode(result) == v);
	return result;
}

#endif
