/*
 * common/compat.h - the one place that knows server versions, together with
 * compat_commands.h and compat_nbtree.h.
 *
 * The code is written for the newest server. Each shim below names the change
 * of the server that it hides from the other files, none of which mentions
 * PG_VERSION_NUM.
 */
#ifndef ZUNDO_COMPAT_H
#define ZUNDO_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 200000
#error "zundo supports PostgreSQL 15 to 19"
#endif

#include "access/amapi.h"
#include "access/subtrans.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/smgr.h"
#include "utils/rel.h"

/* 18 replaced pg_attribute_noreturn() by a prefix. */
#define zc_noreturn __attribute__((noreturn))

/* 16 renamed pgstat_fetch_stat_local_beentry. */
#if PG_VERSION_NUM < 160000
#define pgstat_get_local_beentry_by_index(i) pgstat_fetch_stat_local_beentry(i)
#endif

/* 16 renamed RelFileNode and its members to RelFileLocator. */
#if PG_VERSION_NUM < 160000
#include "storage/relfilenode.h"
typedef RelFileNode RelFileLocator;
typedef Oid RelFileNumber;
#define InvalidRelFileNumber InvalidOid
#define RelFileNumberIsValid(n) OidIsValid(n)
#define spcOid spcNode
#define dbOid dbNode
#define relNumber relNode
#define RelFileLocatorEquals(a, b) RelFileNodeEquals(a, b)
#define rd_locator rd_node
#define rd_newRelfilelocatorSubid rd_newRelfilenodeSubid
#define rd_firstRelfilelocatorSubid rd_firstRelfilenodeSubid
#define RelFileLocatorSkippingWAL(l) RelFileNodeSkippingWAL(l)
#define relation_set_new_filelocator relation_set_new_filenode
#define RelidByRelfilenumber(spc, number) RelidByRelfilenode(spc, number)
#include "utils/relfilenodemap.h"
#else
#include "storage/relfilelocator.h"
#include "utils/relfilenumbermap.h"
#endif

/*
 * 16 turned the questions about a page's flags into functions that return
 * bool. Before, they are macros that give the flag's bit, which does not
 * compare equal to true.
 */
#if PG_VERSION_NUM < 160000
#undef PageHasFreeLinePointers
#undef PageIsFull
#undef PageIsAllVisible
#define PageHasFreeLinePointers(page) ((((PageHeader) (page))->pd_flags & PD_HAS_FREE_LINES) != 0)
#define PageIsFull(page) ((((PageHeader) (page))->pd_flags & PD_PAGE_FULL) != 0)
#define PageIsAllVisible(page) ((((PageHeader) (page))->pd_flags & PD_ALL_VISIBLE) != 0)
#endif

/* 17 replaced backend ids by proc numbers. */
#if PG_VERSION_NUM < 170000
#define INVALID_PROC_NUMBER InvalidBackendId
#define zc_my_proc_number() (MyProc->pgprocno)
#else
#define zc_my_proc_number() MyProcNumber
#endif

/* 17 moved a process's local transaction id into its virtual one. */
#if PG_VERSION_NUM < 170000
#define zc_proc_lxid(proc) ((proc)->lxid)
#define zc_lock_lxid(lock) ((lock)->lxid)
#else
#define zc_proc_lxid(proc) ((proc)->vxid.lxid)
#define zc_lock_lxid(lock) ((lock)->vxid.localTransactionId)
#endif

/*
 * 18 turned the mark of background workers into one of client sessions, 19 into
 * the kind of process.
 */
#if PG_VERSION_NUM < 180000
#define zc_proc_is_background_worker(proc) ((proc)->isBackgroundWorker)
#elif PG_VERSION_NUM < 190000
#define zc_proc_is_background_worker(proc) (!(proc)->isRegularBackend)
#else
#define zc_proc_is_background_worker(proc) ((proc)->backendType != B_BACKEND)
#endif

/*
 * The next transaction id, read without a lock: every id assigned before the
 * call is below the result. A 64-bit load is atomic on 64-bit machines. 17
 * renamed the shared variable cache.
 */
#if SIZEOF_VOID_P < 8
#define zc_peek_next_full_xid() ReadNextFullTransactionId()
#elif PG_VERSION_NUM < 170000
#define zc_peek_next_full_xid() (*(volatile FullTransactionId *) &ShmemVariableCache->nextXid)
#else
#define zc_peek_next_full_xid() (*(volatile FullTransactionId *) &TransamVariables->nextXid)
#endif

