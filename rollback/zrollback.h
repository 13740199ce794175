/*
 * rollback/zrollback.h - taking aborted changes off the pages.
 */
#ifndef ZUNDO_ZROLLBACK_H
#define ZUNDO_ZROLLBACK_H

#include "common/zundo.h"
#include "storage/buf.h"
#include "undo/undo.h"

/*
 * zrollback_page: pop every aborted record from the head of every slot of the
 * table page in buf (of rel, pinned and exclusively locked by the caller;
 * stays so). Table page WAL record ZWAL_ROLLBACK; one per slot. Own aborted
 * subtransactions count as aborted. Returns number of records undone.
 * Idempotent. Errors: ERRCODE_DATA_CORRUPTED; nothing is half done.
 */
extern int	zrollback_page(Buffer buf, Relation rel);

/*
 * zrollback_page_by_locator: the same for a page found by address: reads and
 * locks it; skips (returns 0) when the file or the block does not exist. Needs
 * no catalog access, so abort callbacks may use it. top_aborted: what is ours
 * counts as aborted, since our top-level transaction aborts; the server calls
 * its id current until the very end of the abort.
 */
extern int	zrollback_page_by_locator(RelFileLocator locator, BlockNumber block, Oid reloid,
									  bool logged, bool top_aborted);

/*
 * DML notes each page that it changes, so that a small rollback needs no look
 * at the undo log. Kept per backend; capped at zundo.eager_rollback_pages.
 */
extern void zrollback_note_page(Relation rel, BlockNumber block);

/*
 * zrollback_own_aborts_pending: may this backend's own aborted subtransactions
 * still be on pages? (DML then looks for them)
 */
extern bool zrollback_own_aborts_pending(void);

/*
 * zrollback_temp: undo what ended transactions of this backend have left on
 * pages of its temporary tables, if anything. In a transaction, with no buffer
 * lock held. Errors: I/O.
 */
extern void zrollback_temp(void);

/* Ends of transactions, for the callbacks in hooks.c. */
extern bool zrollback_at_xact_end(bool aborted);
extern void zrollback_at_subxact_commit(int level);
extern void zrollback_at_subxact_abort(int level);

#endif
