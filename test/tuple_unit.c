/*
 * test/tuple_unit.c - unit tests of tuple/, callable from SQL.
 *
 *	zundo_test_tuples(seed int, rounds int) returns bigint
 *	zundo_test_deltas(seed int, rounds int) returns bigint
 *
 * Each compares random cases with a simple model and returns their number; a
 * mismatch is an ERROR. Rules: TUPLE-2, TUPLE-3, TUPLE-4, HEADER-1, TOKEN-5
 * (rows); DELTA-1 (deltas); DECODE-3 (layouts). The tested bytes are in
 * allocations of exactly their size, so that a memory checker notices any read
 * past them.
 */
#include "unit.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "tuple/zlayout.h"
#include "tuple/ztts.h"
#include "utils/array.h"
#include "utils/memutils.h"

PGDLLEXPORT Datum zundo_test_tuples(PG_FUNCTION_ARGS);
PGDLLEXPORT Datum zundo_test_deltas(PG_FUNCTION_ARGS);

PG_FUNCTION_INFO_V1(zundo_test_tuples);
PG_FUNCTION_INFO_V1(zundo_test_deltas);

/* ---- rows ---- */

/* Returns a copy of the bytes in an allocation of exactly their number. */
static char *
exact_copy(const char *bytes, Size len)
{
	return memcpy(palloc(Max(len, 1)), bytes, len);
}

#define MAX_COLUMNS 60
#define DELTA_MAX	600

static const Oid column_types[] = {
	INT2OID, INT4OID, INT8OID, FLOAT4OID, FLOAT8OID, BOOLOID, CHAROID, TEXTOID, BYTEAOID,
	NAMEOID, UUIDOID, INTERVALOID, NUMERICOID, INT8ARRAYOID, BOXOID, CSTRINGOID, TIDOID,
	POINTOID, TIMESTAMPTZOID, OIDVECTOROID, MACADDROID, TIMETZOID
};

/* A row, and the values from which it was formed. */
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
	uint64		bits = random_bits();

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
 * Returns a random varlena with a 4-byte or a short header, or one that looks
 * like a compressed value or a TOAST pointer.
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
 * Returns a random expanded array, which ztuple_form must flatten; *flat is its
 * flat form.
 */
static Datum
random_expanded(Datum *flat)
{
	Datum		elems[20];
	int			n = pick(lengthof(elems));

	for (int i = 0; i < n; i++)
		elems[i] = Int64GetDatumFast((int64) random_bits());
	*flat = PointerGetDatum(construct_array(elems, n, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
											TYPALIGN_DOUBLE));
	return expand_array(*flat, CurrentMemoryContext, NULL);
}

/*
 * Returns a random value for the column; *stored is the value that deforming
 * must return.
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
		char	   *string = palloc(len + 1);

		for (int i = 0; i < len; i++)
			string[i] = (char) (1 + pick(255));
		string[len] = '\0';
		*stored = CStringGetDatum(string);
	}
	else if (att->atttypid == INT8ARRAYOID && pick(2) == 0)
		return random_expanded(stored);
	else
		*stored = random_varlena(att->attstorage == TYPSTORAGE_PLAIN);
	return *stored;
}

/*
 * Checks that the value got is the expected one, and is aligned as the server
 * needs it.
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

/* Checks all columns of a deformed row. */
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

/* Makes a random descriptor and values, and forms a row from them. */
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

/* Returns scratch memory for deforming len bytes, NULL if none is needed. */
static char *
scratch_for(TestRow *t, Size len)
{
	Size		size = zdeform_scratch_size(t->desc, len);

	return size > 0 ? palloc(size) : NULL;
}

/* Returns a heap tuple with the values of the row. */
static HeapTuple
heap_by_values(const char *row, Size len, TupleDesc desc)
{
	Datum		values[MAX_COLUMNS];
	bool		isnull[MAX_COLUMNS];

	(void) ztuple_deform(row, len, desc, values, isnull, NULL, NULL);
	return heap_form_tuple(desc, values, isnull);
}

