/*
 * mvcc/ztrail.c - passing over the records of other rows in a chain.
 *
 * A trail is the list of the headers (ZuHeader) of a chain's records from some
 * record on downwards, as far as they have been read, with the entries about
 * each row linked. It grows downwards when a reader comes to its end, and
 * upwards by the records that were pushed on the chain since.
 *
 *	TRAIL-1	nothing has to be forgotten before the transaction ends: not when a
 *		record is undone or discarded, nor when a slot gets another head, from
 *		which the reader then begins. For
 *		(a) what a record says, and to which record it leads, never changes
 *			(UNDO-29), and no other record will have its pointer while the
 *			trail is kept: generations do not come back within a transaction
 *			(UNDO-6), and private undo uses no place twice;
 *		(b) a trail is only used for its own page. Example: a transaction that
 *			drops the extension and makes it anew has another undo log, with
 *			the same pointers again, but no table file of before. A slot that
 *			damage has given the chain of another page is left to zu_fetch
 *			(UNDO-10);
 *		(c) a record that cannot be read has no entry: it is read by
 *			zchain_next, each time, which raises the error or finds that it has
 *			been discarded (VIS-4). A record that was discarded after its
 *			header was read is passed by its xid, as if it had been read before
 *			the discard: if it was discarded before the page was copied, its
 *			xid is before `oldest`.
 *
 * The record of an insertion of several rows that was read last is kept as a
 * whole until the transaction ends, because it is often the only record of the
 * rows of its page. It has no payload, so nothing in the copy points to a
 * buffer.
 *
 * Called by the readers of chains in mvcc/ and dml/, often with the table page
 * locked; hooks.c calls ztrail_at_xact_end. All of it is the backend's own
 * memory, at most about 1 MB, allocated when a chain is first found to be
 * long. No locks but those of zu_fetch and zu_fetch_headers, no crash points.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mvcc/ztrail.h"
#include "utils/memutils.h"

/* A reader that has read this many records one by one asks for a trail. */
#define FEW_RECORDS 4

/*
 * The first reader that meets a stretch of records of one transaction and
 * command passes those about other rows by zu_skip and remembers none of them:
 * mostly no other row of the page will be read. The second reader that meets
 * the stretch asks for a trail. Which stretches have been met is remembered in
 * a table of MET_SETS sets, chosen by the stretch's hash, of the MET_WAYS
 * latest ones each: so a few pages that are read in turns do not displace each
 * other's stretches.
 */
#define MET_SETS	256
#define MET_WAYS	4

/*
 * Readers that have read this many records in a transaction read them in copies
 * of the undo pages, which cost memory.
 */
#define MANY_RECORDS 2000

#define TRAILS		64
#define BUCKETS		256
#define FIRST_CAPACITY	64

/*
 * The entries of all trails together: a trail that needs more makes other
 * trails give theirs up.
 */
#define MAX_ENTRIES 16384

/* Arrays up to this size are kept for the next trail in the same place. */
#define KEPT_CAPACITY	512

#define NONE		PG_UINT16_MAX

StaticAssertDecl(MAX_ENTRIES < NONE, "numbers of entries fit 16 bits");

typedef struct TrailEntry
{
	ZuHeader	header;
	int32		order;			/* ascending from newer to older */
	uint16		below;			/* the record before it in the chain */
	uint16		same;			/* the next older entry about the same row; of
								 * an entry about several rows: the next older
								 * one about several rows */
} TrailEntry;

typedef struct Trail
{
	uint64		id;				/* never that of another; 0 = not in use */
	uint16		place;			/* its own, in the array of trails */
	uint16		listed;			/* place of the next trail in its bucket, + 1;
								 * 0 = none */
	RelFileNumber relnumber;
	BlockNumber block;
	int			n;
	int			capacity;
	TrailEntry *entries;		/* of 'capacity'; NULL if that is 0 */
	uint16		top;			/* the newest entry */
	uint16		bottom;			/* the oldest */
	UndoPtr		next;			/* the record below that */
	bool		ascends;		/* a record has a greater xid than the one
								 * above it, which was pushed later */
	uint16		newest[ZHEAP_MAX_OFFSET + 2];	/* the newest entry about each
												 * row; element 0: about
												 * several rows */
	uint16		oldest[ZHEAP_MAX_OFFSET + 2];	/* the same, the oldest one */
} Trail;

