/*
 * hooks.c - where the server calls zundo: its hooks, and the ends of
 * transactions.
 *
 * Each function below implements one hook or callback of the server and lists,
 * in their order, the steps of the layers. It has no logic of its own: what a
 * step does, and what it relies on, is documented in its layer; why the steps
 * come in this order is documented here. Other libraries' hooks that were
 * installed before ours run where a function calls 'previous'.
 *
 * Owns the previous hooks. Locks: none. Crash points: "before-commit".
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/compat.h"
#include "common/compat_commands.h"
#include "common/zcount.h"
#include "common/zundo.h"
#include "convert/convert.h"
#include "discard/discard.h"
#include "dml/zdml.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "guard/heap_readers.h"
#include "guard/zctid.h"
#include "guard/zxmin_id.h"
#include "hooks.h"
#include "miscadmin.h"
#include "monitor/explain.h"
#include "mvcc/zany.h"
#include "mvcc/zcommitted.h"
#include "mvcc/zhandle.h"
#include "mvcc/zknown.h"
#include "mvcc/zlevel.h"
#include "mvcc/zown.h"
#include "mvcc/zssi.h"
#include "mvcc/ztrail.h"
#include "mvcc/zvis.h"
#include "nodes/pathnodes.h"
#include "optimizer/pathnode.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"
#include "pgstat.h"
#include "rollback/zrollback.h"
#include "scan/zscan.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "undo/undo.h"
#include "undo/undo_request.h"
#include "undo/undo_temp.h"
#include "utils/guc.h"
#include "zbtree/bound.h"
#include "zbtree/predicate.h"
#include "zbtree/queue.h"
#include "zbtree/zbtree.h"

static struct
{
	shmem_request_hook_type shmem_request;
	shmem_startup_hook_type shmem_startup;
	planner_hook_type planner;
	ZcPlanTableHook plan_table;
	create_upper_paths_hook_type create_upper_paths;
	ExecutorStart_hook_type executor_start;
	ExecutorRun_hook_type executor_run;
	ExecutorFinish_hook_type executor_finish;
	ProcessUtility_hook_type process_utility;
	needs_fmgr_hook_type needs_fmgr;
	fmgr_hook_type fmgr;
	emit_log_hook_type emit_log;
	object_access_hook_type object_access;
}			previous;

/* ---- the server starts ---- */

/* Requests the shared memory and the locks of each layer. */
static void
shmem_request(void)
{
	if (previous.shmem_request)
		previous.shmem_request();
	RequestAddinShmemSpace(zworkers_shmem_size());
	RequestAddinShmemSpace(zcount_shmem_size());
	RequestAddinShmemSpace(zcount_table_shmem_size());
	RequestAddinShmemSpace(zssi_shmem_size());
	RequestAddinShmemSpace(zcommitted_shmem_size());
	RequestAddinShmemSpace(zkeyqueue_shmem_size());
	RequestAddinShmemSpace(zbound_shmem_size());
	RequestAddinShmemSpace(zconvert_shmem_size());
	zu_shmem_request();
}

/* Creates or attaches to the shared memory of each layer. */
static void
shmem_startup(void)
{
	if (previous.shmem_startup)
		previous.shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	zu_shmem_startup();
	zworkers_shmem_startup();
	zcount_shmem_startup();
	zssi_shmem_startup();
	zcommitted_shmem_startup();
	zkeyqueue_shmem_startup();
	zbound_shmem_startup();
	zconvert_shmem_startup();
	LWLockRelease(AddinShmemInitLock);
}

/* ---- a query is planned and executed ---- */

/* Plans a query. It is looked at before that, since the planner changes it. */
static PlannedStmt *
plan_query(ZC_PLANNER_PARAMS)
{
	List	   *named = zctid_named_from_outside(parse);
	PlannedStmt *result = previous.planner ? previous.planner(ZC_PLANNER_ARGS) :
	standard_planner(ZC_PLANNER_ARGS);

	zctid_keep_named(result, named);
	return result;
}

/*
 * Keeps parallel workers from building an index that they would build wrongly,
 * makes zbtree indexes as useful as btree's, and looks at what a query does
 * with xmin of the table. The server calls this for each table of a query, and
 * before it builds an index for the table, with a query that has no jointree
 * and takes the table for one with child tables (plan_create_index_workers).
 */
