/*
 * dml/zrowchange.h - the update or the deletion of one row, as the files that
 * make it pass it on: zupdate.c and zdelete.c are the entry points,
 * zrowchange.c acquires the row, zrowwrite.c writes the change.
 */
#ifndef ZUNDO_ZROWCHANGE_H
#define ZUNDO_ZROWCHANGE_H

#include "dml/zdml_internal.h"
#include "storage/bufmgr.h"

/* The row that an update puts in the old one's place. */
typedef struct Replacement
{
	char	   *row;			/* the header names no slot until it is
								 * applied */
	uint32		len;			/* with its count; valid on TM_Ok (TOKEN-5) */
	uint32		bare_len;		/* without a count; space for one follows */
	bool		toasted;
	const char *values;			/* the row before toasting, for comparison:
								 * toasting may move values that have not
								 * changed */
	uint32		values_len;
	const ZIndexColumns *columns;

	/*
	 * The last result of zcomputed_differ; it is valid for this old row and
	 * this reading of the columns (COMPUTED-2).
	 */
	char	   *evaluated;		/* old row without its header, or NULL */
	Size		evaluated_len;
	uint64		evaluated_reading;
	int			computed_differ;	/* an index, -1: none */
	int			evaluations;
	/* result of comparing it with the row on the page */
	bool		undecided;		/* zcomputed_differ must be called */
	bool		in_place;		/* no index needs a new entry, apart from
								 * those of new_keys and summarizing */
	bool		new_keys;		/* zbtree indexes may need new entries, which
								 * the update in place adds (ZBTREE-3), or
								 * entries may become stale */
	bool		new_content;	/* a column of a zbtree index or of its
								 * predicate changes: the entries made before
								 * may have other bytes than the row, or not
								 * be its any more (ZBTREE-7) */
	bool		summarizing;	/* a column of a block-summarizing index
								 * changes */
	bool		event;			/* an AFTER row trigger's event may be queued */
} Replacement;

/* The update or the deletion of one row, from its start to its end. */
typedef struct RowChange
{
	ZWriter		writer;
	ItemPointerData tid;
	Buffer		buf;
	Replacement *replacement;	/* NULL: the row is deleted */
	LockTupleMode mode;			/* strength in which the change excludes locks */
	bool		must_move;		/* the row will get a new TID, and no other
								 * transaction may hold a lock on it */
	bool		have_tuple_lock;	/* the heavyweight lock for waiting is
									 * held */
	LockTupleMode queued;		/* mode of that lock */
	bool		locked;			/* our transaction had locked the row before
								 * this change */
	bool		only_header;	/* nothing else is read of the old row, unless
								 * it has values out of line */
	const Bitmapset *identity;	/* columns of the replica identity, if the
								 * change is to be decoded */
	ZSlotPick	pick;			/* slot of the old page; void when the page is
								 * unlocked */
	/* fields from here on are not set before the page is locked */
	ZRowState	state;
	Size		oldlen;			/* length of oldrow: the row that is replaced
								 * or deleted, copied under the lock as far as
								 * it is needed */
	char		oldrow[BLCKSZ];
} RowChange;

/* Return the place of the row that is changed, as offset and block. */
static inline OffsetNumber
zrowchange_offset(const RowChange *u)
{
	return ItemPointerGetOffsetNumber(&u->tid);
}

static inline BlockNumber
zrowchange_block(const RowChange *u)
{
	return ItemPointerGetBlockNumber(&u->tid);
}

/*
 * Returns the old row, as copied from the page, and its replacement before
 * toasting.
 */
static inline ZUpdatedRow
zrowchange_rows(RowChange *u)
{
	const Replacement *new = u->replacement;

	return (ZUpdatedRow)
	{
		u->writer.rel, &u->tid, u->oldrow, u->oldlen, new->values,
			new->values_len
	};
}

/*
 * Returns the bytes that the old row still occupies on its page.
 */
static inline int
zrowchange_room(const RowChange *u)
{
	Assert(zc_buffer_locked(u->buf));
	return ItemIdGetLength(PageGetItemId(BufferGetPage(u->buf), zrowchange_offset(u)));
}

/* ---- acquiring the row (dml/zrowchange.c) ---- */

/*
 * Begins the change of the row at tid: its replacement, or its deletion if
 * 'replacement' is NULL.
 */
extern void zrowchange_begin(RowChange *u, ItemPointer tid, Replacement *replacement);

/*
 * Ends the change: releases the pin and the heavyweight lock. The page is not
 * locked any more.
 */
extern void zrowchange_end(RowChange *u);

/*
 * Copies the row that is to be changed and compares it with its replacement, if
 * there is one. Sets u->mode. On entry the page is exclusively locked. Returns
 * false if there is no row at its place, or if page or line pointer are
 * damaged. Raises ERRCODE_DATA_CORRUPTED if the row itself is.
 */
extern bool zrowchange_look(RowChange *u);

/*
 * Locks the page and examines the row until it may be changed or there is
 * another answer, which is returned. Waits for other transactions if wait is
 * set. On TM_Ok the page is locked, u->oldrow is the row to be changed, and
 * u->mode is the strength that the change needs; otherwise the page is not
 * locked.
 */
extern TM_Result zrowchange_acquire(RowChange *u, Snapshot snapshot, Snapshot crosscheck, bool wait,
									TM_FailureData *tmfd);

/*
 * Picks the old page's slot; the row stays where it is. Returns false if the
 * page needs an overflow page.
 */
extern bool zrowchange_pick(RowChange *u);

/*
 * Unlocks the page, which needs an overflow page, and reserves one, which the
 * next zrowchange_pick attaches to the page (zoverflow_attach). Nothing learnt
 * about the row is valid any more.
 */
extern void zrowchange_reserve(RowChange *u);

/*
 * Notes the change that has just been made, by the record ptr, with the old
 * row, and the new one if it has taken the old one's place (in_place): the
 * server will fetch them for a trigger (zlevel_note_change). The page is still
 * locked.
 */
extern void zrowchange_note(const RowChange *u, UndoPtr ptr, bool in_place, bool event);

/* ---- writing the change (dml/zrowwrite.c) ---- */

/*
 * Updates the row in place. Returns the pointer of its record. On entry the
 * page is locked and the row fits.
 */
extern UndoPtr zrowwrite_update(RowChange *u);

/* Returns whether the WAL record of a move within the page is a compact one. */
extern bool zrowwrite_is_compact(const RowChange *u);

/*
 * Moves the row to another place, perhaps on the same page, together with the
 * locks that others hold on it. Returns the pointer of the old row's record. On
 * entry both pages are locked; on return the new one is released, unless it is
 * the old one.
 */
extern UndoPtr zrowwrite_move(RowChange *u, const ZNewPlace *place);

/*
 * Deletes the row. elsewhere: the row has a newer version that cannot be found
 * from here, in another partition or by CLUSTER-6. as_of: see
 * zheap_delete_as_of. Returns the pointer of its record. On entry the page is
 * locked and the row acquired.
 */
extern UndoPtr zrowwrite_delete(RowChange *u, bool elsewhere, TransactionId as_of);

#endif
