/*
 * mvcc/zown.c - what we know of our own records without reading them.
 *
 * First a shortcut past the current command's own records on one page.
 *
 * A command that changes every row of a page pushes a record per row on its
 * slot's chain; looking for the writer of the next row would walk over all of
 * them. So the newest run of own records of one command on one page is
 * remembered: where it ends and which offsets it concerns. A row that is not
 * among them has its writer below the run.
 *
 * Owned by this backend alone. A run is recognised by its newest pointer, which no
 * other record will ever have, so nothing needs to be forgotten at any time.
 *
 * Second, whether our own records on a page are in the order of their commands, and what lies below them: whether a walk
 * may end at the first one that a snapshot of ours accepts (V3).
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/transam.h"
#include "common/hashfn.h"
#include "mvcc/zwalk.h"
#include "utils/snapmgr.h"

static struct
{
	UndoPtr		head;			/* newest record of the run */
	UndoPtr		below;			/* the record under its oldest one */
	RelFileNumber relnumber;
	BlockNumber block;
	CommandId	cid;
	uint64		written[(ZHEAP_MAX_OFFSET + 64) / 64];
} run;

/*
 * A command may call others, which have greater cids, and go on when they are done. So a record may lie above one of a greater
 * cid, and a snapshot that was taken in between, for a cursor, accepts the upper one alone. For all pages
 * of one place in this table: the greatest cid of our records, and the smallest command that accepts all that have
 * a smaller cid above them. In this transaction.
 */
#define ORDERS	256

typedef struct Order
{
	CommandId	greatest;
	CommandId	ordered_from;
} Order;

static Order orders[ORDERS];
static bool any_noted = false;

static inline Order *
find_order(RelFileNumber relnumber, BlockNumber block)
{
	return &orders[murmurhash32(relnumber ^ murmurhash32(block)) % ORDERS];
}

void
zown_note(RelFileNumber relnumber, BlockNumber block, OffsetNumber first, int n, CommandId cid,
		  UndoPtr ptr, UndoPtr prev)
{
	Order	   *order = find_order(relnumber, block);

	any_noted = true;
	if (cid >= order->greatest)
		order->greatest = cid;
	else
		order->ordered_from = order->greatest + 1;
	if (prev == InvalidUndoPtr || prev != run.head || run.cid != cid || run.block != block ||
		run.relnumber != relnumber)
	{
		memset(&run, 0, sizeof(run));
		run.relnumber = relnumber;
		run.block = block;
		run.cid = cid;
		run.below = prev;
	}
	run.head = ptr;
	for (int off = first; off < first + n && off <= ZHEAP_MAX_OFFSET; off++)
		run.written[off / 64] |= UINT64CONST(1) << (off % 64);
}

UndoPtr
zown_skip(RelFileNumber relnumber, BlockNumber block, OffsetNumber off, UndoPtr head)
{
	if (head != run.head || run.block != block || run.relnumber != relnumber ||
		head == InvalidUndoPtr ||
		(run.written[off / 64] & (UINT64CONST(1) << (off % 64))) != 0)
		return head;
	return run.below;
}

UndoPtr
zown_below(RelFileNumber relnumber, BlockNumber block, UndoPtr head, UndoPtr prev)
{
	if (head != run.head || run.block != block || run.relnumber != relnumber || head == InvalidUndoPtr)
		return prev;
	return run.below;
}

static bool on_unseen = false;

void
zown_note_push(ZXid xid)
{
	/* who ended before the oldest of our snapshots is seen by all of them */
	if (!TransactionIdIsValid(TransactionXmin) ||
		!TransactionIdPrecedes(zxid_to_xid(xid), TransactionXmin))
		on_unseen = true;
}

void
zown_note_rewrite(void)
{
	on_unseen = true;
}

bool
zown_settles(RelFileNumber relnumber, BlockNumber block, CommandId command)
{
	return !on_unseen && !IsParallelWorker() && command >= find_order(relnumber, block)->ordered_from;
}

void
zown_at_xact_end(void)
{
	on_unseen = false;
	if (any_noted)
		memset(orders, 0, sizeof(orders));
	any_noted = false;
}
