/*
 * mvcc/zknown.h - what this session knows of the table pages that it has come
 * to last.
 */
#ifndef ZUNDO_ZKNOWN_H
#define ZUNDO_ZKNOWN_H

#include "common/zundo.h"
#include "storage/bufmgr.h"
#include "undo/undo.h"
#include "utils/rel.h"

/* A LOCK record of our transaction, or of an earlier one (dml/zheld.c). */
typedef struct ZHeldRecord
{
	uint64		epoch;
	UndoPtr		ptr;			/* Invalid: none is known */
	ZXid		xid;
	uint8		slotno;			/* of its chain: its lock tag, if it is open */
	uint8		mode;
	bool		open;			/* false: when it was the head of its chain,
								 * its (sub)transaction had nothing there but
								 * LOCK records that are not open */
} ZHeldRecord;

/*
 * What is known of a page. Another page may take the place at any time, so
 * nothing here may be needed.
 */
typedef struct ZKnownPage
{
	Oid			reloid;
	RelFileNumber relnumber;
	BlockNumber block;
	Buffer		buf;			/* where the page was; InvalidBuffer: unknown */
	ZHeldRecord record;
	uint64		space_epoch;	/* of space and measured (dml/zreclaim.c) */
	int			space;			/* bytes for rows and line pointers, once the
								 * deletions are committed; unless measured,
								 * what was made there in this epoch */
	bool		measured;
	bool		in_vain;		/* pruning has found nothing to do when these
								 * were the values (dml/zprune.c) */
	ZXid		oldest;
	uint64		completions;
} ZKnownPage;

/*
 * zknown_epoch: > 0. What depends on our transaction is forgotten if it was
 * noted under an earlier one.
 *
 * zknown_forget: begins another epoch: a (sub)transaction has ended or the file
 * of a table was emptied. Called after every end of a transaction, after each
 * rollback of a subtransaction, and when a file that the transaction has made
 * is emptied.
 *
 * zknown_page: returns what is known of the page. The result is valid until the
 * next call for another page.
 *
 * zknown_take: gives a place to the page, of which nothing is known.
 *
 * zknown_read: does what ReadBuffer does for the main fork, and cheaper if the
 * page is known to be in a buffer.
 */
extern uint64 zknown_epoch;
extern void zknown_forget(void);
extern Buffer zknown_read(Relation rel, BlockNumber block);

/* A place for each of the pages that hash to it. */
#define ZKNOWN_PAGES 64

extern ZKnownPage zknown_pages[ZKNOWN_PAGES];
extern void zknown_take(ZKnownPage *known, Relation rel, BlockNumber block);

static inline ZKnownPage *
zknown_page(Relation rel, BlockNumber block)
{
	RelFileNumber relnumber = rel->rd_locator.relNumber;
	ZKnownPage *known = &zknown_pages[(relnumber * 7 + block) % ZKNOWN_PAGES];

	if (unlikely(known->block != block || known->relnumber != relnumber ||
				 known->reloid != RelationGetRelid(rel)))
		zknown_take(known, rel, block);
	return known;
}

#endif
