# tools/test_parts.sh - the parts of ./zundo test: the functions that the jobs run.

# Compiles with clang; that gcc compiles without warnings has been tested by prepare.
part_build()
{
	result ok "gcc: no warnings"
	if builds_without_warnings clang; then
		result ok "clang: no warnings"
	else
		result fail "clang: no warnings"
	fi
	if has_fault_points "$copy/zundo.so" &&
		! has_fault_points "$work/build-$pg-clang/zundo.so"; then
		result ok "fault points are in builds for tests only"
	else
		result fail "fault points are in builds for tests only"
	fi
}

# regress OUTPUT LABEL AM DRIVER OPTION... -- TEST...: runs tests with pg_regress or
# pg_isolation_regress, each in a separate database (tools/own-database). The tables
# of tests for heap and zheap are of access method AM. One result for each test, but for
# those that print a line "skipped: REASON".
regress()
{
	local output=$1 label=$2 am=$3 driver=$4 options=() status name log=$1/log
	local timeout=${PG_TEST_TIMEOUT_DEFAULT:-180}
	shift 4
	# under valgrind it takes 10 s only to connect, on a busy machine 60
	! under_valgrind || timeout=$((20 * timeout))
	while [ "$1" != -- ]; do options+=("$1"); shift; done
	shift
	[ $# -gt 0 ] || return 0
	as_server_dir "$output"
	as_server env "ZUNDO_AM=$am" ZUNDO_KEEP_DATABASES=1 "ZUNDO_PSQL=$bindir/psql" \
		"PGISOLATIONTIMEOUT=$((2 * timeout))" "PG_TEST_TIMEOUT_DEFAULT=$timeout" \
		timeout -k 60 "$(time_limit)" \
		"$driver" --host="$PGHOST" --port="$PGPORT" --user=postgres --bindir="$bindir" \
		--outputdir="$output" --dbname="zundo_$label" --load-extension=zundo \
		--launcher="$copy/tools/own-database" "${options[@]}" "$@" >"$log" 2>&1 || true
	for name; do
		status=fail
		# "test NAME ... ok" up to 15, "ok 1 - NAME" later
		! grep -qE "^(test $name +\.\.\. ok|ok [0-9]+ +- $name )" "$log" || status=ok
		if [ $status = ok ] && grep -qs '^skipped: ' "$output/results/$name.out"; then
			echo "  skipped $name$(on_am "$name"): $(sed -n 's/^skipped: //p' "$output/results/$name.out")"
		else
			result $status "$name$(on_am "$name")"
		fi
	done
	if [ -s "$output/regression.diffs" ]; then
		echo "  --- $output/regression.diffs, first 100 lines ---"
		head -n 100 "$output/regression.diffs"
	elif ! grep -qiE '^# All [0-9]+ tests passed|All [0-9]+ tests passed' "$log"; then
		echo "  --- $log ---"
		tail -n 30 "$log"
	fi
}

under_valgrind() { [[ $pg == *v ]]; }

# time_limit: prints the seconds after which a test program is terminated. One that
# hangs must fail alone, before the time of the whole run is over.
time_limit()
{
	local seconds=1200
	[ $tier != long ] || seconds=7200
	! under_valgrind || seconds=$((20 * seconds))
	echo $seconds
}

# check_valgrind LABEL: fails if valgrind has reported an error. Ignores reports about
# messages of shared invalidation, whose padding only a server that is configured with
# USE_VALGRIND marks as defined. Needs the cluster to have been stopped.
check_valgrind()
{
	local found
	under_valgrind || return 0
	found=$(find "$work/valgrind" -type f -size +0 -exec cat {} + | awk '
		function tell() { if (report != "" && report !~ /SharedInval|SIInsertDataEntries/) printf "%s\n", report; report = "" }
		{ sub(/^==[0-9]+== ?/, "") }
		/^$/ { tell(); next }
		{ report = report $0 "\n" }
		END { tell() }')
	[ -n "$found" ] || { result ok "$1: valgrind found nothing"; return; }
	head -n 60 <<<"$found"
	result fail "$1: valgrind found something, see $work/valgrind"
}

# for_both FILE: succeeds if the test runs on heap and on zheap.
for_both() { grep -qE '^(#|--) on: heap zheap$' "$1"; }

# regress_both FOLDER ENDING OUTPUT LABEL DRIVER OPTION... -- TEST...: runs the tests
# with regress on zheap, and those for both access methods on heap as well. Heap is left
# out under valgrind, where each connection takes seconds, and by --all on a server with
# assertions whose twin without them has run the same.
regress_both()
{
	local folder=$1 ending=$2 output=$3 label=$4 arguments=() on_heap=() test
	shift 4
	while [ "$1" != -- ]; do arguments+=("$1"); shift; done
	shift
	for test; do ! for_both "$folder/$test$ending" || on_heap+=("$test"); done
	on_am() { ! for_both "$folder/$1$ending" || echo " on zheap"; }
	regress "$output/zheap" "$label" zheap "${arguments[@]}" -- "$@"
	case $tier:$pg in *v | all:*a) return 0 ;; esac
	on_am() { echo " on heap"; }
	regress "$output/heap" "$label" heap "${arguments[@]}" -- "${on_heap[@]}"
}

# Prints the path of the part of the server's src/test that is installed with pgxs.
server_tests() { echo "$(dirname "$("$pg_config" --pgxs)")/../../src/test"; }

# Runs the tests of sql/. Afterwards the cluster is killed and recovered, and its
# tables are checked.
part_sql()
{
	local tests
	mapfile -t tests < <(list_tests "$copy/sql" .sql)
	[ ${#tests[@]} -gt 0 ] || { none_found sql sql; return; }
	# without autovacuum, whose snapshots keep VACUUM from what the tests expect of it
	# not gist: on 18 its replay makes other bytes, with heap tables as well
	new_cluster <<C || { result fail "sql: the server starts"; return; }
autovacuum = off
wal_level = replica
wal_consistency_checking = 'zundo,heap,heap2,btree,hash,gin,spgist,brin'
checkpoint_timeout = 1h
max_wal_size = 20GB
C
	regress_both "$copy/sql" .sql "$work/out-$pg/sql" sql \
		"$(server_tests)/regress/pg_regress" "--inputdir=$copy" -- "${tests[@]}"
	check_tables sql
	crash_and_recover sql || true
	check_log sql
	drop_cluster
}

# Runs the tests of isolation/.
part_isolation()
{
	local tests
	mapfile -t tests < <(list_tests "$copy/isolation/specs" .spec)
	[ ${#tests[@]} -gt 0 ] || { none_found isolation isolation/specs; return; }
	! under_valgrind || rm -f "$work"/valgrind/*
	new_cluster <<<"autovacuum = off" || { result fail "isolation: the server starts"; return; }
	regress_both "$copy/isolation/specs" .spec "$work/out-$pg/isolation" isolation \
		"$(server_tests)/isolation/pg_isolation_regress" "--inputdir=$copy/isolation" \
		-- "${tests[@]}"
	check_tables isolation
	check_log isolation
	drop_cluster
	check_valgrind isolation
}

# Runs make installcheck as a packager does: with one test of each kind on a server
# that preloads zundo; on one that does not it must fail with a message that says so.
part_installcheck()
{
	local folder=$work/out-$pg/installcheck
	as_server_dir "$folder"
	new_cluster </dev/null || { result fail "installcheck: the server starts"; return; }
	if installcheck "$folder" REGRESS=basic ISOLATION=lockers PROVE_TESTS=t/053_vacuum_undo.pl; then
		result ok "make installcheck"
	else
		tail -n 40 "$folder/log"
		result fail "make installcheck"
	fi
	stop_cluster fast
	echo "shared_preload_libraries = ''" | as_server tee -a "$cluster/data/postgresql.conf" >/dev/null
	start_cluster || { result fail "installcheck: the server starts without zundo"; return; }
	if ! installcheck "$folder" &&
		grep -q "does not preload zundo; set shared_preload_libraries" "$folder/log"; then
		result ok "make installcheck where zundo is not preloaded"
	else
		tail -n 40 "$folder/log"
		result fail "make installcheck where zundo is not preloaded"
	fi
	drop_cluster
}

# installcheck FOLDER VARIABLE=VALUE...: runs make installcheck in the folder, so that
# nothing is written into the sources.
installcheck()
{
	local folder=$1
	shift
	as_server make -s -C "$folder" -f "$copy/Makefile" "PG_CONFIG=$pg_config" \
		installcheck "$@" >"$folder/log" 2>&1
}

# query DATABASE SQL: prints the rows of a query, or its error.
query() { psql_quiet -d "$1" -c "$2" 2>&1; }

# check_tables LABEL: fails if zundo.check() finds anything in a zheap table.
check_tables()
{
	local database databases faults='' n=0 out table
	local has_zundo="SELECT count(*) FROM pg_extension WHERE extname = 'zundo'"
	local tables="SELECT c.oid FROM pg_class c JOIN pg_am a ON a.oid = c.relam
		WHERE a.amname = 'zheap' AND c.relkind IN ('r', 'm') AND c.relpersistence <> 't'"
	databases=$(query postgres "SELECT datname FROM pg_database WHERE datallowconn") || {
		result fail "$1: the server is gone: $databases"
		return
	}
	for database in $databases; do
		[ "$(query "$database" "$has_zundo")" = 1 ] || continue
		while read -r table; do
			[ -n "$table" ] || continue
			n=$((n + 1))
			out=$(query "$database" "SELECT * FROM zundo.check($table::oid::regclass)") ||
				out="error: $out"
			[ -z "$out" ] || faults+="$database $table: $out"$'\n'
		done < <(query "$database" "$tables")
	done
	if [ -z "$faults" ]; then
		result ok "$1: zundo.check of $n tables"
	else
		head -n 20 <<<"$faults"
		result fail "$1: zundo.check"
	fi
}

# check_log LABEL: fails if the server log has a crash, a PANIC, a failed assertion or
# a difference that wal_consistency_checking has found.
check_log()
{
	local bad
	bad=$(grep -E 'PANIC:|TRAP:|terminated by signal (4|6|7|8|11)|inconsistent page found' \
		"$cluster/server.log" | sed -n 1,10p || true)
	if [ -z "$bad" ]; then
		result ok "$1: server log"
	else
		printf '%s\n' "$bad"
		cp "$cluster/server.log" "$work/server-$pg-$1.log"
		result fail "$1: server log, kept in $work/server-$pg-$1.log"
	fi
}

# crash_and_recover LABEL: stops the server in immediate mode and starts it, so that
# it replays its WAL and compares every page with its image. Then checks the tables.
crash_and_recover()
{
	stop_cluster immediate || true
	if as_server "$bindir/pg_ctl" -s -w -t 600 -D "$cluster/data" -l "$cluster/server.log" \
		start >&2; then
		result ok "$1: crash recovery with every page compared"
		check_tables "$1, recovered"
	else
		tail -n 20 "$cluster/server.log"
		cp "$cluster/server.log" "$work/server-$pg-$1.log"
		result fail "$1: crash recovery, log kept in $work/server-$pg-$1.log"
		return 1
	fi
}

# Stops and removes the cluster.
drop_cluster()
{
	stop_cluster fast || true
	rm -rf "$cluster"
}

# Builds and installs the extension zundo_test of test/.
install_test_module()
{
	local log=$work/module-$pg.log
	local options
	mapfile -t options < <(build_options)
	if ! { make -s -C "$copy/test" "PG_CONFIG=$pg_config" clean &&
		make -s -C "$copy/test" "PG_CONFIG=$pg_config" "${options[@]}" all &&
		"${installer[@]}" make -s -C "$copy/test" "PG_CONFIG=$pg_config" "${options[@]}" install; } >"$log" 2>&1; then
		tail -n 20 "$log"
		result fail "the module zundo_test does not build"
		return 1
	fi
}

# Runs the unit tests. Every function f(seed int, rounds int) of the module zundo_test
# is one: it returns the number of cases that it has tried, or raises an error. Each
# runs with two fixed seeds and a random one, which the result names.
part_unit()
{
	local functions f seed cases
	new_cluster </dev/null || { result fail "unit: the server starts"; return; }
	psql_quiet -d postgres -c 'CREATE EXTENSION zundo_test'
	functions=$(psql_quiet -d postgres -c "SELECT p.proname FROM pg_proc p
		JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
		JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'zundo_test'
		WHERE p.proargtypes = '23 23'::oidvector ORDER BY 1")
	[ -n "$functions" ] || none_found unit test
	for f in $functions; do
		wanted "$f" || continue
		for seed in 1 2 $((RANDOM + 3)); do
			if cases=$(query postgres "SELECT $f($seed, ${ZUNDO_UNIT_ROUNDS:-500})") &&
				[ "${cases:-0}" -gt 0 ] 2>/dev/null; then
				result ok "$f, seed $seed: $cases cases"
			else
				result fail "$f, seed $seed: $cases"
			fi
		done
	done
	[ $((passed + failed)) -eq 0 ] || check_log unit
	drop_cluster
}

# part_fuzz wal|undo: gives damaged WAL or undo records to their decoders (test/fuzz.c),
# for $ZUNDO_FUZZ_SECONDS. The records are those of test/fuzz.sql.
part_fuzz()
{
	local since seconds=${ZUNDO_FUZZ_SECONDS:-20} seed=${ZUNDO_RANDOM_SEED:-$((RANDOM + 1))} out
	case $tier in all) seconds=${ZUNDO_FUZZ_SECONDS:-60} ;; long) seconds=${ZUNDO_FUZZ_SECONDS:-300} ;; esac
	new_cluster <<C || { result fail "fuzz: the server starts"; return; }
wal_level = logical
autovacuum = off
checkpoint_timeout = 1h
max_wal_size = 20GB
C
	since=$(psql_quiet -d postgres -c 'SELECT pg_current_wal_insert_lsn()')
	if psql_quiet -d postgres -f "$copy/test/fuzz.sql" >"$work/fuzz-$pg-$1.log" 2>&1 &&
		out=$(query postgres "SELECT zundo_test_fuzz('$1', '$since', $seed, $seconds)"); then
		result ok "$1, seed $seed: $out"
	else
		tail -n 20 "$work/fuzz-$pg-$1.log"
		cp "$cluster/data/zundo_fuzz_input" "$work/fuzz-$pg-$1.input" || true
		result fail "$1, seed $seed: ${out:-the records cannot be made}, input at the end of $work/fuzz-$pg-$1.input"
	fi
	check_log "fuzz-$1"
	drop_cluster
}

# tap_modules: prints the folder of the server's Perl modules for TAP tests. A server
# that has none is tested with those of another version in the system's packages.
tap_modules()
{
	local d
	for d in "$(server_tests)/perl" /usr/lib/postgresql/*/lib/pgxs/src/test/perl /usr/pgsql-*/lib/pgxs/src/test/perl; do
		[ ! -f "$d/PostgreSQL/Test/Cluster.pm" ] || { echo "$d"; return; }
	done
	say "no server has the modules for TAP tests"
}

# tap_file FILE: runs one file of t/.
tap_file() { run_tap "$(basename "$1" .pl)" "$copy/t/$1"; }

# run_tap NAME FILE [VARIABLE=VALUE...]: runs a TAP test with these variables in its
# environment. Each of its tests, not of its subtests, counts as one result.
run_tap()
{
	local name=$1 file=$2 log ok bad status=0 dir kept src
	shift 2
	kept=$work/tap-$pg/$name
	dir=${TMPDIR:-$work/tap-$pg}/tap-$pg-$name
	log=$kept.log
	src=$(server_tests)
	unset PGHOST PGPORT PGUSER
	rm -rf "$dir" "$kept"
	as_server mkdir -p "$dir/log"
	# PGCTLTIMEOUT: with assertions replay checks every changed page, which takes time
	as_server env PGCTLTIMEOUT=600 "PERL5LIB=$(tap_modules):$copy/t" "PATH=$copy/tools/with-template:$bindir:$PATH" \
		"ZUNDO_BINDIR=$bindir" "ZUNDO_TEMPLATES=$work/templates-$pg" \
		"PG_REGRESS=$src/regress/pg_regress" "PG_CONFIG=$pg_config" "top_builddir=$dir" \
		"TESTDIR=$dir" "TESTDATADIR=$dir/tmp_check" "TESTLOGDIR=$dir/log" \
		"PG_TEST_PORT_DIR=$work/tap-ports" \
		"PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-180}" \
		"share_contrib_dir=$("$pg_config" --sharedir)/contrib" "$@" \
		timeout -k 60 "$(time_limit)" prove --verbose --norc "$file" >"$log" 2>&1 || status=$?
	[ $status -ne 124 ] || echo "# terminated after $(time_limit) s" >>"$log"
	ok=$(grep -cE '^ok [0-9]+' "$log" || true)
	ok=$((ok - $(grep -cE '^ok [0-9]+.*# (SKIP|skip)' "$log" || true)))
	bad=$(grep -cE '^not ok [0-9]+' "$log" || true)
	passed=$((passed + ok))
	if [ "$status" -eq 0 ]; then
		if [ "$ok" -eq 0 ]; then
			printf '  skipped %s%s\n' "$name" \
				"$(sed -nE 's/.*(# SKIP|# skip|\.\. skipped:) */: /p' "$log" | sed -n 1p)"
		else
			printf '  ok      %s (%d)\n' "$name" "$ok"
			sed -nE 's/^ok [0-9]+.*# (SKIP|skip) */          skipped in it: /p' "$log" | sort -u
		fi
		rm -rf "$dir"
		return
	fi
	[ "$bad" -gt 0 ] || bad=1
	failed=$((failed + bad))
	failures+=("$pg: t/$name ($bad)")
	mv "$dir" "$kept"
	printf '  FAILED  %s (%d of %d), logs in %s\n' "$name" "$bad" $((ok + bad)) "$kept"
	# which test failed, and how, comes first: the end of the log may be long
	grep -A 8 -E '^# +Failed test|^# Tests were run|exited with' "$log" | sed -n 1,40p || true
	grep -vE '^ok [0-9]+|^# (Running|Name|Data|Backup|Archive|Connection|Log|issuing|results)' "$log" |
		tail -n 25 || true
}

# random_run 'NAME: PROGRAM ARG...': runs a program of test/random once.
random_run()
{
	local name=${1%%: *} log
	local -a command
	log=$work/random-$pg-${name//[^a-z0-9]/-}.log
	read -ra command <<<"${1#*: }"
	# python's libpq is the system's
	if timeout -k 60 "$(time_limit)" env -u LD_LIBRARY_PATH /usr/bin/python3 \
		"$copy/test/random/${command[0]}" --bindir "$bindir" "${command[@]:1}" >"$log" 2>&1; then
		result ok "$name: $(tail -n 1 "$log" | cut -c1-120)"
	else
		result fail "$name"
		tail -n 40 "$log" | cut -c1-300
	fi
}

# random_runs SERVER: prints the runs of the programs of test/random, and of the saved
# histories, as lines 'NAME: PROGRAM ARG...'.
random_runs()
{
	local f length=1 minutes rounds programs new seed=${ZUNDO_RANDOM_SEED:-20261121}
	case $tier:${1%[asvc]} in
		one:* | all:17) ;;
		default:* | all:*) length=0.2 ;;
		long:17) length=5 ;;
		long:*) length=2 ;;
	esac
	minutes=${ZUNDO_RANDOM_MINUTES:-$length}
	rounds=${ZUNDO_CRASH_ROUNDS:-$(scale 4 $length)}
	programs=${ZUNDO_NESTED_PROGRAMS:-$(scale 60 $length)}
	new="history.py --minutes $minutes --seed $seed"
	echo "twins with a standby: twins.py --rounds $rounds --standby --faults --trouble"
	echo "histories: $new"
	echo "histories with triggers, keys, upserts and 2PC:" \
		"$new --fk --triggers --prepare --on-conflict"
	echo "wide histories: $new --wide all --fk --triggers --on-conflict"
	echo "histories of temporary tables: $new --temp --fk --triggers"
	echo "nested commands: nested.py --minutes $(scale 2 $length)" \
		"--programs $programs --seed $seed"
	echo "deleted and refilled: refill.py --minutes $(scale 2 $length)" \
		"--histories $(scale 8 $length) --seed $seed"
	[ "${1%[asvc]}" -lt 18 ] || echo "unique keys: unique.py --standby --minutes $minutes --seed $seed"
	echo "crashes: crash.py --rounds $rounds"
	echo "decoded and applied: decoded.py --rounds $(scale 6 $length) --seed $seed"
	case $tier:${1%[asvc]} in
		long:17)
			echo "fault points: faults.py"
			echo "damaged pages: damage.py --trials 1000"
			echo "damaged pages under load: damage.py --trials 100 --mode busy"
			;;
		long:*)
			echo "fault points: faults.py --points 10 --seed $seed"
			echo "damaged pages: damage.py --trials 100 --seed $seed"
			;;
		one:* | default:* | all:17)
			echo "fault points: faults.py --points $(scale 6 $length) --seed $seed"
			echo "damaged pages: damage.py --trials $(scale 40 $length) --seed $seed"
			;;
	esac
	[ "$tier" != long ] || echo "decoded and applied, with DDL: decoded.py" \
		"--rounds $(scale 6 $length) --seed $((seed + 1))"
	for f in "$top"/test/random/cases/*.json; do
		f=$(basename "$f")
		echo "case ${f%.json}: history.py --replay $work/build-$1/test/random/cases/$f"
	done
}

# scale NUMBER FACTOR: prints the product, rounded up.
scale() { awk -v n="$1" -v f="$2" 'BEGIN { n *= f; print int(n) + (n > int(n)) }'; }

# core_tests SUITE SCHEDULE: prints the wanted tests of a suite. Most tests of the
# regression suite need tables that its first tests make, so those are added.
core_tests()
{
	local line only
	mapfile -t only < <(sed -n 's/^test: *//p' "$2" | tr -s ' ' '\n' |
		while read -r line; do if wanted "$line"; then echo "$line"; fi; done)
	[ ${#only[@]} -gt 0 ] || return 0
	case $1 in
		regression | moved | zbtree) printf '%s\n' test_setup create_misc create_index ;;
		*) printf '%s\n' "${only[@]}"; return ;;
	esac
	for line in "${only[@]}"; do
		is_one_of "$line" test_setup create_misc create_index || echo "$line"
	done
}

