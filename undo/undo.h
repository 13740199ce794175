/*
 * undo/undo.h - the undo log of a database, as the rest of zundo may use it.
 *
 * The log is the relation zundo.undo_log of the current database, in shared
 * buffers. Layout and states: undo/README.md; invariants: at the top of files.
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
 * bits). Generation 0 marks a pointer into the private undo of temporary
 * tables; its other bits are a position there. No extent ever has generation 0.
 * Byte 0 of an extent is the first byte of its first page's header, which no
 * pointer names, so a valid pointer is never 0.
 */
#define ZU_EXTENT_PAGES		64
#define ZU_BYTE_BITS		19
#define ZU_EXTENT_BITS		25
#define ZU_GENERATION_BITS	20
#define ZU_MAX_GENERATION	((1U << ZU_GENERATION_BITS) - 1)
#define ZU_MAX_EXTENTS		(1U << ZU_EXTENT_BITS)

/* Return the parts of a pointer, and the pointer that is made of them. */
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
 * Returns whether p points into this backend's private undo (undo/undo_temp.c).
 * Such pointers have generation 0.
 */
static inline bool
zuptr_is_temp(UndoPtr p)
{
	return p != InvalidUndoPtr && zuptr_generation(p) == 0;
}

/*
 * Sets *extent and *page to the place of a data block of the undo relation: its
 * extent, and its number in that extent. Returns false for meta and map blocks.
 */
extern bool zu_block_position(BlockNumber block, uint32 *extent, uint32 *page);

/*
 * Returns the pointer that lies 'bytes' of record data after p in the same
 * extent, page headers not counted: where the next record begins. p points at
 * record data; the result may be the end of the extent's data.
 */
extern UndoPtr zu_advance(UndoPtr p, uint32 bytes);

/* ---- the current database's undo log ---- */

/*
 * Makes this database's undo usable by this backend. Called when a scan or a
 * change begins, before any buffer lock, on a primary or a standby. Cheap if it
 * has been done. The first call in a session looks zundo.undo_log up, joins or
 * creates the shared entry, and loads `oldest`. Raises ERRCODE_UNDEFINED_OBJECT
 * if CREATE EXTENSION has not been run in this database.
 */
extern void zu_attach_database(void);

/*
 * zu_attach_for_table: does the same for a scan of a zheap table that is
 * locked, without a lock on zundo.undo_log: this cannot be dropped before that
 * table.
 *
 * zu_attach_for_change: does the same for a change. In a subtransaction, and in
 * a function that a cursor's query calls, it locks zundo.undo_log: a ROLLBACK
 * TO may release the table's lock while the transaction still has undo.
 */
extern void zu_attach_for_table(void);
extern void zu_attach_for_change(void);

/*
 * Locks zundo.undo_log, if it exists, to the end of the transaction. Called
 * when a table gets the access method zheap: DROP EXTENSION waits, and finds
 * the table (HEAP-6 in guard/drop_guard.c).
 */
extern void zu_lock_for_new_table(void);

/*
 * Returns whether zu_attach_database has succeeded and its result still holds:
 * a relcache invalidation of zundo.undo_log, or of all relations, ends that
 * until the next call of zu_attach_database.
 */
extern bool zu_attached(void);

/*
 * Returns whether this backend has an entry whose `oldest` is loaded. Once
 * zu_attach_database has succeeded, this holds to the end of the transaction.
 */
extern bool zu_loaded(void);

/*
 * Returns whether the logs of the database are loaded, too. They are not before
 * this database is written, or while zundo.max_databases other databases have
 * theirs loaded.
 */
extern bool zu_writable(void);

/*
 * zu_relation_locator, zu_relation_oid: return the file and the OID of
 * zundo.undo_log. Valid after zu_attach_database.
 */
extern RelFileLocator zu_relation_locator(void);
extern Oid	zu_relation_oid(void);

/*
 * zu_find_relation: looks the OID of zundo.undo_log up by its name; InvalidOid
 * if there is no such relation.
 */
extern Oid	zu_find_relation(void);

/*
 * zu_is_of_extension: returns whether the object exists and belongs to
 * extension zundo.
 */
extern bool zu_is_of_extension(Oid class, Oid object);

/*
 * Returns `oldest`: every transaction with a lower xid has committed and is
 * visible to everybody, or has aborted and is undone on every page. One atomic
 * read. The value only grows.
 */
extern ZXid zu_oldest(void);

