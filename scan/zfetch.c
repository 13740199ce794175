/*
 * scan/zfetch.c - rows by TID: index fetches, row versions.
 *
 * Called through zam.c by the executor, by triggers and by index access
 * methods, sometimes while these hold a lock on an index page (lock order:
 * index page before table page). An index fetch keeps its last block pinned;
 * nothing else is held between calls. Only bits of the visibility map are
 * written (zvismap_after_read). A row is reported as dead to all snapshots if
 * its deleter is before `oldest` (UNDO-19b) or fulfils SCAN-6: even a crash
 * cannot make such a row visible again, so that index access methods may mark
 * its entries without WAL.
 *
 *	SCAN-6	A deleted or moved row whose slot's owner is not before `oldest` is
 *		dead to all snapshots if the owner has committed, every snapshot sees
 *		it (GlobalVisTestIsRemovableXid), and its commit record is flushed.
 *		(a) The deleter may be an earlier owner of the slot: it had ended when
 *			the present owner took the slot (DML-3), so every snapshot that
 *			sees the owner sees the deleter (VIS-3), and its commit record
 *			comes before the owner's.
 *		(b) Removal of such an entry adds the deleter to the conflict horizon
 *			(scan/README.md); only the split of a hash bucket drops marked
 *			entries without one, and a standby's old snapshots may miss their
 *			rows, as on heap.
 *		(c) Not for temporary tables, whose horizon ignores snapshots of the
 *			own session; not for TOAST tables, since that horizon does not know
 *			zu_hold; not on standbys, which set no marks.
 *		Example: a job queue, which would otherwise read the entries of all
 *		jobs taken since the undo worker's last pass again and again.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/zcount.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "mvcc/zany.h"
#include "mvcc/zhandle.h"
#include "mvcc/zhistory.h"
#include "mvcc/zknown.h"
#include "mvcc/zlevel.h"
#include "mvcc/zvismap.h"
#include "pgstat.h"
#include "scan/zscan_internal.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "zbtree/passed.h"
#include "zbtree/zbtree.h"

typedef struct ZIndexFetch
{
	ZExpectingFetch expect;		/* first: it is what callers see */
	Buffer		buf;			/* last block, pinned; or InvalidBuffer */
	ZUnseen		unseen;			/* rows of pages that were looked at */
	ZDoubt		doubt;			/* versions that are due (SCAN-7) */
} ZIndexFetch;

/* ---- fetching one version ---- */

/* What fetch_version returns: a sum of these. */
#define FETCH_FOUND		1		/* slot shows the version */
#define FETCH_WALKED	2		/* the page alone did not tell which it is */
#define FETCH_MATCHES	4		/* it has the entry's columns (ZBTREE-23) */
#define FETCH_VIEWED	8		/* it comes from the fetch's page view */

/*
 * Returns whether the version must have the columns of each entry with its TID
 * that a scan has read since this position in WAL (ZBTREE-23).
 */
static inline bool
matches_entry(const ZVersion *version, XLogRecPtr since)
{
	return since != InvalidXLogRecPtr && !version->walked && version->lsn <= since &&
		(zheader_get(version->row) & ZH_STALE_KEYS) == 0;
}

/*
 * Fetches the version of the row at tid that snapshot wants and shows it in
 * slot. by_index: the index fetch, or NULL if the caller has named the row. On
 * entry and on return buf, the row's block, is pinned and not locked. Returns
 * FETCH_ flags. If there is no version, slot is unchanged. Raises
 * ERRCODE_FEATURE_NOT_SUPPORTED for a historic snapshot and for a search of
 * deleted rows, and the errors of zvis_fetch and zany_fetch.
 */
