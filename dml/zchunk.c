/*
 * dml/zchunk.c - the chunks of large values, rows of the TOAST table.
 *
 * Called without a buffer lock while another change of rows is on its way: so
 * this file takes no memory of zdml_scratch, and the caller reserves undo
 * again. The chunks are logged for decoding if the row will be (DECODE-1).
 *
 *	TOAST-1	A chunk is inserted once and deleted once, by the (sub)transaction
 *		that changes the row with the pointer; it is never updated, moved or
 *		locked. So its bytes are the same wherever they are found.
 *	TOAST-2	A value id is taken only if the TOAST index has no entry of it, dead
 *		or alive. So all entries of one id are those of one value.
 *	TOAST-3	The chunks of a value end with the row version that points to them:
 *		by the same (sub)transaction and command, once the row is locked or
 *		changed. So what keeps the version keeps them.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/toast_internals.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "dml/zrowchange.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "rollback/zrollback.h"
#include "tuple/zchunk.h"
#include "tuple/ztts.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* A TOAST table with its indexes. */
typedef struct Toast
{
	Relation	rel;
	Relation   *indexes;
	int			nindexes;
	Relation	index;			/* the valid one */
} Toast;

/* Opens the TOAST table; its locks are kept until the transaction ends. */
static void
open_toast(Toast *toast, Oid reloid)
{
	int			valid;

	toast->rel = table_open(reloid, RowExclusiveLock);
	if (toast->rel->rd_tableam->relation_fetch_toast_slice == NULL ||
		table_slot_callbacks(toast->rel) != &TTSOpsZHeap)
		elog(ERROR, "TOAST table \"%s\" of a zheap table is not zheap",
			 RelationGetRelationName(toast->rel));
	valid = toast_open_indexes(toast->rel, RowExclusiveLock, &toast->indexes, &toast->nindexes);
	toast->index = toast->indexes[valid];
}

static void
close_toast(Toast *toast)
{
	toast_close_indexes(toast->indexes, toast->nindexes, NoLock);
	table_close(toast->rel, NoLock);
}

/* Begins a scan of the index entries of a value, dead and alive. */
static IndexScanDesc
scan_value(const Toast *toast, Oid valueid)
{
	ScanKeyData key;
	IndexScanDesc scan = zc_index_beginscan_keys(toast->rel, toast->index, SnapshotAny, 1);

	scan->ignore_killed_tuples = false;
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(valueid));
	index_rescan(scan, &key, 1, NULL, 0);
	return scan;
}

/* Returns whether the index has an entry of this value id (TOAST-2). */
static bool
is_taken(const Toast *toast, Oid valueid)
{
	IndexScanDesc scan = scan_value(toast, valueid);
	bool		taken = index_getnext_tid(scan, ForwardScanDirection) != NULL;

	index_endscan(scan);
	return taken;
}

/* Returns whether the TOAST table 'reloid' has the value. */
static bool
is_taken_in(Oid reloid, Oid valueid)
{
	Toast		toast;
	bool		taken;

	open_toast(&toast, reloid);
	taken = is_taken(&toast, valueid);
	close_toast(&toast);
	return taken;
}

/* Returns an id for a new value. replaced: the table that is rewritten. */
static Oid
new_value_id(const Toast *toast, Oid replaced)
{
	Oid			id;

	do
	{
		CHECK_FOR_INTERRUPTS();
		id = GetNewObjectId();
	} while (is_taken(toast, id) || (OidIsValid(replaced) && is_taken_in(replaced, id)));
	return id;
}

/* Inserts the index entries of chunks, of which the first has number seq. */
static void
index_chunks(const Toast *toast, Oid valueid, int32 seq, const ZNewRows *rows)
{
	Datum		values[3] = {ObjectIdGetDatum(valueid)};
	bool		isnull[3] = {false, false, true};

	for (int i = 0; i < rows->n; i++)
	{
		values[1] = Int32GetDatum(seq + i);
		for (int j = 0; j < toast->nindexes; j++)
		{
			Form_pg_index form = toast->indexes[j]->rd_index;

			if (form->indisready)
				index_insert(toast->indexes[j], values, isnull, &rows->tid[i], toast->rel,
							 form->indisunique ? UNIQUE_CHECK_YES : UNIQUE_CHECK_NO, false, NULL);
		}
	}
}

/* Stores the bytes as chunks of the value. Chunks per insertion: */
#define BATCH 64

static void
store_chunks(const Toast *toast, Oid valueid, const char *data, int32 size, ZcOptions options)
{
	CommandId	cid = GetCurrentCommandId(true);
	char	   *row[BATCH];
	uint32		len[BATCH];
	ItemPointerData tid[BATCH];
	ZNewRows	rows = {0, row, len, tid};
	ZRowsKind	kind = {.frozen = zrows_frozen(toast->rel, options)};
	ZWriter		writer;
	int			nbatch = Min(BATCH, ZCHUNKS(size));
	char	   *space = palloc(nbatch * ZCHUNK_ROW_SIZE(ZCHUNK_SIZE));

	for (int32 seq = 0; size > 0; seq += rows.n)
	{
		for (rows.n = 0; rows.n < nbatch && size > 0; rows.n++)
		{
			int32		n = Min(size, ZCHUNK_SIZE);

			row[rows.n] = space + rows.n * ZCHUNK_ROW_SIZE(ZCHUNK_SIZE);
			len[rows.n] = zchunk_form(row[rows.n], valueid, seq + rows.n, data, n);
			data += n;
			size -= n;
		}
		zwriter_begin_change(&writer, toast->rel, cid, (options & TABLE_INSERT_NO_LOGICAL) != 0);
		zrows_insert(&writer, &rows, options, NULL, &kind);
		pgstat_count_heap_insert(toast->rel, rows.n);
		index_chunks(toast, valueid, seq, &rows);
	}
	pfree(space);
}

