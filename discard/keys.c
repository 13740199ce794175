/*
 * discard/keys.c - the worker deletes stale entries from zbtree indexes.
 *
 * Called by the worker at the end of a cycle. The entries come from the queue
 * in shared memory (zbtree/queue.h). What cannot be done at once is put back or
 * left to VACUUM: nothing depends on it (ZBTREE-12).
 *
 * Locks: RowExclusiveLock on the table, then on the index, both conditionally
 * and for no more than one chunk of the queue; under them one leaf page at a
 * time. Crash points: "keys-taken".
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "catalog/pg_class.h"
#include "discard/discard_internal.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "tuple/ztts.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "zbtree/purge.h"
#include "zbtree/queue.h"
#include "zbtree/zbtree.h"

/*
 * Chunks of the queue that one cycle of the worker takes, and the time after
 * which it takes no further one: undo is discarded between two cycles only, and
 * writers may wait for that.
 */
#define MAX_CHUNKS		32
#define MAX_MS			100
#define MAX_KEYS		((int) (ZQUEUE_CHUNK / MAXALIGN(sizeof(ZQueuedKey))))

/* Orders items by table and index, those of one index as they were queued. */
static int
compare_keys(const void *a, const void *b)
{
	const ZQueuedKey *x = *(const ZQueuedKey *const *) a;
	const ZQueuedKey *y = *(const ZQueuedKey *const *) b;

	if (x->table != y->table)
		return x->table < y->table ? -1 : 1;
	if (x->index != y->index)
		return x->index < y->index ? -1 : 1;
	return x < y ? -1 : (x > y ? 1 : 0);
}

/* Puts n items back; returns false. */
static bool
put_back(ZQueuedKey **keys, int n)
{
	for (int i = 0; i < n; i++)
		zqueue_put(keys[i]);
	return false;
}

/*
 * Deals with n items of one index of a locked table. Returns false if they were
 * put back. The index may be gone, or another relation may have its OID.
 */
static bool
purge_index(Relation table, ZQueuedKey **keys, int n)
{
	Oid			oid = keys[0]->index;
	Relation	index;
	IndexTuple	entries[MAX_KEYS];

	Assert(n > 0 && n <= MAX_KEYS);
	if (!ConditionalLockRelationOid(oid, RowExclusiveLock))
		return put_back(keys, n);
	index = try_relation_open(oid, NoLock);
	if (index == NULL)
	{
		UnlockRelationOid(oid, RowExclusiveLock);
		return true;
	}
	if (index->rd_rel->relkind == RELKIND_INDEX && zbtree_is(index) &&
		index->rd_index->indrelid == RelationGetRelid(table) && index->rd_index->indisvalid)
	{
		for (int i = 0; i < n; i++)
			entries[i] = &keys[i]->entry;
		zbtree_purge(index, table, entries, n);
	}
	relation_close(index, RowExclusiveLock);
	return true;
}

/*
 * Deals with n items of one table, as its owner, whose the comparison functions
 * may be. Returns false if some were put back.
 */
static bool
purge_table(ZQueuedKey **keys, int n)
{
	Oid			oid = keys[0]->table;
	bool		done = true;
	Relation	table;
	Oid			user;
	int			security;
	int			level;

	if (!ConditionalLockRelationOid(oid, RowExclusiveLock))
		return put_back(keys, n);
	table = try_relation_open(oid, NoLock);
	if (table == NULL)
	{
		UnlockRelationOid(oid, RowExclusiveLock);
		return true;
	}
	if (table->rd_tableam != NULL && table_slot_callbacks(table) == &TTSOpsZHeap)
	{
		GetUserIdAndSecContext(&user, &security);
		SetUserIdAndSecContext(table->rd_rel->relowner, security | SECURITY_RESTRICTED_OPERATION);
		level = NewGUCNestLevel();
		zc_restrict_search_path();
		for (int first = 0, end; first < n; first = end)
		{
			for (end = first + 1; end < n && keys[end]->index == keys[first]->index;)
				end++;
			done = purge_index(table, keys + first, end - first) && done;
		}
		AtEOXact_GUC(false, level);
		SetUserIdAndSecContext(user, security);
	}
	relation_close(table, RowExclusiveLock);
	return done;
}

/*
 * Deals with the items in length bytes at buf. Returns false if some were put
 * back. After an error those of the tables that it has not come to are put
 * back, so that a damaged index costs others nothing.
 */
static bool
purge_chunk(char *buf, Size length)
{
	ZQueuedKey *keys[MAX_KEYS];
	int			n = 0;
	volatile bool done = true;

	for (Size at = 0; at < length; at += zqueue_length(keys[n - 1]))
		keys[n++] = (ZQueuedKey *) (buf + at);
	Assert(n > 0 && n <= MAX_KEYS);
	qsort(keys, n, sizeof(ZQueuedKey *), compare_keys);
	for (int first = 0, end; first < n; first = end)
	{
		for (end = first + 1; end < n && keys[end]->table == keys[first]->table;)
			end++;
		PG_TRY();
		{
			done = purge_table(keys + first, end - first) && done;
		}
		PG_CATCH();
		{
			(void) put_back(keys + end, n - end);
			PG_RE_THROW();
		}
		PG_END_TRY();
	}
	return done;
}

/*
 * An item that was put back is not taken again in this cycle, as its table or
 * index is locked. A comparison function may need a snapshot.
 */
bool
zkeys_purge(void)
{
	char	   *buf = palloc(ZQUEUE_CHUNK);
	ZXid		oldest = zu_oldest();
	TimestampTz begun = GetCurrentTimestamp();
	bool		done = true;
	int			n = 0;
	Size		length;

	while (done && n < MAX_CHUNKS &&
		   !TimestampDifferenceExceeds(begun, GetCurrentTimestamp(), MAX_MS) &&
		   (length = zqueue_take(oldest, buf)) > 0)
	{
		ZUNDO_FAULT("keys-taken");
		PushActiveSnapshot(GetTransactionSnapshot());
		done = purge_chunk(buf, length);
		PopActiveSnapshot();
		InvalidateCatalogSnapshot();
		n++;
	}
	pfree(buf);
	return done && n > 0;
}
