/*
 * page/zpage.h - the table page: layout, accessors and mutators.
 *
 * Mutators change a page that the caller has locked exclusively, or a private
 * copy. They take no locks, and write no WAL and no undo. Only zpage_prune
 * raises an error: ERRCODE_DATA_CORRUPTED, if zpage_rows_ok is false for the
 * page. Callers check what a mutator needs before they enter a critical
 * section. DML, rollback and redo call the same functions.
 *
 *	0         PageHeaderData (24); pd_prune_xid is 0, so that heap's readers
 *			prune nothing
 *	24        line pointers (ItemIdData, 4 each), at most ZHEAP_MAX_OFFSET
 *	pd_lower  hole
 *	pd_upper  rows, unaligned
 *	pd_special slots n .. 1, 16 bytes each: slot i at BLCKSZ - 16 - 16*i
 *	8176      trailer (16): see ZPageTrailer
 *
 * Line pointer states:
 *	LP_UNUSED	free for a new row
 *	LP_NORMAL	lp_off, lp_len = the row's room (>= its length, the rest is
 *				slack)
 *	LP_REDIRECT stub of a deleted or moved row whose bytes are gone: lp_off =
 *				slot number, lp_len = state (ZSTATE_DELETED or ZSTATE_MOVED)
 *	LP_DEAD		visible to no snapshot; index entries may point here; lp_off,
 *				lp_len = the room that an undone insertion has left, until the
 *				page is compacted, else 0
 *
 * Invariants (zpage_check tests PAGE-1 to PAGE-3 and PAGE-7, zundo.check these
 * and PAGE-6):
 *	PAGE-1	A page is new (all zero), or pd_lower and pd_upper are the exact
 *		bounds of the hole; there are at most ZHEAP_MAX_OFFSET line pointers,
 *		and the special space takes 16 + 16 * nslots bytes, with nslots >= 1.
 *		The seal is ZPAGE_VERSION + pd_upper, and pd_prune_xid is 0. Functions
 *		of heap that are applied to a zheap page break one of the latter
 *		(zpage_fault).
 *	PAGE-2	Every room lies inside [pd_upper, pd_special), and no two of them
 *		overlap.
 *	PAGE-3	In a row's header the slot is at most nslots_total, and the lock
 *		tag at most nslots, the number of inline slots; the row's length (room
 *		- slack) is at least that of header and bitmap. A stub's slot is
 *		between 1 and nslots_total, and its state is ZSTATE_DELETED or
 *		ZSTATE_MOVED.
 *	PAGE-6	A row in state deleted or moved has its bytes unless its deleter is
 *		known to have committed (prune_action in dml/zprune.c).
 *	PAGE-7	A slot's xid is 0 if and only if its pointer is 0.
 *	PAGE-9	When a slot became one that holds only locks, it was free, or its
 *		owner had changed no row by it. So rows that name it are visible to
 *		all, before and afterwards, and readers of versions treat it as unused
 *		(zslots_copy). Free is a slot without a pointer, or one whose owner is
 *		before `oldest` (zslot_age, up to ZAGE_SETTLED).
 *
 * A slot number above the number of slots means "visible to all", since an
 * overflow page is detached only when all its slots are older than `oldest`.
 * The trailer records that there was one. In PAGE-3 nslots_total is the number
 * of slots if there never was an overflow page, ZPAGE_MAX_SLOTS else.
 */
#ifndef ZUNDO_ZPAGE_H
#define ZUNDO_ZPAGE_H

#include "access/htup_details.h"
#include "common/zundo.h"
#include "storage/bufpage.h"
#include "tuple/ztuple.h"
#include "undo/undo_record.h"

typedef struct ZPageSlot
{
	uint64		xid_flags;		/* bits 0-47 xid of the newest record's
								 * author, 48-63 flags */
	UndoPtr		ptr;			/* newest record; 0 if unused */
} ZPageSlot;

StaticAssertDecl(sizeof(ZPageSlot) == 16, "ZPageSlot is 16 bytes on disk");

/*
 * Slot flags (shifted). With ZSLOT_INLINE_LOCKS ptr holds up to 5 row locks of
 * the transaction. With ZSLOT_COMMON_LOCKS ptr is the newest LOCKS record, and
 * the xid is that of the youngest locker named in it or in older ones.
 */
#define ZSLOT_INLINE_LOCKS	(UINT64CONST(1) << 48)
#define ZSLOT_COMMON_LOCKS	(UINT64CONST(1) << 49)
#define ZSLOT_LOCKS_ONLY	(ZSLOT_INLINE_LOCKS | ZSLOT_COMMON_LOCKS)

