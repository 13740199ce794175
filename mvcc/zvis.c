/*
 * mvcc/zvis.c - the visible version of one row; the writer of the newest one.
 *
 * zvis_fetch copies the row under the page's share lock and walks undo without
 * it. zrow_writer is for callers that hold the page locked.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mvcc/zhandle.h"
#include "mvcc/zwalk.h"
#include "page/zoverflow.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "storage/procarray.h"
#include "tuple/zslot.h"
#include "undo/undo_temp.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * Acceptance for a Dirty snapshot: newest version not aborted; says who is at
 * work.
 */
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
 * walk_to_version: Walks to the newest version that accept accepts. Returns how
 * that was found; *newest is the first unaccepted change above it.
 */
static ZWalkResult
walk_to_version(ZWalk *walk, ZAccept *accept, ZXid *newest)
{
	ZWalkResult found;

	while ((found = zwalk_next(walk, accept)) == ZWALK_WRITER &&
		   !zaccept_version(accept, &walk->rec))
		*newest = zrecord_author(&walk->rec);
	return found;
}

/*
 * walk_dirty: Walks to the newest version that is not aborted, and says in the
 * Dirty snapshot who is changing the row. A row that a transaction in progress
 * has deleted is live.
 */
static ZWalkResult
walk_dirty(ZWalk *walk, ZAccept *accept, Snapshot snapshot, bool *live)
{
	ZWalkResult found;

	while ((found = zwalk_next(walk, accept)) == ZWALK_WRITER)
	{
		/* asked once: the answer may change meanwhile */
		ZXidStatus	status = zwalk_status(walk);

		if (status == ZXID_ABORTED)
			continue;
		dirty_result(snapshot, walk, status);
		break;
	}
	*live = TransactionIdIsValid(snapshot->xmax) ? walk->has_bytes : ZH_LIVE(walk->header);
	return found;
}

/*
 * Has xid, of the page of walk, committed and is it behind snapshot's horizon?
 */
static bool
is_removable(const ZWalk *walk, Snapshot snapshot, ZXid xid)
{
	ZXidStatus	status = zxid_status_at(xid, walk->slots->oldest);

	return status == ZXID_ALL_VISIBLE ||
		(status == ZXID_COMMITTED &&
		 GlobalVisTestIsRemovableXid(snapshot->vistest, zxid_to_xid(xid)));
}

/*
 * walk_to_unremovable: Walks to what a NonVacuumable snapshot sees: the newest
 * version that has not been rolled back; of a row whose deleter or mover is not
 * behind the snapshot's horizon the one before.
 */
static ZWalkResult
walk_to_unremovable(ZWalk *walk, ZAccept *accept, Snapshot snapshot)
{
	int			s = ZH_SLOT(walk->header);
	ZWalkResult found;
	ZAccept		none;

	zaccept_init(&none, ZACCEPT_NONE, NULL, accept->oldest);

	/*
	 * the usual case of many: if the chain's head is removable, so is all
	 * below it
	 */
	if (!ZH_LIVE(walk->header) && zslots_has(walk->slots, walk->rel, walk->block, s) &&
		is_removable(walk, snapshot, ZSLOT_XID(&walk->slots->s[s])))
		return ZWALK_ALL_VISIBLE;
	for (;;)
	{
		found = zwalk_find_writer(walk, ZH_LIVE(walk->header) ? accept : &none);
		if (found != ZWALK_WRITER || zwalk_status(walk) != ZXID_ABORTED)
			break;
		zwalk_step_back(walk);
		if (!walk->exists)
			return ZWALK_BEGINNING;
	}
	if (found == ZWALK_WRITER && !ZH_LIVE(walk->header) &&
		!is_removable(walk, snapshot, walk->rec.xid))
		zwalk_step_back(walk);
	return found;
}

void
zversion_from_walk(ZVersion *version, const ZWalk *walk, bool live)
{
	int			s = ZH_SLOT(walk->header);

	version->found = live && walk->exists && walk->has_bytes;
	if (!version->found)
		return;
	memcpy(version->buf, walk->row, walk->len);
	version->row = version->buf;
	version->len = walk->len;
	ItemPointerSetInvalid(&version->handle);
	version->writer_known = walk->at_writer;
	version->xmax = InvalidZXid;
	version->chain = InvalidUndoPtr;
	version->chain_xid = InvalidZXid;
	if (walk->at_writer)
	{
		version->xmin = zrecord_author(&walk->rec);
		version->cmin = walk->rec.cid;
		version->writer = walk->rec_ptr;
	}
	else if (s != 0 && s <= walk->slots->n)
	{
		/* what the walk has passed in this chain made newer versions */
		version->chain_xid = ZSLOT_XID(&walk->slots->s[s]);
		version->chain = walk->entered[s] ? walk->next[s] : walk->slots->s[s].ptr;
	}
}

