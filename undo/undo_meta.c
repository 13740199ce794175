/*
 * undo/undo_meta.c - meta page, extent map and the life of extents.
 *
 * Owns the meta page and the map pages of zundo.undo_log: creation of the file,
 * allocation and freeing of extents. Called by undo_log.c, undo_overflow.c,
 * undo_purge.c and discard/; zu_log_conflict also by mvcc/, scan/ and
 * vacuum/.
 *
 * Locks: allocation and freeing hold the entry's alloc lock throughout; then
 * map page before meta page. Readers of map pages take only the page's share
 * lock.
 *
 * Crash points
 *	after the file grew, before MAP			blocks beyond the limit: used by
 *											the next growth
 *	after MAP, before the first record	an extent without pages: the log's
 *											next position
 *	after DISCARD, before the log moved on	the extent is free; nothing points
 *											there
 *
 * Invariants
 *	UNDO-4	the file and the limit, nextents:
 *		(a) extents 0 .. nextents - 1 exist in the file, with the map pages of
 *			their groups;
 *		(b) no block at or beyond the limit is read, but by an allocation that
 *			grows the file (it holds the alloc lock), and by zundo.repair_undo
 *			if no limit could be loaded;
 *		(c) the file grows only while no process cuts it off
 *			(ZuEntry.truncator).
 *	UNDO-5	each log's extents have distinct sequence numbers; records are in
 *		order of (sequence, byte). All records of an op lie in one extent,
 *		without a gap.
 *	UNDO-6	the generation of an extent that is taken is newer than that of
 *		each pointer to it. It changes with each allocation and is logged
 *		before the first page is written with it. A group that was cut off
 *		begins anew at the newest generation ever cut off; a generation that
 *		was lost is replaced by one far ahead of all that are known
 *		(damage/undo_repair.c).
 *	UNDO-42	an extent is taken only if its own pages do not say that it is in
 *		use: its first page is not of a later allocation than the map knows,
 *		and if it begins with overflow pages, none of these has an owner.
 *		Otherwise an error is raised: what is read again while the server runs
 *		may be as old as what is loaded.
 */
#include "undo/undo_internal.h"
#include "access/xlogutils.h"
#include "undo/undo_overflow.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "catalog/pg_class.h"
#include "catalog/storage.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* Argument of log_discard: the conflict that the discard pass has noted. */
#define CONFLICT_NOTED	ZXID_MASK

/* Longest sleep between looks at whether the file is still being cut off. */
#define TRUNCATION_WAIT_MS	1000

/* Alignment that direct I/O may ask for. */
#define META_ALIGN		4096

/* ---- pages ---- */

/* zu_meta_init: See undo_internal.h. The caller seals it. */
void
zu_meta_init(Page page, ZXid oldest)
{
	ZuMetaData *meta = zu_meta(page);

	PageInit(page, BLCKSZ, 0);
	zu_twin_init(page, ZU_META_BLOCK);
	meta->version = ZU_META_VERSION;
	meta->oldest = oldest;
	meta->nextents = 0;
	meta->floor = 0;
	meta->extent_pages = ZU_EXTENT_PAGES;
	meta->freeze.now = InvalidZXid;
	meta->freeze.next = oldest;
	meta->freeze.after = oldest;
	((PageHeader) page)->pd_lower = ZU_TWIN_DATA + sizeof(ZuMetaData);
}

/* zu_map_init: See undo_internal.h. The caller seals it. */
void
zu_map_init(Page page, BlockNumber first, uint32 floor)
{
	Assert(first != ZU_META_BLOCK);
	PageInit(page, BLCKSZ, 0);
	zu_twin_init(page, first);
	for (uint32 i = 0; i < ZU_GROUP_EXTENTS; i++)
		zu_map_entry(page, i)->generation = floor;
	((PageHeader) page)->pd_lower = ZU_TWIN_DATA + ZU_GROUP_EXTENTS * sizeof(ZuMapEntry);
}

/*
 * zu_create_storage: See undo.h. Writes both copies of the meta page past the
 * buffers, with WAL, and syncs the file.
 */
