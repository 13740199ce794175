/*
 * vacuum/zcluster.c - CLUSTER and VACUUM FULL: rewriting a table.
 *
 * Called through zam.c under AccessExclusiveLock on both tables (CLUSTER-1e is
 * the exception). So every transaction that has changed the old table is our
 * own, has committed or has aborted.
 *
 * Undo records name the file of their table, so the undo of the old file is of
 * no use for the new one. Instead every version that an older snapshot may see
 * becomes a row of its own in the new table. Rules:
 *	CLUSTER-1	The new table has what each snapshot saw in the old one:
 *		(a) A version whose author is before `oldest` is written as visible to
 *			all: its header names no slot.
 *		(b) A version by a later, committed transaction X gets an undo record
 *			of ours that says "as of X". A snapshot that sees X accepts it,
 *			whether or not it sees our transaction (zaccept_version in mvcc/).
 *		(c) A version that a committed transaction X has replaced or deleted is
 *			written, and deleted as of X. It is left out if X is before the
 *			server's horizon, because its toasted values may have been removed
 *			by then; queries on standbys that may need it are canceled
 *			(zu_log_conflict). The rewrite holds what is not (zhistory_hold),
 *			and leaves out a version of which a value has gone before.
 *		(d) A version written by our own transaction is written as ours, with
 *			the commands that wrote and ended it. Only the newest such version
 *			is written if our session has no snapshot that is older than this
 *			command, as a cursor or a calling query would have.
 *		(e) The exception is REPACK (CONCURRENTLY) of 19, which passes a
 *			snapshot: exactly the versions that this snapshot sees are written,
 *			as our own. Other sessions write to the old table meanwhile; the
 *			server decodes their changes and applies them to the new table
 *			through the callbacks of DML. Snapshots that are older than the end
 *			of the command do not see the rows, as on heap.
 *		Example: 100 inserted a row, and 110 updated it; `oldest` is 105, and a
 *		snapshot does not see 110. The new table gets the version of 100,
 *		visible to all and deleted as of 110, and that of 110, as of 110.
 *	CLUSTER-6	The versions of a row are rows of their own in the new table,
 *		and an older one does not say where the next one is. So the deletion of
 *		an older version has ZUX_OTHER_PART, as if the row had gone to another
 *		partition, unless the row itself was deleted: a statement with a
 *		snapshot from before the update fails (follow_update in dml/zlock.c),
 *		where it would take the row for deleted and lose its own update.
 *		Such statements took their snapshot and then waited for the rewrite:
 *		- COPY (UPDATE ...), EXECUTE of SELECT FOR UPDATE, EXPLAIN ANALYZE
 *		  EXECUTE;
 *		- on 19 the check of a foreign key.
 *
 * All undo records of the rewrite are our own, and are kept until our
 * transaction is visible to all; from then on X does not matter.
 *
 * Crash points: the server drops the new file if we do not commit; nothing here
 * changes the old file.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/xact.h"
#include "catalog/storage.h"
#include "commands/progress.h"
#include "discard/discard.h"
#include "dml/zdml.h"
#include "miscadmin.h"
#include "mvcc/zhistory.h"
#include "mvcc/zvis.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "rollback/zrollback.h"
#include "tuple/ztts.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/tuplesort.h"
#include "vacuum/zvacuum.h"

/*
 * Rows that are visible to all, or written as ours by CLUSTER-1e, are written
 * in batches of this many bytes.
 */
#define BATCH_BYTES BLCKSZ

typedef struct Rewrite
{
	Relation	old;
	Relation	new;
	TupleTableSlot *old_slot;
	TupleTableSlot *new_slot;
	Tuplesortstate *sort;		/* NULL = written in the order of reading */
	MemoryContext row_context;	/* for one row */
	MemoryContext batch_context;
	BulkInsertState bistate;
	ZHistory   *history;
	CommandId	cid;
	TransactionId own;			/* our xid, in Version */
	bool		keep_own;		/* write all of our own versions (CLUSTER-1d) */
	bool		concurrent;		/* others write the old table (CLUSTER-1e) */
	TransactionId horizon;		/* of this server's snapshots */
	/* the batch: rows to be written together, as ours if concurrent */
	int			nbatch;
	Size		batch_bytes;
	char	   *batch[ZHEAP_MAX_OFFSET];
	uint32		batch_len[ZHEAP_MAX_OFFSET];
	double		scanned;
	double		written;		/* live rows */
	double		kept;			/* versions for older snapshots */
	double		dead;
} Rewrite;

