/*
 * mvcc/zhandle.c - names for single versions of rows, for queued trigger
 * events.
 *
 * Owns the array of handles of this backend's transaction, the rows of the
 * changes that they name (zspill.c has the bytes), and the new version that
 * belongs to the event whose old one was fetched last. Called by zany.c and
 * zvis.c, and by hooks.c when queries begin and at the ends of queries,
 * subtransactions and transactions. Nothing here is shared or outlives the
 * transaction. No locks, no crash points. Invariants HANDLE-1, -3 and -7 in
 * mvcc/README.md.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "common/zundo.h"
#include "mvcc/zhandle.h"
#include "mvcc/zspill.h"
#include "nodes/execnodes.h"
#include "replication/logicalworker.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define FIRST_CAPACITY 64

/* What is stored of a ZChangedRow, followed by the old and the new row. */
#define STORED_SIZE (offsetof(ZChangedRow, newlen) + sizeof(uint32))

/* A query whose triggers have not fired yet. */
typedef struct PendingQuery
{
	const EState *estate;
	uint32		nbefore;		/* nhandles when it began */
	SubTransactionId subid;		/* in which it began */
} PendingQuery;

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
	uint64		end;			/* the place behind the last handle's rows */
	PendingQuery *queries;		/* each within the one before; in
								 * TopTransactionContext */
	uint32		nqueries;
	uint32		queries_capacity;
	KeptVersion kept;
} MyHandles;

static MyHandles my;

/*
 * Returns the array, in TopTransactionContext, with space for one more element
 * than n.
 */
static void *
make_space(void *array, uint32 n, uint32 *capacity, Size element)
{
	Assert(n <= *capacity);
	if (n < *capacity)
		return array;
	if (array == NULL)
	{
		array = MemoryContextAlloc(TopTransactionContext, FIRST_CAPACITY * element);
		*capacity = FIRST_CAPACITY;
		return array;
	}
	if (*capacity > PG_UINT32_MAX / 2 - 1)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many trigger events for zheap tables in one transaction")));
	array = repalloc_huge(array, (Size) *capacity * 2 * element);
	*capacity *= 2;
	return array;
}

/* ---- the rows of changes ---- */

/* Stores the rows behind those of the last handle, and returns their end. */
static uint64
store_rows(const ZChangedRow *rows)
{
	uint64		end = zspill_write(my.end, rows, STORED_SIZE);

	end = zspill_write(end, rows->old, rows->oldlen);
	return zspill_write(end, rows->new, rows->newlen);
}

/* Makes *version one of a row of len bytes, whose author is not known. */
static void
init_version(ZVersion *version, uint32 len)
{
	version->row = version->buf;
	version->len = len;
	version->found = true;
	version->author_known = false;
	version->xmax = InvalidZXid;
	version->chain_xid = InvalidZXid;
	version->chain = InvalidUndoPtr;
	version->newest_xid = InvalidZXid;
	ItemPointerSetInvalid(&version->handle);
}

void
zhandle_old_version(const ZChangedRow *rows, ZVersion *version)
{
	init_version(version, rows->oldlen);
	memcpy(version->buf, rows->old, rows->oldlen);
	version->chain_xid = rows->chain_xid;
	version->chain = rows->chain;
}

/*
 * zhandle_fetch: See zhandle.h. The author of the new row is the change. What
 * is read is compared with the handle: a fault must not become another row.
 */
