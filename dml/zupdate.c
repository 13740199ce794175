/*
 * dml/zupdate.c - updating one row: in place, or by moving it to a new TID.
 *
 * In place if no column changed that an index depends on and the new row fits:
 * same TID, no index is touched. Otherwise the row moves: a new TID, every index
 * gets an entry, the old TID remembers where it went. Both halves of a move
 * carry one xid and cid, so a snapshot accepts exactly one of them.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "common/varint.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "pgstat.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "tuple/zslot.h"
#include "utils/memutils.h"
#include "utils/rel.h"

static char undo_payload[2 * BLCKSZ];
static char compressed[2 * BLCKSZ];
static char packed_undo[ZU_MAX_RECORDS * ZUR_MAX_LENGTH];
static char move_data[BLCKSZ + 32];

/* One update from its start to its end. */
typedef struct Update
{
	ZWriter		writer;
	const ZIndexColumns *columns;
	ItemPointerData otid;
	Buffer		buf;
	char	   *newrow;			/* header: shape only, until applied */
	uint32		newlen;
	bool		toasted;
	const char *values;			/* the new row before toasting, which may put values elsewhere that have not changed */
	uint32		values_len;
	/* the row that is replaced, copied under the lock */
	char		oldrow[BLCKSZ];
	Size		oldlen;
	LockTupleMode mode;
	LockTupleMode queued;		/* of the heavyweight lock taken for waiting */
	TransactionId as_of;		/* of a deletion: see zheap_delete_as_of */
	bool		must_move;		/* the row will get a new TID, and nobody else may hold a lock on it (D5) */
	bool		in_place;		/* no index needs to know */
	bool		summarizing;	/* but block-summarizing ones do */
	bool		event;			/* an AFTER row trigger's event may be queued */
	UndoPtr		change;			/* the record of the change once it is done */
	bool		locked;			/* we had locked the row before */
	ZRowState	state;
} Update;

static Update current_update;	/* row changes don't nest */

static bool
columns_differ(const Update *u, const Bitmapset *attrs)
{
	return zcolumns_differ(u->writer.rel, attrs, (ItemPointer) &u->otid, u->oldrow, u->oldlen, u->values, u->values_len);
}

/* May our own transaction have written this row? */
static bool
row_is_ours(Page page, const char *row)
{
	int			s = ZH_SLOT(zheader_get(row));
	ZXid		xid;

	if (s == 0 || s > zpage_nslots(page))
		return s != 0;
	xid = zpage_slot_writer(zpage_slot(page, s));
	return xid >= zpage_oldest(page) && zxid_is_ours(xid);
}

/*
 * Does the change exclude KEY SHARE lockers? If the key changes, or if we have excluded them by a lock: that has shown
 * others a row whose key may change, and they must look at the row anew when we have ended, as on heap.
 */
static inline bool
excludes_key_share(const Update *u)
{
	return u->mode == LockTupleExclusive || u->state.own_exclusive;
}

/* Copy the row to be replaced and see which index columns the update changes. Buffer locked. */
static void
look_at_old_row(Update *u)
{
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = ItemPointerGetOffsetNumber(&u->otid);
	ItemId		lp;

	u->mode = LockTupleExclusive;
	u->in_place = false;
	u->summarizing = false;
	u->event = false;
	/* of a damaged page nothing is read: that is an error when the row is examined */
	if (PageIsNew(page) || off > PageGetMaxOffsetNumber(page) || !zpage_item_ok(page, off))
		return;
	lp = PageGetItemId(page, off);
	if (!ItemIdIsNormal(lp))
		return;
	u->oldlen = zpage_row_length(page, lp);
	if (unlikely(u->oldlen == 0))
		zvis_corrupt_page(u->writer.rel, BufferGetBlockNumber(u->buf), page, off);
	memcpy(u->oldrow, zpage_row(page, lp), u->oldlen);
	if (u->newrow == NULL)
		return;					/* a deletion */
	if (!columns_differ(u, u->columns->key))
		u->mode = LockTupleNoKeyExclusive;
	u->in_place = !zundo_move_updates && !columns_differ(u, u->columns->blocking);
	u->event = zcolumns_event(u->columns, !u->in_place, columns_differ(u, u->columns->foreign),
							  row_is_ours(page, u->oldrow)) ||
		zcolumns_some_null(u->writer.rel, u->columns->foreign, u->values, u->values_len);
	if (u->in_place)
		u->summarizing = columns_differ(u, u->columns->summarized);
}

