/*
 * mvcc/zslots.h - reading the transaction slots of a page; reports of damage.
 */
#ifndef ZUNDO_ZSLOTS_H
#define ZUNDO_ZSLOTS_H

#include "common/zundo.h"
#include "page/zpage.h"
#include "undo/undo.h"

/*
 * All slots of one page, inline and overflow, as copied under its lock. s[0]
 * is unused.
 */
typedef struct ZSlotView
{
	int			n;
	bool		had_more;		/* the page has or had an overflow page, so
								 * rows may name slots that do not exist any
								 * more */
	ZXid		oldest;			/* zslots_oldest() while the page was locked
								 * (rule VIS-1) */
	ZPageSlot	s[ZPAGE_MAX_SLOTS + 1];
} ZSlotView;

/*
 * zslots_oldest: returns with what the xids on this page are to be compared:
 * zu_oldest(), or zu_temp_oldest() for a page of a temporary table. The page's
 * buffer is locked.
 */
static inline ZXid
zslots_oldest(Page page)
{
	for (int i = 1; i <= zpage_nslots(page); i++)
		if (zpage_slot(page, i)->ptr != InvalidUndoPtr && !zslot_locks_only(zpage_slot(page, i)))
			return zu_oldest_for(zpage_slot(page, i)->ptr);
	return zu_oldest();
}

/*
 * zslots_copy: fills view from a page whose buffer the caller holds locked, or
 * from a copy of a page that has no overflow page. Slots that hold only locks
 * look unused (PAGE-9), since they do not concern visibility. zslots_copy_raw:
 * copies all slots as they are, for readers of row locks. Both raise
 * ERRCODE_DATA_CORRUPTED as zvis_overflow_lock does.
 */
extern void zslots_copy(Relation rel, BlockNumber block, Page page, ZSlotView *view);
extern void zslots_copy_raw(Relation rel, BlockNumber block, Page page, ZSlotView *view);

/*
 * zvis_overflow_lock: pins the overflow page of a locked page that has one,
 * locks it in mode, and returns its buffer. Raises ERRCODE_DATA_CORRUPTED if
 * the block is not an overflow page of this page, or if the two pages do not
 * fit each other.
 */
extern Buffer zvis_overflow_lock(Relation rel, BlockNumber block, Page page, int mode);

/*
 * zvis_overflow_fault: sets the detail of that error. buf is the overflow
 * page, or InvalidBuffer if block overflow holds none of this owner.
 */
extern int	zvis_overflow_fault(Buffer buf, BlockNumber overflow);

/*
 * zslot_read: returns slot s, inline or on the overflow page, of a page whose
 * buffer the caller holds locked. Returns an unused slot if s is above the
 * present ones or holds only locks: a row that names it is visible to all.
 * Raises ERRCODE_DATA_CORRUPTED if the page never had a slot s.
 *
 * zslot_read_any: does the same for the slots for which the page alone does
 * not suffice.
 */
extern ZPageSlot zslot_read_any(Relation rel, BlockNumber block, Page page, int s);

/* See above. */
static inline ZPageSlot
zslot_read(Relation rel, BlockNumber block, Page page, int s)
{
	if (likely(s <= zpage_nslots(page)))
	{
		ZPageSlot	slot = *zpage_slot(page, s);

		if (likely(!zslot_locks_only(&slot)))
			return slot;
	}
	return zslot_read_any(rel, block, page, s);
}

/*
 * The age of a slot, by comparison with `oldest`. The order counts: up to
 * ZAGE_SETTLED nobody needs what the slot says, so that another transaction may
 * take it; up to ZAGE_LOCKS every snapshot sees the rows that name the slot as
 * they are on the page.
 */
typedef enum ZSlotAge
{
	ZAGE_FREE,					/* the slot is not in use */
	ZAGE_SETTLED,				/* the owner is before `oldest`: all snapshots
								 * see its changes, and its locks are over */
	ZAGE_LOCKS,					/* row locks, and no changes, of an owner that
								 * is not before `oldest` (PAGE-9) */
	ZAGE_LOST,					/* the owner is before `oldest`, but did not
								 * commit: its undo is lost (CHAIN-11) */
	ZAGE_YOUNG					/* changes of an owner that is not before
								 * `oldest`: its status decides */
} ZSlotAge;

