/*
 * scan/zunseen.c - rows that an index scan need not fetch.
 *
 * A snapshot that stays open keeps the index entries of deleted rows, so the
 * scans of younger snapshots pass them, too: those of a queue pass the entries
 * of all jobs that were done meanwhile. A scan that has fetched several rows of
 * a page in vain asks for all rows of the page at once which of them its
 * snapshot sees as deleted (zvis_deleted_rows), and fetches none of these. One
 * that has read undo for them, or for many rows, makes a page view (zvis_page):
 * it fetches none of those of which its snapshot sees no version, and takes the
 * others from the view, until it makes that of another page.
 *
 * What a snapshot sees of a row does not change while it is held, unless a
 * command of its own transaction has called others and continues with its
 * smaller command id; then all is forgotten. It does not see a row that is put
 * at the place of another one later (SAVED-6 and VACUUM), either. That there is
 * no version counts until `oldest` advances, since rows that are dead to all
 * are fetched, so that the index access method can mark their entries. Called
 * by zfetch.c; the memory belongs to the index fetch. No locks but those of
 * zvis_deleted_rows and zvis_page, no crash points.
 */
#include "postgres.h"

#include "scan/zscan_internal.h"
#include "utils/memutils.h"

/* How many rows a scan fetches in vain before it remembers any. */
#define FIRST_ROWS		8
/* The row of a page fetched in vain at which the others are looked at. */
#define ROWS_OF_PAGE	3

/*
 * The number of rows of a page that are walked, one after the other, before a
 * view is made, which costs as much as some 50 walks. If the scan has then
 * taken as many from it, it views the next page at its first walked row.
 */
#define ROWS_WALKED		32

/* A backend's scans make no view if this many are in use. */
#define MAX_VIEWS		64

/* Makes the view of the page in buf. */
static void
make_view(ZUnseen *unseen, void *owner, Relation rel, Buffer buf, Snapshot snapshot,
		  ZUnseenPage *page)
{
	unseen->last = page->block;
	unseen->streak = 0;
	if (unseen->view == NULL)
	{
		if (zpageview_nused() >= MAX_VIEWS)
			return;
		unseen->view = zpageview_take(GetMemoryChunkContext(owner));
	}
	unseen->block = InvalidBlockNumber;
	unseen->at = 0;
	unseen->view->unseen = page->rows;
	zvis_page(rel, buf, snapshot, unseen->view);
	unseen->view->unseen = NULL;
	unseen->block = page->block;
}

/* Returns what is remembered of the block. */
static ZUnseenPage *
find_page(ZUnseen *unseen, void *owner, BlockNumber block)
{
	ZXid		oldest = zu_oldest();
	bool		first = (unseen->pages == NULL);
	ZUnseenPage *page;

	if (first)
		unseen->pages = MemoryContextAlloc(GetMemoryChunkContext(owner),
										   ZUNSEEN_PAGES * sizeof(ZUnseenPage));
	if (unseen->nlate != zown_nlate())
		unseen->block = InvalidBlockNumber; /* no view */
	if (first || unseen->oldest != oldest || unseen->nlate != zown_nlate())
		for (int i = 0; i < ZUNSEEN_PAGES; i++)
			unseen->pages[i].block = InvalidBlockNumber;
	unseen->oldest = oldest;
	unseen->nlate = zown_nlate();
	page = &unseen->pages[block % ZUNSEEN_PAGES];
	if (page->block != block)
	{
		memset(page, 0, sizeof(ZUnseenPage));
		page->block = block;
	}
	return page;
}

/*
 * zunseen_note: See zscan_internal.h. A page is looked at once, when some of
 * its rows have been fetched, since that costs as much as some fetches.
 */
void
zunseen_note(ZUnseen *unseen, void *owner, Relation rel, Buffer buf, Snapshot snapshot, bool walked)
{
	ZUnseenPage *page;

	if (++unseen->nfetched <= FIRST_ROWS)
		return;
	page = find_page(unseen, owner, BufferGetBlockNumber(buf));
	if (++page->nfetched != ROWS_OF_PAGE)
		return;
	if (walked)
		make_view(unseen, owner, rel, buf, snapshot, page);
	else
		zvis_deleted_rows(rel, buf, snapshot, page->rows);
}

/* zunseen_walked: See zscan_internal.h. */
void
zunseen_walked(ZUnseen *unseen, void *owner, Relation rel, Buffer buf, Snapshot snapshot)
{
	BlockNumber block = BufferGetBlockNumber(buf);

	if (unseen->view != NULL && unseen->block == block && unseen->nlate == zown_nlate())
		return;
	if (unseen->last != block && unseen->streak < ROWS_WALKED)
		unseen->streak = 0;
	unseen->last = block;
	if (++unseen->streak >= ROWS_WALKED)
		make_view(unseen, owner, rel, buf, snapshot, find_page(unseen, owner, block));
}

/*
 * zunseen_in_view: See zscan_internal.h. Looks at first behind the row that was
 * found last.
 */
int
zunseen_in_view(ZUnseen *unseen, OffsetNumber off)
{
	const ZPageView *view = unseen->view;
	int			low = 0;
	int			high = view->nrows;

	if (unseen->at < high && view->offset[unseen->at] == off)
		return unseen->at++;
	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (view->offset[middle] < off)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == view->nrows || view->offset[low] != off)
		return -1;
	unseen->at = low + 1;
	return low;
}

/* zunseen_forget: See zscan_internal.h. */
void
zunseen_forget(ZUnseen *unseen)
{
	if (unseen->pages != NULL)
		pfree(unseen->pages);
	unseen->pages = NULL;
	unseen->nfetched = unseen->streak = 0;
	if (unseen->view != NULL)
		zpageview_give_back(unseen->view);
	unseen->view = NULL;
}
