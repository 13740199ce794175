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
 * no event needs to invalidate it.
 *
 * Second, whether our own records on a page are in the order of their
 * commands, and what lies below them: these decide whether a walk may end at
 * the first own record that a snapshot of ours accepts (VIS-3).
 *
 * Third, the list of our own records of the page that was asked for last, with
 * the offsets that they concern, and checkpoints of its rows: so that a handle
 * (mvcc/zhandle.h) is found without reading all later records.
 *
 * A page is identified by the number of its file and its block. The file of a
 * table in another tablespace, or of a temporary table, may have the same
 * number. That does no harm: runs and lists are recognised by undo pointers,
 * which differ; and if two pages share an Order, zown_accepts_older may return
 * false without need.
 *
 * Called by dml/ (which notes its records and uses the shortcuts), zwalk.c and
 * zany.c; hooks.c calls zown_at_xact_end.
 * All of it is the backend's own. No locks but those of zu_fetch, no crash
 * points.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/transam.h"
#include "common/hashfn.h"
#include "mvcc/zown.h"
#include "mvcc/ztrail.h"
#include "mvcc/zxid.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

typedef struct Run
{
	UndoPtr		head;			/* newest record of the run */
	UndoPtr		below;			/* the record under its oldest one */
	RelFileNumber relnumber;
	BlockNumber block;
	CommandId	cid;
	uint64		written[(ZHEAP_MAX_OFFSET + 64) / 64];
} Run;

/*
 * A command that calls functions continues with its own, smaller cid when they
 * return. Its next record is then newer than records of a greater cid. A
 * cursor opened in between sees the newer record and not the older ones. Each
 * element stands for all pages that hash to it.
 */
#define ORDERS	256

typedef struct Order
{
	CommandId	greatest;		/* of the cids of our records in this
								 * transaction */
	CommandId	ordered_from;	/* a snapshot with this curcid or a greater
								 * one accepts all of our records that lie
								 * below the first one that it accepts */
} Order;

#define FIRST_CAPACITY 64
#define MAX_CHECKPOINTS 1024

/* The own records of one page, the one that zown_chain was last called for. */
typedef struct OwnChain
{
	ZChainEntry *entries;		/* in TopTransactionContext */
	uint32		n;
	uint32		capacity;
	RelFileNumber relnumber;
	BlockNumber block;
	uint32		found;			/* where zown_chain_find found the last change */
} OwnChain;

/* Versions of rows of that page. */
typedef struct Checkpoint
{
	uint32		at;				/* its author's place in the list */
	OffsetNumber off;
	int			len;
	char	   *row;			/* in checkpoint_memory */
} Checkpoint;

/* What this backend knows of its own records. */
typedef struct MyRecords
{
	Run			run;
	Order		orders[ORDERS];
	bool		any_noted;		/* orders is in use */
	bool		on_unseen;		/* see zown_note_push */
	OwnChain	chain;
	uint32		newest[ZHEAP_MAX_OFFSET + 1];	/* of chain.entries, the
												 * newest one about each row,
												 * + 1; 0 = none. Only valid
												 * while chain.n > 0 */
	Checkpoint	checkpoints[MAX_CHECKPOINTS];
	int			ncheckpoints;
	MemoryContext checkpoint_memory;	/* in TopTransactionContext */
} MyRecords;

static MyRecords my;

/* Returns the element to which the page hashes. */
static inline Order *
find_order(RelFileNumber relnumber, BlockNumber block)
{
	return &my.orders[murmurhash32(relnumber ^ murmurhash32(block)) % ORDERS];
}

/* Adds the rows at the offsets first to last to the run's. */
static void
note_written(int first, int last)
{
	for (int word = first / 64; word <= last / 64; word++)
	{
		uint64		bits = ~UINT64CONST(0);

		if (word == first / 64)
			bits &= ~UINT64CONST(0) << (first % 64);
		if (word == last / 64)
			bits &= ~UINT64CONST(0) >> (63 - last % 64);
		my.run.written[word] |= bits;
	}
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
	my.any_noted = true;
	if (cid >= order->greatest)
		order->greatest = cid;
	else
		order->ordered_from = order->greatest + 1;
	if (prev == InvalidUndoPtr || prev != my.run.head || my.run.cid != cid ||
		my.run.block != block ||
		my.run.relnumber != relnumber)
	{
		memset(&my.run, 0, sizeof(my.run));
		my.run.relnumber = relnumber;
		my.run.block = block;
		my.run.cid = cid;
		my.run.below = prev;
	}
	my.run.head = ptr;
	note_written(first, Min(first + n - 1, ZHEAP_MAX_OFFSET));
}

