/*
 * zbtree/passed.h - rows that an index scan has fetched in vain, so that it
 * need not fetch them again for each of their other entries.
 */
#ifndef ZUNDO_ZBTREE_PASSED_H
#define ZUNDO_ZBTREE_PASSED_H

#include "zbtree/zbtree.h"

/*
 * zpassed_by: returns whether fetch->entry, of the row at tid, is known not to
 * belong to the version that the scan's snapshot sees. Calls
 * comparison functions, so no buffer lock may be held.
 * zpassed_note: remembers the key of that version, which is in slot and is not
 * that of fetch->entry; slot is NULL if the snapshot sees no version. Does
 * nothing for the first rows of a scan, for long keys, and when many rows are
 * remembered.
 * zpassed_forget: forgets all rows. Called when the scan begins anew or ends.
 */
extern bool zpassed_by(ZExpectingFetch *fetch, ItemPointer tid);
extern void zpassed_note(ZExpectingFetch *fetch, ItemPointer tid, TupleTableSlot *slot);
extern void zpassed_forget(ZExpectingFetch *fetch);

#endif
