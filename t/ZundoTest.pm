# Functions for the tests in t/: servers with zundo, sessions, blocks of files, and common checks.
package ZundoTest;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(read_block write_block write_twins twin_block map_block extent_block zundo_node standby_of server_major server_has sql session ask $complaint
	crash crashes stop_idle asleep all_discarded wait_for_death timed_out passes sound no_crash
	index_twins change_twins compare_twins twin_round rebuild_twins end_snapshots);

# The node that zundo_node has started last, which sql() uses.
my $newest;

# The error output of the last call of ask().
our $complaint = '';

# The time limit of a session is for each of its queries, and for its end. In the server's
# module it is for the whole life of the session, unless set_query_timer_restart was called,
# and even then quit dies in a session that was not used for that long. And quit returns
# when the session's process has ended: until then that holds its snapshot and its locks.
{
	no warnings 'redefine';
	my $background_psql = \&PostgreSQL::Test::Cluster::background_psql;
	*PostgreSQL::Test::Cluster::background_psql = sub {
		my $session = $background_psql->(@_);
		$session->set_query_timer_restart();
		$session->{node} = $_[0];
		$session->{backend} = $session->query('SELECT pg_backend_pid()');
		return $session;
	};
	my $quit = \&PostgreSQL::Test::BackgroundPsql::quit;
	*PostgreSQL::Test::BackgroundPsql::quit = sub {
		my ($session) = @_;
		my $postmaster = $session->{node}{_pid};
		$session->{timeout}->start();
		my $result = eval { $quit->($session) };
		my $error = $@;
		for (1 .. 50 * $PostgreSQL::Test::Utils::timeout_default)
		{
			last unless $postmaster && kill(0, $postmaster) && kill(0, $session->{backend});
			select(undef, undef, undef, 0.02);
		}
		die $error if $error ne '';
		return $result;
	};
}

