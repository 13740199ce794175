# tools/test.sh - ./zundo test: all tests on an installed server.
#
# Sourced by ./zundo after tools/common.sh. Parts, in this order:
#   build      gcc and clang, every warning an error
#   unit       test/: the functions of the module zundo_test
#   sql        sql/ and expected/, by pg_regress
#   isolation  isolation/specs and isolation/expected, by pg_isolation_regress
#   tap        t/, by prove: crashes, restarts, standbys
#   random     test/random/: histories on heap and zheap side by side, kill -9 under load
#   core       PostgreSQL's own regression and isolation suites with every table made by zheap,
#              on a server with assertions; test/core/ has the accepted differences; with --moved
#              every update gives its row a new place, as on heap
# After sql and isolation the cluster is examined: zundo.check() of every
# zheap table, and its log for crashes; the sql cluster is also killed and
# recovered with wal_consistency_checking on.
# A part that has no tests says so and counts as one failure.
#
# First zundo is built and installed for every server that is needed (prepare), then
# the parts run as jobs beside each other, those of all servers in one list (run_jobs):
# most of them wait more than they work. plan alone decides which jobs there are:
# --all is what CI runs, --long what that leaves out.

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

# Lines "SERVER|PART|WEIGHT|FUNCTION|ARGUMENT". A job of weight 2 keeps more than one core busy.
jobs=()
job() { jobs+=("$1|$2|$3|$4|${5:-}"); }

# run_jobs: run all of them, each in a subshell, those of weight 2 first; the sum of
# the weights of those that run is never more than ZUNDO_JOBS. What one prints comes
# out in one piece when it has ended; its results are counted here.
run_jobs()
{
	local dir=$work/jobs-$$ n=0 used=0 last='' room=${ZUNDO_JOBS:-3} i job weight
	local -a waiting=() weights=() fields
	rm -rf "$dir"
	mkdir -p "$dir"
	for weight in 2 1; do
		for job in "${jobs[@]}"; do case $job in *"|$weight|"*) waiting+=("$job") ;; esac; done
	done
	while [ ${#waiting[@]} -gt 0 ] || [ $used -gt 0 ]; do
		for i in "${!waiting[@]}"; do
			IFS='|' read -ra fields <<<"${waiting[i]}"
			[ $used -eq 0 ] || [ $((used + fields[2])) -le "$room" ] || continue
			(run_job "$dir/$n" "${fields[@]}") </dev/null >"$dir/$n.out" 2>&1 &
			weights[n]=${fields[2]}
			used=$((used + fields[2]))
			n=$((n + 1))
			unset "waiting[i]"
		done
		wait -n || [ $? -ne 127 ] || die "a job is gone without a trace"
		for i in "${!weights[@]}"; do
			[ -f "$dir/$i.count" ] || continue
			collect_job "$dir/$i"
			used=$((used - weights[i]))
			unset "weights[i]"
		done
	done
	rm -rf "$dir"
}

# run_job FILE SERVER PART WEIGHT FUNCTION [ARGUMENT]: in a subshell. Its counts are in FILE.count when it has ended.
run_job()
{
	job=("$@")
	job_begun=$EPOCHREALTIME job_done=no
	passed=0 failed=0 failures=() clusters=()
	trap job_ends EXIT
	trap 'exit 143' TERM
	unlock_servers
	use_server "$2"
	"$5" "${6:-}"
	job_done=yes
}

# However the job ends: no server stays.
job_ends()
{
	[ $job_done = yes ] || result fail "${job[4]} ${job[5]:-} ended before its time"
	(remove_clusters) || true
	printf '%s\n' "${job[@]:1:2}" "$(seconds_since "$job_begun")" "$passed" "$failed" "${failures[@]}" >"${job[0]}.new"
	mv "${job[0]}.new" "${job[0]}.count"
}

# collect_job FILE: show a job that has ended, and count it.
collect_job()
{
	local counts
	mapfile -t counts <"$1.count"
	if [ "$last" != "${counts[0]} ${counts[1]}" ]; then
		last="${counts[0]} ${counts[1]}"
		echo "-- $last"
	fi
	cat "$1.out"
	add_minutes "${counts[@]:0:3}"
	passed=$((passed + counts[3]))
	failed=$((failed + counts[4]))
	failures+=("${counts[@]:5}")
}

# add_minutes SERVER PART SECONDS: for the table.
declare -A seconds_of
add_minutes() { seconds_of[$1 $2]=$(awk -v a="${seconds_of[$1 $2]:-0}" -v b="$3" 'BEGIN { print a + b }'); }

seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'; }

# The table of minutes: the sum over the jobs of each part on each server. Jobs run
# beside each other, so that the whole is less than the sum.
show_minutes()
{
	local part server
	{
		echo minutes "${servers[@]}"
		for part in server build unit sql isolation tap random core; do
			echo $part "$(for server in "${servers[@]}"; do
				awk -v s="${seconds_of[$server $part]:-}" 'BEGIN { if (s == "") print "-"; else printf "%.1f\n", s / 60 }'
			done | xargs)"
		done
	} | awk '{ printf "  %-10s", $1; for (i = 2; i <= NF; i++) printf "%7s", $i; print "" }'
	awk -v s="$(seconds_since "$begun")" -v a="$ticks_begun" -v b="$(ticks)" 'BEGIN {
		split(a, x)
		split(b, y)
		printf "  in all %.1f, the machine busy for %.0f %% of them\n", s / 60, 100 * (y[1] - x[1]) / (y[2] - x[2] + 1)
	}'
}

