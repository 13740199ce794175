/*
 * change/zlogical.c - what logical decoding makes of zheap tables: an error.
 *
 * Changes of zheap tables are not decoded. Nor are they passed over: where an
 * output plugin would be shown one, decoding fails, that is, at the commit of
 * the transaction, at its PREPARE, or when a part of it is streamed. For that
 * the decoder queues a mark (a deletion without a row) where the server's own
 * decoders queue a row, and replaces the functions of the reorder buffer that
 * give changes to the plugin.
 *
 * Invariants:
 *	DECODE-3	each change of rows that heap would show has a mark in the
 *		queue of its (sub)transaction, in its place among the snapshots there;
 *		an abort discards the marks with the queue.
 *	DECODE-4	a plugin is never called with a change of a zheap table's rows.
 *		(TRUNCATE is the server's record, which plugins are shown.)
 *	DECODE-5	records that change no rows say nothing of their transaction:
 *		those of a rollback follow its abort record, with which the server
 *		forgets it.
 *
 * Runs in the session that reads a replication slot, also on a standby. Takes
 * no page locks; zlogical_warn takes ReplicationSlotControlLock.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_publication.h"
#include "miscadmin.h"
#include "replication/logical.h"
#include "replication/reorderbuffer.h"
#include "replication/slot.h"
#include "replication/snapbuild.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "tuple/zslot.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "change/zchange.h"
#include "change/zlogical.h"
#include "change/zwal.h"

/*
 * The server's functions that give changes to plugins. They are the same in
 * every reorder buffer, so one copy of them is enough.
 */
static struct
{
	ReorderBufferApplyChangeCB apply_change;
	ReorderBufferStreamChangeCB stream_change;
}			server;

/* Publications of TRUNCATE alone do not count: that is no change of rows. */
bool
zlogical_is_published(Relation rel)
{
	PublicationDesc desc;
	const PublicationActions *actions = &desc.pubactions;

	/* use what the relcache keeps, rather than copy it for each row */
	if (rel->rd_pubdesc != NULL)
		actions = &rel->rd_pubdesc->pubactions;
	else
		RelationBuildPublicationDesc(rel, &desc);
	return actions->pubinsert || actions->pubupdate || actions->pubdelete;
}

/* ---- where plugins are given changes ---- */

/*
 * Returns whether the transaction has been rolled back, which is possible if it
 * is streamed or was prepared.
 */
static bool
has_aborted(TransactionId xid)
{
	return !TransactionIdIsInProgress(xid) && !TransactionIdDidCommit(xid);
}

/*
 * Raises the error for a mark, unless the change must not be shown anyway: rel
 * is the table that a rewrite fills, the transaction is rolled back, or the
 * plugin is pgoutput and rel is not published. (Writers refuse to change what
 * is published, DECODE-2; this error is for what they could not know.)
 */
static void
refuse_change(ReorderBuffer *rb, Relation rel, TransactionId xid)
{
	LogicalDecodingContext *ctx = rb->private_data;
	const char *plugin = NameStr(ctx->slot->data.plugin);

	if (OidIsValid(rel->rd_rel->relrewrite) || has_aborted(xid) ||
		(strcmp(plugin, "pgoutput") == 0 && !zlogical_is_published(rel)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("changes of zheap table \"%s.%s\" cannot be decoded",
					get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel)),
			 errdetail("Logical decoding of zheap tables is not implemented, "
					   "and slot \"%s\" with output plugin \"%s\" would lose a change of "
					   "transaction %u.",
					   NameStr(ctx->slot->data.name), plugin, xid),
			 errhint("To decode changes of other tables only, set \"zundo.undecodable_changes\" "
					 "to \"skip\" in the session that reads the slot, for example by ALTER "
					 "ROLE.")));
}

static bool
is_zheap(Relation rel)
{
	return rel->rd_tableam != NULL && table_slot_callbacks(rel) == &TTSOpsZHeap;
}

/*
 * Replaces the reorder buffer's apply_change: raises an error for zheap tables.
 */
static void
apply_change(ReorderBuffer *rb, ReorderBufferTXN *txn, Relation rel, ReorderBufferChange *change)
{
	if (is_zheap(rel))
		refuse_change(rb, rel, change->txn->xid);
	else
		server.apply_change(rb, txn, rel, change);
}

/*
 * Replaces the reorder buffer's stream_change: raises an error for zheap
 * tables.
 */
static void
stream_change(ReorderBuffer *rb, ReorderBufferTXN *txn, Relation rel, ReorderBufferChange *change)
{
	if (is_zheap(rel))
		refuse_change(rb, rel, change->txn->xid);
	else
		server.stream_change(rb, txn, rel, change);
}

/* Replaces the functions that give rb's changes to its plugin (DECODE-4). */
static void
stand_before_plugin(ReorderBuffer *rb)
{
	if (rb->apply_change == apply_change)
		return;
	server.apply_change = rb->apply_change;
	server.stream_change = rb->stream_change;
	rb->apply_change = apply_change;
	rb->stream_change = stream_change;
}

/* ---- decoding ---- */

