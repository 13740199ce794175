/*
 * undo/damage/undo_twin.c - pages that exist twice: the meta page and the map
 * pages.
 *
 * Owns the twin header, choosing between the twins of a pair, repairing one
 * from the other, and the order in which they are locked. Called by all files
 * here that read or change meta and map pages, and by redo.
 *
 * Each WAL record that changes one twin changes the other, too. So as long as
 * storage does what it promises they are equal. If one cannot be read, or has
 * missed a write, the checksum and the number of changes tell which one is
 * right.
 *
 * Locks: first twin -> second twin. Of several pairs, map pages before the
 * meta page.
 *
 * Crash points: none of its own. A repair is a full-page image.
 *
 * Invariants
 *	UNDO-40	unlocked twins differ only in their page headers, or storage has
 *		lost something; then the valid one with more changes is right.
 */
#include "undo/undo_internal.h"

#include "access/xloginsert.h"
#include "access/xlogutils.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"

/* Returns the twin header of a meta or map page. */
static inline ZuTwinHeader *
twin_header(Page page)
{
	return (ZuTwinHeader *) ((char *) page + SizeOfPageHeaderData);
}

/* ---- one page ---- */

/*
 * Returns the checksum of what the header's crc covers: the data up to
 * pd_lower, which is exact on meta and map pages. It has a possible value.
 */
static uint32
twin_crc(Page page)
{
	const ZuTwinHeader *h = twin_header(page);
	uint32		lower = ((PageHeader) page)->pd_lower;
	pg_crc32c	crc;

	Assert(lower >= ZU_TWIN_DATA && lower <= BLCKSZ);
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, h, offsetof(ZuTwinHeader, crc));
	COMP_CRC32C(crc, (char *) page + ZU_TWIN_DATA, lower - ZU_TWIN_DATA);
	FIN_CRC32C(crc);
	return crc;
}

void
zu_twin_init(Page page, BlockNumber first)
{
	ZuTwinHeader *h = twin_header(page);

	h->magic = first == ZU_META_BLOCK ? ZU_META_MAGIC : ZU_MAP_MAGIC;
	h->first = first;
	h->changes = 0;
	h->zero = 0;
}

void
zu_twin_seal(Page page)
{
	ZuTwinHeader *h = twin_header(page);

	h->changes++;
	h->crc = twin_crc(page);
}

/*
 * Returns whether page, whatever its bytes, is a valid twin of the pair at
 * block 'first'. Checks pd_lower before it computes the checksum, which depends
 * on it.
 */
static bool
is_valid(Page page, BlockNumber first)
{
	const ZuTwinHeader *h = twin_header(page);
	uint32		lower = ((PageHeader) page)->pd_lower;

	return !PageIsNew(page) &&
		h->magic == (first == ZU_META_BLOCK ? ZU_META_MAGIC : ZU_MAP_MAGIC) &&
		h->first == first && lower >= ZU_TWIN_DATA && lower <= BLCKSZ && h->crc == twin_crc(page);
}

/* Makes 'to' equal to 'from', a valid twin, but keeps the page LSN of 'to'. */
static void
copy_twin(Page to, Page from)
{
	XLogRecPtr	lsn = PageGetLSN(to);

	memcpy(to, from, BLCKSZ);
	PageSetLSN(to, lsn);
}

/* ---- a pair ---- */

/* zu_twins_report_lost: See undo_internal.h. Names both blocks. */
void
zu_twins_report_lost(BlockNumber first)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("blocks %u and %u of relation \"%s\" are damaged", zu_twin_block(first, 0),
					zu_twin_block(first, 1), "zundo.undo_log"),
			 first == ZU_META_BLOCK ?
			 errdetail("They are the two copies of its meta page, and neither of them is valid.") :
			 errdetail("They are the two copies of a page of its extent map, and neither of them "
					   "is valid."),
			 errhint("Check the storage of this database, then see zundo.repair_undo().")));
}

/*
 * Returns which of two locked pages is to be believed: the valid one with more
 * changes; -1 if neither is valid.
 */
static int
newer_twin(Page a, Page b, BlockNumber first)
{
	if (!is_valid(a, first))
		return is_valid(b, first) ? 1 : -1;
	if (twin_header(b)->changes > twin_header(a)->changes && is_valid(b, first))
		return 1;
	return 0;
}

/*
 * Pins the pair and locks it in mode, the first twin first. A page that the
 * server finds damaged reads as zeros.
 */
static void
pin_twins(ZuTwins *t, BlockNumber first, int mode)
{
	t->first = first;
	t->source = 0;
	for (int i = 0; i < 2; i++)
	{
		t->buffer[i] = zu_read_block(zu_twin_block(first, i), RBM_ZERO_ON_ERROR);
		LockBuffer(t->buffer[i], mode);
	}
}

/*
 * zu_twins_share: See undo_internal.h. Locks both twins to compare them, and
 * keeps the better one.
 */
