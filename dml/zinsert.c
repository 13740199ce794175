/*
 * dml/zinsert.c - inserting one row and many rows.
 *
 * Crash points: before the WAL record nothing has happened but, at most, an
 * empty page at the relation's end; after it redo builds page and undo.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "tuple/zslot.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Most bytes of rows that one multi-insert record may hold: a page's worth. */
static char rows_data[2 * BLCKSZ];
static char packed_undo[ZUR_MAX_LENGTH];

/* Make the page (new if init), the slot and the row; the change's common core. */
static void
apply_insert_slot(Page page, Buffer overflow, bool init, const ZSlotPick *pick, const ZuRecord *rec,
				  UndoPtr ptr)
{
	ZSlotChange change = zslot_change(pick, rec, ptr);

	if (init)
		zpage_init(page);
	zslot_apply(page, overflow, &change);
}

/*
 * Tells whether rows that are inserted with these options are to be visible to all (F1). The server asks for that only in
 * a file that the current subtransaction has made, which goes with it. Elsewhere, where an extension may ask for it,
 * others would see the rows at once and after a rollback too: there they are the transaction's, as without the option.
 */
static bool
inserts_frozen(Relation rel, int options)
{
	return unlikely(options & TABLE_INSERT_FROZEN) &&
		(rel->rd_createSubid == GetCurrentSubTransactionId() ||
		 rel->rd_newRelfilelocatorSubid == GetCurrentSubTransactionId());
}

/* Inserts the row, whose header names no slot yet, and returns its place in *tid. */
static void
insert_row(Relation rel, char *row, Size len, CommandId cid, int options, BulkInsertState bistate, ItemPointer tid)
{
	ZWriter		writer;
	ZSlotPick	pick;
	ZWalSlot	wal_slot;
	ZuRecord	rec;
	ZuRecord   *recs[1] = {&rec};
	ZuOp		op;
	OffsetNumber off;
	bool		init;
	Buffer		buf;
	Buffer		overflow;
	Page		page;
	BlockNumber block;
	XLogRecPtr	recptr = InvalidXLogRecPtr;

	/* prepare */
	zwriter_begin_change(&writer, rel, cid);
	CheckForSerializableConflictIn(rel, NULL, InvalidBlockNumber);
	buf = zspace_insert_page(&writer, len, options, bistate, &off, &pick, &init);
	zvisible_clear(rel, buf);
	page = BufferGetPage(buf);
	block = BufferGetBlockNumber(buf);
	if (!inserts_frozen(rel, options))
		zheader_set(row, ZH_WITH_SLOT(zheader_get(row), pick.slotno));
	zwriter_record(&writer, &rec, ZUR_INSERT, block, off, pick.prev);
	overflow = zslot_lock(&writer, buf, &pick);
	zu_prepare(&op, recs, 1, writer.topxid);
	zwal_ensure_space(&op, BufferIsValid(overflow));
	wal_slot = zslot_wal(&pick, overflow);
	if (!writer.logged)
		zur_pack(&rec, packed_undo);

	/* apply */
	START_CRIT_SECTION();
	apply_insert_slot(page, overflow, init, &pick, &rec, op.ptr[0]);
	zapply_insert(page, off, row, len);
	MarkBufferDirty(buf);
	zu_write(&op);
	if (writer.logged)
	{
		recptr = zwal_log_insert(buf, init, &wal_slot, &op, row, len);
		PageSetLSN(page, recptr);
	}
	else
		recptr = zwal_log_literal(ZWAL_UNDO_ONLY, 0, InvalidBuffer, InvalidBuffer, &wal_slot, &op,
								  packed_undo, NULL, 0);
	zslot_unlock(overflow, recptr);
	zu_finish(&op, recptr);
	ZUNDO_FAULT("insert-logged");
	END_CRIT_SECTION();

	/* finish */
	UnlockReleaseBuffer(buf);
	ItemPointerSet(tid, block, off);
	zrollback_note_page(rel, block);
}

/* The slot's row, toasted if need be. */
static const char *
form_new_row(Relation rel, TupleTableSlot *slot, int options, uint32 *len)
{
	const char *row = zslot_form_row(slot, RelationGetDescr(rel), len);

	if (ztoast_needed(rel, zheader_get(row), *len, 0))
		row = ztoast_row(rel, slot, NULL, NULL, 0, options, len);
	ztuple_check_size(*len);
	return row;
}

void
zheap_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
				   BulkInsertState bistate)
{
	static char bytes[BLCKSZ];
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	uint32		len;
	const char *row;

	slot->tts_tableOid = RelationGetRelid(rel);
	row = form_new_row(rel, slot, options, &len);
	memcpy(bytes, row, len);
	zheader_set(bytes, zheader_get(bytes) & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL));
	insert_row(rel, bytes, len, cid, options, bistate, &slot->tts_tid);
	zdml_leave(caller);
	if (TTS_IS_ZHEAP(slot))
		zslot_set_writer(slot, zxid_from_full(GetCurrentFullTransactionId()), cid, InvalidUndoPtr);
	pgstat_count_heap_insert(rel, 1);
}

