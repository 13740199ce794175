/*
 * mvcc/zpageview.c - all rows of one page as a snapshot sees them.
 *
 * The page is copied under its share lock. If some slot's head is not
 * accepted, the chain's unaccepted records are collected once, newest first,
 * into lists by (slot, offset), or by slot if they are about several rows. Each
 * row is then taken back change by change: each time by the lists of the slot
 * that its header names at that point, until they have none. So the work is
 * linear in the number of records, but for those about several rows: a row may
 * be compared with all of them.
 *
 * Called by scan/. The page's share lock is held only while the page is
 * copied; undo pages are read under the fence of zu_read_begin. Nothing is
 * written. Rules VIS-1 to VIS-4 of mvcc/README.md.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "mvcc/zpageview.h"
#include "mvcc/zsaved.h"
#include "mvcc/zwalk.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define ARENA_BLOCK (64 * 1024)
/*
 * This many records are read under one fence; then interrupts are processed.
 */
#define FENCED_RECORDS 256
/*
 * A view that has read this many records comes to the same undo pages often
 * enough that private copies of them pay.
 */
#define MANY_RECORDS 2000

/*
 * Rows of a page with more records than this are better fetched one by one
 * (view->unseen), and so are those whose records need more memory, which the
 * view would keep while the scan is at the page.
 */
#define MAX_RECORDS 4096
#define MAX_MEMORY	(512 * 1024)

/* Until then the chains of this many slots have a window each. */
#define WINDOWS 4

/* A page of which at most this many rows are read is not copied as a whole. */
#define FEW_ROWS 32

/*
 * One unaccepted change, or the accepted record at which a row's changes end.
 */
typedef struct Change
{
	struct Change *next;		/* older change in the same list */
	struct Change *met_before;	/* the change collected before this one */
	ZXid		xid;
	union
	{
		const char *payload;	/* in the arena, or where the undo page was
								 * copied to */
		UndoPtr		ptr;		/* if accepted: the record */
	};
	uint32		order;			/* increases down the chain */
	uint16		payload_len;
	uint16		offset;			/* the first row */
	uint16		last;			/* the last row */
	uint16		slot;
	uint16		xflags;
	uint8		type;
	bool		accepted;		/* the version that the row has then is */
	bool		range;			/* the record is about several rows, though
								 * the page may not have them */
} Change;

/* Working state of one page. */
typedef struct Collector
{
	ZPageView  *view;
	Relation	rel;
	RelFileNumber relnumber;
	BlockNumber block;
	ZAccept		accept;
	int			maxoff;
	ZChain		chain[ZPAGE_MAX_SLOTS + 1]; /* per pending slot */
	UndoPtr		gone[ZPAGE_MAX_SLOTS + 1];	/* of these chains, and of those
											 * of earlier copies and pages
											 * (zchain_begin_copied) */
	uint32		nrecords;		/* of these chains, read so far */
	Change	   *met;			/* the change collected last */
	Change	  **first[ZPAGE_MAX_SLOTS + 1]; /* per pending slot, of one row:
											 * first[slot][offset] */
	bool		any_range[ZPAGE_MAX_SLOTS + 1]; /* per pending slot: whether
												 * there are changes of
												 * several rows */
	Change	   *insertions[ZPAGE_MAX_SLOTS + 1];	/* per pending slot: of
													 * several rows each */
	Change	   *deletions[ZPAGE_MAX_SLOTS + 1]; /* the same */
	bool		pending[ZPAGE_MAX_SLOTS + 1];
	UndoPtr		accepted[ZPAGE_MAX_SLOTS + 1];	/* per pending slot: the first
												 * accepted record, if all
												 * below it are accepted too;
												 * else Invalid */
	ZXid		refused_xid[ZPAGE_MAX_SLOTS + 1];	/* per pending slot: of
													 * the last record, if
													 * that is not accepted;
													 * else Invalid */
	CommandId	refused_cid[ZPAGE_MAX_SLOTS + 1];
	bool		any_pending;
	bool		touched[ZHEAP_MAX_OFFSET + 1];	/* whether the row may have
												 * changes in lists */
	ZuWindow	window[WINDOWS];	/* of the chain of slot s: s % WINDOWS */
	char	   *arena;
	Size		arena_left;
	Size		memory;			/* of the arena but for its first block */
	char		raw[ZUR_MAX_LENGTH];
} Collector;

