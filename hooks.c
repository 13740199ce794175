/*
 * hooks.c - where the server calls zundo: its hooks, and the ends of
 * transactions.
 *
 * Each function below stands for one hook or callback of the server and lists,
 * in the order in which they are taken, the steps of the layers. No logic of
 * its own: what a step does, and what it relies on, is said in its layer; why
 * the steps come in this order is said here. Other libraries' hooks that were
 * installed before ours run where a function calls 'previous'.
 *
 * Owns the previous hooks. Locks: none. Crash points: "before-commit".
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/zundo.h"
#include "dml/zdml.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "hooks.h"
#include "miscadmin.h"
#include "monitor/heap_readers.h"
#include "mvcc/zany.h"
#include "mvcc/zguard.h"
#include "mvcc/zhandle.h"
#include "mvcc/zlevel.h"
#include "mvcc/zown.h"
#include "mvcc/zvis.h"
#include "optimizer/planner.h"
#include "rollback/zrollback.h"
#include "storage/ipc.h"
#include "tcop/utility.h"
#include "undo/undo.h"
#include "undo/undo_request.h"
#include "undo/undo_temp.h"
#include "utils/guc.h"

static struct
{
	shmem_request_hook_type shmem_request;
	shmem_startup_hook_type shmem_startup;
	create_upper_paths_hook_type create_upper_paths;
	ExecutorStart_hook_type executor_start;
	ExecutorRun_hook_type executor_run;
	ExecutorFinish_hook_type executor_finish;
	ProcessUtility_hook_type process_utility;
	needs_fmgr_hook_type needs_fmgr;
	fmgr_hook_type fmgr;
	emit_log_hook_type emit_log;
}			previous;

/* ---- the server starts ---- */

static void
shmem_request(void)
{
	if (previous.shmem_request)
		previous.shmem_request();
	RequestAddinShmemSpace(zu_shmem_size());
	RequestAddinShmemSpace(zworkers_shmem_size());
	RequestAddinShmemSpace(zany_shmem_size());
	zu_shmem_request();
}

static void
shmem_startup(void)
{
	if (previous.shmem_startup)
		previous.shmem_startup();
	zu_shmem_startup();
	zworkers_shmem_startup();
	zany_shmem_startup();
}

/* ---- a query is planned and executed ---- */

/*
 * Called for each step in planning a query level; the last one has all of its
 * paths.
 */
static void
create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input,
				   RelOptInfo *output, void *extra)
{
	if (previous.create_upper_paths)
		previous.create_upper_paths(root, stage, input, output, extra);
	if (stage == UPPERREL_FINAL)
		zguard_check_query(root);
}

/*
 * The scans are looked at when they have been started: only then do they exist.
 */
static void
executor_start(QueryDesc *query, int eflags)
{
	if (previous.executor_start)
		previous.executor_start(query, eflags);
	else
		standard_ExecutorStart(query, eflags);
	zguard_check_scans(query, eflags);
}

/*
 * An executor level ends by an error, which the caller throws on. Only the
 * outermost level tells it in the words for victims of a full undo log: inside,
 * PL/pgSQL's WHEN OTHERS would catch that, while it lets the server's own word
 * for a cancelled query pass.
 */
static void
leave_failed_level(ZLevel *level)
{
	if (zlevel_pop(level))
		zu_error_of_victim();
}

/*
 * Whether the query is a statement of its own is asked before its level is
 * there: the level would make it look like a part of itself.
 */
static void
#if ZC_EXECUTOR_RUN_ONCE_ARG
executor_run(QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once)
#else
executor_run(QueryDesc *query, ScanDirection direction, uint64 count)
#endif
{
	ZLevel		level;

	if (zlevel_outermost())
		zhandle_statement_begin(query);
	zlevel_push(&level, query->estate);
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
 * The server fires AFTER triggers in here, which fetch rows of the query's
 * level. When it returns, the statement's handles have been used, unless the
 * triggers are left to an outer query (EXEC_FLAG_SKIP_TRIGGERS).
 */
static void
executor_finish(QueryDesc *query)
{
	ZLevel		level;

	zlevel_push(&level, query->estate);
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
	if (zlevel_outermost() && (query->estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) == 0)
		zhandle_statement_end(query);
}

/* ---- a utility command is executed ---- */

/*
 * 1. What is refused, before anything is locked or changed. The guard of the
 *    extension comes first: it may wait for locks on tables.
 * 2. What is executed otherwise than it says.
 * 3. The command, in an executor level without a query: what it fetches
 *    belongs to no query around it. On an error, the server goes back to the
 *    settings of before itself.
 */
static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
				DestReceiver *dest, QueryCompletion *qc)
{
	int			settings;
	ZLevel		level;

	zdrop_guard_check(pstmt->utilityStmt);
	zaccess_method_check(pstmt->utilityStmt);
	zu_ddl_check(pstmt->utilityStmt);

	pstmt = zaccess_method_of_copy(pstmt);
	pstmt = zu_ddl_pass_by(pstmt, context == PROCESS_UTILITY_TOPLEVEL);
	if (pstmt == NULL)
		return;
	settings = zaccess_method_for_script(pstmt->utilityStmt);

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
		leave_failed_level(&level);
		PG_RE_THROW();
	}
	PG_END_TRY();
	(void) zlevel_pop(&level);
	if (settings != 0)
		AtEOXact_GUC(true, settings);
}

