/*
 * change/zwal.c - row changes as WAL records: encoding and decoding.
 *
 * Each part of a record has its encoder and its decoder side by side. The
 * encoder runs before the critical section. The decoder checks every length and
 * is the only reader of the layout (change/zwal.h); replay, desc and logical
 * decoding use it.
 *
 * Under assertions, each record is decoded before it is inserted, and the
 * result is compared with the change.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "change/zchange.h"
#include "change/zwal.h"
#include "common/varint.h"
#include "tuple/ztuple.h"
#include "utils/memutils.h"

/*
 * A record as the decoder reads it: the main data, and what the record's header
 * and its block references say. A length that does not fit sets 'bad', after
 * which the get_ functions return zeros.
 */
typedef struct Reader
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
} Reader;

/* ---- bytes ---- */

static char *
put_bytes(char *p, const void *src, Size len)
{
	memcpy(p, src, len);
	return p + len;
}

/* Returns the next len bytes of the main data, or NULL if there are fewer. */
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

/* Returns the next number of the main data. */
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

/*
 * Appends an undo pointer. It takes 5 to 13 bytes: generation and extent are
 * small numbers.
 */
static char *
put_pointer(char *p, UndoPtr ptr)
{
	uint32		byte = zuptr_byte(ptr);

	p = zvarint_put(p, zuptr_generation(ptr));
	p = zvarint_put(p, zuptr_extent(ptr));
	return put_bytes(p, &byte, 3);
}

/* Returns the next undo pointer of the main data. */
static UndoPtr
get_pointer(Reader *r)
{
	uint32		generation = get_varint(r);
	uint32		extent = get_varint(r);
	uint32		byte = 0;

	copy_bytes(r, &byte, 3);
	return zuptr_make(generation, extent, byte);
}

/*
 * Adds bytes to the main data of wal. They are not copied, so they must stay.
 */
static void
add_part(ZChangeWal *wal, const char *data, uint32 length)
{
	Assert(wal->nparts < ZCHANGE_MAX_PARTS);
	wal->part[wal->nparts].data = data;
	wal->part[wal->nparts++].length = length;
}

/* ---- what all row changes begin with ---- */

/*
 * Returns whether the record for change, written with this opcode, has an undo
 * record that is built from its fields, not packed.
 */
static inline bool
is_compact(const ZChange *change, uint8 opcode)
{
	return opcode == ZWAL_INSERT || opcode == ZWAL_UPDATE ||
		(opcode == ZWAL_DELETE && change->row_left_out);
}

/*
 * Returns the member of change that ZWD_SPECIAL stands for in records of
 * opcode, or NULL.
 */
static bool *
special_fact(ZChange *change, uint8 opcode)
{
	switch (opcode)
	{
		case ZWAL_INSERT:
			return &change->frozen;
		case ZWAL_MOVE:
			return &change->page[1].init;
		case ZWAL_LOCK:
			return &change->converted;
		case ZWAL_DELETE:
			return &change->row_left_out;
		default:
			return NULL;
	}
}

/*
 * Returns the flags of the record for change, which is written with this
 * opcode.
 */
static uint8
flags_of(const ZChange *change, uint8 opcode)
{
	const ZChangeSlot *slot = &change->page[0].slot;
	const ZuRecord *rec = &change->rec[0];
	const bool *special = special_fact((ZChange *) change, opcode);
	uint8		flags = 0;

	if (change->page[0].init && opcode != ZWAL_UNDO_ONLY)
		flags |= ZWD_PAGE_INIT;
	if (change->op.init[0])
		flags |= ZWD_UNDO_INIT;
	if (change->op.first)
		flags |= ZWD_FIRST;
	if (slot->grow_to != 0)
		flags |= ZWD_GROW;
	if (special != NULL && *special)
		flags |= ZWD_SPECIAL;
	if (!is_compact(change, opcode))
		return flags | (slot->live_chain ? ZWD_LIVE_CHAIN : 0);
	Assert(slot->live_chain == (rec->prev != InvalidUndoPtr));
	return flags | (rec->prev != InvalidUndoPtr ? ZWD_PREV : 0) |
		(rec->topxid != rec->xid ? ZWD_TOPXID : 0) | (rec->open ? ZWD_OPEN : 0);
}

/* Sets the members of change that the record's flags tell. */
static void
take_flags(Reader *r, ZChange *change)
{
	bool	   *special = special_fact(change, r->opcode);

	change->page[0].init = (r->flags & ZWD_PAGE_INIT) != 0;
	change->op.first = (r->flags & ZWD_FIRST) != 0;
	change->op.init[0] = (r->flags & ZWD_UNDO_INIT) != 0;
	if (special != NULL)
		*special = (r->flags & ZWD_SPECIAL) != 0;
	else if (r->flags & ZWD_SPECIAL)
		r->bad = true;
	change->page[0].slot.live_chain =
		(r->flags & (is_compact(change, r->opcode) ? ZWD_PREV : ZWD_LIVE_CHAIN)) != 0;
}

/*
 * Returns where the undo of the record begins. The extent follows from the
 * block number of the first undo page.
 */