void
zu_create_storage(RelFileLocator locator, char persistence)
{
	SMgrRelation smgr = RelationCreateStorage(locator, persistence, true);
	char		unaligned[BLCKSZ + META_ALIGN];
	char	   *page = (char *) TYPEALIGN(META_ALIGN, unaligned);

	/*
	 * No row can point here yet, and until this transaction commits no other
	 * one can write such a row. But transactions that have their xid already
	 * may do so then, so `oldest` must not be above any of them (UNDO-2c).
	 */
	(void) GetTopTransactionId();
	memset(page, 0, BLCKSZ);
	zu_meta_init((Page) page, zxid_widen(zc_oldest_active_xid()));
	zu_twin_seal((Page) page);
	for (int i = 0; i < 2; i++)
	{
		BlockNumber block = zu_twin_block(ZU_META_BLOCK, i);

		log_newpage(&locator, MAIN_FORKNUM, block, page, true);
		zc_set_checksum((Page) page, block);
		if (i > 0)
			zc_smgr_zero_extend(smgr, ZU_META_BLOCK + 1, (int) block - ZU_META_BLOCK - 1);
		smgrextend(smgr, MAIN_FORKNUM, block, page, false);
	}
	/* a checkpoint may have passed between the record and the write */
	smgrimmedsync(smgr, MAIN_FORKNUM);
}

/* Compares two extents by number. */
static int
compare_by_number(const void *a, const void *b)
{
	const ZuExtent *x = (const ZuExtent *) a;
	const ZuExtent *y = (const ZuExtent *) b;

	return x->extent < y->extent ? -1 : x->extent > y->extent ? 1 : 0;
}

/* ---- allocation ---- */

/*
 * Returns the lowest free extent, or the limit if there is none. Alloc lock
 * held.
 */
static uint32
find_free(ZuEntry *entry)
{
	uint32		limit = pg_atomic_read_u32(&entry->limit);
	uint32		extent = pg_atomic_read_u32(&entry->hint);

	Assert(LWLockHeldByMe(zu_alloc_lock(entry)));
	while (extent < limit)
	{
		uint32		stop = Min(limit, (extent / ZU_GROUP_EXTENTS + 1) * ZU_GROUP_EXTENTS);
		Buffer		buf = zu_twins_share(zu_map_block(extent));

		while (extent < stop &&
			   zu_map_entry(BufferGetPage(buf), extent)->state != ZU_EXTENT_FREE)
			extent++;
		UnlockReleaseBuffer(buf);
		if (extent < stop)
			break;
	}
	pg_atomic_write_u32(&entry->hint, extent);
	return extent;
}

/*
 * Extends the file to hold extents 0 .. extent, with their map pages. Alloc
 * lock held. Raises an error if the disk is full, or at the largest possible
 * size; may be repeated after an error.
 */
static void
grow_file(uint32 extent)
{
	SMgrRelation smgr = smgropen(zu_my.locator, INVALID_PROC_NUMBER);

	Assert(LWLockHeldByMe(zu_alloc_lock(zu_my.entry)));
	Assert(pg_atomic_read_u32(&zu_my.entry->truncator) == 0);	/* UNDO-4c */

	/*
	 * smgr may have a segment open that another process has cut off since,
	 * and of which no invalidation has reached this process
	 */
	smgrrelease(smgr);
	if (extent >= ZU_MAX_EXTENTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("\"zundo.undo_log\" cannot be extended any further"),
				 errdetail("It has %u extents of %d kB.", extent, ZU_EXTENT_PAGES * BLCKSZ / 1024),
				 errhint("End the transactions that prevent undo from being discarded.")));
	zu_extend_to(smgr, extent + 1);
}

/*
 * Returns the latest generation of a free extent; the floor if its group does
 * not exist yet. Alloc lock held.
 */
