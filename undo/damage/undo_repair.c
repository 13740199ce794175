/*
 * undo/damage/undo_repair.c - checking the meta page and the map pages, and
 * making them anew.
 *
 * Owns zu_check_map and zu_repair_map. Called by monitor/, on behalf of
 * superusers.
 *
 * A meta page that is lost is made from the catalog and the file, a map page
 * from the pages of its extents. A rebuilt page has less information than the
 * lost one, and errs on the safe side: `oldest` is lower, and extents that were
 * free may be kept. So no undo is lost, and the discard pass frees what was
 * kept needlessly.
 *
 * Locks: the load lock and the alloc lock while the meta page is repaired, and
 * again while the map pages are; undo pages in share mode, one at a time, with
 * no map page locked.
 *
 * Crash points: a pair is written as two full-page images; after the first,
 * the second is repaired from it.
 *
 * Invariant
 *	UNDO-63	a repair makes no row wrong and undoes no change that should not be
 *		undone. Where it would, the damage is left as it is, and reported. So
 *		(a) a rebuilt `oldest` is not above the lost one: it is the durable
 *			value in shared memory or, if none is loaded, relfrozenxid of
 *			zundo.undo_log, which follows durable values of `oldest`, and from
 *			which on the server keeps clog;
 *		(b) a rebuilt map page frees no extent with a record that is not below
 *			`oldest`, nor one that follows such an extent in its log, nor one
 *			with an overflow page that has an owner.
 *		Example: `oldest` is 100. Of log 3, extent 5 has records of 90 and 110,
 *		extent 6 none that can be read, but its first page names 5 as `prev`:
 *		both stay the log's.
 */
#include "undo/undo_internal.h"
#include "undo/undo_overflow.h"

#include "access/xloginsert.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/memutils.h"

/* What the pages of one extent tell. */
typedef struct ExtentPages
{
	bool		undo;			/* the extent has undo pages; the following
								 * four are those of the newest allocation */
	uint32		generation;
	uint32		logno;
	uint64		sequence;
	UndoPtr		prev;			/* of page 0, if it has data, else 0 */
	bool		owned;			/* there are overflow pages with an owner */
	bool		unreadable;		/* there are damaged pages */
	bool		keep;			/* undo: the extent is needed, or follows one
								 * that is kept */
} ExtentPages;

/* ---- looking ---- */

/* Fills e from the pages of the extent that are in the file. */
static void
look_at_extent(uint32 extent, ExtentPages *e)
{
	BlockNumber start = zu_extent_block(extent);
	BlockNumber stop = Min(start + ZU_EXTENT_PAGES, zu_file_blocks());
	PGAlignedBlock copy;

	memset(e, 0, sizeof(*e));
	CHECK_FOR_INTERRUPTS();
	for (BlockNumber block = start; block < stop; block++)
	{
		ZuPageHeader *h = zu_page_header((Page) copy.data);
		bool		damaged;

		zu_copy_block(block, copy.data, &damaged);
		if (damaged)
			e->unreadable = true;
		else if (zu_overflow_page((Page) copy.data))
			e->owned = e->owned || zu_overflow_owned((Page) copy.data);
		else if (h->magic == ZU_PAGE_MAGIC && h->extent == extent && h->page == block - start &&
				 (!e->undo || zu_generation_newer(h->generation, e->generation)))
		{
			e->undo = true;
			e->generation = h->generation;
			e->logno = h->logno;
			e->sequence = h->sequence;
			e->prev = block == start && ((PageHeader) copy.data)->pd_lower > ZU_PAGE_DATA ? h->prev
				: InvalidUndoPtr;
		}
	}
}

/* ---- checking ---- */

/*
 * Reports each twin of the pair at block 'first' that is damaged or has missed
 * changes.
 */
static void
check_twins(BlockNumber first, ZuReport report, void *arg)
{
	bool		valid[2];
	uint64		changes[2];

	zu_twins_state(first, valid, changes);
	for (int i = 0; i < 2; i++)
	{
		if (!valid[i])
			report(arg, zu_twin_block(first, i), "the page is damaged; its other copy is %s",
				   valid[1 - i] ? "valid" : "damaged, too");
		else if (valid[1 - i] && changes[i] < changes[1 - i])
			report(arg, zu_twin_block(first, i),
				   "the page missed " UINT64_FORMAT " changes; its other copy is "
				   "valid",
				   changes[1 - i] - changes[i]);
	}
}

