/*
 * dml/zlock.c - row locks.
 *
 * A lock is stored in one of four ways: as an inline lock in a slot of the
 * locker; as a LOCK record in the chain of the locker's slot; as a lock tag in
 * the row's header, beside an open LOCK record (zlocktag.c); or as an entry of
 * a LOCKS record of the page's common lock slot. In all cases the row's header
 * gets a hint that locks may exist (docs/locking.md).
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/xact.h"
#include "access/xloginsert.h"
#include "dml/zdml_internal.h"
#include "guard/zctid.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "tuple/ztts.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * Returns whether the row has left its place since it was examined. That can
 * only happen if another transaction was changing it then: picking a slot has
 * pruned the page after a move was committed, or has rolled back a move to this
 * place.
 */
static inline bool
has_gone(Page page, OffsetNumber off)
{
	return !ItemIdIsNormal(PageGetItemId(page, off));
}

/*
 * Locks the row without undo if the page has a slot for that; returns whether
 * it has. The stronger modes announce a change of the row, before which an
 * inline lock would have to become a record at once. No other session locks
 * rows of a temporary table, and the undo pointers of its pages must show that
 * the table is temporary (CHAIN-8), so it has no inline locks.
 */
static bool
lock_inline(const ZWriter *writer, Buffer buf, OffsetNumber off, LockTupleMode mode)
{
	Page		page = BufferGetPage(buf);
	ZWalInlineLock lock = {0};

	Assert(zc_buffer_exclusive(buf));
	if (mode > LockTupleShare || writer->temp)
		return false;
	lock.offset = off;
	lock.mode = mode;
	if (!zslot_pick_inline(writer, buf, &lock) || has_gone(page, off))
		return false;
	zlock_put_inline(writer, buf, &lock);
	return true;
}

/*
 * Remembers that our transaction holds this lock on the row at off (LOCK-11).
 * The page is locked.
 */
static void
remember(const ZWriter *writer, Buffer buf, OffsetNumber off, LockTupleMode mode, bool by_tag)
{
	Page		page = BufferGetPage(buf);

	zheld_note(writer->rel, BufferGetBlockNumber(buf), off,
			   zheader_get(zpage_row(page, PageGetItemId(page, off))), mode, by_tag);
}

/*
 * zlock_row: See zdml_internal.h. Tries a lock tag first, then an
 * inline lock, then a LOCK or LOCKS record. Picking a slot may remove the row,
 * so has_gone is called after each pick.
 */
bool
zlock_row(const ZWriter *writer, Buffer buf, OffsetNumber off, LockTupleMode mode)
{
	Page		page = BufferGetPage(buf);
	ZSlotPick	pick;
	ZChange		change;
	ZLockList	list;
	bool		by_tag = zlocktag_lock(writer, buf, off, mode);

	Assert(zc_buffer_exclusive(buf));
	if (by_tag || lock_inline(writer, buf, off, mode))
	{
		remember(writer, buf, off, mode, by_tag);
		return true;
	}
	if (has_gone(page, off) ||
		!zslot_pick_for_lock(writer, buf,
							 ZH_SLOT(zheader_get(zpage_row(page, PageGetItemId(page, off)))),
							 &pick) ||
		has_gone(page, off))
		return false;
	zwriter_change(writer, &change, ZWAL_LOCK, 1);
	if (pick.common)
	{
		list.n = 1;
		list.entry[0] = zlock_entry(writer->xid, off, mode);
		zlocklist_record(writer, buf, &pick, &list, &change.rec[0]);
	}
	else
	{
		zwriter_record(writer, &change.rec[0], ZUR_LOCK, BufferGetBlockNumber(buf), off, pick.prev);
		change.rec[0].lockmode = mode;
		change.rec[0].open = zlocktag_opens(writer, buf, off, &pick);
	}
	zslot_use(writer, &change, 0, buf, &pick);
	zchange_do(&change, NULL);
	zslot_note(&change, 0, &pick);
	if (!pick.common)
	{
		bool		own = pick.prev != InvalidUndoPtr && pick.committed == InvalidZXid;

		remember(writer, buf, off, mode, change.rec[0].open);
		if ((change.rec[0].open || !own) && pick.overflow == 0 && !writer->temp)
			zheld_note_record(writer->rel, BufferGetBlockNumber(buf), pick.slotno,
							  change.op.ptr[0], &change.rec[0]);
	}
	return true;
}

