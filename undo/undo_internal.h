/*
 * undo/undo_internal.h - what the files of undo/ share; not included from outside.
 *
 * On-disk layout of zundo.undo_log (all pages have the standard page header,
 * and pd_lower is exact so that full-page images leave out what follows it):
 *
 *	blocks 0 and 1					meta page: ZuTwinHeader at 24, ZuMetaData at 48
 *	2 + g * ZU_GROUP_BLOCKS, + 1	map page of extent group g: ZuTwinHeader at 24, 500 ZuMapEntry at 48
 *	.. the 200 * 64 blocks after it	the group's extents, 64 pages each
 *
 *	Meta and map pages exist twice, side by side (undo_twin.c).
 *
 *	undo page:
 *	OFFSET SIZE FIELD
 *	0      24   PageHeaderData; pd_lower = end of data, pd_upper = pd_special = 8192
 *	24     40   ZuPageHeader
 *	64     ..   undo records, back to back; one may go on on the next page
 *
 *	slot overflow page: undo_overflow.h
 */
#ifndef ZUNDO_UNDO_INTERNAL_H
#define ZUNDO_UNDO_INTERNAL_H

#include "undo/undo.h"
#include "undo/undo_wal.h"
#include "port/atomics.h"
#include "storage/bufpage.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

/* ---- on-disk structures ---- */

#define ZU_META_BLOCK	0		/* the first twin's */
#define ZU_META_MAGIC	0x5A554E44
#define ZU_MAP_MAGIC	0x5A554E4D
#define ZU_META_VERSION 1

/* What meta and map pages begin with. */
typedef struct ZuTwinHeader
{
	uint64		changes;		/* how often the pair was changed */
	uint32		magic;
	BlockNumber first;			/* block of the pair's first twin */
	uint32		crc;			/* of all else from changes to pd_lower */
	uint32		zero;
} ZuTwinHeader;

#define ZU_TWIN_DATA	48		/* first byte behind it */

StaticAssertDecl(SizeOfPageHeaderData + sizeof(ZuTwinHeader) == ZU_TWIN_DATA,
				 "ZuTwinHeader is 24 bytes on disk");

/* How far relfrozenxid may go: see zu_freeze_limit. 0 = none. */
typedef struct ZuFreeze
{
	uint64		now;			/* up to here */
	uint64		next;			/* a durable `oldest`, which will do ... */
	uint64		after;			/* ... once everybody's horizon has reached this: nextXid after it was published */
} ZuFreeze;

typedef struct ZuMetaData
{
	uint32		version;
	uint32		extent_pages;	/* ZU_EXTENT_PAGES */
	uint64		oldest;			/* durable value of zu_oldest() */
	uint32		nextents;		/* extents that exist; the limit */
	uint32		floor;			/* generation at which the extents of a new group begin (U41) */
	ZuFreeze	freeze;
	uint64		doubt_from;		/* xids below `oldest` whose undo may be lost (U46) */
	uint64		doubt_to;
} ZuMetaData;

StaticAssertDecl(sizeof(ZuMetaData) == 64, "ZuMetaData is 64 bytes on disk");

/* State of an extent in its map entry. */
#define ZU_EXTENT_FREE		0
#define ZU_EXTENT_LOG		1
#define ZU_EXTENT_OVERFLOW	2	/* slot overflow pages (undo_overflow.c) */

typedef struct ZuMapEntry
{
	uint32		generation;		/* of its latest allocation, kept when freed */
	uint16		logno;
	uint8		state;
	uint8		settled;		/* 1: what follows 'sequence' is valid (U52) */
	uint64		sequence;		/* position among the extents of its log */
	uint64		oldest_top;		/* oldest top-level xid of its records */
	uint64		newest;			/* newest xid, of lockers too, that they name */
	uint32		end;			/* byte where its data end */
	uint32		zero;
} ZuMapEntry;

StaticAssertDecl(sizeof(ZuMapEntry) == 40, "ZuMapEntry is 40 bytes on disk");

#define ZU_GROUP_EXTENTS	200
#define ZU_GROUP_BLOCKS		(2 + ZU_GROUP_EXTENTS * ZU_EXTENT_PAGES)

StaticAssertDecl(ZU_TWIN_DATA + ZU_GROUP_EXTENTS * sizeof(ZuMapEntry) <= BLCKSZ,
				 "a map page holds the entries of its group");

