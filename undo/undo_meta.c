/*
 * undo/undo_meta.c - meta page, extent map and the life of extents.
 *
 * Owns the meta page and the map pages of zundo.undo_log: creation of the file,
 * loading of the shared entry from the pages, allocation and freeing of
 * extents. Called by undo_log.c, undo_discard.c, undo_am.c and at attach.
 *
 * Locks: allocation and freeing hold the entry's alloc lock throughout; then
 * map page before meta page. Readers of map pages take only the page's share lock.
 *
 * Crash points
 *	after the file grew, before ALLOC		blocks beyond the limit: used by the next growth
 *	after ALLOC, before the first record	an extent without pages: the log's next position
 *	after DISCARD, before the log moved on	the extent is free; nothing points there
 *
 * Invariants
 *	U4	extents 0 .. nextents - 1 exist in the file, with the map pages of their groups.
 *	U5	each log's extents have distinct sequence numbers; records are in order of
 *		(sequence, byte), and a record never leaves its extent.
 *	U6	an extent's generation changes with each allocation and is logged before the first
 *		page is written with it.
 *	U7	an extent becomes FREE only after `oldest` has passed, in shared memory, everything
 *		that it held.
 *	U51	the file grows only while no process cuts it off (ZuEntry.truncator).
 *	U8	pd_lower of meta and map pages is exact.
 *	U39	nobody writes under an xid below `oldest`, here or in the meta page: it begins as the oldest running transaction,
 *		redo of DISCARD makes the server's next xid pass it, a meta page from the future is refused, and each writer
 *		looks (zwriter_start).
 *	U41	the generation of an extent that is taken is newer than each that a pointer to it may have: a
 *		group that was cut off begins anew at the newest generation ever cut off.
 *	U42	an extent is taken only if its first page is not of a later allocation than the map knows.
 */
#include "common/zundo.h"
#include "undo/undo_internal.h"
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

/* log_discard's conflict: what the discard pass has noted (take_conflict). */
#define CONFLICT_NOTED	ZXID_MASK

/* Longest sleep between looks at whether the file is still being cut off. */
#define TRUNCATION_WAIT_MS	1000

/* Alignment that direct I/O may ask for. */
#define META_ALIGN		4096

Buffer
zu_read_block(BlockNumber block, ReadBufferMode mode)
{
	zundo_abort_may_read(zu_my.locator, block);
	return ReadBufferWithoutRelcache(zu_my.locator, MAIN_FORKNUM, block, mode, NULL, true);
}

/* ---- pages ---- */

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

void
zu_map_init(Page page, BlockNumber first, uint32 floor)
{
	PageInit(page, BLCKSZ, 0);
	zu_twin_init(page, first);
	for (uint32 i = 0; i < ZU_GROUP_EXTENTS; i++)
		zu_map_entry(page, i)->generation = floor;
	((PageHeader) page)->pd_lower = ZU_TWIN_DATA + ZU_GROUP_EXTENTS * sizeof(ZuMapEntry);
}

void
zu_page_init(Page page, uint32 extent, int pageno, const ZuPlace *place)
{
	ZuPageHeader *h = zu_page_header(page);

	PageInit(page, BLCKSZ, 0);
	h->generation = place->generation;
	h->extent = extent;
	h->logno = (uint16) place->logno;
	h->first_record = 0;
	h->magic = ZU_PAGE_MAGIC;
	h->page = (uint16) pageno;
	h->sequence = place->sequence;
	h->prev = pageno == 0 ? place->prev : InvalidUndoPtr;
	h->topxid = place->topxid;
	((PageHeader) page)->pd_lower = ZU_PAGE_DATA;
}

/* check_meta: raise an error unless page is a meta page of the format that this version writes. */
static void
check_meta(Page page)
{
	ZuMetaData *meta = zu_meta(page);

	if (meta->version != ZU_META_VERSION || meta->extent_pages != ZU_EXTENT_PAGES)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("format of \"zundo.undo_log\" is not supported by this version of zundo"),
				 errdetail("Found version %u with extents of %u pages, expected version %u with "
						   "%u pages.",
						   meta->version, meta->extent_pages, ZU_META_VERSION, ZU_EXTENT_PAGES),
				 errhint("Install the version of zundo that wrote it.")));
}

