/*
 * mvcc/zread.h - the table page that this session has come to last.
 */
#ifndef ZUNDO_ZREAD_H
#define ZUNDO_ZREAD_H

#include "storage/bufmgr.h"
#include "utils/relcache.h"

/*
 * zread_page: does what ReadBuffer does for the main fork, and cheaper if the
 * last call of this session was for the same page.
 */
extern Buffer zread_page(Relation rel, BlockNumber block);

#endif