static uint32
known_generation(uint32 extent, bool new_group)
{
	Buffer		buf = zu_twins_share(new_group ? ZU_META_BLOCK : zu_map_block(extent));
	Page		page = BufferGetPage(buf);
	uint32		generation = new_group ? zu_meta(page)->floor
	: zu_map_entry(page, extent)->generation;

	UnlockReleaseBuffer(buf);
	return generation;
}

/*
 * Raises ERRCODE_DATA_CORRUPTED if pages of the extent say that it is in use,
 * though map and limit say otherwise (UNDO-42). Alloc lock held, and no buffer
 * locked, because overflow pages are locked before map pages.
 */
static void
check_unused(uint32 extent, bool new_group)
{
	BlockNumber start = zu_extent_block(extent);
	uint32		generation = known_generation(extent, new_group);
	bool		overflow = true;
	bool		unused = true;

	Assert(LWLockHeldByMe(zu_alloc_lock(zu_my.entry)));

	/*
	 * An overflow page without an owner may be followed by one with an owner.
	 * Any other page ends the search: an allocation for a log begins with the
	 * extent's first page.
	 */
	for (int page = 0; page < ZU_EXTENT_PAGES && overflow && unused; page++)
	{
		/* a damaged page tells nothing, and nothing needs it */
		Buffer		buf = zu_read_block(start + page, RBM_ZERO_ON_ERROR);
		ZuPageHeader *h = zu_page_header(BufferGetPage(buf));

		LockBuffer(buf, BUFFER_LOCK_SHARE);
		overflow = zu_overflow_page(BufferGetPage(buf));
		if (overflow)
			unused = !zu_overflow_owned(BufferGetPage(buf));
		else if (h->magic == ZU_PAGE_MAGIC && h->extent == extent)
			unused = !zu_generation_newer(h->generation, generation);
		UnlockReleaseBuffer(buf);
	}
	if (!unused)
		zu_report_stale(extent);
}

/* Returns the generation after this one; 0 is never used. */
static uint32
next_generation(uint32 generation)
{
	generation = (generation + 1) & ZU_MAX_GENERATION;
	return generation == 0 ? 1 : generation;
}

/*
 * Allocates one extent in a critical section: the map entry (with this state),
 * the number of extents in the meta page if 'grows', and the WAL record MAP.
 * Fills e->generation. Alloc lock held. 'grows': the extent lies at the limit,
 * which is raised while the meta page is still locked.
 */
static void
take_extent(ZuExtent *e, bool grows, uint8 state)
{
	BlockNumber first = zu_map_block(e->extent);
	bool		new_group = grows && e->extent % ZU_GROUP_EXTENTS == 0;
	ZuTwins		map;
	ZuTwins		meta;
	ZuMapEntry *entry;
	uint32		floor;
	xl_undo_map xlrec = {0};
	XLogRecPtr	recptr;

	Assert(LWLockHeldByMe(zu_alloc_lock(zu_my.entry)));
	Assert(state == ZU_EXTENT_LOG || state == ZU_EXTENT_OVERFLOW);
	Assert(!grows || e->extent == pg_atomic_read_u32(&zu_my.entry->limit)); /* UNDO-4 */
	if (new_group)
		zu_twins_lock_new(&map, first);
	else
		zu_twins_lock(&map, first);
	entry = zu_map_entry(zu_twins_page(&map), e->extent);
	if (grows)
	{
		zu_twins_lock(&meta, ZU_META_BLOCK);
		zu_heal_limit(&meta);
	}
	floor = grows ? zu_meta(zu_twins_page(&meta))->floor : 0;
	if (!new_group && entry->state != ZU_EXTENT_FREE)
		zu_report_changed_map(e->extent);
	e->generation = next_generation(new_group ? floor : entry->generation);
	/* UNDO-6 */
	Assert(zu_generation_newer(e->generation, new_group ? floor : entry->generation));
	xlrec.extent = e->extent;
	xlrec.generation = e->generation;
	xlrec.sequence = e->sequence;
	xlrec.logno = e->logno;
	xlrec.nextents = grows ? e->extent + 1 : 0;
	xlrec.floor = floor;
	xlrec.flags = (grows ? ZWAL_MAP_GROWS : 0) | (new_group ? ZWAL_MAP_NEW_GROUP : 0) |
		(state == ZU_EXTENT_OVERFLOW ? ZWAL_MAP_OVERFLOW : 0);

	START_CRIT_SECTION();
	if (new_group)
		zu_map_init(zu_twins_page(&map), first, floor);
	entry->generation = e->generation;
	entry->logno = (uint16) e->logno;
	entry->state = state;
	entry->resolved = 0;
	entry->sequence = e->sequence;
	entry->oldest_top = entry->newest = 0;
	entry->end = 0;
	zu_twins_changed(&map);
	if (grows)
	{
		zu_meta(zu_twins_page(&meta))->nextents = e->extent + 1;
		zu_twins_changed(&meta);
	}
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfUndoMap);
	zu_twins_register(&map, 0, new_group ? REGBUF_WILL_INIT : 0);
	if (grows)
		zu_twins_register(&meta, 2, 0);
	recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_UNDO_MAP);
	zu_twins_set_lsn(&map, recptr);
	if (grows)
		zu_twins_set_lsn(&meta, recptr);
	END_CRIT_SECTION();

	if (grows)
	{
		pg_atomic_write_u32(&zu_my.entry->limit, e->extent + 1);
		zu_twins_unlock(&meta);
	}
	zu_twins_unlock(&map);
}

