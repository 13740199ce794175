/*
 * scan/zfetch.c - rows by TID: index fetches, row versions, index deletion.
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
#include "port/pg_bitutils.h"
#include "mvcc/zany.h"
#include "mvcc/zhandle.h"
#include "mvcc/zhistory.h"
#include "mvcc/zlevel.h"
#include "mvcc/zread.h"
#include "mvcc/zvismap.h"
#include "pgstat.h"
#include "scan/zscan_internal.h"
#include "storage/procarray.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "zbtree/passed.h"
#include "zbtree/purge.h"
#include "zbtree/zbtree.h"

/*
 * Bottom-up index deletion looks at BOTTOMUP_MAX_BLOCKS table blocks at most,
 * and stops after BOTTOMUP_MAX_VAIN blocks without a deletable entry. The
 * limits for a zbtree index are higher: its stale entries belong to rows that
 * have kept their places, so they point to as many blocks as the page's other
 * entries do.
 */
#define BOTTOMUP_MAX_BLOCKS 6
#define BOTTOMUP_MAX_VAIN 2
#define ZBTREE_MAX_BLOCKS 32
#define ZBTREE_MAX_VAIN ZBTREE_PURGED_TOGETHER

/*
 * The number of versions of rows that one call may read, while a leaf page is
 * locked, to find entries of a zbtree index that no snapshot needs (ZBTREE-8),
 * or of one row, to find one with a key (ZBTREE-19).
 */
