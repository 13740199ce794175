# What the tests in t/ share: a server with zundo, and what every one of them looks at in the end.
package ZundoTest;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(read_block write_block write_twins zundo_node standby_of server_major sql session ask $complaint
	crash wait_for_death timed_out passes sound no_crash);

# The node that zundo_node has made last: the one that sql() asks.
my $newest;

# What the server complained of when ask() asked it last.
our $complaint = '';

# zundo_node NAME [CONF [OPTION => VALUE ...]]: a server that runs, with zundo loaded and without autovacuum, unless
# CONF says otherwise; options are those of PostgreSQL::Test::Cluster::init.
sub zundo_node
{
	my ($name, $conf, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%options);
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'zundo'\nautovacuum = off\n");
	# a slow standby still finds the WAL that it needs, whatever checkpoints there are
	$node->append_conf('postgresql.conf', 'wal_keep_size = 1GB') if $options{allows_streaming};
	$node->append_conf('postgresql.conf', $conf // '');
	$node->start;
	$newest = $node;
	return $node;
}

# standby_of NODE [CONF]: a streaming standby of it that runs.
sub standby_of
{
	my ($primary, $conf) = @_;
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$primary->backup('base');
	$standby->init_from_backup($primary, 'base', has_streaming => 1);
	$standby->append_conf('postgresql.conf', $conf // '');
	$standby->start;
	return $standby;
}

# server_major: the major version of the server under test.
sub server_major
{
	my ($major) = `pg_config --version` =~ /(\d+)/;
	return $major;
}

# sql LINE...: what the newest node answers to the lines, which must not fail.
sub sql
{
	my @lines = @_;
	return $newest->safe_psql('postgres', join("\n", @lines));
}

# session NODE [OPTION => VALUE ...]: a session that continues after errors; the time limit holds for each query.
sub session
{
	my ($node, %options) = @_;
	my $session = $node->background_psql('postgres', on_error_stop => 0, %options);
	$session->set_query_timer_restart();
	return $session;
}

# ask SESSION STATEMENT...: what the session answers; its errors are in $complaint.
sub ask
{
	my ($session, @sql) = @_;
	my $answer = $session->query(join(";\n", @sql));
	$complaint = $session->{stderr};
	$session->{stderr} = '';
	return $answer;
}

# read_block FILE BLOCK, write_block FILE BLOCK BYTES: a block of a relation's file, while no server uses it.
sub read_block
{
	my ($path, $block) = @_;
	open(my $file, '<:raw', $path) or die "$path: $!";
	sysseek($file, $block * 8192, 0) or die $!;
	(sysread($file, my $bytes, 8192) // 0) == 8192 or die "$path, block $block: $!";
	close $file;
	return $bytes;
}

sub write_block
{
	my ($path, $block, $bytes) = @_;
	open(my $file, '+<:raw', $path) or die "$path: $!";
	sysseek($file, $block * 8192, 0) or die $!;
	syswrite($file, $bytes) == 8192 or die $!;
	close $file;
	return;
}

sub crc32c
{
	my ($bytes) = @_;
	my $crc = 0xFFFFFFFF;
	for my $byte (unpack('C*', $bytes))
	{
		$crc ^= $byte;
		$crc = $crc & 1 ? ($crc >> 1) ^ 0x82F63B78 : $crc >> 1 for 1 .. 8;
	}
	return $crc ^ 0xFFFFFFFF;
}

# write_twins FILE BLOCK BYTES: write a meta or map page of the undo log, both twins, with its own checksum made right.
# The server's data checksums must be off.
sub write_twins
{
	my ($path, $first, $page) = @_;
	my $lower = unpack('S<', substr($page, 12, 2));
	substr($page, 36, 4) = pack('L<', $first);
	substr($page, 40, 4) = pack('L<', crc32c(substr($page, 24, 16) . substr($page, 48, $lower - 48)));
	write_block($path, $first + $_, $page) for (0, 1);
	return;
}

# crash NODE: it dies as by a power failure, and recovers.
sub crash
{
	my ($node) = @_;
	$node->stop('immediate');
	$node->start;
	return;
}

# wait_for_death NODE: until its postmaster is gone (restart_after_crash is off). False: it is not.
sub wait_for_death
{
	my ($node) = @_;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		if (!-f $node->data_dir . '/postmaster.pid')
		{
			$node->{_pid} = undef;
			return 1;
		}
		select(undef, undef, undef, 0.1);
	}
	return 0;
}

# timed_out NODE SQL NAME: the statement meets a lock (lock_timeout is set).
sub timed_out
{
	my ($node, $sql, $name) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', $sql);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($err, qr/canceling statement due to lock timeout/, $name);
	return;
}

# passes NODE SQL NAME: the statement meets no lock; it is rolled back.
sub passes
{
	my ($node, $sql, $name) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "BEGIN; $sql; ROLLBACK", on_error_stop => 1);
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($err, '', $name);
	return;
}

# sound NODE WHEN TABLE...: zundo.check finds nothing in these.
sub sound
{
	my ($node, $when, @tables) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	for my $table (@tables)
	{
		is($node->safe_psql('postgres', "SELECT * FROM zundo.check('$table')"), '', "zundo.check of $table" . ($when eq '' ? '' : ", $when"));
	}
	return;
}

# no_crash NODE [MORE]: nothing in its log that should never be there, nor what MORE, a pattern, matches. (Processes that
# a test kills die of signal 9.)
sub no_crash
{
	my ($node, $more) = @_;
	my $bad = qr/PANIC:(?!.*fault)|TRAP:|inconsistent page|terminated by signal (?:4|6|7|8|11)\b/;
	$bad = qr/$bad|$more/ if defined $more;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	unlike(slurp_file($node->logfile), $bad,
		$node->name . ': no crash in the log, replayed pages are equal');
	return;
}

1;
