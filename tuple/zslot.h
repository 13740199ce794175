/*
 * tuple/zslot.h - the TupleTableSlot of zheap tables.
 *
 * A slot holds one version of one row: either bytes borrowed from a scan's
 * private page copy (valid until the scan moves on; the usual contract of scan
 * slots), or its own copy. Never a pointer into a shared buffer: page bytes
 * can change under a pin.
 */
#ifndef ZUNDO_ZSLOT_H
#define ZUNDO_ZSLOT_H

#include "executor/tuptable.h"
#include "tuple/ztuple.h"

/* Leading fixed-length by-value columns that are read without looking at the descriptor. */
#define ZSLOT_PREFIX 16

typedef struct ZHeapSlot
{
	TupleTableSlot base;
	const char *row;			/* the version's bytes, NULL if virtual */
	uint32		len;
	char	   *own;			/* own storage (tts_mcxt), grown as needed */
	uint32		own_size;
	char	   *scratch;		/* for ZDeform */
	Size		scratch_size;
	int32		scratch_extra;	/* scratch beyond the row's length; 0 = no column needs any, -1 = not yet known */
	ZDeform		deform;
	int8		nprefix;		/* columns in prefix; -1 = not known yet */
	uint8		prefix_len[ZSLOT_PREFIX];
	uint8		prefix_end[ZSLOT_PREFIX];	/* bytes up to the column's end */
	/*
	 * Who wrote this version, for system columns: known, or to be looked up from
	 * (writer_known false): the chain of undo from 'chain'.
	 */
	bool		writer_known;
	ZXid		xmin;			/* 0 = visible to all */
	CommandId	cmin;
	UndoPtr		writer;			/* its record, if xmin is not 0; Invalid = not known */
	ZXid		xmax;			/* who has locked or replaced the version, where the caller was to see that; else 0 */
	ZXid		chain_xid;
	UndoPtr		chain;			/* newest record of the row's slot when it was read */
	RelFileNumber relnumber;
} ZHeapSlot;

extern const TupleTableSlotOps TTSOpsZHeap;

#define TTS_IS_ZHEAP(slot) ((slot)->tts_ops == &TTSOpsZHeap)

/* zslot_store_borrowed: show len bytes at row, which stay valid as the scan contract says. Sets tts_tid, tts_tableOid. */
extern void zslot_store_borrowed(TupleTableSlot *slot, const char *row, uint32 len,
								 ItemPointer tid, Oid tableoid);

/*
 * zslot_show: zslot_store_borrowed and zslot_set_chain in one, for scans: the
 * row at (block, off) whose slot's head is (chain_xid, chain); chain 0 = visible to all.
 */
static inline void
zslot_show(TupleTableSlot *slot, const char *row, uint32 len, BlockNumber block, OffsetNumber off,
		   Oid tableoid, ZXid chain_xid, UndoPtr chain, RelFileNumber relnumber)
{
	ZHeapSlot  *z = (ZHeapSlot *) slot;

	z->row = row;
	z->len = len;
	z->writer_known = (chain == InvalidUndoPtr);
	z->xmin = InvalidZXid;
	z->cmin = FirstCommandId;
	z->xmax = InvalidZXid;
	z->chain_xid = chain_xid;
	z->chain = chain;
	z->relnumber = relnumber;
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	slot->tts_nvalid = 0;
	ItemPointerSetBlockNumber(&slot->tts_tid, block);
	ItemPointerSetOffsetNumber(&slot->tts_tid, off);
	slot->tts_tableOid = tableoid;
}

/* zslot_store_copy: copy the row into the slot's own storage. */
extern void zslot_store_copy(TupleTableSlot *slot, const char *row, uint32 len,
							 ItemPointer tid, Oid tableoid);

/* zslot_set_writer / zslot_set_xmax / zslot_set_chain: see ZHeapSlot. Call after a store. */
extern void zslot_set_writer(TupleTableSlot *slot, ZXid xmin, CommandId cmin, UndoPtr writer);
extern void zslot_set_xmax(TupleTableSlot *slot, ZXid xmax);
extern void zslot_set_chain(TupleTableSlot *slot, ZXid chain_xid, UndoPtr chain, RelFileNumber relnumber);

/* zslot_writer: make the writer known by looking for it; false if the slot holds virtual contents of nobody in particular. */
extern bool zslot_writer(TupleTableSlot *slot);

/*
 * zslot_lookup_writer_hook: set by mvcc/: finds xmin and cmin of the version
 * in slot by its chain; so that tuple/ need not know undo/.
 */
extern void (*zslot_lookup_writer_hook) (ZHeapSlot *slot);

/* zslot_forgotten_xmin_hook: set by mvcc/: returns what xmin shows where the writer is not known any more. */
extern TransactionId (*zslot_forgotten_xmin_hook) (const ZHeapSlot *slot);

/*
 * zslot_form_row: the row of any slot as zheap bytes: for a TTSOpsZHeap slot with
 * all columns of desc and no missing ones, its own bytes; else formed into palloc'd memory.
 * *len = its size.
 */
extern const char *zslot_form_row(TupleTableSlot *slot, TupleDesc desc, uint32 *len);

#endif
