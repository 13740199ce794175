/*
 * monitor/monitor.h - what the SQL functions of zundo share. Private to
 * monitor/.
 */
#ifndef ZUNDO_MONITOR_H
#define ZUNDO_MONITOR_H

#include "common/zundo.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mvcc/zvis.h"

/*
 * zmon_open_table: open the zheap table reloid in AccessShareLock. Errors: not
 * a zheap table; another session's temporary table.
 */
extern Relation zmon_open_table(Oid reloid);

/*
 * zmon_copy_page: copy block of rel and its slots; false if the page is new.
 * Errors: no such block; not a zheap page.
 */
extern bool zmon_copy_page(Relation rel, int64 block, PGAlignedBlock *copy, ZSlotView *view);

/*
 * zmon_require_superuser: error for others: what is shown passes row security
 * and column privileges.
 */
extern void zmon_require_superuser(void);

/*
 * zmon_put: add a row to the result of a set-returning function set up by
 * InitMaterializedSRF.
 */
extern void zmon_put(FunctionCallInfo fcinfo, Datum *values, bool *nulls);

/* zmon_vprintf: returns a palloc'd string, formatted as by psprintf. */
extern char *zmon_vprintf(const char *fmt, va_list args) pg_attribute_printf(1, 0);

/*
 * zmon_tables: returns the OIDs of this database's zheap tables and
 * materialized views, but for other sessions' temporary ones.
 */
extern List *zmon_tables(void);

/*
 * zmon_pointer: text of an undo pointer: generation.extent.byte; SQL null for
 * none.
 */
extern Datum zmon_pointer(UndoPtr ptr, bool *isnull);

/* zmon_xid: xid8 of a zundo transaction id; SQL null for none. */
extern Datum zmon_xid(ZXid xid, bool *isnull);

/* zmon_text_array: text[] of n C strings. */
extern Datum zmon_text_array(const char **strings, int n);

#endif