/*
 * The view that was given back last, in TopMemoryContext: nobody uses it. A
 * view in use is its owner's, so that an error leaves none behind.
 */
static ZPageView *spare = NULL;

/*
 * Where the holder of the view that rests has it; NULL: none rests. Both are
 * the owner's, so it is forgotten with the view's memory.
 */
static ZPageView **resting = NULL;

/* How many views are in use. */
static int	nused = 0;

/* Forgets the view. Callback of its memory context. */
static void
forget_view(void *view)
{
	zpageview_wake(view);
	nused -= ((ZPageView *) view)->used;
}

/* Takes the view that rests away from its holder, and returns it. */
static ZPageView *
take_resting(void)
{
	ZPageView  *view = *resting;

	*resting = NULL;
	resting = NULL;
	return view;
}

/* Returns a new view in a memory context of its own, a child of owner. */
static ZPageView *
create_view(MemoryContext owner)
{
	MemoryContext home = AllocSetContextCreate(owner, "zheap page view", ALLOCSET_SMALL_SIZES);
	ZPageView  *view = MemoryContextAlloc(home, sizeof(ZPageView));

	view->home = home;
	view->context = NULL;
	view->context_used = false;
	view->arena = NULL;
	view->used = 0;
	view->gone.func = forget_view;
	view->gone.arg = view;
	MemoryContextRegisterResetCallback(home, &view->gone);
	return view;
}

/*
 * zpageview_take: See zpageview.h. The memory for old versions is allocated
 * when it is needed; a spare view has kept its arena.
 */
ZPageView *
zpageview_take(MemoryContext owner)
{
	ZPageView  *view = spare;

	if (view == NULL && resting != NULL)
		view = take_resting();
	spare = NULL;
	if (view != NULL)
		MemoryContextSetParent(view->home, owner);
	else
		view = create_view(owner);
	nused += 1 - view->used;
	view->used = 1;
	view->nrecords = 0;
	view->nrows = 0;
	view->read = NULL;
	view->nread = 0;
	view->unseen = NULL;
	return view;
}

/* zpageview_give_back: See zpageview.h. */
void
zpageview_give_back(ZPageView *view)
{
	Assert(view != spare);
	zpageview_wake(view);
	if (spare != NULL)
	{
		MemoryContextDelete(view->home);
		return;
	}
	if (view->context != NULL)
		MemoryContextDelete(view->context);
	view->context = NULL;
	view->context_used = false;
	MemoryContextSetParent(view->home, TopMemoryContext);
	nused -= view->used;
	view->used = 0;
	spare = view;
}

int
zpageview_nused(void)
{
	return nused;
}

/*
 * zpageview_rest: See zpageview.h. Only one view rests; another one is given
 * back.
 */
void
zpageview_rest(ZPageView **holder)
{
	Assert(*holder != NULL);
	if (resting != NULL && resting != holder)
		zpageview_give_back(take_resting());
	resting = holder;
}

void
zpageview_wake(ZPageView *view)
{
	if (resting != NULL && *resting == view)
		resting = NULL;
}

/*
 * Returns aligned space for size bytes in the arena, of which arena_take then
 * keeps as many as are needed. The arena's first block is kept with the view,
 * later ones are freed before the next page.
 */
static char *
arena_space(Collector *c, Size size)
{
	if (size > c->arena_left && c->arena == NULL && size <= ARENA_BLOCK)
	{
		if (c->view->arena == NULL)
			c->view->arena = MemoryContextAlloc(c->view->home, ARENA_BLOCK);
		c->arena = c->view->arena;
		c->arena_left = ARENA_BLOCK;
	}
	if (size > c->arena_left)
	{
		Size		block = Max(size, ARENA_BLOCK);

		if (c->view->context == NULL)
			c->view->context = AllocSetContextCreate(c->view->home, "zheap old versions",
													 ALLOCSET_DEFAULT_SIZES);
		c->arena = MemoryContextAlloc(c->view->context, block);
		c->arena_left = block;
		c->memory += block;
		c->view->context_used = true;
	}
	return c->arena;
}

/*
 * Keeps the first size bytes of the space that arena_space has returned last.
 */
static inline void
arena_take(Collector *c, Size size)
{
	Assert(size <= c->arena_left);
	size = Min(MAXALIGN(size), c->arena_left);
	c->arena += size;
	c->arena_left -= size;
}

/* Returns size bytes of the arena. */
static void *
arena_alloc(Collector *c, Size size)
{
	char	   *p = arena_space(c, size);

	arena_take(c, size);
	return p;
}

