# Incremental backups: a change after the full backup is also in the combined
# backup, bits of the visibility map included.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

plan skip_all => 'no incremental backups before 17' if server_major() < 17;
my $node = zundo_node('primary', "summarize_wal = on\n", has_archiving => 1, allows_streaming => 1);
$node->safe_psql('postgres', <<'S');
CREATE EXTENSION zundo;
CREATE TABLE h (id int PRIMARY KEY, v int) USING heap;
CREATE TABLE z (id int PRIMARY KEY, v int) USING zheap;
INSERT INTO h SELECT g, 0 FROM generate_series(1, 5000) g;
INSERT INTO z SELECT g, 0 FROM generate_series(1, 5000) g;
S
$node->safe_psql('postgres', "VACUUM $_") foreach qw(h z);
my $full = $node->backup_dir . '/full';
$node->command_ok([ 'pg_basebackup', '-D', $full, '-c', 'fast', '--no-sync', '-d', $node->connstr('postgres') ], 'full backup');

foreach my $t (qw(h z))
{
	$node->safe_psql('postgres', "DELETE FROM $t WHERE id % 100 = 0; UPDATE $t SET id = -id WHERE id % 100 = 1; " .
		"UPDATE $t SET v = v + 1 WHERE id % 2 = 0; INSERT INTO $t SELECT g, 1 FROM generate_series(6001, 6100) g");
}
$node->safe_psql('postgres', 'CHECKPOINT');
my $part = $node->backup_dir . '/part';
$node->command_ok([ 'pg_basebackup', '-D', $part, '-c', 'fast', '--no-sync', '-d', $node->connstr('postgres'),
		'--incremental', "$full/backup_manifest" ], 'incremental backup');
my $expected = $node->safe_psql('postgres', 'SELECT count(*), sum(id), sum(v) FROM z');

my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($node, 'part', combine_with_prior => ['full']);
$restored->start;
foreach my $t (qw(h z))
{
	is($restored->safe_psql('postgres', "SELECT count(*), sum(id), sum(v) FROM $t"), $expected, "$t: rows");
	is( $restored->safe_psql('postgres',
			"SET enable_seqscan = off; SET enable_bitmapscan = off; SELECT count(*), sum(id) FROM $t"),
		join('|', (split /\|/, $expected)[ 0, 1 ]), "$t: index-only scan");
}
is($restored->safe_psql('postgres', "SELECT * FROM zundo.check('z')"), '', 'zundo.check');
$restored->stop;
$node->stop;
done_testing();
