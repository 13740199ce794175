/*
 * monitor/check.c - zundo.check: every invariant of a table's pages and of
 * their undo.
 *
 * Called from SQL. Works on copies of pages, taken with their slots under the
 * share lock, so that it may run beside any other activity. Each page (and each
 * undo log) is checked in an internal subtransaction: an error that is raised
 * while undo is followed becomes a row of the result and does not end the
 * check. Assigns no xid.
 *
 * Invariants tested here, besides PAGE-1, -2, -3, -6 and -7 of page/zpage.h
 * and VMAP-1 of mvcc/zvismap.c:
 *	CHAIN-1	the head of a slot's chain exists as long as its transaction is not
 *		older than `oldest`, and was written by the slot's transaction.
 *	CHAIN-3	a record's offsets are possible ones; an image or a list of locks is
 *			in no chain.
 *	CHAIN-4	in a chain no aborted record lies below a committed one.
 *	CHAIN-5	a chain ends: it has at most MAX_CHAIN records above `oldest`.
 *	CHAIN-6	the newest record for a row in the chain of the row's slot fits the
 *			row's state: a row is inserted, updated, deleted or moved as that
 *			record says, or deleted if it is a speculative insertion, which may
 *			have been given up.
 *	CHAIN-7	a slot's transaction id has been given out.
 *	CHAIN-8	a page of a temporary table points to private undo only, any other
 *			page never.
 *	CHAIN-9	inline locks lie in an inline slot, without a gap, each on another
 *			possible row.
 *	CHAIN-10	a list of locks consists of LOCKS records, none of which names
 *		a younger locker than what points to it.
 *	CHAIN-11	below `oldest` every chain is of transactions that have
 *		committed: aborted ones were taken off it. Only a lost write of undo
 *		can make this untrue (undo/damage/undo_damage.c).
 *	CHAIN-12	a chain has at most one open LOCK above its committed records,
 *				and only that of an inline slot (TAG-2).
 *	CHAIN-13	the row of a stub that a snapshot may need was saved (SAVED-1).
 *	ROW-1	a row has no more columns than its table; they can be read, and
 *			fill it up to its count. A row of an aborted transaction, which may
 *			have added columns to the table, is undone before anybody reads it.
 *	ROW-2	each value of a live row that is out of line has all its chunks.
 *		Only of rows whose author has committed. The snapshot of the query,
 *		which is older than the copy of the page, keeps those of a row that is
 *		deleted meanwhile (TOAST-4 in scan/).
 *	LOG-1	every record of an undo log can be read up to the insert position.
 *	LOG-2	the meta page and the map pages of zundo.undo_log are sound, both
 *		copies, and fit the extents' first pages; the meta page counts all
 *		extents, and the file has them.
 *	LOG-3	the table page that owns an overflow page points to it, or is newer
 *			(OVERFLOW-4 in discard/sweep.c).
 *	E	an error was raised while the page was checked, as by a record that
 *		cannot be read, or belongs to another page; its message is the detail.
 *
 * A page of an overflow extent that is no overflow page is reported as UNDO-67
 * (undo/undo_overflow.c).
 *
 * Locks: AccessShareLock on the table; the share lock of one table page at a
 * time and, while it is copied, of its overflow page; undo pages one by one. No
 * crash points.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "common/compat_commands.h"
#include "discard/discard.h"
#include "miscadmin.h"
#include "monitor/faults.h"
#include "monitor/monitor.h"
#include "mvcc/zchain.h"
#include "mvcc/zsaved.h"
#include "mvcc/zvis.h"
#include "storage/bufmgr.h"
#include "undo/undo.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"

#define MAX_CHAIN			10000000
/* How much of a value out of line is read at once. */
#define VALUE_SLICE			(1024 * 1024)

PGDLLEXPORT Datum zundo_check(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_check);

typedef struct Check
{
	Relation	rel;
	TupleDesc	desc;
	BlockNumber block;
	MemoryContext outer;		/* of the function's call */
	ZFaults		faults;			/* of the page or log that is being checked */
	void		(*test) (struct Check *check);	/* that check_safely runs */
	ZuLogState *logs;			/* of the undo log */
	int			nlogs;
	ZuOverflowPage *overflow;	/* next overflow page to look at, of an array
								 * of noverflow */
	int			noverflow;
	Relation	toast;			/* NULL: the table has none */
	struct varlena *slice;		/* space for VALUE_SLICE bytes of a value */
	Datum	   *values;			/* space for one row */
	bool	   *isnull;
	ZSlotView	view;
	bool		map_bit;		/* the visibility map calls the page
								 * all-visible */
	PGAlignedBlock page;
	char		buf[ZUR_MAX_LENGTH];

	/*
	 * for each offset: the newest record in the chain of the row's slot has
	 * been seen
	 */
	bool		met[ZHEAP_MAX_OFFSET + 1];

	/* for each offset: the row's author has aborted, and is not undone yet */
	bool		aborted[ZHEAP_MAX_OFFSET + 1];

	OffsetNumber next;			/* row whose values are looked at next */

	/* for each offset: a stub whose author is not before `oldest` */
	bool		saved[ZHEAP_MAX_OFFSET + 1];
} Check;

