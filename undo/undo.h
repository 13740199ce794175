/*
 * undo/undo.h - the undo log of a database, as the rest of zundo may use it.
 *
 * The log is the relation zundo.undo_log of the current database, in shared
 * buffers. Layout, invariants and state machine: undo/README.md.
 *
 * Lock order: index leaf -> table page -> overflow page -> undo page -> undo
 * map page -> undo meta page. Nothing here takes a table page lock.
 */
#ifndef ZUNDO_UNDO_H
#define ZUNDO_UNDO_H

#include "common/zundo.h"
#include "datatype/timestamp.h"
#include "nodes/plannodes.h"
#include "port/atomics.h"
#include "storage/buf.h"
#include "undo/undo_record.h"

/*
 * Undo pointer: generation (20 bits) | extent (25 bits) | byte in extent (19
 * bits). Generation 0: private undo of temporary tables; the other bits are a
 * position there. Byte 0 of an extent is the first byte of its first page's
 * header; so valid pointers are never 0, and generation 0 is never used.
 */
#define ZU_EXTENT_PAGES		64
#define ZU_BYTE_BITS		19
#define ZU_EXTENT_BITS		25
#define ZU_GENERATION_BITS	20
#define ZU_MAX_GENERATION	((1U << ZU_GENERATION_BITS) - 1)
#define ZU_MAX_EXTENTS		(1U << ZU_EXTENT_BITS)

static inline uint32
zuptr_byte(UndoPtr p)
{
	return (uint32) (p & ((UINT64CONST(1) << ZU_BYTE_BITS) - 1));
}

static inline uint32
zuptr_extent(UndoPtr p)
{
	return (uint32) ((p >> ZU_BYTE_BITS) & ((UINT64CONST(1) << ZU_EXTENT_BITS) - 1));
}

static inline uint32
zuptr_generation(UndoPtr p)
{
	return (uint32) (p >> (ZU_BYTE_BITS + ZU_EXTENT_BITS));
}

static inline UndoPtr
zuptr_make(uint32 generation, uint32 extent, uint32 byte)
{
	return ((UndoPtr) generation << (ZU_BYTE_BITS + ZU_EXTENT_BITS)) |
		((UndoPtr) extent << ZU_BYTE_BITS) | byte;
}

/*
 * zuptr_is_temp: does p point into this backend's private undo
 * (undo/undo_temp.c)? Generation 0 means that.
 */
static inline bool
zuptr_is_temp(UndoPtr p)
{
	return p != InvalidUndoPtr && zuptr_generation(p) == 0;
}

/*
 * zu_block_position: extent and page in it of a data block of the undo
 * relation; false for meta and map blocks.
 */
extern bool zu_block_position(BlockNumber block, uint32 *extent, uint32 *page);

/*
 * zu_advance: the pointer 'bytes' further on in the data of the same extent,
 * skipping page headers: where the next record begins. p points at record
 * bytes; the result may be the end of the extent's data.
 */
extern UndoPtr zu_advance(UndoPtr p, uint32 bytes);

/* ---- the current database's undo log ---- */

/*
 * zu_attach_database: make this database's undo usable by this backend. Call at
 * scan or DML begin, before any buffer lock, on a primary or a standby.
 * Cheap when already done. On first use in a session: looks up
 * zundo.undo_log, creates or joins the shared entry, loads `oldest`.
 * Errors: undefined object if CREATE EXTENSION has not been run in this
 * database.
 */
extern void zu_attach_database(void);

/* zu_attached: has zu_attach_database succeeded and is it still valid? */
extern bool zu_attached(void);

/*
 * zu_writable: are the database's logs loaded, too? If not,
 * zundo.max_databases others may be written.
 */
extern bool zu_writable(void);

/*
 * zu_relation_locator / zu_relation_oid: of zundo.undo_log; after
 * zu_attach_database.
 */
extern RelFileLocator zu_relation_locator(void);
extern Oid	zu_relation_oid(void);

/*
 * zu_oldest: every transaction with xid < oldest is committed and visible to
 * everybody, or aborted and undone on every page. One atomic read. Only grows.
 */
