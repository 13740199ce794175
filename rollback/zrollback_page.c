/*
 * rollback/zrollback_page.c - undoing the aborted records at the heads of the
 * chains of one page, and making the record below them the head ("popping").
 *
 * Called with the page exclusively locked by dml/, vacuum/ and discard/, and by
 * address from the abort callbacks. Overflow and undo pages are locked below
 * it. Crash point: "rollback-logged". Rule:
 *	ROLLBACK-1	a record is undone only where the slot's head points at exactly
 *		it; the head then becomes (xid of the record before, that record): both
 *		in one WAL record. So undoing is idempotent. It needs no space beyond
 *		the rows' rooms (page/README.md).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "common/zcount.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "mvcc/zchain.h"
#include "mvcc/zvis.h"
#include "page/zoverflow.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "change/zwal.h"

/*
 * The WAL record has the undo records of a slot up to this number of bytes, and
 * an image of the page instead of more.
 */
#define MAX_LOGGED_UNDO 4096

/*
 * What popping the aborted records of one slot results in, computed on a copy
 * of the page.
 */
typedef struct Pops
{
	PGAlignedBlock page;		/* the page as it will be; the slot itself is
								 * set later */
	int			nrecords;
	ZXid		new_xid;
	UndoPtr		new_ptr;
	Size		undo_len;		/* length of undo; > MAX_LOGGED_UNDO = use an
								 * image */
	char		undo[MAX_LOGGED_UNDO];
	char		buf[ZUR_MAX_LENGTH];	/* the record read last ... */
	char		raw[ZUR_MAX_LENGTH];	/* ... and its payload if that was
										 * compressed */
	ZuWindow	window;			/* copy of the undo page that is read */
} Pops;

/* The page whose slots are rolled back. */
typedef struct Target
{
	Buffer		buf;
	Page		page;
	BlockNumber block;
	RelFileNumber relnumber;
	Oid			reloid;
	const char *relname;		/* NULL = the relation has not been opened */
	bool		logged;			/* the relation is WAL-logged */
	bool		top_aborted;	/* our own transaction is aborting */
} Target;

/* Sets the message of an error about the damaged page. */
static int
corrupt_block(const Target *t)
{
	if (t->relname != NULL)
		return errmsg("block %u of relation \"%s\" is corrupted", t->block, t->relname);
	return errmsg("block %u of the relation with OID %u is corrupted", t->block, t->reloid);
}

/*
 * Raises ERRCODE_DATA_CORRUPTED: the undo record at ptr is missing, or does not
 * match the page.
 */
static void
corrupt_record(const Target *t, UndoPtr ptr)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 corrupt_block(t),
			 errdetail("Undo record %X/%X, to which it points, is missing or does not match the "
					   "page.",
					   (uint32) (ptr >> 32), (uint32) ptr)));
}

/* Raises ERRCODE_DATA_CORRUPTED: slot s names a future transaction. */
static void
corrupt_slot(const Target *t, int s, ZXid xid)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 corrupt_block(t),
			 errdetail("Transaction slot %d has transaction ID " UINT64_FORMAT
					   ", which has not been assigned yet.",
					   s, xid)));
}

/* Returns whether changes by xid must be undone. */
static bool
is_aborted(const Target *t, ZXid xid, ZXid oldest)
{
	ZXidStatus	status = zxid_status_at(xid, oldest);

	return status == ZXID_ABORTED || (t->top_aborted && status == ZXID_OWN);
}

/*
 * Computes in *pops what popping the aborted prefix of slot s results in:
 * aborted records are at the newest end of a chain (DML-3).
 * Returns false if nothing is aborted. Raises ERRCODE_DATA_CORRUPTED if the
 * head's record is missing or a record does not match the page.
 */
