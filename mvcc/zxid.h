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
 * zxid_status: status of an xid that was not read from a page. zxid_status_at:
 * of an xid from a page: oldest is the page's zpage_oldest(), loaded under its
 * lock.
 */
extern ZXidStatus zxid_status(ZXid xid);
extern ZXidStatus zxid_status_at(ZXid xid, ZXid oldest);

/*
 * zxid_visible_mvcc: is xid (>= oldest, not own) committed as of the MVCC
 * snapshot?
 */
extern bool zxid_visible_mvcc(ZXid xid, Snapshot snapshot);

/*
 * zvis_check_temp: ptr and xid (< oldest) are those of a page's slot. If it is
 * one of a temporary table, whose undo has gone, the MVCC snapshot must see
 * xid; only an imported snapshot may not. Error
 * ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE.
 */
extern void zvis_check_temp(UndoPtr ptr, ZXid xid, Snapshot snapshot);

/*
 * zxid_is_ours: does xid (>= oldest) belong to our top-level transaction,
 * aborted subtransactions included? (A chain headed by one of these may have
 * own changes below.)
 */
extern bool zxid_is_ours(ZXid xid);

/* zsnapshot_is_mvcc: Is it an MVCC snapshot? InvalidSnapshot is none. */
static inline bool
zsnapshot_is_mvcc(Snapshot snapshot)
{
	return snapshot != InvalidSnapshot && IsMVCCSnapshot(snapshot);
}

/*
 * zssi_needed: must reads of rel under snapshot be noted for serializable
 * transactions?
 */
extern bool zssi_needed(Relation rel, Snapshot snapshot);

#endif
