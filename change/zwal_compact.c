/*
 * change/zwal_compact.c - row changes whose WAL record has the fields of the
 * undo record, not the record: INSERT, UPDATE, most of DELETE and MOVE, and
 * IMAGE of rows.
 *
 * Each encoder is followed by its decoder. The layout is in change/zwal.h.
 */
#include "postgres.h"

#include "change/zwal_internal.h"
#include "tuple/ztuple.h"

/* ---- undo pointers ---- */

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
get_pointer(ZWalReader *r)
{
	uint32		generation = get_varint(r);
	uint32		extent = get_varint(r);
	uint32		byte = 0;

	copy_bytes(r, &byte, 3);
	return zuptr_make(generation, extent, byte);
}

/* ---- INSERT ---- */

/* Appends what only an INSERT has: the shape of the header, and the row. */
static char *
put_insert(char *p, const ZChange *change, ZChangeWal *wal)
{
	ZHeader		h = zheader_get(change->row);

	Assert(change->frozen == (ZH_SLOT(h) == 0));
	p = zvarint_put(p, zwal_shape_of(h));
	zwal_add_part(wal, wal->head, p - wal->head);
	zwal_add_part(wal, change->row + ZTUPLE_HEADER_SIZE, change->row_length - ZTUPLE_HEADER_SIZE);
	return p;
}

/*
 * Reads the shape and the rest of the row, whose slot is the change's, and
 * forms the row.
 */
static void
get_new_row(ZWalReader *r, ZChange *change, char *row)
{
	uint32		shape = get_limited(r, ZH_NATTS_MASK << 2 | 3);
	Size		datalen = r->bad ? 0 : r->end - r->p;
	ZHeader		h;

	if (r->bad || datalen + ZTUPLE_HEADER_SIZE > BLCKSZ)
	{
		r->bad = true;
		return;
	}
	h = ZH_WITH_SLOT(zwal_header_of_shape(shape),
					 change->frozen ? 0 : change->page[0].slot.slotno);
	zheader_set(row, h);
	memcpy(row + ZTUPLE_HEADER_SIZE, get_bytes(r, datalen), datalen);
	change->row = row;
	change->row_length = datalen + ZTUPLE_HEADER_SIZE;
}

/* Reads what put_insert wrote, and forms the row. */
static void
get_insert(ZWalReader *r, ZChange *change, char *row)
{
	change->rec[0].type = ZUR_INSERT;
	get_new_row(r, change, row);
}

/* ---- INSERT and DELETE without an undo record ---- */

char *
zwal_put_covered(char *dst, OffsetNumber off, ZHeader h)
{
	char	   *p = zvarint_put(dst, ZH_SLOT(h));

	p = zvarint_put(p, off);
	p = zvarint_put(p, zwal_shape_of(h));
	Assert(p <= dst + ZWAL_COVERED_HEAD_MAX);
	return p;
}

/* zwal_put_covered_delete: See zwal_internal.h. */
char *
zwal_put_covered_delete(char *dst, OffsetNumber off, ZHeader h)
{
	char	   *p = zvarint_put(dst, ZH_SLOT(h));

	p = zvarint_put(p, off << 1 | ((h & ZH_OTHER_PART) ? 1 : 0));
	Assert(p <= dst + ZWAL_COVERED_HEAD_MAX);
	return p;
}

/* Reads what zwal_put_covered_delete wrote after the slot. */
static void
get_covered_delete(ZWalReader *r, ZChange *change)
{
	ZuRecord   *rec = &change->rec[0];
	uint32		word = get_limited(r, ZHEAP_MAX_OFFSET << 1 | 1);

	rec->type = ZUR_DELETE;
	rec->offset = word >> 1;
	rec->xflags = ZUX_KEY_CHANGE | ((word & 1) ? ZUX_OTHER_PART : 0);
	r->bad |= change->page[0].slot.slotno == 0 || r->p != r->end;
}

void
zwal_decode_covered(ZWalReader *r, ZChange *change, ZChangeWork *work)
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
	change->page[0].slot.slotno = get_limited(r, ZPAGE_MAX_SLOTS);
	r->bad |= r->overflow[0];
	if (r->opcode == ZWAL_DELETE)
	{
		get_covered_delete(r, change);
		return;
	}
	change->frozen = (change->page[0].slot.slotno == 0);
	rec->offset = get_limited(r, ZHEAP_MAX_OFFSET);
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
	zwal_add_part(wal, wal->head, p - wal->head);
	zwal_add_part(wal, change->delta, change->delta_length);
	return p;
}

/*
 * Reads what put_update wrote. The undo payload is the old header, and the
 * delta without its new bytes.
 */
