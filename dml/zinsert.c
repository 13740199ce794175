/*
 * dml/zinsert.c - inserting one row and many rows.
 *
 * Crash points: "insert-logged". Before the WAL record nothing has happened
 * except that, at most, an empty page was added at the relation's end; after
 * the record, redo builds page and undo.
 *
 *	FROZEN-1	Rows of COPY FREEZE and REFRESH MATERIALIZED VIEW
 *		(TABLE_INSERT_FROZEN) are visible to all, also to older snapshots, as
 *		on heap: their headers name no slot. No reader and no rollback needs
 *		undo of them: such rows are put only into a file that the current
 *		subtransaction has made (inserts_frozen), which other transactions
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
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "change/zlogical.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "tuple/ztts.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * Returns whether rows that are inserted with these options must be visible to
 * all (FROZEN-1). The server asks for that only in a file that the current
 * subtransaction has made, and that is dropped if it aborts. An extension may
 * ask for it in another file, where other transactions would see the rows at
 * once, and even after a rollback; there the option is ignored.
 */
static bool
inserts_frozen(Relation rel, ZcOptions options)
{
	return unlikely(options & TABLE_INSERT_FROZEN) &&
		(rel->rd_createSubid == GetCurrentSubTransactionId() ||
		 rel->rd_newRelfilelocatorSubid == GetCurrentSubTransactionId());
}

/*
 * Returns the row of the executor's slot, toasted if need be; valid until the
 * slot changes or the memory context is reset. A slot that holds a row of a
 * table may pass on its count, which means nothing in a new row: no version
 * comes before it.
 */
static const char *
form_new_row(Relation rel, TupleTableSlot *slot, ZcOptions options, uint32 *len)
{
	const char *row = ztts_form_row(slot, RelationGetDescr(rel), len);
	bool		differs = ztts_differs(slot, row);

	if (ztoast_needed(rel, zheader_get(row), *len, 0))
	{
		row = ztoast_row(rel, row, *len, NULL, NULL, 0, options, len);
		differs = TTS_IS_ZHEAP(slot);
	}
	if (unlikely(*len > ztuple_max_size()))
		ztuple_check_size(ztts_length(slot, row, *len));
	if (unlikely(differs))
		ztts_stored(slot, row, *len);
	Assert(ztts_shows(slot, row, *len));	/* TOKEN-2 */
	return row;
}

/* Copies a row that was formed to dst, and gives it the header of a new row. */
static void
copy_formed_row(char *dst, const char *row, uint32 len)
{
	Assert(len >= ZTUPLE_HEADER_SIZE && len <= BLCKSZ);
	memcpy(dst, row, len);
	zheader_set(dst, zheader_of_new(zheader_get(row)));
}

/*
 * Inserts the row that was formed, with a record of its own, and returns its
 * place in *tid. The row is copied because its header gets the slot number
 * when a page and a slot have been found. No buffer lock may be held. Raises
 * ERRCODE_DATA_CORRUPTED, and errors of lacking space.
 */
static void
insert_row(Relation rel, const char *formed, uint32 len, CommandId cid, ZcOptions options,
		   BulkInsertState bistate, ItemPointer tid)
{
	char		row[BLCKSZ];
	ZWriter		writer;
	ZNewPlace	place;
	ZChange		change;
	BlockNumber block;

	copy_formed_row(row, formed, len);
	zwriter_begin_change(&writer, rel, cid, (options & TABLE_INSERT_NO_LOGICAL) != 0);
	zspace_insert_page(&writer, len, options, bistate, &place);
	CheckForSerializableConflictIn(rel, NULL, InvalidBlockNumber);	/* VIS-7 */
	block = BufferGetBlockNumber(place.buf);
	zwriter_change(&writer, &change, ZWAL_INSERT, 1);
	change.frozen = inserts_frozen(rel, options);
	if (!change.frozen)
		zheader_set(row, ZH_WITH_SLOT(zheader_get(row), place.pick.slotno));
	change.row = row;
	change.row_length = len;
	if (unlikely(writer.decoded))
		change.logical = zlogical_part_of_new(rel, true, &change.logical_length);
	zwriter_record(&writer, &change.rec[0], ZUR_INSERT, block, place.off, place.pick.prev);
	zrange_open(&writer, &change, &place);
	zslot_use(&writer, &change, 0, place.buf, &place.pick);
	change.page[0].init = place.init;
	zvismap_clear_in(rel, &change);
	zchange_do(&change, "insert-logged");
	zslot_note(&change, 0, &place.pick);
	zrange_note(&writer, &change, &place);
	UnlockReleaseBuffer(place.buf);
	ItemPointerSet(tid, block, place.off);
	zrollback_note_page(rel, block);
}

