/*
 * dml/zupdate.c - updating one row, in place or by moving it to a new TID, and
 * deleting one.
 *
 * A row is updated in place if no column changed that an index depends on and
 * the new row fits: it keeps its TID, and no index is touched. Otherwise the
 * row moves: it gets a new TID and an entry in every index, and the old TID
 * remembers where it went. Both halves of a move carry one xid and cid, so a
 * snapshot accepts exactly one of them.
 *
 * Crash points: "update-logged", "move-logged", "delete-logged", "row-counted",
 * "keys-due" (the row has new keys, their index entries are not made yet).
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "change/zlogical.h"
#include "common/varint.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "pgstat.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "tuple/ztts.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * An update evaluates index expressions this often at most, if each time the
 * row or the index columns change meanwhile (COMPUTED-2).
 */
#define MAX_ASKED 5

/* The row that an update puts in the old one's place. */
typedef struct Replacement
{
	char	   *row;			/* the header names no slot until it is
								 * applied */
	uint32		len;
	bool		toasted;
	const char *values;			/* the row before toasting, for comparison:
								 * toasting may move values that have not
								 * changed */
	uint32		values_len;
	const ZIndexColumns *columns;

	/*
	 * The last answer of zcomputed_differ; it holds for this old row and this
	 * reading of the columns (COMPUTED-2).
	 */
	char	   *asked;			/* old row without its header, or NULL */
	Size		asked_len;
	uint64		asked_reading;
	bool		computed_differ;
	int			times_asked;
	/* result of comparing it with the row on the page */
	bool		undecided;		/* zcomputed_differ must be asked */
	bool		in_place;		/* no index needs a new entry */
	bool		new_keys;		/* ... except those to which this update adds
								 * it (ZBTREE-3) */
	bool		summarizing;	/* ... except block-summarizing ones */
	bool		event;			/* an AFTER row trigger's event may be queued */
} Replacement;

/* The update or the deletion of one row, from its start to its end. */
typedef struct RowChange
{
	ZWriter		writer;
	ItemPointerData tid;
	Buffer		buf;
	Replacement *replacement;	/* NULL: the row is deleted */
	LockTupleMode mode;			/* strength in which the change excludes locks */
	bool		must_move;		/* the row will get a new TID, and no other
								 * transaction may hold a lock on it (DML-5) */
	bool		have_tuple_lock;	/* the heavyweight lock for waiting is
									 * held, */
	LockTupleMode queued;		/* in this mode */
	bool		locked;			/* our transaction had locked the row before
								 * this change */
	const Bitmapset *identity;	/* columns of the replica identity, if the
								 * change is to be decoded */
	ZSlotPick	pick;			/* slot of the old page; void when the page is
								 * unlocked */
	/* fields from here on are not set before the page is locked */
	ZRowState	state;
	Size		oldlen;			/* length of oldrow: the row that is replaced
								 * or deleted, copied under the lock */
	char		oldrow[BLCKSZ];
} RowChange;

/* Memory for the payload of the old row's record. */
typedef struct Payload
{
	char		raw[2 * BLCKSZ];
	char		compressed[2 * BLCKSZ];
} Payload;

/*
 * Begins the change of the row at tid: its replacement, or its deletion if
 * 'replacement' is NULL.
 */
static void
begin_row_change(RowChange *u, ItemPointer tid, Replacement *replacement)
{
	memset(u, 0, offsetof(RowChange, state));
	u->tid = *tid;
	u->mode = LockTupleExclusive;
	u->queued = LockTupleExclusive;
	u->replacement = replacement;
}

/*
 * Ends the change: releases the pin and the heavyweight lock. The page is not
 * locked any more.
 */
static void
end_row_change(RowChange *u)
{
	Assert(zc_buffer_unlocked(u->buf));
	ReleaseBuffer(u->buf);
	zrow_end_wait(u->writer.rel, &u->tid, u->queued, u->have_tuple_lock);
}

static inline OffsetNumber
offset_of(const RowChange *u)
{
	return ItemPointerGetOffsetNumber(&u->tid);
}

static inline BlockNumber
block_of(const RowChange *u)
{
	return ItemPointerGetBlockNumber(&u->tid);
}

/* Returns the row on the page and its replacement. */
static inline ZUpdatedRow
both_rows(RowChange *u)
{
	const Replacement *new = u->replacement;

	return (ZUpdatedRow)
	{
		u->writer.rel, &u->tid, u->oldrow, u->oldlen, new->values,
			new->values_len
	};
}

/*
 * Returns whether our own transaction may have written this row. A row in an
 * overflow slot may be ours.
 */
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
 * Returns whether the change excludes KEY SHARE lockers: if it changes the key,
 * or if our transaction has excluded them by a lock. Transactions that met that
 * lock reckon with a new key, and must look at the row anew when our
 * transaction has ended, as on heap.
 */
static inline bool
excludes_key_share(const RowChange *u)
{
	return u->mode == LockTupleExclusive || u->state.own_exclusive;
}

