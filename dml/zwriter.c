/*
 * dml/zwriter.c - what every change of rows begins with: the transaction that
 * makes it, and whether the change is logged for logical decoding. Called by
 * dml/.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/catalog.h"
#include "dml/zdml_internal.h"
#include "rollback/zrollback.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "tuple/ztts.h"
#include "undo/undo_temp.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define MAX_KEPT_SCRATCH (128 * 1024)

ZDmlSpace	zdml_space;

/*
 * zwriter_is_decoded: See zdml_internal.h. From 19 on the server may turn
 * logical logging on or off while transactions are running, but not for those
 * that have an id already.
 */
bool
zwriter_is_decoded(Relation rel)
{
	Assert(TransactionIdIsValid(GetCurrentTransactionIdIfAny()));
	return RelationIsLogicallyLogged(rel);
}

void
zwriter_begin_change(ZWriter *writer, Relation rel, CommandId cid, bool no_logical)
{
	zwriter_open(writer, rel, cid);
	zwriter_start(writer);
	writer->decoded = !no_logical && zwriter_is_decoded(rel);
}

/*
 * zwriter_open: See zdml_internal.h. Attaching to the undo log may wait until
 * it is loaded, and aborted changes of temporary tables may have to be undone
 * first. Both must happen before any page is locked.
 */
void
zwriter_open(ZWriter *writer, Relation rel, CommandId cid)
{
	if (RELATION_IS_OTHER_TEMP(rel))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot access temporary tables of other sessions")));
	zu_attach_for_table();
	zcount_table(rel);
	writer->rel = rel;
	writer->xid = InvalidZXid;
	writer->topxid = InvalidZXid;
	writer->cid = cid;
	writer->logged = RelationNeedsWAL(rel);
	writer->decoded = false;
	writer->overflow = InvalidBlockNumber;
	writer->temp = (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP);
	if (unlikely(writer->temp))
		zrollback_temp();
}

/*
 * zwriter_start: See zdml_internal.h. An older transaction is refused because
 * its changes would count as committed at once.
 */
void
zwriter_start(ZWriter *writer)
{
	Assert(CheckRelationLockedByMe(writer->rel, AccessShareLock, true));
	zu_attach_for_change();
	writer->xid = zxid_from_full(GetCurrentFullTransactionId());
	writer->topxid = zxid_from_full(GetTopFullTransactionId());
	if (unlikely(writer->topxid < zu_oldest()))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("transaction " UINT64_FORMAT " is too old to change zheap tables",
						writer->topxid),
				 errdetail("The undo log takes every transaction before " UINT64_FORMAT
						   " for committed, so changes could not be rolled back.", zu_oldest()),
				 errhint("Roll back the transaction and retry it.")));
	zwriter_reserve(writer);
}

void
zwriter_begin(ZWriter *writer, Relation rel, CommandId cid)
{
	zwriter_open(writer, rel, cid);
	zwriter_start(writer);
}

void
zwriter_reserve(const ZWriter *writer)
{
	Assert(writer->xid != InvalidZXid);
	zcount_table(writer->rel);	/* again, after functions of the user */
	if (likely(!writer->temp))
		zu_op_reserve();
	else
		zu_temp_reserve(writer->rel);
}

/*
 * Memory for row changes, for each depth of nesting; it is kept for the next
 * change while it is small. A row change can run within another one of the same
 * backend in two places only: within the evaluation by zcomputed_differ, and
 * within the comparison functions that zcolumns_add_keys calls. (The changes of
 * chunks by the toaster use no memory of these.)
 */
static struct
{
	int			depth;			/* of what is running now; 0 = not nested */
	int			n;				/* contexts that exist */
	int			size;			/* of the array */
	MemoryContext *context;
}			scratch;

/* Makes contexts up to the present depth. */
static void
make_scratch(void)
{
	if (scratch.depth >= scratch.size)
	{
		int			size = Max(4, 2 * scratch.size);

		if (scratch.context == NULL)
			scratch.context = MemoryContextAlloc(TopMemoryContext, size * sizeof(MemoryContext));
		else
			scratch.context = repalloc(scratch.context, size * sizeof(MemoryContext));
		scratch.size = size;
	}
	while (scratch.n <= scratch.depth)
	{
		scratch.context[scratch.n] = AllocSetContextCreate(TopMemoryContext, "zheap row changes",
														   ALLOCSET_DEFAULT_SIZES);
		scratch.n++;
	}
}

MemoryContext
zdml_scratch(void)
{
	if (unlikely(scratch.depth >= scratch.n))
		make_scratch();
	else if (!scratch.context[scratch.depth]->isReset ||
			 scratch.context[scratch.depth]->firstchild != NULL)
		MemoryContextReset(scratch.context[scratch.depth]);
	return scratch.context[scratch.depth];
}

/*
 * zdml_nest: See zdml_internal.h. The depth is bounded by the size of the
 * stack, which the server checks.
 */
void
zdml_nest(void)
{
	scratch.depth++;
}

void
zdml_unnest(void)
{
	Assert(scratch.depth > 0);
	scratch.depth--;
}

/* Empties a scratch context if a wide row or an error has left much in it. */
static void
trim_scratch(int depth)
{
	if (depth < scratch.n && !scratch.context[depth]->isReset &&
		MemoryContextMemAllocated(scratch.context[depth], false) > MAX_KEPT_SCRATCH)
		MemoryContextReset(scratch.context[depth]);
}

void
zdml_leave(MemoryContext caller)
{
	MemoryContextSwitchTo(caller);
	trim_scratch(scratch.depth);
}

/*
 * zdml_at_xact_end: See zdml.h. An error skips zdml_leave. Contexts of nested
 * changes are seldom needed. A session that is terminated skips zdml_unnest,
 * too.
 */
void
zdml_at_xact_end(void)
{
	Assert(scratch.depth == 0 || proc_exit_inprogress);
	scratch.depth = 0;
	trim_scratch(0);
	while (scratch.n > 1)
		MemoryContextDelete(scratch.context[--scratch.n]);
	zknown_forget();
}

/*
 * zwriter_record: See zdml_internal.h. The record's place and the fields of
 * its type are left to the caller.
 */
void
zwriter_record(const ZWriter *writer, ZuRecord *rec, ZuRecordType type, BlockNumber block,
			   OffsetNumber off, UndoPtr prev)
{
	Assert(writer->xid != InvalidZXid && writer->topxid <= writer->xid);
	Assert((off & ZTID_NEWER) == 0);	/* GUARD-4 */
	memset(rec, 0, sizeof(*rec));
	rec->type = type;
	if (writer->temp)
		rec->xflags = ZUX_TEMP;
	else if (unlikely(!writer->logged) &&
			 writer->rel->rd_rel->relpersistence == RELPERSISTENCE_UNLOGGED)
		rec->xflags = ZUX_UNLOGGED;
	rec->xid = writer->xid;
	rec->topxid = writer->topxid;
	rec->reloid = RelationGetRelid(writer->rel);
	rec->relnumber = writer->rel->rd_locator.relNumber;
	rec->block = block;
	rec->offset = off;
	rec->cid = writer->cid;
	rec->prev = prev;
	rec->nrows = 1;
}
