/*
 * change/zlogical.c - logical decoding of zheap tables.
 *
 * A record that is to be decoded has a part for that (change/zwal.h): the
 * layout of its rows, which turns them into heap tuples without a catalog, and
 * of the rows what the record does not have anyway. The writer's half makes the
 * part; the reader's half runs in the session that reads a replication slot,
 * also on a standby, and queues ordinary changes of the server's, so that all
 * that follows (values out of line, streaming, plugins) is the server's.
 *
 * Invariants: DECODE-1 to DECODE-5, see change/zlogical.h. Takes no locks.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_class.h"
#include "change/zlogical.h"
#include "change/zwal.h"
#include "common/varint.h"
#include "replication/logical.h"
#include "replication/reorderbuffer.h"
#include "replication/snapbuild.h"
#include "tuple/zlayout.h"
#include "utils/rel.h"

/* ---- writing ---- */

/*
 * The longest old row with its values in line. A WAL record has at most 1020
 * MB; a longer one is a PANIC when it is inserted, and 15 inserts a record that
 * it cannot read.
 */
#define MAX_FLAT_ROW ((Size) 1019 * 1024 * 1024)

/*
 * Returns, palloc'd, a row with the old row's values of the columns in attrs,
 * or of all columns if attrs is NULL; the others are NULL. Values out of line
 * are fetched, so the row may be longer than a page. Raises an error if the row
 * is too long for a WAL record.
 */
static char *
flat_row(Relation rel, const ZLogicalRows *rows, const Bitmapset *attrs, uint32 *length)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *values = palloc0(desc->natts * sizeof(Datum));
	bool	   *isnull = palloc(desc->natts * sizeof(bool));
	Size		size;
	char	   *row;

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		isnull[i] = true;
		if (att->attisdropped ||
			(attrs != NULL && !bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, attrs)))
			continue;
		values[i] = ztuple_getattr(rows->old, rows->old_length, desc, i + 1, &isnull[i],
								   RelationGetRelationName(rel), NULL);
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
 * Returns the row that tells which one is changed, and sets *length; NULL if
 * none is needed, or ZWL_OLD_UNDO, which is added to *what, says where it is.
 * The server's ExtractReplicaIdentity decides in the same way.
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
		if (rows->old_in_undo)
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

/*
 * The part has room for both of its forms: with all of it in block 0 it begins
 * with the byte that the other form has before its rest.
 */
char *
zlogical_part(Relation rel, const ZLogicalRows *rows, uint32 *length)
{
	uint32		old_length = 0;
	uint8		what = rows->last ? ZWL_LAST : 0;
	const char *old = identity_row(rel, rows, &what, &old_length);
	char	   *part;
	char	   *p;

	if (old != NULL)
		what |= ZWL_OLD;
	part = palloc(ZWL_FAR_HEAD + zlayout_max_size(RelationGetDescr(rel)) + 5 + old_length +
				  rows->new_length);
	p = part + ZWL_FAR_HEAD;
	if (rows->old == NULL || rows->new != NULL || (what & (ZWL_OLD | ZWL_OLD_UNDO)) != 0 ||
		rows->old_in_undo)
		p = zlayout_put(p, RelationGetDescr(rel));
	if (old != NULL)
	{
		p = zvarint_put(p, old_length);
		memcpy(p, old, old_length);
		p += old_length;
	}
	if (rows->new != NULL)
	{
		memcpy(p, rows->new, rows->new_length);
		p += rows->new_length;
	}
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

char *
zlogical_part_of_new(Relation rel, bool last, uint32 *length)
{
	ZLogicalRows rows = {.last = last};

	return zlogical_part(rel, &rows, length);
}

/* ---- reading ---- */

/* A record that is decoded. */
typedef struct Decoding
{
	LogicalDecodingContext *ctx;
	XLogRecordBuffer *buf;
	uint8		what;			/* ZWL_* */
	const char *p;				/* what is not read yet of its part */
	const char *end;
	ZLayout		layout;
	ZChange		change;
	ZChangeWork work;
} Decoding;

/* Raises the error for a record that does not agree with its layout. */
static void zc_noreturn
malformed(XLogReaderState *record)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("malformed zheap WAL record at %X/%X", LSN_FORMAT_ARGS(record->ReadRecPtr)),
			 errdetail("It cannot be decoded.")));
}