static void
plan_table(ZC_PLAN_TABLE_PARAMS)
{
	RangeTblEntry *entry = planner_rt_fetch(rel->relid, root);

	if (previous.plan_table)
		previous.plan_table(ZC_PLAN_TABLE_ARGS);
	if (root->parse->jointree == NULL && entry->inh && zheap_build_is_serial(entry->relid))
		rel->rel_parallel_workers = 0;
	zbtree_plan_table(rel);
	zxmin_plan_table(root, rel);
}

/*
 * Checks a query that is being planned. The server calls this for each step in
 * planning a query level; at the last one all paths are known.
 */
static void
create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input,
				   RelOptInfo *output, void *extra)
{
	if (previous.create_upper_paths)
		previous.create_upper_paths(root, stage, input, output, extra);
	if (stage == UPPERREL_FINAL)
		zxmin_plan_insert(root);
}

/* Starts the query, then checks its scans, which exist only then. */
static void
executor_start(QueryDesc *query, int eflags)
{
	/*
	 * not at the deferred triggers of the last one, which run without a
	 * portal
	 */
	if (zlevel_current()->outer == NULL && ActivePortal != NULL)
		zcount_statement_begins();
	if (previous.executor_start)
		previous.executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	Assert(query->estate != NULL);
	zexplain_query_started(query);
	zconvert_check_query(query, eflags);
	zctid_check_statement(query, eflags);
	if ((query->estate->es_top_eflags & (EXEC_FLAG_SKIP_TRIGGERS | EXEC_FLAG_EXPLAIN_ONLY)) == 0)
		zhandle_query_begin(query->estate);
}

/*
 * Ends an executor level after an error, which the caller rethrows. At the
 * outermost level, replaces the error of a query that was canceled because the
 * undo log is full by one that says so. Inside, PL/pgSQL's WHEN OTHERS would
 * catch that error, while it does not catch the server's own for a canceled
 * query.
 */
static void
leave_failed_level(ZLevel *level)
{
	if (zlevel_pop(level))
		zu_error_of_victim();
}

/* Runs a query in a level of its own. */
static void
#if ZC_EXECUTOR_RUN_ONCE_ARG
executor_run(QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once)
#else
executor_run(QueryDesc *query, ScanDirection direction, uint64 count)
#endif
{
	ZLevel		level;

	Assert(query->estate != NULL);
	zlevel_push(&level, query);
	PG_TRY();
	{
#if ZC_EXECUTOR_RUN_ONCE_ARG
		if (previous.executor_run)
			previous.executor_run(query, direction, count, execute_once);
		else
			standard_ExecutorRun(query, direction, count, execute_once);
#else
		if (previous.executor_run)
			previous.executor_run(query, direction, count);
		else
			standard_ExecutorRun(query, direction, count);
#endif
	}
	PG_CATCH();
	{
		leave_failed_level(&level);
		PG_RE_THROW();
	}
	PG_END_TRY();
	(void) zlevel_pop(&level);
}

/*
 * Finishes a query in its level: the server fires AFTER triggers here, which
 * fetch rows of that level. Afterwards the query's handles are not needed any
 * more, unless the triggers are left to an outer query
 * (EXEC_FLAG_SKIP_TRIGGERS).
 */
