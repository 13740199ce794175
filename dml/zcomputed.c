/*
 * dml/zcomputed.c - whether an update changes what indexes with expressions or
 * predicates hold for the row (COMPUTED-1, COMPUTED-2).
 *
 * Expressions and predicates are evaluated on both rows, with no page locked,
 * since they run functions of the user. These may read and change zheap tables
 * themselves, also the row that is being updated: the caller begins again at
 * the page afterwards. What evaluating needs is kept for a table until the
 * transaction ends, in an evaluator.
 *
 *	COMPUTED-1	An index with expressions or a predicate (a computed index)
 *		needs no new entry in two cases. In both an update in place leaves the
 *		index entries of the TID correct for all versions of the row:
 *		- its predicate is true for neither row;
 *		- its predicate, if any, is true for both rows, and all its values are
 *		  the same for both, compared by datum_image_eq.
 *		A zbtree index of plain columns with a simple predicate is no computed
 *		index (ZBTREE-16). Example: with an index on lower(name), setting 'Ann'
 *		to 'ANN' moves no row.
 *	COMPUTED-2	Evaluating expressions and predicates runs functions of users,
 *		so the page is unlocked meanwhile. Then the update examines the row
 *		again from the start (DML-1). It uses the result of the evaluation only
 *		if the old row still has the bytes that were evaluated, and the column
 *		sets of the indexes have not been read anew. Otherwise it evaluates
 *		again; after MAX_EVALUATIONS attempts the row moves. Undo is reserved
 *		again, because changes that the functions made may have used the
 *		reservation.
 */
#include "postgres.h"

#include "access/genam.h"
#include "catalog/index.h"
#include "dml/zdml_internal.h"
#include "executor/executor.h"
#include "nodes/execnodes.h"
#include "nodes/nodeFuncs.h"
#include "storage/ipc.h"
#include "tuple/ztts.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* One index with expressions or a predicate. */
typedef struct Computed
{
	Oid			oid;
	Bitmapset  *attrs;			/* see ZComputedIndex */
	IndexInfo  *info;			/* NULL = not read yet */
	int16		typlen[INDEX_MAX_KEYS]; /* of the values of FormIndexDatum */
	bool		typbyval[INDEX_MAX_KEYS];
} Computed;

/* What evaluating the indexes of one table needs; all of it is in 'context'. */
typedef struct Evaluator
{
	struct Evaluator *next;
	Oid			reloid;
	uint64		reading;		/* of the ZIndexColumns that it was made from */
	bool		in_use;			/* a caller on the stack uses it */
	bool		complete;		/* no error was raised while it was in use */
	MemoryContext context;
	EState	   *estate;
	TupleTableSlot *oldslot;
	int			n;
	Computed	index[FLEXIBLE_ARRAY_MEMBER];
} Evaluator;

/*
 * How many evaluators are kept that no caller uses. One takes some 20 kB, so a
 * transaction that updates thousands of partitions must not keep one for each;
 * making one takes as long as a dozen updates.
 */
#define MAX_EVALUATORS		256

/* The transaction's evaluators, the one used last first. */
static Evaluator *evaluators = NULL;

/* Frees all evaluators that no caller uses, but the 'keep' used last. */
static void
free_evaluators(int keep)
{
	Evaluator **link = &evaluators;

	while (*link != NULL)
	{
		Evaluator  *e = *link;

		if (e->in_use || keep-- > 0)
		{
			link = &e->next;
			continue;
		}
		*link = e->next;
		MemoryContextDelete(e->context);
	}
}

/*
 * zcomputed_at_xact_end: See zdml.h. A session that is terminated does not
 * return to the callers on its stack.
 */
void
zcomputed_at_xact_end(void)
{
	free_evaluators(0);
	Assert(evaluators == NULL || proc_exit_inprogress);
}

/*
 * zcomputed_at_subxact_abort: See zdml.h. What functions keep between calls
 * may belong to the subtransaction, so its evaluators are not used again.
 * Those in use belong to callers on the stack, which are in an outer
 * subtransaction: an error that leaves a caller clears in_use.
 */
void
zcomputed_at_subxact_abort(void)
{
	free_evaluators(0);
}

/*
 * Fills in *c, in the current memory context. May run functions of the user,
 * since the server simplifies the expressions.
 */
static void
read_index(Relation rel, Computed *c)
{
	Relation	index = index_open(c->oid, AccessShareLock);
	ListCell   *expression;

	c->info = BuildIndexInfo(index);
	expression = list_head(c->info->ii_Expressions);
	for (int i = 0; i < c->info->ii_NumIndexAttrs; i++)
	{
		AttrNumber	attno = c->info->ii_IndexAttrNumbers[i];

		if (attno > 0)
		{
			Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), attno - 1);

			c->typlen[i] = att->attlen;
			c->typbyval[i] = att->attbyval;
		}
		else
		{
			Assert(attno == 0 && expression != NULL);
			get_typlenbyval(exprType(lfirst(expression)), &c->typlen[i], &c->typbyval[i]);
			expression = lnext(c->info->ii_Expressions, expression);
		}
	}
	index_close(index, AccessShareLock);
}

/*
 * Returns a new evaluator, in use and in the list. Runs no functions of the
 * user, so 'columns' stays valid.
 */
