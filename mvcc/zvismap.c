/*
 * mvcc/zvismap.c - the visibility map of a table, for index-only scans.
 *
 * A set bit says that every row of the page is live and visible to all, so
 * that an index entry's TID needs no visit of the table. The map is the
 * server's; the WAL records that change its bits are zundo's, on all versions.
 * VACUUM sets bits, and so do scans of statements that do not change the table.
 *
 * Locks: the table page exclusively, then the map's page.
 *
 *	VMAP-1	A bit of the visibility map, and the page's flag PD_ALL_VISIBLE
 *		with it, is set only when every row is live, was last changed before
 *		`oldest` and has no stale index keys (ZBTREE-7), and there is no other
 *		line pointer in use. An index-only scan then takes the row from the
 *		index (ZBTREE-14). Before `oldest` means visible to every snapshot, on
 *		standbys too. VACUUM sets it, or a reader (mark_by_reader), in
 *		spite of:
 *		(a) A slot that holds only locks, inline or common: rows that name it
 *			were last changed before `oldest` (PAGE-9).
 *		(b) A chain with nothing but LOCK records down to its end, to a record
 *			before `oldest`, or to one that is gone: the author of a row is the
 *			newest change of its offset in the chain (VIS-2), and the chain has
 *			none. Whatever is below a record before `oldest` is visible to all
 *			(VIS-3), and so is what has been discarded behind a chain's head
 *			(VIS-4). If the head itself has been discarded, a rollback of this
 *			page may be in progress, and no bit is set.
 *		(c) Rows that name the slots of an overflow page that was taken away:
 *			every slot on it was older than `oldest` then (OVERFLOW-1 in
 *			zoverflow_attach.c). Slots of the same numbers that came later hold
 *			no record of these rows (VIS-2). While there is an overflow page,
 *			no bit is set.
 *		Example: `oldest` is 100, all rows are of 90, and 120 holds a lock on
 *		one, by a LOCK record above 90's: the bit is set.
 *	VMAP-2	A change of what is visible on a flagged page clears flag and bit,
 *		in the same critical section and with the same WAL record, which names
 *		the map's page too (zvismap_clear_in, ZWAL_MAP_BLOCK). So the bit is
 *		cleared before the transaction commits: the snapshot of an index-only
 *		scan that finds the bit still set does not see the change.
 *		(a) A move to another page clears both pages' bits beforehand, each
 *			with a WAL record of its own (zvismap_clear, ZWAL_MARK).
 *		(b) Row locks change nothing that a snapshot sees and leave both set. A
 *			lock that needs an overflow page clears them, so that VACUUM finds
 *			the page.
 *		Example: an index-only scan finds the bit set, and 130 updates the row
 *		right after. 130 was in progress, so the scan's snapshot, which is
 *		older than the look at the bit, sees the row as the index has it.
 *	VMAP-3	Flag and bit are set in one WAL record (ZWAL_MARK), and both pages
 *		get its LSN. So neither reaches the disk before the WAL that justifies
 *		it: the advance of `oldest`, and the commits of the rows' authors. The
 *		page's list of what it has saved ends with the flag (SAVED-2). A
 *		flag may stand without its bit, as after a copy of the table's file
 *		without its map; the next change clears it. No reader looks at the
 *		flag: rows are judged by their slots.
 */
#include "postgres.h"

#include "access/visibilitymap.h"
#include "access/xloginsert.h"
#include "change/zchange.h"
#include "change/zwal.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "mvcc/ztrail.h"
#include "mvcc/zvismap.h"
#include "page/zvmap.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/fsm_internals.h"
#include "storage/smgr.h"
#include "utils/rel.h"

/*
 * At most this many LOCK records are read to find out that a slot's chain has
 * nothing else.
 */
#define MAX_LOCKS_READ 1000

/*
 * Returns the map's page that has block's bit, pinned, or InvalidBuffer if
 * there is none, as after a copy of the table's file. A VACUUM may have made or
 * extended the map since the running statement began, and the session's cached
 * size of the map is updated between statements only. So where that size
 * says that there is no page, the size is read from the file system. The map is
 * not extended here: that takes a lock for which no process may wait while it
 * holds a page's lock.
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

/*
 * Logs that the flag of the table page in 'buf' has changed, and its bit on
 * the map's page in 'map', if that is valid. Both are locked exclusively,
 * changed and marked dirty; for critical sections.
 */
static void
log_visibility(Buffer buf, Buffer map, uint8 what)
{
	xl_zheap_mark xlrec = {InvalidOffsetNumber, what};
	XLogRecPtr	recptr;

	Assert(CritSectionCount > 0);
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfZheapMark);
	XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
	if (BufferIsValid(map))
		XLogRegisterBuffer(ZWAL_MAP_BLOCK, map, 0);
	recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_MARK);
	PageSetLSN(BufferGetPage(buf), recptr);
	if (BufferIsValid(map))
		PageSetLSN(BufferGetPage(map), recptr);
}

/*
 * zvismap_clear: See zvismap.h. Looks at the page's own flag, which is
 * cheap, and touches the map only if the flag is set.
 */
