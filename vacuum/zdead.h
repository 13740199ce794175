/*
 * vacuum/zdead.h - the dead line pointers that a VACUUM has noted, and cleaning indexes of their TIDs.
 */
#ifndef ZUNDO_ZDEAD_H
#define ZUNDO_ZDEAD_H

#include "access/genam.h"
#include "common/zundo.h"

typedef struct ZDead ZDead;

/*
 * zdead_begin: an empty note for a vacuum of rel. kilobytes: memory that it may take. nworkers: as in VacuumParams, -1 no parallel
 * workers, 0 as many as the server finds useful, else at most so many. If the server grants any, the session is in parallel mode until
 * zdead_end: it gets no transaction id, and updates no catalog. verbose: tell the client of started workers. Warns if workers are asked for
 * and cannot read the table.
 */
extern ZDead *zdead_begin(Relation rel, Relation *indexes, int nindexes, int nworkers, int kilobytes,
						  bool verbose, BufferAccessStrategy strategy);

/* zdead_note: note n > 0 line pointers of a block, in ascending order; blocks come in ascending order. */
extern void zdead_note(ZDead *dead, BlockNumber block, OffsetNumber *offsets, int n);

/* zdead_is_full: has the note taken its memory? Then it is to be emptied before the next block. */
extern bool zdead_is_full(const ZDead *dead);
extern int64 zdead_count(const ZDead *dead);

/* zdead_empty: forget what was noted. */
extern void zdead_empty(ZDead *dead);

/* zdead_each_block: call what for each block that was noted, in ascending order, with its line pointers. */
typedef void (*ZDeadBlock) (BlockNumber block, const OffsetNumber *offsets, int n, void *arg);
extern void zdead_each_block(ZDead *dead, ZDeadBlock what, void *arg);

/* zdead_is_parallel: did the server grant workers? Then indexes are cleaned all together. */
extern bool zdead_is_parallel(const ZDead *dead);

/*
 * zdead_clean_index: remove the entries of noted TIDs from one index; returns its statistics so far, given those of before (or NULL).
 * zdead_clean_together: from all indexes at once; rows: what the table is known to have, earlier: how often this was done before.
 */
extern IndexBulkDeleteResult *zdead_clean_index(ZDead *dead, IndexVacuumInfo *info, IndexBulkDeleteResult *stats);
extern void zdead_clean_together(ZDead *dead, double rows, int earlier);

/* zdead_finish_together: let all indexes finish their vacuum, after zdead_clean_together was called so often. */
extern void zdead_finish_together(ZDead *dead, double rows, int cleaned, bool estimated);

/* zdead_end: free all, and leave parallel mode; then stats[] gets what is known of each index, or NULL. */
extern void zdead_end(ZDead *dead, IndexBulkDeleteResult **stats);

#endif