static bool
compute_pops(Pops *pops, const Target *t, int s, const ZPageSlot *slot)
{
	ZXid		oldest = zu_oldest_for(slot->ptr);
	ZChain		chain;
	ZXid		xid = ZSLOT_XID(slot);
	ZXid		known_aborted = InvalidZXid;
	ZuRecord	rec;
	ZurLayout	layout;
	bool		has_layout = false; /* of rec */

	Assert(zc_buffer_exclusive(t->buf));
	if (slot->ptr == InvalidUndoPtr || zslot_locks_only(slot))
		return false;
	if (unlikely(!zxid_possible(xid)))
		corrupt_slot(t, s, xid);
	if (!is_aborted(t, xid, oldest))
		return false;
	memcpy(pops->page.data, t->page, BLCKSZ);
	pops->nrecords = 0;
	pops->undo_len = 0;
	/* the new head is the first record that is not aborted, however old */
	zchain_begin_locked(&chain, t->relnumber, t->block, slot, InvalidZXid, pops->buf);
	zu_window_start(&pops->window);
	chain.cached = true;
	chain.window = &pops->window;
	for (;;)
	{
		Size		rawlen = 0;
		const char *payload = NULL;

		if (!has_layout || !zchain_next_alike(&chain, &layout, &rec))
		{
			if (zchain_next(&chain, &rec) != ZCHAIN_RECORD)
			{
				if (pops->nrecords == 0)
					corrupt_record(t, slot->ptr);
				/* the rest of the chain is visible to all */
				pops->new_xid = InvalidZXid;
				pops->new_ptr = InvalidUndoPtr;
				return true;
			}
			has_layout = zchain_next_beside(&chain) > 0 && zur_layout(chain.bytes, &rec, &layout);
		}
		if (rec.xid != known_aborted && !is_aborted(t, rec.xid, oldest))
		{
			pops->new_xid = rec.xid;
			pops->new_ptr = chain.here;
			return true;
		}
		Assert(pops->nrecords > 0 || chain.here == slot->ptr);	/* ROLLBACK-1 */
		known_aborted = rec.xid;
		if (rec.type != ZUR_INSERT && rec.type != ZUR_LOCK)
			payload = zur_raw_payload(&rec, pops->raw, sizeof(pops->raw), &rawlen);
		if (!zpage_undo(pops->page.data, s, &rec, payload, rawlen))
			corrupt_record(t, chain.here);
		if (pops->undo_len + rec.length <= MAX_LOGGED_UNDO)
			memcpy(pops->undo + pops->undo_len, chain.bytes, rec.length);
		pops->undo_len += rec.length;
		pops->nrecords++;
	}
}

/*
 * Copies the computed page to the page, sets the head of slot s, and logs both
 * in one WAL record (ROLLBACK-1). overflow is the overflow page that holds the
 * slot; Invalid = the slot is inline.
 */
static void
apply_pops(Pops *pops, const Target *t, Buffer overflow, int s)
{
	xl_zheap_rollback xlrec;
	bool		image = pops->undo_len > MAX_LOGGED_UNDO;

	Assert(pops->nrecords > 0 && zc_buffer_exclusive(t->buf));
	if (!BufferIsValid(overflow))
		zpage_set_slot(pops->page.data, s, pops->new_xid, pops->new_ptr);
	else
	{
		zpage_count_overflow_change(pops->page.data);
		if (!t->logged)
			image = true;		/* the table page is not logged, so replay
								 * needs no records */
	}
	xlrec.new_xid = pops->new_xid;
	xlrec.new_ptr = pops->new_ptr;
	xlrec.slotno = s;
	xlrec.nrecords = image ? 0 : pops->nrecords;

	START_CRIT_SECTION();
	memcpy(t->page, pops->page.data, BLCKSZ);
	MarkBufferDirty(t->buf);
	if (BufferIsValid(overflow))
	{
		zoverflow_set_slot(BufferGetPage(overflow), s, pops->new_xid, pops->new_ptr);
		MarkBufferDirty(overflow);
	}
	if (t->logged || BufferIsValid(overflow))
	{
		XLogRecPtr	recptr;

		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfZheapRollback);
		if (!image && pops->undo_len > 0)
			XLogRegisterData(pops->undo, pops->undo_len);
		if (t->logged)
			XLogRegisterBuffer(0, t->buf, REGBUF_STANDARD | (image ? REGBUF_FORCE_IMAGE : 0));
		if (BufferIsValid(overflow))
			XLogRegisterBuffer(1, overflow, REGBUF_STANDARD);
		recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_ROLLBACK);
		if (t->logged)
			PageSetLSN(t->page, recptr);
		if (BufferIsValid(overflow))
			PageSetLSN(BufferGetPage(overflow), recptr);
	}
	ZUNDO_FAULT("rollback-logged");
	END_CRIT_SECTION();
}

/*
 * Pops the aborted records of each slot on the page's overflow page, which it
 * locks, and returns their number. Raises ERRCODE_DATA_CORRUPTED if the
 * overflow page is missing or does not fit the table page (OVERFLOW-3).
 */
