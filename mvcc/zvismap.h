/*
 * mvcc/zvismap.h - the visibility map of a table (VMAP-1 to VMAP-3 in
 * mvcc/zvismap.c).
 */
#ifndef ZUNDO_ZVISMAP_H
#define ZUNDO_ZVISMAP_H

#include "change/zchange.h"
#include "mvcc/zpageview.h"
#include "storage/bufmgr.h"
#include "utils/relcache.h"

/*
 * zvismap_clear_in: makes a change of rows, all on page[0], clear the flag and
 * the visibility map's bit of that page (VMAP-2). Called right before
 * zchange_do, which releases the map's page. Raises errors of reading it.
 */
extern void zvismap_clear_in(Relation rel, ZChange *change);

/*
 * zvismap_clear: clears the flag and the visibility map's bit of buf's page,
 * which is exclusively locked, with a WAL record of its own; for what
 * zvismap_clear_in cannot do.
 */
extern void zvismap_clear(Relation rel, Buffer buf);

/*
 * zvismap_mark: sets the bit of buf's page, which is exclusively locked, in
 * the visibility map if VMAP-1 allows it; WAL-logged. map is the map's page,
 * pinned by visibilitymap_pin. Returns false if the bit is not set now, or was
 * set before. For VACUUM.
 */
extern bool zvismap_mark(Relation rel, Buffer buf, Buffer map);

/*
 * zvismap_after_read: sets the bit of buf's page if VMAP-1 allows it;
 * WAL-logged. Called when a scan of a statement that does not change the table
 * has read the page, which is pinned and not locked. view is the scan's copy
 * of the page, or NULL if there is none. Extends no file.
 */
extern void zvismap_after_read(Relation rel, Buffer buf, ZPageView *view);

/*
 * zvismap_has_space_entry: returns whether the free space map has a page for
 * the block, so that an entry does not extend the map.
 */
extern bool zvismap_has_space_entry(Relation rel, BlockNumber block);

#endif
