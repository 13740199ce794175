#!/usr/bin/python3
"""Makes every fault point raise an error, and then kill its process, under load, with a standby.

The load is that of twins.py, and one more session runs statements that are rare there. Each fault point of
common/fault.c is set for all processes until the first one has reached it: first with an error (a PANIC in a
critical section), then with a SIGKILL. Afterwards the twins must be equal on the primary and on the standby,
zundo.check must find nothing, and all open transactions must end. A point that no process reaches counts as a
fault, too; with --points it is only mentioned.

    faults.py --bindir DIR [--points N] [--seed N] [NAME...]
"""

import argparse
import os
import random
import re
import shutil
import signal
import sys
import threading
import time

import psycopg2

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import twins  # noqa: E402  (same directory)
from cluster import Cluster, ClusterError  # noqa: E402

SOURCE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "common", "fault.c")
# reached only by the first process that accesses a database's undo logs after a start
AT_THE_START = ("undo-load",)
# left out: reached only if the first user of a database is no undo worker (t/055_worker_starts), and in
# zundo.set_index_method (t/117_set_index_method)
LEFT_OUT = ("first-look", "index-step")
# reached only with indexes of access method zbtree
OF_ZBTREE = ("keys-due", "key-found", "keys-judged", "stale-judged", "keys-cleaned", "keys-taken", "entries-judged",
             "marks-cleared")
# reached only if there is an idle session whose log another session needs, or keeps the file from being truncated
OF_IDLE = ("taking-log",)
# disk: an error with SQLSTATE 53100, which the load expects
ACTIONS = ("disk", "crash")
SETTINGS = """
shared_buffers = 2MB
checkpoint_timeout = 30s
max_wal_size = 128MB
fsync = off
wal_level = replica
max_wal_senders = 10
wal_keep_size = 1GB
hot_standby_feedback = on
"""
RARE_SETUP = """
CREATE TABLE rare (id int PRIMARY KEY, k int, pad text) USING zheap WITH (fillfactor = 100);
CREATE INDEX rare_k ON rare (k);
CREATE TABLE rare_log (n int);
CREATE FUNCTION rare_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM count(*) FROM (SELECT OLD.k, NEW.k) x; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER rare_later AFTER UPDATE ON rare DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION rare_note();
CREATE TABLE crowd (id int, n int, pad text) USING zheap;
INSERT INTO crowd SELECT g, 0, repeat('p', 100) FROM generate_series(1, 700) g;
INSERT INTO rare SELECT g, g, md5(g::text) FROM generate_series(1, 2000) g;
"""
RARE = (
    # makes much undo, which is then discarded and truncated
    "UPDATE rare SET pad = md5(pad) || md5(id::text)",
    "BEGIN; UPDATE rare SET pad = left(pad, 32), k = k + 1; ROLLBACK",
    # changes rows several times in one transaction, for a deferred trigger
    "BEGIN; UPDATE rare SET k = k + 1 WHERE id < 300; UPDATE rare SET k = k + 1 WHERE id < 300; UPDATE rare SET k = k - 2 WHERE id < 300; COMMIT",
    # makes stale index entries
    "UPDATE rare SET k = k + 1 WHERE id BETWEEN 500 AND 900",
    "DELETE FROM rare WHERE id % 9 = 0",
    "INSERT INTO rare SELECT g, g, 'again' FROM generate_series(9, 2000, 9) g ON CONFLICT DO NOTHING",
    "VACUUM rare",
    "SELECT count(*) FROM (SELECT 1 FROM rare WHERE id < 200 FOR KEY SHARE) x",
    "SELECT count(*) FROM (SELECT 1 FROM rare WHERE id < 200 FOR UPDATE) x",
    "SELECT zundo.discard()",
    # rewrites a table while a snapshot needs old versions
    "HOLD; UPDATE rare SET pad = pad || 'x' WHERE id % 50 = 0; ALTER TABLE rare SET TABLESPACE side; ALTER TABLE rare SET TABLESPACE pg_default",
    # more transactions than a full page has slots for
    "CROWD",
)