static void
get_update(ZWalReader *r, ZChange *change, char *payload)
{
	ZuRecord   *rec = &change->rec[0];
	uint8		uflags = get_byte(r);
	const char *old;
	const char *next;
	ZHeader		ignored;
	Size		len = 0;

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
	 * only the length of the header is needed here, so any base that has a
	 * shape (not 0) will do
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
 * Appends what only a DELETE has: whether the row goes to another partition,
 * and its old header.
 */
static char *
put_delete(char *p, const ZChange *change, ZChangeWal *wal)
{
	const ZuRecord *rec = &change->rec[0];

	Assert((rec->xflags & ~ZUX_OTHER_PART) == ZUX_KEY_CHANGE);
	Assert(!TransactionIdIsValid(rec->as_of));
	*p++ = (rec->xflags & ZUX_OTHER_PART) ? 1 : 0;
	p = put_bytes(p, rec->payload, rec->payload_len);
	zwal_add_part(wal, wal->head, p - wal->head);
	return p;
}

/*
 * Reads an old header, and makes it the record's payload. Only its length is
 * needed here, so any base that has a shape (not 0) will do.
 */
static void
get_old_header(ZWalReader *r, ZuRecord *rec)
{
	ZHeader		ignored;
	const char *next = r->bad ? NULL : zheader_compact_get(r->p, r->end, (ZHeader) 1, &ignored);

	if (next == NULL)
	{
		r->bad = true;
		return;
	}
	rec->payload = r->p;
	rec->payload_len = next - r->p;
	r->p = next;
}

/* Reads what put_delete wrote. */
static void
get_delete(ZWalReader *r, ZChange *change)
{
	ZuRecord   *rec = &change->rec[0];

	rec->type = ZUR_DELETE;
	rec->xflags = ZUX_KEY_CHANGE | (get_byte(r) ? ZUX_OTHER_PART : 0);
	r->bad |= rec->open != (rec->nrows > 1);
	get_old_header(r, rec);
	r->bad |= r->p != r->end;
}

/* ---- MOVE ---- */

/* Adds the items by which a MOVE prunes its page, or an IMAGE saves rows. */
static void
put_prune(const ZChange *change, ZChangeWal *wal)
{
	char	   *p = zvarint_put(wal->prune, change->nprune);
	OffsetNumber last = 0;

	Assert(change->nprune <= ZHEAP_MAX_OFFSET);
	for (int i = 0; i < change->nprune; i++)
	{
		const ZPruneItem *item = &change->prune[i];

		Assert(item->offset > last && item->action <= ZWAL_PRUNE_ACTION);
		p = zvarint_put(p, (uint32) (item->offset - last) << 3 | item->action);
		last = item->offset;
	}
	p = zvarint_put(p, change->conflict);
	Assert(p <= wal->prune + sizeof(wal->prune));
	zwal_add_part(wal, wal->prune, p - wal->prune);
}

/*
 * Reads what put_prune added. The row that moves is there afterwards (PRUNE-3).
 */
static void
get_prune(ZWalReader *r, ZChange *change, ZPruneItem *items)
{
	uint32		n = get_varint(r);
	uint32		off = 0;

	r->bad |= (n > ZHEAP_MAX_OFFSET);
	for (uint32 i = 0; i < n && !r->bad; i++)
	{
		uint32		word = get_varint(r);

		off += word >> 3;
		r->bad |= (word >> 3 == 0 || off > ZHEAP_MAX_OFFSET ||
				   (word & ZWAL_PRUNE_ACTION) > ZPRUNE_KEEP ||
				   (off == change->rec[0].offset && (word & ZWAL_PRUNE_ACTION) != ZPRUNE_CUT));
		items[i].offset = off;
		items[i].action = word & ZWAL_PRUNE_ACTION;
	}
	change->prune = items;
	change->nprune = n;
	change->conflict = get_varint(r);
}

/*
 * Appends what only a MOVE within one page has: whether the key changes, the
 * old header, how the page is pruned, and the new row.
 */
static char *
put_move(char *p, const ZChange *change, ZChangeWal *wal)
{
	const ZuRecord *out = &change->rec[0];
	const ZuRecord *in = &change->rec[1];
	ZHeader		h = zheader_get(change->row);

	Assert((out->xflags & ~ZUX_KEY_CHANGE) == 0 && !TransactionIdIsValid(out->as_of));
	Assert(in->xflags == (ZUX_MOVED_IN | out->xflags) && in->cid == out->cid);
	Assert(h == ZH_WITH_SLOT(zwal_header_of_shape(zwal_shape_of(h)),
							 change->page[0].slot.slotno));
	*p++ = (out->xflags & ZUX_KEY_CHANGE) ? 1 : 0;
	p = put_bytes(p, out->payload, out->payload_len);
	p = zvarint_put(p, in->offset);
	p = zvarint_put(p, zwal_shape_of(h));
	zwal_add_part(wal, wal->head, p - wal->head);
	if (change->prunes)
		put_prune(change, wal);
	zwal_add_part(wal, change->delta, change->delta_length);
	return p;
}

/* Reads what put_move wrote. The second record is pushed on the first. */
static void
get_move(ZWalReader *r, ZChange *change, ZChangeWork *work)
{
	ZuRecord   *out = &change->rec[0];
	ZuRecord   *in = &change->rec[1];

	out->type = ZUR_MOVE;
	out->xflags = get_byte(r) ? ZUX_KEY_CHANGE : 0;
	get_old_header(r, out);
	*in = *out;
	change->nrecords = 2;
	in->type = ZUR_INSERT;
	in->xflags |= ZUX_MOVED_IN;
	in->flags = 0;
	in->payload = NULL;
	in->payload_len = 0;
	in->prev = ZCHANGE_ON_RECORD_BEFORE;
	in->offset = get_limited(r, ZHEAP_MAX_OFFSET);
	ItemPointerSet(&out->forward, out->block, in->offset);
	change->shape = ZH_WITH_SLOT(zwal_header_of_shape(get_limited(r, ZH_NATTS_MASK << 2 | 3)),
								 change->page[0].slot.slotno);
	change->page[1].slot.slotno = change->page[0].slot.slotno;
	change->prunes = (r->flags & ZWD_PRUNE) != 0;
	if (change->prunes)
		get_prune(r, change, work->prune);
	if (r->bad)
		return;
	change->delta = r->p;
	change->delta_length = r->end - r->p;
}

/* ---- IMAGE of rows ---- */

/* Appends what only an IMAGE of rows has: their length, and which they are. */
static char *
put_rows(char *p, const ZChange *change, ZChangeWal *wal)
{
	Assert(change->rec[0].type == ZUR_ROWS && (change->rec[0].xflags & ZUX_LZ4) == 0);
	p = zvarint_put(p, change->rec[0].payload_len);
	zwal_add_part(wal, wal->head, p - wal->head);
	put_prune(change, wal);
	return p;
}

/*
 * Reads what put_rows wrote. The payload says that the rows are gone, until
 * zchange_take_rows puts them there.
 */
static void
get_rows(ZWalReader *r, ZChange *change, ZChangeWork *work)
{
	ZuRecord   *rec = &change->rec[0];

	rec->type = ZUR_ROWS;
	rec->payload = work->bytes;
	rec->payload_len = get_limited(r, BLCKSZ);
	get_prune(r, change, work->prune);
	r->bad |= rec->payload_len == 0 || r->p != r->end;
	if (r->bad)
		return;
	memset(work->bytes, 0, rec->payload_len - 1);
	work->bytes[rec->payload_len - 1] = ZUR_ROWS_GONE;
}

/* ---- compact records ---- */

/*
 * zwal_encode_compact: See zwal_internal.h. Each kind of change ends with its
 * own fields.
 */
void
zwal_encode_compact(const ZChange *change, ZChangeWal *wal, char *p)
{
	const ZuRecord *rec = &change->rec[0];

	Assert(change->nrecords == (wal->opcode == ZWAL_MOVE ? 2 : 1));
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
	if (rec->open)
		p = zvarint_put(p, rec->nrows);
	if (wal->opcode == ZWAL_INSERT)
		p = put_insert(p, change, wal);
	else if (wal->opcode == ZWAL_UPDATE)
		p = put_update(p, change, wal);
	else if (wal->opcode == ZWAL_MOVE)
		p = put_move(p, change, wal);
	else if (wal->opcode == ZWAL_IMAGE)
		p = put_rows(p, change, wal);
	else
		p = put_delete(p, change, wal);
	Assert(p <= wal->head + sizeof(wal->head));
}

void
zwal_decode_compact(ZWalReader *r, ZChange *change, ZChangeWork *work)
{
	ZuRecord   *rec = &change->rec[0];

	change->nrecords = 1;
	memset(rec, 0, sizeof(*rec));
	change->page[0].slot.slotno = get_limited(r, ZPAGE_MAX_SLOTS);
	rec->block = r->block;
	rec->offset = get_limited(r, ZHEAP_MAX_OFFSET);
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
	rec->nrows = 1;
	if ((r->flags & ZWD_OPEN) != 0 && (r->opcode == ZWAL_INSERT || r->opcode == ZWAL_DELETE))
	{
		rec->open = true;
		rec->nrows = get_limited(r, ZHEAP_MAX_OFFSET);
		r->bad |= rec->nrows < 1 || rec->offset + rec->nrows - 1 > ZHEAP_MAX_OFFSET;
	}
	if (r->opcode == ZWAL_INSERT)
		get_insert(r, change, work->bytes);
	else if (r->opcode == ZWAL_UPDATE)
		get_update(r, change, work->bytes);
	else if (r->opcode == ZWAL_MOVE)
		get_move(r, change, work);
	else if (r->opcode == ZWAL_IMAGE)
		get_rows(r, change, work);
	else
		get_delete(r, change);
	if (r->bad)
		return;
	for (int i = 0; i < change->nrecords; i++)
	{
		/*
		 * with all other fields it is no longer than any record
		 * (ZUR_MAX_LENGTH)
		 */
		if (change->rec[i].payload_len > BLCKSZ)
		{
			r->bad = true;
			return;
		}
		change->op.total += zur_length(&change->rec[i]);
	}
	r->bad = change->op.total > sizeof(work->packed);
}
