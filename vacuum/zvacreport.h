/*
 * vacuum/zvacreport.h - what VACUUM (VERBOSE) and log_autovacuum_min_duration
 * report of a zheap table.
 */
#ifndef ZUNDO_ZVACREPORT_H
#define ZUNDO_ZVACREPORT_H

#include "access/genam.h"
#include "commands/vacuum.h"
#include "common/zundo.h"
#include "executor/instrument.h"
#include "pgstat.h"
#include "utils/pg_rusage.h"
#include "utils/timestamp.h"

/* What the process had used when the vacuum began. */
typedef struct ZVacuumUsage
{
	TimestampTz time;
	PGRUsage	rusage;
	PgStat_Counter read_time;
	PgStat_Counter write_time;
	WalUsage	wal;
	BufferUsage buffers;
} ZVacuumUsage;

/* Whether and how a vacuum has cleaned the indexes of dead line pointers. */
typedef enum ZVacuumIndexes
{
	ZVACUUM_NOT_NEEDED,
	ZVACUUM_CLEANED,
	ZVACUUM_BYPASSED,
	ZVACUUM_FAILSAFE
} ZVacuumIndexes;

/* What a vacuum has found and done. */
typedef struct ZVacuumFigures
{
	BlockNumber pages_before;
	BlockNumber pages;			/* that remain */
	BlockNumber scanned;
	BlockNumber truncated;
	int64		rows_removed;	/* dead rows whose line pointers were marked */
	double		live_rows;
	double		dead_rows;		/* that remain */
	TransactionId cutoff;		/* rows that died before it are removed */
	bool		frozenxid_updated;
	bool		minmulti_updated;
	TransactionId frozenxid[2]; /* relfrozenxid before, and now */
	MultiXactId minmulti[2];	/* the same for relminmxid */
	BlockNumber visible;		/* pages whose bit in the visibility map was
								 * set */
	ZVacuumIndexes indexes;
	int			index_passes;
	BlockNumber dead_blocks;	/* blocks with dead line pointers */
	int64		dead_items;		/* dead line pointers */
	int64		undone;			/* aborted changes */
	BlockNumber stale_blocks;	/* blocks with rows with stale index keys */
} ZVacuumFigures;

/*
 * zvacreport_begin: notes in *usage what the process has used up to now, and
 * tells the client that the vacuum of rel begins if it is verbose.
 */
extern void zvacreport_begin(Relation rel, const struct VacuumParams *params,
							 ZVacuumUsage *usage);

/*
 * zvacreport_end: reports what was done since: to the client for VACUUM
 * (VERBOSE), and to the server log for an autovacuum that has taken
 * log_autovacuum_min_duration. names and stats have nindexes elements; those of
 * stats may be NULL.
 */
extern void zvacreport_end(Relation rel, const struct VacuumParams *params,
						   const ZVacuumUsage *usage, const ZVacuumFigures *figures,
						   int nindexes, char **names, IndexBulkDeleteResult **stats);

#endif
