/*
 * guard/index_method.c - the access method of indexes whose command cannot name
 * it.
 *
 * The grammar has no USING for a primary key or a unique constraint, and a dump
 * does not write the access method of a constraint's index; but it writes the
 * index's storage parameters. So the parameter access_method = zbtree says that
 * such an index is zbtree, and zbtree does not build an index of a constraint
 * without it (check_parameter). pg_upgrade takes the files of indexes, and
 * would take one of zbtree for btree's otherwise.
 *
 * Called by the ProcessUtility hook in hooks.c: CREATE TABLE, and LIKE in it,
 * pass their indexes to the hook as commands. Partitions get the parameters of
 * the partitioned table's index from the server.
 *
 * Builds for tests can make zbtree indexes where a command says btree
 * (zundo.swap_btree), so that the server's own suites run with zbtree.
 *
 * Locks: AccessShareLock on tables and indexes while check_type reads what
 * they are. Crash points: none.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/tableam.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/defrem.h"
#include "common/compat_nbtree.h"
#include "common/zundo.h"
#include "guard/heap_readers.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "zbtree/zbtree.h"

static const char parameter[] = "access_method";

/* Returns whether the relation's access method has this name. */
static bool
has_method(Oid reloid, const char *name)
{
	char	   *am = zaccess_method_name(reloid);

	return am != NULL && strcmp(am, name) == 0;
}

/* ---- checks ---- */

/*
 * Raises ERRCODE_FEATURE_NOT_SUPPORTED if the index that is to become that of a
 * constraint (USING INDEX) is a zbtree index: the server accepts btree's only.
 */
static void
check_using_index(Oid reloid, const Constraint *constraint)
{
	if (constraint->indexname == NULL ||
		!has_method(get_relname_relid(constraint->indexname, get_rel_namespace(reloid)), "zbtree"))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("zbtree index \"%s\" cannot become the index of a constraint",
					constraint->indexname),
			 errhint("Leave the unique index without a constraint: ON CONFLICT and foreign keys "
					 "can use it. Or say ALTER TABLE ... ADD %s (...) WITH (access_method = "
					 "zbtree), which makes another index, and drop this one.",
					 constraint->contype == CONSTR_PRIMARY ? "PRIMARY KEY" : "UNIQUE")));
}

/*
 * Raises ERRCODE_FEATURE_NOT_SUPPORTED if the options of a zbtree index that
 * are to be set or reset contain the parameter.
 */
static void
check_options(Oid reloid, List *options)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (option->defnamespace == NULL && strcmp(option->defname, parameter) == 0 &&
			has_method(reloid, "zbtree"))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("storage parameter \"%s\" of index \"%s\" cannot be changed",
							parameter, get_rel_name(reloid))));
	}
}

/*
 * Returns whether the ALTER TABLE of the table also drops the constraint of the
 * index, or the one of which this is a partition's.
 */
static bool
drops_constraint(Oid reloid, List *cmds, Oid index)
{
	char	   *name;
	ListCell   *lc;

	if (get_rel_relispartition(index))
		index = llast_oid(get_partition_ancestors(index));
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
 * Raises ERRCODE_FEATURE_NOT_SUPPORTED if the column of the table, or of one
 * that inherits it, is in the zbtree index of a constraint that the commands do
 * not drop. The server would make the index again from its definition, as
 * btree's, and btree does not have the parameter.
 */
static void
check_type(Oid reloid, List *cmds, const char *column)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(reloid, NoLock, NULL))
	{
		Relation	rel = try_relation_open(lfirst_oid(lc), AccessShareLock);
		AttrNumber	attnum = rel ? get_attnum(RelationGetRelid(rel), column) : 0;
		ListCell   *li;

		if (rel == NULL)
			continue;
		foreach(li, RelationGetIndexList(rel))
		{
			Relation	index = index_open(lfirst_oid(li), AccessShareLock);
			Form_pg_index form = index->rd_index;

			for (int i = 0; form->indisunique && i < form->indnatts; i++)
			{
				Oid			constraint = form->indkey.values[i] == attnum &&
				has_method(form->indexrelid, "zbtree") ?
				get_index_constraint(form->indexrelid) : InvalidOid;

				if (OidIsValid(constraint) && !drops_constraint(reloid, cmds, form->indexrelid))
					ereport(ERROR,
							(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
							 errmsg("cannot alter column \"%s\" of the zbtree index of "
									"constraint \"%s\"",
									column, get_constraint_name(constraint)),
							 errhint("Drop the constraint, and add it again after the change.")));
			}
			index_close(index, AccessShareLock);
		}
		relation_close(rel, AccessShareLock);
	}
}

