/*
 * undo/undo_truncate.c - giving back the free tail of zundo.undo_log.
 *
 * Called by the undo worker. Lowers the limit first, so that no process reaches
 * the extents at the end, and then cuts the file off, without an LWLock.
 *
 * Locks: alloc lock -> each fence in turn, released -> meta page; then none
 * while the file is cut off (ZuEntry.truncator is set).
 *
 * Crash points
 *	between TRUNCATE and the file's truncation	blocks beyond the limit stay;
 *												the next call cuts them off
 *
 * Invariant
 *	UNDO-70	WAL names each block before it is cut off. Extents are freed
 *		without a change of their pages, so no other record since their last
 *		write names these; and pg_rewind copies only blocks that WAL names, and
 *		the tail of a file that is shorter than the source's. A file that was
 *		cut off and has grown again would have pages of zeros where the source
 *		has undo that it still needs.
 */
#include "undo/undo_internal.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "access/xlogrecord.h"
#include "catalog/storage.h"
#include "miscadmin.h"

/*
 * Returns the number of extents up to the highest one in use, at least
 * ZU_MIN_EXTENTS. Alloc lock held.
 */
static uint32
extents_needed(ZuEntry *entry)
{
	uint32		extent = pg_atomic_read_u32(&entry->limit);

	Assert(LWLockHeldByMe(zu_alloc_lock(entry)));
	while (extent > 0)
	{
		uint32		group = (extent - 1) / ZU_GROUP_EXTENTS * ZU_GROUP_EXTENTS;
		Buffer		buf = zu_twins_share(zu_map_block(extent - 1));
		bool		found = false;

		while (extent > group && !found)
		{
			found = zu_map_entry(BufferGetPage(buf), extent - 1)->state != ZU_EXTENT_FREE;
			if (!found)
				extent--;
		}
		UnlockReleaseBuffer(buf);
		if (found)
			break;
	}
	return Max(extent, ZU_MIN_EXTENTS);
}

/*
 * Returns the newest generation among 'floor' and the extents of those groups
 * that are cut off entirely when 'nextents' of 'limit' extents remain
 * (UNDO-6).
 */
static uint32
newest_generation(uint32 nextents, uint32 limit, uint32 floor)
{
	uint32		group = (nextents + ZU_GROUP_EXTENTS - 1) / ZU_GROUP_EXTENTS * ZU_GROUP_EXTENTS;

	Assert(nextents < limit);
	for (; group < limit; group += ZU_GROUP_EXTENTS)
	{
		Buffer		buf = zu_twins_share(zu_map_block(group));

		for (uint32 i = 0; i < ZU_GROUP_EXTENTS; i++)
		{
			uint32		generation = zu_map_entry(BufferGetPage(buf), i)->generation;

			if (generation != 0 && (floor == 0 || zu_generation_newer(generation, floor)))
				floor = generation;
		}
		UnlockReleaseBuffer(buf);
	}
	return floor;
}

/*
 * Lowers the limit to nextents, in shared memory, on the meta page and in WAL.
 * Alloc lock held. If the meta page cannot be locked, the old limit is restored
 * and the error raised.
 */
static void
lower_limit(ZuEntry *entry, uint32 nextents, BlockNumber nblocks)
{
	ZuTwins		meta;
	xl_undo_truncate xlrec = {0};
	XLogRecPtr	recptr;
	uint32		limit = pg_atomic_read_u32(&entry->limit);

	Assert(LWLockHeldByMe(zu_alloc_lock(entry)));
	Assert(nblocks == zu_nblocks_for(nextents));
	zu_twins_lock(&meta, ZU_META_BLOCK);
	zu_heal_limit(&meta);
	xlrec.floor = zu_meta(zu_twins_page(&meta))->floor;
	zu_twins_unlock(&meta);

	/*
	 * the alloc lock keeps other processes from changing the floor and the
	 * map's generations
	 */
	xlrec.floor = newest_generation(nextents, limit, xlrec.floor);

	zu_lower_limit(entry, nextents);

	PG_TRY();
	{
		zu_twins_lock(&meta, ZU_META_BLOCK);
	}
	PG_CATCH();
	{
		/*
		 * everything is as before, also the floor, which the next growth uses
		 * (UNDO-6)
		 */
		pg_atomic_write_u32(&entry->limit, limit);
		PG_RE_THROW();
	}
	PG_END_TRY();
	xlrec.nextents = nextents;
	xlrec.nblocks = nblocks;
	START_CRIT_SECTION();
	zu_meta(zu_twins_page(&meta))->nextents = nextents;
	zu_meta(zu_twins_page(&meta))->floor = xlrec.floor;
	zu_twins_changed(&meta);
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfUndoTruncate);
	zu_twins_register(&meta, 0, 0);
	recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_UNDO_TRUNCATE);
	zu_twins_set_lsn(&meta, recptr);
	END_CRIT_SECTION();
	zu_twins_unlock(&meta);
}