/* check_time: raise an error if `oldest` is of a time that this server has not reached: its counter was set back. */
static void
check_time(ZXid oldest)
{
	ZXid		next = zxid_from_full(zc_next_full_xid());

	if (oldest > next)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the undo log of this database is ahead of the server's transaction IDs"),
				 errdetail("According to \"zundo.undo_log\", every transaction before " UINT64_FORMAT
						   " has ended, but the server's next transaction ID is " UINT64_FORMAT ".", oldest, next),
				 errhint("Stop the server and advance its next transaction ID and epoch with "
						 "pg_resetwal -e %u -x %u.",
						 (uint32) (oldest >> 32), (uint32) oldest + 1)));
}

void
zu_create_storage(RelFileLocator locator, char persistence)
{
	SMgrRelation smgr = RelationCreateStorage(locator, persistence, true);
	char		room[BLCKSZ + META_ALIGN];
	char	   *page = (char *) TYPEALIGN(META_ALIGN, room);

	/*
	 * No row can point here yet, and until we commit nobody else can write one. But transactions that have their id
	 * already may do so then: `oldest` is not above any of them (U39).
	 */
	(void) GetTopTransactionId();
	memset(page, 0, BLCKSZ);
	zu_meta_init((Page) page, zxid_widen(GetOldestActiveTransactionId()));
	zu_twin_seal((Page) page);
	for (BlockNumber block = ZU_META_BLOCK; block < ZU_META_BLOCK + 2; block++)
	{
		log_newpage(&locator, MAIN_FORKNUM, block, page, true);
		PageSetChecksumInplace((Page) page, block);
		smgrextend(smgr, MAIN_FORKNUM, block, page, false);
	}
	/* a checkpoint may have passed between the record and the write */
	smgrimmedsync(smgr, MAIN_FORKNUM);
}

/* ---- loading ---- */

void
zu_load_meta(ZuEntry *entry)
{
	Buffer		buf;
	ZuMetaData *meta;

	LWLockAcquire(zu_load_lock(entry), LW_EXCLUSIVE);
	if (pg_atomic_read_u32(&entry->state) == ZU_ENTRY_EMPTY)
	{
		if (!RecoveryInProgress())
			zu_twins_repair(ZU_META_BLOCK);
		/*
		 * Redo changes the entry while it has the meta page locked, so under
		 * our share lock page and entry agree.
		 */
		buf = zu_twins_share(ZU_META_BLOCK);
		check_meta(BufferGetPage(buf));
		meta = zu_meta(BufferGetPage(buf));
		check_time(meta->oldest);
		pg_atomic_write_u64(&entry->doubt.from, meta->doubt_from);
		pg_atomic_write_u64(&entry->doubt.to, meta->doubt_to);
		zu_max64(&entry->oldest, meta->oldest);
		zu_max64(&entry->durable, meta->oldest);
		pg_atomic_write_u32(&entry->limit, meta->nextents);
		pg_write_barrier();
		SpinLockAcquire(&entry->mutex);
		entry->freeze = entry->freeze_logged = meta->freeze;
		SpinLockRelease(&entry->mutex);
		pg_atomic_write_u32(&entry->state, ZU_ENTRY_VALID);
		UnlockReleaseBuffer(buf);
	}
	LWLockRelease(zu_load_lock(entry));
}

static int
compare_by_sequence(const void *a, const void *b)
{
	const ZuExtent *x = (const ZuExtent *) a;
	const ZuExtent *y = (const ZuExtent *) b;

	if (x->logno != y->logno)
		return x->logno < y->logno ? -1 : 1;
	if (x->sequence != y->sequence)
		return x->sequence < y->sequence ? -1 : 1;
	return 0;
}

static int
compare_by_number(const void *a, const void *b)
{
	const ZuExtent *x = (const ZuExtent *) a;
	const ZuExtent *y = (const ZuExtent *) b;

	return x->extent < y->extent ? -1 : x->extent > y->extent ? 1 : 0;
}

/* copy_map_page: private copy of the map page of extent's group; false if it was cut off. */
static bool
copy_map_page(uint32 extent, char *dst)
{
	bool		taken = zu_fence_enter();
	bool		there = false;

	/* the tail may be truncated while we go through the map */
	if (extent < pg_atomic_read_u32(&zu_my.entry->limit))
	{
		Buffer		buf = zu_twins_share(zu_map_block(extent));

		there = true;
		memcpy(dst, BufferGetPage(buf), BLCKSZ);
		UnlockReleaseBuffer(buf);
	}
	zu_fence_leave(taken);
	return there;
}

