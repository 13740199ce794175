/*
 * zbtree/zbtree.h - the interface between zheap's code and the index access
 * method zbtree.
 */
#ifndef ZUNDO_ZBTREE_H
#define ZUNDO_ZBTREE_H

#include "access/itup.h"
#include "access/relscan.h"
#include "executor/tuptable.h"
#include "mvcc/zhistory.h"
#include "storage/buf.h"
#include "storage/off.h"
#include "zbtree/marks.h"

/* Rows that the scan has fetched in vain (passed.h). */
typedef struct ZPassed ZPassed;

/*
 * The first member of the state of an index fetch of a zheap table. A scan of a
 * zbtree index leaves here the entry in which it found the TID, so that the
 * fetch can compare keys (ZBTREE-4); an insertion into a unique one leaves the
 * entry that it inserts (ZBTREE-19).
 */
typedef struct ZExpectingFetch
{
	IndexFetchTableData base;	/* first: it is what callers see */
	Relation	index;
	IndexTuple	entry;			/* of the TID fetched next; NULL: keys are not
								 * compared */
	XLogRecPtr	since;			/* end of WAL before the scan read its first
								 * entry, or invalid (ZBTREE-23) */
	IndexScanDesc returning;	/* the scan, if it is an index-only scan, or
								 * NULL */
	HeapTuple	returned;		/* last row returned in place of an entry, */
	TupleDesc	returned_desc;	/* its description; both may be NULL */
	bool		missed;			/* the entry's row had no version with its
								 * key, but is not dead to all */
	int			tries;			/* of an estimate: entries that it has got */
	ZNotedEntries noted;		/* entries for which that was so (marks.h) */
	ZPassed    *passed;			/* rows that need not be fetched again; may be
								 * NULL */
	ZXid	   *inserting;		/* not NULL: entry is being inserted, and each
								 * row with its key is a duplicate; for
								 * zmarks_settled */
} ZExpectingFetch;

/*
 * zbtree_class_for: returns the operator class of the access method, btree or
 * zbtree, that has the name, schema and type of this one. If there is none,
 * returns InvalidOid if missing_ok, else raises ERRCODE_UNDEFINED_OBJECT.
 */
extern Oid	zbtree_class_for(Oid class, Oid method, bool missing_ok);

/*
 * zbtree_counts: returns whether this entry of the index belongs to the row
 * version in slot: the version has its key, and satisfies the predicate of a
 * partial index (ZBTREE-4, ZBTREE-16). Calls comparison functions. May read
 * catalogs unless zpredicate_get has been called for the index: only then the
 * caller may hold a buffer lock, that of the entry's leaf page.
 */
extern bool zbtree_counts(Relation index, IndexTuple entry, TupleTableSlot *slot);

/*
 * zbtree_return_version: makes the index-only scan fetch->returning return the
 * columns of the version in slot, which was fetched through fetch->entry
 * (ZBTREE-14). No buffer lock may be held.
 */
extern void zbtree_return_version(ZExpectingFetch *fetch, TupleTableSlot *slot);

/* zbtree_fetch_end: frees the row that an index fetch has returned last. */
extern void zbtree_fetch_end(ZExpectingFetch *fetch);

/*
 * zbtree_read_columns: reads the values of all columns of the index from a row
 * of the table. Columns of expressions are set to null.
 */
extern void zbtree_read_columns(Relation index, Relation table, const char *row, Size len,
								Datum *values, bool *isnull);

/*
 * zbtree_has_content: returns whether an entry has these values in all columns
 * except those of expressions. Returns false if an included column is stored
 * out of line. The caller may hold the entry's page locked.
 */
extern bool zbtree_has_content(Relation index, IndexTuple entry, const Datum *values,
							   const bool *isnull);

/* zbtree_is: returns whether the index has access method zbtree. */
extern bool zbtree_is(Relation index);

/*
 * zbtree_plan_table: lets the planner treat the zbtree indexes of a table as it
 * treats btree's. rel has just got the list of its indexes, which
 * are locked. Reads catalogs.
 */
struct RelOptInfo;
extern void zbtree_plan_table(struct RelOptInfo *rel);

/*
 * zbtree_keys_stay: returns whether a row may stay in place when an update
 * changes key columns of this index, as far as the index is concerned
 * (ZBTREE-3). Reads catalogs, so no buffer lock may be held.
 */
extern bool zbtree_keys_stay(Relation index);

/* An update in place of the table page whose index entries are to be added. */
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
 * zbtree_add_key: makes sure that the index has an entry for the new key of
 * the row, unless that equals the old key (ZBTREE-6). Notes both keys for the
 * queue. Returns how many stale entries the index has more than
 * before, if the transaction commits: 1, 0, or -1 if a stale entry counts
 * again. The caller holds RowExclusiveLock on table and index, and no buffer
 * lock. Calls comparison functions. Raises nbtree's errors.
 */
extern int	zbtree_add_key(Relation index, const ZKeyChange *change);

/*
 * zbtree_needed: returns whether a snapshot may need this entry of the row at
 * off of the page that was loaded into history (ZBTREE-8). *budget is the
 * number of versions that the function may still look at, and is decremented
 * for each; the result is true when it is used up. It is true as well for each
 * entry of a partial index for which zpredicate_get has not been called. The
 * caller may hold a lock on the entry's leaf page, but not on the table page.
 */
extern bool zbtree_needed(Relation index, IndexTuple entry, ZHistory *history, OffsetNumber off,
						  int *budget);

/*
 * zbtree_same_key: returns whether two arrays of index columns have equal keys
 * by the comparison functions of the key columns; null equals null.
 */
extern bool zbtree_same_key(Relation index, const Datum *a, const bool *anull, const Datum *b,
							const bool *bnull);

/*
 * zbtree_compare_keys: returns which of two keys comes first, as the comparison
 * functions do: 0 if they are equal. Null comes last, whatever the index says.
 */
extern int	zbtree_compare_keys(Relation index, const Datum *a, const bool *anull,
								const Datum *b, const bool *bnull);

/*
 * zbtree_clear_marks: removes the marks of n entries of the leaf page in buf,
 * which is locked exclusively, and logs that (MARK-4). The offsets are those of
 * marked entries.
 */
extern void zbtree_clear_marks(Relation index, Buffer buf, OffsetNumber *offsets, int n);

#endif
