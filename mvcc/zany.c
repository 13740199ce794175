/*
 * mvcc/zany.c - what SnapshotAny means for a fetch by TID.
 *
 * A TID names a row here, not a version, so which version a fetch with
 * SnapshotAny wants must follow from its surroundings: the executor level
 * (mvcc/zlevel.h). Rules, of which the first that applies decides:
 *	ANY-1	own versions made by the level's command (cid >= C) are skipped. If
 *			any was skipped, the version below the last of them is wanted; if
 *			that was an insertion, the inserted row.
 *	ANY-2	the version that this level locked with tuple_lock; not for a
 *			recheck of one row (EPQ).
 *	ANY-3	the version visible to the level's snapshot. For INSERT ... ON
 *			CONFLICT, which asks whether a repeatable snapshot sees the
 *			existing row, the newest committed or own one (ANY-3b). For ON
 *			CONFLICT DO SELECT without a lock (19), the version that the search
 *			for duplicates has found (ANY-3c).
 *	ANY-4	the row of an own insertion at the bottom of the chain. If the row
 *			was inserted as visible to all (COPY FREEZE), into a file of our
 *			transaction, there is no record at the bottom (FROZEN-1 in dml/).
 *	ANY-5	the newest own or committed version, deleted or not. This is a
 *			guess, so it is given only to a scan of an index with SnapshotAny,
 *			as an extension may run: such a scan has found the row and takes
 *			any version. A fetch by TID, where a trigger, a recheck (EPQ) or
 *			the statement itself wants one version in particular, raises an
 *			error. Both cases are counted (zundo.stat_database).
 *
 * Without a level (deferred triggers, COPY, logical replication) only ANY-4
 * and ANY-5 apply; but a fetch right after our last change of a row gets the
 * version before that change (ANY-1b: AFTER triggers of replication). A
 * version that another transaction has not committed is never returned.
 *
 * Where ANY-1 finds the old row of a change for an AFTER trigger, it returns a
 * handle with it: the event must find this version again when the row has been
 * changed further (mvcc/zhandle.h).
 *
 * Called by scan/ (fetches by TID), dml/ (zany_is_conflict_slot), monitor/
 * (the counters) and hooks.c (shared memory). The page's share lock is held
 * only while the row is copied. Nothing is written.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "access/xact.h"
#include "common/zcount.h"
#include "mvcc/zany.h"
#include "mvcc/zhandle.h"
#include "mvcc/zlevel.h"
#include "mvcc/zown.h"
#include "mvcc/zwalk.h"
#include "nodes/execnodes.h"
#include "utils/rel.h"

/*
 * Returns whether slot belongs to this level itself. Another slot belongs to a
 * plan that checks the level's query again for one row (EPQ), or to a trigger.
 */
static bool
slot_of_level(EState *estate, TupleTableSlot *slot)
{
	return estate != NULL && list_member_ptr(estate->es_tupleTable, slot);
}

/*
 * Returns whether our transaction has made the table's file. Then rows there
 * that are visible to all have been inserted so by our transaction (FROZEN-1
 * in dml/).
 */
static bool
file_is_ours(Relation rel)
{
	return rel->rd_createSubid != InvalidSubTransactionId ||
		rel->rd_firstRelfilelocatorSubid != InvalidSubTransactionId;
}

/* What a walk for SnapshotAny found. */
typedef struct AnyResult
{
	bool		skipped;		/* ANY-1 applied */
	UndoPtr		change;			/* the record of the oldest update or deletion
								 * that was skipped */
	bool		own_bottom;		/* the chain ends in an own insertion */
	bool		seen;			/* the version is the newest one, live, and
								 * what accept's MVCC snapshot sees */
} AnyResult;

/*
 * Walks from the newest version, past unfinished versions of other
 * transactions and past own ones with cid >= limit, to the version that ANY-1
 * wants or, if none was skipped, to the newest own or committed one. With
 * bottom continues to an own insertion (ANY-4). Returns false if the page must
 * be copied again.
 */
