/*
 * dml/zrange.c - new and deleted rows that need no undo record of their own.
 *
 * A command that inserts rows one by one gives its first row an INSERT record
 * of that row alone. Then it writes one open INSERT record for each page, with
 * the first row that it puts there; that record covers the following ones as
 * well. So does a command that deletes rows, with DELETE records. New rows
 * that are visible to all at once (FROZEN-1) have a record for the first row
 * of each page, and the others need none. Owns what this backend knows of
 * these records. Called by zinsert.c and zrowwrite.c, and by zspace.c for the
 * slot.
 *
 * Locks the table page alone. Crash point: "covered-logged".
 *
 *	RANGE-1	An INSERT record may be *open*: it also covers rows that its
 *		command puts on the page later. Its range consists of the line pointer
 *		of the row that it came with and of those after it that are unused when
 *		it is made, or have rows that are visible to all (zslots_row_settled)
 *		and name other slots. The record is the author of each version in its
 *		range whose header names the slot of its chain and that has no newer
 *		record there (VIS-2 as it is). Undoing it kills these rows, and no
 *		others: all records above it have been undone before (ROLLBACK-1). It
 *		is not taken for the author of any other version:
 *		(a) A version that is older than the record, names its slot and is
 *			still looked for does not exist in the range. At an unused line
 *			pointer there is none: a line pointer becomes unused only when no
 *			snapshot needs what was there (DML-9, prune_action). Of a row that
 *			is visible to all no older version is looked for, and the row
 *			itself names another slot.
 *		(b) A row that another transaction puts into the range names that
 *			transaction's slot. If its header names the record's slot later,
 *			the record of that later change lies above in the chain and is
 *			found first.
 *		(c) A row that the same transaction puts there with a record of its own
 *			(by another command or subtransaction, COPY, a move, or a
 *			speculative insertion) has that record above in the chain, too.
 *		(d) Line pointers of the range may become unused again, by a rollback
 *			and pruning, and be used by any transaction. Then one of the three
 *			cases above applies.
 *		Example: row 3, which every snapshot sees, is on the page. A record of
 *			an insertion at 2 has the range 2 to 291; the next row takes 4.
 *	RANGE-2	A row that is inserted or deleted needs no record, and its page no
 *		change but the row, if the head of its slot is an open record of that
 *		type which the same (sub)transaction has made under the same command
 *		id, and the row's line pointer lies in its range. Then the record says
 *		of the row what a record of its own would say: xid, command id, and
 *		that there is no older version, or where the deleted row goes and what
 *		its header was (RANGE-3). Nothing lies above it in the chain, so the
 *		order of command ids (VIS-3) is that of the records.
 *		(a) Any other record that is pushed on the chain in between ends this:
 *			a lock, another command's change, a change by a subtransaction.
 *			When that is undone the record is the head again, and covers
 *			further rows.
 *		(b) Speculative rows (their record has the token), and rows in slots of
 *			an overflow page have records of their own.
 *		(c) A row that is visible to all (FROZEN-1) needs no record, whether in
 *			the range or not.
 *		(d) In WAL such a row has a record without undo page; the open record
 *			was logged before it, so replay finds page and chain as they were.
 *		Example: INSERT of rows 1 to 9 pushes a record with row 1 and an open
 *			one with row 2, which covers 3 to 9. If a trigger locks row 4 when 5
 *			has been inserted, row 6 comes with a record of its own.
 *	RANGE-3	A DELETE record may be open: its range consists of the line pointer
 *		of the row that it came with and of those after it, as long as none is
 *		deleted under the slot of its chain when it is made, or has a live row
 *		whose header does not fit (c). A speculative row's never does. The
 *		record is the author of each version in its range that is deleted under
 *		the slot and has no newer record there, and of no other: rows of the
 *		range may be live and name the slot. Undoing it gives all rows of the
 *		range that are deleted under the slot the record's header; records
 *		above it have been undone before. For
 *		(a) a deleted version is the newest of its row: nobody changes it, and
 *			its line pointer is given to another row only when no snapshot
 *			needs what was there (DML-9). So a row that is deleted under the
 *			slot has been covered by the record, or it has a record of its own
 *			above, by whichever owner of the slot;
 *		(b) only a speculative row that is given up becomes a deleted one
 *			without a further record (zapply_speculative in change/);
 *		(c) the rows share what the old header says but for shape and locks,
 *			which a deletion leaves in the row's present header. A row with
 *			another old header has a record of its own.
 *		Example: 3 has been deleted by another command of the slot's owner.
 *
 *			DELETE FROM t		slot 2 --> DELETE rows 4 to 9, open
 *								  --> DELETE row 2 --> DELETE row 1 --> ...
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "change/zlogical.h"
#include "dml/zdml_internal.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/rel.h"

/*
 * The open record of one type that a command has made last for a table. It is
 * known by its pointer, which no other record will ever have; so nothing has
 * to be forgotten when a (sub)transaction ends or a file is exchanged.
 */
