/*
 * dml/zupdate.c - updating one row, in place or by moving it to a new TID.
 *
 * A row is updated in place, under its TID, if the new row fits and no index
 * needs a new entry. Two kinds of indexes do not count: an update in place
 * adds entries to zbtree indexes whose key changed (ZBTREE-6), and, from 16
 * on, has the executor update block-summarizing indexes. Otherwise, where
 * heap's update would not have been HOT either, the row moves: it gets a new
 * TID and an entry in every index. Its header at the old TID, and later a
 * stub, says that it has moved; the MOVE record has the new TID.
 *
 * Crash points: "computed-evaluated" (after index expressions were evaluated),
 * "row-counted", "keys-due" (the row has new keys, their index entries are not
 * made yet).
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/zcount.h"
#include "dml/zrowchange.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "pgstat.h"
#include "rollback/zrollback.h"
#include "tuple/ztts.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * Makes space on the old page for the new row and, if the slot needs it, for a
 * new slot; prunes the page if that helps. Returns whether there is space.
 */
static bool
make_space_in_place(RowChange *u)
{
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = zrowchange_offset(u);
	int			len = u->replacement->len;
	int			slot_bytes = u->pick.grow_to != 0 ? sizeof(ZPageSlot) : 0;

	for (int tries = 0; tries < 2; tries++)
	{
		int			more = len - (int) ItemIdGetLength(PageGetItemId(page, off));

		if (more <= 0 || zpage_hole(page) >= more + slot_bytes)
			return true;
		if (tries > 0 || !zprune_for_hole(&u->writer, u->buf, more + slot_bytes))
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
	const char *formed = ztts_form_row(slot, RelationGetDescr(rel), &new->bare_len);

	if (!ztts_formed(slot, formed))
		new->bare_len = ztts_length(slot, formed, new->bare_len);
	new->row = palloc(new->bare_len + ZTUPLE_MAX_COUNT);
	memcpy(new->row, formed, new->bare_len);
	zheader_set(new->row, zheader_get(formed) & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL));
	new->toasted = false;
	new->values = new->row;
	new->values_len = new->bare_len;
	new->columns = NULL;
	new->evaluated = NULL;
	new->evaluations = 0;
	if (!ztoast_needed(rel, zheader_get(new->row), new->bare_len, 0))
		ztuple_check_size(new->bare_len);
}

/* Returns whether the new row must go through the toaster. */
static bool
must_toast(const RowChange *u)
{
	Relation	rel = u->writer.rel;
	const Replacement *new = u->replacement;

	return ztoast_needed(rel, zheader_get(new->row), new->bare_len, zheader_get(u->oldrow)) &&
		!ztoast_keeps(rel, (ItemPointer) &u->tid, u->oldrow, u->oldlen, new->row, new->bare_len);
}

/*
 * Puts the large values of the new row into the TOAST table. Toasting writes
 * other tables, so the page is unlocked meanwhile, and a lock of our own on the
 * row keeps other transactions from changing it. Returns with the page
 * unlocked, so the row must be acquired anew.
 */
static void
toast_replacement(RowChange *u)
{
	Relation	rel = u->writer.rel;
	Replacement *new = u->replacement;

	if (!zrow_is_held(rel, u->buf, zrowchange_offset(u), &u->state, u->mode) &&
		!zlock_row(&u->writer, u->buf, zrowchange_offset(u), u->mode))
	{
		zrowchange_reserve(u);
		return;
	}
	LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
	zrollback_note_page(rel, zrowchange_block(u));
	new->row = ztoast_row(rel, new->row, new->bare_len, &u->tid, u->oldrow, u->oldlen,
						  u->writer.decoded ? 0 : TABLE_INSERT_NO_LOGICAL, &new->bare_len);
	new->toasted = true;
	zwriter_reserve(&u->writer);
}

/*
 * Evaluates expressions and predicates of indexes for both rows, and notes the
 * result in the replacement. Unlocks the page before, because that runs
 * functions of users, and reserves undo again afterwards, because these
 * functions may have used the reservation (COMPUTED-2). Returns with the page
 * unlocked, so the row must be acquired anew.
 */
static void
evaluate_computed(RowChange *u, TupleTableSlot *slot)
{
	Replacement *new = u->replacement;
	ZUpdatedRow row = zrowchange_rows(u);

	Assert(new->undecided && !new->in_place);
	LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
	new->evaluated_len = u->oldlen - ZTUPLE_HEADER_SIZE;
	new->evaluated = palloc(new->evaluated_len);
	memcpy(new->evaluated, u->oldrow + ZTUPLE_HEADER_SIZE, new->evaluated_len);
	new->evaluated_reading = new->columns->reading;
	new->evaluations++;
	new->computed_differ = zcomputed_differ(&row, new->columns, slot);
	zcolumns_answered(&row, new->columns, new->evaluated_reading, new->computed_differ);
	zwriter_reserve(&u->writer);
	ZUNDO_FAULT("computed-evaluated");
}

