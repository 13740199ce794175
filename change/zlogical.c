/*
 * change/zlogical.c - logical decoding of zheap tables.
 *
 * A WAL record that is to be decoded has a decoding part (change/zwal.h): the
 * layout of its rows, from which they can be turned into heap tuples without
 * reading a catalog, and those bytes of the rows that replay does not need. The
 * first half of this file builds the part when the record is written. The
 * second half runs in the process that reads a replication slot, on a primary
 * or a standby. It adds ReorderBufferChanges to the server's reorder buffer,
 * exactly as the server does for heap; reassembling values out of line,
 * streaming and the output plugin are the server's.
 *
 * Invariants: DECODE-1 to DECODE-3, see change/zlogical.h. Takes no locks. No
 * crash points.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "change/zlogical.h"
#include "change/zwal_internal.h"
#include "replication/logical.h"
#include "replication/reorderbuffer.h"
#include "replication/snapbuild.h"
#include "tuple/zlayout.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* ---- writing: the old row ---- */

/*
 * The maximum length of an old row with its values in line. WAL records are
 * limited to 1020 MB. Inserting a longer one in a critical section would be a
 * PANIC, and 15 would even insert it and be unable to read it.
 */
#define MAX_FLAT_ROW ((Size) 1019 * 1024 * 1024)

/*
 * Returns a palloc'd row with the old row's values of the columns in attrs, or
 * of all columns if attrs is NULL; other columns are null. Fetches values that
 * are stored out of line, so the row may be longer than a page. Raises
 * ERRCODE_PROGRAM_LIMIT_EXCEEDED if the row is too long for a WAL record.
 */
static char *
flat_row(Relation rel, const ZLogicalRows *rows, const Bitmapset *attrs, uint32 *length)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *values = palloc(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	Size		size;
	char	   *row;

	(void) ztuple_deform(rows->old, rows->old_length, desc, values, isnull,
						 RelationGetRelationName(rel), NULL);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped ||
			(attrs != NULL && !bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, attrs)))
			isnull[i] = true;
		if (!isnull[i] && att->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
			values[i] = PointerGetDatum(detoast_external_attr((struct varlena *)
															  DatumGetPointer(values[i])));
	}
	size = ztuple_size_any(desc, values, isnull);
	if (size > MAX_FLAT_ROW)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("old row of relation \"%s\" is too long for logical decoding",
						RelationGetRelationName(rel)),
				 errdetail("Its replica identity has %zu bytes; the maximum is %zu.",
						   size, MAX_FLAT_ROW)));
	row = palloc(size);
	ztuple_form(desc, values, isnull, row, size);
	*length = size;
	return row;
}

/*
 * Returns the old row, or its key, for the decoding part, and sets *length.
 * Returns NULL if the table's replica identity requires none. Returns NULL and
 * adds ZWL_OLD_UNDO to *what if the reader can rebuild the old row from the
 * undo in the WAL record. The conditions are those of the server's
 * ExtractReplicaIdentity.
 */
static const char *
identity_row(Relation rel, const ZLogicalRows *rows, uint8 *what, uint32 *length)
{
	if (rows->old == NULL || rel->rd_rel->relreplident == REPLICA_IDENTITY_NOTHING)
		return NULL;
	if (rel->rd_rel->relreplident == REPLICA_IDENTITY_FULL)
	{
		if (zheader_get(rows->old) & ZH_EXTERNAL)
			return flat_row(rel, rows, NULL, length);

		/* an update has the delta that makes it of the new row */
		if (rows->change->opcode == ZWAL_UPDATE)
		{
			*what |= ZWL_OLD_UNDO;
			return NULL;
		}
		*length = rows->old_length;
		return rows->old;
	}
	if (!rows->key_needed || bms_is_empty(rows->identity))
		return NULL;
	return flat_row(rel, rows, rows->identity, length);
}

/* ---- writing: the layout ---- */

/*
 * The layout of a table's rows, in rd_amcache until the relcache entry changes.
 */
