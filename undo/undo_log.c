/*
 * undo/undo_log.c - writing undo: attach a log, reserve, prepare, write,
 * finish.
 *
 * Owns this backend's log: its insert position is backend-local and published
 * with one atomic store per op. Called by DML in the order given in undo.h,
 * and by redo (zu_op_redo).
 *
 * Locks: alloc lock when attaching, detaching and allocating (never with a
 * buffer locked); the op's undo pages exclusively, ascending, from
 * zu_op_prepare to zu_op_finish.
 *
 * Crash points
 *	before XLogInsert	nothing is durable; the next owner overwrites these
 *						bytes
 *	after XLogInsert	redo rebuilds the bytes from the WAL record alone
 *
 * The page at the insert position stays pinned from op to op of a transaction,
 * if there are buffers enough. The pin is the top-level transaction's; it is
 * released before the log can be taken and before files of an aborted
 * subtransaction, of which the log may be one, are removed. Until then the
 * page's extent is the log's current one, or the next, so it is neither freed
 * nor cut off.
 *
 * Invariants
 *	UNDO-13	a log is written by its owner only. Its insert position never moves
 *		back, and as published covers only records of finished ops; no scan
 *		reads further than the insert position that it was given.
 *	UNDO-16	the first record of a top-level transaction in a log has ZUF_FIRST.
 *		A page's topxid is the top-level transaction of the record whose bytes
 *		begin the page: that of the last record with ZUF_FIRST up to it.
 *	UNDO-36	a log whose end was found by reading its pages continues in a fresh
 *		extent, whose first page names that end: if the last page's latest
 *		write was lost, no new record takes a place that a table page still
 *		points to.
 *	UNDO-50	a log is taken from a session, by another one (choose_log) or by
 *		discard/free.c, only while it does not hold it: ZuLog.owner has
 *		ZU_LOG_HELD from hold_log to the end of the transaction. Both sides
 *		change it by compare-and-exchange.
 */
#include "undo/undo_internal.h"
#include "undo/undo_request.h"

#include "access/xact.h"
#include "access/xloginsert.h"
#include "access/xlogutils.h"
#include "common/fault.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

/*
 * A log moves to a lower extent when its current one lies this far beyond twice
 * the number of extents in use.
 */
#define RETIRE_SLACK	16

/*
 * A session takes a log that its owner has not written for this long: TAKE_MS
 * if the session has had no log yet, LEND_MS if its own was taken. The latter
 * is longer, so that sessions which write often do not take each other's logs
 * again and again. If undo is full, an unused log would get no extent, so any
 * log that is not held is taken.
 */
#define TAKE_MS			20
#define LEND_MS			1000

/*
 * The page at the insert position is kept pinned only if there are this many
 * buffers for each process: transactions that are idle must not leave too few
 * to others.
 */
#define BUFFERS_PER_PIN	8

typedef struct MyLog
{
	bool		attached;		/* this backend has a log, unless the log was
								 * taken from it (hold_log) */
	bool		held;			/* ZU_LOG_HELD is set: the log cannot be taken
								 * in this transaction */
	uint32		logno;
	ZuExtent	current;		/* generation 0 = none yet */
	ZuExtent	ahead;			/* allocated, not entered; generation 0 = none */
	int			page;			/* insert position in current; page 64 = full */
	int			off;
	Buffer		pinned;			/* that page's buffer if it stays pinned from
								 * op to op; else InvalidBuffer */
	BlockNumber pinned_block;
	ZXid		last_top;		/* top-level xid of the newest record */
	UndoPtr		start;			/* of the current top-level transaction */
	uint64		bytes;			/* undo that it has written */
	bool		woke;			/* zu_op_reserve has looked for a worker in
								 * this transaction */
} MyLog;

static MyLog my;

/* Returns the shared part of this backend's log. */
static inline ZuLog *
my_shared(void)
{
	return &zu_my.entry->logs[my.logno];
}

/* Returns how many data bytes the current extent still takes. */
static inline uint32
space_left(void)
{
	if (my.current.generation == 0 || my.page >= ZU_EXTENT_PAGES)
		return 0;
	return (ZU_EXTENT_PAGES - my.page) * ZU_PAGE_SPACE - (my.off - ZU_PAGE_DATA);
}

