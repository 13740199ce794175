/*
 * mvcc/zlevel.c - the levels of the executor: which query runs inside which.
 *
 * Owns the stack of levels of this backend, and the list of the rows that they
 * have locked. Called by hooks.c (push, pop), dml/ (what a level locks and
 * changes), zany.c (what a fetch wants), zctid.c (the query's plan), and scan/
 * (whether there is a level, and whether its query only reads). Nothing here is
 * shared.
 *
 * Locks: none. Crash points: none. Each level notes its own last change:
 * nested queries (of index expressions, of triggers) have levels of their own.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/executor.h"
#include "mvcc/zlevel.h"
#include "mvcc/zxid.h"
#include "parser/parsetree.h"
#include "port/pg_bitutils.h"
#include "utils/memutils.h"

/*
 * The version that a level has locked for the row that it is about to change,
 * named by its author. Lives in the level's per-tuple memory: the executor
 * resets that before it takes the next row from the plan, which may be the same
 * row again, computed from the version that the snapshot shows.
 */
typedef struct LockedRow
{
	struct LockedRow *next;
	EState	   *estate;
	Oid			reloid;			/* InvalidOid: forgotten */
	ItemPointerData tid;
	UndoPtr		author;			/* InvalidUndoPtr: visible to all */
	MemoryContextCallback callback;
} LockedRow;

static struct
{
	ZLevel		none;			/* outside the executor, as in logical
								 * replication */
	ZLevel	   *current;		/* NULL = &none */
	LockedRow  *locked;			/* of all levels */
	struct
	{
		Oid			reloid;		/* InvalidOid: none */
		ItemPointerData tid;
		CommandId	cid;
	}			found;			/* outside of any query (DML-15) */
	struct
	{
		Oid			reloid;		/* InvalidOid: none */
		ItemPointerData tid;
		ZVersion	version;
	}			conflict;		/* found with a Dirty snapshot (DML-15) */
}			levels;

/* zlevel_current: See zlevel.h. */
ZLevel *
zlevel_current(void)
{
	return levels.current != NULL ? levels.current : &levels.none;
}

/* zlevel_push: See zlevel.h. */
void
zlevel_push(ZLevel *level, const QueryDesc *query)
{
	Assert(level != zlevel_current());
	memset(level, 0, sizeof(*level));
	level->outer = zlevel_current();
	if (query != NULL)
	{
		level->query = query;
		level->estate = query->estate;
		level->plan = query->planstate;
	}
	levels.current = level;
}

/* zlevel_pop: See zlevel.h. */
bool
zlevel_pop(ZLevel *level)
{
	Assert(levels.current == level);
	levels.current = level->outer;
	if (level->bytes != NULL)
		pfree(level->bytes);
	return level->outer == &levels.none;
}

#if !ZC_TELLS_READ_ONLY

/* Returns whether the query changes the table or locks rows of it. */
static bool
changes_table(const QueryDesc *query, Oid reloid)
{
	const PlannedStmt *stmt = query->plannedstmt;
	ListCell   *lc;

	foreach(lc, stmt->resultRelations)
		if (rt_fetch(lfirst_int(lc), stmt->rtable)->relid == reloid)
		return true;
	foreach(lc, stmt->rowMarks)
		if (rt_fetch(lfirst_node(PlanRowMark, lc)->rti, stmt->rtable)->relid == reloid)
		return true;
	return false;
}

/*
 * zlevel_reads_only: See zlevel.h. Scans ask for each page, so the answer for
 * the last table is kept: a query may change a thousand partitions. The result
 * relations of an INSERT do not contain the partitions to which it routes rows.
 */
bool
zlevel_reads_only(Relation rel)
{
	ZLevel	   *level = zlevel_current();

	if (level->query == NULL)
		return false;
	if (level->asked.reloid != RelationGetRelid(rel))
	{
		level->asked.reloid = RelationGetRelid(rel);
		level->asked.reads_only = !changes_table(level->query, RelationGetRelid(rel));
	}
	return level->asked.reads_only;
}

#endif

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

/* zlevel_has_locked: See zlevel.h. */
bool
zlevel_has_locked(Relation rel, const ItemPointerData *tid)
{
	return find_locked(rel, tid) != NULL;
}

/* zlevel_is_locked: See zlevel.h. */
bool
zlevel_is_locked(Relation rel, const ItemPointerData *tid, UndoPtr author)
{
	LockedRow  *row = find_locked(rel, tid);

	return row != NULL && row->author == author;
}

/*
 * zlevel_note_locked: See zlevel.h. The note lives in the memory of the row
 * that the query is processing, and unlinks itself when that is reset.
 */
void
zlevel_note_locked(Relation rel, const ItemPointerData *tid, UndoPtr author)
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
	row->author = author;
}

/* zlevel_forget_locked: See zlevel.h. */
void
zlevel_forget_locked(Relation rel, const ItemPointerData *tid)
{
	LockedRow  *row = find_locked(rel, tid);

	if (unlikely(row != NULL))
		row->reloid = InvalidOid;	/* its memory is freed before the next row */
	if (unlikely(zlevel_current()->estate == NULL))
		levels.found.reloid = InvalidOid;
}