void
zversion_show(Relation rel, const ZVersion *version, ItemPointer tid, TupleTableSlot *slot)
{
	zslot_store_copy(slot, version->row, version->len, tid, RelationGetRelid(rel));
	if (version->writer_known)
		zslot_set_writer(slot, version->xmin, version->cmin, version->writer);
	else
		zslot_set_chain(slot, version->chain_xid, version->chain, rel->rd_locator.relNumber);
	zslot_set_xmax(slot, version->xmax);
}

/*
 * The cheap answer under the share lock: the row's chain as a whole is
 * visible. True if that settled it.
 */
static bool
fetch_settled(Relation rel, BlockNumber block, Page page, OffsetNumber off, Snapshot snapshot,
			  ZVersion *version, bool *all_dead)
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
		header = zpage_stub_header(lp);
		s = ZH_SLOT(header);
	}
	else
	{
		*all_dead = true;
		return true;
	}
	version->writer_known = false;
	version->xmax = InvalidZXid;
	version->chain = InvalidUndoPtr;
	version->chain_xid = InvalidZXid;
	ItemPointerSetInvalid(&version->handle);
	if (s != 0)
	{
		/*
		 * first, or a slot that `oldest` passes meanwhile would not be asked
		 * about (UNDO-46)
		 */
		ZXid		oldest = zpage_oldest(page);
		ZPageSlot	slot = zslot_read(rel, block, page, s);
		ZXid		xid = ZSLOT_XID(&slot);

		version->chain_xid = xid;
		version->chain = slot.ptr;
		if (xid >= oldest)
		{
			zvis_check_xid(rel, block, s, xid);
			if (!zsnapshot_is_mvcc(snapshot) ||
				TransactionIdIsCurrentTransactionId(zxid_to_xid(xid)) ||
				!zxid_visible_mvcc(xid, snapshot))
				return false;
		}
		else if (!ZH_LIVE(header))
			*all_dead = true;
		if (unlikely(zuptr_is_temp(slot.ptr)) && zsnapshot_is_mvcc(snapshot))
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

/*
 * try_settled: Locks the page and answers, if that can be done without a walk,
 * with *version and *all_dead. Returns whether it could; if not, buf is locked
 * on return.
 */
static inline bool
try_settled(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZVersion *version,
			bool *all_dead)
{
	BlockNumber block = BufferGetBlockNumber(buf);
	Page		page = BufferGetPage(buf);
	bool		dead = false;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (unlikely(!PageIsNew(page) && !zpage_item_ok(page, off)))
		zvis_corrupt_page(rel, block, page, off);
	if (!fetch_settled(rel, block, page, off, snapshot, version, &dead))
		return false;
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (all_dead)
		*all_dead = dead;
	return true;
}

/*
 * fetch_by_walk: Does what zvis_fetch is to do with a row that try_settled has
 * not answered for. On entry buf is locked, on return it is not.
 */
static pg_noinline void
fetch_by_walk(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZVersion *version,
			  bool *all_dead)
{
	ZCopyWalk	copy;
	ZWalk	   *walk = &copy.walk;

	zwalk_init(walk);
	for (int tries = 0; tries < ZWALK_MAX_TRIES; tries++)
	{
		ZAccept		accept;
		ZWalkResult found;
		bool		live;

		if (tries > 0 && try_settled(rel, buf, off, snapshot, version, all_dead))
			return;
		if (!zwalk_load(&copy, rel, buf, off, snapshot))
			return;
		switch (snapshot->snapshot_type)
		{
			case SNAPSHOT_DIRTY:
				/* must meet records in progress: it reports them */
				zaccept_init(&accept, ZACCEPT_SETTLED, NULL, copy.slots.oldest);
				found = walk_dirty(walk, &accept, snapshot, &live);
				break;
			case SNAPSHOT_NON_VACUUMABLE:
				zaccept_init(&accept, ZACCEPT_NOT_ABORTED, NULL, copy.slots.oldest);
				found = walk_to_unremovable(walk, &accept, snapshot);
				live = ZH_LIVE(walk->header);
				break;
			default:
				zaccept_init(&accept, zsnapshot_is_mvcc(snapshot) ? ZACCEPT_MVCC :
							 snapshot->snapshot_type == SNAPSHOT_SELF ? ZACCEPT_SETTLED
							 : ZACCEPT_NOT_ABORTED,
							 zsnapshot_is_mvcc(snapshot) ? snapshot : NULL, copy.slots.oldest);
				found = walk_to_version(walk, &accept, &version->newest_xid);
				live = ZH_LIVE(walk->header);
				break;
		}
		if (found == ZWALK_RETRY)
			continue;
		zversion_from_walk(version, walk, live);
		zvis_conflict_out(rel, snapshot, version->newest_xid);
		return;
	}
	zvis_corrupt_chain(rel, BufferGetBlockNumber(buf), version->chain);
}

void
zvis_fetch(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZVersion *version,
		   bool *all_dead)
{
	version->newest_xid = InvalidZXid;
	if (all_dead)
		*all_dead = false;
	if (snapshot->snapshot_type == SNAPSHOT_DIRTY)
	{
		snapshot->xmin = snapshot->xmax = InvalidTransactionId;
		snapshot->speculativeToken = 0;
	}
	if (!try_settled(rel, buf, off, snapshot, version, all_dead))
		fetch_by_walk(rel, buf, off, snapshot, version, all_dead);
}

void
zrow_writer(const ZRow *row, Snapshot snapshot, ZRowWriter *writer)
{
	ZWalk		walk;
	ZAccept		accept;

	memset(writer, 0, sizeof(*writer));
	if (!zwalk_begin(&walk, row, ZCHAIN_LOCKED))
		elog(ERROR, "no row at offset %u of block %u", row->off, row->block);
	/* how a row was deleted or moved is told only by its record */
	zaccept_init(&accept, !ZH_LIVE(walk.header) ? ZACCEPT_NONE :
				 zsnapshot_is_mvcc(snapshot) ? ZACCEPT_MVCC : ZACCEPT_OWN_BEFORE, snapshot,
				 row->slots->oldest);
	switch (zwalk_next(&walk, &accept))
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
		case ZWALK_BEGINNING:

			/*
			 * the page is locked: its heads cannot have been undone, and one
			 * that was discarded is visible to all
			 */
			zvis_corrupt_chain(row->rel, row->block, row->slots->s[ZH_SLOT(walk.header)].ptr);
			break;
		case ZWALK_WRITER:
			break;
	}
	writer->xid = walk.rec.xid;
	writer->cid = walk.rec.cid;
	writer->ptr = walk.rec_ptr;
	writer->type = walk.rec.type;
	writer->xflags = walk.rec.xflags;
	writer->forward = walk.rec.forward;
	writer->as_of = walk.rec.as_of;
	writer->status = zwalk_status(&walk);
	writer->visible = zsnapshot_is_mvcc(snapshot) ? zaccept_version(&accept, &walk.rec) :
		(writer->status == ZXID_OWN || writer->status == ZXID_COMMITTED);
}

