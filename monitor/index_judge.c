/*
 * monitor/index_judge.c - finding out whether an entry of a zbtree index is
 * needed, and whether the versions of a row have their entries. Used by
 * zundo.check_index and by zundo.index_items.
 *
 * To be an independent check, this file uses none of the decisions of zbtree/,
 * scan/ and vacuum/: it reads the versions of a row through mvcc/zhistory.h and
 * compares keys with the index's comparison functions.
 *
 * The versions that must have an entry are:
 * - the newest one, if its author has added its entries. That is certain if the
 * snapshot 'latest', which is registered before the index is read, sees the
 * author, or if the author is an earlier command of our own transaction;
 * - an older one, if there is a snapshot that does not see the next version. It
 * is not enough that undo still has the version: a transaction without a
 * snapshot keeps undo as well, and a concurrent build does not wait for it, nor
 * enter versions for it. Which versions the snapshots of other sessions see is
 * known only approximately, from their xmin. So versions that were replaced
 * before the end of a concurrent build are left out: the build waited for all
 * snapshots that can see them.
 *
 * Locks: AccessShareLock on table and index; share locks of a leaf page, then
 * of a table page. No crash points.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/index.h"
#include "commands/defrem.h"
#include "common/compat_commands.h"
#include "common/compat_nbtree.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "monitor/index_judge.h"
#include "monitor/monitor.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/procarray.h"
#include "tuple/ztts.h"
#include "undo/undo.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "zbtree/zbtree.h"

/*
 * Returns the index and sets *table, both opened with AccessShareLock, the
 * table first. Raises an error if the relation is no valid zbtree index, is a
 * temporary one of another session, or belongs to another table than before
 * the table was locked.
 */
static Relation
open_index(Oid indexoid, Relation *table)
{
	Oid			tableoid = IndexGetRelation(indexoid, true);
	Relation	index;

	if (OidIsValid(tableoid))
		*table = relation_open(tableoid, AccessShareLock);
	index = zmon_open(indexoid);
	if (index->rd_rel->relkind != RELKIND_INDEX ||
		index->rd_rel->relam != get_index_am_oid("zbtree", false))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a zbtree index", RelationGetRelationName(index)),
				 errhint("Indexes of access method \"btree\" are checked by the extension "
						 "amcheck.")));
	if (!OidIsValid(tableoid) || index->rd_index->indrelid != tableoid)
		elog(ERROR, "table of index \"%s\" has changed", RelationGetRelationName(index));
	if (RELATION_IS_OTHER_TEMP(index))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary tables of other sessions")));
	if (!index->rd_index->indisvalid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("index \"%s\" is not valid", RelationGetRelationName(index)),
				 errhint("Use REINDEX INDEX, or DROP INDEX.")));
	return index;
}

/*
 * Returns the transaction that wrote the row of pg_index, if it is a later one
 * than that which created the index: so it is after a concurrent build, which
 * marks the index valid in its last transaction. So it is also after CLUSTER
 * ON, REPLICA IDENTITY USING INDEX and the like; nothing tells these apart.
 * Returns InvalidTransactionId otherwise. Rows of pg_attribute date the
 * creation: other ALTER INDEX commands, and the end of REINDEX CONCURRENTLY,
 * write the row of pg_class.
 */
static TransactionId
concurrent_build_end(Relation index)
{
	TransactionId valid = HeapTupleHeaderGetXmin(index->rd_indextuple->t_data);

	if (!TransactionIdIsNormal(valid))
		return InvalidTransactionId;
	for (int i = 1; i <= RelationGetNumberOfAttributes(index); i++)
	{
		HeapTuple	row = SearchSysCache2(ATTNUM, ObjectIdGetDatum(RelationGetRelid(index)),
										  Int16GetDatum(i));
		TransactionId created;

		if (!HeapTupleIsValid(row))
			elog(ERROR, "cache lookup failed for attribute %d of relation %u", i,
				 RelationGetRelid(index));
		created = HeapTupleHeaderGetXmin(row->t_data);
		ReleaseSysCache(row);
		if (TransactionIdPrecedes(created, valid))
			return valid;
	}
	return InvalidTransactionId;
}

/*
 * Makes the owner of the table the current user. Functions of users are called
 * as soon as the expressions are read: the server evaluates calls with constant
 * arguments then. They do not find objects by the search path of a caller
 * without the owner's rights: that path could lead to functions of the caller,
 * which would run as the owner.
 */