static int
fetch_version(Relation rel, Buffer buf, ItemPointer tid, Snapshot snapshot,
			  const ZExpectingFetch *by_index, TupleTableSlot *slot, bool *all_dead)
{
	ZVersion	version;
	OffsetNumber off = ItemPointerGetOffsetNumber(tid);
	int			flags = 0;

	Assert(zc_buffer_unlocked(buf));
	zscan_refuse_historic(snapshot);
	if (by_index != NULL)
		zscan_refuse_deleted_search(snapshot);
	if (all_dead != NULL)
		*all_dead = false;
	zcount_reads(rel, by_index != NULL);
	if (snapshot->snapshot_type == SNAPSHOT_ANY)
		zany_fetch(rel, buf, off, slot, by_index == NULL, &version);
	else
	{
		if (zssi_needed(rel, snapshot))
			zssi_before_read(rel, buf, off, snapshot);
		zvis_fetch(rel, buf, off, snapshot, &version, all_dead);
		flags = version.walked ? FETCH_WALKED : 0;
		if (by_index != NULL && version.found && matches_entry(&version, by_index->since))
			flags |= FETCH_MATCHES;
	}
	if (!version.found)
		return flags;
	if (by_index != NULL && snapshot->snapshot_type == SNAPSHOT_DIRTY)
		zlevel_note_conflict(rel, tid, &version);
	zversion_show(rel, &version, ItemPointerIsValid(&version.handle) ? &version.handle : tid, slot);
	return FETCH_FOUND | flags;
}

/* zheap_index_fetch_begin: See zscan.h. */
IndexFetchTableData *
zheap_index_fetch_begin(Relation rel ZC_FETCH_FLAGS_PARAM)
{
	ZIndexFetch *fetch = palloc0(sizeof(ZIndexFetch));

	zu_attach_for_table();
	fetch->expect.base.rel = rel;
	zc_fetch_set_flags(&fetch->expect.base);
	fetch->buf = InvalidBuffer;
	return &fetch->expect.base;
}

/* zheap_index_fetch_reset: See zscan.h. */
void
zheap_index_fetch_reset(IndexFetchTableData *scan)
{
	ZIndexFetch *fetch = (ZIndexFetch *) scan;

	fetch->expect.entry = NULL;
	fetch->expect.missed = false;
	fetch->expect.noted.n = 0;
	zpassed_forget(&fetch->expect);
	zunseen_forget(&fetch->unseen);
	if (BufferIsValid(fetch->buf))
		ReleaseBuffer(fetch->buf);
	fetch->buf = InvalidBuffer;
}

/* zheap_index_fetch_end: See zscan.h. */
void
zheap_index_fetch_end(IndexFetchTableData *scan)
{
	zheap_index_fetch_reset(scan);
	zbtree_fetch_end((ZExpectingFetch *) scan);
	zdoubt_end(&((ZIndexFetch *) scan)->doubt);
	pfree(scan);
}

/*
 * Called after a fetch with a Dirty snapshot has found a row that another
 * transaction is changing, the one in snapshot->xmax. Fetches into slot the
 * next older version that may become the newest if that transaction aborts, and
 * that has the key of the zbtree entry, if there is one (SCAN-7). Returns
 * whether there is such a version, or may be one after many: then the caller
 * waits for the transaction and searches again, as it does on heap. Otherwise
 * clears snapshot->xmax.
 */
static bool
fetch_beside_change(ZIndexFetch *fetch, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot)
{
	ZExpectingFetch *expect = &fetch->expect;
	int			passed = 0;

	Assert(snapshot->snapshot_type == SNAPSHOT_DIRTY);
	Assert(BufferGetBlockNumber(fetch->buf) == ItemPointerGetBlockNumber(tid));
	while (zdoubt_next(&fetch->doubt, expect->base.rel, fetch->buf,
					   ItemPointerGetOffsetNumber(tid), fetch, slot))
		if (expect->entry == NULL || zbtree_counts(expect->index, expect->entry, slot) ||
			++passed == MAX_VERSIONS_JUDGED)
			return true;
	snapshot->xmax = InvalidTransactionId;
	return false;
}

/*
 * Returns whether what a fetch has found may be remembered. A serializable
 * transaction tells the server of each fetch, and remembers nothing.
 */
static inline bool
may_remember(Relation rel, Snapshot snapshot)
{
	return IsMVCCSnapshot(snapshot) && !zssi_needed(rel, snapshot);
}