#define ZU_PAGE_MAGIC	0x7A75

typedef struct ZuPageHeader
{
	uint32		generation;
	uint32		extent;
	uint16		logno;
	uint16		first_record;	/* page offset of the first record that begins here, 0 = none */
	uint16		magic;
	uint16		page;			/* number in the extent */
	uint64		sequence;		/* of the extent in its log */
	UndoPtr		prev;			/* page 0 only: where the log ended before it came here; 0 = nowhere */
	uint64		topxid;			/* top-level transaction whose bytes begin the page */
} ZuPageHeader;

StaticAssertDecl(sizeof(ZuPageHeader) == 40, "ZuPageHeader is 40 bytes on disk");
StaticAssertDecl(SizeOfPageHeaderData == 24, "undo pages are laid out behind a 24-byte page header");

#define ZU_PAGE_DATA	64		/* first byte of data on an undo page */
#define ZU_PAGE_ROOM	(BLCKSZ - ZU_PAGE_DATA)
#define ZU_EXTENT_ROOM	(ZU_EXTENT_PAGES * ZU_PAGE_ROOM)
#define ZU_EXTENT_END	((1U << ZU_BYTE_BITS) - 1)	/* byte of a position behind a full extent */
#define ZU_MIN_EXTENTS	8		/* tail truncation leaves these */

static inline ZuMetaData *
zu_meta(Page page)
{
	return (ZuMetaData *) ((char *) page + ZU_TWIN_DATA);
}

static inline ZuMapEntry *
zu_map_entry(Page page, uint32 extent)
{
	return (ZuMapEntry *) ((char *) page + ZU_TWIN_DATA) + extent % ZU_GROUP_EXTENTS;
}

static inline ZuPageHeader *
zu_page_header(Page page)
{
	return (ZuPageHeader *) ((char *) page + SizeOfPageHeaderData);
}

/* zu_map_block: block of the first twin of extent's map page. */
static inline BlockNumber
zu_map_block(uint32 extent)
{
	return 2 + (extent / ZU_GROUP_EXTENTS) * (BlockNumber) ZU_GROUP_BLOCKS;
}

static inline BlockNumber
zu_extent_block(uint32 extent)
{
	return zu_map_block(extent) + 2 + (extent % ZU_GROUP_EXTENTS) * ZU_EXTENT_PAGES;
}

/* zu_block_extent: the extent that a data block belongs to. */
static inline uint32
zu_block_extent(BlockNumber block)
{
	BlockNumber b = block - 2;

	return (b / ZU_GROUP_BLOCKS) * ZU_GROUP_EXTENTS + (b % ZU_GROUP_BLOCKS - 2) / ZU_EXTENT_PAGES;
}

/* zu_block_is_twin: is it one of a meta or map page's two? */
static inline bool
zu_block_is_twin(BlockNumber block)
{
	return block < 2 || (block - 2) % ZU_GROUP_BLOCKS < 2;
}

/* zu_nblocks_for: blocks of a relation with nextents extents. */
static inline BlockNumber
zu_nblocks_for(uint32 nextents)
{
	return nextents == 0 ? 2 : zu_extent_block(nextents - 1) + ZU_EXTENT_PAGES;
}

/* zu_byte_at: byte in the extent of (page, off), where off may be the page's end. */
static inline uint32
zu_byte_at(int page, int off)
{
	if (off >= BLCKSZ)
	{
		page++;
		off = ZU_PAGE_DATA;
	}
	return page >= ZU_EXTENT_PAGES ? ZU_EXTENT_END : (uint32) (page * BLCKSZ + off);
}

/* zu_byte_room: data bytes of the extent before byte. */
static inline uint32
zu_byte_room(uint32 byte)
{
	if (byte >= ZU_EXTENT_END)
		return ZU_EXTENT_ROOM;
	return (byte / BLCKSZ) * ZU_PAGE_ROOM + Max((int) (byte % BLCKSZ) - ZU_PAGE_DATA, 0);
}

/* zu_generation_newer: was an extent's generation a given out after b? They are counted in a circle. */
static inline bool
zu_generation_newer(uint32 a, uint32 b)
{
	uint32		ahead = (a - b) & ZU_MAX_GENERATION;

	return ahead != 0 && ahead < (1U << (ZU_GENERATION_BITS - 1));
}

