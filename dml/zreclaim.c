/*
 * dml/zreclaim.c - telling the free space map of the space that deletions, and
 * updates that shorten rows, give back at commit, and insertions at rollback.
 *
 * As soon as the deleting transaction has committed, any writer that visits the
 * page can take the room of the rows that were deleted or moved away, whatever
 * old snapshots there are (zprune.c). But an insertion visits the
 * page only if the free space map names it, and the next VACUUM may be far
 * off. So a transaction remembers the pages on which it makes space, and tells
 * the map right before it commits.
 *
 * What the map says is a hint, as on heap. The remembered pages are lost by a
 * crash or PREPARE TRANSACTION. The map is updated an instant before the
 * commit, or longer if that waits for a standby. An insertion that visits the
 * page meanwhile finds space that is not free yet, leaves the map as it is, and
 * after a few such pages takes the last page of the table, and only then a new
 * one (zspace.c): otherwise, beside a long deletion, each session's first row
 * would get a page of its own. Other pages that the map is wrong about are
 * corrected by the insertion that finds out.
 *
 * A subtransaction remembers the pages on which it inserts as well. When it is
 * rolled back, they are the first that a table takes before it is extended; the
 * commit enters the rest. What a whole transaction has left, the undo worker
 * enters, which visits its pages in any case (discard/zrollback_xact.c): an
 * abort callback must not wait for the map (ABORT-7).
 *
 *	SPACE-2	No file grows at commit, for a full disk must not keep a
 *		transaction from committing. The map's pages come with the table's:
 *		zreclaim_cover makes them when the table is extended, from MIN_BLOCKS
 *		on.
 *	SPACE-4	A session that adds a page to a table while others wait to do so
 *		adds one for each of them (zspace.c), and enters these in the map. They
 *		stay zeros, which need no WAL, until an insertion takes them: all that
 *		read a page take one of zeros for empty. After a crash, and on
 *		standbys, such a page is zeros or lies behind the end of the file, and
 *		replay of the insertion makes it. VACUUM enters it in the map again, or
 *		cuts it off.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "dml/zdml_internal.h"
#include "executor/spi.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/fsm_internals.h"
#include "storage/lmgr.h"
#include "storage/smgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/*
 * A page is entered in the map when its free space has grown by a STEP, to
 * MIN_SPACE at least: not for each row. The first look at the page comes when
 * the transaction has made a STEP of space there in succession, or with a row
 * that is_milestone. The map of a table of fewer than MIN_BLOCKS is not made.
 */
#define MIN_BLOCKS	32
#define MIN_SPACE	(BLCKSZ / 4)
#define STEP		(BLCKSZ / 8)
/* Number of pages that a transaction remembers; the rest is left to VACUUM. */
#define MAX_PAGES	(128 * 1024)
/* A page is looked for among the last ones of this number. */
#define RECENT		3

typedef struct RoomyPage
{
	Oid			relid;
	RelFileNumber relnumber;
	BlockNumber block;
	int			space;			/* bytes for rows and line pointers, once the
								 * deletions are committed */
	int			level;			/* nest level of the transaction that made the
								 * space */
	bool		taken;			/* it has taken the space, and makes it by
								 * being rolled back */
	TimestampTz statement;		/* start of the statement that cannot use the
								 * space, if it is in a TOAST table (TOAST-4) */
} RoomyPage;

typedef struct PageList
{
	RoomyPage  *page;
	int			n;
	int			capacity;
} PageList;

/* What this backend remembers. */
typedef struct RoomyPages
{
	PageList	pages;			/* of this transaction, in order of levels */
	PageList	undone;			/* of rolled back subtransactions, in the
								 * order of statements */
	TimestampTz lost_in;		/* statement that has undone pages which
								 * 'undone' lacks */
	RelFileNumber searched;		/* the first nsearched pages of 'undone' are
								 * not such of this table that ... */
	TimestampTz searched_in;	/* ... this statement can use */
	int			nsearched;
} RoomyPages;

static RoomyPages my;

/*
 * zreclaim_space: See zdml_internal.h. Counts the bytes of live rows as used,
 * without their slack; all other bytes will be free.
 */
