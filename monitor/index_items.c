/*
 * monitor/index_items.c - zundo.index_items: one page of a zbtree index.
 *
 * Called from SQL. Works on a copy of the page. No crash points.
 */
#include "postgres.h"

#include "access/nbtree.h"
#include "catalog/pg_type.h"
#include "monitor/index_judge.h"
#include "monitor/monitor.h"
#include "storage/bufmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PGDLLEXPORT Datum zundo_index_items(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_index_items);

/* Returns the columns that an index tuple has, as text[]. */
static Datum
key_text(Relation index, IndexTuple tuple)
{
	TupleDesc	desc = RelationGetDescr(index);
	int			natts = BTreeTupleGetNAtts(tuple, index);
	Datum		elements[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	int			lower = 1;

	for (int i = 0; i < natts; i++)
	{
		Datum		value = index_getattr(tuple, i + 1, desc, &nulls[i]);
		Oid			output;
		bool varlena;

		if (nulls[i])
			continue;
		getTypeOutputInfo(TupleDescAttr(desc, i)->atttypid, &output, &varlena);
		elements[i] = PointerGetDatum(cstring_to_text(OidOutputFunctionCall(output, value)));
	}
	return PointerGetDatum(construct_md_array(elements, nulls, 1, &natts, &lower, TEXTOID, -1,
											  false, TYPALIGN_INT));
}

/* Returns the word for what an entry is worth. */
static const char *
state_word(ZEntryState state)
{
	switch (state)
	{
		case ZENTRY_NEEDED:
			return "needed";
		case ZENTRY_DIFFERENT:
			return "needed, row not marked";
		case ZENTRY_STALE:
			return "stale";
		case ZENTRY_UNTOLD:
			return "stale, row not marked";
		case ZENTRY_NO_ROW:
			return "no row";
	}
	return "?";
}

/* Adds the row for one item of the page. */
static void
put_item(FunctionCallInfo fcinfo, ZIndexJudge *judge, Page page, OffsetNumber off)
{
	BTPageOpaque opaque = BTPageGetOpaque(page);
	ItemId		lp = PageGetItemId(page, off);
	IndexTuple	tuple = (IndexTuple) PageGetItem(page, lp);
	bool		high_key = off < P_FIRSTDATAKEY(opaque);
	ItemPointer target = BTreeTupleGetHeapTID(tuple);
	Datum		values[8] = {0};
	bool		nulls[8] = {0};

	Assert(off >= FirstOffsetNumber && off <= PageGetMaxOffsetNumber(page));
	values[0] = Int32GetDatum(off);
	values[1] = CStringGetTextDatum(high_key ? "high key" : P_ISLEAF(opaque) ? "entry" :
									"downlink");
	nulls[2] = high_key || P_ISLEAF(opaque);
	if (!nulls[2])
		values[2] = Int64GetDatum((int64) BTreeTupleGetDownLink(tuple));
	nulls[3] = target == NULL;
	values[3] = PointerGetDatum(target);
	values[4] = BoolGetDatum(ItemIdIsDead(lp));
	nulls[5] = high_key || !P_ISLEAF(opaque);
	if (!nulls[5])
		values[5] = CStringGetTextDatum(state_word(zjudge_entry(judge, tuple)));
	values[6] = Int32GetDatum((int32) IndexTupleSize(tuple));
	values[7] = key_text(judge->index, tuple);
	zmon_put(fcinfo, values, nulls);
}

/*
 * zundo.index_items(regclass, bigint): returns one row per item of a page. For
 * superusers. Raises an error if the block does not exist.
 */
Datum
zundo_index_items(PG_FUNCTION_ARGS)
{
	int64		block = PG_GETARG_INT64(1);
	PGAlignedBlock copy;
	Page		page = (Page) copy.data;
	ZIndexJudge *judge;
	Buffer		buf;

	zmon_require_superuser();
	InitMaterializedSRF(fcinfo, 0);
	judge = zjudge_open(PG_GETARG_OID(0));
	if (block <= BTREE_METAPAGE || block >= (int64) RelationGetNumberOfBlocks(judge->index))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("block %lld is out of range for index \"%s\"",
						(long long) block, RelationGetRelationName(judge->index)),
				 errdetail("Block 0 has no items; the index has %u blocks.",
						   RelationGetNumberOfBlocks(judge->index))));
	buf = _bt_getbuf(judge->index, (BlockNumber) block, BT_READ);
	memcpy(copy.data, BufferGetPage(buf), BLCKSZ);
	_bt_relbuf(judge->index, buf);
	if (!P_ISDELETED(BTPageGetOpaque(page)))
		for (OffsetNumber off = FirstOffsetNumber; off <= PageGetMaxOffsetNumber(page); off++)
			put_item(fcinfo, judge, page, off);
	zjudge_close(judge);
	return (Datum) 0;
}
