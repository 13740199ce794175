/*
 * zbtree/passed.c - rows that an index scan has fetched in vain, so that it
 * need not fetch them again for each of their other entries.
 *
 * A row may have one entry for each of its versions, and a fetch by an old
 * snapshot reads undo from the newest version on. So a scan that comes to n
 * entries of one row would read some n * n / 2 records. The snapshot sees the
 * same version each time. So the scan remembers the key of that version, and
 * fetches the row again only for an entry with this key.
 *
 * That holds for an MVCC snapshot. A serializable transaction remembers
 * nothing, since its fetches are what the server learns of conflicts from; nor
 * are keys remembered that are long or stored out of line. All is forgotten
 * when the scan begins anew or returns to a mark. The remembered keys belong
 * to the state of the table's index fetch. No locks, no crash points.
 */
#include "postgres.h"

#include "common/compat.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "zbtree/passed.h"
#include "zbtree/predicate.h"

/* How many rows a scan fetches in vain before it begins to remember them. */
#define FIRST_ROWS		16
/* The most rows that a scan remembers, and the longest key, in bytes. */
#define MAX_ROWS		16384
#define MAX_KEY			256

/* A row that was fetched in vain. */
typedef struct PassedRow
{
	uint64		tid;			/* hash key: block and offset */
	IndexTuple	key;			/* of the version that the snapshot sees;
								 * NULL: there is no such version, or the
								 * index's predicate excludes it */
} PassedRow;

struct ZPassed
{
	MemoryContext context;		/* has all that belongs to it */
	HTAB	   *rows;			/* of PassedRow; NULL: none yet */
	int			nfetched;		/* rows fetched in vain */
};

/* Returns the hash key of a TID. */
static inline uint64
number_of(ItemPointer tid)
{
	return (uint64) ItemPointerGetBlockNumber(tid) << 16 | ItemPointerGetOffsetNumber(tid);
}

/*
 * Reads the plain key columns of an entry. Columns of expressions are set to
 * null: they are not compared (ZBTREE-4).
 */
static void
read_key(Relation index, IndexTuple entry, Datum *values, bool *isnull)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		isnull[i] = true;
		if (index->rd_index->indkey.values[i] != InvalidAttrNumber)
			values[i] = index_getattr(entry, i + 1, RelationGetDescr(index), &isnull[i]);
	}
}

bool
zpassed_by(ZExpectingFetch *fetch, ItemPointer tid)
{
	uint64		number = number_of(tid);
	PassedRow  *row;
	Datum		has[INDEX_MAX_KEYS],
				expected[INDEX_MAX_KEYS];
	bool		has_null[INDEX_MAX_KEYS],
				expected_null[INDEX_MAX_KEYS];

	Assert(fetch->entry != NULL);
	if (fetch->passed == NULL || fetch->passed->rows == NULL)
		return false;
	row = hash_search(fetch->passed->rows, &number, HASH_FIND, NULL);
	if (row == NULL || row->key == NULL)
		return row != NULL;
	read_key(fetch->index, row->key, has, has_null);
	read_key(fetch->index, fetch->entry, expected, expected_null);
	return !zbtree_same_key(fetch->index, has, has_null, expected, expected_null);
}

/*
 * Forms the key of the version in slot in *key, in the current memory context;
 * sets it to NULL if the index's predicate excludes the version. Returns false
 * if the key is long, or a column of it is stored out of line.
 */
static bool
form_key(Relation index, TupleTableSlot *slot, IndexTuple *key)
{
	TupleDesc	desc = RelationGetDescr(index);
	ZPredicate *predicate;
	Datum		values[INDEX_MAX_KEYS];
	bool		isnull[INDEX_MAX_KEYS];
	Size		length = 0;

	*key = NULL;
	if (!zpredicate_find(index, &predicate))
		return false;
	if (!zpredicate_holds(predicate, slot))
		return true;
	for (int i = 0; i < desc->natts; i++)
	{
		AttrNumber	attno = index->rd_index->indkey.values[i];
		ZcAttr		att = zc_attr(desc, i);

		isnull[i] = true;
		if (attno == InvalidAttrNumber || i >= IndexRelationGetNumberOfKeyAttributes(index))
			continue;
		values[i] = slot_getattr(slot, attno, &isnull[i]);
		if (isnull[i])
			continue;
		if (att->attlen == -1 && VARATT_IS_EXTERNAL(DatumGetPointer(values[i])))
			return false;
		length += att->attlen == -1 ? VARSIZE_ANY(DatumGetPointer(values[i])) :
			att->attlen == -2 ? strlen(DatumGetCString(values[i])) + 1 : att->attlen;
	}
	if (length > MAX_KEY)
		return false;
	*key = index_form_tuple(desc, values, isnull);
	return true;
}

/* Creates the table of rows, in the memory of the fetch. */
static void
begin_rows(ZPassed *passed)
{
	HASHCTL		ctl = {.keysize = sizeof(uint64),.entrysize = sizeof(PassedRow)};

	Assert(passed->rows == NULL);
	passed->context = AllocSetContextCreate(GetMemoryChunkContext(passed), "zheap rows passed by",
											ALLOCSET_DEFAULT_SIZES);
	ctl.hcxt = passed->context;
	passed->rows = hash_create("zheap rows passed by", 256, &ctl,
							   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
}

void
zpassed_note(ZExpectingFetch *fetch, ItemPointer tid, TupleTableSlot *slot)
{
	ZPassed    *passed = fetch->passed;
	uint64		number = number_of(tid);
	MemoryContext caller;
	IndexTuple	key = NULL;
	bool		formed = true;

	Assert(fetch->entry != NULL);
	if (passed == NULL)
		passed = fetch->passed = MemoryContextAllocZero(GetMemoryChunkContext(fetch),
														sizeof(ZPassed));
	if (passed->nfetched++ < FIRST_ROWS)
		return;
	if (passed->rows == NULL)
		begin_rows(passed);
	if (hash_get_num_entries(passed->rows) >= MAX_ROWS)
		return;
	caller = MemoryContextSwitchTo(passed->context);
	if (slot != NULL)
		formed = form_key(fetch->index, slot, &key);
	if (formed)
		((PassedRow *) hash_search(passed->rows, &number, HASH_ENTER, NULL))->key = key;
	MemoryContextSwitchTo(caller);
}

void
zpassed_forget(ZExpectingFetch *fetch)
{
	if (fetch->passed == NULL)
		return;
	if (fetch->passed->rows != NULL)
		MemoryContextDelete(fetch->passed->context);
	pfree(fetch->passed);
	fetch->passed = NULL;
}
