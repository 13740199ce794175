/*
 * discard/zfile.c - finding the table that has a file now.
 *
 * Undo records and overflow pages name a table and its file. pg_repack and
 * others exchange the files of two tables in pg_class and drop the second
 * table. So if the table does not exist any more, or has another file, the file
 * may still exist: pg_class is searched for it. Called by sweep.c and
 * zrollback_xact.c. Leaves no lock but AccessShareLock on catalogs, for the
 * time of a scan; no crash points.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_tablespace.h"
#include "discard/zfile.h"

/*
 * zfile_owners: See zfile.h. RelidByRelfilenumber needs the tablespace, which
 * undo records do not name: so all tablespaces are tried.
 */
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