/*
 * Deforms the row: several columns at a time, one by one, and as a heap tuple.
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

	tuple = heap_by_values(t->row, t->len, t->desc);
	heap_deform_tuple(tuple, t->desc, values, isnull);
	check_values(t, values, isnull);
}

/*
 * Deforms a cut row, which must be refused, or a damaged one, which must be
 * refused or deformed without reading outside of it.
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

/* Checks all columns of a slot. */
static void
check_slot(TestRow *t, TupleTableSlot *slot)
{
	if (pick(2) == 0 && slot->tts_nvalid < t->desc->natts)
		slot_getsomeattrs(slot, slot->tts_nvalid + 1 + pick(t->desc->natts - slot->tts_nvalid));
	slot_getallattrs(slot);
	check_values(t, slot->tts_values, slot->tts_isnull);
}

/* Stores the row in slots of several kinds, materializes and copies them. */
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
	ztts_set_author(slot, 1000, 3, InvalidUndoPtr);
	check_slot(t, slot);
	ExecCopySlot(copy, slot);
	ExecMaterializeSlot(slot);
	memset(borrowed, 0x7f, t->len);
	check_slot(t, slot);
	check_slot(t, copy);
	CHECK(ItemPointerEquals(&copy->tts_tid, &tid) && copy->tts_tableOid == 4711);
	CHECK(DatumGetTransactionId(slot_getsysattr(copy, MinTransactionIdAttributeNumber,
												&isnull)) == ztuple_token(t->row, t->len));
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

static void test_delta(const char *old, Size old_len, const char *new, Size new_len);
static HeapTuple heap_by_layout(const ZLayout *layout, const char *row, Size len);

/*
 * Returns the row with n more bytes, of which the last is not 0, in an
 * allocation of exactly its size. What these bytes stand for becomes *count.
 */
static char *
counted_row(const TestRow *t, Size n, uint64 *count)
{
	char	   *row = palloc(t->len + n);

	memcpy(row, t->row, t->len);
	random_bytes(row + t->len, n);
	for (Size i = 0; i < n; i++)
		if (pick(3) == 0)
			row[t->len + i] = (char) 0xFF;
	if (n > 0 && row[t->len + n - 1] == 0)
		row[t->len + n - 1] = 1;
	*count = 0;
	for (Size i = 0; i < n; i++)
		*count |= (uint64) (uint8) row[t->len + i] << (8 * i);
	return row;
}

/*
 * Reads a row with a count in all ways: the count must not be taken for data.
 */
