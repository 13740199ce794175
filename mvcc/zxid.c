/*
 * mvcc/zxid.c - what transaction ids mean to this backend and its snapshots.
 *
 * Called by all of mvcc/ and above. Asks the server (procarray, clog, subtrans,
 * SSI) and zcommitted.c; of undo it uses only the values of `oldest`, and it
 * reads no page. No locks but those of the server's functions.
 */
#include "postgres.h"

#include "access/subtrans.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "mvcc/zcommitted.h"
#include "mvcc/zxid.h"
#include "storage/predicate.h"
#include "storage/procarray.h"
#include "undo/undo_temp.h"
#include "utils/snapmgr.h"

/*
 * zxid_ended_committed: See zxid.h. Asks clog only once for a transaction that
 * has committed (VIS-9).
 */
bool
zxid_ended_committed(ZXid xid)
{
	if (zcommitted_known(xid))
		return true;
	if (!TransactionIdDidCommit(zxid_to_xid(xid)))
		return false;
	zcommitted_note(xid);
	return true;
}

/*
 * zxid_is_committed: See zxid.h. Looks whether the transaction is in progress
 * before it looks at clog, as a committing transaction is marked in clog
 * first.
 */
bool
zxid_is_committed(ZXid xid)
{
	return zcommitted_known(xid) ||
		(!TransactionIdIsInProgress(zxid_to_xid(xid)) && zxid_ended_committed(xid));
}

/*
 * zxid_status_at: See zxid.h. Asks whether the transaction is in progress
 * before it looks at clog, as zxid_is_committed does.
 */
ZXidStatus
zxid_status_at(ZXid xid, ZXid oldest)
{
	TransactionId x = zxid_to_xid(xid);

	if (xid < oldest)
		return ZXID_ALL_VISIBLE;
	if (zcommitted_known(xid))
		return ZXID_COMMITTED;
	if (TransactionIdIsCurrentTransactionId(x))
		return ZXID_OWN;
	if (TransactionIdIsInProgress(x))
		return ZXID_IN_PROGRESS;
	return zxid_ended_committed(xid) ? ZXID_COMMITTED : ZXID_ABORTED;
}

ZXidStatus
zxid_status(ZXid xid)
{
	if (xid == InvalidZXid)
		return ZXID_ALL_VISIBLE;
	return zxid_status_at(xid, zu_oldest());
}

/*
 * zxid_is_ours: See zxid.h. Looks xid up in pg_subtrans, which leads from an
 * aborted subtransaction to our top-level transaction, too; it is not
 * "current" any more.
 */
bool
zxid_is_ours(ZXid xid)
{
	TransactionId x = zxid_to_xid(xid);
	TransactionId top = GetTopTransactionIdIfAny();

	if (!TransactionIdIsValid(top))
		return false;
	if (TransactionIdIsCurrentTransactionId(x))
		return true;
	return TransactionIdFollows(x, top) &&
		TransactionIdEquals(SubTransGetTopmostTransaction(x), top);
}

/*
 * zxid_visible_mvcc: See zxid.h. Notes the transaction only if it is not in
 * progress any more (VIS-9). A snapshot that a replication slot has exported
 * is made from WAL, so it may show a transaction that has committed but still
 * waits for a standby, and is in progress for the server as long as it does.
 */
bool
zxid_visible_mvcc(ZXid xid, Snapshot snapshot)
{
	TransactionId x = zxid_to_xid(xid);

	Assert(zsnapshot_is_mvcc(snapshot));
	if (XidInMVCCSnapshot(x, snapshot))
		return false;
	if (zcommitted_known(xid))
		return true;
	if (!TransactionIdDidCommit(x))
		return false;
	if (!TransactionIdIsInProgress(x))
		zcommitted_note(xid);
	return true;
}

/*
 * zvis_check_temp: See zxid.h. Passes slots of other tables, and those whose
 * undo is still there. The session's own snapshots do not need undo that
 * zu_temp_oldest() has passed.
 */
void
zvis_check_temp(UndoPtr ptr, ZXid xid, Snapshot snapshot)
{
	TransactionId x = zxid_to_xid(xid);

	if (!zuptr_is_temp(ptr) || xid >= zu_temp_oldest() || TransactionIdPrecedes(x, snapshot->xmin))
		return;
	/* the xid may be so old that its lower 32 bits compare wrongly */
	if (xid >= zxid_widen(snapshot->xmin) && XidInMVCCSnapshot(x, snapshot))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot read a temporary zheap table that was changed after the imported "
						"snapshot was taken"),
				 errdetail("Old versions of temporary zheap tables are kept for the session's own "
						   "snapshots only.")));
}

/*
 * zxid_seen_by_all: See zxid.h. `oldest` passes only transactions whose commit
 * records are flushed.
 */
bool
zxid_seen_by_all(Relation rel, ZXid xid)
{
	TransactionId x = zxid_to_xid(xid);

	return xid < zu_oldest() ||
		(zc_is_removable_xid(GlobalVisTestFor(rel), x) && zxid_ended_committed(xid) &&
		 !XLogNeedsFlush(TransactionIdGetCommitLSN(x)));
}

bool
zssi_needed(Relation rel, Snapshot snapshot)
{
	return IsolationIsSerializable() && zsnapshot_is_mvcc(snapshot) &&
		CheckForSerializableConflictOutNeeded(rel, snapshot);
}
