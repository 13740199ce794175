#!/usr/bin/python3
"""Damages one or two pages of a table or of the undo log, and tests that every query gives the right answer or an error.

A cluster with checksums is brought into a state in which many answers depend on undo: open transactions
of several sessions, small and large ones, prepared ones, a page with overflow slots, pending rollbacks, an
old snapshot, values out of line. Every statement is run on a zheap table z_NAME and on a heap table h_NAME. The heap tables are
not damaged, so they give the right answers. While it makes this state, the program keeps each version of
every page that is written to disk. Then it damages one page in each trial, or two: neighbours, both copies of a meta or
map page, or any two. A damaged page is

    stale       an earlier version of itself, whose checksum is right
    zeroed      all zero, which passes for a new page
    flipped     itself with one bit changed
    cut         removed, with all pages after it (the undo log only; other tables may become unusable then)

either while the server is running, which then has to read the page again ("live"), or between a kill -9 and
the next start ("cold"), or under load, with a standby ("busy"). The result of a trial is one of

    SILENT      an answer was wrong, without an error
    STOPPED     a table that needs no undo could not be read or changed, or an error did not say what is damaged
    UNSEEN      reading raised an error, but zundo.check finds nothing
    CRASH       a process died, the server did not start or stop, or it hung
    told        an error said what is damaged (XX001, XX002)
    right       all answers were right

The first four are faults. Not a fault is what would happen with a heap table as well: that the rows of a
zeroed table page are missing, and those of a stale one are old. Under load the rows of such a table are not
compared, since they have moved. Where a page of a TOAST table is zeroed or stale, the entries of its index may
lead to chunks of other values.

    damage.py --bindir DIR --trials 1000 [--seed N] [--trial N] [--keep]
"""

import argparse
import collections
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time

import psycopg2

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, ClusterError, connect  # noqa: E402  (same directory)
from twins import Broken, Copy, catch_up  # noqa: E402  (same directory)

PAGE = 8192
TWIN_DISTANCE = 66                      # blocks between the copies of a meta or map page (undo/undo_format.h)
TABLES = ("calm", "recent", "pend", "prep", "over", "docs")
FAULTS = ("SILENT", "STOPPED", "UNSEEN", "CRASH")
SETTINGS = """
shared_buffers = 1MB
checkpoint_timeout = 1h
max_wal_size = 2GB
min_wal_size = 8MB
fsync = off
bgwriter_delay = 10s
max_prepared_transactions = 80
wal_keep_size = 1GB
statement_timeout = 120s
lock_timeout = 2s
bgwriter_lru_maxpages = 0
jit = off
max_parallel_workers_per_gather = 0
"""
SETUP = """
CREATE EXTENSION IF NOT EXISTS zundo;
CREATE TABLE {t}_calm (id int PRIMARY KEY, n int, pad text) USING {am};
CREATE TABLE {t}_recent (id int PRIMARY KEY, n int, pad text) USING {am};
CREATE TABLE {t}_pend (id int PRIMARY KEY, n int, pad text) USING {am} WITH (fillfactor = 80);
CREATE TABLE {t}_prep (id int PRIMARY KEY, n int, pad text) USING {am};
CREATE TABLE {t}_over (id int PRIMARY KEY, n int, pad text) USING {am};
CREATE TABLE {t}_docs (id int PRIMARY KEY, n int, pad text) USING {am};
ALTER TABLE {t}_docs ALTER pad SET STORAGE EXTERNAL;
CREATE INDEX {t}_pend_n ON {t}_pend (n);
CREATE INDEX {t}_prep_n ON {t}_prep (n);
INSERT INTO {t}_calm SELECT g, g % 10, md5(g::text) FROM generate_series(1, 600) g;
INSERT INTO {t}_recent SELECT g, g % 10, md5(g::text) FROM generate_series(1, 600) g;
INSERT INTO {t}_pend SELECT g, g % 10, repeat(md5(g::text), 1 + g % 5) FROM generate_series(1, 2400) g;
INSERT INTO {t}_prep SELECT g, g % 10, repeat(md5(g::text), 1 + g % 3) FROM generate_series(1, 900) g;
INSERT INTO {t}_over SELECT g, 0, repeat('o', 100) FROM generate_series(1, 300) g;
INSERT INTO {t}_docs SELECT g * 4, 0, repeat(md5(g::text), 70 + g % 60) FROM generate_series(1, 150) g;
"""
FILLERS = 12
# An assertion of nbtree: a table page that has lost rows gives their places to new ones, and their entries are still
# there. Without assertions it is an error (XX002). It is the same with heap's pages.
OCCUPIED = "_bt_posting_valid"
CLIENTS = 3                             # sessions of the load of a busy trial
LOAD_SECONDS = 3
PASSING = ("55P03", "40P01", "40001", "57014", "23505")     # errors of a statement beside others, which say nothing of damage
PATIENCE = 300                          # seconds that one trial may take, on a busy machine
TOAST = "the TOAST table of z_docs"
UNDO = "zundo.undo_log"


