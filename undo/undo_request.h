/*
 * undo/undo_request.h - the shared table of databases that want or have an undo
 * worker, and of what the workers roll back.
 *
 * Any backend asks for a worker; the launcher and the workers of discard/ use
 * the functions zwtable_*.
 *
 *	state		meaning							left by
 *	FREE		-								zworkers_wake -> WANTED
 *	WANTED		a backend asked					launcher -> STARTING
 *	STARTING	registered with the postmaster worker -> RUNNING or FREE;
 *												launcher -> WANTED if it never
 *												came
 *	RUNNING		a worker serves the database worker -> FREE; -> WANTED if it is
 *												ended by force or there is a
 *												request
 */
#ifndef ZUNDO_UNDO_REQUEST_H
#define ZUNDO_UNDO_REQUEST_H

#include "common/zundo.h"

/* ---- for every process ---- */

/* The shared memory of the table; called by zundo.c's hooks. */
extern Size zworkers_shmem_size(void);
extern void zworkers_shmem_startup(void);

/*
 * zworkers_wake: Asks for a worker in database dboid. Cheap, raises no error;
 * may be called while a transaction aborts.
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
 * zworkers_report_progress: Notes how far this worker's rollback is; total and
 * bytes are those of the whole transaction, xid 0 means that it has ended. Does
 * nothing in a process that is no worker.
 */
extern void zworkers_report_progress(uint64 xid, uint64 records_done, uint64 records_total,
									 uint64 bytes);

/*
 * zworkers_progress: Copies the rollbacks in progress to out (room for max);
 * returns their number.
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
 * zwtable_set_launcher: this process is (or no longer is) the one that
 * requests wake. Resets STARTING entries.
 */
extern void zwtable_set_launcher(bool is_launcher);

/* zwtable_rescan_wanted: did a request find no free entry? Clears the mark. */
extern bool zwtable_rescan_wanted(void);

/*
 * zwtable_want: the launcher's own request for dboid; a running worker is left
 * alone. False if no entry is free.
 */
extern bool zwtable_want(Oid dboid);

/*
 * zwtable_next_wanted: a database in state WANTED, not in its respite, becomes
 * STARTING and is returned; InvalidOid if none.
 */
extern Oid	zwtable_next_wanted(void);

/* zwtable_has_wanted: is any database in state WANTED? */
extern bool zwtable_has_wanted(void);

/* zwtable_is_starting: is dboid's worker still expected? */
extern bool zwtable_is_starting(Oid dboid);

/*
 * zwtable_start_failed: STARTING -> WANTED, or FREE if give_up. Nothing in
 * other states.
 */
extern void zwtable_start_failed(Oid dboid, bool give_up);

/*
 * zwtable_claim: this process becomes dboid's worker (RUNNING). False if there
 * is one already, or no entry is free.
 */
extern bool zwtable_claim(Oid dboid);

/*
 * zwtable_take_request: has somebody asked for a worker since the last call?
 * Clears the mark.
 */
extern bool zwtable_take_request(void);

/*
 * zwtable_ask_to_yield: has one running worker leave, for there is no slot for
 * another database's: preferably one that can give nothing back, of those the
 * one that has been there longest. False if none has had its turn yet.
 */
extern bool zwtable_ask_to_yield(void);

/*
 * zwtable_must_yield: tells whether this worker's last cycle could give nothing
 * back; returns whether the worker must leave for another database's.
 */
extern bool zwtable_must_yield(bool pinned);

/* zwtable_yield: RUNNING -> WANTED, with a respite. The process then exits. */
extern void zwtable_yield(void);

/*
 * zwtable_release: RUNNING -> FREE, or WANTED if a request came in; with
 * unless_requested, nothing then, and false.
 */
extern bool zwtable_release(bool unless_requested);

/*
 * zwtable_give_up: RUNNING -> FREE whatever has been requested: others need
 * the entry. again: somebody has work, so the launcher is to come back to this
 * database, as to those whose requests find the table full.
 */
extern void zwtable_give_up(bool again);

#endif
