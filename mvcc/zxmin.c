/*
 * mvcc/zxmin.c - where xmin shows an id.
 *
 * In a query it shows the token of the version (TOKEN-1 in tuple/ztts.c).
 *
 *	TOKEN-3	For the server and for trigger functions xmin is our own top-level
 *		transaction's id if our transaction has written the version, else the
 *		token. A comparison with the own id in a query is answered so, too
 *		(guard/zxmin_id.c).
 *	TOKEN-4	Outside of a query (an apply worker that looks for conflicts) xmin
 *		is the id of the author, or 2 if that is not known any more.
 *
 * Locks and crash points: none.
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "common/zundo.h"
#include "mvcc/zlevel.h"
#include "mvcc/zvis.h"
#include "mvcc/zxid.h"
#include "mvcc/zxmin.h"
#include "replication/logicalworker.h"

/*
 * zxmin_author: See zxmin.h. 2, for an author that is not known, is heap's id
 * of a frozen row, of which the server expects no commit timestamp.
 */
TransactionId
zxmin_author(ZHeapSlot *slot, bool names_author)
{
	bool		apply = ZC_APPLY_LOOKS_AT_XMIN && IsLogicalWorker() &&
	zlevel_current()->estate == NULL;

	if (!names_author && !apply)
		return InvalidTransactionId;
	if (!slot->author_known && slot->chain != InvalidUndoPtr &&
		(apply || zxid_is_ours(slot->chain_xid)))
		zvis_lookup_author(slot);
	if (apply)
		return slot->xmin != InvalidZXid ? zxid_to_xid(slot->xmin) : FrozenTransactionId;
	if (slot->author_known && slot->xmin != InvalidZXid &&
		TransactionIdIsCurrentTransactionId(zxid_to_xid(slot->xmin)))
		return GetTopTransactionIdIfAny();
	return InvalidTransactionId;
}