extern ZXid zu_oldest(void);

/*
 * The doubt window: xids whose undo may have been lost at the end of a log,
 * without a trace, before the log was loaded from its pages (UNDO-46,
 * undo_damage.c).
 */
typedef struct ZuDoubt
{
	pg_atomic_uint64 from;
	pg_atomic_uint64 to;		/* not in it */
} ZuDoubt;

/* zu_doubt: of the attached database; an empty one if there is none. */
extern ZuDoubt *zu_doubt;

/* zu_in_doubt: returns whether xid lies in the window. */
static inline bool
zu_in_doubt(ZXid xid)
{
	ZXid		from = pg_atomic_read_u64(&zu_doubt->from);

	return xid - from < pg_atomic_read_u64(&zu_doubt->to) - from;
}

/*
 * zu_is_lost: returns whether xid, which heads the chain of a slot on a locked
 * page and lies in the window, is below `oldest` and has not committed: then
 * its undo is lost. A transaction so old that clog has forgotten it counts as
 * committed.
 */
extern bool zu_is_lost(ZXid xid);

/*
 * zu_oldest_for: the same for the transaction whose record ptr points to,
 * which may be one of a temporary table.
 */
extern ZXid zu_oldest_for(UndoPtr ptr);

/* ---- writing ---- */

/*
 * Writing one row change:
 *
 *	zu_reserve(bytes);				before any buffer lock: may allocate an
 *									extent (WAL, disk full ERROR)
 *	lock table page(s)
 *	zu_prepare(&op, recs, n);		chooses pointers, pins and locks undo pages
 *	START_CRIT_SECTION
 *	zu_write(&op);					copies the packed records, marks dirty
 *	XLogBeginInsert; register table pages ... zu_register(&op, first_block_id)
 *	recptr = XLogInsert
 *	zu_finish(&op, recptr)			page LSNs, unlocks, publishes the position
 *	END_CRIT_SECTION
 *
 * At most ZU_MAX_RECORDS per op; all records of an op are contiguous in one
 * extent. An op covers at most ZU_MAX_PAGES undo pages.
 */
#define ZU_MAX_RECORDS	3
#define ZU_MAX_PAGES	5
#define ZU_MAX_RESERVE	(ZU_MAX_RECORDS * ZUR_MAX_LENGTH)

/*
 * What the headers of an op's new pages say: where they stand in which log,
 * and who began them.
 */
typedef struct ZuPlace
{
	uint32		generation;		/* of the extent */
	uint32		logno;
	uint64		sequence;		/* of the extent in the log */
	UndoPtr		prev;			/* for page 0 of the extent: where the log
								 * ended before, 0 = it begins here */
	ZXid		topxid;
} ZuPlace;

typedef struct ZuOp
{
	bool		temp;			/* private undo: no pages, no WAL */
	int			nrecords;
	ZuRecord   *records[ZU_MAX_RECORDS];
	UndoPtr		ptr[ZU_MAX_RECORDS];	/* OUT of zu_prepare: where each
										 * record will be */
	uint32		total;			/* bytes of all records */
	int			npages;
	Buffer		buffers[ZU_MAX_PAGES];
	bool		init[ZU_MAX_PAGES]; /* page gets its first bytes: WILL_INIT */
	ZuPlace		place;			/* for the headers of new pages; generation
								 * and logno always */
	uint16		start;			/* byte on the first page where record 0
								 * begins */
	bool		first;			/* record 0 got ZUF_FIRST */
	UndoPtr		next;			/* insert position afterwards */
} ZuOp;

/*
 * zu_reserve: make sure that the next op of up to 'bytes' (<= ZU_MAX_RESERVE)
 * needs no allocation. Attaches a log to this backend on first use. Assigns no
 * xid. No buffer lock may be held: it may have to wait for room
 * (zundo.undo_full). Errors: disk full, undo_limit reached.
 */
extern void zu_reserve(Size bytes);

