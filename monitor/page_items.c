/*
 * monitor/page_items.c - the SQL functions that show the line pointers, rows
 * and transaction slots of a table page.
 *
 * Called from SQL (zundo--1.0.sql); zmon_copy_page also by repair.c. Works on a
 * copy of the page. Locks: AccessShareLock on the table, and the page's share
 * lock while it is copied. No crash points.
 */
#include "postgres.h"

#include "access/relation.h"
#include "monitor/monitor.h"
#include "mvcc/zvis.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "undo/undo.h"
#include "utils/builtins.h"

PGDLLEXPORT Datum zundo_page_items(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_page_slots(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_page_items);
PG_FUNCTION_INFO_V1(zundo_page_slots);

/*
 * zmon_copy_page: See monitor.h. Raises the error of a damaged page only after
 * the page has been unlocked.
 */
bool
zmon_copy_page(Relation rel, int64 block, PGAlignedBlock *copy, ZSlotView *view)
{
	Buffer		buf;
	bool		is_new;

	Assert(CheckRelationLockedByMe(rel, AccessShareLock, true));
	if (block < 0 || block >= (int64) zrel_nblocks(rel))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("block %lld is out of range for relation \"%s\"",
						(long long) block, RelationGetRelationName(rel)),
				 errdetail("The table has %u blocks.", zrel_nblocks(rel))));
	zu_attach_database();
	buf = ReadBuffer(rel, (BlockNumber) block);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	memcpy(copy->data, BufferGetPage(buf), BLCKSZ);
	is_new = PageIsNew((Page) copy->data);
	if (!is_new && zpage_is_valid((Page) copy->data))
		zslots_copy_raw(rel, (BlockNumber) block, BufferGetPage(buf), view);
	UnlockReleaseBuffer(buf);
	if (!is_new && !zpage_is_valid((Page) copy->data))
		zvis_corrupt_page(rel, (BlockNumber) block, (Page) copy->data, InvalidOffsetNumber);
	return !is_new;
}

/* Returns the name of a row's state on the page, "?" if there is none. */
static const char *
state_name(int state)
{
	static const char *const names[] = {"inserted", "updated", "deleted", "moved"};

	return (state >= 0 && state < (int) lengthof(names)) ? names[state] : "?";
}

/* Returns the names of the flags that are set in a row header, as text[]. */
static Datum
header_flags(ZHeader h)
{
	const char *flags[8];
	int			n = 0;

	if (h & ZH_NULLS)
		flags[n++] = "nulls";
	if (h & ZH_EXTERNAL)
		flags[n++] = "external";
	if (h & ZH_OTHER_PART)
		flags[n++] = "other partition";
	if (h & ZH_KEY_CHANGE)
		flags[n++] = "key change";
	if (h & ZH_STALE_KEYS)
		flags[n++] = "stale keys";
	if (h & ZH_SPECULATIVE)
		flags[n++] = "speculative";
	if (h & ZH_SLACK)
		flags[n++] = "slack";
	return zmon_text_array(flags, n);
}

/*
 * Returns how often in succession the row was updated to the bytes that it had
 * before (TOKEN-5). Sets *null if that cannot be read.
 */
static Datum
repetitions(Relation rel, const char *row, int len, bool *null)
{
	int			bad;
	Size		bare_len = ztuple_length(row, len, RelationGetDescr(rel), &bad);

	*null = (bare_len == 0);
	return *null ? (Datum) 0 : Int64GetDatum(ztuple_count(row + bare_len, len - bare_len));
}

/*
 * Fills the columns of page_items from len on, for an LP_NORMAL line pointer.
 * Leaves them null if the line pointer leads outside of the page.
 */
