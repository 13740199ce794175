/*
 * undo/undo_record.c - packing and unpacking of undo records.
 *
 * Owns the packed form described in undo_record.h. Pure functions: called by
 * DML, redo, readers and the unit test alike; no locks, no errors, no state
 * but the compression setting.
 *
 * Invariant
 *	RECORD-1	zur_pack writes exactly zur_length(rec) bytes. zur_unpack
 *		accepts these bytes and gives the same fields back; it and
 *		zur_raw_payload read only inside the bytes they are given. A record of
 *		INSERT or LOCK has no bytes behind its fields, others have their
 *		payload there.
 */
#include "undo/undo_record.h"

#include <lz4.h>

#include "common/varint.h"

/* bytes of type, length and xid */
#define FIXED_START		9
/* bytes of relation OID, block and offset word */
#define FIXED_MIDDLE	10
/* the fixed parts, relation number and command id with one byte each */
#define SHORTEST_RECORD (FIXED_START + 1 + FIXED_MIDDLE + 1)

#define TYPE_MASK		0x0F
#define OPEN_LOCK	0x80		/* with a LOCK's mode: the record is open */
#define OFFSET_MASK		0x01FF
#define XFLAGS_MASK		0xFE00

#define MAX_INSERT_ROWS (OFFSET_MASK + 1)

/* Returns what is stored in the place of the number of rows. */
static inline uint32
stored_rows(const ZuRecord *rec)
{
	return (uint32) (rec->nrows - 1) << 1 | (rec->open ? 1 : 0);
}

/* Smaller payloads hardly ever shrink. */
#define COMPRESS_MIN	200

/* ---- fixed-width pieces ---- */

/*
 * Writes the low n bytes of v, least significant first; returns the place
 * behind them. Inline, so that n is a constant.
 */
static pg_attribute_always_inline char *
put_le(char *p, uint64 v, int n)
{
#ifdef WORDS_BIGENDIAN
	for (int i = 0; i < n; i++)
		p[i] = (char) (v >> (8 * i));
#else
	memcpy(p, &v, n);
#endif
	return p + n;
}

/*
 * Reads n bytes at *p into *v and moves *p behind them; false if they would
 * pass end.
 */
static pg_attribute_always_inline bool
get_le(const char **p, const char *end, int n, uint64 *v)
{
	uint64		result = 0;

	if (end - *p < n)
		return false;
#ifdef WORDS_BIGENDIAN
	for (int i = 0; i < n; i++)
		result |= (uint64) (uint8) (*p)[i] << (8 * i);
#else
	memcpy(&result, *p, n);		/* n is a constant: one or two moves */
#endif
	*p += n;
	*v = result;
	return true;
}

/* ---- records ---- */

/*
 * Returns the flags that rec has on disk: ZUF_FIRST, and those that follow from
 * other fields.
 */
static uint8
stored_flags(const ZuRecord *rec)
{
	uint8		flags = rec->flags & ZUF_FIRST;

	if (rec->prev != InvalidUndoPtr)
		flags |= ZUF_PREV;
	if ((flags & ZUF_FIRST) && rec->topxid != rec->xid)
		flags |= ZUF_TOPXID;
	if (TransactionIdIsValid(rec->as_of))
		flags |= ZUF_AS_OF;
	return flags;
}

/* Returns what is stored in the place of the command id. */
static inline uint32
stored_cid(const ZuRecord *rec)
{
	return TransactionIdIsValid(rec->as_of) ? rec->as_of : rec->cid;
}

/* Returns whether records of this type have a payload. */
static bool
has_payload(ZuRecordType type)
{
	return type != ZUR_INSERT && type != ZUR_LOCK;
}

int
zrecord_first_mode(const ZuRecord *rec)
{
	ZLockEntry	entry;

	if (rec->payload_len < sizeof(entry))
		return 0;
	memcpy(&entry, rec->payload, sizeof(entry));
	return ZLOCK_MODE(entry);
}

/* zur_length: See undo_record.h. Adds up what zur_pack writes (RECORD-1). */
Size
zur_length(ZuRecord *rec)
{
	Size		len = SHORTEST_RECORD - 2;
	uint8		flags = stored_flags(rec);

	len += zvarint_size(zigzag_encode((int32) (rec->relnumber - rec->reloid)));
	len += zvarint_size(stored_cid(rec));
	if (flags & ZUF_PREV)
		len += 8;
	if (flags & ZUF_TOPXID)
		len += 6;
	switch (rec->type)
	{
		case ZUR_INSERT:
			len += zvarint_size(stored_rows(rec));
			if (rec->xflags & ZUX_SPECULATIVE)
				len += 4;
			break;
		case ZUR_DELETE:
			len += zvarint_size(stored_rows(rec));
			break;
		case ZUR_LOCK:
			len += 1;
			break;
		case ZUR_MOVE:
		case ZUR_IMAGE:
		case ZUR_LOCKS:
			len += 6;
			break;
		case ZUR_UPDATE:
		case ZUR_ROWS:
			break;
	}
	if (has_payload(rec->type))
		len += rec->payload_len;
	Assert(len <= ZUR_MAX_LENGTH);
	rec->length = (uint16) len;
	return len;
}