static bool
walk_any(ZWalk *walk, ZAccept *accept, CommandId limit, bool bottom, ZVersion *version,
		 AnyResult *result)
{
	ZXid		replaced_by = InvalidZXid;
	bool		newest = true;
	ZWalkResult found;

	memset(result, 0, sizeof(*result));
	while ((found = zwalk_next(walk, accept)) == ZWALK_AUTHOR)
	{
		ZXidStatus	status = zwalk_status(walk);
		bool		skip;

		if (status == ZXID_COMMITTED || status == ZXID_ALL_VISIBLE)
			break;
		if (status != ZXID_OWN)
		{
			newest = false;
			continue;
		}
		skip = walk->rec.cid >= limit;
		if (!skip && !bottom)
			break;				/* the newest own version that is not skipped
								 * is the answer */
		result->skipped |= skip;
		if (walk->rec.type == ZUR_INSERT)
		{
			result->own_bottom = true;
			break;
		}
		if (skip)
		{
			int			s = ZH_SLOT(walk->header);

			result->change = walk->rec_ptr;
			replaced_by = walk->rec.xid;
			if (walk->rec_ptr == walk->slots->s[s].ptr)
				walk->next[s] = zown_below(walk->rec_ptr, walk->next[s]);
		}
	}
	if (found == ZWALK_RETRY)
		return false;
	if (found == ZWALK_ALL_VISIBLE || found == ZWALK_ACCEPTED)
		result->own_bottom = file_is_ours(walk->rel);
	result->seen = newest && !result->skipped && accept->kind == ZACCEPT_MVCC &&
		ZH_LIVE(walk->header) &&
		(found == ZWALK_ALL_VISIBLE || found == ZWALK_ACCEPTED ||
		 (found == ZWALK_AUTHOR && zaccept_version(accept, &walk->rec)));
	zversion_from_walk(version, walk, true);
	version->xmax = replaced_by;
	return true;
}

/*
 * Walks to the newest version that is committed or our own, over deletions
 * (ANY-3b). accept is that of the snapshot: what it sees need not be looked at
 * closely. Returns false if the page must be copied again, as it must if a
 * transaction has committed whose last change was passed over (walk_to_version
 * in zvis.c).
 */
static bool
walk_newest(ZWalk *walk, ZAccept *accept, ZVersion *version)
{
	ZXid		passed = InvalidZXid;
	ZWalkResult found;

	while ((found = zwalk_next(walk, accept)) == ZWALK_AUTHOR)
	{
		ZXidStatus	status = zwalk_status(walk);

		if (ZH_LIVE(walk->header) && (status == ZXID_OWN || status == ZXID_COMMITTED))
			break;
		if (status == ZXID_IN_PROGRESS)
			passed = walk->rec.xid;
	}
	if (found == ZWALK_RETRY || (passed != InvalidZXid && zxid_is_committed(passed)))
		return false;
	zversion_from_walk(version, walk, true);
	return true;
}

/*
 * Begins a walk over the versions of the row at off; tries counts the attempts
 * from 0. buf is pinned and not locked. Returns false if there is no row.
 * Raises ERRCODE_DATA_CORRUPTED for a damaged item, and when there have been
 * too many attempts.
 */
static bool
begin_walk(ZCopyWalk *copy, Relation rel, Buffer buf, OffsetNumber off, int tries)
{
	Page		page = BufferGetPage(buf);

	Assert(zc_buffer_unlocked(buf));
	if (tries == 0)
		zwalk_init(&copy->walk);
	else if (tries >= ZWALK_MAX_TRIES)
		zvis_corrupt_chain(rel, BufferGetBlockNumber(buf), InvalidUndoPtr);
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (PageIsNew(page))
	{
		LockBuffer(buf, BUFFER_LOCK_UNLOCK);
		return false;
	}
	if (unlikely(!zpage_item_ok(page, off)))
		zvis_corrupt_page(rel, BufferGetBlockNumber(buf), page, off);
	return zwalk_load(copy, rel, buf, off, InvalidSnapshot);
}

/*
 * Runs walk_any, again on a new copy of the page as long as it wants one. Sets
 * version->found to false if there is no row. The result's 'seen' is about
 * snapshot, which may be NULL; it is an MVCC snapshot that sees no version
 * which is to be skipped.
 */
static void
fetch_any(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, CommandId limit,
		  bool bottom, ZVersion *version, AnyResult *result)
{
	ZCopyWalk	copy;
	ZAccept		accept;

	version->found = false;
	memset(result, 0, sizeof(*result));
	for (int tries = 0; begin_walk(&copy, rel, buf, off, tries); tries++)
	{
		zaccept_init(&accept, snapshot != NULL ? ZACCEPT_MVCC : ZACCEPT_OWN_BEFORE, snapshot,
					 copy.slots.oldest);
		accept.limit = bottom ? 0 : limit;
		if (walk_any(&copy.walk, &accept, limit, bottom, version, result))
			break;
	}
}

