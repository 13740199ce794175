/*
 * zbtree/queue.c - the queue in shared memory of index entries that may be
 * stale and that the worker is to look at.
 *
 * An update in place that changes a key leaves the entry of the old key in the
 * index; the entry is not needed any more once all snapshots see the update.
 * The updating session notes both keys in its own memory. When the transaction
 * ends, the session puts the entries that are stale then into the queue. The
 * worker of the database takes them out and deletes them (purge.c).
 *
 * Stale after a commit are the old keys, after an abort the new keys; both are
 * queued at PREPARE, when the outcome is not known. A transaction that fills
 * the session's memory for notes queues its old keys early and forgets the new
 * ones. The worker takes items only after their transactions are before
 * `oldest`: earlier it would find the entries needed, and would not look at
 * them again.
 *
 * The queue is a hint. If an item is lost (no space, a crash, an error of the
 * worker), its entry stays until VACUUM deletes it; a superfluous item costs
 * one search.
 *
 * Locks: one LWLock, under which no other lock is taken. No crash points.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "undo/undo.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "zbtree/queue.h"

/* How much a session notes before it queues the old keys early. */
#define NOTED_BYTES		(256 * 1024)
#define LEAST_LENGTH	MAXALIGN(sizeof(ZQueuedKey))
#define NOTED_PAIRS		((int) (NOTED_BYTES / (2 * LEAST_LENGTH)))

/*
 * A database that has more than this share of the chunks gets no further one.
 */
#define QUOTA_NUMERATOR		3
#define QUOTA_DENOMINATOR	4

typedef struct KeyChunk
{
	Oid			db;				/* InvalidOid = free */
	uint32		used;			/* bytes */
	uint64		seq;			/* unique; ascending as chunks are begun */
	ZXid		max_xid;		/* highest xid of its items */
} KeyChunk;

typedef struct KeyQueue
{
	LWLock		lock;
	int			tranche;
	int			nchunks;
	uint64		next_seq;
	KeyChunk	chunks[FLEXIBLE_ARRAY_MEMBER];
} KeyQueue;

/* One change of a key: the item of the old key, followed by that of the new. */
typedef struct NotedPair
{
	int			level;			/* nest level of the (sub)transaction */
	bool		replaced;		/* there is an item of the old key */
	bool		made;			/* there is an item of the new key */
	uint32		at;				/* where the items begin in MyQueue.bytes */
} NotedPair;

typedef struct MyQueue
{
	KeyQueue   *shared;			/* NULL: zundo.key_queue is 0 */
	char	   *data;			/* the bytes of all chunks */
	int			chunk;			/* chunk to which this process added last; it
								 * may have been taken since, then its number
								 * is not seq */
	uint64		seq;
	char	   *bytes;			/* noted items; NULL: nothing was noted yet */
	NotedPair  *pairs;
	uint32		used;			/* of bytes */
	int			npairs;
} MyQueue;

static MyQueue my;

/* Returns how many chunks zundo.key_queue allows. */
static int
number_of_chunks(void)
{
	return zundo_key_queue / (ZQUEUE_CHUNK / 1024);
}

/* Returns the bytes in front of the contents of the chunks. */
static Size
size_of_headers(void)
{
	return MAXALIGN(add_size(offsetof(KeyQueue, chunks),
							 mul_size(number_of_chunks(), sizeof(KeyChunk))));
}

Size
zkeyqueue_shmem_size(void)
{
	if (number_of_chunks() == 0)
		return 0;
	return add_size(size_of_headers(), mul_size(number_of_chunks(), ZQUEUE_CHUNK));
}

/* zkeyqueue_shmem_startup: See queue.h. */
void
zkeyqueue_shmem_startup(void)
{
	bool		found;

	if (number_of_chunks() == 0)
		return;
	my.shared = ShmemInitStruct("zundo index keys", zkeyqueue_shmem_size(), &found);
	my.data = (char *) my.shared + size_of_headers();
	if (!found)
	{
		memset(my.shared, 0, size_of_headers());
		my.shared->tranche = zc_new_tranche("zundo_index_keys");
		LWLockInitialize(&my.shared->lock, my.shared->tranche);
		my.shared->nchunks = number_of_chunks();
		my.shared->next_seq = 1;
	}
	zc_register_tranche(my.shared->tranche, "zundo_index_keys");
}