void
zvismap_clear(Relation rel, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	Buffer		map;
	bool		cleared;

	Assert(zc_buffer_exclusive(buf));
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
		log_visibility(buf, cleared ? map : InvalidBuffer, ZMARK_NOT_ALL_VISIBLE);
	END_CRIT_SECTION();
	if (BufferIsValid(map))
		UnlockReleaseBuffer(map);
}

/*
 * zvismap_clear_in: See zvismap.h. The bit cannot change meanwhile, since
 * the table page is locked.
 */
void
zvismap_clear_in(Relation rel, ZChange *change)
{
	BlockNumber block = BufferGetBlockNumber(change->page[0].buf);
	Buffer		map;

	Assert(zc_buffer_exclusive(change->page[0].buf) && !BufferIsValid(change->page[1].buf));
	if (likely(change->page[0].init || !PageIsAllVisible(change->page[0].page)))
		return;
	change->was_visible = true;
	map = pin_map(rel, block);
	if (visibilitymap_get_status(rel, block, &map) != 0)
		change->map = map;
	else if (BufferIsValid(map))
		ReleaseBuffer(map);
}

/*
 * Returns whether every change in the slot's chain was made before `oldest`
 * (VMAP-1). Locks change nothing and do not count.
 */
static bool
changes_are_old(Relation rel, BlockNumber block, const ZPageSlot *slot, ZXid oldest)
{
	ZSlotAge	age = zslot_age(slot, oldest);
	char		bytes[ZUR_MAX_LENGTH];
	ZHeaders	headers;
	ZChain		chain;
	ZuRecord	rec;

	if (age != ZAGE_YOUNG)
		return age != ZAGE_LOST;
	zchain_begin_locked(&chain, rel->rd_locator.relNumber, block, slot, oldest, bytes);
	zheaders_start(&headers);
	for (int n = 0; n < MAX_LOCKS_READ; n++)
	{
		ZChainStep	step = zheaders_next(&chain, &headers, &rec);

		if (step == ZCHAIN_END || step == ZCHAIN_SETTLED)
			return true;
		if (step == ZCHAIN_RETRY || rec.type != ZUR_LOCK)
			return false;
	}
	return false;
}

/* Returns whether every row of the page is live and visible to all (VMAP-1). */
static bool
shows_all(Relation rel, BlockNumber block, Page page)
{
	ZXid		oldest = zslots_oldest(page);

	if (zpage_has_overflow(page) || !zpage_all_live(page) || zpage_stale_keys(page, NULL) > 0)
		return false;
	for (int i = 1; i <= zpage_nslots(page); i++)
		if (!changes_are_old(rel, block, zpage_slot(page, i), oldest))
			return false;
	return true;
}

/*
 * Sets flag and bit in one WAL record (VMAP-3). Returns false if both were set
 * already. The page is locked exclusively and shows all; map is pinned. Raises
 * an error if map is not the map's page that has the bit.
 */
static bool
set_visible(Relation rel, Buffer buf, Buffer map)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);

	Assert(zc_buffer_exclusive(buf));
	if (!visibilitymap_pin_ok(block, map))
		elog(ERROR, "the pinned page of the visibility map is not that of block %u", block);
	if (PageIsAllVisible(page) &&
		(visibilitymap_get_status(rel, block, &map) & VISIBILITYMAP_ALL_VISIBLE) != 0)
		return false;
	LockBuffer(map, BUFFER_LOCK_EXCLUSIVE);

	/*
	 * no snapshot conflict on standbys is needed: the record that advanced
	 * `oldest` has caused it
	 */
	START_CRIT_SECTION();
	zpage_set_all_visible(page);
	MarkBufferDirty(buf);
	zvmap_set(BufferGetPage(map), block);
	MarkBufferDirty(map);
	if (RelationNeedsWAL(rel))
		log_visibility(buf, map, ZMARK_ALL_VISIBLE);
	END_CRIT_SECTION();
	LockBuffer(map, BUFFER_LOCK_UNLOCK);
	return true;
}

bool
zvismap_mark(Relation rel, Buffer buf, Buffer map)
{
	Page		page = BufferGetPage(buf);

	return !PageIsNew(page) && shows_all(rel, BufferGetBlockNumber(buf), page) &&
		set_visible(rel, buf, map);
}

/* ---- by readers ---- */

/*
 * Returns whether the page has so little space that a reader may set its bit:
 * else an insertion would soon clear it. The measure is heap's. A page may also
 * have as many line pointers as it can have.
 */
static bool
is_full(Relation rel, Page page)
{
	Size		kept_free = RelationGetTargetPageFreeSpace(rel, HEAP_DEFAULT_FILLFACTOR);

	return PageGetMaxOffsetNumber(page) >= ZHEAP_MAX_OFFSET ||
		zpage_hole(page) < (int) Max(kept_free, BLCKSZ / 10);
}

/*
 * Returns whether the page may show all, as far as the scan's copy of it
 * tells. If not, the page need not be locked. A copy of single rows
 * (view->read) is not searched for stale keys.
 */
