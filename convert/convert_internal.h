/*
 * convert/convert_internal.h - what the files of convert/ share.
 */
#ifndef ZUNDO_CONVERT_INTERNAL_H
#define ZUNDO_CONVERT_INTERNAL_H

#include "common/zundo.h"
#include "nodes/pg_list.h"
#include "utils/rel.h"

/* The schema of the extension, in which copies and logs are. */
extern Oid	zconvert_schema(void);

/*
 * zconvert_make_trigger: creates the trigger that notes the keys of changed
 * rows of rel in the log: its columns keys, integers. Returns its OID. The
 * caller holds ShareRowExclusiveLock on rel.
 *
 * zconvert_find_trigger: returns the OID of such a trigger of the table, or
 * InvalidOid, and whether it fires always and which transaction wrote its row
 * of the catalog.
 */
extern Oid	zconvert_make_trigger(Relation rel, Oid log, List *keys);
extern Oid	zconvert_find_trigger(Oid table, char *fires, TransactionId *xmin);

/*
 * zconvert_exchange: exchanges the files, access methods and TOAST tables of a
 * table and its copy, and the files of their indexes, which are in the same
 * order. The caller holds AccessExclusiveLock on all of them, and on the TOAST
 * tables with their indexes (CONVERT-2).
 *
 * zconvert_note_exchange: notes that the current transaction does so, for
 * zconvert_check_query.
 */
extern void zconvert_exchange(Oid table, Oid copy, List *indexes, List *copies);
extern void zconvert_note_exchange(Oid table);

#endif