/*
 * zu_growth_must_wait: See undo_internal.h. Looks for a free extent only if
 * the file is being cut off.
 */
bool
zu_growth_must_wait(ZuEntry *entry)
{
	return pg_atomic_read_u32(&entry->truncator) != 0 &&
		find_free(entry) >= pg_atomic_read_u32(&entry->limit);
}

/*
 * zu_wait_for_truncation: See undo_internal.h. Sleeps on the condition
 * variable, and looks again after a second in any case.
 */
void
zu_wait_for_truncation(ZuEntry *entry)
{
	Assert(!LWLockHeldByMe(zu_alloc_lock(entry)));
	ConditionVariablePrepareToSleep(&entry->truncated);
	while (pg_atomic_read_u32(&entry->truncator) != 0)
		(void) ConditionVariableTimedSleep(&entry->truncated, TRUNCATION_WAIT_MS,
										   PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

/*
 * Finds a free extent, or grows the file by one, and takes it for this state. e
 * has logno and sequence; extent and generation are filled in. Alloc lock held;
 * there is space below zundo.undo_limit, and the file may grow.
 */
static void
alloc_extent(ZuEntry *entry, ZuExtent *e, uint8 state)
{
	bool		grows;

	Assert(!zu_is_full(entry));
	Assert(!zu_growth_must_wait(entry));
	e->extent = find_free(entry);
	grows = e->extent >= pg_atomic_read_u32(&entry->limit);
	if (grows)
	{
		ZUNDO_FAULT("undo-extend");
		grow_file(e->extent);
	}
	check_unused(e->extent, grows && e->extent % ZU_GROUP_EXTENTS == 0);
	if (state == ZU_EXTENT_OVERFLOW)
		zu_overflow_init_extent(e->extent);
	take_extent(e, grows, state);
	pg_atomic_fetch_add_u32(&entry->used, 1);
	pg_atomic_write_u32(&entry->hint, e->extent + 1);
}

void
zu_check_unused(uint32 extent)
{
	check_unused(extent, false);
}

/*
 * zu_alloc_extent: See undo_internal.h. Waits, without the alloc lock, until
 * there is space and the file may grow; then takes the extent and makes it the
 * last one of the log.
 */
ZuExtent
zu_alloc_extent(uint32 logno, uint64 own_bytes)
{
	ZuEntry    *entry = zu_my.entry;
	ZuLog	   *log = &entry->logs[logno];
	ZuExtent	e;
	ZuFullWait	wait = {.own_bytes = own_bytes};

	Assert(zu_log_pid(log) == MyProcPid);	/* UNDO-13 */
	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	while (zu_is_full(entry) || zu_growth_must_wait(entry))
	{
		LWLockRelease(zu_alloc_lock(entry));
		zu_wait_for_truncation(entry);
		if (zu_is_full(entry))
			zu_wait_for_space(entry, &wait);
		LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	}
	e.logno = logno;
	e.sequence = log->last_sequence + 1;
	alloc_extent(entry, &e, ZU_EXTENT_LOG);
	log->last_sequence = e.sequence;
	pg_atomic_fetch_add_u32(&log->nextents, 1);
	LWLockRelease(zu_alloc_lock(entry));
	/* an error here leaves an extent without records, which scans pass over */
	ZUNDO_FAULT("undo-alloc");
	return e;
}

/*
 * zu_alloc_overflow_extent: See undo_internal.h. Does not wait: the caller has
 * found space under the alloc lock, and keeps that lock.
 */
uint32
zu_alloc_overflow_extent(void)
{
	ZuEntry    *entry = zu_my.entry;
	ZuExtent	e = {0};

	Assert(LWLockHeldByMe(zu_alloc_lock(entry)));
	alloc_extent(entry, &e, ZU_EXTENT_OVERFLOW);
	pg_atomic_fetch_add_u32(&entry->overflow_extents, 1);
	ZUNDO_FAULT("undo-alloc");
	return e.extent;
}

/* ---- resolved extents ---- */

/*
 * zu_mark_resolved: See undo_entry.h. Writes one WAL record MAP for all extents
 * of a group.
 */
void
zu_mark_resolved(ZuExtent *extents, int n)
{
	xl_undo_resolved data[ZU_GROUP_EXTENTS];

	Assert(pg_atomic_read_u32(&zu_my.entry->discarder) == (uint32) MyProcPid);
	qsort(extents, n, sizeof(ZuExtent), compare_by_number);
	for (int i = 0; i < n;)
	{
		uint32		group = extents[i].extent / ZU_GROUP_EXTENTS;
		xl_undo_map xlrec = {.flags = ZWAL_MAP_RESOLVED};
		int			same = 0;
		ZuTwins		map;
		XLogRecPtr	recptr;

		for (; i + same < n && extents[i + same].extent / ZU_GROUP_EXTENTS == group; same++)
		{
			data[same].oldest_top = extents[i + same].oldest_top;
			data[same].newest = extents[i + same].newest;
			data[same].extent = extents[i + same].extent;
			data[same].end = extents[i + same].end;
		}
		zu_twins_lock(&map, zu_map_block(extents[i].extent));
		START_CRIT_SECTION();
		zu_set_resolved(zu_twins_page(&map), data, same);
		zu_twins_changed(&map);
		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfUndoMap);
		XLogRegisterData((char *) data, same * sizeof(xl_undo_resolved));
		zu_twins_register(&map, 0, 0);
		recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_UNDO_MAP);
		zu_twins_set_lsn(&map, recptr);
		END_CRIT_SECTION();
		zu_twins_unlock(&map);
		i += same;
	}
}

