/*
 * mvcc/zhandle.c - names for single versions of rows, for queued trigger
 * events.
 *
 * Owns the array of handles of this backend's transaction, the rows of the
 * changes that they name, and the new version that belongs to the event whose
 * old one was fetched last. The rows are in memory up to work_mem, then in a
 * temporary file. Called by zany.c and zvis.c, and by hooks.c at the ends of
 * statements, subtransactions and transactions. Nothing here is shared or
 * outlives the transaction. No locks, no crash points. Invariants HANDLE-1,
 * -3, -7 and -8 in mvcc/README.md.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "mvcc/zhandle.h"
#include "storage/buffile.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"

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
	MemoryContext rows_memory;	/* of the handles' rows, in
								 * TopTransactionContext; NULL: none yet */
	Size		rows_size;		/* what they take there */
	BufFile    *file;			/* of the transaction; NULL: none yet */
	uint64		file_end;		/* the place behind the last handle's rows */
	ZChangedRow loaded;			/* from the file; its bytes are here: */
	char		loaded_bytes[2 * BLCKSZ];
} MyHandles;

static MyHandles my;

/* ---- the rows of changes ---- */

/* Returns what a copy of the rows takes in memory. */
static inline Size
rows_size(const ZChangedRow *rows)
{
	return sizeof(ZChangedRow) + rows->oldlen + rows->newlen;
}

/*
 * Returns a copy of the rows in memory; NULL if the copies of this transaction
 * would take more than work_mem, or there is no memory.
 */
static ZChangedRow *
copy_rows(const ZChangedRow *rows)
{
	Size		size = rows_size(rows);
	ZChangedRow *copy;

	if (my.rows_size + size > work_mem * (Size) 1024)
		return NULL;
	if (my.rows_memory == NULL)
		my.rows_memory = AllocSetContextCreate(TopTransactionContext,
											   "zundo rows of trigger events",
											   ALLOCSET_DEFAULT_SIZES);
	copy = MemoryContextAllocExtended(my.rows_memory, size, MCXT_ALLOC_NO_OOM);
	if (copy == NULL)
		return NULL;
	my.rows_size += size;
	*copy = *rows;
	copy->old = (char *) (copy + 1);
	copy->new = copy->old + rows->oldlen;
	memcpy(copy + 1, rows->old, rows->oldlen);
	if (rows->newlen > 0)
		memcpy((char *) (copy + 1) + rows->oldlen, rows->new, rows->newlen);
	return copy;
}

