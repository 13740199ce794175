/*
 * mvcc/zany.c - what SnapshotAny means for a fetch by TID (PROTOCOLS G).
 *
 * A TID names a row here, not a version, so a fetch with SnapshotAny must be
 * told by its surroundings which version is wanted. The surroundings are the
 * executor level: a stack of EStates kept by executor hooks; a utility command
 * pushes an empty level. Rules, first that applies:
 *	G1	own versions made by the level's command (cid >= C) are skipped; if any
 *		was, the version below the last of them is wanted; if that was an
 *		insertion, the inserted row.
 *	G2	the version that this level locked with tuple_lock; not for a recheck of one row.
 *	G3	the version visible to the level's snapshot.
 *	G4	the row of an own insertion at the bottom of the chain.
 *	G5	the newest own or committed version, deleted or not.
 * A version that another transaction has not committed is never returned.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "executor/execdesc.h"
#include "executor/executor.h"
#include "mvcc/zwalk.h"
#include "nodes/execnodes.h"
#include "tcop/utility.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* One executor level; lives on the C stack of its hook. */
typedef struct Level
{
	struct Level *outer;
	EState	   *estate;			/* NULL for a utility command */
} Level;

/*
 * The version that a level has locked for the row that it is about to change: named by its
 * writer, or by "settled" if the writer is visible to all. Lives in the level's
 * per-tuple memory: the executor resets that before it takes the next row from the plan,
 * which may be the same row again, computed from the version that the snapshot shows.
 */
typedef struct LockedRow
{
	struct LockedRow *next;
	EState	   *estate;
	Oid			reloid;
	ItemPointerData tid;
	UndoPtr		writer;
	MemoryContextCallback callback;
} LockedRow;

static Level *current_level = NULL;
static LockedRow *locked_rows = NULL;

static ExecutorRun_hook_type prev_executor_run = NULL;
static ExecutorFinish_hook_type prev_executor_finish = NULL;
static ProcessUtility_hook_type prev_process_utility = NULL;

/* The memory of arg, a LockedRow, goes. */
static void
forget_locked(void *arg)
{
	LockedRow **link = &locked_rows;

	while (*link != NULL && *link != arg)
		link = &(*link)->next;
	if (*link != NULL)
		*link = (*link)->next;
}

/* What this level has locked at tid for the row in hand; NULL = nothing. */
static LockedRow *
find_locked(Relation rel, ItemPointer tid)
{
	EState	   *estate = current_level ? current_level->estate : NULL;

	if (estate == NULL)
		return NULL;
	for (LockedRow *row = locked_rows; row != NULL; row = row->next)
		if (row->estate == estate && row->reloid == RelationGetRelid(rel) &&
			ItemPointerEquals(&row->tid, tid))
			return row;
	return NULL;
}

/* Does slot belong to this level itself? Else to a plan that checks its query again for one row (EPQ). */
static bool
slot_of_level(EState *estate, TupleTableSlot *slot)
{
	return estate != NULL && list_member_ptr(estate->es_tupleTable, slot);
}

void
zany_note_locked(Relation rel, ItemPointer tid, const ZRowWriter *writer)
{
	EState	   *estate = current_level ? current_level->estate : NULL;
	LockedRow  *row;

	if (estate == NULL)
		return;
	row = find_locked(rel, tid);
	if (row == NULL)
	{
		row = MemoryContextAllocZero(GetPerTupleMemoryContext(estate), sizeof(LockedRow));
		row->estate = estate;
		row->reloid = RelationGetRelid(rel);
		row->tid = *tid;
		row->next = locked_rows;
		row->callback.func = forget_locked;
		row->callback.arg = row;
		MemoryContextRegisterResetCallback(GetPerTupleMemoryContext(estate), &row->callback);
		locked_rows = row;
	}
	row->writer = writer->ptr;
}

bool
zany_is_locked(Relation rel, ItemPointer tid, const ZRowWriter *writer)
{
	LockedRow  *row = find_locked(rel, tid);

	return row != NULL && row->writer == writer->ptr;
}

