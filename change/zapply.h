/*
 * change/zapply.h - the row changes themselves, as DML and redo both apply them.
 *
 * Each function changes one exclusively locked page inside a critical section;
 * nothing can fail. What a change needs was checked while it was prepared.
 */
#ifndef ZUNDO_ZAPPLY_H
#define ZUNDO_ZAPPLY_H

#include "page/zpage.h"

/* How a change enters its transaction slot. */
typedef struct ZSlotChange
{
	int			slotno;
	int			grow_to;		/* number of inline slots to have first; 0 = no growth */
	ZXid		xid;			/* writer of the newest record */
	UndoPtr		ptr;			/* newest record */
	bool		live_chain;		/* pushed on a chain that snapshots may still walk */
	uint16		undo_length;	/* bytes of the record, for the image debt */
	bool		overflow;		/* the slot lies on the overflow page: zapply_overflow_slot sets it */
	bool		common;			/* the common lock slot: xid is its youngest locker's, the record is of type LOCKS */
} ZSlotChange;

/* zapply_slot: grow the inline slots if asked, then make the slot, if inline, name the new record. */
extern void zapply_slot(Page page, const ZSlotChange *change);

/* zapply_overflow_slot: make the slot on the table page's overflow page name the new record. */
extern void zapply_overflow_slot(Page overflow, const ZSlotChange *change);

/* zapply_common_locks: grow the inline slots if asked (0 = no), then make slotno the common lock slot with the record at ptr. */
extern void zapply_common_locks(Page page, int slotno, int grow_to, ZXid hold, UndoPtr ptr);

/*
 * zapply_inline_lock: grow the inline slots if asked (0 = no), then add the lock to slotno, which xid has or, if fresh,
 * gets; the row at off gets the hint.
 */
extern void zapply_inline_lock(Page page, int slotno, int grow_to, bool fresh, ZXid xid, OffsetNumber off, int mode);

/* zapply_insert: a new row at off; its header already names the slot. */
extern void zapply_insert(Page page, OffsetNumber off, const char *row, Size len);

/* zapply_update: the row at off becomes 'row' (header complete but for lock hints, which stay). */
extern void zapply_update(Page page, OffsetNumber off, const char *row, Size len, bool clear_locks);

/* zapply_delete: the row at off is deleted or moved (state) by the owner of slotno. */
extern void zapply_delete(Page page, OffsetNumber off, int slotno, int state, bool other_part);

/* zapply_lock: remember that a lock of this strength (LockTupleMode) may be held on the row at off. */
extern void zapply_lock(Page page, OffsetNumber off, int lockmode);

/* zapply_speculative: the speculative row at off is confirmed, or given up: then it is deleted. */
extern void zapply_speculative(Page page, OffsetNumber off, bool confirmed);

/* zapply_image: the page's newest image is the record at ptr. */
extern void zapply_image(Page page, UndoPtr ptr);

#endif
