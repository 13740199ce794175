/*
 * test/tuple_unit.c - unit tests of tuple/ and page/, callable from SQL.
 *
 *	zundo_test_pages(seed int, rounds int) returns bigint
 *	zundo_test_tuples(seed int, rounds int) returns bigint
 *	zundo_test_deltas(seed int, rounds int) returns bigint
 *
 * Each compares random cases with a simple model and returns their number; a
 * mismatch is an ERROR that names seed and round, so that it can be repeated.
 * Rules: PAGE-1, PAGE-2, PAGE-3, PAGE-4, PAGE-5, PAGE-7, ROOM-1, ROOM-2,
 * ROOM-3, PRUNE-1, RANGE-3, ROLLBACK-3 (pages); TUPLE-1, TUPLE-2, TUPLE-3,
 * TUPLE-4, TTS-1, TTS-2, TTS-3, HEADER-1, HEADER-2 (rows); DELTA-1, DELTA-2,
 * DELTA-3 (deltas); DECODE-4 (layouts).
 * Bytes under test lie in allocations of exactly their size, so that a memory
 * checker sees what reads past them.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "page/zpage.h"
#include "tuple/zlayout.h"
#include "tuple/ztts.h"
#include "utils/array.h"
#include "utils/memutils.h"

PGDLLEXPORT Datum zundo_test_pages(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_test_tuples(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_test_deltas(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_test_pages);
PG_FUNCTION_INFO_V1(zundo_test_tuples);
PG_FUNCTION_INFO_V1(zundo_test_deltas);

static pg_prng_state prng;
static int	test_seed;
static int	test_round;
static int64 cases;

#define FAIL(...) \
	elog(ERROR, "seed %d round %d: %s", test_seed, test_round, psprintf(__VA_ARGS__))
#define CHECK(cond) \
	do { \
		cases++; \
		if (!(cond)) \
			FAIL("line %d: %s", __LINE__, #cond); \
	} while (0)

/* pick: a random number in [0, limit). */
static int
pick(int limit)
{
	return (int) (pg_prng_uint64(&prng) % (uint64) limit);
}

static void
random_bytes(char *dst, int len)
{
	for (int i = 0; i < len; i++)
		dst[i] = (char) pick(256);
}

static void
start_test(int seed)
{
	test_seed = seed;
	cases = 0;
	pg_prng_seed(&prng, (uint64) (uint32) seed);
}

/* ---- pages ---- */

#define MODEL_MAX_ROW	1500
#define MODEL_UNDO		3

/* One change that can be taken back, and the row as it was before. */
typedef struct Saved
{
	ZuRecordType type;
	int			payload_len;
	int			before_len;
	char		payload[MODEL_MAX_ROW * 2];
	char		before[MODEL_MAX_ROW];
} Saved;

typedef struct ModelRow
{
	int			kind;			/* LP_* */
	int			len;
	int			slot;			/* of a stub */
	int			state;			/* of a stub */
	int			nsaved;
	char		bytes[MODEL_MAX_ROW];
	Saved		saved[MODEL_UNDO];
} ModelRow;

typedef struct Model
{
	PGAlignedBlock block;
	int			nrows;
	ZPageSlot	slots[ZPAGE_MAX_INLINE_SLOTS + 1];
	int			nslots;
	ModelRow	row[ZHEAP_MAX_OFFSET + 1];
} Model;

static void report_fault(void *arg, const char *invariant, OffsetNumber off,
						 const char *fmt,...) pg_attribute_printf(4, 5);

static void
report_fault(void *arg, const char *invariant, OffsetNumber off, const char *fmt,...)
{
	char text[	256];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	FAIL("%s at offset %u: %s", invariant, off, text);
}

/* random_header: any header for a row of len bytes, without slack. */
static ZHeader
random_header(Model *m, int len)
{
	ZHeader		h = pick(Min(100, (len - ZTUPLE_HEADER_SIZE) * 8 + 1));

	if (pick(3) == 0)
		h |= ZH_NULLS;
	if (pick(8) == 0)
		h |= ZH_EXTERNAL;
	if (pick(8) == 0)
		h |= ZH_STALE_KEYS;
	h = ZH_WITH_SLOT(h, pick(m->nslots + 1));
	h = ZH_WITH_TAG(ZH_WITH_LOCK(h, pick(5)), pick(Min(m->nslots, ZPAGE_INITIAL_SLOTS) + 1));
	return ZH_WITH_STATE(h, pick(2));
}

static int
random_length(void)
{
	int			limit = pick(10) == 0 ? MODEL_MAX_ROW : pick(3) == 0 ? 400 : 60;

	return ZTUPLE_HEADER_SIZE + pick(limit - ZTUPLE_HEADER_SIZE);
}

