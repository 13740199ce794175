/*
 * mvcc/zctid.h - statements that name rows by ctid (GUARD-3, GUARD-4).
 */
#ifndef ZUNDO_ZCTID_H
#define ZUNDO_ZCTID_H

#include "common/zundo.h"
#include "executor/execdesc.h"
#include "utils/rel.h"

/*
 * zctid_check_statement: looks whether the started statement changes rows that
 * it names by a ctid from outside (GUARD-3); then zctid_asks will be true of
 * their tables until the statement ends. Raises zctid_refuse's error at once if
 * the transaction has neither locked nor changed rows of these tables.
 *
 * zctid_asking: whether zctid_asks need be called.
 *
 * zctid_asks: returns whether the query of the current level may change rows of
 * rel only if its transaction holds them. Allocates nothing, raises no error.
 *
 * zctid_refuse: raises ERRCODE_FEATURE_NOT_SUPPORTED for such a row of rel.
 */
extern void zctid_check_statement(QueryDesc *query, int eflags);
extern bool zctid_asking;
extern bool zctid_asks(Relation rel);
extern void zctid_refuse(Relation rel) zc_noreturn pg_attribute_cold;

/*
 * zctid_is_compared: returns whether a condition of the query of the current
 * level has a TID in it (GUARD-4). No page may be locked.
 */
extern bool zctid_is_compared(void);

#endif
