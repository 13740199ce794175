/*
 * page/zvmap.h - one page of the server's visibility map.
 *
 * The map is the server's (access/visibilitymap.h) and has its format, which
 * is the same since 9.6: after the page header, two bits for each block of the
 * table. visibilitymap_clear locks and unlocks the map page itself, so that
 * the page cannot be registered in our WAL record. (17.11 and 18.6 have a
 * function that can, but earlier minor versions do not.) visibilitymap_set
 * locks the page and logs the change up to 18, and does neither from 19 on. So
 * zundo sets and clears bits here, in records of its own.
 */
#ifndef ZUNDO_ZVMAP_H
#define ZUNDO_ZVMAP_H

#include "access/visibilitymapdefs.h"
#include "storage/bufpage.h"

#define ZVMAP_BYTES			(BLCKSZ - MAXALIGN(SizeOfPageHeaderData))
#define ZVMAP_BLOCKS_PER_BYTE (BITS_PER_BYTE / BITS_PER_HEAPBLOCK)

/*
 * zvmap_clear: clears the bits of the table's block on its map page, which must
 * be locked exclusively. Returns false if they were clear already.
 */
static inline bool
zvmap_clear(Page map, BlockNumber block)
{
	uint32		byte = block / ZVMAP_BLOCKS_PER_BYTE % ZVMAP_BYTES;
	int			shift = block % ZVMAP_BLOCKS_PER_BYTE * BITS_PER_HEAPBLOCK;
	uint8		bits = VISIBILITYMAP_VALID_BITS << shift;
	uint8	   *p = (uint8 *) PageGetContents(map) + byte;

	Assert(!PageIsNew(map));
	if ((*p & bits) == 0)
		return false;
	*p &= ~bits;
	return true;
}

/*
 * zvmap_set: sets the bit "all visible" of the table's block on its map page,
 * which must be locked exclusively.
 */
static inline void
zvmap_set(Page map, BlockNumber block)
{
	uint32		byte = block / ZVMAP_BLOCKS_PER_BYTE % ZVMAP_BYTES;
	int			shift = block % ZVMAP_BLOCKS_PER_BYTE * BITS_PER_HEAPBLOCK;

	Assert(!PageIsNew(map));
	((uint8 *) PageGetContents(map))[byte] |= VISIBILITYMAP_ALL_VISIBLE << shift;
}

#endif
