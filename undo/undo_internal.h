/*
 * undo/undo_internal.h - what the files of undo/ share; not included from
 * outside.
 */
#ifndef ZUNDO_UNDO_INTERNAL_H
#define ZUNDO_UNDO_INTERNAL_H

#include "undo/undo_entry.h"
#include "undo/undo_wal.h"

/* ---- undo_meta.c ---- */

/*
 * zu_read_block: pin a block of this database's log. Unlocked, but for
 * RBM_ZERO_AND_LOCK.
 */
extern Buffer zu_read_block(BlockNumber block, ReadBufferMode mode);

extern void zu_meta_init(Page page, ZXid oldest);

/*
 * zu_map_init: a map page of free extents, each of generation 'floor'; 'first'
 * is the block of the pair's first twin.
 */
extern void zu_map_init(Page page, BlockNumber first, uint32 floor);

/*
 * zu_page_init: make page an empty undo page, page pageno of the extent, with
 * what place says of it.
 */
extern void zu_page_init(Page page, uint32 extent, int pageno, const ZuPlace *place);

/*
 * zu_load_meta: read oldest and limit into entry, which becomes VALID. Error
 * on a foreign format.
 */
extern void zu_load_meta(ZuEntry *entry);

/*
 * zu_any_log_extent: does any log have an extent? Without one there is no undo.
 */
extern bool zu_any_log_extent(void);

/*
 * zu_read_map_entry: copy the map's entry for the extent; false if that lies
 * beyond the limit.
 */
extern bool zu_read_map_entry(uint32 extent, ZuMapEntry *dst);

/* zu_extent_live: does the map still give e to its log, in this generation? */
extern bool zu_extent_live(const ZuExtent *e);

/*
 * zu_block_is_zero: reads a block from the file, past its buffer; returns
 * whether it is all zeros. A page that could not be read once
 * (RBM_ZERO_ON_ERROR) is so in its buffer only.
 */
extern bool zu_block_is_zero(BlockNumber block);

/*
 * zu_find_insert: where the data of extent e end, as its pages tell it; 0 if
 * nothing was written there. *sound (may be NULL): nothing behind that place
 * says that it is not the end. Reads the whole extent for that.
 */
extern UndoPtr zu_find_insert(const ZuExtent *e, bool *sound);

/*
 * zu_alloc_extent: take a free extent for logno as the next of its sequence,
 * growing the relation if there is none. own_bytes: what this transaction has
 * written. No lock held; may wait (zu_wait_for_room). Errors: disk full,
 * undo_limit, too large.
 */
extern ZuExtent zu_alloc_extent(uint32 logno, uint64 own_bytes);

/*
 * zu_alloc_overflow_extent: take a free extent for slot overflow pages,
 * growing the relation if there is none; returns its number. Alloc lock held,
 * not zu_is_full. Errors: disk full, too large.
 */
extern uint32 zu_alloc_overflow_extent(void);

/*
 * zu_growth_must_wait: would an allocation have to grow the file while its tail
 * is being cut off? Alloc lock held. If so, the caller releases it, waits with
 * zu_wait_for_truncation (no lock held) and looks again.
 */
extern bool zu_growth_must_wait(ZuEntry *entry);
extern void zu_wait_for_truncation(ZuEntry *entry);

/*
 * zu_check_unused: raises an error if pages of the extent, which its map calls
 * free, tell that it is in use (UNDO-42). Alloc lock held, and no buffer.
 */
extern void zu_check_unused(uint32 extent);

/*
 * zu_collect_overflow: palloc'd array of the numbers of all overflow extents,
 * ascending.
 */
extern uint32 *zu_collect_overflow(int *n);

/*
 * zu_is_overflow_extent: does the map say so? Takes the map page's share lock.
 */
extern bool zu_is_overflow_extent(uint32 extent);

/*
 * zu_free_overflow_extent: make the extent free if 'unused' finds every page
 * of it so, while the extent's map page is locked exclusively. Alloc lock
 * held. True if it was done.
 */
extern bool zu_free_overflow_extent(uint32 extent, bool (*unused) (uint32 extent));

