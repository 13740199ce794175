/*
 * guard/index_method.c - the access method of indexes whose command cannot name
 * it, or does not.
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
 * zundo.default_index = zbtree makes an index zbtree where the command names no
 * access method, if it can be. Whether it does is read from the text of the
 * statement. So what a dump says of an index is done. A constraint gets the
 * parameter, too. In pg_upgrade and in scripts of extensions it has no effect.
 *
 * Builds for tests can do the same where a command says btree
 * (zundo.swap_btree), so that the server's own suites run with zbtree.
 *
 * Locks: AccessShareLock on a table while an expression is analysed. Crash
 * points: none.
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
#include "commands/extension.h"
#include "common/compat_commands.h"
#include "common/keywords.h"
#include "common/compat_nbtree.h"
#include "common/zundo.h"
#include "guard/heap_readers.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "parser/parse_expr.h"
#include "parser/parse_relation.h"
#include "parser/parse_type.h"
#include "parser/scanner.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
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

		if (cmd->subtype == AT_SetRelOptions || cmd->subtype == AT_ResetRelOptions)
			check_options(reloid, (List *) cmd->def);
	}
}

/* ---- choice ---- */

/* An index that is to be zbtree if it can be. */
typedef struct Wanted
{
	Oid			table;
	bool		unique;
	bool		constraint;		/* that of a constraint */
	bool		deferrable;
	List	   *columns;		/* IndexElem or String */
	bool		analysed;		/* so are their expressions */
	bool		copied;			/* from a zbtree index, by LIKE */
	List	   *cmds;			/* of the ALTER TABLE that adds it */
	const char *query_string;	/* to report errors, or NULL */
} Wanted;

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
 * the access method of the topmost table, if it has one, decides. pg_upgrade
 * makes the index as it was: one of a partitioned table has no file, and the
 * partitions for which it was made may be gone.
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
	if (IsBinaryUpgrade)
		return true;
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
 * Returns whether indexes of the relation are zbtree by default. For a
 * partition, its whole tree decides, since indexes of the tree can be attached
 * to each other only if all have the same access method. One that is being
 * detached has no ancestors any more.
 */
static bool
defaults_to_zbtree(Oid reloid)
{
	List	   *ancestors;
	bool		zheap;
	char	   *am;

	if ((zundo_default_index != ZUNDO_ZBTREE && !zundo_swap_btree) || IsBinaryUpgrade ||
		creating_extension)
		return false;
	ancestors = get_rel_relispartition(reloid) ? get_partition_ancestors(reloid) : NIL;
	if (ancestors != NIL)
		reloid = llast_oid(ancestors);
	am = zaccess_method_name(reloid);
	if (get_rel_relkind(reloid) != RELKIND_PARTITIONED_TABLE)
		return am != NULL && strcmp(am, "zheap") == 0;
	if (has_leaves(reloid, &zheap))
		return zheap;
	return strcmp(am ? am : default_table_access_method, "zheap") == 0;
}

/* Returns the type of the expression over the columns of the table. */
static Oid
expression_type(Oid reloid, Node *expression, const char *query_string)
{
	Relation	rel = relation_open(reloid, AccessShareLock);
	ParseState *pstate = make_parsestate(NULL);
	Oid			result;

	pstate->p_sourcetext = query_string;
	addNSItemToQuery(pstate, addRangeTableEntryForRelation(pstate, rel, AccessShareLock, NULL,
														   false, true),
					 false, true, true);
	result = exprType(transformExpr(pstate, copyObject(expression), EXPR_KIND_INDEX_EXPRESSION));
	free_parsestate(pstate);
	relation_close(rel, AccessShareLock);
	return result;
}

/*
 * Returns the type that the column of the table will have after the commands of
 * an ALTER TABLE, or InvalidOid if there is no such column or type. serial is
 * no type, but stands for one that has the operator classes.
 */
static Oid
column_type(Oid reloid, const char *name, List *cmds)
{
	ListCell   *lc;
	AttrNumber	attnum;

	foreach(lc, cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);
		ColumnDef  *column = cmd->def && IsA(cmd->def, ColumnDef) ? (ColumnDef *) cmd->def : NULL;
		Type		type;
		Oid			result;

		if (column == NULL || column->typeName == NULL ||
			strcmp(cmd->subtype == AT_AlterColumnType ? cmd->name : column->colname, name) != 0)
			continue;
		type = LookupTypeName(NULL, column->typeName, NULL, true);
		result = type ? typeTypeId(type) : InvalidOid;
		if (type)
			ReleaseSysCache(type);
		return result;
	}
	attnum = get_attnum(reloid, name);
	return attnum == InvalidAttrNumber ? InvalidOid : get_atttype(reloid, attnum);
}