/*
 * zur_pack: See undo_record.h. Writes the fields in the order of the table in
 * undo_record.h.
 */
void
zur_pack(const ZuRecord *rec, char *dst)
{
	char	   *p = dst;
	uint8		flags = stored_flags(rec);

	*p++ = (char) ((uint8) rec->type | flags);
	p = put_le(p, rec->length, 2);
	p = put_le(p, rec->xid, 6);
	p = zvarint_put(p, zigzag_encode((int32) (rec->relnumber - rec->reloid)));
	p = put_le(p, rec->reloid, 4);
	p = put_le(p, rec->block, 4);
	p = put_le(p, (rec->offset & OFFSET_MASK) | (rec->xflags & XFLAGS_MASK), 2);
	p = zvarint_put(p, stored_cid(rec));
	if (flags & ZUF_PREV)
		p = put_le(p, rec->prev, 8);
	if (flags & ZUF_TOPXID)
		p = put_le(p, rec->topxid, 6);
	switch (rec->type)
	{
		case ZUR_INSERT:
			p = zvarint_put(p, stored_rows(rec));
			if (rec->xflags & ZUX_SPECULATIVE)
				p = put_le(p, rec->token, 4);
			break;
		case ZUR_DELETE:
			Assert(rec->open == (rec->nrows > 1));
			p = zvarint_put(p, stored_rows(rec));
			break;
		case ZUR_LOCK:
			*p++ = (char) (rec->lockmode | (rec->open ? OPEN_LOCK : 0));
			break;
		case ZUR_MOVE:
			p = put_le(p, ItemPointerGetBlockNumberNoCheck(&rec->forward), 4);
			p = put_le(p, ItemPointerGetOffsetNumberNoCheck(&rec->forward), 2);
			break;
		case ZUR_IMAGE:
			p = put_le(p, rec->committed, 6);
			break;
		case ZUR_LOCKS:
			p = put_le(p, rec->hold, 6);
			break;
		case ZUR_UPDATE:
		case ZUR_ROWS:
			break;
	}
	if (has_payload(rec->type) && rec->payload_len > 0)
	{
		memcpy(p, rec->payload, rec->payload_len);
		p += rec->payload_len;
	}
	Assert(p == dst + rec->length); /* RECORD-1 */
}

/*
 * Clears the fields that not every record has. One by one, because a memset
 * here is measurable for readers of long chains.
 */
static inline void
clear_optional(ZuRecord *rec)
{
	rec->as_of = InvalidTransactionId;
	rec->prev = InvalidUndoPtr;
	rec->nrows = 0;
	rec->open = false;
	rec->token = 0;
	memset(&rec->forward, 0, sizeof(rec->forward));
	rec->lockmode = 0;
	rec->committed = InvalidZXid;
	rec->hold = InvalidZXid;
	rec->payload = NULL;
	rec->payload_len = 0;
}

/*
 * Unpacks the part of a record that depends on its type, [p, end). Returns
 * false if it is malformed.
 */
static bool
unpack_by_type(const char *p, const char *end, ZuRecord *rec)
{
	uint64		v;
	uint32		rows;

	switch (rec->type)
	{
		case ZUR_INSERT:
		case ZUR_DELETE:
			p = zvarint_get(p, end, &rows);
			if (p == NULL || rows >> 1 >= MAX_INSERT_ROWS)
				return false;
			rec->nrows = (uint16) ((rows >> 1) + 1);
			rec->open = (rows & 1) != 0;
			if (rec->type == ZUR_DELETE)
			{
				if (rec->open != (rec->nrows > 1))
					return false;
				break;
			}
			if (rec->xflags & ZUX_SPECULATIVE)
			{
				if (!get_le(&p, end, 4, &v))
					return false;
				rec->token = (uint32) v;
			}
			return p == end;
		case ZUR_LOCK:
			if (!get_le(&p, end, 1, &v))
				return false;
			rec->lockmode = (uint8) (v & ~OPEN_LOCK);
			rec->open = (v & OPEN_LOCK) != 0;
			return p == end;
		case ZUR_MOVE:
			if (!get_le(&p, end, 4, &v))
				return false;
			ItemPointerSetBlockNumber(&rec->forward, (BlockNumber) v);
			if (!get_le(&p, end, 2, &v))
				return false;
			ItemPointerSetOffsetNumber(&rec->forward, (OffsetNumber) v);
			break;
		case ZUR_IMAGE:
			if (!get_le(&p, end, 6, &v))
				return false;
			rec->committed = v;
			break;
		case ZUR_LOCKS:
			if (!get_le(&p, end, 6, &v) || (end - p) % sizeof(ZLockEntry) != 0 ||
				(rec->xflags & ZUX_LZ4))
				return false;
			rec->hold = v;
			break;
		case ZUR_UPDATE:
		case ZUR_ROWS:
			break;
		default:
			return false;
	}
	if ((rec->xflags & ZUX_LZ4) && end - p < 2)
		return false;
	rec->payload = p;
	rec->payload_len = (uint16) (end - p);
	return true;
}