/*
 * Notes a change by rec, in slot s's chain, of those of the n rows of its range
 * that next_change finds it for. accepted: where rec is, if it is accepted;
 * else InvalidUndoPtr.
 */
static inline void
add_change(Collector *c, int s, const ZuRecord *rec, int n, UndoPtr accepted)
{
	int			first = rec->offset;
	int			last = first;
	Change	   *change;

	Assert(s >= 1 && s <= c->view->slots.n);
	if (n > 1)
	{
		last = Min(first + n - 1, c->maxoff);
		first = Max(first, FirstOffsetNumber);
	}
	if (unlikely(first < FirstOffsetNumber || first > c->maxoff))
		return;
	change = arena_alloc(c, sizeof(Change));
	change->met_before = c->met;
	change->xid = zrecord_author(rec);
	change->accepted = (accepted != InvalidUndoPtr);
	if (change->accepted)
		change->ptr = accepted;
	else
		change->payload = rec->payload;
	change->order = c->nrecords;
	change->payload_len = rec->payload_len;
	change->offset = first;
	change->last = last;
	change->slot = s;
	change->xflags = rec->xflags;
	change->type = rec->type;
	change->range = n > 1;
	c->met = change;
	c->touched[first] = true;
	if (change->range)
	{
		c->any_range[s] = true;
		memset(&c->touched[first], true, last - first + 1);
	}
}

/*
 * Makes the lists of all rows from the changes collected. It visits them in
 * reverse order, and puts each one before those of its list that it has met: so
 * each list begins with the newest change.
 */
static void
make_lists(Collector *c)
{
	for (Change *change = c->met; change != NULL; change = change->met_before)
	{
		int			s = change->slot;
		Change	  **list = &c->first[s][change->offset];

		if (change->range)
			list = change->type == ZUR_DELETE ? &c->deletions[s] : &c->insertions[s];
		change->next = *list;
		*list = change;
	}
}

/*
 * Returns the newest of the changes in list, which are about several rows, that
 * is about the row at off and newer than change; else change.
 */
static inline Change *
newer_range(Change *list, OffsetNumber off, Change *change)
{
	uint32		limit = change != NULL ? change->order : PG_UINT32_MAX;

	for (; list != NULL && list->order < limit; list = list->next)
		if (off >= list->offset && off <= list->last)
			return list;
	return change;
}

/*
 * Returns the newest change in the lists of slot s that has written the
 * version of the row at off with this header, which names the slot; NULL if
 * there is none (VIS-2). When it is undone it must be removed if it is about
 * one row. If it is about several, it is either the insertion, or the
 * deletion, which is not found for an older version (RANGE-3 in dml/).
 */
static inline Change *
next_change(Collector *c, int s, OffsetNumber off, ZHeader header)
{
	Change	   *change = c->first[s][off];

	if (!c->any_range[s])
		return change;
	if (ZH_STATE(header) == ZSTATE_DELETED)
		change = newer_range(c->deletions[s], off, change);
	return newer_range(c->insertions[s], off, change);
}

/* Begins the lists of slot s's changes, and the reading of its chain. */
static void
open_lists(Collector *c, int s)
{
	Size		listsize = (c->maxoff + 1) * sizeof(Change *);

	Assert(c->pending[s]);
	c->accepted[s] = InvalidUndoPtr;
	c->refused_xid[s] = InvalidZXid;
	c->first[s] = arena_alloc(c, listsize);
	memset(c->first[s], 0, listsize);
	c->any_range[s] = false;
	c->insertions[s] = c->deletions[s] = NULL;
	zchain_begin_copied(&c->chain[s], c->relnumber, c->block, &c->view->slots.s[s], &c->gone[s],
						c->view->slots.oldest, NULL);
}

/*
 * Returns whether the change by rec, in slot s's chain, is accepted. Mostly the
 * record before is of the same transaction and command.
 */
static inline bool
accepts(Collector *c, int s, const ZuRecord *rec)
{
	bool		accepted;

	if (unlikely(TransactionIdIsValid(rec->as_of)))
		return zaccept_version(&c->accept, rec);
	if (rec->xid == c->refused_xid[s] && rec->cid == c->refused_cid[s])
		return false;
	accepted = zaccept_version(&c->accept, rec);
	c->refused_xid[s] = accepted ? InvalidZXid : rec->xid;
	c->refused_cid[s] = rec->cid;
	return accepted;
}

