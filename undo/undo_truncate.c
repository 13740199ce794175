/*
 * undo/undo_truncate.c - giving back the free tail of zundo.undo_log.
 *
 * Called by the undo worker. Takes the extents at the end out of everybody's
 * reach first, and then cuts the file off, without an LWLock.
 *
 * Locks: alloc lock -> all fences, released -> meta page; then none while the
 * file is cut off (ZuEntry.truncator is set).
 *
 * Crash points
 *	between TRUNCATE and the file's truncation	blocks beyond the limit stay;
 *												the next call cuts them off
 */
#include "undo/undo_internal.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xloginsert.h"
#include "catalog/storage.h"
#include "miscadmin.h"

/*
 * extents_needed: number of extents up to the highest one in use. Alloc lock
 * held.
 */
static uint32
extents_needed(ZuEntry *entry)
{
	uint32		extent = pg_atomic_read_u32(&entry->limit);

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
 * newest_generation: the newest one of floor and of the whole groups that are
 * cut off when 'nextents' of 'limit' remain (UNDO-41).
 */
static uint32
newest_generation(uint32 nextents, uint32 limit, uint32 floor)
{
	uint32		group = (nextents + ZU_GROUP_EXTENTS - 1) / ZU_GROUP_EXTENTS * ZU_GROUP_EXTENTS;

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
 * lower_limit: readers, meta page and WAL agree that extents from nextents on
 * are no more.
 */
static void
lower_limit(ZuEntry *entry, uint32 nextents, BlockNumber nblocks)
{
	ZuTwins		meta;
	xl_undo_truncate xlrec = {0};
	XLogRecPtr	recptr;
	uint32		limit = pg_atomic_read_u32(&entry->limit);
	Buffer		buf = zu_twins_share(ZU_META_BLOCK);

	xlrec.floor = zu_meta(BufferGetPage(buf))->floor;
	UnlockReleaseBuffer(buf);
	/* the alloc lock keeps the floor and the map's generations as they are */
	xlrec.floor = newest_generation(nextents, limit, xlrec.floor);

	/*
	 * nobody who has looked at the old limit still reads when we get the
	 * fences
	 */
	zu_fences_acquire(entry);
	pg_atomic_write_u32(&entry->limit, nextents);
	zu_fences_release(entry);

	PG_TRY();
	{
		zu_twins_lock(&meta, ZU_META_BLOCK);
	}
	PG_CATCH();
	{
		/*
		 * all is as before, the floor too, which the next growth goes by
		 * (UNDO-41)
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
 * cut_file: cuts the file off behind nblocks. The server's own truncation: its
 * WAL record, its care for checkpoints in between. It takes its time with a
 * large file, so no LWLock is held: allocations below the limit go on, growth
 * waits (zu_growth_must_wait), and nobody reads there any more. Returns the
 * number of blocks given back.
 */
static BlockNumber
cut_file(Relation rel, BlockNumber nblocks)
{
	volatile BlockNumber given = 0;

	PG_TRY();
	{
		given = smgrnblocks(RelationGetSmgr(rel), MAIN_FORKNUM) - nblocks;
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
	return given;
}

/*
 * Takes the free extents at the end out of the log's reach. Returns the number
 * of blocks that remain, or InvalidBlockNumber if there is nothing to cut off;
 * else cut_file must be called. Blocks beyond the limit, left by a truncation
 * or an extension that has failed, are cut off too.
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

BlockNumber
zu_truncate_tail(void)
{
	Relation	rel;
	BlockNumber nblocks;
	BlockNumber given = 0;

	zu_attach_database();
	if (RecoveryInProgress())
		return 0;
	zu_require_logs();
	rel = table_open(zu_my.reloid, AccessShareLock);
	nblocks = give_up_tail(zu_my.entry, rel);
	if (nblocks != InvalidBlockNumber)
		given = cut_file(rel, nblocks);
	table_close(rel, NoLock);
	return given;
}
