/*
 * common/rmgr.h - the resource manager: its identity and its WAL opcodes.
 *
 * An opcode is the high 4 bits of a record's info byte. The layouts of the undo
 * log's own records (ZWAL_UNDO_MAP, _DISCARD and _TRUNCATE) are in
 * undo/undo_wal.h, those of all others in change/zwal.h.
 */
#ifndef ZUNDO_RMGR_H
#define ZUNDO_RMGR_H

/* The name by which WAL, wal_consistency_checking and pg_walinspect know us. */
#define ZUNDO_RMGR_ID		187
#define ZUNDO_RMGR_NAME		"zundo"

#define ZWAL_INSERT			0x00	/* one row */
#define ZWAL_MULTI_INSERT	0x10	/* a range of rows on one page */
#define ZWAL_UPDATE			0x20	/* one row in place */
#define ZWAL_DELETE			0x30	/* one row */
#define ZWAL_MOVE			0x40	/* a row to another TID */
#define ZWAL_LOCK			0x50	/* row lock */
#define ZWAL_ROLLBACK		0x60	/* aborted records taken off one page */
#define ZWAL_PRUNE			0x70	/* line pointers and compaction */
#define ZWAL_UNDO_ONLY		0x80	/* undo of a relation that is not logged
									 * itself */
#define ZWAL_MARK			0x90	/* speculative insertion ended; bit of the
									 * visibility map set or cleared; entries
									 * of a zbtree index */
#define ZWAL_OVERFLOW		0xA0	/* a table page gets or loses its slot
									 * overflow page */
#define ZWAL_UNDO_MAP		0xB0	/* an extent of the undo log is taken, or
									 * several are resolved */
#define ZWAL_UNDO_DISCARD	0xC0	/* undo extents freed, `oldest` advanced */
#define ZWAL_UNDO_TRUNCATE	0xD0	/* tail of the undo relation given back */
#define ZWAL_IMAGE			0xE0	/* a table page's image goes to undo */
#define ZWAL_INLINE_LOCK	0xF0	/* row lock kept in its slot, without undo */

#endif
