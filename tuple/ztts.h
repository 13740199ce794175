/*
 * tuple/ztts.h - the TupleTableSlot of zheap tables.
 *
 * A slot holds one version of one row: either bytes borrowed from a scan's
 * private copy of a page, valid until the scan moves to another block (SCAN-1
 * in scan/), or a copy of its own. It never points into a shared buffer, since
 * the bytes of a page can change while it is only pinned.
 */
#ifndef ZUNDO_ZTTS_H
#define ZUNDO_ZTTS_H

#include "executor/tuptable.h"
#include "tuple/ztuple.h"

/*
 * The number of leading fixed-length by-value columns that are read without
 * consulting the descriptor.
 */
#define ZTTS_PREFIX 16

/*
 * With up to five columns it takes 256 bytes of the executor's memory; every
 * statement makes some.
 */
typedef struct ZHeapSlot
{
	TupleTableSlot base;
	const char *row;			/* the version's bytes, NULL if virtual */
	char	   *own;			/* own storage (tts_mcxt), grown as needed */
	char	   *scratch;		/* for ZDeform */
	uint32		len;			/* of row */
	uint32		own_size;
	uint32		scratch_size;
	int32		scratch_extra;	/* needed beyond the row's length; -1 = not
								 * known yet */
	ZDeform		deform;

	/*
	 * The author of this version, for system columns. While author_known is
	 * false, it can be found by following the undo chain that begins at
	 * 'chain'.
	 */
	ZXid		xmin;			/* 0 = visible to all */
	UndoPtr		author;			/* its undo record if xmin is not 0; Invalid =
								 * not known */
	ZXid		xmax;			/* locker or replacer of the version if the
								 * caller asked for it, else 0 */
	ZXid		chain_xid;
	UndoPtr		chain;			/* newest record of the row's slot when it was
								 * read */
	CommandId	cmin;
	TransactionId token;		/* what xmin shows (TOKEN-1); 0: not computed
								 * yet; or ZTTS_NAMES_AUTHOR */
	RelFileNumber relnumber;
	bool		author_known;
	bool		own_formed;		/* 'own' was formed from values, so it has no
								 * count */
	int8		nprefix;		/* columns in prefix; -1 = not known yet, -2 =
								 * no row was read yet either */
	uint8		prefix_end[ZTTS_PREFIX];	/* bytes up to the column's end */
} ZHeapSlot;

/*
 * The TID of a row that a lock has found updated in place since the snapshot
 * (GUARD-4 in guard/): its own with this bit, which no offset has. Only slots
 * show it.
 */
#define ZTID_NEWER	0x4000

/* ztid_is_newer: returns whether the TID has this bit; a handle has not. */
static inline bool
ztid_is_newer(const ItemPointerData *tid)
{
	return (ItemPointerGetOffsetNumberNoCheck(tid) & 0xC000) == ZTID_NEWER;
}

/* ztid_real: returns the TID of the row itself. */
static inline ItemPointerData
ztid_real(const ItemPointerData *tid)
{
	ItemPointerData real = *tid;

	if (unlikely(ztid_is_newer(tid)))
		real.ip_posid &= ~ZTID_NEWER;
	return real;
}

/*
 * As the token of a slot: the server has filled it to ask whether our
 * transaction has written the version, so xmin shows our id if it has
 * (TOKEN-3). No row has this token.
 */
#define ZTTS_NAMES_AUTHOR	((TransactionId) 1)

extern const TupleTableSlotOps TTSOpsZHeap;

#define TTS_IS_ZHEAP(slot) ((slot)->tts_ops == &TTSOpsZHeap)

/*
 * ztts_is_zheap: returns whether rel has the table access method zheap, by
 * whatever name. Reads no catalog.
 */
extern bool ztts_is_zheap(Relation rel);

/*
 * ztts_store_borrowed: makes the slot show the len bytes at row, which must
 * stay valid until the slot is cleared, materialized or gets another row. Sets
 * tts_tid and tts_tableOid.
 */
extern void ztts_store_borrowed(TupleTableSlot *slot, const char *row, uint32 len,
								ItemPointer tid, Oid tableoid);

/*
 * ztts_show: does ztts_store_borrowed and ztts_set_chain in one, for scans.
 * The row is at (block, off), and the head of its page slot's chain is
 * (chain_xid, chain); chain 0 means visible to all.
 */
