/*
 * monitor/index_judge.h - finding out whether an entry of a zbtree index is
 * needed, and whether the versions of a row have their entries. Private to
 * monitor/.
 */
#ifndef ZUNDO_INDEX_JUDGE_H
#define ZUNDO_INDEX_JUDGE_H

#include "access/itup.h"
#include "mvcc/zhistory.h"

typedef enum ZEntryState
{
	ZENTRY_NEEDED,				/* a version that is not aborted has its key */
	ZENTRY_STALE,				/* no such version; the row is deleted or has
								 * ZH_STALE_KEYS */
	ZENTRY_DIFFERENT,			/* the newest version has its key but other
								 * bytes, and the row lacks ZH_STALE_KEYS
								 * (INDEX-4) */
	ZENTRY_UNTOLD,				/* no such version, but the live row lacks
								 * ZH_STALE_KEYS (INDEX-4) */
	ZENTRY_NO_ROW				/* the line pointer is unused or does not
								 * exist (INDEX-2) */
} ZEntryState;

typedef struct ZIndexJudge
{
	Relation	table;
	Relation	index;
	struct IndexInfo *info;
	struct EState *estate;
	struct ExprContext *econtext;
	struct ExprState *predicate;
	TupleTableSlot *slot;
	Snapshot	latest;			/* registered by zjudge_open: transactions
								 * that it sees have added all their entries */
	TransactionId valid_from;	/* older snapshots do not use the index; or
								 * InvalidTransactionId */
	TransactionId built_until;	/* transaction that ended a concurrent build;
								 * the build has not entered versions that
								 * were replaced before it began; or
								 * InvalidTransactionId */
	MemoryContext context;		/* of the call */
	bool		young;			/* the horizon is that of a new snapshot, not
								 * of the oldest one */
	TransactionId horizon;
	bool		holds;			/* it never comes before 'held' */
	TransactionId held;
	ZHistory   *history;		/* of the page loaded last, as of horizon */
	BlockNumber loaded;			/* or InvalidBlockNumber */
	Page		page;			/* copy of that block; NULL: never written */
	Oid			user;			/* these three are restored by zjudge_close */
	int			security;
	int			settings;
} ZIndexJudge;

/* Whether a version of one row lacks its entry. */
typedef struct ZMissing
{
	bool		found;			/* a version lacks its entry */
	bool		newest;			/* it is the newest one that is not aborted */
} ZMissing;

/*
 * zjudge_open: opens the zbtree index and its table with AccessShareLock.
 * Raises an error if the index has another access method, is not valid or is a
 * temporary one of another session. zjudge_close: closes both. In between, and
 * from before the expressions of the index are first read, the caller acts as
 * the owner of the table, in a security-restricted operation.
 */
extern ZIndexJudge *zjudge_open(Oid indexoid);
extern void zjudge_close(ZIndexJudge *judge);

/*
 * zjudge_load: copies a block of the table for zjudge_row and zjudge_entry,
 * and computes the horizon anew. Returns the copy, or NULL for a page that was
 * never written.
 */
extern Page zjudge_load(ZIndexJudge *judge, BlockNumber block);

/*
 * zjudge_row: returns whether the row at off of the loaded block has a version
 * that a snapshot can need and that has no entry. Evaluates the index's
 * expressions, so no buffer lock may be held.
 */
extern ZMissing zjudge_row(ZIndexJudge *judge, OffsetNumber off);

/*
 * zjudge_entry: returns the state of an entry of a leaf page. Loads the block
 * of its TID unless that is loaded. The caller may hold the leaf page locked;
 * of users' functions, only comparison functions are called.
 */
extern ZEntryState zjudge_entry(ZIndexJudge *judge, IndexTuple entry);

/*
 * zjudge_find: searches the entry with this key and TID by a descent from the
 * root. Returns the leaf page, pinned and share-locked, and sets *off to the
 * entry's offset; or returns InvalidBuffer.
 */
extern Buffer zjudge_find(ZIndexJudge *judge, IndexTuple entry, OffsetNumber *off);

#endif
