/*
 * discard/zfile.c - which table has a file that undo names?
 *
 * Undo records and overflow pages name a table and its file. pg_repack and
 * others exchange the files of two tables in pg_class and drop the second
 * table, so a table that is gone, or has another file, does not prove that the
 * file is gone: pg_class does. No lock is taken or kept, no crash points.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "catalog/pg_tablespace.h"
#include "discard/zfile.h"
#include "tuple/zslot.h"

bool
zfile_is_zheap(Relation rel)
{
	return rel->rd_tableam != NULL && table_slot_callbacks(rel) == &TTSOpsZHeap;
}

List *
zfile_owners(RelFileNumber relnumber)
{
	Relation	catalog = table_open(TableSpaceRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	List	   *owners = NIL;
	HeapTuple	tuple;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Oid			tablespace = ((Form_pg_tablespace) GETSTRUCT(tuple))->oid;
		Oid			owner = RelidByRelfilenumber(tablespace, relnumber);

		if (OidIsValid(owner))
			owners = lappend_oid(owners, owner);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return owners;
}
