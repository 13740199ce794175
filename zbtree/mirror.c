/*
 * zbtree/mirror.c - creating operator families and classes of zbtree after
 * those of btree.
 *
 * An operator class belongs to one access method. So for each class of btree
 * that zbtree supports, this file creates one of the same name in the same
 * schema, without support function 4 (equalimage), which would allow nbtree to
 * store several TIDs in one index tuple, a posting list (ZBTREE-2). That was
 * tried on 18. An index of 500,000 rows with ten values, otherwise 3.2 times
 * as large as btree's, got the same size, built or filled by insertions.
 * VACUUM can find the list around the TID that it gets; purge, page-full
 * deletion and check_index can judge members. But a list has one mark, and
 * nbtree expects that a marked list can be deleted as a whole when an entry is
 * inserted between its members (_bt_findinsertloc), which old snapshots
 * forbid, and that a TID is in one entry only (_bt_killitems). So lists stayed
 * without marks. Instructions as a multiple of those without lists: a scan of
 * unchanged rows 0.93, an index-only scan 0.83, a queue by status 0.82, one
 * that deletes its jobs 1.52; beside an old snapshot these two 1.61 and 1.50,
 * for each scan fetches all rows that have been taken.
 *
 * CREATE EXTENSION mirrors only objects that came with the server, not members
 * that users have added to the server's operator families: a member of the
 * extension that depended on a user's object would be dropped by DROP ...
 * CASCADE of that object, and the extension and all zheap tables with it.
 * zundo.mirror_opclass creates the others, as objects that belong to no
 * extension.
 *
 * No locks of its own, no crash points.
 */
#include "postgres.h"

#include "access/transam.h"
#include "catalog/pg_am.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "common/zundo.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/varlena.h"

PG_FUNCTION_INFO_V1(zbtree_mirror_opclass);
PGDLLEXPORT Datum zbtree_mirror_opclass(PG_FUNCTION_ARGS);

/*
 * A query that returns, in order, the commands that create the parts of the
 * operator family of btree class $1 that zbtree's family of the same name does
 * not have. Names are qualified for the search path that zbtree_mirror_opclass
 * sets. A member of zbtree's family counts as present if it has the same number
 * and types; its operator or function is not compared. With $2 false, objects
 * that users have created are left out.
 */
