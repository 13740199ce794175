/*
 * common/zcount.c - what is counted of each database.
 *
 * Owns the shared counters. They have a place for each of zundo.max_databases
 * databases; what others count is added up in place 0. The postmaster saves
 * them at shutdown and removes the file when it has read it at the next start,
 * so after a crash they begin at 0.
 *
 * Locks: a spinlock to give out and take back places. Counters are atomic, and
 * read without it.
 * Crash points: none; nothing here is needed for right results.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "common/zcount.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/atomics.h"
#include "storage/fd.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

#define FILE_NAME	PGSTAT_STAT_PERMANENT_DIRECTORY "/zundo.stat"
/* Changes with the number of counters. Raise it if their order changes. */
#define FILE_MAGIC	((uint32) (0x5A430000 + (sizeof(ZCounts) << 8) + sizeof(ZTableCounts)))

/* As often as the server adds up what it counts itself. */
#define FLUSH_INTERVAL_MS	1000

/* What the file begins with; then come the databases, then the tables. */
typedef struct FileHeader
{
	uint32		magic;
	int			ndatabases;
	int			ntables;
} FileHeader;

typedef struct Place
{
	Oid			dboid;			/* 0 = free; written with the spinlock */
	pg_atomic_uint64 reset;		/* TimestampTz */
	pg_atomic_uint64 peak;
	pg_atomic_uint64 n[ZCOUNT_KINDS];
} Place;

typedef struct Store
{
	slock_t		mutex;
	int			nplaces;
	Place		places[FLEXIBLE_ARRAY_MEMBER];
} Store;

uint64		zcount_mine[ZCOUNT_ALL];

/* What of zcount_mine was added to shared memory, and when. */
static struct
{
	uint64		n[ZCOUNT_KINDS];
	TimestampTz at;				/* at the end of a transaction; 0 = never */
}			flushed;

static Store *store = NULL;

Size
zcount_shmem_size(void)
{
	return add_size(offsetof(Store, places), mul_size(zundo_max_databases + 1, sizeof(Place)));
}

/* Sets all counters of a place to 0, as of now. */
static void
clear(Place *place, TimestampTz now)
{
	pg_atomic_write_u64(&place->reset, (uint64) now);
	pg_atomic_write_u64(&place->peak, 0);
	for (int i = 0; i < ZCOUNT_KINDS; i++)
		pg_atomic_write_u64(&place->n[i], 0);
}

/* Returns the place of a database, or NULL. Spinlock held. */
static Place *
find(Oid dboid)
{
	for (int i = 1; i < store->nplaces; i++)
		if (store->places[i].dboid == dboid)
			return &store->places[i];
	return NULL;
}

/*
 * Returns the place of this process's database. It stays that as long as the
 * process is connected, since nobody can drop the database.
 */
static Place *
my_place(void)
{
	static Place *mine = NULL;
	TimestampTz now;

	if (likely(mine != NULL))
		return mine;
	now = GetCurrentTimestamp();
	SpinLockAcquire(&store->mutex);
	mine = find(MyDatabaseId);
	if (mine == NULL && (mine = find(InvalidOid)) != NULL)
	{
		clear(mine, now);
		mine->dboid = MyDatabaseId;
	}
	SpinLockRelease(&store->mutex);
	return mine != NULL ? mine : &store->places[0];
}

/* Returns whether there is something to add. */
static inline bool
something_new(void)
{
	return unlikely(memcmp(zcount_mine, flushed.n, sizeof(flushed.n)) != 0) &&
		store != NULL && OidIsValid(MyDatabaseId);
}

/* zcount_flush: See zcount.h. */
void
zcount_flush(void)
{
	Place	   *place;

	if (!something_new())
		return;
	zcount_table_flush();
	place = my_place();
	for (int i = 0; i < ZCOUNT_KINDS; i++)
	{
		if (zcount_mine[i] == flushed.n[i])
			continue;
		pg_atomic_fetch_add_u64(&place->n[i], (int64) (zcount_mine[i] - flushed.n[i]));
		flushed.n[i] = zcount_mine[i];
	}
}

/* Adds what was kept back. An on_shmem_exit callback. */
static void
at_exit(int code, Datum arg)
{
	zcount_flush();
}

/*
 * zcount_at_xact_end: See zcount.h. Most transactions that read have nothing to
 * add, which costs one comparison of all counters.
 */
void
zcount_at_xact_end(void)
{
	TimestampTz now;

	if (!something_new())
		return;
	now = GetCurrentTransactionStopTimestamp();
	if (!zcount_table_is_new() && flushed.at != 0 &&
		!TimestampDifferenceExceeds(flushed.at, now, FLUSH_INTERVAL_MS))
		return;
	if (flushed.at == 0)
		on_shmem_exit(at_exit, (Datum) 0);
	flushed.at = now;
	zcount_flush();
}

/* Of zundo.last_statement. */
static struct
{
	bool		asked;			/* by the current statement */
	uint64		begin[ZCOUNT_TABLE_KINDS];	/* of the current statement */
	uint64		last_begin[ZCOUNT_TABLE_KINDS]; /* of the one asked for */
	uint64		last_end[ZCOUNT_TABLE_KINDS];
}			statement;

void
zcount_statement_begins(void)
{
	if (likely(!statement.asked))
	{
		memcpy(statement.last_begin, statement.begin, sizeof(statement.begin));
		memcpy(statement.last_end, zcount_mine, sizeof(statement.begin));
	}
	memcpy(statement.begin, zcount_mine, sizeof(statement.begin));
	statement.asked = false;
}

