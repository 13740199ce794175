/*
 * rollback/zabort.c - eager rollback of small (sub)transactions by the backend
 * that aborts them.
 *
 * Owns the backend's list of pages that its current transaction has changed.
 * dml/ adds to it; the transaction callbacks in hooks.c use it up. Takes no
 * lock between calls; while undoing, one table page at a time by
 * zrollback_page_by_locator. Crash points: "abort-callback", before the first
 * page; "abort-page", before each.
 *
 * Nothing here is needed for right results: a page that is not undone here is
 * read through its undo, undone by the next writer, or by a worker.
 *
 * The entries form a stack ordered by nest level: only the innermost open
 * subtransaction notes pages. A page has at most one entry per nest level;
 * `older` leads to its entry of a lower nest level, the hash to its newest
 * one. Hash places are taken and freed in LIFO order, so linear probing needs
 * no tombstones.
 *
 * Invariants:
 *	ABORT-4	what an abort may have to undo is noted: a page changed at nest
 *		level n has an entry at n, or n lies within [overflow_min,
 *		overflow_max]; own_pending is set from the moment a subtransaction's
 *		abort leaves a page as it is until the top-level transaction ends.
 *	ABORT-7	no abort waits without end for a page (common/abort_read.c): it
 *		reads none that this backend itself has begun to read before the error,
 *		and waits for the lock of a page only for a short time
 *		(FOREIGN_LOCK_MS).
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/storage.h"
#include "common/hashfn.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "undo/undo_temp.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#define MAX_NOTED	1024
#define HASH_SIZE	(2 * MAX_NOTED)

/*
 * The rollback of a top-level transaction is left to a worker if it has written
 * more undo than this number of bytes times zundo.eager_rollback_pages.
 */
#define MAX_UNDO_PER_PAGE (4 * BLCKSZ)

typedef struct NotedPage
{
	RelFileLocator locator;
	BlockNumber block;
	Oid			reloid;
	int			level;			/* transaction nest level */
	int16		older;			/* entry of the same page at a lower nest
								 * level, -1 = none */
	uint16		place;			/* in hash[] */
	bool		logged;
} NotedPage;

/*
 * What the backend has noted of its transaction. What each change reads stands
 * together.
 */
typedef struct NotedPages
{
	int			nnoted;
	int			last;			/* entry of the page noted last, if there is
								 * one at this index */
	int			overflow_min;	/* nest levels that may have unnoted pages, 0
								 * = none */
	int			overflow_max;
	NotedPage	noted[MAX_NOTED];
	int16		hash[HASH_SIZE];	/* index into noted[] + 1, 0 = free */
	bool		own_pending;
	bool		rolled_back;	/* a subtransaction with an xid was, ... */
	TimestampTz statement;		/* ... the last one by the client's statement
								 * that began at this time */
	XLogRecPtr	undone_after;	/* before the first one of that statement */
	bool		undoing;		/* the callback is running, and a nested call
								 * does nothing */
} NotedPages;

static NotedPages my;

/* Forgets everything. Called at the end of every top-level transaction. */
static void
forget_all(void)
{
	for (int i = 0; i < my.nnoted; i++)
		my.hash[my.noted[i].place] = 0;
	my.nnoted = 0;
	my.overflow_min = my.overflow_max = 0;
	my.own_pending = false;
}

/*
 * Returns the place in hash[] of a page: where its newest entry is, or where it
 * would be put.
 */
static int
hash_place(const RelFileLocator *locator, BlockNumber block)
{
	int			place = hash_combine(murmurhash32((uint32) locator->relNumber),
									 murmurhash32(block)) % HASH_SIZE;

	Assert(my.nnoted < HASH_SIZE);
	while (my.hash[place] != 0)
	{
		const NotedPage *page = &my.noted[my.hash[place] - 1];

		if (page->block == block && RelFileLocatorEquals(page->locator, *locator))
			break;
		place = (place + 1) % HASH_SIZE;
	}
	return place;
}

