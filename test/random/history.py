#!/usr/bin/python3
"""Runs random histories of several sessions on heap and on zheap, and compares them.

The same statements are sent, one at a time, to sessions with heap tables (the side
h) and to sessions with zheap tables (the side z). After every step the same
statements must wait on both sides, and rows (as multisets) and SQLSTATEs must be the
same. At the end all tables must be equal, index scans must agree with sequential
scans, and zundo.check() must find nothing.

    history.py --bindir DIR --minutes 10            a private server
    history.py --dsn 'host=/tmp ...' --minutes 10   a server that preloads zundo
    history.py --bindir DIR --replay cases/X.json   one saved history
    history.py --bindir DIR --control               heap against heap: tests this program
    history.py --bindir DIR --temp                  temporary tables, of one session
    history.py --bindir DIR --wide all              also partitions, cursors, MERGE, rewrites and more (wide.py)

Some results depend on the physical order of rows, or on which of several waiting
sessions continues first. A difference there ends the history as "ambiguous": all
transactions are rolled back, and only the final contents are compared.
"""

import argparse
import collections
import json
import os
import random
import re
import select
import signal
import sys
import time

import psycopg2
import psycopg2.extensions

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, connect  # noqa: E402  (same directory)
from generate import SHOW, Generator  # noqa: E402
from wide import FEATURES, WIDE_HELPERS, WideGenerator  # noqa: E402
import zbtree_side  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SIDES = ("h", "z")
HANG_SECONDS = 120
PIN_SECONDS = 8                 # more than the 5 s for which VACUUM waits for the lock to truncate a table
DEADLOCK = "40P01"
NOT_SUPPORTED = "0A000"

HELPERS = """
CREATE OR REPLACE FUNCTION public.txt(n int, seed int) RETURNS text LANGUAGE sql IMMUTABLE AS
$$ SELECT left(string_agg(md5((g * 7919 + seed)::text), ''), n) FROM generate_series(0, n / 32) g $$;
CREATE OR REPLACE FUNCTION public.note_change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN
  EXECUTE format('INSERT INTO %I.changes VALUES (%L, %L, %L, %L)', TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP,
    CASE WHEN TG_OP <> 'INSERT' THEN md5(OLD::text) END, CASE WHEN TG_OP <> 'DELETE' THEN md5(NEW::text) END);
  RETURN NULL;
END $$;
"""


class Clock:
    """Returns, when called, the seconds that this program has run, not counting time in which it was stopped."""

    def __init__(self):
        self.last = time.monotonic()
        self.total = 0.0

    def __call__(self):
        """Returns the seconds. Of the time between two calls at most five seconds count."""
        now = time.monotonic()
        self.total += min(now - self.last, 5.0)
        self.last = now
        return self.total


clock = Clock()


class Difference(Exception):
    """The two sides differ, or the zheap side is damaged."""


class Ambiguous(Exception):
    """The history has come to a point after which the sides may differ without a fault."""


# --- how it is run ----------------------------------------------------------


class Session:
    """An asynchronous connection, on which at most one statement runs.

    result is that of the last statement: ("ok", tag, sorted rows), ("error", SQLSTATE, message),
    ("lost", message, None), or None while the statement runs.
    """

    def __init__(self, dsn, setup):
        self.conn = psycopg2.connect(dsn, async_=1)
        self.busy = True
        self.cursor = None
        self.result = None
        self.rows = []
        self.wait()
        self.pid = self.conn.info.backend_pid
        for statement in setup:
            self.start(statement)
            self.wait()
            if self.result[0] != "ok":
                raise Difference(f"{statement}: {self.result}")

    def start(self, sql):
        """Sends a statement."""
        self.result = None
        self.busy = True
        try:
            self.cursor = self.conn.cursor()
            self.cursor.execute(sql)
        except psycopg2.Error as error:
            self.finish(error)

    def finish(self, error):
        """Sets result; error is that of the statement, or None."""
        self.busy = False
        if error is not None:
            if error.pgcode is None or self.conn.closed:
                self.result = ("lost", str(error).strip(), None)
            else:
                self.result = ("error", error.pgcode, str(error).strip())
            return
        self.rows = self.cursor.fetchall() if self.cursor.description else []
        self.result = ("ok", self.cursor.statusmessage, sorted(repr(row) for row in self.rows))

    def pump(self):
        """Processes what the server has sent; returns whether the statement has ended."""
        if not self.busy:
            return True
        try:
            state = self.conn.poll()
        except psycopg2.Error as error:
            self.finish(error)
            return True
        if state == psycopg2.extensions.POLL_OK:
            if self.cursor is not None:
                self.finish(None)
            else:
                self.busy = False
            return True
        return False

    def wait(self, timeout=HANG_SECONDS):
        """Waits until the statement has ended; returns False if it has not within timeout seconds."""
        deadline = clock() + timeout
        while not self.pump():
            left = deadline - clock()
            if left <= 0:
                return False
            select.select([self.conn.fileno()], [], [], min(left, 0.05))
        return True

    def close(self):
        """Closes the connection."""
        try:
            self.conn.close()
        except psycopg2.Error:
            pass