static UndoPtr
undo_position(const Reader *r, const ZuOp *op)
{
	uint32		extent,
				page;

	if (!zu_block_position(r->undo_block, &extent, &page))
		return InvalidUndoPtr;
	return zuptr_make(op->place.generation, extent, page * BLCKSZ + op->start);
}

/*
 * Appends where the undo records are, as far as the block references do not say
 * it.
 */
static char *
put_place(char *p, const ZuOp *op)
{
	p = zvarint_put(p, op->place.generation);
	if (op->init[0] || op->npages > 1)
	{
		p = zvarint_put(p, op->place.logno);
		p = put_bytes(p, &op->place.sequence, 8);
		p = put_bytes(p, &op->place.topxid, 6);
		if (op->init[0] && zuptr_byte(op->ptr[0]) < BLCKSZ)
			p = put_bytes(p, &op->place.prev, 8);
	}
	return put_bytes(p, &op->start, 2);
}

/* Reads what put_place wrote. */
static void
get_place(Reader *r, ZuOp *op)
{
	uint32		extent,
				page;

	op->npages = r->nundo_pages;
	op->place.generation = get_varint(r);
	if (op->init[0] || op->npages > 1)
	{
		op->place.logno = get_varint(r);
		copy_bytes(r, &op->place.sequence, 8);
		copy_bytes(r, &op->place.topxid, 6);
		if (op->init[0] && zu_block_position(r->undo_block, &extent, &page) && page == 0)
			copy_bytes(r, &op->place.prev, 8);
	}
	copy_bytes(r, &op->start, 2);
}

/*
 * Computes the pointers of the records, which lie one after the other from the
 * first one's place.
 */
static void
locate_records(Reader *r, ZChange *change)
{
	ZuOp	   *op = &change->op;
	UndoPtr		base = undo_position(r, op);
	uint32		byte = 0;

	if (base == InvalidUndoPtr)
	{
		r->bad = true;
		return;
	}
	op->nrecords = change->nrecords;
	for (int i = 0; i < change->nrecords; i++)
	{
		op->records[i] = &change->rec[i];
		op->ptr[i] = zu_advance(base, byte);
		byte += change->rec[i].length;
	}
	r->bad = (byte != op->total);
}

/* ---- slots ---- */

/* Appends a slot for which ZWD_GROW tells whether inline slots are added. */
static char *
put_slot(char *p, const ZChangeSlot *slot)
{
	p = zvarint_put(p, slot->slotno);
	if (slot->grow_to != 0)
		*p++ = (char) slot->grow_to;
	return p;
}

/* Appends a slot for which no flag tells whether inline slots are added. */
static char *
put_other_slot(char *p, const ZChangeSlot *slot)
{
	p = zvarint_put(p, slot->slotno);
	*p++ = (char) slot->grow_to;
	return p;
}

static void
get_other_slot(Reader *r, ZChangeSlot *slot)
{
	slot->slotno = get_varint(r);
	slot->grow_to = get_byte(r);
}

/* ---- INSERT ---- */

/* Returns what the WAL record says of a new row's header. */
static inline uint32
shape_of(ZHeader h)
{
	return ZH_NATTS(h) << 2 | ((h & ZH_NULLS) ? 1 : 0) | ((h & ZH_EXTERNAL) ? 2 : 0);
}

/* Appends what only an INSERT has: the shape of the header, and the row. */
static char *
put_insert(char *p, const ZChange *change, ZChangeWal *wal)
{
	ZHeader		h = zheader_get(change->row);

	Assert(change->frozen == (ZH_SLOT(h) == 0));
	if (change->rec[0].open)
		p = zvarint_put(p, change->rec[0].nrows);
	p = zvarint_put(p, shape_of(h));
	add_part(wal, wal->head, p - wal->head);
	add_part(wal, change->row + ZTUPLE_HEADER_SIZE, change->row_length - ZTUPLE_HEADER_SIZE);
	return p;
}

/*
 * Reads the shape and the rest of the row, whose slot is the change's, and
 * forms the row.
 */
static void
get_new_row(Reader *r, ZChange *change, char *row)
{
	uint32		shape = get_varint(r);
	Size		datalen = r->bad ? 0 : r->end - r->p;
	ZHeader		h;

	if (r->bad || datalen + ZTUPLE_HEADER_SIZE > BLCKSZ)
	{
		r->bad = true;
		return;
	}
	h = ZH_WITH_SLOT((ZHeader) ((shape >> 2) & ZH_NATTS_MASK),
					 change->frozen ? 0 : change->page[0].slot.slotno);
	if (shape & 1)
		h |= ZH_NULLS;
	if (shape & 2)
		h |= ZH_EXTERNAL;
	zheader_set(row, h);
	memcpy(row + ZTUPLE_HEADER_SIZE, get_bytes(r, datalen), datalen);
	change->row = row;
	change->row_length = datalen + ZTUPLE_HEADER_SIZE;
}

