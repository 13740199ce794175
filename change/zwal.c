/*
 * change/zwal.c - building and decoding row change records.
 *
 * Builders run inside critical sections: they use fixed buffers and cannot
 * fail. The decoder is the only reader of the layout; redo and desc use it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "common/varint.h"
#include "tuple/ztuple.h"
#include "change/zwal.h"

/* Main data of a compact or literal record before its long parts: bounded by this. */
#define HEAD_MAX 128

/* Head buffers live until XLogInsert; one record is built at a time. */
static char head[HEAD_MAX];
static char delta_bytes[2 * BLCKSZ];

static char *
put_bytes(char *p, const void *src, Size len)
{
	memcpy(p, src, len);
	return p + len;
}

/* Fields that every row change begins with. */
static char *
put_common(char *p, uint8 flags, const ZuOp *op)
{
	uint16		start = op->start;

	if (op->init[0])
		flags |= ZWD_UNDO_INIT;
	if (op->first)
		flags |= ZWD_FIRST;
	*p++ = (char) flags;
	p = zvarint_put(p, op->place.generation);
	if (op->init[0] || op->npages > 1)
	{
		p = zvarint_put(p, op->place.logno);
		p = put_bytes(p, &op->place.sequence, 8);
		p = put_bytes(p, &op->place.topxid, 6);
		if (op->init[0] && zuptr_byte(op->ptr[0]) < BLCKSZ)
			p = put_bytes(p, &op->place.prev, 8);
	}
	return put_bytes(p, &start, 2);
}

/* An undo pointer in 5 to 10 bytes: generation and extent are small numbers. */
static char *
put_pointer(char *p, UndoPtr ptr)
{
	uint32		byte = zuptr_byte(ptr);

	p = zvarint_put(p, zuptr_generation(ptr));
	p = zvarint_put(p, zuptr_extent(ptr));
	return put_bytes(p, &byte, 3);
}

/* Fields of a compact record. */
static char *
put_compact(char *p, const ZWalSlot *slot, const ZuRecord *rec)
{
	p = zvarint_put(p, slot->slotno);
	p = zvarint_put(p, rec->offset);
	p = zvarint_put(p, rec->cid);
	p = zvarint_put(p, zigzag_encode((int32) (rec->relnumber - rec->reloid)));
	if (rec->prev != InvalidUndoPtr)
		p = put_pointer(p, rec->prev);
	if (rec->topxid != rec->xid)
		p = put_bytes(p, &rec->topxid, 6);
	if (slot->grow_to)
		*p++ = (char) slot->grow_to;
	return p;
}

static uint8
compact_flags(const ZWalSlot *slot, const ZuRecord *rec, bool page_init)
{
	return (page_init ? ZWD_PAGE_INIT : 0) |
		(rec->prev != InvalidUndoPtr ? ZWD_PREV : 0) |
		(rec->topxid != rec->xid ? ZWD_TOPXID : 0) |
		(slot->grow_to ? ZWD_GROW : 0);
}

void
zwal_ensure_space(const ZuOp *op, bool overflow)
{
	ZUNDO_FAULT("before-change");
	if (overflow)
		XLogEnsureRecordSpace(ZWAL_OVERFLOW_BLOCK + 1, 0);
	else if (op->npages > 2)
		XLogEnsureRecordSpace(ZWAL_UNDO_BLOCK + op->npages, 0);
}

/* The undo pages of op and the overflow pages that the change's slots lie on. */
static void
register_undo(ZuOp *op, const ZWalSlot *slot)
{
	zu_register(op, ZWAL_UNDO_BLOCK);
	if (unlikely(BufferIsValid(slot->overflow)))
		XLogRegisterBuffer(ZWAL_OVERFLOW_BLOCK, slot->overflow, REGBUF_STANDARD);
	if (unlikely(BufferIsValid(slot->new_overflow)))
		XLogRegisterBuffer(ZWAL_OVERFLOW_BLOCK + 1, slot->new_overflow, REGBUF_STANDARD);
}

static void
register_table(uint8 id, Buffer buf, bool page_init)
{
	XLogRegisterBuffer(id, buf, REGBUF_STANDARD | (page_init ? REGBUF_WILL_INIT : 0));
}

/* Begins the record of a row change, with its origin if it may be decoded. */
static void
begin_change(void)
{
	XLogBeginInsert();
	if (unlikely(XLogLogicalInfoActive()))
		XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
}

