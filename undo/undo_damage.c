/*
 * undo/undo_damage.c - logs of which something cannot be read.
 *
 * Owns the state "closed" of a log: who notes it, how far it keeps `oldest`
 * back, and when nobody needs what is lost any more. Called by the log's owner,
 * at load and by the discard pass.
 *
 * What is unread lies behind everything that has been read. So the xids in it
 * are at least `oldest` as it was when the damage was met (`hold`): what is
 * older was settled by reading it. They are below the xid that was next when
 * the log's last owner had ended its last transaction in it (`unread_end`).
 *
 * Locks: none. 'hold' is written before 'closed', by whoever closes;
 * 'unread_end' by the discarder only; a closed log becomes unused under the
 * alloc lock.
 *
 * Crash points: none; nothing here is durable. The durable `oldest` is not
 * above 'hold', and who loads or reads the log after a crash meets the damage
 * again.
 *
 * Invariants
 *	UNDO-37	while a log is closed, `oldest` does not pass its hold, unless
 *		every xid from there to unread_end is known not to need what is unread:
 *		it has committed and everybody's horizon has passed it, or it has
 *		aborted and was undone from another log. A transaction writes to one
 *		log, so it has no records in this one then. Or no slot of any table of
 *		the database names one that has not committed (zundo.repair_undo).
 *	UNDO-46	below `oldest` every chain on a page is of transactions that have
 *		committed: aborted ones were taken off it. A lost write of a log's last
 *		page can make this untrue without a trace in the log, and only then:
 *		what was open at a crash is not found when the log is loaded. So xids
 *		from the durable `oldest` to the next one, at each load, are in doubt:
 *		the window. Who believes that a slot of a page is older than `oldest`
 *		asks clog if its xid is in it; one that has not committed is damage.
 *		The window goes to the meta page with the `oldest` that passes it.
 */
#include "undo/undo_internal.h"

#include "access/transam.h"
#include "storage/lwlock.h"
#include "miscadmin.h"

/*
 * Of what earlier loads had put in doubt, xids older than these many before
 * the latest load are given up.
 */
#define MAX_DOUBT	(1 << 20)

/* Committed transactions of the window, by xid. */
#define KNOWN_COMMITTED	256

void
zu_widen_doubt(ZuEntry *entry, ZXid from, ZXid to)
{
	ZXid		old_from = pg_atomic_read_u64(&entry->doubt.from);
	ZXid		old_to = pg_atomic_read_u64(&entry->doubt.to);

	/*
	 * this load's own xids stay whole: what was open at a crash may be as old
	 * as `oldest`
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

/* has_committed: returns whether xid has committed, or is too old to tell. */
static bool
has_committed(ZXid xid)
{
	bool		committed;

	/*
	 * clog must not be cut off while it is read. The comparison needs the
	 * whole xid: the window may lie more than 2^31 transactions back.
	 */
	LWLockAcquire(XactTruncationLock, LW_SHARED);
	committed = xid < zxid_widen(zc_oldest_clog_xid()) || TransactionIdDidCommit(zxid_to_xid(xid));
	LWLockRelease(XactTruncationLock);
	return committed;
}

bool
zu_is_lost(ZXid xid)
{
	static ZXid known[KNOWN_COMMITTED]; /* transaction ids are the server's:
										 * good for every database */
	ZXid	   *place = &known[xid % KNOWN_COMMITTED];

	if (*place == xid || xid >= zu_oldest())
		return false;
	if (!has_committed(xid))
		return true;
	*place = xid;
	return false;
}

void
zu_close_log(ZuEntry *entry, uint32 logno, UndoPtr at)
{
	ZuLog	   *log = &entry->logs[logno];

	if (log->closed)
		return;
	log->hold = pg_atomic_read_u64(&entry->oldest);
	log->unread_end = InvalidZXid;
	log->excused = false;
	pg_write_barrier();
	log->closed = true;
	pg_memory_barrier();		/* who holds the log after this sees it */
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("undo log %u is damaged", logno),
			 errdetail("It cannot be read beyond offset %u of block %u of relation \"%s\".",
					   zuptr_byte(at) % BLCKSZ,
					   zu_extent_block(zuptr_extent(at)) + zuptr_byte(at) / BLCKSZ,
					   "zundo.undo_log"),
			 errhint("Undo of transactions from " UINT64_FORMAT " on is kept until no transaction "
					 "can need the lost part.",
					 log->hold)));
}

void
zu_note_resolved(ZuResolved *resolved, ZXid xid, uint32 logno, MemoryContext context)
{
	if (resolved->n == resolved->size)
	{
		int			size = Max(resolved->size * 2, 64);

		if (resolved->xids == NULL)
		{
			resolved->xids = MemoryContextAllocHuge(context, size * sizeof(ZXid));
			resolved->lognos = MemoryContextAllocHuge(context, size * sizeof(uint32));
		}
		else
		{
			resolved->xids = repalloc_huge(resolved->xids, size * sizeof(ZXid));
			resolved->lognos = repalloc_huge(resolved->lognos, size * sizeof(uint32));
		}
		resolved->size = size;
	}
	resolved->xids[resolved->n] = xid;
	resolved->lognos[resolved->n] = logno;
	resolved->n++;
}

void
zu_forget_resolved(ZuResolved *resolved, ZXid oldest)
{
	int			kept = 0;

	for (int i = 0; i < resolved->n; i++)
		if (resolved->xids[i] >= oldest)
		{
			resolved->xids[kept] = resolved->xids[i];
			resolved->lognos[kept++] = resolved->lognos[i];
		}
	resolved->n = kept;
}

/*
 * was_resolved: returns whether xid was met as aborted, and undone, in another
 * log than this one.
 */
static bool
was_resolved(const ZuResolved *resolved, ZXid xid, uint32 logno)
{
	for (int i = 0; i < resolved->n; i++)
		if (resolved->xids[i] == xid)
			return resolved->lognos[i] != logno;
	return false;
}

bool
zu_damage_is_needless(ZuLog *log, uint32 logno, ZXid horizon, const ZuResolved *resolved,
					  ZXid *checked)
{
	if (log->unread_end == InvalidZXid &&
		(pg_atomic_read_u32(&log->owner) & ZU_LOG_HELD) == 0)
		log->unread_end = zxid_from_full(zc_next_full_xid());
	if (log->unread_end == InvalidZXid || horizon < log->unread_end)
		return false;
	if (log->excused)
		return true;
	for (*checked = Max(*checked, log->hold); *checked < log->unread_end; (*checked)++)
	{
		TransactionId xid = zxid_to_xid(*checked);

		CHECK_FOR_INTERRUPTS();
		if (TransactionIdIsNormal(xid) && !TransactionIdDidCommit(xid) &&
			!was_resolved(resolved, *checked, logno))
			return false;
	}
	return true;
}
