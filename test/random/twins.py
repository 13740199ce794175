#!/usr/bin/python3
"""Runs the same transactions on zheap and on heap tables of one database, with crashes, a standby, and DDL.

Every table exists twice, as z_NAME (zheap) and h_NAME (heap). Each transaction makes the same changes to both, so these
twins must be equal in every snapshot: on the primary under load, on a standby, after a crash, and after promotion. A
transaction changes rows of its own client under READ COMMITTED, or rows that all clients change, on the same pages, under
REPEATABLE READ, where it fails at a conflict.

Transactions consist of inserts of one and of many rows, COPY, toasted values, rows that move, keys that change, deletes
and reuse of space, upserts, row locks, savepoints, errors, PREPARE TRANSACTION, large rollbacks, TRUNCATE, unlogged tables.
At the same time VACUUM, CLUSTER, VACUUM FULL, SET TABLESPACE, index builds and CHECKPOINT run; sessions are terminated, and
single processes are killed. Observers compare the twins all the time, by sequential, index and index-only scans, some with
old snapshots.

    twins.py --bindir DIR --rounds 10 [--standby] [--convert] [--seed N]

With --convert two sessions convert one table after another by zundo.convert, zheap twins to heap and back, and heap
twins. Meanwhile other DDL seldom comes to that table, and fewer transactions are prepared: both end most attempts.
"""

import argparse
import io
import os
import random
import shutil
import signal
import sys
import threading
import time

import psycopg2
import psycopg2.extensions

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import BAD_LOG, RECOVERED, Cluster, ClusterError, connect, kill_server, without_stock_assertions  # noqa: E402  (same directory)
import zbtree_side  # noqa: E402

GAP = 1 << 20                   # an update of a key adds or subtracts this
KEYS = 80                       # of one client
# fault points at which a client's process may kill itself, whereupon the postmaster restarts all processes
FAULTS = ("insert-logged", "covered-logged", "update-logged", "delete-logged", "move-logged", "prune-logged", "rows-saved", "rollback-logged", "undo-alloc", "undo-extend",
          "inline-lock-logged", "converting-locks", "locks-converted", "overflow-logged", "before-commit", "abort-callback")
# fault points at which a client's statement may fail, be cancelled, or wait a second
FAILING = ("undo-extend", "undo-prepare", "before-change", "converting-locks", "locks-done", "overflow-reserved", "overflow-attached", "before-commit")
# fault points at which it may wait; most are in critical sections, where it must not fail
WAITING = FAILING + ("insert-logged", "covered-logged", "update-logged", "delete-logged", "move-logged", "prune-logged", "rows-saved", "undo-alloc", "inline-lock-logged", "locks-converted",
                     "overflow-logged", "rollback-logged", "abort-callback")
TABLES = ("rows", "bag", "hot", "fleet")
# XX000 on a standby: a query has planned with an index that the primary then rebuilds with REINDEX CONCURRENTLY or drops;
# replay does not wait for the query. Heap tables without zundo show it as well (README.md).
INDEX_IS_GONE = "could not open relation with OID"
EXPECTED = {"40001", "40P01", "55P03", "57014", "23505", "22012", "57P01", "57P02", "57P03", "25P02", "42704", "55006",
            "53100", "53200", "08006", "08003", "25006", "42P01", "54000", "55000", "42P07", "08000"}

SETUP = """
CREATE EXTENSION IF NOT EXISTS zundo;
CREATE TABLE {t}_rows (id int PRIMARY KEY, owner int, n int, pad text, big text) USING {am} WITH (fillfactor = {fill});
ALTER TABLE {t}_rows ALTER big SET STORAGE EXTERNAL;
CREATE INDEX {t}_rows_owner ON {t}_rows USING {btree} (owner, n);
CREATE TABLE {t}_bag (owner int, serial bigint, pad text) USING {am};
ALTER TABLE {t}_bag ALTER pad SET STORAGE PLAIN;
CREATE INDEX {t}_bag_serial ON {t}_bag USING {btree} (serial);
CREATE TABLE {t}_hot (id int PRIMARY KEY, a int, b text) USING {am};
CREATE UNLOGGED TABLE {t}_fleet (id int, n int, pad text) USING {am};
CREATE INDEX {t}_fleet_id ON {t}_fleet USING {btree} (id);
INSERT INTO {t}_hot SELECT g, 0, repeat('x', 112) FROM generate_series(1, 60) g;
"""

# Further indexes on columns that change, if indexes are zbtree.
CHANGING = """
CREATE INDEX {t}_rows_n ON {t}_rows USING {btree} (n) INCLUDE (owner);
CREATE INDEX {t}_rows_pad ON {t}_rows USING {btree} (n DESC, left(pad, 3)) WHERE owner >= 0;
CREATE INDEX {t}_rows_two ON {t}_rows USING {btree} (owner, id) WHERE n = 2;
CREATE INDEX {t}_rows_in ON {t}_rows USING {btree} (n, id) INCLUDE (owner) WHERE n IN (0, 3) AND owner IS NOT NULL;
CREATE INDEX {t}_hot_odd ON {t}_hot USING {btree} (b) WHERE a = 1 OR a > 2;
CREATE INDEX {t}_hot_a ON {t}_hot USING {btree} (a, id);
CREATE INDEX {t}_fleet_n ON {t}_fleet USING {btree} (n);
"""

