#!/usr/bin/env python3
"""./zundo compare: heap and zheap in one server, in one run, alternating.

Started by ./zundo, which builds and installs the extension first. Exit status:
0 measured, 2 a wrong option or a server that cannot be used, 130 interrupted.
"""

import argparse
import os
import signal
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from server import BenchError, ExistingServer, PrivateServer, machine  # noqa: E402
import report  # noqa: E402
import workloads  # noqa: E402


class Parser(argparse.ArgumentParser):
    """One clear line for a wrong option."""

    def error(self, message):
        print(f"zundo: {message} (see ./zundo help)", file=sys.stderr)
        sys.exit(2)


def positive(text):
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number above 0")
    return value


def parse(arguments):
    parser = Parser(prog="./zundo compare", add_help=True, allow_abbrev=False)
    parser.add_argument("--workload", default="W1", choices=list(workloads.WORKLOADS) + ["all"])
    parser.add_argument("--seconds", type=positive, help="of load per run (W1: 60, W3, W6 and FK: 20, W8: 10)")
    parser.add_argument("--scale", type=positive, default=20, help="of pgbench's tables (20)")
    parser.add_argument("--clients", type=positive, help="of pgbench (4; FK: 32)")
    parser.add_argument("--rounds", type=positive, help="alternating rounds (W1: 1, others: 3)")
    parser.add_argument("--server", metavar="CONNINFO", help="an existing server instead of a private one")
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--bindir", help=argparse.SUPPRESS)
    parser.add_argument("--only-parse", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def say(text):
    print(f"zundo: {text}", file=sys.stderr, flush=True)


def interrupted(_signal, _frame):
    raise KeyboardInterrupt


def engines():
    """heap first, then the other; ZUNDO_BENCH_AM=heap tests the benchmark itself."""
    method = os.environ.get("ZUNDO_BENCH_AM", "zheap")
    return [workloads.Engine("heap", "heap"),
            workloads.Engine("zheap" if method == "zheap" else "other", method)]


def measure(bench, workload, rounds, sides):
    """All rounds of one workload; the engine that begins alternates."""
    title, function, _ = workloads.WORKLOADS[workload]
    runs = {side.name: [] for side in sides}
    for number in range(rounds):
        order = sides if number % 2 == 0 else list(reversed(sides))
        for side in order:
            prefix = f"{workload} round {number + 1} of {rounds}, {side.name}"
            bench.say = lambda text, prefix=prefix: say(f"{prefix}: {text}")
            runs[side.name].append(function(bench, side))
    return title, runs


def results_folder():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise BenchError(f"cannot write results: {error}") from None
    return folder


def run(options, server):
    sides = engines()
    names = tuple(side.name for side in sides)
    folder = results_folder()
    if options.json:
        try:
            with open(options.json, "a", encoding="utf-8"):
                pass
        except OSError as error:
            raise BenchError(f"cannot write {options.json}: {error.strerror}") from None
    say("starting a private server" if server.private else "connecting")
    server.start()
    bench = workloads.Bench(server, options, say)
    workloads.create_databases(bench, sides)
    chosen = list(workloads.WORKLOADS) if options.workload == "all" else [options.workload]
    results = {
        "when": time.strftime("%Y-%m-%d %H:%M %Z"), "machine": machine(), "server": server.describe(),
        "options": {"scale": options.scale, "clients": options.clients or "default", "seconds": options.seconds or "default",
                    "rounds": options.rounds or "default", "server of": "its own" if server.private else "the user"},
        "workloads": {},
    }
    if results["server"]["settings"].get("debug_assertions") == "on":
        say("this server was built with assertions: the figures say little about speed")
    tables, plots = {}, {}
    for workload in chosen:
        title, runs = measure(bench, workload, options.rounds or workloads.WORKLOADS[workload][2], sides)
        rows = report.summarize(workload, runs, names)
        tables[workload] = (f"{workload}: {title}", rows)
        results["workloads"][workload] = {"title": title, "table": rows, "runs": runs}
        plots[workload] = draw(workload, runs, rows, names, folder)
        print("\n" + report.terminal_table(*tables[workload], names) + "\n", flush=True)
    page = os.path.join(folder, "compare.html")
    report.save_html(page, results, tables, plots, names)
    report.save_json(os.path.join(folder, "compare.json"), results)
    if options.json:
        report.save_json(options.json, results)
    print(f"Tables and plots: {page}")


def draw(workload, runs, rows, names, folder):
    """Plots, if matplotlib is there."""
    try:
        import plots
    except ImportError:
        say("python3-matplotlib is missing: no plots")
        return []
    return plots.draw(workload, runs, rows, names, folder)


def main():
    options = parse(sys.argv[1:])
    if options.only_parse:
        return 0
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    if options.server:
        server = ExistingServer(options.bindir, options.server)
    else:
        server = PrivateServer(options.bindir, preload=os.environ.get("ZUNDO_BENCH_AM", "zheap") == "zheap")
    status = 0
    try:
        run(options, server)
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
