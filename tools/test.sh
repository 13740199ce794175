# tools/test.sh - ./zundo test: runs the tests on servers with zundo installed.
#
# Sourced by ./zundo after tools/common.sh. Parts, in this order:
#   build         compiling with gcc and with clang, every warning an error
#   unit          test/: the functions of the module zundo_test
#   fuzz          test/fuzz.c: damaged WAL and undo records for their decoders
#   sql           sql/ and expected/, by pg_regress
#   isolation     isolation/, by pg_isolation_regress
#   installcheck  make installcheck with one test of each kind
#   tap           t/, by prove: crashes, restarts, standbys
#   random        test/random/: random histories on heap and zheap, kill -9 under
#                 load, fault points, damaged pages
#   core          PostgreSQL's own regression and isolation suites with all tables
#                 zheap, on a server with assertions; test/core/ has the accepted
#                 differences; with --moved every update moves its row, as on heap;
#                 with --zbtree indexes are zbtree
#   decoding      PostgreSQL's own tests of logical decoding and replication
#                 (contrib/test_decoding, src/test/subscription) with all tables
#                 zheap, on a server with assertions
#   cost          bounds (test/cost/) of the instructions, WAL and undo of single
#                 operations, counted by callgrind (bench/cost.py)
# A part whose tests are not found counts as one failure.
#
# First zundo is built and installed for every server that is needed (prepare).
# Then the parts of all servers run as concurrent jobs (tools/test_jobs.sh), since
# most of them wait more than they compute. tools/test_parts.sh has the functions
# that run the parts. The plan_ functions decide which jobs there are, by $tier:
# default is what ./zundo test runs without options, one what it runs with --full or if
# the command line names parts or tests, all is what CI runs, long what --all leaves out.

. "$top/tools/test_jobs.sh"
. "$top/tools/test_parts.sh"

all_parts=(build unit fuzz sql isolation installcheck tap random core decoding cost)

# wanted NAME: succeeds if the test is to run: if its name contains one of the names
# on the command line, or there are none.
wanted()
{
	local n
	[ ${#names[@]} -gt 0 ] || return 0
	for n in "${names[@]}"; do case $1 in *"$n"*) return 0 ;; esac; done
	return 1
}

# is_one_of WORD ARGUMENT...: succeeds if WORD is one of the arguments.
is_one_of()
{
	local word=$1
	shift
	case " $* " in *" $word "*) return 0 ;; esac
	return 1
}

# asked PART: succeeds if the command line asks for the part.
asked()
{
	if [ ${#parts[@]} -eq 0 ]; then
		case $tier:$1 in one:core | one:decoding | default:core | default:decoding | default:fuzz) return 1 ;; esac
	else
		is_one_of "$1" "${parts[@]}"
	fi
}

# is_quick FILE: succeeds if the file of t/ has no line "# long". Without options
# ./zundo test runs only such files.
is_quick() { ! grep -q '^# long$' "$1"; }

# is_for_newest FILE: succeeds if the file of t/ has a line "# newest". --all runs
# such files on every version.
is_for_newest() { grep -q '^# newest$' "$1"; }

# plan SERVER: adds its jobs. --all runs every kind of test on at least one version;
# --long runs the tests that take long on the other versions.
plan()
{
	local server=$1 tier=$tier
	# Sanitizers and valgrind are slow: leave out core and decoding, as for one
	# version without options.
	case $server in *[sv]) [ "$tier" = default ] || tier=one ;; esac
	[ "$tier" = long ] || plan_short "$server"
	if asked fuzz; then plan_fuzz "$server"; fi
	if asked tap; then plan_tap "$server"; fi
	if asked random; then plan_random "$server"; fi
	if asked core; then plan_core "$server"; fi
	if asked decoding; then plan_decoding "$server"; fi
	if asked cost; then plan_cost "$server"; fi
}

# plan_cost SERVER: adds the job if bounds have been recorded for the server, or the
# command line names the part.
plan_cost()
{
	[ "$tier" != long ] || return 0
	if [ -f "$top/test/cost/bounds-$1" ] || is_one_of cost "${parts[@]}"; then
		job "$1" cost $medium part_cost
	fi
}

