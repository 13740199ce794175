/*
 * monitor/heap_callers.c - heap's functions, called for a zheap table, are
 * refused.
 *
 * C code that knows only heap inserts by CatalogTupleInsert or heap_insert and
 * reads by heap_beginscan. None of these asks for the access method, and there
 * is no hook on the way; what they do ask is the table's size, and that is a
 * callback of ours. So the callers of that callback are looked at: if one of
 * heap's functions that read or write pages stands among them, the call is
 * refused, before it has changed anything (rule HEAP-5). All of zundo's own
 * code counts blocks by zrel_nblocks, which is not the callback, and the
 * planner is let pass: here comes only what is rare, as ANALYZE, CREATE INDEX,
 * pg_prewarm.
 *
 * An insertion asks for the size unless an earlier insertion of the session or
 * the free space map names a page. The former finds no block there
 * (dml/zspace.c); the latter gets through to a table that zheap has filled.
 * What it writes then is recognized by the next reader of the page
 * (zpage_is_valid).
 *
 * Locks: none. Crash points: none.
 *
 *	HEAP-5	An insertion or scan by functions of heap that asks for the size of
 *			a zheap table is refused before it reads or writes a page.
 */
#include "postgres.h"

#include <dlfcn.h>
#include <link.h>
#ifdef HAVE_EXECINFO_H
#include <execinfo.h>
#endif

#include "access/heapam.h"
#include "access/hio.h"
#include "common/zundo.h"
#include "monitor/heap_readers.h"

bool		zundo_asks_size = false;

#ifdef HAVE_EXECINFO_H

/*
 * From relation_size to heap's function: with GetPageWithFreeSpace in between
 * eight calls.
 */
#define MAX_CALLERS 12

typedef ElfW (Sym) Symbol;

/*
 * A function of the server and where its code lies; an end of NULL means that
 * it has not been looked up yet.
 */
typedef struct HeapFunction
{
	void	   *start;
	void	   *end;
	const char *name;
} HeapFunction;

static HeapFunction heap_functions[] = {
	{(void *) RelationGetBufferForTuple, NULL, "an insertion of heap"},
	{(void *) heap_insert, NULL, "heap_insert"},
	{(void *) heap_multi_insert, NULL, "heap_multi_insert"},
	{(void *) simple_heap_insert, NULL, "simple_heap_insert"},
	{(void *) heap_update, NULL, "heap_update"},
	{(void *) heap_beginscan, NULL, "heap_beginscan"},
	{(void *) heap_rescan, NULL, "heap_rescan"},
};

/*
 * look_up: where does the function end? Its start, if that cannot be known:
 * then it matches nothing.
 */
static void
look_up(HeapFunction *function)
{
	Dl_info		info;
	Symbol	   *symbol = NULL;

	function->end = function->start;
	if (dladdr1(function->start, &info, (void **) &symbol, RTLD_DL_SYMENT) != 0 &&
		symbol != NULL && info.dli_saddr == function->start)
		function->end = (char *) function->start + symbol->st_size;
}

/*
 * heap_caller: returns the function of heap that this process is in, NULL if
 * it is in none.
 */
static const char *
heap_caller(void)
{
	void	   *callers[MAX_CALLERS];
	int			n = backtrace(callers, MAX_CALLERS);

	for (int i = 0; i < n; i++)
		for (int f = 0; f < lengthof(heap_functions); f++)
		{
			HeapFunction *function = &heap_functions[f];

			if (function->end == NULL)
				look_up(function);
			if (callers[i] > function->start && callers[i] <= function->end)
				return function->name;
		}
	return NULL;
}

#else							/* no way to look */

static const char *
heap_caller(void)
{
	return NULL;
}

#endif

void
zcallers_check(Relation rel)
{
	const char *function;

	if (zundo_asks_size)
	{
		zundo_asks_size = false;
		return;
	}
	function = heap_caller();
	if (function == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot use heap functions on zheap table \"%s\"",
					RelationGetRelationName(rel)),
			 errdetail("The function was called from %s.", function),
			 errhint("Change the access method of the table to heap if C code that supports only "
					 "heap tables must access it.")));
}