/*
 * The doubt window: xids whose undo may have been lost at the end of a log,
 * without a trace, before the log was loaded from its pages (CHAIN-11,
 * damage/undo_damage.c).
 */
typedef struct ZuDoubt
{
	pg_atomic_uint64 from;
	pg_atomic_uint64 to;		/* the first xid after it */
} ZuDoubt;

/*
 * zu_doubt: the window of the attached database; an empty one if none is
 * attached.
 */
extern ZuDoubt *zu_doubt;

/* Returns whether xid lies in the window. */
static inline bool
zu_in_doubt(ZXid xid)
{
	ZXid		from = pg_atomic_read_u64(&zu_doubt->from);

	return xid - from < pg_atomic_read_u64(&zu_doubt->to) - from;
}

/*
 * Returns zu_oldest(), or zu_temp_oldest() if ptr points to a record of a
 * temporary table.
 */
extern ZXid zu_oldest_for(UndoPtr ptr);

/* ---- writing ---- */

/*
 * Writing one row change:
 *
 *	zu_op_reserve();				before any buffer lock: may allocate an
 *									extent (WAL, disk full ERROR)
 *	lock table page(s)
 *	zu_op_prepare(&op, recs, n);	chooses pointers, pins and locks undo pages
 *	START_CRIT_SECTION
 *	zu_op_write(&op);				copies the packed records, marks dirty
 *	XLogBeginInsert					registers the table pages
 *	zu_op_register(&op, id)			registers the undo pages from block id on
 *	recptr = XLogInsert
 *	zu_op_finish(&op, recptr)		page LSNs, unlocks, publishes the position
 *	END_CRIT_SECTION
 *
 * At most ZU_MAX_RECORDS per op; all records of an op are contiguous in one
 * extent. An op covers at most ZU_MAX_PAGES undo pages. Before its change a
 * caller may save rows, each time in an op of its own, if zu_op_fits_spare
 * says so.
 */
#define ZU_MAX_RECORDS	3
#define ZU_MAX_PAGES	5
#define ZU_MAX_OP		(ZU_MAX_RECORDS * ZUR_MAX_LENGTH)
#define ZU_MAX_RESERVE	(ZU_MAX_OP + ZUR_MAX_LENGTH)

/*
 * What the headers of an op's new pages say: their place in the log, and the
 * transaction that began them.
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
	UndoPtr		ptr[ZU_MAX_RECORDS];	/* OUT of zu_op_prepare: where each
										 * record will be */
	uint32		total;			/* bytes of all records */
	int			npages;
	bool		kept;			/* the only page is that which this backend
								 * keeps pinned */
	Buffer		buffers[ZU_MAX_PAGES];
	bool		init[ZU_MAX_PAGES]; /* the page gets its first bytes:
									 * WILL_INIT */
	ZuPlace		place;			/* for the headers of new pages; generation
								 * and logno always */
	uint16		start;			/* byte on the first page where record 0
								 * begins */
	bool		first;			/* record 0 got ZUF_FIRST */
	const char *packed;			/* the records one after the other, if the
								 * caller has packed them since zu_op_prepare;
								 * else NULL */
	UndoPtr		next;			/* insert position afterwards */
} ZuOp;

/*
 * Makes sure that the next op, of up to ZU_MAX_RESERVE bytes, needs no
 * allocation. Attaches a log to this backend on first use. Assigns no xid. The
 * caller holds no LWLock and no buffer lock, since the backend may have to wait
 * for space (zundo.undo_full). Errors: disk full, undo_limit reached, no log or
 * no set of logs left for this session.
 */
extern void zu_op_reserve(void);

/*
 * Returns whether the backend can make an op of this many bytes, of shared
 * undo, now, and another one of ZU_MAX_OP afterwards, without zu_op_reserve in
 * between.
 */
extern bool zu_op_fits_spare(Size bytes);

/*
 * Fills op: chooses the place of each record, and pins and locks the undo
 * pages. topxid is this backend's top-level xid. On entry the table pages are
 * locked, and zu_op_reserve has been called with at least the total since the
 * last zu_op_finish. Sets every record's length and topxid, and ZUF_FIRST in
 * records[0] if that is the first record of topxid in this log. May raise I/O
 * errors, and ERRCODE_DATA_CORRUPTED if the log's last page has lost a write,
 * which closes the log (UNDO-37). No page is changed then, and the caller's
 * error cleanup releases the buffers. Records may refer to each other's
 * pointers, because zu_op_write packs them later; but their lengths must not
 * change after zu_op_prepare. Records with ZUX_TEMP go to the private undo;
 * the caller has called zu_temp_reserve for them instead of zu_op_reserve.
 */