# plan_short SERVER: adds the parts that run on every version.
plan_short()
{
	local server=$1
	if asked build && [ ${#names[@]} -eq 0 ] && [ "$server" = "${server%[svc]}" ]; then
		job "$server" build $heavy part_build
	fi
	! asked unit || job "$server" unit $light part_unit
	while read -r server; do
		! asked isolation || job "$server" isolation $light part_isolation
		! asked sql || job "$server" sql $light part_sql
	done < <(both_kinds "$server")
	if asked installcheck && [ ${#names[@]} -eq 0 ]; then
		job "$1" installcheck $light part_installcheck
	fi
}

# plan_fuzz SERVER: adds the fuzz targets, with --all and --long on 17 only.
plan_fuzz()
{
	local target
	case $tier:${1%[asvc]} in one:* | *:17) ;; *) return 0 ;; esac
	for target in wal undo; do
		! wanted "$target" || job "$1" fuzz $medium part_fuzz $target
	done
}

# plan_tap SERVER: adds the files of t/. --all runs all of them on 17, on 15, 16 and 18
# those that are quick or have a line "# newest", on 19 those with that line. --long runs
# what --all leaves out.
plan_tap()
{
	local item
	while read -r item; do
		case $tier:${1%[asvc]} in
			all:17 | one:*) ;;
			all:19) is_for_newest "$top/t/$item.pl" || continue ;;
			all:*) is_quick "$top/t/$item.pl" || is_for_newest "$top/t/$item.pl" || continue ;;
			default:*) is_quick "$top/t/$item.pl" || continue ;;
			long:17) continue ;;
			long:19) ! is_for_newest "$top/t/$item.pl" || continue ;;
			long:*) ! is_quick "$top/t/$item.pl" && ! is_for_newest "$top/t/$item.pl" || continue ;;
		esac
		job "$1" tap $light tap_file "$item.pl"
	done < <(list_tests "$top/t" .pl)
}

# plan_random SERVER: adds the runs of test/random/, with --all and --long on servers
# with assertions; on 19 only with --long.
plan_random()
{
	local item server=$1
	case $tier:${1%[asvc]} in
		all:19) return ;;
		all:* | long:*) server=$(with_assertions "$1") ;;
	esac
	while read -r item; do
		! wanted "${item%%: *}" || job "$server" random $heavy random_run "$item"
	done < <(random_runs "$server")
}

# has_suites SERVER: succeeds if the server's own suites are there: its sources are.
has_suites()
{
	local major=${1%[asvc]}
	! can_build "$major" || return 0
	say "skipping the suites of PostgreSQL $major: its sources are not there (ZUNDO_POSTGRES_$major)"
	return 1
}

# plan_core SERVER: adds the core suites, on the server of the same version that has
# assertions.
plan_core()
{
	local suite assertions major=${1%[asvc]}
	[ "$tier:$major" != all:16 ] || return 0
	has_suites "$1" || return 0
	assertions=$(with_assertions "$1")
	for suite in regression isolation moved zbtree zbtree-isolation; do
		case $tier:$major:$suite in
			one:*:moved) [ $moved = yes ] || continue ;;
			one:*:zbtree*) [ $zbtree = yes ] || continue ;;
			one:*) [ $moved$zbtree = nono ] || continue ;;
			all:18:regression | all:18:isolation) ;;
			all:17:regression) [ $coverage = yes ] || continue ;;
			all:* | long:18:regression | long:18:isolation) continue ;;
		esac
		job "$assertions" core $heavy part_core $suite
	done
}