/* Pack op's records one after the other. */
static void
pack_records(const ZuOp *op)
{
	char	   *p = packed_undo;

	for (int i = 0; i < op->nrecords; i++)
	{
		zur_pack(op->records[i], p);
		p += op->records[i]->length;
	}
}

/* The whole old row as an undo payload. */
static void
whole_row_payload(const Update *u, ZuRecord *rec)
{
	char	   *p = zheader_compact_put(undo_payload, zheader_get(u->oldrow), 0);

	memcpy(p, u->oldrow + ZTUPLE_HEADER_SIZE, u->oldlen - ZTUPLE_HEADER_SIZE);
	p += u->oldlen - ZTUPLE_HEADER_SIZE;
	rec->payload = undo_payload;
	rec->payload_len = p - undo_payload;
	zur_compress(rec, compressed, sizeof(compressed));
}

/* Apply and log an in-place update; u->buf is locked, the row fits. */
static void
update_in_place(Update *u, const ZSlotPick *pick)
{
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = ItemPointerGetOffsetNumber(&u->otid);
	ZHeader		current = zheader_get(zpage_row(page, PageGetItemId(page, off)));
	bool		key_change = excludes_key_share(u);
	ZHeader		newheader = zheader_updated(current, zheader_get(u->newrow), pick->slotno, key_change);
	ZWalSlot	wal_slot;
	ZSlotChange change;
	Buffer		overflow;
	ZDelta		delta;
	ZuRecord	rec;
	ZuRecord   *recs[1] = {&rec};
	ZuOp		op;
	char	   *p;
	XLogRecPtr	recptr;

	/* prepare */
	if (u->state.clear_locks)
		newheader &= ~ZH_LOCK_MASK;
	zheader_set(u->newrow, newheader);
	zdelta_compute(u->oldrow + ZTUPLE_HEADER_SIZE, u->oldlen - ZTUPLE_HEADER_SIZE,
				   u->newrow + ZTUPLE_HEADER_SIZE, u->newlen - ZTUPLE_HEADER_SIZE, &delta);
	zwriter_record(&u->writer, &rec, ZUR_UPDATE, BufferGetBlockNumber(u->buf), off, pick->prev);
	if (key_change)
		rec.xflags |= ZUX_KEY_CHANGE;
	p = zheader_compact_put(undo_payload, zheader_get(u->oldrow), newheader);
	p = zdelta_undo_put(p, &delta, u->oldrow + ZTUPLE_HEADER_SIZE);
	rec.payload = undo_payload;
	rec.payload_len = p - undo_payload;
	overflow = zslot_lock(&u->writer, u->buf, pick);
	wal_slot = zslot_wal(pick, overflow);
	zu_prepare(&op, recs, 1, u->writer.topxid);
	if (!u->writer.logged)
		pack_records(&op);
	zwal_ensure_space(&op, BufferIsValid(overflow));
	change = zslot_change(pick, &rec, op.ptr[0]);

	/* apply */
	START_CRIT_SECTION();
	zslot_apply(page, overflow, &change);
	zapply_update(page, off, u->newrow, u->newlen, u->state.clear_locks);
	MarkBufferDirty(u->buf);
	zu_write(&op);
	if (u->writer.logged)
	{
		recptr = zwal_log_update(u->buf, &wal_slot, &op, u->state.clear_locks, u->oldrow, u->newrow,
								 &delta);
		PageSetLSN(page, recptr);
	}
	else
		recptr = zwal_log_literal(ZWAL_UNDO_ONLY, 0, InvalidBuffer, InvalidBuffer, &wal_slot, &op,
								  packed_undo, NULL, 0);
	zslot_unlock(overflow, recptr);
	zu_finish(&op, recptr);
	ZUNDO_FAULT("update-logged");
	END_CRIT_SECTION();

	/* finish */
	u->change = op.ptr[0];
	zrollback_note_page(u->writer.rel, BufferGetBlockNumber(u->buf));
}

