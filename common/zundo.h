/*
 * common/zundo.h - types, settings and helpers that every layer shares.
 *
 * Owns nothing at run time but the GUC variables (common/guc.c) and the fault
 * points (common/fault.c). Depends on the server only.
 */
#ifndef ZUNDO_H
#define ZUNDO_H

#include "postgres.h"

#include "common/compat.h"
#include "access/transam.h"
#include "storage/block.h"
#include "storage/off.h"

StaticAssertDecl(BLCKSZ == 8192, "zundo's page and undo formats are laid out for 8 kB blocks");

/*
 * A 64-bit transaction id. On disk it takes 48 bits: enough for 2^16 epochs.
 * 0 = none.
 */
typedef uint64 ZXid;

#define InvalidZXid		((ZXid) 0)
#define ZXID_BITS		48
#define ZXID_MASK		((UINT64CONST(1) << ZXID_BITS) - 1)

static inline TransactionId
zxid_to_xid(ZXid zxid)
{
	return (TransactionId) zxid;
}

static inline ZXid
zxid_from_full(FullTransactionId fxid)
{
	return (ZXid) U64FromFullTransactionId(fxid);
}

/*
 * zxid_widen: the 64-bit form of xid, which must not be newer than the next
 * transaction id and not older than 2^31 transactions before it.
 */
static inline ZXid
zxid_widen(TransactionId xid)
{
	FullTransactionId next = zc_next_full_xid();
	uint32		epoch = EpochFromFullTransactionId(next);

	if (!TransactionIdIsNormal(xid))
		return (ZXid) xid;
	if (xid > XidFromFullTransactionId(next))
		epoch--;
	return ((ZXid) epoch << 32) | xid;
}

/* zxid_possible: can a transaction have this id yet? What says no was not written by zundo. */
static inline bool
zxid_possible(ZXid xid)
{
	static ZXid known_next = 0;

	if (unlikely(xid >= known_next))
		known_next = zxid_from_full(zc_peek_next_full_xid());
	return xid < known_next;
}

/* zrel_nblocks: the blocks of rel, without the callback by which others ask (monitor/heap_callers.c). */
static inline BlockNumber
zrel_nblocks(Relation rel)
{
	return smgrnblocks(RelationGetSmgr(rel), MAIN_FORKNUM);
}

/*
 * Set just before a function of the server asks for a table's size on our
 * behalf: that callback then clears it and does not look at its callers.
 */
extern bool zundo_asks_size;

/* A place in this database's undo log; undo/undo.h has its parts. 0 = none. */
typedef uint64 UndoPtr;

#define InvalidUndoPtr	((UndoPtr) 0)

/* Most line pointers on a page: bitmap scans and GIN refuse larger offsets. */
#define ZHEAP_MAX_OFFSET	291

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

typedef enum
{
	ZUNDO_UNDECODABLE_ERROR,
	ZUNDO_UNDECODABLE_SKIP
} ZundoUndecodable;

/* What stands for all superusers in zundo.undo_full_exempt. */
#define ZUNDO_SUPERUSERS	"superusers"

extern int	zundo_undo_compression;		/* ZundoCompression */
extern int	zundo_max_databases;		/* that can be written at one time */
extern int	zundo_eager_rollback_pages; /* largest rollback that the backend undoes itself */
extern int	zundo_undo_limit;			/* MB, 0 = none */
extern int	zundo_undo_full;			/* ZundoUndoFull */
extern int	zundo_undo_full_timeout;	/* ms, 0 = none */
extern char *zundo_undo_full_exempt;	/* names of roles, or ZUNDO_SUPERUSERS */
extern int	zundo_log_undo_size;		/* MB, -1 = never */
extern int	zundo_log_undo_age;			/* s, -1 = never */
extern bool zundo_drop_rows_with_extension;
extern int	zundo_undecodable_changes;	/* ZundoUndecodable */
extern bool zundo_allow_xmin_comparison;	/* mvcc/zguard.c, X2 */
extern bool zundo_allow_ctid_guard;		/* the same, X3 */

extern void zundo_define_gucs(void);

/* Was the library loaded by shared_preload_libraries? (zundo.c) */
extern bool zundo_preloaded;

/*
 * What only builds for tests have (make ZUNDO_TESTING=1): settings that let
 * processes fail on purpose or take other ways, and the code behind them.
 *
 * ZUNDO_FAULT(name): a named place where a test can make this process fail.
 * Costs one load when zundo.fault is empty. The list of names is in
 * common/fault.c; an unknown name is refused when the GUC is set.
 * Actions: error, disk, memory (ereport ERROR with different codes), cancel (the statement), crash (SIGKILL to itself), sleep (1 s).
 * In critical sections only 'cancel', 'crash' and 'sleep' may be used.
 */
#ifdef ZUNDO_TESTING
extern bool zundo_move_updates;		/* no update in place */
extern char *zundo_fault_spec;			/* 'name:action[:n][,...]' */

extern void zundo_fault_hit(const char *name);

#define ZUNDO_FAULT(name) \
	do { \
		if (unlikely(zundo_fault_spec != NULL && zundo_fault_spec[0] != '\0')) \
			zundo_fault_hit(name); \
	} while (0)
#else
#define zundo_move_updates false
#define ZUNDO_FAULT(name) ((void) 0)
#endif

/* zundo_not_supported: raise ERRCODE_FEATURE_NOT_SUPPORTED: "zheap: <what>". */
extern void zundo_not_supported(const char *what, const char *detail) zc_noreturn;

/* ---- reads in abort callbacks (common/abort_read.c) ---- */

extern void zundo_abort_may_read(RelFileLocator locator, BlockNumber block);
extern void zundo_abort_forget_io(void);

#endif
