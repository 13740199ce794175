/*
 * page/zpage.c - the table page: accessors and the mutators of rows and slots.
 *
 * Owns the page layout of zpage.h, together with zpage_prune.c, which removes
 * rows, and zpage_check.c, which tests the invariants PAGE-1 to PAGE-3 and
 * PAGE-7. Called by change/, rollback/, dml/ and vacuum/ with the page locked
 * exclusively, or on a private copy. Takes no locks, writes no WAL and no
 * undo. Mutators run inside critical sections and raise no errors. Only
 * callers have crash points.
 *
 * Slack: if a row is shorter than its room (lp_len), ZH_SLACK is set, and the
 * last bytes of the room say by how much:
 *
 *	slack 1 .. 254		last byte = slack
 *	slack 255 ..		last byte = 255, the two bytes before it = slack,
 *						native order
 *
 * Further invariant:
 *	ROOM-1	A room never shrinks here: only ZPRUNE_CUT and the removal of the
 *		row give room back. So the undo of the last author always fits.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "page/zpage.h"

#define LONG_SLACK			255
#define LONG_SLACK_BYTES	3

/* ---- lengths ---- */

/*
 * Returns the slack that is noted at the end of the room of a row with
 * ZH_SLACK.
 */
static int
read_slack(const char *row, int room)
{
	int			slack = (uint8) row[room - 1];
	uint16		longer;

	Assert(room >= ZTUPLE_HEADER_SIZE);
	if (slack < LONG_SLACK)
		return slack;
	memcpy(&longer, row + room - LONG_SLACK_BYTES, sizeof(longer));
	return longer;
}

/*
 * zpage_length_in_room: See zpage.h. Returns 0 if the room is too small for
 * its slack, which means corruption.
 */
int
zpage_length_in_room(const char *row, int room)
{
	int			length;

	if (room < ZTUPLE_HEADER_SIZE)
		return 0;
	if ((zheader_get(row) & ZH_SLACK) == 0)
		return room;
	length = room - read_slack(row, room);
	return length < ZTUPLE_HEADER_SIZE ? 0 : length;
}

/* zpage_row_length: See zpage.h. */
int
zpage_row_length(Page page, ItemId lp)
{
	return zpage_length_in_room(zpage_row(page, lp), ItemIdGetLength(lp));
}

/* ---- the page as a whole ---- */

/* zpage_init: See zpage.h. */
void
zpage_init(Page page)
{
	ZPageTrailer *trailer;

	PageInit(page, BLCKSZ, sizeof(ZPageTrailer) + ZPAGE_INITIAL_SLOTS * sizeof(ZPageSlot));
	trailer = zpage_trailer(page);
	trailer->saved = InvalidUndoPtr;
	trailer->overflow = ZPAGE_NO_OVERFLOW;
	trailer->debt = 0;
	zpage_set_upper(page, ((PageHeader) page)->pd_upper);
}

/*
 * zpage_fault: See zpage.h. An insertion by heap lowers pd_upper by a multiple
 * of MAXALIGN, at least by the size of a row header. The seal then shows a
 * version that exceeds ours by as much.
 */
const char *
zpage_fault(Page page)
{
	PageHeader	ph = (PageHeader) page;
	int			above = (int) zpage_version(page) - ZPAGE_VERSION;

	if (ph->pd_special == BLCKSZ)
		return "It is a page of a heap table.";
	if (above == -ZPAGE_VERSION && zpage_trailer(page)->overflow == ZPAGE_LOST_OVERFLOW)
		return "It is older than its overflow transaction slots: "
			"recovery has found that a write of it is lost.";
	if (ph->pd_prune_xid != InvalidTransactionId ||
		(above >= (int) SizeofHeapTupleHeader && above < BLCKSZ && above % MAXIMUM_ALIGNOF == 0))
		return "It has been written by heap's functions, as if it were a page of a heap table.";
	if (above != 0 && above > -0x100 && above < 0x100)
		return "It has a format of another version of zundo.";
	return "The page header or a line pointer does not fit a zheap page.";
}

/* zpage_rows_ok: See zpage.h. */
bool
zpage_rows_ok(Page page)
{
	PageHeader	ph = (PageHeader) page;
	OffsetNumber max;
	int			total = 0;

	if (!zpage_is_valid(page) ||
		ph->pd_lower > SizeOfPageHeaderData + ZHEAP_MAX_OFFSET * sizeof(ItemIdData))
		return false;
	max = PageGetMaxOffsetNumber(page);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (!ItemIdIsNormal(lp))
			continue;
		if (!zpage_row_inside(page, lp))
			return false;
		total += ItemIdGetLength(lp);
	}
	return total <= ph->pd_special - ph->pd_upper;
}

