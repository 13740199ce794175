/*
 * dml/zrowchange.c - acquiring a row that is to be updated or deleted:
 * comparing it with its replacement, examining it, and waiting for others.
 *
 * What an update needs of indexes follows from the two rows, and so does the
 * strength in which it excludes row locks. So the row is copied and compared
 * anew each time that the page is locked.
 */
#include "postgres.h"

#include "dml/zrowchange.h"
#include "guard/zctid.h"
#include "mvcc/zlevel.h"
#include "tuple/ztts.h"
#include "utils/rel.h"

/*
 * An update evaluates index expressions this often at most, if each time the
 * row or the index columns change meanwhile (COMPUTED-2).
 */
#define MAX_EVALUATIONS 5

void
zrowchange_begin(RowChange *u, ItemPointer tid, Replacement *replacement)
{
	memset(u, 0, offsetof(RowChange, state));
	Assert(!ztid_is_newer(tid));	/* GUARD-4 */
	u->tid = *tid;
	u->mode = LockTupleExclusive;
	u->queued = LockTupleExclusive;
	u->replacement = replacement;
}

void
zrowchange_end(RowChange *u)
{
	Assert(zc_buffer_unlocked(u->buf));
	ReleaseBuffer(u->buf);
	zrow_end_wait(u->writer.rel, &u->tid, u->queued, u->have_tuple_lock);
}

/*
 * Returns whether zcomputed_differ has been called for the row on the page. The
 * header is not compared: it holds no values.
 */
static bool
was_evaluated(const RowChange *u)
{
	const Replacement *new = u->replacement;

	return new->evaluated != NULL && new->evaluated_reading == new->columns->reading &&
		new->evaluated_len == u->oldlen - ZTUPLE_HEADER_SIZE &&
		memcmp(new->evaluated, u->oldrow + ZTUPLE_HEADER_SIZE, new->evaluated_len) == 0;
}

/*
 * Sets new_keys and new_content of the replacement, and clears in_place in two
 * cases. If the old or the new row has a key of a zbtree index, or a column of
 * its predicate, out of line, the row must move, since such a value counts for
 * every entry of its TID (ZBTREE-4). If the new row might be too long for an
 * index entry, it must move as well: the executor then inserts the entries at
 * once, and that raises the error. The rows are compared as they are stored,
 * since the toaster may move a key out of line whose value does not change.
 */
static void
compare_keys(RowChange *u)
{
	Replacement *new = u->replacement;
	const Bitmapset *keyed = new->columns->keyed;
	Relation	rel = u->writer.rel;
	ZUpdatedRow stored = {rel, &u->tid, u->oldrow, u->oldlen, new->row, new->bare_len};
	bool		new_keys;

	if (new->columns->entered == NULL || zcolumns_begin_alike(&stored, new->columns))
		return;
	new_keys = zcolumns_differ(&stored, keyed);
	new->new_content = new_keys || zcolumns_differ(&stored, new->columns->entered);
	if (!new->new_content)
		return;
	if (!zcolumns_fit_entry(rel, new->columns->entered, new->row, new->bare_len))
	{
		new->in_place = false;
		return;
	}
	if (!new_keys)
		return;
	if (zcolumns_some_external(rel, keyed, u->oldrow, u->oldlen) ||
		zcolumns_some_external(rel, keyed, new->row, new->bare_len))
		new->in_place = false;
	else
		new->new_keys = true;
}

/*
 * Sets whether the update can be made in place, as far as the indexes are
 * concerned, or whether that is undecided. blocking: a column that indexes
 * depend on differs.
 */
static void
compare_indexes(RowChange *u, const ZUpdatedRow *row, bool blocking)
{
	Replacement *new = u->replacement;

	if (zundo_move_updates)
		return;
	switch (blocking ? zcolumns_effect(row, new->columns) : ZINDEX_SAME)
	{
		case ZINDEX_SAME:
			new->in_place = true;
			break;
		case ZINDEX_CHANGED:
			break;
		case ZINDEX_COMPUTED:
			if (was_evaluated(u))
				new->in_place = new->computed_differ < 0;
			else
				new->undecided = (new->evaluations < MAX_EVALUATIONS);
			break;
	}
	if (new->in_place)
		compare_keys(u);
}

