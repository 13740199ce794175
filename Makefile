# zundo: build with PGXS.
#
#   make                          for the server of the first pg_config in PATH
#   make PG_CONFIG=/path/pg_config
#   make WERROR=1 CC=clang        warnings are errors (what CI does)
#   make install                  then: shared_preload_libraries = 'zundo'
#   make ZUNDO_TESTING=1          for tests: with fault points and their settings
#
#   make installcheck             on a running server that preloads zundo (t/README.md)
#
# ./zundo test starts servers of its own and runs everything.

EXTENSION   = zundo
MODULE_big  = zundo
DATA        = zundo--1.0.sql
SCRIPTS     = zundo-convert
PGFILEDESC  = "zundo - tables with undo"
DOCS        = README.md CHANGELOG.md LICENSE SECURITY.md CONTRIBUTING.md

# Documents in folders, which PGXS would put into one folder without the others.
# Here they stay where they are, so that links between documents hold.
DOCS_BELOW  = $(addprefix docs/, administration.md architecture.md duties.md format.md known.md limits.md \
	locking.md migration.md operations.md reference.md scaling.md versions.md) bench/README.md t/README.md test/random/README.md \
	$(addprefix monitoring/, queries.yaml alerts.yaml dashboard.json)

TOP     := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))

# Each folder with C sources is a layer, but for test/. Their order is in
# tools/check_source.py, which proves that includes only go down.
ZUNDO_SOURCES := $(sort $(filter-out $(TOP)/test/%,$(wildcard $(TOP)/*.c $(TOP)/*/*.c $(TOP)/*/*/*.c)))
ZUNDO_HEADERS := $(filter-out $(TOP)/test/%,$(wildcard $(TOP)/*.h $(TOP)/*/*.h $(TOP)/*/*/*.h))

# Fault injection is for tests only: other builds have neither settings nor code.
ZUNDO_TESTING ?= 0
ifneq ($(ZUNDO_TESTING),1)
ZUNDO_SOURCES := $(filter-out $(TOP)/common/fault.c,$(ZUNDO_SOURCES))
endif
OBJS     = $(patsubst $(TOP)/%.c,%.o,$(ZUNDO_SOURCES))

# Server libraries share one symbol space: only what the server looks up by
# name is exported (common/compat.h does the same for 15).
PG_CPPFLAGS = -I$(TOP)
PG_CFLAGS   = -fvisibility=hidden
ifeq ($(ZUNDO_TESTING),1)
PG_CPPFLAGS += -DZUNDO_TESTING
endif
SHLIB_LINK  = -llz4
EXTRA_CLEAN = built-with

# No JIT bitcode: nothing here is worth inlining into a query.
override with_llvm = no

# make installcheck: sql/, isolation/ and t/. Builds without ZUNDO_TESTING leave
# out the files that use fault points and other settings for tests.
SETTINGS_FOR_TESTS = zundo\.fault|zundo\.move_updates|zundo\.swap_btree|zundo_test
ifeq ($(ZUNDO_TESTING),1)
tests_in = $(wildcard $(TOP)/$(1))
else
tests_in = $(shell grep -LE '$(SETTINGS_FOR_TESTS)' $(TOP)/$(1))
endif
REGRESS        = $(patsubst $(TOP)/sql/%.sql,%,$(call tests_in,sql/*.sql))
ISOLATION      = $(patsubst $(TOP)/isolation/specs/%.spec,%,$(call tests_in,isolation/specs/*.spec))
TAP_TESTS      = 1
PROVE_TESTS    = $(call tests_in,t/*.pl)
OWN_DATABASE   = --launcher=$(TOP)/tools/own-database --load-extension=zundo
REGRESS_OPTS   = --inputdir=$(TOP) $(OWN_DATABASE)
ISOLATION_OPTS = --inputdir=$(TOP)/isolation $(OWN_DATABASE)
REGRESS_PREP   = installcheck-server

PG_CONFIG ?= pg_config
PGXS      := $(shell $(PG_CONFIG) --pgxs)
ifeq ($(PGXS),)
$(error $(PG_CONFIG) does not work; install postgresql-server-dev-15 or say make PG_CONFIG=/path/to/pg_config)
endif
include $(PGXS)

# A folder of our own: other extensions have a README as well.
docmoduledir = extension/zundo

install: install-docs-below
install-docs-below:
	$(MKDIR_P) $(addprefix '$(DESTDIR)$(docdir)/$(docmoduledir)'/, $(sort $(dir $(DOCS_BELOW))))
	for file in $(DOCS_BELOW); do \
		$(INSTALL_DATA) $(TOP)/$$file '$(DESTDIR)$(docdir)/$(docmoduledir)/'$$file || exit 1; \
	done
uninstall: uninstall-docs-below
uninstall-docs-below:
	rm -f $(addprefix '$(DESTDIR)$(docdir)/$(docmoduledir)'/, $(DOCS_BELOW))
.PHONY: install-docs-below uninstall-docs-below

# After the server's own flags, so that these win.
override CFLAGS += -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare \
	-Wno-missing-field-initializers -Wno-declaration-after-statement \
	-Werror=implicit-function-declaration
ifneq ($(findstring clang,$(shell $(CC) --version 2>/dev/null)),)
# as the server does for its own bitcode: its headers name gnu_printf
override CFLAGS += -Wno-unknown-warning-option -Wno-ignored-optimization-argument -Wno-ignored-attributes
else ifeq ($(findstring -fsanitize,$(COPT))$(findstring --coverage,$(COPT)),)
# All files optimized as one program take up to 7 % fewer instructions. clang would
# need another linker, gcc before 10 does not know the option; sanitizers and coverage
# shall report calls and lines as they are written.
ONE_PROGRAM = -flto=auto -fno-plt
override CFLAGS += $(shell echo | $(CC) $(ONE_PROGRAM) -x c -c -o /dev/null - 2>/dev/null && echo $(ONE_PROGRAM))
endif
ifeq ($(WERROR),1)
override CFLAGS += -Werror
endif

PROVE_FLAGS += -I $(TOP)/t
installcheck: export ZUNDO_PSQL = $(bindir)/psql
installcheck-server:
	@$(TOP)/tools/own-database --ready '$(bindir)/psql'
.PHONY: installcheck-server

# Objects of other flags or another server are not to be mixed with ours: rebuild everything.
BUILT_WITH := $(shell $(PG_CONFIG) --version --pkglibdir | tr '\n' ' ')CC=$(CC) ZUNDO_TESTING=$(ZUNDO_TESTING)
$(shell echo '$(BUILT_WITH)' | cmp -s - built-with || echo '$(BUILT_WITH)' >built-with)

# Any header may change any layout: rebuild everything.
$(OBJS): $(ZUNDO_HEADERS) $(TOP)/Makefile built-with

# Built from another directory, the folders of the objects must exist.
ifneq ($(CURDIR),$(TOP))
$(OBJS): | object-folders
object-folders:
	@mkdir -p $(dir $(OBJS))
.PHONY: object-folders
endif

# make dist: archives of the last commit, a zip for PGXN and a tar.gz for packages.
DIST_VERSION = $(shell sed -n 's/^   "version": "\(.*\)",/\1/p' $(TOP)/META.json)
dist:
	for kind in zip tar.gz; do \
		git -C $(TOP) archive --format=$$kind --prefix=zundo-$(DIST_VERSION)/ \
			--output='$(CURDIR)/zundo-$(DIST_VERSION)'.$$kind HEAD || exit 1; \
	done
.PHONY: dist
