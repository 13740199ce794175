/*
 * common/fault.c - fault points. Only in builds for tests (ZUNDO_TESTING).
 *
 * Owns the list of the names of fault points. A test sets zundo.fault to
 * 'name:action[,name:action]'. A process that reaches ZUNDO_FAULT(name) then
 * takes that action every time until the setting is reset, or with
 * 'name:action:n' only the n-th time after it was set. Called from anywhere,
 * with any lock held; takes no lock.
 *
 * Nothing here allocates memory: a fault point may be in a critical section.
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "common/fault.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "utils/wait_event.h"

static const char *const fault_points[] = {
	/* the undo log */
	"undo-load",				/* before each log of a database is loaded */
	"first-look",				/* the meta page is loaded, before the first
								 * user looks for undo that others have left */
	"undo-extend",				/* before the undo relation is extended */
	"undo-alloc",				/* after the allocation of an extent was
								 * logged */
	"undo-prepare",				/* before a change locks its undo pages, with
								 * its table pages locked */
	"before-change",			/* undo pages locked, before the critical
								 * section of a change */
	"undo-pushed",				/* after a rewrite has written undo, before
								 * the table page that it belongs to */
	"overflow-reserved",		/* after an overflow page was chosen, before
								 * the table page is locked again */
	"overflow-attached",		/* after an overflow page was attached to a
								 * table page, before the change */
	"overflow-logged",			/* after attaching or freeing an overflow page
								 * was logged */
	"log-parsed",				/* the discard pass has read a log, before it
								 * looks at its transactions */
	"discard-begun",			/* pages locked, before the critical section
								 * of a discard */
	"discard-logged",			/* after a discard was logged, before its
								 * extents can be allocated */
	"truncate",					/* before the undo relation is truncated */

	/* changes of a table page: after the WAL record, page still locked */
	"insert-logged",
	"covered-logged",			/* a row that an earlier undo record covers */
	"update-logged",
	"delete-logged",
	"move-logged",
	"prune-logged",
	"inline-lock-logged",		/* a row lock that writes no undo */
	"rollback-logged",			/* the undo of one page */
	"rollback-page",			/* before a worker undoes a page of a table,
								 * with the table locked */

	/* entries of zbtree indexes */
	"keys-due",					/* after an update in place that changes keys,
								 * before their entries are added */
	"key-found",				/* has_entry has found the entry of the new
								 * key */
	"entries-judged",			/* a scan knows which entries to mark as dead,
								 * with their leaf page locked */
	"marks-cleared",			/* marks of entries were removed and logged,
								 * with their leaf page locked */
	"keys-judged",				/* entries of a table page were found stale,
								 * by page-full deletion or the worker, with
								 * their leaf page locked exclusively */
	"stale-judged",				/* VACUUM has found an entry stale, with its
								 * leaf page locked exclusively */
	"keys-cleaned",				/* VACUUM has removed stale entries, before
								 * rows lose ZH_STALE_KEYS */

	"keys-taken",				/* the worker has taken stale keys from the
								 * queue, before it looks at the index */

	"index-step",				/* a step of zundo.set_index_method is
								 * committed */

	/* row locks and updates */
	"row-locked",				/* after a row was locked or found changed,
								 * page unlocked, before its version is read */
	"converting-locks",			/* between two inline locks that become undo
								 * records */
	"locks-converted",			/* after inline locks were logged as undo
								 * records */
	"locks-done",				/* all inline locks converted, before the
								 * change that needs their slot */
	"columns-read",				/* after the columns of a table's indexes were
								 * read, before its triggers are */
	"computed-evaluated",		/* after expressions were evaluated for an
								 * update, before its row is looked at again */
	"rows-saved",				/* before the page is pruned of them */
	"row-counted",				/* after an update was noted for rollback,
								 * before its statistics are counted */
	"no-slot",					/* before a page without a free slot is pruned */
	"insert-page",				/* before a page for new rows is locked */

	/* readers */
	"rows-written",				/* before rows of trigger events are written
								 * to a file */
	"locked-chain",				/* before a chain of a locked page is read */
	"lockers-chain",			/* the head's transaction is in progress,
								 * before its chain is read to find row locks */
	"version-passed",			/* a reader of one row has passed over a
								 * version that it does not see */
	"deleters-chain",			/* before a chain is read to find index
								 * entries that can be deleted */

	/* transactions and processes */
	"indexes-cleaned",			/* VACUUM has cleaned every index, before it
								 * frees line pointers */
	"before-commit",			/* in the pre-commit callback */
	"convert-committed",		/* after each commit of zundo.convert */
	"abort-callback",			/* at the start of the abort callback */
	"abort-page",				/* in the abort callback, before each page */
	"rollback-table",			/* a subtransaction has begun for the rollback
								 * of a table's pages, but not its handler */
	"worker-cycle",				/* at the start of a worker's cycle */
	"taking-log"				/* before a log is taken from an idle session */
};

typedef enum FaultAction
{
	FAULT_NONE,
	FAULT_ERROR,
	FAULT_DISK,
	FAULT_MEMORY,
	FAULT_CANCEL,
	FAULT_CRASH,
	FAULT_SLEEP
} FaultAction;

