/*
 * mvcc/zssi.c - predicate locks of serializable transactions, one for each
 * version of a row.
 *
 * The server identifies what a transaction has read by TID. On heap every
 * version has a TID of its own; here a lock on the TID alone would also
 * conflict with transactions that replace a newer version, and fail
 * transactions that heap lets pass. So the "offset" of a lock is the row's
 * offset with a few bits of the version's author above it, the tag.
 *
 * Called by scan/ (reads), dml/ (writes), zvis.c and zpageview.c (conflicts),
 * and by hooks.c (ends of transactions, shared memory). Predicate locks are the
 * server's; the table page is locked only while it is copied, or by the caller.
 *
 *	VIS-7	A predicate lock is on a version: (TID, tag of its author), tag 0
 *		for an author before `oldest`. (pg_locks shows the tag in the upper
 *		bits of tuple of a SIReadLock.)
 *		(a) It is taken before the row is read for changes that the snapshot
 *			does not see. So a writer either finds the lock, or has changed the
 *			page before the reader looks at it.
 *		(b) A transaction that replaces a version looks for the tag of its
 *			author (readers under tag 0 saw an older version, since `oldest`
 *			never goes back), or, if that is not known any more, for tag 0 or
 *			all tags (VIS-10), and then for a lock on the page, by which the
 *			server may replace a reader's locks on rows at any time. A record
 *			"as of X" counts as X's (zrecord_author), here and where a reader
 *			reports the transactions whose changes it does not see.
 *		(c) An insertion looks for locks on the table once for each page, while
 *			the page is locked; a serializable reader locks the table before it
 *			reads the first page. So either the insertion finds that lock, or
 *			the reader finds the row. A rewrite does not look: no other
 *			transaction can have read the new file.
 *		Example: 98 wrote row 3, and a reader that sees that locks (3, tag of
 *		98). A writer that replaces 98's version looks for this lock.
 *	VIS-10	A transaction that replaces a version whose author is not known any
 *		more looks for tags other than 0 (31 of 32 look-ups in the server's
 *		table) only if another one may hold such locks on the table
 *		(tags_are_used). A reader that has taken some is *counted* in shared
 *		memory, in one of 64 buckets of tables, while it is in progress. Before
 *		it commits, or is prepared, it locks page MaxBlockNumber, which no
 *		table has: the *mark*. The writer asks for the count, then the mark,
 *		and then looks for locks, all with the table page locked exclusively.
 *		If there is neither, one of these is true:
 *		(a) No reader has such a lock yet: one that takes it later reads the
 *			changed row, and reports that (VIS-7).
 *		(b) The reader has been rolled back.
 *		(c) The reader's locks have been replaced by one on the table, which
 *			stays as long as they would have, and is looked for last: the
 *			server takes it before it removes the finer ones, or moves all at
 *			once.
 *		(d) The server is removing the locks of a transaction that no running
 *			one overlaps with.
 *		Example: a reader takes the lock (row 7, tag 19) and commits, with the
 *		mark. Undo is discarded, so a writer does not know the author of row 7;
 *		it finds the mark, looks for all tags, and finds the lock. Nothing else
 *		removes the mark: the server removes the lock on a row that its own
 *		reader changes, not that on a page; locks kept for old transactions
 *		together keep the latest end; prepared transactions keep all, also over
 *		a restart. A count that is too high, as after an
 *		error at the end of a transaction, only makes writers look.
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "mvcc/zwalk.h"
#include "port/atomics.h"
#include "storage/bufmgr.h"
#include "storage/lwlock.h"
#include "storage/predicate.h"
#include "storage/shmem.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * The number of tags that tell authors apart, beside tag 0 for unknown ones.
 */
#define AUTHOR_TAGS 31
/* The bit at which the tag begins in an offset number. */
#define TAG_SHIFT 9

/*
 * The page that is locked beside tags other than 0 (VIS-10). If a table had
 * this page, there would only be needless checks.
 */
#define MARK_BLOCK MaxBlockNumber

/* Tables are counted in as many buckets, by a hash of their OID. */
#define TAG_BUCKETS 64
#define FIRST_CAPACITY 16

/* In shared memory. */
typedef struct TagUsers
{
	pg_atomic_uint32 running[TAG_BUCKETS];	/* transactions in progress that
											 * have locked tags other than 0
											 * on tables of the bucket */
} TagUsers;

static TagUsers *users = NULL;

/* The tables on which this backend's transaction has locked such tags. */
static struct
{
	uint64		buckets;		/* those in which the transaction is counted */
	Oid		   *tables;			/* in TopTransactionContext */
	int			ntables;
	int			capacity;
	Oid			last;			/* the one that was noted last */
	bool		ending;			/* the marks have been set */
}			my;

StaticAssertDecl(ZHEAP_MAX_OFFSET < (1 << TAG_SHIFT), "offset and tag overlap");
StaticAssertDecl(AUTHOR_TAGS < (1 << (16 - TAG_SHIFT)), "tags do not fit an offset number");