/* The data of a MOVE record behind its undo: the new row, its slot and, if there is one, its page's common lock slot. */
static Size
move_wal_data(const Update *u, const ZSlotPick *newpick, const ZSlotPick *common)
{
	uint16		len = u->newlen;
	char	   *p = zvarint_put(move_data, newpick->slotno);

	*p++ = (char) newpick->grow_to;
	memcpy(p, &len, 2);
	memcpy(p + 2, u->newrow, u->newlen);
	p += 2 + u->newlen;
	if (common != NULL)
	{
		p = zvarint_put(p, common->slotno);
		*p++ = (char) common->grow_to;
	}
	return p - move_data;
}

/* Make rec the list of the locks that others hold on the row, as locks on its new place; the new row gets the hint. */
static void
carry_locks(Update *u, Buffer newbuf, OffsetNumber newoff, const ZSlotPick *common, ZuRecord *rec)
{
	static ZLockEntry carried[ZLOCK_MAX_ENTRIES];
	const ZLockEntry *locks = u->state.others;
	int			n = u->state.nothers;
	int			strongest = 0;

	for (int i = 0; i < n; i++)
	{
		carried[i] = zlock_entry(ZLOCK_XID(locks[i]), newoff, ZLOCK_MODE(locks[i]));
		strongest = Max(strongest, ZLOCK_MODE(locks[i]));
	}
	zlocklist_record(&u->writer, newbuf, common, carried, n, rec);
	zheader_set(u->newrow, ZH_WITH_LOCK(zheader_get(u->newrow), strongest + 1));
}

/*
 * Move the row to newbuf (which may be u->buf); both are locked. common: the slot there for the locks of
 * others, NULL if there are none. On return the new page is unlocked unless it is the old one.
 */
static void
update_by_move(Update *u, Buffer newbuf, OffsetNumber newoff, bool init, const ZSlotPick *oldpick,
			   const ZSlotPick *newpick, const ZSlotPick *common)
{
	Page		page = BufferGetPage(u->buf);
	Page		newpage = BufferGetPage(newbuf);
	bool		same = (newbuf == u->buf);
	OffsetNumber off = ItemPointerGetOffsetNumber(&u->otid);
	ZWalSlot	wal_slot;
	ZSlotChange change,
				newchange;
	Buffer		overflow,
				new_overflow = InvalidBuffer;
	ZuRecord	out,
				in,
				locks;
	ZuRecord   *recs[3] = {&out, &in, &locks};
	ZuOp		op;
	Size		data_len;
	XLogRecPtr	recptr;

	/* prepare */
	zheader_set(u->newrow, ZH_WITH_SLOT(zheader_get(u->newrow), newpick->slotno));
	zwriter_record(&u->writer, &out, ZUR_MOVE, BufferGetBlockNumber(u->buf), off, oldpick->prev);
	ItemPointerSet(&out.forward, BufferGetBlockNumber(newbuf), newoff);
	if (excludes_key_share(u))
		out.xflags |= ZUX_KEY_CHANGE;
	whole_row_payload(u, &out);
	/* on one page the insertion is pushed on the move, whose place is known only after zu_prepare */
	zwriter_record(&u->writer, &in, ZUR_INSERT, BufferGetBlockNumber(newbuf), newoff,
				   same ? ~InvalidUndoPtr : newpick->prev);
	in.xflags |= ZUX_MOVED_IN | (out.xflags & ZUX_KEY_CHANGE);
	if (common != NULL)
		carry_locks(u, newbuf, newoff, common, &locks);
	overflow = zslot_lock(&u->writer, u->buf, oldpick);
	if (!same)
		new_overflow = zslot_lock(&u->writer, newbuf, newpick);
	wal_slot = zslot_wal(oldpick, overflow);
	wal_slot.new_overflow = new_overflow;
	zu_prepare(&op, recs, common != NULL ? 3 : 2, u->writer.topxid);
	if (same)
		in.prev = op.ptr[0];
	pack_records(&op);
	data_len = move_wal_data(u, newpick, common);
	zwal_ensure_space(&op, BufferIsValid(overflow) || BufferIsValid(new_overflow));
	change = zslot_change(oldpick, &out, op.ptr[0]);
	newchange = zslot_change(newpick, &in, op.ptr[1]);

	/* apply */
	START_CRIT_SECTION();
	if (init)
		zpage_init(newpage);
	zslot_apply(page, overflow, &change);
	zapply_delete(page, off, oldpick->slotno, ZSTATE_MOVED, false);
	if (same)
	{
		change.ptr = op.ptr[1];
		change.live_chain = false;
		change.grow_to = 0;
		zslot_apply(page, overflow, &change);
	}
	else
		zslot_apply(newpage, new_overflow, &newchange);
	if (common != NULL)
		zapply_common_locks(newpage, common->slotno, common->grow_to, locks.hold, op.ptr[2]);
	zapply_insert(newpage, newoff, u->newrow, u->newlen);
	MarkBufferDirty(u->buf);
	if (!same)
		MarkBufferDirty(newbuf);
	zu_write(&op);
	recptr = zwal_log_literal(u->writer.logged ? ZWAL_MOVE : ZWAL_UNDO_ONLY,
							  u->writer.logged && init ? ZWD_NEW_PAGE_INIT : 0,
							  u->writer.logged ? u->buf : InvalidBuffer,
							  u->writer.logged && !same ? newbuf : InvalidBuffer,
							  &wal_slot, &op, packed_undo, move_data, data_len);
	if (u->writer.logged)
	{
		PageSetLSN(page, recptr);
		PageSetLSN(newpage, recptr);
	}
	zslot_unlock(new_overflow, recptr);
	zslot_unlock(overflow, recptr);
	zu_finish(&op, recptr);
	ZUNDO_FAULT("move-logged");
	END_CRIT_SECTION();

	/* finish */
	u->change = op.ptr[0];
	zrollback_note_page(u->writer.rel, BufferGetBlockNumber(newbuf));
	zrollback_note_page(u->writer.rel, BufferGetBlockNumber(u->buf));
	if (!same)
		UnlockReleaseBuffer(newbuf);
}