class Down(Exception):
    """The server does not run or answer when it should."""


class Session:
    """A session that makes the same changes in z_ and h_ tables."""

    def __init__(self, cluster, rng):
        self.conn = cluster.connect()
        self.cursor = self.conn.cursor()
        self.rng = rng

    def run(self, sql):
        """Runs one statement."""
        self.cursor.execute(sql)

    def both(self, sql):
        """Runs a statement on both tables of a pair; @ in names stands for z_ and h_."""
        for twin in "zh":
            self.cursor.execute(sql.replace("@", twin + "_"))

    def change(self, table, share, shares):
        """Makes one change of this session's rows, those with id % shares = share."""
        rng = self.rng
        ours = f"id % {shares} = {share}"
        low = rng.randrange(2400 if table == "pend" else 600)
        copies = 90 if table == "docs" else 1
        where = f"{ours} AND id BETWEEN {low} AND {low + rng.choice([5, 40, 400, 2400])}"
        kind = rng.random()
        if kind < 0.45:
            self.both(f"UPDATE @{table} SET n = n + 1 WHERE {where}")
        elif kind < 0.6:
            self.both(f"UPDATE @{table} SET n = n + 10, pad = md5(pad) || right(pad, -32) WHERE {where}")
        elif kind < 0.75:
            self.both(f"UPDATE @{table} SET pad = pad || md5(pad) WHERE {where} AND length(pad) < 400")
        elif kind < 0.85:
            self.both(f"DELETE FROM @{table} WHERE {where} AND id % 3 = 0")
        elif kind < 0.95:
            base = rng.randrange(10000, 10**8) * shares + share
            self.both(f"INSERT INTO @{table} SELECT {base} + g * {shares}, 0, repeat(md5(g::text), {copies}) FROM generate_series(1, {rng.choice([1, 5, 60])}) g "
                      "ON CONFLICT DO NOTHING")
        else:
            self.both(f"SELECT id FROM @{table} WHERE {where} ORDER BY id FOR UPDATE")

    def changes(self, table, share, shares, count):
        """Makes some changes, some in subtransactions."""
        for _ in range(count):
            if self.rng.random() < 0.2:
                self.run("SAVEPOINT s")
                self.change(table, share, shares)
                self.run(self.rng.choice(["ROLLBACK TO s", "RELEASE s"]))
            else:
                self.change(table, share, shares)


