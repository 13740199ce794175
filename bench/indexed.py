"""Workloads whose updates change indexed columns: W2, W4, W5, W7 and their variants.

The heap tables have btree indexes. The zheap tables have zbtree indexes, except for unique ones, which zbtree does not
support; in the variants W2s, W4s and W5s all indexes are btree.
"""

import os
import statistics
import threading

from server import BenchError, percentiles, speed
from workloads import await_true, open_snapshot, wal_position, without_images

FILLERS = 12
QUIET = 60.0                    # seconds in which entries that nobody needs should go
ENOUGH = 1.02                   # entries per row
JOBS_PER_SECOND = 800


class Case:
    """What is measured: the table with its indexes, the load, and what happens beside it."""

    def __init__(self, setup, script, changed=None, clients=None, snapshot=False, seconds=20, buffers=None):
        self.setup = setup              # statements; {btree}: the index access method, {rows}, {fill}
        self.script = script            # of pgbench
        self.changed = changed          # the index whose key changes; growth is that of all others
        self.clients = clients
        self.snapshot = snapshot        # a transaction with a snapshot stays open for the whole time
        self.seconds = seconds
        self.buffers = buffers          # kB of shared_buffers for each unit of the scale; None: as the server has


def one_of_many(fill, **how):
    """W2: one of six indexes changes. A unit of the scale makes about 14 MB on heap."""
    fillers = ", ".join(f"filler{n} text" for n in range(1, FILLERS + 1))
    values = ", ".join(["md5(random()::text)"] * FILLERS)
    return Case(
        f"""CREATE TABLE measured (aid int PRIMARY KEY, bid int, abalance int, {fillers}) WITH (fillfactor = {fill});
            INSERT INTO measured SELECT g, 1, 0, {values} FROM generate_series(1, {{rows}}) g;
            CREATE INDEX changed ON measured USING {{btree}} (abalance);"""
        + "".join(f"CREATE INDEX other{n} ON measured USING {{btree}} (filler{n});" for n in range(1, 5)),
        r"""\set aid random(1, :rows)
            \set delta random(-5000, 5000)
            UPDATE measured SET abalance = abalance + :delta WHERE aid = :aid;
            SELECT abalance FROM measured WHERE aid = :aid;""", "changed", **how)


def included(**how):
    """W4: a column that an index includes. A unit of the scale makes 1.3 MB of indexes on heap, and 2.6 MB of table."""
    return Case(
        """CREATE TABLE measured (aid int NOT NULL, bid int, abalance int, filler char(84));
           INSERT INTO measured SELECT g, 1, 0, '' FROM generate_series(1, {rows}) g;
           CREATE {unique}INDEX measured_pkey ON measured USING {btree} (aid) INCLUDE (abalance);
           CREATE INDEX second ON measured (aid);
           CREATE INDEX third ON measured (aid);""",
        r"""\set one random_gaussian(1, :rows, 2.0)
            \set two random_gaussian(1, :rows, 2.5)
            \set three random_gaussian(1, :rows, 2.2)
            \set delta random(-5000, 5000)
            BEGIN;
            UPDATE measured SET abalance = abalance + :delta WHERE aid = :one;
            SELECT abalance FROM measured WHERE aid = :two;
            SELECT abalance FROM measured WHERE aid = :three;
            END;""", snapshot=True, **how)


CASES = {
    "W2": one_of_many(100),
    "W2f": one_of_many(90),
    "W2L": one_of_many(100, seconds=180, buffers=3600),
    "W4": included(),
    "W4L": included(seconds=180, buffers=820),
    "W5": Case(
        """CREATE TABLE measured (c1 jsonb, c2 int, c3 int);
           INSERT INTO measured VALUES ('{{"prenom": "adam", "valeur": "1"}}', 1, 1), ('{{"prenom": "eve", "valeur": "1"}}', 2, 1);
           CREATE INDEX measured_pkey ON measured USING {btree} ((c1->>'prenom'));
           CREATE INDEX by_c2 ON measured USING {btree} (c2);""",
        r"""\set id random(1, 2)
            \set n random(1, 1000000)
            UPDATE measured SET c1 = jsonb_build_object('prenom', c1->>'prenom', 'valeur', CAST(:n AS int)) WHERE c2 = :id;""", clients=6),
}


def own_method(engine, method):
    """The access method of the engine's indexes: zbtree needs zheap."""
    return method if engine.has_undo else "btree"


def load_case(bench, engine, case, method):
    """Make the table; returns the number of rows that a script may choose from."""
    rows = bench.scale * 20000
    own = own_method(engine, method)
    bench.say(f"loading, indexes by {own}")
    bench.server.run_sql(engine.database, "DROP TABLE IF EXISTS measured;\n"
                         + case.setup.format(btree=own, rows=rows, unique="UNIQUE " if own == "btree" else "")
                         + "\nVACUUM ANALYZE measured;\nCHECKPOINT;\n")
    return rows


