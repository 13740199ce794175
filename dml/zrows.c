/*
 * dml/zrows.c - putting formed rows on pages of a table, many with one record.
 *
 * Called by zinsert.c and zchunk.c. Takes no memory of zdml_scratch: another
 * change of rows may be on its way. Crash points: "insert-logged", as in
 * zinsert.c.
 *
 *	FROZEN-1	Rows of COPY FREEZE and REFRESH MATERIALIZED VIEW
 *		(TABLE_INSERT_FROZEN) are visible to all, also to older snapshots, as
 *		on heap: their headers name no slot. No reader and no rollback needs
 *		undo of them: such rows are put only into a file that the current
 *		subtransaction has made (zrows_frozen), which other transactions
 *		cannot open before it has committed and which is dropped if it is
 *		rolled back.
 *		(a) Only the first row that a command puts on a page, or the rows of a
 *			MULTI_INSERT, have an undo record, since it comes with the page; it
 *			gives the page a slot of our transaction, and its head tells
 *			zrange_insert that the command may put another row there.
 *		(b) In WAL a flag of the INSERT record, slot 0 in the record of a row
 *			without undo, or the header in a MULTI_INSERT's rows, says so.
 *		(c) What our transaction does with them later has undo records as
 *			usual; an AFTER trigger of the insertion finds the row by ANY-4.
 *			The insertion does not set the bits of the visibility map; VACUUM
 *			does.
 *		Example: COPY FREEZE of 200 rows into two pages writes two undo records.
 */
#include "postgres.h"

#include "access/xact.h"
#include "change/zlogical.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/rel.h"

/*
 * zrows_frozen: See zdml_internal.h. The server asks for that only in a file
 * that the current subtransaction has made, and that is dropped if it aborts.
 * An extension may ask for it in another file, where other transactions would
 * see the rows at once, and even after a rollback; there the option is
 * ignored.
 */
bool
zrows_frozen(Relation rel, ZcOptions options)
{
	return unlikely(options & TABLE_INSERT_FROZEN) &&
		(rel->rd_createSubid == GetCurrentSubTransactionId() ||
		 rel->rd_newRelfilelocatorSubid == GetCurrentSubTransactionId());
}

/*
 * Returns how many of the rows, counted from 'from' on, fit on the page next to
 * each other, at least one. keep_free: bytes that must stay free.
 */
static int
rows_that_fit(const ZNewPlace *place, const ZNewRows *rows, int from, Size keep_free)
{
	Page		page = BufferGetPage(place->buf);
	Size		special = sizeof(ZPageTrailer) + ZPAGE_INITIAL_SLOTS * sizeof(ZPageSlot);
	Size		empty = BLCKSZ - SizeOfPageHeaderData - special;
	Size		hole = place->init ? empty : zpage_hole(page);
	int			count = 0;

	Assert(from < rows->n && zc_buffer_exclusive(place->buf));
	if (place->pick.grow_to)
		hole -= sizeof(ZPageSlot);
	hole -= Min(hole, keep_free);

	/* several rows need consecutive line pointers: those past the last one */
	if (!place->init && place->off <= PageGetMaxOffsetNumber(page))
		return 1;
	while (from + count < rows->n && place->off + count <= ZHEAP_MAX_OFFSET &&
		   hole >= rows->len[from + count] + sizeof(ItemIdData))
	{
		hole -= rows->len[from + count] + sizeof(ItemIdData);
		count++;
	}
	return Max(count, 1);
}

/*
 * Copies count rows, each after its length, to data. Returns the number of
 * bytes.
 */
static uint32
join_rows(const ZNewRows *rows, int from, int count, char *data)
{
	char	   *p = data;

	for (int i = from; i < from + count; i++)
	{
		uint16		len = rows->len[i];

		memcpy(p, &len, sizeof(len));
		memcpy(p + sizeof(len), rows->row[i], len);
		p += sizeof(len) + len;
	}
	return p - data;
}

/*
 * Inserts as many of the rows, counted from 'from' on, as one page takes.
 * Returns their number and sets their tids.
 */
static int
insert_page_of_rows(const ZWriter *writer, const ZNewRows *rows, int from, ZcOptions options,
					BulkInsertState bistate, const ZRowsKind *kind)
{
	char		data[2 * BLCKSZ];
	ZNewPlace	place;
	ZChange		change;
	ZuRecord   *rec = &change.rec[0];
	BlockNumber block;
	int			count;
	Size		keep_free = RelationGetTargetPageFreeSpace(writer->rel, HEAP_DEFAULT_FILLFACTOR);

	Assert(from < rows->n);
	zwriter_reserve(writer);
	zspace_insert_page(writer, rows->len[from], options, bistate, &place);
	if (!kind->rewrites)
		CheckForSerializableConflictIn(writer->rel, NULL, InvalidBlockNumber);	/* VIS-7 */
	block = BufferGetBlockNumber(place.buf);
	count = rows_that_fit(&place, rows, from, keep_free);
	zwriter_change(writer, &change, ZWAL_MULTI_INSERT, 1);
	zwriter_record(writer, rec, ZUR_INSERT, block, place.off, place.pick.prev);
	rec->nrows = count;
	if (kind->token != 0)
	{
		rec->xflags |= ZUX_SPECULATIVE;
		rec->token = kind->token;
	}
	if (TransactionIdIsValid(kind->as_of))
	{
		rec->as_of = kind->as_of;
		rec->cid = FirstCommandId;
	}
	for (int i = from; i < from + count; i++)
	{
		ZHeader		h = zheader_get(rows->row[i]);

		zheader_set(rows->row[i], ZH_WITH_SLOT(h, kind->frozen ? 0 : place.pick.slotno) |
					(kind->token != 0 ? ZH_SPECULATIVE : 0));
		ItemPointerSet(&rows->tid[i], block, place.off + i - from);
	}
	change.row = data;
	change.row_length = join_rows(rows, from, count, data);
	if (unlikely(writer->decoded))
		change.logical = zlogical_part_of_new(writer->rel, from + count == rows->n,
											  &change.logical_length);
	zslot_use(writer, &change, 0, place.buf, &place.pick);
	change.page[0].init = place.init;
	zvismap_clear_in(writer->rel, &change);
	zchange_do(&change, "insert-logged");
	zslot_note(&change, 0, &place.pick);
	UnlockReleaseBuffer(place.buf);
	zrollback_note_page(writer->rel, block);
	return count;
}

/* zrows_insert: See zdml_internal.h. Each page takes as many rows as fit. */
void
zrows_insert(const ZWriter *writer, const ZNewRows *rows, ZcOptions options,
			 BulkInsertState bistate, const ZRowsKind *kind)
{
	for (int done = 0; done < rows->n;)
	{
		CHECK_FOR_INTERRUPTS();
		done += insert_page_of_rows(writer, rows, done, options, bistate, kind);
	}
}
