/*
 * dml/zconvert.c - replacing inline locks by LOCK records.
 *
 * Called when a transaction picks a slot that holds its own inline locks
 * (INLINE-2 in docs/locking.md). The page is exclusively locked; undo pages are
 * locked below it.
 */
#include "postgres.h"

#include "dml/zdml_internal.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"

/*
 * Makes LOCK records of some of the inline locks of slotno, the first of them
 * pushed on *prev; sets *prev to the last. Returns the inline locks that are
 * left. The slot is changed only with the last record, so that after an error
 * in between it still has all its locks.
 */
static UndoPtr
convert_some(const ZWriter *writer, Buffer buf, int slotno, ZXid xid, UndoPtr locks, UndoPtr *prev)
{
	ZChange		change;
	bool		last;
	int			n;

	Assert(locks != 0 && zc_buffer_exclusive(buf));
	zwriter_change(writer, &change, ZWAL_LOCK, 1);
	for (n = 0; n < ZU_MAX_RECORDS && locks != 0; n++, locks >>= ZINLINE_BITS)
	{
		ZuRecord   *rec = &change.rec[n];

		zwriter_record(writer, rec, ZUR_LOCK, BufferGetBlockNumber(buf), ZINLINE_OFFSET(locks),
					   n == 0 ? *prev : ZCHANGE_ON_RECORD_BEFORE);
		rec->xid = xid;
		rec->lockmode = ZINLINE_MODE(locks);
	}
	change.nrecords = n;
	change.page[0].slot.slotno = slotno;
	last = (locks == 0);
	if (last)
	{
		change.converted = true;
		change.page[0].buf = buf;
		change.page[0].page = BufferGetPage(buf);
	}
	else
	{
		change.opcode = ZWAL_UNDO_ONLY;
		change.logged = false;
	}
	zchange_do(&change, last ? "locks-converted" : NULL);
	/* so that the search for the author of the next row passes over them */
	for (int i = 0; i < n; i++)
		zown_note(change.rec[i].relnumber, change.rec[i].block, change.rec[i].offset, 1,
				  change.rec[i].cid, change.op.ptr[i], change.rec[i].prev);
	if (!last)
		ZUNDO_FAULT("converting-locks");
	if (last)
		zheld_note_record(writer->rel, BufferGetBlockNumber(buf), slotno, change.op.ptr[n - 1],
						  &change.rec[n - 1]);
	*prev = change.op.ptr[n - 1];
	return locks;
}

/*
 * zlock_convert: See zdml_internal.h. Locks that do not fit into one change
 * are converted by several.
 */
void
zlock_convert(const ZWriter *writer, Buffer buf, int slotno)
{
	ZPageSlot	slot = *zpage_slot(BufferGetPage(buf), slotno);
	UndoPtr		prev = InvalidUndoPtr;

	Assert(zslot_locks_only(&slot) && slot.ptr != 0);
	while (slot.ptr != 0)
		slot.ptr = convert_some(writer, buf, slotno, ZSLOT_XID(&slot), slot.ptr, &prev);
	zrollback_note_page(writer->rel, BufferGetBlockNumber(buf));
	ZUNDO_FAULT("locks-done");
}