def sizes(session, engine, changed):
    """Bytes of the table, of the index that changes and of the others, and of all on disk with the undo file."""
    row = session.query("SELECT pg_table_size('measured'), coalesce(sum(pg_relation_size(indexrelid)) FILTER (WHERE c.relname = "
                        f"'{changed}'), 0), coalesce(sum(pg_relation_size(indexrelid)) FILTER (WHERE c.relname <> '{changed}'), 0) "
                        "FROM pg_index i JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = 'measured'::regclass")[0]
    found = dict(zip(("table", "changed", "others"), (int(x) for x in row)))
    found["undo_file"] = int(session.value("SELECT pg_relation_size('zundo.undo_log')")) if engine.has_undo else 0
    found["disk"] = sum(found.values())
    return found


def growth(begin, end, key):
    return end[key] / begin[key] - 1 if begin[key] else None


def script_file(bench, name, text):
    path = bench.scratch(name + ".sql")
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join(line.strip() for line in text.splitlines()) + "\n")
    return path


def entries_per_row(session, index):
    """Entries of the changed index for each row; None if it is not a zbtree index."""
    if session.value(f"SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = '{index}'::regclass") != "zbtree":
        return None
    entries = int(session.value(f"SELECT entries FROM zundo.index_entries('{index}')"))
    return entries / int(session.value("SELECT count(*) FROM measured"))


def entries_after_quiet(session, index):
    """The same after QUIET seconds without load and VACUUM, or as soon as there are few."""
    session.query("ALTER TABLE measured SET (autovacuum_enabled = off)")
    await_true(lambda: entries_per_row(session, index) <= ENOUGH, QUIET, 2.0)
    return entries_per_row(session, index)


def run_case(name, method):
    """The function that measures one case on one engine."""
    case = CASES[name]

    def measure(bench, engine):
        seconds = bench.seconds or case.seconds
        rows = load_case(bench, engine, case, method)
        meter, reader = bench.session(engine), bench.session(engine)
        clients = case.clients or bench.clients
        options = ["-D", f"rows={rows}", "-f", script_file(bench, name, case.script)]
        begin = sizes(meter, engine, case.changed or "-")
        if case.snapshot:
            sum_all = "SELECT sum(abalance::bigint), count(*) FROM measured"
            seen = open_snapshot(reader, sum_all)
        bench.say(f"{clients} clients for {seconds} s" + (", beside an open transaction" if case.snapshot else ""))
        wal, cpu = wal_position(meter), bench.server.cpu_seconds()
        result = bench.load(engine, options, seconds, clients).finish()
        wal, cpu_end = wal_position(meter) - wal, bench.server.cpu_seconds()
        end = sizes(meter, engine, case.changed or "-")
        count = result["transactions"]
        figures = {
            **speed(result),
            "cpu_us": (cpu_end - cpu) / count * 1e6 if cpu is not None and cpu_end is not None else None,
            "wal_per_transaction": wal / count, "table_growth": growth(begin, end, "table"),
            "others_growth": growth(begin, end, "others"), "changed_growth": growth(begin, end, "changed"),
            "loaded": begin["disk"], "disk": end["disk"],
        }
        if case.snapshot:
            figures["snapshot_kept"] = reader.query(sum_all) == seen
            reader.query("COMMIT")
        if not case.buffers:
            figures["wal_without_images"] = without_images(bench, engine, meter, options, 5)
        if case.changed and not case.buffers and engine.has_undo and own_method(engine, method) == "zbtree":
            figures["entries_per_row"] = entries_per_row(meter, case.changed)
            bench.say("waiting for entries that nobody needs to go")
            figures["entries_quiet"] = entries_after_quiet(meter, case.changed)
        reader.close()
        meter.close()
        bench.server.run_sql(engine.database, "DROP TABLE measured;\n")
        return figures

    return measure


QUEUE = """CREATE TABLE measured (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, status int NOT NULL, payload text);
    CREATE INDEX changed ON measured USING {btree} (status, id);"""
PRODUCE = "INSERT INTO measured (status, payload) VALUES (0, repeat('p', 100));"
CLAIM = ("UPDATE measured SET status = 1 WHERE id = (SELECT id FROM measured WHERE status = 0 ORDER BY status, id LIMIT 1 "
         "FOR UPDATE SKIP LOCKED)")