#define MAX_VERSIONS_JUDGED 1000

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
	zcount_table(rel, by_index != NULL);
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
may_be_marked(Relation rel, TupleTableSlot *slot)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	Assert(TTS_IS_ZHEAP(slot));
	return zmarks_settled(rel, z->author_known ? z->xmin : z->chain_xid);
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

	zcount_table(rel, true);
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
	if (unlikely(fetch->expect.inserting) && snapshot->snapshot_type == SNAPSHOT_DIRTY &&
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
	Assert(!fetch->expect.inserting || snapshot->snapshot_type == SNAPSHOT_DIRTY ||
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
		if (fetch->expect.inserting && !*call_again && all_dead != NULL)
			*all_dead = may_be_marked(scan->rel, slot);
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
	zcount_table(rel, false);
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
	zcount_table(rel, false);
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
		buf = zread_page(rel, ItemPointerGetBlockNumber(&real));
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

	zcount_table(rel, false);
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
	zcount_table(rel, false);
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

/* ---- index deletion ---- */

/* The state of an index entry, by the line pointer to which it points. */
typedef enum EntryState
{
	ENTRY_NEEDED,				/* a live row, or a damaged item */
	ENTRY_DEAD,					/* dead to all */
	ENTRY_STUB,					/* deleted or moved: depends on the deleter */
	ENTRY_ASTRAY				/* there is no such line pointer, or it is
								 * unused */
} EntryState;

/*
 * Returns the state of an index entry of the row at off, and for a stub or a
 * deleted row its header in *header. LP_DEAD means dead to all: the record that
 * has discarded the row's undo, or has pruned the row (SAVED-6), raised the
 * conflict. A line pointer becomes unused, or is cut off, only after the index
 * entries that point to it have been removed; so if there is none, the page or
 * the index is damaged. The page is locked.
 */
static EntryState
entry_state(Page page, OffsetNumber off, ZHeader *header)
{
	ItemId		lp;

	if (PageIsNew(page))
		return ENTRY_ASTRAY;
	if (!zpage_item_ok(page, off))
		return ENTRY_NEEDED;
	if (off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
		return ENTRY_ASTRAY;
	lp = PageGetItemId(page, off);
	if (!ItemIdIsUsed(lp))
		return ENTRY_ASTRAY;
	if (ItemIdIsNormal(lp))
	{
		*header = zheader_get(zpage_row(page, lp));
		return ZH_LIVE(*header) ? ENTRY_NEEDED : ENTRY_STUB;
	}
	if (!ItemIdIsRedirected(lp))
		return ENTRY_DEAD;
	*header = zpage_stub_header(lp);
	return ENTRY_STUB;
}

/* Returns whether the row at off, if it is one, has ZH_STALE_KEYS. */
static bool
has_stale_keys(Page page, OffsetNumber off)
{
	return zpage_item_ok(page, off) && off >= FirstOffsetNumber &&
		off <= PageGetMaxOffsetNumber(page) && ItemIdIsNormal(PageGetItemId(page, off)) &&
		(zheader_get(zpage_row(page, PageGetItemId(page, off))) & ZH_STALE_KEYS) != 0;
}

/*
 * Returns whether the index entry of a deleted or moved row can be deleted: if
 * the deletion is settled (the discard record has raised the conflict), or if
 * the deleter has committed and every snapshot sees it. In the second case
 * *conflict, the conflict horizon, is advanced to the deleter. If
 * stub->thorough is set, the index AM knows the entry to be deletable, and
 * whether every snapshot sees the deleter is not tested: this process may have
 * an older horizon than the one that marked the entry (SCAN-6). vistest is NULL
 * for a TOAST table.
 */
static bool
stub_is_dead(const ZStubDeleter *stub, ZXid oldest, GlobalVisState *vistest,
			 TransactionId *conflict)
{
	TransactionId x = zxid_to_xid(stub->deleter);

	if (stub->settled)
		return true;
	if (stub->deleter == InvalidZXid || zxid_status_at(stub->deleter, oldest) != ZXID_COMMITTED ||
		!(stub->thorough || (vistest != NULL && zc_is_removable_xid(vistest, x))))
		return false;
	if (!TransactionIdIsValid(*conflict) || TransactionIdFollows(x, *conflict))
		*conflict = x;
	return true;
}

/*
 * An entry as a number, so that hundreds of them are sorted quickly for each
 * full index page: block, offset, index into the status array.
 */
#define ENTRY_BLOCK(e) ((BlockNumber) ((e) >> 32))
#define ENTRY_OFFSET(e) ((OffsetNumber) ((e) >> 16))
#define ENTRY_ID(e) ((int16) (e))

#define ST_SORT sort_entries
#define ST_ELEMENT_TYPE uint64
#define ST_COMPARE(a, b) (*(a) < *(b) ? -1 : *(a) > *(b))
#define ST_SCOPE static
#define ST_DEFINE
#include "lib/sort_template.h"

/* Returns, palloc'd, the entries of delstate, sorted by TID. */
static uint64 *
sorted_entries(const TM_IndexDeleteOp *delstate)
{
	uint64	   *entries = palloc(delstate->ndeltids * sizeof(uint64));

	for (int i = 0; i < delstate->ndeltids; i++)
	{
		const TM_IndexDelete *d = &delstate->deltids[i];

		entries[i] = (uint64) ItemPointerGetBlockNumberNoCheck(&d->tid) << 32 |
			(uint32) ItemPointerGetOffsetNumberNoCheck(&d->tid) << 16 | (uint16) d->id;
	}
	sort_entries(entries, delstate->ndeltids);
	return entries;
}

/* Puts n entries into delstate from index 'at' on. */
static void
put_entries(TM_IndexDeleteOp *delstate, int at, const uint64 *entries, int n)
{
	for (int i = 0; i < n; i++)
	{
		ItemPointerSet(&delstate->deltids[at + i].tid, ENTRY_BLOCK(entries[i]),
					   ENTRY_OFFSET(entries[i]));
		delstate->deltids[at + i].id = ENTRY_ID(entries[i]);
	}
}

/*
 * The entries of one table block are a group, which is stored as one number, so
 * that groups can be compared quickly. From the highest bits to the lowest: the
 * order of magnitude of the number of promising entries; that of the number of
 * all entries; the inverted index of the first entry, by which of equal groups
 * the first one in the table is greater; the number of entries.
 */
#define GROUP_FIRST(g) (PG_UINT16_MAX - (int) (((g) >> 16) & PG_UINT16_MAX))
#define GROUP_COUNT(g) ((int) ((g) & PG_UINT16_MAX))

/*
 * Returns the group of the count entries from index first on, of which this
 * many are promising.
 */
static inline uint64
make_group(int first, int count, int promising)
{
	uint64		magnitudes = pg_ceil_log2_32(Max(promising, 4)) << 8 | pg_ceil_log2_32(count);

	return magnitudes << 32 | (uint32) (PG_UINT16_MAX - first) << 16 | count;
}

/* Adds the group to the max best ones so far, *n of them, best first. */
static inline void
keep_best(uint64 *best, int *n, int max, uint64 group)
{
	int			i;

	if (*n == max && group < best[max - 1])
		return;
	if (*n < max)
		(*n)++;
	for (i = *n - 1; i > 0 && best[i - 1] < group; i--)
		best[i] = best[i - 1];
	best[i] = group;
}

/*
 * Keeps, for bottom-up deletion, only the entries of the few blocks that
 * promise most, the most promising block first. The entries are sorted.
 */
static void
choose_promising(TM_IndexDeleteOp *delstate, const uint64 *entries)
{
	uint64		best[ZBTREE_MAX_BLOCKS];
	int			max = zbtree_is(delstate->irel) ? ZBTREE_MAX_BLOCKS : BOTTOMUP_MAX_BLOCKS;
	int			ngroups = 0;
	int			n = 0;

	Assert(delstate->bottomup && delstate->ndeltids <= PG_UINT16_MAX);
	for (int first = 0, end; first < delstate->ndeltids; first = end)
	{
		int			promising = 0;

		for (end = first; end < delstate->ndeltids &&
			 ENTRY_BLOCK(entries[end]) == ENTRY_BLOCK(entries[first]); end++)
			promising += delstate->status[ENTRY_ID(entries[end])].promising;
		keep_best(best, &ngroups, max, make_group(first, end - first, promising));
	}
	for (int g = 0; g < ngroups; g++)
	{
		put_entries(delstate, n, entries + GROUP_FIRST(best[g]), GROUP_COUNT(best[g]));
		n += GROUP_COUNT(best[g]);
	}
	delstate->ndeltids = n;
}

/*
 * Marks entry i as deletable. Returns the index bytes that become free, 0 if
 * it was known to be deletable. *last becomes at least i + 1.
 */
static int
mark_deletable(TM_IndexDeleteOp *delstate, int i, int *last)
{
	TM_IndexStatus *status = &delstate->status[delstate->deltids[i].id];
	int			freed = status->knowndeletable ? 0 : status->freespace;

	Assert(i >= 0 && i < delstate->ndeltids);
	status->knowndeletable = true;
	*last = Max(*last, i + 1);
	return freed;
}

/*
 * Raises ERRCODE_INDEX_CORRUPTED, as heap does, for an index entry that points
 * to no row.
 */
static void
astray(Relation rel, const TM_IndexDeleteOp *delstate, ItemPointer tid)
{
	ereport(ERROR,
			(errcode(ERRCODE_INDEX_CORRUPTED),
			 errmsg("block %u of index \"%s\" points to nonexistent item %u in block %u of "
					"relation \"%s\"",
					delstate->iblknum, RelationGetRelationName(delstate->irel),
					ItemPointerGetOffsetNumber(tid), ItemPointerGetBlockNumber(tid),
					RelationGetRelationName(rel)),
			 errhint("Run SELECT * FROM zundo.check('%s'); if it reports no fault, rebuild the "
					 "index with REINDEX.", RelationGetRelationName(rel))));
}

/* The state of zheap_index_delete_tuples for a zbtree index. */
typedef struct KeyJudge
{
	Page		leaf;			/* the page with the entries; NULL if the
								 * index is of another access method */
	Buffer		leafbuf;
	ZHistory   *history;
	int			budget;			/* see zbtree_needed */
	int			nmarked;		/* number of entries that the index AM passed
								 * as known to be deletable */
	int		   *marked;			/* indexes of their TM_IndexStatus */
} KeyJudge;

/*
 * Prepares to judge the entries of a zbtree index, and pins their leaf page,
 * which the index AM has locked exclusively. For another access method returns
 * a judge without a leaf. Old snapshots may need an entry that is marked as
 * dead, so none is known to be deletable (ZBTREE-8).
 */
static KeyJudge
judge_begin(Relation rel, TM_IndexDeleteOp *delstate)
{
	KeyJudge	judge = {0};

	if (!zbtree_is(delstate->irel))
		return judge;
	judge.leafbuf = ReadBuffer(delstate->irel, delstate->iblknum);
	judge.leaf = BufferGetPage(judge.leafbuf);
	judge.history = zhistory_create(rel, zxid_to_xid(zu_oldest()));
	judge.budget = MAX_VERSIONS_JUDGED;
	judge.marked = palloc(delstate->ndeltids * sizeof(int));
	for (int i = 0; i < delstate->ndeltids; i++)
	{
		int			id = delstate->deltids[i].id;

		if (!delstate->status[id].knowndeletable)
			continue;
		delstate->status[id].knowndeletable = false;
		judge.marked[judge.nmarked++] = id;
	}
	return judge;
}

/*
 * Releases the resources of judge_begin. Clears the marks of the entries that
 * stay, because nbtree expects that no marked entry is left after this. If no
 * entry is to be deleted, sets delstate->bottomup, because nbtree expects this
 * result only of bottom-up deletion.
 */
static void
judge_end(KeyJudge *judge, TM_IndexDeleteOp *delstate, int ndeletable)
{
	OffsetNumber *offsets;
	int			n = 0;

	if (judge->leaf == NULL)
		return;
	offsets = palloc(Max(judge->nmarked, 1) * sizeof(OffsetNumber));
	for (int i = 0; i < judge->nmarked; i++)
	{
		TM_IndexStatus *status = &delstate->status[judge->marked[i]];

		if (!status->knowndeletable)
			offsets[n++] = status->idxoffnum;
	}
	if (n > 0)
		zbtree_clear_marks(delstate->irel, judge->leafbuf, offsets, n);
	for (int i = 0; i < n; i++)
		Assert(!ItemIdIsDead(PageGetItemId(judge->leaf, offsets[i])));
	if (ndeletable == 0)
		delstate->bottomup = true;
	pfree(offsets);
	pfree(judge->marked);
	ReleaseBuffer(judge->leafbuf);
	zhistory_free(judge->history);
}

/*
 * Marks as deletable those of the n entries, all of live rows in buf's block,
 * whose key is in no version that a snapshot may need (ZBTREE-8). They do not
 * count as dead rows any more (add_keys in dml/zupdate.c). Returns the index
 * bytes that become free. No table page is locked.
 */
static int
judge_keys(KeyJudge *judge, TM_IndexDeleteOp *delstate, Buffer buf, const int *entries, int n,
		   int *last)
{
	int			freed = 0;
	int			ndeleted = 0;

	if (n == 0 || zhistory_load(judge->history, buf) == NULL)
		return 0;
	for (int i = 0; i < n; i++)
	{
		TM_IndexDelete *entry = &delstate->deltids[entries[i]];
		OffsetNumber off = delstate->status[entry->id].idxoffnum;
		IndexTuple	itup = (IndexTuple) PageGetItem(judge->leaf, PageGetItemId(judge->leaf, off));

		Assert(ItemPointerEquals(&itup->t_tid, &entry->tid));
		if (!zbtree_needed(delstate->irel, itup, judge->history,
						   ItemPointerGetOffsetNumber(&entry->tid), &judge->budget))
		{
			freed += mark_deletable(delstate, entries[i], last);
			ndeleted++;
		}
	}
	if (ndeleted == 0)
		return 0;
	ZUNDO_FAULT("keys-judged");
	pgstat_update_heap_dead_tuples(zhistory_table(judge->history), ndeleted);
	return freed;
}

/*
 * Decides about the entries first .. end-1, all of one block. Returns the
 * index bytes that become free; advances *conflict, and sets *last to 1 + the
 * last deletable entry, unless there is none here.
 */
static int
check_block(KeyJudge *judge, Relation rel, TM_IndexDeleteOp *delstate, int first, int end,
			TransactionId *conflict, int *last)
{
	ZSlotView	slots;
	BlockNumber block = ItemPointerGetBlockNumber(&delstate->deltids[first].tid);
	Buffer		buf = ReadBuffer(rel, block);
	Page		page = BufferGetPage(buf);
	ZStubDeleter *stubs = palloc((end - first) * sizeof(ZStubDeleter));
	int		   *entries = palloc((end - first) * sizeof(int));
	int		   *keys = palloc((end - first) * sizeof(int));
	GlobalVisState *vistest = rel->rd_rel->relkind == RELKIND_TOASTVALUE ? NULL
	: GlobalVisTestFor(rel);
	int			nstubs = 0;
	int			nkeys = 0;
	int			freed = 0;

	Assert(first < end && end <= delstate->ndeltids);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	for (int i = first; i < end; i++)
	{
		ZStubDeleter *stub = &stubs[nstubs];
		bool		known = delstate->status[delstate->deltids[i].id].knowndeletable;

		stub->off = ItemPointerGetOffsetNumber(&delstate->deltids[i].tid);
		switch (entry_state(page, stub->off, &stub->header))
		{
			case ENTRY_NEEDED:
				if (known)
					(void) mark_deletable(delstate, i, last);
				else if (judge->leaf != NULL && has_stale_keys(page, stub->off))
					keys[nkeys++] = i;
				break;
			case ENTRY_DEAD:
				freed += mark_deletable(delstate, i, last);
				break;
			case ENTRY_STUB:

				/*
				 * An entry known to be deletable is deleted in any case, so
				 * its deleter must be found: it may be the conflict horizon.
				 */
				stub->thorough = known;
				entries[nstubs++] = i;
				break;
			case ENTRY_ASTRAY:
				astray(rel, delstate, &delstate->deltids[i].tid);
				break;
		}
	}
	if (nstubs > 0)
	{
		zslots_copy(rel, block, page, &slots);
		zvis_deleters(&slots, rel, block, stubs, nstubs);
	}
	for (int n = 0; n < nstubs; n++)
		if (stub_is_dead(&stubs[n], slots.oldest, vistest, conflict) || stubs[n].thorough)
			freed += mark_deletable(delstate, entries[n], last);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	freed += judge_keys(judge, delstate, buf, keys, nkeys, last);
	ReleaseBuffer(buf);
	pfree(stubs);
	pfree(entries);
	pfree(keys);
	return freed;
}

/*
 * zheap_index_delete_tuples: See zscan.h. Works block by block, so that each
 * block is read once.
 */
TransactionId
zheap_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate)
{
	TransactionId conflict = InvalidTransactionId;
	KeyJudge	judge;
	uint64	   *entries;
	int			last = 0;
	int			freed = 0;
	int			vain = 0;
	int			max_vain = zbtree_is(delstate->irel) ? ZBTREE_MAX_VAIN : BOTTOMUP_MAX_VAIN;

	Assert(delstate->ndeltids > 0);
	zu_attach_for_table();		/* the caller has a page of the index locked */
	entries = sorted_entries(delstate);
	if (delstate->bottomup)
		choose_promising(delstate, entries);
	else
		put_entries(delstate, 0, entries, delstate->ndeltids);
	pfree(entries);
	judge = judge_begin(rel, delstate);
	for (int first = 0, end; first < delstate->ndeltids; first = end)
	{
		BlockNumber block = ItemPointerGetBlockNumber(&delstate->deltids[first].tid);
		int			block_freed;

		for (end = first + 1; end < delstate->ndeltids; end++)
			if (ItemPointerGetBlockNumber(&delstate->deltids[end].tid) != block)
				break;
		block_freed = check_block(&judge, rel, delstate, first, end, &conflict, &last);
		freed += block_freed;

		/*
		 * bottom-up deletion stops when enough space is free, or when it
		 * finds too little
		 */
		vain += (block_freed == 0);
		if (delstate->bottomup &&
			(vain == max_vain || freed >= delstate->bottomupfreespace))
			break;
	}
	judge_end(&judge, delstate, last);
	delstate->ndeltids = last;
	return conflict;
}
