/*
 * undo/undo_entry.h - the shared state of a database's undo, and the mechanism
 * by which discard/ reads logs and gives extents back.
 *
 * For undo/ and discard/ only: everything else uses undo.h.
 */
#ifndef ZUNDO_UNDO_ENTRY_H
#define ZUNDO_UNDO_ENTRY_H

#include "undo/undo_format.h"
#include "undo/damage/undo_resolved.h"

#include "port/atomics.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

/* An extent of a log, as its map entry describes it. */
typedef struct ZuExtent
{
	uint64		sequence;
	uint32		extent;			/* number */
	uint32		generation;
	uint32		logno;
	bool		resolved;		/* this and the following: as in ZuMapEntry */
	uint32		end;
	ZXid		oldest_top;
	ZXid		newest;
} ZuExtent;

/* ---- shared state ---- */

/*
 * One log of a database. After it was loaded its fields are written as
 * follows. The owner writes 'insert', 'insert_sequence', 'idle_since' and
 * 'sealed', and 'discard' and 'discard_sequence' when the log gets its first
 * extent. The process that holds the discarder flag writes 'discard*'. With
 * the alloc lock held, it also resets a log without an owner whose last
 * extents are freed. 'nextents' and 'last_sequence' change under the alloc
 * lock. 'owner' is changed by the owner, by a process that takes the log from
 * it (by compare-and-exchange and with the alloc lock held, UNDO-50), or by
 * one that attaches a log without an owner (with the alloc lock held); 'ahead'
 * likewise. damage/undo_damage.c has the rules for 'closed', 'hold',
 * 'unread_end' and 'excused'.
 */
typedef struct ZuLog
{
	pg_atomic_uint64 insert;	/* UndoPtr; 0 = the log has no extent */
	pg_atomic_uint64 insert_sequence;
	pg_atomic_uint64 discard;	/* UndoPtr, never past insert */
	pg_atomic_uint64 discard_sequence;
	pg_atomic_uint64 discards;	/* how often any process has moved the discard
								 * pointer */
	pg_atomic_uint32 nextents;
	pg_atomic_uint32 owner;		/* pid of the backend that writes it, perhaps
								 * with ZU_LOG_HELD; 0 = unattached */
	ZuExtent	ahead;			/* of a log that is not held: allocated, not
								 * entered; generation 0 = none; the holder's */
	uint64		last_sequence;	/* of its newest extent */
	bool		sealed;			/* loaded from its pages: its next owner goes
								 * on in a fresh extent (UNDO-36) */
	bool		closed;			/* something in it cannot be read: not
								 * attached again, keeps `oldest` back
								 * (UNDO-37) */
	uint64		hold;			/* closed: `oldest` when the damage was found;
								 * no unread record is older */
	uint64		unread_end;		/* closed: the next xid at a moment when no
								 * owner could write to it any more, 0 = not
								 * yet known */
	bool		excused;		/* closed: no page has a change of a
								 * transaction for which the lost part may
								 * have been needed */
	pg_atomic_uint64 idle_since;	/* TimestampTz: when the owner's last
									 * transaction ended, or the owner left */
	/* so that two owners never write to one cache line, or a pair of them */
	char		pad[112];
} ZuLog;

StaticAssertDecl(sizeof(ZuLog) % PG_CACHE_LINE_SIZE == 0, "the padding of ZuLog");

/*
 * Set in ZuLog.owner while the owner is in a transaction that may write.
 * Without it the log of an idle session may be taken from that session
 * (UNDO-50).
 */
#define ZU_LOG_HELD		0x80000000U

/* Returns the process that a log is attached to, 0 if none. */
static inline int
zu_log_pid(ZuLog *log)
{
	return (int) (pg_atomic_read_u32(&log->owner) & ~ZU_LOG_HELD);
}

typedef enum ZuEntryState
{
	ZU_ENTRY_EMPTY,				/* nothing loaded: no visibility test */
	ZU_ENTRY_STANDBY,			/* oldest and limit are valid in recovery */
	ZU_ENTRY_VALID,				/* and after it: the meta page is mended */
	ZU_ENTRY_LOGS				/* logs too: may be written */
} ZuEntryState;

