/*
 * undo/undo_temp.c - the private undo of this backend's temporary tables.
 *
 * Owns a log that no other process sees: records one after the other in chunks
 * of memory, the oldest of which are written to a temporary file when there
 * are many. An undo pointer into it has generation 0 and is the position in
 * all bytes ever written by this backend, so no place is ever used twice.
 *
 * Called by undo_log.c and undo_fetch.c, through which every change and every
 * reader of undo passes, and by rollback/, which undoes what has aborted.
 * Locks: none. Crash points: none; nothing here outlives the process.
 *
 * A record lies in one chunk. The chunk of the insert position is in memory,
 * and nothing is allocated or read between zu_op_prepare and zu_op_finish:
 * zu_temp_prepare raises an error if the chunk that the op needs is not in
 * memory.
 *
 * Invariant
 *	UNDO-24	what is kept is the undo of the current transaction, or of one that
 *		has ended with something rolled back ("pending"); while undo is
 *		pending, no record is written. `oldest` is above every xid in undo that
 *		was given back, and at most the first xid in undo that is kept.
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

/* The private undo of this backend. */
typedef struct TempUndo
{
	MemoryContext context;		/* of the chunks */

	/* the chunks from number first_chunk on; NULL = in the file */
	char	  **chunks;
	uint64		first_chunk;
	int			nchunks;
	int			max_chunks;
	int			in_memory;
	int			spilled;		/* all chunks below this index are in the file */

	File		file;			/* 0 = none */
	uint64		file_start;		/* number of its first chunk */

	uint64		begin;			/* position of the oldest byte kept */
	uint64		end;

	ZXid		oldest;
	ZXid		newest;			/* newest xid in a record so far */

	bool		pending;		/* see UNDO-24 */
	bool		own_aborts;		/* see zu_temp_own_aborts */
	int			written_level;	/* highest nest level with changes, 0 = none */

	/* the files of tables with records in the undo kept */
	ZuTempFile *files;
	int			nfiles;
	int			max_files;
	int			last_file;		/* where note_file found the last one */
} TempUndo;

static TempUndo my = {
	.first_chunk = 1,			/* so that no pointer is 0 */
	.begin = CHUNK_BYTES,
	.end = CHUNK_BYTES,
	.oldest = FirstNormalTransactionId,
	.newest = FirstNormalTransactionId
};

/* Returns the number of the chunk that has position pos. */
static inline uint64
chunk_of(uint64 pos)
{
	return pos / CHUNK_BYTES;
}

/* Returns the bytes of a chunk; NULL if they are in the file. */
static inline char *
chunk_memory(uint64 chunk)
{
	Assert(chunk >= my.first_chunk && chunk < my.first_chunk + my.nchunks);
	return my.chunks[chunk - my.first_chunk];
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

	Assert(my.spilled < my.nchunks - 1);
	if (my.file == 0)
	{
		my.file = OpenTemporaryFile(true);
		my.file_start = my.first_chunk;
	}
	errno = 0;
	written = FileWrite(my.file, my.chunks[my.spilled], CHUNK_BYTES,
						(off_t) (my.first_chunk + my.spilled - my.file_start) * CHUNK_BYTES,
						WAIT_EVENT_BUFFILE_WRITE);
	if (written != CHUNK_BYTES)
	{
		if (written >= 0 && errno == 0)
			errno = ENOSPC;
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not write undo of temporary tables to file \"%s\": %m",
						FilePathName(my.file))));
	}
	pfree(my.chunks[my.spilled]);
	my.chunks[my.spilled++] = NULL;
	my.in_memory--;
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

	if ((my.first_chunk + my.nchunks + 1) * CHUNK_BYTES > MAX_POSITION)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("out of undo address space for temporary zheap tables"),
				 errhint("Start a new session.")));
	if (my.context == NULL)
		my.context = AllocSetContextCreate(TopMemoryContext, "zheap undo of temporary tables",
										   ALLOCSET_DEFAULT_SIZES);
	if (my.nchunks == my.max_chunks)
	{
		int			wanted = Max(2 * my.max_chunks, MIN_CHUNKS);

		if (my.chunks == NULL)
			my.chunks = MemoryContextAlloc(TopMemoryContext, wanted * sizeof(char *));
		else
			my.chunks = repalloc_huge(my.chunks, wanted * sizeof(char *));
		my.max_chunks = wanted;
	}
	while (my.in_memory >= limit && my.spilled < my.nchunks - 1)
		spill_chunk();
	my.chunks[my.nchunks] = MemoryContextAlloc(my.context, CHUNK_BYTES);
	my.nchunks++;
	my.in_memory++;
}

