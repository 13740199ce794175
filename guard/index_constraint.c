/*
 * guard/index_constraint.c - constraints whose index is zbtree, in commands
 * that accept only btree's for them, or would make it btree.
 *
 * - ALTER TABLE ... ADD CONSTRAINT ... USING INDEX: the server wants a btree
 *   index, since a dump has no other way to make the constraint. zbtree has the
 *   storage parameter access_method (index_method.c). So we make the server's
 *   checks, set the parameter, and hand over what the server's analysis would
 *   have made of the command.
 * - ALTER TABLE ... ALTER COLUMN ... TYPE, SET EXPRESSION: the server makes the
 *   constraint again from its definition, which cannot name the access method,
 *   but a unique index from one that does. So the index has no constraint when
 *   the command begins, and the new one gets an equal one when it is made: what
 *   follows in the command, and its event triggers, find it there. If the table
 *   is partitioned, the server then gives the partitions' indexes constraints
 *   as well, which are made parts of that one.
 *
 * Locks: AccessExclusiveLock on the tables and the indexes, as the commands
 * themselves. Crash points: none.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_inherits.h"
#include "commands/comment.h"
#include "commands/defrem.h"
#include "commands/tablecmds.h"
#include "common/compat_nbtree.h"
#include "guard/heap_readers.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* A constraint that its index has lost for the time of a command. */
typedef struct Detached
{
	Oid			table;
	char	   *name;			/* its own and the index's */
	char		type;
	char	   *comment;		/* or NULL */
	List	   *columns;		/* the index's, attribute numbers */
	bool		attached;		/* an index has it again */
} Detached;

/* Returns whether the relation is a zbtree index. */
static bool
is_zbtree(Oid index)
{
	char	   *am = zaccess_method_name(index);

	return am != NULL && strcmp(am, "zbtree") == 0;
}

/*
 * Locks the table of an ALTER TABLE as the server will, and qualifies its name
 * in the statement, so that the server finds the same one. Returns its OID, or
 * InvalidOid if there is none.
 */
static Oid
lock_table(AlterTableStmt *stmt)
{
	Oid			reloid;

	PreventCommandIfReadOnly("ALTER TABLE");
	reloid = RangeVarGetRelidExtended(stmt->relation, AccessExclusiveLock, RVR_MISSING_OK,
									  RangeVarCallbackOwnsRelation, NULL);
	if (OidIsValid(reloid) && stmt->relation->schemaname == NULL)
		stmt->relation->schemaname = get_namespace_name(get_rel_namespace(reloid));
	return reloid;
}

/*
 * Returns whether the command changes the type, or the expression, of a column.
 */
static bool
changes_column(const AlterTableCmd *cmd)
{
	return cmd->subtype == AT_AlterColumnType || zc_sets_expression(cmd);
}

/* Returns whether the column is one of the index's. */
static bool
has_column(Relation index, AttrNumber attnum)
{
	for (int i = 0; attnum != InvalidAttrNumber && i < index->rd_index->indnatts; i++)
	{
		if (index->rd_index->indkey.values[i] == attnum)
			return true;
	}
	return false;
}

/* ---- USING INDEX ---- */

/*
 * Returns whether the index goes when the column of the table is dropped, by
 * CASCADE also because a generated column goes.
 */
static bool
goes_with(Relation table, Relation index, AttrNumber attnum, DropBehavior behavior)
{
	const int16 *columns = index->rd_index->indkey.values;
	Bitmapset  *used = NULL;

	for (int i = 0; behavior == DROP_CASCADE && i < index->rd_index->indnatts; i++)
	{
		if (columns[i] > 0 &&
			TupleDescAttr(RelationGetDescr(table), columns[i] - 1)->attgenerated != '\0')
			pull_varattnos(build_column_default(table, columns[i]), 1, &used);
	}
	return has_column(index, attnum) ||
		bms_is_member(attnum - FirstLowInvalidHeapAttributeNumber, used);
}