/* zu_unpin_page: See undo_internal.h. */
void
zu_unpin_page(void)
{
	ResourceOwner saved = CurrentResourceOwner;

	if (!BufferIsValid(my.pinned))
		return;
	Assert(TopTransactionResourceOwner != NULL);
	CurrentResourceOwner = TopTransactionResourceOwner;
	ReleaseBuffer(my.pinned);
	CurrentResourceOwner = saved;
	my.pinned = InvalidBuffer;
}

/*
 * Keeps the page in buf, which an op has pinned, pinned until the end of the
 * top-level transaction, in place of the page that was kept so before. Raises
 * an error if memory is short; the abort then restores CurrentResourceOwner.
 */
static void
keep_pinned(Buffer buf)
{
	ResourceOwner saved = CurrentResourceOwner;

	Assert(my.held && !BufferIsLocal(buf)); /* UNDO-50 */
	zu_unpin_page();
	CurrentResourceOwner = TopTransactionResourceOwner;
	IncrBufferRefCount(buf);
	CurrentResourceOwner = saved;
	my.pinned = buf;
	my.pinned_block = BufferGetBlockNumber(buf);
}

/*
 * Releases the pin, as zu_unpin_page does, when a transaction or subtransaction
 * has ended. Unlocks the page first if an error has left it locked.
 */
static void
unpin_at_end(void)
{
	if (!BufferIsValid(my.pinned))
		return;
	zc_unlock_after_error(my.pinned);
	zu_unpin_page();
}

/* Sets the backend-local insert position within the current extent from ptr. */
static void
set_position(UndoPtr ptr)
{
	uint32		byte = zuptr_byte(ptr);

	Assert(zuptr_extent(ptr) == my.current.extent &&
		   zuptr_generation(ptr) == my.current.generation);
	my.page = byte >= ZU_EXTENT_END ? ZU_EXTENT_PAGES : (int) (byte / BLCKSZ);
	my.off = byte >= ZU_EXTENT_END ? ZU_PAGE_DATA : (int) (byte % BLCKSZ);
}

/* ---- attaching ---- */

/*
 * Returns whether the log's owner does not hold it and has not written it since
 * 'before'. Such a log may be taken (UNDO-50).
 */
static inline bool
is_lent(ZuLog *log, uint32 owner, TimestampTz before)
{
	if (owner == 0 || (owner & ZU_LOG_HELD) != 0)
		return false;
	pg_read_barrier();			/* idle_since was written before owner */
	return (TimestampTz) pg_atomic_read_u64(&log->idle_since) <= before;
}

/*
 * Returns the log to attach to: an unattached one that has extents, else one
 * that is taken from an idle session, which has not written it for LEND_MS (for
 * TAKE_MS if this session has had no log yet; at all if undo is full), else an
 * unused one; -1 if there is none. So there are as many logs as sessions that
 * write at the same time, not as many as have ever written. The log is
 * unattached then: the session that it was taken from finds that out in its
 * next transaction, and attaches another log. had_log: this backend has had a
 * log. Alloc lock held.
 */
static int
choose_log(ZuEntry *entry, bool had_log)
{
	int			idle_ms = zu_is_full(entry) ? 0 : had_log ? LEND_MS : TAKE_MS;
	TimestampTz before = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), -idle_ms);
	uint32		owner;
	int			lent;
	int			fresh;

	Assert(LWLockHeldByMe(zu_alloc_lock(entry)));
	do
	{
		lent = fresh = -1;
		for (int i = 0; i < zu_nlogs(); i++)
		{
			ZuLog	   *log = &entry->logs[i];

			owner = pg_atomic_read_u32(&log->owner);
			if (log->closed)
				continue;
			if (owner == 0 && pg_atomic_read_u64(&log->insert) != InvalidUndoPtr)
				return i;
			if (owner == 0 && fresh < 0)
				fresh = i;
			if (lent < 0 && is_lent(log, owner, before))
				lent = i;
		}
		if (lent < 0)
			return fresh;
		ZUNDO_FAULT("taking-log");
		owner = pg_atomic_read_u32(&entry->logs[lent].owner);
	} while ((owner & ZU_LOG_HELD) != 0 ||
			 !pg_atomic_compare_exchange_u32(&entry->logs[lent].owner, &owner, 0));
	return lent;
}

/*
 * Attaches an unattached log to this backend and holds it. Loads the logs of
 * the database if that has not been done. Raises an error if no log is
 * available.
 */