/* zindex_method_check: See heap_readers.h. */
void
zindex_method_check(Node *command)
{
	AlterTableStmt *stmt = (AlterTableStmt *) command;
	ListCell   *lc;
	Oid			reloid;

	if (!IsA(command, AlterTableStmt))
		return;
	reloid = RangeVarGetRelid(stmt->relation, NoLock, true);
	if (!OidIsValid(reloid))
		return;
	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		if (cmd->subtype == AT_AddConstraint && cmd->def != NULL && IsA(cmd->def, Constraint))
			check_using_index(reloid, castNode(Constraint, cmd->def));
		else if (cmd->subtype == AT_SetRelOptions || cmd->subtype == AT_ResetRelOptions)
			check_options(reloid, (List *) cmd->def);
		else if (cmd->subtype == AT_AlterColumnType || zc_sets_expression(cmd))
			check_type(reloid, stmt->cmds, cmd->name);
	}
}

/* ---- choice ---- */

/*
 * Returns whether the partitioned table has partitions with indexes of their
 * own; if so, sets *zheap to whether all of them are zheap tables.
 */
static bool
has_leaves(Oid reloid, bool *zheap)
{
	bool		found = false;
	ListCell   *lc;

	*zheap = true;
	foreach(lc, find_all_inheritors(reloid, NoLock, NULL))
	{
		Oid			child = lfirst_oid(lc);
		char		kind = get_rel_relkind(child);

		if (kind == RELKIND_PARTITIONED_TABLE || kind == RELKIND_FOREIGN_TABLE)
			continue;
		found = true;
		*zheap &= has_method(child, "zheap");
	}
	return found;
}

/*
 * Returns whether the relation is a zheap table, or a partitioned table that
 * may have zbtree indexes: all its partitions are zheap tables. One without
 * partitions is what its nearest ancestor with partitions is; if there is none,
 * the access method of the topmost table, if it has one, decides.
 *
 * So the answers for all tables of a tree whose index is zbtree agree. A dump
 * adds a constraint to each of them by a command of its own, and then attaches
 * the indexes to each other, which must have the same access method.
 */
static bool
has_zheap(Oid reloid)
{
	char	   *am;
	List	   *tables;
	ListCell   *lc;
	bool		zheap;

	if (get_rel_relkind(reloid) != RELKIND_PARTITIONED_TABLE)
		return has_method(reloid, "zheap");
	tables = lcons_oid(reloid, get_partition_ancestors(reloid));
	foreach(lc, tables)
	{
		if (has_leaves(lfirst_oid(lc), &zheap))
			return zheap;
	}
	am = zaccess_method_name(llast_oid(tables));
	return am == NULL || strcmp(am, "zheap") == 0;
}

/*
 * Returns whether the operator class that the server will take for the column,
 * an IndexElem or a String, is zbtree's counterpart of the one of btree. If
 * that is missing, the server may take the class of a type to which the
 * column's is binary coercible, by which other values are equal. The class of
 * an expression, or of a column that the command adds, is known only when the
 * command has been analysed, and taken for granted here.
 */
