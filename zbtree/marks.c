/*
 * zbtree/marks.c - marking entries as dead that young snapshots do not need, so
 * that their scans skip them.
 *
 * A scan notes each entry whose row, once fetched, had no visible version with
 * the entry's key. When it has noted enough entries, or before it leaves their
 * leaf page, it examines the versions of their rows, and marks the entries that
 * no snapshot at or above the bound needs (bound.h). The mark is nbtree's own
 * flag LP_DEAD. nbtree skips such entries if the scan's ignore_killed_tuples is
 * set (begin_reading in recheck.c).
 *
 * The check of a unique key examines single entries, of which the fetch has
 * shown the newest version (zmarks_settled); nbtree marks them.
 *
 * Locks: a leaf page in share mode; under it one table page, then undo pages,
 * as mvcc/ takes them. No WAL: marking is a hint. Crash points:
 * "entries-judged".
 *
 *	MARK-1	An entry may be marked if it is not needed in the sense of ZBTREE-8
 *		with the bound in place of `oldest`: then no snapshot whose xmin is at
 *		or above the bound sees a version with the entry's key.
 *		(a) The process that marks the entry keeps the leaf page locked, at
 *			least in share mode, from before it reads the versions until it has
 *			set the mark. A transaction that gives the row this key again
 *			changes the table page first; then it locks the leaf page
 *			exclusively, finds the entry, and removes the mark (has_entry). So
 *			either the marking process has read this transaction's version, or
 *			the transaction finds the mark.
 *		(b) A transaction that deletes or moves a row removes no mark, and need
 *			not: no row gets the TID before all entries of the TID have been
 *			deleted.
 *		(c) Entries of rows that are dead to all snapshots are marked by nbtree
 *			itself, by TID alone: all entries of such a TID are dead.
 *		(d) In the check of a unique key the bound may be the server's own
 *			horizon: every snapshot that is in use sees the newest version, and
 *			its commit record is flushed (zxid_seen_by_all). So the bound's
 *			other tasks (MARK-2, MARK-3) are done. Example: a key that hops
 *			from row to row, hundreds of times before the bound advances.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "common/fault.h"
#include "miscadmin.h"
#include "mvcc/zxid.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"
#include "zbtree/bound.h"
#include "zbtree/marks.h"
#include "zbtree/predicate.h"
#include "zbtree/zbtree.h"

/*
 * A scan stops noting entries after it has examined this many, or has called
 * zmarks_set this often without finding a marked or markable one.
 */
#define MAX_LOOKED_AT	2048
#define MAX_FRUITLESS	2

/*
 * If the first FIRST_ONES entries that are examined are all needed, the others
 * are not examined: usually their rows were changed later still.
 */
#define FIRST_ONES		4

/* The largest number of versions examined while a leaf page is locked. */
#define MAX_VERSIONS	300

/* Returns whether the scan may note and mark more entries. */
static bool
may_mark(IndexScanDesc scan, const ZNotedEntries *noted)
{
	return noted->looked_at < MAX_LOOKED_AT && noted->fruitless < MAX_FRUITLESS &&
		!scan->xactStartedInRecovery && !RelationUsesLocalBuffers(scan->indexRelation);
}

void
zmarks_note(IndexScanDesc scan, ZNotedEntries *noted)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;

	if (!may_mark(scan, noted) || !BTScanPosIsValid(so->currPos))
		return;
	Assert(noted->n < ZMARKS_NOTED);
	noted->items[noted->n++] = so->currPos.itemIndex;
	if (noted->n == ZMARKS_NOTED)
		zmarks_set(scan, noted);
}

/*
 * Returns whether the entry is still at this place of the leaf page, which may
 * have changed since the scan read it.
 */
static bool
is_still_there(Page page, OffsetNumber off, IndexTuple entry)
{
	IndexTuple	there;

	if (off < P_FIRSTDATAKEY(BTPageGetOpaque(page)) || off > PageGetMaxOffsetNumber(page))
		return false;
	there = (IndexTuple) PageGetItem(page, PageGetItemId(page, off));
	return IndexTupleSize(there) == IndexTupleSize(entry) &&
		memcmp(there, entry, IndexTupleSize(entry)) == 0;
}

