/*
 * mvcc/zpageview.h - all rows of a page that a snapshot sees.
 */
#ifndef ZUNDO_ZPAGEVIEW_H
#define ZUNDO_ZPAGEVIEW_H

#include "mvcc/zslots.h"
#include "utils/snapshot.h"

/*
 * An older version than the one on the page is shown: the head of the slot's
 * chain has newer ones too.
 */
#define ZVIEW_REWOUND 0x8000

/* All rows of a page that a snapshot sees, in private memory. */
typedef struct ZPageView
{
	MemoryContext context;		/* for old images; reset for every page that
								 * needs it */
	bool		context_used;
	char	   *arena;			/* first part of the old images' memory, kept
								 * from page to page */
	uint32		nrecords;		/* undo records read for it so far */
	int			nrows;
	OffsetNumber offset[ZHEAP_MAX_OFFSET + 1];
	const char *row[ZHEAP_MAX_OFFSET + 1];
	uint16		len[ZHEAP_MAX_OFFSET + 1];
	uint16		slotno[ZHEAP_MAX_OFFSET + 1];	/* slot that the version's
												 * header names, perhaps with
												 * ZVIEW_REWOUND */
	UndoPtr		chain[ZHEAP_MAX_OFFSET + 1];	/* of rows with ZVIEW_REWOUND:
												 * where their slot's chain
												 * goes on */
	const OffsetNumber *read;	/* ascending: SSI is told only of changes of
								 * these rows; NULL = of all */
	int			nread;
	int			dead_rows;		/* newest versions that are deleted (for
								 * ANALYZE) */
	ZSlotView	slots;			/* as copied */
	PGAlignedBlock page;		/* the copy */
} ZPageView;

extern ZPageView *zpage_view_create(void);	/* in CurrentMemoryContext */
extern void zpage_view_free(ZPageView *view);

/*
 * zvis_page: fill view with the rows of buf visible to snapshot (MVCC or Self;
 * SnapshotAny means: newest version of every row that is not known dead,
 * deleted ones excluded), in ascending offset order. On entry buf is pinned
 * and unlocked, undo attached; on return the same. Linear in the undo records
 * between the page and the snapshot. Tells SSI of the changes that a
 * serializable snapshot does not see (of the rows in view->read).
 */
extern void zvis_page(Relation rel, Buffer buf, Snapshot snapshot, ZPageView *view);

/*
 * zpage_view_chain: from where the writer of the view's i-th row is to be
 * looked for; *xid = the slot's. Invalid = visible to all.
 */
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

#endif