/* The transactions that wrote and ended a version. */
typedef struct Version
{
	TransactionId created;		/* FrozenTransactionId: visible to all */
	TransactionId deleted;		/* Invalid: the newest one, and live */
	CommandId	created_cid;	/* if the author is us */
	CommandId	deleted_cid;
	bool		replaced;		/* the row has a newer version (CLUSTER-6) */
} Version;

/* Updates the progress view. */
static void
report_rows(const Rewrite *rewrite)
{
	const int	index[] = {
		PROGRESS_REPACK_HEAP_TUPLES_SCANNED,
		ZC_PROGRESS_ROWS_WRITTEN
	};
	int64		value[2];

	value[0] = (int64) rewrite->scanned;
	value[1] = (int64) rewrite->written;
	pgstat_progress_update_multi_param(2, index, value);
}

/* ---- writing ---- */

/* Inserts the rows into the new table; sets their TIDs. */
static void
insert_rows(Rewrite *rewrite, const ZNewRows *rows, CommandId cid, TransactionId as_of)
{
	Assert(rows->n > 0 && rows->n <= ZHEAP_MAX_OFFSET);
	zheap_insert_rows_as_of(rewrite->new, rows, cid,
							TABLE_INSERT_SKIP_FSM | TABLE_INSERT_NO_LOGICAL,
							rewrite->bistate, as_of);
}

/* Writes the rows of the batch. */
static void
flush_batch(Rewrite *rewrite)
{
	ItemPointerData tids[ZHEAP_MAX_OFFSET];
	ZNewRows	rows = {rewrite->nbatch, rewrite->batch, rewrite->batch_len, tids};

	Assert(rewrite->nbatch <= ZHEAP_MAX_OFFSET);
	if (rewrite->nbatch == 0)
		return;
	insert_rows(rewrite, &rows, rewrite->cid,
				rewrite->concurrent ? InvalidTransactionId : FrozenTransactionId);
	rewrite->nbatch = 0;
	rewrite->batch_bytes = 0;
	MemoryContextReset(rewrite->batch_context);
}

/* The count of a row (TOKEN-5). */
typedef struct RowCount
{
	const char *bytes;
	uint32		len;
} RowCount;

/*
 * Returns the row of new_slot as it is written, with this count, palloc'd.
 */
static char *
form_version(Rewrite *rewrite, RowCount count, uint32 *len)
{
	char	   *row = zheap_form_row(rewrite->new, rewrite->new_slot,
									 TABLE_INSERT_SKIP_FSM | TABLE_INSERT_NO_LOGICAL, len);

	Assert(count.len <= ZTUPLE_MAX_COUNT);
	memcpy(row + *len, count.bytes, count.len);
	*len += count.len;
	return row;
}

/*
 * Writes a version with these values and this count. Dropped columns become
 * NULL.
 */