static void fault(Check *check, const char *invariant, OffsetNumber item,
				  const char *fmt,...) pg_attribute_printf(4, 5);

/* Notes a fault of the page or log that is being checked. */
static void
fault(Check *check, const char *invariant, OffsetNumber item, const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	zfaults_add(&check->faults, check->block, item, invariant, fmt, args);
	va_end(args);
}

static void report_page_fault(void *arg, const char *invariant, OffsetNumber off,
							  const char *fmt,...) pg_attribute_printf(4, 5);

/* Does what fault does, as the callback of zpage_check. */
static void
report_page_fault(void *arg, const char *invariant, OffsetNumber off, const char *fmt,...)
{
	Check	   *check = arg;
	va_list		args;

	va_start(args, fmt);
	zfaults_add(&check->faults, check->block, off, invariant, fmt, args);
	va_end(args);
}

/* ---- chains ---- */

/*
 * Returns whether a row whose newest record is rec can be in this state. A
 * speculative insertion that was given up has made the row a deleted one,
 * without a further record (zapply_speculative in change/).
 */
static bool
state_fits(int state, const ZuRecord *rec)
{
	switch (rec->type)
	{
		case ZUR_INSERT:
			return state == ZSTATE_INSERTED ||
				(state == ZSTATE_DELETED && (rec->xflags & ZUX_SPECULATIVE));
		case ZUR_UPDATE:
			return state == ZSTATE_UPDATED;
		case ZUR_DELETE:
			return state == ZSTATE_DELETED;
		case ZUR_MOVE:
			return state == ZSTATE_MOVED;
		default:
			Assert(rec->type == ZUR_LOCK);	/* changes no row */
			return true;
	}
}

/*
 * Checks the row at off against rec, if rec is the first record for it in the
 * chain of slot s, and so the newest one, and the row names that slot: the
 * row's state follows from rec (CHAIN-6), and a stub's author has committed
 * (PAGE-6). Notes whether the author has aborted.
 */
static void
check_row_author(Check *check, int s, OffsetNumber off, const ZuRecord *rec, ZXidStatus status)
{
	Page		page = (Page) check->page.data;
	ItemId		lp;
	int			state;

	Assert(off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET);
	if (off > PageGetMaxOffsetNumber(page) || check->met[off])
		return;
	lp = PageGetItemId(page, off);
	if (ItemIdIsNormal(lp))
	{
		ZHeader		h = zheader_get(zpage_row(page, lp));

		if (ZH_SLOT(h) != s)
			return;
		state = ZH_STATE(h);
	}
	else if (ItemIdIsRedirected(lp) && ItemIdGetRedirect(lp) == s)
		state = lp->lp_len;
	else
		return;
	if (!zrecord_wrote(rec, off, ZH_WITH_STATE((ZHeader) 0, state)))
		return;
	check->met[off] = true;
	check->aborted[off] = (status == ZXID_ABORTED);
	check->saved[off] = ItemIdIsRedirected(lp) && status == ZXID_COMMITTED;
	if (!state_fits(state, rec))
		/* VIS-2 */
		fault(check, "CHAIN-6", off, "row is in state %d, but its newest undo record has type %d",
			  state, (int) rec->type);
	if (ItemIdIsRedirected(lp) && (status == ZXID_IN_PROGRESS || status == ZXID_ABORTED))
		fault(check, "PAGE-6", off,
			  "stub of a row whose author " UINT64_FORMAT " has not committed",
			  rec->xid);
}

/*
 * Checks one record of slot s's chain and the rows that it changed. Returns
 * false if its type or offsets are impossible in a chain (CHAIN-3).
 */
