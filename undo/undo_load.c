/*
 * undo/undo_load.c - filling the shared entry of a database from its pages.
 *
 * Called at attach, and before logs are first written or discarded.
 *
 * Locks: load lock -> fence, map page, meta page.
 *
 * Crash points: none; nothing here is durable but repairs of twins.
 */
#include "undo/undo_internal.h"

#include "miscadmin.h"
#include "utils/memutils.h"

/*
 * Raises an error unless page is a meta page of the format that this version
 * writes.
 */
void
zu_check_meta(Page page)
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

/*
 * Raises an error if `oldest` is ahead of the server's transaction ids, which
 * happens if the server's counter was set back.
 */
static void
check_time(ZXid oldest)
{
	ZXid		next = zxid_from_full(ReadNextFullTransactionId());

	if (oldest > next)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the undo log of this database is ahead of the server's transaction IDs"),
				 errdetail("According to \"zundo.undo_log\", every transaction before "
						   UINT64_FORMAT
						   " has ended, but the next transaction ID is " UINT64_FORMAT ".",
						   oldest, next),
				 errhint("Stop the server and advance its next transaction ID and epoch with "
						 "pg_resetwal -e %u -x %u.",
						 (uint32) (oldest >> 32), (uint32) oldest + 1)));
}

/*
 * Share-locks the meta page, and sets *limit to the number of extents, at least
 * as many as the map has in use (UNDO-71). On a standby replay changes both
 * meanwhile; the map is looked at again if the meta page has changed since
 * before. The fence keeps what lies below that number from being cut off:
 * redo takes it after it has changed the meta page, too.
 */
static Buffer
share_meta(uint32 *limit)
{
	PGAlignedBlock before;
	Buffer		buf;

	for (;;)
	{
		bool		taken = zu_fence_enter();

		if (!zu_twins_copy(ZU_META_BLOCK, before.data))
			zu_twins_report_lost(ZU_META_BLOCK);
		zu_check_meta((Page) before.data);
		*limit = zu_claimed_extents(zu_meta((Page) before.data));
		zu_fence_leave(taken);
		buf = zu_twins_share(ZU_META_BLOCK);
		if (memcmp(before.data + SizeOfPageHeaderData, BufferGetPage(buf) + SizeOfPageHeaderData,
				   BLCKSZ - SizeOfPageHeaderData) == 0)
			return buf;
		UnlockReleaseBuffer(buf);
	}
}

/*
 * zu_load_meta: See undo_internal.h. Loads nothing if another process has done
 * so while this one waited for the load lock. Repairs what can be repaired
 * first, but not in recovery, so the first user after a promotion loads the
 * page again. Others may read by means of the entry meanwhile: what they find
 * there grows. The version is checked before anything is written.
 */
void
zu_load_meta(ZuEntry *entry)
{
	Buffer		buf;
	ZuMetaData *meta;
	uint32		limit;
	bool		recovery = RecoveryInProgress();
	ZuEntryState state = recovery ? ZU_ENTRY_STANDBY : ZU_ENTRY_VALID;

	LWLockAcquire(zu_load_lock(entry), LW_EXCLUSIVE);
	if (!zu_entry_has(entry, state))
	{
		if (!recovery)
		{
			PGAlignedBlock copy;

			if (!zu_twins_copy(ZU_META_BLOCK, copy.data))
				zu_twins_report_lost(ZU_META_BLOCK);
			zu_check_meta((Page) copy.data);
			zu_mend(zu_meta((Page) copy.data));
		}

		/*
		 * Redo changes the entry while it has the meta page locked, so under
		 * our share lock page and entry agree.
		 */
		buf = share_meta(&limit);
		meta = zu_meta(BufferGetPage(buf));
		check_time(meta->oldest);
		pg_atomic_write_u64(&entry->doubt.from, meta->doubt_from);
		pg_atomic_write_u64(&entry->doubt.to, meta->doubt_to);
		zu_max64(&entry->oldest, meta->oldest);
		zu_max64(&entry->durable, meta->oldest);
		pg_atomic_write_u32(&entry->limit, Max(limit, pg_atomic_read_u32(&entry->limit)));
		pg_write_barrier();
		SpinLockAcquire(&entry->mutex);
		entry->freeze = entry->freeze_logged = meta->freeze;
		SpinLockRelease(&entry->mutex);
		pg_atomic_write_u32(&entry->state, state);
		UnlockReleaseBuffer(buf);
	}
	LWLockRelease(zu_load_lock(entry));
}