ZuExtent *
zu_collect_extents(int logno, uint64 from, int *n)
{
	int			room = 64;
	ZuExtent   *result = palloc(room * sizeof(ZuExtent));
	uint32		limit = pg_atomic_read_u32(&zu_my.entry->limit);
	PGAlignedBlock copy;

	*n = 0;
	for (uint32 extent = 0; extent < limit; extent++)
	{
		ZuMapEntry *map;

		if (extent % ZU_GROUP_EXTENTS == 0)
		{
			CHECK_FOR_INTERRUPTS();
			if (!copy_map_page(extent, copy.data))
			{
				extent += ZU_GROUP_EXTENTS - 1;
				continue;
			}
		}
		map = zu_map_entry((Page) copy.data, extent);
		if (map->state != ZU_EXTENT_LOG ||
			(logno >= 0 && (map->logno != logno || map->sequence < from)))
			continue;
		if (*n == room)
		{
			room *= 2;
			result = repalloc_huge(result, room * sizeof(ZuExtent));
		}
		result[*n].sequence = map->sequence;
		result[*n].extent = extent;
		result[*n].generation = map->generation;
		result[*n].logno = map->logno;
		result[*n].settled = map->settled != 0;
		result[*n].end = map->end;
		result[*n].oldest_top = map->oldest_top;
		result[*n].newest = map->newest;
		(*n)++;
	}
	qsort(result, *n, sizeof(ZuExtent), compare_by_sequence);
	return result;
}

/* is_map_lost: are both twins of the map page of extent's group damaged? */
static bool
is_map_lost(uint32 extent)
{
	bool		taken = zu_fence_enter();
	bool		lost = extent < pg_atomic_read_u32(&zu_my.entry->limit) && zu_twins_lost(zu_map_block(extent));

	zu_fence_leave(taken);
	return lost;
}

bool
zu_any_log_extent(void)
{
	uint32		limit = pg_atomic_read_u32(&zu_my.entry->limit);
	PGAlignedBlock copy;

	for (uint32 first = 0; first < limit; first += ZU_GROUP_EXTENTS)
	{
		CHECK_FOR_INTERRUPTS();
		/* a lost page may name one; who reads tables does not depend on the map */
		if (is_map_lost(first))
			return true;
		if (!copy_map_page(first, copy.data))
			continue;
		for (uint32 extent = first; extent < Min(limit, first + ZU_GROUP_EXTENTS); extent++)
			if (zu_map_entry((Page) copy.data, extent)->state == ZU_EXTENT_LOG)
				return true;
	}
	return false;
}

uint32 *
zu_collect_overflow(int *n)
{
	int			room = 16;
	uint32	   *result = palloc(room * sizeof(uint32));
	uint32		limit = pg_atomic_read_u32(&zu_my.entry->limit);
	PGAlignedBlock copy;

	*n = 0;
	for (uint32 extent = 0; extent < limit; extent++)
	{
		if (extent % ZU_GROUP_EXTENTS == 0)
		{
			CHECK_FOR_INTERRUPTS();
			if (!copy_map_page(extent, copy.data))
			{
				extent += ZU_GROUP_EXTENTS - 1;
				continue;
			}
		}
		if (zu_map_entry((Page) copy.data, extent)->state != ZU_EXTENT_OVERFLOW)
			continue;
		if (*n == room)
		{
			room *= 2;
			result = repalloc_huge(result, room * sizeof(uint32));
		}
		result[(*n)++] = extent;
	}
	return result;
}

bool
zu_is_overflow_extent(uint32 extent)
{
	Buffer		buf = zu_twins_share(zu_map_block(extent));
	bool		is = zu_map_entry(BufferGetPage(buf), extent)->state == ZU_EXTENT_OVERFLOW;

	UnlockReleaseBuffer(buf);
	return is;
}

