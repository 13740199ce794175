/*
 * dml/zvisible.c - the visibility map of a table, for index-only scans.
 *
 * A set bit says that every row of the page is live and visible to everybody,
 * so that an index entry's TID needs no visit of the table. The map and its
 * functions are the server's; so is the WAL record that sets a bit. Only
 * VACUUM sets bits (rule VMAP-1); whoever changes what is visible on a page
 * clears its bit first, in a WAL record of its own: it happens at most once
 * for each page between two vacuums (VMAP-2).
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "access/xloginsert.h"
#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "page/zvmap.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "utils/rel.h"

/*
 * So many locks in undo are read to find out that a slot's chain has nothing
 * else.
 */
#define MAX_LOCKS_READ 1000

/*
 * Pin the map's page that has block's bit; InvalidBuffer if there is none, as
 * after a copy of the table's file. The map may have been made or extended by
 * a VACUUM beside the running statement, which learns of that between
 * statements only (VMAP-4): where the size that is remembered says that there
 * is no page, ask the file system.
 */
static Buffer
pin_map(Relation rel, BlockNumber block)
{
	Buffer		map = InvalidBuffer;

	(void) visibilitymap_get_status(rel, block, &map);
	if (BufferIsValid(map))
		return map;
	RelationGetSmgr(rel)->smgr_cached_nblocks[VISIBILITYMAP_FORKNUM] = InvalidBlockNumber;
	(void) visibilitymap_get_status(rel, block, &map);
	return map;
}

void
zvisible_clear(Relation rel, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	Buffer		map;
	bool		cleared;

	if (likely(!PageIsAllVisible(page)))
		return;
	map = pin_map(rel, block);
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

/*
 * Has every change that is in the slot's chain been made before `oldest`
 * (VMAP-1)? Its locks change nothing.
 */
static bool
changes_are_old(Relation rel, BlockNumber block, const ZPageSlot *slot, ZXid oldest)
{
	char		bytes[ZUR_MAX_LENGTH];
	ZChain		chain;
	ZuRecord	rec;

	if (zpage_slot_writer(slot) < oldest)
		return !(zslot_xid(slot) & ZXID_LOST);
	zchain_begin(&chain, rel->rd_locator.relNumber, block, slot, ZCHAIN_LOCKED, oldest, bytes);
	for (int n = 0; n < MAX_LOCKS_READ; n++)
	{
		ZChainStep	step = zchain_next(&chain, &rec);

		if (step == ZCHAIN_END || step == ZCHAIN_SETTLED)
			return true;
		if (step == ZCHAIN_RETRY || rec.type != ZUR_LOCK)
			return false;
	}
	return false;
}

/* Is every row of the page live and visible to everybody (VMAP-1)? */
static bool
shows_all(Relation rel, BlockNumber block, Page page)
{
	ZXid		oldest = zpage_oldest(page);

	if (zpage_has_overflow(page) || !zpage_all_live(page))
		return false;
	for (int i = 1; i <= zpage_nslots(page); i++)
		if (!changes_are_old(rel, block, zpage_slot(page, i), oldest))
			return false;
	return true;
}

void
zheap_mark_all_visible(Relation rel, Buffer buf, Buffer map)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);

	if (PageIsNew(page) || !shows_all(rel, block, page))
		return;
	if (PageIsAllVisible(page) &&
		(visibilitymap_get_status(rel, block, &map) & VISIBILITYMAP_ALL_VISIBLE) != 0)
		return;
	PageSetAllVisible(page);
	MarkBufferDirty(buf);

	/*
	 * no conflict on standbys: the record that advanced `oldest` has raised
	 * it
	 */
	visibilitymap_set(rel, block, buf, InvalidXLogRecPtr, map, InvalidTransactionId,
					  VISIBILITYMAP_ALL_VISIBLE);
}
