#!/usr/bin/python3
"""Runs random statements on the database of PostgreSQL's regression suite, with zheap tables.

The suite is run first and creates the database, with access method zheap for every
table. Then the following run at the same time:

    sqlsmith     makes statements from the catalog and runs them
    writers      run statements of sqlsmith and of this program in transactions of all
                 isolation levels, with savepoints, row locks, two phases, timeouts
    readers      keep snapshots and read the tables again: their sums must not change,
                 index and sequential scans must agree
    maintenance  VACUUM of all kinds, CLUSTER, REINDEX, index builds, moves to a
                 tablespace, rewrites
    canceller    cancels and terminates sessions and workers
    limiter      limits the memory of sessions while they run statements

No process may crash, and no statement may fail with an internal error (SQLSTATE XX...)
of zundo. At the end, and again after kill -9 and recovery with wal_consistency_checking,
zundo.check() and amcheck must find nothing.

    fuzz.py --bindir DIR --minutes 10 --seed 1
    fuzz.py --bindir DIR --base DIR        uses the database that --save-base has kept, instead of running the suite

Needs the package sqlsmith, and a source tree of the server for its suite
(tools/build-postgres keeps one). See README.md here.
"""

import argparse
import collections
import glob
import itertools
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import psycopg2
import psycopg2.extensions

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, ClusterError, connect, is_alive  # noqa: E402  (same directory)

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCES = os.path.dirname(os.path.dirname(HERE))
DATABASE = "regression"

SETTINGS = """
default_table_access_method = 'zheap'
allow_in_place_tablespaces = on
autovacuum = on
autovacuum_naptime = 2s
checkpoint_timeout = 1min
max_wal_size = 4GB
max_slot_wal_keep_size = 1GB
max_replication_slots = 4
log_error_verbosity = verbose
restart_after_crash = off
idle_in_transaction_session_timeout = 120s
"""

# Lines of the log begin with time, process, kind, SQLSTATE and application. Then comes level, SQLSTATE and message, and
# in a later line of the process the function, file and line that reported it.
PROCESS_LINE = re.compile(r"^\S+ \S+ \S+ \[(\d+)\] ")
MESSAGE_LINE = re.compile(r" (ERROR|FATAL|PANIC|LOG|WARNING|NOTICE):  (\w{5}): (.*)")
LOCATION_LINE = re.compile(r" LOCATION:  (\w+), ([\w.]+):(\d+)")
DEATH = re.compile(r"PANIC:|TRAP:|terminated by signal (?:4|6|7|8|11)\b|inconsistent page found")

# Functions of the server that raise internal errors when sqlsmith calls SQL functions with nonsense, on heap as well.
SERVERS_OWN = {
    "SetNextObjectId", "intervaltypmodleastfield", "intervaltypmodout", "coerce_type", "test_fdw_handler",
    "currtid_internal", "currtid_for_view", "ReplaceVarsFromTargetList_callback", "ReplaceVarFromTargetList",
    "MJExamineQuals", "check_float8_array", "pg_get_shmem_allocations_numa",
    # without memory
    "internal_load_library", "hash_create",
}

# Fault points at which errors are raised.
FAULTS = ["undo-extend", "undo-alloc", "converting-locks", "before-commit", "abort-callback"]


class Fault(Exception):
    """Something that must not happen has happened."""


class Shared:
    """Data that the threads share: options, the end of the run, counts, statements of sqlsmith."""

    def __init__(self, cluster, options):
        self.cluster = cluster
        self.options = options
        self.stop = threading.Event()
        self.statements = queue.Queue(200)
        self.counts = collections.Counter()
        self.faults = []
        self.lock = threading.Lock()

    def count(self, what, by=1):
        """Adds to a count for the report."""
        with self.lock:
            self.counts[what] += by

    def fault(self, text):
        """Notes and prints a fault, and ends the run."""
        with self.lock:
            self.faults.append(text)
        print(f"FAULT {text}", flush=True)
        self.stop.set()

    def connect(self, name):
        """Returns a connection that commits each statement; None once the run has ended."""
        while not self.stop.is_set():
            try:
                return connect(self.cluster.dsn(DATABASE) + f" application_name='fuzz {name}'")
            except psycopg2.Error:
                if not is_alive(self.cluster.postmaster() or 0):
                    self.fault("the server is gone")
                time.sleep(0.2)
        return None


def run_sql(conn, sql, rows=True):
    """Runs a statement; returns its rows, or None if it has none or rows is false."""
    with conn.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if rows and cursor.description else None


# --- the tables -------------------------------------------------------------

