/*
 * dml/zcolumns.c - which columns the indexes of a table depend on, and whether
 * an update changes them.
 *
 * The column sets are computed once per table and backend, and kept until the
 * relcache entry of the table is invalidated. If an invalidation arrives while
 * the sets are being computed, the current update still uses them: the
 * executor's list of the table's indexes is as old as they are. The next update
 * computes them again.
 *
 * Takes AccessShareLock on each index of a table whose columns it reads. No
 * page is locked then.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/sysattr.h"
#include "catalog/pg_index.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "common/zcount.h"
#include "dml/zdml_internal.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "zbtree/predicate.h"
#include "zbtree/zbtree.h"

#define CACHE_SIZE 64			/* direct-mapped by OID */

/*
 * If the values of an index differed in the last MAX_VAIN evaluations, its
 * expressions are not evaluated for the next SKIP_AFTER_VAIN updates of its
 * columns: these move the row. So for an index whose values change with nearly
 * every update, such as one for full text search, an update costs an eighth of
 * an evaluation more than on heap, instead of two. Each session counts for
 * itself.
 */
#define MAX_VAIN 8
#define SKIP_AFTER_VAIN 15

/* The column sets of this backend. */
typedef struct ColumnsCache
{
	bool		registered;		/* the callback of the relcache */
	uint64		readings;		/* source of ZIndexColumns.reading */
	ZIndexColumns tables[CACHE_SIZE];
} ColumnsCache;

static ColumnsCache cache;

/* Frees the entry's column sets and makes it empty. */
static void
forget(ZIndexColumns *entry)
{
	bms_free(entry->key);
	bms_free(entry->identity);
	bms_free(entry->blocking);
	bms_free(entry->plain);
	bms_free(entry->keyed);
	bms_free(entry->entered);
	for (int i = 0; i < entry->nkeyed; i++)
	{
		bms_free(entry->keyed_index[i].attrs);
		bms_free(entry->keyed_index[i].included);
	}
	if (entry->keyed_index != NULL)
		pfree(entry->keyed_index);
	for (int i = 0; i < entry->nplain; i++)
		bms_free(entry->plain_index[i].attrs);
	if (entry->plain_index != NULL)
		pfree(entry->plain_index);
	for (int i = 0; i < entry->ncomputed; i++)
	{
		bms_free(entry->computed[i].attrs);
		bms_free(entry->computed[i].plain);
	}
	if (entry->computed != NULL)
		pfree(entry->computed);
	bms_free(entry->summarized);
	bms_free(entry->foreign);
	memset(entry, 0, sizeof(*entry));
}

/*
 * Marks the cached columns of relid outdated, or all of them if relid is
 * invalid. Callback of the relcache. The sets are not freed here, since a row
 * change may be using them.
 */
static void
relcache_changed(Datum arg, Oid relid)
{
	for (int i = 0; i < CACHE_SIZE; i++)
		if (!OidIsValid(relid) || cache.tables[i].reloid == relid)
			cache.tables[i].outdated = true;
}

/*
 * Returns a copy, in CacheMemoryContext, of one of the relcache's column sets.
 */
static Bitmapset *
keep(Relation rel, IndexAttrBitmapKind kind)
{
	Bitmapset  *attrs = RelationGetIndexAttrBitmap(rel, kind);
	MemoryContext old = MemoryContextSwitchTo(CacheMemoryContext);
	Bitmapset  *copy = bms_copy(attrs);

	MemoryContextSwitchTo(old);
	bms_free(attrs);
	return copy;
}

/*
 * Adds the columns that the index's expressions or predicate read to *attrs,
 * and their cost to *cost. which is Anum_pg_index_indexprs or
 * Anum_pg_index_indpred. Returns whether the index has any. Reads the
 * expression trees from the catalog, since the relcache simplifies them first,
 * which may run functions of the user.
 */