/* Notes that the fetch's row was found by undo. */
static inline void
note_walked(ZIndexFetch *fetch, Snapshot snapshot)
{
	Relation	rel = fetch->expect.base.rel;

	if (may_remember(rel, snapshot) && !RelationUsesLocalBuffers(rel))
		zunseen_walked(&fetch->unseen, fetch, rel, fetch->buf, snapshot);
}

/*
 * Remembers a row that was fetched in vain, with these FETCH_ flags; slot has
 * the version that the snapshot sees, or is NULL. dead: the row is dead to all
 * snapshots.
 */
static inline void
note_passed(ZIndexFetch *fetch, ItemPointer tid, Snapshot snapshot, int fetched,
			TupleTableSlot *slot, bool dead)
{
	Relation	rel = fetch->expect.base.rel;
	bool		walked = (fetched & FETCH_WALKED) != 0;

	if (dead || !may_remember(rel, snapshot))
		return;
	if (!(fetched & FETCH_VIEWED) && (walked || slot == NULL) && !RelationUsesLocalBuffers(rel))
		zunseen_note(&fetch->unseen, fetch, rel, fetch->buf, snapshot, walked);
	if (walked && fetch->expect.entry != NULL)
		zpassed_note(&fetch->expect, tid, slot);
}

/*
 * Returns whether nbtree may mark an entry, whose leaf page it has locked and
 * which does not belong to the row's newest version, the one in slot (MARK-1).
 * The version's author did not come after the last owner of its page slot.
 */
static bool
may_be_marked(const ZExpectingFetch *fetch, TupleTableSlot *slot)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	Assert(TTS_IS_ZHEAP(slot));
	return zmarks_settled(fetch->base.rel, z->author_known ? z->xmin : z->chain_xid,
						  fetch->inserting);
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether the snapshot sees the version of the row at tid with these
 * len bytes, but for the header, in which locks may differ; none if row is
 * NULL. What is read is not counted.
 */
static bool
sees_version(Relation rel, ItemPointer tid, Snapshot snapshot, const char *row, int len)
{
	BufferUsage before = pgBufferUsage;
	uint64		counted[ZCOUNT_ALL];
	Buffer		buf = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	ZVersion	version;

	memcpy(counted, zcount_mine, sizeof(counted));
	zvis_fetch(rel, buf, ItemPointerGetOffsetNumber(tid), snapshot, &version, NULL);
	ReleaseBuffer(buf);
	pgBufferUsage = before;
	memcpy(zcount_mine, counted, sizeof(counted));
	if (!version.found || row == NULL)
		return !version.found && row == NULL;
	return version.len == len && memcmp(version.row + ZTUPLE_HEADER_SIZE, row + ZTUPLE_HEADER_SIZE,
										len - ZTUPLE_HEADER_SIZE) == 0;
}
#endif

/*
 * Shows in slot the version of the row at tid that is the i-th of the fetch's
 * page view. Returns FETCH_ flags.
 */
static int
show_viewed(ZIndexFetch *fetch, ItemPointer tid, int i, TupleTableSlot *slot)
{
	Relation	rel = fetch->expect.base.rel;
	const ZPageView *view = fetch->unseen.view;
	ZXid		chain_xid;
	UndoPtr		chain = zpageview_chain(view, i, &chain_xid);

	zcount_reads(rel, true);
	ztts_store_copy(slot, view->row[i], view->len[i], tid, RelationGetRelid(rel));
	ztts_set_chain(slot, chain_xid, chain, rel->rd_locator.relNumber);
	ztts_set_xmax(slot, InvalidZXid);
	fetch->unseen.last = fetch->unseen.block;
	fetch->unseen.streak++;
	return FETCH_FOUND | FETCH_VIEWED | ((view->slotno[i] & ZVIEW_REWOUND) ? FETCH_WALKED : 0);
}

/*
 * zheap_index_fetch_tuple: See zscan.h. There is only one such version, except
 * for a Dirty snapshot and a row that another transaction is changing: then
 * *call_again is set, and each further call fetches an older version (SCAN-7),
 * until there is none. A row whose version has another key than the zbtree
 * entry is not reported as dead. If an old snapshot comes to many such
 * entries, their rows are remembered, so as not to read their undo for each
 * entry (zbtree/passed.c).
 */
