/*
 * zbtree/bound.h - the bound: which snapshots' scans may skip entries that are
 * marked as dead.
 */
#ifndef ZUNDO_ZBTREE_BOUND_H
#define ZUNDO_ZBTREE_BOUND_H

#include "common/zundo.h"
#include "utils/snapshot.h"

/*
 * zbound_enter: returns whether a scan with this MVCC snapshot may skip marked
 * entries on the leaf pages that it reads until it calls zbound_leave. Until
 * then no entry is marked with a bound above the snapshot's xmin (MARK-3). Sets
 * *entered to whether the caller must call zbound_leave: false if the result is
 * false, or if an outer call of this process has entered already.
 * zbound_leave: ends what zbound_enter began.
 */
extern bool zbound_enter(Snapshot snapshot, bool *entered);
extern void zbound_leave(void);

/*
 * zbound_agreed: returns the bound for marks, or InvalidZXid if there is none
 * yet, or if it is too far behind to be compared. All transactions before it
 * have ended, and their WAL is flushed (MARK-2).
 */
extern ZXid zbound_agreed(void);

/*
 * zbound_advance: advances the bound if that is possible. Does nothing in
 * recovery, within ADVANCE_MS of the last attempt, or while another process
 * tries. Waits for nothing.
 */
extern void zbound_advance(void);

/*
 * zbound_at_xact_end: calls zbound_leave if an error has kept that from being
 * called.
 * zbound_at_subxact_abort: the same for zbound_enter in the subtransaction of
 * this nest level, or in one within it.
 */
extern void zbound_at_xact_end(void);
extern void zbound_at_subxact_abort(int level);

/*
 * zbound_shmem_size, zbound_shmem_startup: return the size of the bounds, and
 * create them in shared memory, not known yet, or attach to them. Called by
 * the shared memory hooks.
 */
extern Size zbound_shmem_size(void);
extern void zbound_shmem_startup(void);

#endif