extern void zu_op_prepare(ZuOp *op, ZuRecord **records, int nrecords, ZXid topxid);

/*
 * Packs the records of op onto its undo pages, or into the private undo, and
 * marks the pages dirty. In a critical section.
 */
extern void zu_op_write(ZuOp *op);

/*
 * Registers op's undo pages as block references first_block_id and following.
 * Registers no data: the builder of the WAL record takes the insert position
 * from op.
 */
extern void zu_op_register(ZuOp *op, uint8 first_block_id);

/*
 * Sets the LSN of op's pages (unless recptr is invalid), releases them, and
 * publishes the new insert position.
 */
extern void zu_op_finish(ZuOp *op, XLogRecPtr recptr);

/*
 * Puts the packed records of op, 'bytes', on the undo pages that are
 * registered as blocks first_block_id .. of the WAL record, as zu_op_write
 * did. op is as zu_op_prepare left it, except for its buffers: where the
 * records begin, how many pages they take, and what the headers of new pages
 * say. Skips pages that are newer than the WAL record. Sets buffers[] to the
 * pages, locked, and to InvalidBuffer for pages that a later record cuts off;
 * the caller releases them after all other pages are written.
 */
extern void zu_op_redo(XLogReaderState *record, uint8 first_block_id, const ZuOp *op,
					   const char *bytes, Buffer *buffers);

/* ---- reading ---- */

typedef enum ZuFetchResult
{
	ZU_FETCHED,
	ZU_DISCARDED,
	ZU_DAMAGED					/* zu_try_fetch only */
} ZuFetchResult;

/*
 * Reads the record at ptr into rec. Its bytes are copied to the caller's buf
 * (ZUR_MAX_LENGTH bytes), and rec->payload points there. expect_relnumber and
 * expect_block name the table page that the pointer came from. Returns
 * ZU_DISCARDED if the record is gone and the map or the log's discard pointer
 * says that it may be (UNDO-10). Raises ERRCODE_DATA_CORRUPTED if the record is
 * missing though nothing says so, or if the bytes are not a record. May be
 * called with a table page locked; takes and releases one undo page at a time,
 * and holds nothing on return.
 */
extern ZuFetchResult zu_fetch(UndoPtr ptr, RelFileNumber expect_relnumber,
							  BlockNumber expect_block, ZuRecord *rec, char *buf);

/*
 * Does the same, but returns ZU_DAMAGED instead of those errors. A page of undo
 * that cannot be read is an error here, too.
 */
extern ZuFetchResult zu_try_fetch(UndoPtr ptr, RelFileNumber expect_relnumber,
								  BlockNumber expect_block, ZuRecord *rec, char *buf);

/*
 * Reads the IMAGE or ROWS record at ptr as zu_fetch does. Returns false if
 * there is no such record, for whatever reason. For a reader that looks for an
 * image: the page's older versions are found without it.
 */
extern bool zu_fetch_saved(UndoPtr ptr, RelFileNumber expect_relnumber, BlockNumber expect_block,
						   ZuRecord *rec, char *buf);

/*
 * What a record says without its payload. An open LOCK is about all rows that a
 * page can have: offset and nrows say so.
 */
typedef struct ZuHeader
{
	UndoPtr		ptr;
	UndoPtr		prev;
	ZXid		xid;
	CommandId	cid;
	TransactionId as_of;
	OffsetNumber offset;
	uint16		nrows;
	uint16		xflags;
	uint8		type;
	uint8		lockmode;
} ZuHeader;

/* Returns whether it is the header of an open LOCK or DELETE. */
static inline bool
zu_header_open(const ZuHeader *header)
{
	return (header->type == ZUR_LOCK || header->type == ZUR_DELETE) && header->nrows > 1;
}

/* Sets in *header the type of rec, and which rows it is about. */
static inline void
zu_header_about(ZuHeader *header, const ZuRecord *rec)
{
	bool		all = rec->type == ZUR_LOCK && rec->open;

	header->type = (uint8) rec->type;
	header->lockmode = rec->lockmode;
	header->offset = all ? FirstOffsetNumber : rec->offset;
	header->nrows = all ? ZHEAP_MAX_OFFSET : rec->nrows;
}