#define ZSLOT_XID(s)		((ZXid) ((s)->xid_flags & ZXID_MASK))

/*
 * The locks in a slot with ZSLOT_INLINE_LOCKS: up to 5, of 12 bits each from
 * the lowest bit on, without a gap. Bits 0-8 are the offset, 9-11
 * LockTupleMode + 1. The whole is never 0.
 */
#define ZINLINE_MAX_LOCKS	5
#define ZINLINE_BITS		12
#define ZINLINE_OFFSET(l)	((OffsetNumber) ((l) & 0x1FF))	/* lowest one */
#define ZINLINE_MODE(l)		((int) (((l) >> 9) & 7) - 1)

/*
 * zinline_add: returns the locks with the row at off locked in this mode or a
 * stronger one; 0 if there is no space for another lock.
 */
extern UndoPtr zinline_add(UndoPtr locks, OffsetNumber off, int mode);

/*
 * zinline_mode: returns the mode in which the row at off is locked, -1 if it is
 * not.
 */
extern int	zinline_mode(UndoPtr locks, OffsetNumber off);

/*
 * zslot_locks_only: returns true if the slot has row locks and no chain of
 * changes. Rows whose headers name it are visible to all (PAGE-9).
 */
static inline bool
zslot_locks_only(const ZPageSlot *slot)
{
	return (slot->xid_flags & ZSLOT_LOCKS_ONLY) != 0;
}

typedef struct ZPageTrailer
{
	UndoPtr		saved;			/* newest record of the list of images and
								 * saved rows (mvcc/zsaved.c), 0 = none */
	BlockNumber overflow;		/* undo block with more slots, or
								 * ZPAGE_NO_OVERFLOW, ZPAGE_HAD_OVERFLOW,
								 * ZPAGE_LOST_OVERFLOW */
	uint16		seal;			/* ZPAGE_VERSION + pd_upper: shows that
								 * pd_upper was set by zundo */
	uint16		debt;			/* undo bytes pushed on live chains since the
								 * last image, saturating; with an overflow
								 * page the count of its changes (OVERFLOW-3) */
} ZPageTrailer;

StaticAssertDecl(sizeof(ZPageTrailer) == 16, "ZPageTrailer is 16 bytes on disk");

/*
 * Values of ZPageTrailer.overflow for a page without an overflow page. If the
 * page had one before, its rows may name slots that do not exist any more.
 */
#define ZPAGE_NO_OVERFLOW	InvalidBlockNumber
#define ZPAGE_HAD_OVERFLOW	((BlockNumber) 0)

/*
 * Replay has found that a write of the page is lost, the one that attached or
 * detached an overflow page (OVERFLOW-5 in change/zredo.c). No block of the
 * undo log has this number. Such a page is not valid (zpage_mark_lost).
 */
#define ZPAGE_LOST_OVERFLOW MaxBlockNumber

#define ZPAGE_VERSION		0x7A02
#define ZPAGE_INITIAL_SLOTS 4
/* Free space of a page without rows: of a new one, when it is first used. */
#define ZPAGE_NEW_SPACE (BLCKSZ - SizeOfPageHeaderData - sizeof(ZPageTrailer) - \
						ZPAGE_INITIAL_SLOTS * sizeof(ZPageSlot))
#define ZPAGE_MAX_INLINE_SLOTS 64
#define ZPAGE_MAX_SLOTS		511

/*
 * zpage_space_for_map: returns what to enter in the free space map for a page
 * with this much free space. The map rounds the free space of a page down, and
 * the length that a search asks for up. So a page without rows is entered with
 * more than it has: otherwise a search for the longest row would not find it.
 */
static inline Size
zpage_space_for_map(Size room)
{
	return room >= ZPAGE_NEW_SPACE ? MaxHeapTupleSize : room;
}

/* zpage_trailer: returns the page's trailer. */
static inline ZPageTrailer *
zpage_trailer(Page page)
{
	return (ZPageTrailer *) ((char *) page + BLCKSZ - sizeof(ZPageTrailer));
}

/* zpage_version: returns the format of the page, if it is a zheap page. */
static inline uint16
zpage_version(Page page)
{
	return zpage_trailer(page)->seal - ((PageHeader) page)->pd_upper;
}

/*
 * zpage_set_upper: sets the lower end of the rows, and the seal with it
 * (PAGE-1).
 */
