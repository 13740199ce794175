/*
 * dml/zdml_internal.h - what the files of dml/ share. Not included from outside
 * dml/.
 */
#ifndef ZUNDO_ZDML_INTERNAL_H
#define ZUNDO_ZDML_INTERNAL_H

#include "access/hio.h"
#include "access/tableam.h"
#include "change/zchange.h"
#include "change/zwal.h"
#include "common/zcount.h"
#include "dml/zdml.h"
#include "mvcc/zany.h"
#include "mvcc/zknown.h"
#include "mvcc/zlockers.h"
#include "mvcc/zown.h"
#include "mvcc/zssi.h"
#include "mvcc/zvis.h"
#include "mvcc/zvismap.h"
#include "undo/undo.h"
#include "undo/undo_overflow.h"

/* The transaction that makes a change, and the table that it changes. */
typedef struct ZWriter
{
	Relation	rel;
	ZXid		xid;			/* current (sub)transaction; Invalid until
								 * zwriter_start */
	ZXid		topxid;
	CommandId	cid;
	bool		logged;			/* the table itself is WAL-logged */
	bool		temp;			/* a temporary table: its undo is private */
	bool		decoded;		/* the changes are logged for logical decoding
								 * (DECODE-2) */
	BlockNumber overflow;		/* overflow page reserved last, which may have
								 * been taken since; Invalid: none */
} ZWriter;

/*
 * zwriter_begin: attaches undo, assigns the transaction ids and reserves undo.
 * A caller that may find nothing to write (DML-1) takes two steps:
 * zwriter_open only attaches undo; zwriter_start, unless zwriter_started says
 * that it has been called, does the rest. No buffer lock may be held.
 *
 * zwriter_begin_change: does the same for a change of rows, and decides
 * whether that is logged for logical decoding, unless the caller wants it not
 * to be.
 *
 * The first step raises an error for a temporary table of another session, the
 * second one for a transaction that is before `oldest`, and if there is no
 * space for undo.
 */
extern void zwriter_begin(ZWriter *writer, Relation rel, CommandId cid);
extern void zwriter_begin_change(ZWriter *writer, Relation rel, CommandId cid, bool no_logical);
extern void zwriter_open(ZWriter *writer, Relation rel, CommandId cid);
extern void zwriter_start(ZWriter *writer);

/*
 * zwriter_is_decoded: returns whether changes of rel are logged for logical
 * decoding, unless their caller excludes it. The transaction has an id
 * (DECODE-2).
 */
extern bool zwriter_is_decoded(Relation rel);

/* zwriter_started: returns whether zwriter_start has been called. */
static inline bool
zwriter_started(const ZWriter *writer)
{
	return writer->xid != InvalidZXid;
}

/*
 * zwriter_reserve: reserves undo for the writer's next ZuOp; zwriter_start has
 * done so for the first. No buffer lock may be held.
 */
extern void zwriter_reserve(const ZWriter *writer);

/*
 * zwriter_reserve_overflow: reserves an overflow page for the writer's next
 * pick (DML-1). No buffer lock may be held. Errors: see zu_overflow_reserve.
 */
static inline void
zwriter_reserve_overflow(ZWriter *writer)
{
	writer->overflow = zu_overflow_reserve();
}

/*
 * zreclaim_note: notes that a deletion, move or shortening of the row at off,
 * on the locked page in buf, gives gain bytes back at commit, net of what the
 * change took there. Raises no errors.
 *
 * zreclaim_note_taken: notes that the page, which is locked and has this space
 * for rows, is given one by our transaction. Raises no errors.
 *
 * zreclaim_note_later: notes that the block, which the present statement has
 * undone, has this space for later ones.
 *
 * zreclaim_cover: gives the free space map a page for this block, by which the
 * table has just been extended, if the map has none (SPACE-2). Raises an error
 * if the disk is full.
 */
extern void zreclaim_note(Relation rel, Buffer buf, OffsetNumber off, int gain);
extern void zreclaim_note_taken(Relation rel, Buffer buf, int space);
extern void zreclaim_note_later(Relation rel, BlockNumber block, int space);
extern void zreclaim_cover(Relation rel, BlockNumber block);

/*
 * zreclaim_undone_now: returns whether the client's present statement has
 * rolled back a subtransaction that had inserted into the locked page in buf;
 * maybe true for others if it has rolled back very many insertions.
 */
extern bool zreclaim_undone_now(Relation rel, Buffer buf);

/*
 * zreclaim_space: returns the bytes that a locked page will have for rows and
 * line pointers once all deletions on it are committed.
 */
extern int	zreclaim_space(Page page);