static const char commands[] =
"WITH b AS (\n"
"	SELECT f.*, n.nspname, am.oid AS zbtree, z.oid AS mirror,\n"
"		quote_ident(n.nspname) || '.' || quote_ident(f.opfname) || ' USING zbtree' AS name\n"
"	FROM pg_opclass c JOIN pg_opfamily f ON f.oid = c.opcfamily\n"
"	JOIN pg_namespace n ON n.oid = f.opfnamespace JOIN pg_am am ON am.amname = 'zbtree'\n"
"	LEFT JOIN pg_opfamily z ON z.opfname = f.opfname\n"
"		AND z.opfnamespace = f.opfnamespace AND z.opfmethod = am.oid\n"
"	WHERE c.oid = $1),\n"
"members AS (\n"
"	SELECT format('OPERATOR %s %s.%s (%s, %s)', o.amopstrategy, quote_ident(n.nspname),\n"
"		p.oprname, o.amoplefttype::regtype, o.amoprighttype::regtype) AS member, 1 AS kind,\n"
"		o.amoplefttype AS l, o.amoprighttype AS r, o.amopstrategy AS number\n"
"	FROM b JOIN pg_amop o ON o.amopfamily = b.oid JOIN pg_operator p ON p.oid = o.amopopr\n"
"	JOIN pg_namespace n ON n.oid = p.oprnamespace\n"
"	WHERE o.amoppurpose = 's' AND ($2 OR o.oid < 16384)\n"
"		AND NOT EXISTS (SELECT FROM pg_amop m WHERE m.amopfamily = b.mirror\n"
"			AND m.amoplefttype = o.amoplefttype AND m.amoprighttype = o.amoprighttype\n"
"			AND m.amopstrategy = o.amopstrategy)\n"
"	UNION ALL\n"
"	SELECT format('FUNCTION %s (%s, %s) %s', o.amprocnum, o.amproclefttype::regtype,\n"
"		o.amprocrighttype::regtype, o.amproc::regprocedure), 2,\n"
"		o.amproclefttype, o.amprocrighttype, o.amprocnum\n"
"	FROM b JOIN pg_amproc o ON o.amprocfamily = b.oid\n"
"	WHERE o.amprocnum <> 4 AND ($2 OR o.oid < 16384)\n"
"		AND NOT EXISTS (SELECT FROM pg_amproc m WHERE m.amprocfamily = b.mirror\n"
"			AND m.amproclefttype = o.amproclefttype\n"
"			AND m.amprocrighttype = o.amprocrighttype AND m.amprocnum = o.amprocnum))\n"
"SELECT command FROM (\n"
"	SELECT 1 AS step, 0::bigint AS place, 'CREATE OPERATOR FAMILY ' || name AS command\n"
"	FROM b WHERE mirror IS NULL\n"
"	UNION ALL\n"
"	SELECT 2, 0, 'ALTER OPERATOR FAMILY ' || name || ' ADD '\n"
"		|| string_agg(member, ', ' ORDER BY kind, l, r, number)\n"
"	FROM b, members GROUP BY name\n"
"	UNION ALL\n"
"	SELECT 3, c.oid::bigint, format('CREATE OPERATOR CLASS %s.%s %s FOR TYPE %s'\n"
"		' USING zbtree FAMILY %s.%s AS STORAGE %s', quote_ident(n.nspname),\n"
"		quote_ident(c.opcname), CASE WHEN c.opcdefault THEN 'DEFAULT' END,\n"
"		c.opcintype::regtype, quote_ident(b.nspname), quote_ident(b.opfname),\n"
"		c.opcintype::regtype)\n"
"	FROM b JOIN pg_opclass c ON c.opcfamily = b.oid\n"
"	JOIN pg_namespace n ON n.oid = c.opcnamespace\n"
"	WHERE ($2 OR c.oid < 16384)\n"
"		AND NOT EXISTS (SELECT FROM pg_opclass m WHERE m.opcmethod = b.zbtree\n"
"		AND m.opcname = c.opcname AND m.opcnamespace = c.opcnamespace)) s\n"
"ORDER BY step, place";

/*
 * Creates the missing parts of zbtree's counterpart of the family of this
 * btree operator class. Returns the number of commands that it ran. On entry
 * SPI is connected. CREATE EXTENSION skips the objects of users, because what
 * it creates is part of the extension. Raises an error if the
 * family cannot be read.
 */
static int
mirror(Oid opclass)
{
	bool		of_users = !creating_extension || opclass >= FirstNormalObjectId;
	Oid			types[] = {OIDOID, BOOLOID};
	Datum		values[] = {ObjectIdGetDatum(opclass), BoolGetDatum(of_users)};
	SPITupleTable *table;
	int			n;

	Assert(OidIsValid(opclass));
	if (SPI_execute_with_args(commands, 2, types, values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "cannot read the operator family of class %u", opclass);
	table = SPI_tuptable;
	n = SPI_processed;
	for (int i = 0; i < n; i++)
	{
		char	   *command = SPI_getvalue(table->vals[i], table->tupdesc, 1);

		if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
			elog(ERROR, "unexpected result of \"%s\"", command);
	}
	SPI_freetuptable(table);
	return n;
}

/*
 * zundo.mirror_opclass(text): creates for zbtree the operator family of this
 * btree operator class and the family's classes, as far as they are missing.
 * Returns the number of objects that were created or extended. Raises an error
 * if the class does not exist. For superusers. CREATE EXTENSION calls it, and
 * so fails if the library was not preloaded.
 */
Datum
zbtree_mirror_opclass(PG_FUNCTION_ARGS)
{
	text	   *name = PG_GETARG_TEXT_PP(0);
	Oid			opclass;
	int			n;
	int			save;

	zundo_require_preload();
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be superuser to mirror an operator class")));
	opclass = get_opclass_oid(BTREE_AM_OID, textToQualifiedNameList(name), false);
	save = NewGUCNestLevel();
	/* the query and the commands that it returns rely on this path */
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	n = mirror(opclass);
	SPI_finish();
	AtEOXact_GUC(false, save);
	PG_RETURN_INT32(n);
}
