/*
 * scan/zdoubt.c - the versions of a row that another transaction is changing,
 * as searches with a Dirty snapshot need them (SCAN-7).
 *
 * Called by sequential scans and index fetches, after they have shown the
 * newest version. Reads a private copy of the page; the page's share lock is
 * held only while it is copied. Nothing is written.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "mvcc/zhistory.h"
#include "scan/zscan_internal.h"
#include "tuple/ztts.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* zdoubt_begin: See zscan_internal.h. */
void
zdoubt_begin(ZDoubt *doubt, TupleTableSlot *slot)
{
	Assert(TTS_IS_ZHEAP(slot));
	doubt->shown = ((ZHeapSlot *) slot)->author;
	doubt->loaded = false;
	doubt->more = true;
}

/*
 * Loads the page into doubt->history, which is created in the memory of owner
 * if there is none. Returns false for a page that was never written.
 */
static bool
load(ZDoubt *doubt, Relation rel, Buffer buf, void *owner)
{
	if (doubt->history == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(GetMemoryChunkContext(owner));

		doubt->history = zhistory_create(rel, zxid_to_xid(zu_oldest()));
		MemoryContextSwitchTo(old);
	}
	return zhistory_load(doubt->history, buf) != NULL;
}

/*
 * Goes to the next version, at first to the newest. Begins again with a new
 * copy of the page if undo that the copy needs has been discarded. Returns
 * false if there is none.
 */
static bool
step(ZDoubt *doubt, Relation rel, Buffer buf, OffsetNumber off, void *owner,
	 ZHistoryVersion *version)
{
	ZHistoryResult result = ZHISTORY_RETRY;

	if (doubt->loaded)
		result = zhistory_next(doubt->history, version);
	while (result == ZHISTORY_RETRY)
	{
		CHECK_FOR_INTERRUPTS();
		if (!load(doubt, rel, buf, owner))
			return false;
		doubt->loaded = true;
		result = zhistory_first(doubt->history, off, version);
	}
	return result == ZHISTORY_VERSION;
}

/*
 * zdoubt_next: See zscan_internal.h. The status of each author is asked for
 * when its version is reached. If the transaction commits meanwhile, the next
 * version is taken for the committed one and is the last one shown; that the
 * caller waits for a transaction that has ended is harmless.
 */
bool
zdoubt_next(ZDoubt *doubt, Relation rel, Buffer buf, OffsetNumber off, void *owner,
			TupleTableSlot *slot)
{
	ZHistoryVersion version;

	while (doubt->more && step(doubt, rel, buf, off, owner, &version))
	{
		ItemPointerData tid;

		doubt->more = !version.settled && version.status == ZXID_IN_PROGRESS;
		if (!version.live || (!version.settled && version.author == doubt->shown))
			continue;
		ItemPointerSet(&tid, BufferGetBlockNumber(buf), off);
		ztts_store_copy(slot, version.row, version.len, &tid, RelationGetRelid(rel));
		ztts_set_author(slot, version.xid,
						version.settled ? FirstCommandId : zhistory_record(doubt->history)->cid,
						version.author);
		return true;
	}
	doubt->more = false;
	return false;
}

/* zdoubt_end: See zscan_internal.h. */
void
zdoubt_end(ZDoubt *doubt)
{
	if (doubt->history != NULL)
		zhistory_free(doubt->history);
	doubt->history = NULL;
}
