/*
 * dml/zprune.c - giving back the room of rows whose deletion is committed.
 *
 * Called by dml/ and vacuum/ with the page locked exclusively. Each page change
 * is one WAL record ("prune-logged").
 *
 * Rule DML-9: a line pointer becomes LP_UNUSED, for another row to take, only
 * when no transaction in progress has a lock on what was there: a row that was
 * moved, or one that an aborted transaction had moved here.
 *
 *	SAVED-3	A row whose deletion or move has committed and is not before
 *		`oldest` is saved, and then becomes a stub, under one hold of the
 *		page's lock, each with its WAL record: a page without the row is never
 *		seen without the record. A crash or an error between the two ("rows-
 *		saved") leaves a record that nobody needs.
 *	SAVED-4	Only a writer with a transaction id and reserved undo does so.
 *		VACUUM leaves such rows where they are.
 *	SAVED-6	A row whose deletion or move is not before `oldest` goes as one
 *		does that is, unsaved and without a stub, if every snapshot sees it
 *		(GlobalVisTestIsRemovableXid), as on heap, and its commit record is
 *		flushed: index entries of an LP_DEAD item are marked without WAL
 *		(UNDO-19b). The deleter may be an earlier owner of the slot (SCAN-6a).
 *		(a) The WAL record has a conflict horizon, for `oldest` has not told
 *			standbys of the deleter (UNDO-19).
 *		(b) Not for a row that may be locked (LOCK-6), nor for a chunk of a
 *			value that a reader without a snapshot may need (zu_hold, TOAST-4).
 *		Example: a queue, which refills its pages in less time than the undo
 *		worker's pass takes.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "mvcc/zlockers.h"
#include "mvcc/zsaved.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * Returns slot s, which a line pointer or a row of the page names; a free one
 * if there is none. overflow has all slots if the page has more than the inline
 * ones, else it is NULL. Raises ERRCODE_DATA_CORRUPTED if the page never had a
 * slot of that number.
 */
static inline const ZPageSlot *
slot_of(Relation rel, BlockNumber block, Page page, const ZSlotView *overflow, int s)
{
	static const ZPageSlot none;

	if (s == 0)
		return &none;
	if (likely(s <= zpage_nslots(page)))
		return zpage_slot(page, s);
	if (zpage_trailer(page)->overflow == ZPAGE_NO_OVERFLOW)
		zvis_corrupt_slotno(rel, block, s);
	return overflow != NULL && s <= overflow->n ? &overflow->s[s] : &none;
}

/*
 * Returns whether the slot has an owner and no undo (PAGE-7): what the owner
 * has deleted may be needed.
 */
static inline bool
is_damaged(const ZPageSlot *slot)
{
	return slot->ptr == InvalidUndoPtr && ZSLOT_XID(slot) != InvalidZXid;
}

/*
 * Returns whether no snapshot needs a row with this header, whose deletion is
 * committed and not before `oldest`, and whose slot xid owns (SAVED-6).
 */
static bool
seen_by_all(Relation rel, ZHeader h, ZXid xid)
{
	return ZH_LOCK(h) == 0 && zxid_seen_by_all(rel, xid) &&
		(rel->rd_rel->relkind != RELKIND_TOASTVALUE || zu_unheld(xid));
}

/* What prune_action returns if nothing can be done. */
#define NO_ACTION (-1)

/*
 * Returns what can be done with line pointer lp now, or NO_ACTION. Advances
 * *conflict to the deleter of a row that goes by SAVED-6.
 */