/*
 * zu_prepare: fill op. topxid is this backend's top-level xid. On entry the
 * table pages are locked; zu_reserve was called with at least the total after
 * the last zu_finish. Sets ZUF_FIRST and topxid in records[0] when it is the
 * first of topxid in this log, and every record's length. May raise I/O
 * errors; then nothing is changed (buffers are released by the caller's error
 * cleanup). Records may refer to each other's pointers: those are chosen
 * before packing (zu_write packs), but lengths must not change after
 * zu_prepare. Records with ZUX_TEMP go to the private undo; zu_temp_reserve
 * was called then.
 */
extern void zu_prepare(ZuOp *op, ZuRecord **records, int nrecords, ZXid topxid);

extern void zu_write(ZuOp *op);

/*
 * zu_register: Registers op's undo pages as block references first_block_id and
 * following. Registers no data: the insert position is written by the builder
 * of the WAL record, which takes it from op.
 */
extern void zu_register(ZuOp *op, uint8 first_block_id);

/*
 * zu_finish: set LSNs (skipped if recptr is invalid), unlock, unpin, advance
 * and publish.
 */
extern void zu_finish(ZuOp *op, XLogRecPtr recptr);

/*
 * zu_redo_records: replay's counterpart of zu_write: puts the packed records
 * of op, 'bytes', on the undo pages that are registered as blocks
 * first_block_id .. of the record. op is as zu_prepare left it, but for its
 * buffers: where the records begin, how many pages they take and what the
 * headers of new pages say. Skips pages that are newer than the record.
 * Returns the pages' buffers, which the caller releases after all other pages
 * are written.
 */
extern void zu_redo_records(XLogReaderState *record, uint8 first_block_id, const ZuOp *op,
							const char *bytes, Buffer *buffers);

/* ---- reading ---- */

typedef enum ZuFetchResult
{
	ZU_FETCHED,
	ZU_FETCHED_IN_PLACE,		/* zu_fetch_cached only */
	ZU_DISCARDED
} ZuFetchResult;

/*
 * zu_fetch: read the record at ptr into rec; its bytes are copied to buf
 * (ZUR_MAX_LENGTH bytes, caller's), where rec->payload points.
 * expect_relnumber/expect_block: of the table page that the pointer came from.
 * ZU_DISCARDED: the record is gone, and the map or the log's discard pointer
 * says that it may be (UNDO-35). ERRCODE_DATA_CORRUPTED: it is not there
 * though nothing says so, or the bytes are not a record. May be called with a
 * table page locked; takes and releases one undo page at a time. Holds nothing
 * on return.
 */
extern ZuFetchResult zu_fetch(UndoPtr ptr, RelFileNumber expect_relnumber,
							  BlockNumber expect_block, ZuRecord *rec, char *buf);

/*
 * zu_prefetch: have the memory of the record at ptr brought near, if its
 * buffer is known. A hint.
 */
extern void zu_prefetch(UndoPtr ptr);

/*
 * zu_fetch_cached: as zu_fetch, for callers that come to the same undo pages
 * again and again: they are copied, up to 32 MB of them until the end of the
 * transaction. ZU_FETCHED_IN_PLACE: as ZU_FETCHED, but buf is untouched and
 * rec->payload stays valid until zu_cache_tidy or the end of the transaction.
 */
extern ZuFetchResult zu_fetch_cached(UndoPtr ptr, RelFileNumber expect_relnumber,
									 BlockNumber expect_block, ZuRecord *rec, char *buf);

/* zu_cache_prefetch: zu_prefetch, for zu_fetch_cached. */
extern void zu_cache_prefetch(UndoPtr ptr);

/*
 * zu_cache_tidy: give up copies that do no good any more. Payloads of
 * zu_fetch_cached are no longer valid.
 */
extern void zu_cache_tidy(void);

/*
 * zu_read_begin, zu_read_end: Hold the truncation fence across several
 * zu_fetch calls. Optional; must not be nested.
 */
extern void zu_read_begin(void);
extern void zu_read_end(void);

/* ---- transactions of this backend (for rollback/) ---- */

/*
 * zu_my_transaction_start: Returns where this backend's current top-level
 * transaction began in its log; 0 if it has written nothing.
 */
extern UndoPtr zu_my_transaction_start(void);

