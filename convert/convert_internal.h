/*
 * convert/convert_internal.h - what the files of convert/ share.
 */
#ifndef ZUNDO_CONVERT_INTERNAL_H
#define ZUNDO_CONVERT_INTERNAL_H

#include "common/zundo.h"
#include "lib/stringinfo.h"
#include "nodes/parsenodes.h"
#include "storage/block.h"
#include "storage/lockdefs.h"
#include "utils/rel.h"
#include "utils/tuplestore.h"

/*
 * What a refresh finds at most before the exchange is tried, and what the last
 * refresh deals with at most, while the table is locked exclusively; twice as
 * much after each time that there was more: a session that commits such a lot
 * again and again lets us have the lock only then.
 */
#define ZCONVERT_FEW_NOTES 500
#define ZCONVERT_MANY_NOTES 2000

/* A conversion in progress. */
typedef struct ZConversion
{
	MemoryContext context;		/* of this struct's lists and strings */
	MemoryContext scratch;		/* of a transaction */
	Oid			table;
	Oid			method;			/* the new access method */
	int			lock_wait;		/* ms that others may wait behind us */
	int			step;			/* blocks that are copied in one transaction */
	int			pause;			/* ms after it */
	Oid			owner;
	Oid			copy;
	Oid			log;
	LockRelId	copy_lock;		/* locked by the session */
	LockRelId	log_lock;
	BlockNumber nblocks;		/* of the table when the trigger had been made */
	List	   *keys;			/* columns of the key, integers */
	List	   *operators;		/* their equality */
	List	   *collations;		/* InvalidOid: that of the column */
	List	   *indexes;		/* of the table */
	List	   *copies;			/* of the copy, in the same order */
	Tuplestorestate *notes;		/* what a refresh deals with */
	int64		many;			/* what the last one deals with at most */
	char	   *shape;			/* of the table (CONVERT-4) */
	char	   *copy_shape;
	char	   *log_shape;
	StringInfo	refusals;		/* NULL: a refusal is an error; else its
								 * sentences are appended */
} ZConversion;

/* What zconvert_leave_owner restores. */
typedef struct ZConvertCaller
{
	Oid			user;
	int			context;
	int			level;
} ZConvertCaller;

/* The schema of the extension, in which copies and logs are. */
extern Oid	zconvert_schema(void);

/*
 * zconvert_make_trigger: creates the trigger that notes the keys of changed
 * rows of rel in the log: its columns keys, integers. Returns its OID. The
 * caller holds ShareRowExclusiveLock on rel.
 *
 * zconvert_find_trigger: returns the OID of such a trigger of the table, or
 * InvalidOid, and whether it fires always and which transaction wrote its row
 * of the catalog.
 */
extern Oid	zconvert_make_trigger(Relation rel, Oid log, List *keys);
extern Oid	zconvert_find_trigger(Oid table, char *fires, TransactionId *xmin);

/*
 * zconvert_exchange: exchanges the files, access methods and TOAST tables of a
 * table and its copy, and the files of their indexes, which are in the same
 * order. The caller holds AccessExclusiveLock on all of them, and on the TOAST
 * tables with their indexes (CONVERT-2).
 *
 * zconvert_note_exchange: notes that the current transaction does so, for
 * zconvert_check_query.
 */
extern void zconvert_exchange(Oid table, Oid copy, List *indexes, List *copies);
extern void zconvert_note_exchange(Oid table);

/* ---- locks (lock.c) ---- */

/*
 * zconvert_sleep: sleeps for some milliseconds, unless canceled.
 *
 * zconvert_sleep_before_retry: sleeps for a random time before another attempt;
 * the more attempts have failed, the longer, up to 2 seconds.
 *
 * zconvert_wait_for_lock: the same, if that was for a lock of the table. Raises
 * a NOTICE after 10, 110 and so on attempts.
 *
 * zconvert_try_lock: asks for the lock of the table, and before it of the copy,
 * if one is given; AccessExclusiveLock is also that of their indexes and TOAST
 * tables. Waits for each of the tables' locks for lock_wait ms at most, while
 * others queue behind us, and not for GRANT, which changes the table's row of
 * pg_class. Returns whether all are held now, else none is. Raises
 * ERRCODE_UNDEFINED_TABLE if one of the tables has been dropped.
 *
 * zconvert_lock: asks again until the table is locked.
 *
 * zconvert_is_awaited: returns whether another process that holds a lock of the
 * table waits for one of the copy or log. We hold these to the end and do not
 * wait for the table's, so the server would not find the deadlock.
 *
 * zconvert_report_missing: raises ERRCODE_UNDEFINED_TABLE.
 */
extern void zconvert_sleep(int ms);
extern void zconvert_sleep_before_retry(int attempts);
extern void zconvert_wait_for_lock(Oid table, int attempts);
extern bool zconvert_try_lock(Oid table, Oid copy, LOCKMODE mode, int lock_wait);
extern void zconvert_lock(Oid table, LOCKMODE mode, int lock_wait);
extern bool zconvert_is_awaited(Oid table, Oid copy, Oid log);
extern void zconvert_report_missing(Oid table) zc_noreturn;

/* ---- commands of the owner (copy.c) ---- */

/*
 * zconvert_set_local: sets a parameter until the GUC nest level ends.
 *
 * zconvert_become_owner: continues as the owner of the table. Functions that a
 * table's owner has written, which the planner may call as well, never run with
 * other rights. zconvert_leave_owner: ends that; an error does so, too.
 *
 * zconvert_copy_blocks: copies the rows of a range of blocks, as the active
 * snapshot sees them.
 *
 * zconvert_refresh: makes the copy what the table is to the active snapshot
 * (CONVERT-1), if all rows have been copied or noted. Returns the number of
 * notes. The last one finds the rows by an index, leaves the log as it is, and
 * does nothing if it returns more than c->many.
 *
 * zconvert_index_statement: returns the statement that creates on the copy what
 * the index is on the table: the same expressions, as trees, but no constraint.
 * UNIQUE of an exclusion constraint (WITHOUT OVERLAPS) is not a property of its
 * index.
 */
extern void zconvert_set_local(const char *name, const char *value);
extern ZConvertCaller zconvert_become_owner(const ZConversion *c);
extern void zconvert_leave_owner(const ZConvertCaller *caller);
extern void zconvert_copy_blocks(ZConversion *c, BlockNumber first, BlockNumber end);
extern uint64 zconvert_refresh(ZConversion *c, bool last);
extern IndexStmt *zconvert_index_statement(ZConversion *c, Oid index);

/* ---- checks (check.c) ---- */

/*
 * zconvert_check_table: raises an error if the table is not the user's, or
 * refuses it (see 'refusals') if it is of a kind that is not converted online.
 *
 * zconvert_check_contents: refuses a table, which zconvert_check_table has
 * passed and the caller has opened, for what has to be read from it. Sets
 * owner, keys, operators and indexes.
 */
extern void zconvert_check_table(const ZConversion *c);
extern void zconvert_check_contents(ZConversion *c, Relation rel);

#endif
