/*
 * test/own_unit.c - unit test of mvcc/zown.c, callable from SQL.
 *
 *	zundo_test_own(seed int, rounds int) returns bigint
 *
 * In each round, transactions push records on the chains of a few pages:
 * commands that call others, savepoints that are rolled back, rows that a
 * record covers later. What zown.c says is compared with the records. Returns
 * the number of cases; a mismatch is an ERROR that names the seed.
 * Rules: VIS-3.
 */
#include "unit.h"

#include "access/parallel.h"
#include "fmgr.h"
#include "mvcc/zown.h"
#include "page/zpage.h"
#include "utils/snapmgr.h"

PGDLLEXPORT Datum zundo_test_own(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_test_own);

#define NPAGES	3
#define NRECORDS 300
#define NDEEP	4

typedef struct NotedRecord
{
	int			page;
	int			prev;			/* the record below; -1 = none */
	int			xact;
	CommandId	cid;
	bool		aborted;
	bool		covers;			/* it may come to concern further rows */
	bool		concerns[ZHEAP_MAX_OFFSET + 1];
} NotedRecord;

static struct
{
	NotedRecord record[NRECORDS];	/* in the order in which they were made */
	int			n;
	int			first_of_run;	/* the newest run; -1 = none */
	RelFileNumber relnumber[NPAGES];
	BlockNumber block[NPAGES];
	int			head[NPAGES];	/* -1 = none */
	int			xact;
	bool		on_unseen;
	CommandId	next_cid;
	CommandId	cid[NDEEP];		/* commands in progress, the outermost first */
	int			depth;
	int			savepoint;		/* the first record after it; -1 = none */
	int			savepoint_depth;
}			model;

/* Returns the pointer to record i, or that to none. */
static UndoPtr
pointer(int i)
{
	return i < 0 ? InvalidUndoPtr : (UndoPtr) (i + 1) * 100;
}

/* Returns a random offset, often next to a multiple of 64. */
static OffsetNumber
random_offset(void)
{
	int			off = pick(2) == 0 ? 1 + pick(ZHEAP_MAX_OFFSET)
	: 64 * pick(ZHEAP_MAX_OFFSET / 64 + 1) + pick(5) - 2;

	return (OffsetNumber) Min(Max(off, FirstOffsetNumber), ZHEAP_MAX_OFFSET);
}

/* Undoes the aborted records of the page. */
static void
undo_page(int page)
{
	while (model.head[page] >= 0 && model.record[model.head[page]].aborted)
		model.head[page] = model.record[model.head[page]].prev;
}

/* Pushes a record of the innermost command on the chain of a page. */
static void
push(void)
{
	int			page = pick(NPAGES);
	int			i = model.n++;
	NotedRecord *rec = &model.record[i];
	CommandId	cid = model.cid[model.depth - 1];
	int			first = random_offset();
	int			rows = pick(4) == 0 ? 1 + pick(ZHEAP_MAX_OFFSET - first + 1) : 1;
	int			last = i - 1;
	int			prev;

	undo_page(page);
	prev = model.head[page];
	memset(rec, 0, sizeof(*rec));
	rec->page = page;
	rec->prev = prev;
	rec->xact = model.xact;
	rec->cid = cid;
	rec->covers = (pick(3) == 0);
	for (int off = first; off < first + rows; off++)
		rec->concerns[off] = true;
	model.head[page] = i;
	if (model.first_of_run < 0 || prev != last || model.record[last].cid != cid)
		model.first_of_run = i;
	if (prev >= 0 && model.record[prev].xact != model.xact)
	{
		bool		unseen = (pick(20) == 0);

		model.on_unseen |= unseen;
		zown_note_push(TransactionXmin + (unseen ? pick(2) : -1));
	}
	zown_note(model.relnumber[page], model.block[page], (OffsetNumber) first, rows, cid,
			  pointer(i), pointer(prev));
}

/*
 * Makes the head of a page concern another row, if it is of the same command.
 */
static void
cover(void)
{
	int			i = model.head[pick(NPAGES)];
	OffsetNumber off = random_offset();

	if (i < 0 || !model.record[i].covers || model.record[i].aborted ||
		model.record[i].xact != model.xact ||
		model.record[i].cid != model.cid[model.depth - 1])
		return;
	model.record[i].concerns[off] = true;
	zown_note_covered(off, pointer(i));
}

/* Rolls back to the savepoint. Its last command may give up its command id. */
static void
roll_back(void)
{
	for (int i = model.savepoint; i < model.n; i++)
		model.record[i].aborted = true;
	model.savepoint = -1;
	if (model.depth == 1 && model.savepoint_depth == 0 && model.cid[0] + 1 == model.next_cid)
		model.next_cid -= pick(2);
	model.depth = model.savepoint_depth;
	for (int page = 0; page < NPAGES; page++)
		if (pick(2) == 0)
			undo_page(page);
}

static void
end_transaction(void)
{
	if (model.savepoint >= 0 && pick(2) == 0)
		roll_back();
	for (int page = 0; page < NPAGES; page++)
		undo_page(page);
	zown_at_xact_end();
	model.xact++;
	model.first_of_run = -1;
	model.on_unseen = false;
	model.next_cid = FirstCommandId;
	model.depth = 0;
	model.savepoint = -1;
}

