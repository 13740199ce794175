/*
 * discard/settings.c - settings of the server that the launcher and the
 * workers do not obey.
 *
 * They are made for clients. A timeout would end a worker in the middle of a
 * long rollback again and again, and undo would never be given back;
 * serializable transactions may have to wait for those of others. The server's
 * own autovacuum processes leave them aside likewise. Locks: none. Crash
 * points: none.
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
};

/*
 * zworkers_force_settings: see workers_internal.h. Not every server has all of
 * them.
 */
void
zworkers_force_settings(void)
{
	for (int i = 0; i < (int) lengthof(forced); i++)
		if (GetConfigOption(forced[i][0], true, false) != NULL)
			SetConfigOption(forced[i][0], forced[i][1], PGC_SUSET, PGC_S_OVERRIDE);
}