static inline void
zpage_set_upper(Page page, int upper)
{
	Assert(upper >= ((PageHeader) page)->pd_lower);
	Assert(upper <= BLCKSZ - (int) sizeof(ZPageTrailer));
	((PageHeader) page)->pd_upper = upper;
	zpage_trailer(page)->seal = ZPAGE_VERSION + upper;
}

/*
 * zpage_mark_lost: marks the page as one that has lost a write. Breaks its
 * seal, so that no row of it is read or changed (PAGE-1): rows whose slots are
 * on the page itself are as outdated as the others.
 */
static inline void
zpage_mark_lost(Page page)
{
	zpage_trailer(page)->overflow = ZPAGE_LOST_OVERFLOW;
	zpage_trailer(page)->seal = ((PageHeader) page)->pd_upper;
}

/* zpage_has_overflow: returns true if more slots are on an overflow page. */
static inline bool
zpage_has_overflow(Page page)
{
	BlockNumber overflow = zpage_trailer(page)->overflow;

	return unlikely(overflow != ZPAGE_NO_OVERFLOW && overflow != ZPAGE_HAD_OVERFLOW);
}

/*
 * zpage_set_overflow: attaches overflow page 'block', whose count of changes
 * begins at 'changes' (OVERFLOW-3), or detaches it if block is 0.
 */
static inline void
zpage_set_overflow(Page page, BlockNumber block, uint16 changes)
{
	zpage_trailer(page)->overflow = block != 0 ? block : ZPAGE_HAD_OVERFLOW;
	zpage_trailer(page)->debt = block != 0 ? changes : 0;
}

/*
 * zpage_count_overflow_change: counts a change of a slot on the page's overflow
 * page (OVERFLOW-3).
 */
static inline void
zpage_count_overflow_change(Page page)
{
	Assert(zpage_has_overflow(page));
	zpage_trailer(page)->debt++;
}

/* zpage_nslots: returns the number of inline slots. */
static inline int
zpage_nslots(Page page)
{
	return (BLCKSZ - ((PageHeader) page)->pd_special - sizeof(ZPageTrailer)) / sizeof(ZPageSlot);
}

/* zpage_slot: returns inline slot i, 1 <= i <= zpage_nslots. */
static inline ZPageSlot *
zpage_slot(Page page, int i)
{
	Assert(i >= 1 && i <= zpage_nslots(page));
	return (ZPageSlot *) ((char *) page + BLCKSZ - sizeof(ZPageTrailer) - i * sizeof(ZPageSlot));
}

/*
 * zpage_set_all_visible: sets the page's flag (VMAP-1). What the page has saved
 * is given up: no snapshot needs a version older than the rows on the page.
 */
static inline void
zpage_set_all_visible(Page page)
{
	PageSetAllVisible(page);
	zpage_trailer(page)->saved = InvalidUndoPtr;
}

/* zpage_hole: returns the number of bytes between line pointers and rows. */
static inline int
zpage_hole(Page page)
{
	return ((PageHeader) page)->pd_upper - ((PageHeader) page)->pd_lower;
}

/* zpage_row: returns the bytes in the room of a line pointer. */
static inline char *
zpage_row(Page page, ItemId lp)
{
	Assert(ItemIdIsNormal(lp) || ItemIdIsDead(lp));
	return (char *) page + ItemIdGetOffset(lp);
}

/*
 * zpage_stub_header: returns the state and the slot of the stub at an
 * LP_REDIRECT line pointer, as the header of its row.
 */
static inline ZHeader
zpage_stub_header(ItemId lp)
{
	return ZH_WITH_SLOT(ZH_WITH_STATE((ZHeader) 0, lp->lp_len), lp->lp_off);
}

/*
 * zpage_deleted_under: returns whether the row or stub at off, which the page
 * has, is deleted under the slot.
 */
extern bool zpage_deleted_under(Page page, OffsetNumber off, int slotno);

/*
 * zpage_row_length: returns the length (room - slack) of the row at an
 * LP_NORMAL line pointer.
 */
extern int	zpage_row_length(Page page, ItemId lp);

/*
 * zpage_length_in_room: returns the length of the row in the room bytes at row.
 */
extern int	zpage_length_in_room(const char *row, int room);

/* zpage_init: initializes an empty page with ZPAGE_INITIAL_SLOTS slots. */
extern void zpage_init(Page page);

