/*
 * rollback/zrollback_page.c - popping aborted records off one page's slots.
 *
 * Called with the page exclusively locked by DML, VACUUM, workers and abort
 * callbacks. Rules:
 *	R1	a record is undone only where the slot's head points at exactly it; the
 *		head then becomes (xid of the record before, that record): both in
 *		one WAL record. So undoing is idempotent.
 *	R2	aborted records are a prefix of a chain at its newest end.
 *	R3	undoing needs no space beyond the rows' rooms (page/README.md).
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "page/zoverflow.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"
#include "wal/zwal.h"

/* Above this many bytes of undo a page image is cheaper in WAL. */
#define MAX_LOGGED_UNDO 4096

/* One slot's pops, worked out on a copy of the page. */
typedef struct Pops
{
	PGAlignedBlock page;		/* the page as it will be, but for its slots */
	int			nrecords;
	ZXid		new_xid;
	UndoPtr		new_ptr;
	Size		undo_len;		/* of undo; > MAX_LOGGED_UNDO = use an image */
	char		undo[MAX_LOGGED_UNDO];
	char		buf[ZUR_MAX_LENGTH];
	char		raw[ZUR_MAX_LENGTH];
} Pops;

static void
corrupt_record(Oid reloid, BlockNumber block, UndoPtr ptr)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("undo record %X/%X does not fit block %u of relation %u",
					(uint32) (ptr >> 32), (uint32) ptr, block, reloid)));
}

/* Work out what popping the slot's aborted prefix gives. False if nothing is aborted. */
static bool
compute_pops(Pops *pops, Page page, const ZPageSlot *slot, RelFileNumber relnumber, Oid reloid,
			 BlockNumber block)
{
	ZXid		oldest = zu_oldest_for(slot->ptr);
	UndoPtr		ptr = slot->ptr;
	ZXid		xid = ZSLOT_XID(slot);
	ZXid		known_aborted = InvalidZXid;

	if (ptr == InvalidUndoPtr || zxid_status_at(xid, oldest) != ZXID_ABORTED)
		return false;
	memcpy(pops->page.data, page, BLCKSZ);
	pops->nrecords = 0;
	pops->undo_len = 0;
	for (;;)
	{
		ZuRecord	rec;
		Size		rawlen = 0;
		const char *payload = NULL;

		if (ptr == InvalidUndoPtr ||
			zu_fetch(ptr, relnumber, block, &rec, pops->buf) == ZU_DISCARDED)
		{
			if (pops->nrecords == 0)
				corrupt_record(reloid, block, ptr);
			/* what is left of the chain is visible to all */
			pops->new_xid = InvalidZXid;
			pops->new_ptr = InvalidUndoPtr;
			return true;
		}
		if (rec.xid != known_aborted && zxid_status_at(rec.xid, oldest) != ZXID_ABORTED)
		{
			pops->new_xid = rec.xid;
			pops->new_ptr = ptr;
			return true;
		}
		known_aborted = rec.xid;
		if (rec.type != ZUR_LOCK)
		{
			if (rec.type != ZUR_INSERT)
				payload = zur_raw_payload(&rec, pops->raw, sizeof(pops->raw), &rawlen);
			if (!zpage_undo(pops->page.data, &rec, payload, rawlen))
				corrupt_record(reloid, block, ptr);
		}
		if (pops->undo_len + rec.length <= MAX_LOGGED_UNDO)
			memcpy(pops->undo + pops->undo_len, pops->buf, rec.length);
		pops->undo_len += rec.length;
		pops->nrecords++;
		ptr = rec.prev;
	}
}