static bool
check_record(Check *check, int s, const ZuRecord *rec, UndoPtr ptr, ZXidStatus status)
{
	int			last = rec->offset + zrecord_range(rec) - 1;

	Assert(s >= 1 && s <= check->view.n);
	if (zrecord_is_saved(rec->type) || rec->type == ZUR_LOCKS)
	{
		fault(check, "CHAIN-3", 0,
			  "slot %d: a page image, saved rows or a list of locks are in the chain", s);
		return false;
	}
	if (rec->offset < FirstOffsetNumber || last > ZHEAP_MAX_OFFSET)
	{
		fault(check, "CHAIN-3", 0, "slot %d: undo %u.%u.%u is of items %u to %d", s,
			  zuptr_generation(ptr), zuptr_extent(ptr), zuptr_byte(ptr), rec->offset, last);
		return false;
	}
	if (rec->type != ZUR_LOCK)
		for (int off = rec->offset; off <= last; off++)
			check_row_author(check, s, (OffsetNumber) off, rec, status);
	return true;
}

/*
 * Returns whether slot s of the page has another head now than the copy has,
 * or its undo may have been discarded since: then a missing head shows only
 * that the copy is old. Reads the page anew under its share lock.
 */
static bool
slot_has_changed(Check *check, int s)
{
	ZSlotView  *now = palloc(sizeof(ZSlotView));
	Buffer		buf = ReadBuffer(check->rel, check->block);
	bool		changed = true;

	Assert(s >= 1 && s <= check->view.n);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (zpage_is_valid(BufferGetPage(buf)))
	{
		zslots_copy_raw(check->rel, check->block, BufferGetPage(buf), now);
		changed = s > now->n ||
			now->s[s].ptr != check->view.s[s].ptr ||
			zslot_age(&check->view.s[s], now->oldest) != ZAGE_YOUNG;
	}
	UnlockReleaseBuffer(buf);
	pfree(now);
	return changed;
}

/*
 * Checks the chain of slot s from its head to `oldest` (CHAIN-1, CHAIN-3 to -8,
 * CHAIN-11, CHAIN-12, PAGE-6, VMAP-1). Reads the chain as ZCHAIN_LOOSE, with
 * records of any age, so that ZCHAIN_SETTLED says nothing but that a record has
 * been discarded: of the head that is a fault (CHAIN-1), unless the page has
 * changed since it was copied. A record that cannot be read though it has not
 * been discarded raises an error.
 */
static void
check_chain(Check *check, int s)
{
	const ZPageSlot *slot = &check->view.s[s];
	ZChain		chain;
	ZChainStep	step;
	ZuRecord	rec;
	ZSlotAge	age;
	bool		committed = false;
	bool		open_lock = false;
	int			n = 0;

	Assert(s >= 1 && s <= check->view.n);
	if (slot->ptr == InvalidUndoPtr || zslot_locks_only(slot))
		return;
	if (zuptr_is_temp(slot->ptr) != RelationUsesLocalBuffers(check->rel))
	{
		/* CHAIN-8 */
		fault(check, "CHAIN-8", 0, "slot %d: undo pointer %X/%08X is of another kind of table", s,
			  (uint32) (slot->ptr >> 32), (uint32) slot->ptr);
		return;
	}
	if (!zxid_possible(ZSLOT_XID(slot)))
	{
		fault(check, "CHAIN-7", 0,
			  "slot %d has transaction ID " UINT64_FORMAT ", which has not been assigned yet", s,
			  ZSLOT_XID(slot));
		return;
	}
	age = zslot_age(slot, check->view.oldest);
	if (age == ZAGE_LOST)
		/* CHAIN-11 */
		fault(check, "CHAIN-11", 0,
			  "slot %d: transaction " UINT64_FORMAT " has not committed, and its undo is lost",
			  s, ZSLOT_XID(slot));
	if (age != ZAGE_YOUNG)
		return;
	memset(check->met, false, sizeof(check->met));
	zchain_begin_at(&chain, check->rel->rd_locator.relNumber, check->block, slot->ptr,
					InvalidZXid, check->buf);
	while ((step = zchain_next(&chain, &rec)) == ZCHAIN_RECORD)
	{
		UndoPtr		ptr = chain.here;
		ZXidStatus	status;

		CHECK_FOR_INTERRUPTS();
		if (n == MAX_CHAIN)
		{
			fault(check, "CHAIN-5", 0, "slot %d: the chain has more than %d records", s, MAX_CHAIN);
			return;
		}
		if (n++ == 0 && rec.xid != ZSLOT_XID(slot))
			fault(check, "CHAIN-1", 0, "slot %d belongs to transaction " UINT64_FORMAT
				  ", but its newest record to " UINT64_FORMAT, s, ZSLOT_XID(slot), rec.xid);
		if (rec.xid < check->view.oldest)
			return;
		if (check->map_bit && rec.type != ZUR_LOCK)
			fault(check, "VMAP-1", rec.offset,
				  "slot %d: undo %u.%u.%u of transaction " UINT64_FORMAT
				  " on a page that the visibility map marks all-visible", s, zuptr_generation(ptr),
				  zuptr_extent(ptr), zuptr_byte(ptr), rec.xid);
		status = zxid_status_at(rec.xid, check->view.oldest);
		if (status == ZXID_ABORTED && committed)
			fault(check, "CHAIN-4", 0,
				  "slot %d: undo %u.%u.%u of the aborted transaction " UINT64_FORMAT
				  " lies below that of a committed one", s, zuptr_generation(ptr),
				  zuptr_extent(ptr), zuptr_byte(ptr), rec.xid);
		if (rec.type == ZUR_LOCK && rec.open && status != ZXID_COMMITTED &&
			(open_lock || s > zpage_nslots((Page) check->page.data)))
			/* TAG-2 */
			fault(check, "CHAIN-12", 0,
				  "slot %d: undo %u.%u.%u of transaction " UINT64_FORMAT " is an open LOCK %s", s,
				  zuptr_generation(ptr), zuptr_extent(ptr), zuptr_byte(ptr), rec.xid,
				  open_lock ? "below another one" : "of a slot that no tag can name");
		open_lock |= (rec.type == ZUR_LOCK && rec.open);
		committed |= (status == ZXID_COMMITTED);
		if (!check_record(check, s, &rec, ptr, status))
			return;
	}
	if (step == ZCHAIN_SETTLED && n == 0 && !slot_has_changed(check, s))
		fault(check, "CHAIN-1", 0, "slot %d: undo %u.%u.%u of transaction " UINT64_FORMAT
			  " is gone, oldest is " UINT64_FORMAT, s, zuptr_generation(slot->ptr),
			  zuptr_extent(slot->ptr), zuptr_byte(slot->ptr), ZSLOT_XID(slot), check->view.oldest);
}