# core_suite SUITE DRIVER FOLDER SCHEDULE OPTION...: runs one of the server's own
# suites with a time limit for all of it. One result for each of its tests.
core_suite()
{
	local suite=$1 driver=$2 folder=$3 schedule=$3/$4 output=$work/out-$pg/core-$1
	local seconds=${ZUNDO_CORE_SECONDS:-900} what how=() line status=0
	shift 4
	case $suite in
		moved) how=(--moved) ;;
		zbtree*) how=(--also "$copy/test/core/accepted/$major/${plain[$suite]}") ;;
	esac
	as_server_dir "$output"
	what=("--schedule=$schedule")
	if [ ${#names[@]} -gt 0 ]; then
		mapfile -t what < <(core_tests "$suite" "$schedule")
		[ ${#what[@]} -gt 0 ] || return 0
		how+=(--only "${what[@]}")
	fi
	as_server env "PGISOLATIONTIMEOUT=$((2 * ${PG_TEST_TIMEOUT_DEFAULT:-30}))" \
		"PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-30}" \
		timeout -k 20 "$seconds" "$work/core-$major/$driver" --host="$PGHOST" --port="$PGPORT" \
		--user=postgres --bindir="$bindir" --inputdir="$folder" --outputdir="$output" \
		--load-extension=zundo "$@" "${what[@]}" >"$output/log" 2>&1 || status=$?
	if [ $status -eq 124 ] || [ $status -eq 137 ]; then
		result fail "core $suite: not done in $seconds s"
	fi
	chmod -R a+rwX "$output"
	while read -r status line; do
		result "$status" "$suite: $line"
	done < <(python3 "$copy/test/core/compare.py" --log "$output/log" --output "$output" \
		--schedule "$schedule" --accepted "$copy/test/core/accepted/$major/$suite" "${how[@]}")
}

# For each suite with zbtree indexes the suite without, whose accepted differences
# are accepted in it, too.
declare -A plain=([zbtree]=regression [zbtree-isolation]=isolation)

# part_core regression|isolation|moved|zbtree|zbtree-isolation: runs one of
# PostgreSQL's own suites. Needs a server with assertions whose source tree is there.
part_core()
{
	local tests=$work/core-$major
	new_cluster <<C || { result fail "core: the server starts"; return; }
default_table_access_method = 'zheap'
zundo.allow_ctid_guard = on
$([ "$1" != moved ] || echo "zundo.move_updates = on")
$([ "${1#zbtree}" = "$1" ] || echo "zundo.swap_btree = on")
C
	case $1 in
		isolation | zbtree-isolation)
			core_suite "$1" isolation/pg_isolation_regress "$tests/isolation" isolation_schedule
			;;
		*)
			core_suite "$1" regress/pg_regress "$tests/regress" parallel_schedule \
				--dlpath="$tests/regress" --max-concurrent-tests=20
			;;
	esac
	check_tables "core $1"
	check_log "core-$1"
	drop_cluster
	[ ! -d "$work/out-$pg/core-$1/different" ] ||
		echo "  differences are in $work/out-$pg/core-$1/different"
}

# Compares what single operations cost with the bounds; --record writes new bounds.
part_cost()
{
	local log=$work/cost-$pg.log options=() status line ran=0
	[ $record = no ] || options=(--record)
	# python's libpq is the system's
	env -u LD_LIBRARY_PATH /usr/bin/python3 "$copy/bench/cost.py" --bindir "$bindir" \
		--bounds "$top/test/cost/bounds-$pg" "${options[@]}" "${names[@]}" >"$log" 2>&1 || ran=$?
	while read -r status line; do
		case $status in
			ok) result ok "$line" ;;
			FAILED) result fail "$line" ;;
			*) echo "  $status $line" ;;
		esac
	done <"$log"
	[ $ran -eq 0 ] || grep -q '^FAILED' "$log" || result fail "cost: status $ran, log in $log"
}

