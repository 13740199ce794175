/*
 * vacuum/zrewrite.c - new files for zheap tables: creation, copies, rewrites.
 *
 * Called through zam.c by CREATE TABLE, TRUNCATE, SET TABLESPACE, CLUSTER and
 * VACUUM FULL, all under AccessExclusiveLock.
 *
 * Undo names the file that it belongs to, so undo of the old file cannot serve
 * the new one. Rules:
 *	N1	a new file begins without undo of earlier changes.
 *	N2	a rewrite (CLUSTER, VACUUM FULL) inserts the newest version of every row
 *		that is there, as ALTER TABLE does: to a snapshot older than its commit
 *		the table seems empty.
 *	N3	a copy (SET TABLESPACE) keeps every TID, since indexes stay. Pages whose
 *		slots still matter are settled in the copy: newest versions become
 *		visible to all, deleted rows dead. Aborted changes are undone first.
 * A transaction that made changes before and is rolled back gets the old
 * file back together with its undo.
 *
 * Crash points: a new file is dropped by the server if its creator does not
 * commit; nothing here changes the old file but the undoing of aborted changes.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/multixact.h"
#include "access/xact.h"
#include "access/xloginsert.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "commands/progress.h"
#include "dml/zdml.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "page/zpage.h"
#include "pgstat.h"
#include "rollback/zrollback.h"
#include "tuple/zslot.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"
#include "vacuum/zvacuum.h"

/* Alignment that direct I/O wants of a page in memory. */
#define IO_ALIGNMENT 4096

/* ---- creation, truncation, size ---- */

/*
 * zheap_set_new_filelocator: create the storage of a new or emptied table. An
 * unlogged one gets an init fork, which is an empty file.
 */
void
zheap_set_new_filelocator(Relation rel, const RelFileLocator *locator, char persistence,
						  TransactionId *freeze_xid, MultiXactId *minmulti)
{
	SMgrRelation smgr;

	/* no running transaction is older, so none can leave an older xid here */
	*freeze_xid = RecentXmin;
	*minmulti = GetOldestMultiXactId();
	smgr = RelationCreateStorage(*locator, persistence, true);
	if (persistence == RELPERSISTENCE_UNLOGGED)
	{
		/* logged even if wal_level is minimal: replay may remove the file otherwise */
		smgrcreate(smgr, INIT_FORKNUM, false);
		log_smgrcreate(locator, INIT_FORKNUM);
		smgrimmedsync(smgr, INIT_FORKNUM);
	}
	smgrclose(smgr);
}

/* zheap_nontransactional_truncate: for a file made in the same transaction; its undo finds no block and is skipped. */
void
zheap_nontransactional_truncate(Relation rel)
{
	RelationTruncate(rel, 0);
}

void
zheap_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages, double *tuples,
					double *allvisfrac)
{
	const Size	overhead = ZTUPLE_HEADER_SIZE + sizeof(ItemIdData);
	const Size	usable = BLCKSZ - SizeOfPageHeaderData - sizeof(ZPageTrailer) -
		ZPAGE_INITIAL_SLOTS * sizeof(ZPageSlot);

	table_block_relation_estimate_size(rel, attr_widths, pages, tuples, allvisfrac, overhead, usable);
}

/* ---- copies (N3) ---- */

/* Does undo of some change of this page still matter to anybody? */
static bool
page_is_unsettled(Page page)
{
	ZXid		oldest = zpage_oldest(page);

	for (int i = 1; i <= zpage_nslots(page); i++)
		if (ZSLOT_XID(zpage_slot(page, i)) >= oldest)
			return true;
	return zpage_trailer(page)->image != InvalidUndoPtr ||
		zpage_trailer(page)->overflow != InvalidBlockNumber;
}

