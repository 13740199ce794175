/*
 * dml/zlock.c - row locks.
 *
 * A lock is an entry in a slot that holds only the locker's locks, or a LOCK
 * record in the locker's slot chain; the row's header keeps its writer and
 * gets a hint that locks may exist (docs/locking.md).
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "tuple/zslot.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* The row that was locked last. */
static struct
{
	ZXid		xid;			/* of the locker */
	Oid			reloid;
	CommandId	cid;
	ItemPointerData tid;
}			last_locked;

bool
zrow_was_locked(Relation rel, ItemPointer tid, CommandId cid)
{
	return last_locked.cid == cid && last_locked.reloid == RelationGetRelid(rel) &&
		ItemPointerEquals(&last_locked.tid, tid) &&
		last_locked.xid == zxid_from_full(GetCurrentFullTransactionIdIfAny());
}

/*
 * A row that another was changing when it was examined may have been taken
 * from its place by the picking of a slot: he has committed a move, and the
 * page was pruned, or a move to here was rolled back.
 */
static inline bool
has_gone(Page page, OffsetNumber off)
{
	return !ItemIdIsNormal(PageGetItemId(page, off));
}

/*
 * Lock the row without undo, if the page has a slot for that. Locks in the
 * stronger modes announce a change of the row, for which they would be made
 * records of at once. Nobody else locks rows of a temporary table, and a page
 * of it tells by its pointers that it is one (UNDO-23).
 */
static bool
lock_inline(const ZWriter *writer, Buffer buf, OffsetNumber off, LockTupleMode mode)
{
	Page		page = BufferGetPage(buf);
	ZWalInlineLock lock;

	if (mode > LockTupleShare || writer->temp)
		return false;
	lock.offset = off;
	lock.mode = mode;
	if (!zslot_pick_inline(writer, buf, &lock) || has_gone(page, off))
		return false;
	START_CRIT_SECTION();
	zapply_inline_lock(page, &lock, writer->xid);
	MarkBufferDirty(buf);
	if (writer->logged)
	{
		XLogRecPtr	recptr = zwal_log_inline_lock(buf, &lock);

		PageSetLSN(page, recptr);
	}
	ZUNDO_FAULT("inline-lock-logged");
	END_CRIT_SECTION();
	return true;
}

/*
 * Makes LOCK records of some of the inline locks of slotno, on *prev, which
 * becomes the last record. Returns what is left of the locks. The slot takes
 * the records only with the last of them: if an error comes in between, it
 * still has all its locks.
 */
static UndoPtr
convert_some(const ZWriter *writer, Buffer buf, int slotno, ZXid xid, UndoPtr locks, UndoPtr *prev)
{
	ZChange		change;
	bool		last;
	int			n;

	zwriter_change(writer, &change, ZWAL_LOCK, 1);
	for (n = 0; n < ZU_MAX_RECORDS && locks != 0; n++, locks >>= ZINLINE_BITS)
	{
		ZuRecord   *rec = &change.rec[n];

		zwriter_record(writer, rec, ZUR_LOCK, BufferGetBlockNumber(buf), ZINLINE_OFFSET(locks),
					   n == 0 ? *prev : ZCHANGE_ON_RECORD_BEFORE);
		rec->xid = xid;
		rec->lockmode = ZINLINE_MODE(locks);
	}
	change.nrecords = n;
	change.page[0].slot.slotno = slotno;
	last = (locks == 0);
	if (last)
	{
		change.converted = true;
		change.page[0].buf = buf;
		change.page[0].page = BufferGetPage(buf);
	}
	else
	{
		change.opcode = ZWAL_UNDO_ONLY;
		change.logged = false;
	}
	zchange_do(&change, last ? "locks-converted" : NULL);
	if (!last)
		ZUNDO_FAULT("converting-locks");
	*prev = change.op.ptr[n - 1];
	return locks;
}