bool
zheap_index_fetch_tuple(IndexFetchTableData *scan, ItemPointer tid, Snapshot snapshot,
						TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	ZIndexFetch *fetch = (ZIndexFetch *) scan;
	Buffer		before = fetch->buf;
	int			fetched;
	bool		found;
	bool		unseen;
	int			viewed;

	if (unlikely(*call_again))
	{
		if (all_dead != NULL)
			*all_dead = false;
		fetch->expect.missed = false;
		*call_again = fetch_beside_change(fetch, tid, snapshot, slot);
		return *call_again;
	}
	if (unlikely(fetch->expect.inserting != NULL) && snapshot->snapshot_type == SNAPSHOT_DIRTY &&
		ItemPointerEquals(tid, &fetch->expect.entry->t_tid))
	{
		*all_dead = false;
		return false;			/* no row is its own duplicate (ZBTREE-19) */
	}
	unseen = zunseen_has(&fetch->unseen, tid);
	if (unseen ||
		(fetch->expect.passed != NULL && fetch->expect.entry != NULL &&
		 zpassed_by(&fetch->expect, tid)))
	{
		Assert(IsMVCCSnapshot(snapshot));
		Assert(!unseen || sees_version(scan->rel, tid, snapshot, NULL, 0));
		if (all_dead != NULL)
			*all_dead = false;
		fetch->expect.missed = all_dead != NULL;
		zcount(ZCOUNT_STALE, !unseen);
		return false;
	}
	viewed = zunseen_find(&fetch->unseen, tid);
	if (viewed >= 0)
	{
		Assert(IsMVCCSnapshot(snapshot));
		Assert(sees_version(scan->rel, tid, snapshot, fetch->unseen.view->row[viewed],
							fetch->unseen.view->len[viewed]));
		if (all_dead != NULL)
			*all_dead = false;
		fetched = show_viewed(fetch, tid, viewed, slot);
	}
	else
	{
		fetch->buf = ReleaseAndReadBuffer(fetch->buf, scan->rel, ItemPointerGetBlockNumber(tid));
		if (fetch->buf != before && zscan_reads_only(scan->rel, snapshot, zc_fetch_flags(scan)))
			zvismap_after_read(scan->rel, fetch->buf, NULL);
		fetched = fetch_version(scan->rel, fetch->buf, tid, snapshot, &fetch->expect, slot,
								all_dead);
		if (fetched & FETCH_WALKED)
			note_walked(fetch, snapshot);
	}
	found = (fetched & FETCH_FOUND) != 0;
	Assert(!found || all_dead == NULL || !*all_dead);
	Assert(fetch->expect.inserting == NULL || snapshot->snapshot_type == SNAPSHOT_DIRTY ||
		   snapshot->snapshot_type == SNAPSHOT_SELF);
	*call_again = found && snapshot->snapshot_type == SNAPSHOT_DIRTY &&
		TransactionIdIsValid(snapshot->xmax);
	if (unlikely(*call_again))
		zdoubt_begin(&fetch->doubt, slot);
	if (!found)
		note_passed(fetch, tid, snapshot, fetched, NULL, all_dead != NULL && *all_dead);
	if (fetch->expect.entry == NULL)
		return found;
	if (fetched & FETCH_MATCHES)
	{
		Assert(zbtree_counts(fetch->expect.index, fetch->expect.entry, slot));
		fetch->expect.missed = false;
		return true;
	}
	if (found && !zbtree_counts(fetch->expect.index, fetch->expect.entry, slot))
	{
		zcount(ZCOUNT_STALE, 1);
		note_passed(fetch, tid, snapshot, fetched, slot, false);
		if (fetch->expect.inserting != NULL && !*call_again && all_dead != NULL)
			*all_dead = may_be_marked(&fetch->expect, slot);
		found = *call_again = *call_again && fetch_beside_change(fetch, tid, snapshot, slot);
	}
	fetch->expect.missed = !found && all_dead != NULL && !*all_dead;	/* MARK-1 */
	if (found && fetch->expect.returning != NULL)
		zbtree_return_version(&fetch->expect, slot);
	return found;
}