/*
 * Returns the chunk for an item of this database, or -1 if there is no space or
 * the database has used up its share. Begins a chunk if the newest one of the
 * database is full. The caller holds the queue's lock exclusively.
 */
static int
chunk_for(Size length)
{
	KeyQueue   *q = my.shared;
	int			mine = 0;
	int			newest = -1;
	int			unused = -1;

	Assert(LWLockHeldByMeInMode(&q->lock, LW_EXCLUSIVE) && OidIsValid(MyDatabaseId));
	if (my.seq != 0 && q->chunks[my.chunk].seq == my.seq &&
		q->chunks[my.chunk].db == MyDatabaseId &&
		q->chunks[my.chunk].used + length <= ZQUEUE_CHUNK)
		return my.chunk;
	for (int i = 0; i < q->nchunks; i++)
	{
		if (q->chunks[i].db == MyDatabaseId)
		{
			mine++;
			if (newest < 0 || q->chunks[i].seq > q->chunks[newest].seq)
				newest = i;
		}
		else if (!OidIsValid(q->chunks[i].db))
			unused = i;
	}
	if (newest < 0 || q->chunks[newest].used + length > ZQUEUE_CHUNK)
	{
		if (unused < 0 || mine > q->nchunks * QUOTA_NUMERATOR / QUOTA_DENOMINATOR)
			return -1;
		newest = unused;
		q->chunks[newest] = (KeyChunk)
		{
			MyDatabaseId, 0, q->next_seq++, InvalidZXid
		};
	}
	my.chunk = newest;
	my.seq = q->chunks[newest].seq;
	return newest;
}

/*
 * Adds an item. Returns false if there is no space. The caller holds the
 * queue's lock exclusively.
 */
static bool
add(const ZQueuedKey *key)
{
	Size		length = zkeyqueue_length(key);
	int			i = chunk_for(length);
	KeyChunk   *chunk;

	if (i < 0)
		return false;
	chunk = &my.shared->chunks[i];
	memcpy(my.data + (Size) i * ZQUEUE_CHUNK + chunk->used, key, length);
	chunk->used += length;
	chunk->max_xid = Max(chunk->max_xid, key->xid);
	Assert(key->xid != InvalidZXid && chunk->used <= ZQUEUE_CHUNK);
	return true;
}

/*
 * Queues the items of the noted pairs from 'first' on: those of the replaced
 * keys, of the new keys ('made'), or both. Forgets these pairs. Items for which
 * the queue has no space are dropped.
 */
static void
hand_over(int first, bool replaced, bool made)
{
	bool		has_space = true;

	if (first >= my.npairs)
		return;
	LWLockAcquire(&my.shared->lock, LW_EXCLUSIVE);
	for (int i = first; i < my.npairs && has_space; i++)
	{
		const NotedPair *pair = &my.pairs[i];
		const ZQueuedKey *key = (const ZQueuedKey *) (my.bytes + pair->at);

		if (replaced && pair->replaced)
			has_space = add(key);
		if (pair->replaced)
			key = (const ZQueuedKey *) ((const char *) key + zkeyqueue_length(key));
		if (made && pair->made && has_space)
			has_space = add(key);
	}
	LWLockRelease(&my.shared->lock);
	my.used = my.pairs[first].at;
	my.npairs = first;
}

/* Appends an item to the noted bytes. */
static void
append(ZXid xid, Relation index, Oid table, IndexTuple entry)
{
	ZQueuedKey *key = (ZQueuedKey *) (my.bytes + my.used);

	key->xid = xid;
	key->table = table;
	key->index = RelationGetRelid(index);
	memcpy(&key->entry, entry, IndexTupleSize(entry));
	my.used += zkeyqueue_length(key);
	Assert(my.used <= NOTED_BYTES);
}

/*
 * zkeyqueue_note: See queue.h. If the session's memory for notes is full,
 * queues the old keys as if the transaction had committed. If it aborts after
 * that, the worker finds the entries of the old keys needed, and those of the
 * new keys stay until VACUUM deletes them.
 */
