/*
 * monitor/heap_readers.h - code of others that would take zheap pages for heap's.
 */
#ifndef ZUNDO_HEAP_READERS_H
#define ZUNDO_HEAP_READERS_H

#include "common/zundo.h"
#include "utils/rel.h"

/* zreaders_install_hooks: once, at the server's start. */
extern void zreaders_install_hooks(void);

/* Calls of such functions that this process is in. */
extern int	zreaders_within;

/* zreaders_refuse: raise the error about rel. */
extern void zreaders_refuse(Relation rel) zc_noreturn;

/* zreaders_check: refuse rel, a zheap table, if a function that would misread it asks about it. */
static inline void
zreaders_check(Relation rel)
{
	if (unlikely(zreaders_within > 0))
		zreaders_refuse(rel);
}

/*
 * zcallers_check: raises an error if one of heap's functions asks for the size
 * of rel, a zheap table, in order to read or write its pages.
 */
extern void zcallers_check(Relation rel);

/* zaccess_method_install_hooks: once, at the server's start. */
extern void zaccess_method_install_hooks(void);

/* zdrop_guard_install_hooks: the same. */
extern void zdrop_guard_install_hooks(void);

#endif
