# Deleted rows whose space others take while older snapshots still need them: snapshots
# of a standby, with and without feedback; crashes between deletion, refill and ROLLBACK,
# with and without full-page images; SET TABLESPACE; and what can still be done when
# zundo.undo_limit is reached. (See also isolation/specs/deleted-refilled.)
# long
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('primary', <<'C', allows_streaming => 1);
wal_consistency_checking = 'zundo'
max_prepared_transactions = 10
max_connections = 30
checkpoint_timeout = 1h
allow_in_place_tablespaces = on
C
my $standby = standby_of($node, "max_standby_streaming_delay = 0\nwal_receiver_status_interval = 1\nwal_retrieve_retry_interval = 100ms\n");
sql('CREATE EXTENSION zundo;', "CREATE TABLESPACE side LOCATION '';", 'CREATE TABLE other (id int);', <<'S');
CREATE FUNCTION make(tab text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	EXECUTE format('CREATE TABLE z_%1$s (id int, n int, v text) USING zheap; CREATE TABLE h_%1$s (id int, n int, v text) USING heap;
		CREATE INDEX ON z_%1$s (id); CREATE INDEX ON h_%1$s (id);
		INSERT INTO z_%1$s SELECT g, 0, repeat(md5(g::text), 1 + g %% 4) FROM generate_series(1, 400) g; INSERT INTO h_%1$s SELECT * FROM z_%1$s', tab);
END $$;
S

# twice SQL: returns the statement for both twins, of which @ stands for the prefix.
sub twice { my ($sql) = @_; return join ';', map { $sql =~ s/\@/$_/gr } qw(z_ h_) }

# The statements for a table: deletion of some rows and of most of them, and rows that take their space.
sub part { my ($t) = @_; return "DELETE FROM $t WHERE id % 3 = 0" }
sub most { my ($t) = @_; return "DELETE FROM $t WHERE id % 4 <> 1" }
sub refill { my ($t, $from) = @_; return "INSERT INTO $t SELECT g, 1, repeat(md5(g::text), 1 + g % 4) FROM generate_series($from, $from + 120) g" }

# rows TABLE: returns a query of the table's rows by scans of all kinds.
sub rows
{
	my ($t) = @_;
	my $sum = 'SELECT count(*), sum(hashtextextended(x::text, 0)) FROM';
	return join ';', map { my ($on, $from) = @$_; (map { "SET enable_$_ = " . ($_ eq $on ? 'on' : 'off') } qw(seqscan indexscan bitmapscan)), "$sum $from" }
		[ seqscan => "$t x" ], [ indexscan => "$t x WHERE id > 0" ], [ bitmapscan => "$t x WHERE id > 0" ], [ bitmapscan => "$t x WHERE ctid = ANY (ARRAY(SELECT ctid FROM $t))" ];
}

# same NODE WHAT TABLE...: tests that the twins are equal.
sub same
{
	my ($where, $what, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $t (@tables)
	{
		my $found = $where->safe_psql('postgres', rows("z_$t"));
		is($found, $where->safe_psql('postgres', rows("h_$t")), "$what: $t");
		is(scalar(uniq($found)), 1, "$what: $t by all scans");
	}
	return;
}
sub uniq { my ($lines) = @_; my %seen = map { $_ => 1 } split /\n/, $lines; return keys %seen }

sub caught_up
{
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	return;
}

# right SESSION QUERY EXPECTED WHAT: tests that the session of the standby finds the rows
# that are expected, or that a conflict with recovery ends its transaction. Returns whether
# that is still open.
sub right
{
	my ($session, $query, $expected, $what) = @_;
	return 0 if $session->{ended};
	my $found = eval { ask($session, $query) };
	$session->{ended} = $@ ne '' || $complaint =~ /conflict with recovery/;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($session->{ended} || ($complaint eq '' && $found eq $expected), "$what: " . ($session->{ended} ? 'a conflict' : 'the rows of its snapshot'))
	  or diag("$found\ninstead of\n$expected\n$complaint");
	return !$session->{ended};
}

# 1. Snapshots of a standby, through deletion, refill and discard. Heap's twin changes
# afterwards, since its pruning would end them.
for my $feedback ('on', 'off')
{
	my $t = "feedback_$feedback";
	sql("SELECT make('$t');");
	$standby->append_conf('postgresql.conf', "hot_standby_feedback = $feedback");
	$standby->reload;
	ok($node->poll_query_until('postgres', "SELECT backend_xmin IS " . ($feedback eq 'on' ? 'NOT ' : '') . 'NULL FROM pg_stat_replication'), "feedback is $feedback");
	caught_up();
	my @readers = map { session($standby) } 1 .. 2;
	ask($readers[0], 'BEGIN ISOLATION LEVEL REPEATABLE READ');
	my @seen = ask($readers[0], rows("z_$t"));
	if ($feedback eq 'on')
	{
		# it reports xmin at the latest after a second
		my $xmin = $standby->safe_psql('postgres', 'SELECT min(backend_xmin::text::int) FROM pg_stat_activity');
		ok($node->poll_query_until('postgres', "SELECT backend_xmin::text::int <= $xmin FROM pg_stat_replication"), 'the primary knows of the snapshot');
	}
	my @later;
	my $change = sub {
		my ($how, $sql) = @_;
		push @later, $sql =~ s/\@/h_/gr;
		$how->($sql =~ s/\@/z_/gr);
	};
	my $commit = sub { sql("$_[0];") };
	# until it ends nothing is discarded
	my $holder = session($node);
	ask($holder, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM other');
	my $busy = session($node);
	$change->(sub { ask($busy, 'BEGIN', $_[0]) }, "DELETE FROM \@$t WHERE id % 3 = 1 AND id % 7 = 1");
	$change->($commit, part("\@$t"));
	$change->($commit, refill("\@$t", 1000));
	caught_up();
	ask($readers[1], 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM other');
	$seen[1] = sql(rows("z_$t"));
	right($readers[$_], rows("z_$t"), $seen[$_], "feedback $feedback, refilled, reader $_") for 0, 1;
	ask($busy, 'COMMIT');
	$busy->quit;
	$change->($commit, most("\@$t"));
	$change->($commit, refill("\@$t", 2000));
	$change->($commit, refill("\@$t", 3000));
	caught_up();
	right($readers[$_], rows("z_$t"), $seen[$_], "feedback $feedback, refilled again, reader $_") for 0, 1;
	$holder->quit;
	sql("VACUUM z_$t; SELECT zundo.discard();");
	caught_up();
	my $alive = right($readers[0], rows("z_$t"), $seen[0], "feedback $feedback, discarded, reader 0");
	ok($alive, 'feedback on: no conflict') if $feedback eq 'on';
	if ($feedback eq 'off')
	{
		# the last snapshot of the primary has ended: nothing is kept for the standby
		ok(all_discarded($node), 'all is discarded');
		caught_up();
	}
	right($readers[$_], rows("z_$t"), $seen[$_], "feedback $feedback, at the end, reader $_") for 0, 1;
	eval { $_->quit } for @readers;
	sql(map { "$_;" } @later);
	caught_up();
	same($_, "feedback $feedback, " . $_->name, $t) for $node, $standby;
}

# 2. SET TABLESPACE copies what snapshots of the database need: one that is older than the
# deletion, one between the refills, and one of the standby. They read only after it.
sql("SELECT make('moved');");
$standby->append_conf('postgresql.conf', 'hot_standby_feedback = on');
$standby->reload;
caught_up();
my ($old, $between, $far) = map { session($_) } $node, $node, $standby;
ask($_, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM other') for $old, $far;
my $before = sql(rows('h_moved'));
sql(twice(part('@moved')), ';');
sql(twice(refill('@moved', 1000)), ';');
ask($between, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM other');
my $later = sql(rows('h_moved'));
sql(twice(most('@moved')), ';');
sql(twice(refill('@moved', 2000)), ';');
sql('ALTER TABLE z_moved SET TABLESPACE side;');
is(ask($old, rows('z_moved')), $before, 'SET TABLESPACE: the oldest snapshot');
is(ask($between, rows('z_moved')), $later, 'SET TABLESPACE: the one between');
sql(twice(part('@moved')), ';');
sql(twice(refill('@moved', 3000)), ';');
sql('VACUUM z_moved;');
is(ask($old, rows('z_moved')), $before, 'SET TABLESPACE and refill: the oldest snapshot');
is(ask($between, rows('z_moved')), $later, 'SET TABLESPACE and refill: the one between');
caught_up();
right($far, rows('z_moved'), $before, 'SET TABLESPACE: the standby');
eval { ask($_, 'COMMIT'); $_->quit } for $old, $between, $far;
same($_, 'SET TABLESPACE, ' . $_->name, 'moved') for $node, $standby;

# 3. Crashes. A table is named after the place of the checkpoint and the end of the
# transaction that has deleted most of its rows: open, undone, prepared or committed. An
# old snapshot keeps the first deletion, which is refilled, as is that of the transaction
# where it has ended.
my @places = qw(never deleted refilled);
my @ends = qw(open undone prepared committed);
my $round = 0;
for my $images ('on', 'off')
{
	$node->append_conf('postgresql.conf', "full_page_writes = $images");
	$node->reload;
	ok($node->poll_query_until('postgres', "SELECT current_setting('full_page_writes') = '$images'"), "full_page_writes is $images");
	$round++;
	my @tables = map { my $place = $_; map { "${place}_${_}_$round" } @ends } @places;
	my %writer;
	sql(map { "SELECT make('$_');" } @tables);
	my $reader = session($node);
	ask($reader, 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'SELECT count(*) FROM other');
	my $seen = ask($reader, rows("h_$tables[0]"));
	sql('CHECKPOINT;');

	my $delete = sub {
		my ($place) = @_;
		for my $end (@ends)
		{
			my $t = "${place}_${end}_$round";
			sql(twice(part("\@$t")), ';');
			$writer{$t} = session($node);
			ask($writer{$t}, 'BEGIN', twice("UPDATE \@$t SET n = n + 1 WHERE id % 5 = 1"), twice(most("\@$t")), 'SAVEPOINT s', twice("DELETE FROM \@$t"), 'ROLLBACK TO s', twice("DELETE FROM \@$t WHERE id = 1"));
			is($complaint, '', "$t: no error");
		}
	};
	my $refill = sub {
		my ($place) = @_;
		for my $end (@ends)
		{
			my $t = "${place}_${end}_$round";
			sql(twice(refill("\@$t", 1000)), ';');
			next if $end eq 'open';
			ask($writer{$t}, { undone => 'ROLLBACK', prepared => "PREPARE TRANSACTION '$t'", committed => 'COMMIT' }->{$end});
			$writer{$t}->quit;
			delete $writer{$t};
			sql(twice(refill("\@$t", 2000)), ';');
		}
	};
	$delete->('refilled');
	$refill->('refilled');
	$delete->('deleted');
	sql('CHECKPOINT;');
	$refill->('deleted');
	$delete->('never');
	$refill->('never');
	is(ask($reader, rows("z_$_")), $seen, "images $images: the old snapshot reads $_") for @tables;
	# what the open transactions have written is in WAL before the crash
	sql('SELECT txid_current();');
	crash($node);
	eval { $_->quit } for $reader, values %writer;
	same($node, "images $images, recovered", @tables);
	sql((map { "ROLLBACK PREPARED '${_}_prepared_$round';" } @places[ 0, 1 ]), "COMMIT PREPARED '$places[2]_prepared_$round';");
	sql(map { twice(part("\@$_")) . ';' . twice(refill("\@$_", 3000)) . ';' } @tables);
	same($node, "images $images, changed again", @tables);
	sound($node, "images $images", map { "z_$_" } @tables);
	caught_up();
	same($standby, "images $images, standby", @tables);
}
no_crash($_) for $node, $standby;
$standby->stop;
$node->stop;

# 4. zundo.undo_limit. An old snapshot keeps undo, and updates then use up what there may
# be. Each deletion and insert succeeds, or fails and has changed nothing; the snapshot
# reads its rows, and everything can be changed when it has ended.
my $full = zundo_node('full', <<'C');
zundo.undo_limit = '8MB'
zundo.undo_full = 'error'
zundo.undo_compression = 'none'
C
sql(<<'S');
CREATE EXTENSION zundo;
CREATE TABLE filler (id int, n int, v text) USING zheap;
CREATE TABLE z_t (id int, n int, v text) USING zheap;
CREATE TABLE h_t (id int, n int, v text) USING heap;
CREATE INDEX ON z_t (id); CREATE INDEX ON h_t (id);
ALTER TABLE z_t ALTER v SET STORAGE PLAIN;
INSERT INTO filler SELECT g, 0, repeat(md5(g::text), 4) FROM generate_series(1, 3000) g;
INSERT INTO z_t SELECT g, 0, repeat(md5(g::text), CASE WHEN g % 10 = 0 THEN 100 ELSE 2 END) FROM generate_series(1, 4000) g;
INSERT INTO h_t SELECT * FROM z_t;
CREATE PROCEDURE fill() LANGUAGE plpgsql AS $$ BEGIN
	LOOP UPDATE filler SET n = n + 1, v = repeat(md5(n::text || id), 4); COMMIT; END LOOP;
END $$;
S
my ($keeper, $second) = map { session($full) } 1 .. 2;
# it has a log with space of its own before the limit is reached
ask($second, 'INSERT INTO filler VALUES (0, 0)');
ask($keeper, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
my $kept = ask($keeper, rows('z_t'));
my %outcomes;

# attempt SQL: runs a statement on the zheap twin, and on heap's if that has succeeded.
sub attempt
{
	my ($sql) = @_;
	ask($second, $sql =~ s/\@/z_/gr);
	my $said = $complaint;
	$outcomes{ $said eq '' ? 'done' : $said =~ /undo of this database has reached "zundo\.undo_limit"/ ? 'full' : $said }++;
	ask($second, $sql =~ s/\@/h_/gr) if $said eq '';
	return;
}
my $fill = sub { return ($full->psql('postgres', 'CALL fill()'))[2] };
for my $n (0 .. 9)
{
	attempt("DELETE FROM \@t WHERE id % 10 = $n AND id <= 2000");
	attempt("INSERT INTO \@t SELECT g, $n, repeat(md5(g::text), 100) FROM generate_series($n * 100 + 10000, $n * 100 + 10040) g");
	attempt("DELETE FROM \@t WHERE id = 3000 + $n");
	attempt("INSERT INTO \@t VALUES (20000 + $n, 0, 'one')");
	like($fill->(), qr/has reached "zundo\.undo_limit"/, 'the limit is reached') if $n == 5;
}
is(join(' ', sort grep { !/^(done|full)$/ } keys %outcomes), '', 'no other error than that of the limit');
is(ask($keeper, rows('z_t')), $kept, 'the old snapshot reads its rows');
same($full, 'at the limit', 't');
ask($keeper, 'COMMIT');
ok(all_discarded($full), 'undo is discarded when it has ended');
%outcomes = ();
attempt("DELETE FROM \@t WHERE id % 10 = $_ AND id < 3500") for 0 .. 9;
attempt("INSERT INTO \@t SELECT g, 0, repeat(md5(g::text), 2) FROM generate_series(30000, 31000) g");
is(join(' ', %outcomes), 'done 11', 'then all can be changed again');
same($full, 'after the limit', 't');
sound($full, '', 'z_t', 'filler');
$_->quit for $keeper, $second;
no_crash($full);
$full->stop;
done_testing();
