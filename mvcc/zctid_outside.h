/*
 * mvcc/zctid_outside.h - whether a ctid comes from outside the statement.
 */
#ifndef ZUNDO_ZCTID_OUTSIDE_H
#define ZUNDO_ZCTID_OUTSIDE_H

#include "nodes/plannodes.h"

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

#endif