/*
 * Returns whether the operator class that the server will take for the column,
 * an IndexElem or a String, is zbtree's counterpart of the one of btree. If
 * that is missing, the server may take the class of a type to which the
 * column's is binary coercible, by which other values are equal. If there is no
 * such column, the server raises an error anyway.
 */
static bool
has_class(const Wanted *wanted, Node *column, Oid zbtree)
{
	IndexElem  *element = IsA(column, IndexElem) ? (IndexElem *) column : NULL;
	char	   *name = element ? element->name : strVal(column);
	Oid			type;
	Oid			class;
	Oid			btree;

	if (element && element->opclass != NIL)
	{
		class = get_opclass_oid(zbtree, element->opclass, true);
		btree = get_opclass_oid(BTREE_AM_OID, element->opclass, true);
	}
	else
	{
		type = name ? column_type(wanted->table, name, wanted->cmds) :
			wanted->analysed ? exprType(element->expr) :
			expression_type(wanted->table, element->expr, wanted->query_string);
		if (!OidIsValid(type))
			return true;
		class = GetDefaultOpClass(type, zbtree);
		btree = GetDefaultOpClass(type, BTREE_AM_OID);
	}
	return OidIsValid(class) &&
		(!OidIsValid(btree) || zbtree_class_for(btree, zbtree, true) == class);
}

