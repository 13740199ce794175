# A deletion, and a move, leave the old row where it is. It is saved in undo when others
# need the space (SAVED-1 in mvcc/zsaved.c). Whichever pages were written before a crash,
# the old row is available to those that need it, and never another row in its place.
# long
use strict;
use warnings;
use File::Copy qw(copy);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::RecursiveCopy;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my @tables = qw(narrow wide packed);
my $rows = join(' UNION ALL ', map { "SELECT '$_', count(*), md5(string_agg(t::text, ',' ORDER BY id)) FROM $_ t" } @tables);

# clone NODE, NAME: makes another server with a copy of the files of NODE, which is stopped.
sub clone
{
	my ($node, $name) = @_;
	my $clone = PostgreSQL::Test::Cluster->new($name);
	PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir, $clone->data_dir);
	chmod(0700, $clone->data_dir);
	unlink($clone->data_dir . '/postmaster.pid');
	$clone->append_conf('postgresql.conf',
		'port = ' . $clone->port . "\nunix_socket_directories = '" . $clone->host . "'\n");
	return $clone;
}

# Combinations of pages that were written before the crash: none, all, only tables, only
# undo, tables and each second page of undo.
for my $images (qw(on off))
{
	my $node = zundo_node("images_$images", <<"C");
full_page_writes = $images
wal_consistency_checking = 'all'
max_worker_processes = 0
zundo.eager_rollback_pages = 0
max_wal_size = 4GB
checkpoint_timeout = 1h
C
	my @create = map { "CREATE TABLE $_ (id int, pad text, n int DEFAULT 0) USING zheap WITH (fillfactor = 50);"
		. "ALTER TABLE $_ ALTER pad SET STORAGE PLAIN; CREATE INDEX ON $_ (n)" } @tables;
	sql('CREATE EXTENSION zundo; CREATE EXTENSION pg_walinspect;', join('; ', @create), q{;
		INSERT INTO narrow SELECT g, md5(g::text) FROM generate_series(1, 2000) g;
		INSERT INTO wide SELECT g, (SELECT string_agg(md5((g * 1000 + i)::text), '') FROM generate_series(1, 120) i) FROM generate_series(1, 60) g;
		INSERT INTO packed SELECT g, repeat(md5(g::text), 1 + g % 200) FROM generate_series(1, 300) g;
		CHECKPOINT});

	# Deletions and moves in subtransactions, and again after a rollback; new rows that
	# use the room of deleted ones.
	sql('BEGIN;', map({ "DELETE FROM $_ WHERE id % 4 = 0; SAVEPOINT a; DELETE FROM $_ WHERE id % 4 = 1; ROLLBACK TO a;"
		. "DELETE FROM $_ WHERE id % 8 = 1; SAVEPOINT b; DELETE FROM $_ WHERE id % 8 = 3; RELEASE b;" } @tables), 'COMMIT');
	sql('BEGIN;', map({ "UPDATE $_ SET n = 1 WHERE id % 8 = 2; SAVEPOINT a; UPDATE $_ SET n = 2, pad = 'y' || pad WHERE id % 8 = 5; ROLLBACK TO a;"
		. "UPDATE $_ SET n = 3, pad = md5(pad) WHERE id % 8 = 5; SAVEPOINT b; UPDATE $_ SET n = id, pad = 'a' || right(pad, -1) WHERE id % 8 = 6; RELEASE b;" } @tables), 'COMMIT');
	sql(map { "INSERT INTO $_ SELECT -id, upper(pad) FROM $_ WHERE id % 3 = 0;" } @tables);
	my $before = sql($rows);
	my $open = $node->background_psql('postgres', on_error_stop => 1);
	$open->query_safe(join('; ', 'BEGIN', map({ "UPDATE $_ SET n = n + 1 WHERE id % 5 = 0; SAVEPOINT m; UPDATE $_ SET n = n - 1, pad = pad || 'z' WHERE id % 5 IN (0, 1)"
		} @tables), map({ "DELETE FROM $_ WHERE id % 2 = 0; SAVEPOINT c; DELETE FROM $_ WHERE id % 7 = 0" } @tables)));
	sql("SELECT pg_logical_emit_message(true, 'test', 'flush')");
	my @files = map { sql("SELECT pg_relation_filepath('$_')") } @tables;
	my $undo = sql("SELECT pg_relation_filepath('zundo.undo_log')");
	is(sql($rows), $before, "images $images: others see no deletion in progress");
	$node->stop('immediate');
	$open->{run}->finish;

	my $replayed = clone($node, "replayed_$images");
	$replayed->start;
	is($replayed->safe_psql('postgres', $rows), $before, "images $images, no page written: the rows");
	$replayed->stop('fast');
	my %written = (all => [ @files, $undo ], tables => \@files, undo => [$undo], half => \@files);
	for my $which (sort keys %written)
	{
		my $crashed = clone($node, "written_${which}_$images");
		for my $file (@{ $written{$which} })
		{
			copy($replayed->data_dir . "/$file", $crashed->data_dir . "/$file") or die "$file: $!";
		}
		for (my $block = 1; $which eq 'half' && $block < (-s $replayed->data_dir . "/$undo") / 8192; $block += 2)
		{
			my $page = read_block($replayed->data_dir . "/$undo", $block);
			# not meta and map pages
			write_block($crashed->data_dir . "/$undo", $block, $page) unless substr($page, 32, 4) =~ /^[DM]NUZ/;
		}
		$crashed->start;
		is($crashed->safe_psql('postgres', $rows), $before, "images $images, $which written: the rows");
		sound($crashed, "images $images, $which written", @tables);
		$crashed->safe_psql('postgres', join('', map { "UPDATE $_ SET n = n + 5 WHERE id % 5 = 0; DELETE FROM $_ WHERE id % 2 = 0;" } @tables) . 'SELECT zundo.discard()');
		sound($crashed, "images $images, $which written, changed again", @tables);
		my $changed = $crashed->safe_psql('postgres', $rows);
		$crashed->safe_psql('postgres', join('', map { "CREATE INDEX ON $_ (pad) WHERE length(pad) < 1000; VACUUM FULL $_;" } @tables));
		is($crashed->safe_psql('postgres', $rows), $changed, "images $images, $which written: rewritten");
		sound($crashed, "images $images, $which written, rewritten", @tables);
		no_crash($crashed);
		$crashed->stop;
	}
	no_crash($replayed);
}

