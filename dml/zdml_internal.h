/*
 * dml/zdml_internal.h - what the DML files share; not included from outside
 * dml/.
 */
#ifndef ZUNDO_ZDML_INTERNAL_H
#define ZUNDO_ZDML_INTERNAL_H

#include "access/hio.h"
#include "access/tableam.h"
#include "change/zchange.h"
#include "change/zwal.h"
#include "dml/zdml.h"
#include "mvcc/zany.h"
#include "mvcc/zlocks.h"
#include "mvcc/zown.h"
#include "mvcc/zssi.h"
#include "mvcc/zvis.h"
#include "undo/undo.h"
#include "undo/undo_overflow.h"

/* Who writes, and into what. */
typedef struct ZWriter
{
	Relation	rel;
	ZXid		xid;			/* current (sub)transaction; Invalid until
								 * zwriter_start */
	ZXid		topxid;
	CommandId	cid;
	bool		logged;			/* the table itself is WAL-logged */
	bool		temp;			/* a temporary table: its undo is private */
} ZWriter;

/*
 * zwriter_begin: attaches undo, assigns the transaction ids and reserves undo.
 * It does so in two steps for a caller that may find nothing to write
 * (DML-13): zwriter_open only attaches, zwriter_start does the rest, where it
 * has not been done (zwriter_started). No buffer lock may be held.
 * zwriter_begin_change: zwriter_begin for a change of rows; raises an error if
 * logical decoding would have to show it (DECODE-2).
 */
extern void zwriter_begin(ZWriter *writer, Relation rel, CommandId cid);
extern void zwriter_begin_change(ZWriter *writer, Relation rel, CommandId cid);
extern void zwriter_open(ZWriter *writer, Relation rel, CommandId cid);
extern void zwriter_start(ZWriter *writer);

/*
 * zwriter_waited: raises the error of zwriter_begin_change, if there is reason
 * for it since the caller has waited for another transaction.
 */
extern void zwriter_waited(const ZWriter *writer);

static inline bool
zwriter_started(const ZWriter *writer)
{
	return writer->xid != InvalidZXid;
}

/*
 * zwriter_reserve: reserve undo for the writer's next op; zwriter_begin has
 * done so for the first.
 */
extern void zwriter_reserve(const ZWriter *writer);

/*
 * zreclaim_note: a deletion or move on the page in buf (locked) gives back
 * gain bytes at commit, less what it took there. No errors. zreclaim_cover:
 * the table has been extended by this block; gives the free space map a page
 * for it if it has none. Errors: disk full.
 */
extern void zreclaim_note(Relation rel, Buffer buf, int gain);
extern void zreclaim_cover(Relation rel, BlockNumber block);

/*
 * zreclaim_room: the bytes of a locked page for rows and line pointers, once
 * all deletions on it are committed.
 */
extern int	zreclaim_room(Page page);

/*
 * zdml_scratch: an empty memory context for what one row change allocates. DML
 * entry points don't nest (toasting writes heap), so there is one. zdml_leave:
 * back to the caller's; what was a lot, as for a wide row, is given back.
 */
extern MemoryContext zdml_scratch(void);
extern void zdml_leave(MemoryContext caller);

/* The slot that a change will use. */
typedef struct ZSlotPick
{
	int			slotno;
	int			grow_to;		/* 0 = no growth */
	UndoPtr		prev;			/* head to push on; Invalid = start an empty
								 * chain */
	ZXid		committed;		/* owner of prev if another, committed
								 * transaction; else 0 */
	BlockNumber overflow;		/* the overflow page that the slot lies on; 0
								 * = it is inline */
	bool		common;			/* it is the page's common lock slot: the
								 * record is to be a LOCKS record */
	ZXid		hold;			/* common lock slots: the xid in the slot, if
								 * prev is valid */
} ZSlotPick;