/* The oldest transaction id that clog still knows. */
#if PG_VERSION_NUM < 170000
#define zc_oldest_clog_xid() (ShmemVariableCache->oldestClogXid)
#else
#define zc_oldest_clog_xid() (TransamVariables->oldestClogXid)
#endif

/*
 * The number of transactions with an id that have ended since the server's
 * start. Read without a lock, for callers that only need to know whether it has
 * changed.
 */
#if PG_VERSION_NUM < 170000
#define zc_peek_xact_completions() (*(volatile uint64 *) &ShmemVariableCache->xactCompletionCount)
#else
#define zc_peek_xact_completions() (*(volatile uint64 *) &TransamVariables->xactCompletionCount)
#endif

/* 16 added an out-parameter type to tuple_update. */
#if PG_VERSION_NUM < 160000
typedef bool ZcUpdateIndexes;
#define ZC_UPDATE_NONE false
#define ZC_UPDATE_ALL true
#define ZC_UPDATE_SUMMARIZING false
#define ZC_HAS_SUMMARIZING 0
#else
typedef TU_UpdateIndexes ZcUpdateIndexes;
#define ZC_UPDATE_NONE TU_None
#define ZC_UPDATE_ALL TU_All
#define ZC_UPDATE_SUMMARIZING TU_Summarizing
#define ZC_HAS_SUMMARIZING 1
#endif

/* 16 split the "columns that block HOT" bitmap from the summarizing one. */
#if PG_VERSION_NUM < 160000
#define INDEX_ATTR_BITMAP_HOT_BLOCKING INDEX_ATTR_BITMAP_ALL
#endif

/* 16 knows indexes that summarize blocks: they have no entries for rows. */
#if PG_VERSION_NUM < 160000
#define zc_index_summarizes(index) false
#else
#define zc_index_summarizes(index) ((index)->rd_indam->amsummarizing)
#endif

/* 16 gave pgstat_count_heap_update a third argument. */
#if PG_VERSION_NUM < 160000
#define zc_count_update(rel, hot, newpage) pgstat_count_heap_update(rel, hot)
#else
#define zc_count_update(rel, hot, newpage) pgstat_count_heap_update(rel, hot, newpage)
#endif

/*
 * In 18 apply workers read the xmin of a row to learn which transaction has
 * written it, and detect conflicts by that.
 */
#if PG_VERSION_NUM < 180000
#define ZC_APPLY_LOOKS_AT_XMIN false
#else
#define ZC_APPLY_LOOKS_AT_XMIN true
#endif

/* 18 dropped ExecutorRun's execute_once argument. */
#if PG_VERSION_NUM < 180000
#define ZC_EXECUTOR_RUN_ONCE_ARG 1
#else
#define ZC_EXECUTOR_RUN_ONCE_ARG 0
#endif

/*
 * 18 lets extensions add options to EXPLAIN, which auto_explain of 19 checks,
 * and what fills a named segment of 19 gets an argument.
 */
#if PG_VERSION_NUM >= 190000
#define zc_add_explain_option(name, take) \
	RegisterExtensionExplainOption(name, take, GUCCheckBooleanExplainOption)
#define ZC_DSM_INIT_ARG_PARAM , void *arg
#define zc_named_dsm(name, size, init, found) GetNamedDSMSegment(name, size, init, found, NULL)
#elif PG_VERSION_NUM >= 180000
#define zc_add_explain_option(name, take) RegisterExtensionExplainOption(name, take)
#define ZC_DSM_INIT_ARG_PARAM
#define zc_named_dsm(name, size, init, found) GetNamedDSMSegment(name, size, init, found)
#endif

/* 18 logs failures of conditional lock requests on demand. */
#if PG_VERSION_NUM < 180000
#define zc_conditional_xact_wait(xid) ConditionalXactLockTableWait(xid)
#define zc_conditional_lock_tuple(rel, tid, mode) ConditionalLockTuple(rel, tid, mode)
#else
#define zc_conditional_xact_wait(xid) ConditionalXactLockTableWait(xid, false)
#define zc_conditional_lock_tuple(rel, tid, mode) ConditionalLockTuple(rel, tid, mode, false)
#endif

/* 16 added the "is this a catalog" argument to recovery conflicts. */
#if PG_VERSION_NUM < 160000
#define zc_resolve_snapshot_conflict(xid, locator) \
	ResolveRecoveryConflictWithSnapshot(xid, locator)
#else
#define zc_resolve_snapshot_conflict(xid, locator) \
	ResolveRecoveryConflictWithSnapshot(xid, false, locator)
#endif