static bool
has_class(Oid reloid, Node *column, Oid zbtree)
{
	IndexElem  *element = IsA(column, IndexElem) ? (IndexElem *) column : NULL;
	char	   *name = element ? element->name : strVal(column);
	AttrNumber	attnum = name ? get_attnum(reloid, name) : InvalidAttrNumber;
	Oid			class;
	Oid			btree;

	if (element && element->opclass != NIL)
	{
		class = get_opclass_oid(zbtree, element->opclass, true);
		btree = get_opclass_oid(BTREE_AM_OID, element->opclass, true);
	}
	else if (attnum != InvalidAttrNumber)
	{
		class = GetDefaultOpClass(get_atttype(reloid, attnum), zbtree);
		btree = GetDefaultOpClass(get_atttype(reloid, attnum), BTREE_AM_OID);
	}
	else
		return true;
	return OidIsValid(class) &&
		(!OidIsValid(btree) || zbtree_class_for(btree, zbtree, true) == class);
}

/*
 * Returns why no zbtree index of the table can have these columns (IndexElem or
 * String), or NULL if one can.
 */
static const char *
obstacle(Oid reloid, bool unique, bool deferrable, List *columns)
{
	Oid			zbtree = get_index_am_oid("zbtree", true);
	ListCell   *lc;

	if (!OidIsValid(zbtree))
		return "Extension zundo is not installed in this database.";
	if (unique && !ZC_UNIQUE_BY_ANY_BTREE)
		return "Unique indexes cannot be zbtree before PostgreSQL 18.";
	if (!has_zheap(reloid))
		return "The table, or a partition of it, is not a zheap table.";
	if (deferrable)
		return "The constraint is deferrable.";
	foreach(lc, columns)
	{
		if (!has_class(reloid, (Node *) lfirst(lc), zbtree))
			return "Access method \"zbtree\" does not have an operator class of a column.";
	}
	return NULL;
}

/* Returns the place of the parameter in the options, if it asks for zbtree. */
static DefElem *
find_parameter(List *options)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (option->defnamespace == NULL && strcmp(option->defname, parameter) == 0 &&
			option->arg != NULL && pg_strcasecmp(defGetString(option), "zbtree") == 0)
			return option;
	}
	return NULL;
}

/*
 * Returns the access method for an index whose options contain the parameter.
 * If that is btree, takes the parameter out of the options, with a NOTICE.
 * pg_upgrade gets an error (ERRCODE_FEATURE_NOT_SUPPORTED), because the file
 * that it has for the index is zbtree's.
 */
static char *
choose(Oid reloid, bool unique, bool deferrable, List *columns, List **options)
{
	const char *why = obstacle(reloid, unique, deferrable, columns);

	if (why == NULL)
		return pstrdup("zbtree");
	ereport(IsBinaryUpgrade ? ERROR : NOTICE,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("an index of table \"%s\" will use access method \"btree\" instead of "
					"\"zbtree\"", get_rel_name(reloid)),
			 errdetail_internal("%s", why)));
	*options = list_delete_ptr(*options, find_parameter(*options));
	return pstrdup("btree");
}

/*
 * Sets the access method of an index that CREATE INDEX or CREATE TABLE makes.
 */
static void
choose_for_index(Oid reloid, IndexStmt *stmt)
{
	if (find_parameter(stmt->options) && stmt->excludeOpNames == NIL &&
		(strcmp(stmt->accessMethod, "btree") == 0 || strcmp(stmt->accessMethod, "zbtree") == 0))
		stmt->accessMethod = choose(reloid, stmt->unique, stmt->deferrable, stmt->indexParams,
									&stmt->options);
}

/* Sets the access method of the index of a constraint that ALTER TABLE adds. */
static void
choose_for_constraint(Oid reloid, Constraint *constraint, bool deferrable)
{
	if ((constraint->contype == CONSTR_PRIMARY || constraint->contype == CONSTR_UNIQUE) &&
		find_parameter(constraint->options))
		constraint->access_method = choose(reloid, true, deferrable, constraint->keys,
										   &constraint->options);
}

/*
 * Returns whether the constraint of a new column at this place of the list is
 * deferrable: what stands between it and the next constraint says so.
 */
static bool
is_deferrable(List *constraints, ListCell *place)
{
	ListCell   *lc;

	for_each_cell(lc, constraints, lnext(constraints, place))
	{
		ConstrType	type = lfirst_node(Constraint, lc)->contype;

		if (type == CONSTR_ATTR_DEFERRABLE || type == CONSTR_ATTR_DEFERRED)
			return true;
		if (type < CONSTR_ATTR_DEFERRABLE)
			break;
	}
	return false;
}

