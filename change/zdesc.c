/*
 * change/zdesc.c - descriptions of WAL records, for tools that load the
 * library, as pg_walinspect does, and for the error contexts of replay.
 */
#include "postgres.h"

#include "undo/undo_wal.h"
#include "change/zchange.h"
#include "change/zwal.h"

/* zwal_identify: See zwal.h. */
const char *
zwal_identify(uint8 info)
{
	switch (info & ~XLR_INFO_MASK)
	{
		case ZWAL_INSERT:
			return "INSERT";
		case ZWAL_MULTI_INSERT:
			return "MULTI_INSERT";
		case ZWAL_UPDATE:
			return "UPDATE";
		case ZWAL_DELETE:
			return "DELETE";
		case ZWAL_MOVE:
			return "MOVE";
		case ZWAL_LOCK:
			return "LOCK";
		case ZWAL_ROLLBACK:
			return "ROLLBACK";
		case ZWAL_PRUNE:
			return "PRUNE";
		case ZWAL_UNDO_ONLY:
			return "UNDO_ONLY";
		case ZWAL_OVERFLOW:
			return "OVERFLOW";
		case ZWAL_MARK:
			return "MARK";
		case ZWAL_UNDO_MAP:
			return "UNDO_MAP";
		case ZWAL_UNDO_DISCARD:
			return "UNDO_DISCARD";
		case ZWAL_UNDO_TRUNCATE:
			return "UNDO_TRUNCATE";
		case ZWAL_IMAGE:
			return "IMAGE";
		case ZWAL_INLINE_LOCK:
			return "INLINE_LOCK";
		default:
			return NULL;
	}
}

/* Appends a conflict horizon, if there is one. */
static void
desc_conflict(StringInfo buf, TransactionId conflict)
{
	if (TransactionIdIsValid(conflict))
		appendStringInfo(buf, ", conflict horizon %u", conflict);
}

/* Appends the description of a row change record to buf. */
static void
desc_change(StringInfo buf, XLogReaderState *record)
{
	ZChange		change;
	ZChangeWork work;

	if (!zchange_decode(record, &change, &work))
	{
		appendStringInfoString(buf, "malformed");
		return;
	}
	appendStringInfo(buf, "slot %u", change.page[0].slot.slotno);
	if (change.covered)
	{
		appendStringInfo(buf, ", off %u, no undo", change.rec[0].offset);
		return;
	}
	for (int i = 0; i < change.nrecords; i++)
	{
		const ZuRecord *rec = &change.rec[i];
		UndoPtr		ptr = change.op.ptr[i];

		appendStringInfo(buf, "%s off %u, cid %u, undo %X/%X, undo length %u",
						 i == 0 ? "," : "; then", rec->offset, rec->cid,
						 (uint32) (ptr >> 32), (uint32) ptr, rec->length);
		if ((rec->type == ZUR_INSERT || rec->type == ZUR_DELETE) && rec->nrows > 1)
			appendStringInfo(buf, rec->open ? ", open, rows %u" : ", rows %u", rec->nrows);
		if (rec->type == ZUR_LOCK && rec->open)
			appendStringInfoString(buf, ", open");
		if (rec->type == ZUR_ROWS)
			appendStringInfo(buf, ", saved rows%s", change.compact ? " of the page" : "");
		if (rec->type == ZUR_LOCKS)
			appendStringInfo(buf, ", locks %zu, youngest locker " UINT64_FORMAT,
							 rec->payload_len / sizeof(ZLockEntry), rec->hold);
	}
	if (change.prunes)
	{
		appendStringInfo(buf, ", prunes by %d items", change.nprune);
		desc_conflict(buf, change.conflict);
	}
	if (change.opcode == ZWAL_MOVE && change.compact)
		appendStringInfoString(buf, ", new row by delta");
	else if (change.opcode == ZWAL_MOVE)
		appendStringInfo(buf, ", new row of %u bytes%s", change.row_length,
						 change.row == work.bytes ? ", compressed" : "");
	if (change.converted)
		appendStringInfoString(buf, ", locks kept in the slot until now");
	if (change.page[0].slot.grow_to != 0)
		appendStringInfo(buf, ", slots grow to %u", change.page[0].slot.grow_to);
	if (change.page[0].slot.in_overflow)
		appendStringInfoString(buf, ", in overflow page");
	if (XLogRecHasBlockRef(record, ZWAL_MAP_BLOCK) &&
		(change.opcode != ZWAL_MOVE || zchange_on_one_page(&change)))
		appendStringInfoString(buf, ", page was all-visible");
}