/*
 * 16 extends a relation by one call; in 15 the caller takes the extension lock.
 * Adds *n pages, or fewer if that is too many to pin, and sets *n to their
 * number. Returns the first of them, exclusively locked.
 */
#define ZC_MAX_EXTEND 64

static inline Buffer
zc_extend_relation(Relation rel, BufferAccessStrategy strategy, uint32 *n)
{
#if PG_VERSION_NUM < 160000
	Buffer		buf;

	Assert(*n >= 1 && *n <= ZC_MAX_EXTEND);
	LockRelationForExtension(rel, ExclusiveLock);
	buf = ReadBufferExtended(rel, MAIN_FORKNUM, P_NEW, RBM_ZERO_AND_LOCK, strategy);
	for (uint32 i = 1; i < *n; i++)
		ReleaseBuffer(ReadBufferExtended(rel, MAIN_FORKNUM, P_NEW, RBM_NORMAL, strategy));
	UnlockRelationForExtension(rel, ExclusiveLock);
	return buf;
#else
	Buffer		buffers[ZC_MAX_EXTEND];

	Assert(*n >= 1 && *n <= ZC_MAX_EXTEND);
	(void) ExtendBufferedRelBy(BMR_REL(rel), MAIN_FORKNUM, strategy, EB_LOCK_FIRST, *n, buffers, n);
	for (uint32 i = 1; i < *n; i++)
		ReleaseBuffer(buffers[i]);
	return buffers[0];
#endif
}

/*
 * 16 extends a file by several blocks of zeros in one call; 15 does so block by
 * block.
 */
static inline void
zc_smgr_zero_extend(SMgrRelation smgr, BlockNumber first, int nblocks)
{
#if PG_VERSION_NUM < 160000
	PGAlignedBlock zero = {0};

	Assert(nblocks > 0);
	for (int i = 0; i < nblocks; i++)
		smgrextend(smgr, MAIN_FORKNUM, first + i, zero.data, false);
#else
	Assert(nblocks > 0);
	smgrzeroextend(smgr, MAIN_FORKNUM, first, nblocks, false);
#endif
}

/* 16 moved the varlena macros out of postgres.h. */
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

/* 18 gave tuple descriptors an array of compact attributes. */
#if PG_VERSION_NUM < 180000
typedef Form_pg_attribute ZcAttr;
#define zc_attr(desc, i) TupleDescAttr(desc, i)
#define zc_attr_packable(att) ((att)->attstorage != TYPSTORAGE_PLAIN)
#define zc_attr_byte_aligned(att) ((att)->attalign == TYPALIGN_CHAR)
#else
typedef CompactAttribute *ZcAttr;
#define zc_attr(desc, i) TupleDescCompactAttr(desc, i)
#define zc_attr_packable(att) ((att)->attispackable)
#define zc_attr_byte_aligned(att) ((att)->attalignby == 1)
#endif

/* 17 added the slot operation is_current_xact_tuple. */
#if PG_VERSION_NUM < 170000
#define ZC_HAS_IS_CURRENT_XACT_TUPLE 0
#else
#define ZC_HAS_IS_CURRENT_XACT_TUPLE 1
#endif

/* 18 lets callers ask for extra space in front of a minimal tuple. */
#if PG_VERSION_NUM < 180000
#define ZC_EXTRA_PARAM
#define ZC_EXTRA_ARG
#else
#define ZC_EXTRA_PARAM , Size extra
#define ZC_EXTRA_ARG , extra
#endif

/*
 * 16 builds modules with hidden visibility and exports only what the server
 * looks up by name. The Makefile hides symbols on 15 as well, so the same
 * names are exported here: the magic block, _PG_init, SQL functions and their
 * records.
 */
#if PG_VERSION_NUM < 160000
#include "fmgr.h"
#undef PGDLLEXPORT
#define PGDLLEXPORT __attribute__((visibility("default")))
extern PGDLLEXPORT void _PG_init(void);
#undef PG_FUNCTION_INFO_V1
#define PG_FUNCTION_INFO_V1(fn) \
	extern PGDLLEXPORT Datum fn(PG_FUNCTION_ARGS); \
	extern PGDLLEXPORT const Pg_finfo_record *CppConcat(pg_finfo_, fn) (void); \
	const Pg_finfo_record * \
	CppConcat(pg_finfo_, fn) (void) \
	{ \
		static const Pg_finfo_record info = {1}; \
		return &info; \
	} \
	extern int	zc_swallow_semicolon
#endif

