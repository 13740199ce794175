/*
 * rollback/zrollback_temp.c - undoing what was rolled back in temporary tables.
 *
 * The undo of temporary tables is private to the backend (undo/undo_temp.c),
 * so no worker can do this, and an abort must not fail: reading a page may
 * have to write out another one. So an abort leaves the pages as they are;
 * readers walk over the changes as over any aborted change, and the first scan
 * or change of any temporary table in a later transaction calls
 * zrollback_temp, which undoes all of them. So does DISCARD: a session that a
 * pool hands to the next client has no temporary tables, and keeps no private
 * undo. Within the transaction itself, a page with changes of aborted
 * subtransactions is undone by the next change of that page (dml/zslotpick.c).
 *
 * The pages are found from the undo itself. The file system, not the catalog,
 * tells whether a file is still there: a table that the running transaction has
 * dropped or truncated comes back when that is rolled back, with all its
 * aborted changes. If no file is left, the undo is not read. So a session whose
 * private undo file is damaged works again after it has dropped its temporary
 * tables.
 *
 * Locks: none; local buffers are this backend's own. Crash points: none.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "mvcc/zvismap.h"
#include "nodes/parsenodes.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "storage/smgr.h"
#include "undo/undo_temp.h"
#include "utils/rel.h"

/* A file that undo refers to. */
typedef struct TempFile
{
	BlockNumber nblocks;		/* 0 also if the file is gone */
	BlockNumber last;			/* block that was undone last */
} TempFile;

/*
 * Makes rel a relation that ReadBuffer accepts, for a file that the catalog may
 * not know any more. The storage manager's entry is looked up for every page,
 * since an invalidation message might close a cached one.
 */
static void
address_file(Relation rel, Form_pg_class class, const ZuTempFile *file)
{
	memset(rel, 0, sizeof(*rel));
	memset(class, 0, sizeof(*class));
	rel->rd_rel = class;
	rel->rd_locator = file->locator;
	rel->rd_backend = file->backend;
	rel->rd_islocaltemp = true;
	rel->rd_id = file->reloid;
	class->relkind = RELKIND_RELATION;
	class->relpersistence = RELPERSISTENCE_TEMP;
	snprintf(NameStr(class->relname), NAMEDATALEN, "%u", file->locator.relNumber);
	rel->rd_smgr = smgropen(file->locator, file->backend);
}

/* Returns the number of blocks of a file, 0 if it is gone. */
static BlockNumber
blocks_of(const ZuTempFile *file)
{
	SMgrRelation smgr = smgropen(file->locator, file->backend);

	return smgrexists(smgr, MAIN_FORKNUM) ? smgrnblocks(smgr, MAIN_FORKNUM) : 0;
}

/*
 * Undoes the aborted changes on one page of the file, unless the page is gone
 * or was undone just before.
 */
static void
undo_page(const ZuTempFile *file, TempFile *state, BlockNumber block)
{
	RelationData rel;
	FormData_pg_class class;
	Buffer		buf;
	int			space;

	if (block >= state->nblocks || block == state->last)
		return;
	address_file(&rel, &class, file);
	buf = ReadBuffer(&rel, block);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	(void) zrollback_page(buf, &rel);
	space = zrollback_space(BufferGetPage(buf));
	UnlockReleaseBuffer(buf);
	if (space > 0 && zvismap_has_space_entry(&rel, block))
	{
		RecordPageWithFreeSpace(&rel, block, zpage_space_for_map(space));
		FreeSpaceMapVacuumRange(&rel, block, block + 1);
	}
	state->last = block;
}

/*
 * Reads the private undo log from its start and undoes each page for which an
 * aborted record is found.
 */
static void
undo_all(void)
{
	int			nfiles;
	const ZuTempFile *files = zu_temp_files(&nfiles);
	TempFile   *state = palloc0(Max(nfiles, 1) * sizeof(TempFile));
	char	   *buf = palloc(ZUR_MAX_LENGTH);
	uint64		pos = 0;
	ZXid		xid = InvalidZXid;
	bool		aborted = false;
	bool		any = false;
	ZuRecord	rec;

	Assert(zu_temp_pending());	/* UNDO-24 */
	for (int i = 0; i < nfiles; i++)
	{
		state[i].nblocks = blocks_of(&files[i]);
		state[i].last = InvalidBlockNumber;
		any |= state[i].nblocks > 0;
	}
	while (any && zu_temp_next(&pos, &rec, buf))
	{
		CHECK_FOR_INTERRUPTS();
		if (rec.xid != xid)
			aborted = (zxid_status_at(rec.xid, zu_temp_oldest()) == ZXID_ABORTED);
		xid = rec.xid;
		if (!aborted)
			continue;

		/*
		 * File numbers are unique within a tablespace only, so all files of
		 * that number are visited; a page without a pointer to this undo
		 * stays as it is.
		 */
		for (int i = 0; i < nfiles; i++)
			if (files[i].locator.relNumber == rec.relnumber)
				undo_page(&files[i], &state[i], rec.block);
	}
	pfree(buf);
	pfree(state);
}

/*
 * zrollback_temp: See zrollback.h. When all pages are undone, releases the
 * private undo of ended transactions.
 */
void
zrollback_temp(void)
{
	if (likely(!zu_temp_pending()))
		return;
	undo_all();
	zu_temp_resolved();
}

/*
 * zrollback_temp_due_after: See zrollback.h. The pages are undone although
 * their tables have just been dropped, because the transaction may still fail,
 * or may continue after a DISCARD TEMP and abort: then the tables come back.
 */
bool
zrollback_temp_due_after(const Node *command)
{
	DiscardMode target;

	if (!IsA(command, DiscardStmt))
		return false;
	target = ((const DiscardStmt *) command)->target;
	return target == DISCARD_ALL || target == DISCARD_TEMP;
}