# plan_decoding SERVER: adds the tests of decoding, with --long and --part decoding.
plan_decoding()
{
	local item major=${1%[asvc]} assertions
	assertions=$(with_assertions "$1")
	[ "$tier" != all ] || return 0
	case $1 in *[sv]) return 0 ;; esac
	has_suites "$1" || return 0
	job "$assertions" decoding $light part_decoding regression
	job "$assertions" decoding $light part_decoding isolation
	while read -r item; do
		! wanted "$item" || job "$assertions" decoding $light part_decoding "$item"
	done < <(cd "$HOME/.cache/zundo/pg$major/src" && ls contrib/test_decoding/t/*.pl src/test/subscription/t/*.pl |
		sed 's,^contrib/\|^src/test/,,')
}

# both_kinds SERVER: prints the name of the server; with --all, also that of the server
# of its version that has assertions, if it is another one.
both_kinds()
{
	echo "$1"
	case $tier in one | default) return 0 ;; esac
	[ "$(with_assertions "$1")" = "$1" ] || with_assertions "$1"
}

# list_tests FOLDER ENDING: prints the wanted tests of a folder, one name per line.
list_tests()
{
	local file test
	for file in "$1"/*"$2"; do
		[ -f "$file" ] || continue
		test=$(basename "$file" "$2")
		! wanted "$test" || echo "$test"
	done
}

# prepare SERVER: builds the server if needed, builds and installs zundo and all else
# that the planned jobs need. Keeps the server locked. If there can be no such server,
# that counts as one failed test, and the tests of other servers run.
prepare()
{
	local since=$EPOCHREALTIME
	# the subshell exits with a message if something is missing
	(choose_server "$1" test) || { leave_out "$1"; return 0; }
	choose_server "$1" test
	lock_server
	bindir_of[$1]=$bindir
	add_minutes "$1" server "$(seconds_since "$since")"
	[ $coverage = no ] || need_packages lcov
	since=$EPOCHREALTIME
	echo "== zundo on $("$pg_config" --version), $bindir"
	WERROR=1 build test
	install_into_server
	if planned unit "$1" || planned fuzz "$1" || planned tap "$1"; then install_test_module || true; fi
	if planned core "$1" || planned decoding "$1"; then copy_core_tests; fi
	rm -rf "$work/tap-$pg" "$work/out-$pg" "$work/templates-$pg"
	as_server_dir "$work/tap-$pg"
	as_server_dir "$work/tap-ports"
	as_server_dir "$work/templates-$pg"
	[ $coverage = no ] || count_lines
	add_minutes "$1" build "$(seconds_since "$since")"
}

# leave_out SERVER: takes the jobs of the server out of the plan, and counts a failure.
leave_out()
{
	mapfile -t jobs < <(printf '%s\n' "${jobs[@]}" | grep -v "^$1|")
	pg=$1
	result fail "there is no server"
}

# planned PART SERVER: succeeds if the plan has a job of the part on the server. Not by a
# pipe to grep -q, which ends before it has read all: the writer's SIGPIPE would be the
# status of the pipe.
planned() { grep -q "^$2|$1|" <<<"$(printf '%s\n' "${jobs[@]}")"; }

# use_server SERVER: sets the variables that choose_server sets, and $copy. Needs
# prepare to have been called for the server.
declare -A bindir_of
use_server()
{
	pg=$1
	major=${1%[asvc]}
	bindir=${bindir_of[$1]}
	copy=$work/build-$pg
	use_bindir
}

# Forgets the counts of earlier runs, and lets the server's user write new ones: each
# process adds its own when it exits. One that is killed does not.
count_lines()
{
	find "$copy" -name '*.gcda' -delete
	find "$copy" -type d -exec chmod a+w {} +
}

# Prints what part of the lines the tests have entered, by folder, and compares it with
# test/coverage if all parts have run. The pages of lcov are in $work/coverage.
report_coverage()
{
	local v infos=() options=()
	[ ${#parts[@]} -eq 0 ] && [ ${#names[@]} -eq 0 ] && [ "${servers[*]}" = "15c 17c" ] || options=(--no-floors)
	for v in "${servers[@]}"; do
		lcov --quiet --capture --no-external --directory "$work/build-$v" --output-file "$work/coverage-$v.info" \
			>"$work/coverage-$v.log" 2>&1 || true
		infos+=("$work/coverage-$v.info")
	done
	pg=${servers[*]}
	if python3 "$top/tools/coverage.py" "${options[@]}" "$work/coverage.info" "${infos[@]}"; then
		result ok coverage
	else
		result fail coverage
	fi
	genhtml --quiet --output-directory "$work/coverage" "$work/coverage.info" >/dev/null 2>&1 || true
	echo "  line by line: $work/coverage/index.html; functions that no test enters: ./tools/coverage.py --functions $work/coverage.info"
}

# coverage_of_all: runs ./zundo test --coverage as one more test of --long.
coverage_of_all()
{
	[ ${#parts[@]} -eq 0 ] && [ ${#names[@]} -eq 0 ] || return 0
	unlock_servers
	pg=coverage
	if "$top/zundo" test --coverage; then result ok coverage; else result fail "./zundo test --coverage"; fi
}

# release_of_all: runs ./zundo release-check as one more test of --long.
release_of_all()
{
	[ ${#parts[@]} -eq 0 ] && [ ${#names[@]} -eq 0 ] && [ -e "$top/.git" ] || return 0
	pg=release
	if "$top/zundo" release-check; then result ok release-check; else result fail "./zundo release-check"; fi
}

# analyzers_of_all: runs ./zundo check --analyze as one more test of --long.
analyzers_of_all()
{
	[ ${#parts[@]} -eq 0 ] && [ ${#names[@]} -eq 0 ] || return 0
	pg=analyzers
	if "$top/zundo" check --analyze; then result ok analyzers; else result fail "./zundo check --analyze"; fi
}

# parse_test_options ARGUMENT...: sets $versions, $parts, $names, $tier (default, one, all
# or long), $moved, $zbtree, $record and $coverage.
parse_test_options()
{
	local part
	versions=() parts=() names=() tier=default moved=no zbtree=no record=no coverage=no
	while [ $# -gt 0 ]; do
		case $1 in
			--pg) value_of "$@"; versions+=("$2"); shift 2 ;;
			--pg=*) versions+=("${1#*=}"); shift ;;
			--all | --long) tier=${1#--}; shift ;;
			--full) tier=one; shift ;;
			--coverage) tier=all coverage=yes; shift ;;
			--quick) parts+=(build unit sql isolation installcheck); shift ;;
			--core) parts+=(core); shift ;;
			--moved) moved=yes; shift ;;
			--zbtree) zbtree=yes; shift ;;
			--record) record=yes; shift ;;
			--part) value_of "$@"; parts+=("$2"); shift 2 ;;
			--part=*) parts+=("${1#*=}"); shift ;;
			-*) usage_error "unknown option '$1'" ;;
			*) names+=("$1"); shift ;;
		esac
	done
	[ "$tier:${parts[*]}${names[*]}" = default: ] || [ "$tier" != default ] || tier=one
	for part in "${parts[@]}"; do
		is_one_of "$part" "${all_parts[@]}" ||
			usage_error "--part takes one of ${all_parts[*]}, not '$part'"
	done
	[ $moved$zbtree = nono ] || { [ $tier = one ] && asked core; } ||
		usage_error "--moved and --zbtree go with --core"
	[ $record = no ] || [ "${parts[*]}" = cost ] || usage_error "--record goes with --part cost alone"
	if [ $coverage = yes ]; then
		[ ${#versions[@]} -gt 0 ] || versions=(15 17)
		versions=("${versions[@]/%/c}")
	fi
	[ ${#versions[@]} -eq 0 ] || return 0
	case $tier in
		one | default) if asked core || asked decoding; then versions=(15 16 17 18); else versions=("$(default_major)"); fi ;;
		all) versions=(15 16 17 18 19) ;;
		long) versions=(15 16 17 18 19 17s) ;;
	esac
	leave_out_missing
}

# Takes the versions out of $versions of which there can be no server here.
leave_out_missing()
{
	local v why kept=()
	check_tarballs
	for v in "${versions[@]}"; do
		try_to_build "${v%[asvc]}"
		why=$(why_no_server "${v%[asvc]}")
		if [ -z "$why" ]; then kept+=("$v"); else say "skipping PostgreSQL ${v%[asvc]}: $why"; fi
	done
	[ ${#kept[@]} -gt 0 ] || die "no PostgreSQL that zundo supports is installed"
	versions=("${kept[@]}")
}

# run_tests ARGUMENT...: ./zundo test. Fails if a test has failed.
run_tests()
{
	local versions servers=() packages v begun=$EPOCHREALTIME ticks_begun
	ticks_begun=$(ticks)
	parse_test_options "$@"
	for v in "${versions[@]}"; do plan "$v"; done
	[ ${#jobs[@]} -gt 0 ] || die "no test has that name"
	mapfile -t servers < <(printf '%s\n' "${jobs[@]%%|*}" | awk '!seen[$0]++')
	mapfile -t packages < <(for v in "${servers[@]}"; do server_packages "$v" test; done)
	case "${jobs[*]}" in *"|cost|"*) packages+=(valgrind) ;; esac
	prepare_work
	use_memory
	read_durations
	say_how_long
	need_packages perl libipc-run-perl clang python3 python3-psycopg2 python3-pygal "${packages[@]}"
	for v in "${servers[@]}"; do prepare "$v"; done
	run_jobs
	keep_durations
	[ $((passed + failed)) -gt 0 ] || die "no test has that name"
	show_slowest
	show_minutes
	[ $coverage = no ] || report_coverage
	[ $tier != long ] || coverage_of_all
	[ $tier != long ] || analyzers_of_all
	[ $tier != long ] || release_of_all
	for v in "${failures[@]}"; do echo "failed on $v"; done
	echo "$passed passed, $failed failed"
	[ $failed -eq 0 ]
}