/*
 * Runs walk_newest, again on a new copy of the page as long as it wants one.
 * Sets version->found to false if there is no row.
 */
static void
fetch_newest(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZVersion *version)
{
	ZCopyWalk	copy;
	ZAccept		accept;

	version->found = false;
	for (int tries = 0; begin_walk(&copy, rel, buf, off, tries); tries++)
	{
		zaccept_init(&accept, ZACCEPT_MVCC, snapshot, copy.slots.oldest);
		if (walk_newest(&copy.walk, &accept, version))
			break;
	}
}

#ifdef USE_ASSERT_CHECKING
/* Returns whether two rows are the same but for their slots and locks. */
static bool
is_same_row(const char *a, int alen, const char *b, int blen)
{
	return alen == blen && zheader_same_shape(zheader_get(a), zheader_get(b)) &&
		memcmp(a + ZTUPLE_HEADER_SIZE, b + ZTUPLE_HEADER_SIZE, alen - ZTUPLE_HEADER_SIZE) == 0;
}

/* walk_agrees gives up after this many versions. */
#define MANY_VERSIONS 50

/*
 * Returns whether a walk over our own versions of the row finds the change of
 * the handle, and these rows; true, too, if there are many newer versions.
 */
static bool
walk_agrees(const ZHandle *handle, const ZVersion *old, Relation rel)
{
	const ZVersion *new = zhandle_kept_new();
	Buffer		buf = ReadBuffer(rel, handle->block);
	ZCopyWalk	copy;
	ZWalk	   *walk = &copy.walk;
	ZAccept		accept;
	ZWalkResult found = ZWALK_RETRY;
	int			steps = 0;

	for (int tries = 0; found == ZWALK_RETRY && begin_walk(&copy, rel, buf, handle->off, tries);
		 tries++)
	{
		zaccept_init(&accept, ZACCEPT_NONE, NULL, copy.slots.oldest);
		do
			found = zwalk_next(walk, &accept);
		while (found == ZWALK_AUTHOR && walk->rec_ptr != handle->change &&
			   ++steps < MANY_VERSIONS);
	}
	ReleaseBuffer(buf);
	if (steps >= MANY_VERSIONS)
		return true;
	if (found != ZWALK_AUTHOR || (walk->rec.type == ZUR_UPDATE) != (new != NULL) ||
		(new != NULL && (new->xmin != walk->rec.xid || new->cmin != walk->rec.cid ||
						 !is_same_row(walk->row, walk->len, new->row, new->len))))
		return false;
	zwalk_step_back(walk);
	return is_same_row(walk->row, walk->len, old->row, old->len);
}
#endif

/* zany_fetch_by_handle: See zany.h. */
void
zany_fetch_by_handle(Relation rel, ItemPointer tid, ZVersion *version, ItemPointer real)
{
	const ZHandle *handle = zhandle_find(RelationGetRelid(rel), tid);

	version->found = false;
	if (handle == NULL)
		return;
	ItemPointerSet(real, handle->block, handle->off);
	zhandle_fetch(handle, version);
	Assert(walk_agrees(handle, version, rel));	/* HANDLE-1 */
}

const ZVersion *
zany_fetch_kept(Relation rel, ItemPointer tid)
{
	return zhandle_take_new(rel, tid);
}

/*
 * Returns whether the row at off is live and the record author, which made a
 * version of it, is the head of its slot's chain. Then no newer record is about
 * the row.
 */
static bool
is_by_head(Buffer buf, OffsetNumber off, UndoPtr author)
{
	Page		page = BufferGetPage(buf);
	bool		result = false;

	LockBuffer(buf, BUFFER_LOCK_SHARE);
	if (!PageIsNew(page) && off <= PageGetMaxOffsetNumber(page) && zpage_item_ok(page, off) &&
		ItemIdIsNormal(PageGetItemId(page, off)))
	{
		ZHeader		h = zheader_get(zpage_row(page, PageGetItemId(page, off)));
		int			s = ZH_SLOT(h);

		result = ZH_LIVE(h) && s >= 1 && s <= zpage_nslots(page) &&
			!zslot_locks_only(zpage_slot(page, s)) && zpage_slot(page, s)->ptr == author;
	}
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	return result;
}

