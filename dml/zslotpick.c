/*
 * dml/zslotpick.c - which transaction slot of a page a change uses.
 *
 * Called by dml/ with the page exclusively locked; overflow and undo pages are
 * locked below it. Nothing here waits for a transaction: a page whose slots are
 * all used by transactions in progress gets further slots.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "dml/zdml_internal.h"
#include "mvcc/zcommitted.h"
#include "page/zoverflow.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "undo/undo_temp.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * Lockers leave the slots above the first of these numbers to writers; the last
 * slot of all is kept for a common lock slot.
 */
#define MAX_LOCKER_SLOTS 256
#define MAX_WRITER_SLOTS (ZPAGE_MAX_SLOTS - 1)

/* What a slot is wanted for. */
typedef enum Purpose
{
	FOR_ROW,					/* a new row, which may go to another page */
	FOR_CHANGE,
	FOR_LOCK
} Purpose;

/* A page gets no more than this number of inline slots for inline locks. */
#define MAX_LOCK_SLOTS 16

/* Returns whether xid is our transaction's, or one of its subtransactions'. */
static inline bool
xid_is_mine(const ZWriter *writer, ZXid xid)
{
	if (xid == writer->xid || xid == writer->topxid)
		return true;
	/* our subtransactions have greater xids than the top-level transaction */
	return xid > writer->topxid && TransactionIdIsCurrentTransactionId(zxid_to_xid(xid));
}

/* The slots of a locked page, inline and overflow. */
typedef struct SlotArray
{
	BlockNumber block;
	Page		page;
	Page		overflow;		/* also locked; NULL = there is none */
	int			ninline;
	int			n;
} SlotArray;

/* Returns slot i of the page, which may lie on the overflow page. */
static inline const ZPageSlot *
slot_at(const SlotArray *slots, int i)
{
	return likely(i <= slots->ninline) ? zpage_slot(slots->page, i)
		: zoverflow_slot(slots->overflow, i);
}

/*
 * Returns a rank for taking this free slot, the higher the better. Once our
 * transaction owns the slot, the rows that name it seem to be ours, and their
 * readers must look for the authors in undo. So a slot without a chain is best,
 * and 'avoid' (see zslot_pick) is worst. Of slots of one rank that with the
 * oldest owner is taken: a row that was deleted under the slot keeps its room
 * until our transaction has ended, and the latest deletions are those that have
 * not been pruned yet.
 */
static inline int
free_slot_rank(const ZPageSlot *slot, int i, int avoid)
{
	if (i == avoid)
		return 1;
	return slot->ptr == InvalidUndoPtr ? 3 : 2;
}

/*
 * Returns a slot of our transaction (*own), or else the best free one, an
 * inline one if there is any. 0 = there is neither. Sets *overflow_idle to
 * whether no overflow slot is in use, which is valid only if no own slot was
 * found.
 */
static int
find_own_or_free(const ZWriter *writer, const SlotArray *slots, ZXid oldest, int avoid, bool *own,
				 bool *overflow_idle)
{
	int			free_slot = 0;
	int			best = 0;
	ZXid		best_xid = 0;

	Assert(slots->n <= ZPAGE_MAX_SLOTS && slots->ninline <= slots->n);
	*own = false;
	*overflow_idle = true;
	for (int i = 1; i <= slots->n; i++)
	{
		const ZPageSlot *slot = slot_at(slots, i);

		if (zslot_age(slot, oldest) <= ZAGE_SETTLED)
		{
			int			rank = free_slot_rank(slot, i, avoid);

			if (free_slot == 0 ||
				(i <= slots->ninline &&
				 (rank > best || (rank == best && ZSLOT_XID(slot) < best_xid))))
			{
				free_slot = i;
				best = rank;
				best_xid = ZSLOT_XID(slot);
			}
		}
		else if (slot->xid_flags & ZSLOT_COMMON_LOCKS)
			*overflow_idle &= (i <= slots->ninline);
		else if (xid_is_mine(writer, ZSLOT_XID(slot)))
		{
			*own = true;
			return i;
		}
		else if (i > slots->ninline)
			*overflow_idle = false;
	}
	return free_slot;
}

/* What one pick has asked the server about running transactions. */
typedef struct Asked
{
	bool		once;			/* about one transaction */
	Snapshot	running;		/* about all; NULL = not yet */
} Asked;

/* Takes a snapshot of the running transactions, unless that is set already. */
static void
ask_for_all(Asked *asked)
{
	static SnapshotData running = {SNAPSHOT_MVCC};

	if (asked->running == NULL)
		asked->running = GetSnapshotData(&running);
}