/* Notes that the list lacks a page changed at this nest level (ABORT-4). */
static void
note_overflow(int level)
{
	if (my.overflow_min == 0 || level < my.overflow_min)
		my.overflow_min = level;
	if (level > my.overflow_max)
		my.overflow_max = level;
}

/*
 * zrollback_note_page: See zrollback.h. Most calls are for the same page as
 * the last one, which is found without the hash.
 */
void
zrollback_note_page(Relation rel, BlockNumber block)
{
	int			level = GetCurrentTransactionNestLevel();
	NotedPage  *page;
	int			place;

	if (RelationUsesLocalBuffers(rel))
		return;					/* see zrollback_temp.c */
	Assert(my.nnoted == 0 || my.noted[my.nnoted - 1].level <= level);
	/* rows are mostly changed page by page */
	if (my.last < my.nnoted && my.noted[my.last].level == level &&
		my.noted[my.last].block == block &&
		RelFileLocatorEquals(my.noted[my.last].locator, rel->rd_locator))
		return;
	if (level <= my.overflow_max && level >= my.overflow_min)
		return;
	place = hash_place(&rel->rd_locator, block);
	if (my.hash[place] != 0 && my.noted[my.hash[place] - 1].level == level)
	{
		my.last = my.hash[place] - 1;
		return;
	}
	if (my.nnoted >= Min(zundo_eager_rollback_pages, MAX_NOTED))
	{
		note_overflow(level);
		return;
	}
	page = &my.noted[my.nnoted];
	page->locator = rel->rd_locator;
	page->block = block;
	page->reloid = RelationGetRelid(rel);
	page->level = level;
	page->older = (int16) (my.hash[place] - 1);
	page->place = (uint16) place;
	page->logged = RelationIsPermanent(rel);
	my.last = my.nnoted++;
	my.hash[place] = (int16) my.nnoted;
}

/* zrollback_own_aborts_pending: See zrollback.h. */
bool
zrollback_own_aborts_pending(void)
{
	return my.own_pending;
}

/* Removes the newest entry from the list and returns it. */
static NotedPage
pop_page(void)
{
	NotedPage	page;

	Assert(my.nnoted > 0);
	page = my.noted[--my.nnoted];
	Assert(my.hash[page.place] == my.nnoted + 1);
	my.hash[page.place] = (int16) (page.older + 1);
	return page;
}

/*
 * zrollback_at_subxact_commit: See zrollback.h. Makes the entries of a
 * subtransaction that has committed its parent's. A page that the parent has
 * noted as well keeps the parent's entry only.
 */
void
zrollback_at_subxact_commit(int level)
{
	int			from = my.nnoted;
	int			to;

	Assert(level > 1);
	if (my.overflow_max >= level)
	{
		my.overflow_max = level - 1;
		my.overflow_min = Min(my.overflow_min, level - 1);
	}
	while (from > 0 && my.noted[from - 1].level >= level)
		from--;
	to = from;
	for (int i = from; i < my.nnoted; i++)
	{
		NotedPage	page = my.noted[i];

		if (page.older >= 0 && my.noted[page.older].level == level - 1)
		{
			my.hash[page.place] = (int16) (page.older + 1);
			continue;
		}
		page.level = level - 1;
		my.noted[to] = page;
		my.hash[page.place] = (int16) (to + 1);
		to++;
	}
	my.nnoted = to;
}

/* Returns whether the file is among those that the abort will drop. */
static bool
is_dropped(const RelFileLocator *locator, const RelFileLocator *dropped, int ndropped)
{
	for (int i = 0; i < ndropped; i++)
		if (RelFileLocatorEquals(*locator, dropped[i]))
			return true;
	return false;
}

