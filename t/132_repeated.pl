# Updates that store the same columns again change the row's bytes (TOKEN-5): after
# crashes, on a standby, in decoded changes and on a subscriber.
# Rules: TOKEN-5.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('repeated', <<'C', allows_streaming => 'logical');
wal_consistency_checking = 'zundo'
max_prepared_transactions = 5
zundo.eager_rollback_pages = 0
restart_after_crash = off
C
sql('CREATE EXTENSION zundo;');
my $standby = standby_of($node, "hot_standby_feedback = on\n");

sql(q{
	CREATE TABLE r (id int PRIMARY KEY, n int, pad text) USING zheap;
	INSERT INTO r SELECT g, g, CASE WHEN g % 3 > 0 THEN repeat('r', 100) END FROM generate_series(1, 150) g;
	CREATE TABLE moved (LIKE r INCLUDING ALL) USING zheap;
	INSERT INTO moved SELECT * FROM r;
});

# The bytes behind the headers, with the number of columns.
sub bytes
{
	my ($table) = @_;
	return qq{SELECT string_agg(natts || ' ' || repeated || ' ' || encode(substring(data FROM 6), 'hex'), E'\\n' ORDER BY substring(data FROM 6))
		FROM generate_series(0, pg_relation_size('$table') / 8192 - 1) block, zundo.page_items('$table', block)
		WHERE lp_state = 'normal' AND row_state IN ('inserted', 'updated')};
}

# Statements that repeat all rows, or those with id % 10 = 0.
sub repeat_rows { my ($where) = @_; return ("UPDATE r SET n = n $where;", 'SET zundo.move_updates = on;', "UPDATE moved SET n = n $where;", 'RESET zundo.move_updates;') }
sub repeat_all { return repeat_rows('') }
sub repeat_some { return repeat_rows('WHERE id % 10 = 0') }

sub same
{
	my ($what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	for my $table (qw(r moved))
	{
		is($standby->safe_psql('postgres', bytes($table)), sql(bytes($table) . ';'), "$what: bytes of $table on the standby");
	}
	sound($node, $what, qw(r moved));
	return;
}

# 1. In place and by moves, committed and rolled back.
sql(repeat_all());
sql(repeat_some()) for 1 .. 3;
is(sql(q{SELECT count(*) FILTER (WHERE repeated = 1), count(*) FILTER (WHERE repeated = 4) FROM generate_series(0, pg_relation_size('r') / 8192 - 1) b,
	zundo.page_items('r', b) WHERE row_state IN ('inserted', 'updated');}), '135|15', 'each repetition is counted');
same('repeated');
my %before = map { $_ => sql(bytes($_) . ';') } qw(r moved);
sql('BEGIN;', repeat_all(), 'SAVEPOINT s;', repeat_some(), 'ROLLBACK TO s;', repeat_some(), 'ROLLBACK;');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'rolled back');
is(sql(bytes($_) . ';'), $before{$_}, "rolled back: the bytes of $_ are those of before") for qw(r moved);
same('rolled back');

# 2. Crashes, with a transaction open, after it was logged, and prepared.
my $open = session($node);
ask($open, 'BEGIN', map { tr/;//dr } repeat_all());
sql('CHECKPOINT;', 'BEGIN;', 'UPDATE r SET n = n WHERE false;', 'COMMIT;');
crash($node);
eval { $open->quit };
sql('SELECT zundo.discard();', 'SELECT count(*) FROM r;');
ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), 'rolled back after the crash');
is(sql(bytes($_) . ';'), $before{$_}, "crash: the bytes of $_ are those of before") for qw(r moved);
same('crash');
for my $fault (qw(update-logged move-logged))
{
	my $move = $fault eq 'move-logged' ? 'on' : 'off';
	$node->psql('postgres', "SET zundo.move_updates = $move; SET zundo.fault = '$fault:crash'; UPDATE r SET n = n WHERE id = 5;");
	ok(wait_for_death($node), "$fault: the server died");
	$node->start;
	sql('SELECT zundo.discard();');
	ok($node->poll_query_until('postgres', 'SELECT count(*) = 0 FROM zundo.stat_rollback'), "$fault: rolled back");
	is(sql(bytes('r') . ';'), $before{r}, "$fault: the bytes of before");
}
sql('BEGIN;', repeat_some(), q{PREPARE TRANSACTION 'p';});
crash($node);
sql(q{COMMIT PREPARED 'p';});
is(sql(q{SELECT count(*) FROM generate_series(0, pg_relation_size('r') / 8192 - 1) b, zundo.page_items('r', b)
	WHERE row_state IN ('inserted', 'updated') AND repeated = 5;}), '15', 'a prepared transaction counts');
