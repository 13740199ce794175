/*
 * mvcc/zvis.c - the visible version of one row; the writer of the newest one.
 *
 * zvis_fetch copies the row under the page's share lock and walks undo without
 * it. zrow_writer is for callers that hold the page locked.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mvcc/zwalk.h"
#include "page/zoverflow.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "tuple/zslot.h"
#include "undo/undo_temp.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* How often a page may have changed under a walk before we call it corrupt. */
#define MAX_RETRIES 1000

/* Pin and lock (share) the overflow page of a locked page. */
static Buffer
lock_overflow(Page page)
{
	BlockNumber block = zpage_trailer(page)->overflow;
	Buffer		buf = zu_overflow_lock(block, InvalidRelFileNumber, InvalidBlockNumber,
									   BUFFER_LOCK_SHARE);

	if (zoverflow_first(BufferGetPage(buf)) != zpage_nslots(page) + 1)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("block %u of relation \"%s\" begins with slot %d, its table page has %d slots",
						block, "zundo.undo_log", zoverflow_first(BufferGetPage(buf)),
						zpage_nslots(page))));
	return buf;
}

/* Add the slots of page's overflow page to view. */
static void
copy_overflow(Page page, ZSlotView *view)
{
	Buffer		buf = lock_overflow(page);
	Page		overflow = BufferGetPage(buf);
	int			last = Min(zoverflow_last(overflow), ZPAGE_MAX_SLOTS);

	if (last > view->n)
		memcpy(&view->s[view->n + 1], zoverflow_slot(overflow, view->n + 1),
			   (last - view->n) * sizeof(ZPageSlot));
	view->n = last;
	UnlockReleaseBuffer(buf);
}

void
zslots_copy(Page page, ZSlotView *view)
{
	view->oldest = zpage_oldest(page);
	view->n = zpage_nslots(page);
	for (int i = 1; i <= view->n; i++)
		view->s[i] = *zpage_slot(page, i);
	if (unlikely(zpage_trailer(page)->overflow != InvalidBlockNumber))
		copy_overflow(page, view);
}

ZPageSlot
zslot_read(Page page, int s)
{
	ZPageSlot	slot = {0};

	if (likely(s <= zpage_nslots(page)))
		return *zpage_slot(page, s);
	if (zpage_trailer(page)->overflow != InvalidBlockNumber)
	{
		Buffer		buf = lock_overflow(page);

		if (s <= zoverflow_last(BufferGetPage(buf)))
			slot = *zoverflow_slot(BufferGetPage(buf), s);
		UnlockReleaseBuffer(buf);
	}
	return slot;
}

void
zvis_check_temp(UndoPtr ptr, ZXid xid, Snapshot snapshot)
{
	TransactionId x = zxid_to_xid(xid);

	if (!zuptr_is_temp(ptr) || xid >= zu_temp_oldest() || TransactionIdPrecedes(x, snapshot->xmin))
		return;
	/* the xid may be so old that 32 bits mislead */
	if (xid >= zxid_widen(snapshot->xmin) && XidInMVCCSnapshot(x, snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a temporary table was changed after the imported snapshot was taken"),
				 errdetail("Old versions of temporary zheap tables are kept for the session's own snapshots only.")));
}

static inline bool
is_mvcc(Snapshot snapshot)
{
	return snapshot != InvalidSnapshot && IsMVCCSnapshot(snapshot);
}

/* Acceptance for a Dirty snapshot: newest version not aborted; says who is at work. */
static void
dirty_result(Snapshot snapshot, const ZWalk *walk, ZXidStatus status)
{
	const ZuRecord *rec = &walk->rec;

	if (status != ZXID_IN_PROGRESS)
		return;
	if (rec->type == ZUR_INSERT)
	{
		snapshot->xmin = zxid_to_xid(rec->xid);
		if ((rec->xflags & ZUX_SPECULATIVE) && (walk->header & ZH_SPECULATIVE))
			snapshot->speculativeToken = rec->token;
	}
	else
		snapshot->xmax = zxid_to_xid(rec->xid);
}

/*
 * Walk to the version that accept and snapshot want. False = copy the page again.
 * For a Dirty snapshot a row deleted by a transaction in progress counts as there.
 */
static bool
walk_to_version(ZWalk *walk, ZAccept *accept, Snapshot snapshot, bool dirty, ZXid *newest_xid, bool *live)
{
	for (;;)
	{
		ZWalkResult result = zwalk_find_writer(walk, accept);

		if (result == ZWALK_RETRY)
			return false;
		*live = ZH_LIVE(walk->header);
		if (result != ZWALK_WRITER)
			return true;
		if (dirty)
		{
			/* asked once: the answer may change while we look */
			ZXidStatus	status = zxid_status_at(walk->rec.xid, walk->slots->oldest);

			if (status != ZXID_ABORTED)
			{
				dirty_result(snapshot, walk, status);
				if (TransactionIdIsValid(snapshot->xmax))
					*live = walk->has_bytes;
				return true;
			}
		}
		else if (zaccept_version(accept, &walk->rec))
			return true;
		*newest_xid = walk->rec.xid;
		zwalk_step_back(walk);
		if (!walk->exists)
		{
			*live = false;
			return true;
		}
	}
}

