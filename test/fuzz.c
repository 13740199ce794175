/*
 * test/fuzz.c - damaged WAL records and undo records for their decoders.
 *
 *	zundo_test_fuzz(target text, since pg_lsn, seed int, seconds float8)
 *		returns text
 *
 * Reads the WAL that the server has written since that position, changes the
 * bytes of zundo's records at random, and gives them to what decodes them:
 * target 'wal' to change/zwal*.c, 'undo' (the packed undo records that are in
 * them) to undo/undo_record.c, tuple/ and zpage_undo. A decoder refuses what it
 * is given, or what it returns is consistent; anything else is an ERROR here.
 *
 * Each input ends where its memory ends: the next page may not be accessed, so
 * a read past the end stops the server. So it is with what is written. The
 * input is in the file zundo_fuzz_input of the data directory, which stays.
 * Rules: RECORD-1, DELTA-1.
 */
#include "unit.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "access/xlogrecovery.h"
#include "access/xlogutils.h"
#include "change/zchange.h"
#include "change/zwal.h"
#include "common/compat.h"
#include "common/rmgr.h"
#include "common/varint.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "tuple/zlayout.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/pg_lsn.h"

PGDLLEXPORT Datum zundo_test_fuzz(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_test_fuzz);

#define MAX_BYTES	(1 << 17)
#define MAX_SAMPLES 300			/* of one kind */
#define KINDS		16			/* of WAL records by opcode, of undo records
								 * by type */

/* A record as it was written. */
typedef struct Sample
{
	uint8		info;
	TransactionId xid;
	int			max_block_id;
	DecodedBkpBlock *ref;		/* max_block_id + 1 of them */
	const char *bytes;			/* WAL: main data; undo: the packed record */
	uint32		length;
	const char *near;			/* data of block 0 */
	uint32		near_length;
} Sample;

static Sample *samples[KINDS][MAX_SAMPLES];
static int	nsamples[KINDS];
static int	seen[KINDS];
static Page pages[MAX_SAMPLES];
static int	npages;

/* what zundo.so has in files that are not part of this module */
void
zu_op_register(ZuOp *op, uint8 first_block_id)
{
	elog(ERROR, "the decoders register nothing");
}

/* ---- guarded memory ---- */