TABLES = """
SELECT c.oid::regclass::text,
  array_agg(quote_ident(a.attname) ORDER BY a.attnum) FILTER (WHERE a.attgenerated = '' AND a.attidentity <> 'a'),
  (SELECT coalesce(array_agg(i.indexrelid::regclass::text), '{}') FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
   WHERE i.indrelid = c.oid AND i.indpred IS NULL AND x.relam = (SELECT oid FROM pg_am WHERE amname = 'btree'))
FROM pg_class c JOIN pg_am m ON m.oid = c.relam JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE m.amname = 'zheap' AND c.relkind = 'r' AND c.relpersistence <> 't'
GROUP BY c.oid HAVING count(*) FILTER (WHERE a.attgenerated = '' AND a.attidentity <> 'a') > 0 ORDER BY 1
"""


# A table that the suite does not have. Readers leave it out, for an old snapshot may see the effect of DDL, as on heap.
CHANGING = "fuzz_table"
DDL = [f"ALTER TABLE {CHANGING} ADD COLUMN IF NOT EXISTS extra int DEFAULT 5",
       f"ALTER TABLE {CHANGING} ADD COLUMN IF NOT EXISTS extra text DEFAULT random()::text",
       f"ALTER TABLE {CHANGING} DROP COLUMN IF EXISTS extra",
       f"ALTER TABLE {CHANGING} ALTER unique1 TYPE bigint",
       f"ALTER TABLE {CHANGING} ALTER unique1 TYPE int",
       f"ALTER TABLE {CHANGING} SET UNLOGGED",
       f"ALTER TABLE {CHANGING} SET LOGGED",
       f"ALTER TABLE {CHANGING} SET ACCESS METHOD heap",
       f"ALTER TABLE {CHANGING} SET ACCESS METHOD zheap",
       f"TRUNCATE {CHANGING}; INSERT INTO {CHANGING} SELECT * FROM tenk1 LIMIT 2000",
       f"DELETE FROM {CHANGING}; SAVEPOINT s; TRUNCATE {CHANGING}; INSERT INTO {CHANGING} SELECT * FROM tenk1 LIMIT 20; ROLLBACK TO s"]


class Tables:
    """The zheap tables of the database, as they were at the start."""

    def __init__(self, conn):
        run_sql(conn, f"CREATE TABLE IF NOT EXISTS {CHANGING} (LIKE tenk1 INCLUDING ALL) USING zheap")
        run_sql(conn, f"INSERT INTO {CHANGING} SELECT * FROM tenk1 LIMIT 2000")
        self.all = run_sql(conn, TABLES)
        self.indexed = [table for table in self.all if table[2]]
        self.changing = next(table for table in self.all if table[0] == CHANGING)

    def pick(self, rng):
        """Returns a random table: (name, columns, btree indexes)."""
        return rng.choice(self.indexed if self.indexed and rng.random() < 0.5 else self.all)


def own_statement(tables, rng):
    """Returns a simple statement that is likely to change rows."""
    name, columns, _ = tables.pick(rng) if rng.random() < 0.9 else tables.changing
    column, rows = rng.choice(columns), rng.choice([1, 1, 3, 20, 200, 200, 5000])
    some = f"ctid = ANY (ARRAY(SELECT ctid FROM ONLY {name} ORDER BY random() LIMIT {rows}))"
    listed = ", ".join(columns)
    kind = rng.random()
    if kind < 0.03:
        return (f"CREATE TEMP TABLE IF NOT EXISTS mine ON COMMIT {rng.choice(['DROP', 'DELETE ROWS', 'PRESERVE ROWS'])} AS SELECT * FROM {name}; "
                f"SAVEPOINT inner; DELETE FROM mine WHERE random() < 0.5; ROLLBACK TO inner; INSERT INTO mine SELECT * FROM mine LIMIT 50")
    if kind < 0.25:
        conflict = rng.choice(["", "ON CONFLICT DO NOTHING", "ON CONFLICT DO NOTHING RETURNING *"])
        return f"INSERT INTO {name} ({listed}) SELECT {listed} FROM ONLY {name} LIMIT {rows} {conflict}"
    if kind < 0.35:
        return f"UPDATE ONLY {name} SET {column} = {column} WHERE {some}"
    if kind < 0.55:
        return (f"UPDATE {name} SET {column} = (SELECT {column} FROM ONLY {name} OFFSET {rng.randrange(30)} LIMIT 1) "
                f"WHERE {some} RETURNING *")
    if kind < 0.7:
        return f"DELETE FROM {name} WHERE {some} RETURNING ctid, xmin, tableoid"
    if kind < 0.9:
        strength = rng.choice(["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"])
        return f"SELECT * FROM {name} ORDER BY random() LIMIT {rows} FOR {strength} {rng.choice(['', 'SKIP LOCKED', 'NOWAIT'])}"
    if kind < 0.95:
        return (f"MERGE INTO {name} t USING (SELECT ctid AS c FROM ONLY {name} LIMIT {rows}) s ON t.ctid = s.c "
                f"WHEN MATCHED AND random() < 0.5 THEN DELETE WHEN MATCHED THEN UPDATE SET {column} = t.{column}")
    cursor = f"c{rng.randrange(1 << 30)}"
    change = rng.choice([f"UPDATE {name} SET {column} = {column}", f"DELETE FROM {name}"]) + f" WHERE CURRENT OF {cursor}"
    return (f"DECLARE {cursor} CURSOR FOR SELECT * FROM {name} {rng.choice(['', 'FOR UPDATE'])}; FETCH {rows} FROM {cursor}; {change}; "
            f"FETCH 2 FROM {cursor}; {change}")


