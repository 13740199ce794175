/*
 * vacuum/zrewrite.c - new files for zheap tables: creation, truncation, copies.
 *
 * Called through zam.c by CREATE TABLE, TRUNCATE and SET TABLESPACE, all under
 * AccessExclusiveLock. CLUSTER and VACUUM FULL: zcluster.c.
 *
 * Undo names the file that it belongs to, so undo of the old file cannot serve
 * the new one. Rules:
 *	N1	a new file begins without undo of earlier changes.
 *	N2	a rewrite by CLUSTER or VACUUM FULL keeps what older snapshots need (zcluster.c); one by
 *		ALTER TABLE does not, as on heap.
 *	N3	a copy (SET TABLESPACE) keeps every TID, since indexes stay. Aborted changes are undone first. Of pages whose
 *		slots still matter, what everybody sees becomes visible to all, or dead; the other changes get undo
 *		records of ours "as of" those who made them (zcluster.c, K2), in one chain for each page.
 * A transaction that made changes before and is rolled back gets the old
 * file back together with its undo.
 *
 * Crash points: a new file is dropped by the server if its creator does not
 * commit; nothing here changes the old file but the undoing of aborted changes.
 */
#include "postgres.h"

#include "access/multixact.h"
#include "access/xloginsert.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "dml/zdml.h"
#include "miscadmin.h"
#include "mvcc/zhistory.h"
#include "mvcc/zvis.h"
#include "page/zpage.h"
#include "rollback/zrollback.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "vacuum/zvacuum.h"
#include "change/zlogical.h"

/* The server's own figure for tables that were never vacuumed (table_block_relation_estimate_size). */
#define UNKNOWN_TABLE_PAGES 10

/* Alignment that direct I/O wants of a page in memory. */
#define IO_ALIGNMENT 4096

/* ---- creation, truncation, size ---- */

/*
 * Raises a WARNING if a table becomes a zheap table that is to have changes
 * decoded: rel, or the table whose rewritten form rel is to be. (The server names
 * rel after that table then; it sets relrewrite later.)
 */
static void
warn_of_new_table(Relation rel)
{
	unsigned int oid;
	HeapTuple	old = NULL;

	if (rel->rd_createSubid == InvalidSubTransactionId)
		return;					/* TRUNCATE */
	if (sscanf(RelationGetRelationName(rel), "pg_temp_%u", &oid) == 1)
		old = SearchSysCache1(RELOID, ObjectIdGetDatum(oid));
	if (!HeapTupleIsValid(old))
	{
		zlogical_warn(RelationGetRelationName(rel));
		return;
	}
	if (((Form_pg_class) GETSTRUCT(old))->relam != rel->rd_rel->relam)
		zlogical_warn(NameStr(((Form_pg_class) GETSTRUCT(old))->relname));
	ReleaseSysCache(old);
}

/*
 * zheap_set_new_filelocator: create the storage of a new or emptied table. An
 * unlogged one gets an init fork, which is an empty file.
 */
void
zheap_set_new_filelocator(Relation rel, const RelFileLocator *locator, char persistence,
						  TransactionId *freeze_xid, MultiXactId *minmulti)
{
	SMgrRelation smgr;

	if (persistence == RELPERSISTENCE_PERMANENT && XLogLogicalInfoActive())
		warn_of_new_table(rel);
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
	Size		overhead = ZTUPLE_HEADER_SIZE + sizeof(ItemIdData);
	Size		usable = BLCKSZ - SizeOfPageHeaderData - sizeof(ZPageTrailer) -
		ZPAGE_INITIAL_SLOTS * sizeof(ZPageSlot);

	/*
	 * A small table of which nothing is known counts as ten pages, whatever it has. There is no truth
	 * to be found in that number, so plans may as well be those of heap.
	 */
	if (rel->rd_rel->reltuples < 0 && zrel_nblocks(rel) < UNKNOWN_TABLE_PAGES)
	{
		overhead = MAXALIGN(SizeofHeapTupleHeader) + sizeof(ItemIdData);
		usable = BLCKSZ - SizeOfPageHeaderData;
	}
	zundo_asks_size = true;
	table_block_relation_estimate_size(rel, attr_widths, pages, tuples, allvisfrac, overhead, usable);
	Assert(!zundo_asks_size);
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
		zpage_has_overflow(page);
}

