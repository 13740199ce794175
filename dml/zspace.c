/*
 * dml/zspace.c - room on pages: which page, which slot, pruning, page images.
 *
 * Nothing here waits for a transaction. The only wait for a page lock is in
 * zspace_insert_page, which holds none; zspace_second_page holds one and takes
 * others conditionally.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "access/xloginsert.h"
#include "catalog/catalog.h"
#include "catalog/pg_publication.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "page/zoverflow.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

/* An image is worth it when the chains have grown by this many times its size. */
#define IMAGE_DEBT_FACTOR 4
#define IMAGE_MIN_DEBT 1024

/* So many transactions are asked for one by one whether they have ended. */
#define STATUS_LOOKUPS 8

/* Refuse what would lose changes or history: tables that logical decoding is to read. */
static void
refuse_decoded_table(Relation rel)
{
	PublicationDesc desc;

	if (RelationIsUsedAsCatalogTable(rel))
		zundo_not_supported("a zheap table cannot have user_catalog_table set",
							"Its old versions are kept for queries only, not for logical decoding.");
	if (!RelationIsLogicallyLogged(rel))
		return;
	RelationBuildPublicationDesc(rel, &desc);
	if (desc.pubactions.pubinsert || desc.pubactions.pubupdate || desc.pubactions.pubdelete)
		zundo_not_supported("changes of a zheap table cannot be published",
							"Logical decoding of zheap tables is not implemented.");
}

void
zwriter_begin(ZWriter *writer, Relation rel, CommandId cid)
{
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		zundo_not_supported("temporary tables are not supported", NULL);
	if (unlikely(XLogLogicalInfoActive() || rel->rd_options != NULL))
		refuse_decoded_table(rel);
	zu_attach_database();
	writer->rel = rel;
	writer->xid = zxid_from_full(GetCurrentFullTransactionId());
	writer->topxid = zxid_from_full(GetTopFullTransactionId());
	writer->cid = cid;
	writer->logged = (rel->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT);
	zu_reserve(ZU_MAX_RESERVE);
}

MemoryContext
zdml_scratch(void)
{
	static MemoryContext scratch = NULL;

	if (scratch == NULL)
		scratch = AllocSetContextCreate(TopMemoryContext, "zheap row changes", ALLOCSET_DEFAULT_SIZES);
	else
		MemoryContextReset(scratch);
	return scratch;
}

void
zwriter_record(const ZWriter *writer, ZuRecord *rec, ZuRecordType type, BlockNumber block,
			   OffsetNumber off, UndoPtr prev)
{
	memset(rec, 0, sizeof(*rec));
	rec->type = type;
	rec->xflags = writer->logged ? 0 : ZUX_UNLOGGED;
	rec->xid = writer->xid;
	rec->topxid = writer->topxid;
	rec->reloid = RelationGetRelid(writer->rel);
	rec->relnumber = writer->rel->rd_locator.relNumber;
	rec->block = block;
	rec->offset = off;
	rec->cid = writer->cid;
	rec->prev = prev;
	rec->nrows = 1;
}

ZSlotChange
zslot_change(const ZSlotPick *pick, const ZuRecord *rec, UndoPtr ptr)
{
	ZSlotChange change;

	change.slotno = pick->slotno;
	change.grow_to = pick->grow_to;
	change.xid = rec->xid;
	change.ptr = ptr;
	change.live_chain = (pick->prev != InvalidUndoPtr);
	change.undo_length = rec->length;
	if (pick->committed != InvalidZXid)
		zown_note_push(pick->committed);
	zown_note(rec->relnumber, rec->block, rec->offset, rec->nrows, rec->cid, ptr, rec->prev);
	change.overflow = (pick->overflow != 0);
	return change;
}

/* ---- slots ---- */

static inline bool
xid_is_mine(const ZWriter *writer, ZXid xid)
{
	if (xid == writer->xid || xid == writer->topxid)
		return true;
	/* own subtransactions are younger than the top */
	return xid > writer->topxid && TransactionIdIsCurrentTransactionId(zxid_to_xid(xid));
}

/* All slots of a locked page. */
typedef struct SlotArray
{
	Page		page;
	Page		overflow;		/* locked too; NULL = none */
	int			ninline;
	int			n;
} SlotArray;