static inline void
ztts_show(TupleTableSlot *slot, const char *row, uint32 len, BlockNumber block, OffsetNumber off,
		  Oid tableoid, ZXid chain_xid, UndoPtr chain, RelFileNumber relnumber)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	Assert(TTS_IS_ZHEAP(slot));
	z->row = row;
	z->len = len;
	z->author_known = (chain == InvalidUndoPtr);
	z->xmin = InvalidZXid;
	z->cmin = FirstCommandId;
	z->xmax = InvalidZXid;
	z->token = InvalidTransactionId;
	z->chain_xid = chain_xid;
	z->chain = chain;
	z->relnumber = relnumber;
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	slot->tts_nvalid = 0;
	ItemPointerSetBlockNumber(&slot->tts_tid, block);
	ItemPointerSetOffsetNumber(&slot->tts_tid, off);
	slot->tts_tableOid = tableoid;
}

/* ztts_store_copy: copies the row to the slot's own memory. */
extern void ztts_store_copy(TupleTableSlot *slot, const char *row, uint32 len,
							ItemPointer tid, Oid tableoid);

/*
 * ztts_set_author: notes that transaction xmin (0 = visible to all) has
 * written the version in command cmin, with the undo record 'author'. The slot
 * may hold virtual contents. ztts_set_xmax: sets the value of the system
 * column xmax, 0 if none. ztts_set_chain: sets the chain in which the author
 * is looked up when a system column is read. See ZHeapSlot. Called after a
 * store.
 */
extern void ztts_set_author(TupleTableSlot *slot, ZXid xmin, CommandId cmin, UndoPtr author);
extern void ztts_set_xmax(TupleTableSlot *slot, ZXid xmax);
extern void ztts_set_chain(TupleTableSlot *slot, ZXid chain_xid, UndoPtr chain,
						   RelFileNumber relnumber);

/*
 * ztts_lookup_author_hook: finds xmin, cmin and the author's record of the
 * version in the slot by its chain. Set by zundo.c to a function of mvcc/,
 * which tuple/ does not depend on.
 */
extern void (*ztts_lookup_author_hook) (ZHeapSlot *slot);

/*
 * ztts_author_xid_hook: returns the id that xmin shows instead of the token, or
 * InvalidTransactionId (TOKEN-3, TOKEN-4 in mvcc/). names_author: the caller
 * asks whether our transaction has written the version. Set by zundo.c to a
 * function of mvcc/.
 */
extern TransactionId (*ztts_author_xid_hook) (ZHeapSlot *slot, bool names_author);

/*
 * ztts_name_author: has xmin of the slot show our own id from now on if our
 * transaction has written the version (TOKEN-3). Called after a store.
 *
 * ztts_stored: tells the slot that this row has been stored of its contents, so
 * that xmin shows of the slot what a scan will show of the row (TOKEN-2). Needs
 * to be called only where the bytes behind the header differ from those that
 * the slot has, or would be formed with.
 *
 * ztts_differs: returns whether the slot has bytes of its own that are not
 * those of row, which ztts_form_row has returned.
 *
 * ztts_shows: returns whether xmin of the slot shows the token of this row. For
 * assertions.
 */
static inline bool
ztts_differs(const TupleTableSlot *slot, const char *row)
{
	const ZHeapSlot *z = (const ZHeapSlot *) slot;

	return TTS_IS_ZHEAP(slot) && z->row != NULL && z->row != row;
}

extern void ztts_name_author(TupleTableSlot *slot);
extern void ztts_stored(TupleTableSlot *slot, const char *row, Size len);
extern bool ztts_shows(TupleTableSlot *slot, const char *row, Size len);

/*
 * ztts_form_row: returns the bytes of the row in any slot and sets *len.
 * These are the slot's own bytes if it is a TTSOpsZHeap slot whose row has all
 * columns of desc, with its count if it has one; else a row that is formed in
 * palloc'd memory.
 *
 * ztts_length: returns the length, without its count, of a row that
 * ztts_form_row has returned for this slot. Raises ERRCODE_DATA_CORRUPTED.
 */
extern const char *ztts_form_row(TupleTableSlot *slot, TupleDesc desc, uint32 *len);
extern uint32 ztts_length(TupleTableSlot *slot, const char *row, uint32 len);

/*
 * ztts_formed: returns whether the bytes that ztts_form_row has returned were
 * formed from the slot's values, and so have no count.
 */
static inline bool
ztts_formed(const TupleTableSlot *slot, const char *row)
{
	const ZHeapSlot *z = (const ZHeapSlot *) slot;

	return !TTS_IS_ZHEAP(slot) || row != z->row || (row == z->own && z->own_formed);
}

#endif