static void
write_version(Rewrite *rewrite, const Datum *values, const bool *isnull, RowCount count,
			  Version version)
{
	TupleTableSlot *slot = rewrite->new_slot;
	TupleDesc	desc = RelationGetDescr(rewrite->new);
	ItemPointerData tid;
	char	   *row;
	uint32		len;
	ZNewRows	rows = {1, &row, &len, &tid};

	ExecClearTuple(slot);
	for (int i = 0; i < desc->natts; i++)
	{
		bool		dropped = TupleDescAttr(desc, i)->attisdropped;

		slot->tts_isnull[i] = dropped || isnull[i];
		slot->tts_values[i] = slot->tts_isnull[i] ? (Datum) 0 : values[i];
	}
	ExecStoreVirtualTuple(slot);
	if (version.created == FrozenTransactionId && version.deleted == InvalidTransactionId)
	{
		MemoryContext old = MemoryContextSwitchTo(rewrite->batch_context);

		row = form_version(rewrite, count, &len);
		MemoryContextSwitchTo(old);
		rewrite->batch[rewrite->nbatch] = row;
		rewrite->batch_len[rewrite->nbatch++] = len;
		rewrite->batch_bytes += len;
		if (rewrite->batch_bytes >= BATCH_BYTES || rewrite->nbatch == ZHEAP_MAX_OFFSET)
			flush_batch(rewrite);
		rewrite->written += 1;
		return;
	}
	flush_batch(rewrite);
	row = form_version(rewrite, count, &len);
	if (version.created == rewrite->own)
		insert_rows(rewrite, &rows, version.created_cid, InvalidTransactionId);
	else
		insert_rows(rewrite, &rows, rewrite->cid, version.created);
	if (version.deleted == InvalidTransactionId)
		rewrite->written += 1;
	else
	{
		if (version.deleted == rewrite->own)
			zheap_delete_as_of(rewrite->new, &tid, version.deleted_cid, InvalidTransactionId,
							   version.replaced);
		else
			zheap_delete_as_of(rewrite->new, &tid, rewrite->cid, version.deleted,
							   version.replaced);
		rewrite->kept += 1;
	}
}

/* ---- versions ---- */

/* Returns the count of the row in old_slot. */
static RowCount
count_of_slot(const Rewrite *rewrite)
{
	const ZHeapSlot *z = (const ZHeapSlot *) rewrite->old_slot;
	uint32		bare_len = ztts_length(rewrite->old_slot, z->row, z->len);
	RowCount	count = {z->row + bare_len, z->len - bare_len};

	Assert(TTS_IS_ZHEAP(rewrite->old_slot) && z->row != NULL);
	return count;
}

/*
 * Passes the version to the sort, as a heap tuple behind whose values the count
 * follows, if there is one. The offset in t_ctid is twice the count's length,
 * plus 1 if the version was replaced.
 */
static void
sort_version(Rewrite *rewrite, RowCount count, Version version)
{
	HeapTuple	tuple = ExecCopySlotHeapTuple(rewrite->old_slot);

	if (count.len > 0)
	{
		tuple = repalloc(tuple, HEAPTUPLESIZE + tuple->t_len + count.len);
		tuple->t_data = (HeapTupleHeader) ((char *) tuple + HEAPTUPLESIZE);
		memcpy((char *) tuple->t_data + tuple->t_len, count.bytes, count.len);
		tuple->t_len += count.len;
	}
	HeapTupleHeaderSetXmin(tuple->t_data, version.created);
	HeapTupleHeaderSetXmax(tuple->t_data, version.deleted);
	HeapTupleHeaderSetCmin(tuple->t_data, version.created_cid);
	ItemPointerSet(&tuple->t_data->t_ctid, version.deleted_cid,
				   count.len << 1 | (version.replaced ? 1 : 0));
	tuplesort_putheaptuple(rewrite->sort, tuple);
}

/* Passes the version in old_slot to the sort, or writes it. */
static void
take_version(Rewrite *rewrite, Version version)
{
	TupleTableSlot *slot = rewrite->old_slot;
	MemoryContext old = MemoryContextSwitchTo(rewrite->row_context);

	rewrite->scanned += 1;
	if (rewrite->sort != NULL)
		sort_version(rewrite, count_of_slot(rewrite), version);
	else
	{
		slot_getallattrs(slot);
		write_version(rewrite, slot->tts_values, slot->tts_isnull, count_of_slot(rewrite), version);
	}
	MemoryContextSwitchTo(old);
	MemoryContextReset(rewrite->row_context);
	report_rows(rewrite);
}

/*
 * A version with its bytes. All versions of a row are gathered before the
 * first is passed on, since undo may be discarded meanwhile.
 */
typedef struct Gathered
{
	Version		version;
	char	   *row;
	int			len;
} Gathered;

