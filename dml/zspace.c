/*
 * dml/zspace.c - pages with space for new rows.
 *
 * Called by dml/. The only wait for a page lock is in zspace_insert_page, whose
 * caller holds none; zspace_second_page's caller holds one, so that it takes
 * others conditionally.
 */
#include "postgres.h"

#include "dml/zdml_internal.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

/*
 * Number of pages without space, though the free space map names them, that are
 * visited before the last page is tried, or the table is extended.
 */
#define MAX_VISITS_IN_VAIN 8

/*
 * Returns the space to ask the map for, for a row that needs this much. After
 * half of the visits only pages with as much space as committed deletions enter
 * (zreclaim.c): the map may name many pages for a few bytes, whose rows a long
 * transaction has deleted since, and begins with these each time.
 */
static Size
space_to_find(Size need, int visits)
{
	if (visits >= MAX_VISITS_IN_VAIN / 2)
		need = Max(need, BLCKSZ / 4);
	return Min(need, MaxHeapTupleSize);
}

/*
 * Picks the slots for a new row on a page that has space for it, place->buf.
 * Returns false if the page has no slot to give. Sets *growth to the number of
 * inline slots that the page must get.
 */
static bool
pick_slots(const ZWriter *writer, int avoid, bool want_common, ZNewPlace *place, int *growth)
{
	Assert(zc_buffer_exclusive(place->buf));
	if (!zslot_pick(writer, place->buf, avoid, false, &place->pick))
		return false;
	*growth = (place->pick.grow_to != 0);
	if (want_common)
	{
		if (!zslot_pick_common(BufferGetPage(place->buf), &place->pick, &place->common))
			return false;
		*growth += (place->common.grow_to != 0);
	}
	return true;
}

/*
 * Prunes the locked page in buf, for a row of len bytes. Returns whether the
 * page has more space, or fewer rows, than before.
 */
static bool
prune_for_row(const ZWriter *writer, Buffer buf, Size len)
{
	ZPrunePlan	plan;
	OffsetNumber off;
	int			space;

	zslot_undo_own(writer, buf);
	if (!zprune_plan(writer->rel, buf, &plan))
		return false;
	space = zpage_space_after(BufferGetPage(buf), plan.items, plan.n, &off);
	return zprune_by_plan(writer, buf, &plan, off != InvalidOffsetNumber && space >= (int) len);
}

/*
 * Returns whether the locked page in buf can take the row, and then fills
 * place; sets place->tried in any case. May prune the page, and change it as
 * zslot_pick does. keep_free: bytes that must stay free beside the row.
 */
static bool
try_page(const ZWriter *writer, Buffer buf, Size len, Size keep_free, bool want_common,
		 ZNewPlace *place)
{
	Page		page = BufferGetPage(buf);

	Assert(zc_buffer_exclusive(buf));
	place->buf = buf;
	place->tried = false;
	place->plan = NULL;
	place->init = PageIsNew(page);
	if (place->init)
	{
		memset(&place->pick, 0, sizeof(place->pick));
		memset(&place->common, 0, sizeof(place->common));
		place->pick.slotno = 1;
		place->common.slotno = 2;
		place->off = FirstOffsetNumber;
		zreclaim_note_taken(writer->rel, buf, ZPAGE_NEW_SPACE);
		return true;
	}
	for (int tries = 0; tries < 2; tries++)
	{
		OffsetNumber off = zpage_find_offset(page);

		if (off == InvalidOffsetNumber)
			return false;
		if (zpage_has_space(page, off, len + keep_free))
		{
			int			growth;

			place->tried = true;
			if (!pick_slots(writer, zrange_avoid(writer, page, off), want_common, place, &growth))
				return false;
			/* picking may have pruned the page, or added slots to it */
			place->off = zpage_find_offset(page);
			if (place->off == InvalidOffsetNumber ||
				!zpage_has_space(page, place->off, len + growth * sizeof(ZPageSlot)))
				return false;
			zreclaim_note_taken(writer->rel, buf, zpage_hole(page));
			return true;
		}
		if (tries > 0 || !prune_for_row(writer, buf, len + keep_free))
			return false;
	}
	return false;
}

/*
 * zspace_to_keep: See zdml_internal.h. As on heap, a page that is nearly empty
 * will do for a row that would leave too little on any page.
 */
