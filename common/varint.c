/*
 * common/varint.c - unsigned integers in one to five bytes (LEB128).
 *
 * Pure functions: no locks, no shared state. The reader never looks outside
 * the bytes that it is given.
 */
#include "postgres.h"

#include "common/varint.h"

/* zvarint_size: See varint.h. */
int
zvarint_size(uint32 v)
{
	int			n = 1;

	while (v >= 0x80)
	{
		v >>= 7;
		n++;
	}
	Assert(n <= 5);
	return n;
}

/* zvarint_put_long: See varint.h. */
char *
zvarint_put_long(char *p, uint32 v)
{
	char	   *end PG_USED_FOR_ASSERTS_ONLY = p + zvarint_size(v);

	while (v >= 0x80)
	{
		*p++ = (char) (v | 0x80);
		v >>= 7;
	}
	*p++ = (char) v;
	Assert(p == end);			/* space was taken by zvarint_size */
	return p;
}

/* zvarint_get_long: See varint.h. */
const char *
zvarint_get_long(const char *p, const char *end, uint32 *v)
{
	uint32		result = 0;

	Assert(p <= end);
	for (int shift = 0; shift < 35; shift += 7)
	{
		uint8		b;

		if (p >= end)
			return NULL;
		b = (uint8) *p++;
		if (shift == 28 && b > 0x0F)
			return NULL;
		result |= (uint32) (b & 0x7F) << shift;
		if (b < 0x80)
		{
			if (b == 0 && shift > 0)
				return NULL;
			*v = result;
			return p;
		}
	}
	return NULL;
}
