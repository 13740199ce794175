/*
 * dml/zvisible.c - the visibility map of a table, for index-only scans.
 *
 * A set bit says that every row of the page is live and visible to everybody, so that an index
 * entry's TID needs no visit of the table. The map and its functions are the server's; so
 * is the WAL record that sets a bit. Only VACUUM sets bits (rule VM1); whoever changes what
 * is visible on a page clears its bit first, in a WAL record of its own: it happens at most once
 * for each page between two vacuums (VM2).
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "access/xloginsert.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "page/zvmap.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

void
zvisible_clear(Relation rel, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	Buffer		map = InvalidBuffer;
	bool		cleared;

	if (likely(!PageIsAllVisible(page)))
		return;
	/* pins the map's page; there may be none, after a copy of the table's file */
	(void) visibilitymap_get_status(rel, block, &map);
	if (BufferIsValid(map))
		LockBuffer(map, BUFFER_LOCK_EXCLUSIVE);

	START_CRIT_SECTION();
	PageClearAllVisible(page);
	MarkBufferDirty(buf);
	cleared = BufferIsValid(map) && zvmap_clear(BufferGetPage(map), block);
	if (cleared)
		MarkBufferDirty(map);
	if (RelationNeedsWAL(rel))
	{
		xl_zheap_mark xlrec = {InvalidOffsetNumber, ZMARK_NOT_ALL_VISIBLE};
		XLogRecPtr	recptr;

		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfZheapMark);
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
		if (cleared)
			XLogRegisterBuffer(1, map, 0);
		recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_MARK);
		PageSetLSN(page, recptr);
		if (cleared)
			PageSetLSN(BufferGetPage(map), recptr);
	}
	END_CRIT_SECTION();
	if (BufferIsValid(map))
		UnlockReleaseBuffer(map);
}

void
zheap_mark_all_visible(Relation rel, Buffer buf, Buffer map)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);

	if (PageIsNew(page) || !zpage_shows_all(page, zpage_oldest(page)))
		return;
	if (PageIsAllVisible(page) &&
		(visibilitymap_get_status(rel, block, &map) & VISIBILITYMAP_ALL_VISIBLE) != 0)
		return;
	PageSetAllVisible(page);
	MarkBufferDirty(buf);
	/* no conflict on standbys: the record that advanced `oldest` has raised it */
	visibilitymap_set(rel, block, buf, InvalidXLogRecPtr, map, InvalidTransactionId,
					  VISIBILITYMAP_ALL_VISIBLE);
}
