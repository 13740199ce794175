/*
 * mvcc/zvis.h - which version of a row is visible, and which transaction wrote
 * it.
 *
 * Readers copy what they need under the page's share lock and walk undo
 * without it. mvcc/README.md has the rules VIS-n.
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
 * zvis_row_on: returns the row or stub at off of the page in buf, which stays
 * locked while the result is used.
 */
static inline ZRow
zvis_row_on(Relation rel, Buffer buf, OffsetNumber off, const ZSlotView *slots)
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
	 * For system columns. If author_known is set, xmin, cmin and author are;
	 * otherwise the author is looked for in the chain of a slot whose owner
	 * is chain_xid, from the record at chain on.
	 */
	bool		author_known;
	ZXid		xmin;
	CommandId	cmin;
	UndoPtr		author;			/* the record with which the author wrote the
								 * version */
	ZXid		xmax;			/* set by zany_fetch if the current command
								 * has replaced the version: the
								 * (sub)transaction that did so; else 0 */
	ZXid		chain_xid;
	UndoPtr		chain;
	ItemPointerData handle;		/* set by zany_fetch: the handle of the
								 * version (mvcc/zhandle.h); else invalid */
	ZXid		newest_xid;		/* for SSI: of the changes that the snapshot
								 * does not see, the author of the oldest; 0 =
								 * there is no such change */
	bool		walked;			/* set by zvis_fetch: a walk was needed */
	XLogRecPtr	lsn;			/* set by zvis_fetch unless walked: of the
								 * page when it had this row */
	char		buf[BLCKSZ];
} ZVersion;

/* zversion_copy: makes *to a copy of *from, which has been found. */
static inline void
zversion_copy(ZVersion *to, const ZVersion *from)
{
	Assert(from->found && from->len <= BLCKSZ);
	memcpy(to, from, offsetof(ZVersion, buf));
	memcpy(to->buf, from->row, from->len);
	to->row = to->buf;
}

/*
 * zvis_fetch: fetches the version of (buf, off) that snapshot (MVCC, Self,
 * Dirty, NonVacuumable) sees. On entry and on return buf is pinned and not
 * locked, and undo is attached. An offset beyond the page's last one gives
 * found = false. For Dirty sets snapshot->xmin, xmax and speculativeToken.
 * Sets *all_dead (unless all_dead is NULL) to true if the line pointer is
 * LP_DEAD or LP_UNUSED, or if the row is deleted or moved and its slot's owner
 * is before `oldest` or fulfils SCAN-6 (scan/zfetch.c); else to false, which
 * does not mean that the row is needed. Raises ERRCODE_DATA_CORRUPTED, and
 * ERRCODE_T_R_SERIALIZATION_FAILURE for what it reports to SSI.
 */
extern void zvis_fetch(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot,
					   ZVersion *version, bool *all_dead);

/*
 * zvis_fetch_at_once: does what zvis_fetch does, for an MVCC snapshot, if no
 * undo has to be read: there is no row, the owner of its slot is another
 * transaction whose changes the snapshot sees, or zvis_own_visible says so.
 * Returns whether it has done so; if not, buf is locked in share mode on
 * return.
 */
extern bool zvis_fetch_at_once(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot,
							   ZVersion *version);

/*
 * zvis_fetch_locked: does what zvis_fetch does, for SnapshotSelf, on a page
 * that the caller has locked and checked, if no undo has to be read: the row is
 * live, and its slot's owner is our transaction or has committed. Returns
 * whether it has done so.
 */
extern bool zvis_fetch_locked(Relation rel, Buffer buf, OffsetNumber off, ZVersion *version);

/*
 * zvis_deleted_rows: adds to the set rows, a bit for each offset, those rows of
 * the page in buf that other transactions have deleted or moved, the MVCC
 * snapshot sees that without undo, and they are not known to be dead to all.
 * The snapshot will see no row at these offsets as long as zu_oldest() is what
 * it was before the call: as long as that, no other row gets a line pointer
 * (prune_action in dml/zprune.c). On entry and on return buf is pinned and not
 * locked.
 */