void
zlock_convert(const ZWriter *writer, Buffer buf, int slotno)
{
	ZPageSlot	slot = *zpage_slot(BufferGetPage(buf), slotno);
	UndoPtr		prev = InvalidUndoPtr;

	while (slot.ptr != 0)
		slot.ptr = convert_some(writer, buf, slotno, ZSLOT_XID(&slot), slot.ptr, &prev);
	zrollback_note_page(writer->rel, BufferGetBlockNumber(buf));
	ZUNDO_FAULT("locks-done");
}

bool
zrow_lock_in_place(const ZWriter *writer, Buffer buf, OffsetNumber off, LockTupleMode mode)
{
	Page		page = BufferGetPage(buf);
	ZSlotPick	pick;
	ZChange		change;
	ZLockList	list;

	if (lock_inline(writer, buf, off, mode))
		return true;
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
	}
	zslot_use(writer, &change, 0, buf, &pick);
	zchange_do(&change, NULL);
	zslot_note(&change, 0, &pick);
	return true;
}

/*
 * Does the page's common lock slot name us with at least this lock on the row?
 */
static bool
listed_for_us(const ZPageSlot *slot, ZXid oldest, const ZWriter *writer, BlockNumber block,
			  OffsetNumber off, LockTupleMode mode)
{
	ZLockScan	scan;
	ZLockEntry	entry;
	ZXidStatus	status;

	zlocklist_begin(&scan, slot, oldest, writer->rel->rd_locator.relNumber, block, off);
	while (zlocklist_next(&scan, &entry, &status))
		if (status == ZXID_OWN && ZLOCK_MODE(entry) >= mode)
			return true;
	return false;
}

/*
 * Do we hold the row at least in this mode, by a change or by a lock? Page
 * locked.
 */
static bool
held_by_us(const ZWriter *writer, Buffer buf, OffsetNumber off, const ZRowState *state,
		   LockTupleMode mode)
{
	ZSlotView	slots;
	char		bytes[ZUR_MAX_LENGTH];
	BlockNumber block = BufferGetBlockNumber(buf);

	if (state->writer.status == ZXID_OWN &&
		((state->writer.xflags & ZUX_KEY_CHANGE) || mode <= LockTupleNoKeyExclusive ||
		 (state->writer.type == ZUR_INSERT && !(state->writer.xflags & ZUX_MOVED_IN))))
		return true;
	if (ZH_LOCK(state->header) < mode + 1)
		return false;
	zslots_copy_raw(writer->rel, block, BufferGetPage(buf), &slots);
	for (int s = 1; s <= slots.n; s++)
	{
		const ZPageSlot *slot = &slots.s[s];
		ZChain		chain;
		ZuRecord	rec;

		if (slot->ptr == InvalidUndoPtr)
			continue;
		zvis_check_xid(writer->rel, block, s, ZSLOT_XID(slot));
		if (slot->xid_flags & ZSLOT_COMMON_LOCKS)
		{
			if (listed_for_us(slot, slots.oldest, writer, block, off, mode))
				return true;
			continue;
		}
		if (zxid_status_at(ZSLOT_XID(slot), slots.oldest) != ZXID_OWN)
			continue;
		if (slot->xid_flags & ZSLOT_INLINE_LOCKS)
		{
			if (zinline_mode(slot->ptr, off) >= (int) mode)
				return true;
			continue;
		}
		zchain_begin(&chain, writer->rel->rd_locator.relNumber, block, slot, ZCHAIN_LOCKED,
					 slots.oldest, bytes);
		while (zchain_next(&chain, &rec) == ZCHAIN_RECORD &&
			   zxid_status_at(rec.xid, slots.oldest) == ZXID_OWN)
			if (rec.type == ZUR_LOCK && rec.offset == off && rec.lockmode >= mode)
				return true;
	}
	return false;
}

/*
 * Put the version that was locked into slot: the newest one, or beside
 * another's unfinished update the one that the caller sees. False: the row is
 * not here any more. The page is not locked, and a KEY SHARE lock lets others
 * move the row.
 */
