/*
 * test/zundo_test.c - the module of unit tests: its magic block.
 *
 * zundo_test.so holds its own copies of the pure sources under test (see
 * Makefile) and shares no symbol with zundo.so. The tests are SQL functions in
 * page_unit.c, tuple_unit.c and undo_unit.c.
 */
#include "unit.h"

#include "fmgr.h"

PG_MODULE_MAGIC;

UnitTest	unit;
