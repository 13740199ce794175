#!/usr/bin/python3
"""Runs random programs of nested commands on heap and on zheap, and compares them.

A statement scans or changes tables, and calls functions and triggers that change, lock and read the same tables.
The same program runs in schema h (heap) and in schema z (zheap). After every statement SQLSTATE, command tag,
notices, rows and the tables' contents by four kinds of scans must be the same. No statement waits: other sessions
commit between the statements.

    nested.py --bindir DIR --minutes 10           a private server
    nested.py --bindir DIR --control              heap against heap: tests this program
    nested.py --bindir DIR --replay CASE.json     one saved program
"""

import argparse
import collections
import copy
import json
import os
import random
import re
import signal
import sys
import time

import psycopg2
import psycopg2.extensions

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, connect  # noqa: E402  (same directory)
from nested_program import SCANS, TABLES, Program, helpers, statement_of  # noqa: E402
import zbtree_side  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CALLS = 60                      # functions that one statement may call
GIVE_UP = {"57014", "54001"}    # statement_timeout and stack depth, after which differences mean nothing
QUIET = ("SET ", "RESET ", "BEGIN", "SAVEPOINT", "RELEASE", "MOVE ", "CLOSE ", "DECLARE ")     # statements that change no row
FINE = ("ok", "given up")       # outcomes that are no failure
# differ by when a deferrable unique column is checked, though depends_on_room does not show it (README.md)
KNOWN_SEEDS = {20261230, 880040, 1117861}
STATES = {psycopg2.extensions.TRANSACTION_STATUS_IDLE: "idle", psycopg2.extensions.TRANSACTION_STATUS_INTRANS: "open",
          psycopg2.extensions.TRANSACTION_STATUS_INERROR: "failed"}


class Difference(Exception):
    """The two sides differ, or the zheap side is damaged. A smaller program must fail with the same kind."""

    def __init__(self, kind, detail):
        super().__init__(detail)
        self.kind = kind


class GivenUp(Exception):
    """The results of the program cannot be compared any further."""


class Notices(collections.UserList):
    """The notices of a connection, without prefix and end of line.

    No list, of which psycopg2 would keep the last 50 items only.
    """

    def append(self, item):
        """Called by psycopg2, which ignores exceptions."""
        self.data.append(item.strip().removeprefix("NOTICE:").strip())


def stop(*_):
    """Handles SIGTERM: exits, so that the cluster is removed."""
    stop.asked = True
    sys.exit(143)


stop.asked = False


class Side:
    """The sessions of one access method: 0 runs the program, 1 and 2 are others, 3 is for maintenance."""

    def __init__(self, name, dsn, access_method, zbtree=False):
        self.name = name
        self.zbtree = zbtree
        self.dsn = dsn
        self.is_zheap = access_method == "zheap"
        # a worker may have locked a zheap table for a moment
        self.settings = [f"SET search_path = {name}, public", f"SET default_table_access_method = {access_method}", "SET enable_seqscan = off",
                         "SET enable_bitmapscan = off", "SET enable_hashjoin = off", "SET enable_mergejoin = off", "SET my.depth = 0",
                         f"SET my.calls = {CALLS}", f"SET lock_timeout = '{'1s' if self.is_zheap else '50ms'}'", "SET statement_timeout = '8s'", "SET client_min_messages = notice"]
        self.sessions = {}
        self.session(3)
        for statement in (f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}"):
            self.run(3, statement)

    def session(self, number):
        """Returns the connection of a session, which the first call opens."""
        if number not in self.sessions:
            conn = connect(self.dsn)
            conn.notices = Notices()
            self.sessions[number] = conn
            with conn.cursor() as cursor:
                cursor.execute("; ".join(self.settings))
        return self.sessions[number]

    def run(self, number, sql):
        """Runs a statement; returns (result, notices); raises Difference if the connection is lost.

        The result is ("ok", tag, rows) or ("error", SQLSTATE, message).
        """
        if stop.asked:              # the exception of stop() was ignored in Notices.append
            sys.exit(143)
        conn = self.session(number)
        del conn.notices[:]
        if self.zbtree:
            sql = zbtree_side.with_zbtree(sql)
        with conn.cursor() as cursor:
            try:
                cursor.execute(sql)
                rows = [repr(row) for row in cursor.fetchall()] if cursor.description else []
            except psycopg2.Error as error:
                if error.pgcode is None or conn.closed:
                    raise Difference("lost", f"side {self.name} lost its connection: {str(error).strip()}") from error
                return ("error", error.pgcode, str(error).strip().split("\n", maxsplit=1)[0]), list(conn.notices)
            return ("ok", cursor.statusmessage, rows), list(conn.notices)

    def state(self):
        """Returns whether session 0 is idle, in an open transaction, or in a failed one."""
        return STATES[self.session(0).info.transaction_status]

    def close(self):
        """Closes the connections."""
        for conn in self.sessions.values():
            try:
                conn.close()
            except psycopg2.Error:
                pass


