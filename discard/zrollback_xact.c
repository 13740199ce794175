/*
 * discard/zrollback_xact.c - rolling a whole transaction back from its undo.
 *
 * Called by resolve.c. Reads the transaction's part of one undo log and calls
 * zrollback_page for the pages that its aborted records name, in batches
 * ordered by table and block.
 *
 * Locks: per table ZU_ROLLBACK_LOCK, which is acquired conditionally, and under
 * it one page at a time, exclusively.
 *
 * Crash points: those of zrollback_page. Undoing a page that has been undone
 * changes nothing, so after a crash or an error the whole is simply repeated.
 *
 * Tables that are locked by another process are passed over and noted in the
 * ZuAbort with the place of their first record; all others are done. The next
 * call reads undo only if one of the noted tables can be locked, from that
 * place on.
 *
 * A worker that only looked whether the lock is free would never get it where
 * sessions lock the table one after the other. So while writers wait for space
 * it stands in the queue between its passes, for a short time
 * (zrollback_queue): not during a pass, since no transaction is canceled
 * meanwhile.
 *
 * Invariants:
 *	RESOLVE-1	a transaction counts as undone only if no page of any existing
 *		table can still carry an aborted record of it. That a table is gone is
 *		concluded only under a lock on its OID, which brings the catalog caches
 *		up to date, and only if no other table has its file: tools exchange
 *		files in pg_class (zfile.c).
 *	RESOLVE-2	a table's lock is held until its pages' changes are logged. It
 *		conflicts with ACCESS EXCLUSIVE only, under which files are replaced,
 *		copied, truncated and dropped. Readers under a weaker lock see the same
 *		rows before and after (rollback/README.md).
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "common/fault.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "discard/discard_internal.h"
#include "discard/zfile.h"
#include "dml/zdml.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "tuple/ztts.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define BATCH_PAGES 1024
/*
 * A table whose rollback has failed with an error is tried again after this
 * time, which doubles with each failure, at most this many times.
 */
#define FAILED_RETRY_MS 30000
#define FAILED_RETRY_DOUBLINGS 6
/* How long a worker waits in the queue for the lock of a table. */
#define QUEUE_MS	1000

typedef struct PageAddress
{
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
} PageAddress;

typedef struct Job
{
	ZuAbort    *abort;
	uint64		records_done;
	bool		complete;		/* everything is done but the tables in 'left' */
	bool		top_aborted;	/* not only subtransactions */
	bool		selective;		/* only the tables in 'wanted' are undone */
	int			nwanted;
	ZuStalledTable wanted[ZU_MAX_STALLED];
	int			nleft;			/* tables that are not done */
	bool		more_left;		/* 'left' has no space for further such tables */
	ZuStalledTable left[ZU_MAX_STALLED];
	UndoPtr		batch_from;		/* first record of the batch, and its number */
	uint64		batch_at;
	BufferAccessStrategy strategy;
	/* status of the record read last: neighbours mostly have the same xid */
	ZXid		last_xid;
	bool		last_aborted;
	int			npages;
	PageAddress pages[BATCH_PAGES];
} Job;

/* Orders pages by table, file and block, for qsort. */
static int
compare_pages(const void *a, const void *b)
{
	const PageAddress *x = a;
	const PageAddress *y = b;

	if (x->reloid != y->reloid)
		return x->reloid < y->reloid ? -1 : 1;
	if (x->relnumber != y->relnumber)
		return x->relnumber < y->relnumber ? -1 : 1;
	if (x->block != y->block)
		return x->block < y->block ? -1 : 1;
	return 0;
}

/* Makes the job's progress visible in zundo.stat_rollback. */
static void
report_progress(Job *job)
{
	zworkers_report_progress(job->abort->topxid, job->records_done, job->abort->records,
							 job->abort->bytes);
}

