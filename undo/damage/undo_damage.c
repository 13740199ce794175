/*
 * undo/damage/undo_damage.c - logs of which something cannot be read.
 *
 * Owns the state "closed" of a log: how it is noted, how far it holds `oldest`
 * back, and when nothing that was lost is needed any more. Also owns the doubt
 * window. Called by the log's owner, at load, by the discard pass, and by
 * readers of slots.
 *
 * What is unread lies behind everything that has been read. So the xids in it
 * are at least `oldest` as it was when the damage was found (`hold`): what is
 * older was resolved by reading its records. They are below the xid that was
 * next when the log's last owner had ended its last transaction in it
 * (`unread_end`).
 *
 * Locks: none. 'hold' is written before 'closed', by the process that closes
 * the log and resets 'unread_end' and 'excused'; from then on 'unread_end' is
 * written by the discarder only, 'excused' under the alloc lock. A closed log
 * becomes unused under the alloc lock.
 *
 * Crash points: none; nothing here is durable. The durable `oldest` is not
 * above 'hold', and a process that loads or reads the log after a crash finds
 * the damage again.
 *
 * The doubt window. Below `oldest` every chain on a page is of transactions
 * that have committed (CHAIN-11). A lost write of a log's last page can make
 * this untrue without a trace in the log, and only then: a transaction that
 * was open at a crash may not be found when the log is loaded. So at each load
 * the xids from the durable `oldest` to the next one are in doubt. Of a slot
 * before `oldest` whose xid is in the window, zslot_age (mvcc/zslots.h) asks
 * clog; a transaction that has not committed is damage. The window is written
 * to the meta page with the `oldest` that passes it.
 *
 * Invariant
 *	UNDO-37	while a log is closed, `oldest` does not pass its hold, unless no
 *		transaction needs what is unread. That is known if
 *		(a) every xid from there to unread_end has committed and every horizon
 *			has passed it, or has aborted and was undone from another log (a
 *			transaction writes to one log, so it has no records in this one),
 *			or
 *		(b) no slot of any table of the database names one of them that has not
 *			committed (zundo.repair_undo).
 *		Example: hold is 100, unread_end 103. 100 and 102 have committed, 101
 *		was rolled back from log 2: the log is given up when the horizon has
 *		passed 102.
 */
#include "undo/undo_internal.h"

#include "access/transam.h"
#include "miscadmin.h"

/*
 * Xids that earlier loads had put in doubt leave the window when they are this
 * far behind the end of the latest load.
 */
#define MAX_DOUBT	(1 << 20)

/*
 * zu_widen_doubt: See undo_entry.h. Only what earlier loads had added is cut
 * to MAX_DOUBT.
 */
void
zu_widen_doubt(ZuEntry *entry, ZXid from, ZXid to)
{
	ZXid		old_from = pg_atomic_read_u64(&entry->doubt.from);
	ZXid		old_to = pg_atomic_read_u64(&entry->doubt.to);

	Assert(from <= to);

	/*
	 * the xids of this load are never cut: a transaction that was open at the
	 * crash may be as old as `oldest`
	 */
	if (old_to > old_from)
	{
		to = Max(to, old_to);
		old_from = Max(old_from, to > MAX_DOUBT ? to - MAX_DOUBT : 0);
		from = Min(from, old_from);
	}
	pg_atomic_write_u64(&entry->doubt.to, to);
	pg_atomic_write_u64(&entry->doubt.from, from);
	pg_write_barrier();
}

/*
 * zu_close_log: See undo_entry.h. Sets `hold` before `closed`, so a process
 * that sees the log closed also sees how far it holds `oldest` back.
 */
void
zu_close_log(ZuEntry *entry, uint32 logno, UndoPtr at)
{
	ZuLog	   *log = &entry->logs[logno];

	Assert(logno < (uint32) zu_nlogs());
	if (log->closed)
		return;
	log->hold = pg_atomic_read_u64(&entry->oldest);
	log->unread_end = InvalidZXid;
	log->excused = false;
	pg_write_barrier();
	log->closed = true;
	pg_memory_barrier();		/* a backend that holds the log after this
								 * sees it */
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("undo log %u is damaged", logno),
			 errdetail("It cannot be read beyond offset %u of block %u of relation \"%s\".",
					   zuptr_byte(at) % BLCKSZ,
					   zu_extent_block(zuptr_extent(at)) + zuptr_byte(at) / BLCKSZ,
					   "zundo.undo_log"),
			 errhint("Undo of transactions from " UINT64_FORMAT " on is kept until no transaction "
					 "can need the lost part; see zundo.repair_undo().",
					 log->hold)));
}

/*
 * zu_damage_is_needless: See undo_entry.h. Sets the log's unread_end once its
 * owner, if any, is in no transaction that may write; then returns false until
 * the horizon has passed it. Asks clog about each xid in between, and stops at
 * the first one that may be needed.
 */
bool
zu_damage_is_needless(ZuLog *log, uint32 logno, ZXid horizon, ZuResolved *resolved, ZXid *checked)
{
	Assert(log->closed);
	if (log->unread_end == InvalidZXid &&
		(pg_atomic_read_u32(&log->owner) & ZU_LOG_HELD) == 0)
		log->unread_end = zxid_from_full(ReadNextFullTransactionId());
	if (log->unread_end == InvalidZXid || horizon < log->unread_end)
		return false;
	if (log->excused)
		return true;
	for (*checked = Max(*checked, log->hold); *checked < log->unread_end; (*checked)++)
	{
		TransactionId xid = zxid_to_xid(*checked);

		CHECK_FOR_INTERRUPTS();
		if (TransactionIdIsNormal(xid) && !TransactionIdDidCommit(xid) &&
			!zu_was_resolved(resolved, *checked, logno))
			return false;
	}
	return true;
}
