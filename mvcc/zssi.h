/*
 * mvcc/zssi.h - predicate locks of serializable transactions.
 */
#ifndef ZUNDO_ZSSI_H
#define ZUNDO_ZSSI_H

#include "mvcc/zxid.h"

/*
 * zssi_before_read: note that we are about to read the version of (buf, off)
 * that the MVCC snapshot sees; whoever reads it afterwards reports the changes
 * that it does not see. buf is pinned and not locked, undo attached.
 */
extern void zssi_before_read(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot);

/*
 * zssi_before_write: the live newest version at off, which may be replaced, is
 * about to be. buf is locked exclusively. Error
 * ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
extern void zssi_before_write(Relation rel, Buffer buf, OffsetNumber off);

/*
 * zvis_conflict_out: tell SSI that a reader under snapshot did not see the
 * change by unseen (0 = none). Error ERRCODE_T_R_SERIALIZATION_FAILURE.
 */
extern void zvis_conflict_out(Relation rel, Snapshot snapshot, ZXid unseen);

#endif