def checked_at_other_times(one, said_one, two, said_two):
    """Returns whether both sides have failed with the same duplicate key, but one after some more notices.

    An UPDATE that leaves a deferrable unique column alone gives the row a new version on heap. Unless it is HOT, heap
    then checks the column again, and a deferred check of the old version does nothing.
    """
    common = min(len(said_one), len(said_two))
    return one == two and one[:2] == ("error", "23505") and said_one[:common] == said_two[:common]


class Run:
    """One program on two sides."""

    def __init__(self, options, setup):
        self.trace = []
        self.done = []
        self.counts = collections.Counter()
        self.looks = 0                  # number of calls of look
        self.sides = [Side("h", options.dsn, "heap"), Side("z", options.dsn, "heap" if options.control else "zheap", options.zbtree and not options.control)]
        for item in setup:
            self.both(0, statement_of(item))

    def both(self, number, sql):
        """Runs a statement on both sides and compares; raises Difference or GivenUp."""
        if "zundo.discard" in sql:
            if self.sides[1].is_zheap:
                self.sides[1].run(number, sql)
            return
        (one, said_one), (two, said_two) = (side.run(number, sql) for side in self.sides)
        self.trace.append(f"{number}: {sql}\n    -> {one[:2]} {len(said_one)} notices")
        self.counts[one[1] if one[0] == "error" else "statements"] += 1
        codes = {result[1] for result in (one, two) if result[0] == "error"}
        if codes & GIVE_UP:
            raise GivenUp(f"{codes}")
        if said_one != said_two and checked_at_other_times(one, said_one, two, said_two):
            raise GivenUp("a deferrable unique column was checked at other times")
        if said_one != said_two:
            n = next((k for k, (a, b) in enumerate(zip(said_one, said_two)) if a != b), min(len(said_one), len(said_two)))
            raise Difference("notices", f"notice {n} of: {sql}\n  heap:  {said_one[n:n + 2]}\n  zheap: {said_two[n:n + 2]}\n  results: {one} / {two}")
        if one[:2] != two[:2]:
            raise Difference(f"result {one[1][:5]} {two[1][:5]}", f"result of: {sql}\n  heap:  {one}\n  zheap: {two}")
        if one[0] == "ok" and one[2] != two[2] and sorted(one[2]) != sorted(two[2]):
            raise Difference("rows", f"rows of: {sql}\n  heap:  {one[2]}\n  zheap: {two[2]}")

    def take(self, step):
        """Runs a step, and compares the tables' contents."""
        self.done.append(step)
        for number, item in step:
            sql = statement_of(item)
            self.both(number, sql)
            states = [side.state() for side in self.sides]
            if states[0] != states[1]:
                raise Difference("states", f"states {states} after: {sql}")
            if not sql.startswith(QUIET):
                self.look(0 if states[0] != "failed" else 3, sql)

    def look(self, number, after, thorough=False):
        """Compares the tables' contents by a sequential scan and by one (if thorough, all) of the other scans.

        Also resets the sequence that limits how many functions one statement may call.
        """
        self.looks += 1
        names = list(SCANS) if thorough else ["seq", list(SCANS)[1 + self.looks % (len(SCANS) - 1)]]
        scans = [(scan, table) for table in TABLES for scan in names]
        query = "SELECT setval('calls', 1), " + ", ".join(f"look_{scan}_s('{table}', -10000000, 10000000)" for scan, table in scans)
        found = []
        for side in self.sides:
            conn = side.session(number)
            with conn.cursor() as cursor:
                try:
                    cursor.execute(query)
                    found.append(cursor.fetchone()[1:])
                except psycopg2.errors.LockNotAvailable:    # DDL in the failed transaction
                    found.append(["locked"] * len(scans))
        for (scan, table), one, two in zip(scans, *found):
            if one != two:
                a, b = set((one or "").split()), set((two or "").split())
                raise Difference("contents", f"{table} by {scan} in session {number} after: {after}\n  only heap:  {sorted(a - b)[:6]}\n  only zheap: {sorted(b - a)[:6]}")

    def check(self):
        """Ends a program: compares the contents, also after VACUUM; zundo.check and zundo.check_index must find nothing."""
        for side in self.sides:
            for number in list(side.sessions):
                if number != 3:
                    side.run(number, "ROLLBACK")
        self.look(3, "the end", True)
        if self.sides[1].is_zheap:
            for turn in range(2):
                for table in TABLES:
                    result, _ = self.sides[1].run(3, f"SELECT relid, c.* FROM pg_partition_tree('z.{table}'), zundo.check(relid) c WHERE isleaf")
                    if result[0] != "ok" or result[2]:
                        raise Difference("check", f"zundo.check of {table}: {result}")
                result, _ = self.sides[1].run(3, zbtree_side.FAULTS)
                if result[0] != "ok" or result[2]:
                    raise Difference("check", f"zundo.check_index: {result}")
                if turn == 0:
                    self.sides[1].run(3, "SELECT zundo.discard()")
                    for table in TABLES:
                        self.sides[1].run(3, f"VACUUM {table}")
        self.look(3, "the end and VACUUM", True)

    def close(self):
        """Closes all connections."""
        for side in self.sides:
            side.close()