/*
 * Returns whether the row whose newest version is v was deleted, and not moved
 * to another place, another partition included.
 */
static bool
was_deleted(const Rewrite *rewrite, const ZHistoryVersion *v)
{
	const ZuRecord *rec = zhistory_record(rewrite->history);

	return !v->live &&
		(v->settled || (rec->type != ZUR_MOVE && (rec->xflags & ZUX_OTHER_PART) == 0));
}

/*
 * Gathers the versions of the row at off of the loaded page that a snapshot may
 * need, newest first. Returns their number, or -1 if the page must be loaded
 * again. Sets *live if the newest version is.
 */
static int
gather_versions(Rewrite *rewrite, OffsetNumber off, Gathered **list, bool *live)
{
	int			n = 0;
	int			size = 8;
	TransactionId newer = InvalidTransactionId;
	CommandId	newer_cid = FirstCommandId;
	bool		deleted;
	ZHistoryVersion v;
	ZHistoryResult result = zhistory_first(rewrite->history, off, &v);
	Gathered   *g = palloc(size * sizeof(Gathered));

	*live = (result == ZHISTORY_VERSION && v.live);
	deleted = (result == ZHISTORY_VERSION && was_deleted(rewrite, &v));
	for (; result == ZHISTORY_VERSION; result = zhistory_next(rewrite->history, &v))
	{
		TransactionId author = FrozenTransactionId;
		CommandId	cid = FirstCommandId;

		CHECK_FOR_INTERRUPTS();
		if (!v.settled)
			author = v.status == ZXID_OWN ? rewrite->own : zxid_to_xid(v.xid);
		if (author == rewrite->own)
			cid = zhistory_record(rewrite->history)->cid;
		/* CLUSTER-1d */
		if (v.live && (rewrite->keep_own || !(author == rewrite->own && newer == rewrite->own)))
		{
			if (n == size)
				g = repalloc(g, (size *= 2) * sizeof(Gathered));
			g[n].version.created = author;
			g[n].version.deleted = newer;
			g[n].version.created_cid = cid;
			g[n].version.deleted_cid = newer_cid;
			/* CLUSTER-6 */
			g[n].version.replaced = TransactionIdIsValid(newer) && !deleted;
			g[n].len = v.len;
			g[n].row = palloc(v.len);
			memcpy(g[n++].row, v.row, v.len);
		}
		newer = author;
		newer_cid = cid;
		/* CLUSTER-1c */
		if (v.settled || (newer != rewrite->own && TransactionIdPrecedes(newer, rewrite->horizon)))
			break;
	}
	*list = g;
	return result == ZHISTORY_RETRY ? -1 : n;
}

/*
 * Takes the versions of the row at (block, off), whose page is loaded. With
 * only_dead, takes none if the newest version is live. Returns false if the
 * page must be loaded again.
 */
static bool
take_row(Rewrite *rewrite, BlockNumber block, OffsetNumber off, bool only_dead)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zheap row versions",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	Gathered   *list;
	ItemPointerData tid;
	bool		live;
	int			n = gather_versions(rewrite, off, &list, &live);

	MemoryContextSwitchTo(old);
	ItemPointerSet(&tid, block, off);
	if (!live && n == 0)
		rewrite->dead += 1;
	for (int i = 0; i < n && !(live && only_dead); i++)
	{
		ztts_store_borrowed(rewrite->old_slot, list[i].row, list[i].len, &tid,
							RelationGetRelid(rewrite->old));
		take_version(rewrite, list[i].version);
	}
	ExecClearTuple(rewrite->old_slot);
	MemoryContextDelete(context);
	return n >= 0;
}

/* A version that is visible to all, or to the snapshot that is used. */
static const Version frozen = {
	FrozenTransactionId, InvalidTransactionId, FirstCommandId, FirstCommandId, false
};

/*
 * Takes a row all of whose changes are settled. Returns false if some are not.
 */