/*
 * zpage_is_valid: returns true if seal, pd_prune_xid, the bounds of the hole
 * and the special space are as PAGE-1 says; false for a new (all-zero) page.
 * Does not test the number of line pointers. The page may have any contents.
 */
static inline bool
zpage_is_valid(Page page)
{
	PageHeader	ph = (PageHeader) page;
	int			slot_bytes = BLCKSZ - (int) sizeof(ZPageTrailer) - ph->pd_special;

	return zpage_version(page) == ZPAGE_VERSION &&
		ph->pd_prune_xid == InvalidTransactionId &&
		ph->pd_lower >= SizeOfPageHeaderData &&
		(ph->pd_lower - SizeOfPageHeaderData) % sizeof(ItemIdData) == 0 &&
		ph->pd_lower <= ph->pd_upper &&
		ph->pd_upper <= ph->pd_special &&
		slot_bytes >= (int) sizeof(ZPageSlot) &&
		slot_bytes % (int) sizeof(ZPageSlot) == 0 &&
		slot_bytes <= ZPAGE_MAX_INLINE_SLOTS * (int) sizeof(ZPageSlot);
}

/*
 * zpage_fault: returns a sentence that says what is wrong with a page for which
 * zpage_is_valid or zpage_item_ok has returned false. The page may have any
 * contents.
 */
extern const char *zpage_fault(Page page);

/*
 * zpage_row_inside: returns true if the room of the row at an LP_NORMAL line
 * pointer lies in the row area and can hold a header (PAGE-2). PAGE-1 holds.
 */
static inline bool
zpage_row_inside(Page page, ItemId lp)
{
	PageHeader	ph = (PageHeader) page;

	return ItemIdGetOffset(lp) >= ph->pd_upper &&
		ItemIdGetOffset(lp) + ItemIdGetLength(lp) <= ph->pd_special &&
		ItemIdGetLength(lp) >= ZTUPLE_HEADER_SIZE;
}

/*
 * zpage_item_ok: returns true if the page is valid and the line pointer at
 * off, if there is one with a row, points into the row area (PAGE-2). The page
 * may have any contents.
 */