class Side:
    """The sessions of one access method. waiting: the numbers of those that wait for another session."""

    def __init__(self, name, dsn, access_method, sessions, setup, extra, temp, zbtree=False):
        self.name = name
        self.zbtree = zbtree
        self.dsn = dsn
        self.temp = temp
        base = [f"SET search_path = {name}, public", f"SET default_table_access_method = {access_method}",
                "SET lock_timeout = 0", *extra]
        self.is_zheap = access_method == "zheap"
        setup = [self.own(statement) for statement in setup]
        self.sessions = {}
        self.waiting = set()
        self.pids = []                  # of the sessions of both sides: CREATE INDEX CONCURRENTLY waits for all of them
        self.twins = {}                 # number -> pid on the other side: two VACUUMs wait for each other for a moment
        if temp:
            # only the session itself can read its tables
            self.sessions[0] = Session(dsn, base + list(setup))
            return
        self.control = connect(dsn)
        with self.control.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}")
            for statement in base + list(setup):
                cursor.execute(statement)
            cursor.execute("SET lock_timeout = '2s'")       # for CHECK, since the table may be locked
        for number in [-1, *range(sessions)]:
            self.sessions[number] = Session(dsn, base + [f"SET application_name = '{name}{number}'"])

    def own(self, sql):
        """Returns the statement as it is run on this side."""
        return zbtree_side.with_zbtree(sql) if self.zbtree else sql

    def settle(self):
        """Waits until every statement has ended or waits for another session; sets waiting.

        Raises Difference if a statement does neither, and Ambiguous if a VACUUM waits for a pin.
        """
        if self.temp:
            if not self.sessions[0].wait():
                raise Difference(f"{self.name}: the session does not end: hang")
            return
        deadline = clock() + HANG_SECONDS
        confirmed = 0
        pause = 0.0003
        while True:
            open_ones = {n: s for n, s in self.sessions.items() if not s.pump()}
            if not open_ones:
                self.waiting = set()
                return
            if pause > 0.004:
                with self.control.cursor() as cursor:
                    cursor.execute("SELECT pid FROM unnest(%s, %s) AS u (pid, twin) "
                                   "WHERE pg_isolation_test_session_is_blocked(pid, array_remove(%s, twin))",
                                   ([s.pid for s in open_ones.values()], [self.twins[n] for n in open_ones], self.pids))
                    blocked = {row[0] for row in cursor.fetchall()}
                if all(s.pid in blocked for s in open_ones.values()):
                    confirmed += 1
                    if confirmed >= 2:
                        # several waiting sessions may be in a deadlock, which is found after deadlock_timeout
                        if len(open_ones) == 1 or confirmed >= 9:
                            self.waiting = set(open_ones)
                            return
                        time.sleep(0.03)
                else:
                    confirmed = 0
            if clock() > deadline - HANG_SECONDS + PIN_SECONDS and self.waits_for_pin(open_ones):
                # also possible on heap, where VACUUM skips the indexes of small tables more often
                raise Ambiguous("VACUUM waits for the pin of an index scan that waits for a row")
            if clock() > deadline:
                raise Difference(f"{self.name}: sessions {sorted(open_ones)} neither end nor wait for another session: hang")
            select.select([s.conn.fileno() for s in open_ones.values()], [], [], pause)
            pause = min(pause * 2, 0.02)

    def waits_for_pin(self, sessions):
        """Returns whether one of the sessions waits until no other process has a page pinned, as a VACUUM may."""
        with self.control.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s) AND wait_event IN ('BufferPin', 'BufferCleanup')",
                           ([s.pid for s in sessions.values()],))
            return cursor.fetchone()[0] > 0

    def execute(self, sql):
        """Runs a statement with the control connection, or in the session with temporary tables; returns its rows."""
        if self.temp:
            session = self.sessions[0]
            session.start(sql.replace(f"{self.name}.", "pg_temp."))
            if not session.wait():
                raise Difference(f"{self.name}: {sql}: hang")
            if session.result[0] != "ok":
                raise Difference(f"{self.name}: {sql}: {session.result}")
            return session.rows
        with self.control.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def query(self, sql):
        """Runs a statement as execute() does; returns its rows as sorted texts."""
        return sorted(repr(row) for row in self.execute(sql))

    def tables(self):
        """Returns the names of the history's tables."""
        schema = "pg_my_temp_schema()" if self.temp else f"'{self.name}'::regnamespace"
        return [row[0] for row in self.execute(f"SELECT relname::text FROM pg_class WHERE relnamespace = {schema} AND relkind = 'r'")]

    def close(self):
        """Terminates statements that still run, and closes all connections."""
        for session in self.sessions.values():
            if not self.temp and session.busy and not session.conn.closed:
                try:
                    with self.control.cursor() as cursor:
                        cursor.execute("SELECT pg_terminate_backend(%s)", (session.pid,))
                except psycopg2.Error:
                    pass
            session.close()
        if not self.temp:
            self.control.close()


