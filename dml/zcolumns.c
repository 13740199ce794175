/*
 * dml/zcolumns.c - which columns indexes depend on, and whether an update
 * changes them.
 *
 * The column sets are copied out of the relcache once and kept until the
 * relcache says that the relation has changed. If that happens while the sets
 * are being read, the caller still uses them, for they are as good as those
 * that the server itself has just read; they are read again for the next
 * change.
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "dml/zdml_internal.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#define CACHE_SIZE 64			/* direct-mapped by OID */

static ZIndexColumns cache[CACHE_SIZE];

/* Frees the entry's column sets and makes it empty. */
static void
forget(ZIndexColumns *entry)
{
	bms_free(entry->key);
	bms_free(entry->blocking);
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
		if (!OidIsValid(relid) || cache[i].reloid == relid)
			cache[i].outdated = true;
}

/* Returns a copy of one of the relcache's column sets, in memory that lasts. */
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
 * Fills in which AFTER UPDATE row triggers the relation has, and, if it has
 * any, the columns of its foreign keys.
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
				 * the trigger of a deferrable unique constraint is queued
				 * only after an index insertion
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
 * Includes events that the server might not queue after all: a false "yes"
 * costs a note of the change, a false "no" an OLD row that cannot be found.
 */
bool
zcolumns_event(const ZIndexColumns *columns, bool index_change, bool foreign_change, bool own)
{
	return columns->after_update || (columns->referenced && index_change) ||
		(columns->foreign != NULL && (foreign_change || own));
}

/*
 * An error while the sets are being read leaves the entry incomplete, and the
 * next call begins anew.
 */
const ZIndexColumns *
zindex_columns(Relation rel)
{
	static bool registered = false;
	ZIndexColumns *entry = &cache[RelationGetRelid(rel) % CACHE_SIZE];

	if (entry->reloid == RelationGetRelid(rel) && entry->complete && !entry->outdated)
		return entry;
	if (!registered)
	{
		CacheRegisterRelcacheCallback(relcache_changed, (Datum) 0);
		registered = true;
	}
	forget(entry);

	/*
	 * from here on the relcache callback finds the entry; after an error it
	 * is not complete, so the next call reads it anew
	 */
	entry->reloid = RelationGetRelid(rel);
	entry->key = keep(rel, INDEX_ATTR_BITMAP_KEY);
	entry->blocking = keep(rel, INDEX_ATTR_BITMAP_HOT_BLOCKING);
#if ZC_HAS_SUMMARIZING
	entry->summarized = keep(rel, INDEX_ATTR_BITMAP_SUMMARIZED);
#endif
	ZUNDO_FAULT("columns-read");
	look_at_triggers(rel, entry);
	entry->complete = true;
	return entry;
}

/* The header tells whether the row has nulls at all. */
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

/* System columns other than tableoid count as different, as on heap. */
bool
zcolumns_differ(Relation rel, const Bitmapset *attrs, ItemPointer tid, const char *oldrow,
				Size oldlen, const char *newrow, Size newlen)
{
	const char *relname = RelationGetRelationName(rel);
	TupleDesc	desc = RelationGetDescr(rel);
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
		a = ztuple_getattr(oldrow, oldlen, desc, attno, &anull, relname, tid);
		b = ztuple_getattr(newrow, newlen, desc, attno, &bnull, relname, NULL);
		if (anull != bnull || (!anull && !datumIsEqual(a, b, att->attbyval, att->attlen)))
			return true;
	}
	return false;
}
