/*
 * zbtree/zbtree.c - the index access method zbtree: nbtree's exported code
 * behind a handler of its own.
 *
 * Owns: nothing. Locks and WAL are nbtree's. Crash points: none.
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/reloptions.h"
#include "catalog/dependency.h"
#include "catalog/pg_am.h"
#include "catalog/pg_opclass.h"
#include "commands/defrem.h"
#include "common/compat_nbtree.h"
#include "common/zundo.h"
#include "fmgr.h"
#include "nodes/execnodes.h"
#include "nodes/pathnodes.h"
#include "tuple/ztts.h"
#include "utils/fmgroids.h"
#include "utils/index_selfuncs.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "zbtree/predicate.h"
#include "zbtree/unique.h"
#include "zbtree/zbtree.h"
#include "zbtree/zbtree_internal.h"

PG_FUNCTION_INFO_V1(zbtree_handler);
PGDLLEXPORT Datum zbtree_handler(PG_FUNCTION_ARGS);

/* zbtree_check_table: See zbtree_internal.h. */
void
zbtree_check_table(Relation table, Relation index)
{
	if (ztts_is_zheap(table))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("index \"%s\" cannot use access method \"zbtree\"",
					RelationGetRelationName(index)),
			 errdetail("Table \"%s\" is not a zheap table.", RelationGetRelationName(table)),
			 errhint("Use access method \"btree\". Before a change of the table's access method, "
					 "make the index btree with zundo.set_index_method(), or drop it.")));
}

/* zbtree_class_for: See zbtree.h. */
Oid
zbtree_class_for(Oid class, Oid method, bool missing_ok)
{
	HeapTuple	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(class));
	Form_pg_opclass form;
	Oid			result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u", class);
	form = (Form_pg_opclass) GETSTRUCT(tuple);
	result = GetSysCacheOid3(CLAAMNAMENSP, Anum_pg_opclass_oid, ObjectIdGetDatum(method),
							 NameGetDatum(&form->opcname), ObjectIdGetDatum(form->opcnamespace));
	if (OidIsValid(result) && get_opclass_input_type(result) != form->opcintype)
		result = InvalidOid;
	if (!OidIsValid(result) && !missing_ok)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("operator class \"%s\" does not exist for access method \"%s\"",
						NameStr(form->opcname), get_am_name(method)),
				 method == BTREE_AM_OID ? 0 :
				 errhint("Create the class with zundo.mirror_opclass().")));
	ReleaseSysCache(tuple);
	return result;
}

/* Returns the name of the operator class of key column i (from 0 on). */
static char *
class_name(Relation index, int i)
{
	Oid			oid = get_index_column_opclass(RelationGetRelid(index), i + 1);
	HeapTuple	class = SearchSysCache1(CLAOID, ObjectIdGetDatum(oid));
	char	   *name;

	if (!HeapTupleIsValid(class))
		elog(ERROR, "cache lookup failed for operator class %u", oid);
	name = pstrdup(NameStr(((Form_pg_opclass) GETSTRUCT(class))->opcname));
	ReleaseSysCache(class);
	return name;
}

/*
 * Raises ERRCODE_FEATURE_NOT_SUPPORTED if a key column has a nondeterministic
 * collation and an operator class that compares bytes (text_pattern_ops and the
 * like). The equality operator of such a class takes values with different
 * bytes as equal, and a search of the index would miss them. The
 * server has the same check, but only for the OIDs of btree's classes.
 */
static void
check_collations(Relation index)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Oid			collation = index->rd_indcollation[i];
		Oid			compare = index_getprocid(index, i + 1, BTORDER_PROC);

		if ((compare != F_BTTEXT_PATTERN_CMP && compare != F_BTBPCHAR_PATTERN_CMP) ||
			!OidIsValid(collation) || get_collation_isdeterministic(collation))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("nondeterministic collations are not supported for operator class \"%s\"",
						class_name(index, i))));
	}
}

/*
 * Raises ERRCODE_FEATURE_NOT_SUPPORTED if an operator class, which a superuser
 * may have created after a class of btree, has support function 4 (ZBTREE-2).
 */
