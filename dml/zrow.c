/*
 * dml/zrow.c - whether a row may be changed or locked, and waiting for the
 * transaction that prevents it.
 *
 * Called by dml/ with the row's page exclusively locked, but for the wait.
 * After every wait the caller starts again at the page (DML-1): nothing learnt
 * before a wait is used after it. "Deleted" is concluded only from the row's
 * own state, never because no version of it was found.
 */
#include "postgres.h"

#include "access/xact.h"
#include "dml/zdml_internal.h"
#include "guard/zctid.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "mvcc/ztrail.h"
#include "rollback/zrollback.h"
#include "storage/lmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Returns whether two row lock strengths exclude each other. */
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

/* Returns the strength in which an author holds the row that it changed. */
static LockTupleMode
author_mode(const ZAuthor *author)
{
	return (author->xflags & ZUX_KEY_CHANGE) ? LockTupleExclusive : LockTupleNoKeyExclusive;
}

/*
 * A search for the locks on a row: for all of them, or for a lock of our own
 * transaction that is strong enough.
 */
typedef struct LockerSearch
{
	const ZRow *row;			/* its slots include those that hold only
								 * locks */
	ZHeader		header;			/* the row's */
	LockTupleMode mode;			/* the lock that is wanted */
	int			enough;			/* a lock of ours in this mode or a stronger
								 * one suffices: the search for our locks ends
								 * there */
	int			known;			/* zheld_mode of the row */
	ZRowState  *state;			/* where the locks of others are entered;
								 * NULL: only our own locks are looked for */
	/* what was found */
	ZXid		conflicting;	/* another transaction in progress whose lock
								 * excludes ours; 0 = none */
	int			held;			/* strongest lock of our transaction; -1 =
								 * none */
	int			own;			/* strongest lock read in our own slots; -1 =
								 * none */
	bool		own_by_tag;		/* it was found by the row's lock tag */
} LockerSearch;

/*
 * Begins a search; its mode and enough must still be set. known is the row's
 * zheld_mode.
 */
static inline void
begin_search(LockerSearch *search, const ZRow *row, ZHeader header, int known, ZRowState *state)
{
	search->row = row;
	search->header = header;
	search->known = known;
	search->state = state;
	search->conflicting = InvalidZXid;
	search->held = -1;
	search->own = -1;
	search->own_by_tag = false;
}

/*
 * Returns whether nothing more need be read: only our own locks matter, and one
 * that is strong enough has been found.
 */
static inline bool
is_done(const LockerSearch *search)
{
	return search->state == NULL && search->held >= search->enough;
}

/* Enters the lock of another transaction, which is in progress. */
static void
note_others_lock(LockerSearch *search, ZXid xid, int held)
{
	ZRowState  *state = search->state;
	ZLockEntry	entry = zlock_entry(xid, search->row->off, held);
	int			i = 0;

	Assert(state != NULL && held >= LockTupleKeyShare && held <= LockTupleExclusive);
	state->others_locks = true;
	if (search->conflicting == InvalidZXid && modes_conflict(held, search->mode))
		search->conflicting = xid;
	state->others = zdml_space.others;
	while (i < state->nothers && state->others[i] != entry)
		i++;
	if (i < state->nothers)
		return;
	if (state->nothers == ZLOCK_MAX_ENTRIES)
		state->many_locks = true;
	else
		state->others[state->nothers++] = entry;
}

/* Enters a lock of our own transaction. */
static void
note_own_lock(LockerSearch *search, int held)
{
	search->held = Max(search->held, held);
}

/* Enters the lock of our own slot. */
static void
note_slot_lock(LockerSearch *search, int held, bool by_tag)
{
	note_own_lock(search, held);
	if (held > search->own)
	{
		search->own = held;
		search->own_by_tag = by_tag;
	}
}

/*
 * Enters the locks in the chain of slot s, whose head's transaction is ours or
 * in progress.
 */