/* zu_page_valid: is the page written, as page pageno of this allocation of the extent? */
static inline bool
zu_page_valid(Page page, uint32 extent, uint32 generation, int pageno)
{
	ZuPageHeader *h = zu_page_header(page);
	int			lower = ((PageHeader) page)->pd_lower;

	return h->magic == ZU_PAGE_MAGIC && h->generation == generation &&
		h->extent == extent && h->page == pageno && lower >= ZU_PAGE_DATA && lower <= BLCKSZ;
}

/* An extent as a log knows it. */
typedef struct ZuExtent
{
	uint64		sequence;
	uint32		extent;			/* number */
	uint32		generation;
	uint32		logno;
	bool		settled;		/* the rest as in ZuMapEntry */
	uint32		end;
	ZXid		oldest_top;
	ZXid		newest;
} ZuExtent;

/* ---- shared state ---- */

#define ZU_FENCES		16

/*
 * One log of a database. 'insert' and 'insert_sequence' are written by the owner only,
 * 'discard*' by the process that discards, all else under the alloc lock.
 */
typedef struct ZuLog
{
	pg_atomic_uint64 insert;	/* UndoPtr; 0 = the log has no extent */
	pg_atomic_uint64 insert_sequence;
	pg_atomic_uint64 discard;	/* UndoPtr, never past insert */
	pg_atomic_uint64 discard_sequence;
	pg_atomic_uint64 discards;	/* number of changes of discard by anybody */
	pg_atomic_uint32 nextents;
	pg_atomic_uint32 owner;		/* its pid, perhaps with ZU_LOG_HELD; 0 = unattached */
	ZuExtent	ahead;			/* of an unattached log: allocated, not entered; generation 0 = none */
	uint64		last_sequence;	/* of its newest extent */
	bool		sealed;			/* loaded from its pages: its next owner goes on in a fresh extent (U36) */
	bool		closed;			/* something in it cannot be read: not attached again, keeps `oldest` back (U37) */
	uint64		hold;			/* closed: `oldest` when that was found; nothing unread is older */
	uint64		unread_end;		/* closed: next xid when no owner could write any more, 0 = not yet */
	bool		excused;		/* closed: no page has a change of those that it may have been needed for */
	TimestampTz detached;		/* when the owner left */
} ZuLog;

/*
 * In ZuLog.owner: the owner is in a transaction that may write. Without it the
 * log of an idle session may be taken from it (undo_discard.c).
 */
#define ZU_LOG_HELD		0x80000000U

/* zu_log_pid: the process that a log is attached to, 0 = none. */
static inline int
zu_log_pid(ZuLog *log)
{
	return (int) (pg_atomic_read_u32(&log->owner) & ~ZU_LOG_HELD);
}

typedef enum ZuEntryState
{
	ZU_ENTRY_EMPTY,				/* nothing loaded: no visibility test */
	ZU_ENTRY_VALID,				/* oldest and limit are valid */
	ZU_ENTRY_LOGS				/* logs too: may be written */
} ZuEntryState;

/* One database's undo. Exists while a session is attached. */
typedef struct ZuEntry
{
	/* the key and refcount are protected by the table lock */
	Oid			dboid;			/* 0 = slot is unused */
	RelFileNumber relnumber;
	int			refcount;

	pg_atomic_uint32 state;		/* ZuEntryState; grows under the load lock */
	pg_atomic_uint64 oldest;	/* monotone */
	pg_atomic_uint32 limit;		/* extents that exist; lowered only with all fences held */
	pg_atomic_uint32 used;		/* extents not free; alloc lock */
	pg_atomic_uint32 hint;		/* no free extent below; alloc lock */
	pg_atomic_uint32 overflow_extents;	/* in state OVERFLOW; alloc lock */
	pg_atomic_uint32 overflow_hint; /* block from which to look for a free overflow page; alloc lock */
	ZuDoubt		doubt;			/* written at load, before `oldest` moves, and by redo */
	pg_atomic_uint64 horizon;	/* latest H, monotone */
	pg_atomic_uint64 durable;	/* `oldest` in the meta page, monotone */
	pg_atomic_uint64 conflict;	/* newest xid discarded since the last DISCARD record */
	pg_atomic_uint32 discarder; /* pid of who discards, 0 = nobody */
	pg_atomic_uint32 truncator; /* pid of the process that cuts the file off, 0 = none; set under the alloc lock */
	ConditionVariable truncated;	/* when truncator becomes 0 */
	pg_atomic_uint32 worker;	/* pid of the database's worker, 0 = none */
	pg_atomic_uint32 passes_begun;	/* discard passes; written by the discarder */
	pg_atomic_uint32 passes_done;	/* number of the last one that came to its end */

	slock_t		mutex;			/* protects what follows */
	ZuFreeze	freeze;			/* goes to the meta page with each DISCARD record */
	ZuFreeze	freeze_logged;	/* what is there */
	TimestampTz logged;			/* time of the last DISCARD record */
	int			nholds;			/* what held `oldest` back in the last pass */
	ZuHold		holds[ZU_MAX_HOLDS];

	ZuLog	   *logs;			/* in state LOGS: zu_nlogs() of them */
} ZuEntry;

