/*
 * page/zvmap.h - one page of the server's visibility map.
 *
 * The map is the server's (access/visibilitymap.h), in its format, which has been the same since 9.6: after the page
 * header, two bits for each block of the table. Its visibilitymap_clear takes and gives back the page's lock
 * itself, so that a WAL record cannot name the page; that of 17.11 and 18.6 which does not is
 * unknown to earlier ones. So clearing is done here, for DML and for redo.
 */
#ifndef ZUNDO_ZVMAP_H
#define ZUNDO_ZVMAP_H

#include "access/visibilitymapdefs.h"
#include "storage/bufpage.h"

#define ZVMAP_BYTES			(BLCKSZ - MAXALIGN(SizeOfPageHeaderData))
#define ZVMAP_BLOCKS_PER_BYTE (BITS_PER_BYTE / BITS_PER_HEAPBLOCK)

/* zvmap_clear: clear the bits of the table's block on its map page, exclusively locked. False if they were clear. */
static inline bool
zvmap_clear(Page map, BlockNumber block)
{
	uint32		byte = block / ZVMAP_BLOCKS_PER_BYTE % ZVMAP_BYTES;
	uint8		bits = VISIBILITYMAP_VALID_BITS << (block % ZVMAP_BLOCKS_PER_BYTE * BITS_PER_HEAPBLOCK);
	uint8	   *p = (uint8 *) PageGetContents(map) + byte;

	if ((*p & bits) == 0)
		return false;
	*p &= ~bits;
	return true;
}

#endif