/*
 * Undoes the entries of nest level 'level' and above, and removes them.
 * Returns whether all of them were undone or have nothing to undo. Errors
 * escape to the caller; the entries that were tried are removed then, and
 * *current is the one that the error came from.
 */
static bool
undo_pages(int level, volatile NotedPage *current)
{
	RelFileLocator *dropped = NULL;
	int			ndropped = smgrGetPendingDeletes(false, &dropped);
	RelFileLocator undo_log = zu_relation_locator();
	bool		complete = true;

	Assert(my.undoing);
	ZUNDO_FAULT("abort-callback");

	/*
	 * If CREATE EXTENSION is rolled back, the undo log is dropped with all
	 * its tables. Tables of an extension that this transaction has dropped
	 * before come back, and are left as they are.
	 */
	if (is_dropped(&undo_log, dropped, ndropped))
	{
		while (my.nnoted > 0 && my.noted[my.nnoted - 1].level >= level)
		{
			NotedPage	page = pop_page();

			if (!is_dropped(&page.locator, dropped, ndropped))
				complete = false;
		}
	}
	while (my.nnoted > 0 && my.noted[my.nnoted - 1].level >= level)
	{
		NotedPage	page = *current = pop_page();

		ZUNDO_FAULT("abort-page");
		if (is_dropped(&page.locator, dropped, ndropped))
			continue;

		/*
		 * At wal_level = minimal, changes of a file that this transaction has
		 * created are not logged, but zrollback_page_by_locator would log its
		 * change. So the page is left to the next writer, or to a worker
		 * after the commit. If the top-level transaction aborts, the file is
		 * dropped.
		 */
		if (level > 1 && page.logged && RelFileLocatorSkippingWAL(page.locator))
		{
			complete = false;
			continue;
		}
		zrollback_page_by_locator(page.locator, page.block, page.reloid, page.logged,
								  level == 1);
	}
	if (dropped != NULL)
		pfree(dropped);
	return complete;
}

/*
 * Returns whether this backend can undo pages now. It cannot while it exits,
 * for an error would become FATAL there.
 */
static bool
can_undo_now(void)
{
	return zu_attached() && !proc_exit_inprogress && !ExitOnAnyError &&
		!IsParallelWorker() && !IsInParallelMode() &&
		CurrentResourceOwner != NULL && CritSectionCount == 0;
}

/*
 * Ends the handling of an error in the callback. Interrupts must be held as
 * before, for the abort needs that.
 */
static void
forget_error(MemoryContext context, uint32 holdoff)
{
	InterruptHoldoffCount = holdoff;
	MemoryContextSwitchTo(context);
	FlushErrorState();
}

/*
 * Returns a copy of the error that is being handled, or NULL if there is none.
 * The server has no function that tells whether there is one. If ErrorContext,
 * where it keeps errors and messages, is empty, there is none; else
 * CopyErrorData is called, which raises an error if there is none.
 */
static ErrorData *
error_under_way(void)
{
	ErrorData  *volatile error = NULL;
	MemoryContext context = CurrentMemoryContext;
	uint32		holdoff = InterruptHoldoffCount;

	if (MemoryContextIsEmpty(ErrorContext))
		return NULL;
	PG_TRY();
	{
		error = CopyErrorData();
	}
	PG_CATCH();
	{
		forget_error(context, holdoff);
	}
	PG_END_TRY();
	return error;
}

/*
 * Makes error the one that is being handled: an error that is being handled
 * while its transaction aborts is the same afterwards.
 */
static void
put_back(ErrorData *error)
{
	MemoryContext context = CurrentMemoryContext;

	PG_TRY();
	{
		ReThrowError(error);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
	}
	PG_END_TRY();
}

/*
 * Undoes what the (sub)transaction at nest level 'level' has noted, and
 * forgets it. Returns whether nothing of it can be left on a page. Raises no
 * error and leaves no LWLock held; buffer pins that an error has left belong
 * to the aborting resource owner.
 */
