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
 *	G2	the version that this level locked with tuple_lock.
 *	G3	the version visible to the level's snapshot.
 *	G4	the row of an own insertion at the bottom of the chain.
 *	G5	the newest own or committed version, deleted or not.
 * A version that another transaction has not committed is never returned.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/execdesc.h"
#include "executor/executor.h"
#include "mvcc/zwalk.h"
#include "nodes/execnodes.h"
#include "tcop/utility.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* One executor level; lives on the C stack of its hook. */
typedef struct Level
{
	struct Level *outer;
	EState	   *estate;			/* NULL for a utility command */
} Level;

typedef struct LockedKey
{
	Oid			reloid;
	ItemPointerData tid;
} LockedKey;

/* A version locked by a level: named by its writer, or by "settled" if the writer is visible to all. */
typedef struct LockedRow
{
	LockedKey	key;
	UndoPtr		writer;
} LockedRow;

typedef struct LockedTable
{
	struct LockedTable *next;
	EState	   *estate;
	HTAB	   *rows;
	MemoryContextCallback callback;
} LockedTable;

static Level *current_level = NULL;
static LockedTable *locked_tables = NULL;

static ExecutorRun_hook_type prev_executor_run = NULL;
static ExecutorFinish_hook_type prev_executor_finish = NULL;
static ProcessUtility_hook_type prev_process_utility = NULL;

/* The query's memory goes: forget its table. */
static void
forget_table(void *arg)
{
	LockedTable **link = &locked_tables;

	while (*link != NULL)
	{
		if (*link == arg)
		{
			*link = (*link)->next;
			return;
		}
		link = &(*link)->next;
	}
}

static HTAB *
locked_rows(EState *estate, bool create)
{
	LockedTable *table;
	HASHCTL		ctl = {0};

	for (table = locked_tables; table != NULL; table = table->next)
		if (table->estate == estate)
			return table->rows;
	if (!create)
		return NULL;
	ctl.keysize = sizeof(LockedKey);
	ctl.entrysize = sizeof(LockedRow);
	ctl.hcxt = estate->es_query_cxt;
	table = MemoryContextAllocZero(estate->es_query_cxt, sizeof(LockedTable));
	table->estate = estate;
	table->rows = hash_create("zheap rows locked by a query", 64, &ctl,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	table->callback.func = forget_table;
	table->callback.arg = table;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &table->callback);
	table->next = locked_tables;
	locked_tables = table;
	return table->rows;
}

static LockedKey
locked_key(Relation rel, ItemPointer tid)
{
	LockedKey	key;

	memset(&key, 0, sizeof(key));
	key.reloid = RelationGetRelid(rel);
	key.tid = *tid;
	return key;
}

void
zany_note_locked(Relation rel, ItemPointer tid, const ZRowWriter *writer)
{
	EState	   *estate = current_level ? current_level->estate : NULL;
	LockedKey	key = locked_key(rel, tid);
	LockedRow  *row;

	if (estate == NULL)
		return;
	row = hash_search(locked_rows(estate, true), &key, HASH_ENTER, NULL);
	row->writer = writer->ptr;
}

bool
zany_is_locked(Relation rel, ItemPointer tid, const ZRowWriter *writer)
{
	EState	   *estate = current_level ? current_level->estate : NULL;
	LockedKey	key = locked_key(rel, tid);
	HTAB	   *rows;
	LockedRow  *row;

	if (estate == NULL || (rows = locked_rows(estate, false)) == NULL)
		return false;
	row = hash_search(rows, &key, HASH_FIND, NULL);
	return row != NULL && row->writer == writer->ptr;
}

/* Is the row locked by this level at all? */
static bool
has_locked(Relation rel, ItemPointer tid)
{
	EState	   *estate = current_level ? current_level->estate : NULL;
	LockedKey	key = locked_key(rel, tid);
	HTAB	   *rows;

	if (estate == NULL || (rows = locked_rows(estate, false)) == NULL)
		return false;
	return hash_search(rows, &key, HASH_FIND, NULL) != NULL;
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

			result = xid >= zu_oldest() && zxid_is_ours(xid);
		}
	}
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	return result;
}

void
zany_fetch(Relation rel, Buffer buf, OffsetNumber off, ZVersion *version)
{
	EState	   *estate = current_level ? current_level->estate : NULL;
	CommandId	limit = estate ? estate->es_output_cid : GetCurrentCommandId(false);
	AnyResult	result;
	ItemPointerData tid;
	bool		locked;

	if (estate != NULL && limit == 0 && estate->es_result_relations == NULL)
		limit = InvalidCommandId;	/* a query that writes nothing, as in parallel workers */
	ItemPointerSet(&tid, BufferGetBlockNumber(buf), off);
	locked = has_locked(rel, &tid);
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