/* Make a private page copy independent of undo. Aborted changes have been undone on it. */
static void
settle_page(Page page)
{
	ZPruneItem	items[ZHEAP_MAX_OFFSET];
	int			n = 0;
	OffsetNumber maxoff = Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET);
	ZPageTrailer *trailer = zpage_trailer(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (ItemIdIsRedirected(lp) ||
			(ItemIdIsNormal(lp) && !ZH_LIVE(zheader_get(zpage_row(page, lp)))))
		{
			items[n].offset = off;
			items[n++].action = ZPRUNE_DEAD;
		}
		else if (ItemIdIsNormal(lp))
		{
			ZHeader		h = zheader_get(zpage_row(page, lp));

			h = ZH_WITH_LOCK(ZH_WITH_SLOT(ZH_WITH_STATE(h, ZSTATE_INSERTED), 0), 0);
			zpage_set_header(page, off, h & ~ZH_KEY_CHANGE);
		}
	}
	zpage_prune(page, items, n);
	for (int i = 1; i <= zpage_nslots(page); i++)
		zpage_set_slot(page, i, InvalidZXid, InvalidUndoPtr);
	trailer->image = InvalidUndoPtr;
	trailer->overflow = InvalidBlockNumber; /* the old file's; the undo worker frees it */
	trailer->debt = 0;
}

/* Undo aborted changes of one block, then copy it to page. */
static void
read_block_for_copy(Relation rel, BlockNumber block, BufferAccessStrategy strategy, Page page)
{
	Buffer		buf = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, strategy);

	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	if (!PageIsNew(BufferGetPage(buf)))
		(void) zrollback_page(buf, rel->rd_locator, RelationGetRelid(rel), RelationNeedsWAL(rel));
	memcpy(page, BufferGetPage(buf), BLCKSZ);
	UnlockReleaseBuffer(buf);
}

/* Copy the main fork block by block to the file at locator. */
static void
copy_main_fork(Relation rel, RelFileLocator locator)
{
	char	   *memory = palloc(BLCKSZ + IO_ALIGNMENT);
	Page		page = (Page) TYPEALIGN(IO_ALIGNMENT, memory);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	bool		log = RelationIsPermanent(rel) && XLogIsNeeded();

	for (BlockNumber block = 0; block < nblocks; block++)
	{
		CHECK_FOR_INTERRUPTS();
		read_block_for_copy(rel, block, strategy, page);
		if (!PageIsNew(page))
		{
			if (!zpage_is_valid(page))
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("block %u of relation \"%s\" is not a zheap page",
								block, RelationGetRelationName(rel))));
			if (page_is_unsettled(page))
				settle_page(page);
			PageSetLSN(page, (XLogRecPtr) InvalidXLogRecPtr);
		}
		if (log)
			(void) log_newpage(&locator, MAIN_FORKNUM, block, page, !PageIsNew(page));
		PageSetChecksumInplace(page, block);
		/* looked up anew: a cache invalidation may close it */
		zc_smgr_extend(smgropen(locator, rel->rd_backend), block, page);
	}
	/* written past the buffer manager: no checkpoint would sync it */
	if (RelationIsPermanent(rel))
		smgrimmedsync(smgropen(locator, rel->rd_backend), MAIN_FORKNUM);
	FreeAccessStrategy(strategy);
	pfree(memory);
}

void
zheap_copy_data(Relation rel, const RelFileLocator *locator)
{
	SMgrRelation target;

	zu_attach_database();
	(void) RelationCreateStorage(*locator, rel->rd_rel->relpersistence, true);
	copy_main_fork(rel, *locator);
	FlushRelationBuffers(rel);
	target = smgropen(*locator, rel->rd_backend);
	for (ForkNumber fork = MAIN_FORKNUM + 1; fork <= MAX_FORKNUM; fork++)
	{
		if (!smgrexists(RelationGetSmgr(rel), fork))
			continue;
		smgrcreate(target, fork, false);
		if (RelationIsPermanent(rel) ||
			(rel->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED && fork == INIT_FORKNUM))
			log_smgrcreate(locator, fork);
		RelationCopyStorage(RelationGetSmgr(rel), target, fork, rel->rd_rel->relpersistence);
	}
	RelationDropStorage(rel);
	smgrclose(target);
}

