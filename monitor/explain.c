/*
 * monitor/explain.c - EXPLAIN (ANALYZE, UNDO): what each plan node has read and
 * written in undo.
 *
 * Owns the option UNDO of EXPLAIN and the counts of plan nodes. hooks.c says
 * which queries begin; the server calls the rest.
 *
 * The counters of common/zcount.h are read before and after each call of a plan
 * node, as the server does it for BUFFERS. So a node's counts include those of
 * the nodes below it, and of the functions that it calls.
 *
 * No locks, no crash points.
 */
#include "postgres.h"

#include "monitor/explain.h"

#if ZC_HAS_EXPLAIN_OPTIONS

#include "access/parallel.h"
#include "commands/defrem.h"
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "common/zcount.h"
#include "mvcc/zlevel.h"
#include "nodes/nodeFuncs.h"
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
	const EState *estate;
	MemoryContextCallback at_end;
	int			nnodes;
	NodeCounts	nodes[FLEXIBLE_ARRAY_MEMBER];	/* by plan_node_id */
} Counted;

static struct
{
	Counted    *newest;
	explain_per_node_hook_type per_node;	/* previous hooks */
	explain_validate_options_hook_type validate;
}			my;

/* ---- counting ---- */

/* Returns the counts of a plan node, or NULL if it is not counted. */
static NodeCounts *
find(const PlanState *state)
{
	int			id = state->plan->plan_node_id;

	for (Counted *query = my.newest; query != NULL; query = query->older)
	{
		if (query->estate != state->state)
			continue;
		return id < query->nnodes && query->nodes[id].state == state ? &query->nodes[id] : NULL;
	}
	return NULL;
}

/* Runs a node that is counted: its ExecProcNode function. */
static TupleTableSlot *
run_counted(PlanState *state)
{
	NodeCounts *node = find(state);
	TupleTableSlot *slot;

	Assert(node != NULL);
	for (int i = 0; i < NSHOWN; i++)
		node->n[i] -= zcount_mine[shown[i].counter];
	slot = node->run(state);
	for (int i = 0; i < NSHOWN; i++)
		node->n[i] += zcount_mine[shown[i].counter];
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
	Counted   **p = &my.newest;

	while (*p != arg)
		p = &(*p)->older;
	*p = (*p)->older;
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
	Counted    *query;
	int			max = 0;

	if ((!zundo_explain_undo && !zlevel_current()->explains_undo) || IsParallelWorker() ||
		(estate->es_top_eflags & EXEC_FLAG_EXPLAIN_ONLY) != 0)
		return;
	(void) find_max_id(query_desc->planstate, &max);
	query = MemoryContextAllocZero(estate->es_query_cxt,
								   offsetof(Counted, nodes) + (max + 1) * sizeof(NodeCounts));
	query->estate = estate;
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
	const NodeCounts *node;
	Relation	rel;
	uint64		sum = 0;

	if (my.per_node)
		my.per_node(state, ancestors, relationship, plan_name, es);
	if (!is_asked(es) || !is_shown(state, &rel) || (node = find(state)) == NULL)
		return;
	for (int i = 0; i < NSHOWN; i++)
		sum += node->n[i];
	if (sum != 0 || (es->format != EXPLAIN_FORMAT_TEXT && rel != NULL && ztts_is_zheap(rel)))
		show(node->n, es);
}

/* zexplain_install: See explain.h. */
void
zexplain_install(void)
{
	RegisterExtensionExplainOption("undo", take_option);
	my.validate = explain_validate_options_hook;
	explain_validate_options_hook = validate;
	my.per_node = explain_per_node_hook;
	explain_per_node_hook = per_node;
}

#endif
