# tools/test.sh - ./zundo test: all tests on an installed server.
#
# Sourced by ./zundo after tools/common.sh. Parts, in this order:
#   build      gcc and clang, every warning an error
#   unit       test/: the functions of the module zundo_test
#   sql        sql/ and expected/, by pg_regress
#   isolation  specs/ and expected/, by pg_isolation_regress
#   tap        t/, by prove: crashes, restarts, standbys
#   random     test/random/: histories on heap and zheap side by side, kill -9 under load
#   core       PostgreSQL's own regression and isolation suites with every table made by zheap,
#              on a server with assertions; test/core/ has the accepted differences; with --moved
#              every update gives its row a new place, as on heap
# After sql and isolation the cluster is examined: zundo.check() of every
# zheap table, and its log for crashes; the sql cluster is also killed and
# recovered with wal_consistency_checking on.
# A part that has no tests says so and counts as one failure.

passed=0
failed=0
failures=()

# result ok|fail NAME: one line, one count.
result()
{
	if [ "$1" = ok ]; then
		passed=$((passed + 1))
		printf '  ok      %s\n' "$2"
	else
		failed=$((failed + 1))
		failures+=("$pg: $2")
		printf '  FAILED  %s\n' "$2"
	fi
}

# two_at_a_time FUNCTION ITEM...: FUNCTION ITEM for each, two at a time, in subshells: they wait more than they work. What one prints
# comes out in one piece, in the order of the items; its results are counted here.
two_at_a_time()
{
	local function=$1 item n=0 shown=0 dir=$work/jobs-$pg
	shift
	rm -rf "$dir"
	mkdir -p "$dir"
	for item; do
		while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || true; done
		show_finished
		(
			passed=0 failed=0 failures=()
			"$function" "$item" >"$dir/$n.out" 2>&1 || true
			printf '%s\n' "$passed" "$failed" "${failures[@]}" >"$dir/$n.new"
			mv "$dir/$n.new" "$dir/$n.count"
		) &
		n=$((n + 1))
	done
	wait || true
	show_finished
	while [ $shown -lt $n ]; do
		cat "$dir/$shown.out"
		result fail "a job of $function that ended before its time"
		shown=$((shown + 1))
		show_finished
	done
}

# Print and count the jobs of two_at_a_time that are done, up to the first one that is not.
show_finished()
{
	local counts
	while [ -f "$dir/$shown.count" ]; do
		cat "$dir/$shown.out"
		mapfile -t counts <"$dir/$shown.count"
		passed=$((passed + counts[0]))
		failed=$((failed + counts[1]))
		failures+=("${counts[@]:2}")
		shown=$((shown + 1))
	done
}

