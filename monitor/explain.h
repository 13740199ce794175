/*
 * monitor/explain.h - EXPLAIN (ANALYZE, UNDO).
 */
#ifndef ZUNDO_EXPLAIN_H
#define ZUNDO_EXPLAIN_H

#include "common/zundo.h"
#include "executor/execdesc.h"

#ifdef zc_add_explain_option

/*
 * zexplain_install: registers the option with the server. Called once, when the
 * library is preloaded.
 */
extern void zexplain_install(void);

/*
 * zexplain_count: begins to count what each plan node of the query does, if
 * that is asked for. Called when the query has been started; only if it is
 * instrumented, so that other queries pay one test.
 */
extern void zexplain_count(const QueryDesc *query);

static inline void
zexplain_query_started(const QueryDesc *query)
{
	if (unlikely(query->instrument_options != 0))
		zexplain_count(query);
}

#else

#define zexplain_install()	((void) 0)
#define zexplain_query_started(query)	((void) 0)

#endif

#endif