/* zu_set_settled: the mutator of that, on the map page of all n extents. */
extern void zu_set_settled(Page page, const xl_undo_settled *settled, int n);

/*
 * zu_xid_before: returns the newest transaction before oldest, which is
 * positive.
 */
extern TransactionId zu_xid_before(ZXid oldest);

/* ---- undo_twin.c ---- */

/* A pair of twins, pinned and exclusively locked. */
typedef struct ZuTwins
{
	BlockNumber first;
	Buffer		buffer[2];
	int			source;			/* which of the two is changed; the other
								 * becomes its copy */
} ZuTwins;

/* zu_twin_init: the twin header of a page that was just initialised. */
extern void zu_twin_init(Page page, BlockNumber first);

/* zu_twin_seal: count a change of the page and compute its checksum anew. */
extern void zu_twin_seal(Page page);

/* zu_twin_valid: is page, whatever its bytes, a twin of the pair at 'first'? */
extern bool zu_twin_valid(Page page, BlockNumber first);

/*
 * zu_twins_share: pin and share-lock the newer twin of the pair at block
 * 'first'. ERRCODE_DATA_CORRUPTED if both are damaged.
 */
extern Buffer zu_twins_share(BlockNumber first);

/*
 * zu_twins_lock: pin and exclusively lock the pair at 'first'; a twin that is
 * damaged or older than the other is repaired from that. On a primary only.
 * ERRCODE_DATA_CORRUPTED if both are damaged.
 */
extern void zu_twins_lock(ZuTwins *t, BlockNumber first);

/*
 * zu_twins_state: of the pair at 'first', pinned for a moment: which twins are
 * valid, how often each was changed.
 */
extern void zu_twins_state(BlockNumber first, bool valid[2], uint64 changes[2]);

/* zu_twins_lost: is neither of the pair at 'first' valid? */
extern bool zu_twins_lost(BlockNumber first);

/* zu_twins_lock_new: the same for a pair that the caller initialises. */
extern void zu_twins_lock_new(ZuTwins *t, BlockNumber first);

/*
 * zu_twins_repair: zu_twins_lock if the twins differ. Holds nothing on return.
 */
extern void zu_twins_repair(BlockNumber first);

/* zu_twins_page: the page to change. */
static inline Page
zu_twins_page(const ZuTwins *t)
{
	return BufferGetPage(t->buffer[t->source]);
}

/*
 * One change, in a critical section: the caller has changed zu_twins_page.
 * zu_twins_changed makes the other twin equal and both dirty;
 * zu_twins_register makes them block references id and id + 1.
 */
extern void zu_twins_changed(const ZuTwins *t);
extern void zu_twins_register(const ZuTwins *t, uint8 id, uint8 flags);
extern void zu_twins_set_lsn(const ZuTwins *t, XLogRecPtr recptr);
extern void zu_twins_unlock(ZuTwins *t);

/*
 * zu_twins_redo: lock the pair that is block references id and id + 1 of the
 * record. True: the caller changes zu_twins_page and calls zu_twins_redone.
 * False: the change is there, or the pages were cut off later. zu_twins_unlock
 * in both cases.
 */
extern bool zu_twins_redo(ZuTwins *t, XLogReaderState *record, uint8 id);

/*
 * zu_twins_redo_new: the same for a pair that is WILL_INIT; the caller
 * initialises zu_twins_page.
 */
extern void zu_twins_redo_new(ZuTwins *t, XLogReaderState *record, uint8 id);
extern void zu_twins_redone(const ZuTwins *t, XLogReaderState *record);

/* ---- undo_full.c: what happens when zundo.undo_limit is reached ---- */

/* One writer's wait for one extent; zeroed before it, but for own_bytes. */
typedef struct ZuFullWait
{
	uint64		own_bytes;		/* undo that this transaction has written */
	TimestampTz since;			/* 0 = not begun */
	TimestampTz looked;			/* when it was last seen who waits for whom */
	long		nap;
} ZuFullWait;

/*
 * zu_is_full: has the database as much undo as it may keep? Exact with the
 * alloc lock held.
 */
extern bool zu_is_full(ZuEntry *entry);

