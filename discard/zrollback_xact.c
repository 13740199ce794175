/*
 * discard/zrollback_xact.c - rolling back a whole transaction from its undo.
 *
 * Called through zu_discard by workers and VACUUM. Reads the transaction's
 * part of one undo log, and for the pages that its aborted records name calls
 * zrollback_page in batches ordered by table and block. Holds per table a
 * RowExclusiveLock that was got without waiting; per page its exclusive lock.
 * Repeating any part of it does nothing twice, so a crash or an error anywhere
 * only costs time.
 *
 * Tables that are locked by somebody are passed over and noted in the ZuAbort
 * with the place of their first record; all others are done. The next call
 * reads undo only if one of the noted tables can be locked, from that place on.
 *
 * Invariants:
 *	RESOLVE-1	"this table is gone" is concluded only under a lock on its OID,
 *		which brings the catalog caches up to date, and only if no other table
 *		has its file: tools exchange files in pg_class (zfile.c).
 *	RESOLVE-2	a table's lock is held until its pages' changes are logged.
 *	RESOLVE-3	true is returned only if no page of any existing table can
 *		still carry an aborted record of the transaction.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "discard/discard_internal.h"
#include "discard/zfile.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#define BATCH_PAGES 1024
/*
 * Until a table whose rollback has failed with an error is tried again:
 * doubled with each failure, so often.
 */
#define FAILED_RETRY_MS 30000
#define FAILED_RETRY_DOUBLINGS 6

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
	bool		complete;		/* but for the tables in 'left' */
	bool		selective;		/* only tables of 'wanted' */
	int			nwanted;
	ZuStalledTable wanted[ZU_MAX_STALLED];
	int			nleft;			/* tables that could not be locked */
	bool		more_left;		/* more than 'left' holds */
	ZuStalledTable left[ZU_MAX_STALLED];
	UndoPtr		batch_from;		/* first record of the batch, and its number */
	uint64		batch_at;
	BufferAccessStrategy strategy;
	/* the answer for the xid asked last: transactions have few */
	ZXid		last_xid;
	bool		last_aborted;
	int			npages;
	PageAddress pages[BATCH_PAGES];
} Job;

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

static void
report_progress(Job *job)
{
	zworkers_report_progress(job->abort->topxid, job->records_done, job->abort->records,
							 job->abort->bytes);
}

/* find_table: returns the entry of a table among n, or NULL. */
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
 * Notes that a table of the batch is not done. failures: how often it has
 * failed with an error; 0 = it is locked.
 */
static void
leave_table(Job *job, Oid reloid, RelFileNumber relnumber, int failures)
{
	ZuStalledTable *t;

	if (find_table(job->left, job->nleft, reloid, relnumber) != NULL)
		return;
	if (job->nleft == ZU_MAX_STALLED)
	{
		job->more_left = true;
		return;
	}
	t = &job->left[job->nleft++];
	t->reloid = reloid;
	t->relnumber = relnumber;
	t->from = job->batch_from;
	t->at = job->batch_at;
	t->failures = failures;
	t->not_before = failures == 0 ? 0 :
		TimestampTzPlusMilliseconds(GetCurrentTimestamp(), retry_delay(failures));
}

/*
 * Does rec belong to an aborted (sub)transaction? One still in progress leaves
 * the job incomplete.
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

/* Roll back n pages of one relation, which the caller has locked and opened. */
static void
rollback_pages_of(Relation rel, const PageAddress *pages, int n, BufferAccessStrategy strategy)
{
	BlockNumber nblocks = zrel_nblocks(rel);

	for (int i = 0; i < n; i++)
	{
		Buffer		buf;

		CHECK_FOR_INTERRUPTS();
		if (pages[i].block >= nblocks)
			break;
		buf = ReadBufferExtended(rel, MAIN_FORKNUM, pages[i].block, RBM_NORMAL, strategy);
		LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
		if (!PageIsNew(BufferGetPage(buf)))
			(void) zrollback_page(buf, rel);
		UnlockReleaseBuffer(buf);
	}
}

/*
 * rollback_in_table: rolls back n pages (ascending blocks) of one file, if it
 * is the table's (*has_file). Returns false if the table could not be locked,
 * belongs to another session or takes its zheap file for something else.
 */