void
zhandle_fetch(const ZHandle *handle, ZVersion *version)
{
	const uint32 n = handle - my.handles;
	uint64		end = n + 1 < my.nhandles ? my.handles[n + 1].place : my.end;
	ZChangedRow rows;

	my.kept.valid = false;
	Assert(n < my.nhandles && end - handle->place > STORED_SIZE);
	zspill_read(handle->place, &rows, STORED_SIZE);
	if (rows.change != handle->change ||
		rows.oldlen < ZTUPLE_HEADER_SIZE || rows.oldlen > BLCKSZ || rows.newlen > BLCKSZ ||
		handle->place + STORED_SIZE + rows.oldlen + rows.newlen != end)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("rows of a trigger event for row (%u,%u) of the relation with OID %u "
						"are damaged",
						handle->block, handle->off, handle->reloid)));
	init_version(version, rows.oldlen);
	zspill_read(handle->place + STORED_SIZE, version->buf, rows.oldlen);
	version->chain_xid = rows.chain_xid;
	version->chain = rows.chain;
	if (rows.newlen == 0)
		return;
	my.kept.reloid = handle->reloid;
	ItemPointerSet(&my.kept.tid, handle->block, handle->off);
	init_version(&my.kept.version, rows.newlen);
	zspill_read(handle->place + STORED_SIZE + rows.oldlen, my.kept.version.buf, rows.newlen);
	my.kept.version.author_known = true;
	my.kept.version.xmin = rows.xid;
	my.kept.version.cmin = rows.cid;
	my.kept.version.author = rows.change;
	my.kept.valid = true;
}

const ZVersion *
zhandle_kept_new(void)
{
	return my.kept.valid ? &my.kept.version : NULL;
}

/*
 * zhandle_take_new: See zhandle.h. Called for every fetch of a row version,
 * and mostly there is none.
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

/* ---- handles ---- */

/*
 * Forgets the handles behind the first n, and their rows; with n = 0 also a
 * large array. Raises no error.
 */
static void
cut_to(uint32 n)
{
	if (n >= my.nhandles)
		return;
	my.end = my.handles[n].place;
	my.nhandles = n;
	my.nlasting = Min(my.nlasting, n);
	zspill_cut(my.end);
	if (n == 0 && my.capacity > FIRST_CAPACITY)
	{
		pfree(my.handles);
		my.handles = NULL;
		my.capacity = 0;
	}
}

/*
 * Forgets the handles that subtransaction subid and those within it have made.
 * The ids only grow, so these handles are at the end.
 */
static void
forget_since(SubTransactionId subid)
{
	uint32		n = my.nhandles;

	while (n > 0 && my.handles[n - 1].subid >= subid)
		n--;
	cut_to(n);
}

/*
 * Returns whether an event with a row of this table can be deferred. If the
 * table is a partition, the event may be queued for the partitioned table: for
 * the trigger of a foreign key that refers to that. The partition has a copy of
 * this trigger, which can be deferred if that one can.
 */
static bool
may_be_deferred(Relation rel)
{
	const TriggerDesc *desc = rel->trigdesc;

	if (desc == NULL)
		return true;
	for (int i = 0; i < desc->numtriggers; i++)
		if (desc->triggers[i].tgdeferrable)
			return true;
	return false;
}

/*
 * Returns whether session_replication_role may let a trigger fire that gets
 * rows of this table. Of a partition, this may be one of the partitioned table
 * whose copy is disabled. In an apply worker mostly none does.
 */
static bool
may_fire(Relation rel)
{
	const TriggerDesc *desc = rel->trigdesc;

	if (likely(SessionReplicationRole != SESSION_REPLICATION_ROLE_REPLICA) ||
		desc == NULL || rel->rd_rel->relispartition)
		return true;
	for (int i = 0; i < desc->numtriggers; i++)
	{
		const Trigger *trigger = &desc->triggers[i];

		if (TRIGGER_FOR_ROW(trigger->tgtype) && TRIGGER_FOR_AFTER(trigger->tgtype) &&
			(trigger->tgenabled == TRIGGER_FIRES_ALWAYS ||
			 trigger->tgenabled == TRIGGER_FIRES_ON_REPLICA))
			return true;
	}
	return false;
}

/* Returns whether a trigger function runs. */
static bool
in_trigger(void)
{
	return DatumGetInt32(DirectFunctionCall1(pg_trigger_depth, (Datum) 0)) > 0;
}

/*
 * zhandle_make: See zhandle.h. A second call for the same change returns the
 * same handle: the server asks twice for the old row when an update moves it
 * to another partition. (Rows may share a record: RANGE-3 in dml/.) An apply
 * worker fires the triggers of each change before it makes the next one, but
 * executes no query.
 */
