"""Workload ops: runs each operation of operations.py on heap and on zheap, in turns.

Measures the CPU time of the backend that runs the operation. Other processes affect
it only through caches and shared cores. The share of the machine that they used is
recorded; if it, or the spread of the rounds, is too large for a verdict, the table
says so.
"""

import contextlib
import statistics
import time

import operations
from report import Table, spread
from server import BenchError, machine_busy_seconds, process_cpu_seconds

LIMIT = 1.1                     # greater ratios of zheap's CPU to heap's are marked
REPEAT_SECONDS = 0.2            # operations that change nothing are repeated for this time
SETTLED_UNDO = 65536            # with less undo in use (bytes), earlier undo counts as discarded
SETTLE_PATIENCE = 60.0          # seconds that we wait for that
SHORT = 0.002                   # with less CPU (seconds) on both sides, there is no verdict
# The doubt about a ratio is half the range of the ratios of the rounds.
CLEAR_SPREAD = 0.05             # a doubt up to this does not prevent a verdict
ONE_ROUND_DOUBT = 0.1           # the doubt after a single round
CROWD = 0.25                    # if other processes use more than this share of the machine ...
CROWD_DOUBT = 0.05              # ... the doubt increases by this


class Runner:
    """Creates the tables of operations, and sessions in the state in which the operations begin."""

    def __init__(self, bench, rows, file=None):
        self.bench, self.rows, self.file = bench, rows, file
        self.made = set()
        self.watchers = {}

    def watcher(self, engine):
        """Returns a session for reading views: it changes nothing and holds no snapshot. It stays open until close()."""
        if engine.name not in self.watchers:
            self.watchers[engine.name] = self.bench.session(engine)
        return self.watchers[engine.name]

    def close(self):
        """Closes the sessions of watcher()."""
        for session in self.watchers.values():
            session.close()
        self.watchers = {}

    def text(self, engine, operation, text):
        """Returns a command of the operation with its placeholders replaced."""
        return operations.fill_in(text, operation.table(engine.name), engine.method, self.rows, self.file)

    def do(self, session, engine, operation, texts):
        """Runs commands of the operation."""
        for text in texts:
            session.query(self.text(engine, operation, text))

    def flushing_session(self, engine):
        """Returns a session whose commits flush the WAL.

        VACUUM of a heap table sets no bit of the visibility map, and a reader no hint bit, for rows whose commit is not
        flushed. Whether it is would depend on the moment at which the WAL writer runs.
        """
        session = self.bench.session(engine)
        session.query("SET synchronous_commit = on")
        return session

    def make_sources(self, engine, reference):
        """Creates the tables from which all others are filled, and the file for COPY."""
        session = self.flushing_session(engine)
        self.do(session, engine, reference, operations.SOURCES)
        if self.file:
            session.query(f"COPY src TO '{self.file}'")
        session.close()

    def make_table(self, engine, operation):
        """Creates the operation's table, unless it is temporary or exists already."""
        name = operation.table(engine.name)
        if name in self.made or operation.temporary:
            return
        session = self.flushing_session(engine)
        self.do(session, engine, operation, operation.setup)
        session.close()
        self.made.add(name)

    def drop_table(self, engine, operation):
        """Drops the operation's table, unless it is temporary or shared."""
        if operation.shared or operation.temporary:
            return
        name = operation.table(engine.name)
        self.bench.server.run_sql(engine.database, f"DROP TABLE IF EXISTS {name}_child, {name};\n")
        self.made.discard(name)

    def settle(self, engine):
        """Waits until the undo of earlier operations is discarded, so that this does not happen during the next one.

        The last bytes are discarded here and not by a worker: it may be stopped while a VACUUM waits for it. Raises
        BenchError if it takes too long.
        """
        start = time.monotonic()
        if engine.has_undo:
            self.watcher(engine).query("SELECT zundo.discard()")
        while self.undo_in_use(engine) >= SETTLED_UNDO:
            if time.monotonic() - start > SETTLE_PATIENCE:
                raise BenchError(f"undo of earlier work is still kept after {SETTLE_PATIENCE:.0f} s")
            time.sleep(0.05)

    def undo_in_use(self, engine):
        """Returns the bytes of undo in use; 0 for heap."""
        return int(self.watcher(engine).value("SELECT zundo.undo_bytes_in_use()")) if engine.has_undo else 0

    @contextlib.contextmanager
    def stage(self, engine, operation):
        """Context with a session in which all that precedes the operation has been run.

        Needs the operation's table, unless that is temporary. At the end runs the commands of after.
        """
        holder = None
        session = self.bench.session(engine)
        try:
            if operation.temporary:
                self.do(session, engine, operation, operation.setup)
            self.do(session, engine, operation, operation.before)
            look = "SELECT 1 FROM {t} LIMIT 1"
            if operation.setup and "CREATE" in " ".join(operation.setup):
                self.do(session, engine, operation, [look])
            begin = ["BEGIN ISOLATION LEVEL REPEATABLE READ", look]
            if operation.snapshot == "own":
                self.do(session, engine, operation, begin)
            elif operation.snapshot == "other":
                holder = self.bench.session(engine)
                self.do(holder, engine, operation, begin)
            if operation.changes:
                writer = self.flushing_session(engine)
                self.do(writer, engine, operation, operation.changes)
                writer.close()
            self.do(session, engine, operation, operation.warm)
            yield session
            self.do(session, engine, operation, operation.after)
        finally:
            session.close()
            if holder:
                holder.close()