/* Remembers the file of rel, of which records are about to be written. */
static void
note_file(Relation rel)
{
	if (my.last_file < my.nfiles &&
		RelFileLocatorEquals(my.files[my.last_file].locator, rel->rd_locator))
		return;
	for (my.last_file = 0; my.last_file < my.nfiles; my.last_file++)
		if (RelFileLocatorEquals(my.files[my.last_file].locator, rel->rd_locator))
			return;
	if (my.nfiles == my.max_files)
	{
		int			wanted = Max(2 * my.max_files, 8);

		if (my.files == NULL)
			my.files = MemoryContextAlloc(TopMemoryContext, wanted * sizeof(ZuTempFile));
		else
			my.files = repalloc(my.files, wanted * sizeof(ZuTempFile));
		my.max_files = wanted;
	}
	my.files[my.nfiles].locator = rel->rd_locator;
	my.files[my.nfiles].backend = rel->rd_backend;
	my.files[my.nfiles].reloid = RelationGetRelid(rel);
	my.nfiles++;
}

/*
 * zu_temp_reserve: See undo_temp.h. Adds the chunks that the next op may need:
 * nothing may be allocated once it has begun.
 */
void
zu_temp_reserve(Relation rel)
{
	Assert(RelationUsesLocalBuffers(rel));
	Assert(!my.pending);		/* UNDO-24 */
	note_file(rel);

	/*
	 * the op may not fit what is left of the chunk at the position, so the
	 * next chunk must exist, too
	 */
	while (my.first_chunk + my.nchunks <= chunk_of(my.end + ZU_MAX_RESERVE))
		add_chunk();
}

/*
 * Gives everything back except the chunk of the insert position. Raises no
 * error.
 */
static void
discard_all(void)
{
	int			keep = (int) (chunk_of(my.end) - my.first_chunk);

	for (int i = 0; i < my.nchunks; i++)
		if (i < keep && my.chunks[i] != NULL)
		{
			pfree(my.chunks[i]);
			my.in_memory--;
		}
	if (keep > 0 && keep <= my.nchunks)
	{
		memmove(my.chunks, my.chunks + keep, (my.nchunks - keep) * sizeof(char *));
		my.first_chunk += keep;
		my.nchunks -= keep;
	}
	Assert(my.in_memory == my.nchunks);
	my.spilled = 0;
	if (my.file != 0)
		FileClose(my.file);
	my.file = 0;
	my.begin = my.end;
	my.oldest = my.newest + 1;
	my.nfiles = 0;
	my.pending = false;
}

/* ---- writing ---- */

/*
 * zu_temp_prepare: See undo_internal.h. Moves the position to the next chunk
 * if the op does not fit the rest of this one.
 */