/* ---- rows ---- */

/* zpage_find_offset: See zpage.h. */
OffsetNumber
zpage_find_offset(Page page)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	if (PageHasFreeLinePointers(page))
	{
		for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
		{
			if (!ItemIdIsUsed(PageGetItemId(page, off)))
				return off;
		}
	}
	return max < ZHEAP_MAX_OFFSET ? max + 1 : InvalidOffsetNumber;
}

/* zpage_has_space: See zpage.h. */
bool
zpage_has_space(Page page, OffsetNumber off, Size len)
{
	if (off > PageGetMaxOffsetNumber(page))
		len += sizeof(ItemIdData);
	return (Size) zpage_hole(page) >= len;
}

/*
 * zpage_put_row: See zpage.h. The page must have space (zpage_has_space).
 * Clears the hint that there are free line pointers when it adds a new one.
 */
void
zpage_put_row(Page page, OffsetNumber off, const char *row, Size len)
{
	PageHeader	ph = (PageHeader) page;
	ItemId		lp = PageGetItemId(page, off);
	char	   *dst;

	Assert(off <= PageGetMaxOffsetNumber(page) + 1);
	Assert(zpage_has_space(page, off, len));

	if (off > PageGetMaxOffsetNumber(page))
	{
		ph->pd_lower += sizeof(ItemIdData);
		PageClearHasFreeLinePointers(page);
	}
	else
		Assert(!ItemIdIsUsed(lp));

	zpage_set_upper(page, ph->pd_upper - len);
	ItemIdSetNormal(lp, ph->pd_upper, len);
	dst = zpage_row(page, lp);
	memcpy(dst, row, len);
	zheader_set(dst, zheader_get(dst) & ~ZH_SLACK);
}

/*
 * Gives the room of lp 'more' bytes of the hole: moves the rows between them.
 * Returns the room, whose row is now at its end.
 */
static char *
widen_room(Page page, ItemId lp, int more)
{
	PageHeader	ph = (PageHeader) page;
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			upper = ph->pd_upper;
	int			end = ItemIdGetOffset(lp);

	Assert(more > 0 && more <= zpage_hole(page));
	Assert(zpage_row_inside(page, lp));
	memmove((char *) page + upper - more, (char *) page + upper, end - upper);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		other = PageGetItemId(page, off);

		/* a stub keeps other things in its line pointer (PAGE-3) */
		if (ItemIdHasStorage(other) && !ItemIdIsRedirected(other) &&
			ItemIdGetOffset(other) <= end)
			other->lp_off -= more;
	}
	lp->lp_len += more;
	zpage_set_upper(page, upper - more);
	return zpage_row(page, lp);
}

/* zpage_replace_fits: See zpage.h. */
bool
zpage_replace_fits(Page page, OffsetNumber off, Size len)
{
	return (int) len - (int) ItemIdGetLength(PageGetItemId(page, off)) <= Max(zpage_hole(page), 0);
}

/*
 * Notes the difference between room and length in the row. ZH_SLACK of the
 * header that a caller has passed is ignored: it describes another room.
 */
static void
note_slack(char *row, int room, int len)
{
	int			slack = room - len;
	ZHeader		h = zheader_get(row) & ~ZH_SLACK;

	Assert(slack >= 0);
	if (slack > 0)
	{
		h |= ZH_SLACK;
		if (slack < LONG_SLACK)
			row[room - 1] = (char) slack;
		else
		{
			uint16		longer = (uint16) slack;

			row[room - 1] = (char) LONG_SLACK;
			memcpy(row + room - LONG_SLACK_BYTES, &longer, sizeof(longer));
		}
	}
	zheader_set(row, h);
	Assert(zpage_length_in_room(row, room) == len);
}

/*
 * zpage_replace_row: See zpage.h. 'row' may point to the row on the page.
 */
void
zpage_replace_row(Page page, OffsetNumber off, const char *row, Size len)
{
	ItemId		lp = PageGetItemId(page, off);
	int			more = (int) len - (int) ItemIdGetLength(lp);
	char	   *dst = zpage_row(page, lp);

	Assert(ItemIdIsNormal(lp));
	Assert(zpage_replace_fits(page, off, len));

	if (more > 0)
		dst = widen_room(page, lp, more);	/* ROOM-1 */
	memmove(dst, row, len);
	note_slack(dst, ItemIdGetLength(lp), len);
}