/*
 * zu_set_resolved: See undo_internal.h. The extents are of one group, whose map
 * page the caller has locked.
 */
void
zu_set_resolved(Page page, const xl_undo_resolved *resolved, int n)
{
	for (int i = 0; i < n; i++)
	{
		ZuMapEntry *map = zu_map_entry(page, resolved[i].extent);

		/* storage may have lost a write of the page that replay finds */
		Assert(InRecovery || map->state == ZU_EXTENT_LOG);
		Assert(resolved[i].end <= ZU_EXTENT_END);
		map->resolved = 1;
		map->oldest_top = resolved[i].oldest_top;
		map->newest = resolved[i].newest;
		map->end = resolved[i].end;
	}
}

/* ---- freeing ---- */

/* Notes that oldest and freeze are in the meta page and its WAL now. */
static void
note_durable(ZuEntry *entry, ZXid oldest, const ZuFreeze *freeze)
{
	TimestampTz now = GetCurrentTimestamp();

	zu_max64(&entry->durable, oldest);
	SpinLockAcquire(&entry->mutex);
	entry->logged = now;
	entry->freeze_logged = *freeze;
	SpinLockRelease(&entry->mutex);
}

/*
 * Returns the conflict that the discard pass has noted for standbys, and
 * forgets it: the caller logs it in its next record (UNDO-19). Only by the
 * discarder.
 */
