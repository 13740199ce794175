/*
 * mvcc/zguard.h - xmin and ctid as guards of updates: what they show, and where they are refused.
 */
#ifndef ZUNDO_ZGUARD_H
#define ZUNDO_ZGUARD_H

/* zguard_install_hooks: sets the planner's and the executor's hooks, and tuple/zslot.h's for forgotten writers. */
extern void zguard_install_hooks(void);

#endif
