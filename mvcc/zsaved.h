/*
 * mvcc/zsaved.h - what has left a table page: rows and whole pages that are
 * saved in undo, in the list that begins at the page's trailer.
 */
#ifndef ZUNDO_ZSAVED_H
#define ZUNDO_ZSAVED_H

#include "mvcc/zslots.h"
#include "undo/undo.h"

/* What zsaved_find found. */
typedef enum ZSavedResult
{
	ZSAVED_FOUND,
	ZSAVED_DISCARDED,			/* no snapshot needs the row (SAVED-2) */
	ZSAVED_MISSING				/* the list has no such row: damage */
} ZSavedResult;

/*
 * zsaved_find: looks down the list of a page of rel for the row that has become
 * the stub at off, and copies it to row (BLCKSZ bytes). list and the stub are
 * from the same copy of the page. Raises ERRCODE_DATA_CORRUPTED if a record of
 * the list cannot be read. zsaved_take: does the same, and raises that error
 * also for a row that is missing; returns false if it has been discarded.
 */
extern ZSavedResult zsaved_find(Relation rel, BlockNumber block, UndoPtr list, OffsetNumber off,
								char *row, int *len);
extern bool zsaved_take(Relation rel, BlockNumber block, UndoPtr list, OffsetNumber off,
						char *row, int *len);

/*
 * A walk down a list. zsaved_in_circle: notes that it has come to the record at
 * ptr; returns true, after twice as many records at the latest, if the list
 * leads back to itself: damage.
 */
typedef struct ZSavedPath
{
	UndoPtr		mark;			/* a record that has been passed */
	uint32		steps;			/* 0 at the beginning */
} ZSavedPath;

static inline bool
zsaved_in_circle(ZSavedPath *path, UndoPtr ptr)
{
	if (path->steps > 0 && ptr == path->mark)
		return true;
	if ((path->steps & (path->steps + 1)) == 0)
		path->mark = ptr;
	path->steps++;
	return false;
}

#endif