# A file with a statement CREATE EXTENSION, or which names the plugin test_decoding, is
# skipped on a server without contrib, unless it asks server_has: then it skips what needs
# it itself. On a server with contrib it fails if that lacks the extension or plugin.
{
	open(my $file, '<', $0) or die "$0: $!";
	my $text = do { local $/; <$file> };
	my %needed = map { $_ => 1 } $text =~ /CREATE EXTENSION (?:IF NOT EXISTS )?(\w+)(?=\s*(?:[;'"),]|CASCADE\b|SCHEMA\b))/g, $text =~ /'(test_decoding)'/g;
	delete $needed{$_} for $text =~ /server_has\('(\w+)'\)/g;
	for my $name (sort grep { !/^zundo/ } keys %needed)
	{
		next if server_has($name);
		die "the server has contrib, but not $name" if server_has('amcheck');
		plan skip_all => "the server lacks $name of contrib";
	}
}

# server_has NAME: returns whether the server has the extension or library of this name.
sub server_has
{
	my ($name) = @_;
	my ($share, $lib) = map { my $dir = `pg_config $_`; chomp $dir; $dir } '--sharedir', '--pkglibdir';
	return -f "$share/extension/$name.control" || -f "$lib/$name.so";
}

# zundo_node NAME [CONF [OPTION => VALUE ...]]: starts a server and returns its node. It
# preloads zundo, and autovacuum is off, unless CONF, lines of postgresql.conf, turns it
# on. Options are those of PostgreSQL::Test::Cluster::init.
sub zundo_node
{
	my ($name, $conf, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%options);
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'zundo'\nautovacuum = off\njit = off\n");
	# so that checkpoints do not remove WAL that a slow standby still needs
	$node->append_conf('postgresql.conf', 'wal_keep_size = 1GB') if $options{allows_streaming};
	$node->append_conf('postgresql.conf', $conf // '');
	$node->start;
	$newest = $node;
	return $node;
}

# standby_of NODE [CONF]: starts a streaming standby of the node and returns its node.
my $standbys = 0;

sub standby_of
{
	my ($primary, $conf) = @_;
	my $standby = PostgreSQL::Test::Cluster->new('standby' . ($standbys++ || ''));
	$primary->backup('base');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', $conf // '');
	$standby->start;
	return $standby;
}

# server_major: returns the major version of the server under test.
sub server_major
{
	my ($major) = `pg_config --version` =~ /(\d+)/;
	return $major;
}

# sql LINE...: runs the lines with psql on the newest node and returns the output; dies if
# they fail.
sub sql
{
	my @lines = @_;
	return $newest->safe_psql('postgres', join("\n", @lines));
}

# session NODE [OPTION => VALUE ...]: returns a session that continues after errors.
sub session
{
	my ($node, %options) = @_;
	return $node->background_psql('postgres', on_error_stop => 0, %options);
}

# ask SESSION STATEMENT...: runs the statements in the session and returns the output;
# sets $complaint to the errors.
sub ask
{
	my ($session, @sql) = @_;
	my $answer = $session->query(join(";\n", @sql));
	$complaint = $session->{stderr};
	$session->{stderr} = '';
	return $answer;
}

# read_block FILE BLOCK: returns a block of a relation's file, which no server may be using.
sub read_block
{
	my ($path, $block) = @_;
	open(my $file, '<:raw', $path) or die "$path: $!";
	sysseek($file, $block * 8192, 0) or die $!;
	(sysread($file, my $bytes, 8192) // 0) == 8192 or die "$path, block $block: $!";
	close $file;
	return $bytes;
}

# write_block FILE BLOCK BYTES: writes a block of a relation's file, which no server may be using.
sub write_block
{
	my ($path, $block, $bytes) = @_;
	open(my $file, '+<:raw', $path) or die "$path: $!";
	sysseek($file, $block * 8192, 0) or die $!;
	syswrite($file, $bytes) == 8192 or die $!;
	close $file;
	return;
}

# crc32c BYTES: returns the checksum that the server calls CRC-32C.
sub crc32c
{
	my ($bytes) = @_;
	my $crc = 0xFFFFFFFF;
	for my $byte (unpack('C*', $bytes))
	{
		$crc ^= $byte;
		$crc = $crc & 1 ? ($crc >> 1) ^ 0x82F63B78 : $crc >> 1 for 1 .. 8;
	}
	return $crc ^ 0xFFFFFFFF;
}

# twin_block FIRST WHICH: returns the block of copy 0 or 1 of a meta or map page of the
# undo log, whose first copy is block FIRST. map_block GROUP: returns the block of the first
# copy of the map page of this group of extents; the first copy of the meta page is block 0.
# extent_block EXTENT: returns the first block of an extent.
sub twin_block { my ($first, $which) = @_; return $first + $which * 66 }
sub map_block { my ($group) = @_; return 1 + $group * (4 + 200 * 64) }
sub extent_block { my ($extent) = @_; my $i = $extent % 200; return map_block(int($extent / 200)) + 1 + $i * 64 + ($i ? 2 : 0) }

# write_twins FILE BLOCK BYTES: writes both twins of a meta or map page of the undo log,
# with the right checksum of the twin. The server's data checksums must be off.
sub write_twins
{
	my ($path, $first, $page) = @_;
	my $lower = unpack('S<', substr($page, 12, 2));
	substr($page, 36, 4) = pack('L<', $first);
	substr($page, 40, 4) = pack('L<', crc32c(substr($page, 24, 16) . substr($page, 48, $lower - 48)));
	write_block($path, twin_block($first, $_), $page) for (0, 1);
	return;
}

# crash NODE: stops the server in immediate mode and starts it, so that it recovers.
sub crash
{
	my ($node) = @_;
	$node->stop('immediate');
	$node->start;
	return;
}

# crashes NODE DO: calls DO->(), which may make a process of the server crash, and returns
# whether it returned false. In that case waits until the server (restart_after_crash must
# be on) has recovered. The log tells it: a psql that is refused during recovery may end
# before it has read its query, and the test would end with "Broken pipe".
sub crashes
{
	my ($node, $do) = @_;
	my $before = -s $node->logfile;
	return 0 if $do->();
	$node->wait_for_log(qr/database system is ready to accept connections/, $before);
	return 1;
}

# wait_for_death NODE: waits until the postmaster has exited (restart_after_crash must be
# off); returns whether it has.
sub wait_for_death
{
	my ($node) = @_;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		if (!-f $node->data_dir . '/postmaster.pid')
		{
			$node->{_pid} = undef;
			return 1;
		}
		select(undef, undef, undef, 0.1);
	}
	return 0;
}

# caught SESSION PID STATEMENT: waits until the process, which executes a statement like
# this one, sleeps at a fault point, where it stays for a second. Stops it there (SIGSTOP)
# and returns whether it does sleep there; if it was too late, lets it continue.
sub caught
{
	my ($watcher, $pid, $statement) = @_;
	my $look = "SELECT CASE WHEN wait_event = 'PgSleep' THEN 'asleep' WHEN state <> 'active' AND query LIKE '$statement' THEN 'passed' END
		FROM pg_stat_activity WHERE pid = $pid";
	for (my $n = 0; ask($watcher, $look) eq ''; $n++)
	{
		die "process $pid does not execute $statement" if $n > 9000;
		select(undef, undef, undef, 0.02);
	}
	kill 'STOP', $pid;
	return 1 if ask($watcher, $look) eq 'asleep';
	kill 'CONT', $pid;
	return 0;
}

# stop_idle NODE CONDITION: stops (SIGSTOP) the processes of pg_stat_activity that meet
# the condition, and returns their pids. Each of them waits for work, and so holds no lock
# for which a session would wait forever.
sub stop_idle
{
	my ($node, $condition) = @_;
	for (1 .. 200)
	{
		my $found = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE $condition");
		my @pids = split /\n/, $found;
		die "no process is there: $condition" unless @pids;
		kill 'STOP', @pids;
		my $idle = q{count(*) FILTER (WHERE wait_event_type IN ('Activity', 'Extension'))};
		my ($waiting, $timed_out);
		$node->psql('postgres', "SELECT $idle FROM pg_stat_activity WHERE pid = ANY('{" . join(',', @pids) . "}')",
			stdout => \$waiting, timeout => 10, timed_out => \$timed_out);
		return @pids if !$timed_out && $waiting eq @pids;
		kill 'CONT', @pids;
		select(undef, undef, undef, 0.05);
	}
	die "the processes are never idle: $condition";
}

# asleep NODE PID: waits until the process is in pg_sleep(), or sleeps at a fault point;
# returns whether it is.
sub asleep
{
	my ($node, $pid) = @_;
	return $node->poll_query_until('postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $pid AND wait_event = 'PgSleep'");
}

# all_discarded NODE [DATABASE]: waits until all undo of the database has been discarded;
# returns whether it has. One call of zundo.discard() may leave some, for another process
# can have a snapshot for a moment: a worker that begins a cycle, the launcher, a session
# that connects. The last pass begins when the one has ended that has emptied the logs, so
# `oldest` is published as well.
sub all_discarded
{
	my ($node, $database) = @_;
	return $node->poll_query_until($database // 'postgres', 'SELECT zundo.discard() IS NOT NULL AND zundo.undo_bytes_in_use() = 0 AND zundo.discard() IS NOT NULL');
}

# timed_out NODE SQL NAME: tests that the statement has to wait for a lock (lock_timeout
# must be set).
sub timed_out
{
	my ($node, $sql, $name) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($err, qr/canceling statement due to lock timeout/, $name);
	return;
}

# passes NODE SQL NAME: tests that the statement raises no error, not even for a lock;
# rolls it back.
sub passes
{
	my ($node, $sql, $name) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "BEGIN; $sql; ROLLBACK", on_error_stop => 1);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($err, '', $name);
	return;
}

# sound NODE WHEN TABLE...: tests that zundo.check finds nothing in the tables.
sub sound
{
	my ($node, $when, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $table (@tables)
	{
		is($node->safe_psql('postgres', "SELECT * FROM zundo.check('$table')"), '', "zundo.check of $table" . ($when eq '' ? '' : ", $when"));
	}
	return;
}

# index_twins NODE QUERIES [OPTION => VALUE ...]: for a test that has made heap table h
# with btree indexes and zheap table z with zbtree indexes, with the same rows, and
# compares the answers to QUERIES, in which T stands for either table. Returns a hash of
# the session that changes both (writer), the list of sessions with old snapshots (old)
# and the options: ways => plans by which z is read: some of seq, index, only (index-only
# scans, if they are possible), bitmap and workers (as only, in parallel); others => a
# list of such values, one of which is taken at random for each session but the writer;
# sorted => 1 if the rows of an answer have no order; more => a statement that must return
# nothing; snapshots => how many old ones there are at most. The SQL functions plan_for,
# differences and unsound, and the table queries, are for the test's own use as well.
sub index_twins
{
	my ($node, $queries, %options) = @_;
	my $list = join(', ', map { "(\$q\$$_\$q\$)" } @$queries);
	$node->safe_psql('postgres', "CREATE TABLE queries (q text); INSERT INTO queries VALUES $list;" . <<'S');
CREATE FUNCTION plan_for(way text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	PERFORM set_config('enable_' || v.setting, (way = ANY (string_to_array(v.ways, ' ')))::text, true)
	FROM (VALUES ('seqscan', 'seq'), ('indexscan', 'index only workers'), ('indexonlyscan', 'only workers'), ('bitmapscan', 'bitmap'),
		('sort', 'seq bitmap'), ('hashjoin', 'seq'), ('nestloop', 'index bitmap'), ('material', 'seq index bitmap')) v (setting, ways);
	PERFORM set_config('max_parallel_workers_per_gather', CASE way WHEN 'workers' THEN '2' ELSE '0' END, true);
	PERFORM set_config(s.setting, '0', true) FROM unnest(ARRAY['parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_index_scan_size',
		'min_parallel_table_scan_size']) s (setting);
END $$;
CREATE FUNCTION answer(query text, tab text, way text, sorted bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE got text;
BEGIN
	PERFORM plan_for(way);
	EXECUTE format(CASE WHEN sorted THEN 'SELECT string_agg(x, '';'' ORDER BY x) FROM (SELECT q::text AS x FROM (%s) q) s'
		ELSE 'SELECT string_agg(q::text, '';'') FROM (%s) q' END, regexp_replace(query, '\mT\M', tab, 'g')) INTO got;
	RETURN got;
END $$;
CREATE FUNCTION differences(ways text, sorted bool) RETURNS TABLE (way text, query text, heap text, zheap text) LANGUAGE plpgsql AS $$
DECLARE h text; z text; w text; q text;
BEGIN
	FOR q IN SELECT * FROM queries LOOP
		h := answer(q, 'h', 'seq', sorted);
		FOREACH w IN ARRAY string_to_array(ways, ' ') LOOP
			z := answer(q, 'z', w, sorted);
			IF h IS DISTINCT FROM z THEN way := w; query := q; heap := h; zheap := z; RETURN NEXT; END IF;
		END LOOP;
	END LOOP;
END $$;
-- zundo.check_index determines by itself which entries must be there (INDEX-1 to INDEX-4)
CREATE FUNCTION unsound() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(i::text || ': ' || c::text, '; ') FROM pg_index, LATERAL (SELECT indexrelid::regclass) r (i), LATERAL zundo.check_index(i) c
	WHERE indrelid = 'z'::regclass AND NOT indisunique $$;
S
	my $ways = $options{ways} // 'only bitmap seq';
	return { node => $node, writer => session($node), old => [], snapshots => 3, sorted => 0, ways => $ways, others => [$ways], %options };
}

# change_twins TWINS SQL: runs the statement, which calls the table T, in the writer's
# session for both tables. Tests that it raises no error.
sub change_twins
{
	my ($twins, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $t ('h', 'z')
	{
		(my $s = $sql) =~ s/\bT\b/$t/g;
		ask($twins->{writer}, $s);
		is($complaint, '', "no error: $s") if $complaint ne '';
	}
	return;
}

# compare_twins TWINS WHAT [SESSION ...]: tests that the writer, all old snapshots and
# these sessions get the same answers from both tables, and that the indexes of z are
# sound. Returns whether that is so.
sub compare_twins
{
	my ($twins, $what, @sessions) = @_;
	my $bad = '';
	my $ways = $twins->{ways};
	for my $s ($twins->{writer}, @{ $twins->{old} }, @sessions)
	{
		for my $sql ("SELECT * FROM differences('$ways', $twins->{sorted}::bool)", $twins->{more} // ())
		{
			$bad .= ask($s, $sql);
			$bad .= $complaint;
		}
		$ways = $twins->{others}[ rand @{ $twins->{others} } ];
	}
	$bad .= $twins->{node}->safe_psql('postgres', 'SELECT unsound()');
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($bad, '', $what);
}

# snapshot_of_twins TWINS: adds a session with an old snapshot, which has not locked z yet.
sub snapshot_of_twins
{
	my ($twins) = @_;
	my $s = session($twins->{node});
	ask($s, 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM h');
	push @{ $twins->{old} }, $s;
	return;
}

# end_snapshots TWINS: ends all old snapshots.
sub end_snapshots
{
	my ($twins) = @_;
	ask($_, 'COMMIT'), $_->quit for @{ $twins->{old} };
	$twins->{old} = [];
	return;
}

# twin_round TWINS ROUND ONE: takes or ends an old snapshot, runs a transaction of random
# changes, which ONE->() returns, with savepoints, and commits it or rolls it back.
# Compares afterwards, and in every third round before its end as well.
sub twin_round
{
	my ($twins, $round, $one) = @_;
	my ($writer, $old) = @$twins{qw(writer old)};
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	if (@$old < $twins->{snapshots}) { snapshot_of_twins($twins) }
	elsif (rand() < 0.4)
	{
		my ($s) = splice(@$old, int(rand(@$old)), 1);
		ask($s, 'COMMIT');
		$s->quit;
	}
	ask($writer, 'BEGIN');
	for my $n (1 .. 1 + int(rand(6)))
	{
		my $sub = rand();
		ask($writer, 'SAVEPOINT s') if $sub < 0.5;
		change_twins($twins, $one->()) for 1 .. 3;
		ask($writer, $sub < 0.3 ? 'ROLLBACK TO s' : 'RELEASE s') if $sub < 0.5;
	}
	compare_twins($twins, "round $round") if $round % 3 == 0;
	ask($writer, rand() < 0.25 ? 'ROLLBACK' : 'COMMIT');
	compare_twins($twins, "round $round, ended");
	return;
}

# rebuild_twins TWINS WHAT ONE SQL: runs the statements, which rebuild z or its indexes,
# and compares. The only old snapshot is older than 30 changes, which ONE->() returns.
sub rebuild_twins
{
	my ($twins, $what, $one, $sql) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	end_snapshots($twins);
	snapshot_of_twins($twins);
	change_twins($twins, $one->()) for 1 .. 30;
	$twins->{node}->safe_psql('postgres', $sql);
	# BUILD-5: if only the newest versions were entered, unsound() would say which
	# entries the old snapshot needs, and it would not find its rows by their keys
	compare_twins($twins, $what);
	return;
}

# no_crash NODE [MORE]: tests that the log has no line that reports a crash, a PANIC, a
# failed assertion or a difference found by wal_consistency_checking, and none that
# matches MORE, a pattern. (Signal 9 is not looked for, since tests use it.)
sub no_crash
{
	my ($node, $more) = @_;
	my $bad = qr/PANIC:(?!.*fault)|TRAP:|inconsistent page|terminated by signal (?:4|6|7|8|11)\b/;
	$bad = qr/$bad|$more/ if defined $more;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	unlike(slurp_file($node->logfile), $bad,
		$node->name . ': no crash in the log, replayed pages are equal');
	return;
}

1;
