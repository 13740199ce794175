/*
 * mvcc/zsaved.c - what has left a table page.
 *
 * A deletion or a move leaves the row's bytes where they are, and its undo
 * record has only the old header. If the bytes must go while a snapshot may
 * need them, the row is saved first, in a record of type ROWS, and becomes a
 * stub. ROWS and IMAGE records are in no chain, but in one list: the page's
 * trailer points to the newest one, and prev leads to the one before.
 *
 * Called by the other files of mvcc/, and where rows are saved. Reads undo as
 * zu_fetch does. Writes nothing but a conflict for standbys (SAVED-5).
 *
 *	SAVED-1	The row of a stub whose author is not before `oldest` is in the
 *		first ROWS record down the list that names its offset, or that record
 *		or one above it has been discarded. For each stub was made right after
 *		such a record (SAVED-3), and stays one until its author is before
 *		`oldest`, so no newer record names the offset. An image is never asked:
 *		one that has the row may have an older version of it.
 *	SAVED-2	A discarded record in the list means that no snapshot needs a row
 *		that is saved in it or below. Let D be the author of the stub, W the
 *		transaction that has saved the row, S a snapshot that does not see D.
 *		(a) When W saved, D had left the array of running transactions. So S is
 *			older than that, and does not see W, which ended later: W >=
 *			S.xmin, and as long as S is held, W >= `oldest`, and its records
 *			are kept (UNDO-7a).
 *		(b) A record above W's that has been discarded is of a transaction that
 *			every snapshot sees as ended: each was taken after that had saved,
 *			so after D had ended.
 *		(c) On a standby the same follows from the order of WAL: the conflict
 *			of W's DISCARD record (UNDO-19) ends the queries with S first.
 *		(d) The list of a page that becomes all-visible is given up: the page
 *			has no stub, and every snapshot sees its rows as they are (VMAP-1).
 *		Example: S has xmin 100. 101 deletes a row and ends; 105 saves it. As
 *			long as S is held, `oldest` is at most 100, so 105's record is kept.
 *	SAVED-5	A ROWS record that ends with ZUR_ROWS_GONE counts as discarded. WAL
 *		has not the rows, which are on the table page until a later record
 *		prunes it. Replay writes this byte, on the last undo page of the record
 *		(which it makes anew if there are several), if the page
 *		- is newer than the record, or missing. Then recovery is not consistent
 *		  before it has come to the page's LSN, so all later snapshots see the
 *		  deleters, whose commits are before the record. Standbys of this server
 *		  may have older ones, for which they have the rows: a process that
 *		  finds the byte ends these by a conflict with W (tell_standbys) before
 *		  it leaves out the row.
 *		- has lost a write. Snapshots that do not see a deleter get errors.
 *		Example: record and pruning are both before a crash, and the pruned page
 *		had been written: replay has no rows to put into the record.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "mvcc/zsaved.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * The record that was read last, uncompressed. A pointer to shared undo never
 * names another record of this page.
 */
typedef struct SavedRecord
{
	UndoPtr		ptr;			/* Invalid = none */
	UndoPtr		prev;
	Size		len;			/* of the rows, uncompressed; 0 = IMAGE */
	bool		gone;			/* it has not all rows (SAVED-5) */
	char	   *raw;			/* ZUR_MAX_LENGTH bytes */
} SavedRecord;

/*
 * What has been read of the list of one page: so that each record is read once
 * for all stubs of the page, and once more for each row that it has.
 */
static struct
{
	RelFileLocator locator;
	BlockNumber block;
	UndoPtr		list;			/* Invalid = none */
	UndoPtr		next;			/* the first record that has not been read */
	ZSavedPath	path;			/* from list to next */
	UndoPtr		where[ZHEAP_MAX_OFFSET + 1];	/* the first record with a row
												 * at this offset */
	uint16		place[ZHEAP_MAX_OFFSET + 1];	/* and where in it the row
												 * begins */
	SavedRecord last;
}			my;

/* Uncompresses rec into my.last. Returns false if it is malformed. */
static bool
keep_record(const ZuRecord *rec)
{
	SavedRecord *last = &my.last;
	const char *raw;

	last->prev = rec->prev;
	last->len = 0;
	last->gone = false;
	if (rec->type == ZUR_IMAGE)
		return true;
	if (rec->type != ZUR_ROWS)
		return false;
	raw = zur_raw_payload(rec, last->raw, ZUR_MAX_LENGTH, &last->len);
	if (raw == NULL || last->len == 0)
		return false;
	if (raw != last->raw)
		memcpy(last->raw, raw, last->len);
	last->len--;
	last->gone = last->raw[last->len] == ZUR_ROWS_GONE;
	return last->gone || last->raw[last->len] == ZUR_ROWS_END;
}

/*
 * Ends the queries of standbys that may need rows which xid has saved, and
 * which are not there any more (SAVED-5), unless this backend has done so.
 */