class WalMeter:
    """Measures WAL between two positions: the bytes of records, and of full-page images."""

    def __init__(self, bench, engine):
        self.session = bench.session(engine)
        self.session.query("SET synchronous_commit = on")
        self.parts = True
        try:
            self.session.query("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        except BenchError:
            self.parts = False

    def now(self):
        """Returns the insert position."""
        return self.session.value("SELECT pg_current_wal_insert_lsn()")

    def between(self, begin, end):
        """Returns (bytes of records, bytes of images).

        Without pg_walinspect images count as records; both are None if it cannot read the WAL.
        """
        if begin == end:
            return 0, 0
        if self.parts:
            # its commit flushes the WAL, for pg_walinspect reads only what has been flushed
            self.session.query("SELECT pg_logical_emit_message(true, 'zundo compare', '')")
            try:
                row = self.session.query("SELECT coalesce(sum(record_size), 0), coalesce(sum(fpi_size), 0)"
                                         f" FROM pg_get_wal_stats('{begin}', '{end}', false)")[0]
                return int(float(row[0])), int(float(row[1]))
            except BenchError:
                return None, None
        return int(self.session.value(f"SELECT pg_wal_lsn_diff('{end}', '{begin}')")), None

    def close(self):
        self.session.close()


def run_once(runner, engine, operation, session):
    """Runs the commands that are measured."""
    runner.do(session, engine, operation, operation.run)


def measure(runner, meter, engine, operation):
    """Measures one operation once: seconds of CPU and of wall time, bytes of WAL and of the table."""
    server = runner.bench.server
    runner.make_table(engine, operation)
    if not operation.shared:
        server.run_sql(engine.database, "CHECKPOINT;\n")
    runner.settle(engine)
    with runner.stage(engine, operation) as session:
        pid = int(session.value("SELECT pg_backend_pid()"))
        clock = server.cpu_seconds if operation.parallel else lambda: process_cpu_seconds(pid)
        begin, times = meter.now(), 0
        cpu, wall = clock(), time.monotonic()
        while times == 0 or (operation.shared and operation.group == "read" and
                             time.monotonic() - wall < REPEAT_SECONDS):
            run_once(runner, engine, operation, session)
            times += 1
        wall, cpu = time.monotonic() - wall, clock() - cpu
        end = meter.now()
    figures = {"measured": cpu, "cpu": cpu / times, "wall": wall / times, "wal": None, "images": None, "size": None}
    if operation.group not in ("read", "old"):
        figures["wal"], figures["images"] = meter.between(begin, end)
        if not operation.temporary:
            figures["size"] = int(server.run_sql(
                engine.database, f"SELECT pg_relation_size('{operation.table(engine.name)}');\n"))
    runner.drop_table(engine, operation)
    return figures


def measure_undo(runner, engine, operation):
    """Returns the bytes of undo that the operation writes, while a snapshot keeps them from being discarded.

    Returns None for heap, for operations that write none, and for those whose transaction begins in before.
    """
    if not engine.has_undo or operation.group not in ("write", "txn") or operation.temporary or operation.shared:
        return None
    if any(text == "BEGIN" for text in operation.before):
        return None
    runner.make_table(engine, operation)
    runner.settle(engine)
    holder = runner.bench.session(engine)
    holder.query("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.query("SELECT txid_current()")
    with runner.stage(engine, operation) as session:
        before = runner.undo_in_use(engine)
        run_once(runner, engine, operation, session)
        undo = runner.undo_in_use(engine) - before
    holder.close()
    runner.drop_table(engine, operation)
    return undo


def middle(figures, key):
    """Returns the median of one figure over the rounds, or None."""
    values = [f[key] for f in figures if f[key] is not None]
    return statistics.median(values) if values else None


def ratio(heap, zheap):
    """Returns zheap / heap, or None if a figure is missing or heap's is 0."""
    return zheap / heap if heap and zheap is not None else None


def wal_ratio(rows, heap, zheap):
    """Returns the ratio of bytes, or None if heap writes less than a byte per row."""
    return ratio(heap, zheap) if heap is not None and heap >= rows else None


def verdict(measured, ratios, others):
    """Returns "above", "short", "noisy" or "".

    measured: seconds of CPU of both sides; ratios: those of the rounds; others: the share of the machine that other
    processes used.
    """
    if max(measured) < SHORT:
        return "short"
    center = statistics.median(ratios)
    doubt = (max(ratios) - min(ratios)) / 2 / center if len(ratios) > 1 else ONE_ROUND_DOUBT
    doubt += CROWD_DOUBT if others is not None and others > CROWD else 0
    rounds_disagree = min(ratios) <= LIMIT < max(ratios)
    if doubt > CLEAR_SPREAD and (rounds_disagree or abs(center / LIMIT - 1) < doubt):
        return "noisy"
    return "above" if center > LIMIT else ""


def one_operation(runner, meters, operation, sides, rounds):
    """Runs all rounds of one operation on both sides, and returns its figures. The side that begins alternates."""
    server = runner.bench.server
    runs, loaded = {side.name: [] for side in sides}, operation.loaded()
    from_load = []
    busy, served, start = machine_busy_seconds(), server.cpu_seconds(), time.monotonic()
    for number in range(rounds):
        for side in sides if number % 2 == 0 else list(reversed(sides)):
            runs[side.name].append(measure(runner, meters[side.name], side, operation))
        if loaded:
            from_load.append(measure(runner, meters[sides[0].name], sides[0], loaded))
    heap, zheap = (runs[side.name] for side in sides)
    undo = measure_undo(runner, sides[1], operation)
    others = None
    if busy is not None:
        capacity = (time.monotonic() - start) * runner.bench.cores
        others = min(1.0, max(0.0, (machine_busy_seconds() - busy - server.cpu_seconds() + served) / capacity))
    pairs = [ratio(a["cpu"], b["cpu"]) for a, b in zip(heap, zheap)]
    loaded_pairs = [ratio(a["cpu"], b["cpu"]) for a, b in zip(from_load, zheap)]
    rows = operation.rows(runner.rows)
    medians = [{key: middle(figures, key) for key in ("cpu", "wall", "wal", "images", "size")}
               for figures in (heap, zheap)]
    with_images = [None if m["wal"] is None or m["images"] is None else m["wal"] + m["images"] for m in medians]
    return {
        "name": operation.name, "group": operation.group, "what": operation.what, "rows": rows,
        "heap": medians[0], "zheap": medians[1], "cpu_ratio": statistics.median(pairs), "cpu_spread": spread(pairs),
        "loaded_ratio": statistics.median(loaded_pairs) if loaded_pairs and None not in loaded_pairs else None,
        "wall_ratio": ratio(medians[0]["wall"], medians[1]["wall"]),
        "wal_ratio": wal_ratio(rows, medians[0]["wal"], medians[1]["wal"]),
        "wal_with_images_ratio": wal_ratio(rows, *with_images),
        "undo_per_row": None if undo is None else undo / rows,
        "size_ratio": ratio(medians[0]["size"], medians[1]["size"]),
        "others": others, "verdict": verdict([middle(figures, "measured") for figures in (heap, zheap)], pairs, others), "rounds": runs, "beside": operation.beside,
    }


def measure_all(bench, sides, chosen, rows, rounds):
    """Returns (figures of the operations, sentences about those that failed); raises BenchError if all failed."""
    runner = Runner(bench, rows, bench.server.server_file("rows.copy"))
    for side in sides:
        runner.make_sources(side, chosen[0])
    meters = {side.name: WalMeter(bench, side) for side in sides}
    results, failures = [], []
    for number, operation in enumerate(chosen, 1):
        bench.say(f"operation {number} of {len(chosen)}: {operation.name}")
        try:
            results.append(one_operation(runner, meters, operation, sides, rounds))
        except BenchError as error:
            failures.append(f"{operation.name} FAILED: {error}")
            bench.say(failures[-1])
    if not results:
        raise BenchError(failures[0])
    for meter in meters.values():
        meter.close()
    runner.close()
    for side in sides:
        tables = [name for name in sorted(runner.made) if name.endswith(f"_{side.name}")] + ["src", "big"]
        bench.server.run_sql(side.database, f"DROP TABLE IF EXISTS {', '.join(tables)};\n")
    return results, failures


MARKS = {"above": f"ABOVE {LIMIT}", "noisy": "too noisy to judge", "short": "too short to judge", "": ""}


def number(value, digits=2):
    """Returns a number as text, "-" for None."""
    return "-" if value is None else f"{value:.{digits}f}"


def per_row(result, side, key="cpu", scale=1e6):
    """Returns a figure per row (CPU in microseconds), or None."""
    value = result[side][key]
    return None if value is None else value / result["rows"] * scale


def table_of(results, names, rows, rounds):
    """Returns a Table of the figures."""
    lines = []
    for result in results:
        lines.append((
            result["name"], number(per_row(result, "heap"), 3), number(per_row(result, "zheap"), 3),
            number(result["cpu_ratio"]), number(result["cpu_spread"], 0) + (" %" if result["cpu_spread"] else ""),
            number(result["loaded_ratio"]),
            number(per_row(result, "zheap", "wal", 1), 0), number(result["wal_ratio"]),
            number(result["wal_with_images_ratio"]), number(result["undo_per_row"], 1), number(result["size_ratio"]),
            MARKS[result["verdict"]], result["what"]))
    notes = [f"{names[1]}/{names[0]}: CPU of the backend, median of {rounds} pairs of rounds; CPU and WAL per row of"
             f" {rows} (or per transaction). Loaded: the same ratio to {names[0]} right after loading, without VACUUM."]
    by_name = {result["name"]: result for result in results}
    for result in results:
        idle = by_name.get(result["beside"])
        if idle:
            against = [per_row(result, side) / per_row(idle, side) for side in ("heap", "zheap")]
            notes.append(f"{result['name']} against {idle['name']}: {names[0]} {against[0]:.2f}, {names[1]} {against[1]:.2f}.")
    above = [result for result in results if result["verdict"] == "above"]
    noisy = sum(result["verdict"] in ("noisy", "short") for result in results)
    shares = [result["others"] for result in results if result["others"] is not None]
    notes.append(f"Above {LIMIT}: {len(above)} of {len(results)}" + (f"; not judged: {noisy}" if noisy else "") +
                 (f"; other processes used {statistics.mean(shares) * 100:.0f} % of the machine." if shares else "."))
    headings = ("operation", f"{names[0]} us", f"{names[1]} us", f"{names[1]}/{names[0]}", "spread +-", "loaded", "WAL B", "ratio",
                "with images", "undo B", "size", "", "")
    return Table(f"ops: what single operations cost, {rows} rows", headings, lines, left={0, 11, 12}, mark=11,
                 notes=notes)