typedef struct Range
{
	UndoPtr		ptr;			/* Invalid: the command has inserted or
								 * deleted, but there is no open record */
	ZXid		xid;
	CommandId	cid;
	Oid			reloid;			/* the file's number alone does not do: files
								 * of other tablespaces, or of temporary
								 * tables, may have the same */
	RelFileNumber relnumber;
	BlockNumber block;
	Buffer		buf;			/* where the block was */
	int			slotno;
	bool		frozen;			/* for rows that are visible to all
								 * (FROZEN-1): the record is that of the
								 * page's first one, and covers no other */
	OffsetNumber next;			/* for the next row, if it is free; DELETE:
								 * the first of the range */
	OffsetNumber last;			/* of the record's range; frozen: of a page */
	uint16		xflags;			/* DELETE: the record's */
	ZHeader		old;			/* DELETE: the header in its payload */
} Range;

/* A place for each of the tables that hash to it. */
#define RANGES 32

static struct
{
	Range		inserted[RANGES];
	Range		deleted[RANGES];
}			ranges;

/*
 * Return the table's place for insertions or deletions, which may hold the
 * range of another table.
 */
static inline Range *
find_range(Relation rel)
{
	return &ranges.inserted[RelationGetRelid(rel) % RANGES];
}

/* A table and its TOAST table, which change in turns, have two places. */
static inline Range *
find_deletions(Relation rel)
{
	return &ranges.deleted[RelationGetRelid(rel) % (RANGES / 2) +
						   (rel->rd_rel->relkind == RELKIND_TOASTVALUE ? RANGES / 2 : 0)];
}

/* Returns whether the range is of this command of transaction xid. */
static inline bool
is_of_command(const Range *range, Relation rel, ZXid xid, CommandId cid)
{
	return range->xid == xid && range->cid == cid && range->reloid == RelationGetRelid(rel) &&
		range->relnumber == rel->rd_locator.relNumber;
}

/*
 * Returns the buffer of the range's page, pinned. It is mostly still where it
 * was; a bulk insertion has a pin of its own on it.
 */
static Buffer
read_page(const Range *range, Relation rel, BulkInsertState bistate)
{
	if (bistate != NULL && bistate->current_buf == range->buf &&
		BufferGetBlockNumber(range->buf) == range->block)
	{
		IncrBufferRefCount(range->buf);
		return range->buf;
	}
	if (ReadRecentBuffer(rel->rd_locator, MAIN_FORKNUM, range->block, range->buf))
		return range->buf;
	return ReadBuffer(rel, range->block);
}

/*
 * Returns the offset at which the locked page takes the next row of the range,
 * or InvalidOffsetNumber if the record does not cover another row (RANGE-2).
 * Rows that need no record are put on a page only as long as nothing else has
 * happened to its slot, too.
 */