/* Returns why the index cannot be zbtree, or NULL if it can. */
static const char *
obstacle(const Wanted *wanted)
{
	Oid			zbtree = get_index_am_oid("zbtree", true);
	ListCell   *lc;

	if (!OidIsValid(zbtree))
		return "Extension zundo is not installed in this database.";
	if (wanted->unique && !ZC_UNIQUE_BY_ANY_BTREE)
		return "Unique indexes cannot be zbtree before PostgreSQL 18.";
	if (!has_zheap(wanted->table))
		return "The table, or a partition of it, is not a zheap table.";
	foreach(lc, wanted->cmds)
	{
		if (lfirst_node(AlterTableCmd, lc)->subtype == AT_SetAccessMethod)
			return "The command changes the access method of the table.";
	}
	if (wanted->deferrable)
		return "The constraint is deferrable.";
	foreach(lc, wanted->columns)
	{
		if (!has_class(wanted, (Node *) lfirst(lc), zbtree))
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
 * Returns the access method for an index that is wanted as zbtree, because its
 * options contain the parameter, or it is a copy, or by default. If that
 * cannot be, takes the parameter out of the options, with a NOTICE. pg_upgrade
 * gets an error (ERRCODE_FEATURE_NOT_SUPPORTED), because the file that it has
 * for the index is zbtree's.
 */
static char *
choose(const Wanted *wanted, List **options)
{
	const char *why = obstacle(wanted);
	DefElem    *asked = find_parameter(*options);

	if (why == NULL)
	{
		if (asked == NULL && wanted->constraint)
			*options = lappend(*options, makeDefElem(pstrdup(parameter),
													 (Node *) makeString("zbtree"), -1));
		return pstrdup("zbtree");
	}
	ereport(asked == NULL && !wanted->copied ? DEBUG1 : IsBinaryUpgrade ? ERROR : NOTICE,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("an index of table \"%s\" will use access method \"btree\" instead of "
					"\"zbtree\"", get_rel_name(wanted->table)),
			 errdetail_internal("%s", why)));
	*options = list_delete_ptr(*options, asked);
	return pstrdup("btree");
}

/*
 * Returns whether the statement is a CREATE INDEX that does not name the access
 * method: its parse tree says btree in both cases. What stands before the
 * columns contains the word USING or not.
 */
static bool
leaves_method_open(const PlannedStmt *pstmt, const char *query_string)
{
#define KEYWORD(name) ScanKeywordTokens[ScanKeywordLookup(name, &ScanKeywords)]
#define NEXT_TOKEN() core_yylex(&value, &location, scanner)
	core_yy_extra_type extra;
	core_yyscan_t scanner;
	core_YYSTYPE value;
	YYLTYPE		location;
	int			token;
	int			last = 0;
	bool		after_on = false;
	bool		result = false;

	if (query_string == NULL || pstmt->stmt_location < 0 ||
		pstmt->stmt_location > strlen(query_string))
		return false;
	query_string += pstmt->stmt_location;
	if (pstmt->stmt_len > 0)
		query_string = pnstrdup(query_string, pstmt->stmt_len);
	scanner = scanner_init(query_string, &extra, &ScanKeywords, ScanKeywordTokens);
	token = NEXT_TOKEN();
	if (token == KEYWORD("create"))
	{
		token = NEXT_TOKEN();
		if (token == KEYWORD("unique"))
			token = NEXT_TOKEN();
		if (token == KEYWORD("index"))
		{
			while (!result && (token = NEXT_TOKEN()) != 0 && token != KEYWORD("using"))
			{
				/* ON ONLY (name) is another way to name the table */
				result = token == '(' && after_on && last != KEYWORD("only");
				after_on |= token == KEYWORD("on");
				last = token;
			}
		}
	}
	scanner_finish(scanner);
	return result;
}

/*
 * Sets the access method of an index that CREATE INDEX or CREATE TABLE makes.
 * The copy that LIKE makes of an index, which is analysed already, has the
 * method of the original, or btree if it is zbtree and that cannot be.
 */
static void
choose_for_index(Oid reloid, PlannedStmt *pstmt, const char *query_string)
{
	IndexStmt  *stmt = castNode(IndexStmt, pstmt->utilityStmt);
	bool		btree = strcmp(stmt->accessMethod, "btree") == 0;
	bool		zbtree = strcmp(stmt->accessMethod, "zbtree") == 0;
	Wanted		wanted = {0};

	wanted.table = reloid;
	wanted.unique = stmt->unique;
	wanted.constraint = stmt->isconstraint;
	wanted.deferrable = stmt->deferrable;
	wanted.columns = stmt->indexParams;
	wanted.analysed = stmt->transformed;
	wanted.copied = stmt->transformed && zbtree;
	wanted.query_string = query_string;
	if (stmt->excludeOpNames != NIL)
		return;
	if (find_parameter(stmt->options) ? btree || zbtree : wanted.copied ||
		(btree && !stmt->transformed && defaults_to_zbtree(reloid) &&
		 (stmt->isconstraint || zundo_swap_btree || leaves_method_open(pstmt, query_string))))
		stmt->accessMethod = choose(&wanted, &stmt->options);
}

/*
 * Sets the access method of the index of a constraint that ALTER TABLE adds,
 * for the column if that is not NULL.
 */
static void
choose_for_constraint(Oid reloid, Constraint *constraint, bool deferrable, ColumnDef *column,
					  List *cmds)
{
	Wanted		wanted = {0};

	wanted.table = reloid;
	wanted.unique = true;
	wanted.constraint = true;
	wanted.deferrable = deferrable;
	wanted.columns = column ? list_make1(makeString(column->colname)) : constraint->keys;
	wanted.cmds = cmds;
	if ((constraint->contype == CONSTR_PRIMARY || constraint->contype == CONSTR_UNIQUE) &&
		(find_parameter(constraint->options) ||
		 (constraint->indexname == NULL && !zc_without_overlaps(constraint) &&
		  defaults_to_zbtree(reloid))))
		constraint->access_method = choose(&wanted, &constraint->options);
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
								  ((Constraint *) cmd->def)->deferrable, NULL, stmt->cmds);
		constraints = IsA(cmd->def, ColumnDef) ? ((ColumnDef *) cmd->def)->constraints : NIL;
		foreach(l, constraints)
			choose_for_constraint(reloid, lfirst_node(Constraint, l),
								  is_deferrable(constraints, l), (ColumnDef *) cmd->def,
								  stmt->cmds);
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

#else
#define swap_partitions(reloid, stmt) ((void) 0)
#endif

/* zindex_method_choose: See heap_readers.h. */
PlannedStmt *
zindex_method_choose(PlannedStmt *pstmt, const char *query_string)
{
	Node	   *command = pstmt->utilityStmt;
	Oid			reloid;

	if (!IsA(command, IndexStmt) && !IsA(command, AlterTableStmt))
		return pstmt;
	reloid = RangeVarGetRelid(IsA(command, IndexStmt) ? ((IndexStmt *) command)->relation :
							  ((AlterTableStmt *) command)->relation, NoLock, true);
	pstmt = copyObject(pstmt);
	if (!OidIsValid(reloid))
		return pstmt;
	command = pstmt->utilityStmt;
	if (IsA(command, IndexStmt))
		choose_for_index(reloid, pstmt, query_string);
	else
	{
		zconstraint_use_index((AlterTableStmt *) command, reloid, query_string);
		choose_for_table(reloid, (AlterTableStmt *) command);
		if (zundo_swap_btree)
			swap_partitions(reloid, (AlterTableStmt *) command);
	}
	return pstmt;
}
