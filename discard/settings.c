/*
 * discard/settings.c - settings of the server that the launcher and the
 * workers override.
 *
 * These settings are made for clients. A timeout would end a worker in the
 * middle of a long rollback again and again, and undo would never be
 * discarded; serializable transactions may have to wait for others. Pages that
 * cannot be read must raise an error, not count as empty. Comparison functions
 * must not find objects by a path that users can set. The server's own
 * autovacuum processes override such settings likewise.
 *
 * Locks: none. Crash points: none.
 */
#include "postgres.h"

#include "utils/guc.h"
#include "discard/discard_internal.h"

static const char *const forced[][2] = {
	{"statement_timeout", "0"},
	{"transaction_timeout", "0"},
	{"lock_timeout", "0"},
	{"idle_in_transaction_session_timeout", "0"},
	{"default_transaction_isolation", "read committed"},
	{"zero_damaged_pages", "off"},
	{"search_path", ""},
};

/*
 * zworkers_force_settings: See discard_internal.h. Skips settings that this
 * version of the server does not have.
 */
void
zworkers_force_settings(void)
{
	for (int i = 0; i < (int) lengthof(forced); i++)
		if (GetConfigOption(forced[i][0], true, false) != NULL)
			SetConfigOption(forced[i][0], forced[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}
