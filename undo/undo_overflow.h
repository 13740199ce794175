/*
 * undo/undo_overflow.h - pages of the undo relation that hold further slots of
 * a table page.
 *
 * A table page that is full and needs one more transaction slot gets such a
 * page. The slots themselves are page/zoverflow.h's; here is who owns which
 * page.
 *
 * Layout (the standard page header; pd_lower = end of the slots):
 *
 *	OFFSET SIZE FIELD
 *	0      24   PageHeaderData
 *	24     24   ZuOverflowHeader; its magic lies where ZuPageHeader has its own
 *	48     ..   slots of 16 bytes; the first one has the number 'first'
 *
 * A page of an overflow extent is free if it is not one with this magic and an
 * owner.
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
	BlockNumber block;			/* of the owner: table page */
	uint16		first;			/* 1 + number of inline slots of the owner; 0
								 * = free */
	uint16		changes;		/* counts the changes of the slots, as the
								 * owner does (OVERFLOW-3) */
	uint16		magic;
	uint16		zero2;
	Oid			reloid;			/* of the owner, for whoever looks whether it
								 * still exists */
	uint32		zero3;
} ZuOverflowHeader;

StaticAssertDecl(sizeof(ZuOverflowHeader) == ZU_OVERFLOW_DATA - SizeOfPageHeaderData,
				 "ZuOverflowHeader fills the space before the slots");

static inline ZuOverflowHeader *
zu_overflow_header(Page page)
{
	return (ZuOverflowHeader *) ((char *) page + SizeOfPageHeaderData);
}

/*
 * zu_overflow_init: an overflow page without slots; owned by that table page,
 * or by nobody if first is 0. changes: where the count of its changes begins.
 * For DML and redo.
 */
extern void zu_overflow_init(Page page, Oid reloid, RelFileNumber relnumber, BlockNumber block,
							 int first, uint16 changes);

/*
 * zu_overflow_page: Returns whether the page is a slot overflow page, with an
 * owner or not. Any bytes are tolerated.
 */
static inline bool
zu_overflow_page(Page page)
{
	int			lower = ((PageHeader) page)->pd_lower;

	return !PageIsNew(page) && zu_overflow_header(page)->magic == ZU_OVERFLOW_MAGIC &&
		lower >= ZU_OVERFLOW_DATA && lower <= BLCKSZ;
}

/* zu_overflow_owned: Returns whether it is one that has an owner. */
static inline bool
zu_overflow_owned(Page page)
{
	return zu_overflow_page(page) && zu_overflow_header(page)->first != 0;
}

/*
 * zu_overflow_lock: pin overflow page 'block' and lock it in mode. The caller
 * has locked the table page that points to it, (relnumber, table_block).
 * InvalidBuffer if there is no overflow page of that owner there; the number
 * may be any.
 */
extern Buffer zu_overflow_lock(BlockNumber block, RelFileNumber relnumber, BlockNumber table_block,
							   int mode);

/*
 * zu_overflow_reserve: look for a free overflow page, or allocate an extent
 * for such, and remember it. No buffer lock may be held. Errors: disk full,
 * undo_limit reached.
 */
extern void zu_overflow_reserve(void);

/*
 * zu_overflow_take: the page found by zu_overflow_reserve, pinned and
 * exclusively locked, if it is still free: the caller gives it an owner before
 * unlocking it. Else InvalidBuffer. Forgets the reservation. The caller holds
 * a table page.
 */
extern Buffer zu_overflow_take(void);

/* A page and its owner, for whoever looks for pages that are left behind. */
typedef struct ZuOverflowPage
{
	BlockNumber overflow;
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
	XLogRecPtr	lsn;
} ZuOverflowPage;

/*
 * zu_overflow_list: palloc'd array of the pages with an owner, by block; cheap
 * if there is no overflow extent.
 */
extern ZuOverflowPage *zu_overflow_list(int *n);

/*
 * zu_overflow_lock_owned: p pinned and exclusively locked if it still has that
 * owner, else InvalidBuffer. By who frees extents.
 */
extern Buffer zu_overflow_lock_owned(const ZuOverflowPage *p);

/*
 * zu_overflow_free_extents: give back the overflow extents that hold no page
 * with an owner; their number. No lock held.
 */
extern int	zu_overflow_free_extents(void);

#endif