static bool
rollback_in_table(Oid reloid, const PageAddress *pages, int n, BufferAccessStrategy strategy,
				  bool *has_file)
{
	Relation	rel;
	bool		complete = true;

	*has_file = false;
	if (!ConditionalLockRelationOid(reloid, RowExclusiveLock))
		return false;
	rel = try_relation_open(reloid, NoLock);
	if (rel != NULL)
	{
		*has_file = rel->rd_locator.relNumber == pages[0].relnumber;
		if (RELATION_IS_OTHER_TEMP(rel))
			complete = false;
		else if (*has_file && zfile_is_zheap(rel))
			rollback_pages_of(rel, pages, n, strategy);
		else if (*has_file)
			complete = false;
		relation_close(rel, NoLock);
	}
	UnlockRelationOid(reloid, RowExclusiveLock);
	return complete;
}

/*
 * rollback_table: rolls back n pages of one table's file, which may be another
 * table's by now. Returns true if they are done or the file is gone
 * (RESOLVE-1).
 */
static bool
rollback_table(const PageAddress *pages, int n, BufferAccessStrategy strategy)
{
	bool		has_file;
	ListCell   *lc;

	if (!rollback_in_table(pages[0].reloid, pages, n, strategy, &has_file))
		return false;
	if (has_file)
		return true;
	foreach(lc, zfile_owners(pages[0].relnumber))
		if (!rollback_in_table(lfirst_oid(lc), pages, n, strategy, &has_file) || !has_file)
		return false;			/* without the file: it is on its way to a
								 * third table */
	return true;
}

/*
 * rollback_table_or_leave: rolls back n pages of one table. What cannot be done
 * now is noted. An error, of a damaged page for example, ends a subtransaction
 * only and goes to the log, so that it stops neither the rollback of other
 * tables nor the discarding of undo that does not depend on this transaction.
 */
static void
rollback_table_or_leave(Job *job, const PageAddress *pages, int n)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	bool		done;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		done = rollback_table(pages, n, job->strategy);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (!done)
			leave_table(job, pages[0].reloid, pages[0].relnumber, 0);
	}
	PG_CATCH();
	{
		ErrorData  *error;
		const ZuStalledTable *before;
		int			failures;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();

		/*
		 * a cancel or the end of this process is not about the table; the
		 * subtransaction is over all the same
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
		leave_table(job, pages[0].reloid, pages[0].relnumber, failures);
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

/* Roll back the pages gathered so far and empty the batch. */
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

/* add_page: puts the page of the record at ptr into the batch. */
static void
add_page(Job *job, const ZuRecord *rec, UndoPtr ptr)
{
	PageAddress page = {rec->reloid, rec->relnumber, rec->block};

	if (job->npages > 0 && compare_pages(&job->pages[job->npages - 1], &page) == 0)
		return;
	if (job->npages == BATCH_PAGES)
		flush_batch(job);
	if (job->npages == 0)
	{
		job->batch_from = ptr;
		job->batch_at = job->records_done;
	}
	job->pages[job->npages++] = page;
}

/*
 * choose_tables: decides what a further call for an abort does. Those of the
 * noted tables that can be locked now are wanted, the others stay left. Returns
 * false if none can be locked.
 */
static bool
choose_tables(Job *job)
{
	const ZuAbort *abort = job->abort;
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < abort->nstalled; i++)
	{
		const ZuStalledTable *t = &abort->stalled[i];

		if (t->not_before > now)
			job->left[job->nleft++] = *t;
		else if (ConditionalLockRelationOid(t->reloid, RowExclusiveLock))
		{
			UnlockRelationOid(t->reloid, RowExclusiveLock);
			job->wanted[job->nwanted++] = *t;
		}
		else
			job->left[job->nleft++] = *t;
	}
	if (job->nwanted == 0)
		return false;
	job->selective = !abort->rest_stalled;
	if (!job->selective)
		job->nleft = 0;			/* all is read again */
	return true;
}

/* work: reads the transaction's records and undoes the pages that they name. */
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
		 * An image is in no chain: the page of its record is named by that
		 * one, too.
		 */
		if (rec.type != ZUR_IMAGE && record_aborted(job, &rec) &&
			(!job->selective ||
			 find_table(job->wanted, job->nwanted, rec.reloid, rec.relnumber) != NULL))
			add_page(job, &rec, ptr);
		job->records_done++;
	}
	zu_scan_end(scan);
	flush_batch(job);
}

/*
 * zrollback_transaction: see discard_internal.h. No lock on any table is
 * left on return.
 */
bool
zrollback_transaction(ZuAbort *abort)
{
	Job		   *job = palloc0(sizeof(Job));
	bool		complete;

	job->abort = abort;
	job->complete = true;
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
