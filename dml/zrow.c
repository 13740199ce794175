/*
 * dml/zrow.c - may this row be changed or locked; waiting for whoever is in the way.
 *
 * After every wait the caller starts again from the page (PROTOCOLS H): nothing
 * learnt before a wait is used after it. "Deleted" is concluded only from the
 * row's own state.
 */
#include "postgres.h"

#include "access/xact.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "rollback/zrollback.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Do two row lock strengths exclude each other? */
static bool
modes_conflict(LockTupleMode a, LockTupleMode b)
{
	switch (a)
	{
		case LockTupleKeyShare:
			return b == LockTupleExclusive;
		case LockTupleShare:
			return b >= LockTupleNoKeyExclusive;
		case LockTupleNoKeyExclusive:
			return b >= LockTupleShare;
		case LockTupleExclusive:
			return true;
	}
	return true;
}

/* The strength in which a writer holds the row that it changed. */
static LockTupleMode
writer_mode(const ZRowWriter *writer)
{
	return (writer->xflags & ZUX_KEY_CHANGE) ? LockTupleExclusive : LockTupleNoKeyExclusive;
}

/* Who holds locks on a row. */
typedef struct Lockers
{
	ZXid		conflicting;	/* in progress, not ours, in a mode that excludes ours; 0 = none */
	bool		others;			/* somebody else holds some lock */
	bool		own;			/* we hold some lock */
	bool		own_exclusive;	/* ... of the strongest kind */
	bool		many;			/* others hold more than fit into others_locks */
	bool		aborted;		/* a chain's head has aborted: below it there may be locks of the
								 * same top-level transaction; roll back and ask again */
} Lockers;

/* The locks of others that the last search found. */
static ZLockEntry others_locks[ZLOCK_MAX_ENTRIES];
static int	nothers_locks = 0;

int
zrow_others_locks(const ZLockEntry **locks)
{
	*locks = others_locks;
	return nothers_locks;
}

/* Another transaction at work holds a lock. */
static void
note_others_lock(Lockers *lockers, ZXid xid, OffsetNumber off, int held, LockTupleMode mode)
{
	ZLockEntry	entry = zlock_entry(xid, off, held);
	int			i = 0;

	lockers->others = true;
	if (lockers->conflicting == InvalidZXid && modes_conflict(held, mode))
		lockers->conflicting = xid;
	while (i < nothers_locks && others_locks[i] != entry)
		i++;
	if (i < nothers_locks)
		return;
	if (nothers_locks == ZLOCK_MAX_ENTRIES)
		lockers->many = true;
	else
		others_locks[nothers_locks++] = entry;
}

static void
note_own_lock(Lockers *lockers, int held)
{
	lockers->own = true;
	lockers->own_exclusive |= (held == LockTupleExclusive);
}

/* Follow the chain of a slot whose head's transaction is ours or in progress. hint: there is no stronger lock. */
static void
look_for_locks(const ZPageSlot *slot, ZXidStatus status, ZXid oldest, RelFileNumber relnumber,
			   BlockNumber block, OffsetNumber off, LockTupleMode mode, int hint, Lockers *lockers)
{
	char		buf[ZUR_MAX_LENGTH];
	ZChain		chain;
	ZuRecord	rec;

	zchain_begin(&chain, relnumber, block, slot, ZCHAIN_LOCKED, oldest, buf);
	/* the rest of the chain is of others, or its head's transaction has ended meanwhile */
	while (zchain_next(&chain, &rec) == ZCHAIN_RECORD &&
		   (rec.xid == ZSLOT_XID(slot) || zxid_status_at(rec.xid, oldest) == status))
	{
		if (rec.type != ZUR_LOCK || rec.offset != off)
			continue;
		if (status == ZXID_IN_PROGRESS)
		{
			note_others_lock(lockers, rec.xid, off, rec.lockmode, mode);
			continue;
		}
		note_own_lock(lockers, rec.lockmode);
		if (rec.lockmode == hint)
			return;
	}
}

/* The locks on the row in the page's common lock slot. */
static void
look_in_list(const ZPageSlot *slot, ZXid oldest, RelFileNumber relnumber, BlockNumber block, OffsetNumber off,
			 LockTupleMode mode, Lockers *lockers)
{
	ZLockScan	scan;
	ZLockEntry	entry;
	ZXidStatus	status;

	zlocklist_begin(&scan, slot, oldest, relnumber, block, off);
	while (zlocklist_next(&scan, &entry, &status))
	{
		if (status == ZXID_OWN)
			note_own_lock(lockers, ZLOCK_MODE(entry));
		else
			note_others_lock(lockers, ZLOCK_XID(entry), off, ZLOCK_MODE(entry), mode);
	}
}

