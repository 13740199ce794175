/*
 * undo/damage/undo_mend.c - meta page, map and file when storage has lost
 * writes that the twins do not show.
 *
 * If both twins of a pair have missed the same writes, they are equal. Other
 * pages show it: a map page knows of an extent that the meta page does not
 * count, or an extent's pages know of an allocation that the map does not. Or
 * the file has lost its end. Owns the comparison of these, raising the number
 * of extents, and extending a file that is too short. Called when the meta page
 * and the logs are loaded, and by undo_repair.c.
 *
 * What is done without being asked loses nothing: the number of extents is
 * raised, never lowered, and the file is extended by blocks that hold no data.
 * A map page is made anew by zundo.repair_undo only.
 *
 * Locks: the load lock, under which nobody else uses a log that is not loaded;
 * map page (share), then, without it, meta page. Alloc lock not needed.
 *
 * Crash points: none. The number of extents is one WAL record; the file is
 * extended without WAL, and extended again at the next load.
 *
 * Invariant
 *	UNDO-71	what shows that meta page, map or file have missed writes:
 *		(a) each map entry of an extent at or beyond nextents is FREE, and no
 *			page there is of a later allocation than its map page knows, or the
 *			floor if there is no map page: the file is cut off behind the last
 *			extent in use, and an extent at the limit is taken together with
 *			the new limit. If this is not so, the meta page has missed writes
 *			(or the map page has, and then it keeps an extent that nobody
 *			needs).
 *		(b) A file that is too short is extended, without being asked, only by
 *			blocks that hold no data: those of extents that the map calls free,
 *			and those behind the page where the data of a log's extent end,
 *			which is there and not full.
 *		(c) Logs are loaded from map pages only if no extent's pages say that
 *			the map has missed writes.
 *		Example: the meta page counts 3 extents, and the map assigns extent 4
 *		to log 1: the count becomes 5. The map calls extent 2 free, and its
 *		first page is of a later generation: loading fails.
 */
#include "undo/undo_internal.h"
#include "undo/undo_overflow.h"

#include "access/xloginsert.h"
#include "miscadmin.h"

/*
 * How far the generation that replaces one that may be lost is ahead of those
 * that are known: half of what still counts as newer (zu_generation_newer).
 */
#define GENERATION_LEAP		(1U << (ZU_GENERATION_BITS - 2))

/* ---- the number of extents ---- */

/*
 * Returns whether the first page of an extent says that the extent was taken
 * later than its map entry knows; without a valid map page, later than with the
 * floor, where the generations of a new group begin.
 */
static bool
was_taken(uint32 extent, const ZuMapEntry *map, uint32 floor)
{
	ZuMapEntry	none = {.generation = floor};
	PGAlignedBlock copy;
	bool		damaged;
	const char *what;

	zu_copy_block(zu_extent_block(extent), copy.data, &damaged);
	return !damaged &&
		zu_misfit(extent, map != NULL ? map : &none, (Page) copy.data, &what) == ZU_MAP_STALE;
}

/*
 * zu_claimed_extents: See undo_internal.h. Looks at the map page of the extent
 * at nextents, at those of all further groups in the file, and at the extents
 * that the file has beyond nextents. On a standby, where replay may cut these
 * off, only at that map page.
 */
uint32
zu_claimed_extents(const ZuMetaData *meta)
{
	BlockNumber have = zu_file_blocks();
	uint32		nextents = meta->nextents;
	uint32		claimed = nextents;
	PGAlignedBlock copy;

	for (uint32 group = nextents - nextents % ZU_GROUP_EXTENTS;
		 group < ZU_MAX_EXTENTS && zu_map_block(group) < have; group += ZU_GROUP_EXTENTS)
	{
		bool		mapped;

		if (RecoveryInProgress() && group >= nextents)
			break;
		mapped = zu_twins_copy(zu_map_block(group), copy.data);
		for (uint32 extent = Max(group, nextents); extent < group + ZU_GROUP_EXTENTS; extent++)
		{
			ZuMapEntry *map = mapped ? zu_map_entry((Page) copy.data, extent) : NULL;

			CHECK_FOR_INTERRUPTS();
			if ((map != NULL && map->state != ZU_EXTENT_FREE) ||
				(!RecoveryInProgress() && zu_extent_block(extent) < have &&
				 was_taken(extent, map, meta->floor)))
				claimed = extent + 1;
		}
	}
	return claimed;
}

