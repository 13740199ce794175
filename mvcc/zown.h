/*
 * mvcc/zown.h - what is known of own records without reading them.
 */
#ifndef ZUNDO_ZOWN_H
#define ZUNDO_ZOWN_H

#include "common/zundo.h"
#include "undo/undo.h"

/*
 * zown_note: we pushed the record ptr on prev, under cid, about n rows from
 * offset first on.
 */
extern void zown_note(RelFileNumber relnumber, BlockNumber block, OffsetNumber first, int n,
					  CommandId cid, UndoPtr ptr, UndoPtr prev);

/*
 * zown_skip: where to begin looking for the writer of the row at off in the
 * chain that begins at head.
 */
extern UndoPtr zown_skip(RelFileNumber relnumber, BlockNumber block, OffsetNumber off,
						 UndoPtr head);

/*
 * zown_below: head is the newest record of a chain, by a command of ours that
 * has changed many rows of the page, and concerns some row; where may older
 * records about that row begin? A command changes a row once.
 */
extern UndoPtr zown_below(RelFileNumber relnumber, BlockNumber block, UndoPtr head, UndoPtr prev);

/* zown_note_push: we push on the chain of committed transaction xid. */
extern void zown_note_push(ZXid xid);

/*
 * zown_note_rewrite: we push records with as_of, which our own snapshots may
 * not accept though they are ours, or in no order.
 */
extern void zown_note_rewrite(void);

/*
 * zown_settles: is all that lies below one of our own records on the page
 * accepted, if that was made before command (a snapshot's curcid)? Not if we
 * may have pushed, in this transaction, on a chain whose head one of our
 * snapshots does not see; nor if the page may have records of command or later
 * ones below that one.
 */
extern bool zown_settles(RelFileNumber relnumber, BlockNumber block, CommandId command);

/*
 * Our own records of one page, so that finding a change need not read all that
 * came later.
 */

/* One record of a chain: which rows it concerns. */
typedef struct ZChainEntry
{
	UndoPtr		ptr;
	OffsetNumber first;
	OffsetNumber last;			/* first > last: none */
} ZChainEntry;

/*
 * zown_chain: our own records in the chain that begins at head, oldest first;
 * *n = how many. Valid until the next call. Empty if the chain's head is not
 * ours.
 */
extern const ZChainEntry *zown_chain(RelFileNumber relnumber, BlockNumber block, UndoPtr head,
									 uint32 *n);

/*
 * zown_chain_find: the place of change in the chain asked for last; false if
 * it is not there.
 */
extern bool zown_chain_find(UndoPtr change, uint32 *at);

/*
 * Checkpoints: versions of rows of that page, remembered every so many steps
 * of a long walk, so that the next walk need not begin at the newest version.
 * zown_checkpoint: the oldest one of off that was made by record *at or a
 * later one of the chain; *at becomes that record's place. NULL = none.
 */
extern const char *zown_checkpoint(OffsetNumber off, uint32 *at, int *len);
extern void zown_keep_checkpoint(OffsetNumber off, uint32 at, const char *row, int len);

/* zown_at_xact_end: forgets everything. */
extern void zown_at_xact_end(void);

#endif
