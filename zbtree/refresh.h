/*
 * zbtree/refresh.h - giving an entry the values of its row's version, and
 * waiting for scans that may have read it before (ZBTREE-15).
 */
#ifndef ZUNDO_ZBTREE_REFRESH_H
#define ZUNDO_ZBTREE_REFRESH_H

#include "storage/bufmgr.h"
#include "storage/itemptr.h"
#include "utils/relcache.h"

/*
 * zbtree_refresh: makes the entry that the row at tid has for these values,
 * read by zbtree_read_columns, one with exactly these bytes. Returns whether it
 * is one now; false if it is not there, if its page has no room, and for values
 * that are stored out of line or long. Sets *written if the page was changed.
 * No buffer is locked. Calls comparison functions.
 */
extern bool zbtree_refresh(Relation index, Relation table, ItemPointer tid, Datum *values,
						   bool *isnull, bool *written);

/*
 * zbtree_wait_for_scans: waits until no scan stands on a page that is deleted
 * by now. What btbulkdelete does for all other leaf pages.
 */
extern void zbtree_wait_for_scans(Relation index, BufferAccessStrategy strategy);

#endif