/*
 * zdml_scratch: returns an empty memory context for what one row change
 * allocates. There is one for each depth of nesting.
 *
 * zdml_nest, zdml_unnest: bracket what a row change calls that may change rows
 * itself. An error must pass zdml_unnest, too.
 *
 * zdml_leave: switches back to the caller's context, and resets the scratch
 * context if it has become large, as for a wide row.
 */
extern MemoryContext zdml_scratch(void);
extern void zdml_nest(void);
extern void zdml_unnest(void);
extern void zdml_leave(MemoryContext caller);

/* The transaction slot of a page that a change will use. */
typedef struct ZSlotPick
{
	int			slotno;
	int			grow_to;		/* 0 = no growth */
	UndoPtr		prev;			/* head that the record is pushed on; Invalid
								 * = the chain is empty */
	ZXid		committed;		/* owner of prev if that is another, committed
								 * transaction; else 0 */
	BlockNumber overflow;		/* overflow page that holds the slot; 0 = the
								 * slot is inline */
	bool		common;			/* the slot is the page's common lock slot:
								 * the record must be a LOCKS record */
	ZXid		hold;			/* common lock slots: xid in the slot, if prev
								 * is valid */
} ZSlotPick;

/*
 * zslot_pick: chooses the slot for writer on the page in buf, which is
 * exclusively locked: a slot of our transaction, a free one, one whose owner
 * has ended, or a new one. May roll aborted changes back, make records of our
 * own inline locks (zlock_convert), prune the page, give it an overflow page or
 * take that away, all WAL-logged. avoid is the slot that
 * the row to be changed names (0 = none); another free slot is preferred, so
 * that rows of the page that we have not changed do not seem to be ours.
 *
 * Returns false if the page can have no further slot now. If must_have was set,
 * the caller then unlocks the page, calls zwriter_reserve_overflow, and begins
 * again with examining the page. Raises ERRCODE_PROGRAM_LIMIT_EXCEEDED, with
 * must_have only, if transactions in progress use all slots that a page can
 * have for changes. A pick is valid until the page is unlocked or another pick
 * is made for it.
 */
extern bool zslot_pick(const ZWriter *writer, Buffer buf, int avoid, bool must_have,
					   ZSlotPick *pick);

/*
 * zslot_pick_for_lock: does the same as zslot_pick with must_have, for a LOCK
 * record. If many slots of the page are in use, it picks the page's common lock
 * slot (pick->common), so that lockers never take the last slots from writers.
 */
extern bool zslot_pick_for_lock(const ZWriter *writer, Buffer buf, int avoid, ZSlotPick *pick);

/*
 * zslot_undo_own: undoes what aborted subtransactions of ours may have left on
 * the page in buf, which is exclusively locked.
 */
extern void zslot_undo_own(const ZWriter *writer, Buffer buf);

/*
 * zslot_pick_inline: chooses a slot in which writer can keep a lock on a row of
 * the page in buf without undo: its own slot for locks, a free slot, or a new
 * one. On entry the page is exclusively locked, and lock->offset and lock->mode
 * are set; the other fields are set here. If changes of our own aborted
 * subtransactions may be on the page, first rolls its aborted changes back,
 * which may remove the row. Returns false if the transaction has changes on the
 * page, if the page has an overflow page, or if no slot can take the lock.
 */
extern bool zslot_pick_inline(const ZWriter *writer, Buffer buf, ZWalInlineLock *lock);

/*
 * zlock_convert: replaces the inline locks in our own slot slotno by LOCK
 * records; WAL-logged. On entry the page is exclusively locked.
 */
extern void zlock_convert(const ZWriter *writer, Buffer buf, int slotno);

/*
 * zlock_put_inline: applies the inline lock or lock tag to the page
 * (zapply_inline_lock), and logs it if the table is logged. On entry the page
 * is exclusively locked.
 */
extern void zlock_put_inline(const ZWriter *writer, Buffer buf, const ZWalInlineLock *lock);

/* ---- rows locked by one record (dml/zlocktag.c) ---- */

/*
 * zlocktag_lock: locks the row at off by giving it a lock tag, if this
 * (sub)transaction has an open LOCK record at the head of a chain of the page
 * that can hold the row in this mode (TAG-2). Returns whether it did. Changes
 * and logs the page.
 *
 * zlocktag_opens: returns whether the LOCK record that is to be written for the
 * row at off, with this pick, may be open (TAG-2). On entry the page is
 * exclusively locked.
 */
extern bool zlocktag_lock(const ZWriter *writer, Buffer buf, OffsetNumber off,
						  LockTupleMode mode);
extern bool zlocktag_opens(const ZWriter *writer, Buffer buf, OffsetNumber off,
						   const ZSlotPick *pick);