/* zpage_set_header: See zpage.h. */
void
zpage_set_header(Page page, OffsetNumber off, ZHeader h)
{
	char	   *row = zpage_row(page, PageGetItemId(page, off));

	Assert(ItemIdIsNormal(PageGetItemId(page, off)));
	zheader_set(row, (h & ~ZH_SLACK) | (zheader_get(row) & ZH_SLACK));
}

void
zpage_end_row(Page page, OffsetNumber off, int slotno, int state, bool elsewhere)
{
	ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off)));

	h = ZH_WITH_STATE(ZH_WITH_SLOT(h, slotno), state) | ZH_KEY_CHANGE;
	zpage_set_header(page, off, elsewhere ? h | ZH_OTHER_PART : h);
}

/* zpage_clear_tags: See zpage.h. */
void
zpage_clear_tags(Page page, int slotno)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);
		ZHeader		h;

		if (!ItemIdIsNormal(lp) || !zpage_row_inside(page, lp))
			continue;
		h = zheader_get(zpage_row(page, lp));
		if (ZH_TAG(h) == slotno)
			zheader_set(zpage_row(page, lp), ZH_WITH_TAG(h, 0));
	}
}

/* ---- slots ---- */

/* zpage_set_slot: See zpage.h. */
void
zpage_set_slot(Page page, int slotno, ZXid xid, UndoPtr ptr)
{
	ZPageSlot  *slot = zpage_slot(page, slotno);

	Assert(slotno >= 1 && slotno <= zpage_nslots(page));
	Assert((xid == InvalidZXid) == (ptr == InvalidUndoPtr));
	slot->xid_flags = xid & ZXID_MASK;
	slot->ptr = ptr;
}

/* zinline_add: See zpage.h. */
UndoPtr
zinline_add(UndoPtr locks, OffsetNumber off, int mode)
{
	Assert(OffsetNumberIsValid(off) && off <= ZHEAP_MAX_OFFSET);
	Assert(mode >= LockTupleKeyShare && mode <= LockTupleExclusive);
	for (int i = 0; i < ZINLINE_MAX_LOCKS; i++)
	{
		UndoPtr		l = locks >> (i * ZINLINE_BITS);

		if (l != 0 && ZINLINE_OFFSET(l) != off)
			continue;
		if (l != 0 && ZINLINE_MODE(l) >= mode)
			return locks;
		locks &= ~((UndoPtr) 0xFFF << (i * ZINLINE_BITS));
		return locks | (UndoPtr) (off | (mode + 1) << 9) << (i * ZINLINE_BITS);
	}
	return 0;
}

/* zinline_mode: See zpage.h. */
int
zinline_mode(UndoPtr locks, OffsetNumber off)
{
	for (; locks != 0; locks >>= ZINLINE_BITS)
		if (ZINLINE_OFFSET(locks) == off)
			return ZINLINE_MODE(locks);
	return -1;
}

/* zpage_set_lock_slot: See zpage.h. */
void
zpage_set_lock_slot(Page page, int slotno, uint64 flag, ZXid xid, UndoPtr ptr)
{
	ZPageSlot  *slot = zpage_slot(page, slotno);

	Assert(slotno >= 1 && slotno <= zpage_nslots(page));
	Assert(xid != InvalidZXid && ptr != InvalidUndoPtr);
	Assert(flag == ZSLOT_INLINE_LOCKS || flag == ZSLOT_COMMON_LOCKS);
	slot->xid_flags = (xid & ZXID_MASK) | flag;
	slot->ptr = ptr;
}

/* zpage_can_grow_slots: See zpage.h. */
bool
zpage_can_grow_slots(Page page, int n)
{
	int			more = n - zpage_nslots(page);

	return n <= ZPAGE_MAX_INLINE_SLOTS && more > 0 &&
		zpage_hole(page) >= more * (int) sizeof(ZPageSlot);
}

/* zpage_grow_slots: See zpage.h. There must be space (zpage_can_grow_slots). */
void
zpage_grow_slots(Page page, int n)
{
	PageHeader	ph = (PageHeader) page;
	int			shift = (n - zpage_nslots(page)) * (int) sizeof(ZPageSlot);
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	Assert(zpage_can_grow_slots(page, n));
	Assert(!zpage_has_overflow(page));	/* whose slots have the next numbers */

	memmove((char *) page + ph->pd_upper - shift, (char *) page + ph->pd_upper,
			ph->pd_special - ph->pd_upper);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsNormal(lp) || (ItemIdIsDead(lp) && ItemIdHasStorage(lp)))
			lp->lp_off -= shift;
	}
	zpage_set_upper(page, ph->pd_upper - shift);
	ph->pd_special -= shift;
	memset((char *) page + ph->pd_special, 0, shift);
}

