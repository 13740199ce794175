/*
 * dml/zoverflow.c - giving table pages their overflow pages, and taking them
 * away.
 *
 * A page that is full and has no slot left gets an overflow page (zslot_pick);
 * whoever holds it exclusively and finds every slot there older than `oldest`
 * takes it away (zslot_pick, VACUUM). Tables that are dropped, truncated or
 * rewritten leave overflow pages behind, which the undo worker frees
 * (discard/sweep.c).
 *
 * Locks: table page -> overflow page. Nothing here waits for a transaction.
 *
 * Crash points: "overflow-logged"; both pages change in one WAL record, so
 * neither points to nothing.
 *
 * Invariants:
 *	OVERFLOW-1	an overflow page is taken away only when every slot on it is
 *		older than `oldest`, or its table page does not point to it; so a slot
 *		number that is too large means "visible to all".
 *	OVERFLOW-2	while a pick is in use, the page's overflow page stays.
 */
#include "postgres.h"

#include "access/xloginsert.h"
#include "dml/zdml_internal.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "page/zoverflow.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * Give overflow to the owner in 'xlrec', or to nobody if first is 0, and log
 * that. buf: the table page that is to point to it, or not any more; Invalid:
 * none does. Both exclusively locked. logged: is the table page?
 */
static void
change_owner(const xl_zheap_overflow *xlrec, Buffer buf, Buffer overflow, bool logged)
{
	Page		page = BufferGetPage(overflow);
	XLogRecPtr	recptr;

	START_CRIT_SECTION();
	zu_overflow_init(page, xlrec->reloid, xlrec->relnumber, xlrec->block, xlrec->first,
					 xlrec->changes);
	MarkBufferDirty(overflow);
	if (BufferIsValid(buf))
	{
		zpage_set_overflow(BufferGetPage(buf), xlrec->first != 0 ? BufferGetBlockNumber(overflow)
						   : 0, xlrec->changes);
		MarkBufferDirty(buf);
	}
	XLogBeginInsert();
	XLogRegisterData((char *) xlrec, SizeOfZheapOverflow);
	if (BufferIsValid(buf) && logged)
		XLogRegisterBuffer(0, buf, REGBUF_STANDARD);
	XLogRegisterBuffer(1, overflow, REGBUF_STANDARD | REGBUF_WILL_INIT);
	recptr = XLogInsert(ZUNDO_RMGR_ID, ZWAL_OVERFLOW);
	if (BufferIsValid(buf) && logged)
		PageSetLSN(BufferGetPage(buf), recptr);
	PageSetLSN(page, recptr);
	ZUNDO_FAULT("overflow-logged");
	END_CRIT_SECTION();
}

bool
zoverflow_attach(const ZWriter *writer, Buffer buf)
{
	Buffer		overflow;
	xl_zheap_overflow xlrec;

	/*
	 * for a row lock too: VACUUM comes only to pages without the bit
	 * (VACUUM-4 in vacuum/zvacuum.c), and is to take the overflow page away
	 */
	zvisible_clear(writer->rel, buf);
	overflow = zu_overflow_take();
	if (!BufferIsValid(overflow))
		return false;
	xlrec.reloid = RelationGetRelid(writer->rel);
	xlrec.relnumber = writer->rel->rd_locator.relNumber;
	xlrec.block = BufferGetBlockNumber(buf);
	xlrec.first = zpage_nslots(BufferGetPage(buf)) + 1;

	/*
	 * so that a version from an earlier time with the same owner does not fit
	 * either
	 */
	xlrec.changes = (uint16) pg_prng_uint32(&pg_global_prng_state);
	change_owner(&xlrec, buf, overflow, writer->logged);
	UnlockReleaseBuffer(overflow);
	ZUNDO_FAULT("overflow-attached");
	return true;
}

/* Is every slot here older than everybody? */
static bool
is_settled(Page overflow, ZXid oldest)
{
	for (int i = zoverflow_first(overflow); i <= zoverflow_last(overflow); i++)
		if (zslot_xid(zoverflow_slot(overflow, i)) >= oldest)
			return false;
	return true;
}

bool
zoverflow_release(Relation rel, Buffer buf)
{
	Buffer		overflow;
	bool		settled;

	if (likely(!zpage_has_overflow(BufferGetPage(buf))))
		return true;
	overflow = zvis_overflow_lock(rel, BufferGetBlockNumber(buf), BufferGetPage(buf),
								  BUFFER_LOCK_EXCLUSIVE);
	settled = is_settled(BufferGetPage(overflow), zu_oldest());
	if (settled)
	{
		xl_zheap_overflow xlrec = {RelationGetRelid(rel), rel->rd_locator.relNumber,
		BufferGetBlockNumber(buf), 0};

		change_owner(&xlrec, buf, overflow, RelationNeedsWAL(rel));
	}
	UnlockReleaseBuffer(overflow);
	return settled;
}

void
zoverflow_free(const ZuOverflowPage *p)
{
	xl_zheap_overflow xlrec = {p->reloid, p->relnumber, p->block, 0};
	Buffer		overflow = zu_overflow_lock_owned(p);

	if (!BufferIsValid(overflow))
		return;
	change_owner(&xlrec, InvalidBuffer, overflow, false);
	UnlockReleaseBuffer(overflow);
}
