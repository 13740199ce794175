/*
 * mvcc/zvis.c - the visible version of one row; the author of the newest one.
 *
 * zvis_fetch copies the row under the page's share lock and walks undo without
 * it. zvis_author and the others are for callers that hold the page locked:
 * table page before undo page. Called by scan/, dml/, zany.c and zlockers.c;
 * zvis_lookup_author by tuple/, through a hook. Nothing is written. Rules VIS-n
 * of mvcc/README.md.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "mvcc/zhandle.h"
#include "mvcc/zown.h"
#include "mvcc/zwalk.h"
#include "page/zoverflow.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "storage/procarray.h"
#include "tuple/ztts.h"
#include "undo/undo_temp.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * Reports in the Dirty snapshot the transaction in progress that wrote the
 * version in hand: in xmin, with the speculative token, if it inserted the
 * row; else in xmax.
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
 * Walks to the newest version that accept accepts. Returns how that was found;
 * *newest is the author of the unaccepted change right above it.
 *
 * A walk with ZACCEPT_COMMITTED finds out for each record whether its
 * transaction has committed by then. If a transaction commits after the walk
 * has passed over a change of the row by one of its subtransactions, the walk
 * would accept an older change of the same transaction: a version that was
 * never the committed one. So if the transaction of the last change that was
 * passed over has committed, returns ZWALK_RETRY, and the walk must begin
 * again.
 */
static ZWalkResult
walk_to_version(ZWalk *walk, ZAccept *accept, ZXid *newest)
{
	ZXid		passed = InvalidZXid;
	ZWalkResult found;

	while ((found = zwalk_next(walk, accept)) == ZWALK_AUTHOR &&
		   !zaccept_version(accept, &walk->rec))
	{
		passed = walk->rec.xid;
		*newest = zrecord_author(&walk->rec);
		ZUNDO_FAULT("version-passed");
	}
	if (unlikely(passed != InvalidZXid && accept->kind == ZACCEPT_COMMITTED) &&
		zxid_is_committed(passed))
		return ZWALK_RETRY;
	return found;
}

/*
 * Walks to the newest version that is not aborted, and reports in the Dirty
 * snapshot the transaction that is changing the row. A row that a transaction
 * in progress has deleted is live.
 */
