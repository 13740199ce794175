/*
 * dml/zinsert.c - inserting one row and many rows.
 *
 * Crash points: "insert-logged". Before the WAL record nothing has happened
 * except that, at most, an empty page was added at the relation's end; after
 * the record, redo builds page and undo.
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
	char	   *row = zdml_space.bytes;
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
	change.frozen = zrows_frozen(rel, options);
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
	row.frozen = zrows_frozen(rel, options);
	if (!zrange_insert(rel, &row, cid, bistate, &slot->tts_tid))
		insert_row(rel, row.row, row.len, cid, options, bistate, &slot->tts_tid);
	zdml_leave(caller);
	if (TTS_IS_ZHEAP(slot))
		ztts_set_author(slot, zxid_from_full(GetCurrentFullTransactionId()), cid, InvalidUndoPtr);
	pgstat_count_heap_insert(rel, 1);
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
	ZRowsKind	kind = {0};
	ZWriter		writer;

	for (int i = 0; i < nslots; i++)
	{
		const char *row;

		slots[i]->tts_tableOid = RelationGetRelid(rel);
		row = form_new_row(rel, slots[i], options, &lens[i]);
		rows.row[i] = palloc(lens[i]);
		copy_formed_row(rows.row[i], row, lens[i]);
	}
	kind.frozen = zrows_frozen(rel, options);
	zwriter_begin_change(&writer, rel, cid, (options & TABLE_INSERT_NO_LOGICAL) != 0);
	zrows_insert(&writer, &rows, options, bistate, &kind);
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
	ZRowsKind	kind = {.token = token};
	ZWriter		writer;

	slot->tts_tableOid = RelationGetRelid(rel);
	row = zheap_form_row(rel, slot, options, &len);
	zwriter_begin_change(&writer, rel, cid, false);
	zrows_insert(&writer, &rows, options, bistate, &kind);
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
	ZRowsKind	kind = {0};
	ZWriter		writer;

	kind.frozen = (as_of == FrozenTransactionId);
	kind.rewrites = true;
	if (TransactionIdIsNormal(as_of))
	{
		kind.as_of = as_of;
		zown_note_rewrite();
	}
	zwriter_begin(&writer, rel, cid);
	zrows_insert(&writer, rows, options, bistate, &kind);
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
	Buffer		buf = zknown_read(rel, ItemPointerGetBlockNumber(&slot->tts_tid));
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
		ztoast_delete(rel, &slot->tts_tid, row, len, NULL, 0);
	if (!succeeded)
		pgstat_count_heap_delete(rel);
}