# Statements of the janitor, with which maintenance is done.
JANITOR = (
    "VACUUM z_rows", "VACUUM z_bag", "VACUUM z_hot", "VACUUM (FREEZE) z_rows", "VACUUM (DISABLE_PAGE_SKIPPING) z_rows", "VACUUM z_fleet",
    "VACUUM", "VACUUM h_rows", "ANALYZE z_rows", "CHECKPOINT", "CHECKPOINT", "CHECKPOINT",
    "CLUSTER z_rows USING z_rows_pkey", "CLUSTER z_rows USING z_rows_owner", "VACUUM FULL z_bag", "VACUUM FULL z_hot", "VACUUM FULL z_fleet",
    "REINDEX TABLE z_rows", "REINDEX INDEX CONCURRENTLY z_rows_owner", "CREATE INDEX CONCURRENTLY z_extra ON z_rows (n, id)",
    "DROP INDEX IF EXISTS z_extra", "CREATE INDEX z_extra2 ON z_bag (owner)", "DROP INDEX IF EXISTS z_extra2",
    "CREATE INDEX CONCURRENTLY z_extra3 ON z_hot USING hash (a)", "DROP INDEX CONCURRENTLY IF EXISTS z_extra3",
    "ALTER TABLE z_rows SET TABLESPACE side", "ALTER TABLE z_rows SET TABLESPACE pg_default", "ALTER TABLE z_bag ADD COLUMN IF NOT EXISTS junk int DEFAULT 7",
    "ALTER TABLE z_bag DROP COLUMN IF EXISTS junk",
    "BEGIN; LOCK z_hot, h_hot; ALTER TABLE z_hot ALTER a TYPE bigint; ALTER TABLE h_hot ALTER a TYPE bigint; COMMIT",
    "BEGIN; LOCK z_hot, h_hot; ALTER TABLE z_hot ALTER a TYPE int; ALTER TABLE h_hot ALTER a TYPE int; COMMIT",
    "SELECT zundo.discard()", "SELECT pg_switch_wal()", "CREATE INDEX CONCURRENTLY z_extra4 ON z_rows USING gin (string_to_array(pad, '-'))",
    "DROP INDEX IF EXISTS z_extra4",
)

COLUMNS = {"rows": "id, owner, n, pad, big", "bag": "owner, serial, pad", "hot": "id, a, b", "fleet": "id, n, pad"}


class Broken(Exception):
    """The twins differ, or something else is wrong."""


def twin_query(table):
    """Returns a query that compares the twins by count and sum; it returns no row if they are equal."""
    columns = COLUMNS[table]
    return (f"WITH z AS (SELECT count(*) AS c, coalesce(sum(hashtext(ROW({columns})::text)::bigint), 0) AS s FROM z_{table}), "
            f"h AS (SELECT count(*) AS c, coalesce(sum(hashtext(ROW({columns})::text)::bigint), 0) AS s FROM h_{table}) "
            "SELECT z.c, z.s, h.c, h.s FROM z, h WHERE z.c <> h.c OR z.s <> h.s")


# Queries that compare the twins by columns of an index; they return no row if they are equal.
INDEXED = (
    "WITH z AS (SELECT count(*) AS c, coalesce(sum(owner::bigint * 1000 + n), 0) AS s FROM z_rows WHERE owner >= 0), "
    "h AS (SELECT count(*) AS c, coalesce(sum(owner::bigint * 1000 + n), 0) AS s FROM h_rows WHERE owner >= 0) "
    "SELECT z.c, z.s, h.c, h.s FROM z, h WHERE z.c <> h.c OR z.s <> h.s",
    "WITH z AS (SELECT count(*) AS c, coalesce(sum(serial), 0) AS s FROM z_bag WHERE serial >= 0), "
    "h AS (SELECT count(*) AS c, coalesce(sum(serial), 0) AS s FROM h_bag WHERE serial >= 0) "
    "SELECT z.c, z.s, h.c, h.s FROM z, h WHERE z.c <> h.c OR z.s <> h.s",
    "WITH z AS (SELECT count(*) AS c, coalesce(sum(id::bigint), 0) AS s FROM z_rows WHERE id >= 0), "
    "h AS (SELECT count(*) AS c, coalesce(sum(id::bigint), 0) AS s FROM h_rows WHERE id >= 0) "
    "SELECT z.c, z.s, h.c, h.s FROM z, h WHERE z.c <> h.c OR z.s <> h.s",
)

# The same for the indexes of CHANGING: ranges in both directions, of columns whose few values occur again and again.
CHANGED = tuple(
    f"WITH z AS ({query.replace('@', 'z_')}), h AS ({query.replace('@', 'h_')}) SELECT z.v, h.v FROM z, h WHERE z.v IS DISTINCT FROM h.v"
    for query in (
        "SELECT md5(string_agg(q::text, ';')) AS v FROM (SELECT n, id, md5(pad) FROM @rows WHERE n BETWEEN 1 AND 3 ORDER BY n, id) q",
        "SELECT md5(string_agg(q::text, ';')) AS v FROM (SELECT n, count(*) FROM @rows WHERE n < 100 GROUP BY n ORDER BY n DESC) q",
        # partial indexes
        "SELECT md5(string_agg(q::text, ';')) AS v FROM (SELECT owner, id, md5(pad) FROM @rows WHERE n = 2 ORDER BY owner, id) q",
        "SELECT md5(string_agg(q::text, ';')) AS v FROM (SELECT n, id, owner FROM @rows WHERE n IN (0, 3) AND owner IS NOT NULL ORDER BY n, id) q",
        "SELECT md5(string_agg(q::text, ';')) AS v FROM (SELECT b, count(*) FROM @hot WHERE a > 2 GROUP BY b ORDER BY b COLLATE \"C\") q",
        # index-only, with an included column
        "SELECT md5(string_agg(q::text, ';')) AS v FROM (SELECT n, owner FROM @rows WHERE n BETWEEN 0 AND 5 ORDER BY n, owner) q",
        "SELECT md5(string_agg(q::text, ';')) AS v FROM (SELECT a, id FROM @hot WHERE a >= 0 ORDER BY a, id) q",
        "SELECT concat(min(a), ' ', max(a), ' ', sum(id::bigint)) AS v FROM @hot WHERE a > 1",
        "SELECT md5(string_agg(q::text, ';')) AS v FROM (SELECT a, id, md5(b) FROM @hot WHERE a >= 0 ORDER BY a DESC, id DESC) q",
        "SELECT concat(min(n), ' ', max(n), ' ', count(*), ' ', sum(id::bigint)) AS v FROM @rows WHERE n = ANY (ARRAY[0, 2, 5])"))


def set_up(fill, zbtree):
    """Returns the statements that create the twins."""
    sql = SETUP + CHANGING if zbtree else SETUP
    return (sql.format(t="z", am="zheap", fill=fill, btree="zbtree" if zbtree else "btree")
            + sql.format(t="h", am="heap", fill=fill, btree="btree"))


