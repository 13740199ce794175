# zundo: build with PGXS.
#
#   make                          for the server of the first pg_config in PATH
#   make PG_CONFIG=/path/pg_config
#   make WERROR=1 CC=clang        warnings are errors (what CI does)
#   make install                  then: shared_preload_libraries = 'zundo'
#
# Tests need a server with zundo preloaded: ./zundo test starts one.

EXTENSION   = zundo
MODULE_big  = zundo
DATA        = zundo--1.0.sql
PGFILEDESC  = "zundo - tables with undo"

# The lowest layer first; tools/check_source.py proves that includes only go
# down this list.
FOLDERS = common undo tuple page wal mvcc dml scan vacuum rollback redo workers monitor

TOP     := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
ZUNDO_SOURCES := $(TOP)/zundo.c $(TOP)/zam.c $(foreach d,$(FOLDERS),$(sort $(wildcard $(TOP)/$(d)/*.c)))
ZUNDO_HEADERS := $(wildcard $(TOP)/*.h) $(foreach d,$(FOLDERS),$(wildcard $(TOP)/$(d)/*.h))
OBJS     = $(patsubst $(TOP)/%.c,%.o,$(ZUNDO_SOURCES))

# Server libraries share one symbol space: only what the server looks up by
# name is exported (common/compat.h does the same for 15).
PG_CPPFLAGS = -I$(TOP)
PG_CFLAGS   = -fvisibility=hidden
SHLIB_LINK  = -llz4

# No JIT bitcode: nothing here is worth inlining into a query.
override with_llvm = no

PG_CONFIG ?= pg_config
PGXS      := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(PGXS),)
$(error $(PG_CONFIG) does not work; install postgresql-server-dev-15 or say make PG_CONFIG=/path/to/pg_config)
endif
include $(PGXS)

# After the server's own flags, so that these win.
override CFLAGS += -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-Wno-missing-field-initializers -Wno-declaration-after-statement
ifneq ($(findstring clang,$(shell $(CC) --version 2>/dev/null)),)
# as the server does for its own bitcode: its headers name gnu_printf
override CFLAGS += -Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes
endif
ifeq ($(WERROR),1)
override CFLAGS += -Werror
endif

# Any header may change any layout: rebuild everything.
$(OBJS): $(ZUNDO_HEADERS) $(TOP)/Makefile

# Built from another directory, the folders of the objects must exist.
ifneq ($(CURDIR),$(TOP))
$(OBJS): | object-folders
object-folders:
	@mkdir -p $(FOLDERS)
.PHONY: object-folders
endif
