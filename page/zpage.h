/*
 * page/zpage.h - the table page: layout, accessors and mutators.
 *
 * Mutators take a page that the caller holds exclusively. They take no locks,
 * write no WAL and no undo, and cannot fail: DML, rollback and redo call the
 * same ones; what they need was checked in the prepare phase.
 *
 *	0         PageHeaderData (24); pd_prune_xid is 0, so that heap's readers prune nothing
 *	24        line pointers (ItemIdData, 4 each), at most ZHEAP_MAX_OFFSET
 *	pd_lower  hole
 *	pd_upper  rows, unaligned
 *	pd_special slots n .. 1, 16 bytes each: slot i at BLCKSZ - 16 - 16*i
 *	8176      trailer (16): see ZPageTrailer
 *
 * Line pointer states:
 *	LP_UNUSED	free for a new row
 *	LP_NORMAL	lp_off, lp_len = the row's room (>= its length, the rest is slack)
 *	LP_REDIRECT stub of a deleted or moved row whose bytes are gone: lp_off = slot
 *				number, lp_len = state (2 or 3)
 *	LP_DEAD		dead to everybody; index entries may point here; lp_off = lp_len = 0
 *
 * Invariants (checked by zpage_check):
 *	P1	pd_lower/pd_upper/pd_special are consistent; special size = 16 + 16*nslots,
 *		1 <= nslots; the seal is ZPAGE_VERSION + pd_upper and pd_prune_xid is 0, which heap's functions,
 *		where C code lets them loose on a zheap table, leave behind otherwise (zpage_fault).
 *	P2	every LP_NORMAL item lies inside [pd_upper, pd_special); items don't overlap.
 *	P3	a row's header: zero bits zero, slot <= nslots_total of zpage_check, length (room - slack) >= header + bitmap.
 *	P4	a stub's slot is <= nslots_total and >= 1, its state is 2 or 3.
 *	P5	at most ZHEAP_MAX_OFFSET line pointers.
 *	P6	a row in state deleted or moved whose writer is not known committed has its bytes.
 *	P7	slot xid 0 <=> slot pointer 0.
 *	P8	with an overflow page the number of inline slots does not change.
 *	P9	a slot that holds only locks was free, or its owner's own without any change, when it became
 *		one: no row is hidden or shown by it.
 *	P10	a page whose bit in the visibility map is set (dml/zvisible.c) has PD_ALL_VISIBLE; every row is live and was
 *		last changed before `oldest`; no other line pointer is in use. Row locks do not matter. The flag
 *		without the bit says nothing, and nobody but who clears the bit looks at it (VM3).
 * A slot number above the present number of slots means "visible to all": an overflow page
 * is taken away when all its slots are older than everybody. The trailer remembers that there was one, so
 * P3 and P4 hold with nslots_total = number of slots on a page that never had one, ZPAGE_MAX_SLOTS on others.
 */
#ifndef ZUNDO_ZPAGE_H
#define ZUNDO_ZPAGE_H

#include "common/zundo.h"
#include "storage/bufpage.h"
#include "tuple/ztuple.h"
#include "undo/undo_record.h"

typedef struct ZPageSlot
{
	uint64		xid_flags;		/* bits 0-47 xid of the newest record's writer, 48-63 flags */
	UndoPtr		ptr;			/* newest record; 0 if unused */
} ZPageSlot;

StaticAssertDecl(sizeof(ZPageSlot) == 16, "ZPageSlot is 16 bytes on disk");

/* Slot flags (shifted). */
#define ZSLOT_INLINE_LOCKS	(UINT64CONST(1) << 48)	/* ptr holds up to 5 locks of the owner */
#define ZSLOT_COMMON_LOCKS	(UINT64CONST(1) << 49)	/* ptr: newest LOCKS record; xid: youngest locker named there or below */
#define ZSLOT_LOCKS_ONLY	(ZSLOT_INLINE_LOCKS | ZSLOT_COMMON_LOCKS)

#define ZSLOT_XID(s)		((ZXid) ((s)->xid_flags & ZXID_MASK))

/*
 * The locks in a slot with ZSLOT_INLINE_LOCKS: up to 5 of 12 bits each from the lowest on, without a gap: bits 0-8 offset,
 * 9-11 LockTupleMode + 1. Never 0.
 */
#define ZINLINE_MAX_LOCKS	5
#define ZINLINE_BITS		12
#define ZINLINE_OFFSET(l)	((OffsetNumber) ((l) & 0x1FF))	/* of the lowest one */
#define ZINLINE_MODE(l)		((int) (((l) >> 9) & 7) - 1)

/* zinline_add: locks with one more, or with that row's lock made as strong; 0 if there is no room for it. */
extern UndoPtr zinline_add(UndoPtr locks, OffsetNumber off, int mode);

