/*
 * tuple/zlayout.h - rows as heap tuples, and the lengths and alignments of a
 * row's columns, for readers that have no tuple descriptor.
 *
 * A packed row cannot be taken apart without the lengths of its columns.
 * Logical decoding reads WAL records before it knows the catalog at their
 * time, so records that it has to show carry the layout (change/zlogical.h).
 *
 * In WAL:	varint number of columns; then for each run of equal columns
 *			u8 alignment << 6 | length (1 to 60, or ZLAYOUT_*), [varint length],
 *			and, unless the run is one column, u8 0 and varint the number of
 *			further columns.
 */
#ifndef ZUNDO_ZLAYOUT_H
#define ZUNDO_ZLAYOUT_H

#include "access/htup_details.h"
#include "tuple/ztuple.h"

#define ZLAYOUT_AGAIN	0		/* further columns like the one before */
#define ZLAYOUT_VARLENA 61
#define ZLAYOUT_CSTRING 62
#define ZLAYOUT_LONG	63		/* the length follows */

typedef struct ZLayout
{
	int			natts;
	struct
	{
		int16		length;		/* attlen */
		uint8		alignment;	/* in bytes */
	}			column[MaxHeapAttributeNumber];
} ZLayout;

/*
 * zlayout_max_size: returns the number of bytes that the layout of desc's rows
 * takes at most.
 *
 * zlayout_put: writes that layout to p, which has space for zlayout_max_size
 * bytes. Returns the byte after it.
 *
 * zlayout_get: reads a layout. Returns the byte after it, or NULL if it is
 * malformed.
 */
extern Size zlayout_max_size(TupleDesc desc);
extern char *zlayout_put(char *p, TupleDesc desc);
extern const char *zlayout_get(const char *p, const char *end, ZLayout *layout);

/*
 * zlayout_tuple_size: returns the length of the heap tuple that has the values
 * of the row, or 0 if the row does not agree with the layout.
 *
 * zlayout_form_tuple: writes that tuple to tuple->t_data, which has space for
 * it, and sets the members of tuple. zlayout_tuple_size must have returned a
 * length for the row.
 */
extern Size zlayout_tuple_size(const ZLayout *layout, const char *row, Size len);
extern void zlayout_form_tuple(const ZLayout *layout, const char *row, Size len, HeapTuple tuple);

/*
 * zlayout_copy_tuple: returns that tuple, in one palloc'd piece, for a row of
 * this descriptor; NULL if the row does not agree with it or lacks columns.
 */
extern HeapTuple zlayout_copy_tuple(TupleDesc desc, const char *row, Size len);

#endif
