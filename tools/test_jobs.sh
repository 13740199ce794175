# tools/test_jobs.sh - the jobs of ./zundo test: a list of functions that run
# concurrently, each in a subshell; their results and how long they took.

passed=0
failed=0
failures=()

# result ok|fail NAME: prints and counts the result of one test.
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

# The weights of jobs: a heavy one keeps more than one core busy, a medium one keeps
# one busy, a light one mostly waits. One heavy and two light jobs keep two cores busy.
heavy=3
medium=2
light=1

# job SERVER PART WEIGHT FUNCTION [ARGUMENT]: adds a job to $jobs, whose elements are
# "SERVER|PART|WEIGHT|FUNCTION|ARGUMENT".
jobs=()
job() { jobs+=("$1|$2|$3|$4|${5:-}"); }

# The seconds that a job of each part usually takes, until one has been run here.
declare -A usual=([build]=40 [unit]=5 [fuzz]=30 [sql]=90 [isolation]=240 [installcheck]=20 [tap]=10 [random]=15
	[core]=240 [decoding]=20 [cost]=220)

# The same for single jobs that have been run here: "PART NAME", as last measured.
declare -A last_seconds=()
read_durations()
{
	local seconds name
	[ -f "$work/durations" ] || return 0
	while read -r seconds name; do last_seconds[$name]=$seconds; done <"$work/durations"
}

