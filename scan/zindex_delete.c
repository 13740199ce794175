/*
 * scan/zindex_delete.c - which entries of an index page can be deleted.
 *
 * Called through zam.c by an index access method that has a leaf page locked
 * and wants to free space on it (lock order: index page before table page).
 * Looks at the table block by block, each under a share lock. An entry can go
 * if its row is dead to all snapshots (SCAN-6 in zfetch.c), one of a zbtree
 * index also if no version that a snapshot may need has its key (ZBTREE-8).
 * scan/README.md, "Index deletion", has the conflict horizon and the limits.
 */
#include "postgres.h"

#include "common/fault.h"
#include "mvcc/zhistory.h"
#include "mvcc/zslots.h"
#include "mvcc/zvis.h"
#include "pgstat.h"
#include "port/pg_bitutils.h"
#include "scan/zscan_internal.h"
#include "storage/procarray.h"
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
