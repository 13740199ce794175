/*
 * mvcc/zlockers.c - reading row locks: the lists of common lock slots, and all
 * locks and changes that hold the rows of a page.
 *
 * A common lock slot points to a list of locks, which dml/zlocklist.c writes.
 * Called by dml/ (lists, locked items) and monitor/ (holders). zlockers_holders
 * is for display only, not for decisions: it copies the slots under the page's
 * share lock and follows undo without it, so changes made meanwhile may be
 * seen or not. zlockers_locked_items is for callers that hold the page locked.
 * Nothing is written.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "mvcc/zlockers.h"
#include "mvcc/ztrail.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * zlockers_begin: See zlockers.h. Begins at the slot's first record. If the
 * owner is before `oldest`, all lockers that the list names have ended: then
 * the list is empty.
 */
void
zlockers_begin(ZLockScan *scan, const ZPageSlot *slot, ZXid oldest, RelFileNumber relnumber,
			   BlockNumber block, OffsetNumber off)
{
	Assert(slot->xid_flags & ZSLOT_COMMON_LOCKS);
	scan->off = off;
	scan->oldest = oldest;
	scan->n = scan->i = scan->nrecords = 0;
	scan->author_aborted = false;
	zchain_begin_at(&scan->chain, relnumber, block, zslot_age(slot, oldest) == ZAGE_LOCKS
					? slot->ptr : InvalidUndoPtr, InvalidZXid, scan->buf);
}

/*
 * Reads the next record of the list. Returns false if there is none, or none
 * that matters: a record is discarded when all lockers that it names have
 * ended (UNDO-7b in discard/). Raises ERRCODE_DATA_CORRUPTED if the record is
 * no list of locks.
 */
static bool
next_record(ZLockScan *scan)
{
	ZuRecord	rec;

	Assert(scan->i == scan->n);
	if (zchain_next(&scan->chain, &rec) != ZCHAIN_RECORD)
		return false;
	if (rec.type != ZUR_LOCKS)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("undo record %X/%X of block %u of relation file %u is not a list of locks",
						(uint32) (scan->chain.here >> 32), (uint32) scan->chain.here,
						scan->chain.block, scan->chain.relnumber)));
	scan->author_aborted = (zxid_status_at(rec.xid, scan->oldest) == ZXID_ABORTED);
	scan->entries = rec.payload;
	scan->n = rec.payload_len / sizeof(ZLockEntry);
	scan->i = 0;
	scan->nrecords++;
	return true;
}

/*
 * zlockers_next: See zlockers.h. Passes over locks of transactions that have
 * ended. If the author of a record has aborted, only those of its entries are
 * valid that were copied from an older list (ZLOCK_SURE).
 */
bool
zlockers_next(ZLockScan *scan, ZLockEntry *entry, ZXidStatus *status)
{
	for (;;)
	{
		while (scan->i < scan->n)
		{
			memcpy(entry, scan->entries + scan->i++ * sizeof(ZLockEntry), sizeof(ZLockEntry));
			if ((scan->off != InvalidOffsetNumber && ZLOCK_OFFSET(*entry) != scan->off) ||
				(scan->author_aborted && (*entry & ZLOCK_SURE) == 0))
				continue;
			*status = zxid_status_at(ZLOCK_XID(*entry), scan->oldest);
			if (*status == ZXID_OWN || *status == ZXID_IN_PROGRESS)
				return true;
		}
		if (!next_record(scan))
			return false;
	}
}

typedef struct Holders
{
	bool	   *locked;			/* only note which rows are locked; NULL: list
								 * the holders */
	ZHolder    *list;
	int			n;
	int			capacity;
	ZHeader		header[ZHEAP_MAX_OFFSET + 1];	/* of the page's rows; 0 = no
												 * row */
	uint16		deleted[ZHEAP_MAX_OFFSET + 1];	/* slots under which rows are
												 * deleted, by a record that
												 * has not been met */
} Holders;

/* Fills in what the headers of the rows on a locked page say about locks. */
static void
copy_headers(Holders *holders, Page page)
{
	OffsetNumber max = Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET);

	memset(holders->header, 0, sizeof(holders->header));
	memset(holders->deleted, 0, sizeof(holders->deleted));
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		ItemId		lp = PageGetItemId(page, off);
		ZHeader		h;

		if (!ItemIdIsNormal(lp) || !zpage_row_inside(page, lp))
			continue;
		h = zheader_get(zpage_row(page, lp));
		holders->header[off] = h;
		if (ZH_STATE(h) == ZSTATE_DELETED)
			holders->deleted[off] = ZH_SLOT(h);
	}
}

/* Compares two holders by row, transaction and kind: for qsort. */
static int
compare_holders(const void *a, const void *b)
{
	const ZHolder *x = a;
	const ZHolder *y = b;

	if (x->off != y->off)
		return x->off < y->off ? -1 : 1;
	if (x->xid != y->xid)
		return x->xid < y->xid ? -1 : 1;
	return (int) x->change - (int) y->change;
}

