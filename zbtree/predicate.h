/*
 * zbtree/predicate.h - predicates of partial zbtree indexes that are tested for
 * single row versions (ZBTREE-16).
 */
#ifndef ZUNDO_ZBTREE_PREDICATE_H
#define ZUNDO_ZBTREE_PREDICATE_H

#include "access/htup_details.h"
#include "catalog/pg_index.h"
#include "executor/tuptable.h"
#include "utils/rel.h"

typedef struct ZPredicate ZPredicate;

/* zpredicate_exists: returns whether the index has a predicate. */
static inline bool
zpredicate_exists(Relation index)
{
	HeapTupleHeader form = index->rd_indextuple->t_data;

	return !(form->t_infomask & HEAP_HASNULL) ||
		!att_isnull(Anum_pg_index_indpred - 1, form->t_bits);
}

/*
 * zpredicate_is_simple: returns whether the index has a predicate which can be
 * tested while its pages are locked (ZBTREE-16). Reads catalogs, so no buffer
 * lock may be held.
 */
extern bool zpredicate_is_simple(Relation index);

/*
 * zpredicate_columns: returns the columns of the table that the predicate
 * reads, as numbers above FirstLowInvalidHeapAttributeNumber. Reads catalogs,
 * so no buffer lock may be held.
 */
extern Bitmapset *zpredicate_columns(Relation index);

/*
 * zpredicate_get: returns the index's predicate, ready to be tested, from a
 * cache; NULL if it has none or none that is simple. Valid until the
 * transaction ends. May read catalogs, so no buffer lock may be held; needs a
 * lock on table and index.
 */
extern ZPredicate *zpredicate_get(Relation index);

/*
 * zpredicate_find: sets *predicate to what zpredicate_get has returned. Reads
 * no catalogs, so the caller may hold buffer locks. Returns false, with
 * *predicate NULL, if zpredicate_get has not been called for the index before.
 */
extern bool zpredicate_find(Relation index, ZPredicate **predicate);

/*
 * zpredicate_holds, zpredicate_holds_in: return whether a version is entered in
 * the index: the one in slot, or the row of this length of the table. true if
 * predicate is NULL, and if the version has a column of the predicate out of
 * line: then no version of its TID differs in that (ZBTREE-3). The caller may
 * hold buffer locks.
 */
extern bool zpredicate_holds(ZPredicate *predicate, TupleTableSlot *slot);
extern bool zpredicate_holds_in(ZPredicate *predicate, Relation table, const char *row, Size len);

/* zpredicate_at_xact_end: frees predicates that are out of date. */
extern void zpredicate_at_xact_end(void);

#endif
