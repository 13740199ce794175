/*
 * mvcc/zctid.h - statements that compare ctids (GUARD-4).
 */
#ifndef ZUNDO_ZCTID_H
#define ZUNDO_ZCTID_H

#include "nodes/nodes.h"

/*
 * zctid_is_compared: returns whether a condition of the query of the current
 * level has a TID in it. No page may be locked.
 */
extern bool zctid_is_compared(void);

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