/* compare_page: the page is what the model says. */
static void
compare_page(Model *m)
{
	Page		page = (Page) m->block.data;

	zpage_check(page, m->nslots, report_fault, NULL);
	CHECK(PageGetMaxOffsetNumber(page) == m->nrows);
	CHECK(zpage_nslots(page) == m->nslots);
	for (int i = 1; i <= m->nslots; i++)
		CHECK(memcmp(zpage_slot(page, i), &m->slots[i], sizeof(ZPageSlot)) == 0);

	for (int off = 1; off <= m->nrows; off++)
	{
		ItemId		lp = PageGetItemId(page, off);
		ModelRow   *row = &m->row[off];
		char	   *bytes;

		CHECK((int) lp->lp_flags == row->kind);
		if (row->kind == LP_REDIRECT)
			CHECK((int) lp->lp_off == row->slot && (int) lp->lp_len == row->state);
		if (row->kind != LP_NORMAL)
			continue;
		bytes = zpage_row(page, lp);
		CHECK(zpage_row_length(page, lp) == row->len);
		CHECK((zheader_get(bytes) & ~ZH_SLACK) == zheader_get(row->bytes));
		CHECK(memcmp(bytes + ZTUPLE_HEADER_SIZE, row->bytes + ZTUPLE_HEADER_SIZE,
					 row->len - ZTUPLE_HEADER_SIZE) == 0);
	}
}

static void
page_put(Model *m)
{
	Page		page = (Page) m->block.data;
	OffsetNumber off = zpage_find_offset(page);
	int			len = random_length();
	ModelRow   *row;

	if (off == InvalidOffsetNumber)
	{
		CHECK(m->nrows == ZHEAP_MAX_OFFSET);
		return;
	}
	CHECK(off == m->nrows + 1 || m->row[off].kind == LP_UNUSED);
	if (!zpage_room_for(page, off, len))
		return;
	row = &m->row[off];
	row->kind = LP_NORMAL;
	row->len = len;
	row->nsaved = 0;
	random_bytes(row->bytes, len);
	zheader_set(row->bytes, random_header(m, len));
	zpage_put_row(page, off, row->bytes, len);
	m->nrows = Max(m->nrows, off);
}

/* pick_normal: a random LP_NORMAL offset, 0 if none was hit. */
static int
pick_normal(Model *m)
{
	for (int i = 0; i < 20 && m->nrows > 0; i++)
	{
		int			off = 1 + pick(m->nrows);

		if (m->row[off].kind == LP_NORMAL)
			return off;
	}
	return 0;
}

/*
 * save: remember the row as it is, to be undone; NULL if there is no room for
 * it.
 */
static Saved *
save(ModelRow *row, ZuRecordType type)
{
	Saved	   *saved;

	if (row->nsaved == MODEL_UNDO)
	{
		row->nsaved--;
		memmove(&row->saved[0], &row->saved[1], row->nsaved * sizeof(Saved));
	}
	saved = &row->saved[row->nsaved++];
	saved->type = type;
	saved->before_len = row->len;
	memcpy(saved->before, row->bytes, row->len);
	return saved;
}

static void
page_update(Model *m)
{
	Page		page = (Page) m->block.data;
	int			off = pick_normal(m);
	ModelRow   *row = &m->row[off];
	char		bytes[MODEL_MAX_ROW];
	int			len;
	ZHeader		h;
	ZDelta		delta;
	Saved	   *saved;
	char	   *p;

	if (off == 0 || !ZH_LIVE(zheader_get(row->bytes)))
		return;
	len = pick(2) == 0 ? row->len : pick(2) == 0 ? random_length() : row->len - pick(500);
	len = Max(len, ZTUPLE_HEADER_SIZE);
	if (!zpage_replace_fits(page, off, len))
		return;
	random_bytes(bytes, len);
	if (pick(4) != 0)
		memcpy(bytes, row->bytes, Min(len, row->len));
	if (len > 12)
		random_bytes(bytes + 5 + pick(len - 9), 4);
	h = len == row->len && pick(2) == 0 ? zheader_get(row->bytes) : random_header(m, len);
	zheader_set(bytes, ZH_WITH_STATE(h, ZSTATE_UPDATED));

	saved = save(row, ZUR_UPDATE);
	zdelta_compute(row->bytes + 5, row->len - 5, bytes + 5, len - 5, &delta);
	p = zheader_compact_put(saved->payload, zheader_get(row->bytes), zheader_get(bytes));
	p = zdelta_undo_put(p, &delta, row->bytes + 5);
	saved->payload_len = p - saved->payload;

	memcpy(row->bytes, bytes, len);
	row->len = len;
	zpage_replace_row(page, off, bytes, len);
}

static void
page_delete(Model *m)
{
	Page		page = (Page) m->block.data;
	int			off = pick_normal(m);
	ModelRow   *row = &m->row[off];
	bool		moved = pick(3) == 0;
	Saved	   *saved;
	ZHeader		h;
	char	   *p;

	if (off == 0 || !ZH_LIVE(zheader_get(row->bytes)))
		return;
	h = zheader_get(row->bytes);
	saved = save(row, moved ? ZUR_MOVE : ZUR_DELETE);
	p = zheader_compact_put(saved->payload, h, 0);
	memcpy(p, row->bytes + 5, row->len - 5);
	saved->payload_len = p + row->len - 5 - saved->payload;

	h = ZH_WITH_STATE(ZH_WITH_SLOT(h, 1 + pick(m->nslots)),
					  moved ? ZSTATE_MOVED : ZSTATE_DELETED) | ZH_KEY_CHANGE;
	zheader_set(row->bytes, h);
	zpage_set_header(page, off, h);
}

