/*
 * page/zpage_prune.c - removing rows from a table page and closing the gaps.
 *
 * Owns the transitions of line pointers towards LP_UNUSED, except that
 * zpage_undo makes the rows of an undone insertion LP_DEAD, and the only code
 * that compacts rows. Callers (dml/, vacuum/) decide which rows to remove;
 * replay repeats the same items. The page must be locked exclusively. No
 * cleanup lock is needed, because readers copy rows while they hold the share
 * lock. Takes no locks, writes no WAL. Only callers have crash points.
 *
 *	LP_NORMAL --STUB, KEEP--> LP_REDIRECT --DEAD--> LP_DEAD --UNUSED-->
 *			LP_UNUSED
 *	LP_NORMAL --DEAD--> LP_DEAD;  anything used --UNUSED--> LP_UNUSED
 *	LP_NORMAL --CUT--> LP_NORMAL with room = length
 *	LP_NORMAL --UNSTALE--> LP_NORMAL without ZH_STALE_KEYS
 *
 * Invariants:
 *	PRUNE-1	Compaction changes no byte of a row and no state of a line pointer,
 *		but LP_DEAD ones lose their rooms. The result depends on page and items
 *		only, so that redo repeats it.
 */
#include "postgres.h"

#include "page/zpage.h"

/* Returns the sum of the rooms of all rows. */
static int
total_room(Page page)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			total = 0;

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsNormal(lp))
			total += ItemIdGetLength(lp);
	}
	return total;
}

/*
 * Raises ERRCODE_DATA_CORRUPTED if moving the rows would not be safe. A caller
 * must test zpage_rows_ok before it enters a critical section.
 */
static void
check_items(Page page)
{
	PageHeader	ph = (PageHeader) page;

	if (!zpage_rows_ok(page))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("corrupted page: rows overlap or lie outside the row area"),
				 errdetail("pd_lower %u, pd_upper %u, pd_special %u.",
						   ph->pd_lower, ph->pd_upper, ph->pd_special)));
}

/*
 * Moves the rows together, so that the hole has all free space. Afterwards they
 * are in the order of their line pointers, the first one at the end of the
 * page.
 */
static void
compact(Page page)
{
	PageHeader	ph = (PageHeader) page;
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	char		copy[BLCKSZ];
	int			upper = ph->pd_special;

	check_items(page);
	if (total_room(page) == ph->pd_special - ph->pd_upper)
		return;

	memcpy(copy + ph->pd_upper, (char *) page + ph->pd_upper, ph->pd_special - ph->pd_upper);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsDead(lp))
			ItemIdSetDead(lp);
		if (!ItemIdIsNormal(lp))
			continue;
		upper -= ItemIdGetLength(lp);
		memcpy((char *) page + upper, copy + ItemIdGetOffset(lp), ItemIdGetLength(lp));
		lp->lp_off = upper;
	}
	Assert(upper >= ph->pd_upper);
	zpage_set_upper(page, upper);
	/* no room is lost between rows */
	Assert(total_room(page) == ph->pd_special - ph->pd_upper);
}

/*
 * Removes the bytes of a deleted or moved row; its slot and state stay in the
 * line pointer (PAGE-3).
 */
static void
make_stub(Page page, ItemId lp)
{
	ZHeader		h = zheader_get(zpage_row(page, lp));

	Assert(ItemIdIsNormal(lp));
	Assert(!ZH_LIVE(h) && ZH_SLOT(h) >= 1);
	lp->lp_flags = LP_REDIRECT;
	lp->lp_off = ZH_SLOT(h);
	lp->lp_len = ZH_STATE(h);
}

/* Makes the slack of a live row free space. */
static void
cut_room(Page page, ItemId lp)
{
	char	   *row = zpage_row(page, lp);

	Assert(ItemIdIsNormal(lp));
	lp->lp_len = zpage_row_length(page, lp);
	zheader_set(row, zheader_get(row) & ~ZH_SLACK);
}

/* Takes ZH_STALE_KEYS off a live row. */
static void
clear_stale_keys(Page page, ItemId lp)
{
	char	   *row = zpage_row(page, lp);

	Assert(ItemIdIsNormal(lp) && ZH_LIVE(zheader_get(row)));
	zheader_set(row, zheader_get(row) & ~ZH_STALE_KEYS);
}