static bool
take_settled(Rewrite *rewrite, Page page, BlockNumber block, OffsetNumber off, bool only_dead)
{
	ItemId		lp = PageGetItemId(page, off);
	const char *row;
	ZHeader		header;

	Assert(off >= FirstOffsetNumber && off <= PageGetMaxOffsetNumber(page));
	if (ItemIdIsRedirected(lp))
		return false;
	if (!ItemIdIsNormal(lp))
	{
		rewrite->dead += ItemIdIsUsed(lp) ? 1 : 0;
		return true;
	}
	row = zpage_row(page, lp);
	header = zheader_get(row);
	if (!zslots_row_settled(page, header, zhistory_oldest(rewrite->history)))
		return false;
	if (!ZH_LIVE(header))
		rewrite->dead += 1;
	else if (!only_dead)
	{
		ItemPointerData tid;

		ItemPointerSet(&tid, block, off);
		ztts_store_borrowed(rewrite->old_slot, row, zpage_row_length(page, lp), &tid,
							RelationGetRelid(rewrite->old));
		take_version(rewrite, frozen);
	}
	return true;
}

/*
 * Does that for a live row, without a copy of its page. Returns false also if
 * the row is not live.
 */
static bool
take_in_place(Rewrite *rewrite, Buffer buf, ItemPointer tid)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber off = ItemPointerGetOffsetNumber(tid);
	bool		settled = false;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (!PageIsNew(page) && off <= PageGetMaxOffsetNumber(page) && zpage_item_ok(page, off) &&
		ItemIdIsNormal(PageGetItemId(page, off)))
	{
		ItemId		lp = PageGetItemId(page, off);
		ZHeader		header = zheader_get(zpage_row(page, lp));

		settled = ZH_LIVE(header) && zslots_row_settled(page, header, zslots_oldest(page));
		if (settled)
			ztts_store_copy(rewrite->old_slot, zpage_row(page, lp), zpage_row_length(page, lp),
							tid, RelationGetRelid(rewrite->old));
	}
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (settled)
		take_version(rewrite, frozen);
	return settled;
}

/*
 * Reads the old table block by block; with only_dead just the rows whose newest
 * version is not live.
 */
static void
read_by_block(Rewrite *rewrite, bool only_dead)
{
	Relation	rel = rewrite->old;
	BlockNumber nblocks = zrel_nblocks(rel);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);

	pgstat_progress_update_param(PROGRESS_REPACK_PHASE, PROGRESS_REPACK_PHASE_SEQ_SCAN_HEAP);
	pgstat_progress_update_param(PROGRESS_REPACK_TOTAL_HEAP_BLKS, nblocks);
	for (BlockNumber block = 0; block < nblocks; block++)
	{
		Buffer		buf = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
		Page		page = zhistory_load(rewrite->history, buf);
		OffsetNumber off = FirstOffsetNumber;

		while (page != NULL && off <= PageGetMaxOffsetNumber(page))
		{
			CHECK_FOR_INTERRUPTS();
			if (take_settled(rewrite, page, block, off, only_dead) ||
				take_row(rewrite, block, off, only_dead))
				off++;
			else
				page = zhistory_load(rewrite->history, buf);
		}
		ReleaseBuffer(buf);
		pgstat_progress_update_param(PROGRESS_REPACK_HEAP_BLKS_SCANNED, block + 1);
	}
	ExecClearTuple(rewrite->old_slot);
	FreeAccessStrategy(strategy);
}

/*
 * Puts the index scan's next row into the slot. Returns false if there is none.
 * Raises ERRCODE_FEATURE_NOT_SUPPORTED if the index is lossy, and errors of
 * reading rows.
 */
static bool
next_of_index(IndexScanDesc scan, TupleTableSlot *slot)
{
	CHECK_FOR_INTERRUPTS();
	if (!index_getnext_slot(scan, ForwardScanDirection, slot))
		return false;
	if (scan->xs_recheck)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot cluster on index \"%s\" because it is lossy",
						RelationGetRelationName(scan->indexRelation))));
	return true;
}

/*
 * Reads the old table in the order of the index: the live rows with their older
 * versions, and then all other rows block by block.
 */
