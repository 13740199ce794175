/*
 * test/page_unit.c - unit tests of page/, callable from SQL.
 *
 *	zundo_test_pages(seed int, rounds int) returns bigint
 *
 * Compares a page with a simple model after each random step and returns the
 * number of comparisons; a mismatch is an ERROR.
 * Rules: PAGE-1, PAGE-2, PAGE-3, PAGE-7, ROOM-1, PRUNE-1, RANGE-1, RANGE-3,
 * ROLLBACK-1, TAG-2.
 */
#include "unit.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "page/zpage.h"

PGDLLEXPORT Datum zundo_test_pages(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_test_pages);

#define MODEL_MAX_ROW	1500
#define MODEL_UNDO		3

/* A change of a row that can be undone, and the row before it. */
typedef struct Saved
{
	ZuRecordType type;
	int			payload_len;
	int			before_len;
	char		payload[MODEL_MAX_ROW * 2];
	char		before[MODEL_MAX_ROW];
} Saved;

/* A line pointer and its row, as they must be on the page. */
typedef struct ModelRow
{
	int			kind;			/* LP_* */
	int			len;
	int			slot;			/* of a stub */
	int			state;			/* of a stub */
	int			nsaved;
	char		bytes[MODEL_MAX_ROW];
	Saved		saved[MODEL_UNDO];
} ModelRow;

/* A page, and what must be on it. */
typedef struct Model
{
	PGAlignedBlock block;
	int			nrows;
	ZPageSlot	slots[ZPAGE_MAX_INLINE_SLOTS + 1];
	int			nslots;
	ModelRow	row[ZHEAP_MAX_OFFSET + 1];
} Model;

static void report_fault(void *arg, const char *invariant, OffsetNumber off,
						 const char *fmt,...) pg_attribute_printf(4, 5);

/* Raises an ERROR about a fault that zpage_check has found. */
static void
report_fault(void *arg, const char *invariant, OffsetNumber off, const char *fmt,...)
{
	char		message[256];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(message, sizeof(message), fmt, args);
	va_end(args);
	FAIL("%s at offset %u: %s", invariant, off, message);
}

/* Returns a random header for a row of len bytes, without slack. */
static ZHeader
random_header(Model *m, int len)
{
	ZHeader		h = pick(Min(100, (len - ZTUPLE_HEADER_SIZE) * 8 + 1));

	if (pick(3) == 0)
		h |= ZH_NULLS;
	if (pick(8) == 0)
		h |= ZH_EXTERNAL;
	if (pick(8) == 0)
		h |= ZH_STALE_KEYS;
	h = ZH_WITH_SLOT(h, pick(m->nslots + 1));
	h = ZH_WITH_TAG(ZH_WITH_LOCK(h, pick(5)), pick(Min(m->nslots, ZPAGE_INITIAL_SLOTS) + 1));
	return ZH_WITH_STATE(h, pick(2));
}

/* Returns a random length of a row. */
static int
random_length(void)
{
	int			limit = pick(10) == 0 ? MODEL_MAX_ROW : pick(3) == 0 ? 400 : 60;

	return ZTUPLE_HEADER_SIZE + pick(limit - ZTUPLE_HEADER_SIZE);
}

/* Checks that the page is equal to the model. */
static void
compare_page(Model *m)
{
	Page		page = (Page) m->block.data;

	zpage_check(page, m->nslots, report_fault, NULL);
	CHECK(PageGetMaxOffsetNumber(page) == m->nrows);
	CHECK(zpage_nslots(page) == m->nslots);
	for (int i = 1; i <= m->nslots; i++)
		CHECK(memcmp(zpage_slot(page, i), &m->slots[i], sizeof(ZPageSlot)) == 0);

	for (int off = 1; off <= m->nrows; off++)
	{
		ItemId		lp = PageGetItemId(page, off);
		ModelRow   *row = &m->row[off];
		char	   *bytes;

		CHECK((int) lp->lp_flags == row->kind);
		if (row->kind == LP_REDIRECT)
			CHECK((int) lp->lp_off == row->slot && (int) lp->lp_len == row->state);
		if (row->kind != LP_NORMAL && !(row->kind == LP_DEAD && ItemIdHasStorage(lp)))
			continue;
		bytes = zpage_row(page, lp);
		CHECK(zpage_row_length(page, lp) == row->len);
		CHECK((zheader_get(bytes) & ~ZH_SLACK) == zheader_get(row->bytes));
		CHECK(memcmp(bytes + ZTUPLE_HEADER_SIZE, row->bytes + ZTUPLE_HEADER_SIZE,
					 row->len - ZTUPLE_HEADER_SIZE) == 0);
	}
}