static void
read_counted(TestRow *t, char *row, Size len)
{
	Datum		values[MAX_COLUMNS];
	bool		isnull[MAX_COLUMNS];
	HeapTuple	expected = heap_by_values(t->row, t->len, t->desc);
	HeapTuple	tuple = heap_by_values(row, len, t->desc);
	char	   *bytes = palloc(zlayout_max_size(t->desc));
	char	   *end = zlayout_put(bytes, t->desc);
	ZLayout    *layout = palloc(sizeof(ZLayout));
	TupleTableSlot *slot = MakeSingleTupleTableSlot(t->desc, &TTSOpsZHeap);
	TupleTableSlot *copy = MakeSingleTupleTableSlot(t->desc, &TTSOpsZHeap);
	ItemPointerData tid;
	const char *form;
	uint32		form_len;

	for (int i = 0; i < t->desc->natts; i++)
		values[i] = ztuple_getattr(row, len, t->desc, i + 1, &isnull[i], NULL, NULL);
	check_values(t, values, isnull);
	CHECK(tuple->t_len == expected->t_len &&
		  memcmp(tuple->t_data, expected->t_data, tuple->t_len) == 0);
	CHECK(zlayout_get(bytes, end, layout) == end);
	tuple = heap_by_layout(layout, row, len);
	CHECK(tuple != NULL && tuple->t_len == expected->t_len &&
		  memcmp(tuple->t_data->t_bits, expected->t_data->t_bits,
				 tuple->t_len - SizeofHeapTupleHeader) == 0);

	ItemPointerSet(&tid, 7, 9);
	ztts_store_borrowed(slot, row, len, &tid, InvalidOid);
	ExecCopySlot(copy, slot);
	for (int i = 0; i < 2; i++)
	{
		check_slot(t, slot);
		form = ztts_form_row(slot, t->desc, &form_len);
		CHECK(form_len == len && memcmp(form, row, len) == 0);
		CHECK(ztts_length(slot, form, form_len) == t->len);
		ExecMaterializeSlot(slot);
	}
	form = ztts_form_row(copy, t->desc, &form_len);
	CHECK(form_len == len && ztts_length(copy, form, form_len) == t->len);
	ExecForceStoreHeapTuple(ExecCopySlotHeapTuple(slot), copy, true);
	for (int i = 0; i < 2; i++)
	{
		form = ztts_form_row(copy, t->desc, &form_len);
		CHECK(form_len == t->len && ztts_length(copy, form, form_len) == t->len);
		ExecMaterializeSlot(copy);
	}
	ExecDropSingleTupleTableSlot(copy);
	ExecDropSingleTupleTableSlot(slot);
}

/*
 * Repeats a row that has a random count, and one that has other columns; reads
 * it; damages its count.
 */
static void
test_count(TestRow *t)
{
	Size		n = pick(2) == 0 ? pick(3) : pick(ZTUPLE_MAX_COUNT);
	uint64		count;
	char	   *old = counted_row(t, n, &count);
	char	   *new = palloc(t->len + ZTUPLE_MAX_COUNT);
	Size		new_len;
	int			bad;
	char	   *other;

	memcpy(new, t->row, t->len);
	new_len = ztuple_repeat(new, t->len, old, t->len + n);
	CHECK(memcmp(new, t->row, t->len) == 0);
	CHECK(ztuple_count_ok(new + t->len, new_len - t->len));
	CHECK(ztuple_count(new + t->len, new_len - t->len) == count + 1);
	CHECK(!ztuple_same_bytes(old, t->len + n, new, new_len));
	CHECK(ztuple_length(old, t->len + n, t->desc, &bad) == t->len);
	CHECK(ztuple_length(new, new_len, t->desc, &bad) == t->len);
	if (new_len <= DELTA_MAX)
		test_delta(old + ZTUPLE_HEADER_SIZE, t->len + n - ZTUPLE_HEADER_SIZE,
				   new + ZTUPLE_HEADER_SIZE, new_len - ZTUPLE_HEADER_SIZE);
	read_counted(t, exact_copy(new, new_len), new_len);

	/* other columns, or another shape: no repetition */
	other = exact_copy(old, t->len + n);
	if (t->len > ZTUPLE_HEADER_SIZE && pick(2) == 0)
		other[ZTUPLE_HEADER_SIZE + pick(t->len - ZTUPLE_HEADER_SIZE)] ^= (char) (1 << pick(8));
	else
		zheader_set(other, zheader_get(other) ^ (pick(2) == 0 ? ZH_NULLS : 1));
	CHECK(ztuple_repeat(new, t->len, other, t->len + n) == t->len);
	CHECK(!ztuple_same_bytes(other, t->len + n, new, t->len));

	/* a count that is too long, or ends with 0 */
	other = palloc(t->len + ZTUPLE_MAX_COUNT + 1);
	memcpy(other, t->row, t->len);
	memset(other + t->len, 1, ZTUPLE_MAX_COUNT + 1);
	CHECK(ztuple_length(other, t->len + ZTUPLE_MAX_COUNT + 1, t->desc, &bad) == 0);
	CHECK(bad == ZTUPLE_COUNT);
	other[t->len + n] = 0;
	CHECK(ztuple_length(other, t->len + n + 1, t->desc, &bad) == 0 && bad == ZTUPLE_COUNT);
}

