/*
 * zbtree/predicate.c - testing the predicate of a partial zbtree index for
 * single row versions.
 *
 * Owns: the backend's cache of predicates. Takes no locks; no crash points.
 *
 *	ZBTREE-16	(predicate) A predicate is *simple* if it consists of
 *		comparisons of plain columns with constants or with each other, of
 *		tests for NULL, TRUE and FALSE, and of AND, OR and NOT. The comparisons
 *		are operators of the server's btree operator classes for scalar types,
 *		their negators, IN and ANY.
 *		(a) An update in place may change whether its row satisfies a simple
 *			predicate. If the row does so only now, the update adds its entry,
 *			as for a new key (ZBTREE-6). If no longer, the entry becomes stale,
 *			and nothing is written to the index. Example, with WHERE n > 0: n =
 *			0 leaves a stale entry, n = 1 adds one or finds that one.
 *		(b) The planner leaves conditions that the predicate implies out of the
 *			plan, so all code that decides whether an entry belongs to a
 *			version tests the predicate of that version as well. zbtree_needed
 *			does so with a leaf page locked: a simple predicate calls no
 *			functions but those which nbtree calls under the same locks, so a
 *			session that reads the table runs no code of the table's owner. It
 *			reads no catalogs, because zpredicate_get has prepared it before
 *			the page was locked; without that the entry counts as needed.
 *		(c) A column that is stored out of line is not read: the predicate
 *			counts as satisfied then, because all versions of the TID have the
 *			same values in its columns (ZBTREE-3).
 *		(d) Any other predicate is true for all versions of a TID or for none,
 *			as far as they are as young as the index: an update that changes it
 *			moves the row (COMPUTED-1).
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "access/transam.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "common/compat.h"
#include "common/compat_commands.h"
#include "executor/executor.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "tuple/ztuple.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "zbtree/predicate.h"

struct ZPredicate
{
	ZPredicate *next;			/* of those that are out of date */
	MemoryContext context;		/* has all that belongs to it */
	ExprState  *state;			/* NULL: always true */
	ExprContext *econtext;
	TupleTableSlot *slot;		/* a row of the table with the columns that
								 * the predicate reads */
	int			ncolumns;
	AttrNumber	columns[FLEXIBLE_ARRAY_MEMBER];
};

/* An element of the cache: an index that has a predicate. */
typedef struct CachedPredicate
{
	Oid			index;
	bool		complete;		/* predicate has been made */
	bool		outdated;		/* the relation has changed since it was made,
								 * or meanwhile */
	ZPredicate *predicate;		/* NULL: it is not simple */
} CachedPredicate;

/* The predicates that this backend has met. */
typedef struct PredicateCache
{
	HTAB	   *table;			/* of CachedPredicate; NULL: empty */
	bool		some_outdated;	/* elements */
	ZPredicate *replaced;		/* freed at the end of the transaction, since
								 * callers may have pointers to them */
} PredicateCache;

static PredicateCache cache;

/*
 * Returns the predicate as the catalog has it. The relcache's is simplified,
 * which may run functions of the user.
 */
static Node *
stored_predicate(Relation index)
{
	HeapTuple	form = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(RelationGetRelid(index)));
	Node	   *tree = NULL;
	bool		isnull;
	Datum		stored;

	if (!HeapTupleIsValid(form))
		elog(ERROR, "cache lookup failed for index %u", RelationGetRelid(index));
	stored = SysCacheGetAttr(INDEXRELID, form, Anum_pg_index_indpred, &isnull);
	if (!isnull)
		tree = stringToNode(TextDatumGetCString(stored));
	ReleaseSysCache(form);
	return tree;
}

/*
 * Returns whether the operator is a comparison of scalars: one of a btree
 * operator class of the server, or the negator of one. Comparisons of arrays,
 * ranges and records do not count, as they call functions of other types.
 */
static bool
compares_scalars(Oid operator)
{
	Oid			left,
				right;

	if (get_opcode(operator) >= FirstGenbkiObjectId)
		return false;
	op_input_types(operator, &left, &right);
	if ((IsPolymorphicType(left) && left != ANYENUMOID) || left == RECORDOID ||
		(IsPolymorphicType(right) && right != ANYENUMOID) || right == RECORDOID)
		return false;
	return zc_op_is_comparison(operator);
}