/* The logs of one database that is written. */
typedef struct ZuLogSet
{
	ZuEntry    *owner;			/* NULL = free; table lock */
	ZuLog		logs[FLEXIBLE_ARRAY_MEMBER];
} ZuLogSet;

/* This backend's view of the current database. */
typedef struct ZuBackend
{
	ZuEntry    *entry;			/* NULL = not attached */
	bool		stale;			/* look the relation up again */
	bool		locked;			/* AccessShareLock taken in this transaction */
	Oid			reloid;
	RelFileLocator locator;
} ZuBackend;

extern ZuBackend zu_my;

/* Locks of an entry; see README.md for their order. */
extern LWLock *zu_fence_lock(ZuEntry *entry, int n);
extern LWLock *zu_alloc_lock(ZuEntry *entry);
extern LWLock *zu_load_lock(ZuEntry *entry);

/* zu_nlogs: logs in a set. */
extern int	zu_nlogs(void);

/* zu_take_logs: give the entry a set of logs, empty. Load lock held. Error if all sets are in use. */
extern void zu_take_logs(ZuEntry *entry);

/* zu_max64 / zu_max32: atomic maximum. */
extern void zu_max64(pg_atomic_uint64 *v, uint64 to);

/*
 * zu_lock_entry_for_redo: the entry of locator's relation with the table lock
 * held shared, or NULL with nothing held. May be called with buffers locked.
 */
extern ZuEntry *zu_lock_entry_for_redo(RelFileLocator locator);
extern void zu_unlock_entry_for_redo(void);

/* zu_fences_acquire / release: all fences of the entry, exclusively. */
extern void zu_fences_acquire(ZuEntry *entry);
extern void zu_fences_release(ZuEntry *entry);

/* ---- undo_meta.c ---- */

/* zu_read_block: pin a block of this database's log. Unlocked, but for RBM_ZERO_AND_LOCK. */
extern Buffer zu_read_block(BlockNumber block, ReadBufferMode mode);

extern void zu_meta_init(Page page, ZXid oldest);

/* zu_map_init: a map page of free extents, each of generation 'floor'; 'first' is the block of the pair's first twin. */
extern void zu_map_init(Page page, BlockNumber first, uint32 floor);

/* zu_page_init: make page an empty undo page, page pageno of the extent, with what place says of it. */
extern void zu_page_init(Page page, uint32 extent, int pageno, const ZuPlace *place);

/* zu_create_storage: make the file of a new zundo.undo_log, with its meta page. */
extern void zu_create_storage(RelFileLocator locator, char persistence);

/* zu_load_meta: read oldest and limit into entry, which becomes VALID. Error on a foreign format. */
extern void zu_load_meta(ZuEntry *entry);

/* zu_require_logs: make the attached entry LOGS. Primary only. Error if the tables are too small. */
extern void zu_require_logs(void);

/*
 * zu_collect_extents: palloc'd array of the log extents of logno (or of all
 * logs if logno < 0) with sequence >= from, by (logno, sequence).
 */
extern ZuExtent *zu_collect_extents(int logno, uint64 from, int *n);

/* zu_any_log_extent: does any log have an extent? Without one there is no undo. */
extern bool zu_any_log_extent(void);

/* zu_read_map_entry: copy the map's entry for the extent; false if that lies beyond the limit. */
extern bool zu_read_map_entry(uint32 extent, ZuMapEntry *dst);

/* zu_extent_live: does the map still give e to its log, in this generation? */
extern bool zu_extent_live(const ZuExtent *e);

/*
 * zu_block_is_zero: reads a block from the file, past its buffer; returns whether
 * it is all zeros. A page that could not be read once (RBM_ZERO_ON_ERROR) is so
 * in its buffer only.
 */
