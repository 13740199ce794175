/*
 * common/zcount_table.c - what is counted of each table, and of each index that
 * makes rows move.
 *
 * Owns the shared counters of zundo.max_stat_tables of both. While a table is
 * read or changed, zcount_table has made it the one to which belongs what is
 * counted: that is added to the process's own counters of it when another
 * table follows, and to shared memory when these are flushed. If all places
 * are taken, a table that was not used for a long time loses its place, as
 * buffers do: the clock's hand passes those used since it came by last.
 *
 * Locks: an LWLock to find (shared), give out and take back (exclusive) places,
 * when the process does not know a table's place, and a spinlock of each place,
 * once for each table and flush; more often if tables share an element of
 * 'pending'. Crash points: none.
 */
#include "postgres.h"

#include "common/compat.h"
#include "common/zcount.h"
#include "common/zundo.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/pg_bitutils.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"

typedef struct Place
{
	slock_t		mutex;			/* for all but next */
	bool		used;			/* since the hand came by */
	int			next;			/* in its bucket, or among the free ones */
	ZTableCounts counts;		/* relid 0 = free; written with the LWLock */
} Place;

/* Places are numbered from 1; 0 is none. */
typedef struct Store
{
	LWLock		lock;
	int			tranche;
	int			nplaces;
	int			free;			/* the first free one */
	int			hand;			/* the last one that it came by */
	Place		places[FLEXIBLE_ARRAY_MEMBER];	/* then as many buckets, ints */
} Store;

/* What this process has counted of a table since the last flush. */
typedef struct Pending
{
	Oid			relid;
	int			place;			/* where the table was last, or 0 */
	uint64		n[ZCOUNT_TABLE_COLUMNS];
} Pending;

#define NPENDING 64				/* each table has two, by a hash of its OID */

ZCountScope zcount_scope;
ZCountScope zcount_reader;

static struct
{
	uint64		begin[ZCOUNT_TABLE_KINDS];	/* of the scope */
	Pending		pending[NPENDING];
	uint64		touched;		/* those that have counted something */
	Store	   *store;
}			my;

Size
zcount_table_shmem_size(void)
{
	return add_size(offsetof(Store, places),
					mul_size(zundo_max_stat_tables, sizeof(Place) + sizeof(int)));
}

static inline Place *
place_at(int number)
{
	Assert(number > 0 && number <= my.store->nplaces);
	return &my.store->places[number - 1];
}

/* Returns the first place of the table's bucket. */
static int *
bucket(Oid dboid, Oid relid)
{
	int		   *buckets = (int *) &my.store->places[my.store->nplaces];

	return &buckets[hash_combine(murmurhash32(dboid), murmurhash32(relid)) % my.store->nplaces];
}

/* Returns the table's place, or 0. LWLock held. */
static int
find(Oid dboid, Oid relid)
{
	int			number = *bucket(dboid, relid);

	while (number != 0 && (place_at(number)->counts.dboid != dboid ||
						   place_at(number)->counts.relid != relid))
		number = place_at(number)->next;
	return number;
}

/* Takes a table's place back. LWLock held exclusively. */
static void
take_back(int number)
{
	Place	   *place = place_at(number);
	int		   *link = bucket(place->counts.dboid, place->counts.relid);

	while (*link != number)
		link = &place_at(*link)->next;
	*link = place->next;
	SpinLockAcquire(&place->mutex);
	place->counts.relid = InvalidOid;
	SpinLockRelease(&place->mutex);
	place->next = my.store->free;
	my.store->free = number;
}

/* Gives a table a place, if need be another's. LWLock held exclusively. */
static int
give_out(const ZTableCounts *counts)
{
	Place	   *place;
	int			number;
	int		   *first;

	while (my.store->free == 0)
	{
		my.store->hand = my.store->hand % my.store->nplaces + 1;
		place = place_at(my.store->hand);
		if (place->used)
		{
			place->used = false;
			continue;
		}
		take_back(my.store->hand);
		zcount(ZCOUNT_TABLES_EVICTED, 1);
	}
	number = my.store->free;
	place = place_at(number);
	my.store->free = place->next;
	first = bucket(counts->dboid, counts->relid);
	place->next = *first;
	*first = number;
	SpinLockAcquire(&place->mutex);
	place->counts = *counts;
	place->used = true;
	SpinLockRelease(&place->mutex);
	return number;
}

/*
 * Adds p to the place where its table was last. Returns false if the table is
 * not there.
 */
static bool
add_to_place(const Pending *p)
{
	Place	   *place;
	bool		same;

	if (p->place == 0)
		return false;
	place = place_at(p->place);
	SpinLockAcquire(&place->mutex);
	same = place->counts.relid == p->relid && place->counts.dboid == MyDatabaseId;
	if (same)
	{
		for (int k = 0; k < ZCOUNT_TABLE_COLUMNS; k++)
			place->counts.n[k] += p->n[k];
		place->used = true;
	}
	SpinLockRelease(&place->mutex);
	return same;
}

/*
 * Adds p to the shared counters of its table, and sets its own to 0. A table
 * that has lost the place that it had may have been dropped since, and gets no
 * other one before something new is counted of it.
 */
static void
flush_one(Pending *p)
{
	bool		had_place = p->place != 0;

	for (LWLockMode mode = LW_SHARED; !add_to_place(p); mode = LW_EXCLUSIVE)
	{
		LWLockAcquire(&my.store->lock, mode);
		p->place = find(MyDatabaseId, p->relid);
		if (p->place == 0 && mode == LW_EXCLUSIVE)
		{
			ZTableCounts counts = {MyDatabaseId, p->relid};

			p->place = give_out(&counts);
		}
		LWLockRelease(&my.store->lock);
		if (p->place == 0 && had_place)
			break;
	}
	memset(p->n, 0, sizeof(p->n));
	my.touched &= ~(UINT64CONST(1) << (p - my.pending));
}

