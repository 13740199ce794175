/*
 * zbtree/queue.h - the queue in shared memory of index entries that may be
 * stale and that the worker is to look at.
 */
#ifndef ZUNDO_ZBTREE_QUEUE_H
#define ZUNDO_ZBTREE_QUEUE_H

#include "access/itup.h"
#include "common/zundo.h"
#include "utils/relcache.h"

/* The queue consists of chunks of this many bytes, each of one database. */
#define ZQUEUE_CHUNK	8192

/*
 * An item of the queue: an entry to look at when xid is before `oldest`. The
 * entry's included columns are null.
 */
typedef struct ZQueuedKey
{
	ZXid		xid;			/* transaction that changed the row's key */
	Oid			table;
	Oid			index;
	IndexTupleData entry;
} ZQueuedKey;

/* zkeyqueue_length: returns how many bytes of a chunk the item occupies. */
static inline Size
zkeyqueue_length(const ZQueuedKey *key)
{
	return MAXALIGN(offsetof(ZQueuedKey, entry) + IndexTupleSize(&key->entry));
}

/*
 * zkeyqueue_note: notes, in the session's memory, that the current
 * (sub)transaction has replaced a key. The entry of the old key becomes stale
 * if the transaction commits, that of the new key if it aborts. One of the two
 * is NULL if the row had no entry before, or has none now. Copies both
 * entries, each of which has at most ZQUEUE_CHUNK / 2 bytes. Does nothing for
 * a temporary table, or without a queue. Raises an error if memory is
 * exhausted.
 */
extern void zkeyqueue_note(Relation index, Relation table, IndexTuple oldentry,
						   IndexTuple newentry);

/*
 * zkeyqueue_at_xact_end: queues the entries that the transaction has noted,
 * those of replaced keys, of new keys, or both, and forgets them. Called by
 * the callback of the transaction's end, before zu_at_xact_end: that asks for
 * a worker if the one that discarded the transaction's undo has left before it
 * could see the entries. Allocates nothing, raises nothing.
 *
 * zkeyqueue_at_subxact_end: queues the entries of new keys if the
 * subtransaction of this nest level has aborted, or passes the notes to its
 * parent if it has committed. Allocates nothing, raises nothing.
 */
extern void zkeyqueue_at_xact_end(bool replaced, bool made);
extern void zkeyqueue_at_subxact_end(int level, bool commit);

/*
 * zkeyqueue_bound: returns a number that is above those of all chunks begun so
 * far, for zkeyqueue_take.
 */
extern uint64 zkeyqueue_bound(void);

/*
 * zkeyqueue_take: removes the chunk of this database that was begun first, if
 * it was begun before 'bound' and the transactions of all its items are before
 * oldest. Copies its items to buf, which has space for ZQUEUE_CHUNK bytes.
 * Returns their length, or 0 if no chunk was removed.
 */
extern Size zkeyqueue_take(ZXid oldest, uint64 bound, char *buf);

/*
 * zkeyqueue_put: puts an item back, into the newest chunk; drops it if the
 * queue is full.
 */
extern void zkeyqueue_put(const ZQueuedKey *key);

/*
 * zkeyqueue_is_empty: returns whether this database has no items in the queue.
 */
extern bool zkeyqueue_is_empty(void);

/*
 * zkeyqueue_forget: drops all items of a database that no worker will look at,
 * because it does not exist any more or has no zundo.
 */
extern void zkeyqueue_forget(Oid db);

/*
 * zkeyqueue_shmem_size, zkeyqueue_shmem_startup: return the size of the queue,
 * and create it in shared memory, empty, or attach to it. Called by the shared
 * memory hooks.
 */
extern Size zkeyqueue_shmem_size(void);
extern void zkeyqueue_shmem_startup(void);

#endif