void
zu_temp_prepare(ZuOp *op)
{
	uint64		pos = my.end;

	Assert(!my.pending);		/* UNDO-24 */
	/* all records of an op lie in one chunk, which was reserved */
	if (chunk_of(pos) != chunk_of(pos + op->total - 1))
		pos = (chunk_of(pos) + 1) * CHUNK_BYTES;
	if (chunk_of(pos) >= my.first_chunk + my.nchunks || chunk_memory(chunk_of(pos)) == NULL)
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

/* zu_temp_finish: See undo_internal.h. */
void
zu_temp_finish(const ZuOp *op)
{
	const ZuRecord *rec = op->records[0];
	int			level = GetCurrentTransactionNestLevel();

	Assert(rec->xid >= my.oldest);	/* UNDO-24 */
	/* a length of 0 tells zu_temp_next that the rest of the chunk is unused */
	if (chunk_of(op->ptr[0]) != chunk_of(my.end))
		memset(chunk_memory(chunk_of(my.end)) + my.end % CHUNK_BYTES, 0,
			   Min(3, CHUNK_BYTES - my.end % CHUNK_BYTES));
	my.end = op->next;
	my.newest = Max(my.newest, rec->xid);
	my.written_level = Max(my.written_level, level);
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

	Assert(pos % CHUNK_BYTES + n <= CHUNK_BYTES);
	if (memory != NULL)
	{
		memcpy(dst, memory + pos % CHUNK_BYTES, n);
		return;
	}
	errno = 0;
	got = FileRead(my.file, dst, n, (off_t) (pos - my.file_start * CHUNK_BYTES),
				   WAIT_EVENT_BUFFILE_READ);
	if (got < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read undo of temporary tables from file \"%s\": %m",
						FilePathName(my.file))));
	if (got != (int) n)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("file \"%s\" with undo of temporary tables is too short",
						FilePathName(my.file))));
}

/*
 * Copies the record at pos, which is kept, to buf. Returns its length; 0 if
 * there is none, -1 if the length is impossible.
 */
static int
read_record(uint64 pos, char *buf)
{
	Size		left = CHUNK_BYTES - pos % CHUNK_BYTES;
	Size		n = Min(Min(left, my.end - pos), ZUR_MAX_LENGTH);
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

	if (ptr < my.begin || ptr >= my.end)
		return 0;
	len = read_record(ptr, buf);
	return len == 0 ? -1 : len;
}

/* Raises the error for a record that cannot be decoded. */
static void
report_corrupt(uint64 pos)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("invalid undo record of a temporary table"),
			 errdetail("The record at position " UINT64_FORMAT " cannot be decoded.", pos)));
}

/*
 * zu_temp_next: See undo_temp.h. A record that is not there means that the
 * rest of the chunk is unused; the next chunk begins with a record.
 */
bool
zu_temp_next(uint64 *pos, ZuRecord *rec, char *buf)
{
	int			len;

	*pos = Max(*pos, my.begin);
	if (*pos >= my.end)
		return false;
	len = read_record(*pos, buf);
	if (len == 0)
	{
		*pos = (chunk_of(*pos) + 1) * CHUNK_BYTES;
		if (*pos >= my.end)
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
	return my.oldest;
}

bool
zu_temp_pending(void)
{
	return my.pending;
}

bool
zu_temp_own_aborts(void)
{
	return my.own_aborts;
}

const ZuTempFile *
zu_temp_files(int *n)
{
	*n = my.nfiles;
	return my.files;
}

void
zu_temp_resolved(void)
{
	Assert(my.pending);
	discard_all();
}

/*
 * zu_temp_at_xact_end: See undo_temp.h. Gives the undo back if everything in
 * the transaction has committed: no snapshot of this backend outlives its
 * transaction (holdable cursors are read to their end at commit), so none of
 * it is needed any more. Otherwise keeps it until rollback/ has undone what
 * has aborted. That is not done here, because an abort must not fail.
 */
void
zu_temp_at_xact_end(bool committed)
{
	if (my.written_level > 0 && !my.pending)
	{
		if (committed && !my.own_aborts)
			discard_all();
		else
			my.pending = true;
	}
	my.written_level = 0;
	my.own_aborts = false;
}

/*
 * zu_temp_at_subxact_end: See undo_temp.h. What the subtransaction has written
 * belongs to its parent from now on, or has aborted.
 */
void
zu_temp_at_subxact_end(int level, bool committed)
{
	Assert(my.written_level <= level);
	if (my.written_level < level)
		return;
	if (!committed)
		my.own_aborts = true;
	my.written_level = level - 1;
}
