/*
 * rollback/zrollback_xact.c - rolling back a whole transaction from its undo.
 *
 * Called through zu_discard by workers and VACUUM. Reads the transaction's part of one
 * undo log, and for the pages that its aborted records name calls zrollback_page in
 * batches ordered by table and block. Holds per table a RowExclusiveLock that was got
 * without waiting; per page its exclusive lock. Repeating any part of it does nothing
 * twice, so a crash or an error anywhere only costs time.
 *
 * Invariants:
 *	R1	"this table is gone" is concluded only under a lock on its OID, which brings the
 *		catalog caches up to date.
 *	R2	a table's lock is held until its pages' changes are logged.
 *	R3	true is returned only if no page of any existing table can still carry an aborted
 *		record of the transaction.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "tuple/zslot.h"
#include "utils/rel.h"

#define BATCH_PAGES 1024

void		(*zrollback_progress_hook) (uint64 xid, uint64 records_done, uint64 records_total,
										uint64 bytes) = NULL;

typedef struct PageAddress
{
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
} PageAddress;

typedef struct Job
{
	ZXid		topxid;
	uint64		records_done;
	uint64		records_total;
	uint64		bytes;
	bool		complete;
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
	if (zrollback_progress_hook != NULL)
		zrollback_progress_hook(job->topxid, job->records_done, job->records_total, job->bytes);
}

/* Does rec belong to an aborted (sub)transaction? One still in progress leaves the job incomplete. */
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
 * Roll back n pages (ascending blocks) of one table. False if the table could not
 * be locked or belongs to another session; true if it is done or gone.
 */
static bool
rollback_table(const PageAddress *pages, int n, BufferAccessStrategy strategy)
{
	Oid			reloid = pages[0].reloid;
	Relation	rel;
	bool		complete = true;

	if (!ConditionalLockRelationOid(reloid, RowExclusiveLock))
		return false;
	rel = try_relation_open(reloid, NoLock);
	if (rel != NULL)
	{
		if (RELATION_IS_OTHER_TEMP(rel))
			complete = false;
		else if (rel->rd_locator.relNumber == pages[0].relnumber &&
				 rel->rd_tableam != NULL && table_slot_callbacks(rel) == &TTSOpsZHeap)
			rollback_pages_of(rel, pages, n, strategy);
		relation_close(rel, NoLock);
	}
	UnlockRelationOid(reloid, RowExclusiveLock);
	return complete;
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
		if (!rollback_table(&job->pages[from], to - from, job->strategy))
			job->complete = false;
		from = to;
	}
	job->npages = 0;
	report_progress(job);
}

/* Put a record's page into the batch. */
static void
add_page(Job *job, const ZuRecord *rec)
{
	PageAddress page = {rec->reloid, rec->relnumber, rec->block};

	if (job->npages > 0 && compare_pages(&job->pages[job->npages - 1], &page) == 0)
		return;
	if (job->npages == BATCH_PAGES)
		flush_batch(job);
	job->pages[job->npages++] = page;
}

/* The next record of the transaction that began at first, or false. */
static bool
next_record(ZuScan *scan, UndoPtr first, ZuRecord *rec)
{
	UndoPtr		ptr;

	CHECK_FOR_INTERRUPTS();
	return zu_scan_next(scan, rec, &ptr) && (ptr == first || (rec->flags & ZUF_FIRST) == 0);
}

/* Count the transaction's aborted records, for progress reports. */
static void
count_records(Job *job, uint32 logno, UndoPtr first)
{
	ZuScan	   *scan = zu_scan_begin_at(logno, first);
	ZuRecord	rec;

	while (next_record(scan, first, &rec))
		if (record_aborted(job, &rec) && rec.type != ZUR_IMAGE)
		{
			job->records_total++;
			job->bytes += rec.length;
		}
	zu_scan_end(scan);
}

/*
 * zrollback_transaction: see zrollback.h. On entry in a transaction, undo attached, no
 * buffer locked; on return the same, and no lock on any table is left.
 */
bool
zrollback_transaction(uint32 logno, UndoPtr first, ZXid topxid, void *arg)
{
	Job		   *job = palloc0(sizeof(Job));
	ZuScan	   *scan;
	ZuRecord	rec;
	bool		complete;

	job->topxid = topxid;
	job->complete = true;
	job->strategy = GetAccessStrategy(BAS_VACUUM);
	if (zrollback_progress_hook != NULL)
		count_records(job, logno, first);
	report_progress(job);

	scan = zu_scan_begin_at(logno, first);
	while (next_record(scan, first, &rec))
	{
		/* An image is in no chain: the page of its record is named by that one, too. */
		if (rec.type == ZUR_IMAGE || !record_aborted(job, &rec))
			continue;
		add_page(job, &rec);
		job->records_done++;
	}
	zu_scan_end(scan);
	flush_batch(job);

	if (zrollback_progress_hook != NULL)
		zrollback_progress_hook(0, 0, 0, 0);
	complete = job->complete;
	FreeAccessStrategy(job->strategy);
	pfree(job);
	return complete;
}
