/*
 * mvcc/ztables.c - which relations are tables of zheap. No buffers, no crash
 * points.
 */
#include "postgres.h"

#include "mvcc/ztables.h"
#include "tuple/ztts.h"
#include "utils/rel.h"
#include "utils/relcache.h"

bool
ztables_is_zheap(Oid relid)
{
	Relation	rel = RelationIdGetRelation(relid);
	bool		result;

	if (!RelationIsValid(rel))
		return false;
	result = rel->rd_tableam != NULL && rel->rd_tableam->slot_callbacks(rel) == &TTSOpsZHeap;
	RelationClose(rel);
	return result;
}
