/*
 * workers/workers.h - the launcher and the per-database undo workers.
 */
#ifndef ZUNDO_WORKERS_H
#define ZUNDO_WORKERS_H

#include "common/zundo.h"

/* Register the launcher; request shared memory; called from _PG_init and the shmem hooks. */
extern void zworkers_register(void);
extern Size zworkers_shmem_size(void);
extern void zworkers_shmem_startup(void);

/* zworkers_wake: ask for a worker in database dboid (any backend; cheap; no error). */
extern void zworkers_wake(Oid dboid);

/* Progress of a rollback in a worker, for zundo.stat_rollback. */
typedef struct ZRollbackProgress
{
	Oid			dboid;
	int			pid;
	uint64		xid;
	uint64		records_done;
	uint64		records_total;	/* 0 = not known */
	uint64		bytes;
} ZRollbackProgress;

extern void zworkers_report_progress(uint64 xid, uint64 records_done, uint64 records_total, uint64 bytes);
extern int	zworkers_progress(ZRollbackProgress *out, int max);

#endif
