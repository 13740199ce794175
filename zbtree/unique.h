/*
 * zbtree/unique.h - insertion into zbtree indexes.
 */
#ifndef ZUNDO_ZBTREE_UNIQUE_H
#define ZUNDO_ZBTREE_UNIQUE_H

#include "access/genam.h"

/*
 * zunique_insert: does what btinsert does, but a check for duplicates compares
 * keys (ZBTREE-19). The caller has called zpredicate_get for the index, and no
 * page is locked. Raises nbtree's errors.
 */
extern bool zunique_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid,
						   Relation table, IndexUniqueCheck check, bool unchanged);

#endif
