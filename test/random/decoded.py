#!/usr/bin/python3
"""Runs random transactions on heap and zheap tables, which are decoded by test_decoding and applied by two subscribers.

Every table exists twice, as twins in the schemas heap and zheap. Each session makes the same changes to both twins, of rows
that no other session changes; only in the tables "shared" all sessions change the same rows, of one twin at a time. The
transactions have toasted values and keys, moved rows, upserts, rows that move between partitions, COPY, MERGE, savepoints,
errors, PREPARE TRANSACTION, every replica identity that a published table may have, columns added and dropped, types
changed, CLUSTER, SET ACCESS METHOD and TRUNCATE. Meanwhile walsenders are terminated, publisher and subscriber are killed,
subscriptions are dropped and created again, and on 19 tables are rewritten by REPACK (CONCURRENTLY). From 18 on an apply worker
finds the rows of zheap tables without a key by a zbtree index.

After each round the stream of test_decoding must have the same changes of both twins in each transaction, the twins must be
equal, and each subscriber must have the publisher's rows. At one subscriber the heap twins are zheap and vice versa.

    decoded.py --bindir DIR --rounds 10 [--seed N]
"""

import argparse
import collections
import io
import os
import random
import re
import signal
import sys
import threading
import time

import psycopg2

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, ClusterError  # noqa: E402  (same directory)

TWINS = ("keyed", "wholly", "parted", "longkey")
TABLES = TWINS + ("shared",)
COLUMNS = "id, k, v, w, n::text, b"
LOST = ("57P01", "57P02", "57P03", "08006", "08003", None)
EXPECTED = {"23505", "40P01", "55P03", "42701", "42703", "40001", "25P02"}

# The message (XX000) of a parallel apply worker whose leader has exited before the worker started; both are started again.
LEADER_ENDED = "could not find replication state slot for replication origin"
# A parallel apply worker inserts a row at once whose insertion has failed on the publisher, because of a duplicate key, in a
# subtransaction that was streamed before it was aborted. It fails again each time, also with heap tables (README.md).
DUPLICATE = re.compile(r"logical replication parallel worker 23505 ")
# An assertion of the server that decoding fails after DDL in subtransactions, also with heap tables (README.md).
SERVERS_ASSERTION = 'failed Assert("ent->cmin == change->data.tuplecid.cmin")'
# Columns that the publisher adds and drops; a subscriber always has them.
EXTRA = ", added int, more text"
SETUP = """
CREATE TABLE {s}.keyed (id int PRIMARY KEY{key}, k text NOT NULL, v text, w int, n numeric, b bool{extra});
CREATE UNIQUE INDEX keyed_k ON {s}.keyed (id, k){key};
CREATE INDEX keyed_w ON {s}.keyed USING {index} (w);
CREATE TABLE {s}.shared (LIKE {s}.keyed, PRIMARY KEY (id){key});
CREATE TABLE {s}.wholly (LIKE {s}.keyed);
CREATE INDEX wholly_id ON {s}.wholly USING {search} (id);
ALTER TABLE {s}.wholly REPLICA IDENTITY FULL;
CREATE TABLE {s}.parted (LIKE {s}.keyed, PRIMARY KEY (id, w)) PARTITION BY RANGE (w);
CREATE TABLE {s}.low PARTITION OF {s}.parted FOR VALUES FROM (MINVALUE) TO (5);
CREATE TABLE {s}.high PARTITION OF {s}.parted FOR VALUES FROM (5) TO (MAXVALUE);
CREATE TABLE {s}.longkey (LIKE {s}.keyed, PRIMARY KEY (k){key});
ALTER TABLE {s}.longkey ALTER k SET STORAGE EXTERNAL;
ALTER TABLE {s}.keyed ALTER v SET STORAGE EXTERNAL;
ALTER TABLE {s}.low ALTER v SET STORAGE EXTERNAL;
"""


class Different(Exception):
    """A stream or a table is not what it should be."""


def query(conn, sql):
    """Runs a statement; returns its rows, [] if it has none."""
    with conn.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else []