/* Puts a new row on the page, if there is room for it. */
static void
page_put(Model *m)
{
	Page		page = (Page) m->block.data;
	OffsetNumber off = zpage_find_offset(page);
	int			len = random_length();
	ModelRow   *row;

	if (off == InvalidOffsetNumber)
	{
		CHECK(m->nrows == ZHEAP_MAX_OFFSET);
		return;
	}
	CHECK(off == m->nrows + 1 || m->row[off].kind == LP_UNUSED);
	if (!zpage_has_space(page, off, len))
		return;
	row = &m->row[off];
	row->kind = LP_NORMAL;
	row->len = len;
	row->nsaved = 0;
	random_bytes(row->bytes, len);
	zheader_set(row->bytes, random_header(m, len));
	zpage_put_row(page, off, row->bytes, len);
	m->nrows = Max(m->nrows, off);
}

/* Returns a random offset of an LP_NORMAL item, 0 if none is found. */
static int
pick_normal(Model *m)
{
	for (int i = 0; i < 20 && m->nrows > 0; i++)
	{
		int			off = 1 + pick(m->nrows);

		if (m->row[off].kind == LP_NORMAL)
			return off;
	}
	return 0;
}

/*
 * Saves the row for page_undo_change. Returns the entry; the caller sets its
 * payload.
 */
static Saved *
save(ModelRow *row, ZuRecordType type)
{
	Saved	   *saved;

	if (row->nsaved == MODEL_UNDO)
	{
		row->nsaved--;
		memmove(&row->saved[0], &row->saved[1], row->nsaved * sizeof(Saved));
	}
	saved = &row->saved[row->nsaved++];
	saved->type = type;
	saved->before_len = row->len;
	memcpy(saved->before, row->bytes, row->len);
	return saved;
}

/* Replaces a row, if the new one fits. */
static void
page_update(Model *m)
{
	Page		page = (Page) m->block.data;
	int			off = pick_normal(m);
	ModelRow   *row = &m->row[off];
	char		bytes[MODEL_MAX_ROW];
	int			len;
	ZHeader		h;
	ZDelta		delta;
	Saved	   *saved;
	char	   *p;
	int			hole = zpage_hole(page);
	int			room;

	if (off == 0 || !ZH_LIVE(zheader_get(row->bytes)))
		return;
	room = ItemIdGetLength(PageGetItemId(page, off));
	len = pick(2) == 0 ? row->len : pick(2) == 0 ? random_length() : row->len - pick(500);
	len = Max(len, ZTUPLE_HEADER_SIZE);
	if (!zpage_replace_fits(page, off, len))
		return;
	random_bytes(bytes, len);
	if (pick(4) != 0)
		memcpy(bytes, row->bytes, Min(len, row->len));
	if (len > 12)
		random_bytes(bytes + 5 + pick(len - 9), 4);
	h = len == row->len && pick(2) == 0 ? zheader_get(row->bytes) : random_header(m, len);
	zheader_set(bytes, ZH_WITH_STATE(h, ZSTATE_UPDATED));

	saved = save(row, ZUR_UPDATE);
	zdelta_compute(row->bytes + 5, row->len - 5, bytes + 5, len - 5, &delta);
	p = zheader_compact_put(saved->payload, zheader_get(row->bytes), zheader_get(bytes));
	p = zdelta_undo_put(p, &delta, row->bytes + 5);
	saved->payload_len = p - saved->payload;

	memcpy(row->bytes, bytes, len);
	row->len = len;
	zpage_replace_row(page, off, bytes, len);
	CHECK(zpage_hole(page) == hole - Max(len - room, 0));
}

/* Sets a row's header as a deletion or a move does. */
static void
page_delete(Model *m)
{
	Page		page = (Page) m->block.data;
	int			off = pick_normal(m);
	ModelRow   *row = &m->row[off];
	bool		moved = pick(3) == 0;
	Saved	   *saved;
	ZHeader		h;
	char	   *p;

	if (off == 0 || !ZH_LIVE(zheader_get(row->bytes)))
		return;
	h = zheader_get(row->bytes);
	saved = save(row, moved ? ZUR_MOVE : ZUR_DELETE);
	p = zheader_compact_put(saved->payload, h, h);
	saved->payload_len = p - saved->payload;

	h = ZH_WITH_STATE(ZH_WITH_SLOT(h, 1 + pick(m->nslots)),
					  moved ? ZSTATE_MOVED : ZSTATE_DELETED) | ZH_KEY_CHANGE;
	zheader_set(row->bytes, h);
	zpage_set_header(page, off, h);
}