/*
 * Stores the version that was locked in the executor's slot: the newest one,
 * or, beside another transaction's update, the one that the caller's snapshot
 * sees. Returns false if the row is no longer here: the page was unlocked, and
 * a KEY SHARE lock lets other transactions move the row.
 *
 * ON CONFLICT wants the newest version also beside an update (ANY-3c). It asks
 * next whether its snapshot sees the version in the slot
 * (zheap_tuple_satisfies_snapshot). So the author is looked up here: without
 * it, the columns of that version would be compared with those of the version
 * that the snapshot sees, and an update that has changed no value would count
 * as seen.
 */
static bool
show_locked(Relation rel, Buffer buf, ItemPointer tid, Snapshot snapshot, bool beside,
			bool traversed, TupleTableSlot *slot)
{
	ZVersion	version;
	bool		conflict = beside && zany_is_conflict_slot(slot);
	bool		older = beside && !conflict && !traversed && snapshot && IsMVCCSnapshot(snapshot);
	Snapshot	snap = older ? snapshot : SnapshotSelf;
	bool		isnull;

	Assert(zc_buffer_unlocked(buf));
	ZUNDO_FAULT("row-locked");
	zvis_fetch(rel, buf, ItemPointerGetOffsetNumber(tid), snap, &version, NULL);
	if (version.found)
		zversion_show(rel, &version, tid, slot);
	else
		ExecClearTuple(slot);
	if (version.found && conflict)
		(void) slot_getsysattr(slot, MinCommandIdAttributeNumber, &isnull);
	return version.found;
}

/*
 * Notes for the query level the version that was locked, which a later change
 * in the same query then takes for the one that snapshot shows. Its author must
 * be determined as an update under that snapshot will do it. On entry the page
 * is locked.
 */
static void
note_locked(Relation rel, Buffer buf, ItemPointer tid, Snapshot snapshot)
{
	ZSlotView	slots;
	ZRow		row = zvis_row_on(rel, buf, ItemPointerGetOffsetNumber(tid), &slots);
	ZAuthor		author;

	Assert(zc_buffer_locked(buf));
	zslots_copy(row.rel, row.block, row.page, &slots);
	zvis_author(&row, snapshot, &author);
	zlevel_note_locked(rel, tid, author.ptr);
}

/* The search for the row to lock: what the caller asks for, and its state. */
typedef struct LockSearch
{
	Snapshot	shown;			/* sees the version that slot gets; NULL: the
								 * newest one */
	TupleTableSlot *slot;
	LockTupleMode mode;
	LockWaitPolicy policy;
	uint8		flags;			/* TUPLE_LOCK_FLAG_* */
	TM_FailureData *tmfd;
	const char *found;			/* the version that the caller has found by
								 * other means than a snapshot (DML-15); else
								 * NULL */
	uint32		found_length;
	bool		by_key;			/* it was found by its key, and nothing else
								 * of it matters */
	/* state */
	ItemPointerData tid;
	Snapshot	snapshot;		/* Invalid once a newer version is being
								 * followed */
	bool		traversed;
	bool		have_tuple_lock;
	bool		newer;			/* the row was updated in place since the
								 * snapshot (GUARD-4) */
	UndoPtr		move;			/* the move whose new places have been locked,
								 * named by its record (UNDO-6) */
} LockSearch;

/*
 * Raises ERRCODE_T_R_SERIALIZATION_FAILURE for a row that has a newer version
 * which cannot be found from here. A row of a partition may have moved to
 * another one, unless a rewrite of the table says otherwise (CLUSTER-6 in
 * vacuum/).
 */
static void
cannot_follow(Relation rel, const ZRowState *state)
{
	if (rel->rd_rel->relispartition && !TransactionIdIsValid(state->author.as_of))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("tuple to be locked was already moved to another partition due to "
						"concurrent update")));
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("could not serialize access due to concurrent update"),
			 errdetail("The row was updated, and then table \"%s\" was rewritten by CLUSTER or "
					   "VACUUM FULL.", RelationGetRelationName(rel)),
			 errhint("Retry the statement.")));
}

/*
 * Makes the search continue at the TID to which the row was moved, or at the
 * newest version if it was updated in place. Returns false if the caller did
 * not ask for that (TUPLE_LOCK_FLAG_FIND_LAST_VERSION) and so gets TM_Updated.
 * Raises ERRCODE_T_R_SERIALIZATION_FAILURE if the row has moved to another
 * partition, or if the table was rewritten since the update.
 */