static void
become_owner(ZIndexJudge *judge)
{
	Oid			owner = judge->table->rd_rel->relowner;

	Assert(CheckRelationLockedByMe(judge->table, AccessShareLock, true));
	GetUserIdAndSecContext(&judge->user, &judge->security);
	SetUserIdAndSecContext(owner, judge->security | SECURITY_RESTRICTED_OPERATION);
	judge->settings = NewGUCNestLevel();
	if (ZC_HAS_SAFE_PATH || !has_privs_of_role(judge->user, owner))
		zc_restrict_search_path();
}

/* zjudge_open: See index_judge.h. */
ZIndexJudge *
zjudge_open(Oid indexoid)
{
	ZIndexJudge *judge = palloc0(sizeof(ZIndexJudge));

	judge->context = CurrentMemoryContext;
	judge->index = open_index(indexoid, &judge->table);
	Assert(ztts_is_zheap(judge->table));
	become_owner(judge);
	zu_attach_database();
	judge->info = BuildIndexInfo(judge->index);
	judge->estate = CreateExecutorState();
	judge->econtext = GetPerTupleExprContext(judge->estate);
	judge->slot = table_slot_create(judge->table, NULL);
	judge->econtext->ecxt_scantuple = judge->slot;
	judge->predicate = ExecPrepareQual(judge->info->ii_Predicate, judge->estate);
	judge->latest = RegisterSnapshot(GetLatestSnapshot());
	if (judge->index->rd_index->indcheckxmin)
		judge->valid_from = HeapTupleHeaderGetXmin(judge->index->rd_indextuple->t_data);
	judge->built_until = concurrent_build_end(judge->index);
	judge->loaded = InvalidBlockNumber;
	judge->held = zhistory_hold(judge->table,
								GetOldestNonRemovableTransactionId(judge->table), &judge->holds);
	return judge;
}

/* zjudge_close: See index_judge.h. */
void
zjudge_close(ZIndexJudge *judge)
{
	zhistory_release(judge->holds);
	UnregisterSnapshot(judge->latest);
	ExecDropSingleTupleTableSlot(judge->slot);
	FreeExecutorState(judge->estate);
	if (judge->history != NULL)
		zhistory_free(judge->history);
	AtEOXact_GUC(false, judge->settings);
	SetUserIdAndSecContext(judge->user, judge->security);
	relation_close(judge->index, AccessShareLock);
	relation_close(judge->table, AccessShareLock);
}

/*
 * zjudge_load: See index_judge.h. The horizon is never before the transaction
 * from which on snapshots use the index (indcheckxmin).
 */
Page
zjudge_load(ZIndexJudge *judge, BlockNumber block)
{
	TransactionId horizon = judge->young ? GetLatestSnapshot()->xmin
	: GetOldestNonRemovableTransactionId(judge->table);
	Buffer		buf = ReadBuffer(judge->table, block);

	if (TransactionIdIsNormal(judge->valid_from) &&
		TransactionIdPrecedes(horizon, judge->valid_from))
		horizon = judge->valid_from;
	if (judge->holds && TransactionIdPrecedes(horizon, judge->held))
		horizon = judge->held;
	if (judge->history == NULL || judge->horizon != horizon)
	{
		MemoryContext old = MemoryContextSwitchTo(judge->context);

		if (judge->history != NULL)
			zhistory_free(judge->history);
		judge->history = zhistory_create(judge->table, horizon);
		zhistory_reads_values(judge->history, judge->holds);
		judge->horizon = horizon;
		MemoryContextSwitchTo(old);
	}
	judge->loaded = InvalidBlockNumber;
	judge->page = zhistory_load(judge->history, buf);
	judge->loaded = block;
	ReleaseBuffer(buf);
	return judge->page;
}

/* Copies a version of the row at off of the loaded block into the slot. */
static void
take_version(ZIndexJudge *judge, const ZHistoryVersion *version, OffsetNumber off)
{
	ItemPointerData tid;

	ItemPointerSet(&tid, judge->loaded, off);
	ztts_store_copy(judge->slot, version->row, version->len, &tid,
					RelationGetRelid(judge->table));
	ztts_set_author(judge->slot, version->xid, FirstCommandId, InvalidUndoPtr);
}

/*
 * Returns whether the author of this version is known to have added its index
 * entries. It may still be adding them if it is in progress.
 */
static bool
author_has_inserted(ZIndexJudge *judge, const ZHistoryVersion *version)
{
	if (version->settled)
		return true;
	if (version->status == ZXID_OWN)
		return zhistory_record(judge->history)->cid < GetCurrentCommandId(false);
	return version->status == ZXID_COMMITTED &&
		!XidInMVCCSnapshot(zxid_to_xid(version->xid), judge->latest);
}