/* zlevel_note_lock: See zlevel.h. */
void
zlevel_note_lock(Relation rel, const ItemPointerData *tid, ZXid xid, CommandId cid, bool by_plan)
{
	ZLevel	   *level = zlevel_current();

	Assert(xid != InvalidZXid);
	level->lock[by_plan].xid = xid;
	level->lock[by_plan].cid = cid;
	level->lock[by_plan].reloid = RelationGetRelid(rel);
	level->lock[by_plan].tid = *tid;
}

/*
 * zlevel_locked_last: See zlevel.h. Between the lock of an upsert and its
 * update, a subquery of the SET clause may lock other rows.
 */
bool
zlevel_locked_last(Relation rel, const ItemPointerData *tid, ZXid xid, CommandId cid)
{
	const ZLevel *level = zlevel_current();

	for (int i = 0; i < lengthof(level->lock); i++)
		if (level->lock[i].xid == xid && level->lock[i].cid == cid &&
			level->lock[i].reloid == RelationGetRelid(rel) &&
			ItemPointerEquals(unconstify(ItemPointerData *, &level->lock[i].tid),
							  unconstify(ItemPointerData *, tid)))
			return true;
	return false;
}

/* zlevel_note_found: See zlevel.h. */
void
zlevel_note_found(Relation rel, const ItemPointerData *tid, CommandId cid)
{
	Assert(zlevel_current()->estate == NULL);
	levels.found.reloid = RelationGetRelid(rel);
	levels.found.tid = *tid;
	levels.found.cid = cid;
}

/*
 * zlevel_found_by: See zlevel.h. A version that our transaction has written
 * since then, in a trigger function, is not the one that was found.
 */
CommandId
zlevel_found_by(Relation rel, const ItemPointerData *tid, CommandId cid)
{
	if (likely(levels.found.reloid != RelationGetRelid(rel)) ||
		zlevel_current()->estate != NULL ||
		!ItemPointerEquals(&levels.found.tid, unconstify(ItemPointerData *, tid)))
		return cid;
	Assert(levels.found.cid <= cid);
	return levels.found.cid;
}

/* zlevel_note_conflict: See zlevel.h. */
void
zlevel_note_conflict(Relation rel, const ItemPointerData *tid, const ZVersion *version)
{
	levels.conflict.reloid = RelationGetRelid(rel);
	levels.conflict.tid = *tid;
	zversion_copy(&levels.conflict.version, version);
}

/* zlevel_conflict: See zlevel.h. */
const ZVersion *
zlevel_conflict(Relation rel, const ItemPointerData *tid)
{
	if (likely(levels.conflict.reloid != RelationGetRelid(rel)) ||
		!ItemPointerEquals(&levels.conflict.tid, unconstify(ItemPointerData *, tid)))
		return NULL;
	levels.conflict.reloid = InvalidOid;
	return &levels.conflict.version;
}

/*
 * zlevel_note_change: See zlevel.h. The memory outlives the transaction, as the
 * level of a procedure does, and is used again for the level's next change.
 */
void
zlevel_note_change(Relation rel, const ItemPointerData *tid, const ZChangedRow *rows, bool event)
{
	ZLevel	   *level = zlevel_current();
	uint32		size = rows->oldlen + rows->newlen;

	Assert(rows->change != InvalidUndoPtr);
	Assert(rows->oldlen > 0 && rows->oldlen <= BLCKSZ && rows->newlen <= BLCKSZ);
	level->changed.change = InvalidUndoPtr;
	if (size > level->capacity)
	{
		uint32		capacity = pg_nextpower2_32(Max(size, 1024));

		if (level->bytes != NULL)
			pfree(level->bytes);
		level->bytes = NULL;
		level->capacity = 0;
		level->bytes = MemoryContextAlloc(TopMemoryContext, capacity);
		level->capacity = capacity;
	}
	memcpy(level->bytes, rows->old, rows->oldlen);
	if (rows->newlen > 0)
		memcpy(level->bytes + rows->oldlen, rows->new, rows->newlen);
	level->changed = *rows;
	level->changed.old = level->bytes;
	level->changed.new = level->bytes + rows->oldlen;
	level->event = event;
	level->reloid = RelationGetRelid(rel);
	level->tid = *tid;
}

/*
 * zlevel_changed: See zlevel.h. The change may be one of a subtransaction that
 * has been rolled back.
 */
const ZChangedRow *
zlevel_changed(const ZLevel *level, Relation rel, const ItemPointerData *tid)
{
	if (level->changed.change == InvalidUndoPtr || level->reloid != RelationGetRelid(rel) ||
		!ItemPointerEquals(unconstify(ItemPointerData *, &level->tid),
						   unconstify(ItemPointerData *, tid)) ||
		!TransactionIdIsCurrentTransactionId(zxid_to_xid(level->changed.xid)))
		return NULL;
	return &level->changed;
}

/* zlevel_at_xact_end: See zlevel.h. */
void
zlevel_at_xact_end(void)
{
	levels.none.changed.change = InvalidUndoPtr;
	levels.found.reloid = InvalidOid;
	levels.conflict.reloid = InvalidOid;
}