/* One change that an older snapshot may have to take back. */
typedef struct OldRecord
{
	ZuRecord	rec;
	struct OldRecord *newer;	/* of the same row */
} OldRecord;

/* A copy of rec, whose writer has this status, for the file relnumber. newer: the changes of the row after it. */
static OldRecord *
copy_record(const ZuRecord *rec, ZXidStatus status, RelFileNumber relnumber, OffsetNumber off, OldRecord *newer)
{
	static char buf[ZUR_MAX_LENGTH];
	OldRecord  *r = palloc0(sizeof(OldRecord));
	char	   *raw = NULL;
	Size		rawlen = 0;

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
	r->rec.xflags &= ~(ZUX_LZ4 | ZUX_SPECULATIVE);
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
 * The changes of the row at off of the page loaded into history that are not settled, oldest first; NULL = none. *retry: load
 * the page again.
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
 * Write the changes of one row, oldest first, as ours on top of head; returns the new head. The version before each of
 * them is found in the same chain, but for the oldest: that one is visible to all.
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
 * Make a private page copy independent of the old file's undo. Aborted changes have been undone on it.
 * lists[off]: the changes of each row that older snapshots may take back; they are written anew.
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

				zpage_set_header(page, off, ZH_WITH_LOCK(ZH_WITH_SLOT(h, 1), 0));
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

			h = ZH_WITH_LOCK(ZH_WITH_SLOT(ZH_WITH_STATE(h, ZSTATE_INSERTED), 0), 0);
			zpage_set_header(page, off, h & ~ZH_KEY_CHANGE);
		}
	}
	zpage_prune(page, items, n);
	for (int i = 1; i <= zpage_nslots(page); i++)
		zpage_set_slot(page, i, InvalidZXid, InvalidUndoPtr);
	if (head != InvalidUndoPtr)
		zpage_set_slot(page, 1, xid, head);
	trailer->image = InvalidUndoPtr;
	trailer->overflow = ZPAGE_NO_OVERFLOW;	/* the old file's; the undo worker frees it */
	trailer->debt = 0;
}

/* Settle the copy in page of block, which is in buf too. */
static void
settle_block(Relation rel, ZHistory *history, Buffer buf, RelFileNumber relnumber, Page page)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "zheap page history", ALLOCSET_DEFAULT_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	OldRecord  *lists[ZHEAP_MAX_OFFSET + 1] = {NULL};
	OffsetNumber off = FirstOffsetNumber;
	Page		loaded = zhistory_load(history, buf);

	while (loaded != NULL && off <= PageGetMaxOffsetNumber(loaded))
	{
		bool		retry;

		lists[off] = old_records(history, relnumber, off, &retry);
		if (retry)
			loaded = zhistory_load(history, buf);
		else
			off++;
	}
	settle_page(rel, page, lists);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/* Undo aborted changes of one block, then copy it to page. Returns its buffer, pinned. */
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

/* Copy the main fork block by block to the file at locator. */
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
		PageSetChecksumInplace(page, block);
		/* looked up anew: a cache invalidation may close it */
		zc_smgr_extend(smgropen(locator, rel->rd_backend), block, page);
	}
	/* written past the buffer manager: no checkpoint would sync it, not even that of a shutdown, which an unlogged table outlives */
	if (!RelationUsesLocalBuffers(rel))
		smgrimmedsync(smgropen(locator, rel->rd_backend), MAIN_FORKNUM);
	zhistory_free(history);
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
