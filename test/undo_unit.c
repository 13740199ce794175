/*
 * test/undo_unit.c - unit tests of undo/undo_record.c and
 * undo/damage/undo_resolved.c, callable from SQL.
 *
 *	zundo_test_undo_records(seed int, rounds int) returns bigint
 *	zundo_test_undo_resolved(seed int, rounds int) returns bigint
 *
 * In each round a random record is packed and unpacked again, unpacked after
 * having been cut off at every length, and unpacked with random bytes flipped.
 * Its bytes are at the end of an allocation, so that a memory checker notices
 * any read past them. Returns the number of cases; a mismatch is an ERROR that
 * names the seed.
 * Rules: RECORD-1.
 */
#include "unit.h"

#include "common/varint.h"
#include "fmgr.h"
#include "undo/undo_record.h"
#include "undo/damage/undo_resolved.h"
#include "utils/memutils.h"

/* The setting that undo_record.c reads; this module has no GUCs of its own. */
int			zundo_undo_compression = ZUNDO_COMPRESS_LZ4;

PGDLLEXPORT Datum zundo_test_undo_records(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_test_undo_resolved(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_test_undo_records);
PG_FUNCTION_INFO_V1(zundo_test_undo_resolved);

/* Returns a random number; all sizes of a varint occur. */
static uint32
random_uint32(void)
{
	return (uint32) (random_bits() >> (32 + pick(32)));
}

/* Gives the record a random payload, sometimes a compressed one. */
static void
random_payload(ZuRecord *rec, char *raw, char *packed)
{
	Size		len = pick(4) == 0 ? pick(BLCKSZ + 1) : pick(300);
	bool		dull = pick(2) == 0;

	for (Size i = 0; i < len; i++)
		raw[i] = dull ? (char) (i / 16) : (char) pick(256);
	rec->payload = raw;
	rec->payload_len = (uint16) len;
	if (pick(2) == 0)
		zur_compress(rec, packed, BLCKSZ);
}

/* Makes a random record. */
static void
random_record(ZuRecord *rec, char *raw, char *packed)
{
	memset(rec, 0, sizeof(*rec));
	rec->type = (ZuRecordType) (ZUR_INSERT + pick(ZUR_ROWS));
	rec->xid = rec->topxid = (ZXid) (random_bits() & ZXID_MASK);
	rec->xflags = (uint16) (pick(64) << 10);
	if (pick(3) == 0)
	{
		rec->flags = ZUF_FIRST;
		if (pick(2) == 0)
			rec->topxid = (ZXid) (random_bits() & ZXID_MASK);
	}
	rec->reloid = random_uint32();
	rec->relnumber = pick(2) == 0 ? rec->reloid : random_uint32();
	rec->block = random_uint32();
	rec->offset = (OffsetNumber) pick(512);
	if (pick(4) > 0)
		rec->cid = random_uint32();
	else
		rec->as_of = 1 + pick(1000000000);
	if (pick(2) == 0)
		rec->prev = random_bits() | 1;
	switch (rec->type)
	{
		case ZUR_INSERT:
			rec->nrows = (uint16) (1 + pick(ZHEAP_MAX_OFFSET));
			rec->open = pick(2) == 0;
			if (rec->xflags & ZUX_SPECULATIVE)
				rec->token = random_uint32();
			break;
		case ZUR_LOCK:
			rec->lockmode = (uint8) pick(4);
			rec->open = pick(2) == 0;
			break;
		case ZUR_MOVE:
			ItemPointerSet(&rec->forward, random_uint32(), (OffsetNumber) (1 + pick(291)));
			random_payload(rec, raw, packed);
			break;
		case ZUR_IMAGE:
			rec->committed = (ZXid) (random_bits() & ZXID_MASK);
			random_payload(rec, raw, packed);
			break;
		case ZUR_LOCKS:
			rec->hold = (ZXid) (random_bits() & ZXID_MASK);
			rec->xflags &= ~ZUX_LZ4;
			rec->payload = raw;
			rec->payload_len = (uint16) (pick(ZLOCK_MAX_ENTRIES) * sizeof(ZLockEntry));
			for (int i = 0; i < rec->payload_len; i++)
				raw[i] = (char) pick(256);
			break;
		case ZUR_DELETE:
			rec->nrows = (uint16) (1 + (pick(2) == 0 ? pick(ZHEAP_MAX_OFFSET) : 0));
			rec->open = rec->nrows > 1;
			random_payload(rec, raw, packed);
			break;
		case ZUR_UPDATE:
		case ZUR_ROWS:
			random_payload(rec, raw, packed);
			break;
	}
}

/* Returns whether two records are equal, apart from derived flags. */
static bool
same_record(const ZuRecord *a, const ZuRecord *b)
{
	return a->type == b->type &&
		(a->flags & ZUF_FIRST) == (b->flags & ZUF_FIRST) &&
		a->xflags == b->xflags && a->length == b->length &&
		a->xid == b->xid && a->topxid == b->topxid &&
		a->reloid == b->reloid && a->relnumber == b->relnumber &&
		a->block == b->block && a->offset == b->offset &&
		a->cid == b->cid && a->as_of == b->as_of && a->prev == b->prev &&
		a->nrows == b->nrows && a->open == b->open && a->token == b->token &&
		memcmp(&a->forward, &b->forward, sizeof(ItemPointerData)) == 0 &&
		a->lockmode == b->lockmode && a->committed == b->committed && a->hold == b->hold &&
		a->payload_len == b->payload_len &&
		(a->payload_len == 0 ||
		 memcmp(a->payload, b->payload, a->payload_len) == 0);
}

/* Checks that the payload is within the bytes that were unpacked. */
static void
check_inside(const ZuRecord *rec, const char *bytes, Size len)
{
	if (rec->payload != NULL &&
		(rec->payload < bytes || rec->payload + rec->payload_len > bytes + len))
		FAIL("payload outside the record");
}

/*
 * Checks zur_is_alike for a copy of a record in which bytes have been changed:
 * if zur_is_alike accepts it, zur_unpack must return the same.
 */
static void
check_alike(const char *bytes, const ZuRecord *rec, const char *copy, Size len)
{
	ZurLayout	layout;
	ZuRecord	alike = *rec;
	ZuRecord	got;

	if (!zur_layout(bytes, rec, &layout) || !zur_is_alike(&layout, copy, len, &alike))
		return;
	if (!zur_unpack(copy, len, &got) || !same_record(&got, &alike) || got.type != rec->type ||
		got.xid != rec->xid || got.cid != rec->cid)
		FAIL("zur_is_alike accepts a record that is not alike");
}

/* Unpacks copies of the record in which random bytes have been changed. */
static void
flip_bytes(const char *bytes, Size len, char *raw)
{
	char	   *copy = palloc(len);
	ZuRecord	rec;
	ZuRecord	got;
	Size		rawlen;

	if (!zur_unpack(bytes, len, &rec))
		FAIL("a record cannot be unpacked");
	check_alike(bytes, &rec, bytes, len);
	for (int i = 0; i < 32; i++)
	{
		memcpy(copy, bytes, len);
		for (int n = 1 + (int) pick(3); n > 0; n--)
			copy[pick(pick(2) == 0 ? Min(len, 40) : len)] = (char) pick(256);
		check_alike(bytes, &rec, copy, len);
		if (zur_unpack(copy, len, &got))
		{
			check_inside(&got, copy, len);
			if (got.length > len)
				FAIL("a record of %zu bytes has the length %u", len, got.length);
			(void) zur_raw_payload(&got, raw, BLCKSZ, &rawlen);
		}
	}
	pfree(copy);
	unit.cases += 32;
}

/* Tests one random record. */
static void
one_round(char *raw, char *packed, char *plain)
{
	ZuRecord	rec;
	ZuRecord	got;
	char	   *bytes;
	Size		len;
	Size		rawlen;
	const char *back;

	random_record(&rec, raw, packed);
	len = zur_length(&rec);
	bytes = palloc(len);
	zur_pack(&rec, bytes);
	if (zur_peek_length(bytes, len) != len || !zur_unpack(bytes, len, &got) ||
		!same_record(&rec, &got))
		FAIL("a record of type %d is not the same after unpacking", rec.type);
	check_inside(&got, bytes, len);
	if (got.payload != NULL && (rec.xflags & ZUX_LZ4) && rec.payload == packed)
	{
		back = zur_raw_payload(&got, plain, BLCKSZ, &rawlen);
		if (back == NULL || memcmp(back, raw, rawlen) != 0)
			FAIL("a payload is not the same after decompression");
	}
	for (Size cut = 0; cut < len; cut++)
	{
		char	   *part = palloc(Max(cut, 1));

		memcpy(part, bytes, cut);
		if (zur_unpack(part, cut, &got))
			FAIL("unpacked from %zu of %zu bytes", cut, len);
		pfree(part);
		unit.cases++;
		/* long records: every length near both ends, samples between */
		if (cut > 100 && cut + 100 < len)
			cut += pick(50);
	}
	flip_bytes(bytes, len, plain);
	unit.cases++;
	pfree(bytes);
}

/* zundo_test_undo_records(seed, rounds): see the top of this file. */
Datum
zundo_test_undo_records(PG_FUNCTION_ARGS)
{
	char	   *raw = palloc(BLCKSZ);
	char	   *packed = palloc(BLCKSZ);
	char	   *plain = palloc(BLCKSZ);

	start_test(PG_GETARG_INT32(0));
	for (; unit.round < PG_GETARG_INT32(1); unit.round++)
		one_round(raw, packed, plain);
	for (int i = 0; i < 64; i++)
	{
		char		b[5];
		uint32		v = random_uint32();
		uint32		w;
		char	   *e = zvarint_put(b, v);

		if (e - b != zvarint_size(v) || zvarint_get(b, e, &w) != e || w != v ||
			zvarint_get(b, e - 1, &w) != NULL ||
			zigzag_decode(zigzag_encode((int32) v)) != (int32) v)
			FAIL("the varint of %u is not the same after decoding", v);
		unit.cases++;
	}
	pfree(raw);
	pfree(packed);
	pfree(plain);
	PG_RETURN_INT64(unit.cases);
}

/* The number of transactions, and of logs, in a round of the test below. */
#define NXIDS 400
#define NLOGS 3

/*
 * Notes many transactions, the newest first, and asks for each of them. Takes
 * as long as two sorts; with a linear search it would take minutes.
 */
static void
many_resolved(MemoryContext context)
{
	ZuResolved	resolved = {0};
	const ZXid	n = 1000000;

	for (ZXid xid = n; xid > 0; xid--)
		zu_note_resolved(&resolved, xid, (uint32) (xid % NLOGS), context);
	for (ZXid xid = 1; xid <= n; xid++)
		CHECK(zu_was_resolved(&resolved, xid, 0) == (xid % NLOGS != 0));
	zu_forget_resolved(&resolved, n / 2);
	for (ZXid xid = 1; xid <= n; xid += 1000)
		CHECK(zu_was_resolved(&resolved, xid, 0) == (xid >= n / 2 && xid % NLOGS != 0));
}

/*
 * zundo_test_undo_resolved(seed int, rounds int): compares zu_was_resolved with
 * an array by xid, while transactions are noted in random order, also twice,
 * and forgotten.
 */
Datum
zundo_test_undo_resolved(PG_FUNCTION_ARGS)
{
	int			rounds = PG_GETARG_INT32(1);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "resolved",
												  ALLOCSET_DEFAULT_SIZES);

	start_test(PG_GETARG_INT32(0));
	many_resolved(context);
	for (unit.round = 1; unit.round <= rounds; unit.round++)
	{
		ZuResolved	resolved = {0};
		int			log_of[NXIDS];	/* -1: not noted */
		ZXid		base = random_bits() & (ZXID_MASK >> 1);
		int			steps = pick(2 * NXIDS);

		MemoryContextReset(context);
		memset(log_of, -1, sizeof(log_of));
		for (int i = 0; i < steps; i++)
		{
			int			x = pick(NXIDS);
			uint32		logno = (uint32) pick(NLOGS);

			switch (pick(8))
			{
				case 0:
					if (pick(20) == 0)
					{
						zu_forget_resolved(&resolved, base + x);
						for (int old = 0; old < x; old++)
							log_of[old] = -1;
					}
					break;
				case 1:
				case 2:
					CHECK(zu_was_resolved(&resolved, base + x, logno) ==
						  (log_of[x] >= 0 && (uint32) log_of[x] != logno));
					break;
				default:
					if (log_of[x] >= 0)
						logno = (uint32) log_of[x];
					log_of[x] = (int) logno;
					zu_note_resolved(&resolved, base + x, logno, context);
			}
		}
	}
	MemoryContextDelete(context);
	PG_RETURN_INT64(unit.cases);
}