/*
 * Notes the change of n rows by rec, the last record of slot s's chain. n,
 * accepted: as for add_change. A payload in a window is copied to the arena;
 * one in chain->buf lies there already; rec->payload is set to it. Inline, so
 * that n and accepted are constants for records that are alike.
 */
static pg_attribute_always_inline void
note_change(Collector *c, int s, ZuRecord *rec, int n, UndoPtr accepted)
{
	ZChain	   *chain = &c->chain[s];

	c->nrecords++;
	c->view->nrecords++;
	if (rec->type == ZUR_LOCK)
		return;
	if (accepted == InvalidUndoPtr && rec->payload_len > 0)
	{
		if (chain->bytes == chain->buf)
			arena_take(c, rec->length);
		else if (chain->window != NULL)
		{
			char	   *copy = arena_alloc(c, rec->payload_len);

			memcpy(copy, rec->payload, rec->payload_len);
			rec->payload = copy;
		}
	}
	add_change(c, s, rec, n, accepted);
}

/*
 * Reads the next record of slot s's chain, and those after it that lie beside
 * it and are alike, and notes their changes if they are not accepted. Returns
 * false if the page must be copied again. After the last record chain->next is
 * invalid.
 */
static bool
collect_records(Collector *c, int s)
{
	ZChain	   *chain = &c->chain[s];
	UndoPtr		accepted = InvalidUndoPtr;
	ZuRecord	rec;
	ZurLayout	layout;
	bool		has_layout;
	ZChainStep	step;

	Assert(c->pending[s] && c->chain[s].source == ZCHAIN_COPIED);
	chain->buf = arena_space(c, ZUR_MAX_LENGTH);
	chain->cached = true;
	chain->window = c->view->nrecords < MANY_RECORDS || c->view->unseen != NULL
		? &c->window[s % WINDOWS] : NULL;
	step = zchain_next(chain, &rec);
	if (step != ZCHAIN_RECORD)
	{
		chain->next = InvalidUndoPtr;
		if (unlikely(step == ZCHAIN_DAMAGED))
			c->nrecords = MAX_RECORDS + 1;
		return step != ZCHAIN_RETRY;
	}
	if (accepts(c, s, &rec))
	{
		/*
		 * The chain need not be read further by VIS-3, unless the record is
		 * accepted only for the transaction that it is "as of".
		 */
		if (zaccept_record(&c->accept, rec.xid, rec.cid) &&
			zaccept_older(&c->accept, c->relnumber, c->block, rec.xid))
		{
			c->accepted[s] = chain->here;
			chain->next = InvalidUndoPtr;
			return true;
		}
		/* the record's row needs no older record, other rows may */
		accepted = chain->here;
	}
	has_layout = accepted == InvalidUndoPtr && zchain_next_beside(chain) > 0 &&
		zur_layout(chain->bytes, &rec, &layout);
	note_change(c, s, &rec, zrecord_range(&rec), accepted);
	if (has_layout)
		while (zchain_next_alike(chain, &layout, &rec))
			note_change(c, s, &rec, 1, InvalidUndoPtr);
	if (chain->next != InvalidUndoPtr)
		zu_cache_prefetch(chain->next);
	return true;
}

/* Returns whether the rows are to be fetched one by one. */
static inline bool
gives_up(const Collector *c)
{
	return unlikely(c->nrecords > MAX_RECORDS || c->memory > MAX_MEMORY) &&
		c->view->unseen != NULL;
}

/*
 * Collects the unaccepted records of all pending slots. The chains are
 * followed side by side, so that the memory of one chain's next record arrives
 * while the others are read. The fence is held over many records, but released
 * from time to time to process interrupts. Returns false if the page must be
 * copied again.
 */
