/*
 * monitor/index_judge.h - what an entry of a zbtree index is worth, and whether
 * a version of a row has its entry. Private to monitor/.
 */
#ifndef ZUNDO_INDEX_JUDGE_H
#define ZUNDO_INDEX_JUDGE_H

#include "access/itup.h"
#include "mvcc/zhistory.h"

typedef enum ZEntryState
{
	ZENTRY_NEEDED,				/* a version that is not aborted has its key */
	ZENTRY_STALE,				/* of a row that has no such version, and a
								 * reader can tell */
	ZENTRY_UNTOLD,				/* the same, but the row does not say that it
								 * has such entries (INDEX-4) */
	ZENTRY_NO_ROW				/* its TID is free, or does not exist
								 * (INDEX-2) */
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
	Snapshot	latest;			/* registered when the judge was made: writers
								 * that it sees have made their entries */
	TransactionId valid_from;	/* older snapshots do not use the index; or
								 * InvalidTransactionId */
	TransactionId built_until;	/* ended a concurrent build, which has entered
								 * no version that was replaced before it
								 * began; or InvalidTransactionId */
	MemoryContext context;		/* of the call */
	TransactionId horizon;
	ZHistory   *history;		/* of the page loaded last, as of horizon */
	BlockNumber loaded;			/* or InvalidBlockNumber */
	Page		page;			/* NULL: never written */
} ZIndexJudge;

/* One row's versions against the index. */
typedef struct ZMissing
{
	bool		found;			/* a version lacks its entry */
	bool		newest;			/* it is the newest that is not aborted */
} ZMissing;

/*
 * zjudge_open: opens the zbtree index and its table in AccessShareLock.
 * zjudge_close: closes both. Raises an error for other indexes, for those that
 * are not valid and for other sessions' temporary ones.
 */
extern ZIndexJudge *zjudge_open(Oid indexoid);
extern void zjudge_close(ZIndexJudge *judge);

/*
 * zjudge_load: copies a block of the table, for zjudge_row and zjudge_entry,
 * with the horizon as of now. Returns NULL for a page never written.
 */
extern Page zjudge_load(ZIndexJudge *judge, BlockNumber block);

/*
 * zjudge_row: looks for a version of the row at off of the loaded block which
 * a snapshot can need, and which has no entry. Runs the index's expressions.
 */
extern ZMissing zjudge_row(ZIndexJudge *judge, OffsetNumber off);

/*
 * zjudge_entry: judges an entry of a leaf page. Loads the block of its TID
 * unless that is loaded. May be called under the lock of the leaf page; runs
 * comparison functions only.
 */
extern ZEntryState zjudge_entry(ZIndexJudge *judge, IndexTuple entry);

/*
 * zjudge_find: looks for the entry with this key and TID by a descent from the
 * root. Returns the leaf page, share-locked, and the entry's place in *off; or
 * InvalidBuffer.
 */
extern Buffer zjudge_find(ZIndexJudge *judge, IndexTuple entry, OffsetNumber *off);

#endif
