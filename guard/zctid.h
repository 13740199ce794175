/*
 * guard/zctid.h - statements that name rows by ctid (GUARD-3, GUARD-4).
 */
#ifndef ZUNDO_ZCTID_H
#define ZUNDO_ZCTID_H

#include "common/zundo.h"
#include "executor/execdesc.h"
#include "mvcc/zlevel.h"
#include "nodes/plannodes.h"
#include "utils/rel.h"

/*
 * zctid_named_from_outside: returns the tables, with their children, of which
 * the query changes rows, and says that their ctid is equal to a value from
 * outside the statement (GUARD-3). Outside are constants, parameters of the
 * query, columns in which a ctid has been stored, and what expressions and
 * functions that do not read tables make of these, also if it comes as rows. If
 * in doubt, a value is from inside. The query has been rewritten, but not
 * planned. May read catalogs.
 *
 * zctid_keep_named: notes these tables in the plan that was made of the query.
 *
 * zctid_check_statement: raises zctid_refuse's error if the started statement
 * changes such rows, and the transaction can have neither locked nor changed
 * any before.
 *
 * zctid_asking: returns whether zctid_asks need be called.
 *
 * zctid_asks: returns whether the query of the current level may change rows of
 * rel only if its transaction holds them. Raises no error.
 *
 * zctid_refuse: raises ERRCODE_FEATURE_NOT_SUPPORTED for such a row of rel.
 */
extern List *zctid_named_from_outside(const Query *query);
extern void zctid_keep_named(PlannedStmt *stmt, List *tables);
extern void zctid_check_statement(QueryDesc *query, int eflags);
extern bool zctid_asks(Relation rel);
extern void zctid_refuse(Relation rel) zc_noreturn pg_attribute_cold;

static inline bool
zctid_asking(void)
{
	const QueryDesc *query = zlevel_current()->query;

	return query != NULL && query->plannedstmt->invalItems != NIL;
}

/*
 * zctid_is_compared: returns whether a condition of the query of the current
 * level has a TID in it (GUARD-4). No page may be locked.
 */
extern bool zctid_is_compared(void);

#endif