static bool
look_at_tree(HeapTuple form, AttrNumber which, Bitmapset **attrs, QualCost *cost)
{
	bool		isnull;
	Datum		stored = SysCacheGetAttr(INDEXRELID, form, which, &isnull);
	QualCost	more;
	char	   *string;
	Node	   *tree;

	if (isnull)
		return false;
	string = TextDatumGetCString(stored);
	tree = stringToNode(string);
	pull_varattnos(tree, 1, attrs);
	if (IsA(tree, List))
		cost_qual_eval(&more, (List *) tree, NULL);
	else
		cost_qual_eval_node(&more, tree, NULL);
	cost->startup += more.startup;
	cost->per_tuple += more.per_tuple;
	return true;
}

/*
 * Adds an index that is not in entry->keyed_index: to entry->computed if it has
 * expressions or a predicate and is valid, otherwise to entry->plain_index, and
 * those of its columns to entry->plain that an in-place update must not change.
 */
static void
look_at_index(Relation index, ZIndexColumns *entry)
{
	Form_pg_index form = index->rd_index;
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(RelationGetRelid(index)));
	Bitmapset  *columns = NULL;
	Bitmapset  *computed = NULL;
	Bitmapset  *plain;
	QualCost	cost = {0, 0};
	bool		partial;
	bool		expressions;
	MemoryContext old;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for index %u", RelationGetRelid(index));
	for (int i = 0; i < form->indnatts; i++)
		if (form->indkey.values[i] != 0)
			columns = bms_add_member(columns,
									 form->indkey.values[i] - FirstLowInvalidHeapAttributeNumber);
	expressions = look_at_tree(tuple, Anum_pg_index_indexprs, &computed, &cost);
	partial = look_at_tree(tuple, Anum_pg_index_indpred, &computed, &cost);
	ReleaseSysCache(tuple);

	old = MemoryContextSwitchTo(CacheMemoryContext);
	if ((expressions || partial) && form->indisvalid)
	{
		ZComputedIndex *c = &entry->computed[entry->ncomputed];

		c->index = RelationGetRelid(index);
		c->attrs = bms_union(computed, partial ? columns : NULL);
		c->plain = plain = partial ? NULL : bms_copy(columns);
		if (cpu_operator_cost > 0)
			c->cost = (cost.startup + cost.per_tuple) / cpu_operator_cost;
		entry->ncomputed++;
	}
	else
	{
		/*
		 * Expressions of an index that is not valid are not evaluated: they
		 * may raise an error for the old row, which may never have been
		 * entered. A change of their columns moves the row.
		 */
		plain = bms_union(columns, computed);
		entry->plain_index[entry->nplain++] = (ZIndexAttrs)
		{
			RelationGetRelid(index), plain, NULL
		};
	}
	entry->plain = bms_add_members(entry->plain, plain);
	MemoryContextSwitchTo(old);
	bms_free(columns);
	bms_free(computed);
}

/*
 * Adds the index to entry->keyed_index, the indexes to which an in-place update
 * adds entries, and all of its columns to entry->entered. An in-place update
 * may change its included columns as well: scans return those of the row
 * (ZBTREE-14). It may also change whether the row satisfies the predicate, and
 * so add the row's first entry, or make its only one stale (ZBTREE-16).
 */
static void
look_at_keys(Relation index, ZIndexColumns *entry)
{
	Bitmapset  *tested = zpredicate_exists(index) ? zpredicate_columns(index) : NULL;
	MemoryContext old = MemoryContextSwitchTo(CacheMemoryContext);
	ZIndexAttrs *k = &entry->keyed_index[entry->nkeyed];
	int			natts = IndexRelationGetNumberOfAttributes(index);

	for (int i = 0; i < natts; i++)
	{
		int			attno = index->rd_index->indkey.values[i] - FirstLowInvalidHeapAttributeNumber;

		entry->entered = bms_add_member(entry->entered, attno);
		if (i < IndexRelationGetNumberOfKeyAttributes(index))
			k->attrs = bms_add_member(k->attrs, attno);
		else
			k->included = bms_add_member(k->included, attno);
	}
	k->attrs = bms_add_members(k->attrs, tested);
	k->index = RelationGetRelid(index);
	entry->nkeyed++;
	entry->keyed = bms_add_members(entry->keyed, k->attrs);
	MemoryContextSwitchTo(old);
}