# full_page_writes was off until just now: the table page has no image in WAL, and is
# newer on disk than the records of the deletions. The rows have gone from there, and what
# replay saves of them says so (SAVED-5).
{
	my $node = zundo_node('switched', <<'C', allows_streaming => 1);
full_page_writes = off
max_worker_processes = 0
max_prepared_transactions = 2
checkpoint_timeout = 1h
C
	sql(q{CREATE EXTENSION zundo; CREATE EXTENSION pg_walinspect; CREATE TABLE other (id int) USING zheap;
		CREATE TABLE t (id int, pad text) USING zheap; INSERT INTO t SELECT g, 'a' || (SELECT left(string_agg(md5(g || ' ' || i), ''), 299) FROM generate_series(1, 10) i) FROM generate_series(1, 20) g;
		CREATE INDEX ON t (id); CREATE INDEX ON t USING zbtree (pad); ANALYZE t; INSERT INTO other VALUES (1); CHECKPOINT; DELETE FROM t WHERE id = 20});
	my $start = sql('SELECT pg_current_wal_insert_lsn()');
	sql(q{BEGIN; INSERT INTO other VALUES (2); PREPARE TRANSACTION 'kept'});
	$node->append_conf('postgresql.conf', 'full_page_writes = on');
	$node->reload;
	ok($node->poll_query_until('postgres', qq{SELECT count(*) > 0 FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())
		WHERE record_type = 'FPW_CHANGE'}), 'images from now on');
	sql(q{BEGIN; INSERT INTO other VALUES (3); DELETE FROM t WHERE id <= 15; UPDATE t SET id = id + 1000 WHERE id IN (16, 18); COMMIT;
		INSERT INTO t SELECT 100 + g, repeat('b', 300) FROM generate_series(1, 15) g});
	is(sql(qq{SELECT count(*) FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn())
		WHERE resource_manager = 'zundo' AND record_type IN ('DELETE', 'MOVE') AND fpi_length > 0}), '0', 'without an image');
	my $saved = q{SELECT count(*) FROM zundo.undo_records(NULL, 1000) WHERE type = 'ROWS'};
	cmp_ok(sql($saved), '>', 0, 'rows are saved');
	my $state = "SELECT count(*), sum(id), min(pad), max(pad) FROM t";
	my $before = sql($state);
	my $file = sql("SELECT pg_relation_filepath('t')");
	is(sql('SELECT pg_relation_size(\'t\')'), '8192', 'one page');
	$node->stop('immediate');

	my $replayed = clone($node, 'switched_replayed');
	$replayed->start;
	is($replayed->safe_psql('postgres', $state), $before, 'an older table page');
	sound($replayed, 'an older table page', 't');
	$replayed->stop('fast');
	copy($replayed->data_dir . "/$file", $node->data_dir . "/$file") or die $!;
	$node->start;
	is(sql($state), $before, 'a newer table page');
	cmp_ok(sql($saved), '>', 0, 'with saved rows');
	$start = sql('SELECT pg_current_wal_insert_lsn()');
	sound($node, 'a newer table page', 't');
	sql("SELECT pg_logical_emit_message(true, 'test', 'flush')");
	like(sql(qq{SELECT description FROM pg_get_wal_records_info('$start', pg_current_wal_flush_lsn()) WHERE record_type = 'UNDO_DISCARD'}),
		qr/conflict [1-9]/, 'which are gone, so queries of standbys that may need them end');
	like(sql('EXPLAIN SELECT * FROM t WHERE id < 2'), qr/rows=/, 'the planner looks for the least id');
	my %counts;
	for (1 .. 20)
	{
		$counts{ sql(q{SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(id) FROM t WHERE pad < 'b'}) }++;
		select(undef, undef, undef, 0.02);
	}
	is_deeply(\%counts, { 4 => 20 }, 'scans of a zbtree index judge their entries (MARK-1)');
	sql('CREATE INDEX ON t (id); VACUUM FULL t');
	is(sql($state), $before, 'an index build and a rewrite beside an old prepared transaction');
	sql("COMMIT PREPARED 'kept'");
	sql('SELECT zundo.discard()');
	sql('CREATE INDEX ON t (id); VACUUM FULL t');
	is(sql($state), $before, 'and when the undo is not needed any more');
	sound($node, 'in the end', 't');
	no_crash($node);
	$node->stop;
}

