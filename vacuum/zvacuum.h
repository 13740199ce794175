/*
 * vacuum/zvacuum.h - VACUUM, rewrites and the size callbacks of zheap tables.
 */
#ifndef ZUNDO_ZVACUUM_H
#define ZUNDO_ZVACUUM_H

#include "access/tableam.h"
#include "common/zundo.h"

/*
 * Callbacks of the table AM: arguments and results are those of the callbacks
 * of tableam.h with the same names.
 *
 * zheap_relation_vacuum: frees the line pointers of dead rows and removes the
 * index entries that point to them; the rows' bytes can be reused since their
 * deletion has committed. rel is locked in ShareUpdateExclusiveLock mode, and a
 * snapshot is active. Raises ERRCODE_DATA_CORRUPTED.
 */
extern void zheap_relation_vacuum(Relation rel, ZC_VACUUM_PARAMS * params,
								  BufferAccessStrategy bstrategy);

/*
 * zheap_copy_for_cluster: copies to new the versions of old that a snapshot may
 * need (CLUSTER-1). Both are locked in AccessExclusiveLock mode.
 * If it is given a snapshot, copies the versions that this one sees, and old is
 * locked in ShareUpdateExclusiveLock mode only (CLUSTER-1e).
 *
 * zheap_set_new_filelocator: creates the storage of a new or truncated table.
 * An unlogged table gets an empty init fork, too.
 *
 * zheap_nontransactional_truncate: empties a file that the same transaction
 * has made.
 *
 * zheap_copy_data: copies the file of rel to a new one in another tablespace.
 *
 * zheap_estimate_size: estimates pages, rows and the part that is all-visible,
 * for the planner.
 */
extern void zheap_copy_for_cluster(Relation old, Relation new, Relation index, bool use_sort,
								   TransactionId oldest_xmin, ZC_REWRITE_SNAPSHOT_PARAM
								   TransactionId *xid_cutoff,
								   MultiXactId *multi_cutoff, double *num_tuples,
								   double *tups_vacuumed, double *tups_recently_dead);
extern void zheap_set_new_filelocator(Relation rel, const RelFileLocator *locator, char persistence,
									  TransactionId *freeze_xid, MultiXactId *minmulti);
extern void zheap_nontransactional_truncate(Relation rel);
extern void zheap_copy_data(Relation rel, const RelFileLocator *locator);
extern void zheap_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages,
								double *tuples, double *allvisfrac);

#endif