/* ---- slots of a change; the change (dml/zslotpick.c, dml/zwriter.c) ---- */

/*
 * zslot_pick_common: chooses the slot for a LOCKS record on an initialised
 * page: the page's common lock slot, or a free or new slot other than the one
 * that 'pick', of the same change, uses. The slot is always inline. Changes
 * nothing. Returns false if the page has no such slot to give.
 */
extern bool zslot_pick_common(Page page, const ZSlotPick *pick, ZSlotPick *common);

/*
 * zslot_use: enters the page in buf as page i of the change, with the slot that
 * was picked, and locks the overflow page if that holds the slot. Must be
 * called for page 0 before page 1. Raises an error if the overflow page is
 * damaged.
 */
extern void zslot_use(const ZWriter *writer, ZChange *change, int i, Buffer buf,
					  const ZSlotPick *pick);

/*
 * zslot_note: remembers record i of the change as one of our own transaction
 * (zown_note). Called when the change has been made; pick is the slot that the
 * record went to.
 */
extern void zslot_note(const ZChange *change, int i, const ZSlotPick *pick);

/*
 * zwriter_change: begins a change by writer with nrecords undo records
 * (zchange_begin).
 */
static inline void
zwriter_change(const ZWriter *writer, ZChange *change, uint8 opcode, int nrecords)
{
	Assert(zwriter_started(writer));
	zcount_table(writer->rel);
	zchange_begin(change, opcode, nrecords);
	change->logged = writer->logged;
	change->topxid = writer->topxid;
}

/* zwriter_record: fills in the fields that all kinds of undo record have. */
extern void zwriter_record(const ZWriter *writer, ZuRecord *rec, ZuRecordType type,
						   BlockNumber block, OffsetNumber off, UndoPtr prev);

/* ---- pruning that is part of another change (dml/zprune.c) ---- */

/* What pruning a page would do. */
typedef struct ZPrunePlan
{
	TransactionId conflict;		/* conflict horizon (SAVED-6) */
	int			n;				/* 0 = it would only close gaps between rows */
	ZPruneItem	items[ZHEAP_MAX_OFFSET];
} ZPrunePlan;

/*
 * zprune_plan: fills *plan with what a writer can do with the page in buf now.
 * Returns false if that is nothing. Changes nothing; the plan is valid until
 * the page is changed or unlocked. Raises ERRCODE_DATA_CORRUPTED, also for
 * every page that zpage_prune would refuse.
 */
extern bool zprune_plan(Relation rel, Buffer buf, ZPrunePlan *plan);

/*
 * zprune_by_plan: prunes the page in buf by its plan, which it may change. Rows
 * that an old snapshot may need are saved first if the space then suffices for
 * the writer; if not, they stay. On entry the page is exclusively locked, and
 * undo is reserved. Returns whether the page has more space, or fewer rows,
 * than before.
 *
 * zprune_for_hole: does so for a writer that needs a hole of this many bytes.
 *
 * zprune_has_undone_chunk: returns whether compacting the page would take an
 * undone chunk away that a variable of the present statement may point to
 * (TOAST-4). Then the two do nothing.
 */
extern bool zprune_has_undone_chunk(Relation rel, Buffer buf);
extern bool zprune_by_plan(const ZWriter *writer, Buffer buf, ZPrunePlan *plan, bool suffices);
extern bool zprune_for_hole(const ZWriter *writer, Buffer buf, Size hole);

/* ---- places for new rows; page images (dml/zspace.c, dml/zimage.c) ---- */

/* The place for a new row. */
typedef struct ZNewPlace
{
	Buffer		buf;			/* pinned and exclusively locked */
	bool		init;			/* the page must be initialised */
	OffsetNumber off;
	bool		tried;			/* a slot was picked, which may have changed
								 * the page's slots */
	ZSlotPick	pick;
	ZSlotPick	common;			/* if wanted: common lock slot that takes the
								 * locks of others */
	const ZPrunePlan *plan;		/* the place is there when the change has
								 * pruned the page by this plan; NULL = it is
								 * there now */
} ZNewPlace;

/*
 * zspace_insert_page: finds a page with space for a new row of len bytes and a
 * slot for writer, and fills place. Extends the table if need be. Called
 * without a buffer lock. Raises ERRCODE_DATA_CORRUPTED.
 */
extern void zspace_insert_page(const ZWriter *writer, Size len, ZcOptions options,
							   BulkInsertState bistate, ZNewPlace *place);

/*
 * zspace_to_keep: returns the bytes that a new row of len bytes must leave free
 * on its page, by the table's fillfactor.
 */
extern Size zspace_to_keep(Relation rel, Size len);