/* At most this many records are read under one lock of an undo page. */
#define ZU_MAX_HEADERS 64

/*
 * Reads the headers of the record at ptr and of those before it in its chain,
 * as far as they lie on one undo page, or that of the first one alone if it
 * straddles pages: at most max, which is from 1 to ZU_MAX_HEADERS. Returns
 * their number. That is 0 if the first record has been discarded or is
 * damaged: the caller calls zu_fetch, which finds out which. Takes the locks
 * of zu_fetch.
 */
extern int	zu_fetch_headers(UndoPtr ptr, RelFileNumber expect_relnumber,
							 BlockNumber expect_block, ZuHeader *headers, int max);

/*
 * Passes over records of a chain that a reader does not want: from ptr on,
 * those that have the table page, xid and cid of *like and are not about the
 * row at off, as far as they lie on one undo page. A LOCK record is about the
 * row that it locks, an open one about every row. Returns where the first
 * record is that was not passed, InvalidUndoPtr at the end of the chain; adds
 * the number of records passed to *n. Returns ptr itself if the record there
 * is wanted or cannot be read. ptr is not one of private undo. Takes the locks
 * of zu_fetch.
 */
extern UndoPtr zu_skip(UndoPtr ptr, const ZuRecord *like, OffsetNumber off, int *n);

/*
 * Prefetches the memory of the record at ptr into the processor's cache, if its
 * buffer is known. Only a hint.
 */
extern void zu_prefetch(UndoPtr ptr);

/*
 * Does the same as zu_fetch, for callers that come to the same undo pages again
 * and again: these pages are copied, up to 32 MB of them until the end of the
 * transaction. *bytes is set to the record's: buf, or, in a copy, others that
 * stay valid until zu_cache_tidy or the end of the transaction, as rec->payload
 * does.
 */
extern ZuFetchResult zu_fetch_cached(UndoPtr ptr, RelFileNumber expect_relnumber,
									 BlockNumber expect_block, ZuRecord *rec, char *buf,
									 const char **bytes);

/*
 * A copy of one undo page, for a reader of records of which many that lie on
 * the same page are read one after the other.
 */
typedef struct ZuWindow
{
	UndoPtr		last;			/* byte 0 of the page that was read last */
	UndoPtr		first;			/* byte 0 of the page that is copied;
								 * InvalidUndoPtr = none */
	int			lower;			/* the copied page's pd_lower: where the data
								 * in the copy end */
	bool		try;			/* what is not there is left to zu_try_fetch
								 * instead of zu_fetch */
	PGAlignedBlock page;
} ZuWindow;

/*
 * zu_window_start: empties the window. zu_fetch_window: does the same as
 * zu_fetch, but copies a page into the window when two records in succession
 * are read from it, and then reads records of that page in the copy. *bytes is
 * set to the record's: buf, or those in the window, valid until the next call.
 */
static inline void
zu_window_start(ZuWindow *window)
{
	window->last = window->first = InvalidUndoPtr;
	window->try = false;
}

extern ZuFetchResult zu_fetch_window(ZuWindow *window, UndoPtr ptr, RelFileNumber expect_relnumber,
									 BlockNumber expect_block, ZuRecord *rec, char *buf,
									 const char **bytes);

/*
 * zu_copied_before: returns how far before the record at here another one, at
 * ptr, lies on the same undo page; 0 if it does not.
 *
 * zu_copied_alike: returns whether the record at ptr, which lies in len bytes
 * of a copy, has the layout of the one that rec was read from. Then rec is set
 * to what zu_fetch would give, else it is unchanged.
 */
extern Size zu_copied_before(UndoPtr ptr, UndoPtr here);
extern bool zu_copied_alike(UndoPtr ptr, const char *bytes, Size len, const ZurLayout *layout,
							ZuRecord *rec);

/* Does what zu_prefetch does, for a record that zu_fetch_cached will read. */
extern void zu_cache_prefetch(UndoPtr ptr);

/*
 * Gives the copies up if they are no longer worth their memory. Payloads of
 * zu_fetch_cached are not valid any more.
 */
extern void zu_cache_tidy(void);

/*
 * zu_read_begin, zu_read_end: hold the truncation fence across several
 * zu_fetch calls. Optional; must not be nested.
 */
extern void zu_read_begin(void);
extern void zu_read_end(void);

