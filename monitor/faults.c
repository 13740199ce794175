/*
 * monitor/faults.c - what zundo.check and zundo.check_index find: a list of
 * faults for each page, and errors that become faults.
 */
#include "postgres.h"

#include "access/xact.h"
#include "monitor/faults.h"
#include "monitor/monitor.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#define MAX_FAULTS 1000

typedef struct Fault
{
	BlockNumber block;
	OffsetNumber item;			/* 0 = none */
	const char *invariant;
	char	   *detail;
} Fault;

void
zfaults_begin(ZFaults *faults, const char *name)
{
	faults->context = AllocSetContextCreateInternal(CurrentMemoryContext, name,
													ALLOCSET_DEFAULT_SIZES);
	faults->list = NIL;
}

void
zfaults_add(ZFaults *faults, BlockNumber block, OffsetNumber item, const char *invariant,
			const char *fmt, va_list args)
{
	MemoryContext old = MemoryContextSwitchTo(faults->context);

	if (list_length(faults->list) < MAX_FAULTS)
	{
		Fault	   *f = palloc(sizeof(Fault));

		f->block = block;
		f->item = item;
		f->invariant = invariant;
		f->detail = zmon_vprintf(fmt, args);
		faults->list = lappend(faults->list, f);
	}
	MemoryContextSwitchTo(old);
}

void
zfaults_forget(ZFaults *faults)
{
	faults->list = NIL;
	MemoryContextReset(faults->context);
}

void
zfaults_put(FunctionCallInfo fcinfo, ZFaults *faults)
{
	ListCell   *lc;

	Assert(list_length(faults->list) <= MAX_FAULTS);
	foreach(lc, faults->list)
	{
		const Fault *f = lfirst(lc);
		Datum		values[4];
		bool		nulls[4] = {0};

		values[0] = Int64GetDatum((int64) f->block);
		values[1] = Int32GetDatum(f->item);
		nulls[1] = (f->item == 0);
		values[2] = CStringGetTextDatum(f->invariant);
		values[3] = CStringGetTextDatum(f->detail);
		zmon_put(fcinfo, values, nulls);
	}
	zfaults_forget(faults);
}

/*
 * Returns whether an error is about the session or the server's resources, and
 * not about what is checked. A file that cannot be read is a fault.
 */
static bool
is_about_session(int code)
{
	int			category = ERRCODE_TO_CATEGORY(code);

	return code == ERRCODE_LOCK_NOT_AVAILABLE || category == ERRCODE_TRANSACTION_ROLLBACK ||
		category == ERRCODE_INSUFFICIENT_RESOURCES || category == ERRCODE_OPERATOR_INTERVENTION;
}

/*
 * zfaults_try: See faults.h. The subtransaction ends before an error is raised
 * again. It has written nothing, so that its end leaves the error as it
 * is.
 */
char *
zfaults_try(ZFaults *faults, void (*test) (void *arg), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	char	   *volatile error = NULL;

	Assert(faults->context != NULL && faults->context != CurrentMemoryContext);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(faults->context);
	PG_TRY();
	{
		test(arg);
		ReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
	}
	PG_CATCH();
	{
		ErrorData  *edata;
		int			code = geterrcode();

		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		if (is_about_session(code))
			PG_RE_THROW();
		MemoryContextSwitchTo(faults->context);
		edata = CopyErrorData();
		FlushErrorState();
		error = edata->detail == NULL ? edata->message
			: psprintf("%s %s", edata->message, edata->detail);
		MemoryContextSwitchTo(context);
	}
	PG_END_TRY();
	return error;
}
