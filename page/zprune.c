/*
 * page/zprune.c - taking rows off a table page and closing the gaps.
 *
 * Owns the transitions of line pointers towards LP_UNUSED and the only code that
 * moves rows together. Which rows may go is the caller's knowledge (vacuum/,
 * dml/); replay repeats the same items. Called with the page locked exclusively,
 * cleanup lock not needed: readers copy rows out under the share lock. No locks,
 * no WAL; the crash points are the callers'.
 *
 *	LP_NORMAL --STUB--> LP_REDIRECT --DEAD--> LP_DEAD --UNUSED--> LP_UNUSED
 *	LP_NORMAL --DEAD--> LP_DEAD;  anything used --UNUSED--> LP_UNUSED
 *	LP_NORMAL --CUT--> LP_NORMAL with room = length
 *
 * Invariants:
 *	C1	compaction keeps every LP_NORMAL's room byte for byte and no other
 *		line pointer's state.
 *	C2	the same page and items give the same page, on a primary and in redo.
 */
#include "postgres.h"

#include "page/zpage.h"

/* total_room: bytes of all LP_NORMAL items. */
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
 * check_items: error ERRCODE_DATA_CORRUPTED if the rows cannot be copied about
 * safely; nothing has been changed then. Callers in a critical section have asked before.
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

/* zpage_compact: see zpage.h. Rows keep the order of their line pointers, first one last on the page. */
void
zpage_compact(Page page)
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

		if (!ItemIdIsNormal(lp))
			continue;
		upper -= ItemIdGetLength(lp);
		memcpy((char *) page + upper, copy + ItemIdGetOffset(lp), ItemIdGetLength(lp));
		lp->lp_off = upper;
	}
	zpage_set_upper(page, upper);
}

/* make_stub: the bytes of a deleted or moved row go, its slot and state stay (P4). */
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

/* cut_room: the slack of a live row becomes free space. */
static void
cut_room(Page page, ItemId lp)
{
	char	   *row = zpage_row(page, lp);

	Assert(ItemIdIsNormal(lp));
	lp->lp_len = zpage_row_length(page, lp);
	zheader_set(row, zheader_get(row) & ~ZH_SLACK);
}

/* drop_trailing_unused: line pointers at the end that are free join the hole; the free-lines hint becomes exact. */
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

/* zpage_prune: see zpage.h. Each offset occurs at most once in items. */
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
		}
	}
	zpage_compact(page);
	drop_trailing_unused(page);
}

/* zpage_gain: see zpage.h. Changes nothing. */
int
zpage_gain(Page page, const ZPruneItem *items, int nitems)
{
	PageHeader	ph = (PageHeader) page;
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			gain = ph->pd_special - ph->pd_upper - total_room(page);
	bool		unused[MaxOffsetNumber + 1];

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
		unused[off] = !ItemIdIsUsed(PageGetItemId(page, off));

	for (int i = 0; i < nitems; i++)
	{
		ItemId		lp = PageGetItemId(page, items[i].offset);

		if (items[i].action == ZPRUNE_UNUSED)
			unused[items[i].offset] = true;
		if (!ItemIdIsNormal(lp))
			continue;
		gain += ItemIdGetLength(lp);
		if (items[i].action == ZPRUNE_CUT)
			gain -= zpage_row_length(page, lp);
	}

	for (; max >= FirstOffsetNumber && unused[max]; max--)
		gain += sizeof(ItemIdData);
	return gain;
}
