/*
 * change/zredo.h - recovery entry points of the zundo resource manager.
 */
#ifndef ZUNDO_ZREDO_H
#define ZUNDO_ZREDO_H

#include "change/zwal.h"

extern void zredo(XLogReaderState *record);

/*
 * zredo_mask: hides what may differ between a primary's page and its replay,
 * for wal_consistency_checking.
 */
extern void zredo_mask(char *page, BlockNumber block);

#endif