class State:
    """The state that is damaged: a cluster, the versions of its pages, and its open sessions."""

    def __init__(self, options, seed):
        self.seed = seed
        self.rng = random.Random(seed)
        self.versions = collections.defaultdict(list)   # (table, block) -> versions of the page, oldest first
        self.cluster = Cluster(options.bindir, SETTINGS, initdb=("-k", "--wal-segsize=1"))
        self.base = os.path.join(self.cluster.root, "base")     # copy of the data directory, for cold trials
        self.names = {}                 # what is checked -> its name in SQL
        self.paths = {}                 # what is checked -> its file
        self.sessions = []
        self.spoilt = False             # has a trial changed more than the damaged page?
        self.admin = self.reader = None
        self.old = {}                   # table -> rows that the reader's old snapshot sees
        self.places = collections.defaultdict(set)      # (table, id) -> blocks where versions of the row have been

    def note_places(self, conn, tables=TABLES):
        """Adds the blocks of the rows that this session sees to places."""
        with conn.cursor() as cursor:
            for table in tables:
                cursor.execute(f"SELECT id, (ctid::text::point)[0]::int FROM z_{table}")
                for key, block in cursor.fetchall():
                    self.places[table, key].add(block)

    def checkpoint(self):
        """Has the server write all pages, and keeps the new versions."""
        self.note_places(self.admin)
        with self.admin.cursor() as cursor:
            cursor.execute("CHECKPOINT")
        for name, path in self.paths.items():
            for block, image in enumerate(read_pages(path)):
                if image != bytes(PAGE) and self.versions.get((name, block), [None])[-1] != image:
                    self.versions[name, block].append(image)

    def make(self):
        """Makes the state. On return transactions are open, and all pages have been written."""
        self.create_tables()
        self.checkpoint()
        self.sessions = [Session(self.cluster, self.rng) for _ in range(5)]
        self.run_transactions()
        self.prepare_transactions()
        self.begin_transactions()
        self.checkpoint()

    def create_tables(self):
        """Starts the server, creates and fills the tables, and waits until no undo is left."""
        cluster = self.cluster
        cluster.start()
        self.admin = cluster.connect()
        with self.admin.cursor() as cursor:
            cursor.execute(SETUP.format(t="z", am="zheap") + SETUP.format(t="h", am="heap"))
            for number in range(FILLERS):
                cursor.execute(f"CREATE TABLE filler_{number} AS SELECT g, repeat('f', 1000) FROM generate_series(1, 200) g")
            cursor.execute("CREATE DATABASE other")
            other = cluster.connect("other")
            with other.cursor() as their:
                their.execute("CREATE EXTENSION zundo; CREATE TABLE z_calm (id int PRIMARY KEY, n int, pad text) USING zheap; "
                              "INSERT INTO z_calm SELECT g, 0, 'x' FROM generate_series(1, 100) g")
            other.close()
            cursor.execute("VACUUM")
            deadline = time.time() + 30
            cursor.execute("SELECT zundo.discard(), zundo.undo_bytes_in_use()")
            while cursor.fetchone()[1] > 0 and time.time() < deadline:
                time.sleep(0.1)
                cursor.execute("SELECT zundo.discard(), zundo.undo_bytes_in_use()")
            cursor.execute("SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'z_docs'::regclass")
            self.names = {name: name for name in [f"z_{table}" for table in TABLES] + [UNDO]}
            self.names[TOAST] = cursor.fetchone()[0]
            for name, relation in self.names.items():
                cursor.execute("SELECT pg_relation_filepath(%s)", (relation,))
                self.paths[name] = os.path.join(cluster.data, cursor.fetchone()[0])

    def run_transactions(self):
        """Runs transactions of all sessions; opens the reader between them."""
        rng = self.rng
        # this prepared transaction keeps all undo from being discarded
        self.sessions[0].run("BEGIN")
        self.sessions[0].both("INSERT INTO @prep VALUES (-1, 0, 'pin')")
        self.sessions[0].run("PREPARE TRANSACTION 'r_pin'")
        for step in range(3):
            for number, session in enumerate(self.sessions):
                for _ in range(rng.randint(1, 3)):
                    session.run("BEGIN")
                    session.changes(rng.choice(["recent", "pend", "prep", "docs"]), number, 5, rng.randint(1, 3))
                    session.run(rng.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
            self.checkpoint()
            if step == 1:
                self.open_reader()

    def prepare_transactions(self):
        """Prepares transactions: more on the pages of over than a page has slots, and large ones in prep."""
        for number in range(14):
            session = self.rng.choice(self.sessions)
            session.run("BEGIN")
            session.both(f"UPDATE @over SET n = n + 1 WHERE id = {number + 1}")
            self.note_places(session.conn, ["over"])
            session.run(f"PREPARE TRANSACTION '{'cr'[number % 2]}_over_{number}'")
        self.checkpoint()
        for number, session in enumerate(self.sessions[:3]):
            session.run("BEGIN")
            session.changes("prep", number, 5, 4)
            self.note_places(session.conn, ["prep"])
            session.run(f"PREPARE TRANSACTION '{'crc'[number]}_prep_{number}'")
        self.checkpoint()

    def begin_transactions(self):
        """Begins a transaction in each session, with changes of pend."""
        for session in self.sessions:
            session.run("BEGIN")
        for _ in range(3):
            for number, session in enumerate(self.sessions):
                session.changes("pend", number, 5, self.rng.choice([1, 1, 3, 8]))
            self.checkpoint()

    def open_reader(self):
        """Opens the session whose snapshot is older than all further changes."""
        self.reader = self.cluster.connect()
        self.reader.autocommit = False
        self.reader.set_session(isolation_level="REPEATABLE READ", readonly=True)
        with self.reader.cursor() as cursor:
            self.old = {table: expected(cursor, table) for table in TABLES}

    def freeze(self):
        """Kills the server, and keeps the data directory as the state with which cold trials begin."""
        self.cluster.kill()
        for conn in [self.reader, self.admin] + [s.conn for s in self.sessions]:
            conn.close()
        os.rename(self.cluster.data, self.base)

    def thaw(self):
        """Restores the data directory as freeze() has kept it."""
        shutil.rmtree(self.cluster.data, ignore_errors=True)
        subprocess.run(["cp", "-a", "--reflink=auto", self.base, self.cluster.data], check=True)

    def evict(self):
        """Fills the shared buffers with other pages, so that the server has to read every page again."""
        with self.admin.cursor() as cursor:
            for _ in range(3):
                for number in range(FILLERS):
                    cursor.execute(f"SELECT count(*) FROM filler_{number}")


def read_pages(path):
    """Yields the pages of a file."""
    with open(path, "rb") as file:
        while True:
            image = file.read(PAGE)
            if len(image) < PAGE:
                return
            yield image


def undo_kind(image):
    """Returns the kind of a page of the undo log: meta, map, undo or overflow."""
    twin = struct.unpack_from("<I", image, 32)[0]
    magic = struct.unpack_from("<H", image, 36)[0]
    return {0x5A554E44: "meta", 0x5A554E4D: "map"}.get(twin) or {0x7A75: "undo", 0x7A6F: "overflow"}[magic]


def expected(cursor, table):
    """Returns the rows of the heap table: {id: (n, pad)}."""
    cursor.execute(f"SELECT id, n, pad FROM h_{table}")
    return {row[0]: row[1:] for row in cursor.fetchall()}


class Page:
    """One page of a table or of the undo log, and how it is damaged."""

    def __init__(self, state, rng, place, how, older=None):
        self.name, self.block = place
        versions = state.versions[place]
        self.kind = undo_kind(versions[-1]) if self.name == UNDO else "table"
        self.path = state.paths[self.name]
        self.rest = b""
        self.how = how
        if how == "stale" and len(versions) < 2:
            self.how = "zeroed"
        if self.how == "stale":
            self.older = rng.randrange(len(versions) - 1) if older is None else min(older, len(versions) - 2)
            self.image = versions[self.older]
            self.what = f"stale by {len(versions) - 1 - self.older}"
        elif self.how == "zeroed":
            self.image = bytes(PAGE)
            self.what = "zeroed"
        elif self.how == "cut":
            self.image = None
            self.what = "cut off"
        else:
            image = bytearray(versions[-1])
            bit = rng.randrange(PAGE * 8)
            image[bit // 8] ^= 1 << bit % 8
            self.image = bytes(image)
            self.what = f"bit {bit} flipped"

    def __str__(self):
        return f"{self.kind} page, block {self.block} of {self.name}, {self.what}"

    def inflict(self):
        """Damages the page on disk; keeps what was there for mend()."""
        with open(self.path, "r+b") as file:
            file.seek(self.block * PAGE)
            if self.image is None:
                self.rest = file.read()
                file.truncate(self.block * PAGE)
            else:
                self.rest = file.read(PAGE)
                file.seek(self.block * PAGE)
                file.write(self.image)

    def mend(self):
        """Restores the page, and the pages that were cut off, except those that the server has written since."""
        damaged = self.image or b""
        with open(self.path, "r+b") as file:
            for start in range(0, len(self.rest), PAGE):
                file.seek(self.block * PAGE + start)
                if file.read(PAGE) in (damaged, b"", bytes(PAGE)):
                    file.seek(self.block * PAGE + start)
                    file.write(self.rest[start:start + PAGE])


class Damage:
    """One or two random pages, and how they are damaged: the same way, or, of two that lie apart, each its own way.

    Of two pages the second is the next one in the file ("next"), the other copy of a meta or map page ("twins"), which
    misses the same writes if it is stale, or any page ("two").
    """

    def __init__(self, state, rng, only, mode):
        self.state, self.rng = state, rng
        candidates = collections.defaultdict(list)
        for (name, block), versions in state.versions.items():
            kind = undo_kind(versions[-1]) if name == UNDO else "table"
            candidates[kind].append((name, block))
        self.candidates = candidates
        weights = {"undo": 10, "table": 4, "overflow": 3, "map": 2, "meta": 2}
        self.weights = {kind: weight for kind, weight in weights.items() if candidates[kind]}
        for _ in range(10000):
            self.shape = rng.choices(["one", "next", "twins", "two"], [6, 2, 2, 2])[0]
            self.pages = self.choose(mode)
            if not self.pages:
                continue
            self.kind = self.pages[0].kind if self.shape == "one" else self.shape
            self.how = self.pages[0].how
            if not only or f"{self.kind}:{self.how}" in only:
                return
        raise SystemExit("no page of this state fits --only")

    def choose(self, mode):
        """Returns one or two pages for the shape, or None if it does not fit."""
        rng = self.rng
        kind = rng.choices(list(self.weights), list(self.weights.values()))[0]
        if self.shape == "twins":
            kind = rng.choice(["meta", "map"])
        name, block = place = rng.choice(sorted(self.candidates[kind]))
        how = rng.choices(["stale", "zeroed", "flipped", "cut"], [6, 3, 1, 1])[0]
        if how == "cut" and (kind == "table" or self.shape != "one"):
            return None
        if how == "stale" and len(self.state.versions[place]) < 2:
            return None
        if self.shape == "twins" and mode == "live" and how == "stale":
            return None                 # the worker would write to the old pages, which could not be restored then
        pages = [Page(self.state, rng, place, how)]
        if self.shape == "one":
            return pages
        second = {"next": (name, block + 1), "twins": (name, block + TWIN_DISTANCE if block < TWIN_DISTANCE else block - TWIN_DISTANCE),
                  "two": rng.choice(sorted(self.state.versions))}[self.shape]
        if second == place or second not in self.state.versions:
            return None
        if self.shape == "two":
            how = rng.choice(["stale", "zeroed", "flipped"])
        same = pages[0].older if self.shape == "twins" and how == "stale" else None
        return pages + [Page(self.state, rng, second, how, same)]

    def __str__(self):
        return ("" if self.shape == "one" else f"{self.shape}: ") + " and ".join(str(page) for page in self.pages)

    def inflict(self):
        """Damages the pages on disk."""
        for page in self.pages:
            page.inflict()

    def mend(self):
        """Restores the pages."""
        for page in reversed(self.pages):
            page.mend()

    def blocks(self, table, hows):
        """Returns the blocks of a table that are damaged in one of these ways."""
        return {page.block for page in self.pages if page.name == "z_" + table and page.how in hows}

    def spoils_values(self, table):
        """Returns whether values out of line of a table may be others, as on heap."""
        return table == "docs" and any(page.name == TOAST and page.how in ("stale", "zeroed") for page in self.pages)

    def stops_zheap(self):
        """Returns whether zheap tables of this database may become unusable, with an error that says what is damaged."""
        return self.how == "cut" or self.both_copies()

    def both_copies(self):
        """Returns whether both copies of a meta or map page are damaged."""
        blocks = {page.block for page in self.pages if page.kind in ("meta", "map")}
        return any(block + TWIN_DISTANCE in blocks for block in blocks)


class Trial:
    """Runs queries after one damage, and notes what happens."""

    def __init__(self, state, damage, mode):
        self.state = state
        self.damage = damage
        self.mode = mode
        self.seen = {}                  # result -> description of its first case
        self.told = None                # the last error about damage that compare_all has met

    def note(self, what, text):
        """Notes the first case of a result."""
        self.seen.setdefault(what, str(text).strip().replace("\n", " ")[:300])

    def error(self, error, where, stops=False):
        """Notes an error of the server. Raises Down if the connection is lost.

        stops: the statement needs no damaged page, so any error is a fault.
        """
        code = getattr(error, "pgcode", None)
        text = f"{where}: {code} {str(error).strip()}"
        if code is None or code.startswith("57P"):
            raise Down(text)
        if stops and not self.damage.stops_zheap():
            self.note("STOPPED", text)
        elif code in ("XX001", "XX002"):
            self.told = text
            self.note("told", text)
        elif code in ("58030", "XX000", "58P01"):
            # the server itself reports that a page cannot be read
            self.note("told" if "could not read" in text or "could not open" in text else "STOPPED", text)
        else:
            self.note("STOPPED", text)

    def of_table(self, table):
        """Returns whether a damaged page is one of that table."""
        return bool(self.damage.blocks(table, ("stale", "zeroed", "flipped")))

    def read(self, conn, table, right, when):
        """Reads a zheap table by sequential and by index scan; notes differences from the right rows."""
        damaged = self.damage.blocks(table, ("stale", "zeroed"))
        columns = 1 if self.damage.spoils_values(table) else 2
        if self.mode == "busy" and (damaged or self.damage.spoils_values(table)):
            return
        for way in ("on", "off"):
            with conn.cursor() as cursor:
                if not conn.autocommit:
                    cursor.execute("SAVEPOINT reading")
                try:
                    cursor.execute(f"SET enable_seqscan = {way}; SET enable_bitmapscan = {way}; SET enable_indexonlyscan = off")
                    cursor.execute(f"SELECT ctid::text, id, n, pad FROM z_{table} WHERE id > -10 ORDER BY id")
                    rows = cursor.fetchall()
                except psycopg2.Error as error:
                    if conn.closed:
                        raise Down(f"{when}, {table}: {error}") from error
                    if not conn.autocommit:
                        cursor.execute("ROLLBACK TO reading")
                    self.error(error, f"{when}, z_{table}")
                    continue
            wrong = [row for row in rows if row[1] not in right or right[row[1]][:columns] != row[2:2 + columns]]
            missing = set(right) - {row[1] for row in rows}
            double = len(rows) - len({row[1] for row in rows})
            if damaged:
                # the same happens with a heap table
                wrong = [row for row in wrong if int(row[0][1:].split(",")[0]) not in damaged]
                missing = {key for key in missing if not damaged & self.state.places[table, key]}
                double = 0
            if wrong or missing or double:
                self.note("SILENT", f"{when}, z_{table}, seqscan {way}: {len(wrong)} wrong {[(w[:3], right.get(w[1], ('none',))[:1]) for w in wrong[:2]]}, "
                          f"{len(missing)} missing {sorted(missing)[:3]}, {double} double")

    def check(self, conn, when):
        """Runs zundo.check on all tables; notes if it finds nothing though reading has raised an error."""
        found = 0
        for name, relation in self.state.names.items():
            with conn.cursor() as cursor:
                try:
                    cursor.execute("SELECT * FROM zundo.check(%s::regclass)", (relation,))
                    rows = cursor.fetchall()
                    found += len(rows)
                    if rows:
                        self.note("checked", f"{name}: {rows[0]}")
                except psycopg2.Error as error:
                    self.error(error, f"{when}, zundo.check of {name}")
                    found += 1
        if self.told and not found:
            self.note("UNSEEN", f"{when}: zundo.check finds nothing, but {self.told}")

    def others(self, cluster, database, when):
        """Checks that tables that need no undo can be read and changed."""
        if self.of_table("calm"):
            return
        twins = "zh" if database == "postgres" else "z"
        conn = cluster.connect(database)
        with conn.cursor() as cursor:
            cursor.execute("SET enable_seqscan = on; SET enable_bitmapscan = on")
            for transaction in (("SELECT count(n), count(pad) FROM @calm",), ("VACUUM @calm",),
                                ("UPDATE @calm SET n = n + 1 WHERE id % 5 = 0", "DELETE FROM @calm WHERE id % 7 = 0", "ROLLBACK"),
                                ("UPDATE @calm SET n = n + 1 WHERE id % 5 = 0",
                                 "INSERT INTO @calm VALUES (-2, 1, 'x') ON CONFLICT (id) DO UPDATE SET n = @calm.n + 1")):
                try:
                    if len(transaction) > 1:
                        cursor.execute("BEGIN")
                    for sql in transaction:
                        for twin in twins if sql != "ROLLBACK" else "z":
                            cursor.execute(sql.replace("@", twin + "_"))
                    if len(transaction) > 1:
                        cursor.execute("COMMIT")
                except psycopg2.Error as error:
                    if conn.closed:
                        raise Down(f"{when}: {error}") from error
                    cursor.execute("ROLLBACK")
                    self.error(error, f"{when}, database {database}, {sql}", stops=True)
        conn.close()

    def compare_all(self, conn, when):
        """Compares all zheap tables with their heap tables, with a new snapshot."""
        self.told = None
        for table in TABLES:
            with conn.cursor() as cursor:
                right = expected(cursor, table)
            self.read(conn, table, right, when)

    def live(self):
        """Damages the page while the server runs, reads all with new and with old snapshots, and restores the page."""
        state = self.state
        self.damage.inflict()
        try:
            state.evict()
            self.compare_all(state.admin, "live, now")
            for table in TABLES:
                self.read(state.reader, table, state.old[table], "live, old snapshot")
            self.check(state.admin, "live")
        finally:
            with state.admin.cursor() as cursor:
                try:
                    cursor.execute("CHECKPOINT")
                except psycopg2.Error:
                    pass
            self.damage.mend()
            state.evict()
        seen = set(self.seen)
        self.compare_all(state.admin, "live, the page is restored")
        self.state.spoilt = set(self.seen) != seen or self.told is not None
        # a zeroed table page looks like a new one, so its overflow page, for example, may have been freed
        if self.state.spoilt and not any(page.kind == "table" and page.how == "zeroed" for page in self.damage.pages):
            self.note("SILENT", f"live, there are still faults after the page has been restored: {self.told}")

    def cold(self):
        """Damages the page after a kill -9; starts the server, lets it roll back, changes all, restarts it."""
        cluster = self.state.cluster
        self.state.thaw()
        self.damage.inflict()
        try:
            cluster.start(timeout=120)
        except ClusterError as error:
            raise Down(f"the server does not start: {error}") from error
        conn = cluster.connect()
        self.compare_all(conn, "after the start")
        self.others(cluster, "postgres", "after the start")
        self.others(cluster, "other", "after the start")
        settle(conn)
        self.compare_all(conn, "rolled back")
        self.check(conn, "rolled back")
        if self.damage.stops_zheap():
            self.repair(conn)
            self.compare_all(conn, "repaired")
            self.check(conn, "repaired")
        self.end_prepared(conn)
        settle(conn)
        self.compare_all(conn, "prepared ones ended")
        self.write(conn)
        self.compare_all(conn, "changed")
        self.check(conn, "changed")
        self.others(cluster, "postgres", "in the end")
        conn.close()
        cluster.stop("fast")
        if cluster.postmaster() is not None:
            raise Down("the server does not stop")
        cluster.start(timeout=120)
        conn = cluster.connect()
        self.compare_all(conn, "started again")
        conn.close()

    def repair(self, conn):
        """Calls zundo.repair_undo; afterwards tables that need no undo can be used, unless it says that it cannot repair."""
        with conn.cursor() as cursor:
            for _ in range(2):
                try:
                    cursor.execute("SELECT * FROM zundo.repair_undo(dry_run => false)")
                except psycopg2.Error as error:
                    self.error(error, "repair")
                    if error.pgcode in ("55000", "XX001"):
                        # a worker has loaded the logs, or nothing tells how long the file was
                        return
        try:
            with conn.cursor() as cursor:
                cursor.execute("INSERT INTO z_calm VALUES (-3, 1, 'x'); DELETE FROM z_calm WHERE id = -3")
        except psycopg2.Error as error:
            if not self.of_table("calm"):
                self.note("STOPPED", f"after the repair: {error}")

    def end_prepared(self, conn):
        """Commits or rolls back all prepared transactions."""
        with conn.cursor() as cursor:
            cursor.execute("SELECT gid FROM pg_prepared_xacts ORDER BY gid")
            for (gid,) in cursor.fetchall():
                try:
                    cursor.execute(("COMMIT" if gid.startswith("c") else "ROLLBACK") + f" PREPARED '{gid}'")
                except psycopg2.Error as error:
                    if conn.closed:
                        raise Down(f"end of {gid}: {error}") from error
                    self.error(error, f"end of {gid}")

    def busy(self):
        """Damages the page under load, with a standby; compares all on both."""
        cluster = self.state.cluster
        self.state.thaw()
        try:
            cluster.start(timeout=120)
            standby = Copy(cluster, "standby")
        except ClusterError as error:
            raise Down(f"the server does not start: {error}") from error
        standby.start([f"primary_conninfo = 'host={cluster.root} port=5432 user=postgres'"], "standby.signal")
        try:
            reader = cluster.connect()
            reader.autocommit = False
            reader.set_session(isolation_level="REPEATABLE READ", readonly=True)
            self.compare_all(reader, "before the load")
            self.load()
            self.compare_all(reader, "after the load, old snapshot")
            reader.close()
            conn = cluster.connect()
            settle(conn)
            self.compare_all(conn, "after the load")
            self.end_prepared(conn)
            settle(conn)
            self.compare_all(conn, "after the load, prepared ones ended")
            self.check(conn, "after the load")
            self.others(cluster, "postgres", "after the load")
            self.others(cluster, "other", "after the load")
            conn.close()
            catch_up(cluster.dsn(), standby.dsn())
            conn = connect(standby.dsn())
            self.compare_all(conn, "on the standby")
            conn.close()
            if standby.faults():
                raise Down(f"standby: {standby.faults()[0]}")
        except Broken as error:
            raise Down(f"standby: {error}") from error
        finally:
            standby.stop()

    def load(self):
        """Runs transactions of some sessions, and others(), for LOAD_SECONDS; damages the page after a third of it."""
        end = time.time() + LOAD_SECONDS
        lost = []

        def run(work):
            """Repeats work until the time is over; keeps the loss of the server for the caller."""
            try:
                while time.time() < end and not lost:
                    work()
            except (Down, psycopg2.Error, ClusterError) as error:
                lost.append(error)

        def client(number):
            """Runs transactions that change pairs of tables."""
            session = Session(self.state.cluster, random.Random(f"{self.state.seed}/{self.damage}/{number}"))
            run(lambda: self.transaction(session, number))
            session.conn.close()

        threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        threads.append(threading.Thread(target=run, args=(lambda: self.others(self.state.cluster, "other", "beside the load"),)))
        for thread in threads:
            thread.start()
        time.sleep(LOAD_SECONDS / 3)
        self.damage.inflict()
        for thread in threads:
            thread.join()
        if lost:
            raise Down(f"beside the load: {lost[0]}")

    def transaction(self, session, number):
        """Runs one transaction of the load. An error undoes what it did to both tables of a pair."""
        table = session.rng.choice(["recent", "pend", "prep", "docs"])
        try:
            session.run("BEGIN")
            session.changes(table, number, 5, session.rng.randint(1, 4))
            session.run(session.rng.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        except psycopg2.Error as error:
            if session.conn.closed:
                raise Down(f"beside the load: {error}") from error
            session.run("ROLLBACK")
            if error.pgcode not in PASSING:
                self.error(error, f"beside the load, change of z_{table}")

    def write(self, conn):
        """Changes all pairs of tables in the same way; if an error occurs, neither table of the pair."""
        for table in TABLES:
            for sql in ("UPDATE @ SET n = n + 1 WHERE id % 2 = 0", "DELETE FROM @ WHERE id % 11 = 0", "UPDATE @ SET pad = pad || 'w' WHERE id % 3 = 1"):
                if self.damage.blocks(table, ("stale", "zeroed")):
                    continue
                with conn.cursor() as cursor:
                    try:
                        cursor.execute("BEGIN")
                        counts = []
                        for twin in "zh":
                            cursor.execute(sql.replace("@", f"{twin}_{table}"))
                            counts.append(cursor.rowcount)
                        if counts[0] != counts[1]:
                            self.note("SILENT", f"{sql}: {counts[0]} rows of z_{table}, {counts[1]} of h_{table}")
                        cursor.execute("COMMIT")
                    except psycopg2.Error as error:
                        if conn.closed:
                            raise Down(f"{sql}: {error}") from error
                        cursor.execute("ROLLBACK")
                        self.error(error, f"change of z_{table}")

    def result(self):
        """Returns the worst result."""
        for what in FAULTS + ("told",):
            if what in self.seen:
                return what
        return "right"


def settle(conn, seconds=2.0):
    """Waits until the worker has undone aborted transactions, but no longer than seconds: damage may prevent it."""
    deadline = time.time() + seconds
    with conn.cursor() as cursor:
        while time.time() < deadline:
            try:
                cursor.execute("SELECT count(*) FROM zundo.stat_rollback")
                if cursor.fetchone() == (0,):
                    return
            except psycopg2.Error:
                if conn.closed:
                    raise
                return
            time.sleep(0.05)


def show_stack(path):
    """Prints what follows the last failed assertion or PANIC in a server's log, for example the stack."""
    with open(path, encoding="utf-8", errors="replace") as log:
        lines = log.readlines()
    last = max((n for n, line in enumerate(lines) if "TRAP:" in line or "PANIC:" in line), default=None)
    if last is not None:
        print("".join(lines[last:last + 25]), flush=True)


def run_trial(state, number, mode, options):
    """Runs one trial; returns (damage, result)."""
    rng = random.Random(f"{state.seed}/{number}")
    trial = Trial(state, Damage(state, rng, options.only, mode), mode)
    hung = threading.Timer(PATIENCE, lambda: (trial.note("CRASH", f"no answer for {PATIENCE} s"), state.cluster.kill()))
    hung.start()
    try:
        getattr(trial, mode)()
    except (Down, psycopg2.Error, ClusterError) as error:
        trial.note("CRASH", error)
    finally:
        hung.cancel()
    faults = [line for line in state.cluster.new_faults() if any(s in line for s in ("PANIC", "TRAP", "terminated by"))]
    deaths = [line for line in faults if "terminated by" not in line]
    if deaths and any(page.kind == "table" for page in trial.damage.pages) and all(OCCUPIED in line for line in deaths):
        trial.seen.pop("CRASH", None)
        trial.note("told", faults[0])
    elif faults:
        trial.seen["CRASH"] = faults[0]     # tells more than that a connection was lost
        show_stack(state.cluster.log)
    result = trial.result()
    if result in FAULTS:
        print(f"{result} seed {state.seed} trial {number} ({mode}): {trial.damage}")
        for what in FAULTS:
            if what in trial.seen:
                print(f"    {what}: {trial.seen[what]}")
    elif options.verbose:
        print(f"{result} seed {state.seed} trial {number} ({mode}): {trial.damage}: {trial.seen}")
    sys.stdout.flush()
    return trial.damage, result


def parse_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="folder of the programs of a server that has zundo installed")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--per-state", type=int, default=100, help="trials with one state; half of them live")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--trial", type=int, default=None, help="only the trial of this number")
    parser.add_argument("--mode", choices=("live", "cold", "busy"), default=None, help="default: live and cold")
    parser.add_argument("--only", action="append", default=[], metavar="PAGE:DAMAGE", help="only this kind, for example overflow:stale, twins:stale")
    parser.add_argument("--verbose", action="store_true", help="print a line for each trial")
    parser.add_argument("--keep", action="store_true", help="do not remove the cluster if a trial fails")
    return parser.parse_args()


def trials_of(options, seed, count, counts):
    """Makes one state and runs its trials; returns whether there was a fault."""
    state = State(options, seed)
    bad = False
    try:
        state.make()
        numbers = [options.trial] if options.trial is not None else list(range(count))
        live = [n for n in numbers if n % 2 == 0 and options.mode in ("live", None)]
        cold = [n for n in numbers if n % 2 == 1 and options.mode in ("cold", None)]
        busy = numbers if options.mode == "busy" else []
        for mode, chosen in (("live", live), ("cold", cold), ("busy", busy)):
            if chosen and mode != "live" and not os.path.exists(state.base):
                state.freeze()
            for number in chosen:
                damage, result = run_trial(state, number, mode, options)
                counts[damage.kind, damage.how, result] += 1
                if result in FAULTS:
                    bad = True
                    if options.keep:
                        return True
                if mode != "live":
                    state.cluster.kill()
                elif result == "CRASH" or state.spoilt:
                    return bad
        return bad
    finally:
        if bad and options.keep:
            print(f"the cluster is in {state.cluster.root}")
        else:
            state.cluster.remove()


def show(counts):
    """Prints a table of the numbers of trials by kind of page, damage and result."""
    results = FAULTS + ("told", "right")
    print(f"{'page':10}{'damage':10}" + "".join(f"{r:>9}" for r in results))
    for kind, how in sorted({key[:2] for key in counts}):
        print(f"{kind:10}{how:10}" + "".join(f"{counts[kind, how, r]:9}" for r in results))


def main():
    """Runs the trials; returns the exit status, 1 if there was a fault."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    seed = options.seed if options.seed is not None else int(time.time()) % 1000000
    counts = collections.Counter()
    bad = False
    left = options.trials
    while left > 0:
        bad |= trials_of(options, seed, min(left, options.per_state), counts)
        left = 0 if options.trial is not None else left - options.per_state
        seed += 1
    show(counts)
    total = sum(counts.values())
    faults = {what: sum(n for key, n in counts.items() if key[2] == what) for what in FAULTS}
    print(f"{total} damages: " + ", ".join(f"{n} {what}" for what, n in faults.items()))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