Buffer
zu_twins_share(BlockNumber first)
{
	ZuTwins		t;
	int			source;

	pin_twins(&t, first, BUFFER_LOCK_SHARE);
	source = newer_twin(BufferGetPage(t.buffer[0]), BufferGetPage(t.buffer[1]), first);
	if (source < 0)
		zu_twins_report_lost(first);
	UnlockReleaseBuffer(t.buffer[1 - source]);
	return t.buffer[source];
}

/*
 * Pins and share-locks those twins of the pair that are in the file; 'buffer'
 * of another one is invalid.
 */
static void
share_present(ZuTwins *t, BlockNumber first)
{
	BlockNumber have = zu_file_blocks();

	t->first = first;
	t->source = 0;
	for (int i = 0; i < 2; i++)
	{
		BlockNumber block = zu_twin_block(first, i);

		t->buffer[i] = block < have ? zu_read_block(block, RBM_ZERO_ON_ERROR) : InvalidBuffer;
		if (block < have)
			LockBuffer(t->buffer[i], BUFFER_LOCK_SHARE);
	}
}

/*
 * zu_twins_state: See undo_internal.h. The number of changes of an invalid
 * twin means nothing.
 */
void
zu_twins_state(BlockNumber first, bool valid[2], uint64 changes[2])
{
	ZuTwins		t;

	share_present(&t, first);
	for (int i = 0; i < 2; i++)
	{
		Page		page = BufferIsValid(t.buffer[i]) ? BufferGetPage(t.buffer[i]) : NULL;

		valid[i] = page != NULL && is_valid(page, first);
		changes[i] = page != NULL ? twin_header(page)->changes : 0;
	}
	zu_twins_unlock(&t);
}

bool
zu_twins_copy(BlockNumber first, char *dst)
{
	ZuTwins		t;
	int			best = -1;

	share_present(&t, first);
	for (int i = 0; i < 2; i++)
	{
		Page		page = BufferIsValid(t.buffer[i]) ? BufferGetPage(t.buffer[i]) : NULL;

		if (page != NULL && is_valid(page, first) &&
			(best < 0 || twin_header(page)->changes > twin_header((Page) dst)->changes))
		{
			memcpy(dst, page, BLCKSZ);
			best = i;
		}
	}
	zu_twins_unlock(&t);
	return best >= 0;
}

bool
zu_twins_lost(BlockNumber first)
{
	bool		valid[2];
	uint64		changes[2];

	zu_twins_state(first, valid, changes);
	return !valid[0] && !valid[1];
}

/*
 * zu_twins_lock: See undo_internal.h. Reports a repair in the server log, and
 * logs the repaired page as a full-page image.
 */
void
zu_twins_lock(ZuTwins *t, BlockNumber first)
{
	Page		good;
	Page		other;

	Assert(!RecoveryInProgress());
	pin_twins(t, first, BUFFER_LOCK_EXCLUSIVE);
	t->source = newer_twin(BufferGetPage(t->buffer[0]), BufferGetPage(t->buffer[1]), first);
	if (t->source < 0)
		zu_twins_report_lost(first);
	good = zu_twins_page(t);
	other = BufferGetPage(t->buffer[1 - t->source]);
	if (likely(twin_header(other)->changes == twin_header(good)->changes &&
			   is_valid(other, first)))
		return;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("block %u of relation \"%s\" was damaged and has been repaired from block %u",
					zu_twin_block(first, 1 - t->source), "zundo.undo_log",
					zu_twin_block(first, t->source)),
			 is_valid(other, first) ?
			 errdetail("It had missed %llu of %llu changes.",
					   (unsigned long long) (twin_header(good)->changes -
											 twin_header(other)->changes),
					   (unsigned long long) twin_header(good)->changes) :
			 errdetail("It was not a valid page."),
			 errhint("Check the storage of this database.")));
	START_CRIT_SECTION();
	copy_twin(other, good);
	MarkBufferDirty(t->buffer[1 - t->source]);
	log_newpage_buffer(t->buffer[1 - t->source], true);
	END_CRIT_SECTION();
}

void
zu_twins_lock_new(ZuTwins *t, BlockNumber first)
{
	t->first = first;
	t->source = 0;
	for (int i = 0; i < 2; i++)
		t->buffer[i] = zu_read_block(zu_twin_block(first, i), RBM_ZERO_AND_LOCK);
}

/*
 * zu_twins_repair: See undo_internal.h. Compares the pages under share locks
 * first: usually there is nothing to repair.
 */
void
zu_twins_repair(BlockNumber first)
{
	ZuTwins		t;
	bool		differ;

	pin_twins(&t, first, BUFFER_LOCK_SHARE);
	differ = memcmp((char *) BufferGetPage(t.buffer[0]) + SizeOfPageHeaderData,
					(char *) BufferGetPage(t.buffer[1]) + SizeOfPageHeaderData,
					BLCKSZ - SizeOfPageHeaderData) != 0;
	zu_twins_unlock(&t);
	if (differ)
	{
		zu_twins_lock(&t, first);
		zu_twins_unlock(&t);
	}
}

