#!/usr/bin/python3
"""Kills the server under load, in many rounds, and checks that no acknowledged commit is lost.

Clients run transactions on zheap tables of a private cluster: counters, inserts,
deletes and inserts of the same key, updates of indexed columns and of keys,
savepoints, rollbacks. Each client changes only its own keys, and remembers what the
server has acknowledged. At a random time all server processes are killed, or one
kills itself at a fault point (zundo.fault). After recovery:

    every row is as its client last committed it; a transaction whose COMMIT the server
    had not acknowledged is committed completely or not at all,
    the shared counters agree with what the clients have added,
    zundo.check() finds nothing, index and sequential scans agree,
    aborted changes are undone and their undo is discarded.

Then the next round continues with the same data.

    crash.py --bindir DIR --rounds 12
"""

import argparse
import os
import random
import signal
import sys
import threading
import time

import psycopg2

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, ClusterError, connect  # noqa: E402  (same directory)

FAULTS = ["insert-logged", "covered-logged", "update-logged", "delete-logged", "move-logged", "prune-logged", "rows-saved", "indexes-cleaned", "rollback-logged",
          "discard-logged", "worker-cycle", "truncate", "undo-alloc", "undo-extend", "abort-callback"]
# Fault points that only background processes or VACUUM reach: they are set for all processes.
GLOBAL_FAULTS = {"discard-logged", "worker-cycle", "truncate"}
KEYS = 60
SHARED = 10
GAP = 1 << 20                   # an update of a key adds or subtracts this; pad_of() knows it

SETUP = """
CREATE EXTENSION IF NOT EXISTS zundo;
CREATE TABLE rows (id int PRIMARY KEY, owner int, n int, pad text) USING zheap WITH (fillfactor = 90);
ALTER TABLE rows ALTER pad SET STORAGE EXTERNAL;
CREATE INDEX rows_owner ON rows (owner, n);
CREATE FUNCTION pad_of(id int, width int) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT left(repeat(md5(id % 1048576 || '.' || width), width / 32 + 1), width) $$;
CREATE TABLE shared (id int PRIMARY KEY, n bigint) USING zheap;
CREATE TABLE journal (owner int, serial int, pad text) USING zheap;
CREATE TABLE scratch (id int, pad text) USING zheap;
CREATE UNLOGGED TABLE fleeting (id int, n int) USING zheap;
"""


class Broken(Exception):
    """The server has lost rows or made wrong ones, or does not do what it should."""


