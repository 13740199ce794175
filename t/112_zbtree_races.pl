# A row gets a key back while its old entry is deleted by page-full deletion, by
# VACUUM or by the worker (ZBTREE-6, ZBTREE-8): the two meet between judging and
# deleting, or between the change of the row and the search for its entry. The
# process that comes first is stopped there by a signal, so the other one does
# reach the place that is to be tested.
# newest
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('races', "zundo.key_queue = 0\ncheckpoint_timeout = 1h\nrestart_after_crash = off\n");
$node->safe_psql('postgres', 'CREATE EXTENSION zundo');
if (($node->psql('postgres', q{LOAD 'zundo'; SET zundo.fault = 'keys-judged:error'}))[0] != 0)
{
	$node->stop;
	plan skip_all => 'no fault points in this build';
}

sql('CREATE TABLE h (a int); CREATE TABLE z (a int)');

# the queries find rows by the old key (A) and by the new one (B)
my $pad = 'x' x 100;
my $twins = index_twins($node, [qq{SELECT id, b FROM T WHERE a = 'A1$pad'}, qq{SELECT id, b FROM T WHERE a = 'B1$pad'}, q{SELECT id, a FROM T WHERE a < 'Z' ORDER BY a, id},
		q{SELECT id, b FROM T WHERE a >= 'A' AND a < 'C' ORDER BY a DESC, id DESC}], ways => 'index only bitmap seq', sorted => 0);
my ($watcher, $cleaner, $reviver);

sub sessions
{
	$_ = session($node) for $twins->{writer}, $watcher, $cleaner, $reviver;
	for my $session ($twins->{writer}, $watcher, $cleaner, $reviver)
	{
		ask($session, q{SET zundo.fault = ''});
		$session->{backend} = ask($session, 'SELECT pg_backend_pid()');
	}
	return;
}

# Sends a statement without waiting for its end.
sub begin { my ($session, $statement) = @_; $session->query_until(qr/begun/, "\\echo begun\n$statement;\n"); return }

# Waits until the watcher gets a result other than the empty one.
sub await
{
	my ($query) = @_;
	for (1 .. 1500)
	{
		my $answer = ask($watcher, $query);
		return $answer if $answer ne '';
		select(undef, undef, undef, 0.02);
	}
	return '';
}