# --- the sessions -----------------------------------------------------------


def end_transaction(shared, conn, rng, name):
    """Ends the transaction by COMMIT, ROLLBACK or PREPARE TRANSACTION; ends a prepared one, too."""
    if conn.get_transaction_status() == psycopg2.extensions.TRANSACTION_STATUS_INERROR:
        run_sql(conn, "ROLLBACK")
        shared.count("rollbacks")
        return
    chance = rng.random()
    if chance < 0.1:
        gid = f"{name} {rng.randrange(1 << 60)}"
        run_sql(conn, f"PREPARE TRANSACTION '{gid}'")
        shared.count("prepared")
        try:
            if rng.random() < 0.3:
                time.sleep(rng.random())
        finally:
            finish_prepared(shared, gid, rng.choice(["COMMIT", "ROLLBACK"]))
    elif chance < 0.55:
        run_sql(conn, "COMMIT")
        shared.count("commits")
    else:
        run_sql(conn, "ROLLBACK")
        shared.count("rollbacks")


def finish_prepared(shared, gid, how):
    """Runs COMMIT PREPARED or ROLLBACK PREPARED until it has succeeded: its session may be cancelled meanwhile."""
    while True:
        try:
            conn = shared.cluster.connect(DATABASE)
            run_sql(conn, f"{how} PREPARED '{gid}'")
            conn.close()
            return
        except psycopg2.errors.UndefinedObject:
            return                  # an earlier attempt succeeded, though its answer was lost
        except psycopg2.Error:
            if not is_alive(shared.cluster.postmaster() or 0):
                return
            time.sleep(0.1)


def one_statement(shared, conn, tables, rng):
    """Runs one statement of a writer. Errors are expected; raises those with which the connection is lost."""
    sql = None
    if rng.random() < 0.5:
        try:
            sql = shared.statements.get_nowait()
        except queue.Empty:
            pass
    if sql is None:
        sql = own_statement(tables, rng)
    try:
        run_sql(conn, sql, rows=False)
        shared.count("statements that worked")
    except psycopg2.Error as error:
        shared.count("statements that failed")
        if conn.closed:
            raise
        if error.pgcode is None:
            shared.fault(f"no SQLSTATE: {error}: {sql}")


def writer(shared, tables, number):
    """Runs transactions until the run ends."""
    rng = random.Random(shared.options.seed * 1000 + number)
    conn = None
    while not shared.stop.is_set():
        try:
            if conn is None or conn.closed:
                conn = shared.connect(f"writer {number}")
                if conn is None:
                    return
            run_sql(conn, f"SET lock_timeout = 2000; SET statement_timeout = {rng.choice([5, 30, 200, 2000, 5000])}; "
                    f"SET zundo.eager_rollback_pages = {rng.choice([0, 1, 32])}; "
                    f"SET zundo.fault = '{rng.choice(FAULTS) + ':error' if rng.random() < 0.15 else ''}'")
            run_sql(conn, f"BEGIN ISOLATION LEVEL {rng.choice(['READ COMMITTED', 'READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])}")
            for step in range(rng.choice([1, 2, 5, 10, 30])):
                # a savepoint for each statement, so that errors do not end the transaction
                run_sql(conn, f"SAVEPOINT s{step}")
                one_statement(shared, conn, tables, rng)
                failed = conn.get_transaction_status() == psycopg2.extensions.TRANSACTION_STATUS_INERROR
                if failed or rng.random() < 0.3:
                    run_sql(conn, f"ROLLBACK TO s{step}")
                elif rng.random() < 0.5:
                    run_sql(conn, f"RELEASE s{step}")
            end_transaction(shared, conn, rng, f"writer {number}")
        except psycopg2.Error as error:
            recover(shared, conn, error)


def recover(shared, conn, error):
    """Rolls back after an error; closes the connection if that fails."""
    if conn is None or conn.closed:
        return
    shared.count(f"transactions ended by {error.pgcode}")
    try:
        run_sql(conn, "ROLLBACK")
    except psycopg2.Error:
        conn.close()


