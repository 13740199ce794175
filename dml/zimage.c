/*
 * dml/zimage.c - saving in the undo log what leaves a page: the image of a hot
 * page, so that old snapshots need not walk long chains, and rows that become
 * stubs (SAVED-1 in mvcc/zsaved.c).
 *
 * Called by dml/ before a change, with the page exclusively locked; undo pages
 * are locked below it.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "common/zcount.h"
#include "dml/zdml_internal.h"
#include "mvcc/zsaved.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

/*
 * An image is saved when the page's debt is this many times the size of the
 * page without its hole, and at least the second number.
 */
#define IMAGE_DEBT_FACTOR 4
#define IMAGE_MIN_DEBT 1024

/*
 * Returns whether no slot of the page has an aborted head, which an image must
 * not hold: each owner is before `oldest`, has committed or is in progress. A
 * slot whose undo is lost does not count: nothing will ever be undone there,
 * and readers of the image find the same damage as those of the page.
 */
static bool
no_aborted_slots(Relation rel, BlockNumber block, Page page)
{
	ZXid		oldest = zslots_oldest(page);

	for (int i = 1; i <= zpage_nslots(page); i++)
	{
		ZPageSlot  *slot = zpage_slot(page, i);

		if (zslot_age(slot, oldest) != ZAGE_YOUNG)
			continue;
		zvis_check_xid(rel, block, i, ZSLOT_XID(slot));
		if (zxid_status_at(ZSLOT_XID(slot), oldest) == ZXID_ABORTED)
			return false;
	}
	return true;
}

/*
 * Writes the page, without its hole, as an IMAGE record, which the page's
 * trailer then points to. On entry the page is exclusively locked and undo is
 * reserved.
 */
static void
save_image(const ZWriter *writer, Buffer buf, ZXid committed)
{
	char		bytes[BLCKSZ];
	char		compressed[BLCKSZ];
	Page		page = BufferGetPage(buf);
	PageHeader	ph = (PageHeader) page;
	ZChange		change;
	ZuRecord   *rec = &change.rec[0];

	Assert(zc_buffer_exclusive(buf) && !zpage_has_overflow(page));
	memcpy(bytes, page, ph->pd_lower);
	memcpy(bytes + ph->pd_lower, (char *) page + ph->pd_upper, BLCKSZ - ph->pd_upper);
	zwriter_change(writer, &change, ZWAL_IMAGE, 1);
	zwriter_record(writer, rec, ZUR_IMAGE, BufferGetBlockNumber(buf), 0,
				   zpage_trailer(page)->saved);
	rec->committed = committed;
	rec->payload = bytes;
	rec->payload_len = ph->pd_lower + (BLCKSZ - ph->pd_upper);
	zur_compress(rec, compressed, sizeof(compressed));
	change.page[0].buf = buf;
	change.page[0].page = page;
	zchange_do(&change, NULL);
	zcount(ZCOUNT_IMAGES_MADE, 1);
}

/*
 * zimage_maybe_save: See zdml_internal.h. Saves no image for temporary
 * tables, whose undo no other process reads, nor for a chain that is empty or
 * our own, nor on a page with an overflow page.
 */
void
zimage_maybe_save(const ZWriter *writer, Buffer buf, ZSlotPick *pick)
{
	Page		page = BufferGetPage(buf);
	PageHeader	ph = (PageHeader) page;
	ZPageTrailer *trailer = zpage_trailer(page);
	Size		size = ph->pd_lower + (BLCKSZ - ph->pd_upper);

	if (writer->temp || pick->committed == InvalidZXid || trailer->debt < IMAGE_MIN_DEBT ||
		trailer->debt < Min(IMAGE_DEBT_FACTOR * size, PG_UINT16_MAX))
		return;
	if (zpage_has_overflow(page) || !no_aborted_slots(writer->rel, BufferGetBlockNumber(buf), page))
		return;
	save_image(writer, buf, pick->committed);
}

/*
 * Decides whether WAL has the payload of the ROWS record of the change. If not,
 * replay takes the rows from the page (SAVED-5), and the payload is not
 * compressed, as LZ4 may give other bytes there. So WAL has it if that makes
 * it less than half as long, which is the least for WAL and undo together, and
 * without page images, when the page may be newer. space has BLCKSZ bytes.
 */
static void
choose_form(ZChange *change, char *space)
{
	ZuRecord   *rec = &change->rec[0];
	const char *raw = rec->payload;
	uint16		len = rec->payload_len;

	zur_compress(rec, space, BLCKSZ);
	if (!change->logged || rec->payload_len < len / 2 || !fullPageWrites)
		return;
	change->compact = true;
	rec->payload = raw;
	rec->payload_len = len;
	rec->xflags &= ~ZUX_LZ4;
}

/*
 * zimage_save_rows: See zdml_internal.h. The page with its header is longer
 * than what is saved of it, so one record takes all rows.
 */
bool
zimage_save_rows(const ZWriter *writer, Buffer buf, const ZPrunePlan *plan)
{
	char		bytes[BLCKSZ];
	char		compressed[BLCKSZ];
	ZPruneItem	stubs[ZHEAP_MAX_OFFSET];
	int			n = 0;
	Page		page = BufferGetPage(buf);
	ZChange		change;
	ZuRecord   *rec = &change.rec[0];
	int			len;

	StaticAssertStmt(ZUR_ROW_HEAD <= sizeof(ItemIdData), "a line pointer is as long");
	Assert(zc_buffer_exclusive(buf));
	for (int i = 0; i < plan->n; i++)
		if (plan->items[i].action == ZPRUNE_STUB)
			stubs[n++] = plan->items[i];
	if (n == 0)
		return true;
	len = zchange_rows_on_page(page, stubs, n, bytes);
	Assert(len > 0);
	if (!zu_op_fits_spare(ZUR_MAX_LENGTH - BLCKSZ + len))
		return false;
	zwriter_change(writer, &change, ZWAL_IMAGE, 1);
	zwriter_record(writer, rec, ZUR_ROWS, BufferGetBlockNumber(buf), 0,
				   zpage_trailer(page)->saved);
	rec->payload = bytes;
	rec->payload_len = len;
	change.page[0].buf = buf;
	change.page[0].page = page;
	change.page[0].slot.live_chain = rec->prev != InvalidUndoPtr;
	choose_form(&change, compressed);
	if (change.compact)
	{
		change.prune = stubs;
		change.nprune = n;
	}
	zchange_do(&change, NULL);
	ZUNDO_FAULT("rows-saved");
	return true;
}