Size
zssi_shmem_size(void)
{
	return MAXALIGN(sizeof(TagUsers));
}

/* zssi_shmem_startup: See zssi.h. */
void
zssi_shmem_startup(void)
{
	bool		found;

	users = ShmemInitStruct("zundo predicate locks", zssi_shmem_size(), &found);
	if (!found)
		for (int i = 0; i < TAG_BUCKETS; i++)
			pg_atomic_init_u32(&users->running[i], 0);
}

/* Returns the bucket of the table. */
static inline int
bucket_of(Oid reloid)
{
	return murmurhash32(reloid) % TAG_BUCKETS;
}

/*
 * Notes, before the first of these locks is taken, that our transaction locks
 * tags other than 0 on the table. What is counted here ends with the process'
 * transaction, so a parallel worker, whose locks are its leader's, sets the
 * mark at once.
 */
static void
note_tags_used(Relation rel, Snapshot snapshot)
{
	Oid			reloid = RelationGetRelid(rel);
	uint64		bit = UINT64CONST(1) << bucket_of(reloid);

	if (my.last == reloid)
		return;
	if (users == NULL || IsParallelWorker() || my.ending)
	{
		PredicateLockPage(rel, MARK_BLOCK, snapshot);
		return;
	}
	for (int i = 0; i < my.ntables; i++)
		if (my.tables[i] == reloid)
		{
			my.last = reloid;
			return;
		}
	if (my.tables == NULL)
	{
		my.tables = MemoryContextAlloc(TopTransactionContext, FIRST_CAPACITY * sizeof(Oid));
		my.capacity = FIRST_CAPACITY;
	}
	else if (my.ntables == my.capacity)
	{
		my.tables = repalloc(my.tables, 2 * my.capacity * sizeof(Oid));
		my.capacity *= 2;
	}
	my.tables[my.ntables++] = my.last = reloid;
	if ((my.buckets & bit) == 0)
	{
		my.buckets |= bit;
		pg_atomic_fetch_add_u32(&users->running[bucket_of(reloid)], 1);
	}
}

/*
 * Returns whether a transaction other than ours may hold, on this table, a lock
 * under another tag than 0 that matters. Asks for running ones first: a
 * transaction sets its marks before it ends.
 */
static bool
tags_are_used(Relation rel)
{
	int			bucket = bucket_of(RelationGetRelid(rel));
	uint32		ours = (my.buckets >> bucket) & 1;

	if (users == NULL || pg_atomic_read_u32(&users->running[bucket]) != ours)
		return true;
	pg_read_barrier();
	return PageIsPredicateLocked(rel, MARK_BLOCK);
}

/*
 * zssi_before_end: See zssi.h. The server wants a relation, of which it reads
 * database, OID and kind. The transaction may have no lock on the table any
 * more, so it is not opened.
 */
void
zssi_before_end(void)
{
	my.ending = true;
	for (int i = 0; i < my.ntables; i++)
	{
		FormData_pg_class form = {0};
		RelationData rel = {0};

		form.relpersistence = RELPERSISTENCE_PERMANENT;
		form.relkind = RELKIND_RELATION;
		rel.rd_rel = &form;
		rel.rd_id = my.tables[i];
		rel.rd_locator.dbOid = MyDatabaseId;
		PredicateLockPage(&rel, MARK_BLOCK, GetTransactionSnapshot());	/* VIS-10 */
	}
}

/* zssi_at_xact_end: See zssi.h. The tables are in the transaction's memory. */
void
zssi_at_xact_end(void)
{
	for (int i = 0; my.buckets != 0; i++, my.buckets >>= 1)
		if (my.buckets & 1)
			pg_atomic_fetch_sub_u32(&users->running[i], 1);
	memset(&my, 0, sizeof(my));
}

/* Sets *tid to the TID under which versions with this tag are locked. */
static void
tagged_tid(ItemPointer tid, BlockNumber block, OffsetNumber off, int tag)
{
	Assert(off <= ZHEAP_MAX_OFFSET && tag <= AUTHOR_TAGS);
	ItemPointerSet(tid, block, off | (tag << TAG_SHIFT));
}

/* Returns the tag of a version by its author; 0 if that is not known. */
static int
author_tag(ZXid author)
{
	return author == InvalidZXid ? 0 : 1 + (int) (author % AUTHOR_TAGS);
}

/*
 * Walks to the version that the MVCC snapshot of accept sees, or stays at the
 * newest one if accept is NULL. Returns ZWALK_RETRY, ZWALK_BEGINNING if no
 * live version is visible, else another result; then *author is the
 * transaction that wrote the version, 0 if that is not known any more.
 */