/* The undo of one database. An entry exists while a session is attached. */
typedef struct ZuEntry
{
	/* the key and refcount are protected by the table lock */
	Oid			dboid;			/* 0 = slot is unused */
	RelFileNumber relnumber;
	int			refcount;

	pg_atomic_uint32 state;		/* ZuEntryState; grows under the load lock */
	pg_atomic_uint64 oldest;	/* monotone */
	pg_atomic_uint32 limit;		/* extents that exist; lowered only by
								 * zu_lower_limit */
	pg_atomic_uint32 used;		/* extents not free; alloc lock */
	pg_atomic_uint32 hint;		/* no free extent below; alloc lock */
	pg_atomic_uint32 overflow_extents;	/* in state OVERFLOW; alloc lock */
	pg_atomic_uint32 overflow_hint; /* block from which to look for a free
									 * overflow page; alloc lock */
	ZuDoubt		doubt;			/* written at load, before `oldest` moves, and
								 * by redo */
	pg_atomic_uint64 horizon;	/* latest horizon (H in UNDO-18), monotone */
	ZXid		chosen;			/* the last pass publishes it, or has;
								 * spinlock of the marks in undo_pin.c */
	ZXid		pruned;			/* chunks that were deleted before it may have
								 * been pruned (zu_unheld); the same lock */
	pg_atomic_uint64 durable;	/* `oldest` in the meta page, monotone */
	pg_atomic_uint64 conflict;	/* newest xid that has come below `oldest` and
								 * is not in a DISCARD record yet; 0 = none
								 * (UNDO-19) */
	pg_atomic_uint32 discarder; /* pid of the process that discards, 0 = none */
	pg_atomic_uint32 truncator; /* pid of the process that cuts the file off,
								 * 0 = none; set under the alloc lock */
	ConditionVariable truncated;	/* when truncator becomes 0 */
	pg_atomic_uint32 worker;	/* pid of the database's worker, 0 = none */
	pg_atomic_uint32 passes_begun;	/* discard passes; written by the
									 * discarder */
	pg_atomic_uint32 passes_done;	/* number of the last one that was
									 * completed */

	slock_t		mutex;			/* protects what follows */
	ZuFreeze	freeze;			/* written to the meta page with each DISCARD
								 * record */
	ZuFreeze	freeze_logged;	/* what the meta page has */
	TimestampTz logged;			/* time of the last DISCARD record */
	int			nholds;			/* what held `oldest` back in the last pass */
	ZuHold		holds[ZU_MAX_HOLDS];

	ZuLog	   *logs;			/* in state LOGS: zu_nlogs() of them */
} ZuEntry;

/*
 * zu_entry_has: returns whether the entry has reached this state. If so, what
 * was loaded before may be read after the call: the state is read without a
 * lock, and was written behind a barrier.
 */
static inline bool
zu_entry_has(ZuEntry *entry, ZuEntryState state)
{
	if (pg_atomic_read_u32(&entry->state) < (uint32) state)
		return false;
	pg_read_barrier();
	return true;
}

/* The logs of one database that is written. */
typedef struct ZuLogSet
{
	ZuEntry    *owner;			/* NULL = free; table lock */
	char		pad[PG_CACHE_LINE_SIZE - sizeof(ZuEntry *)];
	ZuLog		logs[FLEXIBLE_ARRAY_MEMBER];
} ZuLogSet;

/* This backend's view of the current database. */
typedef struct ZuBackend
{
	ZuEntry    *entry;			/* NULL = not attached */
	bool		stale;			/* look the relation up again */
	bool		locked;			/* AccessShareLock taken in this transaction,
								 * or not needed */
	bool		watched;		/* the relcache callback is registered */
	uint64		joined;			/* how often this backend has joined an entry */
	Oid			reloid;
	RelFileLocator locator;
} ZuBackend;

extern ZuBackend zu_my;

/*
 * Finds or creates the entry of the relation and counts this backend in; there
 * always is space. zu_leave_entry counts it out again.
 */
extern void zu_join_entry(RelFileLocator locator);
extern void zu_leave_entry(void);

/*
 * Returns whether the shared memory exists, that is, whether the library was
 * preloaded.
 */
extern bool zu_shmem_ready(void);

/*
 * zu_my_fence: returns the lock that this process holds, shared, while it has
 * pages of any undo log pinned that might be cut off. Each process has its own:
 * so readers share no memory that they write to.
 */
extern LWLock *zu_my_fence(void);

/*
 * zu_alloc_lock, zu_load_lock: return these locks of an entry; README.md has
 * their order.
 */
extern LWLock *zu_alloc_lock(ZuEntry *entry);
extern LWLock *zu_load_lock(ZuEntry *entry);

/* Returns the number of logs in a set. */
extern int	zu_nlogs(void);

/*
 * Gives the entry a set of logs, empty. Load lock held. Raises an error if all
 * sets are in use.
 */
extern void zu_take_logs(ZuEntry *entry);

/* Raises *v to at least this value, atomically. */
extern void zu_max64(pg_atomic_uint64 *v, uint64 to);

/*
 * Returns the entry of locator's relation with the table lock held shared, or
 * NULL with nothing held. May be called with buffers locked.
 * zu_unlock_entry_for_redo releases the lock.
 */
extern ZuEntry *zu_lock_entry_for_redo(RelFileLocator locator);
extern void zu_unlock_entry_for_redo(void);

/*
 * zu_end_discard, zu_end_truncation: give the entry's discarder flag, or its
 * truncator flag, back if this process has it. After the latter the file may
 * grow again.
 */
