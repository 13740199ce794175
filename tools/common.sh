# tools/common.sh - the functions that the commands of ./zundo share: packages,
# the choice of a server, building and installing into it, private clusters.
#
# Sourced by ./zundo with $top set. If the caller is root, servers and tests run
# as the user postgres, on copies in $work.

work=${ZUNDO_WORK:-/tmp/zundo-work-$(id -u)}
conf_file=$top/tools/zundo.conf

say() { printf 'zundo: %s\n' "$*" >&2; }
die() { printf 'zundo: %s\n' "$*" >&2; exit "${exit_code:-1}"; }
usage_error() { exit_code=2 die "$* (see ./zundo help)"; }

am_root() { [ "$(id -u)" = 0 ]; }

# as_root COMMAND...: runs the command as root, with sudo if needed.
as_root()
{
	if am_root; then "$@"; return; fi
	command -v sudo >/dev/null || die "installing into the system needs root or sudo"
	sudo "$@"
}

# as_server COMMAND...: runs the command as the user that owns the servers.
as_server()
{
	if am_root; then (cd "$work" && runuser -u postgres -- "$@"); else "$@"; fi
}

# with_signs WHAT LOOK LOG COMMAND...: runs the command, whose output goes to the file
# LOG. Says every 5 seconds for how long, and what the function LOOK prints about it.
with_signs()
{
	local what=$1 look=$2 log=$3 signs status=0
	shift 3
	: >"$log"
	(
		unlock_servers
		begun=$SECONDS
		while sleep 5 >/dev/null 2>&1 && kill -0 $$; do say "$what, $((SECONDS - begun)) s: $($look)"; done
	) </dev/null &
	signs=$!
	"$@" >"$log" 2>&1 || status=$?
	kill $signs 2>/dev/null || true
	wait $signs 2>/dev/null || true
	return $status
}

# need_packages NAME...: installs the Debian packages that are missing, if the caller is
# root; else prints what the administrator has to run, and exits. Uses the network only
# if one is missing.
need_packages()
{
	local missing=() p log=$work/packages.log
	command -v dpkg-query >/dev/null || { say "not a Debian system: make sure that these are installed: $*"; return 0; }
	for p in "$@"; do
		[[ $(dpkg-query -W -f='${Status}' "$p" 2>/dev/null) == *'ok installed' ]] || missing+=("$p")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
	am_root || die "packages are missing; this installs them:
sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
	prepare_work
	say "installing ${missing[*]} and what they need; what apt says is in $log"
	with_signs "installing packages" packages_done "$log" install_packages ||
		{ tail -n 15 "$log" >&2; die "could not install ${missing[*]}; install them and try again"; }
}

# install_packages: installs the packages in $missing.
install_packages()
{
	apt-get -q update &&
		DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}"
}

# packages_done: prints how far install_packages is.
packages_done()
{
	awk '/^Get:/ { got++ } /newly installed/ { all = $1 + $3; got = 0 } /^Unpacking / { unpacked++ } /^Setting up / { set++ }
		END {
			if (unpacked) printf "%d of %d are unpacked, %d set up\n", unpacked, all, set
			else if (all) printf "%d of %d are downloaded, then they are unpacked\n", got, all
			else print "reading the lists of packages"
		}' "$work/packages.log"
}

# Creates $work. Its parent may be writable by other users, so this fails if
# another user owns $work or if it is a symbolic link.
prepare_work()
{
	mkdir -p "$work"
	if [ -L "$work" ] || [ ! -O "$work" ]; then die "$work belongs to another user; set ZUNDO_WORK to another directory"; fi
	chmod 755 "$work"
}

# use_memory: puts the clusters of this run in memory, below $TMPDIR, if there is enough
# of it: of what tests cost on a disk a third is the making and removing of files. What
# runs that were killed have left there is removed.
use_memory()
{
	local d free
	for d in /dev/shm/zundo-tests.*; do
		[ ! -O "$d" ] || [ -d "/proc/${d##*.}" ] || rm -rf "$d"
	done
	free=$( (df --output=avail /dev/shm; grep MemAvailable /proc/meminfo) 2>/dev/null |
		awk 'NR == 2 { least = $1 } NR == 3 && $2 < least { least = $2 } END { print NR == 3 ? int(least / 1048576) : 0 }')
	[ -z "${TMPDIR:-}" ] && [ "$free" -ge 16 ] || return 0
	export TMPDIR=/dev/shm/zundo-tests.$$
	mkdir "$TMPDIR"
	chmod 1777 "$TMPDIR"
	clusters+=("$TMPDIR")
}

