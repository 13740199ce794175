/*
 * mvcc/zwalk.c - acceptance rules, single-row walks and page images.
 *
 * Called by the other files of mvcc/ only. A walk on a copied page holds no
 * lock; one on a locked page takes undo page locks below the caller's. Nothing
 * is written.
 *
 * The rules are in mvcc/README.md: VIS-1 says which `oldest` belongs to a copy
 * of a page, VIS-2 which record is a version's author (zwalk_find_author), and
 * VIS-3 when a walk may stop (zaccept_older). VIS-4, what a discarded record
 * means, is applied in zchain.c.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "common/hashfn.h"
#include "common/zcount.h"
#include "miscadmin.h"
#include "mvcc/zown.h"
#include "mvcc/zsaved.h"
#include "mvcc/zwalk.h"
#include "storage/bufmgr.h"
#include "storage/procarray.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

/* zaccept_init: See zwalk.h. */
void
zaccept_init(ZAccept *accept, ZAcceptKind kind, Snapshot snapshot, ZXid oldest)
{
	Assert(kind != ZACCEPT_MVCC || zsnapshot_is_mvcc(snapshot));
	accept->kind = kind;
	accept->snapshot = snapshot;
	accept->limit = 0;
	accept->oldest = oldest;
	accept->of_nobody = false;
	accept->last_xid = InvalidZXid;
	accept->last_answer = false;
}

/*
 * zaccept_older: See zwalk.h. Decides by VIS-3. Below our own records there may
 * be records of transactions that committed after the snapshot was taken, and
 * records of later commands of our own. ZACCEPT_NOT_ABORTED accepts a
 * transaction in progress for its own record only: the reader continues below
 * it.
 */
bool
zaccept_older(const ZAccept *accept, RelFileNumber relnumber, BlockNumber block, ZXid xid)
{
	TransactionId x = zxid_to_xid(xid);

	if (xid < accept->oldest)
		return true;
	if (TransactionIdIsCurrentTransactionId(x))
		switch (accept->kind)
		{
			case ZACCEPT_MVCC:
				return zown_accepts_older(relnumber, block, accept->snapshot->curcid);
			case ZACCEPT_OWN_BEFORE:
				return zown_accepts_older(relnumber, block, accept->limit);
			default:
				return true;
		}
	return accept->kind != ZACCEPT_NOT_ABORTED || zxid_is_committed(xid);
}

/*
 * Returns whether changes by xid, which is not ours, are accepted. Remembers
 * the last answer, since a chain often has many records of one transaction.
 */
static bool
accept_other(ZAccept *accept, ZXid xid)
{
	if (xid == accept->last_xid)
		return accept->last_answer;
	Assert(!TransactionIdIsCurrentTransactionId(zxid_to_xid(xid)));
	accept->last_xid = xid;
	switch (accept->kind)
	{
		case ZACCEPT_MVCC:
			accept->last_answer = zxid_visible_mvcc(xid, accept->snapshot);
			break;
		case ZACCEPT_COMMITTED:
		case ZACCEPT_OWN_BEFORE:
			accept->last_answer = zxid_is_committed(xid);
			break;
		case ZACCEPT_NOT_ABORTED:
			accept->last_answer = zxid_status_at(xid, accept->oldest) != ZXID_ABORTED;
			break;
		case ZACCEPT_NONE:
			accept->last_answer = false;
			break;
	}
	return accept->last_answer;
}

/*
 * zaccept_record: See zwalk.h. Decides own changes by cid, others by the
 * transaction's status.
 */
bool
zaccept_record(ZAccept *accept, ZXid xid, CommandId cid)
{
	if (xid < accept->oldest)
		return true;
	if (accept->kind == ZACCEPT_NONE)
		return false;
	if (TransactionIdIsCurrentTransactionId(zxid_to_xid(xid)))
	{
		if (accept->kind == ZACCEPT_MVCC)
			return cid < accept->snapshot->curcid;
		return accept->kind != ZACCEPT_OWN_BEFORE || cid < accept->limit;
	}
	return accept_other(accept, xid);
}

/*
 * zaccept_version: See zwalk.h. Accepts a rewrite's record if the MVCC
 * snapshot sees the transaction that it is "as of".
 */
