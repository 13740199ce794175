/*
 * change/zwal_internal.h - declarations for the files that encode and decode
 * row changes: zwal.c, zwal_compact.c, zwal_literal.c and zlogical.c.
 */
#ifndef ZUNDO_ZWAL_INTERNAL_H
#define ZUNDO_ZWAL_INTERNAL_H

#include "change/zchange.h"
#include "change/zwal.h"
#include "common/varint.h"
#include "tuple/ztuple.h"

/*
 * A record as the decoder reads it: the main data, and what the record's header
 * and its block references say. A length that does not fit sets 'bad', after
 * which get_bytes returns NULL, the other get_ functions 0, and copy_bytes
 * leaves dst as it is.
 */
typedef struct ZWalReader
{
	const char *p;
	const char *end;
	bool		bad;
	uint8		opcode;
	uint8		flags;
	TransactionId xid;
	RelFileNumber relnumber;	/* of block 0, if there is one */
	BlockNumber block;
	BlockNumber undo_block;		/* the first undo page's block */
	int			nundo_pages;
	bool		overflow[2];
} ZWalReader;

/* ---- bytes ---- */

/* Appends len bytes at p. Returns their end. */
static inline char *
put_bytes(char *p, const void *src, Size len)
{
	memcpy(p, src, len);
	return p + len;
}

/* Returns the next len bytes of the main data, or NULL if there are fewer. */
static inline const char *
get_bytes(ZWalReader *r, Size len)
{
	const char *p = r->p;

	if (r->bad || (Size) (r->end - r->p) < len)
	{
		r->bad = true;
		return NULL;
	}
	r->p += len;
	return p;
}

/* Copies the next len bytes of the main data to dst. */
static inline void
copy_bytes(ZWalReader *r, void *dst, Size len)
{
	const char *p = get_bytes(r, len);

	if (p != NULL)
		memcpy(dst, p, len);
}

/* Returns the next byte of the main data. */
static inline uint8
get_byte(ZWalReader *r)
{
	uint8		b = 0;

	copy_bytes(r, &b, 1);
	return b;
}

/* Returns the next number of the main data. */
static inline uint32
get_varint(ZWalReader *r)
{
	uint32		v = 0;
	const char *next = r->bad ? NULL : zvarint_get(r->p, r->end, &v);

	if (next == NULL)
	{
		r->bad = true;
		return 0;
	}
	r->p = next;
	return v;
}

/* Returns the next number of the main data, which is not above limit. */
static inline uint32
get_limited(ZWalReader *r, uint32 limit)
{
	uint32		v = get_varint(r);

	if (v <= limit)
		return v;
	r->bad = true;
	return 0;
}

/* Returns the part of a new row's header that a WAL record has. */
static inline uint32
zwal_shape_of(ZHeader h)
{
	return ZH_NATTS(h) << 2 | ((h & ZH_NULLS) ? 1 : 0) | ((h & ZH_EXTERNAL) ? 2 : 0);
}

/* Returns the header, without a slot, of a row of this shape. */
static inline ZHeader
zwal_header_of_shape(uint32 shape)
{
	return (ZHeader) ((shape >> 2) & ZH_NATTS_MASK) | ((shape & 1) ? ZH_NULLS : 0) |
		((shape & 2) ? ZH_EXTERNAL : 0);
}

/*
 * Adds bytes to the main data of wal. They are not copied, so they must exist
 * until the record has been inserted.
 */
static inline void
zwal_add_part(ZChangeWal *wal, const char *data, uint32 length)
{
	Assert(wal->nparts < ZCHANGE_MAX_PARTS);
	wal->part[wal->nparts].data = data;
	wal->part[wal->nparts++].length = length;
}

/*
 * Returns whether the record for change, written with this opcode, has fields
 * from which the undo records are built, not the packed records.
 */
static inline bool
is_compact(const ZChange *change, uint8 opcode)
{
	return opcode == ZWAL_INSERT || opcode == ZWAL_UPDATE ||
		((opcode == ZWAL_DELETE || opcode == ZWAL_MOVE || opcode == ZWAL_IMAGE) &&
		 change->compact);
}

/* ---- the two families of encodings ---- */

/*
 * zwal_encode_compact: encodes a change for which is_compact holds, after its
 * place: the fields from which the undo records are built. p is where they
 * begin in wal->head.
 */
extern void zwal_encode_compact(const ZChange *change, ZChangeWal *wal, char *p);

/*
 * zwal_decode_compact: decodes what zwal_encode_compact wrote. The lengths of
 * the undo records are set; the caller packs them when it knows their places.
 * Sets r->bad if the record is malformed.
 */
extern void zwal_decode_compact(ZWalReader *r, ZChange *change, ZChangeWork *work);

/*
 * zwal_put_covered: writes to dst, which has ZWAL_COVERED_HEAD_MAX bytes, what
 * a covered INSERT has before its row. Returns its end.
 */
#define ZWAL_COVERED_HEAD_MAX 15

extern char *zwal_put_covered(char *dst, OffsetNumber off, ZHeader h);

/* zwal_put_covered_delete: the same, all that a covered DELETE has. */
extern char *zwal_put_covered_delete(char *dst, OffsetNumber off, ZHeader h);

/*
 * zwal_decode_covered: reads what either wrote, and forms the row. Sets r->bad
 * if the record is malformed.
 */
extern void zwal_decode_covered(ZWalReader *r, ZChange *change, ZChangeWork *work);

/*
 * zwal_encode_literal: encodes any other change after its place: the packed
 * undo records, and what only its kind of change has.
 */
extern void zwal_encode_literal(const ZChange *change, ZChangeWal *wal, char *p);

/*
 * zwal_decode_literal: decodes what zwal_encode_literal wrote; the undo records
 * stay where they are. Sets r->bad if the record is malformed.
 */
extern void zwal_decode_literal(ZWalReader *r, ZChange *change, ZChangeWork *work);

#endif
