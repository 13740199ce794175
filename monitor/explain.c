/*
 * monitor/explain.c - EXPLAIN (ANALYZE, UNDO): what each plan node has read and
 * written in undo.
 *
 * Owns the option UNDO of EXPLAIN and the counts of plan nodes. hooks.c says
 * which queries begin; the server calls the rest.
 *
 * The counters of common/zcount.h are read before and after each call of a plan
 * node, as the server does it for BUFFERS. So a node's counts include those of
 * the nodes below it, and of the functions that it calls. Parallel workers add
 * theirs to dynamic shared memory when they end, before the leader shows them.
 *
 * No locks, no crash points.
 */
#include "postgres.h"

#include "monitor/explain.h"

#ifdef zc_add_explain_option

#include "access/parallel.h"
#include "commands/defrem.h"
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "mvcc/zlevel.h"
#include "nodes/nodeFuncs.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/dsm_registry.h"
#include "storage/procnumber.h"
#include "tuple/ztts.h"

/* What is shown of a node, in this order. */
static const struct
{
	ZCounter	counter;
	const char *word;
	const char *property;
}			shown[] =

{
	{ZCOUNT_READ, "records", "Undo Records Read"},
	{ZCOUNT_PAGES, "pages", "Undo Pages Read"},
	{ZCOUNT_REBUILT, "rebuilt", "Row Versions Rebuilt"},
	{ZCOUNT_IMAGES_USED, "images", "Page Images Used"},
	{ZCOUNT_STALE, "stale", "Stale Entries Passed"},
	{ZCOUNT_UPDATED, "in place", "Rows Updated in Place"},
	{ZCOUNT_MOVED, "moved", "Rows Moved"},
	{ZCOUNT_WRITTEN, "bytes", "Undo Bytes Written"},
};

#define NSHOWN			lengthof(shown)

/*
 * Flags of the executor which the server passes on to workers, none of its own:
 * the workers of the query count, and the number of the query in its process.
 */
#define WORKERS_COUNT	0x40000000
#define QUERY_SHIFT		8
#define QUERY_MASK		0xFFFF

/* A plan node that is counted. */
typedef struct NodeCounts
{
	const PlanState *state;
	ExecProcNodeMtd run;		/* its own function */
	uint64		n[NSHOWN];
} NodeCounts;

/* A query whose nodes are counted, in the memory of the query. */
typedef struct Counted
{
	struct Counted *older;
	EState	   *estate;
	MemoryContextCallback at_end;
	dsm_segment *workers;		/* counts of its workers, NULL: none yet */
	int			nnodes;
	NodeCounts	nodes[FLEXIBLE_ARRAY_MEMBER];	/* by plan_node_id */
} Counted;

/* A plan node as its workers have counted it. */
typedef struct WorkerCounts
{
	pg_atomic_uint64 n[NSHOWN];
} WorkerCounts;

/* What the workers of a query have counted, in dynamic shared memory. */
typedef struct QueryCounts
{
	dsm_handle	older;			/* of a query in which this one is nested */
	uint32		number;			/* of the query */
	WorkerCounts nodes[FLEXIBLE_ARRAY_MEMBER];	/* in the order of its nodes */
} QueryCounts;

static struct
{
	Counted    *newest;
	dsm_handle *handle;			/* ours in shared memory, NULL: not needed yet */
	uint32		queries;		/* with workers that count, until now */
	explain_per_node_hook_type per_node;	/* previous hooks */
	explain_validate_options_hook_type validate;
}			my;

/* Returns the query of a plan node, or NULL if the node is not counted. */
static Counted *
find(const PlanState *state)
{
	Counted    *query = my.newest;
	int			id = state->plan->plan_node_id;

	while (query != NULL && query->estate != state->state)
		query = query->older;
	return query != NULL && id < query->nnodes && query->nodes[id].state == state ? query : NULL;
}

/* ---- parallel workers ---- */

/* Returns how many bytes the counts of a query's workers need. */
static Size
workers_size(const Counted *query)
{
	return offsetof(QueryCounts, nodes) + query->nnodes * sizeof(WorkerCounts);
}

static void
clear_handles(void *handles ZC_DSM_INIT_ARG_PARAM)
{
	memset(handles, 0, MaxBackends * sizeof(dsm_handle));
}

/*
 * Returns where the handle is of the QueryCounts of a process's innermost query
 * that has any. Its workers find those of the others by 'older'.
 */
static dsm_handle *
handle_of(ProcNumber leader)
{
	bool		found;
	dsm_handle *handles = zc_named_dsm("zundo_explain", MaxBackends * sizeof(dsm_handle),
									   clear_handles, &found);

	return &handles[leader];
}

static inline QueryCounts *
counts_in(dsm_segment *workers)
{
	return dsm_segment_address(workers);
}