/*
 * Returns the status of xid, which is not below oldest. Asks the server about
 * one transaction by itself, about further ones by one snapshot, since each
 * question takes a lock that all processes share.
 */
static ZXidStatus
ask_status(Asked *asked, ZXid xid, ZXid oldest)
{
	TransactionId x = zxid_to_xid(xid);

	Assert(xid >= oldest);
	if (zcommitted_known(xid))
		return ZXID_COMMITTED;
	if (TransactionIdIsCurrentTransactionId(x))
		return ZXID_OWN;
	if (asked->once)
		ask_for_all(asked);
	asked->once = true;
	if (asked->running == NULL)
		return zxid_status_at(xid, oldest);
	if (XidInMVCCSnapshot(x, asked->running))
		return ZXID_IN_PROGRESS;
	return zxid_ended_committed(xid) ? ZXID_COMMITTED : ZXID_ABORTED;
}

/*
 * Returns the slot of changes with the oldest owner that is not before 'from',
 * nor among 'running' (NULL: any owner will do), and if known is set one that
 * is known to have committed (VIS-9). 0 = there is none.
 */
static int
find_oldest(const SlotArray *slots, ZXid from, Snapshot running, bool known)
{
	int			best = 0;
	ZXid		best_xid = 0;

	for (int i = 1; i <= slots->n; i++)
	{
		const ZPageSlot *slot = slot_at(slots, i);
		ZXid		xid = ZSLOT_XID(slot);

		if (zslot_age(slot, from) == ZAGE_YOUNG && (best == 0 || xid < best_xid) &&
			(running == NULL || !XidInMVCCSnapshot(zxid_to_xid(xid), running)) &&
			(!known || zcommitted_known(xid)))
		{
			best = i;
			best_xid = xid;
		}
	}
	return best;
}

/*
 * Returns a slot whose owner has ended, and its status; 0 = there is none. The
 * oldest owner is the likeliest to have ended. If it has not, takes one that is
 * known to have committed; else one question answers for all others.
 */
static int
find_ended(const ZWriter *writer, const SlotArray *slots, ZXid oldest, Asked *asked,
		   ZXidStatus *status)
{
	ZXid		from = oldest;

	for (;;)
	{
		int			i = find_oldest(slots, from, asked->running, false);
		ZXid		xid;

		if (i == 0)
			return 0;
		xid = ZSLOT_XID(slot_at(slots, i));
		zvis_check_xid(writer->rel, slots->block, i, xid);
		*status = ask_status(asked, xid, oldest);
		from = xid + 1;
		if (*status == ZXID_COMMITTED || *status == ZXID_ABORTED)
			return i;
		i = find_oldest(slots, oldest, NULL, true);
		if (i != 0)
		{
			*status = ZXID_COMMITTED;
			return i;
		}
		ask_for_all(asked);
	}
}

/*
 * Returns an inline slot with locks of a transaction that has ended; 0 = there
 * is none.
 */
static int
find_ended_locker(const SlotArray *slots, ZXid oldest, Asked *asked)
{
	for (int i = 1; i <= slots->ninline; i++)
	{
		const ZPageSlot *slot = slot_at(slots, i);

		if (zslot_age(slot, oldest) == ZAGE_LOCKS && (slot->xid_flags & ZSLOT_INLINE_LOCKS))
		{
			ZXidStatus	status = ask_status(asked, ZSLOT_XID(slot), oldest);

			if (status == ZXID_COMMITTED || status == ZXID_ABORTED)
				return i;
		}
	}
	return 0;
}

/*
 * Raises the error for a page whose slots all belong to transactions in
 * progress, and that can get no further slot.
 */
static void
too_many_writers(Relation rel, BlockNumber block)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many transactions are changing block %u of zheap table \"%s\" at once",
					block, RelationGetRelationName(rel)),
			 errdetail("These transactions, and those that lock rows, use all %d slots that a page "
					   "can have.",
					   MAX_WRITER_SLOTS),
			 errhint("Retry the transaction, or decrease the fillfactor of the table.")));
}

typedef enum PickResult
{
	PICKED,
	PICKED_LAST_OVERFLOW,		/* an inline slot; the overflow page is not
								 * needed any more */
	PICK_CONVERT,				/* pick->slotno holds inline locks of our own,
								 * which must become records */
	PICK_AGAIN,					/* aborted changes must be rolled back first */
	PICK_NONE
} PickResult;