/* Reads what put_insert wrote, and forms the row. */
static void
get_insert(Reader *r, ZChange *change, char *row)
{
	ZuRecord   *rec = &change->rec[0];

	rec->type = ZUR_INSERT;
	rec->nrows = 1;
	rec->open = (r->flags & ZWD_OPEN) != 0;
	if (rec->open)
	{
		uint32		rows = get_varint(r);

		r->bad |= (rows < 1 || rows > ZHEAP_MAX_OFFSET);
		rec->nrows = rows;
	}
	get_new_row(r, change, row);
}

/* ---- INSERT without an undo record ---- */

/*
 * Writes to dst, which has COVERED_HEAD_MAX bytes, what a covered INSERT has
 * before its row. Returns its end.
 */
#define COVERED_HEAD_MAX 15

static char *
put_covered(char *dst, OffsetNumber off, ZHeader h)
{
	char	   *p = zvarint_put(dst, ZH_SLOT(h));

	p = zvarint_put(p, off);
	p = zvarint_put(p, shape_of(h));
	Assert(p <= dst + COVERED_HEAD_MAX);
	return p;
}

/* Reads what put_covered wrote, and forms the row. */
static void
decode_covered(Reader *r, ZChange *change, ZChangeWork *work)
{
	ZuRecord   *rec = &change->rec[0];

	change->covered = true;
	change->nrecords = 1;
	memset(rec, 0, sizeof(*rec));
	rec->type = ZUR_INSERT;
	rec->xid = rec->topxid = zxid_widen(r->xid);
	rec->relnumber = r->relnumber;
	rec->block = r->block;
	rec->nrows = 1;
	change->page[0].slot.slotno = get_varint(r);
	rec->offset = get_varint(r);
	r->bad |= (change->page[0].slot.slotno < 1 || r->overflow[0]);
	get_new_row(r, change, work->bytes);
}

/* ---- UPDATE ---- */

/*
 * Appends what only an UPDATE has: flags, headers, and the delta in WAL form.
 */
static char *
put_update(char *p, const ZChange *change, ZChangeWal *wal)
{
	const ZuRecord *rec = &change->rec[0];

	*p++ = (char) (((rec->xflags & ZUX_KEY_CHANGE) ? ZWU_KEY_CHANGE : 0) |
				   (change->clear_locks ? ZWU_CLEAR_LOCKS : 0) |
				   (change->new_shape ? ZWU_HEADER : 0) |
				   (change->stale_keys ? ZWU_STALE_KEYS : 0));
	if (change->new_shape)
		p = zheader_compact_put(p, change->shape, 0);
	p = put_bytes(p, rec->payload, change->old_header_length);
	add_part(wal, wal->head, p - wal->head);
	add_part(wal, change->delta, change->delta_length);
	return p;
}

/*
 * Reads what put_update wrote. The undo payload is the old header, and the
 * delta without its new bytes.
 */
static void
get_update(Reader *r, ZChange *change, char *payload)
{
	ZuRecord   *rec = &change->rec[0];
	uint8		uflags = get_byte(r);
	const char *old;
	const char *next;
	ZHeader		ignored;
	Size		len;

	rec->type = ZUR_UPDATE;
	rec->xflags = (uflags & ZWU_KEY_CHANGE) ? ZUX_KEY_CHANGE : 0;
	change->clear_locks = (uflags & ZWU_CLEAR_LOCKS) != 0;
	change->new_shape = (uflags & ZWU_HEADER) != 0;
	change->stale_keys = (uflags & ZWU_STALE_KEYS) != 0;
	if (change->new_shape && !r->bad)
	{
		next = zheader_compact_get(r->p, r->end, 0, &change->shape);
		r->bad = (next == NULL);
		r->p = next;
	}
	if (r->bad)
		return;

	/*
	 * the length of a compact header does not depend on the base with which
	 * it is read
	 */
	old = r->p;
	next = zheader_compact_get(old, r->end, (ZHeader) 1, &ignored);
	if (next == NULL)
	{
		r->bad = true;
		return;
	}
	change->old_header_length = next - old;
	memcpy(payload, old, change->old_header_length);
	change->delta = next;
	change->delta_length = r->end - next;
	if (zdelta_wal_to_undo(next, r->end, payload + change->old_header_length,
						   ZUR_MAX_LENGTH - change->old_header_length, &len) != r->end)
	{
		r->bad = true;
		return;
	}
	rec->payload = payload;
	rec->payload_len = change->old_header_length + len;
}

/* ---- DELETE ---- */

/*
 * Appends what only a DELETE that leaves the row out has: its length, whether
 * it goes to another partition, and its header.
 */
static char *
put_delete(char *p, const ZChange *change, ZChangeWal *wal)
{
	const ZuRecord *rec = &change->rec[0];

	Assert((rec->xflags & ~ZUX_OTHER_PART) == ZUX_KEY_CHANGE);
	Assert(!TransactionIdIsValid(rec->as_of));
	p = zvarint_put(p, (uint32) zchange_left_out(change) << 1 |
					((rec->xflags & ZUX_OTHER_PART) ? 1 : 0));
	p = put_bytes(p, rec->payload, change->old_header_length);
	add_part(wal, wal->head, p - wal->head);
	return p;
}