class Analysts:
    """Queries that always overlap: when one ends, its session begins the next one. Each keeps its snapshot all the time."""

    SESSIONS = 3

    def __init__(self, bench, engine, length):
        self.length, self.ended, self.error = length, threading.Event(), None
        self.sessions = [bench.session(engine) for _ in range(self.SESSIONS)]
        self.threads = [threading.Thread(target=self._ask, args=(number, session), daemon=True)
                        for number, session in enumerate(self.sessions)]
        for thread in self.threads:
            thread.start()

    def _ask(self, number, session):
        try:
            self.ended.wait(number * self.length / self.SESSIONS)
            while not self.ended.is_set():
                session.query(f"WITH c AS MATERIALIZED (SELECT count(*) FROM measured) SELECT c, pg_sleep({self.length}) FROM c")
        except BenchError as error:
            self.error = None if self.ended.is_set() else error

    def finish(self):
        """End them at once."""
        self.ended.set()
        for session in self.sessions:
            session.kill()
        for thread in self.threads:
            thread.join(10)
        if self.error:
            raise self.error


def queue_beside_queries(bench, engine):
    """W7: three overlapping queries, each 120 s of a run of 900 s."""
    length = max(1, (bench.seconds or 60) * 120 / 900)
    return queue(bench, engine, f"three queries of {length:.0f} s", lambda: Analysts(bench, engine, length))


def queue_beside_snapshot(bench, engine):
    """W7o: one snapshot that stays."""
    return queue(bench, engine, "an open snapshot", lambda: OpenSnapshot(bench, engine))


class OpenSnapshot:
    """A transaction that keeps its snapshot."""

    def __init__(self, bench, engine):
        self.session = bench.session(engine)
        open_snapshot(self.session, "SELECT count(*) FROM measured")

    def finish(self):
        self.session.query("COMMIT")
        self.session.close()


def queue(bench, engine, beside, begin_analysts):
    """Jobs come at a fixed rate and are claimed at once."""
    seconds = bench.seconds or 60
    load_case(bench, engine, Case(QUEUE, ""), "zbtree")
    meter, analysts = bench.session(engine), begin_analysts()
    bench.say(f"{JOBS_PER_SECOND} jobs a second for {seconds} s, beside {beside}")
    begin, cpu, wal = sizes(meter, engine, "changed"), bench.server.cpu_seconds(), wal_position(meter)
    producer = bench.load(engine, ["-R", str(JOBS_PER_SECOND), "-f", script_file(bench, "produce", PRODUCE)], seconds, 2)
    worker = bench.load(engine, ["-R", str(JOBS_PER_SECOND + JOBS_PER_SECOND // 4), "-f", script_file(bench, "claim", CLAIM + ";")], seconds, 4)
    made, claimed = producer.finish(), worker.finish()
    cpu_end, wal = bench.server.cpu_seconds(), wal_position(meter) - wal
    backlog = int(meter.value("SELECT count(*) FROM measured WHERE status = 0"))
    meter.query("INSERT INTO measured (status, payload) SELECT 0, 'x' FROM generate_series(1, 40)")
    meter.query("SET enable_seqscan = off")
    claims = [meter.timed(CLAIM)[0] for _ in range(20)]
    end = sizes(meter, engine, "changed")
    analysts.finish()
    meter.close()
    bench.server.run_sql(engine.database, "DROP TABLE measured;\n")
    jobs = made["transactions"]
    return {
        "jobs": jobs, "backlog": backlog, "claim": statistics.median(claims), "claim_latency_ms": claimed["latency_ms"],
        **percentiles(claimed["sample"], "claim_"),
        "cpu_us": (cpu_end - cpu) / jobs * 1e6 if cpu is not None and cpu_end is not None else None,
        "wal_per_transaction": wal / jobs, "changed_size": end["changed"], "table_size": end["table"], "disk": end["disk"] - begin["disk"],
    }


WORKLOADS = {
    "W2": ("one of six indexes changes", run_case("W2", "zbtree"), 3),
    "W2f": ("one of six indexes changes, fillfactor 90", run_case("W2f", "zbtree"), 3),
    "W2s": ("one of six indexes changes, btree on both sides: rows move", run_case("W2", "btree"), 3),
    "W2L": ("one of six indexes changes, data of 4 times shared_buffers", run_case("W2L", "zbtree"), 3),
    "W4": ("a changing included column, beside an open transaction", run_case("W4", "zbtree"), 3),
    "W4s": ("a changing included column, btree on both sides: rows move", run_case("W4", "btree"), 3),
    "W4L": ("a changing included column, indexes larger than shared_buffers", run_case("W4L", "zbtree"), 3),
    "W5": ("an expression index whose value does not change", run_case("W5", "zbtree"), 3),
    "W5s": ("the same with btree on both sides", run_case("W5", "btree"), 3),
    "W7": ("a queue beside three overlapping queries", queue_beside_queries, 1),
    "W7o": ("a queue beside an open snapshot", queue_beside_snapshot, 1),
}


def settings(workload, scale):
    """The settings of the server that a workload needs, if it needs any."""
    case = CASES.get(workload)
    if case is None or case.buffers is None:
        return {}
    return {"shared_buffers": f"{max(128, case.buffers * scale)}kB", "checkpoint_timeout": "60s"}
