/*
 * mvcc/zlevel.c - the levels of the executor: which query runs inside which.
 *
 * Owns the stack of levels of this backend, and the list of the rows that they
 * have locked. Called by hooks.c (push, pop), dml/ (what a level locks and
 * changes) and zany.c (what a fetch wants). Nothing here is shared.
 *
 * Locks: none. Crash points: none. Invariant HANDLE-6 in mvcc/README.md.
 */
#include "postgres.h"

#include "executor/executor.h"
#include "mvcc/zlevel.h"
#include "utils/memutils.h"

/*
 * The version that a level has locked for the row that it is about to change,
 * named by its writer. Lives in the level's per-tuple memory: the executor
 * resets that before it takes the next row from the plan, which may be the same
 * row again, computed from the version that the snapshot shows.
 */
typedef struct LockedRow
{
	struct LockedRow *next;
	EState	   *estate;
	Oid			reloid;			/* InvalidOid: forgotten */
	ItemPointerData tid;
	UndoPtr		writer;			/* InvalidUndoPtr: visible to all */
	MemoryContextCallback callback;
} LockedRow;

static struct
{
	ZLevel		none;			/* outside the executor, as in logical
								 * replication */
	ZLevel	   *current;		/* NULL = &none */
	LockedRow  *locked;			/* of all levels */
}			levels;

/* Returns the innermost level. */
ZLevel *
zlevel_current(void)
{
	return levels.current != NULL ? levels.current : &levels.none;
}

/*
 * Enters a level: *level becomes the innermost one until zlevel_pop. estate is
 * that of the query, or NULL for a utility command.
 */
void
zlevel_push(ZLevel *level, EState *estate)
{
	Assert(level != zlevel_current());
	memset(level, 0, sizeof(*level));
	level->outer = zlevel_current();
	level->estate = estate;
	levels.current = level;
}

/* Leaves the innermost level. Returns whether it was the last one. */
bool
zlevel_pop(ZLevel *level)
{
	Assert(levels.current == level);
	levels.current = level->outer;
	return level->outer == &levels.none;
}

/*
 * Returns whether no query is being executed: all levels, if any, are those of
 * utility commands.
 */
bool
zlevel_outermost(void)
{
	for (const ZLevel *level = zlevel_current(); level != NULL; level = level->outer)
		if (level->estate != NULL)
			return false;
	return true;
}

/* Takes the LockedRow arg out of the list; its memory is about to be freed. */
static void
unlink_locked(void *arg)
{
	LockedRow **link = &levels.locked;

	while (*link != NULL && *link != arg)
		link = &(*link)->next;
	if (*link != NULL)
		*link = (*link)->next;
}

/*
 * Returns what the current level has locked at tid for the row that it is
 * processing, or NULL if it has locked nothing there.
 */
static LockedRow *
find_locked(Relation rel, const ItemPointerData *tid)
{
	EState	   *estate = zlevel_current()->estate;

	if (estate == NULL)
		return NULL;
	for (LockedRow *row = levels.locked; row != NULL; row = row->next)
		if (row->estate == estate && row->reloid == RelationGetRelid(rel) &&
			ItemPointerEquals(&row->tid, unconstify(ItemPointerData *, tid)))
			return row;
	return NULL;
}

/*
 * Returns whether the current level has locked some version at tid for the row
 * that it is processing.
 */
bool
zlevel_has_locked(Relation rel, const ItemPointerData *tid)
{
	return find_locked(rel, tid) != NULL;
}

/*
 * Returns whether the current level has locked exactly this version for the
 * row that it is processing.
 */
bool
zlevel_is_locked(Relation rel, const ItemPointerData *tid, UndoPtr writer)
{
	LockedRow  *row = find_locked(rel, tid);

	return row != NULL && row->writer == writer;
}

/*
 * Notes that tuple_lock has locked the newest version at tid, written by the
 * record writer, for the row that the current level is about to change. Not
 * called for FOR UPDATE, whose locks are part of the plan. Does nothing
 * outside of a query.
 */
void
zlevel_note_locked(Relation rel, const ItemPointerData *tid, UndoPtr writer)
{
	EState	   *estate = zlevel_current()->estate;
	LockedRow  *row;

	if (estate == NULL)
		return;
	row = find_locked(rel, tid);
	if (row == NULL)
	{
		MemoryContext context = GetPerTupleMemoryContext(estate);

		row = MemoryContextAllocZero(context, sizeof(LockedRow));
		row->estate = estate;
		row->reloid = RelationGetRelid(rel);
		row->tid = *tid;
		row->next = levels.locked;
		row->callback.func = unlink_locked;
		row->callback.arg = row;
		MemoryContextRegisterResetCallback(context, &row->callback);
		levels.locked = row;
	}
	row->writer = writer;
}

/*
 * Notes that the current level has changed the row at tid: what it had locked
 * there for this change does not matter any more.
 */
void
zlevel_forget_locked(Relation rel, const ItemPointerData *tid)
{
	LockedRow  *row = find_locked(rel, tid);

	if (unlikely(row != NULL))
		row->reloid = InvalidOid;	/* its memory is freed before the next row */
}

/*
 * Notes that the current level has changed the row at tid by the record
 * change, and that the server will ask for the old row. event: it may also
 * queue a trigger's event.
 */
void
zlevel_note_change(Relation rel, const ItemPointerData *tid, UndoPtr change, bool event)
{
	ZLevel	   *level = zlevel_current();

	Assert(change != InvalidUndoPtr);
	level->change = change;
	level->event = event;
	level->reloid = RelationGetRelid(rel);
	level->tid = *tid;
}

/* Forgets the last change that was made outside of the executor. */
void
zlevel_at_xact_end(void)
{
	levels.none.change = InvalidUndoPtr;
}