/*
 * Reads the map entry of an extent; false if the extent was cut off. Raises an
 * error if both twins of the map page are damaged.
 */
static bool
map_entry(uint32 extent, ZuMapEntry *dst)
{
	bool		taken = zu_fence_enter();
	bool		there = extent < pg_atomic_read_u32(&zu_my.entry->limit);

	if (there)
	{
		Buffer		buf = zu_twins_share(zu_map_block(extent));

		*dst = *zu_map_entry(BufferGetPage(buf), extent);
		UnlockReleaseBuffer(buf);
	}
	zu_fence_leave(taken);
	return there;
}

/*
 * Reports if the first page of the extent cannot be read or contradicts the
 * map. Reads the map entry before and after the page, and reports nothing if it
 * has changed.
 */
static void
check_extent(uint32 extent, ZuReport report, void *arg)
{
	BlockNumber start = zu_extent_block(extent);
	ZuMapEntry	before;
	ZuMapEntry	after;
	PGAlignedBlock copy;
	bool		taken;
	bool		damaged = false;
	const char *what;

	if (!map_entry(extent, &before))
		return;
	taken = zu_fence_enter();
	memset(copy.data, 0, BLCKSZ);
	if (extent < pg_atomic_read_u32(&zu_my.entry->limit))
		zu_copy_block(start, copy.data, &damaged);
	zu_fence_leave(taken);
	if (damaged)
		what = before.state == ZU_EXTENT_FREE ? NULL : "cannot be read";
	else
		(void) zu_misfit(extent, &before, (Page) copy.data, &what);
	/* the extent may have been taken or freed meanwhile */
	if (what != NULL && map_entry(extent, &after) &&
		memcmp(&before, &after, sizeof(ZuMapEntry)) == 0)
		report(arg, start, "the first page of extent %u %s", extent, what);
}

/*
 * Reports a meta page that counts fewer extents than there are. The alloc lock
 * keeps the limit from being lowered in between; on a standby replay may do
 * that.
 */
static void
check_nextents(ZuReport report, void *arg)
{
	ZuEntry    *entry = zu_my.entry;
	PGAlignedBlock page;
	uint32		limit;

	if (RecoveryInProgress())
		return;
	LWLockAcquire(zu_alloc_lock(entry), LW_SHARED);
	limit = pg_atomic_read_u32(&entry->limit);
	if (zu_twins_copy(ZU_META_BLOCK, page.data) && zu_meta((Page) page.data)->nextents < limit)
		report(arg, ZU_META_BLOCK, "the meta page has missed writes: it counts %u extents, and "
			   "there are %u", zu_meta((Page) page.data)->nextents, limit);
	LWLockRelease(zu_alloc_lock(entry));
}

/*
 * zu_check_map: See undo.h. Looks at one group of extents at a time. The fence
 * is held only while pages are pinned, so the tail may be cut off in between.
 */
void
zu_check_map(ZuReport report, void *arg)
{
	ZuEntry    *entry = zu_my.entry;
	uint32		limit;
	BlockNumber have = zu_file_blocks();

	check_twins(ZU_META_BLOCK, report, arg);
	if (pg_atomic_read_u32(&entry->state) == ZU_ENTRY_EMPTY)
		return;					/* the meta page cannot be read, which has
								 * been reported */
	limit = pg_atomic_read_u32(&entry->limit);
	check_nextents(report, arg);
	if (have < zu_nblocks_for(limit))
		report(arg, have, "the file ends here, but its %u extents need %u blocks",
			   limit, zu_nblocks_for(limit));
	for (uint32 first = 0; first < limit; first += ZU_GROUP_EXTENTS)
	{
		bool		taken = zu_fence_enter();
		bool		there = first < pg_atomic_read_u32(&entry->limit);
		bool		valid[2] = {false, false};
		uint64		changes[2];

		if (there)
		{
			check_twins(zu_map_block(first), report, arg);
			zu_twins_state(zu_map_block(first), valid, changes);
		}
		zu_fence_leave(taken);
		if (!valid[0] && !valid[1])
			continue;
		for (uint32 extent = first; extent < Min(limit, first + ZU_GROUP_EXTENTS); extent++)
		{
			CHECK_FOR_INTERRUPTS();
			check_extent(extent, report, arg);
		}
	}
}