/*
 * Returns whether zcomputed_differ has been asked for the row on the page. The
 * header does not matter: it holds no values.
 */
static bool
was_asked(const RowChange *u)
{
	const Replacement *new = u->replacement;

	return new->asked != NULL && new->asked_reading == new->columns->reading &&
		new->asked_len == u->oldlen - ZTUPLE_HEADER_SIZE &&
		memcmp(new->asked, u->oldrow + ZTUPLE_HEADER_SIZE, new->asked_len) == 0;
}

/*
 * Sets whether an update in place gives the row new keys in indexes to which it
 * adds the entries itself. The rows are compared as they are stored: the
 * toaster may move a key out of line whose value does not change. Such a row
 * must not stay, since a key out of line counts for every entry of its TID
 * (ZBTREE-4).
 */
static void
compare_keys(RowChange *u)
{
	Replacement *new = u->replacement;
	const Bitmapset *keyed = new->columns->keyed;
	Relation	rel = u->writer.rel;
	ZUpdatedRow stored = {rel, &u->tid, u->oldrow, u->oldlen, new->row, new->len};

	if (!zcolumns_differ(&stored, keyed))
		return;
	if (zcolumns_some_external(rel, keyed, u->oldrow, u->oldlen) ||
		zcolumns_some_external(rel, keyed, new->row, new->len))
		new->in_place = false;
	else
		new->new_keys = true;
}

/*
 * Sets whether the update can be made in place, as far as the indexes are
 * concerned, or whether that is undecided.
 */
static void
compare_indexes(RowChange *u, const ZUpdatedRow *row)
{
	Replacement *new = u->replacement;

	if (zundo_move_updates)
		return;
	switch (zcolumns_effect(row, new->columns))
	{
		case ZINDEX_SAME:
			new->in_place = true;
			break;
		case ZINDEX_CHANGED:
			break;
		case ZINDEX_COMPUTED:
			if (was_asked(u))
				new->in_place = !new->computed_differ;
			else
				new->undecided = (new->times_asked < MAX_ASKED);
			break;
	}
	if (new->in_place)
		compare_keys(u);
}

/*
 * Compares the replacement with the row, and sets the strength of the change,
 * whether it can be made in place, and whether a trigger's event may be queued.
 */
static void
compare_replacement(RowChange *u)
{
	Replacement *new = u->replacement;
	const ZIndexColumns *columns = new->columns;
	ZUpdatedRow row = both_rows(u);

	if (!zcolumns_differ(&row, columns->key))
		u->mode = LockTupleNoKeyExclusive;
	compare_indexes(u, &row);
	new->event = zcolumns_event(columns, !new->in_place, zcolumns_differ(&row, columns->foreign),
								row_is_ours(BufferGetPage(u->buf), u->oldrow)) ||
		zcolumns_some_null(u->writer.rel, columns->foreign, new->values, new->values_len);
	if (new->in_place)
		new->summarizing = zcolumns_differ(&row, columns->summarized);
}

/*
 * Copies the row that is to be changed and compares it with its replacement, if
 * there is one. Sets u->mode. On entry the page is locked. Returns false if
 * there is no row to be read at its place, or a damaged one.
 */
static bool
look_at_old_row(RowChange *u)
{
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = offset_of(u);
	ItemId		lp;

	Assert(zc_buffer_exclusive(u->buf));
	u->mode = LockTupleExclusive;
	if (u->replacement != NULL)
	{
		u->replacement->undecided = false;
		u->replacement->in_place = false;
		u->replacement->new_keys = false;
		u->replacement->summarizing = false;
		u->replacement->event = false;
	}

	/* a damaged row is not read here; examining it raises the error */
	if (PageIsNew(page) || off > PageGetMaxOffsetNumber(page) || !zpage_item_ok(page, off))
		return false;
	lp = PageGetItemId(page, off);
	if (!ItemIdIsNormal(lp))
		return false;
	u->oldlen = zpage_row_length(page, lp);
	if (unlikely(u->oldlen == 0))
		zvis_corrupt_page(u->writer.rel, BufferGetBlockNumber(u->buf), page, off);
	memcpy(u->oldrow, zpage_row(page, lp), u->oldlen);
	if (u->replacement != NULL)
		compare_replacement(u);
	return true;
}

/*
 * Makes the whole old row the payload of rec. Returns the length of the header
 * that it begins with.
 */
static int
whole_row_payload(const RowChange *u, Payload *payload, ZuRecord *rec)
{
	char	   *p = zheader_compact_put(payload->raw, zheader_get(u->oldrow), 0);
	int			header_length = p - payload->raw;

	memcpy(p, u->oldrow + ZTUPLE_HEADER_SIZE, u->oldlen - ZTUPLE_HEADER_SIZE);
	rec->payload = payload->raw;
	rec->payload_len = header_length + u->oldlen - ZTUPLE_HEADER_SIZE;
	return header_length;
}

