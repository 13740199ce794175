/*
 * vacuum/zvacreport.c - what VACUUM (VERBOSE) and log_autovacuum_min_duration
 * report of a zheap table.
 *
 * The lines are those of the server's own vacuum of this version, so that tools
 * that read logs find what they look for; figures that do not exist for zheap
 * are left out (docs/limits.md), and a line about undo is added. Called by
 * zvacuum.c without any lock but that of the table. Writes nothing.
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "commands/progress.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/backend_status.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "vacuum/zvacreport.h"

/* Returns whether the vacuum is an autovacuum that may have to be logged. */
static bool
may_be_logged(const VacuumParams *params)
{
	return MyBackendType == B_AUTOVAC_WORKER && zc_log_min_duration(params) >= 0;
}

/* Returns whether the vacuum is verbose. */
static bool
is_verbose(const VacuumParams *params)
{
	return (params->options & VACOPT_VERBOSE) != 0;
}

/* Returns the palloc'd name of the table, "database.schema.table". */
static char *
full_name(Relation rel)
{
	return psprintf("%s.%s.%s", get_database_name(MyDatabaseId),
					get_namespace_name(RelationGetNamespace(rel)), RelationGetRelationName(rel));
}

/* zvacreport_begin: See zvacreport.h. */
void
zvacreport_begin(Relation rel, const VacuumParams *params, ZVacuumUsage *usage)
{
	usage->time = GetCurrentTimestamp();
	if (!is_verbose(params) && !may_be_logged(params))
		return;
	pg_rusage_init(&usage->rusage);
	usage->read_time = pgStatBlockReadTime;
	usage->write_time = pgStatBlockWriteTime;
	usage->wal = pgWalUsage;
	usage->buffers = pgBufferUsage;
	if (is_verbose(params))
		ereport(INFO,
				(errmsg("vacuuming \"%s\"", full_name(rel))));
}

/* Returns what percentage of all pages n pages are. */
static double
percent(BlockNumber n, BlockNumber all)
{
	return all == 0 ? 100.0 : 100.0 * n / all;
}

/* Appends the lines about the table. */
static void
append_table(StringInfo buf, const ZVacuumFigures *f)
{
	appendStringInfo(buf, "pages: %u removed, %u remain, %u scanned (%.2f%% of total)\n",
					 f->truncated, f->pages, f->scanned, percent(f->scanned, f->pages_before));
	appendStringInfo(buf, "tuples: %lld removed, %lld remain, "
					 "%lld are dead but not yet removable\n",
					 (long long) f->rows_removed, (long long) (f->live_rows + f->dead_rows),
					 (long long) f->dead_rows);
	appendStringInfo(buf, "removable cutoff: %u, which was %d XIDs old when operation ended\n",
					 f->cutoff, (int32) (ReadNextTransactionId() - f->cutoff));
	if (f->frozenxid_updated)
		appendStringInfo(buf, "new relfrozenxid: %u, which is %d XIDs ahead of previous value\n",
						 f->frozenxid[1], (int32) (f->frozenxid[1] - f->frozenxid[0]));
	if (f->minmulti_updated)
		appendStringInfo(buf, "new relminmxid: %u, which is %d MXIDs ahead of previous value\n",
						 f->minmulti[1], (int32) (f->minmulti[1] - f->minmulti[0]));
	if (ZC_TELLS_VISIBLE_PAGES)
		appendStringInfo(buf, "visibility map: %u pages set all-visible\n", f->visible);
}

