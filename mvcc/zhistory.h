/*
 * mvcc/zhistory.h - all versions of a row that some snapshot may still see.
 *
 * For index builds, for rewrites of tables, and for all that decides whether
 * an entry of a zbtree index is needed: returns the newest version first, and
 * ends with the version that every snapshot sees. Works on a private copy of
 * one page; no lock is held between the calls.
 */
#ifndef ZUNDO_ZHISTORY_H
#define ZUNDO_ZHISTORY_H

#include "mvcc/zvis.h"

typedef struct ZHistory ZHistory;

/* One version; row points into the history and is valid until the next step. */
typedef struct ZHistoryVersion
{
	bool		live;			/* false: deleted or moved away */
	const char *row;			/* NULL if the bytes are gone (then not live) */
	int			len;
	bool		settled;		/* every snapshot sees this version; it is the
								 * last one */
	ZXidStatus	status;			/* of its author; never ZXID_ABORTED */
	ZXid		xid;			/* its author, or the transaction that a
								 * rewrite names as such; 0 if settled */
	UndoPtr		author;			/* the record that wrote it; Invalid if
								 * settled */
} ZHistoryVersion;

typedef enum ZHistoryResult
{
	ZHISTORY_VERSION,			/* *version is filled */
	ZHISTORY_END,				/* there is no further version */
	ZHISTORY_RETRY				/* undo that the copy needs may have been
								 * discarded: load the page again */
} ZHistoryResult;

/*
 * zhistory_create: returns a history for rows of rel, allocated in
 * CurrentMemoryContext. A change counts as seen by every snapshot if its
 * transaction is before horizon and has committed. zhistory_free: frees it
 * with all its memory.
 */
extern ZHistory *zhistory_create(Relation rel, TransactionId horizon);

/*
 * zhistory_hold: called first by a reader of values out of line, of versions
 * that only the snapshots of other sessions need: these may end meanwhile, and
 * then nothing else would keep chunks in the TOAST table. horizon is the
 * server's for rel; returns the one to be used, which is newer if a discard
 * pass has passed it already. Of a TOAST table itself all is needed that is
 * not before `oldest`. Sets *holds; zhistory_release(*holds) ends it, or the
 * end of the transaction.
 */
extern TransactionId zhistory_hold(Relation rel, TransactionId horizon, bool *holds);
extern void zhistory_release(bool holds);

/*
 * zhistory_reads_values: holds as set by zhistory_hold: if it is true, the
 * history ends before the first old version of which a value out of line has
 * been given up: no snapshot needs it.
 */
extern void zhistory_reads_values(ZHistory *history, bool holds);
extern void zhistory_free(ZHistory *history);

/*
 * zhistory_load: copies the page of buf, which is pinned and not locked; undo
 * is attached. Returns the copy, or NULL for a page that was never written.
 * Raises ERRCODE_DATA_CORRUPTED if it is not a zheap page.
 */
extern Page zhistory_load(ZHistory *history, Buffer buf);

/* zhistory_table: returns the table whose rows they are. */
extern Relation zhistory_table(const ZHistory *history);

/* zhistory_page: returns the copy of the page loaded last. */
extern Page zhistory_page(const ZHistory *history);

/* zhistory_oldest: returns zslots_oldest() of the page loaded last. */
extern ZXid zhistory_oldest(const ZHistory *history);

/*
 * zhistory_first: goes to the newest version that is not aborted of the row or
 * stub at off of the loaded page.
 */
extern ZHistoryResult zhistory_first(ZHistory *history, OffsetNumber off, ZHistoryVersion *version);

/*
 * zhistory_record: returns the record that wrote the version returned last,
 * which must not be settled. Valid until the next step.
 */
extern const ZuRecord *zhistory_record(const ZHistory *history);

/* zhistory_next: goes to the version before the one returned last. */
extern ZHistoryResult zhistory_next(ZHistory *history, ZHistoryVersion *version);

#endif