/*
 * Returns whether logical decoding needs the key of the old row: it is
 * deleted, the key changes, or values of the key are out of line, in which case
 * the new row has but a pointer to them.
 */
static bool
key_needed(RowChange *u)
{
	TupleDesc	desc = RelationGetDescr(u->writer.rel);
	ZUpdatedRow row;
	int			i = -1;

	if (u->replacement == NULL)
		return true;
	row = both_rows(u);
	if (zcolumns_differ(&row, u->identity))
		return true;
	if ((zheader_get(u->oldrow) & ZH_EXTERNAL) == 0)
		return false;
	while ((i = bms_next_member(u->identity, i)) >= 0)
	{
		AttrNumber	attno = i + FirstLowInvalidHeapAttributeNumber;
		bool		isnull;
		Datum		value = ztuple_getattr(u->oldrow, u->oldlen, desc, attno, &isnull,
										   RelationGetRelationName(u->writer.rel), &u->tid);

		if (!isnull && TupleDescAttr(desc, attno - 1)->attlen == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(value)))
			return true;
	}
	return false;
}

/*
 * Gives the change what logical decoding needs of it, if it is to be decoded.
 * Called after the rest of the change has been set. May read values out of
 * line of the old row while the page is locked, as heap does.
 */
static void
add_logical(RowChange *u, ZChange *change)
{
	ZLogicalRows rows = {.last = true};

	if (likely(!u->writer.decoded))
		return;
	rows.old = u->oldrow;
	rows.old_length = u->oldlen;
	rows.identity = u->identity;
	rows.key_needed = key_needed(u);
	rows.old_in_undo = (u->replacement != NULL);
	if (change->opcode == ZWAL_UPDATE)
	{
		rows.new = change->row;
		rows.new_length = change->row_length;
	}
	change->logical = zlogical_part(u->writer.rel, &rows, &change->logical_length);
}

/*
 * Updates the row in place. Returns the pointer of its record. On entry the
 * page is locked and the row fits.
 */
static UndoPtr
update_in_place(RowChange *u)
{
	char		payload[2 * BLCKSZ];
	char		wal_delta[2 * BLCKSZ];
	Replacement *new = u->replacement;
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = offset_of(u);
	ZHeader		old = zheader_get(u->oldrow);
	ZHeader		current = zheader_get(zpage_row(page, PageGetItemId(page, off)));
	bool		key_change = excludes_key_share(u);
	ZDelta		delta;
	ZChange		change;
	ZuRecord   *rec = &change.rec[0];
	char	   *p;

	Assert(zc_buffer_exclusive(u->buf));
	zwriter_change(&u->writer, &change, ZWAL_UPDATE, 1);
	change.shape = zheader_updated(current, zheader_get(new->row), u->pick.slotno, key_change);
	change.new_shape = !zheader_same_shape(old, change.shape);
	change.clear_locks = u->state.clear_locks;
	if (change.clear_locks)
		change.shape = ZH_WITHOUT_LOCKS(change.shape);
	change.stale_keys = new->new_keys && (current & ZH_STALE_KEYS) == 0;
	if (change.stale_keys)
		change.shape |= ZH_STALE_KEYS;
	zheader_set(new->row, change.shape);
	change.row = new->row;
	change.row_length = new->len;
	zdelta_compute(u->oldrow + ZTUPLE_HEADER_SIZE, u->oldlen - ZTUPLE_HEADER_SIZE,
				   new->row + ZTUPLE_HEADER_SIZE, new->len - ZTUPLE_HEADER_SIZE, &delta);
	zwriter_record(&u->writer, rec, ZUR_UPDATE, block_of(u), off, u->pick.prev);
	if (key_change)
		rec->xflags |= ZUX_KEY_CHANGE;
	p = zheader_compact_put(payload, old, change.shape);
	change.old_header_length = p - payload;
	p = zdelta_undo_put(p, &delta, u->oldrow + ZTUPLE_HEADER_SIZE);
	rec->payload = payload;
	rec->payload_len = p - payload;
	if (change.logged)
	{
		p = zdelta_wal_put(wal_delta, &delta, u->oldrow + ZTUPLE_HEADER_SIZE,
						   new->row + ZTUPLE_HEADER_SIZE);
		change.delta = wal_delta;
		change.delta_length = p - wal_delta;
	}
	add_logical(u, &change);
	zslot_use(&u->writer, &change, 0, u->buf, &u->pick);
	zchange_do(&change, "update-logged");
	zslot_note(&change, 0, &u->pick);
	zrollback_note_page(u->writer.rel, block_of(u));
	return change.op.ptr[0];
}

/*
 * Makes rec the LOCKS record of the locks that others hold on the row, as locks
 * on its new place, and gives the new row's header the lock hint.
 */
