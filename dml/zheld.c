/*
 * dml/zheld.c - locks that our transaction is known to hold on rows.
 *
 * A bulk load checks a foreign key for each of its rows, and mostly finds that
 * the transaction has locked the referenced row already. Instead of searching
 * the chain of its slot for the LOCK record, which may lie below those of all
 * other rows of the page, the backend remembers the locks that it took or
 * found last.
 *
 *	(LOCK-11) Only a positive answer means anything: our transaction holds the
 *		lock, and holds no stronger one by a record in its own chain or an
 *		inline lock. A lock ends before its transaction only by the rollback of
 *		a subtransaction, which forgets all. A row whose header has no hint for
 *		such a lock is another one than the row that was locked. So is one
 *		without the tag, if the lock is by tag: such a lock does not keep the
 *		row's line pointer from other rows (TAG-5).
 *
 * Called by dml/ with the row's page locked, and by hooks.c. The memory is the
 * backend's own, and bounded. Takes no locks.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "dml/zdml_internal.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Each row has one place among these; a newer lock takes it from an older. */
#define HELD_PLACES 2048

typedef struct HeldLock
{
	uint64		epoch;
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
	OffsetNumber off;
	uint8		mode;
	uint8		tag;			/* lock tag that the row has; 0: the lock is
								 * not by tag */
} HeldLock;

static struct
{
	uint64		epoch;			/* locks noted under an earlier one count no
								 * more; > 0 */
	HeldLock   *locks;			/* HELD_PLACES of them; NULL until the first
								 * is noted */
}			held = {1, NULL};

static inline HeldLock *
place_of(Relation rel, BlockNumber block, OffsetNumber off)
{
	uint32		hash = murmurhash32(rel->rd_locator.relNumber ^ murmurhash32(block)) + off;

	return &held.locks[hash % HELD_PLACES];
}

static inline bool
is_of(const HeldLock *lock, Relation rel, BlockNumber block, OffsetNumber off)
{
	return lock->epoch == held.epoch && lock->block == block && lock->off == off &&
		lock->relnumber == rel->rd_locator.relNumber && lock->reloid == RelationGetRelid(rel);
}

int
zheld_mode(Relation rel, BlockNumber block, OffsetNumber off, ZHeader header)
{
	const HeldLock *lock;

	if (held.locks == NULL)
		return -1;
	lock = place_of(rel, block, off);
	if (!is_of(lock, rel, block, off) || (int) lock->mode + 1 > ZH_LOCK(header) ||
		(lock->tag != 0 && lock->tag != ZH_TAG(header)))
		return -1;
	return (int) lock->mode;
}

/* Without memory for the places nothing is remembered. */
void
zheld_note(Relation rel, BlockNumber block, OffsetNumber off, ZHeader header,
		   LockTupleMode mode, bool by_tag)
{
	HeldLock   *lock;

	Assert(off >= FirstOffsetNumber && mode <= LockTupleExclusive);
	Assert(!by_tag || ZH_TAG(header) != 0);
	if (held.locks == NULL)
	{
		held.locks = MemoryContextAllocExtended(TopMemoryContext, HELD_PLACES * sizeof(HeldLock),
												MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
		if (held.locks == NULL)
			return;
	}
	lock = place_of(rel, block, off);
	if (zheld_mode(rel, block, off, header) >= (int) mode)
		return;
	lock->epoch = held.epoch;
	lock->reloid = RelationGetRelid(rel);
	lock->relnumber = rel->rd_locator.relNumber;
	lock->block = block;
	lock->off = off;
	lock->mode = (uint8) mode;
	lock->tag = by_tag ? ZH_TAG(header) : 0;
}

void
zheld_forget(void)
{
	held.epoch++;
}