/*
 * zspace_second_page: does what zspace_insert_page does, for a caller that
 * holds 'held' exclusively locked. Never waits for another page's lock. The
 * page found may be 'held' itself, which is then not pinned once more. With
 * want_common, place->common is set as well. Returns whether a slot of the
 * held page was picked: then an earlier pick for it is void.
 */
extern bool zspace_second_page(const ZWriter *writer, Buffer held, Size len, bool want_common,
							   ZNewPlace *place);

/*
 * zspace_by_pruning: finds a place on the locked page in buf that has no space
 * for a row of len bytes, but would have it after pruning, for a change that
 * prunes the page itself. Fills place and *plan then, and returns true. pick is
 * the slot of that change. Changes nothing. Raises ERRCODE_DATA_CORRUPTED.
 */
extern bool zspace_by_pruning(const ZWriter *writer, Buffer buf, const ZSlotPick *pick, Size len,
							  ZPrunePlan *plan, ZNewPlace *place);

/*
 * zimage_maybe_save: saves the page's image in the undo log if the chains on
 * the page have become long (mvcc/README.md). On entry the page is exclusively
 * locked and pick is the slot of the change to come.
 */
extern void zimage_maybe_save(const ZWriter *writer, Buffer buf, ZSlotPick *pick);

/*
 * zimage_save_rows: saves the rows that the plan makes stubs, so that the page
 * can be pruned by it before it is unlocked (SAVED-3). Returns false, and saves
 * none, if the undo that the writer has reserved does not suffice. Raises
 * errors of reading undo pages.
 */
extern bool zimage_save_rows(const ZWriter *writer, Buffer buf, const ZPrunePlan *plan);

/* ---- rows without an undo record of their own (dml/zrange.c) ---- */

/* A row for zrange_insert. */
typedef struct ZRangeRow
{
	const char *row;			/* of its header only the shape counts */
	uint32		len;
	Size		keep_free;		/* bytes that must stay free on the page */
	bool		no_logical;		/* as for zwriter_begin_change */
	bool		frozen;			/* visible to all (FROZEN-1) */
} ZRangeRow;

/*
 * zrange_insert: inserts a new row of rel where the record of a row that the
 * same command has inserted before covers it (RANGE-2), or, if it is frozen, on
 * the page of such a row; sets *tid. Returns false, with nothing changed, if
 * there is no such place. No buffer lock may be held. Raises errors of reading
 * the page, and ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
extern bool zrange_insert(Relation rel, const ZRangeRow *row, CommandId cid,
						  BulkInsertState bistate, ItemPointer tid);

/*
 * zrange_avoid: returns the slot that a new row at off of the locked page
 * should not take, so that its record can be open and have a long range; 0 =
 * any will do.
 */
extern int	zrange_avoid(const ZWriter *writer, Page page, OffsetNumber off);

/*
 * zrange_open: makes the change's record, an INSERT of one row at place, an
 * open one if it may cover further rows of this command. Called before
 * zchange_do, with the page locked.
 *
 * zrange_note: remembers the record for zrange_insert. Called after zchange_do.
 */
extern void zrange_open(const ZWriter *writer, ZChange *change, const ZNewPlace *place);
extern void zrange_note(const ZWriter *writer, const ZChange *change, const ZNewPlace *place);

/*
 * zrange_covers_delete: returns whether the record at the head of the picked
 * slot's chain covers the deletion of the row at off (RANGE-2). old is the
 * row's header; elsewhere: the row goes to another partition.
 *
 * zrange_open_delete: makes the record of the change, a DELETE of such a row,
 * an open one if it may cover further rows of this command. It is filled but
 * for its range. The page, in buf, is locked.
 *
 * zrange_note_delete: remembers the record for further rows. Called after
 * zchange_do.
 */
extern bool zrange_covers_delete(const ZWriter *writer, const ZSlotPick *pick, OffsetNumber off,
								 ZHeader old, bool elsewhere);
extern void zrange_open_delete(const ZWriter *writer, ZChange *change, Buffer buf,
							   const ZSlotPick *pick, ZHeader old);
extern void zrange_note_delete(const ZWriter *writer, const ZChange *change, ZHeader old);

/* ---- overflow pages (dml/zoverflow_attach.c) ---- */

/*
 * zoverflow_attach: gives the table page in buf, exclusively locked and without
 * an overflow page, the overflow page that the writer has reserved; WAL-logged.
 * Returns false if it has reserved none, or that page has been taken since.
 */
extern bool zoverflow_attach(const ZWriter *writer, Buffer buf);

/* ---- examining and locking a row (dml/zrow.c, dml/zlock.c) ---- */