extern bool zu_block_is_zero(BlockNumber block);

/*
 * zu_find_insert: where the data of extent e end, as its pages tell it; 0 if nothing was written there. *sound (may be NULL):
 * nothing behind that place says that it is not the end. Reads the whole extent for that.
 */
extern UndoPtr zu_find_insert(const ZuExtent *e, bool *sound);

/*
 * zu_alloc_extent: take a free extent for logno as the next of its sequence, growing the relation if there
 * is none. No lock held; may wait (zu_wait_for_room). Errors: disk full, undo_limit, too large.
 */
extern ZuExtent zu_alloc_extent(uint32 logno);

/*
 * zu_alloc_overflow_extent: take a free extent for slot overflow pages, growing the
 * relation if there is none; returns its number. Alloc lock held, not zu_is_full. Errors: disk full, too large.
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
 * zu_check_unused: raises an error if pages of the extent, which its map calls free, tell that it is in use (U42).
 * Alloc lock held, and no buffer.
 */
extern void zu_check_unused(uint32 extent);

/* zu_collect_overflow: palloc'd array of the numbers of all overflow extents, ascending. */
extern uint32 *zu_collect_overflow(int *n);

/* zu_is_overflow_extent: does the map say so? Takes the map page's share lock. */
extern bool zu_is_overflow_extent(uint32 extent);

/*
 * zu_free_overflow_extent: make the extent free if 'unused' finds every page of it so, while the
 * extent's map page is locked exclusively. Alloc lock held. True if it was done.
 */
extern bool zu_free_overflow_extent(uint32 extent, bool (*unused) (uint32 extent));

/*
 * zu_free_extents: make extents free and oldest durable, in WAL and pages. On
 * entry the alloc lock is held and oldest is published. Sorts the array.
 */
extern void zu_free_extents(ZuExtent *extents, int n, ZXid oldest);

/*
 * zu_mark_settled: makes the summaries of n settled extents durable in the map,
 * in WAL. By the discarder. Sorts the array.
 */
extern void zu_mark_settled(ZuExtent *extents, int n);

/* zu_set_settled: the mutator of that, on the map page of all n extents. */
extern void zu_set_settled(Page page, const xl_undo_settled *settled, int n);

/* zu_xid_before: returns the newest transaction before oldest, which is positive. */
extern TransactionId zu_xid_before(ZXid oldest);

/* zu_log_oldest: make oldest durable without freeing anything. */
extern void zu_log_oldest(ZXid oldest);

/* ---- undo_twin.c ---- */

/* A pair of twins, pinned and exclusively locked. */
typedef struct ZuTwins
{
	BlockNumber first;
	Buffer		buffer[2];
	int			source;			/* which of the two is changed; the other becomes its copy */
} ZuTwins;

/* zu_twin_init: the twin header of a page that was just initialised. */
extern void zu_twin_init(Page page, BlockNumber first);

/* zu_twin_seal: count a change of the page and compute its checksum anew. */
extern void zu_twin_seal(Page page);

/* zu_twin_valid: is page, whatever its bytes, a twin of the pair at 'first'? */
extern bool zu_twin_valid(Page page, BlockNumber first);

/*
 * zu_twins_share: pin and share-lock the newer twin of the pair at block 'first'.
 * ERRCODE_DATA_CORRUPTED if both are damaged.
 */
extern Buffer zu_twins_share(BlockNumber first);

/*
 * zu_twins_lock: pin and exclusively lock the pair at 'first'; a twin that is damaged or older than
 * the other is repaired from that. On a primary only. ERRCODE_DATA_CORRUPTED if both are damaged.
 */
extern void zu_twins_lock(ZuTwins *t, BlockNumber first);

/* zu_twins_state: of the pair at 'first', pinned for a moment: which twins are valid, how often each was changed. */
extern void zu_twins_state(BlockNumber first, bool valid[2], uint64 changes[2]);

/* zu_twins_lost: is neither of the pair at 'first' valid? */
extern bool zu_twins_lost(BlockNumber first);

/* zu_twins_lock_new: the same for a pair that the caller initialises. */
extern void zu_twins_lock_new(ZuTwins *t, BlockNumber first);

/* zu_twins_repair: zu_twins_lock if the twins differ. Holds nothing on return. */
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
 * zu_twins_redo: lock the pair that is block references id and id + 1 of the record. True: the
 * caller changes zu_twins_page and calls zu_twins_redone. False: the change is there, or
 * the pages were cut off later. zu_twins_unlock in both cases.
 */