static void
executor_finish(QueryDesc *query)
{
	ZLevel		level;

	Assert(query->estate != NULL);
	zlevel_push(&level, query);
	PG_TRY();
	{
		if (previous.executor_finish)
			previous.executor_finish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_CATCH();
	{
		leave_failed_level(&level);
		PG_RE_THROW();
	}
	PG_END_TRY();
	(void) zlevel_pop(&level);
	if ((query->estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) == 0)
		zhandle_query_end(query->estate);
}

/* ---- a utility command is executed ---- */

/*
 * Whether the transaction has executed one that may drop or create tables, or
 * is one of several that such a command makes.
 */
static bool may_have_dropped = false;

/*
 * Returns the statement that is executed for the utility command pstmt, or NULL
 * for none.
 */
static PlannedStmt *
statement_for(PlannedStmt *pstmt, const char *query_string, bool toplevel)
{
	pstmt = zaccess_method_of_copy(pstmt);
	pstmt = zindex_method_choose(pstmt, query_string);
	return zu_ddl_pass_by(pstmt, toplevel);
}

/* Returns whether the utility command fires all deferred trigger events. */
static bool
fires_all(const Node *command)
{
	return IsA(command, ConstraintsSetStmt) &&
		((const ConstraintsSetStmt *) command)->constraints == NIL &&
		!((const ConstraintsSetStmt *) command)->deferred;
}

/*
 * For what the events of the object access hook are looked at. The hook is
 * there only during commands for which they matter, since the server does more
 * at other places if there is one.
 */
typedef struct Watch
{
	bool		drops;			/* the extension must not be dropped */
	bool		rewrites;		/* rewritten tables are noted */
	List	   *detached;		/* constraints that indexes get back */
} Watch;

static Watch watch;

/* Returns whether the hook is needed. */
static bool
is_watching(void)
{
	return watch.drops || watch.rewrites || watch.detached != NIL;
}

/* The object access hook. */
static void
on_access(ObjectAccessType access, Oid class, Oid object, int part, void *arg)
{
	if (previous.object_access)
		previous.object_access(access, class, object, part, arg);
	if (watch.drops)
		zdrop_guard_on_access(access, class, object);
	if (watch.rewrites)
		zconvert_on_access(access, class, object, part);
	if (watch.detached != NIL)
		zconstraint_on_access(watch.detached, access, class, object, part);
}

/*
 * Begins to look at what matters during the command. Within a command that has
 * detached constraints (by an event trigger), those of another command come
 * back at its end. Returns what end_watch takes.
 */
static Watch
begin_watch(Node *command, List *detached)
{
	Watch		outer = watch;
	bool		watched = is_watching();

	watch.drops = watch.drops || zdrop_guard_is_needed(command);
	watch.rewrites = watch.rewrites || IsA(command, AlterTableStmt);
	if (watch.detached == NIL)
		watch.detached = detached;
	if (!watched && is_watching())
	{
		previous.object_access = object_access_hook;
		object_access_hook = on_access;
	}
	return outer;
}

/* Ends what begin_watch has begun. */
static void
end_watch(Watch outer)
{
	bool		watched = is_watching();

	watch = outer;
	if (watched && !is_watching())
	{
		Assert(object_access_hook == on_access);
		object_access_hook = previous.object_access;
	}
}

/*
 * Executes a utility command:
 *
 *	1. The checks raise errors before the command locks or changes anything.
 *	   zdrop_guard_check comes first: it may wait for locks on tables.
 *	2. Some commands are replaced by others, or not executed at all. ALTER TABLE
 *	   may take constraints from indexes, which get them back.
 *	3. The command runs in a level without a query: the rows that it fetches
 *	   belong to no query in which it is nested. After an error, the server
 *	   itself restores the settings that zaccess_method_for_script has changed.
 *	4. After DISCARD ALL and DISCARD TEMP, changes that ended transactions
 *	   have left on pages of temporary tables are undone; after SET CONSTRAINTS
 *	   ALL IMMEDIATE, handles of events are not needed any more. Whether the
 *	   command is one of these is asked before it runs: a ROLLBACK may free its
 *	   own statement.
 */
static void
process_utility(PlannedStmt *command, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
				DestReceiver *dest, QueryCompletion *qc)
{
	PlannedStmt *pstmt;
	int			settings;
	Watch		outer_watch;
	bool		discards;
	bool		fires;
	uint32		nhandles;
	List	   *detached;
	ZLevel		level;

	if (!IsA(command->utilityStmt, TransactionStmt))
	{
		if (zlevel_current()->outer == NULL)
			zcount_statement_begins();
		if (!IsA(command->utilityStmt, ExecuteStmt))
			may_have_dropped = true;
	}
	zdrop_guard_check(command->utilityStmt);
	zaccess_method_check(command->utilityStmt);
	zindex_method_check(command->utilityStmt);
	zu_ddl_check(command->utilityStmt);
	zconvert_check_command(command->utilityStmt);
	zconvert_check_copy(command->utilityStmt);

	pstmt = statement_for(command, query_string, context == PROCESS_UTILITY_TOPLEVEL);
	if (pstmt == NULL)
		return;
	detached = zconstraint_detach(pstmt->utilityStmt);
	settings = zaccess_method_for_script(pstmt->utilityStmt);
	outer_watch = begin_watch(pstmt->utilityStmt, detached);
	discards = zrollback_temp_due_after(pstmt->utilityStmt);
	fires = fires_all(pstmt->utilityStmt);
	nhandles = zhandle_count();

	zlevel_push(&level, NULL);
	PG_TRY();
	{
		if (previous.process_utility)
			previous.process_utility(pstmt, query_string, read_only_tree, context, params, env,
									 dest, qc);
		else
			standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params, env, dest,
									qc);
	}
	PG_CATCH();
	{
		end_watch(outer_watch);
		leave_failed_level(&level);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_watch(outer_watch);
	(void) zlevel_pop(&level);
	zconstraint_attach(detached);
	if (settings != 0)
		AtEOXact_GUC(true, settings);
	if (discards)
		zrollback_temp();
	if (fires)
		zhandle_all_fired(nhandles);
}

/* ---- a function is called ---- */

/* What is remembered from a function's start to its end. */
typedef struct Call
{
	bool		counted;		/* zreaders_count has counted the call */
	Datum		previous;		/* what the previous hook remembers */
} Call;

/*
 * Returns whether fmgr_hook must be called for the function. The server asks
 * this for each function, so it must be cheap.
 */
static bool
needs_fmgr(Oid function)
{
	return (previous.needs_fmgr && previous.needs_fmgr(function)) || zreaders_misreads(function);
}

/*
 * Counts the calls of functions that misread zheap pages, as they begin, end
 * or fail. Each hook has its own memory of the call.
 */
static void
on_call(FmgrHookEventType event, FmgrInfo *flinfo, Datum *private)
{
	Call	   *call;

	Assert(event == FHET_START || *private != 0);
	if (*private == 0)
		*private = PointerGetDatum(MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Call)));
	call = (Call *) DatumGetPointer(*private);
	if (previous.fmgr)
		previous.fmgr(event, flinfo, &call->previous);
	zreaders_count(event, flinfo->fn_oid, &call->counted);
}