static bool
show_locked(Relation rel, Buffer buf, ItemPointer tid, Snapshot snapshot, bool beside,
			bool traversed, TupleTableSlot *slot)
{
	ZVersion	version;
	bool		older = beside && !traversed && snapshot && IsMVCCSnapshot(snapshot);
	Snapshot	snap = older ? snapshot : SnapshotSelf;

	ZUNDO_FAULT("row-locked");
	zvis_fetch(rel, buf, ItemPointerGetOffsetNumber(tid), snap, &version, NULL);
	if (version.found)
		zversion_show(rel, &version, tid, slot);
	else
		ExecClearTuple(slot);
	return version.found;
}

/*
 * Remember the version that was locked instead of the one that snapshot shows;
 * its writer must be named as an update under that snapshot will name it. Page
 * locked.
 */
static void
note_locked(Relation rel, Buffer buf, ItemPointer tid, Snapshot snapshot)
{
	ZSlotView	slots;
	ZRow		row = zrow_on(rel, buf, ItemPointerGetOffsetNumber(tid), &slots);
	ZRowWriter	writer;

	zslots_copy(row.rel, row.block, row.page, &slots);
	zrow_writer(&row, snapshot, &writer);
	zlevel_note_locked(rel, tid, writer.ptr);
}

/* Where the search for the row to lock stands. */
typedef struct LockSearch
{
	ItemPointerData tid;
	Snapshot	snapshot;		/* Invalid once a newer version is being
								 * followed */
	bool		traversed;
	bool		have_tuple_lock;
} LockSearch;

/*
 * The version the caller saw has been replaced: go on to the newest one, at
 * another TID if it moved. False: give TM_Updated to the caller.
 */
static bool
follow_update(LockSearch *search, uint8 flags, const TM_FailureData *tmfd)
{
	if (!(flags & TUPLE_LOCK_FLAG_FIND_LAST_VERSION))
		return false;
	if (ItemPointerIndicatesMovedPartitions(&tmfd->ctid))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("tuple to be locked was already moved to another partition due to "
						"concurrent update")));
	search->tid = tmfd->ctid;
	search->snapshot = InvalidSnapshot;
	search->traversed = true;
	return true;
}

/*
 * A KEY SHARE lock is wanted on a version that another has moved, or is
 * moving: take it where the row is moved to, or a deletion there would not
 * meet it. No buffer lock is held. Returns TM_Ok; TM_BeingModified with
 * *wait_for; TM_Deleted or TM_Updated if the row was deleted, or its key
 * changed, further on.
 */
static TM_Result
lock_moved(ZWriter *writer, ItemPointerData tid, LockTupleMode mode, ZXid *wait_for)
{
	Relation	rel = writer->rel;
	TM_FailureData tmfd;

	*wait_for = InvalidZXid;
	for (;;)
	{
		Buffer		buf = ReadBuffer(rel, ItemPointerGetBlockNumber(&tid));
		OffsetNumber off = ItemPointerGetOffsetNumber(&tid);
		ZRowWish	wish = {rel, buf, &tid, writer->cid, InvalidSnapshot, mode};
		ZRowState	state;
		TM_Result	result;
		bool		locked = true;

		zwriter_reserve(writer);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		result = zrow_examine(&wish, &state, &tmfd);
		/* invisible: just moved here, and not changed since */
		if (result == TM_Invisible && state.wait_for != InvalidZXid)
			result = TM_BeingModified;
		if ((result == TM_Ok || result == TM_Invisible) && !state.stub &&
			!held_by_us(writer, buf, off, &state, mode))
			locked = zrow_lock_in_place(writer, buf, off, mode);
		UnlockReleaseBuffer(buf);
		if (!locked)
		{
			zu_overflow_reserve();
			continue;
		}
		zrollback_note_page(rel, ItemPointerGetBlockNumber(&tid));
		*wait_for = state.wait_for;
		if (result == TM_BeingModified || result == TM_Deleted ||
			(result == TM_Updated && (state.writer.xflags & (ZUX_KEY_CHANGE | ZUX_OTHER_PART))))
			return result;
		/* what we have changed ourselves we hold */
		if (result == TM_SelfModified)
			return TM_Ok;
		if (ZH_STATE(state.header) != ZSTATE_MOVED || !ItemPointerIsValid(&state.writer.forward))
			return TM_Ok;
		tid = state.writer.forward;
	}
}

