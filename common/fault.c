/*
 * common/fault.c - fault points. Only in builds for tests (ZUNDO_TESTING).
 *
 * Owns the list of fault point names. A test sets zundo.fault to
 * 'name:action[,name:action]'; the process that reaches ZUNDO_FAULT(name) then
 * fails as told, every time, until the setting is taken back; with 'name:action:n' only the n-th
 * time since it was set. Called from anywhere, under any lock; takes none.
 *
 * Invariants:
 *	F1	every name used in ZUNDO_FAULT() is in fault_points.
 *	F2	nothing here allocates: a hit may be in a critical section.
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "common/fault.h"
#include "common/zundo.h"
#include "miscadmin.h"

static const char *const fault_points[] = {
	"undo-extend",				/* before the undo relation grows */
	"undo-alloc",				/* after an extent's allocation is logged */
	"undo-prepare",				/* a change is about to lock its undo pages: all else that it needs is locked */
	"before-change",			/* they are locked, the critical section is next */
	"undo-pushed",				/* a rewrite has written an undo record for a page that is not there yet */
	"insert-logged",			/* after the WAL record, pages not yet unlocked */
	"update-logged",
	"delete-logged",
	"move-logged",
	"prune-logged",
	"indexes-cleaned",			/* VACUUM has cleaned every index, the line pointers are next */
	"inline-lock-logged",		/* a lock without undo */
	"row-locked",				/* a row is locked or found changed, its page is not any more; the version to show comes next */
	"converting-locks",			/* some such locks have got their undo record, others not yet */
	"locks-converted",			/* such locks became undo records */
	"rollback-logged",			/* after one page's undo is logged */
	"locks-done",				/* all of them have, and the change for whose sake it was done comes next */
	"columns-read",				/* the columns of a table's indexes have been read, its triggers are next */
	"row-counted",				/* an update is done, and noted for rollback; its statistics are next */
	"no-slot",					/* a page has no slot left for a change or a lock and is about to be pruned */
	"overflow-reserved",		/* an overflow page is found for a page, which is not locked now */
	"overflow-attached",		/* it has been given to the page, the change that needs it comes next */
	"overflow-logged",			/* after an overflow page was given to a page or freed */
	"discard-begun",			/* its pages are locked, the critical section is next */
	"discard-logged",			/* discard is logged, extents not yet allocatable */
	"chain-grows",				/* own records of a page are being gathered for a trigger, some are there already */
	"locked-chain",				/* a chain of a locked page is about to be followed */
	"deleters-chain",			/* the same, to see what can be deleted from an index */
	"before-commit",			/* in the pre-commit callback */
	"abort-callback",			/* at the start of the abort callback */
	"abort-page",				/* in it, before each page */
	"worker-cycle",				/* at the start of a worker's round */
	"truncate"					/* before the undo relation is cut */
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

/* word_is: are the len bytes at word this string? */
static bool
word_is(const char *word, size_t len, const char *string)
{
	return strlen(string) == len && memcmp(word, string, len) == 0;
}

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

/* How often each point was reached since the setting was set. */
static int	hits[lengthof(fault_points)];

/* fault_point: index of a point; -1 = there is none of this name. */
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
 * next_item: take one item from *spec; on return *spec is after it and
 * its comma. False if there is no colon in it.
 */
static bool
next_item(const char **spec, FaultItem *item)
{
	const char *start = *spec;
	size_t		len = strcspn(start, ",");
	const char *colon = memchr(start, ':', len);
	const char *second;

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
		item->nth = digits >= 1 && digits <= 6 && strspn(second + 1, "0123456789") >= digits ? atoi(second + 1) : -1;
	}
	return true;
}

/* zundo_fault_problem: see fault.h. */
const char *
zundo_fault_problem(const char *spec)
{
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

/* zundo_fault_reset: see fault.h. */
void
zundo_fault_reset(void)
{
	memset(hits, 0, sizeof(hits));
}

/* Raise the error that the setting asks for. */
static void
fail(const char *name, int sqlstate)
{
	ereport(ERROR,
			(errcode(sqlstate),
			 errmsg("zundo fault point \"%s\"", name),
			 errhint("This error was asked for: RESET zundo.fault ends it.")));
}

/*
 * zundo_fault_hit: this process is at the fault point 'name'; do what zundo.fault says of
 * it. Errors ERRCODE_INTERNAL_ERROR, ERRCODE_DISK_FULL, ERRCODE_OUT_OF_MEMORY, as it says.
 */
void
zundo_fault_hit(const char *name)
{
	const char *spec = zundo_fault_spec;
	int			hit = 0;

	while (spec != NULL && *spec != '\0')
	{
		FaultItem	item;

		if (!next_item(&spec, &item) || !word_is(item.name, item.name_len, name))
			continue;
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
				/* as if the signal had come now: it is obeyed where interrupts are looked at */
				QueryCancelPending = true;
				InterruptPending = true;
				break;
			case FAULT_CRASH:
				kill(getpid(), SIGKILL);
				break;
			case FAULT_SLEEP:
				pg_usleep(1000000L);
				break;
			case FAULT_NONE:
				break;
		}
		return;
	}
}