/*
 * Shows the old version of a trigger's event in slot, under the TID of its
 * row. Returns false if the handle names nothing.
 */
static bool
fetch_by_handle(Relation rel, ItemPointer tid, TupleTableSlot *slot)
{
	ItemPointerData real;
	ZVersion	version;

	Assert(zhandle_is(tid));
	zcount_reads(rel, false);
	zany_fetch_by_handle(rel, tid, &version, &real);
	if (!version.found)
		return false;
	zversion_show(rel, &version, &real, slot);
	return true;
}

/*
 * Fetches the row at the TID that a lock has shown (GUARD-4 in guard/), if the
 * snapshot sees its newest version: as on heap, where the snapshot of the
 * statement that has locked it sees nothing at the new TID, and a later one
 * finds the row there.
 */
static bool
fetch_newest(Relation rel, Buffer buf, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot)
{
	ZVersion	version;

	Assert(!ztid_is_newer(tid));
	zscan_refuse_historic(snapshot);
	zcount_reads(rel, false);
	if (zssi_needed(rel, snapshot))
		zssi_before_read(rel, buf, ItemPointerGetOffsetNumber(tid), snapshot);
	zvis_fetch(rel, buf, ItemPointerGetOffsetNumber(tid), snapshot, &version, NULL);
	if (!version.found || version.newest_xid != InvalidZXid)
		return false;
	zversion_show(rel, &version, tid, slot);
	return true;
}

/*
 * zheap_tuple_fetch_row_version: See zscan.h. While the server fires a
 * trigger's event, it uses a handle as the TID of the old row; the new row may
 * have been kept when the old one was fetched (HANDLE-3 in mvcc/).
 */
bool
zheap_tuple_fetch_row_version(Relation rel, ItemPointer tid, Snapshot snapshot,
							  TupleTableSlot *slot)
{
	const ZVersion *kept;
	ItemPointerData real = ztid_real(tid);
	Buffer		buf;
	bool		found;

	zu_attach_for_table();
	kept = zany_fetch_kept(rel, tid);
	if (snapshot->snapshot_type == SNAPSHOT_ANY && (kept != NULL || zhandle_is(tid)))
	{
		found = true;
		if (kept != NULL)
			zversion_show(rel, kept, tid, slot);
		else
			found = fetch_by_handle(rel, tid, slot);
	}
	else
	{
		buf = zknown_read(rel, ItemPointerGetBlockNumber(&real));
		if (unlikely(ztid_is_newer(tid)) && IsMVCCSnapshot(snapshot))
			found = fetch_newest(rel, buf, &real, snapshot, slot);
		else
			found = (fetch_version(rel, buf, &real, snapshot, NULL, slot, NULL) & FETCH_FOUND) != 0;
		ReleaseBuffer(buf);
	}
	if (found && snapshot->snapshot_type == SNAPSHOT_ANY && zany_asks_for_author(slot))
		ztts_name_author(slot);
	return found;
}

/* zheap_tuple_tid_valid: See zscan.h. */
bool
zheap_tuple_tid_valid(TableScanDesc sscan, ItemPointer tid)
{
	return ItemPointerIsValid(tid) &&
		ItemPointerGetBlockNumber(tid) < ((ZScan *) sscan)->nblocks;
}

/*
 * Returns whether our own or a committed transaction has moved the row at tid;
 * *forward is its new place. On entry and on return buf, the block of tid, is
 * pinned and not locked.
 */
