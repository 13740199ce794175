/*
 * zbtree/zbtree.h - what zheap's index fetches and the index access method
 * zbtree share.
 */
#ifndef ZUNDO_ZBTREE_H
#define ZUNDO_ZBTREE_H

#include "access/itup.h"
#include "access/relscan.h"
#include "executor/tuptable.h"
#include "mvcc/zhistory.h"

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

/* zbtree_is: returns whether the index is one of access method zbtree. */
extern bool zbtree_is(Relation index);

/*
 * zbtree_keys_stay: returns whether rows may stay in place when an update
 * changes key columns of this index (ZBTREE-3).
 */
extern bool zbtree_keys_stay(Relation index);

/* An update in place that has been made, and whose index entries are due. */
typedef struct ZKeyChange
{
	Relation	table;
	ItemPointer tid;
	const char *old;			/* the rows before and after */
	Size		oldlen;
	const char *new;
	Size		newlen;
	bool		stale;			/* the row had ZH_STALE_KEYS before */
} ZKeyChange;

/*
 * zbtree_add_key: makes sure that the index has an entry for the new key of the
 * row, if that is not equal to the old one (ZBTREE-6). Table and index are
 * locked in RowExclusiveLock mode, no buffer is locked. Calls comparison
 * functions. Raises what nbtree raises.
 */
extern void zbtree_add_key(Relation index, const ZKeyChange *change);

/*
 * zbtree_needed: returns whether a snapshot may need this entry of the row at
 * off of the page that was loaded into history: whether a version that is not
 * aborted, down to the newest one that all see, has the entry's key (ZBTREE-8).
 * *budget is the number of versions that may still be looked at; without it the
 * answer is true. The entry's page may be locked.
 */
extern bool zbtree_needed(Relation index, IndexTuple entry, ZHistory *history, OffsetNumber off,
						  int *budget);

/*
 * zbtree_same_key: returns whether two index rows have equal keys, as the
 * operator classes compare them; null equals null.
 */
extern bool zbtree_same_key(Relation index, const Datum *a, const bool *anull, const Datum *b,
							const bool *bnull);

#endif