void
zcount_last_statement(uint64 *last)
{
	statement.asked = true;
	for (int i = 0; i < ZCOUNT_TABLE_KINDS; i++)
		last[i] = statement.last_end[i] - statement.last_begin[i];
}

void
zcount_kept(uint64 bytes)
{
	Place	   *place = my_place();
	uint64		peak = pg_atomic_read_u64(&place->peak);

	while (peak < bytes && !pg_atomic_compare_exchange_u64(&place->peak, &peak, bytes))
		;
}

uint64
zcount_total(ZCounter counter)
{
	return pg_atomic_read_u64(&my_place()->n[counter]);
}

/*
 * zcount_copy: See zcount.h. Takes no lock: at an immediate shutdown, when the
 * postmaster calls this, a process may have been ended with the lock held.
 */
int
zcount_copy(ZCounts **out)
{
	int			n = 0;

	*out = palloc(store->nplaces * sizeof(ZCounts));
	for (int i = 0; i < store->nplaces; i++)
	{
		Place	   *place = &store->places[i];
		ZCounts    *c = &(*out)[n];

		c->dboid = place->dboid;
		if (i > 0 && !OidIsValid(c->dboid))
			continue;
		c->reset = (TimestampTz) pg_atomic_read_u64(&place->reset);
		c->peak = pg_atomic_read_u64(&place->peak);
		for (int k = 0; k < ZCOUNT_KINDS; k++)
			c->n[k] = pg_atomic_read_u64(&place->n[k]);
		n++;
	}
	return n;
}

void
zcount_reset(Oid dboid)
{
	TimestampTz now = GetCurrentTimestamp();
	Place	   *place;

	SpinLockAcquire(&store->mutex);
	place = find(dboid);
	if (place != NULL)
		clear(place, now);
	SpinLockRelease(&store->mutex);
	zcount_table_drop(dboid, InvalidOid);
}

void
zcount_drop(Oid dboid)
{
	Place	   *place;

	SpinLockAcquire(&store->mutex);
	place = find(dboid);
	if (place != NULL)
		place->dboid = InvalidOid;
	SpinLockRelease(&store->mutex);
	zcount_table_drop(dboid, InvalidOid);
}

/* ---- shutdown and start ---- */

/*
 * Writes the counters to the file. An on_shmem_exit callback of the
 * postmaster, when all processes have ended. Without shared memory that can be
 * trusted, code is not 0.
 */
static void
save(int code, Datum arg)
{
	FileHeader	header = {FILE_MAGIC};
	ZCounts    *counts;
	ZTableCounts *tables;
	FILE	   *file;

	if (code != 0)
		return;
	header.ndatabases = zcount_copy(&counts);
	header.ntables = zcount_table_copy(InvalidOid, &tables);
	file = AllocateFile(FILE_NAME ".tmp", PG_BINARY_W);
	if (file != NULL &&
		fwrite(&header, sizeof(header), 1, file) == 1 &&
		fwrite(counts, sizeof(ZCounts), header.ndatabases, file) == header.ndatabases &&
		fwrite(tables, sizeof(ZTableCounts), header.ntables, file) == header.ntables)
	{
		int			failed = FreeFile(file);

		file = NULL;
		if (failed == 0 && durable_rename(FILE_NAME ".tmp", FILE_NAME, LOG) == 0)
			return;
	}
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not write file \"%s\": %m", FILE_NAME)));
	if (file != NULL)
		FreeFile(file);
	unlink(FILE_NAME ".tmp");
}

/*
 * Reads the counters that the last shutdown has saved, and removes the file:
 * after a crash it would be out of date.
 */
static void
load(void)
{
	FILE	   *file = AllocateFile(FILE_NAME, PG_BINARY_R);
	FileHeader	header;
	ZCounts		c;
	ZTableCounts t;
	int			at = 1;

	if (file == NULL)
		return;
	if (fread(&header, sizeof(header), 1, file) == 1 && header.magic == FILE_MAGIC)
	{
		for (int k = 0; k < header.ndatabases && fread(&c, sizeof(c), 1, file) == 1; k++)
		{
			Place	   *place = &store->places[OidIsValid(c.dboid) ? at++ : 0];

			if (at > store->nplaces)
			{
				at = store->nplaces;	/* zundo.max_databases was lowered */
				continue;
			}
			place->dboid = c.dboid;
			pg_atomic_write_u64(&place->reset, (uint64) c.reset);
			pg_atomic_write_u64(&place->peak, c.peak);
			for (int i = 0; i < ZCOUNT_KINDS; i++)
				pg_atomic_write_u64(&place->n[i], c.n[i]);
		}
		while (fread(&t, sizeof(t), 1, file) == 1)
			zcount_table_load(&t);
	}
	FreeFile(file);
	unlink(FILE_NAME);
}

/* zcount_shmem_startup: See zcount.h. */
void
zcount_shmem_startup(void)
{
	bool		found;

	store = ShmemInitStruct("zundo counters", zcount_shmem_size(), &found);
	if (!found)
	{
		TimestampTz now = GetCurrentTimestamp();

		SpinLockInit(&store->mutex);
		store->nplaces = zundo_max_databases + 1;
		for (int i = 0; i < store->nplaces; i++)
		{
			Place	   *place = &store->places[i];

			place->dboid = InvalidOid;
			pg_atomic_init_u64(&place->reset, 0);
			pg_atomic_init_u64(&place->peak, 0);
			for (int k = 0; k < ZCOUNT_KINDS; k++)
				pg_atomic_init_u64(&place->n[k], 0);
			clear(place, now);
		}
	}
	zcount_table_shmem_startup();
	if (!found)
		load();
	if (!IsUnderPostmaster)
		on_shmem_exit(save, (Datum) 0);
}
