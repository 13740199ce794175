/*
 * zundo.c - loading: settings, WAL, workers; the server's hooks are in hooks.c.
 *
 * No logic of its own: it registers the layers with the server and, where a
 * lower layer must call a higher one, with each other.
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xlog_internal.h"
#include "change/zlogical.h"
#include "change/zredo.h"
#include "change/zwal.h"
#include "common/rmgr.h"
#include "common/zundo.h"
#include "discard/discard.h"
#include "fmgr.h"
#include "guard/heap_readers.h"
#include "hooks.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "mvcc/zxmin.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/*
 * The library was loaded by shared_preload_libraries. If it was not, its WAL
 * could not be replayed.
 */
bool		zundo_preloaded = false;

void
zundo_require_preload(void)
{
	if (!zundo_preloaded)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("zundo must be loaded via \"shared_preload_libraries\""),
				 errdetail("Zheap tables need zundo's WAL resource manager and shared memory, "
						   "which exist only then."),
				 errhint("Add \"zundo\" to \"shared_preload_libraries\" and restart the server.")));
}

static RmgrData zundo_rmgr = {
	.rm_name = ZUNDO_RMGR_NAME,
	.rm_redo = zredo,
	.rm_desc = zwal_desc,
	.rm_identify = zwal_identify,
	.rm_mask = zredo_mask,
	.rm_decode = zlogical_decode,
};

/*
 * _PG_init: registers zundo with the server. If the library is not loaded by
 * shared_preload_libraries, only defines its settings, and raises an error
 * during pg_upgrade.
 */
void
_PG_init(void)
{
	zundo_define_gucs();
	if (!process_shared_preload_libraries_in_progress)
	{
		/*
		 * pg_upgrade --check loads each library that the old server uses into
		 * the new server; the error must come then, not when pg_upgrade
		 * restores.
		 */
		if (IsBinaryUpgrade)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("zundo must be loaded via \"shared_preload_libraries\""),
					 errhint("Add \"zundo\" to \"shared_preload_libraries\" of the new cluster "
							 "before pg_upgrade.")));
		return;
	}
	Assert(!zundo_preloaded);
	zundo_preloaded = true;
	RegisterCustomRmgr(ZUNDO_RMGR_ID, &zundo_rmgr);
	zundo_install_hooks();
	ztts_lookup_author_hook = zvis_lookup_author;
	ztts_author_xid_hook = zxmin_author;
	zworkers_register();
	zcallers_init();
}