/*
 * Reads what put_delete wrote. The payload has its length, but only the old
 * header so far.
 */
static void
get_delete(Reader *r, ZChange *change, char *payload)
{
	ZuRecord   *rec = &change->rec[0];
	uint32		word = get_varint(r);
	const char *old = r->p;
	const char *next = r->bad ? NULL
	: zheader_compact_get(old, r->end, (ZHeader) 0, &change->shape);

	rec->type = ZUR_DELETE;
	rec->xflags = ZUX_KEY_CHANGE | ((word & 1) ? ZUX_OTHER_PART : 0);
	if (next != r->end || (word >> 1) > BLCKSZ)
	{
		r->bad = true;
		return;
	}
	change->old_header_length = next - old;
	memcpy(payload, old, change->old_header_length);
	rec->payload = payload;
	rec->payload_len = change->old_header_length + (word >> 1);
}

void
zchange_put_row(ZChange *change, ZChangeWork *work, const char *row)
{
	ZuRecord   *rec = &change->rec[0];
	char	   *to = work->bytes + change->old_header_length;

	Assert(rec->payload == work->bytes && change->undo == NULL);
	if (row != NULL)
		memcpy(to, row, zchange_left_out(change));
	else
	{
		memset(to, 0, zchange_left_out(change));
		rec->xflags |= ZUX_ROW_GONE;
	}
	zur_pack(rec, work->packed);
	change->undo = work->packed;
}

/* ---- compact records ---- */

/*
 * Encodes an INSERT, an UPDATE, or a DELETE that leaves the row out, after its
 * place: the fields from which the undo record is built.
 */
static void
encode_compact(const ZChange *change, ZChangeWal *wal, char *p)
{
	const ZuRecord *rec = &change->rec[0];

	Assert(change->nrecords == 1);
	p = zvarint_put(p, change->page[0].slot.slotno);
	p = zvarint_put(p, rec->offset);
	p = zvarint_put(p, rec->cid);
	p = zvarint_put(p, zigzag_encode((int32) (rec->relnumber - rec->reloid)));
	if (rec->prev != InvalidUndoPtr)
		p = put_pointer(p, rec->prev);
	if (rec->topxid != rec->xid)
		p = put_bytes(p, &rec->topxid, 6);
	if (change->page[0].slot.grow_to != 0)
		*p++ = (char) change->page[0].slot.grow_to;
	if (wal->opcode == ZWAL_INSERT)
		p = put_insert(p, change, wal);
	else if (wal->opcode == ZWAL_UPDATE)
		p = put_update(p, change, wal);
	else
		p = put_delete(p, change, wal);
	Assert(p <= wal->head + sizeof(wal->head));
}

/*
 * Decodes what encode_compact wrote, and packs the undo record into work, if
 * the WAL record has all of it.
 */
static void
decode_compact(Reader *r, ZChange *change, ZChangeWork *work)
{
	ZuRecord   *rec = &change->rec[0];

	change->nrecords = 1;
	memset(rec, 0, sizeof(*rec));
	change->page[0].slot.slotno = get_varint(r);
	rec->block = r->block;
	rec->offset = get_varint(r);
	rec->cid = get_varint(r);
	rec->relnumber = r->relnumber;
	rec->reloid = rec->relnumber - zigzag_decode(get_varint(r));
	rec->xid = zxid_widen(r->xid);
	rec->topxid = rec->xid;
	rec->flags = (r->flags & ZWD_FIRST) ? ZUF_FIRST : 0;
	if (r->flags & ZWD_PREV)
		rec->prev = get_pointer(r);
	if (r->flags & ZWD_TOPXID)
		copy_bytes(r, &rec->topxid, 6);
	if (r->flags & ZWD_GROW)
		change->page[0].slot.grow_to = get_byte(r);
	if (r->opcode == ZWAL_INSERT)
		get_insert(r, change, work->bytes);
	else if (r->opcode == ZWAL_UPDATE)
		get_update(r, change, work->bytes);
	else
		get_delete(r, change, work->bytes);
	if (r->bad)
		return;
	change->op.total = zur_length(rec);
	if (change->row_left_out)
		return;
	zur_pack(rec, work->packed);
	change->undo = work->packed;
}

/* ---- literal records ---- */

/*
 * Adds what only a MOVE has: the new row, its slot, and the common lock slot.
 * The new row is its header and a delta, if the change has one, against the old
 * row, which is the payload of the first undo record; else all its bytes. A row
 * of a table that is not logged is left out.
 */
