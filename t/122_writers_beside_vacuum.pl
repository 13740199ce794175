# Writers of a few rows beside VACUUM, VACUUM FULL, CLUSTER and checkpoints: the pages are
# flagged all-visible and changed again all the time (VMAP-2). Each update adds 1 to a row
# that it expects to be as it has read it; in the end no update is lost.
use strict;
use warnings;
use PostgreSQL::Test::Utils;
use Test::More;
use ZundoTest;

my $node = zundo_node('writers');
sql(q{
CREATE EXTENSION zundo;
CREATE TABLE counted (id int PRIMARY KEY, n bigint, note text) USING zheap;
INSERT INTO counted SELECT g, 0, '' FROM generate_series(1, 12) g;
CREATE TABLE enough (yes bool);
CREATE TABLE won (updates bigint);
CREATE PROCEDURE work() LANGUAGE plpgsql AS $$
DECLARE
	i int;
	old bigint;
	wins bigint := 0;
	hits bigint;
	kind float;
	text_now text;
BEGIN
	LOOP
		EXIT WHEN EXISTS (SELECT FROM enough);
		i := 1 + random() * 11;
		kind := random();
		text_now := CASE WHEN kind < 0.9 THEN repeat('x', (random() * 60)::int)
			ELSE (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 180)) END;
		SELECT n INTO old FROM counted WHERE id = i;
		IF random() < 0.7 THEN COMMIT; END IF;
		UPDATE counted SET n = old + 1, note = text_now WHERE id = i AND n = old;
		GET DIAGNOSTICS hits = ROW_COUNT;
		IF hits = 1 AND kind > 0.8 THEN
			UPDATE counted SET n = old + 2, note = left(text_now, 10) WHERE id = i AND n = old + 1;
			hits := 2;
		END IF;
		IF hits = 2 AND kind > 0.95 THEN
			BEGIN
				UPDATE counted SET n = -1, note = text_now WHERE id = i;
				RAISE EXCEPTION 'undo this';
			EXCEPTION WHEN raise_exception THEN NULL;
			END;
		END IF;
		IF random() < 0.1 THEN ROLLBACK; ELSE wins := wins + hits; COMMIT; END IF;
	END LOOP;
	INSERT INTO won VALUES (wins);
END $$});
my @writers = map { session($node) } 1 .. 4;
$_->query_until(qr/started/, "\\echo started\nCALL work();\n\\echo ended\n") for @writers;
for my $round (1 .. 25)
{
	my @kinds = ('VACUUM counted', 'VACUUM counted', 'VACUUM counted', 'VACUUM FULL counted', 'CLUSTER counted USING counted_pkey', 'ANALYZE counted', 'CHECKPOINT');
	sql($kinds[ rand @kinds ]);
	is(sql(q{SELECT * FROM zundo.check('counted')}), '', "round $round: zundo.check");
	select(undef, undef, undef, 0.1);
}
sql('INSERT INTO enough VALUES (true)');
$_->query_until(qr/ended/, '') for @writers;
$_->quit for @writers;
is(sql('SELECT count(*), (SELECT sum(n) FROM counted) = sum(updates) FROM won'), '4|t', 'no update is lost');
cmp_ok(sql('SELECT sum(updates) FROM won'), '>', 20, 'the writers have written');
sound($node, 'at the end', 'counted');
no_crash($node);
$node->stop;
done_testing();
