# tools/release.sh - ./zundo release-check: what has to hold before a release.
#
# Sourced by ./zundo after common.sh. Each point is a function; the archive and the
# packages are made from the last commit. A clean root is a system of Debian that
# debootstrap makes in $work, with nothing but its base packages.

. "$top/tools/test_jobs.sh"
. "$top/tools/release_root.sh"

# Points that only people can settle: they are listed, and nothing fails.
open_points=()
to_do() { open_points+=("$1"); printf '  to do   %s\n' "$1"; }

# point NAME FUNCTION: calls the function, unless names were given and none is in the
# function's; its output goes to a log that a failure names.
point()
{
	local log=$release/$2.log name wanted=no
	for name in "${names[@]}"; do [[ $2 != *$name* ]] || wanted=yes; done
	[ ${#names[@]} -eq 0 ] || [ $wanted = yes ] || return 0
	say "$1 ..."
	if "$2" >"$log" 2>&1; then result ok "$1"; else result fail "$1 (see $log)"; fi
}

in_git() { git -c safe.directory="$top" -C "$top" "$@"; }

# Once 1.0 is released, databases have the objects of its script: an update script makes
# the objects of the next version.
script_is_kept()
{
	local tag=v1.0
	in_git rev-parse -q --verify "refs/tags/$tag" || return 0
	in_git diff --exit-code "$tag" -- zundo--1.0.sql
}

nothing_uncommitted() { [ -z "$(in_git status --porcelain)" ] || { in_git status --short; return 1; }; }

# The archive for PGXN and the one for packages have the same files, and build alone.
archive_builds()
{
	local v config
	rm -rf "$release/dist" && mkdir -p "$release/dist" || return 1
	make -s -f "$top/Makefile" -C "$release/dist" dist || return 1
	(cd "$release/dist" && tar xf zundo-*.tar.gz && mv zundo-*/ from-tar && python3 -m zipfile -e zundo-*.zip . &&
		mv zundo-*/ from-zip && diff -r from-tar from-zip) || return 1
	for v in "${all_majors[@]}"; do
		config=$(system_bindir "$v")/pg_config || continue
		[ -x "$config" ] || continue
		make -C "$release/dist/from-zip" -j2 PG_CONFIG="$config" WERROR=1 || return 1
		make -C "$release/dist/from-zip" PG_CONFIG="$config" DESTDIR="$release/dist/root" install clean || return 1
	done
	[ -n "$(find "$release/dist/root" -name zundo.so)" ]
}

# The first build whose SQL objects a dump may expect, until there is a release.
first_build=cb6fa57

# A dump of a database of the first release, or of the first build, is restored into a server
# with this one. Both run in a private copy of the server.
dump_is_restored()
(
	local old=$first_build make
	clusters=()
	trap remove_clusters EXIT
	! in_git rev-parse -q --verify refs/tags/v1.0 || old=v1.0
	choose_server "$release_pg" measure
	lock_server
	make=(make -s -C "$release/earlier" -j2 "PG_CONFIG=$pg_config")
	rm -rf "$release/earlier" && mkdir "$release/earlier" || exit 1
	in_git archive "$old" | tar -xf - -C "$release/earlier" || exit 1
	"${make[@]}" && "${make[@]}" install && new_cluster </dev/null || exit 1
	psql_quiet -d postgres -f "$top/tools/earlier.sql" || exit 1
	all_rows >"$release/earlier.rows" && "$bindir/pg_dump" -f "$release/earlier.dump" postgres && stop_cluster || exit 1
	build use && install_into_server && new_cluster </dev/null || exit 1
	psql_quiet -d postgres -c 'CREATE ROLE watcher' -f "$release/earlier.dump" >&2 && all_rows | diff "$release/earlier.rows" - || exit 1
	psql_quiet -d postgres -c "SELECT c.oid::regclass, f FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check(c.oid) f
		WHERE a.amname = 'zheap' AND c.relkind IN ('r', 'm')" >"$release/earlier.faults" && [ ! -s "$release/earlier.faults" ]
)

# all_rows: prints the rows of the tables of tools/earlier.sql, with the access methods.
all_rows()
{
	psql_quiet -d postgres <<-'S'
		SELECT c.relname, a.amname FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE c.relnamespace = 'shop'::regnamespace ORDER BY 1;
		SELECT * FROM shop.customer ORDER BY id;
		SELECT * FROM shop.orders ORDER BY id;
		SELECT * FROM shop.totals ORDER BY 1;
		SELECT name, am FROM shop.sizes ORDER BY 1;
	S
}

# The packages of this distribution, in $release/debian.
debian_packages()
{
	local version
	version=$(sed -n 's/^zundo (\(.*\)-[0-9]*).*/\1/p;1q' "$top/debian/changelog")
	rm -rf "$release/debian" && mkdir -p "$release/debian" && cd "$release/debian" || return 1
	cp "$release"/dist/zundo-*.tar.gz "zundo_$version.orig.tar.gz" && tar xf "zundo_$version.orig.tar.gz" &&
		cd "zundo-$version" && MAKEFLAGS='' dpkg-buildpackage -us -uc || return 1
	# the first upload closes no report, and debian/ is a part of the project
	lintian --allow-root --fail-on error,warning \
		--suppress-tags initial-upload-closes-no-bugs,no-debian-changes ../zundo_*.changes
}

# The exporter makes all metrics of monitoring/, and promtool accepts them and the alerts. The
# programs are only unpacked: their packages would start services.
monitoring_files()
{
	local package
	rm -rf "$release/monitoring" && mkdir -p "$release/monitoring" && cd "$release/monitoring" || return 1
	apt-get -q download prometheus prometheus-postgres-exporter || return 1
	for package in *.deb; do dpkg-deb -x "$package" . || return 1; done
	PATH=$PATH:$PWD/usr/bin "$top/zundo" test --pg "$release_pg" --part tap 170_monitoring || return 1
	! grep -q 'skipped in it' "$release/monitoring_files.log"
}

manual_page() { mandoc -T lint -W warning "$top/docs/zundo.1"; }

# apt_arm64 ARGUMENT...: apt-get for an empty system of arm64, with this system's sources
# of packages; the lists and packages of this system stay as they are.
apt_arm64()
{
	as_root apt-get -q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$arm64/apt" \
		-o Dir::State::status=/dev/null -o Dir::Cache="$arm64/apt" -o APT::Sandbox::User=root "$@"
}

# The last commit compiles for arm64 without a warning, against the server that Debian has
# for arm64. It is unpacked in $arm64 with the libraries that it needs.
cross_build()
{
	local package options
	as_root rm -rf "$arm64"
	mkdir -p "$arm64/apt/lists/partial" "$arm64/apt/archives/partial" && cd "$arm64/apt/archives" || return 1
	apt_arm64 update && apt_arm64 install -y --download-only --no-install-recommends "postgresql-$release_pg" &&
		apt_arm64 download liblz4-dev libpq-dev "postgresql-server-dev-$release_pg" || return 1
	for package in *.deb; do dpkg-deb -x "$package" "$arm64" || return 1; done
	cp -r "$release/dist/from-tar" "$arm64/source" || return 1
	options=(PG_CONFIG="$(system_bindir "$release_pg")/pg_config" CC=aarch64-linux-gnu-gcc WERROR=1 INCLUDES=
		CPPFLAGS="-I$arm64/source -I$arm64/usr/include/postgresql/$release_pg/server -I$arm64/usr/include -D_GNU_SOURCE"
		SHLIB_LINK="-L$arm64/usr/lib/aarch64-linux-gnu -l:liblz4.so.1")
	make -C "$arm64/source" -j2 "${options[@]}" || return 1
	aarch64-linux-gnu-readelf -h "$arm64/source/zundo.so" | grep AArch64 || return 1
	make -C "$arm64/source" "${options[@]}" DESTDIR="$arm64" install
}

# One test of sql/ and one of isolation/ pass on that server. The kernel starts its programs
# with qemu, which looks for their libraries below QEMU_LD_PREFIX.
emulated_tests()
{
	as_root update-binfmts --enable qemu-aarch64 || return 1
	(
		. "$top/tools/test.sh"
		pg=arm64 major=$release_pg tier=one copy=$arm64/source bindir=$arm64/usr/lib/postgresql/$release_pg/bin
		names=(basic lockers) passed=0 failed=0
		export QEMU_LD_PREFIX=$arm64 PG_TEST_TIMEOUT_DEFAULT=900
		use_bindir
		part_sql
		part_isolation
		[ $failed -eq 0 ]
	)
}

# What a person decides or has to write before the tag is set.
what_people_do()
{
	in_git rev-parse -q --verify refs/tags/v1.0 >/dev/null || {
		grep -q '^## 1.0, not released yet' "$top/CHANGELOG.md" && to_do 'CHANGELOG.md: the date of the release'
		grep -q '"release_status": "stable"' "$top/META.json" || to_do 'META.json: release_status'
		to_do 'the tag v1.0; from then on zundo--1.0.sql is kept as it is'
	}
	grep -q UNRELEASED "$top/debian/changelog" && to_do 'debian/changelog: the distribution, with dch --release'
	grep -rq 'example\.org' "$top/debian" "$top/packaging" && to_do 'debian/, packaging/: the address of the maintainers'
	to_do './zundo test --all and --long on the commit that gets the tag'
}

# run_release_check [NAME]...: ./zundo release-check. Fails if a point does.
run_release_check()
{
	local names=("$@")
	release_pg=$(default_major)
	pg=release
	prepare_work
	release=$work/release
	arm64=$release/arm64
	mkdir -p "$release"
	[ -e "$top/.git" ] || die "release-check needs a git checkout"
	need_packages build-essential "postgresql-$release_pg" "postgresql-server-dev-$release_pg" debhelper debootstrap lintian postgresql-server-dev-all liblz4-dev rpm rpmlint mandoc git \
		gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static binfmt-support
	point 'nothing is uncommitted' nothing_uncommitted
	point './zundo check' source_checks
	point 'zundo--1.0.sql is that of the tag v1.0' script_is_kept
	point 'a dump of an earlier build is restored' dump_is_restored
	point 'the archives of make dist build alone' archive_builds
	point 'the manual page' manual_page
	point 'the exporter and promtool of the distribution' monitoring_files
	point 'Debian packages' debian_packages
	point 'a clean root with the package: CREATE EXTENSION and the README' package_in_clean_root
	point 'debian/tests in a clean root' debian_tests
	point 'the RPM' rpm_builds
	point 'the steps of packaging/Dockerfile in a clean root' docker_steps
	point 'arm64: cross build' cross_build
	point 'arm64: tests in emulation' emulated_tests
	what_people_do
	echo "$passed passed, $failed failed, ${#open_points[@]} to do"
	[ $failed -eq 0 ]
}

source_checks() { python3 "$top/tools/check_source.py"; }