/* The bytes that the old row keeps on its page; it is still there. */
static int
old_room(const Update *u)
{
	return ItemIdGetLength(PageGetItemId(BufferGetPage(u->buf), ItemPointerGetOffsetNumber(&u->otid)));
}

/* Is the version on the page visible to the crosscheck snapshot of a referential action? */
static bool
passes_crosscheck(const Update *u, Snapshot crosscheck)
{
	ZSlotView	slots;
	ZRow		row;
	ZRowWriter	writer;

	if (crosscheck == InvalidSnapshot)
		return true;
	row = zrow_on(u->writer.rel, u->buf, ItemPointerGetOffsetNumber(&u->otid), &slots);
	zslots_copy(row.rel, row.block, row.page, &slots);
	zrow_writer(&row, crosscheck, &writer);
	return writer.visible;
}

/*
 * The row has gone elsewhere and left nothing but a stub: whoever goes after it must ask for no more than he will
 * need, so compare with the version that he saw. Page not locked.
 */
static void
mode_beside_stub(Update *u, Snapshot snapshot)
{
	ZVersion	version;
	Relation	rel = u->writer.rel;

	if (u->newrow == NULL || !u->state.stub || snapshot == InvalidSnapshot || !IsMVCCSnapshot(snapshot))
		return;
	zvis_fetch(rel, u->buf, ItemPointerGetOffsetNumber(&u->otid), snapshot, &version, NULL);
	if (version.found &&
		!zcolumns_differ(rel, u->columns->key, &u->otid, version.row, version.len, u->values, u->values_len))
		u->mode = LockTupleNoKeyExclusive;
}

/*
 * Lock the page and examine the row until it may be changed or the answer is
 * another. On TM_Ok the page is locked and u->oldrow is the row replaced.
 */