class Client:
    """One client, and its ledger of what the server has acknowledged.

    The ledger is: state, {key: (id, n, length of pad)}; shared, what the client has added to each shared counter;
    journal, the serial numbers that it has inserted into the journal.
    """

    def __init__(self, number, seed):
        self.number = number
        self.rng = random.Random(seed * 1000 + number)
        self.state = {}
        self.shared = [0] * SHARED
        self.journal = set()
        self.serial = 0
        self.floor = 0                  # the highest shared counter that the transaction has changed
        self.in_doubt = None            # the ledger after the transaction whose COMMIT has been sent
        self.commits = 0
        self.rollbacks = 0
        self.maybe = None               # what an unacknowledged transaction that only changed shared counters has added
        self.problem = None             # the text of the error that ended the client

    def base(self):
        """Returns the first of this client's keys."""
        return self.number * 1000

    def change(self, cursor, state, shared, journal):
        """Makes one random change, in the database and in the given ledger."""
        rng = self.rng
        key = self.base() + rng.randrange(KEYS)
        row = state.get(key)
        kind = rng.random()
        width = rng.choice([0, 10, 100, 500, 1500, 6000])
        if kind < 0.2:
            # mostly in ascending order, so that there are some deadlocks, but not many
            which = rng.randrange(self.floor, SHARED) if rng.random() < 0.97 else rng.randrange(SHARED)
            self.floor = max(self.floor, which)
            by = rng.randint(1, 9)
            cursor.execute("UPDATE shared SET n = n + %s WHERE id = %s", (by, which))
            shared[which] += by
        elif kind < 0.3:
            self.serial += 1
            cursor.execute("INSERT INTO journal VALUES (%s, %s, repeat('j', %s))", (self.number, self.serial, width))
            journal.add(self.serial)
        elif kind < 0.34:
            cursor.execute("INSERT INTO scratch SELECT g, repeat('s', %s) FROM generate_series(1, %s) g",
                           (width, rng.choice([10, 100, 1000])))
        elif kind < 0.37:
            cursor.execute("DELETE FROM scratch WHERE id %% 3 = %s", (rng.randrange(3),))
        elif kind < 0.39:
            cursor.execute("INSERT INTO fleeting VALUES (1, 1); UPDATE fleeting SET n = n + 1")
        elif row is None:
            cursor.execute("INSERT INTO rows VALUES (%s, %s, 0, pad_of(%s, %s))", (key, self.number, key, width))
            state[key] = (key, 0, width)
        elif kind < 0.6:
            cursor.execute("UPDATE rows SET n = n + 1 WHERE id = %s", (row[0],))
            self.expect_one(cursor, row)
            state[key] = (row[0], row[1] + 1, row[2])
        elif kind < 0.75:
            cursor.execute("UPDATE rows SET pad = pad_of(id, %s) WHERE id = %s", (width, row[0]))
            self.expect_one(cursor, row)
            state[key] = (row[0], row[1], width)
        elif kind < 0.83:
            there = key + (GAP if row[0] == key else 0)
            cursor.execute("UPDATE rows SET id = %s WHERE id = %s", (there, row[0]))
            self.expect_one(cursor, row)
            state[key] = (there, row[1], row[2])
        elif kind < 0.88:
            cursor.execute("SELECT n FROM rows WHERE id = %s FOR UPDATE", (row[0],))
            found = cursor.fetchall()
            if found != [(row[1],)]:
                raise Broken(f"client {self.number} sees {found} instead of {row}")
        elif kind < 0.94:
            cursor.execute("DELETE FROM rows WHERE id = %s", (row[0],))
            self.expect_one(cursor, row)
            del state[key]
        else:
            cursor.execute("DELETE FROM rows WHERE id = %s", (row[0],))
            self.expect_one(cursor, row)
            cursor.execute("INSERT INTO rows VALUES (%s, %s, %s, pad_of(%s, %s))", (key, self.number, row[1] + 7, key, width))
            state[key] = (key, row[1] + 7, width)

    def expect_one(self, cursor, row):
        """Raises Broken unless the last statement has found this one row."""
        if cursor.rowcount != 1:
            raise Broken(f"client {self.number}: {cursor.rowcount} rows instead of {row}: {cursor.query}")

    def transaction(self, conn):
        """Runs one random transaction, and updates the ledger if it commits."""
        rng = self.rng
        state, shared, journal = dict(self.state), list(self.shared), set(self.journal)
        self.floor = 0
        with conn.cursor() as cursor:
            cursor.execute("BEGIN")
            for _ in range(rng.choice([1, 1, 2, 4, 8, 20])):
                if rng.random() < 0.25:
                    saved = dict(state), list(shared), set(journal)
                    cursor.execute("SAVEPOINT s")
                    for _ in range(rng.randint(1, 5)):
                        self.change(cursor, state, shared, journal)
                    if rng.random() < 0.5:
                        cursor.execute("ROLLBACK TO s")
                        state, shared, journal = saved
                    else:
                        cursor.execute("RELEASE s")
                else:
                    self.change(cursor, state, shared, journal)
            if rng.random() < 0.25:
                cursor.execute("ROLLBACK")
                self.rollbacks += 1
                return
            self.in_doubt = state, shared, journal
            cursor.execute("COMMIT")
            self.in_doubt = None
        self.state, self.shared, self.journal = state, shared, journal
        self.commits += 1

    def run(self, dsn, stop, fault):
        """Runs transactions until stop is set or the server does not answer any more."""
        try:
            conn = connect(dsn)
            with conn.cursor() as cursor:
                cursor.execute(f"SET zundo.eager_rollback_pages = {self.rng.choice([0, 1, 32])}")
                if fault:
                    cursor.execute("SET zundo.fault = %s", (fault,))
            while not stop.is_set():
                try:
                    self.transaction(conn)
                except psycopg2.Error as error:
                    if conn.closed or error.pgcode in ("57P01", "57P02", "57P03", None):
                        return
                    if error.pgcode not in ("40P01", "40001"):
                        raise
                    self.in_doubt = None
                    self.rollbacks += 1
                    with conn.cursor() as cursor:
                        cursor.execute("ROLLBACK")
            conn.close()
        except psycopg2.Error as error:
            if error.pgcode and not error.pgcode.startswith("57P"):
                self.problem = f"client {self.number}: {error.pgcode} {error}"
        except Broken as error:
            self.problem = str(error)