/*
 * A KEY SHARE lock on an old version came too late: a newer one was deleted,
 * or got another key. Answer as for the version itself. buf is not locked.
 */
static TM_Result
beyond_reach(LockSearch *search, Buffer buf, TM_Result result, uint8 flags, const ZRowState *state,
			 TM_FailureData *tmfd, bool *done)
{
	tmfd->ctid = state->writer.forward;
	tmfd->xmax = zxid_to_xid(state->writer.xid);
	tmfd->cmax = InvalidCommandId;
	tmfd->traversed = false;
	if (result == TM_Updated && follow_update(search, flags, tmfd))
		*done = false;
	ReleaseBuffer(buf);
	return result;
}

/*
 * Following another's update we have met our own change, made since the
 * command began: an error for most callers if the newest version is of a later
 * command, none if the row is gone in the end. So go on if it has moved.
 * *done: result is the answer.
 */
static TM_Result
beyond_update(LockSearch *search, uint8 flags, const ZRowState *state, const TM_FailureData *tmfd,
			  bool *done)
{
	if (ZH_LIVE(state->header))
		return TM_SelfModified;
	if ((ZH_STATE(state->header) == ZSTATE_MOVED || (state->writer.xflags & ZUX_OTHER_PART)) &&
		follow_update(search, flags, tmfd))
		*done = false;
	return TM_Deleted;
}

