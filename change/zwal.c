/*
 * change/zwal.c - row changes as WAL records: encoding and decoding.
 *
 * This file has what all of them have in common: the beginning of the main
 * data, the decoding part, and the insertion. The two families of encodings
 * are in zwal_compact.c and zwal_literal.c. The encoder runs before the
 * critical section. The decoder checks every length and is the only reader of
 * the layout (change/zwal.h); replay, desc and logical decoding use it.
 *
 * Under assertions, each record is decoded before it is inserted, and the
 * result is compared with the change.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "change/zwal_internal.h"
#include "tuple/ztuple.h"
#include "utils/memutils.h"

/* ---- the beginning of all row changes ---- */

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
		case ZWAL_LOCK:
			return &change->converted;
		case ZWAL_DELETE:
		case ZWAL_MOVE:
		case ZWAL_IMAGE:
			return &change->compact;
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
		(rec->topxid != rec->xid ? ZWD_TOPXID : 0) | (rec->open ? ZWD_OPEN : 0) |
		(change->prunes ? ZWD_PRUNE : 0);
}

/* Sets the members of change that follow from the record's flags. */
static void
take_flags(ZWalReader *r, ZChange *change)
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
undo_position(const ZWalReader *r, const ZuOp *op)
{
	uint32		extent,
				page;

	if (!zu_block_position(r->undo_block, &extent, &page))
		return InvalidUndoPtr;
	return zuptr_make(op->place.generation, extent, page * BLCKSZ + op->start);
}

/*
 * Appends the place of the undo records, as far as it does not follow from the
 * block references.
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
get_place(ZWalReader *r, ZuOp *op)
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
 * Computes the pointers of the undo records, which follow one another from the
 * place of the first one. Sets prev of a record that is pushed on the record
 * before it.
 */
static void
locate_records(ZWalReader *r, ZChange *change)
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
		if (change->rec[i].prev == ZCHANGE_ON_RECORD_BEFORE && i > 0)
			change->rec[i].prev = op->ptr[i - 1];
		byte += change->rec[i].length;
	}
	r->bad = (byte != op->total);
}

