/*
 * change/zredo.h - recovery entry points of the zundo resource manager.
 */
#ifndef ZUNDO_ZREDO_H
#define ZUNDO_ZREDO_H

#include "change/zwal.h"

extern void zredo(XLogReaderState *record);

/* zredo_mask: hide what may differ between a primary's page and its replay. */
extern void zredo_mask(char *page, BlockNumber block);

#endif