static int
rollback_overflow(Pops *pops, const Target *t)
{
	Buffer		overflow = zu_overflow_lock(zpage_trailer(t->page)->overflow, t->relnumber,
											t->block, BUFFER_LOCK_EXCLUSIVE);
	Page		opage;
	int			undone = 0;

	Assert(zc_buffer_exclusive(t->buf));	/* UNDO-20 */
	if (!BufferIsValid(overflow) || !zoverflow_fits(BufferGetPage(overflow), t->page))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 corrupt_block(t),
				 zvis_overflow_fault(overflow, zpage_trailer(t->page)->overflow)));
	opage = BufferGetPage(overflow);
	for (int s = zoverflow_first(opage); s <= zoverflow_last(opage); s++)
		if (compute_pops(pops, t, s, zoverflow_slot(opage, s)))
		{
			apply_pops(pops, t, overflow, s);
			undone += pops->nrecords;
		}
	UnlockReleaseBuffer(overflow);
	return undone;
}

/*
 * Pops the aborted records of each slot of the page, those on its overflow page
 * included, and returns their number. Raises ERRCODE_DATA_CORRUPTED for a page
 * that is not valid. The memory for the computation is allocated once per
 * backend.
 */
static int
rollback_page(const Target *t)
{
	static Pops *pops = NULL;
	int			undone = 0;

	if (PageIsNew(t->page))
		return 0;
	if (!zpage_is_valid(t->page))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 corrupt_block(t),
				 errdetail_internal("%s", zpage_fault(t->page))));
	zcount_enter_table(t->reloid, !BufferIsLocal(t->buf));
	if (pops == NULL)
		pops = MemoryContextAlloc(TopMemoryContext, sizeof(Pops));
	for (int s = 1; s <= zpage_nslots(t->page); s++)
		if (compute_pops(pops, t, s, zpage_slot(t->page, s)))
		{
			apply_pops(pops, t, InvalidBuffer, s);
			undone += pops->nrecords;
		}
	if (zpage_has_overflow(t->page))
		undone += rollback_overflow(pops, t);
	if (undone > 0)
		zcount(ZCOUNT_ROLLED_BACK, 1);
	return undone;
}

/* zrollback_page: See zrollback.h. */
int
zrollback_page(Buffer buf, Relation rel)
{
	Target		t = {buf, BufferGetPage(buf), BufferGetBlockNumber(buf), rel->rd_locator.relNumber,
	RelationGetRelid(rel), RelationGetRelationName(rel), RelationNeedsWAL(rel), false};

	Assert(zc_buffer_exclusive(buf));
	return rollback_page(&t);
}

/*
 * zrollback_space: See zrollback.h. Undone insertions have left at least as
 * much as deletions must give back for an entry (dml/zreclaim.c). Nothing else
 * is counted that only pruning gains.
 */
int
zrollback_space(Page page)
{
	int			gain = zpage_gain(page, NULL, 0);

	return gain < BLCKSZ / 8 || zpage_find_offset(page) == InvalidOffsetNumber ? 0 :
		zpage_hole(page) + gain;
}

/*
 * zrollback_page_by_locator: See zrollback.h. Reads the page without the
 * relcache. Raises an error if the read of this block that the error has
 * interrupted is still in progress, or if the page cannot be locked in a short
 * time (ABORT-7).
 */
void
zrollback_page_by_locator(RelFileLocator locator, BlockNumber block, Oid reloid, bool logged,
						  bool top_aborted)
{
	SMgrRelation smgr = smgropen(locator, INVALID_PROC_NUMBER);
	Target		t = {InvalidBuffer, NULL, block, locator.relNumber, reloid, NULL, logged,
	top_aborted};

	if (!smgrexists(smgr, MAIN_FORKNUM) || block >= smgrnblocks(smgr, MAIN_FORKNUM))
		return;
	zundo_abort_may_read(locator, block);
	t.buf = ReadBufferWithoutRelcache(locator, MAIN_FORKNUM, block, RBM_NORMAL, NULL, logged);
	t.page = BufferGetPage(t.buf);
	zundo_abort_lock_buffer(t.buf, BUFFER_LOCK_EXCLUSIVE);
	rollback_page(&t);
	UnlockReleaseBuffer(t.buf);
}
