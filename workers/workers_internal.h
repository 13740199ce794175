/*
 * workers/workers_internal.h - the shared table of databases that want or have
 * an undo worker. Private to workers/.
 *
 *	state		meaning								left by
 *	FREE		-									request_worker -> WANTED
 *	WANTED		somebody asked						launcher -> STARTING
 *	STARTING	registered with the postmaster		worker -> RUNNING or FREE; launcher -> WANTED
 *													if it never came
 *	RUNNING		a worker serves the database		worker -> FREE; -> WANTED if it is ended by force or
 *													there is a request
 */
#ifndef ZUNDO_WORKERS_INTERNAL_H
#define ZUNDO_WORKERS_INTERNAL_H

#include "datatype/timestamp.h"
#include "storage/latch.h"
#include "workers/workers.h"

/* So long a database whose worker was ended by force is left alone: for CREATE DATABASE ... TEMPLATE and the like. */
#define ZWORKER_RESPITE_MS	3000

/*
 * How long a worker stays before it must yield its background worker slot to
 * another database: one that can give nothing back, and one that is at work.
 */
#define ZWORKER_TURN_MS			3000
#define ZWORKER_LONG_TURN_MS	30000

typedef enum ZWorkerState
{
	ZWORKER_FREE,
	ZWORKER_WANTED,
	ZWORKER_STARTING,
	ZWORKER_RUNNING
} ZWorkerState;

/* What a worker knows of undo that is kept, and has told. Zeroed at its start. */
typedef struct ZWatch
{
	ZXid		oldest;			/* zu_oldest() ... */
	TimestampTz since;			/* ... has been that since then */
	uint64		size_told;		/* MB that the log speaks of, 0 = none */
	uint64		age_told;		/* seconds */
} ZWatch;

/* zwatch_look: bytes of undo are kept; log a line if that is much, or for long (zundo.log_undo_size, zundo.log_undo_age). In a transaction. */
extern void zwatch_look(ZWatch *watch, uint64 bytes);

/* zworkers_force_settings: have this process leave clients' settings aside. Before it connects. */
extern void zworkers_force_settings(void);

/* zwtable_set_launcher: this process is (or no longer is) the one that requests wake. Resets STARTING entries. */
extern void zwtable_set_launcher(bool is_launcher);

/* zwtable_rescan_wanted: did a request find no free entry? Clears the mark. */
extern bool zwtable_rescan_wanted(void);

/*
 * zwtable_want: the launcher's own request for dboid; a running worker is left alone.
 * False if no entry is free.
 */
extern bool zwtable_want(Oid dboid);

/* zwtable_next_wanted: a database in state WANTED, not in its respite, becomes STARTING and is returned; InvalidOid if none. */
extern Oid	zwtable_next_wanted(void);

/* zwtable_has_wanted: is any database in state WANTED? */
extern bool zwtable_has_wanted(void);

/* zwtable_is_starting: is dboid's worker still expected? */
extern bool zwtable_is_starting(Oid dboid);

/* zwtable_start_failed: STARTING -> WANTED, or FREE if give_up. Nothing in other states. */
extern void zwtable_start_failed(Oid dboid, bool give_up);

/*
 * zwtable_claim: this process becomes dboid's worker (RUNNING). False if there is
 * one already, or no entry is free.
 */
extern bool zwtable_claim(Oid dboid);

/* zwtable_take_request: has somebody asked for a worker since the last call? Clears the mark. */
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
 * zwtable_release: RUNNING -> FREE, or WANTED if a request came in; with unless_requested, nothing
 * then, and false.
 */
extern bool zwtable_release(bool unless_requested);

/*
 * zwtable_give_up: RUNNING -> FREE whatever has been requested: others need the entry. again: somebody has work, so the
 * launcher is to come back to this database, as to those whose requests find the table full.
 */
extern void zwtable_give_up(bool again);

#endif