static void
carry_locks(RowChange *u, const ZNewPlace *place, ZLockList *list, ZuRecord *rec)
{
	char	   *row = u->replacement->row;
	const ZLockEntry *locks = u->state.others;
	int			strongest = 0;

	Assert(u->state.nothers > 0 && u->state.nothers <= ZLOCK_MAX_ENTRIES);
	list->n = u->state.nothers;
	for (int i = 0; i < list->n; i++)
	{
		list->entry[i] = zlock_entry(ZLOCK_XID(locks[i]), place->off, ZLOCK_MODE(locks[i]));
		strongest = Max(strongest, ZLOCK_MODE(locks[i]));
	}
	zlocklist_record(&u->writer, place->buf, &place->common, list, rec);
	zheader_set(row, ZH_WITH_LOCK(zheader_get(row), strongest + 1));
}

/*
 * Gives the change the delta from the old row to the new one, if that is the
 * shorter way to log the new row: the old one is in the WAL record in any case.
 */
static void
log_as_delta(const RowChange *u, ZChange *change, char *buf)
{
	const Replacement *new = u->replacement;
	ZDelta		delta;

	if (!change->logged)
		return;

	/*
	 * The undo form has the bytes that replay will put: those of the new row,
	 * which is the "older" one here.
	 */
	zdelta_compute(new->row + ZTUPLE_HEADER_SIZE, new->len - ZTUPLE_HEADER_SIZE,
				   u->oldrow + ZTUPLE_HEADER_SIZE, u->oldlen - ZTUPLE_HEADER_SIZE, &delta);
	if (zdelta_undo_size(&delta) + ZTUPLE_HEADER_SIZE >= new->len)
		return;
	change->delta = buf;
	change->delta_length = zdelta_undo_put(buf, &delta, new->row + ZTUPLE_HEADER_SIZE) - buf;
}

/*
 * Moves the row to another place, perhaps on the same page, together with the
 * locks that others hold on it. Returns the pointer of the old row's record. On
 * entry both pages are locked; on return the new one is released, unless it is
 * the old one.
 */
static UndoPtr
update_by_move(RowChange *u, const ZNewPlace *place)
{
	Payload		payload;
	char		delta[BLCKSZ];
	ZLockList	list;
	Relation	rel = u->writer.rel;
	Replacement *new = u->replacement;
	BlockNumber newblock = BufferGetBlockNumber(place->buf);
	bool		same = (place->buf == u->buf);
	ZChange		change;
	ZuRecord   *out = &change.rec[0];
	ZuRecord   *in = &change.rec[1];

	Assert(zc_buffer_exclusive(u->buf) && zc_buffer_exclusive(place->buf));
	zwriter_change(&u->writer, &change, ZWAL_MOVE, u->state.others_locks ? 3 : 2);
	zheader_set(new->row, ZH_WITH_SLOT(zheader_get(new->row), place->pick.slotno));
	zwriter_record(&u->writer, out, ZUR_MOVE, block_of(u), offset_of(u), u->pick.prev);
	ItemPointerSet(&out->forward, newblock, place->off);
	if (excludes_key_share(u))
		out->xflags |= ZUX_KEY_CHANGE;
	(void) whole_row_payload(u, &payload, out);
	zur_compress(out, payload.compressed, sizeof(payload.compressed));
	/* on one page, the INSERT record is pushed on the MOVE record */
	zwriter_record(&u->writer, in, ZUR_INSERT, newblock, place->off,
				   same ? ZCHANGE_ON_RECORD_BEFORE : place->pick.prev);
	in->xflags |= ZUX_MOVED_IN | (out->xflags & ZUX_KEY_CHANGE);
	if (u->state.others_locks)
	{
		carry_locks(u, place, &list, &change.rec[2]);
		change.locks.slotno = place->common.slotno;
		change.locks.grow_to = place->common.grow_to;
	}
	change.row = new->row;
	change.row_length = new->len;
	log_as_delta(u, &change, delta);
	add_logical(u, &change);
	zslot_use(&u->writer, &change, 0, u->buf, &u->pick);
	if (!same)
	{
		zslot_use(&u->writer, &change, 1, place->buf, &place->pick);
		change.page[1].init = place->init;
	}
	else
		change.page[1].slot = change.page[0].slot;
	zchange_do(&change, "move-logged");
	zslot_note(&change, 0, &u->pick);
	zslot_note(&change, 1, &place->pick);
	zrollback_note_page(rel, newblock);
	zrollback_note_page(rel, block_of(u));
	if (!same)
		UnlockReleaseBuffer(place->buf);
	return change.op.ptr[0];
}

/*
 * Returns the bytes that the old row still occupies on its page.
 */
static int
old_room(const RowChange *u)
{
	Assert(zc_buffer_locked(u->buf));
	return ItemIdGetLength(PageGetItemId(BufferGetPage(u->buf), offset_of(u)));
}

/*
 * Returns whether the version on the page is visible to the crosscheck snapshot
 * of a referential action; true without one.
 */
static bool
passes_crosscheck(const RowChange *u, Snapshot crosscheck)
{
	ZSlotView	slots;
	ZRow		row;
	ZRowWriter	writer;

	if (crosscheck == InvalidSnapshot)
		return true;
	row = zrow_on(u->writer.rel, u->buf, offset_of(u), &slots);
	zslots_copy(row.rel, row.block, row.page, &slots);
	zrow_writer(&row, crosscheck, &writer);
	return writer.visible;
}

