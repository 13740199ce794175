/*
 * zbtree/purge.h - deleting entries that are given by key and TID, unless they
 * are needed.
 */
#ifndef ZUNDO_ZBTREE_PURGE_H
#define ZUNDO_ZBTREE_PURGE_H

#include "access/itup.h"
#include "utils/relcache.h"

/*
 * The largest number of entries that zbtree_purge passes to one call of
 * zheap_index_delete_tuples, which for a zbtree index looks at this many table
 * blocks before it gives up.
 */
#define ZBTREE_PURGED_TOGETHER 8

/*
 * zbtree_purge: deletes those of the n entries from the index that are not
 * needed (ZBTREE-8). Entries that the index does not contain are
 * skipped. The caller holds RowExclusiveLock on table and index and no buffer
 * lock; undo is attached. Calls comparison functions. Raises the errors of
 * nbtree and of zheap_index_delete_tuples.
 */
extern void zbtree_purge(Relation index, Relation table, IndexTuple *entries, int n);

#endif