/* What the backend keeps until its transaction ends. */
typedef struct Trails
{
	int			capacity;		/* of all trails together */
	uint32		nread;			/* records read as a whole, by readers that
								 * followed trails */
	int			victim;			/* the place that is taken next; a trail there
								 * is given up */
	uint16		bucket[BUCKETS];	/* place of the first trail that begins at
									 * a record with this hash, + 1; 0 = none */
	Trail	   *trail[TRAILS];	/* NULL until the place is first taken */
} Trails;

static struct
{
	Trails	   *trails;			/* NULL until a chain is found to be long */
	MemoryContext memory;		/* of *trails */
	uint64		last_id;		/* lasts longer than a transaction, as a
								 * reader may */
	uint64		met[MET_SETS][MET_WAYS];	/* stretches that readers have
											 * met, by their hash; newest
											 * first */
	UndoPtr		range_ptr;		/* where 'range' lies; InvalidUndoPtr = there
								 * is none */
	ZuRecord	range;			/* the insertion of several rows that was read
								 * last */
}			backend = {0};

/* ---- finding trails ---- */

/* Returns the bucket of trails that begin at ptr. */
static inline uint16 *
bucket_of(UndoPtr ptr)
{
	return &backend.trails->bucket[murmurhash32((uint32) ptr ^ (uint32) (ptr >> 32)) % BUCKETS];
}

/*
 * Returns the trail of the chain's page that begins at ptr; NULL if there is
 * none.
 */
static Trail *
trail_at(const ZChain *chain, UndoPtr ptr)
{
	if (backend.trails == NULL)
		return NULL;
	for (uint16 place = *bucket_of(ptr); place != 0;)
	{
		Trail	   *t = backend.trails->trail[place - 1];

		Assert(t->id != 0 && t->place == place - 1);
		if (t->entries[t->top].header.ptr == ptr && t->relnumber == chain->relnumber &&
			t->block == chain->block)
			return t;
		place = t->listed;
	}
	return NULL;
}

/* Takes a trail out of its bucket, before its first record changes. */
static void
unlist(const Trail *t)
{
	uint16	   *link = bucket_of(t->entries[t->top].header.ptr);

	while (*link != t->place + 1)
	{
		Assert(*link != 0);
		link = &backend.trails->trail[*link - 1]->listed;
	}
	*link = t->listed;
}

/* Puts a trail first into the bucket of its first record. */
static void
list(Trail *t)
{
	uint16	   *bucket = bucket_of(t->entries[t->top].header.ptr);

	t->listed = *bucket;
	*bucket = t->place + 1;
}

/*
 * Forgets the trail. Its memory is freed, unless keep_memory is set and the
 * memory is small enough for the next trail in the same place (KEPT_CAPACITY).
 */
static void
give_up(Trail *t, bool keep_memory)
{
	if (t->id != 0)
		unlist(t);
	t->id = 0;
	t->n = 0;
	if (t->capacity == 0 || (keep_memory && t->capacity <= KEPT_CAPACITY))
		return;
	backend.trails->capacity -= t->capacity;
	pfree(t->entries);
	t->entries = NULL;
	t->capacity = 0;
}

/*
 * Makes space for n more entries of t; other trails may have to give theirs up.
 * Returns false if t would have too many.
 */
static bool
make_space(Trail *t, int n)
{
	Trails	   *trails = backend.trails;
	int			capacity = Max(t->capacity, FIRST_CAPACITY);

	if (t->n + n <= t->capacity)
		return true;
	while (capacity < t->n + n)
		capacity *= 2;
	if (capacity > MAX_ENTRIES)
		return false;
	for (int i = 0; i < TRAILS && trails->capacity - t->capacity + capacity > MAX_ENTRIES; i++)
	{
		Trail	   *other = trails->trail[trails->victim];

		trails->victim = (trails->victim + 1) % TRAILS;
		if (other != NULL && other != t)
			give_up(other, false);
	}
	if (t->entries == NULL)
		t->entries = MemoryContextAlloc(backend.memory, capacity * sizeof(TrailEntry));
	else
		t->entries = repalloc(t->entries, capacity * sizeof(TrailEntry));
	trails->capacity += capacity - t->capacity;
	t->capacity = capacity;
	Assert(trails->capacity <= MAX_ENTRIES);
	return true;
}