/*
 * zchunk_store: See zdml_internal.h. While rel is a new file for another
 * table, a value keeps its id, and is stored once however many versions of its
 * row there are.
 */
Datum
zchunk_store(Relation rel, Datum value, struct varlena *old, ZcOptions options)
{
	struct varlena *v = (struct varlena *) DatumGetPointer(value);
	struct varatt_external pointer;
	struct varlena *result = palloc(TOAST_POINTER_SIZE);
	const char *data = VARDATA_ANY(v);
	int32		size = VARSIZE_ANY_EXHDR(v);
	Toast		toast;

	Assert(!VARATT_IS_EXTERNAL(v));
	pointer.va_rawsize = size + VARHDRSZ;
	pointer.va_extinfo = size;
	if (VARATT_IS_COMPRESSED(v))
	{
		pointer.va_rawsize = VARDATA_COMPRESSED_GET_EXTSIZE(v) + VARHDRSZ;
		VARATT_EXTERNAL_SET_SIZE_AND_COMPRESS_METHOD(pointer, size,
													 VARDATA_COMPRESSED_GET_COMPRESS_METHOD(v));
	}
	open_toast(&toast, rel->rd_rel->reltoastrelid);
	pointer.va_toastrelid = OidIsValid(rel->rd_toastoid) ? rel->rd_toastoid :
		RelationGetRelid(toast.rel);
	pointer.va_valueid = InvalidOid;
	if (OidIsValid(rel->rd_toastoid) && old != NULL && VARATT_IS_EXTERNAL_ONDISK(old))
	{
		struct varatt_external was;

		VARATT_EXTERNAL_GET_POINTER(was, old);
		if (was.va_toastrelid == rel->rd_toastoid)
		{
			pointer.va_valueid = was.va_valueid;
			if (is_taken(&toast, was.va_valueid))
				size = 0;		/* stored with another version of the row */
		}
	}
	if (!OidIsValid(pointer.va_valueid))
		pointer.va_valueid = new_value_id(&toast, rel->rd_toastoid);
	store_chunks(&toast, pointer.va_valueid, data, size, options);
	close_toast(&toast);
	SET_VARTAG_EXTERNAL(result, VARTAG_ONDISK);
	memcpy(VARDATA_EXTERNAL(result), &pointer, sizeof(pointer));
	return PointerGetDatum(result);
}

/*
 * Deletes the chunk of the value at tid. Our transaction holds the row that the
 * value belongs to, so no transaction in progress has changed the chunk. One
 * that our own command has inserted counts as seen (found by no command). If
 * storage has lost writes, the chunk is not there, or deleted already, or
 * another value's is there; then nothing is deleted, so that the row with the
 * pointer can be.
 */
static void
delete_chunk(Relation rel, ItemPointer tid, Oid valueid, CommandId cid)
{
	RowChange	u;
	ZRowWish	wish = {rel, InvalidBuffer, tid, InvalidCommandId, InvalidSnapshot};
	TM_FailureData tmfd;
	TM_Result	result;
	bool		there;

	zrowchange_begin(&u, tid, NULL);
	zwriter_begin_change(&u.writer, rel, cid, true);
	u.buf = zknown_read(rel, zrowchange_block(&u));
	wish.buf = u.buf;
	wish.mode = LockTupleExclusive;
	for (;;)
	{
		LockBuffer(u.buf, BUFFER_LOCK_EXCLUSIVE);
		wish.sound = zrowchange_look(&u);
		there = wish.sound && zchunk_is_of(u.oldrow, (int) u.oldlen, valueid);
		result = there ? zrow_examine(&wish, &u.state, &tmfd) : TM_Deleted;
		if (there && u.state.rolled_back)
			(void) zrowchange_look(&u);
		if (result == TM_Deleted)
		{
			LockBuffer(u.buf, BUFFER_LOCK_UNLOCK);
			zrowchange_end(&u);
			return;
		}
		if (result != TM_Ok)
			elog(ERROR, "chunk (%u,%u) of TOAST table \"%s\" cannot be deleted: %d",
				 ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid),
				 RelationGetRelationName(rel), (int) result);
		if (zrowchange_pick(&u))
			break;
		zrowchange_reserve(&u);
	}
	(void) zrowwrite_delete(&u, false, InvalidTransactionId);
	zrollback_note_page(rel, zrowchange_block(&u));
	zreclaim_note(rel, u.buf, zrowchange_offset(&u), zrowchange_room(&u));
	LockBuffer(u.buf, BUFFER_LOCK_UNLOCK);
	zrowchange_end(&u);
	pgstat_count_heap_delete(rel);
}

void
zchunk_delete(Datum value)
{
	struct varlena *v = (struct varlena *) DatumGetPointer(value);
	struct varatt_external pointer;
	CommandId	cid = GetCurrentCommandId(true);
	Toast		toast;
	IndexScanDesc scan;
	ItemPointer tid;

	if (!VARATT_IS_EXTERNAL_ONDISK(v))
		return;
	VARATT_EXTERNAL_GET_POINTER(pointer, v);
	open_toast(&toast, pointer.va_toastrelid);
	scan = scan_value(&toast, pointer.va_valueid);
	while ((tid = index_getnext_tid(scan, ForwardScanDirection)) != NULL)
		delete_chunk(toast.rel, tid, pointer.va_valueid, cid);
	index_endscan(scan);
	close_toast(&toast);
}
