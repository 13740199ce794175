/*
 * mvcc/zvis.h - which version of a row is visible, and who wrote it.
 *
 * Readers copy what they need under the page's share lock and walk undo
 * without it. The rules are PROTOCOLS A, D and E; mvcc/README.md has them in
 * the words of this code.
 */
#ifndef ZUNDO_ZVIS_H
#define ZUNDO_ZVIS_H

#include "access/xact.h"
#include "common/zundo.h"
#include "page/zpage.h"
#include "undo/undo.h"
#include "utils/snapshot.h"

/* All slots of one page, inline and overflow, as copied under its lock. s[0] is unused. */
typedef struct ZSlotView
{
	int			n;
	bool		had_more;		/* the page had or has an overflow page: rows may name slots that are no more */
	ZXid		oldest;			/* zpage_oldest() while the page was locked (rule V1) */
	ZPageSlot	s[ZPAGE_MAX_SLOTS + 1];
} ZSlotView;

/*
 * zpage_oldest: what the xids on this page, whose buffer is locked, are to be compared with: zu_oldest(), or
 * zu_temp_oldest() if it is a page of a temporary table.
 */
static inline ZXid
zpage_oldest(Page page)
{
	for (int i = 1; i <= zpage_nslots(page); i++)
		if (zpage_slot(page, i)->ptr != InvalidUndoPtr && !zslot_locks_only(zpage_slot(page, i)))
			return zu_oldest_for(zpage_slot(page, i)->ptr);
	return zu_oldest();
}

/*
 * zslots_copy: fill view from a page whose buffer the caller holds locked, or a copy without overflow page. Slots that
 * hold only locks look unused (P9): nothing of them concerns visibility. zslots_copy_raw: with those, for who looks for locks.
 */
extern void zslots_copy(Relation rel, BlockNumber block, Page page, ZSlotView *view);
extern void zslots_copy_raw(Relation rel, BlockNumber block, Page page, ZSlotView *view);

/*
 * zvis_overflow_lock: pin the overflow page of a locked page that has one, and lock it in mode.
 * Error ERRCODE_DATA_CORRUPTED if the page does not name one of its own.
 */
extern Buffer zvis_overflow_lock(Relation rel, BlockNumber block, Page page, int mode);

/* zoverflow_fault: the detail of that error; buf: the overflow page, Invalid if there is none of this owner in block overflow. */
extern int	zoverflow_fault(Buffer buf, BlockNumber overflow);

/*
 * zslot_read: slot s of a page whose buffer the caller holds locked, inline or on the overflow page. A number
 * above the present ones, or one that holds only locks, gives an unused slot: what names it is visible to all.
 */
extern ZPageSlot zslot_read(Relation rel, BlockNumber block, Page page, int s);

/* A bit that no transaction's id has: it marks, in a ZSlotView, a slot whose transaction's undo is lost. */
#define ZXID_LOST	(UINT64CONST(1) << 47)

/*
 * zslot_xid: the xid in a slot of a locked page, to be compared with `oldest`. With
 * ZXID_LOST, so newer than anything, if the slot's undo is lost (U46 in undo/).
 */
extern ZXid zslot_xid_in_doubt(const ZPageSlot *slot);

static inline ZXid
zslot_xid(const ZPageSlot *slot)
{
	ZXid		xid = ZSLOT_XID(slot);

	return likely(!zu_in_doubt(xid)) ? xid : zslot_xid_in_doubt(slot);
}

/*
 * zslots_has: returns whether the slot that a row's header names is there; false
 * if it is 0 or was given up, so that the row is visible to all. Error ERRCODE_DATA_CORRUPTED
 * if the page never had so many.
 */
extern void zvis_corrupt_slotno(Relation rel, BlockNumber block, int s) zc_noreturn;

static inline bool
zslots_has(const ZSlotView *slots, Relation rel, BlockNumber block, int s)
{
	if (likely(s <= slots->n))
		return s != 0;
	if (unlikely(!slots->had_more))
		zvis_corrupt_slotno(rel, block, s);
	return false;
}

/* One row or stub on a page that is locked, or on a copy of a page. */
typedef struct ZRow
{
	Relation	rel;
	BlockNumber block;
	OffsetNumber off;
	Page		page;
	const ZSlotView *slots;		/* as read together with the page */
} ZRow;

/* zrow_on: the row or stub at off of the page in buf, which stays locked while the result is used. */
static inline ZRow
zrow_on(Relation rel, Buffer buf, OffsetNumber off, const ZSlotView *slots)
{
	ZRow		row = {rel, BufferGetBlockNumber(buf), off, BufferGetPage(buf), slots};

	return row;
}

