/*
 * common/error.c - the error for features that zheap does not have.
 *
 * Called from anywhere; takes no lock.
 */
#include "postgres.h"

#include "common/zundo.h"
#include "miscadmin.h"

/* zundo_not_supported: See zundo.h. */
void
zundo_not_supported(const char *what, const char *detail)
{
	Assert(what != NULL);
	Assert(CritSectionCount == 0);
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s", what),
			 detail ? errdetail("%s", detail) : 0));
	pg_unreachable();
}
