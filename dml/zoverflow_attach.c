/*
 * dml/zoverflow_attach.c - giving table pages their overflow pages, and taking
 * them away.
 *
 * A page that is full and has no slot left gets an overflow page (zslot_pick).
 * A process that holds the page exclusively and finds every slot on the
 * overflow page older than `oldest` takes it away (zslot_pick, VACUUM). Tables
 * that are dropped, truncated or rewritten leave overflow pages behind, which
 * the undo worker frees (discard/sweep.c).
 *
 * Locks: table page -> overflow page. Nothing here waits for a transaction.
 *
 * Crash points: "overflow-logged", "overflow-attached". Both pages change in
 * one WAL record, so neither points to a page that does not know of it.
 *
 * Invariant:
 *	OVERFLOW-1	an overflow page is taken away only when every slot on it is
 *		older than `oldest`, or its table page does not point to it; so a slot
 *		number that is too large means "visible to all". It stays while
 *		a pick is in use; while it is there, the number of inline slots does not
 *		change.
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
 * Makes the owner in xlrec that of the overflow page, or no table page if
 * 'first' is 0, and logs that. buf is the table page whose pointer to the
 * overflow page is set or cleared; Invalid if none points to it. On entry both
 * are exclusively locked. logged: the table is WAL-logged.
 */
static void
change_owner(const xl_zheap_overflow *xlrec, Buffer buf, Buffer overflow, bool logged)
{
	Page		page = BufferGetPage(overflow);
	XLogRecPtr	recptr;

	Assert(zc_buffer_exclusive(overflow) && (!BufferIsValid(buf) || zc_buffer_exclusive(buf)));
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

/*
 * zoverflow_attach: See zdml_internal.h. The overflow page was reserved while
 * the table page was unlocked, since taking one may allocate; another process,
 * or the writer itself for another page, may have taken it since.
 */
bool
zoverflow_attach(const ZWriter *writer, Buffer buf)
{
	Buffer		overflow;
	xl_zheap_overflow xlrec;

	Assert(zc_buffer_exclusive(buf) && !zpage_has_overflow(BufferGetPage(buf)));

	/*
	 * Clear the bit for a row lock too: VACUUM visits only pages without it,
	 * and VACUUM must take the overflow page away again.
	 */
	zvismap_clear(writer->rel, buf);
	overflow = zu_overflow_take(writer->overflow);
	if (!BufferIsValid(overflow))
		return false;
	xlrec.reloid = RelationGetRelid(writer->rel);
	xlrec.relnumber = writer->rel->rd_locator.relNumber;
	xlrec.block = BufferGetBlockNumber(buf);
	xlrec.first = zpage_nslots(BufferGetPage(buf)) + 1;

	/*
	 * The count begins at random, so that a copy of the overflow page from an
	 * earlier time with the same owner does not match either.
	 */
	xlrec.changes = (uint16) pg_prng_uint32(&pg_global_prng_state);
	change_owner(&xlrec, buf, overflow, writer->logged);
	UnlockReleaseBuffer(overflow);
	ZUNDO_FAULT("overflow-attached");
	return true;
}

/* Returns whether nobody needs any slot of the overflow page. */
static bool
is_unused(Page overflow, ZXid oldest)
{
	for (int i = zoverflow_first(overflow); i <= zoverflow_last(overflow); i++)
		if (zslot_age(zoverflow_slot(overflow, i), oldest) > ZAGE_SETTLED)
			return false;
	return true;
}

/*
 * zoverflow_release: See zdml.h. Most pages have no overflow page, so that
 * case is tested first.
 */
void
zoverflow_release(Relation rel, Buffer buf)
{
	Buffer		overflow;

	Assert(zc_buffer_exclusive(buf));
	if (likely(!zpage_has_overflow(BufferGetPage(buf))))
		return;
	overflow = zvis_overflow_lock(rel, BufferGetBlockNumber(buf), BufferGetPage(buf),
								  BUFFER_LOCK_EXCLUSIVE);
	if (is_unused(BufferGetPage(overflow), zu_oldest()))
	{
		xl_zheap_overflow xlrec = {RelationGetRelid(rel), rel->rd_locator.relNumber,
		BufferGetBlockNumber(buf), 0};

		change_owner(&xlrec, buf, overflow, RelationNeedsWAL(rel));
	}
	UnlockReleaseBuffer(overflow);
}

/*
 * zoverflow_free: See zdml.h. No table page is changed, so none is logged.
 */
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