/* What a transaction id on a page means to this backend. */
typedef enum ZXidStatus
{
	ZXID_ALL_VISIBLE,			/* 0 or < oldest */
	ZXID_OWN,					/* current (sub)transaction of this backend */
	ZXID_IN_PROGRESS,
	ZXID_COMMITTED,
	ZXID_ABORTED
} ZXidStatus;

/*
 * zxid_status: status of an xid that was not read from a page. zxid_status_at: of an xid from a page: oldest is
 * the page's zpage_oldest(), loaded under its lock.
 */
extern ZXidStatus zxid_status(ZXid xid);
extern ZXidStatus zxid_status_at(ZXid xid, ZXid oldest);

/*
 * zxid_visible_mvcc: is xid (>= oldest, not own) committed as of the MVCC snapshot?
 */
extern bool zxid_visible_mvcc(ZXid xid, Snapshot snapshot);

/*
 * zvis_check_temp: ptr and xid (< oldest) are those of a page's slot. If it is one of a temporary table, whose undo has gone,
 * the MVCC snapshot must see xid; only an imported snapshot may not. Error ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE.
 */
extern void zvis_check_temp(UndoPtr ptr, ZXid xid, Snapshot snapshot);

/*
 * zxid_is_ours: does xid (>= oldest) belong to our top-level transaction, aborted
 * subtransactions included? (A chain headed by one of these may have own changes below.)
 */
extern bool zxid_is_ours(ZXid xid);

/* ---- one row ---- */

/* One version of one row, in private memory. */
typedef struct ZVersion
{
	bool		found;			/* false: no version is visible */
	char	   *row;			/* -> buf */
	int			len;
	/* for system columns: the writer, or the chain of undo (and its slot's owner) in which to look for it */
	bool		writer_known;
	ZXid		xmin;
	CommandId	cmin;
	UndoPtr		writer;			/* its record */
	ZXid		xmax;			/* zany_fetch: whose change of this command replaced the version; else 0 */
	ZXid		chain_xid;
	UndoPtr		chain;
	ItemPointerData handle;		/* zany_fetch: what to call the version (mvcc/zhandle.h); else invalid */
	ZXid		newest_xid;		/* SSI: first invisible writer above the visible version, 0 = none */
	char		buf[BLCKSZ];
} ZVersion;

/*
 * zvis_fetch: the version of (buf, off) visible to snapshot (MVCC, Self, Dirty,
 * NonVacuumable). On entry buf is pinned and not locked, undo is attached; on return the same. For Dirty sets
 * snapshot->xmin/xmax/speculativeToken. An offset past the end gives found = false.
 * all_dead (may be NULL): set to true iff the line pointer is LP_DEAD, LP_UNUSED, or
 * a stub or deleted row dead to everybody.
 */
extern void zvis_fetch(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot,
					   ZVersion *version, bool *all_dead);

/* ---- one page ---- */

/* An older version than the one on the page is shown: the head of the slot's chain has newer ones too. */
#define ZVIEW_REWOUND 0x8000

/* All rows of a page that a snapshot sees, in private memory. */
typedef struct ZPageView
{
	MemoryContext context;		/* for old images; reset for every page that needs it */
	bool		context_used;
	char	   *arena;			/* first part of the old images' memory, kept from page to page */
	uint32		nrecords;		/* undo records read for it so far */
	int			nrows;
	OffsetNumber offset[ZHEAP_MAX_OFFSET + 1];
	const char *row[ZHEAP_MAX_OFFSET + 1];
	uint16		len[ZHEAP_MAX_OFFSET + 1];
	uint16		slotno[ZHEAP_MAX_OFFSET + 1];	/* slot that the version's header names, perhaps with ZVIEW_REWOUND */
	UndoPtr		chain[ZHEAP_MAX_OFFSET + 1];	/* of rows with ZVIEW_REWOUND: where their slot's chain goes on */
	const OffsetNumber *read;	/* ascending: SSI is told only of changes of these rows; NULL = of all */
	int			nread;
	int			dead_rows;		/* newest versions that are deleted (for ANALYZE) */
	ZSlotView	slots;			/* as copied */
	PGAlignedBlock page;		/* the copy */
} ZPageView;

extern ZPageView *zpage_view_create(void);	/* in CurrentMemoryContext */
extern void zpage_view_free(ZPageView *view);