static void
put_moved(const ZChange *change, ZChangeWal *wal)
{
	bool		whole = wal->opcode != ZWAL_UNDO_ONLY && change->delta_length == 0;
	bool		delta = wal->opcode != ZWAL_UNDO_ONLY && change->delta_length > 0;
	uint16		word = whole || delta ? change->row_length : 0;
	char	   *p = put_other_slot(wal->middle, &change->page[1].slot);

	Assert(change->row_length < ZWM_DELTA);
	if (delta)
		word |= ZWM_DELTA;
	p = put_bytes(p, &word, 2);
	if (delta)
		p = put_bytes(p, change->row, ZTUPLE_HEADER_SIZE);
	Assert(p <= wal->middle + sizeof(wal->middle));
	add_part(wal, wal->middle, p - wal->middle);
	if (delta)
		add_part(wal, change->delta, change->delta_length);
	else if (word > 0)
		add_part(wal, change->row, word);
	if (change->nrecords == 3)
		add_part(wal, wal->tail, put_other_slot(wal->tail, &change->locks) - wal->tail);
}

/*
 * Forms the new row of a MOVE, of len bytes, from its header, the old row in
 * the change's first record, and the delta.
 */
static void
get_row_by_delta(Reader *r, ZChange *change, Size len, ZChangeWork *work)
{
	const ZuRecord *rec = &change->rec[0];
	const char *header = get_bytes(r, ZTUPLE_HEADER_SIZE);
	const char *old;
	const char *end;
	const char *next;
	ZHeader		ignored;
	Size		size = 0;

	if (r->bad)
		return;
	r->bad = true;
	old = zur_raw_payload(rec, work->packed, sizeof(work->packed), &size);
	if (old == NULL)
		return;
	end = old + size;
	old = zheader_compact_get(old, end, 0, &ignored);
	if (old == NULL || end - old > (int) sizeof(work->bytes) - ZTUPLE_HEADER_SIZE)
		return;
	size = end - old;
	memcpy(work->bytes, header, ZTUPLE_HEADER_SIZE);
	memcpy(work->bytes + ZTUPLE_HEADER_SIZE, old, size);
	next = zdelta_undo_apply(r->p, r->end, work->bytes + ZTUPLE_HEADER_SIZE, &size,
							 sizeof(work->bytes) - ZTUPLE_HEADER_SIZE);
	if (next == NULL || size + ZTUPLE_HEADER_SIZE != len)
		return;
	change->delta = r->p;
	change->delta_length = next - r->p;
	change->row = work->bytes;
	r->p = next;
	r->bad = false;
}

/* Reads what put_moved added. */
static void
get_moved(Reader *r, ZChange *change, ZChangeWork *work)
{
	ZChangeSlot *slot = &change->page[1].slot;
	uint16		word = 0;

	get_other_slot(r, slot);
	slot->live_chain = !zchange_on_one_page(change) && change->nrecords > 1 &&
		change->rec[1].prev != InvalidUndoPtr;
	copy_bytes(r, &word, 2);
	change->row_length = word & ~ZWM_DELTA;
	if (word & ZWM_DELTA)
		get_row_by_delta(r, change, change->row_length, work);
	else
		change->row = get_bytes(r, change->row_length);
	if (change->nrecords == 3)
		get_other_slot(r, &change->locks);
}

/* Returns whether the bytes are nrows rows, each after its length. */
static bool
rows_fit(const char *p, uint32 length, int nrows)
{
	const char *end = p + length;

	for (int i = 0; i < nrows; i++)
	{
		uint16		len;

		if (end - p < sizeof(len))
			return false;
		memcpy(&len, p, sizeof(len));
		p += sizeof(len);
		if (end - p < len)
			return false;
		p += len;
	}
	return p == end;
}

/* Encodes any other change after its place: the packed undo records. */
static void
encode_literal(const ZChange *change, ZChangeWal *wal, char *p)
{
	char	   *packed = wal->records;

	p = put_slot(p, &change->page[0].slot);
	p = zvarint_put(p, change->nrecords);
	p = zvarint_put(p, change->op.total);
	Assert(p <= wal->head + sizeof(wal->head));
	add_part(wal, wal->head, p - wal->head);
	for (int i = 0; i < change->nrecords; i++)
	{
		zur_pack(&change->rec[i], packed);
		packed += change->rec[i].length;
	}
	wal->packed = wal->records;
	add_part(wal, wal->records, packed - wal->records);
	if (change->rec[0].type == ZUR_MOVE)
		put_moved(change, wal);
	else if (wal->opcode == ZWAL_MULTI_INSERT)
		add_part(wal, change->row, change->row_length);
}

/* Decodes what encode_literal wrote; the undo records stay where they are. */
static void
decode_literal(Reader *r, ZChange *change, ZChangeWork *work)
{
	uint32		byte = 0;

	change->page[0].slot.slotno = get_varint(r);
	if (r->flags & ZWD_GROW)
		change->page[0].slot.grow_to = get_byte(r);
	change->nrecords = get_varint(r);
	change->op.total = get_varint(r);
	change->undo = get_bytes(r, change->op.total);
	if (r->bad || change->nrecords < 1 || change->nrecords > ZU_MAX_RECORDS)
	{
		r->bad = true;
		return;
	}
	for (int i = 0; i < change->nrecords; i++)
	{
		if (byte > change->op.total ||
			!zur_unpack(change->undo + byte, change->op.total - byte, &change->rec[i]))
		{
			r->bad = true;
			return;
		}
		byte += change->rec[i].length;
	}
	if (change->rec[0].type == ZUR_MOVE)
		get_moved(r, change, work);
	else if (r->opcode == ZWAL_MULTI_INSERT)
	{
		change->row = r->p;
		change->row_length = r->end - r->p;
		r->bad = !rows_fit(change->row, change->row_length, change->rec[0].nrows);
	}
}