def run_program(options, setup, steps=None, program=None, length=0):
    """Runs the given steps, or new ones of a program.

    Returns (outcome, detail, run); outcome is one of FINE, or the kind of a Difference.
    """
    outcome, detail, run = "ok", "", None
    try:
        run = Run(options, setup)
        for number in range(len(steps) if steps is not None else length):
            run.take(steps[number] if steps is not None else program.step(run.sides[0].state()))
        run.check()
    except Difference as difference:
        outcome, detail = difference.kind, str(difference)
    except GivenUp as reason:
        outcome, detail = "given up", str(reason)
    except psycopg2.Error as error:
        outcome, detail = error.pgcode or "lost", str(error)
    finally:
        if run is not None:
            run.close()
    return outcome, detail, run


class Shrinker:
    """Makes a failing program smaller, as long as it fails with the same kind of difference."""

    def __init__(self, options, setup, steps, kind):
        self.options = options
        self.setup = setup
        self.steps = steps
        self.kind = kind
        self.deadline = time.time() + options.shrink_seconds

    def fails(self, setup, steps):
        """Returns whether the program still fails, and keeps it if so."""
        if time.time() > self.deadline:
            return False
        outcome, _, run = run_program(self.options, setup, steps=steps)
        self.options.wait_until_up()
        if outcome == self.kind:
            self.setup, self.steps = copy.deepcopy(setup), copy.deepcopy(run.done if run is not None else steps)
            return True
        return False

    def items(self):
        """Removes steps and items of the set-up."""
        for which in ("steps", "setup"):
            size = max(1, len(getattr(self, which)) // 2)
            while size >= 1:
                position = 0
                while position < len(getattr(self, which)):
                    old = getattr(self, which)
                    shorter = old[:position] + old[position + size:]
                    if not self.fails(*((self.setup, shorter) if which == "steps" else (shorter, self.steps))):
                        position += size
                size //= 2

    def bodies(self):
        """Removes nodes of bodies, or replaces a node by the nodes within it."""
        changed = True
        while changed and time.time() < self.deadline:
            changed = False
            for path in list(self.paths()):
                for hoist in (False, True):
                    setup, steps = copy.deepcopy(self.setup), copy.deepcopy(self.steps)
                    try:
                        target = {"setup": setup, "steps": steps}
                        for part in path[:-1]:
                            target = target[part]
                        node = target[path[-1]]
                    except (IndexError, KeyError, TypeError):
                        break
                    if hoist and not isinstance(node, dict):
                        break
                    target[path[-1]:path[-1] + 1] = [n for part in node["parts"] if isinstance(part, list) for n in part] if hoist else []
                    if self.fails(setup, steps):
                        changed = True
                        break

    def paths(self):
        """Yields the paths of all nodes, outer ones first."""
        def inside(nodes, path):
            """Yields the paths below a list of nodes."""
            for n in range(len(nodes) - 1, -1, -1):
                yield path + [n]
            for n, node in enumerate(nodes):
                if isinstance(node, dict):
                    for p, part in enumerate(node["parts"]):
                        if isinstance(part, list):
                            yield from inside(part, path + [n, "parts", p])
        for n, item in enumerate(self.setup):
            if isinstance(item, dict):
                yield from inside(item["body"], ["setup", n, "body"])
        for s, step in enumerate(self.steps):
            for n, (_, item) in enumerate(step):
                if isinstance(item, dict):
                    yield from inside(item["body"], ["steps", s, n, 1, "body"])

    def shrink(self):
        """Makes the program smaller until nothing more can be removed; returns (set-up, steps)."""
        before = None
        while before != (self.setup, self.steps) and time.time() < self.deadline:
            before = self.setup, self.steps
            self.items()
            self.bodies()
        return self.setup, self.steps


def depends_on_room(options, setup, run):
    """Returns whether the difference is one of deferrable unique columns that heap's pages cause.

    A nested UPDATE that leaves such a column alone looks for duplicates again on heap if its page has no room, or if
    it changes another indexed column; on zheap it does not if it is in place, for which zbtree indexes suffice. If the
    same steps agree when pages have room and indexes are of the server, the page decides, which is no fault.
    """
    if run is None or not any("DEFERRABLE" in statement_of(item) for item in setup):
        return False
    options.wait_until_up()
    roomy, steps = json.loads(json.dumps([setup, run.done]))
    roomy = [re.sub(r"fillfactor = \d+", "fillfactor = 10", item) if isinstance(item, str) else item for item in roomy]
    zbtree, options.zbtree = options.zbtree, False
    outcome, _, _ = run_program(options, roomy, steps=steps)
    options.zbtree = zbtree
    options.wait_until_up()
    return outcome == "ok"


def report(options, seed, setup, detail, run):
    """Prints what has failed, makes it smaller, and writes the case."""
    print(f"FAILED seed {seed}: {detail}\n", flush=True)
    options.wait_until_up()
    setup, steps = json.loads(json.dumps([setup, run.done if run is not None else []]))
    outcome, again, _ = run_program(options, setup, steps=steps)
    options.wait_until_up()
    if outcome not in FINE:
        setup, steps = Shrinker(options, setup, steps, outcome).shrink()
        outcome, again, _ = run_program(options, setup, steps=steps)
        options.wait_until_up()
        print(f"repeatable; {len(steps)} steps are left: {again}")
        for item in setup:
            print(statement_of(item) + ";")
        for step in steps:
            for number, item in step:
                print(f"{number}: {statement_of(item)};")
    else:
        print(f"not repeated by replaying the same steps: {outcome} {again}")
    os.makedirs(options.cases, exist_ok=True)
    path = os.path.join(options.cases, f"nested-{seed}.json")
    with open(path, "w", encoding="utf-8") as case:
        json.dump({"seed": seed, "detail": again or detail, "zbtree": options.zbtree, "setup": setup, "steps": steps}, case, indent=1)
    print(f"written to {path}\n", flush=True)


def one_seed(options, seed):
    """Makes and runs the program of a seed; returns (set-up, outcome, detail, run)."""
    rng = random.Random(seed)
    options.zbtree = zbtree_side.chosen(options.zbtree_mode, seed)
    program = Program(rng, options.version)
    setup = list(program.setup())
    length = rng.choice([10, 20, 30, 60])
    return (setup, *run_program(options, setup, program=program, length=length))


def parse_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="folder of the programs of a server that has zundo installed")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--programs", type=int, help="stop after this number of programs")
    parser.add_argument("--seed", type=int, help="first seed; default: from the clock")
    parser.add_argument("--failures", type=int, default=5, help="stop after this number of failures")
    parser.add_argument("--control", action="store_true", help="compare heap with heap")
    parser.add_argument("--zbtree", dest="zbtree_mode", choices=zbtree_side.MODES, default="mixed", help="use zbtree indexes on zheap tables; mixed: in odd seeds")
    parser.add_argument("--shrink-seconds", type=float, default=120)
    parser.add_argument("--replay", help="run a saved program")
    parser.add_argument("--cases", default=os.path.join(HERE, "cases", "nested"), help="folder to which failed programs are written")
    parser.add_argument("--keep", action="store_true", help="do not remove the private cluster")
    return parser.parse_args()