/*
 * Sorts the list. Several locks, or several changes, of one row by one
 * (sub)transaction count as the strongest of them.
 */
static void
merge_holders(Holders *holders)
{
	int			n = 0;

	if (holders->n == 0)
		return;
	qsort(holders->list, holders->n, sizeof(ZHolder), compare_holders);
	for (int i = 1; i < holders->n; i++)
	{
		ZHolder    *last = &holders->list[n];
		const ZHolder *h = &holders->list[i];

		if (compare_holders(last, h) == 0)
			last->mode = Max(last->mode, h->mode);
		else
			holders->list[++n] = *h;
	}
	holders->n = n + 1;
}

static void
grow(Holders *holders)
{
	holders->capacity = Max(2 * holders->capacity, 16);
	holders->list = holders->list == NULL ? palloc(holders->capacity * sizeof(ZHolder)) :
		repalloc(holders->list, holders->capacity * sizeof(ZHolder));
}

/* Adds a holder. */
static void
add_holder(Holders *holders, OffsetNumber off, ZXid xid, LockTupleMode mode, bool change)
{
	Assert(mode <= LockTupleExclusive && holders->n <= holders->capacity);
	if (holders->locked != NULL)
	{
		if (!change && off <= ZHEAP_MAX_OFFSET)
			holders->locked[off] = true;
		return;
	}
	if (holders->n == holders->capacity)
	{
		merge_holders(holders);
		if (holders->n >= holders->capacity / 2)
			grow(holders);
	}
	holders->list[holders->n].off = off;
	holders->list[holders->n].xid = xid;
	holders->list[holders->n].mode = mode;
	holders->list[holders->n++].change = change;
}

/*
 * Returns whether a transaction with this status, ours included, may hold rows.
 */
static inline bool
may_hold(ZXidStatus status)
{
	return status == ZXID_OWN || status == ZXID_IN_PROGRESS;
}

/* Adds the locks of a LOCK record in the chain of slot s. */
static void
add_locks(Holders *holders, int s, const ZuRecord *rec)
{
	if (!rec->open)
	{
		add_holder(holders, rec->offset, rec->xid, rec->lockmode, false);
		return;
	}
	for (OffsetNumber off = FirstOffsetNumber; off <= ZHEAP_MAX_OFFSET; off++)
	{
		int			mode = zrecord_lock_mode(rec, off, holders->header[off], s);

		if (mode >= 0)
			add_holder(holders, off, rec->xid, mode, false);
	}
}

/*
 * Notes that the non-open LOCK record in the chain of slot s has aborted: a
 * hint of UPDATE was that of its lock (TAG-2).
 */
static void
drop_lock(Holders *holders, int s, const ZuRecord *rec)
{
	ZHeader    *h = &holders->header[Min(rec->offset, ZHEAP_MAX_OFFSET)];

	if (!rec->open && rec->lockmode == LockTupleExclusive && ZH_TAG(*h) == s)
		*h = ZH_WITH_LOCK(*h, Min(ZH_LOCK(*h), LockTupleNoKeyExclusive + 1));
}

/*
 * Adds the changes by a record in the chain of slot s, if its transaction may
 * hold rows. The first record that is met of a deleted row is its deletion.
 */
static void
add_changes(Holders *holders, int s, const ZuRecord *rec, bool holds)
{
	LockTupleMode mode = rec->type == ZUR_DELETE || (rec->xflags & ZUX_KEY_CHANGE)
	? LockTupleExclusive : LockTupleNoKeyExclusive;
	int			last = Min(rec->offset + zrecord_range(rec) - 1, ZHEAP_MAX_OFFSET);

	for (int off = Max(rec->offset, FirstOffsetNumber); off <= last; off++)
	{
		bool		is_deleted = (holders->deleted[off] == s);

		if (holds && rec->type != ZUR_INSERT && (!rec->open || is_deleted))
			add_holder(holders, off, rec->xid, mode, true);
		if (is_deleted)
			holders->deleted[off] = 0;
	}
}

/*
 * Adds the locks and changes in the chain of slot s that transactions in
 * progress have made.
 */
static void
holders_of_chain(Holders *holders, int s, const ZPageSlot *slot, ZXid oldest,
				 RelFileNumber relnumber, BlockNumber block)
{
	char		buf[ZUR_MAX_LENGTH];
	ZHeaders	headers;
	ZChain		chain;
	ZuRecord	rec;

	Assert(!zslot_locks_only(slot) && slot->ptr != InvalidUndoPtr);
	zchain_begin_at(&chain, relnumber, block, slot->ptr, oldest, buf);
	zheaders_start(&headers);
	while (zheaders_next(&chain, &headers, &rec) == ZCHAIN_RECORD)
	{
		ZXidStatus	status = zxid_status_at(rec.xid, oldest);

		CHECK_FOR_INTERRUPTS(); /* without effect while the page is locked */

		/*
		 * Records of aborted subtransactions may lie above those of their
		 * transaction, which is in progress.
		 */
		if (!may_hold(status) && status != ZXID_ABORTED)
			return;
		if (rec.type != ZUR_LOCK)
			add_changes(holders, s, &rec, may_hold(status));
		else if (may_hold(status))
			add_locks(holders, s, &rec);
		else
			drop_lock(holders, s, &rec);
	}
}