bool
zu_read_map_entry(uint32 extent, ZuMapEntry *dst)
{
	bool		taken = zu_fence_enter();
	bool		exists = false;

	/* U9: the map page may be cut off with the tail */
	if (extent < pg_atomic_read_u32(&zu_my.entry->limit))
	{
		Buffer		buf = zu_twins_share(zu_map_block(extent));

		*dst = *zu_map_entry(BufferGetPage(buf), extent);
		UnlockReleaseBuffer(buf);
		exists = true;
	}
	zu_fence_leave(taken);
	return exists;
}

bool
zu_extent_live(const ZuExtent *e)
{
	ZuMapEntry	map;

	return zu_read_map_entry(e->extent, &map) && map.state == ZU_EXTENT_LOG && map.logno == e->logno &&
		map.generation == e->generation && map.sequence == e->sequence;
}

bool
zu_block_is_zero(BlockNumber block)
{
	char		room[BLCKSZ + META_ALIGN];
	char	   *bytes = (char *) TYPEALIGN(META_ALIGN, room);

	smgrread(smgropen(zu_my.locator, INVALID_PROC_NUMBER), MAIN_FORKNUM, block, bytes);
	for (int i = 0; i < BLCKSZ; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

/*
 * is_blank: is page 'page' of the extent, which is not written, so in the file too? One that could not be read looks so in its buffer.
 * Nobody writes the extent.
 */
static bool
is_blank(uint32 extent, int page)
{
	BlockNumber block = zu_extent_block(extent) + page;
	Buffer		buf = zu_read_block(block, RBM_NORMAL);
	bool		is_new;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	is_new = PageIsNew(BufferGetPage(buf));
	UnlockReleaseBuffer(buf);
	/* else of another allocation of the extent */
	return !is_new || zu_block_is_zero(block);
}

UndoPtr
zu_find_insert(const ZuExtent *e, bool *sound)
{
	PGAlignedBlock copy;
	uint32		end = 0;		/* byte in the extent, 0 = not found yet */

	for (int page = 0; page < ZU_EXTENT_PAGES && (end == 0 || sound != NULL); page++)
	{
		if (zu_copy_page(e->extent, e->generation, page, copy.data, RBM_ZERO_ON_ERROR))
		{
			int			lower = ((PageHeader) copy.data)->pd_lower;

			if (end != 0)
				*sound = false;
			else if (lower < BLCKSZ)
				end = page * BLCKSZ + lower;
			continue;
		}
		if (end == 0)
			end = page * BLCKSZ + ZU_PAGE_DATA;
		if (sound != NULL && !is_blank(e->extent, page))
			*sound = false;
	}
	if (end == 0)
		end = ZU_EXTENT_END;
	return end == ZU_PAGE_DATA ? InvalidUndoPtr : zuptr_make(e->generation, e->extent, end);
}

/* tail_parses: can the records on the last pages before 'insert' in extent e be read? */
static bool
tail_parses(const ZuExtent *e, UndoPtr insert)
{
	ZuScan	   *scan = palloc(sizeof(ZuScan));
	ZuExtent   *one = palloc(sizeof(ZuExtent));
	PGAlignedBlock copy;
	int			page = Min((int) (zuptr_byte(insert) / BLCKSZ), ZU_EXTENT_PAGES - 1);
	uint32		start = 0;
	ZuRecord	rec;
	UndoPtr		ptr;
	ZuStep		step;

	for (; page >= 0 && start == 0; page--)
	{
		ZuPageHeader *h = zu_page_header((Page) copy.data);

		if (zu_copy_page(e->extent, e->generation, page, copy.data, RBM_ZERO_ON_ERROR) && h->first_record != 0)
			start = page * BLCKSZ + h->first_record;
	}
	if (start % BLCKSZ < ZU_PAGE_DATA)
	{
		pfree(one);
		pfree(scan);
		return false;
	}
	*one = *e;
	zu_scan_init(scan, e->logno, one, 1, start, insert, CurrentMemoryContext);
	while ((step = zu_scan_step(scan, &rec, &ptr)) == ZU_STEP_RECORD)
		;
	step = step == ZU_STEP_END && zu_scan_position(scan) == insert ? ZU_STEP_END : ZU_STEP_CORRUPT;
	pfree(scan->extents);
	pfree(scan);
	return step == ZU_STEP_END;
}

/* load_log: set up one log from its n extents, by sequence. */
static void
load_log(ZuEntry *entry, ZuLog *log, const ZuExtent *extents, int n)
{
	const ZuExtent *first = &extents[0];
	const ZuExtent *entered = first;
	UndoPtr		insert = InvalidUndoPtr;
	bool		sound = true;

	/* extents that were taken and not entered come last */
	for (int i = n - 1; i >= 0 && insert == InvalidUndoPtr && sound; i--)
	{
		entered = &extents[i];
		insert = zu_find_insert(entered, &sound);
	}
	if (insert != InvalidUndoPtr)
		sound = sound && tail_parses(entered, insert);
	else
		insert = zuptr_make(entered->generation, entered->extent, ZU_PAGE_DATA);
	pg_atomic_write_u64(&log->discard, zuptr_make(first->generation, first->extent, ZU_PAGE_DATA));
	pg_atomic_write_u64(&log->discard_sequence, first->sequence);
	pg_atomic_write_u64(&log->insert_sequence, entered->sequence);
	pg_atomic_write_u64(&log->insert, insert);
	pg_atomic_write_u32(&log->nextents, n);
	log->last_sequence = extents[n - 1].sequence;
	log->sealed = true;
	if (!sound)
		zu_close_log(entry, first->logno, insert);
}

/* load_logs: fill the entry's logs from the pages. Load lock held. */
static void
load_logs(ZuEntry *entry)
{
	uint32		limit = pg_atomic_read_u32(&entry->limit);
	int			n;
	int			noverflow;
	ZuExtent   *extents;

	for (uint32 first = 0; first < limit; first += ZU_GROUP_EXTENTS)
		zu_twins_repair(zu_map_block(first));
	extents = zu_collect_extents(-1, 0, &n);
	/* what is older was settled before it was made durable; without an extent there was no undo */
	if (n > 0)
		zu_widen_doubt(entry, pg_atomic_read_u64(&entry->durable), zxid_from_full(zc_next_full_xid()));
	for (int i = 0; i < n;)
	{
		int			same = 1;

		while (i + same < n && extents[i + same].logno == extents[i].logno)
			same++;
		if (extents[i].logno >= zu_nlogs())
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("\"zundo.undo_log\" contains more logs than this server can track"),
					 errdetail("Found log number %u, the limit is %d.", extents[i].logno, zu_nlogs() - 1),
					 errhint("Restart the server with \"max_connections\" set to at least its "
							 "previous value.")));
		ZUNDO_FAULT("undo-load");
		load_log(entry, &entry->logs[extents[i].logno], extents + i, same);
		i += same;
	}
	pg_atomic_write_u32(&entry->hint, 0);
	pfree(extents);
	pfree(zu_collect_overflow(&noverflow));
	pg_atomic_write_u32(&entry->used, n + noverflow);
	pg_atomic_write_u32(&entry->overflow_extents, noverflow);
	pg_atomic_write_u32(&entry->overflow_hint, 0);
}

