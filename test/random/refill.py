#!/usr/bin/python3
"""Deletes rows and gives their space to other rows beside old snapshots, on heap and on zheap.

A history has twins, a heap and a zheap table of 300 to 3,000 rows (or fewer rows of 4 kB, or with values out of line). Three writers change both in the
same way, with open transactions side by side on the same pages: deletions of few and of all rows, inserts, updates in
place, of keys and of lengths, savepoints. Up to six readers keep old snapshots, some of them serializable; some write into
the twins as well. Each session must find the same rows in both, by every kind of scan, whenever it looks. VACUUM, index
builds, discarding of undo and zundo.check come between.

Nothing waits: a writer changes only the rows of its part, and all sessions are run by one thread.

    refill.py --bindir DIR --minutes 1 [--seed N] [--histories 1]
"""

import argparse
import collections
import os
import random
import signal
import sys
import time

import psycopg2

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, connect  # noqa: E402  (same directory)
import zbtree_side  # noqa: E402

TWINS = ("h", "z")
WRITERS = 3
READERS = 6
CONFLICT = "40001"              # ends a transaction that is not READ COMMITTED
LEVELS = ("READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
DEPENDENCIES = "read/write dependencies"

# undone deletes a row in a subtransaction that it rolls back; its caller is a DELETE of other rows.
HELPERS = """
CREATE FUNCTION undone(tab text, one int, which int) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE format('DELETE FROM %I WHERE id = $1 AND part = $2', tab) USING one, which;
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN RETURN true;
END $$;
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE format('INSERT INTO %I VALUES ($1, $2)', TG_TABLE_NAME || '_log') USING TG_OP, hashtextextended(OLD::text, 0);
    RETURN NULL;
END $$;
"""
TABLE = """
DROP TABLE IF EXISTS @, @_log;
CREATE TABLE @ (id int, part int, n int, v text) USING {am} WITH (fillfactor = {fill}, autovacuum_enabled = off);
ALTER TABLE @ ALTER v SET STORAGE {storage};
CREATE TABLE @_log (op text, row bigint) USING {am};
"""
NOTING = "CREATE CONSTRAINT TRIGGER note AFTER UPDATE OR DELETE ON @ DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()"
SUM = "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM @ t WHERE "
# The same rows by scans of all kinds, and what triggers have noted. Each text is compared with heap's.
LOOKS = tuple(f"by_{way}($q${query}$q$)" for way, query in (
    ("seq", SUM + "id >= 0"), ("index", SUM + "id >= 0"), ("bitmap", SUM + "id >= 0"), ("bitmap", SUM + "ctid = ANY (ARRAY(SELECT ctid FROM @))"),
    ("index_only", "SELECT count(*), sum(id) FROM @ WHERE id >= 0"), ("seq", "SELECT op, count(*), sum(row) FROM @_log GROUP BY op ORDER BY op")))


class Broken(Exception):
    """The twins differ, or something else is wrong."""


class Session:
    """A writer or a reader: its connection, and the state of its transaction."""

    def __init__(self, history, name, part):
        self.history = history
        self.name = name
        self.part = part                # the value of the column part in the rows that it changes
        self.open = False
        self.wrote = False
        self.points = 0                 # savepoints that it has made
        self.fetched = None             # for each twin the rows that its cursor has returned
        self.conn = connect(history.dsn)
        self.cursor = self.conn.cursor()
        self.cursor.execute("SET lock_timeout = '60s'")

    def run(self, sql, shown=None):
        """Runs a statement, which the trace shows, unless something else is to be shown. Raises psycopg2.Error."""
        self.history.trace.append(f"{self.name}: {shown or sql}")
        try:
            self.cursor.execute(sql)
        except psycopg2.Error as error:
            self.history.trace.append(f"    -> {error.pgcode} {str(error).strip()[:200]}")
            raise

    def twice(self, sql):
        """Runs a statement, in which @ stands for the table, on both twins. Raises Broken unless it changes as many rows."""
        counts = []
        for twin in TWINS:
            self.run(sql.replace("@", twin))
            counts.append(self.cursor.rowcount)
        if counts[0] != counts[1]:
            raise Broken(f"{self.name}: {counts[0]} rows on heap, {counts[1]} on zheap: {sql}")

    def begin(self, level):
        """Begins a transaction."""
        self.run(f"BEGIN ISOLATION LEVEL {level}")
        self.open, self.wrote, self.points, self.fetched = True, False, 0, None

    def end(self, how):
        """Ends the transaction. A COMMIT may raise psycopg2.Error for a conflict; then the transaction has ended as well."""
        self.open = self.wrote = False
        self.run(how)

    def look(self, when):
        """Raises Broken unless this session finds the same rows in both twins, by three kinds of scans; returns their number."""
        looks = [LOOKS[0]] + self.history.rng.sample(LOOKS[1:], 2)
        found = []
        for twin in TWINS:
            self.run("SELECT " + ", ".join(looks).replace("@", twin), f"(looks at {twin})")
            found.append(self.cursor.fetchone())
        self.history.counts["looks"] += 1
        if found[0] != found[1]:
            raise Broken(f"{self.name} {when}, {[look[:9] for look in looks]}: heap {found[0]}, zheap {found[1]}; {self.differences()}")
        return int(found[0][0].strip("()").split(",")[0])

    def differences(self):
        """Returns some rows of each twin that the other does not have, as a sequential scan sees them."""
        rows = []
        for twin in TWINS:
            self.cursor.execute(f"SELECT id, part, n, left(v, 1), length(v), md5(v), ctid::text FROM {twin}")
            rows.append(collections.Counter(row[:-1] for row in self.cursor.fetchall()))
        return "only heap {}, only zheap {}".format(*([(*row[:5],) for row in list((rows[a] - rows[1 - a]).elements())[:5]] for a in (0, 1)))

    def open_cursors(self, count):
        """Opens a cursor on each twin, and fetches some rows."""
        for twin in TWINS:
            self.run(f"DECLARE c{twin} CURSOR FOR SELECT id, part, n, md5(v) FROM {twin}")
        self.fetched = {twin: [] for twin in TWINS}
        self.fetch(count)

    def fetch(self, count):
        """Fetches rows from the cursors. With ALL, closes them, and raises Broken unless both have returned the same rows."""
        for twin in TWINS:
            self.run(f"FETCH {count} FROM c{twin}")
            self.fetched[twin] += self.cursor.fetchall()
        if count == "ALL":
            heap, zheap = (sorted(self.fetched[twin]) for twin in TWINS)
            if heap != zheap:
                raise Broken(f"{self.name}: its cursors differ: only heap {sorted(set(heap) - set(zheap))[:5]}, only zheap {sorted(set(zheap) - set(heap))[:5]}, "
                             f"{len(heap)} and {len(zheap)} rows")
            self.run("CLOSE ALL")
            self.fetched = None


class History:
    """One history: new twins, and random steps of the sessions."""

    def __init__(self, dsn, seed, zbtree):
        self.dsn = dsn
        self.rng = rng = random.Random(seed)
        self.trace = []
        self.counts = collections.Counter()
        # kept values are of one chunk to some pages of chunks, each other bytes
        self.storage = rng.choice(["PLAIN", "PLAIN", "PLAIN", "EXTERNAL", "EXTENDED"])
        self.wide = self.storage != "PLAIN" or rng.random() < 0.15
        self.limit = rng.choice([100, 300]) if self.wide else rng.choice([300, 1000, 3000])
        self.rows = 0                   # of a twin, about
        self.zbtree = zbtree
        self.indexes = 0
        self.readers = []
        self.born = 0                   # readers that there have been
        self.admin = Session(self, "admin", -1)
        self.writers = [Session(self, f"writer{part}", part) for part in range(WRITERS)]
        self.make_twins()

    def make_twins(self):
        """Creates and fills the twins."""
        rng = self.rng
        fill = rng.choice([50, 90, 100, 100])
        indexed = rng.choice([(), ("id",), ("id",), ("id", "n")])
        noting = rng.random() < 0.25
        for twin, am in zip(TWINS, ("heap", "zheap")):
            self.admin.run(TABLE.format(am=am, fill=fill, storage=self.storage).replace("@", twin))
            for column in indexed:
                self.index(twin, column)
            if noting:
                self.admin.run(NOTING.replace("@", twin))
        for writer in self.writers:
            self.admin.twice(self.insertion(writer.part, self.limit // 4))

    def index(self, twin, column):
        """Creates an index."""
        sql = f"CREATE INDEX ON {twin} ({column})"
        self.admin.run(zbtree_side.with_zbtree(sql) if self.zbtree and twin == "z" else sql)

    def value(self, number, first):
        """Returns an expression for a column v: a letter that depends on a number, from this first letter on, or other bytes for each number."""
        rng = self.rng
        if self.storage == "EXTERNAL":
            return f"repeat(md5(({number})::text || '{rng.random()}'), {rng.choice([70, 70, 130, 250, 500, 3])})"
        if self.storage == "EXTENDED":
            return f"(SELECT string_agg(md5(x || ({number})::text || '{rng.random()}') || repeat('e', 32), '') FROM generate_series(1, {rng.choice([70, 70, 130, 250, 3])}) x)"
        width = rng.choice([3900, 3900, 3900, 1000, 10] if self.wide else [0, 10, 30, 30, 30, 100, 200])
        return f"repeat(chr(97 + ({number} + {first}) % 26), {width})"

    def insertion(self, part, count):
        """Returns a statement that inserts this number of rows of a part."""
        rng = self.rng
        self.rows += count
        return (f"INSERT INTO @ SELECT {rng.randrange(self.limit)} + g, {part}, {rng.randrange(4)}, {self.value('g', rng.randrange(26))} "
                f"FROM generate_series(1, {count}) g")

    def some(self, part):
        """Returns a condition for some rows of a part, or all of them."""
        rng = self.rng
        low = rng.randrange(self.limit)
        return f"part = {part}" + rng.choice(["", f" AND id BETWEEN {low} AND {low + rng.randrange(200)}", f" AND id BETWEEN {low} AND {low + rng.randrange(200)}",
                                              f" AND id = {low}", f" AND id % {rng.randrange(2, 7)} = 0", f" AND n = {rng.randrange(4)}"])

    def change(self, session):
        """Makes one random change of a session's rows."""
        rng = self.rng
        part = session.part
        session.wrote = True
        kind = rng.random()
        if self.rows > self.limit:
            session.twice(f"DELETE FROM @ WHERE part = {part} AND id % 4 <> 0")
            self.rows = self.rows * 3 // 4
        elif kind < 0.35:
            session.twice(f"DELETE FROM @ WHERE {self.some(part)}")
        elif kind < 0.4:
            session.twice(f"DELETE FROM @ WHERE {self.some(part)} AND id % 5 = 1 AND undone('@', id + {rng.randrange(3)}, {part})")
        elif kind < 0.75:
            session.twice(self.insertion(part, rng.choice([1, 10, self.limit // 20, self.limit // 5])))
        else:
            session.twice("UPDATE @ SET " + rng.choice(["n = n + 1", "n = n + 1", "id = id + 1", f"v = {self.value('id', rng.randrange(26))}", f"v = {self.value('id', rng.randrange(26))}, n = 0"])
                          + f" WHERE {self.some(part)}")

    def write(self):
        """Makes one step of a writer: a change, a savepoint, or an end of its transaction."""
        rng = self.rng
        writer = rng.choice(self.writers)
        kind = rng.random()
        if not writer.open:
            writer.begin(rng.choice(LEVELS))
            self.change(writer)
        elif kind < 0.12:
            writer.points += 1
            writer.run(f"SAVEPOINT p{writer.points}")
        elif kind < 0.22 and writer.points:
            writer.points = rng.randint(1, writer.points)
            writer.run(f"ROLLBACK TO p{writer.points}")
        elif kind < 0.55:
            writer.run("SET CONSTRAINTS ALL IMMEDIATE")
            self.rows = max(writer.look("before its end"), 1)
            writer.end("COMMIT" if rng.random() < 0.75 else "ROLLBACK")
        else:
            self.change(writer)

    def new_reader(self):
        """Begins a reader, mostly with a first look at the twins."""
        rng = self.rng
        self.born += 1
        reader = Session(self, f"reader{self.born}", 10 + self.born)
        self.readers.append(reader)
        reader.begin(rng.choice(["REPEATABLE READ", "REPEATABLE READ", "SERIALIZABLE"]))
        if rng.random() < 0.2:
            reader.run("SELECT 1")      # its snapshot only
        else:
            reader.look("at first")
        if rng.random() < 0.3:
            reader.open_cursors(rng.choice([1, 10, 100]))

    def read(self):
        """Lets a reader look, after a change of rows of its own or of others."""
        rng = self.rng
        reader = rng.choice(self.readers)
        kind = rng.random()
        if kind < 0.2:
            reader.run("SAVEPOINT w")
            self.change(reader)
            if rng.random() < 0.2:
                reader.run("ROLLBACK TO w")
        elif kind < 0.35:
            self.meddle(reader)
        elif kind < 0.5 and reader.fetched:
            reader.fetch(rng.choice([1, 50, "ALL"]))
        reader.look("later")

    def meddle(self, reader):
        """Lets a reader delete or update rows of a writer that has no open transaction, and rolls that back.

        The outcome must be the same on both twins: the number of rows, or a conflict.
        """
        rng = self.rng
        idle = [writer for writer in self.writers if not writer.open]
        if not idle:
            return
        what = rng.choice(["DELETE FROM @ WHERE ", "UPDATE @ SET n = n + 1 WHERE "]) + self.some(rng.choice(idle).part)
        outcomes = []
        for twin in TWINS:
            reader.run("SAVEPOINT m")
            try:
                reader.run(what.replace("@", twin))
                outcomes.append(reader.cursor.rowcount)
            except psycopg2.Error as error:
                if error.pgcode != CONFLICT or DEPENDENCIES in str(error):
                    raise
                outcomes.append(CONFLICT)
            reader.run("ROLLBACK TO m")
        self.counts["conflicts" if CONFLICT in outcomes else "meddled"] += 1
        if outcomes[0] != outcomes[1]:
            raise Broken(f"{reader.name}: {outcomes[0]} on heap, {outcomes[1]} on zheap: {what}")

    def leave(self, reader, how):
        """Ends a reader."""
        if reader.fetched:
            reader.fetch("ALL")
        reader.end(how)
        reader.conn.close()
        self.readers.remove(reader)

    def check(self):
        """Raises Broken if zundo.check or zundo.check_index finds something."""
        self.admin.run("SELECT * FROM zundo.check('z')")
        found = self.admin.cursor.fetchall()
        self.admin.run(zbtree_side.FAULTS)
        found += self.admin.cursor.fetchall()
        if found:
            raise Broken(f"zundo.check: {found[:5]}")

    def maintain(self):
        """Makes one step of maintenance."""
        kind = self.rng.random()
        if kind < 0.45:
            # before it truncates the table, VACUUM would wait for the locks of other sessions
            self.admin.run("VACUUM (TRUNCATE off) z" if self.readers or any(writer.open for writer in self.writers) else "VACUUM z")
        elif kind < 0.6:
            self.admin.run("SELECT zundo.discard()")
        elif kind < 0.7:
            self.check()
        elif not any(session.wrote for session in self.writers + self.readers):
            # no lock is in the way of an index build; of REINDEX and DROP INDEX those of readers are
            if self.readers or self.indexes == 0:
                if self.indexes < 3:
                    self.indexes += 1
                    self.index("z", self.rng.choice(["id", "n"]))
            else:
                self.admin.run("REINDEX TABLE z")

    def step(self):
        """Makes one random step of some session."""
        kind = self.rng.random()
        if kind < 0.08 and len(self.readers) < READERS:
            self.new_reader()
        elif kind < 0.25 and self.readers:
            self.read()
        elif kind < 0.30 and self.readers:
            self.leave(self.rng.choice(self.readers), self.rng.choice(["COMMIT", "ROLLBACK"]))
        elif kind < 0.38:
            self.maintain()
        else:
            self.write()

    def run(self, length):
        """Makes this number of steps, ends all transactions, and compares again, also after VACUUM. Raises Broken."""
        for _ in range(length):
            try:
                self.step()
            except psycopg2.Error as error:
                if error.pgcode != CONFLICT:
                    raise
                self.counts["conflicts"] += 1
                self.give_up()
        for reader in list(self.readers):
            try:
                self.leave(reader, "COMMIT")
            except psycopg2.Error as error:
                if error.pgcode != CONFLICT:
                    raise
                self.give_up()
        for writer in self.writers:
            writer.run("ROLLBACK")
        for _ in range(2):
            self.admin.look("at the end")
            self.check()
            self.admin.run("VACUUM z")

    def give_up(self):
        """Ends the transactions that have failed."""
        for session in self.writers + self.readers:
            if session.open and session.conn.info.transaction_status == psycopg2.extensions.TRANSACTION_STATUS_INERROR:
                session.end("ROLLBACK")
        for reader in [reader for reader in self.readers if not reader.open]:
            self.readers.remove(reader)
            reader.conn.close()

    def close(self):
        """Closes all connections."""
        for session in [self.admin] + self.writers + self.readers:
            session.conn.close()


def one_seed(cluster, seed, options):
    """Runs the history of a seed; returns (fault or None, trace, counts)."""
    history = None
    fault = None
    trace, counts = [], {}
    try:
        history = History(cluster.dsn(), seed, zbtree_side.chosen(options.zbtree_mode, seed))
        trace, counts = history.trace, history.counts
        history.run(options.length)
    except Broken as error:
        fault = str(error)
    except psycopg2.Error as error:
        fault = f"{error.pgcode or 'lost'}: {str(error).strip()}"
    finally:
        if history is not None:
            history.close()
    log = cluster.new_faults()
    return fault or (f"server log: {log[:5]}" if log else None), trace, counts


def parse_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="folder of the programs of a server that has zundo installed")
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--histories", type=int, help="stop after this number of histories")
    parser.add_argument("--seed", type=int, help="first seed; default: from the clock")
    parser.add_argument("--length", type=int, default=150, help="steps of a history")
    parser.add_argument("--zbtree", dest="zbtree_mode", choices=zbtree_side.MODES, default="mixed", help="use zbtree indexes on the zheap table; mixed: in odd seeds")
    parser.add_argument("--verbose", action="store_true", help="print all statements")
    parser.add_argument("--keep", action="store_true", help="do not remove the cluster")
    return parser.parse_args()


def run_all(cluster, options):
    """Runs histories until the time is over or one fails; returns the exit status."""
    totals = collections.Counter()
    seed = options.seed if options.seed is not None else int(time.time()) % 100000000
    print(f"first seed {seed}", flush=True)
    deadline = time.time() + options.minutes * 60
    while not totals["histories"] or (time.time() < deadline and totals["histories"] != options.histories):
        fault, trace, counts = one_seed(cluster, seed, options)
        totals["histories"] += 1
        totals.update(counts)
        if options.verbose:
            print("\n".join(trace))
        if fault:
            print("\n".join(trace[-60:]) + f"\nFAILED seed {seed} (--seed {seed} --histories 1 --length {options.length}): {fault}", flush=True)
            return 1
        seed += 1
    print("the twins are equal: " + ", ".join(f"{count} {name}" for name, count in sorted(totals.items())))
    return 0


def main():
    """Runs the histories; returns the exit status."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))     # so that the cluster is removed
    cluster = Cluster(options.bindir, "fsync = off\nshared_buffers = 16MB\n")
    try:
        cluster.start()
        conn = cluster.connect()
        with conn.cursor() as cursor:
            cursor.execute("CREATE EXTENSION zundo;" + zbtree_side.HELPERS + HELPERS)
        conn.close()
        return run_all(cluster, options)
    finally:
        cluster.remove(keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
