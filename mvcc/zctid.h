/*
 * mvcc/zctid.h - statements that name rows by ctid (GUARD-3, GUARD-4).
 */
#ifndef ZUNDO_ZCTID_H
#define ZUNDO_ZCTID_H

#include "common/zundo.h"
#include "executor/execdesc.h"
#include "nodes/plannodes.h"
#include "utils/rel.h"

/*
 * zctid_check_statement: looks whether the started statement changes rows that
 * it names by a ctid from outside (GUARD-3); then zctid_asks will be true of
 * their tables until the statement ends. Raises zctid_refuse's error at once if
 * the transaction has neither locked nor changed rows of these tables.
 *
 * zctid_asking: whether zctid_asks need be called.
 *
 * zctid_asks: returns whether the query of the current level may change rows of
 * rel only if its transaction holds them. Allocates nothing, raises no error.
 *
 * zctid_refuse: raises ERRCODE_FEATURE_NOT_SUPPORTED for such a row of rel.
 */
extern void zctid_check_statement(QueryDesc *query, int eflags);
extern bool zctid_asking;
extern bool zctid_asks(Relation rel);
extern void zctid_refuse(Relation rel) zc_noreturn pg_attribute_cold;

/*
 * zctid_named_from_outside: returns the relations, as numbers in the range
 * table, of which a condition of this plan node, without its children, says
 * that their ctid is equal to a value from outside the statement; NULL if there
 * are none. Outside are constants, parameters of the query, columns in which a
 * ctid has been stored, and what expressions and functions that do not read
 * tables make of these, also if it comes as rows. If in doubt, a value is
 * from inside. May read catalogs.
 */
extern Bitmapset *zctid_named_from_outside(const PlannedStmt *stmt, Plan *plan);

/*
 * zctid_is_compared: returns whether a condition of the query of the current
 * level has a TID in it (GUARD-4). No page may be locked.
 */
extern bool zctid_is_compared(void);

#endif