/*
 * Sets the mode for a row that has moved and left nothing but a stub. The
 * caller follows the update and locks the new place in that mode, which must be
 * no stronger than it will need; so the version that the snapshot sees is
 * compared. On entry the page is not locked.
 */
static void
mode_beside_stub(RowChange *u, Snapshot snapshot)
{
	ZVersion	version;
	ZUpdatedRow row;
	Relation	rel = u->writer.rel;
	Replacement *new = u->replacement;

	if (new == NULL || !u->state.stub || snapshot == InvalidSnapshot || !IsMVCCSnapshot(snapshot))
		return;
	zvis_fetch(rel, u->buf, offset_of(u), snapshot, &version, NULL);
	row = both_rows(u);
	row.old = version.row;
	row.oldlen = version.len;
	if (version.found && !zcolumns_differ(&row, new->columns->key))
		u->mode = LockTupleNoKeyExclusive;
}

/*
 * Returns TM_Updated, with *tmfd filled, for a row whose version the crosscheck
 * snapshot does not see.
 */
static TM_Result
fails_crosscheck(const RowChange *u, TM_FailureData *tmfd)
{
	tmfd->ctid = u->tid;
	tmfd->xmax = InvalidTransactionId;
	tmfd->cmax = InvalidCommandId;
	tmfd->traversed = false;
	return TM_Updated;
}

/*
 * Locks the page and examines the row until it may be changed or there is
 * another answer, which is returned. Waits for other transactions if wait is
 * set. On TM_Ok the page is locked, u->oldrow is the row to be changed, and
 * u->mode is the strength that the change needs; otherwise the page is not
 * locked.
 */
static TM_Result
acquire_row(RowChange *u, Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd)
{
	Relation	rel = u->writer.rel;
	ZRowWish	wish = {rel, u->buf, &u->tid, u->writer.cid, snapshot};

	for (;;)
	{
		TM_Result	result;
		LockTupleMode mode;

		/* may read catalogs, so not under the page lock */
		if (u->replacement != NULL)
			u->replacement->columns = zindex_columns(rel);
		if (unlikely(u->writer.decoded))
			u->identity = zindex_columns(rel)->identity;
		LockBuffer(u->buf, BUFFER_LOCK_EXCLUSIVE);

		/*
		 * Examining may roll an aborted update back. The row below it may
		 * have another key, so that a stronger mode is needed.
		 */
		do
		{
			wish.sound = look_at_old_row(u);
			mode = u->must_move ? LockTupleExclusive : u->mode;
			wish.mode = mode;
			result = zrow_examine(&wish, &u->state, tmfd);
			if (u->state.rolled_back)
				(void) look_at_old_row(u);
		} while (result == TM_Ok && u->mode > mode);
		if (result == TM_Ok && !passes_crosscheck(u, crosscheck))
			result = fails_crosscheck(u, tmfd);
		if (result == TM_Ok)
			return result;
		LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
		if (result != TM_BeingModified || !wait)
		{
			if (result == TM_Updated)
				mode_beside_stub(u, snapshot);
			return result;
		}
		if (!u->have_tuple_lock)
			u->queued = mode;
		zrow_wait(rel, &u->tid, u->state.wait_for, mode, LockWaitBlock,
				  u->replacement != NULL ? XLTW_Update : XLTW_Delete, u->state.own_hold,
				  &u->have_tuple_lock);
	}
}

/*
 * Picks the old page's slot; the row stays where it is. Returns false if the
 * page needs an overflow page.
 */
static bool
pick_old_slot(RowChange *u)
{
	return zslot_pick(&u->writer, u->buf, ZH_SLOT(zheader_get(u->oldrow)), true, &u->pick);
}

/*
 * Unlocks the page, which needs an overflow page, and reserves one. Nothing
 * learnt about the row is valid any more.
 */
static void
reserve_overflow(RowChange *u)
{
	LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
	zu_overflow_reserve();
}

/*
 * Makes room on the old page for the new row and, if the slot needs it, for a
 * new slot; prunes the page if that helps. Returns whether there is room.
 */
static bool
make_room_in_place(RowChange *u)
{
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = offset_of(u);
	uint32		len = u->replacement->len;

	for (int tries = 0; tries < 2; tries++)
	{
		ItemId		lp = PageGetItemId(page, off);
		Size		slot_bytes = u->pick.grow_to ? sizeof(ZPageSlot) : 0;

		if (len <= ItemIdGetLength(lp) || zpage_hole(page) >= len + slot_bytes)
			return zpage_replace_fits(page, off, len);
		if (tries > 0 || !zheap_prune_page(u->writer.rel, u->buf))
			break;
	}
	return false;
}

/*
 * Forms the new row from the executor's slot. Raises an error if the row is too
 * wide, unless toasting may still shorten it.
 */