/*
 * zu_leap: See undo_internal.h. Looks at the first page of each extent and at
 * the map pages that are valid.
 */
uint32
zu_leap(uint32 nextents, uint32 floor)
{
	uint32		newest = floor;
	bool		mapped = false;
	PGAlignedBlock map;
	PGAlignedBlock copy;

	for (uint32 extent = 0; extent < nextents; extent++)
	{
		ZuPageHeader *h = zu_page_header((Page) copy.data);
		uint32		generation = 0;
		bool		damaged;

		CHECK_FOR_INTERRUPTS();
		if (extent % ZU_GROUP_EXTENTS == 0)
			mapped = zu_twins_copy(zu_map_block(extent), map.data);
		if (mapped)
			generation = zu_map_entry((Page) map.data, extent)->generation;
		zu_copy_block(zu_extent_block(extent), copy.data, &damaged);
		if (h->magic == ZU_PAGE_MAGIC && h->extent == extent &&
			(generation == 0 || zu_generation_newer(h->generation, generation)))
			generation = h->generation;
		if (generation != 0 && (newest == 0 || zu_generation_newer(generation, newest)))
			newest = generation;
	}
	return Max((newest + GENERATION_LEAP) & ZU_MAX_GENERATION, 1);
}

uint32
zu_leap_from(uint32 generation)
{
	return Max((generation + GENERATION_LEAP) & ZU_MAX_GENERATION, 1);
}

/*
 * zu_log_limit: See undo_internal.h. The image in the record has what else the
 * caller has changed on the page.
 */
void
zu_log_limit(const ZuTwins *meta, uint32 nextents, uint32 floor)
{
	ZuMetaData *data = zu_meta(zu_twins_page(meta));
	xl_undo_truncate xlrec = {0};
	XLogRecPtr	recptr;

	xlrec.nextents = nextents;
	xlrec.floor = floor;
	xlrec.nblocks = 0;
	START_CRIT_SECTION();
	data->nextents = nextents;
	data->floor = floor;
	zu_twins_changed(meta);
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfUndoTruncate);
	zu_twins_register(meta, 0, REGBUF_FORCE_IMAGE);
	recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_UNDO_TRUNCATE);
	zu_twins_set_lsn(meta, recptr);
	END_CRIT_SECTION();
}

/*
 * zu_heal_limit: See undo_internal.h. Shared memory knows the limit, and is
 * lowered before the page and raised after it: only a lower number on the page
 * is damage.
 */
void
zu_heal_limit(const ZuTwins *meta)
{
	ZuMetaData *data = zu_meta(zu_twins_page(meta));
	uint32		limit = pg_atomic_read_u32(&zu_my.entry->limit);

	if (likely(data->nextents >= limit))
		return;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the meta page of relation \"%s\" had missed writes and has been repaired",
					"zundo.undo_log"),
			 errdetail("It counted %u extents, and there are %u.", data->nextents, limit),
			 errhint("Check the storage of this database.")));
	zu_log_limit(meta, limit, zu_leap_from(data->floor));
}

/*
 * Puts all transactions from `oldest` on in doubt, on the meta page. Nothing
 * older than `oldest` on the page was ever put in doubt since then.
 */
static void
doubt_all(ZuMetaData *meta)
{
	ZXid		next = zxid_from_full(ReadNextFullTransactionId());

	meta->doubt_from = meta->doubt_to > meta->doubt_from ? Min(meta->doubt_from, meta->oldest)
		: meta->oldest;
	meta->doubt_to = Max(meta->doubt_to, Max(next, meta->oldest));
}

