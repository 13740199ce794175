/*
 * undo/undo_internal.h - what the files of undo/ share. Not to be included from
 * other folders.
 */
#ifndef ZUNDO_UNDO_INTERNAL_H
#define ZUNDO_UNDO_INTERNAL_H

#include "undo/undo_entry.h"
#include "undo/undo_wal.h"

/* ---- pages, extents and the map of them ---- */

/*
 * Pins a block of this database's log. The buffer is not locked, except with
 * RBM_ZERO_AND_LOCK.
 */
extern Buffer zu_read_block(BlockNumber block, ReadBufferMode mode);

/*
 * The same, for modes that do not lock. Tries the buffer that held the block
 * last time, which saves the look-up in the buffer table.
 */
extern Buffer zu_recent_block(BlockNumber block, ReadBufferMode mode);

/* Makes page a meta page without extents. */
extern void zu_meta_init(Page page, ZXid oldest);

/*
 * Makes page a map page of free extents, each of generation 'floor'. 'first' is
 * the block of the pair's first twin.
 */
extern void zu_map_init(Page page, BlockNumber first, uint32 floor);

/*
 * Makes page an empty undo page, number pageno of the extent, with what place
 * says of it.
 */
extern void zu_page_init(Page page, uint32 extent, int pageno, const ZuPlace *place);

/*
 * Reads `oldest` and the limit into entry, which becomes VALID, or STANDBY in
 * recovery. Raises an error for a meta page of another format, or one that is
 * ahead of the server's transaction ids.
 */
extern void zu_load_meta(ZuEntry *entry);

/*
 * Returns whether any log has an extent, or may have one because a map page is
 * lost. Without an extent there is no undo.
 */
extern bool zu_any_log_extent(void);

/*
 * Copies the map's entry for the extent; false if the extent lies beyond the
 * limit.
 */
extern bool zu_read_map_entry(uint32 extent, ZuMapEntry *dst);

/*
 * Returns whether the map still assigns e to its log, with the same generation.
 */
extern bool zu_extent_live(const ZuExtent *e);

/*
 * Returns whether the block is all zeros in the file; reads it past its buffer.
 * A page that could not be read once (RBM_ZERO_ON_ERROR) is zeros in its buffer
 * only.
 */
extern bool zu_block_is_zero(BlockNumber block);

/* Returns the length of the file in blocks. */
extern BlockNumber zu_file_blocks(void);

/*
 * Returns whether there is a relation of this OID that has the access method of
 * the undo log.
 */
extern bool zu_is_undo_log(Oid reloid);

/*
 * Copies a block as it is in its buffer to dst (BLCKSZ bytes). If the block
 * cannot be read, or lies behind the end of the file, copies zeros and sets
 * *damaged to true; else sets it to false. Holds nothing on return.
 */
extern void zu_copy_block(BlockNumber block, char *dst, bool *damaged);

/*
 * Returns where the data of extent e end, according to its pages;
 * InvalidUndoPtr if nothing was written there. If sound is not NULL, reads the
 * whole extent, and sets *sound to false if something behind that place says
 * that it is not the end; else leaves *sound as it is.
 */
extern UndoPtr zu_find_insert(const ZuExtent *e, bool *sound);

/*
 * Takes a free extent for logno as the next of its sequence, and grows the
 * relation if there is none. own_bytes: what this transaction has written. No
 * lock held; may wait (zu_wait_for_space). Errors: disk full, undo_limit
 * reached, file too large.
 */
extern ZuExtent zu_alloc_extent(uint32 logno, uint64 own_bytes);

/*
 * Extends the file of an undo log to hold extents 0 .. nextents - 1, with their
 * map pages, so that no reader below the limit misses a block.
 */
extern void zu_extend_to(SMgrRelation smgr, uint32 nextents);

/*
 * Takes a free extent for slot overflow pages, and grows the relation if there
 * is none; returns its number. The caller holds the alloc lock, and has found
 * under it that zu_is_full and zu_growth_must_wait return false. Errors: disk
 * full, file too large.
 */
extern uint32 zu_alloc_overflow_extent(void);

/*
 * Returns whether an allocation would have to grow the file while its tail is
 * being cut off. Alloc lock held. If so, the caller releases it, calls
 * zu_wait_for_truncation (no lock held) and looks again.
 */
extern bool zu_growth_must_wait(ZuEntry *entry);
extern void zu_wait_for_truncation(ZuEntry *entry);

/*
 * Raises ERRCODE_DATA_CORRUPTED if pages of the extent, which the map calls
 * free, say that it is in use (UNDO-42). Alloc lock held, no buffer locked.
 */
extern void zu_check_unused(uint32 extent);

/*
 * Returns a palloc'd array of the numbers of all overflow extents, ascending.
 */
