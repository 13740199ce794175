/*
 * discard/keys.c - deleting stale entries of zbtree indexes in the worker.
 *
 * Called by the worker at the end of a cycle. The items come from the queue in
 * shared memory (zbtree/queue.h). With table and index locked, the worker
 * checks that both are still what the item says, and deletes the entry if
 * ZBTREE-8 allows it: by now the row may have the key again, or the TID may
 * belong to another row. Rows keep ZH_STALE_KEYS, because they may have stale
 * entries that are not in the queue. Items of a table or index that cannot be
 * locked at once are put back, and the worker takes the next of those chunks
 * that were begun before its cycle. Items may be lost, at an error for example:
 * VACUUM deletes their entries.
 *
 * Locks: RowExclusiveLock on the table, then on the index, both taken
 * conditionally and held for the items of one chunk at most; the worker runs
 * with the autovacuum flag, so a session that waits for one of them cancels it.
 * Under them one leaf page at a time. Crash points: "keys-taken".
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_class.h"
#include "common/compat_commands.h"
#include "common/zcount.h"
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
 * One cycle of the worker takes at most MAX_CHUNKS chunks of the queue, and no
 * further one after MAX_MS. The limits keep cycles short: undo is discarded at
 * the beginning of a cycle, and writers may be waiting for that.
 */
#define MAX_CHUNKS		32
#define MAX_MS			100
#define MAX_KEYS		((int) (ZQUEUE_CHUNK / MAXALIGN(sizeof(ZQueuedKey))))

/*
 * Orders items by table and index, and those of one index as they were queued.
 * qsort comparator for an array of pointers.
 */
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

/*
 * Puts n items back into the queue. Always returns false: its callers return
 * that value to report that items were put back.
 */
static bool
put_back(ZQueuedKey **keys, int n)
{
	for (int i = 0; i < n; i++)
		zkeyqueue_put(keys[i]);
	return false;
}

/*
 * Purges the entries of n items, all of one index; the table is locked. Returns
 * false if the index could not be locked and the items were put back. Skips the
 * items if the index has been dropped or its OID belongs to another relation.
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
 * Purges the entries of n items, all of one table. Returns false if some were
 * put back because of a lock. Runs as the owner of the table, because
 * comparison functions may be code of users. Skips the items if the table has
 * been dropped or is not a zheap table.
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
	if (ztts_is_zheap(table))
	{
		zcount_table(table);
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
		zcount_table(table);
		if (done)
			zcount(ZCOUNT_PURGED, n);
	}
	relation_close(table, RowExclusiveLock);
	return done;
}

/*
 * Purges the entries of the items in the chunk at buf. Returns false if some
 * were put back because of a lock. If an error is raised for one table, puts
 * the items of the tables after it back before it raises the error again, so
 * that one damaged index does not stop the purge of other tables.
 */
static bool
purge_chunk(char *buf, Size length)
{
	ZQueuedKey *keys[MAX_KEYS];
	int			n = 0;
	volatile bool done = true;

	for (Size at = 0; at < length; at += zkeyqueue_length(keys[n - 1]))
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
 * zkeys_purge: See discard_internal.h. Takes only chunks that were begun before
 * the cycle: what is put back ends up in a younger one, so that the loop ends
 * although a table or index stays locked. Sets a snapshot, since comparison
 * functions may need one.
 */
bool
zkeys_purge(void)
{
	char	   *buf = palloc(ZQUEUE_CHUNK);
	ZXid		oldest = zu_oldest();
	TimestampTz begun = GetCurrentTimestamp();
	uint64		bound = zkeyqueue_bound();
	bool		purged = false;
	Size		length;

	for (int n = 0; n < MAX_CHUNKS; n++)
	{
		if (TimestampDifferenceExceeds(begun, GetCurrentTimestamp(), MAX_MS) ||
			(length = zkeyqueue_take(oldest, bound, buf)) == 0)
			break;
		ZUNDO_FAULT("keys-taken");
		PushActiveSnapshot(GetTransactionSnapshot());
		purged |= purge_chunk(buf, length);
		PopActiveSnapshot();
		InvalidateCatalogSnapshot();
	}
	pfree(buf);
	return purged;
}
