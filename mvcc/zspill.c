/*
 * mvcc/zspill.c - bytes of this backend's transaction, one after the other: up
 * to work_mem in memory, the others in a temporary file.
 *
 * The first bytes are in blocks of memory, the next ones in the file, and the
 * last ones, at most one page, in a buffer that has still to be written. The
 * file begins where the blocks end. The server's BufFile does not suit: an
 * error while it writes its buffer would come back when it is closed, at the
 * end of a transaction that continues after a rollback to a savepoint. Here
 * only zspill_write writes, and what it has written counts only when all of it
 * is in the file.
 *
 * Called by zhandle.c. Nothing here is shared or outlives the transaction. No
 * locks. Crash points: "rows-written".
 */
#include "postgres.h"

#include "commands/tablespace.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "mvcc/zspill.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/wait_event.h"

/* Blocks of memory are so large that each is freed to the system alone. */
#define MEMORY_BLOCK	(4 * BLCKSZ)
#define FIRST_CAPACITY	64

static struct
{
	char	  **blocks;			/* in TopTransactionContext, as each of them */
	uint32		nblocks;
	uint32		capacity;
	File		file;			/* 0: none */
	uint64		written;		/* the file has the bytes up to this place */
	uint64		window_start;	/* place of the first byte in window */
	Size		window_len;
	char		tail[BLCKSZ];	/* the bytes from written on */
	char		window[BLCKSZ]; /* what was read from the file last */
}			my;

/* Returns where the file begins: all before is in memory. */
static inline uint64
memory_end(void)
{
	return (uint64) my.nblocks * MEMORY_BLOCK;
}

/* Adds a block of memory. Returns false if work_mem or memory is exhausted. */
static bool
add_block(void)
{
	char	   *block;

	if (memory_end() + MEMORY_BLOCK > work_mem * UINT64CONST(1024))
		return false;
	if (my.blocks == NULL)
	{
		my.blocks = MemoryContextAlloc(TopTransactionContext, FIRST_CAPACITY * sizeof(char *));
		my.capacity = FIRST_CAPACITY;
	}
	else if (my.nblocks == my.capacity)
	{
		my.blocks = repalloc_huge(my.blocks, (Size) my.capacity * 2 * sizeof(char *));
		my.capacity *= 2;
	}
	block = MemoryContextAllocExtended(TopTransactionContext, MEMORY_BLOCK, MCXT_ALLOC_NO_OOM);
	if (block == NULL)
		return false;
	my.blocks[my.nblocks++] = block;
	return true;
}

/*
 * Opens the file. It belongs to the transaction, so that the end of a
 * subtransaction does not remove it.
 */
static void
open_file(void)
{
	ResourceOwner owner = CurrentResourceOwner;

	PrepareTempTablespaces();	/* reads catalogs */
	CurrentResourceOwner = TopTransactionResourceOwner;
	my.file = OpenTemporaryFile(false);
	CurrentResourceOwner = owner;
	my.written = memory_end();
	my.window_len = 0;
}

/* Closes and removes the file, if there is one. Raises no error. */
static void
close_file(void)
{
	if (my.file != 0)
		FileClose(my.file);
	my.file = 0;
}

/*
 * Writes the full tail to the file. The window may have what was there before,
 * if a rollback has given that up.
 */
static void
write_tail(void)
{
	ZUNDO_FAULT("rows-written");
	my.window_len = 0;
	if (FileWrite(my.file, my.tail, BLCKSZ, (off_t) (my.written - memory_end()),
				  WAIT_EVENT_BUFFILE_WRITE) != BLCKSZ)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write to file \"%s\": %m", FilePathName(my.file))));
	my.written += BLCKSZ;
}

/* Reads the bytes at place, and those behind, from the file to the window. */
static void
read_window(uint64 place)
{
	int			len = (int) Min(my.written - place, BLCKSZ);
	int			got;

	my.window_len = 0;
	got = (int) FileRead(my.file, my.window, len, (off_t) (place - memory_end()),
						 WAIT_EVENT_BUFFILE_READ);
	if (got < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", FilePathName(my.file))));
	if (got != len)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("could not read file \"%s\": read %d of %d", FilePathName(my.file), got,
						len)));
	my.window_start = place;
	my.window_len = len;
}

/*
 * Returns where the byte at place is to be written, and reduces *size to what
 * fits there.
 */
static char *
space_at(uint64 place, Size *size)
{
	Size		used;

	if (place < memory_end() || (my.file == 0 && add_block()))
	{
		Assert(place < memory_end());
		used = place % MEMORY_BLOCK;
		*size = Min(*size, MEMORY_BLOCK - used);
		return my.blocks[place / MEMORY_BLOCK] + used;
	}
	if (my.file == 0)
		open_file();
	my.written = Min(my.written, place);
	Assert(place - my.written <= BLCKSZ);
	if (place - my.written == BLCKSZ)
		write_tail();
	used = place - my.written;
	*size = Min(*size, BLCKSZ - used);
	return my.tail + used;
}

/* Returns where the byte at place is, and reduces *size to what is there. */
static const char *
bytes_at(uint64 place, Size *size)
{
	Size		before;

	if (place < memory_end())
	{
		before = place % MEMORY_BLOCK;
		*size = Min(*size, MEMORY_BLOCK - before);
		return my.blocks[place / MEMORY_BLOCK] + before;
	}
	Assert(my.file != 0);
	if (place >= my.written)
	{
		before = place - my.written;
		Assert(before + *size <= BLCKSZ);
		return my.tail + before;
	}
	if (place < my.window_start || place >= my.window_start + my.window_len)
		read_window(place);
	before = place - my.window_start;
	*size = Min(*size, my.window_len - before);
	return my.window + before;
}

/* zspill_write: See zspill.h. */
uint64
zspill_write(uint64 place, const void *from, Size size)
{
	while (size > 0)
	{
		Size		part = size;
		char	   *to = space_at(place, &part);

		memcpy(to, from, part);
		from = (const char *) from + part;
		place += part;
		size -= part;
	}
	return place;
}

/* zspill_read: See zspill.h. */
void
zspill_read(uint64 place, void *to, Size size)
{
	while (size > 0)
	{
		Size		part = size;
		const char *from = bytes_at(place, &part);

		memcpy(to, from, part);
		to = (char *) to + part;
		place += part;
		size -= part;
	}
}

/* zspill_cut: See zspill.h. One block stays, for the next statement. */
void
zspill_cut(uint64 place)
{
	if (place <= memory_end())
		close_file();
	while (my.nblocks > 1 && place <= memory_end() - MEMORY_BLOCK)
		pfree(my.blocks[--my.nblocks]);
}

/* zspill_at_xact_end: See zspill.h. The memory is the transaction's. */
void
zspill_at_xact_end(void)
{
	close_file();
	my.blocks = NULL;
	my.nblocks = my.capacity = 0;
}
