/*
 * scan/zdetoast.c - reading values from a TOAST table.
 *
 * The callback gets no snapshot, and needs none: a chunk has one version
 * (TOAST-1), and a process that has a pointer to it has seen, or has written,
 * the row that the pointer is from.
 *	TOAST-4	The bytes on the page are taken, live, deleted or undone, without a
 *		look at the slot; if they had to make room, those that were saved
 *		(SAVED-1). Each chunk is compared with value id, number and size.
 *		(a) The saved ones cannot have been discarded, nor the index entry have
 *			been removed: the deleter of the chunk is that of the row version
 *			(TOAST-3), and the reader's snapshot, which does not see it, or its
 *			hold (zhistory_hold) keeps `oldest` back, to which the TOAST table
 *			and its index are kept, but for what SAVED-6 allows.
 *		(b) An undone chunk, to which a variable may point that was set in the
 *			subtransaction, keeps its room until this is needed; the session
 *			that has rolled it back does not take it before the client's
 *			statement ends (zprune_by_plan).
 *		Example: a cursor has returned a row whose value is out of line. The
 *		row is deleted, then the cursor's reader looks into the value: its
 *		chunks are there, since the cursor's snapshot does not see the DELETE.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/stratnum.h"
#include "access/toast_internals.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "mvcc/zknown.h"
#include "mvcc/zsaved.h"
#include "scan/zscan.h"
#include "storage/bufmgr.h"
#include "tuple/zchunk.h"
#include "undo/undo.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* Number of index entries that are read before the pages are. */
#define BATCH 64

/* What is to be read, and how far. */
typedef struct Slice
{
	Relation	rel;
	Oid			valueid;
	int32		attrsize;
	int32		from;			/* bytes of the value */
	int32		to;
	int32		next;			/* number of the chunk that is read next */
	char	   *result;
} Slice;

/* Copies the wanted bytes of the next chunk, whose row is given. */
static void
take_chunk(Slice *slice, const char *row, int len)
{
	int32		size = 0;
	const char *bytes = zchunk_bytes(row, len, slice->valueid, slice->next, &size);
	int64		start = (int64) slice->next * ZCHUNK_SIZE;
	int64		from = Max(start, slice->from);
	int64		to;

	if (bytes == NULL || size != Min(slice->attrsize - start, ZCHUNK_SIZE))
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg_internal("unexpected chunk (expected number %d) for toast value %u in %s",
								 slice->next, slice->valueid,
								 RelationGetRelationName(slice->rel))));
	to = Min(start + size, slice->to);
	memcpy(slice->result + (from - slice->from), bytes + (from - start), to - from);
	slice->next++;
}

static void zc_noreturn
missing(const Slice *slice)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg_internal("missing chunk number %d for toast value %u in %s", slice->next,
							 slice->valueid, RelationGetRelationName(slice->rel))));
}

/*
 * Takes the chunk that has become the stub at off of the page in buf, which is
 * locked; on return it is not. Its bytes have been saved.
 */
static void
take_saved_chunk(Slice *slice, Buffer buf, OffsetNumber off)
{
	char		row[BLCKSZ];
	UndoPtr		list = zpage_trailer(BufferGetPage(buf))->saved;
	int			len;

	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	zcount_reads(slice->rel, true);
	if (zsaved_find(slice->rel, BufferGetBlockNumber(buf), list, off, row, &len) != ZSAVED_FOUND)
		missing(slice);
	take_chunk(slice, row, len);
}

/*
 * Takes the chunks at n TIDs. Those next to each other on one page are taken
 * under one lock, as long as they have their bytes there.
 */
static void
take_chunks(Slice *slice, const ItemPointerData *tid, int n)
{
	for (int i = 0; i < n;)
	{
		BlockNumber block = ItemPointerGetBlockNumber(&tid[i]);
		Buffer		buf = zknown_read(slice->rel, block);
		Page		page = BufferGetPage(buf);
		bool		locked = true;

		LockBuffer(buf, BUFFER_LOCK_SHARE);
		for (; locked && i < n && ItemPointerGetBlockNumber(&tid[i]) == block; i++)
		{
			OffsetNumber off = ItemPointerGetOffsetNumber(&tid[i]);
			ItemId		lp;

			if (PageIsNew(page) || off > PageGetMaxOffsetNumber(page))
				missing(slice);
			if (!zpage_item_ok(page, off))
				zvis_corrupt_page(slice->rel, block, page, off);
			lp = PageGetItemId(page, off);
			if (ItemIdIsNormal(lp) || (ItemIdIsDead(lp) && zpage_row_inside(page, lp)))
				take_chunk(slice, zpage_row(page, lp), zpage_row_length(page, lp));
			else if (ItemIdIsRedirected(lp))
			{
				take_saved_chunk(slice, buf, off);
				locked = false;
			}
			else
				missing(slice);
		}
		if (locked)
			LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		ReleaseBuffer(buf);
	}
}

/*
 * zheap_fetch_toast_slice: See zscan.h. The entries of a value are read first,
 * and the table's pages afterwards: no index page may be locked after a table
 * page.
 */
void
zheap_fetch_toast_slice(Relation toastrel, Oid valueid, int32 attrsize, int32 sliceoffset,
						int32 slicelength, struct varlena *result)
{
	Slice		slice = {toastrel, valueid, attrsize, sliceoffset, sliceoffset + slicelength,
	sliceoffset / ZCHUNK_SIZE, VARDATA(result)};
	int32		last = (slice.to - 1) / ZCHUNK_SIZE;
	ItemPointerData tid[BATCH];
	Relation   *indexes;
	int			nindexes;
	int			nkeys;
	int			valid;
	IndexScanDesc scan;
	ScanKeyData key[3];
	int			n;

	if (slicelength == 0)
		return;
	zu_attach_for_table();
	valid = toast_open_indexes(toastrel, AccessShareLock, &indexes, &nindexes);
	ScanKeyInit(&key[0], 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(valueid));
	ScanKeyInit(&key[1], 2, BTGreaterEqualStrategyNumber, F_INT4GE, Int32GetDatum(slice.next));
	ScanKeyInit(&key[2], 2, BTLessEqualStrategyNumber, F_INT4LE, Int32GetDatum(last));
	nkeys = slice.next == 0 && slice.to == attrsize ? 1 : 3;
	scan = zc_index_beginscan_keys(toastrel, indexes[valid], SnapshotAny, nkeys);
	index_rescan(scan, key, nkeys, NULL, 0);
	do
	{
		ItemPointer found;

		CHECK_FOR_INTERRUPTS();
		for (n = 0; n < BATCH; n++)
		{
			found = index_getnext_tid(scan, ForwardScanDirection);
			if (found == NULL)
				break;
			tid[n] = *found;
		}
		if (n > last - slice.next + 1)
			ereport(ERROR,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg_internal("unexpected chunk number %d for toast value %u in %s",
									 last + 1, valueid, RelationGetRelationName(toastrel))));
		take_chunks(&slice, tid, n);
	} while (n == BATCH);
	if (slice.next != last + 1)
		missing(&slice);
	index_endscan(scan);
	toast_close_indexes(indexes, nindexes, AccessShareLock);
}
