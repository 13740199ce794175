/*
 * mvcc/ztables.h - which relations are tables of zheap.
 */
#ifndef ZUNDO_ZTABLES_H
#define ZUNDO_ZTABLES_H

/*
 * ztables_is_zheap: returns whether relid is a table of zheap; not so a
 * partitioned table. The caller need not hold a lock on it: the answer is then
 * as old as the relation cache.
 */
extern bool ztables_is_zheap(Oid relid);

#endif
