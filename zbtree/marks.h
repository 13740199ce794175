/*
 * zbtree/marks.h - marking entries as dead that young snapshots do not need, so
 * that their scans skip them.
 */
#ifndef ZUNDO_ZBTREE_MARKS_H
#define ZUNDO_ZBTREE_MARKS_H

#include "access/relscan.h"
#include "common/zundo.h"

/* The number of entries that are examined together. */
#define ZMARKS_NOTED	32

/*
 * Entries of the leaf page at which a scan is whose rows had no visible version
 * with the entry's key. All zero when the scan begins.
 */
typedef struct ZNotedEntries
{
	int			n;
	int			looked_at;		/* entries examined in this scan */
	int			fruitless;		/* calls of zmarks_set that found no entry
								 * marked or to be marked */
	uint16		items[ZMARKS_NOTED];	/* indexes in currPos.items of the
										 * scan */
} ZNotedEntries;

/*
 * zmarks_note: notes the entry that the scan returned last. Calls zmarks_set
 * when ZMARKS_NOTED entries have been noted. zmarks_set: marks those of the
 * noted entries that no snapshot with an xmin at or above the bound needs
 * (MARK-1), and forgets all noted entries. The scan is still at their leaf
 * page. No buffer lock may be held. Calls comparison functions.
 * zmarks_settled: returns whether an entry that does not belong to the newest
 * version of its row in the table may be marked, if this transaction, or an
 * earlier one, has written that version, and none in progress changes the row.
 * *unsettled, at first PG_UINT64_MAX, is for calls that follow one another:
 * from that transaction on the answer is no.
 */
extern void zmarks_note(IndexScanDesc scan, ZNotedEntries *noted);
extern void zmarks_set(IndexScanDesc scan, ZNotedEntries *noted);
extern bool zmarks_settled(Relation table, ZXid author, ZXid *unsettled);

#endif