static inline const ZPageSlot *
slot_at(const SlotArray *slots, int i)
{
	return likely(i <= slots->ninline) ? zpage_slot(slots->page, i) : zoverflow_slot(slots->overflow, i);
}

/*
 * An own slot, or one that is free, if possible not 'avoid'; inline if possible. 0 = neither.
 * *settled: no overflow slot is in use (valid if no own slot was found).
 */
static int
find_own_or_free(const ZWriter *writer, const SlotArray *slots, ZXid oldest, int avoid, bool *own,
				 bool *settled)
{
	int			free_slot = 0;

	*own = false;
	*settled = true;
	for (int i = 1; i <= slots->n; i++)
	{
		const ZPageSlot *slot = slot_at(slots, i);
		ZXid		xid = ZSLOT_XID(slot);

		if (slot->ptr == InvalidUndoPtr || xid < oldest)
		{
			if (free_slot == 0 || (free_slot == avoid && i <= slots->ninline))
				free_slot = i;
		}
		else if (xid_is_mine(writer, xid))
		{
			*own = true;
			return i;
		}
		else if (i > slots->ninline)
			*settled = false;
	}
	return free_slot;
}

/* The slot with the oldest owner above 'floor' that is not among 'running' (NULL: nobody is). 0 = none. */
static int
find_oldest(const SlotArray *slots, ZXid floor, Snapshot running)
{
	int			best = 0;
	ZXid		best_xid = 0;

	for (int i = 1; i <= slots->n; i++)
	{
		ZXid		xid = ZSLOT_XID(slot_at(slots, i));

		if (xid > floor && (best == 0 || xid < best_xid) &&
			(running == NULL || !XidInMVCCSnapshot(zxid_to_xid(xid), running)))
		{
			best = i;
			best_xid = xid;
		}
	}
	return best;
}

/*
 * The slot with the oldest owner that has ended. 0 = none. The oldest one is the likeliest; when some of
 * those are at work still, one look at all running transactions answers for the rest.
 */
static int
find_ended(const SlotArray *slots, ZXid oldest, ZXidStatus *status)
{
	static SnapshotData running = {SNAPSHOT_MVCC};
	ZXid		floor = oldest - 1;

	for (int tries = 0;; tries++)
	{
		int			i;

		if (tries == STATUS_LOOKUPS)
			GetSnapshotData(&running);
		i = find_oldest(slots, floor, tries >= STATUS_LOOKUPS ? &running : NULL);
		if (i == 0)
			return 0;
		floor = ZSLOT_XID(slot_at(slots, i));
		*status = zxid_status(floor);
		if (*status == ZXID_COMMITTED || *status == ZXID_ABORTED)
			return i;
	}
}

static void
too_many_writers(Relation rel, BlockNumber block)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("too many transactions are changing block %u of zheap table \"%s\" at once",
					block, RelationGetRelationName(rel)),
			 errdetail("At most %d transactions can change or lock rows of one page.", ZPAGE_MAX_SLOTS),
			 errhint("Repeat the transaction, or give the table a smaller fillfactor.")));
}

typedef enum PickResult
{
	PICKED,
	PICKED_LAST_OVERFLOW,		/* an inline one; the overflow page is not needed any more */
	PICK_AGAIN,					/* aborted changes are in the way: roll them back */
	PICK_NONE
} PickResult;

/* Pick one of the slots that there are. */
static PickResult
pick_present(const ZWriter *writer, const SlotArray *slots, int avoid, ZSlotPick *pick)
{
	ZXid		oldest = zu_oldest();
	ZXidStatus	status = ZXID_COMMITTED;
	bool		own;
	bool		settled;
	int			i = find_own_or_free(writer, slots, oldest, avoid, &own, &settled);

	if (i != 0)
	{
		pick->slotno = i;
		pick->prev = own ? slot_at(slots, i)->ptr : InvalidUndoPtr;
		return slots->overflow != NULL && settled && !own && i <= slots->ninline ?
			PICKED_LAST_OVERFLOW : PICKED;
	}
	i = find_ended(slots, oldest, &status);
	if (i == 0)
		return PICK_NONE;
	if (status == ZXID_ABORTED)
		return PICK_AGAIN;
	pick->slotno = i;
	pick->prev = slot_at(slots, i)->ptr;
	pick->committed = ZSLOT_XID(slot_at(slots, i));
	return PICKED;
}

