/*
 * common/guc.c - the settings zundo.*.
 *
 * Owns the GUC variables of zundo.h. Called by zundo.c when the library is
 * loaded. Takes no lock, has no crash point.
 */
#include "postgres.h"

#include "common/fault.h"
#include "common/zundo.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/varlena.h"

int			zundo_undo_compression = ZUNDO_COMPRESS_LZ4;
int			zundo_max_databases = 64;
int			zundo_eager_rollback_pages = 32;
int			zundo_undo_limit = 0;
int			zundo_undo_full = ZUNDO_FULL_ERROR;
int			zundo_undo_full_timeout = 60000;
char	   *zundo_undo_full_exempt = NULL;
int			zundo_log_undo_size = 1024;
int			zundo_log_undo_age = 3600;
bool		zundo_drop_rows_with_extension = false;
int			zundo_undecodable_changes = ZUNDO_UNDECODABLE_ERROR;
bool		zundo_allow_xmin_comparison = false;
bool		zundo_allow_ctid_guard = false;

#ifdef ZUNDO_TESTING
bool		zundo_move_updates = false;
char	   *zundo_fault_spec = NULL;
#endif

static const struct config_enum_entry compression_options[] = {
	{"lz4", ZUNDO_COMPRESS_LZ4, false},
	{"none", ZUNDO_COMPRESS_NONE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry full_options[] = {
	{"error", ZUNDO_FULL_ERROR, false},
	{"wait", ZUNDO_FULL_WAIT, false},
	{"cancel", ZUNDO_FULL_CANCEL, false},
	{NULL, 0, false}
};

static const struct config_enum_entry undecodable_options[] = {
	{"error", ZUNDO_UNDECODABLE_ERROR, false},
	{"skip", ZUNDO_UNDECODABLE_SKIP, false},
	{NULL, 0, false}
};

/*
 * check_names: check hook that accepts any list of names. The roles of these
 * names are looked up when they are needed.
 */
static bool
check_names(char **newval, void **extra, GucSource source)
{
	char	   *names = pstrdup(*newval);
	List	   *list;
	bool		sound = SplitIdentifierString(names, ',', &list);

	Assert(names != NULL);
	if (!sound)
		GUC_check_errdetail("List syntax is invalid.");
	list_free(list);
	pfree(names);
	return sound;
}

#ifdef ZUNDO_TESTING

/* check_fault: check hook that refuses unknown fault points and actions. */
static bool
check_fault(char **newval, void **extra, GucSource source)
{
	const char *problem = *newval ? zundo_fault_problem(*newval) : NULL;

	if (problem == NULL)
		return true;
	GUC_check_errdetail("%s", problem);
	return false;
}

/* assign_fault: assign hook that restarts the counts of fault points. */
static void
assign_fault(const char *newval, void *extra)
{
	zundo_fault_reset();
}

/*
 * define_test_gucs: defines the settings that only builds for tests have.
 * SHOW ALL does not list them.
 */
static void
define_test_gucs(void)
{
	DefineCustomBoolVariable("zundo.move_updates",
							 "Every update gives its row a new place, as on heap, for tests.",
							 NULL,
							 &zundo_move_updates,
							 false,
							 PGC_USERSET,
							 GUC_NOT_IN_SAMPLE | GUC_NO_SHOW_ALL,
							 NULL, NULL, NULL);

	DefineCustomStringVariable("zundo.fault",
							   "Places where processes fail on purpose, for tests.",
							   "A list of name:action or name:action:number (only that time); "
							   "actions are error, disk, memory, cancel, crash and sleep.",
							   &zundo_fault_spec,
							   "",
							   PGC_SUSET,
							   GUC_NOT_IN_SAMPLE | GUC_NO_SHOW_ALL,
							   check_fault, assign_fault, NULL);
}

#endif

/*
 * zundo_define_gucs: defines the settings. zundo.max_databases, which sizes
 * shared memory, is defined only while shared_preload_libraries are loaded,
 * since the server refuses to define such a setting later with a FATAL error.
 */
void
zundo_define_gucs(void)
{
	DefineCustomEnumVariable("zundo.undo_compression",
							 "Compression of undo records.",
							 "Applies to records written from now on, where it makes them smaller.",
							 &zundo_undo_compression,
							 ZUNDO_COMPRESS_LZ4,
							 compression_options,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	if (process_shared_preload_libraries_in_progress)
		DefineCustomIntVariable("zundo.max_databases",
								"Number of databases whose zheap tables can be written at the "
								"same time.",
								"All can be read.",
								&zundo_max_databases,
								64, 1, 10000,
								PGC_POSTMASTER,
								0,
								NULL, NULL, NULL);

	DefineCustomIntVariable("zundo.eager_rollback_pages",
							"Largest rollback, in table pages, that a session undoes itself.",
							"Larger ones are left to a worker. 0 leaves all of them.",
							&zundo_eager_rollback_pages,
							32, 0, 1024,
							PGC_USERSET,
							0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("zundo.undo_limit",
							"Most undo that a database may keep.",
							"What writers do beyond it is zundo.undo_full. 0 means no limit.",
							&zundo_undo_limit,
							0, 0, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MB,
							NULL, NULL, NULL);

	DefineCustomEnumVariable("zundo.undo_full",
							 "What a writer does when zundo.undo_limit is reached.",
							 "Fail, wait for room, or also cancel the transactions that keep undo "
							 "from being discarded.",
							 &zundo_undo_full,
							 ZUNDO_FULL_ERROR,
							 full_options,
							 PGC_SUSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("zundo.undo_full_timeout",
							"Longest time that a writer waits for room when zundo.undo_limit is "
							"reached.",
							"It fails then. 0 means no limit.",
							&zundo_undo_full_timeout,
							60000, 0, INT_MAX,
							PGC_USERSET,
							GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomEnumVariable("zundo.undecodable_changes",
							 "What logical decoding does at a change of a zheap table.",
							 "Fail, or leave the change out. Counts in the session that reads the "
							 "slot.",
							 &zundo_undecodable_changes,
							 ZUNDO_UNDECODABLE_ERROR,
							 undecodable_options,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomStringVariable("zundo.undo_full_exempt",
							   "Roles whose sessions zundo.undo_full = cancel leaves alone.",
							   "A list of names; members of these roles too. \"superusers\" means "
							   "all superusers.",
							   &zundo_undo_full_exempt,
							   ZUNDO_SUPERUSERS,
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   check_names, NULL, NULL);

	DefineCustomIntVariable("zundo.log_undo_size",
							"Undo of a database from which on a line is logged.",
							"And again each time that it has doubled. -1 logs none.",
							&zundo_log_undo_size,
							1024, -1, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MB,
							NULL, NULL, NULL);

	DefineCustomIntVariable("zundo.log_undo_age",
							"Time for which undo is kept from being discarded, from which on a "
							"line is logged.",
							"And again each time that it has doubled. -1 logs none.",
							&zundo_log_undo_age,
							3600, -1, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("zundo.allow_xmin_comparison",
							 "Queries may compare xmin of zheap tables.",
							 "They will find changes where there are none: xmin of a row that is "
							 "not new changes by itself.",
							 &zundo_allow_xmin_comparison,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("zundo.allow_ctid_guard",
							 "UPDATE and DELETE may name a row of a zheap table by a ctid from "
							 "outside the statement.",
							 "The row may have been changed since its ctid was read.",
							 &zundo_allow_ctid_guard,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("zundo.drop_rows_with_extension",
							 "DROP EXTENSION zundo CASCADE drops zheap tables that hold rows.",
							 "Otherwise it is refused while there are any.",
							 &zundo_drop_rows_with_extension,
							 false,
							 PGC_SUSET,
							 0,
							 NULL, NULL, NULL);

#ifdef ZUNDO_TESTING
	define_test_gucs();
#endif
	MarkGUCPrefixReserved("zundo");
}
