/*
 * undo/undo_format.h - layout of zundo.undo_log, and arithmetic of its blocks.
 *
 * On-disk layout of zundo.undo_log (all pages have the standard page header,
 * and pd_lower is exact so that full-page images leave out what follows it):
 *
 *	Groups of ZU_GROUP_BLOCKS blocks. In each:
 *	0			group 0: meta page: ZuTwinHeader at 24, ZuMetaData at 48; other
 *				groups: not used, zeros
 *	1			map page of the group: ZuTwinHeader at 24, 200 ZuMapEntry at 48
 *	2 .. 65		the group's first extent, 64 pages
 *	66, 67		the second copies of 0 and 1
 *	68 ..		the group's other 199 extents
 *
 *	Meta and map pages exist twice (damage/undo_twin.c), with an extent between
 *	the copies, 528 kB from one to the other, so that what damages a stretch of
 *	the file leaves one of them. They are not further apart because a file with
 *	one extent has both.
 *
 *	undo page:
 *	OFFSET SIZE FIELD
 *	0      24 PageHeaderData; pd_lower = end of data, pd_upper = pd_special =
 *		8192
 *	24     40   ZuPageHeader
 *	64     ..   undo records, back to back; one may continue on the next
 *					page
 *
 *	slot overflow page: undo_overflow.h
 */
#ifndef ZUNDO_UNDO_FORMAT_H
#define ZUNDO_UNDO_FORMAT_H

#include "undo/undo.h"

#include "storage/bufpage.h"

/* ---- on-disk structures ---- */

#define ZU_META_BLOCK	0		/* the first twin's */
#define ZU_META_MAGIC	0x5A554E44
#define ZU_MAP_MAGIC	0x5A554E4D
#define ZU_META_VERSION 5

#define ZU_HEAD_BLOCKS	2		/* a meta and a map page, at both places */
#define ZU_TWIN_DISTANCE (ZU_HEAD_BLOCKS + ZU_EXTENT_PAGES) /* of two twins */

/* The header of meta and map pages, behind the page header. */
typedef struct ZuTwinHeader
{
	uint64		changes;		/* how often the pair was changed */
	uint32		magic;
	BlockNumber first;			/* block of the pair's first twin */
	uint32		crc;			/* of this header before it, and of the data
								 * up to pd_lower */
	uint32		zero;
} ZuTwinHeader;

#define ZU_TWIN_DATA	48		/* first byte of a twin's data */

StaticAssertDecl(SizeOfPageHeaderData + sizeof(ZuTwinHeader) == ZU_TWIN_DATA,
				 "ZuTwinHeader is 24 bytes on disk");

/*
 * How far relfrozenxid may advance: see zu_freeze_limit (discard/freeze.c). 0 =
 * none.
 */
typedef struct ZuFreeze
{
	uint64		now;			/* it may advance to this xid now */
	uint64		next;			/* a durable `oldest`, which takes its place
								 * ... */
	uint64		after;			/* ... once the horizon of every process has
								 * reached this xid: nextXid after `next` was
								 * published */
} ZuFreeze;

typedef struct ZuMetaData
{
	uint32		version;
	uint32		extent_pages;	/* ZU_EXTENT_PAGES */
	uint64		oldest;			/* durable value of zu_oldest() */
	uint32		nextents;		/* extents that exist; the limit */
	uint32		floor;			/* generation at which the extents of a new
								 * group begin (UNDO-6) */
	ZuFreeze	freeze;
	uint64		doubt_from;		/* xids below `oldest` whose undo may be lost
								 * (CHAIN-11) */
	uint64		doubt_to;
} ZuMetaData;

StaticAssertDecl(sizeof(ZuMetaData) == 64, "ZuMetaData is 64 bytes on disk");

/* State of an extent in its map entry. */
#define ZU_EXTENT_FREE		0
#define ZU_EXTENT_LOG		1
#define ZU_EXTENT_OVERFLOW	2	/* slot overflow pages (undo_overflow.c) */

typedef struct ZuMapEntry
{
	uint32		generation;		/* of its latest allocation, kept when freed */
	uint16		logno;
	uint8		state;
	uint8		resolved;		/* 1: what follows 'sequence' is valid
								 * (UNDO-52) */
	uint64		sequence;		/* position among the extents of its log */
	uint64		oldest_top;		/* oldest top-level xid of its records */
	uint64		newest;			/* newest xid, of lockers too, that they name */
	uint32		end;			/* byte where its data end */
	uint32		zero;
} ZuMapEntry;

StaticAssertDecl(sizeof(ZuMapEntry) == 40, "ZuMapEntry is 40 bytes on disk");

#define ZU_GROUP_EXTENTS	200
#define ZU_GROUP_BLOCKS		(2 * ZU_HEAD_BLOCKS + ZU_GROUP_EXTENTS * ZU_EXTENT_PAGES)

StaticAssertDecl(ZU_TWIN_DATA + ZU_GROUP_EXTENTS * sizeof(ZuMapEntry) <= BLCKSZ,
				 "a map page holds the entries of its group");

#define ZU_PAGE_MAGIC	0x7A75

typedef struct ZuPageHeader
{
	uint32		generation;
	uint32		extent;
	uint16		logno;
	uint16		first_record;	/* page offset of the first record that begins
								 * here, 0 = none */
	uint16		magic;
	uint16		page;			/* number in the extent */
	uint64		sequence;		/* of the extent in its log */
	UndoPtr		prev;			/* page 0 only: where the log ended before it
								 * came here; 0 = nowhere */
	uint64		topxid;			/* top-level transaction whose bytes begin the
								 * page */
} ZuPageHeader;

