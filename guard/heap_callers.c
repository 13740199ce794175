/*
 * guard/heap_callers.c - refuses calls of heap's functions for a zheap
 * table.
 *
 * C code that knows only heap inserts by CatalogTupleInsert or heap_insert and
 * reads by heap_beginscan. None of these looks at the access method, and there
 * is no hook on the way; but they ask for the table's size, and that is a
 * callback of zundo (relation_size). So that callback looks at its callers
 * on the stack: if one of heap's functions that read or write pages is among
 * them, the call is refused, before it has changed anything (HEAP-5). This
 * costs nothing that matters: all of zundo's own code counts blocks by
 * zrel_nblocks, which does not use the callback, and the planner's call is let
 * pass (zundo_asks_size). What is left is rare: ANALYZE, CREATE INDEX,
 * pg_prewarm.
 *
 * An insertion asks for the size unless the block of the session's last
 * insertion or the free space map names a page. The former names none for a
 * zheap table (dml/zspace.c); the latter leads the insertion into a table that
 * zheap has filled. The next reader of that page recognizes what was written
 * (zpage_is_valid).
 *
 * Locks: none. Crash points: none.
 *
 *	HEAP-5	an insertion or scan by functions of heap that asks for the size of
 *		a zheap table is refused before it reads or writes a page. Not
 *		asserted: the callers are the server's and of extensions;
 *		t/093_heap_tools calls them.
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
#include "guard/heap_readers.h"

bool		zundo_asks_size = false;

#ifdef HAVE_EXECINFO_H

/*
 * Length of the longest way from relation_size up to a function of heap, and
 * some more: with GetPageWithFreeSpace in between there are eight calls.
 */
#define MAX_CALLERS 12

typedef ElfW (Sym) Symbol;

/*
 * A function of the server and where its code lies. The end is found when the
 * library is loaded.
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
 * Notes where the code of the function ends; notes its start, so that nothing
 * matches, if that cannot be found out.
 */
static void
look_up(HeapFunction *function)
{
	Dl_info		info;
	Symbol	   *symbol = NULL;

	Assert(function->end == NULL);
	function->end = function->start;
	if (dladdr1(function->start, &info, (void **) &symbol, RTLD_DL_SYMENT) != 0 &&
		symbol != NULL && info.dli_saddr == function->start)
		function->end = (char *) function->start + symbol->st_size;
}

/*
 * Returns the name of the innermost function of heap that is on the stack,
 * NULL if there is none.
 */
static const char *
heap_caller(void)
{
	void	   *callers[MAX_CALLERS];
	int			n = backtrace(callers, MAX_CALLERS);

	for (int i = 0; i < n; i++)
		for (int f = 0; f < lengthof(heap_functions); f++)
		{
			const HeapFunction *function = &heap_functions[f];

			Assert(function->end != NULL);
			if (callers[i] > function->start && callers[i] <= function->end)
				return function->name;
		}
	return NULL;
}

/*
 * zcallers_init: See heap_readers.h. dladdr1 reads all symbols of the server,
 * and the first call of backtrace loads a library: together 2.4 million
 * instructions, which no backend should spend on its first CREATE INDEX or
 * ANALYZE.
 */
void
zcallers_init(void)
{
	void	   *caller;

	for (int f = 0; f < lengthof(heap_functions); f++)
		look_up(&heap_functions[f]);
	(void) backtrace(&caller, 1);
}

#else							/* the stack cannot be looked at */

/* zcallers_init: See heap_readers.h. */
void
zcallers_init(void)
{
}

/* Returns NULL: callers are not known without a stack to look at. */
static const char *
heap_caller(void)
{
	return NULL;
}

#endif

/*
 * zcallers_check: See heap_readers.h. Looks at the stack, unless the planner
 * asks.
 */
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
