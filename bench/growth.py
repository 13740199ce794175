"""Workload W0: a fixed number of random updates of a small table beside an open transaction.

What is left behind depends on the number of updates only, not on how fast the
machine is. Both sides run the same statements: pgbench's random numbers are seeded.
"""

import os

from server import MB, percentiles
from workloads import UNDO_PATIENCE, await_true, open_snapshot, plain_wal, sizes_now

ROWS, UPDATES = 20000, 100000
STEPS = 10                      # the sizes are read after each of them
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "random_updates.sql")
SCAN = "SELECT sum(balance), count(*) FROM account"


def fixed_updates(bench, engine):
    """Runs W0; returns its figures."""
    bench.server.run_sql(engine.database, f"""
        DROP TABLE IF EXISTS account;
        CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL, filler char(84));
        INSERT INTO account SELECT g, 0, '' FROM generate_series(1, {ROWS}) g;
        VACUUM ANALYZE account;
        CHECKPOINT;
        """)
    reader, meter = bench.session(engine), bench.session(engine)
    scan_before = min(meter.timed(SCAN)[0] for _ in range(3))
    loaded = sizes_now(meter, engine, "account")
    seen = open_snapshot(reader, SCAN)
    samples = [dict(loaded, updates=0)]
    start, cpu = meter.value("SELECT pg_current_wal_insert_lsn()"), bench.server.cpu_seconds()
    each = UPDATES // STEPS // bench.clients
    done, busy, waited, latencies = 0, 0.0, 0.0, []
    for step in range(1, STEPS + 1):
        result = bench.load(engine, ["-f", SCRIPT, "-D", f"rows={ROWS}", "-t", str(each), f"--random-seed={step}"], None).finish()
        done += result["transactions"]
        busy += result["transactions"] / result["tps"]
        waited += result["latency_ms"] * result["transactions"]
        latencies += result["sample"]
        samples.append(dict(sizes_now(meter, engine, "account"), updates=done))
        if step in (STEPS // 2, STEPS):
            bench.say(f"{done:,} of {UPDATES:,} updates, table {samples[-1]['table'] / loaded['table']:.2f} times its size")
    cpu_end = bench.server.cpu_seconds()
    wal, without = plain_wal(bench, meter, start)
    scan_old, seen_again = reader.timed(SCAN)
    nothing_lost = meter.query(SCAN) == [[str(done), str(ROWS)]]
    reader.query("COMMIT")
    undo_back = None
    if engine.has_undo:
        undo_back = await_true(lambda: sizes_now(meter, engine, "account")["undo"] < MB, UNDO_PATIENCE)
    meter.query("VACUUM account")
    ended = sizes_now(meter, engine, "account")
    reader.close()
    meter.close()
    bench.server.run_sql(engine.database, "DROP TABLE account;\n")
    return {
        "updates": done, "tps": done / busy, "latency_ms": waited / done, **percentiles(latencies),
        "table_times": max(s["table"] for s in samples) / loaded["table"],
        "index_times": max(s["index"] for s in samples) / loaded["index"],
        "disk": max(s["table"] + s["index"] + s["undo_file"] for s in samples),
        "undo_peak": samples[-1]["undo"], "undo_back": undo_back,
        "ended_times": ended["table"] / loaded["table"],
        "cpu_us": (cpu_end - cpu) / done * 1e6 if cpu is not None and cpu_end is not None else None,
        "wal_per_transaction": wal / done, "wal_without_images": without / done if without is not None else None,
        "scan_before": scan_before, "scan_old": scan_old,
        "snapshot_kept": seen == seen_again, "nothing_lost": nothing_lost,
        "samples": samples,
    }


# id: title, function, number of rounds
WORKLOADS = {"W0": (f"{UPDATES:,} random updates of {ROWS:,} rows beside an open transaction", fixed_updates, 3)}
