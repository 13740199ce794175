/*
 * mvcc/zknown.c - what this session knows of the table pages that it has come
 * to last.
 *
 * A command that changes many rows comes to each page several times for each
 * row: it fetches the old version, locks and changes the row, and gives back
 * space. Called by dml/, scan/ and mvcc/, with or without the page's lock.
 * Takes no locks but those of reading a buffer.
 */
#include "postgres.h"

#include "mvcc/zknown.h"
#include "pgstat.h"

ZKnownPage	zknown_pages[ZKNOWN_PAGES];
uint64		zknown_epoch = 1;

/* zknown_forget: See zknown.h. */
void
zknown_forget(void)
{
	zknown_epoch++;
}

/* zknown_take: See zknown.h. */
void
zknown_take(ZKnownPage *known, Relation rel, BlockNumber block)
{
	memset(known, 0, sizeof(*known));
	known->reloid = RelationGetRelid(rel);
	known->relnumber = rel->rd_locator.relNumber;
	known->block = block;
}

/*
 * zknown_read: See zknown.h. The tag of a local buffer does not tell whose it
 * is, but only ReadBuffer enters one, and it refuses tables of other sessions.
 */
Buffer
zknown_read(Relation rel, BlockNumber block)
{
	ZKnownPage *known = zknown_page(rel, block);

	if (BufferIsValid(known->buf) &&
		ReadRecentBuffer(rel->rd_locator, MAIN_FORKNUM, block, known->buf))
	{
		pgstat_count_buffer_read(rel);
		pgstat_count_buffer_hit(rel);
		return known->buf;
	}
	known->buf = ReadBuffer(rel, block);
	return known->buf;
}
