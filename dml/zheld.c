/*
 * dml/zheld.c - row locks that our transaction is known to hold.
 *
 * A bulk load checks a foreign key for each of its rows, and mostly finds that
 * the transaction has locked the referenced row already. The LOCK record may
 * lie deep in the chain of the transaction's slot, below those of all other
 * rows of the page. To avoid the search, the backend remembers the locks that
 * it took or found last.
 *
 * The mode that is remembered for a row is the strongest one that our
 * transaction holds on it by a record in its own chain or an inline lock. An
 * open LOCK record locks the rows that have its slot's lock tag (TAG-1 in
 * zlocktag.c), so one search is needed for a page, not one for each row.
 *
 * Called by dml/ with the row's page locked. Locks are forgotten by
 * zknown_forget. The memory is the backend's own, and bounded. Takes no locks.
 * No crash points.
 *
 *	LOCK-11	That a lock is not remembered means nothing, and the slots of other
 *		transactions are searched in any case.
 *		(a) Forgotten are all locks when a subtransaction is rolled back, whose
 *			locks end, and when the backend empties a file that its transaction
 *			has made, whose pages then begin anew (TRUNCATE).
 *		(b) Not used is a remembered lock if the row's lock hint is weaker than
 *			the lock, or if the lock is by tag and the row does not have that
 *			tag (TAG-5): then the row is not the one that was locked, but a
 *			later one at the same place.
 *		(c) Of some pages the backend also remembers a LOCK record. If that is
 *			open, the transaction holds all rows with its slot's tag as TAG-1
 *			says: until a (sub)transaction is rolled back the record stays in
 *			the chain, whatever is pushed on it; the slot stays the
 *			transaction's, and its chain gets no other open record (TAG-2). The
 *			mode is the strongest one that the transaction holds on the row if
 *			the row's hint is not stronger. Further rows are locked by the tag
 *			only while the record is the head of its chain (TAG-2), which its
 *			pointer shows at any time: no other record of the same
 *			(sub)transaction will ever have it.
 *		(d) If our transaction is known to hold a row FOR UPDATE, no other
 *			holds a lock on it, and no slot is searched.
 *		Example: SELECT FOR UPDATE of a row, then UPDATE: this finds the lock
 *			here and neither searches the page's slots nor waits.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "dml/zdml_internal.h"
#include "utils/memutils.h"
#include "utils/rel.h"

/* Size of the direct-mapped cache; a newer lock replaces an older one. */
#define HELD_PLACES 2048

typedef struct HeldLock
{
	uint64		epoch;
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
	OffsetNumber off;
	uint8		mode;
	uint8		tag;			/* lock tag by which the row is locked; 0: the
								 * lock is not by tag */
} HeldLock;

/* HELD_PLACES locks; NULL until the first is noted. */
static HeldLock *locks = NULL;

/* Returns the place in the cache for a row. */
static inline HeldLock *
place_of(Relation rel, BlockNumber block, OffsetNumber off)
{
	uint32		hash = murmurhash32(rel->rd_locator.relNumber ^ murmurhash32(block)) + off;

	return &locks[hash % HELD_PLACES];
}

/* Returns whether the place holds a lock of this row. */
static inline bool
is_of(const HeldLock *lock, Relation rel, BlockNumber block, OffsetNumber off)
{
	return lock->epoch == zknown_epoch && lock->block == block && lock->off == off &&
		lock->relnumber == rel->rd_locator.relNumber && lock->reloid == RelationGetRelid(rel);
}

/* zheld_record: See zdml_internal.h. */
const ZHeldRecord *
zheld_record(Relation rel, BlockNumber block)
{
	const ZHeldRecord *record = &zknown_page(rel, block)->record;

	return record->ptr == InvalidUndoPtr ? NULL : record;
}

/*
 * zheld_open_mode: See zdml_internal.h. The record stays in its chain as long
 * as the epoch lasts: it is undone only if its (sub)transaction is rolled back,
 * and its slot is not taken from a transaction in progress. By TAG-2 the chain
 * gets no other open record meanwhile, so the tag stands for no other mode.
 */
int
zheld_open_mode(Relation rel, BlockNumber block, int slotno)
{
	const ZHeldRecord *record = zheld_record(rel, block);

	Assert(slotno >= 0);
	if (record == NULL || record->epoch != zknown_epoch || !record->open ||
		record->slotno != slotno)
		return -1;
	return (int) record->mode;
}

/* zheld_note_record: See zdml_internal.h. */
void
zheld_note_record(Relation rel, BlockNumber block, int slotno, UndoPtr ptr, const ZuRecord *rec)
{
	ZHeldRecord *record = &zknown_page(rel, block)->record;

	Assert(slotno >= 1 && slotno <= ZPAGE_MAX_INLINE_SLOTS && ptr != InvalidUndoPtr);
	Assert(rec->type == ZUR_LOCK && rec->lockmode <= LockTupleExclusive);
	record->epoch = zknown_epoch;
	record->ptr = ptr;
	record->xid = rec->xid;
	record->slotno = (uint8) slotno;
	record->mode = rec->lockmode;
	record->open = rec->open;
}

/*
 * Returns the mode that is remembered for the row itself at its place in the
 * cache; -1: none.
 */
static inline int
mode_at(const HeldLock *lock, Relation rel, BlockNumber block, OffsetNumber off, ZHeader header)
{
	if (!is_of(lock, rel, block, off) || (int) lock->mode + 1 > ZH_LOCK(header) ||
		(lock->tag != 0 && lock->tag != ZH_TAG(header)))
		return -1;
	return (int) lock->mode;
}

/*
 * zheld_mode: See zdml_internal.h. The mode by the row's lock tag is the
 * strongest one that our transaction can hold if the row's hint is not
 * stronger.
 */
int
zheld_mode(Relation rel, BlockNumber block, OffsetNumber off, ZHeader header)
{
	int			mode = -1;

	if (locks != NULL)
		mode = mode_at(place_of(rel, block, off), rel, block, off, header);
	if (mode < 0 && ZH_TAG(header) != 0)
	{
		mode = zheld_open_mode(rel, block, ZH_TAG(header));
		if (mode >= 0)
			mode = zheader_tag_mode(header, mode);
		if (mode + 1 != ZH_LOCK(header))
			mode = -1;
	}
	return mode;
}

/*
 * zheld_note: See zdml_internal.h. Remembers nothing if the cache cannot be
 * allocated.
 */
void
zheld_note(Relation rel, BlockNumber block, OffsetNumber off, ZHeader header,
		   LockTupleMode mode, bool by_tag)
{
	HeldLock   *lock;

	Assert(off >= FirstOffsetNumber && mode <= LockTupleExclusive);
	Assert(!by_tag || ZH_TAG(header) != 0);
	if (locks == NULL)
	{
		locks = MemoryContextAllocExtended(TopMemoryContext, HELD_PLACES * sizeof(HeldLock),
										   MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
		if (locks == NULL)
			return;
	}
	lock = place_of(rel, block, off);
	if (mode_at(lock, rel, block, off, header) >= (int) mode)
		return;
	lock->epoch = zknown_epoch;
	lock->reloid = RelationGetRelid(rel);
	lock->relnumber = rel->rd_locator.relNumber;
	lock->block = block;
	lock->off = off;
	lock->mode = (uint8) mode;
	lock->tag = by_tag ? ZH_TAG(header) : 0;
}