static ZXid
take_conflict(ZuEntry *entry)
{
	Assert(pg_atomic_read_u32(&entry->discarder) == (uint32) MyProcPid);
	return pg_atomic_exchange_u64(&entry->conflict, InvalidZXid);
}

/*
 * Returns a 64-bit xid as it is written to WAL. An id that no transaction can
 * have (its low half is not a normal xid) becomes the last one of the epoch
 * before.
 */
static TransactionId
as_transaction(ZXid xid)
{
	if (xid > PG_UINT32_MAX && !TransactionIdIsNormal(zxid_to_xid(xid)))
		return MaxTransactionId;
	return zxid_to_xid(xid);
}

TransactionId
zu_xid_before(ZXid oldest)
{
	Assert(oldest > InvalidZXid);
	return as_transaction(oldest - 1);
}

/*
 * Writes one DISCARD record: n extents become free (ascending, of one group;
 * map is their map page, locked, or NULL if n is 0), and `oldest`, the freeze
 * limit and the doubt window become durable. conflict is the newest discarded
 * xid for standbys (InvalidZXid = none), or CONFLICT_NOTED to take what the
 * discard pass has noted. Locks the meta page; unlocks both pages. May raise an
 * error before the critical section; nothing is changed then.
 */
static void
log_discard(const ZuExtent *extents, int n, ZXid oldest, ZXid conflict, ZuTwins *map)
{
	uint32		numbers[ZU_GROUP_EXTENTS];
	ZuEntry    *entry = zu_my.entry;
	ZuTwins		meta;
	ZuMetaData *data;
	xl_undo_discard xlrec = {0};
	ZuFreeze	freeze;
	XLogRecPtr	recptr;

	Assert(n <= ZU_GROUP_EXTENTS && (n == 0 || map != NULL));
	Assert(oldest <= zxid_from_full(ReadNextFullTransactionId()));	/* UNDO-2c */
	zu_twins_lock(&meta, ZU_META_BLOCK);
	zu_heal_limit(&meta);
	data = zu_meta(zu_twins_page(&meta));
	oldest = Max(oldest, data->oldest);
	xlrec.oldest = oldest;
	xlrec.nextents = n;
	SpinLockAcquire(&entry->mutex);
	freeze = entry->freeze;
	SpinLockRelease(&entry->mutex);
	xlrec.freeze_now = freeze.now;
	xlrec.freeze_next = freeze.next;
	xlrec.freeze_after = freeze.after;
	xlrec.doubt_from = pg_atomic_read_u64(&entry->doubt.from);
	xlrec.doubt_to = pg_atomic_read_u64(&entry->doubt.to);
	for (int i = 0; i < n; i++)
		numbers[i] = extents[i].extent;
	ZUNDO_FAULT("discard-begun");

	/*
	 * nothing can fail from here on, so the conflict that is taken gets
	 * logged
	 */
	xlrec.conflict = as_transaction(conflict == CONFLICT_NOTED ? take_conflict(entry) : conflict);

	START_CRIT_SECTION();
	data->oldest = oldest;
	data->freeze = freeze;
	data->doubt_from = xlrec.doubt_from;
	data->doubt_to = xlrec.doubt_to;
	zu_twins_changed(&meta);
	XLogBeginInsert();
	XLogRegisterData((char *) &xlrec, SizeOfUndoDiscard);
	zu_twins_register(&meta, 0, 0);
	if (n > 0)
	{
		for (int i = 0; i < n; i++)
			zu_map_entry(zu_twins_page(map), numbers[i])->state = ZU_EXTENT_FREE;
		zu_twins_changed(map);
		XLogRegisterData((char *) numbers, n * sizeof(uint32));
		zu_twins_register(map, 2, 0);
	}
	recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_UNDO_DISCARD);
	zu_twins_set_lsn(&meta, recptr);
	if (n > 0)
		zu_twins_set_lsn(map, recptr);
	END_CRIT_SECTION();

	zu_twins_unlock(&meta);
	if (n > 0)
		zu_twins_unlock(map);
	note_durable(entry, oldest, &freeze);
}

