/*
 * dml/zdelete.c - deleting one row.
 *
 * The row's bytes stay until the deletion has committed (PAGE-6); zreclaim.c
 * then tells the free space map that they can be given back.
 */
#include "postgres.h"

#include "access/xact.h"
#include "dml/zrowchange.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "pgstat.h"
#include "rollback/zrollback.h"
#include "utils/rel.h"

/*
 * zheap_tuple_delete: See zdml.h. The TOAST values are deleted after the page
 * is unlocked, since that writes another table.
 */
TM_Result
zheap_tuple_delete(Relation rel, ItemPointer tid, CommandId cid,
				   ZC_CHANGE_OPTIONS_PARAM Snapshot snapshot, Snapshot crosscheck, bool wait,
				   TM_FailureData *tmfd ZC_CHANGING_PART_PARAM)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	RowChange	u;
	TM_Result	result;

	/*
	 * An update that changes the partition deletes the row here; AFTER UPDATE
	 * triggers then need the old row, too.
	 */
	bool		event = rel->trigdesc != NULL &&
	(rel->trigdesc->trig_delete_after_row ||
	 (zc_changing_part && rel->trigdesc->trig_update_after_row));

	if (IsInParallelMode())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_STATE),
				 errmsg("cannot delete tuples during a parallel operation")));
	zrowchange_begin(&u, tid, NULL);
	zwriter_begin_change(&u.writer, rel, cid, zc_delete_no_logical);
	u.only_header = !event && !u.writer.decoded;
	u.buf = zknown_read(rel, zrowchange_block(&u));
	for (;;)
	{
		result = zrowchange_acquire(&u, snapshot, crosscheck, wait, tmfd);
		if (result != TM_Ok || zrowchange_pick(&u))
			break;
		zrowchange_reserve(&u);
	}
	if (result == TM_Ok)
	{
		UndoPtr		ptr;

		zssi_before_write(rel, u.buf, zrowchange_offset(&u));
		zimage_maybe_save(&u.writer, u.buf, &u.pick);
		ptr = zrowwrite_delete(&u, zc_changing_part, InvalidTransactionId);
		zrollback_note_page(rel, zrowchange_block(&u));
		zreclaim_note(rel, u.buf, zrowchange_offset(&u), zrowchange_room(&u));
		if (event)
			zrowchange_note(&u, ptr, false, true);
		LockBuffer(u.buf, BUFFER_LOCK_UNLOCK);
		zlevel_forget_locked(rel, tid);
		if (zheader_get(u.oldrow) & ZH_EXTERNAL)
			ztoast_delete(rel, tid, u.oldrow, u.oldlen, NULL, 0);
		pgstat_count_heap_delete(rel);
	}
	zrowchange_end(&u);
	zdml_leave(caller);
	return result;
}

/*
 * zheap_delete_as_of: See zdml.h. Waits for no transaction: our own has just
 * inserted the row, into a file that no other transaction can open.
 */
void
zheap_delete_as_of(Relation rel, ItemPointer tid, CommandId cid, TransactionId as_of, bool replaced)
{
	MemoryContext caller = MemoryContextSwitchTo(zdml_scratch());
	RowChange	u;

	zrowchange_begin(&u, tid, NULL);
	if (TransactionIdIsValid(as_of))
		zown_note_rewrite();
	zwriter_begin(&u.writer, rel, cid);
	u.buf = zknown_read(rel, zrowchange_block(&u));
	for (;;)
	{
		LockBuffer(u.buf, BUFFER_LOCK_EXCLUSIVE);
		(void) zrowchange_look(&u);
		if (zrowchange_pick(&u))
			break;
		zrowchange_reserve(&u);
	}
	(void) zrowwrite_delete(&u, replaced, as_of);
	LockBuffer(u.buf, BUFFER_LOCK_UNLOCK);
	zrollback_note_page(rel, zrowchange_block(&u));
	zrowchange_end(&u);
	zdml_leave(caller);
}