/*
 * Adds the holders of rows by slot s, of whichever kind it is: a list of locks,
 * inline locks, or a chain of changes. A slot whose owner is before `oldest`
 * holds nothing, even if it did not commit.
 */
static void
holders_of_slot(Holders *holders, int s, const ZPageSlot *slot, ZXid oldest,
				RelFileNumber relnumber, BlockNumber block)
{
	ZSlotAge	age = zslot_age(slot, oldest);

	if (age != ZAGE_LOCKS && age != ZAGE_YOUNG)
		return;
	if (slot->xid_flags & ZSLOT_COMMON_LOCKS)
	{
		ZLockScan	scan;
		ZLockEntry	entry;
		ZXidStatus	status;

		zlockers_begin(&scan, slot, oldest, relnumber, block, InvalidOffsetNumber);
		while (zlockers_next(&scan, &entry, &status))
		{
			CHECK_FOR_INTERRUPTS();
			add_holder(holders, ZLOCK_OFFSET(entry), ZLOCK_XID(entry), ZLOCK_MODE(entry), false);
		}
	}
	else if (slot->xid_flags & ZSLOT_INLINE_LOCKS)
	{
		if (may_hold(zxid_status_at(ZSLOT_XID(slot), oldest)))
			for (UndoPtr locks = slot->ptr; locks != 0; locks >>= ZINLINE_BITS)
				add_holder(holders, ZINLINE_OFFSET(locks), ZSLOT_XID(slot), ZINLINE_MODE(locks),
						   false);
	}
	else
		holders_of_chain(holders, s, slot, oldest, relnumber, block);
}

/*
 * zlockers_locked_items: See zlockers.h. Collects all that hold rows of the
 * page, by slots on the overflow page too, and uses the locks only, not the
 * changes.
 */
void
zlockers_locked_items(Relation rel, BlockNumber block, Page page, bool *locked)
{
	ZSlotView  *slots = palloc(sizeof(ZSlotView));
	Holders		holders = {.locked = locked};

	memset(locked, 0, (ZHEAP_MAX_OFFSET + 1) * sizeof(bool));
	zslots_copy_raw(rel, block, page, slots);
	copy_headers(&holders, page);
	for (int s = 1; s <= slots->n; s++)
	{
		zvis_check_xid(rel, block, s, ZSLOT_XID(&slots->s[s]));
		holders_of_slot(&holders, s, &slots->s[s], slots->oldest, rel->rd_locator.relNumber,
						block);
	}
	pfree(slots);
}

/*
 * Sets present[off] for the rows of a locked page, except those that are known
 * to have moved: such a row is held at its new place.
 */
static void
find_present(Relation rel, Page page, BlockNumber block, bool *present)
{
	ZSlotView  *slots = palloc(sizeof(ZSlotView));

	zslots_copy(rel, block, page, slots);
	for (OffsetNumber off = FirstOffsetNumber;
		 off <= Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET); off++)
	{
		ItemId		lp = PageGetItemId(page, off);
		ZRow		row = {rel, block, off, page, slots};
		ZAuthor		author;

		present[off] = ItemIdIsNormal(lp) && zpage_item_ok(page, off);
		if (!present[off] || ZH_STATE(zheader_get(zpage_row(page, lp))) != ZSTATE_MOVED)
			continue;
		zvis_author(&row, InvalidSnapshot, &author);
		present[off] = may_hold(author.status) || author.status == ZXID_ABORTED;
	}
	pfree(slots);
}

/*
 * zlockers_holders: See zlockers.h. Collects the holders by all slots, then
 * drops those whose row was not on the page when the slots were copied.
 */
ZHolder *
zlockers_holders(Relation rel, BlockNumber block, int *n)
{
	ZSlotView  *slots = palloc(sizeof(ZSlotView));
	bool		present[ZHEAP_MAX_OFFSET + 1] = {false};
	Buffer		buf = ReadBuffer(rel, block);
	Page		page = BufferGetPage(buf);
	Holders		holders = {0};
	int			kept = 0;

	slots->n = 0;
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (zpage_is_valid(page))
	{
		zslots_copy_raw(rel, block, page, slots);
		find_present(rel, page, block, present);
		copy_headers(&holders, page);
	}
	UnlockReleaseBuffer(buf);
	for (int s = 1; s <= slots->n; s++)
		holders_of_slot(&holders, s, &slots->s[s], slots->oldest, rel->rd_locator.relNumber, block);
	merge_holders(&holders);
	for (int i = 0; i < holders.n; i++)
		if (holders.list[i].off <= ZHEAP_MAX_OFFSET && present[holders.list[i].off])
			holders.list[kept++] = holders.list[i];
	pfree(slots);
	*n = kept;
	return holders.list;
}