/*
 * zany_is_newest: See zany.h. Changes of our own aborted subtransactions may
 * still be on the page; they do not count.
 */
bool
zany_is_newest(Relation rel, ItemPointer tid, UndoPtr author)
{
	OffsetNumber off = ItemPointerGetOffsetNumber(tid);
	Buffer		buf = ReadBuffer(rel, ItemPointerGetBlockNumber(tid));
	ZCopyWalk	copy;
	const ZWalk *walk = &copy.walk;
	ZAccept		accept;
	bool		newest = is_by_head(buf, off, author);

	for (int tries = 0; !newest && begin_walk(&copy, rel, buf, off, tries); tries++)
	{
		ZWalkResult found;

		zaccept_init(&accept, ZACCEPT_NONE, NULL, copy.slots.oldest);
		while ((found = zwalk_next(&copy.walk, &accept)) == ZWALK_AUTHOR &&
			   zwalk_status(walk) == ZXID_ABORTED)
			 /* older */ ;
		if (found == ZWALK_RETRY)
			continue;
		newest = (found == ZWALK_AUTHOR && walk->rec_ptr == author && ZH_LIVE(walk->header));
		break;
	}
	ReleaseBuffer(buf);
	return newest;
}

/*
 * Returns whether the row can have versions of our own: not without a
 * transaction id, nor if the owner of its slot is another transaction
 * (zslots_may_be_ours). buf is locked.
 */
static bool
may_be_ours(Buffer buf, OffsetNumber off)
{
	Page		page = BufferGetPage(buf);
	ItemId		lp;

	Assert(zc_buffer_locked(buf));
	if (!TransactionIdIsValid(GetTopTransactionIdIfAny()) || PageIsNew(page) ||
		off < FirstOffsetNumber || off > PageGetMaxOffsetNumber(page))
		return false;
	lp = PageGetItemId(page, off);
	if (ItemIdIsNormal(lp))
		return zslots_may_be_ours(page, zheader_get(zpage_row(page, lp)));
	return ItemIdIsRedirected(lp) && zslots_may_be_ours(page, zpage_stub_header(lp));
}

/* What the executor will do with the row that it fetches into a slot. */
typedef enum SlotUse
{
	SLOT_OTHER,
	SLOT_TRIGGER_OLD,			/* the old row of an AFTER trigger */
	SLOT_TRIGGER_NEW,			/* the new one */
	SLOT_RETURNING,				/* a deleted row for RETURNING, or the
								 * existing row that an INSERT conflicts with */
	SLOT_CONFLICT				/* the existing row that an INSERT ... ON
								 * CONFLICT DO UPDATE will update, or DO
								 * SELECT will return */
} SlotUse;

/* Returns the use of slot in one of these result relations, or SLOT_OTHER. */
static SlotUse
slot_use_among(List *result_relations, TupleTableSlot *slot)
{
	ListCell   *lc;

	foreach(lc, result_relations)
	{
		ResultRelInfo *info = lfirst(lc);

		if (info->ri_TrigOldSlot == slot)
			return SLOT_TRIGGER_OLD;
		if (info->ri_TrigNewSlot == slot)
			return SLOT_TRIGGER_NEW;
		if (info->ri_ReturningSlot == slot)
			return SLOT_RETURNING;
		if (info->ri_onConflict != NULL && info->ri_onConflict->oc_Existing == slot)
			return SLOT_CONFLICT;
	}
	return SLOT_OTHER;
}

/*
 * Returns the use of slot in the query of estate, whose result relations are
 * in three lists.
 */
static SlotUse
slot_use(EState *estate, TupleTableSlot *slot)
{
	SlotUse		use;

	if (slot == NULL)
		return SLOT_OTHER;
	use = slot_use_among(estate->es_opened_result_relations, slot);
	if (use == SLOT_OTHER)
		use = slot_use_among(estate->es_tuple_routing_result_relations, slot);
	if (use == SLOT_OTHER)
		use = slot_use_among(estate->es_trig_target_relations, slot);
	return use;
}

bool
zany_is_conflict_slot(TupleTableSlot *slot)
{
	EState	   *estate = zlevel_current()->estate;

	return estate != NULL && slot_use(estate, slot) == SLOT_CONFLICT;
}

