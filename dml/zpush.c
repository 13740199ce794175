/*
 * dml/zpush.c - undo records for a page that is not in a buffer yet.
 *
 * Called by vacuum/ while it copies a table to a new file, under
 * AccessExclusiveLock. The page that will point to these records is written
 * afterwards, so a standby never follows a pointer to a record that is not
 * there.
 *
 * Crash points: "undo-pushed". The new file is dropped if the transaction that
 * makes it does not commit.
 */
#include "postgres.h"

#include "dml/zdml_internal.h"
#include "utils/rel.h"

/*
 * zheap_push_record: See zdml.h. Takes from zwriter_record only the fields
 * that the caller has not filled in.
 */
UndoPtr
zheap_push_record(Relation rel, ZuRecord *rec)
{
	ZWriter		writer;
	ZuRecord	common;
	ZChange		change;

	zwriter_begin(&writer, rel, rec->cid);
	zwriter_record(&writer, &common, rec->type, rec->block, rec->offset, rec->prev);
	rec->xid = common.xid;
	rec->topxid = common.topxid;
	rec->reloid = common.reloid;
	rec->xflags |= common.xflags;
	rec->flags = 0;
	zown_note_rewrite();
	zwriter_change(&writer, &change, ZWAL_UNDO_ONLY, 1);
	change.logged = false;
	change.rec[0] = *rec;
	zchange_do(&change, NULL);
	ZUNDO_FAULT("undo-pushed");
	return change.op.ptr[0];
}
