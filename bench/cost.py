#!/usr/bin/env python3
"""Counts the instructions of single operations and compares them with bounds.

./zundo test --part cost starts this program. It runs each operation of operations.py
once on heap and once on zheap, on small tables, under callgrind. It compares zheap's
instructions per row, their ratio to heap's, and bytes of WAL and of undo per row with
a file of bounds, which --record writes. It prints one line for each operation. The
exit status is 1 if a figure is above its bound.
"""

import argparse
import os
import sys
import types

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import operations  # noqa: E402
from callgrind import CallgrindServer, StoppedWorkers, instructions  # noqa: E402
from ops import Runner, WalMeter  # noqa: E402
from server import BenchError  # noqa: E402
from workloads import Bench, Engine, create_databases  # noqa: E402

ROWS = 2000
FIGURES = ("instructions", "ratio", "WAL", "undo")
# What --record adds to a measured figure: this part of the figure, and a constant.
MARGINS = {"instructions": (0.08, 100), "ratio": (0.1, 0.03), "WAL": (0.05, 4), "undo": (0.05, 1)}
SLACK = 0.8                     # if a figure with margin is below this part of its bound, the bound can be lowered

# Operations without bounds: instructions of parallel workers and of JIT-compiled code are not counted; heap does
# nothing for a ROLLBACK, and hardly anything for a VACUUM without dead rows, so that the ratio means nothing.
LEFT_OUT = ("seq_parallel", "create_index_par", "seq_wide_jit", "rollback_update", "vacuum_clean")


def guarded():
    """Returns the operations that have bounds."""
    return [operation for operation in operations.OPERATIONS.values() if operation.name not in LEFT_OUT]


def measure(runner, meter, engine, operation):
    """Runs one operation; returns its instructions, bytes of WAL records (without images of pages) and of undo."""
    server, watcher = runner.bench.server, runner.watcher(engine)
    runner.settle(engine)
    with StoppedWorkers(watcher), runner.stage(engine, operation) as session:
        undo, begin = runner.undo_in_use(engine), meter.now()
        server.mark(session)
        runner.do(session, engine, operation, operation.run)
        profile = server.mark(session)
        undo, end = runner.undo_in_use(engine) - undo, meter.now()
        wal, _ = meter.between(begin, end)
    return instructions(profile), wal, undo


def figures_of(runner, meters, sides, operation):
    """Runs one operation on both sides; returns the figures of FIGURES, and heap's instructions, per row.

    loaded is the ratio to heap right after loading, None if that is how the operation begins.
    """
    rows, loaded = operation.rows(runner.rows), operation.loaded()
    (heap, _, _), (zheap, wal, undo) = (measure(runner, *pair, operation) for pair in zip(meters, sides))
    unvacuumed = measure(runner, meters[0], sides[0], loaded)[0] if loaded else None
    runner.bench.server.forget_profiles()
    return {"heap": heap / rows, "instructions": zheap / rows, "ratio": zheap / heap, "WAL": wal / rows,
            "undo": undo / rows, "loaded": zheap / unvacuumed if loaded else None}


def measure_all(server, chosen, rows, report):
    """Starts the server and measures the operations; calls report with each operation and its figures."""
    bench = Bench(server, types.SimpleNamespace(scale=1, clients=1, seconds=1), lambda text: None)
    sides = [Engine("heap", "heap"), Engine("zheap", "zheap")]
    server.start()
    create_databases(bench, sides)
    runner = Runner(bench, rows, server.server_file("rows.copy"))
    for side in sides:
        runner.make_sources(side, chosen[0])
        for operation in chosen:
            runner.make_table(side, operation)
    for loaded in filter(None, (operation.loaded() for operation in chosen)):
        runner.make_table(sides[0], loaded)
    server.run_sql("postgres", "CHECKPOINT;\n")
    runner.close()
    server.count_instructions()
    meters = [WalMeter(bench, side) for side in sides]
    for operation in chosen:
        report(operation, figures_of(runner, meters, sides, operation))