void
zheap_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid, ZcOptions options,
				   BulkInsertState bistate)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	ZRangeRow	row;

	slot->tts_tableOid = RelationGetRelid(rel);
	row.row = form_new_row(rel, slot, options, &row.len);
	row.keep_free = zspace_to_keep(rel, row.len);
	row.no_logical = (options & TABLE_INSERT_NO_LOGICAL) != 0;
	row.frozen = inserts_frozen(rel, options);
	if (!zrange_insert(rel, &row, cid, bistate, &slot->tts_tid))
		insert_row(rel, row.row, row.len, cid, options, bistate, &slot->tts_tid);
	zdml_leave(caller);
	if (TTS_IS_ZHEAP(slot))
		ztts_set_author(slot, zxid_from_full(GetCurrentFullTransactionId()), cid, InvalidUndoPtr);
	pgstat_count_heap_insert(rel, 1);
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

/* What distinguishes some new rows from ordinary ones. */
typedef struct Special
{
	uint32		token;			/* of a speculative insertion (one row); else
								 * 0 */
	bool		frozen;			/* every snapshot must see the rows: their
								 * headers name no slot */
	TransactionId as_of;		/* the transaction that counts as the rows'
								 * writer, or Invalid */
	bool		rewrites;		/* the file is new: no transaction has read it */
} Special;

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
					BulkInsertState bistate, const Special *special)
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
	if (!special->rewrites)
		CheckForSerializableConflictIn(writer->rel, NULL, InvalidBlockNumber);	/* VIS-7 */
	block = BufferGetBlockNumber(place.buf);
	count = rows_that_fit(&place, rows, from, keep_free);
	zwriter_change(writer, &change, ZWAL_MULTI_INSERT, 1);
	zwriter_record(writer, rec, ZUR_INSERT, block, place.off, place.pick.prev);
	rec->nrows = count;
	if (special->token != 0)
	{
		rec->xflags |= ZUX_SPECULATIVE;
		rec->token = special->token;
	}
	if (TransactionIdIsValid(special->as_of))
	{
		rec->as_of = special->as_of;
		rec->cid = FirstCommandId;
	}
	for (int i = from; i < from + count; i++)
	{
		ZHeader		h = zheader_get(rows->row[i]);

		zheader_set(rows->row[i], ZH_WITH_SLOT(h, special->frozen ? 0 : place.pick.slotno) |
					(special->token != 0 ? ZH_SPECULATIVE : 0));
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

/*
 * Inserts all of the rows, for which *writer has begun, and sets their tids:
 * each page takes as many of them as fit, with one record. Takes no memory of
 * zdml_scratch.
 */
static void
insert_rows(const ZWriter *writer, const ZNewRows *rows, ZcOptions options,
			BulkInsertState bistate, const Special *special)
{
	for (int done = 0; done < rows->n;)
	{
		CHECK_FOR_INTERRUPTS();
		done += insert_page_of_rows(writer, rows, done, options, bistate, special);
	}
}

/*
 * zheap_multi_insert: See zdml.h. All rows are formed, and toasted, before
 * undo is reserved and a page is locked.
 */
void
zheap_multi_insert(Relation rel, TupleTableSlot **slots, int nslots, CommandId cid,
				   ZcOptions options, BulkInsertState bistate)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	uint32	   *lens = palloc(nslots * sizeof(uint32));
	ZNewRows	rows = {nslots, palloc(nslots * sizeof(char *)), lens,
	palloc(nslots * sizeof(ItemPointerData))};
	Special		special = {0};
	ZWriter		writer;

	for (int i = 0; i < nslots; i++)
	{
		const char *row;

		slots[i]->tts_tableOid = RelationGetRelid(rel);
		row = form_new_row(rel, slots[i], options, &lens[i]);
		rows.row[i] = palloc(lens[i]);
		copy_formed_row(rows.row[i], row, lens[i]);
	}
	special.frozen = inserts_frozen(rel, options);
	zwriter_begin_change(&writer, rel, cid, (options & TABLE_INSERT_NO_LOGICAL) != 0);
	insert_rows(&writer, &rows, options, bistate, &special);
	for (int i = 0; i < nslots; i++)
	{
		slots[i]->tts_tid = rows.tid[i];
		if (TTS_IS_ZHEAP(slots[i]))
			ztts_set_author(slots[i], writer.xid, writer.cid, InvalidUndoPtr);
	}
	zdml_leave(caller);
	pgstat_count_heap_insert(rel, nslots);
}

