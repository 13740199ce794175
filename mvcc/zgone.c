/*
 * mvcc/zgone.c - whether the values out of line of an old version have been
 * given up.
 *
 * Called by zhistory.c without a buffer lock. Locks a leaf of the TOAST table's
 * index and a page of that table, shared, one after the other. Nothing is
 * written.
 *
 * A reader of old versions holds `oldest` (zu_hold), so chunks whose deleter
 * is not before it stay. Some may have gone before nevertheless: the
 * transaction that has saved a chunk may be before `oldest`, though the
 * deleter is not (SAVED-2), and a row that was moved by 102 may point to
 * chunks that 100 has deleted, which had begun first and changed the row
 * afterwards. In both cases what is written on the page, or in undo, says so,
 * and no snapshot needs the version: a snapshot that does not see its end does
 * not see the deletion of the chunk, which committed no earlier. What is not
 * found is no proof; then reading the value raises an error.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "access/toast_internals.h"
#include "mvcc/zgone.h"
#include "mvcc/zknown.h"
#include "mvcc/zsaved.h"
#include "mvcc/zwalk.h"
#include "storage/bufmgr.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * Returns whether the deletion of the chunk at tid is settled, or its bytes
 * were saved and discarded.
 */
static bool
chunk_is_gone(Relation toast, ItemPointer tid)
{
	char		row[BLCKSZ];
	Buffer		buf = zknown_read(toast, ItemPointerGetBlockNumber(tid));
	OffsetNumber off = ItemPointerGetOffsetNumber(tid);
	Page		page = BufferGetPage(buf);
	UndoPtr		list = InvalidUndoPtr;
	bool		gone = false;
	int			len;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (!PageIsNew(page) && off >= FirstOffsetNumber && off <= PageGetMaxOffsetNumber(page) &&
		zpage_item_ok(page, off))
	{
		ItemId		lp = PageGetItemId(page, off);
		bool		is_stub = ItemIdIsRedirected(lp);

		gone = ItemIdIsDead(lp);
		if (is_stub || ItemIdIsNormal(lp))
		{
			ZHeader		h = is_stub ? zpage_stub_header(lp) : zheader_get(zpage_row(page, lp));

			/* what is settled may be pruned before it is read */
			gone = !ZH_LIVE(h) && zslots_row_settled(page, h, zslots_oldest(page));
			if (is_stub && !gone)
				list = zpage_trailer(page)->saved;
		}
	}
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (list != InvalidUndoPtr)
		gone = zsaved_find(toast, BufferGetBlockNumber(buf), list, off, row, &len) ==
			ZSAVED_DISCARDED;
	ReleaseBuffer(buf);
	return gone;
}

/* Returns whether a chunk of the value is gone. */
static bool
value_is_gone(struct varlena *value)
{
	struct varatt_external pointer;
	Relation	toast;
	Relation   *indexes;
	IndexScanDesc scan;
	ItemPointer tid;
	ScanKeyData key;
	bool		gone = false;
	int			nindexes;
	int			valid;

	VARATT_EXTERNAL_GET_POINTER(pointer, value);
	toast = table_open(pointer.va_toastrelid, AccessShareLock);
	valid = toast_open_indexes(toast, AccessShareLock, &indexes, &nindexes);
	scan = zc_index_beginscan_keys(toast, indexes[valid], SnapshotAny, 1);
	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(pointer.va_valueid));
	scan->ignore_killed_tuples = false;
	index_rescan(scan, &key, 1, NULL, 0);
	while (!gone && (tid = index_getnext_tid(scan, ForwardScanDirection)) != NULL)
		gone = chunk_is_gone(toast, tid);
	index_endscan(scan);
	toast_close_indexes(indexes, nindexes, AccessShareLock);
	table_close(toast, AccessShareLock);
	return gone;
}

bool
zgone_values(Relation rel, const char *row, int len)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Datum	   *values;
	bool	   *isnull;
	char	   *space;
	bool		gone = false;

	if ((zheader_get(row) & ZH_EXTERNAL) == 0)
		return false;
	values = palloc(desc->natts * sizeof(Datum));
	isnull = palloc(desc->natts * sizeof(bool));
	space = ztuple_deform(row, len, desc, values, isnull, RelationGetRelationName(rel), NULL);
	for (int i = 0; i < desc->natts && !gone; i++)
		if (!isnull[i] && TupleDescAttr(desc, i)->attlen == -1 &&
			VARATT_IS_EXTERNAL_ONDISK(DatumGetPointer(values[i])))
			gone = value_is_gone((struct varlena *) DatumGetPointer(values[i]));
	if (space != NULL)
		pfree(space);
	pfree(values);
	pfree(isnull);
	return gone;
}