same('prepared');

# The order of the rows differs between the tables.
sub each_row
{
	my ($what) = @_;
	return map { "UPDATE d $what WHERE id = $_;" } 1 .. 3;
}

# 3. Decoded as on heap, with each replica identity, in line and out of line.
SKIP:
{
	skip 'the server lacks test_decoding of contrib', 2 unless server_has('test_decoding');
	sql(q{SELECT pg_create_logical_replication_slot('slot', 'test_decoding');});
	for my $am (qw(heap zheap))
	{
		sql("CREATE SCHEMA s_$am; SET search_path = s_$am; SET default_table_access_method = $am;", q{
			CREATE TABLE d (id int PRIMARY KEY, k text NOT NULL, v text, big text);
			CREATE UNIQUE INDEX by_k ON d (k);
			ALTER TABLE d ALTER big SET STORAGE external, ALTER k SET STORAGE external;
			INSERT INTO d VALUES (1, 'k', 'v', NULL), (2, repeat('k', 2400), NULL, repeat('b', 5000)), (3, 'z', NULL, NULL);
		}, map { ($_, each_row('SET v = v'), each_row('SET v = v'), q{UPDATE d SET k = k || '' WHERE id = 1;}, q{UPDATE d SET v = 'w' WHERE id = 3;},
			'UPDATE d SET v = v WHERE id = 3;', 'ALTER TABLE d ADD IF NOT EXISTS more int;', each_row('SET id = id'), each_row('SET id = id'), 'UPDATE d SET v = NULL WHERE id = 3;') }
			'ALTER TABLE d REPLICA IDENTITY DEFAULT;', 'ALTER TABLE d REPLICA IDENTITY FULL;', 'ALTER TABLE d REPLICA IDENTITY USING INDEX by_k;',
			'SET zundo.move_updates = on;', 'ALTER TABLE d REPLICA IDENTITY FULL;');
		sql("DELETE FROM s_$am.d WHERE id = $_;") for 1 .. 3;
	}
	sql(q{CREATE TABLE decoded AS SELECT row_number() OVER () AS n, data FROM pg_logical_slot_get_changes('slot', NULL, NULL) WHERE data LIKE 'table s_%';});
	my ($heap, $zheap) = map { sql("SELECT replace(data, 's_$_', 's') FROM decoded WHERE data LIKE 'table s_$_.%' ORDER BY n;") } qw(heap zheap);
	cmp_ok(scalar(split /\n/, $heap), '>', 80, 'changes were decoded');
	is($zheap, $heap, 'decoded as on heap');
	sql(q{SELECT pg_drop_replication_slot('slot');});
}

# 4. A subscriber counts what it applies.
my $subscriber = PostgreSQL::Test::Cluster->new('subscriber');
$subscriber->init(allows_streaming => 'logical');
$subscriber->append_conf('postgresql.conf', "shared_preload_libraries = 'zundo'\nautovacuum = off\n");
$subscriber->start;
sql(q{CREATE TABLE p (id int PRIMARY KEY, n int) USING zheap; INSERT INTO p VALUES (1, 1), (2, 2); CREATE PUBLICATION pub FOR TABLE p;});
$subscriber->safe_psql('postgres', q{CREATE EXTENSION zundo; CREATE TABLE p (id int PRIMARY KEY, n int) USING zheap;});
$subscriber->safe_psql('postgres', q{CREATE SUBSCRIPTION sub CONNECTION '} . $node->connstr . q{ dbname=postgres' PUBLICATION pub});
$subscriber->wait_for_subscription_sync($node, 'sub');
sql('UPDATE p SET n = n;', 'UPDATE p SET n = n WHERE id = 2;', 'ALTER TABLE p REPLICA IDENTITY FULL;', 'UPDATE p SET n = n;');
$node->wait_for_catchup('sub');
is($subscriber->safe_psql('postgres', q{SELECT string_agg(repeated::text, ' ' ORDER BY repeated) FROM zundo.page_items('p', 0)}), '2 3', 'the apply worker counts');
$subscriber->stop;

same('at the end');
$standby->promote;
$standby->safe_psql('postgres', "UPDATE $_ SET n = n WHERE id % 10 = 0") for qw(r moved);
is($standby->safe_psql('postgres', q{SELECT count(*) FROM generate_series(0, pg_relation_size('r') / 8192 - 1) b, zundo.page_items('r', b)
	WHERE row_state IN ('inserted', 'updated') AND repeated = 6}), '15', 'a promoted standby counts on');
sound($standby, 'promoted', qw(r moved));
no_crash($standby);
$standby->stop;
$node->stop;
done_testing();