/* ---- transactions of this backend (for rollback/) ---- */

/*
 * Returns where this backend's current top-level transaction began in its log;
 * InvalidUndoPtr if the transaction has written nothing.
 */
extern UndoPtr zu_my_transaction_start(void);

/*
 * Returns how many bytes of undo the current top-level transaction has written
 * so far.
 */
extern uint64 zu_my_transaction_bytes(void);

/*
 * Asks for a worker if the transaction wrote undo and the database has none,
 * releases the pin on the log's last page, lets the log be taken from this
 * session (UNDO-50), and forgets the per-transaction state. Called by
 * the transaction callback in hooks.c at commit, abort and prepare.
 */
extern void zu_at_xact_end(void);

/*
 * Releases the pin on the log's last page. Called by hooks.c when a
 * subtransaction aborts, before the files that it has made are removed.
 */
extern void zu_at_subxact_abort(void);

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

/* Returns a palloc'd array of this database's logs that have extents. */
extern ZuLogState *zu_log_states(int *nlogs);

/* Returns the sum of ZuLogState.bytes of all logs. */
extern uint64 zu_bytes_in_use(void);

/*
 * zu_bytes_between: returns the data bytes between two positions of a log, each
 * the sequence of its extent and a pointer; 0 if the second is not behind the
 * first.
 */
extern uint64 zu_bytes_between(uint64 sequence, UndoPtr from, uint64 end_sequence, UndoPtr end);

/* What zu_bytes_kept needs of the logs: it is asked for many transactions. */
typedef struct ZuKept ZuKept;

/* zu_look_at_kept: returns it for the logs as they are now. */
extern ZuKept *zu_look_at_kept(void);

/*
 * zu_bytes_kept: returns how much of the undo in use would stay if `oldest`
 * became xid. An estimate, which may be wrong by some pages for each log.
 */
extern uint64 zu_bytes_kept(const ZuKept *kept, ZXid xid);

/*
 * An iterator over the records of a log in insertion order, from the discard
 * pointer to the insert pointer as of zu_scan_begin. It copies pages, and holds
 * no lock and no pin between calls.
 */
typedef struct ZuScan ZuScan;

/*
 * Begins a scan of the log. Raises ERRCODE_DATA_CORRUPTED, here or later, if
 * the log cannot be read.
 */
extern ZuScan *zu_scan_begin(uint32 logno);

/*
 * Begins the same scan, but one that ends without an error where the log cannot
 * be read. For views that name the damage elsewhere.
 */
extern ZuScan *zu_scan_begin_readable(uint32 logno);

/*
 * Begins a scan at ptr, a record boundary of that log which is not discarded.
 * Only for the process that holds the discarder flag, so nothing is discarded
 * meanwhile. The scan ends where the log cannot be read; it closes the log
 * then, which holds `oldest` for what follows (UNDO-37). Raises
 * ERRCODE_DATA_CORRUPTED, here or later, if an extent that is to be read does
 * not belong to the log any more.
 */
extern ZuScan *zu_scan_begin_at(uint32 logno, UndoPtr ptr);

/*
 * Reads the next record into rec and *ptr; false at the end. Raises
 * ERRCODE_DATA_CORRUPTED where a plain scan cannot read on.
 */
extern bool zu_scan_next(ZuScan *scan, ZuRecord *rec, UndoPtr *ptr);

/* Returns where the record is that zu_scan_next will read. */
extern UndoPtr zu_scan_position(ZuScan *scan);

/*
 * Returns the top-level transaction of rec, the record read last. A log may
 * begin with the rest of a transaction whose first record is discarded; until
 * a page's header tells, rec's own xid stands for the transaction there.
 */
extern ZXid zu_scan_topxid(const ZuScan *scan, const ZuRecord *rec);

/* Frees the scan. */
extern void zu_scan_end(ZuScan *scan);

/*
 * What held `oldest` below the horizon in the last discard pass of this
 * database: an aborted transaction that is not undone, locks of several
 * transactions on one row (UNDO-7b), or a damaged log.
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
	Oid			reloid;			/* ROLLBACK: a table whose lock it waits for,
								 * or 0; a rollback that waits for several has
								 * as many holds, one after the other */
	bool		failed;			/* ROLLBACK: an error prevented it, not a
								 * lock; the error is in the server log */
	uint64		records;		/* ROLLBACK: of the whole transaction */
	uint64		bytes;
} ZuHold;