/* zinline_mode: the strength in which locks hold the row at off; -1 = not at all. */
extern int	zinline_mode(UndoPtr locks, OffsetNumber off);

/* zslot_locks_only: the slot is no chain of changes; rows whose headers name it are visible to all (P9). */
static inline bool
zslot_locks_only(const ZPageSlot *slot)
{
	return (slot->xid_flags & ZSLOT_LOCKS_ONLY) != 0;
}

/* zpage_slot_writer: whose changes the slot's chain begins with; 0 = it has none that anybody could ask for. */
static inline ZXid
zpage_slot_writer(const ZPageSlot *slot)
{
	return zslot_locks_only(slot) ? InvalidZXid : ZSLOT_XID(slot);
}

typedef struct ZPageTrailer
{
	UndoPtr		image;			/* newest page image in undo (mvcc/README.md), 0 = none */
	BlockNumber overflow;		/* undo block with more slots, or ZPAGE_NO_OVERFLOW, ZPAGE_HAD_OVERFLOW */
	uint16		seal;			/* ZPAGE_VERSION + pd_upper: whoever moved pd_upper knows this format */
	uint16		debt;			/* undo bytes pushed on live chains since the last image, saturating; with
								 * an overflow page, of which no images are made, the count of that page's
								 * changes (O1 in page/zoverflow.h) */
} ZPageTrailer;

StaticAssertDecl(sizeof(ZPageTrailer) == 16, "ZPageTrailer is 16 bytes on disk");

/* A page without an overflow page never had one; or had one: then rows may name slots that are no more. */
#define ZPAGE_NO_OVERFLOW	InvalidBlockNumber
#define ZPAGE_HAD_OVERFLOW	((BlockNumber) 0)

#define ZPAGE_VERSION		0x7A01
#define ZPAGE_INITIAL_SLOTS 4
#define ZPAGE_MAX_INLINE_SLOTS 64
#define ZPAGE_MAX_SLOTS		511

static inline ZPageTrailer *
zpage_trailer(Page page)
{
	return (ZPageTrailer *) ((char *) page + BLCKSZ - sizeof(ZPageTrailer));
}

/* zpage_version: the format of the page, if it is zheap's at all. */
static inline uint16
zpage_version(Page page)
{
	return zpage_trailer(page)->seal - ((PageHeader) page)->pd_upper;
}

/* zpage_set_upper: sets the lower end of the rows, and the seal with it (P1). */
static inline void
zpage_set_upper(Page page, int upper)
{
	((PageHeader) page)->pd_upper = upper;
	zpage_trailer(page)->seal = ZPAGE_VERSION + upper;
}

/* zpage_has_overflow: are there slots on an overflow page? */
static inline bool
zpage_has_overflow(Page page)
{
	BlockNumber overflow = zpage_trailer(page)->overflow;

	return unlikely(overflow != ZPAGE_NO_OVERFLOW && overflow != ZPAGE_HAD_OVERFLOW);
}

/* zpage_set_overflow: attaches overflow page 'block', whose changes count from that number on (O1), or takes it away (0). */
static inline void
zpage_set_overflow(Page page, BlockNumber block, uint16 changes)
{
	zpage_trailer(page)->overflow = block != 0 ? block : ZPAGE_HAD_OVERFLOW;
	zpage_trailer(page)->debt = block != 0 ? changes : 0;
}

/* zpage_count_overflow_change: a slot on the page's overflow page is changed (O1). */
static inline void
zpage_count_overflow_change(Page page)
{
	Assert(zpage_has_overflow(page));
	zpage_trailer(page)->debt++;
}

/* zpage_nslots: number of inline slots. */
static inline int
zpage_nslots(Page page)
{
	return (BLCKSZ - ((PageHeader) page)->pd_special - sizeof(ZPageTrailer)) / sizeof(ZPageSlot);
}

/* zpage_slot: inline slot i, 1 <= i <= zpage_nslots. */
static inline ZPageSlot *
zpage_slot(Page page, int i)
{
	return (ZPageSlot *) ((char *) page + BLCKSZ - sizeof(ZPageTrailer) - i * sizeof(ZPageSlot));
}

/* zpage_hole: bytes between the line pointers and the rows. */
static inline int
zpage_hole(Page page)
{
	return ((PageHeader) page)->pd_upper - ((PageHeader) page)->pd_lower;
}

static inline char *
zpage_row(Page page, ItemId lp)
{
	return (char *) page + ItemIdGetOffset(lp);
}

/* zpage_row_length: length of the row (room less slack) at an LP_NORMAL line pointer. */
extern int	zpage_row_length(Page page, ItemId lp);
/* zrow_length: the same from the bytes: room bytes at row. */
extern int	zrow_length(const char *row, int room);

/* zpage_init: an empty page with ZPAGE_INITIAL_SLOTS slots. */
extern void zpage_init(Page page);

