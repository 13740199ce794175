# What the tests in t/ share: a server with zundo, and what every one of them looks at in the end.
package ZundoTest;

use strict;
use warnings;
use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(zundo_node crash wait_for_death timed_out passes sound no_crash);

# zundo_node NAME [CONF [OPTION => VALUE ...]]: a server that runs, with zundo loaded and without autovacuum, unless
# CONF says otherwise; options are those of PostgreSQL::Test::Cluster::init.
sub zundo_node
{
	my ($name, $conf, %options) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%options);
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'zundo'\nautovacuum = off\n" . ($conf // ''));
	$node->start;
	return $node;
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

# passes NODE SQL NAME: it does not; nothing stays of it.
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
