/*
 * undo/undo_record.h - one undo record: what it says and how it is packed.
 *
 * Pure functions: no locks, no buffers, no shared state. Packing the same
 * ZuRecord gives the same bytes in DML and in redo. Unpacking never reads
 * outside the bytes it is given; anything malformed gives false.
 *
 * Packed form (little endian, unaligned):
 *
 *	OFFSET SIZE  FIELD
 *	0      1     type (bits 0-3) and ZUF_* flags (bits 4-7)
 *	1      2     length of the whole record, these bytes included
 *	3      6     xid of the (sub)transaction that made the change
 *	9      1-5   zigzag varint: relation number - relation OID
 *	..     4     relation OID
 *	..     4     block
 *	..     2     offset (bits 0-8) and extended flags ZUX_* (bits 9-15)
 *	..     1-5   varint: command id, or with ZUF_AS_OF the xid as_of
 *	..     8     previous record of the slot's chain	(ZUF_PREV)
 *	..     6     top-level xid							(ZUF_TOPXID)
 *	..           by type:
 *	             INSERT       varint: (n-1) << 1 | open (offset .. offset+n-1);
 *	                          4 bytes speculative token if ZUX_SPECULATIVE
 *	             UPDATE       compact old header, delta (tuple/ztuple.h)
 *	             DELETE       varint as of INSERT, n > 1 if open; compact old
 *	                          header, without its shape if it has one: the
 *	                          row's bytes are on the page or saved
 *	                          (mvcc/zsaved.c)
 *	             MOVE         6 bytes forward TID, old header as of DELETE
 *	             LOCK         1 byte: lock mode (bits 0-6), open (bit 7)
 *	             LOCKS        6 bytes youngest locker's xid, then entries of 8
 *	                          bytes (ZLockEntry)
 *	             IMAGE        6 bytes committed xid (mvcc/README.md), the table
 *	                          page without its hole
 *	             ROWS         for each row 2 bytes offset, 2 bytes length, the
 *	                          row with its header; then 1 byte ZUR_ROWS_*
 *
 * Of UPDATE, DELETE, MOVE, LOCKS, IMAGE and ROWS, what follows the fixed fields
 * of the part "by type" is the payload; with ZUX_LZ4, which LOCKS never has, it
 * is: 2 bytes raw length, LZ4 block.
 */
#ifndef ZUNDO_UNDO_RECORD_H
#define ZUNDO_UNDO_RECORD_H

#include "common/zundo.h"
#include "storage/itemptr.h"
#include "tuple/ztuple.h"

typedef enum ZuRecordType
{
	ZUR_INSERT = 1,				/* rows offset .. offset + nrows - 1 came to
								 * be; see 'open' */
	ZUR_UPDATE,					/* one row changed in place */
	ZUR_DELETE,					/* one row deleted; see 'open' */
	ZUR_MOVE,					/* one row moved by an update to 'forward' */
	ZUR_LOCK,					/* one row locked; see 'open' */
	ZUR_IMAGE,					/* not in a chain: the whole table page as it
								 * was */
	ZUR_LOCKS,					/* locks of several transactions, in a chain
								 * of such (docs/locking.md) */
	ZUR_ROWS					/* not in a chain: rows that have become stubs
								 * (SAVED-1 in mvcc/zsaved.c) */
} ZuRecordType;

/* Flags in byte 0. */
#define ZUF_PREV		0x10	/* the record has prev */
#define ZUF_FIRST		0x20	/* first record of a top-level transaction in
								 * its log */
#define ZUF_TOPXID		0x40	/* the record has topxid; without it, topxid
								 * == xid */
#define ZUF_AS_OF		0x80	/* the record has as_of */

/* Extended flags in the offset word (already shifted to bits 9-15). */
#define ZUX_LZ4			0x0200	/* payload is compressed */
#define ZUX_UNLOGGED	0x0400	/* of an unlogged table: void after a crash */
#define ZUX_SPECULATIVE 0x0800	/* INSERT carries a speculative token */
#define ZUX_MOVED_IN	0x1000	/* INSERT is the new half of a MOVE */
#define ZUX_KEY_CHANGE	0x2000	/* UPDATE/DELETE/MOVE, INSERT moved in:
								 * excludes KEY SHARE lockers */
#define ZUX_OTHER_PART	0x4000	/* DELETE: moved to another partition; or
								 * written by a rewrite for a version that was
								 * replaced (CLUSTER-6 in vacuum/) */
#define ZUX_TEMP		0x8000	/* of a temporary table: lies in the private
								 * log of its backend */