/* Packs the undo records of a compact change, whose places are known. */
static void
pack_records(ZChange *change, ZChangeWork *work)
{
	char	   *packed = work->packed;

	for (int i = 0; i < change->nrecords; i++)
	{
		zur_pack(&change->rec[i], packed);
		packed += change->rec[i].length;
	}
	change->undo = work->packed;
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
 * Returns the number of bytes at the end of the main data that belong to the
 * decoding part, because it is too long for the data of a block.
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
 * Adds the decoding part, if there is one, to the record: to block 0, which
 * must be registered, or, if it is too long for that, to the end of the main
 * data. So no main data may be registered afterwards.
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

/* ---- decoding ---- */

/* Returns whether the slot and the growth of its page are possible. */
static bool
slot_is_possible(const ZChangeSlot *slot)
{
	return slot->slotno <= ZPAGE_MAX_SLOTS && slot->grow_to <= ZPAGE_MAX_INLINE_SLOTS;
}

/* Returns whether a record for a change of this opcode may have this type. */
static bool
type_is_possible(const ZChange *change, int i)
{
	ZuRecordType type = change->rec[i].type;

	switch (change->opcode)
	{
		case ZWAL_INSERT:
		case ZWAL_MULTI_INSERT:
			return type == ZUR_INSERT && change->nrecords == 1;
		case ZWAL_UPDATE:
			return type == ZUR_UPDATE && change->nrecords == 1;
		case ZWAL_DELETE:
			return type == ZUR_DELETE && change->nrecords == 1;
		case ZWAL_MOVE:
			return change->nrecords > 1 &&
				type == (i == 0 ? ZUR_MOVE : i == 1 ? ZUR_INSERT : ZUR_LOCKS);
		case ZWAL_LOCK:
			return type == ZUR_LOCK || type == ZUR_LOCKS;
		case ZWAL_IMAGE:
			return zrecord_is_saved(type) && change->nrecords == 1;
		default:
			return true;
	}
}

/*
 * Returns whether a table page can have the rows and slots of the decoded
 * change: zchange_apply does not look. UNDO_ONLY changes no table page.
 */
static bool
is_possible(const ZChange *change)
{
	if (!slot_is_possible(&change->page[0].slot) || !slot_is_possible(&change->page[1].slot) ||
		!slot_is_possible(&change->locks))
		return false;
	if (change->opcode == ZWAL_UNDO_ONLY)
		return change->row_length == 0;
	for (int i = 0; i < change->nrecords; i++)
	{
		const ZuRecord *rec = &change->rec[i];
		int			last = rec->offset + (change->opcode == ZWAL_MULTI_INSERT ? rec->nrows - 1 : 0);

		if (!type_is_possible(change, i) ||
			(!zrecord_is_saved(rec->type) &&
			 (rec->offset < FirstOffsetNumber || last > ZHEAP_MAX_OFFSET)))
			return false;
	}
	return change->row == NULL || change->opcode == ZWAL_MULTI_INSERT ||
		ztuple_header_ok(change->row, change->row_length);
}

/*
 * Decodes r into change. Fields that are not in the record, such as buffers and
 * pages, become 0. Returns false if the record is malformed.
 */
static bool
decode(ZWalReader *r, ZChange *change, ZChangeWork *work)
{
	memset(change, 0, sizeof(*change));
	change->opcode = r->opcode;
	change->logged = (r->opcode != ZWAL_UNDO_ONLY);
	for (int i = 0; i < 2; i++)
		change->page[i].slot.in_overflow = r->overflow[i];
	if ((r->opcode == ZWAL_INSERT || r->opcode == ZWAL_DELETE) && r->nundo_pages == 0)
	{
		zwal_decode_covered(r, change, work);
		return !r->bad && is_possible(change);
	}
	r->flags = get_byte(r);
	take_flags(r, change);
	get_place(r, &change->op);
	if (r->bad || r->nundo_pages < 1)
		return false;
	if (is_compact(change, r->opcode))
		zwal_decode_compact(r, change, work);
	else
		zwal_decode_literal(r, change, work);
	if (!r->bad)
		locate_records(r, change);
	if (!r->bad && is_compact(change, r->opcode))
		pack_records(change, work);
	return !r->bad && is_possible(change);
}

/*
 * zchange_decode: See zchange.h. Reads the record's header and its block
 * references; decode reads the main data.
 */
bool
zchange_decode(XLogReaderState *record, ZChange *change, ZChangeWork *work)
{
	ZWalReader	r = {0};
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
		XLogRecGetBlockTag(record, ZWAL_UNDO_BLOCK, NULL, NULL, &r.undo_block);
	else if (r.opcode != ZWAL_INSERT && r.opcode != ZWAL_DELETE)
		return false;
	if (r.opcode != ZWAL_UNDO_ONLY)
	{
		if (!XLogRecHasBlockRef(record, 0))
			return false;
		XLogRecGetBlockTag(record, 0, &locator, NULL, &r.block);
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

/* Returns whether the decoded change of a slot is the one that was encoded. */
static bool
same_slot(const ZChangeSlot *a, const ZChangeSlot *b)
{
	return a->slotno == b->slotno && a->grow_to == b->grow_to && a->live_chain == b->live_chain &&
		a->in_overflow == b->in_overflow;
}

/* Returns whether two strings of bytes have equal length and contents. */
static bool
same_bytes(const char *a, uint32 alen, const char *b, uint32 blen)
{
	return alen == blen && (alen == 0 || memcmp(a, b, alen) == 0);
}

/*
 * Asserts that the place of the undo is the same, as far as put_place writes
 * it.
 */
static void
compare_places(const ZuOp *op, const ZuOp *decoded)
{
	Assert(decoded->place.generation == op->place.generation);
	if (op->init[0] || op->npages > 1)
	{
		Assert(decoded->place.logno == op->place.logno);
		Assert(decoded->place.sequence == op->place.sequence);
		Assert(decoded->place.topxid == op->place.topxid);
	}
	if (op->init[0] && zuptr_byte(op->ptr[0]) < BLCKSZ)
		Assert(decoded->place.prev == op->place.prev);
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
	compare_places(&change->op, &decoded->op);
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

/*
 * Asserts that replay forms the row that this change, an UPDATE or a compact
 * MOVE, puts on the page, which has not been changed yet. Leaves out
 * the lock hint and tag of an updated row, which stay as they are on the page
 * unless the change clears them.
 */
static void
compare_formed_row(const ZChange *change, ZChange *decoded)
{
	char	   *row = palloc(BLCKSZ);
	ZHeader		formed;
	ZHeader		wanted = zheader_get(change->row);
	bool		ok;

	decoded->page[0].page = change->page[0].page;
	ok = zchange_form_row(decoded, row);
	Assert(ok);
	formed = zheader_get(row);
	Assert(change->clear_locks || change->opcode == ZWAL_MOVE ? formed == wanted
		   : ZH_WITHOUT_LOCKS(formed) == ZH_WITHOUT_LOCKS(wanted));
	Assert(same_bytes(row + ZTUPLE_HEADER_SIZE, decoded->row_length - ZTUPLE_HEADER_SIZE,
					  change->row + ZTUPLE_HEADER_SIZE, change->row_length - ZTUPLE_HEADER_SIZE));
	pfree(row);
}

/* Asserts that both changes make the same changes of their pages. */
static void
compare_pages(const ZChange *change, ZChange *decoded)
{
	Assert(decoded->page[0].init == change->page[0].init);
	Assert(decoded->page[1].init == change->page[1].init);
	Assert(decoded->frozen == change->frozen);
	Assert(decoded->converted == change->converted);
	Assert(decoded->compact == change->compact);
	Assert(decoded->prunes == change->prunes);
	Assert(same_bytes((const char *) decoded->prune, decoded->nprune * sizeof(ZPruneItem),
					  (const char *) change->prune, change->nprune * sizeof(ZPruneItem)));
	Assert(decoded->conflict == change->conflict);
	Assert(decoded->clear_locks == change->clear_locks);
	Assert(decoded->new_shape == change->new_shape);
	Assert(decoded->stale_keys == change->stale_keys);
	Assert(decoded->old_header_length == change->old_header_length);
	if (change->new_shape)
		Assert(zheader_same_shape(decoded->shape, change->shape));
	Assert(same_bytes(decoded->delta, decoded->delta_length, change->delta, change->delta_length));
	if (change->opcode == ZWAL_UPDATE || (change->opcode == ZWAL_MOVE && change->compact))
		compare_formed_row(change, decoded);
	else
		Assert(same_bytes(decoded->row, decoded->row_length, change->row, change->row_length));
}

/*
 * Decodes the encoded change and asserts that the result is the same. The
 * record does not exist yet, so the fields that come from its header and its
 * block references are set here.
 */
static void
prove_encoding(const ZChange *change, const ZChangeWal *wal)
{
	ZChange    *decoded = palloc(sizeof(ZChange));
	ZChangeWork *work = palloc(sizeof(ZChangeWork));
	Size		length;
	char	   *bytes = join_parts(wal, &length);
	ZWalReader	r = {0};
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
	ok = decode(&r, decoded, work) &&
		(decoded->opcode != ZWAL_IMAGE || !decoded->compact ||
		 zchange_take_rows(decoded, work, change->page[0].page));
	Assert(ok);
	compare_records(change, decoded);
	Assert(same_slot(&decoded->page[0].slot, &change->page[0].slot));
	if (wal->opcode != ZWAL_UNDO_ONLY)
		compare_pages(change, decoded);
	if (change->rec[0].type == ZUR_MOVE && change->nrecords > 1)
	{
		Assert(decoded->page[1].slot.slotno == change->page[1].slot.slotno);
		Assert(decoded->page[1].slot.in_overflow == BufferIsValid(change->page[1].overflow_buf));
		Assert(zchange_on_one_page(change) ||
			   same_slot(&decoded->page[1].slot, &change->page[1].slot));
		Assert(change->nrecords < 3 || same_slot(&decoded->locks, &change->locks));
	}
	pfree(bytes);
	pfree(work);
	pfree(decoded);
}
#endif

/*
 * zchange_encode: See zchange.h. If the table is not logged, only the undo is
 * logged: every kind of change becomes a ZWAL_UNDO_ONLY.
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
		zwal_encode_compact(change, wal, p);
	else
		zwal_encode_literal(change, wal, p);
#ifdef USE_ASSERT_CHECKING
	prove_encoding(change, wal);
#endif
}

/* ---- inserting ---- */

/*
 * zchange_ensure_space: See zchange.h. There is always space for blocks 0 to 4
 * (XLR_NORMAL_MAX_BLOCK_ID).
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
 * zchange_log: See zchange.h. Each block has a fixed number, so that replay
 * finds the undo pages independently of the number of table pages.
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
	if (unlikely(BufferIsValid(change->map)) && wal->opcode != ZWAL_UNDO_ONLY)
		XLogRegisterBuffer(ZWAL_MAP_BLOCK, change->map, 0);
	zu_op_register(&change->op, ZWAL_UNDO_BLOCK);
	if (wal->opcode != ZWAL_UNDO_ONLY)
		register_logical(change->logical, change->logical_length);
	return XLogInsert(ZUNDO_RMGR_ID, wal->opcode);
}

XLogRecPtr
zchange_log_covered(Buffer buf, const ZCoveredRow *new)
{
	char		head[ZWAL_COVERED_HEAD_MAX];
	char	   *end = zwal_put_covered(head, new->off, new->header);

	XLogBeginInsert();
	if (unlikely(XLogLogicalInfoActive()))
		XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
	XLogRegisterData(head, end - head);
	XLogRegisterData((char *) new->row + ZTUPLE_HEADER_SIZE, new->length - ZTUPLE_HEADER_SIZE);
	XLogRegisterBuffer(0, buf, REGBUF_STANDARD | (new->logical != NULL ? REGBUF_KEEP_DATA : 0));
	register_logical(new->logical, new->logical_length);
	return XLogInsert(ZUNDO_RMGR_ID, ZWAL_INSERT);
}

XLogRecPtr
zchange_log_covered_delete(Buffer buf, const ZCoveredRow *old)
{
	char		head[ZWAL_COVERED_HEAD_MAX];
	char	   *end = zwal_put_covered_delete(head, old->off, old->header);

	XLogBeginInsert();
	if (unlikely(XLogLogicalInfoActive()))
		XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
	XLogRegisterData(head, end - head);
	XLogRegisterBuffer(0, buf, REGBUF_STANDARD | (old->logical != NULL ? REGBUF_KEEP_DATA : 0));
	register_logical(old->logical, old->logical_length);
	return XLogInsert(ZUNDO_RMGR_ID, ZWAL_DELETE);
}

/* ---- inline locks ---- */

/*
 * zwal_log_inline_lock: See zwal.h. The record has one block reference, no undo
 * pages, and 3 or 4 bytes of main data.
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

/*
 * zwal_decode_inline_lock: See zwal.h. A record with bytes left over is
 * malformed, too.
 */
bool
zwal_decode_inline_lock(XLogReaderState *record, ZWalInlineLock *lock)
{
	ZWalReader	r = {0};
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
	return !r.bad && r.p == r.end && lock->slotno > 0 &&
		(lock->tag || lock->slotno <= ZPAGE_MAX_INLINE_SLOTS) &&
		lock->grow_to <= ZPAGE_MAX_INLINE_SLOTS && lock->offset >= FirstOffsetNumber &&
		lock->offset <= ZHEAP_MAX_OFFSET;
}