/* ---- rewrites (N2) ---- */

typedef struct Rewrite
{
	Relation	old;
	Relation	new;
	TupleTableSlot *old_slot;
	TupleTableSlot *new_slot;
	BulkInsertState bistate;
	CommandId	cid;
	double		scanned;
	double		written;
} Rewrite;

/* Put the values of a row into the new table; dropped columns become NULL. */
static void
write_row(Rewrite *rewrite, const Datum *values, const bool *isnull)
{
	TupleTableSlot *slot = rewrite->new_slot;
	TupleDesc	desc = RelationGetDescr(rewrite->new);

	ExecClearTuple(slot);
	for (int i = 0; i < desc->natts; i++)
	{
		bool		dropped = TupleDescAttr(desc, i)->attisdropped;

		slot->tts_isnull[i] = dropped || isnull[i];
		slot->tts_values[i] = slot->tts_isnull[i] ? (Datum) 0 : values[i];
	}
	ExecStoreVirtualTuple(slot);
	zheap_tuple_insert(rewrite->new, slot, rewrite->cid,
					   TABLE_INSERT_SKIP_FSM | TABLE_INSERT_NO_LOGICAL, rewrite->bistate);
	rewrite->written += 1;
}

static void
report_rows(const Rewrite *rewrite)
{
	const int	index[] = {
		PROGRESS_CLUSTER_HEAP_TUPLES_SCANNED,
		PROGRESS_CLUSTER_HEAP_TUPLES_WRITTEN
	};
	int64		value[2];

	value[0] = (int64) rewrite->scanned;
	value[1] = (int64) rewrite->written;
	pgstat_progress_update_multi_param(2, index, value);
}

/* The row in the old slot: to the sort, or straight to the new table. */
static void
take_row(Rewrite *rewrite, Tuplesortstate *sort, MemoryContext row_context)
{
	TupleTableSlot *slot = rewrite->old_slot;
	MemoryContext old = MemoryContextSwitchTo(row_context);

	rewrite->scanned += 1;
	if (sort != NULL)
	{
		HeapTuple	tuple = ExecCopySlotHeapTuple(slot);

		tuplesort_putheaptuple(sort, tuple);
	}
	else
	{
		slot_getallattrs(slot);
		write_row(rewrite, slot->tts_values, slot->tts_isnull);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(row_context);
	report_rows(rewrite);
}

/* Read the old table in index order. */
static void
read_by_index(Rewrite *rewrite, Relation index, MemoryContext row_context)
{
	IndexScanDesc scan;

	pgstat_progress_update_param(PROGRESS_CLUSTER_PHASE, PROGRESS_CLUSTER_PHASE_INDEX_SCAN_HEAP);
	pgstat_progress_update_param(PROGRESS_CLUSTER_INDEX_RELID, RelationGetRelid(index));
	scan = zc_index_beginscan(rewrite->old, index, SnapshotSelf);
	index_rescan(scan, NULL, 0, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, rewrite->old_slot))
	{
		CHECK_FOR_INTERRUPTS();
		if (scan->xs_recheck)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot cluster on index \"%s\" because it is lossy",
							RelationGetRelationName(index))));
		take_row(rewrite, NULL, row_context);
	}
	index_endscan(scan);
}

/*
 * Read the old table block by block. Returns the number of dead rows met. Uses page views
 * itself, for their count of dead rows.
 */