/*
 * Compares the replacement with the row, and sets the strength of the change,
 * whether it can be made in place, and whether a trigger's event may be queued.
 * Most updates change no blocking column, and then no column of a key either.
 */
static void
compare_replacement(RowChange *u)
{
	Replacement *new = u->replacement;
	const ZIndexColumns *columns = new->columns;
	ZUpdatedRow row = zrowchange_rows(u);
	bool		blocking = zcolumns_blocking_differ(&row, columns);

	Assert(blocking || !columns->key_blocks || !zcolumns_differ(&row, columns->key));
	if ((!blocking && columns->key_blocks) || !zcolumns_differ(&row, columns->key))
		u->mode = LockTupleNoKeyExclusive;
	compare_indexes(u, &row, blocking);
	new->event = zcolumns_event(columns, !new->in_place || u->mode == LockTupleExclusive,
								zcolumns_differ(&row, columns->foreign),
								zslots_may_be_ours(BufferGetPage(u->buf),
												   zheader_get(u->oldrow))) ||
		zcolumns_some_null(u->writer.rel, columns->foreign, new->values, new->values_len);
	if (new->in_place)
		new->summarizing = zcolumns_differ(&row, columns->summarized);
}

bool
zrowchange_look(RowChange *u)
{
	Page		page = BufferGetPage(u->buf);
	OffsetNumber off = zrowchange_offset(u);
	ItemId		lp;
	const char *row;

	Assert(zc_buffer_exclusive(u->buf));
	u->mode = LockTupleExclusive;
	if (u->replacement != NULL)
	{
		u->replacement->undecided = false;
		u->replacement->in_place = false;
		u->replacement->new_keys = false;
		u->replacement->new_content = false;
		u->replacement->summarizing = false;
		u->replacement->event = false;
	}

	/* for a damaged page or line pointer, zrow_examine raises the error */
	if (PageIsNew(page) || off > PageGetMaxOffsetNumber(page) || !zpage_item_ok(page, off))
		return false;
	lp = PageGetItemId(page, off);
	if (!ItemIdIsNormal(lp))
		return false;
	u->oldlen = zpage_row_length(page, lp);
	if (unlikely(u->oldlen == 0))
		zvis_corrupt_page(u->writer.rel, BufferGetBlockNumber(u->buf), page, off);
	row = zpage_row(page, lp);
	if (u->only_header && (zheader_get(row) & ZH_EXTERNAL) == 0)
		zheader_set(u->oldrow, zheader_get(row));
	else
		memcpy(u->oldrow, row, u->oldlen);
	if (u->replacement != NULL)
		compare_replacement(u);
	return true;
}

/*
 * Returns whether the version on the page is visible to the crosscheck snapshot
 * of a referential action.
 */
static bool
passes_crosscheck(const RowChange *u, Snapshot crosscheck)
{
	ZSlotView	slots;
	ZRow		row;
	ZAuthor		author;

	row = zvis_row_on(u->writer.rel, u->buf, zrowchange_offset(u), &slots);
	zslots_copy(row.rel, row.block, row.page, &slots);
	zvis_author(&row, crosscheck, &author);
	return author.visible;
}

/*
 * Sets the mode for a row that has moved and left nothing but a stub. The
 * caller follows the update and locks the new place in that mode, which must be
 * no stronger than it will need; so the version that the snapshot sees is
 * compared. On entry the page is not locked.
 */
static void
mode_beside_stub(RowChange *u, Snapshot snapshot)
{
	ZVersion	version;
	ZUpdatedRow row;
	Relation	rel = u->writer.rel;
	Replacement *new = u->replacement;

	if (new == NULL || !u->state.stub || !zsnapshot_is_mvcc(snapshot))
		return;
	zvis_fetch(rel, u->buf, zrowchange_offset(u), snapshot, &version, NULL);
	row = zrowchange_rows(u);
	row.old = version.row;
	row.oldlen = version.len;
	if (version.found && !zcolumns_differ(&row, new->columns->key))
		u->mode = LockTupleNoKeyExclusive;
}

/*
 * Returns TM_Updated, with *tmfd filled, for a row whose version the crosscheck
 * snapshot does not see.
 */
