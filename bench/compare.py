#!/usr/bin/env python3
"""./zundo compare: measures workloads on heap and on zheap, in turns, in one server.

./zundo starts this program after it has built and installed the extension. Exit
status: 0 measured, 1 an operation failed, 2 a wrong option or a server that cannot be
used, 130 interrupted.
"""

import argparse
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from server import BenchError, ExistingServer, PrivateServer, load_average, machine, machine_busy_seconds  # noqa: E402
import growth  # noqa: E402
import indexed  # noqa: E402
import lines  # noqa: E402
import operations  # noqa: E402
import ops  # noqa: E402
import own_table  # noqa: E402
import scaling  # noqa: E402
import touched  # noqa: E402
import tpcc  # noqa: E402
from callgrind import CallgrindServer  # noqa: E402
import page  # noqa: E402
import report  # noqa: E402
import workloads  # noqa: E402


workloads.WORKLOADS = {**growth.WORKLOADS, **workloads.WORKLOADS, **tpcc.WORKLOADS, **indexed.WORKLOADS}


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that reports a wrong option in one line."""

    def error(self, message):
        """Prints the message and exits with status 2."""
        print(f"zundo: {message} (see ./zundo help)", file=sys.stderr)
        sys.exit(2)


def positive(text):
    """Returns the number; raises ArgumentTypeError unless it is a whole number above 0."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return value


def named(text):
    """Returns the workloads of a comma-separated list; raises ArgumentTypeError if one is unknown."""
    known = list(workloads.WORKLOADS) + ["ops"]
    wrong = [name for name in text.split(",") if name not in known + ["all"]]
    if wrong:
        raise argparse.ArgumentTypeError(f"'{wrong[0]}' is none of {', '.join(known)} and all")
    return known if text == "all" else text.split(",")


