/*
 * undo/damage/undo_resolved.h - transactions that the discard pass has found
 * aborted and has had undone, with the logs that had their records.
 */
#ifndef ZUNDO_UNDO_RESOLVED_H
#define ZUNDO_UNDO_RESOLVED_H

#include "common/zundo.h"

typedef struct ZuUndone
{
	ZXid		xid;
	uint32		logno;
} ZuUndone;

typedef struct ZuResolved
{
	int			n;
	int			size;
	bool		sorted;			/* items are in the order of their xids */
	ZuUndone   *items;
} ZuResolved;

/*
 * zu_note_resolved: notes in resolved, whose memory is in context, that xid was
 * undone from the log. zu_forget_resolved: drops the xids below oldest.
 */
extern void zu_note_resolved(ZuResolved *resolved, ZXid xid, uint32 logno, MemoryContext context);
extern void zu_forget_resolved(ZuResolved *resolved, ZXid oldest);

/*
 * zu_was_resolved: returns whether xid was found aborted, and was undone, in
 * another log than this one.
 */
extern bool zu_was_resolved(ZuResolved *resolved, ZXid xid, uint32 logno);

#endif