/* ---- a message is sent ---- */

/*
 * Completes a message before it is sent. Our step comes first, since the
 * previous hook may store the message elsewhere and must see all of it.
 */
static void
emit_log(ErrorData *error)
{
	zu_explain_end(error);
	if (previous.emit_log)
		previous.emit_log(error);
}

/* ---- a transaction ends ---- */

/*
 * Forgets the counters of the databases and relations that the transaction has
 * dropped; unless it commits, of those that it had created. The server knows
 * them, since it drops its own. If there is no memory for their list, nothing
 * is forgotten. The counters of tables that were rolled back to a savepoint,
 * dropped by a prepared transaction or on a standby's primary, or by a function
 * of an extension without a command, are left.
 */
static void
forget_dropped(bool commit)
{
	MemoryContext context = CurrentMemoryContext;

	if (!may_have_dropped)
		return;
	may_have_dropped = (zlevel_current()->outer != NULL);
	PG_TRY();
	{
		struct xl_xact_stats_item *items;
		int			n = pgstat_get_transactional_drops(commit, &items);

		for (int i = 0; i < n; i++)
		{
			if (items[i].kind == PGSTAT_KIND_RELATION)
				zcount_table_drop(items[i].dboid, zc_dropped_oid(&items[i]));
			else if (items[i].kind == PGSTAT_KIND_DATABASE)
			{
				zcount_drop(items[i].dboid);
				zuhistory_remove(items[i].dboid);
			}
		}
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
}

/*
 * Does what is due before and after the end of a top-level transaction. At
 * COMMIT, ABORT and PREPARE nothing may fail, for the server can no longer
 * react to an error.
 */
static void
xact_callback(XactEvent event, void *arg)
{
	bool		left;

	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:

			/*
			 * reads and writes pages, so it must come where errors are
			 * possible
			 */
			zreclaim_pre_commit();
			ZUNDO_FAULT("before-commit");
			zssi_before_end();
			return;
		case XACT_EVENT_PRE_PREPARE:
			zssi_before_end();
			return;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_PARALLEL_COMMIT:
		case XACT_EVENT_PARALLEL_ABORT:
			break;
		default:
			return;
	}

	Assert(CritSectionCount == 0 && InterruptHoldoffCount > 0);
	zbound_at_xact_end();

	/*
	 * First undo the changes on the noted pages: the backend still holds its
	 * undo log, which knows the size of this transaction. Then end the
	 * transaction in the private undo of temporary tables, which is kept as
	 * long as changes are left on their pages. Wake the worker after both;
	 * for a prepared transaction it has nothing to undo yet.
	 */
	left = zrollback_at_xact_end(event == XACT_EVENT_ABORT);
	zu_temp_at_xact_end(event == XACT_EVENT_COMMIT);
	if (left && event != XACT_EVENT_PREPARE)
		zworkers_wake(MyDatabaseId);

	/* a parallel worker has changed nothing that is remembered */
	if (event == XACT_EVENT_PARALLEL_COMMIT || event == XACT_EVENT_PARALLEL_ABORT)
	{
		zcount_flush();
		return;
	}

	/*
	 * Keys that were replaced become stale by a commit, new ones by an abort;
	 * of a prepared transaction both are queued, since its end is not known
	 * yet. They are queued before zu_at_xact_end asks for a worker.
	 */
	zkeyqueue_at_xact_end(event != XACT_EVENT_ABORT, event != XACT_EVENT_COMMIT);

	/*
	 * Release the undo log; then each layer forgets the transaction, in any
	 * order.
	 */
	zu_at_xact_end();
	zcount_enter_table(InvalidOid, false);
	zcount_at_xact_end();
	if (event != XACT_EVENT_PREPARE)
		forget_dropped(event == XACT_EVENT_COMMIT);
	if (event == XACT_EVENT_COMMIT)
		zcommitted_at_commit();
	zown_at_xact_end();
	zssi_at_xact_end();
	ztrail_at_xact_end();
	zlevel_at_xact_end();
	zhandle_at_xact_end();
	zreclaim_at_xact_end();
	zdml_at_xact_end();
	zcomputed_at_xact_end();
	zpredicate_at_xact_end();
}

