/*
 * vacuum/zrewrite.c - new files for zheap tables: creation, truncation, copies.
 *
 * Called through zam.c by CREATE TABLE, TRUNCATE and SET TABLESPACE, all under
 * AccessExclusiveLock; zheap_estimate_size by the planner, under any lock on
 * the table. CLUSTER and VACUUM FULL: zcluster.c.
 *
 * Undo names the file that it belongs to, so the undo of the old file does not
 * serve the new one. Rewrites by CLUSTER and VACUUM FULL keep what older
 * snapshots need (CLUSTER-1); one by ALTER TABLE does not, as on heap.
 *	REWRITE-3	A copy (SET TABLESPACE) keeps every TID, since indexes stay as
 *		they are. Aborted changes are undone first. On pages whose slots still
 *		matter, settled changes become visible to all, or dead; the others get
 *		undo records of ours "as of" the transactions that made them
 *		(CLUSTER-1b), in one chain for each page, and the rows of its stubs are
 *		saved again (SAVED-1).
 *
 * If the transaction is rolled back, the old file is used again, with its undo.
 *
 * Crash points: the server drops a new file if the transaction that made it
 * does not commit. Nothing here changes the old file except undoing aborted
 * changes.
 */
#include "postgres.h"

#include "access/multixact.h"
#include "access/xloginsert.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "dml/zdml.h"
#include "miscadmin.h"
#include "mvcc/zhistory.h"
#include "mvcc/zknown.h"
#include "mvcc/zsaved.h"
#include "mvcc/zvis.h"
#include "page/zpage.h"
#include "rollback/zrollback.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "vacuum/zvacuum.h"

/*
 * The size that the server assumes for small tables that were never vacuumed
 * (table_block_relation_estimate_size).
 */
#define UNKNOWN_TABLE_PAGES 10

/* The alignment of memory that direct I/O needs. */
#define IO_ALIGNMENT 4096

/* ---- creation, truncation, size ---- */

/* zheap_set_new_filelocator: See zvacuum.h. */
void
zheap_set_new_filelocator(Relation rel, const RelFileLocator *locator, char persistence,
						  TransactionId *freeze_xid, MultiXactId *minmulti)
{
	SMgrRelation smgr;

	zu_lock_for_new_table();
	/* no running transaction is older, so none can leave an older xid here */
	*freeze_xid = RecentXmin;
	*minmulti = GetOldestMultiXactId();
	smgr = RelationCreateStorage(*locator, persistence, true);
	if (persistence == RELPERSISTENCE_UNLOGGED)
	{
		/*
		 * Log it even if wal_level is minimal; otherwise replay may remove
		 * the file.
		 */
		smgrcreate(smgr, INIT_FORKNUM, false);
		log_smgrcreate(locator, INIT_FORKNUM);
		smgrimmedsync(smgr, INIT_FORKNUM);
	}
	smgrclose(smgr);
}

/*
 * zheap_nontransactional_truncate: See zvacuum.h. Undo of the file finds no
 * block and is skipped. The locks on its rows are forgotten (LOCK-11): the new
 * pages have other slots, under the same number.
 */
void
zheap_nontransactional_truncate(Relation rel)
{
	Assert(CheckRelationLockedByMe(rel, AccessExclusiveLock, false));
	RelationTruncate(rel, 0);
	zknown_forget();
}

/* zheap_estimate_size: See zvacuum.h. */
void
zheap_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages, double *tuples,
					double *allvisfrac)
{
	Size		overhead = ZTUPLE_HEADER_SIZE + sizeof(ItemIdData);
	Size		usable = BLCKSZ - SizeOfPageHeaderData - sizeof(ZPageTrailer);

	usable -= ZPAGE_INITIAL_SLOTS * sizeof(ZPageSlot);

	/*
	 * The server assumes ten pages for a small table that was never vacuumed.
	 * The number of rows is a guess in any case, so we use heap's overhead,
	 * which gives the plans of heap.
	 */
	if (rel->rd_rel->reltuples < 0 && zrel_nblocks(rel) < UNKNOWN_TABLE_PAGES)
	{
		overhead = MAXALIGN(SizeofHeapTupleHeader) + sizeof(ItemIdData);
		usable = BLCKSZ - SizeOfPageHeaderData;
	}
	zundo_asks_size = true;
	table_block_relation_estimate_size(rel, attr_widths, pages, tuples, allvisfrac, overhead,
									   usable);
	Assert(!zundo_asks_size);
}

