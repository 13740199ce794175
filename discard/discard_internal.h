/*
 * discard/discard_internal.h - what the files of discard/ share; not included
 * from outside.
 */
#ifndef ZUNDO_DISCARD_INTERNAL_H
#define ZUNDO_DISCARD_INTERNAL_H

#include "discard/discard.h"
#include "undo/undo_entry.h"
#include "undo/undo_request.h"

/* ---- an aborted transaction ---- */

#define ZU_MAX_STALLED	8

/* A table whose pages the rollback of a transaction could not undo yet. */
typedef struct ZuStalledTable
{
	Oid			reloid;
	RelFileNumber relnumber;
	Oid			blocked;		/* the table that has the file now and could
								 * not be locked, or was damaged */
	UndoPtr		from;			/* no record before it needs the table */
	uint64		at;				/* number of the transaction's records before
								 * 'from' */
	int			failures;		/* errors so far; 0 = the table was locked */
	TimestampTz not_before;		/* time of the next attempt after an error;
								 * else 0 */
} ZuStalledTable;

/*
 * An aborted transaction whose undo has not been applied to every page yet. The
 * queue of its log keeps it from pass to pass, so that the rollback can note
 * which tables it could not lock and where their first record lies.
 */
typedef struct ZuAbort
{
	uint32		logno;
	UndoPtr		first;			/* its first record */
	ZXid		topxid;
	uint64		records;		/* of the whole transaction */
	uint64		bytes;
	bool		tried;			/* its undo has been read once */
	bool		rest_stalled;	/* tables that 'stalled' has no space for were
								 * left, too */
	int			nstalled;
	ZuStalledTable stalled[ZU_MAX_STALLED];
} ZuAbort;

/*
 * zrollback_transaction: undoes all changes of an aborted transaction or, if
 * the top-level transaction has committed, of its aborted subtransactions.
 * Returns true if no page of an existing table can carry an aborted record of
 * it any more (RESOLVE-1). Returns false if a table could not be locked, or
 * its rollback failed with an error, which is logged: such tables are noted in
 * *abort, and the next call reads no undo until one of them can be tried
 * again, and then from its first record on. In a transaction, with catalog
 * access, undo attached, no buffer locked. Locks each table conditionally
 * (ZU_ROLLBACK_LOCK) and only while its pages are undone; skips tables that do
 * not exist any more. Reports its progress.
 */
extern bool zrollback_transaction(ZuAbort *abort);

/*
 * zrollback_queue: if the last pass has left a rollback that waits for the lock
 * of a table, and writers wait for space, waits for that lock, at most QUEUE_MS
 * (zrollback_xact.c); it is kept to the end of the transaction. Returns whether
 * it has got a lock. Called by a worker before its pass, without a snapshot,
 * with undo attached.
 */
extern bool zrollback_queue(void);

/* ---- the queue of a log ---- */

/* A position in a log, with the sequence of its extent in the log. */
typedef struct Place
{
	uint64		sequence;
	UndoPtr		ptr;
} Place;

/*
 * One transaction of the queue, or several resolved ones that are neighbours in
 * the log.
 */
typedef struct Pending
{
	ZXid		min_top;
	ZXid		max_top;
	ZXid		max_xid;		/* subtransactions too */
	ZXid		hold;			/* youngest locker that its LOCKS records name
								 * (UNDO-7b); 0 = none */
	Place		first;
	Place		end;
	bool		resolved;		/* all ended; committed, or aborted and undone */
	uint32		count;			/* number of transactions */
	uint32		undone;			/* those of them that had aborted and are not
								 * counted yet (ZCOUNT_ROLLBACKS) */
	uint64		records;		/* of an unresolved one */
	uint64		bytes;
	ZuAbort    *abort;			/* set while it has aborted and is not undone
								 * on every page; else NULL */
	int			nxids;			/* subtransactions that wrote */
	int			xids_size;
	ZXid	   *xids;
	ZXid		last_xid;		/* xid of the record that was read last */
} Pending;

typedef struct LogQueue
{
	int			logno;
	uint64		discards;		/* ZuLog.discards as this process left it */
	UndoPtr		seen_insert;	/* the log's insert position in the last pass,
								 * and since when it has been that */
	TimestampTz seen_since;
	int			head;
	int			tail;			/* index after the last item */
	int			size;
	Pending    *items;
	bool		skipped;		/* some items are summaries taken from the map
								 * (UNDO-52) */
	bool		stuck;			/* what follows the scan's position cannot be
								 * read; the log is closed */
	bool		needless;		/* closed: nobody needs what is unread
								 * (UNDO-37) */
	ZXid		checked;		/* closed: kept for zu_damage_is_needless */
	ZuScan		scan;			/* stands at the end of what has been read */
} LogQueue;

/*
 * What this process remembers from one pass to the next. It is valid for one
 * attachment to one entry: a pass that finds another attachment drops it and
 * reads the logs again.
 */
typedef struct Discarder
{
	MemoryContext context;		/* NULL = nothing is remembered */
	ZuEntry    *entry;
	uint64		joined;			/* ZuBackend.joined when the logs were read */
	LogQueue  **queues;			/* by log number */
	ZuResolved *resolved;
} Discarder;

/* One pass over all logs of a database, and what it works on. */
typedef struct Pass
{
	Discarder  *mine;
	ZuEntry    *entry;
	ZXid		horizon;
	ZuUndoAborts which;
	bool		every_log;		/* empty logs lose their last extents at once */
	ZuDiscardStats *stats;
} Pass;

/* zpass_log: returns the log of a queue. */
static inline ZuLog *
zpass_log(const Pass *pass, const LogQueue *q)
{
	return &pass->entry->logs[q->logno];
}

