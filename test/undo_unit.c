/*
 * test/undo_unit.c - unit test of undo/undo_record.c, callable from SQL.
 *
 * Lives in test/zundo_test.so together with its own copy of undo_record.o; it
 * needs nothing of the server but ereport and palloc.
 *
 *	zundo_test_undo_records(seed int, rounds int) returns bigint
 *
 * Per round: one random record is packed and unpacked again, cut off at every
 * length, and unpacked with random bytes flipped. Bytes are placed at the end
 * of an exact allocation so that a memory checker sees any read past them.
 * Returns the number of cases; any mismatch is an ERROR that names the seed.
 * Rules: RECORD-1, RECORD-2, RECORD-3, RECORD-4, RECORD-5.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "common/varint.h"
#include "fmgr.h"
#include "undo/undo_record.h"

/* The setting that undo_record.c reads; this module has no GUCs of its own. */
int			zundo_undo_compression = ZUNDO_COMPRESS_LZ4;

PGDLLEXPORT Datum zundo_test_undo_records(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_test_undo_records);

static pg_prng_state prng;

static uint64
pick(uint64 limit)
{
	return pg_prng_uint64(&prng) % limit;
}

/* random_uint32: spread over the magnitudes, so that all varint sizes occur. */
static uint32
random_uint32(void)
{
	return (uint32) (pg_prng_uint64(&prng) >> (32 + pick(32)));
}

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

static void
random_record(ZuRecord *rec, char *raw, char *packed)
{
	memset(rec, 0, sizeof(*rec));
	rec->type = (ZuRecordType) (ZUR_INSERT + pick(ZUR_LOCKS));
	rec->xid = rec->topxid = (ZXid) (pg_prng_uint64(&prng) & ZXID_MASK);
	rec->xflags = (uint16) (pick(64) << 10);
	if (pick(3) == 0)
	{
		rec->flags = ZUF_FIRST;
		if (pick(2) == 0)
			rec->topxid = (ZXid) (pg_prng_uint64(&prng) & ZXID_MASK);
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
		rec->prev = pg_prng_uint64(&prng) | 1;
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
			rec->committed = (ZXid) (pg_prng_uint64(&prng) & ZXID_MASK);
			random_payload(rec, raw, packed);
			break;
		case ZUR_LOCKS:
			rec->hold = (ZXid) (pg_prng_uint64(&prng) & ZXID_MASK);
			rec->xflags &= ~ZUX_LZ4;
			rec->payload = raw;
			rec->payload_len = (uint16) (pick(ZLOCK_MAX_ENTRIES) * sizeof(ZLockEntry));
			for (int i = 0; i < rec->payload_len; i++)
				raw[i] = (char) pick(256);
			break;
		case ZUR_UPDATE:
		case ZUR_DELETE:
			random_payload(rec, raw, packed);
			break;
	}
}

/* same_record: does b say what a says, up to the derived flags? */
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

/* check_inside: a payload must lie in the bytes given to unpack. */
static void
check_inside(const ZuRecord *rec, const char *bytes, Size len, int seed, int round)
{
	if (rec->payload != NULL &&
		(rec->payload < bytes || rec->payload + rec->payload_len > bytes + len))
		elog(ERROR, "seed %d round %d: payload outside the record", seed, round);
}

/*
 * check_alike: RECORD-5, for a copy of a record in which bytes were changed:
 * what passes for a neighbour is one to zur_unpack as well.
 */
static void
check_alike(const char *bytes, const ZuRecord *rec, const char *copy, Size len, int seed, int round)
{
	ZurLayout	layout;
	ZuRecord	got;
	OffsetNumber off;
	UndoPtr		prev;

	if (!zur_layout(bytes, rec, &layout) || !zur_is_alike(&layout, copy, len, &off, &prev))
		return;
	if (!zur_unpack(copy, len, &got) || got.type != rec->type || got.xid != rec->xid ||
		got.cid != rec->cid || got.as_of != rec->as_of || got.relnumber != rec->relnumber ||
		got.block != rec->block || got.offset != off || got.prev != prev)
		elog(ERROR, "seed %d round %d: not alike", seed, round);
}

