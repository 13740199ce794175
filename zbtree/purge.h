/*
 * zbtree/purge.h - deleting stale entries that are known by key and TID.
 */
#ifndef ZUNDO_ZBTREE_PURGE_H
#define ZUNDO_ZBTREE_PURGE_H

#include "access/itup.h"
#include "utils/relcache.h"

/*
 * Entries that zbtree_purge deletes together at most. Bottom-up deletion of a
 * zbtree index looks at this many table blocks at least.
 */
#define ZBTREE_PURGED_TOGETHER 8

/*
 * zbtree_purge: deletes those of the n entries from the index that nobody needs
 * (ZBTREE-13). Entries that are not there are passed over. Table and index are
 * locked in RowExclusiveLock mode, no buffer is locked, undo is attached. Calls
 * comparison functions. Raises what nbtree raises, and what
 * zheap_index_delete_tuples raises.
 */
extern void zbtree_purge(Relation index, Relation table, IndexTuple *entries, int n);

#endif