# A standby's old snapshot reads the rows that it has taken from its own pages.
{
	my $primary = zundo_node('primary', <<'C', allows_streaming => 1);
wal_consistency_checking = 'all'
max_standby_streaming_delay = -1
C
	sql(q{CREATE EXTENSION zundo; CREATE TABLE t (id int, pad text) USING zheap WITH (fillfactor = 50); ALTER TABLE t ALTER pad SET STORAGE PLAIN;
		CREATE INDEX ON t (id); INSERT INTO t SELECT g, repeat(md5(g::text), g % 100) FROM generate_series(1, 1000) g});
	$primary->backup('base');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', "hot_standby_feedback = on\nwal_receiver_status_interval = 1");
	$standby->start;
	my $state = 'SELECT count(*), md5(string_agg(t::text, $$,$$ ORDER BY id)) FROM t';
	my $before = sql($state);
	my $old = $standby->background_psql('postgres', on_error_stop => 1);
	$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
	is($old->query_safe($state), $before, 'an old snapshot of a standby');
	ok($primary->poll_query_until('postgres', 'SELECT backend_xmin IS NOT NULL FROM pg_stat_replication'), 'of which the primary knows');
	for (1 .. 3)
	{
		sql('UPDATE t SET id = id + 10 WHERE id % 3 = 1; DELETE FROM t WHERE id % 3 = 2; CHECKPOINT; UPDATE t SET id = -id WHERE id % 2 = 0;',
			'CHECKPOINT; DELETE FROM t;', 'INSERT INTO t SELECT g, repeat(md5((-g)::text), g % 100) FROM generate_series(1, 1000) g');
		$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
		is($old->query_safe($state), $before, 'still sees the rows');
	}
	$old->quit;
	sql('DELETE FROM t WHERE id % 2 = 0; UPDATE t SET id = id + 1 WHERE id % 5 = 0');
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	$standby->stop('immediate');
	sql('DELETE FROM t WHERE id % 3 = 0; UPDATE t SET id = id + 1 WHERE id % 7 < 2');
	$standby->start;
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
	is($standby->safe_psql('postgres', $state), sql($state), 'after a restart of the standby');
	$standby->promote;
	sound($standby, 'promoted', 't');
	no_crash($_) for $primary, $standby;
	$standby->stop;
	$primary->stop;
}