void
zkeyqueue_note(Relation index, Relation table, IndexTuple oldentry, IndexTuple newentry)
{
	ZXid		xid = zxid_widen(GetCurrentTransactionId());
	Size		length = 2 * MAXALIGN(offsetof(ZQueuedKey, entry));
	NotedPair  *pair;

	Assert(oldentry != NULL || newentry != NULL);
	if (oldentry != NULL)
		length += MAXALIGN(IndexTupleSize(oldentry));
	if (newentry != NULL)
		length += MAXALIGN(IndexTupleSize(newentry));
	if (my.shared == NULL || RelationUsesLocalBuffers(table))
		return;
	if (my.bytes == NULL)
	{
		if (my.pairs == NULL)
			my.pairs = MemoryContextAlloc(TopMemoryContext, NOTED_PAIRS * sizeof(NotedPair));
		my.bytes = MemoryContextAlloc(TopMemoryContext, NOTED_BYTES);
	}
	Assert(length <= 2 * ZQUEUE_CHUNK);
	if (my.npairs == NOTED_PAIRS || my.used + length > NOTED_BYTES)
		hand_over(0, true, false);
	pair = &my.pairs[my.npairs++];
	pair->level = GetCurrentTransactionNestLevel();
	pair->replaced = (oldentry != NULL);
	pair->made = (newentry != NULL);
	pair->at = my.used;
	if (pair->replaced)
		append(xid, index, RelationGetRelid(table), oldentry);
	if (pair->made)
		append(xid, index, RelationGetRelid(table), newentry);
}

/*
 * zkeyqueue_at_xact_end: See queue.h. A transaction that has changed a key has
 * written undo, and so asks for a worker when it has queued the items.
 */
void
zkeyqueue_at_xact_end(bool replaced, bool made)
{
	Assert(my.npairs == 0 || zu_my_transaction_start() != InvalidUndoPtr);
	hand_over(0, replaced, made);
	Assert(my.npairs == 0);
}

/*
 * zkeyqueue_at_subxact_end: See queue.h. The pairs of a subtransaction and of
 * its own subtransactions are the last ones, because only the innermost one
 * writes.
 */
void
zkeyqueue_at_subxact_end(int level, bool commit)
{
	int			first = my.npairs;

	Assert(level > 1);
	while (first > 0 && my.pairs[first - 1].level >= level)
		first--;
	if (!commit)
		hand_over(first, false, true);
	for (int i = first; i < my.npairs; i++)
		my.pairs[i].level = level - 1;
}

uint64
zkeyqueue_bound(void)
{
	uint64		bound;

	if (my.shared == NULL)
		return 0;
	LWLockAcquire(&my.shared->lock, LW_SHARED);
	bound = my.shared->next_seq;
	LWLockRelease(&my.shared->lock);
	return bound;
}

Size
zkeyqueue_take(ZXid oldest, uint64 bound, char *buf)
{
	KeyQueue   *q = my.shared;
	KeyChunk   *chunk = NULL;
	Size		length = 0;

	if (q == NULL)
		return 0;
	LWLockAcquire(&q->lock, LW_EXCLUSIVE);
	for (int i = 0; i < q->nchunks; i++)
		if (q->chunks[i].db == MyDatabaseId &&
			(chunk == NULL || q->chunks[i].seq < chunk->seq))
			chunk = &q->chunks[i];
	if (chunk != NULL && chunk->seq < bound && chunk->max_xid < oldest)
	{
		length = chunk->used;
		memcpy(buf, my.data + (chunk - q->chunks) * ZQUEUE_CHUNK, length);
		chunk->db = InvalidOid;
	}
	LWLockRelease(&q->lock);
	return length;
}

void
zkeyqueue_put(const ZQueuedKey *key)
{
	if (my.shared == NULL)
		return;
	LWLockAcquire(&my.shared->lock, LW_EXCLUSIVE);
	(void) add(key);
	LWLockRelease(&my.shared->lock);
}

bool
zkeyqueue_is_empty(void)
{
	bool		empty = true;

	if (my.shared == NULL)
		return true;
	LWLockAcquire(&my.shared->lock, LW_SHARED);
	for (int i = 0; i < my.shared->nchunks && empty; i++)
		empty = my.shared->chunks[i].db != MyDatabaseId;
	LWLockRelease(&my.shared->lock);
	return empty;
}

void
zkeyqueue_forget(Oid db)
{
	Assert(OidIsValid(db));
	if (my.shared == NULL)
		return;
	LWLockAcquire(&my.shared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < my.shared->nchunks; i++)
		if (my.shared->chunks[i].db == db)
			my.shared->chunks[i].db = InvalidOid;
	LWLockRelease(&my.shared->lock);
}