/*
 * Returns whether a plugin would be shown what the record does if the table
 * were heap. A speculative insertion would be shown when it is confirmed.
 */
static bool
shows_rows(XLogReaderState *record)
{
	ZChange		change;
	ZChangeWork work;
	xl_zheap_mark mark;

	switch (XLogRecGetInfo(record) & ~XLR_INFO_MASK)
	{
		case ZWAL_INSERT:
		case ZWAL_UPDATE:
		case ZWAL_DELETE:
		case ZWAL_MOVE:
			return true;
		case ZWAL_MULTI_INSERT:
			if (!zchange_decode(record, &change, &work))
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("malformed zheap WAL record at %X/%X",
								LSN_FORMAT_ARGS(record->ReadRecPtr))));
			return (change.rec[0].xflags & ZUX_SPECULATIVE) == 0;
		case ZWAL_MARK:
			memcpy(&mark, XLogRecGetData(record), SizeOfZheapMark);
			return mark.what == ZMARK_CONFIRMED;
		default:
			return false;		/* changes of pages, undo or locks alone */
	}
}

/*
 * Returns whether the last entry of the transaction's queue is a mark for the
 * same file: a run of changes needs only one. What could make a difference
 * between them, such as a new snapshot, would be an entry after the mark. For
 * subtransactions such entries are in another queue, so each of their changes
 * has its mark.
 */
static bool
is_marked(ReorderBuffer *rb, TransactionId xid, const RelFileLocator *locator)
{
	ReorderBufferTXN *txn = rb->by_txn_last_txn;
	ReorderBufferChange *last;

	if (rb->by_txn_last_xid != xid || txn == NULL || rbtxn_is_known_subxact(txn) ||
		dlist_is_empty(&txn->changes))
		return false;
	last = dlist_tail_element(ReorderBufferChange, node, &txn->changes);
	return last->action == REORDER_BUFFER_CHANGE_DELETE && last->data.tp.oldtuple == NULL &&
		RelFileLocatorEquals(zc_change_locator(last), *locator);
}

/*
 * Puts the mark of a change into its transaction's queue (DECODE-3), unless the
 * change belongs to another database or its origin is filtered out.
 */
static void
queue_mark(LogicalDecodingContext *ctx, XLogRecordBuffer *buf)
{
	ReorderBuffer *rb = ctx->reorder;
	TransactionId xid = XLogRecGetXid(buf->record);
	RepOriginId origin = XLogRecGetOrigin(buf->record);
	RelFileLocator locator;
	ReorderBufferChange *mark;

	zc_block_tag(buf->record, 0, &locator, NULL, NULL);
	if (locator.dbOid != ctx->slot->data.database ||
		(ctx->callbacks.filter_by_origin_cb != NULL && filter_by_origin_cb_wrapper(ctx, origin)))
		return;
	stand_before_plugin(rb);
	ReorderBufferProcessXid(rb, xid, buf->origptr); /* makes it rb's
													 * by_txn_last_txn */
	if (is_marked(rb, xid, &locator))
		return;
	mark = zc_alloc_change(rb);
	mark->action = REORDER_BUFFER_CHANGE_DELETE;
	mark->origin_id = origin;
	zc_change_locator(mark) = locator;
	ReorderBufferQueueChange(rb, xid, buf->origptr, mark, false);
}

/*
 * Follows the server's heap decoder: a change counts only from the point on
 * where the snapshot builder has a full snapshot.
 */
void
zlogical_decode(LogicalDecodingContext *ctx, XLogRecordBuffer *buf)
{
	TransactionId xid = XLogRecGetXid(buf->record);

	if (!shows_rows(buf->record) || zundo_undecodable_changes == ZUNDO_UNDECODABLE_SKIP)
		return;
	ReorderBufferProcessXid(ctx->reorder, xid, buf->origptr);
	if (SnapBuildCurrentState(ctx->snapshot_builder) >= SNAPBUILD_FULL_SNAPSHOT &&
		SnapBuildProcessChange(ctx->snapshot_builder, xid, buf->origptr) && !ctx->fast_forward)
		queue_mark(ctx, buf);
}

/* ---- new tables ---- */

/*
 * Only replication slots of this database count, since only these would be
 * shown the table's changes.
 */
void
zlogical_warn(const char *name)
{
	NameData	slot = {{0}};

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots; i++)
	{
		ReplicationSlot *s = &ReplicationSlotCtl->replication_slots[i];

		/*
		 * the name and the database of a replication slot in use do not
		 * change
		 */
		if (s->in_use && s->data.database == MyDatabaseId)
		{
			slot = s->data.name;
			break;
		}
	}
	LWLockRelease(ReplicationSlotControlLock);
	if (NameStr(slot)[0] != '\0')
		ereport(WARNING,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("changes of zheap table \"%s\" will not be decoded", name),
				 errdetail("This database has logical replication slot \"%s\". A zheap table "
						   "cannot be written "
						   "while it is published, and output plugins other than pgoutput fail "
						   "when they meet its changes.",
						   NameStr(slot)),
				 errhint("Use access method \"heap\" for tables that shall be replicated.")));
}
