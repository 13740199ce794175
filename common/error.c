/*
 * common/error.c - the error for what zheap does not do.
 *
 * Called from anywhere; takes no lock.
 */
#include "postgres.h"

#include "common/zundo.h"

/*
 * zundo_not_supported: raise ERRCODE_FEATURE_NOT_SUPPORTED: <what>,
 * with detail as errdetail unless NULL.
 */
void
zundo_not_supported(const char *what, const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s", what),
			 detail ? errdetail("%s", detail) : 0));
	pg_unreachable();
}
