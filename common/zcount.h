/*
 * common/zcount.h - what is counted of each database (zundo.stat_database), of
 * each table (zundo.stat_tables) and of each index (zundo.stat_indexes).
 *
 * A process counts in its own memory, which takes no lock. It adds that to
 * shared memory at the end of a transaction, but at most once a second, since
 * other processes store there, too; whenever its undo gets another extent; and
 * when it ends.
 */
#ifndef ZUNDO_ZCOUNT_H
#define ZUNDO_ZCOUNT_H

#include "datatype/timestamp.h"
#include "utils/rel.h"

/*
 * In the order of the columns of zundo.stat_get_database(). The first ones are
 * counted of tables, too: ZCOUNT_TABLE_KINDS.
 */
typedef enum ZCounter
{
	ZCOUNT_WRITTEN,				/* bytes of undo */
	ZCOUNT_ROLLED_BACK,			/* pages, by whomever */
	ZCOUNT_UPDATED,				/* rows, in place */
	ZCOUNT_MOVED,				/* rows, by updates; the only one of indexes */
	ZCOUNT_MOVED_FOR_SPACE,		/* those of them that no index made move */
	ZCOUNT_READ,				/* undo records, by readers of old versions */
	ZCOUNT_REBUILT,				/* old versions */
	ZCOUNT_IMAGES_MADE,			/* of pages, in undo */
	ZCOUNT_IMAGES_USED,
	ZCOUNT_MARKED,				/* pages visible to all, by readers */
	ZCOUNT_PURGED,				/* keys of zbtree indexes */
	ZCOUNT_DISCARDED,			/* bytes of undo */
	ZCOUNT_ROLLBACKS,			/* transactions of which all is undone */
	ZCOUNT_WAITED,				/* for space, by statements */
	ZCOUNT_REFUSED,				/* errors for lack of space */
	ZCOUNT_CANCELED,			/* statements that kept undo */
	ZCOUNT_CYCLES,				/* of the worker ... */
	ZCOUNT_CYCLE_TIME,			/* ... and their time in microseconds */
	ZCOUNT_UNCLEAR_ANSWERED,	/* by rule ANY-5 of mvcc/zany.c */
	ZCOUNT_UNCLEAR_REFUSED,
	ZCOUNT_TABLES_EVICTED,		/* for lack of places */
	ZCOUNT_KINDS,

	/* Not of databases; EXPLAIN shows them. */
	ZCOUNT_PAGES = ZCOUNT_KINDS,	/* of undo, by readers */
	ZCOUNT_STALE,				/* entries of zbtree indexes that scans passed */
	ZCOUNT_ALL
} ZCounter;

#define ZCOUNT_TABLE_KINDS		(ZCOUNT_PURGED + 1)
/* ... then ZCOUNT_READ and ZCOUNT_REBUILT once more, by index scans only */
#define ZCOUNT_TABLE_READ		ZCOUNT_TABLE_KINDS
#define ZCOUNT_TABLE_REBUILT	(ZCOUNT_TABLE_KINDS + 1)
#define ZCOUNT_TABLE_COLUMNS	(ZCOUNT_TABLE_KINDS + 2)

/* What this process has counted since it began. */
extern uint64 zcount_mine[ZCOUNT_ALL];

static inline void
zcount(ZCounter counter, uint64 n)
{
	zcount_mine[counter] += n;
}

/* Of which table something is counted. */
typedef struct ZCountScope
{
	Oid			relid;			/* 0 = none */
	bool		by_index;		/* to fetch rows for an index scan */
	bool		counted;		/* false: none, or a temporary table */
} ZCountScope;

extern ZCountScope zcount_scope;	/* what is being counted */
extern ZCountScope zcount_reader;	/* what zcount_read will count */

/*
 * zcount_table: says that what follows is counted of the table rel, too, until
 * the next call or the end of the transaction. Called before undo of a table is
 * written. zcount_enter_table: does that for a table of which the OID is known;
 * counted is false for temporary tables.
 *
 * zcount_reads: says it of what zcount_read counts. Called before a table is
 * read. Only notes it, since most reads need no undo.
 */
extern void zcount_enter_table(Oid relid, bool counted);