/* Memory of MAX_BYTES bytes before a page that may not be accessed. */
static char *
guarded_memory(const char *file)
{
	Size		page = sysconf(_SC_PAGESIZE);
	int			fd = file ? open(file, O_RDWR | O_CREAT, 0600) : -1;
	char	   *at;

	if (file && (fd < 0 || ftruncate(fd, MAX_BYTES + page) != 0))
		elog(ERROR, "could not make file \"%s\": %m", file);
	at = mmap(NULL, MAX_BYTES + page, PROT_READ | PROT_WRITE,
			  file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (at == MAP_FAILED || mprotect(at + MAX_BYTES, page, PROT_NONE) != 0)
		elog(ERROR, "could not map memory: %m");
	if (file)
		close(fd);
	return at;
}

/* Reads all bytes, so that bytes which are not there stop the server. */
static void
touch(const char *bytes, Size length)
{
	static volatile uint32 sum;

	for (Size i = 0; i < length; i++)
		sum += (uint8) bytes[i];
}

/* ---- samples ---- */

/*
 * Keeps a sample of this kind, in the place of a random one if there are many.
 */
static void
keep(int kind, const Sample *sample)
{
	int			place = nsamples[kind] < MAX_SAMPLES ? nsamples[kind]++ : pick(++seen[kind]);

	if (place >= MAX_SAMPLES)
		return;
	samples[kind][place] = palloc(sizeof(Sample));
	*samples[kind][place] = *sample;
}

static char *
copy_of(const char *bytes, Size length)
{
	return length == 0 ? palloc(1) : memcpy(palloc(length), bytes, length);
}

/* Keeps the undo records that the change has packed. */
static void
keep_undo(const ZChange *change)
{
	const char *p;

	if (change->covered)
		return;
	p = change->undo;
	for (int i = 0; i < change->nrecords; i++)
	{
		Sample		sample = {0};

		sample.bytes = copy_of(p, change->rec[i].length);
		sample.length = change->rec[i].length;
		keep(change->rec[i].type, &sample);
		p += change->rec[i].length;
	}
}

/*
 * Keeps what the record has: itself, its undo records, the image of its page.
 */
static void
keep_record(XLogReaderState *reader, bool undo)
{
	static ZChange change;
	static ZChangeWork work;
	Sample		sample = {0};
	Size		length = 0;
	const char *near = XLogRecHasBlockRef(reader, 0) ? XLogRecGetBlockData(reader, 0, &length)
	: NULL;
	uint8		opcode = XLogRecGetInfo(reader) & ~XLR_INFO_MASK;

	if (undo && XLogRecHasBlockRef(reader, 0) && XLogRecHasBlockImage(reader, 0) &&
		opcode != ZWAL_MARK && npages < MAX_SAMPLES)
	{
		Page		page = palloc(BLCKSZ);

		if (RestoreBlockImage(reader, 0, page) &&
			zpage_check(page, ZPAGE_MAX_SLOTS, NULL, NULL) == 0)
			pages[npages++] = page;
	}
	if (opcode <= ZWAL_LOCK || opcode == ZWAL_UNDO_ONLY || opcode == ZWAL_IMAGE)
	{
		if (!zchange_decode(reader, &change, &work))
			elog(ERROR, "a record at %X/%X cannot be decoded", LSN_FORMAT_ARGS(reader->ReadRecPtr));
		if (undo)
			keep_undo(&change);
	}
	else if (opcode != ZWAL_INLINE_LOCK)
		return;
	if (undo)
		return;
	sample.info = opcode;
	sample.xid = XLogRecGetXid(reader);
	sample.max_block_id = XLogRecMaxBlockId(reader);
	sample.ref = (DecodedBkpBlock *) copy_of((char *) reader->record->blocks,
											 (sample.max_block_id + 1) * sizeof(DecodedBkpBlock));
	sample.bytes = copy_of(XLogRecGetData(reader), XLogRecGetDataLen(reader));
	sample.length = XLogRecGetDataLen(reader);
	sample.near = copy_of(near, length);
	sample.near_length = length;
	keep(opcode >> 4, &sample);
}

/*
 * Reads the server's WAL from this position on. Returns the number of samples.
 */
static int
collect(XLogRecPtr since, bool undo)
{
	ReadLocalXLogPageNoWaitPrivate *private = palloc0(sizeof(*private));
	XLogReaderState *reader;
	char	   *message;
	int			n = 0;

	memset(nsamples, 0, sizeof(nsamples));
	memset(seen, 0, sizeof(seen));
	npages = 0;
	reader = XLogReaderAllocate(wal_segment_size, NULL,
								XL_ROUTINE(.page_read = &read_local_xlog_page_no_wait,
										   .segment_open = &wal_segment_open,
										   .segment_close = &wal_segment_close), private);
	if (XLogRecPtrIsInvalid(zc_find_next_record(reader, since, &message)))
		elog(ERROR, "there is no WAL record after %X/%X", LSN_FORMAT_ARGS(since));
	while (XLogReadRecord(reader, &message) != NULL)
		if (XLogRecGetRmid(reader) == ZUNDO_RMGR_ID)
			keep_record(reader, undo);
	if (message != NULL)
		elog(ERROR, "WAL cannot be read: %s", message);
	XLogReaderFree(reader);
	for (int kind = 0; kind < KINDS; kind++)
		n += nsamples[kind];
	return n;
}

/* Returns a random sample; each kind is as frequent. */
static const Sample *
any_sample(void)
{
	int			kind;

	do
		kind = pick(KINDS);
	while (nsamples[kind] == 0);
	return samples[kind][pick(nsamples[kind])];
}

/* ---- mutations ---- */

/*
 * Changes bytes[0, length) at random, in a buffer of size bytes; returns the
 * new length.
 */
static Size
mutate(char *bytes, Size length, Size size)
{
	static const uint8 odd[] = {0, 1, 2, 0x3F, 0x40, 0x7F, 0x80, 0x81, 0xFE, 0xFF};

	for (int n = pick(5) == 0 ? pick(12) : 1 + pick(3); n > 0; n--)
	{
		/* most fields are at the beginning */
		Size		at = length == 0 ? 0 : pick(pick(3) == 0 ? length : Min(length, 48));
		Size		count = 1 + pick(pick(4) == 0 ? 300 : 8);
		const Sample *other;

		switch (length == 0 ? 5 : pick(8))
		{
			case 0:
				bytes[at] ^= 1 << pick(8);
				break;
			case 1:
				bytes[at] = odd[pick(lengthof(odd))];
				break;
			case 2:
				bytes[at] += pick(2) ? 1 : -1;
				break;
			case 3:
				length = at;
				break;
			case 4:
				count = Min(count, length - at);
				memmove(bytes + at, bytes + at + count, length - at - count);
				length -= count;
				break;
			case 5:
				count = Min(count, size - length);
				memmove(bytes + at + count, bytes + at, length - at);
				random_bytes(bytes + at, count);
				length += count;
				break;
			case 6:
				random_bytes(bytes + at, Min(count, length - at));
				break;
			case 7:
				other = any_sample();
				count = Min(other->length, length - at);
				memcpy(bytes + at, other->bytes, count);
				break;
		}
	}
	return length;
}

/* Returns a changed copy of the bytes that ends where the memory ends. */
static char *
damaged(char *memory, const char *bytes, Size length, Size *changed)
{
	static char buffer[MAX_BYTES];

	memcpy(buffer, bytes, length);
	*changed = pick(20) == 0 ? length : mutate(buffer, length, MAX_BYTES);
	return memcpy(memory + MAX_BYTES - *changed, buffer, *changed);
}

/* ---- the targets ---- */

/* What both check of an undo record. */
static void
check_record(const ZuRecord *rec)
{
	if (rec->type < ZUR_INSERT || rec->type > ZUR_ROWS || rec->nrows > ZHEAP_MAX_OFFSET + 300 ||
		rec->length > ZUR_MAX_LENGTH)
		FAIL("an undo record is accepted that is none");
	touch(rec->payload, rec->payload_len);
}

/* Checks what the decoder has accepted. */
static void
check_change(ZChange *change)
{
	uint32		byte = 0;

	if (change->covered)
		touch(change->row, change->row_length);
	else if (change->nrecords < 1 || change->nrecords > ZU_MAX_RECORDS ||
			 change->op.npages < 1 || change->op.npages > ZU_MAX_PAGES)
		FAIL("a change without records or pages is accepted");
	if (change->page[0].slot.slotno > ZPAGE_MAX_SLOTS ||
		change->page[1].slot.slotno > ZPAGE_MAX_SLOTS ||
		change->locks.slotno > ZPAGE_MAX_SLOTS ||
		change->page[0].slot.grow_to > ZPAGE_MAX_INLINE_SLOTS ||
		change->page[1].slot.grow_to > ZPAGE_MAX_INLINE_SLOTS ||
		change->locks.grow_to > ZPAGE_MAX_INLINE_SLOTS)
		FAIL("a slot is accepted that no page has");
	for (int i = 0; i < change->nrecords; i++)
	{
		ZuRecord   *rec = &change->rec[i];
		ZuRecord	read;

		if (change->covered)
			break;
		check_record(rec);
		if (change->opcode != ZWAL_UNDO_ONLY && !zrecord_is_saved(rec->type) &&
			(rec->offset < FirstOffsetNumber || rec->offset > ZHEAP_MAX_OFFSET))
			FAIL("a row at offset %u is accepted", rec->offset);
		if (!zur_unpack(change->undo + byte, change->op.total - byte, &read) ||
			read.type != rec->type || read.offset != rec->offset || read.xid != rec->xid ||
			read.payload_len != rec->payload_len)
			FAIL("undo record %d is not as it is packed", i);
		byte += rec->length;
	}
	if (change->undo != NULL && byte != change->op.total)
		FAIL("undo records of %u bytes have %u", byte, change->op.total);
	if (change->row != NULL && change->opcode != ZWAL_MULTI_INSERT && change->row_length > 0 &&
		!ztuple_header_ok(change->row, change->row_length))
		FAIL("a row is accepted whose header is malformed");
	touch(change->row, change->row == NULL ? 0 : change->row_length);
	touch(change->delta, change->delta == NULL ? 0 : change->delta_length);
	for (int i = 1; i < change->nprune; i++)
		if (change->prune[i].offset <= change->prune[i - 1].offset)
			FAIL("items to prune are accepted in wrong order");
}

/* Decodes what logical decoding would read of the part (change/zlogical.c). */
static void
read_logical_part(const char *part, uint32 length)
{
	static ZLayout layout;
	const char *end = part + length;
	const char *p = part == NULL ? NULL : zlayout_get(part, end, &layout);
	uint32		len = 0;
	Size		size;
	HeapTupleData tuple;

	if (p != NULL)
		p = zvarint_get(p, end, &len);
	if (p == NULL || len > end - p)
		return;
	size = zlayout_tuple_size(&layout, p, len);
	if (size == 0 || size > MaxAllocSize)
		return;
	tuple.t_data = palloc(size);
	zlayout_form_tuple(&layout, p, len, &tuple);
	pfree(tuple.t_data);
}

/*
 * Gives one damaged WAL record to the decoder. Returns whether it is accepted.
 */
static bool
fuzz_wal(char *memory, char *other)
{
	static char state[offsetof(DecodedXLogRecord,
							   blocks) + (XLR_MAX_BLOCK_ID + 1) * sizeof(DecodedBkpBlock)];
	static ZChange change;
	static ZChangeWork work;
	DecodedXLogRecord *record = (DecodedXLogRecord *) state;
	XLogReaderState reader = {0};
	const Sample *sample = any_sample();
	Size		length;
	uint32		part_length;
	const char *part;
	uint8		what;

	memset(state, 0, sizeof(state));
	reader.record = record;
	record->header.xl_info = pick(10) == 0 ? (pick(KINDS) << 4) : sample->info;
	record->header.xl_rmid = ZUNDO_RMGR_ID;
	record->header.xl_xid = sample->xid;
	record->main_data = damaged(memory, sample->bytes, sample->length, &length);
	record->main_data_len = length;
	record->max_block_id = sample->max_block_id;
	for (int i = 0; i <= sample->max_block_id; i++)
	{
		record->blocks[i] = sample->ref[i];
		record->blocks[i].has_data = false;
		record->blocks[i].in_use &= pick(40) != 0;
		if (pick(40) == 0)
			record->blocks[i].blkno = (BlockNumber) random_bits();
	}
	if (sample->near_length > 0 && record->blocks[0].in_use)
	{
		record->blocks[0].data = damaged(other, sample->near, sample->near_length, &length);
		record->blocks[0].data_len = Min(length, PG_UINT16_MAX);
		record->blocks[0].has_data = length > 0;
		record->blocks[0].data += length - record->blocks[0].data_len;
	}
	part = zchange_logical_part(&reader, &what, &part_length);
	read_logical_part(part, part_length);
	if (record->header.xl_info == ZWAL_INLINE_LOCK)
	{
		ZWalInlineLock lock;

		if (!zwal_decode_inline_lock(&reader, &lock))
			return false;
		if (lock.offset < FirstOffsetNumber || lock.offset > ZHEAP_MAX_OFFSET || lock.slotno < 1 ||
			lock.grow_to > ZPAGE_MAX_INLINE_SLOTS)
			FAIL("a lock of row %u in slot %d is accepted", lock.offset, lock.slotno);
		return true;
	}
	if (record->header.xl_info > ZWAL_LOCK && record->header.xl_info != ZWAL_UNDO_ONLY &&
		record->header.xl_info != ZWAL_IMAGE)
		return false;			/* not for this decoder */
	if (!zchange_decode(&reader, &change, &work))
		return false;
	check_change(&change);
	return true;
}

/* Undoes the record on a copy of a page that the server has had. */
static void
undo_on_page(const ZuRecord *rec, const char *payload, Size length)
{
	PGAlignedBlock copy;
	Page		page = copy.data;
	int			slotno;

	if (npages == 0)
		return;
	memcpy(page, pages[pick(npages)], BLCKSZ);
	slotno = 1 + pick(zpage_nslots(page));
	(void) zpage_undo(page, slotno, rec, payload, length);
	if (zpage_check(page, ZPAGE_MAX_SLOTS, NULL, NULL) != 0)
		FAIL("a page is damaged by an undo record of type %d", rec->type);
}

/* Applies what the payload says to a row of random bytes. */
static void
undo_on_row(const char *payload, Size length, char *other)
{
	ZHeader		h;
	Size		len = pick(4) == 0 ? pick(BLCKSZ) : pick(200);
	Size		cap = len + pick(300);
	char	   *row = other + MAX_BYTES - cap;
	const char *p = zheader_compact_get(payload, payload + length, (ZHeader) pick(4), &h);

	if (p == NULL)
		return;
	random_bytes(row, Min(len, 64));
	p = zdelta_undo_apply(p, payload + length, row, &len, cap);
	if (len > cap || (p != NULL && p > payload + length))
		FAIL("a delta makes %zu bytes where %zu have space", len, cap);
}

/*
 * Gives one damaged undo record to those that read it. Returns whether it is
 * accepted.
 */
static bool
fuzz_undo(char *memory, char *other)
{
	const Sample *sample = any_sample();
	Size		length;
	const char *bytes = damaged(memory, sample->bytes, sample->length, &length);
	ZuRecord	rec;
	ZuRecord	again;
	ZurLayout	layout;
	Size		raw = 0;
	Size		size = pick(3) == 0 ? pick(300) : ZUR_MAX_LENGTH;
	const char *payload;

	if (!zur_unpack(bytes, length, &rec))
		return false;
	check_record(&rec);
	if (rec.payload != NULL &&
		(rec.payload < bytes || rec.payload + rec.payload_len > bytes + length))
		FAIL("a payload is outside the record");
	/* what zur_is_alike has to set is not there */
	again = rec;
	again.length = again.offset = again.xflags = again.payload_len = 0;
	again.prev = InvalidUndoPtr;
	again.lockmode = 0;
	again.payload = NULL;
	if (zur_layout(bytes, &rec, &layout) && zur_is_alike(&layout, bytes, length, &again) &&
		memcmp(&again, &rec, sizeof(rec)) != 0)
		FAIL("a record is not like itself");
	payload = rec.payload == NULL ? NULL
		: zur_raw_payload(&rec, other + MAX_BYTES - size, size, &raw);
	if (payload != NULL)
		touch(payload, raw);
	if (payload != NULL && (rec.xflags & ZUX_LZ4) && raw > size)
		FAIL("a payload of %zu bytes is unpacked into %zu", raw, size);
	undo_on_page(&rec, payload, raw);
	if (payload != NULL && rec.type == ZUR_UPDATE)
	{
		/* the row is in the same memory, so the payload needs another place */
		payload = copy_of(payload, raw);
		undo_on_row(payload, raw, other);
		pfree((char *) payload);
	}
	again = rec;
	if (zur_length(&again) > length)
		FAIL("a record of %zu bytes is longer when it is packed", length);
	return true;
}

/* zundo_test_fuzz: see the top of this file. */
Datum
zundo_test_fuzz(PG_FUNCTION_ARGS)
{
	char	   *target = text_to_cstring(PG_GETARG_TEXT_PP(0));
	bool		undo = strcmp(target, "undo") == 0;
	char	   *memory = guarded_memory("zundo_fuzz_input");
	char	   *other = guarded_memory(NULL);
	int64		accepted = 0;
	int			n;
	instr_time	begun,
				now;

	start_test(PG_GETARG_INT32(2));
	n = collect(PG_GETARG_LSN(1), undo);
	if (n == 0)
		elog(ERROR, "there is no record of zundo in WAL");
	INSTR_TIME_SET_CURRENT(begun);
	do
	{
		for (int i = 0; i < 1000; i++, unit.cases++)
			accepted += undo ? fuzz_undo(memory, other) : fuzz_wal(memory, other);
		unit.round++;
		CHECK_FOR_INTERRUPTS();
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, begun);
	} while (INSTR_TIME_GET_DOUBLE(now) < PG_GETARG_FLOAT8(3));
	munmap(memory, MAX_BYTES + sysconf(_SC_PAGESIZE));
	munmap(other, MAX_BYTES + sysconf(_SC_PAGESIZE));
	PG_RETURN_TEXT_P(cstring_to_text(psprintf(INT64_FORMAT " inputs of %d records and %d pages, "
											  INT64_FORMAT " accepted", unit.cases, n, npages,
											  accepted)));
}
