/*
 * change/zlogical.h - logical decoding of zheap tables: building the decoding
 * part of a WAL record, and decoding such records.
 *
 * Invariants:
 *	DECODE-1	The values out of line of a row are logged for decoding if and
 *		only if the row's own record is. They are logged before that record, by
 *		the same subtransaction, and no other record that is to be decoded
 *		comes in between. If the values of several rows were logged together,
 *		ZWL_LAST is set in the record of the last of these rows only.
 *	DECODE-2	A record of row changes is decoded if and only if it has a
 *		decoding part (change/zwal.h).
 *		(a) It has one if the table is logically logged and the caller does not
 *			exclude the change; this is decided once, after the transaction has
 *			got its id (zwriter_is_decoded).
 *		(b) Without a part are: rewrites by VACUUM FULL, CLUSTER and SET
 *			TABLESPACE, changes written "as of" a transaction, rollbacks, and
 *			the records of workers.
 *		(c) What has no part is not reported to the reorder buffer, not even
 *			its transaction id. Example: the records of a rollback follow the
 *			abort record, at which the server has removed the transaction from
 *			the buffer; reporting them would create it anew.
 *	DECODE-3	One change of a row is one WAL record, and one decoded change,
 *		which follows from that record alone: the reader reads no table page,
 *		no undo and no catalog. A row that moves is decoded as updated. A
 *		speculative insertion is followed by one MARK record, which says
 *		whether it was confirmed and has a decoding part if the insertion has.
 */
#ifndef ZUNDO_ZLOGICAL_H
#define ZUNDO_ZLOGICAL_H

#include "change/zchange.h"
#include "common/zundo.h"
#include "replication/decode.h"

/* What the decoding part of a change is built from. */
typedef struct ZLogicalRows
{
	const char *old;			/* NULL: there is no old row */
	uint32		old_length;
	const Bitmapset *identity;	/* columns of the replica identity's index */
	bool		key_needed;		/* the old key must be logged even if the
								 * replica identity is not FULL */
	const ZChange *change;		/* of the old row; NULL if there is none */
	bool		last;			/* the part has ZWL_LAST */
} ZLogicalRows;

/*
 * zlogical_part: returns the palloc'd decoding part of a change of rel's rows
 * and sets *length. May fetch values out of line of the old row's identity, but
 * reads no page of undo but for these values, so the caller may hold the table
 * page locked. Raises the errors of fetching such a value, and
 * ERRCODE_PROGRAM_LIMIT_EXCEEDED if the old row is too long.
 *
 * zlogical_part_of_new: returns the palloc'd decoding part of an insertion, and
 * sets *length. The part has ZWL_LAST if last is set.
 */
extern char *zlogical_part(Relation rel, const ZLogicalRows *rows, uint32 *length);
extern char *zlogical_part_of_new(Relation rel, bool last, uint32 *length);

/*
 * zlogical_decode: decodes a record for logical decoding; rm_decode of the
 * resource manager. Raises an error if the record is malformed.
 */
extern void zlogical_decode(LogicalDecodingContext *ctx, XLogRecordBuffer *buf);

#endif
