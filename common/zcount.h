/*
 * common/zcount.h - what is counted of each database (zundo.stat_database).
 *
 * A process counts in its own memory. zcount_flush adds that to shared memory
 * at the end of each transaction, and whenever its undo gets another extent,
 * so counting takes no lock anywhere.
 */
#ifndef ZUNDO_ZCOUNT_H
#define ZUNDO_ZCOUNT_H

#include "datatype/timestamp.h"

/* In the order of the columns of zundo.stat_database. */
typedef enum ZCounter
{
	ZCOUNT_WRITTEN,				/* bytes of undo */
	ZCOUNT_DISCARDED,			/* bytes of undo */
	ZCOUNT_ROLLED_BACK,			/* pages, by whomever */
	ZCOUNT_WAITED,				/* for space, by statements */
	ZCOUNT_REFUSED,				/* errors for lack of space */
	ZCOUNT_CANCELED,			/* statements that kept undo */
	ZCOUNT_UPDATED,				/* rows, in place */
	ZCOUNT_MOVED,				/* rows, by updates */
	ZCOUNT_READ,				/* undo records, by readers of old versions */
	ZCOUNT_REBUILT,				/* old versions */
	ZCOUNT_IMAGES_MADE,			/* of pages, in undo */
	ZCOUNT_IMAGES_USED,
	ZCOUNT_PURGED,				/* keys of zbtree indexes */
	ZCOUNT_CYCLES,				/* of the worker ... */
	ZCOUNT_CYCLE_TIME,			/* ... and their time in microseconds */
	ZCOUNT_UNCLEAR_ANSWERED,	/* by rule ANY-5 of mvcc/zany.c */
	ZCOUNT_UNCLEAR_REFUSED,
	ZCOUNT_KINDS,

	/* Not of databases; EXPLAIN shows them. */
	ZCOUNT_PAGES = ZCOUNT_KINDS,	/* of undo, by readers */
	ZCOUNT_STALE,				/* entries of zbtree indexes that scans passed */
	ZCOUNT_ALL
} ZCounter;

/* What this process has counted since it began. */
extern uint64 zcount_mine[ZCOUNT_ALL];

static inline void
zcount(ZCounter counter, uint64 n)
{
	zcount_mine[counter] += n;
}

/* The counters of one database, as they are shown. */
typedef struct ZCounts
{
	Oid			dboid;			/* 0 = of databases without a place */
	TimestampTz reset;			/* since when they count */
	uint64		peak;			/* most bytes of undo that were kept */
	uint64		n[ZCOUNT_KINDS];
} ZCounts;

/*
 * zcount_flush: adds what is new to the counters of MyDatabaseId. Raises no
 * error. Does nothing in a process without shared memory or a database.
 */
extern void zcount_flush(void);

/*
 * zcount_statement_begins: called when the session begins a top-level
 * statement, COMMIT and the like excepted.
 *
 * zcount_last_statement: returns what this process has counted in the last
 * top-level statement that did not call this function: an array of
 * ZCOUNT_KINDS.
 */
extern void zcount_statement_begins(void);
extern const uint64 *zcount_last_statement(void);

/* zcount_kept: notes how many bytes of undo the database keeps. */
extern void zcount_kept(uint64 bytes);

/* zcount_total: returns what the database's processes have counted. */
extern uint64 zcount_total(ZCounter counter);

/*
 * zcount_copy: copies the counters of all databases to out, a palloc'd array;
 * returns their number.
 */
extern int	zcount_copy(ZCounts **out);

/* zcount_reset: sets all counters of a database to 0. */
extern void zcount_reset(Oid dboid);

/* zcount_drop: gives the place of a database that does not exist back. */
extern void zcount_drop(Oid dboid);

/*
 * zcount_shmem_size, zcount_shmem_startup: return the size of the counters,
 * and create them in shared memory or attach to them. Called by the shared
 * memory hooks.
 */
extern Size zcount_shmem_size(void);
extern void zcount_shmem_startup(void);

#endif