/* How many of rows[0..n-1] fit on the page from off on, next to each other? */
static int
rows_that_fit(Page page, OffsetNumber off, bool init, const uint32 *lens, int n, Size keep_free,
			  const ZSlotPick *pick)
{
	Size		hole = init ? BLCKSZ - SizeOfPageHeaderData - sizeof(ZPageTrailer) -
		ZPAGE_INITIAL_SLOTS * sizeof(ZPageSlot) : zpage_hole(page);
	int			count = 0;

	if (pick->grow_to)
		hole -= sizeof(ZPageSlot);
	hole -= Min(hole, keep_free);
	/* a range: only line pointers past the last one, unless just one row is put */
	if (!init && off <= PageGetMaxOffsetNumber(page))
		return 1;
	while (count < n && off + count <= ZHEAP_MAX_OFFSET && hole >= lens[count] + sizeof(ItemIdData))
		hole -= lens[count++] + sizeof(ItemIdData);
	return Max(count, 1);
}

/* What is special about rows that are inserted. */
typedef struct Special
{
	uint32		token;			/* of a speculative insertion (of one row), else 0 */
	bool		settled;		/* every snapshot is to see them: their headers name no slot */
	TransactionId as_of;		/* who made them, or Invalid */
} Special;

/* Insert as many of the rows as the page takes, where tids tells; returns their number. */
static int
insert_page_of_rows(const ZWriter *writer, char **rows, const uint32 *lens, int n, int options,
					BulkInsertState bistate, const Special *special, ItemPointer *tids)
{
	ZSlotPick	pick;
	ZWalSlot	wal_slot;
	ZuRecord	rec;
	ZuRecord   *recs[1] = {&rec};
	ZuOp		op;
	OffsetNumber off;
	bool		init;
	Buffer		buf;
	Buffer		overflow;
	Page		page;
	BlockNumber block;
	Size		data_len = 0;
	int			count;
	XLogRecPtr	recptr;
	Size		keep_free = RelationGetTargetPageFreeSpace(writer->rel, HEAP_DEFAULT_FILLFACTOR);

	/* prepare */
	zwriter_reserve(writer);
	buf = zspace_insert_page(writer, lens[0], options, bistate, &off, &pick, &init);
	zvisible_clear(writer->rel, buf);
	page = BufferGetPage(buf);
	block = BufferGetBlockNumber(buf);
	count = rows_that_fit(page, off, init, lens, n, keep_free, &pick);
	zwriter_record(writer, &rec, ZUR_INSERT, block, off, pick.prev);
	rec.nrows = count;
	if (special->token != 0)
	{
		rec.xflags |= ZUX_SPECULATIVE;
		rec.token = special->token;
	}
	if (TransactionIdIsValid(special->as_of))
	{
		rec.as_of = special->as_of;
		rec.cid = FirstCommandId;
	}
	overflow = zslot_lock(writer, buf, &pick);
	zu_prepare(&op, recs, 1, writer->topxid);
	zwal_ensure_space(&op, BufferIsValid(overflow));
	zur_pack(&rec, packed_undo);
	wal_slot = zslot_wal(&pick, overflow);
	for (int i = 0; i < count; i++)
	{
		uint16		len = lens[i];

		zheader_set(rows[i], ZH_WITH_SLOT(zheader_get(rows[i]), special->settled ? 0 : pick.slotno) |
					(special->token != 0 ? ZH_SPECULATIVE : 0));
		if (writer->logged)
		{
			memcpy(rows_data + data_len, &len, 2);
			memcpy(rows_data + data_len + 2, rows[i], len);
			data_len += 2 + len;
		}
	}

	/* apply */
	START_CRIT_SECTION();
	apply_insert_slot(page, overflow, init, &pick, &rec, op.ptr[0]);
	for (int i = 0; i < count; i++)
		zapply_insert(page, off + i, rows[i], lens[i]);
	MarkBufferDirty(buf);
	zu_write(&op);
	recptr = zwal_log_literal(writer->logged ? ZWAL_MULTI_INSERT : ZWAL_UNDO_ONLY,
							  writer->logged && init ? ZWD_PAGE_INIT : 0,
							  writer->logged ? buf : InvalidBuffer, InvalidBuffer, &wal_slot, &op,
							  packed_undo, rows_data, data_len);
	if (writer->logged)
		PageSetLSN(page, recptr);
	zslot_unlock(overflow, recptr);
	zu_finish(&op, recptr);
	ZUNDO_FAULT("insert-logged");
	END_CRIT_SECTION();

	/* finish */
	UnlockReleaseBuffer(buf);
	for (int i = 0; i < count; i++)
		ItemPointerSet(tids[i], block, off + i);
	zrollback_note_page(writer->rel, block);
	return count;
}