def parse(arguments):
    """Returns the options of the command line; exits with status 2 if they are wrong."""
    parser = Parser(prog="./zundo compare", add_help=True, allow_abbrev=False)
    parser.add_argument("--workload", default=list(growth.WORKLOADS), metavar="NAME,...", type=named, help=f"or all ({','.join(growth.WORKLOADS)})")
    parser.add_argument("--seconds", type=positive, help="of load per run (W1, W7: 60; W2L, W2Lf, W4L: 180; W8: 10; others: 20)")
    parser.add_argument("--scale", type=positive, default=20, help="of pgbench's tables (20)")
    parser.add_argument("--clients", type=positive, help="of pgbench (4; FK: 32)")
    parser.add_argument("--rounds", type=positive, help="alternating rounds (W1, W7, W7o, D, DQ: 1, others: 3)")
    parser.add_argument("--shared-buffers", metavar="SIZE", help="of the private server (a quarter of memory, at most 2GB)")
    parser.add_argument("--checkpoint-timeout", metavar="TIME", help="of the private server (1h)")
    parser.add_argument("--rows", type=positive, default=100000, help="of the tables of workload ops, or of the sample (100000)")
    parser.add_argument("--ops", default="", metavar="NAME,...", help="only these operations of workload ops")
    parser.add_argument("--scaling", action="store_true", help="four loads over 1 to 4 clients per core")
    parser.add_argument("--touched", action="store_true", help="count what a transaction shares with others; writes docs/scaling.md")
    parser.add_argument("--shared-lines", nargs="?", const=list(scaling.LOADS), metavar="LOAD,...",
                        type=lines.named, help="count lines of memory that sessions take from each other; writes docs/scaling.md")
    parser.add_argument("--list", action="store_true", help="list the operations")
    parser.add_argument("--server", metavar="CONNINFO", help="an existing server instead of a private one")
    parser.add_argument("--from", metavar="CONNINFO", help="copy a table from there and measure what it would gain")
    parser.add_argument("--table", metavar="NAME", help="the table")
    parser.add_argument("--columns", metavar="NAME,...", help="columns that random updates change")
    parser.add_argument("--script", metavar="FILE", help="a script of pgbench, instead of random updates")
    parser.add_argument("--zbtree", action="store_true", help="with --from: zheap has zbtree indexes where they are not unique")
    parser.add_argument("--transactions", type=positive, help="of --from (100000), of a client of --shared-lines (8)")
    parser.add_argument("--results", metavar="DIR", help="where the page is written (bench/results)")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--bindir", help=argparse.SUPPRESS)
    parser.add_argument("--only-parse", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.transactions = options.transactions or (lines.TRANSACTIONS if options.shared_lines else own_table.TRANSACTIONS)
    if options.ops and "ops" not in options.workload:
        parser.error("--ops goes with --workload ops")
    if options.server and (options.scaling or options.touched or options.shared_lines):
        parser.error("--scaling, --touched and --shared-lines need a private server")
    if options.server and (options.shared_buffers or options.checkpoint_timeout):
        parser.error("--shared-buffers and --checkpoint-timeout need a private server")
    if bool(getattr(options, "from")) != bool(options.table):
        parser.error("--from and --table go together")
    if options.table and (options.server or options.scaling or options.touched or options.shared_lines):
        parser.error("--from goes without --server, --scaling, --touched and --shared-lines")
    if (options.columns or options.script or options.zbtree) and not options.table:
        parser.error("--columns, --script and --zbtree go with --from")
    if options.script and not os.access(options.script, os.R_OK):
        parser.error(f"cannot read {options.script}")
    if options.server and options.workload == ["ops"]:
        parser.error("workload ops needs a private server")
    try:
        operations.chosen(options.ops, ())
    except KeyError as error:
        parser.error(f"there is no operation {error}; --list shows all")
    return options


class Progress:
    """Prints lines about the progress to stderr, with the seconds that have passed.

    A thread repeats the last line when nothing has been printed for a while.
    """

    SILENCE = 5.0

    def __init__(self):
        self.begun = self.said = time.monotonic()
        self.last = None

    def say(self, text):
        """Prints a line."""
        self.last, self.said = text, time.monotonic()
        print(f"zundo: {self.said - self.begun:3.0f} s: {text}", file=sys.stderr, flush=True)

    def watch(self):
        """Starts the thread."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        """Repeats the last line, again and again."""
        while True:
            time.sleep(max(0.1, self.said + self.SILENCE - time.monotonic()))
            if self.last and time.monotonic() >= self.said + self.SILENCE:
                self.say(self.last if self.last.startswith("still ") else f"still {self.last}")


PROGRESS = Progress()
say = PROGRESS.say


def interrupted(_signal, _frame):
    """Handles SIGINT and SIGTERM."""
    raise KeyboardInterrupt


def engines():
    """Returns the two Engines, heap first. With ZUNDO_BENCH_AM=heap the second one is heap, too."""
    method = os.environ.get("ZUNDO_BENCH_AM", "zheap")
    return [workloads.Engine("heap", "heap"),
            workloads.Engine("zheap" if method == "zheap" else "other", method)]


def fits(rounds, passed, limit):
    """Returns whether the next round will end within limit seconds if the first ones took passed; the first one always fits."""
    return not rounds or passed / rounds * (rounds + 1) <= limit


def measure(bench, workload, rounds, sides, limit=math.inf):
    """Runs all rounds of one workload that fit into limit seconds; the engine that begins alternates.

    Returns the workload's title and {engine: figures of each round}.
    """
    title, function, _ = workloads.WORKLOADS[workload]
    needed = indexed.settings(workload, bench.scale)
    if bench.server.private:
        bench.server.restart({k: v for k, v in needed.items() if not bench.server.chosen.get(k)})
    runs = {side.name: [] for side in sides}
    begun = time.monotonic()
    for number in range(rounds):
        if not fits(number, time.monotonic() - begun, limit):
            break
        order = sides if number % 2 == 0 else list(reversed(sides))
        for side in order:
            prefix = f"{workload} round {number + 1} of {rounds}, {side.name}"
            bench.say = lambda text, prefix=prefix: say(f"{prefix}: {text}")
            runs[side.name].append(function(bench, side))
    return title, runs


def measure_workload(bench, workload, options, sides):
    """Measures one workload; returns (figures for the JSON, table, its plots)."""
    names = tuple(side.name for side in sides)
    crowd = Crowd(bench)
    if workload == "ops":
        default = operations.OPERATIONS if options.workload == ["ops"] else operations.FEW
        bench.say = say
        rounds = options.rounds or 3
        results, failures = ops.measure_all(bench, sides, operations.chosen(options.ops, default), options.rows, rounds)
        table = ops.table_of(results, names, options.rows, rounds)
        table.notes += failures
        pictures = with_plots(lambda plots: plots.ratios(results, ops.LIMIT, names))
        figures = {"title": table.title, "rows": options.rows, "operations": results, "failures": failures}
        figures["crowd"] = crowd.figures()
        table.notes += crowd.words()
        return figures, table, pictures
    limit = growth.LIMIT if workload in growth.WORKLOADS and not options.rounds else math.inf
    title, runs = measure(bench, workload, options.rounds or workloads.WORKLOADS[workload][2], sides, limit)
    rows = report.summarize(workload, runs, names, crowd.figures())
    figures = {"title": title, "table": rows, "runs": runs, "crowd": crowd.figures()}
    pictures = with_plots(lambda plots: plots.draw(workload, runs, rows, names))
    table = report.workload_table(f"{workload}: {title}", rows, names)
    table.notes += crowd.words()
    return figures, table, pictures


class Crowd:
    """Measures how much of the machine other processes use from now on."""

    def __init__(self, bench):
        self.bench = bench
        self.begun, self.used = time.monotonic(), self._used()
        self.load = load_average()
        self.assertions = bench.server.run_sql(bench.server.admin_database, "SHOW debug_assertions") == "on"
        self.found = None

    def _used(self):
        """Returns the CPU seconds of all processes, of the server, and of this process and its clients that have ended."""
        times = os.times()
        return machine_busy_seconds(), self.bench.server.cpu_seconds(), sum(times[:4])

    def figures(self):
        """Returns load averages, the share of the cores that neither the server nor its clients used, and the seconds.

        The first call ends the measurement; later ones return the same.
        """
        if self.found is None:
            others, passed = None, time.monotonic() - self.begun
            if None not in self.used + self._used():
                busy, *ours = (now - then for now, then in zip(self._used(), self.used))
                others = round(max(0.0, busy - sum(ours)) / passed / (os.cpu_count() or 1), 3)
            self.found = {"load at begin": self.load, "load at end": load_average(), "others": others, "assertions": self.assertions,
                          "seconds": round(passed)}
        return self.found

    def words(self):
        """Returns the figures as a list of one sentence."""
        found = self.figures()
        others = "unknown" if found["others"] is None else f"{found['others'] * 100:.0f} %"
        return [f"Took {found['seconds']} s. Load average {found['load at begin']} before and {found['load at end']} after; share of the "
                f"machine's {os.cpu_count()} cores that other processes used: {others}."]


def commit():
    """Returns the commit of this checkout, with "-dirty" if files differ from it, or "unknown"."""
    folder = os.path.dirname(os.path.abspath(__file__))
    try:
        done = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True,
                              check=False)
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def results_folder(options):
    """Creates the folder of the results and returns its path."""
    folder = options.results or os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise BenchError(f"cannot write results: {error}") from None
    if not os.access(folder, os.W_OK):
        raise BenchError(f"cannot write results into {folder}; --results names another folder")
    return folder


def measure_scaling(bench, load, options, sides):
    """Measures one load with increasing numbers of clients; returns what measure_workload returns."""
    names = tuple(side.name for side in sides)
    bench.progress, bench.say = say, lambda text: None
    crowd = Crowd(bench)
    points = scaling.measure_load(bench, load, sides, options.seconds or 10, options.rounds or 3)
    title, what = scaling.LOADS[load][:2]
    table = scaling.table_of(load, points, names)
    table.notes += crowd.words()
    pictures = with_plots(lambda plots: plots.over_clients(load, points, names))
    return {"title": title, "what": what, "clients": points, "crowd": crowd.figures()}, table, pictures


def measure_own(bench, _name, options, sides):
    """Measures the user's table; returns what measure_workload returns."""
    names = tuple(side.name for side in sides)
    bench.say, table = say, bench.table
    for side in sides:
        table.prepare(bench, side)
    crowd = Crowd(bench)
    workloads.WORKLOADS["own"] = (table.title(), table.measure(options.transactions), 1)
    _, runs = measure(bench, "own", options.rounds or 1, sides)
    rows = report.summarize("own", runs, names, crowd.figures())
    pictures = with_plots(lambda plots: plots.draw("own", runs, rows, names))
    result = report.workload_table(table.title(), rows, names)
    result.notes += table.notes + crowd.words()
    figures = {"title": table.title(), "what": table.what(options.transactions), "table": rows, "runs": runs, "crowd": crowd.figures(),
               "notes": table.notes}
    return figures, result, pictures


def what_to_measure(options, server):
    """Returns (names of workloads or loads, the function that measures one of them, the name of the page)."""
    if options.scaling:
        return list(scaling.LOADS), measure_scaling, "scaling"
    if options.table:
        return ["own"], measure_own, "compare"
    left_out = [] if server.private else [name for name in options.workload if name == "ops" or indexed.settings(name, 1)]
    if left_out:
        say(f"left out, because they need a private server: {', '.join(left_out)}")
    return [name for name in options.workload if name not in left_out], measure_workload, "compare"


def command_line():
    """Returns the user's command line, without the option that ./zundo has added."""
    words = sys.argv[1:]
    if words[:1] == ["--bindir"]:
        words = words[2:]
    return without_password(" ".join(["./zundo compare"] + words))


def without_password(text):
    """Returns the text without the passwords in what it has of connection strings and URIs."""
    text = re.sub(r"(\bpassword\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", r"\1***", text)
    return re.sub(r"(\w+://[^:/@\s]*):[^@\s]*@", r"\1:***@", text)


def run(options, server):
    """Measures what the options ask for and writes the results; returns the exit status."""
    begun = time.monotonic()
    sides = engines()
    names = tuple(side.name for side in sides)
    folder = results_folder(options)
    if options.json:
        try:
            with open(options.json, "a", encoding="utf-8"):
                pass
        except OSError as error:
            raise BenchError(f"cannot write {options.json}: {error.strerror}") from None
    bench = workloads.Bench(server, options, say)
    if options.table:
        bench.table = own_table.Table(server.bindir, options, os.path.dirname(bench.scratch("table")), say)
    say("starting a private server" if server.private else "connecting")
    server.start()
    if options.touched or options.shared_lines:
        write_table(options, bench, sides)
        return 0
    workloads.create_databases(bench, sides)
    chosen, measure_one, page_name = what_to_measure(options, server)
    results = {
        "when": time.strftime("%Y-%m-%d %H:%M %Z"), "machine": machine(), "server": server.describe(),
        "command": command_line(), "commit": commit(),
        "options": {"scale": options.scale, "clients": "1 to 4 per core" if options.scaling else options.clients or "default",
                    "seconds": options.seconds or "default",
                    "rounds": options.rounds or "default", "server of": "its own" if server.private else "the user"},
        "workloads": {},
    }
    if results["server"]["settings"].get("debug_assertions") == "on":
        say("this server was built with assertions: its speed is not that of a normal build")
    tables, plots = {}, {}
    for workload in chosen:
        figures, tables[workload], plots[workload] = measure_one(bench, workload, options, sides)
        results["workloads"][workload] = figures
        print("\n" + report.terminal_table(tables[workload]) + "\n", flush=True)
    results["took"] = f"{(time.monotonic() - begun) / 60:.1f} minutes"
    path = os.path.join(folder, f"{page_name}.html")
    page.save(path, results, tables, plots, names)
    report.save_json(os.path.join(folder, f"{page_name}.json"), results)
    if options.json:
        report.save_json(options.json, results)
    PROGRESS.last = None
    print(f"{page.verdict(results, names)}\nTables and plots: {path}")
    return 1 if any(figures.get("failures") for figures in results["workloads"].values()) else 0


def write_table(options, bench, sides):
    """Counts what transactions share, and writes the table into docs/scaling.md, if it is whole."""
    version = bench.server.run_sql("postgres", "SHOW server_version").split()[0]
    if options.touched:
        mark, table = touched.MARK, touched.markdown(touched.measure_all(bench, sides, say), version)
    else:
        loads = options.shared_lines
        mark, table = lines.MARK, lines.markdown(lines.measure_all(bench, sides, loads, options.transactions, say), loads, version)
    print(f"{table}\n")
    if options.touched or loads == list(scaling.LOADS):
        touched.write(mark, table)
        print(f"written into {touched.DOCUMENT}")


def with_plots(draw_them):
    """Returns the result of draw_them(plots), or an empty list if pygal is missing."""
    try:
        import plots
    except ImportError:
        say("python3-pygal is missing: no plots")
        return []
    return draw_them(plots)


def main():
    """Returns the exit status."""
    options = parse(sys.argv[1:])
    if options.list:
        for operation in operations.OPERATIONS.values():
            print(f"{operation.group:6} {operation.name:20} {operation.what}")
        return 0
    if options.only_parse:
        return 0
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    PROGRESS.watch()
    if options.server:
        server = ExistingServer(options.bindir, options.server)
    else:
        kind = CallgrindServer if options.touched else lines.StoresServer if options.shared_lines else PrivateServer
        server = kind(options.bindir, preload=os.environ.get("ZUNDO_BENCH_AM", "zheap") == "zheap")
        server.chosen = {"shared_buffers": options.shared_buffers, "checkpoint_timeout": options.checkpoint_timeout}
    status = 0
    try:
        status = run(options, server)
    except BenchError as error:
        say(str(error))
        status = 2
    except KeyboardInterrupt:
        say("interrupted; stopping the server" if server.private else "interrupted; dropping our databases")
        status = 130
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        server.stop()
    return status


if __name__ == "__main__":
    sys.exit(main())
