/* discard/zfile.h - finding the table that has a file now. */
#ifndef ZUNDO_ZFILE_H
#define ZUNDO_ZFILE_H

#include "common/zundo.h"
#include "nodes/pg_list.h"

/*
 * zfile_owners: returns the OIDs of all relations whose file has this number,
 * in any tablespace. In a transaction. The caller holds a lock, or has held
 * one, on the table that had the file when it was written, so that the caches
 * are up to date; and it locks the owners before it relies on them.
 */
extern List *zfile_owners(RelFileNumber relnumber);

#endif
