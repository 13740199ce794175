/*
 * scan/zbuild_serial.c - which index builds may have parallel workers.
 *
 * Called by the planner hook (hooks.c) when the server plans the workers of a
 * build.
 *
 *	BUILD-7	parallel workers build an index that is neither btree nor zbtree
 *			only if every snapshot sees the same version of each row. Only
 *			nbtree's code passes the workers' ii_BrokenHotChain on to the
 *			leader: without it BUILD-3, and BUILD-5b for versions that do not
 *			fit the expressions, would be silently broken.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "miscadmin.h"
#include "scan/zscan_internal.h"
#include "utils/rel.h"
#include "utils/syscache.h"

/*
 * Returns whether an index that our transaction is building, or has created, is
 * neither btree nor zbtree. The build of a concurrent command, which follows in
 * another transaction, does not count: its snapshot sees one version of a row.
 */
static bool
builds_other_index(Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	bool		found = false;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		Oid			oid = lfirst_oid(cell);
		bool		ours = ReindexIsProcessingIndex(oid);
		HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(oid));

		if (!HeapTupleIsValid(tuple))
			continue;
		ours = ours ||
			TransactionIdIsCurrentTransactionId(HeapTupleHeaderGetXmin(tuple->t_data));
		ReleaseSysCache(tuple);
		if (ours)
		{
			Relation	index = index_open(oid, AccessShareLock);

			found = found || !zbuild_is_btree(index);
			index_close(index, AccessShareLock);
		}
	}
	list_free(indexes);
	return found;
}

/*
 * Returns whether every transaction that has changed rows of the page is before
 * `oldest`. The page is locked.
 */
static bool
page_is_settled(Relation rel, BlockNumber block, Page page)
{
	ZSlotView	slots;

	if (PageIsNew(page))
		return true;
	if (!zpage_is_valid(page))
		return false;
	zslots_copy(rel, block, page, &slots);
	for (int i = 1; i <= slots.n; i++)
		if (zslot_age(&slots.s[i], slots.oldest) > ZAGE_LOCKS)
			return false;
	return true;
}

/*
 * Returns whether every snapshot sees the same version of each row. Reads pages
 * that are not all-visible up to the first one that does not show it.
 */
static bool
table_is_settled(Relation rel)
{
	BufferAccessStrategy strategy = GetAccessStrategy(BAS_BULKREAD);
	BlockNumber nblocks = zrel_nblocks(rel);
	Buffer		map = InvalidBuffer;
	bool		settled = true;

	zu_attach_database();
	for (BlockNumber block = 0; settled && block < nblocks; block++)
	{
		Buffer		buf;

		CHECK_FOR_INTERRUPTS();
		if (visibilitymap_get_status(rel, block, &map) & VISIBILITYMAP_ALL_VISIBLE)
			continue;
		buf = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, strategy);
		LockBuffer(buf, BUFFER_LOCK_SHARE);
		settled = page_is_settled(rel, block, BufferGetPage(buf));
		UnlockReleaseBuffer(buf);
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	FreeAccessStrategy(strategy);
	return settled;
}

/*
 * zheap_build_is_serial: See zscan.h. The caller's lock excludes changes by
 * other transactions, so what is settled stays so.
 */
bool
zheap_build_is_serial(Oid table)
{
	Relation	rel = table_open(table, NoLock);
	bool		serial = ztts_is_zheap(rel) &&
	builds_other_index(rel) && !table_is_settled(rel);

	table_close(rel, NoLock);
	return serial;
}