typedef struct KeptLayout
{
	Size		length;
	char		bytes[FLEXIBLE_ARRAY_MEMBER];
} KeptLayout;

/* Makes the layout of rel's rows, and keeps it with the relcache entry. */
static const KeptLayout *
make_layout(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	char	   *bytes = palloc(zlayout_max_size(desc));
	Size		length = zlayout_put(bytes, desc) - bytes;
	KeptLayout *kept;

	Assert(rel->rd_amcache == NULL);
	kept = MemoryContextAlloc(CacheMemoryContext, offsetof(KeptLayout, bytes) + length);
	kept->length = length;
	memcpy(kept->bytes, bytes, length);
	rel->rd_amcache = kept;
	pfree(bytes);
	return kept;
}

#ifdef USE_ASSERT_CHECKING
/* Returns whether this is the layout of desc's rows. */
static bool
is_layout(const KeptLayout *kept, TupleDesc desc)
{
	char	   *bytes = palloc(zlayout_max_size(desc));
	Size		length = zlayout_put(bytes, desc) - bytes;
	bool		same = length == kept->length && memcmp(bytes, kept->bytes, length) == 0;

	pfree(bytes);
	return same;
}
#endif

/*
 * Returns the layout of rel's rows, valid until invalidations are accepted.
 * Nothing else of zundo uses rd_amcache of a table.
 */
static const KeptLayout *
get_layout(Relation rel)
{
	const KeptLayout *kept = rel->rd_amcache;

	if (unlikely(kept == NULL))
		kept = make_layout(rel);
	Assert(is_layout(kept, RelationGetDescr(rel)));
	return kept;
}

/* ---- writing: the part ---- */

/*
 * Appends the new row of an UPDATE to p: its shape, and the bytes that the
 * delta of the record does not have. Returns the end. Raises an internal error
 * if the delta does not fit the row.
 */
static char *
put_new_row(char *p, const ZChange *change)
{
	const char *bytes = change->row + ZTUPLE_HEADER_SIZE;
	Size		len = change->row_length - ZTUPLE_HEADER_SIZE;
	const char *delta_end = change->delta + change->delta_length;
	char	   *end;

	p = zvarint_put(p, zwal_shape_of(zheader_get(change->row)));
	end = zdelta_wal_take_out(change->delta, delta_end, bytes, len, p);
	if (end == NULL)
		elog(ERROR, "the delta of an update does not fit the new row");
#ifdef USE_ASSERT_CHECKING
	{
		char	   *row = palloc(BLCKSZ);
		char	   *row_end = zdelta_wal_put_in(change->delta, delta_end, p, end - p, row, BLCKSZ);

		Assert(row_end != NULL && (Size) (row_end - row) == len && memcmp(row, bytes, len) == 0);
		pfree(row);
	}
#endif
	return end;
}

/* Returns whether decoding turns a row of the change into a heap tuple. */
static bool
needs_layout(const ZLogicalRows *rows, uint8 what)
{
	return rows->change == NULL || rows->change->opcode != ZWAL_DELETE ||
		(what & (ZWL_OLD | ZWL_OLD_UNDO)) != 0;
}

/*
 * zlogical_part: See zlogical.h. Builds the contents behind a head of
 * ZWL_FAR_HEAD bytes, 'what' and a u32 length, which the form with ZWL_FAR
 * needs. A part that is short enough for block 0 has 'what' only: then the part
 * begins at the last byte of that head.
 */