/* ---- making a pair anew ---- */

/*
 * Writes page, whose twin header is set, to both blocks of the pair at 'first',
 * with WAL.
 */
static void
write_pair(BlockNumber first, Page page)
{
	ZuTwins		t;

	zu_twins_lock_new(&t, first);
	START_CRIT_SECTION();
	memcpy(zu_twins_page(&t), page, BLCKSZ);
	zu_twins_changed(&t);
	log_newpage_buffer(t.buffer[0], true);
	log_newpage_buffer(t.buffer[1], true);
	END_CRIT_SECTION();
	zu_twins_unlock(&t);
}

/*
 * Returns whether the file holds the group of extents that begins with this
 * one: whether one of its blocks, those of the meta page excepted, is not
 * empty.
 */
static bool
group_exists(uint32 first)
{
	BlockNumber stop = Min(zu_map_block(first) + ZU_GROUP_BLOCKS - 1, zu_file_blocks());
	PGAlignedBlock copy;
	bool		damaged = false;

	for (BlockNumber block = zu_map_block(first); block < stop; block++)
	{
		CHECK_FOR_INTERRUPTS();
		if (block == zu_twin_block(ZU_META_BLOCK, 1))
			continue;
		zu_copy_block(block, copy.data, &damaged);
		if (damaged || !PageIsNew((Page) copy.data))
			return true;
	}
	return false;
}

/* Returns how many extents the file holds, in groups that exist. */
static uint32
extents_in_file(void)
{
	BlockNumber have = zu_file_blocks();
	uint32		n = 0;

	while (zu_nblocks_for(n + 1) <= have && (n % ZU_GROUP_EXTENTS != 0 || group_exists(n)))
		n++;
	return n;
}

/*
 * Returns relfrozenxid of zundo.undo_log. Raises an internal error if the
 * relation has no entry in pg_class.
 */
static ZXid
frozen_xid(void)
{
	Relation	rel = RelationIdGetRelation(zu_my.reloid);
	ZXid		xid;

	if (!RelationIsValid(rel))
		elog(ERROR, "relation \"zundo.undo_log\" does not exist");
	xid = zxid_widen(rel->rd_rel->relfrozenxid);
	RelationClose(rel);
	return xid;
}

/*
 * Repairs the number of extents on a meta page that has missed writes. If the
 * meta page is not loaded, loading it does that; so it is only reported.
 */
static void
repair_nextents(bool dry_run, ZuReport report, void *arg)
{
	ZuEntry    *entry = zu_my.entry;
	bool		loaded = zu_entry_has(entry, ZU_ENTRY_VALID);
	PGAlignedBlock page;
	uint32		nextents;
	uint32		right;

	if (!zu_twins_copy(ZU_META_BLOCK, page.data))
		return;
	nextents = zu_meta((Page) page.data)->nextents;
	right = loaded ? pg_atomic_read_u32(&entry->limit)
		: zu_claimed_extents(zu_meta((Page) page.data));
	if (right <= nextents)
		return;
	report(arg, ZU_META_BLOCK, "meta page: it has missed writes and counts %u extents, but "
		   "extent %u is in use; it now counts %u", nextents, right - 1, right);
	if (!dry_run && loaded)
	{
		ZuTwins		meta;

		zu_twins_lock(&meta, ZU_META_BLOCK);
		zu_heal_limit(&meta);
		zu_twins_unlock(&meta);
	}
}

/*
 * Extends a file that is too short, also by blocks that held data (UNDO-71b).
 * If no meta page tells how long it was, does nothing. Load lock and alloc
 * lock held.
 */
static void
repair_length(bool dry_run, ZuReport report, void *arg)
{
	ZuEntry    *entry = zu_my.entry;
	bool		loaded = zu_entry_has(entry, ZU_ENTRY_VALID);
	BlockNumber have = zu_file_blocks();
	uint32		limit = loaded ? pg_atomic_read_u32(&entry->limit) : 0;
	uint32		lost;
	PGAlignedBlock page;

	if (!loaded)
	{
		if (!zu_twins_copy(ZU_META_BLOCK, page.data))
			return;				/* nothing tells how long it was */
		limit = zu_claimed_extents(zu_meta((Page) page.data));
	}
	if (have >= zu_nblocks_for(limit))
		return;
	lost = zu_lost_extent(limit, have);
	if (lost < limit)
		report(arg, have, "file: it ends here; missing blocks, of extent %u and perhaps of later "
			   "ones, may have held undo; empty ones take the place of %u blocks", lost,
			   zu_nblocks_for(limit) - have);
	else
		report(arg, have, "file: it ends here; %u blocks without undo have been added",
			   zu_nblocks_for(limit) - have);
	if (dry_run)
		return;
	zu_extend_file(limit);
	if (lost < limit && !loaded)
		zu_doubt_lost();
	else if (lost < limit)
		zu_widen_doubt(entry, pg_atomic_read_u64(&entry->durable),
					   zxid_from_full(ReadNextFullTransactionId()));
}

