/*
 * zbtree/bound.c - the bound: which snapshots' scans may skip entries that are
 * marked as dead.
 *
 * The bound is a transaction id, one for all databases. An entry is marked only
 * if no snapshot whose xmin is at or above the bound needs it (MARK-1), and
 * only scans with such snapshots skip marked entries. The bound may advance
 * while a scan reads a leaf page, and the scan's snapshot may be below the new
 * one.
 *
 * Locks: one LWLock, a leaf, taken conditionally. No WAL. No crash points.
 *
 *	MARK-2	When a bound is put to use, all transactions before it have ended,
 *		and the WAL that had been inserted when this was found out has been
 *		flushed.
 *		(a) A mark is not logged and may reach the disk at once; because of the
 *			flush, no crash can undo a commit on which the mark relies. WAL is
 *			not flushed for it: bound.c looks again later whether others have
 *			done so.
 *		(b) A server that has just been started or promoted has no bound, and
 *			its scans look neither at the marks on its pages nor at those of
 *			nbtree itself; so they advance the bound until there is one. The
 *			marks were made with bounds that are not above its own first bound,
 *			because all transactions before them have ended in the WAL that was
 *			replayed.
 *		Example: 104 has committed, and its commit record is not flushed yet:
 *		105 is announced as bound only when it is.
 *	MARK-3	While a scan reads leaf pages and skips marked entries, no process
 *		marks an entry with a bound that is above the xmin of the scan's
 *		snapshot. For this there are two bounds and a place in shared memory
 *		for each process:
 *		1. A new bound is *announced*.
 *		2. A process that is about to read a leaf page writes the announced
 *			bound into its place, and then makes sure that no newer one has
 *			been announced. It clears its place when it has read the page, or
 *			when the (sub)transaction aborts in which an error has come in
 *			between, so a long transaction does not hold the bound back, unless
 *			it has an id: the bound does not pass the id of a transaction in
 *			progress.
 *		3. A bound is *agreed*, and used for marks, when no process has an
 *			older one in its place.
 *		Scans with SnapshotSelf and SnapshotDirty look for the newest version,
 *		and for those before a change in progress (SCAN-7), whose transaction
 *		is never before the bound; MARK-1 examines all of them whatever the
 *		bound is, so they skip all marked entries. So does the planner's
 *		look at an end of the index (SNAPSHOT_NON_VACUUMABLE): only an estimate
 *		depends on it. Scans with other snapshots that are not MVCC snapshots
 *		skip none, nor do scans of a transaction that began in recovery,
 *		because standbys get marks in page images.
 *		Example: 100 is agreed, and in the place of a process that reads a leaf
 *		page. 120 is announced; nobody marks by it until that process has left
 *		the page, for its snapshot may have the xmin 100.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "zbtree/bound.h"

/* The shortest time between two attempts to advance the bound. */
#define ADVANCE_MS		10

/*
 * A bound that is this far behind the next transaction id is not used for
 * marks: horizons are compared as 32-bit ids, so that later transactions would
 * count as earlier ones.
 */
#define MAX_BEHIND		((uint64) 1 << 30)

/*
 * The bound by which a process reads a leaf page. 0 = it reads none now, or
 * does not skip marked entries.
 */
typedef union ReaderBound
{
	pg_atomic_uint64 bound;
	char		pad[PG_CACHE_LINE_SIZE];
} ReaderBound;

typedef struct Bounds
{
	LWLock		lock;			/* protects what is not atomic */
	int			tranche;
	int			nreaders;		/* indexed by process number */
	TimestampTz tried;			/* last attempt to advance the bound */
	ZXid		candidate;		/* all transactions before it have ended ... */
	XLogRecPtr	candidate_lsn;	/* ... and their WAL ends before this */
	pg_atomic_uint64 announced;
	pg_atomic_uint64 agreed;	/* never above announced */
	ReaderBound readers[FLEXIBLE_ARRAY_MEMBER];
} Bounds;

static Bounds *shared = NULL;

/* Nest level of the (sub)transaction that last called zbound_enter. */
static int	entered_level = 0;

Size
zbound_shmem_size(void)
{
	return add_size(offsetof(Bounds, readers), mul_size(MaxBackends, sizeof(ReaderBound)));
}

/* zbound_shmem_startup: See bound.h. */
void
zbound_shmem_startup(void)
{
	bool		found;

	shared = ShmemInitStruct("zundo index marks", zbound_shmem_size(), &found);
	if (!found)
	{
		memset(shared, 0, zbound_shmem_size());
		shared->tranche = zc_new_tranche("zundo_index_marks");
		LWLockInitialize(&shared->lock, shared->tranche);
		shared->nreaders = MaxBackends;
		pg_atomic_init_u64(&shared->announced, InvalidZXid);
		pg_atomic_init_u64(&shared->agreed, InvalidZXid);
		for (int i = 0; i < MaxBackends; i++)
			pg_atomic_init_u64(&shared->readers[i].bound, InvalidZXid);
	}
	zc_register_tranche(shared->tranche, "zundo_index_marks");
}

/* Returns this process's place in readers, or NULL if it has none. */
static pg_atomic_uint64 *
my_place(void)
{
	int			me = zc_my_proc_number();

	return me >= 0 && me < shared->nreaders ? &shared->readers[me].bound : NULL;
}