/* The same for a page with an overflow page, which gets a further slot if need be. */
static PickResult
pick_with_overflow(const ZWriter *writer, Buffer buf, int avoid, ZSlotPick *pick)
{
	BlockNumber block = zpage_trailer(BufferGetPage(buf))->overflow;
	Buffer		overflow = zu_overflow_lock(block, writer->rel->rd_locator.relNumber,
											BufferGetBlockNumber(buf), BUFFER_LOCK_SHARE);
	SlotArray	slots;
	PickResult	result;

	slots.page = BufferGetPage(buf);
	slots.overflow = BufferGetPage(overflow);
	slots.ninline = zpage_nslots(slots.page);
	slots.n = zoverflow_last(slots.overflow);
	result = pick_present(writer, &slots, avoid, pick);
	if (result == PICK_NONE && slots.n < ZPAGE_MAX_SLOTS)
	{
		pick->slotno = slots.n + 1;
		result = PICKED;
	}
	if (pick->slotno > slots.ninline)
		pick->overflow = block;
	UnlockReleaseBuffer(overflow);
	return result;
}

bool
zslot_pick(const ZWriter *writer, Buffer buf, int avoid, bool must_have, ZSlotPick *pick)
{
	Page		page = BufferGetPage(buf);
	bool		pruned = false;

	memset(pick, 0, sizeof(*pick));
	if (zrollback_own_aborts_pending())
		zrollback_page(buf, writer->rel->rd_locator, RelationGetRelid(writer->rel), writer->logged);
	for (;;)
	{
		int			n = zpage_nslots(page);
		bool		overflow = zpage_trailer(page)->overflow != InvalidBlockNumber;
		SlotArray	slots = {page, NULL, n, n};

		switch (unlikely(overflow) ? pick_with_overflow(writer, buf, avoid, pick) :
				pick_present(writer, &slots, avoid, pick))
		{
			case PICKED:
				return true;
			case PICKED_LAST_OVERFLOW:
				(void) zoverflow_release(writer->rel, buf);
				return true;
			case PICK_AGAIN:
				zrollback_page(buf, writer->rel->rd_locator, RelationGetRelid(writer->rel), writer->logged);
				continue;
			case PICK_NONE:
				break;
		}
		if (overflow)
		{
			if (must_have)
				too_many_writers(writer->rel, BufferGetBlockNumber(buf));
			return false;
		}
		if (n < ZPAGE_MAX_INLINE_SLOTS && zpage_can_grow_slots(page, n + 1))
		{
			pick->slotno = pick->grow_to = n + 1;
			return true;
		}
		if ((pruned || !zheap_prune_page(writer->rel, buf, false)) &&
			!(must_have && zoverflow_attach(writer, buf)))
			return false;
		pruned = true;
	}
}

Buffer
zslot_lock(const ZWriter *writer, Buffer buf, const ZSlotPick *pick)
{
	if (likely(pick->overflow == 0))
		return InvalidBuffer;
	return zu_overflow_lock(pick->overflow, writer->rel->rd_locator.relNumber,
							BufferGetBlockNumber(buf), BUFFER_LOCK_EXCLUSIVE);
}

void
zslot_apply(Page page, Buffer overflow, const ZSlotChange *change)
{
	zapply_slot(page, change);
	if (unlikely(BufferIsValid(overflow)))
	{
		zapply_overflow_slot(BufferGetPage(overflow), change);
		MarkBufferDirty(overflow);
	}
}

void
zslot_unlock(Buffer overflow, XLogRecPtr recptr)
{
	if (likely(!BufferIsValid(overflow)))
		return;
	PageSetLSN(BufferGetPage(overflow), recptr);
	UnlockReleaseBuffer(overflow);
}

/* ---- pruning ---- */

/* The xid in slot s; overflow: all slots if the page has more than the inline ones, else NULL. */
static inline ZXid
slot_xid(Page page, const ZSlotView *overflow, int s)
{
	if (s == 0)
		return InvalidZXid;
	if (likely(s <= zpage_nslots(page)))
		return ZSLOT_XID(zpage_slot(page, s));
	return overflow != NULL && s <= overflow->n ? ZSLOT_XID(&overflow->s[s]) : InvalidZXid;
}