/* Sets the position of the file; place is what file_place has returned. */
static void
go_to(uint64 place)
{
	if (BufFileSeek(my.file, (int) (place >> 32), (off_t) (place & PG_UINT32_MAX), SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in the temporary file for rows of trigger events")));
}

/* Returns the position of the file: the number of a segment and an offset. */
static uint64
file_place(void)
{
	int			segment;
	off_t		offset;

	BufFileTell(my.file, &segment, &offset);
	return ((uint64) segment << 32) | (uint64) offset;
}

/*
 * Appends the rows to the file and returns their place. The file is the
 * transaction's, so that the end of a subtransaction does not remove it. After
 * an error the next rows are written at the same place.
 */
static uint64
write_rows(const ZChangedRow *rows)
{
	uint64		place;

	if (my.file == NULL)
	{
		MemoryContext context = MemoryContextSwitchTo(TopTransactionContext);
		ResourceOwner owner = CurrentResourceOwner;

		CurrentResourceOwner = TopTransactionResourceOwner;
		my.file = BufFileCreateTemp(false);
		CurrentResourceOwner = owner;
		MemoryContextSwitchTo(context);
		my.file_end = 0;
	}
	ZUNDO_FAULT("rows-written");
	place = my.file_end;
	go_to(place);
	BufFileWrite(my.file, unconstify(ZChangedRow *, rows), sizeof(ZChangedRow));
	BufFileWrite(my.file, unconstify(char *, rows->old), rows->oldlen);
	if (rows->newlen > 0)
		BufFileWrite(my.file, unconstify(char *, rows->new), rows->newlen);
	my.file_end = file_place();
	return place;
}

/* Reads size bytes at the position of the file. */
static void
read_file(void *to, size_t size)
{
	if (BufFileRead(my.file, to, size) != size)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read the temporary file for rows of trigger events")));
}

/* Returns the rows of a handle's change; valid until the next call. */
static const ZChangedRow *
rows_of(const ZHandle *handle)
{
	if (handle->rows != NULL)
		return handle->rows;
	Assert(my.file != NULL && handle->place < my.file_end);
	go_to(handle->place);
	read_file(&my.loaded, sizeof(ZChangedRow));
	Assert(my.loaded.change == handle->change);
	read_file(my.loaded_bytes, my.loaded.oldlen + my.loaded.newlen);
	my.loaded.old = my.loaded_bytes;
	my.loaded.new = my.loaded_bytes + my.loaded.oldlen;
	return &my.loaded;
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
 * Cuts the array off behind the first n handles, and gives up the rows of the
 * others.
 */
static void
cut_to(uint32 n)
{
	for (uint32 i = my.nhandles; i > n; i--)
	{
		ZHandle    *handle = &my.handles[i - 1];

		if (handle->rows == NULL)
			my.file_end = handle->place;
		else if (n > 0)
		{
			Assert(my.rows_size >= rows_size(handle->rows));
			my.rows_size -= rows_size(handle->rows);
			pfree(handle->rows);
		}
	}
	if (n == 0 && my.rows_memory != NULL)
	{
		MemoryContextReset(my.rows_memory);
		my.rows_size = 0;
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
zhandle_make(Relation rel, BlockNumber block, OffsetNumber off, const ZChangedRow *rows,
			 ItemPointer tid)
{
	ZHandle    *handle;
	SubTransactionId subid = GetCurrentSubTransactionId();

	Assert(rows->change != InvalidUndoPtr);
	Assert(off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET);
	if (my.nhandles == 0 || my.handles[my.nhandles - 1].change != rows->change ||
		my.handles[my.nhandles - 1].subid != subid)
	{
		make_space();
		handle = &my.handles[my.nhandles];
		handle->change = rows->change;
		handle->place = 0;
		handle->rows = copy_rows(rows);
		if (handle->rows == NULL)
			handle->place = write_rows(rows);
		handle->reloid = RelationGetRelid(rel);
		handle->block = block;
		handle->off = off;
		handle->subid = subid;
		my.nhandles++;
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

/* zhandle_fetch: See zhandle.h. The author of the new row is the change. */
void
zhandle_fetch(const ZHandle *handle, ZVersion *version)
{
	const ZChangedRow *rows = rows_of(handle);

	Assert(rows->change == handle->change);
	zhandle_old_version(rows, version);
	my.kept.valid = false;
	if (rows->newlen == 0)
		return;
	my.kept.reloid = handle->reloid;
	ItemPointerSet(&my.kept.tid, handle->block, handle->off);
	row_version(rows->new, rows->newlen, &my.kept.version);
	my.kept.version.author_known = true;
	my.kept.version.xmin = rows->xid;
	my.kept.version.cmin = rows->cid;
	my.kept.version.author = rows->change;
	my.kept.valid = true;
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

#ifdef USE_ASSERT_CHECKING
const ZVersion *
zhandle_kept_new(const ZHandle *handle)
{
	return my.kept.valid && my.kept.reloid == handle->reloid ? &my.kept.version : NULL;
}
#endif

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

void
zhandle_before_end(void)
{
	if (my.file == NULL)
		return;
	cut_to(0);
	my.nlasting = 0;
	BufFileClose(my.file);
	my.file = NULL;
}

/* zhandle_at_xact_end: See zhandle.h. Forgets all handles, and what is kept. */
void
zhandle_at_xact_end(void)
{
	/*
	 * Array, rows and file live in the transaction's memory and are freed
	 * with it. After a rollback, its resource owner removes the file.
	 */
	my.handles = NULL;
	my.nhandles = my.capacity = my.nlasting = 0;
	my.kept.valid = false;
	my.rows_memory = NULL;
	my.rows_size = 0;
	my.file = NULL;
}
