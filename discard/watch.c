/*
 * discard/watch.c - lines in the server's log when undo grows large or old, or
 * its disk gets full.
 *
 * Called by an undo worker in each of its cycles, in the cycle's transaction.
 * Each worker remembers in its ZWatch what it has logged; a new worker begins
 * anew. No locks, no crash points.
 */
#include "postgres.h"

#include <sys/statvfs.h>

#include "commands/dbcommands.h"
#include "common/relpath.h"
#include "miscadmin.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"
#include "discard/discard_internal.h"

#define WHERE_TO_LOOK	"See zundo.stat_horizon for what prevents undo from being discarded."

/*
 * Returns whether value has reached the setting and, if a value was logged
 * before (*told), is at least twice that one; then sets *told to value. Below
 * the setting resets *told to 0. A setting of -1 is never reached.
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
 * Returns sentences about the transaction, snapshot or slot that keeps the most
 * undo.
 */
static char *
describe_pin(void)
{
	ZXid		xid;
	char	   *who = zu_describe_pin(&xid);

	if (xid == InvalidZXid)
		return who;
	return psprintf("%s It keeps %llu kB.", who,
					(unsigned long long) zu_bytes_kept(zu_look_at_kept(), xid) / 1024);
}

/*
 * Returns a sentence about what keeps undo: what held `oldest` back in the
 * last pass, otherwise a transaction, a snapshot or a slot.
 */
static char *
describe_keeper(void)
{
	ZuHold		holds[ZU_MAX_HOLDS];
	char	   *table = NULL;

	if (zu_holds(holds) == 0 || holds[0].xid > zu_oldest())
		return describe_pin();
	switch (holds[0].kind)
	{
		case ZU_HOLD_ROLLBACK:
			if (OidIsValid(holds[0].reloid))
				table = get_rel_name(holds[0].reloid);
			if (table == NULL)
				return psprintf("The rollback of transaction " UINT64_FORMAT
								" prevents undo from being discarded.",
								(uint64) holds[0].xid);
			return psprintf("The rollback of transaction " UINT64_FORMAT
							", which %s table \"%s\", prevents undo from being discarded.%s%s",
							(uint64) holds[0].xid,
							holds[0].failed ? "has failed in" : "waits for a lock on", table,
							holds[0].failed ? "" : " ", holds[0].failed ? "" : describe_pin());
		case ZU_HOLD_LOCKS:
			return pstrdup("Row locks of transactions in progress prevent undo from being "
						   "discarded.");
		case ZU_HOLD_DAMAGE:
			return psprintf("Damage in undo log %u prevents undo from being discarded.",
							holds[0].logno);
	}
	return describe_pin();
}

/*
 * Logs how much space the disk of the undo log has left, if that is less than
 * zundo.log_disk_free and, if a value was logged before, at most half of it.
 */
static void
look_at_disk(ZWatch *watch)
{
	RelFileLocator locator = zu_relation_locator();
	struct statvfs disk;
	int			percent;

	if (zundo_log_disk_free < 0 ||
		statvfs(GetDatabasePath(locator.dbOid, locator.spcOid), &disk) != 0 || disk.f_blocks == 0)
		return;
	percent = (int) ((uint64) disk.f_bavail * 100 / disk.f_blocks);
	if (percent > zundo_log_disk_free)
		watch->disk_told = 0;
	else if (percent < zundo_log_disk_free &&
			 (watch->disk_told == 0 || percent + 1 <= watch->disk_told / 2))
	{
		watch->disk_told = percent + 1;
		ereport(LOG,
				(errmsg("disk of the undo log of database \"%s\" has %d%% of its space left",
						get_database_name(MyDatabaseId), percent),
				 errdetail("%s", describe_keeper()),
				 errhint(WHERE_TO_LOOK)));
	}
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
						get_database_name(MyDatabaseId)), errdetail("%s", describe_keeper()),
				 errhint(WHERE_TO_LOOK)));
	seconds = (uint64) (now - watch->since) / USECS_PER_SEC;
	look_at_disk(watch);
	if (bytes > 0 && is_news(seconds, zundo_log_undo_age, &watch->age_told))
		ereport(LOG,
				(errmsg("undo has been kept in database \"%s\" for %llu s",
						get_database_name(MyDatabaseId),
						(unsigned long long) seconds),
				 errdetail("%s", describe_keeper()),
				 errhint(WHERE_TO_LOOK)));
}