/* Try once at search->tid. *done: result is the answer, else search again. */
static TM_Result
lock_attempt(ZWriter *writer, LockSearch *search, Snapshot snapshot, TupleTableSlot *slot,
			 LockTupleMode mode, LockWaitPolicy policy, uint8 flags, TM_FailureData *tmfd,
			 bool *done)
{
	Relation	rel = writer->rel;
	Buffer		buf = ReadBuffer(rel, ItemPointerGetBlockNumber(&search->tid));
	OffsetNumber off = ItemPointerGetOffsetNumber(&search->tid);
	ItemPointerData tid = search->tid;
	ZRowWish	wish = {rel, buf, &tid, writer->cid, search->snapshot, mode};
	ZRowState	state;
	TM_Result	result;

	*done = true;
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	result = zrow_examine(&wish, &state, tmfd);
	if (result == TM_Ok && !zwriter_started(writer))
	{
		/* only now is there something to write (DML-13) */
		UnlockReleaseBuffer(buf);
		zwriter_start(writer);
		*done = false;
		return result;
	}
	if (result == TM_Ok)
	{
		/* a row that has moved is locked at its new place only */
		if (ZH_LIVE(state.header) || state.writer.status == ZXID_IN_PROGRESS)
		{
			if (held_by_us(writer, buf, off, &state, mode))
				 /* nothing to do */ ;
			else if (!zrow_lock_in_place(writer, buf, off, mode))
			{
				UnlockReleaseBuffer(buf);
				zu_overflow_reserve();
				*done = false;
				return result;
			}
			else
				zrollback_note_page(rel, ItemPointerGetBlockNumber(&tid));
		}
		if (state.key_share_beside && state.writer.type == ZUR_MOVE)
		{
			LockBuffer(buf, BUFFER_LOCK_UNLOCK);
			result = lock_moved(writer, state.writer.forward, mode, &state.wait_for);

			/*
			 * the key went while the move was unfinished, or before: that
			 * decides who is told
			 */
			if ((result == TM_Deleted || result == TM_Updated) &&
				state.writer.status != ZXID_IN_PROGRESS)
				return beyond_reach(search, buf, result, flags, &state, tmfd, done);
			if (result != TM_Ok)
			{
				ReleaseBuffer(buf);
				if (state.wait_for != InvalidZXid &&
					!zrow_wait(rel, &tid, state.wait_for, mode, policy, XLTW_Lock, true,
							   &search->have_tuple_lock))
					return TM_WouldBlock;
				*done = false;
				return TM_BeingModified;
			}
			LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		}

		/*
		 * FOR UPDATE alone has the other flag: the plan goes on from there,
		 * perhaps to an older version
		 */
		if (search->snapshot == InvalidSnapshot &&
			!(flags & TUPLE_LOCK_FLAG_LOCK_UPDATE_IN_PROGRESS) && snapshot &&
			IsMVCCSnapshot(snapshot))
			note_locked(rel, buf, &tid, snapshot);
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);

		/*
		 * gone on meanwhile: the lock has gone with it, or has been taken
		 * there too, and there it is found
		 */
		*done = show_locked(rel, buf, &tid, snapshot, state.key_share_beside, search->traversed,
							slot) ||
			mode != LockTupleKeyShare;
		tmfd->ctid = tid;
		tmfd->traversed = search->traversed;
		ReleaseBuffer(buf);
		return TM_Ok;
	}
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);

	/*
	 * to ON CONFLICT a row that this command has updated is a new row of this
	 * command
	 */
	if (result == TM_SelfModified && state.writer.type == ZUR_UPDATE && !search->traversed &&
		(search->snapshot == InvalidSnapshot || zany_is_conflict_slot(slot)))
		result = TM_Invisible;
	if (result == TM_BeingModified)
	{
		ReleaseBuffer(buf);
		if (!zrow_wait(rel, &tid, state.wait_for, mode, policy, XLTW_Lock, state.own_hold,
					   &search->have_tuple_lock))
			return TM_WouldBlock;
		*done = false;
		return result;
	}
	if (search->traversed && state.writer.status == ZXID_OWN &&
		(result == TM_SelfModified || result == TM_Invisible))
		result = beyond_update(search, flags, &state, tmfd, done);
	else if (result == TM_Updated && follow_update(search, flags, tmfd))
		*done = false;
	if (*done && (result == TM_Invisible || result == TM_SelfModified))
		(void) show_locked(rel, buf, &tid, snapshot, false, search->traversed, slot);
	ReleaseBuffer(buf);
	return result;
}

TM_Result
zheap_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
				 CommandId cid,
				 LockTupleMode mode, LockWaitPolicy wait_policy, uint8 flags, TM_FailureData *tmfd)
{
	ZWriter		writer;
	LockSearch	search = {0};
	TM_Result	result;
	bool		done;

	zwriter_open(&writer, rel, cid);
	if (TransactionIdIsValid(GetCurrentTransactionIdIfAny()))
		zwriter_start(&writer);
	search.tid = *tid;

	/*
	 * Who does not ask for the last version under READ COMMITTED has found
	 * the row by other means than its snapshot (ON CONFLICT, replication):
	 * the newest version is meant.
	 */
	if (snapshot && IsMVCCSnapshot(snapshot) &&
		((flags & TUPLE_LOCK_FLAG_FIND_LAST_VERSION) || IsolationUsesXactSnapshot()))
		search.snapshot = snapshot;
	else
		search.snapshot = InvalidSnapshot;
	tmfd->traversed = false;
	do
	{
		ItemPointerData here = search.tid;

		CHECK_FOR_INTERRUPTS();
		if (zwriter_started(&writer))
			zwriter_reserve(&writer);
		result = lock_attempt(&writer, &search, snapshot, slot, mode, wait_policy, flags, tmfd,
							  &done);
		/* who goes on to another place leaves the queue at this one */
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
		last_locked.xid = writer.xid;
		last_locked.reloid = RelationGetRelid(rel);
		last_locked.cid = cid;
		last_locked.tid = *tid;
	}
	return result;
}