/*
 * zslot_age: returns the age of a slot of a page or a ZSlotView. oldest is the
 * page's zslots_oldest(), loaded before the slot was read, or while the page
 * has been locked since (VIS-1). Nothing else compares a slot with `oldest`.
 *
 * zslot_is_lost: returns whether the undo of a slot whose owner is before
 * zu_oldest() and in the doubt window is lost: the owner has not committed.
 * One so old that clog has forgotten it counts as committed. Only zslot_age
 * calls it.
 */
extern bool zslot_is_lost(const ZPageSlot *slot);

/* See above. */
static inline ZSlotAge
zslot_age(const ZPageSlot *slot, ZXid oldest)
{
	ZXid		xid = ZSLOT_XID(slot);

	if (slot->ptr == InvalidUndoPtr)
		return ZAGE_FREE;
	if (xid >= oldest)
		return zslot_locks_only(slot) ? ZAGE_LOCKS : ZAGE_YOUNG;
	return unlikely(zu_in_doubt(xid)) && xid < zu_oldest() && zslot_is_lost(slot) ? ZAGE_LOST :
		ZAGE_SETTLED;
}

/*
 * zslots_row_settled: returns true if the page alone shows that every snapshot
 * sees the row with this header as it is: the header names no slot, or one of
 * an age up to ZAGE_LOCKS. Returns false for a slot on the overflow page.
 */
static inline bool
zslots_row_settled(Page page, ZHeader header, ZXid oldest)
{
	int			s = ZH_SLOT(header);

	return s == 0 ||
		(s <= zpage_nslots(page) && zslot_age(zpage_slot(page, s), oldest) <= ZAGE_LOCKS);
}

/*
 * zslots_may_be_ours: returns whether our own transaction may have written the
 * version with this header. A slot on the overflow page counts as ours. The
 * page is locked.
 */
extern bool zslots_may_be_ours(Page page, ZHeader header);

/*
 * zslots_has: returns whether the slot that a row's header names exists; false
 * if it is 0 or was given up, so that the row is visible to all. Raises
 * ERRCODE_DATA_CORRUPTED if the page never had such a slot; so does
 * zvis_corrupt_slotno in any case.
 */
extern void zvis_corrupt_slotno(Relation rel, BlockNumber block, int s) zc_noreturn;

/* See above. */
static inline bool
zslots_has(const ZSlotView *slots, Relation rel, BlockNumber block, int s)
{
	if (likely(s <= slots->n))
		return s != 0;
	if (unlikely(!slots->had_more))
		zvis_corrupt_slotno(rel, block, s);
	return false;
}

/*
 * zvis_corrupt_page: raises ERRCODE_DATA_CORRUPTED for this block of rel,
 * whose contents are page. off is the damaged item, or InvalidOffsetNumber.
 */
extern void zvis_corrupt_page(Relation rel, BlockNumber block, Page page,
							  OffsetNumber off) zc_noreturn;

/*
 * zvis_corrupt_chain: raises ERRCODE_DATA_CORRUPTED for the undo to which the
 * block points; ptr is the record, or InvalidUndoPtr if it is not known.
 */
extern void zvis_corrupt_chain(Relation rel, BlockNumber block, UndoPtr ptr) zc_noreturn;

/*
 * zvis_corrupt_slot: raises ERRCODE_DATA_CORRUPTED for the transaction id xid
 * in slot s: its undo is lost, or it has not been assigned.
 */
extern void zvis_corrupt_slot(Relation rel, BlockNumber block, int s, ZXid xid,
							  bool lost) zc_noreturn;

/*
 * zvis_check_xid: raises ERRCODE_DATA_CORRUPTED if xid, read from slot s and
 * not older than `oldest`, cannot be a transaction's. Called before anything
 * looks at the transaction's status.
 */
static inline void
zvis_check_xid(Relation rel, BlockNumber block, int s, ZXid xid)
{
	if (unlikely(!zxid_possible(xid)))
		zvis_corrupt_slot(rel, block, s, xid, false);
}

/*
 * zvis_is_young: returns whether the age of slot s is ZAGE_YOUNG, so that rows
 * which name it must be looked up. Raises ERRCODE_DATA_CORRUPTED if its undo is
 * lost, or if its xid cannot be a transaction's.
 */
static inline bool
zvis_is_young(Relation rel, BlockNumber block, int s, const ZPageSlot *slot, ZXid oldest)
{
	ZSlotAge	age = zslot_age(slot, oldest);

	if (age <= ZAGE_LOCKS)
		return false;
	if (unlikely(age == ZAGE_LOST || !zxid_possible(ZSLOT_XID(slot))))
		zvis_corrupt_slot(rel, block, s, ZSLOT_XID(slot), age == ZAGE_LOST);
	return true;
}

#endif
