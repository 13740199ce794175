# With wal_level = minimal, tables that were created or truncated in the
# transaction write no WAL for their pages. After a crash they are as the commit
# left them or do not exist, like heap tables.
# long
use strict;
use warnings;
use Test::More;
use ZundoTest;

my $node = zundo_node('minimal', <<'C');
wal_level = minimal
wal_skip_threshold = 256kB
max_wal_senders = 0
max_prepared_transactions = 0
C
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');

# What one transaction does with its new table T (of access method AM); each with few and
# with many rows.
my %work = (
	load => q{INSERT INTO T SELECT g, g FROM generate_series(1, N) g},
	copied => q{COPY T (id, v) FROM PROGRAM 'seq -f "%.0f 1" 1 N' (DELIMITER ' ')},
	frozen => q{COPY T (id, v) FROM PROGRAM 'seq -f "%.0f 1" 1 N' (DELIMITER ' ', FREEZE); UPDATE T SET v = v + 1 WHERE id % 2 = 0;
		DELETE FROM T WHERE id % 3 = 0; SAVEPOINT a; UPDATE T SET v = 9; ROLLBACK TO a},
	frozen_rolled_back => q{SAVEPOINT a; TRUNCATE T; COPY T (id, v) FROM PROGRAM 'seq -f "%.0f 1" 1 N' (DELIMITER ' ', FREEZE);
		UPDATE T SET v = 2 WHERE id < 5; ROLLBACK TO a; INSERT INTO T VALUES (1, 1)},
	changed => q{INSERT INTO T SELECT g, g FROM generate_series(1, N) g;
		UPDATE T SET v = v + 1 WHERE id % 2 = 0; UPDATE T SET id = -id WHERE id % 5 = 0; DELETE FROM T WHERE id % 3 = 0},
	rolled_back_part => q{INSERT INTO T SELECT g, g FROM generate_series(1, N) g;
		SAVEPOINT a; UPDATE T SET v = 0; ROLLBACK TO a;
		SAVEPOINT b; DELETE FROM T WHERE id < 10; INSERT INTO T VALUES (0, -1); RELEASE b;
		SAVEPOINT c; INSERT INTO T SELECT -g, 0 FROM generate_series(1, N) g; ROLLBACK TO c},
	truncated => q{INSERT INTO T SELECT g, g FROM generate_series(1, N) g; TRUNCATE T; INSERT INTO T VALUES (1, 2), (2, 3)},
	truncated_in_savepoint => q{INSERT INTO T SELECT g, g FROM generate_series(1, N) g; SAVEPOINT a;
		TRUNCATE T; INSERT INTO T VALUES (1, 2); ROLLBACK TO a; UPDATE T SET v = v + 10 WHERE id < 100},
	locked => q{INSERT INTO T SELECT g, g FROM generate_series(1, N) g;
		SELECT count(*) FROM (SELECT * FROM T FOR UPDATE) l; UPDATE T SET v = -v},
	altered => q{INSERT INTO T SELECT g, g FROM generate_series(1, N) g; ALTER TABLE T ALTER v TYPE bigint; UPDATE T SET v = v + 1},
	clustered => q{INSERT INTO T SELECT g, g FROM generate_series(1, N) g; CLUSTER T USING T_pkey; DELETE FROM T WHERE id % 2 = 0});
my %old = (
	truncate_old => q{TRUNCATE T; INSERT INTO T SELECT g, 7 FROM generate_series(1, N) g; DELETE FROM T WHERE id % 7 = 0},
	rewrite_old => q{UPDATE T SET v = 5 WHERE id < 100; ALTER TABLE T ALTER v TYPE bigint; UPDATE T SET v = v + 1 WHERE id < 50},
	move_old => q{DELETE FROM T WHERE id > 50; ALTER TABLE T SET TABLESPACE elsewhere; UPDATE T SET v = v + 1 WHERE id < 30},
	other_am => q{UPDATE T SET v = 3 WHERE id < 20; ALTER TABLE T SET ACCESS METHOD OTHER; UPDATE T SET v = 4 WHERE id < 10});

mkdir $node->basedir . '/elsewhere';
$node->safe_psql('postgres', "CREATE TABLESPACE elsewhere LOCATION '" . $node->basedir . "/elsewhere'");

# below and above wal_skip_threshold
my %sizes = (few => 20, many => 20000);
my @tables;

sub statements
{
	my ($sql, $table, $am, $n) = @_;
	my $other = $am eq 'heap' ? 'zheap' : 'heap';
	$sql =~ s/\bT\b/$table/g;
	$sql =~ s/\bT_pkey\b/${table}_pkey/g;
	$sql =~ s/\bN\b/$n/g;
	$sql =~ s/\bOTHER\b/$other/g;
	return $sql;
}

# Each case is run twice: committed, and left open when the server crashes.
my %kept;
my @open;
for my $am (qw(heap zheap))
{
	for my $size (sort keys %sizes)
	{
		my $n = $sizes{$size};
		for my $name (sort(keys %work), sort(keys %old))
		{
			my $table = "${am}_${size}_$name";
			my $create = "CREATE TABLE $table (id int PRIMARY KEY, v int) USING $am";
			$create .= "; INSERT INTO $table SELECT g, g FROM generate_series(1, $n) g; COMMIT; BEGIN" if $old{$name};
			$node->safe_psql('postgres',
				"BEGIN; $create; " . statements($work{$name} // $old{$name}, $table, $am, $n) . '; COMMIT');
			push @tables, $table;
			next unless $size eq 'few';
			my $session = $node->background_psql('postgres', on_error_stop => 1);
			(my $second = $create) =~ s/\b$table\b/${table}_open/g;
			$session->query_safe("BEGIN; $second; " . statements($work{$name} // $old{$name}, "${table}_open", $am, $n));
			push @open, $session;
		}
	}
}
my $sum = 'SELECT count(*), sum(id::bigint), sum(v::bigint), sum(hashtext(id || \' \' || v)::bigint) FROM';
$kept{$_} = $node->safe_psql('postgres', "$sum $_") for @tables;
$node->stop('immediate');
for my $session (@open)
{
	eval { $session->{run}->kill_kill };
}
$node->start;
for my $table (@tables)
{
	is($node->safe_psql('postgres', "$sum $table"), $kept{$table}, "$table after the crash");
}
for my $size (sort keys %sizes)
{
	for my $name (sort(keys %work), sort(keys %old))
	{
		is($kept{"zheap_${size}_$name"}, $kept{"heap_${size}_$name"}, "$name of $size rows: heap and zheap agree");
	}
}
for my $name (sort(keys %old))
{
	is($node->safe_psql('postgres', "SELECT count(*), sum(v) FROM zheap_few_${name}_open"),
		'20|210', "${name}_open is as before");
}
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\\_open'"),
	2 * scalar(keys %old), 'tables of transactions that did not commit are gone');

# and they can be changed, vacuumed and checked like any others
for my $table (grep { /^zheap/ } @tables)
{
	my $am = $node->safe_psql('postgres', "SELECT amname FROM pg_am a JOIN pg_class c ON c.relam = a.oid WHERE c.oid = '$table'::regclass");
	$node->safe_psql('postgres', "UPDATE $table SET v = v + 1; VACUUM $table");
	next if $am ne 'zheap';
	is($node->safe_psql('postgres', "SELECT * FROM zundo.check('$table')"), '', "zundo.check of $table");
}
crash($node);
is( $node->safe_psql('postgres', "SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam, zundo.check(c.oid) WHERE amname = 'zheap'"),
	0, 'zundo.check after another crash');
$node->stop;
done_testing();
