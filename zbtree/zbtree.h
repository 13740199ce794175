/*
 * zbtree/zbtree.h - what zheap's index fetches and the index access method
 * zbtree share.
 */
#ifndef ZUNDO_ZBTREE_H
#define ZUNDO_ZBTREE_H

#include "access/itup.h"
#include "access/relscan.h"
#include "executor/tuptable.h"

/*
 * What an index fetch of a zheap table begins with. An entry tells which key
 * the row is expected to have (ZBTREE-4).
 */
typedef struct ZExpectingFetch
{
	IndexFetchTableData base;	/* first: it is what callers see */
	Relation	index;
	IndexTuple	entry;			/* of the next row; NULL = any key */
} ZExpectingFetch;

/*
 * zbtree_counts: returns whether the row in slot has the key of this entry of
 * the index. Calls comparison functions, so no buffer lock may be held.
 */
extern bool zbtree_counts(Relation index, IndexTuple entry, TupleTableSlot *slot);

#endif