/*
 * Picks one of the slots that the page has, in the order: own, free, owner
 * committed, locker ended. Returns what the caller must do.
 */
static PickResult
pick_present(const ZWriter *writer, const SlotArray *slots, int avoid, ZSlotPick *pick)
{
	ZXid		oldest = zslots_oldest(slots->page);
	ZXidStatus	status = ZXID_COMMITTED;
	bool		own;
	bool		overflow_idle;
	Asked		asked = {false, NULL};
	int			i = find_own_or_free(writer, slots, oldest, avoid, &own, &overflow_idle);

	if (i != 0)
	{
		pick->slotno = i;
		if (own && zslot_locks_only(slot_at(slots, i)))
			return PICK_CONVERT;
		pick->prev = own ? slot_at(slots, i)->ptr : InvalidUndoPtr;
		return slots->overflow != NULL && overflow_idle && !own && i <= slots->ninline ?
			PICKED_LAST_OVERFLOW : PICKED;
	}
	i = find_ended(writer, slots, oldest, &asked, &status);
	if (i == 0)
	{
		pick->slotno = find_ended_locker(slots, oldest, &asked);
		return pick->slotno != 0 ? PICKED : PICK_NONE;
	}
	if (status == ZXID_ABORTED)
		return PICK_AGAIN;
	pick->slotno = i;
	pick->prev = slot_at(slots, i)->ptr;
	pick->committed = ZSLOT_XID(slot_at(slots, i));
	return PICKED;
}

/*
 * Picks the common lock slot of a page whose slots are all in use: the one that
 * it has, or the next new slot.
 */
static PickResult
pick_common(const SlotArray *slots, ZSlotPick *pick)
{
	pick->common = true;
	for (int i = 1; i <= slots->n; i++)
	{
		const ZPageSlot *slot = slot_at(slots, i);

		if (slot->xid_flags & ZSLOT_COMMON_LOCKS)
		{
			pick->slotno = i;
			pick->prev = slot->ptr;
			pick->hold = ZSLOT_XID(slot);
			return PICKED;
		}
	}
	Assert(slots->n < ZPAGE_MAX_SLOTS);
	pick->slotno = slots->n + 1;
	return PICKED;
}

/*
 * Does what pick_present does for a page with an overflow page, which gets a
 * further slot if need be.
 */
static PickResult
pick_with_overflow(const ZWriter *writer, Buffer buf, int avoid, Purpose purpose, ZSlotPick *pick)
{
	Buffer		overflow = zvis_overflow_lock(writer->rel, BufferGetBlockNumber(buf),
											  BufferGetPage(buf), BUFFER_LOCK_SHARE);
	SlotArray	slots;
	PickResult	result;

	slots.block = BufferGetBlockNumber(buf);
	slots.page = BufferGetPage(buf);
	slots.overflow = BufferGetPage(overflow);
	slots.ninline = zpage_nslots(slots.page);
	slots.n = zoverflow_last(slots.overflow);
	result = pick_present(writer, &slots, avoid, pick);
	if (result == PICK_NONE &&
		slots.n < (purpose == FOR_LOCK ? MAX_LOCKER_SLOTS : MAX_WRITER_SLOTS))
	{
		pick->slotno = slots.n + 1;
		result = PICKED;
	}
	else if (result == PICK_NONE && purpose == FOR_LOCK)
		result = pick_common(&slots, pick);
	if (pick->slotno > slots.ninline)
		pick->overflow = BufferGetBlockNumber(overflow);
	UnlockReleaseBuffer(overflow);
	return result;
}

/*
 * Picks the slot of our (sub)transaction if it has made changes on the page,
 * which has no overflow page; then it has no other slot there. Returns false if
 * the slots have to be judged one by one.
 */
static inline bool
pick_own(const ZWriter *writer, Page page, ZSlotPick *pick)
{
	int			n = zpage_nslots(page);

	for (int i = 1; i <= n; i++)
	{
		const ZPageSlot *slot = zpage_slot(page, i);

		if (slot->xid_flags == writer->xid && slot->ptr != InvalidUndoPtr)
		{
			pick->slotno = i;
			pick->prev = slot->ptr;
			return true;
		}
	}
	return false;
}

