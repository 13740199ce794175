/*
 * discard/sweep.c - slot overflow pages whose table page is gone.
 *
 * A table that is dropped, truncated, rewritten or emptied by a crash
 * (unlogged) leaves overflow pages behind whose owner does not exist any more.
 * The undo worker looks for such pages every few seconds.
 *
 * Locks: the owner's OID (AccessShareLock, conditionally) -> table page
 * (shared) -> overflow page. "Gone" is concluded under that lock, which brings
 * the catalog caches up to date: a process that creates, drops or truncates a
 * table holds a lock that excludes it.
 *
 * Crash points: each page is freed by one WAL record; the next sweep finds
 * what is left.
 *
 * Invariant
 *	OVERFLOW-4	an overflow page is attached and changed in one WAL record with
 *		its table page, so the table page of a logged table is not older by its
 *		LSN. If the table page does not point to the overflow page and is
 *		older, storage has lost the write that attached it: then the overflow
 *		page stays, as evidence of that. (A table page that is newer was
 *		emptied, or belongs to a file that was filled anew; replay marks one
 *		that it would make newer, OVERFLOW-5 in change/zredo.c.)
 */
#include "postgres.h"

#include "access/relation.h"
#include "dml/zdml.h"
#include "miscadmin.h"
#include "page/zpage.h"
#include "discard/discard_internal.h"
#include "discard/zfile.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "tuple/ztts.h"
#include "utils/rel.h"

/* What is known of the table page that owns an overflow page. */
typedef enum OwnerState
{
	OWNER_UNKNOWN,				/* the table is locked, or the page is
								 * damaged, or another table has the file */
	OWNER_POINTS,
	OWNER_GONE,					/* no page points to the overflow page, and
								 * none should */
	OWNER_LOST					/* the table page does not point to it, but
								 * should (OVERFLOW-4) */
} OwnerState;

/* The owner of an overflow page, while it is being looked at. */
typedef struct Owner
{
	Oid			reloid;			/* locked in AccessShareLock; InvalidOid = not
								 * locked */
	Relation	rel;			/* NULL = the table does not exist */
	Buffer		buf;			/* the table page, locked in share mode, or
								 * Invalid */
	OwnerState	state;
} Owner;

/*
 * Returns in which state rel's page p->block is as the owner of p. Leaves the
 * page in *buf, locked in share mode, if the block exists.
 */
static OwnerState
look_at_page(Relation rel, const ZuOverflowPage *p, Buffer *buf)
{
	Page		page;
	XLogRecPtr	lsn;

	Assert(CheckRelationLockedByMe(rel, AccessShareLock, true));
	if (p->block >= zrel_nblocks(rel))
		return OWNER_GONE;
	*buf = ReadBuffer(rel, p->block);
	LockBuffer(*buf, BUFFER_LOCK_SHARE);
	page = BufferGetPage(*buf);
	if (PageIsNew(page))
		return OWNER_GONE;
	if (zpage_trailer(page)->overflow == ZPAGE_LOST_OVERFLOW)
		return OWNER_LOST;
	if (!zpage_is_valid(page))
		return OWNER_UNKNOWN;
	if (zpage_trailer(page)->overflow == p->overflow)
		return OWNER_POINTS;
	lsn = BufferGetLSNAtomic(*buf);
	return RelationNeedsWAL(rel) && !XLogRecPtrIsInvalid(lsn) && lsn < p->lsn ? OWNER_LOST
		: OWNER_GONE;
}

/*
 * Fills *owner with the state of the table page that owns p; the state holds
 * until release_owner. If another table has the file by now (zfile.c), the
 * state is unknown, so that p is kept.
 */
static void
look_at_owner(const ZuOverflowPage *p, Owner *owner)
{
	memset(owner, 0, sizeof(*owner));
	owner->state = OWNER_UNKNOWN;
	if (!ConditionalLockRelationOid(p->reloid, AccessShareLock))
		return;
	owner->reloid = p->reloid;
	owner->rel = try_relation_open(p->reloid, NoLock);
	if (owner->rel == NULL || owner->rel->rd_locator.relNumber != p->relnumber)
		owner->state = zfile_owners(p->relnumber) == NIL ? OWNER_GONE : OWNER_UNKNOWN;
	else if (ztts_is_zheap(owner->rel))
		owner->state = look_at_page(owner->rel, p, &owner->buf);
}

/* Releases the lock, the relation and the buffer that look_at_owner took. */
static void
release_owner(Owner *owner)
{
	if (BufferIsValid(owner->buf))
		UnlockReleaseBuffer(owner->buf);
	if (owner->rel != NULL)
		relation_close(owner->rel, NoLock);
	if (OidIsValid(owner->reloid))
		UnlockRelationOid(owner->reloid, AccessShareLock);
}

/* zheap_sweep_overflow: See discard_internal.h. Locks one owner at a time. */
void
zheap_sweep_overflow(void)
{
	int			n;
	ZuOverflowPage *pages = zu_overflow_list(&n);

	for (int i = 0; i < n; i++)
	{
		Owner		owner;

		CHECK_FOR_INTERRUPTS();
		if (pages[i].lost)
			continue;
		look_at_owner(&pages[i], &owner);
		if (owner.state == OWNER_GONE)
			zoverflow_free(&pages[i]);
		release_owner(&owner);
	}
	pfree(pages);
	zu_overflow_free_extents();
}

/* zheap_overflow_is_lost: See discard.h. */
bool
zheap_overflow_is_lost(const ZuOverflowPage *p, const char **relname)
{
	Owner		owner;
	bool		lost;

	Assert(!p->lost);
	look_at_owner(p, &owner);
	lost = owner.state == OWNER_LOST;
	if (lost)
		*relname = pstrdup(RelationGetRelationName(owner.rel));
	release_owner(&owner);
	return lost;
}