# What the cores of this machine have worked since it started, and could have.
ticks() { awk '$1 == "cpu" { for (i = 2; i <= 9; i++) all += $i; print all - $5 - $6, all }' /proc/stat; }

# wanted NAME: does the user want this test?
wanted()
{
	local n
	[ ${#names[@]} -gt 0 ] || return 0
	for n in "${names[@]}"; do case $1 in *"$n"*) return 0 ;; esac; done
	return 1
}

# asked PART: does the command line ask for it?
asked()
{
	if [ ${#parts[@]} -eq 0 ]; then
		[ "$1" != core ] || [ $tier != one ]
	else
		case " ${parts[*]} " in *" $1 "*) true ;; *) false ;; esac
	fi
}

# is_long FILE: has a file of t/ a line "# long"?
is_long() { grep -q '^# long$' "$1"; }

# plan SERVER: its jobs. --all has every kind of test on one version at least; of what
# takes long, --long has the other versions.
plan()
{
	local server=$1 major=${1%[as]} assertions=$1 item suite tier=$tier
	# of what works a lot, sanitizers make too much; the rest is as on any single version
	case $server in *s) tier=one ;; esac
	if [ $tier != long ]; then
		! asked build || [ ${#names[@]} -gt 0 ] || [ "$server" != "${server%s}" ] || job "$server" build 2 part_build
		! asked unit || job "$server" unit 1 part_unit
		! asked isolation || job "$server" isolation 1 part_isolation
		! asked sql || job "$server" sql 1 part_sql
	fi
	if asked tap; then
		while read -r item; do
			case $tier:$major in
				one:*) ;;
				all:17) ;;
				all:*) ! is_long "$top/t/$item.pl" || continue ;;
				long:17) continue ;;
				long:*) is_long "$top/t/$item.pl" || continue ;;
			esac
			job "$server" tap 1 tap_file "$item.pl"
		done < <(list_tests "$top/t" .pl)
	fi
	if asked random; then
		while read -r item; do
			! wanted "${item%%: *}" || job "$server" random 2 random_run "$item"
		done < <(random_runs "$server")
	fi
	if asked core; then
		# only the servers that tools/build-postgres makes have assertions
		[ "$server" != "$(default_major)" ] || assertions=${major}a
		for suite in regression isolation moved; do
			case $tier:$major:$suite in
				one:*:moved) [ $moved = yes ] || continue ;;
				one:*) [ $moved = no ] || continue ;;
				all:17:regression | all:18:regression | all:18:isolation) ;;
				all:*) continue ;;
				long:17:regression | long:18:regression | long:18:isolation) continue ;;
			esac
			job "$assertions" core 2 part_core $suite
		done
	fi
}

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
			regress_once "$1" "$2" "$3/$4-$am" "$4" "$4 on $am" --dbname="test_$4_$am" --use-existing
			result_of_watch "test_$4_$am" "$4 on $am"
		done
		return
	fi
	! grep -qiE 'CREATE +EXTENSION +(IF +NOT +EXISTS +)?zundo' "$2" || load=()
	regress_once "$1" "$2" "$3/$4" "$4" "$4" --dbname="test_$4" "${load[@]}"
}

