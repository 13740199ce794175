/*
 * undo/undo_request.h - the shared table of databases that want or have an undo
 * worker, and of what the workers roll back.
 *
 * Any backend asks for a worker; the launcher and the workers of discard/ use
 * the functions zwtable_*.
 *
 *	state		meaning							left by
 *	FREE		-								zworkers_wake, zwtable_want ->
 *												WANTED; a worker that comes so
 *												late that another one has been
 *												and gone -> RUNNING
 *	WANTED		a backend asked					launcher -> STARTING; a worker
 *												that comes late -> RUNNING
 *	STARTING	registered with the postmaster	worker -> RUNNING; launcher ->
 *												FREE if the worker has exited,
 *												-> WANTED if it never came
 *	RUNNING		a worker serves the database	worker -> FREE; -> WANTED if it
 *												is ended by force, yields, or
 *												there is a request
 */
#ifndef ZUNDO_UNDO_REQUEST_H
#define ZUNDO_UNDO_REQUEST_H

#include "common/zundo.h"

/* ---- for every process ---- */

/*
 * zworkers_shmem_size, zworkers_shmem_startup: return the size of the table,
 * and create it in shared memory or attach to it. Called by the shared memory
 * hooks, the latter with AddinShmemInitLock held.
 */
extern Size zworkers_shmem_size(void);
extern void zworkers_shmem_startup(void);

/*
 * Asks for a worker in database dboid. Cheap, raises no error; may be called
 * while a transaction aborts.
 */
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

/*
 * Notes how far this worker's rollback is; total and bytes are those of the
 * whole transaction, xid 0 means that it has ended. Does nothing in a process
 * that is no worker.
 */
extern void zworkers_report_progress(uint64 xid, uint64 records_done, uint64 records_total,
									 uint64 bytes);

/*
 * Copies the rollbacks in progress to out (space for max); returns their
 * number.
 */
extern int	zworkers_progress(ZRollbackProgress *out, int max);

/* ---- for the launcher and the workers ---- */

typedef enum ZWorkerState
{
	ZWORKER_FREE,
	ZWORKER_WANTED,
	ZWORKER_STARTING,
	ZWORKER_RUNNING
} ZWorkerState;

/*
 * Makes this process the one that requests wake, or ends that. Resets STARTING
 * entries to WANTED.
 */
extern void zwtable_set_launcher(bool is_launcher);

/*
 * Returns whether the launcher must look at every database again, because a
 * request found the table full or a worker gave up. Clears the mark.
 */
extern bool zwtable_rescan_wanted(void);

/*
 * Makes the entry of dboid WANTED for the launcher, unless it is in use
 * already. Returns false if no entry is free.
 */
extern bool zwtable_want(Oid dboid);

/*
 * Makes a WANTED database whose respite has passed STARTING and returns it;
 * InvalidOid if there is none.
 */
extern Oid	zwtable_next_wanted(void);

/* Returns whether any database is WANTED. */
extern bool zwtable_has_wanted(void);

/* Returns whether dboid's worker is still expected. */
extern bool zwtable_is_starting(Oid dboid);

/*
 * Makes a STARTING entry WANTED again, or FREE if give_up. Does nothing in
 * other states.
 */
extern void zwtable_start_failed(Oid dboid, bool give_up);

/*
 * Makes this process dboid's worker (RUNNING). Returns false if there is one
 * already, or if no entry is free. Called once per process.
 */
extern bool zwtable_claim(Oid dboid);

/*
 * Returns whether a worker was requested since the last call. Clears the mark.
 */
extern bool zwtable_take_request(void);

/*
 * Asks one running worker to leave, because there is no background worker slot
 * for another database: preferably a worker that can give nothing back, and of
 * those the one that has been there longest. Returns false if no worker has had
 * its turn yet.
 */
extern bool zwtable_ask_to_yield(void);

/*
 * Notes whether this worker's last cycle could give nothing back; returns
 * whether the worker must leave for another database's.
 */
extern bool zwtable_must_yield(bool pinned);

/* Makes the entry WANTED, with a respite. The process then exits. */
extern void zwtable_yield(void);

/*
 * Makes the entry FREE, or WANTED if there is a request. With unless_requested
 * and a request, changes nothing and returns false.
 */
extern bool zwtable_release(bool unless_requested);

/*
 * Makes the entry FREE whatever has been requested, because other databases
 * need it. If there was a request, or again is true, the launcher looks at all
 * databases again, as after a request that found the table full.
 */
extern void zwtable_give_up(bool again);

#endif
