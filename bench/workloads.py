"""The workloads W1, W3, W6, W8 and FK (README.md): a function runs one of them once.

Each function takes a Bench and an Engine and returns a dict of figures, for which
report.py has labels, units and goals.
"""

import os
import statistics
import tempfile
import threading
import time

from server import BenchError, Load, MB, Session, percentiles, speed

UNDO_GOAL = 16 * MB             # with less undo in use, the undo counts as discarded
UNDO_PATIENCE = 30.0            # seconds that we wait for that


class Engine:
    """One side of the comparison: a table access method and its database."""

    def __init__(self, name, method):
        self.name = name
        self.method = method
        self.database = f"zundo_bench_{name}"
        self.has_undo = method == "zheap"


class Bench:
    """What is common to all workloads of a run: the server, options, and the function that prints progress."""

    def __init__(self, server, options, say):
        self.server = server
        self.scale = options.scale
        self.clients = options.clients or 4
        self.many_clients = options.clients or 32
        self.seconds = options.seconds
        self.cores = os.cpu_count() or 1
        self.say = self.progress = say
        self.table = None               # the user's table (own_table.py)
        self._scratch = None

    def scratch(self, name):
        """Returns the path of a temporary file that exists until the program ends."""
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="zundo-compare.")
        return os.path.join(self._scratch.name, name)

    def session(self, engine):
        """Returns a new Session in the engine's database."""
        return Session(self.server, engine.database)

    def load(self, engine, options, seconds, clients=None):
        """Starts pgbench in the engine's database; returns a Load."""
        return Load(self.server, engine.database, options, seconds, clients or self.clients)


def create_databases(bench, engines):
    """Creates a database for each engine, with its access method as the default."""
    server = bench.server
    for engine in engines:
        server.run_sql(server.admin_database, f"DROP DATABASE IF EXISTS {engine.database};\n"
                                              f"CREATE DATABASE {engine.database} TEMPLATE template0;\n")
        if not server.private:
            server.databases.append(engine.database)
        if engine.has_undo:
            server.run_sql(engine.database, "CREATE EXTENSION zundo;\n")
        server.run_sql(server.admin_database,
                       f"ALTER DATABASE {engine.database} SET default_table_access_method = {engine.method};\n"
                       f"ALTER DATABASE {engine.database} SET synchronous_commit = off;\n")


def load_pgbench(bench, engine, options=()):
    """Loads new pgbench tables; returns (seconds, sizes)."""
    bench.say(f"loading pgbench tables at scale {bench.scale}")
    start = time.monotonic()
    bench.server.pgbench(engine.database, ["-i", "-q", "-s", str(bench.scale), *options])
    took = time.monotonic() - start
    session = bench.session(engine)
    sizes = sizes_now(session, engine)
    session.query("CHECKPOINT")
    session.close()
    return took, sizes


def drop_pgbench(bench, engine):
    """Drops the tables of a run that has ended, so that autovacuum does not process them while the other engine runs."""
    bench.server.run_sql(engine.database, "DROP TABLE IF EXISTS pgbench_accounts, pgbench_branches,"
                                          " pgbench_history, pgbench_tellers;\n")


def sizes_now(session, engine, table="pgbench_accounts"):
    """Returns the bytes of a table, of its primary key, of undo in use and of the undo log's file."""
    undo = "zundo.undo_bytes_in_use(), pg_relation_size('zundo.undo_log')" if engine.has_undo else "0, 0"
    row = session.query(f"SELECT pg_table_size('{table}'), pg_relation_size('{table}_pkey'), {undo}")[0]
    return dict(zip(("table", "index", "undo", "undo_file"), (int(x) for x in row)))