static bool
looks_visible(ZPageView *view)
{
	if (view->dead_rows > 0)
		return false;
	for (int i = 1; i <= view->slots.n; i++)
		if (zslot_age(&view->slots.s[i], view->slots.oldest) > ZAGE_LOCKS)
			return false;
	return view->read != NULL || zpage_stale_keys(view->page.data, NULL) == 0;
}

/*
 * Returns whether no slot of the page has changes of a transaction that is not
 * before `oldest`. If the page is not locked, that is a hint.
 */
static bool
slots_are_old(Page page)
{
	ZXid		oldest = zslots_oldest(page);
	int			n = Min(zpage_nslots(page), ZPAGE_MAX_SLOTS);
	const ZPageSlot *slot = zpage_slot(page, 1);

	/* slots of higher numbers are at lower addresses */
	for (int i = 0; i < n; i++)
	{
		ZPageSlot	copy = slot[-i];

		if (zslot_age(&copy, oldest) > ZAGE_LOCKS)
			return false;
	}
	return true;
}

/*
 * Returns false if the WAL record that sets the bit would contain an image of
 * the page that no reader of a heap page would cause: heap's readers cause one
 * only where hint bits are logged (XLogHintBitIsNeeded). If the page is not
 * locked, the answer is a hint. The server's XLogCheckBufferNeedsBackup does
 * not know better until the session has written WAL. The last question takes a
 * spinlock, so it is asked only if the session's copy of the answer allows it.
 */
static bool
may_write_image(Relation rel, Page page)
{
	XLogRecPtr	redo;
	bool		unused;

	if (!RelationNeedsWAL(rel) || XLogHintBitIsNeeded() || !fullPageWrites)
		return true;
	GetFullPageWriteInfo(&redo, &unused);
	return PageGetLSN(page) > redo && PageGetLSN(page) > GetRedoRecPtr();
}

/*
 * Sets the bit of the page, which is locked exclusively, if the page shows all
 * (VMAP-1), which must be certain without reading undo, so no slot may have
 * changes of a transaction that is not before `oldest`. The page must be
 * nearly full, as on heap, so that the next insertion does not clear the bit
 * again. A page whose WAL record would cause a page image is left to VACUUM,
 * but with data checksums or wal_log_hints, where a hint bit of heap would do
 * so, too. A standby replays the record after the conflict that the advance of
 * `oldest` has caused. Returns whether it has set the bit.
 */
static bool
mark_by_reader(Relation rel, Buffer buf, Buffer map)
{
	Page		page = BufferGetPage(buf);

	Assert(zc_buffer_exclusive(buf));
	return zpage_is_valid(page) && is_full(rel, page) && slots_are_old(page) &&
		may_write_image(rel, page) && zpage_rows_ok(page) &&
		shows_all(rel, BufferGetBlockNumber(buf), page) && set_visible(rel, buf, map);
}

bool
zvismap_has_space_entry(Relation rel, BlockNumber block)
{
	SMgrRelation smgr = RelationGetSmgr(rel);
	BlockNumber leaf = block / SlotsPerFSMPage;

	/*
	 * The page is preceded by those of the leaves before it, and by the pages
	 * of the two upper levels that lie before these
	 * (src/backend/storage/freespace/README).
	 */
	return smgrexists(smgr, FSM_FORKNUM) &&
		smgrnblocks(smgr, FSM_FORKNUM) >
		leaf + leaf / SlotsPerFSMPage + leaf / SlotsPerFSMPage / SlotsPerFSMPage + 2;
}

/*
 * zvismap_after_read: See zvismap.h. Looks at the page first without its
 * lock, for a page that gets no bit is read again and again: if what it sees is
 * out of date, the page is locked in vain, or the bit is left to the next
 * reader. Gives up if the page is locked by another process, or if the map has
 * no page for the bit: a reader extends no file, since it must not fail where
 * the disk is full. If the bit has been set, enters the page's free space in
 * the free space map, if that has its page, since VACUUM may skip the page from
 * now on.
 */
void
zvismap_after_read(Relation rel, Buffer buf, ZPageView *view)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	Buffer		map = InvalidBuffer;
	Size		space = 0;
	bool		marked = false;

	Assert(zc_buffer_unlocked(buf));
	if (PageIsAllVisible(page) || !zpage_is_valid(page) || !is_full(rel, page) ||
		RecoveryInProgress() || !(view != NULL ? looks_visible(view) : slots_are_old(page)) ||
		!may_write_image(rel, page))
		return;
	(void) visibilitymap_get_status(rel, block, &map);
	if (!BufferIsValid(map))
		return;
	if (ConditionalLockBuffer(buf))
	{
		marked = mark_by_reader(rel, buf, map);
		if (marked)
			space = Max(zpage_hole(page), 0);
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	}
	ReleaseBuffer(map);
	if (marked)
	{
		zcount_table(rel);
		zcount(ZCOUNT_MARKED, 1);
	}
	if (marked && zvismap_has_space_entry(rel, block))
		RecordPageWithFreeSpace(rel, block, zpage_space_for_map(space));
}
