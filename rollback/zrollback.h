/*
 * rollback/zrollback.h - undoing the changes of aborted transactions on pages.
 */
#ifndef ZUNDO_ZROLLBACK_H
#define ZUNDO_ZROLLBACK_H

#include "common/zundo.h"
#include "nodes/nodes.h"
#include "storage/buf.h"
#include "undo/undo.h"

/*
 * zrollback_page: undoes every aborted record at the head of a chain of the
 * table page in buf, which belongs to rel and is pinned and exclusively locked;
 * it stays so. Returns the number of records undone. Aborted subtransactions of
 * our own transaction count. Writes one WAL record ZWAL_ROLLBACK for each slot;
 * may be repeated. Raises ERRCODE_DATA_CORRUPTED; no slot is half undone then.
 */
extern int	zrollback_page(Buffer buf, Relation rel);

/*
 * zrollback_space: returns the bytes that a locked page which was undone has
 * for rows; 0 if that is not worth an entry in the free space map.
 */
extern int	zrollback_space(Page page);

/*
 * zrollback_page_by_locator: does the same for a page that is found by its
 * address, which it reads and locks. Does nothing if the file or the block does
 * not exist. Needs no catalog, so abort callbacks may call it. logged: the
 * relation is permanent, so the changes are written to WAL. top_aborted: our
 * top-level transaction is aborting, so all its changes count as aborted; the
 * server calls its id current until the very end of the abort. Raises the
 * errors of zrollback_page, I/O errors, and those of common/abort_read.c
 * (ABORT-7).
 */
extern void zrollback_page_by_locator(RelFileLocator locator, BlockNumber block, Oid reloid,
									  bool logged, bool top_aborted);

/*
 * zrollback_note_page: notes that the current subtransaction changes this page
 * of rel, so that a small rollback does not have to read the undo log. At most
 * zundo.eager_rollback_pages pages are kept. May be called with the page locked
 * and in critical sections. Raises no errors.
 */
extern void zrollback_note_page(Relation rel, BlockNumber block);

/*
 * zrollback_own_aborts_pending: returns whether changes of this backend's own
 * aborted subtransactions may still be on pages, where DML then must undo them
 * first.
 */
extern bool zrollback_own_aborts_pending(void);

/*
 * zrollback_in_statement: returns whether the client's present statement may
 * have undone changes of a subtransaction on this page, which is locked: it has
 * rolled one back, and the page has changed since.
 */
extern bool zrollback_in_statement(Relation rel, Page page);

/*
 * zrollback_temp: undoes what ended transactions of this backend have left on
 * pages of its temporary tables, if anything. Called in a transaction, with no
 * buffer lock held. Raises I/O errors, and ERRCODE_DATA_CORRUPTED if the undo
 * or a page is damaged.
 */
extern void zrollback_temp(void);

/*
 * zrollback_temp_due_after: returns whether zrollback_temp must be called after
 * the utility command: it is DISCARD ALL or DISCARD TEMP.
 */
extern bool zrollback_temp_due_after(const Node *command);

/*
 * zrollback_at_xact_end, zrollback_at_subxact_commit,
 * zrollback_at_subxact_abort: undo or forget the noted pages when a
 * (sub)transaction ends; the first returns whether aborted changes may be left
 * on pages. Called by hooks.c.
 */
extern bool zrollback_at_xact_end(bool aborted);
extern void zrollback_at_subxact_commit(int level);
extern void zrollback_at_subxact_abort(int level);

#endif