void
zu_require_logs(void)
{
	ZuEntry    *entry = zu_my.entry;

	Assert(entry != NULL);
	if (likely(pg_atomic_read_u32(&entry->state) == ZU_ENTRY_LOGS))
	{
		pg_read_barrier();		/* entry->logs was set before */
		return;
	}
	if (pg_atomic_read_u32(&entry->state) == ZU_ENTRY_EMPTY)
		elog(ERROR, "undo logs cannot be loaded before the meta page");
	if (RecoveryInProgress())
		elog(ERROR, "undo logs cannot be loaded during recovery");
	LWLockAcquire(zu_load_lock(entry), LW_EXCLUSIVE);
	if (pg_atomic_read_u32(&entry->state) != ZU_ENTRY_LOGS)
	{
		zu_take_logs(entry);
		load_logs(entry);
		pg_write_barrier();
		pg_atomic_write_u32(&entry->state, ZU_ENTRY_LOGS);
	}
	LWLockRelease(zu_load_lock(entry));
}

/* ---- allocation ---- */

/* find_free: the lowest free extent, or the limit if there is none. Alloc lock held. */
static uint32
find_free(ZuEntry *entry)
{
	uint32		limit = pg_atomic_read_u32(&entry->limit);
	uint32		extent = pg_atomic_read_u32(&entry->hint);

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

/* grow_file: make the blocks of extents 0 .. extent exist. Alloc lock held. Error if the disk is full; may be repeated. */
static void
grow_file(uint32 extent)
{
	SMgrRelation smgr = smgropen(zu_my.locator, INVALID_PROC_NUMBER);
	BlockNumber need = zu_nblocks_for(extent + 1);
	BlockNumber have;

	/* a segment that we have open may have been cut off by a truncation we never heard of */
	smgrrelease(smgr);
	have = smgrnblocks(smgr, MAIN_FORKNUM);

	if (extent >= ZU_MAX_EXTENTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("\"zundo.undo_log\" cannot be extended any further"),
				 errdetail("It has %u extents of %d kB.", extent, ZU_EXTENT_PAGES * BLCKSZ / 1024),
				 errhint("End the transactions that prevent undo from being discarded.")));
	while (have < need)
	{
		int			n = (int) Min(need - have, (BlockNumber) 2 * ZU_EXTENT_PAGES);

		zc_smgr_zero_extend(smgr, have, n);
		have += n;
	}
}