/* ---- adding entries ---- */

/*
 * Returns which list an entry belongs to: 0 for an insertion of several rows
 * and an open record, -1 if it is about no row.
 */
static inline int
list_of(const ZuHeader *header)
{
	if (header->nrows > 1)
		return 0;
	return header->offset >= FirstOffsetNumber && header->offset <= ZHEAP_MAX_OFFSET
		? header->offset
		: -1;
}

/* Adds the record below the oldest one of t, which has space for it. */
static void
add_below(Trail *t, const ZuHeader *header)
{
	uint16		i = (uint16) t->n++;
	TrailEntry *e = &t->entries[i];
	int			row = list_of(header);

	Assert(t->n <= t->capacity && (i == 0 || t->next == header->ptr));
	e->header = *header;
	e->below = e->same = NONE;
	e->order = 0;
	if (i > 0)
	{
		TrailEntry *above = &t->entries[t->bottom];

		above->below = i;
		e->order = above->order + 1;
		t->ascends |= above->header.xid < header->xid;
	}
	else
		t->top = i;
	t->bottom = i;
	t->next = header->prev;
	if (row < 0)
		return;
	if (t->newest[row] == NONE)
		t->newest[row] = i;
	else
		t->entries[t->oldest[row]].same = i;
	t->oldest[row] = i;
}

/* Adds the record above the newest one of t, which has space for it. */
static void
add_above(Trail *t, const ZuHeader *header)
{
	uint16		i = (uint16) t->n++;
	TrailEntry *e = &t->entries[i];
	const TrailEntry *below = &t->entries[t->top];
	int			row = list_of(header);

	Assert(t->n <= t->capacity && header->prev == below->header.ptr);
	e->header = *header;
	e->order = below->order - 1;
	e->below = t->top;
	t->ascends |= header->xid < below->header.xid;
	e->same = NONE;
	t->top = i;
	if (row < 0)
		return;
	e->same = t->newest[row];
	if (t->newest[row] == NONE)
		t->oldest[row] = i;
	t->newest[row] = i;
}

/*
 * Reads a page's worth of records below those of t. Returns whether it could.
 */
static bool
read_below(Trail *t)
{
	ZuHeader	headers[ZU_MAX_HEADERS];
	int			n;

	if (t->next == InvalidUndoPtr || !make_space(t, ZU_MAX_HEADERS))
		return false;
	n = zu_fetch_headers(t->next, t->relnumber, t->block, headers, ZU_MAX_HEADERS);
	for (int i = 0; i < n; i++)
		add_below(t, &headers[i]);
	return n > 0;
}

/*
 * Adds n records above the newest one of t, to which the last of them leads.
 * Returns false, and adds nothing, if t would have too many entries.
 */
static bool
join_above(Trail *t, const ZuHeader *headers, int n)
{
	if (!make_space(t, n))
		return false;
	unlist(t);
	while (n-- > 0)
		add_above(t, &headers[n]);
	list(t);
	return true;
}

/*
 * Begins a trail with n records, in the place of the array that is taken next;
 * a trail that has that place is given up. Returns NULL if there is no space
 * for the records.
 */
static Trail *
new_trail(const ZChain *chain, const ZuHeader *headers, int n)
{
	Trails	   *trails = backend.trails;
	Trail	   *t = trails->trail[trails->victim];

	if (t == NULL)
	{
		t = MemoryContextAllocZero(backend.memory, sizeof(Trail));
		t->place = (uint16) trails->victim;
		trails->trail[trails->victim] = t;
	}
	trails->victim = (trails->victim + 1) % TRAILS;
	give_up(t, true);
	if (!make_space(t, n))
		return NULL;
	t->relnumber = chain->relnumber;
	t->block = chain->block;
	t->ascends = false;
	memset(t->newest, 0xFF, sizeof(t->newest));
	for (int i = 0; i < n; i++)
		add_below(t, &headers[i]);
	t->id = ++backend.last_id;
	list(t);
	return t;
}

