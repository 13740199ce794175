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
	bool		had_more;		/* the page had or has an overflow page: rows
								 * may name slots that are no more */
	ZXid		oldest;			/* zpage_oldest() while the page was locked
								 * (rule VIS-1) */
	ZPageSlot	s[ZPAGE_MAX_SLOTS + 1];
} ZSlotView;

/*
 * zpage_oldest: what the xids on this page, whose buffer is locked, are to be
 * compared with: zu_oldest(), or zu_temp_oldest() if it is a page of a
 * temporary table.
 */
static inline ZXid
zpage_oldest(Page page)
{
	for (int i = 1; i <= zpage_nslots(page); i++)
		if (zpage_slot(page, i)->ptr != InvalidUndoPtr && !zslot_locks_only(zpage_slot(page, i)))
			return zu_oldest_for(zpage_slot(page, i)->ptr);
	return zu_oldest();
}

/*
 * zslots_copy: fill view from a page whose buffer the caller holds locked, or
 * a copy without overflow page. Slots that hold only locks look unused
 * (PAGE-9): nothing of them concerns visibility. zslots_copy_raw: with those,
 * for who looks for locks.
 */
extern void zslots_copy(Relation rel, BlockNumber block, Page page, ZSlotView *view);
extern void zslots_copy_raw(Relation rel, BlockNumber block, Page page, ZSlotView *view);

/*
 * zvis_overflow_lock: pin the overflow page of a locked page that has one, and
 * lock it in mode. Error ERRCODE_DATA_CORRUPTED if the page does not name one
 * of its own.
 */
extern Buffer zvis_overflow_lock(Relation rel, BlockNumber block, Page page, int mode);

/*
 * zoverflow_fault: the detail of that error; buf: the overflow page, Invalid
 * if there is none of this owner in block overflow.
 */
extern int	zoverflow_fault(Buffer buf, BlockNumber overflow);

/*
 * zslot_read: slot s of a page whose buffer the caller holds locked, inline or
 * on the overflow page. A number above the present ones, or one that holds
 * only locks, gives an unused slot: what names it is visible to all.
 */
extern ZPageSlot zslot_read(Relation rel, BlockNumber block, Page page, int s);

/*
 * A bit that no transaction's id has: it marks, in a ZSlotView, a slot whose
 * transaction's undo is lost.
 */
#define ZXID_LOST	(UINT64CONST(1) << 47)

/*
 * zslot_xid: the xid in a slot of a locked page, to be compared with `oldest`.
 * With ZXID_LOST, so newer than anything, if the slot's undo is lost (UNDO-46
 * in undo/).
 */
extern ZXid zslot_xid_in_doubt(const ZPageSlot *slot);

static inline ZXid
zslot_xid(const ZPageSlot *slot)
{
	ZXid		xid = ZSLOT_XID(slot);

	return likely(!zu_in_doubt(xid)) ? xid : zslot_xid_in_doubt(slot);
}

/*
 * zslots_has: returns whether the slot that a row's header names is there;
 * false if it is 0 or was given up, so that the row is visible to all. Error
 * ERRCODE_DATA_CORRUPTED if the page never had so many.
 */
extern void zvis_corrupt_slotno(Relation rel, BlockNumber block, int s) zc_noreturn;

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
 * zvis_corrupt_page: raises ERRCODE_DATA_CORRUPTED for this block of rel, read
 * as page; 0 = no item in particular.
 */
extern void zvis_corrupt_page(Relation rel, BlockNumber block, Page page,
							  OffsetNumber off) zc_noreturn;

/*
 * zvis_corrupt_chain: the same for undo that the block points to; ptr: which,
 * 0 = unknown.
 */
extern void zvis_corrupt_chain(Relation rel, BlockNumber block, UndoPtr ptr) zc_noreturn;

/* zvis_corrupt_slot: the same for the transaction id in slot s. */
extern void zvis_corrupt_slot(Relation rel, BlockNumber block, int s, ZXid xid) zc_noreturn;

/*
 * zvis_check_xid: error unless the id in slot s, if not older than `oldest`,
 * can be a transaction's: before its status is asked.
 */
static inline void
zvis_check_xid(Relation rel, BlockNumber block, int s, ZXid xid)
{
	if (unlikely(!zxid_possible(xid)))
		zvis_corrupt_slot(rel, block, s, xid);
}

#endif