static TM_Result
acquire_row(Update *u, Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd,
			bool for_update, bool *have_tuple_lock)
{
	Relation	rel = u->writer.rel;
	ZRowWish	wish = {rel, u->buf, &u->otid, u->writer.cid, snapshot};

	for (;;)
	{
		TM_Result	result;
		LockTupleMode mode;

		u->columns = zindex_columns(rel);	/* reads catalogs on a miss: before the page lock */
		LockBuffer(u->buf, BUFFER_LOCK_EXCLUSIVE);
		do
		{
			look_at_old_row(u);
			mode = u->must_move ? LockTupleExclusive : u->mode;
			wish.mode = mode;
			result = zrow_examine(&wish, &u->state, tmfd);
			if (u->state.rolled_back)
				look_at_old_row(u);
		} while (result == TM_Ok && u->mode > mode);
		if (result == TM_Ok && !passes_crosscheck(u, crosscheck))
		{
			result = TM_Updated;
			tmfd->ctid = u->otid;
			tmfd->xmax = InvalidTransactionId;
			tmfd->cmax = InvalidCommandId;
			tmfd->traversed = false;
		}
		if (result != TM_BeingModified || !wait)
		{
			if (result != TM_Ok)
				LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
			if (result == TM_Updated)
				mode_beside_stub(u, snapshot);
			return result;
		}
		LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
		if (!*have_tuple_lock)
			u->queued = mode;
		zrow_wait(rel, &u->otid, u->state.wait_for, mode, LockWaitBlock,
				  for_update ? XLTW_Update : XLTW_Delete, u->state.own_hold, have_tuple_lock);
		zwriter_waited(&u->writer);
	}
}

/* Pick the old page's slot; the row stays where it is. False: the page needs an overflow page. */
static bool
pick_old_slot(Update *u, ZSlotPick *pick)
{
	return zslot_pick(&u->writer, u->buf, ZH_SLOT(zheader_get(u->oldrow)), true, pick);
}

/*
 * The page needs an overflow page: see to it that there is one, with the page unlocked. What was learnt
 * about the row is void then.
 */
static void
reserve_overflow(Update *u)
{
	LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
	zu_overflow_reserve();
}

/* Do both the new row and, if the slot needs it, a new slot fit on the old page? May prune. */
static bool
fits_in_place(Update *u, const ZSlotPick *pick)
{
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = ItemPointerGetOffsetNumber(&u->otid);

	for (int tries = 0; tries < 2; tries++)
	{
		ItemId		lp = PageGetItemId(page, off);
		Size		slot_bytes = pick->grow_to ? sizeof(ZPageSlot) : 0;

		if (u->newlen <= ItemIdGetLength(lp) || zpage_hole(page) >= u->newlen + slot_bytes)
			return zpage_replace_fits(page, off, u->newlen);
		if (tries > 0 || !zheap_prune_page(u->writer.rel, u->buf))
			break;
	}
	return false;
}

