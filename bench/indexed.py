"""Workloads whose updates change indexed columns: W2, W4, W5, W7, their variants, and K.

The heap tables have btree indexes. The zheap tables have zbtree indexes, except for
those of constraints. In the variants W2s, W4s and W5s all indexes are btree.
"""

import statistics
import threading

from server import BenchError, percentiles, speed
from workloads import await_true, open_snapshot, wal_position, without_images

FILLERS = 12
QUIET = 60.0                    # seconds that we wait until stale entries are deleted
ENOUGH = 1.02                   # entries per row at which the wait ends
JOBS_PER_SECOND = 800


class Case:
    """A workload: the table with its indexes, and the load."""

    def __init__(self, setup, script, changed=None, clients=None, snapshot=False, seconds=20, buffers=None, holds=None):
        self.setup = setup              # statements; {btree} is the index access method, {unique} UNIQUE or nothing
        self.script = script            # of pgbench
        self.changed = changed          # the index whose key changes; others_growth is about all others
        self.clients = clients
        self.snapshot = snapshot        # does a transaction with a snapshot stay open the whole time?
        self.seconds = seconds
        self.holds = holds              # a condition that the end of the load fulfils
        self.buffers = buffers          # shared_buffers in kB per unit of the scale; None: the server's setting


def one_of_many(fill, **how):
    """Returns the Case W2: one of six indexes changes. A unit of the scale is about 14 MB on heap."""
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


def keys(**how):
    """Returns the Case K: of two rows the unique keys are swapped, and that of a third is shifted to a free one.

    Each client locks a pair of rows in one order, and a row keeps the last three digits, so that none fails.
    """
    fillers = ", ".join(f"filler{n} text" for n in range(1, 5))
    return Case(
        f"""CREATE TABLE measured (aid int PRIMARY KEY, k bigint, {fillers});
            INSERT INTO measured SELECT g, g * 1000, {", ".join(["md5(random()::text)"] * 4)} FROM generate_series(1, {{rows}}) g;
            CREATE {{unique}}INDEX changed ON measured USING {{btree}} (k);"""
        + "".join(f"CREATE INDEX other{n} ON measured USING {{btree}} (filler{n});" for n in range(1, 5)),
        r"""\set one random(1, :rows / 2)
            \set two :rows / 2 + :one
            \set three random(1, :rows)
            BEGIN;
            SELECT k AS first FROM measured WHERE aid = :one FOR UPDATE \gset
            SELECT k AS second FROM measured WHERE aid = :two FOR UPDATE \gset
            UPDATE measured SET k = -k WHERE aid = :one;
            UPDATE measured SET k = :first WHERE aid = :two;
            UPDATE measured SET k = :second WHERE aid = :one;
            COMMIT;
            UPDATE measured SET k = k / 1000 * 1000 + (k + 7) % 1000 WHERE aid = :three;""",
        "changed", holds="SELECT count(*) = count(DISTINCT k) AND min(k) > 0 FROM measured", **how)


def included(**how):
    """Returns the Case W4: an index includes the changed column.

    A unit of the scale is 2.6 MB of table and 1.3 MB of indexes on heap.
    """
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
    "W2Lf": one_of_many(90, seconds=180, buffers=3600),
    "K": keys(),
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
    """Returns the access method of the engine's indexes: method, but btree for heap."""
    return method if engine.has_undo else "btree"


def load_case(bench, engine, case, method):
    """Creates the table; returns the number of rows from which the script chooses."""
    rows = bench.scale * 20000
    own = own_method(engine, method)
    unique = bench.server.run_sql(engine.database,
                                  f"SELECT pg_indexam_has_property(oid, 'can_unique') FROM pg_am WHERE amname = '{own}'").strip() == "t"
    bench.say(f"loading, indexes by {own}")
    bench.server.run_sql(engine.database, "DROP TABLE IF EXISTS measured;\n"
                         + case.setup.format(btree=own, rows=rows, unique="UNIQUE " if unique else "")
                         + "\nVACUUM ANALYZE measured;\nCHECKPOINT;\n")
    return rows


def sizes(session, engine, changed):
    """Returns the bytes of the table, of the index that changes, of the others, of the undo log's file, and their sum."""
    row = session.query("SELECT pg_table_size('measured'), coalesce(sum(pg_relation_size(indexrelid)) FILTER (WHERE c.relname = "
                        f"'{changed}'), 0), coalesce(sum(pg_relation_size(indexrelid)) FILTER (WHERE c.relname <> '{changed}'), 0) "
                        "FROM pg_index i JOIN pg_class c ON c.oid = indexrelid WHERE indrelid = 'measured'::regclass")[0]
    found = dict(zip(("table", "changed", "others"), (int(x) for x in row)))
    found["undo_file"] = int(session.value("SELECT pg_relation_size('zundo.undo_log')")) if engine.has_undo else 0
    found["disk"] = sum(found.values())
    return found


def growth(begin, end, key):
    """Returns by which share a size has grown, or None."""
    return end[key] / begin[key] - 1 if begin[key] else None


def script_file(bench, name, text):
    """Writes a script for pgbench; returns its path."""
    path = bench.scratch(name + ".sql")
    with open(path, "w", encoding="utf-8") as out:
        out.write("\n".join(line.strip() for line in text.splitlines()) + "\n")
    return path


def entries_per_row(session, index):
    """Returns the number of the index's entries per row; None if it is not a zbtree index."""
    if session.value(f"SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = '{index}'::regclass") != "zbtree":
        return None
    entries = int(session.value(f"SELECT entries FROM zundo.index_entries('{index}')"))
    return entries / int(session.value("SELECT count(*) FROM measured"))


