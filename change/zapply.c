/*
 * change/zapply.c - row changes on a page, shared by DML, redo and tests.
 */
#include "postgres.h"

#include "change/zapply.h"
#include "page/zoverflow.h"

void
zapply_slot(Page page, const ZSlotChange *change)
{
	if (change->grow_to > zpage_nslots(page))
		zpage_grow_slots(page, change->grow_to);
	if (unlikely(change->common))
	{
		if (!change->overflow)
			zpage_set_lock_slot(page, change->slotno, ZSLOT_COMMON_LOCKS, change->xid, change->ptr);
	}
	else if (likely(!change->overflow))
		zpage_set_slot(page, change->slotno, change->xid, change->ptr);
	if (unlikely(change->overflow))
		zpage_count_overflow_change(page);
	else if (change->live_chain && !zpage_has_overflow(page))
	{
		ZPageTrailer *trailer = zpage_trailer(page);

		trailer->debt = Min((uint32) trailer->debt + change->undo_length, PG_UINT16_MAX);
	}
}

void
zapply_overflow_slot(Page overflow, const ZSlotChange *change)
{
	Assert(change->overflow);
	if (change->common)
		zoverflow_set_lock_slot(overflow, change->slotno, change->xid, change->ptr);
	else
		zoverflow_set_slot(overflow, change->slotno, change->xid, change->ptr);
}

void
zapply_common_locks(Page page, int slotno, int grow_to, ZXid hold, UndoPtr ptr)
{
	if (grow_to > zpage_nslots(page))
		zpage_grow_slots(page, grow_to);
	zpage_set_lock_slot(page, slotno, ZSLOT_COMMON_LOCKS, hold, ptr);
}

void
zapply_insert(Page page, OffsetNumber off, const char *row, Size len)
{
	zpage_put_row(page, off, row, len);
}

void
zapply_update(Page page, OffsetNumber off, const char *row, Size len, bool clear_locks)
{
	ZHeader		old = zheader_get(zpage_row(page, PageGetItemId(page, off)));

	zpage_replace_row(page, off, row, len);
	if (!clear_locks && ZH_LOCK(old) != 0)
	{
		ZHeader		new = zheader_get(zpage_row(page, PageGetItemId(page, off)));

		zpage_set_header(page, off, ZH_WITH_LOCK(new, ZH_LOCK(old)));
	}
}

void
zapply_delete(Page page, OffsetNumber off, int slotno, int state, bool other_part)
{
	ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off)));

	h = ZH_WITH_STATE(ZH_WITH_SLOT(h, slotno), state) | ZH_KEY_CHANGE;
	if (other_part)
		h |= ZH_OTHER_PART;
	zpage_set_header(page, off, h);
}

void
zapply_lock(Page page, OffsetNumber off, int lockmode)
{
	ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off)));

	if (ZH_LOCK(h) < lockmode + 1)
		zpage_set_header(page, off, ZH_WITH_LOCK(h, lockmode + 1));
}

void
zapply_inline_lock(Page page, int slotno, int grow_to, bool fresh, ZXid xid, OffsetNumber off, int mode)
{
	if (grow_to > zpage_nslots(page))
		zpage_grow_slots(page, grow_to);
	zpage_set_lock_slot(page, slotno, ZSLOT_INLINE_LOCKS, xid,
						zinline_add(fresh ? 0 : zpage_slot(page, slotno)->ptr, off, mode));
	zapply_lock(page, off, mode);
}

void
zapply_speculative(Page page, OffsetNumber off, bool confirmed)
{
	ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off))) & ~ZH_SPECULATIVE;

	zpage_set_header(page, off, confirmed ? h : ZH_WITH_STATE(h, ZSTATE_DELETED));
}

void
zapply_image(Page page, UndoPtr ptr)
{
	ZPageTrailer *trailer = zpage_trailer(page);

	trailer->image = ptr;
	trailer->debt = 0;
}