static void
page_lock(Model *m)
{
	int			off = pick_normal(m);
	ZHeader		h;

	if (off == 0)
		return;
	h = ZH_WITH_LOCK(zheader_get(m->row[off].bytes), pick(5));
	h = ZH_WITH_TAG(h, pick(Min(m->nslots, ZPAGE_INITIAL_SLOTS) + 1));
	zheader_set(m->row[off].bytes, h);
	zpage_set_header((Page) m->block.data, off, h | (pick(2) ? ZH_SLACK : 0));
}

static void
page_undo_change(Model *m)
{
	int			off = pick_normal(m);
	ModelRow   *row = &m->row[off];
	Saved	   *saved;
	ZuRecord	rec = {0};
	ZHeader		h;

	if (off == 0 || row->nsaved == 0)
		return;
	saved = &row->saved[--row->nsaved];
	rec.type = saved->type;
	rec.offset = off;
	CHECK(zpage_undo((Page) m->block.data, 0, &rec, saved->payload, saved->payload_len));

	h = ZH_WITHOUT_LOCKS(zheader_get(saved->before)) |
		(zheader_get(row->bytes) & (ZH_LOCK_MASK | ZH_TAG_MASK | ZH_STALE_KEYS));
	memcpy(row->bytes, saved->before, saved->before_len);
	row->len = saved->before_len;
	zheader_set(row->bytes, h);
}

/* page_undo_insert: an open record takes back the rows that name its slot. */
static void
page_undo_insert(Model *m)
{
	int			off = pick_normal(m);
	ZuRecord	rec = {0};
	int			slotno;

	if (off == 0)
		return;
	slotno = ZH_SLOT(zheader_get(m->row[off].bytes));
	rec.type = ZUR_INSERT;
	rec.offset = off;
	rec.nrows = 1;
	rec.open = pick(2) == 0;
	if (rec.open)
		rec.nrows += pick(ZHEAP_MAX_OFFSET - off + 1);
	else
		while (rec.nrows < 3 && off + rec.nrows <= m->nrows &&
			   m->row[off + rec.nrows].kind == LP_NORMAL)
			rec.nrows++;
	CHECK(zpage_undo((Page) m->block.data, slotno, &rec, NULL, 0));
	for (int i = off; i < off + rec.nrows && i <= m->nrows; i++)
	{
		ModelRow   *row = &m->row[i];

		if (!rec.open || (row->kind == LP_NORMAL && ZH_SLOT(zheader_get(row->bytes)) == slotno))
			row->kind = LP_DEAD;
	}
}

/*
 * page_undo_garbage: a record that does not fit is refused or leaves a sound
 * page.
 */
static void
page_undo_garbage(Model *m)
{
	PGAlignedBlock copy = m->block;
	ZuRecord	rec = {0};
	char		payload[64];
	int			len = pick(sizeof(payload));

	rec.type = ZUR_INSERT + pick(4);
	rec.offset = pick(m->nrows + 3);
	rec.nrows = pick(5);
	random_bytes(payload, len);
	cases++;
	if (zpage_undo((Page) copy.data, 1 + pick(m->nslots), &rec, payload, len))
		zpage_check((Page) copy.data, ZPAGE_MAX_SLOTS, report_fault, NULL);
	else
		CHECK(memcmp(copy.data, m->block.data, BLCKSZ) == 0);
}

/* prune_row: what may be done to this line pointer; false = nothing. */
static bool
prune_row(ModelRow *row, ZPruneAction *action)
{
	ZHeader		h = zheader_get(row->bytes);

	switch (row->kind)
	{
		case LP_NORMAL:
			if (ZH_LIVE(h))
				*action = pick(3) == 0 ? ZPRUNE_DEAD : ZPRUNE_CUT;
			else
				*action = pick(2) == 0 ? ZPRUNE_STUB : pick(2) == 0 ? ZPRUNE_DEAD : ZPRUNE_UNUSED;
			break;
		case LP_REDIRECT:
			*action = pick(2) == 0 ? ZPRUNE_DEAD : ZPRUNE_UNUSED;
			break;
		case LP_DEAD:
			*action = ZPRUNE_UNUSED;
			break;
		default:
			return false;
	}
	row->nsaved = 0;
	if (*action == ZPRUNE_STUB)
	{
		row->kind = LP_REDIRECT;
		row->slot = ZH_SLOT(h);
		row->state = ZH_STATE(h);
	}
	else if (*action != ZPRUNE_CUT)
		row->kind = *action == ZPRUNE_DEAD ? LP_DEAD : LP_UNUSED;
	return true;
}

