/*
 * zbtree/refresh.h - replacing an entry by one with the bytes of its row, and
 * waiting for scans that may have read the old entry (ZBTREE-15).
 */
#ifndef ZUNDO_ZBTREE_REFRESH_H
#define ZUNDO_ZBTREE_REFRESH_H

#include "storage/bufmgr.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

/*
 * zbtree_refresh: replaces the entry of the row at tid whose key equals that
 * of the values, which zbtree_read_columns has read, by one with exactly their
 * bytes, unless it has them already. Returns whether the entry has these bytes
 * now: false if no such entry is found, if its page is split or deleted again
 * and again before it can be locked, if the page has no space, for an index
 * with expressions, and for values that are stored out of line or long. Sets
 * *written to true if it changed the page, else leaves it as it is. No buffer
 * lock may be held. Calls comparison functions.
 */
extern bool zbtree_refresh(Relation index, Relation table, ItemPointer tid, Datum *values,
						   bool *isnull, bool *written);

/*
 * zbtree_wait_for_scans: waits until no scan has a pin on a page of the index
 * that is deleted by now, as btbulkdelete waits for scans of all other leaf
 * pages. No buffer lock may be held.
 */
extern void zbtree_wait_for_scans(Relation index, BufferAccessStrategy strategy);

#endif
