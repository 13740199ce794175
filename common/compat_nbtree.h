/*
 * common/compat_nbtree.h - what compat.h is, for the server's nbtree and for
 * access methods of indexes.
 */
#ifndef ZUNDO_COMPAT_NBTREE_H
#define ZUNDO_COMPAT_NBTREE_H

#include "access/nbtree.h"
#include "common/compat.h"

/*
 * Up to 17 the planner finds out the height of an index of access method btree
 * itself; later the access method is asked.
 */
#define ZC_PLANNER_KNOWS_BTREE_HEIGHT (PG_VERSION_NUM < 180000)

/*
 * What another access method than btree that uses nbtree's code must not have.
 * 17 sorts in the workers of a parallel build only for access method btree.
 *
 * In 18 an access method may say that its operators are as consistent as those
 * of btree, and the planner then asks each operator family of it for the
 * equivalence classes of all tables. Types that extend a family of btree later
 * would be missing there, and plans of heap tables get worse.
 */
#if PG_VERSION_NUM < 170000
#define zc_limit_index_am(am) ((void) 0)
#elif PG_VERSION_NUM < 180000
#define zc_limit_index_am(am) ((am)->amcanbuildparallel = false)
#else
#define zc_limit_index_am(am) \
	((am)->amtranslatestrategy = NULL, \
	 (am)->amconsistentequality = (am)->amconsistentordering = false)
#endif

/*
 * Up to 17 the executor refuses conditions that compare rows for indexes of
 * other access methods than btree (ExecIndexBuildScanKeys); from 18 on it asks
 * for amcanorder.
 */
#define ZC_ROWS_COMPARED_BY_ANY_BTREE (PG_VERSION_NUM >= 180000)

/*
 * Up to 17 only indexes of access method btree can be unique: ON CONFLICT on a
 * table with another one (BuildSpeculativeIndexInfo), a foreign key to it, and
 * a partitioned table raise errors. From 18 on the access method is asked.
 */
#define ZC_UNIQUE_BY_ANY_BTREE (PG_VERSION_NUM >= 180000)

/*
 * What ALTER TABLE ... ALTER COLUMN ... SET EXPRESSION is. Up to 16 there is no
 * such command.
 */
#if PG_VERSION_NUM < 170000
#define zc_sets_expression(cmd) false
#else
#define zc_sets_expression(cmd) ((cmd)->subtype == AT_SetExpression)
#endif

/*
 * The definition of a NOT NULL constraint of the column, for ALTER TABLE. Up to
 * 17 there are no such constraints.
 */
#if PG_VERSION_NUM < 180000
#define zc_not_null_constraint(column) NULL
#else
#define zc_not_null_constraint(column) ((Node *) makeNotNullConstraint(makeString(column)))
#endif

/* Whether a constraint is WITHOUT OVERLAPS, whose index is GiST. */
#if PG_VERSION_NUM < 180000
#define zc_without_overlaps(constraint) false
#else
#define zc_without_overlaps(constraint) ((constraint)->without_overlaps)
#endif

/* The longest entry of a leaf page. */
#if PG_VERSION_NUM < 180000
#define zc_bt_max_entry(page) BTMaxItemSize(page)
#else
#define zc_bt_max_entry(page) BTMaxItemSize
#endif

/*
 * Up to 18 the handler of an index access method returns a routine that the
 * caller frees, from 19 on one that lives as long as the process.
 */
#if PG_VERSION_NUM < 190000
#define zc_index_am_result(am) memcpy(palloc(sizeof(*(am))), am, sizeof(*(am)))
#else
#define zc_index_am_result(am) (am)
#endif

/*
 * 17 moved the iteration over array keys of a B-tree scan into nbtree's
 * functions; 19 no longer exports the one that tells whether the scan has to
 * descend again. zc_bt_begin_arrays returns false if no row can match.
 */
#if PG_VERSION_NUM < 170000
#define zc_bt_begin_arrays(so, scan) \
	((so)->numArrayKeys == 0 || \
	 ((so)->numArrayKeys > 0 && (_bt_start_array_keys(scan, ForwardScanDirection), true)))
#define zc_bt_next_arrays(so, scan) _bt_advance_array_keys(scan, ForwardScanDirection)
#else
#define zc_bt_begin_arrays(so, scan) true
#if PG_VERSION_NUM < 190000
#define zc_bt_next_arrays(so, scan) _bt_start_prim_scan(scan, ForwardScanDirection)
#else
#define zc_bt_next_arrays(so, scan) \
	((so)->scanBehind = (so)->oppositeDirCheck = false, (so)->needPrimScan)
#endif
#endif

/*
 * Returns the leftmost page of the leaf level, share-locked. 17 no longer takes
 * a snapshot.
 */
#if PG_VERSION_NUM < 170000
#define zc_bt_leftmost(index) _bt_get_endpoint(index, 0, false, NULL)
#else
#define zc_bt_leftmost(index) _bt_get_endpoint(index, 0, false)
#endif

/*
 * 18 decides once for a B-tree scan whether pins on leaf pages are kept; before
 * that it was decided for each page.
 */
#if PG_VERSION_NUM < 180000
#define zc_bt_choose_pins(so, scan) ((void) (so))
#else
#define zc_bt_choose_pins(so, scan) \
	((so)->dropPin = !(scan)->xs_want_itup && IsMVCCSnapshot((scan)->xs_snapshot) && \
	 RelationNeedsWAL((scan)->indexRelation) && (scan)->heapRelation != NULL)
#endif

/*
 * Finds the leaf page where key belongs, without the pages above. 16 gave
 * _bt_search the table, 17 took the snapshot from it; 19 returns the pages
 * above on demand.
 */
#if PG_VERSION_NUM < 160000
#define zc_bt_search(index, table, key, buf, access) \
	((void) (table), _bt_freestack(_bt_search(index, key, buf, access, NULL)))
#elif PG_VERSION_NUM < 170000
#define zc_bt_search(index, table, key, buf, access) \
	_bt_freestack(_bt_search(index, table, key, buf, access, NULL))
#elif PG_VERSION_NUM < 190000
#define zc_bt_search(index, table, key, buf, access) \
	_bt_freestack(_bt_search(index, table, key, buf, access))
#else
#define zc_bt_search(index, table, key, buf, access) \
	((void) _bt_search(index, table, key, buf, access, false))
#endif

#endif
