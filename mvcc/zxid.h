/*
 * mvcc/zxid.h - what transaction ids mean to this backend and its snapshots.
 */
#ifndef ZUNDO_ZXID_H
#define ZUNDO_ZXID_H

#include "common/zundo.h"
#include "undo/undo.h"
#include "utils/snapmgr.h"
#include "utils/snapshot.h"

/* What a transaction id on a page means to this backend. */
typedef enum ZXidStatus
{
	ZXID_ALL_VISIBLE,			/* 0 or < oldest */
	ZXID_OWN,					/* current (sub)transaction of this backend */
	ZXID_IN_PROGRESS,
	ZXID_COMMITTED,
	ZXID_ABORTED
} ZXidStatus;

/*
 * zxid_status: returns the status of an xid that was not read from a page.
 * zxid_status_at: returns that of an xid from a page; oldest is the page's
 * zslots_oldest(), loaded under its lock.
 */
extern ZXidStatus zxid_status(ZXid xid);
extern ZXidStatus zxid_status_at(ZXid xid, ZXid oldest);

/*
 * zxid_is_committed: returns whether xid, which is not own, has ended and has
 * committed. zxid_ended_committed: returns whether xid has committed, for one
 * of which the caller knows that it has left the server's array of running
 * transactions.
 */
extern bool zxid_is_committed(ZXid xid);
extern bool zxid_ended_committed(ZXid xid);

/*
 * zxid_visible_mvcc: returns whether xid (>= oldest, not own) is committed as
 * of the MVCC snapshot.
 */
extern bool zxid_visible_mvcc(ZXid xid, Snapshot snapshot);

/*
 * zxid_seen_by_all: returns whether xid has committed, every snapshot sees it
 * that may read rel, which is not temporary, and no crash can take it back,
 * since its commit record is flushed. Not in recovery.
 */
extern bool zxid_seen_by_all(Relation rel, ZXid xid);

/*
 * zvis_check_temp: checks that the MVCC snapshot sees the owner xid of a slot
 * with pointer ptr, if this is a slot of a temporary table whose undo has been
 * discarded; any other slot passes. Only an imported snapshot may fail to see
 * it: then raises ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE.
 */
extern void zvis_check_temp(UndoPtr ptr, ZXid xid, Snapshot snapshot);

/*
 * zxid_is_ours: returns whether xid (>= oldest) belongs to our top-level
 * transaction, aborted subtransactions included. (A chain headed by one of
 * these may have own changes below.)
 */
extern bool zxid_is_ours(ZXid xid);

/*
 * zsnapshot_is_mvcc: returns whether it is an MVCC snapshot, which
 * InvalidSnapshot is not.
 */
static inline bool
zsnapshot_is_mvcc(Snapshot snapshot)
{
	return snapshot != InvalidSnapshot && IsMVCCSnapshot(snapshot);
}

/*
 * zssi_needed: returns whether reads of rel under snapshot must be noted for
 * serializable transactions. Raises ERRCODE_T_R_SERIALIZATION_FAILURE if this
 * transaction cannot commit any more.
 */
extern bool zssi_needed(Relation rel, Snapshot snapshot);

#endif
