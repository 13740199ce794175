/*
 * mvcc/zctid.h - statements that name rows by ctid (GUARD-4).
 */
#ifndef ZUNDO_ZCTID_H
#define ZUNDO_ZCTID_H

#include "executor/tuptable.h"
#include "nodes/nodes.h"
#include "utils/rel.h"

/*
 * zctid_names_row: returns whether the query of the current level changes rows
 * of rel only if their ctid is equal to a value, which the query computes or
 * is given as a parameter. slot is the executor's slot that the row is locked
 * into: if several parts of the query change or lock rows of the table, it
 * tells which part is meant. locks_only is true if a SELECT FOR UPDATE, or
 * with another strength, locks the row. No page may be locked, since catalogs
 * are read.
 */
extern bool zctid_names_row(Relation rel, bool locks_only, const TupleTableSlot *slot);

/*
 * zctid_equality: if node is an equality that can compare a ctid, also as text
 * or by IS NOT DISTINCT FROM, sets *left and *right to its operands without
 * casts, and returns true. Of = ANY and = ALL one operand is the array.
 */
extern bool zctid_equality(Node *node, Node **left, Node **right);

/*
 * zctid_without_casts: returns the expression without casts to and from text.
 */
extern Node *zctid_without_casts(Node *node);

#endif