void
zheap_multi_insert(Relation rel, TupleTableSlot **slots, int nslots, CommandId cid, int options,
				   BulkInsertState bistate)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	char	  **rows = palloc(nslots * sizeof(char *));
	uint32	   *lens = palloc(nslots * sizeof(uint32));
	ItemPointer *tids = palloc(nslots * sizeof(ItemPointer));
	Special		special = {0};
	ZWriter		writer;

	for (int i = 0; i < nslots; i++)
	{
		const char *row;

		slots[i]->tts_tableOid = RelationGetRelid(rel);
		tids[i] = &slots[i]->tts_tid;
		row = form_new_row(rel, slots[i], options, &lens[i]);
		rows[i] = palloc(lens[i]);
		memcpy(rows[i], row, lens[i]);
		zheader_set(rows[i], zheader_get(row) & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL));
	}
	special.settled = inserts_frozen(rel, options);
	zwriter_begin_change(&writer, rel, cid);
	CheckForSerializableConflictIn(rel, NULL, InvalidBlockNumber);
	for (int done = 0; done < nslots;)
	{
		CHECK_FOR_INTERRUPTS();
		done += insert_page_of_rows(&writer, rows + done, lens + done, nslots - done, options,
									bistate, &special, tids + done);
	}
	for (int i = 0; i < nslots; i++)
		if (TTS_IS_ZHEAP(slots[i]))
			zslot_set_writer(slots[i], writer.xid, writer.cid, InvalidUndoPtr);
	zdml_leave(caller);
	pgstat_count_heap_insert(rel, nslots);
}

void
zheap_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
							   BulkInsertState bistate, uint32 token)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	ZWriter		writer;
	uint32		len;
	const char *formed;
	char	   *row;
	Special		special = {.token = token};
	ItemPointer tidp = &slot->tts_tid;

	slot->tts_tableOid = RelationGetRelid(rel);
	formed = form_new_row(rel, slot, options, &len);
	row = palloc(len);
	memcpy(row, formed, len);
	zheader_set(row, zheader_get(formed) & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL));
	zwriter_begin_change(&writer, rel, cid);
	CheckForSerializableConflictIn(rel, NULL, InvalidBlockNumber);
	(void) insert_page_of_rows(&writer, &row, &len, 1, options, bistate, &special, &tidp);
	if (TTS_IS_ZHEAP(slot))
		zslot_set_writer(slot, writer.xid, writer.cid, InvalidUndoPtr);
	zdml_leave(caller);
	pgstat_count_heap_insert(rel, 1);
}

char *
zheap_form_row(Relation rel, TupleTableSlot *slot, int options, uint32 *len)
{
	const char *formed = form_new_row(rel, slot, options, len);
	char	   *row = palloc(*len);

	memcpy(row, formed, *len);
	zheader_set(row, zheader_get(formed) & (ZH_NATTS_MASK | ZH_NULLS | ZH_EXTERNAL));
	return row;
}

void
zheap_insert_rows_as_of(Relation rel, char **rows, const uint32 *lens, int n, CommandId cid, int options,
						BulkInsertState bistate, TransactionId as_of, ItemPointerData *tids)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	ItemPointer *places = palloc(n * sizeof(ItemPointer));
	Special		special = {0};
	ZWriter		writer;

	for (int i = 0; i < n; i++)
		places[i] = &tids[i];
	special.settled = (as_of == FrozenTransactionId);
	if (TransactionIdIsNormal(as_of))
	{
		special.as_of = as_of;
		zown_note_rewrite();
	}
	zwriter_begin(&writer, rel, cid);
	for (int done = 0; done < n;)
	{
		CHECK_FOR_INTERRUPTS();
		done += insert_page_of_rows(&writer, rows + done, lens + done, n - done, options, bistate,
									&special, places + done);
	}
	zdml_leave(caller);
}

/*
 * Nobody but us can see the row yet: confirming it takes its mark away; giving it up makes it a
 * deleted row of ours without an undo record, so that whoever waits for the
 * token finds nothing, and a rollback removes it as any insertion.
 */
void
zheap_tuple_complete_speculative(Relation rel, TupleTableSlot *slot, uint32 token, bool succeeded)
{
	Buffer		buf = ReadBuffer(rel, ItemPointerGetBlockNumber(&slot->tts_tid));
	Page		page = BufferGetPage(buf);
	xl_zheap_mark xlrec;
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
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
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