/*
 * zslot_pick: choose the slot for writer on the page in buf (exclusively
 * locked): its own, a free one, one whose owner has ended, or a new one. May
 * roll aborted changes back, prune, give the page an overflow page or take it
 * away, and so change the page (WAL-logged). False if the page can have no
 * further slot now; with must_have: the caller unlocks the page, calls
 * zu_overflow_reserve and begins again with examining the page. Error with
 * must_have if ZPAGE_MAX_SLOTS transactions are at work. A pick is good until
 * the page is unlocked or another pick is made for it. avoid: the slot that
 * the row to be changed names (0 = none): another is preferred, so that rows
 * of the page which we have not changed don't seem to be ours.
 */
extern bool zslot_pick(const ZWriter *writer, Buffer buf, int avoid, bool must_have,
					   ZSlotPick *pick);

/*
 * zslot_pick_for_lock: as zslot_pick with must_have, for a LOCK record; but
 * when many slots of the page are in use the choice is the page's common lock
 * slot (pick->common), so that lockers never take the last slots from writers.
 */
extern bool zslot_pick_for_lock(const ZWriter *writer, Buffer buf, int avoid, ZSlotPick *pick);

/*
 * zslot_pick_inline: the slot in which writer may keep a lock on the row at
 * off of the page in buf (exclusively locked) without undo: its own such slot,
 * a free one, or a new one. lock->offset and mode are given. False: it has
 * changes on the page, or there is none.
 */
extern bool zslot_pick_inline(const ZWriter *writer, Buffer buf, ZWalInlineLock *lock);

/*
 * zlock_convert: make records of the inline locks in own slot slotno;
 * WAL-logged. The page is exclusively locked.
 */
extern void zlock_convert(const ZWriter *writer, Buffer buf, int slotno);

/*
 * zslot_pick_common: choose the slot for a LOCKS record on an initialised
 * page: the page's common lock slot, or a free one beside the one that 'pick'
 * (of the same change) uses; always an inline one. Changes nothing. False: the
 * page has none to give.
 */
extern bool zslot_pick_common(Page page, const ZSlotPick *pick, ZSlotPick *common);

/*
 * zslot_use: enters the page in buf as page i of the change, with the slot that
 * was picked, and locks the overflow page that the slot lies on, if it does. To
 * be called for page 0 before page 1. Raises an error if the overflow page is
 * damaged.
 */
extern void zslot_use(const ZWriter *writer, ZChange *change, int i, Buffer buf,
					  const ZSlotPick *pick);

/*
 * zslot_note: remembers record i of the change, which is done and used pick, as
 * one of our own transaction (zown_note).
 */
extern void zslot_note(const ZChange *change, int i, const ZSlotPick *pick);

/*
 * zwriter_change: begins a change by writer with so many records
 * (zchange_begin).
 */
static inline void
zwriter_change(const ZWriter *writer, ZChange *change, uint8 opcode, int nrecords)
{
	Assert(zwriter_started(writer));
	zchange_begin(change, opcode, nrecords);
	change->logged = writer->logged;
	change->topxid = writer->topxid;
}

/* zwriter_record: fill a record's common fields. */
extern void zwriter_record(const ZWriter *writer, ZuRecord *rec, ZuRecordType type,
						   BlockNumber block, OffsetNumber off, UndoPtr prev);

/* Where a new row goes. */
typedef struct ZNewPlace
{
	Buffer		buf;			/* pinned and exclusively locked */
	bool		init;			/* the page must be initialised */
	OffsetNumber off;
	ZSlotPick	pick;
	ZSlotPick	common;			/* if asked for: the common lock slot that
								 * takes locks of others */
} ZNewPlace;

/*
 * zspace_insert_page: finds a page with room for a new row of len bytes and a
 * slot for writer.
 */
extern void zspace_insert_page(const ZWriter *writer, Size len, int options,
							   BulkInsertState bistate, ZNewPlace *place);

/*
 * zspace_second_page: does the same while the caller holds 'held' exclusively
 * locked; never waits for another page's lock. The page may be 'held' itself,
 * then pinned once, as before. want_common: place->common is wanted too.
 */
