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
 * and results are those of the callbacks of the same names.
 */
extern void zbtree_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
						  int norderbys);
extern bool zbtree_gettuple(IndexScanDesc scan, ScanDirection dir);
extern bool zbtree_canreturn(Relation index, int attno);
extern int64 zbtree_getbitmap(IndexScanDesc scan, TIDBitmap *tbm);

/*
 * zbtree_lock_leaf: finds the leaf page where the key, with a TID, belongs.
 * Returns it pinned and locked exclusively, or InvalidBuffer if the index is
 * empty or was split too often meanwhile. zbtree_find_entry: returns the offset
 * of the entry there, or InvalidOffsetNumber. Both in zbtree/purge.c.
 */
extern Buffer zbtree_lock_leaf(Relation index, Relation table, BTScanInsert key);
extern OffsetNumber zbtree_find_entry(Relation index, Page page, BTScanInsert key);

#endif