XLogRecPtr
zwal_log_insert(Buffer buf, bool page_init, const ZWalSlot *slot, ZuOp *op, const char *row, Size len)
{
	const ZuRecord *rec = op->records[0];
	ZHeader		h = zheader_get(row);
	uint32		shape = ZH_NATTS(h) << 2 | ((h & ZH_NULLS) ? 1 : 0) | ((h & ZH_EXTERNAL) ? 2 : 0);
	uint8		flags = compact_flags(slot, rec, page_init) | (ZH_SLOT(h) == 0 ? ZWD_FROZEN : 0);
	char	   *p = put_common(head, flags, op);

	p = put_compact(p, slot, rec);
	p = zvarint_put(p, shape);
	begin_change();
	XLogRegisterData(head, p - head);
	XLogRegisterData((char *) row + ZTUPLE_HEADER_SIZE, len - ZTUPLE_HEADER_SIZE);
	register_table(0, buf, page_init);
	register_undo(op, slot);
	return XLogInsert(ZUNDO_RMGR_ID, ZWAL_INSERT);
}

XLogRecPtr
zwal_log_update(Buffer buf, const ZWalSlot *slot, ZuOp *op, bool clear_locks, const char *oldrow,
				const char *newrow, const ZDelta *delta)
{
	const ZuRecord *rec = op->records[0];
	ZHeader		old = zheader_get(oldrow);
	ZHeader		new = zheader_get(newrow);
	char	   *p = put_common(head, compact_flags(slot, rec, false), op);
	char	   *end;
	uint8		uflags = 0;

	if (rec->xflags & ZUX_KEY_CHANGE)
		uflags |= ZWU_KEY_CHANGE;
	if (clear_locks)
		uflags |= ZWU_CLEAR_LOCKS;
	if (!zheader_same_shape(old, new))
		uflags |= ZWU_HEADER;
	p = put_compact(p, slot, rec);
	*p++ = (char) uflags;
	if (uflags & ZWU_HEADER)
		p = zheader_compact_put(p, new, 0);
	p = zheader_compact_put(p, old, new);
	end = zdelta_wal_put(delta_bytes, delta, oldrow + ZTUPLE_HEADER_SIZE, newrow + ZTUPLE_HEADER_SIZE);
	begin_change();
	XLogRegisterData(head, p - head);
	XLogRegisterData(delta_bytes, end - delta_bytes);
	register_table(0, buf, false);
	register_undo(op, slot);
	return XLogInsert(ZUNDO_RMGR_ID, ZWAL_UPDATE);
}

XLogRecPtr
zwal_log_literal(uint8 opcode, uint8 flags, Buffer buf, Buffer buf2, const ZWalSlot *slot, ZuOp *op,
				 const char *undo_bytes, const char *data, Size data_len)
{
	char	   *p;

	if (op->temp)
		return InvalidXLogRecPtr;
	if (slot->grow_to)
		flags |= ZWD_GROW;
	if (slot->live_chain)
		flags |= ZWD_LIVE_CHAIN;
	p = put_common(head, flags, op);
	p = zvarint_put(p, slot->slotno);
	if (slot->grow_to)
		*p++ = (char) slot->grow_to;
	p = zvarint_put(p, op->nrecords);
	p = zvarint_put(p, op->total);
	begin_change();
	XLogRegisterData(head, p - head);
	XLogRegisterData((char *) undo_bytes, op->total);
	if (data_len > 0)
		XLogRegisterData((char *) data, data_len);
	if (BufferIsValid(buf))
		register_table(0, buf, (flags & ZWD_PAGE_INIT) != 0);
	if (BufferIsValid(buf2))
		register_table(1, buf2, (flags & ZWD_NEW_PAGE_INIT) != 0);
	register_undo(op, slot);
	return XLogInsert(ZUNDO_RMGR_ID, opcode);
}

XLogRecPtr
zwal_log_inline_lock(Buffer buf, const ZWalInlineLock *lock)
{
	uint16		word = lock->offset | lock->mode << 9 | (lock->fresh ? ZWI_FRESH : 0) |
		(lock->grow_to ? ZWI_GROW : 0);
	char	   *p = put_bytes(head, &word, 2);

	*p++ = (char) lock->slotno;
	if (lock->grow_to)
		*p++ = (char) lock->grow_to;
	XLogBeginInsert();
	XLogRegisterData(head, p - head);
	register_table(0, buf, false);
	return XLogInsert(ZUNDO_RMGR_ID, ZWAL_INLINE_LOCK);
}

/* ---- decoding ---- */

typedef struct Reader
{
	const char *p;
	const char *end;
	bool		bad;
} Reader;

static uint32
get_varint(Reader *r)
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

static const char *
get_bytes(Reader *r, Size len)
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

static void
copy_bytes(Reader *r, void *dst, Size len)
{
	const char *p = get_bytes(r, len);

	if (p != NULL)
		memcpy(dst, p, len);
}