/*
 * Adds to entry->plain those blocking columns, of the relcache's set, on which
 * no index of the table's list depends. Normally there are none; there are if
 * the indexes changed between the reading of the set and of the list.
 */
static void
add_unknown(ZIndexColumns *entry)
{
	Bitmapset  *unknown = bms_difference(entry->blocking, entry->entered);
	MemoryContext old;

	unknown = bms_del_members(unknown, entry->keyed);
	unknown = bms_del_members(unknown, entry->plain);
	for (int i = 0; i < entry->ncomputed; i++)
		unknown = bms_del_members(unknown, entry->computed[i].attrs);
	old = MemoryContextSwitchTo(CacheMemoryContext);
	entry->plain = bms_add_members(entry->plain, unknown);
	MemoryContextSwitchTo(old);
	bms_free(unknown);
}

/*
 * Fills in plain, plain_index, computed, keyed, entered and keyed_index of the
 * entry, from the indexes of rel. Summarizing indexes are left out.
 */
static void
look_at_indexes(Relation rel, ZIndexColumns *entry)
{
	List	   *list = RelationGetIndexList(rel);
	ListCell   *lc;

	Assert(entry->reloid == RelationGetRelid(rel));
	if (list != NIL)
	{
		entry->computed = MemoryContextAllocZero(CacheMemoryContext,
												 list_length(list) * sizeof(ZComputedIndex));
		entry->keyed_index = MemoryContextAllocZero(CacheMemoryContext,
													list_length(list) * sizeof(ZIndexAttrs));
		entry->plain_index = MemoryContextAllocZero(CacheMemoryContext,
													list_length(list) * sizeof(ZIndexAttrs));
	}
	foreach(lc, list)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (zbtree_keys_stay(index))
			look_at_keys(index, entry);
		else if (!zc_index_summarizes(index))
			look_at_index(index, entry);
		index_close(index, AccessShareLock);
	}
	list_free(list);
	add_unknown(entry);
}

/*
 * Fills in blocking_last and blocking_end of the entry. A column's length does
 * not change as long as rows of it are in the table.
 */
static void
measure_blocking(Relation rel, ZIndexColumns *entry)
{
	TupleDesc	desc = RelationGetDescr(rel);
	int			last;

	if (entry->blocking == NULL ||
		bms_next_member(entry->blocking, -1) + FirstLowInvalidHeapAttributeNumber <= 0 ||
		!bms_is_subset(entry->keyed, entry->blocking) ||
		!bms_is_subset(entry->entered, entry->blocking))
		return;
	last = bms_prev_member(entry->blocking, -1) + FirstLowInvalidHeapAttributeNumber;
	for (int i = 0; i < last; i++)
		if (zc_attr(desc, i)->attlen <= 0)
			return;
	entry->blocking_last = last;
	entry->blocking_end = ZTUPLE_HEADER_SIZE;
	for (int i = 0; i < last; i++)
		entry->blocking_end += zc_attr(desc, i)->attlen;
}

/*
 * Fills in which kinds of AFTER UPDATE row triggers the relation has, and, if
 * it has any, the columns of its foreign keys.
 */
static void
look_at_triggers(Relation rel, ZIndexColumns *entry)
{
	TriggerDesc *desc = rel->trigdesc;
	MemoryContext old;
	ListCell   *lc;

	if (desc == NULL || !desc->trig_update_after_row)
		return;
	for (int i = 0; i < desc->numtriggers; i++)
	{
		Trigger    *trigger = &desc->triggers[i];

		if (!TRIGGER_TYPE_MATCHES(trigger->tgtype, TRIGGER_TYPE_ROW, TRIGGER_TYPE_AFTER,
								  TRIGGER_TYPE_UPDATE))
			continue;
		switch (RI_FKey_trigger_type(trigger->tgfoid))
		{
			case RI_TRIGGER_PK:
				entry->referenced = true;
				break;
			case RI_TRIGGER_FK:
				break;
			default:

				/*
				 * The trigger of a deferrable unique constraint is queued
				 * only if the update inserts into the index.
				 */
				if (trigger->tgfoid == F_UNIQUE_KEY_RECHECK)
					entry->rechecked = true;
				else
					entry->after_update = true;
				break;
		}
	}
	old = MemoryContextSwitchTo(CacheMemoryContext);
	foreach(lc, RelationGetFKeyList(rel))
	{
		ForeignKeyCacheInfo *info = lfirst(lc);

		for (int i = 0; i < info->nkeys; i++)
			entry->foreign = bms_add_member(entry->foreign,
											info->conkey[i] - FirstLowInvalidHeapAttributeNumber);
	}
	MemoryContextSwitchTo(old);
}