/* zu_doubt_lost: See undo_internal.h. */
void
zu_doubt_lost(void)
{
	ZuTwins		meta;
	ZuMetaData *data;

	zu_twins_lock(&meta, ZU_META_BLOCK);
	data = zu_meta(zu_twins_page(&meta));
	doubt_all(data);
	zu_log_limit(&meta, data->nextents, data->floor);
	zu_twins_unlock(&meta);
}

/* Raises the number of extents on the meta page, which has missed writes. */
static void
raise_nextents(uint32 nextents, uint32 claimed)
{
	ZuTwins		meta;
	ZuMetaData *data;
	uint32		floor;
	PGAlignedBlock copy;

	if (!zu_twins_copy(ZU_META_BLOCK, copy.data))
		return;
	floor = zu_leap(claimed, zu_meta((Page) copy.data)->floor);
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the meta page of relation \"%s\" had missed writes and has been repaired",
					"zundo.undo_log"),
			 errdetail("It counted %u extents, but extent %u is in use.", nextents, claimed - 1),
			 errhint("Check the storage of this database.")));
	zu_twins_lock(&meta, ZU_META_BLOCK);
	data = zu_meta(zu_twins_page(&meta));

	/* the window of earlier loads may be lost as well */
	doubt_all(data);
	zu_log_limit(&meta, claimed, floor);
	zu_twins_unlock(&meta);
}

/* ---- a file that is too short ---- */

/*
 * Returns whether the blocks of the extent from 'have' on, which are not in the
 * file, hold no data (UNDO-71b). The map assigns the extent to a log.
 */
static bool
data_end_before(uint32 extent, uint32 generation, BlockNumber have)
{
	BlockNumber start = zu_extent_block(extent);
	PGAlignedBlock copy;

	for (BlockNumber block = start; block < have; block++)
	{
		bool		damaged;

		zu_copy_block(block, copy.data, &damaged);
		if (damaged)
			return false;
		/* the log continues on this page, or in another extent */
		if (zu_page_valid((Page) copy.data, extent, generation, (int) (block - start)))
		{
			if (((PageHeader) copy.data)->pd_lower < BLCKSZ)
				return true;
		}
		else if (block > start)
			return false;		/* the page may have been lost */
	}
	return false;
}

/*
 * zu_lost_extent: See undo_internal.h. An extent of which not even the first
 * page is there may have been written as well as not.
 */
uint32
zu_lost_extent(uint32 limit, BlockNumber have)
{
	PGAlignedBlock copy;
	bool		mapped = false;
	uint32		group = PG_UINT32_MAX;

	for (uint32 extent = 0; extent < limit; extent++)
	{
		ZuMapEntry *map;

		if (zu_extent_block(extent) + ZU_EXTENT_PAGES <= have)
			continue;
		CHECK_FOR_INTERRUPTS();
		if (extent / ZU_GROUP_EXTENTS != group)
		{
			group = extent / ZU_GROUP_EXTENTS;
			mapped = zu_twins_copy(zu_map_block(extent), copy.data);
		}
		if (!mapped)
			return extent;
		map = zu_map_entry((Page) copy.data, extent);
		if (map->state == ZU_EXTENT_OVERFLOW ||
			(map->state == ZU_EXTENT_LOG && !data_end_before(extent, map->generation, have)))
			return extent;
	}
	return limit;
}

/* zu_extend_file: See undo_internal.h. */
void
zu_extend_file(uint32 limit)
{
	zu_extend_to(smgropen(zu_my.locator, INVALID_PROC_NUMBER), limit);
}

void
zu_report_short(uint32 limit)
{
	BlockNumber have = zu_file_blocks();

	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the file of relation \"%s\" has lost its end", "zundo.undo_log"),
			 errdetail("It has %u blocks, and its %u extents need %u. Missing blocks of extent %u "
					   "may hold undo.", have, limit, zu_nblocks_for(limit),
					   zu_lost_extent(limit, have)),
			 errhint("Check the storage of this database, then see zundo.repair_undo().")));
}

/* ---- the map and the pages of extents ---- */

/*
 * zu_misfit: See undo_internal.h. An extent that begins with overflow pages is
 * searched for one with an owner if the map calls it free.
 */