/*
 * zur_unpack: See undo_record.h. Checks every length, and flags that
 * contradict each other.
 */
bool
zur_unpack(const char *src, Size len, ZuRecord *rec)
{
	Size		length = zur_peek_length(src, len);
	const char *p = src + 3;
	const char *end = src + length;
	uint64		v = 0;
	uint32		delta;

	if (length == 0 || length > len)
		return false;
	clear_optional(rec);
	rec->type = (ZuRecordType) ((uint8) src[0] & TYPE_MASK);
	rec->flags = (uint8) src[0] & ~TYPE_MASK;
	rec->length = (uint16) length;
	if ((rec->flags & (ZUF_TOPXID | ZUF_FIRST)) == ZUF_TOPXID)
		return false;

	(void) get_le(&p, end, 6, &v);	/* length >= SHORTEST_RECORD */
	rec->xid = rec->topxid = v;
	p = zvarint_get(p, end, &delta);
	if (p == NULL || end - p < FIXED_MIDDLE)
		return false;
	(void) get_le(&p, p + FIXED_MIDDLE, 8, &v);
	rec->reloid = (Oid) v;
	rec->relnumber = rec->reloid + (uint32) zigzag_decode(delta);
	rec->block = (BlockNumber) (v >> 32);
	(void) get_le(&p, p + 2, 2, &v);
	rec->offset = (OffsetNumber) (v & OFFSET_MASK);
	rec->xflags = (uint16) (v & XFLAGS_MASK);
	p = zvarint_get(p, end, &rec->cid);
	if (p == NULL)
		return false;
	if (rec->flags & ZUF_AS_OF)
	{
		rec->as_of = rec->cid;
		rec->cid = FirstCommandId;
		if (!TransactionIdIsValid(rec->as_of))
			return false;
	}
	if (rec->flags & ZUF_PREV)
	{
		if (!get_le(&p, end, 8, &v) || v == InvalidUndoPtr)
			return false;
		rec->prev = v;
	}
	if (rec->flags & ZUF_TOPXID)
	{
		if (!get_le(&p, end, 6, &v))
			return false;
		rec->topxid = v;
	}
	return unpack_by_type(p, end, rec);
}

/*
 * zur_layout: See undo_record.h. A record without prev ends its chain, and one
 * with a top-level xid is the first of its transaction: there is one of each.
 * The bytes of an insertion end with a number of rows that its neighbours need
 * not have, and so do those of an open DELETE; an open LOCK is about all rows.
 */
bool
zur_layout(const char *src, const ZuRecord *rec, ZurLayout *layout)
{
	if ((rec->flags & (ZUF_PREV | ZUF_FIRST | ZUF_TOPXID | ZUF_AS_OF)) != ZUF_PREV ||
		(rec->type != ZUR_UPDATE && rec->type != ZUR_DELETE && rec->type != ZUR_LOCK) || rec->open)
		return false;
	layout->src = src;
	layout->length = rec->length;
	layout->offset_at = FIXED_START + (int) zvarint_size(zigzag_encode((int32) (rec->relnumber -
																				rec->reloid))) + 8;
	layout->prev_at = layout->offset_at + 2 + (int) zvarint_size(rec->cid);
	layout->payload_at = layout->prev_at + 8 + (rec->type == ZUR_UPDATE ? 0 : 1);
	layout->least = layout->payload_at + (rec->type == ZUR_LOCK ? 0 : 2);
	Assert(memcmp(src + layout->prev_at, &rec->prev, 8) == 0);
	Assert(rec->payload == NULL || rec->payload == src + layout->payload_at);
	return true;
}

/* Returns whether the n bytes at a and at b, 8 at least, are equal. */
static inline bool
same_bytes(const char *a, const char *b, int n)
{
	uint64		first[2];
	uint64		last[2];

	Assert(n >= 8);
	if (unlikely(n > 16))
		return memcmp(a, b, n) == 0;
	memcpy(&first[0], a, 8);
	memcpy(&first[1], b, 8);
	memcpy(&last[0], a + n - 8, 8);
	memcpy(&last[1], b + n - 8, 8);
	return first[0] == first[1] && last[0] == last[1];
}

