/*
 * mvcc/zslots.c - reading the transaction slots of a page; reports of damage.
 *
 * Called by mvcc/, rollback/, scan/, dml/, vacuum/ and monitor/. Slots are read
 * while the table page is locked; those on its overflow page under that page's
 * share lock, which is taken after the table page's and released before return;
 * XactTruncationLock while clog is asked about a slot in the doubt window.
 * Only zvis_overflow_lock returns with the overflow page locked, in the mode
 * that the caller wants. Nothing is written. No crash points.
 */
#include "postgres.h"

#include "access/transam.h"
#include "common/compat.h"
#include "mvcc/zcommitted.h"
#include "mvcc/zslots.h"
#include "mvcc/zxid.h"
#include "page/zoverflow.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"
#include "undo/undo_overflow.h"
#include "utils/rel.h"

/*
 * zvis_overflow_fault: See zslots.h. Returns what errdetail does, for use in an
 * ereport.
 */
int
zvis_overflow_fault(Buffer buf, BlockNumber overflow)
{
	if (!BufferIsValid(buf))
		return errdetail("Its overflow transaction slots are not in block %u of relation \"%s\".",
						 overflow, "zundo.undo_log");
	return errdetail("It and its overflow transaction slots in block %u of relation \"%s\" are "
					 "not of one time. "
					 "A write of one of them was lost.", overflow, "zundo.undo_log");
}

/*
 * zvis_overflow_lock: See zslots.h. Locks the overflow page and compares the
 * two pages: they fit if both have counted the same number of changes
 * (OVERFLOW-3 in page/zoverflow.h).
 */
Buffer
zvis_overflow_lock(Relation rel, BlockNumber block, Page page, int mode)
{
	BlockNumber overflow = zpage_trailer(page)->overflow;
	Buffer		buf = zu_overflow_lock(overflow, rel->rd_locator.relNumber, block, mode);

	Assert(zpage_has_overflow(page));
	if (!BufferIsValid(buf) || !zoverflow_fits(BufferGetPage(buf), page))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("block %u of relation \"%s\" is corrupted", block,
						RelationGetRelationName(rel)), zvis_overflow_fault(buf, overflow),
				 errhint("Run SELECT * FROM zundo.check('%s').", RelationGetRelationName(rel))));
	return buf;
}

/* Adds the slots of page's overflow page to view. */
static void
copy_overflow(Relation rel, BlockNumber block, Page page, ZSlotView *view)
{
	Buffer		buf = zvis_overflow_lock(rel, block, page, BUFFER_LOCK_SHARE);
	Page		overflow = BufferGetPage(buf);
	int			last = Min(zoverflow_last(overflow), ZPAGE_MAX_SLOTS);

	if (last > view->n)
		memcpy(&view->s[view->n + 1], zoverflow_slot(overflow, view->n + 1),
			   (last - view->n) * sizeof(ZPageSlot));
	view->n = last;
	UnlockReleaseBuffer(buf);
}

/*
 * zslots_copy_raw: See zslots.h. Copies `oldest` together with the slots,
 * under the page's lock (VIS-1).
 */
void
zslots_copy_raw(Relation rel, BlockNumber block, Page page, ZSlotView *view)
{
	view->oldest = zslots_oldest(page);
	view->n = zpage_nslots(page);
	view->had_more = (zpage_trailer(page)->overflow != ZPAGE_NO_OVERFLOW);
	Assert(view->n <= ZPAGE_MAX_SLOTS);
	for (int i = 1; i <= view->n; i++)
		view->s[i] = *zpage_slot(page, i);
	if (zpage_has_overflow(page))
		copy_overflow(rel, block, page, view);
}

/*
 * Makes a slot that holds only locks look unused: it concerns no version of a
 * row.
 */
static inline void
hide_locks(ZPageSlot *slot)
{
	if (unlikely(zslot_locks_only(slot)))
		memset(slot, 0, sizeof(ZPageSlot));
}

/*
 * zslot_is_lost: See zslots.h. Slots with locks only, or of temporary tables,
 * have no undo that can be lost.
 */
bool
zslot_is_lost(const ZPageSlot *slot)
{
	ZXid		xid = ZSLOT_XID(slot);
	bool		committed;

	Assert(slot->ptr != InvalidUndoPtr);
	if (zslot_locks_only(slot) || zuptr_is_temp(slot->ptr) || zcommitted_known(xid))
		return false;

	/*
	 * clog must not be cut off while it is read. The comparison needs the
	 * whole xid: the window may lie more than 2^31 transactions back.
	 */
	LWLockAcquire(XactTruncationLock, LW_SHARED);
	committed = xid < zxid_widen(zc_oldest_clog_xid()) || zxid_ended_committed(xid);
	LWLockRelease(XactTruncationLock);
	return !committed;
}

