#!/usr/bin/python3
"""Changes unique keys of a zheap table in many sessions: no snapshot may ever see two rows with one key.

The table has three unique zbtree indexes, one of them partial, one with nulls that are not distinct. Sessions shift and swap
keys, change them there and back, delete and insert rows, upsert, use savepoints, roll back, prepare transactions and fail.
Two sessions compare the table with its indexes, by scans of each kind, as often as a snapshot lasts. VACUUM and REINDEX run
meanwhile. With --kill a backend is killed now and then, and the server recovers. With --standby a session compares on a
standby too, which is promoted under load at the end.

    unique.py --bindir DIR --minutes 1 [--seed N] [--sessions 6] [--kill SECONDS] [--standby] [--heap]
"""

import argparse
import collections
import os
import random
import signal
import sys
import threading
import time

import psycopg2

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import twins  # noqa: E402  (same directory)
from cluster import Cluster  # noqa: E402

EXPECTED = ("23505", "40P01", "40001", "55P03", "57P01", "57P02", "57P03", "25P02")
TABLE = """
CREATE TABLE u (id int, k int, w int, n int, v text) USING {am} WITH (fillfactor = 70);
CREATE UNIQUE INDEX u_k ON u USING {iam} (k) INCLUDE (v);
CREATE UNIQUE INDEX u_w ON u USING {iam} (w) WHERE w > 0;
CREATE UNIQUE INDEX u_n ON u USING {iam} (n, id) NULLS NOT DISTINCT;
CREATE INDEX u_id ON u (id);
INSERT INTO u SELECT g, g * 2, g, NULL, 'v' FROM generate_series(1, {rows}) g
"""
# settings under which a query uses one kind of scan alone
WAYS = {"seq": "on off off", "index": "off on off", "only": "off on on"}
PLAN = "SET LOCAL enable_seqscan = {}; SET LOCAL enable_indexscan = {}; SET LOCAL enable_indexonlyscan = {}; SET LOCAL enable_bitmapscan = off"


