/*
 * guard/heap_readers.c - functions of other modules that would read zheap
 * pages as heap's.
 *
 * pg_check_visible() of contrib's pg_visibility takes every relation that has
 * a visibility map for a heap table. It calls heap's code to test whether the
 * rows of all-visible pages are visible, and that code sets hint bits: in the
 * bytes of our columns. So the function manager's hooks count the calls of
 * this function that are in progress, and a zheap table that is asked for its
 * size within such a call, which is the first thing that the function does
 * with it, raises an error. The module's other functions look at the map and
 * at the page header, which are as in heap; those of pgstattuple, amcheck,
 * pgrowlocks and pg_surgery refuse tables of other access methods themselves.
 *
 *	HEAP-1	these functions do not reach a page of a zheap table. Not asserted:
 *			the functions are the server's and of extensions; t/093_heap_tools
 *			calls them.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "common/zundo.h"
#include "fmgr.h"
#include "guard/heap_readers.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

int			zreaders_within = 0;

/*
 * zreaders_misreads: See heap_readers.h. Called for each function in C that is
 * prepared to be called; the name in its module is far behind in the tuple.
 */
bool
zreaders_misreads(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		found = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	if (form->prolang == ClanguageId && form->proretset)
	{
		bool		isnull;
		Datum		name = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_prosrc, &isnull);

		if (!isnull)
		{
			text	   *prosrc = DatumGetTextPP(name);
			static const char reader[] = "pg_check_visible";

			found = VARSIZE_ANY_EXHDR(prosrc) == sizeof(reader) - 1 &&
				memcmp(VARDATA_ANY(prosrc), reader, sizeof(reader) - 1) == 0;
			if ((Pointer) prosrc != DatumGetPointer(name))
				pfree(prosrc);
		}
	}
	ReleaseSysCache(tuple);
	return found;
}

/* zreaders_count: See heap_readers.h. */
void
zreaders_count(FmgrHookEventType event, Oid function, bool *counted)
{
	if (event == FHET_START)
		*counted = zreaders_misreads(function);
	if (*counted)
		zreaders_within += event == FHET_START ? 1 : -1;
	Assert(zreaders_within >= 0);
}

void
zreaders_refuse(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot check zheap table \"%s\"", RelationGetRelationName(rel)),
			 errdetail("pg_check_visible interprets every row as a heap row."),
			 errhint("Use zundo.check() to compare a zheap table with its visibility map.")));
	pg_unreachable();
}
