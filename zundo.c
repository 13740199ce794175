/*
 * zundo.c - loading: settings, shared memory, WAL, hooks, callbacks, workers.
 *
 * No logic of its own: it introduces the layers to the server and, where a
 * lower layer must call a higher one, to each other.
 */
#include "postgres.h"

#include "access/rmgr.h"
#include "access/xact.h"
#include "access/xlog_internal.h"
#include "common/rmgr.h"
#include "common/zundo.h"
#include "discard/discard.h"
#include "dml/zdml.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "monitor/heap_readers.h"
#include "mvcc/zguard.h"
#include "mvcc/zvis.h"
#include "change/zredo.h"
#include "rollback/zrollback.h"
#include "storage/ipc.h"
#include "undo/undo.h"
#include "undo/undo_request.h"
#include "change/zlogical.h"
#include "change/zwal.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/* Was the library loaded by shared_preload_libraries? (zam.c refuses to work without) */
bool		zundo_preloaded = false;

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static RmgrData zundo_rmgr = {
	.rm_name = ZUNDO_RMGR_NAME,
	.rm_redo = zredo,
	.rm_desc = zwal_desc,
	.rm_identify = zwal_identify,
	.rm_mask = zredo_mask,
	.rm_decode = zlogical_decode,
};

static void
shmem_request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(zu_shmem_size());
	RequestAddinShmemSpace(zworkers_shmem_size());
	RequestAddinShmemSpace(zany_shmem_size());
	zu_shmem_request();
}

static void
shmem_startup(void)
{
	if (prev_shmem_startup)
		prev_shmem_startup();
	zu_shmem_startup();
	zworkers_shmem_startup();
	zany_shmem_startup();
}

/* After the rollback layer has seen the end of a transaction, undo forgets it. */
static void
xact_callback(XactEvent event, void *arg)
{
	zrollback_xact_callback(event, arg);
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			zreclaim_pre_commit();
			ZUNDO_FAULT("before-commit");
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			zu_at_xact_end();
			zown_at_xact_end();
			zany_at_xact_end();
			zreclaim_at_xact_end();
			zdml_at_xact_end();
			break;
		default:
			break;
	}
}

void
_PG_init(void)
{
	zundo_define_gucs();
	if (!process_shared_preload_libraries_in_progress)
	{
		/* pg_upgrade --check loads into the new server each library that the old one uses: it is to say so then, not when it restores */
		if (IsBinaryUpgrade)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("zundo must be loaded via \"shared_preload_libraries\""),
					 errhint("Add \"zundo\" to \"shared_preload_libraries\" of the new cluster "
							 "before pg_upgrade.")));
		return;
	}
	zundo_preloaded = true;
	RegisterCustomRmgr(ZUNDO_RMGR_ID, &zundo_rmgr);
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = shmem_request;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;
	RegisterXactCallback(xact_callback, NULL);
	RegisterSubXactCallback(zrollback_subxact_callback, NULL);
	zu_install_hooks();
	RegisterSubXactCallback(zhandle_subxact_callback, NULL);
	RegisterSubXactCallback(zreclaim_subxact_callback, NULL);
	zany_install_hooks();
	zvis_install_hooks();
	zguard_install_hooks();
	zreaders_install_hooks();
	zaccess_method_install_hooks();
	zdrop_guard_install_hooks();
	zworkers_register();
}