int
zreclaim_space(Page page)
{
	PageHeader	ph = (PageHeader) page;
	int			space = ph->pd_special - ph->pd_lower;
	ItemId		lp = ph->pd_linp;
	ItemId		end = lp + PageGetMaxOffsetNumber(page);

	if (unlikely(!zpage_is_valid(page)))
		return 0;
	for (; lp < end; lp++)
	{
		/*
		 * a damaged row counts as free space, and is no reason to refuse a
		 * change of another row
		 */
		ZHeader		h;

		if (!ItemIdIsNormal(lp) || !zpage_row_inside(page, lp))
			continue;
		h = zheader_get(zpage_row(page, lp));
		if (ZH_LIVE(h))
			space -= (h & ZH_SLACK) ? zpage_row_length(page, lp) : ItemIdGetLength(lp);
	}
	return space;
}

/*
 * Allocates memory for more pages. Returns false if there is none; the page is
 * then not remembered. An error must not be raised, since the change that is
 * noted has been made.
 */
static bool
make_space(PageList *list)
{
	int			wanted = Max(64, 2 * list->capacity);
	RoomyPage  *more = MemoryContextAllocExtended(TopMemoryContext, wanted * sizeof(RoomyPage),
												  MCXT_ALLOC_NO_OOM);

	if (more == NULL)
		return false;
	if (list->page != NULL)
	{
		memcpy(more, list->page, list->n * sizeof(RoomyPage));
		pfree(list->page);
	}
	list->page = more;
	list->capacity = wanted;
	return true;
}

/*
 * Adds the page to the list, or changes its free space if it was one of the few
 * added last. Returns false if there are too many, or no memory is left.
 */
static bool
remember(PageList *list, const RoomyPage *page)
{
	Assert(list->n <= list->capacity);
	for (int i = list->n - 1; i >= Max(list->n - RECENT, 0); i--)
	{
		RoomyPage  *p = &list->page[i];

		if (p->relnumber == page->relnumber && p->block == page->block &&
			p->level == page->level && p->taken == page->taken)
		{
			RoomyPage	known = *p;

			/* what was taken is what was there at first */
			if (!page->taken)
				known.space = page->space;
			if (known.statement != page->statement)
			{
				/* to the end, for 'undone' is in the order of statements */
				known.statement = page->statement;
				memmove(p, p + 1, (list->n - 1 - i) * sizeof(RoomyPage));
				p = &list->page[list->n - 1];
				if (list == &my.undone)
					my.nsearched = Min(my.nsearched, i);
			}
			*p = known;
			return true;
		}
	}
	if (list->n == MAX_PAGES || (list->n == list->capacity && !make_space(list)))
		return false;
	list->page[list->n++] = *page;
	return true;
}

/*
 * Returns whether the row at off of the block is one of those that make a
 * transaction look at the page. On average one look comes with each STEP of
 * space. The rows are chosen by a hash: if they were those at which a STEP
 * begins, all of them could have even offsets, and only the others be deleted.
 */
static inline bool
is_milestone(BlockNumber block, OffsetNumber off, int size)
{
	return size > 0 && murmurhash32(block ^ (uint32) off << 23) % STEP < (uint32) size;
}

/*
 * zreclaim_note: See zdml_internal.h. Computes the free space only once as long
 * as the page is known, since that reads all line pointers, and not with the
 * first row; then adds the gains to it.
 */
void
zreclaim_note(Relation rel, Buffer buf, OffsetNumber off, int gain)
{
	BlockNumber block = BufferGetBlockNumber(buf);
	ZKnownPage *known = zknown_page(rel, block);
	RoomyPage	page;
	bool		looked = false;

	Assert(zc_buffer_locked(buf));
	if (known->space_epoch != zknown_epoch)
	{
		known->space_epoch = zknown_epoch;
		known->space = 0;
		known->measured = false;
	}
	known->space += gain;
	if (!known->measured)
	{
		if (known->space < STEP && !is_milestone(block, off, gain))
			return;
		known->space = zreclaim_space(BufferGetPage(buf));
		known->measured = looked = true;
	}
	if (known->space < MIN_SPACE ||
		(!looked && known->space / STEP == (known->space - gain) / STEP))
		return;

	/*
	 * without a line pointer for another row there is no space, until VACUUM
	 * has freed one
	 */
	if (zpage_find_offset(BufferGetPage(buf)) == InvalidOffsetNumber)
		return;
	page.relid = RelationGetRelid(rel);
	page.relnumber = rel->rd_locator.relNumber;
	page.block = block;
	page.space = known->space;
	page.level = GetCurrentTransactionNestLevel();
	page.taken = false;
	page.statement = 0;
	(void) remember(&my.pages, &page);
}

