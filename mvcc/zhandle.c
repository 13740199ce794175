/*
 * mvcc/zhandle.c - names for single versions of rows, for queued trigger
 * events.
 *
 * Owns the array of handles of this backend's transaction, and the new version
 * that belongs to the event whose old one was fetched last. Called by zany.c,
 * zvis.c and scan/, and by hooks.c at the ends of statements, subtransactions
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

static ZHandle *handles = NULL; /* in TopTransactionContext */
static uint32 nhandles = 0;
static uint32 capacity = 0;
static uint32 nlasting = 0;		/* handles below this index may belong to
								 * deferred events (HANDLE-7) */
static uint32 nbefore = 0;		/* nhandles when the statement began */
static const void *statement = NULL;	/* the query that began last without
										 * running within another one */

static struct
{
	bool		valid;
	Oid			reloid;
	ItemPointerData tid;
	ZVersion	version;
}			kept;

/*
 * Makes room for one more handle. Raises ERRCODE_PROGRAM_LIMIT_EXCEEDED if
 * their number would not fit a block number.
 */
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

/*
 * Looks the handle up. A subtransaction's abort may have cut the array off
 * below n; the element may then be another table's.
 */
const ZHandle *
zhandle_find(Oid reloid, const ItemPointerData *tid)
{
	BlockNumber n = ItemPointerGetBlockNumberNoCheck(tid);

	if (!zhandle_is(tid) || n >= nhandles ||
		(OidIsValid(reloid) && handles[n].reloid != reloid))
		return NULL;
	return &handles[n];
}

/* Copies only the row's bytes, not the whole buffer of the version. */
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

/*
 * Hands out the version kept. Called for every fetch of a row version: mostly
 * nothing is kept.
 */
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

/*
 * Cuts the array off, but for handles of earlier statements and, up to the
 * last of these, of deferrable events.
 */
void
zhandle_statement_end(const QueryDesc *query)
{
	if (query != statement)
		return;
	statement = NULL;
	nhandles = Min(nhandles, Max(nlasting, nbefore));
}

/*
 * Cuts the array off. Subtransaction ids only grow, so the handles of mySubid
 * and its children are at the end (HANDLE-1).
 */
void
zhandle_at_subxact_abort(SubTransactionId mySubid)
{
	while (nhandles > 0 && handles[nhandles - 1].subid >= mySubid)
		nhandles--;
	nlasting = Min(nlasting, nhandles);
	kept.valid = false;
}

/* Forgets all handles and the version kept. */
void
zhandle_at_xact_end(void)
{
	/* the array lives in the transaction's memory and is freed with it */
	handles = NULL;
	nhandles = capacity = nlasting = 0;
	kept.valid = false;
}