/*
 * zslots_copy: See zslots.h. Copies the slots, and hides the locks among them.
 */
void
zslots_copy(Relation rel, BlockNumber block, Page page, ZSlotView *view)
{
	zslots_copy_raw(rel, block, page, view);
	for (int i = 1; i <= view->n; i++)
		hide_locks(&view->s[i]);
}

/* zslots_may_be_ours: See zslots.h. */
bool
zslots_may_be_ours(Page page, ZHeader header)
{
	int			s = ZH_SLOT(header);

	if (s == 0 || s > zpage_nslots(page))
		return s != 0;
	return zslot_age(zpage_slot(page, s), zslots_oldest(page)) == ZAGE_YOUNG &&
		zxid_is_ours(ZSLOT_XID(zpage_slot(page, s)));
}

/*
 * zslot_read_any: See zslots.h. Reads the overflow page only for a slot that
 * is on it.
 */
ZPageSlot
zslot_read_any(Relation rel, BlockNumber block, Page page, int s)
{
	ZPageSlot	slot = {0};

	Assert(s >= 1 && s <= ZPAGE_MAX_SLOTS);
	if (s <= zpage_nslots(page))
		slot = *zpage_slot(page, s);
	else if (zpage_has_overflow(page))
	{
		Buffer		buf = zvis_overflow_lock(rel, block, page, BUFFER_LOCK_SHARE);

		if (s <= zoverflow_last(BufferGetPage(buf)))
			slot = *zoverflow_slot(BufferGetPage(buf), s);
		UnlockReleaseBuffer(buf);
	}
	else if (unlikely(zpage_trailer(page)->overflow == ZPAGE_NO_OVERFLOW))
		zvis_corrupt_slotno(rel, block, s);
	hide_locks(&slot);
	return slot;
}

/*
 * zvis_corrupt_page: See zslots.h. Reports as the detail the fault of the page
 * as a whole, if it has one; else the item.
 */
void
zvis_corrupt_page(Relation rel, BlockNumber block, Page page, OffsetNumber off)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of relation \"%s\" is corrupted", block,
					RelationGetRelationName(rel)),
			 off == InvalidOffsetNumber || !zpage_is_valid(page)
			 ? errdetail_internal("%s", zpage_fault(page))
			 : errdetail("Line pointer %u is not valid on a zheap page.", off),
			 errhint("Run SELECT * FROM zundo.check('%s').", RelationGetRelationName(rel))));
	pg_unreachable();
}

/*
 * zvis_corrupt_slot: See zslots.h. Raises one of two errors: lost undo and an
 * unassigned id are different faults, with different hints.
 */
void
zvis_corrupt_slot(Relation rel, BlockNumber block, int s, ZXid xid, bool lost)
{
	if (lost)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("block %u of relation \"%s\" has changes of transaction " UINT64_FORMAT
						", whose undo is lost",
						block, RelationGetRelationName(rel), xid),
				 errdetail("The transaction, in slot %d, did not commit, and its changes cannot "
						   "be undone.", s),
				 errhint("A write to \"%s\" was lost. Check the storage, and restore the table "
						 "from a backup.", "zundo.undo_log")));
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of relation \"%s\" is corrupted", block,
					RelationGetRelationName(rel)),
			 errdetail("Transaction slot %d has transaction ID " UINT64_FORMAT
					   ", which has not been assigned yet.",
					   s, xid),
			 errhint("Run SELECT * FROM zundo.check('%s').", RelationGetRelationName(rel))));
	pg_unreachable();
}

/* zvis_corrupt_slotno: See zslots.h. */
void
zvis_corrupt_slotno(Relation rel, BlockNumber block, int s)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of relation \"%s\" is corrupted", block,
					RelationGetRelationName(rel)),
			 errdetail("A row refers to transaction slot %d, which does not exist on the page.", s),
			 errhint("Run SELECT * FROM zundo.check('%s').", RelationGetRelationName(rel))));
	pg_unreachable();
}

/*
 * zvis_corrupt_chain: See zslots.h. Raises ERRCODE_DATA_CORRUPTED; also when a
 * reader had to copy the page too often.
 */
void
zvis_corrupt_chain(Relation rel, BlockNumber block, UndoPtr ptr)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("undo of block %u of relation \"%s\" cannot be followed", block,
					RelationGetRelationName(rel)),
			 errdetail("The page points to undo record %X/%X, which is missing or does not match "
					   "the row.",
					   (uint32) (ptr >> 32), (uint32) ptr),
			 errhint("Run SELECT * FROM zundo.check('%s').", RelationGetRelationName(rel))));
	pg_unreachable();
}
