/*
 * undo/undo_geometry.c - where undo pointers lie in the relation, and how long
 * its file is for them.
 *
 * Shared by the log, redo, repair and the WAL decoder. Arithmetic, but for
 * zu_extend_to. Takes no locks.
 */
#include "postgres.h"

#include "undo/undo.h"
#include "undo/undo_internal.h"

bool
zu_block_position(BlockNumber block, uint32 *extent, uint32 *page)
{
	if (zu_block_is_twin(block))
		return false;
	*extent = zu_block_extent(block);
	*page = block - zu_extent_block(*extent);
	return true;
}

/*
 * zu_advance: See undo.h. Converts the pointer to a position in the extent's
 * data without page headers, and back.
 */
UndoPtr
zu_advance(UndoPtr p, uint32 bytes)
{
	uint32		byte = zuptr_byte(p);
	uint32		page = byte / BLCKSZ;
	uint32		linear = page * ZU_PAGE_SPACE + (byte % BLCKSZ - ZU_PAGE_DATA) + bytes;

	if (linear >= ZU_EXTENT_SPACE)
		byte = ZU_EXTENT_END;
	else
		byte = (linear / ZU_PAGE_SPACE) * BLCKSZ + ZU_PAGE_DATA + linear % ZU_PAGE_SPACE;
	return zuptr_make(zuptr_generation(p), zuptr_extent(p), byte);
}

/* zu_extend_to: See undo_internal.h. */
void
zu_extend_to(SMgrRelation smgr, uint32 nextents)
{
	BlockNumber need = zu_nblocks_for(nextents);
	BlockNumber have = smgrnblocks(smgr, MAIN_FORKNUM);

	while (have < need)
	{
		int			n = (int) Min(need - have, (BlockNumber) 2 * ZU_EXTENT_PAGES);

		zc_smgr_zero_extend(smgr, have, n);
		have += n;
	}
}