static void
form_replacement(Relation rel, TupleTableSlot *slot, Replacement *new)
{
	const char *formed = ztts_form_row(slot, RelationGetDescr(rel), &new->len);

	new->row = palloc(new->len);
	memcpy(new->row, formed, new->len);
	zheader_set(new->row, zheader_get(formed) & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL));
	new->toasted = false;
	new->values = new->row;
	new->values_len = new->len;
	new->columns = NULL;
	new->asked = NULL;
	new->times_asked = 0;
	if (!ztoast_needed(rel, zheader_get(new->row), new->len, 0))
		ztuple_check_size(new->len);
}

/* Returns whether the new row must go through the toaster. */
static bool
must_toast(const RowChange *u)
{
	Relation	rel = u->writer.rel;
	const Replacement *new = u->replacement;

	return ztoast_needed(rel, zheader_get(new->row), new->len, zheader_get(u->oldrow)) &&
		!ztoast_keeps(rel, (ItemPointer) &u->tid, u->oldrow, u->oldlen, new->row, new->len);
}

/*
 * Puts the large values of the new row into the TOAST table. Toasting writes
 * other tables, so the page is unlocked meanwhile, and a lock of our own on the
 * row keeps other transactions from changing it. Returns with the page
 * unlocked, so the row must be acquired anew.
 */
static void
toast_replacement(RowChange *u, TupleTableSlot *slot)
{
	Relation	rel = u->writer.rel;
	Replacement *new = u->replacement;

	if (!zrow_lock_in_place(&u->writer, u->buf, offset_of(u), u->mode))
	{
		reserve_overflow(u);
		return;
	}
	LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
	zrollback_note_page(rel, block_of(u));
	new->row = ztoast_row(rel, slot, &u->tid, u->oldrow, u->oldlen,
						  u->writer.decoded ? 0 : TABLE_INSERT_NO_LOGICAL, &new->len);
	new->toasted = true;
	zwriter_reserve(&u->writer);
}

/*
 * Finds out what the update changes in indexes with expressions or predicates.
 * That runs functions of the user, so the page is unlocked, and what was
 * reserved for the change may be used up afterwards (COMPUTED-2). Returns with
 * the page unlocked, so the row must be acquired anew.
 */
static void
ask_computed(RowChange *u, TupleTableSlot *slot)
{
	Replacement *new = u->replacement;
	ZUpdatedRow row = both_rows(u);
	int			differing;

	Assert(new->undecided && !new->in_place);
	LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
	/* such a function may lock another row */
	u->locked |= zrow_was_locked(u->writer.rel, &u->tid, u->writer.cid);
	new->asked_len = u->oldlen - ZTUPLE_HEADER_SIZE;
	new->asked = palloc(new->asked_len);
	memcpy(new->asked, u->oldrow + ZTUPLE_HEADER_SIZE, new->asked_len);
	new->asked_reading = new->columns->reading;
	new->times_asked++;
	differing = zcomputed_differ(&row, new->columns, slot);
	new->computed_differ = (differing >= 0);
	zcolumns_answered(&row, new->columns, new->asked_reading, differing);
	zwriter_reserve(&u->writer);
	ZUNDO_FAULT("computed-asked");
}

/*
 * Acquires the row for an update: does what acquire_row does, and on TM_Ok the
 * new row is toasted if it must be, and u->pick is the old page's slot.
 */
static TM_Result
acquire_for_update(RowChange *u, TupleTableSlot *slot, Snapshot snapshot, Snapshot crosscheck,
				   bool wait, TM_FailureData *tmfd)
{
	Replacement *new = u->replacement;

	for (;;)
	{
		TM_Result	result = acquire_row(u, snapshot, crosscheck, wait, tmfd);

		if (result != TM_Ok)
		{
			/*
			 * DECODE-1: the chunks would be taken for those of the next row.
			 * The row is locked by us, so this does not happen.
			 */
			if (new->toasted && u->writer.decoded)
				elog(ERROR, "row was changed while its values were put out of line");
			return result;
		}
		if (!new->toasted)
			u->locked |= u->state.own_lock;

		/*
		 * DECODE-1: functions of the user, which may change rows, must not
		 * run between the chunks and the row. A move is right in any case.
		 */
		if (new->undecided && new->toasted && u->writer.decoded)
			new->undecided = false;
		if (new->undecided)
			ask_computed(u, slot);
		else if (!new->toasted && must_toast(u))
			toast_replacement(u, slot);
		else if (!pick_old_slot(u))
			reserve_overflow(u);
		else if (u->must_move || !u->state.many_locks || (new->in_place && make_room_in_place(u)))
			return TM_Ok;
		else
		{
			/*
			 * Others hold more locks than a move can take along, so wait
			 * until they have ended (DML-5).
			 */
			u->must_move = true;
			LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
		}
	}
}

/*
 * Finds a place for the new row of an update that moves it, and picks the old
 * page's slot again if looking for room there has made that necessary.
 */