/* Counts from none to more than two bytes hold, one by one. */
static void
test_counting(TestRow *t)
{
	char	   *rows[2];
	Size		len = t->len;

	for (int i = 0; i < 2; i++)
	{
		rows[i] = palloc(t->len + ZTUPLE_MAX_COUNT);
		memcpy(rows[i], t->row, t->len);
	}
	for (uint64 i = 1; i < 70000; i++)
	{
		len = ztuple_repeat(rows[i & 1], t->len, rows[(i & 1) ^ 1], len);
		CHECK(len == t->len + (i < 0x100 ? 1 : i < 0x10000 ? 2 : 3));
		CHECK(ztuple_count(rows[i & 1] + t->len, len - t->len) == i);
	}
}

/* Packs and unpacks a compact header; a cut one must be refused. */
static void
test_headers(void)
{
	ZHeader		kept = (UINT64CONST(1) << 31) - 1 - ZH_LOCK_MASK;
	ZHeader		h = random_bits() & kept;
	ZHeader		base = pick(3) == 0 ? 0 : pick(2) == 0 ? h : random_bits() & kept;
	char		packed[ZHEADER_COMPACT_MAX];
	ZHeader		back;
	int			size;
	char	   *exact;

	h = (h & ~ZH_NATTS_MASK) | (ZHeader) pick(MaxHeapAttributeNumber + 1);
	if (pick(2) == 0)
		base = (base & ~ZH_NATTS_MASK) | (h & ZH_NATTS_MASK);
	size = zheader_compact_put(packed, h | ZH_SLACK, base) - packed;
	CHECK(size == 2 || size == ZHEADER_COMPACT_MAX);
	CHECK(zheader_compact_get(packed, packed + size, base, &back) == packed + size);
	CHECK(back == h);
	exact = palloc(size);
	memcpy(exact, packed, size);
	for (int cut = 0; cut < size; cut++)
		CHECK(zheader_compact_get(exact, exact + cut, base, &back) == NULL);
}

/* Returns the row as a heap tuple, or NULL if it does not fit the layout. */
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
 * Checks that a heap tuple that is formed by the layout alone has the bytes
 * that the server gives it. Cut layouts and rows must be refused; damaged ones
 * must be refused or used without reading outside of them.
 */
static void
test_layout(TestRow *t)
{
	char	   *bytes = palloc(zlayout_max_size(t->desc));
	Size		len = zlayout_put(bytes, t->desc) - bytes;
	HeapTuple	expected = heap_by_values(t->row, t->len, t->desc);
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
	expected = zlayout_copy_tuple(t->desc, t->row, t->len);
	CHECK(expected != NULL && expected->t_len == tuple->t_len &&
		  memcmp(expected->t_data, tuple->t_data, tuple->t_len) == 0);

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
		(void) zlayout_copy_tuple(t->desc, row, t->len);
		row = palloc(row_cut);
		memcpy(row, t->row, row_cut);
		CHECK(heap_by_layout(layout, row, row_cut) == NULL);
		CHECK(zlayout_copy_tuple(t->desc, row, row_cut) == NULL);
	}
}

/*
 * zundo_test_tuples(seed, rounds): in each round forms one random row, deforms
 * it in all ways, damages it, stores it in slots, and repeats it.
 */