/* Checks the inline locks of slot s (CHAIN-9). */
static void
check_inline_locks(Check *check, int s)
{
	UndoPtr		locks = check->view.s[s].ptr;
	bool		sound = (s <= zpage_nslots((Page) check->page.data));

	Assert(check->view.s[s].xid_flags & ZSLOT_INLINE_LOCKS);
	for (int n = 0; locks != 0; n++, locks >>= ZINLINE_BITS)
		sound &= (n < ZINLINE_MAX_LOCKS && ZINLINE_OFFSET(locks) >= FirstOffsetNumber &&
				  ZINLINE_OFFSET(locks) <= ZHEAP_MAX_OFFSET && ZINLINE_MODE(locks) >= 0 &&
				  ZINLINE_MODE(locks) <= LockTupleExclusive &&
				  zinline_mode(locks >> ZINLINE_BITS, ZINLINE_OFFSET(locks)) < 0);
	if (!sound)
		fault(check, "CHAIN-9", 0, "slot %d: inline locks %X/%08X", s,
			  (uint32) (check->view.s[s].ptr >> 32), (uint32) check->view.s[s].ptr);
}

/*
 * Checks the LOCKS records of the common lock slot s (CHAIN-10, CHAIN-5). The
 * list ends where a record has been discarded, since all lockers that it names
 * have ended then (UNDO-7b).
 */