/* Has the workers that the query is about to start count. */
static void
have_workers_count(Counted *query)
{
	QueryCounts *counts;

	if (query->workers != NULL || !IsInParallelMode())
		return;
	if (my.handle == NULL)
	{
		my.handle = handle_of(MyProcNumber);
		*my.handle = DSM_HANDLE_INVALID;
	}
	query->workers = dsm_create(workers_size(query), DSM_CREATE_NULL_IF_MAXSEGMENTS);
	if (query->workers == NULL)
		return;
	dsm_pin_mapping(query->workers);
	counts = counts_in(query->workers);
	counts->older = *my.handle;
	counts->number = ++my.queries & QUERY_MASK;
	for (int node = 0; node < query->nnodes; node++)
		for (int i = 0; i < NSHOWN; i++)
			pg_atomic_init_u64(&counts->nodes[node].n[i], 0);
	pg_write_barrier();
	*my.handle = dsm_segment_handle(query->workers);
	query->estate->es_top_eflags |= WORKERS_COUNT | (int) (counts->number << QUERY_SHIFT);
}

/*
 * Takes the counts of the leader's query, which has ended, from those that
 * workers can find. It is the innermost one, but for errors.
 */
static void
unlink_counts(const Counted *query)
{
	dsm_handle *link = my.handle;

	for (Counted *q = my.newest; q != NULL; q = q->older)
		if (q->workers != NULL &&
			counts_in(q->workers)->older == dsm_segment_handle(query->workers))
			link = &counts_in(q->workers)->older;
	*link = counts_in(query->workers)->older;
}

/*
 * Returns, in a worker, the counts of the query of this number, NULL if they
 * are gone. Begins again if the innermost query ends meanwhile.
 */
static dsm_segment *
attach_counts(uint32 number)
{
	volatile dsm_handle *first = handle_of(ParallelLeaderProcNumber);
	dsm_handle	begin = *first;
	dsm_handle	handle = begin;

	while (handle != DSM_HANDLE_INVALID)
	{
		dsm_segment *workers = dsm_attach(handle);

		if (workers == NULL)
		{
			if (begin == *first)
				return NULL;
			handle = begin = *first;
			continue;
		}
		if (counts_in(workers)->number == number)
		{
			dsm_pin_mapping(workers);
			return workers;
		}
		handle = counts_in(workers)->older;
		dsm_detach(workers);
	}
	return NULL;
}

/*
 * Adds, in a worker, its counts to those of all workers. Its plan is a part of
 * the leader's.
 */
static void
add_to_workers(const Counted *query)
{
	QueryCounts *counts = counts_in(query->workers);

	if (workers_size(query) > dsm_segment_map_length(query->workers))
		return;
	for (int node = 0; node < query->nnodes; node++)
		for (int i = 0; i < NSHOWN; i++)
			pg_atomic_fetch_add_u64(&counts->nodes[node].n[i], (int64) query->nodes[node].n[i]);
}

/* Returns what a node and, in the leader, its workers have counted. */
static uint64
count_of(const Counted *query, int node, int i)
{
	uint64		n = query->nodes[node].n[i];

	if (query->workers != NULL)
		n += pg_atomic_read_u64(&counts_in(query->workers)->nodes[node].n[i]);
	return n;
}

/* ---- the executor ---- */

/* Runs a node that is counted: its ExecProcNode function. */
static TupleTableSlot *
run_counted(PlanState *state)
{
	Counted    *query = find(state);
	NodeCounts *node;
	TupleTableSlot *slot;
	uint64		before[NSHOWN];

	Assert(query != NULL);
	node = &query->nodes[state->plan->plan_node_id];
	if (IsA(state, GatherState) || IsA(state, GatherMergeState))
		have_workers_count(query);
	for (int i = 0; i < NSHOWN; i++)
		before[i] = zcount_mine[shown[i].counter];
	slot = node->run(state);
	for (int i = 0; i < NSHOWN; i++)
		node->n[i] += zcount_mine[shown[i].counter] - before[i];
	return slot;
}

/* Raises *max, an int, to the greatest plan_node_id of a tree. */
static bool
find_max_id(PlanState *state, void *max)
{
	*(int *) max = Max(*(int *) max, state->plan->plan_node_id);
	return planstate_tree_walker(state, find_max_id, max);
}

/*
 * Counts the nodes of a tree in *arg, a Counted. Nodes that the server executes
 * by MultiExecProcNode count as parts of those above them. A plan that an
 * extension has made may have two nodes of one id.
 */
static bool
count_tree(PlanState *state, void *arg)
{
	Counted    *query = arg;
	NodeCounts *node = &query->nodes[state->plan->plan_node_id];

	if (node->state == NULL)
	{
		node->state = state;
		node->run = state->ExecProcNodeReal;
		ExecSetExecProcNode(state, run_counted);
	}
	return planstate_tree_walker(state, count_tree, arg);
}

/* Forgets a query, whose memory is about to be freed. */
static void
forget(void *arg)
{
	Counted    *query = arg;
	Counted   **p = &my.newest;

	while (*p != query)
		p = &(*p)->older;
	*p = query->older;
	if (query->workers == NULL)
		return;
	if (IsParallelWorker())
		add_to_workers(query);
	else
		unlink_counts(query);
	dsm_detach(query->workers);
}

