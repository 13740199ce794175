/*
 * vacuum/zdead.h - dead line pointers noted by VACUUM, and removing their TIDs
 * from indexes.
 */
#ifndef ZUNDO_ZDEAD_H
#define ZUNDO_ZDEAD_H

#include "access/genam.h"
#include "common/zundo.h"

typedef struct ZDead ZDead;

/*
 * zdead_begin: returns an empty store for a vacuum of rel that may take
 * 'kilobytes' of memory. nworkers is as in VacuumParams: -1 means no parallel
 * workers, 0 as many as the server finds useful, n at most n. If the server
 * starts any, the session is in parallel mode until zdead_end, in which it can
 * neither get a transaction id nor update a catalog. verbose: report the
 * workers to the client. Tells the progress report the limit, as zdead_note
 * does the number. Raises a WARNING if workers are requested for a temporary
 * table.
 */
extern ZDead *zdead_begin(Relation rel, Relation *indexes, int nindexes, int nworkers,
						  int kilobytes, bool verbose, BufferAccessStrategy strategy);

/*
 * zdead_note: notes n > 0 line pointers of a block. Blocks, and the offsets of
 * a block, must be passed in ascending order.
 */
extern void zdead_note(ZDead *dead, BlockNumber block, OffsetNumber *offsets, int n);

/*
 * zdead_is_full: returns true if the store must be emptied before the next
 * block is noted. zdead_count: returns the number of noted line pointers.
 */
extern bool zdead_is_full(const ZDead *dead);
extern int64 zdead_count(const ZDead *dead);

/* zdead_empty: forgets all noted line pointers. */
extern void zdead_empty(ZDead *dead);

/*
 * zdead_each_block: calls 'what' for each noted block, in ascending order,
 * with its noted line pointers.
 */
typedef void (*ZDeadBlock) (BlockNumber block, const OffsetNumber *offsets, int n, void *arg);
extern void zdead_each_block(ZDead *dead, ZDeadBlock what, void *arg);

/*
 * zdead_is_parallel: returns true if there are parallel workers, which clean
 * all indexes at once.
 */
extern bool zdead_is_parallel(const ZDead *dead);

/*
 * zdead_clean_index: removes the noted TIDs from one index. Takes its
 * statistics so far, or NULL, and returns the new ones.
 *
 * zdead_clean_together: removes them from all indexes by parallel workers.
 * rows is the number of rows of the table as far as known, earlier the number
 * of previous calls.
 */
extern IndexBulkDeleteResult *zdead_clean_index(ZDead *dead, IndexVacuumInfo *info,
												IndexBulkDeleteResult *stats);
extern void zdead_clean_together(ZDead *dead, double rows, int earlier);

/*
 * zdead_finish_together: calls amvacuumcleanup of all indexes by parallel
 * workers, after 'cleaned' calls of zdead_clean_together. rows is the number of
 * rows of the table; estimated: it is not exact.
 */
extern void zdead_finish_together(ZDead *dead, double rows, int cleaned, bool estimated);

/*
 * zdead_end: frees the store, and leaves parallel mode, in which case it sets
 * stats[] for each index to its statistics or NULL.
 */
extern void zdead_end(ZDead *dead, IndexBulkDeleteResult **stats);

#endif