def rows_of(conn, sql):
    """Returns the rows of a query."""
    with conn.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def settle_doubts(conn, clients):
    """Finds out whether unacknowledged transactions have committed, and updates the ledgers.

    Raises Broken if a client's rows agree with neither ledger.
    """
    for client in clients:
        rows, journal = seen(conn, client)
        if client.in_doubt is not None:
            state, shared, numbers = client.in_doubt
            client.in_doubt = None
            if (rows, journal) == (set(state.values()), numbers) and (rows, journal) != (set(client.state.values()), client.journal):
                client.state, client.shared, client.journal = state, shared, numbers
                continue
            if (rows, journal) == (set(client.state.values()), client.journal):
                client.maybe = [b - a for a, b in zip(client.shared, shared)] if (rows, journal) == (set(state.values()), numbers) else None
                continue
        if rows != set(client.state.values()):
            known = set(client.state.values())
            raise Broken(f"client {client.number}: missing {sorted(known - rows)[:5]}, not acknowledged {sorted(rows - known)[:5]}")
        if journal != client.journal:
            raise Broken(f"client {client.number}: journal misses {sorted(client.journal - journal)[:5]}, "
                         f"has too much {sorted(journal - client.journal)[:5]}")


def seen(conn, client):
    """Returns the client's rows and the serial numbers of its journal, as the server has them."""
    rows = rows_of(conn, f"SELECT id, n, CASE WHEN pad = pad_of(id, length(pad)) THEN length(pad) ELSE -1 END FROM rows WHERE owner = {client.number}")
    journal = rows_of(conn, f"SELECT serial FROM journal WHERE owner = {client.number}")
    if len(set(journal)) != len(journal):
        raise Broken(f"client {client.number}: journal has duplicates")
    return set(rows), {serial for (serial,) in journal}


def check_shared(conn, clients):
    """Checks that the shared counters are the sums of the ledgers.

    The sums may also include unacknowledged transactions that changed nothing else. Finds out which, and updates the
    ledgers. Raises Broken.
    """
    found = dict(rows_of(conn, "SELECT id, n FROM shared"))
    if sorted(found) != list(range(SHARED)):
        raise Broken(f"there are other shared counters than before: {sorted(found)}")
    # any subset of the unacknowledged transactions may have committed
    loose = [client for client in clients if client.maybe]
    difference = [found[w] - sum(client.shared[w] for client in clients) for w in range(SHARED)]
    for choice in range(1 << len(loose)):
        chosen = [client for n, client in enumerate(loose) if choice >> n & 1]
        if all(difference[w] == sum(client.maybe[w] for client in chosen) for w in range(SHARED)):
            for client in chosen:
                client.shared = [a + b for a, b in zip(client.shared, client.maybe)]
            break
    else:
        raise Broken(f"shared counters differ from the ledgers by {difference}")
    for client in clients:
        client.maybe = None


def check_tables(conn):
    """Raises Broken if zundo.check finds something, or index and sequential scans disagree."""
    for name in ("rows", "shared", "journal", "scratch", "fleeting", "zundo.undo_log"):
        faults = rows_of(conn, f"SELECT * FROM zundo.check('{name}')")
        if faults:
            raise Broken(f"zundo.check of {name}: {faults[:5]}")
    both = []
    for seqscan in ("on", "off"):
        rows_of(conn, f"SELECT set_config('enable_seqscan', '{seqscan}', false), set_config('enable_bitmapscan', '{seqscan}', false)")
        both.append((sorted(rows_of(conn, "SELECT id, n FROM rows WHERE id >= 0")),
                     sorted(rows_of(conn, "SELECT id, n FROM rows WHERE owner >= 0"))))
    rows_of(conn, "SELECT set_config('enable_seqscan', 'on', false)")
    if both[0] != both[1] or both[0][0] != both[0][1]:
        raise Broken("index and sequential scans of rows differ")


def wait_for_quiet(conn, seconds=240):
    """Waits until aborted transactions are undone and old undo is discarded; returns the bytes of undo left."""
    deadline = time.time() + seconds
    while True:
        left = rows_of(conn, "SELECT zundo.undo_bytes_in_use()")[0][0]
        waiting = rows_of(conn, "SELECT count(*) FROM zundo.stat_rollback")[0][0]
        if waiting == 0 and left < 200000:
            return left
        if time.time() > deadline:
            detail = rows_of(conn, "SELECT * FROM zundo.stat_rollback LIMIT 3")
            logs = rows_of(conn, "SELECT * FROM zundo.stat_undo ORDER BY bytes DESC LIMIT 3")
            raise Broken(f"{left} bytes of undo are still in use, {waiting} rollbacks wait: {detail} {logs}")
        rows_of(conn, "SELECT txid_current()")
        time.sleep(0.3)