static bool
collect_slots(Collector *c)
{
	const ZSlotView *slots = &c->view->slots;
	bool		complete = true;
	bool		more;
	uint32		fenced = 0;		/* records that were read before the fence was
								 * taken last */

	memset(c->touched, 0, c->maxoff + 1);
	c->nrecords = 0;
	c->memory = 0;
	zu_cache_tidy();
	for (int i = 0; i < WINDOWS; i++)
	{
		zu_window_start(&c->window[i]);
		c->window[i].try = (c->view->unseen != NULL);
	}
	zu_read_begin();
	for (int s = 1; s <= slots->n; s++)
	{
		if (!c->pending[s])
			continue;
		zu_cache_prefetch(slots->s[s].ptr);
		open_lists(c, s);
	}
	do
	{
		more = false;
		for (int s = 1; s <= slots->n && complete; s++)
		{
			if (!c->pending[s] || c->chain[s].next == InvalidUndoPtr)
				continue;
			complete = collect_records(c, s);
			more |= (c->chain[s].next != InvalidUndoPtr);
			if (c->nrecords - fenced >= FENCED_RECORDS)
			{
				zu_read_end();
				CHECK_FOR_INTERRUPTS();
				zu_read_begin();
				fenced = c->nrecords;
			}
		}
		if (gives_up(c))
			break;
	} while (more && complete);
	zu_read_end();
	if (complete)
		make_lists(c);
	return complete;
}

/*
 * Finds the slots that have changes which are not accepted. Raises
 * ERRCODE_DATA_CORRUPTED as zvis_is_young does.
 */
static void
find_pending(Collector *c)
{
	const ZSlotView *slots = &c->view->slots;

	c->any_pending = false;
	for (int s = 1; s <= slots->n; s++)
	{
		const ZPageSlot *slot = &slots->s[s];

		if (unlikely(zuptr_is_temp(slot->ptr)) && c->accept.kind == ZACCEPT_MVCC)
			zvis_check_temp(slot->ptr, ZSLOT_XID(slot), c->accept.snapshot);
		c->pending[s] = zvis_is_young(c->rel, c->block, s, slot, slots->oldest) &&
			!zaccept_head(&c->accept, ZSLOT_XID(slot));
		c->any_pending |= c->pending[s];
	}
}

/*
 * Returns whether a damaged slot would keep every row of the page from being
 * read (zvis_is_young).
 */
static bool
has_damaged_slot(const ZSlotView *slots)
{
	for (int s = 1; s <= slots->n; s++)
	{
		ZSlotAge	age = zslot_age(&slots->s[s], slots->oldest);

		if (age == ZAGE_LOST || (age == ZAGE_YOUNG && !zxid_possible(ZSLOT_XID(&slots->s[s]))) ||
			zuptr_is_temp(slots->s[s].ptr))
			return true;
	}
	return false;
}

/* Adds a row to the view. */
static void
emit_row(ZPageView *view, OffsetNumber off, const char *row, int len, int slotno)
{
	int			i = view->nrows++;

	Assert(i < ZHEAP_MAX_OFFSET && off >= FirstOffsetNumber);
	Assert(i == 0 || off > view->offset[i - 1]);
	view->offset[i] = off;
	view->row[i] = row;
	view->len[i] = len;
	view->slotno[i] = slotno;
}

/*
 * Returns the insertion of the row at off if no snapshot can need the bytes
 * that the row had before its deletion, whose raw payload is given: if it has
 * not been changed in between, and the insertion is not accepted. Else returns
 * NULL.
 */
static const Change *
insertion_before(Collector *c, OffsetNumber off, const char *raw, Size rawlen)
{
	const Change *change;
	ZHeader		old;

	/* of a stub's old header only state and slot are asked, not the shape */
	if (raw == NULL || zheader_compact_get(raw, raw + rawlen, (ZHeader) 1, &old) == NULL ||
		ZH_SLOT(old) > c->view->slots.n || !c->pending[ZH_SLOT(old)])
		return NULL;
	change = next_change(c, ZH_SLOT(old), off, old);
	return change != NULL && change->type == ZUR_INSERT && !change->accepted ? change : NULL;
}

/*
 * Returns the raw payload of a change that is not accepted, *rawlen bytes; NULL
 * for an insertion, or if it is malformed.
 */
static const char *
raw_payload(Collector *c, const Change *change, Size *rawlen)
{
	ZuRecord	rec = {0};

	rec.type = change->type;
	rec.xflags = change->xflags;
	rec.payload = change->payload;
	rec.payload_len = change->payload_len;
	return zur_raw_payload(&rec, c->raw, sizeof(c->raw), rawlen);
}

/* Adds the row to the view's set of those that the snapshot does not see. */
static inline void
note_unseen(ZPageView *view, OffsetNumber off)
{
	view->unseen[off / 64] |= UINT64CONST(1) << (off % 64);
}

/*
 * Raises the error that undo does not fit a row, unless the view leaves such
 * rows out (view->unseen).
 */