/* Allocates the memory that all trails share. */
static void
create_trails(void)
{
	if (backend.memory == NULL)
		backend.memory = AllocSetContextCreate(TopMemoryContext, "zundo trails",
											   ALLOCSET_DEFAULT_SIZES);
	backend.trails = MemoryContextAllocZero(backend.memory, sizeof(Trails));
}

/*
 * Returns a trail that begins at the record where the reader began. If the
 * records from there on lead to the first one of an older trail, adds them to
 * that trail. Otherwise makes a new trail that reaches at least as far down as
 * the reader has come, unless a record on the way cannot be read. Returns NULL
 * if the first record cannot be read, or if there is no space.
 */
static Trail *
make_trail(const ZChain *chain, const ZTrailReader *reader)
{
	ZuHeader	headers[ZU_MAX_HEADERS];
	int			n = zu_fetch_headers(reader->first, chain->relnumber, chain->block, headers,
									 ZU_MAX_HEADERS);
	Trail	   *trail;

	if (n == 0)
		return NULL;
	if (backend.trails == NULL)
		create_trails();
	for (int i = 0; i < n; i++)
	{
		Trail	   *t = trail_at(chain, headers[i].prev);

		if (t != NULL && join_above(t, headers, i + 1))
			return t;
	}
	trail = new_trail(chain, headers, n);
	while (trail != NULL && trail->n <= reader->steps && read_below(trail))
		 /* the reader's next record is further down */ ;
	return trail;
}

/* ---- reading ---- */

/* Fills *rec with what the header of a record of the chain says. */
static void
header_to_record(const ZChain *chain, const ZuHeader *header, ZuRecord *rec)
{
	memset(rec, 0, sizeof(*rec));
	rec->type = (ZuRecordType) header->type;
	rec->xflags = header->xflags;
	rec->xid = rec->topxid = header->xid;
	rec->relnumber = chain->relnumber;
	rec->block = chain->block;
	rec->offset = header->offset;
	rec->cid = header->cid;
	rec->as_of = header->as_of;
	rec->prev = header->prev;
	rec->nrows = header->nrows;
	rec->lockmode = header->lockmode;
	rec->open = zu_header_open(header);
}

/* Makes the reader read records one by one from next on. */
static void
begin_reader(ZTrailReader *reader, UndoPtr next)
{
	reader->next = reader->first = next;
	reader->steps = reader->singly = 0;
	reader->xid = InvalidZXid;
	reader->in_run = reader->skipping = false;
	reader->trail = 0;
}

/*
 * Returns whether an earlier reader has met the stretch that this reader is in;
 * notes that it has been met now.
 */
static bool
was_met(const ZChain *chain, const ZTrailReader *reader)
{
	uint64		place = (uint64) chain->relnumber << 32 | chain->block;
	uint64		hash = hash_combine64(place, hash_combine64(reader->xid, reader->cid));
	uint64	   *met = backend.met[murmurhash32((uint32) hash ^ (uint32) (hash >> 32)) % MET_SETS];

	for (int i = 0; i < MET_WAYS; i++)
	{
		if (met[i] == hash)
			return true;
	}
	memmove(met + 1, met, (MET_WAYS - 1) * sizeof(*met));
	met[0] = hash;
	return false;
}

/*
 * Passes over records about other rows in the stretch that the reader is in, on
 * one undo page after the other, until zu_skip passes none.
 */
