/*
 * discard/undo_am.c - the table access method "zundo_undo" of zundo.undo_log.
 *
 * Makes the undo log an ordinary relation: it has a name, a size and an owner,
 * is copied with its database and dropped with its extension. It holds no
 * rows: all callbacks but those for creation, size, VACUUM and ANALYZE (which
 * finds nothing to do) raise an error. Called by the server. A callback
 * without a comment does what the heading of its group says.
 *
 * Locks: those of the caller. Crash points: none of its own
 * (zu_create_storage).
 */
#include "postgres.h"

#include "access/multixact.h"
#include "access/tableam.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/storage.h"
#include "commands/extension.h"
#include "commands/vacuum.h"
#include "discard/discard.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "undo/undo.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

PG_FUNCTION_INFO_V1(zundo_undo_handler);

/* ---- creation and size ---- */

/* Returns whether the script of CREATE EXTENSION zundo is running. */
static bool
creating_zundo(void)
{
	char	   *extname;

	if (!creating_extension)
		return false;
	extname = get_extension_name(CurrentExtensionObject);
	return extname != NULL && strcmp(extname, "zundo") == 0;
}

/*
 * Creates the storage of zundo.undo_log. Raises an error for any other
 * relation, and outside of CREATE EXTENSION zundo and pg_upgrade: so TRUNCATE
 * and rewrites fail as well.
 */
static void
undo_set_new_filelocator(Relation rel, const RelFileLocator *locator, char persistence,
						 TransactionId *freezeXid, MultiXactId *minmulti)
{
	char	   *nspname;

	if (!creating_zundo() && !IsBinaryUpgrade)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("access method \"zundo_undo\" cannot be used for table \"%s\"",
						RelationGetRelationName(rel)),
				 errdetail("Its only relation is zundo.undo_log, which CREATE EXTENSION zundo "
						   "makes and which cannot be truncated or rewritten."),
				 errhint("Use access method \"zheap\" for tables.")));
	nspname = get_namespace_name(RelationGetNamespace(rel));
	if (nspname == NULL || strcmp(nspname, "zundo") != 0 ||
		strcmp(RelationGetRelationName(rel), "undo_log") != 0 ||
		rel->rd_rel->relkind != RELKIND_MATVIEW ||
		persistence != RELPERSISTENCE_PERMANENT)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("access method \"zundo_undo\" is only for zundo.undo_log")));

	/*
	 * clog is asked how the transactions of undo ended, so the server must
	 * keep it for them (relfrozenxid in undo/README.md)
	 */
	*freezeXid = RecentXmin;
	*minmulti = InvalidMultiXactId;
	zu_create_storage(*locator, persistence);
}

static void
undo_nontransactional_truncate(Relation rel)
{
	zu_ddl_refuse("truncated");
}

static void
undo_copy_data(Relation rel, const RelFileLocator *locator)
{
	zu_ddl_refuse("moved to another tablespace");
}

static void
undo_copy_for_cluster(Relation oldtable, Relation newtable, Relation oldindex,
					  bool use_sort, TransactionId oldestxmin,
					  ZC_REWRITE_SNAPSHOT_PARAM TransactionId *xid_cutoff,
					  MultiXactId *multi_cutoff,
					  double *num_tuples, double *tups_vacuumed, double *tups_recently_dead)
{
	zu_ddl_refuse("clustered or vacuumed in full");
}

static bool
undo_needs_toast_table(Relation rel)
{
	return false;
}

static void
undo_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages,
				   double *tuples, double *allvisfrac)
{
	*pages = RelationGetNumberOfBlocks(rel);
	*tuples = 0;
	*allvisfrac = 0;
}

/* ---- VACUUM and ANALYZE ---- */

/*
 * Makes a discard pass as a worker does, and advances relfrozenxid. So the
 * server's own wraparound vacuums resolve undo where no worker can run. rel is
 * locked ShareUpdateExclusive.
 */