/* ---- copies (REWRITE-3) ---- */

/*
 * Returns true if the page cannot be copied as it is, because the copy might
 * need undo of the old file: if some change or lock of the page is not before
 * `oldest`, or if the page has an image or an overflow page. A slot whose undo
 * is lost is copied with its rows, whose readers find the damage in the copy.
 */
static bool
page_is_unsettled(Page page)
{
	ZXid		oldest = zslots_oldest(page);

	for (int i = 1; i <= zpage_nslots(page); i++)
	{
		ZSlotAge	age = zslot_age(zpage_slot(page, i), oldest);

		if (age == ZAGE_LOCKS || age == ZAGE_YOUNG)
			return true;
	}
	return zpage_trailer(page)->saved != InvalidUndoPtr ||
		zpage_has_overflow(page);
}

/* A change that an older snapshot may not see. */
typedef struct OldRecord
{
	ZuRecord	rec;
	struct OldRecord *newer;	/* of the same row */
} OldRecord;

/*
 * Returns a palloc'd copy of rec, whose author has this status, for the file
 * relnumber. newer has the later changes of the row. Raises an internal error
 * if the record cannot be read.
 */
static OldRecord *
copy_record(const ZuRecord *rec, ZXidStatus status, RelFileNumber relnumber, OffsetNumber off,
			OldRecord *newer)
{
	static char buf[ZUR_MAX_LENGTH];
	OldRecord  *r = palloc0(sizeof(OldRecord));
	char	   *raw = NULL;
	Size		rawlen = 0;

	Assert(rec->type == ZUR_INSERT || rec->type == ZUR_UPDATE || rec->type == ZUR_DELETE ||
		   rec->type == ZUR_MOVE);
	if (rec->type != ZUR_INSERT)
	{
		const char *payload = zur_raw_payload(rec, buf, sizeof(buf), &rawlen);

		if (payload == NULL)
			elog(ERROR, "undo of item %u of block %u cannot be read", off, rec->block);
		raw = memcpy(palloc(rawlen), payload, rawlen);
	}
	r->rec = *rec;
	r->rec.relnumber = relnumber;
	r->rec.offset = off;
	r->rec.nrows = 1;
	r->rec.open = false;
	r->rec.xflags &= ~ZUX_LZ4;
	if (rec->type == ZUR_INSERT)
		r->rec.xflags &= ~ZUX_SPECULATIVE;
	r->rec.payload = raw;
	r->rec.payload_len = (uint16) rawlen;
	if (status != ZXID_OWN && !TransactionIdIsValid(rec->as_of))
	{
		r->rec.as_of = zxid_to_xid(rec->xid);
		r->rec.cid = FirstCommandId;
	}
	r->newer = newer;
	return r;
}

/*
 * Returns the changes that are not settled of the row at off of the loaded
 * page, oldest first, NULL if none. Sets *retry if the page must be loaded
 * again.
 */
static OldRecord *
old_records(ZHistory *history, RelFileNumber relnumber, OffsetNumber off, bool *retry)
{
	OldRecord  *oldest = NULL;
	ZHistoryVersion v;
	ZHistoryResult result = zhistory_first(history, off, &v);

	for (; result == ZHISTORY_VERSION && !v.settled; result = zhistory_next(history, &v))
	{
		OldRecord  *r = copy_record(zhistory_record(history), v.status, relnumber, off, oldest);

		CHECK_FOR_INTERRUPTS();
		oldest = r;
	}
	*retry = (result == ZHISTORY_RETRY);
	return oldest;
}

/*
 * Writes undo records for the changes of one row, oldest first, on top of
 * head. Returns the new head and sets *xid. The version before each change has
 * its author in the same chain (slot 1), except for the oldest one, which is
 * visible to all.
 */