extern uint32 *zu_collect_overflow(int *n);

/*
 * Returns whether the map calls the extent an overflow extent. Takes the map
 * page's share lock.
 */
extern bool zu_is_overflow_extent(uint32 extent);

/*
 * Frees the extent if 'unused' returns true for it while the extent's map page
 * is locked exclusively. Alloc lock held.
 */
extern void zu_free_overflow_extent(uint32 extent, bool (*unused) (uint32 extent));

/*
 * Sets the summaries of n resolved extents on their common map page. The
 * mutator that zu_mark_resolved and redo share.
 */
extern void zu_set_resolved(Page page, const xl_undo_resolved *resolved, int n);

/* Returns the newest transaction id before oldest, which is positive. */
extern TransactionId zu_xid_before(ZXid oldest);

/* ---- damage/undo_twin.c ---- */

/* A pair of twins, pinned and exclusively locked. */
typedef struct ZuTwins
{
	BlockNumber first;
	Buffer		buffer[2];
	int			source;			/* which of the two is changed; the other
								 * becomes its copy */
} ZuTwins;

/* Fills the twin header of a page that was just initialised. */
extern void zu_twin_init(Page page, BlockNumber first);

/* Counts a change of the page and computes its checksum anew. */
extern void zu_twin_seal(Page page);

/*
 * Pins and share-locks the better twin of the pair at block 'first'. Raises
 * ERRCODE_DATA_CORRUPTED if both are damaged.
 */
extern Buffer zu_twins_share(BlockNumber first);

/*
 * Pins and exclusively locks the pair at block 'first'. Repairs a twin that is
 * damaged or older than the other one. On a primary only. Raises
 * ERRCODE_DATA_CORRUPTED if both are damaged.
 */
extern void zu_twins_lock(ZuTwins *t, BlockNumber first);

/*
 * Tells which twins of the pair at block 'first' are valid, and how often each
 * was changed. A twin behind the end of the file is not valid. Holds nothing on
 * return.
 */
extern void zu_twins_state(BlockNumber first, bool valid[2], uint64 changes[2]);

/* Returns whether neither twin of the pair at block 'first' is valid. */
extern bool zu_twins_lost(BlockNumber first);

/*
 * Copies the better twin of the pair at block 'first' to dst (BLCKSZ bytes);
 * false if neither is valid. Holds nothing on return.
 */
extern bool zu_twins_copy(BlockNumber first, char *dst);

/*
 * Raises the error for a pair of which no twin is valid: the meta page or a map
 * page is lost.
 */
extern void zu_twins_report_lost(BlockNumber first) zc_noreturn;

/*
 * Pins and exclusively locks a pair that the caller initialises; the pages are
 * not read.
 */
extern void zu_twins_lock_new(ZuTwins *t, BlockNumber first);

/*
 * Has zu_twins_lock repair the pair if its twins differ. Holds nothing on
 * return.
 */
extern void zu_twins_repair(BlockNumber first);

/* Returns the page to change. */
static inline Page
zu_twins_page(const ZuTwins *t)
{
	return BufferGetPage(t->buffer[t->source]);
}

/*
 * One change, in a critical section: the caller has changed zu_twins_page.
 * zu_twins_changed makes the other twin equal and marks both dirty;
 * zu_twins_register registers them as block references id and id + 1;
 * zu_twins_set_lsn sets the LSN of both. zu_twins_unlock, after the critical
 * section, unlocks and releases both.
 */
extern void zu_twins_changed(const ZuTwins *t);
extern void zu_twins_register(const ZuTwins *t, uint8 id, uint8 flags);
extern void zu_twins_set_lsn(const ZuTwins *t, XLogRecPtr recptr);
extern void zu_twins_unlock(ZuTwins *t);

/*
 * Locks the pair that is block references id and id + 1 of the record. If it
 * returns true, the caller changes zu_twins_page and calls zu_twins_redone; if
 * false, the pages have the change already, or were cut off later. The caller
 * calls zu_twins_unlock in both cases.
 */
extern bool zu_twins_redo(ZuTwins *t, XLogReaderState *record, uint8 id);

/*
 * Locks the pair that is block references 0 and 1 of the record, WILL_INIT;
 * the caller initialises zu_twins_page and calls zu_twins_redone, which makes
 * the other twin equal and sets the LSN of both.
 */
extern void zu_twins_redo_new(ZuTwins *t, XLogReaderState *record);
extern void zu_twins_redone(const ZuTwins *t, XLogReaderState *record);

/* ---- damage/undo_mend.c ---- */

/*
 * Raises an error if the meta page, of which this is a copy, was written by a
 * version of zundo with another format.
 */
extern void zu_check_meta(Page page);

