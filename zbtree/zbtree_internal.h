/*
 * zbtree/zbtree_internal.h - what the files of zbtree/ share. Not included from
 * outside zbtree/.
 */
#ifndef ZUNDO_ZBTREE_INTERNAL_H
#define ZUNDO_ZBTREE_INTERNAL_H

#include "access/genam.h"
#include "access/nbtree.h"
#include "nodes/tidbitmap.h"

/*
 * Callbacks of the index AM (zbtree/recheck.c, zbtree/returned.c): arguments
 * and results are those of the callbacks of amapi.h with the same names.
 *
 * zbtree_rescan: starts or restarts the scan.
 *
 * zbtree_gettuple: returns the next TID in scan->xs_heaptid, and its entry in
 * the state of the table's index fetch. Raises an error if the scan has none.
 *
 * zbtree_canreturn: returns whether an index-only scan can return column
 * attno; always false on a standby (ZBTREE-14).
 *
 * zbtree_getbitmap: adds the TIDs of all matching entries to tbm, each to be
 * rechecked, and returns their number.
 */
extern void zbtree_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
						  int norderbys);
extern bool zbtree_gettuple(IndexScanDesc scan, ScanDirection dir);
extern bool zbtree_canreturn(Relation index, int attno);
extern int64 zbtree_getbitmap(IndexScanDesc scan, TIDBitmap *tbm);

/*
 * zbtree_check_table, zbtree_check_classes: raise ERRCODE_FEATURE_NOT_SUPPORTED
 * if the table is not a zheap table, and if an operator class of the index
 * cannot be used; the latter raises ERRCODE_UNDEFINED_OBJECT if the index is
 * unique and zbtree lacks the default class of btree.
 */
extern void zbtree_check_table(Relation table, Relation index);
extern void zbtree_check_classes(Relation index);

/*
 * zbtree_lock_leaf: returns the leaf page where the key belongs, pinned and
 * locked exclusively. Returns InvalidBuffer if the index is empty, or if in
 * each of n searches the page was split or deleted before it could be locked.
 */
#define ZBTREE_SEARCHES	3		/* n of callers that can leave the entry as it
								 * is */

extern Buffer zbtree_lock_leaf(Relation index, Relation table, BTScanInsert key, int n);

/*
 * zbtree_belongs_here: returns whether the key is not above the high key of the
 * leaf page, which is locked.
 */
extern bool zbtree_belongs_here(Relation index, Page page, BTScanInsert key);

/*
 * zbtree_find_entry: returns the offset of the entry with this key and TID on
 * the locked leaf page, or InvalidOffsetNumber.
 */
extern OffsetNumber zbtree_find_entry(Relation index, Page page, BTScanInsert key);

#endif
