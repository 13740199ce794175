/*
 * discard/watch.c - lines in the server's log when undo grows large or old.
 *
 * Called by an undo worker in each of its cycles, in the cycle's transaction.
 * Each worker remembers in its ZWatch what it has logged; a new worker begins
 * anew. No locks, no crash points.
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "discard/discard_internal.h"

#define WHERE_TO_LOOK	"See zundo.stat_horizon for what prevents undo from being discarded."

/*
 * is_news: Returns whether value has reached the setting and, if a value was
 * logged before (*told), is at least twice that one; then sets *told to value.
 * Below the setting resets *told to 0. A setting of -1 is never reached.
 */
static bool
is_news(uint64 value, int64 setting, uint64 *told)
{
	if (setting < 0 || value < (uint64) setting)
	{
		*told = 0;
		return false;
	}
	if (*told != 0 && value / 2 < *told)
		return false;
	*told = Max(value, 1);
	return true;
}

/*
 * zwatch_look: See discard_internal.h. Age is measured from the last change of
 * `oldest`, or from the last cycle in which no undo was kept.
 */
void
zwatch_look(ZWatch *watch, uint64 bytes)
{
	TimestampTz now = GetCurrentTimestamp();
	ZXid		oldest = zu_oldest();
	uint64		seconds;

	if (bytes == 0 || oldest != watch->oldest)
	{
		watch->oldest = oldest;
		watch->since = now;
		watch->age_told = 0;
	}
	if (is_news(bytes / (1024 * 1024), zundo_log_undo_size, &watch->size_told))
		ereport(LOG,
				(errmsg("%llu MB of undo are kept in database \"%s\"",
						(unsigned long long) (bytes / (1024 * 1024)),
						get_database_name(MyDatabaseId)), errdetail("%s", zu_describe_pin()),
				 errhint(WHERE_TO_LOOK)));
	seconds = (uint64) (now - watch->since) / USECS_PER_SEC;
	if (bytes > 0 && is_news(seconds, zundo_log_undo_age, &watch->age_told))
		ereport(LOG,
				(errmsg("undo has been kept in database \"%s\" for %llu s",
						get_database_name(MyDatabaseId),
						(unsigned long long) seconds),
				 errdetail("%s", zu_describe_pin()),
				 errhint(WHERE_TO_LOOK)));
}