extern void zspace_second_page(const ZWriter *writer, Buffer held, Size len, bool want_common,
							   ZNewPlace *place);

/*
 * zspace_maybe_image: save the page's image to undo when the chains on it have
 * become long (mvcc/README.md).
 */
extern void zspace_maybe_image(const ZWriter *writer, Buffer buf, ZSlotPick *pick);

/*
 * zvisible_clear: what is visible on buf's page (exclusively locked) is about
 * to change: clear its bit in the visibility map (VMAP-2).
 */
extern void zvisible_clear(Relation rel, Buffer buf);

/* ---- overflow pages (dml/zoverflow.c) ---- */

/*
 * zoverflow_attach: give the table page in buf (exclusively locked, without an
 * overflow page) the one that was reserved; WAL-logged. False if there is
 * none.
 */
extern bool zoverflow_attach(const ZWriter *writer, Buffer buf);

/* ---- examining a row that is to be changed or locked (dml/zrow.c) ---- */

typedef struct ZRowState
{
	ZRowWriter	writer;			/* of the newest version */
	ZHeader		header;			/* on the page (or made up for a stub) */
	bool		stub;
	ZXid		wait_for;		/* TM_BeingModified: whom to wait for */
	bool		clear_locks;	/* lock hints are there but nobody holds a
								 * lock */
	bool		others_locks;	/* others hold locks */
	bool		many_locks;		/* more than 'others' has room for */
	bool		own_lock;		/* we hold a lock; known for TM_Ok and
								 * TM_BeingModified */
	bool		own_hold;		/* we hold a lock, or the newest version is
								 * ours */
	bool		own_exclusive;	/* ... an UPDATE lock */
	bool		rolled_back;	/* examining has changed the page: look at the
								 * row again */
	bool		key_share_beside;	/* the newest version is another's, not
									 * seen by the caller; a KEY SHARE lock
									 * may be taken */
	int			nothers;		/* the locks that others hold, one for each
								 * (sub)transaction and strength */
	ZLockEntry	others[ZLOCK_MAX_ENTRIES];
} ZRowState;

/* What a command wants to do with a row. */
typedef struct ZRowWish
{
	Relation	rel;
	Buffer		buf;			/* the row's page, exclusively locked */
	ItemPointer tid;
	CommandId	cid;
	Snapshot	snapshot;		/* under which the command saw the row;
								 * InvalidSnapshot: the newest version is
								 * meant */
	LockTupleMode mode;			/* to lock or change the row */
} ZRowWish;

/*
 * zrow_examine: returns whether the row may be changed or locked as wished. On
 * entry and return the page is exclusively locked. Aborted changes found are
 * rolled back. *state is filled, and *tmfd for every answer but TM_Ok.
 */
extern TM_Result zrow_examine(const ZRowWish *wish, ZRowState *state, TM_FailureData *tmfd);

/*
 * zrow_wait: wait for the transaction that keeps us from the row. No buffer
 * lock may be held. Queues behind the row's heavyweight lock first
 * (*have_tuple_lock), unless we hold a lock on the row ourselves (own_lock):
 * those at the head of the queue may be waiting for us. False if the policy
 * said not to wait.
 */
extern bool zrow_wait(Relation rel, ItemPointer tid, ZXid xid, LockTupleMode mode,
					  LockWaitPolicy policy, XLTW_Oper oper, bool own_lock, bool *have_tuple_lock);

/*
 * zrow_was_locked: did command cid of ours lock the row (perhaps without a
 * record, for it was ours already) before changing it? What heap shows as xmax
 * of the new version, and applications take for "this upsert was an update".
 */
extern bool zrow_was_locked(Relation rel, ItemPointer tid, CommandId cid);

/* zrow_end_wait: give the heavyweight lock back. */
extern void zrow_end_wait(Relation rel, ItemPointer tid, LockTupleMode mode, bool have_tuple_lock);

