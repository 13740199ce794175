/*
 * page/zpage_check.c - tests the invariants of a page.
 *
 * Owns the tests of PAGE-1 to PAGE-3 and PAGE-7 of zpage.h; PAGE-6 depends on
 * the states of transactions and is tested by monitor/. Called by zundo.check,
 * by assertions and by the unit tests, on a locked page or a copy. The page
 * may have any contents. Reads nothing else, raises no errors, has no crash
 * points.
 */
#include "postgres.h"

#include "page/zpage.h"

typedef struct CheckState
{
	Page		page;
	int			nslots_total;
	ZCheckReport report;
	void	   *arg;
	int			faults;
} CheckState;

typedef struct Extent
{
	OffsetNumber off;
	int			start;
	int			end;
} Extent;

#define FAULT(st, invariant, off, ...) \
	do { \
		(st)->faults++; \
		if ((st)->report) \
			(st)->report((st)->arg, invariant, off, __VA_ARGS__); \
	} while (0)

/* Tests PAGE-1. Returns false if line pointers are not safe. */
static bool
check_frame(CheckState *st)
{
	PageHeader	ph = (PageHeader) st->page;
	int			nlines;

	if (!zpage_is_valid(st->page))
	{
		FAULT(st, "PAGE-1", InvalidOffsetNumber,
			  "page frame is inconsistent: pd_lower %u, pd_upper %u, pd_special %u, version 0x%x "
			  "(expected 0x%x)",
			  ph->pd_lower, ph->pd_upper, ph->pd_special,
			  zpage_version(st->page), ZPAGE_VERSION);
		return false;
	}
	nlines = (ph->pd_lower - SizeOfPageHeaderData) / sizeof(ItemIdData);
	if (nlines > ZHEAP_MAX_OFFSET)
	{
		FAULT(st, "PAGE-1", InvalidOffsetNumber, "%d line pointers, at most %d are allowed",
			  nlines, ZHEAP_MAX_OFFSET);
		return false;
	}
	return true;
}

/* Tests PAGE-3 for the row at off, whose room lies inside the page. */
static void
check_row(CheckState *st, OffsetNumber off)
{
	ItemId		lp = PageGetItemId(st->page, off);
	const char *row = zpage_row(st->page, lp);
	int			room = ItemIdGetLength(lp);
	int			length = zpage_length_in_room(row, room);
	ZHeader		h;

	if (room < ZTUPLE_HEADER_SIZE)
	{
		FAULT(st, "PAGE-3", off, "room of %d bytes is smaller than a row header", room);
		return;
	}
	h = zheader_get(row);
	if (ZH_TAG(h) > zpage_nslots(st->page))
		FAULT(st, "PAGE-3", off, "lock tag names slot %d, the page has %d of its own", ZH_TAG(h),
			  zpage_nslots(st->page));
	if (ZH_SLOT(h) > st->nslots_total)
		FAULT(st, "PAGE-3", off, "row names slot %d, the page has %d", ZH_SLOT(h),
			  st->nslots_total);
	if ((h & ZH_SLACK) && (length == 0 || length == room))
		FAULT(st, "PAGE-3", off, "slack does not fit the room of %d bytes", room);
	else if (!ztuple_header_ok(row, length))
		FAULT(st, "PAGE-3", off, "row of %d bytes cannot have %d attributes%s", length,
			  ZH_NATTS(h), (h & ZH_NULLS) ? " and a null bitmap" : "");
}

/* Tests PAGE-3 for the stub at off. */
static void
check_stub(CheckState *st, OffsetNumber off)
{
	ItemId		lp = PageGetItemId(st->page, off);
	int			slotno = ItemIdGetOffset(lp);
	int			state = ItemIdGetLength(lp);

	if (slotno < 1 || slotno > st->nslots_total)
		FAULT(st, "PAGE-3", off, "stub names slot %d, the page has %d", slotno, st->nslots_total);
	if (state != ZSTATE_DELETED && state != ZSTATE_MOVED)
		FAULT(st, "PAGE-3", off, "stub has state %d", state);
}

/* Orders extents by their starts, for qsort. */
static int
compare_extents(const void *a, const void *b)
{
	return ((const Extent *) a)->start - ((const Extent *) b)->start;
}

/* Tests PAGE-2 and PAGE-3 for every line pointer. */
static void
check_lines(CheckState *st)
{
	PageHeader	ph = (PageHeader) st->page;
	OffsetNumber max = PageGetMaxOffsetNumber(st->page);
	Extent		extents[ZHEAP_MAX_OFFSET];
	int			nextents = 0;

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(st->page, off);
		int			start = ItemIdGetOffset(lp);
		int			end = start + ItemIdGetLength(lp);

		if (ItemIdIsNormal(lp) || (ItemIdIsDead(lp) && end > start))
		{
			if (start < ph->pd_upper || end > ph->pd_special)
			{
				FAULT(st, "PAGE-2", off, "item [%d,%d) lies outside the row area [%u,%u)",
					  start, end, ph->pd_upper, ph->pd_special);
				continue;
			}
			extents[nextents].off = off;
			extents[nextents].start = start;
			extents[nextents++].end = end;
			if (ItemIdIsNormal(lp))
				check_row(st, off);
		}
		else if (ItemIdIsRedirected(lp))
			check_stub(st, off);
		else if (start != 0 || end != 0)
			FAULT(st, "PAGE-2", off, "%s line pointer has offset %d and length %d",
				  ItemIdIsDead(lp) ? "dead" : "unused", start, end - start);
	}

	qsort(extents, nextents, sizeof(Extent), compare_extents);
	for (int i = 1; i < nextents; i++)
	{
		if (extents[i].start < extents[i - 1].end)
			FAULT(st, "PAGE-2", extents[i].off, "item [%d,%d) overlaps that of offset %u",
				  extents[i].start, extents[i].end, extents[i - 1].off);
	}
}

/* Tests PAGE-7 for the inline slots. */
static void
check_slots(CheckState *st)
{
	int			nslots = zpage_nslots(st->page);

	for (int i = 1; i <= nslots; i++)
	{
		ZPageSlot  *slot = zpage_slot(st->page, i);

		if ((ZSLOT_XID(slot) == InvalidZXid) != (slot->ptr == InvalidUndoPtr))
			FAULT(st, "PAGE-7", InvalidOffsetNumber,
				  "slot %d has transaction " UINT64_FORMAT " and undo pointer %X/%08X",
				  i, ZSLOT_XID(slot), (uint32) (slot->ptr >> 32), (uint32) slot->ptr);
	}
}

/* zpage_check: See zpage.h. If report is NULL, the faults are only counted. */
int
zpage_check(Page page, int nslots_total, ZCheckReport report, void *arg)
{
	CheckState	st = {page, nslots_total, report, arg, 0};

	if (check_frame(&st))
	{
		check_lines(&st);
		check_slots(&st);
	}
	return st.faults;
}