def run_all(options):
    """Runs programs until the time is over; returns the number of failures."""
    totals = collections.Counter()
    failures = 0
    seed = options.seed if options.seed is not None else int(time.time()) % 100000000
    print(f"first seed {seed}", flush=True)
    deadline = time.time() + options.minutes * 60
    while time.time() < deadline and failures < options.failures and totals["programs"] != options.programs:
        setup, outcome, detail, run = one_seed(options, seed)
        totals["programs"] += 1
        if run is not None:
            totals.update(run.counts)
        died = options.cluster.stock_assertions
        faults = options.cluster.new_faults()
        if options.cluster.stock_assertions > died:
            outcome = "given up"
            totals["failed assertions of heap"] += 1
            time.sleep(1)
            options.cluster.wait_until_up()
            options.cluster.new_faults()    # the end of that process may be logged only now
            faults = []
        if outcome not in FINE and not faults and (seed in KNOWN_SEEDS or depends_on_room(options, setup, run)):
            outcome = "given up"
            totals["checked again for want of room"] += 1
        totals[outcome] += 1
        if outcome not in FINE:
            report(options, seed, setup, detail, run)
            options.cluster.new_faults()
        elif faults:
            print(f"FAILED seed {seed}: server log: {faults[:5]}", flush=True)
        failures += outcome not in FINE or bool(faults)
        seed += 1
        if totals["programs"] % 100 == 0:
            print(f"{totals['programs']} programs", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(totals.items())))
    print(f"{totals['programs']} programs, {failures} failures")
    return failures


def main():
    """Runs the programs; returns the exit status."""
    options = parse_options()
    signal.signal(signal.SIGTERM, stop)
    options.cluster = Cluster(options.bindir, "fsync = off\nshared_buffers = 16MB\n" + ("shared_preload_libraries = ''\n" if options.control else ""))
    options.wait_until_up = options.cluster.wait_until_up
    try:
        options.cluster.start()
        options.dsn = options.cluster.dsn()
        conn = connect(options.dsn)
        with conn.cursor() as cursor:
            for statement in ([] if options.control else ["CREATE EXTENSION zundo"]) + list(helpers()):
                cursor.execute(statement)
        options.version = conn.server_version // 10000
        zbtree_side.allow_unique(options.version)
        conn.close()
        if options.replay:
            with open(options.replay, encoding="utf-8") as case:
                saved = json.load(case)
            options.zbtree = saved.get("zbtree", False)
            outcome, detail, run = run_program(options, saved["setup"], steps=saved["steps"])
            print("\n".join(run.trace if run is not None else []))
            print(f"{outcome}: {detail}")
            return 0 if outcome in FINE else 1
        return 1 if run_all(options) else 0
    finally:
        options.cluster.remove(keep=options.keep)


if __name__ == "__main__":
    sys.exit(main())