static void
corrupt_row(const Collector *c, UndoPtr ptr)
{
	if (c->view->unseen == NULL)
		zvis_corrupt_chain(c->rel, c->block, ptr);
}

/*
 * Adds the accepted version of one row to the view, if there is a live one.
 * Its changes, of which the newest is given, are undone one after the other on
 * a copy of the row, at first by the lists of the slot in its newest header,
 * then by those of the slot in the header before, and so on. bytes is NULL for
 * a stub. Raises ERRCODE_DATA_CORRUPTED if the chain does not lead to the
 * version.
 */
static void
rewind_row(Collector *c, OffsetNumber off, const char *bytes, int len, ZHeader header,
		   Change *change)
{
	ZPageView  *view = c->view;
	UndoPtr		chain = InvalidUndoPtr;
	int			s = ZH_SLOT(header);
	bool		has_bytes = (bytes != NULL);
	bool		exists = true;
	bool		changed = false;
	ZXid		newest = InvalidZXid;
	char	   *row = arena_space(c, BLCKSZ);

	Assert(bytes == NULL || len >= ZTUPLE_HEADER_SIZE);
	if (has_bytes)
		memcpy(row, bytes, len);
	for (;;)
	{
		ZuRecordType type = change->type;
		const char *raw;
		Size		rawlen;

		if (change->accepted)
		{
			chain = change->ptr;
			break;
		}
		if (!change->range)
			c->first[s][off] = change->next;
		newest = change->xid;
		changed = true;
		raw = change->payload;
		rawlen = change->payload_len;
		if (unlikely(change->xflags & ZUX_LZ4))
			raw = raw_payload(c, change, &rawlen);
		if (!has_bytes && (type == ZUR_DELETE || type == ZUR_MOVE))
		{
			const Change *insertion = insertion_before(c, off, raw, rawlen);

			if (insertion != NULL)
			{
				newest = insertion->xid;
				exists = false;
				break;
			}
			has_bytes = zsaved_take(c->rel, c->block, zpage_trailer(view->page.data)->saved, off,
									row, &len);
			if (!has_bytes && c->accept.kind == ZACCEPT_MVCC)	/* SAVED-2 */
			{
				corrupt_row(c, zpage_trailer(view->page.data)->saved);
				return;
			}
			exists = has_bytes;
			if (!exists)
				break;
		}
		if (!zwalk_undo_record(row, &len, has_bytes, &exists, type, raw, rawlen))
		{
			corrupt_row(c, view->slots.s[s].ptr);
			return;
		}
		if (!exists)
			break;
		header = zheader_get(row);
		if (unlikely(!ZH_LIVE(header)) && change->range)
		{
			corrupt_row(c, view->slots.s[s].ptr);
			return;
		}
		s = ZH_SLOT(header);
		if (unlikely(s > view->slots.n))
		{
			if (view->unseen != NULL)
				return;
			(void) zslots_has(&view->slots, c->rel, c->block, s);
			s = 0;
		}
		chain = view->slots.s[s].ptr;
		if (!c->pending[s])
			break;
		chain = c->accepted[s];
		change = next_change(c, s, off, header);
		if (change == NULL)
			break;
	}
	if (c->accept.kind == ZACCEPT_MVCC)
		zvis_conflict_out(c->rel, c->accept.snapshot, newest);
	if (!exists || !ZH_LIVE(header) || !has_bytes)
	{
		view->dead_rows += exists ? 1 : 0;
		if (view->unseen != NULL)
			note_unseen(view, off);
		return;
	}
	if (changed)
	{
		arena_take(c, len);
		bytes = row;
		view->chain[view->nrows] = chain;
		s |= ZVIEW_REWOUND;
	}
	emit_row(view, off, bytes, len, s);
}

/*
 * Adds the row at off as its lists say. Returns false if it has no list in its
 * own slot: then it stands as it is on the page.
 */
static bool
rewind_touched(Collector *c, OffsetNumber off, ItemId lp)
{
	const ZSlotView *slots = &c->view->slots;
	const char *row = NULL;
	int			len = 0;
	ZHeader		header;
	Change	   *change;
	int			s;

	Assert(off <= c->maxoff && c->touched[off]);
	if (ItemIdIsNormal(lp))
	{
		row = zpage_row(c->view->page.data, lp);
		header = zheader_get(row);
		len = zpage_length_in_room(row, ItemIdGetLength(lp));
		if (unlikely(len == 0))
		{
			if (c->view->unseen != NULL)
				return true;	/* it is left out */
			zvis_corrupt_page(c->rel, c->block, c->view->page.data, off);
		}
	}
	else if (ItemIdIsRedirected(lp))
		header = zpage_stub_header(lp);
	else
		return false;
	s = ZH_SLOT(header);
	if (s > slots->n || !c->pending[s])
		return false;
	change = next_change(c, s, off, header);
	if (change == NULL)
		return false;
	rewind_row(c, off, row, len, header, change);
	return true;
}