/* Put the pops of slot s on the page and log them. overflow: the slot lies there; Invalid = inline. */
static void
apply_pops(Pops *pops, Buffer buf, Buffer overflow, int s, bool logged)
{
	Page		page = BufferGetPage(buf);
	xl_zheap_rollback xlrec;
	bool		image = pops->undo_len > MAX_LOGGED_UNDO;

	if (!BufferIsValid(overflow))
		zpage_set_slot(pops->page.data, s, pops->new_xid, pops->new_ptr);
	else if (!logged)
		image = true;			/* of the table page nothing is logged */
	xlrec.new_xid = pops->new_xid;
	xlrec.new_ptr = pops->new_ptr;
	xlrec.slotno = s;
	xlrec.nrecords = image ? 0 : pops->nrecords;

	START_CRIT_SECTION();
	memcpy(page, pops->page.data, BLCKSZ);
	MarkBufferDirty(buf);
	if (BufferIsValid(overflow))
	{
		zoverflow_set_slot(BufferGetPage(overflow), s, pops->new_xid, pops->new_ptr);
		MarkBufferDirty(overflow);
	}
	if (logged || BufferIsValid(overflow))
	{
		XLogRecPtr	recptr;

		XLogBeginInsert();
		XLogRegisterData((char *) &xlrec, SizeOfZheapRollback);
		if (!image && pops->undo_len > 0)
			XLogRegisterData(pops->undo, pops->undo_len);
		if (logged)
			XLogRegisterBuffer(0, buf, REGBUF_STANDARD | (image ? REGBUF_FORCE_IMAGE : 0));
		if (BufferIsValid(overflow))
			XLogRegisterBuffer(1, overflow, REGBUF_STANDARD);
		recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_ROLLBACK);
		if (logged)
			PageSetLSN(page, recptr);
		if (BufferIsValid(overflow))
			PageSetLSN(BufferGetPage(overflow), recptr);
	}
	ZUNDO_FAULT("rollback-logged");
	END_CRIT_SECTION();
}

/* The same as zrollback_page for the slots on the page's overflow page. */
static int
rollback_overflow(Pops *pops, Buffer buf, RelFileLocator locator, Oid reloid, bool logged)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	Buffer		overflow = zu_overflow_lock(zpage_trailer(page)->overflow, locator.relNumber, block,
											BUFFER_LOCK_EXCLUSIVE);
	Page		opage = BufferGetPage(overflow);
	int			undone = 0;

	for (int s = zoverflow_first(opage); s <= zoverflow_last(opage); s++)
		if (compute_pops(pops, page, zoverflow_slot(opage, s), locator.relNumber, reloid, block))
		{
			apply_pops(pops, buf, overflow, s, logged);
			undone += pops->nrecords;
		}
	UnlockReleaseBuffer(overflow);
	return undone;
}

int
zrollback_page(Buffer buf, RelFileLocator locator, Oid reloid, bool logged)
{
	static Pops *pops = NULL;
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	int			undone = 0;

	if (PageIsNew(page))
		return 0;
	if (pops == NULL)
		pops = MemoryContextAlloc(TopMemoryContext, sizeof(Pops));
	for (int s = 1; s <= zpage_nslots(page); s++)
		if (compute_pops(pops, page, zpage_slot(page, s), locator.relNumber, reloid, block))
		{
			apply_pops(pops, buf, InvalidBuffer, s, logged);
			undone += pops->nrecords;
		}
	if (unlikely(zpage_trailer(page)->overflow != InvalidBlockNumber))
		undone += rollback_overflow(pops, buf, locator, reloid, logged);
	return undone;
}

int
zrollback_page_by_locator(RelFileLocator locator, BlockNumber block, Oid reloid, bool logged)
{
	SMgrRelation smgr = smgropen(locator, INVALID_PROC_NUMBER);
	Buffer		buf;
	int			undone;

	if (!smgrexists(smgr, MAIN_FORKNUM) || block >= smgrnblocks(smgr, MAIN_FORKNUM))
		return 0;
	buf = ReadBufferWithoutRelcache(locator, MAIN_FORKNUM, block, RBM_NORMAL, NULL, logged);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	undone = zrollback_page(buf, locator, reloid, logged);
	UnlockReleaseBuffer(buf);
	return undone;
}