Size
zspace_to_keep(Relation rel, Size len)
{
	const Size	nearly_empty = ztuple_max_size() - ZHEAP_MAX_OFFSET / 8 * sizeof(ItemIdData);
	Size		keep = RelationGetTargetPageFreeSpace(rel, HEAP_DEFAULT_FILLFACTOR);

	if (len + keep <= nearly_empty)
		return keep;
	return len < nearly_empty ? nearly_empty - len : 0;
}

/*
 * Returns the free space to record in the free space map for the locked page in
 * buf, which could not take the row, although it seemed to have space. Returns
 * -1 if the map must be left as it is, because there will be space when a
 * deletion is committed (zreclaim.c), or when the writer that comes to the page
 * can save rows.
 */
static int
space_for_map(Relation rel, Buffer buf, int wanted)
{
	Page		page = BufferGetPage(buf);
	int			space;
	int			later;

	/* a page that has no line pointer or slot to give has no space for a row */
	if (zpage_find_offset(page) == InvalidOffsetNumber || zpage_hole(page) >= wanted)
		return 0;
	space = zheap_free_space(rel, buf);
	later = Max(space, zreclaim_space(page));
	if (later < wanted)
		return space;
	if (!zprune_has_undone_chunk(rel, buf))
		return -1;

	/*
	 * each commit makes searches of the map begin at its first page again,
	 * and they must get beyond those that this statement cannot use
	 */
	zreclaim_note_later(rel, BufferGetBlockNumber(buf), later);
	return Max(zpage_hole(page), 0);
}

/*
 * Returns the block's buffer, pinned. A bulk insertion keeps a pin of its own
 * on the page that it inserted into last.
 */
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

/*
 * The block that the session inserted into last is kept where heap keeps its
 * own, but with the highest bit inverted: an insertion by heap's functions
 * (guard/heap_callers.c) finds no such block, and fails before it has written
 * anything.
 */
#define TARGET_NOT_FOR_HEAP ((BlockNumber) 1 << 31)

/* Remembers the block for the session's next insertion. */
static void
set_target(Relation rel, BlockNumber block)
{
	RelationSetTargetBlock(rel, block ^ TARGET_NOT_FOR_HEAP);
}

/* Returns the block that set_target remembered, or InvalidBlockNumber. */
static BlockNumber
get_target(Relation rel)
{
	BlockNumber target = RelationGetTargetBlock(rel);

	return target == InvalidBlockNumber ? target : target ^ TARGET_NOT_FOR_HEAP;
}

/*
 * Returns the number of pages to add to the table: one for us and for each
 * session that adds pages now or waits to do so (SPACE-4).
 */
static uint32
pages_to_add(Relation rel)
{
	if (RELATION_IS_LOCAL(rel))
		return 1;
	return (uint32) Min(1 + RelationExtensionLockWaiterCount(rel), ZC_MAX_EXTEND);
}

/* Enters new pages in the free space map for other sessions. */
static void
offer_pages(Relation rel, BlockNumber first, BlockNumber end)
{
	for (BlockNumber block = first; block < end; block++)
	{
		zreclaim_cover(rel, block);
		RecordPageWithFreeSpace(rel, block, zpage_space_for_map(ZPAGE_NEW_SPACE));
	}
	FreeSpaceMapVacuumRange(rel, first, end);
}

/*
 * Adds a page to the table. Returns it pinned and exclusively locked; it
 * becomes the target of further insertions. use_fsm: others may be given pages
 * by the free space map.
 */
static Buffer
extend_for_insert(Relation rel, BulkInsertState bistate, bool use_fsm)
{
	uint32		n = use_fsm ? pages_to_add(rel) : 1;
	Buffer		buf = zc_extend_relation(rel, bistate ? bistate->strategy : NULL, &n);
	BlockNumber block = BufferGetBlockNumber(buf);

	Assert(zc_buffer_exclusive(buf));

	/*
	 * From 16 on the server does not clear a buffer in which it has failed to
	 * read the block before, when it was beyond the end of the file.
	 * Something points to that block, so this is reported.
	 */
	if (unlikely(!PageIsNew(BufferGetPage(buf))))
	{
		memset(BufferGetPage(buf), 0, BLCKSZ);
		UnlockReleaseBuffer(buf);
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("page %u of table \"%s\" should be empty but is not", block,
						RelationGetRelationName(rel)),
				 errdetail("It was read before it was part of the table, so an index may point to "
						   "rows that were rolled back."),
				 errhint("Run REINDEX TABLE, and repeat the statement.")));
	}
	Assert(PageIsNew(BufferGetPage(buf)));	/* SPACE-4 */
	if (bistate != NULL)
	{
		if (bistate->current_buf != InvalidBuffer)
			ReleaseBuffer(bistate->current_buf);
		IncrBufferRefCount(buf);
		bistate->current_buf = buf;
	}
	set_target(rel, block);
	zreclaim_cover(rel, block);
	if (n > 1)
		offer_pages(rel, block + 1, block + n);
	return buf;
}