typedef struct ZuRecord
{
	ZuRecordType type;
	uint8		flags;			/* ZUF_FIRST; the others are derived */
	uint16		xflags;			/* ZUX_*; ZUX_LZ4 is set by zur_pack's caller */
	uint16		length;			/* packed length; set by unpack and by
								 * zur_length */
	ZXid		xid;
	ZXid		topxid;			/* top-level xid; on unpack == xid if not
								 * stored */
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
	OffsetNumber offset;
	CommandId	cid;			/* 0 if as_of is valid */

	/*
	 * What this record says was done by this committed transaction; a rewrite
	 * of the table (CLUSTER, VACUUM FULL) has written it again for the new
	 * file. Invalid = xid itself made the change.
	 */
	TransactionId as_of;
	UndoPtr		prev;			/* InvalidUndoPtr = none */
	uint16		nrows;			/* INSERT, DELETE */

	/*
	 * INSERT: only the first row of the range came with this record. Further
	 * rows may have followed, and other transactions may have used line
	 * pointers of the range. The record is about those versions whose headers
	 * name the slot of its chain (RANGE-1 in dml/).
	 *
	 * DELETE: further rows of the range may have been deleted. The record is
	 * about those versions that are deleted under the slot of its chain
	 * (RANGE-3 in dml/). It is open if nrows is above 1.
	 *
	 * LOCK: the rows of the page whose lock tags name the slot of its chain
	 * are locked, at least in lockmode, and no others (TAG-1 in dml/).
	 */
	bool		open;
	uint32		token;			/* INSERT with ZUX_SPECULATIVE */
	ItemPointerData forward;	/* MOVE */
	uint8		lockmode;		/* LOCK: a LockTupleMode */
	ZXid		committed;		/* IMAGE */
	ZXid		hold;			/* LOCKS: youngest locker named here or in a
								 * record below; the record is kept as long as
								 * that transaction may be in progress */
	const char *payload;		/* of all types but INSERT and LOCK: raw or
								 * LZ4 bytes */
	uint16		payload_len;
} ZuRecord;

/*
 * Returns whether records of this type are in the list that begins at the
 * page's trailer. They are in no chain, and undo nothing.
 */
static inline bool
zrecord_is_saved(ZuRecordType type)
{
	return type == ZUR_IMAGE || type == ZUR_ROWS;
}

/* Returns the number of line pointers, from rec->offset on, in rec's range. */
static inline int
zrecord_range(const ZuRecord *rec)
{
	return rec->type == ZUR_INSERT || rec->type == ZUR_DELETE ? rec->nrows : 1;
}

/*
 * Returns whether rec may be about a version of the row at off that names the
 * slot of rec's chain. A LOCK record is about none.
 */
static inline bool
zrecord_concerns(const ZuRecord *rec, OffsetNumber off)
{
	return off >= rec->offset && off < rec->offset + zrecord_range(rec) && rec->type != ZUR_LOCK;
}

/*
 * Returns whether rec has written a version of the row at off with this header,
 * which names the slot of rec's chain, if no newer record of the chain has. An
 * open DELETE has written only deleted versions (RANGE-3 in dml/).
 */
static inline bool
zrecord_wrote(const ZuRecord *rec, OffsetNumber off, ZHeader header)
{
	return zrecord_concerns(rec, off) &&
		(rec->type != ZUR_DELETE || !rec->open || ZH_STATE(header) == ZSTATE_DELETED);
}

/*
 * Returns the mode in which rec, of type LOCK in the chain of slot slotno,
 * locks the row at off, whose header is h; -1: it does not (TAG-1).
 */
static inline int
zrecord_lock_mode(const ZuRecord *rec, OffsetNumber off, ZHeader h, int slotno)
{
	Assert(rec->type == ZUR_LOCK);
	if (!rec->open)
		return rec->offset == off ? rec->lockmode : -1;
	return ZH_TAG(h) == slotno ? zheader_tag_mode(h, rec->lockmode) : -1;
}

/*
 * Returns the transaction whose change rec is: that which rec is "as of", if a
 * rewrite has written it; else the record's own. For xmin, and for SSI, which
 * knows nothing of rewrites.
 */
static inline ZXid
zrecord_author(const ZuRecord *rec)
{
	return likely(!TransactionIdIsValid(rec->as_of)) ? rec->xid : zxid_widen(rec->as_of);
}

/* Longest record: an uncompressed page image with every optional field. */
#define ZUR_MAX_LENGTH	(64 + BLCKSZ)

