/*
 * mvcc/zcommitted.c - transactions that are known to have committed.
 *
 * As long as `oldest` stands, each reader of a page that was changed since
 * asks for the status of the slot's transaction: clog, under a lock that all
 * processes share, and sometimes the array of running transactions. Heap saves
 * these questions by hint bits on its pages. Here a table in shared memory has
 * one bit for each transaction of the latest few million: no page becomes
 * dirty, nothing is logged, and a standby has it as well.
 *
 * Owns rule VIS-9 of mvcc/README.md:
 *	(VIS-9)	a transaction is noted only after it was found committed in clog
 *			and gone from the array of running transactions. Neither ever
 *			becomes untrue: what clog loses in a crash (the end of an
 *			asynchronous commit) this table, in shared memory, loses too.
 *
 * Called by zxid.c, and by the discard worker, which meets every transaction
 * anyway. Takes no locks. No crash points.
 */
#include "postgres.h"

#include "access/transam.h"
#include "mvcc/zcommitted.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "storage/shmem.h"

/*
 * A word of the table is about 32 transactions with successive ids: their bits
 * in the lower half, in the upper half which ones they are (the id without the
 * bits that choose word and bit). Words are overwritten by those of younger
 * transactions, WORDS * 32 ids later.
 */
#define WORDS		(128 * 1024)
#define WORD_XIDS	32

static pg_atomic_uint64 *words = NULL;

StaticAssertDecl(ZXID_MASK / WORD_XIDS / WORDS <= PG_UINT32_MAX, "ids do not fit");

static inline pg_atomic_uint64 *
word_of(ZXid xid)
{
	Assert(words != NULL);
	return &words[xid / WORD_XIDS % WORDS];
}

/* Returns what the word of xid looks like if only xid is known of its 32. */
static inline uint64
word_with(ZXid xid)
{
	return xid / WORD_XIDS / WORDS << 32 | UINT64CONST(1) << xid % WORD_XIDS;
}

bool
zcommitted_known(ZXid xid)
{
	uint64		want = word_with(xid);
	uint64		word = pg_atomic_read_u64(word_of(xid));

	return word >> 32 == want >> 32 && (word & want & PG_UINT32_MAX) != 0;
}

/* Leaves a word alone that has become one of younger transactions. */
void
zcommitted_note(ZXid xid)
{
	pg_atomic_uint64 *word = word_of(xid);
	uint64		add = word_with(xid);
	uint64		old = pg_atomic_read_u64(word);

	Assert(xid <= ZXID_MASK && TransactionIdDidCommit(zxid_to_xid(xid)));	/* VIS-9 */
	Assert(!TransactionIdIsInProgress(zxid_to_xid(xid)));
	while (old >> 32 <= add >> 32)
	{
		uint64		new = old >> 32 == add >> 32 ? old | add : add;

		if (new == old || pg_atomic_compare_exchange_u64(word, &old, new))
			return;
	}
}

Size
zcommitted_shmem_size(void)
{
	return WORDS * sizeof(pg_atomic_uint64);
}

/* Creates the table, in which nothing is known, or attaches to it. */
void
zcommitted_shmem_startup(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	words = ShmemInitStruct("zundo committed transactions", zcommitted_shmem_size(), &found);
	if (!found)
		for (int i = 0; i < WORDS; i++)
			pg_atomic_init_u64(&words[i], 0);
	LWLockRelease(AddinShmemInitLock);
}