/*
 * Returns the number of extents that the meta page, of which this is a copy,
 * should have at least: its own, or as many as are in use (UNDO-71). Load lock
 * held, entry not VALID; on a standby also the fence.
 */
extern uint32 zu_claimed_extents(const ZuMetaData *meta);

/*
 * Returns a generation far ahead of floor and of all that are known of extents
 * 0 .. nextents - 1; for a page on which generations are lost. zu_leap_from
 * returns one that is far ahead of this generation. Never 0.
 */
extern uint32 zu_leap(uint32 nextents, uint32 floor);
extern uint32 zu_leap_from(uint32 generation);

/*
 * Writes the number of extents and the floor to the meta page, which is locked,
 * with WAL that also tells standbys, and has what else the caller has changed
 * on the page. The caller unlocks it.
 */
extern void zu_log_limit(const ZuTwins *meta, uint32 nextents, uint32 floor);

/*
 * Raises the number of extents on the meta page, which is locked, if it is less
 * than the limit in shared memory: the page has missed writes. A line in the
 * server log tells. On a primary only.
 */
extern void zu_heal_limit(const ZuTwins *meta);

/*
 * Puts all transactions from `oldest` on in doubt (damage/undo_damage.c), on
 * the meta page, because undo has been lost with the end of the file: the map
 * may be made anew and then name no extent at all. Load lock held, meta page
 * not loaded.
 */
extern void zu_doubt_lost(void);

/*
 * Returns the first of extents 0 .. limit - 1 of which blocks that hold or may
 * hold data are not in the file of 'have' blocks; limit if there is none
 * (UNDO-71b).
 */
extern uint32 zu_lost_extent(uint32 limit, BlockNumber have);

/*
 * Extends the file by pages of zeros to hold 'limit' extents. Errors: disk
 * full.
 */
extern void zu_extend_file(uint32 limit);

/* Raises the error for a file that has lost blocks of 'limit' extents. */
extern void zu_report_short(uint32 limit) zc_noreturn;

/* What the first page of an extent says of the map. */
typedef enum ZuMisfit
{
	ZU_FITS,
	ZU_PAGE_WRONG,				/* they contradict each other; it is not known
								 * which of them is right */
	ZU_MAP_STALE				/* the map has missed writes */
} ZuMisfit;

/*
 * Compares an extent's first page with its map entry. If they do not fit, sets
 * *what to the reason, which continues "the first page of the extent".
 */
extern ZuMisfit zu_misfit(uint32 extent, const ZuMapEntry *map, Page page, const char **what);

/*
 * Returns the first extent of the group that begins with this one, below limit,
 * whose pages show that 'map', a copy of the group's map page, has missed
 * writes (UNDO-71c); the end of the group or the limit if there is none.
 */
extern uint32 zu_stale_extent(uint32 group, uint32 limit, Page map);

/* Raises the error for an extent whose pages show that. */
extern void zu_report_stale(uint32 extent) zc_noreturn;

/*
 * Compares the meta page, of which this is a copy, with the map and the file,
 * and repairs what is proved to have missed writes without a loss; then repairs
 * the twins of the meta page. Load lock held, entry not VALID, on a primary.
 * Raises ERRCODE_DATA_CORRUPTED if the file has lost the second meta page and
 * data.
 */
extern void zu_mend(const ZuMetaData *meta);

/* ---- undo_full.c: what happens when zundo.undo_limit is reached ---- */

/*
 * One writer's wait for one extent; zeroed before the wait, except for
 * own_bytes.
 */
typedef struct ZuFullWait
{
	uint64		own_bytes;		/* undo that this transaction has written */
	TimestampTz since;			/* 0 = not begun */
	TimestampTz looked;			/* when the lock queues were last searched for
								 * a circle */
	long		nap;			/* length of the last sleep in ms */
} ZuFullWait;

/*
 * Returns whether the database has as much undo as the current user may fill
 * (zundo.undo_limit). Exact with the alloc lock held.
 */
extern bool zu_is_full(ZuEntry *entry);

/*
 * Does what zundo.undo_full says: raises the error, or waits a moment, after
 * which the caller looks again. No lock held.
 */
extern void zu_wait_for_space(ZuEntry *entry, ZuFullWait *wait);

/* ---- undo_pin.c ---- */

/*
 * What keeps undo from being discarded, beside the process that asks. If
 * several pins keep the undo of the same transaction, zu_find_pin returns the
 * one of the process that has its id; if there is none, the one whose kind
 * comes first here.
 */
typedef enum ZuPinKind
{
	ZU_PIN_NONE,
	ZU_PIN_PREPARED,
	ZU_PIN_SLOT,
	ZU_PIN_OTHER,				/* a walsender, a background worker, a process
								 * of another database */
	ZU_PIN_AUTOVACUUM,
	ZU_PIN_CLIENT
} ZuPinKind;

