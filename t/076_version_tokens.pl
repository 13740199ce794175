# xmin of a version has one value, however, whenever and wherever it is read, and
# no two versions of a row have the same (TOKEN-1 in tuple/ztts.c). So a
# comparison of xmin, in the database or in an application, tells whether the
# row has changed.
# long
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('tokens', <<'C', allows_streaming => 'logical');
max_worker_processes = 12
track_commit_timestamp = on
C
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE t (id int PRIMARY KEY, n int) USING zheap;
	CREATE TABLE other (id int) USING zheap;
	CREATE FUNCTION token(k int) RETURNS xid LANGUAGE plpgsql AS $$
	DECLARE x xid; BEGIN SELECT xmin INTO x FROM t WHERE id = k; RETURN x; END $$;
	CREATE FUNCTION guarded(k int, token xid) RETURNS boolean LANGUAGE plpgsql AS $$
	BEGIN UPDATE t SET n = n WHERE id = k AND xmin = token; RETURN FOUND; END $$;
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'token %', OLD.xmin; RETURN NEW; END $$;
	INSERT INTO t VALUES (1, 0)});
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;

my %seen;       # token => number of the version
my %token_of;   # number of the version => token
my $version = 0;
my $wrong = 0;

# note_token TOKEN [OF]: notes that this xmin was shown for version OF, or for the present one.
sub note_token
{
	my ($token, $of) = @_;
	$of //= $version;
	if ($token !~ /^\d+$/ || $token < 3 || ($seen{$token} // $of) != $of)
	{
		diag("token $token of version $of was that of version " . ($seen{$token} // 'none'));
		$wrong++;
	}
	if (($token_of{$of} // $token) ne $token)
	{
		diag("version $of has the tokens $token_of{$of} and $token");
		$wrong++;
	}
	$seen{$token} = $of;
	$token_of{$of} = $token;
	return $token;
}

# look: reads the xmin of the row in several ways.
sub look
{
	note_token($_) for split /\n/, $node->safe_psql('postgres', q{
		SELECT xmin FROM t WHERE id = 1;
		SET enable_indexscan = off; SET enable_bitmapscan = off;
		SELECT xmin FROM t WHERE id = 1;
		SELECT xmin FROM t WHERE id = 1 FOR KEY SHARE;
		SELECT token(1)});
	return;
}

# settle: waits until the undo of all transactions that have ended is discarded.
sub settle
{
	$node->safe_psql('postgres', 'INSERT INTO other VALUES (1)');
	$node->safe_psql('postgres', 'SELECT zundo.discard()') for 1 .. 2;
	return;
}

sub change
{
	my ($sql) = @_;
	$version++;
	note_token($node->safe_psql('postgres', $sql // 'UPDATE t SET n = n + 1 WHERE id = 1 RETURNING xmin'));
	return;
}

look();
change();
look();
settle();
look();
change();
my $written = $node->safe_psql('postgres', 'SELECT xmin FROM t WHERE id = 1');
settle();

# The lost update: a row is read, changed by another session, and written back.
my $token = $node->safe_psql('postgres', 'SELECT xmin FROM t WHERE id = 1');
change();
settle();
look();
is($node->safe_psql('postgres', qq{SELECT guarded(1, '$token')}), 'f', 'an update guarded by the token of an older version finds nothing');
isnt($node->safe_psql('postgres', 'SELECT xmin FROM t WHERE id = 1'), $token, 'nor does an application that compares');
is($node->safe_psql('postgres', qq{SELECT guarded(1, '$written')}), 'f', 'nor by the token of a still older version');

# A transaction with an id that is older than those of others which have been shown.
my ($late, $old) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 2;
$late->query_safe('BEGIN; SELECT pg_current_xact_id()');
for (1 .. 3)
{
	change();
	settle();
	look();
}
$late->query_safe('UPDATE t SET n = n + 1 WHERE id = 1');
look();
$late->query_safe('COMMIT');
$version++;
look();
settle();
look();

# An old snapshot sees an older version; that settles only when the snapshot has gone.
$old->query_safe("BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT 1");
my $seen_by_old = $version;
for (1 .. 3)
{
	change();
	settle();
	look();
	note_token($old->query_safe('SELECT xmin FROM t WHERE id = 1'), $seen_by_old);
	note_token($old->query_safe('SELECT token(1)'), $seen_by_old);
}
$old->query_safe('COMMIT');
look();
settle();
look();

# The xmin of a version that was rolled back.
my $aborted = (split /\n/, $node->safe_psql('postgres', 'BEGIN; UPDATE t SET n = -1 WHERE id = 1 RETURNING xmin; ROLLBACK'))[-1];
$seen{$aborted} = -1;
look();
change();
settle();
look();

# A row is deleted and inserted again, and moves to another place.
note_token($node->safe_psql('postgres', 'DELETE FROM t WHERE id = 1 RETURNING xmin'));
settle();
change('INSERT INTO t VALUES (1, 1000) RETURNING xmin');
look();
settle();
look();
change('BEGIN; CLUSTER t USING t_pkey; UPDATE t SET n = n + 1 WHERE id = 1 RETURNING xmin; COMMIT');
settle();
look();
my $space = PostgreSQL::Test::Utils::tempdir_short;
$node->safe_psql('postgres', "CREATE TABLESPACE other LOCATION '$space'");
for ('CLUSTER t USING t_pkey', 'VACUUM t', 'VACUUM FULL t', 'ALTER TABLE t SET TABLESPACE other', 'ALTER TABLE t SET TABLESPACE pg_default', 'REINDEX TABLE t')
{
	$node->safe_psql('postgres', $_);
	look();
}

# The xmin that a trigger function sees in OLD: the own id comes in sql/xmin_token.
$node->safe_psql('postgres', 'CREATE TRIGGER note BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION note()');
for my $kind ('', 'SELECT * FROM t WHERE id = 1 FOR UPDATE;')
{
	settle() if $kind;
	my ($rc, $out, $err) = $node->psql('postgres', "BEGIN; $kind UPDATE t SET n = n + 1 WHERE id = 1 RETURNING pg_current_xact_id()::xid; COMMIT");
	my ($shown) = $err =~ /NOTICE:\s+token (\d+)/;
	note_token($shown) if ok(defined $shown, 'a trigger shows it');
	$version++;
	look();
}
$node->safe_psql('postgres', 'DROP TRIGGER note ON t');

# A crash and a restart.
crash($node);
look();
change();
look();
crash($node);
look();
settle();
$node->restart;
look();

# A standby. Its tokens are good on the primary.
for (1 .. 2)
{
	change();
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	note_token($standby->safe_psql('postgres', 'SELECT xmin FROM t WHERE id = 1'));
	settle();
	note_token($standby->safe_psql('postgres', 'SELECT xmin FROM t WHERE id = 1'));
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	note_token($standby->safe_psql('postgres', 'SELECT xmin FROM t WHERE id = 1'));
	look();
}
is($standby->safe_psql('postgres', qq{SELECT id FROM t WHERE xmin = '$token_of{$version}'}), '1', 'a standby finds the row by its token');
my ($rc, $out, $err) = $standby->psql('postgres', q{SELECT age(xmin) FROM t});
like($err, qr/cannot use xmin of zheap table "t" as a transaction ID/, 'a standby refuses too');

is($wrong, 0, 'each version of the row was shown with one token of its own');
cmp_ok(scalar keys %seen, '>', $version, '... of which there were many');
is((grep { $node->safe_psql('postgres', qq{SELECT guarded(1, '$_')}) eq 't' } grep { $seen{$_} != $version } keys %seen),
	0, 'no token of an older version lets an update pass');
is($node->safe_psql('postgres', qq{SELECT guarded(1, '$token_of{$version}')}), 't', 'that of the newest one does');
is($node->safe_psql('postgres', 'SELECT zundo.check($$t$$)'), '', 'the table is sound');

# Under load, by all kinds of plans: one snapshot sees one token of each row, and
# a row that is changed returns the token that is seen of it.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE l (id int PRIMARY KEY, k int, pad text, version xid8) USING zheap;
	CREATE INDEX ON l (k);
	CREATE TRIGGER version BEFORE INSERT OR UPDATE ON l FOR EACH ROW EXECUTE FUNCTION zundo.row_version('version');
	INSERT INTO l SELECT g, g, 'p' FROM generate_series(1, 300) g;
	CREATE FUNCTION look_at(i int, x xid) RETURNS int LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT xmin <> x FROM l WHERE id = i) THEN
			RAISE EXCEPTION 'row %: xmin % is not what is returned', i, x;
		END IF;
		RETURN 1;
	END $$;
	CREATE FUNCTION tokens(condition text) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE s text;
	BEGIN
		EXECUTE 'SELECT md5(string_agg(id || xmin::text, $1 ORDER BY id)) FROM l WHERE k > 20 AND ' || condition INTO s USING ',';
		RETURN s;
	END $$;
	CREATE FUNCTION look_twice() RETURNS int LANGUAGE plpgsql AS $$
	DECLARE s text[] := ARRAY[tokens('true')];
	BEGIN
		PERFORM pg_sleep(0.02);
		SET LOCAL enable_seqscan = off;
		SET LOCAL enable_bitmapscan = off;
		s := s || tokens('id > 0');
		SET LOCAL enable_indexscan = off;
		SET LOCAL enable_bitmapscan = on;
		s := s || tokens('true');
		IF s[1] <> s[2] OR s[1] <> s[3] THEN
			RAISE EXCEPTION 'different tokens: %', s;
		END IF;
		RETURN 1;
	END $$});
my $dir = PostgreSQL::Test::Utils::tempdir;
append_to_file("$dir/write", <<'S');
\set id random(1, 300)
\set other random(1, 300)
BEGIN;
UPDATE l SET pad = repeat('p', (random() * 40)::int) WHERE id = :id;
DELETE FROM l WHERE id = :other;
INSERT INTO l VALUES (:other, :id, 'new') ON CONFLICT (id) DO UPDATE SET k = l.k + 1;
COMMIT;
BEGIN;
WITH u AS (UPDATE l SET k = k + 1 WHERE id = :id RETURNING xmin) SELECT coalesce(max(xmin::text), '0') AS x FROM u \gset
SELECT CASE WHEN :x > 0 THEN look_at(:id, (:x)::text::xid) END;
COMMIT;
BEGIN;
UPDATE l SET k = -k WHERE id BETWEEN :other AND :other + 5;
SELECT sum(look_at(id, xmin)) FROM l WHERE id BETWEEN :other AND :other + 5;
ROLLBACK;
S
append_to_file("$dir/read", <<'S');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT look_twice();
SELECT sum(look_at(id, xmin)) FROM l TABLESAMPLE BERNOULLI (50);
COMMIT;
BEGIN;
SELECT sum(look_at(id, x)) FROM (SELECT id, xmin AS x FROM l WHERE id < 50 FOR SHARE SKIP LOCKED) s;
COMMIT;
S
$node->command_ok([ 'pgbench', '-n', '-T', 3, '-c', 4, '-f', "$dir/write\@3", '-f', "$dir/read\@1", '--max-tries=100', 'postgres' ],
	'xmin is that of the version that is seen');
is($node->safe_psql('postgres', 'SELECT zundo.check($$l$$)'), '', 'the table is sound');

# Temporary tables, whose undo goes with each transaction.
%seen = ();
%token_of = ();
$version = $wrong = 0;
my $temp = $node->background_psql('postgres', on_error_stop => 1);
$temp->query_safe('CREATE TEMP TABLE m (id int, n int) USING zheap; INSERT INTO m VALUES (1, 0)');
for (1 .. 4)
{
	note_token($temp->query_safe('SELECT xmin FROM m')) for 1 .. 2;
	$version++;
	note_token($temp->query_safe('UPDATE m SET n = n + 1 RETURNING xmin'));
}
is($wrong, 0, 'no token was shown for two versions of a row of a temporary table');
$temp->quit;

$_->quit for $late, $old;
$standby->stop;

# The apply worker, to detect conflicts, learns the writer of a row from xmin
# (TOKEN-4): that is not possible for old rows, and then there is no conflict.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE published (id int PRIMARY KEY, n int) USING heap;
	INSERT INTO published VALUES (1, 1);
	CREATE PUBLICATION p FOR TABLE published;
	SELECT pg_create_logical_replication_slot('s', 'pgoutput');
	CREATE DATABASE subscriber});
my $connection = $node->connstr . ' dbname=postgres';
$node->safe_psql(
	'subscriber', qq{
	CREATE EXTENSION zundo;
	CREATE TABLE published (id int PRIMARY KEY, n int) USING zheap;
	INSERT INTO published VALUES (1, 1);
	SELECT zundo.discard();
	CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION p WITH (create_slot = false, slot_name = 's', copy_data = false)});
$node->safe_psql('subscriber', 'SELECT zundo.discard()') for 1 .. 2;
$node->safe_psql('postgres', "UPDATE published SET n = $_") for 2 .. 3;
ok($node->poll_query_until('subscriber', 'SELECT n = 3 FROM published'), 'changes are applied');
my $wanted = $node->safe_psql('postgres', q{SELECT (current_setting('server_version_num')::int >= 180000)::int});

# A snapshot of the subscriber's keeps undo, and then the worker finds the conflict.
SKIP:
{
	skip 'conflicts are counted from 18 on', 2 if !$wanted;
	my $count = 'SELECT sum(confl_update_origin_differs) FROM pg_stat_subscription_stats';
	is($node->safe_psql('postgres', $count), '0', 'none was counted');
	my $holder = $node->background_psql('subscriber');
	$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
	$node->safe_psql('subscriber', 'UPDATE published SET n = 10');
	$node->safe_psql('subscriber', 'SELECT zundo.discard()') for 1 .. 2;
	$node->safe_psql('postgres', 'UPDATE published SET n = 4');
	ok($node->poll_query_until('postgres', "SELECT ($count) = 1"), 'a conflict with a local change whose undo is kept');
	$holder->quit;
}
no_crash($node);
$node->stop;
done_testing();