/*
 * zrow_lock_in_place: write a LOCK record for the row at off. Page exclusively
 * locked, examined. False: nothing was done, the page needs an overflow page
 * (see zslot_pick), or the row has gone since it was examined: begin again.
 */
extern bool zrow_lock_in_place(const ZWriter *writer, Buffer buf, OffsetNumber off,
							   LockTupleMode mode);

/* ---- locks that a page keeps in common (dml/zlocklist.c) ---- */

/* Some locks on rows of one page; the payload of a LOCKS record. */
typedef struct ZLockList
{
	int			n;
	ZLockEntry	entry[ZLOCK_MAX_ENTRIES];
} ZLockList;

/*
 * zlocklist_record: makes rec the LOCKS record that adds the locks of list to
 * what pick's slot holds. May add to list those that the slot holds, if their
 * records can be replaced. list becomes the payload of rec. On entry the page
 * in buf is locked exclusively.
 */
extern void zlocklist_record(const ZWriter *writer, Buffer buf, const ZSlotPick *pick,
							 ZLockList *list, ZuRecord *rec);

/* ---- which columns matter to indexes (dml/zcolumns.c) ---- */

typedef struct ZIndexColumns
{
	Oid			reloid;			/* 0 = empty */
	bool		complete;		/* all of it has been read */
	bool		outdated;		/* the relation has changed since, or while it
								 * was read */
	Bitmapset  *key;			/* of unique indexes that foreign keys may use */
	Bitmapset  *blocking;		/* an in-place update must not change these */
	Bitmapset  *summarized;		/* of block-summarizing indexes only (16+) */
	Bitmapset  *foreign;		/* of its foreign keys */
	bool		referenced;		/* foreign keys refer to it */
	bool		rechecked;		/* it has deferrable unique or exclusion
								 * constraints, whose triggers look at rows
								 * that move */
	bool		after_update;	/* it has AFTER UPDATE row triggers other than
								 * those of foreign keys and of these */
} ZIndexColumns;

/*
 * zindex_columns: of rel; cached until its relcache entry is invalidated.
 * Valid until the next call for any relation.
 */
extern const ZIndexColumns *zindex_columns(Relation rel);

/*
 * zcolumns_event: may an AFTER UPDATE row trigger be queued for an update that
 * changes columns of an index (index_change), changes columns of foreign keys
 * (foreign_change), or hits a row that our transaction wrote (own)? The server
 * then asks for the old row, and must be able to find it again later.
 */
extern bool zcolumns_event(const ZIndexColumns *columns, bool index_change, bool foreign_change,
						   bool own);

/*
 * zcolumns_some_null: are some of attrs null in the row and others not? Then
 * the server queues an event for a MATCH FULL foreign key that has not been
 * validated, whatever has changed.
 */
extern bool zcolumns_some_null(Relation rel, const Bitmapset *attrs, const char *row, Size len);

/*
 * zcolumns_differ: does any attribute of attrs differ between the row at tid
 * and a new one?
 */
extern bool zcolumns_differ(Relation rel, const Bitmapset *attrs, ItemPointer tid,
							const char *oldrow, Size oldlen, const char *newrow, Size newlen);

/* ---- TOAST (dml/ztoast.c) ---- */

/*
 * ztoast_needed: must a new row (header, length) replacing an old one go
 * through the toaster? old = 0: none.
 */
extern bool ztoast_needed(Relation rel, ZHeader new, Size len, ZHeader old);

/*
 * ztoast_row: the row of slot with its large values in the TOAST table.
 * oldrow: the version, at otid, that it replaces, or NULL. palloc'd.
 */
extern char *ztoast_row(Relation rel, TupleTableSlot *slot, ItemPointer otid, const char *oldrow,
						Size oldlen, int options, uint32 *len);

/*
 * ztoast_delete: delete the external values of the row at tid; speculative:
 * those of a speculative insertion of this command.
 */
extern void ztoast_delete(Relation rel, ItemPointer tid, const char *row, Size len,
						  bool speculative);

#endif