/*
 * zown_skip: See zown.h. Returns the record below the run if head is the run's
 * newest one and off is not among its rows; else head.
 */
UndoPtr
zown_skip(RelFileNumber relnumber, BlockNumber block, OffsetNumber off, UndoPtr head)
{
	Assert(off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET);
	if (head != my.run.head || my.run.block != block || my.run.relnumber != relnumber ||
		head == InvalidUndoPtr ||
		(my.run.written[off / 64] & (UINT64CONST(1) << (off % 64))) != 0)
		return head;
	return my.run.below;
}

/*
 * zown_below: See zown.h. Returns the record below the run only if head is the
 * newest one of the run.
 */
UndoPtr
zown_below(RelFileNumber relnumber, BlockNumber block, UndoPtr head, UndoPtr prev)
{
	if (head != my.run.head || my.run.block != block || my.run.relnumber != relnumber ||
		head == InvalidUndoPtr)
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
zown_accepts_older(RelFileNumber relnumber, BlockNumber block, CommandId command)
{
	return !my.on_unseen && !IsParallelWorker() &&
		command >= find_order(relnumber, block)->ordered_from;
}

/* ---- the own records of one page ---- */

/* Drops all checkpoints and frees their rows. */
static void
forget_checkpoints(void)
{
	my.ncheckpoints = 0;
	if (my.checkpoint_memory != NULL)
		MemoryContextReset(my.checkpoint_memory);
}

/* Notes the entries from 'from' on as the newest ones about their rows. */
static void
note_newest(uint32 from)
{
	if (from == 0)
		memset(my.newest, 0, sizeof(my.newest));
	for (uint32 i = from; i < my.chain.n; i++)
	{
		const ZChainEntry *entry = &my.chain.entries[i];

		for (int off = entry->first; off <= Min((int) entry->last, ZHEAP_MAX_OFFSET); off++)
			my.newest[off] = i + 1;
	}
}

/*
 * Appends to the list the own records of the chain from head down to stop,
 * which is the newest one in the list already; all own ones if stop is
 * invalid. The list gets its new length only when all of them are there: after
 * an error or a cancel the transaction may continue with the old list. If the
 * chain does not lead to stop, the list becomes empty.
 */
static void
collect_chain(UndoPtr head, UndoPtr stop)
{
	char		buf[ZUR_MAX_LENGTH];
	ZHeaders	headers;
	ZChain		above;
	ZuRecord	rec;
	uint32		before = my.chain.n;
	uint32		n = before;

	Assert(n == 0 || stop == my.chain.entries[n - 1].ptr);
	zchain_begin_at(&above, my.chain.relnumber, my.chain.block, head, zu_oldest_for(head), buf);
	zheaders_start(&headers);
	while (above.next != stop && zheaders_next(&above, &headers, &rec) == ZCHAIN_RECORD)
	{
		ZChainEntry *entry;

		if (!zxid_is_ours(rec.xid))
		{
			above.next = above.here;
			break;
		}
		if (my.chain.entries == NULL)
		{
			my.chain.capacity = FIRST_CAPACITY;
			my.chain.entries = MemoryContextAlloc(TopTransactionContext,
												  my.chain.capacity * sizeof(ZChainEntry));
		}
		else if (n == my.chain.capacity)
		{
			ZUNDO_FAULT("chain-grows");
			my.chain.entries = repalloc_huge(my.chain.entries,
											 (Size) my.chain.capacity * 2 * sizeof(ZChainEntry));
			my.chain.capacity *= 2;
		}
		entry = &my.chain.entries[n++];
		entry->ptr = above.here;
		entry->first = (rec.type == ZUR_LOCK) ? 1 : rec.offset;
		entry->last = (rec.type == ZUR_LOCK) ? 0 :
			(rec.type == ZUR_INSERT) ? rec.offset + rec.nrows - 1 : rec.offset;
	}
	if (stop != InvalidUndoPtr && above.next != stop)
	{
		/*
		 * the list's records are not in this chain, or it would have led to
		 * stop
		 */
		my.chain.n = 0;
		return;
	}
	/* the loop above has appended them newest first */
	for (uint32 i = my.chain.n, j = n; i + 1 < j; i++)
	{
		ZChainEntry swap = my.chain.entries[--j];

		my.chain.entries[j] = my.chain.entries[i];
		my.chain.entries[i] = swap;
	}
	my.chain.n = n;
	note_newest(before);
}

/*
 * zown_chain: See zown.h. Keeps the list from call to call: cuts it back where
 * a rollback has taken the newest records away, and extends it by the records
 * that lie above it now. Drops the checkpoints when the list becomes shorter,
 * since they are known by their place in it.
 */
const ZChainEntry *
zown_chain(RelFileNumber relnumber, BlockNumber block, UndoPtr head, uint32 *n)
{
	if (my.chain.relnumber != relnumber || my.chain.block != block)
	{
		my.chain.n = 0;
		forget_checkpoints();
	}
	my.chain.relnumber = relnumber;
	my.chain.block = block;
	for (uint32 i = my.chain.n; i-- > 0;)
	{
		if (my.chain.entries[i].ptr == head)
		{
			if (my.chain.n != i + 1)
			{
				my.chain.n = i + 1;
				forget_checkpoints();
				note_newest(0);
			}
			*n = my.chain.n;
			return my.chain.entries;
		}
	}
	if (my.chain.n > 0)
		collect_chain(head, my.chain.entries[my.chain.n - 1].ptr);
	if (my.chain.n == 0)
	{
		forget_checkpoints();
		my.chain.found = 0;
		collect_chain(head, InvalidUndoPtr);
	}
	*n = my.chain.n;
	return my.chain.entries;
}

uint32
zown_chain_newest(OffsetNumber off)
{
	Assert(off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET && my.newest[off] <= my.chain.n);
	return my.newest[off];
}

/*
 * zown_chain_find: See zown.h. Looks first at the records behind the last one
 * found, since events fire in the order of their changes.
 */
bool
zown_chain_find(UndoPtr change, uint32 *at)
{
	for (uint32 i = my.chain.found; i < Min(my.chain.n, my.chain.found + 256); i++)
	{
		if (my.chain.entries[i].ptr == change)
		{
			*at = my.chain.found = i;
			return true;
		}
	}
	for (uint32 i = my.chain.n; i-- > 0;)
	{
		if (my.chain.entries[i].ptr == change)
		{
			*at = my.chain.found = i;
			return true;
		}
	}
	return false;
}

/*
 * zown_checkpoint: See zown.h. Searches all checkpoints: they are few enough
 * (MAX_CHECKPOINTS).
 */
const char *
zown_checkpoint(OffsetNumber off, uint32 *at, int *len)
{
	const Checkpoint *best = NULL;

	Assert(*at < my.chain.n);
	for (int i = 0; i < my.ncheckpoints; i++)
	{
		const Checkpoint *c = &my.checkpoints[i];

		if (c->off == off && c->at >= *at && (best == NULL || c->at < best->at))
			best = c;
	}
	if (best == NULL)
		return NULL;
	*at = best->at;
	*len = best->len;
	return best->row;
}

/*
 * zown_keep_checkpoint: See zown.h. Keeps a copy. When all MAX_CHECKPOINTS
 * places are taken, forgets the old ones.
 */
void
zown_keep_checkpoint(OffsetNumber off, uint32 at, const char *row, int len)
{
	Checkpoint *c;

	Assert(at < my.chain.n);
	if (my.checkpoint_memory == NULL)
		my.checkpoint_memory = AllocSetContextCreate(TopTransactionContext,
													 "zundo checkpoints of rows",
													 ALLOCSET_DEFAULT_SIZES);
	if (my.ncheckpoints == MAX_CHECKPOINTS)
		forget_checkpoints();
	c = &my.checkpoints[my.ncheckpoints];
	c->at = at;
	c->off = off;
	c->len = len;
	c->row = MemoryContextAlloc(my.checkpoint_memory, len);
	memcpy(c->row, row, len);
	my.ncheckpoints++;
}

/*
 * zown_at_xact_end: See zown.h. Forgets what was noted. The list and the
 * checkpoints live in the transaction's memory, which is freed with it. orders
 * is cleared only if it was used: it is 2 kB.
 */
void
zown_at_xact_end(void)
{
	my.on_unseen = false;
	if (my.any_noted)
		memset(my.orders, 0, sizeof(my.orders));
	my.any_noted = false;
	memset(&my.chain, 0, sizeof(my.chain));
	my.ncheckpoints = 0;
	my.checkpoint_memory = NULL;
}
