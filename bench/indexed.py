"""Workloads whose updates change indexed columns: W2, W4, W5, W7.

Heap has btree indexes, zheap has zbtree where the access method allows it (no unique ones); W5s has btree on both.
"""

import os
import statistics

from workloads import open_snapshot, sizes_now, wal_position, without_images

FILLERS = 12
JOBS_PER_SECOND = 800


class Case:
    """What is measured: the table with its indexes, the load, and what happens beside it."""

    def __init__(self, setup, script, changed=None, clients=None, snapshot=False, seconds=20):
        self.setup = setup              # statements; {btree}: the index access method, {rows}, {fill}
        self.script = script            # of pgbench
        self.changed = changed          # the index whose key changes; growth is that of all others
        self.clients = clients
        self.snapshot = snapshot        # a transaction with a snapshot stays open for the whole time
        self.seconds = seconds


def one_of_many(fill):
    """W2: one of six indexes changes."""
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
            SELECT abalance FROM measured WHERE aid = :aid;""", "changed")


CASES = {
    "W2": one_of_many(100),
    "W2f": one_of_many(90),
    "W4": Case(
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
            END;""", snapshot=True),
    "W5": Case(
        """CREATE TABLE measured (c1 jsonb, c2 int, c3 int);
           INSERT INTO measured VALUES ('{{"prenom": "adam", "valeur": "1"}}', 1, 1), ('{{"prenom": "eve", "valeur": "1"}}', 2, 1);
           CREATE INDEX measured_pkey ON measured USING {btree} ((c1->>'prenom'));
           CREATE INDEX by_c2 ON measured USING {btree} (c2);""",
        r"""\set id random(1, 2)
            \set n random(1, 1000000)
            UPDATE measured SET c1 = jsonb_build_object('prenom', c1->>'prenom', 'valeur', CAST(:n AS int)) WHERE c2 = :id;""", clients=6),
}


def load_case(bench, engine, case, method):
    """Make the table; returns the number of rows that a script may choose from."""
    rows = bench.scale * 20000
    own = method if engine.has_undo else "btree"
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
    """Entries of the changed index for each row, after the load; a zbtree index only."""
    if session.value(f"SELECT amname FROM pg_class c JOIN pg_am a ON a.oid = relam WHERE c.oid = '{index}'::regclass") != "zbtree":
        return None
    entries = int(session.value(f"SELECT entries FROM zundo.index_entries('{index}')"))
    return entries / int(session.value("SELECT count(*) FROM measured"))


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
            "tps": result["tps"], "latency_ms": result["latency_ms"], "transactions": count,
            "cpu_us": (cpu_end - cpu) / count * 1e6 if cpu is not None and cpu_end is not None else None,
            "wal_per_transaction": wal / count, "table_growth": growth(begin, end, "table"),
            "others_growth": growth(begin, end, "others"), "changed_growth": growth(begin, end, "changed"),
            "loaded": begin["disk"], "disk": end["disk"],
        }
        if case.snapshot:
            figures["snapshot_kept"] = reader.query(sum_all) == seen
            reader.query("COMMIT")
        figures["wal_without_images"] = without_images(bench, engine, meter, options, 5)
        if case.changed and engine.has_undo:
            figures["entries_per_row"] = entries_per_row(meter, case.changed)
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


def queue(bench, engine):
    """W7: jobs come at a fixed rate and are claimed at once, beside a long query's snapshot."""
    seconds = bench.seconds or 60
    load_case(bench, engine, Case(QUEUE, ""), "zbtree")
    meter, analyst = bench.session(engine), bench.session(engine)
    open_snapshot(analyst, "SELECT count(*) FROM measured")
    bench.say(f"{JOBS_PER_SECOND} jobs a second for {seconds} s, beside an open snapshot")
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
    analyst.query("COMMIT")
    for session in (meter, analyst):
        session.close()
    bench.server.run_sql(engine.database, "DROP TABLE measured;\n")
    jobs = made["transactions"]
    return {
        "jobs": jobs, "backlog": backlog, "claim": statistics.median(claims), "claim_latency_ms": claimed["latency_ms"],
        "cpu_us": (cpu_end - cpu) / jobs * 1e6 if cpu is not None and cpu_end is not None else None,
        "wal_per_transaction": wal / jobs, "changed_size": end["changed"], "table_size": end["table"], "disk": end["disk"] - begin["disk"],
    }


WORKLOADS = {
    "W2": ("one of six indexes changes", run_case("W2", "zbtree"), 3),
    "W2f": ("one of six indexes changes, fillfactor 90", run_case("W2f", "zbtree"), 3),
    "W4": ("a changing included column, beside an open transaction", run_case("W4", "zbtree"), 3),
    "W5": ("an expression index whose value does not change", run_case("W5", "zbtree"), 3),
    "W5s": ("the same with btree on both sides", run_case("W5", "btree"), 3),
    "W7": ("a queue beside an open snapshot", queue, 1),
}