/* Returns whether the head of the page is the newest record of the run. */
static bool
is_run(int page)
{
	return model.first_of_run >= 0 && model.head[page] == model.n - 1;
}

/*
 * Compares what is said of one row. A snapshot with the command id accepts a
 * record if that is of a smaller one.
 */
static void
check_row(void)
{
	int			page = pick(NPAGES);
	int			head = model.head[page];
	OffsetNumber off = random_offset();
	CommandId	command = (CommandId) pick(model.next_cid + 2);
	bool		skips = is_run(page);
	bool		accepts;
	bool		must_accept;

	for (int i = skips ? model.first_of_run : model.n; i < model.n; i++)
		skips &= !model.record[i].concerns[off];
	CHECK(zown_skip(off, pointer(head)) ==
		  pointer(skips ? model.record[model.first_of_run].prev : head));
	if (head < 0)
		return;
	CHECK(zown_below(pointer(head), pointer(model.record[head].prev)) ==
		  pointer(model.record[is_run(page) ? model.first_of_run : head].prev));
	if (model.record[head].xact != model.xact || model.record[head].aborted)
		return;
	accepts = zown_accepts_row(model.relnumber[page], model.block[page], off, pointer(head),
							   command);
	CHECK(!accepts || !model.on_unseen);
	must_accept = !model.on_unseen;
	for (int i = 0; i < (skips ? model.first_of_run : model.n); i++)
	{
		const NotedRecord *rec = &model.record[i];

		if (rec->xact != model.xact || rec->cid < command)
			continue;
		must_accept = false;	/* another page may count as this one */
		CHECK(!accepts || rec->aborted || rec->page != page);
	}
	CHECK(accepts || !must_accept);
}

/* Compares what is said of the chain of one page. */
static void
check_chain(void)
{
	int			page = pick(NPAGES);
	CommandId	command = (CommandId) pick(model.next_cid + 2);
	bool		accepts = zown_accepts_older(model.relnumber[page], model.block[page], command);
	bool		in_order = true;
	bool		all_older = true;
	bool		beyond = false;
	CommandId	greatest = 0;

	for (int i = 0; i < model.n; i++)
	{
		const NotedRecord *rec = &model.record[i];

		if (rec->xact != model.xact)
			continue;
		in_order &= (rec->cid >= greatest);
		greatest = Max(greatest, rec->cid);
		all_older &= (rec->cid < command);
		if (rec->aborted || rec->page != page)
			continue;
		if (rec->cid >= command)
			beyond = true;
		else
			CHECK(!accepts || !beyond);
	}
	CHECK(!accepts || !model.on_unseen);
	CHECK(accepts || model.on_unseen || !(in_order || all_older));
}

/* Checks that a parallel worker, which has noted nothing, relies on nothing. */
static void
check_worker(void)
{
	int			number = ParallelWorkerNumber;
	int			page = pick(NPAGES);
	bool		accepts;

	ParallelWorkerNumber = 0;
	accepts = zown_accepts_older(model.relnumber[page], model.block[page], model.next_cid) ||
		zown_accepts_row(model.relnumber[page], model.block[page], random_offset(),
						 pointer(model.head[page]), model.next_cid);
	ParallelWorkerNumber = number;
	CHECK(!accepts);
}

/* Makes a random change of the model. */
static void
one_step(void)
{
	switch (pick(20))
	{
		case 0:
			if (model.savepoint < 0)
			{
				model.savepoint = model.n;
				model.savepoint_depth = model.depth;
			}
			return;
		case 1:
			if (model.savepoint >= 0)
				roll_back();
			return;
		case 2:
			if (pick(2) == 0)
				end_transaction();
			else if (pick(10) == 0)
			{
				zown_note_rewrite();
				model.on_unseen = true;
			}
			return;
		case 3:
		case 4:
			if (model.depth < NDEEP)
				model.cid[model.depth++] = model.next_cid++;
			return;
		case 5:
		case 6:
			if (model.depth > 0)
				model.depth--;
			/* a function has ended that has not rolled back */
			if (model.depth < model.savepoint_depth)
				model.savepoint = -1;
			return;
	}
	/* the command that has set the savepoint waits for those that it calls */
	if (model.depth == 0 || (model.savepoint >= 0 && model.depth == model.savepoint_depth))
		return;
	if (pick(3) == 0)
		cover();
	else
		push();
}

/* zundo_test_own(seed, rounds): see the top of this file. */
Datum
zundo_test_own(PG_FUNCTION_ARGS)
{
	start_test(PG_GETARG_INT32(0));
	for (; unit.round < PG_GETARG_INT32(1); unit.round++)
	{
		memset(&model, 0, sizeof(model));
		for (int page = 0; page < NPAGES; page++)
		{
			model.relnumber[page] = 1000 + pick(NPAGES);
			model.block[page] = (BlockNumber) page;
			model.head[page] = -1;
		}
		end_transaction();
		while (model.n < NRECORDS)
		{
			one_step();
			check_row();
			check_chain();
			if (pick(20) == 0)
				check_worker();
		}
	}
	zown_at_xact_end();
	PG_RETURN_INT64(unit.cases);
}
