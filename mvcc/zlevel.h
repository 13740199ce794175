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
#include "nodes/execnodes.h"
#include "utils/rel.h"

/* One level. It lives on the C stack of the hook that pushes it. */
typedef struct ZLevel
{
	struct ZLevel *outer;		/* NULL: not within the executor */
	EState	   *estate;			/* NULL: a utility command, or no executor */

	/*
	 * The last change of this level whose old row the server will fetch,
	 * since it may queue an AFTER trigger's event, and its row (HANDLE-6).
	 */
	UndoPtr		change;			/* InvalidUndoPtr = none */
	bool		event;			/* an event may be queued for it */
	Oid			reloid;
	ItemPointerData tid;
} ZLevel;

extern void zlevel_push(ZLevel *level, EState *estate);
extern bool zlevel_pop(ZLevel *level);
extern ZLevel *zlevel_current(void);
extern bool zlevel_outermost(void);

extern bool zlevel_has_locked(Relation rel, const ItemPointerData *tid);
extern bool zlevel_is_locked(Relation rel, const ItemPointerData *tid, UndoPtr writer);
extern void zlevel_note_locked(Relation rel, const ItemPointerData *tid, UndoPtr writer);
extern void zlevel_forget_locked(Relation rel, const ItemPointerData *tid);
extern void zlevel_note_change(Relation rel, const ItemPointerData *tid, UndoPtr change,
							   bool event);

extern void zlevel_at_xact_end(void);

#endif