/* zany_asks_for_author: See zany.h. */
bool
zany_asks_for_author(TupleTableSlot *slot)
{
	EState	   *estate = zlevel_current()->estate;
	SlotUse		use;

	if (estate == NULL)
		return true;
	use = slot_use(estate, slot);
	return use == SLOT_TRIGGER_OLD || use == SLOT_TRIGGER_NEW;
}

/*
 * Returns, in words for an error message, what has requested the row that is to
 * be put into slot.
 */
static const char *
caller_in_words(EState *estate, TupleTableSlot *slot)
{
	if (estate == NULL)
		return "a trigger or a command outside of any query";
	switch (slot_use(estate, slot))
	{
		case SLOT_TRIGGER_OLD:
		case SLOT_TRIGGER_NEW:
			return "an AFTER trigger";
		case SLOT_RETURNING:
			return "RETURNING or ON CONFLICT";
		case SLOT_CONFLICT:
			return "ON CONFLICT DO UPDATE or DO SELECT";
		case SLOT_OTHER:
			break;
	}
	return slot_of_level(estate, slot) ? "a statement that changes the row" :
		"a trigger, or a query that is checked again after it waited for a lock";
}

/*
 * Fetches the newest version of the row at tid (ANY-5), or raises
 * ERRCODE_INTERNAL_ERROR if one version in particular is wanted (by_tid). If
 * there is no row, the caller raises an error of its own.
 */
static void
fetch_unclear(Relation rel, Buffer buf, ItemPointer tid, TupleTableSlot *slot, bool by_tid,
			  ZVersion *version)
{
	AnyResult	result;

	Assert(zc_buffer_unlocked(buf));
	fetch_any(rel, buf, ItemPointerGetOffsetNumber(tid), NULL, InvalidCommandId, false, version,
			  &result);
	if (!version->found)
		return;
	zcount(by_tid ? ZCOUNT_UNCLEAR_REFUSED : ZCOUNT_UNCLEAR_ANSWERED, 1);
	if (by_tid)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("cannot determine which version of row (%u,%u) of relation \"%s\" is "
						"requested",
						ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid),
						RelationGetRelationName(rel)),
				 errdetail("The row was requested by %s. The snapshot of the query does not see "
						   "the row, and this transaction has neither inserted nor changed it.",
						   caller_in_words(zlevel_current()->estate, slot)),
				 errhint("Retry the transaction. zundo.stat_database counts these errors.")));
}

/* Does zany_fetch's work outside of any query: ANY-1b, ANY-4, ANY-5. */
static void
fetch_without_level(Relation rel, Buffer buf, ItemPointer tid, TupleTableSlot *slot, bool by_tid,
					ZVersion *version)
{
	OffsetNumber off = ItemPointerGetOffsetNumber(tid);
	ZLevel	   *level = zlevel_current();
	const ZChangedRow *rows = zlevel_changed(level, rel, tid);
	AnyResult	result;

	Assert(level->estate == NULL);
	if (rows != NULL)
	{
		zhandle_old_version(rows, version);
		if (level->event)
			zhandle_make(rel, BufferGetBlockNumber(buf), off, rows, &version->handle);
		level->changed.change = InvalidUndoPtr;
		return;					/* ANY-1b */
	}
	fetch_any(rel, buf, off, NULL, InvalidCommandId, true, version, &result);
	if (result.own_bottom)
		return;					/* ANY-4 */
	fetch_unclear(rel, buf, tid, slot, by_tid, version);	/* ANY-5 */
}

#ifdef USE_ASSERT_CHECKING
/* Returns whether a walk by ANY-1 finds the old row and its change. */
static bool
walk_finds(const ZChangedRow *rows, Relation rel, Buffer buf, OffsetNumber off, CommandId limit)
{
	ZVersion	found;
	AnyResult	result;

	fetch_any(rel, buf, off, NULL, limit, false, &found, &result);
	return result.skipped && result.change == rows->change && found.found &&
		found.xmax == rows->xid && is_same_row(found.row, found.len, rows->old, rows->oldlen);
}
#endif

/*
 * Fetches the old row of the level's last change for a trigger, with a handle
 * (HANDLE-1), if it is the row at tid. Returns whether it has.
 */
static bool
fetch_kept_old(Relation rel, Buffer buf, ItemPointer tid, ZLevel *level, ZVersion *version)
{
	const ZChangedRow *rows = zlevel_changed(level, rel, tid);

	Assert(level->estate != NULL);
	if (rows == NULL)
		return false;
	Assert(walk_finds(rows, rel, buf, ItemPointerGetOffsetNumber(tid),
					  level->estate->es_output_cid));	/* HANDLE-1 */
	zhandle_old_version(rows, version);
	version->xmax = rows->xid;
	zhandle_make(rel, ItemPointerGetBlockNumber(tid), ItemPointerGetOffsetNumber(tid), rows,
				 &version->handle);
	return true;
}

