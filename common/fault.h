/*
 * common/fault.h - what the settings need to know of the fault points.
 */
#ifndef ZUNDO_FAULT_H
#define ZUNDO_FAULT_H

/*
 * zundo_fault_problem: NULL if spec is a legal zundo.fault value, else what is
 * wrong with it, as a message in static storage.
 */
extern const char *zundo_fault_problem(const char *spec);

/* zundo_fault_reset: the setting has been set: count anew. */
extern void zundo_fault_reset(void);

#endif