# The major versions that zundo supports.
all_majors=(15 16 17 18 19)

# system_bindir MAJOR: prints where the packages of Debian or Red Hat have installed the
# programs of that server; fails if they have not.
system_bindir()
{
	local d
	for d in "/usr/lib/postgresql/$1/bin" "/usr/pgsql-$1/bin"; do
		[ ! -x "$d/postgres" ] || { echo "$d"; return 0; }
	done
	return 1
}

# system_has MAJOR: succeeds if the system's server is installed, or apt can install it.
system_has() { system_bindir "$1" >/dev/null || apt-cache show "postgresql-$1" >/dev/null 2>&1; }

# Prints the major version to use if none is given: the first one that zundo
# supports and that is installed from the system's packages, or else is packaged, or
# else can be had.
default_major()
{
	local v
	for v in "${all_majors[@]}"; do ! system_bindir "$v" >/dev/null || { echo "$v"; return; }; done
	for v in "${all_majors[@]}"; do ! system_has "$v" || { echo "$v"; return; }; done
	if ! is_debian && has_python_package 16; then echo 16; else echo 15; fi
}

# tarball_of MAJOR: prints the tarball of sources that ZUNDO_POSTGRES_MAJOR names.
tarball_of()
{
	local name=ZUNDO_POSTGRES_$1
	echo "${!name:-}"
}

# Exits if a variable names a tarball that is not there.
check_tarballs()
{
	local v
	for v in 16 19; do
		[ -z "$(tarball_of $v)" ] || [ -f "$(tarball_of $v)" ] || die "there is no file $(tarball_of $v) (ZUNDO_POSTGRES_$v)"
	done
}

is_debian() { grep -qs '^ID=debian$' /etc/os-release; }

# can_build MAJOR: succeeds if that server has been built from its sources, or can be.
can_build()
{
	[ ! -f "$HOME/.cache/zundo/pg$1/complete" ] || [ ! -d "$HOME/.cache/zundo/pg$1/src" ] || return 0
	case $1 in
		16 | 19) [ -n "$(tarball_of "$1")" ] ;;
		*) is_debian ;;
	esac
}

# try_to_build MAJOR: builds 19 if Debian's mirror has its sources, which is known only
# when they have been fetched. Only root does: it may have to install packages.
try_to_build()
{
	local status=0 log=$work/build-postgres-19.log
	if [ "$1" != 19 ] || can_build 19 || system_has 19 || ! is_debian || ! am_root; then return 0; fi
	prepare_work
	say "looking for the sources of PostgreSQL 19; log: $log"
	"$top/tools/build-postgres" 19 >"$log" 2>&1 || status=$?
	# 3: there are no sources
	[ $status = 0 ] || [ $status = 3 ] || die "building PostgreSQL 19 failed; log: $log"
}

# has_python_package MAJOR: succeeds if the server can be taken from a Python package.
has_python_package() { [ "$1" = 16 ] && { is_debian || python3 -m pip --version >/dev/null 2>&1; }; }

# why_no_server MAJOR: prints why there can be no server of that version on this machine,
# or nothing.
why_no_server()
{
	if system_has "$1" || can_build "$1" || has_python_package "$1"; then return; fi
	if is_debian; then
		echo "Debian's mirror has no sources of it, and ZUNDO_POSTGRES_$1 names no tarball of them"
	else
		echo "it is not installed, and can be built on Debian only"
	fi
}

# is_system_server VERSION: succeeds if tests of this version run on the system's server.
is_system_server()
{
	[ "$1" = "$(default_major)" ] || { ! can_build "${1%[asvc]}" && system_has "$1"; }
}

# with_assertions VERSION: prints the name of the server of this version that has
# assertions, or VERSION if there is none.
with_assertions()
{
	if is_system_server "$1" && can_build "$1"; then echo "${1}a"; else echo "$1"; fi
}

