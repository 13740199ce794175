/*
 * undo/undo_temp.c - the private undo of this backend's temporary tables.
 *
 * Owns a log that no other process sees: records one after the other in chunks
 * of memory, the oldest of which are written to a temporary file when there
 * are many.
 * An undo pointer into it has generation 0 and is the position in all bytes
 * ever written by this backend, so no place is ever used twice.
 *
 * Called by undo_log.c and undo_fetch.c, through which every change and every
 * reader of undo passes, and by rollback/, which undoes what has aborted.
 * Locks: none. Crash points: none; nothing here outlives the process.
 *
 * Invariants
 *	UNDO-23	a page of a temporary table has private pointers only, any other
 *			page none.
 *	UNDO-24	what is kept is the undo of the current transaction, or of one that
 *		has ended with something rolled back ("pending"); while undo is
 *		pending, no record is written.
 *	UNDO-25	`oldest` is above every xid in undo that was given back, and at most
 *		the first xid in undo that is kept.
 *	UNDO-26	a record lies in one chunk. The chunk of the insert position is in
 *			memory.
 *	UNDO-27	nothing is allocated or read between zu_prepare and zu_finish.
 */
#include "undo/undo_internal.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "undo/undo_temp.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#define CHUNK_BYTES		(64 * 1024)
#define MIN_CHUNKS		16		/* number of chunks kept in memory in any case */

/* Positions fill the pointer below the generation. */
#define MAX_POSITION	(UINT64CONST(1) << (ZU_EXTENT_BITS + ZU_BYTE_BITS))

StaticAssertDecl(CHUNK_BYTES >= ZU_MAX_RESERVE, "what one op writes fits a chunk");

static MemoryContext context = NULL;

/* The chunks first_chunk .. first_chunk + nchunks - 1; NULL = in the file. */
static char **chunks = NULL;
static uint64 first_chunk = 1;	/* so that no pointer is 0 */
static int	nchunks = 0;
static int	max_chunks = 0;
static int	in_memory = 0;
static int	spilled = 0;		/* all chunks below this index are in the file */

static File file = 0;			/* 0 = none */
static uint64 file_start;		/* number of its first chunk */

static uint64 begin = CHUNK_BYTES;	/* position of the oldest byte kept */
static uint64 end = CHUNK_BYTES;

static ZXid oldest = FirstNormalTransactionId;
static ZXid newest = FirstNormalTransactionId;	/* newest xid in a record so
												 * far */

static bool pending = false;
static bool own_aborts = false;
static int	written_level = 0;	/* highest nest level with changes, 0 = none */

static ZuTempFile *files = NULL;
static int	nfiles = 0;
static int	max_files = 0;

static inline uint64
chunk_of(uint64 pos)
{
	return pos / CHUNK_BYTES;
}

/* Returns the bytes of a chunk; NULL if they are in the file. */
static inline char *
chunk_memory(uint64 chunk)
{
	Assert(chunk >= first_chunk && chunk < first_chunk + nchunks);
	return chunks[chunk - first_chunk];
}

/* ---- space ---- */

/*
 * Writes the oldest chunk in memory to the file and frees its memory. Raises an
 * error if the file cannot be written; the chunk stays in memory then.
 */
static void
spill_chunk(void)
{
	int			written;

	if (file == 0)
	{
		file = OpenTemporaryFile(true);
		file_start = first_chunk;
	}
	errno = 0;
	written = FileWrite(file, chunks[spilled], CHUNK_BYTES,
						(off_t) (first_chunk + spilled - file_start) * CHUNK_BYTES,
						WAIT_EVENT_BUFFILE_WRITE);
	if (written != CHUNK_BYTES)
	{
		if (written >= 0 && errno == 0)
			errno = ENOSPC;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write undo of temporary tables to file \"%s\": %m",
						FilePathName(file))));
	}
	pfree(chunks[spilled]);
	chunks[spilled++] = NULL;
	in_memory--;
}

/*
 * Adds a chunk behind the last one. Spills old ones first if there are more in
 * memory than temp_buffers allows, but never the last one. Raises an error if
 * memory, disk or positions are exhausted.
 */