/*
 * Returns whether a snapshot exists that does not see the changes of zxid, that
 * may use the index (indcheckxmin), and for which a concurrent build of the
 * index has not waited. For snapshots of other sessions the result is true as
 * well if only a transaction older than zxid was in progress when the snapshot
 * was taken.
 */
static bool
snapshot_before(ZIndexJudge *judge, ZXid zxid)
{
	TransactionId xid = zxid_to_xid(zxid);
	VirtualTransactionId *sessions;
	int			n;

	if (TransactionIdIsValid(judge->built_until) && TransactionIdPrecedes(xid, judge->built_until))
		return false;
	/* only snapshots use the index that see the transaction that built it */
	if (TransactionIdIsValid(judge->valid_from) &&
		TransactionIdPrecedesOrEquals(xid, judge->valid_from))
		return false;
	if (TransactionIdIsCurrentTransactionId(xid) || XidInMVCCSnapshot(xid, judge->latest) ||
		XidInMVCCSnapshot(xid, GetTransactionSnapshot()))
		return true;
	sessions = GetCurrentVirtualXIDs(xid, true, false, 0, &n);
	pfree(sessions);
	return n > 0;
}

/*
 * Returns whether the version in the slot has its entry in the index, or needs
 * none because of the index's predicate.
 */
static bool
has_entry(ZIndexJudge *judge)
{
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	IndexTuple	entry;
	Buffer		buf;
	OffsetNumber off;

	ResetExprContext(judge->econtext);
	if (judge->predicate != NULL && !ExecQual(judge->predicate, judge->econtext))
		return true;
	FormIndexDatum(judge->info, judge->slot, judge->estate, values, isnull);
	entry = index_form_tuple(RelationGetDescr(judge->index), values, isnull);
	entry->t_tid = judge->slot->tts_tid;
	buf = zjudge_find(judge, entry, &off);
	pfree(entry);
	if (!BufferIsValid(buf))
		return false;
	_bt_relbuf(judge->index, buf);
	return true;
}

/*
 * zjudge_row: See index_judge.h. Returns the first version, from the newest one
 * on, that lacks its entry. If undo that the page's copy needs has been
 * discarded meanwhile, loads the page again.
 */
ZMissing
zjudge_row(ZIndexJudge *judge, OffsetNumber off)
{
	ZMissing	missing = {false, true};
	ZHistoryVersion version;
	ZHistoryResult result = zhistory_first(judge->history, off, &version);
	ZXid		next = InvalidZXid; /* author of the next version */

	while (result != ZHISTORY_END)
	{
		CHECK_FOR_INTERRUPTS();
		if (result == ZHISTORY_RETRY)
		{
			if (zjudge_load(judge, judge->loaded) == NULL)
				break;
			missing.newest = true;
			next = InvalidZXid;
			result = zhistory_first(judge->history, off, &version);
			continue;
		}
		if (version.live && author_has_inserted(judge, &version))
		{
			take_version(judge, &version, off);
			if (!has_entry(judge) && (missing.newest || snapshot_before(judge, next)))
			{
				missing.found = true;
				break;
			}
		}
		next = version.xid;
		missing.newest = false;
		result = zhistory_next(judge->history, &version);
	}
	return missing;
}

/*
 * Returns whether a version of the row at off has the entry's key. If undo that
 * the page's copy needs has been discarded meanwhile, loads the page again, so
 * judge->page may have changed on return. No new snapshot sees a version whose
 * author may still be about to take the mark off its entry, nor one older than
 * a version that 'latest' sees: an id that is in progress in another database
 * keeps the xmin of new snapshots below its author, but not the horizon by
 * which a mark may have been set (MARK-1d).
 */
static bool
some_version_has(ZIndexJudge *judge, IndexTuple entry, OffsetNumber off)
{
	ZHistoryVersion version;
	ZHistoryResult result = zhistory_first(judge->history, off, &version);
	bool		seen;

	while (result != ZHISTORY_END)
	{
		if (result == ZHISTORY_RETRY)
		{
			if (zjudge_load(judge, judge->loaded) == NULL)
				return false;
			result = zhistory_first(judge->history, off, &version);
			continue;
		}
		seen = judge->young && author_has_inserted(judge, &version);
		if (version.live && (!judge->young || seen))
		{
			take_version(judge, &version, off);
			if (zbtree_counts(judge->index, entry, judge->slot))
				return true;
		}
		if (seen && version.status == ZXID_COMMITTED)
			return false;
		result = zhistory_next(judge->history, &version);
	}
	return false;
}

/*
 * Returns whether the row at off is live and lacks ZH_STALE_KEYS, so that it
 * must not have stale entries. A row whose insertion was aborted does not
 * count.
 */