static void
undo_vacuum(Relation rel, ZC_VACUUM_PARAMS * params, BufferAccessStrategy strategy)
{
	ZuDiscardStats stats;
	TransactionId frozen;

	zu_attach_database();
	(void) zu_discard(ZU_UNDO_ALL, false, &stats);
	frozen = zxid_to_xid(zu_freeze_limit());
	zc_update_relstats(rel, zrel_nblocks(rel), 0, 0, false,
					   TransactionIdIsNormal(frozen) ? frozen : InvalidTransactionId,
					   InvalidMultiXactId, NULL, NULL);
}

static bool
undo_analyze_next_block(TableScanDesc scan, ZC_ANALYZE_BLOCK_ARGS)
{
	return false;
}

static bool
undo_analyze_next_tuple(TableScanDesc scan, ZC_ANALYZE_HORIZON_PARAM
						double *liverows, double *deadrows, TupleTableSlot *slot)
{
	return false;
}

/* ---- scans: ANALYZE finds no rows; all other readers get an error ---- */

static const TupleTableSlotOps *
undo_slot_callbacks(Relation rel)
{
	return &TTSOpsVirtual;
}

/*
 * Begins a scan for ANALYZE, which finds no rows. Raises an error for any
 * other reader.
 */
static TableScanDesc
undo_scan_begin(Relation rel, Snapshot snapshot, int nkeys, struct ScanKeyData *key,
				ParallelTableScanDesc pscan, uint32 flags)
{
	TableScanDesc scan;

	if (!(flags & SO_TYPE_ANALYZE))
		zu_ddl_refuse("read");
	scan = palloc0(sizeof(TableScanDescData));
	scan->rs_rd = rel;
	scan->rs_snapshot = snapshot;
	scan->rs_nkeys = nkeys;
	scan->rs_flags = flags;
	RelationIncrementReferenceCount(rel);
	return scan;
}

static void
undo_scan_end(TableScanDesc scan)
{
	RelationDecrementReferenceCount(scan->rs_rd);
	pfree(scan);
}

static void
undo_scan_rescan(TableScanDesc scan, struct ScanKeyData *key, bool set_params,
				 bool allow_strat, bool allow_sync, bool allow_pagemode)
{
	zu_ddl_refuse("read");
}

static bool
undo_scan_getnextslot(TableScanDesc scan, ScanDirection direction, TupleTableSlot *slot)
{
	zu_ddl_refuse("read");
}

static bool
undo_scan_sample_next_block(TableScanDesc scan, struct SampleScanState *state)
{
	zu_ddl_refuse("read");
}

static bool
undo_scan_sample_next_tuple(TableScanDesc scan, struct SampleScanState *state,
							TupleTableSlot *slot)
{
	zu_ddl_refuse("read");
}

static struct IndexFetchTableData *
undo_index_fetch_begin(Relation rel ZC_FETCH_FLAGS_PARAM)
{
	zu_ddl_refuse("read");
}

static void
undo_index_fetch_reset(struct IndexFetchTableData *data)
{
}

static void
undo_index_fetch_end(struct IndexFetchTableData *data)
{
}

static bool
undo_index_fetch_tuple(struct IndexFetchTableData *data, ItemPointer tid, Snapshot snapshot,
					   TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	zu_ddl_refuse("read");
}

static bool
undo_fetch_row_version(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot)
{
	zu_ddl_refuse("read");
}

static bool
undo_tid_valid(TableScanDesc scan, ItemPointer tid)
{
	return false;
}

static void
undo_get_latest_tid(TableScanDesc scan, ItemPointer tid)
{
	zu_ddl_refuse("read");
}

static bool
undo_satisfies_snapshot(Relation rel, TupleTableSlot *slot, Snapshot snapshot)
{
	zu_ddl_refuse("read");
}

static TransactionId
undo_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate)
{
	zu_ddl_refuse("indexed");
}

/* ---- changes: all raise an error ---- */

static void
undo_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid, ZcOptions options,
				  struct BulkInsertStateData *bistate)
{
	zu_ddl_refuse("changed");
}

static void
undo_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid, ZcOptions options,
							  struct BulkInsertStateData *bistate, uint32 token)
{
	zu_ddl_refuse("changed");
}

static void
undo_tuple_complete_speculative(Relation rel, TupleTableSlot *slot, uint32 token, bool succeeded)
{
	zu_ddl_refuse("changed");
}