static OffsetNumber
next_offset(const Range *range, Page page)
{
	OffsetNumber max;
	OffsetNumber off = range->next;
	const ZPageSlot *slot;

	if (unlikely(!zpage_is_valid(page)) || range->slotno > zpage_nslots(page))
		return InvalidOffsetNumber;
	slot = zpage_slot(page, range->slotno);
	if (slot->ptr != range->ptr || slot->xid_flags != range->xid)
		return InvalidOffsetNumber;
	max = PageGetMaxOffsetNumber(page);
	while (off <= max && ItemIdIsUsed(PageGetItemId(page, off)))
		off++;
	if (off > max)
	{
		/* other transactions may have taken line pointers at the end away */
		if (off > max + 1 || PageHasFreeLinePointers(page))
			return InvalidOffsetNumber;
	}
	return off <= range->last ? off : InvalidOffsetNumber;
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether the record is what RANGE-2 wants for a row at off, to be
 * inserted or deleted.
 */
static bool
record_covers(const Range *range, ZuRecordType type, OffsetNumber off)
{
	char	   *buf = palloc(ZUR_MAX_LENGTH);
	char		old[ZHEADER_COMPACT_MAX];
	int			len = zheader_compact_put(old, range->old, range->old) - old;
	ZuRecord	rec;
	bool		covers;

	covers = zu_fetch(range->ptr, range->relnumber, range->block, &rec, buf) != ZU_DISCARDED &&
		rec.type == type && rec.open && zrecord_concerns(&rec, off) &&
		rec.xid == range->xid && rec.cid == range->cid && !TransactionIdIsValid(rec.as_of) &&
		(type == ZUR_INSERT ||
		 (rec.xflags == range->xflags && rec.payload_len == len &&
		  memcmp(rec.payload, old, len) == 0));
	pfree(buf);
	return covers;
}
#endif

/*
 * zrange_insert: See zdml_internal.h. The command's first row has done what
 * comes before every change (zwriter_begin_change), and the page has been
 * noted for an eager rollback with the record. Changes of an aborted
 * subtransaction that are still on the page lie above the record, which is not
 * the head then. Looks for predicate locks with the page locked (VIS-7).
 */
bool
zrange_insert(Relation rel, const ZRangeRow *row, CommandId cid, BulkInsertState bistate,
			  ItemPointer tid)
{
	Range	   *range = find_range(rel);
	ZCoveredRow new;
	OffsetNumber off;
	Buffer		buf;
	Page		page;

	if (range->ptr == InvalidUndoPtr || range->frozen != row->frozen ||
		!is_of_command(range, rel, zxid_from_full(GetCurrentFullTransactionIdIfAny()), cid))
		return false;
	memset(&new, 0, sizeof(new));
	new.row = row->row;
	new.length = row->len;
	new.logged = RelationNeedsWAL(rel);
	if (unlikely(zwriter_is_decoded(rel)) && !row->no_logical)
		new.logical = zlogical_part_of_new(rel, true, &new.logical_length);
	ZUNDO_FAULT("insert-page");
	buf = read_page(range, rel, bistate);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	page = BufferGetPage(buf);
	off = next_offset(range, page);
	if (off == InvalidOffsetNumber || PageIsAllVisible(page) ||
		!zpage_has_space(page, off, row->len + row->keep_free))
	{
		UnlockReleaseBuffer(buf);
		return false;
	}
	CheckForSerializableConflictIn(rel, NULL, InvalidBlockNumber);
	Assert(row->frozen || record_covers(range, ZUR_INSERT, off));	/* RANGE-2 */
	new.off = off;
	new.header = ZH_WITH_SLOT(zheader_of_new(zheader_get(row->row)),
							  row->frozen ? 0 : range->slotno);
	zchange_insert_covered(buf, &new, "covered-logged");
	UnlockReleaseBuffer(buf);
	ItemPointerSet(tid, range->block, off);
	range->buf = buf;
	range->next = off + 1;
	return true;
}

/*
 * Returns whether an open record in slotno's chain may have this used line
 * pointer in its range (RANGE-1): what is there is not looked for in that
 * chain, and has no older version that anybody looks for.
 */
static bool
may_be_within(Page page, ItemId lp, int slotno, ZXid oldest)
{
	ZHeader		header;

	Assert(ItemIdIsUsed(lp) && slotno >= 1);
	if (ItemIdIsDead(lp))
		return true;
	if (!ItemIdIsNormal(lp) || !zpage_row_inside(page, lp))
		return false;
	header = zheader_get(zpage_row(page, lp));
	return ZH_SLOT(header) != slotno && zslots_row_settled(page, header, oldest);
}

/* Returns the last offset of the range of an open record from off on. */
static OffsetNumber
last_of_range(Page page, OffsetNumber off, int slotno)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	ZXid		oldest = zslots_oldest(page);

	for (; off < max; off++)
	{
		ItemId		next = PageGetItemId(page, off + 1);

		if (ItemIdIsUsed(next) && !may_be_within(page, next, slotno, oldest))
			return off;
	}
	return ZHEAP_MAX_OFFSET;
}

/*
 * zrange_avoid: See zdml_internal.h. Returns the slot of the first row after
 * off. The new rows take unused line pointers between the rows of the page,
 * and most of these name one slot, that of the command that has filled the
 * page.
 */
int
zrange_avoid(const ZWriter *writer, Page page, OffsetNumber off)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	if (off >= max ||
		!is_of_command(find_range(writer->rel), writer->rel, writer->xid, writer->cid))
		return 0;
	while (++off <= max)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsNormal(lp) && zpage_row_inside(page, lp))
			return ZH_SLOT(zheader_get(zpage_row(page, lp)));
	}
	return 0;
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether no row after the first one of the new open record's range
 * names the record's slot (RANGE-1): the record would be taken for its author.
 */
static bool
range_is_free(Page page, const ZuRecord *rec, int slotno)
{
	int			end = Min(rec->offset + rec->nrows - 1, (int) PageGetMaxOffsetNumber(page));

	for (int off = rec->offset + 1; off <= end; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsNormal(lp) && ZH_SLOT(zheader_get(zpage_row(page, lp))) == slotno)
			return false;
	}
	return true;
}
#endif

/*
 * zrange_open: See zdml_internal.h. The first row that a command inserts gets
 * a record of its own, since the command may insert no other. A record in a
 * slot of an overflow page is not open, since zchange_insert_covered changes
 * no overflow page (RANGE-2).
 */