#ifdef USE_ASSERT_CHECKING
/* Returns whether find_own_or_free returns slotno as our own slot, too. */
static bool
is_own_slot(const ZWriter *writer, Page page, int slotno)
{
	int			n = zpage_nslots(page);
	SlotArray	slots = {InvalidBlockNumber, page, NULL, n, n};
	bool		own;
	bool		overflow_idle;

	return find_own_or_free(writer, &slots, zslots_oldest(page), 0, &own,
							&overflow_idle) == slotno && own;
}
#endif

void
zslot_undo_own(const ZWriter *writer, Buffer buf)
{
	if (writer->temp ? zu_temp_own_aborts() : zrollback_own_aborts_pending())
		(void) zrollback_page(buf, writer->rel);
}

/*
 * Picks a slot for the purpose. Tries, in this order: the slots that the page
 * has, growing the page's inline slots, pruning, and attaching an overflow
 * page. Rolls aborted changes back and converts our inline locks if that is
 * needed first. Returns false if there is no slot, or raises
 * ERRCODE_PROGRAM_LIMIT_EXCEEDED (see zslot_pick).
 */
static bool
pick_slot(const ZWriter *writer, Buffer buf, int avoid, Purpose purpose, ZSlotPick *pick)
{
	Page		page = BufferGetPage(buf);
	bool		must_have = (purpose != FOR_ROW);
	bool		pruned = false;

	Assert(zc_buffer_exclusive(buf));
	memset(pick, 0, sizeof(*pick));
	zslot_undo_own(writer, buf);
	if (!zpage_has_overflow(page) && pick_own(writer, page, pick))
	{
		Assert(is_own_slot(writer, page, pick->slotno));
		return true;
	}
	for (;;)
	{
		int			n = zpage_nslots(page);
		bool		overflow = zpage_has_overflow(page);
		SlotArray	slots = {BufferGetBlockNumber(buf), page, NULL, n, n};

		switch (unlikely(overflow) ? pick_with_overflow(writer, buf, avoid, purpose, pick) :
				pick_present(writer, &slots, avoid, pick))
		{
			case PICKED:
				return true;
			case PICKED_LAST_OVERFLOW:
				zoverflow_release(writer->rel, buf);
				return true;
			case PICK_CONVERT:
				zlock_convert(writer, buf, pick->slotno);
				continue;
			case PICK_AGAIN:
				zrollback_page(buf, writer->rel);
				continue;
			case PICK_NONE:

				/*
				 * A temporary table has one transaction at a time, whose
				 * changes need one slot.
				 */
				Assert(!writer->temp);
				break;
		}
		if (overflow)
		{
			if (must_have)
				too_many_writers(writer->rel, BufferGetBlockNumber(buf));
			return false;
		}
		if (n < ZPAGE_MAX_INLINE_SLOTS && zpage_can_grow_slots(page, n + 1))
		{
			pick->slotno = pick->grow_to = n + 1;
			return true;
		}
		ZUNDO_FAULT("no-slot");
		if ((pruned || !zprune_for_hole(writer, buf, sizeof(ZPageSlot))) &&
			!(must_have && zoverflow_attach(writer, buf)))
			return false;
		pruned = true;
	}
}

bool
zslot_pick(const ZWriter *writer, Buffer buf, int avoid, bool must_have, ZSlotPick *pick)
{
	return pick_slot(writer, buf, avoid, must_have ? FOR_CHANGE : FOR_ROW, pick);
}

bool
zslot_pick_for_lock(const ZWriter *writer, Buffer buf, int avoid, ZSlotPick *pick)
{
	return pick_slot(writer, buf, avoid, FOR_LOCK, pick);
}

/*
 * zslot_pick_inline: See zdml_internal.h. A slot of our own with changes takes
 * no inline locks. On such a page a lock is a record.
 */
bool
zslot_pick_inline(const ZWriter *writer, Buffer buf, ZWalInlineLock *lock)
{
	Page		page = BufferGetPage(buf);
	int			n = zpage_nslots(page);
	SlotArray	slots = {BufferGetBlockNumber(buf), page, NULL, n, n};
	Asked		asked = {false, NULL};
	ZXid		oldest = zu_oldest();
	bool		own;
	bool		overflow_idle;

	Assert(zc_buffer_exclusive(buf));
	if (zrollback_own_aborts_pending())
		zrollback_page(buf, writer->rel);
	if (zpage_has_overflow(page))
		return false;
	lock->grow_to = 0;
	lock->fresh = true;
	lock->slotno = find_own_or_free(writer, &slots, oldest, 0, &own, &overflow_idle);
	if (own)
	{
		const ZPageSlot *slot = zpage_slot(page, lock->slotno);

		/*
		 * The lock of a subtransaction must go when that aborts, so a slot of
		 * its parent cannot hold it.
		 */
		lock->fresh = false;
		return zslot_locks_only(slot) && ZSLOT_XID(slot) == writer->xid &&
			zinline_add(slot->ptr, lock->offset, lock->mode) != 0;
	}
	if (lock->slotno == 0)
		lock->slotno = find_ended_locker(&slots, oldest, &asked);
	if (lock->slotno == 0 && n < MAX_LOCK_SLOTS && zpage_can_grow_slots(page, n + 1))
		lock->slotno = lock->grow_to = n + 1;
	return lock->slotno != 0;
}