static inline void
zcount_table(Relation rel)
{
	if (unlikely(zcount_scope.relid != RelationGetRelid(rel) || zcount_scope.by_index))
		zcount_enter_table(RelationGetRelid(rel), !RelationUsesLocalBuffers(rel));
	zcount_reader = zcount_scope;
}

static inline void
zcount_reads(Relation rel, bool by_index)
{
	zcount_reader.relid = RelationGetRelid(rel);
	zcount_reader.by_index = by_index;
	zcount_reader.counted = !RelationUsesLocalBuffers(rel);
}

/* zcount_read: counts what a reader of undo does. */
extern void zcount_enter_reader(void);

static inline void
zcount_read(ZCounter counter, uint64 n)
{
	if (unlikely(zcount_scope.relid != zcount_reader.relid ||
				 zcount_scope.by_index != zcount_reader.by_index))
		zcount_enter_reader();
	zcount(counter, n);
}

/*
 * zcount_index_moved: counts that an index has made a row move. It has a place
 * among the tables. Called for no temporary table, after ZCOUNT_MOVED is
 * counted.
 */
extern void zcount_index_moved(Oid index);

/* The counters of one database, as they are shown. */
typedef struct ZCounts
{
	Oid			dboid;			/* 0 = of databases without a place */
	TimestampTz reset;			/* since when they count */
	uint64		peak;			/* most bytes of undo that were kept */
	uint64		n[ZCOUNT_KINDS];
} ZCounts;

/* The counters of one table or index, as they are shown. */
typedef struct ZTableCounts
{
	Oid			dboid;
	Oid			relid;
	uint64		n[ZCOUNT_TABLE_COLUMNS];
} ZTableCounts;

/*
 * zcount_flush: adds what is new to the counters of MyDatabaseId and of its
 * tables. Raises no error. Does nothing in a process without shared memory or a
 * database. zcount_table_flush does its part for tables.
 *
 * zcount_at_xact_end: does that if it was not done for a second, or if there is
 * a table that has perhaps no place yet (zcount_table_is_new), as long as the
 * transaction has its lock. Called when a transaction ends, after
 * zcount_enter_table.
 */
extern void zcount_flush(void);
extern void zcount_at_xact_end(void);
extern void zcount_table_flush(void);
extern bool zcount_table_is_new(void);

/*
 * zcount_statement_begins: called when the session begins a top-level
 * statement, COMMIT and the like excepted.
 *
 * zcount_last_statement: sets last[], an array of ZCOUNT_TABLE_KINDS, to what
 * this process has counted in the last top-level statement that did not call
 * this function.
 */
extern void zcount_statement_begins(void);
extern void zcount_last_statement(uint64 *last);

/* zcount_kept: notes how many bytes of undo the database keeps. */
extern void zcount_kept(uint64 bytes);

/* zcount_total: returns what the database's processes have counted. */
extern uint64 zcount_total(ZCounter counter);

/*
 * zcount_copy: copies the counters of all databases to out, a palloc'd array;
 * returns their number.
 */
extern int	zcount_copy(ZCounts **out);

/*
 * zcount_table_copy: does that for the tables of a database, or of all if it is
 * InvalidOid. zcount_table_load: gives a table of which nothing is counted yet
 * these counters, if there is a place.
 */
extern int	zcount_table_copy(Oid dboid, ZTableCounts **out);
extern void zcount_table_load(const ZTableCounts *counts);

/*
 * zcount_reset: sets all counters of a database and of its tables to 0.
 * zcount_table_drop: gives the place of a table back, or those of all tables of
 * the database.
 */
extern void zcount_reset(Oid dboid);
extern void zcount_table_drop(Oid dboid, Oid relid);

/*
 * zcount_drop: gives the places of a database that does not exist back, and
 * those of its tables.
 */
extern void zcount_drop(Oid dboid);

/*
 * zcount_shmem_size, zcount_shmem_startup: return the size of the counters,
 * and create them in shared memory or attach to them. Called by the shared
 * memory hooks.
 */
extern Size zcount_shmem_size(void);
extern void zcount_shmem_startup(void);
extern Size zcount_table_shmem_size(void);
extern void zcount_table_shmem_startup(void);

#endif