/* Returns true if the len bytes at word are this string. */
static bool
word_is(const char *word, size_t len, const char *string)
{
	return strlen(string) == len && memcmp(word, string, len) == 0;
}

/* Returns the action of this name, FAULT_NONE if there is none. */
static FaultAction
parse_action(const char *word, size_t len)
{
	if (word_is(word, len, "error"))
		return FAULT_ERROR;
	if (word_is(word, len, "disk"))
		return FAULT_DISK;
	if (word_is(word, len, "memory"))
		return FAULT_MEMORY;
	if (word_is(word, len, "cancel"))
		return FAULT_CANCEL;
	if (word_is(word, len, "crash"))
		return FAULT_CRASH;
	if (word_is(word, len, "sleep"))
		return FAULT_SLEEP;
	return FAULT_NONE;
}

/* How often each fault point was reached since zundo.fault was set. */
static int	hits[lengthof(fault_points)];

/* Returns the index of the fault point of this name, -1 if there is none. */
static int
fault_point(const char *word, size_t len)
{
	for (int i = 0; i < (int) lengthof(fault_points); i++)
	{
		if (word_is(word, len, fault_points[i]))
			return i;
	}
	return -1;
}

/* One 'name:action[:n]' of the setting. */
typedef struct FaultItem
{
	const char *name;
	size_t		name_len;
	const char *action;
	size_t		action_len;
	int			nth;			/* 0 = every time; -1 = not a number */
} FaultItem;

/*
 * Parses the first item of *spec and moves *spec behind it and its comma.
 * Returns false if the item has no colon.
 */
static bool
next_item(const char **spec, FaultItem *item)
{
	const char *start = *spec;
	size_t		len = strcspn(start, ",");
	const char *colon = memchr(start, ':', len);
	const char *second;

	Assert(*start != '\0');
	*spec = start + len + (start[len] == ',' ? 1 : 0);
	if (colon == NULL)
		return false;
	item->name = start;
	item->name_len = colon - start;
	item->action = colon + 1;
	item->action_len = len - item->name_len - 1;
	item->nth = 0;
	second = memchr(item->action, ':', item->action_len);
	if (second != NULL)
	{
		size_t		digits = item->action + item->action_len - second - 1;

		item->action_len = second - item->action;
		item->nth = digits >= 1 && digits <= 6 && strspn(second + 1, "0123456789") >= digits
			? atoi(second + 1) : -1;
	}
	return true;
}

/* zundo_fault_problem: See fault.h. */
const char *
zundo_fault_problem(const char *spec)
{
	Assert(spec != NULL);
	while (*spec != '\0')
	{
		FaultItem	item;

		if (!next_item(&spec, &item))
			return "Each item must have the form name:action or name:action:number.";
		if (fault_point(item.name, item.name_len) < 0)
			return "There is no fault point of this name.";
		if (parse_action(item.action, item.action_len) == FAULT_NONE)
			return "Actions are error, disk, memory, cancel, crash and sleep.";
		if (item.nth < 0)
			return "What follows the action must be a number.";
	}
	return NULL;
}

/* zundo_fault_reset: See fault.h. */
void
zundo_fault_reset(void)
{
	memset(hits, 0, sizeof(hits));
}

/* Raises the error that zundo.fault asks for. */
static void
fail(const char *name, int sqlstate)
{
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("zundo fault point \"%s\"", name),
			 errhint("The setting \"zundo.fault\" requests this error. Reset it to disable the "
					 "fault point.")));
}

/*
 * zundo_fault_hit: See zundo.h. Goes through all items of zundo.fault, since
 * the point may have several, for different visits. Counts the visit once.
 */
void
zundo_fault_hit(const char *name)
{
	const char *spec = zundo_fault_spec;
	int			hit = 0;

	Assert(fault_point(name, strlen(name)) >= 0);
	while (spec != NULL && *spec != '\0')
	{
		FaultItem	item;

		if (!next_item(&spec, &item) || !word_is(item.name, item.name_len, name))
			continue;
		Assert(item.nth >= 0);	/* zundo_fault_problem refuses others */
		if (hit == 0)
			hit = ++hits[fault_point(name, strlen(name))];
		if (item.nth > 0 && item.nth != hit)
			continue;
		switch (parse_action(item.action, item.action_len))
		{
			case FAULT_ERROR:
				fail(name, ERRCODE_INTERNAL_ERROR);
				break;
			case FAULT_DISK:
				fail(name, ERRCODE_DISK_FULL);
				break;
			case FAULT_MEMORY:
				fail(name, ERRCODE_OUT_OF_MEMORY);
				break;
			case FAULT_CANCEL:

				/*
				 * As if the signal had arrived now: the next
				 * CHECK_FOR_INTERRUPTS() serves it.
				 */
				QueryCancelPending = true;
				InterruptPending = true;
				break;
			case FAULT_CRASH:
				kill(getpid(), SIGKILL);
				break;
			case FAULT_SLEEP:
				/* a test that needs it finds it in pg_stat_activity */
				pgstat_report_wait_start(WAIT_EVENT_PG_SLEEP);
				pg_usleep(1000000L);
				pgstat_report_wait_end();
				break;
			case FAULT_NONE:
				break;
		}
		return;
	}
}