void
zu_log_oldest(ZXid oldest)
{
	log_discard(NULL, 0, oldest, CONFLICT_NOTED, NULL);
}

/*
 * zu_log_conflict: See undo.h. Writes a DISCARD record without extents, with
 * this conflict only: what the discard pass has noted is left to its own next
 * record.
 */
void
zu_log_conflict(TransactionId horizon)
{
	ZXid		before = zxid_widen(horizon);

	Assert(zu_my.entry != NULL);
	/* standbys know of transactions before `oldest` already */
	if (XLogStandbyInfoActive() && before > zu_oldest())
		log_discard(NULL, 0, zu_oldest(), before - 1, NULL);
}

/*
 * zu_free_extents: See undo_entry.h. Writes one DISCARD record for all extents
 * of a group. Before each, checks that the map still has the extents as their
 * logs know them.
 */
void
zu_free_extents(ZuExtent *extents, int n, ZXid oldest)
{
	ZuEntry    *entry = zu_my.entry;

	Assert(LWLockHeldByMe(zu_alloc_lock(entry)));
	Assert(pg_atomic_read_u64(&entry->oldest) >= oldest);	/* UNDO-7 */
	qsort(extents, n, sizeof(ZuExtent), compare_by_number);
	for (int i = 0; i < n;)
	{
		uint32		group = extents[i].extent / ZU_GROUP_EXTENTS;
		ZuTwins		twins;
		int			same = 0;

		zu_twins_lock(&twins, zu_map_block(extents[i].extent));
		while (i + same < n && extents[i + same].extent / ZU_GROUP_EXTENTS == group)
		{
			ZuExtent   *e = &extents[i + same];
			ZuMapEntry *map = zu_map_entry(zu_twins_page(&twins), e->extent);

			if (map->state != ZU_EXTENT_LOG || map->logno != e->logno ||
				map->generation != e->generation || map->sequence != e->sequence)
				zu_report_changed_map(e->extent);
			same++;
		}
		log_discard(extents + i, same, oldest, CONFLICT_NOTED, &twins);
		ZUNDO_FAULT("discard-logged");
		for (int j = i; j < i + same; j++)
			pg_atomic_fetch_sub_u32(&entry->logs[extents[j].logno].nextents, 1);
		pg_atomic_fetch_sub_u32(&entry->used, same);
		if (extents[i].extent < pg_atomic_read_u32(&entry->hint))
			pg_atomic_write_u32(&entry->hint, extents[i].extent);
		i += same;
	}
}

/*
 * zu_free_overflow_extent: See undo_internal.h. Calls 'unused' with the map
 * page locked: a process that takes a page of the extent locks that page first
 * and looks at the map then (zu_overflow_take), so one of the two sees the
 * other.
 */
void
zu_free_overflow_extent(uint32 extent, bool (*unused) (uint32 extent))
{
	ZuEntry    *entry = zu_my.entry;
	ZuTwins		twins;
	ZuExtent	e = {0};

	Assert(LWLockHeldByMe(zu_alloc_lock(entry)));
	zu_twins_lock(&twins, zu_map_block(extent));
	if (zu_map_entry(zu_twins_page(&twins), extent)->state != ZU_EXTENT_OVERFLOW ||
		!unused(extent))
	{
		zu_twins_unlock(&twins);
		return;
	}
	e.extent = extent;
	log_discard(&e, 1, pg_atomic_read_u64(&entry->oldest), InvalidZXid, &twins);
	pg_atomic_fetch_sub_u32(&entry->overflow_extents, 1);
	pg_atomic_fetch_sub_u32(&entry->used, 1);
	if (extent < pg_atomic_read_u32(&entry->hint))
		pg_atomic_write_u32(&entry->hint, extent);
}