typedef struct ZRowState
{
	ZAuthor		author;			/* of the newest version */
	ZHeader		header;			/* as on the page; of a stub, made up from the
								 * line pointer */
	bool		stub;
	ZXid		wait_for;		/* TM_BeingModified: transaction to wait for */
	bool		clear_locks;	/* the row has a lock hint, but no transaction
								 * holds a lock */
	bool		others_locks;	/* other transactions hold locks */
	bool		many_locks;		/* 'others' has no space for all of them */
	bool		own_lock;		/* our transaction holds a lock; known for
								 * TM_Ok and TM_BeingModified */
	bool		own_hold;		/* our transaction has a lock or wrote the
								 * newest version */
	bool		own_share;		/* our transaction holds a FOR SHARE lock or a
								 * stronger one */
	bool		own_exclusive;	/* our transaction holds a FOR UPDATE lock, or
								 * has changed the row's key */
	bool		rolled_back;	/* examining has rolled changes back, so the
								 * row must be looked at again */
	bool		key_share_beside;	/* the newest version is another
									 * transaction's and not seen by the
									 * caller, but a KEY SHARE lock may be
									 * taken */
	int			nothers;		/* number of locks that others hold, one for
								 * each (sub)transaction and strength */
	ZLockEntry *others;			/* these; until another row is examined */
} ZRowState;

/* What a command is about to do with a row. */
typedef struct ZRowWish
{
	Relation	rel;
	Buffer		buf;			/* the row's page, exclusively locked */
	ItemPointer tid;
	CommandId	cid;
	Snapshot	snapshot;		/* that the command found the row with;
								 * InvalidSnapshot: the newest version is
								 * meant */
	LockTupleMode mode;			/* strength in which the row will be locked or
								 * changed */
	bool		sound;			/* zpage_item_ok holds */
} ZRowWish;

/*
 * zrow_examine: returns whether the row may be changed or locked as wished. On
 * entry and on return the page is exclusively locked. Rolls aborted changes of
 * the page back if it meets them. Fills *state, and *tmfd unless it returns
 * TM_Ok. Raises ERRCODE_DATA_CORRUPTED.
 */
extern TM_Result zrow_examine(const ZRowWish *wish, ZRowState *state, TM_FailureData *tmfd);

/*
 * zrow_ask: raises an error, without the page lock, if the statement may change
 * only rows that its transaction holds, and this is none of them (GUARD-3).
 * zrow_examine has returned TM_Ok, and the page is still locked. Need be called
 * only if zctid_asking().
 */
extern void zrow_ask(const ZRowWish *wish, const ZRowState *state);

/*
 * zrow_is_held: returns whether our transaction holds the row at off at least
 * in this mode, by a change or by a lock. On entry the page is locked, as it
 * has been since zrow_examine has filled *state.
 */
extern bool zrow_is_held(Relation rel, Buffer buf, OffsetNumber off, const ZRowState *state,
						 LockTupleMode mode);

/*
 * zrow_wait: waits until transaction xid has ended, so that the wish can be
 * tried again; wish->buf is not used. No buffer lock may be held. First queues
 * for the row's heavyweight lock (*have_tuple_lock), unless our transaction
 * holds a lock on the row (own_lock), for then the transactions at the head of
 * that queue may be waiting for us. Returns false if the policy is
 * LockWaitSkip and a lock was not available at once; raises
 * ERRCODE_LOCK_NOT_AVAILABLE if the policy is LockWaitError.
 */
extern bool zrow_wait(const ZRowWish *wish, ZXid xid, LockWaitPolicy policy, XLTW_Oper oper,
					  bool own_lock, bool *have_tuple_lock);

/* zrow_end_wait: releases the heavyweight lock that zrow_wait took, if any. */
extern void zrow_end_wait(Relation rel, ItemPointer tid, LockTupleMode mode, bool have_tuple_lock);

/*
 * zlock_row: locks the row at off for writer: by a lock tag, an
 * inline lock, or a LOCK or LOCKS record. On entry the page is exclusively
 * locked, zrow_examine has allowed the mode, and our transaction does not hold
 * the row in it (zrow_is_held). Returns false if nothing was done because the
 * page needs an overflow page (see zslot_pick) or because the row is no longer
 * there; the caller begins again.
 */
extern bool zlock_row(const ZWriter *writer, Buffer buf, OffsetNumber off,
					  LockTupleMode mode);

/* ---- locks that our transaction is known to hold (dml/zheld.c) ---- */

/*
 * zheld_mode: returns the mode of the strongest lock that our transaction
 * holds on the row at off of block, by its own chain or by inline locks, or -1
 * if none is remembered (LOCK-11). header is the row's. zheld_note: remembers
 * that our transaction holds a lock of this mode, and none that is stronger,
 * unless a stronger one is remembered already. by_tag: the row is locked by
 * its lock tag (TAG-1).
 */