Datum
zundo_test_tuples(PG_FUNCTION_ARGS)
{
	MemoryContext round_context = AllocSetContextCreate(CurrentMemoryContext, "zundo test",
														ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(round_context);
	TestRow    *t = MemoryContextAlloc(old_context, sizeof(TestRow));

	start_test(PG_GETARG_INT32(0));
	for (; unit.round < PG_GETARG_INT32(1); unit.round++)
	{
		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(round_context);
		random_row(t);
		test_deform(t);
		test_slots(t);
		test_layout(t);
		test_count(t);
		if (unit.round == 0)
			test_counting(t);
		test_headers();
		for (int i = 0; i < 5; i++)
			test_damage(t);
	}
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(round_context);
	PG_RETURN_INT64(unit.cases);
}

/* ---- deltas ---- */

#define GUARD		16

/* The form of a delta, and the bytes to which it is applied. */
typedef struct DeltaCase
{
	bool		wal;
	const char *from;
	Size		from_len;
} DeltaCase;

/*
 * Applies packed[0, len) in a buffer of cap bytes, and checks that the bytes
 * after the buffer have not changed. Returns the result of the decoder.
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

/* Tests one packed form: whole, cut off at many lengths, damaged. */
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

/*
 * Takes the bytes that the delta's WAL form has out of the new ones, and puts
 * them in again: whole, with too little room, cut off, damaged.
 */
static void
test_rest(const char *packed, Size len, const char *new, Size new_len)
{
	const char *end = packed + len;
	char	   *rest = palloc(Max(new_len, 1));
	char	   *buf = palloc(new_len + GUARD);
	char	   *rest_end = zdelta_wal_take_out(packed, end, new, new_len, rest);
	Size		rest_len = rest_end - rest;

	CHECK(rest_end != NULL && rest_len <= new_len);
	CHECK(zdelta_wal_put_in(packed, end, rest, rest_len, buf, new_len) == buf + new_len);
	CHECK(memcmp(buf, new, new_len) == 0);
	if (new_len > 0)
		CHECK(zdelta_wal_put_in(packed, end, rest, rest_len, buf, new_len - 1) == NULL);
	memset(buf, 0x5A, new_len + GUARD);
	for (int i = 0; i < 10; i++)
	{
		char	   *copy = exact_copy(packed, len);

		copy[pick(len)] = (char) pick(256);
		(void) zdelta_wal_put_in(copy, copy + len, rest, rest_len, buf, new_len);
		(void) zdelta_wal_put_in(copy, copy + pick(len), rest, pick(rest_len + 1), buf, new_len);
		(void) zdelta_wal_take_out(copy, copy + len, new, new_len, palloc(Max(new_len, 1)));
	}
	for (int i = 0; i < GUARD; i++)
		CHECK(buf[new_len + i] == 0x5A);
}

/* Tests both forms of the delta between old and new bytes. */
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
	undo_form = palloc(undo_size);
	wal_form = palloc(undo_size + new_len);
	CHECK(zdelta_undo_put(undo_form, &d, old) == undo_form + undo_size);
	wal_size = zdelta_wal_put(wal_form, &d, old, new) - wal_form;

	test_form(&undo, undo_form, undo_size, old, old_len);
	test_form(&wal, wal_form, wal_size, new, new_len);

	converted = palloc(undo_size);
	CHECK(zdelta_wal_to_undo(wal_form, wal_form + wal_size, converted, undo_size,
							 &converted_len) == wal_form + wal_size);
	CHECK(converted_len == undo_size && memcmp(converted, undo_form, undo_size) == 0);
	CHECK(zdelta_wal_to_undo(wal_form, wal_form + wal_size, converted, undo_size - 1,
							 &converted_len) == NULL);
	test_rest(wal_form, wal_size, new, new_len);
}

/*
 * zundo_test_deltas(seed, rounds): in each round tests the deltas between two
 * random rows, which often share most of their bytes.
 */
Datum
zundo_test_deltas(PG_FUNCTION_ARGS)
{
	MemoryContext round_context = AllocSetContextCreate(CurrentMemoryContext, "zundo test",
														ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(round_context);

	start_test(PG_GETARG_INT32(0));
	for (; unit.round < PG_GETARG_INT32(1); unit.round++)
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
	PG_RETURN_INT64(unit.cases);
}
