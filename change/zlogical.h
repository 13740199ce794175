/*
 * change/zlogical.h - logical decoding of zheap tables: what records carry for
 * it, and what is made of them.
 *
 * Invariants:
 *	DECODE-1	values out of line are logged for decoding if and only if the
 *		record of their row is. They are logged before it, by the same
 *		subtransaction, and between them and it no other record is to be
 *		decoded; ZWL_LAST stands in the last of the records whose values were
 *		logged together, and in no other of these. Not asserted: one record
 *		does not tell what follows it; t/016_decoded and t/018_decoded_twins
 *		decode and compare with the table.
 *	DECODE-2	a record of a change of rows is to be decoded if it has a part
 *		for that (change/zwal.h). It has one if the table is logically logged
 *		and the caller does not exclude it; this is decided when the
 *		transaction has an id. Rewrites by VACUUM FULL, CLUSTER and SET
 *		TABLESPACE, what is written "as of" a transaction, rollbacks and the
 *		workers' records have none. Not asserted: the decision is made once
 *		(zwriter_is_decoded), before the record exists; t/016_decoded compares
 *		with what heap decodes.
 *	DECODE-3	one change of a row is one record is one change decoded; a row
 *		that moves is updated. A speculative insertion is followed by one MARK
 *		that says what became of it, and that has a part if the insertion has.
 *		Not asserted: one record does not tell what follows it; t/016_decoded
 *		compares with what heap decodes.
 *	DECODE-4	what a plugin is shown follows from the record alone: no table
 *		page and no undo is read, and no catalog. Not asserted: a row of a
 *		zheap table read with a historic snapshot is an error (SCAN-4).
 *	DECODE-5	records without a part say nothing of their transaction: those
 *		of a rollback follow its abort record, with which the server forgets
 *		it. Not asserted: one record does not tell what follows it;
 *		t/014_decoding aborts transactions.
 */
#ifndef ZUNDO_ZLOGICAL_H
#define ZUNDO_ZLOGICAL_H

#include "change/zchange.h"
#include "common/zundo.h"
#include "replication/decode.h"

/* The rows of a change, as far as its part for decoding is made of them. */
typedef struct ZLogicalRows
{
	const char *old;			/* NULL: there is no old row */
	uint32		old_length;
	const Bitmapset *identity;	/* columns of the replica identity's index */
	bool		key_needed;		/* the part must have the old key (not only
								 * for REPLICA IDENTITY FULL) */
	bool		old_in_undo;	/* the record has the whole old row, or what
								 * makes it of the new one, as undo */
	const char *new;			/* NULL unless the row is updated in place */
	uint32		new_length;
	bool		last;			/* ZWL_LAST */
} ZLogicalRows;

/*
 * zlogical_part: returns the part of a change of rel's rows, palloc'd, and sets
 * *length. Reads values out of line if the old row's identity has any, but no
 * page of zundo's, so the table page may be locked. Raises errors.
 *
 * zlogical_part_of_new: the same for rows that are inserted or, apart from the
 * old row, moved.
 */
extern char *zlogical_part(Relation rel, const ZLogicalRows *rows, uint32 *length);
extern char *zlogical_part_of_new(Relation rel, bool last, uint32 *length);

/* zlogical_decode: rm_decode of the resource manager. */
extern void zlogical_decode(LogicalDecodingContext *ctx, XLogRecordBuffer *buf);

#endif