void
zhandle_make(Relation rel, BlockNumber block, OffsetNumber off, const ZChangedRow *rows,
			 ItemPointer tid)
{
	SubTransactionId subid = GetCurrentSubTransactionId();

	Assert(rows->change != InvalidUndoPtr);
	Assert(off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET);
	if (!may_fire(rel))
		return;
	if (my.nhandles == 0 || my.handles[my.nhandles - 1].change != rows->change ||
		my.handles[my.nhandles - 1].block != block || my.handles[my.nhandles - 1].off != off ||
		my.handles[my.nhandles - 1].subid != subid)
	{
		ZHandle    *handle;
		uint64		end;

		if (my.nqueries == 0 && IsLogicalWorker() && !in_trigger())
			cut_to(my.nlasting);
		my.handles = make_space(my.handles, my.nhandles, &my.capacity, sizeof(ZHandle));
		end = store_rows(rows);
		handle = &my.handles[my.nhandles++];
		handle->change = rows->change;
		handle->place = my.end;
		handle->reloid = RelationGetRelid(rel);
		handle->block = block;
		handle->off = off;
		handle->subid = subid;
		my.end = end;
	}
	if (may_be_deferred(rel))
		my.nlasting = my.nhandles;
	ItemPointerSet(tid, my.nhandles - 1, ZHANDLE_OFFSET);
}

/*
 * zhandle_find: See zhandle.h. Element n may be missing, or belong to a later
 * handle of another table, if a subtransaction's abort has shortened the
 * array.
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

/* ---- when the events have fired ---- */

void
zhandle_query_begin(const EState *estate)
{
	PendingQuery *query;

	my.queries = make_space(my.queries, my.nqueries, &my.queries_capacity, sizeof(PendingQuery));
	query = &my.queries[my.nqueries++];
	query->estate = estate;
	query->nbefore = my.nhandles;
	query->subid = GetCurrentSubTransactionId();
}

/*
 * zhandle_query_end: See zhandle.h. Cuts the array off. Handles up to the last
 * one whose event can be deferred stay. If queries that began later have not
 * ended, as those of cursors may, all handles stay.
 */
void
zhandle_query_end(const EState *estate)
{
	uint32		n = my.nqueries;

	Assert(my.nlasting <= my.nhandles); /* HANDLE-7 */
	while (n > 0 && my.queries[n - 1].estate != estate)
		n--;
	if (n == 0)
		return;
	if (n == my.nqueries)
		cut_to(Max(my.nlasting, my.queries[n - 1].nbefore));
	memmove(&my.queries[n - 1], &my.queries[n], (my.nqueries - n) * sizeof(PendingQuery));
	my.nqueries--;
}

uint32
zhandle_count(void)
{
	return my.nhandles;
}

/*
 * zhandle_all_fired: See zhandle.h. Does nothing if a query or a trigger
 * function runs: immediate events may be queued then.
 */
void
zhandle_all_fired(uint32 before)
{
	if (my.nqueries == 0 && !in_trigger() && my.nhandles == before)
		forget_since(GetCurrentSubTransactionId());
}

/* zhandle_at_subxact_abort: See zhandle.h. */
void
zhandle_at_subxact_abort(SubTransactionId mySubid)
{
	while (my.nqueries > 0 && my.queries[my.nqueries - 1].subid >= mySubid)
		my.nqueries--;
	forget_since(mySubid);
	my.kept.valid = false;
}

/* zhandle_at_xact_end: See zhandle.h. Forgets all handles, and what is kept. */
void
zhandle_at_xact_end(void)
{
	/* the arrays live in the transaction's memory and are freed with it */
	my.handles = NULL;
	my.queries = NULL;
	my.nhandles = my.capacity = my.nlasting = 0;
	my.nqueries = my.queries_capacity = 0;
	my.end = 0;
	my.kept.valid = false;
	zspill_at_xact_end();
}
