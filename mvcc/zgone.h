/*
 * mvcc/zgone.h - values out of line that have been given up. Private to mvcc/.
 */
#ifndef ZUNDO_ZGONE_H
#define ZUNDO_ZGONE_H

#include "utils/relcache.h"

/*
 * zgone_values: returns whether a chunk of a value out of line of this old,
 * committed version of a row of rel is gone, so that no snapshot needs the
 * version. The caller holds `oldest` (zu_hold). Raises ERRCODE_DATA_CORRUPTED.
 */
extern bool zgone_values(Relation rel, const char *row, int len);

#endif