# open: is the session in a transaction block? failed: has that failed? points: its savepoints
State = collections.namedtuple("State", "open failed points")


class Run:
    """One history on both sides."""

    def __init__(self, options, spec):
        self.options = options
        self.spec = spec
        self.trace = []
        self.done = []
        self.comparable = True          # may the tables of both sides be compared at the end?
        self.counts = collections.Counter()
        methods = ("heap", "heap" if options.control else "zheap")
        self.sides = []
        for name, method in zip(SIDES, methods):
            self.sides.append(Side(name, options.dsn, method, spec["sessions"], spec["setup"], spec.get("settings", [])
                                   if method == "zheap" else [], options.temp, method == "zheap" and spec.get("zbtree", False)))
        pids = [session.pid for side in self.sides for session in side.sessions.values()]
        for side in self.sides:
            side.pids = pids
            side.twins = {n: session.pid for other in self.sides if other is not side for n, session in other.sessions.items()}
            for number, statements in spec.get("session_settings", {}).items():
                for statement in statements:
                    side.sessions[int(number)].start(statement)
                    side.sessions[int(number)].wait()
        self.waits = {}                 # session -> its last statement that had to wait
        self.many_waits = None          # the session that waits with a statement with "many"
        self.fetched = {}               # (session, cursor) -> rows fetched so far on both sides
        self.levels = {}                # session -> its isolation level
        self.open = {n: False for n in range(spec["sessions"])}
        self.points = {n: [] for n in range(spec["sessions"])}
        self.prepared = 0

    def say(self, text):
        """Adds a line to the trace."""
        self.trace.append(text)
        if self.options.verbose:
            print(text, flush=True)

    def waiting(self):
        """Returns the sessions that wait, on either side."""
        return self.sides[0].waiting | self.sides[1].waiting

    def allowed(self, step):
        """Returns whether the step can be taken now."""
        waiting = self.waiting()
        if step["s"] in waiting:
            return False
        kind = step["kind"]
        if self.many_waits is not None and self.many_waits in waiting:
            if kind in ("lock", "ddl", "ddl-alone", "beside", "begin"):
                return False
        if kind == "ddl-alone" and (any(self.open.values()) or waiting):
            return False
        if kind == "beside" and waiting:
            return False
        if kind == "ddl" and (waiting or sum(self.open.values()) > 1):
            return False
        if len(waiting) >= self.spec["max_waiters"] and kind in ("lock", "ddl"):
            return False
        return True

    def take(self, step):
        """Runs one step on both sides and compares; raises Difference or Ambiguous."""
        if step["kind"] == "zheap":
            self.zheap_step(step)
            return
        number = step["s"]
        before = self.waiting()
        prepare = step["sql"].startswith("PREPARE TRANSACTION")
        self.prepared += prepare
        for side in self.sides:
            session = side.sessions[self.connection_number(number)]
            gid = f"{side.name}_{number}_{self.prepared}"
            session.start(side.own(step["sql"].replace("@S@", gid)))
            # End a prepared transaction at once: no session would be seen to block those that wait for it.
            if prepare and session.wait() and session.result[:2] == ("ok", "PREPARE TRANSACTION"):
                session.start(f"{'COMMIT' if (self.prepared + number) % 2 else 'ROLLBACK'} PREPARED '{gid}'")
        for side in self.sides:
            side.settle()
        self.after(step, before)

    def state(self, number):
        """Returns the State of a session."""
        status = self.sides[0].sessions[number].conn.info.transaction_status
        return State(self.open[number], status == psycopg2.extensions.TRANSACTION_STATUS_INERROR, self.points[number])

    def connection_number(self, number):
        """Returns the number of the connection for a session: with temporary tables there is only one."""
        return 0 if self.options.temp else number

    def zheap_step(self, step):
        """Runs a step on the zheap side alone; raises Difference if zundo.check finds something."""
        side = self.sides[1]
        if not side.is_zheap:
            return
        if side.temp:
            # it runs in the session's own transaction: only if it cannot make that fail
            status = side.sessions[0].conn.info.transaction_status
            if status == psycopg2.extensions.TRANSACTION_STATUS_INERROR or (
                    status != psycopg2.extensions.TRANSACTION_STATUS_IDLE and not step["sql"].startswith("CHECK ")):
                return
        if step["sql"].startswith("CHECK "):
            try:
                faults = side.query(f"SELECT * FROM zundo.check('z.{step['sql'][6:]}')") + side.query(zbtree_side.FAULTS)
            except psycopg2.errors.LockNotAvailable:
                self.say(f"   {step['sql']}: locked")
                return
            self.say(f"   {step['sql']}: {len(faults)}")
            if faults:
                raise Difference(f"zundo.check of {step['sql'][6:]}: {faults[:5]}")
            return
        self.say(f"   {step['sql']}: {side.query(step['sql'])}")

    def after(self, step, before):
        """Compares both sides after a step; before: the sessions that waited before it."""
        number = self.connection_number(step["s"])
        heap, zheap = self.sides
        stopped = before | {number}     # the sessions whose statements may have ended
        # outside of a transaction block, and at its end, a statement may have committed on one side alone
        self.comparable = step["kind"] != "end" and all(self.open.get(n) for n in stopped)
        self.say(f"{number:2} {step['sql']}" + "".join(
            f"\n      {side.name}{n}: {self.short(side.sessions[n].result)}" for n in sorted(stopped) for side in self.sides
            if side.sessions[n].result is not None or n == number))
        results = {n: (heap.sessions[n].result, zheap.sessions[n].result) for n in stopped}
        problem = self.compare_results(step, results)
        if problem:
            unclear = (len(before) > 1 or len(self.waiting()) > 1 or self.many_involved(step, stopped) or
                       self.row_order_decides(step, *results[number]))
            if unclear:
                raise Ambiguous(problem)
            raise Difference(problem)
        freed = [n for n in before if n not in self.waiting()]
        if len(freed) > 1 and any("ON CONFLICT" in self.waits.get(n, "") for n in freed):
            # an upsert waits for the row's writer without queueing for the row, so that
            # it may continue before or after those that queue
            raise Ambiguous("an upsert waited with others")
        if results[number][0] is None:
            self.waits[number] = step["sql"]
        if number >= 0:
            self.note_state(step, results[number][0])
        if number in self.waiting() and step["many"]:
            self.many_waits = number
        elif self.many_waits is not None and self.many_waits not in self.waiting():
            self.many_waits = None
        self.counts["steps"] += 1
        if results[number][0] is None:
            self.counts["waits"] += 1
        elif results[number][0][0] == "error":
            self.counts["errors " + results[number][0][1]] += 1

    def compare_results(self, step, results):
        """Returns how the results of both sides differ, or None; results: {session: (heap's, zheap's)}.

        Raises Difference if a connection is lost or zheap has an internal error, and Ambiguous for known causes.
        """
        number = self.connection_number(step["s"])
        problem = None
        for n, (first, second) in results.items():
            if any(result is not None and result[0] == "lost" for result in (first, second)):
                raise Difference(f"session {n}: the connection is lost: {first} {second}")
            if any(result is not None and result[0] == "error" and result[1] == DEADLOCK for result in (first, second)):
                raise Ambiguous("deadlock")
        for n, (first, second) in results.items():
            if second is not None and second[0] == "error" and second[1] == NOT_SUPPORTED and "zheap" in second[2]:
                self.counts["not supported"] += 1
                raise Ambiguous("not supported: " + second[2].splitlines()[0])
            if second is not None and second[0] == "error" and second[1].startswith("XX"):
                raise Difference(f"session {n}: {second}")
            if second is not None and second[0] == "error" and "was rewritten after the snapshot was taken" in second[2]:
                # heap shows an empty table
                self.counts["40001 after a rewrite"] += 1
                raise Ambiguous("heap is empty after a rewrite")
            if (first is None) != (second is None):
                if first is None and "KEY SHARE" in step["sql"] and ("NOWAIT" in step["sql"] or "SKIP LOCKED" in step["sql"]):
                    # heap waits in spite of NOWAIT if it follows an uncommitted update to a version that its writer
                    # has locked
                    self.counts["waits of heap with NOWAIT"] += 1
                    raise Ambiguous("heap waits in spite of NOWAIT")
                if first is None and second[:2] == ("error", "40001"):
                    # a row that was updated after the snapshot was taken, and whose
                    # old version another session has locked: heap first waits for
                    # that session
                    self.counts["waits of heap before 40001"] += 1
                    raise Ambiguous("heap waits before it fails with 40001")
                if "CONCURRENTLY" in self.waits.get(n, "") + (step["sql"] if n == number else ""):
                    # it waits for old snapshots of both sides, and which there are at that moment is not the same in
                    # each replay
                    self.counts["waits of CONCURRENTLY on one side"] += 1
                    raise Ambiguous("CONCURRENTLY waits for the other side")
                problem = f"session {n} waits on {'heap' if first is None else 'zheap'} alone; the other: {self.short(first or second)}"
            elif first is not None and not self.equal(n, step, first, second):
                problem = f"session {n} differs:\n    heap  {self.short(first, 3000)}\n    zheap {self.short(second, 3000)}"
        return problem

    def many_involved(self, step, stopped):
        """Returns whether the difference may be due to the order in which a statement with "many" locks rows."""
        if self.many_waits in stopped:
            return True
        return step["many"] and (self.levels.get(step["s"]) != "READ COMMITTED" or bool(self.waiting()) or "id = id" in step["sql"]
                                 or self.sides[0].sessions[step["s"]].result is None or self.sides[1].sessions[step["s"]].result is None)

    @staticmethod
    def row_order_decides(step, first, second):
        """Returns whether a statement with "many" has failed, on one side or both, with an error that depends on the
        order of the rows: a duplicate key, or a change of a row by its own triggers."""
        errors = [result[1] for result in (first, second) if result is not None and result[0] == "error"]
        return step["many"] and bool(errors) and all(code in ("23505", "23P01", "27000") for code in errors)

    def equal(self, number, step, first, second):
        """Returns whether two results are equal. Those of cursors without order are compared when all rows are fetched."""
        if first[0] == "error" or second[0] == "error":
            return first[:2] == second[:2]
        sql = step["sql"] if number == step["s"] else ""
        words = sql.split()
        if words and words[0] == "DECLARE" and words[1][0] in "cw":
            self.fetched[(number, words[1])] = ([], [])
        if words and words[0] == "FETCH" and (number, words[3]) in self.fetched:
            both = self.fetched[(number, words[3])]
            both[0].extend(first[2])
            both[1].extend(second[2])
            if words[1] == "ALL":
                return sorted(both[0]) == sorted(both[1])
            return first[1] == second[1]
        return first[1:] == second[1:]

    def note_state(self, step, result):
        """Keeps track of transactions, isolation levels and savepoints after a step."""
        number = step["s"]
        words = step["sql"].split()
        if result is None or result[0] != "ok":
            return
        if words[0] == "BEGIN":
            self.open[number] = True
            self.levels[number] = " ".join(words[3:])
            self.points[number] = []
        elif step["kind"] == "savepoint":
            points = self.points[number]
            if words[0] == "SAVEPOINT":
                points.append(words[1])
            elif words[-1] in points:
                last = len(points) - points[::-1].index(words[-1])
                del points[last - (words[0] == "RELEASE"):]
        elif step["kind"] == "end":
            self.open[number] = False
            self.levels[number] = "READ COMMITTED"
            self.fetched = {key: value for key, value in self.fetched.items() if key[0] != number}

    @staticmethod
    def short(result, length=300):
        """Returns a result as text, cut off at length."""
        if result is None:
            return "waits"
        text = " ".join(str(part) for part in result)
        return text if len(text) <= length else text[:length] + " ..."

    def wind_up(self, commit):
        """Ends all transactions by COMMIT or ROLLBACK; cancels statements that still run.

        Returns whether the sides must still be equal: a deadlock of two COMMITs ends one of them.
        """
        stuck = {number for side in self.sides for number, session in side.sessions.items()
                 if session.busy and not session.pump()}
        deadlock = False
        for side in self.sides:
            for number in stuck:
                side.query(f"SELECT pg_cancel_backend({side.sessions[number].pid})")
            for number in side.sessions:
                self.ended(side, number, "a cancelled statement")
            for number, session in side.sessions.items():
                session.start("COMMIT" if commit and number >= 0 and number not in stuck else "ROLLBACK")
                side.settle()           # its deferred constraints may wait for a session that ends later
            for number, session in side.sessions.items():
                result = self.ended(side, number, "the end of its transaction")
                deadlock = deadlock or result[:2] == ("error", DEADLOCK)
                session.start("ROLLBACK")
                self.ended(side, number, "ROLLBACK")
        return not deadlock

    @staticmethod
    def ended(side, number, what):
        """Returns the result of what a session runs, when that has ended; raises Difference if it does not."""
        session = side.sessions[number]
        if not session.wait():
            raise Difference(f"{side.name}{number}: {what} hangs")
        if session.result is not None and session.result[0] == "lost":
            raise Difference(f"{side.name}{number}: the connection is lost: {session.result[1]}")
        return session.result

    def compare_tables(self, equal):
        """Raises Difference unless indexes agree with the tables and zundo.check and zundo.check_index find nothing.

        With equal also unless the tables of both sides are equal.
        """
        heap, zheap = self.sides
        for name in heap.tables():
            first = heap.query(f"SELECT md5(t::text), t.id FROM h.{name} t" if name != "changes" else "SELECT * FROM h.changes")
            second = zheap.query(f"SELECT md5(t::text), t.id FROM z.{name} t" if name != "changes" else "SELECT * FROM z.changes")
            if equal and first != second:
                one = list((collections.Counter(first) - collections.Counter(second)).elements())
                two = list((collections.Counter(second) - collections.Counter(first)).elements())
                raise Difference(f"table {name}: only in heap {one[:5]}, only in zheap {two[:5]} ({len(one)}, {len(two)})")
            if zheap.is_zheap:
                faults = zheap.query(f"SELECT * FROM zundo.check('z.{name}')")
                if faults:
                    raise Difference(f"zundo.check of {name}: {faults[:5]}")
            if name != "changes" and not name.endswith("_child"):
                self.compare_indexes(zheap, name)
        if zheap.is_zheap:
            faults = zheap.query(zbtree_side.FAULTS)
            if faults:
                raise Difference(f"zundo.check_index: {faults[:5]}")

    def compare_indexes(self, side, name):
        """Raises Difference unless each of some conditions gives the same rows by index and by sequential scan."""
        keys = [row[0] for row in side.execute(f"SELECT DISTINCT id FROM {side.name}.{name} WHERE id IS NOT NULL")]
        conditions = [f"a = {a}" for a in range(10)] + ["a BETWEEN 3 AND 1000", "c @> ARRAY[1]", "c @> ARRAY[7]", "e IS NOT NULL AND e > 5",
                                                        "e < 100000", "left(b, 20) > 'a'", "left(b, 10) < 'c'", "a IS NULL",
                                                        "id BETWEEN 3 AND 2000"]
        conditions += [f"id = {key}" for key in keys[:40]]
        query = " UNION ALL ".join(f"SELECT {number} AS condition, {SHOW} FROM {side.name}.{name} WHERE {condition}"
                                   for number, condition in enumerate(conditions))
        self.planner(side, "on", "off", "off")
        expected = side.query(query)
        for way in (("off", "on", "on"), ("off", "off", "on"), ("off", "on", "off")):
            self.planner(side, *way)
            found = side.query(query)
            if found != expected:
                one = list((collections.Counter(expected) - collections.Counter(found)).elements())
                two = list((collections.Counter(found) - collections.Counter(expected)).elements())
                condition = conditions[int(re.match(r"\((\d+)", (one + two)[0]).group(1))]
                raise Difference(f"{name} WHERE {condition}: by sequential scan alone {one[:3]}, by index alone {two[:3]}")
        self.planner(side, "on", "on", "on")

    @staticmethod
    def planner(side, seqscan, indexscan, bitmapscan):
        """Sets by which scans the control connection reads."""
        side.execute(f"SET enable_seqscan = {seqscan}; SET enable_indexscan = {indexscan}; SET enable_bitmapscan = {bitmapscan}")

    def finish(self, commit, equal):
        """Ends a history: compares, vacuums, compares again. With equal both sides must be equal."""
        # a waiting statement outside of a transaction block may end before it is cancelled
        equal = equal and not any(session.busy and not self.open.get(number)
                                  for side in self.sides for number, session in side.sessions.items())
        equal = self.wind_up(commit) and equal
        self.compare_tables(equal)
        if equal:
            invalid = [side.query("SELECT c.relname, i.indisvalid, i.indisready FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid "
                                  f"WHERE c.relnamespace = '{side.name}'::regnamespace") for side in self.sides if not side.temp]
            if invalid and invalid[0] != invalid[1]:
                raise Difference(f"the indexes differ: {invalid[0]} and {invalid[1]}")
        for side in self.sides:
            if side.is_zheap:
                side.query("SELECT zundo.discard()")
            for name in side.tables():
                side.execute(f"VACUUM {side.name}.{name}")
        self.compare_tables(equal)

    def close(self):
        """Closes all connections."""
        for side in self.sides:
            side.close()