# private_server MAJOR [--release|--sanitize|--valgrind|--coverage]: prints the bin directory
# of a server built by tools/build-postgres. Root's build is in root's home, which
# the user postgres cannot enter, so it is copied into $work; the copy works because
# PostgreSQL finds its files relative to its programs. With --sanitize and --valgrind
# the copy's postgres runs with the sanitizers' libraries or under valgrind.
private_server()
{
	local major=$1 kind=${2:-} name=$1${2:+${2#-}} built copy log=$work/build-postgres-$1.log
	built=$HOME/.cache/zundo/pg$name
	case $kind in --sanitize | --valgrind | --coverage) built=$HOME/.cache/zundo/pg$major kind='' ;; esac
	if [ -f "$built/complete" ]; then
		"$top/tools/build-postgres" $kind "$major" >&2
	else
		say "building PostgreSQL $major once, which takes some minutes; log: $log"
		with_signs "building PostgreSQL $major" server_done "$log" "$top/tools/build-postgres" $kind "$major" || {
			# 3: it cannot be had; the last line says why
			[ $? -ne 3 ] || die "there is no PostgreSQL $major: $(sed -n '$s/^build-postgres: //p' "$log")"
			tail -n 15 "$log" >&2
			false
		}
	fi || die "building PostgreSQL $major failed"
	if ! am_root && [ "$built" = "$HOME/.cache/zundo/pg$name" ]; then echo "$built/bin"; return; fi
	copy=$work/pg$name
	lock_copies
	if [ ! -f "$copy/complete" ] || [ "$built/complete" -nt "$copy/complete" ]; then
		rm -rf "$copy"
		mkdir -p "$copy"
		cp -a "$built/bin" "$built/lib" "$built/include" "$built/share" "$copy/" || die "copying the server to $copy failed"
		[ ! -d "$built/src" ] || cp "$built/src/src/tools/valgrind.supp" "$copy/"
		wrap_postgres "$copy" "${2:-}"
		cp -a "$built/complete" "$copy/complete"
	fi
	echo "$copy/bin"
}

# lock_copies: waits until no other run copies a server into $work. The lock is held until
# the end of the subshell that calls this.
lock_copies()
{
	local fd
	exec {fd}>"$work/lock-copies"
	flock "$fd"
}

# server_done: prints how far the build of private_server is.
server_done()
{
	local n
	n=$(find "$built/src" -name '*.o' 2>/dev/null | wc -l)
	if [ "$n" = 0 ]; then echo "fetching and configuring"; else echo "$n of about 1,300 files compiled"; fi
}

# wrap_postgres DIR KIND: with --sanitize or --valgrind, replaces DIR/bin/postgres
# by a script that starts it accordingly. Leaks are not looked for, because a server
# process does not free its memory before it exits. A finding of a sanitizer aborts
# the process, as a failed assertion does. Valgrind writes its findings to
# $work/valgrind/PID.
wrap_postgres()
{
	local wrapper=$1/bin/postgres
	case $2 in
		--sanitize | --valgrind) mv "$wrapper" "$wrapper.real" ;;
		*) return 0 ;;
	esac
	case $2 in
		--sanitize)
			cat <<-W
				#!/bin/bash
				export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:detect_stack_use_after_return=0
				export UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1
				export LD_PRELOAD=$(gcc -print-file-name=libasan.so)
				exec -a "\$0" "$wrapper.real" "\$@"
			W
			;;
		--valgrind)
			mkdir -p "$work/valgrind"
			chmod 1777 "$work/valgrind"
			cat <<-W
				#!/bin/bash
				exec valgrind --quiet --error-limit=no --num-callers=30 --suppressions="$1/valgrind.supp" \\
				    --log-file="$work/valgrind/%p" "$wrapper.real" "\$@"
			W
			;;
	esac >"$wrapper"
	chmod 755 "$wrapper"
}