/*
 * Repairs the meta page: from its twin, or, if both are lost, from shared
 * memory if the entry is loaded, else from the catalog and the file. Load lock
 * and alloc lock held. Raises ERRCODE_DATA_CORRUPTED if the file is so short
 * that it has certainly lost extents: a rebuilt meta page would not count
 * these, and their records would pass for discarded.
 */
static void
repair_meta(bool dry_run, ZuReport report, void *arg)
{
	ZuEntry    *entry = zu_my.entry;
	bool		loaded = pg_atomic_read_u32(&entry->state) != ZU_ENTRY_EMPTY;
	PGAlignedBlock page;
	ZuMetaData *meta = zu_meta((Page) page.data);

	if (!zu_twins_lost(ZU_META_BLOCK))
	{
		bool		valid[2];
		uint64		changes[2];

		zu_twins_state(ZU_META_BLOCK, valid, changes);
		if (!valid[0] || !valid[1] || changes[0] != changes[1])
			report(arg, ZU_META_BLOCK, "meta page: one copy has been repaired from the other");
		if (!dry_run)
			zu_twins_repair(ZU_META_BLOCK);
		repair_nextents(dry_run, report, arg);
		return;
	}
	if (zu_file_blocks() < zu_nblocks_for(0))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("relation \"%s\" has lost its meta page and the end of its file",
						"zundo.undo_log"),
				 errdetail("The file has %u blocks. Nothing tells how much undo it had.",
						   zu_file_blocks()),
				 errhint("Restore the database from a backup.")));
	memset(page.data, 0, BLCKSZ);
	zu_meta_init((Page) page.data, loaded ? pg_atomic_read_u64(&entry->durable) : frozen_xid());
	meta->nextents = loaded ? pg_atomic_read_u32(&entry->limit) : extents_in_file();
	meta->floor = zu_leap(meta->nextents, 0);
	if (loaded)
	{
		SpinLockAcquire(&entry->mutex);
		meta->freeze = entry->freeze_logged;
		SpinLockRelease(&entry->mutex);
		meta->doubt_from = pg_atomic_read_u64(&entry->doubt.from);
		meta->doubt_to = pg_atomic_read_u64(&entry->doubt.to);
	}
	else
	{
		/*
		 * no doubt window here: when the logs are loaded, all xids from
		 * `oldest` on are in doubt anyway (undo_damage.c)
		 */
		meta->freeze.now = meta->oldest;
		meta->freeze.next = meta->freeze.after = InvalidZXid;
	}
	report(arg, ZU_META_BLOCK, "meta page: both copies are lost; rebuilt with %u extents, oldest "
		   "transaction " UINT64_FORMAT
		   ", from %s", meta->nextents, meta->oldest, loaded ? "shared memory"
		   : "the catalog and the file");
	if (!dry_run)
	{
		ZuTwins		twins;

		write_pair(ZU_META_BLOCK, (Page) page.data);

		/*
		 * redo of a full-page image does not tell a standby's shared memory
		 * of the limit; the standby would take records beyond the limit that
		 * it knows for discarded
		 */
		zu_twins_lock(&twins, ZU_META_BLOCK);
		zu_log_limit(&twins, meta->nextents, meta->floor);
		zu_twins_unlock(&twins);
	}
}

/*
 * Returns whether the extent has a record that is not below oldest, or one that
 * cannot be read (UNDO-63b). Records do not leave their extent (UNDO-5), so one
 * begins at its first byte.
 */