static void
check_lock_list(Check *check, int s)
{
	const ZPageSlot *slot = &check->view.s[s];
	ZXid		hold = ZSLOT_XID(slot);
	ZChain		chain;
	ZuRecord	rec;

	Assert(slot->xid_flags & ZSLOT_COMMON_LOCKS);
	if (zslot_age(slot, check->view.oldest) != ZAGE_LOCKS)
		return;
	zchain_begin_at(&chain, check->rel->rd_locator.relNumber, check->block, slot->ptr,
					InvalidZXid, check->buf);
	for (int n = 0; zchain_next(&chain, &rec) == ZCHAIN_RECORD; n++)
	{
		UndoPtr		ptr = chain.here;
		ZLockEntry	entry;

		CHECK_FOR_INTERRUPTS();
		if (n == MAX_CHAIN)
		{
			fault(check, "CHAIN-5", 0, "slot %d: the list of locks has more than %d records", s,
				  MAX_CHAIN);
			return;
		}
		if (rec.type != ZUR_LOCKS)
		{
			fault(check, "CHAIN-10", 0, "slot %d: undo %u.%u.%u in a list of locks has type %d", s,
				  zuptr_generation(ptr), zuptr_extent(ptr), zuptr_byte(ptr), (int) rec.type);
			return;
		}
		if (n == 0 ? rec.hold != hold : rec.hold > hold)
			fault(check, "CHAIN-10", 0, "slot %d: undo %u.%u.%u names lockers up to " UINT64_FORMAT
				  ", but the pointer to it only up to " UINT64_FORMAT, s, zuptr_generation(ptr),
				  zuptr_extent(ptr), zuptr_byte(ptr), rec.hold, hold);
		hold = rec.hold;
		for (int i = 0; i < rec.payload_len / (int) sizeof(ZLockEntry); i++)
		{
			memcpy(&entry, rec.payload + i * sizeof(ZLockEntry), sizeof(ZLockEntry));
			if (ZLOCK_XID(entry) > hold || ZLOCK_OFFSET(entry) < FirstOffsetNumber ||
				ZLOCK_OFFSET(entry) > ZHEAP_MAX_OFFSET)
				fault(check, "CHAIN-10", ZLOCK_OFFSET(entry),
					  "slot %d: a lock of transaction " UINT64_FORMAT
					  " in a list for lockers up to " UINT64_FORMAT, s, ZLOCK_XID(entry), hold);
		}
		if (rec.hold < check->view.oldest)
			return;
	}
}

/* ---- rows ---- */

/* Reads all columns of one row (ROW-1). */
static void
read_row(Check *check, OffsetNumber off, const char *row, int len, int natts)
{
	ZDeform		deform;
	Size		scratch_size = zdeform_scratch_size(check->desc, len);
	char	   *scratch = scratch_size == 0 ? NULL : palloc(scratch_size);
	int			bad;

	Assert(natts <= check->desc->natts);	/* ROW-1 */
	if (!zdeform_start(&deform, row, len, scratch))
		fault(check, "ROW-1", off, "the row header is not valid");
	else if ((bad = zdeform_columns(&deform, check->desc, natts, check->values,
									check->isnull)) != 0)
		fault(check, "ROW-1", off, "column %d reaches beyond the end of the row", bad);
	else if (!ztuple_count_ok(row + deform.off, len - deform.off))
		fault(check, "ROW-1", off, "the columns take %u of the row's %d bytes, and the others are "
			  "not a count of repetitions", deform.off, len);
	if (scratch != NULL)
		pfree(scratch);
}

/*
 * Checks one row of the page copy (ROW-1), unless its author has
 * aborted: the table's lock, under which the author may have added columns, is
 * released only after that, so it is known here. Its line pointer has passed
 * PAGE-2 and PAGE-3.
 */
static void
check_row(Check *check, OffsetNumber off)
{
	Page		page = (Page) check->page.data;
	ItemId		lp = PageGetItemId(page, off);
	int			len = zpage_row_length(page, lp);
	const char *row = zpage_row(page, lp);
	int			natts = ZH_NATTS(zheader_get(row));

	Assert(ItemIdIsNormal(lp));
	if (check->aborted[off])
		return;
	if (natts > check->desc->natts)
	{
		fault(check, "ROW-1", off, "the row has %d columns, the table %d", natts,
			  check->desc->natts);
		return;
	}
	read_row(check, off, row, len, natts);
}

/*
 * Checks that the row of the stub at off, whose author is not before `oldest`,
 * has been saved (CHAIN-13).
 */
static void
check_saved(Check *check, OffsetNumber off)
{
	char		row[BLCKSZ];
	int			len;

	if (zsaved_find(check->rel, check->block, zpage_trailer((Page) check->page.data)->saved, off,
					row, &len) == ZSAVED_MISSING)
		/* SAVED-1 */
		fault(check, "CHAIN-13", off, "the row of the stub was not saved");
}

/* Reads all chunks of the value, if it is one out of line. */
static void
read_value(Check *check, struct varlena *value)
{
	struct varatt_external pointer = {0};
	int32		size;

	if (!VARATT_IS_EXTERNAL_ONDISK(value))
		return;
	VARATT_EXTERNAL_GET_POINTER(pointer, value);
	if (pointer.va_toastrelid != check->rel->rd_rel->reltoastrelid)
		elog(ERROR, "a value is said to be in relation %u, which is not the table's TOAST table",
			 pointer.va_toastrelid);
	size = VARATT_EXTERNAL_GET_EXTSIZE(pointer);
	for (int32 at = 0; at < size; at += VALUE_SLICE)
	{
		CHECK_FOR_INTERRUPTS();
		table_relation_fetch_toast_slice(check->toast, pointer.va_valueid, size, at,
										 Min(VALUE_SLICE, size - at), check->slice);
	}
}