StaticAssertDecl(sizeof(ZuPageHeader) == 40, "ZuPageHeader is 40 bytes on disk");
StaticAssertDecl(SizeOfPageHeaderData == 24,
				 "undo pages are laid out behind a 24-byte page header");

#define ZU_PAGE_DATA	64		/* first byte of data on an undo page */
#define ZU_PAGE_SPACE	(BLCKSZ - ZU_PAGE_DATA)
#define ZU_EXTENT_SPACE	(ZU_EXTENT_PAGES * ZU_PAGE_SPACE)
#define ZU_EXTENT_END	((1U << ZU_BYTE_BITS) - 1)	/* byte of a position
													 * behind a full extent */
#define ZU_MIN_EXTENTS	8		/* tail truncation leaves these */

/* Returns the data of a meta page. */
static inline ZuMetaData *
zu_meta(Page page)
{
	return (ZuMetaData *) ((char *) page + ZU_TWIN_DATA);
}

/* Returns the entry of the extent on page, the map page of its group. */
static inline ZuMapEntry *
zu_map_entry(Page page, uint32 extent)
{
	return (ZuMapEntry *) ((char *) page + ZU_TWIN_DATA) + extent % ZU_GROUP_EXTENTS;
}

/* Returns the place of the header of an undo page; the page may be another. */
static inline ZuPageHeader *
zu_page_header(Page page)
{
	return (ZuPageHeader *) ((char *) page + SizeOfPageHeaderData);
}

/* Returns the block of the first twin of extent's map page. */
static inline BlockNumber
zu_map_block(uint32 extent)
{
	return 1 + (extent / ZU_GROUP_EXTENTS) * (BlockNumber) ZU_GROUP_BLOCKS;
}

/*
 * Returns the block of twin 0 or 1 of the pair whose first twin is block
 * 'first'.
 */
static inline BlockNumber
zu_twin_block(BlockNumber first, int which)
{
	return first + which * ZU_TWIN_DISTANCE;
}

/* Returns the first block of the extent. */
static inline BlockNumber
zu_extent_block(uint32 extent)
{
	uint32		i = extent % ZU_GROUP_EXTENTS;

	return (extent / ZU_GROUP_EXTENTS) * (BlockNumber) ZU_GROUP_BLOCKS + ZU_HEAD_BLOCKS +
		i * ZU_EXTENT_PAGES + (i > 0 ? ZU_HEAD_BLOCKS : 0);
}

/* Returns the extent that a data block belongs to. */
static inline uint32
zu_block_extent(BlockNumber block)
{
	uint32		b = block % ZU_GROUP_BLOCKS - ZU_HEAD_BLOCKS;

	if (b >= ZU_EXTENT_PAGES)
		b -= ZU_HEAD_BLOCKS;
	return (block / ZU_GROUP_BLOCKS) * ZU_GROUP_EXTENTS + b / ZU_EXTENT_PAGES;
}

/* Returns whether the block is a place of meta and map pages. */
static inline bool
zu_block_is_twin(BlockNumber block)
{
	uint32		b = block % ZU_GROUP_BLOCKS;

	return b < ZU_HEAD_BLOCKS ||
		(b >= ZU_TWIN_DISTANCE && b < ZU_TWIN_DISTANCE + ZU_HEAD_BLOCKS);
}

/*
 * Returns the number of blocks of a relation with nextents extents: up to the
 * end of the last one, or of the twins behind it.
 */
static inline BlockNumber
zu_nblocks_for(uint32 nextents)
{
	if (nextents == 0)
		return zu_twin_block(ZU_META_BLOCK, 1) + 1;
	return zu_extent_block(nextents - 1) + ZU_EXTENT_PAGES +
		((nextents - 1) % ZU_GROUP_EXTENTS == 0 ? ZU_HEAD_BLOCKS : 0);
}

/*
 * Returns the byte in the extent of offset off on a page; off may be the page's
 * end.
 */
static inline uint32
zu_byte_at(int page, int off)
{
	if (off >= BLCKSZ)
	{
		page++;
		off = ZU_PAGE_DATA;
	}
	return page >= ZU_EXTENT_PAGES ? ZU_EXTENT_END : (uint32) (page * BLCKSZ + off);
}

/* Returns the number of data bytes that the extent has before byte. */
static inline uint32
zu_byte_space(uint32 byte)
{
	if (byte >= ZU_EXTENT_END)
		return ZU_EXTENT_SPACE;
	return (byte / BLCKSZ) * ZU_PAGE_SPACE + Max((int) (byte % BLCKSZ) - ZU_PAGE_DATA, 0);
}

/*
 * Returns whether generation a of an extent was given out after b. Generations
 * are counted in a circle.
 */
static inline bool
zu_generation_newer(uint32 a, uint32 b)
{
	uint32		ahead = (a - b) & ZU_MAX_GENERATION;

	return ahead != 0 && ahead < (1U << (ZU_GENERATION_BITS - 1));
}

/*
 * Returns whether the page is written, as page pageno of the extent's
 * allocation with this generation.
 */
static inline bool
zu_page_valid(Page page, uint32 extent, uint32 generation, int pageno)
{
	ZuPageHeader *h = zu_page_header(page);
	int			lower = ((PageHeader) page)->pd_lower;

	return h->magic == ZU_PAGE_MAGIC && h->generation == generation &&
		h->extent == extent && h->page == pageno && lower >= ZU_PAGE_DATA && lower <= BLCKSZ;
}

#endif