extern void zvis_deleted_rows(Relation rel, Buffer buf, Snapshot snapshot, uint64 *rows);

/* ---- the author of the newest version, on a locked page ---- */

typedef struct ZAuthor
{
	ZXidStatus	status;
	ZXid		xid;			/* 0 if no record was read (ptr is 0) */
	CommandId	cid;
	UndoPtr		ptr;			/* the record that wrote the newest version, 0
								 * if it was not read */
	ZuRecordType type;
	uint16		xflags;
	ItemPointerData forward;	/* of a MOVE */
	TransactionId as_of;		/* of a rewrite's record: the transaction
								 * whose change it repeats; else Invalid */
	bool		visible;		/* the MVCC snapshot given sees the version;
								 * without one: it is own or committed */
} ZAuthor;

/*
 * zvis_own_visible: returns whether it is known, without reading undo, that the
 * MVCC snapshot sees the newest version of the row, whose slot is given: an
 * earlier command of our transaction wrote it, or another transaction did so
 * before (zown_accepts_row). The page is locked; row->slots is not used.
 */
extern bool zvis_own_visible(const ZRow *row, const ZPageSlot *slot, Snapshot snapshot);

/*
 * zvis_author: finds the transaction that wrote the newest version of row,
 * whose page the caller has locked (share or exclusive). For a live row the
 * search stops as soon as it is certain that the version is committed (with an
 * MVCC snapshot: visible to it), if possible without reading undo; then status
 * is ZXID_COMMITTED, visible is true, and ptr and xid are 0. The same holds,
 * with status ZXID_ALL_VISIBLE, if no record of the author is found, also for
 * a row that is not live. ZXID_ABORTED: the page must be rolled back first
 * (rollback/zrollback.h). Raises ERRCODE_DATA_CORRUPTED.
 */
extern void zvis_author(const ZRow *row, Snapshot snapshot, ZAuthor *author);

/*
 * zvis_deleters: finds the transactions that deleted or moved the rows of
 * which n stubs of a page are left, in one pass over each slot's chain. On
 * entry each stub has its offset and header; thorough means that the
 * whole chain may be read for it, else only its newest records are, since the
 * page is locked meanwhile. On return settled means that the row was deleted
 * before `oldest`; else deleter is the transaction, whatever its status, or 0
 * if it was not found. The caller holds the page's buffer locked since it has
 * copied slots.
 */
typedef struct ZStubDeleter
{
	OffsetNumber off;
	ZHeader		header;
	bool		thorough;
	bool		settled;
	ZXid		deleter;
} ZStubDeleter;

extern void zvis_deleters(const ZSlotView *slots, Relation rel, BlockNumber block,
						  ZStubDeleter *stubs, int n);

/*
 * zvis_overtaken: returns whether a change of row has committed that the MVCC
 * snapshot does not see; unfinished changes and our own may lie above it.
 * Fills *by with the newest such change: xid, record, type and flags. The page
 * is locked and has no aborted change of the row.
 */
extern bool zvis_overtaken(const ZRow *row, Snapshot snapshot, ZAuthor *by);

/*
 * zvis_key_overtaken: returns whether a change of row has committed that the
 * MVCC snapshot does not see and that excludes KEY SHARE locks. The page is
 * locked and has no aborted change of the row.
 */
extern bool zvis_key_overtaken(const ZRow *row, Snapshot snapshot);

/*
 * zvis_replaced_by: returns the id of the first of our commands that replaced
 * the version of row which command cid sees; InvalidCommandId if no record of
 * such a command is found. The newest version is ours, of cid or a later
 * command. The page is locked.
 */
extern CommandId zvis_replaced_by(const ZRow *row, CommandId cid);

/* zversion_show: copies the version into slot, under this TID. */
extern void zversion_show(Relation rel, const ZVersion *version, ItemPointer tid,
						  TupleTableSlot *slot);

/*
 * zvis_lookup_author: finds the author of a slot's version. Called through
 * ztts_lookup_author_hook (tuple/ztts.h).
 */
struct ZHeapSlot;
extern void zvis_lookup_author(struct ZHeapSlot *slot);

#endif