/* known_generation: returns the latest one of a free extent; of a group that does not exist, the floor. Alloc lock held. */
static uint32
known_generation(uint32 extent, bool new_group)
{
	Buffer		buf = zu_twins_share(new_group ? ZU_META_BLOCK : zu_map_block(extent));
	uint32		generation = new_group ? zu_meta(BufferGetPage(buf))->floor :
		zu_map_entry(BufferGetPage(buf), extent)->generation;

	UnlockReleaseBuffer(buf);
	return generation;
}

/*
 * check_unused: raises an error if pages of the extent tell that it is in use, though map and limit
 * say otherwise (U42). Alloc lock held, and no buffer: overflow pages are locked before map pages.
 */
static void
check_unused(uint32 extent, bool new_group)
{
	BlockNumber start = zu_extent_block(extent);
	uint32		generation = known_generation(extent, new_group);
	bool		overflow = true;
	bool		unused = true;

	/* an overflow page without an owner may be followed by one with an owner */
	for (int page = 0; page < ZU_EXTENT_PAGES && overflow && unused; page++)
	{
		/* of a damaged page there is nothing to learn, and nothing needs it */
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
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("extent %u of relation \"%s\" is in use", extent, "zundo.undo_log"),
				 errdetail("The extent map in blocks %u and %u marks it as free, but the blocks "
						   "from %u on were written later.",
						   zu_map_block(extent), zu_map_block(extent) + 1, start),
				 errhint("Both copies of the map have missed writes. Check the storage of this "
						 "database, then see zundo.repair_undo().")));
}

/* next_generation: of an extent whose last one is this. */
static uint32
next_generation(uint32 generation)
{
	generation = (generation + 1) & ZU_MAX_GENERATION;
	return generation == 0 ? 1 : generation;
}

/*
 * take_extent: the critical section of allocation: map entry (with this state), meta page,
 * WAL. Fills e->generation. Alloc lock held; 'grows' if the extent lies at the limit.
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

	if (new_group)
		zu_twins_lock_new(&map, first);
	else
		zu_twins_lock(&map, first);
	entry = zu_map_entry(zu_twins_page(&map), e->extent);
	if (grows)
		zu_twins_lock(&meta, ZU_META_BLOCK);
	floor = grows ? zu_meta(zu_twins_page(&meta))->floor : 0;
	if (!new_group && entry->state != ZU_EXTENT_FREE)
		elog(ERROR, "extent %u of the undo log is not free", e->extent);
	e->generation = next_generation(new_group ? floor : entry->generation);
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
	entry->settled = 0;
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

bool
zu_growth_must_wait(ZuEntry *entry)
{
	return pg_atomic_read_u32(&entry->truncator) != 0 &&
		find_free(entry) >= pg_atomic_read_u32(&entry->limit);
}

void
zu_wait_for_truncation(ZuEntry *entry)
{
	ConditionVariablePrepareToSleep(&entry->truncated);
	while (pg_atomic_read_u32(&entry->truncator) != 0)
		(void) ConditionVariableTimedSleep(&entry->truncated, TRUNCATION_WAIT_MS, PG_WAIT_EXTENSION);
	ConditionVariableCancelSleep();
}

/*
 * alloc_extent: find or make an extent, and take it for this state; e has logno and sequence. Alloc lock held, and
 * there is room below zundo.undo_limit.
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
	take_extent(e, grows, state);
	pg_atomic_fetch_add_u32(&entry->used, 1);
	pg_atomic_write_u32(&entry->hint, e->extent + 1);
}

void
zu_check_unused(uint32 extent)
{
	check_unused(extent, false);
}

ZuExtent
zu_alloc_extent(uint32 logno)
{
	ZuEntry    *entry = zu_my.entry;
	ZuLog	   *log = &entry->logs[logno];
	ZuExtent	e;
	ZuFullWait	wait = {0};

	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	while (zu_is_full(entry) || zu_growth_must_wait(entry))
	{
		LWLockRelease(zu_alloc_lock(entry));
		zu_wait_for_truncation(entry);
		if (zu_is_full(entry))
			zu_wait_for_room(entry, &wait);
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

/* ---- settled extents ---- */