ZuMisfit
zu_misfit(uint32 extent, const ZuMapEntry *map, Page page, const char **what)
{
	const ZuPageHeader *h = zu_page_header(page);

	*what = NULL;
	if (zu_overflow_owned(page))
	{
		if (map->state == ZU_EXTENT_OVERFLOW)
			return ZU_FITS;
		*what = "holds transaction slots of a table page, but the extent map assigns it otherwise";
		return ZU_MAP_STALE;
	}

	/*
	 * zundo.purge() leaves an empty page without an undo page's header where
	 * no undo page was found
	 */
	if (zu_overflow_page(page) || PageIsNew(page) || PageIsEmpty(page))
		return ZU_FITS;
	if (h->magic != ZU_PAGE_MAGIC || h->extent != extent || h->page != 0)
	{
		*what = "does not belong to this extent";
		return ZU_PAGE_WRONG;
	}
	if (zu_generation_newer(h->generation, map->generation))
	{
		*what = "belongs to a later allocation than the extent map records";
		return ZU_MAP_STALE;
	}
	if (map->state == ZU_EXTENT_LOG && h->generation == map->generation &&
		(h->logno != map->logno || h->sequence != map->sequence))
	{
		*what = "belongs to another log, or to another place in it, than the extent map records";
		return ZU_PAGE_WRONG;
	}
	return ZU_FITS;
}

/*
 * zu_stale_extent: See undo_internal.h. Reads one page of each extent; more of
 * those that the map calls free and that begin with overflow pages.
 */
uint32
zu_stale_extent(uint32 group, uint32 limit, Page map)
{
	uint32		stop = Min(limit, group + ZU_GROUP_EXTENTS);

	for (uint32 extent = group; extent < stop; extent++)
	{
		const ZuMapEntry *entry = zu_map_entry(map, extent);
		PGAlignedBlock copy;
		const char *what;

		CHECK_FOR_INTERRUPTS();
		for (int page = 0; page < ZU_EXTENT_PAGES; page++)
		{
			bool		damaged;

			zu_copy_block(zu_extent_block(extent) + page, copy.data, &damaged);
			if (page == 0 ? zu_misfit(extent, entry, (Page) copy.data, &what) == ZU_MAP_STALE
				: zu_overflow_owned((Page) copy.data))
				return extent;
			if (entry->state != ZU_EXTENT_FREE || !zu_overflow_page((Page) copy.data))
				break;
		}
	}
	return stop;
}

void
zu_report_stale(uint32 extent)
{
	BlockNumber first = zu_map_block(extent);

	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("extent %u of relation \"%s\" is in use", extent, "zundo.undo_log"),
			 errdetail("The extent map in blocks %u and %u says otherwise, but the blocks from %u "
					   "on were written later.",
					   zu_twin_block(first, 0), zu_twin_block(first, 1), zu_extent_block(extent)),
			 errhint("Both copies of the map have missed writes. Check the storage of this "
					 "database, then see zundo.repair_undo().")));
}

/* ---- at load ---- */

/*
 * zu_mend: See undo_internal.h. The meta page that it gets is of the right
 * version. Extends the file first, since twins may lie in the missing part.
 */
void
zu_mend(const ZuMetaData *meta)
{
	uint32		claimed = zu_claimed_extents(meta);
	BlockNumber have = zu_file_blocks();
	BlockNumber need = zu_nblocks_for(claimed);

	Assert(!RecoveryInProgress());
	Assert(LWLockHeldByMe(zu_load_lock(zu_my.entry)));
	if (have < need)
	{
		if (zu_lost_extent(claimed, have) == claimed)
		{
			ereport(LOG,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("the file of relation \"%s\" was too short and has been extended",
							"zundo.undo_log"),
					 errdetail("It had %u blocks of %u. The others hold no undo.", have, need),
					 errhint("Check the storage of this database.")));
			zu_extend_file(claimed);
		}
		else if (have < zu_nblocks_for(0))
			zu_report_short(claimed);	/* without a second meta page */
	}
	zu_twins_repair(ZU_META_BLOCK);
	if (claimed > meta->nextents)
		raise_nextents(meta->nextents, claimed);
}
