/*
 * mvcc/zhandle.c - names for single versions of rows, for queued trigger events.
 *
 * Owns the array of handles of this backend's transaction, and the new version
 * that belongs to the event whose old one was fetched last. Nothing here is shared or outlives the
 * transaction; no locks.
 * Invariants HD1 to HD7 in mvcc/README.md.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "mvcc/zchain.h"
#include "mvcc/zhandle.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define FIRST_CAPACITY 64
#define MAX_CHECKPOINTS 1024

static ZHandle *handles = NULL; /* in TopTransactionContext */
static uint32 nhandles = 0;
static uint32 capacity = 0;
static uint32 nlasting = 0;		/* all below may belong to events that are deferred (HD7) */
static uint32 nbefore = 0;		/* so many there were when the statement began */
static const void *statement = NULL;	/* begun last that is no part of another one's execution */

static struct
{
	bool		valid;
	Oid			reloid;
	ItemPointerData tid;
	ZVersion	version;
} kept;

/* The own records of the page that was asked for last. */
static struct
{
	ZChainEntry *entries;		/* in TopTransactionContext */
	uint32		n;
	uint32		capacity;
	RelFileNumber relnumber;
	BlockNumber block;
	uint32		found;			/* where zhandle_chain_find has found the last one */
} chain;

/* Versions of rows of that page. */
typedef struct Checkpoint
{
	uint32		at;				/* made by this record of the chain */
	OffsetNumber off;
	int			len;
	char	   *row;			/* in checkpoint_memory */
} Checkpoint;

static Checkpoint checkpoints[MAX_CHECKPOINTS];
static int	ncheckpoints = 0;
static MemoryContext checkpoint_memory = NULL;	/* in TopTransactionContext */

static void
forget_checkpoints(void)
{
	ncheckpoints = 0;
	if (checkpoint_memory != NULL)
		MemoryContextReset(checkpoint_memory);
}

static void
make_room(void)
{
	if (nhandles < capacity)
		return;
	if (handles == NULL)
	{
		handles = MemoryContextAlloc(TopTransactionContext, FIRST_CAPACITY * sizeof(ZHandle));
		capacity = FIRST_CAPACITY;
		return;
	}
	if (capacity > PG_UINT32_MAX / 2 - 1)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many trigger events for zheap tables in one transaction")));
	handles = repalloc_huge(handles, (Size) capacity * 2 * sizeof(ZHandle));
	capacity *= 2;
}

/* Can an event of this table be deferred? Those of partitions may be queued for the partitioned table's triggers. */
static bool
may_be_deferred(Relation rel)
{
	const TriggerDesc *desc = rel->trigdesc;

	if (desc == NULL || rel->rd_rel->relispartition)
		return true;
	for (int i = 0; i < desc->numtriggers; i++)
		if (desc->triggers[i].tgdeferrable)
			return true;
	return false;
}

void
zhandle_make(Relation rel, BlockNumber block, OffsetNumber off, UndoPtr change, ItemPointer tid)
{
	ZHandle    *handle;
	SubTransactionId subid = GetCurrentSubTransactionId();

	/* an update that changes the partition asks twice for one deletion */
	if (nhandles == 0 || handles[nhandles - 1].change != change || handles[nhandles - 1].subid != subid)
	{
		make_room();
		handle = &handles[nhandles++];
		handle->change = change;
		handle->reloid = RelationGetRelid(rel);
		handle->block = block;
		handle->off = off;
		handle->subid = subid;
	}
	if (may_be_deferred(rel))
		nlasting = nhandles;
	ItemPointerSet(tid, nhandles - 1, ZHANDLE_OFFSET);
}

const ZHandle *
zhandle_find(Oid reloid, const ItemPointerData *tid)
{
	BlockNumber n = ItemPointerGetBlockNumberNoCheck(tid);

	if (!zhandle_is(tid) || n >= nhandles ||
		(OidIsValid(reloid) && handles[n].reloid != reloid))
		return NULL;
	return &handles[n];
}

/*
 * Put the records from head down to the cached ones (or all own ones) above those. The list gets its new
 * length only when they are all there: after an error or a cancel the transaction may go on with what it had.
 */
static void
collect_chain(UndoPtr head, UndoPtr stop)
{
	char		buf[ZUR_MAX_LENGTH];
	ZChain		above;
	ZuRecord	rec;
	uint32		n = chain.n;

	zchain_begin_at(&above, chain.relnumber, chain.block, head, zu_oldest_for(head), buf);
	while (above.next != stop && zchain_next(&above, &rec) == ZCHAIN_RECORD)
	{
		ZChainEntry *entry;

		if (!zxid_is_ours(rec.xid))
		{
			above.next = above.here;
			break;
		}
		if (chain.entries == NULL)
		{
			chain.capacity = FIRST_CAPACITY;
			chain.entries = MemoryContextAlloc(TopTransactionContext, chain.capacity * sizeof(ZChainEntry));
		}
		else if (n == chain.capacity)
		{
			ZUNDO_FAULT("chain-grows");
			chain.entries = repalloc_huge(chain.entries, (Size) chain.capacity * 2 * sizeof(ZChainEntry));
			chain.capacity *= 2;
		}
		entry = &chain.entries[n++];
		entry->ptr = above.here;
		entry->first = (rec.type == ZUR_LOCK) ? 1 : rec.offset;
		entry->last = (rec.type == ZUR_LOCK) ? 0 :
			(rec.type == ZUR_INSERT) ? rec.offset + rec.nrows - 1 : rec.offset;
	}
	if (stop != InvalidUndoPtr && above.next != stop)
	{
		/* what was cached is no part of this chain, or this would have ended there */
		chain.n = 0;
		return;
	}
	/* they were collected newest first */
	for (uint32 i = chain.n, j = n; i + 1 < j; i++)
	{
		ZChainEntry swap = chain.entries[--j];

		chain.entries[j] = chain.entries[i];
		chain.entries[i] = swap;
	}
	chain.n = n;
}

