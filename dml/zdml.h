/*
 * dml/zdml.h - row changes: insert, multi-insert, update, delete, lock.
 *
 * Functions that change rows follow prepare / apply / finish (dml/README.md),
 * attach undo themselves, and are called without a buffer lock. Functions that
 * maintain a page, for VACUUM and dml/ itself, take the page in buf, which the
 * caller has pinned and locked exclusively; it stays so.
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
 * Callbacks of the table AM: arguments and results are those of the callbacks
 * of tableam.h with the same names; the caller has locked the table. They
 * raise ERRCODE_DATA_CORRUPTED, and errors of lacking space and of waiting for
 * locks; an update also those of index expressions.
 *
 * zheap_tuple_insert, zheap_multi_insert: insert one row, or several.
 *
 * zheap_tuple_insert_speculative, zheap_tuple_complete_speculative: insert a
 * row that is not confirmed yet, under this token, and confirm it or give it
 * up.
 *
 * zheap_tuple_delete: deletes the row at tid. Returns TM_Ok, or why it did
 * not, with the reason in *tmfd.
 *
 * zheap_tuple_update: updates the row at otid in place, or moves it; returns
 * as zheap_tuple_delete. Sets *lockmode to the strength that the update needs,
 * and *update_indexes to the indexes that need a new entry.
 *
 * zheap_tuple_lock: locks the row at *tid in mode, and fetches the locked
 * version into slot; returns as zheap_tuple_delete. If the flags ask for it,
 * follows the row to its newest place, and sets *tid to that.
 */
extern void zheap_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid,
							   ZcOptions options, BulkInsertState bistate);
extern void zheap_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid,
										   ZcOptions options, BulkInsertState bistate,
										   uint32 token);
extern void zheap_tuple_complete_speculative(Relation rel, TupleTableSlot *slot, uint32 token,
											 bool succeeded);
extern void zheap_multi_insert(Relation rel, TupleTableSlot **slots, int nslots,
							   CommandId cid, ZcOptions options, BulkInsertState bistate);
extern TM_Result zheap_tuple_delete(Relation rel, ItemPointer tid, CommandId cid,
									ZC_CHANGE_OPTIONS_PARAM Snapshot snapshot,
									Snapshot crosscheck, bool wait,
									TM_FailureData *tmfd ZC_CHANGING_PART_PARAM);
extern TM_Result zheap_tuple_update(Relation rel, ItemPointer otid, TupleTableSlot *slot,
									CommandId cid, ZC_CHANGE_OPTIONS_PARAM Snapshot snapshot,
									Snapshot crosscheck, bool wait, TM_FailureData *tmfd,
									LockTupleMode *lockmode,
									ZcUpdateIndexes *update_indexes);
extern TM_Result zheap_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot,
								  TupleTableSlot *slot, CommandId cid, LockTupleMode mode,
								  LockWaitPolicy wait_policy, uint8 flags, TM_FailureData *tmfd);

/*
 * zreclaim_pre_commit: tells the free space map on which pages the committing
 * transaction has made space. Waits for no heavyweight lock.
 *
 * zreclaim_note_undone: notes that the block of rel was undone, and has this
 * space for rows; 0 = none.
 *
 * zreclaim_tell_undone: tells the free space map of the table's pages that were
 * noted so, and of those on which rolled back subtransactions of this backend
 * have inserted rows. Returns whether there were any. Raises I/O errors.
 *
 * zreclaim_at_xact_end: forgets these pages. Called after every end of a
 * transaction.
 *
 * zreclaim_at_subxact_end: gives the pages noted at this nest level to the
 * parent if the subtransaction has committed; forgets them if it has aborted.
 */
extern void zreclaim_pre_commit(void);
extern void zreclaim_note_undone(Relation rel, BlockNumber block, int space);
extern bool zreclaim_tell_undone(Relation rel);
extern void zreclaim_at_xact_end(void);
extern void zreclaim_at_subxact_end(int level, bool committed);