static bool
follow_update(LockSearch *search, Relation rel, const ZRowState *state)
{
	const TM_FailureData *tmfd = search->tmfd;

	if (!(search->flags & TUPLE_LOCK_FLAG_FIND_LAST_VERSION))
		return false;
	if (ItemPointerIndicatesMovedPartitions(&tmfd->ctid))
		cannot_follow(rel, state);
	search->newer = ItemPointerEquals(unconstify(ItemPointerData *, &tmfd->ctid), &search->tid);
	search->tid = tmfd->ctid;
	search->snapshot = InvalidSnapshot;
	search->traversed = true;
	return true;
}

/*
 * Returns whether a committed change of the row at off, a new place of a row
 * that has moved, excludes a KEY SHARE lock on the version that the snapshot
 * sees at its old place. The page is locked.
 */
static bool
lost_key(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot)
{
	ZSlotView	slots;
	ZRow		row = zvis_row_on(rel, buf, off, &slots);

	if (!zsnapshot_is_mvcc(snapshot))
		return false;
	zslots_copy(row.rel, row.block, row.page, &slots);
	return zvis_key_overtaken(&row, snapshot);
}

/*
 * Visits the places to which another transaction has moved, or is moving, a
 * row that is to be locked FOR KEY SHARE, and with 'take' locks it there: a
 * deletion at a new place would not meet a lock at the old one. No buffer lock
 * may be held. Returns TM_Ok; TM_BeingModified with *wait_for; or TM_Deleted or
 * TM_Updated if a later version than the snapshot's was deleted or has another
 * key.
 */
static TM_Result
visit_moved(ZWriter *writer, ItemPointerData tid, Snapshot snapshot, bool take, ZXid *wait_for)
{
	Relation	rel = writer->rel;
	TM_FailureData tmfd;

	*wait_for = InvalidZXid;
	for (;;)
	{
		Buffer		buf = zknown_read(rel, ItemPointerGetBlockNumber(&tid));
		OffsetNumber off = ItemPointerGetOffsetNumber(&tid);
		ZRowWish	wish = {rel, buf, &tid, writer->cid, InvalidSnapshot, LockTupleKeyShare};
		ZRowState	state;
		TM_Result	result;
		bool		locked = true;

		zwriter_reserve(writer);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		result = zrow_examine(&wish, &state, &tmfd);
		/* TM_Invisible: the row was just moved here, and not changed since */
		if (result == TM_Invisible && state.wait_for != InvalidZXid)
			result = TM_BeingModified;
		/* the row may have got another key in place, and left it there */
		if ((result == TM_Ok || result == TM_Updated) && lost_key(rel, buf, off, snapshot))
		{
			UnlockReleaseBuffer(buf);
			return TM_Updated;
		}
		if (take && (result == TM_Ok || result == TM_Invisible) && !state.stub &&
			!zrow_is_held(rel, buf, off, &state, LockTupleKeyShare))
			locked = zlock_row(writer, buf, off, LockTupleKeyShare);
		UnlockReleaseBuffer(buf);
		if (!locked)
		{
			zwriter_reserve_overflow(writer);
			continue;
		}
		if (take)
			zrollback_note_page(rel, ItemPointerGetBlockNumber(&tid));
		*wait_for = state.wait_for;
		if (result == TM_BeingModified || result == TM_Deleted ||
			(result == TM_Updated && (state.author.xflags & (ZUX_KEY_CHANGE | ZUX_OTHER_PART))))
			return result;
		/* a row that our own transaction has changed needs no lock */
		if (result == TM_SelfModified)
			return TM_Ok;
		if (ZH_STATE(state.header) != ZSTATE_MOVED || !ItemPointerIsValid(&state.author.forward))
			return TM_Ok;
		tid = state.author.forward;
	}
}

/*
 * Returns the result for a KEY SHARE lock on an old version if the row was
 * deleted, or got another key, by a newer change. The result is the same as if
 * the version itself had been deleted or got that key. Releases wish->buf,
 * which is not locked. Sets *done to false if the search must try again.
 */
static TM_Result
beyond_reach(LockSearch *search, const ZRowWish *wish, TM_Result result, const ZRowState *state,
			 bool *done)
{
	TM_FailureData *tmfd = search->tmfd;

	Assert(zc_buffer_unlocked(wish->buf));
	tmfd->ctid = state->author.forward;
	tmfd->xmax = zxid_to_xid(state->author.xid);
	tmfd->cmax = InvalidCommandId;
	tmfd->traversed = false;
	if (result == TM_Updated && follow_update(search, wish->rel, state))
		*done = false;
	ReleaseBuffer(wish->buf);
	return result;
}