static bool
moved_to(Relation rel, Buffer buf, ItemPointer tid, ItemPointer forward)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber off = ItemPointerGetOffsetNumber(tid);
	ZSlotView	slots;
	ZRow		row = zvis_row_on(rel, buf, off, &slots);
	ZAuthor		author;
	bool		moved = false;

	Assert(zc_buffer_unlocked(buf));
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (off >= FirstOffsetNumber && off <= PageGetMaxOffsetNumber(page) &&
		(ItemIdIsNormal(PageGetItemId(page, off)) || ItemIdIsRedirected(PageGetItemId(page, off))))
	{
		zslots_copy(rel, ItemPointerGetBlockNumber(tid), page, &slots);
		zvis_author(&row, InvalidSnapshot, &author);
		moved = (author.type == ZUR_MOVE &&
				 (author.status == ZXID_OWN || author.status == ZXID_COMMITTED));
		if (moved)
			*forward = author.forward;
	}
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	return moved;
}

/* zheap_tuple_get_latest_tid: See zscan.h. */
void
zheap_tuple_get_latest_tid(TableScanDesc sscan, ItemPointer tid)
{
	ZVersion	version;
	Relation	rel = sscan->rs_rd;
	ItemPointerData current = ztid_real(tid);

	zcount_reads(rel, false);
	for (;;)
	{
		ItemPointerData forward;
		Buffer		buf;
		bool		moved;

		CHECK_FOR_INTERRUPTS();
		buf = ReadBuffer(rel, ItemPointerGetBlockNumber(&current));
		zvis_fetch(rel, buf, ItemPointerGetOffsetNumber(&current), sscan->rs_snapshot, &version,
				   NULL);
		if (version.found)
			*tid = current;
		moved = moved_to(rel, buf, &current, &forward);
		ReleaseBuffer(buf);
		if (!moved || ItemPointerEquals(&forward, &current))
			return;
		current = forward;
	}
}

/*
 * Returns whether the snapshot sees the version in the slot. Answers from the
 * version's author if that is known and suffices; else fetches the version that
 * the snapshot sees and compares the rows.
 */
static bool
satisfies_snapshot(Relation rel, TupleTableSlot *slot, Snapshot snapshot)
{
	ZVersion	version;
	ZHeapSlot  *z = (ZHeapSlot *) slot;
	Buffer		buf;
	ItemPointerData tid = ztid_real(&slot->tts_tid);

	Assert(TTS_IS_ZHEAP(slot));
	zscan_refuse_historic(snapshot);
	zu_attach_for_table();
	zcount_reads(rel, false);
	if (z->author_known && z->xmin != InvalidZXid && z->xmin >= zu_oldest())
	{
		/*
		 * a foreign key's trigger checks whether its row has been changed
		 * since; author is the record of the slot's version, and is compared
		 * when it is used, so an old one gives a right answer
		 */
		if (snapshot->snapshot_type == SNAPSHOT_SELF && z->author != InvalidUndoPtr &&
			zxid_status(z->xmin) == ZXID_OWN)
			return zany_is_newest(rel, &tid, z->author);
		if (IsMVCCSnapshot(snapshot) && !zxid_is_ours(z->xmin) &&
			!zxid_visible_mvcc(z->xmin, snapshot))
			return false;
	}
	buf = ReadBuffer(rel, ItemPointerGetBlockNumber(&tid));
	if (snapshot->snapshot_type == SNAPSHOT_ANY)
		zany_fetch(rel, buf, ItemPointerGetOffsetNumber(&tid), NULL, false, &version);
	else
		zvis_fetch(rel, buf, ItemPointerGetOffsetNumber(&tid), snapshot, &version, NULL);
	ReleaseBuffer(buf);
	if (!version.found)
		return false;
	/* a virtual slot has no bytes to compare */
	return z->row == NULL || ztuple_same_bytes(z->row, z->len, version.row, version.len);
}

/*
 * zheap_tuple_satisfies_snapshot: See zscan.h. If the snapshot does not see the
 * version, the server asks next whether our transaction has written it
 * (TOKEN-3): ON CONFLICT under a repeatable snapshot.
 */
bool
zheap_tuple_satisfies_snapshot(Relation rel, TupleTableSlot *slot, Snapshot snapshot)
{
	bool		satisfied = satisfies_snapshot(rel, slot, snapshot);

	if (!satisfied)
		ztts_name_author(slot);
	return satisfied;
}
