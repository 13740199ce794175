/*
 * monitor/faults.h - what zundo.check and zundo.check_index find. Private to
 * monitor/.
 */
#ifndef ZUNDO_FAULTS_H
#define ZUNDO_FAULTS_H

#include "fmgr.h"
#include "nodes/pg_list.h"
#include "storage/block.h"
#include "storage/off.h"

/* The faults of the page, or log, that is being checked. */
typedef struct ZFaults
{
	MemoryContext context;		/* of the faults and of temporary data; reset
								 * by zfaults_put */
	List	   *list;
} ZFaults;

/*
 * zfaults_begin: makes *faults empty, with a context of this name below the
 * current one.
 */
extern void zfaults_begin(ZFaults *faults, const char *name);

/*
 * zfaults_add: notes a fault, up to a number at which further ones are dropped.
 * item 0 means none. invariant must stay valid until zfaults_put.
 */
extern void zfaults_add(ZFaults *faults, BlockNumber block, OffsetNumber item,
						const char *invariant, const char *fmt, va_list args)
			pg_attribute_printf(5, 0);

/*
 * zfaults_put: adds a row for each fault to the function's result, and forgets
 * the faults. zfaults_forget: only forgets them.
 */
extern void zfaults_put(FunctionCallInfo fcinfo, ZFaults *faults);
extern void zfaults_forget(ZFaults *faults);

/*
 * zfaults_try: calls test(arg) in a subtransaction, with the context of faults
 * as the current one. Returns NULL, or the text of the error that the test has
 * raised, allocated in that context. Raises only errors that are about the
 * session or the server's resources: cancellations, locks not available, lack
 * of memory and the like.
 */
extern char *zfaults_try(ZFaults *faults, void (*test) (void *arg), void *arg);

#endif