# choose_server VERSION PURPOSE: sets $pg (a name for files and messages), $major
# and $bindir. PURPOSE is test (a server with assertions, except for the system's own
# and that of a Python package) or measure (without).
choose_server()
{
	local version=$1 purpose=$2 why kind='' packages
	case $version in
		15 | 15[asvc] | 16 | 16[asvc] | 17 | 17[asvc] | 18 | 18[asvc] | 19 | 19[asvc]) ;;
		*) usage_error "--pg takes 15, 16, 17, 18, 19, 15a (with assertions), 17s (with sanitizers), 17v (under valgrind) or 17c (counting lines), not '$version'" ;;
	esac
	pg=$version
	major=${version%[asvc]}
	check_tarballs
	try_to_build "$major"
	why=$(why_no_server "$major")
	[ -z "$why" ] || die "there is no PostgreSQL $major: $why"
	case $version in
		*[asvc]) can_build "$major" || die "there is no PostgreSQL $version: the sources of $major are not there (ZUNDO_POSTGRES_$major)" ;;
	esac
	prepare_work
	mapfile -t packages < <(server_packages "$version" "$purpose")
	need_packages "${packages[@]}"
	if takes_system_server "$version" "$purpose"; then
		bindir=$(system_bindir "$major") || die "PostgreSQL $major is not installed"
		[ "$purpose" = test ] || { bindir=$(copy_of_system "$bindir") || exit 1; pg=$major-copy; }
	elif [ "$purpose" = measure ] && [ "$version" = "$major" ]; then
		bindir=$(private_server "$major" --release)
		pg=$major-release
	else
		case $version in
			*s) kind=--sanitize ;;
			*v) kind=--valgrind ;;
			*c) kind=--coverage ;;
		esac
		bindir=$(private_server "$major" $kind) || exit 1
	fi
	use_bindir
}

# takes_system_server VERSION PURPOSE: succeeds if choose_server takes the system's
# server, for measuring a copy of it.
takes_system_server()
{
	[ "$1" = "${1%[asvc]}" ] && { is_system_server "$1" || { [ "$2" = measure ] && system_has "$1"; }; }
}

# server_packages VERSION PURPOSE: prints the Debian packages that choose_server needs,
# those with which the server is built included.
server_packages()
{
	local major=${1%[asvc]} kind=''
	# procps: stop_jobs needs ps
	printf '%s\n' gcc make liblz4-dev procps
	case $1 in *v) echo valgrind ;; *c) echo lcov ;; esac
	if takes_system_server "$1" "$2"; then
		printf '%s\n' "postgresql-$major" "postgresql-server-dev-$major"
	else
		[ "$2:$1" != "measure:$major" ] || kind=-release
		# the Python package has no modules for t/; those of any version do
		if [ "$2" = test ] && ! can_build "$major" && is_debian; then echo "postgresql-server-dev-$(default_major)"; fi
		if [ -f "$HOME/.cache/zundo/pg$major$kind/complete" ]; then return; fi
		if can_build "$major"; then
			"$top/tools/build-postgres" --packages
		elif has_python_package "$major" && ! python3 -m pip --version >/dev/null 2>&1; then
			echo python3-pip
		fi
	fi
}

