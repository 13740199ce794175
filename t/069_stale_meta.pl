# Both copies of the meta page, or of a map page, of the undo log have missed the same
# writes, or the file has lost its end. What other pages prove is repaired at once, the
# rest is reported until zundo.repair_undo is called, and no row is wrong meanwhile.
# Rules: UNDO-71, LOG-2.
# long
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

use constant { META => 0, MAP => map_block(0) };
my $repair = 'SELECT step FROM zundo.repair_undo(dry_run => false)';
my $check = q{SELECT * FROM zundo.check('zundo.undo_log')};
my ($node, $path, $size);

sub error_of { my ($sql, $server) = @_; return (($server // $node)->psql('postgres', "\\set VERBOSITY verbose\n$sql"))[2] }
sub said { return slurp_file($node->logfile, $size) }

# start: starts the server; said() then returns what it logs from here on.
sub start { $size = -s $node->logfile; $node->start; return }

# pair FIRST, put_pair FIRST COPIES: reads and writes both copies of a page.
sub pair { my ($first) = @_; return [ map { read_block($path, twin_block($first, $_)) } (0, 1) ] }
sub put_pair { my ($first, $pair, $file) = @_; write_block($file // $path, twin_block($first, $_), $pair->[$_]) for (0, 1); return }

# begin NAME: starts a server with a table of 2000 rows whose worker does not run, so that
# no extent is given back.
sub begin
{
	my ($name, %options) = @_;
	$node = zundo_node($name, <<'C', no_data_checksums => 1, %options);
max_worker_processes = 0
max_prepared_transactions = 10
zundo.eager_rollback_pages = 0
C
	sql(q{CREATE EXTENSION zundo;
		CREATE TABLE z (id int PRIMARY KEY, n int, t text) USING zheap;
		CREATE TABLE y (id int PRIMARY KEY, n int) USING zheap;
		INSERT INTO z SELECT g, 0, repeat('x', 100) FROM generate_series(1, 2000) g;
		INSERT INTO y SELECT g, 0 FROM generate_series(1, 2000) g});
	$path = $node->data_dir . '/' . sql(q{SELECT pg_relation_filepath('zundo.undo_log')});
	sql('CHECKPOINT');
	return;
}

# grow: six sessions write at the same time, so that the undo log gets six logs.
sub grow
{
	my @sessions = map { session($node) } (1 .. 6);
	for my $k (0 .. 5) { ask($sessions[$k], 'BEGIN', "INSERT INTO z VALUES (@{[10001 + $k]}, 1)") }
	for my $session (@sessions) { ask($session, 'COMMIT'); $session->quit }
	return;
}

# extents: returns the number of extents on the meta page.
sub extents { return unpack('L<', substr(read_block($path, META), 48 + 16, 4)) }

begin('clean');
is(twin_block(META, 1) - META, 66, 'the copies of the meta page are apart');
my $old = pair(META);
my $before = extents();
grow();
$node->stop;
cmp_ok(extents(), '>', $before, 'clean: there are more extents');
put_pair(META, $old);
start();
is(sql('SELECT count(*), sum(n) FROM z'), '2006|6', 'clean: the rows are right');
like(said(), qr/the meta page of relation "zundo.undo_log" had missed writes and has been repaired.*It counted $before extents, but extent \d+ is in use/s, 'clean: the server log says it');
my @sessions = map { session($node) } (1 .. 6);
ask($_, 'BEGIN', 'UPDATE z SET n = n + 1 WHERE id = ' . $_->{number}), is($complaint, '', "clean: writer $_->{number}")
	for map { $sessions[$_]{number} = $_ + 1; $sessions[$_] } (0 .. 5);
ask($_, 'COMMIT'), $_->quit for @sessions;
is(sql('SELECT count(*), sum(n) FROM z'), '2006|12', 'clean: and after changes');
is(sql($check), '', 'clean: zundo.check finds nothing');
is(sql($repair), '', 'clean: nothing is to be repaired');
crash($node);
is(sql('SELECT count(*), sum(n) FROM z'), '2006|12', 'clean: after a crash');
sound($node, 'clean', qw(z y zundo.undo_log));
no_crash($node);
$node->stop;

# The same beside transactions that need undo: two that were open at a crash, a prepared
# one, and one that was rolled back.
begin('pending', allows_streaming => 1);
my $standby = standby_of($node, '');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$old = pair(META);
$before = extents();
@sessions = map { session($node) } (0 .. 3);
for my $k (0 .. 3) { ask($sessions[$k], 'BEGIN', "UPDATE z SET n = n + 100, t = md5(t) || t WHERE id % 4 = $k") }
ask($sessions[0], q{PREPARE TRANSACTION 'p'});
ask($sessions[1], 'ROLLBACK');
ask($sessions[1], 'UPDATE y SET n = n + 1');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
sql('CHECKPOINT');
$standby->safe_psql('postgres', 'CHECKPOINT');
my $file = $standby->data_dir . substr($path, length $node->data_dir);
$standby->stop('immediate');
put_pair(META, $old, $file);
$standby->start;
is($standby->safe_psql('postgres', 'SELECT count(*), sum(n) FROM z'), '2000|0', 'pending: a standby with such a meta page reads the right rows');
$node->stop('immediate');
$_->quit for @sessions;
cmp_ok(extents(), '>', $before, 'pending: there are more extents');
put_pair(META, $old);
start();
is(sql('SELECT count(*), sum(n) FROM z'), '2000|0', 'pending: the rows are right');
like(said(), qr/had missed writes and has been repaired/, 'pending: the server log says it');
sql(q{ROLLBACK PREPARED 'p'});
sql('SELECT zundo.discard()') for 1 .. 2;
is(sql('SELECT count(*) FROM zundo.stat_rollback'), '0', 'pending: all is rolled back');
is(sql('SELECT (SELECT sum(n) FROM z), (SELECT sum(n) FROM y)'), '0|2000', 'pending: and the rows are right');
sql('UPDATE z SET n = n + 1');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
is($standby->safe_psql('postgres', 'SELECT count(*), sum(n) FROM z'), '2000|2000', 'pending: on the standby, too');
sound($node, 'pending', qw(z y zundo.undo_log));
no_crash($standby);
$standby->stop;
no_crash($node);
$node->stop;

# Both copies of meta page and map have missed the same writes: only the extents' pages
# show it. With the map alone it is the same.
for my $also (1, 0)
{
	my $name = $also ? 'both' : 'map';
	begin($name);
	my ($old_meta, $old_map) = (pair(META), pair(MAP));
	@sessions = map { session($node) } (0 .. 3);
	for my $k (0 .. 3) { ask($sessions[$k], 'BEGIN', "UPDATE z SET n = n + 100, t = md5(t) || t WHERE id % 4 = $k") }
	ask($sessions[0], q{PREPARE TRANSACTION 'p'});
	ask($sessions[1], 'COMMIT');
	sql('CHECKPOINT');
	$node->stop('immediate');
	$_->quit for @sessions;
	my $last = extents() - 1;
	put_pair(META, $old_meta) if $also;
	put_pair(MAP, $old_map);
	start();
	like(error_of('UPDATE y SET n = n + 1'), qr/XX001: extent \d+ of relation "zundo.undo_log" is in use.*repair_undo/s, "$name: writing fails");
	# rows whose undo is in the extents that the map does not know are not shown wrongly
	my ($rc, $out, $err) = $node->psql('postgres', 'SELECT sum(n) FROM z');
	ok($out eq '50000' || $err =~ /is in use|does not exist|cannot be read|corrupted|missing|extent/, "$name: reading is right or raises an error: $out$err");
	like(sql($check), qr/LOG-2.*belongs to a later allocation than the extent map records/s, "$name: zundo.check finds it");
	like(sql('SELECT step FROM zundo.repair_undo()'), qr/extent map: both copies have missed writes; rebuilt/, "$name: a dry run says what would be done");
	like(error_of('UPDATE y SET n = n + 1'), qr/XX001/, "$name: and does nothing");
	like(sql($repair), qr/extent map: both copies have missed writes; rebuilt/, "$name: the map is rebuilt");
	is(sql($repair), '', "$name: once");
	is(sql('SELECT count(*), sum(n) FROM z'), '2000|50000', "$name: the rows are right");
	sql('UPDATE y SET n = n + 1');
	sql(q{ROLLBACK PREPARED 'p'});
	sql('SELECT zundo.discard()') for 1 .. 2;
	is(sql('SELECT count(*) FROM zundo.stat_rollback'), '0', "$name: all is rolled back");
	is(sql('SELECT (SELECT sum(n) FROM z), (SELECT sum(n) FROM y)'), '50000|2000', "$name: and the rows are right");
	crash($node);
	is(sql('SELECT (SELECT sum(n) FROM z), (SELECT sum(n) FROM y)'), '50000|2000', "$name: after a crash");
	sound($node, $name, qw(z y zundo.undo_log));
	no_crash($node);
	$node->stop;
}

# The same on a standby that is promoted while a session has the meta page loaded. The
# undo of open transactions is in extents that the map there calls free.
begin('promoted', allows_streaming => 1);
$standby = standby_of($node, "max_worker_processes = 0\n");
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my @old = (pair(META), pair(MAP));
@sessions = map { session($node) } (0 .. 3);
for my $k (0 .. 3) { ask($sessions[$k], 'BEGIN', "UPDATE z SET n = n + 100, t = md5(t) || t WHERE id % 4 = $k") }
sql('CHECKPOINT');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
$standby->safe_psql('postgres', 'CHECKPOINT');
$node->stop('immediate');
$_->quit for @sessions;
$file = $standby->data_dir . substr($path, length $node->data_dir);
$standby->stop('immediate');
put_pair(META, $old[0], $file);
put_pair(MAP, $old[1], $file);
$standby->start;
my $reader = session($standby);
is(ask($reader, 'SELECT sum(n) FROM y'), '0', 'promoted: a session reads on the standby');
$standby->promote;
like(error_of('UPDATE y SET n = n + 1', $standby), qr/XX001: extent \d+ of relation "zundo.undo_log" is in use.*repair_undo/s, 'promoted: writing fails');
like($standby->safe_psql('postgres', $repair), qr/extent map: both copies have missed writes; rebuilt/, 'promoted: the map is rebuilt');
$standby->safe_psql('postgres', 'SELECT zundo.discard()') for 1 .. 2;
is(ask($reader, 'SELECT (SELECT sum(n) FROM z), (SELECT sum(n) FROM y)'), '0|0', 'promoted: the rows are right');
is($standby->safe_psql('postgres', 'UPDATE y SET n = n + 1; SELECT sum(n) FROM y'), '2000', 'promoted: writing works');
sound($standby, 'promoted', qw(z y zundo.undo_log));
$reader->quit;
no_crash($standby);
$standby->stop;

# The meta page is read again, while the server runs, as it was before the file grew.
$node = zundo_node('running', "max_worker_processes = 0\nshared_buffers = 1MB\n", no_data_checksums => 1);
sql('CREATE EXTENSION zundo; CREATE TABLE z (id int PRIMARY KEY, n int, t text) USING zheap; INSERT INTO z SELECT g, 0 FROM generate_series(1, 100) g');
$path = $node->data_dir . '/' . sql(q{SELECT pg_relation_filepath('zundo.undo_log')});
sql('CHECKPOINT');
$old = pair(META);
my $keeper = session($node);
ask($keeper, 'SELECT sum(n) FROM z');
grow();
sql('CHECKPOINT');
put_pair(META, $old);
$size = -s $node->logfile;
sql('CREATE TABLE filler (pad text); INSERT INTO filler SELECT repeat($$x$$, 1000) FROM generate_series(1, 5000)');
like(sql($check), qr/LOG-2.*the meta page has missed writes: it counts \d+ extents, and there are \d+/, 'running: zundo.check finds it');
like(sql('SELECT step FROM zundo.repair_undo()'), qr/meta page: it has missed writes and counts \d+ extents/, 'running: a dry run says it');
like(said(), qr/the meta page of relation "zundo.undo_log" had missed writes and has been repaired/, 'running: a discard pass repairs it');
is(sql($check), '', 'running: zundo.check finds nothing more');
crash($node);
is(sql('UPDATE z SET n = n + 1; SELECT count(*), sum(n) FROM z'), '106|112', 'running: the rows are right');
sound($node, 'running', qw(z zundo.undo_log));

# The same with the map.
$keeper = session($node);
ask($keeper, 'SELECT sum(n) FROM z');
sql('SELECT zundo.discard()') for 1 .. 2;
sql('CHECKPOINT');
$old = pair(MAP);
@sessions = map { session($node) } (1 .. 3);
ask($_, 'BEGIN', 'INSERT INTO z VALUES (20000 + pg_backend_pid(), 1, repeat(md5($$y$$), 100))'), is($complaint, '', 'running: another writer') for @sessions;
ask($sessions[0], 'INSERT INTO z SELECT g, 1, repeat($$y$$, 1000) FROM generate_series(100001, 110000) g;
	UPDATE z SET t = repeat($$w$$, 1000) WHERE id > 100000; DELETE FROM z WHERE id > 100000');
ask($_, 'COMMIT') for @sessions;
sql('CHECKPOINT');
put_pair(MAP, $old);
sql('INSERT INTO filler SELECT repeat($$x$$, 1000) FROM generate_series(1, 5000)');
my $found = '';
for (1 .. 3)
{
	$found .= error_of('SELECT zundo.discard()');
	sleep 1;
}
like($found, qr/XX001: extent map of relation "zundo.undo_log" is not as it was written.*repair_undo/s, 'running: a map that is not as it was written');
$_->quit for $keeper, @sessions;
$node->stop('immediate');
put_pair(MAP, $old);
start();
like(sql($repair), qr/^|have missed writes; rebuilt/, 'running: the map is repaired');
is(sql('UPDATE z SET n = n + 1; SELECT count(*), sum(n) FROM z'), '109|224', 'running: the rows are right then');
sound($node, 'running', qw(z zundo.undo_log));
no_crash($node);
$node->stop;

# The file has lost blocks that hold nothing.
begin('empty');
sql('BEGIN; UPDATE z SET n = n + 7 WHERE id <= 1000; ROLLBACK');
sql('CHECKPOINT');
$node->stop('immediate');
my @used = grep { my $page = read_block($path, $_); unpack('S<', substr($page, 36, 2)) == 0x7A75 && unpack('S<', substr($page, 12, 2)) > 64 } (0 .. (-s $path) / 8192 - 1);
my $whole = -s $path;
my $end = $used[-1] + 1;
cmp_ok($end, '<', $whole / 8192, "empty: the last blocks hold nothing: $end");
truncate($path, $end * 8192) or die $!;
start();
is(sql('SELECT count(*), sum(n) FROM z'), '2000|0', 'empty: the rows are right');
like(said(), qr/the file of relation "zundo.undo_log" was too short and has been extended.*hold no undo/s, 'empty: the server log says it');
is(-s $path, $whole, 'empty: the file is as long as before');
sql('INSERT INTO y VALUES (3000, 1)');
sql('SELECT zundo.discard()') for 1 .. 2;
is(sql($repair), '', 'empty: nothing is to be repaired');
is(sql('SELECT count(*) FROM zundo.stat_rollback'), '0', 'empty: all is rolled back');
sound($node, 'empty', qw(z y zundo.undo_log));
no_crash($node);
$node->stop;

# It has lost undo: of a page in the middle, with and without the second copies.
for my $keep ('half', 'few')
{
	begin($keep);
	sql('BEGIN; UPDATE z SET n = n + 7, t = md5(t) || t; ROLLBACK');
	sql('CHECKPOINT');
	$node->stop('immediate');
	my @pages = grep { my $page = read_block($path, $_); unpack('S<', substr($page, 36, 2)) == 0x7A75 && unpack('S<', substr($page, 12, 2)) == 8192 } (0 .. (-s $path) / 8192 - 1);
	my ($cut) = $keep eq 'half' ? (grep { $_ > 70 } @pages) : $pages[5];
	ok(defined $cut, "$keep: there is a page to be cut off") or next;
	truncate($path, $cut * 8192) or die $!;
	start();
	like(error_of('INSERT INTO y VALUES (3000, 1)'), qr/XX001: the file of relation "zundo.undo_log" has lost its end.*repair_undo/s, "$keep: writing fails");
	is(-s $path, $cut * 8192, "$keep: the file is not extended");
	like(error_of($check) . sql_or_error($check), qr/LOG-2.*the file ends here|has lost its end/, "$keep: zundo.check finds it");
	like(sql('SELECT step FROM zundo.repair_undo()'), qr/file: it ends here; missing blocks, of extent \d+/, "$keep: a dry run says what would be done");
	is(-s $path, $cut * 8192, "$keep: and does nothing");
	like(sql($repair), qr/file: it ends here; missing blocks, of extent \d+ and perhaps of later ones, may have held undo; empty ones take/, "$keep: repaired");
	sql('INSERT INTO y VALUES (3000, 1)');
	sql('SELECT zundo.discard()') for 1 .. 2;
	is(sql('SELECT count(*) FROM y'), '2001', "$keep: writing works");
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT sum(n) FROM z");
	like($out . $err, qr/XX001/, "$keep: rows whose undo is lost raise an error");
	sql('DROP TABLE z');
	sql($repair);
	sql('SELECT zundo.discard()') for 1 .. 2;
	is(sql($repair), '', "$keep: nothing more is to be repaired");
	sound($node, $keep, qw(y zundo.undo_log));
	no_crash($node);
	$node->stop;
}

# Nothing tells how long the file was.
begin('nothing');
sql('BEGIN; UPDATE z SET n = n + 7, t = md5(t) || t; ROLLBACK');
sql('CHECKPOINT');
$node->stop('immediate');
truncate($path, 10 * 8192) or die $!;
write_block($path, META, "\0" x 8192);
start();
like(error_of('SELECT sum(n) FROM z'), qr/XX001: blocks 0 and 66 of relation "zundo.undo_log" are damaged/, 'nothing: reading fails');
like(error_of($repair), qr/XX001: relation "zundo.undo_log" has lost its meta page and the end of its file/, 'nothing: it is not repaired');
is(-s $path, 10 * 8192, 'nothing: and not extended');
$node->stop;

sub sql_or_error { my ($sql) = @_; my ($rc, $out, $err) = $node->psql('postgres', $sql); return "$out$err" }
done_testing();
