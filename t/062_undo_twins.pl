# The meta page and the map pages of the undo log exist twice. If one copy is
# damaged, lost or outdated, nothing stops, nothing is lost, and the copy is
# repaired from the other one. Without a sound copy zheap tables raise an error
# that names both, and heap tables can be used.
# Rules: UNDO-40, UNDO-6, LOG-2.
# long
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

use constant { META => 0, MAP => map_block(0) };

my $node = zundo_node('twins', "full_page_writes = off\nwal_keep_size = 1GB\n",
	allows_streaming => 1, extra => ['--data-checksums']);
$node->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE h (id int);
	CREATE TABLE z (id int PRIMARY KEY, v int, t text) USING zheap;
	INSERT INTO z SELECT g, 0, repeat('x', 100) FROM generate_series(1, 4000) g});
my $path = $node->safe_psql('postgres', q{SELECT pg_relation_filepath('zundo.undo_log')});

sub block_of { my ($server, $block) = @_; return read_block($server->data_dir . "/$path", $block) }
sub put_block { my ($server, $block, $bytes) = @_; return write_block($server->data_dir . "/$path", $block, $bytes) }

sub equal_twins
{
	my ($server, $first) = @_;
	return substr(block_of($server, $first), 24) eq substr(block_of($server, twin_block($first, 1)), 24);
}

# work WHEN: reads, allocates and frees extents.
my $v = 0;

sub work
{
	my ($when) = @_;
	is($node->safe_psql('postgres', 'SELECT count(*), sum(v) FROM z'), "4000|" . 4000 * $v, "$when: rows are right");
	$node->safe_psql('postgres', 'BEGIN; UPDATE z SET v = v + 1, t = md5(t) || t; ROLLBACK');
	$node->safe_psql('postgres', 'UPDATE z SET v = v + 1, t = md5(t) || t');
	$node->safe_psql('postgres', 'SELECT zundo.discard()');
	$v++;
	is($node->safe_psql('postgres', 'SELECT count(*), sum(v) FROM z'), "4000|" . 4000 * $v, "$when: and after changes");
	return;
}

work('sound');
$node->stop;
my %stale = map { $_ => block_of($node, $_) } map { (twin_block(META, $_), twin_block(MAP, $_)) } (0, 1);
$node->start;
work('sound again');
$node->stop;
ok(equal_twins($node, META) && equal_twins($node, MAP), 'the twins of a sound log are equal');

my %damage = (
	flipped => sub { my ($block) = @_; my $b = block_of($node, $block); substr($b, 700, 1) ^= "\x10"; return $b },
	zeroed => sub { return "\0" x 8192 },
	garbage => sub { return "\xa5" x 8192 },
	stale => sub { my ($block) = @_; return $stale{$block} });
for my $kind (sort keys %damage)
{
	for my $which (0, 1)
	{
		# one copy of the meta page and one of the map page at the same time
		my ($meta_block, $map_block) = (twin_block(META, $which), twin_block(MAP, 1 - $which));
		put_block($node, $meta_block, $damage{$kind}->($meta_block));
		put_block($node, $map_block, $damage{$kind}->($map_block));
		my $size = -s $node->logfile;
		$node->start;
		work("$kind, $which");
		my $log = slurp_file($node->logfile, $size);
		like($log, qr/block $meta_block of relation "zundo.undo_log" was damaged and has been repaired/, "$kind, $which: said of the meta page");
		like($log, qr/block $map_block of relation "zundo.undo_log" was damaged and has been repaired/, "$kind, $which: and of the map");
		$node->stop;
		ok(equal_twins($node, META) && equal_twins($node, MAP), "$kind, $which: both are repaired");
	}
}

# Both copies: zheap tables raise an error, and heap tables can be used.
for my $first (META, MAP)
{
	my @sound = map { block_of($node, twin_block($first, $_)) } (0, 1);
	put_block($node, twin_block($first, $_), $damage{ $_ ? 'zeroed' : 'flipped' }->(twin_block($first, $_))) for (0, 1);
	$node->start;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nUPDATE z SET v = v + 1");
	like($err, qr/XX001: blocks $first and @{[twin_block($first, 1)]} of relation "zundo.undo_log" are damaged/, "both gone, $first: the error names them");
	is($node->safe_psql('postgres', 'INSERT INTO h VALUES (1) RETURNING id'), '1', "both gone, $first: heap tables can be used");
	$node->stop;
	put_block($node, twin_block($first, $_), $sound[$_]) for (0, 1);
}