# part_decoding regression|isolation|FILE: runs the tests of contrib/test_decoding, or
# one file of its t/ or of src/test/subscription/t. Needs a server with assertions.
part_decoding()
{
	local tests=$work/core-$major driver=regress/pg_regress
	case $1 in *.pl) decoding_tap "$tests/$1"; return ;; esac
	new_cluster <<C || { result fail "decoding: the server starts"; return; }
$(cat "$tests/test_decoding/logical.conf")
default_table_access_method = 'zheap'
C
	# some tests connect to template1
	psql_quiet -d template1 -c 'CREATE EXTENSION zundo'
	[ "$1" = regression ] || driver=isolation/pg_isolation_regress
	core_suite "decoding-$1" "$driver" "$tests/test_decoding" "$1_schedule" \
		--dbname=contrib_regression
	check_tables "decoding $1"
	check_log "decoding-$1"
	drop_cluster
}

# decoding_tap FILE: runs a file of TAP tests, with the settings of
# test/core/tap_settings. All databases of its clusters have the extension.
decoding_tap()
{
	local folder=${1%/t/*} icu=no points=no name config versions file setting
	name=$(basename "$folder")-$(basename "$1" .pl)
	config=$work/decoding-$pg-$name.conf
	printf '%s\n' "shared_preload_libraries = 'zundo'" "default_table_access_method = 'zheap'" \
		>"$config"
	while read -r versions file setting; do
		case $1:,$versions, in *"/$file:"*",$major,"*) ;; *) continue ;; esac
		[ "$setting" != skip ] || { echo "  skipped $name (test/core/tap_settings)"; return; }
		echo "$setting" >>"$config"
	done <"$copy/test/core/tap_settings"
	chmod a+r "$config"
	! grep -q 'define USE_ICU 1' "$("$pg_config" --includedir-server)/pg_config.h" || icu=yes
	[[ $("$pg_config" --configure) != *injection-points* ]] || points=yes
	run_tap "$name" "$1" "TEMP_CONFIG=$config" \
		"with_icu=$icu" "enable_injection_points=$points" \
		"PATH=$copy/tools/with-zundo:$bindir:$PATH"
}

# Copies PostgreSQL's suites, and makes the schedules that test_decoding lacks.
copy_core_tests()
{
	local src=$HOME/.cache/zundo/pg$major/src/src/test tests=$work/core-$major
	local contrib=$src/../../contrib/test_decoding
	need_packages python3
	[ ! -f "$tests/complete" ] || [ "$src/regress/regress.so" -nt "$tests/complete" ] || return 0
	rm -rf "$tests"
	mkdir -p "$tests"
	cp -a "$src/regress" "$src/isolation" "$src/subscription" "$contrib" "$tests/"
	make_schedule REGRESS "$contrib" >"$tests/test_decoding/regression_schedule"
	make_schedule ISOLATION "$contrib" >"$tests/test_decoding/isolation_schedule"
	chmod -R a+rX "$tests"
	touch "$tests/complete"
}

# make_schedule VARIABLE FOLDER: prints a schedule of the tests that the variable
# (REGRESS or ISOLATION) of the folder's Makefile names, one after the other.
make_schedule()
{
	sed -n "/^$1 = /,/[^\\\\]\$/p" "$2/Makefile" | sed "s/^$1 = //; s/\\\\\$//" | tr -s ' \t' '\n' |
		sed -n 's/./test: &/p'
}

# as_server_dir DIR: creates a directory that the server's user may write to.
as_server_dir()
{
	mkdir -p "$1"
	! am_root || chown postgres "$1"
}

# none_found PART FOLDER: fails, unless the command line names tests.
none_found()
{
	if [ ${#names[@]} -gt 0 ]; then return 0; fi
	result fail "$1: no tests found in $2/"
}
