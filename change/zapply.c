/*
 * change/zapply.c - what a change does to its pages.
 *
 * DML and replay call the same functions, on pages that are locked exclusively,
 * so that replay cannot make another change than DML did. Nothing here fails,
 * locks, logs or writes undo.
 *
 * Under assertions, a page that was sound (zpage_check) before a change is
 * sound after it. Replay makes most of its changes one after the other on the
 * same pages, so it checks a page when it first comes to it, and then after one
 * of CHECKED_CHANGES changes; a page that a change has spoilt stays spoilt.
 */
#include "postgres.h"

#include "access/xlogutils.h"
#include "change/zchange.h"
#include "change/zwal.h"
#include "page/zoverflow.h"
#include "storage/bufmgr.h"

/* Gives the page n inline slots, if n is not 0 and it has fewer. */
static inline void
grow_slots(Page page, int n)
{
	if (n > zpage_nslots(page))
		zpage_grow_slots(page, n);
}

/*
 * Returns the index of the record that the slot of page i points to after the
 * change: the one that is pushed last.
 */
static int
head_record(const ZChange *change, int i)
{
	if (i == 1 || zchange_on_one_page(change))
		return 1;
	return change->rec[0].type == ZUR_LOCK ? change->nrecords - 1 : 0;
}

/*
 * Makes the slot of page i point to its record, on the table page or its
 * overflow page, and adds to the page's debt or its count of overflow changes.
 */
static void
set_slot(const ZChange *change, int i)
{
	const ZChangePage *p = &change->page[i];
	int			slotno = p->slot.slotno;
	int			head = head_record(change, i);
	const ZuRecord *rec = &change->rec[head];
	UndoPtr		ptr = change->op.ptr[head];
	bool		common = (rec->type == ZUR_LOCKS);
	ZXid		xid = common ? rec->hold : rec->xid;

	if (likely(p->page != NULL))
	{
		grow_slots(p->page, p->slot.grow_to);
		if (likely(!p->slot.in_overflow))
		{
			if (unlikely(common))
				zpage_set_lock_slot(p->page, slotno, ZSLOT_COMMON_LOCKS, xid, ptr);
			else
				zpage_set_slot(p->page, slotno, xid, ptr);
		}
		if (unlikely(p->slot.in_overflow))
			zpage_count_overflow_change(p->page);
		else if (p->slot.live_chain && !zpage_has_overflow(p->page))
		{
			ZPageTrailer *trailer = zpage_trailer(p->page);

			trailer->debt = Min((uint32) trailer->debt + change->rec[i].length, PG_UINT16_MAX);
		}
	}
	if (unlikely(p->overflow != NULL))
	{
		Assert(p->slot.in_overflow);
		if (common)
			zoverflow_set_lock_slot(p->overflow, slotno, xid, ptr);
		else
			zoverflow_set_slot(p->overflow, slotno, xid, ptr);
	}
}

/* Puts the rows of a MULTI_INSERT on the page, at consecutive offsets. */
static void
put_rows(Page page, const ZChange *change)
{
	const char *p = change->row;
	OffsetNumber first = change->rec[0].offset;

	for (int i = 0; i < change->rec[0].nrows; i++)
	{
		uint16		len;

		memcpy(&len, p, sizeof(len));
		zpage_put_row(page, first + i, p + sizeof(len), len);
		p += sizeof(len) + len;
	}
	Assert(p == change->row + change->row_length);
}

/*
 * Replaces the old row by the new one. The page's lock hint stays unless the
 * change clears it.
 */
static void
replace_row(Page page, const ZChange *change)
{
	OffsetNumber off = change->rec[0].offset;
	ZHeader		old = zheader_get(zpage_row(page, PageGetItemId(page, off)));

	zpage_replace_row(page, off, change->row, change->row_length);
	if (!change->clear_locks && ZH_LOCK(old) != 0)
	{
		ZHeader		new = zheader_get(zpage_row(page, PageGetItemId(page, off)));

		zpage_set_header(page, off, ZH_WITH_LOCK(new, ZH_LOCK(old)));
	}
}