/* What can be done with line pointer lp now? False: nothing. */
static bool
prune_action(Page page, const ZSlotView *overflow, ItemId lp, ZXid oldest, bool has_index,
			 ZPruneAction *action)
{
	ZHeader		h;
	ZXid		xid;
	bool		settled;
	bool		committed = false;

	if (ItemIdIsDead(lp))
	{
		*action = ZPRUNE_UNUSED;
		return !has_index;
	}
	if (ItemIdIsRedirected(lp))
	{
		if (slot_xid(page, overflow, lp->lp_off) >= oldest)
			return false;
		*action = has_index ? ZPRUNE_DEAD : ZPRUNE_UNUSED;
		return true;
	}
	if (!ItemIdIsNormal(lp))
		return false;
	h = zheader_get(zpage_row(page, lp));
	if (ZH_LIVE(h) && !(h & ZH_SLACK))
		return false;
	xid = slot_xid(page, overflow, ZH_SLOT(h));
	settled = xid < oldest;
	if (!settled)
		committed = (zxid_status(xid) == ZXID_COMMITTED);
	if (!settled && !committed)
		return false;
	if (ZH_LIVE(h))
		*action = ZPRUNE_CUT;
	else if (committed)
		*action = ZPRUNE_STUB;
	else
		*action = has_index ? ZPRUNE_DEAD : ZPRUNE_UNUSED;
	return true;
}

/* Do items to the page and log it. */
static void
prune_page(Relation rel, Buffer buf, const ZPruneItem *items, int n)
{
	Page		page = BufferGetPage(buf);

	START_CRIT_SECTION();
	zpage_prune(page, items, n);
	MarkBufferDirty(buf);
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT)
	{
		XLogRecPtr	recptr;

		XLogBeginInsert();
		XLogRegisterData((char *) items, n * sizeof(ZPruneItem));
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
		recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_PRUNE);
		PageSetLSN(page, recptr);
	}
	ZUNDO_FAULT("prune-logged");
	END_CRIT_SECTION();
}

bool
zheap_prune_page(Relation rel, Buffer buf, bool vacuum)
{
	Page		page = BufferGetPage(buf);
	ZPruneItem	items[ZHEAP_MAX_OFFSET];
	ZXid		oldest = zu_oldest();
	bool		has_index = rel->rd_rel->relhasindex;
	int			n = 0;
	OffsetNumber maxoff = PageGetMaxOffsetNumber(page);
	int			before = zpage_hole(page);
	static ZSlotView all_slots;
	const ZSlotView *overflow = NULL;

	if (!zpage_rows_ok(page))
		zvis_corrupt_page(rel, BufferGetBlockNumber(buf), InvalidOffsetNumber);
	if (unlikely(zpage_trailer(page)->overflow != InvalidBlockNumber))
	{
		zslots_copy(page, &all_slots);
		overflow = &all_slots;
	}
	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		ZPruneAction action;

		if (prune_action(page, overflow, PageGetItemId(page, off), oldest, has_index, &action))
		{
			items[n].offset = off;
			items[n++].action = action;
		}
	}
	/* areas left behind by rows that grew are gained by compaction alone */
	if (n == 0 && zpage_gain(page, items, 0) == 0)
		return false;
	prune_page(rel, buf, items, n);
	return zpage_hole(page) > before || n > 0;
}

void
zheap_make_unused(Relation rel, Buffer buf, OffsetNumber *offs, int n)
{
	ZPruneItem	items[ZHEAP_MAX_OFFSET];

	for (int i = 0; i < n; i++)
	{
		items[i].offset = offs[i];
		items[i].action = ZPRUNE_UNUSED;
	}
	if (n > 0)
		prune_page(rel, buf, items, n);
}

/* ---- pages for new rows ---- */

/* Can the locked page take the row? It may be pruned. *init = it is new. */
static bool
try_page(const ZWriter *writer, Buffer buf, Size len, Size keep_free, OffsetNumber *off,
		 ZSlotPick *pick, bool *init)
{
	Page		page = BufferGetPage(buf);

	*init = PageIsNew(page);
	if (*init)
	{
		memset(pick, 0, sizeof(*pick));
		pick->slotno = 1;
		*off = FirstOffsetNumber;
		return true;
	}
	for (int tries = 0; tries < 2; tries++)
	{
		*off = zpage_find_offset(page);
		if (*off == InvalidOffsetNumber)
			return false;
		if (zpage_room_for(page, *off, len + keep_free))
		{
			if (!zslot_pick(writer, buf, 0, false, pick))
				return false;
			/* picking may have pruned or grown */
			*off = zpage_find_offset(page);
			return *off != InvalidOffsetNumber &&
				zpage_room_for(page, *off, len + (pick->grow_to ? sizeof(ZPageSlot) : 0));
		}
		if (tries > 0 || !zheap_prune_page(writer->rel, buf, false))
			return false;
	}
	return false;
}

