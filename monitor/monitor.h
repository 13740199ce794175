/*
 * monitor/monitor.h - what the SQL functions of zundo share. Private to
 * monitor/.
 */
#ifndef ZUNDO_MONITOR_H
#define ZUNDO_MONITOR_H

#include "common/zundo.h"
#include "discard/discard.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mvcc/zvis.h"

/*
 * zmon_open: opens a relation in AccessShareLock. Raises an error if there is
 * none.
 */
extern Relation zmon_open(Oid reloid);

/*
 * zmon_open_table: opens the zheap table reloid in AccessShareLock. Raises an
 * error for other relations and for other sessions' temporary tables.
 */
extern Relation zmon_open_table(Oid reloid);

/*
 * zmon_copy_page: copies a block of rel and its slots under the share lock.
 * Returns false if the page is new. Raises an error if there is no such block,
 * or it is not a zheap page. No buffer locked.
 */
extern bool zmon_copy_page(Relation rel, int64 block, PGAlignedBlock *copy, ZSlotView *view);

/*
 * zmon_require_superuser: raises an error unless the user is a superuser: what
 * the caller shows bypasses row security and column privileges.
 */
extern void zmon_require_superuser(void);

/*
 * zmon_put: adds a row to the result of a set-returning function set up by
 * InitMaterializedSRF.
 */
extern void zmon_put(FunctionCallInfo fcinfo, Datum *values, bool *nulls);

/* zmon_vprintf: returns a palloc'd string, formatted as by psprintf. */
extern char *zmon_vprintf(const char *fmt, va_list args) pg_attribute_printf(1, 0);

/*
 * zmon_pointer: returns an undo pointer as text, generation.extent.byte, or
 * SQL null for InvalidUndoPtr.
 */
extern Datum zmon_pointer(UndoPtr ptr, bool *isnull);

/*
 * zmon_xid: returns a zundo transaction id as xid8, or SQL null for
 * InvalidZXid.
 */
extern Datum zmon_xid(ZXid xid, bool *isnull);

/*
 * zmon_discard: makes a discard pass as zu_discard does, after that of another
 * process if there is one. Returns false, having made none, if that takes
 * longer than five seconds. Not in recovery, nor in a transaction with an xid.
 */
extern bool zmon_discard(ZuUndoAborts which, bool every_log, ZuDiscardStats *stats);

/* zmon_status_name: returns the words for a transaction status. */
extern const char *zmon_status_name(ZXidStatus status);

/* zmon_text_array: returns a text[] of n C strings. */
extern Datum zmon_text_array(const char **strings, int n);

#endif
