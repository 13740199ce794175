/*
 * test/zundo_test.c - the magic block of the module zundo_test.
 *
 * zundo_test.so has its own copies of the sources that the unit tests test
 * (see Makefile) and shares no symbol with zundo.so. The unit tests are SQL
 * functions in page_unit.c, tuple_unit.c, undo_unit.c and own_unit.c.
 */
#include "unit.h"

#include "fmgr.h"

PG_MODULE_MAGIC;

UnitTest	unit;