/* zqueue_place: returns the position up to which the log has been read. */
static inline Place
zqueue_place(LogQueue *q)
{
	Place		p = {q->scan.extents[q->scan.current].sequence, zu_scan_position(&q->scan)};

	return p;
}

/* ---- queue.c ---- */

/*
 * zqueue_prepare: makes *mine ready for a pass over entry's logs: keeps what
 * is remembered of this attachment, else begins with empty memory.
 */
extern void zqueue_prepare(Discarder *mine, ZuEntry *entry);

/* zqueue_forget_all: frees everything that is remembered. */
extern void zqueue_forget_all(Discarder *mine);

/*
 * zqueue_read_all_if_closed: forgets everything, so that all is read again, if
 * extents were passed over and a log has been closed since.
 */
extern void zqueue_read_all_if_closed(Discarder *mine);

/*
 * zqueue_open: returns the queue of a log, whose insert position is 'insert'.
 * The queue begins anew at the log's discard pointer if another process has
 * moved that. Raises ERRCODE_DATA_CORRUPTED if the map has no extent for that
 * pointer.
 */
extern LogQueue *zqueue_open(Discarder *mine, int logno, UndoPtr insert);

/* zqueue_drop: frees the queue of a log, if the log has one. */
extern void zqueue_drop(Discarder *mine, int logno);

/*
 * zqueue_parse: adds the transactions of the log's records up to 'insert' to
 * the queue. Closes the log at a record that cannot be read. Raises
 * ERRCODE_DATA_CORRUPTED if the map has lost what is being read.
 */
extern void zqueue_parse(Discarder *mine, LogQueue *q, UndoPtr insert);

/* zqueue_free_details: frees what only an unresolved transaction needs. */
extern void zqueue_free_details(Pending *p);

/*
 * zqueue_count_undone: counts those transactions of p that had aborted, unless
 * it has done so before. Called when p is discarded, or the extent map says
 * that it is resolved, since another process that reads it resolves it, too.
 */
extern void zqueue_count_undone(Pending *p);

/* ---- resolve.c ---- */

/*
 * zresolve_queue: resolves the transactions of the queue that have ended,
 * undoing aborted ones first as the pass says, and merges resolved neighbours.
 */
extern void zresolve_queue(const Pass *pass, LogQueue *q);

/*
 * zresolve_mark_extents: marks in the map, in WAL, the extents of the log whose
 * undo is all resolved and must be kept (UNDO-52).
 */
extern void zresolve_mark_extents(const Pass *pass, LogQueue *q);

/* ---- free.c ---- */

/*
 * zfree_prefix: takes the resolved transactions below `oldest` off the queue's
 * head and publishes the log's new discard pointer. Notes for standbys what
 * comes below `oldest` (UNDO-19).
 */
extern void zfree_prefix(const Pass *pass, LogQueue *q, ZXid oldest);

/*
 * zfree_extents: frees the extents that lie before the discard pointers, and
 * all extents of logs that are idle, left over or given up. `oldest` has been
 * published (UNDO-7).
 */
extern void zfree_extents(const Pass *pass, ZXid oldest);

/* ---- freeze.c ---- */

/*
 * zfreeze_advance: moves the freeze limit as far as the horizon allows. Takes
 * the entry's spinlock.
 */
extern void zfreeze_advance(ZuEntry *entry);

/*
 * zfreeze_log_if_due: makes `oldest` and the freeze limit durable, in WAL, if
 * they are far enough ahead of what was logged last; relfrozenxid follows what
 * is durable.
 */
extern void zfreeze_log_if_due(ZuEntry *entry, ZXid oldest);

/* ---- sweep.c ---- */

/*
 * zheap_sweep_overflow: frees the slot overflow pages whose table page is
 * gone, and the undo extents that hold none any more. In a transaction on a
 * primary, undo attached, no buffer locked. Leaves no lock on any table.
 */
extern void zheap_sweep_overflow(void);

/* ---- keys.c ---- */

/*
 * zkeys_purge: takes items of this database from the queue of stale zbtree
 * entries and deletes the entries that are not needed (ZBTREE-8). Called in a
 * transaction on a primary, with undo attached, no buffer locked and no
 * snapshot. Never waits for a lock of a relation, and holds none on return.
 * Returns true if it took a chunk of items and put none of them back: then the
 * queue may have more that can be done at once. Raises the errors of
 * zbtree_purge.
 */
extern bool zkeys_purge(void);

/* ---- watch.c ---- */

/* What a worker has logged about kept undo. Zeroed when the worker starts. */
typedef struct ZWatch
{
	ZXid		oldest;			/* zu_oldest() in the last cycle ... */
	TimestampTz since;			/* ... and since when it has been that */
	uint64		size_told;		/* MB that were logged last, 0 = none */
	uint64		age_told;		/* seconds that were logged last, 0 = none */
	int			disk_told;		/* percentage that was logged last + 1, 0 =
								 * none */
} ZWatch;

/*
 * zwatch_look: logs a line if the undo that is kept has reached
 * zundo.log_undo_size or has been kept for zundo.log_undo_age, and again when
 * either has doubled, or if less of the disk is free than zundo.log_disk_free,
 * and again when that has halved. bytes: how much is kept. In a transaction.
 */
extern void zwatch_look(ZWatch *watch, uint64 bytes);

/* ---- history.c ---- */

/*
 * zuhistory_look: adds a sample to zundo.undo_history if it is time. bytes: how
 * much undo is kept. For the database's worker, in a transaction.
 */
extern void zuhistory_look(uint64 bytes);

/* ---- settings.c ---- */

/*
 * zworkers_force_settings: overrides settings that are meant for clients.
 * Called before the process connects to a database.
 */
extern void zworkers_force_settings(void);

#endif
