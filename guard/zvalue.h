/*
 * guard/zvalue.h - what a value in a query is made of.
 *
 * The query has been rewritten, but not planned: each variable names an entry
 * of a range table, and each level of the query knows the one around it.
 */
#ifndef ZUNDO_ZVALUE_H
#define ZUNDO_ZVALUE_H

#include "nodes/parsenodes.h"

/*
 * A query may use a column of a WITH query several times, which uses a column
 * of another one several times, and so on; each use is followed anew.
 */
#define MAX_VARIABLES	10000

/* A search in one statement. */
typedef struct ZSearch
{
	List	   *named;			/* RangeTblEntries of which it names rows */
	List	   *seen;			/* queries that have been searched */
	int			budget;			/* number of variables that may still be
								 * followed */
} ZSearch;

/* A query, and the level around it. */
typedef struct ZQueryLevel
{
	const Query *query;
	const struct ZQueryLevel *outer;	/* NULL: it is the statement */
	ZSearch    *search;
	const SubLink *in;			/* of value IN (SELECT ...): its results are
								 * the parameters of the expression; or NULL */
} ZQueryLevel;

/* An expression of a level. */
typedef struct ZSource
{
	Node	   *node;
	const ZQueryLevel *level;
} ZSource;

/* zvalue_level: returns the level at this distance further out, or NULL. */
extern const ZQueryLevel *zvalue_level(const ZQueryLevel *level, Index up);

/*
 * zvalue_cte: returns the WITH query that an entry of the level's range table
 * reads; NULL for what a recursive query takes from itself.
 */
extern const Query *zvalue_cte(const RangeTblEntry *rte, const ZQueryLevel *level);

/*
 * zvalue_sources: if the node stands for expressions elsewhere in the query,
 * returns true and adds those that are known, as ZSources: a column of a
 * subquery, a WITH query, a join or a group, what ON CONFLICT calls EXCLUDED, a
 * scalar subquery, a parameter of IN.
 */
extern bool zvalue_sources(Node *node, const ZQueryLevel *level, List **sources);

/*
 * zvalue_is_inside: returns whether an expression of the level is from inside:
 * it depends on a ctid or xmin that the statement itself reads, on what cannot
 * be followed, or on a function that may have locked the rows, or have read
 * them with the statement's snapshot. Of a UNION one part that is from outside
 * is enough.
 */
extern bool zvalue_is_inside(Node *node, ZQueryLevel *level);

/*
 * zvalue_without_casts: returns the expression without casts. in_full: only
 * without those to types that show every transaction id as another value.
 */
extern Node *zvalue_without_casts(Node *node, bool in_full);

/*
 * zvalue_tables: returns the entries of range tables whose ctid an expression
 * is, with or without casts: none or one, or one for each part of a UNION.
 */
extern List *zvalue_tables(Node *ctid, const ZQueryLevel *level);

/*
 * zvalue_entries: returns the entries of the level's range table whose columns
 * an expression uses. (pull_varnos adds the outer joins that may set them to
 * null.)
 */
extern Bitmapset *zvalue_entries(Node *node);

#endif
