/*
 * mvcc/ztrail.h - passing over the records of other rows in a chain.
 *
 * A chain belongs to a page, so a reader that looks for the records of one row
 * meets those of all others. Each backend remembers the heads of the records of
 * the chains that it has read lately (a trail each), so that n rows of a page
 * cost n readings of the chain's records together, not n each.
 */
#ifndef ZUNDO_ZTRAIL_H
#define ZUNDO_ZTRAIL_H

#include "mvcc/zchain.h"

/* Where a reader stands that looks for the records of one row in one chain. */
typedef struct ZTrailReader
{
	UndoPtr		next;			/* the rest is valid if this is chain->next */
	UndoPtr		first;			/* where the reader began */
	int			steps;			/* records read or passed since then */
	int			singly;			/* those read one by one, since others were
								 * passed */
	ZXid		xid;			/* of the last record */
	CommandId	cid;
	bool		in_run;			/* the one before it had the same */
	bool		skipping;		/* records have been passed by zu_skip */
	uint64		trail;			/* the trail that it follows; 0 = none */
	uint16		place;			/* ... in this place of the backend's array */
	uint16		at;				/* the entry of 'next'; none at the end */
	uint16		above;			/* ... the entry above it then */
	uint16		told;			/* the stretch of which a record was returned */
	uint16		row;			/* last entry passed of those about the row */
	uint16		wide;			/* last one passed of several rows */
} ZTrailReader;

/*
 * ztrail_start: prepares a reader before its first call.
 */
static inline void
ztrail_start(ZTrailReader *reader)
{
	reader->next = InvalidUndoPtr;
}

/*
 * ztrail_next: does what zchain_next does for a reader that looks for records
 * about the row at off, LOCK records included. Of each stretch of neighbours
 * with the same xid and cid it returns the first, so that the caller can stop
 * there, and else none that are not about the row. Of a record that is not
 * about a version of the row, and of all if whole is not set, *rec has only
 * what ZuHead has. A chain that is begun anew at chain->next is continued.
 *
 * For n rows of a page and m records it reads the head of each of the m twice,
 * and the records of each row.
 */
extern ZChainStep ztrail_next(ZChain *chain, ZTrailReader *reader, OffsetNumber off, bool whole,
							  ZuRecord *rec);

/* Heads of records read ahead. */
typedef struct ZHeads
{
	int			n;
	int			i;
	ZuHead		head[ZU_MAX_HEADS];
} ZHeads;

static inline void
zheads_start(ZHeads *heads)
{
	heads->n = heads->i = 0;
}

/*
 * zheads_next: does what zchain_next does for a reader of a whole chain that
 * needs no payloads; *rec has what ZuHead has. zheads_start is called before
 * the first call. Nothing is remembered.
 */
extern ZChainStep zheads_next(ZChain *chain, ZHeads *heads, ZuRecord *rec);

/* ztrail_at_xact_end: forgets all trails. */
extern void ztrail_at_xact_end(void);

#endif
