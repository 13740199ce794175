/*
 * common/abort_read.c - reading shared buffers from within an abort callback.
 *
 * The server calls transaction callbacks before it releases the resource
 * owners. If the transaction aborts because a read has failed (a damaged page,
 * an I/O error, a file that cannot be opened), the buffer of that read may
 * still be marked as being read by this very backend: 15 removes the mark
 * before the callbacks, 16 and later do not. On 18 a handle for asynchronous
 * I/O may be left as well. A backend that read such a page again would wait for
 * itself, with interrupts held off, and never end. In 15, where the pin of the
 * failed statement still exists, the read would return the buffer without its
 * contents, since 15 takes each page that this backend has pinned for a valid
 * one.
 *
 * ABORT-7 in rollback/: in an abort callback each page that may be on disk is
 * read after zundo_abort_may_read has let it pass, and zundo_abort_forget_io
 * has been called before the first one.
 *
 * Nor does this backend wait without limit for the lock of a page. The process
 * that holds the lock may be waiting for the unfinished read, and then neither
 * of the two would ever continue. So table pages and pages of the undo log are
 * locked by zundo_abort_lock_buffer.
 *
 * Called by undo/ and rollback/. Locks: a buffer mapping lock, shared, while
 * the state of a buffer is looked up; the buffers that callers want locked.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlogutils.h"
#include "common/compat.h"
#include "common/zundo.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"

/*
 * How long this backend waits for a read of the page by another one, and for a
 * lock of another one on the page.
 */
#define FOREIGN_READ_MS 200
#define FOREIGN_LOCK_MS 200

typedef enum PageState
{
	PAGE_ABSENT,				/* it has no buffer */
	PAGE_BEING_READ,
	PAGE_NOT_READ,				/* a read has failed */
	PAGE_VALID
} PageState;

/* Returns the state of the main fork's block in shared buffers. */
static PageState
look_up_page(RelFileLocator locator, BlockNumber block)
{
	BufferTag	tag;
	uint32		hash;
	LWLock	   *lock;
	int			id;
	PageState	result = PAGE_ABSENT;

	zc_init_buffer_tag(&tag, locator, block);
	hash = BufTableHashCode(&tag);
	lock = BufMappingPartitionLock(hash);
	Assert(!LWLockHeldByMe(lock));
	LWLockAcquire(lock, LW_SHARED);
	id = BufTableLookup(&tag, hash);
	if (id >= 0)
	{
		uint64		state = zc_buffer_state(GetBufferDescriptor(id));

		if ((state & BM_VALID) != 0)
			result = PAGE_VALID;
		else if ((state & BM_IO_IN_PROGRESS) != 0)
			result = PAGE_BEING_READ;
		else
			result = PAGE_NOT_READ;
	}
	LWLockRelease(lock);
	return result;
}

/*
 * zundo_abort_may_read: See zundo.h.
 *
 * On 18 the reads ahead of the statement that failed may occupy all of the
 * backend's I/O handles. To get one back the server would report the read's
 * result to the scan, whose memory is free by now.
 */
void
zundo_abort_may_read(RelFileLocator locator, BlockNumber block)
{
	PageState	state;

	Assert(RelFileNumberIsValid(locator.relNumber) && BlockNumberIsValid(block));
	if (likely(IsTransactionState()) || InRecovery)
		return;
	for (int i = 0; (state = look_up_page(locator, block)) == PAGE_BEING_READ &&
		 i < FOREIGN_READ_MS; i++)
		pg_usleep(1000);
	if (state == PAGE_VALID || (state == PAGE_ABSENT && zc_io_handle_is_free()))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_IO_ERROR),
			 errmsg("block %u of file %u cannot be read after a read has failed",
					block, locator.relNumber)));
}

/* zundo_abort_lock_buffer: See zundo.h. */
void
zundo_abort_lock_buffer(Buffer buf, int mode)
{
	BlockNumber block;
	RelFileLocator locator;
	ForkNumber	fork;

	Assert(BufferIsValid(buf) && !BufferIsLocal(buf));
	Assert(mode == BUFFER_LOCK_SHARE || mode == BUFFER_LOCK_EXCLUSIVE);
	if (likely(IsTransactionState()) || InRecovery)
	{
		LockBuffer(buf, mode);
		return;
	}
	/* ABORT-7 */
	Assert((zc_buffer_state(GetBufferDescriptor(buf - 1)) & BM_VALID) != 0);
	for (int i = 0; i < FOREIGN_LOCK_MS; i++)
	{
		if (ConditionalLockBuffer(buf))
			return;
		pg_usleep(1000);
	}
	BufferGetTag(buf, &locator, &fork, &block);
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg("block %u of file %u is locked by another process", block, locator.relNumber)));
}

/* zundo_abort_forget_io: See zundo.h. */
void
zundo_abort_forget_io(void)
{
	zc_forget_io();
}