def open_snapshot(session, sql):
    """Begins a transaction with one snapshot for all its queries; returns the result of the first one."""
    session.query("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    session.query("SET LOCAL max_parallel_workers_per_gather = 0")
    session.query("SET LOCAL jit = off")
    return session.query(sql)


def quiet_scan(session, sql, times):
    """Returns the median of the seconds that a scan without parallel workers takes."""
    session.query("SET max_parallel_workers_per_gather = 0")
    session.query("SET jit = off")
    session.query(sql)
    return statistics.median(session.timed(sql)[0] for _ in range(times))


def wal_position(session):
    """Returns the insert position of WAL in bytes."""
    return int(session.value("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))


def await_true(condition, patience, pause=0.05):
    """Returns the seconds until condition() is true, or None if it is not within patience seconds."""
    start = time.monotonic()
    while time.monotonic() - start < patience:
        if condition():
            return time.monotonic() - start
        time.sleep(pause)
    return None


class Sampler:
    """Reads sizes once a second, with a separate connection."""

    def __init__(self, bench, engine, table="pgbench_accounts"):
        self.bench, self.engine, self.table = bench, engine, table
        self.samples = []               # dicts of sizes_now() plus "t"
        self.error = None
        self.start = time.monotonic()
        self._stop = threading.Event()
        self._session = bench.session(engine)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def now(self):
        """Returns the seconds since the sampler started."""
        return time.monotonic() - self.start

    def _run(self):
        """Samples sizes once a second until it is stopped."""
        next_time = 0.0
        try:
            while not self._stop.is_set():
                at = self.now()
                sizes = sizes_now(self._session, self.engine, self.table)
                sizes["t"] = round(at, 2)
                self.samples.append(sizes)
                if len(self.samples) % 10 == 0:
                    self.bench.say(f"{at:3.0f} s: table {sizes['table'] / MB:.0f} MB, index {sizes['index'] / MB:.0f} MB"
                                   + (f", undo {sizes['undo'] / MB:.0f} MB" if self.engine.has_undo else ""))
                next_time += 1.0
                self._stop.wait(max(0.0, next_time - self.now()))
        except BenchError as error:
            self.error = error

    def finish(self):
        """Ends the sampling; returns the samples. Raises the BenchError that ended it early, if any."""
        self._stop.set()
        self._thread.join(10)
        self._session.close()
        if self.error:
            raise self.error
        return self.samples


def plain_wal(bench, session, start):
    """Returns the bytes of WAL since a position, and those without full-page images (None on a user's server)."""
    end = session.value("SELECT pg_current_wal_insert_lsn()")
    everything = int(session.value(f"SELECT pg_wal_lsn_diff('{end}', '{start}')"))
    if not bench.server.private:
        return everything, None
    session.query("SET synchronous_commit = on")
    session.query("SELECT pg_logical_emit_message(true, 'zundo', 'the commit writes all WAL to the files')")
    session.query("RESET synchronous_commit")
    return everything, bench.server.wal_without_images(start, end)


def without_images(bench, engine, session, options, seconds):
    """Runs the load again; returns its WAL bytes per transaction without full-page images.

    Returns None on a user's server. Images are written nevertheless, as on most servers, since some records
    are shorter if the page has an image.
    """
    if not bench.server.private:
        return None
    start = session.value("SELECT pg_current_wal_insert_lsn()")
    result = bench.load(engine, options, seconds).finish()
    return plain_wal(bench, session, start)[1] / result["transactions"]


def long_transaction(bench, engine):
    """Runs W1: simple-update; a transaction with a snapshot is open from 10 % to 70 % of the time.

    At half time the load pauses for the old snapshot's scan, so that the clients do
    not slow it down.
    """
    seconds = bench.seconds or 60
    before, half = max(1, round(seconds * 0.1)), max(2, round(seconds * 0.5))
    after, still_open = max(1, seconds - half), round(seconds * 0.2)
    scan = "SELECT sum(abalance::bigint), count(*) FROM pgbench_accounts"
    load_seconds, loaded = load_pgbench(bench, engine)
    reader, meter = bench.session(engine), bench.session(engine)
    scan_before = quiet_scan(reader, scan, 3)
    bench.say(f"simple-update for {seconds} s, transaction open from {before} s to {half + still_open} s")
    sampler = Sampler(bench, engine)
    wal, cpu = wal_position(meter), bench.server.cpu_seconds()

    first_at = sampler.now()
    first = bench.load(engine, ["-N"], half)
    time.sleep(before)
    opened = sampler.now()
    seen = open_snapshot(reader, scan)
    one = first.finish()
    scan_old, seen_again = reader.timed(scan)

    second_at = sampler.now()
    second = bench.load(engine, ["-N"], after)
    time.sleep(still_open)
    kept = reader.query(scan) == seen
    undo_peak = sizes_now(meter, engine)["undo"]
    reader.query("COMMIT")
    closed = sampler.now()
    undo_back = None
    if engine.has_undo:
        undo_back = await_true(lambda: sizes_now(meter, engine)["undo"] < UNDO_GOAL, UNDO_PATIENCE)
    two = second.finish()
    wal = wal_position(meter) - wal
    cpu_end = bench.server.cpu_seconds()
    samples = sampler.finish()
    ended = sizes_now(meter, engine)

    bench.say("WAL without full-page images")
    plain_wal = without_images(bench, engine, meter, ["-N"], 5)
    reader.close()
    meter.close()
    drop_pgbench(bench, engine)
    transactions = one["transactions"] + two["transactions"]
    peak = {k: max([s[k] for s in samples] + [ended[k]]) for k in ("table", "index", "undo_file")}
    return {
        "load_seconds": load_seconds, "loaded_table": loaded["table"], "loaded_index": loaded["index"],
        "tps": transactions / (one["transactions"] / one["tps"] + two["transactions"] / two["tps"]),
        "tps_open": one["tps"], "tps_after": two["tps"],
        "latency_ms": (one["latency_ms"] * one["transactions"] + two["latency_ms"] * two["transactions"]) / transactions,
        "transactions": transactions, **percentiles(one["sample"] + two["sample"]),
        "cpu_us": (cpu_end - cpu) / transactions * 1e6 if cpu is not None and cpu_end is not None else None,
        "table_growth": peak["table"] / loaded["table"] - 1, "index_growth": peak["index"] / loaded["index"] - 1,
        "undo_peak": undo_peak, "undo_file_peak": peak["undo_file"],
        "disk": max(s["table"] + s["index"] + s["undo_file"] for s in samples + [ended]), "undo_back": undo_back,
        "wal_per_transaction": wal / transactions, "wal_without_images": plain_wal,
        "scan_before": scan_before, "scan_old": scan_old, "scan_slowdown": scan_old / scan_before,
        "snapshot_kept": kept and seen == seen_again,
        "opened": opened, "closed": closed, "samples": samples,
        "progress": [(first_at + t, tps) for t, tps in first.progress] + [(second_at + t, tps) for t, tps in second.progress],
    }


def simple_update(bench, engine):
    """Runs W3: simple-update alone; then measures WAL without images, and undo per transaction."""
    seconds = bench.seconds or 20
    load_seconds, loaded = load_pgbench(bench, engine)
    meter, holder = bench.session(engine), bench.session(engine)
    bench.say(f"simple-update for {seconds} s")
    wal, cpu = wal_position(meter), bench.server.cpu_seconds()
    result = bench.load(engine, ["-N"], seconds).finish()
    wal, cpu_end = wal_position(meter) - wal, bench.server.cpu_seconds()
    bench.say("WAL without full-page images")
    plain_wal = without_images(bench, engine, meter, ["-N"], min(seconds, 10))
    undo = None
    if engine.has_undo:
        bench.say("undo per transaction, kept by a snapshot")
        open_snapshot(holder, "SELECT 1")
        start = sizes_now(meter, engine)["undo"]
        kept = bench.load(engine, ["-N"], min(seconds, 5)).finish()
        undo = (sizes_now(meter, engine)["undo"] - start) / kept["transactions"]
        holder.query("COMMIT")
    ended = sizes_now(meter, engine)
    meter.close()
    holder.close()
    drop_pgbench(bench, engine)
    return {
        "load_seconds": load_seconds, "loaded_table": loaded["table"],
        **speed(result),
        "cpu_us": (cpu_end - cpu) / result["transactions"] * 1e6 if cpu is not None and cpu_end is not None else None,
        "wal_per_transaction": wal / result["transactions"], "wal_without_images": plain_wal,
        "undo_per_transaction": undo, "ended_table": ended["table"],
    }


def foreign_keys(bench, engine):
    """Runs FK: tpcb-like with foreign keys on all tables and many clients, which lock few rows in all strengths."""
    seconds = bench.seconds or 20
    load_pgbench(bench, engine, ["--foreign-keys"])
    meter = bench.session(engine)
    bench.say(f"tpcb-like with foreign keys, {bench.many_clients} clients, {seconds} s")
    wal, cpu = wal_position(meter), bench.server.cpu_seconds()
    result = bench.load(engine, ["-b", "tpcb-like"], seconds, bench.many_clients).finish()
    wal, cpu_end = wal_position(meter) - wal, bench.server.cpu_seconds()
    sums = meter.query("""
        SELECT sum(abalance) FROM pgbench_accounts UNION ALL SELECT sum(bbalance) FROM pgbench_branches UNION ALL
        SELECT sum(tbalance) FROM pgbench_tellers UNION ALL SELECT sum(delta) FROM pgbench_history""")
    meter.close()
    drop_pgbench(bench, engine)
    return {
        **speed(result),
        "cpu_us": (cpu_end - cpu) / result["transactions"] * 1e6 if cpu is not None and cpu_end is not None else None,
        "wal_per_transaction": wal / result["transactions"],
        "sums_equal": len({row[0] for row in sums}) == 1,
    }


def hot_rows(bench, engine):
    """Runs W6: all clients update four rows while a snapshot is open, which then reads them."""
    seconds = bench.seconds or 20
    bench.server.run_sql(engine.database, """
        DROP TABLE IF EXISTS hot;
        CREATE TABLE hot (id int PRIMARY KEY, n bigint NOT NULL, filler text);
        INSERT INTO hot SELECT i, 0, repeat('x', 80) FROM generate_series(1, 4) i;
        VACUUM ANALYZE hot;
        CHECKPOINT;
        """)
    reader, meter = bench.session(engine), bench.session(engine)
    sql = "SELECT id, n FROM hot ORDER BY id"
    seen = open_snapshot(reader, sql)
    start = sizes_now(meter, engine, "hot")
    bench.say(f"updating 4 hot rows for {seconds} s under an open snapshot")
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hot_rows.sql")
    wal = wal_position(meter)
    result = bench.load(engine, ["-f", script], seconds).finish()
    wal = wal_position(meter) - wal
    read, seen_again = reader.timed(sql)
    end = sizes_now(meter, engine, "hot")
    sum_now = int(meter.value("SELECT sum(n) FROM hot"))
    reader.query("COMMIT")
    undo_back = None
    if engine.has_undo:
        undo_back = await_true(lambda: sizes_now(meter, engine, "hot")["undo"] < UNDO_GOAL, UNDO_PATIENCE)
    reader.close()
    meter.close()
    bench.server.run_sql(engine.database, "DROP TABLE hot;\n")
    return {
        **speed(result),
        "wal_per_transaction": wal / result["transactions"],
        "table_growth_bytes": end["table"] - start["table"], "index_growth_bytes": end["index"] - start["index"],
        "old_read": read, "undo_peak": end["undo"], "undo_back": undo_back,
        "snapshot_kept": seen == seen_again, "nothing_lost": sum_now == result["transactions"],
    }


def bulk(bench, engine):
    """Runs W8: COPY, sequential scan, select-only, a large ROLLBACK, DELETE of half the rows and refill."""
    rows = bench.scale * 100000
    half = rows // 2
    server, meter, other = bench.server, bench.session(engine), bench.session(engine)
    figures = {}
    create = "CREATE TABLE bulk (aid int NOT NULL, bid int, abalance int, filler char(84))"
    data = f"SELECT i, 1 + (i - 1) / 100000, 0, '' FROM generate_series(1, {rows}) i"
    server.run_sql(engine.database, "DROP TABLE IF EXISTS bulk;\n" + create + ";\nCHECKPOINT;\n")

    bench.say(f"COPY of {rows} rows")
    figures["copy"] = copy_rows(bench, engine, meter, data)
    figures["build_index"], _ = meter.timed("ALTER TABLE bulk ADD CONSTRAINT bulk_pkey PRIMARY KEY (aid)")
    meter.query("VACUUM ANALYZE bulk")
    loaded = sizes_now(meter, engine, "bulk")
    figures["loaded_table"] = loaded["table"]

    bench.say("sequential scan, select-only")
    figures["scan"] = quiet_scan(meter, "SELECT sum(abalance) FROM bulk", 5)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "select_only.sql")
    figures["select_tps"] = bench.load(engine, ["-D", f"rows={rows}", "-f", script], bench.seconds or 10).finish()["tps"]

    bench.say(f"UPDATE of {half} rows, then ROLLBACK")
    before = other.query("SELECT sum(abalance), count(*) FROM bulk")
    meter.query("BEGIN")
    figures["big_update"], _ = meter.timed(f"UPDATE bulk SET abalance = abalance + 1 WHERE aid <= {half}")
    figures["rollback"], _ = meter.timed("ROLLBACK")
    figures["read_after_rollback"], after = other.timed("SELECT sum(abalance), count(*) FROM bulk")
    figures["old_rows_read"] = before == after
    if engine.has_undo:
        bench.say("waiting until the aborted rows are undone")
        figures["undone"] = await_true(lambda: meter.value("SELECT count(*) FROM zundo.stat_rollback") == "0", 120, 0.2)

    bench.say("DELETE of every other row, then refill")
    figures["delete"], _ = meter.timed("DELETE FROM bulk WHERE aid % 2 = 0")
    figures["refill"], _ = meter.timed("INSERT INTO bulk " + data + " WHERE i % 2 = 0")
    refilled = sizes_now(meter, engine, "bulk")
    figures["refill_growth"] = refilled["table"] / loaded["table"] - 1
    figures["all_rows_there"] = meter.query("SELECT count(*), count(DISTINCT aid) FROM bulk")[0] == [str(rows)] * 2
    meter.query("DROP TABLE bulk")
    meter.close()
    other.close()
    return figures


def copy_rows(bench, engine, session, data):
    """Returns the seconds of one COPY, from a file of the server, or through psql on a user's server."""
    if bench.server.private:
        path = os.path.join(bench.server.directory, "bulk.copy")
        if not os.path.exists(path):
            session.query(f"COPY ({data}) TO '{path}'")
        session.query("CHECKPOINT")
        return session.timed(f"COPY bulk FROM '{path}'")[0]
    path = bench.scratch("bulk.copy")
    if not os.path.exists(path):
        session.query(f"\\copy ({data}) TO '{path}'")
    return session.timed(f"\\copy bulk FROM '{path}'")[0]


# id: title, function, number of rounds
WORKLOADS = {
    "W1": ("a long transaction beside simple-update", long_transaction, 1),
    "W3": ("simple-update", simple_update, 3),
    "FK": ("tpcb-like with foreign keys, 32 clients", foreign_keys, 3),
    "W6": ("hot rows under an open snapshot", hot_rows, 3),
    "W8": ("bulk load, scans, DELETE and refill, ROLLBACK", bulk, 3),
}
