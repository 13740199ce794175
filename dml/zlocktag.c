/*
 * dml/zlocktag.c - locking many rows of a page by one LOCK record.
 *
 * The first rows of a page that a transaction locks have an inline lock or a
 * LOCK record of their own. The LOCK record of a further row can be open. Rows
 * locked after that need no record: their headers get a lock tag, the number of
 * the slot whose chain begins with the open record, which the backend remembers
 * (zheld.c). Called by zlock.c with the page exclusively locked. Takes no other
 * locks. Crash point: "inline-lock-logged".
 *
 *	TAG-1	A LOCK record can be *open*. An open record locks all rows of its
 *		page whose header has the number of the record's slot as *lock tag*, for
 *		its (sub)transaction, and in its mode, or FOR UPDATE if the row's lock
 *		hint says so (zheader_tag_mode). A tag alone locks nothing: it has an
 *		effect only if the slot's chain contains an open record of a
 *		transaction in progress. So nothing is written when the locks end; the
 *		tags stay in the row headers.
 *	TAG-2	In the chain of a slot the slot's present owner has at most one
 *		open record, and when it is pushed no row has the slot's tag. So
 *		undoing it removes the tag from all rows of the page: all of them got
 *		it from this record.
 *		(a) It is written only by a (sub)transaction whose first locks on the
 *			page are directly below it in the chain, as one LOCK record or as
 *			converted inline locks (INLINE-2 in docs/locking.md), and that has
 *			no other records there. Tags that name the slot because of an
 *			earlier owner are removed by the change that pushes the open
 *			record, or that converts the inline locks.
 *		(b) It is never in a slot of the overflow page: a tag can name inline
 *			slots only, whose numbers never change.
 *		(c) A further row is locked by setting tag and lock hint in its header,
 *			with a WAL record that names no undo, if the open record is the
 *			head of the slot's chain, belongs to the same (sub)transaction, and
 *			has the same mode or UPDATE is wanted, and if the row has no other
 *			tag that may still have an effect. A tag certainly has none if its
 *			slot has no chain, or an owner that is before `oldest` or known to
 *			have committed (VIS-9). Otherwise the row gets a LOCK record that is
 *			not open. So any record that is pushed on the open one ends its use.
 *			A different command does not, because snapshots do not see locks.
 *		(d) If a row with the tag has the hint UPDATE, the open record's
 *			transaction holds it FOR UPDATE. A tag of a weaker mode takes an
 *			old hint of UPDATE away (tag_row): the lock would not have been
 *			granted beside one that is held. Afterwards only the transaction
 *			itself can get UPDATE. If a subtransaction does by a record of its
 *			own, undoing that takes the hint away (zpage_undo): a row that is
 *			held FOR UPDATE gets no further such record.
 *		Example: a transaction that has locked row 1 by a LOCK record of slot 2
 *			pushes an open one with row 2; rows 3 to 50 get tag 2 and their
 *			hint.
 *	TAG-5	The tag belongs to the row's header as the lock hint does, not to a
 *		version.
 *		(a) Updates in place, deletions and the undoing of either, by any
 *			transaction, leave it.
 *		(b) It is removed together with the hint when an update finds that no
 *			transaction holds a lock on the row, or only its own (loses_locks
 *			in zrowwrite.c), and it disappears with the row's bytes. If a line
 *			pointer loses its row, the lock by tag ends there, maybe while the
 *			locker is in progress, and the next row at this offset has no tag,
 *			which a backend checks that remembers a lock by tag (LOCK-11).
 *		(c) A row that moves has no tag at its new place; the mover writes the
 *			locks of other transactions into a LOCKS record (LOCK-1).
 *		Example: A holds row 3 FOR KEY SHARE by tag 2. B changes a column that
 *			is in no key: the row keeps tag 2, by which a DELETE finds A.
 */
#include "postgres.h"

#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "mvcc/zcommitted.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * Returns the remembered record of the page, or NULL if there is none, if it is
 * not the head of its slot any more, or if another (sub)transaction wrote it.
 */
static const ZHeldRecord *
head_on(const ZWriter *writer, Page page, BlockNumber block)
{
	const ZHeldRecord *head = zheld_record(writer->rel, block);
	const ZPageSlot *slot;

	if (head == NULL || head->xid != writer->xid || head->slotno > zpage_nslots(page))
		return NULL;
	slot = zpage_slot(page, head->slotno);
	return slot->ptr == head->ptr && slot->xid_flags == head->xid ? head : NULL;
}

/*
 * Returns true only if the row has no lock tag, or one by which no transaction
 * holds a lock, so that the row may get another tag (TAG-2). May return false
 * for a tag that has no effect any more.
 */
static bool
tag_is_free(Page page, ZHeader h)
{
	const ZPageSlot *slot;

	if (ZH_TAG(h) == 0)
		return true;
	if (ZH_TAG(h) > zpage_nslots(page))
		return false;			/* damaged (PAGE-3) */
	slot = zpage_slot(page, ZH_TAG(h));
	return zslot_age(slot, zu_oldest()) <= ZAGE_LOCKS || zcommitted_known(ZSLOT_XID(slot));
}

/* zlock_put_inline: See zdml_internal.h. */
void
zlock_put_inline(const ZWriter *writer, Buffer buf, const ZWalInlineLock *lock)
{
	Page		page = BufferGetPage(buf);

	START_CRIT_SECTION();
	zapply_inline_lock(page, lock, writer->xid);
	MarkBufferDirty(buf);
	if (writer->logged)
	{
		XLogRecPtr	recptr = zwal_log_inline_lock(buf, lock);

		PageSetLSN(page, recptr);
	}
	ZUNDO_FAULT("inline-lock-logged");
	END_CRIT_SECTION();
}

/* zlocktag_lock: See zdml_internal.h. */
bool
zlocktag_lock(const ZWriter *writer, Buffer buf, OffsetNumber off, LockTupleMode mode)
{
	Page		page = BufferGetPage(buf);
	const ZHeldRecord *head = head_on(writer, page, BufferGetBlockNumber(buf));
	ItemId		lp = PageGetItemId(page, off);
	ZWalInlineLock lock = {0};
	ZHeader		h;

	if (head == NULL || !head->open || (head->mode != mode && mode != LockTupleExclusive) ||
		!ItemIdIsNormal(lp))
		return false;
	h = zheader_get(zpage_row(page, lp));
	if (ZH_TAG(h) != head->slotno && !tag_is_free(page, h))
		return false;
	lock.offset = off;
	lock.mode = mode;
	lock.slotno = head->slotno;
	lock.tag = true;
	zlock_put_inline(writer, buf, &lock);
	return true;
}

/*
 * zlocktag_opens: See zdml_internal.h. The first record on a page is not open,
 * because most transactions lock only one row of a page. A record in a slot of
 * the overflow page is not, because tags cannot name these slots. The row may
 * already have the tag of the slot, left by an earlier owner: pushing the open
 * record removes such tags (TAG-2).
 */
bool
zlocktag_opens(const ZWriter *writer, Buffer buf, OffsetNumber off, const ZSlotPick *pick)
{
	Page		page = BufferGetPage(buf);
	const ZHeldRecord *head = head_on(writer, page, BufferGetBlockNumber(buf));
	ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off)));

	if (head == NULL || head->open || head->slotno != pick->slotno || pick->overflow != 0)
		return false;
	Assert(pick->prev == head->ptr && !writer->temp);
	return ZH_TAG(h) == pick->slotno || tag_is_free(page, h);
}