/*
 * Removes unused line pointers at the end, and sets the hint about the others.
 */
static void
drop_trailing_unused(Page page)
{
	PageHeader	ph = (PageHeader) page;
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	while (max >= FirstOffsetNumber && !ItemIdIsUsed(PageGetItemId(page, max)))
		max--;
	ph->pd_lower = SizeOfPageHeaderData + max * sizeof(ItemIdData);

	PageClearHasFreeLinePointers(page);
	for (OffsetNumber off = FirstOffsetNumber; off < max; off++)
	{
		if (!ItemIdIsUsed(PageGetItemId(page, off)))
		{
			PageSetHasFreeLinePointers(page);
			break;
		}
	}
}

/* zpage_prune: See zpage.h. Each offset occurs at most once in items. */
void
zpage_prune(Page page, const ZPruneItem *items, int nitems)
{
	for (int i = 0; i < nitems; i++)
	{
		ItemId		lp = PageGetItemId(page, items[i].offset);

		Assert(items[i].offset >= FirstOffsetNumber &&
			   items[i].offset <= PageGetMaxOffsetNumber(page));
		Assert(ItemIdIsUsed(lp));
		switch ((ZPruneAction) items[i].action)
		{
			case ZPRUNE_STUB:
			case ZPRUNE_KEEP:
				make_stub(page, lp);
				break;
			case ZPRUNE_DEAD:
				ItemIdSetDead(lp);
				break;
			case ZPRUNE_UNUSED:
				ItemIdSetUnused(lp);
				break;
			case ZPRUNE_CUT:
				cut_room(page, lp);
				break;
			case ZPRUNE_UNSTALE:
				clear_stale_keys(page, lp);
				break;
		}
	}
	compact(page);
	drop_trailing_unused(page);
}

/*
 * Sets unused[off] for each line pointer that zpage_prune(items) leaves or
 * makes unused. Returns the offset of the last one that it leaves in use, and
 * thereby on the page; 0 if there is none.
 */
static OffsetNumber
unused_after(Page page, const ZPruneItem *items, int nitems, bool *unused)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
		unused[off] = !ItemIdIsUsed(PageGetItemId(page, off));
	for (int i = 0; i < nitems; i++)
		if (items[i].action == ZPRUNE_UNUSED)
			unused[items[i].offset] = true;
	while (max >= FirstOffsetNumber && unused[max])
		max--;
	return max;
}

/*
 * Returns by how much zpage_prune(items) would enlarge the hole, if it leaves
 * line pointers up to max.
 */
static int
gain_with(Page page, const ZPruneItem *items, int nitems, OffsetNumber max)
{
	PageHeader	ph = (PageHeader) page;
	int			gain = ph->pd_special - ph->pd_upper - total_room(page);

	for (int i = 0; i < nitems; i++)
	{
		ItemId		lp = PageGetItemId(page, items[i].offset);

		if (!ItemIdIsNormal(lp) || items[i].action == ZPRUNE_UNSTALE)
			continue;
		gain += ItemIdGetLength(lp);
		if (items[i].action == ZPRUNE_CUT)
			gain -= zpage_row_length(page, lp);
	}
	return gain + (PageGetMaxOffsetNumber(page) - max) * (int) sizeof(ItemIdData);
}

/* zpage_gain: See zpage.h. */
int
zpage_gain(Page page, const ZPruneItem *items, int nitems)
{
	bool		unused[MaxOffsetNumber + 1];

	return gain_with(page, items, nitems, unused_after(page, items, nitems, unused));
}

/* zpage_space_after: See zpage.h. */
int
zpage_space_after(Page page, const ZPruneItem *items, int nitems, OffsetNumber *off)
{
	bool		unused[MaxOffsetNumber + 1];
	OffsetNumber max = unused_after(page, items, nitems, unused);
	int			room = zpage_hole(page) + gain_with(page, items, nitems, max);

	for (*off = FirstOffsetNumber; *off <= max; (*off)++)
		if (unused[*off])
			return room;
	if (max >= ZHEAP_MAX_OFFSET)
		*off = InvalidOffsetNumber;
	return room - (int) sizeof(ItemIdData);
}
