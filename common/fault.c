/*
 * common/fault.c - fault points, and the error for what zheap does not do.
 *
 * Owns the list of fault point names. A test sets zundo.fault to
 * 'name:action[,name:action]'; the process that reaches ZUNDO_FAULT(name) then
 * fails as told, every time, until the setting is taken back. Called from
 * anywhere, under any lock; takes none.
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

static const char *const fault_points[] = {
	"undo-extend",				/* before the undo relation grows */
	"undo-alloc",				/* after an extent's allocation is logged */
	"insert-logged",			/* after the WAL record, pages not yet unlocked */
	"update-logged",
	"delete-logged",
	"move-logged",
	"prune-logged",
	"inline-lock-logged",		/* a lock without undo */
	"converting-locks",			/* some such locks have got their undo record, others not yet */
	"locks-converted",			/* such locks became undo records */
	"rollback-logged",			/* after one page's undo is logged */
	"overflow-logged",			/* after an overflow page was given to a page or freed */
	"discard-logged",			/* discard is logged, extents not yet allocatable */
	"before-commit",			/* in the pre-commit callback */
	"abort-callback",			/* at the start of the abort callback */
	"worker-cycle",				/* at the start of a worker's round */
	"truncate"					/* before the undo relation is cut */
};

typedef enum FaultAction
{
	FAULT_NONE,
	FAULT_ERROR,
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
	if (word_is(word, len, "crash"))
		return FAULT_CRASH;
	if (word_is(word, len, "sleep"))
		return FAULT_SLEEP;
	return FAULT_NONE;
}

static bool
is_fault_point(const char *word, size_t len)
{
	for (int i = 0; i < (int) lengthof(fault_points); i++)
	{
		if (word_is(word, len, fault_points[i]))
			return true;
	}
	return false;
}

/*
 * next_item: take one 'name:action' from *spec; on return *spec is after it and
 * its comma. False if there is no colon in it.
 */
static bool
next_item(const char **spec, const char **name, size_t *name_len, const char **action,
		  size_t *action_len)
{
	const char *item = *spec;
	size_t		len = strcspn(item, ",");
	const char *colon = memchr(item, ':', len);

	*spec = item + len + (item[len] == ',' ? 1 : 0);
	if (colon == NULL)
		return false;
	*name = item;
	*name_len = colon - item;
	*action = colon + 1;
	*action_len = len - *name_len - 1;
	return true;
}

/* zundo_fault_problem: see fault.h. */
const char *
zundo_fault_problem(const char *spec)
{
	while (*spec != '\0')
	{
		const char *name;
		const char *action;
		size_t		name_len;
		size_t		action_len;

		if (!next_item(&spec, &name, &name_len, &action, &action_len))
			return "Each item must have the form name:action.";
		if (!is_fault_point(name, name_len))
			return "There is no fault point of this name.";
		if (parse_action(action, action_len) == FAULT_NONE)
			return "Actions are error, crash and sleep.";
	}
	return NULL;
}

/*
 * zundo_fault_hit: this process is at the fault point 'name'; do what
 * zundo.fault says of it. Error ERRCODE_INTERNAL_ERROR if it says 'error'.
 */
void
zundo_fault_hit(const char *name)
{
	const char *spec = zundo_fault_spec;

	while (spec != NULL && *spec != '\0')
	{
		const char *word;
		const char *action;
		size_t		word_len;
		size_t		action_len;

		if (!next_item(&spec, &word, &word_len, &action, &action_len) ||
			!word_is(word, word_len, name))
			continue;
		switch (parse_action(action, action_len))
		{
			case FAULT_ERROR:
				ereport(ERROR,
						(errcode(ERRCODE_INTERNAL_ERROR),
						 errmsg("zundo fault point \"%s\"", name),
						 errhint("This error was asked for: RESET zundo.fault ends it.")));
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

/*
 * zundo_not_supported: raise ERRCODE_FEATURE_NOT_SUPPORTED: "zheap: <what>",
 * with detail as errdetail unless NULL.
 */
void
zundo_not_supported(const char *what, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("zheap: %s", what),
			 detail ? errdetail("%s", detail) : 0));
	pg_unreachable();
}