static bool
is_needed(uint32 extent, const ExtentPages *e, ZXid oldest)
{
	char	   *bytes = palloc(ZU_EXTENT_SPACE);
	Size		n = 0;
	Size		off = 0;
	bool		ended = false;
	bool		needed = e->unreadable;

	for (int pageno = 0; pageno < ZU_EXTENT_PAGES; pageno++)
	{
		PGAlignedBlock copy;
		Page		page = (Page) copy.data;
		bool		damaged;
		int			len;

		zu_copy_block(zu_extent_block(extent) + pageno, copy.data, &damaged);
		len = ((PageHeader) page)->pd_lower - ZU_PAGE_DATA;
		/* a page without data was wiped by zundo.purge() */
		if (!zu_page_valid(page, extent, e->generation, pageno) || len == 0)
			ended = true;
		else if (ended)
			needed = true;		/* a page before this one is missing */
		else
		{
			memcpy(bytes + n, copy.data + ZU_PAGE_DATA, len);
			n += len;
			ended = len < (int) ZU_PAGE_SPACE;
		}
	}
	while (off < n && !needed)
	{
		Size		len = zur_peek_length(bytes + off, n - off);
		ZuRecord	rec;

		needed = len == 0 || len > n - off || !zur_unpack(bytes + off, len, &rec) ||
			rec.xid >= oldest || rec.topxid >= oldest ||
			(rec.type == ZUR_LOCKS && rec.hold >= oldest);
		off += len;
	}
	pfree(bytes);
	return needed;
}

/*
 * Returns whether prev, the place where a log ended before it came to an
 * extent, lies in an extent that is kept: one of 'pages', which describe the n
 * extents from 'group' on, or one that another map page assigns to a log.
 */
static bool
is_kept(UndoPtr prev, uint32 group, uint32 n, const ExtentPages *pages)
{
	uint32		extent = zuptr_extent(prev);
	ZuMapEntry	map;

	if (prev == InvalidUndoPtr)
		return false;
	if (extent >= group && extent < group + n)
		return pages[extent - group].keep &&
			pages[extent - group].generation == zuptr_generation(prev);
	return !zu_twins_lost(zu_map_block(extent)) && map_entry(extent, &map) &&
		map.state == ZU_EXTENT_LOG &&
		map.generation == zuptr_generation(prev);
}

/*
 * Rebuilds the map page of the group that begins with extent 'group' from the
 * pages of its extents, for the reason 'why'; with dry_run only reports what
 * it would write. An extent that follows a kept one in its log is kept, too,
 * which is repeated until nothing changes.
 */
static void
rebuild_map(uint32 group, uint32 limit, ZXid oldest, const char *why, bool dry_run,
			ZuReport report, void *arg)
{
	BlockNumber first = zu_map_block(group);
	uint32		n = Min(limit - group, ZU_GROUP_EXTENTS);
	ExtentPages *pages = palloc0(n * sizeof(ExtentPages));
	PGAlignedBlock page;
	uint32		newest;
	int			kept = 0;
	int			owned = 0;
	bool		more = true;

	for (uint32 i = 0; i < n; i++)
	{
		look_at_extent(group + i, &pages[i]);
		pages[i].keep = pages[i].undo && !pages[i].owned && is_needed(group + i, &pages[i], oldest);
	}
	while (more)
	{
		more = false;
		for (uint32 i = 0; i < n; i++)
			if (pages[i].undo && !pages[i].owned && !pages[i].keep &&
				is_kept(pages[i].prev, group, n, pages))
				pages[i].keep = more = true;
	}
	newest = zu_leap(limit, 0);
	memset(page.data, 0, BLCKSZ);
	zu_map_init((Page) page.data, first, newest);
	for (uint32 i = 0; i < n; i++)
	{
		ZuMapEntry *map = zu_map_entry((Page) page.data, group + i);

		/*
		 * If the extent has undo pages, its new generation is ahead of
		 * theirs. 'newest' need not be: it is ahead of the newest generation
		 * of all extents, and from there that of this extent may be more than
		 * half the circle away.
		 */
		if (pages[i].undo)
			map->generation = zu_leap_from(pages[i].generation);
		if (pages[i].owned)
		{
			map->state = ZU_EXTENT_OVERFLOW;
			owned++;
		}
		else if (pages[i].keep)
		{
			map->state = ZU_EXTENT_LOG;
			map->generation = pages[i].generation;
			map->logno = (uint16) pages[i].logno;
			map->sequence = pages[i].sequence;
			kept++;
		}
		else if (pages[i].unreadable)
		{
			/*
			 * The extent may hold slots. As an overflow extent it is not
			 * taken for anything else, so nothing is written over what cannot
			 * be read (UNDO-63b).
			 */
			map->state = ZU_EXTENT_OVERFLOW;
			report(arg, zu_extent_block(group + i), "extent %u has pages that cannot be read, and "
				   "none that tells to which log it belongs; it "
				   "is kept", group + i);
		}
	}
	report(arg, first, "extent map: both copies %s; rebuilt from the pages of %u extents: "
		   "%d belong to logs, %d hold slots, the others are free",
		   why, n, kept, owned);
	if (!dry_run)
		write_pair(first, (Page) page.data);
	pfree(pages);
}