/* 17 removed this SQLSTATE, since it does not raise it any more. */
#ifndef ERRCODE_SNAPSHOT_TOO_OLD
#define ERRCODE_SNAPSHOT_TOO_OLD MAKE_SQLSTATE('7', '2', '0', '0', '0')
#endif

/* 17 gives wait events of extensions names. */
#if PG_VERSION_NUM < 170000
#define zc_new_wait_event(name) PG_WAIT_EXTENSION
#else
#include "utils/wait_event.h"
#define zc_new_wait_event(name) WaitEventExtensionNew(name)
#endif

/* 17 passes a read stream to scan_analyze_next_block instead of a block. */
#if PG_VERSION_NUM < 170000
#define ZC_ANALYZE_STREAM 0
#define ZC_ANALYZE_BLOCK_ARGS BlockNumber blockno, BufferAccessStrategy strategy
#else
#include "storage/read_stream.h"
#define ZC_ANALYZE_STREAM 1
#define ZC_ANALYZE_BLOCK_ARGS ReadStream *stream
#endif

/* 18 moved the iteration of a bitmap scan into the table AM. */
#if PG_VERSION_NUM < 180000
#define ZC_BITMAP_BY_BLOCK 1
#else
#define ZC_BITMAP_BY_BLOCK 0
#endif

/* 16 lets the caller of tuplesort_getdatum choose whether to copy. */
#if PG_VERSION_NUM < 160000
#define zc_tuplesort_getdatum(state, val, isnull) \
	tuplesort_getdatum(state, true, val, isnull, NULL)
#else
#define zc_tuplesort_getdatum(state, val, isnull) \
	tuplesort_getdatum(state, true, false, val, isnull, NULL)
#endif

/*
 * 18 counts index searches in an argument of index_beginscan, 19 has options in
 * another.
 */
#if PG_VERSION_NUM < 180000
#define zc_index_beginscan_keys(rel, index, snapshot, n) index_beginscan(rel, index, snapshot, n, 0)
#elif PG_VERSION_NUM < 190000
#define zc_index_beginscan_keys(rel, index, snapshot, n) \
	index_beginscan(rel, index, snapshot, NULL, n, 0)
#else
#define zc_index_beginscan_keys(rel, index, snapshot, n) \
	index_beginscan(rel, index, snapshot, NULL, n, 0, SO_NONE)
#endif
#define zc_index_beginscan(rel, index, snapshot) zc_index_beginscan_keys(rel, index, snapshot, 0)

/*
 * 18 distinguishes the cost delay of VACUUM from that of ANALYZE, keeps the
 * number of all-frozen pages in pg_class, and reports when a vacuum began. 19
 * reports it of a relation, not of an OID.
 */
#if PG_VERSION_NUM < 180000
#define zc_vacuum_delay_point() vacuum_delay_point()
#define zc_update_relstats(rel, pages, tuples, allvisible, hasindex, frozenxid, minmulti, \
						   frozenxid_updated, minmulti_updated) \
	vac_update_relstats(rel, pages, tuples, allvisible, hasindex, frozenxid, minmulti, \
						frozenxid_updated, minmulti_updated, false)
#define zc_report_vacuum(rel, live, dead, start) \
	((void) (start), \
	 pgstat_report_vacuum(RelationGetRelid(rel), (rel)->rd_rel->relisshared, live, dead))
#else
#define zc_vacuum_delay_point() vacuum_delay_point(false)
#define zc_update_relstats(rel, pages, tuples, allvisible, hasindex, frozenxid, minmulti, \
						   frozenxid_updated, minmulti_updated) \
	vac_update_relstats(rel, pages, tuples, allvisible, 0, hasindex, frozenxid, minmulti, \
						frozenxid_updated, minmulti_updated, false)
#if PG_VERSION_NUM < 190000
#define zc_report_vacuum(rel, live, dead, start) \
	pgstat_report_vacuum(RelationGetRelid(rel), (rel)->rd_rel->relisshared, live, dead, start)
#else
#define zc_report_vacuum(rel, live, dead, start) pgstat_report_vacuum(rel, live, dead, start)
#endif
#endif

/* 16 passes the table whose index is vacuumed to the index AM. */
#if PG_VERSION_NUM < 160000
#define zc_set_heaprel(info, rel) ((void) 0)
#else
#define zc_set_heaprel(info, rel) ((info)->heaprel = (rel))
#endif

/*
 * 16 passes the ages that make a vacuum urgent in a struct, and has a variable
 * that disables cost delays.
 */