static void
look_in_chain(LockerSearch *search, int s, ZXidStatus status)
{
	const ZRow *row = search->row;
	const ZPageSlot *slot = &row->slots->s[s];
	ZXid		oldest = row->slots->oldest;
	char		buf[ZUR_MAX_LENGTH];
	ZChain		chain;
	ZTrailReader reader;
	ZuRecord	rec;
	ZHeader		header = search->header;

	ztrail_start(&reader);
	zchain_begin_locked(&chain, row->rel->rd_locator.relNumber, row->block, slot, oldest,
						buf);

	ZUNDO_FAULT("lockers-chain");
	while (ztrail_next(&chain, &reader, row->off, false, &rec) == ZCHAIN_RECORD)
	{
		ZXidStatus	now = rec.xid == ZSLOT_XID(slot) ? status : zxid_status_at(rec.xid, oldest);
		int			mode;

		/*
		 * Pass over a subtransaction that was rolled back meanwhile: the
		 * locks of its parent, further down, last; a hint of UPDATE is that
		 * of its own lock, if it has one (TAG-2). Otherwise stop at another
		 * status than the head's: the rest of the chain is older, or the
		 * head's transaction has ended.
		 */
		if (now == ZXID_ABORTED && now != status)
		{
			if (rec.type == ZUR_LOCK && !rec.open && rec.offset == row->off &&
				rec.lockmode == LockTupleExclusive)
				header = ZH_WITH_LOCK(header, LockTupleNoKeyExclusive + 1);
			continue;
		}
		if (now != status)
			break;
		if (rec.type != ZUR_LOCK)
			continue;
		if (rec.open && status == ZXID_OWN)
			zheld_note_record(row->rel, row->block, s, chain.here, &rec);
		mode = zrecord_lock_mode(&rec, row->off, header, s);
		if (mode < 0)
			continue;
		if (status == ZXID_IN_PROGRESS)
		{
			note_others_lock(search, rec.xid, mode);
			continue;
		}
		note_slot_lock(search, mode, rec.open);
		if (mode >= search->enough)
			return;
	}
}

/* Enters the locks on the row in the page's common lock slot. */
static void
look_in_list(LockerSearch *search, const ZPageSlot *slot)
{
	const ZRow *row = search->row;
	ZLockScan	scan;
	ZLockEntry	entry;
	ZXidStatus	status;

	zlockers_begin(&scan, slot, row->slots->oldest, row->rel->rd_locator.relNumber, row->block,
				   row->off);
	while (!is_done(search) && zlockers_next(&scan, &entry, &status))
	{
		if (status == ZXID_OWN)
			note_own_lock(search, ZLOCK_MODE(entry));
		else if (search->state != NULL)
			note_others_lock(search, ZLOCK_XID(entry), ZLOCK_MODE(entry));
	}
}

