/*
 * dml/zlocklist.c - the locks of several transactions that a page keeps in common.
 *
 * A row that moves takes its live lockers along: the mover writes their locks, as a list, into an undo record of
 * type LOCKS, and a slot of the new row's page, flagged ZSLOT_COMMON_LOCKS, points to it. Such records form a
 * chain of their own, which is no chain of changes: whoever needs to pushes on it, whatever becomes of the
 * others, for it is read as a whole. An entry counts while its locker is at work, and if the record's
 * writer has not aborted (then the row that it speaks of is not there).
 *
 * Locks: the page's, exclusively to push, at least share to read; then undo pages.
 *
 * Invariants (docs/locking.md has the reasons):
 *	L1	the slot's xid and each record's 'hold' are the youngest locker named in the record or below it,
 *		so the slot is free, and the chain may be gone, only when all of these have ended.
 *	L2	records are kept by undo's discard until 'hold' is behind the horizon (U28).
 *	L3	an entry is left out of the list only if its locker has ended, or its row has no
 *		bytes any more: then the row has moved on, and its lockers with it, or never came to be.
 */
#include "postgres.h"

#include "dml/zdml_internal.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* A chain of so many records is replaced by one. */
#define MERGE_RECORDS 8

static ZLockEntry kept[ZLOCK_MAX_ENTRIES];
static ZLockEntry payload[ZLOCK_MAX_ENTRIES];

/* Gather the entries of the chain that still matter (L3). -1: there are too many. */
static int
gather(ZLockScan *scan, Page page)
{
	ZLockEntry	entry;
	ZXidStatus	status;
	int			n = 0;

	while (zlocklist_next(scan, &entry, &status))
	{
		OffsetNumber off = ZLOCK_OFFSET(entry);
		int			i = 0;

		if (off > PageGetMaxOffsetNumber(page) || !ItemIdIsNormal(PageGetItemId(page, off)))
			continue;
		entry &= ~ZLOCK_SURE;
		while (i < n && kept[i] != entry)
			i++;
		if (i == ZLOCK_MAX_ENTRIES)
			return -1;
		kept[i] = entry;
		n = Max(n, i + 1);
	}
	return n;
}

void
zlocklist_record(const ZWriter *writer, Buffer buf, const ZSlotPick *pick, const ZLockEntry *new, int n,
				 ZuRecord *rec)
{
	BlockNumber block = BufferGetBlockNumber(buf);

	Assert(n > 0 && n <= ZLOCK_MAX_ENTRIES);
	zwriter_record(writer, rec, ZUR_LOCKS, block, ZLOCK_OFFSET(new[0]), InvalidUndoPtr);
	memcpy(payload, new, n * sizeof(ZLockEntry));
	if (pick->prev != InvalidUndoPtr)
	{
		ZPageSlot	slot = {pick->hold, pick->prev};
		ZLockScan	scan;
		int			nkept;

		zlocklist_begin(&scan, &slot, zu_oldest(), writer->rel->rd_locator.relNumber, block,
						InvalidOffsetNumber);
		nkept = gather(&scan, BufferGetPage(buf));
		if (nkept != 0 && (nkept < 0 || nkept + n > ZLOCK_MAX_ENTRIES || scan.nrecords < MERGE_RECORDS))
		{
			rec->prev = pick->prev;
			rec->hold = pick->hold;
		}
		else
			for (int i = 0; i < nkept; i++)
				payload[n++] = kept[i] | ZLOCK_SURE;
	}
	for (int i = 0; i < n; i++)
		rec->hold = Max(rec->hold, ZLOCK_XID(payload[i]));
	rec->payload = (char *) payload;
	rec->payload_len = n * sizeof(ZLockEntry);
}