/* zpage_deleted_under: See zpage.h. A damaged row is not. */
bool
zpage_deleted_under(Page page, OffsetNumber off, int slotno)
{
	ItemId		lp = PageGetItemId(page, off);
	ZHeader		h;

	if (ItemIdIsNormal(lp) && zpage_row_inside(page, lp))
		h = zheader_get(zpage_row(page, lp));
	else if (ItemIdIsRedirected(lp))
		h = zpage_stub_header(lp);
	else
		return false;
	return ZH_SLOT(h) == slotno && ZH_STATE(h) == ZSTATE_DELETED;
}

/* ---- undo ---- */

/*
 * Returns true if the line pointer at off has a row of the insertion that rec
 * describes, in the chain of slot slotno. If rec is open, only a row whose
 * header names the slot is one of them (RANGE-1 in dml/).
 */
static bool
was_inserted(Page page, int slotno, const ZuRecord *rec, OffsetNumber off)
{
	ItemId		lp = PageGetItemId(page, off);

	if (!ItemIdIsNormal(lp))
		return false;
	return !rec->open || (zpage_row_inside(page, lp) &&
						  ZH_SLOT(zheader_get(zpage_row(page, lp))) == slotno);
}

/*
 * Makes the rows of an insertion LP_DEAD, since indexes may have entries for
 * them; chunks in their rooms can still be read. Returns false, with the page
 * unchanged, if one of them is missing; of an open record only the first row
 * must be there.
 */
static bool
undo_insert(Page page, int slotno, const ZuRecord *rec)
{
	int			last = (int) rec->offset + rec->nrows - 1;
	int			must = rec->open ? rec->offset : last;
	int			max = PageGetMaxOffsetNumber(page);

	if (rec->nrows < 1 || rec->offset < FirstOffsetNumber || must > max)
		return false;
	for (int off = rec->offset; off <= must; off++)
	{
		if (!was_inserted(page, slotno, rec, off))
			return false;
	}
	for (int off = rec->offset; off <= Min(last, max); off++)
	{
		if (was_inserted(page, slotno, rec, off))
			ItemIdMarkDead(PageGetItemId(page, off));
	}
	return true;
}

/*
 * Returns the old header with those parts of the present one that a rollback
 * keeps: the lock hint, the lock tag, and ZH_STALE_KEYS, because the index
 * entries of the undone version still exist (ZBTREE-7).
 */
static inline ZHeader
restored_header(ZHeader old, ZHeader present)
{
	return ZH_WITHOUT_LOCKS(old) |
		(present & (ZH_LOCK_MASK | ZH_TAG_MASK | ZH_STALE_KEYS));
}

/*
 * Gives the row the header and bytes that it had before the update. Returns
 * false, with the page unchanged, if the payload does not fit the row.
 */
static bool
undo_update(Page page, OffsetNumber off, const char *payload, Size len)
{
	ItemId		lp = PageGetItemId(page, off);
	const char *row = zpage_row(page, lp);
	int			room = ItemIdGetLength(lp);
	int			row_len = zpage_row_length(page, lp);
	ZHeader		present = zheader_get(row);
	ZHeader		old;
	const char *p;
	char		restored[BLCKSZ];
	Size		body = row_len - ZTUPLE_HEADER_SIZE;

	p = zheader_compact_get(payload, payload + len, present, &old);
	if (p == NULL)
		return false;
	memcpy(restored, row, row_len);
	p = zdelta_undo_apply(p, payload + len, restored + ZTUPLE_HEADER_SIZE, &body,
						  room - ZTUPLE_HEADER_SIZE);
	if (p != payload + len)
		return false;
	zheader_set(restored, restored_header(old, present));
	if (!ztuple_header_ok(restored, ZTUPLE_HEADER_SIZE + body))
		return false;
	zpage_replace_row(page, off, restored, ZTUPLE_HEADER_SIZE + body);
	return true;
}

/*
 * Returns whether the deletion or move that rec describes has ended the row at
 * off, in the chain of slot slotno. If rec is open, only a row that is deleted
 * under the slot is one of them.
 */