/* The lock on the row in a slot with the locks of one transaction. */
static void
look_in_slot(const ZPageSlot *slot, ZXidStatus status, OffsetNumber off, LockTupleMode mode, Lockers *lockers)
{
	int			held = zinline_mode(slot->ptr, off);

	if (held < 0)
		return;
	if (status == ZXID_OWN)
		note_own_lock(lockers, held);
	else if (status == ZXID_IN_PROGRESS)
		note_others_lock(lockers, ZSLOT_XID(slot), off, held, mode);
}

/* slots: with those that hold only locks. */
static void
find_lockers(const ZSlotView *slots, Relation rel, BlockNumber block, OffsetNumber off,
			 LockTupleMode mode, int hint, Lockers *lockers)
{
	memset(lockers, 0, sizeof(*lockers));
	nothers_locks = 0;
	for (int s = 1; s <= slots->n; s++)
	{
		ZXidStatus	status;

		if (slots->s[s].ptr == InvalidUndoPtr)
			continue;
		zvis_check_xid(rel, block, s, ZSLOT_XID(&slots->s[s]));
		if (slots->s[s].xid_flags & ZSLOT_COMMON_LOCKS)
		{
			look_in_list(&slots->s[s], slots->oldest, rel->rd_locator.relNumber, block, off, mode, lockers);
			continue;
		}
		status = zxid_status_at(ZSLOT_XID(&slots->s[s]), slots->oldest);
		if (slots->s[s].xid_flags & ZSLOT_INLINE_LOCKS)
		{
			look_in_slot(&slots->s[s], status, off, mode, lockers);
			continue;
		}
		if (status == ZXID_ABORTED)
		{
			lockers->aborted = true;
			return;
		}
		if (status == ZXID_IN_PROGRESS || status == ZXID_OWN)
			look_for_locks(&slots->s[s], status, slots->oldest, rel->rd_locator.relNumber, block, off, mode, hint,
						   lockers);
	}
}

static void
fill_failure(TM_FailureData *tmfd, ItemPointer tid, const ZRowState *state)
{
	tmfd->ctid = *tid;
	tmfd->xmax = zxid_to_xid(state->writer.xid);
	tmfd->cmax = InvalidCommandId;
	tmfd->traversed = false;
	if (TransactionIdIsValid(state->writer.as_of))
		tmfd->xmax = state->writer.as_of;
	else if (state->writer.status == ZXID_OWN)
		tmfd->cmax = state->writer.cid;
	if (ZH_STATE(state->header) == ZSTATE_MOVED && ItemPointerIsValid(&state->writer.forward))
		tmfd->ctid = state->writer.forward;
	else if (ZH_STATE(state->header) == ZSTATE_DELETED &&
			 (state->writer.xflags & ZUX_OTHER_PART))
		ItemPointerSetMovedPartitions(&tmfd->ctid);
}

/*
 * Returns true if our own transaction's rewrite of the table (CLUSTER, VACUUM
 * FULL) wrote the newest version for a transaction that `snapshot` does not
 * see.  To a command with that snapshot the row was changed concurrently.
 */
static bool
stands_for_unseen(const ZRowState *state, Snapshot snapshot)
{
	return TransactionIdIsValid(state->writer.as_of) && snapshot != InvalidSnapshot &&
		IsMVCCSnapshot(snapshot) && XidInMVCCSnapshot(state->writer.as_of, snapshot);
}

/* The newest version is our own: did this command or an earlier one make it? */
static TM_Result
examine_own(const ZRowState *state, CommandId cid)
{
	if (state->writer.cid < cid)
		return ZH_LIVE(state->header) ? TM_Ok : TM_Invisible;
	return state->writer.type == ZUR_INSERT ? TM_Invisible : TM_SelfModified;
}

/* The newest version is another transaction's unfinished work. */
static TM_Result
examine_in_progress(ZRowState *state, LockTupleMode mode)
{
	if (state->writer.type == ZUR_INSERT)
		return TM_Invisible;
	if (!modes_conflict(writer_mode(&state->writer), mode))
	{
		state->key_share_beside = true;
		return TM_Ok;
	}
	state->wait_for = state->writer.xid;
	return TM_BeingModified;
}

/* Did the writer leave the row's key and place as they were? Then a KEY SHARE lock on the version before is as good. */
static bool
kept_key(const ZRowWriter *writer)
{
	return writer->type == ZUR_UPDATE && !(writer->xflags & ZUX_KEY_CHANGE);
}

/*
 * Will waiting be in vain, since the snapshot of the transaction does not see what has been committed already, and that keeps
 * it from taking the lock?
 */
