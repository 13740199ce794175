/*
 * mvcc/zguard.h - xmin and ctid as guards of updates: what they show, and
 * where they are refused (rules GUARD-1 to GUARD-3; zctid.h has GUARD-4).
 */
#ifndef ZUNDO_ZGUARD_H
#define ZUNDO_ZGUARD_H

#include "executor/execdesc.h"
#include "nodes/pathnodes.h"
#include "tuple/ztts.h"

/*
 * zguard_forgotten_xmin: returns what xmin shows of a version whose author is
 * not known any more (GUARD-1).
 */
extern TransactionId zguard_forgotten_xmin(const ZHeapSlot *slot);

/*
 * zguard_check_query: raises ERRCODE_FEATURE_NOT_SUPPORTED if this query level
 * compares xmin of a zheap table (GUARD-2).
 */
extern void zguard_check_query(PlannerInfo *root);

/*
 * zguard_check_ctids: raises ERRCODE_FEATURE_NOT_SUPPORTED if the started
 * query changes rows that it finds by a ctid from outside (GUARD-3).
 */
extern void zguard_check_ctids(QueryDesc *query, int eflags);

#endif