/* ---- for logical decoding ---- */

/* Returns the data of block 0, or NULL if it has none. */
static const char *
near_part(XLogReaderState *record, Size *length)
{
	*length = 0;
	return XLogRecHasBlockRef(record, 0) ? XLogRecGetBlockData(record, 0, length) : NULL;
}

/*
 * Returns how many bytes at the end of the main data are the rest of a part
 * that is too long for the data of a block.
 */
static uint32
far_bytes(XLogReaderState *record)
{
	Size		length;
	const char *near = near_part(record, &length);
	uint32		far;

	if (near == NULL || length != ZWL_FAR_HEAD || ((uint8) near[0] & ZWL_FAR) == 0)
		return 0;
	memcpy(&far, near + 1, sizeof(far));
	return far;
}

const char *
zchange_logical_part(XLogReaderState *record, uint8 *what, uint32 *length)
{
	Size		near_length;
	const char *near = near_part(record, &near_length);

	*what = 0;
	*length = 0;
	if (near == NULL || near_length < 1)
		return NULL;
	*what = (uint8) near[0] | ZWL_IS_THERE;
	if ((near[0] & ZWL_FAR) == 0)
	{
		*length = near_length - 1;
		return near + 1;
	}
	*length = far_bytes(record);
	if (*length == 0 || *length > XLogRecGetDataLen(record))
		return NULL;
	return XLogRecGetData(record) + XLogRecGetDataLen(record) - *length;
}

/*
 * Adds the part to the record: to block 0, which must be registered, or, if it
 * is too long for that, to the end of the main data. Called last.
 */
static void
register_logical(const char *part, uint32 length)
{
	uint32		near = length;

	if (part == NULL)
		return;
	if (part[0] & ZWL_FAR)
	{
		near = ZWL_FAR_HEAD;
		XLogRegisterData((char *) part + near, length - near);
	}
	Assert(near <= ZWL_MAX_NEAR && near <= length);
	XLogRegisterBufData(0, (char *) part, near);
}

/* ---- the whole ---- */

/*
 * Decodes r into change, and sets all its fields. Returns false if the record
 * is malformed.
 */
static bool
decode(Reader *r, ZChange *change, ZChangeWork *work)
{
	memset(change, 0, sizeof(*change));
	change->opcode = r->opcode;
	change->logged = (r->opcode != ZWAL_UNDO_ONLY);
	for (int i = 0; i < 2; i++)
		change->page[i].slot.in_overflow = r->overflow[i];
	if (r->opcode == ZWAL_INSERT && r->nundo_pages == 0)
	{
		decode_covered(r, change, work);
		return !r->bad;
	}
	r->flags = get_byte(r);
	take_flags(r, change);
	get_place(r, &change->op);
	if (r->bad || r->nundo_pages < 1)
		return false;
	if (is_compact(change, r->opcode))
		decode_compact(r, change, work);
	else
		decode_literal(r, change, work);
	if (!r->bad)
		locate_records(r, change);
	return !r->bad;
}

/*
 * Collects what the record's header and block references tell; decode reads the
 * main data.
 */
bool
zchange_decode(XLogReaderState *record, ZChange *change, ZChangeWork *work)
{
	Reader		r = {0};
	RelFileLocator locator = {0};

	r.p = XLogRecGetData(record);
	r.end = r.p + XLogRecGetDataLen(record) - far_bytes(record);
	if (r.end < r.p)
		return false;
	r.opcode = XLogRecGetInfo(record) & ~XLR_INFO_MASK;
	r.xid = XLogRecGetXid(record);
	while (r.nundo_pages < ZU_MAX_PAGES &&
		   XLogRecHasBlockRef(record, ZWAL_UNDO_BLOCK + r.nundo_pages))
		r.nundo_pages++;
	if (r.nundo_pages > 0)
		zc_block_tag(record, ZWAL_UNDO_BLOCK, NULL, NULL, &r.undo_block);
	else if (r.opcode != ZWAL_INSERT)
		return false;
	if (r.opcode != ZWAL_UNDO_ONLY)
	{
		if (!XLogRecHasBlockRef(record, 0))
			return false;
		zc_block_tag(record, 0, &locator, NULL, &r.block);
		r.relnumber = locator.relNumber;
	}
	for (int i = 0; i < 2; i++)
		r.overflow[i] = XLogRecHasBlockRef(record, ZWAL_OVERFLOW_BLOCK + i);
	return decode(&r, change, work);
}

/* ---- proof of the encoding ---- */

#ifdef USE_ASSERT_CHECKING
/* Returns the parts of wal joined, palloc'd. */
static char *
join_parts(const ZChangeWal *wal, Size *length)
{
	char	   *bytes;
	char	   *p;

	*length = 0;
	for (int i = 0; i < wal->nparts; i++)
		*length += wal->part[i].length;
	p = bytes = palloc(*length + 1);
	for (int i = 0; i < wal->nparts; i++)
		p = put_bytes(p, wal->part[i].data, wal->part[i].length);
	return bytes;
}