static void
fill_row_columns(Relation rel, Page page, ItemId lp, Datum *values, bool *nulls)
{
	static const char *const locks[] = {NULL, "key share", "share", "no key update", "update"};
	const char *row = zpage_row(page, lp);
	int			room = ItemIdGetLength(lp);
	ZHeader		h;
	int			len;
	bytea	   *data;

	Assert(ItemIdIsNormal(lp));
	if (ItemIdGetOffset(lp) + room > BLCKSZ || room < ZTUPLE_HEADER_SIZE)
		return;					/* zundo.check reports it */
	h = zheader_get(row);
	len = Max(Min(zpage_row_length(page, lp), room), 0);
	memset(nulls + 4, false, 8 * sizeof(bool));
	values[4] = Int32GetDatum(len);
	values[5] = Int32GetDatum(ZH_NATTS(h));
	values[6] = Int32GetDatum(ZH_SLOT(h));
	values[7] = CStringGetTextDatum(state_name(ZH_STATE(h)));
	values[8] = header_flags(h);
	nulls[9] = (ZH_LOCK(h) == 0 || ZH_LOCK(h) >= (int) lengthof(locks));
	if (!nulls[9])
		values[9] = CStringGetTextDatum(locks[ZH_LOCK(h)]);
	values[10] = repetitions(rel, row, len, &nulls[10]);
	data = palloc(VARHDRSZ + len);
	SET_VARSIZE(data, VARHDRSZ + len);
	memcpy(VARDATA(data), row, len);
	values[11] = PointerGetDatum(data);
}

/*
 * zundo.page_items(regclass, bigint): returns one row per line pointer of a
 * page. For superusers.
 */
Datum
zundo_page_items(PG_FUNCTION_ARGS)
{
	static const char *const lp_states[] = {"unused", "normal", "stub", "dead"};
	Relation	rel;
	ZSlotView  *view = palloc(sizeof(ZSlotView));
	PGAlignedBlock copy;
	Page		page = (Page) copy.data;

	zmon_require_superuser();
	rel = zmon_open_table(PG_GETARG_OID(0));
	InitMaterializedSRF(fcinfo, 0);
	if (zmon_copy_page(rel, PG_GETARG_INT64(1), &copy, view))
		for (OffsetNumber off = FirstOffsetNumber; off <= PageGetMaxOffsetNumber(page); off++)
		{
			ItemId		lp = PageGetItemId(page, off);
			Datum		values[12] = {0};
			bool		nulls[12];

			memset(nulls, true, sizeof(nulls));
			memset(nulls, false, 2 * sizeof(bool));
			values[0] = Int32GetDatum(off);
			values[1] = CStringGetTextDatum(lp_states[ItemIdGetFlags(lp)]);
			if (ItemIdIsNormal(lp))
			{
				nulls[2] = nulls[3] = false;
				values[2] = Int32GetDatum(ItemIdGetOffset(lp));
				values[3] = Int32GetDatum(ItemIdGetLength(lp));
				fill_row_columns(rel, page, lp, values, nulls);
			}
			else if (ItemIdIsRedirected(lp))
			{
				nulls[6] = nulls[7] = false;
				values[6] = Int32GetDatum(ItemIdGetRedirect(lp));
				values[7] = CStringGetTextDatum(state_name(lp->lp_len));
			}
			zmon_put(fcinfo, values, nulls);
		}
	relation_close(rel, AccessShareLock);
	return (Datum) 0;
}

/*
 * zundo.page_slots(regclass, bigint): returns one row per transaction slot of
 * a page, those on its overflow page included. For superusers.
 */
Datum
zundo_page_slots(PG_FUNCTION_ARGS)
{
	Relation	rel;
	ZSlotView  *view = palloc(sizeof(ZSlotView));
	PGAlignedBlock copy;

	zmon_require_superuser();
	rel = zmon_open_table(PG_GETARG_OID(0));
	InitMaterializedSRF(fcinfo, 0);
	if (zmon_copy_page(rel, PG_GETARG_INT64(1), &copy, view))
		for (int i = 1; i <= view->n; i++)
		{
			const ZPageSlot *slot = &view->s[i];
			ZXid		xid = ZSLOT_XID(slot);
			Datum		values[6] = {0};
			bool		nulls[6] = {0};

			values[0] = Int32GetDatum(i);
			values[1] = zmon_xid(xid, &nulls[1]);
			nulls[2] = nulls[1];
			if (!nulls[2])
				values[2] = CStringGetTextDatum(zxid_possible(xid)
												? zmon_status_name(zxid_status_at(xid,
																				  view->oldest)) :
												"impossible");
			values[3] = zmon_pointer(slot->ptr, &nulls[3]);
			if (slot->xid_flags & ZSLOT_INLINE_LOCKS)
				nulls[3] = true;	/* inline locks, not a pointer to undo */
			values[4] = Int32GetDatum((int32) (slot->xid_flags >> ZXID_BITS));
			values[5] = BoolGetDatum(i > zpage_nslots((Page) copy.data));
			zmon_put(fcinfo, values, nulls);
		}
	relation_close(rel, AccessShareLock);
	return (Datum) 0;
}