static void
tell_standbys(ZXid xid)
{
	static ZXid told = InvalidZXid;
	TransactionId next = zxid_to_xid(xid);

	if (xid <= told || RecoveryInProgress())
		return;
	TransactionIdAdvance(next);
	zu_log_conflict(next);
	told = xid;
}

/*
 * Reads the record at ptr into my.last. Returns false if it has been discarded,
 * or has not all rows (SAVED-5). Raises ERRCODE_DATA_CORRUPTED.
 */
static bool
read_saved(Relation rel, BlockNumber block, UndoPtr ptr)
{
	char		buf[ZUR_MAX_LENGTH];
	ZuRecord	rec;

	if (my.last.ptr == ptr)
		return true;
	my.last.ptr = InvalidUndoPtr;
	if (my.last.raw == NULL)
		my.last.raw = MemoryContextAlloc(TopMemoryContext, ZUR_MAX_LENGTH);
	if (zuptr_is_temp(ptr))
		zvis_corrupt_chain(rel, block, ptr);
	if (zu_fetch(ptr, rel->rd_locator.relNumber, block, &rec, buf) == ZU_DISCARDED)
		return false;
	if (!keep_record(&rec))
		zvis_corrupt_chain(rel, block, ptr);
	if (my.last.gone)
	{
		tell_standbys(rec.xid);
		return false;
	}
	my.last.ptr = ptr;
	return true;
}

/*
 * Returns the row that begins at *at in my.last, or its first row if *at is
 * NULL. Sets *off and *len, and moves *at to the next row. Returns NULL if
 * there is none, or if the rest is malformed; in the latter case *at is not
 * the end of the record.
 */
static const char *
next_row(const char **at, OffsetNumber *off, int *len)
{
	const char *p = *at == NULL ? my.last.raw : *at;
	const char *end = my.last.raw + my.last.len;
	uint16		head[2];		/* offset, length */

	StaticAssertStmt(sizeof(head) == ZUR_ROW_HEAD, "head of a saved row");
	*at = p;
	if (end - p < (int) sizeof(head))
		return NULL;
	memcpy(head, p, sizeof(head));
	p += sizeof(head);
	if (head[0] < FirstOffsetNumber || head[0] > ZHEAP_MAX_OFFSET ||
		head[1] < ZTUPLE_HEADER_SIZE || head[1] > Min(end - p, BLCKSZ))
		return NULL;
	*off = head[0];
	*len = head[1];
	*at = p + head[1];
	return p;
}

/*
 * Notes which rows my.last has, unless a newer record has them. Returns false
 * if it is malformed.
 */
static bool
note_rows(void)
{
	const char *at = NULL;
	const char *row;
	OffsetNumber off;
	int			len;

	while ((row = next_row(&at, &off, &len)) != NULL)
		if (my.where[off] == InvalidUndoPtr)
		{
			my.where[off] = my.last.ptr;
			my.place[off] = row - my.last.raw - ZUR_ROW_HEAD;
		}
	return at == my.last.raw + my.last.len;
}

/* Returns the row at off, which my.last has, and sets *len. */
static const char *
row_in_last(OffsetNumber off, int *len)
{
	const char *at = my.last.raw + my.place[off];
	OffsetNumber found;
	const char *row = next_row(&at, &found, len);

	return row != NULL && found == off ? row : NULL;
}

/*
 * zsaved_find: See zsaved.h. Reads on in the list until a record has a row at
 * off.
 */
ZSavedResult
zsaved_find(Relation rel, BlockNumber block, UndoPtr list, OffsetNumber off, char *row, int *len)
{
	const char *found;

	Assert(off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET);
	if (my.list != list || my.block != block || !RelFileLocatorEquals(my.locator, rel->rd_locator))
	{
		memset(my.where, 0, sizeof(my.where));
		my.last.ptr = InvalidUndoPtr;
		my.locator = rel->rd_locator;
		my.block = block;
		my.list = my.next = list;
		my.path.steps = 0;
	}
	while (my.where[off] == InvalidUndoPtr)
	{
		CHECK_FOR_INTERRUPTS();
		if (my.next == InvalidUndoPtr)
			return ZSAVED_MISSING;
		if (!read_saved(rel, block, my.next))	/* SAVED-2, SAVED-5 */
			return ZSAVED_DISCARDED;
		if (!note_rows() || zsaved_in_circle(&my.path, my.next))
			zvis_corrupt_chain(rel, block, my.next);
		my.next = my.last.prev;
	}
	if (!read_saved(rel, block, my.where[off]))
		return ZSAVED_DISCARDED;
	found = row_in_last(off, len);
	if (found == NULL)			/* it was read again, and differs */
		zvis_corrupt_chain(rel, block, my.where[off]);
	memcpy(row, found, *len);
	return ZSAVED_FOUND;
}

bool
zsaved_take(Relation rel, BlockNumber block, UndoPtr list, OffsetNumber off, char *row, int *len)
{
	ZSavedResult result = zsaved_find(rel, block, list, off, row, len);

	if (result == ZSAVED_MISSING)
		zvis_corrupt_chain(rel, block, list);	/* SAVED-1 */
	return result == ZSAVED_FOUND;
}
