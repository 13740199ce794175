/*
 * zam.c - the table access method "zheap": its handler and small callbacks.
 *
 * No logic: every callback is a function of dml/, scan/ or vacuum/, or is
 * answered here in a few lines. The groups are those of tableam.h.
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/heaptoast.h"
#include "access/tableam.h"
#include "catalog/pg_am.h"
#include "common/zundo.h"
#include "dml/zdml.h"
#include "fmgr.h"
#include "guard/heap_readers.h"
#include "scan/zscan.h"
#include "tuple/ztts.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "vacuum/zvacuum.h"

PG_FUNCTION_INFO_V1(zheap_handler);
PGDLLEXPORT Datum zheap_handler(PG_FUNCTION_ARGS);

/* The slot_callbacks callback: all tables have slots of one kind. */
static const TupleTableSlotOps *
slot_callbacks(Relation rel)
{
	return &TTSOpsZHeap;
}

/*
 * Returns whether a row can be longer than TOAST_TUPLE_THRESHOLD, and the table
 * has a column whose values can be stored out of line.
 */
static bool
relation_needs_toast_table(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int64		length = ZTUPLE_HEADER_SIZE + (desc->natts + 7) / 8;
	bool		toastable = false;
	bool		unlimited = false;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		int32		max;

		if (att->attisdropped)
			continue;
		if (att->attlen > 0)
		{
			length += att->attlen;
			continue;
		}
		max = type_maximum_size(att->atttypid, att->atttypmod);
		if (max < 0)
			unlimited = true;
		else
			length += max;
		if (att->attstorage != TYPSTORAGE_PLAIN)
			toastable = true;
	}
	return toastable && (unlimited || length > TOAST_TUPLE_THRESHOLD);
}

/* Returns zheap: large values are stored as rows are (dml/zchunk.c). */
static Oid
relation_toast_am(Relation rel)
{
	return rel->rd_rel->relam;
}

/*
 * Returns the size of a fork. Raises an error if the caller is a function that
 * would then read or write the pages as if they were heap's.
 */
static uint64
relation_size(Relation rel, ForkNumber fork)
{
	zcallers_check(rel);		/* first, since zundo_asks_size is for this
								 * call alone */
	zreaders_check(rel);
	return table_block_relation_size(rel, fork);
}

static TableAmRoutine zheap_methods = {
	.type = T_TableAmRoutine,

	.slot_callbacks = slot_callbacks,

	/* scans */
	.scan_begin = zheap_scan_begin,
	.scan_end = zheap_scan_end,
	.scan_rescan = zheap_scan_rescan,
	.scan_getnextslot = zheap_scan_getnextslot,
	.scan_set_tidrange = zheap_scan_set_tidrange,
	.scan_getnextslot_tidrange = zheap_scan_getnextslot_tidrange,

	/* parallel scans */
	.parallelscan_estimate = table_block_parallelscan_estimate,
	.parallelscan_initialize = table_block_parallelscan_initialize,
	.parallelscan_reinitialize = table_block_parallelscan_reinitialize,

	/* index fetches */
	.index_fetch_begin = zheap_index_fetch_begin,
	.index_fetch_reset = zheap_index_fetch_reset,
	.index_fetch_end = zheap_index_fetch_end,
	.index_fetch_tuple = zheap_index_fetch_tuple,

	/* single rows, read */
	.tuple_fetch_row_version = zheap_tuple_fetch_row_version,
	.tuple_tid_valid = zheap_tuple_tid_valid,
	.tuple_get_latest_tid = zheap_tuple_get_latest_tid,
	.tuple_satisfies_snapshot = zheap_tuple_satisfies_snapshot,
	.index_delete_tuples = zheap_index_delete_tuples,

	/* single rows, changed */
	.tuple_insert = zheap_tuple_insert,
	.tuple_insert_speculative = zheap_tuple_insert_speculative,
	.tuple_complete_speculative = zheap_tuple_complete_speculative,
	.multi_insert = zheap_multi_insert,
	.tuple_delete = zheap_tuple_delete,
	.tuple_update = zheap_tuple_update,
	.tuple_lock = zheap_tuple_lock,
	.finish_bulk_insert = NULL,

	/* DDL */
	.relation_set_new_filelocator = zheap_set_new_filelocator,
	.relation_nontransactional_truncate = zheap_nontransactional_truncate,
	.relation_copy_data = zheap_copy_data,
	.relation_copy_for_cluster = zheap_copy_for_cluster,
	.relation_vacuum = zheap_relation_vacuum,
	.index_build_range_scan = zheap_index_build_range_scan,
	.index_validate_scan = zheap_index_validate_scan,

	/* miscellaneous */
	.relation_size = relation_size,
	.relation_needs_toast_table = relation_needs_toast_table,
	.relation_toast_am = relation_toast_am,
	.relation_fetch_toast_slice = zheap_fetch_toast_slice,

	/* planner */
	.relation_estimate_size = zheap_estimate_size,

	/* executor: bitmap scans, samples and ANALYZE are filled in by scan/ */
};

/*
 * Returns the table AM's routine. Raises an error if the library was not
 * preloaded.
 */
Datum
zheap_handler(PG_FUNCTION_ARGS)
{
	zundo_require_preload();
	if (zheap_methods.scan_sample_next_block == NULL)
		zheap_fill_scan_callbacks(&zheap_methods);
	PG_RETURN_POINTER(&zheap_methods);
}