TM_Result
zheap_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
				   Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd,
				   LockTupleMode *lockmode, ZcUpdateIndexes *update_indexes)
{
	Update	   *u = &current_update;
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	bool		have_tuple_lock = false;
	const char *formed;
	ZSlotPick	pick;
	TM_Result	result;

	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot update tuples during a parallel operation")));
	u->otid = *otid;
	u->toasted = false;
	u->must_move = false;
	formed = zslot_form_row(slot, RelationGetDescr(rel), &u->newlen);
	u->newrow = palloc(u->newlen);
	memcpy(u->newrow, formed, u->newlen);
	zheader_set(u->newrow, zheader_get(formed) & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL));
	u->values = u->newrow;
	u->values_len = u->newlen;
	if (!ztoast_needed(rel, zheader_get(u->newrow), u->newlen, 0))
		ztuple_check_size(u->newlen);
	zwriter_begin_change(&u->writer, rel, cid);
	u->buf = ReadBuffer(rel, ItemPointerGetBlockNumber(otid));
	*update_indexes = ZC_UPDATE_NONE;

	for (;;)
	{
		result = acquire_row(u, snapshot, crosscheck, wait, tmfd, true, &have_tuple_lock);
		*lockmode = u->mode;
		if (result != TM_Ok)
		{
			ReleaseBuffer(u->buf);
			zrow_end_wait(rel, otid, u->queued, have_tuple_lock);
			zdml_leave(caller);
			return result;
		}
		if (u->toasted || !ztoast_needed(rel, zheader_get(u->newrow), u->newlen, zheader_get(u->oldrow)))
		{
			if (!pick_old_slot(u, &pick))
			{
				reserve_overflow(u);
				continue;
			}
			if (u->must_move || !u->state.many_locks || (u->in_place && fits_in_place(u, &pick)))
				break;
			/* more locks of others than a move can take along: have none */
			u->must_move = true;
			LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
			continue;
		}
		u->locked = u->state.own_lock;
		/* toasting writes other tables: keep the row by a lock of our own meanwhile */
		if (!zrow_lock_in_place(&u->writer, u->buf, ItemPointerGetOffsetNumber(otid), u->mode))
		{
			reserve_overflow(u);
			continue;
		}
		LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
		zrollback_note_page(rel, ItemPointerGetBlockNumber(otid));
		u->newrow = ztoast_row(rel, slot, otid, u->oldrow, u->oldlen, 0, &u->newlen);
		u->toasted = true;
		zwriter_reserve(&u->writer);
	}
	if (!u->toasted)
		u->locked = u->state.own_lock;
	zssi_before_write(rel, u->buf, ItemPointerGetOffsetNumber(otid));
	zvisible_clear(rel, u->buf);
	zspace_maybe_image(&u->writer, u->buf, &pick);
	if (u->in_place && fits_in_place(u, &pick))
	{
		update_in_place(u, &pick);
		slot->tts_tid = *otid;
		if (u->summarizing)
			*update_indexes = ZC_UPDATE_SUMMARIZING;
		ZUNDO_FAULT("row-counted");
		zc_count_update(rel, true);
		pgstat_update_heap_dead_tuples(rel, 1);
	}
	else
	{
		ZSlotPick	newpick;
		ZSlotPick	common_pick;
		ZSlotPick  *common = u->state.others_locks ? &common_pick : NULL;
		OffsetNumber newoff;
		bool		init;
		Buffer		newbuf = zspace_second_page(&u->writer, u->buf, u->newlen, &newoff, &newpick, common,
												&init);

		zvisible_clear(rel, newbuf);
		ItemPointerSet(&slot->tts_tid, BufferGetBlockNumber(newbuf), newoff);
		if (newbuf == u->buf)
			pick = newpick;
		else if (!pick_old_slot(u, &pick))
			elog(ERROR, "no free transaction slot on a page that had one");
		update_by_move(u, newbuf, newoff, init, &pick, &newpick, common);
		zreclaim_note(rel, u->buf, old_room(u) - (newbuf == u->buf ? (int) u->newlen : 0));
		*update_indexes = ZC_UPDATE_ALL;
		u->event |= u->columns->rechecked;
		ZUNDO_FAULT("row-counted");
		zc_count_update(rel, false);
	}
	slot->tts_tableOid = RelationGetRelid(rel);
	if (TTS_IS_ZHEAP(slot))
	{
		zslot_set_writer(slot, u->writer.xid, cid, InvalidUndoPtr);
		zslot_set_xmax(slot, u->locked || zrow_was_locked(rel, otid, cid) ? u->writer.xid : InvalidZXid);
	}
	zlevel_forget_locked(rel, otid);
	if (u->event)
		zlevel_note_change(rel, otid, u->change);
	UnlockReleaseBuffer(u->buf);
	zrow_end_wait(rel, otid, u->queued, have_tuple_lock);
	zdml_leave(caller);
	return TM_Ok;
}

