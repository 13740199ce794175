/*
 * mvcc/zguard.h - xmin and ctid as guards of updates: what they show, and
 * where they are refused.
 */
#ifndef ZUNDO_ZGUARD_H
#define ZUNDO_ZGUARD_H

#include "executor/execdesc.h"
#include "nodes/pathnodes.h"
#include "tuple/zslot.h"

extern TransactionId zguard_forgotten_xmin(const ZHeapSlot *slot);
extern void zguard_check_query(PlannerInfo *root);
extern void zguard_check_scans(QueryDesc *query, int eflags);

#endif
