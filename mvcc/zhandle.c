/*
 * mvcc/zhandle.c - names for single versions of rows, for queued trigger
 * events.
 *
 * Owns the array of handles of this backend's transaction, the rows of the
 * changes that they name, as far as they fit into work_mem, and the new version
 * that belongs to the event whose old one was fetched last. Called by zany.c
 * and zvis.c, by dml/ (rows), and by hooks.c at the ends of statements,
 * subtransactions and transactions. Nothing here is shared or outlives the
 * transaction. No locks, no crash points. Invariants HANDLE-1, -3, -7 and -8 in
 * mvcc/README.md.
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
	ZChangedRow last;			/* of the last change; bytes are in last_bytes */
	char		last_bytes[2 * BLCKSZ];
	MemoryContext rows_memory;	/* of the handles' rows, in
								 * TopTransactionContext; NULL: none yet */
	Size		rows_size;		/* what they take there */
} MyHandles;

static MyHandles my;

/* ---- the rows of changes ---- */

/*
 * zhandle_keep_rows: See zhandle.h. The change is known by its pointer, which
 * no other record of this transaction has; so nothing has to be forgotten
 * before the transaction ends.
 */
void
zhandle_keep_rows(const ZChangedRow *rows)
{
	Assert(rows->change != InvalidUndoPtr);
	Assert(rows->oldlen > 0 && rows->oldlen <= BLCKSZ && rows->newlen <= BLCKSZ);
	my.last = *rows;
	my.last.old = my.last_bytes;
	my.last.new = my.last_bytes + rows->oldlen;
	memcpy(my.last_bytes, rows->old, rows->oldlen);
	if (rows->newlen > 0)
		memcpy(my.last_bytes + rows->oldlen, rows->new, rows->newlen);
}

const ZChangedRow *
zhandle_kept_rows(UndoPtr change)
{
	return change != InvalidUndoPtr && my.last.change == change ? &my.last : NULL;
}

/* Returns what a copy of the rows takes. */
static inline Size
rows_size(const ZChangedRow *rows)
{
	return sizeof(ZChangedRow) + rows->oldlen + rows->newlen;
}

/*
 * Returns a copy of the rows that are kept, if they are of this change; NULL
 * also if the copies of this transaction would take more than work_mem, or
 * there is no memory.
 */
static const ZChangedRow *
copy_rows(UndoPtr change)
{
	Size		size = rows_size(&my.last);
	ZChangedRow *rows;

	if (my.last.change != change || my.rows_size + size > work_mem * (Size) 1024)
		return NULL;
	if (my.rows_memory == NULL)
		my.rows_memory = AllocSetContextCreate(TopTransactionContext,
											   "zundo rows of trigger events",
											   ALLOCSET_DEFAULT_SIZES);
	rows = MemoryContextAllocExtended(my.rows_memory, size, MCXT_ALLOC_NO_OOM);
	if (rows == NULL)
		return NULL;
	my.rows_size += size;
	*rows = my.last;
	rows->old = (char *) (rows + 1);
	rows->new = rows->old + rows->oldlen;
	memcpy(rows + 1, my.last_bytes, my.last.oldlen + my.last.newlen);
	return rows;
}

/* Makes *version a version with these bytes, whose author is not known. */
static void
row_version(const char *row, uint32 len, ZVersion *version)
{
	memcpy(version->buf, row, len);
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
	row_version(rows->old, rows->oldlen, version);
	version->chain_xid = rows->chain_xid;
	version->chain = rows->chain;
}

/* ---- handles ---- */

/*
 * Makes space for one more handle. Raises ERRCODE_PROGRAM_LIMIT_EXCEEDED if
 * their number would not fit a block number.
 */
static void
make_space(void)
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
 * Cuts the array off behind the first n handles, and frees the rows of the
 * others.
 */
static void
cut_to(uint32 n)
{
	if (n == 0 && my.rows_memory != NULL)
	{
		MemoryContextReset(my.rows_memory);
		my.rows_size = 0;
	}
	for (uint32 i = n; i < my.nhandles && my.rows_size > 0; i++)
		if (my.handles[i].rows != NULL)
		{
			Assert(my.rows_size >= rows_size(my.handles[i].rows));
			my.rows_size -= rows_size(my.handles[i].rows);
			pfree(unconstify(ZChangedRow *, my.handles[i].rows));
		}
	my.nhandles = n;
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
 * zhandle_make: See zhandle.h. A second call for the same change returns the
 * same handle: the server asks twice for the old row when an update moves it
 * to another partition.
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
		const ZChangedRow *rows = copy_rows(change);

		make_space();
		handle = &my.handles[my.nhandles++];
		handle->change = change;
		handle->rows = rows;
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

/*
 * zhandle_keep_new: See zhandle.h. Copies only the row's bytes, not the whole
 * buffer of the version.
 */
void
zhandle_keep_new(const ZHandle *handle, const ZVersion *version)
{
	Assert(version->found && version->len <= BLCKSZ);
	my.kept.valid = true;
	my.kept.reloid = handle->reloid;
	ItemPointerSet(&my.kept.tid, handle->block, handle->off);
	memcpy(&my.kept.version, version, offsetof(ZVersion, buf));
	memcpy(my.kept.version.buf, version->row, version->len);
	my.kept.version.row = my.kept.version.buf;
}

/*
 * zhandle_keep_new_row: See zhandle.h. The author is known: it is the change.
 */
void
zhandle_keep_new_row(const ZHandle *handle)
{
	const ZChangedRow *rows = handle->rows;

	Assert(rows != NULL && rows->change == handle->change);
	if (rows->newlen == 0)
		return;
	my.kept.valid = true;
	my.kept.reloid = handle->reloid;
	ItemPointerSet(&my.kept.tid, handle->block, handle->off);
	row_version(rows->new, rows->newlen, &my.kept.version);
	my.kept.version.author_known = true;
	my.kept.version.xmin = rows->xid;
	my.kept.version.cmin = rows->cid;
	my.kept.version.author = rows->change;
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

void
zhandle_statement_begin(const QueryDesc *query)
{
	my.statement = query;
	my.nbefore = my.nhandles;
}

/*
 * zhandle_statement_end: See zhandle.h. Cuts the array off. Two kinds of
 * handles stay: those of earlier statements, and all up to the last one whose
 * event can be deferred.
 */
void
zhandle_statement_end(const QueryDesc *query)
{
	Assert(my.nlasting <= my.nhandles); /* HANDLE-7 */
	if (query != my.statement)
		return;
	my.statement = NULL;
	cut_to(Min(my.nhandles, Max(my.nlasting, my.nbefore)));
}

/*
 * zhandle_at_subxact_abort: See zhandle.h. Cuts the array off. Subtransaction
 * ids only grow, so the handles of mySubid and its children are at the end
 * (HANDLE-7).
 */
void
zhandle_at_subxact_abort(SubTransactionId mySubid)
{
	uint32		n = my.nhandles;

	while (n > 0 && my.handles[n - 1].subid >= mySubid)
		n--;
	cut_to(n);
	my.nlasting = Min(my.nlasting, my.nhandles);
	my.kept.valid = false;
}

/* zhandle_at_xact_end: See zhandle.h. Forgets all handles, and what is kept. */
void
zhandle_at_xact_end(void)
{
	/* array and rows live in the transaction's memory and are freed with it */
	my.handles = NULL;
	my.nhandles = my.capacity = my.nlasting = 0;
	my.kept.valid = false;
	my.last.change = InvalidUndoPtr;
	my.rows_memory = NULL;
	my.rows_size = 0;
}
