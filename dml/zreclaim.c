/*
 * dml/zreclaim.c - telling the free space map of the space that deletions, and
 * updates that shorten rows, give back at commit.
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

typedef struct RoomyPage
{
	Oid			relid;
	RelFileNumber relnumber;
	BlockNumber block;
	int			space;			/* bytes for rows and line pointers, once the
								 * deletions are committed */
	int			level;			/* nest level of the transaction that made the
								 * space */
} RoomyPage;

/* What this backend's transaction remembers. */
typedef struct RoomyPages
{
	RoomyPage  *pages;
	int			npages;
	int			capacity;
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
make_space(void)
{
	int			wanted = Max(64, 2 * my.capacity);
	RoomyPage  *more = MemoryContextAllocExtended(TopMemoryContext, wanted * sizeof(RoomyPage),
												  MCXT_ALLOC_NO_OOM);

	if (more == NULL)
		return false;
	if (my.pages != NULL)
	{
		memcpy(more, my.pages, my.npages * sizeof(RoomyPage));
		pfree(my.pages);
	}
	my.pages = more;
	my.capacity = wanted;
	return true;
}

/*
 * Adds the page to those to be entered in the map, or changes its free space if
 * it was added last. Leaves it out if there are too many, or no memory is left.
 */
static void
remember(const RoomyPage *page)
{
	Assert(my.npages <= my.capacity);
	if (my.npages > 0 && my.pages[my.npages - 1].relnumber == page->relnumber &&
		my.pages[my.npages - 1].block == page->block &&
		my.pages[my.npages - 1].level == page->level)
	{
		my.pages[my.npages - 1].space = page->space;
		return;
	}
	if (my.npages == MAX_PAGES)
		return;
	if (my.npages < my.capacity || make_space())
		my.pages[my.npages++] = *page;
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
	remember(&page);
}

/*
 * zreclaim_note_later: See zdml_internal.h. Pages that are not among those of
 * zrollback_undone are left to VACUUM.
 */
void
zreclaim_note_later(Relation rel, BlockNumber block, int space)
{
	ZUndonePage *page = zrollback_undone_page(rel, block);

	if (page != NULL)
		page->space = space;
}

/*
 * Adds the pages whose statement has ended, or ends with this commit, to those
 * for the map: the session may commit nothing more.
 */
static void
remember_undone(void)
{
	bool		goes_on = SPI_inside_nonatomic_context();	/* COMMIT within */
	int			n;
	ZUndonePage *page = zrollback_undone(&n);

	for (int i = 0; i < n; i++)
	{
		RoomyPage	roomy = {page[i].reloid, page[i].locator.relNumber, page[i].block,
		page[i].space, 1};

		if (page[i].space == 0 ||
			(goes_on && page[i].statement == GetCurrentStatementStartTimestamp()))
			continue;
		remember(&roomy);
		page[i].space = 0;
	}
}

/*
 * Returns the block of the map's file that covers this table block: leaf pages
 * and those above them are in depth-first order.
 */
static BlockNumber
map_block(BlockNumber block)
{
	BlockNumber leaf = block / SlotsPerFSMPage;

	return leaf + leaf / SlotsPerFSMPage + leaf / SlotsPerFSMPage / SlotsPerFSMPage + 2;
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
	BlockNumber map_size;
	BlockNumber first = InvalidBlockNumber; /* first block entered since the
											 * upper levels were updated */

	Assert(n > 0);
	if (!smgrexists(RelationGetSmgr(rel), FSM_FORKNUM))
		return;
	map_size = smgrnblocks(RelationGetSmgr(rel), FSM_FORKNUM);
	for (int i = 0; i < n; i++)
	{
		BlockNumber block = page[i].block;

		/* the table may have got another file since */
		if (page[i].relnumber != rel->rd_locator.relNumber || map_block(block) >= map_size)
			continue;
		RecordPageWithFreeSpace(rel, block, Min(page[i].space, MaxHeapTupleSize));
		first = Min(first, block);

		/*
		 * update the upper levels for one page of the map at a time, for
		 * there may be many pages between two of ours
		 */
		if (i + 1 == n || page[i + 1].block / SlotsPerFSMPage != block / SlotsPerFSMPage ||
			page[i + 1].relnumber != page[i].relnumber)
		{
			FreeSpaceMapVacuumRange(rel, first, block + 1);
			first = InvalidBlockNumber;
		}
	}
}

/*
 * zreclaim_pre_commit: See zdml.h. Sorts the pages, so that each table is
 * opened once and the map is written in order.
 */
void
zreclaim_pre_commit(void)
{
	remember_undone();
	if (my.npages > 1)
		qsort(my.pages, my.npages, sizeof(RoomyPage), compare_pages);
	for (int first = 0, end; first < my.npages; first = end)
	{
		Oid			relid = my.pages[first].relid;
		Relation	rel;

		for (end = first + 1; end < my.npages && my.pages[end].relid == relid; end++)
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
		tell_map(rel, &my.pages[first], end - first);
		table_close(rel, NoLock);
	}
}

/*
 * zreclaim_at_xact_end: See zdml.h. Releases the memory if the transaction
 * remembered many pages.
 */
void
zreclaim_at_xact_end(void)
{
	my.npages = 0;
	if (my.capacity > 1024)
	{
		pfree(my.pages);
		my.pages = NULL;
		my.capacity = 0;
	}
}

/*
 * zreclaim_at_subxact_end: See zdml.h. What a committed subtransaction has
 * deleted now counts for its parent; of an aborted one, the rows are there
 * again.
 */
void
zreclaim_at_subxact_end(int level, bool committed)
{
	Assert(my.npages == 0 || my.pages[my.npages - 1].level <= level);
	if (committed)
	{
		for (int i = my.npages - 1; i >= 0 && my.pages[i].level >= level; i--)
			my.pages[i].level = level - 1;
		return;
	}
	while (my.npages > 0 && my.pages[my.npages - 1].level >= level)
		my.npages--;
}