static bool
same_slot(const ZChangeSlot *a, const ZChangeSlot *b)
{
	return a->slotno == b->slotno && a->grow_to == b->grow_to && a->live_chain == b->live_chain &&
		a->in_overflow == b->in_overflow;
}

static bool
same_bytes(const char *a, uint32 alen, const char *b, uint32 blen)
{
	return alen == blen && (alen == 0 || memcmp(a, b, alen) == 0);
}

/* Asserts that the places of the records, and their bytes, are the same. */
static void
compare_records(const ZChange *change, const ZChange *decoded)
{
	char	   *packed = palloc(ZUR_MAX_LENGTH);
	uint32		byte = 0;

	Assert(decoded->nrecords == change->nrecords);
	Assert(decoded->op.total == change->op.total);
	Assert(decoded->op.npages == change->op.npages);
	Assert(decoded->op.start == change->op.start);
	Assert(decoded->op.first == change->op.first);
	Assert(decoded->op.init[0] == change->op.init[0]);
	Assert(decoded->op.place.generation == change->op.place.generation);
	for (int i = 0; i < change->nrecords; i++)
	{
		const ZuRecord *rec = &change->rec[i];

		zur_pack(rec, packed);
		Assert(decoded->op.ptr[i] == change->op.ptr[i]);
		Assert(same_bytes(decoded->undo + byte, decoded->rec[i].length, packed, rec->length));
		byte += rec->length;
	}
	pfree(packed);
}

/* Asserts that both do the same to their pages. */
static void
compare_pages(const ZChange *change, const ZChange *decoded)
{
	Assert(decoded->page[0].init == change->page[0].init);
	Assert(decoded->page[1].init == change->page[1].init);
	Assert(decoded->frozen == change->frozen);
	Assert(decoded->converted == change->converted);
	Assert(decoded->row_left_out == change->row_left_out);
	Assert(decoded->clear_locks == change->clear_locks);
	Assert(decoded->new_shape == change->new_shape);
	Assert(decoded->stale_keys == change->stale_keys);
	Assert(decoded->old_header_length == change->old_header_length);
	if (change->new_shape)
		Assert(zheader_same_shape(decoded->shape, change->shape));
	Assert(same_bytes(decoded->delta, decoded->delta_length, change->delta, change->delta_length));
	if (change->opcode != ZWAL_UPDATE)
		Assert(same_bytes(decoded->row, decoded->row_length, change->row, change->row_length));
}

/*
 * Decodes the encoded change and compares the result with it. The record itself
 * does not exist yet, so what its header and block references will say is
 * filled in here.
 */
static void
prove_encoding(const ZChange *change, const ZChangeWal *wal)
{
	ZChange    *decoded = palloc(sizeof(ZChange));
	ZChangeWork *work = palloc(sizeof(ZChangeWork));
	Size		length;
	char	   *bytes = join_parts(wal, &length);
	Reader		r = {0};
	bool		ok;

	r.p = bytes;
	r.end = bytes + length;
	r.opcode = wal->opcode;
	r.xid = GetCurrentTransactionIdIfAny();
	r.nundo_pages = change->op.npages;
	r.undo_block = BufferGetBlockNumber(change->op.buffers[0]);
	if (wal->opcode != ZWAL_UNDO_ONLY)
	{
		RelFileLocator locator;
		ForkNumber	fork;

		BufferGetTag(change->page[0].buf, &locator, &fork, &r.block);
		r.relnumber = locator.relNumber;
	}
	for (int i = 0; i < 2; i++)
		r.overflow[i] = BufferIsValid(change->page[i].overflow_buf);
	ok = decode(&r, decoded, work);
	Assert(ok);
	if (decoded->row_left_out)
		zchange_put_row(decoded, work, change->rec[0].payload + change->old_header_length);
	compare_records(change, decoded);
	Assert(same_slot(&decoded->page[0].slot, &change->page[0].slot));
	if (wal->opcode != ZWAL_UNDO_ONLY)
		compare_pages(change, decoded);
	if (change->rec[0].type == ZUR_MOVE && change->nrecords > 1)
	{
		Assert(decoded->page[1].slot.slotno == change->page[1].slot.slotno);
		Assert(zchange_on_one_page(change) ||
			   same_slot(&decoded->page[1].slot, &change->page[1].slot));
		Assert(change->nrecords < 3 || same_slot(&decoded->locks, &change->locks));
	}
	pfree(bytes);
	pfree(work);
	pfree(decoded);
}
#endif

bool
zchange_pages_have_images(void)
{
	XLogRecPtr	redo;
	bool		images;

	GetFullPageWriteInfo(&redo, &images);
	return images;
}

/*
 * For a table that is not logged, only the undo is: as ZWAL_UNDO_ONLY, whatever
 * the change is.
 */
