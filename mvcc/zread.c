/*
 * mvcc/zread.c - the table page that this session has come to last.
 *
 * A command that changes many rows comes to each page several times for each
 * row: it fetches the old version, and then changes the row. Called by dml/,
 * scan/ and zany.c without buffer locks. Takes no locks but those of reading a
 * buffer.
 */
#include "postgres.h"

#include "common/zundo.h"
#include "mvcc/zread.h"
#include "pgstat.h"
#include "utils/rel.h"

/*
 * The page that was read last, and the buffer where it was. Only a hint: the
 * buffer may have another page by now.
 */
static struct
{
	RelFileNumber relnumber;
	BlockNumber block;
	Buffer		buf;
}			last_page;

/*
 * zread_page: See zread.h. The tag of a local buffer does not tell whose it
 * is: the file of a temporary table may have the number of another table's,
 * also of another session's temporary table, which ReadBuffer refuses.
 */
Buffer
zread_page(Relation rel, BlockNumber block)
{
	if (last_page.block == block && last_page.relnumber == rel->rd_locator.relNumber &&
		BufferIsValid(last_page.buf) &&
		BufferIsLocal(last_page.buf) == RelationUsesLocalBuffers(rel) &&
		!RELATION_IS_OTHER_TEMP(rel) &&
		ReadRecentBuffer(rel->rd_locator, MAIN_FORKNUM, block, last_page.buf))
	{
		pgstat_count_buffer_read(rel);
		pgstat_count_buffer_hit(rel);
		return last_page.buf;
	}
	last_page.buf = ReadBuffer(rel, block);
	last_page.relnumber = rel->rd_locator.relNumber;
	last_page.block = block;
	return last_page.buf;
}