/*
 * Acquires the row for an update: does what zrowchange_acquire does, and on
 * TM_Ok the new row is toasted if it must be, and u->pick is the old page's
 * slot. Raises what zrowchange_acquire, toasting and index expressions raise.
 */
static TM_Result
acquire_for_update(RowChange *u, TupleTableSlot *slot, Snapshot snapshot, Snapshot crosscheck,
				   bool wait, TM_FailureData *tmfd)
{
	Replacement *new = u->replacement;

	for (;;)
	{
		TM_Result	result = zrowchange_acquire(u, snapshot, crosscheck, wait, tmfd);

		if (result != TM_Ok)
		{
			/*
			 * Logical decoding would take the TOAST chunks that were just
			 * logged for those of the next row (DECODE-1). Our lock on the
			 * row prevents this case.
			 */
			if (new->toasted && u->writer.decoded)
				elog(ERROR, "row was changed while its values were put out of line");
			return result;
		}
		new->len = ztuple_repeat(new->row, new->bare_len, u->oldrow, u->oldlen);	/* TOKEN-5 */
		if (!new->toasted)
			u->locked |= u->state.own_lock;

		/*
		 * Functions of the user may change rows, so they must not run between
		 * logging the TOAST chunks and the row (DECODE-1). The indexes count
		 * as changed instead: a move is right in any case.
		 */
		if (new->undecided && new->toasted && u->writer.decoded)
			new->undecided = false;
		if (new->undecided)
			evaluate_computed(u, slot);
		else if (!new->toasted && must_toast(u))
			toast_replacement(u);
		else if (!zrowchange_pick(u))
			zrowchange_reserve(u);
		else if (u->must_move || !u->state.many_locks || (new->in_place && make_space_in_place(u)))
			return TM_Ok;
		else
		{
			/*
			 * Others hold more locks than a move can take along
			 * (ZLOCK_MAX_ENTRIES), so wait until they have ended. Decided
			 * after the slot is picked, since picking may take the space that
			 * the row needed.
			 */
			u->must_move = true;
			LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
		}
	}
}

/*
 * Finds a place for the new row of an update that moves it. If
 * zspace_second_page has picked a slot of the old page meanwhile, the earlier
 * pick is void, and the old page's slot is picked again. If the old page has
 * the place only when it has been pruned, the move prunes it (PRUNE-3): place
 * points to plan then. Raises ERRCODE_DATA_CORRUPTED, and errors of lacking
 * space.
 */
static void
find_new_place(RowChange *u, ZPrunePlan *plan, ZNewPlace *place)
{
	bool		again;

	if (!zpage_has_overflow(BufferGetPage(u->buf)) && zrowwrite_is_compact(u) &&
		zspace_by_pruning(&u->writer, u->buf, &u->pick, u->replacement->len, plan, place))
		return;
	again = zspace_second_page(&u->writer, u->buf, u->replacement->len, u->state.others_locks,
							   place);
	if (place->buf == u->buf)
		u->pick = place->pick;
	else if (again && !zrowchange_pick(u))
		elog(ERROR, "no free transaction slot on a page that had one");
}

/*
 * Returns whether the new row that was stored has other bytes behind its header
 * than the slot has, or would be formed with.
 */
static bool
stored_differs(const Replacement *new, const ZHeapSlot *slot)
{
	const ZHeader shape = ZH_NATTS_MASK | ZH_NULLS;

	if (new->toasted || new->len != new->values_len)
		return true;
	return slot->row != NULL &&
		(slot->len != new->len ||
		 ((zheader_get(slot->row) ^ zheader_get(new->row)) & shape) != 0);
}

/*
 * Stores in the executor's slot where the updated row is, that our transaction
 * wrote it, and its token.
 */