/*
 * zvis_page: fill view with the rows of buf visible to snapshot (MVCC or Self;
 * SnapshotAny means: newest version of every row that is not known dead, deleted ones excluded),
 * in ascending offset order. On entry buf is pinned and unlocked, undo attached; on return the same.
 * Linear in the undo records between the page and the snapshot.
 * Tells SSI of the changes that a serializable snapshot does not see (of the rows in view->read).
 */
extern void zvis_page(Relation rel, Buffer buf, Snapshot snapshot, ZPageView *view);

/* zpage_view_chain: from where the writer of the view's i-th row is to be looked for; *xid = the slot's. Invalid = visible to all. */
static inline UndoPtr
zpage_view_chain(const ZPageView *view, int i, ZXid *xid)
{
	int			s = view->slotno[i] & ~ZVIEW_REWOUND;

	if (s == 0 || s > view->slots.n)
	{
		*xid = InvalidZXid;
		return InvalidUndoPtr;
	}
	*xid = ZSLOT_XID(&view->slots.s[s]);
	return unlikely(view->slotno[i] & ZVIEW_REWOUND) ? view->chain[i] : view->slots.s[s].ptr;
}

/* ---- serializable transactions (mvcc/zssi.c) ---- */

/* zssi_needed: must reads of rel under snapshot be noted for serializable transactions? */
extern bool zssi_needed(Relation rel, Snapshot snapshot);

/*
 * zssi_before_read: note that we are about to read the version of (buf, off) that the MVCC snapshot sees;
 * whoever reads it afterwards reports the changes that it does not see. buf is pinned and not locked, undo attached.
 */
extern void zssi_before_read(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot);

/*
 * zssi_before_write: the live newest version at off, which may be replaced, is about to be. buf is locked
 * exclusively. Error ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
extern void zssi_before_write(Relation rel, Buffer buf, OffsetNumber off);

/* ---- the writer of the newest version (DML, VACUUM, index builds) ---- */

typedef struct ZRowWriter
{
	ZXidStatus	status;
	ZXid		xid;			/* 0 when ZXID_ALL_VISIBLE */
	CommandId	cid;
	UndoPtr		ptr;			/* the record that wrote the newest version, 0 if unknown */
	ZuRecordType type;
	uint16		xflags;
	ItemPointerData forward;	/* of a MOVE */
	TransactionId as_of;		/* of a rewrite's record: whose change it stands for; else Invalid */
	bool		visible;		/* committed as of the snapshot given (MVCC) */
} ZRowWriter;

/*
 * zrow_writer: who wrote the newest version of row, which lies on a page that the caller has locked (share or
 * exclusive). If snapshot is an MVCC snapshot and the
 * slot's head is visible to it, answers status COMMITTED, visible = true, ptr = 0, without reading undo.
 * ZXID_ABORTED: the page must be rolled back first (rollback/zrollback.h).
 */
extern void zrow_writer(const ZRow *row, Snapshot snapshot, ZRowWriter *writer);

/*
 * zpage_deleters: who deleted or moved on the rows of which n stubs of a page were left, in one pass over each slot's chain. In:
 * offset and slot number of each; thorough = read its chain to the end if need be: else, since the page is locked meanwhile, only the
 * newest part is read. Out: settled = deleted before `oldest`; else the deleter's id, whatever has become of him, 0 = not found. The
 * page's buffer is locked by the caller, slots copied from it.
 */
typedef struct ZStubDeleter
{
	OffsetNumber off;
	uint16		slotno;
	bool		thorough;
	bool		settled;
	ZXid		deleter;
} ZStubDeleter;

extern void zpage_deleters(const ZSlotView *slots, Relation rel, BlockNumber block, ZStubDeleter *stubs, int n);

/*
 * zrow_overtaken: has a change of row committed that the MVCC snapshot does not see, below unfinished ones and our own?
 * *by = the newest such change: xid, record, type and flags. Page locked, no aborted change of the row on it.
 */
extern bool zrow_overtaken(const ZRow *row, Snapshot snapshot, ZRowWriter *by);

/*
 * zrow_replaced_by: returns the id of the first of our commands that replaced the version of row which command cid sees.
 * The newest version is ours, of cid or a later command. Page locked.
 */
extern CommandId zrow_replaced_by(const ZRow *row, CommandId cid);

/* ---- own records of the current command (mvcc/zown.c) ---- */

