/*
 * mvcc/zguard.h - xmin as a guard of updates: what it shows, and where it is
 * refused (rules GUARD-1 and GUARD-2; zctid.h has GUARD-3 and GUARD-4).
 */
#ifndef ZUNDO_ZGUARD_H
#define ZUNDO_ZGUARD_H

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

#endif
