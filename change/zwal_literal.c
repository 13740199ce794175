/*
 * change/zwal_literal.c - row changes whose WAL record has the packed undo
 * records as they are: all that is not compact.
 *
 * Each encoder is followed by its decoder. The layout is in change/zwal.h.
 */
#include "postgres.h"

#include "change/zwal_internal.h"
#include "tuple/ztuple.h"

/* Appends a slot; the record's flag ZWD_GROW says whether its page grows. */
static char *
put_slot(char *p, const ZChangeSlot *slot)
{
	p = zvarint_put(p, slot->slotno);
	if (slot->grow_to != 0)
		*p++ = (char) slot->grow_to;
	return p;
}

/* Appends a slot, and whether its page grows, for which there is no flag. */
static char *
put_other_slot(char *p, const ZChangeSlot *slot)
{
	p = zvarint_put(p, slot->slotno);
	*p++ = (char) slot->grow_to;
	return p;
}

/* Reads what put_other_slot appended. */
static void
get_other_slot(ZWalReader *r, ZChangeSlot *slot)
{
	slot->slotno = get_limited(r, ZPAGE_MAX_SLOTS);
	slot->grow_to = get_byte(r);
}

/*
 * Adds what only a MOVE has: the new row, its slot, and the common lock slot.
 * The row is compressed, if that helps, into space, which has BLCKSZ bytes. A
 * row of a table that is not logged is left out.
 */
static void
put_moved(const ZChange *change, ZChangeWal *wal, char *space)
{
	bool		logged = wal->opcode != ZWAL_UNDO_ONLY;
	uint16		word = logged ? change->row_length : 0;
	uint16		squeezed = logged ? zur_squeeze(change->row, change->row_length, space) : 0;
	char	   *p = put_other_slot(wal->middle, &change->page[1].slot);

	Assert(change->row_length < ZWM_INIT);
	if (squeezed > 0)
		word |= ZWM_LZ4;
	if (change->page[1].init && logged)
		word |= ZWM_INIT;
	p = put_bytes(p, &word, 2);
	if (squeezed > 0)
		p = put_bytes(p, &squeezed, 2);
	Assert(p <= wal->middle + sizeof(wal->middle));
	zwal_add_part(wal, wal->middle, p - wal->middle);
	if (squeezed > 0)
		zwal_add_part(wal, space, squeezed);
	else if (logged)
		zwal_add_part(wal, change->row, change->row_length);
	if (change->nrecords == 3)
		zwal_add_part(wal, wal->tail, put_other_slot(wal->tail, &change->locks) - wal->tail);
}

/* Returns the next row of len bytes, which is compressed, in work. */
static const char *
get_squeezed(ZWalReader *r, uint32 len, ZChangeWork *work)
{
	uint16		n = 0;
	const char *squeezed;

	copy_bytes(r, &n, 2);
	squeezed = get_bytes(r, n);
	r->bad = r->bad || len > sizeof(work->bytes) || !zur_expand(squeezed, n, work->bytes, len);
	return work->bytes;
}

/* Reads what put_moved added. */
static void
get_moved(ZWalReader *r, ZChange *change, ZChangeWork *work)
{
	ZChangeSlot *slot = &change->page[1].slot;
	uint16		word = 0;

	get_other_slot(r, slot);
	slot->live_chain = !zchange_on_one_page(change) && change->nrecords > 1 &&
		change->rec[1].prev != InvalidUndoPtr;
	copy_bytes(r, &word, 2);
	change->row_length = word & ~(ZWM_LZ4 | ZWM_INIT);
	change->page[1].init = (word & ZWM_INIT) != 0;
	if (word & ZWM_LZ4)
		change->row = get_squeezed(r, change->row_length, work);
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

/*
 * zwal_encode_literal: See zwal_internal.h. A MOVE and a MULTI_INSERT have
 * their rows after the undo records.
 */
void
zwal_encode_literal(const ZChange *change, ZChangeWal *wal, char *p)
{
	char	   *packed = wal->records;

	p = put_slot(p, &change->page[0].slot);
	p = zvarint_put(p, change->nrecords);
	p = zvarint_put(p, change->op.total);
	Assert(p <= wal->head + sizeof(wal->head));
	zwal_add_part(wal, wal->head, p - wal->head);
	for (int i = 0; i < change->nrecords; i++)
	{
		zur_pack(&change->rec[i], packed);
		packed += change->rec[i].length;
	}
	wal->packed = wal->records;
	zwal_add_part(wal, wal->records, packed - wal->records);
	if (change->rec[0].type == ZUR_MOVE)
	{
		Assert(wal->records + sizeof(wal->records) - packed >= BLCKSZ);
		put_moved(change, wal, packed);
	}
	else if (wal->opcode == ZWAL_MULTI_INSERT)
		zwal_add_part(wal, change->row, change->row_length);
}

/*
 * zwal_decode_literal: See zwal_internal.h. Unpacks the undo records in place.
 */
void
zwal_decode_literal(ZWalReader *r, ZChange *change, ZChangeWork *work)
{
	uint32		byte = 0;

	change->page[0].slot.slotno = get_limited(r, ZPAGE_MAX_SLOTS);
	if (r->flags & ZWD_GROW)
		change->page[0].slot.grow_to = get_byte(r);
	change->nrecords = get_limited(r, ZU_MAX_RECORDS);
	change->op.total = get_varint(r);
	change->undo = get_bytes(r, change->op.total);
	if (r->bad || change->nrecords < 1)
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
		r->p = r->end;
	}
	r->bad |= (r->p != r->end);
}