static void
show_updated(const RowChange *u, TupleTableSlot *slot, ItemPointer tid)
{
	Relation	rel = u->writer.rel;
	CommandId	cid = u->writer.cid;
	bool		locked = u->locked || zlevel_locked_last(rel, &u->tid, u->writer.xid, cid);

	slot->tts_tid = *tid;
	slot->tts_tableOid = RelationGetRelid(rel);
	if (TTS_IS_ZHEAP(slot))
	{
		const Replacement *new = u->replacement;

		if (unlikely(stored_differs(new, (ZHeapSlot *) slot)))
			ztts_stored(slot, new->row, new->len);
		Assert(ztts_shows(slot, new->row, new->len));	/* TOKEN-2 */
		ztts_set_author(slot, u->writer.xid, cid, InvalidUndoPtr);
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
	ZPrunePlan	plan;
	ZNewPlace	place;
	ItemPointerData newtid;
	UndoPtr		ptr;

	if (new->in_place && make_space_in_place(u))
	{
		ptr = zrowwrite_update(u);
		if (new->len < u->oldlen)
			zreclaim_note(rel, u->buf, zrowchange_offset(u), u->oldlen - new->len);
		if (new->summarizing)
			*update_indexes = ZC_UPDATE_SUMMARIZING;
		ZUNDO_FAULT("row-counted");
		zc_count_update(rel, true, false);
		zcount(ZCOUNT_UPDATED, 1);
		pgstat_update_heap_dead_tuples(rel, 1);
		show_updated(u, slot, &u->tid);
		return ptr;
	}
	new->new_keys = false;
	find_new_place(u, &plan, &place);
	ItemPointerSet(&newtid, BufferGetBlockNumber(place.buf), place.off);
	ptr = zrowwrite_move(u, &place);
	zreclaim_note(rel, u->buf, zrowchange_offset(u),
				  zrowchange_room(u) - (place.buf == u->buf ? (int) new->len : 0));
	*update_indexes = ZC_UPDATE_ALL;
	new->event |= new->columns->rechecked;
	ZUNDO_FAULT("row-counted");
	zc_count_update(rel, false, place.buf != u->buf);
	zcount(ZCOUNT_MOVED, 1);
	if (new->in_place)
		zcount(ZCOUNT_MOVED_FOR_SPACE, 1);
	show_updated(u, slot, &newtid);
	return ptr;
}

/* Counts of the indexes that have made the row move. No page is locked. */
static void
count_move(RowChange *u)
{
	const Replacement *new = u->replacement;
	ZUpdatedRow row = zrowchange_rows(u);
	bool		evaluated = new->evaluated != NULL &&
	new->evaluated_reading == new->columns->reading;

	if (!RelationUsesLocalBuffers(row.rel))
		zcolumns_count_move(&row, new->columns, evaluated ? new->computed_differ : -1);
}

/*
 * Adds the entries that are due after the update in place (ZBTREE-6). Counts
 * stale entries as dead rows, by which autovacuum is triggered, and no longer
 * those that it has found and used again; purge and page-full deletion subtract
 * what they delete. Not counted is the entry that is left when an update is
 * rolled back by which a row came to satisfy a predicate. No page is locked.
 */
static void
add_keys(RowChange *u)
{
	const Replacement *new = u->replacement;
	ZUpdatedRow row = {u->writer.rel, &u->tid, u->oldrow, u->oldlen, new->row, new->len};
	int			stale;

	ZUNDO_FAULT("keys-due");
	stale = zcolumns_add_keys(&row, new->columns,
							  (zheader_get(u->oldrow) & ZH_STALE_KEYS) != 0);
	if (stale != 0)
		pgstat_update_heap_dead_tuples(row.rel, -stale);
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
 * zheap_tuple_update: See zdml.h. The tuple_update callback. Forms the new row
 * and reserves undo before it locks the page. Acquiring the row may unlock the
 * page again, to wait, to toast the row, to evaluate index expressions, or to
 * reserve an overflow page.
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
	zrowchange_begin(&u, otid, &new);
	form_replacement(rel, slot, &new);
	zwriter_begin_change(&u.writer, rel, cid, zc_update_no_logical);
	u.buf = zknown_read(rel, zrowchange_block(&u));
	*update_indexes = ZC_UPDATE_NONE;
	result = acquire_for_update(&u, slot, snapshot, crosscheck, wait, tmfd);
	*lockmode = u.mode;
	if (result == TM_Ok)
	{
		UndoPtr		ptr;

		zssi_before_write(rel, u.buf, zrowchange_offset(&u));
		zimage_maybe_save(&u.writer, u.buf, &u.pick);
		ptr = update_row(&u, slot, update_indexes);
		zlevel_forget_locked(rel, &u.tid);
		if (new.event || fetches_old_row(rel))
			zrowchange_note(&u, ptr, ItemPointerEquals(&slot->tts_tid, &u.tid), new.event);
		LockBuffer(u.buf, BUFFER_LOCK_UNLOCK);
	}
	zrowchange_end(&u);
	if (result == TM_Ok && new.new_keys)
		add_keys(&u);
	else if (*update_indexes == ZC_UPDATE_ALL && !new.in_place)
		count_move(&u);
	/* the row has its new values, or those stored for it are not needed */
	if (new.toasted && result == TM_Ok)
		ztoast_delete(rel, otid, u.oldrow, u.oldlen, new.row, new.bare_len);
	else if (new.toasted)
		ztoast_delete(rel, otid, new.row, new.bare_len, new.values, new.values_len);
	zdml_leave(caller);
	return result;
}
