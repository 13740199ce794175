/*
 * page/zoverflow.h - the slots on a slot overflow page.
 *
 * Their numbers go on after the inline ones of the table page that owns the overflow page. Slots are added at
 * the end, one by one; the page's pd_lower tells how many there are. Accessors and the mutator take a page that
 * the caller has locked, together with its table page; redo uses the same ones.
 *
 * Invariant
 *	O1	both pages count the changes of these slots, beginning at a number chosen at random when the overflow
 *		page is attached, and each change is one WAL record for both: so they differ if storage has
 *		lost a write of one of them (zoverflow_fits).
 */
#ifndef ZUNDO_ZOVERFLOW_H
#define ZUNDO_ZOVERFLOW_H

#include "page/zpage.h"
#include "undo/undo_overflow.h"

StaticAssertDecl(ZU_OVERFLOW_DATA + (ZPAGE_MAX_SLOTS - ZPAGE_INITIAL_SLOTS) * sizeof(ZPageSlot) <= BLCKSZ,
				 "all slots after the inline ones fit an overflow page");

/* zoverflow_first: number of the first slot here. */
static inline int
zoverflow_first(Page page)
{
	return zu_overflow_header(page)->first;
}

/* zoverflow_last: number of the last slot here; first - 1 if there is none yet. */
static inline int
zoverflow_last(Page page)
{
	return zoverflow_first(page) - 1 +
		(((PageHeader) page)->pd_lower - ZU_OVERFLOW_DATA) / (int) sizeof(ZPageSlot);
}

/* zoverflow_fits: is this, owned by that table page, the version of its overflow page that it means (O1)? */
static inline bool
zoverflow_fits(Page page, Page table_page)
{
	return zoverflow_first(page) == zpage_nslots(table_page) + 1 &&
		zu_overflow_header(page)->changes == zpage_trailer(table_page)->debt;
}

/* zoverflow_slot: slot i, first <= i <= last. */
static inline ZPageSlot *
zoverflow_slot(Page page, int i)
{
	return (ZPageSlot *) ((char *) page + ZU_OVERFLOW_DATA) + (i - zoverflow_first(page));
}

/* zoverflow_has_slot: may the page have slot i, once it is set? */
static inline bool
zoverflow_has_slot(Page page, int i)
{
	return zoverflow_first(page) > 0 && i >= zoverflow_first(page) && i <= ZPAGE_MAX_SLOTS &&
		ZU_OVERFLOW_DATA + (i - zoverflow_first(page) + 1) * sizeof(ZPageSlot) <= BLCKSZ;
}

/*
 * zoverflow_set_slot: slot i names the record at ptr, written by xid; both 0 = free. Slots up to i come to be if
 * they are not there. The caller does zpage_count_overflow_change to the table page (O1).
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

/* zoverflow_set_lock_slot: slot i becomes the page's common lock slot; see zpage_set_lock_slot. */
static inline void
zoverflow_set_lock_slot(Page page, int i, ZXid hold, UndoPtr ptr)
{
	zoverflow_set_slot(page, i, hold, ptr);
	zoverflow_slot(page, i)->xid_flags |= ZSLOT_COMMON_LOCKS;
}

#endif
