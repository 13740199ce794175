/*
 * mvcc/zown.c - what a backend knows of its own undo records without reading
 * them.
 *
 * First, a shortcut past the current command's own records on one page. A
 * command that changes every row of a page pushes a record per row on its
 * slot's chain; the search for the author of the next row would walk over all
 * of them. So the newest run of own records of one command on one page is
 * remembered: the record below its oldest one, and which offsets it concerns.
 * A row that is not among them has its author below the run. A run is
 * recognised by its newest pointer, which no other record will ever have, so
 * no event needs to invalidate it, and no other page can be taken for its own.
 * If a snapshot accepts all that lies below the run, it sees these rows, and
 * none of their records is read.
 *
 * Second, whether our own records on a page are in the order of their
 * commands, and what lies below them: these decide whether a walk may end at
 * the first own record that a snapshot of ours accepts (VIS-3).
 *
 * For that a page is identified by the number of its file and its block. The
 * file of a table in another tablespace, or of a temporary table, may have the
 * same number. That does no harm: if two pages share an Order,
 * zown_accepts_older and zown_accepts_row may return false without need.
 *
 * Called by dml/ (which notes its records and uses the shortcuts), zvis.c,
 * zwalk.c and zany.c; hooks.c calls zown_at_xact_end. All of it is the
 * backend's own. No locks, no crash points.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/transam.h"
#include "common/hashfn.h"
#include "mvcc/zown.h"
#include "mvcc/zxid.h"
#include "utils/snapmgr.h"

typedef struct Run
{
	UndoPtr		head;			/* newest record of the run */
	UndoPtr		below;			/* the record under its oldest one */
	CommandId	cid;
	CommandId	below_accepted_from;	/* a snapshot with this curcid or a
										 * greater one accepts all of our
										 * records of the page that were noted
										 * before the run */
	uint64		written[ZOFFSETS_WORDS];
} Run;

/*
 * A command that calls functions continues with its own, smaller cid when they
 * return. Its next record is then newer than records of a greater cid. A
 * cursor opened in between sees the newer record and not the older ones. Each
 * element stands for all pages that hash to it. One that an earlier transaction
 * has used is as good as empty, so that no transaction clears 3 kB at its end.
 * If the number comes round and it is not taken for such a one, its values are
 * too high for this transaction, or zero: both functions that use them may then
 * return false without need.
 */
#define ORDERS	256

typedef struct Order
{
	uint32		xact;			/* MyRecords.xact when it was used */
	CommandId	above;			/* the cids of our records in this transaction
								 * are less; 0 = there are none */
	CommandId	ordered_from;	/* a snapshot with this curcid or a greater
								 * one accepts all of our records that lie
								 * below the first one that it accepts */
} Order;

/* What this backend knows of its own records. */
typedef struct MyRecords
{
	uint64		nlate;			/* see zown_nlate */
	uint32		xact;			/* number of the transaction in this backend */
	bool		on_unseen;		/* see zown_note_push */
	Run			run;
	Order		orders[ORDERS];
} MyRecords;

static MyRecords my;

/*
 * Returns the element to which the page hashes. It is empty if the transaction
 * has not used it.
 */
static inline Order *
find_order(RelFileNumber relnumber, BlockNumber block)
{
	Order	   *order = &my.orders[murmurhash32(relnumber ^ murmurhash32(block)) % ORDERS];

	if (order->xact != my.xact)
	{
		memset(order, 0, sizeof(*order));
		order->xact = my.xact;
	}
	return order;
}

/* Counts a change under cid, if other commands have begun meanwhile. */
static inline void
count_late(CommandId cid)
{
	my.nlate += (cid != GetCurrentCommandId(false));
}

/* Adds the rows at the offsets first to last to the run's. */
static void
note_written(int first, int last)
{
	for (int word = first / 64; word <= last / 64; word++)
		my.run.written[word] |= zoffsets_of_word(word, first, last);
}

/*
 * zown_note: See zown.h. Notes the order of cids and extends the run. A cid
 * smaller than the greatest one so far breaks the order: from then on only a
 * snapshot that accepts all our records so far may stop at one of them. A
 * record that does not continue the run begins a new one.
 */
void
zown_note(RelFileNumber relnumber, BlockNumber block, OffsetNumber first, int n, CommandId cid,
		  UndoPtr ptr, UndoPtr prev)
{
	Order	   *order = find_order(relnumber, block);

	Assert(ptr != InvalidUndoPtr);
	count_late(cid);
	if (prev == InvalidUndoPtr || prev != my.run.head || my.run.cid != cid)
	{
		memset(&my.run, 0, sizeof(my.run));
		my.run.cid = cid;
		my.run.below = prev;
		my.run.below_accepted_from = order->above;
	}
	if (cid + 1 >= order->above)
		order->above = cid + 1;
	else
		order->ordered_from = order->above;
	my.run.head = ptr;
	note_written(first, Min(first + n - 1, ZHEAP_MAX_OFFSET));
}

/*
 * zown_note_covered: See zown.h. If ptr is not the newest record of the run, it
 * is no record of the run that anybody will begin at.
 */
void
zown_note_covered(OffsetNumber off, UndoPtr ptr)
{
	Assert(ptr != InvalidUndoPtr && off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET);
	count_late(ptr == my.run.head ? my.run.cid : InvalidCommandId);
	if (ptr == my.run.head)
		note_written(off, off);
}

/*
 * zown_skip: See zown.h. Returns the record below the run if head is the run's
 * newest one and off is not among its rows; else head.
 */
UndoPtr
zown_skip(OffsetNumber off, UndoPtr head)
{
	Assert(off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET);
	if (head != my.run.head || head == InvalidUndoPtr ||
		(my.run.written[off / 64] & (UINT64CONST(1) << (off % 64))) != 0)
		return head;
	return my.run.below;
}

/*
 * zown_below: See zown.h. Returns the record below the run only if head is the
 * newest one of the run.
 */
UndoPtr
zown_below(UndoPtr head, UndoPtr prev)
{
	if (head != my.run.head || head == InvalidUndoPtr)
		return prev;
	return my.run.below;
}

/*
 * zown_note_push: See zown.h. Remembers only that one of our snapshots may not
 * see xid: then VIS-3 is not used for own records until the transaction ends.
 */
void
zown_note_push(ZXid xid)
{
	/* all our snapshots see an owner that is older than the oldest of them */
	if (!TransactionIdIsValid(TransactionXmin) ||
		!TransactionIdPrecedes(zxid_to_xid(xid), TransactionXmin))
		my.on_unseen = true;

	Assert(xid != InvalidZXid);
}

void
zown_note_rewrite(void)
{
	my.on_unseen = true;
}

bool
zown_accepts_row(RelFileNumber relnumber, BlockNumber block, OffsetNumber off, UndoPtr head,
				 CommandId command)
{
	const Order *order;

	if (my.on_unseen || IsParallelWorker())
		return false;
	if (zown_skip(off, head) != head && command >= my.run.below_accepted_from)
		return true;
	order = find_order(relnumber, block);
	return order->above != 0 && command >= order->above;
}

bool
zown_accepts_older(RelFileNumber relnumber, BlockNumber block, CommandId command)
{
	return !my.on_unseen && !IsParallelWorker() &&
		command >= find_order(relnumber, block)->ordered_from;
}

uint64
zown_nlate(void)
{
	return my.nlate;
}

/* zown_at_xact_end: See zown.h. Another number empties all elements. */
void
zown_at_xact_end(void)
{
	my.on_unseen = false;
	my.run.head = InvalidUndoPtr;
	my.xact++;
}
