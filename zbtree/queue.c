/*
 * zbtree/queue.c - entries of zbtree indexes that may be stale, in shared
 * memory until the worker looks at them.
 *
 * An update in place that changes a key leaves the entry of the old one, which
 * nobody needs once the update is settled. So the updating session notes it,
 * and puts it into the queue when its transaction ends: nothing is shared with
 * others before that. The worker of the database takes it out and looks at the
 * entry (purge.c).
 *
 * Owns rule ZBTREE-12. Locks: one LWLock, a leaf. No crash points.
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "zbtree/queue.h"

/* What a session notes before it hands the replaced keys over. */
#define NOTED_BYTES		(256 * 1024)
#define LEAST_LENGTH	MAXALIGN(sizeof(ZQueuedKey))
#define NOTED_PAIRS		((int) (NOTED_BYTES / (2 * LEAST_LENGTH)))

/* A database gets at most this share of the chunks. */
#define QUOTA_NUMERATOR		3
#define QUOTA_DENOMINATOR	4

typedef struct KeyChunk
{
	Oid			db;				/* InvalidOid = free */
	uint32		used;			/* bytes */
	uint64		seq;			/* chunks in the order in which they were
								 * begun */
	ZXid		max_xid;		/* of its items */
} KeyChunk;

typedef struct KeyQueue
{
	LWLock		lock;
	int			tranche;
	int			nchunks;
	uint64		next_seq;
	KeyChunk	chunks[FLEXIBLE_ARRAY_MEMBER];
} KeyQueue;

/* A replaced key and, behind it, the one that was made. */
typedef struct NotedPair
{
	int			level;			/* nest level of the (sub)transaction */
	uint32		at;				/* in the noted bytes */
} NotedPair;

typedef struct MyQueue
{
	KeyQueue   *shared;			/* NULL = there is none */
	char	   *data;			/* of all chunks */
	int			chunk;			/* that this process added to last ... */
	uint64		seq;			/* ... if it still has this number */
	char	   *bytes;			/* noted; NULL = nothing was noted yet */
	NotedPair  *pairs;
	uint32		used;
	int			npairs;
} MyQueue;

static MyQueue my;

static int
number_of_chunks(void)
{
	return zundo_key_queue / (ZQUEUE_CHUNK / 1024);
}

static Size
size_of_headers(void)
{
	return MAXALIGN(add_size(offsetof(KeyQueue, chunks),
							 mul_size(number_of_chunks(), sizeof(KeyChunk))));
}

Size
zqueue_shmem_size(void)
{
	if (number_of_chunks() == 0)
		return 0;
	return add_size(size_of_headers(), mul_size(number_of_chunks(), ZQUEUE_CHUNK));
}

/* Creates the queue, which is empty, or attaches to it. */
void
zqueue_shmem_startup(void)
{
	bool		found;

	if (number_of_chunks() == 0)
		return;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	my.shared = ShmemInitStruct("zundo index keys", zqueue_shmem_size(), &found);
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
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Returns the chunk for an item of this database, or -1 if the queue is full.
 * The queue is locked exclusively.
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

/* Adds an item; returns false if it has no room. Locked as for chunk_for. */
static bool
add(const ZQueuedKey *key)
{
	Size		length = zqueue_length(key);
	int			i = chunk_for(length);
	KeyChunk   *chunk;

	if (i < 0)
		return false;
	chunk = &my.shared->chunks[i];
	memcpy(my.data + (Size) i * ZQUEUE_CHUNK + chunk->used, key, length);
	chunk->used += length;
	chunk->max_xid = Max(chunk->max_xid, key->xid);
	Assert(key->xid != InvalidZXid && chunk->used <= ZQUEUE_CHUNK); /* ZBTREE-12 */
	return true;
}

/*
 * Queues the noted pairs from 'first' on, and forgets them. What the queue has
 * no room for waits for VACUUM.
 */
static void
hand_over(int first, bool replaced, bool made)
{
	bool		room = true;

	if (first >= my.npairs)
		return;
	LWLockAcquire(&my.shared->lock, LW_EXCLUSIVE);
	for (int i = first; i < my.npairs && room; i++)
	{
		const ZQueuedKey *old = (const ZQueuedKey *) (my.bytes + my.pairs[i].at);

		if (replaced)
			room = add(old);
		if (made && room)
			room = add((const ZQueuedKey *) ((const char *) old + zqueue_length(old)));
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
	my.used += zqueue_length(key);
	Assert(my.used <= NOTED_BYTES);
}

/*
 * A transaction that changes more keys than can be noted hands them over as if
 * it had committed. If it aborts, the old keys are found needed, and the new
 * ones wait for VACUUM.
 */
void
zqueue_note(Relation index, Relation table, IndexTuple oldentry, IndexTuple newentry)
{
	ZXid		xid = zxid_widen(GetCurrentTransactionId());
	Size		length = 2 * MAXALIGN(offsetof(ZQueuedKey, entry)) +
	MAXALIGN(IndexTupleSize(oldentry)) + MAXALIGN(IndexTupleSize(newentry));

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
	my.pairs[my.npairs].level = GetCurrentTransactionNestLevel();
	my.pairs[my.npairs].at = my.used;
	append(xid, index, RelationGetRelid(table), oldentry);
	append(xid, index, RelationGetRelid(table), newentry);
	my.npairs++;
}

void
zqueue_at_xact_end(bool replaced, bool made)
{
	hand_over(0, replaced, made);
}

/* The pairs of a subtransaction, and of those within it, are the last ones. */
void
zqueue_at_subxact_end(int level, bool commit)
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

Size
zqueue_take(ZXid oldest, char *buf)
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
	if (chunk != NULL && chunk->max_xid < oldest)
	{
		length = chunk->used;
		memcpy(buf, my.data + (chunk - q->chunks) * ZQUEUE_CHUNK, length);
		chunk->db = InvalidOid;
	}
	LWLockRelease(&q->lock);
	return length;
}

void
zqueue_put(const ZQueuedKey *key)
{
	if (my.shared == NULL)
		return;
	LWLockAcquire(&my.shared->lock, LW_EXCLUSIVE);
	(void) add(key);
	LWLockRelease(&my.shared->lock);
}

bool
zqueue_is_empty(void)
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
zqueue_forget(Oid db)
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