void
zchange_encode(const ZChange *change, ZChangeWal *wal)
{
	char	   *p = wal->head;

	wal->opcode = change->logged ? change->opcode : ZWAL_UNDO_ONLY;
	wal->nparts = 0;
	wal->packed = NULL;
	*p++ = (char) flags_of(change, wal->opcode);
	p = put_place(p, &change->op);
	if (is_compact(change, wal->opcode))
		encode_compact(change, wal, p);
	else
		encode_literal(change, wal, p);
#ifdef USE_ASSERT_CHECKING
	prove_encoding(change, wal);
#endif
}

/* ---- inserting ---- */

/*
 * The server has room for blocks 0 to 4 in any case (XLR_NORMAL_MAX_BLOCK_ID).
 */
void
zchange_ensure_space(const ZChange *change)
{
	ZUNDO_FAULT("before-change");
	if (unlikely(change->op.temp))
		return;
	if (unlikely(BufferIsValid(change->page[0].overflow_buf) ||
				 BufferIsValid(change->page[1].overflow_buf)))
		XLogEnsureRecordSpace(ZWAL_OVERFLOW_BLOCK + 1, 0);
	else if (change->op.npages > 2)
		XLogEnsureRecordSpace(ZWAL_UNDO_BLOCK + change->op.npages, 0);
}

/*
 * Each block has its fixed number, so that replay finds the undo pages whatever
 * table pages there are.
 */
XLogRecPtr
zchange_log(ZChange *change, const ZChangeWal *wal)
{
	XLogBeginInsert();
	if (unlikely(XLogLogicalInfoActive()))
		XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
	for (int i = 0; i < wal->nparts; i++)
		XLogRegisterData((char *) wal->part[i].data, wal->part[i].length);
	for (int i = 0; i < 2; i++)
	{
		const ZChangePage *p = &change->page[i];

		if (wal->opcode != ZWAL_UNDO_ONLY && BufferIsValid(p->buf))
			XLogRegisterBuffer(i, p->buf, REGBUF_STANDARD | (p->init ? REGBUF_WILL_INIT : 0) |
							   (i == 0 && change->logical != NULL ? REGBUF_KEEP_DATA : 0));
		if (unlikely(BufferIsValid(p->overflow_buf)))
			XLogRegisterBuffer(ZWAL_OVERFLOW_BLOCK + i, p->overflow_buf, REGBUF_STANDARD);
	}
	zu_register(&change->op, ZWAL_UNDO_BLOCK);
	if (wal->opcode != ZWAL_UNDO_ONLY)
		register_logical(change->logical, change->logical_length);
	return XLogInsert(ZUNDO_RMGR_ID, wal->opcode);
}

XLogRecPtr
zchange_log_covered(Buffer buf, const ZCoveredRow *new)
{
	char		head[COVERED_HEAD_MAX];
	char	   *end = put_covered(head, new->off, new->header);

	XLogBeginInsert();
	if (unlikely(XLogLogicalInfoActive()))
		XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
	XLogRegisterData(head, end - head);
	XLogRegisterData((char *) new->row + ZTUPLE_HEADER_SIZE, new->length - ZTUPLE_HEADER_SIZE);
	XLogRegisterBuffer(0, buf, REGBUF_STANDARD | (new->logical != NULL ? REGBUF_KEEP_DATA : 0));
	register_logical(new->logical, new->logical_length);
	return XLogInsert(ZUNDO_RMGR_ID, ZWAL_INSERT);
}

/* ---- inline locks ---- */

/*
 * Needs no undo pages, so the record is 3 or 4 bytes and one block reference.
 */
XLogRecPtr
zwal_log_inline_lock(Buffer buf, const ZWalInlineLock *lock)
{
	char		data[4];
	uint16		flags = (lock->fresh ? ZWI_FRESH : 0) | (lock->grow_to ? ZWI_GROW : 0) |
	(lock->tag ? ZWI_TAG : 0);
	uint16		word = lock->offset | lock->mode << 9 | flags;
	char	   *p = put_bytes(data, &word, 2);

	*p++ = (char) lock->slotno;
	if (lock->grow_to)
		*p++ = (char) lock->grow_to;
	XLogBeginInsert();
	XLogRegisterData(data, p - data);
	XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
	return XLogInsert(ZUNDO_RMGR_ID, ZWAL_INLINE_LOCK);
}

/* A record with bytes left over is malformed, too. */
bool
zwal_decode_inline_lock(XLogReaderState *record, ZWalInlineLock *lock)
{
	Reader		r = {0};
	uint16		word = 0;

	r.p = XLogRecGetData(record);
	r.end = r.p + XLogRecGetDataLen(record);
	copy_bytes(&r, &word, 2);
	lock->offset = word & 0x1FF;
	lock->mode = (word >> 9) & 3;
	lock->fresh = (word & ZWI_FRESH) != 0;
	lock->tag = (word & ZWI_TAG) != 0;
	lock->slotno = get_byte(&r);
	lock->grow_to = (word & ZWI_GROW) ? get_byte(&r) : 0;
	return !r.bad && r.p == r.end;
}