/* Give the version in hand to the caller. */
static void
version_from_walk(ZVersion *version, ZWalk *walk, bool live)
{
	version->found = live && walk->has_bytes;
	if (!version->found)
		return;
	memcpy(version->buf, walk->row, walk->len);
	version->row = version->buf;
	version->len = walk->len;
}

/*
 * The cheap answer under the share lock: the row's chain as a whole is
 * visible. True if that settled it.
 */
static bool
fetch_settled(Page page, OffsetNumber off, Snapshot snapshot, ZVersion *version, bool *all_dead)
{
	ItemId		lp;
	ZHeader		header;
	const char *row = NULL;
	int			s;

	version->found = false;
	if (PageIsNew(page) || off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
		return true;
	lp = PageGetItemId(page, off);
	if (ItemIdIsNormal(lp))
	{
		row = zpage_row(page, lp);
		header = zheader_get(row);
		s = ZH_SLOT(header);
	}
	else if (ItemIdIsRedirected(lp))
	{
		header = ZH_WITH_STATE((ZHeader) 0, lp->lp_len);
		s = lp->lp_off;
	}
	else
	{
		*all_dead = true;
		return true;
	}
	version->chain = InvalidUndoPtr;
	version->chain_xid = InvalidZXid;
	if (s != 0)
	{
		ZPageSlot	slot = zslot_read(page, s);
		ZXid		xid = ZSLOT_XID(&slot);

		version->chain_xid = xid;
		version->chain = slot.ptr;
		if (xid >= zu_oldest_for(slot.ptr))
		{
			if (!is_mvcc(snapshot) || TransactionIdIsCurrentTransactionId(zxid_to_xid(xid)) ||
				!zxid_visible_mvcc(xid, snapshot))
				return false;
		}
		else if (!ZH_LIVE(header))
			*all_dead = true;
		if (unlikely(zuptr_is_temp(slot.ptr)) && is_mvcc(snapshot))
			zvis_check_temp(slot.ptr, xid, snapshot);
	}
	if (row != NULL && ZH_LIVE(header))
	{
		version->found = true;
		version->len = zrow_length(row, ItemIdGetLength(lp));
		memcpy(version->buf, row, version->len);
		version->row = version->buf;
	}
	return true;
}

void
zvis_conflict_out(Relation rel, Snapshot snapshot, ZXid unseen)
{
	TransactionId xid = zxid_to_xid(unseen);

	if (unseen == InvalidZXid || !is_mvcc(snapshot) ||
		!CheckForSerializableConflictOutNeeded(rel, snapshot))
		return;
	/* a change older than every running transaction is unseen only because it was rolled back */
	if (TransactionIdPrecedes(xid, TransactionXmin))
		return;
	xid = SubTransGetTopmostTransaction(xid);
	if (!TransactionIdPrecedes(xid, TransactionXmin) && !TransactionIdIsCurrentTransactionId(xid))
		CheckForSerializableConflictOut(rel, xid, snapshot);
}

void
zvis_corrupt_page(Relation rel, BlockNumber block, OffsetNumber off)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of relation \"%s\" is corrupted", block, RelationGetRelationName(rel)),
			 off == InvalidOffsetNumber
			 ? errdetail("The page header or a line pointer does not fit a zheap page.")
			 : errdetail("The page header or line pointer %u does not fit a zheap page.", off),
			 errhint("See zundo.check('%s').", RelationGetRelationName(rel))));
	pg_unreachable();
}