def entries_after_quiet(session, index):
    """Waits up to QUIET seconds, without load and VACUUM, for stale entries to be deleted; returns entries per row."""
    session.query("ALTER TABLE measured SET (autovacuum_enabled = off)")
    await_true(lambda: entries_per_row(session, index) <= ENOUGH, QUIET, 2.0)
    return entries_per_row(session, index)


def run_case(name, method):
    """Returns the function that measures one case on one engine."""
    case = CASES[name]

    def measure(bench, engine):
        """Loads the case into the engine, runs its clients and returns the figures."""
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
        if case.holds:
            figures["keys_distinct"] = meter.value(case.holds) == "t"
        if case.snapshot:
            figures["snapshot_kept"] = reader.query(sum_all) == seen
            reader.query("COMMIT")
        if not case.buffers:
            figures["wal_without_images"] = without_images(bench, engine, meter, options, 5)
        if case.changed and not case.buffers and engine.has_undo and own_method(engine, method) == "zbtree":
            figures["entries_per_row"] = entries_per_row(meter, case.changed)
            bench.say("waiting until stale index entries are deleted")
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


class OverlappingQueries:
    """Sessions that run one long query after the other, at different times, so that some snapshot is always old."""

    SESSIONS = 3

    def __init__(self, bench, engine, length):
        self.length, self.ended, self.error = length, threading.Event(), None
        self.sessions = [bench.session(engine) for _ in range(self.SESSIONS)]
        self.threads = [threading.Thread(target=self._run, args=(number, session), daemon=True)
                        for number, session in enumerate(self.sessions)]
        for thread in self.threads:
            thread.start()

    def _run(self, number, session):
        """Runs one long query after the other until it is stopped."""
        try:
            self.ended.wait(number * self.length / self.SESSIONS)
            while not self.ended.is_set():
                session.query(f"WITH c AS MATERIALIZED (SELECT count(*) FROM measured) SELECT c, pg_sleep({self.length}) FROM c")
        except BenchError as error:
            self.error = None if self.ended.is_set() else error

    def finish(self):
        """Kills the sessions; raises the BenchError that ended one of them early, if any."""
        self.ended.set()
        for session in self.sessions:
            session.kill()
        for thread in self.threads:
            thread.join(10)
        if self.error:
            raise self.error


def queue_beside_queries(bench, engine):
    """Runs W7: jobs beside three overlapping queries, which take 120 s in a run of 900 s."""
    length = max(1, (bench.seconds or 60) * 120 / 900)
    return queue(bench, engine, f"three queries of {length:.0f} s", lambda: OverlappingQueries(bench, engine, length))


def queue_beside_snapshot(bench, engine):
    """Runs W7o: jobs beside one snapshot that stays open."""
    return queue(bench, engine, "an open snapshot", lambda: OpenSnapshot(bench, engine))


class OpenSnapshot:
    """A transaction that keeps its snapshot."""

    def __init__(self, bench, engine):
        self.session = bench.session(engine)
        open_snapshot(self.session, "SELECT count(*) FROM measured")

    def finish(self):
        """Ends the transaction and the session."""
        self.session.query("COMMIT")
        self.session.close()


def queue(bench, engine, beside, begin_readers):
    """Runs a load in which jobs are inserted at a fixed rate and claimed at once; returns its figures.

    begin_readers returns an object that holds snapshots until its finish() is called; beside describes it.
    """
    seconds = bench.seconds or 60
    load_case(bench, engine, Case(QUEUE, ""), "zbtree")
    meter, readers = bench.session(engine), begin_readers()
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
    readers.finish()
    meter.close()
    bench.server.run_sql(engine.database, "DROP TABLE measured;\n")
    jobs = made["transactions"]
    return {
        "jobs": jobs, "backlog": backlog, "claim": statistics.median(claims), "claim_latency_ms": claimed["latency_ms"],
        **percentiles(claimed["sample"], "claim_"),
        "cpu_us": (cpu_end - cpu) / jobs * 1e6 if cpu is not None and cpu_end is not None else None,
        "wal_per_transaction": wal / jobs, "changed_size": end["changed"], "table_size": end["table"], "disk": end["disk"] - begin["disk"],
    }


# id: title, function, number of rounds
WORKLOADS = {
    "W2": ("one of six indexes changes", run_case("W2", "zbtree"), 3),
    "W2f": ("one of six indexes changes, fillfactor 90", run_case("W2f", "zbtree"), 3),
    "W2s": ("one of six indexes changes, btree on both sides: rows move", run_case("W2", "btree"), 3),
    "W2L": ("one of six indexes changes, data of 4 times shared_buffers", run_case("W2L", "zbtree"), 3),
    "W2Lf": ("one of six indexes changes, data of 4 times shared_buffers, fillfactor 90", run_case("W2Lf", "zbtree"), 3),
    "K": ("unique keys are swapped and shifted", run_case("K", "zbtree"), 3),
    "W4": ("a changing included column, beside an open transaction", run_case("W4", "zbtree"), 3),
    "W4s": ("a changing included column, btree on both sides: rows move", run_case("W4", "btree"), 3),
    "W4L": ("a changing included column, indexes larger than shared_buffers", run_case("W4L", "zbtree"), 3),
    "W5": ("an expression index whose value does not change", run_case("W5", "zbtree"), 3),
    "W5s": ("the same with btree on both sides", run_case("W5", "btree"), 3),
    "W7": ("a queue beside three overlapping queries", queue_beside_queries, 1),
    "W7o": ("a queue beside an open snapshot", queue_beside_snapshot, 1),
}


def settings(workload, scale):
    """Returns the settings of the server that a workload needs, {} if none."""
    case = CASES.get(workload)
    if case is None or case.buffers is None:
        return {}
    return {"shared_buffers": f"{max(128, case.buffers * scale)}kB", "checkpoint_timeout": "60s"}