#if PG_VERSION_NUM < 160000
#define zc_vacuum_is_urgent(frozenxid, minmulti) vacuum_xid_failsafe_check(frozenxid, minmulti)
#define zc_vacuum_set_urgent() ((void) 0)
#else
#define zc_vacuum_is_urgent(frozenxid, minmulti) \
	vacuum_xid_failsafe_check(&(struct VacuumCutoffs) {.relfrozenxid = (frozenxid), \
							  .relminmxid = (minmulti)})
#define zc_vacuum_set_urgent() (VacuumFailsafeActive = true)
#endif

/*
 * In what the server's vacuum reports, 18 renamed misses of the cache, and
 * tells how many pages became all-visible, how often the WAL buffers were
 * full, and, if asked to, the time of the cost delays. Files that use these
 * include commands/progress.h, executor/instrument.h and
 * utils/backend_status.h.
 */
#if PG_VERSION_NUM < 180000
#define ZC_BUFFER_READS "misses"
#define ZC_TELLS_VISIBLE_PAGES false
#define zc_append_wal_buffers_full(buf, wal) ((void) 0)
#define zc_append_delay_time(buf) ((void) 0)
#else
#define ZC_BUFFER_READS "reads"
#define ZC_TELLS_VISIBLE_PAGES true
#define zc_append_wal_buffers_full(buf, wal) \
	appendStringInfo(buf, ", %lld buffers full", (long long) (wal)->wal_buffers_full)
#define zc_append_delay_time(buf) \
	do { \
		if (track_cost_delay_timing) \
			appendStringInfo(buf, "delay time: %.3f ms\n", \
							 (double) MyBEEntry->st_progress_param[PROGRESS_VACUUM_DELAY_TIME] / \
							 1000000.0); \
	} while (0)
#endif

/*
 * 17 renamed VACUUM's counter of dead line pointers, tells their memory instead
 * of their greatest number, and counts indexes.
 */
#if PG_VERSION_NUM < 170000
#define ZC_PROGRESS_DEAD_ITEMS PROGRESS_VACUUM_NUM_DEAD_TUPLES
#define ZC_PROGRESS_MAX_DEAD PROGRESS_VACUUM_MAX_DEAD_TUPLES
#define zc_progress_indexes(total, done) ((void) 0)
#else
#define ZC_PROGRESS_DEAD_ITEMS PROGRESS_VACUUM_NUM_DEAD_ITEM_IDS
#define ZC_PROGRESS_MAX_DEAD PROGRESS_VACUUM_MAX_DEAD_TUPLE_BYTES
#define zc_progress_indexes(total, done) \
	(pgstat_progress_update_param(PROGRESS_VACUUM_INDEXES_TOTAL, total), \
	 pgstat_progress_update_param(PROGRESS_VACUUM_INDEXES_PROCESSED, done))
#endif

/*
 * 17 keeps VACUUM's dead TIDs in a radix tree instead of an array; 18 returns
 * the offsets of a block by a function.
 */
#if PG_VERSION_NUM >= 170000
#define ZC_TID_STORE
#endif
#if PG_VERSION_NUM < 180000
#define zc_tidstore_offsets(found, to, max) \
	(memcpy(to, (found)->offsets, (found)->num_offsets * sizeof(OffsetNumber)), \
	 (found)->num_offsets)
#else
#define zc_tidstore_offsets(found, to, max) TidStoreGetBlockOffsets(found, to, max)
#endif

/* 18 renamed the functions that allocate what is in a reorder buffer. */
#if PG_VERSION_NUM < 180000
#define zc_alloc_change(rb) ReorderBufferGetChange(rb)
#define zc_alloc_tuple(rb, len) ReorderBufferGetTupleBuf(rb, len)
#else
#define zc_alloc_change(rb) ReorderBufferAllocChange(rb)
#define zc_alloc_tuple(rb, len) ReorderBufferAllocTupleBuf(rb, len)
#endif

/* 17 made the tuples in a reorder buffer plain heap tuples. */
#if PG_VERSION_NUM < 170000
#define ZcDecodedTuple ReorderBufferTupleBuf *
#define zc_heap_tuple(decoded) (&(decoded)->tuple)
#else
#define ZcDecodedTuple HeapTuple
#define zc_heap_tuple(decoded) (decoded)
#endif

/*
 * 19 decodes one table alone for REPACK (CONCURRENTLY), and takes each change
 * that is queued for one of that table.
 */
#if PG_VERSION_NUM < 190000
#define zc_useless_for_repack(buf) false
#else
#define zc_useless_for_repack(buf) change_useless_for_repack(buf)
#endif