static void
check_equalimage(Relation index)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Oid			type = index->rd_opcintype[i];

		if (!OidIsValid(get_opfamily_proc(index->rd_opfamily[i], type, type, BTEQUALIMAGE_PROC)))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("operator class \"%s\" of access method \"zbtree\" must not have support "
						"function %d", class_name(index, i), BTEQUALIMAGE_PROC),
				 errdetail("With this function, an index entry may stand for several rows, which "
						   "zbtree does not support."),
				 errhint("Create the class with zundo.mirror_opclass().")));
	}
}

/*
 * Raises ERRCODE_UNDEFINED_OBJECT if the index is unique and has zbtree's
 * default class for a column, but zbtree lacks the default class of btree. For
 * a type that is binary coercible to another one the server takes that one's
 * class, by which other values are equal.
 */
static void
check_defaults(Relation index)
{
	for (int i = 0; index->rd_index->indisunique &&
		 i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Oid			type = TupleDescAttr(RelationGetDescr(index), i)->atttypid;
		Oid			class = get_index_column_opclass(RelationGetRelid(index), i + 1);
		Oid			btree = GetDefaultOpClass(type, BTREE_AM_OID);

		if (OidIsValid(btree) && class == GetDefaultOpClass(type, index->rd_rel->relam))
			(void) zbtree_class_for(btree, index->rd_rel->relam, false);
	}
}

/* zbtree_check_classes: See zbtree_internal.h. */
void
zbtree_check_classes(Relation index)
{
	check_defaults(index);
	check_collations(index);
	check_equalimage(index);
}

/* The parameters of a zbtree index. */
typedef struct ZBtreeParameters
{
	BTOptions	nbtree;			/* first: nbtree's code reads it */
	int			method;			/* access_method: 1 if it is set, else 0 */
} ZBtreeParameters;

/*
 * The amoptions callback: nbtree's parameters, and access_method = zbtree,
 * which guard/index_method.c explains.
 */
static bytea *
parameters(Datum options, bool validate)
{
	static const relopt_parse_elt places[] = {
		{"fillfactor", RELOPT_TYPE_INT, offsetof(BTOptions, fillfactor)},
		{"vacuum_cleanup_index_scale_factor", RELOPT_TYPE_REAL,
		offsetof(BTOptions, vacuum_cleanup_index_scale_factor)},
		{"deduplicate_items", RELOPT_TYPE_BOOL, offsetof(BTOptions, deduplicate_items)},
		{"access_method", RELOPT_TYPE_ENUM, offsetof(ZBtreeParameters, method)},
	};
	static relopt_enum_elt_def methods[] = {{"zbtree", 1}, {NULL}};
	static relopt_kind kinds = 0;

	if (kinds == 0)
	{
		relopt_kind kind = add_reloption_kind();

		add_enum_reloption(kind, "access_method",
						   "Access method, told for constraints, whose definition cannot name it.",
						   methods, 0, "Valid value is \"zbtree\".", AccessExclusiveLock);
		kinds = kind | RELOPT_KIND_BTREE;
	}
	return build_reloptions(options, validate, kinds, sizeof(ZBtreeParameters), places,
							lengthof(places));
}

/*
 * Raises ERRCODE_FEATURE_NOT_SUPPORTED if the index belongs to a primary key or
 * a unique constraint and lacks the parameter access_method, so that a dump
 * would make it btree, or if this constraint is deferrable.
 */
static void
check_parameter(Relation index)
{
	const ZBtreeParameters *set = (ZBtreeParameters *) index->rd_options;

	if (!index->rd_index->indisunique ||
		!OidIsValid(get_index_constraint(RelationGetRelid(index))))
		return;
	if (set == NULL || set->method == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("zbtree index \"%s\" of a constraint must have the storage parameter "
						"\"access_method\"", RelationGetRelationName(index))));
	if (!index->rd_index->indimmediate)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("zbtree index \"%s\" cannot belong to a deferrable constraint",
						RelationGetRelationName(index))));
}