extern int	zheld_mode(Relation rel, BlockNumber block, OffsetNumber off, ZHeader header);
extern void zheld_note(Relation rel, BlockNumber block, OffsetNumber off, ZHeader header,
					   LockTupleMode mode, bool by_tag);

/*
 * zheld_note_record: remembers the record rec, at ptr in the chain of slotno,
 * an inline slot of block.
 *
 * zheld_record: returns the record that is remembered for block, or NULL. It
 * is our (sub)transaction's, and the head of its chain, only if the caller
 * finds so.
 *
 * zheld_open_mode: returns the mode of the open record in the chain of slotno
 * by which our transaction holds all rows of block that have this lock tag, at
 * least in that mode (TAG-1); -1 if none is remembered.
 */
extern void zheld_note_record(Relation rel, BlockNumber block, int slotno, UndoPtr ptr,
							  const ZuRecord *rec);
extern const ZHeldRecord *zheld_record(Relation rel, BlockNumber block);
extern int	zheld_open_mode(Relation rel, BlockNumber block, int slotno);

/* ---- locks that a page keeps in common (dml/zlocklist.c) ---- */

/* Some locks on rows of one page; the payload of a LOCKS record. */
typedef struct ZLockList
{
	int			n;
	ZLockEntry	entry[ZLOCK_MAX_ENTRIES];
} ZLockList;

/*
 * What changes are made of, one after the other: nothing changes a row while
 * another change uses it. On the stack, as much of it would keep the frames of
 * different changes apart, so that they would not share the processor's cache.
 */
typedef struct ZDmlSpace
{
	char		bytes[2 * BLCKSZ];	/* the row of an insertion; the payload of
									 * an update's record */
	char		delta[2 * BLCKSZ];
	ZLockEntry	others[ZLOCK_MAX_ENTRIES];	/* ZRowState.others */
	ZLockList	list;			/* of locks that move along */
} ZDmlSpace;

extern ZDmlSpace zdml_space;

/*
 * zlocklist_record: makes rec the LOCKS record that adds the locks of list to
 * what pick's slot holds. May add to list those that the slot holds, if their
 * records can be replaced. list becomes the payload of rec. On entry the page
 * in buf is locked exclusively.
 */
extern void zlocklist_record(const ZWriter *writer, Buffer buf, const ZSlotPick *pick,
							 ZLockList *list, ZuRecord *rec);

/* ---- which columns matter to indexes (dml/zcolumns.c) ---- */

/* An index whose entries depend on expressions or on a predicate. */
typedef struct ZComputedIndex
{
	Oid			index;
	Bitmapset  *attrs;			/* columns that its expressions and its
								 * predicate read; if it has a predicate, all
								 * its columns */
	Bitmapset  *plain;			/* its columns, if it has no predicate: those
								 * that are in ZIndexColumns.plain */
	double		cost;			/* of evaluating it for one row, in operators */
	int			vain;			/* evaluations in a row that found a
								 * difference */
	int			skip;			/* updates for which it is not evaluated */
} ZComputedIndex;

/* An index, and columns of its table. */
typedef struct ZIndexAttrs
{
	Oid			index;
	Bitmapset  *attrs;
	Bitmapset  *included;		/* of an index in ZIndexColumns.keyed_index */
} ZIndexAttrs;

/*
 * What the indexes, foreign keys and triggers of a table depend on. The members
 * of each set of columns are numbers above FirstLowInvalidHeapAttributeNumber.
 */
typedef struct ZIndexColumns
{
	Oid			reloid;			/* 0 = empty */
	bool		complete;		/* all fields have been read */
	bool		outdated;		/* the relation has changed since the fields
								 * were read, or meanwhile */
	Bitmapset  *key;			/* of unique indexes that foreign keys may use */
	Bitmapset  *identity;		/* of the replica identity's index */
	Bitmapset  *blocking;		/* of all indexes but summarizing ones; if
								 * none of these columns changes, no index
								 * needs a new entry */
	Bitmapset  *plain;			/* those of them that an in-place update must
								 * not change */
	int			nplain;
	ZIndexAttrs *plain_index;	/* indexes with such columns but those of
								 * 'computed', and these columns */
	Bitmapset  *keyed;			/* key columns of indexes to which an in-place
								 * update adds entries (ZBTREE-3), and columns
								 * of their predicates */
	Bitmapset  *entered;		/* key and included columns of these indexes */
	int			nkeyed;
	ZIndexAttrs *keyed_index;	/* those indexes, key columns and columns of
								 * the predicate */
	int			ncomputed;
	ZComputedIndex *computed;	/* indexes to be evaluated when a column of
								 * 'blocking' that is not in 'plain' changes */
	uint64		reading;		/* different for each time that the fields are
								 * read */
	Bitmapset  *summarized;		/* of block-summarizing indexes only (16+) */
	Bitmapset  *foreign;		/* of the table's foreign keys; empty if it
								 * has no AFTER UPDATE row triggers */
	bool		referenced;		/* foreign keys refer to the table */
	bool		rechecked;		/* the table has deferrable unique or
								 * exclusion constraints, whose triggers look
								 * at rows that move */
	bool		after_update;	/* the table has AFTER UPDATE row triggers
								 * other than those of foreign keys and of
								 * such constraints */
	bool		key_blocks;		/* all columns of 'key' are in 'blocking':
								 * they are unless the indexes have changed
								 * between the reading of the two */
	int			blocking_last;	/* number of the last column of 'blocking' */
	Size		blocking_end;	/* where that column ends in a row without
								 * NULLs; 0 if rows differ in that, or if
								 * 'blocking' has system columns, or lacks one
								 * of 'keyed' or 'entered' */
} ZIndexColumns;