/* 16 renamed the member of a reorder buffer's change that names the file. */
#if PG_VERSION_NUM < 160000
#define zc_change_locator(change) ((change)->data.tp.relnode)
#else
#define zc_change_locator(change) ((change)->data.tp.rlocator)
#endif

/* 16 made the buffer argument of smgrextend const. */
#define zc_smgr_extend(smgr, block, page) \
	smgrextend(smgr, MAIN_FORKNUM, block, (char *) (page), true)

/* 16 made the macro INIT_BUFFERTAG a function. */
#if PG_VERSION_NUM < 160000
#define zc_init_buffer_tag(tag, locator, block) INIT_BUFFERTAG(*(tag), locator, MAIN_FORKNUM, block)
#else
#define zc_init_buffer_tag(tag, locator, block) InitBufferTag(tag, &(locator), MAIN_FORKNUM, block)
#endif

/* 19 widened the state of a buffer to 64 bits. */
#if PG_VERSION_NUM < 190000
#define zc_buffer_state(buf) pg_atomic_read_u32(&(buf)->state)
#else
#define zc_buffer_state(buf) pg_atomic_read_u64(&(buf)->state)
#endif

/*
 * An error leaves the buffer locked. Up to 18 the abort has released all such
 * locks when it calls transaction callbacks; in 19 they go with the pins, so a
 * callback that releases a pin has to release the lock first. That resumes
 * interrupts, which the error has done already.
 */
#if PG_VERSION_NUM < 190000
#define zc_unlock_after_error(buf) ((void) 0)
#else
#define zc_unlock_after_error(buf) \
	do { \
		if (BufferIsLockedByMe(buf)) \
		{ \
			HOLD_INTERRUPTS(); \
			LockBuffer(buf, BUFFER_LOCK_UNLOCK); \
		} \
	} while (0)
#endif

/*
 * For assertions: whether this backend has the buffer locked, has it locked
 * exclusively, and has it not locked. A local buffer has no lock, so all three
 * are true of it. 19 has functions for that, and no lock of its own in a
 * buffer.
 */
#if PG_VERSION_NUM < 190000
#include "storage/buf_internals.h"
#define zc_content_lock(buf) BufferDescriptorGetContentLock(GetBufferDescriptor((buf) - 1))
#define zc_is_locked(buf) LWLockHeldByMe(zc_content_lock(buf))
#define zc_is_exclusive(buf) LWLockHeldByMeInMode(zc_content_lock(buf), LW_EXCLUSIVE)
#else
#define zc_is_locked(buf) BufferIsLockedByMe(buf)
#define zc_is_exclusive(buf) BufferIsLockedByMeInMode(buf, BUFFER_LOCK_EXCLUSIVE)
#endif
#define zc_buffer_locked(buf) (BufferIsLocal(buf) || zc_is_locked(buf))
#define zc_buffer_exclusive(buf) (BufferIsLocal(buf) || zc_is_exclusive(buf))
#define zc_buffer_unlocked(buf) (BufferIsLocal(buf) || !zc_is_locked(buf))

/*
 * What an error in the middle of a read leaves behind: up to 15 the buffer in
 * progress; 16 and 17 nothing that hinders the next read; 18 a handle for
 * asynchronous I/O, of which a backend can have one only.
 */
#if PG_VERSION_NUM < 160000
#define zc_forget_io() AbortBufferIO()
#define zc_io_handle_is_free() true
#elif PG_VERSION_NUM < 180000
#define zc_forget_io() ((void) 0)
#define zc_io_handle_is_free() true
#else
#include "storage/aio.h"
#include "storage/aio_internal.h"
#include "storage/aio_subsys.h"
/* Gives the handle that an error has left handed out back. */
static inline void
zc_forget_io(void)
{
	pgaio_error_cleanup();
	if (pgaio_my_backend->handed_out_io != NULL)
		pgaio_io_release(pgaio_my_backend->handed_out_io);
}

/* Returns true if a read can begin without waiting for one of our others. */
static inline bool
zc_io_handle_is_free(void)
{
	return !dclist_is_empty(&pgaio_my_backend->idle_ios);
}
#endif

/*
 * 19 made the options of insertions unsigned; deletions and updates got some.
 */
#if PG_VERSION_NUM < 190000
typedef int ZcOptions;
#define ZC_CHANGE_OPTIONS_PARAM
#define ZC_CHANGING_PART_PARAM , bool changing_part
#define zc_changing_part changing_part
#define zc_delete_no_logical false
#define zc_update_no_logical false
#define zc_tuple_delete(rel, tid, cid, snapshot, wait, tmfd) \
	table_tuple_delete(rel, tid, cid, snapshot, InvalidSnapshot, wait, tmfd, false)