static void
page_prune(Model *m)
{
	Page		page = (Page) m->block.data;
	ZPruneItem	items[ZHEAP_MAX_OFFSET];
	int			nitems = 0;
	int			rate = 1 + pick(6);
	int			hole = zpage_hole(page);
	int			gain;

	for (int off = 1; off <= m->nrows; off++)
	{
		ZPruneAction action;

		if (pick(rate) == 0 && prune_row(&m->row[off], &action))
		{
			items[nitems].offset = off;
			items[nitems++].action = action;
		}
	}
	gain = zpage_gain(page, items, nitems);
	zpage_prune(page, items, nitems);
	CHECK(zpage_hole(page) == hole + gain);
	while (m->nrows > 0 && m->row[m->nrows].kind == LP_UNUSED)
		m->nrows--;
}

static void
page_slots(Model *m)
{
	Page		page = (Page) m->block.data;
	int			i = 1 + pick(m->nslots);
	int			more = m->nslots + 1 + pick(4);

	m->slots[i].ptr = pick(3) == 0 ? 0 : pg_prng_uint64(&prng) | 1;
	m->slots[i].xid_flags = m->slots[i].ptr == 0 ? 0 : (pg_prng_uint64(&prng) & ZXID_MASK) | 1;
	zpage_set_slot(page, i, ZSLOT_XID(&m->slots[i]), m->slots[i].ptr);
	if (pick(10) == 0 && zpage_can_grow_slots(page, more))
	{
		zpage_grow_slots(page, more);
		memset(&m->slots[m->nslots + 1], 0, (more - m->nslots) * sizeof(ZPageSlot));
		m->nslots = more;
	}
}

static void
page_step(Model *m)
{
	static void (*const steps[]) (Model *) = {
		page_put, page_put, page_put, page_put, page_update, page_update, page_update,
		page_delete, page_lock, page_undo_change, page_undo_change, page_undo_insert,
		page_undo_garbage, page_slots
	};

	if (pick(40) == 0)
		page_prune(m);
	else
		steps[pick(lengthof(steps))] (m);
	compare_page(m);
}

/*
 * zundo_test_pages: per round, a new page lives through 150 random steps and is
 * compared with the model after each.
 */
Datum
zundo_test_pages(PG_FUNCTION_ARGS)
{
	Model	   *m = palloc_extended(sizeof(Model), MCXT_ALLOC_HUGE);

	start_test(PG_GETARG_INT32(0));
	for (test_round = 0; test_round < PG_GETARG_INT32(1); test_round++)
	{
		CHECK_FOR_INTERRUPTS();
		m->nrows = 0;
		m->nslots = ZPAGE_INITIAL_SLOTS;
		memset(m->slots, 0, sizeof(m->slots));
		memset(&m->block, 0, BLCKSZ);
		CHECK(!zpage_is_valid((Page) m->block.data));
		zpage_init((Page) m->block.data);
		CHECK(zpage_hole((Page) m->block.data) == (int) (ztuple_max_size() + sizeof(ItemIdData)));
		for (int i = 0; i < 150; i++)
			page_step(m);
	}
	PG_RETURN_INT64(cases);
}

/* ---- rows ---- */

#define MAX_COLUMNS 60

static const Oid column_types[] = {
	INT2OID, INT4OID, INT8OID, FLOAT4OID, FLOAT8OID, BOOLOID, CHAROID, TEXTOID, BYTEAOID,
	NAMEOID, UUIDOID, INTERVALOID, NUMERICOID, INT8ARRAYOID, BOXOID, CSTRINGOID, TIDOID,
	POINTOID, TIMESTAMPTZOID, OIDVECTOROID, MACADDROID, TIMETZOID
};

typedef struct TestRow
{
	TupleDesc	desc;
	Datum		values[MAX_COLUMNS];
	bool		isnull[MAX_COLUMNS];
	char	   *row;			/* exactly len bytes, at an odd address */
	Size		len;
} TestRow;

static Datum
random_byval(int attlen)
{
	uint64		bits = pg_prng_uint64(&prng);

	switch (attlen)
	{
		case 1:
			return CharGetDatum((char) bits);
		case 2:
			return Int16GetDatum((int16) bits);
		case 4:
			return Int32GetDatum((int32) bits);
		default:
			return (Datum) bits;
	}
}

/*
 * random_varlena: 4-byte or short header, or what looks like an on-disk TOAST
 * pointer.
 */
static Datum
random_varlena(bool plain)
{
	int			len = pick(4) == 0 ? pick(700) : pick(140);
	int			form = plain ? 0 : pick(8);
	char	   *ptr = palloc(len + VARHDRSZ + sizeof(varatt_external));

	random_bytes(ptr, len + VARHDRSZ);
	if (form == 1)
	{
		random_bytes(ptr, VARHDRSZ_EXTERNAL + sizeof(varatt_external));
		SET_VARTAG_EXTERNAL(ptr, VARTAG_ONDISK);
	}
	else if (form == 2)
		SET_VARSIZE_SHORT(ptr, Min(len, 100) + VARHDRSZ_SHORT);
	else if (form == 3)
		SET_VARSIZE_COMPRESSED(ptr, len + VARHDRSZ);
	else
		SET_VARSIZE(ptr, len + VARHDRSZ);
	return PointerGetDatum(ptr);
}