static void
find_new_place(RowChange *u, ZNewPlace *place)
{
	bool		again = zspace_second_page(&u->writer, u->buf, u->replacement->len,
										   u->state.others_locks, place);

	zvisible_clear(u->writer.rel, place->buf);
	if (place->buf == u->buf)
		u->pick = place->pick;
	else if (again && !pick_old_slot(u))
		elog(ERROR, "no free transaction slot on a page that had one");
}

/*
 * Sets where the updated row is, and that our transaction wrote it, in the
 * executor's slot.
 */
static void
show_updated(const RowChange *u, TupleTableSlot *slot, ItemPointer tid)
{
	Relation	rel = u->writer.rel;
	CommandId	cid = u->writer.cid;
	bool		locked = u->locked || zrow_was_locked(rel, (ItemPointer) &u->tid, cid);

	slot->tts_tid = *tid;
	slot->tts_tableOid = RelationGetRelid(rel);
	if (TTS_IS_ZHEAP(slot))
	{
		ztts_set_writer(slot, u->writer.xid, cid, InvalidUndoPtr);
		ztts_set_xmax(slot, locked ? u->writer.xid : InvalidZXid);
	}
}

/*
 * Makes the update, in place if possible, and counts it. Returns the pointer of
 * the old row's record. On entry the page is locked and the row acquired. An
 * in-place update that turns out not to fit becomes a move.
 */
static UndoPtr
update_row(RowChange *u, TupleTableSlot *slot, ZcUpdateIndexes *update_indexes)
{
	Relation	rel = u->writer.rel;
	Replacement *new = u->replacement;
	ZNewPlace	place;
	ItemPointerData newtid;
	UndoPtr		ptr;

	if (new->in_place && make_room_in_place(u))
	{
		ptr = update_in_place(u);
		if (new->summarizing)
			*update_indexes = ZC_UPDATE_SUMMARIZING;
		ZUNDO_FAULT("row-counted");
		zc_count_update(rel, true);
		/* stale index entries are what VACUUM is needed for (ZBTREE-9) */
		if (!new->new_keys)
			pgstat_update_heap_dead_tuples(rel, 1);
		show_updated(u, slot, &u->tid);
		return ptr;
	}
	new->new_keys = false;
	find_new_place(u, &place);
	ItemPointerSet(&newtid, BufferGetBlockNumber(place.buf), place.off);
	ptr = update_by_move(u, &place);
	zreclaim_note(rel, u->buf, old_room(u) - (place.buf == u->buf ? (int) new->len : 0));
	*update_indexes = ZC_UPDATE_ALL;
	new->event |= new->columns->rechecked;
	ZUNDO_FAULT("row-counted");
	zc_count_update(rel, false);
	show_updated(u, slot, &newtid);
	return ptr;
}

/*
 * Adds the entries that are due after the update in place (ZBTREE-6). No page
 * is locked.
 */
static void
add_keys(RowChange *u)
{
	const Replacement *new = u->replacement;
	ZUpdatedRow row = {u->writer.rel, &u->tid, u->oldrow, u->oldlen, new->row, new->len};

	ZUNDO_FAULT("keys-due");
	zcolumns_add_keys(&row, new->columns, (zheader_get(u->oldrow) & ZH_STALE_KEYS) != 0);
}

/*
 * Returns whether the server will fetch the old row after the update although
 * no event may be queued. Within the executor the old row is found by the
 * command's id; the apply worker has no level, and fetches the row for every
 * AFTER UPDATE trigger, also for one that does not fire there.
 */
static bool
fetches_old_row(Relation rel)
{
	return rel->trigdesc != NULL && rel->trigdesc->trig_update_after_row &&
		zlevel_current()->estate == NULL;
}

/*
 * Forms the row and reserves undo before the page is locked. Acquiring the row
 * may unlock the page again, to wait or to toast the row.
 */
TM_Result
zheap_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
				   ZC_CHANGE_OPTIONS_PARAM Snapshot snapshot, Snapshot crosscheck, bool wait,
				   TM_FailureData *tmfd,
				   LockTupleMode *lockmode, ZcUpdateIndexes *update_indexes)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	RowChange	u;
	Replacement new;
	TM_Result	result;

	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot update tuples during a parallel operation")));
	begin_row_change(&u, otid, &new);
	form_replacement(rel, slot, &new);
	zwriter_begin_change(&u.writer, rel, cid, zc_update_no_logical);
	u.buf = zread_page(rel, block_of(&u));
	*update_indexes = ZC_UPDATE_NONE;
	result = acquire_for_update(&u, slot, snapshot, crosscheck, wait, tmfd);
	*lockmode = u.mode;
	if (result == TM_Ok)
	{
		UndoPtr		ptr;

		zssi_before_write(rel, u.buf, offset_of(&u));
		zvisible_clear(rel, u.buf);
		zspace_maybe_image(&u.writer, u.buf, &u.pick);
		ptr = update_row(&u, slot, update_indexes);
		zlevel_forget_locked(rel, &u.tid);
		if (new.event || fetches_old_row(rel))
			zlevel_note_change(rel, &u.tid, ptr, new.event);
		LockBuffer(u.buf, BUFFER_LOCK_UNLOCK);
	}
	end_row_change(&u);
	if (result == TM_Ok && new.new_keys)
		add_keys(&u);
	zdml_leave(caller);
	return result;
}