/*
 * Returns the result if the search has followed an update by another
 * transaction and then meets a change that our own transaction has made since
 * the command began. If that change left a live version, the result is
 * TM_SelfModified, which most callers report as an error. If it deleted the
 * row, the result is TM_Deleted. If it moved the row, sets *done to false, and
 * the search continues at the new place to find out which of the two it is.
 */
static TM_Result
beyond_update(LockSearch *search, Relation rel, const ZRowState *state, bool *done)
{
	if (ZH_LIVE(state->header))
		return TM_SelfModified;
	if ((ZH_STATE(state->header) == ZSTATE_MOVED || (state->author.xflags & ZUX_OTHER_PART)) &&
		follow_update(search, rel, state))
		*done = false;
	return TM_Deleted;
}

/*
 * Waits until transaction xid has ended, for the row of the wish. Returns false
 * if the caller does not want to wait. No buffer lock may be held.
 */
static bool
wait_to_lock(LockSearch *search, const ZRowWish *wish, ZXid xid, bool own_lock)
{
	return zrow_wait(wish, xid, search->policy, XLTW_Lock, own_lock, &search->have_tuple_lock);
}

/*
 * Takes a KEY SHARE lock at the new places of a row that another transaction
 * has moved, or is moving, and makes the search begin again, which locks the
 * old place. Nothing is locked before it is known that nothing conflicts at any
 * place: the mover may roll back to a savepoint and continue, and must not meet
 * a lock of a transaction that waits for it, or that has skipped the row.
 * Releases wish->buf, which is not locked. Sets *done to false unless the
 * result is final.
 */
static TM_Result
lock_moved(ZWriter *writer, LockSearch *search, const ZRowWish *wish, ZRowState *state, bool *done)
{
	ItemPointerData tid = state->author.forward;
	TM_Result	result;

	Assert(search->mode == LockTupleKeyShare);
	result = visit_moved(writer, tid, wish->snapshot, false, &state->wait_for);
	if (result == TM_Ok)
		result = visit_moved(writer, tid, wish->snapshot, true, &state->wait_for);

	/*
	 * If the mover has committed, report the lost key to the caller;
	 * otherwise wait for the mover.
	 */
	if ((result == TM_Deleted || result == TM_Updated) &&
		state->author.status != ZXID_IN_PROGRESS)
		return beyond_reach(search, wish, result, state, done);
	ReleaseBuffer(wish->buf);
	if (result == TM_Ok)
		search->move = state->author.ptr;
	/* without joining the queue, as on heap: a new place may be locked now */
	else if (state->wait_for != InvalidZXid &&
			 !wait_to_lock(search, wish, state->wait_for, true))
		return TM_WouldBlock;
	*done = false;
	return result;
}

/*
 * Locks the row, for which zrow_examine has returned TM_Ok, and fills the
 * caller's slot. On entry wish->buf is exclusively locked; releases it. Sets
 * *done to false if the search must try again.
 */
static TM_Result
lock_found(ZWriter *writer, LockSearch *search, const ZRowWish *wish, ZRowState *state, bool *done)
{
	Relation	rel = writer->rel;
	Buffer		buf = wish->buf;
	OffsetNumber off = ItemPointerGetOffsetNumber(wish->tid);
	ZVersion	version;
	bool		fetched;

	Assert(zc_buffer_exclusive(buf) && zwriter_started(writer));
	Assert(state->author.type != ZUR_MOVE || state->author.ptr != InvalidUndoPtr);
	if (unlikely(state->key_share_beside && state->author.type == ZUR_MOVE &&
				 search->move != state->author.ptr))
	{
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		return lock_moved(writer, search, wish, state, done);
	}
	/* a row whose move is committed is locked at its new place only */
	if ((ZH_LIVE(state->header) || state->author.status == ZXID_IN_PROGRESS) &&
		!zrow_is_held(rel, buf, off, state, search->mode))
	{
		if (!zlock_row(writer, buf, off, search->mode))
		{
			UnlockReleaseBuffer(buf);
			zwriter_reserve_overflow(writer);
			*done = false;
			return TM_Ok;
		}
		zrollback_note_page(rel, ItemPointerGetBlockNumber(wish->tid));
	}

	/*
	 * TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS is set by SELECT FOR UPDATE and
	 * its kind only. They change nothing: their plan continues with the
	 * version that is returned here, perhaps an older one.
	 */
	if (search->snapshot == InvalidSnapshot &&
		!(search->flags & TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS) && search->shown &&
		IsMVCCSnapshot(search->shown))
		note_locked(rel, buf, wish->tid, search->shown);

	/* most rows are read at once, as what has been locked */
	fetched = !state->key_share_beside && zvis_fetch_locked(rel, buf, off, &version);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (likely(fetched))
	{
		ZUNDO_FAULT("row-locked");
		zversion_show(rel, &version, wish->tid, search->slot);
	}
	else
	{
		/*
		 * The row may have moved while the page was unlocked. Our KEY SHARE
		 * lock moved with it, or was taken at the new place as well; search
		 * for it again.
		 */
		*done = show_locked(rel, buf, wish->tid, search->shown, state->key_share_beside,
							search->traversed, search->slot) ||
			search->mode != LockTupleKeyShare;
	}
	search->tmfd->ctid = *wish->tid;
	search->tmfd->traversed = search->traversed;
	ReleaseBuffer(buf);
	return TM_Ok;
}