/* flip_bytes: unpack damaged copies; returns the number of cases. */
static int64
flip_bytes(const char *bytes, Size len, char *raw, int seed, int round)
{
	char	   *copy = palloc(len);
	ZuRecord	rec;
	ZuRecord	got;
	Size		rawlen;

	if (!zur_unpack(bytes, len, &rec))
		elog(ERROR, "seed %d round %d: not unpacked again", seed, round);
	check_alike(bytes, &rec, bytes, len, seed, round);
	for (int i = 0; i < 32; i++)
	{
		memcpy(copy, bytes, len);
		for (int n = 1 + (int) pick(3); n > 0; n--)
			copy[pick(pick(2) == 0 ? Min(len, 40) : len)] = (char) pick(256);
		check_alike(bytes, &rec, copy, len, seed, round);
		if (zur_unpack(copy, len, &got))
		{
			check_inside(&got, copy, len, seed, round);
			if (got.length > len)
				elog(ERROR, "seed %d round %d: length %u of %zu bytes",
					 seed, round, got.length, len);
			(void) zur_raw_payload(&got, raw, BLCKSZ, &rawlen);
		}
	}
	pfree(copy);
	return 32;
}

static int64
one_round(char *raw, char *packed, char *plain, int seed, int round)
{
	ZuRecord	rec;
	ZuRecord	got;
	char	   *bytes;
	Size		len;
	Size		rawlen;
	int64		cases = 1;
	const char *back;

	random_record(&rec, raw, packed);
	len = zur_length(&rec);
	bytes = palloc(len);
	zur_pack(&rec, bytes);
	if (zur_peek_length(bytes, len) != len || !zur_unpack(bytes, len, &got) ||
		!same_record(&rec, &got))
		elog(ERROR, "seed %d round %d: record of type %d did not come back",
			 seed, round, rec.type);
	check_inside(&got, bytes, len, seed, round);
	if (got.payload != NULL && (rec.xflags & ZUX_LZ4) && rec.payload == packed)
	{
		back = zur_raw_payload(&got, plain, BLCKSZ, &rawlen);
		if (back == NULL || memcmp(back, raw, rawlen) != 0)
			elog(ERROR, "seed %d round %d: payload did not decompress", seed, round);
	}
	for (Size cut = 0; cut < len; cut++)
	{
		char	   *part = palloc(Max(cut, 1));

		memcpy(part, bytes, cut);
		if (zur_unpack(part, cut, &got))
			elog(ERROR, "seed %d round %d: unpacked from %zu of %zu bytes",
				 seed, round, cut, len);
		pfree(part);
		cases++;
		/* long records: every length near both ends, samples between */
		if (cut > 100 && cut + 100 < len)
			cut += pick(50);
	}
	cases += flip_bytes(bytes, len, plain, seed, round);
	pfree(bytes);
	return cases;
}

Datum
zundo_test_undo_records(PG_FUNCTION_ARGS)
{
	int			seed = PG_GETARG_INT32(0);
	int			rounds = PG_GETARG_INT32(1);
	char	   *raw = palloc(BLCKSZ);
	char	   *packed = palloc(BLCKSZ);
	char	   *plain = palloc(BLCKSZ);
	int64		cases = 0;

	pg_prng_seed(&prng, (uint64) seed);
	for (int round = 0; round < rounds; round++)
		cases += one_round(raw, packed, plain, seed, round);
	for (int i = 0; i < 64; i++)
	{
		char		b[5];
		uint32		v = random_uint32();
		uint32		w;
		char	   *e = zvarint_put(b, v);

		if (e - b != zvarint_size(v) || zvarint_get(b, e, &w) != e || w != v ||
			zvarint_get(b, e - 1, &w) != NULL ||
			zigzag_decode(zigzag_encode((int32) v)) != (int32) v)
			elog(ERROR, "seed %d: varint of %u did not come back", seed, v);
		cases++;
	}
	pfree(raw);
	pfree(packed);
	pfree(plain);
	PG_RETURN_INT64(cases);
}
