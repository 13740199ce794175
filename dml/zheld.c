/*
 * dml/zheld.c - row locks that our transaction is known to hold.
 *
 * A bulk load checks a foreign key for each of its rows, and mostly finds that
 * the transaction has locked the referenced row already. The LOCK record may
 * lie deep in the chain of the transaction's slot, below those of all other
 * rows of the page. To avoid the search, the backend remembers the locks that
 * it took or found last.
 *
 * Rule LOCK-11 in docs/locking.md. The mode that is remembered for a row is the
 * strongest one that our transaction holds on it by a record in its own chain
 * or an inline lock.
 *
 * Called by dml/ with the row's page locked, and by hooks.c. The memory is the
 * backend's own, and bounded. Takes no locks. No crash points.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "dml/zdml_internal.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Size of the direct-mapped cache; a newer lock replaces an older one. */
#define HELD_PLACES 2048

typedef struct HeldLock
{
	uint64		epoch;
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
	OffsetNumber off;
	uint8		mode;
	uint8		tag;			/* lock tag by which the row is locked; 0: the
								 * lock is not by tag */
} HeldLock;

static struct
{
	uint64		epoch;			/* > 0; locks noted under an earlier epoch are
								 * forgotten */
	HeldLock   *locks;			/* HELD_PLACES of them; NULL until the first
								 * is noted */
}			held = {1, NULL};

/* Returns the place in the cache for a row. */
static inline HeldLock *
place_of(Relation rel, BlockNumber block, OffsetNumber off)
{
	uint32		hash = murmurhash32(rel->rd_locator.relNumber ^ murmurhash32(block)) + off;

	return &held.locks[hash % HELD_PLACES];
}

/* Returns whether the place holds a lock of this row. */
static inline bool
is_of(const HeldLock *lock, Relation rel, BlockNumber block, OffsetNumber off)
{
	return lock->epoch == held.epoch && lock->block == block && lock->off == off &&
		lock->relnumber == rel->rd_locator.relNumber && lock->reloid == RelationGetRelid(rel);
}

/* zheld_mode: See zdml_internal.h. */
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

/*
 * zheld_note: See zdml_internal.h. Remembers nothing if the cache cannot be
 * allocated.
 */
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

/* zheld_forget: See zdml.h. */
void
zheld_forget(void)
{
	held.epoch++;
}
