# Triggers on a subscriber's table fire in the apply worker, which has no
# executor level: OLD and NEW are the versions of each change, at once and at
# the end, on zheap as on heap. A trigger function that changes the row that the
# worker has found makes the worker fail, as on heap.
# Rules: ANY-4, DML-15.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $publisher = PostgreSQL::Test::Cluster->new('publisher');
$publisher->init(allows_streaming => 'logical');
$publisher->start;
$publisher->safe_psql('postgres', q{
	CREATE TABLE h (id int PRIMARY KEY, n int, x text);
	CREATE TABLE z (id int PRIMARY KEY, n int, x text);
	CREATE TABLE hn (LIKE h INCLUDING ALL);
	CREATE TABLE zn (LIKE h INCLUDING ALL);
	CREATE TABLE hb (LIKE h INCLUDING ALL);
	CREATE TABLE zb (LIKE h INCLUDING ALL);
	CREATE PUBLICATION p FOR TABLE h, z, hn, zn, hb, zb;
});
my $subscriber = zundo_node('subscriber', "autovacuum = on\nwal_retrieve_retry_interval = 100ms\n");
$subscriber->safe_psql('postgres', q{
	CREATE EXTENSION zundo;
	CREATE TABLE h (id int PRIMARY KEY, n int, x text) USING heap;
	CREATE TABLE z (id int PRIMARY KEY, n int, x text) USING zheap;
	CREATE TABLE hn (LIKE h INCLUDING ALL) USING heap;
	CREATE TABLE zn (LIKE h INCLUDING ALL) USING zheap;
	CREATE TABLE hb (LIKE h INCLUDING ALL) USING heap;
	CREATE TABLE zb (LIKE h INCLUDING ALL) USING zheap;
	CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF pg_trigger_depth() = 1 THEN
			EXECUTE format('UPDATE public.%I SET x = $1 WHERE id = $2', TG_TABLE_NAME) USING 'by the trigger', OLD.id;
		END IF;
		RETURN coalesce(NEW, OLD);
	END $$;
	CREATE TRIGGER own BEFORE UPDATE OR DELETE ON hb FOR EACH ROW EXECUTE FUNCTION own();
	CREATE TRIGGER own BEFORE UPDATE OR DELETE ON zb FOR EACH ROW EXECUTE FUNCTION own();
	CREATE TABLE counted (n int) USING zheap;
	INSERT INTO counted VALUES (0);
	CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM OLD.n; RETURN NULL; END$$;
	CREATE TRIGGER look AFTER UPDATE ON counted FOR EACH ROW EXECUTE FUNCTION look();
	ALTER TABLE counted ENABLE ALWAYS TRIGGER look;
	CREATE TABLE noted (at bigserial, tab name, what text, old text, new text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		UPDATE public.counted SET n = n + 1;
		INSERT INTO public.noted (tab, what, old, new) VALUES (TG_TABLE_NAME, TG_NAME || ' ' || TG_OP, OLD::text, NEW::text);
		RETURN NULL;
	END $$;
});
# a statement that a trigger runs must not remove the handles that the next trigger of the
# same change needs
for my $table ('h', 'z', 'hn', 'zn')
{
	my ($constraint, $deferred) = $table =~ /n/ ? ('', '') : ('CONSTRAINT', 'DEFERRABLE INITIALLY DEFERRED');
	$subscriber->safe_psql('postgres', qq{
		CREATE TRIGGER now AFTER INSERT OR UPDATE OR DELETE ON $table FOR EACH ROW EXECUTE FUNCTION note();
		CREATE $constraint TRIGGER later AFTER INSERT OR UPDATE OR DELETE ON $table $deferred
			FOR EACH ROW EXECUTE FUNCTION note();
		ALTER TABLE $table ENABLE ALWAYS TRIGGER now;
		ALTER TABLE $table ENABLE ALWAYS TRIGGER later;
	});
}
my $conninfo = $publisher->connstr . ' dbname=postgres';
$subscriber->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION '$conninfo' PUBLICATION p");
$subscriber->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_subscription_rel WHERE srsubstate NOT IN ('r', 's')})
  or die 'the tables are not copied';

for my $table ('h', 'z', 'hn', 'zn')
{
	for my $transaction (
		"INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b'); UPDATE t SET n = 11 WHERE id = 1; UPDATE t SET n = 12 WHERE id = 1;
		 SAVEPOINT s; UPDATE t SET n = 13 WHERE id = 1; ROLLBACK TO s;
		 UPDATE t SET id = 10 WHERE id = 1; UPDATE t SET n = 14 WHERE id = 10; DELETE FROM t WHERE id = 2",
		"UPDATE t SET n = 15 WHERE id = 10",
		"UPDATE t SET n = 16; UPDATE t SET n = 17, x = repeat('x', 500); UPDATE t SET x = 'y'; DELETE FROM t",
		"INSERT INTO t VALUES (3, 3, 'c'); UPDATE t SET n = 4; UPDATE t SET n = 5")
	{
		(my $sql = $transaction) =~ s/\bt\b/$table/g;
		$publisher->safe_psql('postgres', "BEGIN; $sql; COMMIT;");
	}
}
$publisher->wait_for_catchup('s');
my $noted = q{SELECT what, old, new FROM noted WHERE tab = '%s' ORDER BY at};
for my $n ('', 'n')
{
	my $heap = $subscriber->safe_psql('postgres', sprintf($noted, "h$n"));
	my @events = split /\n/, $heap;
	cmp_ok(scalar(@events), '>', 25, "events on heap: h$n");
	is($subscriber->safe_psql('postgres', sprintf($noted, "z$n")), $heap, 'the same events on zheap');
	is($subscriber->safe_psql('postgres', "TABLE z$n"), $subscriber->safe_psql('postgres', "TABLE h$n"), 'the same rows');
	is($subscriber->safe_psql('postgres', qq{SELECT * FROM zundo.check('z$n')}), '', 'zundo.check');
}
# The trigger function changes the row after the worker has found it: nothing may be lost
# without a word.
for my $table ('hb', 'zb')
{
	$publisher->safe_psql('postgres', "INSERT INTO $table VALUES (1, 1, 'a'), (2, 2, 'b')");
	for my $change ("UPDATE $table SET n = 11 WHERE id = 1", "DELETE FROM $table WHERE id = 2")
	{
		my $seen = -s $subscriber->logfile;
		$subscriber->safe_psql('postgres', "ALTER TABLE $table ENABLE ALWAYS TRIGGER own");
		$publisher->safe_psql('postgres', $change);
		ok($subscriber->wait_for_log(qr/ERROR: .*(?:attempted to (?:update|delete) invisible tuple|tuple already updated by self)/, $seen), "an error: $change");
		$subscriber->safe_psql('postgres', "ALTER TABLE $table DISABLE TRIGGER own");
		$publisher->wait_for_catchup('s');
	}
	is($subscriber->safe_psql('postgres', "TABLE $table"), '1|11|a', "$table: applied without the trigger");
}
$subscriber->stop;
$publisher->stop;
done_testing();