#define ZU_MAX_HOLDS	16

/*
 * The lock on a table under which a worker rolls its pages back (RESOLVE-2 in
 * discard/), and the only mode that conflicts with it.
 */
#define ZU_ROLLBACK_LOCK		AccessShareLock
#define ZU_ROLLBACK_CONFLICT	AccessExclusiveLock

/*
 * Copies what holds `oldest` back, the oldest first, to out (space for
 * ZU_MAX_HOLDS); returns the number. The database is attached.
 */
extern int	zu_holds(ZuHold *out);

/*
 * Writes the WAL record that makes standbys cancel the snapshots that do not
 * see all transactions before 'horizon' (the server's, for a table of this
 * database). Called before a new file or index leaves out versions that nobody
 * on this server needs, because everybody here sees all these transactions.
 * `oldest` may be behind the horizon, so that no record has made standbys do so
 * yet.
 */
extern void zu_log_conflict(TransactionId horizon);

/*
 * Gives the free extents at the relation's end back.
 */
extern void zu_truncate_tail(void);

/* ---- checking and repairing (damage/undo_repair.c, undo_states.c) ---- */

/*
 * Called for each finding or step, with the block of zundo.undo_log that it
 * concerns.
 */
typedef void (*ZuReport) (void *arg, BlockNumber block, const char *fmt,...)
			pg_attribute_printf(3, 4);

/*
 * Does that part of zu_attach_database which needs no readable meta page. For
 * zu_check_map and zu_repair_map, which must work without one. Raises an error
 * if the library was not preloaded, or the extension does not exist.
 */
extern void zu_attach_unloaded(void);

/*
 * Reports what is wrong with the meta page and the map pages, and where they
 * contradict the pages of the extents or the length of the file. May run
 * beside writers, and on a standby.
 */
extern void zu_check_map(ZuReport report, void *arg);

/*
 * Repairs the meta page and the map pages: from their twins, or from the other
 * pages where both twins are lost, or have missed writes as the other pages
 * prove. Extends the file if it is too short. With dry_run it only reports
 * what it would do, except that loading the meta page, as any first use of the
 * database does, repairs what needs no word (zu_mend). No undo is lost by it.
 * Returns whether the logs can be loaded afterwards. On a primary only. Raises
 * an error if a map page would have to be rebuilt while sessions have the logs
 * loaded.
 */
extern bool zu_repair_map(bool dry_run, ZuReport report, void *arg);

/* A log of which something cannot be read (damage/undo_damage.c). */
typedef struct ZuDamage
{
	uint32		logno;
	ZXid		from;			/* what is lost belongs to transactions from
								 * this one ... */
	ZXid		to;				/* ... to the one before this; 0 = not known
								 * yet */
	bool		ended;			/* all of these have ended, by the last
								 * discard pass */
	bool		excused;		/* zu_excuse_damage was called */
} ZuDamage;

/* Returns a palloc'd array of the closed logs. On a primary only. */
extern ZuDamage *zu_damages(int *n);

/*
 * Notes that what is lost of log d->logno is not needed. The caller has looked
 * at all tables of the database after d->ended had become true, and has found
 * no slot with a chain that names a transaction from d->from up to, but not
 * including, d->to which has not committed. The next discard pass gives the
 * log up.
 */
extern void zu_excuse_damage(const ZuDamage *d);

/* ---- for the hooks, recovery, and functions for superusers ---- */

/*
 * Raises ERRCODE_SNAPSHOT_TOO_OLD in place of the error being handled if that
 * error is the cancellation of this transaction for the undo that it keeps
 * (zundo.undo_full = cancel); returns otherwise. For a PG_CATCH block outside
 * of all other statements.
 */
extern void zu_error_of_victim(void);

/*
 * zu_shmem_request: requests the shared memory and the LWLock tranches of the
 * undo log. zu_shmem_startup: creates the shared tables or attaches to them.
 * Called by the shared memory hooks.
 */
extern void zu_shmem_request(void);
extern void zu_shmem_startup(void);

/*
 * zu_ddl_check: raises an error if a utility command would do something to
 * zundo.undo_log that is not supported. zu_ddl_pass_by: returns the command
 * itself, or a copy without zundo.undo_log if the command must leave it out,
 * or NULL if nothing else is left of the command (undo_ddl.c).
 */
extern void zu_ddl_check(Node *command);
extern PlannedStmt *zu_ddl_pass_by(PlannedStmt *pstmt, bool toplevel);