/*
 * Fetches a row that no walk is needed for: snapshot sees its newest version
 * (ANY-3), so that there is none to skip. Returns whether it has. If not, sets
 * *ours to whether the row can have versions of our own. snapshot may be NULL,
 * as for fetch_any. On entry and on return buf is pinned and not locked.
 */
static bool
fetch_plain(Relation rel, Buffer buf, OffsetNumber off, Snapshot snapshot, ZVersion *version,
			bool *ours)
{
	Assert(zc_buffer_unlocked(buf));
	if (snapshot == NULL)
		LockBuffer(buf, BUFFER_LOCK_SHARE);
	else if (zvis_fetch_at_once(rel, buf, off, snapshot, version))
	{
		*ours = false;
		return version->found;
	}
	*ours = may_be_ours(buf, off);
	LockBuffer(buf, BUFFER_LOCK_UNLOCK);
	return false;
}

/*
 * zany_fetch: See zany.h. Applies the rules in their order. To most rows ANY-1
 * and ANY-2 cannot apply: fetch_plain finds out and fetches them without a
 * walk.
 */
void
zany_fetch(Relation rel, Buffer buf, OffsetNumber off, TupleTableSlot *slot, bool by_tid,
		   ZVersion *version)
{
	ZLevel	   *level = zlevel_current();
	EState	   *estate = level->estate;
	CommandId	limit;
	AnyResult	result;
	ItemPointerData tid;
	bool		locked;
	bool		ours = false;
	SlotUse		use = SLOT_OTHER;
	Snapshot	seeing;

	Assert(BufferIsValid(buf));
	ItemPointerSet(&tid, BufferGetBlockNumber(buf), off);
	if (estate == NULL)
	{
		fetch_without_level(rel, buf, &tid, slot, by_tid, version);
		return;
	}
	use = slot_use(estate, slot);
	if (use == SLOT_CONFLICT)
	{
		const ZVersion *conflict = zlevel_conflict(rel, &tid);

		if (conflict != NULL)
			zversion_copy(version, conflict);
		else
			fetch_newest(rel, buf, off, estate->es_snapshot, version);
		return;					/* ANY-3c */
	}
	if (use == SLOT_TRIGGER_OLD && fetch_kept_old(rel, buf, &tid, level, version))
		return;					/* ANY-1 */
	limit = estate->es_output_cid;
	if (limit == 0 && estate->es_result_relations == NULL)
		limit = InvalidCommandId;	/* a query that writes nothing, as in a
									 * parallel worker, skips no version */

	/*
	 * A recheck (EPQ) fetches the rows of the other range table entries,
	 * which have not been locked; one of them may be this same row.
	 */
	locked = zlevel_has_locked(rel, &tid) && (slot == NULL || slot_of_level(estate, slot));
	seeing = estate->es_snapshot;
	if (!zsnapshot_is_mvcc(seeing) || seeing->curcid > limit)
		seeing = NULL;
	if (!locked && fetch_plain(rel, buf, off, seeing, version, &ours))
		return;
	if (locked || ours)
	{
		fetch_any(rel, buf, off, locked ? NULL : seeing, limit, false, version, &result);
		if (result.skipped || result.seen)
			return;				/* ANY-1; ANY-3 */
		if (locked)
			return;				/* ANY-2: no other transaction can have
								 * changed the row since */
	}
	if (zsnapshot_is_mvcc(estate->es_snapshot))
	{
		if (IsolationUsesXactSnapshot() && use == SLOT_RETURNING)
		{
			fetch_newest(rel, buf, off, estate->es_snapshot, version);
			if (version->found)
				return;			/* ANY-3b */
		}
		zvis_fetch(rel, buf, off, estate->es_snapshot, version, NULL);
		if (version->found)
			return;				/* ANY-3 */
	}
	fetch_any(rel, buf, off, NULL, InvalidCommandId, true, version, &result);
	if (result.own_bottom)
		return;					/* ANY-4 */
	fetch_unclear(rel, buf, &tid, slot, by_tid, version);	/* ANY-5 */
}
