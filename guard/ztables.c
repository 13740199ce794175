/*
 * guard/ztables.c - which relations are tables of zheap. No buffers, no crash
 * points.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/defrem.h"
#include "guard/ztables.h"
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
	result = ztts_is_zheap(rel);
	RelationClose(rel);
	return result;
}

/* ztables_list: See ztables.h. Reads pg_class; the tables are not locked. */
List *
ztables_list(bool with_toast)
{
	Oid			zheap = get_table_am_oid("zheap", true);
	Relation	catalog = table_open(RelationRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	List	   *tables = NIL;
	HeapTuple	tuple;

	while (OidIsValid(zheap) && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_class rel = (Form_pg_class) GETSTRUCT(tuple);

		if (rel->relam == zheap &&
			(rel->relkind == RELKIND_RELATION || rel->relkind == RELKIND_MATVIEW ||
			 (with_toast && rel->relkind == RELKIND_TOASTVALUE)) &&
			!isOtherTempNamespace(rel->relnamespace))
			tables = lappend_oid(tables, rel->oid);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return tables;
}