# has_extensions COPY SHAREDIR: succeeds if the copy of a server has all of its extensions.
has_extensions()
{
	local f
	for f in "$2"/extension/*.control; do [ -e "$1$f" ] || return 1; done
}

# copy_of_system BINDIR: prints the bin directory of a copy of the system's server in
# $work, into which zundo can be installed without a trace in the system. It works
# because PostgreSQL finds its files relative to its programs.
copy_of_system()
{
	local config=$1/pg_config copy=$work/system new=$work/system.new d
	lock_copies
	# another minor version, or an extension that was installed since
	if ! cmp -s "$1/postgres" "$copy$1/postgres" || ! has_extensions "$copy" "$("$config" --sharedir)"; then
		rm -rf "$new"
		for d in bindir pkglibdir sharedir; do
			d=$("$config" --$d)
			mkdir -p "$new$d"
			cp -a "$d/." "$new$d" || die "copying the server to $new failed"
		done
		for d in includedir includedir-server; do
			d=$("$config" --$d)
			mkdir -p "$new${d%/*}"
			[ -e "$new$d" ] || ln -s "$d" "$new$d"
		done
		rm -rf "$copy"
		mv "$new" "$copy"
	fi
	echo "$copy$1"
}

# Sets the variables that depend on $bindir.
use_bindir()
{
	pg_config=$bindir/pg_config
	# The run path in copied programs names the original's libraries.
	unset LD_LIBRARY_PATH
	libdir=$("$pg_config" --libdir)
	case $bindir in /usr/*) ;; *) export LD_LIBRARY_PATH=$libdir ;; esac
}

# Sets $copy, and brings it up to date with the checkout. Keeps the files' times,
# and the objects in the copy, so that make compiles only what has changed.
copy_sources()
{
	copy=$work/build-$pg
	mkdir -p "$copy"
	find "$copy" ! -type d ! -name '*.o' ! -name '*.so' ! -name '*.gcno' ! -name built-with ! -name .checkout ! -name .copied -delete
	touch -d '1 second ago' "$copy/.now"
	tar -C "$top" --exclude=./.git --exclude=./bench/results --exclude='*.o' --exclude='*.so' --exclude=./built-with --exclude=__pycache__ -cf - . |
		tar -C "$copy" -xf - --no-same-owner
	# what was changed while the last copy was compiled may be older than its object
	[ ! -e "$copy/.copied" ] || find "$copy" -name '*.[ch]' -newer "$copy/.copied" -exec touch {} +
	mv "$copy/.now" "$copy/.copied"
	chmod -R a+rX "$copy"
}

# build_options: prints the arguments of make that the kind of the chosen server needs.
build_options()
{
	case $pg in
		*s) echo COPT='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' ;;
		*c) echo COPT=--coverage ;;
	esac
}

# build PURPOSE: compiles zundo for the chosen server in a copy of the sources. With
# WERROR=1 warnings are errors. PURPOSE is test (with fault points and the settings
# for tests) or use.
build()
{
	local log options=() all
	case $1 in test) testing=1 ;; use) testing=0 ;; *) die "build: unknown purpose '$1'" ;; esac
	copy_sources
	log=$work/build-$pg.log
	# make cannot tell by times whether objects of another checkout are out of date
	if [ "$top" != "$(cat "$copy/.checkout" 2>/dev/null)" ]; then
		find "$copy" \( -name '*.o' -o -name '*.so' \) -delete
		echo "$top" >"$copy/.checkout"
	fi
	say "building for $("$pg_config" --version)"
	mapfile -t options < <(build_options)
	options+=("PG_CONFIG=$pg_config" "ZUNDO_TESTING=$testing" "WERROR=${WERROR:-0}")
	touch "$copy/.begun"
	all=$(make -n -C "$copy" "${options[@]}" 2>/dev/null | grep -c ' -c -o ' || true)
	with_signs building compiled "$log" make -s -C "$copy" -j"$(nproc)" "${options[@]}" || {
		grep -E 'error|Error|warning' -A4 "$log" | sed -n 1,40p >&2 || tail -n 30 "$log" >&2
		die "the build failed; the whole log is $log"
	}
	! grep -q 'warning:' "$log" || { say "the compiler warns:"; grep -m 10 'warning:' "$log" >&2; }
}

# compiled: prints how far the compiler of build is.
compiled()
{
	local n
	n=$(find "$copy" -name '*.o' -newer "$copy/.begun" | wc -l)
	if [ "$n" -lt "$all" ]; then
		echo "$n of $all files compiled, then they are linked"
	else
		echo "linking, with optimization over all files"
	fi
}

# builds_without_warnings COMPILER: succeeds if everything compiles with warnings as
# errors, for use and not for tests. Needs copy_sources; builds in another copy, without
# optimization, on which clang's warnings do not depend.
builds_without_warnings()
{
	local other=$work/build-$pg-$1
	rm -rf "$other"
	mkdir -p "$other"
	tar -C "$copy" --exclude='*.o' --exclude='*.so' --exclude=./built-with -cf - . | tar -C "$other" -xf - --no-same-owner
	make -s -C "$other" -j"$(nproc)" "PG_CONFIG=$pg_config" "CC=$1" COPT='-O0 -U_FORTIFY_SOURCE' WERROR=1 >"$other.log" 2>&1 || { tail -n 30 "$other.log"; return 1; }
	! grep -q 'warning:' "$other.log"
}

# has_fault_points LIBRARY: succeeds if it contains the code of fault points, or a
# setting that is only for tests.
has_fault_points() { grep -qaE 'zundo\.(fault|move_updates|swap_btree)|zundo fault point|common/fault\.c' "$1"; }

# Installs what build has compiled into the server's directories. Sets $installer,
# the prefix for commands that write there.
install_into_server()
{
	# "as_root true" lets sudo ask for a password before output is redirected
	installer=()
	if [ ! -w "$("$pg_config" --pkglibdir)" ]; then
		installer=(as_root)
		as_root true
	fi
	"${installer[@]}" make -s -C "$copy" "PG_CONFIG=$pg_config" "ZUNDO_TESTING=$testing" install >>"$work/build-$pg.log" 2>&1 || {
		tail -n 20 "$work/build-$pg.log" >&2
		die "make install failed"
	}
}

# Locks the chosen server: one run at a time may install into it and test it. The
# lock is held until unlock_servers or exit. A process that outlives this shell must
# not inherit the lock, so call unlock_servers before it is started.
locks=()
lock_server()
{
	local fd
	exec {fd}>"$work/lock-$pg"
	flock -n $fd || { say "another run uses the server of $pg; waiting for it"; flock $fd; }
	locks+=("$fd")
}

# Closes the locks. Called in a subshell, it leaves the parent's locks held.
unlock_servers()
{
	local fd
	for fd in "${locks[@]}"; do exec {fd}>&-; done
	locks=()
}

# Creates and starts a private cluster that preloads zundo, in a new directory below
# $TMPDIR, reachable only by its socket. Reads further lines of postgresql.conf from
# standard input. Sets $cluster, $PGHOST, $PGPORT and $PGUSER. Fails if the server
# does not start.
new_cluster()
{
	cluster=$(as_server mktemp -d "${TMPDIR:-/tmp}/zundo.XXXXXX")
	clusters+=("$cluster")
	as_server "$bindir/initdb" -D "$cluster/data" -A trust -U postgres -N -E UTF8 --locale=C >"$work/initdb-$pg.log" 2>&1 || {
		cat "$work/initdb-$pg.log" >&2
		say "initdb failed"
		return 1
	}
	{
		cat "$conf_file"
		echo "unix_socket_directories = '$cluster'"
		cat
	} | as_server tee -a "$cluster/data/postgresql.conf" >/dev/null
	export PGHOST=$cluster PGPORT=5432 PGUSER=postgres
	unset PGDATABASE PGSERVICE PGOPTIONS PGPASSWORD
	start_cluster
}

start_cluster()
{
	as_server "$bindir/pg_ctl" -s -w -t 300 -D "$cluster/data" -l "$cluster/server.log" start >&2 || {
		tail -n 30 "$cluster/server.log" >&2
		say "the server did not start"
		return 1
	}
}

# stop_cluster [MODE]
stop_cluster() { as_server "$bindir/pg_ctl" -s -w -D "$cluster/data" -m "${1:-fast}" stop >/dev/null 2>&1; }

# descendants PID: prints its children, their children and so on, parents last.
descendants()
{
	local p
	for p in $(ps -o pid= --ppid "$1" || true); do
		descendants "$p"
		echo "$p"
	done
}

# Ends this shell's background jobs, which Ctrl-C does not reach, and waits until
# they have stopped their servers. Sends no signal to runuser, which would kill its
# child 2 s later.
stop_jobs()
{
	local p job pids=()
	for job in $(jobs -p); do
		for p in "$job" $(descendants "$job"); do
			case $(cat "/proc/$p/comm" 2>/dev/null) in '' | runuser) ;; *) pids+=("$p") ;; esac
		done
	done
	[ ${#pids[@]} -gt 0 ] || return 0
	kill "${pids[@]}" 2>/dev/null || true
	for p in {1..100}; do
		grep -qv '^Z' < <(ps -o stat= -p "$(IFS=,; echo "${pids[*]}")") || break
		sleep 0.2
	done
}

# Stops and removes all clusters of this shell. Runs at exit, also after Ctrl-C.
clusters=()
remove_clusters()
{
	local status=$? c
	trap - EXIT
	stop_jobs
	for c in "${clusters[@]}"; do
		as_server "$bindir/pg_ctl" -s -D "$c/data" -m immediate stop >/dev/null 2>&1 || true
		rm -rf "$c"
	done
	exit $status
}
trap remove_clusters EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

psql_quiet() { "$bindir/psql" -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