/*
 * Forms the new row of a compact MOVE from the old one. The header of the new
 * one is known.
 */
static bool
form_moved_row(ZChange *change, char *row)
{
	Page		page = change->page[0].page;
	ItemId		lp = PageGetItemId(page, change->rec[0].offset);
	const char *end = change->delta + change->delta_length;
	Size		len;

	if (!ItemIdIsNormal(lp))
		return false;
	len = zpage_row_length(page, lp) - ZTUPLE_HEADER_SIZE;
	memcpy(row, zpage_row(page, lp), len + ZTUPLE_HEADER_SIZE);
	if (zdelta_undo_apply(change->delta, end, row + ZTUPLE_HEADER_SIZE, &len,
						  BLCKSZ - ZTUPLE_HEADER_SIZE) != end)
		return false;
	zheader_set(row, change->shape);
	change->row = row;
	change->row_length = len + ZTUPLE_HEADER_SIZE;
	return true;
}

/*
 * zchange_form_row: See zchange.h. The delta of an UPDATE is in WAL form, that
 * of a MOVE in undo form.
 */
bool
zchange_form_row(ZChange *change, char *row)
{
	Page		page = change->page[0].page;
	ItemId		lp = PageGetItemId(page, change->rec[0].offset);
	const char *end = change->delta + change->delta_length;
	ZHeader		current;
	ZHeader		updated;
	Size		len;

	if (change->opcode == ZWAL_MOVE)
		return form_moved_row(change, row);
	if (!ItemIdIsNormal(lp))
		return false;
	current = zheader_get(zpage_row(page, lp));
	len = zpage_row_length(page, lp);
	memcpy(row, zpage_row(page, lp), len);
	len -= ZTUPLE_HEADER_SIZE;
	if (zdelta_wal_apply(change->delta, end, row + ZTUPLE_HEADER_SIZE, &len,
						 BLCKSZ - ZTUPLE_HEADER_SIZE) != end)
		return false;
	updated = zheader_updated(current, change->new_shape ? change->shape : current,
							  change->page[0].slot.slotno,
							  (change->rec[0].xflags & ZUX_KEY_CHANGE) != 0);
	if (change->clear_locks)
		updated = ZH_WITHOUT_LOCKS(updated);
	if (change->stale_keys)
		updated |= ZH_STALE_KEYS;
	zheader_set(row, updated);
	change->row = row;
	change->row_length = len + ZTUPLE_HEADER_SIZE;
	return true;
}

/* Marks the row deleted or moved, by the transaction in the change's slot. */
static inline void
end_row(Page page, const ZChange *change, int state)
{
	zpage_end_row(page, change->rec[0].offset, change->page[0].slot.slotno, state,
				  (change->rec[0].xflags & ZUX_OTHER_PART) != 0);
}

/*
 * Sets the lock hint of the row at off to this strength, unless it is stronger.
 */
static void
hint_lock(Page page, OffsetNumber off, int lockmode)
{
	ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off)));

	if (ZH_LOCK(h) < lockmode + 1)
		zpage_set_header(page, off, ZH_WITH_LOCK(h, lockmode + 1));
}

/*
 * Locks the row at off by the open LOCK in the chain of slot slotno. A weaker
 * mode than UPDATE shows that nobody holds the row in that: then the hint may
 * not say so (TAG-2).
 */
static void
tag_row(Page page, OffsetNumber off, int slotno, int lockmode)
{
	ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off)));
	int			hint = Min(ZH_LOCK(h), LockTupleNoKeyExclusive + 1);

	zpage_set_header(page, off, ZH_WITH_LOCK(ZH_WITH_TAG(h, slotno), Max(hint, lockmode + 1)));
}

/*
 * Takes the slot's tag from the rows that have it from earlier owners, and
 * locks the row that the open LOCK came with (TAG-2).
 */
static void
open_lock(Page page, const ZChange *change)
{
	const ZuRecord *rec = &change->rec[0];

	zpage_clear_tags(page, change->page[0].slot.slotno);
	tag_row(page, rec->offset, change->page[0].slot.slotno, rec->lockmode);
}