static Evaluator *
new_evaluator(Relation rel, const ZIndexColumns *columns)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "zheap index expressions",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext caller = MemoryContextSwitchTo(context);
	int			n = columns->ncomputed;
	Evaluator  *e = palloc0(offsetof(Evaluator, index) + n * sizeof(Computed));

	e->context = context;
	e->reloid = RelationGetRelid(rel);
	e->reading = columns->reading;
	e->n = n;
	for (int i = 0; i < n; i++)
	{
		e->index[i].oid = columns->computed[i].index;
		e->index[i].attrs = bms_copy(columns->computed[i].attrs);
	}
	/* a copy, which is not reference-counted: the evaluator outlives a query */
	e->oldslot = zc_make_slot(CreateTupleDescCopyConstr(RelationGetDescr(rel)), &TTSOpsZHeap);
	e->estate = CreateExecutorState();
	MemoryContextSwitchTo(caller);
	e->in_use = true;
	e->next = evaluators;
	evaluators = e;
	return e;
}

/*
 * Returns an evaluator for the indexes in columns, in use. There are two for a
 * table while a function that is being evaluated updates that table.
 */
static Evaluator *
get_evaluator(Relation rel, const ZIndexColumns *columns)
{
	Evaluator **link = &evaluators;

	while (*link != NULL)
	{
		Evaluator  *e = *link;

		if (e->in_use || e->reloid != RelationGetRelid(rel))
		{
			link = &e->next;
			continue;
		}
		*link = e->next;
		if (e->complete && e->reading == columns->reading)
		{
			e->next = evaluators;
			evaluators = e;
			e->in_use = true;
			return e;
		}
		MemoryContextDelete(e->context);
	}
	free_evaluators(MAX_EVALUATORS - 1);
	return new_evaluator(rel, columns);
}

/*
 * Returns whether the row in slot satisfies the index's predicate; true if it
 * has none.
 */
static bool
is_indexed(Evaluator *e, IndexInfo *info, TupleTableSlot *slot)
{
	ExprContext *econtext = GetPerTupleExprContext(e->estate);

	if (info->ii_Predicate == NIL)
		return true;
	if (info->ii_PredicateState == NULL)
		info->ii_PredicateState = ExecPrepareQual(info->ii_Predicate, e->estate);
	econtext->ecxt_scantuple = slot;
	return ExecQual(info->ii_PredicateState, econtext);
}

/*
 * Returns whether the index holds different values for the old row, which is in
 * e->oldslot, and for the new one. The new row comes first: if its evaluation
 * raises an error, that is the error that heap would raise.
 */
static bool
entry_differs(Evaluator *e, Computed *c, TupleTableSlot *newslot)
{
	ExprContext *econtext = GetPerTupleExprContext(e->estate);
	Datum		newvalue[INDEX_MAX_KEYS],
				oldvalue[INDEX_MAX_KEYS];
	bool		newnull[INDEX_MAX_KEYS],
				oldnull[INDEX_MAX_KEYS];
	bool		indexed = is_indexed(e, c->info, newslot);

	Assert(e->in_use && c->info != NULL);
	if (indexed != is_indexed(e, c->info, e->oldslot))
		return true;
	if (!indexed)
		return false;
	econtext->ecxt_scantuple = newslot;
	FormIndexDatum(c->info, newslot, e->estate, newvalue, newnull);
	econtext->ecxt_scantuple = e->oldslot;
	FormIndexDatum(c->info, e->oldslot, e->estate, oldvalue, oldnull);
	for (int i = 0; i < c->info->ii_NumIndexAttrs; i++)
	{
		if (newnull[i] != oldnull[i])
			return true;
		if (!newnull[i] &&
			!datum_image_eq(newvalue[i], oldvalue[i], c->typbyval[i], c->typlen[i]))
			return true;
	}
	return false;
}

/* Returns what zcomputed_differ returns. */
static int
evaluate(Evaluator *e, const ZUpdatedRow *row, TupleTableSlot *newslot)
{
	int			differing = -1;

	Assert(e->in_use && e->reloid == RelationGetRelid(row->rel));
	ztts_store_copy(e->oldslot, row->old, row->oldlen, row->tid, RelationGetRelid(row->rel));
	newslot->tts_tableOid = RelationGetRelid(row->rel);
	for (int i = 0; i < e->n && differing < 0; i++)
	{
		Computed   *c = &e->index[i];

		if (!zcolumns_differ(row, c->attrs))
			continue;
		if (c->info == NULL)
		{
			MemoryContext caller = MemoryContextSwitchTo(e->context);

			read_index(row->rel, c);
			MemoryContextSwitchTo(caller);
		}
		if (entry_differs(e, c, newslot))
			differing = i;
		ReScanExprContext(GetPerTupleExprContext(e->estate));
	}
	ExecClearTuple(e->oldslot);
	return differing;
}

/*
 * zcomputed_differ: See zdml_internal.h. An evaluator in whose use an error
 * was raised is not used again, because the state of its functions is unknown
 * then.
 */
int
zcomputed_differ(const ZUpdatedRow *row, const ZIndexColumns *columns, TupleTableSlot *newslot)
{
	Evaluator  *volatile e = get_evaluator(row->rel, columns);
	volatile int differing = -1;

	e->complete = false;
	zdml_nest();
	PG_TRY();
	{
		differing = evaluate(e, row, newslot);
		e->complete = true;
	}
	PG_FINALLY();
	{
		zdml_unnest();
		e->in_use = false;
	}
	PG_END_TRY();
	return differing;
}
