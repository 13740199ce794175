/*
 * mvcc/zwalk.h - walking one row from its newest version to older ones.
 *
 * Private to mvcc/. A walk works on private copies of the row and of the
 * page's slots; it takes no table page lock.
 */
#ifndef ZUNDO_ZWALK_H
#define ZUNDO_ZWALK_H

#include "mvcc/zssi.h"
#include "mvcc/ztrail.h"
#include "mvcc/zvis.h"

/*
 * How often a reader copies a page again, because undo that the copy needs has
 * been discarded, before it calls the page corrupt.
 */
#define ZWALK_MAX_TRIES 1000

/*
 * A walk goes to and fro between the slots whose transactions have changed the
 * row in turn: it remembers where it stands in as many chains as pages mostly
 * have slots.
 */
#define ZWALK_READERS 4

/* Which records of a slot's chain a reader accepts. */
typedef enum ZAcceptKind
{
	ZACCEPT_MVCC,				/* visible to the snapshot, own changes by cid */
	ZACCEPT_COMMITTED,			/* own or committed */
	ZACCEPT_OWN_BEFORE,			/* committed, or own with a cid below 'limit' */
	ZACCEPT_NOT_ABORTED,		/* own, committed or in progress */
	ZACCEPT_NONE				/* nothing: the reader wants the author's
								 * record itself */
} ZAcceptKind;

typedef struct ZAccept
{
	ZAcceptKind kind;
	Snapshot	snapshot;		/* ZACCEPT_MVCC */
	CommandId	limit;			/* ZACCEPT_OWN_BEFORE; 0 = no own record is
								 * accepted */
	ZXid		oldest;
	bool		of_nobody;		/* nobody holds the snapshot, so what it would
								 * need may have been discarded (zhistory.c) */
	ZXid		last_xid;		/* the last answer, for other transactions */
	bool		last_answer;
} ZAccept;

/*
 * zaccept_init: makes accept a filter of this kind; oldest is that of the
 * copied page. limit becomes 0: for ZACCEPT_OWN_BEFORE the caller sets it
 * afterwards.
 */
extern void zaccept_init(ZAccept *accept, ZAcceptKind kind, Snapshot snapshot, ZXid oldest);

/*
 * zaccept_record: returns whether a change by xid (>= oldest) under cid is
 * accepted.
 */
extern bool zaccept_record(ZAccept *accept, ZXid xid, CommandId cid);

/*
 * zaccept_version: returns whether the change of a row by rec is accepted.
 * Differs from zaccept_record for records that a rewrite has written "as of"
 * another transaction. Says nothing about records of other rows below (VIS-3).
 */
extern bool zaccept_version(ZAccept *accept, const ZuRecord *rec);

/*
 * zaccept_head: returns whether the head of a chain is accepted by its xid
 * alone. Returns false also if only the record can tell (own changes under an
 * MVCC snapshot).
 */
extern bool zaccept_head(ZAccept *accept, ZXid xid);

/*
 * zaccept_older: returns whether VIS-3 holds for an accepted record by xid in a
 * chain of this page of table file relnumber: then all older records of the
 * chain are accepted, too.
 */
extern bool zaccept_older(const ZAccept *accept, RelFileNumber relnumber, BlockNumber block,
						  ZXid xid);

typedef enum ZWalkResult
{
	ZWALK_ALL_VISIBLE,			/* the version in hand is visible to all */
	ZWALK_ACCEPTED,				/* an accepted record was met before the
								 * author of the version in hand */
	ZWALK_AUTHOR,				/* walk->rec wrote the version in hand */
	ZWALK_BEGINNING,			/* the row did not exist before: there is no
								 * version in hand */
	ZWALK_RETRY					/* undo that the copy needs may have been
								 * discarded: copy the page again */
} ZWalkResult;