/*
 * zindex_columns: returns the column sets of rel from a cache, which an
 * invalidation of the relcache entry marks outdated. May read catalogs, so no
 * buffer lock may be held. The result is valid until the next call for any
 * relation.
 */
extern const ZIndexColumns *zindex_columns(Relation rel);

/*
 * zcolumns_event: returns whether an AFTER UPDATE row trigger's event may be
 * queued for an update that may change a referenced key (key_change), changes
 * columns of foreign keys (foreign_change), or changes a row that our
 * transaction wrote (own). The server then asks for the old row, and must be
 * able to find it again later.
 */
extern bool zcolumns_event(const ZIndexColumns *columns, bool key_change, bool foreign_change,
						   bool own);

/*
 * zcolumns_some_null: returns whether some of attrs are null in the row and
 * others are not. The server then queues an event for a MATCH FULL foreign key
 * that has not been validated, whatever has changed.
 */
extern bool zcolumns_some_null(Relation rel, const Bitmapset *attrs, const char *row, Size len);

/* An old row, at tid, and the one that an update would put in its place. */
typedef struct ZUpdatedRow
{
	Relation	rel;
	ItemPointer tid;
	const char *old;
	Size		oldlen;
	const char *new;
	Size		newlen;
} ZUpdatedRow;

/*
 * zcolumns_differ, zcolumns_some_differ: return whether any attribute of attrs
 * differs between the two rows. Compare bytes. For the latter attrs is not
 * empty.
 */
extern bool zcolumns_some_differ(const ZUpdatedRow *row, const Bitmapset *attrs);

static inline bool
zcolumns_differ(const ZUpdatedRow *row, const Bitmapset *attrs)
{
	return attrs != NULL && zcolumns_some_differ(row, attrs);
}

/*
 * zcolumns_blocking_differ: returns whether any attribute of columns->blocking
 * differs.
 */
extern bool zcolumns_blocking_differ(const ZUpdatedRow *row, const ZIndexColumns *columns);

/*
 * zcolumns_begin_alike: returns true only if both rows begin with the same
 * bytes up to the end of the last blocking column, and have values in all
 * columns up to there: then no column of 'blocking', 'keyed' and 'entered'
 * differs.
 */
extern bool zcolumns_begin_alike(const ZUpdatedRow *row, const ZIndexColumns *columns);

/*
 * What an update does to the indexes of its table, other than summarizing ones.
 */
typedef enum ZIndexEffect
{
	ZINDEX_SAME,				/* no index needs a new entry */
	ZINDEX_CHANGED,				/* an index needs a new entry */
	ZINDEX_COMPUTED				/* zcomputed_differ has to find out */
} ZIndexEffect;

/*
 * zcolumns_effect: returns what an update that changes blocking columns does to
 * indexes; one that does not has ZINDEX_SAME. New keys of the indexes in
 * columns->keyed_index do not count: an update in place adds their entries
 * itself.
 */
extern ZIndexEffect zcolumns_effect(const ZUpdatedRow *row, const ZIndexColumns *columns);

/*
 * zcolumns_count_move: counts of the indexes that have made the row move.
 * differing: the result of zcomputed_differ, -1 if it was not called.
 */
extern void zcolumns_count_move(const ZUpdatedRow *row, const ZIndexColumns *columns,
								int differing);

/*
 * zcolumns_answered: notes the result 'differing' of zcomputed_differ, by
 * which the index is evaluated for further updates. reading is the value of
 * columns->reading before that call.
 */
extern void zcolumns_answered(const ZUpdatedRow *row, const ZIndexColumns *columns,
							  uint64 reading, int differing);