/* So many records of a chain zpage_deleters reads. */
#define MAX_DELETERS_READ 1000

/* zpage_deleters for the stubs of slot s. */
static void
slot_deleters(const ZSlotView *slots, int s, Relation rel, BlockNumber block, ZStubDeleter *stubs,
			  int n)
{
	char		buf[ZUR_MAX_LENGTH];
	ZStubDeleter *wanted[ZHEAP_MAX_OFFSET + 1] = {NULL};
	ZChain		chain;
	ZuRecord	rec;
	bool		thorough = false;
	int			left = 0;

	for (int i = 0; i < n; i++)
		if (stubs[i].slotno == s)
		{
			wanted[stubs[i].off] = &stubs[i];
			thorough |= stubs[i].thorough;
			left++;
		}
	ZUNDO_FAULT("deleters-chain");
	zchain_begin(&chain, rel->rd_locator.relNumber, block, &slots->s[s], ZCHAIN_LOCKED,
				 slots->oldest, buf);
	for (int read = 0; left > 0; read++)
	{
		ZChainStep	step;

		if (read >= MAX_DELETERS_READ && !thorough)
			return;
		step = zchain_next(&chain, &rec);
		if (step == ZCHAIN_RETRY)
			zvis_corrupt_chain(rel, block, chain.next);
		if (step != ZCHAIN_RECORD)
			break;
		if ((rec.type == ZUR_DELETE || rec.type == ZUR_MOVE) && rec.offset <= ZHEAP_MAX_OFFSET &&
			wanted[rec.offset] != NULL)
		{
			wanted[rec.offset]->deleter = rec.xid;
			wanted[rec.offset] = NULL;
			left--;
		}
	}

	/*
	 * nobody's undo concerns the others; of two entries for one offset one is
	 * not found, but its deleter is known
	 */
	for (int i = 0; i < n; i++)
		if (stubs[i].slotno == s && wanted[stubs[i].off] != NULL)
			stubs[i].settled = true;
}