const ZChainEntry *
zhandle_chain(RelFileNumber relnumber, BlockNumber block, UndoPtr head, uint32 *n)
{
	if (chain.relnumber != relnumber || chain.block != block)
	{
		chain.n = 0;
		forget_checkpoints();
	}
	chain.relnumber = relnumber;
	chain.block = block;
	/* a rollback may have taken the newest ones away */
	for (uint32 i = chain.n; i-- > 0;)
	{
		if (chain.entries[i].ptr == head)
		{
			if (chain.n != i + 1)
				forget_checkpoints();
			chain.n = i + 1;
			*n = chain.n;
			return chain.entries;
		}
	}
	if (chain.n > 0)
		collect_chain(head, chain.entries[chain.n - 1].ptr);
	if (chain.n == 0)
	{
		forget_checkpoints();
		chain.found = 0;
		collect_chain(head, InvalidUndoPtr);
	}
	*n = chain.n;
	return chain.entries;
}

bool
zhandle_chain_find(UndoPtr change, uint32 *at)
{
	/* events fire in the order of their changes: look behind the last one first */
	for (uint32 i = chain.found; i < Min(chain.n, chain.found + 256); i++)
	{
		if (chain.entries[i].ptr == change)
		{
			*at = chain.found = i;
			return true;
		}
	}
	for (uint32 i = chain.n; i-- > 0;)
	{
		if (chain.entries[i].ptr == change)
		{
			*at = chain.found = i;
			return true;
		}
	}
	return false;
}

const char *
zhandle_checkpoint(OffsetNumber off, uint32 *at, int *len)
{
	const Checkpoint *best = NULL;

	for (int i = 0; i < ncheckpoints; i++)
	{
		const Checkpoint *c = &checkpoints[i];

		if (c->off == off && c->at >= *at && (best == NULL || c->at < best->at))
			best = c;
	}
	if (best == NULL)
		return NULL;
	*at = best->at;
	*len = best->len;
	return best->row;
}

void
zhandle_keep_checkpoint(OffsetNumber off, uint32 at, const char *row, int len)
{
	Checkpoint *c;

	if (checkpoint_memory == NULL)
		checkpoint_memory = AllocSetContextCreate(TopTransactionContext, "zundo checkpoints of rows",
												  ALLOCSET_DEFAULT_SIZES);
	if (ncheckpoints == MAX_CHECKPOINTS)
		forget_checkpoints();
	c = &checkpoints[ncheckpoints];
	c->at = at;
	c->off = off;
	c->len = len;
	c->row = MemoryContextAlloc(checkpoint_memory, len);
	memcpy(c->row, row, len);
	ncheckpoints++;
}

void
zhandle_keep_new(const ZHandle *handle, const ZVersion *version)
{
	kept.valid = true;
	kept.reloid = handle->reloid;
	ItemPointerSet(&kept.tid, handle->block, handle->off);
	memcpy(&kept.version, version, offsetof(ZVersion, buf));
	memcpy(kept.version.buf, version->row, version->len);
	kept.version.row = kept.version.buf;
}

const ZVersion *
zhandle_take_new(Relation rel, const ItemPointerData *tid)
{
	if (likely(!kept.valid))
		return NULL;
	kept.valid = false;
	if (kept.reloid != RelationGetRelid(rel) ||
		ItemPointerCompare(&kept.tid, unconstify(ItemPointerData *, tid)) != 0)
		return NULL;
	return &kept.version;
}

void
zhandle_statement_begin(const QueryDesc *query)
{
	statement = query;
	nbefore = nhandles;
}

void
zhandle_statement_end(const QueryDesc *query)
{
	if (query != statement)
		return;
	statement = NULL;
	nhandles = Min(nhandles, Max(nlasting, nbefore));
}

void
zhandle_at_subxact_abort(SubTransactionId mySubid)
{
	/* ids of subtransactions only grow: what mySubid and its children made is at the end of the array (HD1) */
	while (nhandles > 0 && handles[nhandles - 1].subid >= mySubid)
		nhandles--;
	nlasting = Min(nlasting, nhandles);
	kept.valid = false;
}

void
zhandle_at_xact_end(void)
{
	/* the memory is the transaction's and goes with it */
	handles = NULL;
	nhandles = capacity = nlasting = 0;
	memset(&chain, 0, sizeof(chain));
	ncheckpoints = 0;
	checkpoint_memory = NULL;
	kept.valid = false;
}
