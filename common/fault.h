/*
 * common/fault.h - fault points, as common/guc.c needs them.
 */
#ifndef ZUNDO_FAULT_H
#define ZUNDO_FAULT_H

/*
 * zundo_fault_problem: returns NULL if spec is a valid value of zundo.fault,
 * else a constant sentence that says what is wrong with it.
 */
extern const char *zundo_fault_problem(const char *spec);

/* zundo_fault_reset: restarts the counts of all fault points at 0. */
extern void zundo_fault_reset(void);

#endif