static void
read_by_index(Rewrite *rewrite, Relation index)
{
	IndexScanDesc scan;
	TupleTableSlot *found = table_slot_create(rewrite->old, NULL);

	pgstat_progress_update_param(PROGRESS_REPACK_PHASE, PROGRESS_REPACK_PHASE_INDEX_SCAN_HEAP);
	pgstat_progress_update_param(PROGRESS_REPACK_INDEX_RELID, RelationGetRelid(index));
	scan = zc_index_beginscan(rewrite->old, index, SnapshotSelf);
	index_rescan(scan, NULL, 0, NULL, 0);
	while (next_of_index(scan, found))
	{
		BlockNumber block = ItemPointerGetBlockNumber(&found->tts_tid);
		OffsetNumber off = ItemPointerGetOffsetNumber(&found->tts_tid);
		Buffer		buf = ReadBuffer(rewrite->old, block);

		if (!take_in_place(rewrite, buf, &found->tts_tid))
			while (zhistory_load(rewrite->history, buf) != NULL &&
				   !take_row(rewrite, block, off, false))
				;
		ReleaseBuffer(buf);
	}
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(found);
	flush_batch(rewrite);
	read_by_block(rewrite, true);
}

/*
 * Takes the rows that the snapshot sees, in the order of the index unless it is
 * NULL or the rows will be sorted (CLUSTER-1e).
 */
static void
read_by_snapshot(Rewrite *rewrite, Relation index, Snapshot snapshot)
{
	Assert(IsMVCCSnapshot(snapshot));
	pgstat_progress_update_param(PROGRESS_REPACK_PHASE, PROGRESS_REPACK_PHASE_SEQ_SCAN_HEAP);
	if (index != NULL && rewrite->sort == NULL)
	{
		IndexScanDesc scan = zc_index_beginscan(rewrite->old, index, snapshot);

		index_rescan(scan, NULL, 0, NULL, 0);
		while (next_of_index(scan, rewrite->old_slot))
			take_version(rewrite, frozen);
		index_endscan(scan);
	}
	else
	{
		TableScanDesc scan = table_beginscan_strat(rewrite->old, snapshot, 0, NULL, true, false);

		while (table_scan_getnextslot(scan, ForwardScanDirection, rewrite->old_slot))
		{
			CHECK_FOR_INTERRUPTS();
			take_version(rewrite, frozen);
		}
		table_endscan(scan);
	}
	ExecClearTuple(rewrite->old_slot);
}

/* Sorts the versions and writes them. */
static void
write_sorted(Rewrite *rewrite)
{
	TupleDesc	desc = RelationGetDescr(rewrite->old);
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	HeapTuple	tuple;

	Assert(rewrite->sort != NULL);
	pgstat_progress_update_param(PROGRESS_REPACK_PHASE, PROGRESS_REPACK_PHASE_SORT_TUPLES);
	tuplesort_performsort(rewrite->sort);
	pgstat_progress_update_param(PROGRESS_REPACK_PHASE, PROGRESS_REPACK_PHASE_WRITE_NEW_HEAP);
	while ((tuple = tuplesort_getheaptuple(rewrite->sort, true)) != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(rewrite->row_context);
		OffsetNumber flags = ItemPointerGetOffsetNumberNoCheck(&tuple->t_data->t_ctid);
		Version		version;
		RowCount	count = {.len = flags >> 1};

		CHECK_FOR_INTERRUPTS();
		version.created = HeapTupleHeaderGetRawXmin(tuple->t_data);
		version.deleted = HeapTupleHeaderGetRawXmax(tuple->t_data);
		version.created_cid = HeapTupleHeaderGetRawCommandId(tuple->t_data);
		version.deleted_cid = ItemPointerGetBlockNumberNoCheck(&tuple->t_data->t_ctid);
		version.replaced = (flags & 1) != 0;
		count.bytes = (char *) tuple->t_data + tuple->t_len - count.len;
		heap_deform_tuple(tuple, desc, values, isnull);
		write_version(rewrite, values, isnull, count, version);
		MemoryContextSwitchTo(old);
		MemoryContextReset(rewrite->row_context);
		report_rows(rewrite);
	}
	pfree(values);
	pfree(isnull);
}

