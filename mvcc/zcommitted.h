/*
 * mvcc/zcommitted.h - transactions that are known to have committed.
 */
#ifndef ZUNDO_ZCOMMITTED_H
#define ZUNDO_ZCOMMITTED_H

#include "common/zundo.h"

/*
 * zcommitted_known: returns whether xid is noted as committed. If so, it is
 * not in progress either. Returns false for all others, of which nothing is
 * known here.
 */
extern bool zcommitted_known(ZXid xid);

/*
 * zcommitted_note: notes that xid has committed and has left the server's
 * array of running transactions (VIS-9). No lock needed, no errors.
 */
extern void zcommitted_note(ZXid xid);

/*
 * zcommitted_at_commit: notes for this process alone that its transaction has
 * committed. Called at XACT_EVENT_COMMIT.
 */
extern void zcommitted_at_commit(void);

/*
 * zcommitted_shmem_size, zcommitted_shmem_startup: return the size of the
 * table, and create it in shared memory, with nothing known, or attach to it.
 * Called by the shared memory hooks.
 */
extern Size zcommitted_shmem_size(void);
extern void zcommitted_shmem_startup(void);

#endif
