/*
 * mvcc/zcommitted.c - transactions that are known to have committed.
 *
 * As long as `oldest` does not advance, each reader of a page that was changed
 * since looks up the status of the slot's transaction: in clog, under a lock
 * that all processes share, and sometimes in the array of running transactions.
 * Heap stores the result in hint bits of its rows. Here a table in shared
 * memory has one bit for each transaction of the latest few million: no page
 * becomes dirty, nothing is logged, and a standby has the table as well.
 *
 * Called by zxid.c, which notes the transactions, and by dml/ and discard/,
 * which only ask; hooks.c creates the table. Takes no locks, except when the
 * table is created. No crash points.
 *
 *	VIS-9	A transaction is entered in the table only after clog has shown it
 *		as committed and it has left the array of running transactions. An
 *		entry stays right as long as shared memory exists.
 *		(a) That a snapshot shows it as ended is not enough. Example: a
 *			snapshot that a replication slot has exported is made from WAL, and
 *			shows a transaction as ended that still waits for a synchronous
 *			standby and is in that array.
 *		(b) An asynchronous commit need not be flushed first, since a crash
 *			empties the table as well.
 *		(c) Aborted transactions, whose changes are undone soon, are not
 *			entered.
 *		What holds for entries holds for my.own, which takes no entry: a session
 *		comes back to the page that it has changed before.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "mvcc/zcommitted.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "undo/undo.h"

/*
 * A word of the table stands for 32 transactions with successive ids. Its lower
 * half has a bit for each of them; its upper half tells which transactions they
 * are, by the part of their ids that chooses neither word nor bit. The word is
 * overwritten when one of the transactions that come WORDS * 32 ids later, or a
 * multiple of that, is noted.
 */
#define WORDS		(128 * 1024)
#define WORD_XIDS	32

static struct
{
	pg_atomic_uint64 *words;

	/* the latest transactions of this process that have committed, by id */
	ZXid		own[64];
}			my;

StaticAssertDecl(ZXID_MASK / WORD_XIDS / WORDS <= PG_UINT32_MAX, "ids do not fit");

/* Returns the word of the table in which the bit of xid is, if it has one. */
static inline pg_atomic_uint64 *
word_of(ZXid xid)
{
	Assert(my.words != NULL);
	return &my.words[xid / WORD_XIDS % WORDS];
}

/* Returns the word of xid in which no other of the 32 transactions is noted. */
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

	return (word >> 32 == want >> 32 && (word & want & PG_UINT32_MAX) != 0) ||
		(my.own[xid % lengthof(my.own)] == xid && xid != InvalidZXid);
}

/* zcommitted_at_commit: See zcommitted.h. */
void
zcommitted_at_commit(void)
{
	ZXid		xid = zxid_from_full(GetTopFullTransactionIdIfAny());

	my.own[xid % lengthof(my.own)] = xid;
}

/*
 * zcommitted_note: See zcommitted.h. Changes nothing if the word stands for
 * younger transactions by now.
 */
void
zcommitted_note(ZXid xid)
{
	pg_atomic_uint64 *word = word_of(xid);
	uint64		add = word_with(xid);
	uint64		old = pg_atomic_read_u64(word);

	Assert(xid <= ZXID_MASK && TransactionIdDidCommit(zxid_to_xid(xid)));	/* VIS-9 */

	/*
	 * the server takes one of more than 2^31 transactions ago for a future
	 * one
	 */
	Assert(xid < zu_oldest() || !TransactionIdIsInProgress(zxid_to_xid(xid)));
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

/* zcommitted_shmem_startup: See zcommitted.h. */
void
zcommitted_shmem_startup(void)
{
	bool		found;

	my.words = ShmemInitStruct("zundo committed transactions", zcommitted_shmem_size(), &found);
	if (!found)
		for (int i = 0; i < WORDS; i++)
			pg_atomic_init_u64(&my.words[i], 0);
}