/* Sets the storage parameter of the index, which is locked. */
static void
set_parameter(Oid index)
{
	Relation	catalog = table_open(RelationRelationId, RowExclusiveLock);
	HeapTuple	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(index));
	Datum		values[Natts_pg_class] = {0};
	bool		nulls[Natts_pg_class] = {0};
	bool		replaced[Natts_pg_class] = {0};
	int			i = Anum_pg_class_reloptions - 1;
	bool		null;
	Datum		options;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for relation %u", index);
	options = heap_getattr(tuple, i + 1, RelationGetDescr(catalog), &null);
	values[i] = transformRelOptions(null ? (Datum) 0 : options,
									list_make1(makeDefElem("access_method",
														   (Node *) makeString("zbtree"), -1)),
									NULL, NULL, false, false);
	replaced[i] = true;
	tuple = heap_modify_tuple(tuple, RelationGetDescr(catalog), values, nulls, replaced);
	CatalogTupleUpdate(catalog, &tuple->t_self, tuple);
	InvokeObjectPostAlterHook(RelationRelationId, index, 0);
	table_close(catalog, RowExclusiveLock);
	CommandCounterIncrement();
}

/*
 * Raises the server's error if the index has a key column for which a dump of
 * the constraint, at this position, would not make the same index.
 */
static void
check_sorting(Relation table, Relation index, int position)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		Oid			oid = RelationGetRelid(index);
		Oid			type;
		int32		typmod;
		Oid			collation;

		get_atttypetypmodcoll(RelationGetRelid(table), index->rd_index->indkey.values[i], &type,
							  &typmod, &collation);
		if (get_index_column_opclass(oid, i + 1) == GetDefaultOpClass(type, index->rd_rel->relam) &&
			collation == index->rd_indcollation[i] && index->rd_indoption[i] == 0 &&
			get_attoptions(oid, i + 1) == (Datum) 0)
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("index \"%s\" column number %d does not have default sorting behavior",
						RelationGetRelationName(index), i + 1),
				 errdetail("Cannot create a primary key or unique constraint using such an "
						   "index."),
				 errposition(position)));
	}
}

/*
 * Raises the server's error if the index, which has no expressions, has a key
 * column twice: such a constraint cannot be made.
 */
static void
check_columns(Relation index, bool primary, int position)
{
	const int16 *columns = index->rd_index->indkey.values;

	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		for (int j = 0; j < i; j++)
		{
			if (columns[i] == columns[j])
				ereport(ERROR,
						(errcode(ERRCODE_DUPLICATE_COLUMN),
						 errmsg("column \"%s\" appears twice in %s constraint",
								get_attname(index->rd_index->indrelid, columns[i], false),
								primary ? "primary key" : "unique"),
						 errposition(position)));
		}
	}
}

/*
 * Returns what is left of the command that adds the constraint, a list of
 * commands, for the zbtree index of the table, after the checks that the server
 * has for btree's, whose errors name the position. NIL if it is the server that
 * refuses the index.
 */
static List *
commands_for(Relation table, Relation index, const Constraint *constraint, int position, List *cmds)
{
	ListCell   *lc;
	Form_pg_index form = index->rd_index;
	AlterTableCmd *cmd;
	IndexStmt  *stmt;
	List	   *result = NIL;

	if (!form->indisvalid || !form->indisunique || RelationGetIndexExpressions(index) != NIL ||
		RelationGetIndexPredicate(index) != NIL ||
		OidIsValid(get_index_constraint(RelationGetRelid(index))))
		return NIL;
	if (constraint->deferrable)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("zbtree index \"%s\" cannot belong to a deferrable constraint",
						RelationGetRelationName(index)),
				 errhint("Make the index btree first, with zundo.set_index_method()."),
				 errposition(position)));
	foreach(lc, cmds)
	{
		AlterTableCmd *drop = lfirst_node(AlterTableCmd, lc);

		/* the index goes with it, before the constraint is made */
		if (drop->subtype == AT_DropColumn &&
			goes_with(table, index, get_attnum(RelationGetRelid(table), drop->name),
					  drop->behavior))
			return NIL;
	}
	check_sorting(table, index, position);
	check_columns(index, constraint->contype == CONSTR_PRIMARY, position);
	foreach(lc, cmds)
	{
		/* the index may be another one when the constraint is made */
		if (changes_column(lfirst_node(AlterTableCmd, lc)))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("zbtree index \"%s\" cannot become the index of a constraint in a "
							"command that changes a column", RelationGetRelationName(index)),
					 errhint("Add the constraint with another command."),
					 errposition(position)));
	}

	for (int i = 0; constraint->contype == CONSTR_PRIMARY && i < form->indnkeyatts; i++)
	{
		if (form->indkey.values[i] < 0)
			continue;
		cmd = makeNode(AlterTableCmd);
		cmd->subtype = AT_AddConstraint;
		cmd->def = zc_not_null_constraint(get_attname(RelationGetRelid(table),
													  form->indkey.values[i], false));
		cmd->behavior = DROP_RESTRICT;
		result = lappend(result, cmd);
	}
	stmt = makeNode(IndexStmt);
	stmt->indexOid = RelationGetRelid(index);
	stmt->idxname = constraint->conname;
	stmt->unique = true;
	stmt->primary = constraint->contype == CONSTR_PRIMARY;
	stmt->isconstraint = true;
	cmd = makeNode(AlterTableCmd);
	cmd->subtype = AT_AddIndexConstraint;
	cmd->def = (Node *) stmt;
	cmd->behavior = DROP_RESTRICT;
	return lappend(result, cmd);
}

