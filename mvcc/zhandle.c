/*
 * mvcc/zhandle.c - names for single versions of rows, for queued trigger
 * events.
 *
 * Owns the array of handles of this backend's transaction, and the new version
 * that belongs to the event whose old one was fetched last. Called by zany.c
 * and zvis.c, and by hooks.c at the ends of statements, subtransactions
 * and transactions. Nothing here is shared or outlives the transaction. No
 * locks, no crash points. Invariants HANDLE-1 to HANDLE-7 in mvcc/README.md.
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

/* A new version kept for the fetch that follows. */
typedef struct KeptVersion
{
	bool		valid;
	Oid			reloid;
	ItemPointerData tid;
	ZVersion	version;
} KeptVersion;

/* The handles of this backend's transaction. */
typedef struct MyHandles
{
	ZHandle    *handles;		/* in TopTransactionContext */
	uint32		nhandles;
	uint32		capacity;
	uint32		nlasting;		/* handles below this index may belong to
								 * deferred events (HANDLE-7) */
	uint32		nbefore;		/* nhandles when the statement began */
	const void *statement;		/* the query that began last without running
								 * within another one */
	KeptVersion kept;
} MyHandles;

static MyHandles my;

/*
 * Makes room for one more handle. Raises ERRCODE_PROGRAM_LIMIT_EXCEEDED if
 * their number would not fit a block number.
 */
static void
make_room(void)
{
	Assert(my.nhandles <= my.capacity);
	if (my.nhandles < my.capacity)
		return;
	if (my.handles == NULL)
	{
		my.handles = MemoryContextAlloc(TopTransactionContext, FIRST_CAPACITY * sizeof(ZHandle));
		my.capacity = FIRST_CAPACITY;
		return;
	}
	if (my.capacity > PG_UINT32_MAX / 2 - 1)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many trigger events for zheap tables in one transaction")));
	my.handles = repalloc_huge(my.handles, (Size) my.capacity * 2 * sizeof(ZHandle));
	my.capacity *= 2;
}

/*
 * Returns whether an event of this table can be deferred. Events of a
 * partition may be queued for the partitioned table's triggers, so it always
 * can.
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

/*
 * Returns the same handle again for a second call about one change: an update
 * that moves a row to another partition asks twice for the old row of its
 * deletion.
 */
void
zhandle_make(Relation rel, BlockNumber block, OffsetNumber off, UndoPtr change, ItemPointer tid)
{
	ZHandle    *handle;
	SubTransactionId subid = GetCurrentSubTransactionId();

	Assert(change != InvalidUndoPtr && off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET);
	if (my.nhandles == 0 || my.handles[my.nhandles - 1].change != change ||
		my.handles[my.nhandles - 1].subid != subid)
	{
		make_room();
		handle = &my.handles[my.nhandles++];
		handle->change = change;
		handle->reloid = RelationGetRelid(rel);
		handle->block = block;
		handle->off = off;
		handle->subid = subid;
	}
	if (may_be_deferred(rel))
		my.nlasting = my.nhandles;
	ItemPointerSet(tid, my.nhandles - 1, ZHANDLE_OFFSET);
}

/*
 * Looks the handle up. A subtransaction's abort may have cut the array off
 * below n; the element may then be another table's.
 */
const ZHandle *
zhandle_find(Oid reloid, const ItemPointerData *tid)
{
	BlockNumber n = ItemPointerGetBlockNumberNoCheck(tid);

	if (!zhandle_is(tid) || n >= my.nhandles ||
		(OidIsValid(reloid) && my.handles[n].reloid != reloid))
		return NULL;
	return &my.handles[n];
}

/* Copies only the row's bytes, not the whole buffer of the version. */
void
zhandle_keep_new(const ZHandle *handle, const ZVersion *version)
{
	Assert(version->found && version->len <= BLCKSZ);	/* HANDLE-3 */
	my.kept.valid = true;
	my.kept.reloid = handle->reloid;
	ItemPointerSet(&my.kept.tid, handle->block, handle->off);
	memcpy(&my.kept.version, version, offsetof(ZVersion, buf));
	memcpy(my.kept.version.buf, version->row, version->len);
	my.kept.version.row = my.kept.version.buf;
}

/*
 * Hands out the version kept. Called for every fetch of a row version: mostly
 * nothing is kept.
 */
const ZVersion *
zhandle_take_new(Relation rel, const ItemPointerData *tid)
{
	if (likely(!my.kept.valid))
		return NULL;
	my.kept.valid = false;
	if (my.kept.reloid != RelationGetRelid(rel) ||
		ItemPointerCompare(&my.kept.tid, unconstify(ItemPointerData *, tid)) != 0)
		return NULL;
	return &my.kept.version;
}

void
zhandle_statement_begin(const QueryDesc *query)
{
	my.statement = query;
	my.nbefore = my.nhandles;
}

/*
 * Cuts the array off, but for handles of earlier statements and, up to the
 * last of these, of deferrable events.
 */
void
zhandle_statement_end(const QueryDesc *query)
{
	Assert(my.nlasting <= my.nhandles); /* HANDLE-7 */
	if (query != my.statement)
		return;
	my.statement = NULL;
	my.nhandles = Min(my.nhandles, Max(my.nlasting, my.nbefore));
}

/*
 * Cuts the array off. Subtransaction ids only grow, so the handles of mySubid
 * and its children are at the end (HANDLE-1).
 */
void
zhandle_at_subxact_abort(SubTransactionId mySubid)
{
	while (my.nhandles > 0 && my.handles[my.nhandles - 1].subid >= mySubid)
		my.nhandles--;
	my.nlasting = Min(my.nlasting, my.nhandles);
	my.kept.valid = false;
}

/* Forgets all handles and the version kept. */
void
zhandle_at_xact_end(void)
{
	/* the array lives in the transaction's memory and is freed with it */
	my.handles = NULL;
	my.nhandles = my.capacity = my.nlasting = 0;
	my.kept.valid = false;
}
