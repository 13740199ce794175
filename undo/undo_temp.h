/*
 * undo/undo_temp.h - the private undo of this backend's temporary tables,
 * beyond what undo.h does for every table.
 *
 * zu_fetch, zu_prepare, zu_write and zu_finish serve records of both kinds;
 * here is what only temporary tables need. Invariants: undo/README.md,
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
 * zu_temp_reserve: as zu_reserve, for an op of records with ZUX_TEMP on pages
 * of rel. Errors: out of memory, disk full, temp_file_limit.
 */
extern void zu_temp_reserve(Relation rel, Size bytes);

/*
 * zu_temp_oldest: what zu_oldest() is, for pages of temporary tables:
 * transactions before it are settled there.
 */
extern ZXid zu_temp_oldest(void);

/*
 * zu_temp_pending: is undo kept of a transaction that has ended, since changes
 * of it have been rolled back?
 */
extern bool zu_temp_pending(void);

/*
 * zu_temp_own_aborts: may pages carry changes of aborted subtransactions of
 * the current transaction?
 */
extern bool zu_temp_own_aborts(void);

/* zu_temp_bytes: bytes of undo that are kept. */
extern uint64 zu_temp_bytes(void);

/*
 * zu_temp_next: read the record at or after *pos (0 = the oldest) into rec and
 * buf, *pos goes on to the next. False at the end. Error
 * ERRCODE_DATA_CORRUPTED.
 */
extern bool zu_temp_next(uint64 *pos, ZuRecord *rec, char *buf);

/* zu_temp_files: the files that the kept records are of. */
extern const ZuTempFile *zu_temp_files(int *n);

/*
 * zu_temp_settled: everything pending has been undone on its pages: give the
 * undo back.
 */
extern void zu_temp_settled(void);

/* Ends of transactions, for the callbacks in hooks.c. Raise no error. */
extern void zu_temp_at_xact_end(bool committed);
extern void zu_temp_at_subxact_end(int level, bool committed);

#endif