/*
 * zu_wait_for_room: do what zundo.undo_full says: raise the error, or wait a
 * moment; the caller looks again then. No lock held.
 */
extern void zu_wait_for_room(ZuEntry *entry, ZuFullWait *wait);

/* ---- undo_pin.c ---- */

/*
 * Who else keeps undo back; of several that keep the same, the owner of that
 * transaction id counts, then the first of these.
 */
typedef enum ZuPinKind
{
	ZU_PIN_NONE,
	ZU_PIN_PREPARED,
	ZU_PIN_SLOT,
	ZU_PIN_OTHER,				/* a walsender, autovacuum, a background
								 * worker */
	ZU_PIN_CLIENT
} ZuPinKind;

typedef struct ZuPin
{
	ZuPinKind	kind;
	TransactionId xid;			/* nothing of this or a younger transaction
								 * can be discarded */
	bool		owner;			/* it is its own id; else that of a snapshot */
	int			procno;			/* of OTHER and CLIENT; a parallel worker's is
								 * its leader's */
	int			pid;
	LocalTransactionId lxid;
	Oid			role;			/* that logged in */
	bool		exempt;			/* never cancelled (zundo.undo_full_exempt) */
	bool		reading;		/* it waits for words of its client */
	bool		writing;		/* or for its client to take some */
} ZuPin;

/*
 * zu_find_pin: who else keeps the most undo of this database now; own: what
 * this transaction does.
 */
extern ZuPin zu_find_pin(TransactionId *own);

extern Size zu_pin_shmem_size(void);
extern void zu_pin_shmem_startup(void);

/*
 * zu_note_waiting: this process waits for room, and says so again before this
 * time.
 */
extern void zu_note_waiting(TimestampTz until);

/* zu_is_waiting: does the pin's process itself wait for room? */
extern bool zu_is_waiting(const ZuPin *pin);

/*
 * zu_cancel_pin: a step on the way to the end of a client's transaction. To be
 * called again and again while it pins.
 */
extern void zu_cancel_pin(const ZuPin *pin);

/* ---- undo_log.c ---- */

/* zu_log_detach: give this backend's log back. Alloc lock not held. */
extern void zu_log_detach(void);

/* ---- undo_page.c ---- */

/*
 * zu_lock_page: Pins and share-locks page 'page' of an extent below the limit,
 * reading it in mode. Fence held.
 */
extern Buffer zu_lock_page(uint32 extent, int page, ReadBufferMode mode);

/*
 * zu_fence_enter / zu_fence_leave: around pinning pages that the limit may be
 * lowered past; enter returns what leave has to be told.
 */
extern bool zu_fence_enter(void);
extern void zu_fence_leave(bool taken);

/*
 * zu_copy_page: copy page 'page' of an extent to dst (BLCKSZ) if it is written
 * as part of the generation; false otherwise. Holds nothing on return.
 */
extern bool zu_copy_page(uint32 extent, uint32 generation, int page, char *dst,
						 ReadBufferMode mode);

/*
 * zu_is_discarded: may the record at ptr be gone, by what is written in the
 * map or by its log's discard pointer? To be asked after it was not found.
 * Takes the map page's share lock.
 */
extern bool zu_is_discarded(UndoPtr ptr);

/* zu_prefetch_line: have the cache line at p brought near. */
#ifdef __GNUC__
#define zu_prefetch_line(p) __builtin_prefetch(p)
#else
#define zu_prefetch_line(p) ((void) (p))
#endif

/*
 * zu_report_corrupt: raise ERRCODE_DATA_CORRUPTED for a place in
 * zundo.undo_log.
 */
extern void zu_report_corrupt(BlockNumber block, uint32 offset) zc_noreturn;

/* ---- undo_temp.c: zu_prepare to zu_fetch for private undo ---- */

extern void zu_temp_prepare(ZuOp *op);
extern void zu_temp_write(const ZuOp *op);
extern void zu_temp_finish(const ZuOp *op);

/*
 * zu_temp_gather: copy the record at ptr to buf; its length, 0 = it has been
 * given back, -1 = not a record.
 */
extern int	zu_temp_gather(UndoPtr ptr, char *buf);

#endif