static void
attach_log(void)
{
	ZuEntry    *entry = zu_my.entry;
	ZuLog	   *log;
	UndoPtr		insert;
	bool		had_log = my.attached;
	int			i;

	zu_require_logs();
	Assert(!BufferIsValid(my.pinned) && !my.held);
	memset(&my, 0, sizeof(my));
	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	i = choose_log(entry, had_log);
	if (i < 0)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("no undo log is available for this session"),
				 errdetail("All %d logs of this database are in use or damaged.", zu_nlogs()),
				 errhint("Increase \"max_connections\" and restart the server.")));
	log = &entry->logs[i];
	my.logno = i;
	my.ahead = log->ahead;
	log->ahead.generation = 0;
	insert = pg_atomic_read_u64(&log->insert);
	if (insert != InvalidUndoPtr)
	{
		my.current.logno = i;
		my.current.extent = zuptr_extent(insert);
		my.current.generation = zuptr_generation(insert);
		my.current.sequence = pg_atomic_read_u64(&log->insert_sequence);
		set_position(insert);
		if (log->sealed)
		{
			/* UNDO-36 */
			my.page = ZU_EXTENT_PAGES;
			my.off = ZU_PAGE_DATA;
		}
	}
	pg_atomic_write_u32(&log->owner, (uint32) MyProcPid | ZU_LOG_HELD);
	my.attached = my.held = true;
	LWLockRelease(zu_alloc_lock(entry));
}

/*
 * Makes sure that this backend has a log which cannot be taken from it until
 * the end of the transaction (UNDO-50): the one that it is attached to, or
 * another if that one was taken or is closed.
 */
static void
hold_log(void)
{
	uint32		mine = (uint32) MyProcPid;

	if (my.attached &&
		pg_atomic_compare_exchange_u32(&my_shared()->owner, &mine, mine | ZU_LOG_HELD))
	{
		my.held = true;
		if (unlikely(my.ahead.generation != 0))
			my_shared()->ahead.generation = 0;
	}
	else
		attach_log();

	/*
	 * All undo of a transaction is in one log, so a closed log is left here,
	 * before the transaction begins to write (UNDO-37). The next one may have
	 * been closed before this backend held it, too.
	 */
	while (unlikely(my_shared()->closed))
	{
		zu_log_detach();
		attach_log();
	}
}

/*
 * Ends what hold_log has begun: from now on another process may take the log,
 * with the extent that was allocated for it but not entered. Before the log is
 * used again, zu_op_reserve calls hold_log again.
 */
static inline void
let_log_be_taken(void)
{
	ZuLog	   *log;

	if (!my.held)
		return;
	log = my_shared();
	Assert(zu_log_pid(log) == MyProcPid);	/* UNDO-50 */
	Assert(!BufferIsValid(my.pinned));
	my.held = false;
	if (unlikely(my.ahead.generation != 0))
		log->ahead = my.ahead;
	pg_atomic_write_u64(&log->idle_since, (uint64) GetCurrentTransactionStopTimestamp());
	pg_write_barrier();			/* all of the log was published before */
	pg_atomic_write_u32(&log->owner, (uint32) MyProcPid);
}

/*
 * zu_log_detach: See undo_internal.h. Leaves with the log the extent that was
 * allocated for it but not entered.
 */
void
zu_log_detach(void)
{
	ZuEntry    *entry = zu_my.entry;

	if (!my.attached)
		return;
	zu_unpin_page();
	LWLockAcquire(zu_alloc_lock(entry), LW_EXCLUSIVE);
	if (zu_log_pid(my_shared()) == MyProcPid)
	{
		my_shared()->ahead = my.ahead;
		pg_atomic_write_u64(&my_shared()->idle_since, (uint64) GetCurrentTimestamp());
		pg_atomic_write_u32(&my_shared()->owner, 0);
	}
	LWLockRelease(zu_alloc_lock(entry));
	memset(&my, 0, sizeof(my));
}

/* ---- reserving ---- */

/*
 * Gives a log without extents its first one and publishes its beginning as
 * insert and discard position.
 */