static int
prune_action(Relation rel, BlockNumber block, Page page, const ZSlotView *overflow, ItemId lp,
			 ZXid oldest, ZXid *conflict)
{
	ZHeader		h;
	const ZPageSlot *slot;
	ZSlotAge	age;
	bool		has_index = rel->rd_rel->relhasindex;
	ZPruneAction gone = has_index ? ZPRUNE_DEAD : ZPRUNE_UNUSED;

	if (ItemIdIsDead(lp))
		return has_index ? NO_ACTION : ZPRUNE_UNUSED;
	if (ItemIdIsRedirected(lp))
	{
		slot = slot_of(rel, block, page, overflow, ZH_SLOT(zpage_stub_header(lp)));
		if (zslot_age(slot, oldest) > ZAGE_LOCKS || is_damaged(slot))
			return NO_ACTION;
		return gone;
	}
	if (!ItemIdIsNormal(lp))
		return NO_ACTION;
	h = zheader_get(zpage_row(page, lp));
	if (ZH_LIVE(h) && !(h & ZH_SLACK))
		return NO_ACTION;
	slot = slot_of(rel, block, page, overflow, ZH_SLOT(h));
	age = zslot_age(slot, oldest);
	if (unlikely(age == ZAGE_LOST || is_damaged(slot)))
		return NO_ACTION;		/* the error is raised when the row is read */
	if (age == ZAGE_YOUNG)
	{
		zvis_check_xid(rel, block, ZH_SLOT(h), ZSLOT_XID(slot));
		if (zxid_status_at(ZSLOT_XID(slot), oldest) != ZXID_COMMITTED)
			return NO_ACTION;
	}
	/* a damaged row that does not tell its length stays as it is */
	if ((ZH_LIVE(h) || age == ZAGE_YOUNG) && zpage_row_length(page, lp) == 0)
		return NO_ACTION;
	if (ZH_LIVE(h))
		return ZPRUNE_CUT;
	if (age != ZAGE_YOUNG)
		return gone;
	/* other backends have no snapshot of a temporary table */
	Assert(!RelationUsesLocalBuffers(rel));
	if (!seen_by_all(rel, h, ZSLOT_XID(slot)))
		return ZPRUNE_STUB;
	*conflict = Max(*conflict, ZSLOT_XID(slot));
	return gone;
}

/*
 * Raises an error if the page is damaged: zpage_prune raises one too, but it is
 * called within a critical section. The page may have been read from disk again
 * since it was tested for zheap_prune_page.
 */
static void
check_rows(Relation rel, Buffer buf)
{
	Page		page = BufferGetPage(buf);

	if (!zpage_rows_ok(page))
		zvis_corrupt_page(rel, BufferGetBlockNumber(buf), page, InvalidOffsetNumber);
}

#ifdef USE_ASSERT_CHECKING
/* Returns whether all rows that the items make stubs have been saved. */
static bool
rows_are_saved(Relation rel, Buffer buf, const ZPruneItem *items, int n)
{
	Page		page = BufferGetPage(buf);
	char		row[BLCKSZ];
	int			len;

	for (int i = 0; i < n; i++)
	{
		ItemId		lp = PageGetItemId(page, items[i].offset);

		if (items[i].action == ZPRUNE_STUB &&
			(zsaved_find(rel, BufferGetBlockNumber(buf), zpage_trailer(page)->saved,
						 items[i].offset, row, &len) != ZSAVED_FOUND ||
			 len != zpage_row_length(page, lp) || memcmp(row, zpage_row(page, lp), len) != 0))
			return false;
	}
	return true;
}
#endif

/*
 * Applies the n items to the page, in a critical section, and logs them with
 * the conflict horizon.
 */
static void
prune_page(Relation rel, Buffer buf, const ZPruneItem *items, int n, TransactionId conflict)
{
	Page		page = BufferGetPage(buf);

	Assert(zc_buffer_exclusive(buf));
	Assert(rows_are_saved(rel, buf, items, n)); /* SAVED-1, SAVED-3 */
	START_CRIT_SECTION();
	zpage_prune(page, items, n);
	MarkBufferDirty(buf);
	if (RelationNeedsWAL(rel))
	{
		XLogRecPtr	recptr;

		XLogBeginInsert();
		XLogRegisterData((char *) &conflict, sizeof(conflict));
		XLogRegisterData((char *) items, n * sizeof(ZPruneItem));
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
		recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_PRUNE);
		PageSetLSN(page, recptr);
	}
	ZUNDO_FAULT("prune-logged");
	END_CRIT_SECTION();
}