/*
 * zcolumns_event: See zdml_internal.h. May return true for an update whose
 * event the server does not queue, which only costs memory for a note of the
 * change. It must not return false for one whose event is queued: its OLD row
 * could not be found.
 */
bool
zcolumns_event(const ZIndexColumns *columns, bool key_change, bool foreign_change, bool own)
{
	return columns->after_update || (columns->referenced && key_change) ||
		(columns->foreign != NULL && (foreign_change || own));
}

/*
 * zindex_columns: See zdml_internal.h. An error while the sets are being read
 * leaves the entry incomplete, and the next call reads them again.
 */
const ZIndexColumns *
zindex_columns(Relation rel)
{
	ZIndexColumns *entry = &cache.tables[RelationGetRelid(rel) % CACHE_SIZE];

	if (entry->reloid == RelationGetRelid(rel) && entry->complete && !entry->outdated)
		return entry;
	if (!cache.registered)
	{
		CacheRegisterRelcacheCallback(relcache_changed, (Datum) 0);
		cache.registered = true;
	}
	forget(entry);

	/*
	 * From here on the relcache callback finds the entry. The callback may be
	 * called during each of the following catalog reads.
	 */
	entry->reloid = RelationGetRelid(rel);
	entry->reading = ++cache.readings;
	entry->key = keep(rel, INDEX_ATTR_BITMAP_KEY);
	entry->identity = keep(rel, INDEX_ATTR_BITMAP_IDENTITY_KEY);
	entry->blocking = keep(rel, INDEX_ATTR_BITMAP_HOT_BLOCKING);
	entry->key_blocks = bms_is_subset(entry->key, entry->blocking);
#if ZC_HAS_SUMMARIZING
	entry->summarized = keep(rel, INDEX_ATTR_BITMAP_SUMMARIZED);
#endif
	look_at_indexes(rel, entry);
	measure_blocking(rel, entry);
	ZUNDO_FAULT("columns-read");
	look_at_triggers(rel, entry);
	entry->complete = true;
	return entry;
}

/* zcolumns_some_null: See zdml_internal.h. */
bool
zcolumns_some_null(Relation rel, const Bitmapset *attrs, const char *row, Size len)
{
	bool		null_met = false;
	bool		value_met = false;
	int			i = -1;

	if ((zheader_get(row) & ZH_NULLS) == 0)
		return false;
	while ((i = bms_next_member(attrs, i)) >= 0)
	{
		bool		isnull;

		(void) ztuple_getattr(row, len, RelationGetDescr(rel),
							  i + FirstLowInvalidHeapAttributeNumber, &isnull,
							  RelationGetRelationName(rel), NULL);
		null_met |= isnull;
		value_met |= !isnull;
	}
	return null_met && value_met;
}

/*
 * zcolumns_some_differ: See zdml_internal.h. System columns other than tableoid
 * always count as different, as in heap.
 */
bool
zcolumns_some_differ(const ZUpdatedRow *row, const Bitmapset *attrs)
{
	const char *relname = RelationGetRelationName(row->rel);
	TupleDesc	desc = RelationGetDescr(row->rel);
	int			i = -1;

	while ((i = bms_next_member(attrs, i)) >= 0)
	{
		AttrNumber	attno = i + FirstLowInvalidHeapAttributeNumber;
		Form_pg_attribute att;
		Datum		a,
					b;
		bool		anull,
					bnull;

		if (attno == TableOidAttributeNumber)
			continue;
		if (attno <= 0)
			return true;
		att = TupleDescAttr(desc, attno - 1);
		a = ztuple_getattr(row->old, row->oldlen, desc, attno, &anull, relname, row->tid);
		b = ztuple_getattr(row->new, row->newlen, desc, attno, &bnull, relname, NULL);
		if (anull != bnull || (!anull && !datumIsEqual(a, b, att->attbyval, att->attlen)))
			return true;
	}
	return false;
}