/*
 * Adds the row at lp, of offset off, to the view as it stands on the page, if
 * there is a live one.
 */
static inline void
emit_item(Collector *c, OffsetNumber off, ItemId lp)
{
	ZPageView  *view = c->view;
	const char *row;
	uint32		low;
	int			s;
	int			len = lp->lp_len;

	if (!ItemIdIsNormal(lp))
	{
		if (ItemIdIsRedirected(lp) && view->unseen == NULL)
			(void) zslots_has(&view->slots, c->rel, c->block, lp->lp_off);
		view->dead_rows += ItemIdIsUsed(lp) ? 1 : 0;
		return;
	}
	row = view->page.data + lp->lp_off;
	memcpy(&low, row, sizeof(low));
	s = ZH_SLOT((ZHeader) low);
	if (unlikely(s > view->slots.n))
	{
		if (view->unseen != NULL)
			return;
		(void) zslots_has(&view->slots, c->rel, c->block, s);
		s = 0;					/* the slot was given up: the row is visible
								 * to all */
	}
	if (!ZH_LIVE((ZHeader) low))
	{
		view->dead_rows++;
		return;
	}
	if (low & ZH_SLACK)
		len = zpage_length_in_room(row, len);
	if (len != 0 || view->unseen == NULL)
		emit_row(view, off, row, len, s);
}

/*
 * Adds all rows to the view: as their lists say, or as they stand on the page.
 * This is the hot loop of sequential scans, so the caller passes any_touched
 * as a constant and gets two copies of the loop: pages without pending slots
 * look at no list.
 */
static inline void
emit_rows(Collector *c, bool any_touched)
{
	ItemId		lp = ((PageHeader) c->view->page.data)->pd_linp;

	for (int off = FirstOffsetNumber; off <= c->maxoff; off++, lp++)
		if (!any_touched || !c->touched[off] || !rewind_touched(c, off, lp))
			emit_item(c, off, lp);
}

/*
 * Adds the rows at the offsets that the view's user reads. Raises
 * ERRCODE_DATA_CORRUPTED if one of them does not lie on the page, for the other
 * rows have not been looked at.
 */
static void
emit_read(Collector *c)
{
	ZPageView  *view = c->view;

	for (int i = 0; i < view->nread && view->read[i] <= c->maxoff; i++)
	{
		OffsetNumber off = view->read[i];
		ItemId		lp = PageGetItemId(view->page.data, off);

		Assert(off >= FirstOffsetNumber && (i == 0 || off > view->read[i - 1]));
		if (unlikely(ItemIdIsNormal(lp) && !zpage_row_inside(view->page.data, lp)))
			zvis_corrupt_page(c->rel, c->block, view->page.data, off);
		if (!c->any_pending || !c->touched[off] || !rewind_touched(c, off, lp))
			emit_item(c, off, lp);
	}
}

/*
 * Copies a page without its free space, if the header makes sense; else all of
 * it, so that the caller finds the damage in the copy.
 */
static void
copy_page(Page dst, Page src)
{
	LocationIndex lower = ((PageHeader) src)->pd_lower;
	LocationIndex upper = ((PageHeader) src)->pd_upper;

	if (unlikely(lower < SizeOfPageHeaderData || lower > upper || upper > BLCKSZ))
	{
		memcpy(dst, src, BLCKSZ);
		return;
	}
	memcpy(dst, src, lower);
	memcpy(dst + upper, src + upper, BLCKSZ - upper);
}

/*
 * Copies of a page only what the view's user reads: header, trailer, the wanted
 * line pointers, and their rows as far as they lie inside the row area. In the
 * copy the other line pointers are unused. A page whose header makes no sense
 * is copied as a whole.
 */
