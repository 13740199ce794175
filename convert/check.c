/*
 * convert/check.c - which tables can be converted, and by which key.
 *
 * Locks: AccessShareLock on indexes. Crash points: none.
 */
#include "postgres.h"

#include <sys/statvfs.h>

#include "access/genam.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/pg_am.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_tablespace.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "common/compat_commands.h"
#include "convert/convert_internal.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(zundo_bytes_free);

/*
 * zundo.bytes_free(tablespace): returns how much space is free on the disk of
 * the tablespace, or of the database's for 0; null if the user lacks the rights
 * for pg_tablespace_size, or it is not known.
 */
Datum
zundo_bytes_free(PG_FUNCTION_ARGS)
{
	Oid			tablespace = PG_GETARG_OID(0);
	struct statvfs disk;

	if (!OidIsValid(tablespace))
		tablespace = MyDatabaseTableSpace;
	/* the functions below raise errors */
	if (tablespace == GLOBALTABLESPACE_OID ||
		!SearchSysCacheExists1(TABLESPACEOID, ObjectIdGetDatum(tablespace)))
		PG_RETURN_NULL();
	if (tablespace != MyDatabaseTableSpace &&
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) &&
		!DatumGetBool(DirectFunctionCall2(has_tablespace_privilege_id,
										  ObjectIdGetDatum(tablespace),
										  CStringGetTextDatum("CREATE"))))
		PG_RETURN_NULL();
	if (statvfs(GetDatabasePath(MyDatabaseId, tablespace), &disk) != 0)
		PG_RETURN_NULL();
	PG_RETURN_INT64((int64) disk.f_bavail * (int64) disk.f_frsize);
}

/*
 * Raises the error that the table cannot be converted, or appends the sentences
 * to those why it cannot, if the caller wants all of them.
 */
static void
refuse(const ZConversion *c, const char *table, const char *why, const char *hint)
{
	if (c->refusals != NULL)
		appendStringInfo(c->refusals, "%s%s%s%s", c->refusals->len > 0 ? " " : "", why,
						 hint ? " " : "", hint ? hint : "");
	else
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("table \"%s\" cannot be converted online", table),
				 errdetail_internal("%s", why),
				 hint ? errhint("%s", hint) : 0));
}

/* Returns whether an expression or predicate of the index names a whole row. */
static bool
names_whole_row(Relation index)
{
	Bitmapset  *columns = NULL;

	pull_varattnos((Node *) RelationGetIndexExpressions(index), 1, &columns);
	pull_varattnos((Node *) RelationGetIndexPredicate(index), 1, &columns);
	return bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber, columns);
}

/*
 * If the index can tell rows apart by columns that are never null, notes its
 * columns and the equality of each, unless another index has been noted.
 */
static void
take_key(ZConversion *c, Relation rel, Relation index)
{
	Form_pg_index form = index->rd_index;
	List	   *keys = NIL;
	List	   *operators = NIL;
	List	   *collations = NIL;

	if (c->keys != NIL || !form->indisunique || !form->indisvalid || form->indisexclusion ||
		(index->rd_rel->relam != BTREE_AM_OID &&
		 index->rd_rel->relam != get_index_am_oid("zbtree", true)) ||
		RelationGetIndexExpressions(index) != NIL || RelationGetIndexPredicate(index) != NIL)
		return;
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		AttrNumber	attnum = form->indkey.values[i];
		Form_pg_attribute column;
		Oid			operator;

		if (attnum <= 0)
			return;
		column = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
		if (!zc_never_null(RelationGetDescr(rel), attnum) || column->attgenerated == 'v')
			return;
		operator = get_opfamily_member(index->rd_opfamily[i], column->atttypid, column->atttypid,
									   BTEqualStrategyNumber);
		if (!OidIsValid(operator))
			operator = get_opfamily_member(index->rd_opfamily[i], index->rd_opcintype[i],
										   index->rd_opcintype[i], BTEqualStrategyNumber);
		if (!OidIsValid(operator))
			return;
		keys = lappend_int(keys, attnum);
		operators = lappend_oid(operators, operator);
		collations = lappend_oid(collations, index->rd_indcollation[i] == column->attcollation ?
								 InvalidOid : index->rd_indcollation[i]);
	}
	c->keys = keys;
	c->operators = operators;
	c->collations = collations;
}

/*
 * Returns whether zundo.set_index_method may have left the invalid index, which
 * a plan drops first.
 */
