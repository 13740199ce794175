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
 * locked, undo is attached. Raises ERRCODE_DATA_CORRUPTED, and an error if the
 * server has no memory for the lock.
 */
extern void zssi_before_read(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot);

/*
 * zssi_before_write: checks for predicate locks on the newest version at off,
 * which is live and about to be replaced. buf is locked exclusively. Raises
 * ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
extern void zssi_before_write(Relation rel, Buffer buf, OffsetNumber off);

/*
 * zssi_before_end: sets the marks of VIS-10. Called before our top-level
 * transaction commits or is prepared, while it can still fail. Raises an error
 * if the server has no memory for the locks. zssi_at_xact_end: forgets the
 * transaction.
 */
extern void zssi_before_end(void);
extern void zssi_at_xact_end(void);

/*
 * zssi_shmem_size, zssi_shmem_startup: return the size of the counters, and
 * create them in shared memory or attach to them. Called by the shared memory
 * hooks.
 */
extern Size zssi_shmem_size(void);
extern void zssi_shmem_startup(void);

/*
 * zvis_conflict_out: reports to SSI that a reader under snapshot did not see
 * the change by unseen; InvalidZXid: there was none. Raises
 * ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
extern void zvis_conflict_out(Relation rel, Snapshot snapshot, ZXid unseen);

#endif
