/*
 * dml/zdml.h - row changes: insert, multi-insert, update, delete, lock.
 *
 * Every function here follows prepare / apply / finish (dml/README.md). None is
 * called with a buffer lock held. All attach undo themselves.
 */
#ifndef ZUNDO_ZDML_H
#define ZUNDO_ZDML_H

#include "access/heapam.h"
#include "access/tableam.h"
#include "common/zundo.h"
#include "executor/tuptable.h"
#include "undo/undo_overflow.h"
#include "undo/undo_record.h"

/*
 * Arguments and results are those of the table AM callbacks of the same names.
 */
extern void zheap_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid,
							   int options, BulkInsertState bistate);
extern void zheap_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid,
										   int options, BulkInsertState bistate, uint32 token);
extern void zheap_tuple_complete_speculative(Relation rel, TupleTableSlot *slot, uint32 token,
											 bool succeeded);
extern void zheap_multi_insert(Relation rel, TupleTableSlot **slots, int nslots,
							   CommandId cid, int options, BulkInsertState bistate);
extern TM_Result zheap_tuple_delete(Relation rel, ItemPointer tid, CommandId cid,
									Snapshot snapshot, Snapshot crosscheck, bool wait,
									TM_FailureData *tmfd, bool changing_part);
extern TM_Result zheap_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot,
									CommandId cid, Snapshot snapshot, Snapshot crosscheck,
									bool wait, TM_FailureData *tmfd, LockTupleMode *lockmode,
									ZcUpdateIndexes *update_indexes);
extern TM_Result zheap_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot,
								  TupleTableSlot *slot, CommandId cid, LockTupleMode mode,
								  LockWaitPolicy wait_policy, uint8 flags, TM_FailureData *tmfd);

/*
 * zreclaim_pre_commit: tell the free space map where the transaction that is
 * about to commit has made room. Takes no lock that it would wait for.
 * zreclaim_at_xact_end: after every end of a transaction.
 */
extern void zreclaim_pre_commit(void);
extern void zreclaim_at_xact_end(void);
extern void zreclaim_at_subxact_end(int level, bool committed);

/*
 * zdml_at_xact_end: after every end of a transaction: memory that an error has
 * left is given back.
 */
extern void zdml_at_xact_end(void);

/*
 * zheap_prune_page: prune the page in buf (exclusively locked); true if
 * something was done (WAL-logged).
 */
extern bool zheap_prune_page(Relation rel, Buffer buf);

/*
 * zheap_make_unused: buf exclusively locked; the LP_DEAD offsets become
 * LP_UNUSED, but those on which there are locks (DML-9); WAL-logged. Returns
 * how many.
 */
extern int	zheap_make_unused(Relation rel, Buffer buf, OffsetNumber *offs, int n);

/*
 * zheap_mark_all_visible (dml/zvisible.c): set the visibility map's bit of
 * buf's page (exclusively locked) if it may be set; WAL-logged. map: the map's
 * page, pinned by visibilitymap_pin. For VACUUM (VMAP-1).
 */
extern void zheap_mark_all_visible(Relation rel, Buffer buf, Buffer map);

/*
 * zoverflow_release (dml/zoverflow.c): take the page's overflow page away if
 * no slot there concerns anybody any more; WAL-logged. buf exclusively locked;
 * no slot of the page may be picked. True if it has none now.
 */
extern bool zoverflow_release(Relation rel, Buffer buf);

/*
 * zoverflow_free: free p, if it still has that owner; WAL-logged. The caller
 * knows that nothing points to it and keeps it so.
 */
extern void zoverflow_free(const ZuOverflowPage *p);

/* Rows to be inserted, next to each other where they fit. */
typedef struct ZNewRows
{
	int			n;
	char	  **row;			/* headers: shape only, until a row is
								 * inserted */
	const uint32 *len;
	ItemPointerData *tid;		/* filled in */
} ZNewRows;

/*
 * For rewrites of a table into a new file, which keep what older snapshots
 * need. as_of: the transaction that made, or deleted, the row versions:
 * FrozenTransactionId = all snapshots see them; Invalid = our own transaction;
 * else a committed one, and only snapshots that see it see this too.
 * zheap_form_row returns slot's row for rel, toasted and palloc'd.
 */
extern char *zheap_form_row(Relation rel, TupleTableSlot *slot, int options, uint32 *len);
extern void zheap_insert_rows_as_of(Relation rel, const ZNewRows *rows, CommandId cid, int options,
									BulkInsertState bistate, TransactionId as_of);
extern void zheap_delete_as_of(Relation rel, ItemPointer tid, CommandId cid, TransactionId as_of);

/*
 * zheap_push_record: write rec, an undo record for a file of rel that is being
 * copied; the caller fills its type, relnumber, block, offset, as_of or cid,
 * prev, payload and what goes with the type. Returns where it is; rec->xid is
 * ours. No page is changed.
 */
extern UndoPtr zheap_push_record(Relation rel, ZuRecord *rec);

#endif