static void
skip_others(ZChain *chain, ZTrailReader *reader, OffsetNumber off)
{
	ZuRecord	like;
	int			n;

	Assert(reader->in_run && !zuptr_is_temp(chain->next));
	like.relnumber = chain->relnumber;
	like.block = chain->block;
	like.xid = reader->xid;
	like.cid = reader->cid;
	do
	{
		CHECK_FOR_INTERRUPTS();
		n = 0;
		chain->next = zu_skip(chain->next, &like, off, &n);
		reader->steps += n;
		if (n > 0)
			reader->singly = 0;
	} while (n > 0 && chain->next != InvalidUndoPtr);
	reader->next = chain->next;
}

/*
 * Makes the reader follow the trail from the record at next, at most
 * reader->steps records below the trail's first one. Returns false if the trail
 * has no such record and does not end right above it.
 */
static bool
follow(ZTrailReader *reader, const Trail *t, UndoPtr next)
{
	uint16		at = t->top;

	for (int i = 0; at != NONE && t->entries[at].header.ptr != next; i++)
	{
		if (i > reader->steps)
			return false;
		at = t->entries[at].below;
	}
	if (at == NONE && t->next != next)
		return false;
	reader->next = next;
	reader->trail = t->id;
	reader->place = t->place;
	reader->at = at;
	reader->above = t->bottom;
	reader->row = reader->wide = NONE;
	return true;
}

/*
 * Returns the trail that the reader follows, if there is one for it by now;
 * NULL if it is to read the next record by itself.
 */
static Trail *
trail_for(const ZChain *chain, ZTrailReader *reader)
{
	Trail	   *t = NULL;

	if (reader->next == chain->next && reader->trail != 0)
	{
		t = backend.trails != NULL ? backend.trails->trail[reader->place] : NULL;
		if (t != NULL && t->id == reader->trail)
			return t;
		/* the trail was given up meanwhile */
		reader->next = InvalidUndoPtr;
	}
	if (reader->next != chain->next)
		begin_reader(reader, chain->next);
	t = trail_at(chain, chain->next);
	if (t != NULL && reader->steps > 0)
	{
		/* records have been pushed on the chain since the trail was made */
		ZuHeader	headers[ZU_MAX_HEADERS];
		int			n = Min(reader->steps, ZU_MAX_HEADERS);

		n = zu_fetch_headers(reader->first, chain->relnumber, chain->block, headers, n);
		if (n >= reader->steps && headers[reader->steps - 1].prev == chain->next)
			(void) join_above(t, headers, reader->steps);
	}
	if (t == NULL &&
		(reader->singly >= FEW_RECORDS ||
		 (reader->in_run && !reader->skipping && was_met(chain, reader))))
	{
		t = trail_at(chain, reader->first);
		if (t == NULL)
			t = make_trail(chain, reader);
	}
	if (t == NULL)
		return NULL;
	if (follow(reader, t, chain->next))
		return t;
	/* a trail that is made later may begin here */
	begin_reader(reader, chain->next);
	return NULL;
}

/*
 * Returns the newest entry about the row at off, at the reader's place or below
 * it; NONE if the trail has none.
 */
static uint16
entry_about(const Trail *t, ZTrailReader *reader, OffsetNumber off)
{
	const TrailEntry *entries = t->entries;
	int32		order = entries[reader->at].order;
	uint16		i;
	uint16		wide;

	while ((i = reader->row == NONE ? t->newest[off] : entries[reader->row].same) != NONE &&
		   entries[i].order < order)
		reader->row = i;
	while ((wide = reader->wide == NONE ? t->newest[0] : entries[reader->wide].same) != NONE &&
		   entries[wide].order < order)
		reader->wide = wide;
	while (wide != NONE &&
		   (off < entries[wide].header.offset ||
			off >= entries[wide].header.offset + entries[wide].header.nrows))
		wide = entries[wide].same;
	if (i == NONE || (wide != NONE && entries[wide].order < entries[i].order))
		return wide;
	return i;
}

/*
 * Reads, by zchain_next, the record at chain->next, which follows the trail's
 * last one and which zu_fetch_headers could not read; adds it to the trail.
 */