char *
zlogical_part(Relation rel, const ZLogicalRows *rows, uint32 *length)
{
	uint32		old_length = 0;
	uint8		what = (rows->last ? ZWL_LAST : 0) | (IsToastRelation(rel) ? ZWL_TOAST : 0);
	const char *old = identity_row(rel, rows, &what, &old_length);
	bool		updated = rows->change != NULL && rows->change->opcode == ZWAL_UPDATE;
	const KeptLayout *layout;
	char	   *part;
	char	   *p;

	Assert((rows->old == NULL) == (rows->change == NULL));
	if (old != NULL)
		what |= ZWL_OLD;
	layout = needs_layout(rows, what) ? get_layout(rel) : NULL;
	part = palloc(ZWL_FAR_HEAD + (layout != NULL ? layout->length : 0) + 10 + old_length +
				  (updated ? rows->change->row_length : 0));
	p = part + ZWL_FAR_HEAD;
	if (layout != NULL)
	{
		memcpy(p, layout->bytes, layout->length);
		p += layout->length;
	}
	if (old != NULL)
	{
		p = zvarint_put(p, old_length);
		memcpy(p, old, old_length);
		p += old_length;
	}
	if (updated)
		p = put_new_row(p, rows->change);
	*length = p - part;
	if (*length <= ZWL_MAX_NEAR)
	{
		*length -= ZWL_FAR_HEAD - 1;
		part += ZWL_FAR_HEAD - 1;
	}
	else
	{
		uint32		far = *length - ZWL_FAR_HEAD;

		what |= ZWL_FAR;
		memcpy(part + 1, &far, sizeof(far));
	}
	part[0] = (char) what;
	return part;
}

/* zlogical_part_of_new: See zlogical.h. */
char *
zlogical_part_of_new(Relation rel, bool last, uint32 *length)
{
	ZLogicalRows rows = {.last = last};

	return zlogical_part(rel, &rows, length);
}

/* ---- reading ---- */

/* The state of decoding one WAL record. */
typedef struct Decoding
{
	LogicalDecodingContext *ctx;
	XLogRecordBuffer *buf;
	uint8		what;			/* ZWL_* */
	const char *p;				/* the bytes of its part that are not read yet */
	const char *end;
	ZLayout		layout;
	ZChange		change;
	ZChangeWork work;
} Decoding;

/* Raises ERRCODE_DATA_CORRUPTED for a record that cannot be decoded. */
static void zc_noreturn
malformed(XLogReaderState *record)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("malformed zheap WAL record at %X/%X", LSN_FORMAT_ARGS(record->ReadRecPtr)),
			 errdetail("It cannot be decoded.")));
}

/*
 * Adds the change, whose rows are set, to the reorder buffer with this action.
 * last: after it the reorder buffer can free the values out of line that it has
 * collected (DECODE-1).
 */
static void
queue_change(const Decoding *d, ReorderBufferChange *change,
			 enum ReorderBufferChangeType action, bool last)
{
	XLogReaderState *record = d->buf->record;

	change->action = action;
	change->origin_id = XLogRecGetOrigin(record);
	XLogRecGetBlockTag(record, 0, &zc_change_locator(change), NULL, NULL);
	change->data.tp.clear_toast_afterwards = last;
	ReorderBufferQueueChange(d->ctx->reorder, XLogRecGetXid(record), d->buf->origptr, change,
							 (d->what & ZWL_TOAST) != 0);
}

/*
 * Returns a heap tuple with the row's values, allocated by the reorder buffer.
 * Raises an error if the row does not fit its layout.
 */
static ZcDecodedTuple
decoded_tuple(const Decoding *d, const char *row, Size len)
{
	Size		size = zlayout_tuple_size(&d->layout, row, len);
	ZcDecodedTuple decoded;

	if (size < SizeofHeapTupleHeader)
		malformed(d->buf->record);
	decoded = zc_alloc_tuple(d->ctx->reorder, size - SizeofHeapTupleHeader);
	zlayout_form_tuple(&d->layout, row, len, zc_heap_tuple(decoded));
	return decoded;
}

/* Queues the insertion of one row. */
static void
queue_insert(const Decoding *d, const char *row, Size len, bool last)
{
	ReorderBufferChange *change = zc_alloc_change(d->ctx->reorder);
	bool		speculative = (d->change.rec[0].xflags & ZUX_SPECULATIVE) != 0;

	change->data.tp.newtuple = decoded_tuple(d, row, len);
	queue_change(d, change, speculative ? REORDER_BUFFER_CHANGE_INTERNAL_SPEC_INSERT
				 : REORDER_BUFFER_CHANGE_INSERT, last);
}

