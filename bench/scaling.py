"""./zundo compare --scaling: measures throughput and CPU over the number of clients.

The number of clients doubles from 1 to four times the number of cores. For each
number heap and zheap run in turns, on newly loaded tables. Ten times a second a
sampler reads what the sessions wait for.
"""

import collections
import statistics
import threading

from report import Table, spread
from server import BenchError
from workloads import drop_pgbench, load_pgbench, open_snapshot

SAMPLE_SECONDS = 0.1
TOP_WAITS = 3

# id: title, description, options of pgbench, options of its initialization, whether a transaction stays open
LOADS = {
    "W3": ("simple-update", "Each transaction updates one row, reads it, and inserts one into another table.", ["-N"], [], False),
    "W1": ("simple-update beside an open transaction", "The same while a transaction keeps its snapshot all the time.", ["-N"], [], True),
    "select": ("select-only", "Each transaction reads one row by its key.", ["-S"], [], False),
    "FK": ("tpcb-like with foreign keys", "Three updates and an insertion in each transaction, which locks the rows that the new one"
           " refers to. There is one branch for each unit of the scale: with more clients they wait for its row.",
           ["-b", "tpcb-like"], ["--foreign-keys"], False),
}


def client_numbers(cores):
    """Returns 1, 2, 4 and so on up to four times the cores."""
    numbers = [1]
    while numbers[-1] * 2 <= cores * 4:
        numbers.append(numbers[-1] * 2)
    return numbers


class WaitSampler:
    """Counts what pgbench's sessions wait for, in samples of pg_stat_activity."""

    QUERY = ("SELECT coalesce(wait_event_type || ':' || wait_event, 'running'), count(*) FROM pg_stat_activity"
             " WHERE application_name = 'pgbench' AND state <> 'idle' GROUP BY 1")

    def __init__(self, bench, engine):
        self.waits, self.error = collections.Counter(), None
        self._session, self._stop = bench.session(engine), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        """Counts the wait events of the clients until it is stopped."""
        try:
            while not self._stop.wait(SAMPLE_SECONDS):
                for event, sessions in self._session.query(self.QUERY):
                    self.waits[event] += int(sessions)
        except BenchError as error:
            self.error = error

    def finish(self):
        """Ends the sampling; returns {event: share of the samples}, the most frequent first."""
        self._stop.set()
        self._thread.join(10)
        self._session.close()
        if self.error:
            raise self.error
        total = sum(self.waits.values())
        return {event: times / total for event, times in self.waits.most_common()}


def measure(bench, engine, load, clients, seconds):
    """Runs a load once; returns TPS, latency, CPU of the server per transaction, and waits."""
    _, _, options, initialization, held = LOADS[load]
    load_pgbench(bench, engine, initialization)
    holder = bench.session(engine)
    if held:
        open_snapshot(holder, "SELECT count(*) FROM pgbench_branches")
    sampler, cpu = WaitSampler(bench, engine), bench.server.cpu_seconds()
    result = bench.load(engine, options, seconds, clients).finish()
    cpu_end = bench.server.cpu_seconds()
    waits = sampler.finish()
    holder.close()
    drop_pgbench(bench, engine)
    return {"tps": result["tps"], "latency_ms": result["latency_ms"], "waits": waits,
            "cpu_us": (cpu_end - cpu) / result["transactions"] * 1e6 if cpu is not None else None}


def merged(runs):
    """Returns the medians of the rounds, and the mean share of each wait."""
    waits = collections.Counter()
    for run in runs:
        for event, share in run["waits"].items():
            waits[event] += share / len(runs)
    figures = {key: None if any(run[key] is None for run in runs) else statistics.median(run[key] for run in runs)
               for key in ("tps", "latency_ms", "cpu_us")}
    return dict(figures, waits=dict(waits.most_common()), tps_spread=spread([run["tps"] for run in runs]))


def measure_load(bench, load, sides, seconds, rounds):
    """Runs all rounds of one load; returns {clients: {side: figures}}."""
    points = {}
    for clients in client_numbers(bench.cores):
        runs = {side.name: [] for side in sides}
        for number in range(rounds):
            for side in sides if number % 2 == 0 else list(reversed(sides)):
                bench.progress(f"scaling, {load}, {clients} clients, round {number + 1} of {rounds}, {side.name}")
                runs[side.name].append(measure(bench, side, load, clients, seconds))
        points[clients] = {name: merged(figures) for name, figures in runs.items()}
    return points


def top_waits(figures):
    """Returns the most frequent waits as text."""
    return ", ".join(f"{event} {share * 100:.0f} %" for event, share in list(figures["waits"].items())[:TOP_WAITS]) or "-"


def table_of(load, points, names):
    """Returns a Table of the figures of one load."""
    lines = []
    for clients, sides in points.items():
        heap, zheap = (sides[name] for name in names)
        cpu = [figures["cpu_us"] for figures in (heap, zheap)]
        spreads = [figures["tps_spread"] for figures in (heap, zheap)]
        lines.append((
            str(clients), f"{heap['tps']:,.0f}", f"{zheap['tps']:,.0f}", f"{zheap['tps'] / heap['tps']:.2f}",
            " / ".join("-" if s is None else f"{s:.0f} %" for s in spreads),
            *("-" if c is None else f"{c:.0f}" for c in cpu), "-" if None in cpu else f"{cpu[1] / cpu[0]:.2f}",
            top_waits(heap), top_waits(zheap)))
    ratio = f"{names[1]}/{names[0]}"
    headings = ("clients", f"{names[0]} tps", f"{names[1]} tps", ratio, "spread +-", f"{names[0]} CPU us",
                f"{names[1]} CPU us", ratio, f"{names[0]} does or waits for", f"{names[1]} does or waits for")
    return Table(f"{load}: {LOADS[load][0]}", headings, lines, left={8, 9}, mark=None,
                 notes=["CPU us: of all processes of the server, per transaction. What sessions do or wait for: of the samples in"
                        " which they were in a transaction; ClientRead is the wait for pgbench."])