/* What a walk for SnapshotAny found. */
typedef struct AnyResult
{
	bool		skipped;		/* G1 applied */
	bool		own_bottom;		/* the chain ends in an own insertion */
} AnyResult;

/* Give the version in hand to the caller. */
static void
take_version(ZVersion *version, const ZWalk *walk)
{
	version->found = walk->exists && walk->has_bytes;
	if (!version->found)
		return;
	memcpy(version->buf, walk->row, walk->len);
	version->row = version->buf;
	version->len = walk->len;
}

/*
 * Walk from the newest version, past other transactions' unfinished ones and
 * past own ones with cid >= limit, and take what rule G1 wants or, if none was
 * skipped, the newest own or committed version. bottom: go on to an own insertion (G4).
 * False: copy the page again.
 */
static bool
walk_any(ZWalk *walk, ZAccept *accept, CommandId limit, bool bottom, ZVersion *version,
		 AnyResult *result)
{
	memset(result, 0, sizeof(*result));
	for (;;)
	{
		ZWalkResult found = zwalk_find_writer(walk, accept);
		ZXidStatus	status;

		if (found == ZWALK_RETRY)
			return false;
		if (found != ZWALK_WRITER)
			break;
		status = zxid_status_at(walk->rec.xid, walk->slots->oldest);
		if (status == ZXID_COMMITTED || status == ZXID_ALL_VISIBLE)
			break;
		if (status == ZXID_OWN)
		{
			if (walk->rec.cid < limit && !bottom)
				break;			/* so are all below */
			if (walk->rec.type == ZUR_INSERT)
			{
				result->own_bottom = true;
				result->skipped = walk->rec.cid >= limit;
				break;
			}
			if (walk->rec.cid >= limit)
				result->skipped = true;
		}
		zwalk_step_back(walk);
		if (!walk->exists)
			break;
	}
	take_version(version, walk);
	return true;
}

/* Copy the page and walk; tries again as long as undo vanishes under it. */
static void
fetch_any(Relation rel, Buffer buf, OffsetNumber off, CommandId limit, bool bottom,
		  ZVersion *version, AnyResult *result)
{
	static ZSlotView slots;
	RelFileNumber relnumber = rel->rd_locator.relNumber;
	BlockNumber block = BufferGetBlockNumber(buf);

	version->found = false;
	zwalk_workspace()->confirmed = InvalidUndoPtr;
	zwalk_workspace()->page_locked = false;
	for (int tries = 0; tries < 1000; tries++)
	{
		ZWalk	   *walk = zwalk_workspace();
		Page		page = BufferGetPage(buf);
		ZAccept		accept;
		bool		started = false;

		LockBuffer(buf, BUFFER_LOCK_SHARE);
		if (!PageIsNew(page))
		{
			zslots_copy(page, &slots);
			started = zwalk_start(walk, page, &slots, relnumber, block, off);
		}
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		memset(result, 0, sizeof(*result));
		if (!started)
			return;
		zaccept_init(&accept, ZACCEPT_OWN_BEFORE, NULL, slots.oldest);
		accept.limit = bottom ? 0 : limit;
		if (walk_any(walk, &accept, limit, bottom, version, result))
			return;
	}
	zvis_corrupt_chain(relnumber, block, InvalidUndoPtr);
}

/*
 * Can the row have versions of our own? Cheap: no transaction id, or another's
 * slot. On entry and return buf is pinned and not locked.
 */