/*
 * random_expanded: an expanded array, which forming must flatten; *flat = its
 * flat form.
 */
static Datum
random_expanded(Datum *flat)
{
	Datum		elems[20];
	int			n = pick(lengthof(elems));

	for (int i = 0; i < n; i++)
		elems[i] = Int64GetDatumFast((int64) pg_prng_uint64(&prng));
	*flat = PointerGetDatum(construct_array(elems, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
											TYPALIGN_DOUBLE));
	return expand_array(*flat, CurrentMemoryContext, NULL);
}

/*
 * random_value: a value for the column; *stored gets what deforming must give.
 */
static Datum
random_value(Form_pg_attribute att, Datum *stored)
{
	if (att->attbyval)
		*stored = random_byval(att->attlen);
	else if (att->attlen > 0)
	{
		char	   *bytes = palloc(att->attlen);

		random_bytes(bytes, att->attlen);
		*stored = PointerGetDatum(bytes);
	}
	else if (att->attlen == -2)
	{
		int			len = pick(50);
		char	   *text = palloc(len + 1);

		for (int i = 0; i < len; i++)
			text[		i] = (char) (1 + pick(255));
		text[		len] = '\0';

		*stored = CStringGetDatum(text);
	}
	else if (att->atttypid == INT8ARRAYOID && pick(2) == 0)
		return random_expanded(stored);
	else
		*stored = random_varlena(att->attstorage == TYPSTORAGE_PLAIN);
	return *stored;
}

/*
 * check_value: the datum got is the one expected, aligned as the core needs it.
 */
static void
check_value(Form_pg_attribute att, Datum expected, Datum got)
{
	const char *e = DatumGetPointer(expected);
	const char *g = DatumGetPointer(got);

	if (att->attbyval)
	{
		CHECK(expected == got);
		return;
	}
	if (att->attlen == -2)
	{
		CHECK(strcmp(e, g) == 0);
		return;
	}
	if (att->attlen > 0)
	{
		CHECK(g == (const char *) att_align_nominal((uintptr_t) g, att->attalign));
		CHECK(memcmp(e, g, att->attlen) == 0);
		return;
	}
	if (!VARATT_IS_1B(g))
		CHECK(g == (const char *) att_align_nominal((uintptr_t) g, att->attalign));
	CHECK(VARATT_IS_EXTERNAL(e) == VARATT_IS_EXTERNAL(g));
	CHECK(VARATT_IS_COMPRESSED(e) == VARATT_IS_COMPRESSED(g));
	if (VARATT_IS_EXTERNAL(e))
		CHECK(memcmp(e, g, VARSIZE_EXTERNAL(e)) == 0);
	else
	{
		CHECK(VARSIZE_ANY_EXHDR(e) == VARSIZE_ANY_EXHDR(g));
		CHECK(memcmp(VARDATA_ANY(e), VARDATA_ANY(g), VARSIZE_ANY_EXHDR(e)) == 0);
	}
}

static void
check_values(TestRow *t, const Datum *values, const bool *isnull)
{
	for (int i = 0; i < t->desc->natts; i++)
	{
		CHECK(isnull[i] == t->isnull[i]);
		if (!isnull[i])
			check_value(TupleDescAttr(t->desc, i), t->values[i], values[i]);
	}
}

/* random_row: a descriptor, values and the row formed from them. */
static void
random_row(TestRow *t)
{
	int			natts = 1 + pick(pick(3) == 0 ? MAX_COLUMNS : 10);
	int			null_rate = pick(3) == 0 ? 0 : 2 + pick(10);
	Datum		input[MAX_COLUMNS];

	t->desc = CreateTemplateTupleDesc(natts);
	for (int i = 0; i < natts; i++)
	{
		TupleDescInitEntry(t->desc, i + 1, psprintf("c%d", i),
						   column_types[pick(lengthof(column_types))], -1, 0);
		t->isnull[i] = null_rate > 0 && pick(null_rate) == 0;
		t->values[i] = input[i] = (Datum) 0;
		if (!t->isnull[i])
			input[i] = random_value(TupleDescAttr(t->desc, i), &t->values[i]);
	}
	zc_desc_complete(t->desc);
	t->len = ztuple_size_any(t->desc, input, t->isnull);
	t->row = (char *) palloc(t->len + 1) + 1;
	ztuple_form(t->desc, input, t->isnull, t->row, t->len);
	CHECK(ztuple_header_ok(t->row, t->len));
	CHECK(ZH_NATTS(zheader_get(t->row)) == natts);
}

static char *
scratch_for(TestRow *t, Size len)
{
	Size		size = zdeform_scratch_size(t->desc, len);

	return size > 0 ? palloc(size) : NULL;
}

/*
 * test_deform: the columns in random portions, one by one, and as a heap tuple.
 */
