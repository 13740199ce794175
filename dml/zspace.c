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
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* An image is worth it when the chains have grown by this many times its size. */
#define IMAGE_DEBT_FACTOR 4
#define IMAGE_MIN_DEBT 1024

void
zwriter_begin(ZWriter *writer, Relation rel, CommandId cid)
{
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		zundo_not_supported("temporary tables", NULL);
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
	zown_note(rec->relnumber, rec->block, rec->offset, rec->nrows, rec->cid, ptr, rec->prev);
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

/* An own slot, or one that is free, if possible not 'avoid'. 0 = neither. */
static int
find_own_or_free(const ZWriter *writer, Page page, ZXid oldest, int avoid, bool *own)
{
	int			free_slot = 0;

	*own = false;
	for (int i = 1; i <= zpage_nslots(page); i++)
	{
		ZPageSlot  *slot = zpage_slot(page, i);
		ZXid		xid = ZSLOT_XID(slot);

		if (slot->ptr == InvalidUndoPtr || xid < oldest)
		{
			if (free_slot == 0 || free_slot == avoid)
				free_slot = i;
		}
		else if (xid_is_mine(writer, xid))
		{
			*own = true;
			return i;
		}
	}
	return free_slot;
}

/* The slot with the oldest owner that has ended. 0 = none. */
static int
find_ended(Page page, ZXid oldest, ZXidStatus *status)
{
	ZXid		floor = InvalidZXid;

	for (;;)
	{
		int			best = 0;
		ZXid		best_xid = 0;

		for (int i = 1; i <= zpage_nslots(page); i++)
		{
			ZXid		xid = ZSLOT_XID(zpage_slot(page, i));

			if (xid >= oldest && xid > floor && (best == 0 || xid < best_xid))
			{
				best = i;
				best_xid = xid;
			}
		}
		if (best == 0)
			return 0;
		*status = zxid_status(best_xid);
		if (*status == ZXID_COMMITTED || *status == ZXID_ABORTED)
			return best;
		floor = best_xid;
	}
}

bool
zslot_pick(const ZWriter *writer, Buffer buf, int avoid, ZSlotPick *pick)
{
	Page		page = BufferGetPage(buf);
	bool		pruned = false;

	memset(pick, 0, sizeof(*pick));
	if (zrollback_own_aborts_pending())
		zrollback_page(buf, writer->rel->rd_locator, RelationGetRelid(writer->rel), writer->logged);
	for (;;)
	{
		ZXid		oldest = zu_oldest();
		ZXidStatus	status;
		bool		own;
		int			n = zpage_nslots(page);
		int			i = find_own_or_free(writer, page, oldest, avoid, &own);

		if (i != 0)
		{
			pick->slotno = i;
			pick->prev = own ? zpage_slot(page, i)->ptr : InvalidUndoPtr;
			return true;
		}
		i = find_ended(page, oldest, &status);
		if (i != 0 && status == ZXID_ABORTED)
		{
			zrollback_page(buf, writer->rel->rd_locator, RelationGetRelid(writer->rel), writer->logged);
			continue;
		}
		if (i != 0)
		{
			pick->slotno = i;
			pick->prev = zpage_slot(page, i)->ptr;
			pick->committed = ZSLOT_XID(zpage_slot(page, i));
			return true;
		}
		if (n < ZPAGE_MAX_INLINE_SLOTS && zpage_can_grow_slots(page, n + 1))
		{
			pick->slotno = pick->grow_to = n + 1;
			return true;
		}
		if (pruned || !zheap_prune_page(writer->rel, buf, false))
			return false;
		pruned = true;
	}
}

void
zslot_unavailable(Relation rel, BlockNumber block)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("too many transactions are changing block %u of zheap table \"%s\" at once",
					block, RelationGetRelationName(rel)),
			 errdetail("The page is full and all its transaction slots are in use."),
			 errhint("Repeat the transaction, or give the table a smaller fillfactor.")));
	pg_unreachable();
}

/* ---- pruning ---- */

/* What can be done with line pointer lp now? False: nothing. */
static bool
prune_action(Page page, ItemId lp, ZXid oldest, bool has_index, bool vacuum, ZPruneAction *action)
{
	ZHeader		h;
	int			s;
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
		s = lp->lp_off;
		if (s > zpage_nslots(page) || ZSLOT_XID(zpage_slot(page, s)) >= oldest)
			return false;
		*action = has_index ? ZPRUNE_DEAD : ZPRUNE_UNUSED;
		return true;
	}
	if (!ItemIdIsNormal(lp))
		return false;
	h = zheader_get(zpage_row(page, lp));
	if (ZH_LIVE(h) && !(h & ZH_SLACK))
		return false;
	s = ZH_SLOT(h);
	if (s > zpage_nslots(page))
		return false;
	xid = s == 0 ? InvalidZXid : ZSLOT_XID(zpage_slot(page, s));
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

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		ZPruneAction action;

		if (prune_action(page, PageGetItemId(page, off), oldest, has_index, vacuum, &action))
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
			if (!zslot_pick(writer, buf, 0, pick))
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
	if (op.npages > 2)
		XLogEnsureRecordSpace(ZWAL_UNDO_BLOCK + op.npages, 0);

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