typedef struct ZuPin
{
	ZuPinKind	kind;
	TransactionId xid;			/* undo of this transaction and of younger
								 * ones cannot be discarded */
	bool		owner;			/* xid is its own; otherwise the xmin of its
								 * snapshot, or that of a rollback that it
								 * keeps from locking a table */
	Oid			table;			/* that table, 0 = none */
	bool		queued;			/* it does not hold the table's lock, but
								 * waits for it */
	int			procno;			/* OTHER and later: its process; for a
								 * parallel worker that of the leader */
	int			pid;
	LocalTransactionId lxid;
	Oid			role;			/* the role that logged in */
	bool		exempt;			/* never canceled (zundo.undo_full_exempt) */
	bool		reading;		/* it waits to read from its client */
	bool		writing;		/* it waits to write to its client */
} ZuPin;

/*
 * Returns what else keeps the most undo of this database now. Sets *own to the
 * transaction from which on this backend itself keeps undo. The database is
 * attached; in a transaction, no LWLock held.
 */
extern ZuPin zu_find_pin(TransactionId *own);

/*
 * Returns a palloc'd sentence that names the pin, which is not ZU_PIN_NONE. In
 * a transaction, no LWLock held.
 */
extern char *zu_name_pin(const ZuPin *pin);

/*
 * zu_pin_shmem_size, zu_pin_shmem_startup: return the size of the marks of
 * processes that wait for undo, and create them in shared memory or attach to
 * them. Called by zu_shmem_request and zu_shmem_startup, the latter with
 * AddinShmemInitLock held.
 */
extern Size zu_pin_shmem_size(void);
extern void zu_pin_shmem_startup(void);

/*
 * Notes in shared memory that this process waits for space. The note counts
 * until the time 'until'; it is renewed before each sleep, and not removed.
 */
extern void zu_note_waiting(TimestampTz until);

/*
 * zu_may_cancel: returns whether UNDO-33 allows to end the pin's transaction,
 * and it does not wait for space itself.
 */
extern bool zu_may_cancel(const ZuPin *pin);

/*
 * Sends the signal that is due, if any, to end the transaction that pins undo
 * (zu_may_cancel); if it keeps a rollback from a table, also to all others that
 * do so. Called again and again as long as undo is pinned. In a transaction, no
 * LWLock held.
 */
extern void zu_cancel_pin(const ZuPin *pin);

/* ---- undo_log.c ---- */

/* Gives this backend's log back. Alloc lock not held. */
extern void zu_log_detach(void);

/*
 * Releases the pin that is kept from op to op, if there is one.
 * Called before the pins of the transaction must be gone, before the log may
 * be taken, and before the log's buffers are flushed: the server does that
 * only with buffers that this backend has not pinned.
 */
extern void zu_unpin_page(void);

/* ---- undo_page.c, undo_fetch.c ---- */

/*
 * Pins and share-locks page 'page' of an extent below the limit, reading it in
 * mode. Fence held.
 */
extern Buffer zu_lock_page(uint32 extent, int page, ReadBufferMode mode);

/*
 * zu_fence_enter, zu_fence_leave: hold the fence while pages are pinned that
 * the limit might otherwise be lowered past. The result of enter is the
 * argument of leave.
 */
extern bool zu_fence_enter(void);
extern void zu_fence_leave(bool taken);

/*
 * Copies page 'page' of an extent to dst (BLCKSZ bytes) if it is written as
 * part of that generation; returns false otherwise. Holds nothing on return.
 */
extern bool zu_copy_page(uint32 extent, uint32 generation, int page, char *dst,
						 ReadBufferMode mode);

/* Prefetches the cache line at p. */
#ifdef __GNUC__
#define zu_prefetch_line(p) __builtin_prefetch(p)
#else
#define zu_prefetch_line(p) ((void) (p))
#endif

/* Raises ERRCODE_DATA_CORRUPTED for a place in zundo.undo_log. */
extern void zu_report_corrupt(BlockNumber block, uint32 offset) zc_noreturn;

/* ---- undo_temp.c: zu_op_prepare to zu_fetch for private undo ---- */

/*
 * zu_temp_prepare: gives the op's records their places; zu_temp_reserve has
 * found the memory. zu_temp_write: copies the packed records there.
 * zu_temp_finish: advances the position past them, and notes the highest nest
 * level that has written. zu_temp_prepare raises an internal error if no place
 * was reserved.
 */
extern void zu_temp_prepare(ZuOp *op);
extern void zu_temp_write(const ZuOp *op);
extern void zu_temp_finish(const ZuOp *op);

/*
 * Copies the record at ptr to buf; returns its length, 0 if it has been given
 * back, -1 if there is no record.
 */
extern int	zu_temp_gather(UndoPtr ptr, char *buf);

#endif
