/*
 * test/reading_plugin.c - an output plugin that reads a table while it
 * decodes, for t/014_decoding.
 *
 * For each change it reads the table "z" in the way that its option names, and
 * writes a line that says whether a row was found.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/namespace.h"
#include "common/compat.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "replication/logical.h"
#include "replication/output_plugin.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_output_plugin_init(OutputPluginCallbacks *callbacks);

/* "scan", "index", "tid" or "satisfies" */
static char *way = "";

static void
startup(LogicalDecodingContext *ctx, OutputPluginOptions *options, bool is_init)
{
	ListCell   *lc;

	options->output_type = OUTPUT_PLUGIN_TEXTUAL_OUTPUT;
	foreach(lc, ctx->output_plugin_options)
		way = pstrdup(strVal(lfirst_node(DefElem, lc)->arg));
}

static void
begin(LogicalDecodingContext *ctx, ReorderBufferTXN *txn)
{
}

static void
commit(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, XLogRecPtr lsn)
{
}

/* Reads the table in the chosen way; returns whether a row was found. */
static bool
read_table(Relation rel)
{
	Snapshot	snapshot = GetCatalogSnapshot(RelationGetRelid(rel));
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	ItemPointerData tid;
	bool		found = false;

	ItemPointerSet(&tid, 0, 1);
	if (strcmp(way, "scan") == 0)
	{
		TableScanDesc scan = zc_beginscan(rel, snapshot);

		found = table_scan_getnextslot(scan, ForwardScanDirection, slot);
		table_endscan(scan);
	}
	else if (strcmp(way, "index") == 0)
	{
		SysScanDesc scan = systable_beginscan(rel, linitial_oid(RelationGetIndexList(rel)), true,
											  snapshot, 0, NULL);

		found = HeapTupleIsValid(systable_getnext(scan));
		systable_endscan(scan);
	}
	else if (strcmp(way, "tid") == 0)
		found = table_tuple_fetch_row_version(rel, &tid, snapshot, slot);
	else
	{
		ExecStoreAllNullTuple(slot);
		slot->tts_tid = tid;
		found = table_tuple_satisfies_snapshot(rel, slot, snapshot);
	}
	ExecDropSingleTupleTableSlot(slot);
	return found;
}

static void
change(LogicalDecodingContext *ctx, ReorderBufferTXN *txn, Relation relation,
	   ReorderBufferChange *changed)
{
	Relation	rel = table_openrv(makeRangeVar("public", "z", -1), AccessShareLock);

	OutputPluginPrepareWrite(ctx, true);
	appendStringInfo(ctx->out, "a row was%s found", read_table(rel) ? "" : " not");
	OutputPluginWrite(ctx, true);
	table_close(rel, NoLock);
}

void
_PG_output_plugin_init(OutputPluginCallbacks *callbacks)
{
	callbacks->startup_cb = startup;
	callbacks->begin_cb = begin;
	callbacks->change_cb = change;
	callbacks->commit_cb = commit;
}
