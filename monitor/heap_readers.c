/*
 * monitor/heap_readers.c - functions of others that would read zheap pages as heap's.
 *
 * pg_check_visible() of contrib's pg_visibility takes whatever has a visibility map for a heap table. It asks
 * heap's code whether the rows of all-visible pages are visible, and that code sets hint bits: in the bytes of
 * our columns. So its calls are counted (function manager hooks), and a zheap table that is asked for its size
 * within such a call, which is the first thing that happens to it, refuses. The module's other functions look at
 * the map and at the page header, which are as in heap; those of pgstattuple, amcheck, pgrowlocks and pg_surgery
 * refuse tables that are not heap's themselves.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "common/zundo.h"
#include "fmgr.h"
#include "monitor/heap_readers.h"
#include "utils/builtins.h"
#include "utils/syscache.h"

int			zreaders_within = 0;

static needs_fmgr_hook_type prev_needs_fmgr = NULL;
static fmgr_hook_type prev_fmgr = NULL;

/* What is remembered from a call's start to its end; the function may have been dropped meanwhile. */
typedef struct Call
{
	bool		counted;
	Datum		prev_private;	/* the next hook's */
} Call;

/* misreads: is it one of those functions? By its C name; the SQL name may be any. */
static bool
misreads(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	bool		found = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	if (((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId)
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

static bool
needs_fmgr(Oid function)
{
	return (prev_needs_fmgr && prev_needs_fmgr(function)) || misreads(function);
}

/* on_call: count the calls that are under way. START is followed by END or, on an error, by ABORT. */
static void
on_call(FmgrHookEventType event, FmgrInfo *flinfo, Datum *private)
{
	Call	   *call;

	if (*private == 0)
		*private = PointerGetDatum(MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Call)));
	call = (Call *) DatumGetPointer(*private);
	if (prev_fmgr)
		prev_fmgr(event, flinfo, &call->prev_private);
	if (event == FHET_START)
		call->counted = misreads(flinfo->fn_oid);
	if (call->counted)
		zreaders_within += event == FHET_START ? 1 : -1;
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

void
zreaders_install_hooks(void)
{
	prev_needs_fmgr = needs_fmgr_hook;
	needs_fmgr_hook = needs_fmgr;
	prev_fmgr = fmgr_hook;
	fmgr_hook = on_call;
}