/* Apply and log the deletion; u->buf is locked. */
static void
delete_row(Update *u, const ZSlotPick *pick, bool changing_part)
{
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = ItemPointerGetOffsetNumber(&u->otid);
	ZWalSlot	wal_slot;
	ZSlotChange change;
	Buffer		overflow;
	ZuRecord	rec;
	ZuRecord   *recs[1] = {&rec};
	ZuOp		op;
	XLogRecPtr	recptr;

	/* prepare */
	zwriter_record(&u->writer, &rec, ZUR_DELETE, BufferGetBlockNumber(u->buf), off, pick->prev);
	rec.xflags |= ZUX_KEY_CHANGE | (changing_part ? ZUX_OTHER_PART : 0);
	if (TransactionIdIsValid(u->as_of))
	{
		rec.as_of = u->as_of;
		rec.cid = FirstCommandId;
	}
	whole_row_payload(u, &rec);
	overflow = zslot_lock(&u->writer, u->buf, pick);
	wal_slot = zslot_wal(pick, overflow);
	zu_prepare(&op, recs, 1, u->writer.topxid);
	pack_records(&op);
	zwal_ensure_space(&op, BufferIsValid(overflow));
	change = zslot_change(pick, &rec, op.ptr[0]);

	/* apply */
	START_CRIT_SECTION();
	zslot_apply(page, overflow, &change);
	zapply_delete(page, off, pick->slotno, ZSTATE_DELETED, changing_part);
	MarkBufferDirty(u->buf);
	zu_write(&op);
	recptr = zwal_log_literal(u->writer.logged ? ZWAL_DELETE : ZWAL_UNDO_ONLY, 0,
							  u->writer.logged ? u->buf : InvalidBuffer, InvalidBuffer, &wal_slot, &op,
							  packed_undo, NULL, 0);
	if (u->writer.logged)
		PageSetLSN(page, recptr);
	zslot_unlock(overflow, recptr);
	zu_finish(&op, recptr);
	ZUNDO_FAULT("delete-logged");
	END_CRIT_SECTION();
	u->change = op.ptr[0];
}

TM_Result
zheap_tuple_delete(Relation rel, ItemPointer tid, CommandId cid, Snapshot snapshot, Snapshot crosscheck,
				   bool wait, TM_FailureData *tmfd, bool changing_part)
{
	Update	   *u = &current_update;
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	bool		have_tuple_lock = false;
	ZSlotPick	pick;
	TM_Result	result;

	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot delete tuples during a parallel operation")));
	u->otid = *tid;
	u->must_move = false;
	u->newrow = NULL;
	u->as_of = InvalidTransactionId;
	zwriter_begin_change(&u->writer, rel, cid);
	u->buf = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	for (;;)
	{
		result = acquire_row(u, snapshot, crosscheck, wait, tmfd, false, &have_tuple_lock);
		if (result != TM_Ok || pick_old_slot(u, &pick))
			break;
		reserve_overflow(u);
	}
	if (result == TM_Ok)
	{
		zssi_before_write(rel, u->buf, ItemPointerGetOffsetNumber(tid));
		zvisible_clear(rel, u->buf);
		zspace_maybe_image(&u->writer, u->buf, &pick);
		delete_row(u, &pick, changing_part);
		zrollback_note_page(rel, ItemPointerGetBlockNumber(tid));
		zreclaim_note(rel, u->buf, old_room(u));
		LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
		zlevel_forget_locked(rel, tid);
		if (zheader_get(u->oldrow) & ZH_EXTERNAL)
			ztoast_delete(rel, tid, u->oldrow, u->oldlen, false);
		/* the deletion may be one half of an update that changes the partition */
		if (rel->trigdesc != NULL &&
			(rel->trigdesc->trig_delete_after_row || (changing_part && rel->trigdesc->trig_update_after_row)))
			zlevel_note_change(rel, tid, u->change);
		pgstat_count_heap_delete(rel);
	}
	ReleaseBuffer(u->buf);
	zrow_end_wait(rel, tid, LockTupleExclusive, have_tuple_lock);
	zdml_leave(caller);
	return result;
}

/* The row was just put there by us: nobody is to be waited for. */
void
zheap_delete_as_of(Relation rel, ItemPointer tid, CommandId cid, TransactionId as_of)
{
	Update	   *u = &current_update;
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	ZSlotPick	pick;

	u->otid = *tid;
	u->newrow = NULL;
	u->as_of = as_of;
	if (TransactionIdIsValid(as_of))
		zown_note_rewrite();
	zwriter_begin(&u->writer, rel, cid);
	u->buf = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	for (;;)
	{
		LockBuffer(u->buf, BUFFER_LOCK_EXCLUSIVE);
		look_at_old_row(u);
		if (pick_old_slot(u, &pick))
			break;
		reserve_overflow(u);
	}
	delete_row(u, &pick, false);
	LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
	zrollback_note_page(rel, ItemPointerGetBlockNumber(tid));
	ReleaseBuffer(u->buf);
	zdml_leave(caller);
}
