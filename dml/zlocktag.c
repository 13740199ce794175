/*
 * dml/zlocktag.c - rows locked by one LOCK record.
 *
 * A command that locks many rows of a page writes one open LOCK record; the
 * rows get the number of its slot as their lock tag. Owns what this backend
 * knows of these records. Called by zlock.c and zconvert.c with the page
 * exclusively locked. Takes no other locks. Crash point: that of inline locks.
 *
 * Rules: TAG-1 to TAG-5 in dml/README.md.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "mvcc/zcommitted.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * The LOCK record that the backend has pushed last on a chain of a page. It is
 * known by its pointer, which no other record will ever have; so nothing has to
 * be forgotten when a (sub)transaction ends or a file is exchanged.
 */
typedef struct LockHead
{
	UndoPtr		ptr;			/* Invalid: none that matters */
	ZXid		xid;
	RelFileNumber relnumber;
	BlockNumber block;
	uint16		slotno;
	uint8		mode;
	bool		open;			/* if not: there is no open record of our
								 * transaction in the chain */
} LockHead;

/* A place for each of the pages that hash to it. */
#define HEADS 64

static struct
{
	LockHead	of_page[HEADS];
}			heads;

static inline LockHead *
place_of(RelFileNumber relnumber, BlockNumber block)
{
	return &heads.of_page[murmurhash32(relnumber ^ murmurhash32(block)) % HEADS];
}

/*
 * Returns what is known of the page if its slot still has the record as its
 * head, and this (sub)transaction has written it; else NULL.
 */
static const LockHead *
head_on(const ZWriter *writer, Page page, BlockNumber block)
{
	RelFileNumber relnumber = writer->rel->rd_locator.relNumber;
	const LockHead *head = place_of(relnumber, block);
	const ZPageSlot *slot;

	if (head->ptr == InvalidUndoPtr || head->block != block || head->relnumber != relnumber ||
		head->xid != writer->xid || head->slotno > zpage_nslots(page))
		return NULL;
	slot = zpage_slot(page, head->slotno);
	return slot->ptr == head->ptr && slot->xid_flags == head->xid ? head : NULL;
}

/*
 * Returns whether the row's lock tag locks nothing any more, so that the row
 * may get another (TAG-3). May return false for such a tag, too.
 */
static bool
tag_is_free(Page page, ZHeader h)
{
	const ZPageSlot *slot;
	ZXid		xid;

	if (ZH_TAG(h) == 0)
		return true;
	if (ZH_TAG(h) > zpage_nslots(page))
		return false;			/* damaged (PAGE-3) */
	slot = zpage_slot(page, ZH_TAG(h));
	if (slot->ptr == InvalidUndoPtr || zslot_locks_only(slot))
		return true;
	xid = zslot_xid(slot);
	return xid < zu_oldest() || zcommitted_known(xid);
}

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

bool
zlocktag_lock(const ZWriter *writer, Buffer buf, OffsetNumber off, LockTupleMode mode)
{
	Page		page = BufferGetPage(buf);
	const LockHead *head = head_on(writer, page, BufferGetBlockNumber(buf));
	ItemId		lp = PageGetItemId(page, off);
	ZWalInlineLock lock = {0};

	if (head == NULL || !head->open || head->mode != mode || !ItemIdIsNormal(lp) ||
		!tag_is_free(page, zheader_get(zpage_row(page, lp))))
		return false;
	lock.offset = off;
	lock.mode = mode;
	lock.slotno = head->slotno;
	lock.tag = true;
	zlock_put_inline(writer, buf, &lock);
	return true;
}

/*
 * The first lock on a page is mostly the only one, so it does not open
 * anything. The slots of an overflow page cannot be named by tags. Tags that
 * name the slot are of earlier owners, and go when the record is pushed
 * (TAG-2).
 */
bool
zlocktag_opens(const ZWriter *writer, Buffer buf, OffsetNumber off, const ZSlotPick *pick)
{
	Page		page = BufferGetPage(buf);
	const LockHead *head = head_on(writer, page, BufferGetBlockNumber(buf));
	ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off)));

	if (head == NULL || head->open || head->slotno != pick->slotno || pick->overflow != 0)
		return false;
	Assert(pick->prev == head->ptr && !writer->temp);
	return ZH_TAG(h) == pick->slotno || tag_is_free(page, h);
}

void
zlocktag_note(const ZChange *change, int i, bool alone)
{
	const ZuRecord *rec = &change->rec[i];
	LockHead   *head = place_of(rec->relnumber, rec->block);

	Assert(rec->type == ZUR_LOCK && !(alone && rec->open));
	head->ptr = (alone || rec->open) && !change->op.temp && !change->page[0].slot.in_overflow
		? change->op.ptr[i] : InvalidUndoPtr;
	head->xid = rec->xid;
	head->relnumber = rec->relnumber;
	head->block = rec->block;
	head->slotno = change->page[0].slot.slotno;
	head->mode = rec->lockmode;
	head->open = rec->open;
}
