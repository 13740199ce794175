/*
 * dml/zrowwrite.c - what the update or the deletion of a row writes: the change
 * of the pages, the undo records, and what logical decoding needs.
 *
 * Both halves of a move carry one xid and cid. So a snapshot accepts both or
 * neither, and sees the row at exactly one of the two places.
 *
 * Crash points: "update-logged", "move-logged", "delete-logged".
 */
#include "postgres.h"

#include "change/zlogical.h"
#include "dml/zrowchange.h"
#include "rollback/zrollback.h"
#include "utils/rel.h"

/*
 * Returns whether the change excludes KEY SHARE lockers: if it changes the key,
 * or if our transaction has excluded them by a lock or an earlier change.
 * Transactions that met that expect a new key, and must look at the row anew
 * when our transaction has ended, as on heap.
 */
static inline bool
excludes_key_share(const RowChange *u)
{
	return u->mode == LockTupleExclusive || u->state.own_exclusive;
}

/*
 * Returns whether the row loses its lock hint by the update: no lock on it
 * counts any more. That is also so for our own if the update is rolled back
 * only together with it: the update excludes what the lock does
 * (excludes_key_share).
 */
static inline bool
loses_locks(const RowChange *u)
{
	return u->state.clear_locks ||
		(u->state.own_lock && !u->state.others_locks && u->writer.xid == u->writer.topxid);
}

/*
 * Makes the old row's header the payload of rec, in 'payload'. Its bytes, which
 * show its shape, stay where they are until they have to make room, and are
 * saved then (SAVED-1).
 */
static void
header_payload(const RowChange *u, char *payload, ZuRecord *rec)
{
	ZHeader		old = zheader_get(u->oldrow);

	rec->payload = payload;
	rec->payload_len = zheader_compact_put(payload, old, old) - payload;
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
	row = zrowchange_rows(u);
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
 * Adds the decoding part to the change, if it is to be decoded. Called after
 * the rest of the change has been set. May read values out of line of the old
 * row while the page is locked, as heap does.
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
	rows.change = change;
	change->logical = zlogical_part(u->writer.rel, &rows, &change->logical_length);
}

/*
 * zrowwrite_update: See zrowchange.h. The record has those bytes of the old
 * row that the new one does not have, and its header against the new one's
 * shape.
 */
