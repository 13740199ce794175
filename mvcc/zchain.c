/*
 * mvcc/zchain.c - what a discarded record means to the reader of a chain.
 *
 * Called by zchain_next, so for all readers of chains. Owns rule VIS-4 of
 * mvcc/README.md:
 *	(VIS-4)	a record that had been discarded when the page was copied, and to
 *			which the chain of a slot leads nevertheless, belongs to a
 *			transaction that is visible to all: a change that was rolled back
 *			is discarded only when no chain leads to it any more. A record that
 *			was discarded later may be such a change, unless no record above it
 *			is aborted, for aborted records are the newest ones of a chain.
 *			Then the page is copied again, and likewise if the head itself is
 *			discarded. Nothing is undone on a page while it stays locked: what
 *			has been discarded then is visible to all.
 *
 * Takes no locks but those of zu_fetch.
 */
#include "postgres.h"

#include "mvcc/zchain.h"
#include "mvcc/zslots.h"
#include "mvcc/zxid.h"

bool
zslot_has_settled(const ZPageSlot *slot)
{
	return ZSLOT_XID(slot) < zu_oldest_for(slot->ptr) && (zslot_xid(slot) & ZXID_LOST) == 0;
}

/*
 * Returns whether a record above chain->next is aborted. Returns true also if
 * a record above has been discarded by now: then the page must be copied again
 * as well.
 */
static bool
has_aborted_above(const ZChain *chain)
{
	char		buf[ZUR_MAX_LENGTH];
	UndoPtr		ptr = chain->slot.ptr;

	Assert(chain->source == ZCHAIN_COPIED); /* VIS-4 */
	while (ptr != InvalidUndoPtr && ptr != chain->next)
	{
		ZuRecord	rec;

		if (zu_fetch(ptr, chain->relnumber, chain->block, &rec, buf) == ZU_DISCARDED ||
			zxid_status_at(rec.xid, chain->oldest) == ZXID_ABORTED)
			return true;
		ptr = rec.prev;
	}
	return false;
}

/*
 * Decides by VIS-4. chain->gone remembers the record for which the page was
 * copied again: if the copy leads to the same record once more, it had been
 * discarded before that copy was made.
 */
ZChainStep
zchain_discarded(ZChain *chain)
{
	UndoPtr		ptr = chain->next;

	Assert(ptr != InvalidUndoPtr);
	if (chain->source == ZCHAIN_LOOSE)
		return ZCHAIN_SETTLED;
	if (ptr == chain->slot.ptr)
		return chain->source == ZCHAIN_LOCKED && zslot_has_settled(&chain->slot) ? ZCHAIN_SETTLED
			: ZCHAIN_RETRY;
	if (chain->source == ZCHAIN_LOCKED || ptr == chain->gone || !has_aborted_above(chain))
		return ZCHAIN_SETTLED;
	chain->gone = ptr;
	return ZCHAIN_RETRY;
}