/*
 * Returns true if the expression is not simple (ZBTREE-16). Calls of functions
 * are allowed in constant parts, which are evaluated once, in zpredicate_get:
 * mostly casts of literals.
 */
static bool
is_complex(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Var:
			if (((Var *) node)->varattno <= 0)
				return true;
			break;
		case T_NullTest:
			if (((NullTest *) node)->argisrow)
				return true;
			break;
		case T_OpExpr:
		case T_DistinctExpr:
			if (!compares_scalars(((OpExpr *) node)->opno))
				return true;
			break;
		case T_ScalarArrayOpExpr:
			if (!compares_scalars(((ScalarArrayOpExpr *) node)->opno))
				return true;
			break;
		case T_FuncExpr:
			if (((FuncExpr *) node)->funcid >= FirstGenbkiObjectId || contain_var_clause(node))
				return true;
			break;
		case T_ArrayExpr:
		case T_ArrayCoerceExpr:
			if (contain_var_clause(node))
				return true;
			break;
		case T_Const:
		case T_CaseTestExpr:	/* within an ArrayCoerceExpr */
		case T_List:
		case T_BoolExpr:
		case T_BooleanTest:
		case T_RelabelType:
		case T_CollateExpr:
			break;
		default:
			return true;
	}
	return expression_tree_walker(node, is_complex, context);
}

bool
zpredicate_is_simple(Relation index)
{
	return zpredicate_exists(index) && !is_complex(stored_predicate(index), NULL);
}

Bitmapset *
zpredicate_columns(Relation index)
{
	Bitmapset  *columns = NULL;

	pull_varattnos(stored_predicate(index), 1, &columns);
	return columns;
}

/* Callback of the relcache: relid has changed, or any relation if invalid. */
static void
relcache_changed(Datum arg, Oid relid)
{
	CachedPredicate *cached;
	HASH_SEQ_STATUS status;

	if (OidIsValid(relid))
	{
		cached = hash_search(cache.table, &relid, HASH_FIND, NULL);
		if (cached != NULL)
			cached->outdated = cache.some_outdated = true;
		return;
	}
	hash_seq_init(&status, cache.table);
	while ((cached = hash_seq_search(&status)) != NULL)
		cached->outdated = cache.some_outdated = true;
}

/*
 * Returns the index's predicate, in a memory context of its own below the
 * caller's; NULL if it is not simple.
 */
static ZPredicate *
make_predicate(Relation index)
{
	MemoryContext context;
	MemoryContext caller;
	Relation	table;
	Bitmapset  *columns;
	ZPredicate *p;
	int			i = -1;

	if (!zpredicate_is_simple(index))
		return NULL;
	context = AllocSetContextCreate(CurrentMemoryContext, "zheap index predicate",
									ALLOCSET_SMALL_SIZES);
	caller = MemoryContextSwitchTo(context);
	columns = zpredicate_columns(index);
	p = palloc0(offsetof(ZPredicate, columns) + bms_num_members(columns) * sizeof(AttrNumber));
	p->context = context;
	while ((i = bms_next_member(columns, i)) >= 0)
		p->columns[p->ncolumns++] = i + FirstLowInvalidHeapAttributeNumber;
	p->state = ExecInitQual(RelationGetIndexPredicate(index), NULL);
	p->econtext = CreateStandaloneExprContext();
	table = RelationIdGetRelation(index->rd_index->indrelid);
	p->slot = zc_make_slot(CreateTupleDescCopy(RelationGetDescr(table)), &TTSOpsVirtual);
	RelationClose(table);
	ExecStoreAllNullTuple(p->slot);
	p->econtext->ecxt_scantuple = p->slot;
	MemoryContextSwitchTo(caller);
	return p;
}

/* Returns the cached element of the index, or NULL. */
static CachedPredicate *
find_cached(Relation index)
{
	Oid			oid = RelationGetRelid(index);

	return cache.table == NULL ? NULL : hash_search(cache.table, &oid, HASH_FIND, NULL);
}