# Stops the process that sleeps at a fault point; returns its pid, 0 if it has woken up before.
my $worker = q{backend_type = 'zundo undo worker' AND datname = 'postgres'};
sub halt
{
	my ($who) = @_;
	my $pid = await("SELECT pid FROM pg_stat_activity WHERE $who AND wait_event = 'PgSleep'") || return 0;
	kill 'STOP', $pid;
	return $pid if ask($watcher, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid AND wait_event = 'PgSleep'") eq '1';
	kill 'CONT', $pid;
	return 0;
}

# How many entries there are with this key of this row.
sub entries
{
	my ($key, $id) = @_;
	return ask($watcher, qq{SELECT count(*) FROM generate_series(1, pg_relation_size('z_a') / 8192 - 1) p, zundo.index_items('z_a', p) i, z
		WHERE kind = 'entry' AND z.id = $id AND i.target = z.ctid AND key[1] LIKE '%$key$id$pad%'});
}

# Makes tables, and stale entries of the rows 1 and 2, which nobody needs.
sub set_up
{
	my ($system_fault) = @_;
	for my $t (['h', 'heap', 'btree'], ['z', 'zheap WITH (fillfactor = 85)', 'zbtree'])
	{
		my ($table, $am, $method) = @$t;
		ask($twins->{writer}, qq{DROP TABLE IF EXISTS $table; CREATE TABLE $table (id int, a text, b int) USING $am; CREATE INDEX ${table}_a ON $table USING $method (a) WITH (fillfactor = 100);
			INSERT INTO $table SELECT g, 'A' || g || '$pad', g FROM generate_series(1, 40) g});
	}
	sql("ALTER SYSTEM SET zundo.fault = '$system_fault'; SELECT pg_reload_conf()") if $system_fault ne '';
	change_twins($twins, "UPDATE T SET a = 'B' || id || '$pad' WHERE id <= 2");
	# one that needs the entries of the present keys
	my $old = session($node);
	ask($old, q{SET zundo.fault = ''; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM h});
	push @{ $twins->{old} }, $old;
	sql('SELECT zundo.discard()') if $system_fault eq '';
	return;
}

# Each makes a session or the worker delete the stale entries; the fault point that is
# reached in between.
my %cleaners = (
	'page-full deletion' => {
		point => 'keys-judged',
		run => qq{UPDATE z SET a = 'C' || id || '$pad' WHERE id > 2},
		same => qq{UPDATE h SET a = 'C' || id || '$pad' WHERE id > 2}
	},
	'VACUUM' => { point => 'stale-judged', run => 'VACUUM (INDEX_CLEANUP on) z', same => 'SELECT 1' },
	'purge' => { point => 'keys-judged' });

# The stopped process continues, and the reviver ends, or the process is killed; then the
# answers and the entries are compared, and once more after the key is given back.
sub finish
{
	my ($name, $what, $end, $victim) = @_;
	my $revive = "UPDATE T SET a = 'A1$pad' WHERE id = 1";
	if ($end eq 'kill -9')
	{
		# so that the change of the row is replayed, without its entry
		ask($watcher, 'CREATE TABLE flush (); DROP TABLE flush');
		kill 'KILL', $victim;
		ok(wait_for_death($node), "$what: the server died");
		eval { $_->quit } for $twins->{writer}, $watcher, $cleaner, $reviver, @{ $twins->{old} };
		$twins->{old} = [];
		$node->append_conf('postgresql.auto.conf', "zundo.fault = ''\n");
		$node->start;
		sessions();
		# what page-full deletion was part of was rolled back, but not in h
		ask($cleaner, $cleaners{$name}{run}) if $name eq 'page-full deletion';
	}
	else
	{
		kill 'CONT', $victim;
		ask($reviver, $revive =~ s/\bT\b/h/r, $end);
		is($complaint, '', "$what: no error of the reviver");
		ask($cleaner, 'SELECT 1');
		is(entries('A', 1), '1', "$what: one entry of the key that is back") if $end eq 'COMMIT';
		is(entries('A', 2), '0', "$what: the other entry is deleted");
	}
	compare_twins($twins, "$what, $end");
	change_twins($twins, $revive);
	change_twins($twins, "UPDATE T SET a = 'A2$pad' WHERE id = 2");
	compare_twins($twins, "$what, $end, and given back");
	end_snapshots($twins);
	sql('SELECT zundo.discard(); VACUUM (INDEX_CLEANUP on) z');
	is(sql(q{SELECT entries, stale FROM zundo.index_entries('z_a')}), '40|0', "$what, $end: VACUUM leaves one entry for each row");
	return;
}

sub start_cleaner
{
	my ($name, $fault) = @_;
	return if $name eq 'purge';
	my $c = $cleaners{$name};
	ask($cleaner, "SET zundo.fault = '$fault'");
	ask($cleaner, $c->{same});
	begin($cleaner, $c->{run});
	return;
}

# The cleaner has judged the entries when the row gets its key back: the reviver waits for
# the leaf page.
sub judged
{
	my ($name, $end) = @_;
	my $what = "$name has judged";
	my $cleaning;
	for (1 .. 5)
	{
		set_up($name eq 'purge' ? 'keys-judged:sleep' : '');
		start_cleaner($name, "$cleaners{$name}{point}:sleep");
		$cleaning = halt($name eq 'purge' ? $worker : 'pid = ' . $cleaner->{backend});
		last if $cleaning;
		ask($cleaner, 'SELECT 1');
		end_snapshots($twins);
	}
	ok($cleaning, "$what, and is stopped") or return;
	sql(q{ALTER SYSTEM RESET zundo.fault; SELECT pg_reload_conf()}) if $name eq 'purge';
	begin($reviver, "BEGIN;\nUPDATE z SET a = 'A1$pad' WHERE id = 1");
	is(await(qq{SELECT 'waits' FROM pg_stat_activity WHERE pid = $reviver->{backend} AND wait_event ~ '^Buffer(Content|Shared|Exclusive)'}), 'waits', "$what: the reviver waits for it");
	is(ask($watcher, "SELECT wait_event FROM pg_stat_activity WHERE pid = $cleaning"), 'PgSleep', "$what: which is still there");
	finish($name, $what, $end, $cleaning);
	return;
}

# The row has its key back, and its entry has not been looked for, or has been found and
# is used: the cleaner deletes the other row's entry only.
sub revived
{
	my ($name, $point, $end) = @_;
	my $what = "$name beside $point";
	my ($taken, $reviving) = (1, 0);
	for (1 .. 5)
	{
		set_up($name eq 'purge' ? 'keys-taken:sleep' : '');
		$taken = halt($worker) if $name eq 'purge';
		sql(q{ALTER SYSTEM RESET zundo.fault; SELECT pg_reload_conf()}) if $name eq 'purge';
		ask($reviver, "SET zundo.fault = '$point:sleep'");
		begin($reviver, "BEGIN;\nUPDATE z SET a = 'A1$pad' WHERE id = 1");
		$reviving = halt("pid = $reviver->{backend}");
		last if $taken && $reviving;
		kill 'CONT', $reviving if $reviving;
		ask($reviver, 'ROLLBACK');
		kill 'CONT', $taken if $name eq 'purge' && $taken;
		end_snapshots($twins);
	}
	ok($taken && $reviving, "$what: the reviver is stopped") or return;
	is(entries('A', 1) . entries('A', 2), '11', "$what: both entries are there");
	if ($name eq 'purge')
	{
		kill 'CONT', $taken;
		for (1 .. 500)
		{
			last if entries('A', 2) eq '0';
			select(undef, undef, undef, 0.02);
		}
	}
	else
	{
		start_cleaner($name, '');
		ask($cleaner, 'SELECT 1');
	}
	is(entries('A', 1) . entries('A', 2), '10', "$what: the entry stays, the other one is deleted");
	is(ask($watcher, "SELECT wait_event FROM pg_stat_activity WHERE pid = $reviving"), 'PgSleep', "$what: the reviver is still there");
	compare_twins($twins, $what);
	finish($name, $what, $end, $reviving);
	return;
}

for my $name ('page-full deletion', 'VACUUM', 'purge')
{
	if ($name eq 'purge')
	{
		$node->append_conf('postgresql.conf', "zundo.key_queue = 1MB\n");
		$node->restart;
	}
	sessions();
	judged($name, $_) for 'COMMIT', 'ROLLBACK', 'kill -9';
	revived($name, 'keys-due', $_) for 'COMMIT', 'ROLLBACK', 'kill -9';
	revived($name, 'key-found', $_) for 'COMMIT', 'ROLLBACK';
	sound($node, $name, 'z');
	eval { $_->quit } for $twins->{writer}, $watcher, $cleaner, $reviver;
}
$node->stop;
done_testing();