static ZChainStep
next_below(Trail *t, ZChain *chain, ZTrailReader *reader, ZuRecord *rec)
{
	ZChainStep	step = chain->next != InvalidUndoPtr ? zchain_next(chain, rec) : ZCHAIN_END;

	if (step == ZCHAIN_RECORD && make_space(t, 1))
	{
		ZuHeader	header = {chain->here, rec->prev, rec->xid, rec->cid, rec->as_of};

		zu_header_about(&header, rec);
		header.xflags = rec->xflags;
		add_below(t, &header);
		reader->next = chain->next;
		reader->above = t->bottom;
	}
	return step;
}

/*
 * Goes to the entry of the next record that ztrail_next is to return: the next
 * one about the row at off, or else the trail's last one. Sets *about to
 * whether it is about the row. Returns NULL at the trail's end.
 *
 * Of two transactions the one with the lower id may have pushed later. If it is
 * before `oldest`, or the horizon of zhistory.c, and the other is not, a reader
 * without a trail stops there, and all must come to the same result: a lock on
 * the version must be found (VIS-7), and an entry that was not needed must not
 * be missed. So such a record is returned first.
 */
static const TrailEntry *
next_entry(const Trail *t, ZTrailReader *reader, OffsetNumber off, bool *about)
{
	uint16		i;

	if (reader->at == NONE)
		return NULL;
	i = entry_about(t, reader, off);
	*about = i != NONE;
	if (i == NONE)
		i = t->bottom;
	if (unlikely(t->ascends))
	{
		const TrailEntry *entries = t->entries;
		ZXid		xid = entries[i].header.xid;

		for (uint16 k = reader->at; k != i; k = entries[k].below)
			if (entries[k].header.xid < xid &&
				entries[k].header.xid < entries[entries[k].below].header.xid)
			{
				*about = false;
				i = k;
				break;
			}
	}
	reader->at = t->entries[i].below;
	return &t->entries[i];
}

/*
 * Reads the record at chain->next as a whole, in a copy of its undo page if
 * this transaction has read MANY_RECORDS. The caller may keep the payload
 * longer than the copies, so it gets it in its own buffer.
 */
static ZChainStep
next_whole(ZChain *chain, ZuRecord *rec)
{
	ZChainStep	step;

	chain->cached = backend.trails->nread++ >= MANY_RECORDS;
	if (chain->cached)
		zu_cache_tidy();
	step = zchain_next(chain, rec);
	chain->cached = false;
	if (step == ZCHAIN_RECORD && chain->bytes != chain->buf && rec->payload != NULL)
	{
		Assert(rec->payload_len <= ZUR_MAX_LENGTH);
		memcpy(chain->buf, rec->payload, rec->payload_len);
		rec->payload = chain->buf;
	}
	return step;
}

/* Does ztrail_next's work for a reader that follows t. */
static ZChainStep
next_on_trail(Trail *t, ZChain *chain, ZTrailReader *reader, OffsetNumber off, bool whole,
			  ZuRecord *rec)
{
	const TrailEntry *e;
	bool		about;

	Assert(t->relnumber == chain->relnumber && t->block == chain->block);
	for (;;)
	{
		/* another reader may have made the trail longer meanwhile */
		if (reader->at == NONE)
			reader->at = t->entries[reader->above].below;
		e = next_entry(t, reader, off, &about);
		reader->above = t->bottom;
		if (e != NULL)
			break;
		chain->next = reader->next = t->next;
		if (!read_below(t))
			return next_below(t, chain, reader, rec);
	}
	if (e->header.xid < chain->oldest)
		return ZCHAIN_SETTLED;
	if (about && whole && e->header.type != ZUR_LOCK)
	{
		ZChainStep	step;

		chain->next = e->header.ptr;
		step = next_whole(chain, rec);
		reader->next = chain->next;
		return step;
	}
	header_to_record(chain, &e->header, rec);
	chain->here = e->header.ptr;
	chain->next = reader->next = reader->at == NONE ? t->next : t->entries[reader->at].header.ptr;
	return ZCHAIN_RECORD;
}

#ifdef USE_ASSERT_CHECKING
/*
 * Returns whether the insertion that is kept equals the record at its place,
 * or that record has been discarded.
 */
