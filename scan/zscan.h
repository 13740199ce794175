/*
 * scan/zscan.h - every way to read a zheap table, and index builds.
 *
 * Functions are TableAmRoutine callbacks of the same names (zam.c lists them).
 */
#ifndef ZUNDO_ZSCAN_H
#define ZUNDO_ZSCAN_H

#include "access/tableam.h"
#include "common/zundo.h"
#include "mvcc/zpageview.h"
#include "mvcc/zssi.h"
#include "mvcc/zvis.h"

/* scan/zscan.c */
extern TableScanDesc zheap_scan_begin(Relation rel, Snapshot snapshot, int nkeys,
									  struct ScanKeyData *key,
									  ParallelTableScanDesc pscan, uint32 flags);
extern void zheap_scan_end(TableScanDesc scan);
extern void zheap_scan_rescan(TableScanDesc scan, struct ScanKeyData *key, bool set_params,
							  bool allow_strat, bool allow_sync, bool allow_pagemode);
extern bool zheap_scan_getnextslot(TableScanDesc scan, ScanDirection direction,
								   TupleTableSlot *slot);
extern void zheap_scan_set_tidrange(TableScanDesc scan, ItemPointer mintid, ItemPointer maxtid);
extern bool zheap_scan_getnextslot_tidrange(TableScanDesc scan, ScanDirection direction,
											TupleTableSlot *slot);

/* scan/zfetch.c: index fetch, TID fetch */
extern IndexFetchTableData *zheap_index_fetch_begin(Relation rel ZC_FETCH_FLAGS_PARAM);
extern void zheap_index_fetch_reset(IndexFetchTableData *scan);
extern void zheap_index_fetch_end(IndexFetchTableData *scan);
extern bool zheap_index_fetch_tuple(IndexFetchTableData *scan, ItemPointer tid, Snapshot snapshot,
									TupleTableSlot *slot, bool *call_again, bool *all_dead);
extern bool zheap_tuple_fetch_row_version(Relation rel, ItemPointer tid, Snapshot snapshot,
										  TupleTableSlot *slot);
extern bool zheap_tuple_tid_valid(TableScanDesc scan, ItemPointer tid);
extern void zheap_tuple_get_latest_tid(TableScanDesc scan, ItemPointer tid);
extern bool zheap_tuple_satisfies_snapshot(Relation rel, TupleTableSlot *slot, Snapshot snapshot);
extern TransactionId zheap_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate);

/* scan/zbuild.c */
extern double zheap_index_build_range_scan(Relation rel, Relation index, struct IndexInfo *info,
										   bool allow_sync, bool anyvisible, bool progress,
										   BlockNumber start_blockno, BlockNumber numblocks,
										   IndexBuildCallback callback, void *callback_state,
										   TableScanDesc scan);
extern void zheap_index_validate_scan(Relation rel, Relation index, struct IndexInfo *info,
									  Snapshot snapshot, struct ValidateIndexState *state);

/*
 * Bitmap, sample and ANALYZE callbacks differ by version: scan/zbitmap.c,
 * scan/zsample.c fill them in.
 */
extern void zheap_fill_scan_callbacks(TableAmRoutine *routine);

#endif