/* The work of one call of zmarks_set. */
typedef struct Marking
{
	IndexScanDesc scan;
	Page		page;			/* leaf page of the noted entries, locked */
	ZHistory   *history;		/* versions down to the newest before the
								 * bound */
	BlockNumber block;			/* table block that history has loaded */
	int			budget;			/* versions that may still be examined */
	int			nmarked;		/* noted entries that were marked already */
	int			ndead;			/* entries to be marked, and their offsets */
	OffsetNumber dead[ZMARKS_NOTED];
} Marking;

/* Returns whether a snapshot at or above the bound may need the entry. */
static bool
is_needed(Marking *m, IndexTuple entry)
{
	BlockNumber block = ItemPointerGetBlockNumber(&entry->t_tid);

	if (m->block != block)
	{
		Buffer		buf = ReadBuffer(m->scan->heapRelation, block);
		bool		is_new = zhistory_load(m->history, buf) == NULL;

		ReleaseBuffer(buf);
		if (is_new)
			return true;
		m->block = block;
	}
	return zbtree_needed(m->scan->indexRelation, entry, m->history,
						 ItemPointerGetOffsetNumber(&entry->t_tid), &m->budget);
}

/*
 * Finds out which of the noted entries can be marked, and collects their
 * offsets. The caller holds their leaf page locked.
 */
static void
examine(Marking *m, ZNotedEntries *noted)
{
	BTScanOpaque so = (BTScanOpaque) m->scan->opaque;
	int			needed = 0;

	for (int i = 0; i < noted->n; i++)
	{
		BTScanPosItem *item;
		IndexTuple	entry;

		if (noted->items[i] < so->currPos.firstItem || noted->items[i] > so->currPos.lastItem)
			continue;
		item = &so->currPos.items[noted->items[i]];
		entry = (IndexTuple) (so->currTuples + item->tupleOffset);
		if (!is_still_there(m->page, item->indexOffset, entry))
			continue;
		if (ItemIdIsDead(PageGetItemId(m->page, item->indexOffset)))
			m->nmarked++;
		else if (!is_needed(m, entry))
			m->dead[m->ndead++] = item->indexOffset;
		else if (++needed >= FIRST_ONES && m->ndead + m->nmarked == 0)
			break;
	}
}

/*
 * zmarks_set: See marks.h. Examines and marks the entries under one share lock
 * of their leaf page. A transaction that gives a row its old key again locks
 * that page exclusively after it has changed the row (zbtree_add_key), so it
 * cannot come between (MARK-1). The page may have changed since the scan read
 * it: an entry is examined only if it is still there.
 */
void
zmarks_set(IndexScanDesc scan, ZNotedEntries *noted)
{
	BTScanOpaque so = (BTScanOpaque) scan->opaque;
	Marking		m = {scan,.block = InvalidBlockNumber,.budget = MAX_VERSIONS};
	ZXid		bound = zbound_agreed();
	Buffer		buf;
	BTPageOpaque opaque;

	zbound_advance();
	if (noted->n == 0 || bound == InvalidZXid || so->currTuples == NULL ||
		!BTScanPosIsValid(so->currPos))
	{
		noted->n = 0;
		return;
	}
	m.history = zhistory_create(scan->heapRelation, zxid_to_xid(bound));
	(void) zpredicate_get(scan->indexRelation); /* for zbtree_needed */
	buf = ReadBuffer(scan->indexRelation, so->currPos.currPage);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	m.page = BufferGetPage(buf);
	opaque = PageIsNew(m.page) ? NULL : BTPageGetOpaque(m.page);
	if (opaque != NULL && P_ISLEAF(opaque) && !P_IGNORE(opaque))
		examine(&m, noted);
	ZUNDO_FAULT("entries-judged");
	if (m.ndead > 0 && zc_begin_hint(buf))
	{
		for (int i = 0; i < m.ndead; i++)
			ItemIdMarkDead(PageGetItemId(m.page, m.dead[i]));
		opaque->btpo_flags |= BTP_HAS_GARBAGE;
		zc_finish_hint(buf);
	}
	UnlockReleaseBuffer(buf);
	zhistory_free(m.history);
	noted->looked_at += noted->n;
	noted->fruitless += (m.ndead + m.nmarked == 0);
	noted->n = 0;
}

/* zmarks_settled: See marks.h. */
bool
zmarks_settled(Relation table, ZXid author, ZXid *unsettled)
{
	if (author >= *unsettled || RelationUsesLocalBuffers(table))
		return false;
	if (author < zbound_agreed() || zxid_seen_by_all(table, author))
		return true;
	*unsettled = author;
	zbound_advance();
	return false;
}
