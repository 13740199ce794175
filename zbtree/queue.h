/*
 * zbtree/queue.h - entries of zbtree indexes that may be stale, in shared
 * memory until the worker looks at them.
 */
#ifndef ZUNDO_ZBTREE_QUEUE_H
#define ZUNDO_ZBTREE_QUEUE_H

#include "access/itup.h"
#include "common/zundo.h"
#include "utils/relcache.h"

/* The queue is given out and taken in chunks of this many bytes. */
#define ZQUEUE_CHUNK	8192

/*
 * An entry to look at when xid is before `oldest`. Its key columns follow;
 * included columns are null.
 */
typedef struct ZQueuedKey
{
	ZXid		xid;			/* that has changed the row */
	Oid			table;
	Oid			index;
	IndexTupleData entry;
} ZQueuedKey;

/* zqueue_length: returns the bytes that the item takes in a chunk. */
static inline Size
zqueue_length(const ZQueuedKey *key)
{
	return MAXALIGN(offsetof(ZQueuedKey, entry) + IndexTupleSize(&key->entry));
}

/*
 * zqueue_note: notes that the current (sub)transaction has replaced a key. The
 * entry of the old key will be stale if it commits, that of the new one if it
 * aborts. Makes copies. Does nothing for a temporary table.
 */
extern void zqueue_note(Relation index, Relation table, IndexTuple oldentry, IndexTuple newentry);

/*
 * zqueue_at_xact_end: queues what the transaction has noted: the entries of the
 * keys that it has replaced, of those that it has made, or both. Called in the
 * callbacks of its end. Allocates nothing, raises nothing.
 * zqueue_at_subxact_end: the same for the subtransaction of this nest level.
 */
extern void zqueue_at_xact_end(bool replaced, bool made);
extern void zqueue_at_subxact_end(int level, bool commit);

/*
 * zqueue_take: takes the oldest chunk of this database out of the queue if all
 * its items are before oldest. Copies it to buf (ZQUEUE_CHUNK bytes) and
 * returns its length, or 0.
 */
extern Size zqueue_take(ZXid oldest, char *buf);

/* zqueue_put: puts an item back. It is lost if the queue is full. */
extern void zqueue_put(const ZQueuedKey *key);

/* zqueue_is_empty: returns whether this database has no items in the queue. */
extern bool zqueue_is_empty(void);

/*
 * zqueue_forget: drops all items of a database, which does not exist any more
 * or has no zundo: no worker would take them.
 */
extern void zqueue_forget(Oid db);

/* For the shared memory hooks in hooks.c. */
extern Size zqueue_shmem_size(void);
extern void zqueue_shmem_startup(void);

#endif