static ZWalkResult
walk_dirty(ZWalk *walk, ZAccept *accept, Snapshot snapshot, bool *live)
{
	ZWalkResult found;

	Assert(snapshot->snapshot_type == SNAPSHOT_DIRTY);
	while ((found = zwalk_next(walk, accept)) == ZWALK_AUTHOR)
	{
		/* read once: the status may change meanwhile */
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
 * Returns whether xid, of the page of walk, has committed and is behind the
 * horizon of the NonVacuumable snapshot.
 */
static bool
is_removable(const ZWalk *walk, Snapshot snapshot, ZXid xid)
{
	ZXidStatus	status = zxid_status_at(xid, walk->slots->oldest);

	return status == ZXID_ALL_VISIBLE ||
		(status == ZXID_COMMITTED &&
		 zc_is_removable_xid(snapshot->vistest, zxid_to_xid(xid)));
}

/*
 * Walks to what a NonVacuumable snapshot sees: the newest version that has not
 * been rolled back; of a row whose deleter or mover is not behind the
 * snapshot's horizon, the version before. The planner reads the ends of an
 * index under such a snapshot, to estimate the least and greatest values of a
 * column.
 */
static ZWalkResult
walk_to_unremovable(ZWalk *walk, ZAccept *accept, Snapshot snapshot)
{
	int			s = ZH_SLOT(walk->header);
	ZWalkResult found;
	ZAccept		none;

	Assert(snapshot->snapshot_type == SNAPSHOT_NON_VACUUMABLE);
	zaccept_init(&none, ZACCEPT_NONE, NULL, accept->oldest);

	/*
	 * the usual case on a page with many deleted rows: if the chain's head is
	 * removable, so is all below it
	 */
	if (!ZH_LIVE(walk->header) && zslots_has(walk->slots, walk->rel, walk->block, s) &&
		zslot_age(&walk->slots->s[s], walk->slots->oldest) != ZAGE_LOST &&
		is_removable(walk, snapshot, ZSLOT_XID(&walk->slots->s[s])))
		return ZWALK_ALL_VISIBLE;
	for (;;)
	{
		found = zwalk_find_author(walk, ZH_LIVE(walk->header) ? accept : &none);
		if (found != ZWALK_AUTHOR || zwalk_status(walk) != ZXID_ABORTED)
			break;
		zwalk_step_back(walk);
		if (!walk->exists)
			return ZWALK_BEGINNING;
	}
	if (found == ZWALK_AUTHOR && !ZH_LIVE(walk->header) &&
		!is_removable(walk, snapshot, walk->rec.xid))
		zwalk_step_back(walk);
	return found;
}

/*
 * zversion_from_walk: See zwalk.h. Copies the row, and where its author is
 * found: in the record that the walk stands at, else from there on in the
 * chain of the slot in its header.
 */
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
	version->author_known = walk->at_author;
	version->xmax = InvalidZXid;
	version->chain = InvalidUndoPtr;
	version->chain_xid = InvalidZXid;
	if (walk->at_author)
	{
		version->xmin = zrecord_author(&walk->rec);
		version->cmin = walk->rec.cid;
		version->author = walk->rec_ptr;
	}
	else if (s != 0 && s <= walk->slots->n)
	{
		/*
		 * the records that the walk has passed in this chain made newer
		 * versions
		 */
		version->chain_xid = ZSLOT_XID(&walk->slots->s[s]);
		version->chain = walk->entered[s] ? walk->next[s] : walk->slots->s[s].ptr;
	}
}

/*
 * zversion_show: See zvis.h. Copies the row into slot, whose memory then holds
 * it; the version is not needed any more.
 */
void
zversion_show(Relation rel, const ZVersion *version, ItemPointer tid, TupleTableSlot *slot)
{
	Assert(version->found);
	ztts_store_copy(slot, version->row, version->len, tid, RelationGetRelid(rel));
	if (version->author_known)
		ztts_set_author(slot, version->xmin, version->cmin, version->author);
	else
		ztts_set_chain(slot, version->chain_xid, version->chain, rel->rd_locator.relNumber);
	ztts_set_xmax(slot, version->xmax);
}

#ifdef USE_ASSERT_CHECKING
/* Returns whether the record of the row's newest version says that, too. */
static bool
author_is_visible(const ZRow *row, Snapshot snapshot)
{
	ZSlotView	slots;
	ZRow		again = *row;
	ZAuthor		author;

	zslots_copy(row->rel, row->block, row->page, &slots);
	again.slots = &slots;
	zvis_author(&again, snapshot, &author);
	if (author.visible)
		return true;
	/* of a row that is not live zvis_author accepts nothing */
	return author.status == ZXID_OWN ? author.cid < snapshot->curcid
		: author.status == ZXID_COMMITTED && zxid_visible_mvcc(author.xid, snapshot);
}
#endif

bool
zvis_own_visible(const ZRow *row, const ZPageSlot *slot, Snapshot snapshot)
{
	if (!zsnapshot_is_mvcc(snapshot) ||
		!zown_accepts_row(row->rel->rd_locator.relNumber, row->block, row->off, slot->ptr,
						  snapshot->curcid) ||
		!TransactionIdIsCurrentTransactionId(zxid_to_xid(ZSLOT_XID(slot))))
		return false;
	Assert(author_is_visible(row, snapshot));
	return true;
}

/*
 * Returns whether the snapshot is known to see the newest version of the row by
 * its slot, which is young, without undo.
 */
static inline bool
is_seen(const ZRow *row, const ZPageSlot *slot, Snapshot snapshot)
{
	ZXid		xid = ZSLOT_XID(slot);
	bool		ours = TransactionIdIsCurrentTransactionId(zxid_to_xid(xid));

	if (snapshot->snapshot_type == SNAPSHOT_SELF || snapshot->snapshot_type == SNAPSHOT_DIRTY)
		return ours || zxid_is_committed(xid);
	if (ours)
		return zvis_own_visible(row, slot, snapshot);
	return zsnapshot_is_mvcc(snapshot) && zxid_visible_mvcc(xid, snapshot);
}

/*
 * Tries to answer under the share lock, without undo: there is no row, or the
 * chain of the row's slot is visible as a whole. Returns whether it has
 * answered.
 */
static bool
fetch_at_once(Relation rel, BlockNumber block, Page page, OffsetNumber off, Snapshot snapshot,
			  ZVersion *version, bool *all_dead)
{
	ItemId		lp;
	ZHeader		header;
	const char *row = NULL;
	int			s;

	version->found = false;
	version->chain_xid = InvalidZXid;
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
	version->author_known = false;
	version->xmax = InvalidZXid;
	version->chain = InvalidUndoPtr;
	ItemPointerSetInvalid(&version->handle);
	if (s != 0)
	{
		ZXid		oldest = zslots_oldest(page);
		ZPageSlot	slot = zslot_read(rel, block, page, s);
		ZXid		xid = ZSLOT_XID(&slot);

		version->chain_xid = xid;
		version->chain = slot.ptr;
		if (zvis_is_young(rel, block, s, &slot, oldest))
		{
			ZRow		newest = {rel, block, off, page};

			if (!is_seen(&newest, &slot, snapshot))
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
		version->len = zpage_length_in_room(row, ItemIdGetLength(lp));
		memcpy(version->buf, row, version->len);
		version->row = version->buf;
	}
	return true;
}

/*
 * Returns whether a deleted or moved row is dead to all snapshots though the
 * owner xid of its slot, whose pointer is ptr, is not before `oldest` (SCAN-6).
 * The reader's snapshot sees the owner. The row's deleter has ended before the
 * owner, or is the owner.
 */
static bool
is_dead_to_all(Relation rel, ZXid xid, UndoPtr ptr)
{
	return xid != InvalidZXid && !zuptr_is_temp(ptr) &&
		rel->rd_rel->relkind != RELKIND_TOASTVALUE && !RecoveryInProgress() &&
		zxid_seen_by_all(rel, xid); /* SCAN-6 */
}

/*
 * Locks the page and answers with *version and *all_dead, if that needs no
 * walk. Returns whether it has answered; if not, buf is locked on return.
 * Raises ERRCODE_DATA_CORRUPTED for a damaged page.
 */
static inline bool
try_at_once(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZVersion *version,
			bool *all_dead)
{
	BlockNumber block = BufferGetBlockNumber(buf);
	Page		page = BufferGetPage(buf);
	bool		dead = false;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (unlikely(!PageIsNew(page) && !zpage_item_ok(page, off)))
		zvis_corrupt_page(rel, block, page, off);
	if (!fetch_at_once(rel, block, page, off, snapshot, version, &dead))
		return false;
	version->lsn = PageGetLSN(page);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (all_dead)
		*all_dead = dead ||
			(!version->found && is_dead_to_all(rel, version->chain_xid, version->chain));
	return true;
}

bool
zvis_fetch_at_once(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot,
				   ZVersion *version)
{
	Assert(zsnapshot_is_mvcc(snapshot));
	version->newest_xid = InvalidZXid;
	return try_at_once(rel, buf, off, snapshot, version, NULL);
}

/*
 * zvis_fetch_locked: See zvis.h. What fetch_at_once says of a row that is dead
 * to all is not used: such a row is not found.
 */
bool
zvis_fetch_locked(Relation rel, Buffer buf, OffsetNumber off, ZVersion *version)
{
	bool		dead = false;

	Assert(zc_buffer_locked(buf));
	Assert(zpage_item_ok(BufferGetPage(buf), off));
	version->newest_xid = InvalidZXid;
	version->walked = false;
	return fetch_at_once(rel, BufferGetBlockNumber(buf), BufferGetPage(buf), off, SnapshotSelf,
						 version, &dead) && version->found;
}

/*
 * Does zvis_fetch's work for a row that try_at_once has not answered for. On
 * entry buf is locked, on return it is not. Each kind of snapshot has a walk
 * of its own; if undo that the copy needs has been discarded meanwhile, begins
 * again with a new copy. Raises ERRCODE_DATA_CORRUPTED.
 */
static pg_noinline void
fetch_by_walk(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZVersion *version,
			  bool *all_dead)
{
	ZCopyWalk	copy;
	ZWalk	   *walk = &copy.walk;

	Assert(zc_buffer_locked(buf));
	zwalk_init(walk);
	for (int tries = 0; tries < ZWALK_MAX_TRIES; tries++)
	{
		ZAccept		accept;
		ZWalkResult found;
		bool		live;

		if (tries > 0 && try_at_once(rel, buf, off, snapshot, version, all_dead))
			return;
		if (!zwalk_load(&copy, rel, buf, off, snapshot))
			return;
		switch (snapshot->snapshot_type)
		{
			case SNAPSHOT_DIRTY:
				/* in-progress records must be met, to be reported */
				zaccept_init(&accept, ZACCEPT_COMMITTED, NULL, copy.slots.oldest);
				found = walk_dirty(walk, &accept, snapshot, &live);
				break;
			case SNAPSHOT_NON_VACUUMABLE:
				zaccept_init(&accept, ZACCEPT_NOT_ABORTED, NULL, copy.slots.oldest);
				found = walk_to_unremovable(walk, &accept, snapshot);
				live = ZH_LIVE(walk->header);
				break;
			default:
				zaccept_init(&accept, zsnapshot_is_mvcc(snapshot) ? ZACCEPT_MVCC :
							 snapshot->snapshot_type == SNAPSHOT_SELF ? ZACCEPT_COMMITTED
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

/*
 * zvis_fetch: See zvis.h. For most rows the answer is found while the page is
 * locked (try_at_once); the others need a walk (fetch_by_walk, not inlined
 * because of its stack).
 */
void
zvis_fetch(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZVersion *version,
		   bool *all_dead)
{
	Assert(zc_buffer_unlocked(buf));
	version->newest_xid = InvalidZXid;
	if (all_dead)
		*all_dead = false;
	if (snapshot->snapshot_type == SNAPSHOT_DIRTY)
	{
		snapshot->xmin = snapshot->xmax = InvalidTransactionId;
		snapshot->speculativeToken = 0;
	}
	version->walked = !try_at_once(rel, buf, off, snapshot, version, all_dead);
	if (version->walked)
		fetch_by_walk(rel, buf, off, snapshot, version, all_dead);
}

/*
 * zvis_deleted_rows: See zvis.h. Asks once for each slot whether the snapshot
 * sees its owner, and so all deletions in its chain (VIS-3).
 */
void
zvis_deleted_rows(Relation rel, Buffer buf, Snapshot snapshot, uint64 *rows)
{
	Page		page = BufferGetPage(buf);
	bool		seen[ZPAGE_MAX_INLINE_SLOTS + 1] = {false};
	int			nslots;
	ZXid		oldest;

	Assert(zsnapshot_is_mvcc(snapshot) && zc_buffer_unlocked(buf));
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (PageIsNew(page) || !zpage_is_valid(page))
	{
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		return;
	}
	oldest = zslots_oldest(page);
	nslots = zpage_nslots(page);
	for (int s = 1; s <= nslots; s++)
	{
		const ZPageSlot *slot = zpage_slot(page, s);
		ZXid		xid = ZSLOT_XID(slot);

		seen[s] = zslot_age(slot, oldest) == ZAGE_YOUNG && zxid_possible(xid) &&
			!zuptr_is_temp(slot->ptr) &&
			!TransactionIdIsCurrentTransactionId(zxid_to_xid(xid)) &&
			zxid_visible_mvcc(xid, snapshot) && !is_dead_to_all(rel, xid, slot->ptr);
	}
	for (int off = Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET); off > 0; off--)
	{
		ItemId		lp = PageGetItemId(page, off);
		ZHeader		header;

		if (ItemIdIsRedirected(lp))
			header = zpage_stub_header(lp);
		else if (ItemIdIsNormal(lp) && zpage_row_inside(page, lp))
			header = zheader_get(zpage_row(page, lp));
		else
			continue;
		if (!ZH_LIVE(header) && ZH_SLOT(header) <= nslots && seen[ZH_SLOT(header)])
			rows[off / 64] |= UINT64CONST(1) << (off % 64);
	}
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
}

/*
 * zvis_author: See zvis.h. Takes one step of a walk. ZWALK_RETRY would be
 * damage: while the page is locked none of its heads can be undone, and one
 * that was discarded is visible to all (VIS-1).
 */
pg_noinline void
zvis_author(const ZRow *row, Snapshot snapshot, ZAuthor *author)
{
	ZWalk		walk;
	ZAccept		accept;

	memset(author, 0, sizeof(*author));
	if (!zwalk_begin(&walk, row, ZCHAIN_LOCKED))
		elog(ERROR, "no row at offset %u of block %u", row->off, row->block);
	/* only the record tells how a row was deleted or moved */
	zaccept_init(&accept, !ZH_LIVE(walk.header) ? ZACCEPT_NONE :
				 zsnapshot_is_mvcc(snapshot) ? ZACCEPT_MVCC : ZACCEPT_OWN_BEFORE, snapshot,
				 row->slots->oldest);
	switch (zwalk_next(&walk, &accept))
	{
		case ZWALK_ALL_VISIBLE:
			author->status = ZXID_ALL_VISIBLE;
			author->visible = true;
			return;
		case ZWALK_ACCEPTED:
			author->status = ZXID_COMMITTED;
			author->visible = true;
			return;
		case ZWALK_RETRY:
		case ZWALK_BEGINNING:

			zvis_corrupt_chain(row->rel, row->block, row->slots->s[ZH_SLOT(walk.header)].ptr);
			break;
		case ZWALK_AUTHOR:
			break;
	}
	author->xid = walk.rec.xid;
	author->cid = walk.rec.cid;
	author->ptr = walk.rec_ptr;
	author->type = walk.rec.type;
	author->xflags = walk.rec.xflags;
	author->forward = walk.rec.forward;
	author->as_of = walk.rec.as_of;
	author->status = zwalk_status(&walk);
	author->visible = zsnapshot_is_mvcc(snapshot) ? zaccept_version(&accept, &walk.rec) :
		(author->status == ZXID_OWN || author->status == ZXID_COMMITTED);
}

/*
 * Of one chain, zvis_deleters reads at most this many records, unless a stub
 * asks for a thorough search.
 */
#define MAX_DELETERS_READ 1000

/*
 * Does zvis_deleters' work for the stubs of slot s. The page is locked.
 * Raises ERRCODE_DATA_CORRUPTED.
 */
static void
slot_deleters(const ZSlotView *slots, int s, Relation rel, BlockNumber block, ZStubDeleter *stubs,
			  int n)
{
	char		buf[ZUR_MAX_LENGTH];
	ZStubDeleter *wanted[ZHEAP_MAX_OFFSET + 1] = {NULL};
	ZHeaders	headers;
	ZChain		chain;
	ZuRecord	rec;
	bool		thorough = false;
	int			left = 0;

	Assert(s >= 1 && s <= slots->n);
	for (int i = 0; i < n; i++)
		if (ZH_SLOT(stubs[i].header) == s)
		{
			wanted[stubs[i].off] = &stubs[i];
			thorough |= stubs[i].thorough;
			left++;
		}
	ZUNDO_FAULT("deleters-chain");
	zheaders_start(&headers);
	zchain_begin_locked(&chain, rel->rd_locator.relNumber, block, &slots->s[s], slots->oldest, buf);
	for (int read = 0; left > 0; read++)
	{
		ZChainStep	step;

		if (read >= MAX_DELETERS_READ && !thorough)
			return;
		step = zheaders_next(&chain, &headers, &rec);
		if (step == ZCHAIN_RETRY)
			zvis_corrupt_chain(rel, block, chain.next);
		if (step != ZCHAIN_RECORD)
			break;
		if (rec.type != ZUR_DELETE && rec.type != ZUR_MOVE)
			continue;
		for (int off = rec.offset; off < rec.offset + zrecord_range(&rec) &&
			 off <= ZHEAP_MAX_OFFSET;
			 off++)
			if (wanted[off] != NULL && zrecord_wrote(&rec, off, wanted[off]->header))
			{
				wanted[off]->deleter = rec.xid;
				wanted[off] = NULL;
				left--;
			}
	}

	/*
	 * The chain was read to its end: the remaining stubs have no record in
	 * it, so their rows were deleted before `oldest`. (Of two stubs with the
	 * same offset only the last one gets the deleter. The first is then not
	 * settled, and its deleter stays 0.)
	 */
	for (int i = 0; i < n; i++)
		if (ZH_SLOT(stubs[i].header) == s && wanted[stubs[i].off] != NULL)
			stubs[i].settled = true;
}

/*
 * zvis_deleters: See zvis.h. Reads each chain once, for all stubs that name
 * its slot.
 */
void
zvis_deleters(const ZSlotView *slots, Relation rel, BlockNumber block, ZStubDeleter *stubs, int n)
{
	bool		done[ZPAGE_MAX_SLOTS + 1] = {false};

	for (int i = 0; i < n; i++)
	{
		stubs[i].settled = false;
		stubs[i].deleter = InvalidZXid;
	}
	for (int i = 0; i < n; i++)
	{
		int			s = ZH_SLOT(stubs[i].header);

		if (!zslots_has(slots, rel, block, s) ||
			!zvis_is_young(rel, block, s, &slots->s[s], slots->oldest))
			stubs[i].settled = true;
		else if (!done[s])
		{
			done[s] = true;
			slot_deleters(slots, s, rel, block, stubs, n);
		}
	}
}

/*
 * zvis_overtaken: See zvis.h. Passes over unfinished changes, and over our own
 * which the snapshot does not see, to the newest committed one that it does
 * not see.
 */
pg_noinline bool
zvis_overtaken(const ZRow *row, Snapshot snapshot, ZAuthor *by)
{
	ZWalk		walk;
	ZAccept		accept;

	Assert(zsnapshot_is_mvcc(snapshot));
	memset(by, 0, sizeof(*by));
	if (!zwalk_begin(&walk, row, ZCHAIN_LOCKED))
		return false;
	zaccept_init(&accept, ZACCEPT_MVCC, snapshot, row->slots->oldest);
	while (zwalk_next(&walk, &accept) == ZWALK_AUTHOR && !zaccept_version(&accept, &walk.rec))
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

/* zvis_key_overtaken: See zvis.h. */
pg_noinline bool
zvis_key_overtaken(const ZRow *row, Snapshot snapshot)
{
	ZWalk		walk;
	ZAccept		accept;

	Assert(zsnapshot_is_mvcc(snapshot));
	if (!zwalk_begin(&walk, row, ZCHAIN_LOCKED))
		return false;
	zaccept_init(&accept, ZACCEPT_MVCC, snapshot, row->slots->oldest);
	while (zwalk_next(&walk, &accept) == ZWALK_AUTHOR && !zaccept_version(&accept, &walk.rec))
	{
		if ((walk.rec.xflags & ZUX_KEY_CHANGE) && zwalk_status(&walk) == ZXID_COMMITTED)
			return true;
	}
	return false;
}

/*
 * zvis_replaced_by: See zvis.h. Walks over our own changes of cid and later
 * commands; the last one met is the first that was made.
 */
pg_noinline CommandId
zvis_replaced_by(const ZRow *row, CommandId cid)
{
	ZWalk		walk;
	CommandId	replaced_by = InvalidCommandId;
	ZAccept		accept;

	if (!zwalk_begin(&walk, row, ZCHAIN_LOCKED))
		return replaced_by;
	zaccept_init(&accept, ZACCEPT_OWN_BEFORE, NULL, row->slots->oldest);
	accept.limit = cid;
	while (zwalk_next(&walk, &accept) == ZWALK_AUTHOR)
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
 * Returns whether rec, met in a chain from which a visible version is read,
 * can be that version's author: not if it is aborted, or another transaction's
 * unfinished change.
 */
static bool
may_be_seen(const ZuRecord *rec, ZXid oldest)
{
	ZXidStatus	status = zxid_status_at(rec->xid, oldest);

	return status != ZXID_ABORTED && status != ZXID_IN_PROGRESS;
}

/*
 * zvis_lookup_author: See zvis.h. Fills xmin and cmin of the slot's version,
 * by the first record in the chain that concerns the row and can have been
 * seen. If there is none, they stay 0: the author is not known any more.
 * Called when cmin or cmax is read. The author of a record "as of X" is X.
 * Takes no page lock of the table; the chain begins at the record that the
 * slot's version was read with.
 */
void
zvis_lookup_author(ZHeapSlot *slot)
{
	char		buf[ZUR_MAX_LENGTH];
	ZChain		chain;
	ZTrailReader reader;
	ZuRecord	rec;
	ZXid		oldest;
	ItemPointerData tid = ztid_real(&slot->base.tts_tid);
	OffsetNumber off = ItemPointerGetOffsetNumber(&tid);
	BlockNumber block = ItemPointerGetBlockNumber(&tid);
	const ZHandle *handle = zhandle_find(InvalidOid, &slot->base.tts_tid);

	if (handle != NULL)
	{
		off = handle->off;
		block = handle->block;
	}
	slot->author_known = true;
	slot->xmin = InvalidZXid;
	slot->cmin = FirstCommandId;
	/* the attachment may have become invalid since the row was read */
	zu_attach_for_table();
	oldest = zu_oldest_for(slot->chain);
	if (slot->chain_xid < oldest)
		return;
	zchain_begin_at(&chain, slot->relnumber, block, slot->chain, oldest, buf);
	ztrail_start(&reader);
	while (ztrail_next(&chain, &reader, off, false, &rec) == ZCHAIN_RECORD)
	{
		/* a version that is shown is not deleted */
		if (!zrecord_wrote(&rec, off, (ZHeader) 0) || !may_be_seen(&rec, oldest))
			continue;
		slot->xmin = zrecord_author(&rec);
		slot->cmin = rec.cid;
		slot->author = chain.here;
		return;
	}
}