void
zvis_fetch(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZVersion *version,
		   bool *all_dead)
{
	static ZSlotView slots;
	static PGAlignedBlock copy;
	RelFileNumber relnumber = rel->rd_locator.relNumber;
	BlockNumber block = BufferGetBlockNumber(buf);
	bool		dirty = (snapshot->snapshot_type == SNAPSHOT_DIRTY);
	bool		dead = false;

	version->newest_xid = InvalidZXid;
	zwalk_workspace()->confirmed = InvalidUndoPtr;
	zwalk_workspace()->page_locked = false;
	if (all_dead)
		*all_dead = false;
	if (dirty)
	{
		snapshot->xmin = snapshot->xmax = InvalidTransactionId;
		snapshot->speculativeToken = 0;
	}
	for (int tries = 0; tries < MAX_RETRIES; tries++)
	{
		ZWalk	   *walk = zwalk_workspace();
		ZAccept		accept;
		Page		page = BufferGetPage(buf);
		bool		settled;
		bool		started = false;
		bool		has_image = false;
		bool		live = false;

		LockBuffer(buf, BUFFER_LOCK_SHARE);
		if (unlikely(!PageIsNew(page) && !zpage_item_ok(page, off)))
			zvis_corrupt_page(rel, block, off);
		settled = fetch_settled(page, off, snapshot, version, &dead);
		if (!settled)
		{
			zslots_copy(page, &slots);
			has_image = is_mvcc(snapshot) && zpage_trailer(page)->image != InvalidUndoPtr;
			if (has_image)
				memcpy(copy.data, page, BLCKSZ);
			else
				started = zwalk_start(walk, page, &slots, relnumber, block, off);
		}
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		if (settled)
		{
			if (all_dead)
				*all_dead = dead;
			return;
		}
		if (is_mvcc(snapshot))
		{
			zaccept_init(&accept, ZACCEPT_MVCC, snapshot, slots.oldest);
			if (has_image && zimage_jump(copy.data, &slots, relnumber, block, snapshot))
			{
				ZXid		oldest = slots.oldest;

				zslots_copy(copy.data, &slots);
				slots.oldest = oldest;
			}
			if (has_image)
				started = zwalk_start(walk, copy.data, &slots, relnumber, block, off);
		}
		else
			/* Dirty must meet records in progress: it reports them */
			zaccept_init(&accept, dirty || snapshot->snapshot_type == SNAPSHOT_SELF ? ZACCEPT_SETTLED :
						 ZACCEPT_NOT_ABORTED, NULL, slots.oldest);
		if (!started)
			return;
		if (!walk_to_version(walk, &accept, snapshot, dirty, &version->newest_xid, &live))
			continue;
		version_from_walk(version, walk, live);
		zvis_conflict_out(rel, snapshot, version->newest_xid);
		return;
	}
	zvis_corrupt_chain(relnumber, block, version->chain);
}

void
zrow_writer(Page page, const ZSlotView *slots, RelFileNumber relnumber, BlockNumber block,
			OffsetNumber off, Snapshot snapshot, ZRowWriter *writer)
{
	ZWalk	   *walk = zwalk_workspace();
	ZAccept		accept;

	memset(writer, 0, sizeof(*writer));
	walk->page_locked = true;
	walk->confirmed = InvalidUndoPtr;
	if (!zwalk_start(walk, page, slots, relnumber, block, off))
		elog(ERROR, "no row at offset %u of block %u", off, block);
	/* how a row was deleted or moved is told only by its record */
	zaccept_init(&accept, !ZH_LIVE(walk->header) ? ZACCEPT_NONE :
				 is_mvcc(snapshot) ? ZACCEPT_MVCC : ZACCEPT_OWN_BEFORE, snapshot,
				 slots->oldest);
	switch (zwalk_find_writer(walk, &accept))
	{
		case ZWALK_ALL_VISIBLE:
			writer->status = ZXID_ALL_VISIBLE;
			writer->visible = true;
			return;
		case ZWALK_ACCEPTED:
			writer->status = ZXID_COMMITTED;
			writer->visible = true;
			return;
		case ZWALK_RETRY:
			/* the page is locked: its heads cannot have been undone or discarded */
			zvis_corrupt_chain(relnumber, block, slots->s[ZH_SLOT(walk->header)].ptr);
			break;
		case ZWALK_WRITER:
			break;
	}
	writer->xid = walk->rec.xid;
	writer->cid = walk->rec.cid;
	writer->ptr = walk->rec_ptr;
	writer->type = walk->rec.type;
	writer->xflags = walk->rec.xflags;
	writer->forward = walk->rec.forward;
	writer->status = zxid_status_at(walk->rec.xid, slots->oldest);
	writer->visible = is_mvcc(snapshot) ? zaccept_version(&accept, &walk->rec) :
		(writer->status == ZXID_OWN || writer->status == ZXID_COMMITTED);
}

/* Fill xmin and cmin of a slot's version by looking for its writer in the chain. */
static void
lookup_writer(ZHeapSlot *slot)
{
	static char buf[ZUR_MAX_LENGTH];
	ZuRecord	rec;
	UndoPtr		ptr = slot->chain;
	OffsetNumber off = ItemPointerGetOffsetNumber(&slot->base.tts_tid);
	BlockNumber block = ItemPointerGetBlockNumber(&slot->base.tts_tid);

	slot->writer_known = true;
	slot->xmin = InvalidZXid;
	slot->cmin = FirstCommandId;
	if (!zu_attached() || slot->chain_xid < zu_oldest_for(slot->chain))
		return;
	while (ptr != InvalidUndoPtr && zu_fetch(ptr, slot->relnumber, block, &rec, buf) == ZU_FETCHED &&
		   rec.xid >= zu_oldest_for(slot->chain))
	{
		if (rec.type == ZUR_INSERT ? (off >= rec.offset && off < rec.offset + rec.nrows)
			: (rec.offset == off && rec.type != ZUR_LOCK))
		{
			slot->xmin = rec.xid;
			slot->cmin = rec.cid;
			return;
		}
		ptr = rec.prev;
	}
}

void
zvis_install_hooks(void)
{
	zslot_lookup_writer_hook = lookup_writer;
}