/*
 * Queues the insertions of a MULTI_INSERT. zchange_decode has checked the
 * lengths of the rows.
 */
static void
queue_inserts(const Decoding *d)
{
	const char *p = d->change.row;
	int			n = d->change.rec[0].nrows;

	for (int i = 0; i < n; i++)
	{
		uint16		len;

		memcpy(&len, p, sizeof(len));
		queue_insert(d, p + sizeof(len), len, (d->what & ZWL_LAST) != 0 && i == n - 1);
		p += sizeof(len) + len;
	}
}

/*
 * Forms the old row of an update in row, which has BLCKSZ bytes, by the undo in
 * the WAL record, a delta against the new row. Returns the old row's length.
 * Raises an error if the undo is malformed.
 */
static Size
old_row_of_undo(Decoding *d, const char *new, Size new_len, char *row)
{
	char		raw[ZUR_MAX_LENGTH];
	const ZuRecord *rec = &d->change.rec[0];
	Size		size = 0;
	const char *payload = zur_raw_payload(rec, raw, sizeof(raw), &size);
	const char *end = payload + size;
	const char *p = NULL;
	ZHeader		h = 0;

	if (payload != NULL && d->change.opcode == ZWAL_UPDATE)
		p = zheader_compact_get(payload, end, zheader_get(new), &h);
	size = new_len - ZTUPLE_HEADER_SIZE;
	if (p == NULL || size > BLCKSZ - ZTUPLE_HEADER_SIZE)
		malformed(d->buf->record);
	zheader_set(row, h);
	memcpy(row + ZTUPLE_HEADER_SIZE, new + ZTUPLE_HEADER_SIZE, size);
	if (zdelta_undo_apply(p, end, row + ZTUPLE_HEADER_SIZE, &size,
						  BLCKSZ - ZTUPLE_HEADER_SIZE) != end)
		malformed(d->buf->record);
	return size + ZTUPLE_HEADER_SIZE;
}

/*
 * Queues an update, or a deletion if new is NULL. old is the old row or its key
 * from the decoding part, or NULL; with ZWL_OLD_UNDO it is rebuilt from undo.
 */
static void
queue_old(Decoding *d, const char *old, Size old_len, const char *new, Size new_len)
{
	char		row[BLCKSZ];
	ReorderBufferChange *change = zc_alloc_change(d->ctx->reorder);

	if (d->what & ZWL_OLD_UNDO)
	{
		old_len = old_row_of_undo(d, new, new_len, row);
		old = row;
	}
	if (old != NULL)
		change->data.tp.oldtuple = decoded_tuple(d, old, old_len);
	if (new != NULL)
		change->data.tp.newtuple = decoded_tuple(d, new, new_len);
	queue_change(d, change,
				 new != NULL ? REORDER_BUFFER_CHANGE_UPDATE : REORDER_BUFFER_CHANGE_DELETE, true);
}

/*
 * Forms the new row of an UPDATE in row, which has BLCKSZ bytes, from what is
 * left of the decoding part and the delta in the record. Returns its length.
 * Raises an error if they do not fit each other.
 */
static Size
updated_row(Decoding *d, char *row)
{
	const ZChange *change = &d->change;
	uint32		shape = 0;
	char	   *end = NULL;

	d->p = zvarint_get(d->p, d->end, &shape);
	if (d->p != NULL)
		end = zdelta_wal_put_in(change->delta, change->delta + change->delta_length, d->p,
								d->end - d->p, row + ZTUPLE_HEADER_SIZE,
								BLCKSZ - ZTUPLE_HEADER_SIZE);
	if (end == NULL)
		malformed(d->buf->record);
	zheader_set(row, zwal_header_of_shape(shape));
	return end - row;
}

/*
 * Reads the decoding part and queues the row changes of the record. Raises an
 * error if record or part is malformed.
 */
