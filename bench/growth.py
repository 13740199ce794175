"""Workloads W0, D and DQ: a fixed number of transactions beside an open one.

W0 updates small rows, D documents, and DQ is a queue. What is left behind depends on
the number of transactions only, not on how fast the machine is. Both sides run the
same statements: pgbench's random numbers are seeded.
"""

import os

from server import MB, percentiles
from workloads import UNDO_PATIENCE, await_true, open_snapshot, plain_wal

ROWS, UPDATES = 20000, 100000
DOCUMENTS, CHANGES = 2000, 6000
JOBS, TURNS = 1000, 2000        # jobs that wait at first; transactions that add ten and take ten
STEPS = 10                      # the sizes are read after each of them
FOLDER = os.path.dirname(os.path.abspath(__file__))
LIMIT = 75.0                    # seconds within which the rounds of W0 shall end, unless --rounds is given


def sizes_now(session, engine, table):
    """Returns the bytes of a table with its TOAST table, of its indexes, of undo in use, of the undo log's file, and
    of the table alone, its TOAST table and the index of that."""
    undo = "zundo.undo_bytes_in_use(), pg_relation_size('zundo.undo_log')" if engine.has_undo else "0, 0"
    row = session.query(f"SELECT pg_table_size(oid), pg_indexes_size(oid), {undo}, pg_relation_size(oid),"
                        " coalesce(pg_relation_size(nullif(reltoastrelid, 0)), 0),"
                        f" coalesce(pg_indexes_size(nullif(reltoastrelid, 0)), 0) FROM pg_class WHERE oid = {table}")[0]
    return dict(zip(("table", "index", "undo", "undo_file", "alone", "toast", "toast_index"), (int(x) for x in row)))


def script(name):
    """Returns the path of a script for pgbench."""
    return os.path.join(FOLDER, name + ".sql")


def times(samples, loaded, key):
    """Returns how many times its size after loading something was at its largest; None if it was empty."""
    return max(sample[key] for sample in samples) / loaded[key] if loaded[key] else None