static bool
undo_level(int level)
{
	volatile bool complete = true;
	uint32		holdoff = InterruptHoldoffCount;
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	Assert(!my.undoing);
	if (my.overflow_max >= level)
		complete = false;
	if (my.nnoted == 0 || my.noted[my.nnoted - 1].level < level)
		return complete;
	if (!can_undo_now() ||
		(level == 1 &&
		 zu_my_transaction_bytes() > (uint64) zundo_eager_rollback_pages * MAX_UNDO_PER_PAGE))
		complete = false;
	else
	{
		ErrorData  *outer = error_under_way();
		volatile NotedPage current;

		my.undoing = true;
		zundo_abort_forget_io();
		current.locator.relNumber = InvalidRelFileNumber;
		PG_TRY();
		{
			if (!undo_pages(level, &current))
				complete = false;
		}
		PG_CATCH();
		{
			ErrorData  *error;

			MemoryContextSwitchTo(context);
			error = CopyErrorData();
			forget_error(context, holdoff);
			LWLockReleaseAll();
			zundo_abort_forget_io();
			UnlockBuffers();
			CurrentResourceOwner = owner;
			complete = false;
			ereport(LOG,
					(errcode(error->sqlerrcode),
					 RelFileNumberIsValid(current.locator.relNumber) ?
					 errmsg("could not immediately undo changes of an aborted transaction in "
							"block %u of the table with OID %u, file %u: %s",
							current.block, current.reloid, current.locator.relNumber,
							error->message) :
					 errmsg("could not immediately undo changes of an aborted transaction: %s",
							error->message),
					 error->detail != NULL ? errdetail_internal("%s", error->detail) : 0,
					 errhint("Readers ignore these changes. A background worker will undo them.")));
			FreeErrorData(error);
			if (outer != NULL)
				put_back(outer);
		}
		PG_END_TRY();
		if (outer != NULL)
			FreeErrorData(outer);
		my.undoing = false;
	}
	while (my.nnoted > 0 && my.noted[my.nnoted - 1].level >= level)
		(void) pop_page();
	return complete;
}

/*
 * zrollback_at_xact_end: See zrollback.h. Undoes what the top-level
 * transaction has noted if it has aborted, and forgets the list in any case.
 * Returns whether aborted changes may be left on pages, for a worker. Called
 * before zu_at_xact_end. Raises no error.
 */
bool
zrollback_at_xact_end(bool aborted)
{
	bool		left = my.own_pending;

	Assert(my.nnoted == 0 || aborted || my.noted[my.nnoted - 1].level == 1);
	if (aborted)
	{
		if (my.undoing || !undo_level(1))
			left = true;
		my.undoing = false;
	}
	forget_all();
	return left;
}

/*
 * zrollback_in_statement: See zrollback.h. The LSN tells of changes by others,
 * too. A background worker that sets no time has one statement.
 */
bool
zrollback_in_statement(Relation rel, Page page)
{
	return my.rolled_back && my.statement == GetCurrentStatementStartTimestamp() &&
		(!RelationNeedsWAL(rel) || PageGetLSN(page) > my.undone_after);
}

/*
 * zrollback_at_subxact_abort: See zrollback.h. Undoes what the aborted
 * subtransaction at this nest level has noted. Raises no error.
 */
void
zrollback_at_subxact_abort(int level)
{
	if (TransactionIdIsValid(GetCurrentTransactionIdIfAny()))
	{
		TimestampTz now = GetCurrentStatementStartTimestamp();

		if (!my.rolled_back || my.statement != now)
			my.undone_after = GetXLogInsertRecPtr();
		my.statement = now;
		my.rolled_back = true;
	}
	if (my.undoing || !undo_level(level))
		my.own_pending = true;
	if (my.overflow_max >= level)
	{
		my.overflow_max = level - 1;
		if (my.overflow_min >= level)
			my.overflow_min = my.overflow_max = 0;
	}
}