static bool
waits_in_vain(Page page, const ZSlotView *slots, Relation rel, BlockNumber block, OffsetNumber off, LockTupleMode mode,
			  Snapshot snapshot)
{
	ZRowWriter	by;

	return IsolationUsesXactSnapshot() && snapshot != InvalidSnapshot && IsMVCCSnapshot(snapshot) &&
		zrow_overtaken(page, slots, rel, block, off, snapshot, &by) &&
		!(mode == LockTupleKeyShare && kept_key(&by));
}

/*
 * This command, or a function that it has called, has changed the row; had another changed it before,
 * since the snapshot? Then the version that the caller has in hand was replaced by the other. Unless he has followed that
 * already and has locked what the other left.
 */
static bool
was_overtaken(Page page, const ZSlotView *slots, Relation rel, BlockNumber block, ItemPointer tid, Snapshot snapshot)
{
	ZRowWriter	by;

	return zrow_overtaken(page, slots, rel, block, ItemPointerGetOffsetNumber(tid), snapshot, &by) &&
		!zlevel_is_locked(rel, tid, by.ptr);
}

/*
 * This command, or one that a function of its has run, has changed the row. As on heap the caller is told who replaced the version that he
 * has in hand. If that was another: TM_Updated, and he will meet our own change when he goes after the newest version; a version that is
 * still here is that one. Else *replaced_by: the row may have been changed again since.
 */
static TM_Result
examine_self_modified(Page page, const ZSlotView *slots, Relation rel, BlockNumber block, ItemPointer tid, CommandId cid,
					  Snapshot snapshot, const ZRowState *state, CommandId *replaced_by)
{
	if (snapshot == InvalidSnapshot || !IsMVCCSnapshot(snapshot) || (ZH_LIVE(state->header) && state->writer.cid == cid))
		return TM_SelfModified;
	if (was_overtaken(page, slots, rel, block, tid, snapshot))
		return ZH_LIVE(state->header) ? TM_SelfModified : TM_Updated;
	if (state->writer.cid > cid)
		*replaced_by = zrow_replaced_by(page, slots, rel, block, ItemPointerGetOffsetNumber(tid), cid);
	return TM_SelfModified;
}

/* May a KEY SHARE lock be taken on the version that snapshot sees, though the row has moved on? */
static bool
key_share_of_moved(LockTupleMode mode, Snapshot snapshot, const ZRowState *state)
{
	return mode == LockTupleKeyShare && snapshot != InvalidSnapshot && IsMVCCSnapshot(snapshot) &&
		!(state->writer.xflags & ZUX_KEY_CHANGE) && state->writer.status == ZXID_COMMITTED &&
		!zxid_visible_mvcc(state->writer.xid, snapshot);
}

/* The newest version is settled. */
static TM_Result
examine_settled(Relation rel, ItemPointer tid, LockTupleMode mode, Snapshot snapshot, ZRowState *state)
{
	if (!ZH_LIVE(state->header))
	{
		if (ZH_STATE(state->header) == ZSTATE_MOVED && ItemPointerIsValid(&state->writer.forward) &&
			key_share_of_moved(mode, snapshot, state))
		{
			state->key_share_beside = true;
			return TM_Ok;
		}
		if (ZH_STATE(state->header) == ZSTATE_MOVED && ItemPointerIsValid(&state->writer.forward))
			return TM_Updated;
		if (state->writer.xflags & ZUX_OTHER_PART)
			return TM_Updated;
		return TM_Deleted;
	}
	if (!state->writer.visible && !zlevel_is_locked(rel, tid, state->writer.ptr))
	{
		/* updates in place leave the key as it is: the version that the caller sees will do */
		if (mode != LockTupleKeyShare || !kept_key(&state->writer))
			return TM_Updated;
		state->key_share_beside = true;
	}
	return TM_Ok;
}