/* Returns the entry of a table among n, or NULL. */
static const ZuStalledTable *
find_table(const ZuStalledTable *tables, int n, Oid reloid, RelFileNumber relnumber)
{
	for (int i = 0; i < n; i++)
		if (tables[i].reloid == reloid && tables[i].relnumber == relnumber)
			return &tables[i];
	return NULL;
}

/*
 * Returns how many milliseconds after its last failure a table is tried again.
 */
static int
retry_delay(int failures)
{
	Assert(failures > 0);
	return FAILED_RETRY_MS << Min(failures - 1, FAILED_RETRY_DOUBLINGS);
}

/*
 * Notes that the table of the page, in the current batch, is not done, with
 * the first record of the batch. blocked: the table that has its file and
 * could not be locked. failures: how often the rollback has failed with an
 * error; 0 = that table is locked.
 */
static void
leave_table(Job *job, const PageAddress *page, Oid blocked, int failures)
{
	ZuStalledTable *t;

	Assert(job->nleft <= ZU_MAX_STALLED);
	if (find_table(job->left, job->nleft, page->reloid, page->relnumber) != NULL)
		return;
	if (job->nleft == ZU_MAX_STALLED)
	{
		job->more_left = true;
		return;
	}
	t = &job->left[job->nleft++];
	t->reloid = page->reloid;
	t->relnumber = page->relnumber;
	t->blocked = blocked;
	t->from = job->batch_from;
	t->at = job->batch_at;
	t->failures = failures;
	t->not_before = failures == 0 ? 0 :
		TimestampTzPlusMilliseconds(GetCurrentTimestamp(), retry_delay(failures));
}

/*
 * Returns whether rec belongs to an aborted (sub)transaction. A record of a
 * transaction in progress leaves the job incomplete.
 */
static bool
record_aborted(Job *job, const ZuRecord *rec)
{
	if (rec->xid != job->last_xid)
	{
		ZXidStatus	status = zxid_status(rec->xid);

		if (status == ZXID_IN_PROGRESS || status == ZXID_OWN)
		{
			job->complete = false;
			return false;
		}
		job->last_xid = rec->xid;
		job->last_aborted = (status == ZXID_ABORTED);
	}
	return job->last_aborted;
}

/*
 * Rolls back n pages (ascending blocks) of one relation, which the caller has
 * locked and opened. Skips blocks that do not exist any more. Enters the space
 * that an aborted transaction has left in the free space map, also if its own
 * session has undone the pages. What a subtransaction has left that session
 * enters, when it can use it (zreclaim.c).
 */
static void
rollback_pages_of(Relation rel, const PageAddress *pages, int n, const Job *job)
{
	BlockNumber nblocks = zrel_nblocks(rel);

	Assert(CheckRelationLockedByMe(rel, ZU_ROLLBACK_LOCK, true));	/* RESOLVE-2 */
	for (int i = 0; i < n; i++)
	{
		Buffer		buf;

		Assert(i == 0 || pages[i].block > pages[i - 1].block);
		CHECK_FOR_INTERRUPTS();
		ZUNDO_FAULT("rollback-page");
		if (pages[i].block >= nblocks)
			break;
		buf = ReadBufferExtended(rel, MAIN_FORKNUM, pages[i].block, RBM_NORMAL, job->strategy);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		if (!PageIsNew(BufferGetPage(buf)))
		{
			(void) zrollback_page(buf, rel);
			if (job->top_aborted)
				zreclaim_note_undone(rel, pages[i].block, zrollback_space(BufferGetPage(buf)));
		}
		UnlockReleaseBuffer(buf);
	}
	(void) zreclaim_tell_undone(rel);
}

/*
 * Rolls back n pages (ascending blocks) of one file, if the table has that
 * file now (*has_file). Returns false if the table could not be locked, is a
 * temporary one of another session, or has the file but an access method that
 * is not zheap; *blocked is this table then. Leaves no lock.
 */