/*
 * Returns whether all transactions have committed that have changed rows which
 * name slot s, as far as the slot's owner shows (CHAIN-4).
 */
static bool
has_committed(const Check *check, int s)
{
	const ZPageSlot *slot = &check->view.s[s];

	if (s == 0 || s > check->view.n)
		return true;
	switch (zslot_age(slot, check->view.oldest))
	{
		case ZAGE_YOUNG:
			return zxid_status_at(ZSLOT_XID(slot), check->view.oldest) == ZXID_COMMITTED;
		case ZAGE_LOST:
			return false;
		default:
			return true;
	}
}

/*
 * Reads the values out of line of the rows of the page copy, from the row
 * check->next on (ROW-2).
 */
static void
check_values(Check *check)
{
	Page		page = (Page) check->page.data;

	for (; check->next <= PageGetMaxOffsetNumber(page); check->next++)
	{
		ItemId		lp = PageGetItemId(page, check->next);
		const char *row;

		if (!ItemIdIsNormal(lp))
			continue;
		row = zpage_row(page, lp);
		if (!ZH_LIVE(zheader_get(row)) || (zheader_get(row) & ZH_EXTERNAL) == 0 ||
			!has_committed(check, ZH_SLOT(zheader_get(row))))
			continue;
		(void) ztuple_deform(row, zpage_row_length(page, lp), check->desc, check->values,
							 check->isnull, RelationGetRelationName(check->rel), NULL);
		for (int i = 0; i < check->desc->natts; i++)
			if (!check->isnull[i] && TupleDescAttr(check->desc, i)->attlen == -1)
				read_value(check, (struct varlena *) DatumGetPointer(check->values[i]));
	}
}

/* ---- pages ---- */

/*
 * Copies the page, its slots and its bit in the visibility map under the share
 * lock. Returns false if the page is new.
 */
static bool
copy_page(Check *check)
{
	Buffer		buf = ReadBuffer(check->rel, check->block);
	Page		page = (Page) check->page.data;
	Buffer		map = InvalidBuffer;
	bool		is_new;

	Assert(CheckRelationLockedByMe(check->rel, AccessShareLock, true));
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	check->map_bit = (visibilitymap_get_status(check->rel, check->block, &map) &
					  VISIBILITYMAP_ALL_VISIBLE) != 0;
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	memcpy(page, BufferGetPage(buf), BLCKSZ);
	is_new = PageIsNew(page);
	check->view.n = 0;
	if (!is_new && zpage_is_valid(page))
		zslots_copy_raw(check->rel, check->block, BufferGetPage(buf), &check->view);
	UnlockReleaseBuffer(buf);
	return !is_new;
}

/*
 * Checks PAGE-7 for the slots on the overflow page; zpage_check knows only
 * those on the table page.
 */
static void
check_overflow_slots(Check *check)
{
	Assert(check->view.n <= ZPAGE_MAX_SLOTS);
	for (int s = zpage_nslots((Page) check->page.data) + 1; s <= check->view.n; s++)
	{
		const ZPageSlot *slot = &check->view.s[s];

		if ((ZSLOT_XID(slot) == InvalidZXid) != (slot->ptr == InvalidUndoPtr))
			fault(check, "PAGE-7", 0,
				  "slot %d has transaction " UINT64_FORMAT " and undo pointer %X/%08X",
				  s, ZSLOT_XID(slot), (uint32) (slot->ptr >> 32), (uint32) slot->ptr);
	}
}

/*
 * Checks VMAP-1: a page that the visibility map marks all-visible has the
 * flag in its header and no dead items. If the map does not mark it, the flag
 * says nothing.
 */
static void
check_all_visible(Check *check)
{
	Page		page = (Page) check->page.data;

	Assert(zpage_is_valid(page));
	if (!check->map_bit)
		return;
	if (!PageIsAllVisible(page))
		fault(check, "VMAP-1", 0, "the visibility map marks the page all-visible, but the page "
			  "header does not");
	for (OffsetNumber off = FirstOffsetNumber; off <= PageGetMaxOffsetNumber(page); off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsUsed(lp) && (!ItemIdIsNormal(lp) || !ZH_LIVE(zheader_get(zpage_row(page, lp)))))
			fault(check, "VMAP-1", off, "a dead item on a page that the visibility map marks "
				  "all-visible");
	}
}