class Context:
    """Data that the threads of a run share."""

    def __init__(self, options):
        self.options = options
        self.stop = threading.Event()
        self.problems = []
        self.commits = 0
        self.rollbacks = 0
        self.prepared = 0
        self.compared = 0
        self.converted = 0
        self.attempts = 0           # to convert a table
        self.converting = set()     # tables
        self.codes = {}
        self.zbtree = False

    def problem(self, text):
        """Notes a fault, and ends the load."""
        self.problems.append(text)
        self.stop.set()

    def count_error(self, error, what):
        """Counts an error of the server; one that is not expected is a fault."""
        code = error.pgcode
        self.codes[code] = self.codes.get(code, 0) + 1
        if code is not None and code not in EXPECTED and not (self.options.convert and code == "42809") and not (what.startswith("standby") and INDEX_IS_GONE in str(error)):
            self.problem(f"{what}: {code} {str(error).strip()[:400]}")


def check(cursor, table, what):
    """Raises Broken if zundo.check finds something in the table; one that has been converted to heap is passed over."""
    name = table if "." in table else "z_" + table
    cursor.execute("SELECT c.* FROM pg_class t JOIN pg_am a ON a.oid = t.relam AND amname <> 'heap', LATERAL zundo.check(t.oid) c "
                   f"WHERE t.oid = '{name}'::regclass")
    found = cursor.fetchall()
    if found:
        raise Broken(f"{what}: zundo.check of {name}: {found[:3]}")


def connect_unless_stopped(dsn, ctx):
    """Returns a connection that commits each statement; waits until the server accepts it. None once stop is set."""
    while not ctx.stop.is_set():
        try:
            conn = psycopg2.connect(dsn, options="-c lock_timeout=1000 -c statement_timeout=60000")
            conn.autocommit = True
            return conn
        except psycopg2.Error:
            time.sleep(0.2)
    return None


