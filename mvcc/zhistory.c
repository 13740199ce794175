/*
 * mvcc/zhistory.c - all versions of a row that some snapshot may still see.
 *
 * Owns a page copy and a walk of its own, so that SQL functions may run
 * between two steps. Called by index builds and index deletion (scan/), by
 * rewrites and VACUUM (vacuum/), by zbtree/ and by monitor/. Holds the page's
 * share lock only while it copies the page. Nothing is written.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "mvcc/zgone.h"
#include "mvcc/zhistory.h"
#include "mvcc/zwalk.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "utils/snapshot.h"

struct ZHistory
{
	Relation	rel;
	SnapshotData horizon;		/* sees what every snapshot sees */
	BlockNumber block;
	bool		at_end;			/* the version returned last was settled */
	bool		holds;			/* values out of line are read, too */
	ZAccept		accept;
	ZSlotView	slots;
	PGAlignedBlock page;
	ZWalk		walk;
};

/*
 * zhistory_create: See zhistory.h. Makes a snapshot of its own with xmin =
 * xmax = horizon: it sees exactly the committed transactions before the
 * horizon.
 */
ZHistory *
zhistory_create(Relation rel, TransactionId horizon)
{
	ZHistory   *history = palloc0(sizeof(ZHistory));

	Assert(TransactionIdIsNormal(horizon));
	history->rel = rel;
	history->at_end = true;
	history->horizon.snapshot_type = SNAPSHOT_MVCC;
	history->horizon.xmin = horizon;
	history->horizon.xmax = horizon;
	history->horizon.takenDuringRecovery = RecoveryInProgress();
	history->horizon.curcid = FirstCommandId;
	return history;
}

/* Returns whether the table has values out of line. */
static bool
has_chunks(Relation rel)
{
	Relation	toast;
	bool		result;

	if (!OidIsValid(rel->rd_rel->reltoastrelid))
		return false;
	toast = table_open(rel->rd_rel->reltoastrelid, AccessShareLock);
	result = zrel_nblocks(toast) > 0;
	table_close(toast, AccessShareLock);
	return result;
}

/*
 * zhistory_hold: See zhistory.h. No other session has a snapshot of a temporary
 * table. pg_upgrade builds indexes of empty TOAST tables before there is undo.
 */
TransactionId
zhistory_hold(Relation rel, TransactionId horizon, bool *holds)
{
	*holds = false;
	if (RelationUsesLocalBuffers(rel) || IsBinaryUpgrade)
		return horizon;
	if (rel->rd_rel->relkind == RELKIND_TOASTVALUE)
		return zxid_to_xid(zu_oldest());
	*holds = has_chunks(rel);
	return *holds ? zu_hold(horizon) : horizon;
}

void
zhistory_release(bool holds)
{
	if (holds)
		zu_hold_end();
}

void
zhistory_reads_values(ZHistory *history, bool holds)
{
	history->holds = holds;
}

void
zhistory_free(ZHistory *history)
{
	pfree(history);
}

/*
 * zhistory_load: See zhistory.h. Copies the slots together with the page, as
 * VIS-1 wants.
 */
Page
zhistory_load(ZHistory *history, Buffer buf)
{
	Page		page = history->page.data;

	Assert(zc_buffer_unlocked(buf));
	history->block = BufferGetBlockNumber(buf);
	history->at_end = true;
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	memcpy(page, BufferGetPage(buf), BLCKSZ);
	if (!PageIsNew(page) && zpage_is_valid(page))
		zslots_copy(history->rel, history->block, page, &history->slots);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (PageIsNew(page))
		return NULL;
	if (!zpage_is_valid(page))
		zvis_corrupt_page(history->rel, history->block, page, InvalidOffsetNumber);
	return page;
}

Relation
zhistory_table(const ZHistory *history)
{
	return history->rel;
}

Page
zhistory_page(const ZHistory *history)
{
	return (Page) history->page.data;
}

ZXid
zhistory_oldest(const ZHistory *history)
{
	return history->slots.oldest;
}

/*
 * Goes to the next version, over those whose authors aborted, and fills
 * *version. What a rewrite has written "as of X" counts as written by X, which
 * has committed.
 */
static ZHistoryResult
answer(ZHistory *history, ZHistoryVersion *version)
{
	ZWalk	   *walk = &history->walk;
	ZWalkResult found;

	version->settled = true;
	version->status = ZXID_ALL_VISIBLE;
	version->xid = InvalidZXid;
	version->author = InvalidUndoPtr;
	while ((found = zwalk_next(walk, &history->accept)) == ZWALK_AUTHOR &&
		   !zaccept_version(&history->accept, &walk->rec))
	{
		ZXidStatus	status = zwalk_status(walk);

		if (status == ZXID_ABORTED)
			continue;
		version->settled = false;
		version->status = status;
		version->xid = walk->rec.xid;
		version->author = walk->rec_ptr;
		if (TransactionIdIsValid(walk->rec.as_of))
		{
			version->status = ZXID_COMMITTED;
			version->xid = zxid_widen(walk->rec.as_of);
		}
		break;
	}
	if (found == ZWALK_RETRY)
		return ZHISTORY_RETRY;
	if (found == ZWALK_BEGINNING)
	{
		history->at_end = true;
		return ZHISTORY_END;
	}
	history->at_end = version->settled;
	version->live = ZH_LIVE(walk->header) && walk->has_bytes;
	version->row = walk->has_bytes ? walk->row : NULL;
	version->len = walk->len;
	return ZHISTORY_VERSION;
}

/* zhistory_first: See zhistory.h. Begins a walk on the copy of the page. */
ZHistoryResult
zhistory_first(ZHistory *history, OffsetNumber off, ZHistoryVersion *version)
{
	ZRow		row = {history->rel, history->block, off, history->page.data, &history->slots};

	history->at_end = true;
	if (!zwalk_begin(&history->walk, &row, ZCHAIN_COPIED))
		return ZHISTORY_END;
	zaccept_init(&history->accept, ZACCEPT_MVCC, &history->horizon, history->slots.oldest);
	history->accept.of_nobody = true;
	return answer(history, version);
}

const ZuRecord *
zhistory_record(const ZHistory *history)
{
	return &history->walk.rec;
}

ZHistoryResult
zhistory_next(ZHistory *history, ZHistoryVersion *version)
{
	ZHistoryResult result;

	if (history->at_end)
		return ZHISTORY_END;
	result = answer(history, version);
	if (history->holds && result == ZHISTORY_VERSION && version->live &&
		zgone_values(history->rel, version->row, version->len))
	{
		history->at_end = true;
		return ZHISTORY_END;
	}
	return result;
}