/*
 * Returns whether there may be a lock on what is at lp. Only a row that has its
 * bytes can tell that there is none.
 */
static bool
may_be_locked(Page page, ItemId lp)
{
	return !ItemIdIsNormal(lp) || ZH_LOCK(zheader_get(zpage_row(page, lp))) != 0;
}

/*
 * Changes the n items so that no line pointer on which there is a lock becomes
 * LP_UNUSED (DML-9): a row becomes a stub, everything else is left out. Returns
 * how many items are left.
 */
static int
keep_locked(Relation rel, Buffer buf, ZPruneItem *items, int n)
{
	Page		page = BufferGetPage(buf);
	bool		locked[ZHEAP_MAX_OFFSET + 1];
	bool		looked = false;
	int			left = 0;

	Assert(zc_buffer_exclusive(buf));

	/*
	 * No other session locks rows of a temporary table, and what is dead
	 * there was deleted by transactions that have ended.
	 */
	if (RelationUsesLocalBuffers(rel))
		return n;
	for (int i = 0; i < n; i++)
	{
		ItemId		lp = PageGetItemId(page, items[i].offset);

		if (items[i].action == ZPRUNE_UNUSED && may_be_locked(page, lp))
		{
			if (!looked)
				zlockers_locked_items(rel, BufferGetBlockNumber(buf), page, locked);
			looked = true;
			if (locked[items[i].offset] && !ItemIdIsNormal(lp))
				continue;
			if (locked[items[i].offset])
				items[i].action = ZPRUNE_KEEP;
		}
		items[left++] = items[i];
	}
	return left;
}

/*
 * Returns whether pruning the page found nothing to do. It would find nothing
 * again as long as no transaction has ended and `oldest` is the same; a
 * statement that moves all rows of a page prunes it for each of them. What an
 * undone change leaves, a room or slack, is found at the next end of a
 * transaction.
 */
static bool
was_in_vain(const ZKnownPage *known, ZXid oldest, uint64 completions)
{
	return known->in_vain && known->oldest == oldest && known->completions == completions;
}

/* Remembers that pruning the page in buf found nothing to do. */
static void
note_in_vain(Relation rel, Buffer buf, ZXid oldest, uint64 completions)
{
	ZKnownPage *known = zknown_page(rel, BufferGetBlockNumber(buf));

	known->in_vain = true;
	known->oldest = oldest;
	known->completions = completions;
}

/*
 * zprune_plan: See zdml_internal.h. Decides for each line pointer by the state
 * of the transaction in its slot alone; undo is read only to look for locks
 * (keep_locked).
 */
bool
zprune_plan(Relation rel, Buffer buf, ZPrunePlan *plan)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);

	/*
	 * Read before the transactions' states: one that ends meanwhile is not
	 * counted yet, so the page is looked at again.
	 */
	uint64		completions = zc_peek_xact_completions();
	ZPruneItem *items = plan->items;
	ZXid		oldest;
	ZXid		conflict = InvalidZXid;
	int			n = 0;
	OffsetNumber maxoff = PageGetMaxOffsetNumber(page);
	static ZSlotView all_slots;
	const ZSlotView *overflow = NULL;

	oldest = zslots_oldest(page);
	if (was_in_vain(zknown_page(rel, block), oldest, completions))
		return false;
	check_rows(rel, buf);
	if (zpage_has_overflow(page))
	{
		zslots_copy(rel, block, page, &all_slots);
		overflow = &all_slots;
	}
	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		int			action = prune_action(rel, block, page, overflow, PageGetItemId(page, off),
										  oldest, &conflict);

		if (action != NO_ACTION)
		{
			items[n].offset = off;
			items[n++].action = action;
		}
	}
	n = keep_locked(rel, buf, items, n);
	/* what undone insertions have left is gained by compaction alone */
	if (n == 0 && zpage_gain(page, items, 0) == 0)
	{
		note_in_vain(rel, buf, oldest, completions);
		return false;
	}
	plan->n = n;
	plan->conflict = zxid_to_xid(conflict);
	return true;
}