static bool
rollback_in_table(Oid reloid, const PageAddress *pages, int n, const Job *job,
				  bool *has_file, Oid *blocked)
{
	Relation	rel;
	bool		complete = true;

	*has_file = false;
	*blocked = reloid;
	if (!ConditionalLockRelationOid(reloid, ZU_ROLLBACK_LOCK))
		return false;
	rel = try_relation_open(reloid, NoLock);
	if (rel != NULL)
	{
		*has_file = rel->rd_locator.relNumber == pages[0].relnumber;
		if (RELATION_IS_OTHER_TEMP(rel))
			complete = false;
		else if (*has_file && ztts_is_zheap(rel))
			rollback_pages_of(rel, pages, n, job);
		else if (*has_file)
			complete = false;
		relation_close(rel, NoLock);
	}
	UnlockRelationOid(reloid, ZU_ROLLBACK_LOCK);
	return complete;
}

/*
 * Rolls back n pages of one table's file, which may be another table's by now.
 * Returns true if they are done or the file is gone (RESOLVE-1); otherwise
 * *blocked is the table that is in the way.
 */
static bool
rollback_table(const PageAddress *pages, int n, const Job *job, Oid *blocked)
{
	bool		has_file;
	ListCell   *lc;

	Assert(n > 0);
	if (!rollback_in_table(pages[0].reloid, pages, n, job, &has_file, blocked))
		return false;
	if (has_file)
		return true;
	foreach(lc, zfile_owners(pages[0].relnumber))
	{
		if (!rollback_in_table(lfirst_oid(lc), pages, n, job, &has_file, blocked) ||
			!has_file)
			return false;		/* no longer with the file: tools are moving
								 * it to a third table */
	}
	return true;
}

/*
 * Rolls back n pages of one table, or notes the table if that is not possible
 * now. An error, of a damaged page for example, ends only a subtransaction and
 * is logged, so that it stops neither the rollback of other tables nor the
 * discarding of undo that does not depend on this transaction. Cancellation
 * and shutdown are raised.
 */
static void
rollback_table_or_leave(Job *job, const PageAddress *pages, int n)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	bool		done;
	Oid			blocked;

	BeginInternalSubTransaction(NULL);
	ZUNDO_FAULT("rollback-table");
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		done = rollback_table(pages, n, job, &blocked);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (!done)
			leave_table(job, &pages[0], blocked, 0);
	}
	PG_CATCH();
	{
		ErrorData  *error;
		const ZuStalledTable *before;
		int			failures;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();

		/*
		 * A cancellation or the end of this process does not concern the
		 * table. The subtransaction must end before the error is raised
		 * again.
		 */
		if (error->elevel != ERROR || error->sqlerrcode == ERRCODE_QUERY_CANCELED ||
			error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
		{
			RollbackAndReleaseCurrentSubTransaction();
			MemoryContextSwitchTo(context);
			CurrentResourceOwner = owner;
			PG_RE_THROW();
		}
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		before = find_table(job->abort->stalled, job->abort->nstalled, pages[0].reloid,
							pages[0].relnumber);
		failures = before == NULL ? 1 : before->failures + 1;
		leave_table(job, &pages[0], pages[0].reloid, failures);
		ereport(LOG,
				(errcode(error->sqlerrcode),
				 errmsg("could not roll back transaction " UINT64_FORMAT
						" in the table with OID %u: %s",
						(uint64) job->abort->topxid, pages[0].reloid, error->message),
				 error->detail != NULL ? errdetail_internal("%s", error->detail) : 0,
				 errhint("The undo of this transaction and of all younger ones is kept. "
						 "The rollback is retried in %d seconds.", retry_delay(failures) / 1000)));
		FreeErrorData(error);
	}
	PG_END_TRY();
}

/*
 * Rolls back the pages gathered so far, each once, table by table, and empties
 * the batch.
 */
