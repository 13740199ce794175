/*
 * monitor/heap_readers.h - guards against code of other modules that would
 * take zheap pages for heap's, and against commands that would hand zheap
 * tables to such code or drop them unnoticed.
 */
#ifndef ZUNDO_HEAP_READERS_H
#define ZUNDO_HEAP_READERS_H

#include "common/zundo.h"
#include "fmgr.h"
#include "nodes/plannodes.h"
#include "utils/rel.h"

/* Functions that misread zheap pages (heap_readers.c). */
extern bool zreaders_misreads(Oid function);
extern void zreaders_count(FmgrHookEventType event, Oid function, bool *counted);

/* Number of calls of such functions that this process is in. */
extern int	zreaders_within;

/* zreaders_refuse: Raises the error that rel cannot be checked. */
extern void zreaders_refuse(Relation rel) zc_noreturn;

/*
 * zreaders_check: Raises an error if a function that would misread rel, a
 * zheap table, asks for its size.
 */
static inline void
zreaders_check(Relation rel)
{
	if (unlikely(zreaders_within > 0))
		zreaders_refuse(rel);
}

/*
 * zcallers_init: Finds the functions that zcallers_check refuses. The
 * postmaster calls it once; backends inherit the result.
 */
extern void zcallers_init(void);

/*
 * zcallers_check: Raises an error if one of heap's functions asks for the size
 * of rel, a zheap table, in order to read or write its pages. Resets
 * zundo_asks_size.
 */
extern void zcallers_check(Relation rel);

/*
 * Utility commands: the access method of tables that code of other modules
 * fills (access_method.c).
 */
extern void zaccess_method_check(Node *command);
extern int	zaccess_method_for_script(Node *command);
extern PlannedStmt *zaccess_method_of_copy(PlannedStmt *pstmt);
#ifdef ZUNDO_TESTING
extern PlannedStmt *zaccess_method_of_index(PlannedStmt *pstmt);
#else
#define zaccess_method_of_index(pstmt) (pstmt)
#endif

/*
 * Utility commands: DROP EXTENSION zundo (drop_guard.c). Whatever
 * zdrop_guard_begin returns is passed to zdrop_guard_end when the command has
 * ended, or failed.
 */
extern void zdrop_guard_check(Node *command);
extern bool zdrop_guard_begin(Node *command);
extern void zdrop_guard_end(bool begun);

#endif