static Buffer
read_for_insert(Relation rel, BlockNumber block, BulkInsertState bistate)
{
	Buffer		buf;

	if (bistate == NULL)
		return ReadBuffer(rel, block);
	if (bistate->current_buf != InvalidBuffer)
	{
		if (BufferGetBlockNumber(bistate->current_buf) == block)
		{
			IncrBufferRefCount(bistate->current_buf);
			return bistate->current_buf;
		}
		ReleaseBuffer(bistate->current_buf);
		bistate->current_buf = InvalidBuffer;
	}
	buf = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, bistate->strategy);
	IncrBufferRefCount(buf);
	bistate->current_buf = buf;
	return buf;
}

static Buffer
extend_for_insert(Relation rel, BulkInsertState bistate)
{
	Buffer		buf = zc_extend_relation(rel, bistate ? bistate->strategy : NULL);

	if (bistate != NULL)
	{
		if (bistate->current_buf != InvalidBuffer)
			ReleaseBuffer(bistate->current_buf);
		IncrBufferRefCount(buf);
		bistate->current_buf = buf;
	}
	RelationSetTargetBlock(rel, BufferGetBlockNumber(buf));
	return buf;
}

Buffer
zspace_insert_page(const ZWriter *writer, Size len, int options, BulkInsertState bistate,
				   OffsetNumber *off, ZSlotPick *pick, bool *init)
{
	Relation	rel = writer->rel;
	bool		use_fsm = !(options & TABLE_INSERT_SKIP_FSM);
	Size		keep_free = RelationGetTargetPageFreeSpace(rel, HEAP_DEFAULT_FILLFACTOR);
	Size		need = len + sizeof(ItemIdData);
	BlockNumber target;
	Buffer		buf;

	if (bistate != NULL && bistate->current_buf != InvalidBuffer)
		target = BufferGetBlockNumber(bistate->current_buf);
	else
		target = RelationGetTargetBlock(rel);
	if (target == InvalidBlockNumber && use_fsm)
		target = GetPageWithFreeSpace(rel, Min(need + keep_free, MaxHeapTupleSize));
	if (target == InvalidBlockNumber)
	{
		BlockNumber nblocks = RelationGetNumberOfBlocks(rel);

		if (nblocks > 0)
			target = nblocks - 1;
	}
	while (target != InvalidBlockNumber)
	{
		Size		hole;

		buf = read_for_insert(rel, target, bistate);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		if (unlikely(!PageIsNew(BufferGetPage(buf)) && !zpage_is_valid(BufferGetPage(buf))))
			zvis_corrupt_page(rel, target, InvalidOffsetNumber);
		if (try_page(writer, buf, len, keep_free, off, pick, init))
		{
			RelationSetTargetBlock(rel, target);
			return buf;
		}
		/* a page without line pointers or slots to give has no space for FSM */
		hole = zpage_hole(BufferGetPage(buf));
		if (hole >= need + keep_free)
			hole = 0;
		UnlockReleaseBuffer(buf);
		if (!use_fsm)
			break;
		target = RecordAndGetPageWithFreeSpace(rel, target, hole, Min(need + keep_free, MaxHeapTupleSize));
	}
	buf = extend_for_insert(rel, bistate);
	if (!try_page(writer, buf, len, 0, off, pick, init))
		elog(ERROR, "no room for a row of %zu bytes on a new page", len);
	return buf;
}