static void
decode_change(Decoding *d)
{
	XLogReaderState *record = d->buf->record;
	const char *old = NULL;
	uint32		old_len = 0;
	char		new[BLCKSZ];
	Size		new_len;

	if (!zchange_decode(record, &d->change, &d->work))
		malformed(record);
	d->layout.natts = 0;
	if (d->p < d->end && (d->p = zlayout_get(d->p, d->end, &d->layout)) == NULL)
		malformed(record);
	if (d->what & ZWL_OLD)
	{
		d->p = zvarint_get(d->p, d->end, &old_len);
		if (d->p == NULL || old_len > (Size) (d->end - d->p))
			malformed(record);
		old = d->p;
		d->p += old_len;
	}
	if (d->p != d->end && d->change.opcode != ZWAL_UPDATE)
		malformed(record);
	switch (d->change.opcode)
	{
		case ZWAL_INSERT:
			queue_insert(d, d->change.row, d->change.row_length, true);
			break;
		case ZWAL_MULTI_INSERT:
			queue_inserts(d);
			break;
		case ZWAL_UPDATE:
			new_len = updated_row(d, new);
			queue_old(d, old, old_len, new, new_len);
			break;
		case ZWAL_MOVE:
			if (d->change.compact)
				malformed(record);
			queue_old(d, old, old_len, d->change.row, d->change.row_length);
			break;
		case ZWAL_DELETE:
			queue_old(d, old, old_len, NULL, 0);
			break;
		default:
			malformed(record);
	}
}

/* Queues the confirmation or the end of a speculative insertion. */
static void
decode_mark(const Decoding *d)
{
	XLogReaderState *record = d->buf->record;
	xl_zheap_mark mark;

	if (XLogRecGetDataLen(record) < SizeOfZheapMark)
		malformed(record);
	memcpy(&mark, XLogRecGetData(record), SizeOfZheapMark);
	queue_change(d, zc_alloc_change(d->ctx->reorder),
				 mark.what == ZMARK_CONFIRMED ? REORDER_BUFFER_CHANGE_INTERNAL_SPEC_CONFIRM
				 : REORDER_BUFFER_CHANGE_INTERNAL_SPEC_ABORT, true);
}

/*
 * Returns whether the record belongs to the replication slot's database and the
 * output plugin accepts its origin.
 */
static bool
is_wanted(LogicalDecodingContext *ctx, XLogReaderState *record)
{
	RelFileLocator locator;

	XLogRecGetBlockTag(record, 0, &locator, NULL, NULL);
	return locator.dbOid == ctx->slot->data.database &&
		(ctx->callbacks.filter_by_origin_cb == NULL ||
		 !filter_by_origin_cb_wrapper(ctx, XLogRecGetOrigin(record)));
}

/*
 * zlogical_decode: See zlogical.h. Takes the same steps in the same order as
 * the server's heap_decode: changes are queued only after the snapshot builder
 * has reached a full snapshot.
 */
void
zlogical_decode(LogicalDecodingContext *ctx, XLogRecordBuffer *buf)
{
	TransactionId xid = XLogRecGetXid(buf->record);
	Decoding	d;
	uint32		length;
	uint8		what;
	const char *part = zchange_logical_part(buf->record, &what, &length);

	if (what == 0)
		return;					/* DECODE-2c */
	if (part == NULL)
		malformed(buf->record);
	ReorderBufferProcessXid(ctx->reorder, xid, buf->origptr);
	if (SnapBuildCurrentState(ctx->snapshot_builder) < SNAPBUILD_FULL_SNAPSHOT ||
		!SnapBuildProcessChange(ctx->snapshot_builder, xid, buf->origptr) || ctx->fast_forward ||
		zc_useless_for_repack(buf) || !is_wanted(ctx, buf->record))
		return;
	d.ctx = ctx;
	d.buf = buf;
	d.what = what;
	d.p = part;
	d.end = part + length;
	if ((XLogRecGetInfo(buf->record) & ~XLR_INFO_MASK) == ZWAL_MARK)
		decode_mark(&d);
	else
		decode_change(&d);
}
