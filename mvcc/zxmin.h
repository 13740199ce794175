/*
 * mvcc/zxmin.h - where xmin shows an id, and not the token.
 */
#ifndef ZUNDO_ZXMIN_H
#define ZUNDO_ZXMIN_H

#include "tuple/ztts.h"

/*
 * zxmin_author: returns the id that xmin of the version in the slot shows
 * instead of its token (TOKEN-3, TOKEN-4), or InvalidTransactionId.
 * names_author: the caller asks whether our transaction has written the
 * version. May look up the author, so no page may be locked. Called through
 * ztts_author_xid_hook.
 */
extern TransactionId zxmin_author(ZHeapSlot *slot, bool names_author);

#endif