/*
 * Takes out of the plan the rows that an old snapshot may need, which only a
 * writer can save (SAVED-4).
 */
static void
leave_rows(ZPrunePlan *plan)
{
	int			left = 0;

	for (int i = 0; i < plan->n; i++)
		if (plan->items[i].action != ZPRUNE_STUB)
			plan->items[left++] = plan->items[i];
	plan->n = left;
}

/* Prunes the page by the plan. Returns whether that has changed something. */
static bool
prune_page_by(Relation rel, Buffer buf, const ZPrunePlan *plan)
{
	Page		page = BufferGetPage(buf);
	int			before = zpage_hole(page);

	if (plan->n == 0 && zpage_gain(page, plan->items, 0) == 0)
		return false;
	prune_page(rel, buf, plan->items, plan->n, plan->conflict);
	return zpage_hole(page) > before || plan->n > 0;
}

bool
zprune_has_undone_chunk(Relation rel, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	if (rel->rd_rel->relkind != RELKIND_TOASTVALUE ||
		!zreclaim_undone_now(rel, buf))
		return false;
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsDead(lp) && ItemIdHasStorage(lp))
			return true;
	}
	return false;
}

bool
zprune_by_plan(const ZWriter *writer, Buffer buf, ZPrunePlan *plan, bool suffices)
{
	if (zprune_has_undone_chunk(writer->rel, buf))
		return false;
	if (!suffices || !zimage_save_rows(writer, buf, plan))	/* SAVED-3 */
		leave_rows(plan);
	return prune_page_by(writer->rel, buf, plan);
}

bool
zprune_for_hole(const ZWriter *writer, Buffer buf, Size hole)
{
	Page		page = BufferGetPage(buf);
	ZPrunePlan	plan;

	return zprune_plan(writer->rel, buf, &plan) &&
		zprune_by_plan(writer, buf, &plan,
					   zpage_hole(page) + zpage_gain(page, plan.items, plan.n) >= (int) hole);
}

/* zheap_prune_page: See zdml.h. */
void
zheap_prune_page(Relation rel, Buffer buf)
{
	ZPrunePlan	plan;

	if (!zprune_plan(rel, buf, &plan))
		return;
	leave_rows(&plan);
	(void) prune_page_by(rel, buf, &plan);
}

int
zheap_free_space(Relation rel, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	ZPrunePlan	plan;

	return Max(zpage_hole(page), 0) +
		(zprune_plan(rel, buf, &plan) ? zpage_gain(page, plan.items, plan.n) : 0);
}

/*
 * zheap_make_unused: See zdml.h. Locks are looked for again: they may have
 * been taken since VACUUM noted the offsets.
 */
void
zheap_make_unused(Relation rel, Buffer buf, OffsetNumber *offs, int n)
{
	ZPruneItem	items[ZHEAP_MAX_OFFSET];

	for (int i = 0; i < n; i++)
	{
		items[i].offset = offs[i];
		items[i].action = ZPRUNE_UNUSED;
	}
	check_rows(rel, buf);
	n = keep_locked(rel, buf, items, n);
	if (n > 0)
		prune_page(rel, buf, items, n, InvalidTransactionId);
}

void
zheap_clear_stale(Relation rel, Buffer buf, const OffsetNumber *offs, int n)
{
	ZPruneItem	items[ZHEAP_MAX_OFFSET];

	Assert(n > 0 && n <= ZHEAP_MAX_OFFSET);
	check_rows(rel, buf);
	for (int i = 0; i < n; i++)
	{
		items[i].offset = offs[i];
		items[i].action = ZPRUNE_UNSTALE;
	}
	prune_page(rel, buf, items, n, InvalidTransactionId);
}
