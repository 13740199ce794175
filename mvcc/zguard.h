/*
 * mvcc/zguard.h - xmin and ctid as guards of updates: what they show, and where they are refused.
 */
#ifndef ZUNDO_ZGUARD_H
#define ZUNDO_ZGUARD_H

/* zguard_install_hooks: Sets hooks of the planner, of the executor, and of tuple/zslot.h. */
extern void zguard_install_hooks(void);

#endif