UndoPtr
zrowwrite_update(RowChange *u)
{
	Replacement *new = u->replacement;
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = zrowchange_offset(u);
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
	change.clear_locks = loses_locks(u);
	if (change.clear_locks)
		change.shape = ZH_WITHOUT_LOCKS(change.shape);
	Assert(new->new_content || !new->new_keys); /* ZBTREE-7 */
	change.stale_keys = new->new_content && (current & ZH_STALE_KEYS) == 0;
	if (change.stale_keys)
		change.shape |= ZH_STALE_KEYS;
	zheader_set(new->row, change.shape);
	Assert(!ztuple_same_bytes(u->oldrow, u->oldlen, new->row, new->len));	/* TOKEN-5 */
	change.row = new->row;
	change.row_length = new->len;
	zdelta_compute(u->oldrow + ZTUPLE_HEADER_SIZE, u->oldlen - ZTUPLE_HEADER_SIZE,
				   new->row + ZTUPLE_HEADER_SIZE, new->len - ZTUPLE_HEADER_SIZE, &delta);
	zwriter_record(&u->writer, rec, ZUR_UPDATE, zrowchange_block(u), off, u->pick.prev);
	if (key_change)
		rec->xflags |= ZUX_KEY_CHANGE;
	p = zheader_compact_put(zdml_space.bytes, old, change.shape);
	change.old_header_length = p - zdml_space.bytes;
	p = zdelta_undo_put(p, &delta, u->oldrow + ZTUPLE_HEADER_SIZE);
	rec->payload = zdml_space.bytes;
	rec->payload_len = p - zdml_space.bytes;
	if (change.logged)
	{
		p = zdelta_wal_put(zdml_space.delta, &delta, u->oldrow + ZTUPLE_HEADER_SIZE,
						   new->row + ZTUPLE_HEADER_SIZE);
		change.delta = zdml_space.delta;
		change.delta_length = p - zdml_space.delta;
	}
	add_logical(u, &change);
	zslot_use(&u->writer, &change, 0, u->buf, &u->pick);
	zvismap_clear_in(u->writer.rel, &change);
	zchange_do(&change, "update-logged");
	zslot_note(&change, 0, &u->pick);
	zrollback_note_page(u->writer.rel, zrowchange_block(u));
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
 * Gives a compact MOVE the delta from the old row to the new one: replay has
 * the old one on the page whenever it puts the new one there.
 */
static void
log_as_delta(const RowChange *u, ZChange *change, char *buf)
{
	const Replacement *new = u->replacement;
	ZDelta		delta;

	if (!change->compact)
		return;

	/*
	 * A delta in undo form contains the bytes of the older row. Replay needs
	 * those of the new row, so the two rows change places here.
	 */
	zdelta_compute(new->row + ZTUPLE_HEADER_SIZE, new->len - ZTUPLE_HEADER_SIZE,
				   u->oldrow + ZTUPLE_HEADER_SIZE, u->oldlen - ZTUPLE_HEADER_SIZE, &delta);
	Assert(zdelta_undo_size(&delta) <= BLCKSZ);
	change->delta = buf;
	change->delta_length = zdelta_undo_put(buf, &delta, new->row + ZTUPLE_HEADER_SIZE) - buf;
}

/*
 * zrowwrite_is_compact: See zrowchange.h. If the row takes locks along or is
 * decoded, the record has to be a literal one.
 */
bool
zrowwrite_is_compact(const RowChange *u)
{
	return u->writer.logged && !u->writer.decoded && !u->state.others_locks;
}

/*
 * zrowwrite_move: See zrowchange.h. The new row gets an INSERT record: no row
 * was there before.
 */
UndoPtr
zrowwrite_move(RowChange *u, const ZNewPlace *place)
{
	char		payload[ZHEADER_COMPACT_MAX];
	Relation	rel = u->writer.rel;
	Replacement *new = u->replacement;
	BlockNumber newblock = BufferGetBlockNumber(place->buf);
	bool		same = (place->buf == u->buf);
	ZChange		change;
	ZuRecord   *out = &change.rec[0];
	ZuRecord   *in = &change.rec[1];

	Assert(zc_buffer_exclusive(u->buf) && zc_buffer_exclusive(place->buf));
	Assert(!ztuple_same_bytes(u->oldrow, u->oldlen, new->row, new->len));	/* TOKEN-5 */
	if (!same)
	{
		zvismap_clear(rel, u->buf);
		zvismap_clear(rel, place->buf);
	}
	zwriter_change(&u->writer, &change, ZWAL_MOVE, u->state.others_locks ? 3 : 2);
	zheader_set(new->row, ZH_WITH_SLOT(zheader_get(new->row), place->pick.slotno));
	zwriter_record(&u->writer, out, ZUR_MOVE, zrowchange_block(u), zrowchange_offset(u),
				   u->pick.prev);
	ItemPointerSet(&out->forward, newblock, place->off);
	if (excludes_key_share(u))
		out->xflags |= ZUX_KEY_CHANGE;
	header_payload(u, payload, out);

	/*
	 * Whenever replay puts the new row on another page, it must be able to
	 * form it; the old page may be newer then, and not have the old row.
	 */
	change.compact = same && zrowwrite_is_compact(u);
	Assert(change.compact || place->plan == NULL);
	if (place->plan != NULL)
	{
		change.prunes = true;
		change.prune = place->plan->items;
		change.nprune = place->plan->n;
		change.conflict = place->plan->conflict;
	}
	/* on one page, the INSERT record is pushed on the MOVE record */
	zwriter_record(&u->writer, in, ZUR_INSERT, newblock, place->off,
				   same ? ZCHANGE_ON_RECORD_BEFORE : place->pick.prev);
	in->xflags |= ZUX_MOVED_IN | (out->xflags & ZUX_KEY_CHANGE);
	if (u->state.others_locks)
	{
		carry_locks(u, place, &zdml_space.list, &change.rec[2]);
		change.locks.slotno = place->common.slotno;
		change.locks.grow_to = place->common.grow_to;
	}
	change.row = new->row;
	change.row_length = new->len;
	log_as_delta(u, &change, zdml_space.delta);
	add_logical(u, &change);
	zslot_use(&u->writer, &change, 0, u->buf, &u->pick);
	if (!same)
	{
		zslot_use(&u->writer, &change, 1, place->buf, &place->pick);
		change.page[1].init = place->init;
	}
	else
	{
		change.page[1].slot = change.page[0].slot;
		zvismap_clear_in(rel, &change);
	}
	zchange_do(&change, "move-logged");
	/* each of the two records is noted, also if both went to one page */
	zslot_note(&change, 0, &u->pick);
	zslot_note(&change, 1, &place->pick);
	zrollback_note_page(rel, newblock);
	zrollback_note_page(rel, zrowchange_block(u));
	if (!same)
		UnlockReleaseBuffer(place->buf);
	return change.op.ptr[0];
}

/*
 * Deletes the row under the record at the head of the slot's chain, which
 * covers it.
 */
static void
delete_covered(RowChange *u, bool elsewhere)
{
	ZCoveredRow old = {.off = zrowchange_offset(u),.logged = true};

	old.header = ZH_WITH_SLOT(elsewhere ? ZH_OTHER_PART : 0, u->pick.slotno);
	if (unlikely(u->writer.decoded))
	{
		ZChange		change;

		zwriter_change(&u->writer, &change, ZWAL_DELETE, 1);
		add_logical(u, &change);
		old.logical = change.logical;
		old.logical_length = change.logical_length;
	}
	zchange_delete_covered(u->buf, &old, "delete-logged");
	zown_note_covered(old.off, u->pick.prev);
}

UndoPtr
zrowwrite_delete(RowChange *u, bool elsewhere, TransactionId as_of)
{
	char		payload[ZHEADER_COMPACT_MAX];
	ZChange		change;
	ZuRecord   *rec = &change.rec[0];
	ZHeader		header = zheader_get(u->oldrow);

	if (!TransactionIdIsValid(as_of) &&
		zrange_covers_delete(&u->writer, &u->pick, zrowchange_offset(u), header, elsewhere))
	{
		delete_covered(u, elsewhere);
		return u->pick.prev;
	}
	zwriter_change(&u->writer, &change, ZWAL_DELETE, 1);
	zwriter_record(&u->writer, rec, ZUR_DELETE, zrowchange_block(u), zrowchange_offset(u),
				   u->pick.prev);
	rec->xflags |= ZUX_KEY_CHANGE | (elsewhere ? ZUX_OTHER_PART : 0);
	if (TransactionIdIsValid(as_of))
	{
		rec->as_of = as_of;
		rec->cid = FirstCommandId;
	}
	header_payload(u, payload, rec);
	change.compact = change.logged && !TransactionIdIsValid(as_of);
	zrange_open_delete(&u->writer, &change, u->buf, &u->pick, header);
	add_logical(u, &change);
	zslot_use(&u->writer, &change, 0, u->buf, &u->pick);
	zvismap_clear_in(u->writer.rel, &change);
	zchange_do(&change, "delete-logged");
	zslot_note(&change, 0, &u->pick);
	zrange_note_delete(&u->writer, &change, header);
	return change.op.ptr[0];
}
