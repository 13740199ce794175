/*
 * zbtree/zbtree_internal.h - what the files of zbtree/ share. Not included from
 * outside zbtree/.
 */
#ifndef ZUNDO_ZBTREE_INTERNAL_H
#define ZUNDO_ZBTREE_INTERNAL_H

#include "access/genam.h"
#include "nodes/tidbitmap.h"

/*
 * Callbacks of the index AM (zbtree/recheck.c): arguments and results are those
 * of the callbacks of the same names.
 */
extern void zbtree_rescan(IndexScanDesc scan, ScanKey keys, int nkeys, ScanKey orderbys,
						  int norderbys);
extern bool zbtree_gettuple(IndexScanDesc scan, ScanDirection dir);
extern int64 zbtree_getbitmap(IndexScanDesc scan, TIDBitmap *tbm);

#endif