static void
enter_first_extent(void)
{
	ZuLog	   *log = my_shared();
	UndoPtr		start;

	Assert(my.held && pg_atomic_read_u64(&log->insert) == InvalidUndoPtr);
	my.current = my.ahead.generation != 0 ? my.ahead : zu_alloc_extent(my.logno, my.bytes);
	my.ahead.generation = 0;
	my.page = 0;
	my.off = ZU_PAGE_DATA;
	start = zuptr_make(my.current.generation, my.current.extent, ZU_PAGE_DATA);
	pg_atomic_write_u64(&log->discard_sequence, my.current.sequence);
	pg_atomic_write_u64(&log->insert_sequence, my.current.sequence);
	pg_write_barrier();
	pg_atomic_write_u64(&log->discard, start);
	pg_write_barrier();
	pg_atomic_write_u64(&log->insert, start);
}

/*
 * Returns whether the current extent keeps the tail of the file from being
 * truncated, though a lower extent would do as well. True only between
 * transactions, and only for an extent that was written: an extent without data
 * cannot be left (UNDO-11).
 */
static inline bool
should_retire(void)
{
	ZuEntry    *entry = zu_my.entry;

	return my.start == InvalidUndoPtr && my.ahead.generation == 0 &&
		(my.page > 0 || my.off > ZU_PAGE_DATA) &&
		my.current.extent > 2 * pg_atomic_read_u32(&entry->used) + RETIRE_SLACK &&
		pg_atomic_read_u32(&entry->hint) < my.current.extent && !zu_is_full(entry);
}

/* Asks for a worker if none serves this database. Raises no error. */
static void
want_worker(void)
{
	if (pg_atomic_read_u32(&zu_my.entry->worker) == 0)
		zworkers_wake(MyDatabaseId);
}

/*
 * zu_op_reserve: See undo.h. Allocates the next extent if the op does not fit
 * the rest of the current one; zu_op_finish makes it the current one.
 */
void
zu_op_reserve(void)
{
	Assert(InterruptHoldoffCount == 0); /* no lock is held (UNDO-31) */
	if (zu_my.entry == NULL)
		elog(ERROR, "zu_op_reserve called without zu_attach_database");
	if (unlikely(!my.held))
		hold_log();
	if (!my.woke)
	{
		my.woke = true;
		want_worker();
	}
	if (unlikely(my.current.generation == 0))
		enter_first_extent();
	if (unlikely(should_retire()))
	{
		my.ahead = zu_alloc_extent(my.logno, my.bytes);
		my.page = ZU_EXTENT_PAGES;
		my.off = ZU_PAGE_DATA;
	}
	if (space_left() < ZU_MAX_RESERVE && my.ahead.generation == 0)
	{
		my.ahead = zu_alloc_extent(my.logno, my.bytes);
		zcount_flush();
	}
}

bool
zu_op_fits_spare(Size bytes)
{
	return my.ahead.generation != 0 || space_left() >= bytes + ZU_MAX_OP;
}

/* ---- one op ---- */

/*
 * Pins and exclusively locks page 'page' of the extent. A page that gets its
 * first bytes is not read.
 */
static Buffer
lock_op_page(uint32 extent, int page, bool init)
{
	BlockNumber block = zu_extent_block(extent) + page;
	Buffer		buf;

	Assert(page >= 0 && page < ZU_EXTENT_PAGES);
	Assert(extent < pg_atomic_read_u32(&zu_my.entry->limit));	/* UNDO-4 */
	if (init)
		return zu_read_block(block, RBM_ZERO_AND_LOCK);
	buf = zu_recent_block(block, RBM_ZERO_ON_ERROR);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	return buf;
}

/*
 * Chooses the op's place, which is in the extent ahead if the current one has
 * too little space. Fills ptr, place, start and next. Returns the extent; sets
 * *page to the first page. Raises an internal error if zu_op_reserve was not
 * called for it.
 */