class Client:
    """A client, which runs transactions on both twins."""

    def __init__(self, ctx, number, seed):
        self.ctx = ctx
        self.number = number
        self.rng = random.Random(seed * 1009 + number)
        self.serial = number * 10**9
        self.gid = 0

    def both(self, cursor, sql, *args):
        """Runs a statement on both twins; @ in names stands for z_ and h_.

        Returns the number of rows; raises Broken if it is not the same.
        """
        counts = []
        for twin in "zh":
            cursor.execute(sql.replace("@", twin + "_"), args)
            counts.append(cursor.rowcount)
        if counts[0] != counts[1]:
            raise Broken(f"client {self.number}: {counts[0]} rows on zheap, {counts[1]} on heap: {cursor.query[:300]}")
        return counts[0]

    def copy(self, cursor, table, lines):
        """Copies the lines into both twins."""
        for twin in "zh":
            cursor.copy_expert(f"COPY {twin}_{table} ({COLUMNS[table]}) FROM STDIN", io.StringIO("".join(lines)))

    def keys(self, wide):
        """Returns a range of keys: if wide, of those that all clients change, else of this client's."""
        rng = self.rng
        if wide:
            base = rng.randrange(self.ctx.options.clients) * 1000 + 500
        else:
            base = self.number * 1000
        low = base + rng.randrange(KEYS)
        return low, low + rng.choice([0, 0, 0, 0, 3, 10, KEYS])

    def change_keys(self, cursor, wide):
        """Changes indexed columns, often to a value that the row has had before."""
        rng = self.rng
        low, high = self.keys(wide)
        kind = rng.random()
        if kind < 0.4:
            self.both(cursor, "UPDATE @rows SET n = %s WHERE id BETWEEN %s AND %s", rng.randint(0, 4), low, high)
        elif kind < 0.6:
            self.both(cursor, "UPDATE @rows SET n = (n + 1) %% 4, owner = owner WHERE id BETWEEN %s AND %s", low, high)
        elif kind < 0.7:
            self.both(cursor, "UPDATE @rows SET n = -n, pad = left(pad || 'k', 100) WHERE id BETWEEN %s AND %s", low, high)
        elif kind < 0.9:
            self.both(cursor, "UPDATE @hot SET a = %s WHERE id = %s", rng.randint(0, 3), rng.randint(21, 60) if wide else 1 + self.number)
        else:
            self.both(cursor, "UPDATE @fleet SET n = %s WHERE id %% 100 = %s", rng.randint(0, 3), self.number)

    def change(self, cursor, wide):
        """Makes one random change; if wide, of rows that all clients change."""
        rng = self.rng
        if self.ctx.zbtree and rng.random() < 0.3:
            self.change_keys(cursor, wide)
            return
        kind = rng.random()
        width = rng.choice([0, 1, 10, 10, 100, 500, 1500])
        low, high = self.keys(wide)
        owner = self.number + (1000 if wide else 0)
        if kind < 0.12:
            key = low + (GAP if rng.random() < 0.2 else 0)
            big = rng.choice([None, None, None, 3000, 20000])
            # no upsert if wide: which rows it meets does not depend on the snapshot alone
            self.both(cursor, "INSERT INTO @rows VALUES (%s, %s, %s, repeat('p', %s), (SELECT repeat(md5(%s::text), %s)))"
                      + ("" if wide else " ON CONFLICT (id) DO UPDATE SET n = @rows.n + 1, pad = excluded.pad"), key, owner, rng.randrange(50), width, key, None if big is None else big // 32)
        elif kind < 0.17:
            self.both(cursor, "INSERT INTO @rows SELECT g, %s, 0, repeat('m', %s) FROM generate_series(%s, %s) g"
                      + ("" if wide else " ON CONFLICT DO NOTHING"), owner, width, low, min(high, low + 3) if wide else high)
        elif kind < 0.3:
            self.both(cursor, "UPDATE @rows SET n = n + 1 WHERE id BETWEEN %s AND %s", low, high)
        elif kind < 0.4:
            self.both(cursor, "UPDATE @rows SET pad = repeat('q', (%s + id %% 7) ) WHERE id BETWEEN %s AND %s", width, low, high)
        elif kind < 0.45:
            self.both(cursor, "UPDATE @rows SET big = repeat(md5(n || '.' || id), %s) WHERE id BETWEEN %s AND %s", rng.choice([0, 70, 300]), low, min(high, low + 3))
            # all values of the client go, so that those of others get their space
            if not wide and rng.random() < 0.2:
                self.both(cursor, "DELETE FROM @rows WHERE owner = %s AND big IS NOT NULL", owner)
        elif kind < 0.5:
            self.both(cursor, "UPDATE @rows SET id = CASE WHEN id >= %s THEN id - %s ELSE id + %s END WHERE id = %s OR id = %s", GAP, GAP, GAP, low, low + GAP)
        elif kind < 0.58:
            self.both(cursor, "DELETE FROM @rows WHERE id BETWEEN %s AND %s", low, high)
        elif kind < 0.63:
            lock = rng.choice(["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"])
            self.both(cursor, f"SELECT id, n FROM @rows WHERE id BETWEEN %s AND %s ORDER BY id FOR {lock}", low, high)
        elif kind < 0.75:
            self.both(cursor, "UPDATE @hot SET a = a + 1, b = repeat('h', %s) WHERE id = %s", rng.choice([1, 100, 110, 112, 112, 112, 116]),
                      rng.randint(21, 60) if wide else 1 + self.number)
        elif kind < 0.8:
            n = rng.choice([1, 5, 50, 500])
            if rng.random() < 0.1:
                n, width = rng.randint(1, 20), 3900     # one or two rows fill a page
            self.serial += n
            self.both(cursor, "INSERT INTO @bag SELECT %s, %s - g, repeat('b', %s) FROM generate_series(1, %s) g", self.number, self.serial, width, n)
        elif kind < 0.84:
            n = rng.choice([1, 20, 300])
            self.serial += n
            self.copy(cursor, "bag", [f"{self.number}\t{self.serial - g}\t{'c' * width}\n" for g in range(n)])
        elif kind < 0.9:
            some = rng.choice(["", " AND length(pad) > 1000"] + [f" AND serial %% 5 = {rng.randrange(5)}"] * 4)
            self.both(cursor, "DELETE FROM @bag WHERE owner = %s" + some, self.number)
        elif kind < 0.93:
            self.both(cursor, "UPDATE @bag SET pad = pad || 'u' WHERE owner = %s AND serial %% 7 = %s", self.number, rng.randrange(7))
        elif kind < 0.95:
            self.both(cursor, "INSERT INTO @fleet SELECT g * 100 + %s, 0, repeat('f', %s) FROM generate_series(1, %s) g", self.number, width, rng.choice([1, 30]))
        elif kind < 0.97:
            self.both(cursor, "UPDATE @fleet SET n = n + 1 WHERE id %% 100 = %s", self.number)
        elif kind < 0.98:
            self.both(cursor, "DELETE FROM @fleet WHERE id %% 100 = %s", self.number)
        elif kind < 0.99:
            cursor.execute("SELECT 1 / 0")
        else:
            name = f"own_{self.number}"
            cursor.execute(f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (a int PRIMARY KEY, b text) USING zheap")
            cursor.execute(f"INSERT INTO {name} SELECT g, repeat('o', 100) FROM generate_series(1, 300) g; UPDATE {name} SET b = 'n' WHERE a % 3 = 0; "
                           f"DELETE FROM {name} WHERE a % 7 = 0")
            cursor.execute(f"SELECT count(*) FROM {name}")
            if cursor.fetchone() != (258,):
                raise Broken(f"client {self.number}: {name} has not 258 rows")

    def settle_prepared(self, conn):
        """Commits or rolls back this client's prepared transactions, some of them from before a crash."""
        with conn.cursor() as cursor:
            cursor.execute("SELECT gid FROM pg_prepared_xacts WHERE gid ^@ %s", (f"c{self.number}_",))
            for (gid,) in cursor.fetchall():
                cursor.execute(("COMMIT" if self.rng.random() < 0.5 else "ROLLBACK") + f" PREPARED '{gid}'")
                self.ctx.prepared += 1

    def level(self, cursor, wide, depth):
        """Makes some changes, some in subtransactions up to depth 4."""
        rng = self.rng
        for _ in range(rng.choice([1, 1, 2, 4, 8])):
            if rng.random() < 0.25 and depth < 4:
                name = f"s{depth}"
                cursor.execute(f"SAVEPOINT {name}")
                try:
                    self.level(cursor, wide, depth + 1)
                    cursor.execute(f"{'ROLLBACK TO' if rng.random() < 0.5 else 'RELEASE'} {name}")
                except psycopg2.Error as error:
                    if cursor.connection.closed or error.pgcode in ("40001", "40P01", "57P01", None):
                        raise
                    self.ctx.count_error(error, f"client {self.number}")
                    cursor.execute(f"ROLLBACK TO {name}")
            else:
                self.change(cursor, wide)

    def transaction(self, conn):
        """Runs one random transaction."""
        rng = self.rng
        wide = rng.random() < 0.35
        with conn.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL " + ("REPEATABLE READ" if wide else "READ COMMITTED"))
            if rng.random() < 0.03:
                self.both(cursor, "UPDATE @rows SET n = n + 1, pad = pad || 'L' WHERE owner = %s", self.number)
                self.both(cursor, "UPDATE @bag SET pad = pad || 'L' WHERE owner = %s", self.number)
            self.level(cursor, wide, 0)
            if rng.random() < 0.1:
                cursor.execute(self.compare_own())
                if cursor.fetchall():
                    raise Broken(f"client {self.number}: the twins differ within its transaction")
            end = rng.random()
            if end < 0.25:
                cursor.execute("ROLLBACK")
                self.ctx.rollbacks += 1
            elif end < (0.27 if self.ctx.options.convert else 0.33) and self.ctx.options.prepare:
                self.gid += 1
                cursor.execute(f"PREPARE TRANSACTION 'c{self.number}_{self.gid}_{rng.randrange(10**9)}'")
            else:
                cursor.execute("COMMIT")
                self.ctx.commits += 1

    def compare_own(self):
        """Returns a query that compares this client's rows of the twins."""
        return (f"SELECT * FROM ((SELECT id, owner, n, pad, big FROM z_rows WHERE owner = {self.number} EXCEPT ALL SELECT id, owner, n, pad, big FROM h_rows "
                f"WHERE owner = {self.number}) UNION ALL (SELECT id, owner, n, pad, big FROM h_rows WHERE owner = {self.number} EXCEPT ALL "
                f"SELECT id, owner, n, pad, big FROM z_rows WHERE owner = {self.number})) d LIMIT 3")

    def trouble(self):
        """Returns a random value of zundo.fault with which some statements fail, are cancelled, or wait at a fault point."""
        rng = self.rng
        failures = [f"{point}:{rng.choice(('disk', 'memory', 'cancel'))}" for point in rng.sample(FAILING, 4)]
        return ",".join(f"{item}:{rng.randint(1, 60)}" for item in failures + [f"{point}:sleep" for point in rng.sample(WAITING, 3)])

    def run(self, dsn):
        """Runs transactions until stop is set; connects again after its session has ended."""
        ctx = self.ctx
        while not ctx.stop.is_set():
            conn = connect_unless_stopped(dsn, ctx)
            if conn is None:
                return
            try:
                with conn.cursor() as cursor:
                    cursor.execute(f"SET zundo.eager_rollback_pages = {self.rng.choice([0, 1, 32])}")
                    if ctx.options.faults and self.rng.random() < 0.04:
                        cursor.execute(f"SET zundo.fault = '{self.rng.choice(FAULTS)}:crash'")
                while not ctx.stop.is_set():
                    try:
                        if self.ctx.options.convert or self.rng.random() < 0.5:
                            self.settle_prepared(conn)
                        if ctx.options.trouble and self.rng.random() < 0.2:
                            with conn.cursor() as cursor:
                                cursor.execute(f"SET zundo.fault = '{self.trouble()}'")
                        self.transaction(conn)
                        if self.rng.random() < 0.01:
                            break
                    except psycopg2.Error as error:
                        ctx.count_error(error, f"client {self.number}")
                        if conn.closed or error.pgcode in ("57P01", "57P02", None):
                            break
                        with conn.cursor() as cursor:
                            cursor.execute("ROLLBACK")
                conn.close()
            except psycopg2.Error as error:
                ctx.count_error(error, f"client {self.number}")
            except SystemError:
                pass                # psycopg2 raises it if the server dies during a COPY
            except Broken as error:
                ctx.problem(str(error))


def compare_twins(conn, table, ctx, what):
    """Raises Broken unless the twins of a table are equal in the snapshot of this statement."""
    with conn.cursor() as cursor:
        cursor.execute(twin_query(table))
        found = cursor.fetchall()
        if found:
            cursor.execute(f"SELECT * FROM (SELECT 'z', {COLUMNS[table]} FROM z_{table} EXCEPT ALL SELECT 'z', {COLUMNS[table]} FROM h_{table}) x LIMIT 3")
            more = cursor.fetchall()
            cursor.execute(f"SELECT * FROM (SELECT 'h', {COLUMNS[table]} FROM h_{table} EXCEPT ALL SELECT 'h', {COLUMNS[table]} FROM z_{table}) x LIMIT 3")
            raise Broken(f"{what}: twins of {table} differ: {found} {str(more)[:300]} {str(cursor.fetchall())[:300]}")
    ctx.compared += 1


def check_indexes(cursor, what):
    """Raises Broken if zundo.check_index finds something in a zbtree index."""
    cursor.execute(zbtree_side.FAULTS)
    found = cursor.fetchall()
    if found:
        raise Broken(f"{what}: zundo.check_index: {found[:5]}")


def observe(ctx, dsn, number, seed, what):
    """Compares the twins until stop is set; what names the server in messages."""
    rng = random.Random(seed * 1013 + number)
    tables = [t for t in TABLES if not (what.startswith("standby") and t == "fleet")]
    while not ctx.stop.is_set():
        conn = connect_unless_stopped(dsn, ctx)
        if conn is None:
            return
        try:
            with conn.cursor() as cursor:
                while not ctx.stop.is_set():
                    cursor.execute(f"SET enable_seqscan = {rng.choice(['on', 'off'])}; SET enable_bitmapscan = {rng.choice(['on', 'off'])}; "
                                   f"SET enable_indexonlyscan = {rng.choice(['on', 'on', 'off'])}; SET enable_indexscan = {rng.choice(['on', 'off'])};"
                                   f"SET max_parallel_workers_per_gather = {rng.choice([0, 0, 2])}; SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0")
                    try:
                        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                        for _ in range(rng.choice([1, 1, 2, 8])):
                            compare_twins(conn, rng.choice(tables), ctx, what)
                            cursor.execute(rng.choice(INDEXED + CHANGED * 2 if ctx.zbtree else INDEXED))
                            found = cursor.fetchall()
                            if found:
                                raise Broken(f"{what}: index scans of the twins differ: {found} {cursor.query[:60]}")
                            if rng.random() < 0.3:
                                ctx.stop.wait(rng.choice([0.1, 0.5, 0.1 if ctx.converting else 2]))
                        cursor.execute("COMMIT")
                    except psycopg2.Error as error:
                        ctx.count_error(error, what)
                        if conn.closed or error.pgcode in ("57P01", "57P02", None):
                            break
                        cursor.execute("ROLLBACK")
            conn.close()
        except psycopg2.Error as error:
            ctx.count_error(error, what)
        except Broken as error:
            ctx.problem(str(error))


def janitor(ctx, dsn, seed):
    """Runs maintenance and checks, and cancels and terminates sessions, until stop is set."""
    rng = random.Random(seed * 1019)
    while not ctx.stop.is_set():
        conn = connect_unless_stopped(dsn, ctx)
        if conn is None:
            return
        try:
            with conn.cursor() as cursor:
                while not ctx.stop.is_set():
                    ctx.stop.wait(rng.choice([0, 0.05, 0.3]))
                    try:
                        kind = rng.random()
                        if kind < 0.06:
                            cursor.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND "
                                           "(backend_type = 'client backend' OR backend_type LIKE 'zundo%') ORDER BY random() LIMIT 1")
                        elif kind < 0.09:
                            cursor.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() ORDER BY random() LIMIT 3")
                        elif kind < 0.11:
                            table = rng.choice(("bag", "fleet"))
                            cursor.execute(f"BEGIN; LOCK z_{table}, h_{table}; TRUNCATE z_{table}, h_{table}; {rng.choice(['COMMIT', 'ROLLBACK'])}")
                        elif kind < 0.14:
                            check(cursor, rng.choice(TABLES + ("zundo.undo_log",)), "under load")
                            if ctx.zbtree:
                                check_indexes(cursor, "under load")
                        else:
                            sql = rng.choice(JANITOR)
                            if any(table in sql for table in tuple(ctx.converting)) and rng.random() < 0.95:
                                continue
                            cursor.execute(sql)
                    except psycopg2.Error as error:
                        ctx.count_error(error, "janitor")
                        if conn.closed or error.pgcode in ("57P01", "57P02", None):
                            break
                        cursor.execute("ROLLBACK")
            conn.close()
        except psycopg2.Error as error:
            ctx.count_error(error, "janitor")
        except Broken as error:
            ctx.problem(str(error))


def convert(ctx, dsn, seed, tables):
    """Converts these tables, and drops what failed attempts have left, until stop is set."""
    rng = random.Random(seed * 1021)
    while not ctx.stop.is_set():
        conn = connect_unless_stopped(dsn, ctx)
        if conn is None:
            return
        try:
            with conn.cursor() as cursor:
                cursor.execute("SET deadlock_timeout = '2s'; SET lock_timeout = '10s'; SET statement_timeout = 0")
                for table in tables:        # a crash has ended attempts
                    cursor.execute(f"CALL zundo.convert_cleanup('{table}')")
                while not ctx.stop.is_set():
                    table = rng.choice(tables)
                    cursor.execute(f"SELECT amname FROM pg_am a JOIN pg_class c ON c.relam = a.oid WHERE c.oid = '{table}'::regclass")
                    (am,) = cursor.fetchone()
                    # zbtree indexes are for zheap tables only
                    to = "zheap" if am == "heap" or (ctx.zbtree and table[0] == "z") else "heap"
                    ctx.attempts += 1
                    ctx.converting.add(table)
                    try:
                        cursor.execute(f"CALL zundo.convert('{table}', '{to}', lock_wait => {rng.choice([50, 900])}, "
                                       f"step => {rng.choice([1, 5, 100])}, pause => {rng.choice([0, 0, 20])})")
                        ctx.converted += 1
                    except psycopg2.Error as error:
                        # 0A000: an index is being built
                        if error.pgcode != "0A000":
                            ctx.count_error(error, "convert")
                        if conn.closed or error.pgcode in ("57P01", "57P02", None):
                            break
                        cursor.execute(f"CALL zundo.convert_cleanup('{table}')")
                    finally:
                        ctx.converting.discard(table)
            conn.close()
        except psycopg2.Error as error:
            ctx.count_error(error, "convert")


def wait_for_quiet(conn, ctx, seconds=240):
    """Waits until aborted transactions are undone and old undo is discarded; returns the bytes of undo left.

    The time limit allows for observers, which on a slow machine may hold a snapshot for 90 s.
    """
    deadline = time.time() + seconds
    with conn.cursor() as cursor:
        while True:
            cursor.execute("SELECT zundo.undo_bytes_in_use(), (SELECT count(*) FROM zundo.stat_rollback)")
            left, waiting = cursor.fetchone()
            if waiting == 0 and left < 300000:
                return left
            if time.time() > deadline:
                cursor.execute("SELECT * FROM zundo.stat_horizon LIMIT 3")
                raise Broken(f"{left} bytes of undo are still in use, {waiting} rollbacks wait: {cursor.fetchall()}")
            cursor.execute("SELECT txid_current()")
            time.sleep(0.3)


def verify(dsn, ctx, what, settle=True):
    """Raises Broken unless the twins are equal and zundo.check_index finds nothing.

    With settle, which needs a primary, it also runs zundo.check, ends prepared transactions, waits for rollbacks, and
    compares again.
    """
    conn = connect(dsn)
    with conn.cursor() as cursor:
        for again in range(2 if settle else 1):
            for seqscan in ("on", "off"):
                cursor.execute(f"SET enable_seqscan = {seqscan}; SET enable_bitmapscan = {seqscan}")
                for table in TABLES:
                    if table != "fleet" or settle:
                        compare_twins(conn, table, ctx, f"{what}, pass {again}, seqscan {seqscan}")
                for sql in INDEXED + CHANGED if ctx.zbtree else INDEXED:
                    cursor.execute(sql)
                    found = cursor.fetchall()
                    if found:
                        raise Broken(f"{what}: index scans of the twins differ: {found} {sql[:60]}")
            if ctx.zbtree:
                check_indexes(cursor, f"{what}, pass {again}")
            if settle:
                for table in TABLES + ("zundo.undo_log",):
                    check(cursor, table, f"{what}, pass {again}")
                if again == 0:
                    cursor.execute("SELECT gid FROM pg_prepared_xacts")
                    for number, (gid,) in enumerate(cursor.fetchall()):
                        cursor.execute(("COMMIT" if number % 2 else "ROLLBACK") + f" PREPARED '{gid}'")
                    wait_for_quiet(conn, ctx)
    conn.close()


def verify_standby(cluster, standby, ctx, what):
    """Does what verify does on a standby that has replayed everything. Replay may cancel it, by what autovacuum does on the
    primary; it begins again then, at most 20 times."""
    for again in range(20):
        catch_up(cluster.dsn(), standby.dsn())
        try:
            verify(standby.dsn(), ctx, what, settle=False)
            return
        except psycopg2.Error as error:
            if error.pgcode != "40001" or again == 19:
                raise


def configure(path, lines):
    """Appends settings to the postgresql.conf of a data directory."""
    with open(os.path.join(path, "postgresql.conf"), "a", encoding="utf-8") as conf:
        conf.write("\n".join(lines) + "\n")


class Copy:
    """A server that is made from a base backup of the cluster."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.root = os.path.join(cluster.root, name)
        self.data = os.path.join(self.root, "data")
        self.log = os.path.join(self.root, "server.log")
        shutil.rmtree(self.root, ignore_errors=True)
        os.mkdir(self.root)
        os.chmod(self.root, 0o755)
        if cluster.user:
            shutil.chown(self.root, cluster.user)
        cluster.run("pg_basebackup", "-d", cluster.dsn(), "-D", self.data, "-X", "stream", "-c", "fast",
                    f"--tablespace-mapping={cluster.root}/side={self.root}/side")

    def dsn(self):
        """Returns the connection string."""
        return f"host={self.root} port=5432 user=postgres dbname=postgres"

    def start(self, lines, signal_file=None):
        """Starts the server with further settings, and with this empty file in its data directory."""
        configure(self.data, [f"unix_socket_directories = '{self.root}'"] + lines)
        if signal_file:
            path = os.path.join(self.data, signal_file)
            with open(path, "w", encoding="utf-8"):
                pass
            if self.cluster.user:
                shutil.chown(path, self.cluster.user)
        self.cluster.run("pg_ctl", "-s", "-w", "-t", "120", "-D", self.data, "-l", self.log, "start")

    def restart(self):
        """Starts the server again."""
        self.cluster.run("pg_ctl", "-s", "-w", "-t", "120", "-D", self.data, "-l", self.log, "start")

    def kill(self):
        """Kills all processes of the server, as a power failure would."""
        kill_server(self.data, os.path.join(self.root, ".s.PGSQL.5432"))

    def stop(self, mode="immediate"):
        """Stops the server, if it is running."""
        self.cluster.stop(mode, self.data)

    def faults(self):
        """Returns the lines of its log that report a crash or corruption."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                lines = log.readlines()
        except OSError:
            return []
        after_crash = any(RECOVERED in line for line in lines)
        return [line for line in without_stock_assertions(lines, after_crash)[0] if BAD_LOG.search(line)]


def catch_up(primary, standby, seconds=300):
    """Waits until the standby has replayed what the primary has written; raises Broken if it takes too long."""
    conn = connect(primary)
    with conn.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_insert_lsn()")
        (lsn,) = cursor.fetchone()
        cursor.execute("SELECT pg_switch_wal(), txid_current()")
    conn.close()
    deadline = time.time() + seconds
    while True:
        conn = connect(standby)
        with conn.cursor() as cursor:
            cursor.execute("SELECT coalesce(pg_last_wal_replay_lsn() >= %s::pg_lsn, true)", (lsn,))
            (done,) = cursor.fetchone()
        conn.close()
        if done:
            return
        if time.time() > deadline:
            raise Broken("the standby does not catch up")
        time.sleep(0.2)


def crash(cluster, rng, ctx):
    """Stops or kills the server in a random way; returns which."""
    kind = rng.choice(["kill", "kill", "immediate", "fast", "child", "kill twice", "kill twice", "worker"])
    if ctx.options.whole_pages:
        kind = rng.choice(["immediate", "fast"])
    if kind in ("child", "worker"):
        # one process dies, and while the postmaster restarts all others, the server is killed
        found = None
        try:
            conn = cluster.connect()
            with conn.cursor() as cursor:
                cursor.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type "
                               + ("LIKE 'zundo%worker%'" if kind == "worker" else "= 'client backend'") + " ORDER BY random() LIMIT 1")
                found = cursor.fetchone()
            conn.close()
        except psycopg2.Error:
            pass                # a client's fault has killed a process just now: the server is restarting
        if found:
            os.kill(found[0], signal.SIGKILL)
            time.sleep(rng.choice([0.05, 0.5, 2]))
        else:
            kind = "no " + kind
        cluster.kill()
    elif kind in ("immediate", "fast"):
        cluster.stop(kind)
    else:
        cluster.kill()
    if kind == "kill twice":
        for _ in range(rng.choice([1, 2])):
            # in the middle of recovery
            cluster.run("pg_ctl", "-s", "-W", "-D", cluster.data, "-l", cluster.log, "start", check=False)
            deadline = time.time() + 10
            while cluster.postmaster() is None and time.time() < deadline:
                time.sleep(0.01)
            time.sleep(rng.choice([0.02, 0.05, 0.1, 0.3, 1]))
            cluster.kill()
    return kind