/*
 * Returns the commands instead of one that adds a constraint with an index, or
 * NIL if there are none.
 */
static List *
replace_command(AlterTableStmt *stmt, Oid reloid, const Constraint *constraint, int position)
{
	Oid			oid = get_relname_relid(constraint->indexname, get_rel_namespace(reloid));
	Relation	table;
	Relation	index;
	List	   *result;

	if (!is_zbtree(oid))
		return NIL;
	reloid = lock_table(stmt);
	oid = OidIsValid(reloid) ?
		get_relname_relid(constraint->indexname, get_rel_namespace(reloid)) : InvalidOid;
	if (!is_zbtree(oid) || IndexGetRelation(oid, true) != reloid)
		return NIL;
	table = table_open(reloid, NoLock);
	index = index_open(oid, AccessExclusiveLock);
	result = commands_for(table, index, constraint, position, stmt->cmds);
	index_close(index, NoLock);
	table_close(table, NoLock);
	if (result != NIL)
		set_parameter(oid);
	return result;
}

/* zconstraint_use_index: See heap_readers.h. */
void
zconstraint_use_index(AlterTableStmt *stmt, Oid reloid, const char *query_string)
{
	List	   *cmds = NIL;
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		Constraint *constraint = cmd->subtype == AT_AddConstraint && cmd->def != NULL &&
		IsA(cmd->def, Constraint) ? (Constraint *) cmd->def : NULL;
		List	   *replaced = NIL;

		/* of two constraints for one index, the server refuses the second */
		if (constraint != NULL && constraint->indexname != NULL &&
			!list_member(names, makeString(constraint->indexname)))
		{
			int			position = 0;

			if (query_string != NULL && constraint->location >= 0)
				position = pg_mbstrlen_with_len(query_string, constraint->location) + 1;
			replaced = replace_command(stmt, reloid, constraint, position);
			names = lappend(names, makeString(constraint->indexname));
		}
		cmds = replaced ? list_concat(cmds, replaced) : lappend(cmds, cmd);
	}
	stmt->cmds = cmds;
}

/* ---- ALTER COLUMN ---- */

/*
 * Returns whether the commands for the table, or one that it inherits, change a
 * column of the index, and drop none of them, with which the index would go. A
 * table that inherits, and is no partition, may keep a column that its parent
 * drops: for these we do not ask, and zconstraint_attach sees what has become
 * of the columns.
 */
static bool
changes_index(Oid reloid, bool inherits, Relation index, List *cmds)
{
	bool		keeps = inherits && !get_rel_relispartition(reloid);
	bool		result = false;
	ListCell   *lc;

	foreach(lc, cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		bool		drops = cmd->subtype == AT_DropColumn && !keeps;

		if (!(drops || changes_column(cmd)) || !has_column(index, get_attnum(reloid, cmd->name)))
			continue;
		if (drops)
			return false;
		result = true;
	}
	return result;
}

/* Returns whether the commands for the table drop the index's constraint. */
static bool
drops_constraint(Oid reloid, List *cmds, Oid index)
{
	char	   *name;
	ListCell   *lc;

	if (IndexGetRelation(index, true) != reloid)
		return false;
	name = get_constraint_name(get_index_constraint(index));
	foreach(lc, cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_DropConstraint && name != NULL && strcmp(cmd->name, name) == 0)
			return true;
	}
	return false;
}

/*
 * Makes the index depend on its columns instead of its constraint. Sets table,
 * type and columns of *detached.
 */