static bool
was_ended(Page page, int slotno, const ZuRecord *rec, OffsetNumber off)
{
	return !rec->open || zpage_deleted_under(page, off, slotno);
}

/*
 * Gives the rows, whose bytes are still there, their old headers. Returns
 * false, with the page unchanged, if the payload does not fit one of them, or
 * has no row.
 */
static bool
undo_delete(Page page, int slotno, const ZuRecord *rec, const char *payload, Size len)
{
	int			last = rec->open ? Min(rec->offset + rec->nrows - 1,
									   (int) PageGetMaxOffsetNumber(page)) : rec->offset;
	ZHeader		old[ZHEAP_MAX_OFFSET + 1];

	if (last > ZHEAP_MAX_OFFSET || !was_ended(page, slotno, rec, rec->offset))
		return false;
	for (int off = rec->offset; off <= last; off++)
	{
		ItemId		lp = PageGetItemId(page, off);
		ZHeader		present;

		if (!was_ended(page, slotno, rec, off))
			continue;
		if (!ItemIdIsNormal(lp))
			return false;		/* PAGE-6 */
		present = zheader_get(zpage_row(page, lp));
		if (zheader_compact_get(payload, payload + len, present, &old[off]) != payload + len ||
			!zheader_same_shape(old[off], present))
			return false;
		old[off] = restored_header(old[off], present);
	}
	for (int off = rec->offset; off <= last; off++)
		if (was_ended(page, slotno, rec, off))
			zpage_set_header(page, off, old[off]);
	return true;
}

/*
 * Makes the hint of a row with the slot's tag say that nobody holds the row FOR
 * UPDATE, as was so before the lock that is undone (TAG-2).
 */
static void
undo_lock(Page page, int slotno, OffsetNumber off)
{
	ItemId		lp;
	ZHeader		h;

	if (off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
		return;
	lp = PageGetItemId(page, off);
	if (!ItemIdIsNormal(lp) || !zpage_row_inside(page, lp))
		return;
	h = zheader_get(zpage_row(page, lp));
	if (ZH_TAG(h) == slotno && ZH_LOCK(h) == LockTupleExclusive + 1)
		zpage_set_header(page, off, ZH_WITH_LOCK(h, LockTupleNoKeyExclusive + 1));
}

/* zpage_undo: See zpage.h. */
bool
zpage_undo(Page page, int slotno, const ZuRecord *rec, const char *payload, Size len)
{
	PageHeader	ph = (PageHeader) page;
	ItemId		lp;

	if (rec->type == ZUR_INSERT)
		return undo_insert(page, slotno, rec);
	if (rec->type == ZUR_LOCK)
	{
		if (rec->open)
			zpage_clear_tags(page, slotno);
		else if (rec->lockmode == LockTupleExclusive)
			undo_lock(page, slotno, rec->offset);
		return true;
	}

	if (rec->offset < FirstOffsetNumber || rec->offset > PageGetMaxOffsetNumber(page) ||
		payload == NULL)
		return false;
	lp = PageGetItemId(page, rec->offset);
	if (!ItemIdIsNormal(lp) || ItemIdGetOffset(lp) < ph->pd_upper ||
		ItemIdGetOffset(lp) + ItemIdGetLength(lp) > ph->pd_special ||
		zpage_row_length(page, lp) < ZTUPLE_HEADER_SIZE)
		return false;

	switch (rec->type)
	{
		case ZUR_UPDATE:
			return undo_update(page, rec->offset, payload, len);
		case ZUR_DELETE:
		case ZUR_MOVE:
			return undo_delete(page, slotno, rec, payload, len);
		default:
			return false;
	}
}

/* zpage_all_live: See zpage.h. */
bool
zpage_all_live(Page page)
{
	OffsetNumber maxoff = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (!ItemIdIsUsed(lp))
			continue;
		if (!ItemIdIsNormal(lp) || !ZH_LIVE(zheader_get(zpage_row(page, lp))))
			return false;
	}
	return true;
}

/* zpage_stale_keys: See zpage.h. */
int
zpage_stale_keys(Page page, OffsetNumber *offsets)
{
	OffsetNumber maxoff = Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET);
	int			n = 0;

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		ItemId		lp = PageGetItemId(page, off);
		ZHeader		h;

		if (!ItemIdIsNormal(lp))
			continue;
		h = zheader_get(zpage_row(page, lp));
		if (!ZH_LIVE(h) || (h & ZH_STALE_KEYS) == 0)
			continue;
		if (offsets != NULL)
			offsets[n] = off;
		n++;
	}
	return n;
}