/*
 * zcolumns_some_external: returns whether any attribute of attrs is stored out
 * of line in the row.
 */
extern bool zcolumns_some_external(Relation rel, const Bitmapset *attrs, const char *row, Size len);

/*
 * zcolumns_fit_entry: returns whether an index entry of these attributes of the
 * row is certainly not too long, as long as the index has at most
 * INDEX_MAX_KEYS columns. None of attrs is a system column.
 */
extern bool zcolumns_fit_entry(Relation rel, const Bitmapset *attrs, const char *row, Size len);

/*
 * zcolumns_add_keys: adds entries for the new keys to those indexes of
 * columns->keyed_index whose key columns an update in place has changed, or
 * whose predicate the row satisfies only now. stale: the old row had
 * ZH_STALE_KEYS. Returns how many stale entries there are more than before.
 * The caller holds RowExclusiveLock on the table and no buffer lock. Runs
 * comparison functions; columns are not valid afterwards. Raises the errors of
 * zbtree_add_key.
 */
extern int	zcolumns_add_keys(const ZUpdatedRow *row, const ZIndexColumns *columns, bool stale);

/* ---- indexes with expressions or predicates (dml/zcomputed.c) ---- */

/*
 * zcomputed_differ: returns the number, in columns->computed, of an index whose
 * entries for the old and the new row differ, or of which only one of the rows
 * has an entry; -1 if there is none. newslot contains the new row. Runs
 * functions of the user, so the caller holds no buffer lock, and must not rely
 * on columns or on what it has read from pages afterwards. Row changes by these
 * functions nest in the caller's (zdml_nest).
 */
extern int	zcomputed_differ(const ZUpdatedRow *row, const ZIndexColumns *columns,
							 TupleTableSlot *newslot);

/* ---- TOAST (dml/ztoast.c) ---- */

/*
 * ztoast_needed: returns whether a new row, of this header and length, that
 * replaces an old one must go through the toaster. old is the old row's header;
 * 0 = there is none.
 */
extern bool ztoast_needed(Relation rel, ZHeader new, Size len, ZHeader old);

/*
 * ztoast_keeps: returns whether the toaster would leave a new row as it is, for
 * which ztoast_needed has returned true: its external values are those of the
 * row at tid, which it replaces. Raises ztuple_corrupted.
 */
extern bool ztoast_keeps(Relation rel, ItemPointer tid, const char *old, Size oldlen,
						 const char *new, Size newlen);

/*
 * ztoast_row: returns the new row, palloc'd, with its large values in the TOAST
 * table, and with space for a count behind it. oldrow is the version, at otid,
 * that it replaces, or NULL. No buffer lock may be held.
 */
extern char *ztoast_row(Relation rel, const char *row, Size rowlen, ItemPointer otid,
						const char *oldrow, Size oldlen, ZcOptions options, uint32 *len);

/*
 * ztoast_delete: deletes the values that the row at tid has in the TOAST table
 * and 'kept', unless it is NULL, has not in the same column. No buffer lock may
 * be held.
 */
extern void ztoast_delete(Relation rel, ItemPointer tid, const char *row, Size len,
						  const char *kept, Size keptlen);

/* ---- chunks of values (dml/zchunk.c) ---- */

/*
 * zchunk_store: stores a flat value in the TOAST table of rel; returns the
 * pointer to it. old: the pointer by which the value was read, or NULL.
 * options: those of the insertion of the row.
 *
 * zchunk_delete: deletes the value if it is a pointer to one.
 *
 * No buffer lock may be held. Both use up undo that the caller has reserved.
 */
extern Datum zchunk_store(Relation rel, Datum value, struct varlena *old, ZcOptions options);
extern void zchunk_delete(Datum value);

/* ---- formed rows (dml/zrows.c) ---- */

/* What distinguishes some new rows from ordinary ones. */
typedef struct ZRowsKind
{
	uint32		token;			/* of a speculative insertion (one row); else
								 * 0 */
	bool		frozen;			/* every snapshot must see the rows: their
								 * headers name no slot */
	TransactionId as_of;		/* the transaction that counts as the rows'
								 * writer, or Invalid */
	bool		rewrites;		/* the file is new: no transaction has read it */
} ZRowsKind;

/*
 * zrows_frozen: returns whether rows that are inserted with these options must
 * be visible to all (FROZEN-1).
 *
 * zrows_insert: inserts the rows, whose headers are those of new rows, and sets
 * their tids. *writer has begun.
 */
extern bool zrows_frozen(Relation rel, ZcOptions options);
extern void zrows_insert(const ZWriter *writer, const ZNewRows *rows, ZcOptions options,
						 BulkInsertState bistate, const ZRowsKind *kind);

#endif