static void
flush_batch(Job *job)
{
	int			n = 0;
	int			from;

	if (job->npages == 0)
		return;
	qsort(job->pages, job->npages, sizeof(PageAddress), compare_pages);
	for (int i = 0; i < job->npages; i++)
		if (n == 0 || compare_pages(&job->pages[i], &job->pages[n - 1]) != 0)
			job->pages[n++] = job->pages[i];
	for (from = 0; from < n;)
	{
		int			to = from + 1;

		while (to < n && job->pages[to].reloid == job->pages[from].reloid &&
			   job->pages[to].relnumber == job->pages[from].relnumber)
			to++;
		rollback_table_or_leave(job, &job->pages[from], to - from);
		from = to;
	}
	job->npages = 0;
	report_progress(job);
}

/*
 * Adds the page of the record at ptr to the batch. If the batch is full, its
 * pages are rolled back first.
 */
static void
add_page(Job *job, const ZuRecord *rec, UndoPtr ptr)
{
	PageAddress page = {rec->reloid, rec->relnumber, rec->block};

	if (job->npages > 0 && compare_pages(&job->pages[job->npages - 1], &page) == 0)
		return;
	if (job->npages == BATCH_PAGES)
		flush_batch(job);
	Assert(job->npages < BATCH_PAGES);
	if (job->npages == 0)
	{
		job->batch_from = ptr;
		job->batch_at = job->records_done;
	}
	job->pages[job->npages++] = page;
}

/*
 * Returns the tables that have the file of the stalled pages now: the table
 * that the records name, others if tools have exchanged the file (zfile.c), or
 * none after DROP, TRUNCATE or a rewrite. If there is none, nothing is to be
 * undone.
 */
static List *
tables_with_file(const ZuStalledTable *t)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(t->reloid));
	bool		unchanged = HeapTupleIsValid(tuple) &&
	((Form_pg_class) GETSTRUCT(tuple))->relfilenode == t->relnumber;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return unchanged ? list_make1_oid(t->reloid) : zfile_owners(t->relnumber);
}

/*
 * Returns whether a rollback could lock the table at this moment; notes in *t
 * if not.
 */
static bool
can_lock(ZuStalledTable *t, Oid reloid)
{
	if (!ConditionalLockRelationOid(reloid, ZU_ROLLBACK_LOCK))
	{
		t->blocked = reloid;
		return false;
	}
	UnlockRelationOid(reloid, ZU_ROLLBACK_LOCK);
	return true;
}

/*
 * Returns whether another attempt makes sense for a stalled table: all tables
 * that rollback_table would lock can be locked, and the wait after an error is
 * over. If no table has the file any more, there is no such wait, however
 * often it has failed.
 */
static bool
can_try(ZuStalledTable *t, TimestampTz now)
{
	List	   *owners = tables_with_file(t);
	ListCell   *lc;

	if (owners != NIL && t->not_before > now)
		return false;
	foreach(lc, owners)
		if (!can_lock(t, lfirst_oid(lc)))
		return false;
	return list_member_oid(owners, t->reloid) || can_lock(t, t->reloid);
}

/*
 * Decides what a further call for the same ZuAbort does. The stalled tables
 * that can be tried now are put into job->wanted, the others into job->left.
 * Returns false if none can be tried. If there were more stalled tables than
 * could be noted, all records are read again.
 */
static bool
choose_tables(Job *job)
{
	ZuAbort    *abort = job->abort;
	TimestampTz now = GetCurrentTimestamp();

	Assert(abort->nstalled <= ZU_MAX_STALLED);
	for (int i = 0; i < abort->nstalled; i++)
	{
		ZuStalledTable *t = &abort->stalled[i];

		if (can_try(t, now))
			job->wanted[job->nwanted++] = *t;
		else
			job->left[job->nleft++] = *t;
	}
	if (job->nwanted == 0)
		return false;
	job->selective = !abort->rest_stalled;
	if (!job->selective)
		job->nleft = 0;			/* reading everything finds them again */
	return true;
}

