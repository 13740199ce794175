/*
 * convert/exchange.c - exchanging the files of a table and of its copy.
 *
 * What is exchanged are columns of pg_class, and on which of the two tables
 * their TOAST tables depend. The table and its indexes keep their OIDs, and so
 * everything that refers to them.
 *
 *	CONVERT-2	both tables, their TOAST tables and all indexes are locked
 *		exclusively from before the exchange to the end of the transaction: no
 *		process can reach a file by two OIDs (asserted in exchange).
 *		t/160_convert converts beside writers and autovacuum.
 *
 * Crash points: none. A transaction that does not commit has changed nothing
 * but rows of catalogs.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "commands/tablecmds.h"
#include "common/compat_commands.h"
#include "common/zundo.h"
#include "convert/convert_internal.h"
#include "storage/lmgr.h"
#include "undo/undo.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#define SWAP(type, x, y) \
	do { type saved = (x); (x) = (y); (y) = saved; } while (0)

/* Makes the TOAST table depend on the table and not on another one. */
static void
set_owner(Oid toast, Oid table)
{
	ObjectAddress object;
	ObjectAddress owner;

	if (!OidIsValid(toast))
		return;
	if (deleteDependencyRecordsFor(RelationRelationId, toast, false) != 1)
		elog(ERROR, "TOAST table %u has other dependencies than expected", toast);
	ObjectAddressSet(object, RelationRelationId, toast);
	ObjectAddressSet(owner, RelationRelationId, table);
	recordDependencyOn(&object, &owner, DEPENDENCY_INTERNAL);
}

/* Returns whether we hold the relation's AccessExclusiveLock. */
pg_attribute_unused()
static bool
is_locked(Oid reloid)
{
	Relation	rel = relation_open(reloid, NoLock);
	bool		locked = CheckRelationLockedByMe(rel, AccessExclusiveLock, false);

	relation_close(rel, NoLock);
	return locked;
}

/* Exchanges the files of two tables, or of two indexes. */
static void
exchange(Relation catalog, Oid reloid1, Oid reloid2)
{
	HeapTuple	tuple1 = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(reloid1));
	HeapTuple	tuple2 = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(reloid2));
	Form_pg_class one;
	Form_pg_class two;

	Assert(is_locked(reloid1) && is_locked(reloid2));	/* CONVERT-2 */
	if (!HeapTupleIsValid(tuple1) || !HeapTupleIsValid(tuple2))
		elog(ERROR, "cache lookup failed for relation %u or %u", reloid1, reloid2);
	one = (Form_pg_class) GETSTRUCT(tuple1);
	two = (Form_pg_class) GETSTRUCT(tuple2);
	if (one->relkind != two->relkind || one->relpersistence != two->relpersistence ||
		one->relnatts != two->relnatts || one->relisshared || two->relisshared ||
		one->relfilenode == 0 || two->relfilenode == 0 ||
		(one->relkind == RELKIND_INDEX && one->relam != two->relam))
		elog(ERROR, "relations %u and %u do not have the same shape", reloid1, reloid2);

	if (one->relam != two->relam)
		zu_lock_for_new_table();
	SWAP(Oid, one->relfilenode, two->relfilenode);
	SWAP(Oid, one->reltablespace, two->reltablespace);
	SWAP(Oid, one->relam, two->relam);
	SWAP(Oid, one->reltoastrelid, two->reltoastrelid);
	SWAP(TransactionId, one->relfrozenxid, two->relfrozenxid);
	SWAP(TransactionId, one->relminmxid, two->relminmxid);
	SWAP(int32, one->relpages, two->relpages);
	SWAP(float4, one->reltuples, two->reltuples);
	SWAP(int32, one->relallvisible, two->relallvisible);
	zc_swap_relallfrozen(one, two);
	CatalogTupleUpdate(catalog, &tuple1->t_self, tuple1);
	CatalogTupleUpdate(catalog, &tuple2->t_self, tuple2);

	if (one->relam != two->relam &&
		(changeDependencyFor(RelationRelationId, reloid1, AccessMethodRelationId, two->relam,
							 one->relam) != 1 ||
		 changeDependencyFor(RelationRelationId, reloid2, AccessMethodRelationId, one->relam,
							 two->relam) != 1))
		elog(ERROR, "could not change the dependency on the access method");
	set_owner(one->reltoastrelid, reloid1);
	set_owner(two->reltoastrelid, reloid2);
	heap_freetuple(tuple1);
	heap_freetuple(tuple2);
}

static Oid
toast_of(Oid table)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Oid			toast;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", table);
	toast = ((Form_pg_class) GETSTRUCT(tuple))->reltoastrelid;
	ReleaseSysCache(tuple);
	return toast;
}

/*
 * Gives the TOAST table, and its index, the name that belongs to a table with
 * this OID; pg_upgrade compares names.
 */
static void
rename_toast(Oid toast, Oid table, const char *suffix)
{
	Relation	rel;
	ListCell   *lc;

	if (!OidIsValid(toast))
		return;
	rel = table_open(toast, AccessExclusiveLock);
	foreach(lc, RelationGetIndexList(rel))
		RenameRelationInternal(lfirst_oid(lc), psprintf("pg_toast_%u%s_index", table, suffix), true,
							   true);
	table_close(rel, NoLock);
	RenameRelationInternal(toast, psprintf("pg_toast_%u%s", table, suffix), true, false);
	CommandCounterIncrement();
}

/* Sets pg_class.relrewrite, by which decoding passes over a copy, to 0. */
static void
clear_relrewrite(Relation catalog, Oid reloid)
{
	HeapTuple	tuple;

	if (!OidIsValid(reloid))
		return;
	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(reloid));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", reloid);
	((Form_pg_class) GETSTRUCT(tuple))->relrewrite = InvalidOid;
	CatalogTupleUpdate(catalog, &tuple->t_self, tuple);
	heap_freetuple(tuple);
	CommandCounterIncrement();
}

/* zconvert_exchange: See convert_internal.h. */
void
zconvert_exchange(Oid table, Oid copy, List *indexes, List *copies)
{
	Relation	catalog = table_open(RelationRelationId, RowExclusiveLock);
	ListCell   *lc1;
	ListCell   *lc2;

	exchange(catalog, table, copy);
	forboth(lc1, indexes, lc2, copies)
		exchange(catalog, lfirst_oid(lc1), lfirst_oid(lc2));
	CommandCounterIncrement();
	rename_toast(toast_of(table), table, "_zundo");
	rename_toast(toast_of(copy), copy, "");
	rename_toast(toast_of(table), table, "");
	clear_relrewrite(catalog, toast_of(table));
	table_close(catalog, RowExclusiveLock);
}
