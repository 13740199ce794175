/*
 * mvcc/zpageview.h - all rows of a page that a snapshot sees.
 */
#ifndef ZUNDO_ZPAGEVIEW_H
#define ZUNDO_ZPAGEVIEW_H

#include "mvcc/zslots.h"
#include "utils/snapshot.h"

/*
 * Flag in slotno: the version is older than the one on the page, so newer
 * records may lie above its author in the slot's chain.
 */
#define ZVIEW_REWOUND 0x8000

/* All rows of a page that a snapshot sees, in private memory. */
typedef struct ZPageView
{
	MemoryContext home;			/* has the view and all that belongs to it */
	MemoryContextCallback gone; /* called when home is deleted */
	int			used;			/* 1: it is not the spare one; else 0 */
	MemoryContext context;		/* for old versions; NULL until it is needed;
								 * reset before a page if the page before has
								 * used it */
	bool		context_used;
	char	   *arena;			/* the first 64 kB for old versions, kept from
								 * page to page; NULL until it is needed */
	uint32		nrecords;		/* undo records read through this view so far */
	int			nrows;
	OffsetNumber offset[ZHEAP_MAX_OFFSET + 1];
	const char *row[ZHEAP_MAX_OFFSET + 1];
	uint16		len[ZHEAP_MAX_OFFSET + 1];
	uint16		slotno[ZHEAP_MAX_OFFSET + 1];	/* slot that the version's
												 * header names, perhaps with
												 * ZVIEW_REWOUND */
	UndoPtr		chain[ZHEAP_MAX_OFFSET + 1];	/* of rows with ZVIEW_REWOUND:
												 * where the search for the
												 * version's author begins in
												 * its slot's chain */
	const OffsetNumber *read;	/* ascending offsets of the rows that are
								 * wanted; NULL = all */
	int			nread;
	uint64	   *unseen;			/* NULL, or a set of the user's, a bit for
								 * each offset, to which rows are added that
								 * the snapshot does not see */
	int			dead_rows;		/* rows deleted in the version that the
								 * snapshot sees, stubs and LP_DEAD items (for
								 * ANALYZE) */
	ZSlotView	slots;			/* as copied */
	PGAlignedBlock page;		/* the copy */
} ZPageView;

/*
 * zpageview_take: returns an empty view, whose memory is owner's until it is
 * given back. It is the backend's spare one, or one that rests, if there is
 * any.
 *
 * zpageview_give_back: makes the view the backend's spare one, or frees it if
 * there is one. Nobody may use its rows any more.
 *
 * zpageview_rest: says that *holder, which has a view, may never use it again:
 * zpageview_take may take the view away, and sets *holder to NULL then, unless
 * zpageview_wake was called for it before. *holder lives as long as the view's
 * owner.
 *
 * zpageview_nused: returns how many views have been taken and not given back.
 */
extern ZPageView *zpageview_take(MemoryContext owner);
extern void zpageview_give_back(ZPageView *view);
extern void zpageview_rest(ZPageView **holder);
extern void zpageview_wake(ZPageView *view);
extern int	zpageview_nused(void);

/*
 * zvis_page: fills view with the rows of buf that snapshot sees, in ascending
 * order of their offsets: with all of them, or only with those in view->read.
 * snapshot is MVCC, Self or Any; Any shows the newest version of each row that
 * is not aborted, unless that is a deletion. On entry and on return buf is
 * pinned and not locked, and undo is attached. Reports to SSI the changes of
 * these rows that a serializable snapshot does not see. The work is linear in
 * the number of undo records between the page and the snapshot. Raises
 * ERRCODE_DATA_CORRUPTED, but not for rows that are not wanted, and
 * ERRCODE_T_R_SERIALIZATION_FAILURE.
 *
 * A view with view->unseen, for an MVCC snapshot, is for rows that can be
 * fetched one by one as well. So it leaves out damaged rows without an error,
 * and all rows of a page that is damaged, has lost undo, or has thousands of
 * records or large ones; but undo that cannot be read is an error. Rows of
 * which the snapshot sees no version, as it has been read from undo, are added
 * to the set. The snapshot will see none at these offsets as long as
 * zu_oldest() is what it was before the call (zvis_deleted_rows).
 */
extern void zvis_page(Relation rel, Buffer buf, Snapshot snapshot, ZPageView *view);

/*
 * zpageview_chain: returns the record from which on the author of the view's
 * i-th row is to be looked for, and sets *xid to the owner of that slot.
 * InvalidUndoPtr: the version is visible to all.
 */
static inline UndoPtr
zpageview_chain(const ZPageView *view, int i, ZXid *xid)
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

#endif
