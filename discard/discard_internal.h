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

/* A table that the rollback of a transaction has left. */
typedef struct ZuStalledTable
{
	Oid			reloid;
	RelFileNumber relnumber;
	UndoPtr		from;			/* no record before it needs the table */
	uint64		at;				/* number of the transaction's records before
								 * 'from' */
	int			failures;		/* errors so far; 0 = it was locked */
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
	bool		rest_stalled;	/* more tables than 'stalled' holds were
								 * locked */
	int			nstalled;
	ZuStalledTable stalled[ZU_MAX_STALLED];
} ZuAbort;

/*
 * zrollback_transaction: Undoes everything of an aborted transaction, or, if
 * the top-level transaction has committed, of its aborted subtransactions.
 * In a transaction, with catalog access, undo attached, no buffer locked.
 * Locks each table conditionally (RowExclusiveLock); a table that is gone is
 * skipped. Returns false if some table could not be locked: it is noted in
 * *abort, and the next call reads no undo until one of the noted tables can be
 * locked, and then from its first record on. Reports its progress.
 */
extern bool zrollback_transaction(ZuAbort *abort);

/* ---- the queue of a log ---- */

/* A place in a log: where a transaction's records end. */
typedef struct Place
{
	uint64		sequence;
	UndoPtr		ptr;
} Place;

/*
 * One transaction of the queue, or several settled ones that follow each other.
 */
typedef struct Pending
{
	ZXid		min_top;
	ZXid		max_top;
	ZXid		max_xid;		/* subtransactions too */
	ZXid		hold;			/* youngest locker that its LOCKS records name
								 * (UNDO-28); 0 = none */
	Place		first;
	Place		end;
	bool		settled;		/* all ended; committed, or aborted and undone */
	uint32		count;			/* transactions */
	uint64		records;		/* of an unsettled one */
	uint64		bytes;
	ZuAbort    *abort;			/* it has aborted and is not undone yet; else
								 * NULL */
	int			nxids;			/* subtransactions that wrote */
	int			xids_size;
	ZXid	   *xids;
	ZXid		last_xid;
} Pending;

typedef struct LogQueue
{
	int			logno;
	uint64		discards;		/* ZuLog.discards as this process left it */
	UndoPtr		seen_insert;	/* the log's insert position, and since when
								 * it is that */
	TimestampTz seen_since;
	int			head;
	int			tail;			/* behind the last */
	int			size;
	Pending    *items;
	bool		skipped;		/* it has items that were taken from the map */
	bool		stuck;			/* what follows cannot be read; the log is
								 * closed */
	bool		needless;		/* ... and nobody needs it */
	ZXid		checked;		/* see zu_damage_is_needless */
	ZuScan		scan;			/* at the end */
} LogQueue;

/*
 * What this process remembers from one pass to the next. It belongs to one
 * attachment to one entry: a pass that finds another one begins anew.
 */
typedef struct Discarder
{
	MemoryContext context;		/* NULL = nothing is remembered */
	ZuEntry    *entry;
	uint64		joined;			/* ZuBackend.joined when it was read */
	LogQueue  **queues;			/* by log number */
	ZuResolved *resolved;
} Discarder;

/* One pass. */
typedef struct Pass
{
	Discarder  *mine;
	ZuEntry    *entry;
	ZXid		horizon;
	ZuUndoAborts which;
	ZuDiscardStats *stats;
} Pass;

/* zpass_log: Returns the log of a queue. */
static inline ZuLog *
zpass_log(const Pass *pass, const LogQueue *q)
{
	return &pass->entry->logs[q->logno];
}

/* zqueue_place: Returns the place up to which the log has been read. */
static inline Place
zqueue_place(LogQueue *q)
{
	Place		p = {q->scan.extents[q->scan.current].sequence, zu_scan_position(&q->scan)};

	return p;
}

/* ---- queue.c ---- */

/*
 * zqueue_prepare: Has the memory of entry's logs, empty unless it is this
 * attachment's.
 */
extern void zqueue_prepare(Discarder *mine, ZuEntry *entry);

/* zqueue_forget_all: Frees everything that is remembered. */
extern void zqueue_forget_all(Discarder *mine);

/*
 * zqueue_read_all_if_closed: Forgets everything if a log has been closed since
 * extents were passed over, so that all is read anew.
 */
extern void zqueue_read_all_if_closed(Discarder *mine);

/*
 * zqueue_open: Returns the queue of a log, whose insert position is 'insert'.
 * It begins anew at the log's discard pointer if another process moved that.
 */
extern LogQueue *zqueue_open(Discarder *mine, int logno, UndoPtr insert);

/* zqueue_drop: Frees the queue of a log, if it has one. */
extern void zqueue_drop(Discarder *mine, int logno);

/* zqueue_parse: Takes the log's records up to 'insert' into the queue. */
extern void zqueue_parse(Discarder *mine, LogQueue *q, UndoPtr insert);

/* zqueue_free_details: Frees what only an unsettled transaction needs. */
extern void zqueue_free_details(Pending *p);

/* ---- settle.c ---- */

/*
 * zsettle_queue: Finds out which transactions of the queue have ended, has
 * aborted ones undone as the pass says, and merges settled neighbours.
 */
extern void zsettle_queue(const Pass *pass, LogQueue *q);

/*
 * zsettle_mark_extents: Makes it known in the map which extents of the log hold
 * nothing but settled undo that must be kept (UNDO-52).
 */
extern void zsettle_mark_extents(const Pass *pass, LogQueue *q);

/* ---- free.c ---- */

/*
 * zfree_prefix: Takes the settled transactions below `oldest` off the queue's
 * head and publishes the log's new discard pointer.
 */
extern void zfree_prefix(const Pass *pass, LogQueue *q, ZXid oldest);

/*
 * zfree_extents: Frees the extents that lie before the discard pointers, and
 * all extents of logs that are idle, left over or given up. `oldest` has been
 * published (UNDO-7).
 */
extern void zfree_extents(const Pass *pass, ZXid oldest);

/* ---- freeze.c ---- */

/* zfreeze_advance: Moves the freeze limit as far as the horizon allows. */
extern void zfreeze_advance(ZuEntry *entry);

/*
 * zfreeze_log_if_due: Makes `oldest` and the freeze limit durable now and then,
 * so that relfrozenxid can follow.
 */
extern void zfreeze_log_if_due(ZuEntry *entry, ZXid oldest);

/* ---- sweep.c ---- */

/*
 * zheap_sweep_overflow: Frees the slot overflow pages whose table page is gone,
 * and the undo extents that hold none any more. In a transaction on a primary,
 * undo attached, no buffer locked. Leaves no lock on any table.
 */
extern void zheap_sweep_overflow(void);

/* ---- watch.c ---- */

/*
 * What a worker knows of undo that is kept, and has logged. Zeroed at its
 * start.
 */
typedef struct ZWatch
{
	ZXid		oldest;			/* zu_oldest() ... */
	TimestampTz since;			/* ... has been that since then */
	uint64		size_told;		/* MB that the log speaks of, 0 = none */
	uint64		age_told;		/* seconds */
} ZWatch;

/*
 * zwatch_look: Logs a line if the bytes of undo that are kept are many, or have
 * been kept for long (zundo.log_undo_size, zundo.log_undo_age). In a
 * transaction.
 */
extern void zwatch_look(ZWatch *watch, uint64 bytes);

/* ---- settings.c ---- */

/*
 * zworkers_force_settings: Sets clients' settings aside; before the process
 * connects.
 */
extern void zworkers_force_settings(void);

#endif