Buffer
zspace_second_page(const ZWriter *writer, Buffer held, Size len, OffsetNumber *off,
				   ZSlotPick *pick, bool *init)
{
	Relation	rel = writer->rel;
	Size		need = len + sizeof(ItemIdData);
	BlockNumber held_block = BufferGetBlockNumber(held);
	BlockNumber target = RelationGetTargetBlock(rel);
	Buffer		buf;

	*init = false;
	if (zpage_find_offset(BufferGetPage(held)) != InvalidOffsetNumber &&
		try_page(writer, held, len, 0, off, pick, init))
		return held;
	for (int tries = 0; tries < 3; tries++)
	{
		if (target == InvalidBlockNumber || target == held_block)
			target = GetPageWithFreeSpace(rel, Min(need, MaxHeapTupleSize));
		if (target == InvalidBlockNumber)
			break;
		if (target != held_block)
		{
			buf = ReadBuffer(rel, target);
			if (ConditionalLockBuffer(buf))
			{
				Size		hole;

				if (unlikely(!PageIsNew(BufferGetPage(buf)) && !zpage_is_valid(BufferGetPage(buf))))
					zvis_corrupt_page(rel, target, InvalidOffsetNumber);
				if (try_page(writer, buf, len, 0, off, pick, init))
				{
					RelationSetTargetBlock(rel, target);
					return buf;
				}
				hole = zpage_hole(BufferGetPage(buf));
				LockBuffer(buf, BUFFER_LOCK_UNLOCK);
				RecordPageWithFreeSpace(rel, target, hole >= need ? 0 : hole);
			}
			ReleaseBuffer(buf);
		}
		else
			RecordPageWithFreeSpace(rel, target, 0);
		target = InvalidBlockNumber;
	}
	buf = extend_for_insert(rel, NULL);
	if (!try_page(writer, buf, len, 0, off, pick, init))
		elog(ERROR, "no room for a row of %zu bytes on a new page", len);
	return buf;
}

/* ---- page images ---- */

/* Is every unsettled slot's owner committed or at work? (an image must not hold aborted heads) */
static bool
no_aborted_slots(Page page)
{
	ZXid		oldest = zu_oldest();

	for (int i = 1; i <= zpage_nslots(page); i++)
	{
		ZPageSlot  *slot = zpage_slot(page, i);

		if (slot->ptr != InvalidUndoPtr && ZSLOT_XID(slot) >= oldest &&
			zxid_status(ZSLOT_XID(slot)) == ZXID_ABORTED)
			return false;
	}
	return true;
}

void
zspace_maybe_image(const ZWriter *writer, Buffer buf, ZSlotPick *pick)
{
	static char bytes[BLCKSZ];
	static char compressed[BLCKSZ];
	static char packed[ZUR_MAX_LENGTH];
	Page		page = BufferGetPage(buf);
	PageHeader	ph = (PageHeader) page;
	ZPageTrailer *trailer = zpage_trailer(page);
	Size		size = ph->pd_lower + (BLCKSZ - ph->pd_upper);
	ZuRecord	rec;
	ZuRecord   *recs[1];
	ZuOp		op;
	ZWalSlot	slot = {0};
	XLogRecPtr	recptr = InvalidXLogRecPtr;

	if (pick->committed == InvalidZXid || trailer->debt < IMAGE_MIN_DEBT ||
		trailer->debt < Min(IMAGE_DEBT_FACTOR * size, PG_UINT16_MAX))
		return;
	if (trailer->overflow != InvalidBlockNumber || !no_aborted_slots(page))
		return;
	memcpy(bytes, page, ph->pd_lower);
	memcpy(bytes + ph->pd_lower, (char *) page + ph->pd_upper, BLCKSZ - ph->pd_upper);
	zwriter_record(writer, &rec, ZUR_IMAGE, BufferGetBlockNumber(buf), 0, trailer->image);
	rec.committed = pick->committed;
	rec.payload = bytes;
	rec.payload_len = size;
	zur_compress(&rec, compressed, sizeof(compressed));
	recs[0] = &rec;
	zu_prepare(&op, recs, 1, writer->topxid);
	zur_pack(&rec, packed);
	zwal_ensure_space(&op, false);

	START_CRIT_SECTION();
	zapply_image(page, op.ptr[0]);
	MarkBufferDirty(buf);
	zu_write(&op);
	recptr = zwal_log_literal(writer->logged ? ZWAL_IMAGE : ZWAL_UNDO_ONLY, 0,
							  writer->logged ? buf : InvalidBuffer, InvalidBuffer,
							  &slot, &op, packed, NULL, 0);
	if (writer->logged)
		PageSetLSN(page, recptr);
	zu_finish(&op, recptr);
	END_CRIT_SECTION();
}