/* zreclaim_note_taken: See zdml_internal.h. */
void
zreclaim_note_taken(Relation rel, Buffer buf, int space)
{
	int			level = GetCurrentTransactionNestLevel();
	RoomyPage	page = {RelationGetRelid(rel), rel->rd_locator.relNumber,
	BufferGetBlockNumber(buf), space, level, true, 0};

	if (level > 1 && !remember(&my.pages, &page))
		my.lost_in = GetCurrentStatementStartTimestamp();
}

void
zreclaim_note_later(Relation rel, BlockNumber block, int space)
{
	RoomyPage	page = {RelationGetRelid(rel), rel->rd_locator.relNumber, block, space, 1, false,
	GetCurrentStatementStartTimestamp()};

	(void) remember(&my.undone, &page);
}

void
zreclaim_note_undone(Relation rel, BlockNumber block, int space)
{
	RoomyPage	page = {RelationGetRelid(rel), rel->rd_locator.relNumber, block, space, 1, false,
	0};

	if (space > 0)
		(void) remember(&my.undone, &page);
}

/*
 * zreclaim_undone_now: See zdml_internal.h. The page that is asked for is
 * mostly one of the last ones; others rarely have an LSN that is new.
 */
bool
zreclaim_undone_now(Relation rel, Buffer buf)
{
	TimestampTz now = GetCurrentStatementStartTimestamp();
	BlockNumber block = BufferGetBlockNumber(buf);

	if (!zrollback_in_statement(rel, BufferGetPage(buf)))
		return false;
	for (int i = my.undone.n - 1; i >= 0 && my.undone.page[i].statement == now; i--)
		if (my.undone.page[i].block == block &&
			my.undone.page[i].relnumber == rel->rd_locator.relNumber)
			return true;
	return my.lost_in == now;
}

void
zreclaim_cover(Relation rel, BlockNumber block)
{
	if (block == MIN_BLOCKS || (block > MIN_BLOCKS && block % SlotsPerFSMPage == 0))
		RecordPageWithFreeSpace(rel, block, 0);
}

/* Orders the pages by table, file, block and free space, for qsort. */
static int
compare_pages(const void *a, const void *b)
{
	const RoomyPage *pa = a;
	const RoomyPage *pb = b;

	if (pa->relid != pb->relid)
		return pa->relid < pb->relid ? -1 : 1;
	if (pa->relnumber != pb->relnumber)
		return pa->relnumber < pb->relnumber ? -1 : 1;
	if (pa->block != pb->block)
		return pa->block < pb->block ? -1 : 1;
	return pa->space - pb->space;
}

/*
 * Enters the free space of n pages of one table, in ascending order, in the
 * map, as far as the map has pages for them (SPACE-2).
 */
static void
tell_map(Relation rel, const RoomyPage *page, int n)
{
	BlockNumber nblocks = zrel_nblocks(rel);
	BlockNumber first = InvalidBlockNumber; /* first block entered since the
											 * upper levels were updated */

	Assert(n > 0);
	for (int i = 0; i < n; i++)
	{
		BlockNumber block = page[i].block;

		/*
		 * The table may have got another file since, or, as a rollback gives
		 * its lock back, have been cut off by VACUUM.
		 */
		if (page[i].relnumber == rel->rd_locator.relNumber && block < nblocks &&
			zvismap_has_space_entry(rel, block))
		{
			RecordPageWithFreeSpace(rel, block, Min(page[i].space, MaxHeapTupleSize));
			first = Min(first, block);
		}

		/*
		 * update the upper levels for one page of the map at a time, for
		 * there may be many pages between two of ours
		 */
		if (BlockNumberIsValid(first) &&
			(i + 1 == n || page[i + 1].block / SlotsPerFSMPage != block / SlotsPerFSMPage ||
			 page[i + 1].relnumber != page[i].relnumber))
		{
			FreeSpaceMapVacuumRange(rel, first, block + 1);
			first = InvalidBlockNumber;
		}
	}
}

/*
 * Moves the pages of rolled back subtransactions to those for the map, but for
 * those that the present statement cannot use, if it continues after this
 * commit.
 */
