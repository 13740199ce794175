/*
 * rollback/ztemp.c - undoing what was rolled back in temporary tables.
 *
 * Their undo is private (undo/undo_temp.c), so no worker can do it, and an
 * abort must not fail: reading a page may have to write out another one. So an
 * abort leaves everything as it is; readers walk over it as over any aborted
 * change, and the first scan or change of any temporary table in a later
 * transaction calls zrollback_temp, which undoes all of it. Within the
 * transaction itself, changes of aborted subtransactions are undone page by
 * page by its next change of the page (dml/zslotpick.c).
 *
 * The pages are found in the undo itself. Whether a file is still there is
 * asked of the file system, not of the catalog: a table that the running
 * transaction has dropped or truncated comes back when that is rolled back,
 * with all its aborted changes.
 *
 * Locks: none; local buffers are this backend's own. Crash points: none.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "mvcc/zvis.h"
#include "rollback/zrollback.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "undo/undo_temp.h"
#include "utils/rel.h"

/* A file that undo refers to. */
typedef struct TempFile
{
	BlockNumber nblocks;		/* 0 also if it is gone */
	bool		looked;			/* nblocks is known */
	BlockNumber last;			/* block undone last */
} TempFile;

/*
 * Make rel a relation that ReadBuffer takes, for a file that the catalog may
 * not know any more. The file is looked up for every page: a cached one might
 * be closed by an invalidation message.
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

/* Undo what is aborted on one page of file. */
static void
undo_page(const ZuTempFile *file, TempFile *state, BlockNumber block)
{
	static RelationData rel;
	static FormData_pg_class class;
	Buffer		buf;

	if (state->looked && (block >= state->nblocks || block == state->last))
		return;
	address_file(&rel, &class, file);
	if (!state->looked)
	{
		state->looked = true;
		state->nblocks = smgrexists(rel.rd_smgr, MAIN_FORKNUM)
			? smgrnblocks(rel.rd_smgr, MAIN_FORKNUM) : 0;
		if (block >= state->nblocks)
			return;
	}
	buf = ReadBuffer(&rel, block);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	(void) zrollback_page(buf, &rel);
	UnlockReleaseBuffer(buf);
	state->last = block;
}

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
	ZuRecord	rec;

	for (int i = 0; i < nfiles; i++)
		state[i].last = InvalidBlockNumber;
	while (zu_temp_next(&pos, &rec, buf))
	{
		CHECK_FOR_INTERRUPTS();
		if (rec.xid != xid)
			aborted = (zxid_status_at(rec.xid, zu_temp_oldest()) == ZXID_ABORTED);
		xid = rec.xid;
		if (!aborted)
			continue;

		/*
		 * numbers of files are unique within a tablespace: what does not
		 * point to this undo stays as it is
		 */
		for (int i = 0; i < nfiles; i++)
			if (files[i].locator.relNumber == rec.relnumber)
				undo_page(&files[i], &state[i], rec.block);
	}
	pfree(buf);
	pfree(state);
}

void
zrollback_temp(void)
{
	if (likely(!zu_temp_pending()))
		return;
	undo_all();
	zu_temp_settled();
}