/*
 * Returns whether the snapshot's xmin is at or above the bound. The bound is
 * older than xmin or some transactions younger, so comparing 32 bits is enough.
 */
static bool
is_young(Snapshot snapshot, ZXid bound)
{
	return bound != InvalidZXid &&
		!TransactionIdPrecedes(snapshot->xmin, zxid_to_xid(bound));
}

/*
 * Returns whether there is a bound, and it is not too far behind to be used for
 * marks.
 */
static bool
is_recent(ZXid bound)
{
	return bound != InvalidZXid &&
		zxid_from_full(zc_peek_next_full_xid()) < bound + MAX_BEHIND;
}

/*
 * zbound_enter: See bound.h. Writes the announced bound into this process's
 * place before it looks whether a newer one has been announced: either it sees
 * the newer one, or the process that announced that sees this place. A
 * comparison function may run queries, so calls nest. Then the outer call's
 * bound stays in the place, and no bound above it is agreed meanwhile.
 *
 * Advances the bound only if there is none that can be used. Any bound is good
 * enough for skipping the marks of nbtree itself, which are on entries of rows
 * that are dead to all snapshots.
 */
bool
zbound_enter(Snapshot snapshot, bool *entered)
{
	pg_atomic_uint64 *my = my_place();
	ZXid		bound;

	Assert(IsMVCCSnapshot(snapshot));
	*entered = false;
	if (my == NULL)
		return false;
	bound = pg_atomic_read_u64(my);
	if (bound != InvalidZXid)
		return is_young(snapshot, bound);
	for (;;)
	{
		bound = pg_atomic_read_u64(&shared->announced);
		if (!is_young(snapshot, bound))
		{
			pg_atomic_write_u64(my, InvalidZXid);
			if (!is_recent(bound))
				zbound_advance();
			return false;
		}
		pg_atomic_write_u64(my, bound);
		pg_memory_barrier();
		if (pg_atomic_read_u64(&shared->announced) == bound)
			break;
	}
	Assert(pg_atomic_read_u64(&shared->agreed) <= bound);
	entered_level = GetCurrentTransactionNestLevel();
	*entered = true;
	return true;
}

void
zbound_leave(void)
{
	/* no newer bound was used for marks while the page was read (MARK-3) */
	Assert(pg_atomic_read_u64(&shared->agreed) <= pg_atomic_read_u64(my_place()));
	pg_memory_barrier();
	pg_atomic_write_u64(my_place(), InvalidZXid);
}

/*
 * zbound_at_xact_end: See bound.h. Also called in processes that have not
 * attached to shared memory.
 */
void
zbound_at_xact_end(void)
{
	pg_atomic_uint64 *my = shared != NULL ? my_place() : NULL;

	if (my != NULL && pg_atomic_read_u64(my) != InvalidZXid)
		zbound_leave();
}

/*
 * zbound_at_subxact_abort: See bound.h. A comparison function may catch errors,
 * so the scan that has entered may belong to an outer nest level, and continue.
 */
void
zbound_at_subxact_abort(int level)
{
	Assert(level > 1);
	if (entered_level >= level)
		zbound_at_xact_end();
}

/*
 * zbound_agreed: See bound.h. The barrier keeps the caller from reading row
 * versions before it has read the bound.
 */
ZXid
zbound_agreed(void)
{
	ZXid		agreed = pg_atomic_read_u64(&shared->agreed);

	pg_memory_barrier();
	return is_recent(agreed) ? agreed : InvalidZXid;
}

/*
 * Makes the announced bound the agreed one if no process reads a page by an
 * older one.
 */
static void
agree(void)
{
	ZXid		announced = pg_atomic_read_u64(&shared->announced);

	Assert(LWLockHeldByMeInMode(&shared->lock, LW_EXCLUSIVE));
	pg_memory_barrier();
	for (int i = 0; i < shared->nreaders; i++)
	{
		ZXid		bound = pg_atomic_read_u64(&shared->readers[i].bound);

		if (bound != InvalidZXid && bound < announced)
			return;
	}
	pg_memory_barrier();
	pg_atomic_write_u64(&shared->agreed, announced);
}

/*
 * Takes the next step that is possible: makes the announced bound the agreed
 * one; or announces the candidate, if the WAL up to candidate_lsn is flushed,
 * which commits and the WAL writer do (MARK-2), and chooses the next candidate.
 * The caller holds the lock exclusively.
 */
static void
advance(void)
{
	if (pg_atomic_read_u64(&shared->agreed) != pg_atomic_read_u64(&shared->announced))
	{
		agree();
		return;
	}
	if (shared->candidate > pg_atomic_read_u64(&shared->announced))
	{
		if (GetFlushRecPtr(NULL) < shared->candidate_lsn)
			return;
		pg_atomic_write_u64(&shared->announced, shared->candidate);
		agree();
	}
	shared->candidate = zxid_widen(zc_oldest_active_xid());
	shared->candidate_lsn = GetXLogInsertRecPtr();
}

void
zbound_advance(void)
{
	TimestampTz now;

	if (RecoveryInProgress() || !LWLockConditionalAcquire(&shared->lock, LW_EXCLUSIVE))
		return;
	now = GetCurrentTimestamp();
	if (TimestampDifferenceExceeds(shared->tried, now, ADVANCE_MS) || now < shared->tried)
	{
		shared->tried = now;
		advance();
	}
	LWLockRelease(&shared->lock);
}