def run_history(options, spec, steps=None, generator=None, rng=None):
    """Runs one history with the given steps, or with steps from a generator.

    Returns (outcome, detail, run): outcome is ok, ambiguous or difference.
    """
    run = None
    outcome, detail = "ok", ""
    try:
        run = Run(options, spec)
        try:
            if steps is not None:
                for step in steps:
                    if run.allowed(step):
                        run.done.append(step)
                        run.take(step)
            else:
                while len(run.done) < spec["length"]:
                    for _ in range(30):
                        number = rng.randrange(spec["sessions"])
                        step = generator.step(number, run.state(number))
                        if run.allowed(step):
                            break
                    else:
                        # no other step is possible
                        free = [n for n in range(spec["sessions"]) if n not in run.waiting()]
                        step = {"s": rng.choice(free), "sql": rng.choice(["COMMIT", "ROLLBACK"]), "kind": "end", "many": False}
                    run.done.append(step)
                    run.take(step)
        except Ambiguous as reason:
            outcome, detail = "ambiguous", str(reason)
        run.finish(commit=outcome == "ok" and spec["commit"], equal=outcome == "ok" or run.comparable)
    except Difference as difference:
        outcome, detail = "difference", str(difference)
    except psycopg2.Error as error:
        outcome, detail = "difference", f"{error.pgcode or 'lost'}: {error}"
    finally:
        if run is not None:
            try:
                run.close()
            except psycopg2.Error:
                pass
    return outcome, detail, run