# regress_once DRIVER SOURCE OUTPUT NAME LABEL OPTION...
regress_once()
{
	local driver=$1 input=$2 output=$3 name=$4 label=$5
	shift 5
	as_server_dir "$output"
	if as_server env "PGISOLATIONTIMEOUT=$((2 * ${PG_TEST_TIMEOUT_DEFAULT:-30}))" "PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-30}" "$driver" --host="$PGHOST" --port="$PGPORT" --user=postgres --bindir="$bindir" \
		--inputdir="$(dirname "$(dirname "$input")")" --outputdir="$output" "$@" "$name" >"$output/log" 2>&1; then
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
	if as_server "$bindir/pg_ctl" -s -w -t 600 -D "$cluster/data" -l "$cluster/server.log" start >&2; then
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
	[ ${#tests[@]} -gt 0 ] || { none_found sql sql; return; }
	new_cluster <<'C' || { result fail "sql: the server starts"; return; }
wal_level = replica
wal_consistency_checking = 'zundo,heap,heap2,btree,hash,gin,spgist,brin' # 18's GiST replays other bytes on heap too
checkpoint_timeout = 1h
max_wal_size = 20GB
C
	driver=$(dirname "$("$pg_config" --pgxs)")/../../src/test/regress/pg_regress
	for t in "${tests[@]}"; do run_regress "$driver" "$copy/sql/$t.sql" "$work/out-$pg-sql" "$t"; done
	check_tables sql
	crash_and_recover sql || true
	check_log sql
	drop_cluster
}

# install_test_module: the extension zundo_test of test/, built and installed.
install_test_module()
{
	local log=$work/module-$pg.log
	if ! { make -s -C "$copy/test" "PG_CONFIG=$pg_config" clean all && "${installer[@]}" make -s -C "$copy/test" "PG_CONFIG=$pg_config" install; } >"$log" 2>&1; then
		tail -n 20 "$log"
		result fail "the module zundo_test does not build"
		return 1
	fi
}

# Every function f(seed int, rounds int) of the module zundo_test is a unit test:
# it returns the number of cases that it tried, and fails by an error. Two fixed
# seeds and a fresh one, which the result names.
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
			if cases=$(psql_quiet -d postgres -c "SELECT $f($seed, ${ZUNDO_UNIT_ROUNDS:-500})" 2>&1) && [ "${cases:-0}" -gt 0 ] 2>/dev/null; then
				result ok "$f, seed $seed: $cases cases"
			else
				result fail "$f, seed $seed: $cases"
			fi
		done
	done
	[ $((passed + failed)) -eq 0 ] || check_log unit
	drop_cluster
}

part_isolation()
{
	local tests t driver
	mapfile -t tests < <(list_tests "$copy/isolation/specs" .spec)
	[ ${#tests[@]} -gt 0 ] || { none_found isolation isolation/specs; return; }
	new_cluster </dev/null || { result fail "isolation: the server starts"; return; }
	driver=$(dirname "$("$pg_config" --pgxs)")/../../src/test/isolation/pg_isolation_regress
	for t in "${tests[@]}"; do run_regress "$driver" "$copy/isolation/specs/$t.spec" "$work/out-$pg-isolation" "$t"; done
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
	unset PGHOST PGPORT PGUSER
	src=$(dirname "$("$pg_config" --pgxs)")/../../src/test
	rm -rf "$dir"
	as_server mkdir -p "$dir/log"
	as_server env "PERL5LIB=$src/perl:$copy/t" "PG_REGRESS=$src/regress/pg_regress" "PATH=$bindir:$PATH" \
		"TESTDIR=$dir" "TESTDATADIR=$dir/tmp_check" "TESTLOGDIR=$dir/log" "top_builddir=$dir" "PG_CONFIG=$pg_config" \
		"PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-60}" "share_contrib_dir=$("$pg_config" --sharedir)/contrib" "PG_TEST_PORT_DIR=$work/tap-ports" \
		prove --verbose --norc "$file" >"$log" 2>&1 || status=$?
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
	grep -vE '^ok [0-9]+|^# (Running|Name|Data|Backup|Archive|Connection|Log)' "$log" | tail -n 40 || true
}

# random_run 'NAME: PROGRAM ARG...': one run of a program of test/random.
random_run()
{
	local name=${1%%: *} log limit=900
	local -a command
	[ $tier != long ] || limit=7200
	log=$work/random-$pg-${name//[^a-z0-9]/-}.log
	read -ra command <<<"${1#*: }"
	# python's libpq is the system's
	if timeout "$limit" env -u LD_LIBRARY_PATH /usr/bin/python3 "$copy/test/random/${command[0]}" --bindir "$bindir" "${command[@]:1}" >"$log" 2>&1; then
		result ok "$name: $(tail -n 1 "$log" | cut -c1-120)"
	else
		result fail "$name"
		tail -n 40 "$log" | cut -c1-300
	fi
}

# random_runs SERVER: lines 'NAME: PROGRAM ARG...'. The saved histories, new ones, and kill -9 under load.
random_runs()
{
	local f length=1 minutes rounds programs new
	case $tier:${1%[as]} in
		one:* | all:17) ;;
		all:*) length=0.3 ;;
		long:*) length=10 ;;
	esac
	minutes=${ZUNDO_RANDOM_MINUTES:-$length}
	rounds=${ZUNDO_CRASH_ROUNDS:-$(scale 4 $length)}
	programs=${ZUNDO_NESTED_PROGRAMS:-$(scale 60 $length)}
	new="history.py --minutes $minutes --seed ${ZUNDO_RANDOM_SEED:-20261121}"
	echo "twins with a standby: twins.py --rounds $rounds --standby --faults --trouble"
	echo "histories: $new"
	echo "histories with triggers, keys, upserts and 2PC: $new --fk --triggers --prepare --on-conflict"
	echo "wide histories: $new --wide all --fk --triggers --on-conflict"
	echo "histories of temporary tables: $new --temp --fk --triggers"
	echo "nested commands: nested.py --minutes $(scale 2 $length) --programs $programs --seed ${ZUNDO_RANDOM_SEED:-20261121}"
	echo "crashes: crash.py --rounds $rounds"
	case $tier:${1%[as]} in
		long:*)
			echo "fault points: faults.py"
			echo "damaged pages: damage.py --trials 1000"
			;;
		one:* | all:17)
			echo "fault points: faults.py --points 6 --seed ${ZUNDO_RANDOM_SEED:-20261121}"
			echo "damaged pages: damage.py --trials 40 --seed ${ZUNDO_RANDOM_SEED:-20261121}"
			;;
	esac
	for f in "$top"/test/random/cases/*.json; do
		f=$(basename "$f")
		echo "case ${f%.json}: history.py --replay $work/build-$1/test/random/cases/$f"
	done
}

# scale NUMBER FACTOR: rounded up.
scale() { awk -v n="$1" -v f="$2" 'BEGIN { n *= f; print int(n) + (n > int(n)) }'; }

# core_suite SUITE DRIVER FOLDER OPTION...: run one of the server's own suites, with the
# time limit of that suite; one result for each of its tests. Tests of the
# regression suite need some of the first ones' tables: with names given these run too.
core_suite()
{
	local suite=$1 driver=$2 folder=$3 schedule=$3/$4 output=$work/out-$pg-core/$1 what only=() how=() line status=0
	shift 4
	[ "$suite" != moved ] || how=(--moved)
	as_server_dir "$output"
	what=("--schedule=$schedule")
	if [ ${#names[@]} -gt 0 ]; then
		mapfile -t only < <(sed -n 's/^test: *//p' "$schedule" | tr -s ' ' '\n' | while read -r line; do if wanted "$line"; then echo "$line"; fi; done)
		[ ${#only[@]} -gt 0 ] || return 0
		what=("${only[@]}")
		if [ "$suite" != isolation ]; then
			what=(test_setup create_misc create_index)
			for line in "${only[@]}"; do case " ${what[*]} " in *" $line "*) ;; *) what+=("$line") ;; esac; done
		fi
	fi
	as_server env "PGISOLATIONTIMEOUT=$((2 * ${PG_TEST_TIMEOUT_DEFAULT:-30}))" "PG_TEST_TIMEOUT_DEFAULT=${PG_TEST_TIMEOUT_DEFAULT:-30}" timeout -k 20 "${ZUNDO_CORE_SECONDS:-900}" "$folder/$driver" --host="$PGHOST" --port="$PGPORT" --user=postgres \
		--bindir="$bindir" --inputdir="$folder" --outputdir="$output" --load-extension=zundo "$@" "${what[@]}" >"$output/log" 2>&1 || status=$?
	if [ $status -eq 124 ] || [ $status -eq 137 ]; then result fail "core $suite: not done in ${ZUNDO_CORE_SECONDS:-900} s"; fi
	chmod -R a+rwX "$output"
	while read -r status line; do result "$status" "$suite: $line"; done < <(python3 "$copy/test/core/compare.py" --log "$output/log" --output "$output" --schedule "$schedule" \
		--accepted "$copy/test/core/accepted/$major/$suite" "${how[@]}" --only "${only[@]}")
}