/* Checks all invariants of one page. */
static void
check_page(Check *check)
{
	Page		page = (Page) check->page.data;
	int			nslots;

	Assert(check->faults.list == NIL);
	if (!copy_page(check))
		return;
	if (!zpage_is_valid(page))
	{
		fault(check, "PAGE-1", 0, "the page is neither new nor a zheap page: %s",
			  zpage_fault(page));
		return;
	}
	/* rows may name slots of an overflow page that has been detached */
	nslots = zpage_trailer(page)->overflow == ZPAGE_NO_OVERFLOW ? check->view.n : ZPAGE_MAX_SLOTS;
	if (zpage_check(page, nslots, report_page_fault, check) > 0)
		return;					/* the other checks rely on the layout of the
								 * page */
	check_overflow_slots(check);
	check_all_visible(check);
	memset(check->aborted, false, sizeof(check->aborted));
	memset(check->saved, false, sizeof(check->saved));
	for (int s = 1; s <= check->view.n; s++)
		if (check->view.s[s].xid_flags & ZSLOT_COMMON_LOCKS)
			check_lock_list(check, s);
		else if (check->view.s[s].xid_flags & ZSLOT_INLINE_LOCKS)
			check_inline_locks(check, s);
		else
			check_chain(check, s);
	for (OffsetNumber off = FirstOffsetNumber; off <= PageGetMaxOffsetNumber(page); off++)
		if (ItemIdIsNormal(PageGetItemId(page, off)))
			check_row(check, off);
		else if (check->saved[off])
			check_saved(check, off);
}

/* ---- the undo log itself ---- */

static void report_map_fault(void *arg, BlockNumber block, const char *fmt,...)
			pg_attribute_printf(3, 4);

/* Notes a fault that zu_check_map has found (LOG-2). */
static void
report_map_fault(void *arg, BlockNumber block, const char *fmt,...)
{
	Check	   *check = arg;
	va_list		args;

	check->block = block;
	va_start(args, fmt);
	zfaults_add(&check->faults, block, 0, "LOG-2", fmt, args);
	va_end(args);
}

/* Checks the extent map of the undo log (LOG-2). */
static void
check_map(Check *check)
{
	Assert(check->block == 0);
	zu_attach_database();
	zu_check_map(report_map_fault, check);
}

/*
 * Lists the undo logs of the database in check->logs, which outlives the
 * subtransaction that this function runs in.
 */
static void
list_logs(Check *check)
{
	MemoryContext old = MemoryContextSwitchTo(check->outer);

	int			n;
	ZuLogState *logs = zu_log_states(&n);

	/* an error above leaves the check without logs, not with some of them */
	check->logs = logs;
	check->nlogs = n;
	MemoryContextSwitchTo(old);
}

/* Checks the owner of the first overflow page that is left (LOG-3). */
static void
check_overflow_owner(Check *check)
{
	const char *relname;

	Assert(check->noverflow > 0);
	if (check->overflow->lost)
		fault(check, "UNDO-67", 0, "no page of transaction slots any more, though its extent "
			  "has only such pages: its contents are lost");
	else if (zheap_overflow_is_lost(check->overflow, &relname))
		/* OVERFLOW-4, UNDO-20 */
		fault(check, "LOG-3", 0, "overflow transaction slots of block %u of relation \"%s\", "
			  "which does not point to them: "
			  "a write of that block is lost", check->overflow->block, relname);
}

/*
 * Lists the overflow pages of the database in check->overflow, which outlives
 * the subtransaction that this function runs in.
 */
static void
list_overflow(Check *check)
{
	MemoryContext old = MemoryContextSwitchTo(check->outer);

	int			n;
	ZuOverflowPage *list = zu_overflow_list(&n);

	check->overflow = list;
	check->noverflow = n;
	MemoryContextSwitchTo(old);
}

/*
 * Reads every record of log check->block (LOG-1) and checks its offsets
 * (CHAIN-3).
 */
static void
check_log(Check *check)
{
	ZuScan	   *scan = zu_scan_begin(check->block);
	ZuRecord	rec;
	UndoPtr		ptr;

	while (zu_scan_next(scan, &rec, &ptr))
	{
		int			last = rec.offset + zrecord_range(&rec) - 1;

		CHECK_FOR_INTERRUPTS();
		if (!zrecord_is_saved(rec.type) &&
			(rec.offset < FirstOffsetNumber || last > ZHEAP_MAX_OFFSET))
			fault(check, "CHAIN-3", 0, "log %u: undo %u.%u.%u is of items %u to %d", check->block,
				  zuptr_generation(ptr), zuptr_extent(ptr), zuptr_byte(ptr), rec.offset, last);
	}
	zu_scan_end(scan);
}

