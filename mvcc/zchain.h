/*
 * mvcc/zchain.h - iterator over the undo records of one chain.
 *
 * A chain begins at the head that a transaction slot of a table page names and
 * leads from each record to the one before. All readers outside of undo/
 * follow chains through zchain_next, or through ztrail_next and zheaders_next
 * (mvcc/ztrail.h), which read what they can read by themselves and leave the
 * rest to zchain_next. That alone knows what a discarded record means (rule
 * VIS-4 in mvcc/README.md).
 */
#ifndef ZUNDO_ZCHAIN_H
#define ZUNDO_ZCHAIN_H

#include "miscadmin.h"
#include "page/zpage.h"
#include "undo/undo.h"

/* How the reader of a chain came by the chain's head. */
typedef enum ZChainSource
{
	ZCHAIN_LOCKED,				/* from a page that stays locked while the
								 * chain is read */
	ZCHAIN_COPIED,				/* from a copy of a page, which can be made
								 * again */
	ZCHAIN_LOOSE				/* from elsewhere: the reader makes do with
								 * the records that are still there */
} ZChainSource;

/* What zchain_next found. */
typedef enum ZChainStep
{
	ZCHAIN_RECORD,				/* a record */
	ZCHAIN_END,					/* no further record */
	ZCHAIN_SETTLED,				/* all that follows is visible to all (for
								 * ZCHAIN_LOOSE: or has been discarded) */
	ZCHAIN_RETRY,				/* the page may have changed since the head
								 * was read: read the page again */
	ZCHAIN_DAMAGED				/* window->try: the record is missing */
} ZChainStep;

typedef struct ZChain
{
	RelFileNumber relnumber;
	BlockNumber block;			/* the table page's */
	ZChainSource source;
	bool		cached;			/* records are read by zu_fetch_window if
								 * window is set, else by zu_fetch_cached */
	ZXid		oldest;			/* records of transactions before it are
								 * visible to all; InvalidZXid: none are */
	ZPageSlot	slot;			/* as it was on the page */
	UndoPtr		next;			/* what zchain_next will read */
	UndoPtr		here;			/* the last record */
	UndoPtr    *gone;			/* ZCHAIN_COPIED: a discarded record for which
								 * the page has been copied again (VIS-4), or
								 * Invalid; the reader's, for all its copies */
	char	   *buf;			/* the reader's buffer of ZUR_MAX_LENGTH
								 * bytes, for the bytes of the last record */
	const char *bytes;			/* the last record's: buf, or those in a copy
								 * of its undo page */
	ZuWindow   *window;			/* used if cached is set; NULL = none. The
								 * reader owns it, and has started it */
} ZChain;

/*
 * zchain_start: fills *chain in. Only the three functions that follow call it.
 */
static inline void
zchain_start(ZChain *chain, RelFileNumber relnumber, BlockNumber block, const ZPageSlot *slot,
			 ZChainSource source, ZXid oldest, char *buf)
{
	chain->relnumber = relnumber;
	chain->block = block;
	chain->source = source;
	chain->cached = false;
	chain->window = NULL;
	chain->oldest = oldest;
	chain->slot = *slot;
	chain->next = slot->ptr;
	chain->here = InvalidUndoPtr;
	chain->gone = NULL;
	chain->buf = buf;
}

/*
 * zchain_begin_locked: prepares to read the chain of slot, which was read from
 * a page of the table file relnumber that stays locked until the last record
 * has been read. oldest is zslots_oldest() as of then, or InvalidZXid to get
 * records whatever their age. buf has space for ZUR_MAX_LENGTH bytes. A reader
 * that wants copies of undo pages to be used sets chain->cached, and
 * chain->window, afterwards; chain->bytes tells whether the bytes of the record
 * read last are in buf.
 */
