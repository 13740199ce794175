/*
 * change/zredo.h - recovery entry points of the zundo resource manager.
 */
#ifndef ZUNDO_ZREDO_H
#define ZUNDO_ZREDO_H

#include "change/zwal.h"

/*
 * zredo: replays one WAL record of zundo; rm_redo of the resource manager.
 * Raises PANIC if the record is malformed.
 */
extern void zredo(XLogReaderState *record);

/*
 * zredo_mask: hides what may differ between a primary's page and its replay,
 * for wal_consistency_checking; rm_mask of the resource manager.
 */
extern void zredo_mask(char *page, BlockNumber block);

#endif
