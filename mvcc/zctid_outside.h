/*
 * mvcc/zctid_outside.h - whether a ctid comes from outside the statement.
 */
#ifndef ZUNDO_ZCTID_OUTSIDE_H
#define ZUNDO_ZCTID_OUTSIDE_H

#include "nodes/plannodes.h"

/*
 * zctid_named_from_outside: if a condition of this plan node, without its
 * children, is that the ctid of a relation of the query is equal to a value
 * from outside the statement, returns the relation's number in the range
 * table; 0 if there is none. Outside are constants, parameters of the query,
 * columns in which a ctid has been stored, and what expressions and functions
 * that are not volatile make of these, also if it comes as rows. If in doubt,
 * a value is from inside. May read catalogs.
 */
extern Index zctid_named_from_outside(const PlannedStmt *stmt, Plan *plan);

#endif
