/*
 * page/zoverflow.h - the slots on a slot overflow page.
 *
 * Their numbers follow those of the inline slots of the table page that owns
 * the overflow page. Slots are added at the end only; pd_lower shows how many
 * there are. The caller has locked the overflow page and its table
 * page. Redo uses the same functions.
 *
 * Invariant
 *	OVERFLOW-3	Both pages count the changes of these slots, starting at a
 *		random number when the overflow page is attached. Each change is one
 *		WAL record for both pages. So the counts differ if storage has lost a
 *		write of one of them, which each reader reports (zoverflow_fits),
 *		zundo.check among them.
 */
#ifndef ZUNDO_ZOVERFLOW_H
#define ZUNDO_ZOVERFLOW_H

#include "page/zpage.h"
#include "undo/undo_overflow.h"

StaticAssertDecl(ZU_OVERFLOW_DATA +
				 (ZPAGE_MAX_SLOTS - ZPAGE_INITIAL_SLOTS) * sizeof(ZPageSlot) <= BLCKSZ,
				 "all slots after the inline ones fit an overflow page");

/* zoverflow_first: returns the number of the first slot of this page. */
static inline int
zoverflow_first(Page page)
{
	return zu_overflow_header(page)->first;
}

/*
 * zoverflow_last: returns the number of the last slot of this page, first - 1
 * if it has no slot yet.
 */
static inline int
zoverflow_last(Page page)
{
	return zoverflow_first(page) - 1 +
		(((PageHeader) page)->pd_lower - ZU_OVERFLOW_DATA) / (int) sizeof(ZPageSlot);
}

/*
 * zoverflow_fits: returns true if this overflow page and the table page that
 * owns it count the same changes, so that neither of them is an old version
 * (OVERFLOW-3).
 */
static inline bool
zoverflow_fits(Page page, Page table_page)
{
	return zoverflow_first(page) == zpage_nslots(table_page) + 1 &&
		zu_overflow_header(page)->changes == zpage_trailer(table_page)->debt;
}

/*
 * zoverflow_slot: returns slot i, first <= i <= last, or the place where
 * zoverflow_set_slot adds a slot after the last one.
 */
static inline ZPageSlot *
zoverflow_slot(Page page, int i)
{
	Assert(i >= zoverflow_first(page) && i <= ZPAGE_MAX_SLOTS);
	return (ZPageSlot *) ((char *) page + ZU_OVERFLOW_DATA) + (i - zoverflow_first(page));
}

/* zoverflow_has_slot: returns true if slot i belongs to this page. */
static inline bool
zoverflow_has_slot(Page page, int i)
{
	return zoverflow_first(page) > 0 && i >= zoverflow_first(page) && i <= ZPAGE_MAX_SLOTS &&
		ZU_OVERFLOW_DATA + (i - zoverflow_first(page) + 1) * sizeof(ZPageSlot) <= BLCKSZ;
}

/*
 * zoverflow_set_slot: makes slot i name the record at ptr, written by xid;
 * both are 0 to free it. If i is beyond the last slot, adds the slots up to i;
 * those before i are free. The caller also calls zpage_count_overflow_change
 * for the table page (OVERFLOW-3).
 */
static inline void
zoverflow_set_slot(Page page, int i, ZXid xid, UndoPtr ptr)
{
	int			last = zoverflow_last(page);

	Assert(zoverflow_has_slot(page, i));
	Assert((xid == InvalidZXid) == (ptr == InvalidUndoPtr));
	if (i > last)
	{
		memset(zoverflow_slot(page, last + 1), 0, (i - last) * sizeof(ZPageSlot));
		((PageHeader) page)->pd_lower += (i - last) * sizeof(ZPageSlot);
	}
	zoverflow_slot(page, i)->xid_flags = xid & ZXID_MASK;
	zoverflow_slot(page, i)->ptr = ptr;
	zu_overflow_header(page)->changes++;
}

/*
 * zoverflow_set_lock_slot: makes slot i the page's common lock slot; see
 * zpage_set_lock_slot.
 */
static inline void
zoverflow_set_lock_slot(Page page, int i, ZXid hold, UndoPtr ptr)
{
	zoverflow_set_slot(page, i, hold, ptr);
	zoverflow_slot(page, i)->xid_flags |= ZSLOT_COMMON_LOCKS;
}

#endif