/* Sets lock hint and lock tag of a row. */
static void
page_lock(Model *m)
{
	int			off = pick_normal(m);
	ZHeader		h;

	if (off == 0)
		return;
	h = ZH_WITH_LOCK(zheader_get(m->row[off].bytes), pick(5));
	h = ZH_WITH_TAG(h, pick(Min(m->nslots, ZPAGE_INITIAL_SLOTS) + 1));
	zheader_set(m->row[off].bytes, h);
	zpage_set_header((Page) m->block.data, off, h | (pick(2) ? ZH_SLACK : 0));
}

/* Undoes the last update or deletion of a row. */
static void
page_undo_change(Model *m)
{
	int			off = pick_normal(m);
	ModelRow   *row = &m->row[off];
	Saved	   *saved;
	ZuRecord	rec = {0};
	ZHeader		h;

	if (off == 0 || row->nsaved == 0)
		return;
	saved = &row->saved[--row->nsaved];
	rec.type = saved->type;
	rec.offset = off;
	CHECK(zpage_undo((Page) m->block.data, 0, &rec, saved->payload, saved->payload_len));

	h = ZH_WITHOUT_LOCKS(zheader_get(saved->before)) |
		(zheader_get(row->bytes) & (ZH_LOCK_MASK | ZH_TAG_MASK | ZH_STALE_KEYS));
	memcpy(row->bytes, saved->before, saved->before_len);
	row->len = saved->before_len;
	zheader_set(row->bytes, h);
}

/* Returns whether the model's row or stub at off is deleted under the slot. */
static bool
is_deleted_under(const Model *m, int off, int slotno)
{
	const ModelRow *row = &m->row[off];
	ZHeader		h;

	if (row->kind == LP_REDIRECT)
		return row->slot == slotno && row->state == ZSTATE_DELETED;
	if (row->kind != LP_NORMAL)
		return false;
	h = zheader_get(row->bytes);
	return ZH_SLOT(h) == slotno && ZH_STATE(h) == ZSTATE_DELETED;
}

/*
 * Deletes some of the rows from a random one up to the next that is deleted
 * under the slot, by one open record, and mostly undoes it (RANGE-3). Rows that
 * share a record have the same header before but for shape and locks.
 */
static void
page_share_delete(Model *m)
{
	const ZHeader own = ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL | ZH_LOCK_MASK | ZH_TAG_MASK;
	Page		page = (Page) m->block.data;
	int			first = pick_normal(m);
	int			last = first;
	int			slotno = 1 + pick(m->nslots);
	ZHeader		before[ZHEAP_MAX_OFFSET + 1] = {0};
	ZHeader		old;
	char		payload[ZHEADER_COMPACT_MAX];
	ZuRecord	rec = {0};

	if (first == 0 || !ZH_LIVE(zheader_get(m->row[first].bytes)))
		return;
	old = zheader_get(m->row[first].bytes);
	while (last < m->nrows && !is_deleted_under(m, last + 1, slotno))
		last++;
	if (last == first || zheader_compact_put(payload, old, old) != payload + 2)
		return;
	for (int off = first; off <= last; off++)
	{
		ModelRow   *row = &m->row[off];
		ZHeader		h;

		if (row->kind != LP_NORMAL || !ZH_LIVE(zheader_get(row->bytes)) ||
			zheader_of_new(zheader_get(row->bytes)) == 0 || (off > first && pick(3) == 0))
			continue;
		before[off] = (zheader_get(row->bytes) & own) | (old & ~own);
		h = ZH_WITH_STATE(ZH_WITH_SLOT(before[off], slotno), ZSTATE_DELETED) | ZH_KEY_CHANGE;
		zheader_set(row->bytes, h);
		zpage_set_header(page, off, h);
		row->nsaved = 0;
	}
	page_lock(m);
	if (pick(3) == 0)
		return;
	rec.type = ZUR_DELETE;
	rec.offset = first;
	rec.nrows = last - first + 1 + (last == m->nrows ? pick(ZHEAP_MAX_OFFSET - last + 1) : 0);
	rec.open = true;
	CHECK(zpage_undo(page, slotno, &rec, payload, 2));
	for (int off = first; off <= last; off++)
		if (before[off] != 0)
			zheader_set(m->row[off].bytes, ZH_WITHOUT_LOCKS(before[off]) |
						(zheader_get(m->row[off].bytes) & (ZH_LOCK_MASK | ZH_TAG_MASK)));
}