void
zu_twins_changed(const ZuTwins *t)
{
	Assert(CritSectionCount > 0 || InRecovery);
	zu_twin_seal(zu_twins_page(t));
	copy_twin(BufferGetPage(t->buffer[1 - t->source]), zu_twins_page(t));
	MarkBufferDirty(t->buffer[0]);
	MarkBufferDirty(t->buffer[1]);
}

void
zu_twins_register(const ZuTwins *t, uint8 id, uint8 flags)
{
	Assert(CritSectionCount > 0);
	XLogRegisterBuffer(id, t->buffer[0], REGBUF_STANDARD | flags);
	XLogRegisterBuffer(id + 1, t->buffer[1], REGBUF_STANDARD | flags);
}

void
zu_twins_set_lsn(const ZuTwins *t, XLogRecPtr recptr)
{
	PageSetLSN(BufferGetPage(t->buffer[0]), recptr);
	PageSetLSN(BufferGetPage(t->buffer[1]), recptr);
}

void
zu_twins_unlock(ZuTwins *t)
{
	for (int i = 1; i >= 0; i--)
	{
		if (BufferIsValid(t->buffer[i]))
			UnlockReleaseBuffer(t->buffer[i]);
		t->buffer[i] = InvalidBuffer;
	}
}

/* ---- redo ---- */

/* Makes twin 'to' of a pair equal to 'from', with its page LSN, in redo. */
static void
take_twin(const ZuTwins *t, int to, int from)
{
	Assert(is_valid(BufferGetPage(t->buffer[from]), t->first)); /* UNDO-40 */
	copy_twin(BufferGetPage(t->buffer[to]), BufferGetPage(t->buffer[from]));
	PageSetLSN(BufferGetPage(t->buffer[to]), PageGetLSN(BufferGetPage(t->buffer[from])));
	MarkBufferDirty(t->buffer[to]);
}

/*
 * Releases a pair of which no page is valid, in redo. If the pages exist in the
 * file, raises the error for damage. Otherwise a later record may cut them off:
 * XLogReadBufferExtended has noted them as invalid pages, and the server
 * complains at the end of recovery if no record does so.
 */
static void
both_lost(ZuTwins *t, XLogReaderState *record, uint8 id)
{
	RelFileLocator locator;

	XLogRecGetBlockTag(record, id, &locator, NULL, NULL);
	for (int i = 0; i < 2; i++)
	{
		Buffer		buf = XLogReadBufferExtended(locator, MAIN_FORKNUM,
												 zu_twin_block(t->first, i), RBM_NORMAL,
												 InvalidBuffer);

		if (BufferIsValid(buf))
			zu_twins_report_lost(t->first);
	}
	zu_twins_unlock(t);
}

/*
 * zu_twins_redo: See undo_internal.h. Copies a twin that has the change
 * already to one that has not, or that is invalid. If neither has it, chooses
 * the better one as the page to change.
 */
bool
zu_twins_redo(ZuTwins *t, XLogReaderState *record, uint8 id)
{
	bool		todo[2];
	bool		valid[2];

	XLogRecGetBlockTag(record, id, NULL, NULL, &t->first);
	t->source = 0;
	for (int i = 0; i < 2; i++)
	{
		todo[i] = XLogReadBufferForRedoExtended(record, id + i, RBM_ZERO_ON_ERROR, false,
												&t->buffer[i]) == BLK_NEEDS_REDO;
		valid[i] = BufferIsValid(t->buffer[i]) &&
			is_valid(BufferGetPage(t->buffer[i]), t->first);
	}

	/*
	 * a valid twin that has this change, and perhaps later ones, serves for
	 * both
	 */
	for (int i = 0; i < 2; i++)
	{
		if (todo[i] || !valid[i])
			continue;
		if (todo[1 - i] || !valid[1 - i])
			take_twin(t, 1 - i, i);
		return false;
	}
	if (!valid[0] && !valid[1])
	{
		both_lost(t, record, id);
		return false;
	}
	t->source = newer_twin(BufferGetPage(t->buffer[0]), BufferGetPage(t->buffer[1]), t->first);
	return true;
}

void
zu_twins_redo_new(ZuTwins *t, XLogReaderState *record)
{
	XLogRecGetBlockTag(record, 0, NULL, NULL, &t->first);
	t->source = 0;
	t->buffer[0] = XLogInitBufferForRedo(record, 0);
	t->buffer[1] = XLogInitBufferForRedo(record, 1);
}

void
zu_twins_redone(const ZuTwins *t, XLogReaderState *record)
{
	zu_twins_changed(t);
	zu_twins_set_lsn(t, record->EndRecPtr);
}