def read_bounds(path):
    """Returns {operation: {figure: bound}} of the file, which may be missing; raises BenchError if it is wrong."""
    bounds = {}
    try:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                words = line.split()
                if words and not line.startswith("#"):
                    bounds[words[0]] = dict(zip(FIGURES, (float(word) for word in words[1:])))
    except FileNotFoundError:
        pass
    except ValueError as error:
        raise BenchError(f"{path}: {error}") from None
    return bounds


def write_bounds(path, bounds, rows):
    """Writes the file of bounds."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"""# Bounds of ./zundo test --part cost, per row, at {rows} rows: the instructions of
# zheap's backend, their ratio to heap's, bytes of WAL, bytes of undo. Written by
# ./zundo test --part cost --record from what it measured, plus a margin
# (bench/cost.py). Lower a bound freely; raise it only for a reason that the
# commit names.
# {'operation':18} {'instructions':>12} {'ratio':>7} {'WAL':>8} {'undo':>8}
""")
        for operation in operations.OPERATIONS:
            if operation in bounds:
                bound = bounds[operation]
                out.write(f"{operation:20} {bound['instructions']:12.0f} {bound['ratio']:7.2f} {bound['WAL']:8.1f}"
                          f" {bound['undo']:8.1f}\n")


def with_margin(figures):
    """Returns bounds for the figures."""
    return {name: figures[name] * (1 + MARGINS[name][0]) + MARGINS[name][1] for name in FIGURES}


def shown(name, value):
    """Returns a figure with its unit."""
    return f"{value:.2f} of heap's" if name == "ratio" else \
        f"{value:.0f} instructions" if name == "instructions" else f"{value:.1f} B of {name}"


def judge(operation, figures, bound, path):
    """Returns ("ok" or "FAILED", a line for the user)."""
    all_figures = ", ".join(shown(name, figures[name]) for name in FIGURES) + f" (heap: {figures['heap']:.0f})"
    if figures["loaded"]:
        all_figures += f", {figures['loaded']:.2f} of heap's right after loading"
    if bound is None:
        return "FAILED", f"{operation.name}: {all_figures}; {path} has no bounds for it: record them with --record"
    above = [f"{shown(name, figures[name])} per row, the bound is {bound[name]:g}" for name in FIGURES
             if figures[name] > bound[name]]
    if above:
        return "FAILED", f"{operation.name} ({operation.what}): {'; '.join(above)} in {path}; now {all_figures}"
    low = [name for name in ("instructions", "ratio") if with_margin(figures)[name] < SLACK * bound[name]]
    return "ok", f"{operation.name}: {all_figures}" + (f"; lower the bound of {' and '.join(low)}" if low else "")


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="cost.py", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="of the server, with zundo installed")
    parser.add_argument("--bounds", required=True, help="file of bounds")
    parser.add_argument("--record", action="store_true", help="write the measured figures, plus a margin, to that file")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--part", default="1/1", help="K/N: only each N-th operation, from the K-th on")
    parser.add_argument("names", nargs="*", help="only operations whose name contains one of these")
    options = parser.parse_args()
    part, parts = (int(x) for x in options.part.split("/"))
    chosen = [operation for operation in guarded()
              if not options.names or any(name in operation.name for name in options.names)][part - 1::parts]
    if not chosen:
        return 0
    bounds, failed = read_bounds(options.bounds), []

    def report(operation, figures):
        """Prints the figures of an operation beside its bounds, and notes whether these are exceeded."""
        if options.record:
            bounds[operation.name] = with_margin(figures)
        status, words = judge(operation, figures, bounds.get(operation.name), options.bounds)
        if status != "ok":
            failed.append(operation.name)
        print(status, words, flush=True)

    server = CallgrindServer(options.bindir, preload=True)
    try:
        measure_all(server, chosen, options.rows, report)
        print(f"{len(chosen)} operations, {server.cpu_seconds():.0f} s of CPU")
    except BenchError as error:
        print(f"FAILED cost: {error}", flush=True)
        failed.append("cost")
    finally:
        server.stop()
    if options.record:
        write_bounds(options.bounds, bounds, options.rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