def wait_for_server(options, seconds=120):
    """Waits until the server accepts connections, after a crash; returns whether it does."""
    deadline = clock() + seconds
    while clock() < deadline:
        try:
            psycopg2.connect(options.dsn).close()
            return True
        except psycopg2.Error:
            time.sleep(0.3)
    if options.cluster is not None:
        options.cluster.stop("immediate")
        options.cluster.start()
        return True
    return False


def prepare_database(options):
    """Creates the extension and the functions that histories call; sets options.version."""
    conn = connect(options.dsn)
    with conn.cursor() as cursor:
        if not options.control:
            cursor.execute("CREATE EXTENSION IF NOT EXISTS zundo")
        cursor.execute(HELPERS + WIDE_HELPERS + zbtree_side.HELPERS)
        options.version = conn.server_version // 10000
        zbtree_side.allow_unique(options.version)
    conn.close()


def shrink(options, spec, steps, seconds):
    """Removes steps without which the history still fails; returns the others."""
    deadline = clock() + seconds
    size = max(1, len(steps) // 2)
    while size >= 1 and clock() < deadline:
        position = 0
        shorter = False
        while position < len(steps) and clock() < deadline:
            candidate = steps[:position] + steps[position + size:]
            outcome, _, run = run_history(options, spec, steps=candidate)
            wait_for_server(options)
            if outcome == "difference":
                steps = run.done if run is not None else candidate
                shorter = True
            else:
                position += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2) if size > 1 or not shorter else 1
    return steps


