/*
 * scan/zunseen.c - deleted rows that an index scan need not fetch.
 *
 * A snapshot that stays open keeps the index entries of deleted rows, so the
 * scans of younger snapshots pass them, too: those of a queue pass the entries
 * of all jobs that were done meanwhile. A scan that has fetched several rows of
 * a page in vain asks for all rows of the page at once which of them its
 * snapshot sees as deleted (zvis_deleted_rows), and fetches none of these.
 *
 * What is remembered counts until `oldest` advances: for so long no line
 * pointer is given to another row. Rows that are dead to all are fetched, so
 * that the index access method can mark their entries. Called by zfetch.c; the
 * memory belongs to the index fetch. No locks but that of zvis_deleted_rows,
 * no crash points.
 */
#include "postgres.h"

#include "scan/zscan_internal.h"
#include "utils/memutils.h"

/* How many rows a scan fetches in vain before it remembers any. */
#define FIRST_ROWS		8
/* The row of a page fetched in vain at which the others are looked at. */
#define ROWS_OF_PAGE	3

/*
 * zunseen_note: See zscan_internal.h. A page is looked at once, when some of
 * its rows have been fetched, since that costs as much as some fetches.
 */
void
zunseen_note(ZUnseen *unseen, void *owner, Relation rel, Buffer buf, Snapshot snapshot)
{
	BlockNumber block = BufferGetBlockNumber(buf);
	ZXid		oldest = zu_oldest();
	ZUnseenPage *page;

	if (++unseen->nfetched <= FIRST_ROWS)
		return;
	if (unseen->pages == NULL)
		unseen->pages = MemoryContextAlloc(GetMemoryChunkContext(owner),
										   ZUNSEEN_PAGES * sizeof(ZUnseenPage));
	if (unseen->nfetched == FIRST_ROWS + 1 || unseen->oldest != oldest)
		for (int i = 0; i < ZUNSEEN_PAGES; i++)
			unseen->pages[i].block = InvalidBlockNumber;
	unseen->oldest = oldest;
	page = &unseen->pages[block % ZUNSEEN_PAGES];
	if (page->block != block)
	{
		memset(page, 0, sizeof(ZUnseenPage));
		page->block = block;
	}
	if (++page->nfetched == ROWS_OF_PAGE)
		zvis_deleted_rows(rel, buf, snapshot, page->rows);
}

/* zunseen_forget: See zscan_internal.h. */
void
zunseen_forget(ZUnseen *unseen)
{
	if (unseen->pages != NULL)
		pfree(unseen->pages);
	unseen->pages = NULL;
	unseen->nfetched = 0;
}