/*
 * Sets the access methods for all constraints that ALTER TABLE adds. The server
 * executes what it makes of them without calling the hook.
 */
static void
choose_for_table(Oid reloid, AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		List	   *constraints;
		ListCell   *l;

		if (cmd->def == NULL)
			continue;
		if (IsA(cmd->def, Constraint))
			choose_for_constraint(reloid, (Constraint *) cmd->def,
								  ((Constraint *) cmd->def)->deferrable);
		constraints = IsA(cmd->def, ColumnDef) ? ((ColumnDef *) cmd->def)->constraints : NIL;
		foreach(l, constraints)
			choose_for_constraint(reloid, lfirst_node(Constraint, l),
								  is_deferrable(constraints, l));
	}
}

#ifdef ZUNDO_TESTING

/*
 * Returns whether the relation is a zheap table, or a partitioned table whose
 * partitions will be zheap tables unless they say otherwise.
 */
static bool
defaults_to_zheap(Oid reloid)
{
	char	   *am = zaccess_method_name(reloid);

	if (am == NULL && get_rel_relkind(reloid) == RELKIND_PARTITIONED_TABLE)
		am = default_table_access_method;
	return am != NULL && strcmp(am, "zheap") == 0;
}

/*
 * Sets the access method of a partitioned table to zheap before the command
 * merges or splits partitions. Without one the new partitions are heap tables,
 * whatever default_table_access_method is, and cannot have the table's zbtree
 * indexes.
 */
static void
swap_partitions(Oid reloid, AlterTableStmt *stmt)
{
	AlterTableCmd *cmd;

	if (!zc_moves_partitions((Node *) stmt) ||
		get_rel_relkind(reloid) != RELKIND_PARTITIONED_TABLE || !defaults_to_zheap(reloid))
		return;
	cmd = makeNode(AlterTableCmd);
	cmd->subtype = AT_SetAccessMethod;
	cmd->name = pstrdup("zheap");
	stmt->cmds = lcons(cmd, stmt->cmds);
}

/* Makes the index zbtree instead of btree if it can be and is not unique. */
static void
swap_index(Oid reloid, IndexStmt *stmt)
{
	Oid			zbtree = get_index_am_oid("zbtree", true);
	ListCell   *lc;

	if (strcmp(stmt->accessMethod, "btree") != 0 || stmt->unique ||
		stmt->excludeOpNames != NIL || !OidIsValid(zbtree) || !defaults_to_zheap(reloid))
		return;
	foreach(lc, stmt->indexParams)
	{
		if (!has_class(reloid, (Node *) lfirst(lc), zbtree))
			return;
	}
	stmt->accessMethod = pstrdup("zbtree");
}

#else
#define swap_partitions(reloid, stmt) ((void) 0)
#define swap_index(reloid, stmt) ((void) 0)
#endif

/* zindex_method_choose: See heap_readers.h. */
PlannedStmt *
zindex_method_choose(PlannedStmt *pstmt)
{
	Node	   *command = pstmt->utilityStmt;
	Oid			reloid;

	if (!IsA(command, IndexStmt) && !IsA(command, AlterTableStmt))
		return pstmt;
	reloid = RangeVarGetRelid(IsA(command, IndexStmt) ? ((IndexStmt *) command)->relation :
							  ((AlterTableStmt *) command)->relation, NoLock, true);
	if (!OidIsValid(reloid))
		return pstmt;
	pstmt = copyObject(pstmt);
	command = pstmt->utilityStmt;
	if (IsA(command, IndexStmt))
	{
		choose_for_index(reloid, (IndexStmt *) command);
		if (zundo_swap_btree)
			swap_index(reloid, (IndexStmt *) command);
	}
	else
	{
		choose_for_table(reloid, (AlterTableStmt *) command);
		if (zundo_swap_btree)
			swap_partitions(reloid, (AlterTableStmt *) command);
	}
	return pstmt;
}