def false_positive(options, spec, steps, detail):
    """Returns whether the difference is a serialization failure that only predicate locks of index pages cause.

    An insertion into a locked index page fails, even if it has nothing to do with the rows that were read, and
    heap and zheap do not insert into indexes at the same time. With a low fillfactor, updates that change no key
    insert nothing on either side. If the difference remains then, it is a fault.
    """
    if "read/write dependencies" not in detail:
        return False
    roomy = dict(spec, setup=[re.sub(r"fillfactor = \d+", "fillfactor = 10", statement) for statement in spec["setup"]])
    outcome, _, _ = run_history(options, roomy, steps=steps)
    wait_for_server(options)
    return outcome != "difference"


def report(options, seed, spec, detail, run):
    """Prints what has failed, removes steps that are not needed, and writes the case."""
    print(f"FAILED seed {seed}: {detail}\n", flush=True)
    steps = list(run.done) if run is not None else []
    wait_for_server(options)
    outcome, again, second = run_history(options, spec, steps=steps)
    wait_for_server(options)
    if outcome == "difference" and second is not None:
        steps = shrink(options, spec, list(second.done), options.shrink_seconds)
        outcome, again, second = run_history(options, spec, steps=steps)
        wait_for_server(options)
        print(f"repeatable; {len(steps)} steps are left: {again}")
        trace = second.trace if second is not None else []
    else:
        print("not repeated by replaying the same steps")
        trace = run.trace if run is not None else []
        again = detail
    for line in spec["setup"]:
        print(line + ";")
    print("\n".join(trace[-150:]), flush=True)
    os.makedirs(options.cases, exist_ok=True)
    path = os.path.join(options.cases, f"case-{seed}.json")
    with open(path, "w", encoding="utf-8") as case:
        json.dump({"seed": seed, "detail": again, "spec": spec, "steps": steps}, case, indent=1)
    print(f"written to {path}\n", flush=True)