/*
 * zslot_pick_common: See zdml_internal.h. Prefers the slot that is the page's
 * common lock slot already, then a free one, then a new one.
 */
bool
zslot_pick_common(Page page, const ZSlotPick *pick, ZSlotPick *common)
{
	ZXid		oldest = zu_oldest();
	int			n = zpage_nslots(page);

	Assert(pick->slotno >= 1);
	memset(common, 0, sizeof(*common));
	for (int i = 1; i <= n; i++)
	{
		const ZPageSlot *slot = zpage_slot(page, i);

		if (i == pick->slotno)
			continue;
		if (zslot_age(slot, oldest) <= ZAGE_SETTLED)
		{
			if (common->slotno == 0)
				common->slotno = i;
		}
		else if (slot->xid_flags & ZSLOT_COMMON_LOCKS)
		{
			common->slotno = i;
			common->prev = slot->ptr;
			common->hold = ZSLOT_XID(slot);
			return true;
		}
	}
	if (common->slotno != 0)
		return true;
	n = Max(n, pick->grow_to) + 1;
	if (zpage_has_overflow(page) || !zpage_can_grow_slots(page, n))
		return false;
	common->slotno = common->grow_to = n;
	return true;
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether a record may be pushed on the chain that was picked (DML-3).
 */
static bool
may_push(const ZChangePage *p, const ZSlotPick *pick)
{
	const ZPageSlot *slot;

	if (pick->prev == InvalidUndoPtr || pick->common)
		return true;
	slot = p->slot.in_overflow ? zoverflow_slot(p->overflow, pick->slotno)
		: zpage_slot(p->page, pick->slotno);
	return slot->ptr == pick->prev && zxid_status(ZSLOT_XID(slot)) != ZXID_ABORTED;
}
#endif

/*
 * zslot_use: See zdml_internal.h. The pick was made under the page lock that
 * is still held, so the overflow page is still the page's.
 */
void
zslot_use(const ZWriter *writer, ZChange *change, int i, Buffer buf, const ZSlotPick *pick)
{
	ZChangePage *p = &change->page[i];
	BlockNumber block = BufferGetBlockNumber(buf);

	Assert(pick->slotno >= 1 && pick->slotno <= ZPAGE_MAX_SLOTS && zc_buffer_exclusive(buf));
	p->buf = buf;
	p->page = BufferGetPage(buf);
	p->slot.slotno = pick->slotno;
	p->slot.grow_to = pick->grow_to;

	/*
	 * The chain of a common lock slot contains no changes; it is only walked
	 * to find locks.
	 */
	p->slot.live_chain = pick->prev != InvalidUndoPtr && !pick->common;
	if (likely(pick->overflow == 0))
	{
		Assert(may_push(p, pick));	/* DML-3 */
		return;
	}
	Assert(zpage_trailer(p->page)->overflow == pick->overflow); /* it stays while a pick
																 * is in use */
	p->slot.in_overflow = true;
	p->overflow_buf = zvis_overflow_lock(writer->rel, block, p->page, BUFFER_LOCK_EXCLUSIVE);
	p->overflow = BufferGetPage(p->overflow_buf);
	Assert(may_push(p, pick));	/* DML-3 */
}

/*
 * zslot_note: See zdml_internal.h. Records of a common lock slot are no
 * changes, so they are not noted.
 */
void
zslot_note(const ZChange *change, int i, const ZSlotPick *pick)
{
	const ZuRecord *rec = &change->rec[i];

	if (pick->common)
		return;
	if (pick->committed != InvalidZXid)
		zown_note_push(pick->committed);
	/* the further rows of an open DELETE are noted when they are deleted */
	zown_note(rec->relnumber, rec->block, rec->offset, rec->type == ZUR_DELETE ? 1 : rec->nrows,
			  rec->cid, change->op.ptr[i], rec->prev);
}