def leave_idle(ctx, dsn):
    """Keeps sessions idle whose undo logs have the last extents of a large file, again and again."""
    while not ctx.stop.is_set():
        conns = []
        try:
            conns = [psycopg2.connect(dsn) for _ in range(5)]
            for conn in conns:
                conn.autocommit = True
            old, writer, *owners = [conn.cursor() for conn in conns]
            writer.execute("CREATE TABLE IF NOT EXISTS idle (a int, pad text) USING zheap WITH (fillfactor = 50)")
            writer.execute("TRUNCATE idle; INSERT INTO idle SELECT g, repeat(md5(g::text), 8) FROM generate_series(1, 8000) g")
            old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM idle LIMIT 1")
            writer.execute("SET zundo.undo_compression = none")
            for _ in range(8):
                writer.execute("UPDATE idle SET a = a + 1, pad = reverse(pad)")
            for number, owner in enumerate(owners):
                # so much that the session's log takes a new extent
                owner.execute("SET zundo.undo_compression = none")
                owner.execute(f"UPDATE idle SET pad = reverse(pad) WHERE a % {len(owners)} = {number}")
            old.execute("COMMIT")
            ctx.stop.wait(12)
        except psycopg2.Error as error:
            ctx.count_error(error, "provoker")
            ctx.stop.wait(0.2)
        finally:
            for conn in conns:
                conn.close()


def fault_points():
    """Returns the names of the fault points in common/fault.c."""
    with open(SOURCE, encoding="utf-8") as source:
        array = re.search(r"fault_points\[\] = \{(.*?)\n\};", source.read(), re.S).group(1)
    return [point for point in re.findall(r'^\t"([a-z-]+)"', array, re.M) if point not in LEFT_OUT]