static void
remember_undone(void)
{
	bool		goes_on = SPI_inside_nonatomic_context();	/* COMMIT within */
	int			left = 0;

	for (int i = 0; i < my.undone.n; i++)
		if (goes_on && my.undone.page[i].statement == GetCurrentStatementStartTimestamp())
			my.undone.page[left++] = my.undone.page[i];
		else
			(void) remember(&my.pages, &my.undone.page[i]);
	my.undone.n = left;
	my.nsearched = 0;
}

/*
 * zreclaim_tell_undone: See zdml.h. Takes the pages of the table out of the
 * list, but for those of a TOAST table that the present statement cannot use.
 */
bool
zreclaim_tell_undone(Relation rel)
{
	TimestampTz now = GetCurrentStatementStartTimestamp();
	bool		toast = rel->rd_rel->relkind == RELKIND_TOASTVALUE;
	RoomyPage  *mine;
	int			n = 0;
	int			left;

	if (my.searched != rel->rd_locator.relNumber || my.searched_in != now)
		my.nsearched = 0;
	left = my.nsearched;
	if (likely(my.undone.n == left))
		return false;
	mine = palloc((my.undone.n - left) * sizeof(RoomyPage));
	for (int i = left; i < my.undone.n; i++)
	{
		const RoomyPage *page = &my.undone.page[i];

		if (page->relnumber == rel->rd_locator.relNumber && page->relid == RelationGetRelid(rel) &&
			!(toast && page->statement == now))
			mine[n++] = *page;
		else
			my.undone.page[left++] = *page;
	}
	my.undone.n = my.nsearched = left;
	my.searched = rel->rd_locator.relNumber;
	my.searched_in = now;
	if (n > 0)
	{
		qsort(mine, n, sizeof(RoomyPage), compare_pages);
		tell_map(rel, mine, n);
	}
	pfree(mine);
	return n > 0;
}

/*
 * zreclaim_pre_commit: See zdml.h. Sorts the pages, so that each table is
 * opened once and the map is written in order.
 */
void
zreclaim_pre_commit(void)
{
	remember_undone();
	if (my.pages.n > 1)
		qsort(my.pages.page, my.pages.n, sizeof(RoomyPage), compare_pages);
	for (int first = 0, end; first < my.pages.n; first = end)
	{
		Oid			relid = my.pages.page[first].relid;
		Relation	rel;

		for (end = first + 1; end < my.pages.n && my.pages.page[end].relid == relid; end++)
			;

		/*
		 * our transaction has the lock since the change; if not, skip the
		 * table rather than wait
		 */
		if (!ConditionalLockRelationOid(relid, RowExclusiveLock))
			continue;
		rel = try_table_open(relid, NoLock);
		if (rel == NULL)
			continue;
		tell_map(rel, &my.pages.page[first], end - first);
		table_close(rel, NoLock);
	}
}

/* Empties the list, and releases the memory if it was long. */
static void
empty_list(PageList *list)
{
	list->n = 0;
	if (list->capacity > 1024)
	{
		pfree(list->page);
		list->page = NULL;
		list->capacity = 0;
	}
}

/*
 * zreclaim_at_xact_end: See zdml.h. The list of undone pages stays: after an
 * abort, the session's next commit enters them.
 */
void
zreclaim_at_xact_end(void)
{
	empty_list(&my.pages);
	if (my.undone.n == 0)
		empty_list(&my.undone);
}

/*
 * zreclaim_at_subxact_end: See zdml.h. What a committed subtransaction has
 * deleted now counts for its parent; of an aborted one, the rows are there
 * again, and what it has taken is free.
 */
void
zreclaim_at_subxact_end(int level, bool committed)
{
	int			from = my.pages.n;
	int			to;

	Assert(level > 1);
	Assert(from == 0 || my.pages.page[from - 1].level <= level);
	while (from > 0 && my.pages.page[from - 1].level >= level)
		from--;
	to = from;
	for (; from < my.pages.n; from++)
	{
		RoomyPage	page = my.pages.page[from];

		if (committed)
		{
			/* if all is rolled back, the undo worker enters the space */
			if (page.taken && level == 2)
				continue;
			page.level = level - 1;
			my.pages.page[to++] = page;
		}
		else if (page.taken)
		{
			page.taken = false;
			page.level = 1;
			page.statement = GetCurrentStatementStartTimestamp();
			if (!remember(&my.undone, &page))
				my.lost_in = page.statement;
		}
	}
	my.pages.n = to;
}