def round_of_load(cluster, clients, options, rng, number):
    """Runs the load until the crash; returns a description of the crash."""
    fault = rng.choice(FAULTS) if number % 2 else None
    if options.fault:
        fault = options.fault
    setting = f"{fault}:crash" if fault else ""
    stop = threading.Event()
    everywhere = fault in GLOBAL_FAULTS
    threads = []
    for client in clients:
        # only one client gets the fault point, so that the others have open transactions when it is reached
        mine = setting if fault and not everywhere and client is clients[number % len(clients)] else ""
        threads.append(threading.Thread(target=delayed, args=(client, cluster.dsn(), stop, mine, rng.random())))
    for thread in threads:
        thread.start()
    seconds = rng.uniform(0.5, options.seconds)
    time.sleep(seconds)
    if everywhere or fault in ("prune-logged", "indexes-cleaned"):
        try:
            conn = cluster.connect()
            with conn.cursor() as cursor:
                if everywhere:
                    cursor.execute(f"ALTER SYSTEM SET zundo.fault = '{setting}'")
                    cursor.execute("SELECT pg_reload_conf()")
                cursor.execute("SET zundo.fault = %s", (setting,))
                for table in ("rows", "journal", "scratch"):
                    cursor.execute(f"VACUUM (INDEX_CLEANUP ON, PARALLEL 2) {table}")
                cursor.execute("SELECT zundo.discard()")
        except psycopg2.Error:
            pass
    if fault:
        deadline = time.time() + 6
        while time.time() < deadline and any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
    cluster.kill()
    stop.set()
    for thread in threads:
        thread.join(60)
    auto = os.path.join(cluster.data, "postgresql.auto.conf")
    with open(auto, "w", encoding="utf-8"):
        pass
    return f"{fault or 'kill'} after {seconds:.1f} s"


def delayed(client, dsn, stop, fault, wait):
    """Runs the client; one with a fault point starts later, when others have open transactions."""
    if fault:
        time.sleep(wait)
    client.run(dsn, stop, fault)


def verify(cluster, clients):
    """Checks everything after recovery; returns the bytes of undo left."""
    conn = cluster.connect()
    settle_doubts(conn, clients)
    check_shared(conn, clients)
    check_tables(conn)
    left = wait_for_quiet(conn)
    settle_doubts(conn, clients)
    check_tables(conn)
    if rows_of(conn, "SELECT count(*) FROM scratch")[0][0] > 200000:
        with conn.cursor() as cursor:
            cursor.execute("TRUNCATE scratch")
    conn.close()
    return left


def parse_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="folder of the programs of a server that has zundo installed")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5, help="longest load before a crash")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--buffers", default=None, help="shared_buffers; default: random from 1MB to 16MB")
    parser.add_argument("--consistency", action="store_true", help="wal_consistency_checking = all")
    parser.add_argument("--fault", choices=FAULTS, help="use this fault point in every round")
    parser.add_argument("--keep", action="store_true", help="do not remove the cluster if a round fails")
    return parser.parse_args()


def main():
    """Runs the rounds; returns the exit status."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # so that the cluster is removed
    seed = options.seed if options.seed is not None else int(time.time()) % 1000000
    rng = random.Random(seed)
    buffers = options.buffers or rng.choice(["1MB", "2MB", "8MB", "16MB"])
    print(f"seed {seed}, shared_buffers {buffers}", flush=True)
    settings = f"shared_buffers = {buffers}\ncheckpoint_timeout = 30s\nmax_wal_size = 64MB\nfull_page_writes = on\nfsync = off\n"
    if options.consistency:
        settings += "wal_consistency_checking = 'all'\n"
    cluster = Cluster(options.bindir, settings)
    failed = True
    try:
        cluster.start()
        conn = cluster.connect()
        with conn.cursor() as cursor:
            cursor.execute(SETUP)
            cursor.execute("INSERT INTO shared SELECT g, 0 FROM generate_series(0, %s) g", (SHARED - 1,))
        conn.close()
        clients = [Client(n, seed) for n in range(options.clients)]
        for number in range(options.rounds):
            what = round_of_load(cluster, clients, options, rng, number)
            problems = [client.problem for client in clients if client.problem]
            if problems:
                raise Broken("; ".join(problems[:3]))
            begin = time.time()
            cluster.start()
            recovery = time.time() - begin
            left = verify(cluster, clients)
            faults = cluster.new_faults()
            if faults:
                raise Broken(f"server log: {faults[:5]}")
            print(f"round {number + 1}: {what}: {sum(c.commits for c in clients)} commits, "
                  f"{sum(c.rollbacks for c in clients)} rollbacks so far; started in {recovery:.1f} s, {left} bytes of undo left", flush=True)
        failed = False
        print(f"{options.rounds} rounds, nothing lost")
        return 0
    except (Broken, ClusterError, psycopg2.Error) as error:
        print(f"FAILED seed {seed}: {error}\n{cluster.log_tail(30)}", flush=True)
        return 1
    finally:
        keep = failed and options.keep
        if keep:
            print(f"the cluster is in {cluster.root}")
        cluster.remove(keep=keep)


if __name__ == "__main__":
    sys.exit(main())