class Statements:
    """Makes statements about the rows of one session. {s} is the schema, {am} its access method, {other} the other one."""

    def __init__(self, rng, number, sessions):
        self.rng = rng
        self.number = number
        self.sessions = sessions

    def row(self):
        """Returns a random id of this session."""
        return self.rng.randrange(30) * self.sessions + self.number

    def value(self):
        """Returns a value whose length is not near the limits where only one of the twins would toast it."""
        rng = self.rng
        return rng.choice(["NULL", "''"] + [f"repeat('{rng.choice('abcdef')}', {rng.choice([1, 100, 126, 127, 600, 2600, 9000])})"] * 6
                          + [f"(SELECT string_agg(md5(i::text || '{rng.randrange(99)}'), '') FROM generate_series(1, {rng.choice([3, 100, 200])}) i)"] * 2)

    def assignment(self, table):
        """Returns what an UPDATE sets."""
        rng = self.rng
        if table == "longkey" and rng.random() < 0.4:
            return f"k = {self.key()}"
        # w is part of the key of parted: whether w + 1 meets a duplicate depends on the order of the rows
        step = "w = w + 1" if table != "parted" else "n = n + 1"
        return rng.choice([f"v = {self.value()}", f"v = {self.value()}", step, f"n = {rng.randrange(10 ** 9)}", "b = NOT b", f"w = {rng.randrange(10)}",
                           "n = NULL, b = NULL", f"v = v || '+', w = {rng.randrange(10)}", f"id = {self.row()}"])

    def key(self):
        """Returns a key of this session, often a toasted one."""
        return f"'{self.number}' || repeat('{self.rng.choice('ABCDEFGH')}', {self.rng.choice([1, 2400, 2400])})"

    def dml(self, table):
        """Returns a statement that changes or locks rows; for COPY a tuple ("COPY", table, data)."""
        rng, row = self.rng, self.row()
        key = self.key() if table == "longkey" else f"'k{row}'"
        values = f"({row}, {key}, {self.value()}, {rng.randrange(10)}, {rng.randrange(10 ** 6)}, true)"
        names = "(id, k, v, w, n, b)"
        conflict = {"parted": "(id, w)", "longkey": "(k)"}.get(table, "(id)")
        where = rng.choice([f"id = {row}"] * 5 + [f"id BETWEEN {row} AND {row + 60} AND id % {self.sessions} = {self.number}"])
        base, many = rng.randrange(1000, 10 ** 6), rng.choice([3, 40, 300])
        upsert = f"INSERT INTO {{s}}.{table} AS t {names} VALUES {values} ON CONFLICT {conflict} DO "
        if table == "wholly":
            upsert = None
        several = f"id >= 1000 AND id % {self.sessions} = {self.number} AND id % 4 = {rng.randrange(4)}"
        chosen = rng.choices(range(9), (20, 15, 35, 10, 4, 4, 4, 4, 4))[0]
        if chosen == 1 and upsert:
            return upsert + rng.choice(["UPDATE SET v = excluded.v, n = 7", "NOTHING"])
        if chosen == 3:
            return f"DELETE FROM {{s}}.{table} WHERE {where}"
        if chosen == 4 and table not in ("longkey", "shared"):
            return (f"INSERT INTO {{s}}.{table} (id, k, v, w) SELECT g * {self.sessions} + {self.number}, 'many', repeat('m', g % 5 * {rng.choice([10, 650])}), "
                    f"g % 10 FROM generate_series({base}, {base + many}) g")
        if chosen == 5 and table not in ("longkey", "shared"):
            return ("COPY", f"{{s}}.{table}", "".join(f"{g * self.sessions + self.number}\tcopied\t{'c' * (g % 6 * 600)}\t{g % 10}\n" for g in range(base, base + many // 4)))
        if chosen == 6:
            return rng.choice([f"DELETE FROM {{s}}.{table} WHERE {several}", f"UPDATE {{s}}.{table} SET n = n + 1 WHERE {several}"])
        if chosen == 7:
            return f"SELECT 1 FROM {{s}}.{table} WHERE {where} FOR {rng.choice(['UPDATE', 'SHARE', 'KEY SHARE'])}"
        if chosen == 8:
            return (f"MERGE INTO {{s}}.{table} t USING (SELECT {row} AS id) s ON t.id = s.id AND t.id % {self.sessions} = {self.number} WHEN MATCHED AND t.w > 6 THEN DELETE "
                    f"WHEN MATCHED THEN UPDATE SET v = {self.value()} WHEN NOT MATCHED THEN INSERT {names} VALUES {values}")
        if chosen == 0:
            return f"INSERT INTO {{s}}.{table} {names} VALUES {values}"
        return f"UPDATE {{s}}.{table} SET {self.assignment(table)} WHERE {where}"

    def ddl(self):
        """Returns a statement that changes a table, but not so that its subscribers would stop."""
        return self.rng.choice((
            "ALTER TABLE {s}.keyed REPLICA IDENTITY FULL", "ALTER TABLE {s}.keyed REPLICA IDENTITY DEFAULT", "ALTER TABLE {s}.keyed REPLICA IDENTITY USING INDEX keyed_k",
            "ALTER TABLE {s}.keyed ADD added int DEFAULT 5", "ALTER TABLE {s}.keyed ADD more text DEFAULT repeat('q', 200)", "ALTER TABLE {s}.keyed DROP added",
            "ALTER TABLE {s}.keyed DROP more", "ALTER TABLE {s}.keyed ALTER w TYPE bigint", "ALTER TABLE {s}.keyed ALTER w TYPE int", "CLUSTER {s}.keyed USING keyed_pkey",
            "ALTER TABLE {s}.wholly ALTER n TYPE numeric(30)", "ALTER TABLE {s}.wholly ALTER n TYPE numeric", "ALTER TABLE {s}.wholly SET ACCESS METHOD {other}",
            "ALTER TABLE {s}.wholly SET ACCESS METHOD {am}", "ALTER TABLE {s}.high SET ACCESS METHOD {other}", "ALTER TABLE {s}.high SET ACCESS METHOD {am}",
            "TRUNCATE {s}.longkey", "TRUNCATE {s}.wholly"))


class Session(threading.Thread):
    """Runs transactions while load.running is set, until load.over."""

    def __init__(self, load, number, seed):
        super().__init__(daemon=True)
        self.load = load
        self.number = number
        self.rng = random.Random(seed * 100 + number)
        self.statements = Statements(self.rng, number, load.sessions)
        self.conn = None
        self.serial = 0

    def run(self):
        """Runs random transactions until the load is over; connects again after a kill."""
        while not self.load.over:
            self.load.running.wait()
            with self.load.lock:
                self.load.busy += 1
            try:
                if self.conn is None:
                    self.conn = self.load.publisher.connect()
                self.transaction()
                self.load.done += 1
            except psycopg2.Error as error:
                if error.pgcode not in EXPECTED and error.pgcode not in LOST:
                    self.load.problems.append(f"{error.pgcode} {error}")
                self.reconnect()
            except Different as error:
                self.load.problems.append(str(error))
                self.reconnect()
            finally:
                with self.load.lock:
                    self.load.busy -= 1

    def reconnect(self):
        """Closes the connection; the next transaction opens a new one."""
        if self.conn is not None:
            self.conn.close()
        self.conn = None
        time.sleep(0.2)

    def transaction(self):
        """Runs one transaction. Most errors end only their statement; Different, deadlocks, lock timeouts and a lost
        connection end the transaction."""
        rng = self.rng
        query(self.conn, "BEGIN")
        query(self.conn, "SET LOCAL lock_timeout = '3s'")
        savepoints, has_ddl = 0, False
        for _ in range(rng.choice([1, 2, 4, 8, 20])):
            kind = rng.random()
            if kind < 0.1:
                query(self.conn, "SAVEPOINT own")
                savepoints += 1
            elif kind < 0.2 and savepoints:
                query(self.conn, "ROLLBACK TO own")
            elif kind < 0.23 and savepoints:
                query(self.conn, "RELEASE own")
                savepoints -= 1
            elif kind < 0.26 and self.load.may_alter:
                # else another session may add or drop the column between the two commands
                query(self.conn, "SELECT pg_advisory_xact_lock(1)")
                self.both(self.statements.ddl())
                has_ddl = True
            elif kind < 0.4:
                self.alone(rng.choice(("heap", "zheap")), Statements(rng, 0, 1).dml("shared"))
            else:
                table = rng.choice(TWINS)
                # else another session may truncate both twins between the two commands
                query(self.conn, f"LOCK TABLE heap.{table}, zheap.{table} IN ROW SHARE MODE")
                self.both(self.statements.dml(table))
        kind = rng.random()
        if kind < 0.15:
            query(self.conn, "ROLLBACK")
        elif kind < 0.3 and not has_ddl:
            # Up to 19 no server decodes a prepared transaction with a rewrite that is rolled back (t/018_decoded_twins.pl).
            self.serial += 1
            name = f"s{self.number}_{self.serial}"
            # The server sends COMMIT PREPARED, but no PREPARE, of a transaction that has only locked rows, also on heap.
            query(self.conn, "SELECT pg_logical_emit_message(true, 'prepared', '')")
            query(self.conn, f"PREPARE TRANSACTION '{name}'")
            time.sleep(rng.choice([0, 0, 0.05]))
            query(self.conn, f"{rng.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} PREPARED '{name}'")
        else:
            query(self.conn, "COMMIT")

    def alone(self, schema, statement):
        """Runs the statement in a subtransaction, on the twins of one schema.

        Returns the SQLSTATE of its error, or None. Raises errors that end the transaction.
        """
        other = "heap" if schema == "zheap" else "zheap"

        def own(text):
            return text.replace("{s}", schema).replace("{am}", schema).replace("{other}", other)
        query(self.conn, "SAVEPOINT one")
        try:
            with self.conn.cursor() as cursor:
                if isinstance(statement, tuple):
                    cursor.copy_expert(f"COPY {own(statement[1])} (id, k, v, w) FROM STDIN", io.StringIO(statement[2]))
                else:
                    cursor.execute(own(statement))
        except psycopg2.Error as error:
            if error.pgcode in ("40P01", "55P03") or error.pgcode not in EXPECTED:
                raise
            query(self.conn, "ROLLBACK TO one")
            return error.pgcode
        query(self.conn, "RELEASE one")
        return None

    def both(self, statement):
        """Runs the statement on both twins; raises Different if only one fails, or they fail with different errors."""
        codes = [self.alone(schema, statement) for schema in ("heap", "zheap")]
        if codes[0] != codes[1]:
            raise Different(f"heap {codes[0]}, zheap {codes[1]}: {statement}")


class Load:
    """The sessions, and what they share."""

    def __init__(self, publisher, version, sessions, seed, ddl):
        self.publisher = publisher
        self.version = version
        self.sessions = sessions
        self.ddl = ddl
        self.running = threading.Event()
        self.lock = threading.Lock()
        self.busy = self.done = 0
        self.over = False
        self.may_alter = ddl            # not while a subscriber copies: its snapshot would find a rewritten heap table empty
        self.problems = []
        for number in range(sessions):
            Session(self, number, seed).start()

    def pause(self):
        """Stops the sessions; waits until none is in a transaction."""
        self.running.clear()
        deadline = time.time() + 120
        while self.busy:
            if time.time() > deadline:
                raise Different("a session does not end its transaction")
            time.sleep(0.05)


class Subscriber:
    """A database of the subscribing cluster, with its tables and its subscription."""

    def __init__(self, cluster, publisher, name, methods, options):
        self.cluster = cluster
        self.publisher = publisher
        self.name = name
        self.options = options
        query(cluster.connect(), f"CREATE DATABASE {name}")
        make_tables(cluster.connect(name), methods, EXTRA, False)

    def subscribe(self):
        """Creates the subscription, which copies all tables; waits until they are synchronized."""
        conn = self.cluster.connect(self.name)
        for (name,) in query(conn, "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"):
            query(conn, f"ROLLBACK PREPARED '{name}'")
        for table in TABLES:
            query(conn, f"TRUNCATE heap.{table}, zheap.{table}")
        query(conn, f"CREATE SUBSCRIPTION {self.name} CONNECTION '{self.publisher.dsn()}' PUBLICATION {self.name} WITH ({self.options})")
        deadline = time.time() + 300
        while query(conn, "SELECT 1 FROM pg_subscription_rel WHERE srsubstate <> 'r' LIMIT 1"):
            if time.time() > deadline:
                raise Different(f"the tables of {self.name} are not synchronized")
            time.sleep(0.2)
        conn.close()

    def spool(self):
        """Has the apply worker spool streamed transactions until they end, and so never insert what was aborted, if a parallel
        apply worker fails because of a duplicate key. Returns whether one does."""
        stuck = "parallel" in self.options and DUPLICATE.search(self.cluster.log_tail(200))
        if stuck:
            self.stream("on")
        return bool(stuck)

    def stream(self, how):
        """Sets the subscription's option streaming."""
        conn = self.cluster.connect(self.name)
        query(conn, f"ALTER SUBSCRIPTION {self.name} SET (streaming = {how})")
        conn.close()

    def drop(self):
        """Drops the subscription."""
        conn = self.cluster.connect(self.name)
        query(conn, f"DROP SUBSCRIPTION {self.name}")
        conn.close()


def make_tables(conn, methods, extra, rows):
    """Creates the schemas heap and zheap with tables of the two access methods; with rows if rows is true."""
    query(conn, "CREATE EXTENSION zundo")
    for schema, method in zip(("heap", "zheap"), methods):
        query(conn, f"CREATE SCHEMA {schema}; SET default_table_access_method = {method}")
        index = "zbtree" if method == "zheap" else "btree"
        key = " WITH (access_method = zbtree)" if method == "zheap" else ""     # before 18 it is btree's nevertheless
        # the publisher changes the access method of wholly and high, which a zbtree index would prevent
        for sql in SETUP.format(s=schema, extra=extra, index=index, key=key, search="btree" if rows else index).split(";\n"):
            if sql.strip():
                query(conn, sql)
        for table in TABLES if rows else ():
            query(conn, f"INSERT INTO {schema}.{table} (id, k, v, w, n, b) SELECT g, 'k' || g, repeat('v', g * 20), g % 10, g, g % 2 = 0 FROM generate_series(1, 60) g")


def contents(conn, schema, table):
    """Returns the number of a table's rows and a sum of their hashes."""
    return query(conn, f"SELECT count(*), coalesce(sum(hashtext(r::text)::bigint), 0) FROM (SELECT {COLUMNS} FROM {schema}.{table}) r")[0]


def compare_stream(conn):
    """Compares the changes of the twins in each transaction that was decoded since the last call.

    A prepared transaction that is rolled back is not compared: its decoding ends where the decoder finds it aborted. Returns the
    number of changes, None if the server lacks test_decoding; raises Different.
    """
    if not query(conn, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'stream'")[0][0]:
        return None
    ended = {}
    changes = {"heap": collections.defaultdict(list), "zheap": collections.defaultdict(list)}
    number = 0
    for (line,) in query(conn, "SELECT data FROM pg_logical_slot_get_changes('stream', NULL, NULL, 'include-xids', '0')"):
        if line.startswith("PREPARE"):
            ended[line.split(",")[0].removeprefix("PREPARE TRANSACTION ")] = number
        if line.startswith("ROLLBACK PREPARED"):
            aborted = ended.get(line.split(",")[0].removeprefix("ROLLBACK PREPARED "))
            for twin in changes.values():
                twin.pop(aborted, None)
        if line.startswith(("COMMIT", "PREPARE", "ROLLBACK")):
            number += 1
        found = re.match(r"table (heap|zheap)\.(keyed|wholly|low|high|longkey)(: .*)", line, re.S)
        if found:
            changes[found.group(1)][number].append(found.group(2) + found.group(3))
        elif re.match(r"table [^:]*, ", line):
            raise Different(f"a TRUNCATE of several tables: {line}")
    for number in sorted(set(changes["heap"]) | set(changes["zheap"])):
        heap, zheap = (collections.Counter(changes[schema][number]) for schema in ("heap", "zheap"))
        if heap != zheap:
            only = [str(list((a - b).elements())[:5])[:1500] for a, b in ((heap, zheap), (zheap, heap))]
            raise Different(f"streams: only of heap {only[0]}; only of zheap {only[1]}")
    return sum(map(len, changes["zheap"].values()))


def compare_tables(publisher, subscribers):
    """Raises Different unless the twins are equal, and the subscribers have or soon get the same rows."""
    conn = publisher.connect()
    want = {(schema, table): contents(conn, schema, table) for schema in ("heap", "zheap") for table in TABLES}
    for table in TWINS:
        if want["heap", table] != want["zheap", table]:
            raise Different(f"{table}: heap {want['heap', table]}, zheap {want['zheap', table]}")
    for subscriber in subscribers:
        there = subscriber.cluster.connect(subscriber.name)
        begun = time.time()
        spooled = False
        for (schema, table), rows in want.items():
            while (now := contents(there, schema, table)) != rows:
                if time.time() > begun + 300:
                    raise Different(f"{schema}.{table} of {subscriber.name}: {now}, published {rows}")
                spooled = spooled or (time.time() > begun + 20 and subscriber.spool())
                time.sleep(0.2)
        there.close()
        if spooled:
            subscriber.stream("parallel")
    conn.close()


def repack(rng, publisher):
    """Rewrites both twins of a table while the sessions change them. A deadlock may prevent it."""
    conn = publisher.connect()
    table = rng.choice(("shared", "longkey", "low"))
    for schema in ("heap", "zheap"):
        try:
            query(conn, f"REPACK (CONCURRENTLY) {schema}.{table}")
        except psycopg2.Error as error:
            if error.pgcode not in EXPECTED:
                raise
    conn.close()


def disturb(rng, publisher, subscribers, load):
    """Disturbs the replication in a random way; returns how."""
    events = ["nothing", "walsenders", "walsenders", "publisher killed", "subscriber killed", "copied anew"]
    what = rng.choice(events + (["repacked"] * 3 if load.version >= 19 else []))
    if what == "walsenders":
        query(publisher.connect(), "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
    elif what == "publisher killed":
        publisher.kill()
        publisher.start()
    elif what == "subscriber killed":
        subscribers[0].cluster.kill()
        subscribers[0].cluster.start()
    elif what == "repacked":
        repack(rng, publisher)
    elif what == "copied anew":
        load.may_alter = False
        load.pause()
        load.running.set()
        subscriber = rng.choice(subscribers)
        subscriber.drop()
        subscriber.subscribe()
        load.may_alter = load.ddl
    return what


def one_round(rng, publisher, subscribers, load):
    """Runs the load, a disturbance, and the load again; then compares everything. Returns what happened."""
    load.running.set()
    time.sleep(rng.choice((1, 3)))
    what = disturb(rng, publisher, subscribers, load)
    time.sleep(rng.choice((1, 3)))
    load.pause()
    conn = publisher.connect()
    for (name,) in query(conn, "SELECT gid FROM pg_prepared_xacts"):
        query(conn, f"ROLLBACK PREPARED '{name}'")
    changes = compare_stream(conn)
    conn.close()
    compare_tables(publisher, subscribers)
    faults = load.problems + publisher.new_faults() + subscribers[0].cluster.new_faults()
    faults = [fault for fault in faults if LEADER_ENDED not in fault]
    if faults:
        raise Different(f"{what}: {faults[:5]}")
    return what if changes is None else f"{what}, {changes} changes of each twin"


def start_all(publisher, cluster):
    """Starts both servers and creates tables, publications and subscriptions; returns the Subscribers."""
    publisher.start()
    cluster.start()
    conn = publisher.connect()
    make_tables(conn, ("heap", "zheap"), "", True)
    tables = ", ".join(f"{schema}.{table}" for schema in ("heap", "zheap") for table in TABLES)
    query(conn, f"CREATE PUBLICATION turned FOR TABLE {tables} WITH (publish_via_partition_root)")
    query(conn, f"CREATE PUBLICATION same FOR TABLE {tables}")
    try:
        query(conn, "SELECT pg_create_logical_replication_slot('stream', 'test_decoding', false, true)")
    except psycopg2.errors.UndefinedFile:
        print("the server lacks test_decoding: streams are not compared", flush=True)
    parallel = "parallel" if conn.server_version >= 160000 else "on"
    conn.close()
    subscribers = [Subscriber(cluster, publisher, "turned", ("zheap", "heap"), f"streaming = {parallel}"),
                   Subscriber(cluster, publisher, "same", ("heap", "zheap"), "two_phase = true")]
    for subscriber in subscribers:
        subscriber.subscribe()
    return subscribers


def searches(cluster):
    """Returns how often apply workers have searched zbtree indexes for rows, as far as the statistics have outlived crashes."""
    conn = cluster.connect("same")
    found = query(conn, "SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname = 'zheap' AND indexrelname = 'wholly_id'")[0][0]
    conn.close()
    return found


def parse_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bindir", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="do not remove the clusters if a round fails")
    return parser.parse_args()


def main():
    """Runs the rounds; returns the exit status."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = options.seed if options.seed is not None else int(time.time()) % 1000000
    rng = random.Random(seed)
    settings = ("wal_level = logical\nfsync = off\nmax_wal_senders = 20\nmax_replication_slots = 40\nwal_retrieve_retry_interval = 100ms\n"
                "max_logical_replication_workers = 16\nmax_sync_workers_per_subscription = 4\n")
    publisher, cluster = Cluster(options.bindir, settings), Cluster(options.bindir, settings)
    # The server has faults, with heap tables too, when it streams transactions with DDL, and from 18 on aborted ones (README.md).
    version = int(re.search(r"(\d+)", publisher.run("postgres", "--version")).group(1))
    streams = version < 18 and seed % 2 == 1
    publisher.set(logical_decoding_work_mem="64kB" if streams else "64MB")
    print(f"seed {seed}, version {version}, {'streamed' if streams else 'with DDL'}", flush=True)
    failed = True
    load = None
    try:
        subscribers = start_all(publisher, cluster)
        load = Load(publisher, version, options.sessions, seed, not streams)
        conn = publisher.connect()
        compared = "twins and subscribers" if compare_stream(conn) is None else "streams, twins and subscribers"
        conn.close()
        by_index = 0
        for number in range(options.rounds):
            print(f"round {number + 1}: {one_round(rng, publisher, subscribers, load)}, {load.done} transactions", flush=True)
            by_index = max(by_index, searches(cluster))
        # each round in which the subscriber is killed loses the count
        if version >= 18 and options.rounds >= 5 and by_index == 0:
            raise Different("no apply worker has searched a zbtree index")
        conn = publisher.connect()
        for table in ("keyed", "shared", "low", "longkey"):
            found = query(conn, f"SELECT * FROM zundo.check('zheap.{table}')")
            if found:
                raise Different(f"zundo.check of {table}: {found[:5]}")
        failed = False
        print(f"{options.rounds} rounds, {load.done} transactions: {compared} are equal")
        return 0
    except (Different, ClusterError, psycopg2.Error) as error:
        if SERVERS_ASSERTION in publisher.log_tail():
            failed = False
            print(f"ended after {load.done} transactions by a failed assertion of the server (README.md)")
            return 0
        print(f"FAILED seed {seed}: {error}\n{publisher.log_tail(15)}{cluster.log_tail(15)}", flush=True)
        return 1
    finally:
        if load is not None:
            load.over = True
        keep = failed and options.keep
        if keep:
            print(f"the clusters are in {publisher.root} and {cluster.root}")
        else:
            publisher.remove()
            cluster.remove()


if __name__ == "__main__":
    sys.exit(main())