def load(cluster, ctx, clients, seed, number, standby):
    """Starts clients, observers and the janitor; returns the threads."""
    threads = [threading.Thread(target=c.run, args=(cluster.dsn(),)) for c in clients]
    threads += [threading.Thread(target=observe, args=(ctx, cluster.dsn(), n, seed + number, "observer")) for n in range(2)]
    if not ctx.options.no_janitor:
        threads.append(threading.Thread(target=janitor, args=(ctx, cluster.dsn(), seed + number)))
    if ctx.options.convert:
        threads += [threading.Thread(target=convert, args=(ctx, cluster.dsn(), seed + number, tables))
                    for tables in (("z_rows", "h_hot"), ("z_hot", "h_rows"))]
    if standby:
        threads += [threading.Thread(target=observe, args=(ctx, standby.dsn(), n + 10, seed + number, "standby")) for n in range(2)]
    for thread in threads:
        thread.start()
    return threads


def drop_slot(cluster):
    """Drops the slot of a standby that does not exist any more, since it would keep undo."""
    conn = cluster.connect()
    with conn.cursor() as cursor:
        cursor.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    conn.close()


def start_standby(cluster, rng):
    """Makes and starts a standby with a replication slot; returns (standby, description)."""
    standby = Copy(cluster, "standby")
    feedback = rng.choice(["on", "off"])
    delay = rng.choice(["0", "200ms", "2s"])
    conn = cluster.connect()
    with conn.cursor() as cursor:
        cursor.execute("SELECT pg_create_physical_replication_slot('standby') WHERE NOT EXISTS (SELECT 1 FROM pg_replication_slots)")
    conn.close()
    standby.start([f"primary_conninfo = 'host={cluster.root} port=5432 user=postgres'", "primary_slot_name = 'standby'",
                   f"hot_standby_feedback = {feedback}", f"max_standby_streaming_delay = {delay}",
                   f"max_standby_archive_delay = {delay}"], "standby.signal")
    return standby, f"standby (feedback {feedback}), "