/* Appends the description of a record of a table page that is no row change. */
static void
desc_page(StringInfo buf, XLogReaderState *record, uint8 opcode)
{
	char	   *data = XLogRecGetData(record);

	if (opcode == ZWAL_ROLLBACK)
	{
		xl_zheap_rollback xlrec;

		memcpy(&xlrec, data, SizeOfZheapRollback);
		appendStringInfo(buf, "slot %u, records %u, new head xid " UINT64_FORMAT " undo %X/%X",
						 xlrec.slotno, xlrec.nrecords, xlrec.new_xid,
						 (uint32) (xlrec.new_ptr >> 32), (uint32) xlrec.new_ptr);
	}
	else if (opcode == ZWAL_PRUNE)
	{
		TransactionId conflict;

		memcpy(&conflict, data, sizeof(conflict));
		appendStringInfo(buf, "items %u",
						 (unsigned) ((XLogRecGetDataLen(record) - sizeof(conflict)) /
									 sizeof(ZPruneItem)));
		desc_conflict(buf, conflict);
	}
	else if (opcode == ZWAL_OVERFLOW)
	{
		xl_zheap_overflow xlrec;

		memcpy(&xlrec, data, SizeOfZheapOverflow);
		appendStringInfo(buf, "%s, table %u, relation file %u, block %u",
						 xlrec.first != 0 ? "attached" : "freed",
						 xlrec.reloid, xlrec.relnumber, xlrec.block);
		if (xlrec.first != 0)
			appendStringInfo(buf, ", first slot %u", xlrec.first);
	}
	else
	{
		xl_zheap_mark xlrec;

		Assert(opcode == ZWAL_MARK);
		memcpy(&xlrec, data, SizeOfZheapMark);
		if (xlrec.what == ZMARK_NOT_ALL_VISIBLE)
			appendStringInfoString(buf, "not all-visible");
		else if (xlrec.what == ZMARK_ALL_VISIBLE)
			appendStringInfoString(buf, "all-visible");
		else if (xlrec.what == ZMARK_ENTRY)
			appendStringInfo(buf, "index entry %u", xlrec.offset);
		else if (xlrec.what == ZMARK_ENTRIES_ALIVE)
			appendStringInfo(buf, "%u index entries alive",
							 (unsigned) ((XLogRecGetDataLen(record) - SizeOfZheapMark) /
										 sizeof(OffsetNumber)));
		else
			appendStringInfo(buf, "off %u, insertion %s", xlrec.offset,
							 xlrec.what == ZMARK_CONFIRMED ? "confirmed" : "given up");
	}
}

/* Appends the description of an inline lock's record. */
static void
desc_inline_lock(StringInfo buf, XLogReaderState *record)
{
	ZWalInlineLock lock;

	if (!zwal_decode_inline_lock(record, &lock))
	{
		appendStringInfoString(buf, "malformed");
		return;
	}
	appendStringInfo(buf, "slot %d%s, off %u, mode %d", lock.slotno,
					 lock.fresh ? " taken" : lock.tag ? " by tag" : "", lock.offset, lock.mode);
	if (lock.grow_to)
		appendStringInfo(buf, ", slots grow to %d", lock.grow_to);
}

/* Appends the description of a record of the undo log. */
static void
desc_undo(StringInfo buf, XLogReaderState *record, uint8 opcode)
{
	char	   *data = XLogRecGetData(record);

	if (opcode == ZWAL_UNDO_MAP)
	{
		xl_undo_map xlrec;

		memcpy(&xlrec, data, SizeOfUndoMap);
		if (xlrec.flags & ZWAL_MAP_RESOLVED)
			appendStringInfo(buf, "resolved extents %u",
							 (unsigned) ((XLogRecGetDataLen(record) - SizeOfUndoMap) /
										 sizeof(xl_undo_resolved)));
		else
			appendStringInfo(buf, "extent %u, generation %u, log %u, extents %u",
							 xlrec.extent, xlrec.generation, xlrec.logno, xlrec.nextents);
	}
	else if (opcode == ZWAL_UNDO_DISCARD)
	{
		xl_undo_discard xlrec;

		memcpy(&xlrec, data, SizeOfUndoDiscard);
		appendStringInfo(buf, "oldest " UINT64_FORMAT ", conflict %u, extents %u, freeze "
						 UINT64_FORMAT ", then " UINT64_FORMAT " after " UINT64_FORMAT,
						 xlrec.oldest, xlrec.conflict, xlrec.nextents, xlrec.freeze_now,
						 xlrec.freeze_next, xlrec.freeze_after);
	}
	else if (XLogRecGetDataLen(record) == 0)
		appendStringInfo(buf, "blocks to be cut off: %d", XLogRecMaxBlockId(record) + 1);
	else
	{
		xl_undo_truncate xlrec;

		Assert(opcode == ZWAL_UNDO_TRUNCATE);
		memcpy(&xlrec, data, SizeOfUndoTruncate);
		appendStringInfo(buf, "extents %u, blocks %u, floor %u", xlrec.nextents, xlrec.nblocks,
						 xlrec.floor);
	}
}

/*
 * zwal_desc: See zwal.h. Row changes are decoded, most other records are
 * structs.
 */
void
zwal_desc(StringInfo buf, XLogReaderState *record)
{
	uint8		opcode = XLogRecGetInfo(record) & ~XLR_INFO_MASK;

	switch (opcode)
	{
		case ZWAL_ROLLBACK:
		case ZWAL_PRUNE:
		case ZWAL_OVERFLOW:
		case ZWAL_MARK:
			desc_page(buf, record, opcode);
			break;
		case ZWAL_INLINE_LOCK:
			desc_inline_lock(buf, record);
			break;
		case ZWAL_UNDO_MAP:
		case ZWAL_UNDO_DISCARD:
		case ZWAL_UNDO_TRUNCATE:
			desc_undo(buf, record, opcode);
			break;
		default:
			desc_change(buf, record);
			break;
	}
}
