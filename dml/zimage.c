/*
 * dml/zimage.c - saving a hot page's image to undo, so that old snapshots need not walk long chains.
 */
#include "postgres.h"

#include "dml/zdml_internal.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/* An image is worth it when the chains have grown by this many times its size. */
#define IMAGE_DEBT_FACTOR 4
#define IMAGE_MIN_DEBT 1024

/* Is every unsettled slot's owner committed or at work? (an image must not hold aborted heads) */
static bool
no_aborted_slots(Relation rel, BlockNumber block, Page page)
{
	ZXid		oldest = zpage_oldest(page);

	for (int i = 1; i <= zpage_nslots(page); i++)
	{
		ZPageSlot  *slot = zpage_slot(page, i);

		if (slot->ptr == InvalidUndoPtr || zslot_locks_only(slot) || ZSLOT_XID(slot) < oldest)
			continue;
		zvis_check_xid(rel, block, i, ZSLOT_XID(slot));
		if (zxid_status_at(ZSLOT_XID(slot), oldest) == ZXID_ABORTED)
			return false;
	}
	return true;
}

void
zspace_maybe_image(const ZWriter *writer, Buffer buf, ZSlotPick *pick)
{
	static char bytes[BLCKSZ];
	static char compressed[BLCKSZ];
	static char packed[ZUR_MAX_LENGTH];
	Page		page = BufferGetPage(buf);
	PageHeader	ph = (PageHeader) page;
	ZPageTrailer *trailer = zpage_trailer(page);
	Size		size = ph->pd_lower + (BLCKSZ - ph->pd_upper);
	ZuRecord	rec;
	ZuRecord   *recs[1];
	ZuOp		op;
	ZWalSlot	slot = {0};
	XLogRecPtr	recptr = InvalidXLogRecPtr;

	if (writer->temp || pick->committed == InvalidZXid || trailer->debt < IMAGE_MIN_DEBT ||
		trailer->debt < Min(IMAGE_DEBT_FACTOR * size, PG_UINT16_MAX))
		return;
	if (zpage_has_overflow(page) || !no_aborted_slots(writer->rel, BufferGetBlockNumber(buf), page))
		return;
	memcpy(bytes, page, ph->pd_lower);
	memcpy(bytes + ph->pd_lower, (char *) page + ph->pd_upper, BLCKSZ - ph->pd_upper);
	zwriter_record(writer, &rec, ZUR_IMAGE, BufferGetBlockNumber(buf), 0, trailer->image);
	rec.committed = pick->committed;
	rec.payload = bytes;
	rec.payload_len = size;
	zur_compress(&rec, compressed, sizeof(compressed));
	recs[0] = &rec;
	zu_prepare(&op, recs, 1, writer->topxid);
	zur_pack(&rec, packed);
	zwal_ensure_space(&op, false);

	START_CRIT_SECTION();
	zapply_image(page, op.ptr[0]);
	MarkBufferDirty(buf);
	zu_write(&op);
	recptr = zwal_log_literal(writer->logged ? ZWAL_IMAGE : ZWAL_UNDO_ONLY, 0,
							  writer->logged ? buf : InvalidBuffer, InvalidBuffer,
							  &slot, &op, packed, NULL, 0);
	if (writer->logged)
		PageSetLSN(page, recptr);
	zu_finish(&op, recptr);
	END_CRIT_SECTION();
}