/*
 * zexplain_count: See explain.h. A query is asked for if EXPLAIN itself starts
 * it, or by the setting: the queries of functions that EXPLAIN calls run in
 * levels of their own.
 */
void
zexplain_count(const QueryDesc *query_desc)
{
	EState	   *estate = query_desc->estate;
	bool		in_worker = (estate->es_top_eflags & WORKERS_COUNT) != 0;
	dsm_segment *workers = in_worker ?
	attach_counts(((uint32) estate->es_top_eflags >> QUERY_SHIFT) & QUERY_MASK) : NULL;
	Counted    *query;
	int			max = 0;

	if (in_worker ? workers == NULL
		: (!zundo_explain_undo && !zlevel_current()->explains_undo) ||
		(estate->es_top_eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	(void) find_max_id(query_desc->planstate, &max);
	query = MemoryContextAllocZero(estate->es_query_cxt,
								   offsetof(Counted, nodes) + (max + 1) * sizeof(NodeCounts));
	query->estate = estate;
	query->workers = workers;
	query->nnodes = max + 1;
	query->at_end.func = forget;
	query->at_end.arg = query;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &query->at_end);
	query->older = my.newest;
	my.newest = query;
	(void) count_tree(query_desc->planstate, query);
}

/* ---- EXPLAIN ---- */

/* Returns where EXPLAIN keeps the value of its option UNDO; NULL: not given. */
static const bool *
option_of(ExplainState *es)
{
	return GetExplainExtensionState(es, GetExplainExtensionId("zundo"));
}

/* Returns whether EXPLAIN is to show the counts. */
static bool
is_asked(ExplainState *es)
{
	const bool *option = option_of(es);

	return es->analyze && (option != NULL ? *option : zundo_explain_undo);
}

/* Takes the option UNDO. */
static void
take_option(ExplainState *es, DefElem *opt, ParseState *pstate)
{
	bool	   *option = palloc(sizeof(bool));

	*option = defGetBoolean(opt);
	SetExplainExtensionState(es, GetExplainExtensionId("zundo"), option);
}

/* Checks the options of EXPLAIN, which are complete. */
static void
validate(ExplainState *es, List *options, ParseState *pstate)
{
	const bool *option = option_of(es);

	if (my.validate)
		my.validate(es, options, pstate);
	if (option != NULL && *option && !es->analyze)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("EXPLAIN option %s requires ANALYZE", "UNDO")));
	zlevel_current()->explains_undo = is_asked(es);
}

/*
 * Returns whether the counts of such a node are shown. *rel is the table that
 * it reads or changes, NULL if that may be several.
 */
static bool
is_shown(const PlanState *state, Relation *rel)
{
	*rel = NULL;
	switch (nodeTag(state))
	{
		case T_SeqScanState:
		case T_SampleScanState:
		case T_IndexScanState:
		case T_IndexOnlyScanState:
		case T_BitmapHeapScanState:
		case T_TidScanState:
		case T_TidRangeScanState:
			*rel = ((const ScanState *) state)->ss_currentRelation;
			return true;
		case T_ModifyTableState:
			*rel = ((const ModifyTableState *) state)->resultRelInfo->ri_RelationDesc;
			return true;
		case T_LockRowsState:
			return true;
		default:
			return false;
	}
}

/* Shows counts: in text those that are not 0, in one line. */
static void
show(const uint64 *n, ExplainState *es)
{
	if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		for (int i = 0; i < NSHOWN; i++)
			ExplainPropertyUInteger(shown[i].property, NULL, n[i], es);
		return;
	}
	ExplainIndentText(es);
	appendStringInfoString(es->str, "Undo:");
	for (int i = 0; i < NSHOWN; i++)
		if (n[i] != 0)
			appendStringInfo(es->str, " %s=" UINT64_FORMAT, shown[i].word, n[i]);
	appendStringInfoChar(es->str, '\n');
}

/*
 * Shows the counts of a node. If all are 0, only those of zheap tables, and not
 * in text.
 */
static void
per_node(PlanState *state, List *ancestors, const char *relationship, const char *plan_name,
		 ExplainState *es)
{
	const Counted *query;
	Relation	rel;
	uint64		n[NSHOWN];
	uint64		sum = 0;

	if (my.per_node)
		my.per_node(state, ancestors, relationship, plan_name, es);
	if (!is_asked(es) || !is_shown(state, &rel) || (query = find(state)) == NULL)
		return;
	for (int i = 0; i < NSHOWN; i++)
	{
		n[i] = count_of(query, state->plan->plan_node_id, i);
		sum += n[i];
	}
	if (sum != 0 || (es->format != EXPLAIN_FORMAT_TEXT && rel != NULL && ztts_is_zheap(rel)))
		show(n, es);
}

/* zexplain_install: See explain.h. */
void
zexplain_install(void)
{
	zc_add_explain_option("undo", take_option);
	my.validate = explain_validate_options_hook;
	explain_validate_options_hook = validate;
	my.per_node = explain_per_node_hook;
	explain_per_node_hook = per_node;
}

#endif
