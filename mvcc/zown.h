/*
 * mvcc/zown.h - what a backend knows of its own undo records without reading
 * them.
 */
#ifndef ZUNDO_ZOWN_H
#define ZUNDO_ZOWN_H

#include "common/zundo.h"
#include "undo/undo.h"

/*
 * zown_note: notes that we pushed the record ptr on prev, under cid, about the
 * n rows that begin at offset first.
 */
extern void zown_note(RelFileNumber relnumber, BlockNumber block, OffsetNumber first, int n,
					  CommandId cid, UndoPtr ptr, UndoPtr prev);

/*
 * zown_note_covered: notes that the record ptr, which was noted, is about the
 * row at off, too.
 */
extern void zown_note_covered(OffsetNumber off, UndoPtr ptr);

/*
 * zown_skip: returns where the search for the author of the row at off may
 * begin in the chain with this head.
 */
extern UndoPtr zown_skip(OffsetNumber off, UndoPtr head);

/*
 * zown_below: returns where older records about a row may begin, given that
 * the record head concerns the row; prev is the record before head. If head is
 * the newest record of the run that zown_note has noted last, that is the
 * record below the run, since a command changes a row once; else prev.
 */
extern UndoPtr zown_below(UndoPtr head, UndoPtr prev);

/*
 * zown_note_push: notes that we push a record on a chain whose head is of the
 * committed transaction xid.
 */
extern void zown_note_push(ZXid xid);

/*
 * zown_note_rewrite: notes that we write records "as of" other transactions.
 * Our own snapshots may not accept all of these, and they are in no order of
 * commands.
 */
extern void zown_note_rewrite(void);

/*
 * zown_accepts_older: returns whether a reader of a chain of this page may
 * stop at the first record of our own transaction whose cid is less than
 * command (the curcid of a snapshot), because all records below it are
 * accepted too (VIS-3). It may not if this transaction may have pushed on a
 * chain whose head is invisible to one of its snapshots, nor if records whose
 * cid is not less than command may lie below.
 */
extern bool zown_accepts_older(RelFileNumber relnumber, BlockNumber block, CommandId command);

/*
 * zown_accepts_row: returns whether the row at off of this page is known to be
 * accepted without reading undo, given that its header names a slot with this
 * head and that the head's transaction is our own and has not been rolled back:
 * a snapshot with this curcid accepts all our records of the page, or all those
 * below the newest run, which does not concern the row. Records of rolled back
 * subtransactions are not among these: they are the newest ones of a chain,
 * since nothing is pushed on them (DML-3).
 */
extern bool zown_accepts_row(RelFileNumber relnumber, BlockNumber block, OffsetNumber off,
							 UndoPtr head, CommandId command);

/*
 * zown_nlate: returns a number that grows with each change of ours by a command
 * that has continued after others: a snapshot taken in between may see the
 * change though it did not see it before.
 *
 * zown_at_xact_end: forgets everything else.
 */
extern uint64 zown_nlate(void);
extern void zown_at_xact_end(void);

#endif