static UndoPtr
push_records(Relation rel, OldRecord *r, UndoPtr head, ZXid *xid)
{
	for (bool first = true; r != NULL; r = r->newer, first = false)
	{
		if (r->rec.type != ZUR_INSERT)
			zheader_compact_set_slot((char *) r->rec.payload, first ? 0 : 1);
		r->rec.prev = head;
		head = zheap_push_record(rel, &r->rec);
		*xid = r->rec.xid;
	}
	return head;
}

/*
 * Writes a ROWS record for the file relnumber, and puts it into the page's
 * list. bytes has space for the end of the payload after the len bytes.
 */
static void
push_saved(Relation rel, BlockNumber block, RelFileNumber relnumber, Page page,
		   char *bytes, int len)
{
	ZPageTrailer *trailer = zpage_trailer(page);
	ZuRecord	rec = {0};

	Assert(len > 0 && len < BLCKSZ);
	bytes[len++] = ZUR_ROWS_END;
	rec.type = ZUR_ROWS;
	rec.relnumber = relnumber;
	rec.block = block;
	rec.prev = trailer->saved;
	rec.payload = bytes;
	rec.payload_len = (uint16) len;
	trailer->saved = zheap_push_record(rel, &rec);
}

/*
 * Makes a private copy of a page, on which aborted changes have been undone,
 * independent of the old file's undo. lists[off] has the changes of each row
 * that are not settled, for which undo is written.
 */
static void
settle_page(Relation rel, Page page, OldRecord **lists)
{
	ZPruneItem	items[ZHEAP_MAX_OFFSET];
	int			n = 0;
	OffsetNumber maxoff = Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET);
	ZPageTrailer *trailer = zpage_trailer(page);
	UndoPtr		head = InvalidUndoPtr;
	ZXid		xid = InvalidZXid;

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		ItemId		lp = PageGetItemId(page, off);

		if (lists[off] != NULL)
		{
			head = push_records(rel, lists[off], head, &xid);
			if (ItemIdIsRedirected(lp))
				lp->lp_off = 1;
			else
			{
				ZHeader		h = zheader_get(zpage_row(page, lp));

				zpage_set_header(page, off, ZH_WITHOUT_LOCKS(ZH_WITH_SLOT(h, 1)));
			}
		}
		else if (ItemIdIsRedirected(lp) ||
				 (ItemIdIsNormal(lp) && !ZH_LIVE(zheader_get(zpage_row(page, lp)))))
		{
			items[n].offset = off;
			items[n++].action = ZPRUNE_DEAD;
		}
		else if (ItemIdIsNormal(lp))
		{
			ZHeader		h = zheader_get(zpage_row(page, lp));

			h = ZH_WITHOUT_LOCKS(ZH_WITH_SLOT(ZH_WITH_STATE(h, ZSTATE_INSERTED), 0));
			zpage_set_header(page, off, h & ~ZH_KEY_CHANGE);
		}
	}
	zpage_prune(page, items, n);
	for (int i = 1; i <= zpage_nslots(page); i++)
		zpage_set_slot(page, i, InvalidZXid, InvalidUndoPtr);
	if (head != InvalidUndoPtr)
		zpage_set_slot(page, 1, xid, head);
	trailer->overflow = ZPAGE_NO_OVERFLOW;	/* the old file's; the undo worker
											 * frees it */
	trailer->debt = 0;
}

/*
 * Saves for the file relnumber the rows of the stubs of the page, block of the
 * old file, that still have changes in lists. The stubs of the copy find them
 * in its trailer's list (SAVED-1): our transaction is in progress, and their
 * authors have ended.
 */
static void
save_stubs(Relation rel, BlockNumber block, RelFileNumber relnumber, Page page, UndoPtr list,
		   OldRecord **lists)
{
	char	   *bytes = palloc(BLCKSZ);
	char	   *p = bytes;
	OffsetNumber maxoff = Min(PageGetMaxOffsetNumber(page), ZHEAP_MAX_OFFSET);

	for (OffsetNumber off = FirstOffsetNumber; off <= maxoff; off++)
	{
		char	   *row;
		int			len;

		if (lists[off] == NULL || !ItemIdIsRedirected(PageGetItemId(page, off)))
			continue;
		row = palloc(BLCKSZ);
		if (!zsaved_take(rel, block, list, off, row, &len))
			lists[off] = NULL;	/* no snapshot needs it */
		else
		{
			if (p - bytes + ZUR_ROW_HEAD + len >= BLCKSZ)
			{
				push_saved(rel, block, relnumber, page, bytes, p - bytes);
				p = bytes;
			}
			p = zur_put_row(p, off, row, len);
		}
		pfree(row);
	}
	if (p > bytes)
		push_saved(rel, block, relnumber, page, bytes, p - bytes);
	pfree(bytes);
}

