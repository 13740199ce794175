/*
 * discard/discard.h - discarding undo: the discard pass, the freeze limit, and
 * the launcher of the workers.
 *
 * The order of a pass: discard/README.md.
 */
#ifndef ZUNDO_DISCARD_H
#define ZUNDO_DISCARD_H

#include "common/zundo.h"
#include "port/pg_crc32c.h"
#include "undo/undo.h"
#include "undo/undo_overflow.h"

/* Which aborted transactions a discard pass undoes on the way. */
typedef enum ZuUndoAborts
{
	ZU_UNDO_NONE,
	ZU_UNDO_SMALL,				/* those with few records */
	ZU_UNDO_ALL
} ZuUndoAborts;

typedef struct ZuDiscardStats
{
	uint64		bytes_discarded;
	uint64		bytes_left;
	uint32		transactions_discarded;
	uint32		aborts_pending;
	ZXid		oldest;
} ZuDiscardStats;

/*
 * zu_discard: makes one pass over all logs of this database: computes the
 * horizon, undoes aborted transactions as 'which' says, finds the prefix of
 * each log that can be discarded, publishes the new `oldest` and frees
 * extents. With every_log, all extents of an empty log are freed at once, also
 * those of a log of an idle session; otherwise the log keeps the last one for
 * a while. Fills *stats. Returns false, having done nothing, if another
 * process discards, or during recovery. Returns true, having done nothing, in
 * the transaction that has created zundo.undo_log. The caller is in a
 * transaction; with ZU_UNDO_SMALL or ZU_UNDO_ALL that transaction has no xid.
 * Its own snapshots count in the horizon. No buffer or LWLock held. Raises I/O
 * errors, ERRCODE_DATA_CORRUPTED, and ERRCODE_CONFIGURATION_LIMIT_EXCEEDED if
 * no set of logs is free for the database (zundo.max_databases).
 */
extern bool zu_discard(ZuUndoAborts which, bool every_log, ZuDiscardStats *stats);

/*
 * zu_oldest_is_horizon: returns whether `oldest` has reached the horizon, so
 * that a pass could not advance it now. Locks zundo.undo_log (AccessShareLock)
 * to the end of the transaction. No buffer or LWLock held.
 */
extern bool zu_oldest_is_horizon(void);

/*
 * zu_discard_by_worker: has this database's worker make a pass that begins
 * after the call, and waits for the end of that pass, at most a second. This
 * saves reading: the worker remembers what it has read, whereas a process that
 * discards for the first time reads the summaries in the map, and all undo
 * that has none (UNDO-52). Returns false if there is no worker or if the pass
 * has not finished by then. In a transaction, no LWLock held; a table lock may
 * be held, because the wait is bounded.
 */
extern bool zu_discard_by_worker(void);

/*
 * zu_freeze_limit: returns the largest xid that relfrozenxid may be set to
 * now, InvalidZXid if none is known.
 */
extern ZXid zu_freeze_limit(void);

/*
 * zheap_overflow_is_lost: returns whether storage has lost the write of the
 * table page that attached overflow page p (OVERFLOW-4 in discard/sweep.c);
 * then *relname is the table's name. Returns false also if the table is
 * locked, so that its page cannot be read. In a transaction, no buffer locked.
 */
extern bool zheap_overflow_is_lost(const ZuOverflowPage *p, const char **relname);

/* A sample of zundo.undo_history. */
typedef struct ZuSample
{
	TimestampTz time;
	uint64		kept;			/* most bytes since the sample before */
	uint64		written;		/* bytes, as zundo.stat_database has them */
	ZuKeeper	keeper;
	pg_crc32c	crc;
} ZuSample;

/*
 * zuhistory_read: sets *out to the samples of this database, oldest first,
 * palloc'd, and returns their number.
 */
extern int	zuhistory_read(ZuSample **out);

/* zuhistory_remove: removes the samples of a database that was dropped. */
extern void zuhistory_remove(Oid dboid);

/* zworkers_register: registers the launcher; called by _PG_init. */
extern void zworkers_register(void);

#endif