/*
 * zheap_tuple_insert_speculative: See zdml.h. Logs a MULTI_INSERT of one row,
 * since only that kind of WAL record has the token and a row header with the
 * speculative mark.
 */
void
zheap_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid, ZcOptions options,
							   BulkInsertState bistate, uint32 token)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	uint32		len;
	char	   *row;
	ZNewRows	rows = {1, &row, &len, &slot->tts_tid};
	Special		special = {.token = token};
	ZWriter		writer;

	slot->tts_tableOid = RelationGetRelid(rel);
	row = zheap_form_row(rel, slot, options, &len);
	zwriter_begin_change(&writer, rel, cid, false);
	(void) insert_page_of_rows(&writer, &rows, 0, options, bistate, &special);
	if (TTS_IS_ZHEAP(slot))
		ztts_set_author(slot, writer.xid, writer.cid, InvalidUndoPtr);
	zdml_leave(caller);
	pgstat_count_heap_insert(rel, 1);
}

char *
zheap_form_row(Relation rel, TupleTableSlot *slot, ZcOptions options, uint32 *len)
{
	const char *formed = form_new_row(rel, slot, options, len);
	char	   *row = palloc(*len + ZTUPLE_MAX_COUNT);

	copy_formed_row(row, formed, *len);
	return row;
}

/*
 * zheap_insert_rows_as_of: See zdml.h. A rewrite is no change that is decoded
 * (DECODE-2), and no serializable transaction can have read the new file, so
 * that is not checked.
 */
void
zheap_insert_rows_as_of(Relation rel, const ZNewRows *rows, CommandId cid, ZcOptions options,
						BulkInsertState bistate, TransactionId as_of)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	Special		special = {0};
	ZWriter		writer;

	special.frozen = (as_of == FrozenTransactionId);
	special.rewrites = true;
	if (TransactionIdIsNormal(as_of))
	{
		special.as_of = as_of;
		zown_note_rewrite();
	}
	zwriter_begin(&writer, rel, cid);
	insert_rows(&writer, rows, options, bistate, &special);
	zdml_leave(caller);
}

/*
 * zheap_tuple_complete_speculative: See zdml.h. Until it is confirmed, only
 * our own transaction can see the row. Confirming takes the mark away. Giving
 * up makes it a deleted row of ours, without an undo record: a transaction
 * that waits for the token then finds nothing, and a rollback removes the row
 * as it does any insertion.
 */
void
zheap_tuple_complete_speculative(Relation rel, TupleTableSlot *slot, uint32 token, bool succeeded)
{
	Buffer		buf = zread_page(rel, ItemPointerGetBlockNumber(&slot->tts_tid));
	Page		page = BufferGetPage(buf);
	xl_zheap_mark xlrec;
	char		part = ZWL_LAST;
	char		row[BLCKSZ];
	int			len;

	xlrec.offset = ItemPointerGetOffsetNumber(&slot->tts_tid);
	xlrec.what = succeeded ? ZMARK_CONFIRMED : ZMARK_GIVEN_UP;
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	if (xlrec.offset > PageGetMaxOffsetNumber(page) ||
		!ItemIdIsNormal(PageGetItemId(page, xlrec.offset)))
		elog(ERROR, "could not find the speculatively inserted row");
	len = zpage_row_length(page, PageGetItemId(page, xlrec.offset));
	memcpy(row, zpage_row(page, PageGetItemId(page, xlrec.offset)), len);

	START_CRIT_SECTION();
	zapply_speculative(page, xlrec.offset, succeeded);
	MarkBufferDirty(buf);
	if (RelationNeedsWAL(rel))
	{
		XLogRecPtr	recptr;

		XLogBeginInsert();
		if (XLogLogicalInfoActive())
			XLogSetRecordFlags(XLOG_INCLUDE_ORIGIN);
		XLogRegisterData((char *) &xlrec, SizeOfZheapMark);
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD | REGBUF_KEEP_DATA);
		if (zwriter_is_decoded(rel))
			XLogRegisterBufData(0, &part, 1);
		recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_MARK);
		PageSetLSN(page, recptr);
	}
	END_CRIT_SECTION();
	UnlockReleaseBuffer(buf);
	if (!succeeded && (zheader_get(row) & ZH_EXTERNAL))
		ztoast_delete(rel, &slot->tts_tid, row, len, true);
	if (!succeeded)
		pgstat_count_heap_delete(rel);
}