extern void zu_end_discard(ZuEntry *entry);
extern void zu_end_truncation(ZuEntry *entry);

/*
 * zu_lower_limit: sets the entry's limit to nextents and takes each process's
 * fence in turn, exclusively. On return no process has a page behind the new
 * limit pinned, or will read one: a process that held its fence has released
 * it, and one that takes it later sees the new limit.
 */
extern void zu_lower_limit(ZuEntry *entry, uint32 nextents);

/*
 * Has the logs of the attached entry loaded. On a primary only. Raises an error
 * if the shared tables are too small for them.
 */
extern void zu_require_logs(void);

/* ---- extents of logs ---- */

/*
 * Returns a palloc'd array of the extents of logno (of all logs if logno < 0)
 * with sequence >= from, ordered by (logno, sequence).
 */
extern ZuExtent *zu_collect_extents(int logno, uint64 from, int *n);

/*
 * Raises ERRCODE_DATA_CORRUPTED for a map entry that is not what this server
 * has written there: the entry of this extent, by what its log knows of it.
 */
extern void zu_report_changed_map(uint32 extent) zc_noreturn;

/*
 * Makes the extents free and oldest durable, in WAL and on the pages. On entry
 * the alloc lock is held, and oldest is published. Sorts the array. Raises an
 * internal error if an extent's map entry does not agree with the array.
 */
extern void zu_free_extents(ZuExtent *extents, int n, ZXid oldest);

/*
 * Makes the summaries of n resolved extents durable in the map, in WAL and on
 * the pages. Only by the discarder. Sorts the array.
 */
extern void zu_mark_resolved(ZuExtent *extents, int n);

/* Makes oldest durable without freeing an extent. */
extern void zu_log_oldest(ZXid oldest);

/* ---- undo_scan.c ---- */

typedef enum ZuStep
{
	ZU_STEP_RECORD,
	ZU_STEP_RESOLVED,			/* the resolved extent that begins at *ptr was
								 * passed over (skip_resolved) */
	ZU_STEP_END,				/* everything before the end position has been
								 * read */
	ZU_STEP_GONE,				/* the extent was discarded meanwhile */
	ZU_STEP_CORRUPT				/* not a record at the scan's position */
} ZuStep;

struct ZuScan
{
	uint32		logno;
	ZuExtent   *extents;		/* by sequence; palloc'd */
	int			nextents;
	int			current;		/* index of the extent that is read */
	int			page;			/* position of the next record */
	int			off;
	UndoPtr		end;			/* insert position to stop at */
	ZXid		topxid;			/* of the transaction to which the records
								 * read last belong; 0 = not known */
	bool		skip_resolved;	/* passes over resolved extents without
								 * reading them */
	bool		readable;		/* ends without an error where the log cannot
								 * be read */
	bool		owned;			/* nobody else can discard what it reads: a
								 * missing extent is damage */
	int			loaded_index;	/* which page 'copy' holds; -1 = none */
	int			loaded_page;
	MemoryContext context;		/* memory of the array extents */
	PGAlignedBlock copy;
	char		record[ZUR_MAX_LENGTH]; /* a record that straddles pages */
};

/*
 * Sets scan up to read logno over extents (palloc'd in context; the scan owns
 * them from now on), from byte 'byte' of the first one to end.
 */
extern void zu_scan_init(ZuScan *scan, uint32 logno, ZuExtent *extents, int n,
						 uint32 byte, UndoPtr end, MemoryContext context);

/*
 * Reads the next record into rec and *ptr, or returns why there is none. Raises
 * no error for damage of the log's own pages, but I/O errors, and
 * ERRCODE_DATA_CORRUPTED if the extent map is damaged.
 */
extern ZuStep zu_scan_step(ZuScan *scan, ZuRecord *rec, UndoPtr *ptr);

/*
 * Moves the scan's end to a later position; forgets the page copy, which may
 * have grown.
 */
extern void zu_scan_extend(ZuScan *scan, UndoPtr end);

/* ---- damage/undo_damage.c ---- */

/*
 * Notes and reports that what follows 'at' in the log cannot be read, unless
 * the log is closed already. Called by the log's owner, by the discarder, or at
 * load.
 */
extern void zu_close_log(ZuEntry *entry, uint32 logno, UndoPtr at);

/*
 * Adds the xids from 'from' up to 'to' to the doubt window; what earlier loads
 * had added is cut to its latest part if it gets too wide. Called before
 * `oldest` passes them.
 */
extern void zu_widen_doubt(ZuEntry *entry, ZXid from, ZXid to);

/*
 * Returns whether nobody can need what is unread of a closed log (UNDO-37).
 * *checked is the xid up to which this was found before, and is advanced. Only
 * by the discarder.
 */
extern bool zu_damage_is_needless(ZuLog *log, uint32 logno, ZXid horizon, ZuResolved *resolved,
								  ZXid *checked);

#endif
