/*
 * vacuum/zstale.h - rows with stale index keys noted by VACUUM, and removing
 * the entries of zbtree indexes that nobody needs (ZBTREE-8, ZBTREE-9).
 */
#ifndef ZUNDO_ZSTALE_H
#define ZUNDO_ZSTALE_H

#include "access/genam.h"
#include "common/zundo.h"

typedef struct ZStale ZStale;

/* zstale_begin: returns an empty note that may take 'kilobytes' of memory. */
extern ZStale *zstale_begin(Relation rel, int kilobytes);
extern void zstale_end(ZStale *stale);

/*
 * zstale_note: notes the live rows with ZH_STALE_KEYS of the block in buf,
 * which is locked. Blocks must be passed in ascending order, and their pages as
 * the caller leaves them. Returns whether there are any.
 */
extern bool zstale_note(ZStale *stale, Buffer buf);

/* zstale_is_full: returns whether the note must be emptied. */
extern bool zstale_is_full(const ZStale *stale);
extern int64 zstale_count(const ZStale *stale);
extern void zstale_empty(ZStale *stale);

/*
 * zstale_clean_index: removes the entries of noted rows that nobody needs from
 * the index, which is a zbtree one. stats as for index_bulk_delete.
 */
extern IndexBulkDeleteResult *zstale_clean_index(ZStale *stale, IndexVacuumInfo *info,
												 IndexBulkDeleteResult *stats);

/*
 * zstale_clear: takes ZH_STALE_KEYS off the noted rows that have no stale entry
 * any more, and sets the visibility map's bit of their pages where that is
 * possible. *map is a pinned page of the map, or invalid. All zbtree indexes
 * have been cleaned.
 */
extern void zstale_clear(ZStale *stale, BufferAccessStrategy strategy, Buffer *map);

#endif
