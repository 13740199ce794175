/*
 * mvcc/zchain.c - what a discarded record means to the reader of a chain.
 *
 * Called by zchain_next, so for all readers of chains. Owns rule VIS-4 of
 * mvcc/README.md. Takes no locks but those of zu_fetch.
 */
#include "postgres.h"

#include "mvcc/zchain.h"
#include "mvcc/zslots.h"
#include "mvcc/zxid.h"

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
 * zchain_discarded: See zchain.h. Decides by VIS-4. *chain->gone remembers the
 * record for which the page was copied again: if the new copy leads to the same
 * record, that had been discarded before this copy was made. If the page stays
 * locked, nothing is undone on it meanwhile. Then a discarded record below the
 * head is visible to all. So is a discarded head whose transaction `oldest` has
 * passed by now (VIS-1); any other head is reported by ZCHAIN_RETRY.
 */
ZChainStep
zchain_discarded(ZChain *chain)
{
	UndoPtr		ptr = chain->next;

	Assert(ptr != InvalidUndoPtr);
	if (chain->source == ZCHAIN_LOOSE)
		return ZCHAIN_SETTLED;
	if (ptr == chain->slot.ptr)
		return chain->source == ZCHAIN_LOCKED &&
			zslot_age(&chain->slot, zu_oldest_for(ptr)) == ZAGE_SETTLED
			? ZCHAIN_SETTLED : ZCHAIN_RETRY;
	if (chain->source == ZCHAIN_LOCKED || ptr == *chain->gone || !has_aborted_above(chain))
		return ZCHAIN_SETTLED;
	*chain->gone = ptr;
	return ZCHAIN_RETRY;
}
