/*
 * zbtree/unique.c - insertion into zbtree indexes, also unique ones.
 *
 * For each entry with the new key nbtree asks the table whether the entry's TID
 * has a live row, or one in doubt. It passes on the table that the insertion
 * was given, and nothing of the key. So the insertion gives it a view of the
 * table: a copy of the relcache entry with a table access method that begins
 * index fetches which know the new entry, and so compare keys (ZBTREE-4).
 *
 * Through a view only the callbacks below are called, and all others raise an
 * error; neither the file nor the reference count of the relation is used.
 *
 * The rules of unique indexes are in the README. Locks: nbtree's; the
 * fetches lock a table page in share mode below a leaf page, as those of a
 * btree index do. No crash points.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "common/compat_nbtree.h"
#include "utils/rel.h"
#include "zbtree/unique.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

/* What nbtree takes for the table, during one insertion. */
typedef struct TableView
{
	RelationData rel;			/* first: it is what nbtree sees */
	Relation	table;
	Relation	index;
	IndexTuple	entry;			/* the new one */
	ZXid		unsettled;		/* for zmarks_settled */
} TableView;

/* The index_fetch_begin callback of a view. */
static IndexFetchTableData *
view_fetch_begin(Relation rel ZC_FETCH_FLAGS_PARAM)
{
	TableView  *view = (TableView *) rel;
	IndexFetchTableData *scan = view->table->rd_tableam->index_fetch_begin(view->table
																		   ZC_FETCH_FLAGS_ARG);
	ZExpectingFetch *fetch = (ZExpectingFetch *) scan;

	fetch->index = view->index;
	fetch->entry = view->entry;
	fetch->inserting = &view->unsettled;
	return scan;
}

/* The index_delete_tuples callback of a view. */
static TransactionId
view_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate)
{
	TableView  *view = (TableView *) rel;

	return view->table->rd_tableam->index_delete_tuples(view->table, delstate);
}

/* Each other callback of a view. */
static void
view_refuse(void)
{
	elog(ERROR, "zbtree: unexpected use of a table during an insertion into a unique index");
}

/*
 * Returns the table access method of views. Those callbacks of zheap that it
 * keeps do not look at the relation, or get the real one in the fetch.
 */
static const TableAmRoutine *
view_methods(const TableAmRoutine *zheap)
{
	static TableAmRoutine methods;
	void		(**callback) (void) = (void (**) (void)) &methods.slot_callbacks;

	if (methods.index_fetch_begin != NULL)
		return &methods;
	while ((char *) callback < (char *) (&methods + 1))
		*callback++ = view_refuse;
	methods.type = zheap->type;
	methods.slot_callbacks = zheap->slot_callbacks;
	methods.index_fetch_reset = zheap->index_fetch_reset;
	methods.index_fetch_end = zheap->index_fetch_end;
	methods.index_fetch_tuple = zheap->index_fetch_tuple;
	methods.index_delete_tuples = view_delete_tuples;
	methods.index_fetch_begin = view_fetch_begin;
	return &methods;
}

/*
 * zunique_insert: See unique.h. A rebuild of the table's relcache entry
 * meanwhile keeps rd_rel, and rd_att to the end of the transaction, but not
 * rd_options; of these nbtree asks only for user_catalog_table, which means
 * nothing for a zheap table, since decoding plugins cannot read it.
 */
bool
zunique_insert(Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation table,
			   IndexUniqueCheck check, bool unchanged)
{
	IndexTuple	entry = index_form_tuple(RelationGetDescr(index), values, isnull);
	bool		unique;

	entry->t_tid = *tid;
	if (check == UNIQUE_CHECK_NO)
		unique = _bt_doinsert(index, entry, check, unchanged, table);
	else
	{
		TableView	view = {*table, table, index, entry, PG_UINT64_MAX};

		Assert(index->rd_index->indisunique);
		view.rel.rd_tableam = view_methods(table->rd_tableam);
		view.rel.rd_options = NULL;
		unique = _bt_doinsert(index, entry, check, unchanged, &view.rel);
	}
	pfree(entry);
	return unique;
}