bool
zaccept_version(ZAccept *accept, const ZuRecord *rec)
{
	if (unlikely(TransactionIdIsValid(rec->as_of)) && accept->kind == ZACCEPT_MVCC &&
		rec->xid >= accept->oldest)
	{
		if (!XidInMVCCSnapshot(rec->as_of, accept->snapshot))
			return true;

		/*
		 * the rewrite must change nothing for a snapshot of our own that does
		 * not see as_of
		 */
		if (TransactionIdIsCurrentTransactionId(zxid_to_xid(rec->xid)))
			return false;
	}
	return zaccept_record(accept, rec->xid, rec->cid);
}

/*
 * zaccept_head: See zwalk.h. Decides as zaccept_record, but for own changes
 * whose cid matters.
 */
bool
zaccept_head(ZAccept *accept, ZXid xid)
{
	if (xid < accept->oldest)
		return true;
	if (accept->kind == ZACCEPT_NONE)
		return false;
	if (TransactionIdIsCurrentTransactionId(zxid_to_xid(xid)))
		return accept->kind != ZACCEPT_MVCC && accept->kind != ZACCEPT_OWN_BEFORE;
	return accept_other(accept, xid);
}

/* zwalk_begin: See zwalk.h. Copies the row's bytes; a stub has none. */
bool
zwalk_begin(ZWalk *walk, const ZRow *row, ZChainSource source)
{
	Page		page = row->page;
	OffsetNumber off = row->off;
	ItemId		lp;

	Assert(source == ZCHAIN_LOCKED || source == ZCHAIN_COPIED);
	if (off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
		return false;
	lp = PageGetItemId(page, off);
	walk->rel = row->rel;
	walk->block = row->block;
	walk->off = off;
	walk->slots = row->slots;
	walk->source = source;
	walk->saved = zpage_trailer(page)->saved;
	walk->at_author = false;
	walk->last_reader = 0;
	for (int i = 0; i < ZWALK_READERS; i++)
		ztrail_start(&walk->reader[i]);
	walk->exists = true;
	memset(walk->entered, 0, (walk->slots->n + 1) * sizeof(bool));
	if (ItemIdIsNormal(lp))
	{
		walk->has_bytes = true;
		walk->len = zpage_row_length(page, lp);
		if (walk->len == 0)
			zvis_corrupt_page(row->rel, row->block, page, off);
		memcpy(walk->row, zpage_row(page, lp), walk->len);
		walk->header = zheader_get(walk->row);
		return true;
	}
	if (ItemIdIsRedirected(lp))
	{
		walk->has_bytes = false;
		walk->len = 0;
		walk->header = zpage_stub_header(lp);
		return true;
	}
	return false;
}

/*
 * Returns the reader that stands before the record at next, or else one that
 * will begin there.
 */
static inline ZTrailReader *
reader_at(ZWalk *walk, UndoPtr next)
{
	for (int i = 0; i < ZWALK_READERS; i++)
		if (walk->reader[i].next == next)
			return &walk->reader[i];
	walk->last_reader = (walk->last_reader + 1) % ZWALK_READERS;
	return &walk->reader[walk->last_reader];
}

/*
 * zwalk_find_author: See zwalk.h. Answers the first visit of a slot by the
 * chain's head alone, if that is enough. Else reads records from where the
 * walk left this chain, until one concerns the row or lets the reader stop.
 */
ZWalkResult
zwalk_find_author(ZWalk *walk, ZAccept *accept)
{
	int			s = ZH_SLOT(walk->header);
	RelFileNumber relnumber = walk->rel->rd_locator.relNumber;
	ZChain	   *chain = &walk->chain;
	ZTrailReader *reader;

	Assert(walk->exists && !walk->at_author);

	/*
	 * a number above the present ones is that of a slot that was given up:
	 * the row is visible to all
	 */
	if (!zslots_has(walk->slots, walk->rel, walk->block, s))
		return ZWALK_ALL_VISIBLE;
	if (!walk->entered[s])
	{
		const ZPageSlot *slot = &walk->slots->s[s];
		ZXid		xid = ZSLOT_XID(slot);

		if (walk->source == ZCHAIN_LOCKED)
			ZUNDO_FAULT("locked-chain");

		walk->entered[s] = true;
		walk->next[s] = zown_skip(walk->off, slot->ptr);

		if (!zvis_is_young(walk->rel, walk->block, s, slot, walk->slots->oldest))
			return ZWALK_ALL_VISIBLE;
		if (zaccept_head(accept, xid) && zaccept_older(accept, relnumber, walk->block, xid))
			return ZWALK_ACCEPTED;
	}
	if (walk->source == ZCHAIN_LOCKED)
		zchain_begin_locked(chain, relnumber, walk->block, &walk->slots->s[s],
							walk->slots->oldest, walk->buf);
	else
		zchain_begin_copied(chain, relnumber, walk->block, &walk->slots->s[s], &walk->gone,
							walk->slots->oldest, walk->buf);
	chain->next = walk->next[s];
	reader = reader_at(walk, chain->next);
	for (;;)
	{
		ZuRecord   *rec = &walk->rec;

		switch (ztrail_next(chain, reader, walk->off, true, rec))
		{
			case ZCHAIN_RETRY:
				return ZWALK_RETRY;
			case ZCHAIN_END:
			case ZCHAIN_SETTLED:
				return ZWALK_ALL_VISIBLE;
			case ZCHAIN_DAMAGED:
				zvis_corrupt_chain(walk->rel, walk->block, chain->next);
			case ZCHAIN_RECORD:
				break;
		}
		walk->next[s] = chain->next;
		if (zrecord_wrote(rec, walk->off, walk->header))
		{
			walk->rec_ptr = chain->here;
			walk->at_author = true;
			return ZWALK_AUTHOR;
		}
		if (zaccept_record(accept, rec->xid, rec->cid) &&
			zaccept_older(accept, relnumber, walk->block, rec->xid))
			return ZWALK_ACCEPTED;	/* VIS-3 */
	}
}

/*
 * zwalk_undo_record: See zwalk.h. Undoes one change. Checks every length
 * against the row and the payload, as damaged undo must not write beyond the
 * buffer.
 */
bool
zwalk_undo_record(char *row, int *len, bool has_bytes, bool *exists, ZuRecordType type,
				  const char *raw, Size rawlen)
{
	const char *p = raw;
	const char *end = raw + rawlen;
	ZHeader		old;
	Size		datalen;

	if (raw == NULL && type != ZUR_INSERT)
		return false;
	switch (type)
	{
		case ZUR_INSERT:
			*exists = false;
			return true;
		case ZUR_UPDATE:
			if (!has_bytes || *len < ZTUPLE_HEADER_SIZE)
				return false;
			p = zheader_compact_get(p, end, zheader_get(row), &old);
			if (p == NULL)
				return false;
			datalen = *len - ZTUPLE_HEADER_SIZE;
			p = zdelta_undo_apply(p, end, row + ZTUPLE_HEADER_SIZE, &datalen,
								  BLCKSZ - ZTUPLE_HEADER_SIZE);
			if (p != end)
				return false;
			zheader_set(row, old);
			*len = datalen + ZTUPLE_HEADER_SIZE;
			zcount_read(ZCOUNT_REBUILT, 1);
			return true;
		case ZUR_DELETE:
		case ZUR_MOVE:
			if (!has_bytes)
				return false;
			p = zheader_compact_get(p, end, zheader_get(row), &old);
			if (p != end || !zheader_same_shape(old, zheader_get(row)))
				return false;
			zheader_set(row, old);
			zcount_read(ZCOUNT_REBUILT, 1);
			return true;
		default:
			return false;
	}
}

/*
 * zwalk_step_back: See zwalk.h. Undoes walk->rec, after taking the bytes of a
 * stub from where they were saved. Raises ERRCODE_DATA_CORRUPTED if the record
 * does not fit the row, or if that was not saved.
 */
void
zwalk_step_back(ZWalk *walk)
{
	Size		rawlen = 0;
	const char *raw = NULL;

	Assert(walk->at_author && walk->exists);
	walk->at_author = false;
	if (unlikely(!walk->has_bytes) &&
		(walk->rec.type == ZUR_DELETE || walk->rec.type == ZUR_MOVE))
	{
		walk->has_bytes = zsaved_take(walk->rel, walk->block, walk->saved, walk->off, walk->row,
									  &walk->len);
		if (!walk->has_bytes)
		{
			walk->exists = false;	/* SAVED-2 */
			return;
		}
	}
	if (walk->rec.type != ZUR_INSERT)
		raw = zur_raw_payload(&walk->rec, walk->raw, sizeof(walk->raw), &rawlen);
	if (!zwalk_undo_record(walk->row, &walk->len, walk->has_bytes, &walk->exists,
						   walk->rec.type, raw, rawlen))
		zvis_corrupt_chain(walk->rel, walk->block, walk->rec_ptr);
	if (walk->exists)
		walk->header = zheader_get(walk->row);
}

ZWalkResult
zwalk_next(ZWalk *walk, ZAccept *accept)
{
	if (walk->at_author)
	{
		zwalk_step_back(walk);
		if (unlikely(!walk->exists && walk->rec.type != ZUR_INSERT) &&
			accept->kind == ZACCEPT_MVCC && !accept->of_nobody &&
			!zaccept_version(accept, &walk->rec))
			zvis_corrupt_chain(walk->rel, walk->block, walk->saved);	/* SAVED-2 */
	}
	return walk->exists ? zwalk_find_author(walk, accept) : ZWALK_BEGINNING;
}

/* ---- page images ---- */

/*
 * What is known of the list of a page, by its newest record: of the last
 * KNOWN_LISTS lists, each at the place that known_place returns.
 */
typedef struct KnownList
{
	UndoPtr		list;			/* Invalid = none */
	UndoPtr		from;			/* only saved rows are above this record;
								 * Invalid = there is no image */
	ZXid		decides;		/* decides() of the newest record; 0 = that
								 * has not been read */
} KnownList;

#define KNOWN_LISTS 512
static KnownList known_lists[KNOWN_LISTS];

/* Returns the place in known_lists for this list. */
static KnownList *
known_place(UndoPtr list)
{
	return &known_lists[murmurhash32((uint32) list ^ (uint32) (list >> 32)) % KNOWN_LISTS];
}

/*
 * Returns the transaction that must be invisible to a snapshot which needs this
 * record of a list, or an image below: of an image, the one that had committed
 * when it was made; of saved rows, the one that saved them, which is younger
 * than all images below.
 */
static inline ZXid
decides(const ZuRecord *rec)
{
	return rec->type == ZUR_ROWS ? rec->xid : rec->committed;
}

/* Returns whether the snapshot does not see the transaction. */
static inline bool
unseen(ZXid xid, ZXid oldest, Snapshot snapshot)
{
	return xid >= oldest && XidInMVCCSnapshot(zxid_to_xid(xid), snapshot);
}

/*
 * Returns whether the list may have an image for the snapshot, by what is known
 * of it. Reads no undo.
 */
static bool
may_have_image(UndoPtr list, ZXid oldest, Snapshot snapshot)
{
	const KnownList *known = known_place(list);

	if (list == InvalidUndoPtr || known->list != list)
		return list != InvalidUndoPtr;
	return known->from != InvalidUndoPtr &&
		(known->decides == InvalidZXid || unseen(known->decides, oldest, snapshot));
}

/*
 * Makes a page of the raw payload of an IMAGE record: puts the bytes back
 * around the page's free space. Returns false if the payload is malformed.
 */
static bool
restore_image(char *page, const char *raw, Size rawlen)
{
	PageHeaderData header;
	Size		tail;

	if (raw == NULL || rawlen < SizeOfPageHeaderData)
		return false;
	memcpy(&header, raw, SizeOfPageHeaderData);
	if (header.pd_lower < SizeOfPageHeaderData || header.pd_upper < header.pd_lower ||
		header.pd_upper > BLCKSZ)
		return false;
	tail = BLCKSZ - header.pd_upper;
	if (rawlen != header.pd_lower + tail)
		return false;
	memcpy(page, raw, header.pd_lower);
	memset(page + header.pd_lower, 0, header.pd_upper - header.pd_lower);
	memcpy(page + header.pd_upper, raw + header.pd_lower, tail);

	/*
	 * An image is made of a page without an overflow page. Rows may
	 * nevertheless name slots of an overflow page that the page had before,
	 * and readers of the image must not take that for damage.
	 */
	zpage_trailer(page)->overflow = ZPAGE_HAD_OVERFLOW;
	return zpage_is_valid(page);
}

/*
 * zwalk_jump_to_image: See zwalk.h. Follows the images from the newest to
 * older ones as long as the snapshot does not see the transaction that had
 * committed when the image was made; then all later changes are invisible too.
 * Passes over saved rows, once for each list. Does nothing if an own change is
 * on the page, nor for a serializable transaction, which must report every
 * change that it does not see.
 */
bool
zwalk_jump_to_image(char *page, ZSlotView *slots, Relation rel, BlockNumber block,
					Snapshot snapshot)
{
	static char *buf = NULL;	/* two records and one raw image */
	char	   *best = NULL;
	char	   *next;
	ZuRecord	rec,
				best_rec;
	UndoPtr		list = zpage_trailer(page)->saved;
	UndoPtr		ptr;
	KnownList  *known = known_place(list);
	ZSavedPath	path = {0};
	ZXid		oldest = slots->oldest;
	const char *raw;
	Size		rawlen;

	Assert(zsnapshot_is_mvcc(snapshot));
	if (!may_have_image(list, oldest, snapshot) || zssi_needed(rel, snapshot))
		return false;
	for (int i = 1; i <= slots->n; i++)
		if (zvis_is_young(rel, block, i, &slots->s[i], slots->oldest) &&
			zxid_is_ours(ZSLOT_XID(&slots->s[i])))
			return false;
	if (buf == NULL)
		buf = MemoryContextAlloc(TopMemoryContext, 3 * ZUR_MAX_LENGTH);
	if (known->list != list)
	{
		known->list = known->from = list;
		known->decides = InvalidZXid;
	}
	next = buf;
	ptr = known->from;
	while (ptr != InvalidUndoPtr)
	{
		CHECK_FOR_INTERRUPTS();
		if (zsaved_in_circle(&path, ptr))
			zvis_corrupt_chain(rel, block, ptr);
		if (!zu_fetch_saved(ptr, rel->rd_locator.relNumber, block, &rec, next))
		{
			ptr = InvalidUndoPtr;
			break;
		}
		if (ptr == list)
			known->decides = decides(&rec);
		if (!unseen(decides(&rec), oldest, snapshot))
			break;
		if (rec.type == ZUR_IMAGE)
		{
			if (best == NULL)
				known->from = ptr;
			best = next;
			best_rec = rec;
			next = (best == buf) ? buf + ZUR_MAX_LENGTH : buf;
		}
		ptr = rec.prev;
	}
	if (best == NULL)
	{
		known->from = ptr;
		return false;
	}
	raw = zur_raw_payload(&best_rec, buf + 2 * ZUR_MAX_LENGTH, ZUR_MAX_LENGTH, &rawlen);
	if (!restore_image(page, raw, rawlen))
		zvis_corrupt_chain(rel, block, list);
	zslots_copy(rel, block, page, slots);
	slots->oldest = oldest;		/* VIS-1 */
	zcount_read(ZCOUNT_IMAGES_USED, 1);
	return true;
}

/*
 * zwalk_load: See zwalk.h. Copies the whole page only if it may have an image
 * that helps; else only the row.
 */
bool
zwalk_load(ZCopyWalk *copy, Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot)
{
	ZRow		row = zvis_row_on(rel, buf, off, &copy->slots);
	bool		has_image;
	bool		begun = false;

	Assert(zc_buffer_locked(buf));
	zslots_copy(rel, row.block, row.page, &copy->slots);
	has_image = zsnapshot_is_mvcc(snapshot) &&
		may_have_image(zpage_trailer(row.page)->saved, copy->slots.oldest, snapshot);
	if (has_image)
		memcpy(copy->page.data, row.page, BLCKSZ);
	else
		begun = zwalk_begin(&copy->walk, &row, ZCHAIN_COPIED);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	if (!has_image)
		return begun;
	(void) zwalk_jump_to_image(copy->page.data, &copy->slots, rel, row.block, snapshot);
	row.page = copy->page.data;
	return zwalk_begin(&copy->walk, &row, ZCHAIN_COPIED);
}