/*
 * Undoes the insertion of rows. An open record concerns only the rows that name
 * its slot.
 */
static void
page_undo_insert(Model *m)
{
	int			off = pick_normal(m);
	ZuRecord	rec = {0};
	int			slotno;

	if (off == 0)
		return;
	slotno = ZH_SLOT(zheader_get(m->row[off].bytes));
	rec.type = ZUR_INSERT;
	rec.offset = off;
	rec.nrows = 1;
	rec.open = pick(2) == 0;
	if (rec.open)
		rec.nrows += pick(ZHEAP_MAX_OFFSET - off + 1);
	else
		while (rec.nrows < 3 && off + rec.nrows <= m->nrows &&
			   m->row[off + rec.nrows].kind == LP_NORMAL)
			rec.nrows++;
	CHECK(zpage_undo((Page) m->block.data, slotno, &rec, NULL, 0));
	for (int i = off; i < off + rec.nrows && i <= m->nrows; i++)
	{
		ModelRow   *row = &m->row[i];

		if (!rec.open || (row->kind == LP_NORMAL && ZH_SLOT(zheader_get(row->bytes)) == slotno))
			row->kind = LP_DEAD;
	}
}

/*
 * Undoes a LOCK record. If it is open, its slot's tag is removed from all rows;
 * if not, a row with this tag loses its hint of UPDATE (TAG-2).
 */
static void
page_undo_lock(Model *m)
{
	ZuRecord	rec = {0};
	int			slotno = 1 + pick(ZPAGE_INITIAL_SLOTS);

	rec.type = ZUR_LOCK;
	rec.offset = 1 + pick(ZHEAP_MAX_OFFSET);
	rec.open = pick(2) == 0;
	rec.lockmode = pick(2) == 0 ? LockTupleExclusive : LockTupleNoKeyExclusive;
	if (pick(2) == 0)
		rec.offset = 1 + pick(m->nrows + 1);
	CHECK(zpage_undo((Page) m->block.data, slotno, &rec, NULL, 0));
	for (int off = 1; off <= m->nrows; off++)
	{
		ZHeader		h = zheader_get(m->row[off].bytes);

		if (m->row[off].kind != LP_NORMAL || ZH_TAG(h) != slotno)
			continue;
		if (rec.open)
			zheader_set(m->row[off].bytes, ZH_WITH_TAG(h, 0));
		else if (rec.offset == off && rec.lockmode == LockTupleExclusive)
			zheader_set(m->row[off].bytes,
						ZH_WITH_LOCK(h, Min(ZH_LOCK(h), LockTupleNoKeyExclusive + 1)));
	}
}

/*
 * Undoes a random record on a copy of the page. zpage_undo must refuse it or
 * leave a valid page.
 */
static void
page_undo_garbage(Model *m)
{
	PGAlignedBlock copy = m->block;
	ZuRecord	rec = {0};
	char		payload[64];
	int			len = pick(sizeof(payload));

	rec.type = ZUR_INSERT + pick(4);
	rec.offset = pick(m->nrows + 3);
	rec.nrows = pick(5);
	rec.open = pick(2) == 0;
	random_bytes(payload, len);
	unit.cases++;
	if (zpage_undo((Page) copy.data, 1 + pick(m->nslots), &rec, payload, len))
		zpage_check((Page) copy.data, ZPAGE_MAX_SLOTS, report_fault, NULL);
	else
		CHECK(memcmp(copy.data, m->block.data, BLCKSZ) == 0);
}

/*
 * Chooses how to prune a line pointer, and does so in the model. Returns false
 * if it cannot be pruned.
 */