/* zpage_is_valid: looks like a table page of ours (version, P1)? New (all-zero) pages are not. */
extern bool zpage_is_valid(Page page);

/*
 * zpage_fault: says in a sentence what is wrong with a page or one of its line
 * pointers that was found wrong. Tolerates any bytes.
 */
extern const char *zpage_fault(Page page);

/*
 * zpage_item_ok: can the line pointer at off, if there is one, be followed: does a row lie
 * inside the row area (P2)? The page is valid or not: tolerates any bytes.
 */
extern bool zpage_item_ok(Page page, OffsetNumber off);

/* zpage_rows_ok: are P1, P5 and P2 kept as far as copying and moving the rows needs it? Tolerates any bytes. */
extern bool zpage_rows_ok(Page page);

/*
 * zpage_find_offset: offset for a new row: an LP_UNUSED one below the maximum, else
 * max + 1; InvalidOffsetNumber if ZHEAP_MAX_OFFSET is reached.
 */
extern OffsetNumber zpage_find_offset(Page page);

/* zpage_room_for: can a new row of len bytes be put at off without compaction? (counts a new line pointer) */
extern bool zpage_room_for(Page page, OffsetNumber off, Size len);

/* zpage_put_row: new LP_NORMAL at off (unused, or max + 1) with these bytes. */
extern void zpage_put_row(Page page, OffsetNumber off, const char *row, Size len);

/*
 * zpage_replace_row: the row at off becomes these bytes (header included). Fits if len <= room,
 * else takes a new area from the hole (zpage_replace_fits). Maintains slack and
 * keeps room.
 */
extern bool zpage_replace_fits(Page page, OffsetNumber off, Size len);
extern void zpage_replace_row(Page page, OffsetNumber off, const char *row, Size len);

/* zpage_set_header: replace the header of the row at off; slack is kept as it is on the page. */
extern void zpage_set_header(Page page, OffsetNumber off, ZHeader h);

extern void zpage_set_slot(Page page, int slotno, ZXid xid, UndoPtr ptr);

/* zpage_set_lock_slot: the slot holds locks only; flag is ZSLOT_INLINE_LOCKS or ZSLOT_COMMON_LOCKS, xid and ptr as these say. */
extern void zpage_set_lock_slot(Page page, int slotno, uint64 flag, ZXid xid, UndoPtr ptr);

/* zpage_grow_slots: make it n inline slots; the hole must have 16 bytes for each new one. Moves rows. */
extern bool zpage_can_grow_slots(Page page, int n);
extern void zpage_grow_slots(Page page, int n);

/*
 * zpage_undo: undo one row change on the page (not LOCK or IMAGE, which change no row): rec's effect disappears.
 * INSERT: line pointers become LP_DEAD. UPDATE: old bytes and header come back.
 * DELETE, MOVE: the old header comes back. Lock hint bits stay as they are on the page.
 * payload: rec's raw payload (uncompressed), len bytes. False if the record does not
 * fit the page (corruption): then nothing was changed. Does not touch slots. Call outside the critical
 * section on a copy first where failure must be an ERROR.
 */
extern bool zpage_undo(Page page, const ZuRecord *rec, const char *payload, Size len);

/* zpage_all_live: is every line pointer in use a row that is neither deleted nor moved? */
extern bool zpage_all_live(Page page);

/* What pruning does to one line pointer. */
typedef enum ZPruneAction
{
	ZPRUNE_STUB,				/* deleted/moved row -> stub with its slot and state */
	ZPRUNE_DEAD,				/* row or stub -> LP_DEAD */
	ZPRUNE_UNUSED,				/* row, stub or LP_DEAD -> LP_UNUSED */
	ZPRUNE_CUT					/* live row: room becomes its length */
} ZPruneAction;

typedef struct ZPruneItem
{
	OffsetNumber offset;
	uint16		action;
} ZPruneItem;

/* zpage_prune: do the items, then compact the rows (hole becomes as large as can be), drop trailing LP_UNUSED. */
extern void zpage_prune(Page page, const ZPruneItem *items, int nitems);

/* zpage_compact: gather the rows at the page's end; dead areas join the hole. */
extern void zpage_compact(Page page);

/* zpage_gain: bytes that zpage_prune(items) would add to the hole. */
extern int	zpage_gain(Page page, const ZPruneItem *items, int nitems);

/*
 * zpage_check: test P1..P5, P7; report is called for each fault. Tolerates any bytes. nslots_total = inline + overflow.
 * Returns number of faults.
 */
typedef void (*ZCheckReport) (void *arg, const char *invariant, OffsetNumber off, const char *fmt,...) pg_attribute_printf(4, 5);
extern int	zpage_check(Page page, int nslots_total, ZCheckReport report, void *arg);

#endif