static TM_Result
fails_crosscheck(const RowChange *u, TM_FailureData *tmfd)
{
	tmfd->ctid = u->tid;
	tmfd->xmax = InvalidTransactionId;
	tmfd->cmax = InvalidCommandId;
	tmfd->traversed = false;
	return TM_Updated;
}

/*
 * zrowchange_acquire: See zrowchange.h. Each round begins anew (DML-1), with
 * reading the column sets of the indexes: after a wait both the row and the
 * indexes may be others.
 */
TM_Result
zrowchange_acquire(RowChange *u, Snapshot snapshot, Snapshot crosscheck, bool wait,
				   TM_FailureData *tmfd)
{
	Relation	rel = u->writer.rel;
	CommandId	found_by = zlevel_found_by(rel, &u->tid, u->writer.cid);	/* DML-15 */
	ZRowWish	wish = {rel, u->buf, &u->tid, found_by, snapshot};

	for (;;)
	{
		TM_Result	result;
		LockTupleMode mode;

		/* may read catalogs, so not under the page lock */
		if (u->replacement != NULL)
			u->replacement->columns = zindex_columns(rel);
		if (unlikely(u->writer.decoded))
			u->identity = zindex_columns(rel)->identity;
		LockBuffer(u->buf, BUFFER_LOCK_EXCLUSIVE);

		/*
		 * Examining may roll an aborted update back. The row below it may
		 * have another key, so that a stronger mode is needed.
		 */
		do
		{
			wish.sound = zrowchange_look(u);
			mode = u->must_move ? LockTupleExclusive : u->mode;
			wish.mode = mode;
			result = zrow_examine(&wish, &u->state, tmfd);
			if (u->state.rolled_back)
				(void) zrowchange_look(u);
		} while (result == TM_Ok && u->mode > mode);
		if (result == TM_Ok && crosscheck != InvalidSnapshot && !passes_crosscheck(u, crosscheck))
			result = fails_crosscheck(u, tmfd);
		if (result == TM_Ok)
		{
			if (unlikely(zctid_asking()))
				zrow_ask(&wish, &u->state);
			return result;
		}
		LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
		if (result != TM_BeingModified || !wait)
		{
			if (result == TM_Updated)
				mode_beside_stub(u, snapshot);
			return result;
		}
		if (!u->have_tuple_lock)
			u->queued = mode;
		zrow_wait(&wish, u->state.wait_for, LockWaitBlock,
				  u->replacement != NULL ? XLTW_Update : XLTW_Delete, u->state.own_hold,
				  &u->have_tuple_lock);
	}
}

bool
zrowchange_pick(RowChange *u)
{
	return zslot_pick(&u->writer, u->buf, ZH_SLOT(zheader_get(u->oldrow)), true, &u->pick);
}

void
zrowchange_reserve(RowChange *u)
{
	LockBuffer(u->buf, BUFFER_LOCK_UNLOCK);
	zwriter_reserve_overflow(&u->writer);
}

/*
 * zrowchange_note: See zrowchange.h. The search for the old row's author begins
 * below our record, if that is in the chain which the old row's header names;
 * else at that chain's head.
 */
void
zrowchange_note(const RowChange *u, UndoPtr ptr, bool in_place, bool event)
{
	int			s = ZH_SLOT(zheader_get(u->oldrow));
	BlockNumber block = zrowchange_block(u);
	ZChangedRow rows = {.change = ptr,.xid = u->writer.xid,.cid = u->writer.cid,.old = u->oldrow,
	.oldlen = u->oldlen};

	Assert(zc_buffer_exclusive(u->buf) && ptr != InvalidUndoPtr);
	if (in_place)
	{
		rows.new = u->replacement->row;
		rows.newlen = u->replacement->len;
	}
	if (s != 0)
	{
		ZPageSlot	slot = zslot_read(u->writer.rel, block, BufferGetPage(u->buf), s);

		rows.chain_xid = ZSLOT_XID(&slot);
		rows.chain = slot.ptr;
		if (s == u->pick.slotno)
			rows.chain = zown_below(ptr, u->pick.prev);
	}
	zlevel_note_change(u->writer.rel, &u->tid, &rows, event);
}