typedef struct ZWalk
{
	Relation	rel;
	BlockNumber block;
	OffsetNumber off;
	const ZSlotView *slots;
	/* the version in hand */
	bool		exists;			/* false: before its insertion */
	bool		has_bytes;		/* false: a stub, only state and slot are
								 * known */
	ZHeader		header;			/* of a stub: state and slot */
	int			len;
	/* where the walk stands in each slot's chain that it has entered */
	bool		entered[ZPAGE_MAX_SLOTS + 1];
	UndoPtr		next[ZPAGE_MAX_SLOTS + 1];
	UndoPtr		saved;			/* the page's list of saved rows */
	ZChainSource source;
	UndoPtr		gone;			/* for zchain_begin_copied */
	ZChain		chain;			/* the one that is being read */
	ZTrailReader reader[ZWALK_READERS]; /* of the chains entered last; which
										 * of them continues where a chain was
										 * left is known by its 'next' */
	int			last_reader;	/* the one begun last */
	bool		at_author;		/* rec, read at rec_ptr, wrote the version in
								 * hand */
	ZuRecord	rec;
	UndoPtr		rec_ptr;
	char		row[BLCKSZ];
	char		buf[ZUR_MAX_LENGTH];
	char		raw[ZUR_MAX_LENGTH];
} ZWalk;

/*
 * zwalk_init: prepares *walk before the first attempt on a copied page.
 * zwalk_begin: begins a walk at the newest version of row. source says whether
 * the page stays locked during the walk, or is a copy. Returns false if the
 * line pointer holds no row or stub. Raises ERRCODE_DATA_CORRUPTED for a
 * damaged page.
 */
static inline void
zwalk_init(ZWalk *walk)
{
	walk->gone = InvalidUndoPtr;
}

extern bool zwalk_begin(ZWalk *walk, const ZRow *row, ZChainSource source);

/*
 * zwalk_next: goes to the next older version, at first to the newest one, and
 * finds the record that wrote it, or the reason why none is needed. Raises
 * ERRCODE_DATA_CORRUPTED.
 */
extern ZWalkResult zwalk_next(ZWalk *walk, ZAccept *accept);

/*
 * The two halves of zwalk_next. zwalk_find_author: finds the author of the
 * version in hand. zwalk_step_back: replaces the version in hand by the one
 * before walk->rec.
 */
extern ZWalkResult zwalk_find_author(ZWalk *walk, ZAccept *accept);
extern void zwalk_step_back(ZWalk *walk);

/*
 * zwalk_status: returns the status of the transaction that wrote the version
 * in hand.
 */
static inline ZXidStatus
zwalk_status(const ZWalk *walk)
{
	Assert(walk->at_author);
	return zxid_status_at(walk->rec.xid, walk->slots->oldest);
}

/*
 * A walk over the versions of a row whose page is not locked meanwhile, and
 * what was copied of the page.
 */
typedef struct ZCopyWalk
{
	ZWalk		walk;
	ZSlotView	slots;
	PGAlignedBlock page;
} ZCopyWalk;

/*
 * zwalk_load: begins a walk on a copy of the row or stub at off of the page in
 * buf, or on an older image of the page if the MVCC snapshot can use one
 * (never with InvalidSnapshot). On entry buf is locked and the item has been
 * found sound; on return buf is not locked. Returns false if there is no row
 * or stub.
 */
extern bool zwalk_load(ZCopyWalk *copy, Relation rel, Buffer buf, OffsetNumber off,
					   Snapshot snapshot);

/*
 * zversion_from_walk: copies the version in hand to *version; sets found to
 * false if live is false or there are no bytes. The author is that of
 * walk->rec, or is to be looked for from where the walk stands.
 */
extern void zversion_from_walk(ZVersion *version, const ZWalk *walk, bool live);

/*
 * zwalk_undo_record: turns the row bytes at row (*len, capacity BLCKSZ) into
 * the version before a record of this type, whose raw payload is given (NULL
 * for an insertion). Sets *exists to false for an insertion. Returns false if
 * the record does not fit the row.
 */
extern bool zwalk_undo_record(char *row, int *len, bool has_bytes, bool *exists,
							  ZuRecordType type, const char *raw, Size rawlen);

/*
 * zwalk_jump_to_image: replaces a copy of a page and the view of its slots by
 * the oldest image of the page since which all changes are invisible to the
 * MVCC snapshot. Returns whether there was one. Raises ERRCODE_DATA_CORRUPTED
 * for a damaged image.
 */
extern bool zwalk_jump_to_image(char *page, ZSlotView *slots, Relation rel, BlockNumber block,
								Snapshot snapshot);

#endif