# Keeps the durations of this run for read_durations.
keep_durations()
{
	local line seconds part name
	# a part with names takes less time than all of it
	[ ${#names[@]} -eq 0 ] || return 0
	for line in "${durations[@]}"; do
		read -r seconds _ part name <<<"$line"
		name="$part $name"
		last_seconds[${name% }]=${seconds%.*}
	done
	for name in "${!last_seconds[@]}"; do echo "${last_seconds[$name]} $name"; done >"$work/durations"
}

# expected PART WEIGHT ARGUMENT: prints the product of the weight and the seconds that
# the job is expected to take.
expected()
{
	local name="$1 ${3%%: *}"
	name=${name% }
	echo $((${last_seconds[$name]:-${usual[$1]}} * $2))
}

# expected_of_all: prints the sum of expected over all jobs.
expected_of_all()
{
	local job sum=0 fields
	for job in "${jobs[@]}"; do
		IFS='|' read -ra fields <<<"$job"
		sum=$((sum + $(expected "${fields[1]}" "${fields[2]}" "${fields[4]:-}")))
	done
	echo $sum
}

# in_minutes SECONDS: prints a time for people.
in_minutes() { if [ "$1" -lt 100 ]; then echo "$1 seconds"; else echo "$((($1 + 30) / 60)) minutes"; fi; }

# say_how_long: says how long all that is planned will take.
say_how_long()
{
	local v seconds
	seconds=$(($(expected_of_all) / ${ZUNDO_JOBS:-5}))
	for v in "${servers[@]}"; do
		seconds=$((seconds + 30))
		[ -z "$(server_packages "$v" test | grep -x bison)" ] || seconds=$((seconds + 240))
	done
	say "${#jobs[@]} jobs on ${servers[*]}; on two idle cores they take about $(in_minutes $seconds)"
}

# say_how_far: says how many jobs have been done and how long the others will take, at
# most every 10 seconds. Uses the variables of run_jobs.
say_how_far()
{
	local left
	[ $((SECONDS - said)) -ge 10 ] && [ $finished -lt ${#jobs[@]} ] || return 0
	said=$SECONDS
	left=$(((sum - done_sum) / ${ZUNDO_JOBS:-5}))
	# after a while it is known how fast this machine is
	[ $done_sum -eq 0 ] || [ $((done_sum * 10)) -lt $sum ] || left=$(((sum - done_sum) * (SECONDS - since) / done_sum))
	say "$finished of ${#jobs[@]} jobs done, $(in_minutes $((SECONDS - since))); about $(in_minutes $left) more"
}

# Runs all jobs, the heavy ones first. The sum of the weights of the running jobs is
# at most ZUNDO_JOBS, unless a single job is heavier. Prints the output of a job when
# the job has ended, and adds its counts to this shell's.
run_jobs()
{
	local dir=$work/jobs-$$ n=0 used=0 last='' room=${ZUNDO_JOBS:-5} i job weight
	local sum done_sum=0 finished=0 said=$SECONDS since=$SECONDS
	local -a waiting=() weights=() costs=() fields
	sum=$(expected_of_all)
	rm -rf "$dir"
	mkdir -p "$dir"
	for weight in $heavy $medium $light; do
		for job in "${jobs[@]}"; do case $job in *"|$weight|"*) waiting+=("$job") ;; esac; done
	done
	while [ ${#waiting[@]} -gt 0 ] || [ $used -gt 0 ]; do
		for i in "${!waiting[@]}"; do
			IFS='|' read -ra fields <<<"${waiting[i]}"
			[ $used -eq 0 ] || [ $((used + fields[2])) -le "$room" ] || continue
			(run_job "$dir/$n" "${fields[@]}") </dev/null >"$dir/$n.out" 2>&1 &
			weights[n]=${fields[2]}
			costs[n]=$(expected "${fields[1]}" "${fields[2]}" "${fields[4]:-}")
			used=$((used + fields[2]))
			n=$((n + 1))
			unset "waiting[i]"
		done
		wait -n || [ $? -ne 127 ] || die "a job ended without leaving its counts"
		for i in "${!weights[@]}"; do
			[ -f "$dir/$i.count" ] || continue
			collect_job "$dir/$i"
			used=$((used - weights[i]))
			done_sum=$((done_sum + costs[i]))
			finished=$((finished + 1))
			unset "weights[i]"
			say_how_far
		done
	done
	rm -rf "$dir"
}

# run_job FILE SERVER PART WEIGHT FUNCTION [ARGUMENT]: runs one job. Called in a
# subshell, at whose exit job_ends writes FILE.count.
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

# Removes the servers of the job and writes its counts. Runs at exit, also if the job
# was terminated.
job_ends()
{
	[ $job_done = yes ] || result fail "${job[4]} ${job[5]:-} ended before its time"
	(remove_clusters) || true
	printf '%s\n' "${job[@]:1:2}" "${job[5]:-}" "$(seconds_since "$job_begun")" \
		"$passed" "$failed" "${failures[@]}" >"${job[0]}.new"
	mv "${job[0]}.new" "${job[0]}.count"
}

# collect_job FILE: prints the output of a job that has ended, and adds its counts.
collect_job()
{
	local counts
	mapfile -t counts <"$1.count"
	if [ "$last" != "${counts[0]} ${counts[1]}" ]; then
		last="${counts[0]} ${counts[1]}"
		echo "-- $last"
	fi
	cat "$1.out"
	add_minutes "${counts[0]}" "${counts[1]}" "${counts[3]}"
	durations+=("${counts[3]} ${counts[0]} ${counts[1]} ${counts[2]%%: *}")
	passed=$((passed + counts[4]))
	failed=$((failed + counts[5]))
	failures+=("${counts[@]:6}")
}

# add_minutes SERVER PART SECONDS: adds to the table of show_minutes.
declare -A seconds_of
durations=()
add_minutes()
{
	seconds_of[$1 $2]=$(awk -v a="${seconds_of[$1 $2]:-0}" -v b="$3" 'BEGIN { print a + b }')
}

seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }'; }

# Prints the jobs that took longest, if there are many jobs.
show_slowest()
{
	[ ${#durations[@]} -ge 20 ] || return 0
	echo "  slowest, in seconds"
	printf '%s\n' "${durations[@]}" | sort -rn | sed -n 1,12p |
		awk '{ s = $1; $1 = ""; printf "  %7.0f %s\n", s, $0 }'
}

# Prints a table of minutes: the sum over the jobs of each part on each server. Jobs
# run concurrently, so that all of them together take less time than the sum.
show_minutes()
{
	local part server
	{
		echo minutes "${servers[@]}"
		for part in server "${all_parts[@]}"; do
			echo "$part" "$(for server in "${servers[@]}"; do
				echo "${seconds_of[$server $part]:--}"
			done | awk '{ if ($1 == "-") print; else printf "%.1f\n", $1 / 60 }' | xargs)"
		done
	} | awk '{ printf "  %-13s", $1; for (i = 2; i <= NF; i++) printf "%7s", $i; print "" }'
	awk -v s="$(seconds_since "$begun")" -v a="$ticks_begun" -v b="$(ticks)" 'BEGIN {
		split(a, x)
		split(b, y)
		printf "  %.1f minutes in all; the cores were busy for %.0f %% of the time\n",
			s / 60, 100 * (y[1] - x[1]) / (y[2] - x[2] + 1)
	}'
}

# Prints two numbers of clock ticks, summed over the cores since the machine started:
# those in which a core was busy, and all.
ticks()
{
	awk '$1 == "cpu" { for (i = 2; i <= 9; i++) all += $i; print all - $5 - $6, all }' /proc/stat
}