# A crash, or an error, after rows were saved and before the page is pruned, and after both
# (SAVED-3). A prepared transaction keeps the undo, so that index builds and rewrites need
# the rows afterwards.
{
	my $node = zundo_node('between', <<'C');
wal_consistency_checking = 'all'
restart_after_crash = on
max_worker_processes = 0
max_prepared_transactions = 2
C
	sql(q{CREATE EXTENSION zundo; CREATE TABLE other (id int) USING zheap; BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'kept'});
	my $n = 0;
	for my $fault (qw(rows-saved:error rows-saved:crash prune-logged:crash))
	{
		my $t = 't' . ++$n;
		my $state = "SELECT count(*), sum(id), min(pad), max(pad) FROM $t";
		my $insert = "INSERT INTO $t SELECT 100 + g, repeat('b', 300) FROM generate_series(1, 15) g";
		sql("CREATE TABLE $t (id int, pad text) USING zheap; INSERT INTO $t SELECT g, repeat('a', 300) FROM generate_series(1, 24) g");
		my $old = $node->background_psql('postgres', on_error_stop => 1);
		$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
		my $seen = $old->query_safe($state);
		sql("BEGIN; DELETE FROM $t WHERE id <= 10; SAVEPOINT s; UPDATE $t SET pad = 'c' || pad WHERE id IN (11, 12); DELETE FROM $t WHERE id IN (13, 14); COMMIT");
		my $before = sql($state);
		my $fails = sub { return ($node->psql('postgres', "SET zundo.fault = '$fault'; $insert"))[0] == 0 };
		if ($fault =~ /error/)
		{
			ok(!$fails->(), "$fault: the insertion fails");
			is($old->query_safe($state), $seen, "$fault: the old snapshot sees its rows");
		}
		else
		{
			ok(crashes($node, $fails), "$fault: a crash");
			$old->{run}->finish;
		}
		is(sql($state), $before, "$fault: the rows");
		sound($node, $fault, $t);
		if ($fault !~ /error/)
		{
			$old = $node->background_psql('postgres', on_error_stop => 1);
			$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ');
			$seen = $old->query_safe($state);
		}
		sql("DELETE FROM $t WHERE id = 20; $insert; CREATE INDEX ON $t (id)");
		is($old->query_safe($state), $seen, "$fault: an old snapshot sees its rows when others have the space");
		like($node->safe_psql('postgres', "SELECT count(*) FROM zundo.page_items('$t', 0) WHERE lp_state = 'stub'"), qr/^1[0-9]$/, "$fault: there are stubs");
		sound($node, "$fault, inserted again", $t);
		sql("VACUUM $t");
		is($old->query_safe($state), $seen, "$fault: also after VACUUM");
		$old->quit;
		my $after = sql($state);
		sql("ALTER TABLE $t SET TABLESPACE pg_default; VACUUM FULL $t");
		is(sql($state), $after, "$fault: a rewrite");
	}

	# rows are saved only if the space then suffices
	my $saves = "SELECT count(*) FROM zundo.undo_records(NULL, 1000) WHERE type = 'ROWS' AND relation = 'small'::regclass";
	sql(q{CREATE TABLE small (id int PRIMARY KEY, pad text) USING zheap; INSERT INTO small SELECT g, repeat('a', 300) FROM generate_series(1, 24) g;
		DELETE FROM small WHERE id = 5; UPDATE small SET pad = repeat('b', 1500) WHERE id = 1});
	is(sql($saves), 0, 'no row is saved for a row that has no space then either');
	sql(q{UPDATE small SET pad = repeat('b', 800) WHERE id = 2});
	is(sql($saves), 1, 'one is for a row that has');
	is(sql('SELECT count(*), min(ctid), sum(length(pad)) FROM small WHERE id <= 2'), '2|(0,2)|2300', 'which stays in place');

	# what a page has saved is given up when the page is found all-visible (VMAP-3)
	sql(q{CREATE TABLE again (id int PRIMARY KEY, pad text) USING zheap; INSERT INTO again SELECT g, repeat('a', 300) FROM generate_series(1, 24) g;
		DELETE FROM again WHERE id <= 10; INSERT INTO again SELECT 100 + g, repeat('b', 300) FROM generate_series(1, 10) g});
	my $path = $node->data_dir . '/' . sql(q{SELECT pg_relation_filepath('again')});
	my $saved = sub { sql('CHECKPOINT'); return unpack('Q<', substr(read_block($path, 0), 8176, 8)) };
	cmp_ok($saved->(), '>', 0, 'a page that has saved rows');
	sql(q{COMMIT PREPARED 'kept'; SELECT zundo.discard(); VACUUM again; SELECT pg_logical_emit_message(true, 'test', 'flush')});
	$node->stop('immediate');
	$node->start;
	is($saved->(), 0, 'nothing is saved any more, also after replay');
	sound($node, 'vacuumed', 'again');
	no_crash($node);
	$node->stop;
}
done_testing();