static void
test_deform(TestRow *t)
{
	Datum		values[MAX_COLUMNS];
	bool		isnull[MAX_COLUMNS];
	ZDeform		d;
	int			upto = 0;
	HeapTuple	tuple;

	CHECK(zdeform_start(&d, t->row, t->len, scratch_for(t, t->len)));
	while (upto < t->desc->natts)
	{
		upto += 1 + pick(t->desc->natts - upto);
		CHECK(zdeform_columns(&d, t->desc, upto, values, isnull) == 0);
	}
	CHECK(d.off == t->len);
	CHECK(d.scratch_used <= MAXALIGN(zdeform_scratch_size(t->desc, t->len)));
	check_values(t, values, isnull);

	for (int i = 0; i < t->desc->natts; i++)
		values[i] = ztuple_getattr(t->row, t->len, t->desc, i + 1, &isnull[i], NULL, NULL);
	check_values(t, values, isnull);

	tuple = ztuple_to_heap(t->row, t->len, t->desc, NULL, NULL);
	heap_deform_tuple(tuple, t->desc, values, isnull);
	check_values(t, values, isnull);
}

/*
 * test_damage: cut or damaged rows are refused or deformed, without a step
 * outside.
 */
static void
test_damage(TestRow *t)
{
	Datum		values[MAX_COLUMNS];
	bool		isnull[MAX_COLUMNS];
	ZDeform		d;
	bool		refused;
	bool		cut = pick(2) == 0;
	Size		len = cut ? (Size) pick(t->len) : t->len;
	char	   *row = palloc(len);

	memcpy(row, t->row, len);
	if (!cut && len > 0)
		row[pick(len)] ^= (char) (1 << pick(8));

	refused = !zdeform_start(&d, row, len, scratch_for(t, len)) ||
		zdeform_columns(&d, t->desc, Min(t->desc->natts, ZH_NATTS(zheader_get(row))), values,
						isnull) != 0;
	CHECK(refused || !cut);
}

static void
check_slot(TestRow *t, TupleTableSlot *slot)
{
	if (pick(2) == 0 && slot->tts_nvalid < t->desc->natts)
		slot_getsomeattrs(slot, slot->tts_nvalid + 1 + pick(t->desc->natts - slot->tts_nvalid));
	slot_getallattrs(slot);
	check_values(t, slot->tts_values, slot->tts_isnull);
}

/* test_slots: store, materialize and copy between slots of several kinds. */
static void
test_slots(TestRow *t)
{
	TupleTableSlot *slot = MakeSingleTupleTableSlot(t->desc, &TTSOpsZHeap);
	TupleTableSlot *copy = MakeSingleTupleTableSlot(t->desc, &TTSOpsZHeap);
	TupleTableSlot *virtual = MakeSingleTupleTableSlot(t->desc, &TTSOpsVirtual);
	ItemPointerData tid;
	char	   *borrowed = palloc(t->len);
	uint32		len;
	bool		isnull;
	const char *row;
	HeapTuple	tuple;

	ItemPointerSet(&tid, 7, 9);
	memcpy(borrowed, t->row, t->len);
	ztts_store_borrowed(slot, borrowed, t->len, &tid, 4711);
	ztts_set_writer(slot, 1000, 3, InvalidUndoPtr);
	check_slot(t, slot);
	ExecCopySlot(copy, slot);
	ExecMaterializeSlot(slot);
	memset(borrowed, 0x7f, t->len);
	check_slot(t, slot);
	check_slot(t, copy);
	CHECK(ItemPointerEquals(&copy->tts_tid, &tid) && copy->tts_tableOid == 4711);
	CHECK(DatumGetTransactionId(slot_getsysattr(copy, MinTransactionIdAttributeNumber,
												&isnull)) == 1000);
	row = ztts_form_row(copy, t->desc, &len);
	CHECK(len == t->len && memcmp(row, t->row, len) == 0);

	tuple = ExecCopySlotHeapTuple(slot);
	CHECK(ItemPointerEquals(&tuple->t_self, &tid));
	ExecForceStoreHeapTuple(tuple, copy, false);
	row = ztts_form_row(copy, t->desc, &len);
	CHECK(len == t->len && memcmp(row, t->row, len) == 0);
	ExecMaterializeSlot(copy);
	heap_freetuple(tuple);
	check_slot(t, copy);

	ExecForceStoreMinimalTuple(ExecCopySlotMinimalTuple(slot), virtual, true);
	check_slot(t, virtual);
	ExecCopySlot(copy, virtual);
	check_slot(t, copy);
	ztts_store_copy(copy, t->row, t->len, &tid, 1);
	check_slot(t, copy);

	ExecDropSingleTupleTableSlot(virtual);
	ExecDropSingleTupleTableSlot(copy);
	ExecDropSingleTupleTableSlot(slot);
}

