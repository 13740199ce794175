# A session remembers the records that it has passed over until its transaction
# ends (TRAIL-1). Meanwhile these records are undone or discarded, the
# undo file is truncated and grows again, and even another undo log takes its
# place.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use Test::More;
use ZundoTest;

my $node = zundo_node('trails', "zundo.undo_compression = none\nwal_level = replica\nmax_wal_senders = 3\n");
sql(q{CREATE EXTENSION zundo;
	CREATE TABLE z (k int PRIMARY KEY, v int) USING zheap;
	CREATE TABLE big (k int, pad text) USING zheap;
	INSERT INTO z SELECT g, g * g FROM generate_series(1, 60) g;
	INSERT INTO big SELECT g, repeat('x', 200) FROM generate_series(1, 10000) g;
	CREATE FUNCTION by_key() RETURNS text LANGUAGE plpgsql AS $$
		DECLARE total bigint := 0; x int;
		BEGIN
			FOR i IN 1 .. 60 LOOP
				SELECT v INTO x FROM z WHERE k = i * 7 % 61;
				total := total + x::bigint * i;
			END LOOP;
			RETURN total::text;
		END $$;
	CREATE FUNCTION change(n int) RETURNS int LANGUAGE plpgsql AS $$
		BEGIN
			FOR i IN 1 .. 60 LOOP UPDATE z SET v = v + n * i WHERE k = i * n % 61; END LOOP;
			RETURN n;
		END $$});
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;

my $keys = 'SET enable_seqscan = off; SET enable_bitmapscan = off';
my $scan = q{SELECT sum(v::bigint * i) FROM (SELECT i, i * 7 % 61 AS k FROM generate_series(1, 60) i) o JOIN z USING (k)};
my $size = q{SELECT pg_relation_size('zundo.undo_log')};
my $caught_up = sub { $node->wait_for_catchup($standby, 'replay', $node->lsn('insert')) };

# Neither reader has a snapshot between its statements, so undo is discarded.
my %reader = map { $_->name => session($_) } $node, $standby;
ask($_, $keys, 'BEGIN') for values %reader;
for my $end ('ROLLBACK', 'COMMIT')
{
	# the records lie at the end of a long file
	my $old = session($node);
	ask($old, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT 1');
	sql('UPDATE big SET k = k + 1, pad = md5(k::text) || repeat($$y$$, 160)') for 1 .. 8;
	my $writer = session($node);
	my $before = sql($scan);
	ask($writer, 'BEGIN', 'SELECT change(1)', 'SAVEPOINT a', 'SELECT change(2)', 'ROLLBACK TO a', 'SELECT change(3)');
	$caught_up->();
	for my $where (sort keys %reader)
	{
		is(ask($reader{$where}, 'SELECT by_key()'), $before, "$where, before $end: by key") for 1 .. 2;
	}
	ask($writer, $end);
	ask($old, 'COMMIT');
	$_->quit for $writer, $old;
	my $peak = sql($size);
	my $after = sql($scan);
	# a log must be empty for 3 s before it gives its last extent back
	cmp_ok($peak, '>', 6000000, 'the undo file has grown');
	ok($node->poll_query_until('postgres', "$size < 5000000"), "after $end: it was cut off");
	$caught_up->();
	for my $where (sort keys %reader)
	{
		is(ask($reader{$where}, 'SELECT by_key()'), $after, "$where, after $end: by key");
		is($complaint, '', '... without an error');
	}
}
ask($_, 'COMMIT') for values %reader;
$_->quit for values %reader;
sound($node, '', qw(z big zundo.undo_log));

# The extension is dropped and made anew in one transaction: the new undo log gives the
# same pointers to other records. Command ids with two bytes each make the records of both
# logs as long.
$standby->stop;
$node->safe_psql('postgres', 'CREATE DATABASE other');
my $other = $node->background_psql('other', on_error_stop => 0);
my $fill = sub {
	my ($table, @order) = @_;
	return ("CREATE TABLE $table (k int, v int) USING zheap", "INSERT INTO $table SELECT g, 0 FROM generate_series(1, 20) g",
		map { "UPDATE $table SET v = v + $_ WHERE k = $_" } @order);
};
my $steps = 'SELECT string_agg(k::text, $$ $$ ORDER BY cmin::text::int) FROM ';
ask($other, 'CREATE EXTENSION zundo', 'CREATE TABLE plain (n int)', 'SET zundo.drop_rows_with_extension = on', 'BEGIN',
	'DO $$BEGIN FOR i IN 1 .. 200 LOOP INSERT INTO plain VALUES (i); END LOOP; END$$', $fill->('a', 1 .. 20));
my $place = 'SELECT string_agg(insert_ptr::text, $$ $$) FROM zundo.stat_undo';
is(ask($other, "$steps a"), join(' ', 1 .. 20), 'the commands that changed the rows');
my $first = ask($other, $place);
ask($other, 'DROP EXTENSION zundo CASCADE', 'CREATE EXTENSION zundo', $fill->('b', reverse 1 .. 20));
is(ask($other, "$steps b"), join(' ', reverse 1 .. 20), '... of another table, in another undo log');
is($complaint, '', '... without an error');
is(ask($other, $place), $first, '... at the same places');
is(ask($other, 'COMMIT', 'SELECT count(*) FROM b WHERE k = v'), 20, 'rows in the end');
$other->quit;
no_crash($node);
$node->stop;
done_testing();