def one_round(cluster, ctx, clients, rng, seed, number):
    """Runs the load, a crash and recovery, and compares the twins; raises Broken.

    With --standby also on a standby, which may be killed, or promoted during the load.
    """
    options = ctx.options
    ctx.stop.clear()
    standby = None
    what = ""
    if options.standby:
        standby, what = start_standby(cluster, rng)
    threads = load(cluster, ctx, clients, seed, number, standby)
    seconds = rng.uniform(0.5, options.seconds)
    ctx.stop.wait(seconds)
    if standby and rng.random() < 0.5 and not ctx.stop.is_set():
        # the standby restarts from its last restartpoint
        what += "standby killed, "
        (standby.stop if ctx.options.whole_pages else standby.kill)()
        standby.restart()
        ctx.stop.wait(rng.uniform(0.1, 2))
    if standby and rng.random() < 0.7:
        # the promoted standby rolls back all transactions that are open on the primary
        cluster.run("pg_ctl", "-s", "-w", "-t", "300", "-D", standby.data, "promote")
        what += "promoted, "
        verify(standby.dsn(), ctx, "promoted standby")
        standby.stop("fast")
        if standby.faults():
            raise Broken(f"log of the standby: {standby.faults()[:3]}")
        standby = None
    how = crash(cluster, rng, ctx)
    ctx.stop.set()
    for thread in threads:
        thread.join(90)
        if thread.is_alive():
            raise Broken("a thread does not end")
    if ctx.problems:
        raise Broken("; ".join(ctx.problems[:3]))
    begin = time.time()
    cluster.start()
    recovery = time.time() - begin
    if options.standby and not standby:
        drop_slot(cluster)
    if standby:
        verify_standby(cluster, standby, ctx, "standby after the crash")
    verify(cluster.dsn(), ctx, "after the crash")
    if standby:
        verify_standby(cluster, standby, ctx, "standby at the end")
        standby.stop("fast")
        if standby.faults():
            raise Broken(f"log of the standby: {standby.faults()[:3]}")
    faults = cluster.new_faults()
    if faults:
        raise Broken(f"server log: {faults[:5]}")
    print(f"round {number + 1}: {what}{how} after {seconds:.1f} s: {ctx.commits} commits, {ctx.rollbacks} rollbacks, {ctx.prepared} prepared, "
          f"{ctx.compared} comparisons, {ctx.converted} conversions of {ctx.attempts}, {cluster.stock_assertions} failed assertions of the server so far; started in {recovery:.1f} s; {sorted(ctx.codes.items(), key=str)}", flush=True)