TM_Result
zrow_examine(Relation rel, Buffer buf, ItemPointer tid, CommandId cid, Snapshot snapshot,
			 LockTupleMode mode, ZRowState *state, TM_FailureData *tmfd)
{
	static ZSlotView slots;
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	OffsetNumber off = ItemPointerGetOffsetNumber(tid);
	TM_Result	result;
	ItemId		lp;
	CommandId	replaced_by = InvalidCommandId;

	bool		rolled_back = false;

	for (;;)
	{
		memset(state, 0, sizeof(*state));
		state->rolled_back = rolled_back;
		if (unlikely(!PageIsNew(page) && !zpage_item_ok(page, off)))
			zvis_corrupt_page(rel, block, page, off);
		if (PageIsNew(page) || off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
			lp = NULL;
		else
			lp = PageGetItemId(page, off);
		if (lp == NULL || !(ItemIdIsNormal(lp) || ItemIdIsRedirected(lp)))
		{
			fill_failure(tmfd, tid, state);
			return TM_Deleted;
		}
		state->stub = ItemIdIsRedirected(lp);
		if (state->stub)
			state->header = ZH_WITH_SLOT(ZH_WITH_STATE((ZHeader) 0, lp->lp_len), lp->lp_off);
		else
			state->header = zheader_get(zpage_row(page, lp));
		zslots_copy(rel, block, page, &slots);
		zrow_writer(page, &slots, rel, block, off,
					ZH_LIVE(state->header) ? snapshot : InvalidSnapshot, &state->writer);
		if (state->writer.status != ZXID_ABORTED)
			break;
		zrollback_page(buf, rel);
		rolled_back = true;
	}
	switch (state->writer.status)
	{
		case ZXID_OWN:
			if (unlikely(stands_for_unseen(state, snapshot)))
			{
				result = examine_settled(rel, tid, mode, snapshot, state);
				break;
			}
			result = examine_own(state, cid);
			if (result == TM_SelfModified)
				result = examine_self_modified(page, &slots, rel, block, tid, cid, snapshot, state, &replaced_by);
			break;
		case ZXID_IN_PROGRESS:
			result = examine_in_progress(state, mode);
			if (result == TM_BeingModified && waits_in_vain(page, &slots, rel, block, off, mode, snapshot))
				result = TM_Updated;
			break;
		default:
			result = examine_settled(rel, tid, mode, snapshot, state);
			break;
	}
	if ((result == TM_Ok || result == TM_BeingModified || (state->writer.xflags & ZUX_MOVED_IN)) &&
		ZH_LOCK(state->header) != 0)
	{
		Lockers		lockers;

		zslots_copy_raw(rel, block, page, &slots);
		find_lockers(&slots, rel, block, off, mode, ZH_LOCK(state->header) - 1, &lockers);
		if (lockers.aborted)
		{
			zrollback_page(buf, rel);
			result = zrow_examine(rel, buf, tid, cid, snapshot, mode, state, tmfd);
			state->rolled_back = true;	/* also by the loop above, perhaps this very row */
			return result;
		}
		state->clear_locks = !lockers.others && !lockers.own;
		state->others_locks = lockers.others;
		state->many_locks = lockers.many;
		state->own_exclusive = lockers.own_exclusive;
		state->own_lock = lockers.own;
		/* a change of our own may be waited for as a lock is */
		state->own_hold = lockers.own || state->writer.status == ZXID_OWN;
		/* a row just moved here is invisible; who comes from its old place asks for the lock all the same */
		if (result != TM_BeingModified)
			state->wait_for = lockers.conflicting;
		if (result == TM_Ok && lockers.conflicting != InvalidZXid)
			result = TM_BeingModified;
	}
	if (result != TM_Ok)
		fill_failure(tmfd, tid, state);
	if (replaced_by != InvalidCommandId)
		tmfd->cmax = replaced_by;
	return result;
}

/* The heavyweight lock that queues for a row lock. */
static LOCKMODE
queue_mode(LockTupleMode mode)
{
	switch (mode)
	{
		case LockTupleKeyShare:
			return AccessShareLock;
		case LockTupleShare:
			return RowShareLock;
		case LockTupleNoKeyExclusive:
			return ExclusiveLock;
		case LockTupleExclusive:
			return AccessExclusiveLock;
	}
	return AccessExclusiveLock;
}

static void
lock_not_available(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not obtain lock on row in relation \"%s\"",
					RelationGetRelationName(rel))));
}

bool
zrow_wait(Relation rel, ItemPointer tid, ZXid xid, LockTupleMode mode, LockWaitPolicy policy,
		  XLTW_Oper oper, bool own_lock, bool *have_tuple_lock)
{
	TransactionId x = zxid_to_xid(xid);

	if (!*have_tuple_lock && !own_lock)
	{
		if (policy == LockWaitBlock)
			LockTuple(rel, tid, queue_mode(mode));
		else if (!zc_conditional_lock_tuple(rel, tid, queue_mode(mode)))
		{
			if (policy == LockWaitError)
				lock_not_available(rel);
			return false;
		}
		*have_tuple_lock = true;
	}
	if (policy == LockWaitBlock)
		XactLockTableWait(x, rel, tid, oper);
	else if (!zc_conditional_xact_wait(x))
	{
		if (policy == LockWaitError)
			lock_not_available(rel);
		return false;
	}
	return true;
}

void
zrow_end_wait(Relation rel, ItemPointer tid, LockTupleMode mode, bool have_tuple_lock)
{
	if (have_tuple_lock)
		UnlockTuple(rel, tid, queue_mode(mode));
}
