/*
 * mvcc/zwalk.h - walking one row from its newest version to older ones.
 *
 * Private to mvcc/. A walk works on private copies of the row and of the
 * page's slots; it takes no table page lock.
 */
#ifndef ZUNDO_ZWALK_H
#define ZUNDO_ZWALK_H

#include "mvcc/zchain.h"
#include "mvcc/zvis.h"

/* Up to which record somebody accepts what a slot's chain did. */
typedef enum ZAcceptKind
{
	ZACCEPT_MVCC,				/* visible to the snapshot, own changes by cid */
	ZACCEPT_SETTLED,			/* own or committed */
	ZACCEPT_OWN_BEFORE,			/* committed, or own with a cid below 'limit' */
	ZACCEPT_NOT_ABORTED,		/* own, committed or in progress */
	ZACCEPT_NONE				/* nothing: the writer's record is wanted itself */
} ZAcceptKind;

typedef struct ZAccept
{
	ZAcceptKind kind;
	Snapshot	snapshot;		/* ZACCEPT_MVCC */
	CommandId	limit;			/* ZACCEPT_OWN_BEFORE; 0 = no own record is accepted */
	ZXid		oldest;
	ZXid		last_xid;		/* the last answer, for other transactions */
	bool		last_answer;
} ZAccept;

extern void zaccept_init(ZAccept *accept, ZAcceptKind kind, Snapshot snapshot, ZXid oldest);

/* zaccept_record: is a change by xid (>= oldest) under cid accepted? */
extern bool zaccept_record(ZAccept *accept, ZXid xid, CommandId cid);

/*
 * zaccept_version: is the change of a row by rec accepted? As zaccept_record, but for changes that a rewrite has put there
 * again. Says nothing about other rows' records below (V3).
 */
extern bool zaccept_version(ZAccept *accept, const ZuRecord *rec);

/*
 * zaccept_head: can a whole chain be accepted from its head's xid alone? False
 * also when the head's record must be read to tell (own changes under MVCC).
 */
extern bool zaccept_head(ZAccept *accept, ZXid xid);

/*
 * zrecord_author: whose change rec is: of the transaction that it is "as of", if a rewrite has put it there again; for SSI,
 * which knows nothing of rewrites.
 */
static inline ZXid
zrecord_author(const ZuRecord *rec)
{
	return likely(!TransactionIdIsValid(rec->as_of)) ? rec->xid : zxid_widen(rec->as_of);
}

/*
 * zvis_conflict_out: tell SSI that a reader under snapshot did not see the change by
 * unseen (0 = none). Error ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
extern void zvis_conflict_out(Relation rel, Snapshot snapshot, ZXid unseen);

typedef enum ZWalkResult
{
	ZWALK_ALL_VISIBLE,			/* nobody's undo concerns the version in hand */
	ZWALK_ACCEPTED,				/* an accepted record was met before the writer of the version in hand */
	ZWALK_WRITER,				/* walk->rec wrote the version in hand */
	ZWALK_RETRY					/* the page has changed meanwhile: copy it again */
} ZWalkResult;

typedef struct ZWalk
{
	Relation	rel;
	BlockNumber block;
	OffsetNumber off;
	const ZSlotView *slots;
	/* the version in hand */
	bool		exists;			/* false: before its insertion */
	bool		has_bytes;		/* false: a stub, only state and slot are known */
	ZHeader		header;			/* of a stub: state and slot */
	int			len;
	/* where the walk stands in each slot's chain that it has entered */
	bool		entered[ZPAGE_MAX_SLOTS + 1];
	UndoPtr		next[ZPAGE_MAX_SLOTS + 1];
	bool		page_locked;	/* the page cannot change during the walk */
	ZChain		chain;			/* the one that is being read */
	/* the writer found last */
	ZuRecord	rec;
	UndoPtr		rec_ptr;
	char		row[BLCKSZ];
	char		buf[ZUR_MAX_LENGTH];
	char		raw[ZUR_MAX_LENGTH];
} ZWalk;

/*
 * zwalk_start: begin at the row or stub at off of page (a copy, or locked);
 * slots were copied with it. False if the line pointer holds no row or stub.
 */
extern bool zwalk_start(ZWalk *walk, Page page, const ZSlotView *slots,
						Relation rel, BlockNumber block, OffsetNumber off);

/*
 * zwalk_find_writer: the record that wrote the version in hand, or a reason why none is needed.
 * Error ERRCODE_DATA_CORRUPTED.
 */
extern ZWalkResult zwalk_find_writer(ZWalk *walk, ZAccept *accept);

/* zwalk_step_back: the version in hand becomes the one before walk->rec. Error ERRCODE_DATA_CORRUPTED. */
extern void zwalk_step_back(ZWalk *walk);

/*
 * zversion_from_walk: the version in hand as an answer; not found unless live is true. known: walk->rec wrote it, else
 * its writer is to be looked for from where the walk stands.
 */
extern void zversion_from_walk(ZVersion *version, const ZWalk *walk, bool live, bool known);

/*
 * zrow_step_back: turn the row bytes at row (*len, capacity BLCKSZ) into the version before rec; raw is rec's raw payload.
 * *exists becomes false for an insertion. False: the record does not fit the row.
 */
extern bool zrow_step_back(char *row, int *len, bool *has_bytes, bool *exists, const ZuRecord *rec,
						   const char *raw, Size rawlen);

/*
 * zimage_jump: replace a page copy by an older image of it as long as everything done since is
 * invisible to the MVCC snapshot. True if it was replaced.
 */
extern bool zimage_jump(char *page, const ZSlotView *slots, Relation rel,
						BlockNumber block, Snapshot snapshot);

/* zwalk_workspace: the backend's one ZWalk (walks don't nest). */
extern ZWalk *zwalk_workspace(void);

#endif