def parse_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="folder of the programs of a server that has zundo installed")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8, help="longest load before a crash")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--buffers", default=None, help="shared_buffers; default: random")
    parser.add_argument("--standby", action="store_true", help="run a streaming standby, which is sometimes promoted")
    parser.add_argument("--consistency", action="store_true", help="wal_consistency_checking = all")
    parser.add_argument("--faults", action="store_true", help="let clients kill themselves at fault points")
    parser.add_argument("--trouble", action="store_true", help="let statements fail, be cancelled or wait at fault points")
    parser.add_argument("--zbtree", dest="zbtree_mode", choices=zbtree_side.MODES, default="mixed",
                        help="use zbtree indexes on zheap tables, and more of them; mixed: in odd seeds")
    parser.add_argument("--convert", action="store_true", help="two sessions convert tables to the other access method, again and again")
    parser.add_argument("--no-prepare", dest="prepare", action="store_false")
    parser.add_argument("--no-janitor", action="store_true")
    parser.add_argument("--whole-pages", action="store_true", help="do not kill the server, which may tear pages: for full_page_writes = off")
    parser.add_argument("--setting", action="append", default=[], help="NAME=VALUE for postgresql.conf")
    parser.add_argument("--keep", action="store_true", help="do not remove the cluster if a round fails")
    return parser.parse_args()