extern bool zu_twins_redo(ZuTwins *t, XLogReaderState *record, uint8 id);

/* zu_twins_redo_new: the same for a pair that is WILL_INIT; the caller initialises zu_twins_page. */
extern void zu_twins_redo_new(ZuTwins *t, XLogReaderState *record, uint8 id);
extern void zu_twins_redone(const ZuTwins *t, XLogReaderState *record);

/* ---- undo_full.c: what happens when zundo.undo_limit is reached ---- */

/* One writer's wait for one extent; zeroed before it. */
typedef struct ZuFullWait
{
	TimestampTz since;			/* 0 = not begun */
	TimestampTz looked;			/* when it was last seen who waits for whom */
	long		nap;
} ZuFullWait;

/* zu_is_full: has the database as much undo as it may keep? Exact with the alloc lock held. */
extern bool zu_is_full(ZuEntry *entry);

/*
 * zu_wait_for_room: do what zundo.undo_full says: raise the error, or wait a moment; the caller looks again then. No lock held.
 */
extern void zu_wait_for_room(ZuEntry *entry, ZuFullWait *wait);

/* ---- undo_pin.c ---- */

/* Who else keeps undo back; of several that keep the same, the owner of that transaction id counts, then the first of these. */
typedef enum ZuPinKind
{
	ZU_PIN_NONE,
	ZU_PIN_PREPARED,
	ZU_PIN_SLOT,
	ZU_PIN_OTHER,				/* a walsender, autovacuum, a background worker */
	ZU_PIN_CLIENT
} ZuPinKind;

typedef struct ZuPin
{
	ZuPinKind	kind;
	TransactionId xid;			/* nothing of this or a younger transaction can be discarded */
	bool		owner;			/* it is its own id; else that of a snapshot */
	int			procno;			/* of OTHER and CLIENT; a parallel worker's is its leader's */
	int			pid;
	LocalTransactionId lxid;
	Oid			role;			/* that logged in */
	bool		exempt;			/* never cancelled (zundo.undo_full_exempt) */
	bool		reading;		/* it waits for words of its client */
	bool		writing;		/* or for its client to take some */
} ZuPin;

/* zu_find_pin: who else keeps the most undo of this database now; own: what this transaction does. */
extern ZuPin zu_find_pin(TransactionId *own);

/* zu_pin_install_hooks: once, at the server's start. */
extern void zu_pin_install_hooks(void);

extern Size zu_pin_shmem_size(void);
extern void zu_pin_shmem_startup(void);

/* zu_note_waiting: this process waits for room, and says so again before this time. */
extern void zu_note_waiting(TimestampTz until);

/* zu_is_waiting: does the pin's process itself wait for room? */
extern bool zu_is_waiting(const ZuPin *pin);

/* zu_cancel_pin: a step on the way to the end of a client's transaction. To be called again and again while it pins. */
extern void zu_cancel_pin(const ZuPin *pin);

/* ---- undo_am.c ---- */

/* zu_refuse: raise the error for what treats the undo log as a table: "zundo.undo_log cannot be <what>". */
extern void zu_refuse(const char *what);

/* ---- undo_log.c ---- */

/* zu_log_detach: give this backend's log back. Alloc lock not held. */
extern void zu_log_detach(void);

/* ---- undo_fetch.c ---- */

/*
 * zu_fence_enter / zu_fence_leave: around pinning pages that the limit may be
 * lowered past; enter returns what leave has to be told.
 */
extern bool zu_fence_enter(void);
extern void zu_fence_leave(bool taken);

/*
 * zu_copy_page: copy page 'page' of an extent to dst (BLCKSZ) if it is written as part of the
 * generation; false otherwise. Holds nothing on return.
 */
extern bool zu_copy_page(uint32 extent, uint32 generation, int page, char *dst, ReadBufferMode mode);

/*
 * zu_is_discarded: may the record at ptr be gone, by what is written in the map or by its log's discard pointer? To be asked after
 * it was not found. Takes the map page's share lock.
 */
extern bool zu_is_discarded(UndoPtr ptr);

/* zu_prefetch_line: have the cache line at p brought near. */
#ifdef __GNUC__
#define zu_prefetch_line(p) __builtin_prefetch(p)
#else
#define zu_prefetch_line(p) ((void) (p))
#endif