void
zpage_deleters(const ZSlotView *slots, Relation rel, BlockNumber block, ZStubDeleter *stubs, int n)
{
	bool		done[ZPAGE_MAX_SLOTS + 1] = {false};

	for (int i = 0; i < n; i++)
	{
		stubs[i].settled = false;
		stubs[i].deleter = InvalidZXid;
	}
	for (int i = 0; i < n; i++)
	{
		int			s = stubs[i].slotno;

		if (!zslots_has(slots, rel, block, s) || ZSLOT_XID(&slots->s[s]) < slots->oldest)
			stubs[i].settled = true;
		else if (!done[s])
		{
			done[s] = true;
			zvis_check_xid(rel, block, s, ZSLOT_XID(&slots->s[s]));
			slot_deleters(slots, s, rel, block, stubs, n);
		}
	}
}

bool
zrow_overtaken(const ZRow *row, Snapshot snapshot, ZRowWriter *by)
{
	ZWalk		walk;
	ZAccept		accept;

	memset(by, 0, sizeof(*by));
	if (!zwalk_begin(&walk, row, ZCHAIN_LOCKED))
		return false;
	zaccept_init(&accept, ZACCEPT_MVCC, snapshot, row->slots->oldest);
	while (zwalk_next(&walk, &accept) == ZWALK_WRITER && !zaccept_version(&accept, &walk.rec))
	{
		if (zwalk_status(&walk) != ZXID_COMMITTED)
			continue;
		by->xid = walk.rec.xid;
		by->ptr = walk.rec_ptr;
		by->type = walk.rec.type;
		by->xflags = walk.rec.xflags;
		return true;
	}
	return false;
}

CommandId
zrow_replaced_by(const ZRow *row, CommandId cid)
{
	ZWalk		walk;
	CommandId	replaced_by = InvalidCommandId;
	ZAccept		accept;

	if (!zwalk_begin(&walk, row, ZCHAIN_LOCKED))
		return replaced_by;
	zaccept_init(&accept, ZACCEPT_OWN_BEFORE, NULL, row->slots->oldest);
	accept.limit = cid;
	while (zwalk_next(&walk, &accept) == ZWALK_WRITER)
	{
		ZXidStatus	status = zwalk_status(&walk);

		if (status == ZXID_OWN && walk.rec.cid >= cid)
			replaced_by = walk.rec.cid;
		else if (status != ZXID_ABORTED)
			break;
	}
	return replaced_by;
}

/*
 * Can rec, met above a version that somebody sees, be the writer of that? Not
 * if it is rolled back or another's unfinished one.
 */
static bool
may_be_seen(const ZuRecord *rec, ZXid oldest)
{
	ZXidStatus	status = zxid_status_at(rec->xid, oldest);

	return status != ZXID_ABORTED && status != ZXID_IN_PROGRESS;
}

/*
 * Fill xmin and cmin of a slot's version by looking for its writer in the
 * chain.
 */
void
zvis_lookup_writer(ZHeapSlot *slot)
{
	char		buf[ZUR_MAX_LENGTH];
	ZChain		chain;
	ZuRecord	rec;
	ZXid		oldest;
	OffsetNumber off = ItemPointerGetOffsetNumber(&slot->base.tts_tid);
	BlockNumber block = ItemPointerGetBlockNumber(&slot->base.tts_tid);
	const ZHandle *handle = zhandle_find(InvalidOid, &slot->base.tts_tid);

	if (handle != NULL)
	{
		off = handle->off;
		block = handle->block;
	}
	slot->writer_known = true;
	slot->xmin = InvalidZXid;
	slot->cmin = FirstCommandId;
	/* the attachment may have become invalid since the row was read */
	zu_attach_database();
	oldest = zu_oldest_for(slot->chain);
	if (slot->chain_xid < oldest)
		return;
	zchain_begin_at(&chain, slot->relnumber, block, slot->chain, oldest, buf);
	while (zchain_next(&chain, &rec) == ZCHAIN_RECORD)
	{
		if (!zrecord_concerns(&rec, off) || !may_be_seen(&rec, oldest))
			continue;
		slot->xmin = zrecord_author(&rec);
		slot->cmin = rec.cid;
		slot->writer = chain.here;
		return;
	}
}
