/*
 * vacuum/zstale.h - VACUUM's note of rows with ZH_STALE_KEYS, and removing
 * those of their entries in zbtree indexes that are not needed (ZBTREE-8,
 * ZBTREE-9).
 */
#ifndef ZUNDO_ZSTALE_H
#define ZUNDO_ZSTALE_H

#include "access/genam.h"
#include "common/zundo.h"

typedef struct ZStale ZStale;

/*
 * zstale_begin: returns an empty note, palloc'd, for rows of rel, which is full
 * when it takes 'kilobytes' of memory. zstale_end: frees it.
 */
extern ZStale *zstale_begin(Relation rel, int kilobytes);
extern void zstale_end(ZStale *stale);

/*
 * zstale_note: notes the live rows with ZH_STALE_KEYS of the block in buf.
 * Returns whether there are any. The page is locked, and the caller will not
 * change it any more. Blocks must be passed in ascending order.
 */
extern bool zstale_note(ZStale *stale, Buffer buf);

/*
 * zstale_is_full: returns whether the caller must clean the indexes and empty
 * the note before it notes further rows. zstale_count: returns the number of
 * noted rows. zstale_empty: removes them from the note.
 */
extern bool zstale_is_full(const ZStale *stale);
extern int64 zstale_count(const ZStale *stale);
extern void zstale_empty(ZStale *stale);

/*
 * zstale_clean_index: removes those entries of noted rows from the zbtree index
 * that are not needed. stats and result are those of index_bulk_delete. Raises
 * the errors of nbtree and of reading undo.
 */
extern IndexBulkDeleteResult *zstale_clean_index(ZStale *stale, IndexVacuumInfo *info,
												 IndexBulkDeleteResult *stats);

/*
 * zstale_clear: removes ZH_STALE_KEYS from the noted rows that have no stale
 * entry any more (ZBTREE-9), and sets their pages' bit in the visibility map
 * where possible. On entry zstale_clean_index has run for all zbtree indexes of
 * the table. *map is a pinned page of the visibility map, or InvalidBuffer, on
 * entry and on return. Returns how many bits were set.
 */
extern BlockNumber zstale_clear(ZStale *stale, BufferAccessStrategy strategy, Buffer *map);

#endif