static inline void
zchain_begin_locked(ZChain *chain, RelFileNumber relnumber, BlockNumber block,
					const ZPageSlot *slot, ZXid oldest, char *buf)
{
	zchain_start(chain, relnumber, block, slot, ZCHAIN_LOCKED, oldest, buf);
}

/*
 * zchain_begin_copied: does the same for a slot of a page that was copied, and
 * can be copied again. *gone is what the reader remembers from one copy to the
 * next: it is InvalidUndoPtr at first, and only zchain_next changes it. It may
 * serve for other chains and pages too: a record that was once found discarded
 * is so before each later copy.
 */
static inline void
zchain_begin_copied(ZChain *chain, RelFileNumber relnumber, BlockNumber block,
					const ZPageSlot *slot, UndoPtr *gone, ZXid oldest, char *buf)
{
	zchain_start(chain, relnumber, block, slot, ZCHAIN_COPIED, oldest, buf);
	chain->gone = gone;
}

/*
 * zchain_begin_at: prepares to read the records from ptr on, as far as they
 * have not been discarded (ZCHAIN_LOOSE).
 */
static inline void
zchain_begin_at(ZChain *chain, RelFileNumber relnumber, BlockNumber block, UndoPtr ptr, ZXid oldest,
				char *buf)
{
	ZPageSlot	slot = {0, ptr};

	zchain_start(chain, relnumber, block, &slot, ZCHAIN_LOOSE, oldest, buf);
}

/*
 * zchain_discarded: returns what it means that chain->next has been discarded:
 * ZCHAIN_SETTLED or ZCHAIN_RETRY. Only zchain_next calls it.
 */
extern ZChainStep zchain_discarded(ZChain *chain);

/*
 * zchain_next: reads the next record of the chain into *rec and sets
 * chain->here to its place. *rec is defined only if the result is
 * ZCHAIN_RECORD. Raises ERRCODE_DATA_CORRUPTED if the record is missing though
 * it has not been discarded, unless chain->window->try is set.
 */
static inline ZChainStep
zchain_next(ZChain *chain, ZuRecord *rec)
{
	ZuFetchResult result;

	if (chain->next == InvalidUndoPtr)
		return ZCHAIN_END;
	CHECK_FOR_INTERRUPTS();
	if (unlikely(chain->cached) && chain->window != NULL)
		result = zu_fetch_window(chain->window, chain->next, chain->relnumber, chain->block, rec,
								 chain->buf, &chain->bytes);
	else if (unlikely(chain->cached))
		result = zu_fetch_cached(chain->next, chain->relnumber, chain->block, rec, chain->buf,
								 &chain->bytes);
	else
	{
		result = zu_fetch(chain->next, chain->relnumber, chain->block, rec, chain->buf);
		chain->bytes = chain->buf;
	}
	if (unlikely(result >= ZU_DISCARDED))
		return result == ZU_DAMAGED ? ZCHAIN_DAMAGED : zchain_discarded(chain);
	if (rec->xid < chain->oldest)
		return ZCHAIN_SETTLED;
	chain->here = chain->next;
	chain->next = rec->prev;
	return ZCHAIN_RECORD;
}

/*
 * zchain_next_beside: returns how far before the last record the next one lies
 * in the same copy of an undo page; 0 if it is to be read by zchain_next.
 *
 * zchain_next_alike: does what zchain_next does, if the next record lies there
 * and has the layout of the last one, *rec. Else returns false, and has done
 * nothing.
 */
static inline Size
zchain_next_beside(const ZChain *chain)
{
	return chain->bytes != chain->buf ? zu_copied_before(chain->next, chain->here) : 0;
}

static inline bool
zchain_next_alike(ZChain *chain, const ZurLayout *layout, ZuRecord *rec)
{
	Size		before = zchain_next_beside(chain);

	if (before == 0 ||
		!zu_copied_alike(chain->next, chain->bytes - before, before, layout, rec))
		return false;
	chain->bytes -= before;
	chain->here = chain->next;
	chain->next = rec->prev;
	return true;
}

#endif