void
zrange_open(const ZWriter *writer, ZChange *change, const ZNewPlace *place)
{
	ZuRecord   *rec = &change->rec[0];

	Assert(zc_buffer_exclusive(place->buf) && rec->type == ZUR_INSERT);
	if (change->frozen || place->pick.overflow != 0 ||
		!is_of_command(find_range(writer->rel), writer->rel, writer->xid, writer->cid))
		return;
	rec->nrows = place->init ? ZHEAP_MAX_OFFSET :
		last_of_range(BufferGetPage(place->buf), place->off, place->pick.slotno) - place->off + 1;
	rec->open = true;
	/* RANGE-1 */
	Assert(place->init ||
		   range_is_free(BufferGetPage(place->buf), rec, place->pick.slotno));
}

/*
 * Sets in *range which record the change has pushed, if it can cover further
 * rows.
 */
static void
note_record(Range *range, const ZWriter *writer, const ZChange *change, bool covers)
{
	const ZuRecord *rec = &change->rec[0];

	range->ptr = covers ? change->op.ptr[0] : InvalidUndoPtr;
	range->xid = writer->xid;
	range->cid = writer->cid;
	range->reloid = rec->reloid;
	range->relnumber = rec->relnumber;
	range->block = rec->block;
}

void
zrange_note(const ZWriter *writer, const ZChange *change, const ZNewPlace *place)
{
	Range	   *range = find_range(writer->rel);
	const ZuRecord *rec = &change->rec[0];

	Assert(rec->nrows >= 1 && rec->offset + rec->nrows - 1 <= ZHEAP_MAX_OFFSET);
	note_record(range, writer, change, rec->open || change->frozen);
	range->buf = place->buf;
	range->slotno = place->pick.slotno;
	range->frozen = change->frozen;
	range->next = rec->offset + 1;
	range->last = change->frozen ? ZHEAP_MAX_OFFSET : rec->offset + rec->nrows - 1;
}

/* ---- deletions ---- */

/*
 * Returns the last offset of the range that a record of the row with the header
 * old at off has, if open (RANGE-3). Looks at all rows behind it.
 */
static OffsetNumber
last_to_delete(Page page, OffsetNumber off, ZHeader old, int slotno)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (; off < max; off++)
	{
		ItemId		next = PageGetItemId(page, off + 1);

		if (ItemIdIsNormal(next))
		{
			ZHeader		header;

			if (!zpage_row_inside(page, next))
				return off;
			header = zheader_get(zpage_row(page, next));
			if (ZH_LIVE(header))
			{
				if (!zheader_same_compact(header, old))
					return off;
				continue;
			}
		}
		if (zpage_deleted_under(page, off + 1, slotno))
			return off;
	}
	return max;
}

bool
zrange_covers_delete(const ZWriter *writer, const ZSlotPick *pick, OffsetNumber off, ZHeader old,
					 bool elsewhere)
{
	const Range *range = find_deletions(writer->rel);

	if (range->ptr == InvalidUndoPtr || pick->prev != range->ptr ||
		off < range->next || off > range->last ||
		((range->xflags & ZUX_OTHER_PART) != 0) != elsewhere ||
		!zheader_same_compact(old, range->old) ||
		!is_of_command(range, writer->rel, writer->xid, writer->cid))
		return false;
	Assert(record_covers(range, ZUR_DELETE, off));	/* RANGE-2 */
	return true;
}

/*
 * zrange_open_delete: See zdml_internal.h. As for insertions, the command's
 * first row gets a record of its own, and slots of an overflow page have none
 * that are open. Nor has the first row of another page, unless it is also the
 * first one there: a command that deletes rows by keys may delete no other of
 * the page. A short payload is the old header but for its shape, so rows with
 * the same one may share a record. (A row without columns has a long one.)
 */
void
zrange_open_delete(const ZWriter *writer, ZChange *change, Buffer buf, const ZSlotPick *pick,
				   ZHeader old)
{
	const Range *range = find_deletions(writer->rel);
	ZuRecord   *rec = &change->rec[0];
	Page		page = BufferGetPage(buf);

	Assert(zc_buffer_exclusive(buf) && rec->type == ZUR_DELETE && rec->nrows == 1);
	if (!change->compact || pick->overflow != 0 || !zheader_same_compact(old, old) ||
		!is_of_command(range, writer->rel, writer->xid, writer->cid))
		return;
	if (rec->block != range->block && rec->offset != FirstOffsetNumber)
		return;
	rec->nrows = last_to_delete(page, rec->offset, old, pick->slotno) - rec->offset + 1;
	rec->open = rec->nrows > 1;
}

void
zrange_note_delete(const ZWriter *writer, const ZChange *change, ZHeader old)
{
	Range	   *range = find_deletions(writer->rel);
	const ZuRecord *rec = &change->rec[0];

	note_record(range, writer, change, rec->open);
	range->next = rec->offset;
	range->last = rec->offset + rec->nrows - 1;
	range->xflags = rec->xflags;
	range->old = old;
}