def main():
    """Runs the rounds; returns the exit status."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = options.seed if options.seed is not None else int(time.time()) % 1000000
    rng = random.Random(seed)
    buffers = options.buffers or rng.choice(["1MB", "2MB", "16MB"])
    fill = rng.choice([50, 90, 100])
    print(f"seed {seed}, shared_buffers {buffers}, zbtree {zbtree_side.chosen(options.zbtree_mode, seed)}", flush=True)
    settings = (f"shared_buffers = {buffers}\ncheckpoint_timeout = 30s\nmax_wal_size = 128MB\nfsync = off\nwal_level = replica\n"
                f"autovacuum = {rng.choice(['on', 'off'])}\nautovacuum_naptime = 1s\nmax_wal_senders = 10\nhot_standby = on\nwal_keep_size = 1GB\n")
    if options.consistency:
        settings += "wal_consistency_checking = 'zundo,heap,heap2,btree,hash,gin'\n"
    if zbtree_side.chosen(options.zbtree_mode, seed):
        settings += "zundo.default_index = zbtree\n"       # the keys, too, from 18 on
    settings += "".join(s.replace("=", " = '", 1) + "'\n" for s in options.setting)
    cluster = Cluster(options.bindir, settings)
    os.mkdir(os.path.join(cluster.root, "side"))
    if cluster.user:
        shutil.chown(os.path.join(cluster.root, "side"), cluster.user)
    ctx = Context(options)
    ctx.zbtree = zbtree_side.chosen(options.zbtree_mode, seed)
    failed = True
    try:
        cluster.start()
        conn = cluster.connect()
        with conn.cursor() as cursor:
            cursor.execute(f"CREATE TABLESPACE side LOCATION '{cluster.root}/side'")
            cursor.execute(set_up(fill, ctx.zbtree))
        conn.close()
        clients = [Client(ctx, n, seed) for n in range(options.clients)]
        for number in range(options.rounds):
            one_round(cluster, ctx, clients, rng, seed, number)
        failed = False
        print(f"{options.rounds} rounds, the twins are equal")
        return 0
    except (Broken, ClusterError, psycopg2.Error, SystemError) as error:
        ctx.stop.set()
        print(f"FAILED seed {seed}: {error}\n{'; '.join(ctx.problems[:5])}\n{cluster.log_tail(30)}", flush=True)
        return 1
    finally:
        ctx.stop.set()
        keep = failed and options.keep
        if keep:
            print(f"the cluster is in {cluster.root}")
        standby = os.path.join(cluster.root, "standby", "data")
        if os.path.isdir(standby):
            cluster.run("pg_ctl", "-s", "-w", "-D", standby, "-m", "immediate", "stop", check=False)
        cluster.remove(keep=keep)


if __name__ == "__main__":
    sys.exit(main())