def beside_transaction(bench, engine, table, scan, options, transactions):
    """Runs a number of transactions of pgbench beside an open transaction, then ends it and vacuums the table.

    table: an SQL expression of type regclass; scan: a query whose result the open transaction must always see.
    Returns the figures.
    """
    reader, meter = bench.session(engine), bench.session(engine)
    name = meter.value(f"SELECT {table}")
    scan_before = min(meter.timed(scan)[0] for _ in range(3))
    loaded = sizes_now(meter, engine, table)
    seen = open_snapshot(reader, scan)
    samples = [dict(loaded, updates=0)]
    start, cpu = meter.value("SELECT pg_current_wal_insert_lsn()"), bench.server.cpu_seconds()
    each = max(1, transactions // STEPS // bench.clients)
    done, busy, waited, latencies = 0, 0.0, 0.0, []
    for step in range(1, STEPS + 1):
        result = bench.load(engine, options + ["-t", str(each), f"--random-seed={step}"], None).finish()
        done += result["transactions"]
        busy += result["transactions"] / result["tps"]
        waited += result["latency_ms"] * result["transactions"]
        latencies += result["sample"]
        samples.append(dict(sizes_now(meter, engine, table), updates=done))
        if step in (STEPS // 2, STEPS):
            bench.say(f"{done:,} of {transactions:,} transactions, table {times(samples, loaded, 'table'):.2f} times its size")
    cpu_end = bench.server.cpu_seconds()
    wal, without = plain_wal(bench, meter, start)
    scan_old, seen_again = reader.timed(scan)
    reader.query("COMMIT")
    undo_back = None
    if engine.has_undo:
        undo_back = await_true(lambda: sizes_now(meter, engine, table)["undo"] < MB, UNDO_PATIENCE)
    meter.query(f"VACUUM {name}")
    ended = sizes_now(meter, engine, table)
    reader.close()
    meter.close()
    return {
        "updates": done, "tps": done / busy, "latency_ms": waited / done, **percentiles(latencies),
        "table_times": times(samples, loaded, "table"), "index_times": times(samples, loaded, "index"),
        "disk": max(s["table"] + s["index"] + s["undo_file"] for s in samples),
        "undo_peak": samples[-1]["undo"], "undo_back": undo_back,
        "ended_times": ended["table"] / loaded["table"],
        "cpu_us": (cpu_end - cpu) / done * 1e6 if cpu is not None and cpu_end is not None else None,
        "wal_per_transaction": wal / done, "wal_without_images": without / done if without is not None else None,
        "scan_before": scan_before, "scan_old": scan_old, "snapshot_kept": seen == seen_again,
        "samples": samples,
        "alone_times": times(samples, loaded, "alone"), "toast_times": times(samples, loaded, "toast"),
        "toast_index": max(s["toast_index"] for s in samples) if loaded["toast"] else None,
    }


def fixed_updates(bench, engine):
    """Runs W0; returns its figures."""
    bench.server.run_sql(engine.database, f"""
        DROP TABLE IF EXISTS account;
        CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, filler char(84));
        INSERT INTO account SELECT g, 0, '' FROM generate_series(1, {ROWS}) g;
        VACUUM ANALYZE account;
        CHECKPOINT;
        """)
    scan = "SELECT sum(balance), count(*) FROM account"
    figures = beside_transaction(bench, engine, "'account'::regclass", scan, ["-f", script("random_updates"), "-D", f"rows={ROWS}"], UPDATES)
    ended = bench.server.run_sql(engine.database, scan + ";\nDROP TABLE account;\n")
    return {**figures, "nothing_lost": ended == f"{figures['updates']}|{ROWS}"}


def documents(bench, engine):
    """Runs D; returns its figures."""
    bench.server.run_sql(engine.database, f"""
        DROP TABLE IF EXISTS document;
        CREATE TABLE document (id int PRIMARY KEY, changes int NOT NULL, body jsonb NOT NULL);
        ALTER TABLE document ALTER body SET STORAGE EXTERNAL;
        INSERT INTO document SELECT g, 0, (SELECT jsonb_object_agg('key' || k, value) FROM generate_series(1, 38) k, LATERAL
            (SELECT string_agg(md5(g || ' ' || k || ' ' || n), '') AS value FROM generate_series(1, 8) n) v)
        FROM generate_series(1, {DOCUMENTS}) g;
        VACUUM ANALYZE document;
        CHECKPOINT;
        """)
    scan = "SELECT sum(hashtextextended(body::text, 0)::numeric), count(*) FROM document"
    figures = beside_transaction(bench, engine, "'document'::regclass", scan,
                                 ["-f", script("documents"), "-D", f"rows={DOCUMENTS}"], CHANGES)
    ended = bench.server.run_sql(engine.database, "SELECT sum(changes) FROM document;\nDROP TABLE document;\n")
    return {**figures, "nothing_lost": ended == str(figures["updates"])}


def queue(bench, engine):
    """Runs DQ; returns its figures."""
    bench.server.run_sql(engine.database, f"""
        DROP TABLE IF EXISTS job;
        CREATE TABLE job (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text);
        INSERT INTO job (payload) SELECT repeat('p', 100) FROM generate_series(1, {JOBS});
        VACUUM ANALYZE job;
        CHECKPOINT;
        """)
    scan = "SELECT sum(id), count(*) FROM job"
    figures = beside_transaction(bench, engine, "'job'::regclass", scan, ["-f", script("queue")], TURNS)
    ended = bench.server.run_sql(engine.database, "SELECT count(*) FROM job;\nDROP TABLE job;\n")
    return {**figures, "backlog": int(ended), "nothing_lost": int(ended) == JOBS}


# id: title, function, number of rounds
WORKLOADS = {
    "W0": (f"{UPDATES:,} random updates of {ROWS:,} rows beside an open transaction", fixed_updates, 3),
    "D": (f"{CHANGES:,} changes of one key in {DOCUMENTS:,} documents of 10 kB beside an open transaction", documents, 1),
    "DQ": (f"a queue beside an open transaction: {TURNS:,} times ten rows are added and ten are deleted", queue, 1),
}
