/*
 * common/zundo.h - types, settings and helpers that all layers share.
 *
 * Depends on the server only. The settings are defined in common/guc.c, the
 * fault points in common/fault.c.
 */
#ifndef ZUNDO_H
#define ZUNDO_H

#include "postgres.h"

#ifdef WORDS_BIGENDIAN
#error "zundo needs a little-endian machine: see docs/format.md"
#endif

#include "common/compat.h"
#include "access/transam.h"
#include "storage/block.h"
#include "storage/off.h"

StaticAssertDecl(BLCKSZ == 8192, "zundo's page and undo formats are laid out for 8 kB blocks");

/*
 * A 64-bit transaction id, 0 if none. On disk it takes 48 bits, which is
 * enough for 2^16 epochs.
 */
typedef uint64 ZXid;

#define InvalidZXid		((ZXid) 0)
#define ZXID_BITS		48
#define ZXID_MASK		((UINT64CONST(1) << ZXID_BITS) - 1)

/* Returns the 32-bit form of the id. */
static inline TransactionId
zxid_to_xid(ZXid zxid)
{
	return (TransactionId) zxid;
}

/* Returns our form of the server's 64-bit id. */
static inline ZXid
zxid_from_full(FullTransactionId fxid)
{
	Assert(U64FromFullTransactionId(fxid) <= ZXID_MASK);
	return (ZXid) U64FromFullTransactionId(fxid);
}

/*
 * zxid_widen: returns the 64-bit form of xid, which must be at most the next
 * transaction id, and less than 2^32 transactions before it. Ids that are not
 * normal (invalid, bootstrap, frozen) are returned as they are.
 */
static inline ZXid
zxid_widen(TransactionId xid)
{
	FullTransactionId next = ReadNextFullTransactionId();
	uint32		epoch = EpochFromFullTransactionId(next);

	if (!TransactionIdIsNormal(xid))
		return (ZXid) xid;
	if (xid > XidFromFullTransactionId(next))
		epoch--;
	return ((ZXid) epoch << 32) | xid;
}

/*
 * zxid_possible: returns true if this id has been assigned already, or may
 * have been. An id on disk for which it returns false was not written by zundo.
 */
static inline bool
zxid_possible(ZXid xid)
{
	static ZXid known_next = 0;

	if (unlikely(xid >= known_next))
		known_next = zxid_from_full(zc_peek_next_full_xid());
	return xid < known_next;
}

/*
 * zrel_nblocks: returns the number of blocks of rel. Our own code calls this
 * instead of the table AM's relation_size callback, which refuses functions of
 * heap (guard/heap_callers.c).
 */
static inline BlockNumber
zrel_nblocks(Relation rel)
{
	Assert(RELKIND_HAS_STORAGE(rel->rd_rel->relkind));
	return smgrnblocks(RelationGetSmgr(rel), MAIN_FORKNUM);
}

/*
 * zundo_asks_size: set to true right before a function of the server is called
 * that asks for the table's size. The relation_size callback resets it, and
 * then does not look at its callers (HEAP-5 in guard/).
 */
extern bool zundo_asks_size;

/* A position in this database's undo log (undo/undo.h), 0 if none. */
typedef uint64 UndoPtr;

#define InvalidUndoPtr	((UndoPtr) 0)

/*
 * The highest offset of a row. Bitmap scans and GIN accept no offsets above
 * MaxHeapTuplesPerPage, which is this.
 */
#define ZHEAP_MAX_OFFSET	291

StaticAssertDecl(ZHEAP_MAX_OFFSET == MaxHeapTuplesPerPage, "bitmap scans accept all our offsets");

/*
 * A set of offsets is an array of words, with offset off in word off / 64 as
 * bit off % 64. zoffsets_of_word: returns those offsets from first to last that
 * are in this word.
 */
#define ZOFFSETS_WORDS	((ZHEAP_MAX_OFFSET + 64) / 64)

static inline uint64
zoffsets_of_word(int word, int first, int last)
{
	uint64		bits = ~UINT64CONST(0);

	Assert(word >= first / 64 && word <= last / 64);
	if (word == first / 64)
		bits &= ~UINT64CONST(0) << (first % 64);
	if (word == last / 64)
		bits &= ~UINT64CONST(0) >> (63 - last % 64);
	return bits;
}

/* GUCs (common/guc.c). */
typedef enum
{
	ZUNDO_COMPRESS_NONE,
	ZUNDO_COMPRESS_LZ4
} ZundoCompression;

typedef enum
{
	ZUNDO_FULL_ERROR,
	ZUNDO_FULL_WAIT,
	ZUNDO_FULL_CANCEL
} ZundoUndoFull;

/* Values of zundo.default_index. */
typedef enum ZundoDefaultIndex
{
	ZUNDO_BTREE,
	ZUNDO_ZBTREE
} ZundoDefaultIndex;

