/*
 * zbtree/plan.c - planning: zbtree indexes treated as those of btree.
 *
 * Some of the server's rules for index conditions name operator families of
 * btree, or the access method: the prefix of a LIKE with text_pattern_ops, `<<`
 * of networks, a comparison of rows. Since a zbtree index is a B-tree with the
 * same operators, the planner is shown btree's families in place of zbtree's.
 * The executor looks operators up in those of the index itself.
 */
#include "postgres.h"

#include "access/genam.h"
#include "catalog/pg_am.h"
#include "catalog/pg_amop.h"
#include "common/compat_nbtree.h"
#include "nodes/pathnodes.h"
#include "utils/catcache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "zbtree/zbtree.h"

/*
 * Returns whether both operator families have the same operators, with the same
 * strategies, for the same types.
 */
static bool
same_operators(Oid a, Oid b)
{
	CatCList   *in_a = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(a));
	CatCList   *in_b = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(b));
	bool		same = in_a->n_members == in_b->n_members && in_a->ordered && in_b->ordered;

	/* both are in the order of types and strategies */
	for (int i = 0; same && i < in_a->n_members; i++)
	{
		Form_pg_amop op = (Form_pg_amop) GETSTRUCT(&in_a->members[i]->tuple);
		Form_pg_amop other = (Form_pg_amop) GETSTRUCT(&in_b->members[i]->tuple);

		same = op->amopopr == other->amopopr && op->amopstrategy == other->amopstrategy &&
			op->amoppurpose == other->amoppurpose;
	}
	ReleaseSysCacheList(in_a);
	ReleaseSysCacheList(in_b);
	return same;
}

/* Shows the planner btree's families for the index if it is of zbtree. */
static void
show_families(IndexOptInfo *info)
{
	Relation	index = index_open(info->indexoid, NoLock);
	bool		same = zbtree_is(index);

	/* sortopfamily: the family of btree to which the operator < belongs */
	for (int i = 0; same && i < info->nkeycolumns; i++)
		same = same_operators(info->opfamily[i], info->sortopfamily[i]);
	index_close(index, NoLock);
	if (!same)
		return;
	info->opfamily = info->sortopfamily;
	if (ZC_ROWS_COMPARED_BY_ANY_BTREE)
		info->relam = BTREE_AM_OID;
}

void
zbtree_plan_table(struct RelOptInfo *rel)
{
	ListCell   *lc;

	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *info = lfirst_node(IndexOptInfo, lc);

		if (info->relam != BTREE_AM_OID && info->sortopfamily != NULL && !info->hypothetical)
			show_families(info);
	}
}