static bool
may_be_left(const ZConversion *c, Relation index)
{
	const char *name = RelationGetRelationName(index);

	return c->refusals != NULL && strncmp(name, "zundo_", 6) == 0 &&
		strncmp(name + 6 + strspn(name + 6, "0123456789"), "_twin", 5) == 0;
}

/*
 * Checks the indexes, and finds a key among them: the primary key, or else the
 * first that will do.
 */
static void
check_indexes(ZConversion *c, Relation rel)
{
	Oid			zbtree = get_index_am_oid("zbtree", true);
	const char *table = RelationGetRelationName(rel);
	ListCell   *lc;

	c->indexes = RelationGetIndexList(rel);
	for (int primary = 1; primary >= 0; primary--)
	{
		foreach(lc, c->indexes)
		{
			Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

			if (index->rd_index->indisprimary != (primary == 1))
			{
				index_close(index, AccessShareLock);
				continue;
			}
			if ((!index->rd_index->indisvalid || !index->rd_index->indisready ||
				 !index->rd_index->indislive) && !may_be_left(c, index))
				refuse(c, table,
					   psprintf("Index \"%s\" is not valid.", RelationGetRelationName(index)),
					   "Drop or rebuild the index first.");
			if (index->rd_rel->relam == zbtree && c->method == HEAP_TABLE_AM_OID &&
				(c->refusals == NULL || index->rd_rel->relispartition))
				refuse(c, table,
					   psprintf("Index \"%s\" is a zbtree index, which heap tables cannot have.",
								RelationGetRelationName(index)),
					   index->rd_rel->relispartition ?
					   "First drop the partitioned index, or the constraint." :
					   "First make it btree with zundo.set_index_method.");
			if (names_whole_row(index))
				refuse(c, table,
					   psprintf("Index \"%s\" has an expression on the whole row.",
								RelationGetRelationName(index)),
					   "Drop the index first.");
			take_key(c, rel, index);
			index_close(index, AccessShareLock);
		}
	}
	if (c->keys == NIL)
		refuse(c, table, "It has no unique index on columns that are NOT NULL.",
			   "Add a primary key, or a NOT NULL column with a unique index.");
}

/* zconvert_check_table: See convert_internal.h. */
void
zconvert_check_table(const ZConversion *c)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(c->table));
	Form_pg_class form;
	const char *name;
	bool		partitioned;

	if (!HeapTupleIsValid(tuple))
		zconvert_report_missing(c->table);
	form = (Form_pg_class) GETSTRUCT(tuple);
	name = NameStr(form->relname);
	partitioned = form->relkind == RELKIND_PARTITIONED_TABLE;
	if (!zc_owns_relation(c->table, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
	if (partitioned && !ZC_PARTITIONED_TABLE_HAS_METHOD)
		refuse(c, name, "It is a partitioned table.", "Convert its partitions.");
	else if ((form->relkind != RELKIND_RELATION && !partitioned) ||
			 IsSystemClass(c->table, form) || form->relisshared)
		refuse(c, name, "It is not an ordinary table.", NULL);
	else if (form->relpersistence != RELPERSISTENCE_PERMANENT)
		refuse(c, name, "It is a temporary or unlogged table.",
			   "Use ALTER TABLE ... SET ACCESS METHOD.");
	else if (OidIsValid(getExtensionOfObject(RelationRelationId, c->table)))
		refuse(c, name, "It belongs to an extension.", NULL);
	else if (form->relnamespace == zconvert_schema())
		refuse(c, name, "It is what an attempt to convert a table has left.", NULL);
	else if (!partitioned && form->relam != HEAP_TABLE_AM_OID &&
			 form->relam != get_table_am_oid("zheap", false))
		refuse(c, name, "Its access method is neither heap nor zheap.", NULL);
	ReleaseSysCache(tuple);
}

/* zconvert_check_contents: See convert_internal.h. */
void
zconvert_check_contents(ZConversion *c, Relation rel)
{
	ZConvertCaller caller;

	if (RelationIsUsedAsCatalogTable(rel))
		refuse(c, RelationGetRelationName(rel), "It has user_catalog_table set.", NULL);
	c->owner = rel->rd_rel->relowner;
	if (pg_class_aclcheck(c->table, c->owner, ACL_SELECT) != ACLCHECK_OK ||
		!zc_may_use_schema(RelationGetNamespace(rel), c->owner) ||
		!zc_may_use_schema(zconvert_schema(), c->owner))
		refuse(c, RelationGetRelationName(rel), "Its owner has no right to read it.",
			   "Grant the owner SELECT on the table, and USAGE on its schema and on zundo.");
	caller = zconvert_become_owner(c);
	check_indexes(c, rel);
	zconvert_leave_owner(&caller);
}