#else
typedef uint32 ZcOptions;
#define ZC_CHANGE_OPTIONS_PARAM uint32 options,
#define ZC_CHANGING_PART_PARAM
#define zc_changing_part ((options & TABLE_DELETE_CHANGING_PARTITION) != 0)
#define zc_delete_no_logical ((options & TABLE_DELETE_NO_LOGICAL) != 0)
#define zc_update_no_logical ((options & TABLE_UPDATE_NO_LOGICAL) != 0)
#define zc_tuple_delete(rel, tid, cid, snapshot, wait, tmfd) \
	table_tuple_delete(rel, tid, cid, 0, snapshot, InvalidSnapshot, wait, tmfd)
#endif

/*
 * 19 tells scans, and the fetches of an index scan, what they are for, and
 * whether the statement only reads the table (ZC_TELLS_READ_ONLY).
 */
#if PG_VERSION_NUM < 190000
#define zc_beginscan(rel, snapshot) table_beginscan(rel, snapshot, 0, NULL)
#define ZC_FETCH_FLAGS_PARAM
#define ZC_FETCH_FLAGS_ARG
#define zc_fetch_set_flags(fetch) ((void) 0)
#define zc_fetch_flags(fetch) 0
#define ZC_TELLS_READ_ONLY 0
#else
#define zc_beginscan(rel, snapshot) table_beginscan(rel, snapshot, 0, NULL, SO_NONE)
#define ZC_FETCH_FLAGS_PARAM , uint32 flags
#define ZC_FETCH_FLAGS_ARG , flags
#define zc_fetch_set_flags(fetch) ((fetch)->flags = flags)
#define zc_fetch_flags(fetch) ((fetch)->flags)
#define ZC_TELLS_READ_ONLY 1
#endif

/*
 * In 19 REPACK (CONCURRENTLY) rewrites a table while others write it: it
 * passes a snapshot, and the rows that this sees are to be copied. 19 also
 * renamed the counters of a rewrite's progress.
 */
#if PG_VERSION_NUM < 190000
#define ZC_REWRITE_SNAPSHOT_PARAM
#define zc_rewrite_snapshot InvalidSnapshot
#define ZC_PROGRESS_ROWS_WRITTEN PROGRESS_CLUSTER_HEAP_TUPLES_WRITTEN
#define PROGRESS_REPACK_PHASE PROGRESS_CLUSTER_PHASE
#define PROGRESS_REPACK_INDEX_RELID PROGRESS_CLUSTER_INDEX_RELID
#define PROGRESS_REPACK_TOTAL_HEAP_BLKS PROGRESS_CLUSTER_TOTAL_HEAP_BLKS
#define PROGRESS_REPACK_HEAP_BLKS_SCANNED PROGRESS_CLUSTER_HEAP_BLKS_SCANNED
#define PROGRESS_REPACK_HEAP_TUPLES_SCANNED PROGRESS_CLUSTER_HEAP_TUPLES_SCANNED
#define PROGRESS_REPACK_PHASE_SEQ_SCAN_HEAP PROGRESS_CLUSTER_PHASE_SEQ_SCAN_HEAP
#define PROGRESS_REPACK_PHASE_INDEX_SCAN_HEAP PROGRESS_CLUSTER_PHASE_INDEX_SCAN_HEAP
#define PROGRESS_REPACK_PHASE_SORT_TUPLES PROGRESS_CLUSTER_PHASE_SORT_TUPLES
#define PROGRESS_REPACK_PHASE_WRITE_NEW_HEAP PROGRESS_CLUSTER_PHASE_WRITE_NEW_HEAP
#else
#define ZC_REWRITE_SNAPSHOT_PARAM Snapshot snapshot,
#define zc_rewrite_snapshot snapshot
#define ZC_PROGRESS_ROWS_WRITTEN PROGRESS_REPACK_HEAP_TUPLES_INSERTED
#endif

/* 19 no longer passes ANALYZE's horizon to the table AM. */
#if PG_VERSION_NUM < 190000
#define ZC_ANALYZE_HORIZON_PARAM TransactionId oldest_xmin,
#else
#define ZC_ANALYZE_HORIZON_PARAM
#endif

/*
 * 19 made VACUUM's parameters const, renamed one, and counts the workers that
 * vacuum several indexes.
 */