static double
read_by_block(Rewrite *rewrite, Tuplesortstate *sort, MemoryContext row_context)
{
	Relation	rel = rewrite->old;
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	ZPageView  *view = zpage_view_create();
	double		dead = 0;

	pgstat_progress_update_param(PROGRESS_CLUSTER_PHASE, PROGRESS_CLUSTER_PHASE_SEQ_SCAN_HEAP);
	pgstat_progress_update_param(PROGRESS_CLUSTER_TOTAL_HEAP_BLKS, nblocks);
	for (BlockNumber block = 0; block < nblocks; block++)
	{
		Buffer		buf;

		CHECK_FOR_INTERRUPTS();
		buf = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
		zvis_page(rel, buf, SnapshotSelf, view);
		ReleaseBuffer(buf);
		for (int i = 0; i < view->nrows; i++)
		{
			ItemPointerData tid;

			ItemPointerSet(&tid, block, view->offset[i]);
			zslot_store_borrowed(rewrite->old_slot, view->row[i], view->len[i], &tid,
								 RelationGetRelid(rel));
			take_row(rewrite, sort, row_context);
		}
		dead += view->dead_rows;
		pgstat_progress_update_param(PROGRESS_CLUSTER_HEAP_BLKS_SCANNED, block + 1);
	}
	ExecClearTuple(rewrite->old_slot);
	zpage_view_free(view);
	FreeAccessStrategy(strategy);
	return dead;
}

/* Write the sorted rows. */
static void
write_sorted(Rewrite *rewrite, Tuplesortstate *sort, MemoryContext row_context)
{
	TupleDesc	desc = RelationGetDescr(rewrite->old);
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	HeapTuple	tuple;

	pgstat_progress_update_param(PROGRESS_CLUSTER_PHASE, PROGRESS_CLUSTER_PHASE_SORT_TUPLES);
	tuplesort_performsort(sort);
	pgstat_progress_update_param(PROGRESS_CLUSTER_PHASE, PROGRESS_CLUSTER_PHASE_WRITE_NEW_HEAP);
	while ((tuple = tuplesort_getheaptuple(sort, true)) != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(row_context);

		CHECK_FOR_INTERRUPTS();
		heap_deform_tuple(tuple, desc, values, isnull);
		write_row(rewrite, values, isnull);
		MemoryContextSwitchTo(old);
		MemoryContextReset(row_context);
		report_rows(rewrite);
	}
	pfree(values);
	pfree(isnull);
}

/*
 * zheap_copy_for_cluster: the relation_copy_for_cluster callback. Both tables are locked
 * AccessExclusive, so every change of the old one is our own, committed or aborted.
 */
void
zheap_copy_for_cluster(Relation old, Relation new, Relation index, bool use_sort,
					   TransactionId oldest_xmin, TransactionId *xid_cutoff,
					   MultiXactId *multi_cutoff, double *num_tuples, double *tups_vacuumed,
					   double *tups_recently_dead)
{
	Rewrite		rewrite = {0};
	Tuplesortstate *sort = NULL;
	MemoryContext row_context = AllocSetContextCreate(CurrentMemoryContext, "zheap rewrite row",
													  ALLOCSET_DEFAULT_SIZES);

	zu_attach_database();
	rewrite.old = old;
	rewrite.new = new;
	rewrite.old_slot = table_slot_create(old, NULL);
	rewrite.new_slot = MakeSingleTupleTableSlot(RelationGetDescr(new), &TTSOpsVirtual);
	rewrite.bistate = GetBulkInsertState();
	rewrite.cid = GetCurrentCommandId(true);
	if (use_sort)
		sort = tuplesort_begin_cluster(RelationGetDescr(old), index, maintenance_work_mem, NULL,
									   TUPLESORT_NONE);

	if (index != NULL && !use_sort)
		read_by_index(&rewrite, index, row_context);
	else
		*tups_vacuumed += read_by_block(&rewrite, sort, row_context);
	if (sort != NULL)
	{
		write_sorted(&rewrite, sort, row_context);
		tuplesort_end(sort);
	}
	*num_tuples = rewrite.written;
	*tups_recently_dead = 0;

	FreeBulkInsertState(rewrite.bistate);
	ExecDropSingleTupleTableSlot(rewrite.old_slot);
	ExecDropSingleTupleTableSlot(rewrite.new_slot);
	MemoryContextDelete(row_context);
}
