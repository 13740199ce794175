/*
 * tuple/zchunk.h - the row of a TOAST table: a chunk of a value.
 *
 *	0	header (5 bytes; 3 columns, no nulls)
 *	5	u32 value id
 *	9	i32 number of the chunk, from 0 on
 *	13	4-byte varlena header (the column is PLAIN), then the bytes
 */
#ifndef ZUNDO_ZCHUNK_H
#define ZUNDO_ZCHUNK_H

#include "tuple/ztuple.h"

/*
 * All chunks of a value but the last have this size: a constant of the format.
 * Four rows fit on a page beside line pointers of deleted ones.
 */
#define ZCHUNK_SIZE		1900
#define ZCHUNK_HEADER	(ZTUPLE_HEADER_SIZE + 8 + VARHDRSZ)
#define ZCHUNK_ROW_SIZE(n) (ZCHUNK_HEADER + (n))
#define ZCHUNKS(size)	(((size) + ZCHUNK_SIZE - 1) / ZCHUNK_SIZE)

/* zchunk_form: writes the row of a chunk to row; returns its length. */
static inline uint32
zchunk_form(char *row, Oid valueid, int32 seq, const char *data, int32 size)
{
	struct varlena v;

	SET_VARSIZE(&v, size + VARHDRSZ);
	zheader_set(row, 3);
	memcpy(row + 5, &valueid, 4);
	memcpy(row + 9, &seq, 4);
	memcpy(row + 13, &v, 4);
	memcpy(row + ZCHUNK_HEADER, data, size);
	return ZCHUNK_ROW_SIZE(size);
}

/* zchunk_is_of: returns whether the row is a chunk of the value. */
static inline bool
zchunk_is_of(const char *row, int len, Oid valueid)
{
	return len >= ZCHUNK_HEADER && ZH_NATTS(zheader_get(row)) == 3 &&
		(zheader_get(row) & ZH_NULLS) == 0 && memcmp(row + 5, &valueid, 4) == 0;
}

/*
 * zchunk_bytes: returns the bytes of the chunk in row and sets *size; NULL if
 * it is not chunk seq of the value.
 */
static inline const char *
zchunk_bytes(const char *row, int len, Oid valueid, int32 seq, int32 *size)
{
	struct varlena v;

	if (!zchunk_is_of(row, len, valueid) || memcmp(row + 9, &seq, 4) != 0)
		return NULL;
	memcpy(&v, row + 13, 4);
	*size = VARSIZE(&v) - VARHDRSZ;
	return *size == len - ZCHUNK_HEADER ? row + ZCHUNK_HEADER : NULL;
}

#endif