/* zcolumns_begin_alike: See zdml_internal.h. */
bool
zcolumns_begin_alike(const ZUpdatedRow *row, const ZIndexColumns *columns)
{
	ZHeader		old = zheader_get(row->old);
	ZHeader		new = zheader_get(row->new);

	return columns->blocking_end != 0 && ((old | new) & ZH_NULLS) == 0 &&
		columns->blocking_last <= Min(ZH_NATTS(old), ZH_NATTS(new)) &&
		columns->blocking_end <= Min(row->oldlen, row->newlen) &&
		ztuple_header_ok(row->old, row->oldlen) &&
		memcmp(row->old + ZTUPLE_HEADER_SIZE, row->new + ZTUPLE_HEADER_SIZE,
			   columns->blocking_end - ZTUPLE_HEADER_SIZE) == 0;
}

/*
 * zcolumns_blocking_differ: See zdml_internal.h. Most updates leave these
 * columns alone, and mostly they are the first ones of a row.
 */
bool
zcolumns_blocking_differ(const ZUpdatedRow *row, const ZIndexColumns *columns)
{
	Assert(columns->reloid == RelationGetRelid(row->rel));
	if (!zcolumns_begin_alike(row, columns))
		return zcolumns_differ(row, columns->blocking);
	Assert(!zcolumns_differ(row, columns->blocking));
	return false;
}

/* zcolumns_some_external: See zdml_internal.h. */
bool
zcolumns_some_external(Relation rel, const Bitmapset *attrs, const char *row, Size len)
{
	int			i = -1;

	if ((zheader_get(row) & ZH_EXTERNAL) == 0)
		return false;
	while ((i = bms_next_member(attrs, i)) >= 0)
	{
		AttrNumber	attno = i + FirstLowInvalidHeapAttributeNumber;
		bool		isnull;
		Datum		value = ztuple_getattr(row, len, RelationGetDescr(rel), attno, &isnull,
										   RelationGetRelationName(rel), NULL);

		if (!isnull && TupleDescAttr(RelationGetDescr(rel), attno - 1)->attlen == -1 &&
			VARATT_IS_EXTERNAL(DatumGetPointer(value)))
			return true;
	}
	return false;
}

/*
 * zcolumns_fit_entry: See zdml_internal.h. An index entry keeps compressed
 * values as they are, and values that are stored out of line as they are there.
 * What is left of the maximum length of an entry is more than its header, its
 * bitmap of NULLs and the alignment of all columns need.
 */
bool
zcolumns_fit_entry(Relation rel, const Bitmapset *attrs, const char *row, Size len)
{
	TupleDesc	desc = RelationGetDescr(rel);
	Size		size = 0;
	int			i = -1;

	StaticAssertStmt(BLCKSZ / 4 + 16 + INDEX_MAX_KEYS * MAXIMUM_ALIGNOF <
					 BLCKSZ / 3 - 100, "an entry has too little space");
	if (len <= BLCKSZ / 4 && (zheader_get(row) & ZH_EXTERNAL) == 0)
		return true;
	while ((i = bms_next_member(attrs, i)) >= 0)
	{
		AttrNumber	attno = i + FirstLowInvalidHeapAttributeNumber;
		int			attlen = TupleDescAttr(desc, attno - 1)->attlen;
		bool		isnull;
		Datum		value = ztuple_getattr(row, len, desc, attno, &isnull,
										   RelationGetRelationName(rel), NULL);

		if (!isnull)
			size += attlen == -1 ? toast_datum_size(value) :
				attlen == -2 ? strlen(DatumGetCString(value)) + 1 : attlen;
	}
	return size <= BLCKSZ / 4;
}

/*
 * zcolumns_add_keys: See zdml_internal.h. The OIDs of the indexes are copied
 * first: opening an index may process invalidations, and a nested update may
 * then replace the column sets. The indexes themselves cannot be dropped while
 * the table is locked.
 */
