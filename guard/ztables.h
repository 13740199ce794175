/*
 * guard/ztables.h - which relations are tables of zheap.
 */
#ifndef ZUNDO_ZTABLES_H
#define ZUNDO_ZTABLES_H

#include "nodes/pg_list.h"

/*
 * ztables_is_zheap: returns whether relid is a table of zheap; not so a
 * partitioned table. The caller need not hold a lock on it: the answer is then
 * as old as the relation cache.
 */
extern bool ztables_is_zheap(Oid relid);

/*
 * ztables_list: returns the OIDs of this database's zheap tables and
 * materialized views, except other sessions' temporary ones.
 */
extern List *ztables_list(bool with_toast);

#endif
