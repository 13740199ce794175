/*
 * vacuum/zvacuum.h - VACUUM, rewrites and the size callbacks of zheap tables.
 */
#ifndef ZUNDO_ZVACUUM_H
#define ZUNDO_ZVACUUM_H

#include "access/tableam.h"
#include "common/zundo.h"

extern void zheap_relation_vacuum(Relation rel, ZC_VACUUM_PARAMS * params,
								  BufferAccessStrategy bstrategy);
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