/* The word in zundo.undo_full_exempt that stands for all superusers. */
#define ZUNDO_SUPERUSERS	"superusers"

extern int	zundo_undo_compression; /* ZundoCompression */
extern int	zundo_max_databases;	/* with zheap tables being written */
extern int	zundo_max_stat_tables;	/* in zundo.stat_tables, 0 = none */
extern int	zundo_eager_rollback_pages; /* largest rollback that the backend
										 * undoes itself */
extern int	zundo_undo_limit;	/* MB, 0 = none */
extern int	zundo_undo_full;	/* ZundoUndoFull */
extern int	zundo_undo_full_timeout;	/* ms, 0 = none */
extern char *zundo_undo_full_exempt;	/* names of roles, or ZUNDO_SUPERUSERS */
extern int	zundo_log_undo_size;	/* MB, -1 = never */
extern int	zundo_log_undo_age; /* s, -1 = never */
extern int	zundo_log_disk_free;	/* percent, -1 = never */
extern int	zundo_history_interval; /* ms, 0 = no history */
extern int	zundo_history_size;
extern bool zundo_drop_rows_with_extension;
extern bool zundo_allow_ctid_guard; /* GUARD-3 (guard/zctid.c) */
extern int	zundo_default_index;	/* ZundoDefaultIndex
									 * (guard/index_method.c) */
extern int	zundo_key_queue;	/* kB, 0 = none (zbtree/queue.c) */
extern double zundo_index_expression_cost;	/* dml/zcolumns.c */
extern bool zundo_explain_undo; /* monitor/explain.c */

/* zundo_define_gucs: defines the settings (common/guc.c). */
extern void zundo_define_gucs(void);

/* True if shared_preload_libraries has loaded the library (zundo.c). */
extern bool zundo_preloaded;

/*
 * zundo_require_preload: raises ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE if it
 * has not.
 */
extern void zundo_require_preload(void);

/*
 * Only builds for tests (make ZUNDO_TESTING=1) have what follows: settings by
 * which a test makes processes fail or take rare paths.
 *
 * ZUNDO_FAULT(name) marks a place where a test can make this process fail. It
 * costs one load while zundo.fault is empty. common/fault.c has the list of
 * names; a value of zundo.fault with an unknown name is refused. Actions are
 * error, disk and memory (ereport(ERROR) with different codes), cancel (of the
 * statement), crash (SIGKILL to itself) and sleep (1 s). In a critical section
 * only 'cancel', 'crash' and 'sleep' may be used.
 */
#ifdef ZUNDO_TESTING
extern bool zundo_move_updates; /* no update in place */
extern bool zundo_swap_btree;	/* guard/index_method.c */
extern char *zundo_fault_spec;	/* 'name:action[:n][,...]' */

/*
 * zundo_fault_hit: takes the action that zundo.fault has for the fault point
 * 'name', if any. Raises ERRCODE_INTERNAL_ERROR, ERRCODE_DISK_FULL or
 * ERRCODE_OUT_OF_MEMORY, according to the action; never allocates otherwise.
 */
extern void zundo_fault_hit(const char *name);

#define ZUNDO_FAULT(name) \
	do { \
		if (unlikely(zundo_fault_spec != NULL && zundo_fault_spec[0] != '\0')) \
			zundo_fault_hit(name); \
	} while (0)
#else
#define zundo_move_updates false
#define zundo_swap_btree false
#define ZUNDO_FAULT(name) ((void) 0)
#endif

/*
 * zundo_not_supported: raises ERRCODE_FEATURE_NOT_SUPPORTED with the message
 * <what>, and with detail as its DETAIL unless NULL (common/error.c).
 */
extern void zundo_not_supported(const char *what, const char *detail) zc_noreturn;

/* ---- reads in abort callbacks (common/abort_read.c) ---- */

/*
 * zundo_abort_may_read: raises an error unless the main fork's block is valid
 * in shared buffers, or has no buffer and can be read without waiting for a
 * read that this backend itself has begun (ABORT-7). Does nothing outside
 * transaction callbacks. No buffer mapping lock may be held.
 *
 * zundo_abort_lock_buffer: locks a pinned buffer in mode, as LockBuffer does.
 * In transaction callbacks the lock is exclusive in any case, and an error is
 * raised if it is not granted soon (ABORT-7); the pin is left to the resource
 * owner.
 *
 * zundo_abort_forget_io: forgets the I/O that an error has interrupted, as far
 * as reads of other pages would meet it: on 15 the buffer in progress, on 18
 * the handle that was given out and not used. Called while an error is
 * handled, before the resource owners are released.
 */
extern void zundo_abort_may_read(RelFileLocator locator, BlockNumber block);
extern void zundo_abort_lock_buffer(Buffer buf, int mode);
extern void zundo_abort_forget_io(void);

#endif