/* Returns a new element of the cache for the index. */
static CachedPredicate *
add_cached(Relation index)
{
	Oid			oid = RelationGetRelid(index);
	CachedPredicate *cached;

	if (cache.table == NULL)
	{
		HASHCTL		ctl = {.keysize = sizeof(Oid),.entrysize = sizeof(CachedPredicate),
		.hcxt = CacheMemoryContext};

		cache.table = hash_create("zheap index predicates", 16, &ctl,
								  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
		CacheRegisterRelcacheCallback(relcache_changed, (Datum) 0);
	}
	cached = hash_search(cache.table, &oid, HASH_ENTER, NULL);
	cached->complete = false;
	cached->predicate = NULL;
	return cached;
}

/*
 * zpredicate_get: See predicate.h. Reads the catalogs if the cache has nothing
 * for the index, or something outdated. After an invalidation or an error
 * while it reads, the next call reads again.
 */
ZPredicate *
zpredicate_get(Relation index)
{
	CachedPredicate *cached;
	ZPredicate *made;

	if (!zpredicate_exists(index))
		return NULL;
	cached = find_cached(index);
	if (cached != NULL && cached->complete && !cached->outdated)
		return cached->predicate;
	if (cached == NULL)
		cached = add_cached(index);
	cached->complete = false;
	cached->outdated = false;
	made = make_predicate(index);
	if (made != NULL)
		MemoryContextSetParent(made->context, CacheMemoryContext);
	if (cached->predicate != NULL)
	{
		cached->predicate->next = cache.replaced;
		cache.replaced = cached->predicate;
	}
	cached->predicate = made;
	cached->complete = true;
	return made;
}

bool
zpredicate_find(Relation index, ZPredicate **predicate)
{
	CachedPredicate *cached;

	*predicate = NULL;
	if (!zpredicate_exists(index))
		return true;
	cached = find_cached(index);
	if (cached == NULL || (!cached->complete && cached->predicate == NULL))
		return false;
	*predicate = cached->predicate;
	return true;
}

/* Evaluates the predicate for the row in p->slot. */
static bool
evaluate(ZPredicate *p)
{
	bool		holds = ExecQual(p->state, p->econtext);

	ResetExprContext(p->econtext);
	return holds;
}

/*
 * Puts a value into p->slot. Returns false if it is stored out of line.
 */
static inline bool
take_value(ZPredicate *p, AttrNumber column, Datum value, bool isnull)
{
	Assert(column > 0 && column <= p->slot->tts_nvalid);	/* ZBTREE-16 */
	if (!isnull && zc_attr(p->slot->tts_tupleDescriptor, column - 1)->attlen == -1 &&
		VARATT_IS_EXTERNAL(DatumGetPointer(value)))
		return false;
	p->slot->tts_values[column - 1] = value;
	p->slot->tts_isnull[column - 1] = isnull;
	return true;
}

bool
zpredicate_holds(ZPredicate *predicate, TupleTableSlot *slot)
{
	if (predicate == NULL)
		return true;
	for (int i = 0; i < predicate->ncolumns; i++)
	{
		bool		isnull;
		Datum		value = slot_getattr(slot, predicate->columns[i], &isnull);

		if (!take_value(predicate, predicate->columns[i], value, isnull))
			return true;
	}
	return evaluate(predicate);
}

bool
zpredicate_holds_in(ZPredicate *predicate, Relation table, const char *row, Size len)
{
	if (predicate == NULL)
		return true;
	for (int i = 0; i < predicate->ncolumns; i++)
	{
		bool		isnull;
		Datum		value = ztuple_getattr(row, len, RelationGetDescr(table),
										   predicate->columns[i], &isnull,
										   RelationGetRelationName(table), NULL);

		if (!take_value(predicate, predicate->columns[i], value, isnull))
			return true;
	}
	return evaluate(predicate);
}

void
zpredicate_at_xact_end(void)
{
	CachedPredicate *cached;
	HASH_SEQ_STATUS status;

	while (cache.replaced != NULL)
	{
		ZPredicate *p = cache.replaced;

		cache.replaced = p->next;
		MemoryContextDelete(p->context);
	}
	if (!cache.some_outdated)
		return;
	cache.some_outdated = false;
	hash_seq_init(&status, cache.table);
	while ((cached = hash_seq_search(&status)) != NULL)
	{
		if (!cached->outdated)
			continue;
		if (cached->predicate != NULL)
			MemoryContextDelete(cached->predicate->context);
		hash_search(cache.table, &cached->index, HASH_REMOVE, NULL);
	}
}
