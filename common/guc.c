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
int			zundo_max_stat_tables = 1000;
int			zundo_eager_rollback_pages = 32;
int			zundo_undo_limit = 0;
int			zundo_undo_full = ZUNDO_FULL_ERROR;
int			zundo_undo_full_timeout = 60000;
char	   *zundo_undo_full_exempt = NULL;
int			zundo_log_undo_size = 1024;
int			zundo_log_undo_age = 3600;
int			zundo_log_disk_free = 10;
int			zundo_history_interval = 60000;
int			zundo_history_size = 1440;
bool		zundo_drop_rows_with_extension = false;
bool		zundo_allow_ctid_guard = false;
int			zundo_default_index = ZUNDO_BTREE;
int			zundo_key_queue = 8192;
double		zundo_index_expression_cost = 1000;
bool		zundo_explain_undo = false;

#ifdef ZUNDO_TESTING
bool		zundo_move_updates = false;
bool		zundo_swap_btree = false;
char	   *zundo_fault_spec = NULL;
#endif

static const struct config_enum_entry compression_options[] = {
	{"lz4", ZUNDO_COMPRESS_LZ4, false},
	{"none", ZUNDO_COMPRESS_NONE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry index_options[] = {
	{"btree", ZUNDO_BTREE, false},
	{"zbtree", ZUNDO_ZBTREE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry full_options[] = {
	{"error", ZUNDO_FULL_ERROR, false},
	{"wait", ZUNDO_FULL_WAIT, false},
	{"cancel", ZUNDO_FULL_CANCEL, false},
	{NULL, 0, false}
};

/*
 * Accepts any list of names: check hook of zundo.undo_full_exempt. The roles
 * of these names are looked up when they are needed.
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

/* Refuses unknown fault points and actions: check hook of zundo.fault. */
static bool
check_fault(char **newval, void **extra, GucSource source)
{
	const char *problem = *newval ? zundo_fault_problem(*newval) : NULL;

	if (problem == NULL)
		return true;
	GUC_check_errdetail("%s", problem);
	return false;
}

/* Restarts the counts of fault points: assign hook of zundo.fault. */
static void
assign_fault(const char *newval, void *extra)
{
	zundo_fault_reset();
}

/*
 * Defines the settings that only builds for tests have. SHOW ALL does not list
 * them.
 */
static void
define_test_gucs(void)
{
	DefineCustomBoolVariable("zundo.move_updates",
							 "Makes every update give its row a new place, as on heap, for tests.",
							 NULL,
							 &zundo_move_updates,
							 false,
							 PGC_USERSET,
							 GUC_NOT_IN_SAMPLE | GUC_NO_SHOW_ALL,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("zundo.swap_btree",
							 "Makes indexes of zheap tables zbtree that are said to be "
							 "btree, for tests.",
							 NULL,
							 &zundo_swap_btree,
							 false,
							 PGC_USERSET,
							 GUC_NOT_IN_SAMPLE | GUC_NO_SHOW_ALL,
							 NULL, NULL, NULL);

	DefineCustomStringVariable("zundo.fault",
							   "Sets places where processes fail on purpose, for tests.",
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
 * Defines the settings of the undo log. Those that size shared memory are
 * defined only while shared_preload_libraries are loaded, since the server
 * refuses to define such a setting later with a FATAL error.
 */
static void
define_undo_gucs(void)
{
	DefineCustomEnumVariable("zundo.undo_compression",
							 "Sets the compression method for undo records.",
							 "A record is compressed only if that makes it smaller.",
							 &zundo_undo_compression,
							 ZUNDO_COMPRESS_LZ4,
							 compression_options,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	if (process_shared_preload_libraries_in_progress)
	{
		DefineCustomIntVariable("zundo.max_databases",
								"Sets the maximum number of databases whose zheap tables can be "
								"written at the same time.",
								"The zheap tables of all databases can be read.",
								&zundo_max_databases,
								64, 1, 10000,
								PGC_POSTMASTER,
								0,
								NULL, NULL, NULL);

		DefineCustomIntVariable("zundo.max_stat_tables",
								"Sets the maximum number of tables in zundo.stat_tables.",
								"0 disables it.",
								&zundo_max_stat_tables,
								1000, 0, 1000000,
								PGC_POSTMASTER,
								0,
								NULL, NULL, NULL);

		DefineCustomIntVariable("zundo.key_queue",
								"Sets the amount of shared memory that holds stale keys of zbtree "
								"indexes until the worker removes their entries.",
								"Keys for which it has no space are left to VACUUM. 0 leaves "
								"all to VACUUM.",
								&zundo_key_queue,
								8192, 0, 1024 * 1024,
								PGC_POSTMASTER,
								GUC_UNIT_KB,
								NULL, NULL, NULL);
	}

	DefineCustomIntVariable("zundo.eager_rollback_pages",
							"Sets the maximum number of table pages of a rollback that the "
							"session undoes itself.",
							"Larger rollbacks are left to a worker. 0 leaves all rollbacks to a "
							"worker.",
							&zundo_eager_rollback_pages,
							32, 0, 1024,
							PGC_USERSET,
							0,
							NULL, NULL, NULL);
}

/* Defines the settings for what happens when undo cannot be discarded. */
static void
define_full_gucs(void)
{
	DefineCustomIntVariable("zundo.undo_limit",
							"Sets the maximum amount of undo that a database may keep.",
							"\"zundo.undo_full\" determines what writers do at the limit. 0 means "
							"no limit.",
							&zundo_undo_limit,
							0, 0, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MB,
							NULL, NULL, NULL);

	DefineCustomEnumVariable("zundo.undo_full",
							 "Sets what a writer does when \"zundo.undo_limit\" is reached.",
							 "It fails, waits for space, or also cancels the transactions that "
							 "prevent undo from being discarded.",
							 &zundo_undo_full,
							 ZUNDO_FULL_ERROR,
							 full_options,
							 PGC_SUSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("zundo.undo_full_timeout",
							"Sets the maximum time that a writer waits for space when "
							"\"zundo.undo_limit\" is reached.",
							"The writer fails afterwards. 0 means no limit.",
							&zundo_undo_full_timeout,
							60000, 0, INT_MAX,
							PGC_USERSET,
							GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomStringVariable("zundo.undo_full_exempt",
							   "Sets the roles whose sessions are not canceled when "
							   "\"zundo.undo_limit\" is reached.",
							   "Members of these roles are included. \"superusers\" means all "
							   "superusers.",
							   &zundo_undo_full_exempt,
							   ZUNDO_SUPERUSERS,
							   PGC_SIGHUP,
							   GUC_LIST_INPUT,
							   check_names, NULL, NULL);

	DefineCustomIntVariable("zundo.log_undo_size",
							"Sets the amount of undo of a database above which a message is "
							"logged.",
							"The message is repeated each time the value has doubled. -1 disables "
							"it.",
							&zundo_log_undo_size,
							1024, -1, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MB,
							NULL, NULL, NULL);

	DefineCustomIntVariable("zundo.log_undo_age",
							"Sets the time above which a message is logged if undo cannot be "
							"discarded.",
							"The message is repeated each time the value has doubled. -1 disables "
							"it.",
							&zundo_log_undo_age,
							3600, -1, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomIntVariable("zundo.log_disk_free",
							"Sets the percentage of free space below which a message is logged, on "
							"the disk of an undo log.",
							"The message is repeated each time the value has halved. -1 disables "
							"it.",
							&zundo_log_disk_free,
							10, -1, 100,
							PGC_SIGHUP,
							0,
							NULL, NULL, NULL);
}

/* Defines the settings of zundo.undo_history. */
static void
define_history_gucs(void)
{
	DefineCustomIntVariable("zundo.history_interval",
							"Sets the time between two samples of zundo.undo_history.",
							"0 disables it.",
							&zundo_history_interval,
							60000, 0, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable("zundo.history_size",
							"Sets the number of samples that zundo.undo_history keeps of each "
							"database.",
							NULL,
							&zundo_history_size,
							1440, 1, 100000,
							PGC_SIGHUP,
							0,
							NULL, NULL, NULL);
}

/* Defines the settings for statements that read or change zheap tables. */
static void
define_table_gucs(void)
{
	DefineCustomBoolVariable("zundo.allow_ctid_guard",
							 "Allows UPDATE and DELETE to identify a row of a zheap table by a "
							 "ctid from outside the statement.",
							 "The row may have changed since its ctid was read.",
							 &zundo_allow_ctid_guard,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("zundo.drop_rows_with_extension",
							 "Allows DROP EXTENSION zundo CASCADE to drop zheap tables that "
							 "contain rows.",
							 "Otherwise the command is refused while there are such tables.",
							 &zundo_drop_rows_with_extension,
							 false,
							 PGC_SUSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomEnumVariable("zundo.default_index",
							 "Sets the access method of indexes of zheap tables for which none is "
							 "named.",
							 "Where \"zbtree\" is not possible, it is \"btree\".",
							 &zundo_default_index,
							 ZUNDO_BTREE,
							 index_options,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);
	DefineCustomRealVariable("zundo.index_expression_cost",
							 "Sets the maximum cost of index expressions that are evaluated to "
							 "find out whether an update changes them.",
							 "In multiples of \"cpu_operator_cost\". More costly expressions "
							 "count as changed if a column that they read changes.",
							 &zundo_index_expression_cost,
							 1000, 0, 1e9,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

#ifdef zc_add_explain_option
	DefineCustomBoolVariable("zundo.explain_undo",
							 "Sets the default of the option UNDO of EXPLAIN ANALYZE.",
							 "\"auto_explain\" follows it, too.",
							 &zundo_explain_undo,
							 false,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);
#endif
}

/* zundo_define_gucs: See zundo.h. */
void
zundo_define_gucs(void)
{
	define_undo_gucs();
	define_full_gucs();
	define_history_gucs();
	define_table_gucs();
#ifdef ZUNDO_TESTING
	define_test_gucs();
#endif
	MarkGUCPrefixReserved("zundo");
}