/* test_headers: compact headers come back, whole or not at all. */
static void
test_headers(void)
{
	ZHeader		kept = (UINT64CONST(1) << 31) - 1 - ZH_LOCK_MASK;
	ZHeader		h = pg_prng_uint64(&prng) & kept;
	ZHeader		base = pick(3) == 0 ? 0 : pick(2) == 0 ? h : pg_prng_uint64(&prng) & kept;
	char		packed[4];
	ZHeader		back;
	int			size;
	char	   *exact;

	h = (h & ~ZH_NATTS_MASK) | (ZHeader) pick(MaxHeapAttributeNumber + 1);
	if (pick(2) == 0)
		base = (base & ~ZH_NATTS_MASK) | (h & ZH_NATTS_MASK);
	size = zheader_compact_size(h, base);
	CHECK(zheader_compact_put(packed, h | ZH_SLACK, base) == packed + size);
	CHECK(zheader_compact_get(packed, packed + size, base, &back) == packed + size);
	CHECK(back == h);
	exact = palloc(size);
	memcpy(exact, packed, size);
	for (int cut = 0; cut < size; cut++)
		CHECK(zheader_compact_get(exact, exact + cut, base, &back) == NULL);
}

/* The row as a heap tuple by a layout, or NULL if it does not fit that. */
static HeapTuple
heap_by_layout(const ZLayout *layout, const char *row, Size len)
{
	Size		size = zlayout_tuple_size(layout, row, len);
	HeapTuple	tuple = palloc0(sizeof(HeapTupleData));

	if (size == 0)
		return NULL;
	tuple->t_data = palloc(size);
	zlayout_form_tuple(layout, row, len, tuple);
	CHECK(tuple->t_len == size);
	return tuple;
}

/*
 * test_layout: the layout alone makes the heap tuple that the server makes of
 * the same values, byte by byte; cut or damaged layouts and rows are refused,
 * or make another tuple, without a step outside.
 */
static void
test_layout(TestRow *t)
{
	char	   *bytes = palloc(zlayout_max_size(t->desc));
	Size		len = zlayout_put(bytes, t->desc) - bytes;
	HeapTuple	expected = ztuple_to_heap(t->row, t->len, t->desc, NULL, NULL);
	ZLayout    *layout = palloc(sizeof(ZLayout));
	HeapTuple	tuple;
	uint8		hoff = expected->t_data->t_hoff;
	uint16		bits = HEAP_HASNULL | HEAP_HASVARWIDTH | HEAP_HASEXTERNAL;

	CHECK(len <= zlayout_max_size(t->desc));
	bytes = repalloc(bytes, len);
	CHECK(zlayout_get(bytes, bytes + len, layout) == bytes + len);
	CHECK(layout->natts == t->desc->natts);
	tuple = heap_by_layout(layout, t->row, t->len);
	CHECK(tuple != NULL && tuple->t_len == expected->t_len && tuple->t_data->t_hoff == hoff);
	CHECK((tuple->t_data->t_infomask & bits) == (expected->t_data->t_infomask & bits));
	CHECK(HeapTupleHeaderGetNatts(tuple->t_data) == t->desc->natts);
	CHECK(memcmp(tuple->t_data->t_bits, expected->t_data->t_bits,
				 tuple->t_len - SizeofHeapTupleHeader) == 0);

	for (int i = 0; i < 5; i++)
	{
		Size		cut = pick(len);
		char	   *damaged = palloc(cut + 1);
		Size		row_cut = pick(t->len);
		char	   *row = palloc(t->len);

		memcpy(damaged, bytes, cut);
		CHECK(zlayout_get(damaged, damaged + cut, layout) == NULL);
		damaged = palloc(len);
		memcpy(damaged, bytes, len);
		damaged[pick(len)] ^= (char) (1 << pick(8));
		if (zlayout_get(damaged, damaged + len, layout) != NULL)
			(void) heap_by_layout(layout, t->row, t->len);
		(void) zlayout_get(bytes, bytes + len, layout);
		memcpy(row, t->row, t->len);
		row[pick(t->len)] ^= (char) (1 << pick(8));
		(void) heap_by_layout(layout, row, t->len);
		row = palloc(row_cut);
		memcpy(row, t->row, row_cut);
		CHECK(heap_by_layout(layout, row, row_cut) == NULL);
	}
}

/*
 * zundo_test_tuples: per round, one random row is formed, deformed in all ways,
 * damaged, and passed through slots.
 */
Datum
zundo_test_tuples(PG_FUNCTION_ARGS)
{
	MemoryContext round_context = AllocSetContextCreate(CurrentMemoryContext, "zundo test",
														ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(round_context);
	TestRow    *t = MemoryContextAlloc(old_context, sizeof(TestRow));

	start_test(PG_GETARG_INT32(0));
	for (test_round = 0; test_round < PG_GETARG_INT32(1); test_round++)
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(round_context);
		random_row(t);
		test_deform(t);
		test_slots(t);
		test_layout(t);
		test_headers();
		for (int i = 0; i < 5; i++)
			test_damage(t);
	}
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(round_context);
	PG_RETURN_INT64(cases);
}

/* ---- deltas ---- */

#define DELTA_MAX	600
#define GUARD		16

/* exact_copy: these bytes in an allocation of exactly their number. */
static char *
exact_copy(const char *bytes, Size len)
{
	return memcpy(palloc(Max(len, 1)), bytes, len);
}