/*
 * Logs the numbers of the blocks from 'from' up to, but not including, 'to',
 * in records that replay passes over (UNDO-70). Not at wal_level = minimal,
 * which allows no standby that could be promoted, nor if
 * wal_consistency_checking would add an image of each block.
 */
static void
name_blocks(RelFileLocator locator, BlockNumber from, BlockNumber to)
{
	PGAlignedBlock none = {0};	/* no image is made of it */

	Assert(!LWLockHeldByMe(zu_alloc_lock(zu_my.entry)));
	if (!XLogIsNeeded() || wal_consistency_checking[ZUNDO_RMGR_ID])
		return;
	while (from < to)
	{
		int			n = (int) Min(to - from, XLR_MAX_BLOCK_ID + 1);

		CHECK_FOR_INTERRUPTS();
		XLogEnsureRecordSpace(XLR_MAX_BLOCK_ID, 0);
		XLogBeginInsert();
		for (int i = 0; i < n; i++)
			XLogRegisterBlock(i, &locator, MAIN_FORKNUM, from + i, none.data, REGBUF_WILL_INIT);
		(void) XLogInsert(ZUNDO_RMGR_ID, ZWAL_UNDO_TRUNCATE);
		from += n;
	}
}

/*
 * Cuts the file off behind nblocks with the server's own truncation, which
 * writes its WAL record and takes care of checkpoints in between. It may take
 * long for a large file, so no LWLock is held: allocations below the limit
 * continue, growth waits (zu_growth_must_wait), and no process reads there any
 * more. Gives the truncator flag back,
 * also in case of an error.
 */
static void
cut_file(Relation rel, BlockNumber nblocks)
{
	Assert(pg_atomic_read_u32(&zu_my.entry->truncator) == (uint32) MyProcPid);	/* UNDO-4c */
	Assert(!LWLockHeldByMe(zu_alloc_lock(zu_my.entry)));
	PG_TRY();
	{
		name_blocks(rel->rd_locator, nblocks, smgrnblocks(RelationGetSmgr(rel), MAIN_FORKNUM));
		ZUNDO_FAULT("truncate");
		RelationTruncate(rel, nblocks);
	}
	PG_CATCH();
	{
		zu_end_truncation(zu_my.entry);
		PG_RE_THROW();
	}
	PG_END_TRY();
	zu_end_truncation(zu_my.entry);
}

/*
 * Lowers the limit to the extents in use and sets the truncator flag. Returns
 * the number of blocks that remain; the caller must call cut_file then. Blocks
 * beyond the limit, left by a truncation or an extension that has failed, are
 * cut off, too. Returns InvalidBlockNumber if there is nothing to cut off, or
 * the relation was created in this transaction.
 */
static BlockNumber
give_up_tail(ZuEntry *entry, Relation rel)
{
	BlockNumber nblocks = InvalidBlockNumber;
	uint32		needed;
	uint32		limit;

	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	needed = extents_needed(entry);
	limit = pg_atomic_read_u32(&entry->limit);
	if (rel->rd_createSubid == InvalidSubTransactionId &&
		pg_atomic_read_u32(&entry->truncator) == 0 &&
		(needed < limit ||
		 smgrnblocks(RelationGetSmgr(rel), MAIN_FORKNUM) > zu_nblocks_for(Max(needed, limit))))
	{
		needed = Min(needed, limit);
		nblocks = zu_nblocks_for(needed);
		if (needed < limit)
			lower_limit(entry, needed, nblocks);
		pg_atomic_write_u32(&entry->truncator, (uint32) MyProcPid);
		if (pg_atomic_read_u32(&entry->hint) > needed)
			pg_atomic_write_u32(&entry->hint, needed);
	}
	LWLockRelease(zu_alloc_lock(entry));
	return nblocks;
}

/*
 * zu_truncate_tail: See undo.h. Keeps AccessShareLock on the relation to the
 * end of the transaction.
 */
void
zu_truncate_tail(void)
{
	Relation	rel;
	BlockNumber nblocks;

	zu_attach_database();
	if (RecoveryInProgress())
		return;
	zu_require_logs();
	rel = table_open(zu_my.reloid, AccessShareLock);
	nblocks = give_up_tail(zu_my.entry, rel);
	if (nblocks != InvalidBlockNumber)
		cut_file(rel, nblocks);
	table_close(rel, NoLock);
}