static inline bool
zpage_item_ok(Page page, OffsetNumber off)
{
	ItemId		lp;

	if (unlikely(!zpage_is_valid(page)))
		return false;
	if (off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
		return true;
	lp = PageGetItemId(page, off);
	return !ItemIdIsNormal(lp) || zpage_row_inside(page, lp);
}

/*
 * zpage_rows_ok: returns true if PAGE-1 and PAGE-2 hold as far as
 * copying and moving the rows requires. The page may have any contents.
 */
extern bool zpage_rows_ok(Page page);

/*
 * zpage_find_offset: returns the offset for a new row: that of an LP_UNUSED
 * line pointer, else the one after the last; InvalidOffsetNumber if that would
 * exceed ZHEAP_MAX_OFFSET.
 */
extern OffsetNumber zpage_find_offset(Page page);

/*
 * zpage_has_space: returns true if the hole has space for a row of len bytes at
 * off, and for its line pointer if that is new.
 */
extern bool zpage_has_space(Page page, OffsetNumber off, Size len);

/*
 * zpage_put_row: puts a row at off, which must be unused or right after the
 * last line pointer.
 */
extern void zpage_put_row(Page page, OffsetNumber off, const char *row, Size len);

/*
 * zpage_replace_fits: returns true if a row of len bytes fits the room of the
 * row at off, or that with the hole.
 *
 * zpage_replace_row: replaces the row at off, header included. If the row is
 * longer than the room, this gets what is lacking from the hole, and other rows
 * are moved on the page. The row must fit (zpage_replace_fits).
 */
extern bool zpage_replace_fits(Page page, OffsetNumber off, Size len);
extern void zpage_replace_row(Page page, OffsetNumber off, const char *row, Size len);

/*
 * zpage_set_header: replaces the header of the row at off, except for its slack
 * bit.
 *
 * zpage_end_row: marks the row at off deleted or moved under the slot;
 * elsewhere: to another partition.
 */
extern void zpage_set_header(Page page, OffsetNumber off, ZHeader h);
extern void zpage_end_row(Page page, OffsetNumber off, int slotno, int state, bool elsewhere);

/*
 * zpage_clear_tags: takes the lock tag slotno from all rows that have it
 * (TAG-1, TAG-2 and TAG-5 in dml/).
 */
extern void zpage_clear_tags(Page page, int slotno);

/*
 * zpage_set_slot: makes inline slot slotno name the record at ptr, written by
 * xid, and clears its flags. Both are 0 to free the slot (PAGE-7).
 */
extern void zpage_set_slot(Page page, int slotno, ZXid xid, UndoPtr ptr);

/*
 * zpage_set_lock_slot: makes inline slot slotno one that holds only locks. flag
 * is ZSLOT_INLINE_LOCKS or ZSLOT_COMMON_LOCKS; what xid and ptr mean depends on
 * it (see these flags above).
 */
extern void zpage_set_lock_slot(Page page, int slotno, uint64 flag, ZXid xid, UndoPtr ptr);

/*
 * zpage_can_grow_slots: returns true if the number of inline slots can be
 * raised to n, which takes 16 bytes of the hole for each.
 *
 * zpage_grow_slots: raises it to n, which moves the rows. The new slots are
 * free.
 */
extern bool zpage_can_grow_slots(Page page, int n);
extern void zpage_grow_slots(Page page, int n);

/*
 * zpage_undo: undoes the change of rows that rec describes. slotno is the slot
 * of rec's chain; payload has the len bytes of rec's uncompressed payload.
 * Slots are not changed; a row keeps ZH_STALE_KEYS and, unless rec is a LOCK,
 * its lock hint and lock tag. By the type of rec:
 *
 * - INSERT: the line pointers of the rows become LP_DEAD, and keep their rooms.
 *
 * - UPDATE: the row gets its old bytes and header.
 *
 * - DELETE, MOVE: the row gets its old header; of an open DELETE, each row of
 * the range that is deleted under the slot (RANGE-3 in dml/).
 *
 * - LOCK: if rec is open, no row has the tag of the slot afterwards. If not, a
 * row with this tag has no hint of UPDATE (TAG-2 in dml/).
 *
 * Returns false, with the page unchanged, if the record does not fit the page,
 * which means corruption. A caller that must raise an error then, and changes
 * the page in a critical section, tries it on a copy first.
 */
extern bool zpage_undo(Page page, int slotno, const ZuRecord *rec, const char *payload, Size len);

/*
 * zpage_all_live: returns true if all line pointers in use have rows that are
 * neither deleted nor moved.
 */
extern bool zpage_all_live(Page page);

/*
 * zpage_stale_keys: fills offsets, if it is not NULL, with those of the live
 * rows that have ZH_STALE_KEYS. Returns their number.
 */
extern int	zpage_stale_keys(Page page, OffsetNumber *offsets);

/* What pruning does to one line pointer. */
typedef enum ZPruneAction
{
	ZPRUNE_STUB,				/* deleted or moved row, which has been saved
								 * -> stub */
	ZPRUNE_DEAD,				/* row or stub -> LP_DEAD */
	ZPRUNE_UNUSED,				/* row, stub or LP_DEAD -> LP_UNUSED */
	ZPRUNE_CUT,					/* live row: room becomes its length */
	ZPRUNE_UNSTALE,				/* live row: loses ZH_STALE_KEYS */
	ZPRUNE_KEEP					/* row that no snapshot needs, but whose line
								 * pointer must stay -> stub */
} ZPruneAction;

typedef struct ZPruneItem
{
	OffsetNumber offset;
	uint16		action;
} ZPruneItem;

/*
 * zpage_prune: does what the items say, compacts the rows, so that the hole has
 * all free space, and drops unused line pointers at the end.
 */
extern void zpage_prune(Page page, const ZPruneItem *items, int nitems);

/* zpage_gain: returns by how much zpage_prune(items) would enlarge the hole. */
extern int	zpage_gain(Page page, const ZPruneItem *items, int nitems);

/*
 * zpage_space_after: returns the length of the longest row that the page could
 * take after zpage_prune(items), and sets *off to the offset that
 * zpage_find_offset would return then. The result is negative if there would be
 * no space for a line pointer, *off InvalidOffsetNumber if there would be none
 * to give.
 */
extern int	zpage_space_after(Page page, const ZPruneItem *items, int nitems, OffsetNumber *off);

/*
 * zpage_check: tests PAGE-1 to PAGE-3 and PAGE-7, calls report for each fault
 * and returns their number. nslots_total is explained at the top of this file.
 * The page may have any contents.
 */
typedef void (*ZCheckReport) (void *arg, const char *invariant, OffsetNumber off,
							  const char *fmt,...) pg_attribute_printf(4, 5);
extern int	zpage_check(Page page, int nslots_total, ZCheckReport report, void *arg);

#endif