static bool
prune_row(ModelRow *row, ZPruneAction *action)
{
	ZHeader		h = zheader_get(row->bytes);

	switch (row->kind)
	{
		case LP_NORMAL:
			if (ZH_LIVE(h))
				*action = pick(3) == 0 ? ZPRUNE_DEAD : ZPRUNE_CUT;
			else
				*action = pick(2) == 0 ? ZPRUNE_STUB : pick(2) == 0 ? ZPRUNE_DEAD : ZPRUNE_UNUSED;
			break;
		case LP_REDIRECT:
			*action = pick(2) == 0 ? ZPRUNE_DEAD : ZPRUNE_UNUSED;
			break;
		case LP_DEAD:
			*action = ZPRUNE_UNUSED;
			break;
		default:
			return false;
	}
	row->nsaved = 0;
	if (*action == ZPRUNE_STUB)
	{
		row->kind = LP_REDIRECT;
		row->slot = ZH_SLOT(h);
		row->state = ZH_STATE(h);
	}
	else if (*action != ZPRUNE_CUT)
		row->kind = *action == ZPRUNE_DEAD ? LP_DEAD : LP_UNUSED;
	return true;
}

/* Prunes random line pointers. */
static void
page_prune(Model *m)
{
	Page		page = (Page) m->block.data;
	ZPruneItem	items[ZHEAP_MAX_OFFSET];
	int			nitems = 0;
	int			rate = 1 + pick(6);
	int			hole = zpage_hole(page);
	int			gain;
	int			room;
	OffsetNumber next;

	for (int off = 1; off <= m->nrows; off++)
	{
		ZPruneAction action;

		if (pick(rate) == 0 && prune_row(&m->row[off], &action))
		{
			items[nitems].offset = off;
			items[nitems++].action = action;
		}
	}
	gain = zpage_gain(page, items, nitems);
	room = zpage_space_after(page, items, nitems, &next);
	zpage_prune(page, items, nitems);
	CHECK(zpage_hole(page) == hole + gain);
	CHECK(next == zpage_find_offset(page));
	CHECK(room == zpage_hole(page) -
		  (next == InvalidOffsetNumber || next > PageGetMaxOffsetNumber(page) ?
		   (int) sizeof(ItemIdData) : 0));
	while (m->nrows > 0 && m->row[m->nrows].kind == LP_UNUSED)
		m->nrows--;
}

/* Sets a slot, and sometimes adds slots. */
static void
page_slots(Model *m)
{
	Page		page = (Page) m->block.data;
	int			i = 1 + pick(m->nslots);
	int			more = m->nslots + 1 + pick(4);

	m->slots[i].ptr = pick(3) == 0 ? 0 : random_bits() | 1;
	m->slots[i].xid_flags = m->slots[i].ptr == 0 ? 0 : (random_bits() & ZXID_MASK) | 1;
	zpage_set_slot(page, i, ZSLOT_XID(&m->slots[i]), m->slots[i].ptr);
	if (pick(10) == 0 && zpage_can_grow_slots(page, more))
	{
		zpage_grow_slots(page, more);
		memset(&m->slots[m->nslots + 1], 0, (more - m->nslots) * sizeof(ZPageSlot));
		m->nslots = more;
	}
}

/* Makes one random change, and compares the page with the model. */
static void
page_step(Model *m)
{
	static void (*const steps[]) (Model *) = {
		page_put, page_put, page_put, page_put, page_update, page_update, page_update,
		page_delete, page_share_delete, page_lock, page_undo_change, page_undo_change,
		page_undo_insert, page_undo_lock, page_undo_garbage, page_slots
	};

	if (pick(40) == 0)
		page_prune(m);
	else
		steps[pick(lengthof(steps))] (m);
	compare_page(m);
}

/*
 * zundo_test_pages(seed, rounds): in each round makes 150 random changes of a
 * new page.
 */
Datum
zundo_test_pages(PG_FUNCTION_ARGS)
{
	Model	   *m = palloc_extended(sizeof(Model), MCXT_ALLOC_HUGE);

	start_test(PG_GETARG_INT32(0));
	for (; unit.round < PG_GETARG_INT32(1); unit.round++)
	{
		CHECK_FOR_INTERRUPTS();
		m->nrows = 0;
		m->nslots = ZPAGE_INITIAL_SLOTS;
		memset(m->slots, 0, sizeof(m->slots));
		memset(&m->block, 0, BLCKSZ);
		CHECK(!zpage_is_valid((Page) m->block.data));
		zpage_init((Page) m->block.data);
		CHECK(zpage_hole((Page) m->block.data) ==
			  (int) (ztuple_max_size() + ZTUPLE_MAX_COUNT + sizeof(ItemIdData)));
		for (int i = 0; i < 150; i++)
			page_step(m);
	}
	PG_RETURN_INT64(unit.cases);
}