/*
 * One lock in a LOCKS record: bits 0-47 xid of the locker, 48-56 offset, 57-58
 * LockTupleMode, 59 ZLOCK_SURE: the lock is valid even if the author of the
 * record aborts.
 */
typedef uint64 ZLockEntry;

#define ZLOCK_SURE		(UINT64CONST(1) << 59)
#define ZLOCK_XID(e)	((ZXid) ((e) & ZXID_MASK))
#define ZLOCK_OFFSET(e) ((OffsetNumber) (((e) >> 48) & 0x1FF))
#define ZLOCK_MODE(e)	((int) (((e) >> 57) & 3))

/* Returns the entry for this lock, without ZLOCK_SURE. */
static inline ZLockEntry
zlock_entry(ZXid xid, OffsetNumber off, int mode)
{
	return (xid & ZXID_MASK) | (ZLockEntry) off << 48 | (ZLockEntry) mode << 57;
}

/*
 * Returns the mode of the first lock in a LOCKS record; where a lock was added,
 * that is the new one.
 */
extern int	zrecord_first_mode(const ZuRecord *rec);

/* Largest number of entries in one LOCKS record. */
#define ZLOCK_MAX_ENTRIES 900

/*
 * Returns the number of bytes that zur_pack will write for rec, and sets
 * rec->length to it.
 */
extern Size zur_length(ZuRecord *rec);

/*
 * Writes rec, whose length zur_length has set, to dst, which has space for it.
 */
extern void zur_pack(const ZuRecord *rec, char *dst);

/*
 * Reads a record from len bytes at src, which may be more than the record. On
 * success rec->payload points into src. Returns false if the record is
 * truncated or malformed.
 */
extern bool zur_unpack(const char *src, Size len, ZuRecord *rec);

/*
 * Where a record has its offset and the pointer to the record before it. In
 * other records of the same type, transaction, command and table page these
 * fields are at the same places, and the bytes between the length and prev are
 * equal but for the offset and the flags beside it.
 */
typedef struct ZurLayout
{
	const char *src;			/* the record */
	Size		length;
	int			offset_at;
	int			prev_at;
	int			payload_at;
	int			least;			/* no record of this layout is shorter */
} ZurLayout;

/*
 * zur_layout: sets *layout from the record at src, which zur_unpack has read
 * as rec. Returns false if records next to it must be decoded by zur_unpack.
 * zur_is_alike: returns whether the record at src (len bytes) has this layout.
 * Then zur_unpack would accept it, too, and *rec, which has been read from a
 * record of this layout, is set to what zur_unpack would give. If not, *rec is
 * unchanged, and only zur_unpack tells what the record is.
 */
extern bool zur_layout(const char *src, const ZuRecord *rec, ZurLayout *layout);
extern bool zur_is_alike(const ZurLayout *layout, const char *src, Size len, ZuRecord *rec);

/*
 * Returns the length of the record that starts at src, from its first 3 bytes;
 * 0 if len is less, or if the length is impossible.
 */
extern Size zur_peek_length(const char *src, Size len);

/*
 * zur_squeeze: compresses len bytes to dst, which has space for as many, if the
 * settings ask for it and it saves an eighth. Returns the compressed length,
 * else 0. zur_expand: reverses it; the result has len bytes. Returns false if
 * the n bytes are malformed.
 */
extern int	zur_squeeze(const char *bytes, int len, char *dst);
extern bool zur_expand(const char *squeezed, int n, char *bytes, int len);

/*
 * Compresses rec's payload into buf (bufsize >= payload_len) if the settings
 * ask for it and it saves space. Then rec->payload points to buf, and ZUX_LZ4
 * is set.
 */
extern void zur_compress(ZuRecord *rec, char *buf, Size bufsize);

/*
 * Appends the row at off, of len bytes, to the payload of a ROWS record.
 * Returns its end. After the last row comes the byte ZUR_ROWS_END.
 */
extern char *zur_put_row(char *p, OffsetNumber off, const char *row, int len);
#define ZUR_ROW_HEAD	4		/* bytes that it puts before the row */

#define ZUR_ROWS_END	1
#define ZUR_ROWS_GONE	2		/* replay had no rows: SAVED-5 in mvcc/ */

/*
 * Returns rec's payload uncompressed: rec->payload itself, or decompressed into
 * buf (bufsize bytes). Returns NULL if it is corrupt or too large.
 */
extern const char *zur_raw_payload(const ZuRecord *rec, char *buf, Size bufsize, Size *rawlen);

#endif