static bool
row_must_tell(ZIndexJudge *judge, OffsetNumber off)
{
	ItemId		lp;
	ZHeader		header;
	ZHistoryVersion version;

	/* some_version_has may have loaded the page again */
	if (judge->page == NULL || off > PageGetMaxOffsetNumber(judge->page))
		return false;
	lp = PageGetItemId(judge->page, off);
	if (!ItemIdIsNormal(lp))
		return false;
	header = zheader_get(zpage_row(judge->page, lp));
	return ZH_LIVE(header) && !(header & ZH_STALE_KEYS) &&
		zhistory_first(judge->history, off, &version) == ZHISTORY_VERSION && version.live;
}

/*
 * Returns whether the row at off lacks ZH_STALE_KEYS and its newest version has
 * the entry's key, but not all of its bytes. Does not compare values that are
 * stored out of line, because the entry's page may be locked.
 */
static bool
newest_differs(ZIndexJudge *judge, IndexTuple entry, OffsetNumber off)
{
	TupleDesc	desc = RelationGetDescr(judge->index);
	ZHistoryVersion version;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];

	if (!row_must_tell(judge, off) ||
		zhistory_first(judge->history, off, &version) != ZHISTORY_VERSION)
		return false;
	take_version(judge, &version, off);
	if (!zbtree_counts(judge->index, entry, judge->slot))
		return false;
	for (int i = 0; i < desc->natts; i++)
	{
		AttrNumber	attno = judge->index->rd_index->indkey.values[i];

		if (attno == InvalidAttrNumber)
			continue;
		values[i] = slot_getattr(judge->slot, attno, &isnull[i]);
		if (!isnull[i] && zc_attr(desc, i)->attlen == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
			values[i] = index_getattr(entry, i + 1, desc, &isnull[i]);
	}
	return !zbtree_has_content(judge->index, entry, values, isnull);
}

/* zjudge_entry: See index_judge.h. */
ZEntryState
zjudge_entry(ZIndexJudge *judge, IndexTuple entry)
{
	BlockNumber block = ItemPointerGetBlockNumberNoCheck(&entry->t_tid);
	OffsetNumber off = ItemPointerGetOffsetNumberNoCheck(&entry->t_tid);
	ItemId		lp;

	if (block != judge->loaded)
	{
		if (block >= zrel_nblocks(judge->table))
			return ZENTRY_NO_ROW;
		(void) zjudge_load(judge, block);
	}
	if (judge->page == NULL || off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(judge->page))
		return ZENTRY_NO_ROW;
	lp = PageGetItemId(judge->page, off);
	if (!ItemIdIsUsed(lp))
		return ZENTRY_NO_ROW;
	if (ItemIdIsDead(lp))
		return ZENTRY_STALE;
	if (some_version_has(judge, entry, off))
		return newest_differs(judge, entry, off) ? ZENTRY_DIFFERENT : ZENTRY_NEEDED;
	return row_must_tell(judge, off) ? ZENTRY_UNTOLD : ZENTRY_STALE;
}

/*
 * zjudge_find: See index_judge.h. Raises ERRCODE_INDEX_CORRUPTED if it meets a
 * posting list.
 */
Buffer
zjudge_find(ZIndexJudge *judge, IndexTuple entry, OffsetNumber *off)
{
	BTScanInsert key = _bt_mkscankey(judge->index, entry);
	Buffer		buf;
	Page		page;
	OffsetNumber low,
				high;

	zc_bt_search(judge->index, judge->table, key, &buf, BT_READ);
	if (!BufferIsValid(buf))
	{
		pfree(key);
		return InvalidBuffer;
	}
	page = BufferGetPage(buf);
	Assert(P_ISLEAF(BTPageGetOpaque(page)));
	low = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	high = PageGetMaxOffsetNumber(page) + 1;
	while (low < high)
	{
		OffsetNumber middle = low + (high - low) / 2;
		int32		difference;

		/* with a zbtree key, _bt_compare must not meet a posting list */
		if (BTreeTupleIsPosting((IndexTuple) PageGetItem(page, PageGetItemId(page, middle))))
			ereport(ERROR,
					(errcode(ERRCODE_INDEX_CORRUPTED),
					 errmsg("an entry of index \"%s\" holds several TIDs",
							RelationGetRelationName(judge->index)),
					 errdetail("It is item %u of block %u.", middle, BufferGetBlockNumber(buf))));
		difference = _bt_compare(judge->index, key, page, middle);
		if (difference == 0)
		{
			*off = middle;
			pfree(key);
			return buf;
		}
		if (difference > 0)
			low = middle + 1;
		else
			high = middle;
	}
	_bt_relbuf(judge->index, buf);
	pfree(key);
	return InvalidBuffer;
}