static uint8
get_byte(Reader *r)
{
	uint8		b = 0;

	copy_bytes(r, &b, 1);
	return b;
}

static UndoPtr
get_pointer(Reader *r)
{
	uint32		generation = get_varint(r);
	uint32		extent = get_varint(r);
	uint32		byte = 0;

	copy_bytes(r, &byte, 3);
	return zuptr_make(generation, extent, byte);
}

/* Where the undo of this record begins, as a pointer; the block number tells the extent. */
static UndoPtr
undo_position(XLogReaderState *record, const ZWalChange *change)
{
	BlockNumber block;
	uint32		extent,
				page;

	zc_block_tag(record, ZWAL_UNDO_BLOCK, NULL, NULL, &block);
	if (!zu_block_position(block, &extent, &page))
		return InvalidUndoPtr;
	return zuptr_make(change->place.generation, extent, page * BLCKSZ + change->start);
}

/* What stands in the headers of the undo pages that the record initializes. */
static void
decode_place(XLogReaderState *record, Reader *r, ZWalChange *change)
{
	ZuPlace    *place = &change->place;
	UndoPtr		position = undo_position(record, change);

	place->logno = get_varint(r);
	copy_bytes(r, &place->sequence, 8);
	copy_bytes(r, &place->topxid, 6);
	if ((change->flags & ZWD_UNDO_INIT) && position != InvalidUndoPtr && zuptr_byte(position) < BLCKSZ)
		copy_bytes(r, &place->prev, 8);
}

/* Pointers of the records that lie one after the other from the first one's position. */
static bool
place_records(XLogReaderState *record, ZWalChange *change)
{
	UndoPtr		base = undo_position(record, change);
	uint32		byte = 0;

	if (base == InvalidUndoPtr)
		return false;
	for (int i = 0; i < change->nrecords; i++)
	{
		change->rec_start[i] = byte;
		change->ptr[i] = zu_advance(base, byte);
		byte += change->rec[i].length;
	}
	return byte == change->undo_length;
}

static void
decode_insert(Reader *r, ZWalChange *change, char *work)
{
	ZuRecord   *rec = &change->rec[0];
	uint32		shape;
	Size		datalen;
	ZHeader		h;

	rec->type = ZUR_INSERT;
	rec->nrows = 1;
	shape = get_varint(r);
	datalen = r->bad ? 0 : r->end - r->p;
	if (r->bad || datalen + ZTUPLE_HEADER_SIZE > BLCKSZ)
	{
		r->bad = true;
		return;
	}
	h = ZH_WITH_SLOT((ZHeader) ((shape >> 2) & ZH_NATTS_MASK),
					 (change->flags & ZWD_FROZEN) ? 0 : change->slotno);
	if (shape & 1)
		h |= ZH_NULLS;
	if (shape & 2)
		h |= ZH_EXTERNAL;
	zheader_set(work, h);
	memcpy(work + ZTUPLE_HEADER_SIZE, get_bytes(r, datalen), datalen);
	change->row = work;
	change->row_length = datalen + ZTUPLE_HEADER_SIZE;
}

static void
decode_update(Reader *r, ZWalChange *change, char *work)
{
	ZuRecord   *rec = &change->rec[0];
	uint8		uflags = get_byte(r);
	const char *next;
	const char *old;
	ZHeader		ignored;
	Size		len;

	rec->type = ZUR_UPDATE;
	change->key_change = (uflags & ZWU_KEY_CHANGE) != 0;
	change->clear_locks = (uflags & ZWU_CLEAR_LOCKS) != 0;
	change->has_new_header = (uflags & ZWU_HEADER) != 0;
	if (change->key_change)
		rec->xflags |= ZUX_KEY_CHANGE;
	if (change->has_new_header && !r->bad)
	{
		next = zheader_compact_get(r->p, r->end, 0, &change->new_header);
		r->bad = (next == NULL);
		r->p = next;
	}
	if (r->bad)
		return;
	old = r->p;
	/* only its length is wanted: any base with a shape will do */
	next = zheader_compact_get(old, r->end, (ZHeader) 1, &ignored);
	if (next == NULL)
	{
		r->bad = true;
		return;
	}
	/* the undo payload: compact old header, then the delta without the new bytes */
	memcpy(work, old, next - old);
	change->delta = next;
	change->delta_end = zdelta_wal_to_undo(next, r->end, work + (next - old),
										   ZUR_MAX_LENGTH - (next - old), &len);
	if (change->delta_end != r->end)
	{
		r->bad = true;
		return;
	}
	rec->payload = work;
	rec->payload_len = (next - old) + len;
}

