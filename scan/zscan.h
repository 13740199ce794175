/*
 * scan/zscan.h - every way to read a zheap table, and index builds.
 *
 * Functions are TableAmRoutine callbacks of the same names (zam.c lists them):
 * arguments and results are those of tableam.h. The caller has locked the
 * table and holds no buffer lock. Those that return rows raise
 * ERRCODE_DATA_CORRUPTED for a damaged page or damaged undo, and
 * ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
#ifndef ZUNDO_ZSCAN_H
#define ZUNDO_ZSCAN_H

#include "access/tableam.h"
#include "common/zundo.h"
#include "mvcc/zpageview.h"
#include "mvcc/zssi.h"
#include "mvcc/zvis.h"

/* ---- scan/zscan.c ---- */

/*
 * zheap_scan_begin: returns a new scan, allocated in CurrentMemoryContext.
 * Attaches undo, which stays loaded as long as the scan lasts.
 *
 * zheap_scan_end: releases all that the scan holds, also the snapshot if the
 * scan owns it.
 *
 * zheap_scan_rescan: puts the scan before its first row again.
 *
 * zheap_scan_getnextslot: shows the next row in slot; returns false at the end
 * of the scan.
 *
 * zheap_scan_set_tidrange: restricts the scan to the blocks of the range.
 *
 * zheap_scan_getnextslot_tidrange: shows the next row of the range in slot;
 * returns false at the first row beyond the range in the direction of the
 * scan.
 */
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

/* ---- scan/zdetoast.c ---- */

/*
 * zheap_fetch_toast_slice: reads a slice of a value. Raises
 * ERRCODE_DATA_CORRUPTED if a chunk is missing.
 */
extern void zheap_fetch_toast_slice(Relation toastrel, Oid valueid, int32 attrsize,
									int32 sliceoffset, int32 slicelength, struct varlena *result);

/* ---- scan/zfetch.c: index fetch, TID fetch ---- */

/*
 * zheap_index_fetch_begin: begins a series of index fetches from rel. Returns
 * its state, which zheap_index_fetch_end frees. Attaches undo.
 *
 * zheap_index_fetch_reset: releases the pin of the last block, and forgets the
 * expected entry, the noted entries and the rows that were passed by.
 *
 * zheap_index_fetch_end: resets the state, and frees it.
 *
 * zheap_index_fetch_tuple: shows in slot the version of the row at tid that
 * the snapshot sees; returns false if there is none, or if its key is not that
 * of the zbtree entry. The block read last stays pinned.
 *
 * zheap_tuple_fetch_row_version: shows the version of the row at tid that the
 * snapshot sees; returns false if there is none. tid may be a handle (HANDLE-3
 * in mvcc/).
 *
 * zheap_tuple_tid_valid: returns whether the scan's table has the block of
 * tid.
 *
 * zheap_tuple_get_latest_tid: sets *tid to the last place, on the way of the
 * row's moves, at which the scan's snapshot sees a version.
 *
 * zheap_tuple_satisfies_snapshot: returns whether the snapshot sees the
 * version in slot.
 */
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

/* ---- scan/zindex_delete.c ---- */

/*
 * zheap_index_delete_tuples: marks the deletable entries in delstate, and cuts
 * off those after the last one. Returns the conflict horizon: the youngest
 * deleter whose undo has not been discarded yet. Raises
 * ERRCODE_INDEX_CORRUPTED for an entry that points to no line pointer.
 */
extern TransactionId zheap_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate);

/* ---- scan/zbuild.c ---- */

/*
 * zheap_index_build_range_scan: passes the rows to callback. Returns the
 * number of live ones.
 *
 * zheap_index_validate_scan: merges the rows that the snapshot sees with the
 * sorted TIDs of the index, and inserts those that are missing.
 */
extern double zheap_index_build_range_scan(Relation rel, Relation index, struct IndexInfo *info,
										   bool allow_sync, bool anyvisible, bool progress,
										   BlockNumber start_blockno, BlockNumber numblocks,
										   IndexBuildCallback callback, void *callback_state,
										   TableScanDesc scan);
extern void zheap_index_validate_scan(Relation rel, Relation index, struct IndexInfo *info,
									  Snapshot snapshot, struct ValidateIndexState *state);

/* ---- scan/zbuild_serial.c ---- */

/*
 * zheap_build_is_serial: returns whether parallel workers must not build the
 * index of this table that is being created or rebuilt (BUILD-7). The table is
 * locked as for that.
 */
extern bool zheap_build_is_serial(Oid table);

/* ---- scan/zscan.c ---- */

/*
 * zheap_fill_scan_callbacks: fills in the callbacks of bitmap scans, sample
 * scans and ANALYZE, which differ by version (scan/zbitmap.c, scan/zsample.c).
 */
extern void zheap_fill_scan_callbacks(TableAmRoutine *routine);

#endif
