/*
 * discard/sweep.c - slot overflow pages whose table page is gone.
 *
 * A table that is dropped, truncated, rewritten or emptied by a crash (unlogged) leaves its overflow
 * pages with an owner that does not exist any more. The undo worker looks for such now and then.
 *
 * Locks: the owner's OID (AccessShareLock, only if it is to be had at once) -> table page (shared) -> overflow
 * page. "Gone" is concluded under that lock, which brings the catalog caches up to date: who creates,
 * drops or truncates a table holds a lock that excludes it.
 *
 * Crash points: each page is freed by one WAL record; what is left is found the next time.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "dml/zdml.h"
#include "miscadmin.h"
#include "page/zpage.h"
#include "discard/discard_internal.h"
#include "discard/zfile.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

/* Does rel's page p->block point to p? The answer holds until its buffer, *buf, is unlocked and unpinned (if valid). */
static bool
is_pointed_to(Relation rel, const ZuOverflowPage *p, Buffer *buf)
{
	Page		page;

	*buf = InvalidBuffer;
	if (p->block >= zrel_nblocks(rel))
		return false;
	*buf = ReadBuffer(rel, p->block);
	LockBuffer(*buf, BUFFER_LOCK_SHARE);
	page = BufferGetPage(*buf);
	/* what a damaged page points to is not known */
	return !PageIsNew(page) && (!zpage_is_valid(page) || zpage_trailer(page)->overflow == p->overflow);
}

/*
 * Free p if its owner is gone. The lock on the owner's OID keeps the answer true. Where another table has the file
 * by now (zfile.c), p is kept for as long as it has.
 */
static void
sweep_page(const ZuOverflowPage *p)
{
	Relation	rel;
	Buffer		buf = InvalidBuffer;

	if (!ConditionalLockRelationOid(p->reloid, AccessShareLock))
		return;
	rel = try_relation_open(p->reloid, NoLock);
	if (rel != NULL && rel->rd_locator.relNumber == p->relnumber
		? zfile_is_zheap(rel) && !is_pointed_to(rel, p, &buf)
		: zfile_owners(p->relnumber) == NIL)
		zoverflow_free(p);
	if (BufferIsValid(buf))
		UnlockReleaseBuffer(buf);
	if (rel != NULL)
		relation_close(rel, NoLock);
	UnlockRelationOid(p->reloid, AccessShareLock);
}

void
zheap_sweep_overflow(void)
{
	int			n;
	ZuOverflowPage *pages = zu_overflow_list(&n);

	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		sweep_page(&pages[i]);
	}
	pfree(pages);
	(void) zu_overflow_free_extents();
}