/* Which decoder, and the bytes it starts from. */
typedef struct DeltaCase
{
	bool		wal;
	const char *from;
	Size		from_len;
} DeltaCase;

/*
 * decode: apply packed[0, len) in a buffer of cap bytes between guards; NULL
 * as the decoder says.
 */
static const char *
decode(const DeltaCase *c, const char *packed, Size len, char *result, Size *result_len, Size cap)
{
	char	   *buf = palloc(cap + GUARD);
	const char *next;

	memset(buf, 0x5A, cap + GUARD);
	memcpy(buf, c->from, c->from_len);
	*result_len = c->from_len;
	next = c->wal ? zdelta_wal_apply(packed, packed + len, buf, result_len, cap)
		: zdelta_undo_apply(packed, packed + len, buf, result_len, cap);
	for (int i = 0; i < GUARD; i++)
		CHECK(buf[cap + i] == 0x5A);
	if (next != NULL)
	{
		CHECK(*result_len <= cap);
		memcpy(result, buf, *result_len);
	}
	return next;
}

/* test_form: one packed form: whole, cut off at every length, damaged. */
static void
test_form(const DeltaCase *c, const char *packed, Size len, const char *to, Size to_len)
{
	Size		cap = Max(c->from_len, to_len);
	char		result[DELTA_MAX * 2];
	Size		result_len;

	CHECK(decode(c, packed, len, result, &result_len, cap) == packed + len);
	CHECK(result_len == to_len && memcmp(result, to, to_len) == 0);
	if (to_len > c->from_len)
		CHECK(decode(c, packed, len, result, &result_len, to_len - 1) == NULL);

	for (Size cut = 0; cut < len; cut += 1 + pick(5))
	{
		char	   *copy = exact_copy(packed, cut);

		CHECK(decode(c, copy, cut, result, &result_len, cap) == NULL);
	}
	for (int i = 0; i < 10; i++)
	{
		char	   *copy = exact_copy(packed, len);

		copy[pick(len)] = (char) pick(256);
		decode(c, copy, len, result, &result_len, cap);
	}
}

static void
test_delta(const char *old, Size old_len, const char *new, Size new_len)
{
	DeltaCase	undo = {false, new, new_len};
	DeltaCase	wal = {true, old, old_len};
	ZDelta		d;
	Size		undo_size;
	Size		wal_size;
	char	   *undo_form;
	char	   *wal_form;
	char	   *converted;
	Size		converted_len;

	zdelta_compute(old, old_len, new, new_len, &d);
	CHECK(d.nruns <= ZDELTA_MAX_RUNS);
	CHECK(d.resized == (old_len != new_len));
	undo_size = zdelta_undo_size(&d);
	wal_size = zdelta_wal_size(&d);
	undo_form = palloc(undo_size);
	wal_form = palloc(wal_size);
	CHECK(zdelta_undo_put(undo_form, &d, old) == undo_form + undo_size);
	CHECK(zdelta_wal_put(wal_form, &d, old, new) == wal_form + wal_size);

	test_form(&undo, undo_form, undo_size, old, old_len);
	test_form(&wal, wal_form, wal_size, new, new_len);

	converted = palloc(undo_size);
	CHECK(zdelta_wal_to_undo(wal_form, wal_form + wal_size, converted, undo_size,
							 &converted_len) == wal_form + wal_size);
	CHECK(converted_len == undo_size && memcmp(converted, undo_form, undo_size) == 0);
	CHECK(zdelta_wal_to_undo(wal_form, wal_form + wal_size, converted, undo_size - 1,
							 &converted_len) == NULL);
}

/*
 * zundo_test_deltas: per round, two random rows that share most of their bytes;
 * both forms of their delta, both directions.
 */
Datum
zundo_test_deltas(PG_FUNCTION_ARGS)
{
	MemoryContext round_context = AllocSetContextCreate(CurrentMemoryContext, "zundo test",
														ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(round_context);

	start_test(PG_GETARG_INT32(0));
	for (test_round = 0; test_round < PG_GETARG_INT32(1); test_round++)
	{
		Size		old_len = pick(pick(2) == 0 ? 20 : DELTA_MAX);
		Size		new_len = pick(2) == 0 ? old_len : (Size) pick(DELTA_MAX);
		char	   *old = palloc(Max(old_len, 1));
		char	   *new = palloc(Max(new_len, 1));

		CHECK_FOR_INTERRUPTS();
		random_bytes(old, old_len);
		random_bytes(new, new_len);
		if (pick(10) != 0)
			memcpy(new, old, Min(old_len, new_len));
		if (old_len == new_len)
		{
			for (int i = pick(14); i > 0 && new_len > 8; i--)
				random_bytes(new + pick(new_len - 8), 1 + pick(8));
		}
		else if (pick(2) == 0)
		{
			Size		tail = pick(Min(old_len, new_len) + 1);

			memcpy(new + new_len - tail, old + old_len - tail, tail);
		}
		test_delta(old, old_len, new, new_len);
		MemoryContextReset(round_context);
	}
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(round_context);
	PG_RETURN_INT64(cases);
}