static uint32
place_records(ZuOp *op, int *page)
{
	const ZuExtent *e = &my.current;
	int			off = my.off;

	*page = my.page;
	op->place.prev = InvalidUndoPtr;
	if (op->total > space_left())
	{
		e = &my.ahead;
		if (e->generation == 0)
			elog(ERROR, "undo of %u bytes was not reserved", op->total);
		*page = 0;
		off = ZU_PAGE_DATA;

		/*
		 * prev is the position as published, not the end of the extent: the
		 * log may have left its extent before that was full (should_retire,
		 * UNDO-36)
		 */
		op->place.prev = pg_atomic_read_u64(&my_shared()->insert);
	}
	op->place.generation = e->generation;
	op->place.sequence = e->sequence;
	op->start = (uint16) off;
	if (likely(op->nrecords == 1 && off + op->total < BLCKSZ))
	{
		/* one record, on one page */
		op->ptr[0] = zuptr_make(e->generation, e->extent, *page * BLCKSZ + off);
		op->next = op->ptr[0] + op->total;
	}
	else
	{
		uint32		at = *page * ZU_PAGE_SPACE + (off - ZU_PAGE_DATA);

		for (int i = 0; i < op->nrecords; i++)
		{
			uint32		byte = at / ZU_PAGE_SPACE * BLCKSZ + ZU_PAGE_DATA + at % ZU_PAGE_SPACE;

			op->ptr[i] = zuptr_make(e->generation, e->extent, byte);
			at += op->records[i]->length;
		}
		Assert(at <= ZU_EXTENT_PAGES * ZU_PAGE_SPACE);	/* UNDO-5 */
		op->next = zuptr_make(e->generation, e->extent,
							  zu_byte_at(at / ZU_PAGE_SPACE, ZU_PAGE_DATA + at % ZU_PAGE_SPACE));
	}
	return e->extent;
}

/*
 * zu_op_prepare: See undo.h. Locks the pages in ascending order. Before
 * anything is changed, checks that the page at the insert position ends there;
 * if not, the log is closed, because a write of that page was lost.
 */
void
zu_op_prepare(ZuOp *op, ZuRecord **records, int nrecords, ZXid topxid)
{
	uint32		extent;
	uint32		left;
	int			page;
	int			off;

	Assert(nrecords > 0 && nrecords <= ZU_MAX_RECORDS);
	op->temp = (records[0]->xflags & ZUX_TEMP) != 0;
	Assert(op->temp || my.held);
	op->nrecords = nrecords;
	op->total = 0;
	op->packed = NULL;
	op->place.logno = my.logno;
	op->place.topxid = topxid;
	op->first = !op->temp && topxid != my.last_top;
	for (int i = 0; i < nrecords; i++)
	{
		op->records[i] = records[i];
		records[i]->topxid = topxid;
		if (i == 0 && op->first)
			records[i]->flags |= ZUF_FIRST;
		else
			records[i]->flags &= ~ZUF_FIRST;
		op->total += zur_length(records[i]);
	}
	if (unlikely(op->temp))
	{
		zu_temp_prepare(op);
		return;
	}
	Assert(zu_log_pid(my_shared()) == MyProcPid);	/* UNDO-13 */
	ZUNDO_FAULT("undo-prepare");
	extent = place_records(op, &page);

	op->npages = 0;
	off = op->start;
	op->kept = BufferIsValid(my.pinned) && op->total <= (uint32) (BLCKSZ - off) &&
		my.pinned_block == zu_extent_block(extent) + page && off != ZU_PAGE_DATA;
	for (left = op->total; left > 0; page++)
	{
		uint32		n = Min(left, (uint32) (BLCKSZ - off));
		bool		init = off == ZU_PAGE_DATA;

		Assert(op->npages < ZU_MAX_PAGES && page < ZU_EXTENT_PAGES);
		op->init[op->npages] = init;
		if (likely(op->kept))
			LockBuffer(op->buffers[0] = my.pinned, BUFFER_LOCK_EXCLUSIVE);
		else
			op->buffers[op->npages] = lock_op_page(extent, page, init);
		if (!init)
		{
			Page		p = BufferGetPage(op->buffers[op->npages]);

			if (!zu_page_valid(p, extent, op->place.generation, page) ||
				((PageHeader) p)->pd_lower != off)
			{
				zu_close_log(zu_my.entry, my.logno,
							 zuptr_make(op->place.generation, extent, page * BLCKSZ + off));
				ereport(ERROR,
						(errcode(ERRCODE_DATA_CORRUPTED),
						 errmsg("unexpected contents of block %u of relation \"%s\"",
								zu_extent_block(extent) + page, "zundo.undo_log"),
						 errdetail("Undo log %u was about to write at offset %d, but the data of "
								   "the page ends at %u.",
								   my.logno, off, ((PageHeader) p)->pd_lower)));
			}
		}
		op->npages++;
		left -= n;
		off = ZU_PAGE_DATA;
	}
	if (!op->kept && NBuffers / BUFFERS_PER_PIN >= MaxBackends)
		keep_pinned(op->buffers[op->npages - 1]);
}