/* zown_note: we pushed the record ptr on prev, under cid, about n rows from offset first on. */
extern void zown_note(RelFileNumber relnumber, BlockNumber block, OffsetNumber first, int n,
					  CommandId cid, UndoPtr ptr, UndoPtr prev);

/* zown_skip: where to begin looking for the writer of the row at off in the chain that begins at head. */
extern UndoPtr zown_skip(RelFileNumber relnumber, BlockNumber block, OffsetNumber off, UndoPtr head);

/*
 * zown_below: head is the newest record of a chain, by a command of ours that has changed many rows of the page, and
 * concerns some row; where may older records about that row begin? A command changes a row once.
 */
extern UndoPtr zown_below(RelFileNumber relnumber, BlockNumber block, UndoPtr head, UndoPtr prev);

/* zown_note_push: we push on the chain of committed transaction xid. */
extern void zown_note_push(ZXid xid);
/* zown_note_rewrite: we push records with as_of, which our own snapshots may not accept though they are ours, or in no order. */
extern void zown_note_rewrite(void);

/*
 * zown_settles: is all that lies below one of our own records on the page accepted, if that was made before command (a
 * snapshot's curcid)? Not if we may have pushed, in this transaction, on a chain whose head one of our snapshots does not see; nor
 * if the page may have records of command or later ones below that one.
 */
extern bool zown_settles(RelFileNumber relnumber, BlockNumber block, CommandId command);
extern void zown_at_xact_end(void);

/* ---- SnapshotAny by TID (PROTOCOLS G; mvcc/zany.c) ---- */

/* zvis_corrupt_page: raises ERRCODE_DATA_CORRUPTED for this block of rel, read as page; 0 = no item in particular. */
extern void zvis_corrupt_page(Relation rel, BlockNumber block, Page page, OffsetNumber off) zc_noreturn;

/* zvis_corrupt_chain: the same for undo that the block points to; ptr: which, 0 = unknown. */
extern void zvis_corrupt_chain(Relation rel, BlockNumber block, UndoPtr ptr) zc_noreturn;

/* zvis_corrupt_slot: the same for the transaction id in slot s. */
extern void zvis_corrupt_slot(Relation rel, BlockNumber block, int s, ZXid xid) zc_noreturn;

/* zvis_check_xid: error unless the id in slot s, if not older than `oldest`, can be a transaction's: before its status is asked. */
static inline void
zvis_check_xid(Relation rel, BlockNumber block, int s, ZXid xid)
{
	if (unlikely(!zxid_possible(xid)))
		zvis_corrupt_slot(rel, block, s, xid);
}

/*
 * zany_fetch: as zvis_fetch, for SnapshotAny by TID. slot: where the caller will show it, NULL if nowhere. by_tid: one version in
 * particular is wanted; raises ERRCODE_INTERNAL_ERROR if it cannot be told which (G5).
 */
extern void zany_fetch(Relation rel, Buffer buf, OffsetNumber off, TupleTableSlot *slot, bool by_tid, ZVersion *version);

/* zany_unclear: returns how often G5 has applied since the server's start, which must have loaded the library. */
extern void zany_unclear(uint64 *answered, uint64 *refused);

/* For the hooks in zundo.c: the counters. */
extern Size zany_shmem_size(void);
extern void zany_shmem_startup(void);

/*
 * zany_fetch_by_handle: the version that tid, a handle (mvcc/zhandle.h), names; *real = its row's TID. A
 * handle that names nothing gives found = false.
 */
extern void zany_fetch_by_handle(Relation rel, ItemPointer tid, ZVersion *version, ItemPointer real);

/* zany_fetch_kept: the new version of the event whose old one was fetched just before; NULL = it is not that. */
extern const ZVersion *zany_fetch_kept(Relation rel, ItemPointer tid);

/* zany_is_newest: is the version that our own record writer made still the row's newest one, and live? */
extern bool zany_is_newest(Relation rel, ItemPointer tid, UndoPtr writer);

/* zversion_show: copy the version into slot, under this TID. */
extern void zversion_show(Relation rel, const ZVersion *version, ItemPointer tid, TupleTableSlot *slot);

/* zany_is_conflict_slot: is slot where the current executor level locks the row that an INSERT ... ON CONFLICT DO UPDATE has met? */
extern bool zany_is_conflict_slot(TupleTableSlot *slot);

/* zvis_lookup_writer: what zslot_lookup_writer_hook (tuple/zslot.h) calls. */
struct ZHeapSlot;
extern void zvis_lookup_writer(struct ZHeapSlot *slot);

#endif