static void
add_chunk(void)
{
	int			limit = Max(MIN_CHUNKS, (int) ((int64) num_temp_buffers * BLCKSZ / CHUNK_BYTES));

	if ((first_chunk + nchunks + 1) * CHUNK_BYTES > MAX_POSITION)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("out of undo address space for temporary zheap tables"),
				 errhint("Start a new session.")));
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "zheap undo of temporary tables",
										ALLOCSET_DEFAULT_SIZES);
	if (nchunks == max_chunks)
	{
		int			wanted = Max(2 * max_chunks, MIN_CHUNKS);

		if (chunks == NULL)
			chunks = MemoryContextAlloc(TopMemoryContext, wanted * sizeof(char *));
		else
			chunks = repalloc_huge(chunks, wanted * sizeof(char *));
		max_chunks = wanted;
	}
	while (in_memory >= limit && spilled < nchunks - 1)
		spill_chunk();
	chunks[nchunks] = MemoryContextAlloc(context, CHUNK_BYTES);
	nchunks++;
	in_memory++;
}

/* Remembers the file of rel, of which records are about to be written. */
static void
note_file(Relation rel)
{
	static int	last = 0;

	if (last < nfiles && RelFileLocatorEquals(files[last].locator, rel->rd_locator))
		return;
	for (last = 0; last < nfiles; last++)
		if (RelFileLocatorEquals(files[last].locator, rel->rd_locator))
			return;
	if (nfiles == max_files)
	{
		int			wanted = Max(2 * max_files, 8);

		if (files == NULL)
			files = MemoryContextAlloc(TopMemoryContext, wanted * sizeof(ZuTempFile));
		else
			files = repalloc(files, wanted * sizeof(ZuTempFile));
		max_files = wanted;
	}
	files[nfiles].locator = rel->rd_locator;
	files[nfiles].backend = rel->rd_backend;
	files[nfiles].reloid = RelationGetRelid(rel);
	nfiles++;
}

/*
 * Adds the chunks that the next op may need: nothing may be allocated once it
 * has begun (UNDO-27).
 */
void
zu_temp_reserve(Relation rel, Size bytes)
{
	Assert(bytes <= ZU_MAX_RESERVE && !pending && RelationUsesLocalBuffers(rel));
	note_file(rel);

	/*
	 * the op may not fit what is left of the chunk at the position, so the
	 * next chunk must exist, too
	 */
	while (first_chunk + nchunks <= chunk_of(end + bytes))
		add_chunk();
}

/*
 * Gives everything back except the chunk of the insert position. Raises no
 * error.
 */
static void
discard_all(void)
{
	int			keep = (int) (chunk_of(end) - first_chunk);

	for (int i = 0; i < nchunks; i++)
		if (i < keep && chunks[i] != NULL)
		{
			pfree(chunks[i]);
			in_memory--;
		}
	if (keep > 0 && keep <= nchunks)
	{
		memmove(chunks, chunks + keep, (nchunks - keep) * sizeof(char *));
		first_chunk += keep;
		nchunks -= keep;
	}
	Assert(in_memory == nchunks);
	spilled = 0;
	if (file != 0)
		FileClose(file);
	file = 0;
	begin = end;
	oldest = newest + 1;
	nfiles = 0;
	pending = false;
}

/* ---- writing ---- */

/*
 * Moves the position to the next chunk if the op does not fit the rest of this
 * one (UNDO-26).
 */
void
zu_temp_prepare(ZuOp *op)
{
	uint64		pos = end;

	/* all records of an op lie in one chunk, which was reserved */
	if (chunk_of(pos) != chunk_of(pos + op->total - 1))
		pos = (chunk_of(pos) + 1) * CHUNK_BYTES;
	if (chunk_of(pos) >= first_chunk + nchunks || chunk_memory(chunk_of(pos)) == NULL)
		elog(ERROR, "private undo of %u bytes was not reserved", op->total);
	op->npages = 0;
	op->place.generation = 0;
	for (int i = 0; i < op->nrecords; i++)
	{
		op->ptr[i] = (UndoPtr) pos;
		pos += op->records[i]->length;
	}
	op->next = (UndoPtr) pos;
}

void
zu_temp_write(const ZuOp *op)
{
	for (int i = 0; i < op->nrecords; i++)
		zur_pack(op->records[i], chunk_memory(chunk_of(op->ptr[i])) + op->ptr[i] % CHUNK_BYTES);
}

