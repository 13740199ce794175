/*
 * mvcc/zhistory.h - all versions of a row that somebody may still see.
 *
 * For index builds: newest first, down to the version that everybody sees.
 * Works on a private copy of one page; holds no lock.
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
	bool		settled;		/* every snapshot sees this version: the last
								 * one */
	ZXidStatus	status;			/* of its writer; never ZXID_ABORTED */
	ZXid		xid;			/* of its writer, or whom a rewrite names as
								 * such; 0 if settled */
} ZHistoryVersion;

typedef enum ZHistoryResult
{
	ZHISTORY_VERSION,			/* *version is filled */
	ZHISTORY_END,				/* there is no further version */
	ZHISTORY_RETRY				/* undo of the copy has gone: load the page
								 * again */
} ZHistoryResult;

/*
 * zhistory_create: for rel; changes by transactions before horizon that have
 * committed count as seen by everybody.
 */
extern ZHistory *zhistory_create(Relation rel, TransactionId horizon);
extern void zhistory_free(ZHistory *history);

/*
 * zhistory_load: copy the page of buf, which is pinned and not locked, undo
 * attached. Returns the copy, NULL for a page that was never written. Error
 * ERRCODE_DATA_CORRUPTED if it is not a zheap page.
 */
extern Page zhistory_load(ZHistory *history, Buffer buf);

/* zhistory_oldest: zpage_oldest() of the page loaded last. */
extern ZXid zhistory_oldest(const ZHistory *history);

/*
 * zhistory_first: the newest version, not aborted, of the row or stub at off
 * of the loaded page.
 */
extern ZHistoryResult zhistory_first(ZHistory *history, OffsetNumber off, ZHistoryVersion *version);

/*
 * zhistory_record: the record that wrote the version answered last, which is
 * not settled. Valid until the next step.
 */
extern const ZuRecord *zhistory_record(const ZHistory *history);

/* zhistory_next: the version before the one that was answered last. */
extern ZHistoryResult zhistory_next(ZHistory *history, ZHistoryVersion *version);

#endif
