/*
 * undo/undo_wal.h - layouts of the undo log's own WAL records.
 *
 * The comment above each struct lists the blocks and the data of its record.
 * Opcodes: common/rmgr.h; redo: undo/undo_redo.c.
 */
#ifndef ZUNDO_UNDO_WAL_H
#define ZUNDO_UNDO_WAL_H

#include "common/rmgr.h"
#include "storage/block.h"

/*----------
 * ZWAL_UNDO_MAP
 *	blocks 0, 1: both twins of the extent map page that has the entry;
 *		WILL_INIT with ZWAL_MAP_NEW_GROUP
 *	blocks 2, 3: both twins of the meta page, only with ZWAL_MAP_GROWS
 *	data: xl_undo_map. With ZWAL_MAP_RESOLVED only its flags are used, and an
 *		xl_undo_resolved follows for each extent.
 *----------
 */
#define ZWAL_MAP_GROWS	1		/* the number of extents grew */
#define ZWAL_MAP_NEW_GROUP 2	/* first extent of a group */
#define ZWAL_MAP_OVERFLOW 4		/* the extent is for slot overflow pages, not
								 * for a log */
#define ZWAL_MAP_RESOLVED 8		/* extents of one group get their summaries */

typedef struct xl_undo_map
{
	uint32		extent;
	uint32		generation;
	uint64		sequence;
	uint32		logno;
	uint32		nextents;		/* number of extents afterwards, for the meta
								 * page */
	uint32		floor;			/* generation of the new group's other extents */
	uint8		flags;
} xl_undo_map;

#define SizeOfUndoMap (offsetof(xl_undo_map, flags) + 1)

/* The summary of one resolved extent; fields of its map entry. */
typedef struct xl_undo_resolved
{
	uint64		oldest_top;
	uint64		newest;
	uint32		extent;
	uint32		end;
} xl_undo_resolved;

/*----------
 * ZWAL_UNDO_DISCARD
 *	blocks 0, 1: both twins of the meta page
 *	blocks 2, 3: both twins of the map page of the extents, if any
 *	data: xl_undo_discard, then the numbers (uint32) of nextents extents that
 *		become free, in ascending order
 *----------
 */
typedef struct xl_undo_discard
{
	uint64		oldest;			/* new value of the meta page's oldest */
	uint64		freeze_now;		/* new values of its freeze limit */
	uint64		freeze_next;
	uint64		freeze_after;
	uint64		doubt_from;		/* new values of its doubt window */
	uint64		doubt_to;
	TransactionId conflict;		/* standbys cancel the snapshots with an xmin
								 * up to this xid (UNDO-19); 0 = none */
	uint32		nextents;
} xl_undo_discard;

#define SizeOfUndoDiscard (offsetof(xl_undo_discard, nextents) + sizeof(uint32))

/*----------
 * ZWAL_UNDO_TRUNCATE
 *	blocks 0, 1: both twins of the meta page
 *	data: xl_undo_truncate
 * A record without data names up to 33 blocks that are about to be cut off
 * (UNDO-70). They are WILL_INIT, so that nobody reads them; replay passes the
 * record over.
 *----------
 */
typedef struct xl_undo_truncate
{
	uint32		nextents;		/* that remain */
	BlockNumber nblocks;		/* that remain; 0: nothing is cut off, the
								 * meta page was rebuilt with nextents, which
								 * may be more than before */
	uint32		floor;			/* newest generation ever cut off */
} xl_undo_truncate;

#define SizeOfUndoTruncate sizeof(xl_undo_truncate)

#endif
