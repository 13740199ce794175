/*
 * mvcc/zssi.c - predicate locks of serializable transactions, one for each version of a row.
 *
 * The server names what a transaction has read by TID. On heap every version has a
 * TID of its own; here a lock on the TID alone would also conflict with those who replace a
 * newer version, and fail transactions that heap lets pass. So the "offset" of a lock is the row's
 * offset with a few bits of the version's writer above it (rule V7):
 *	- who reads a version whose writer is known (>= oldest) locks the writer's tag; else tag 0;
 *	- who replaces a version whose writer is known looks for that tag only: readers under
 *	  tag 0 saw an older one, since `oldest` never goes back;
 *	- who replaces a version whose writer is not known any more looks for all tags.
 * The writer of what a rewrite has put there again is the transaction that it is "as of" (zrecord_author).
 * The lock is taken before the row is read for its invisible changes: a writer either finds the
 * lock, or has changed the page before we look at it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "mvcc/zwalk.h"
#include "storage/bufmgr.h"
#include "storage/predicate.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#define MAX_RETRIES 1000

/* Writers are told apart by so many tags, beside tag 0 for unknown ones. */
#define WRITER_TAGS 31
/* Where a tag begins in an offset number. */
#define TAG_SHIFT 9

StaticAssertDecl(ZHEAP_MAX_OFFSET < (1 << TAG_SHIFT), "offset and tag overlap");
StaticAssertDecl(WRITER_TAGS < (1 << (16 - TAG_SHIFT)), "tags do not fit an offset number");

static void
tagged_tid(ItemPointer tid, BlockNumber block, OffsetNumber off, int tag)
{
	ItemPointerSet(tid, block, off | (tag << TAG_SHIFT));
}

static int
writer_tag(ZXid writer)
{
	return writer == InvalidZXid ? 0 : 1 + (int) (writer % WRITER_TAGS);
}

/* The result of looking for the writer of a row's version. */
typedef enum Found
{
	FOUND_VERSION,
	FOUND_NOTHING,				/* no version is visible */
	FOUND_RETRY					/* copy the page again */
} Found;

/*
 * Walk to the version that the MVCC snapshot of accept sees, or stay at the newest if accept is
 * NULL. *writer: who wrote it, 0 if that is not known any more.
 */
static Found
find_version(ZWalk *walk, ZAccept *accept, ZXid *writer)
{
	ZAccept		none;

	zaccept_init(&none, ZACCEPT_NONE, NULL, walk->slots->oldest);
	for (;;)
	{
		ZWalkResult result = zwalk_find_writer(walk, &none);

		if (result == ZWALK_RETRY)
			return FOUND_RETRY;
		*writer = (result == ZWALK_WRITER) ? zrecord_author(&walk->rec) : InvalidZXid;
		if (result != ZWALK_WRITER || accept == NULL || zaccept_version(accept, &walk->rec))
			return ZH_LIVE(walk->header) ? FOUND_VERSION : FOUND_NOTHING;
		zwalk_step_back(walk);
		if (!walk->exists)
			return FOUND_NOTHING;
	}
}

/* Copy the row at off, or the page's image that suits snapshot, and find the visible version. */
static Found
find_visible(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZXid *writer)
{
	static ZSlotView slots;
	static PGAlignedBlock copy;
	BlockNumber block = BufferGetBlockNumber(buf);
	ZWalk	   *walk = zwalk_workspace();
	ZAccept		accept;
	ZXid		oldest;
	bool		valid;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	memcpy(copy.data, BufferGetPage(buf), BLCKSZ);
	valid = !PageIsNew(copy.data) && zpage_item_ok(copy.data, off);
	if (valid)
		zslots_copy(rel, block, copy.data, &slots);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (!valid)
		return FOUND_NOTHING;	/* who reads the row says what is wrong */
	oldest = slots.oldest;
	if (zimage_jump(copy.data, &slots, rel, block, snapshot))
	{
		zslots_copy(rel, block, copy.data, &slots);
		slots.oldest = oldest;
	}
	if (!zwalk_start(walk, copy.data, &slots, rel, block, off))
		return FOUND_NOTHING;
	zaccept_init(&accept, ZACCEPT_MVCC, snapshot, oldest);
	return find_version(walk, &accept, writer);
}

bool
zssi_needed(Relation rel, Snapshot snapshot)
{
	return IsolationIsSerializable() && snapshot != InvalidSnapshot && IsMVCCSnapshot(snapshot) &&
		CheckForSerializableConflictOutNeeded(rel, snapshot);
}

void
zssi_before_read(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot)
{
	zwalk_workspace()->page_locked = false;
	for (int tries = 0; tries < MAX_RETRIES; tries++)
	{
		ItemPointerData tid;
		ZXid		writer;
		Found		found = find_visible(rel, buf, off, snapshot, &writer);

		if (found == FOUND_RETRY)
			continue;
		if (found == FOUND_NOTHING)
			return;
		tagged_tid(&tid, BufferGetBlockNumber(buf), off, writer_tag(writer));
		PredicateLockTID(rel, &tid, snapshot, zxid_to_xid(writer));
		return;
	}
	zvis_corrupt_chain(rel, BufferGetBlockNumber(buf), InvalidUndoPtr);
}

void
zssi_before_write(Relation rel, Buffer buf, OffsetNumber off)
{
	static ZSlotView slots;
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	ZWalk	   *walk = zwalk_workspace();
	ItemPointerData tid;
	ZXid		writer = InvalidZXid;

	if (!IsolationIsSerializable())
		return;
	zslots_copy(rel, block, page, &slots);
	walk->page_locked = true;
	if (!zwalk_start(walk, page, &slots, rel, block, off) ||
		find_version(walk, NULL, &writer) != FOUND_VERSION)
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