/*
 * zdml_at_xact_end: releases memory that an error has left allocated, and
 * forgets what was known of pages. Called after every end of a transaction.
 *
 * zcomputed_at_xact_end, zcomputed_at_subxact_abort (dml/zcomputed.c): free
 * what evaluating index expressions has kept.
 */
extern void zdml_at_xact_end(void);
extern void zcomputed_at_xact_end(void);
extern void zcomputed_at_subxact_abort(void);

/*
 * zheap_prune_page: prunes the page in buf, which is exclusively locked, of
 * what no snapshot needs; WAL-logged. zheap_free_space: returns the bytes that
 * are free on the page, with those of rows that zheap_prune_page leaves there
 * though their deletion has committed: a writer that needs the space saves them
 * (SAVED-4). Both raise ERRCODE_DATA_CORRUPTED.
 */
extern void zheap_prune_page(Relation rel, Buffer buf);
extern int	zheap_free_space(Relation rel, Buffer buf);

/*
 * zheap_make_unused: makes the LP_DEAD line pointers at the n offsets
 * LP_UNUSED, except those on which transactions in progress hold locks (DML-9);
 * WAL-logged. Raises ERRCODE_DATA_CORRUPTED.
 */
extern void zheap_make_unused(Relation rel, Buffer buf, OffsetNumber *offs, int n);

/*
 * zheap_clear_stale: takes ZH_STALE_KEYS off the n > 0 live rows at offs
 * (ZBTREE-9); WAL-logged. The page is locked exclusively. Raises
 * ERRCODE_DATA_CORRUPTED.
 */
extern void zheap_clear_stale(Relation rel, Buffer buf, const OffsetNumber *offs, int n);

/*
 * zoverflow_release (dml/zoverflow_attach.c): takes the overflow page away
 * from the page in buf if every slot on it is older than `oldest`; WAL-logged.
 * On entry no pick of a slot of the page may be in use.
 */
extern void zoverflow_release(Relation rel, Buffer buf);

/*
 * zoverflow_free: frees the overflow page p if it still has the owner named
 * there; WAL-logged. The caller guarantees that no table page points to it, now
 * or later.
 */
extern void zoverflow_free(const ZuOverflowPage *p);

/* Rows to be inserted, next to each other where they fit. */
typedef struct ZNewRows
{
	int			n;
	char	  **row;			/* the headers name no slot until a row is
								 * inserted */
	const uint32 *len;
	ItemPointerData *tid;		/* set by the insertion */
} ZNewRows;

/*
 * Functions for rewrites of a table into a new file, which keep the versions
 * that older snapshots need. as_of is the transaction that made, or deleted,
 * the row versions: with FrozenTransactionId all snapshots see them, with
 * InvalidTransactionId they are our own transaction's; otherwise it is a
 * committed transaction, and only snapshots that see it see this change.
 * replaced: the version was not deleted, but has a newer one, which cannot be
 * found from it (CLUSTER-6 in vacuum/).
 *
 * zheap_form_row: returns the row of the executor's slot for rel, toasted and
 * palloc'd, with space for a count behind it.
 *
 * zheap_insert_rows_as_of: inserts the rows and sets their tids.
 * zheap_delete_as_of: deletes the row at tid, which our transaction has
 * inserted.
 */
extern char *zheap_form_row(Relation rel, TupleTableSlot *slot, ZcOptions options, uint32 *len);
extern void zheap_insert_rows_as_of(Relation rel, const ZNewRows *rows, CommandId cid,
									ZcOptions options,
									BulkInsertState bistate, TransactionId as_of);
extern void zheap_delete_as_of(Relation rel, ItemPointer tid, CommandId cid, TransactionId as_of,
							   bool replaced);

/*
 * zheap_push_record: writes rec, an undo record for a file of rel that is being
 * copied, and returns its place. The caller fills in type, relnumber, block,
 * offset, as_of or cid, prev, payload and what the type needs besides; rec->xid
 * becomes our transaction's. No table page is changed.
 */
extern UndoPtr zheap_push_record(Relation rel, ZuRecord *rec);

#endif