/*
 * Builds the index as nbtree does. The sort in 15 and 17, and assertions in
 * all versions, compare the access method in the index's relcache entry with
 * btree, so the entry says btree during the build. It may be rebuilt meanwhile
 * from the catalog, so zheap_index_build_range_scan ends by restoring what it
 * found.
 */
static IndexBuildResult *
build(Relation table, Relation index, struct IndexInfo *info)
{
	IndexBuildResult *volatile result = NULL;
	Oid			am = index->rd_rel->relam;

	zbtree_check_table(table, index);
	zbtree_check_classes(index);
	check_parameter(index);
	Assert(am != BTREE_AM_OID);
	index->rd_rel->relam = BTREE_AM_OID;
	PG_TRY();
	{
		result = btbuild(table, index, info);
	}
	PG_FINALLY();
	{
		index->rd_rel->relam = am;
	}
	PG_END_TRY();
	return result;
}

#ifdef USE_ASSERT_CHECKING

/*
 * Calls zunique_insert. Assertions of nbtree compare the access method in the
 * relcache entry with btree.
 */
static bool
insert_as_btree(Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation table,
				IndexUniqueCheck check, bool unchanged)
{
	volatile bool result = false;
	Oid			am = index->rd_rel->relam;

	Assert(am != BTREE_AM_OID);
	index->rd_rel->relam = BTREE_AM_OID;
	PG_TRY();
	{
		result = zunique_insert(index, values, isnull, tid, table, check, unchanged);
	}
	PG_FINALLY();
	{
		index->rd_rel->relam = am;
	}
	PG_END_TRY();
	return result;
}

#else
#define insert_as_btree zunique_insert
#endif

/*
 * Inserts as nbtree does. If the leaf page is full, nbtree asks which entries
 * can be deleted while it holds the page locked, and zbtree_needed may read no
 * catalogs then.
 */
static bool
insert(Relation index, Datum *values, bool *isnull, ItemPointer tid, Relation table,
	   IndexUniqueCheck check, bool unchanged, struct IndexInfo *info)
{
	(void) zpredicate_get(index);
	return insert_as_btree(index, values, isnull, tid, table, check, unchanged);
}

#if ZC_PLANNER_KNOWS_BTREE_HEIGHT

/*
 * Estimates as nbtree does, which needs the height of the tree. The planner of
 * these versions looks up the height of indexes of access method btree only.
 */
static void
cost_estimate(struct PlannerInfo *root, struct IndexPath *path, double loop_count,
			  Cost *startup, Cost *total, Selectivity *selectivity, double *correlation,
			  double *pages)
{
	IndexOptInfo *info = path->indexinfo;

	if (info->tree_height < 0 && !info->hypothetical)
	{
		Relation	index = index_open(info->indexoid, NoLock);

		info->tree_height = _bt_getrootheight(index);
		index_close(index, NoLock);
	}
	btcostestimate(root, path, loop_count, startup, total, selectivity, correlation, pages);
}

#endif

/*
 * Returns a copy of nbtree's routine with some callbacks and properties
 * replaced. The original must not be changed: the server keeps it for all btree
 * indexes. From 18 on the server asks in each upsert.
 */
Datum
zbtree_handler(PG_FUNCTION_ARGS)
{
	static IndexAmRoutine am;

	if (am.type == T_IndexAmRoutine)
		PG_RETURN_POINTER(zc_index_am_result(&am));
	am = *GetIndexAmRoutineByAmId(BTREE_AM_OID, false);
	am.ambuild = build;
	am.amrescan = zbtree_rescan;
	am.amgettuple = zbtree_gettuple;
	am.amgetbitmap = zbtree_getbitmap;
	am.amcanreturn = zbtree_canreturn;
	am.aminsert = insert;
	am.amoptions = parameters;
#if ZC_PLANNER_KNOWS_BTREE_HEIGHT
	am.amcostestimate = cost_estimate;
#endif

	am.amcanunique = ZC_UNIQUE_BY_ANY_BTREE;
	zc_limit_index_am(&am);
	PG_RETURN_POINTER(zc_index_am_result(&am));
}