static bool
may_be_ours(Buffer buf, OffsetNumber off)
{
	Page		page = BufferGetPage(buf);
	bool		result = true;
	ItemId		lp;
	int			s = 0;

	if (!TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return false;
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (PageIsNew(page) || off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
		result = false;
	else
	{
		lp = PageGetItemId(page, off);
		if (ItemIdIsNormal(lp))
			s = ZH_SLOT(zheader_get(zpage_row(page, lp)));
		else if (ItemIdIsRedirected(lp))
			s = lp->lp_off;
		if (s == 0)
			result = false;
		else if (s <= zpage_nslots(page))
		{
			ZXid		xid = ZSLOT_XID(zpage_slot(page, s));

			result = xid >= zpage_oldest(page) && zxid_is_ours(xid);
		}
	}
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	return result;
}

void
zany_fetch(Relation rel, Buffer buf, OffsetNumber off, TupleTableSlot *slot, ZVersion *version)
{
	EState	   *estate = current_level ? current_level->estate : NULL;
	CommandId	limit = estate ? estate->es_output_cid : GetCurrentCommandId(false);
	AnyResult	result;
	ItemPointerData tid;
	bool		locked;

	if (estate != NULL && limit == 0 && estate->es_result_relations == NULL)
		limit = InvalidCommandId;	/* a query that writes nothing, as in parallel workers */
	ItemPointerSet(&tid, BufferGetBlockNumber(buf), off);
	/* a recheck asks for the rows that were not locked, also for the same row under another name */
	locked = find_locked(rel, &tid) != NULL && (slot == NULL || slot_of_level(estate, slot));
	if (locked || may_be_ours(buf, off))
	{
		fetch_any(rel, buf, off, limit, false, version, &result);
		if (result.skipped)
			return;				/* G1 */
		if (locked)
			return;				/* G2: nobody else can have changed it since */
	}
	if (estate != NULL && estate->es_snapshot != NULL && IsMVCCSnapshot(estate->es_snapshot))
	{
		zvis_fetch(rel, buf, off, estate->es_snapshot, version, NULL);
		if (version->found)
			return;				/* G3 */
	}
	fetch_any(rel, buf, off, InvalidCommandId, true, version, &result);
	if (result.own_bottom)
		return;					/* G4 */
	fetch_any(rel, buf, off, InvalidCommandId, false, version, &result);
}

static void
push_level(Level *level, EState *estate)
{
	level->outer = current_level;
	level->estate = estate;
	current_level = level;
}

static void
#if ZC_EXECUTOR_RUN_ONCE_ARG
executor_run(QueryDesc *query, ScanDirection direction, uint64 count, bool execute_once)
#else
executor_run(QueryDesc *query, ScanDirection direction, uint64 count)
#endif
{
	Level		level;

	push_level(&level, query->estate);
	PG_TRY();
	{
#if ZC_EXECUTOR_RUN_ONCE_ARG
		if (prev_executor_run)
			prev_executor_run(query, direction, count, execute_once);
		else
			standard_ExecutorRun(query, direction, count, execute_once);
#else
		if (prev_executor_run)
			prev_executor_run(query, direction, count);
		else
			standard_ExecutorRun(query, direction, count);
#endif
	}
	PG_FINALLY();
	{
		current_level = level.outer;
	}
	PG_END_TRY();
}

static void
executor_finish(QueryDesc *query)
{
	Level		level;

	push_level(&level, query->estate);
	PG_TRY();
	{
		if (prev_executor_finish)
			prev_executor_finish(query);
		else
			standard_ExecutorFinish(query);
	}
	PG_FINALLY();
	{
		current_level = level.outer;
	}
	PG_END_TRY();
}

static void
process_utility(PlannedStmt *pstmt, const char *query_string, bool read_only_tree,
				ProcessUtilityContext context, ParamListInfo params, QueryEnvironment *env,
				DestReceiver *dest, QueryCompletion *qc)
{
	Level		level;

	push_level(&level, NULL);
	PG_TRY();
	{
		if (prev_process_utility)
			prev_process_utility(pstmt, query_string, read_only_tree, context, params, env, dest, qc);
		else
			standard_ProcessUtility(pstmt, query_string, read_only_tree, context, params, env, dest, qc);
	}
	PG_FINALLY();
	{
		current_level = level.outer;
	}
	PG_END_TRY();
}

void
zany_install_hooks(void)
{
	prev_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = executor_run;
	prev_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = executor_finish;
	prev_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = process_utility;
}