/*
 * Returns whether one of the table's pages takes the row, and then fills place.
 * Begins with the page of the last insertion, or else one that the free space
 * map names, or else the last one. If that has no space, tries further pages of
 * the map; then the last page, if the map named pages whose space is not free
 * yet.
 */
static bool
find_page(const ZWriter *writer, Size len, Size keep_free, bool use_fsm, BulkInsertState bistate,
		  ZNewPlace *place)
{
	Relation	rel = writer->rel;
	Size		need = len + sizeof(ItemIdData);
	BlockNumber target;
	Buffer		buf;
	int			visits = 0;
	bool		misled = false; /* the map names a page that has no space yet,
								 * and keeps doing so */

	if (bistate != NULL && bistate->current_buf != InvalidBuffer)
		target = BufferGetBlockNumber(bistate->current_buf);
	else
		target = get_target(rel);
	if (target == InvalidBlockNumber && use_fsm)
		target = GetPageWithFreeSpace(rel, Min(need + keep_free, MaxHeapTupleSize));
	if (target == InvalidBlockNumber)
	{
		BlockNumber nblocks = zrel_nblocks(rel);

		if (nblocks > 0)
			target = nblocks - 1;
	}
	while (target != InvalidBlockNumber)
	{
		BlockNumber visited = target;
		int			space;

		buf = read_for_insert(rel, target, bistate);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		if (unlikely(!PageIsNew(BufferGetPage(buf)) && !zpage_is_valid(BufferGetPage(buf))))
			zvis_corrupt_page(rel, target, BufferGetPage(buf), InvalidOffsetNumber);
		if (try_page(writer, buf, len, keep_free, false, place))
		{
			set_target(rel, target);
			return true;
		}
		space = space_for_map(rel, buf, need + keep_free);
		UnlockReleaseBuffer(buf);
		zwriter_reserve(writer);	/* the page may have taken some of it */
		if (!use_fsm || visits > MAX_VISITS_IN_VAIN)
			break;
		misled |= (space < 0);
		if (++visits == MAX_VISITS_IN_VAIN)
			target = visited;
		else if (space >= 0)
			target = RecordAndGetPageWithFreeSpace(rel, target, space,
												   Min(need + keep_free, MaxHeapTupleSize));
		else
			target = GetPageWithFreeSpace(rel, space_to_find(need + keep_free, visits));
		if (target != visited && (target != InvalidBlockNumber || !misled))
			continue;

		/*
		 * The last page, which the map may not know, takes the rows of other
		 * insertions that the map misled before.
		 */
		if (!misled || visits > MAX_VISITS_IN_VAIN)
			break;
		visits = MAX_VISITS_IN_VAIN + 1;
		target = zrel_nblocks(rel) - 1;
		if (target == visited)
			break;
	}
	return false;
}

/*
 * zspace_insert_page: See zdml_internal.h. Before the table is extended, the
 * pages of rolled back subtransactions come into the map.
 */
