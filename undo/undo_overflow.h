/*
 * undo/undo_overflow.h - pages of the undo relation that hold further slots of
 * a table page.
 *
 * A table page that is full and needs one more transaction slot gets such a
 * page. The slots themselves are described in page/zoverflow.h; this header
 * is about the pages and their owners.
 *
 * Layout (the standard page header; pd_lower = end of the slots):
 *
 *	OFFSET SIZE FIELD
 *	0      24   PageHeaderData
 *	24     24   ZuOverflowHeader; its magic lies where ZuPageHeader has its own
 *	48     ..   slots of 16 bytes; the first one has the number 'first'
 *
 * A page of an overflow extent is free if it has this magic and no owner. A
 * page without this magic is damaged: it is never used, and keeps its extent
 * from being freed (UNDO-67).
 */
#ifndef ZUNDO_UNDO_OVERFLOW_H
#define ZUNDO_UNDO_OVERFLOW_H

#include "common/zundo.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"

#define ZU_OVERFLOW_MAGIC	0x7A6F
#define ZU_OVERFLOW_DATA	48

typedef struct ZuOverflowHeader
{
	RelFileNumber relnumber;	/* of the owner; 0 = the page is free */
	BlockNumber block;			/* of the owner: its block */
	uint16		first;			/* 1 + number of inline slots of the owner; 0
								 * = free */
	uint16		changes;		/* count of changes of the slots, which the
								 * owner keeps, too (OVERFLOW-3) */
	uint16		magic;
	uint16		zero2;
	Oid			reloid;			/* of the owner, to find out whether it still
								 * exists */
	uint32		zero3;
} ZuOverflowHeader;

StaticAssertDecl(sizeof(ZuOverflowHeader) == ZU_OVERFLOW_DATA - SizeOfPageHeaderData,
				 "ZuOverflowHeader fills the space before the slots");

/*
 * Returns the place of the header of an overflow page; the page may be another.
 */
static inline ZuOverflowHeader *
zu_overflow_header(Page page)
{
	return (ZuOverflowHeader *) ((char *) page + SizeOfPageHeaderData);
}

/*
 * Makes page an overflow page without slots, owned by that table page, or
 * without an owner if first is 0. changes: where the count of its changes
 * begins. For DML and redo.
 */
extern void zu_overflow_init(Page page, Oid reloid, RelFileNumber relnumber, BlockNumber block,
							 int first, uint16 changes);

/*
 * Makes all pages of the extent overflow pages without owners, with WAL, before
 * it becomes an extent of overflow pages (UNDO-67). Alloc lock held; the blocks
 * exist, and are not read. Errors: those of finding a buffer for each of them.
 */
extern void zu_overflow_init_extent(uint32 extent);

/*
 * Returns whether the page is a slot overflow page, with or without an owner.
 * The page may have any bytes.
 */
static inline bool
zu_overflow_page(Page page)
{
	int			lower = ((PageHeader) page)->pd_lower;

	return !PageIsNew(page) && zu_overflow_header(page)->magic == ZU_OVERFLOW_MAGIC &&
		lower >= ZU_OVERFLOW_DATA && lower <= BLCKSZ;
}

/* Returns whether the page is a slot overflow page with an owner. */
static inline bool
zu_overflow_owned(Page page)
{
	return zu_overflow_page(page) && zu_overflow_header(page)->first != 0;
}

/*
 * Pins overflow page 'block' and locks it in mode. The caller has locked the
 * table page that points to it, (relnumber, table_block). Returns InvalidBuffer
 * if that block is no overflow page of this owner; block may be any number.
 */
extern Buffer zu_overflow_lock(BlockNumber block, RelFileNumber relnumber, BlockNumber table_block,
							   int mode);

/*
 * Returns a free overflow page; if there is none, allocates an extent of such
 * pages. Nothing is noted in shared memory: another process may take the page
 * before zu_overflow_take is called for it. No LWLock and no buffer lock may be
 * held, since the backend may have to wait for space. Errors: disk full,
 * undo_limit reached.
 */
extern BlockNumber zu_overflow_reserve(void);

/*
 * Returns overflow page 'block', which zu_overflow_reserve has returned,
 * pinned and exclusively locked. Returns InvalidBuffer if the page is not free
 * any more or is locked at this moment, or if block is InvalidBlockNumber. The
 * caller has locked a table page, and gives the overflow page an owner before
 * unlocking it.
 */
extern Buffer zu_overflow_take(BlockNumber block);

/*
 * An overflow page and its owner, for the search for pages whose owner does not
 * exist any more. lost: it is no overflow page any more (UNDO-67), and all that
 * is known of it is its block.
 */
typedef struct ZuOverflowPage
{
	BlockNumber overflow;
	bool		lost;
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
	XLogRecPtr	lsn;
} ZuOverflowPage;

/*
 * Returns a palloc'd array of the pages with an owner, and of those that are
 * lost, by block. Cheap if there is no overflow extent.
 */
extern ZuOverflowPage *zu_overflow_list(int *n);

/*
 * Returns the buffer of p, pinned and exclusively locked, if the page still has
 * that owner, else InvalidBuffer. For the process that takes pages from owners
 * that do not exist any more.
 */
extern Buffer zu_overflow_lock_owned(const ZuOverflowPage *p);

/*
 * Gives back the overflow extents of which all pages are free. An extent with
 * a page that is damaged or locked at this moment is kept. No lock held.
 */
extern void zu_overflow_free_extents(void);

#endif