static void
decode_compact(XLogReaderState *record, Reader *r, ZWalChange *change)
{
	ZuRecord   *rec = &change->rec[0];
	RelFileLocator locator;
	char	   *packed = change->work + ZUR_MAX_LENGTH;

	change->slotno = get_varint(r);
	zc_block_tag(record, 0, &locator, NULL, &rec->block);
	rec->offset = get_varint(r);
	rec->cid = get_varint(r);
	rec->relnumber = locator.relNumber;
	rec->reloid = rec->relnumber - zigzag_decode(get_varint(r));
	rec->xid = zxid_widen(XLogRecGetXid(record));
	rec->topxid = rec->xid;
	rec->flags = (change->flags & ZWD_FIRST) ? ZUF_FIRST : 0;
	if (change->flags & ZWD_PREV)
		rec->prev = get_pointer(r);
	if (change->flags & ZWD_TOPXID)
		copy_bytes(r, &rec->topxid, 6);
	change->grow_to = (change->flags & ZWD_GROW) ? get_byte(r) : 0;
	if (change->opcode == ZWAL_INSERT)
		decode_insert(r, change, change->work);
	else
		decode_update(r, change, change->work);
	if (r->bad)
		return;
	change->nrecords = 1;
	change->undo_length = zur_length(rec);
	zur_pack(rec, packed);
	change->undo = packed;
}

static void
decode_literal(Reader *r, ZWalChange *change)
{
	uint32		byte = 0;

	change->slotno = get_varint(r);
	change->grow_to = (change->flags & ZWD_GROW) ? get_byte(r) : 0;
	change->nrecords = get_varint(r);
	change->undo_length = get_varint(r);
	change->undo = get_bytes(r, change->undo_length);
	if (r->bad || change->nrecords < 1 || change->nrecords > ZU_MAX_RECORDS)
	{
		r->bad = true;
		return;
	}
	for (int i = 0; i < change->nrecords; i++)
	{
		if (byte > change->undo_length ||
			!zur_unpack(change->undo + byte, change->undo_length - byte, &change->rec[i]))
		{
			r->bad = true;
			return;
		}
		byte += change->rec[i].length;
	}
	if (change->opcode == ZWAL_MOVE ||
		(change->opcode == ZWAL_UNDO_ONLY && change->rec[0].type == ZUR_MOVE))
	{
		uint16		len = 0;

		change->new_slotno = get_varint(r);
		change->new_grow_to = get_byte(r);
		copy_bytes(r, &len, 2);
		change->row = get_bytes(r, len);
		change->row_length = len;
		if (change->nrecords == 3)
		{
			change->locks_slotno = get_varint(r);
			change->locks_grow_to = get_byte(r);
		}
	}
	else
	{
		change->row = r->p;
		change->row_length = r->end - r->p;
	}
}

bool
zwal_decode(XLogReaderState *record, ZWalChange *change)
{
	Reader		r;

	memset(change, 0, offsetof(ZWalChange, work));
	r.p = XLogRecGetData(record);
	r.end = r.p + XLogRecGetDataLen(record);
	r.bad = false;
	change->opcode = XLogRecGetInfo(record) & ~XLR_INFO_MASK;
	change->flags = get_byte(&r);
	while (change->nundo_pages < ZU_MAX_PAGES &&
		   XLogRecHasBlockRef(record, ZWAL_UNDO_BLOCK + change->nundo_pages))
		change->nundo_pages++;
	if (change->nundo_pages < 1)
		return false;
	change->place.generation = get_varint(&r);
	if ((change->flags & ZWD_UNDO_INIT) || change->nundo_pages > 1)
		decode_place(record, &r, change);
	copy_bytes(&r, &change->start, 2);
	if (r.bad)
		return false;
	if (change->opcode == ZWAL_INSERT || change->opcode == ZWAL_UPDATE)
		decode_compact(record, &r, change);
	else
		decode_literal(&r, change);
	return !r.bad && place_records(record, change);
}

bool
zwal_decode_inline_lock(XLogReaderState *record, ZWalInlineLock *lock)
{
	Reader		r;
	uint16		word = 0;

	r.p = XLogRecGetData(record);
	r.end = r.p + XLogRecGetDataLen(record);
	r.bad = false;
	copy_bytes(&r, &word, 2);
	lock->offset = word & 0x1FF;
	lock->mode = (word >> 9) & 3;
	lock->fresh = (word & ZWI_FRESH) != 0;
	lock->slotno = get_byte(&r);
	lock->grow_to = (word & ZWI_GROW) ? get_byte(&r) : 0;
	return !r.bad && r.p == r.end;
}