/*
 * Returns the result for a row for which zrow_examine has not returned TM_Ok.
 * If a transaction in progress is changing or locking the row, waits for it
 * first; if the row was updated, may make the search follow the update. On
 * entry wish->buf is exclusively locked; releases it. Sets *done to false if
 * the search must try again.
 */
static TM_Result
not_locked(LockSearch *search, const ZRowWish *wish, TM_Result result, const ZRowState *state,
		   bool *done)
{
	Buffer		buf = wish->buf;

	Assert(result != TM_Ok && zc_buffer_exclusive(buf));
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);

	/*
	 * to ON CONFLICT, a row that this command has updated is a new row of
	 * this command
	 */
	if (result == TM_SelfModified && state->author.type == ZUR_UPDATE && !search->traversed &&
		(search->snapshot == InvalidSnapshot || zany_is_conflict_slot(search->slot)))
		result = TM_Invisible;
	if (result == TM_BeingModified)
	{
		ReleaseBuffer(buf);
		if (!wait_to_lock(search, wish, state->wait_for, state->own_hold))
			return TM_WouldBlock;
		*done = false;
		return result;
	}
	if (search->traversed && state->author.status == ZXID_OWN &&
		(result == TM_SelfModified || result == TM_Invisible))
		result = beyond_update(search, wish->rel, state, done);
	else if (result == TM_Updated && follow_update(search, wish->rel, state))
		*done = false;
	if (*done && (result == TM_Invisible || result == TM_SelfModified) &&
		show_locked(wish->rel, buf, wish->tid, search->shown, false, search->traversed,
					search->slot))
		ztts_name_author(search->slot);
	ReleaseBuffer(buf);
	return result;
}

/*
 * Notes the version that the caller has found (DML-15). ON CONFLICT, and an
 * apply worker that reports a conflict, whose slot is empty, have found it by
 * its key; an apply worker that is to change a row, by its columns, and has it
 * in the slot. The workers are in no query and ask for nothing but that
 * version.
 */
static void
note_found(LockSearch *search, Relation rel)
{
	ZHeapSlot  *z = (ZHeapSlot *) search->slot;
	bool		worker = zlevel_current()->estate == NULL && search->flags == 0;
	const ZVersion *conflict = zlevel_conflict(rel, &search->tid);

	if (unlikely(conflict != NULL) &&
		(worker ? TTS_EMPTY(search->slot) : zany_is_conflict_slot(search->slot)))
	{
		search->found = conflict->row;
		search->found_length = conflict->len;
		search->by_key = true;
	}
	if (likely(!worker) || search->mode == LockTupleKeyShare || !TTS_IS_ZHEAP(search->slot) ||
		TTS_EMPTY(search->slot) || z->row == NULL ||
		!ItemPointerEquals(&search->slot->tts_tid, &search->tid))
		return;
	search->found = z->row;
	search->found_length = z->len;
}

/*
 * Returns whether the row is not the version that the caller has found any
 * more, or, if that was found by its key, has got another one since (DML-15).
 * columns are needed for the latter. On entry the page is locked; zrow_examine
 * has returned TM_Ok.
 */
static bool
was_replaced(LockSearch *search, Relation rel, Buffer buf, const ZIndexColumns *columns)
{
	Page		page = BufferGetPage(buf);
	ItemId		lp = PageGetItemId(page, ItemPointerGetOffsetNumber(&search->tid));
	ZUpdatedRow row = {rel, &search->tid, search->found, search->found_length};

	Assert(zc_buffer_exclusive(buf));
	if (likely(search->found == NULL))
		return false;
	if (!ItemIdIsNormal(lp))
		return true;			/* being moved, beside a KEY SHARE lock */
	row.new = zpage_row(page, lp);
	row.newlen = zpage_row_length(page, lp);
	if (ztuple_same_bytes(row.old, row.oldlen, row.new, row.newlen))
		return false;
	return !search->by_key || zcolumns_differ(&row, columns->keyed);
}