static bool
range_is_there(const ZChain *chain)
{
	const ZuRecord *range = &backend.range;
	char		buf[ZUR_MAX_LENGTH];
	ZuRecord	rec;

	return zu_fetch(backend.range_ptr, chain->relnumber, chain->block, &rec, buf) == ZU_DISCARDED ||
		(rec.type == range->type && rec.xid == range->xid && rec.cid == range->cid &&
		 rec.offset == range->offset && rec.nrows == range->nrows && rec.prev == range->prev &&
		 rec.as_of == range->as_of && rec.xflags == range->xflags);
}
#endif

/*
 * Does what zchain_next does, but returns the copy of the insertion of several
 * rows that was read last, if that is the next record.
 */
static inline ZChainStep
next_or_range(ZChain *chain, ZuRecord *rec)
{
	ZChainStep	step;

	if (chain->next == backend.range_ptr && backend.range.block == chain->block &&
		backend.range.relnumber == chain->relnumber)
	{
		Assert(range_is_there(chain));	/* TRAIL-1 */
		if (backend.range.xid < chain->oldest)
			return ZCHAIN_SETTLED;
		*rec = backend.range;
		chain->here = chain->next;
		chain->next = rec->prev;
		return ZCHAIN_RECORD;
	}
	step = zchain_next(chain, rec);
	if (step == ZCHAIN_RECORD && rec->type == ZUR_INSERT && rec->nrows > 1)
	{
		Assert(rec->payload_len == 0);
		backend.range_ptr = chain->here;
		backend.range = *rec;
	}
	return step;
}

/*
 * ztrail_next: See ztrail.h. Reads the first records of a chain one by one:
 * mostly the caller stops at one of them.
 */
ZChainStep
ztrail_next(ZChain *chain, ZTrailReader *reader, OffsetNumber off, bool whole, ZuRecord *rec)
{
	Trail	   *t;
	ZChainStep	step;

	Assert(!chain->cached && off >= FirstOffsetNumber && off <= ZHEAP_MAX_OFFSET);
	if (chain->next == InvalidUndoPtr)
		return ZCHAIN_END;
	t = trail_for(chain, reader);
	if (t != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		return next_on_trail(t, chain, reader, off, whole, rec);
	}
	if (reader->in_run && !zuptr_is_temp(chain->next))
	{
		reader->skipping = true;
		skip_others(chain, reader, off);
		if (chain->next == InvalidUndoPtr)
			return ZCHAIN_END;
	}
	step = next_or_range(chain, rec);
	if (step != ZCHAIN_RECORD)
		return step;
	reader->next = chain->next;
	reader->steps++;
	reader->singly++;
	reader->in_run = rec->xid == reader->xid && rec->cid == reader->cid;
	reader->xid = rec->xid;
	reader->cid = rec->cid;
	return step;
}

ZChainStep
zheaders_next(ZChain *chain, ZHeaders *headers, ZuRecord *rec)
{
	const ZuHeader *header;

	if (chain->next == InvalidUndoPtr)
		return ZCHAIN_END;
	if (headers->i >= headers->n)
	{
		CHECK_FOR_INTERRUPTS();
		headers->i = 0;
		headers->n = zu_fetch_headers(chain->next, chain->relnumber, chain->block, headers->header,
									  ZU_MAX_HEADERS);
		if (headers->n == 0)
			return zchain_next(chain, rec);
	}
	header = &headers->header[headers->i++];
	Assert(header->ptr == chain->next);
	header_to_record(chain, header, rec);
	if (rec->xid < chain->oldest)
		return ZCHAIN_SETTLED;
	chain->here = header->ptr;
	chain->next = header->prev;
	return ZCHAIN_RECORD;
}

/*
 * ztrail_at_xact_end: See ztrail.h. Forgets the kept insertion too. After the
 * transaction other records may get the pointers of those that were read,
 * since generations may come back (TRAIL-1).
 */
void
ztrail_at_xact_end(void)
{
	backend.range_ptr = InvalidUndoPtr;
	if (likely(backend.trails == NULL))
		return;
	backend.trails = NULL;
	MemoryContextReset(backend.memory);
}
