# tools/release_root.sh - clean roots for ./zundo release-check: a base system in which
# a package is installed, or the steps of the Dockerfile are run.

# in_root COMMAND...: runs the command in the clean root.
in_root() { as_root chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"; }

# make_root NAME: makes a clean root in $release/NAME and sets $root to it. The base
# system is made once, and copied. It takes packages from where this system takes those of
# the distribution, its security updates included.
make_root()
{
	local base=$release/base suite
	suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
	root=$release/$1
	remove_root
	if [ ! -e "$base/made" ]; then
		as_root rm -rf "$base"
		as_root debootstrap --variant=minbase "$suite" "$base" || return 1
		if [ -e /etc/apt/sources.list.d/debian.sources ]; then
			as_root cp /etc/apt/sources.list.d/debian.sources "$base/etc/apt/sources.list.d/"
		elif [ -s /etc/apt/sources.list ]; then
			as_root cp /etc/apt/sources.list "$base/etc/apt/"
		fi
		echo force-unsafe-io | as_root tee "$base/etc/dpkg/dpkg.cfg.d/unsafe-io" >/dev/null
		as_root touch "$base/made"
	fi
	# debootstrap has made the devices: nothing of this system's is in the root but /proc
	as_root cp -a "$base" "$root" && as_root mkdir -p -m 1777 "$root/dev/shm" && as_root mount -t proc proc "$root/proc"
}

remove_root()
{
	[ -e "$root" ] || return 0
	if mountpoint -q "$root/proc"; then
		in_root sh -c 'runuser -u postgres -- /usr/lib/postgresql/*/bin/pg_ctl -D /tmp/data -m immediate stop' >/dev/null 2>&1
		as_root umount "$root/proc" || return 1
	fi
	as_root rm -rf --one-file-system "$root"
}

# use_readme: starts a cluster in the clean root that preloads zundo, and runs the first
# SQL of README.md in it.
use_readme()
{
	sed -n '/^```sql$/,/^```$/p' "$top/README.md" | sed '1d; /^```$/,$d' | as_root tee "$root/tmp/readme.sql" || return 1
	in_root sh -e -c "
		export PATH=/usr/lib/postgresql/$release_pg/bin:\$PATH
		runuser -u postgres -- initdb -D /tmp/data -A trust
		echo \"shared_preload_libraries = 'zundo'\" >>/tmp/data/postgresql.conf
		runuser -u postgres -- pg_ctl -w -D /tmp/data -o '-c unix_socket_directories=/tmp -c listen_addresses=' -l /tmp/log start
		runuser -u postgres -- psql -X -h /tmp -v ON_ERROR_STOP=1 -f /tmp/readme.sql
		runuser -u postgres -- psql -X -h /tmp -A -t -c \"SELECT count(*), sum(balance) FROM account\" | grep -x '100000|9999990'
		runuser -u postgres -- pg_ctl -w -D /tmp/data -m fast stop"
}

package_in_clean_root()
{
	local done=0
	make_root root-package || return 1
	{
		in_root sh -e -c 'apt-get -q update' &&
			as_root cp "$release/debian/postgresql-$release_pg-zundo_"*.deb "$root/tmp/" &&
			in_root sh -e -c "apt-get -q install -y --no-install-recommends /tmp/postgresql-$release_pg-zundo_*.deb" &&
			use_readme
	} || done=1
	remove_root
	return $done
}

# What autopkgtest does with debian/tests: a user without rights runs make installcheck on
# the package. One file of t/ stands for all of them, since each has run in ./zundo test.
debian_tests()
{
	local done=0 needs
	needs=$(sed -n 's/^Depends: @, //p' "$top/debian/tests/control" | tr -d ,)
	make_root root-tests || return 1
	{
		as_root cp "$release/debian/postgresql-$release_pg-zundo_"*.deb "$root/tmp/" &&
			as_root cp -r "$release/dist/from-tar" "$root/src" && in_root sh -e -c "
				apt-get -q update
				apt-get -q install -y --no-install-recommends /tmp/postgresql-$release_pg-zundo_*.deb $needs
				useradd -m tester
				chown -R tester /src
				cd /src
				runuser -u tester -- debian/tests/installcheck -m PROVE_TESTS=t/053_vacuum_undo.pl"
	} || done=1
	remove_root
	return $done
}

# The spec builds a package that rpmlint accepts. pg_config of this distribution's server is
# made to name the places that the server has in PostgreSQL's own packages for Red Hat.
rpm_builds()
{
	local done=0 places=/usr/pgsql-$release_pg
	make_root root-rpm || return 1
	{
		as_root mkdir -p "$root$places/bin" "$root/rpm/SOURCES" &&
			as_root cp "$release"/dist/zundo-*.tar.gz "$root/rpm/SOURCES/" &&
			as_root cp "$top/packaging/zundo.spec" "$root/rpm/" &&
			as_root tee "$root$places/bin/pg_config" <<-P &&
				#!/bin/sh
				case \$1 in
				--bindir) echo $places/bin ;;
				--pkglibdir) echo $places/lib ;;
				--sharedir) echo $places/share ;;
				--docdir) echo $places/doc ;;
				*) exec /usr/lib/postgresql/$release_pg/bin/pg_config "\$@" ;;
				esac
			P
			as_root chmod 755 "$root$places/bin/pg_config" && in_root sh -e -c "
				apt-get -q update
				apt-get -q install -y --no-install-recommends rpm gcc make libc6-dev liblz4-dev postgresql-server-dev-$release_pg
				rpmbuild -ba --nodeps --define '_topdir /rpm' --define 'pgmajor $release_pg' /rpm/zundo.spec" &&
			rpmlint --strict -r "$top/packaging/zundo.rpmlintrc" "$top/packaging/zundo.spec" "$root"/rpm/RPMS/*/*.rpm "$root"/rpm/SRPMS/*.rpm
	} || done=1
	remove_root
	return $done
}

# The base image is imitated by the distribution's package of the server, without what is
# for building; the commands are those of the RUN lines, and COPY is a copy.
docker_steps()
{
	local done=0 steps
	steps=$(sed -n ':a; /\\$/{N; s/\\\n//; ba}; s/^RUN //p' "$top/packaging/Dockerfile")
	[ "$(wc -l <<<"$steps")" = 2 ] || return 1
	make_root root-docker || return 1
	{
		as_root cp -r "$release/dist/from-tar" "$root/src" && in_root sh -e -c "
			export PG_MAJOR=$release_pg
			$steps" &&
			in_root sh -e -c "apt-get -q install -y --no-install-recommends postgresql-$release_pg && cp -a /installed/. /" &&
			use_readme
	} || done=1
	remove_root
	return $done
}