static void
copy_wanted(ZPageView *view, Page src)
{
	PageHeader	ph = (PageHeader) src;
	Page		dst = view->page.data;
	int			maxoff;

	if (unlikely(!zpage_is_valid(src)))
	{
		memcpy(dst, src, BLCKSZ);
		return;
	}
	memcpy(dst, src, SizeOfPageHeaderData);
	memset(dst + SizeOfPageHeaderData, 0, ph->pd_lower - SizeOfPageHeaderData);
	memcpy(dst + ph->pd_special, src + ph->pd_special, BLCKSZ - ph->pd_special);
	maxoff = PageGetMaxOffsetNumber(src);
	for (int i = 0; i < view->nread && view->read[i] <= maxoff; i++)
	{
		ItemId		lp = PageGetItemId(src, view->read[i]);

		*PageGetItemId(dst, view->read[i]) = *lp;
		if (ItemIdIsNormal(lp) && zpage_row_inside(src, lp))
			memcpy(dst + ItemIdGetOffset(lp), zpage_row(src, lp), ItemIdGetLength(lp));
	}
}

/*
 * Makes one attempt to fill the view. Returns false if undo that the copy
 * needs has been discarded meanwhile. Raises ERRCODE_DATA_CORRUPTED.
 */
static bool
view_attempt(Collector *c, Buffer buf, Snapshot snapshot, ZAcceptKind kind)
{
	ZPageView  *view = c->view;
	Page		page = view->page.data;

	Assert(zc_buffer_unlocked(buf));
	if (view->context_used)
	{
		MemoryContextReset(view->context);
		view->context_used = false;
	}
	c->arena = NULL;
	c->arena_left = 0;
	c->met = NULL;
	view->nrows = 0;
	view->dead_rows = 0;
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (view->read != NULL && view->nread <= FEW_ROWS)
		copy_wanted(view, BufferGetPage(buf));
	else
		copy_page(page, BufferGetPage(buf));
	if (PageIsNew(page))
		view->slots.n = 0;
	else if (view->unseen != NULL && unlikely(!zpage_rows_ok(page)))
	{
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		return true;
	}
	else if (view->read == NULL ? unlikely(!zpage_rows_ok(page)) : unlikely(!zpage_is_valid(page)))
		zvis_corrupt_page(c->rel, c->block, page, InvalidOffsetNumber);
	else
		zslots_copy(c->rel, c->block, page, &view->slots);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (PageIsNew(page) || (view->unseen != NULL && has_damaged_slot(&view->slots)))
		return true;
	zaccept_init(&c->accept, kind, snapshot, view->slots.oldest);
	find_pending(c);
	if (c->any_pending && kind == ZACCEPT_MVCC &&
		zwalk_jump_to_image(page, &view->slots, c->rel, c->block, snapshot))
		find_pending(c);
	c->pending[0] = false;
	c->maxoff = PageGetMaxOffsetNumber(page);
	if (c->maxoff > ZHEAP_MAX_OFFSET)
		zvis_corrupt_page(c->rel, c->block, page, InvalidOffsetNumber);
	if (c->any_pending && !collect_slots(c))
		return false;
	if (c->any_pending && gives_up(c))
		return true;
	if (view->read != NULL)
		emit_read(c);
	else if (c->any_pending)
		emit_rows(c, true);
	else
		emit_rows(c, false);
	return true;
}

/*
 * zvis_page: See zpageview.h. Makes attempts until one succeeds. The working
 * state is allocated once per backend, since it is too large for the stack;
 * each attempt sets what it needs of it.
 */
void
zvis_page(Relation rel, Buffer buf, Snapshot snapshot, ZPageView *view)
{
	static Collector *collector = NULL;
	ZAcceptKind kind;

	Assert(zc_buffer_unlocked(buf));
	zcount_reads(rel, view->unseen != NULL);
	if (collector == NULL)
		collector = MemoryContextAllocZero(TopMemoryContext, sizeof(Collector));
	collector->view = view;
	collector->rel = rel;
	collector->relnumber = rel->rd_locator.relNumber;
	collector->block = BufferGetBlockNumber(buf);
	if (IsMVCCSnapshot(snapshot))
		kind = ZACCEPT_MVCC;
	else
		kind = (snapshot->snapshot_type == SNAPSHOT_ANY) ? ZACCEPT_NOT_ABORTED : ZACCEPT_COMMITTED;
	for (int tries = 0; tries < ZWALK_MAX_TRIES; tries++)
		if (view_attempt(collector, buf, snapshot, kind))
			return;
	if (view->unseen == NULL)
		zvis_corrupt_chain(rel, collector->block, InvalidUndoPtr);
}