static void
make_independent(Oid oid, Detached *detached)
{
	Relation	index = index_open(oid, NoLock);
	Form_pg_index form = index->rd_index;
	ObjectAddress self;
	ObjectAddress object;

	detached->table = form->indrelid;
	detached->type = form->indisprimary ? CONSTRAINT_PRIMARY : CONSTRAINT_UNIQUE;
	detached->columns = NIL;
	ObjectAddressSet(self, RelationRelationId, oid);
	deleteDependencyRecordsForClass(RelationRelationId, oid, ConstraintRelationId,
									DEPENDENCY_INTERNAL);
	for (int i = 0; i < form->indnatts; i++)
	{
		if (form->indkey.values[i] < 0)
			continue;
		detached->columns = lappend_int(detached->columns, form->indkey.values[i]);
		ObjectAddressSubSet(object, RelationRelationId, form->indrelid, form->indkey.values[i]);
		recordDependencyOn(&self, &object, DEPENDENCY_AUTO);
	}
	index_close(index, NoLock);
}

/*
 * Takes the constraint from the index, and those that are parts of it from the
 * indexes of partitions. Returns what it was.
 */
static Detached *
detach(Oid oid)
{
	Oid			constraint = get_index_constraint(oid);
	Detached   *result = palloc(sizeof(Detached));
	Detached	part;
	List	   *parts;
	ListCell   *lc;
	ObjectAddress object;

	result->name = get_constraint_name(constraint);
	result->comment = GetComment(constraint, ConstraintRelationId, 0);
	result->attached = false;
	parts = find_all_inheritors(oid, AccessExclusiveLock, NULL);
	foreach(lc, parts)
		make_independent(lfirst_oid(lc), lfirst_oid(lc) == oid ? result : &part);
	CommandCounterIncrement();
	ObjectAddressSet(object, ConstraintRelationId, constraint);
	performDeletion(&object, DROP_RESTRICT, PERFORM_DELETION_INTERNAL);
	CommandCounterIncrement();
	return result;
}

/*
 * Returns the zbtree indexes of constraints of which the command for the table
 * changes a column, there or in a table that inherits it, and which it does not
 * drop. Leaves out those that are parts of another one, which is either among
 * them, or the server refuses the command. Locks the tables in the mode.
 */
static List *
changed_indexes(Oid reloid, const AlterTableStmt *stmt, LOCKMODE mode)
{
	List	   *tables = stmt->relation->inh ? find_all_inheritors(reloid, NoLock, NULL) :
	list_make1_oid(reloid);
	List	   *result = NIL;
	ListCell   *lc;

	foreach(lc, tables)
	{
		Relation	rel = try_relation_open(lfirst_oid(lc), mode);
		ListCell   *li;

		if (rel == NULL)
			continue;
		foreach(li, RelationGetIndexList(rel))
		{
			Oid			oid = lfirst_oid(li);
			Relation	index;

			if (get_rel_relispartition(oid) || !is_zbtree(oid) ||
				!OidIsValid(get_index_constraint(oid)) ||
				drops_constraint(reloid, stmt->cmds, oid))
				continue;
			index = index_open(oid, mode);
			if (index->rd_index->indisunique &&
				changes_index(lfirst_oid(lc), lfirst_oid(lc) != reloid, index, stmt->cmds))
				result = lappend_oid(result, oid);
			index_close(index, mode == AccessShareLock ? mode : NoLock);
		}
		relation_close(rel, mode == AccessShareLock ? mode : NoLock);
	}
	return result;
}

/* zconstraint_detach: See heap_readers.h. */
List *
zconstraint_detach(Node *command)
{
	AlterTableStmt *stmt = (AlterTableStmt *) command;
	List	   *result = NIL;
	bool		found = false;
	Oid			reloid;
	ListCell   *lc;

	if (!IsA(command, AlterTableStmt))
		return NIL;
	foreach(lc, stmt->cmds)
		found |= changes_column(lfirst_node(AlterTableCmd, lc));
	if (!found)
		return NIL;
	reloid = RangeVarGetRelid(stmt->relation, NoLock, true);
	if (!OidIsValid(reloid) || changed_indexes(reloid, stmt, AccessShareLock) == NIL)
		return NIL;
	reloid = lock_table(stmt);
	if (!OidIsValid(reloid))
		return NIL;
	foreach(lc, changed_indexes(reloid, stmt, AccessExclusiveLock))
		result = lappend(result, detach(lfirst_oid(lc)));
	return result;
}

/* Returns whether the command has dropped one of the columns. */
static bool
lost_column(const Detached *detached)
{
	ListCell   *lc;

	foreach(lc, detached->columns)
	{
		HeapTuple	tuple = SearchSysCacheAttNum(detached->table, lfirst_int(lc));

		if (!HeapTupleIsValid(tuple))
			return true;
		ReleaseSysCache(tuple);
	}
	return false;
}

