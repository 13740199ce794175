/*
 * undo/undo_temp.h - the private undo of this backend's temporary tables,
 * beyond what undo.h does for every table.
 *
 * zu_fetch, zu_op_prepare, zu_op_write and zu_op_finish serve records of both
 * kinds; here is what only temporary tables need. Invariants: undo/README.md,
 * "Temporary tables".
 */
#ifndef ZUNDO_UNDO_TEMP_H
#define ZUNDO_UNDO_TEMP_H

#include "undo/undo.h"

/* A file whose changes the private undo holds. */
typedef struct ZuTempFile
{
	RelFileLocator locator;
	int			backend;		/* rd_backend of its relation */
	Oid			reloid;
} ZuTempFile;

/*
 * Makes sure that the next op of records with ZUX_TEMP, on pages of rel, needs
 * no allocation, like zu_op_reserve. Nothing is pending. Errors: out of memory,
 * disk full, temp_file_limit.
 */
extern void zu_temp_reserve(Relation rel);

/*
 * Returns for pages of temporary tables what zu_oldest() returns for others:
 * transactions before it are resolved there.
 */
extern ZXid zu_temp_oldest(void);

/*
 * Returns whether undo of an ended transaction is kept because changes of it
 * have been rolled back.
 */
extern bool zu_temp_pending(void);

/*
 * Returns whether pages may have changes of aborted subtransactions of the
 * current transaction.
 */
extern bool zu_temp_own_aborts(void);

/*
 * Reads the record at or after *pos (0 = the oldest) into rec and buf, and
 * moves *pos behind it. Returns false at the end. Raises ERRCODE_DATA_CORRUPTED
 * for an invalid record.
 */
extern bool zu_temp_next(uint64 *pos, ZuRecord *rec, char *buf);

/* Returns the files to which the kept records belong. */
extern const ZuTempFile *zu_temp_files(int *n);

/* Gives the pending undo back, after all of it has been undone on its pages. */
extern void zu_temp_resolved(void);

/*
 * zu_temp_at_xact_end: gives the undo of the transaction back, or keeps what
 * is pending if parts of it have aborted. zu_temp_at_subxact_end: makes that
 * of the subtransaction of this nest level its parent's, or notes that it has
 * aborted. Called by the callbacks in hooks.c. Raise no error.
 */
extern void zu_temp_at_xact_end(bool committed);
extern void zu_temp_at_subxact_end(int level, bool committed);

#endif