/*
 * Queues the change, whose rows are set, as one of this kind. last: values out
 * of line that have been gathered are not needed any more.
 */
static void
queue_change(const Decoding *d, ReorderBufferChange *change,
			 enum ReorderBufferChangeType action, bool last)
{
	XLogReaderState *record = d->buf->record;

	change->action = action;
	change->origin_id = XLogRecGetOrigin(record);
	zc_block_tag(record, 0, &zc_change_locator(change), NULL, NULL);
	change->data.tp.clear_toast_afterwards = last;
	ReorderBufferQueueChange(d->ctx->reorder, XLogRecGetXid(record), d->buf->origptr, change,
							 false);
}

/* Returns a tuple in the reorder buffer's memory with the row's values. */
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

/* Queues the insertions of a MULTI_INSERT. The decoder has checked lengths. */
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
 * Forms the old row of an update in row, which has BLCKSZ bytes, from the undo
 * of its record: all of it, or what differs from the new row. Returns its
 * length.
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
	bool		whole = (d->change.opcode == ZWAL_MOVE);
	ZHeader		h = 0;

	if (payload != NULL)
		p = zheader_compact_get(payload, end, whole ? 0 : zheader_get(new), &h);
	size = whole ? end - p : new_len - ZTUPLE_HEADER_SIZE;
	if (p == NULL || size > BLCKSZ - ZTUPLE_HEADER_SIZE)
		malformed(d->buf->record);
	zheader_set(row, h);
	memcpy(row + ZTUPLE_HEADER_SIZE, whole ? p : new + ZTUPLE_HEADER_SIZE, size);
	if (!whole && zdelta_undo_apply(p, end, row + ZTUPLE_HEADER_SIZE, &size,
									BLCKSZ - ZTUPLE_HEADER_SIZE) != end)
		malformed(d->buf->record);
	return size + ZTUPLE_HEADER_SIZE;
}

/*
 * Queues an update or a deletion, with the old row or its key if the record
 * tells it. new is NULL for a deletion.
 */
static void
queue_old(Decoding *d, const char *old, Size old_len, const char *new, Size new_len)
{
	char		row[BLCKSZ];
	ReorderBufferChange *change = zc_alloc_change(d->ctx->reorder);

	if (d->what & ZWL_OLD_UNDO)
	{
		if (new == NULL)
			malformed(d->buf->record);
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

/* Reads the part and queues what the record changes. */
static void
decode_change(Decoding *d)
{
	XLogReaderState *record = d->buf->record;
	const char *old = NULL;
	uint32		old_len = 0;

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
			queue_old(d, old, old_len, d->p, d->end - d->p);
			break;
		case ZWAL_MOVE:
			queue_old(d, old, old_len, d->change.row, d->change.row_length);
			break;
		case ZWAL_DELETE:
			queue_old(d, old, old_len, NULL, 0);
			break;
		default:
			malformed(record);
	}
}

/* Queues what became of a speculative insertion. */
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
 * Returns whether the slot is to be shown the record: it is of the slot's
 * database, and the plugin takes its origin.
 */
static bool
is_wanted(LogicalDecodingContext *ctx, XLogReaderState *record)
{
	RelFileLocator locator;

	zc_block_tag(record, 0, &locator, NULL, NULL);
	return locator.dbOid == ctx->slot->data.database &&
		(ctx->callbacks.filter_by_origin_cb == NULL ||
		 !filter_by_origin_cb_wrapper(ctx, XLogRecGetOrigin(record)));
}

/*
 * Follows the server's heap decoder: a change counts only from the point on
 * where the snapshot builder has a full snapshot.
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
		return;					/* DECODE-5 */
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