/*
 * Gives the index, and those of partitions that there are, a constraint of the
 * type, part of another one unless that is InvalidOid. Returns its OID.
 */
static Oid
add_constraint(Oid oid, Oid part_of, const char *name, char type)
{
	bool		primary = type == CONSTRAINT_PRIMARY;
	Relation	index = index_open(oid, AccessExclusiveLock);
	Relation	table = table_open(index->rd_index->indrelid, NoLock);
	IndexInfo  *info = BuildIndexInfo(index);
	ObjectAddress constraint;
	ListCell   *lc;

	if (primary && !index->rd_index->indisprimary)
		index_check_primary_key(table, info, true, NULL);
	constraint = index_constraint_create(table, oid, part_of, info, name, type,
										 INDEX_CONSTR_CREATE_UPDATE_INDEX |
										 INDEX_CONSTR_CREATE_REMOVE_OLD_DEPS |
										 (primary ? INDEX_CONSTR_CREATE_MARK_AS_PRIMARY : 0),
										 allowSystemTableMods, true);
	CommandCounterIncrement();
	index_close(index, NoLock);
	table_close(table, NoLock);
	foreach(lc, find_inheritance_children(oid, AccessExclusiveLock))
		(void) add_constraint(lfirst_oid(lc), constraint.objectId, get_rel_name(lfirst_oid(lc)),
							  type);
	return constraint.objectId;
}

/* Gives the index the constraint. */
static void
attach(Detached *detached, Oid oid)
{
	Oid			constraint = add_constraint(oid, InvalidOid, detached->name, detached->type);

	if (detached->comment != NULL)
		CreateComments(constraint, ConstraintRelationId, 0, detached->comment);
	CommandCounterIncrement();
	detached->attached = true;
}

/*
 * Makes the constraint of a partition's new index part of that of the
 * partitioned table. The server takes the latter's from the index of which it
 * makes copies, but does not know that we have added it.
 */
static void
attach_part(Oid oid)
{
	Oid			constraint = get_index_constraint(oid);
	Oid			whole = get_index_constraint(get_partition_parent(oid, false));
	HeapTuple	tuple;
	bool		is_part;

	if (!OidIsValid(constraint) || !OidIsValid(whole))
		return;
	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for constraint %u", constraint);
	is_part = OidIsValid(((Form_pg_constraint) GETSTRUCT(tuple))->conparentid);
	ReleaseSysCache(tuple);
	if (!is_part)
	{
		ConstraintSetParentConstraint(constraint, whole, IndexGetRelation(oid, false));
		CommandCounterIncrement();
	}
}

/* Returns whether the relation, just made and not visible yet, is an index. */
static bool
is_new_index(Oid oid)
{
	Relation	catalog = table_open(RelationRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;
	char		kind = '\0';

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(oid));
	scan = systable_beginscan(catalog, ClassOidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		kind = ((Form_pg_class) GETSTRUCT(tuple))->relkind;
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return kind == RELKIND_INDEX || kind == RELKIND_PARTITIONED_INDEX;
}

/*
 * zconstraint_on_access: See heap_readers.h. The server has entered the index
 * into the catalogs, and is about to make that visible and to build it.
 */
void
zconstraint_on_access(List *detached_ones, ObjectAccessType access, Oid class, Oid object,
					  int part)
{
	ListCell   *lc;

	if (access != OAT_POST_CREATE || class != RelationRelationId || part != 0 ||
		!is_new_index(object))
		return;
	CommandCounterIncrement();
	foreach(lc, detached_ones)
	{
		Detached   *detached = lfirst(lc);

		if (!detached->attached && IndexGetRelation(object, true) == detached->table &&
			strcmp(get_rel_name(object), detached->name) == 0)
			attach(detached, object);
	}
	if (get_rel_relispartition(object))
		attach_part(object);
}

/*
 * zconstraint_attach: See heap_readers.h. The server may have left an index as
 * it was, or dropped it with a column, directly or by CASCADE.
 */
void
zconstraint_attach(List *detached)
{
	ListCell   *lc;

	foreach(lc, detached)
	{
		Detached   *d = lfirst(lc);
		Oid			oid;

		if (d->attached || lost_column(d))
			continue;
		oid = get_relname_relid(d->name, get_rel_namespace(d->table));
		if (!is_zbtree(oid) || IndexGetRelation(oid, true) != d->table)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("the zbtree index of constraint \"%s\" was dropped or renamed while "
							"the command changed its columns", d->name)));
		attach(d, oid);
	}
}