/* Advances the position, and notes the highest nest level that has written. */
void
zu_temp_finish(const ZuOp *op)
{
	const ZuRecord *rec = op->records[0];
	int			level = GetCurrentTransactionNestLevel();

	/* a length of 0 tells zu_temp_next that the rest of the chunk is unused */
	if (chunk_of(op->ptr[0]) != chunk_of(end))
		memset(chunk_memory(chunk_of(end)) + end % CHUNK_BYTES, 0,
			   Min(3, CHUNK_BYTES - end % CHUNK_BYTES));
	end = op->next;
	newest = Max(newest, rec->xid);
	written_level = Max(written_level, level);
}

/* ---- reading ---- */

/*
 * Copies n bytes at pos, all of one chunk, from memory or from the file. Raises
 * an error if the file cannot be read.
 */
static void
read_bytes(uint64 pos, char *dst, Size n)
{
	const char *memory = chunk_memory(chunk_of(pos));
	int			got;

	if (memory != NULL)
	{
		memcpy(dst, memory + pos % CHUNK_BYTES, n);
		return;
	}
	errno = 0;
	got = FileRead(file, dst, n, (off_t) (pos - file_start * CHUNK_BYTES), WAIT_EVENT_BUFFILE_READ);
	if (got < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read undo of temporary tables from file \"%s\": %m",
						FilePathName(file))));
	if (got != (int) n)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" with undo of temporary tables is too short",
						FilePathName(file))));
}

/*
 * Copies the record at pos, which is kept, to buf. Returns its length; 0 if
 * there is none, -1 if the length is impossible.
 */
static int
read_record(uint64 pos, char *buf)
{
	Size		room = CHUNK_BYTES - pos % CHUNK_BYTES;
	Size		n = Min(Min(room, end - pos), ZUR_MAX_LENGTH);
	const char *memory = chunk_memory(chunk_of(pos));
	Size		length;

	if (n < 3)
		return 0;
	if (memory != NULL)
	{
		memory += pos % CHUNK_BYTES;
		length = zur_peek_length(memory, n);
	}
	else
	{
		read_bytes(pos, buf, n);
		length = zur_peek_length(buf, n);
	}
	if (length > n)
		return -1;
	if (memory != NULL)
		memcpy(buf, memory, length);
	return (int) length;
}

int
zu_temp_gather(UndoPtr ptr, char *buf)
{
	int			len;

	if (ptr < begin || ptr >= end)
		return 0;
	len = read_record(ptr, buf);
	return len == 0 ? -1 : len;
}

static void
report_corrupt(uint64 pos)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid undo record of a temporary table"),
			 errdetail("The record at position " UINT64_FORMAT " cannot be decoded.", pos)));
}

/*
 * A record that is not there means that the rest of the chunk is unused; the
 * next chunk begins with a record.
 */
bool
zu_temp_next(uint64 *pos, ZuRecord *rec, char *buf)
{
	int			len;

	*pos = Max(*pos, begin);
	if (*pos >= end)
		return false;
	len = read_record(*pos, buf);
	if (len == 0)
	{
		*pos = (chunk_of(*pos) + 1) * CHUNK_BYTES;
		if (*pos >= end)
			return false;
		len = read_record(*pos, buf);
	}
	if (len <= 0 || !zur_unpack(buf, len, rec))
		report_corrupt(*pos);
	*pos += len;
	return true;
}

/* ---- what is kept ---- */

ZXid
zu_temp_oldest(void)
{
	return oldest;
}

bool
zu_temp_pending(void)
{
	return pending;
}

bool
zu_temp_own_aborts(void)
{
	return own_aborts;
}

uint64
zu_temp_bytes(void)
{
	return end - begin;
}

const ZuTempFile *
zu_temp_files(int *n)
{
	*n = nfiles;
	return files;
}

void
zu_temp_settled(void)
{
	Assert(pending);
	discard_all();
}

/*
 * Gives the undo back if everything in the transaction has committed: no
 * snapshot of this backend outlives its transaction (holdable cursors are read
 * to their end at commit), so none of it is needed any more. Otherwise keeps it
 * until rollback/ has undone what has aborted. That is not done here, because
 * an abort must not fail.
 */
void
zu_temp_at_xact_end(bool committed)
{
	if (written_level > 0 && !pending)
	{
		if (committed && !own_aborts)
			discard_all();
		else
			pending = true;
	}
	written_level = 0;
	own_aborts = false;
}

/*
 * What the subtransaction has written belongs to its parent from now on, or has
 * aborted.
 */
void
zu_temp_at_subxact_end(int level, bool committed)
{
	if (written_level < level)
		return;
	if (!committed)
		own_aborts = true;
	written_level = level - 1;
}