# Both copies of a map page have missed writes: an extent that is in use is not allocated again.
$node->start;
work('with the map as it was');
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$node->safe_psql('postgres', 'CHECKPOINT');
my @before = map { block_of($node, twin_block(MAP, $_)) } (0, 1);
$node->safe_psql('postgres', 'UPDATE z SET v = v + 1, t = reverse(t)');
$v++;
# until the server stops, so that the worker does not free the extents
$node->stop;
eval { $holder->quit };
my @after = map { block_of($node, twin_block(MAP, $_)) } (0, 1);
put_block($node, twin_block(MAP, $_), $before[$_]) for (0, 1);
$node->append_conf('postgresql.conf', 'max_worker_processes = 0');
$node->start;
my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nUPDATE z SET v = v + 1, t = reverse(t)");
like($err, qr/XX001: extent \d+ of relation "zundo.undo_log" is in use/, 'a map that has missed writes: no extent is taken twice');
is($node->safe_psql('postgres', 'SELECT count(*), sum(v) FROM z'), '4000|' . 4000 * $v, '... and the rows are right');
$node->stop('immediate');
put_block($node, twin_block(MAP, $_), $after[$_]) for (0, 1);
$node->start;
work('with the map back');

# One copy is damaged on the standby: redo, which gets no full-page images here, uses the other one.
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
for my $which (0, 1)
{
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	$standby->stop;
	put_block($standby, twin_block(META, $which), "\xa5" x 8192);
	put_block($standby, twin_block(MAP, 1 - $which), $stale{ twin_block(MAP, 1 - $which) });
	$standby->start;
	is($standby->safe_psql('postgres', 'SELECT count(*), sum(v) FROM z'), '4000|' . 4000 * $v, "standby, $which: rows are right");
	work("primary, $which");
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
	is($standby->safe_psql('postgres', 'SELECT count(*), sum(v) FROM z'), '4000|' . 4000 * $v, "standby, $which: and later");
	# without a restartpoint it would write nothing
	$standby->safe_psql('postgres', 'CHECKPOINT');
	$standby->stop;
	ok(equal_twins($standby, META) && equal_twins($standby, MAP), "standby, $which: both are repaired");
	$standby->start;
}
$standby->stop;
sound($node, 'in the end', qw(z zundo.undo_log));
no_crash($node);
no_crash($standby);
$node->stop;

# A group of extents that was cut off begins, when it comes back, at the newest generation
# that was cut off (UNDO-6), which the meta page remembers.
my $cut = zundo_node('cut', '', no_data_checksums => 1);
$cut->safe_psql('postgres', 'CREATE EXTENSION zundo; CREATE TABLE z (id int) USING zheap');
$path = $cut->safe_psql('postgres', q{SELECT pg_relation_filepath('zundo.undo_log')});
$cut->stop;

sub forge { my ($first, $page) = @_; return write_twins($cut->data_dir . "/$path", $first, $page) }
sub floor_of { return unpack('L<', substr(block_of($cut, META), 48 + 20, 4)) }

my $meta = block_of($cut, META);
is(floor_of(), 0, 'a new undo log begins at generation 0');
substr($meta, 48 + 20, 4) = pack('L<', 5000);
forge(META, $meta);
$cut->start;
like($cut->safe_psql('postgres', 'INSERT INTO z VALUES (1); SELECT insert_ptr FROM zundo.stat_undo'), qr/^5001\./, 'a new group begins behind the floor');
$cut->stop;
# two groups whose extents are all free, though the map says otherwise; the second one had
# generation 7777
my $map = block_of($cut, MAP);
$meta = block_of($cut, META);
substr($meta, 48 + 16, 4) = pack('L<', 203);
substr($map, 48 + 40 * $_, 8) = pack('L<S<CC', $_ == 2 ? 7777 : 1, 0, 0, 0) for 0 .. 199;
open(my $file, '+<:raw', $cut->data_dir . "/$path") or die $!;
truncate($file, (extent_block(202) + 64) * 8192) or die $!;
close $file;
forge(META, $meta);
forge(map_block(1), $map);
$cut->start;
$cut->safe_psql('postgres', 'INSERT INTO z VALUES (2)');
ok($cut->poll_query_until('postgres', q{SELECT pg_relation_size('zundo.undo_log') < 100 * 1024 * 1024}), 'the tail is cut off');
$cut->stop;
is(floor_of(), 7777, 'its newest generation is remembered');
$cut->start;
is($cut->safe_psql('postgres', 'INSERT INTO z VALUES (3); SELECT count(*) FROM z'), '3', 'and the log is written on');
sound($cut, '', qw(z zundo.undo_log));
no_crash($cut);
$cut->stop;
done_testing();