/*
 * Puts n bytes at off, which is the page's end of data; bytes is NULL if they
 * are there already. A record begins at first (0 = none). The mutator of undo
 * pages that DML and redo share.
 */
static inline void
put_bytes(Page page, int off, const char *bytes, int n, int first)
{
	Assert(off >= ZU_PAGE_DATA && off + n <= BLCKSZ);
	Assert(((PageHeader) page)->pd_lower == off);	/* UNDO-5 */
	Assert(first == 0 || (first >= off && first < off + n));
	if (bytes != NULL)
		memcpy((char *) page + off, bytes, n);
	((PageHeader) page)->pd_lower = (uint16) (off + n);
	if (first != 0 && zu_page_header(page)->first_record == 0)
		zu_page_header(page)->first_record = (uint16) first;
}

/*
 * zu_op_write: See undo.h. Packs a record directly onto its page if it fits
 * there; one that straddles pages is packed into a scratch buffer first.
 * Records that the caller has packed are copied.
 */
void
zu_op_write(ZuOp *op)
{
	static char scratch[ZUR_MAX_LENGTH];
	int			i = 0;
	int			off = op->start;
	const char *packed = op->packed;
	uint32		extent = zuptr_extent(op->ptr[0]);

	if (unlikely(op->temp))
	{
		zu_temp_write(op);
		return;
	}
	for (int p = 0; p < op->npages; p++)
	{
		if (op->init[p])
			zu_page_init(BufferGetPage(op->buffers[p]), extent,
						 (int) (zuptr_byte(op->ptr[0]) / BLCKSZ) + p, &op->place);
		MarkBufferDirty(op->buffers[p]);
	}
	for (int r = 0; r < op->nrecords; r++)
	{
		const ZuRecord *rec = op->records[r];
		int			left = rec->length;
		const char *from = packed != NULL ? packed : scratch;
		bool		begins = true;

		if (packed != NULL)
			packed += rec->length;

		if (off >= BLCKSZ)
		{
			i++;
			off = ZU_PAGE_DATA;
		}
		if (left <= BLCKSZ - off)
		{
			Page		page = BufferGetPage(op->buffers[i]);

			if (packed == NULL)
				zur_pack(rec, (char *) page + off);
			put_bytes(page, off, packed != NULL ? from : NULL, left, off);
			off += left;
			continue;
		}
		if (packed == NULL)
			zur_pack(rec, scratch);
		while (left > 0)
		{
			int			n;

			if (off >= BLCKSZ)
			{
				i++;
				off = ZU_PAGE_DATA;
			}
			n = Min(left, BLCKSZ - off);
			put_bytes(BufferGetPage(op->buffers[i]), off, from, n, begins ? off : 0);
			begins = false;
			from += n;
			left -= n;
			off += n;
		}
	}
	Assert(i == op->npages - 1);
}

void
zu_op_register(ZuOp *op, uint8 first_block_id)
{
	for (int i = 0; i < op->npages; i++)
		XLogRegisterBuffer(first_block_id + i, op->buffers[i],
						   REGBUF_STANDARD | (op->init[i] ? REGBUF_WILL_INIT : 0));
}

/*
 * zu_op_finish: See undo.h. Publishes the sequence of a new extent before the
 * position in it, so that a reader that sees the position also sees the
 * sequence.
 */
void
zu_op_finish(ZuOp *op, XLogRecPtr recptr)
{
	ZuLog	   *log;

	if (unlikely(op->temp))
	{
		zu_temp_finish(op);
		return;
	}
	log = my_shared();
	Assert(op->npages > 1 ||	/* the op is written (UNDO-13) */
		   ((PageHeader) BufferGetPage(op->buffers[0]))->pd_lower == op->start + op->total);
	for (int i = 0; i < op->npages; i++)
	{
		if (!XLogRecPtrIsInvalid(recptr))
			PageSetLSN(BufferGetPage(op->buffers[i]), recptr);
		LockBuffer(op->buffers[i], BUFFER_LOCK_UNLOCK);
		if (!op->kept)
			ReleaseBuffer(op->buffers[i]);
	}
	Assert(op->place.sequence >= my.current.sequence);	/* UNDO-13 */
	if (op->place.generation != my.current.generation ||
		zuptr_extent(op->next) != my.current.extent)
	{
		my.current = my.ahead;
		my.ahead.generation = 0;
		log->sealed = false;
		pg_atomic_write_u64(&log->insert_sequence, my.current.sequence);
		pg_write_barrier();
	}
	Assert(my.current.sequence == op->place.sequence);
	set_position(op->next);
	if (op->first)
		my.last_top = op->records[0]->topxid;
	if (my.start == InvalidUndoPtr)
		my.start = op->ptr[0];
	my.bytes += op->total;
	zcount(ZCOUNT_WRITTEN, op->total);
	pg_atomic_write_u64(&log->insert, op->next);
}

