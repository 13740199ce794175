/*
 * dml/zpush.c - undo records for a page that is not in a buffer yet.
 *
 * Called by vacuum/ while it copies a table to a new file, under AccessExclusiveLock. The page that will point to
 * these records is written afterwards, so a standby never follows a pointer to a record that is not there.
 *
 * Crash points: the new file is dropped if its maker does not commit.
 */
#include "postgres.h"

#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "utils/rel.h"

UndoPtr
zheap_push_record(Relation rel, ZuRecord *rec)
{
	static char packed[ZUR_MAX_LENGTH];
	/* what the decoder of a move expects behind the undo: slot, slots, length of the new row */
	static const char no_row[4] = {0};
	ZWriter		writer;
	ZuRecord	common;
	ZuRecord   *recs[1] = {rec};
	ZWalSlot	slot = {0};
	ZuOp		op;
	XLogRecPtr	recptr;

	zwriter_begin(&writer, rel, rec->cid);
	zwriter_record(&writer, &common, rec->type, rec->block, rec->offset, rec->prev);
	rec->xid = common.xid;
	rec->topxid = common.topxid;
	rec->reloid = common.reloid;
	rec->xflags |= common.xflags;
	rec->flags = 0;
	zown_note_rewrite();
	zu_prepare(&op, recs, 1, writer.topxid);
	zur_pack(rec, packed);
	zwal_ensure_space(&op, false);

	START_CRIT_SECTION();
	zu_write(&op);
	recptr = zwal_log_literal(ZWAL_UNDO_ONLY, 0, InvalidBuffer, InvalidBuffer, &slot, &op, packed,
							  no_row, rec->type == ZUR_MOVE ? sizeof(no_row) : 0);
	zu_finish(&op, recptr);
	END_CRIT_SECTION();
	ZUNDO_FAULT("undo-pushed");
	return op.ptr[0];
}