int
zcolumns_add_keys(const ZUpdatedRow *row, const ZIndexColumns *columns, bool stale)
{
	ZKeyChange	change = {row->rel, row->tid, row->old, row->oldlen, row->new, row->newlen, stale};
	Oid		   *indexes = palloc(Max(columns->nkeyed, 1) * sizeof(Oid));
	int			n = 0;
	volatile int stale_entries = 0;

	for (int i = 0; i < columns->nkeyed; i++)
		if (zcolumns_differ(row, columns->keyed_index[i].attrs))
			indexes[n++] = columns->keyed_index[i].index;
	zdml_nest();
	PG_TRY();
	{
		for (int i = 0; i < n; i++)
		{
			Relation	index = index_open(indexes[i], RowExclusiveLock);

			stale_entries += zbtree_add_key(index, &change);
			index_close(index, NoLock);
		}
	}
	PG_FINALLY();
	{
		zdml_unnest();
	}
	PG_END_TRY();
	pfree(indexes);
	return stale_entries;
}

/*
 * zcolumns_count_move: See zdml_internal.h. If an index was not evaluated, it
 * counts if the columns differ that it reads.
 */
void
zcolumns_count_move(const ZUpdatedRow *row, const ZIndexColumns *columns, int differing)
{
	bool		counted = false;

	Assert(columns->reloid == RelationGetRelid(row->rel) && differing < columns->ncomputed);
	for (int i = 0; i < columns->nplain; i++)
		if (zcolumns_differ(row, columns->plain_index[i].attrs))
		{
			zcount_index_moved(columns->plain_index[i].index);
			counted = true;
		}
	for (int i = 0; i < columns->ncomputed; i++)
	{
		const ZComputedIndex *c = &columns->computed[i];

		if (zcolumns_differ(row, c->plain) ||
			(differing < 0 ? zcolumns_differ(row, c->attrs) : i == differing))
		{
			zcount_index_moved(c->index);
			counted = true;
		}
	}
	for (int i = 0; i < columns->nkeyed && !counted; i++)
		if (zcolumns_differ(row, columns->keyed_index[i].attrs) ||
			zcolumns_differ(row, columns->keyed_index[i].included))
			zcount_index_moved(columns->keyed_index[i].index);
}

/*
 * zcolumns_effect: See zdml_internal.h. A blocking column that differs is a
 * plain one, or is read by computed or keyed indexes.
 */
ZIndexEffect
zcolumns_effect(const ZUpdatedRow *row, const ZIndexColumns *columns)
{
	ZIndexEffect effect = ZINDEX_SAME;

	Assert(columns->reloid == RelationGetRelid(row->rel));
	Assert(zcolumns_differ(row, columns->blocking));
	if (zcolumns_differ(row, columns->plain))
		return ZINDEX_CHANGED;
	for (int i = 0; i < columns->ncomputed; i++)
	{
		ZComputedIndex *c = &columns->computed[i];

		if (!zcolumns_differ(row, c->attrs))
			continue;
		if (c->cost > zundo_index_expression_cost)
			return ZINDEX_CHANGED;
		if (c->skip > 0)
		{
			c->skip--;
			return ZINDEX_CHANGED;
		}
		effect = ZINDEX_COMPUTED;
	}
	return effect;
}

/*
 * zcolumns_answered: See zdml_internal.h. Does nothing if the columns were read
 * anew since the question, because 'differing' may then number another index.
 */
void
zcolumns_answered(const ZUpdatedRow *row, const ZIndexColumns *columns, uint64 reading,
				  int differing)
{
	if (columns->reading != reading)
		return;
	Assert(differing < columns->ncomputed && columns->reloid == RelationGetRelid(row->rel));
	if (differing >= 0)
	{
		ZComputedIndex *c = &columns->computed[differing];

		if (c->vain < MAX_VAIN)
			c->vain++;
		if (c->vain == MAX_VAIN)
			c->skip = SKIP_AFTER_VAIN;
		return;
	}
	for (int i = 0; i < columns->ncomputed; i++)
		if (columns->computed[i].vain > 0 && zcolumns_differ(row, columns->computed[i].attrs))
			columns->computed[i].vain = 0;
}