/* Returns TM_Updated, with *tmfd filled, for a row that was replaced. */
static TM_Result
report_replaced(const LockSearch *search)
{
	search->tmfd->ctid = search->tid;
	search->tmfd->xmax = InvalidTransactionId;
	search->tmfd->cmax = InvalidCommandId;
	search->tmfd->traversed = false;
	return TM_Updated;
}

/*
 * Tries once to lock the row at search->tid. Sets *done if the result is final;
 * otherwise the caller tries again.
 */
static TM_Result
lock_attempt(ZWriter *writer, LockSearch *search, bool *done)
{
	Relation	rel = writer->rel;
	ItemPointerData tid = search->tid;
	Buffer		buf = zknown_read(rel, ItemPointerGetBlockNumber(&tid));
	ZRowWish	wish = {rel, buf, &tid, writer->cid, search->snapshot, search->mode};
	ZRowState	state;

	*done = true;
	for (;;)
	{
		const ZIndexColumns *columns = search->by_key ? zindex_columns(rel) : NULL;
		TM_Result	result;

		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		result = zrow_examine(&wish, &state, search->tmfd);
		if (result == TM_Ok && was_replaced(search, rel, buf, columns))
			result = report_replaced(search);
		if (result != TM_Ok)
			return not_locked(search, &wish, result, &state, done);
		if (unlikely(zctid_asking()))
			zrow_ask(&wish, &state);	/* before our lock answers for the row */
		if (zwriter_started(writer))
			return lock_found(writer, search, &wish, &state, done);
		/* only now is there something to write (DML-1) */
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		zwriter_start(writer);
	}
}

/*
 * zheap_tuple_lock: See zdml.h. Tries until lock_attempt has a final result:
 * each wait, and each step to another place, begins anew at the page (DML-1).
 */
TM_Result
zheap_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
				 CommandId cid,
				 LockTupleMode mode, LockWaitPolicy wait_policy, uint8 flags, TM_FailureData *tmfd)
{
	ZWriter		writer;
	LockSearch	search = {.shown = snapshot,.slot = slot,.mode = mode,.policy = wait_policy,
	.flags = flags,.tmfd = tmfd,.tid = ztid_real(tid)};
	TM_Result	result;
	bool		done;

	zwriter_open(&writer, rel, cid);
	if (TransactionIdIsValid(GetCurrentTransactionIdIfAny()))
		zwriter_start(&writer);

	/*
	 * A caller that does not ask for the last version under READ COMMITTED
	 * has found the row by other means than its snapshot (ON CONFLICT,
	 * replication): the newest version is meant.
	 */
	if (snapshot && IsMVCCSnapshot(snapshot) &&
		((flags & TUPLE_LOCK_FLAG_FIND_LAST_VERSION) || IsolationUsesXactSnapshot()))
		search.snapshot = snapshot;
	else
		search.snapshot = InvalidSnapshot;
	note_found(&search, rel);
	tmfd->traversed = false;
	do
	{
		ItemPointerData here = search.tid;

		CHECK_FOR_INTERRUPTS();
		if (zwriter_started(&writer))
			zwriter_reserve(&writer);
		result = lock_attempt(&writer, &search, &done);

		/*
		 * leave the queue at the old place before joining one at the new
		 * (DML-1)
		 */
		if (search.have_tuple_lock && !ItemPointerEquals(&here, &search.tid))
		{
			zrow_end_wait(rel, &here, mode, true);
			search.have_tuple_lock = false;
		}
	} while (!done);
	zrow_end_wait(rel, &search.tid, mode, search.have_tuple_lock);
	*tid = search.tid;
	tmfd->traversed = search.traversed;
	if (result == TM_Ok)
	{
		if (search.newer && mode != LockTupleKeyShare && zctid_is_compared())
			slot->tts_tid.ip_posid |= ZTID_NEWER;	/* GUARD-4 */
		zlevel_note_lock(rel, tid, writer.xid, cid,
						 (flags & TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS) != 0);
		if (search.found != NULL && !search.by_key)
			zlevel_note_found(rel, tid, cid);
	}
	return result;
}