# wanted NAME: does the user want this test?
wanted()
{
	local n
	[ ${#names[@]} -gt 0 ] || return 0
	for n in "${names[@]}"; do case $1 in *"$n"*) return 0 ;; esac; done
	return 1
}

has_part() { { [ ${#parts[@]} -eq 0 ] && { [ "$1" != core ] || [ $all = yes ]; } && { [ "$1" != build ] || [ ${#names[@]} -eq 0 ]; }; } || case " ${parts[*]} " in *" $1 "*) true ;; *) false ;; esac; }

# Tests of one folder, one name per line: those of its schedule in that order
# (lines "test: a b c"), else all.
list_tests()
{
	local folder=$1 ending=$2 t f
	if [ -f "$folder/schedule" ]; then
		sed -n 's/^test: *//p' "$folder/schedule" | tr -s ' ' '\n'
	else
		for f in "$folder"/*"$ending"; do [ ! -f "$f" ] || basename "$f" "$ending"; done
	fi | while read -r t; do if wanted "$t"; then echo "$t"; fi; done
}

# run_regress DRIVER SOURCE OUTPUT NAME: run one test by pg_regress or
# pg_isolation_regress, in a database of its own. Its file SOURCE may create the
# extension itself; otherwise it finds it there. A file with a comment "on: heap zheap" runs on
# each of the two, with the same expected output.
run_regress()
{
	local am load=(--load-extension=zundo)
	if grep -qE '^(#|--) on: heap zheap$' "$2"; then
		for am in heap zheap; do
			database_for "test_$4_$am" $am
			regress_once "$1" "$3/$4-$am" "$4" "$4 on $am" --dbname="test_$4_$am" --use-existing
			result_of_watch "test_$4_$am" "$4 on $am"
		done
		return
	fi
	! grep -qiE 'CREATE +EXTENSION +(IF +NOT +EXISTS +)?zundo' "$2" || load=()
	regress_once "$1" "$3/$4" "$4" "$4" --dbname="test_$4" "${load[@]}"
}

# regress_once DRIVER OUTPUT NAME LABEL OPTION...
regress_once()
{
	local driver=$1 output=$2 name=$3 label=$4
	shift 4
	as_server_dir "$output"
	if as_server env "PGISOLATIONTIMEOUT=$((2 * ${PG_TEST_TIMEOUT_DEFAULT:-30}))" "PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-30}" "$driver" --host="$PGHOST" --port="$PGPORT" --user=postgres --bindir="$bindir" --inputdir="$copy" \
		--outputdir="$output" "$@" "$name" >"$output/log" 2>&1 9>&-; then
		result ok "$label"
		return
	fi
	result fail "$label"
	if [ -s "$output/regression.diffs" ]; then
		echo "  --- $output/regression.diffs, first 100 lines ---"
		head -n 100 "$output/regression.diffs"
	else
		echo "  --- $output/log ---"
		tail -n 30 "$output/log"; echo
	fi
}

# database_for NAME AM: a database whose tables are AM's, and which watches over that: before tables are dropped it
# fails unless each of them is AM's, or is named mixed_..., and unless the zheap ones pass zundo.check.
database_for()
{
	psql_quiet -d postgres -c "CREATE DATABASE \"$1\" TEMPLATE template0"
	psql_quiet -d "$1" <<-SQL
		CREATE EXTENSION zundo;
		ALTER DATABASE "$1" SET default_table_access_method = $2;
		CREATE SCHEMA watch;
		CREATE SEQUENCE watch.tables;
		CREATE FUNCTION watch.look() RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog AS \$\$
		DECLARE
			t record;
			fault record;
		BEGIN
			FOR t IN SELECT c.oid::regclass AS name, a.amname AS am FROM pg_class c JOIN pg_am a ON a.oid = c.relam
					WHERE c.relkind IN ('r', 'm') AND c.relpersistence <> 't'
						AND c.relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema', 'pg_toast', 'zundo') LOOP
				IF t.am <> '$2' AND t.name::text !~ 'mixed_' THEN RAISE EXCEPTION 'table % is % and not $2', t.name, t.am; END IF;
				PERFORM nextval('watch.tables');
				CONTINUE WHEN t.am <> 'zheap';
				FOR fault IN SELECT * FROM zundo.check(t.name) LOOP
					RAISE EXCEPTION 'zundo.check of %: %', t.name, fault;
				END LOOP;
			END LOOP;
		END \$\$;
		CREATE FUNCTION watch.look_first() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM watch.look(); END';
		CREATE EVENT TRIGGER look ON ddl_command_start WHEN TAG IN ('DROP TABLE', 'DROP SCHEMA') EXECUTE FUNCTION watch.look_first();
	SQL
}

# result_of_watch DATABASE LABEL: has it seen tables, and are those that are left right?
result_of_watch()
{
	local out
	out=$(psql_quiet -d "$1" -c 'SELECT watch.look()' -c 'SELECT is_called FROM watch.tables' 2>&1) || true
	[ "$(tr -d '\n' <<<"$out")" = t ] || result fail "$2: which tables it had: $out"
}

# check_tables LABEL: zundo.check() finds nothing in any zheap table.
check_tables()
{
	local database databases faults='' n=0 out table
	databases=$(psql_quiet -d postgres -c "SELECT datname FROM pg_database WHERE datallowconn" 2>&1) || {
		result fail "$1: the server is gone: $databases"
		return
	}
	for database in $databases; do
		[ "$(psql_quiet -d "$database" -c "SELECT count(*) FROM pg_extension WHERE extname = 'zundo'")" = 1 ] || continue
		while read -r table; do
			[ -n "$table" ] || continue
			n=$((n + 1))
			out=$(psql_quiet -d "$database" -c "SELECT * FROM zundo.check($table::oid::regclass)" 2>&1) || out="error: $out"
			[ -z "$out" ] || faults+="$database $table: $out"$'\n'
		done < <(psql_quiet -d "$database" -c "SELECT c.oid FROM pg_class c JOIN pg_am a ON a.oid = c.relam
			WHERE a.amname = 'zheap' AND c.relkind IN ('r', 'm') AND c.relpersistence <> 't'")
	done
	if [ -z "$faults" ]; then result ok "$1: zundo.check of $n tables"; else
		head -n 20 <<<"$faults"
		result fail "$1: zundo.check"
	fi
}

# check_log LABEL: no process crashed, no PANIC, no failed assertion.
check_log()
{
	local bad
	bad=$(grep -E 'PANIC:|TRAP:|terminated by signal (4|6|7|8|11)|inconsistent page found' "$cluster/server.log" | head -n 10 || true)
	if [ -z "$bad" ]; then result ok "$1: server log"; else
		printf '%s\n' "$bad"
		cp "$cluster/server.log" "$work/server-$pg-$1.log"
		result fail "$1: server log, kept in $work/server-$pg-$1.log"
	fi
}

# Kill the server as a power failure would, and let it replay everything with
# every page compared to its image.
crash_and_recover()
{
	stop_cluster immediate || true
	if as_server "$bindir/pg_ctl" -s -w -t 600 -D "$cluster/data" -l "$cluster/server.log" start >&2 9>&-; then
		result ok "$1: crash recovery with every page compared"
		check_tables "$1, recovered"
	else
		tail -n 20 "$cluster/server.log"
		cp "$cluster/server.log" "$work/server-$pg-$1.log"
		result fail "$1: crash recovery, log kept in $work/server-$pg-$1.log"
		return 1
	fi
}

drop_cluster()
{
	stop_cluster fast || true
	rm -rf "$cluster"
}

# sql/ and expected/, on a cluster that is killed, recovered and examined afterwards.
part_sql()
{
	local tests t driver
	mapfile -t tests < <(list_tests "$copy/sql" .sql)
	if [ ${#tests[@]} -eq 0 ]; then none_found sql sql; return; fi
	new_cluster <<'C' || { result fail "sql: the server starts"; return; }
wal_level = replica
wal_consistency_checking = 'zundo,heap,heap2,btree,hash,gin,spgist,brin' # 18's GiST replays other bytes on heap too
checkpoint_timeout = 1h
max_wal_size = 20GB
C
	rm -rf "$work/out-$pg-sql"
	driver=$(dirname "$("$pg_config" --pgxs)")/../../src/test/regress/pg_regress
	for t in "${tests[@]}"; do run_regress "$driver" "$copy/sql/$t.sql" "$work/out-$pg-sql" "$t"; done
	check_tables sql
	crash_and_recover sql || true
	check_log sql
	drop_cluster
}

# install_test_module PART: the extension zundo_test of test/, built and installed.
install_test_module()
{
	local log=$work/module-$pg.log
	if ! { make -s -C "$copy/test" "PG_CONFIG=$pg_config" clean all && "${installer[@]}" make -s -C "$copy/test" "PG_CONFIG=$pg_config" install; } >"$log" 2>&1; then
		tail -n 20 "$log"
		result fail "$1: the module zundo_test does not build"
		return 1
	fi
}

# Every function f(seed int, rounds int) of the module zundo_test is a unit test:
# it returns the number of cases that it tried, and fails by an error. Two fixed
# seeds and a fresh one, which the result names.
part_unit()
{
	local functions f seed cases before=$((passed + failed))
	install_test_module unit || return 0
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
			if cases=$(psql_quiet -d postgres -c "SELECT $f($seed, ${ZUNDO_UNIT_ROUNDS:-500})" 2>&1) && [ "${cases:-0}" -gt 0 ] 2>/dev/null; then
				result ok "$f, seed $seed: $cases cases"
			else
				result fail "$f, seed $seed: $cases"
			fi
		done
	done
	[ $((passed + failed)) -eq $before ] || check_log unit
	drop_cluster
}

part_isolation()
{
	local tests t driver
	mapfile -t tests < <(list_tests "$copy/specs" .spec)
	if [ ${#tests[@]} -eq 0 ]; then none_found isolation specs; return; fi
	new_cluster </dev/null || { result fail "isolation: the server starts"; return; }
	rm -rf "$work/out-$pg-isolation"
	driver=$(dirname "$("$pg_config" --pgxs)")/../../src/test/isolation/pg_isolation_regress
	for t in "${tests[@]}"; do run_regress "$driver" "$copy/specs/$t.spec" "$work/out-$pg-isolation" "$t"; done
	check_tables isolation
	check_log isolation
	drop_cluster
}

# One file of t/: every "ok" line of its own level counts.
tap_file()
{
	local file=$copy/t/$1 name log ok bad status=0 dir src
	name=$(basename "$file" .pl)
	dir=$work/tap-$pg/$name
	log=$work/tap-$pg/$name.log
	src=$(dirname "$("$pg_config" --pgxs)")/../../src/test
	rm -rf "$dir"
	as_server mkdir -p "$dir/log"
	as_server env "PERL5LIB=$src/perl:$copy/t" "PG_REGRESS=$src/regress/pg_regress" "PATH=$bindir:$PATH" \
		"TESTDIR=$dir" "TESTDATADIR=$dir/tmp_check" "TESTLOGDIR=$dir/log" "top_builddir=$dir" "PG_CONFIG=$pg_config" \
		"PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-60}" "share_contrib_dir=$("$pg_config" --sharedir)/contrib" \
		prove --verbose --norc "$file" >"$log" 2>&1 9>&- || status=$?
	ok=$(grep -cE '^ok [0-9]+' "$log" || true)
	ok=$((ok - $(grep -cE '^ok [0-9]+.*# (SKIP|skip)' "$log" || true)))
	bad=$(grep -cE '^not ok [0-9]+' "$log" || true)
	passed=$((passed + ok))
	if [ "$status" -eq 0 ]; then
		if [ "$ok" -eq 0 ]; then
			printf '  skipped %s %s\n' "$name" "$(sed -nE 's/.*# (SKIP|skip) */: /p' "$log" | head -n 1)"
		else
			printf '  ok      %s (%d)\n' "$name" "$ok"
		fi
		rm -rf "$dir"
		return
	fi
	[ "$bad" -gt 0 ] || bad=1
	failed=$((failed + bad))
	failures+=("$pg: t/$name ($bad)")
	printf '  FAILED  %s (%d of %d), logs in %s\n' "$name" "$bad" $((ok + bad)) "$dir"
	grep -vE '^ok [0-9]+|^# (Running|Name|Data|Backup|Archive|Connection|Log)' "$log" | tail -n 40
}

part_tap()
{
	local tests paths
	mapfile -t tests < <(list_tests "$copy/t" .pl)
	paths=("${tests[@]/#/$copy/t/}")
	paths=("${paths[@]/%/.pl}")
	if [ ${#tests[@]} -eq 0 ]; then none_found tap t; return; fi
	if grep -q 'EXTENSION zundo_test' "${paths[@]}"; then install_test_module tap || return 0; fi
	rm -rf "$work/tap-$pg"
	as_server_dir "$work/tap-$pg"
	unset PGHOST PGPORT PGUSER
	export PG_TEST_PORT_DIR=$work/tap-$pg/ports
	as_server_dir "$PG_TEST_PORT_DIR"
	two_at_a_time tap_file "${tests[@]/%/.pl}"
}

# random_run 'NAME: PROGRAM ARG...': one run of a program of test/random.
random_run()
{
	local name=${1%%: *} log
	local -a command
	wanted "$name" || return 0
	log=$work/random-$pg-${name//[^a-z0-9]/-}.log
	read -ra command <<<"${1#*: }"
	if timeout 900 /usr/bin/python3 "$copy/test/random/${command[0]}" --bindir "$bindir" "${command[@]:1}" >"$log" 2>&1; then
		result ok "$name: $(tail -n 1 "$log" | cut -c1-120)"
	else
		result fail "$name"
		tail -n 40 "$log" | cut -c1-300
	fi
}

# The saved histories, new ones, and kill -9 under load.
part_random()
{
	local f runs=() new="history.py --minutes ${ZUNDO_RANDOM_MINUTES:-1} --seed ${ZUNDO_RANDOM_SEED:-20261121}" rounds=${ZUNDO_CRASH_ROUNDS:-4}
	need_packages python3 python3-psycopg2
	for f in "$copy"/test/random/cases/*.json; do
		runs+=("case $(basename "$f" .json): history.py --replay $f")
	done
	two_at_a_time random_run "twins with a standby: twins.py --rounds $rounds --standby --faults --trouble" "${runs[@]}" \
		"histories: $new" \
		"histories with triggers, keys, upserts and 2PC: $new --fk --triggers --prepare --on-conflict" \
		"wide histories: $new --wide all --fk --triggers --on-conflict" \
		"histories of temporary tables: $new --temp --fk --triggers" \
		"nested commands: nested.py --minutes 2 --programs ${ZUNDO_NESTED_PROGRAMS:-60} --seed ${ZUNDO_RANDOM_SEED:-20261121}" \
		"crashes: crash.py --rounds $rounds"
}

# core_suite SUITE DRIVER FOLDER OPTION...: run one of the server's own suites, with the
# time limit of that suite; one result for each of its tests. Tests of the
# regression suite need some of the first ones' tables: with names given these run too.
core_suite()
{
	local suite=$1 driver=$2 folder=$3 schedule=$3/$4 output=$work/out-$pg-core/$1 accepted=$1 what only=() how=() line status=0
	shift 4
	[ $moved = no ] || accepted=moved how=(--moved)
	as_server_dir "$output"
	what=("--schedule=$schedule")
	if [ ${#names[@]} -gt 0 ]; then
		mapfile -t only < <(sed -n 's/^test: *//p' "$schedule" | tr -s ' ' '\n' | while read -r line; do if wanted "$line"; then echo "$line"; fi; done)
		[ ${#only[@]} -gt 0 ] || return 0
		what=("${only[@]}")
		if [ "$suite" = regression ]; then
			what=(test_setup create_misc create_index)
			for line in "${only[@]}"; do case " ${what[*]} " in *" $line "*) ;; *) what+=("$line") ;; esac; done
		fi
	fi
	as_server env "PGISOLATIONTIMEOUT=$((2 * ${PG_TEST_TIMEOUT_DEFAULT:-30}))" "PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-30}" timeout -k 20 "${ZUNDO_CORE_SECONDS:-900}" "$folder/$driver" --host="$PGHOST" --port="$PGPORT" --user=postgres \
		--bindir="$bindir" --inputdir="$folder" --outputdir="$output" --load-extension=zundo "$@" "${what[@]}" >"$output/log" 2>&1 9>&- || status=$?
	if [ $status -eq 124 ] || [ $status -eq 137 ]; then result fail "core $suite: not done in ${ZUNDO_CORE_SECONDS:-900} s"; fi
	chmod -R a+rwX "$output"
	while read -r status line; do result "$status" "$suite: $line"; done < <(python3 "$copy/test/core/compare.py" --log "$output/log" --output "$output" --schedule "$schedule" \
		--accepted "$copy/test/core/accepted/$major/$accepted" "${how[@]}" --only "${only[@]}")
}

# PostgreSQL's own suites, always on a server with assertions whose source tree is there.
part_core()
{
	local src tests=$work/core-$major
	need_packages python3
	src=$HOME/.cache/zundo/pg$major/src/src/test
	if [ ! -f "$tests/complete" ] || [ "$src/regress/regress.so" -nt "$tests/complete" ]; then
		rm -rf "$tests"
		mkdir -p "$tests"
		cp -a "$src/regress" "$src/isolation" "$tests/"
		chmod -R a+rX "$tests"
		touch "$tests/complete"
	fi
	new_cluster <<C || { result fail "core: the server starts"; return; }
default_table_access_method = 'zheap'
$( [ $moved = no ] || echo "zundo.move_updates = on" )
C
	rm -rf "$work/out-$pg-core"
	core_suite regression pg_regress "$tests/regress" parallel_schedule --dlpath="$tests/regress" --max-concurrent-tests=20
	[ $moved = yes ] || core_suite isolation pg_isolation_regress "$tests/isolation" isolation_schedule
	check_tables core
	check_log core
	drop_cluster
	[ ! -d "$work/out-$pg-core/regression/different" ] || echo "  differences are in $work/out-$pg-core/*/different"
}

# A directory in $work that the server's user may write to.
as_server_dir()
{
	mkdir -p "$1"
	! am_root || chown postgres "$1"
}

none_found()
{
	if [ ${#names[@]} -gt 0 ]; then return 0; fi
	result fail "$1: no tests found in $2/"
}

# All parts on one server.
test_version()
{
	local version=$1 part
	choose_server "$version" test
	lock_server
	echo "== zundo on $("$pg_config" --version), $bindir"
	WERROR=1 build test
	install_into_server
	if has_part build; then
		echo "-- build"
		result ok "gcc: no warnings"
		if builds_without_warnings clang; then result ok "clang: no warnings"; else result fail "clang: no warnings"; fi
		if has_fault_points "$copy/zundo.so" && ! has_fault_points "$work/build-$pg-clang/zundo.so"; then
			result ok "fault points are in builds for tests only"
		else
			result fail "fault points are in builds for tests only"
		fi
	fi
	for part in unit sql isolation tap random; do
		has_part $part || continue
		if [ $quick = yes ] && [ $part != unit ] && [ $part != sql ] && [ $part != isolation ]; then continue; fi
		echo "-- $part"
		"part_$part"
	done
	exec 9>&-
	if has_part core && [ $quick = no ]; then test_core; fi
}

# The part core, on a server with assertions of the same major version.
test_core()
{
	local tested=$bindir
	bindir=$(private_server "$major")
	if [ "$bindir" != "$tested" ]; then
		choose_server "${major}a" test
		lock_server
		build test
		install_into_server
	else
		lock_server
	fi
	echo "-- core, on $bindir"
	part_core
	if [ $all = yes ] && [ "$major" = 17 ]; then
		echo "-- core, every row moved"
		moved=yes
		part_core
		moved=no
	fi
	exec 9>&-
}

run_tests()
{
	local versions=() v
	parts=() names=() quick=no core=no all=no moved=no
	while [ $# -gt 0 ]; do
		case $1 in
			--pg) value_of "$@"; versions+=("$2"); shift 2 ;;
			--pg=*) versions+=("${1#*=}"); shift ;;
			--all) versions=(15 17 18) all=yes; shift ;;
			--quick) quick=yes; shift ;;
			--core) parts+=(core); core=yes; shift ;;
			--moved) moved=yes; shift ;;
			--part) value_of "$@"; parts+=("$2"); shift 2 ;;
			--part=*) parts+=("${1#*=}"); shift ;;
			-*) usage_error "unknown option '$1'" ;;
			*) names+=("$1"); shift ;;
		esac
	done
	for v in "${parts[@]}"; do
		case $v in build | unit | sql | isolation | tap | random | core) ;; *) usage_error "--part takes build, unit, sql, isolation, tap, random or core, not '$v'" ;; esac
	done
	[ $moved = no ] || [ $core = yes ] || usage_error "--moved goes with --core"
	[ ${#versions[@]} -gt 0 ] || [ $core = no ] || versions=(15 17 18)
	[ ${#versions[@]} -gt 0 ] || versions=("$(default_major)")
	need_packages perl libipc-run-perl clang
	for v in "${versions[@]}"; do test_version "$v"; done
	[ $((passed + failed)) -gt 0 ] || die "no test has that name"
	for v in "${failures[@]}"; do echo "failed on $v"; done
	echo "$passed passed, $failed failed"
	[ $failed -eq 0 ]
}