/* Returns the process's own counters of a table, for changing them. */
static Pending *
pending_of(Oid relid)
{
	int			at = murmurhash32(relid) % NPENDING;
	Pending    *p = &my.pending[at];
	uint64		bit;

	/* with another table there, its neighbour */
	if (p->relid != relid && OidIsValid(p->relid))
		p = &my.pending[at ^ 1];
	bit = UINT64CONST(1) << (p - my.pending);
	if (p->relid != relid)
	{
		if ((my.touched & bit) != 0)
			flush_one(p);
		p->relid = relid;
		p->place = 0;
	}
	my.touched |= bit;
	return p;
}

/* zcount_index_moved: See zcount.h. */
void
zcount_index_moved(Oid index)
{
	if (my.store != NULL && OidIsValid(MyDatabaseId))
		pending_of(index)->n[ZCOUNT_MOVED]++;
}

/* Adds what was counted since the table was entered to the table's. */
static void
close_scope(void)
{
	Pending    *p;

	if (likely(memcmp(my.begin, zcount_mine, sizeof(my.begin)) == 0))
		return;
	if (zcount_scope.counted && my.store != NULL && OidIsValid(MyDatabaseId))
	{
		p = pending_of(zcount_scope.relid);
		for (int k = 0; k < ZCOUNT_TABLE_KINDS; k++)
			p->n[k] += zcount_mine[k] - my.begin[k];
		if (zcount_scope.by_index)
		{
			p->n[ZCOUNT_TABLE_READ] += zcount_mine[ZCOUNT_READ] - my.begin[ZCOUNT_READ];
			p->n[ZCOUNT_TABLE_REBUILT] += zcount_mine[ZCOUNT_REBUILT] - my.begin[ZCOUNT_REBUILT];
		}
	}
	memcpy(my.begin, zcount_mine, sizeof(my.begin));
}

void
zcount_enter_table(Oid relid, bool counted)
{
	close_scope();
	zcount_scope.relid = relid;
	zcount_scope.by_index = false;
	zcount_scope.counted = counted && OidIsValid(relid);
	zcount_reader = zcount_scope;
}

/*
 * zcount_enter_reader: does the same for the table that zcount_reads has named.
 */
void
zcount_enter_reader(void)
{
	close_scope();
	zcount_scope = zcount_reader;
}

void
zcount_table_flush(void)
{
	close_scope();
	while (my.touched != 0)
		flush_one(&my.pending[pg_rightmost_one_pos64(my.touched)]);
}

bool
zcount_table_is_new(void)
{
	for (uint64 rest = my.touched; rest != 0; rest &= rest - 1)
		if (my.pending[pg_rightmost_one_pos64(rest)].place == 0)
			return true;
	return false;
}

void
zcount_table_drop(Oid dboid, Oid relid)
{
	int			number = 0;

	if (my.store == NULL)
		return;
	if (OidIsValid(relid))
	{
		LWLockAcquire(&my.store->lock, LW_SHARED);
		number = find(dboid, relid);
		LWLockRelease(&my.store->lock);
		if (number == 0)
			return;
	}
	LWLockAcquire(&my.store->lock, LW_EXCLUSIVE);
	if (OidIsValid(relid))
	{
		number = find(dboid, relid);
		if (number != 0)
			take_back(number);
	}
	else
		for (int i = 1; i <= my.store->nplaces; i++)
			if (OidIsValid(place_at(i)->counts.relid) && place_at(i)->counts.dboid == dboid)
				take_back(i);
	LWLockRelease(&my.store->lock);
}

/*
 * zcount_table_copy: See zcount.h. Takes no lock but those of the places, and
 * none for all databases: at an immediate shutdown, when the postmaster calls
 * this, a process may have been ended with one held.
 */
int
zcount_table_copy(Oid dboid, ZTableCounts **out)
{
	int			n = 0;

	*out = palloc((my.store != NULL ? my.store->nplaces : 0) * sizeof(ZTableCounts));
	for (int i = 1; my.store != NULL && i <= my.store->nplaces; i++)
	{
		Place	   *place = place_at(i);

		if (OidIsValid(dboid))
			SpinLockAcquire(&place->mutex);
		(*out)[n] = place->counts;
		if (OidIsValid(dboid))
			SpinLockRelease(&place->mutex);
		if (OidIsValid((*out)[n].relid) && (!OidIsValid(dboid) || (*out)[n].dboid == dboid))
			n++;
	}
	return n;
}

void
zcount_table_load(const ZTableCounts *counts)
{
	if (my.store != NULL && my.store->free != 0)
		(void) give_out(counts);
}

/* zcount_table_shmem_startup: See zcount.h. */
void
zcount_table_shmem_startup(void)
{
	bool		found;

	if (zundo_max_stat_tables == 0)
		return;
	my.store = ShmemInitStruct("zundo counters of tables", zcount_table_shmem_size(), &found);
	if (!found)
	{
		memset(my.store, 0, zcount_table_shmem_size());
		my.store->tranche = zc_new_tranche("zundo_stat_tables");
		LWLockInitialize(&my.store->lock, my.store->tranche);
		my.store->nplaces = zundo_max_stat_tables;
		for (int i = my.store->nplaces; i > 0; i--)
		{
			SpinLockInit(&place_at(i)->mutex);
			place_at(i)->next = my.store->free;
			my.store->free = i;
		}
	}
	zc_register_tranche(my.store->tranche, "zundo_stat_tables");
}
