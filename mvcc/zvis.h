/*
 * mvcc/zvis.h - which version of a row is visible, and who wrote it.
 *
 * Readers copy what they need under the page's share lock and walk undo
 * without it. The rules are PROTOCOLS A, D and E; mvcc/README.md has them in
 * the words of this code.
 */
#ifndef ZUNDO_ZVIS_H
#define ZUNDO_ZVIS_H

#include "executor/tuptable.h"
#include "mvcc/zslots.h"
#include "mvcc/zxid.h"

/* One row or stub on a page that is locked, or on a copy of a page. */
typedef struct ZRow
{
	Relation	rel;
	BlockNumber block;
	OffsetNumber off;
	Page		page;
	const ZSlotView *slots;		/* as read together with the page */
} ZRow;

/*
 * zrow_on: the row or stub at off of the page in buf, which stays locked while
 * the result is used.
 */
static inline ZRow
zrow_on(Relation rel, Buffer buf, OffsetNumber off, const ZSlotView *slots)
{
	ZRow		row = {rel, BufferGetBlockNumber(buf), off, BufferGetPage(buf), slots};

	return row;
}

/* ---- one row ---- */

/* One version of one row, in private memory. */
typedef struct ZVersion
{
	bool		found;			/* false: no version is visible */
	char	   *row;			/* -> buf */
	int			len;

	/*
	 * for system columns: the writer, or the chain of undo (and its slot's
	 * owner) in which to look for it
	 */
	bool		writer_known;
	ZXid		xmin;
	CommandId	cmin;
	UndoPtr		writer;			/* its record */
	ZXid		xmax;			/* zany_fetch: whose change of this command
								 * replaced the version; else 0 */
	ZXid		chain_xid;
	UndoPtr		chain;
	ItemPointerData handle;		/* zany_fetch: what to call the version
								 * (mvcc/zhandle.h); else invalid */
	ZXid		newest_xid;		/* SSI: first invisible writer above the
								 * visible version, 0 = none */
	char		buf[BLCKSZ];
} ZVersion;

/*
 * zvis_fetch: the version of (buf, off) visible to snapshot (MVCC, Self,
 * Dirty, NonVacuumable). On entry buf is pinned and not locked, undo is
 * attached; on return the same. For Dirty sets
 * snapshot->xmin/xmax/speculativeToken. An offset past the end gives found =
 * false. all_dead (may be NULL): set to true iff the line pointer is LP_DEAD,
 * LP_UNUSED, or a stub or deleted row dead to everybody.
 */
extern void zvis_fetch(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot,
					   ZVersion *version, bool *all_dead);

/* ---- the writer of the newest version (DML, VACUUM, index builds) ---- */

typedef struct ZRowWriter
{
	ZXidStatus	status;
	ZXid		xid;			/* 0 when ZXID_ALL_VISIBLE */
	CommandId	cid;
	UndoPtr		ptr;			/* the record that wrote the newest version, 0
								 * if unknown */
	ZuRecordType type;
	uint16		xflags;
	ItemPointerData forward;	/* of a MOVE */
	TransactionId as_of;		/* of a rewrite's record: whose change it
								 * stands for; else Invalid */
	bool		visible;		/* committed as of the snapshot given (MVCC) */
} ZRowWriter;

/*
 * zrow_writer: who wrote the newest version of row, which lies on a page that
 * the caller has locked (share or exclusive). If snapshot is an MVCC snapshot
 * and the slot's head is visible to it, answers status COMMITTED, visible =
 * true, ptr = 0, without reading undo. ZXID_ABORTED: the page must be rolled
 * back first (rollback/zrollback.h).
 */
extern void zrow_writer(const ZRow *row, Snapshot snapshot, ZRowWriter *writer);

/*
 * zpage_deleters: who deleted or moved on the rows of which n stubs of a page
 * were left, in one pass over each slot's chain. In: offset and slot number of
 * each; thorough = read its chain to the end if need be: else, since the page
 * is locked meanwhile, only the newest part is read. Out: settled = deleted
 * before `oldest`; else the deleter's id, whatever has become of him, 0 = not
 * found. The page's buffer is locked by the caller, slots copied from it.
 */
typedef struct ZStubDeleter
{
	OffsetNumber off;
	uint16		slotno;
	bool		thorough;
	bool		settled;
	ZXid		deleter;
} ZStubDeleter;

extern void zpage_deleters(const ZSlotView *slots, Relation rel, BlockNumber block,
						   ZStubDeleter *stubs, int n);

/*
 * zrow_overtaken: has a change of row committed that the MVCC snapshot does
 * not see, below unfinished ones and our own? *by = the newest such change:
 * xid, record, type and flags. Page locked, no aborted change of the row on
 * it.
 */
extern bool zrow_overtaken(const ZRow *row, Snapshot snapshot, ZRowWriter *by);

/*
 * zrow_replaced_by: returns the id of the first of our commands that replaced
 * the version of row which command cid sees. The newest version is ours, of
 * cid or a later command. Page locked.
 */
extern CommandId zrow_replaced_by(const ZRow *row, CommandId cid);

/* zversion_show: copy the version into slot, under this TID. */
extern void zversion_show(Relation rel, const ZVersion *version, ItemPointer tid,
						  TupleTableSlot *slot);

/* zvis_lookup_writer: what zslot_lookup_writer_hook (tuple/zslot.h) calls. */
struct ZHeapSlot;
extern void zvis_lookup_writer(struct ZHeapSlot *slot);

#endif