/* zu_report_corrupt: raise ERRCODE_DATA_CORRUPTED for a place in zundo.undo_log. */
extern void zu_report_corrupt(BlockNumber block, uint32 offset) zc_noreturn;

/* ---- undo_temp.c: the private side of zu_prepare, zu_write, zu_finish and zu_fetch ---- */

extern void zu_temp_prepare(ZuOp *op);
extern void zu_temp_write(const ZuOp *op);
extern void zu_temp_finish(const ZuOp *op);

/* zu_temp_gather: copy the record at ptr to buf; its length, 0 = it has been given back, -1 = not a record. */
extern int	zu_temp_gather(UndoPtr ptr, char *buf);

/* ---- undo_scan.c ---- */

typedef enum ZuStep
{
	ZU_STEP_RECORD,
	ZU_STEP_SETTLED,			/* passed over the settled extent that begins at *ptr (skip_settled) */
	ZU_STEP_END,				/* all up to the end position has been read */
	ZU_STEP_GONE,				/* the extent was discarded meanwhile */
	ZU_STEP_CORRUPT				/* not a record at the scan's position */
} ZuStep;

struct ZuScan
{
	uint32		logno;
	ZuExtent   *extents;		/* by sequence; palloc'd */
	int			nextents;
	int			current;		/* index of the extent that is read */
	int			page;			/* position of the next record */
	int			off;
	UndoPtr		end;			/* insert position to stop at */
	ZXid		topxid;			/* of the transaction that the records read last are of; 0 = not known */
	bool		skip_settled;	/* passes over settled extents without reading them */
	bool		readable;		/* ends quietly where the log cannot be read */
	bool		owned;			/* nobody else can discard what it reads: what is gone is damage */
	int			loaded_index;	/* which page 'copy' holds; -1 = none */
	int			loaded_page;
	MemoryContext context;		/* of extents */
	PGAlignedBlock copy;
	char		record[ZUR_MAX_LENGTH]; /* a record that straddles pages */
};

/* zu_scan_init: a scan of logno over extents (palloc'd in context, taken over) from byte 'byte' of the first one to end. */
extern void zu_scan_init(ZuScan *scan, uint32 logno, ZuExtent *extents, int n,
						 uint32 byte, UndoPtr end, MemoryContext context);
extern ZuStep zu_scan_step(ZuScan *scan, ZuRecord *rec, UndoPtr *ptr);

/* zu_scan_extend: go on up to a later end; forgets the page copy. */
extern void zu_scan_extend(ZuScan *scan, UndoPtr end);

/* ---- undo_damage.c ---- */

/* Transactions that the discard pass has met as aborted and had undone, with the logs that their records were in. */
typedef struct ZuResolved
{
	int			n;
	int			size;
	ZXid	   *xids;
	uint32	   *lognos;
} ZuResolved;

/*
 * zu_close_log: notes and reports that what follows 'at' in the log cannot be
 * read, unless that is known. By the log's owner, the discarder, or at load.
 */
extern void zu_close_log(ZuEntry *entry, uint32 logno, UndoPtr at);

/*
 * zu_widen_doubt: takes the xids from 'from' up to 'to' into the doubt window,
 * which is cut to its latest part if it gets too wide. Before `oldest` passes them.
 */
extern void zu_widen_doubt(ZuEntry *entry, ZXid from, ZXid to);

/* zu_note_resolved: adds to resolved, whose memory is in context, that xid was undone from the log. */
extern void zu_note_resolved(ZuResolved *resolved, ZXid xid, uint32 logno, MemoryContext context);

/* zu_forget_resolved: drops the xids below oldest. */
extern void zu_forget_resolved(ZuResolved *resolved, ZXid oldest);

/*
 * zu_damage_is_needless: returns whether nobody can need what is unread of a
 * closed log (U37). *checked: up to which xid that was found already. By the discarder.
 */
extern bool zu_damage_is_needless(ZuLog *log, uint32 logno, ZXid horizon, const ZuResolved *resolved,
								  ZXid *checked);

/* ---- undo_discard.c ---- */

/* zu_discard_forget: drop the parse state, which belongs to an entry that is being left. */
extern void zu_discard_forget(void);
extern void zu_discard_release(void);

/* zu_truncate_release: lets the file grow again, if this process has cut it off. */
extern void zu_truncate_release(void);

#endif