# part_core regression|isolation|moved: one of PostgreSQL's own suites, on a server with
# assertions whose source tree is there.
part_core()
{
	local tests=$work/core-$major
	new_cluster <<C || { result fail "core: the server starts"; return; }
default_table_access_method = 'zheap'
zundo.allow_xmin_comparison = on
zundo.allow_ctid_guard = on
$( [ "$1" != moved ] || echo "zundo.move_updates = on" )
C
	case $1 in
		isolation) core_suite isolation pg_isolation_regress "$tests/isolation" isolation_schedule ;;
		*) core_suite "$1" pg_regress "$tests/regress" parallel_schedule --dlpath="$tests/regress" --max-concurrent-tests=20 ;;
	esac
	check_tables "core $1"
	check_log "core-$1"
	drop_cluster
	[ ! -d "$work/out-$pg-core/$1/different" ] || echo "  differences are in $work/out-$pg-core/$1/different"
}

# The suites of PostgreSQL as pg_regress wants them.
copy_core_tests()
{
	local src=$HOME/.cache/zundo/pg$major/src/src/test tests=$work/core-$major
	need_packages python3
	rm -rf "$work/out-$pg-core"
	[ ! -f "$tests/complete" ] || [ "$src/regress/regress.so" -nt "$tests/complete" ] || return 0
	rm -rf "$tests"
	mkdir -p "$tests"
	cp -a "$src/regress" "$src/isolation" "$tests/"
	chmod -R a+rX "$tests"
	touch "$tests/complete"
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

# prepare SERVER: make the server if need be, build zundo for it, and whatever its jobs need.
prepare()
{
	local since=$EPOCHREALTIME
	choose_server "$1" test
	lock_server
	bindir_of[$1]=$bindir
	add_minutes "$1" server "$(seconds_since "$since")"
	since=$EPOCHREALTIME
	echo "== zundo on $("$pg_config" --version), $bindir"
	WERROR=1 build test
	install_into_server
	if planned unit "$1" || planned tap "$1"; then install_test_module || true; fi
	if planned core "$1"; then copy_core_tests; fi
	rm -rf "$work/tap-$pg" "$work/out-$pg-sql" "$work/out-$pg-isolation"
	as_server_dir "$work/tap-$pg"
	as_server_dir "$work/tap-ports"
	add_minutes "$1" build "$(seconds_since "$since")"
}

# planned PART SERVER: has the plan a job of it?
planned() { printf '%s\n' "${jobs[@]}" | grep -q "^$2|$1|"; }

# gcc's warnings are errors in prepare; clang's are here.
part_build()
{
	result ok "gcc: no warnings"
	if builds_without_warnings clang; then result ok "clang: no warnings"; else result fail "clang: no warnings"; fi
	if has_fault_points "$copy/zundo.so" && ! has_fault_points "$work/build-$pg-clang/zundo.so"; then
		result ok "fault points are in builds for tests only"
	else
		result fail "fault points are in builds for tests only"
	fi
}

# use_server SERVER: as choose_server, which has been called for it before.
declare -A bindir_of
use_server()
{
	pg=$1
	major=${1%[as]}
	bindir=${bindir_of[$1]}
	copy=$work/build-$pg
	use_bindir
}

run_tests()
{
	local versions=() servers=() v begun=$EPOCHREALTIME ticks_begun
	parts=() names=() tier=one moved=no
	ticks_begun=$(ticks)
	while [ $# -gt 0 ]; do
		case $1 in
			--pg) value_of "$@"; versions+=("$2"); shift 2 ;;
			--pg=*) versions+=("${1#*=}"); shift ;;
			--all | --long) tier=${1#--}; shift ;;
			--quick) parts+=(build unit sql isolation); shift ;;
			--core) parts+=(core); shift ;;
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
	[ $moved = no ] || { [ $tier = one ] && asked core; } || usage_error "--moved goes with --core"
	if [ ${#versions[@]} -eq 0 ]; then
		case $tier in
			one) if asked core; then versions=(15 17 18); else versions=("$(default_major)"); fi ;;
			all) versions=(15 17 18) ;;
			long) versions=(15 17 18 17s) ;;
		esac
	fi
	for v in "${versions[@]}"; do plan "$v"; done
	[ ${#jobs[@]} -gt 0 ] || die "no test has that name"
	need_packages perl libipc-run-perl clang python3 python3-psycopg2
	mapfile -t servers < <(printf '%s\n' "${jobs[@]%%|*}" | awk '!seen[$0]++')
	for v in "${servers[@]}"; do prepare "$v"; done
	run_jobs
	[ $((passed + failed)) -gt 0 ] || die "no test has that name"
	show_minutes
	for v in "${failures[@]}"; do echo "failed on $v"; done
	echo "$passed passed, $failed failed"
	[ $failed -eq 0 ]
}