def one_seed(options, seed):
    """Makes and runs the history of a seed; returns (spec, outcome, detail, run)."""
    rng = random.Random(seed)
    options.zbtree = zbtree_side.chosen(options.zbtree_mode, seed)
    generator = Generator(rng, options) if options.wide is None else WideGenerator(rng, options)
    spec = dict(generator.spec(), zbtree=options.zbtree)
    return (spec, *run_history(options, spec, generator=generator, rng=rng))


def parse_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", help="folder of the programs of a server that has zundo installed, for a private cluster")
    parser.add_argument("--dsn", help="use a running server instead; the schemas h and z are replaced there")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--histories", type=int, help="stop after this number of histories")
    parser.add_argument("--seed", type=int, help="first seed; default: from the clock")
    parser.add_argument("--sessions", type=int, default=4)
    parser.add_argument("--failures", type=int, default=5, help="stop after this number of failures")
    parser.add_argument("--control", action="store_true", help="compare heap with heap")
    parser.add_argument("--serializable", action="store_true")
    parser.add_argument("--on-conflict", action="store_true")
    parser.add_argument("--triggers", action="store_true")
    parser.add_argument("--fk", action="store_true")
    parser.add_argument("--temp", action="store_true", help="temporary tables; one session")
    parser.add_argument("--locks", action="store_true", help="mostly row locks, on few rows")
    parser.add_argument("--prepare", action="store_true", help="with PREPARE TRANSACTION")
    parser.add_argument("--wide", metavar="NAMES", help="more kinds of tables and statements: all, or some of " + ",".join(FEATURES))
    parser.add_argument("--zbtree", dest="zbtree_mode", choices=zbtree_side.MODES, default="mixed", help="use zbtree indexes on zheap tables; mixed: in odd seeds")
    parser.add_argument("--shrink-seconds", type=float, default=60)
    parser.add_argument("--replay", help="run a saved case")
    parser.add_argument("--cases", default=os.path.join(HERE, "cases"), help="folder to which failed histories are written")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--keep", action="store_true", help="do not remove the private cluster")
    options = parser.parse_args()
    if not options.bindir and not options.dsn:
        parser.error("--bindir or --dsn is needed")
    if options.wide and options.wide != "all" and set(options.wide.split(",")) - set(FEATURES):
        parser.error("--wide takes all, or some of " + ",".join(FEATURES))
    return options