/*
 * Returns whether nothing was lost on page 'page' of the extent, on which
 * zu_copy_page has found no data of the current allocation: either the page is
 * left from another allocation, or it is empty in its buffer and in the file. A
 * page that could not be read is empty only in its buffer. No process writes to
 * the extent meanwhile.
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
	return !is_new || zu_block_is_zero(block);
}

/*
 * zu_find_insert: See undo_internal.h. Takes the end of the first page that is
 * not full. With sound, reads on: a written or unreadable page behind the end
 * means that the end is wrong.
 */
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

/*
 * Returns whether the last records of extent e can be read: those from the last
 * page on which a record begins up to 'insert'.
 */
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

		if (zu_copy_page(e->extent, e->generation, page, copy.data, RBM_ZERO_ON_ERROR) &&
			h->first_record != 0)
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

/*
 * Sets up one log from its n extents, ordered by sequence. Closes the log if
 * where it ends is not certain.
 */
static void
load_log(ZuEntry *entry, ZuLog *log, const ZuExtent *extents, int n)
{
	const ZuExtent *first = &extents[0];
	const ZuExtent *entered = first;
	UndoPtr		insert = InvalidUndoPtr;
	bool		sound = true;

	Assert(n > 0 && zu_log_pid(log) == 0);
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

/*
 * Fills the entry's logs from the pages. Load lock held. Repairs the map pages
 * first. Raises an error if the file has lost data, if pages of extents show
 * that the map has missed writes (UNDO-71c), or if the map names more logs than
 * fit the shared memory.
 */
static void
load_logs(ZuEntry *entry)
{
	uint32		limit = pg_atomic_read_u32(&entry->limit);
	int			n;
	int			noverflow;
	ZuExtent   *extents;

	Assert(LWLockHeldByMe(zu_load_lock(entry)));
	if (zu_file_blocks() < zu_nblocks_for(limit))
		zu_report_short(limit);
	for (uint32 first = 0; first < limit; first += ZU_GROUP_EXTENTS)
	{
		PGAlignedBlock map;
		uint32		stale;

		zu_twins_repair(zu_map_block(first));
		if (!zu_twins_copy(zu_map_block(first), map.data))
			zu_twins_report_lost(zu_map_block(first));
		stale = zu_stale_extent(first, limit, (Page) map.data);
		if (stale < Min(limit, first + ZU_GROUP_EXTENTS))
			zu_report_stale(stale);
	}
	extents = zu_collect_extents(-1, 0, &n);

	/*
	 * xids below the durable `oldest` were resolved before it was made
	 * durable; without an extent there was no undo
	 */
	if (n > 0)
		zu_widen_doubt(entry, pg_atomic_read_u64(&entry->durable),
					   zxid_from_full(ReadNextFullTransactionId()));
	for (int i = 0; i < n;)
	{
		int			same = 1;

		while (i + same < n && extents[i + same].logno == extents[i].logno)
			same++;
		if (extents[i].logno >= zu_nlogs())
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("\"zundo.undo_log\" contains more logs than this server can track"),
					 errdetail("Found log number %u, the limit is %d.", extents[i].logno,
							   zu_nlogs() - 1),
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

/*
 * zu_require_logs: See undo_entry.h. Loads the logs under the load lock if
 * they are not loaded. If an error prevents that, the next call tries again.
 */
void
zu_require_logs(void)
{
	ZuEntry    *entry = zu_my.entry;

	Assert(entry != NULL);
	if (likely(zu_entry_has(entry, ZU_ENTRY_LOGS)))
		return;
	if (RecoveryInProgress())
		elog(ERROR, "undo logs cannot be loaded during recovery");
	zu_load_meta(entry);		/* recovery may have ended since the last time */
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