/* Puts the change's record at the head of the page's list (mvcc/zsaved.c). */
static void
set_saved(Page page, const ZChange *change)
{
	ZPageTrailer *trailer = zpage_trailer(page);

	trailer->saved = change->op.ptr[0];
	if (change->rec[0].type == ZUR_IMAGE)
		trailer->debt = 0;
}

int
zchange_rows_on_page(Page page, const ZPruneItem *items, int n, char *payload)
{
	char	   *p = payload;

	for (int i = 0; i < n; i++)
	{
		OffsetNumber off = items[i].offset;
		ItemId		lp;
		int			len;

		if (off > PageGetMaxOffsetNumber(page) || !zpage_item_ok(page, off))
			return 0;
		lp = PageGetItemId(page, off);
		len = ItemIdIsNormal(lp) ? zpage_row_length(page, lp) : 0;
		if (len < ZTUPLE_HEADER_SIZE || p - payload + ZUR_ROW_HEAD + len >= BLCKSZ)
			return 0;
		p = zur_put_row(p, off, zpage_row(page, lp), len);
	}
	*p++ = ZUR_ROWS_END;
	return p - payload;
}

bool
zchange_take_rows(ZChange *change, ZChangeWork *work, Page page)
{
	ZuRecord   *rec = &change->rec[0];

	if (zchange_rows_on_page(page, change->prune, change->nprune, work->bytes) != rec->payload_len)
		return false;
	zur_pack(rec, work->packed);
	return true;
}

/*
 * Puts the new row of a MOVE on its page, whose slot has been set, and the
 * locks that move along in the page's common lock slot.
 */
static void
put_moved_row(Page page, const ZChange *change)
{
	if (change->nrecords == 3)
	{
		grow_slots(page, change->locks.grow_to);
		zpage_set_lock_slot(page, change->locks.slotno, ZSLOT_COMMON_LOCKS, change->rec[2].hold,
							change->op.ptr[2]);
	}
	zpage_put_row(page, change->rec[1].offset, change->row, change->row_length);
}

/*
 * Makes the change of the row on page 0, whose slot has been set. Clears the
 * page's flag, except for locks and images: snapshots see the same rows as
 * before.
 */