static ZWalkResult
find_version(ZWalk *walk, ZAccept *accept, ZXid *author)
{
	ZWalkResult found;
	ZAccept		none;

	zaccept_init(&none, ZACCEPT_NONE, NULL, walk->slots->oldest);
	while ((found = zwalk_next(walk, &none)) == ZWALK_AUTHOR &&
		   accept != NULL && !zaccept_version(accept, &walk->rec))
		 /* older */ ;
	if (found == ZWALK_RETRY || found == ZWALK_BEGINNING)
		return found;
	*author = (found == ZWALK_AUTHOR) ? zrecord_author(&walk->rec) : InvalidZXid;
	return ZH_LIVE(walk->header) ? found : ZWALK_BEGINNING;
}

/*
 * zvis_conflict_out: See zssi.h. Reports the top-level transaction of unseen,
 * as the server wants. A change that is older than every running transaction
 * is unseen only because it was rolled back, so it is no conflict.
 */
void
zvis_conflict_out(Relation rel, Snapshot snapshot, ZXid unseen)
{
	TransactionId xid = zxid_to_xid(unseen);

	if (unseen == InvalidZXid || !zsnapshot_is_mvcc(snapshot) ||
		!CheckForSerializableConflictOutNeeded(rel, snapshot))
		return;

	if (TransactionIdPrecedes(xid, TransactionXmin))
		return;
	xid = SubTransGetTopmostTransaction(xid);
	if (!TransactionIdPrecedes(xid, TransactionXmin) && !TransactionIdIsCurrentTransactionId(xid))
		CheckForSerializableConflictOut(rel, xid, snapshot);
}

/*
 * zssi_before_read: See zssi.h. Locks the version that the snapshot sees at
 * the time of the call. An item that is damaged or missing gets no lock: the
 * read that follows reports it.
 */
void
zssi_before_read(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot)
{
	ZCopyWalk	copy;
	Page		page = BufferGetPage(buf);

	Assert(zc_buffer_unlocked(buf));
	zwalk_init(&copy.walk);
	for (int tries = 0; tries < ZWALK_MAX_TRIES; tries++)
	{
		ItemPointerData tid;
		ZAccept		accept;
		ZWalkResult found;
		ZXid		author;

		LockBuffer(buf, BUFFER_LOCK_SHARE);
		if (PageIsNew(page) || !zpage_item_ok(page, off))
		{
			/* the read that follows says what is wrong */
			LockBuffer(buf, BUFFER_LOCK_UNLOCK);
			return;
		}
		if (!zwalk_load(&copy, rel, buf, off, snapshot))
			return;
		zaccept_init(&accept, ZACCEPT_MVCC, snapshot, copy.slots.oldest);
		found = find_version(&copy.walk, &accept, &author);
		if (found == ZWALK_RETRY)
			continue;
		if (found == ZWALK_BEGINNING)
			return;
		/* our own version gets no lock */
		if (author != InvalidZXid && !TransactionIdIsCurrentTransactionId(zxid_to_xid(author)))
			note_tags_used(rel, snapshot);	/* VIS-10 */
		tagged_tid(&tid, BufferGetBlockNumber(buf), off, author_tag(author));
		PredicateLockTID(rel, &tid, snapshot, zxid_to_xid(author));
		return;
	}
	zvis_corrupt_chain(rel, BufferGetBlockNumber(buf), InvalidUndoPtr);
}

/*
 * zssi_before_write: See zssi.h. Checks the tag of the author, or all tags if
 * the author is not known any more. Only the last check names the block: the
 * server replaces many locks of a reader on rows by one on their page, which
 * it takes before it gives the others up, so a writer that asks for the page
 * last misses neither.
 *
 * Whether other tags are used is asked before any lock is looked for: a reader
 * whose locks are replaced by one on the whole table loses the mark only when
 * it has that lock, which the check finds.
 */
void
zssi_before_write(Relation rel, Buffer buf, OffsetNumber off)
{
	ZSlotView	slots;
	ZRow		row;
	BlockNumber block = BufferGetBlockNumber(buf);
	ItemPointerData tid;
	ZWalkResult found;
	ZWalk		walk;
	ZXid		author = InvalidZXid;
	bool		all_tags;

	if (!IsolationIsSerializable())
		return;
	Assert(zc_buffer_exclusive(buf));
	row = zvis_row_on(rel, buf, off, &slots);
	zslots_copy(rel, block, row.page, &slots);
	if (!zwalk_begin(&walk, &row, ZCHAIN_LOCKED))
		elog(ERROR, "no row at offset %u of block %u", off, block);
	found = find_version(&walk, NULL, &author);
	if (found == ZWALK_RETRY || found == ZWALK_BEGINNING)
		elog(ERROR, "no row at offset %u of block %u", off, block);
	all_tags = (author == InvalidZXid) && tags_are_used(rel);	/* VIS-10 */
	for (int tag = 1; tag <= AUTHOR_TAGS && all_tags; tag++)
	{
		tagged_tid(&tid, block, off, tag);
		CheckForSerializableConflictIn(rel, &tid, InvalidBlockNumber);
	}
	tagged_tid(&tid, block, off, author_tag(author));
	CheckForSerializableConflictIn(rel, &tid, block);
}