/*
 * zu_my_transaction_bytes: bytes of undo of the current top-level transaction
 * so far.
 */
extern uint64 zu_my_transaction_bytes(void);

/*
 * zu_at_xact_end: have a worker come if undo was written and there is none;
 * forget per-transaction state. Called by the transaction callback in hooks.c,
 * commit and abort and prepare.
 */
extern void zu_at_xact_end(void);

/* ---- parsing and discarding (workers, VACUUM, monitor) ---- */

/* One log as seen now. */
typedef struct ZuLogState
{
	uint32		logno;
	bool		attached;		/* a backend owns it */
	int			pid;			/* of the owner, 0 if none */
	UndoPtr		discard;		/* oldest byte still kept */
	UndoPtr		insert;			/* where the next record goes */
	uint64		bytes;			/* kept: inserted - discarded */
	uint32		extents;
} ZuLogState;

/* zu_log_states: palloc'd array of this database's logs. */
extern ZuLogState *zu_log_states(int *nlogs);

extern uint64 zu_bytes_in_use(void);

/*
 * Iterator over the records of a log in insertion order, from its discard
 * pointer to the insert pointer as of zu_scan_begin. Copies pages: holds no
 * lock or pin between calls.
 */
typedef struct ZuScan ZuScan;
extern ZuScan *zu_scan_begin(uint32 logno);

/*
 * zu_scan_begin_readable: the same, but the scan ends where the log cannot be
 * read, for views that name damage elsewhere.
 */
extern ZuScan *zu_scan_begin_readable(uint32 logno);

/*
 * zu_scan_begin_at: the same, from ptr (a record boundary of that log, not
 * discarded), for the process that discards: nothing goes meanwhile. It ends
 * where the log cannot be read; the log is closed then, which holds `oldest`
 * for what follows (UNDO-37).
 */
extern ZuScan *zu_scan_begin_at(uint32 logno, UndoPtr ptr);
extern bool zu_scan_next(ZuScan *scan, ZuRecord *rec, UndoPtr *ptr);
extern UndoPtr zu_scan_position(ZuScan *scan);	/* of the next record */
extern void zu_scan_end(ZuScan *scan);

/*
 * What, by the last discard pass of this database, holds `oldest` back beside
 * the horizon: an aborted transaction that is not undone, locks of several
 * transactions on one row (UNDO-28), or a damaged log.
 */
typedef enum ZuHoldKind
{
	ZU_HOLD_ROLLBACK,
	ZU_HOLD_LOCKS,
	ZU_HOLD_DAMAGE
} ZuHoldKind;

typedef struct ZuHold
{
	ZuHoldKind	kind;
	uint32		logno;
	ZXid		xid;			/* `oldest` cannot pass it */
	Oid			reloid;			/* ROLLBACK: a table that it waits for, or 0 */
	bool		failed;			/* ROLLBACK: not for a lock; an error is in
								 * the log */
	uint64		records;		/* ROLLBACK: of the whole transaction */
	uint64		bytes;
} ZuHold;

#define ZU_MAX_HOLDS	16

/*
 * zu_holds: copies what holds `oldest` back, the oldest first, to out (room for
 * ZU_MAX_HOLDS); returns their number. Undo is attached.
 */
extern int	zu_holds(ZuHold *out);

/*
 * zu_log_conflict: versions that nobody on this server needs, since all
 * changes by transactions before horizon (the server's, of a table of this
 * database) are seen by everybody, are about to be left out of a new file or
 * index. A standby must end the snapshots that do not see those changes;
 * `oldest` may be behind and not have told it yet.
 */
extern void zu_log_conflict(TransactionId horizon);

/*
 * zu_truncate_tail: Gives back the free extents at the relation's end; returns
 * the pages given back.
 */
extern BlockNumber zu_truncate_tail(void);

/* ---- checking and repairing (undo_repair.c) ---- */

/*
 * Called for each finding or step, with the block of zundo.undo_log that it is
 * about.
 */
typedef void (*ZuReport) (void *arg, BlockNumber block, const char *fmt,...)
			pg_attribute_printf(3, 4);