void
zu_mark_settled(ZuExtent *extents, int n)
{
	xl_undo_settled data[ZU_GROUP_EXTENTS];

	qsort(extents, n, sizeof(ZuExtent), compare_by_number);
	for (int i = 0; i < n;)
	{
		uint32		group = extents[i].extent / ZU_GROUP_EXTENTS;
		xl_undo_map xlrec = {.flags = ZWAL_MAP_SETTLED};
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
		zu_set_settled(zu_twins_page(&map), data, same);
		zu_twins_changed(&map);
		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfUndoMap);
		XLogRegisterData((char *) data, same * sizeof(xl_undo_settled));
		zu_twins_register(&map, 0, 0);
		recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_UNDO_MAP);
		zu_twins_set_lsn(&map, recptr);
		END_CRIT_SECTION();
		zu_twins_unlock(&map);
		i += same;
	}
}

void
zu_set_settled(Page page, const xl_undo_settled *settled, int n)
{
	for (int i = 0; i < n; i++)
	{
		ZuMapEntry *map = zu_map_entry(page, settled[i].extent);

		map->settled = 1;
		map->oldest_top = settled[i].oldest_top;
		map->newest = settled[i].newest;
		map->end = settled[i].end;
	}
}

/* ---- freeing ---- */

/* note_durable: oldest and freeze are in the meta page's WAL now. */
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

/* take_conflict: what the discard pass has to tell standbys with its next record (U19). Only for the discarder. */
static ZXid
take_conflict(ZuEntry *entry)
{
	return pg_atomic_exchange_u64(&entry->conflict, InvalidZXid);
}

/* as_transaction: a 64-bit id as it stands in WAL; one that no transaction has is the next lower one, of the epoch before. */
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
	return as_transaction(oldest - 1);
}

/*
 * log_discard: one DISCARD record: n extents (ascending, of one group; map is
 * their map page, locked, or NULL if n is 0), oldest, and the conflict horizon: the given one (0 = none) or, with
 * CONFLICT_NOTED, what the discard pass has noted. Locks the meta page, unlocks both.
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

	zu_twins_lock(&meta, ZU_META_BLOCK);
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
	/* nothing fails from here on: what is taken is told */
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

void
zu_log_conflict(TransactionId horizon)
{
	ZXid		before = zxid_widen(horizon);

	zu_attach_database();
	/* what is before `oldest` has been told */
	if (XLogStandbyInfoActive() && before > zu_oldest())
		log_discard(NULL, 0, zu_oldest(), before - 1, NULL);
}

void
zu_free_extents(ZuExtent *extents, int n, ZXid oldest)
{
	ZuEntry    *entry = zu_my.entry;

	Assert(LWLockHeldByMe(zu_alloc_lock(entry)));
	Assert(pg_atomic_read_u64(&entry->oldest) >= oldest);
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
				elog(ERROR, "extent %u of the undo log is not what its log believes", e->extent);
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

bool
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
		return false;
	}
	e.extent = extent;
	log_discard(&e, 1, pg_atomic_read_u64(&entry->oldest), InvalidZXid, &twins);
	pg_atomic_fetch_sub_u32(&entry->overflow_extents, 1);
	pg_atomic_fetch_sub_u32(&entry->used, 1);
	if (extent < pg_atomic_read_u32(&entry->hint))
		pg_atomic_write_u32(&entry->hint, extent);
	return true;
}