/* ---- a function is called ---- */

/* What is remembered from a call's start to its end. */
typedef struct Call
{
	bool		counted;		/* by zreaders_count */
	Datum		previous;		/* what the previous hook remembers */
} Call;

/*
 * Returns whether the function's calls are to be told to the next hook. Cheap:
 * asked for each function.
 */
static bool
needs_fmgr(Oid function)
{
	return (previous.needs_fmgr && previous.needs_fmgr(function)) || zreaders_misreads(function);
}

static void
on_call(FmgrHookEventType event, FmgrInfo *flinfo, Datum *private)
{
	Call	   *call;

	if (*private == 0)
		*private = PointerGetDatum(MemoryContextAllocZero(flinfo->fn_mcxt, sizeof(Call)));
	call = (Call *) DatumGetPointer(*private);
	if (previous.fmgr)
		previous.fmgr(event, flinfo, &call->previous);
	zreaders_count(event, flinfo->fn_oid, &call->counted);
}

/* ---- a message is sent ---- */

/*
 * Ours comes first: the previous hook may keep the message elsewhere, and is
 * to see all of it.
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
 * Ends of top-level transactions. At COMMIT, ABORT and PREPARE nothing may
 * fail: the server is past the point where it could do anything about that.
 */
static void
xact_callback(XactEvent event, void *arg)
{
	bool		left;

	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			/* reads and writes pages: may still fail here */
			zreclaim_pre_commit();
			ZUNDO_FAULT("before-commit");
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

	/*
	 * Pages are undone first, while the backend's undo log is still its own
	 * and knows the size of this transaction. The undo of temporary tables is
	 * kept for what has been left on their pages. The worker is woken when
	 * all is in the state that it will meet; for a prepared transaction there
	 * is nothing to do yet.
	 */
	left = zrollback_at_xact_end(event == XACT_EVENT_ABORT);
	zu_temp_at_xact_end(event == XACT_EVENT_COMMIT);
	if (left && event != XACT_EVENT_PREPARE)
		zworkers_wake(MyDatabaseId);

	/* a parallel worker has changed nothing that could be remembered */
	if (event == XACT_EVENT_PARALLEL_COMMIT || event == XACT_EVENT_PARALLEL_ABORT)
		return;

	/*
	 * The undo log is given up; then what is remembered of the transaction,
	 * in any order.
	 */
	zu_at_xact_end();
	zown_at_xact_end();
	zlevel_at_xact_end();
	zhandle_at_xact_end();
	zreclaim_at_xact_end();
	zdml_at_xact_end();
}

/*
 * Ends of subtransactions. The server's nest level is still the
 * subtransaction's.
 */
static void
subxact_callback(SubXactEvent event, SubTransactionId mySubid, SubTransactionId parentSubid,
				 void *arg)
{
	int			level = GetCurrentTransactionNestLevel();

	switch (event)
	{
		case SUBXACT_EVENT_COMMIT_SUB:
			zreclaim_at_subxact_end(level, true);
			zrollback_at_subxact_commit(level);
			zu_temp_at_subxact_end(level, true);
			break;
		case SUBXACT_EVENT_ABORT_SUB:

			/*
			 * What is remembered goes before pages are undone, which makes it
			 * wrong: handles and pages with room name changes that will be
			 * gone.
			 */
			zreclaim_at_subxact_end(level, false);
			zhandle_at_subxact_abort(mySubid);
			zu_temp_at_subxact_end(level, false);
			zrollback_at_subxact_abort(level);
			break;
		default:
			break;
	}
}

void
zundo_install_hooks(void)
{
	previous.shmem_request = shmem_request_hook;
	shmem_request_hook = shmem_request;
	previous.shmem_startup = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
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
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(subxact_callback, NULL);
}
