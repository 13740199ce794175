/*
 * undo/undo_map.c - reading the extent map.
 *
 * Called at load, by scans of logs, by undo_overflow.c, and by readers that do
 * not find a record.
 *
 * Locks: fence (shared) -> map page (shared). Crash points: none; reads only.
 */
#include "undo/undo_internal.h"

#include "miscadmin.h"
#include "utils/memutils.h"

/* Compares two extents by log number, then by sequence. */
static int
compare_by_sequence(const void *a, const void *b)
{
	const ZuExtent *x = (const ZuExtent *) a;
	const ZuExtent *y = (const ZuExtent *) b;

	if (x->logno != y->logno)
		return x->logno < y->logno ? -1 : 1;
	if (x->sequence != y->sequence)
		return x->sequence < y->sequence ? -1 : 1;
	return 0;
}

/*
 * Copies the map page of extent's group to dst; false if the page was cut off.
 */
static bool
copy_map_page(uint32 extent, char *dst)
{
	bool		taken = zu_fence_enter();
	bool		there = false;

	/* the tail may be truncated while the caller goes through the map */
	if (extent < pg_atomic_read_u32(&zu_my.entry->limit))
	{
		there = true;
		/* the second twin may lie in a part that the file has lost */
		if (!zu_twins_copy(zu_map_block(extent), dst))
			zu_twins_report_lost(zu_map_block(extent));
	}
	zu_fence_leave(taken);
	return there;
}

/*
 * zu_collect_extents: See undo_entry.h. Reads one copied map page after the
 * other, so the result is not a snapshot of the whole map.
 */
ZuExtent *
zu_collect_extents(int logno, uint64 from, int *n)
{
	int			capacity = 64;
	ZuExtent   *result = palloc(capacity * sizeof(ZuExtent));
	uint32		limit = pg_atomic_read_u32(&zu_my.entry->limit);
	PGAlignedBlock copy;

	*n = 0;
	for (uint32 extent = 0; extent < limit; extent++)
	{
		ZuMapEntry *map;

		if (extent % ZU_GROUP_EXTENTS == 0)
		{
			CHECK_FOR_INTERRUPTS();
			if (!copy_map_page(extent, copy.data))
			{
				extent += ZU_GROUP_EXTENTS - 1;
				continue;
			}
		}
		map = zu_map_entry((Page) copy.data, extent);
		if (map->state != ZU_EXTENT_LOG ||
			(logno >= 0 && (map->logno != logno || map->sequence < from)))
			continue;
		if (*n == capacity)
		{
			capacity *= 2;
			result = repalloc_huge(result, capacity * sizeof(ZuExtent));
		}
		result[*n].sequence = map->sequence;
		result[*n].extent = extent;
		result[*n].generation = map->generation;
		result[*n].logno = map->logno;
		result[*n].resolved = map->resolved != 0;
		result[*n].end = map->end;
		result[*n].oldest_top = map->oldest_top;
		result[*n].newest = map->newest;
		(*n)++;
	}
	qsort(result, *n, sizeof(ZuExtent), compare_by_sequence);
	return result;
}

/* Returns whether both twins of the map page of extent's group are damaged. */
static bool
is_map_lost(uint32 extent)
{
	bool		taken = zu_fence_enter();
	uint32		limit = pg_atomic_read_u32(&zu_my.entry->limit);
	bool		lost = extent < limit && zu_twins_lost(zu_map_block(extent));

	zu_fence_leave(taken);
	return lost;
}

/*
 * zu_any_log_extent: See undo_internal.h. Raises no error for a lost map page,
 * because sessions that only read tables call it too when they attach, and they
 * do not depend on the map.
 */
bool
zu_any_log_extent(void)
{
	uint32		limit = pg_atomic_read_u32(&zu_my.entry->limit);
	PGAlignedBlock copy;

	for (uint32 first = 0; first < limit; first += ZU_GROUP_EXTENTS)
	{
		CHECK_FOR_INTERRUPTS();
		if (is_map_lost(first))
			return true;		/* the lost page may have named one */
		if (!copy_map_page(first, copy.data))
			continue;
		for (uint32 extent = first; extent < Min(limit, first + ZU_GROUP_EXTENTS); extent++)
			if (zu_map_entry((Page) copy.data, extent)->state == ZU_EXTENT_LOG)
				return true;
	}
	return false;
}

/*
 * zu_collect_overflow: See undo_internal.h. Reads one copied map page after
 * the other.
 */
uint32 *
zu_collect_overflow(int *n)
{
	int			capacity = 16;
	uint32	   *result = palloc(capacity * sizeof(uint32));
	uint32		limit = pg_atomic_read_u32(&zu_my.entry->limit);
	PGAlignedBlock copy;

	*n = 0;
	for (uint32 extent = 0; extent < limit; extent++)
	{
		if (extent % ZU_GROUP_EXTENTS == 0)
		{
			CHECK_FOR_INTERRUPTS();
			if (!copy_map_page(extent, copy.data))
			{
				extent += ZU_GROUP_EXTENTS - 1;
				continue;
			}
		}
		if (zu_map_entry((Page) copy.data, extent)->state != ZU_EXTENT_OVERFLOW)
			continue;
		if (*n == capacity)
		{
			capacity *= 2;
			result = repalloc_huge(result, capacity * sizeof(uint32));
		}
		result[(*n)++] = extent;
	}
	return result;
}

bool
zu_is_overflow_extent(uint32 extent)
{
	Buffer		buf = zu_twins_share(zu_map_block(extent));
	bool		is = zu_map_entry(BufferGetPage(buf), extent)->state == ZU_EXTENT_OVERFLOW;

	Assert(LWLockHeldByMe(zu_my_fence()));	/* UNDO-4b */
	UnlockReleaseBuffer(buf);
	return is;
}

/*
 * zu_read_map_entry: See undo_internal.h. Checks the limit with the fence held,
 * since the map page may be cut off with the tail (UNDO-4b).
 */
bool
zu_read_map_entry(uint32 extent, ZuMapEntry *dst)
{
	bool		taken = zu_fence_enter();
	bool		exists = false;

	if (extent < pg_atomic_read_u32(&zu_my.entry->limit))
	{
		Buffer		buf = zu_twins_share(zu_map_block(extent));

		*dst = *zu_map_entry(BufferGetPage(buf), extent);
		UnlockReleaseBuffer(buf);
		exists = true;
	}
	zu_fence_leave(taken);
	return exists;
}

bool
zu_extent_live(const ZuExtent *e)
{
	ZuMapEntry	map;

	return zu_read_map_entry(e->extent, &map) && map.state == ZU_EXTENT_LOG &&
		map.logno == e->logno &&
		map.generation == e->generation && map.sequence == e->sequence;
}

/* zu_report_changed_map: See undo_entry.h. Names both copies of the page. */
void
zu_report_changed_map(uint32 extent)
{
	BlockNumber first = zu_map_block(extent);

	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("extent map of relation \"%s\" is not as it was written", "zundo.undo_log"),
			 errdetail("Blocks %u and %u contradict what is known of extent %u.",
					   zu_twin_block(first, 0), zu_twin_block(first, 1), extent),
			 errhint("Both copies of the map have missed writes. Check the storage of this "
					 "database, restart the server, and see zundo.repair_undo().")));
}
