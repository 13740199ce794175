# zundo.purge() removes deleted values from the file of the undo log, also on a
# standby and after a crash. Undo in use stays.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('purge', "shared_buffers = 16MB\nzundo.undo_compression = 'none'\nzundo.eager_rollback_pages = 1024\n", allows_streaming => 1);
$node->backup('b');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'b', has_streaming => 1);
$standby->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE ROLE nobody;
	CREATE TABLE kept (id int PRIMARY KEY, v text) USING zheap;
	INSERT INTO kept SELECT g, 'first value of ' || g FROM generate_series(1, 500) g;
	CREATE TABLE gone (id int PRIMARY KEY, v text) USING zheap;
	INSERT INTO gone SELECT g, 'a secret of ' || g || repeat('.', 200) FROM generate_series(1, 2000) g;
	UPDATE gone SET v = '';
	DROP TABLE gone});
my $file = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('zundo.undo_log')});

# holds NODE WORD: returns whether the file on disk contains the word.
sub holds
{
	my ($server, $word) = @_;
	my $found = 0;
	# the server reads what it has written; a segment has 1 GB
	open(my $in, '<:raw', $server->data_dir . "/$file") or die "$file: $!";
	local $/ = \1048576;
	my $tail = '';
	while (my $part = <$in>)
	{
		$found += () = ($tail . $part) =~ /\Q$word\E/g;
		$tail = substr($part, -length($word) + 1);
	}
	close $in;
	return $found;
}
ok($node->poll_query_until('postgres', q{SELECT zundo.discard() >= 0 AND (SELECT coalesce(sum(extents), 0) = 0 FROM zundo.stat_undo)}), 'all undo is given back');
$node->safe_psql('postgres', 'CHECKPOINT');
cmp_ok(holds($node, 'a secret of'), '>', 100, 'old values outlive their table');

# An old snapshot needs replaced values.
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kept');
$node->safe_psql('postgres', q{UPDATE kept SET v = 'second value'});
like(($node->psql('postgres', 'SET ROLE nobody; SELECT zundo.purge()'))[2], qr/permission denied for function purge/, 'not for everybody');
like(($node->psql('postgres', 'GRANT EXECUTE ON FUNCTION zundo.purge() TO nobody; SET ROLE nobody; SELECT zundo.purge()'))[2], qr/must be superuser to purge/, 'whatever is granted');
like(($standby->psql('postgres', 'SELECT 1', timeout => 60))[1], qr/1/, 'the standby runs');
my $wal = $node->safe_psql('postgres', 'SELECT pg_current_wal_insert_lsn()');
cmp_ok($node->safe_psql('postgres', 'SELECT zundo.purge()'), '>', 500_000, 'zundo.purge overwrites them');
cmp_ok($node->safe_psql('postgres', "SELECT pg_current_wal_insert_lsn() - '$wal'"), '<', 500_000, 'with little WAL');
is(holds($node, 'a secret of'), 0, 'nothing of them is in the file');
is($node->safe_psql('postgres', 'SELECT zundo.purge()'), 0, 'a second zundo.purge has nothing to do');
is($old->query_safe(q{SELECT count(*) FROM kept WHERE v = 'first value of ' || id}), '500', 'undo in use is left alone');
$old->query_safe('COMMIT');
$old->quit;
$node->safe_psql('postgres', q{
	BEGIN;
	UPDATE kept SET v = 'third value';
	UPDATE kept SET v = 'fourth value' WHERE id = (SELECT 1 FROM zundo.purge());
	SELECT zundo.purge();
	UPDATE kept SET v = 'fifth value' WHERE id = 2;
	ROLLBACK});
is($node->safe_psql('postgres', 'SELECT DISTINCT v FROM kept'), 'second value', 'nor the undo of the transaction that wipes');
sound($node, 'purged', qw(kept zundo.undo_log));

# A session that has written, and is only idle now, keeps no old values from being overwritten, nor does one that has ended.
my $pooled = $node->background_psql('postgres', on_error_stop => 1);
$pooled->query_safe(q{CREATE TABLE pooled (id int PRIMARY KEY, v text) USING zheap;
	INSERT INTO pooled SELECT g, 'known to few ' || g FROM generate_series(1, 500) g});
$pooled->query_safe(q{UPDATE pooled SET v = ''});
$node->safe_psql('postgres', q{CREATE TABLE ended (v text) USING zheap; INSERT INTO ended VALUES ('known to nobody'); DELETE FROM ended});
$node->safe_psql('postgres', 'SELECT zundo.discard(); CHECKPOINT');
cmp_ok(holds($node, 'known to few'), '>', 400, 'an idle session: its old values are in the file');
all_discarded($node);
cmp_ok($node->safe_psql('postgres', 'SELECT zundo.purge()'), '>', 0, '... until zundo.purge');
is(holds($node, 'known to'), 0, '... overwrites all of them');
is($node->safe_psql('postgres', 'SELECT coalesce(sum(extents), 0) FROM zundo.stat_undo'), '0', '... for no log keeps an extent');
$pooled->query_safe(q{UPDATE pooled SET v = 'new'});
is($pooled->query_safe(q{SELECT count(*) FROM pooled WHERE v = 'new'}), '500', '... and the session can write again');
$pooled->quit;

# On the standby, which refuses zundo.purge().
$node->wait_for_catchup($standby);
like(($standby->psql('postgres', 'SELECT zundo.purge()'))[2], qr/cannot execute zundo\.purge\(\) during recovery/, 'not on a standby');
is($standby->safe_psql('postgres', 'SELECT count(DISTINCT v) FROM kept'), '1', 'the standby reads');
$standby->stop;
is(holds($standby, 'a secret of'), 0, 'nothing of them is in its file');

# After a crash; then the extents are allocated again, and damaged free ones are initialized.
crash($node);
$node->safe_psql('postgres', q{
	BEGIN; UPDATE kept SET v = repeat('z', 100); ROLLBACK;
	UPDATE kept SET v = id::text});
is($node->safe_psql('postgres', 'SELECT sum(v::int) FROM kept'), '125250', 'the undo log is written to');
sound($node, 'after a crash', qw(kept zundo.undo_log));
is(holds($node, 'a secret of'), 0, 'nothing has come back');
no_crash($node);
no_crash($standby);
$node->stop;
done_testing();