/* ---- the function ---- */

/* Calls check->test, for the function that runs it in a subtransaction. */
static void
run_test(void *arg)
{
	Check	   *check = arg;

	check->test(check);
}

/*
 * Runs 'test' in a subtransaction. An error in it becomes a fault of this
 * invariant; only a cancellation and lack of memory are raised.
 */
static void
check_safely(Check *check, void (*test) (Check *), const char *invariant)
{
	char	   *error;

	check->test = test;
	error = zfaults_try(&check->faults, run_test, check);
	if (error != NULL)
		fault(check, invariant, 0, "%s", error);
}

/*
 * Checks the values out of line of a page that was found sound. An error that
 * is raised for one row is a fault of that row.
 */
static void
check_values_safely(Check *check)
{
	char	   *error;

	check->test = check_values;
	check->next = FirstOffsetNumber;
	while ((error = zfaults_try(&check->faults, run_test, check)) != NULL)
	{
		fault(check, "ROW-2", check->next, "%s", error);
		check->next++;
	}
}

/*
 * Checks zundo.undo_log: its map, then each log, then the overflow pages. If
 * the map is damaged, only the map's faults are reported; on a standby the
 * overflow pages are left out.
 */
static void
check_undo_log(FunctionCallInfo fcinfo, Check *check)
{
	bool		sound;

	Assert(check->nlogs == 0 && check->faults.list == NIL);
	check->block = 0;
	check->outer = CurrentMemoryContext;
	check_safely(check, check_map, "LOG-2");
	/* the other checks rely on the map */
	sound = check->faults.list == NIL;
	if (sound)
		check_safely(check, list_logs, "LOG-2");
	zfaults_put(fcinfo, &check->faults);
	for (int i = 0; i < check->nlogs; i++)
	{
		check->block = check->logs[i].logno;
		check_safely(check, check_log, "LOG-1");	/* UNDO-11, UNDO-16 */
		zfaults_put(fcinfo, &check->faults);
	}
	if (!sound || RecoveryInProgress())
		return;
	check->block = 0;
	check_safely(check, list_overflow, "LOG-3");
	zfaults_put(fcinfo, &check->faults);
	for (int i = 0; i < check->noverflow; i++, check->overflow++)
	{
		check->block = check->overflow->overflow;
		check_safely(check, check_overflow_owner, "LOG-3");
		zfaults_put(fcinfo, &check->faults);
	}
}

/*
 * zundo.check(regclass): returns one row per fault. For zundo.undo_log itself
 * "block" is the number of the log (LOG-1), or a block of its file (LOG-2,
 * LOG-3). Needs ownership of the relation, or the role pg_stat_scan_tables.
 */
Datum
zundo_check(PG_FUNCTION_ARGS)
{
	Oid			reloid = PG_GETARG_OID(0);
	Check	   *check = palloc0(sizeof(Check));
	char	   *name = get_rel_name(reloid);
	BlockNumber nblocks;

	if (!has_privs_of_role(GetUserId(), ROLE_PG_STAT_SCAN_TABLES) && name != NULL &&
		!zc_owns_relation(reloid, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
	InitMaterializedSRF(fcinfo, 0);
	zu_attach_unloaded();
	zfaults_begin(&check->faults, "zundo check");
	if (reloid == zu_relation_oid())
	{
		check_undo_log(fcinfo, check);
		return (Datum) 0;
	}
	zu_attach_database();
	check->rel = zmon_open_table(reloid);
	check->desc = RelationGetDescr(check->rel);
	check->values = palloc(Max(check->desc->natts, 1) * sizeof(Datum));
	check->isnull = palloc(Max(check->desc->natts, 1) * sizeof(bool));
	if (OidIsValid(check->rel->rd_rel->reltoastrelid))
	{
		check->toast = table_open(check->rel->rd_rel->reltoastrelid, AccessShareLock);
		check->slice = palloc(VALUE_SLICE + VARHDRSZ);
	}
	nblocks = zrel_nblocks(check->rel);
	for (check->block = 0; check->block < nblocks; check->block++)
	{
		CHECK_FOR_INTERRUPTS();
		check_safely(check, check_page, "E");
		if (check->toast != NULL && check->faults.list == NIL)
			check_values_safely(check);
		zfaults_put(fcinfo, &check->faults);
	}
	if (check->toast != NULL)
		table_close(check->toast, AccessShareLock);
	relation_close(check->rel, AccessShareLock);
	return (Datum) 0;
}