# The sum of a table, by any plan, or by an index of the column if there is one.
SUM = "SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM ONLY {} t"
ORDERED_SUM = "SELECT count(*), sum(hashtextextended(t::text, 0)::numeric) FROM (SELECT * FROM ONLY {} ORDER BY {}) t"
PLANS = ["SET enable_seqscan = on; SET enable_sort = on; SET max_parallel_workers_per_gather = 0",
         "SET enable_seqscan = off; SET enable_sort = off; SET max_parallel_workers_per_gather = 0",
         "SET enable_seqscan = on; SET enable_sort = on; SET max_parallel_workers_per_gather = 2"]


def sums(shared, conn, snapshot, chosen, rng):
    """Returns {table: (count, sum, query)} under a snapshot; tables that cannot be read are left out."""
    found = {}
    for name, columns, _ in chosen:
        if shared.stop.is_set():
            break
        sql = SUM.format(name) if rng.random() < 0.4 else ORDERED_SUM.format(name, rng.choice(columns))
        try:
            run_sql(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            run_sql(conn, f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            found[name] = run_sql(conn, sql)[0] + (sql,)
            run_sql(conn, "COMMIT")
        except psycopg2.Error as error:
            recover(shared, conn, error)
            # 42704: the session that exported the snapshot was terminated
            if conn.closed or error.pgcode == "42704":
                break
    return found


def reader(shared, tables, number):
    """Keeps a snapshot for a while and checks that reading the tables again gives the same; until the run ends."""
    rng = random.Random(shared.options.seed * 1000 + 500 + number)
    while not shared.stop.is_set():
        keeper, conn = shared.connect(f"keeper {number}"), shared.connect(f"reader {number}")
        try:
            if keeper is None or conn is None:
                return
            run_sql(keeper, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            snapshot = run_sql(keeper, "SELECT pg_export_snapshot()")[0][0]
            run_sql(conn, "SET lock_timeout = 1000; SET parallel_setup_cost = 0; SET min_parallel_table_scan_size = 0")
            chosen = [table for table in (tables.pick(rng) for _ in range(rng.choice([20, 60, 200]))) if table[0] != CHANGING]
            first = sums(shared, conn, snapshot, chosen, rng)
            for _ in range(rng.choice([1, 2, 5])):
                shared.stop.wait(rng.choice([0.1, 1, 5, 15]))
                plan = rng.choice(PLANS)
                run_sql(conn, plan)
                for name, result in sums(shared, conn, snapshot, chosen, rng).items():
                    shared.count("tables read again")
                    if name in first and first[name][:2] != result[:2]:
                        shared.fault(f"an old snapshot read {first[name]} of {name} first and {result} later ({plan})")
        except psycopg2.Error:
            pass
        finally:
            for each in (keeper, conn):
                if each is not None:
                    each.close()


def maintenance(shared, tables):
    """Runs VACUUM, CLUSTER, REINDEX and the like until the run ends."""
    rng = random.Random(shared.options.seed * 1000 + 900)
    conn = None
    while not shared.stop.is_set():
        name, columns, indexes = tables.pick(rng)
        what = [f"VACUUM {name}", f"VACUUM (FREEZE, INDEX_CLEANUP {rng.choice(['ON', 'OFF', 'AUTO'])}) {name}", f"VACUUM (ANALYZE) {name}",
                f"VACUUM FULL {name}", f"VACUUM (PARALLEL 2, TRUNCATE {rng.choice(['ON', 'OFF'])}) {name}", f"REINDEX TABLE {name}",
                f"REINDEX TABLE CONCURRENTLY {name}", f"ALTER TABLE {name} SET TABLESPACE fuzz_space", "CHECKPOINT",
                f"ALTER TABLE {name} SET TABLESPACE pg_default", "SELECT zundo.discard()", "VACUUM", f"SELECT zundo.check('{name}')",
                f"ALTER TABLE {name} SET (fillfactor = {rng.choice([20, 70, 100])})",
                f"CREATE INDEX fuzz_index ON {name} ({rng.choice(columns)})", f"CREATE INDEX CONCURRENTLY fuzz_index ON {name} ({rng.choice(columns)})", "DROP INDEX CONCURRENTLY IF EXISTS fuzz_index"]
        if indexes:
            what += [f"CLUSTER {name} USING {rng.choice(indexes).rpartition('.')[2]}"] * 4
        sql = rng.choice(what)
        if rng.random() < 0.2:
            sql = f"BEGIN; {rng.choice(DDL)}; {rng.choice(DDL)}; {rng.choice(['COMMIT', 'ROLLBACK'])}"
        try:
            if conn is None or conn.closed:
                conn = shared.connect("maintenance")
                if conn is None:
                    return
                run_sql(conn, "SET lock_timeout = 1000; SET statement_timeout = 20000")
            rows = run_sql(conn, sql)
            if "zundo.check" in sql and rows:
                shared.fault(f"{sql}: {rows[:5]}")
            shared.count("maintenance done")
        except psycopg2.Error as error:
            shared.count("maintenance failed")
            recover(shared, conn, error)
        shared.stop.wait(rng.choice([0, 0, 0.1, 0.5]))


VICTIMS = """
SELECT pid FROM pg_stat_activity WHERE {} AND (backend_type <> 'client backend'
  OR state = 'active' AND (application_name ~ '^fuzz (writer|reader|maint)' OR application_name = 'sqlsmith::dut'))
"""


def canceller(shared):
    """Cancels and terminates random processes until the run ends."""
    rng = random.Random(shared.options.seed * 1000 + 901)
    conn = None
    while not shared.stop.is_set():
        try:
            if conn is None or conn.closed:
                conn = shared.connect("canceller")
                if conn is None:
                    return
            others = rng.random() < 0.1
            kind = "backend_type IN ('client backend', 'autovacuum worker', 'parallel worker')"
            if others:
                kind = "backend_type NOT IN ('client backend', 'checkpointer', 'background writer', 'walwriter', 'startup', 'io worker')"
            victims = run_sql(conn, VICTIMS.format(kind))
            if victims:
                end = others or rng.random() < 0.03
                run_sql(conn, f"SELECT pg_{'terminate' if end else 'cancel'}_backend({rng.choice(victims)[0]})")
                shared.count("terminated" if end else "cancelled")
        except psycopg2.Error:
            if conn is not None:
                conn.close()
        shared.stop.wait(rng.choice([0, 0.002, 0.01, 0.05, 0.2]))


def data_size(pid):
    """Returns the bytes of private writable memory of a process, without its stack; 0 if it does not exist any more."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            return int(re.search(r"^VmData:\s*(\d+) kB", status.read(), re.M).group(1)) * 1024
    except (OSError, AttributeError):
        return 0


def limit_memory(cluster, pid, size):
    """Limits the private memory of a process to size bytes; returns whether that succeeded.

    Runs as the server's user, since root may lack the right. Does not limit the address space, since then the stack
    could not grow, which kills the process.
    """
    command = ["prlimit", f"--pid={pid}", f"--data={size}:unlimited"]
    if cluster.user:
        command = ["runuser", "-u", cluster.user, "--", *command]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def limiter(shared):
    """Lets a random process allocate hardly any more memory for a moment, again and again until the run ends."""
    rng = random.Random(shared.options.seed * 1000 + 902)
    conn = None
    while not shared.stop.is_set():
        try:
            if conn is None or conn.closed:
                conn = shared.connect("limiter")
                if conn is None:
                    return
            victims = run_sql(conn, "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'fuzz writer%' "
                              "OR backend_type LIKE 'zundo%' OR backend_type = 'autovacuum worker'")
        except psycopg2.Error:
            if conn is not None:
                conn.close()
            continue
        if victims:
            pid = rng.choice(victims)[0]
            size = data_size(pid) + rng.choice([128, 512, 2048]) * 1024
            if limit_memory(shared.cluster, pid, size):
                shared.count("memory denied")
                shared.stop.wait(rng.choice([0.01, 0.05, 0.3]))
                limit_memory(shared.cluster, pid, "unlimited")
        shared.stop.wait(rng.choice([0.01, 0.1, 0.5]))


# --- sqlsmith ---------------------------------------------------------------


def smith(shared, number):
    """Runs sqlsmith with one seed after the other, and gives its statements to the writers; until the run ends."""
    seed = shared.options.seed * 100 + number * 10000000
    while not shared.stop.is_set():
        command = ["sqlsmith", f"--target={shared.cluster.dsn(DATABASE)}", f"--seed={seed}", "--dump-all-queries"]
        if number % 2 == 0:
            command.append("--exclude-catalog")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace") as process:
            threading.Thread(target=end_with_run, args=(shared, process), daemon=True).start()
            lines = []
            for line in process.stdout:
                if line.strip() == ";" or line.rstrip().endswith(";"):
                    lines.append(line)
                    pass_on(shared, "".join(lines))
                    lines = []
                else:
                    lines.append(line)
        shared.count("runs of sqlsmith")
        seed += 1
        shared.stop.wait(0.5)


def pass_on(shared, sql):
    """Puts a statement of sqlsmith into the queue of the writers; if the queue is long, only one that writes."""
    shared.count("statements of sqlsmith")
    changes = re.match(r"\s*(insert|update|delete|merge|with)\b", sql) or "for update" in sql or "for share" in sql
    if changes or shared.statements.qsize() < 20:
        try:
            shared.statements.put_nowait(sql)
        except queue.Full:
            pass


def end_with_run(shared, process):
    """Terminates sqlsmith when the run ends."""
    while process.poll() is None:
        if shared.stop.wait(0.5):
            process.terminate()
            return


# --- the server -------------------------------------------------------------


def major_version(options):
    """Returns the major version of the server, as text."""
    version = subprocess.run([os.path.join(options.bindir, "postgres"), "--version"], check=True, text=True, stdout=subprocess.PIPE)
    return re.search(r"(\d+)", version.stdout).group(1)


def regress_folder(options):
    """Returns the folder with the server's built regression suite; exits if there is none."""
    major = major_version(options)
    folder = options.regress or os.path.expanduser(f"~/.cache/zundo/pg{major}/src/src/test/regress")
    if not os.path.exists(os.path.join(folder, "parallel_schedule")) or not os.path.exists(os.path.join(folder, "regress.so")):
        sys.exit(f"no built regression suite in {folder}: run tools/build-postgres {major}, or name a src/test/regress with --regress")
    return folder


def copy_regress(cluster, options):
    """Copies the suite to where the server's user can read it; returns the path."""
    copy = os.path.join(cluster.root, "regress")
    shutil.copytree(regress_folder(options), copy, symlinks=True)
    subprocess.run(["chmod", "-R", "a+rX", copy], check=True)
    return copy


def build_database(cluster, options):
    """Runs the server's regression suite, with all tables zheap; stops the server."""
    copy = copy_regress(cluster, options)
    output = os.path.join(cluster.root, "out")
    for made in (output, os.path.join(cluster.root, "space")):
        os.mkdir(made)
        os.chmod(made, 0o777)
    cluster.start()
    cluster.run(os.path.join(copy, "pg_regress"), f"--host={cluster.root}", "--port=5432", "--user=postgres", f"--bindir={options.bindir}",
                f"--inputdir={copy}", f"--outputdir={output}", "--load-extension=zundo", f"--schedule={copy}/parallel_schedule",
                f"--dlpath={copy}", "--max-concurrent-tests=20", check=False)
    conn = cluster.connect(DATABASE)
    run_sql(conn, "CREATE TABLESPACE fuzz_space LOCATION ''")
    if run_sql(conn, "SELECT 1 FROM pg_available_extensions WHERE name = 'amcheck'"):
        run_sql(conn, "CREATE EXTENSION amcheck")
    conn.close()
    cluster.stop()


def check_everything(cluster, when):
    """Runs zundo.check on every table, and amcheck on every btree index of them; returns the faults."""
    conn = cluster.connect(DATABASE)
    faults = []
    tables = run_sql(conn, "SELECT c.oid, c.oid::regclass::text FROM pg_class c JOIN pg_am m ON m.oid = c.relam "
                     "WHERE m.amname = 'zheap' AND c.relkind IN ('r', 'm') AND c.relpersistence <> 't'")
    for oid, name in tables + [("'zundo.undo_log'::regclass", "zundo.undo_log")]:
        try:
            faults += [f"{when}: zundo.check of {name}: {row}" for row in run_sql(conn, f"SELECT * FROM zundo.check({oid}::oid::regclass)")]
        except psycopg2.Error as error:
            faults.append(f"{when}: zundo.check of {name}: {error}")
    indexes = []
    if run_sql(conn, "SELECT 1 FROM pg_extension WHERE extname = 'amcheck'"):
        indexes = run_sql(conn, "SELECT i.indexrelid, i.indexrelid::regclass::text FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid "
                          "JOIN pg_class t ON t.oid = i.indrelid JOIN pg_am m ON m.oid = t.relam JOIN pg_am b ON b.oid = x.relam "
                          "WHERE m.amname = 'zheap' AND b.amname = 'btree' AND x.relkind = 'i' AND i.indisvalid AND t.relpersistence <> 't'")
    for oid, name in indexes:
        try:
            run_sql(conn, f"SELECT bt_index_check({oid}, true)")
        except psycopg2.Error as error:
            faults.append(f"{when}: amcheck of {name}: {error}")
    conn.close()
    print(f"{when}: {len(tables)} tables and {len(indexes)} indexes examined, {len(faults)} faults", flush=True)
    return faults


def wait_for_rollbacks(cluster, seconds=120):
    """Waits until aborted transactions are undone; returns a list of one fault if it takes too long, else []."""
    conn = cluster.connect(DATABASE)
    for (gid,) in run_sql(conn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
        run_sql(conn, f"ROLLBACK PREPARED '{gid}'")
    deadline = time.time() + seconds
    while True:
        waiting, left = run_sql(conn, "SELECT (SELECT count(*) FROM zundo.stat_rollback), zundo.undo_bytes_in_use()")[0]
        if waiting == 0 and left < 1000000:
            return []
        if time.time() > deadline:
            return [f"{waiting} rollbacks are not done after {seconds} s, {left} bytes of undo in use"]
        run_sql(conn, "SELECT txid_current()")
        time.sleep(0.5)


def own_files():
    """Returns the names of zundo's .c files, by which errors that it raises are recognized."""
    names = set()
    for folder, _, files in os.walk(SOURCES):
        if "/test" not in folder:
            names.update(name for name in files if name.endswith(".c"))
    return names


def errors_of(log):
    """Yields (SQLSTATE, message, function, file, line) for each error in the rest of a log."""
    last = {}                   # process -> its message for which the line with the function is still to come
    for line in log:
        process = PROCESS_LINE.match(line)
        if not process:
            continue
        message, place = MESSAGE_LINE.search(line), LOCATION_LINE.search(line)
        if message:
            last[process.group(1)] = message
        elif place and process.group(1) in last:
            level, code, text = last.pop(process.group(1)).groups()
            if level in ("ERROR", "FATAL", "PANIC"):
                yield (code, text, *place.groups())


def read_log(cluster, offset):
    """Reads the log from an offset on; returns (faults, counts of errors to be shown)."""
    faults, seen, ours, known = [], collections.Counter(), own_files() - {"guc.c"}, set()
    with open(cluster.log, encoding="utf-8", errors="replace") as log:
        log.seek(offset)
        for line in log:
            if DEATH.search(line):
                faults.append(f"server log: {line.strip()[:300]}")
                # the backtrace of a failed assertion, the statement of a process that a signal ended
                print(line + "".join(itertools.islice(log, 25 if "TRAP:" in line else 3)), flush=True)
        log.seek(offset)
        for code, text, function, file, number in errors_of(log):
            if code.startswith("XX") or code == "53200" or file in ours:
                seen[f"{code} {function}: {re.sub('[0-9]+', 'N', text)[:80]}"] += 1
            injected = text.startswith("zundo fault point")
            if code.startswith("XX") and not injected and function not in SERVERS_OWN and (function, number) not in known:
                known.add((function, number))
                faults.append(f"server log: {code} from {function}, {file}:{number}: {text[:200]}")
    return faults, seen


def show_cores(cluster):
    """Prints the stacks of processes that left a core file, if there is a debugger."""
    for core in glob.glob(os.path.join(cluster.data, "core*")):
        if shutil.which("gdb"):
            done = subprocess.run(["gdb", "-batch", "-ex", "bt 40", os.path.join(cluster.bindir, "postgres"), core],
                                  check=False, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            print(f"{core}:\n{done.stdout}", flush=True)


# --- the run ----------------------------------------------------------------


def parse_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="folder of the programs of a server that has zundo installed; best one with assertions")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock")
    parser.add_argument("--regress", help="the server's src/test/regress, built; default: that of tools/build-postgres")
    parser.add_argument("--base", help="data directory with the regression database, as --save-base left it")
    parser.add_argument("--save-base", help="copy the data directory there before the run")
    parser.add_argument("--buffers", default="16MB", help="shared_buffers")
    parser.add_argument("--smiths", type=int, default=2, help="processes of sqlsmith")
    parser.add_argument("--writers", type=int, default=3)
    parser.add_argument("--readers", type=int, default=1)
    parser.add_argument("--no-maintenance", action="store_true")
    parser.add_argument("--no-cancel", action="store_true")
    parser.add_argument("--no-memory", action="store_true", help="do not limit the memory of processes")
    parser.add_argument("--keep", action="store_true", help="do not remove the cluster if there is a fault")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = int(time.time()) % 1000000
    if options.smiths > 0 and shutil.which("sqlsmith") is None:
        parser.exit(2, "fuzz.py: the program sqlsmith is missing; it is in the package of that name (or use --smiths 0)\n")
    return options


STUCK = """
SELECT pid, application_name, extract(epoch FROM clock_timestamp() - query_start)::int, wait_event, left(query, 200) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND state = 'active' AND clock_timestamp() - query_start > interval '90 s'
"""


def watch_for_stuck(shared):
    """Notes a fault if a statement runs much longer than its timeout, at most 20 s, so that it cannot be cancelled."""
    conn = shared.connect("clock")
    try:
        for row in run_sql(conn, STUCK) if conn is not None else []:
            shared.fault(f"a statement does not end: {row}")
        if conn is not None:
            conn.close()
    except psycopg2.Error:
        pass


def load(shared):
    """Runs everything at the same time, for as long as the options say or until a fault."""
    conn = shared.connect("start")
    tables = Tables(conn)
    conn.close()
    print(f"{len(tables.all)} tables", flush=True)
    threads = [threading.Thread(target=smith, args=(shared, n)) for n in range(shared.options.smiths)]
    threads += [threading.Thread(target=writer, args=(shared, tables, n)) for n in range(shared.options.writers)]
    threads += [threading.Thread(target=reader, args=(shared, tables, n)) for n in range(shared.options.readers)]
    if not shared.options.no_maintenance:
        threads.append(threading.Thread(target=maintenance, args=(shared, tables)))
    if not shared.options.no_cancel:
        threads.append(threading.Thread(target=canceller, args=(shared,)))
    if not shared.options.no_memory:
        threads.append(threading.Thread(target=limiter, args=(shared,)))
    threading.excepthook = lambda death: shared.fault(f"{death.thread.name} of this program ended: {death.exc_type.__name__}: {death.exc_value}")
    for thread in threads:
        thread.daemon = True        # one that hangs does not keep the program from ending
        thread.start()
    deadline, look = time.time() + shared.options.minutes * 60, 0
    while time.time() < deadline and not shared.stop.wait(1):
        if not is_alive(shared.cluster.postmaster() or 0):
            shared.fault("the server is gone")
        elif time.time() > look:
            watch_for_stuck(shared)
            look = time.time() + 20
    shared.stop.set()
    deadline = time.time() + 180
    for thread in threads:
        thread.join(max(0.1, deadline - time.time()))
        if thread.is_alive():
            shared.faults.append("a session hangs: see pg_stat_activity")
            break


def new_cluster(options):
    """Returns a new cluster."""
    # not gist on 18: its replay makes other bytes, with heap tables as well
    checked = "'zundo,heap,heap2,btree,hash,gin,spgist,brin'" if major_version(options) == "18" else "all"
    return Cluster(options.bindir, SETTINGS + f"shared_buffers = {options.buffers}\nwal_consistency_checking = {checked}\n", cores=True)


def prepare_database(cluster, options):
    """Puts the regression database into the cluster: a saved one, or one that it makes with the suite."""
    if options.base:
        conf = os.path.join(cluster.data, "postgresql.conf")
        with open(conf, encoding="utf-8") as file:
            text = file.read()
        shutil.rmtree(cluster.data)
        subprocess.run(["cp", "-a", options.base, cluster.data], check=True)
        with open(conf, "w", encoding="utf-8") as file:
            file.write(text)
        copy = copy_regress(cluster, options)
        cluster.start()
        conn = cluster.connect(DATABASE)
        # the saved database names the C library of the suite in the other cluster's folder
        run_sql(conn, "SET allow_system_table_mods = on; UPDATE pg_proc SET probin = regexp_replace(probin, '^/.*/regress/', "
                f"'{copy}/') WHERE probin ~ '^/.*/regress/'")
        conn.close()
        cluster.stop()
    else:
        build_database(cluster, options)
    if options.save_base:
        subprocess.run(["cp", "-a", cluster.data, options.save_base], check=True)


def fuzz(cluster, options):
    """Runs the load and the checks after it; returns the faults."""
    offset = os.path.getsize(cluster.log) if os.path.exists(cluster.log) else 0
    cluster.start()
    shared = Shared(cluster, options)
    load(shared)
    faults = list(shared.faults)
    print(", ".join(f"{name} {count}" for name, count in sorted(shared.counts.items())), flush=True)
    show_cores(cluster)
    if is_alive(cluster.postmaster() or 0):
        faults += check_everything(cluster, "after the load")
        cluster.kill()
    cluster.start()
    faults += check_everything(cluster, "recovered")
    faults += wait_for_rollbacks(cluster)
    faults += check_everything(cluster, "all undone")
    found, seen = read_log(cluster, offset)
    for what, count in seen.most_common():
        print(f"  {count} times {what}")
    return faults + found


def main():
    """Makes one run; returns the exit status."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # so that the cluster is removed
    print(f"seed {options.seed}", flush=True)
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGOPTIONS"):
        os.environ.pop(name, None)
    cluster = new_cluster(options)
    faults = ["interrupted"]
    try:
        prepare_database(cluster, options)
        faults = fuzz(cluster, options)
        for fault in faults:
            print(f"FAULT {fault}")
        print(f"{options.minutes:g} minutes, seed {options.seed}: {len(faults)} faults")
        return 1 if faults else 0
    except (ClusterError, psycopg2.Error) as error:
        print(f"FAULT {error}\n{cluster.log_tail(30)}", flush=True)
        return 1
    finally:
        if faults and options.keep:
            print(f"the cluster is in {cluster.root}")
        cluster.remove(keep=bool(faults) and options.keep)


if __name__ == "__main__":
    sys.exit(main())