/*
 * zur_is_alike: See undo_record.h. Compares the bytes of xid, relation and
 * block, and those of the command id. Two bytes of payload suffice for
 * ZUX_LZ4. The number of rows of a DELETE that is not open is one byte, 0.
 */
bool
zur_is_alike(const ZurLayout *layout, const char *src, Size len, ZuRecord *rec)
{
	Size		length = zur_peek_length(src, len);
	const char *end = src + length;
	const char *p = src + layout->offset_at;
	int			cid_at = layout->offset_at + 2;
	uint64		word = 0;
	UndoPtr		prev = InvalidUndoPtr;

	if (length < (Size) layout->least || length > len || src[0] != layout->src[0] ||
		!same_bytes(src + 3, layout->src + 3, layout->offset_at - 3) ||
		src[cid_at] != layout->src[cid_at] ||
		(layout->prev_at - cid_at > 1 &&
		 memcmp(src + cid_at, layout->src + cid_at, layout->prev_at - cid_at) != 0))
		return false;
	if (rec->type != ZUR_UPDATE &&
		(rec->type == ZUR_DELETE ? src[layout->prev_at + 8] != 0 :
		 length != layout->length || ((uint8) src[length - 1] & OPEN_LOCK) != 0))
		return false;
	(void) get_le(&p, end, 2, &word);
	p = src + layout->prev_at;
	(void) get_le(&p, end, 8, &prev);
	if (prev == InvalidUndoPtr)
		return false;
	rec->offset = (OffsetNumber) (word & OFFSET_MASK);
	rec->xflags = (uint16) (word & XFLAGS_MASK);
	rec->prev = prev;
	rec->length = (uint16) length;
	if (rec->type == ZUR_LOCK)
		rec->lockmode = (uint8) src[length - 1];
	else
	{
		rec->payload = src + layout->payload_at;
		rec->payload_len = (uint16) (length - layout->payload_at);
	}
	return true;
}

/*
 * zur_peek_length: See undo_record.h. Returns 0 also for lengths that no
 * record has, so a caller can use the result as a size.
 */
Size
zur_peek_length(const char *src, Size len)
{
	Size		length;

	if (len < 3)
		return 0;
	length = (Size) (uint8) src[1] | (Size) (uint8) src[2] << 8;
	if (length < SHORTEST_RECORD || length > ZUR_MAX_LENGTH)
		return 0;
	return length;
}

/* ---- payloads ---- */

/*
 * zur_squeeze: See undo_record.h. Leaves less than COMPRESS_MIN bytes as they
 * are.
 */
int
zur_squeeze(const char *bytes, int len, char *dst)
{
	if (zundo_undo_compression != ZUNDO_COMPRESS_LZ4 || len < COMPRESS_MIN)
		return 0;
	return Max(LZ4_compress_default(bytes, dst, len, len - len / 8 - 2), 0);
}

/* zur_expand: See undo_record.h. Trusts neither length. */
bool
zur_expand(const char *squeezed, int n, char *bytes, int len)
{
	return LZ4_decompress_safe(squeezed, bytes, n, len) == len;
}

/* zur_compress: See undo_record.h. The raw length comes before the block. */
void
zur_compress(ZuRecord *rec, char *buf, Size bufsize)
{
	int			n;

	Assert(bufsize >= rec->payload_len);
	if (rec->xflags & ZUX_LZ4)
		return;
	n = zur_squeeze(rec->payload, rec->payload_len, buf + 2);
	if (n == 0)
		return;
	put_le(buf, rec->payload_len, 2);
	rec->payload = buf;
	rec->payload_len = (uint16) (n + 2);
	rec->xflags |= ZUX_LZ4;
}

char *
zur_put_row(char *p, OffsetNumber off, const char *row, int len)
{
	uint16		head[2] = {off, (uint16) len};

	StaticAssertStmt(sizeof(head) == ZUR_ROW_HEAD, "head of a saved row");
	memcpy(p, head, sizeof(head));
	memcpy(p + sizeof(head), row, len);
	return p + sizeof(head) + len;
}

/*
 * zur_raw_payload: See undo_record.h. Trusts neither the raw length nor the
 * compressed bytes.
 */
const char *
zur_raw_payload(const ZuRecord *rec, char *buf, Size bufsize, Size *rawlen)
{
	const char *p = rec->payload;
	const char *end = p + rec->payload_len;
	uint64		raw;

	if (!(rec->xflags & ZUX_LZ4) || !has_payload(rec->type))
	{
		*rawlen = rec->payload_len;
		return rec->payload;
	}
	if (!get_le(&p, end, 2, &raw) || raw > bufsize)
		return NULL;
	if (!zur_expand(p, (int) (end - p), buf, (int) raw))
		return NULL;
	*rawlen = (Size) raw;
	return buf;
}