/*
 * Reads the transaction's records, from the first that a wanted table needs,
 * and undoes the pages that they name.
 */
static void
work(Job *job)
{
	const ZuAbort *abort = job->abort;
	UndoPtr		from = abort->first;
	ZuScan	   *scan;
	ZuRecord	rec;
	UndoPtr		ptr;

	if (job->selective)
	{
		const ZuStalledTable *first = &job->wanted[0];

		for (int i = 1; i < job->nwanted; i++)
			if (job->wanted[i].at < first->at)
				first = &job->wanted[i];
		from = first->from;
		job->records_done = first->at;
	}
	report_progress(job);
	scan = zu_scan_begin_at(abort->logno, from);
	while (zu_scan_next(scan, &rec, &ptr) && (ptr == abort->first || (rec.flags & ZUF_FIRST) == 0))
	{
		CHECK_FOR_INTERRUPTS();

		/*
		 * A record in no chain leaves nothing to undo on its page, unless
		 * another record names that, too.
		 */
		if (!zrecord_is_saved(rec.type) && record_aborted(job, &rec) &&
			(!job->selective ||
			 find_table(job->wanted, job->nwanted, rec.reloid, rec.relnumber) != NULL))
			add_page(job, &rec, ptr);
		job->records_done++;
	}
	zu_scan_end(scan);
	flush_batch(job);
}

/*
 * zrollback_transaction: See discard_internal.h. Leaves in *abort which tables
 * are not done; the Job lives only as long as the call.
 */
bool
zrollback_transaction(ZuAbort *abort)
{
	Job		   *job = palloc0(sizeof(Job));
	bool		complete;

	job->abort = abort;
	job->complete = true;
	job->top_aborted = (zxid_status(abort->topxid) == ZXID_ABORTED);
	if (abort->tried && abort->nstalled > 0 && !choose_tables(job))
	{
		pfree(job);
		return false;
	}
	job->strategy = GetAccessStrategy(BAS_VACUUM);
	work(job);
	abort->tried = true;
	abort->rest_stalled = job->more_left;
	abort->nstalled = job->nleft;
	memcpy(abort->stalled, job->left, job->nleft * sizeof(ZuStalledTable));
	zworkers_report_progress(0, 0, 0, 0);
	complete = job->complete && job->nleft == 0 && !job->more_left;
	FreeAccessStrategy(job->strategy);
	pfree(job);
	return complete;
}

/*
 * zrollback_queue: See discard_internal.h. The wait ends with an error, so it
 * is in a subtransaction.
 */
bool
zrollback_queue(void)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ZuHold		holds[ZU_MAX_HOLDS];
	int			n = zu_holds(holds);
	Oid			table = InvalidOid;
	volatile bool locked = false;

	for (int i = 0; i < n && !OidIsValid(table); i++)
		if (holds[i].kind == ZU_HOLD_ROLLBACK && !holds[i].failed)
			table = holds[i].reloid;
	if (!OidIsValid(table) || !zu_anybody_waits())
		return false;
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		LockTimeout = QUEUE_MS;
		LockRelationOid(table, ZU_ROLLBACK_LOCK);
		LockTimeout = 0;
		CHECK_FOR_INTERRUPTS(); /* the timeout may have come with the lock */
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		locked = true;
	}
	PG_CATCH();
	{
		int			code = geterrcode();

		LockTimeout = 0;
		if (code != ERRCODE_LOCK_NOT_AVAILABLE && code != ERRCODE_T_R_DEADLOCK_DETECTED)
		{
			RollbackAndReleaseCurrentSubTransaction();
			MemoryContextSwitchTo(context);
			CurrentResourceOwner = owner;
			PG_RE_THROW();
		}
		MemoryContextSwitchTo(context);
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_END_TRY();
	return locked;
}