/*
 * Deletes the row. as_of: see zheap_delete_as_of. Returns the pointer of its
 * record. On entry the page is locked and the row acquired.
 */
static UndoPtr
delete_row(RowChange *u, bool changing_part, TransactionId as_of)
{
	Payload		payload;
	ZChange		change;
	ZuRecord   *rec = &change.rec[0];
	int			header_length;

	zwriter_change(&u->writer, &change, ZWAL_DELETE, 1);
	zwriter_record(&u->writer, rec, ZUR_DELETE, block_of(u), offset_of(u), u->pick.prev);
	rec->xflags |= ZUX_KEY_CHANGE | (changing_part ? ZUX_OTHER_PART : 0);
	if (TransactionIdIsValid(as_of))
	{
		rec->as_of = as_of;
		rec->cid = FirstCommandId;
	}
	header_length = whole_row_payload(u, &payload, rec);

	/*
	 * Replay can take the row from the table page, but could not compress it
	 * as we would: its LZ4 library may be another one.
	 */
	change.row_left_out = change.logged && !TransactionIdIsValid(as_of) &&
		zchange_pages_have_images();
	if (change.row_left_out)
		change.old_header_length = header_length;
	else
		zur_compress(rec, payload.compressed, sizeof(payload.compressed));
	add_logical(u, &change);
	zslot_use(&u->writer, &change, 0, u->buf, &u->pick);
	zchange_do(&change, "delete-logged");
	zslot_note(&change, 0, &u->pick);
	return change.op.ptr[0];
}

/*
 * The TOAST values are deleted after the page is unlocked, since that writes
 * another table.
 */
TM_Result
zheap_tuple_delete(Relation rel, ItemPointer tid, CommandId cid,
				   ZC_CHANGE_OPTIONS_PARAM Snapshot snapshot, Snapshot crosscheck, bool wait,
				   TM_FailureData *tmfd ZC_CHANGING_PART_PARAM)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	RowChange	u;
	TM_Result	result;

	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot delete tuples during a parallel operation")));
	begin_row_change(&u, tid, NULL);
	zwriter_begin_change(&u.writer, rel, cid, zc_delete_no_logical);
	u.buf = zread_page(rel, block_of(&u));
	for (;;)
	{
		result = acquire_row(&u, snapshot, crosscheck, wait, tmfd);
		if (result != TM_Ok || pick_old_slot(&u))
			break;
		reserve_overflow(&u);
	}
	if (result == TM_Ok)
	{
		UndoPtr		ptr;

		zssi_before_write(rel, u.buf, offset_of(&u));
		zvisible_clear(rel, u.buf);
		zspace_maybe_image(&u.writer, u.buf, &u.pick);
		ptr = delete_row(&u, zc_changing_part, InvalidTransactionId);
		zrollback_note_page(rel, block_of(&u));
		zreclaim_note(rel, u.buf, old_room(&u));
		LockBuffer(u.buf, BUFFER_LOCK_UNLOCK);
		zlevel_forget_locked(rel, tid);
		if (zheader_get(u.oldrow) & ZH_EXTERNAL)
			ztoast_delete(rel, tid, u.oldrow, u.oldlen, false);

		/*
		 * the deletion may be one half of an update that changes the
		 * partition
		 */
		if (rel->trigdesc != NULL &&
			(rel->trigdesc->trig_delete_after_row ||
			 (zc_changing_part && rel->trigdesc->trig_update_after_row)))
			zlevel_note_change(rel, tid, ptr, true);
		pgstat_count_heap_delete(rel);
	}
	end_row_change(&u);
	zdml_leave(caller);
	return result;
}

/*
 * The row was just inserted by our own transaction, into a file that no other
 * can open, so there is no transaction to wait for.
 */
void
zheap_delete_as_of(Relation rel, ItemPointer tid, CommandId cid, TransactionId as_of)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	RowChange	u;

	begin_row_change(&u, tid, NULL);
	if (TransactionIdIsValid(as_of))
		zown_note_rewrite();
	zwriter_begin(&u.writer, rel, cid);
	u.buf = zread_page(rel, block_of(&u));
	for (;;)
	{
		LockBuffer(u.buf, BUFFER_LOCK_EXCLUSIVE);
		(void) look_at_old_row(&u);
		if (pick_old_slot(&u))
			break;
		reserve_overflow(&u);
	}
	(void) delete_row(&u, false, as_of);
	LockBuffer(u.buf, BUFFER_LOCK_UNLOCK);
	zrollback_note_page(rel, block_of(&u));
	end_row_change(&u);
	zdml_leave(caller);
}
