/*
 * dml/zlocklist.c - the locks of several transactions that a page keeps in
 * common.
 *
 * A row that moves takes the locks of transactions in progress along: the
 * mover writes them, as a list, into an undo record of type LOCKS, and a slot
 * of the new row's page, flagged ZSLOT_COMMON_LOCKS, points to that record.
 * Such records form a chain of their own, which is no chain of changes: any
 * transaction may push a record on it, whatever has become of the authors of
 * the others, for the chain is read as a whole. An entry counts while its
 * locker is in progress and, unless it is marked ZLOCK_SURE, the record's
 * author has not aborted (if the author has aborted, the row that the entry
 * concerns is not there).
 *
 * Locks: the page's, exclusively to push, at least share to read; then undo
 * pages.
 *
 * Rules: LOCK-3, LOCK-5 and LOCK-6 in docs/locking.md.
 */
#include "postgres.h"

#include "dml/zdml_internal.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* A chain that has reached this number of records is replaced by one record. */
#define MERGE_RECORDS 8

/*
 * Collects in kept the entries of the chain that still matter (LOCK-5).
 * Returns false if there are too many. Entries that occur twice are kept once.
 */
static bool
gather(ZLockScan *scan, Page page, ZLockList *kept)
{
	ZLockEntry	entry;
	ZXidStatus	status;

	kept->n = 0;

	while (zlockers_next(scan, &entry, &status))
	{
		OffsetNumber off = ZLOCK_OFFSET(entry);
		int			i = 0;

		if (off > PageGetMaxOffsetNumber(page) || !ItemIdIsNormal(PageGetItemId(page, off)))
			continue;
		entry &= ~ZLOCK_SURE;
		while (i < kept->n && kept->entry[i] != entry)
			i++;
		if (i == ZLOCK_MAX_ENTRIES)
			return false;
		kept->entry[i] = entry;
		kept->n = Max(kept->n, i + 1);
	}
	return true;
}

/*
 * zlocklist_record: See zdml_internal.h. An entry taken over from another
 * record is marked ZLOCK_SURE.
 */
void
zlocklist_record(const ZWriter *writer, Buffer buf, const ZSlotPick *pick, ZLockList *list,
				 ZuRecord *rec)
{
	BlockNumber block = BufferGetBlockNumber(buf);

	Assert(zc_buffer_exclusive(buf));
	Assert(list->n > 0 && list->n <= ZLOCK_MAX_ENTRIES);
	zwriter_record(writer, rec, ZUR_LOCKS, block, ZLOCK_OFFSET(list->entry[0]), InvalidUndoPtr);
	if (pick->prev != InvalidUndoPtr)
	{
		ZPageSlot	slot = {pick->hold | ZSLOT_COMMON_LOCKS, pick->prev};
		ZLockScan	scan;
		ZLockList	kept;
		bool		merge;

		zlockers_begin(&scan, &slot, zu_oldest(), writer->rel->rd_locator.relNumber, block,
					   InvalidOffsetNumber);

		/*
		 * Replace the chain's records if none of their entries matters any
		 * more, or if there are many records and what they hold fits into
		 * one.
		 */
		merge = gather(&scan, BufferGetPage(buf), &kept) &&
			(kept.n == 0 ||
			 (kept.n + list->n <= ZLOCK_MAX_ENTRIES && scan.nrecords >= MERGE_RECORDS));
		if (!merge)
		{
			rec->prev = pick->prev;
			rec->hold = pick->hold;
		}
		else
			for (int i = 0; i < kept.n; i++)
				list->entry[list->n++] = kept.entry[i] | ZLOCK_SURE;
	}
	for (int i = 0; i < list->n; i++)
		rec->hold = Max(rec->hold, ZLOCK_XID(list->entry[i]));
	/* LOCK-6 */
	Assert(rec->prev == InvalidUndoPtr || rec->hold >= pick->hold);
	rec->payload = (char *) list->entry;
	rec->payload_len = list->n * sizeof(ZLockEntry);
}