/*
 * zheap_copy_for_cluster: See zvacuum.h. Reads the old table in one of three
 * ways: by a snapshot (CLUSTER-1e), by the index, or block by block, and then
 * sorts the rows if that was asked for.
 */
void
zheap_copy_for_cluster(Relation old, Relation new, Relation index, bool use_sort,
					   TransactionId oldest_xmin, ZC_REWRITE_SNAPSHOT_PARAM
					   TransactionId *xid_cutoff,
					   MultiXactId *multi_cutoff, double *num_tuples, double *tups_vacuumed,
					   double *tups_recently_dead)
{
	Rewrite    *rewrite = palloc0(sizeof(Rewrite));
	Snapshot	seen = zc_rewrite_snapshot; /* CLUSTER-1e */
	TransactionId oldest;
	bool		holds;

	Assert(CheckRelationLockedByMe(old, seen != InvalidSnapshot ?
								   ShareUpdateExclusiveLock : AccessExclusiveLock, true));
	Assert(CheckRelationLockedByMe(new, AccessExclusiveLock, false));
	zu_attach_database();
	/* advance `oldest` towards the horizon; nothing need be undone for that */
	if (RelationUsesLocalBuffers(old))
		zrollback_temp();
	else
	{
		ZuDiscardStats stats;

		(void) zu_discard(ZU_UNDO_NONE, false, &stats);
	}
	rewrite->old = old;
	rewrite->new = new;
	rewrite->old_slot = table_slot_create(old, NULL);
	rewrite->new_slot = MakeSingleTupleTableSlot(RelationGetDescr(new), &TTSOpsVirtual);
	rewrite->row_context = AllocSetContextCreate(CurrentMemoryContext, "zheap rewrite row",
												 ALLOCSET_DEFAULT_SIZES);
	rewrite->batch_context = AllocSetContextCreate(CurrentMemoryContext, "zheap rewrite rows",
												   ALLOCSET_DEFAULT_SIZES);
	rewrite->bistate = GetBulkInsertState();
	rewrite->cid = GetCurrentCommandId(true);
	rewrite->own = GetCurrentTransactionId();
	rewrite->keep_own = !ThereAreNoPriorRegisteredSnapshots();
	rewrite->concurrent = (seen != InvalidSnapshot);
	rewrite->horizon = zhistory_hold(old, oldest_xmin, &holds); /* CLUSTER-1c */
	/* no other transaction sees a version in a table that ours has created */
	if (RelationNeedsWAL(old) && !rewrite->concurrent &&
		old->rd_createSubid == InvalidSubTransactionId)
		zu_log_conflict(rewrite->horizon);
	/* only changes before `oldest` are settled (CLUSTER-1) */
	oldest = zxid_to_xid(zu_oldest());
	rewrite->history = zhistory_create(old, oldest);
	zhistory_reads_values(rewrite->history, holds);
	if (use_sort)
		rewrite->sort = tuplesort_begin_cluster(RelationGetDescr(old), index, maintenance_work_mem,
												NULL, TUPLESORT_NONE);

	if (rewrite->concurrent)
		read_by_snapshot(rewrite, index, seen);
	else if (index != NULL && !use_sort)
		read_by_index(rewrite, index);
	else
		read_by_block(rewrite, false);
	if (rewrite->sort != NULL)
	{
		write_sorted(rewrite);
		tuplesort_end(rewrite->sort);
	}
	flush_batch(rewrite);
	*num_tuples = rewrite->written;
	*tups_vacuumed += rewrite->dead;
	*tups_recently_dead = rewrite->kept;
	zhistory_release(holds);

	zhistory_free(rewrite->history);
	FreeBulkInsertState(rewrite->bistate);
	ExecDropSingleTupleTableSlot(rewrite->old_slot);
	ExecDropSingleTupleTableSlot(rewrite->new_slot);
	MemoryContextDelete(rewrite->row_context);
	MemoryContextDelete(rewrite->batch_context);
	pfree(rewrite);
}