/* Enters the lock on the row in a slot with inline locks of one transaction. */
static void
look_in_slot(LockerSearch *search, const ZPageSlot *slot, ZXidStatus status)
{
	int			held = zinline_mode(slot->ptr, search->row->off);

	if (held < 0)
		return;
	if (status == ZXID_OWN)
		note_slot_lock(search, held, false);
	else if (status == ZXID_IN_PROGRESS)
		note_others_lock(search, ZSLOT_XID(slot), held);
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether our open LOCK record in the chain of slot s is the one that
 * is remembered, if one is.
 */
static bool
open_is_there(const ZRow *row, int s)
{
	int			held = zheld_open_mode(row->rel, row->block, s);
	char		buf[ZUR_MAX_LENGTH];
	ZHeaders	headers;
	ZChain		chain;
	ZuRecord	rec;

	if (held < 0)
		return true;
	zheaders_start(&headers);
	zchain_begin_locked(&chain, row->rel->rd_locator.relNumber, row->block, &row->slots->s[s],
						row->slots->oldest, buf);
	while (zheaders_next(&chain, &headers, &rec) == ZCHAIN_RECORD &&
		   zxid_status_at(rec.xid, row->slots->oldest) == ZXID_OWN)
		if (rec.type == ZUR_LOCK && rec.open)
			return rec.lockmode == held;
	return false;
}
#endif

/*
 * Enters the locks on the row that are looked for. Returns false if locks of
 * other transactions are, and a chain's head has aborted: below it there may be
 * locks of the same top-level transaction, so the page must be rolled back
 * first. Of our own slot, nothing but the strongest lock matters: if that is
 * known (LOCK-11), the slot is not searched.
 */
static bool
find_lockers(LockerSearch *search)
{
	const ZRow *row = search->row;
	const ZSlotView *slots = row->slots;

	for (int s = 1; s <= slots->n && !is_done(search); s++)
	{
		const ZPageSlot *slot = &slots->s[s];
		ZXidStatus	status;

		if (slot->ptr == InvalidUndoPtr)
			continue;
		zvis_check_xid(row->rel, row->block, s, ZSLOT_XID(slot));
		if (slot->xid_flags & ZSLOT_COMMON_LOCKS)
		{
			look_in_list(search, slot);
			continue;
		}
		status = zxid_status_at(ZSLOT_XID(slot), slots->oldest);
		Assert(status != ZXID_OWN || open_is_there(row, s));	/* LOCK-11 */
		if (status != ZXID_OWN && search->state == NULL)
			continue;
		if (status == ZXID_OWN && search->known >= 0)
			note_own_lock(search, search->known);
		else if (slot->xid_flags & ZSLOT_INLINE_LOCKS)
			look_in_slot(search, slot, status);
		else if (status == ZXID_ABORTED)
			return false;
		else if (status == ZXID_IN_PROGRESS || status == ZXID_OWN)
			look_in_chain(search, s, status);
	}
	if (search->own >= 0 && search->state != NULL)
		zheld_note(row->rel, row->block, row->off, search->header, search->own,
				   search->own_by_tag);
	return true;
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether no other transaction holds a lock on the row, or some changes
 * of the page have to be rolled back before that is known.
 */
static bool
is_held_by_us_alone(const LockerSearch *search)
{
	ZSlotView	slots;
	ZRow		row = *search->row;
	ZRowState	state = {.header = search->header};
	LockerSearch other;

	begin_search(&other, &row, search->header, search->known, &state);
	other.mode = search->mode;
	other.enough = search->enough;
	zslots_copy_raw(row.rel, row.block, row.page, &slots);
	row.slots = &slots;
	return !find_lockers(&other) || !state.others_locks;
}
#endif

/*
 * Returns whether our transaction is known to hold the row FOR UPDATE
 * (LOCK-11), so that no other transaction holds any lock on it; enters its lock
 * then.
 */
static bool
is_locked_for_update(LockerSearch *search)
{
	if (search->known != LockTupleExclusive)
		return false;
	Assert(is_held_by_us_alone(search));	/* LOCK-11 */
	note_own_lock(search, LockTupleExclusive);
	return true;
}

/*
 * Returns the mode in which our transaction is known to hold the row; -1: it
 * must be searched for. A search also finds the page's open LOCK record, which
 * can hold the row FOR UPDATE (TAG-2).
 */
static int
known_mode(const ZRow *row, ZHeader header, LockTupleMode mode)
{
	int			known = zheld_mode(row->rel, row->block, row->off, header);

	return mode == LockTupleExclusive && known < (int) mode &&
		zheld_record(row->rel, row->block) == NULL ? -1 : known;
}

/*
 * Finds the author of the newest version of a row on a locked page, also where
 * zrow_examine names none: if the snapshot accepts a record further up in the
 * chain (VIS-3), or is known to see the version (is_own_visible).
 */
static void
name_author(Relation rel, Buffer buf, OffsetNumber off, ZAuthor *author)
{
	ZSlotView	slots;
	ZRow		row = zvis_row_on(rel, buf, off, &slots);

	zslots_copy(row.rel, row.block, row.page, &slots);
	zvis_author(&row, InvalidSnapshot, author);
}

/*
 * Returns whether nobody else can hold the mode of a row whose newest version
 * has this author: it is our transaction, which has inserted the row, or
 * changed it in a way that excludes the mode.
 */
static bool
is_held_by_author(const ZAuthor *author, LockTupleMode mode)
{
	return author->status == ZXID_OWN &&
		((author->xflags & ZUX_KEY_CHANGE) || mode <= LockTupleNoKeyExclusive ||
		 (author->type == ZUR_INSERT && !(author->xflags & ZUX_MOVED_IN)));
}

/*
 * Returns whether our transaction has written the row's newest version with a
 * change that excludes KEY SHARE locks.
 */
static bool
is_key_changed_by_us(const ZRowWish *wish, ZHeader header)
{
	ZAuthor		author;

	if (likely((header & ZH_KEY_CHANGE) == 0) || !ZH_LIVE(header) ||
		!zslots_may_be_ours(BufferGetPage(wish->buf), header))
		return false;
	name_author(wish->rel, wish->buf, ItemPointerGetOffsetNumber(wish->tid), &author);
	return author.status == ZXID_OWN;
}

/*
 * zrow_is_held: See zdml_internal.h. Most rows have no hint of a lock, and of
 * most that have one our lock is remembered.
 */
bool
zrow_is_held(Relation rel, Buffer buf, OffsetNumber off, const ZRowState *state,
			 LockTupleMode mode)
{
	ZSlotView	slots;
	ZRow		row;
	LockerSearch search;
	int			known;

	Assert(zc_buffer_locked(buf));
	if (is_held_by_author(&state->author, mode))
		return true;
	if (state->author.status == ZXID_COMMITTED && state->author.ptr == InvalidUndoPtr &&
		zslots_may_be_ours(BufferGetPage(buf), state->header))
	{
		ZAuthor		author;

		name_author(rel, buf, off, &author);
		if (is_held_by_author(&author, mode))
			return true;
	}
	if (ZH_LOCK(state->header) < mode + 1)
		return false;
	known = zheld_mode(rel, BufferGetBlockNumber(buf), off, state->header);
	if (known >= (int) mode)
		return true;
	row = zvis_row_on(rel, buf, off, &slots);
	begin_search(&search, &row, state->header, known, NULL);
	search.mode = mode;
	search.enough = (int) mode;
	zslots_copy_raw(row.rel, row.block, row.page, &slots);
	(void) find_lockers(&search);
	return is_done(&search);
}

/*
 * Fills *tmfd from the row's newest version: where a row is now whose move is
 * not in progress, and which transaction wrote the version, or counts as its
 * author after a rewrite.
 */
static void
fill_failure(TM_FailureData *tmfd, ItemPointer tid, const ZRowState *state)
{
	tmfd->ctid = *tid;
	tmfd->xmax = zxid_to_xid(state->author.xid);
	tmfd->cmax = InvalidCommandId;
	tmfd->traversed = false;
	if (TransactionIdIsValid(state->author.as_of))
		tmfd->xmax = state->author.as_of;
	else if (state->author.status == ZXID_OWN)
		tmfd->cmax = state->author.cid;
	if (ZH_STATE(state->header) == ZSTATE_MOVED && ItemPointerIsValid(&state->author.forward) &&
		state->author.status != ZXID_IN_PROGRESS)
		tmfd->ctid = state->author.forward;
	else if (ZH_STATE(state->header) == ZSTATE_DELETED &&
			 (state->author.xflags & ZUX_OTHER_PART))
		ItemPointerSetMovedPartitions(&tmfd->ctid);
}

/*
 * Returns true if our own transaction's rewrite of the table (CLUSTER, VACUUM
 * FULL) wrote the newest version for a transaction that `snapshot` does not
 * see. To a command with that snapshot the row was changed concurrently.
 */
static bool
stands_for_unseen(const ZRowState *state, Snapshot snapshot)
{
	return TransactionIdIsValid(state->author.as_of) && zsnapshot_is_mvcc(snapshot) &&
		XidInMVCCSnapshot(state->author.as_of, snapshot);
}

/*
 * Returns the answer for a newest version of our own, which depends on whether
 * this command or an earlier one wrote it.
 */
static TM_Result
examine_own(const ZRowState *state, CommandId cid)
{
	Assert(state->author.status == ZXID_OWN);
	if (state->author.cid < cid)
		return ZH_LIVE(state->header) ? TM_Ok : TM_Invisible;
	return state->author.type == ZUR_INSERT ? TM_Invisible : TM_SelfModified;
}

/*
 * Returns the answer for a newest version of another transaction in progress.
 */
static TM_Result
examine_in_progress(ZRowState *state, LockTupleMode mode)
{
	Assert(state->author.status == ZXID_IN_PROGRESS);
	if (state->author.type == ZUR_INSERT)
		return TM_Invisible;
	if (!modes_conflict(author_mode(&state->author), mode))
	{
		state->key_share_beside = true;
		return TM_Ok;
	}
	state->wait_for = state->author.xid;
	return TM_BeingModified;
}

/*
 * Returns whether a committed change that the snapshot does not see excludes a
 * KEY SHARE lock on the version that it sees. While our transaction holds a
 * lock on the row, no such change can come, and if it keeps one snapshot the
 * question was answered when it got the lock. (The check of a foreign key to a
 * partitioned table has another one, and locks a row of a partition.)
 */
static bool
excludes_key_share(const ZRow *row, const ZRowState *state, Snapshot snapshot)
{
	if (IsolationUsesXactSnapshot() && !row->rel->rd_rel->relispartition &&
		zheld_mode(row->rel, row->block, row->off, state->header) >= 0)
		return false;
	return zvis_key_overtaken(row, snapshot);
}

/*
 * Returns whether the author, of the newest committed version, and all others
 * whose changes the snapshot does not see left the row's key and place as they
 * were, so that a KEY SHARE lock on the version before is as good as one on the
 * newest.
 */
static bool
kept_key(const ZAuthor *author, const ZRow *row, const ZRowState *state, Snapshot snapshot)
{
	return author->type == ZUR_UPDATE && !(author->xflags & ZUX_KEY_CHANGE) &&
		!excludes_key_share(row, state, snapshot);
}

/*
 * Returns whether waiting for the transaction in progress would be useless,
 * because the statement must fail however that transaction ends: below its
 * version there is a committed one that our transaction's snapshot does not
 * see.
 */
static bool
waits_in_vain(const ZRow *row, const ZRowState *state, LockTupleMode mode, Snapshot snapshot)
{
	ZAuthor		by;

	return IsolationUsesXactSnapshot() && zsnapshot_is_mvcc(snapshot) &&
		zvis_overtaken(row, snapshot, &by) &&
		!(mode == LockTupleKeyShare && kept_key(&by, row, state, snapshot));
}

/*
 * Returns whether another transaction has replaced the version that the
 * snapshot sees, before our command or a function called by it changed the row.
 * Returns false if the caller has already followed that update and has locked
 * the version that it made.
 */
static bool
was_overtaken(const ZRow *row, ItemPointer tid, Snapshot snapshot)
{
	ZAuthor		by;

	return zvis_overtaken(row, snapshot, &by) && !zlevel_is_locked(row->rel, tid, by.ptr);
}

/*
 * Returns the answer for a row whose newest version was written by this
 * command or by a function that it has called (DML-10). As on heap, the answer
 * says what replaced the version that the snapshot sees:
 *
 * - Another transaction did. Returns TM_Updated, so that the caller follows
 *   that update and then finds our own version. If our version is at this same
 *   place, returns TM_SelfModified at once.
 *
 * - Our transaction did. Returns TM_SelfModified, and sets *replaced_by to the
 *   command that did so, which may be an earlier one than that of the newest
 *   version.
 */
static TM_Result
examine_self_modified(const ZRow *row, const ZRowWish *wish, const ZRowState *state,
					  CommandId *replaced_by)
{
	if (!zsnapshot_is_mvcc(wish->snapshot) ||
		(ZH_LIVE(state->header) && state->author.cid == wish->cid))
		return TM_SelfModified;
	if (was_overtaken(row, wish->tid, wish->snapshot))
		return ZH_LIVE(state->header) ? TM_SelfModified : TM_Updated;
	if (state->author.cid > wish->cid)
		*replaced_by = zvis_replaced_by(row, wish->cid);
	return TM_SelfModified;
}

/*
 * Returns whether a KEY SHARE lock may be taken on the version that the
 * snapshot sees, though the row has moved.
 */
static bool
key_share_of_moved(const ZRow *row, LockTupleMode mode, Snapshot snapshot, const ZRowState *state)
{
	return mode == LockTupleKeyShare && zsnapshot_is_mvcc(snapshot) &&
		!(state->author.xflags & ZUX_KEY_CHANGE) && state->author.status == ZXID_COMMITTED &&
		!zxid_visible_mvcc(state->author.xid, snapshot) &&
		!excludes_key_share(row, state, snapshot);
}

/*
 * Returns the result for a row whose newest version is committed, or was
 * copied by our own rewrite "as of" a committed transaction.
 */
static TM_Result
examine_committed(const ZRow *row, const ZRowWish *wish, ZRowState *state)
{
	LockTupleMode mode = wish->mode;
	Snapshot	snapshot = wish->snapshot;

	if (!ZH_LIVE(state->header))
	{
		if (ZH_STATE(state->header) == ZSTATE_MOVED && ItemPointerIsValid(&state->author.forward) &&
			key_share_of_moved(row, mode, snapshot, state))
		{
			state->key_share_beside = true;
			return TM_Ok;
		}
		if (ZH_STATE(state->header) == ZSTATE_MOVED && ItemPointerIsValid(&state->author.forward))
			return TM_Updated;
		if (state->author.xflags & ZUX_OTHER_PART)
			return TM_Updated;
		return TM_Deleted;
	}
	if (!state->author.visible && !zlevel_is_locked(row->rel, wish->tid, state->author.ptr))
	{
		/*
		 * an update in place that keeps the key lets the lock be taken on the
		 * version that the caller sees
		 */
		if (mode != LockTupleKeyShare || !kept_key(&state->author, row, state, snapshot))
			return TM_Updated;
		state->key_share_beside = true;
	}
	return TM_Ok;
}

/*
 * Returns whether the newest version of a live row in a slot of our own is
 * known to be one that the wish's snapshot sees and its command may change.
 */
static bool
is_own_visible(const ZRow *row, ZHeader header, const ZRowWish *wish)
{
	int			s = ZH_SLOT(header);

	return s >= 1 && s <= zpage_nslots(row->page) && zsnapshot_is_mvcc(wish->snapshot) &&
		wish->snapshot->curcid <= wish->cid &&
		zvis_own_visible(row, zpage_slot(row->page, s), wish->snapshot);
}

/*
 * Finds the row's newest version, and rolls changes of aborted transactions
 * back until its author has not aborted. Returns false if there is no row or
 * stub. Raises ERRCODE_DATA_CORRUPTED.
 */
static bool
find_author(const ZRowWish *wish, ZRow *row, ZSlotView *slots, ZRowState *state)
{
	Page		page = row->page;
	OffsetNumber off = row->off;
	ItemId		lp;

	Assert(zc_buffer_exclusive(wish->buf));
	for (;;)
	{
		if (!wish->sound && unlikely(!PageIsNew(page) && !zpage_item_ok(page, off)))
			zvis_corrupt_page(row->rel, row->block, page, off);
		if (PageIsNew(page) || off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
			return false;
		lp = PageGetItemId(page, off);
		if (!ItemIdIsNormal(lp) && !ItemIdIsRedirected(lp))
			return false;
		state->stub = ItemIdIsRedirected(lp);
		state->header = state->stub ? zpage_stub_header(lp) : zheader_get(zpage_row(page, lp));
		if (ZH_LIVE(state->header) &&
			zslots_row_settled(page, state->header, zslots_oldest(page)))
		{
			/* most rows; spares copying the slots */
			state->author.status = ZXID_ALL_VISIBLE;
			state->author.visible = true;
			return true;
		}
		if (ZH_LIVE(state->header) && is_own_visible(row, state->header, wish))
		{
			state->author.status = ZXID_COMMITTED;
			state->author.visible = true;
			return true;
		}
		zslots_copy(row->rel, row->block, page, slots);
		zvis_author(row, ZH_LIVE(state->header) ? wish->snapshot : InvalidSnapshot, &state->author);
		if (state->author.status != ZXID_ABORTED)
			return true;
		zrollback_page(wish->buf, row->rel);
		memset(state, 0, offsetof(ZRowState, others));
		state->rolled_back = true;
	}
}

/*
 * Returns whether a KEY SHARE lock beside another transaction's update must be
 * taken on the version below that update, because a committed change that the
 * snapshot does not see has excluded such locks.
 */
static bool
misses_key_change(const ZRow *row, const ZRowWish *wish, const ZRowState *state)
{
	return zsnapshot_is_mvcc(wish->snapshot) && excludes_key_share(row, state, wish->snapshot);
}

/* Returns what the row's newest version, without the locks, allows. */
static TM_Result
examine_version(const ZRowWish *wish, const ZRow *row, ZRowState *state, CommandId *replaced_by)
{
	TM_Result	result;

	switch (state->author.status)
	{
		case ZXID_OWN:
			if (unlikely(stands_for_unseen(state, wish->snapshot)))
				return examine_committed(row, wish, state);
			result = examine_own(state, wish->cid);
			if (result == TM_SelfModified)
				result = examine_self_modified(row, wish, state, replaced_by);
			return result;
		case ZXID_IN_PROGRESS:
			result = examine_in_progress(state, wish->mode);
			if (result == TM_BeingModified ? waits_in_vain(row, state, wish->mode, wish->snapshot)
				: result == TM_Ok && misses_key_change(row, wish, state))
				result = TM_Updated;
			return result;
		default:
			return examine_committed(row, wish, state);
	}
}

/*
 * Returns whether the row is live, visible to all, and has no hint of a lock,
 * as most are; fills *state then.
 */
static inline bool
examine_at_once(const ZRowWish *wish, ZRowState *state)
{
	Page		page = BufferGetPage(wish->buf);
	OffsetNumber off = ItemPointerGetOffsetNumber(wish->tid);
	ItemId		lp;
	ZHeader		header;

	if (!wish->sound && (PageIsNew(page) || !zpage_item_ok(page, off)))
		return false;
	if (off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
		return false;
	lp = PageGetItemId(page, off);
	if (!ItemIdIsNormal(lp))
		return false;
	header = zheader_get(zpage_row(page, lp));
	if (!ZH_LIVE(header) || ZH_LOCK(header) != 0 ||
		!zslots_row_settled(page, header, zslots_oldest(page)))
		return false;
	memset(state, 0, offsetof(ZRowState, others));
	state->header = header;
	state->author.status = ZXID_ALL_VISIBLE;
	state->author.visible = true;
	return true;
}

/*
 * Does zrow_examine's work for a row that examine_at_once has not answered for.
 * Examines the newest version first, and the locks only if the version allows
 * the change and the header has a lock hint. If that rolls changes back, the
 * page is another one, so both are examined anew.
 */
static TM_Result
examine(const ZRowWish *wish, ZRowState *state, TM_FailureData *tmfd)
{
	ZSlotView	slots;
	ZRow		row = zvis_row_on(wish->rel, wish->buf, ItemPointerGetOffsetNumber(wish->tid),
								  &slots);
	CommandId	replaced_by = InvalidCommandId;
	bool		rolled_back = false;
	TM_Result	result;

	Assert(zc_buffer_exclusive(wish->buf));
	for (;;)
	{
		LockerSearch search;

		memset(state, 0, offsetof(ZRowState, others));
		state->rolled_back = rolled_back;
		if (!find_author(wish, &row, &slots, state))
		{
			fill_failure(tmfd, wish->tid, state);
			return TM_Deleted;
		}
		replaced_by = InvalidCommandId;
		result = examine_version(wish, &row, state, &replaced_by);
		if ((result != TM_Ok && result != TM_BeingModified &&
			 !(state->author.xflags & ZUX_MOVED_IN)) ||
			ZH_LOCK(state->header) == 0)
			break;
		begin_search(&search, &row, state->header, known_mode(&row, state->header, wish->mode),
					 state);
		search.mode = wish->mode;
		search.enough = ZH_LOCK(state->header) - 1; /* none is stronger */
		if (!is_locked_for_update(&search))
		{
			zslots_copy_raw(row.rel, row.block, row.page, &slots);
			if (!find_lockers(&search))
			{
				zrollback_page(wish->buf, row.rel);
				rolled_back = true; /* perhaps a change of this row */
				continue;
			}
		}
		state->own_lock = search.held >= 0;
		state->own_share = search.held >= (int) LockTupleShare;
		state->own_exclusive = search.held == LockTupleExclusive;
		state->clear_locks = !state->others_locks && !state->own_lock;
		/* a version of our own makes other transactions wait, as a lock does */
		state->own_hold = state->own_lock || state->author.status == ZXID_OWN;

		/*
		 * A row just moved here is invisible, but a locker that comes from
		 * its old place needs the transaction to wait for (lock_moved).
		 */
		if (result != TM_BeingModified)
			state->wait_for = search.conflicting;
		if (result == TM_Ok && search.conflicting != InvalidZXid)
			result = TM_BeingModified;
		if (result == TM_BeingModified && !state->own_hold &&
			zslots_may_be_ours(row.page, state->header))
		{
			ZAuthor		author;

			name_author(row.rel, wish->buf, row.off, &author);
			state->own_hold = author.status == ZXID_OWN;
		}
		break;
	}
	if (result != TM_Ok)
		fill_failure(tmfd, wish->tid, state);
	else
		state->own_exclusive |= is_key_changed_by_us(wish, state->header);
	if (replaced_by != InvalidCommandId)
		tmfd->cmax = replaced_by;
	return result;
}

/*
 * zrow_examine: See zdml_internal.h. Most rows need only examine_at_once.
 */
TM_Result
zrow_examine(const ZRowWish *wish, ZRowState *state, TM_FailureData *tmfd)
{
	Assert(zc_buffer_exclusive(wish->buf));
	if (likely(examine_at_once(wish, state)))
		return TM_Ok;
	return examine(wish, state, tmfd);
}

/* zrow_ask: See zdml_internal.h. */
void
zrow_ask(const ZRowWish *wish, const ZRowState *state)
{
	ZAuthor		author;

	if (state->own_share || !zctid_asks(wish->rel))
		return;
	name_author(wish->rel, wish->buf, ItemPointerGetOffsetNumber(wish->tid), &author);
	if (author.status == ZXID_OWN)
		return;
	LockBuffer(wish->buf, BUFFER_LOCK_UNLOCK);
	zctid_refuse(wish->rel);
}

/*
 * Returns the mode of the heavyweight lock in which transactions queue for a
 * row lock of this strength.
 */
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

/* Raises the error of NOWAIT, which is heap's. */
static void
lock_not_available(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("could not obtain lock on row in relation \"%s\"",
					RelationGetRelationName(rel))));
}

/*
 * zrow_wait: See zdml_internal.h. The heavyweight lock makes transactions get
 * the row in the order in which they came.
 */
bool
zrow_wait(const ZRowWish *wish, ZXid xid, LockWaitPolicy policy, XLTW_Oper oper, bool own_lock,
		  bool *have_tuple_lock)
{
	Relation	rel = wish->rel;
	TransactionId x = zxid_to_xid(xid);

	Assert(CritSectionCount == 0 && zxid_possible(xid));
	if (!*have_tuple_lock && !own_lock)
	{
		if (policy == LockWaitBlock)
			LockTuple(rel, wish->tid, queue_mode(wish->mode));
		else if (!zc_conditional_lock_tuple(rel, wish->tid, queue_mode(wish->mode)))
		{
			if (policy == LockWaitError)
				lock_not_available(rel);
			return false;
		}
		*have_tuple_lock = true;
	}
	if (policy == LockWaitBlock)
		XactLockTableWait(x, rel, wish->tid, oper);
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