static void
undo_multi_insert(Relation rel, TupleTableSlot **slots, int nslots, CommandId cid,
				  ZcOptions options, struct BulkInsertStateData *bistate)
{
	zu_ddl_refuse("changed");
}

static TM_Result
undo_tuple_delete(Relation rel, ItemPointer tid, CommandId cid,
				  ZC_CHANGE_OPTIONS_PARAM Snapshot snapshot, Snapshot crosscheck, bool wait,
				  TM_FailureData *tmfd ZC_CHANGING_PART_PARAM)
{
	zu_ddl_refuse("changed");
}

static TM_Result
undo_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot, CommandId cid,
				  ZC_CHANGE_OPTIONS_PARAM Snapshot snapshot, Snapshot crosscheck, bool wait,
				  TM_FailureData *tmfd,
				  LockTupleMode *lockmode, ZcUpdateIndexes *update_indexes)
{
	zu_ddl_refuse("changed");
}

static TM_Result
undo_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
				CommandId cid, LockTupleMode mode, LockWaitPolicy wait_policy, uint8 flags,
				TM_FailureData *tmfd)
{
	zu_ddl_refuse("locked row by row");
}

/* ---- indexes: none can be created ---- */

static double
undo_index_build_range_scan(Relation rel, Relation index, struct IndexInfo *info,
							bool allow_sync, bool anyvisible, bool progress,
							BlockNumber start, BlockNumber numblocks,
							IndexBuildCallback callback, void *state, TableScanDesc scan)
{
	zu_ddl_refuse("indexed");
}

static void
undo_index_validate_scan(Relation rel, Relation index, struct IndexInfo *info,
						 Snapshot snapshot, struct ValidateIndexState *state)
{
	zu_ddl_refuse("indexed");
}

static const TableAmRoutine undo_methods = {
	.type = T_TableAmRoutine,

	.slot_callbacks = undo_slot_callbacks,
	.scan_begin = undo_scan_begin,
	.scan_end = undo_scan_end,
	.scan_rescan = undo_scan_rescan,
	.scan_getnextslot = undo_scan_getnextslot,
	.parallelscan_estimate = table_block_parallelscan_estimate,
	.parallelscan_initialize = table_block_parallelscan_initialize,
	.parallelscan_reinitialize = table_block_parallelscan_reinitialize,
	.index_fetch_begin = undo_index_fetch_begin,
	.index_fetch_reset = undo_index_fetch_reset,
	.index_fetch_end = undo_index_fetch_end,
	.index_fetch_tuple = undo_index_fetch_tuple,
	.tuple_fetch_row_version = undo_fetch_row_version,
	.tuple_tid_valid = undo_tid_valid,
	.tuple_get_latest_tid = undo_get_latest_tid,
	.tuple_satisfies_snapshot = undo_satisfies_snapshot,
	.index_delete_tuples = undo_index_delete_tuples,
	.tuple_insert = undo_tuple_insert,
	.tuple_insert_speculative = undo_tuple_insert_speculative,
	.tuple_complete_speculative = undo_tuple_complete_speculative,
	.multi_insert = undo_multi_insert,
	.tuple_delete = undo_tuple_delete,
	.tuple_update = undo_tuple_update,
	.tuple_lock = undo_tuple_lock,
	.relation_set_new_filelocator = undo_set_new_filelocator,
	.relation_nontransactional_truncate = undo_nontransactional_truncate,
	.relation_copy_data = undo_copy_data,
	.relation_copy_for_cluster = undo_copy_for_cluster,
	.relation_vacuum = undo_vacuum,
	.scan_analyze_next_block = undo_analyze_next_block,
	.scan_analyze_next_tuple = undo_analyze_next_tuple,
	.index_build_range_scan = undo_index_build_range_scan,
	.index_validate_scan = undo_index_validate_scan,
	.relation_size = table_block_relation_size,
	.relation_needs_toast_table = undo_needs_toast_table,
	.relation_estimate_size = undo_estimate_size,
	.scan_sample_next_block = undo_scan_sample_next_block,
	.scan_sample_next_tuple = undo_scan_sample_next_tuple,
};

Datum
zundo_undo_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&undo_methods);
}
