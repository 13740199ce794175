/*
 * undo/damage/undo_resolved.c - transactions that the discard pass has found
 * aborted and has had undone, with the logs that had their records.
 *
 * Belongs to the discarder; another process never sees it. Each pass adds some
 * and drops those below `oldest`. They are looked up only while a log is
 * damaged (UNDO-37), then perhaps all of them, so they are sorted at the first
 * look-up after some were added.
 */
#include "postgres.h"

#include "undo/damage/undo_resolved.h"
#include "utils/memutils.h"

/* zu_note_resolved: See undo_resolved.h. The array grows by doubling. */
void
zu_note_resolved(ZuResolved *resolved, ZXid xid, uint32 logno, MemoryContext context)
{
	Assert(resolved->n <= resolved->size);
	if (resolved->n == resolved->size)
	{
		int			size = Max(resolved->size * 2, 64);

		if (resolved->items == NULL)
			resolved->items = MemoryContextAllocHuge(context, size * sizeof(ZuUndone));
		else
			resolved->items = repalloc_huge(resolved->items, size * sizeof(ZuUndone));
		resolved->size = size;
	}
	resolved->sorted = resolved->n == 0 ||
		(resolved->sorted && resolved->items[resolved->n - 1].xid <= xid);
	resolved->items[resolved->n].xid = xid;
	resolved->items[resolved->n].logno = logno;
	resolved->n++;
}

/*
 * zu_forget_resolved: See undo_resolved.h. Keeps the array's memory for later
 * elements, and their order.
 */
void
zu_forget_resolved(ZuResolved *resolved, ZXid oldest)
{
	int			kept = 0;

	for (int i = 0; i < resolved->n; i++)
		if (resolved->items[i].xid >= oldest)
			resolved->items[kept++] = resolved->items[i];
	resolved->n = kept;
}

/* Orders by xid, for qsort and bsearch. */
static int
compare(const void *a, const void *b)
{
	ZXid		x = ((const ZuUndone *) a)->xid;
	ZXid		y = ((const ZuUndone *) b)->xid;

	return x < y ? -1 : x > y;
}

/*
 * zu_was_resolved: See undo_resolved.h. If a transaction was noted more than
 * once, because the log was read anew, its log is the same each time: a
 * transaction writes to one log.
 */
bool
zu_was_resolved(ZuResolved *resolved, ZXid xid, uint32 logno)
{
	ZuUndone	key = {.xid = xid};
	const ZuUndone *found;

	if (!resolved->sorted)
		qsort(resolved->items, resolved->n, sizeof(ZuUndone), compare);
	resolved->sorted = true;
	if (resolved->n == 0)
		return false;
	found = bsearch(&key, resolved->items, resolved->n, sizeof(ZuUndone), compare);
	return found != NULL && found->logno != logno;
}