/* Appends the lines about the indexes. */
static void
append_indexes(StringInfo buf, const ZVacuumFigures *f, int nindexes, char **names,
			   IndexBulkDeleteResult **stats)
{
	static const char *const what[] = {
		[ZVACUUM_NOT_NEEDED] = "index scan not needed",
		[ZVACUUM_CLEANED] = "index scan needed",
		[ZVACUUM_BYPASSED] = "index scan bypassed",
		[ZVACUUM_FAILSAFE] = "index scan bypassed by failsafe"
	};
	bool		left = (f->indexes == ZVACUUM_BYPASSED || f->indexes == ZVACUUM_FAILSAFE);

	appendStringInfo(buf, "%s: %u pages from table (%.2f%% of total) %s %lld dead item "
					 "identifiers%s\n", what[f->indexes], f->dead_blocks,
					 percent(f->dead_blocks, f->pages_before), left ? "have" : "had",
					 (long long) f->dead_items, left ? "" : " removed");
	for (int i = 0; i < nindexes; i++)
		if (stats[i] != NULL)
			appendStringInfo(buf, "index \"%s\": pages: %u in total, %u newly deleted, "
							 "%u currently deleted, %u reusable\n", names[i],
							 stats[i]->num_pages, stats[i]->pages_newly_deleted,
							 stats[i]->pages_deleted, stats[i]->pages_free);
}

/* Appends the lines about what was used from *usage until 'now'. */
static void
append_usage(StringInfo buf, const ZVacuumUsage *usage, TimestampTz now)
{
	WalUsage	wal = {0};
	BufferUsage buffers = {0};
	double		seconds = (now - usage->time) / 1000000.0;
	double		megabytes = (double) BLCKSZ / (1024 * 1024);
	int64		hits,
				reads,
				dirtied;

	WalUsageAccumDiff(&wal, &pgWalUsage, &usage->wal);
	BufferUsageAccumDiff(&buffers, &pgBufferUsage, &usage->buffers);
	hits = buffers.shared_blks_hit + buffers.local_blks_hit;
	reads = buffers.shared_blks_read + buffers.local_blks_read;
	dirtied = buffers.shared_blks_dirtied + buffers.local_blks_dirtied;
	zc_append_delay_time(buf);
	if (track_io_timing)
		appendStringInfo(buf, "I/O timings: read: %.3f ms, write: %.3f ms\n",
						 (double) (pgStatBlockReadTime - usage->read_time) / 1000,
						 (double) (pgStatBlockWriteTime - usage->write_time) / 1000);
	appendStringInfo(buf, "avg read rate: %.3f MB/s, avg write rate: %.3f MB/s\n",
					 seconds > 0 ? megabytes * reads / seconds : 0,
					 seconds > 0 ? megabytes * dirtied / seconds : 0);
	appendStringInfo(buf, "buffer usage: %lld hits, %lld " ZC_BUFFER_READS ", %lld dirtied\n",
					 (long long) hits, (long long) reads, (long long) dirtied);
	appendStringInfo(buf, "WAL usage: %lld records, %lld full page images, %llu bytes",
					 (long long) wal.wal_records, (long long) wal.wal_fpi,
					 (unsigned long long) wal.wal_bytes);
	zc_append_wal_buffers_full(buf, &wal);
	appendStringInfo(buf, "\nsystem usage: %s", pg_rusage_show(&usage->rusage));
}

/* zvacreport_end: See zvacreport.h. */
void
zvacreport_end(Relation rel, const VacuumParams *params, const ZVacuumUsage *usage,
			   const ZVacuumFigures *figures, int nindexes, char **names,
			   IndexBulkDeleteResult **stats)
{
	TimestampTz now = GetCurrentTimestamp();
	StringInfoData buf;

	if (!is_verbose(params) &&
		(!may_be_logged(params) ||
		 (zc_log_min_duration(params) > 0 &&
		  !TimestampDifferenceExceeds(usage->time, now, zc_log_min_duration(params)))))
		return;
	initStringInfo(&buf);
	/* log analyzers search for these words */
	appendStringInfo(&buf, "%s \"%s\": index scans: %d\n",
					 is_verbose(params) ? "finished vacuuming"
					 : params->is_wraparound ? "automatic vacuum to prevent wraparound of table"
					 : "automatic vacuum of table", full_name(rel), figures->index_passes);
	append_table(&buf, figures);
	append_indexes(&buf, figures, nindexes, names, stats);
	appendStringInfo(&buf, "undo: %lld changes of aborted transactions undone, "
					 "%u pages had rows with stale index keys\n",
					 (long long) figures->undone, figures->stale_blocks);
	append_usage(&buf, usage, now);
	ereport(is_verbose(params) ? INFO : LOG,
			(errmsg_internal("%s", buf.data)));
	pfree(buf.data);
}
