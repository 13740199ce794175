/*
 * mvcc/zssi.c - predicate locks of serializable transactions, one for each
 * version of a row.
 *
 * The server identifies what a transaction has read by TID. On heap every
 * version has a TID of its own; here a lock on the TID alone would also
 * conflict with transactions that replace a newer version, and fail
 * transactions that heap lets pass. So the "offset" of a lock is the row's
 * offset with a few bits of the version's writer above it (rule VIS-7):
 *
 *	- a reader of a version whose writer is known (>= oldest) locks the
 *	writer's tag; else tag 0;
 *	- a transaction that replaces a version whose writer is known checks for
 *	that tag only: readers under tag 0 saw an older version, since `oldest`
 *	never goes back;
 *	- a transaction that replaces a version whose writer is not known any more
 *	checks for all tags.
 *
 * A record that a rewrite has written "as of" a transaction counts as that
 * one's (zrecord_author). The lock is taken before the row is read for its
 * invisible changes: a writer either finds the lock, or has changed the page
 * before the reader looks at it.
 *
 * Called by scan/ (reads), dml/ (writes), zvis.c and zpageview.c (conflicts).
 * Predicate locks are the server's; the table page is locked only while it is
 * copied, or by the caller.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mvcc/zwalk.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/*
 * The number of tags that tell writers apart, beside tag 0 for unknown ones.
 */
#define WRITER_TAGS 31
/* The bit at which the tag begins in an offset number. */
#define TAG_SHIFT 9

StaticAssertDecl(ZHEAP_MAX_OFFSET < (1 << TAG_SHIFT), "offset and tag overlap");
StaticAssertDecl(WRITER_TAGS < (1 << (16 - TAG_SHIFT)), "tags do not fit an offset number");

/* Sets *tid to the TID under which versions with this tag are locked. */
static void
tagged_tid(ItemPointer tid, BlockNumber block, OffsetNumber off, int tag)
{
	Assert(off <= ZHEAP_MAX_OFFSET && tag <= WRITER_TAGS);
	ItemPointerSet(tid, block, off | (tag << TAG_SHIFT));
}

/* Returns the tag of a version by its writer; 0 if that is not known. */
static int
writer_tag(ZXid writer)
{
	return writer == InvalidZXid ? 0 : 1 + (int) (writer % WRITER_TAGS);
}

/*
 * Walks to the version that the MVCC snapshot of accept sees, or stays at the
 * newest one if accept is NULL. Returns ZWALK_RETRY, ZWALK_BEGINNING if no
 * live version is visible, else another result; then *writer is the
 * transaction that wrote the version, 0 if that is not known any more.
 */
static ZWalkResult
find_version(ZWalk *walk, ZAccept *accept, ZXid *writer)
{
	ZWalkResult found;
	ZAccept		none;

	zaccept_init(&none, ZACCEPT_NONE, NULL, walk->slots->oldest);
	while ((found = zwalk_next(walk, &none)) == ZWALK_WRITER &&
		   accept != NULL && !zaccept_version(accept, &walk->rec))
		 /* older */ ;
	if (found == ZWALK_RETRY || found == ZWALK_BEGINNING)
		return found;
	*writer = (found == ZWALK_WRITER) ? zrecord_author(&walk->rec) : InvalidZXid;
	return ZH_LIVE(walk->header) ? found : ZWALK_BEGINNING;
}

/*
 * Reports the top-level transaction of unseen, as the server wants. A change
 * that is older than every running transaction is unseen only because it was
 * rolled back, so it is no conflict.
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
 * Locks the version that the snapshot sees at the time of the call. An item
 * that is damaged or missing gets no lock: the read that follows reports it.
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
		ZXid		writer;

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
		found = find_version(&copy.walk, &accept, &writer);
		if (found == ZWALK_RETRY)
			continue;
		if (found == ZWALK_BEGINNING)
			return;
		tagged_tid(&tid, BufferGetBlockNumber(buf), off, writer_tag(writer));
		PredicateLockTID(rel, &tid, snapshot, zxid_to_xid(writer));
		return;
	}
	zvis_corrupt_chain(rel, BufferGetBlockNumber(buf), InvalidUndoPtr);
}

/*
 * Checks the tag of the writer, or all tags if the writer is not known any
 * more. The page's own lock is checked only once, so the further checks name
 * no block.
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
	ZXid		writer = InvalidZXid;

	if (!IsolationIsSerializable())
		return;
	Assert(zc_buffer_exclusive(buf));
	row = zrow_on(rel, buf, off, &slots);
	zslots_copy(rel, block, row.page, &slots);
	if (!zwalk_begin(&walk, &row, ZCHAIN_LOCKED))
		elog(ERROR, "no row at offset %u of block %u", off, block);
	found = find_version(&walk, NULL, &writer);
	if (found == ZWALK_RETRY || found == ZWALK_BEGINNING)
		elog(ERROR, "no row at offset %u of block %u", off, block);
	tagged_tid(&tid, block, off, writer_tag(writer));
	CheckForSerializableConflictIn(rel, &tid, block);
	if (writer != InvalidZXid)
		return;
	for (int tag = 1; tag <= WRITER_TAGS; tag++)
	{
		tagged_tid(&tid, block, off, tag);
		CheckForSerializableConflictIn(rel, &tid, InvalidBlockNumber);
	}
}