/*
 * Returns why the map page of this group must be rebuilt, NULL if it need not:
 * if neither twin is valid, or the extents' pages show that it has missed
 * writes.
 */
static const char *
reason_to_rebuild(uint32 group, uint32 limit)
{
	PGAlignedBlock map;

	if (!zu_twins_copy(zu_map_block(group), map.data))
		return "are lost";
	if (zu_stale_extent(group, limit, (Page) map.data) < Min(limit, group + ZU_GROUP_EXTENTS))
		return "have missed writes";
	return NULL;
}

/*
 * Repairs all map pages; returns whether the logs can be loaded from them,
 * which they cannot if one is still to be rebuilt after a dry run. Load lock
 * and alloc lock held. Raises an error if a page must be rebuilt while the logs
 * are loaded.
 */
static bool
repair_maps(bool dry_run, ZuReport report, void *arg)
{
	ZuEntry    *entry = zu_my.entry;
	uint32		limit = pg_atomic_read_u32(&entry->limit);
	bool		usable = true;

	for (uint32 group = 0; group < limit; group += ZU_GROUP_EXTENTS)
	{
		BlockNumber first = zu_map_block(group);
		const char *why = reason_to_rebuild(group, limit);
		bool		valid[2];
		uint64		changes[2];

		zu_twins_state(first, valid, changes);
		if (why == NULL && (!valid[0] || !valid[1] || changes[0] != changes[1]))
		{
			report(arg, first, "extent map: one copy has been repaired from the other");
			if (!dry_run)
				zu_twins_repair(first);
		}
		if (why == NULL)
			continue;
		if (!dry_run && pg_atomic_read_u32(&entry->state) == ZU_ENTRY_LOGS)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("cannot rebuild the extent map while sessions write to the undo log"),
					 errdetail("Both copies of the map page in blocks %u and %u %s.",
							   zu_twin_block(first, 0), zu_twin_block(first, 1), why),
					 errhint("Restart the server, and run the repair again before zheap tables of "
							 "this database are written.")));
		rebuild_map(group, limit, pg_atomic_read_u64(&entry->oldest), why, dry_run, report, arg);
		usable = usable && !dry_run;
	}
	return usable;
}

/*
 * zu_repair_map: See undo.h. Repairs file and meta page first, and has the meta
 * page loaded without the locks held: only then is it known how many map pages
 * there are. If it was lost, the file may be too short for what it now counts.
 */
bool
zu_repair_map(bool dry_run, ZuReport report, void *arg)
{
	ZuEntry    *entry = zu_my.entry;
	PGAlignedBlock copy;
	bool		usable;

	LWLockAcquire(zu_load_lock(entry), LW_EXCLUSIVE);
	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	if (zu_twins_copy(ZU_META_BLOCK, copy.data))
		zu_check_meta((Page) copy.data);
	repair_length(dry_run, report, arg);
	repair_meta(dry_run, report, arg);
	LWLockRelease(zu_alloc_lock(entry));
	LWLockRelease(zu_load_lock(entry));
	if (!zu_entry_has(entry, ZU_ENTRY_VALID))
	{
		if (dry_run && (zu_twins_lost(ZU_META_BLOCK) || zu_file_blocks() < zu_nblocks_for(0)))
			return false;
		zu_attach_database();
	}
	LWLockAcquire(zu_load_lock(entry), LW_EXCLUSIVE);
	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	if (!dry_run)
		repair_length(dry_run, report, arg);
	usable = repair_maps(dry_run, report, arg) &&
		zu_file_blocks() >= zu_nblocks_for(pg_atomic_read_u32(&entry->limit));
	LWLockRelease(zu_alloc_lock(entry));
	LWLockRelease(zu_load_lock(entry));
	return usable;
}