class Run:
    """The sessions of one run, and what they have seen."""

    def __init__(self, cluster, options):
        self.cluster = cluster
        self.options = options
        self.until = time.time() + options.minutes * 60
        self.counts = collections.Counter()
        self.faults = []
        self.lock = threading.Lock()

    def count(self, name):
        """Counts an event."""
        with self.lock:
            self.counts[name] += 1

    def fault(self, text):
        """Notes a fault."""
        with self.lock:
            self.faults.append(text)
        print("FAULT", text, flush=True)

    def connect(self, autocommit=False, dsn=None):
        """Returns a connection, to the cluster or by dsn, when the server accepts one."""
        for _ in range(1200):
            try:
                conn = psycopg2.connect(dsn or self.cluster.dsn())
                conn.autocommit = autocommit
                return conn
            except psycopg2.OperationalError:
                time.sleep(0.1)
        raise SystemExit("the server does not come back")

    def statement(self, rng, cursor, number):
        """Makes one change, or looks."""
        rows = self.options.rows
        one, other = rng.randint(1, rows), rng.randint(1, rows)
        key, key2 = rng.randint(1, rows * 2 + 10), rng.randint(1, rows * 2 + 10)
        pick = rng.random()
        if pick < .28:
            cursor.execute("UPDATE u SET k = %s WHERE id = %s", (key, one))
        elif pick < .4:
            cursor.execute("UPDATE u SET k = %s WHERE k = %s", (key, key2))
        elif pick < .48:
            cursor.execute("UPDATE u SET w = %s, n = %s WHERE id = %s", (rng.randint(-3, rows), rng.choice([None, 1, 2]), one))
        elif pick < .56:
            cursor.execute("SELECT k FROM u WHERE id = %s", (one,))
            found = cursor.fetchone()
            if found:
                cursor.execute("UPDATE u SET k = %s WHERE id = %s AND k = %s", (key, one, found[0]))
                cursor.execute("UPDATE u SET k = %s WHERE id = %s", (found[0], one))
        elif pick < .63:
            cursor.execute("SELECT id, k FROM u WHERE id IN (%s, %s) ORDER BY id FOR UPDATE", (one, other))
            found = cursor.fetchall()
            if len(found) == 2 and found[0][0] != found[1][0]:
                cursor.execute("UPDATE u SET k = %s WHERE id = %s", (-found[0][1] - 1000 * number, found[0][0]))
                cursor.execute("UPDATE u SET k = %s WHERE id = %s", (found[0][1], found[1][0]))
                cursor.execute("UPDATE u SET k = %s WHERE id = %s", (found[1][1], found[0][0]))
        elif pick < .66:
            cursor.execute("UPDATE u SET k = k + 1 WHERE k BETWEEN %s AND %s", (key, key + 3))
        elif pick < .72:
            cursor.execute("DELETE FROM u WHERE id = %s", (one,))
        elif pick < .77:
            cursor.execute("INSERT INTO u VALUES (%s, %s, NULL, NULL, 'i')", (one, key))
        elif pick < .88:
            cursor.execute("INSERT INTO u VALUES (%s, %s, NULL, %s, 'i') ON CONFLICT (k) DO UPDATE SET v = 'up' RETURNING k", (one, key, number))
            found = cursor.fetchall()
            if found != [(key,)]:
                self.fault(f"upsert of {key} returned {found}")
        elif pick < .94:
            cursor.execute("INSERT INTO u VALUES (%s, %s, %s, NULL, 'i') ON CONFLICT DO NOTHING", (one, key, one))
        else:
            cursor.execute("SELECT count(*) FROM u WHERE k = %s", (key,))
            if cursor.fetchone()[0] > 1:
                self.fault(f"two rows with k = {key} by the index")
        self.count("statements")

    def transaction(self, rng, conn, number):
        """Runs one transaction and ends it."""
        cursor = conn.cursor()
        for _ in range(rng.randint(1, 5)):
            nested = rng.random() < .4
            if nested:
                cursor.execute("SAVEPOINT a")
            try:
                self.statement(rng, cursor, number)
                if nested and rng.random() < .3:
                    cursor.execute("ROLLBACK TO a")
            except psycopg2.errors.UniqueViolation:
                self.count("23505")
                if not nested:
                    raise
                cursor.execute("ROLLBACK TO a")
        pick = rng.random()
        if pick < .15:
            conn.rollback()
        elif pick < .2:
            name = f"u{number}"
            cursor.execute(f"PREPARE TRANSACTION '{name}'")
            conn.rollback()
            conn.autocommit = True
            cursor.execute(f"{rng.choice(['COMMIT', 'ROLLBACK'])} PREPARED '{name}'")
            conn.autocommit = False
            self.count("prepared")
        else:
            conn.commit()
            self.count("commits")

    def write(self, number):
        """Runs transactions until the time is over."""
        rng = random.Random(self.options.seed * 1000 + number)
        conn = None
        while time.time() < self.until:
            try:
                if conn is None:
                    conn = self.connect(autocommit=True)
                    with conn.cursor() as cursor:
                        cursor.execute("SET deadlock_timeout = '50ms'; SET lock_timeout = '5s'")
                        cursor.execute("SELECT count(*) FROM pg_prepared_xacts WHERE gid = %s", (f"u{number}",))
                        if cursor.fetchone()[0]:
                            cursor.execute(f"ROLLBACK PREPARED 'u{number}'")
                    conn.autocommit = False
                self.transaction(rng, conn, number)
            except psycopg2.Error as error:
                self.count(error.pgcode or "lost")
                if error.pgcode and error.pgcode not in EXPECTED:
                    self.fault(f"{error.pgcode} {error}")
                try:
                    conn.rollback()
                    conn.autocommit = False
                except psycopg2.Error:
                    conn = None

    def seen(self, cursor, way):
        """Returns the rows that the snapshot sees by one kind of scan."""
        cursor.execute(PLAN.format(*WAYS[way].split()))
        cursor.execute("SELECT k, v FROM u WHERE k > -100000 ORDER BY k, v")
        return cursor.fetchall()

    def look(self, number, dsn=None):
        """Looks at the table with one snapshot after the other; that of number 0 lasts longer."""
        conn = None
        while time.time() < self.until:
            try:
                conn = conn or self.connect(dsn=dsn)
                cursor = conn.cursor()
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                first = self.seen(cursor, "seq")
                keys = [row[0] for row in first]
                if len(keys) != len(set(keys)):
                    self.fault(f"duplicates: {sorted(key for key in set(keys) if keys.count(key) > 1)}")
                ends = time.time() + (3 if number == 0 else 0.02)
                while True:
                    for way in ("index", "only", "seq"):
                        now = self.seen(cursor, way)
                        if now != first:
                            self.fault(f"{way} scan: {set(now) ^ set(first)}")
                    if time.time() > ends:
                        break
                    time.sleep(0.05)
                conn.rollback()
                self.count("looks on the standby" if dsn else "looks")
            except psycopg2.Error:
                try:
                    conn.rollback()
                except psycopg2.Error:
                    conn = None

    def tend(self):
        """Runs VACUUM and REINDEX, and kills backends."""
        rng = random.Random(self.options.seed)
        killed = time.time()
        while time.time() < self.until:
            try:
                conn = self.connect(autocommit=True)
                cursor = conn.cursor()
                cursor.execute("VACUUM u")
                if rng.random() < .2:
                    cursor.execute("REINDEX INDEX " + rng.choice(["u_k", "u_n", "CONCURRENTLY u_k", "CONCURRENTLY u_w"]))
                self.count("tended")
                if self.options.kill and killed + self.options.kill < time.time() < self.until - 3:
                    killed = time.time()
                    cursor.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1")
                    os.kill(cursor.fetchone()[0], signal.SIGKILL)
                    self.count("kills")
                conn.close()
            except (psycopg2.Error, ProcessLookupError, TypeError):
                pass
            time.sleep(0.7)

    def check(self, dsn=None):
        """Looks for duplicates, and lets zundo check the indexes."""
        cursor = self.connect(autocommit=True, dsn=dsn).cursor()
        cursor.execute("SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off")
        for columns, condition in (("k", "true"), ("w", "w > 0"), ("n, id", "true")):
            cursor.execute(f"SELECT {columns}, count(*) FROM u WHERE {condition} GROUP BY {columns} HAVING count(*) > 1")
            found = cursor.fetchall()
            if found:
                self.fault(f"duplicates of {columns}: {found}")
        if not self.options.heap:
            cursor.execute("SELECT i, c.* FROM unnest('{u_k,u_w,u_n}'::regclass[]) i, zundo.check_index(i) c UNION ALL SELECT 'u', c.* FROM zundo.check('u') c")
            for row in cursor.fetchall():
                self.fault(f"check: {row}")

    def promote(self, standby):
        """Promotes the standby shortly before the end, and checks it; what was open on the primary is rolled back there."""
        time.sleep(max(0, self.until - time.time() - 4))
        self.cluster.run("pg_ctl", "-s", "-w", "-t", "300", "-D", standby.data, "promote")
        self.check(standby.dsn())

    def run(self):
        """Runs all sessions to their end; returns the exit status."""
        cursor = self.connect(autocommit=True).cursor()
        am, iam = ("heap", "btree") if self.options.heap else ("zheap", "zbtree")
        cursor.execute("CREATE EXTENSION zundo;" + TABLE.format(am=am, iam=iam, rows=self.options.rows))
        threads = [threading.Thread(target=self.write, args=(i + 1,)) for i in range(self.options.sessions)]
        threads += [threading.Thread(target=self.look, args=(i,)) for i in range(2)] + [threading.Thread(target=self.tend)]
        if self.options.standby:
            standby = twins.Copy(self.cluster, "standby")
            standby.start([f"primary_conninfo = 'host={self.cluster.root} port=5432 user=postgres'", "hot_standby_feedback = on"], "standby.signal")
            threads.append(threading.Thread(target=self.look, args=(1, standby.dsn())))
        for thread in threads:
            thread.start()
        if self.options.standby:
            self.promote(standby)
        for thread in threads:
            thread.join()
        for line in standby.faults() if self.options.standby else []:
            self.fault(f"log of the standby: {line}")
        time.sleep(1)                   # the server may not have noticed a kill yet
        self.cluster.wait_until_up()
        self.check()
        for line in self.cluster.new_faults():
            if not self.options.kill or "signal 9" not in line:
                self.fault(f"server log: {line}")
        print(("FAILED: " if self.faults else "no duplicate: ") + ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items())))
        return 1 if self.faults else 0


def main():
    """Runs the program; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="folder of the programs of a server, of 18 or later, that has zundo installed")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--rows", type=int, default=40, help="the fewer, the more conflicts")
    parser.add_argument("--kill", type=float, default=0, help="seconds from one killed backend to the next; 0: none")
    parser.add_argument("--standby", action="store_true", help="a standby, which is promoted at the end")
    parser.add_argument("--heap", action="store_true", help="heap and btree instead")
    parser.add_argument("--keep", action="store_true", help="do not remove the cluster")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # so that the cluster is removed
    cluster = Cluster(options.bindir, "fsync = off\nshared_buffers = 16MB\nmax_prepared_transactions = 20\nrestart_after_crash = on\n")
    try:
        cluster.start()
        return Run(cluster, options).run()
    finally:
        cluster.stop("immediate", os.path.join(cluster.root, "standby", "data"))
        cluster.remove(keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
