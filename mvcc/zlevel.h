/*
 * mvcc/zlevel.h - the levels of the executor: which query runs inside which.
 *
 * A fetch with SnapshotAny names a row, not a version; which version is wanted
 * follows from the level that fetches (mvcc/zany.c). hooks.c pushes and pops
 * the levels, dml/ notes here what a level has locked and changed.
 */
#ifndef ZUNDO_ZLEVEL_H
#define ZUNDO_ZLEVEL_H

#include "common/zundo.h"
#include "executor/execdesc.h"
#include "mvcc/zvis.h"
#include "undo/undo.h"
#include "utils/rel.h"

/* A row before and after one of our own changes. */
typedef struct ZChangedRow
{
	UndoPtr		change;			/* the record of the update or delete;
								 * InvalidUndoPtr: there is none */
	ZXid		xid;			/* of the change */
	ZXid		chain_xid;		/* where the search for the author of the old
								 * row begins, as in ZVersion */
	UndoPtr		chain;
	CommandId	cid;			/* of the change */
	uint32		oldlen;
	uint32		newlen;			/* 0: the row was not updated in place.
								 * zhandle.c stores the members up to here */
	const char *old;
	const char *new;
} ZChangedRow;

/* One level. It lives on the C stack of the hook that pushes it. */
typedef struct ZLevel
{
	struct ZLevel *outer;		/* NULL: not within the executor */
	const QueryDesc *query;		/* NULL: a utility command, or no executor */
	EState	   *estate;			/* of the query; NULL as above */
	PlanState  *plan;			/* of the query; NULL as above */
	bool		explains_undo;	/* the command is EXPLAIN (UNDO) */

	/*
	 * The last change of this level whose old row the server will fetch, and
	 * the TID of that row. The rows are in bytes.
	 */
	ZChangedRow changed;
	bool		event;			/* an AFTER trigger's event may be queued for
								 * the change */
	Oid			reloid;
	ItemPointerData tid;
	char	   *bytes;			/* NULL: no change yet */
	uint32		capacity;		/* of bytes */

	/* The rows that this level has locked last: [1] by its plan, [0] others. */
	struct
	{
		ZXid		xid;		/* of the locker; Invalid: none */
		CommandId	cid;
		Oid			reloid;
		ItemPointerData tid;
	}			lock[2];

	/* What zlevel_reads_only has answered last. */
	struct
	{
		Oid			reloid;		/* InvalidOid: nothing yet */
		bool		reads_only;
	}			asked;
} ZLevel;

/*
 * zlevel_push: enters a level: *level becomes the innermost one until
 * zlevel_pop. query is the started query, or NULL for a utility command.
 *
 * zlevel_pop: leaves level, which is the innermost one. Returns whether no
 * other is left. An error must pass zlevel_pop, too.
 *
 * zlevel_current: returns the innermost level; if there is none, one without
 * an EState that stands for the session. Never NULL.
 */
extern void zlevel_push(ZLevel *level, const QueryDesc *query);
extern bool zlevel_pop(ZLevel *level);
extern ZLevel *zlevel_current(void);

/*
 * zlevel_reads_only: returns whether the query of the current level neither
 * changes the table nor locks its rows. False outside of a query. Up to 18;
 * later the server tells it.
 */
#if !ZC_TELLS_READ_ONLY
extern bool zlevel_reads_only(Relation rel);
#endif

/*
 * zlevel_note_lock: notes that (sub)transaction xid has locked the row at tid
 * for command cid, perhaps without a record because it held the row already.
 * by_plan: the query is SELECT FOR UPDATE or its kind, or has a part that is.
 *
 * zlevel_locked_last: returns whether this is the row that the current level
 * has locked last, by its plan or otherwise, for the same (sub)transaction and
 * command. An update of such a row shows our xid as xmax, as heap does;
 * applications use that to distinguish the UPDATE of an upsert from its INSERT.
 */
extern void zlevel_note_lock(Relation rel, const ItemPointerData *tid, ZXid xid, CommandId cid,
							 bool by_plan);
extern bool zlevel_locked_last(Relation rel, const ItemPointerData *tid, ZXid xid, CommandId cid);

/*
 * zlevel_has_locked, zlevel_is_locked: return whether the current level has
 * locked, for the row that it is processing, some version at tid, or exactly
 * the version that the record at author has written.
 *
 * zlevel_note_locked: notes that tuple_lock has locked the newest version at
 * tid, written by the record at author, for the row that the current level is
 * about to change. Not called for FOR UPDATE, whose locks are part of the
 * plan. Does nothing outside of a query.
 *
 * zlevel_forget_locked: notes that the current level has changed the row at
 * tid: what it had locked or found there for this change does not matter any
 * more.
 *
 * zlevel_note_found: notes that command cid, outside of any query, has found
 * and locked the row at tid, which it is about to change.
 *
 * zlevel_found_by: returns the command that has found the row at tid which
 * command cid is to change: the one noted by zlevel_note_found, else cid.
 *
 * zlevel_note_change: notes that the current level has changed the row at tid,
 * and that the server will ask for the old row; keeps copies of both rows.
 * event: the server may also queue a trigger's event.
 *
 * zlevel_changed: returns the rows of the change noted last in this level, if
 * it was of the row at tid and has not been undone since; else NULL. Valid
 * until the next change or the end of the level.
 */
extern bool zlevel_has_locked(Relation rel, const ItemPointerData *tid);
extern bool zlevel_is_locked(Relation rel, const ItemPointerData *tid, UndoPtr author);
extern void zlevel_note_locked(Relation rel, const ItemPointerData *tid, UndoPtr author);
extern void zlevel_forget_locked(Relation rel, const ItemPointerData *tid);
extern void zlevel_note_found(Relation rel, const ItemPointerData *tid, CommandId cid);
extern CommandId zlevel_found_by(Relation rel, const ItemPointerData *tid, CommandId cid);
extern void zlevel_note_change(Relation rel, const ItemPointerData *tid, const ZChangedRow *rows,
							   bool event);
extern const ZChangedRow *zlevel_changed(const ZLevel *level, Relation rel,
										 const ItemPointerData *tid);

/*
 * zlevel_note_conflict: notes the version of the row at tid that an index fetch
 * with a Dirty snapshot has found last.
 *
 * zlevel_conflict: returns that version if it is of the row at tid, and forgets
 * it; else NULL. Valid until the next fetch with a Dirty snapshot.
 */
extern void zlevel_note_conflict(Relation rel, const ItemPointerData *tid,
								 const ZVersion *version);
extern const ZVersion *zlevel_conflict(Relation rel, const ItemPointerData *tid);

/*
 * zlevel_at_xact_end: forgets the last change that was made outside of the
 * executor, and the last conflict. Called after every end of a transaction.
 * Raises no error.
 */
extern void zlevel_at_xact_end(void);

#endif