/*
 * Does what is due at the end of a subtransaction, while the server's nest
 * level is still the subtransaction's.
 */
static void
subxact_callback(SubXactEvent event, SubTransactionId mySubid, SubTransactionId parentSubid,
				 void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	Assert(level > 1);
	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			zreclaim_at_subxact_end(level, true);
			zkeyqueue_at_subxact_end(level, true);
			zrollback_at_subxact_commit(level);
			zu_temp_at_subxact_end(level, true);
			break;
		case SUBXACT_EVENT_ABORT_SUB:

			/*
			 * Forget the handles and the pages with space before pages are
			 * undone, which takes away the changes that they refer to. The
			 * server removes files after this.
			 */
			zbound_at_subxact_abort(level);
			zu_at_subxact_abort();
			zreclaim_at_subxact_end(level, false);
			zhandle_at_subxact_abort(mySubid);
			zknown_forget();
			zu_temp_at_subxact_end(level, false);
			zrollback_at_subxact_abort(level);
			zcomputed_at_subxact_abort();
			zkeyqueue_at_subxact_end(level, false);
			break;
		default:
			break;
	}
}

/* zundo_install_hooks: See hooks.h. */
void
zundo_install_hooks(void)
{
	Assert(process_shared_preload_libraries_in_progress);
	previous.shmem_request = shmem_request_hook;
	shmem_request_hook = shmem_request;
	previous.shmem_startup = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
	previous.planner = planner_hook;
	planner_hook = plan_query;
	previous.plan_table = zc_plan_table_hook;
	zc_plan_table_hook = plan_table;
	previous.create_upper_paths = create_upper_paths_hook;
	create_upper_paths_hook = create_upper_paths;
	previous.executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
	previous.executor_run = ExecutorRun_hook;
	ExecutorRun_hook = executor_run;
	previous.executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = executor_finish;
	previous.process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
	previous.needs_fmgr = needs_fmgr_hook;
	needs_fmgr_hook = needs_fmgr;
	previous.fmgr = fmgr_hook;
	fmgr_hook = on_call;
	previous.emit_log = emit_log_hook;
	emit_log_hook = emit_log;
	zexplain_install();
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}