/* ---- the current transaction ---- */

UndoPtr
zu_my_transaction_start(void)
{
	return my.start;
}

uint64
zu_my_transaction_bytes(void)
{
	return my.bytes;
}

/*
 * zu_at_xact_end: See undo.h. Looks for a worker again: one that was there
 * when the transaction reserved its first undo may have left before that
 * record was written, because zu_op_reserve may be followed by a wait for a
 * row. By REQUEST-2a, a worker that is still counted sees what is written by
 * now.
 */
void
zu_at_xact_end(void)
{
	if (my.start != InvalidUndoPtr && zu_my.entry != NULL)
	{
		pg_memory_barrier();
		want_worker();
	}
	my.start = InvalidUndoPtr;
	my.bytes = 0;
	my.woke = false;
	unpin_at_end();
	let_log_be_taken();
	zu_my.locked = false;
}

void
zu_at_subxact_abort(void)
{
	unpin_at_end();
}

/* ---- redo ---- */

/*
 * Returns undo page block_id of the WAL record, locked, or InvalidBuffer if the
 * record has no such block or the page was cut off later. Sets *apply to
 * whether its bytes have to be written.
 */
static Buffer
redo_page(XLogReaderState *record, uint8 block_id, const ZuPlace *place, bool *apply)
{
	Buffer		buf;

	*apply = false;
	if (!XLogRecHasBlockRef(record, block_id))
		return InvalidBuffer;
	if (XLogRecGetBlock(record, block_id)->flags & BKPBLOCK_WILL_INIT)
	{
		uint32		extent;
		uint32		pageno;

		buf = XLogInitBufferForRedo(record, block_id);
		if (!zu_block_position(BufferGetBlockNumber(buf), &extent, &pageno))
			elog(PANIC, "block %u is not a page of undo records", BufferGetBlockNumber(buf));
		zu_page_init(BufferGetPage(buf), extent, (int) pageno, place);
		*apply = true;
	}
	else
		*apply = XLogReadBufferForRedo(record, block_id, &buf) == BLK_NEEDS_REDO;
	return buf;
}

/*
 * zu_op_redo: See undo.h. Takes from op which bytes belong to which page,
 * and which record begins there. A page whose data do not end where the op
 * begins is a PANIC.
 */
void
zu_op_redo(XLogReaderState *record, uint8 first_block_id, const ZuOp *op, const char *bytes,
		   Buffer *buffers)
{
	Size		done = 0;
	Size		begins = 0;		/* where record r begins in 'bytes' */
	int			off = op->start;
	int			r = 0;

	for (int i = 0; i < op->npages; i++)
	{
		int			n = (int) Min(op->total - done, (Size) (BLCKSZ - off));
		int			first = 0;
		bool		apply;

		while (r < op->nrecords && begins < done + n)
		{
			if (first == 0)
				first = off + (int) (begins - done);
			begins += op->records[r++]->length;
		}
		buffers[i] = redo_page(record, first_block_id + i, &op->place, &apply);
		if (apply)
		{
			Page		page = BufferGetPage(buffers[i]);

			if (((PageHeader) page)->pd_lower != off)
				elog(PANIC, "undo record at offset %d of block %u does not follow the page's "
					 "data, which ends at %u",
					 off, BufferGetBlockNumber(buffers[i]), ((PageHeader) page)->pd_lower);
			put_bytes(page, off, bytes + done, n, first);
			PageSetLSN(page, record->EndRecPtr);
			MarkBufferDirty(buffers[i]);
		}
		done += n;
		off = ZU_PAGE_DATA;
	}
	if (done != op->total)
		elog(PANIC, "undo of %u bytes does not fit the %d pages of its WAL record", op->total,
			 op->npages);
}