void
zspace_insert_page(const ZWriter *writer, Size len, ZcOptions options, BulkInsertState bistate,
				   ZNewPlace *place)
{
	Relation	rel = writer->rel;
	bool		use_fsm = !(options & TABLE_INSERT_SKIP_FSM);
	Size		keep_free = zspace_to_keep(rel, len);
	Buffer		buf;

	ZUNDO_FAULT("insert-page");
	if (find_page(writer, len, keep_free, use_fsm, bistate, place) ||
		(use_fsm && zreclaim_tell_undone(rel) &&
		 find_page(writer, len, keep_free, use_fsm, bistate, place)))
		return;
	buf = extend_for_insert(rel, bistate, use_fsm);
	if (!try_page(writer, buf, len, 0, false, place))
		elog(ERROR, "no space for a row of %zu bytes on a new page", len);
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether a copy of the page that is pruned by the plan has the offset
 * for a new row, and this space for it.
 */
static bool
plan_leads_to(Page page, const ZPrunePlan *plan, OffsetNumber off, int space)
{
	PGAlignedBlock copy;

	memcpy(copy.data, page, BLCKSZ);
	zpage_prune((Page) copy.data, plan->items, plan->n);
	return zpage_find_offset((Page) copy.data) == off &&
		zpage_has_space((Page) copy.data, off, space) &&
		!zpage_has_space((Page) copy.data, off, space + 1);
}
#endif

/*
 * zspace_by_pruning: See zdml_internal.h. The plan depends on the owners of the
 * slots, so it is made before the change takes its slot, and the change prunes
 * before that as well.
 */
bool
zspace_by_pruning(const ZWriter *writer, Buffer buf, const ZSlotPick *pick, Size len,
				  ZPrunePlan *plan, ZNewPlace *place)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber off = zpage_find_offset(page);
	int			need = len + (pick->grow_to != 0 ? sizeof(ZPageSlot) : 0);
	int			space;

	Assert(zc_buffer_exclusive(buf) && pick->overflow == 0 && !pick->common);
	if (off == InvalidOffsetNumber || zpage_has_space(page, off, len) ||
		!zprune_plan(writer->rel, buf, plan))
		return false;
	space = zpage_space_after(page, plan->items, plan->n, &off);
	if (off == InvalidOffsetNumber || space < need || !zimage_save_rows(writer, buf, plan))
		return false;
	Assert(plan_leads_to(page, plan, off, space));	/* PRUNE-3 */
	memset(place, 0, sizeof(*place));
	place->buf = buf;
	place->off = off;
	place->pick = *pick;
	place->plan = plan;
	return true;
}

/*
 * zspace_second_page: See zdml_internal.h. Tries the held page first, then
 * others whose lock is free, then a new page.
 */
bool
zspace_second_page(const ZWriter *writer, Buffer held, Size len, bool want_common, ZNewPlace *place)
{
	Relation	rel = writer->rel;
	Size		need = len + sizeof(ItemIdData);
	BlockNumber held_block = BufferGetBlockNumber(held);
	BlockNumber target = get_target(rel);
	BlockNumber in_vain = InvalidBlockNumber;
	bool		try_last = (target == InvalidBlockNumber);
	bool		picked;
	Buffer		buf;

	Assert(zc_buffer_exclusive(held));
	place->tried = false;
	if (zpage_find_offset(BufferGetPage(held)) != InvalidOffsetNumber &&
		try_page(writer, held, len, 0, want_common, place))
		return true;
	picked = place->tried;
	for (int tries = 0; tries < 4; tries++)
	{
		if (target == InvalidBlockNumber || target == held_block)
			target = GetPageWithFreeSpace(rel, Min(need, MaxHeapTupleSize));

		/*
		 * The map names no page, or again one that has no space yet: perhaps
		 * the last page takes the row.
		 */
		if (try_last && (target == InvalidBlockNumber || target == in_vain || tries == 3))
		{
			try_last = false;
			target = zrel_nblocks(rel) - 1;
			if (target == held_block)
				break;
		}
		if (target == InvalidBlockNumber && zreclaim_tell_undone(rel))
			continue;
		if (target == InvalidBlockNumber || target == in_vain)
			break;
		if (target != held_block)
		{
			buf = ReadBuffer(rel, target);
			if (ConditionalLockBuffer(buf))
			{
				int			space;

				if (unlikely(!PageIsNew(BufferGetPage(buf)) && !zpage_is_valid(BufferGetPage(buf))))
					zvis_corrupt_page(rel, target, BufferGetPage(buf), InvalidOffsetNumber);
				if (try_page(writer, buf, len, 0, want_common, place))
				{
					set_target(rel, target);
					return picked;
				}
				space = space_for_map(rel, buf, need);
				LockBuffer(buf, BUFFER_LOCK_UNLOCK);
				if (space >= 0)
					RecordPageWithFreeSpace(rel, target, space);
				else if (tries < 3)
					try_last = true;
			}
			ReleaseBuffer(buf);
			in_vain = target;
		}
		else
			/* so that the map names another page next */
			RecordPageWithFreeSpace(rel, target, Max(space_for_map(rel, held, need), 0));
		target = InvalidBlockNumber;
	}
	buf = extend_for_insert(rel, NULL, true);
	if (!try_page(writer, buf, len, 0, want_common, place))
		elog(ERROR, "no space for a row of %zu bytes on a new page", len);
	return picked;
}