class Armed:
    """The setting zundo.fault for all processes of a server."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.path = os.path.join(cluster.data, "fault.conf")
        self.write("")
        with open(os.path.join(cluster.data, "postgresql.conf"), "a", encoding="utf-8") as conf:
            conf.write("include_if_exists 'fault.conf'\n")

    def write(self, spec):
        """Sets zundo.fault, or resets it if spec is empty. The server need not be running."""
        with open(self.path + ".new", "w", encoding="utf-8") as conf:
            conf.write(f"zundo.fault = '{spec}'\n" if spec else "")
        os.chmod(self.path + ".new", 0o644)
        os.rename(self.path + ".new", self.path)
        pid = self.cluster.postmaster()
        if pid:
            try:
                os.kill(pid, signal.SIGHUP)
            except ProcessLookupError:
                pass


def provoke(ctx, dsn, rng):
    """Runs the statements of RARE until the load ends."""
    while not ctx.stop.is_set():
        conn = twins.connect_unless_stopped(dsn, ctx)
        if conn is None:
            return
        try:
            with conn.cursor() as cursor:
                cursor.execute(f"SET zundo.eager_rollback_pages = {rng.choice([0, 32])}")
                for sql in rng.sample(RARE, len(RARE)):
                    if ctx.stop.is_set():
                        break
                    try:
                        for statement in sql.split("; "):
                            if statement == "HOLD":
                                holder = psycopg2.connect(dsn)
                                holder.cursor().execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM crowd")
                            elif statement == "CROWD":
                                crowd(dsn)
                            else:
                                cursor.execute(statement)
                        if sql.startswith("HOLD"):
                            holder.close()
                    except psycopg2.Error as error:
                        ctx.count_error(error, "provoker")
                        if conn.closed:
                            break
                        cursor.execute("ROLLBACK")
            conn.close()
        except psycopg2.Error as error:
            ctx.count_error(error, "provoker")


def crowd(dsn):
    """Makes sixteen sessions change rows of one page at the same time."""
    conns = []
    try:
        for number in range(16):
            conns.append(psycopg2.connect(dsn))
            conns[-1].cursor().execute("SET lock_timeout = 1000")
            conns[-1].cursor().execute(f"UPDATE crowd SET n = n + 1 WHERE id = {number + 1}")
    finally:
        for conn in conns:
            conn.close()


def was_reached(cluster, start, point, action):
    """Returns whether the log, from position start on, says that a process has reached the point."""
    with open(cluster.log, "rb") as log:
        log.seek(start)
        text = log.read().decode("utf-8", "replace")
    return f'zundo fault point "{point}"' in text if action == "disk" else "terminated by signal 9" in text


def without_panics(lines, point):
    """Returns the lines without those about a PANIC at the point."""
    panic = f'PANIC:  zundo fault point "{point}"'
    dead = {re.search(r"\[(\d+)\]", line).group(1) for line in lines if panic in line}
    return [line for line in lines if panic not in line and
            not ((found := re.search(r"\(PID (\d+)\) was terminated by signal 6", line)) and found.group(1) in dead)]


def one_point(cluster, ctx, armed, point, action, number, options):
    """Runs the load until a process has reached the point, then checks everything; raises twins.Broken.

    Returns False if no process has reached the point within options.seconds.
    """
    ctx.stop.clear()
    standby = ctx.standby
    clients = [twins.Client(ctx, n, options.seed * 1000 + number) for n in range(4)]
    threads = twins.load(cluster, ctx, clients, options.seed, number, standby)
    threads.append(threading.Thread(target=provoke, args=(ctx, cluster.dsn(), random.Random(f"{options.seed}/{number}"))))
    threads[-1].start()
    if point in OF_IDLE:
        threads.append(threading.Thread(target=leave_idle, args=(ctx, cluster.dsn())))
        threads[-1].start()
    ctx.stop.wait(0.5)
    start = os.path.getsize(cluster.log)
    armed.write(f"{point}:{action}")
    if point in AT_THE_START:
        cluster.kill()
        cluster.start()
    deadline = time.time() + options.seconds
    reached = False
    while not reached and time.time() < deadline and not ctx.stop.is_set():
        time.sleep(0.1)
        reached = was_reached(cluster, start, point, action)
    armed.write("")
    if reached:
        ctx.stop.wait(1)
    ctx.stop.set()
    for thread in threads:
        thread.join(90)
        if thread.is_alive():
            raise twins.Broken("a thread does not end")
    if ctx.problems:
        raise twins.Broken("; ".join(ctx.problems[:3]))
    cluster.wait_until_up()
    what = f"after {point}:{action}"
    twins.verify(cluster.dsn(), ctx, what)
    conn = cluster.connect()
    with conn.cursor() as cursor:
        cursor.execute("SELECT * FROM zundo.check('rare')")
        found = cursor.fetchall()
    conn.close()
    if found:
        raise twins.Broken(f"{what}: zundo.check of rare: {found[:3]}")
    twins.catch_up(cluster.dsn(), standby.dsn())
    twins.verify(standby.dsn(), ctx, f"standby, {what}", settle=False)
    faults = without_panics(cluster.new_faults(), point) + standby.faults()
    if faults:
        raise twins.Broken(f"{what}: server log: {faults[:5]}")
    return reached


def parse_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="folder of the programs of a server that has zundo installed, built for tests")
    parser.add_argument("--points", type=int, default=None, help="number of points, chosen by the seed; default: all")
    parser.add_argument("--seconds", type=float, default=30, help="longest time until a process reaches a point")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 1000000)
    parser.add_argument("--keep", action="store_true", help="do not remove the cluster if something fails")
    parser.add_argument("names", nargs="*", help="only these points")
    options = parser.parse_args()
    # the options that twins.py needs
    options.clients = 4
    options.prepare = True
    options.faults = options.trouble = options.no_janitor = options.whole_pages = options.convert = False
    return options


def main():
    """Runs the rounds; returns the exit status."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    points = options.names or fault_points()
    rounds = [(point, action) for point in points for action in ACTIONS]
    if options.points is not None:
        rounds = random.Random(options.seed).sample(rounds, options.points)
    cluster = Cluster(options.bindir, SETTINGS)
    ctx = twins.Context(options)
    ctx.zbtree = options.seed % 2 == 1 or any(point in OF_ZBTREE for point, _ in rounds)
    standby = None
    failed = True
    never = []
    print(f"seed {options.seed}, {len(rounds)} rounds", flush=True)
    try:
        os.mkdir(os.path.join(cluster.root, "side"))
        if cluster.user:
            shutil.chown(os.path.join(cluster.root, "side"), cluster.user)
        armed = Armed(cluster)
        cluster.start()
        conn = cluster.connect()
        with conn.cursor() as cursor:
            cursor.execute(f"CREATE TABLESPACE side LOCATION '{cluster.root}/side'")
            cursor.execute(twins.set_up(90, ctx.zbtree) + RARE_SETUP)
        conn.close()
        standby = ctx.standby = twins.Copy(cluster, "standby")
        standby.start([f"primary_conninfo = 'host={cluster.root} port=5432 user=postgres'"], "standby.signal")
        for number, (point, action) in enumerate(rounds):
            begin = time.time()
            reached = one_point(cluster, ctx, armed, point, action, number, options)
            if not reached:
                never.append(f"{point}:{action}")
            print(f"{point}:{action}: {'no fault' if reached else 'NOT REACHED'}, {time.time() - begin:.1f} s", flush=True)
        failed = bool(never) and options.points is None
        print(f"{len(rounds) - len(never)} fault points, no fault after each" + (f"; not reached: {', '.join(never)}" if never else ""))
        return 1 if failed else 0
    except (twins.Broken, ClusterError, psycopg2.Error) as error:
        print(f"FAILED seed {options.seed}, {point}:{action}: {error}\n{'; '.join(ctx.problems[:5])}\n{cluster.log_tail(30)}", flush=True)
        return 1
    finally:
        ctx.stop.set()
        if failed and options.keep:
            print(f"the cluster is in {cluster.root}")
        if standby:
            standby.stop()
        cluster.remove(keep=failed and options.keep)


if __name__ == "__main__":
    sys.exit(main())
