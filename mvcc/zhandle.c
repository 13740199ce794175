/*
 * mvcc/zhandle.c - names for single versions of rows, for queued trigger
 * events.
 *
 * Owns the array of handles of this backend's transaction, and the new version
 * that belongs to the event whose old one was fetched last. Nothing here is
 * shared or outlives the transaction; no locks. Invariants HANDLE-1 to
 * HANDLE-7 in mvcc/README.md.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "mvcc/zhandle.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define FIRST_CAPACITY 64

static ZHandle *handles = NULL; /* in TopTransactionContext */
static uint32 nhandles = 0;
static uint32 capacity = 0;
static uint32 nlasting = 0;		/* all below may belong to events that are
								 * deferred (HANDLE-7) */
static uint32 nbefore = 0;		/* so many there were when the statement began */
static const void *statement = NULL;	/* begun last that is no part of
										 * another one's execution */

static struct
{
	bool		valid;
	Oid			reloid;
	ItemPointerData tid;
	ZVersion	version;
}			kept;

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

/*
 * Can an event of this table be deferred? Those of partitions may be queued
 * for the partitioned table's triggers.
 */
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
	if (nhandles == 0 || handles[nhandles - 1].change != change ||
		handles[nhandles - 1].subid != subid)
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
	/*
	 * ids of subtransactions only grow: what mySubid and its children made is
	 * at the end of the array (HANDLE-1)
	 */
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
	kept.valid = false;
}
