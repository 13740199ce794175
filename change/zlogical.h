/*
 * change/zlogical.h - what logical decoding makes of zheap tables.
 */
#ifndef ZUNDO_ZLOGICAL_H
#define ZUNDO_ZLOGICAL_H

#include "common/zundo.h"
#include "replication/decode.h"

/* zlogical_decode: rm_decode of the resource manager. */
extern void zlogical_decode(LogicalDecodingContext *ctx, XLogRecordBuffer *buf);

/*
 * zlogical_is_published: returns whether a publication publishes changes of
 * rel's rows, as far as the relcache knows.
 */
extern bool zlogical_is_published(Relation rel);

/*
 * zlogical_warn: raises a WARNING for a new permanent zheap table of this name,
 * if the database has a logical replication slot.
 */
extern void zlogical_warn(const char *name);

#endif
