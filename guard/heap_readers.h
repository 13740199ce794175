/*
 * guard/heap_readers.h - guards against code of other modules that would
 * take zheap pages for heap's, and against commands that would hand zheap
 * tables to such code or drop them unnoticed.
 */
#ifndef ZUNDO_HEAP_READERS_H
#define ZUNDO_HEAP_READERS_H

#include "catalog/objectaccess.h"
#include "common/zundo.h"
#include "fmgr.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "utils/rel.h"

/* ---- functions that misread zheap pages (heap_readers.c) ---- */

/*
 * zreaders_misreads: returns whether the function with this OID misreads zheap
 * pages. Recognizes it by its C name, since the SQL name may be any.
 *
 * zreaders_count: counts the calls that are in progress; for the function
 * manager's hook. START is followed by END or, on an error, by ABORT. *counted
 * is kept between the two, since the function may have been dropped by the
 * time of the second.
 */
extern bool zreaders_misreads(Oid function);
extern void zreaders_count(FmgrHookEventType event, Oid function, bool *counted);

/* Number of calls of such functions that this process is in. */
extern int	zreaders_within;

/* zreaders_refuse: raises the error that rel cannot be checked. */
extern void zreaders_refuse(Relation rel) zc_noreturn;

/*
 * zreaders_check: raises an error if a function that would misread rel, a
 * zheap table, asks for its size.
 */
static inline void
zreaders_check(Relation rel)
{
	if (unlikely(zreaders_within > 0))
		zreaders_refuse(rel);
}

/* ---- functions of heap that would misread a table (heap_callers.c) ---- */

/*
 * zcallers_init: finds the functions that zcallers_check refuses. The
 * postmaster calls it once; backends inherit the result.
 */
extern void zcallers_init(void);

/*
 * zcallers_check: raises an error if one of heap's functions asks for the size
 * of rel, a zheap table, in order to read or write its pages. Resets
 * zundo_asks_size.
 */
extern void zcallers_check(Relation rel);

/* ---- utility commands: the access method of tables (access_method.c) ---- */

/*
 * zaccess_method_check: raises an error if the command would make an
 * extension's table a zheap table (HEAP-3).
 *
 * zaccess_method_for_script: makes heap the default access method for the
 * script of an extension, if the command runs one (HEAP-2). Returns the
 * nest level of settings to go back to after the command (AtEOXact_GUC), 0
 * if nothing was set.
 *
 * zaccess_method_of_copy: returns pstmt, or a copy of it in which the table
 * that pg_repack creates has the access method of the original (HEAP-4).
 *
 * zaccess_method_name: returns the name of the access method of a table or
 * index, or NULL if it has none or does not exist.
 */
extern void zaccess_method_check(Node *command);
extern int	zaccess_method_for_script(Node *command);
extern PlannedStmt *zaccess_method_of_copy(PlannedStmt *pstmt);
extern char *zaccess_method_name(Oid reloid);

/* ---- utility commands: the access method of indexes (index_method.c) ---- */

/*
 * zindex_method_check: raises an error if the command would change the
 * parameter access_method of a zbtree index.
 *
 * zindex_method_choose: returns pstmt, or a copy of it in which indexes with
 * the parameter access_method = zbtree are zbtree; where they cannot be, the
 * parameter is taken out with a NOTICE. So are, if zundo.default_index is
 * zbtree, those that are not said to be btree. USING INDEX: see
 * zconstraint_use_index. With zundo.swap_btree, so are those that are said to
 * be btree; and if the command makes partitions of a partitioned table without
 * an access method, sets that to zheap first.
 */
extern void zindex_method_check(Node *command);
extern PlannedStmt *zindex_method_choose(PlannedStmt *pstmt, const char *query_string);

/* ---- utility commands: constraints (index_constraint.c) ---- */

/*
 * zconstraint_use_index: in the ALTER TABLE for the table, makes zbtree indexes
 * those of constraints (USING INDEX), for which the server takes btree's only.
 * Locks the table, and sets the parameter access_method of the indexes. Raises
 * the server's errors for indexes that cannot belong to a constraint.
 *
 * zconstraint_detach: drops, but not with their indexes, the constraints with
 * zbtree indexes that the command would make again as btree's. Returns what
 * the following take.
 *
 * zconstraint_on_access: takes an event of the object access hook during the
 * command. Gives an index that this makes again the constraint back.
 *
 * zconstraint_attach: gives indexes that the command has left as they were the
 * constraints back. Called when it has ended.
 *
 * zconstraint_use_index and zconstraint_detach qualify the name of the table
 * in an ALTER TABLE once they have locked it, and so take the copy that
 * zindex_method_choose has made.
 */
extern void zconstraint_use_index(AlterTableStmt *stmt, Oid reloid, const char *query_string);
extern List *zconstraint_detach(Node *command);
extern void zconstraint_on_access(List *detached_ones, ObjectAccessType access, Oid class,
								  Oid object, int part);
extern void zconstraint_attach(List *detached);

/* ---- utility commands: DROP EXTENSION zundo (drop_guard.c) ---- */

/*
 * zdrop_guard_check: raises an error if the command would drop rows of zheap
 * tables with the extension (HEAP-6).
 *
 * zdrop_guard_is_needed: returns whether the command may drop the extension by
 * cascading from another object.
 *
 * zdrop_guard_on_access: takes an event of the object access hook during such a
 * command. Raises an error if the extension is dropped.
 */
extern void zdrop_guard_check(Node *command);
extern bool zdrop_guard_is_needed(Node *command);
extern void zdrop_guard_on_access(ObjectAccessType access, Oid class, Oid object);

#endif