/* Does settle_page for page, a copy of the page in buf. */
static void
settle_block(Relation rel, ZHistory *history, Buffer buf, RelFileNumber relnumber, Page page)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zheap page history",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	OldRecord  *lists[ZHEAP_MAX_OFFSET + 1] = {NULL};
	OffsetNumber off = FirstOffsetNumber;
	UndoPtr		list;
	Page		loaded = zhistory_load(history, buf);

	Assert(zc_buffer_unlocked(buf));
	while (loaded != NULL && off <= PageGetMaxOffsetNumber(loaded))
	{
		bool		retry;

		lists[off] = old_records(history, relnumber, off, &retry);
		if (retry)
			loaded = zhistory_load(history, buf);
		else
			off++;
	}
	list = zpage_trailer(page)->saved;
	zpage_trailer(page)->saved = InvalidUndoPtr;
	save_stubs(rel, BufferGetBlockNumber(buf), relnumber, page, list, lists);
	settle_page(rel, page, lists);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/*
 * Undoes aborted changes of one block, then copies it to page. Returns its
 * buffer, pinned.
 */
static Buffer
read_block_for_copy(Relation rel, BlockNumber block, BufferAccessStrategy strategy, Page page)
{
	Buffer		buf = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, strategy);

	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	if (!PageIsNew(BufferGetPage(buf)))
		(void) zrollback_page(buf, rel);
	memcpy(page, BufferGetPage(buf), BLCKSZ);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	return buf;
}

/*
 * Copies the main fork block by block to the file at locator. Raises
 * ERRCODE_DATA_CORRUPTED for a damaged page.
 */
static void
copy_main_fork(Relation rel, RelFileLocator locator)
{
	char	   *memory = palloc(BLCKSZ + IO_ALIGNMENT);
	Page		page = (Page) TYPEALIGN(IO_ALIGNMENT, memory);
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	BlockNumber nblocks = zrel_nblocks(rel);
	bool		log = RelationIsPermanent(rel) && XLogIsNeeded();
	ZHistory   *history = zhistory_create(rel, zxid_to_xid(zu_oldest()));

	for (BlockNumber block = 0; block < nblocks; block++)
	{
		Buffer		buf;

		CHECK_FOR_INTERRUPTS();
		buf = read_block_for_copy(rel, block, strategy, page);
		if (!PageIsNew(page))
		{
			if (!zpage_is_valid(page))
				zvis_corrupt_page(rel, block, page, InvalidOffsetNumber);
			if (page_is_unsettled(page))
				settle_block(rel, history, buf, locator.relNumber, page);
			PageSetLSN(page, (XLogRecPtr) InvalidXLogRecPtr);
		}
		ReleaseBuffer(buf);
		if (log)
			(void) log_newpage(&locator, MAIN_FORKNUM, block, page, !PageIsNew(page));
		zc_set_checksum(page, block);
		/* call smgropen each time, since an invalidation may close it */
		zc_smgr_extend(smgropen(locator, rel->rd_backend), block, page);
	}

	/*
	 * The file was not written through the buffer manager, so no checkpoint
	 * syncs it, not even that of a shutdown, which unlogged tables survive.
	 */
	if (!RelationUsesLocalBuffers(rel))
		smgrimmedsync(smgropen(locator, rel->rd_backend), MAIN_FORKNUM);
	zhistory_free(history);
	FreeAccessStrategy(strategy);
	pfree(memory);
}

/* zheap_copy_data: See zvacuum.h. */
void
zheap_copy_data(Relation rel, const RelFileLocator *locator)
{
	SMgrRelation target;

	Assert(CheckRelationLockedByMe(rel, AccessExclusiveLock, false));
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