static void
change_row(Page page, const ZChange *change)
{
	const ZuRecord *rec = &change->rec[0];

	if (change->opcode != ZWAL_LOCK && change->opcode != ZWAL_IMAGE)
		PageClearAllVisible(page);	/* VMAP-2 */
	switch (change->opcode)
	{
		case ZWAL_INSERT:
			zpage_put_row(page, rec->offset, change->row, change->row_length);
			break;
		case ZWAL_MULTI_INSERT:
			put_rows(page, change);
			break;
		case ZWAL_UPDATE:
			replace_row(page, change);
			break;
		case ZWAL_DELETE:
			end_row(page, change, ZSTATE_DELETED);
			break;
		case ZWAL_MOVE:
			end_row(page, change, ZSTATE_MOVED);
			if (zchange_on_one_page(change))
				put_moved_row(page, change);
			break;
		case ZWAL_LOCK:

			/*
			 * the rows whose inline locks became records have their hints, or
			 * are not there any more
			 */
			if (change->converted)
				zpage_clear_tags(page, change->page[0].slot.slotno);	/* TAG-2 */
			else if (rec->type == ZUR_LOCK && rec->open)
				open_lock(page, change);
			else
				hint_lock(page, rec->offset,
						  rec->type == ZUR_LOCKS ? zrecord_first_mode(rec) : rec->lockmode);
			break;
		case ZWAL_IMAGE:
			set_saved(page, change);
			break;
		default:
			Assert(false);
	}
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether page i of the change keeps its invariants (PAGE-n), or is not
 * in the change.
 */
static bool
is_sound(const ZChange *change, int i)
{
	Page		page = change->page[i].page;
	bool		overflow;

	if (page == NULL)
		return true;
	overflow = zpage_trailer(page)->overflow != ZPAGE_NO_OVERFLOW;
	return zpage_check(page, overflow ? ZPAGE_MAX_SLOTS : zpage_nslots(page), NULL, NULL) == 0;
}

#define CHECKED_CHANGES 16
#define CHECKED_PAGES 256

/* A page that this process has checked in replay. */
typedef struct CheckedPage
{
	RelFileLocator locator;
	BlockNumber block;
	uint32		changes;		/* since it was checked first */
	bool		sound;
} CheckedPage;

/*
 * Returns what replay remembers of page i of the change. If the page has no
 * entry, it gets the one of another page, and counting its changes begins.
 */
static CheckedPage *
remember_page(const ZChange *change, int i)
{
	static CheckedPage pages[CHECKED_PAGES];
	RelFileLocator locator;
	ForkNumber	fork;
	BlockNumber block;
	CheckedPage *p;

	BufferGetTag(change->page[i].buf, &locator, &fork, &block);
	p = &pages[(block + locator.relNumber) % CHECKED_PAGES];
	if (p->block != block || !RelFileLocatorEquals(p->locator, locator))
	{
		p->locator = locator;
		p->block = block;
		p->changes = 0;
		p->sound = change->page[i].init || is_sound(change, i);
	}
	if (change->page[i].init)
		p->sound = true;
	return p;
}

/* Returns whether page i has been sound before the change. */
static bool
was_sound(const ZChange *change, int i)
{
	if (change->page[i].page == NULL || change->page[i].init)
		return true;
	return InRecovery ? remember_page(change, i)->sound : is_sound(change, i);
}

/* Returns whether page i is sound after the change, or is not checked now. */
static bool
stays_sound(const ZChange *change, int i)
{
	if (change->page[i].page != NULL && InRecovery &&
		remember_page(change, i)->changes++ % CHECKED_CHANGES != 0)
		return true;
	return is_sound(change, i);
}
#endif

/*
 * zchange_apply: See zchange.h. Sets the slot of a page before its rows: rows
 * may only name slots that exist. Prunes before both (PRUNE-3).
 */
void
zchange_apply(const ZChange *change)
{
#ifdef USE_ASSERT_CHECKING
	bool		sound[2];

	for (int i = 0; i < 2; i++)
		sound[i] = was_sound(change, i);
#endif

	for (int i = 0; i < 2; i++)
	{
		const ZChangePage *p = &change->page[i];

		if (p->page != NULL && p->init)
			zpage_init(p->page);
		if (i == 0 && change->prunes && p->page != NULL)
			zpage_prune(p->page, change->prune, change->nprune);
		if (p->slot.slotno != 0 && !change->covered && (p->page != NULL || p->overflow != NULL))
			set_slot(change, i);
		if (p->page == NULL)
			continue;
		if (i == 0)
			change_row(p->page, change);
		else
			put_moved_row(p->page, change);
	}
#ifdef USE_ASSERT_CHECKING
	for (int i = 0; i < 2; i++)
		Assert(!sound[i] || stays_sound(change, i));
#endif
}

/*
 * zapply_inline_lock: See zchange.h. An inline lock is a mark in the slot's
 * pointer, so the page is all that changes.
 */
void
zapply_inline_lock(Page page, const ZWalInlineLock *lock, ZXid xid)
{
	UndoPtr		locks = lock->fresh ? 0 : zpage_slot(page, lock->slotno)->ptr;

	if (lock->tag)
	{
		tag_row(page, lock->offset, lock->slotno, lock->mode);
		return;
	}
	grow_slots(page, lock->grow_to);
	zpage_set_lock_slot(page, lock->slotno, ZSLOT_INLINE_LOCKS, xid,
						zinline_add(locks, lock->offset, lock->mode));
	hint_lock(page, lock->offset, lock->mode);
}

/*
 * zapply_speculative: See zchange.h. Giving up leaves a deleted row, which a
 * rollback removes as any inserted row.
 */
void
zapply_speculative(Page page, OffsetNumber off, bool confirmed)
{
	ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off))) & ~ZH_SPECULATIVE;

	zpage_set_header(page, off, confirmed ? h : ZH_WITH_STATE(h, ZSTATE_DELETED));
}