def main():
    """Runs histories until the time is over; returns the exit status."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))   # so that the cluster is removed
    options.cluster = None
    failures = 0
    totals = collections.Counter()
    if options.bindir:
        options.cluster = Cluster(options.bindir, "fsync = off\nshared_buffers = 16MB\n"
                                  + ("shared_preload_libraries = ''\n" if options.control else ""))
        options.cluster.start()
        options.dsn = options.cluster.dsn()
    try:
        prepare_database(options)
        if options.replay:
            with open(options.replay, encoding="utf-8") as case:
                saved = json.load(case)
            options.verbose = True
            outcome, detail, _ = run_history(options, saved["spec"], steps=saved["steps"])
            print(f"{outcome}: {detail}")
            return 1 if outcome == "difference" else 0
        seed = options.seed if options.seed is not None else int(time.time()) % 100000000
        print(f"first seed {seed}", flush=True)
        deadline = clock() + options.minutes * 60
        while clock() < deadline and failures < options.failures:
            if options.histories is not None and totals["histories"] >= options.histories:
                break
            spec, outcome, detail, run = one_seed(options, seed)
            totals["histories"] += 1
            if run is not None:
                totals.update(run.counts)
            died = options.cluster.stock_assertions if options.cluster else 0
            faults = options.cluster.new_faults() if options.cluster else []
            if options.cluster and options.cluster.stock_assertions > died:
                outcome, detail = "ambiguous", "an assertion of heap has failed"
                options.cluster.wait_until_up()
            if outcome == "difference" and run is not None and false_positive(options, spec, list(run.done), detail):
                outcome, detail = "ambiguous", "serialization failure by page locks"
                print(f"seed {seed}: {detail}", flush=True)
            totals[outcome] += 1
            if outcome == "ambiguous":
                totals["ambiguous: " + detail[:40].split(":")[0].split(" differs")[0]] += 1
            if outcome == "difference":
                failures += 1
                report(options, seed, spec, detail, run)
            if faults and outcome != "difference":
                failures += 1
                print(f"FAILED seed {seed}: server log: {faults[:5]}", flush=True)
            seed += 1
        print(", ".join(f"{name} {count}" for name, count in sorted(totals.items())))
        print(f"{totals['histories']} histories, {failures} failures")
        return 1 if failures else 0
    finally:
        if options.cluster is not None:
            options.cluster.remove(keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
