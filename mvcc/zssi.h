/*
 * mvcc/zssi.h - predicate locks of serializable transactions.
 */
#ifndef ZUNDO_ZSSI_H
#define ZUNDO_ZSSI_H

#include "mvcc/zxid.h"

/*
 * zssi_before_read: takes the predicate lock on the version of (buf, off) that
 * the MVCC snapshot sees and that the caller is about to read. The caller
 * reports the changes that the snapshot does not see. buf is pinned and not
 * locked, undo is attached.
 */
extern void zssi_before_read(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot);

/*
 * zssi_before_write: checks for predicate locks on the newest version at off,
 * which is live and about to be replaced. buf is locked exclusively. Raises
 * ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
extern void zssi_before_write(Relation rel, Buffer buf, OffsetNumber off);

/*
 * zvis_conflict_out: reports to SSI that a reader under snapshot did not see
 * the change by unseen; InvalidZXid: there was none. Raises
 * ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
extern void zvis_conflict_out(Relation rel, Snapshot snapshot, ZXid unseen);

#endif
