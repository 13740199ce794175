/*
 * mvcc/ztrail.h - passing over the records of other rows in a chain.
 *
 * A chain belongs to a page, so a reader that looks for the records of one row
 * meets those of all others. Each backend remembers the headers of the records
 * of the chains that it has read lately (a trail each), so that n rows of a
 * page cost n readings of the chain's records together, not n each.
 */
#ifndef ZUNDO_ZTRAIL_H
#define ZUNDO_ZTRAIL_H

#include "mvcc/zchain.h"

/*
 * Where a reader stands that looks for the records of one row in one chain. It
 * reads records one by one, or follows a trail. A stretch is a run of
 * neighbours in the chain with the same xid and cid.
 */
typedef struct ZTrailReader
{
	UndoPtr		next;			/* the rest is valid if this is chain->next */
	UndoPtr		first;			/* where the reader began */
	int			steps;			/* records read or passed since then */
	int			singly;			/* records read one by one since zu_skip has
								 * passed some */
	ZXid		xid;			/* of the last record */
	CommandId	cid;
	bool		in_run;			/* the last record continued a stretch */
	bool		skipping;		/* zu_skip has been called since the reader
								 * began */
	uint64		trail;			/* the trail that it follows; 0 = none */
	uint16		place;			/* that trail's place in the backend's array
								 * of trails */
	/* indexes of entries of the trail */
	uint16		at;				/* the entry of 'next'; none at the trail's
								 * end */
	uint16		above;			/* if 'at' is none: the trail's last entry */
	uint16		row;			/* of the entries about the row, the one
								 * passed last */
	uint16		wide;			/* the same, of the entries about several rows */
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
 * about the row at off, LOCK records included. It may pass over others: where a
 * caller stops at one, it does so only to read less. But it returns one whose
 * xid is less than that of the next record that it returns. *rec is sure to
 * have a payload only if whole is set and the record is about a version of the
 * row; else it may have only what ZuHeader has. If the caller begins the chain
 * anew at chain->next, the same reader continues there.
 *
 * For n rows of a page and m records in its chain, all calls together read the
 * header of each of the m records about twice, and each row's own records.
 */
extern ZChainStep ztrail_next(ZChain *chain, ZTrailReader *reader, OffsetNumber off, bool whole,
							  ZuRecord *rec);

/* Headers of records read ahead. */
typedef struct ZHeaders
{
	int			n;
	int			i;
	ZuHeader	header[ZU_MAX_HEADERS];
} ZHeaders;

/* zheaders_start: empties *headers, before a chain is read. */
static inline void
zheaders_start(ZHeaders *headers)
{
	headers->n = headers->i = 0;
}

/*
 * zheaders_next: does what zchain_next does for a reader of a whole chain that
 * needs no payloads; *rec is sure to have only what ZuHeader has.
 * zheaders_start is called before the first call. Remembers nothing when the
 * chain has been read.
 */
extern ZChainStep zheaders_next(ZChain *chain, ZHeaders *headers, ZuRecord *rec);

/* ztrail_at_xact_end: forgets all trails. */
extern void ztrail_at_xact_end(void);

#endif