#if PG_VERSION_NUM < 190000
#define ZC_VACUUM_PARAMS struct VacuumParams
#define zc_log_min_duration(params) ((params)->log_min_duration)
#define ZC_WORKER_STATS
#else
#define ZC_VACUUM_PARAMS const struct VacuumParams
#define zc_log_min_duration(params) ((params)->log_vacuum_min_duration)
#define ZC_WORKER_STATS , NULL
#endif

/*
 * 19 renamed the function that sets a page's checksum, and tells why there is
 * no next WAL record.
 */
#if PG_VERSION_NUM < 190000
#define zc_set_checksum(page, block) PageSetChecksumInplace(page, block)
#define zc_find_next_record(reader, lsn, message) XLogFindNextRecord(reader, lsn)
#else
#define zc_set_checksum(page, block) PageSetChecksum(page, block)
#define zc_find_next_record(reader, lsn, message) XLogFindNextRecord(reader, lsn, message)
#endif

/*
 * Setting hints on a page that is locked in share mode: 19 has to be asked
 * first, and may refuse.
 */
#if PG_VERSION_NUM < 190000
#define zc_begin_hint(buf) true
#define zc_finish_hint(buf) MarkBufferDirtyHint(buf, true)
#else
#define zc_begin_hint(buf) BufferBeginSetHintBits(buf)
#define zc_finish_hint(buf) BufferFinishSetHintBits(buf, true, true)
#endif

/* 19 lets the caller forbid that the horizon is computed anew. */
#if PG_VERSION_NUM < 190000
#define zc_is_removable_xid(vistest, xid) GlobalVisTestIsRemovableXid(vistest, xid)
#else
#define zc_is_removable_xid(vistest, xid) GlobalVisTestIsRemovableXid(vistest, xid, true)
#endif

/* 19 names a tranche of locks when it is made, once for all processes. */
#if PG_VERSION_NUM < 190000
#define zc_new_tranche(name) LWLockNewTrancheId()
#define zc_register_tranche(id, name) LWLockRegisterTranche(id, name)
#else
#define zc_new_tranche(name) LWLockNewTrancheId(name)
#define zc_register_tranche(id, name) ((void) 0)
#endif

/*
 * 19 scans ranges of TIDs in parallel: first is their first block and n their
 * number, both InvalidBlockNumber for the whole table. The first range counts
 * also when the scan is repeated.
 */
#if PG_VERSION_NUM < 190000
#define zc_parallel_scan_init(rel, worker, pscan, first, n) \
	((void) (first), (void) (n), table_block_parallelscan_startblock_init(rel, worker, pscan))
#else
#define zc_parallel_scan_init(rel, worker, pscan, first, n) \
	table_block_parallelscan_startblock_init(rel, worker, pscan, first, n)
#endif

/*
 * Up to 18 the caller of a slot's getsomeattrs fills in the columns that the
 * row is too old to have; in 19 the slot does so itself.
 */
#if PG_VERSION_NUM < 190000
#define zc_slot_fill_missing(slot, present, natts) ((void) 0)
#else
#define zc_slot_fill_missing(slot, present, natts) \
	do { \
		if ((present) < (natts)) \
			slot_getmissingattrs(slot, present, natts); \
		(slot)->tts_nvalid = (natts); \
	} while (0)
#endif

/* 19 lets DROP DATABASE and its kin end a background worker. */
#if PG_VERSION_NUM < 190000
#define ZC_BGWORKER_INTERRUPTIBLE 0
#else
#define ZC_BGWORKER_INTERRUPTIBLE BGWORKER_INTERRUPTIBLE
#endif

/* 19 gives slots flags of their own. */
#if PG_VERSION_NUM < 190000
#define zc_make_slot(desc, ops) MakeTupleTableSlot(desc, ops)
#else
#define zc_make_slot(desc, ops) MakeTupleTableSlot(desc, ops, 0)
#endif

/*
 * 19 can restrict the oldest active transaction to a database, or to commits.
 */
#if PG_VERSION_NUM < 190000
#define zc_oldest_active_xid() GetOldestActiveTransactionId()
#else
#define zc_oldest_active_xid() GetOldestActiveTransactionId(false, true)
#endif

/* 19 computes offsets when all columns of a descriptor are entered. */
#if PG_VERSION_NUM < 190000
#define zc_desc_complete(desc) ((void) 0)
#else
#define zc_desc_complete(desc) TupleDescFinalize(desc)
#endif

/*
 * 19 renamed the type of a replication origin's number, and has none for bits
 * of a null bitmap any more.
 */
#if PG_VERSION_NUM >= 190000
typedef ReplOriginId RepOriginId;
typedef uint8 bits8;
#endif

#endif