/*
 * zu_attach_unloaded: zu_attach_database as far as it goes without a meta page
 * that can be read. For zu_check_map and zu_repair_map only.
 */
extern void zu_attach_unloaded(void);

/*
 * zu_check_map: reports what is wrong with the meta page and the map pages,
 * and where they do not fit the extents' pages. May run beside writers, and on
 * a standby.
 */
extern void zu_check_map(ZuReport report, void *arg);

/*
 * zu_repair_map: repairs the meta page and the map pages: from their twins, or
 * from the other pages where both twins are lost; with dry_run it only says
 * so. Nothing is lost by it. Returns whether the logs can be loaded then. On a
 * primary only. Errors: a map page is to be rebuilt while sessions have the
 * logs loaded.
 */
extern bool zu_repair_map(bool dry_run, ZuReport report, void *arg);

/* A log of which something cannot be read (undo_damage.c). */
typedef struct ZuDamage
{
	uint32		logno;
	ZXid		from;			/* what is lost is of transactions from here
								 * ... */
	ZXid		to;				/* ... to before here; 0 = not known yet */
	bool		ended;			/* all of these have, by the last discard pass */
	bool		excused;		/* zu_excuse_damage was called */
} ZuDamage;

/* zu_damages: palloc'd array of them. On a primary only. */
extern ZuDamage *zu_damages(int *n);

/*
 * zu_excuse_damage: what is lost there is not needed: after 'ended' no slot
 * with a chain, of any table of the database, was found to name a transaction
 * in between that has not committed. The next discard pass gives the log up.
 */
extern void zu_excuse_damage(const ZuDamage *d);

/* ---- wiring (zundo.c) ---- */

/*
 * zu_error_of_victim: for PG_CATCH outside of all other statements: if the
 * error is that this transaction was cancelled for the undo that it keeps
 * (zundo.undo_full = cancel), raise it as ERRCODE_SNAPSHOT_TOO_OLD; returns
 * otherwise.
 */
extern void zu_error_of_victim(void);

extern Size zu_shmem_size(void);
extern void zu_shmem_request(void); /* LWLock tranches etc. */
extern void zu_shmem_startup(void);

/*
 * zu_ddl_check: raises an error if a utility command would do to zundo.undo_log
 * what it does not take. zu_ddl_pass_by: returns the command itself, or a copy
 * without zundo.undo_log if that is not to suffer what it says, or NULL if
 * nothing else is left of it (undo_ddl.c).
 */
extern void zu_ddl_check(Node *command);
extern PlannedStmt *zu_ddl_pass_by(PlannedStmt *pstmt, bool toplevel);

/*
 * zu_explain_end: adds to the message that ends this session why that is so,
 * if zu_cancel_pin did it.
 */
extern void zu_explain_end(ErrorData *error);

/*
 * zu_create_storage: Makes the file of a new zundo.undo_log, with its meta
 * page.
 */
extern void zu_create_storage(RelFileLocator locator, char persistence);

/*
 * zu_refuse: Raises the error for a command that treats the undo log as a
 * table: "zundo.undo_log cannot be <what>".
 */
extern void zu_refuse(const char *what);

/* Redo of the undo log's own records: opcodes ZWAL_UNDO_* (undo/undo_wal.h). */
extern void zu_redo_map(XLogReaderState *record);
extern void zu_redo_discard(XLogReaderState *record);
extern void zu_redo_truncate(XLogReaderState *record);
extern void zu_mask_page(char *page, BlockNumber blkno);

/*
 * zu_worker_attach / detach: This process is the database's worker, or not any
 * more.
 */
extern void zu_worker_attach(void);
extern void zu_worker_detach(void);

/*
 * zu_purge: wipe the data of all free extents, and have that written to the
 * file; returns the number of bytes. Not during recovery, no lock held.
 * Errors: damage that says that an extent is not free.
 */
extern uint64 zu_purge(void);

/*
 * zu_describe_pin: a palloc'd sentence that says who else keeps the most undo
 * of this database. In a transaction, no lock held.
 */
extern char *zu_describe_pin(void);

#endif