/*
 * Adds the reason to the message that ends this session, if zu_cancel_pin ended
 * it.
 */
extern void zu_explain_end(ErrorData *error);

/* Creates the file of a new zundo.undo_log, with its meta page. */
extern void zu_create_storage(RelFileLocator locator, char persistence);

/*
 * Raises the error for a command that treats the undo log as a table:
 * "zundo.undo_log cannot be <what>".
 */
extern void zu_ddl_refuse(const char *what) zc_noreturn;

/*
 * zu_redo_map, zu_redo_discard, zu_redo_truncate: replay the undo log's own
 * records: opcodes ZWAL_UNDO_* (undo/undo_wal.h). zu_mask_page: hides what may
 * differ between a page of the undo log and its replay.
 */
extern void zu_redo_map(XLogReaderState *record);
extern void zu_redo_discard(XLogReaderState *record);
extern void zu_redo_truncate(XLogReaderState *record);
extern void zu_mask_page(char *page, BlockNumber blkno);

/*
 * zu_worker_attach, zu_worker_detach: register this process as the worker of
 * its database, and end that.
 */
extern void zu_worker_attach(void);
extern void zu_worker_detach(void);

/*
 * Wipes the data of all free extents, and of the pages of other extents that
 * are left from an earlier allocation, and has the pages written to the file;
 * returns the number of bytes wiped. Not during recovery; no lock held. Raises
 * ERRCODE_DATA_CORRUPTED if the pages of a free extent say that it is in use.
 */
extern uint64 zu_purge(void);

/*
 * Returns palloc'd sentences that name the process, prepared transaction or
 * replication slot which keeps the most undo of this database, this backend
 * excepted, and sets *xid to the transaction from which on it does, or to
 * InvalidZXid. For the server's log, since they name the role and the
 * application, too. In a transaction, no lock held.
 */
extern char *zu_describe_pin(ZXid *xid);

/* What zu_describe_pin describes, or a hold (ZuHoldKind) that keeps more. */
typedef enum ZuKeeperKind
{
	ZU_KEEPER_NONE,
	ZU_KEEPER_PREPARED,
	ZU_KEEPER_SLOT,
	ZU_KEEPER_PROCESS,
	ZU_KEEPER_ROLLBACK,			/* has failed */
	ZU_KEEPER_LOCKS,
	ZU_KEEPER_DAMAGE
} ZuKeeperKind;

typedef struct ZuKeeper
{
	ZuKeeperKind kind;
	int			pid;			/* this and the following of a process */
	Oid			role;
	char		application[NAMEDATALEN];
	TimestampTz since;			/* begin of its transaction, 0 = unknown */
	int64		query;			/* id of its query, 0 = unknown */
} ZuKeeper;

/*
 * zu_find_keeper: fills *keeper. In a transaction, no lock held; the database
 * is attached.
 */
extern void zu_find_keeper(ZuKeeper *keeper);

/*
 * zu_hold: for readers of versions that only the snapshots of other sessions
 * need, and which may end meanwhile. From the call on nothing more is discarded
 * in this database, and `oldest` stays where it is, until zu_hold_end, at the
 * latest until the end of the transaction. Returns horizon, the server's for a
 * table of this database, or `oldest` if that is newer: no snapshot needs what
 * was ended before. So chunks that were deleted by this transaction or later
 * can be read, unless they have gone before (zgone.c in mvcc/). The server's
 * horizons do not contain it. Calls nest. The database is attached.
 *
 * zu_choose_oldest: returns the oldest of `oldest` and what such readers hold:
 * what a discard pass may publish.
 *
 * zu_unheld: returns whether no such reader holds `oldest` back to xid, nor
 * will one. On entry the server's horizon is beyond xid.
 *
 * zu_readers: copies what such readers of this database hold to out, which has
 * room for MaxBackends; returns the number.
 */
typedef struct ZuReader
{
	int			pid;
	ZXid		xid;
} ZuReader;

extern TransactionId zu_hold(TransactionId horizon);
extern void zu_hold_end(void);
extern ZXid zu_choose_oldest(ZXid oldest);
extern bool zu_unheld(ZXid xid);
extern int	zu_readers(ZuReader *out);

/*
 * zu_anybody_waits: returns whether a process, of any database, has been
 * waiting for space below zundo.undo_limit in the last second or so.
 */
extern bool zu_anybody_waits(void);

#endif
