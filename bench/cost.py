#!/usr/bin/env python3
"""Counts the instructions of single operations and compares them with bounds.

./zundo test --part cost runs it. Each operation of operations.py is run once on
heap and once on zheap, on small tables, under callgrind. Instructions per row of
zheap, their ratio to heap's, bytes of WAL and of undo per row are compared with
a file of bounds; --record writes it. One line for each operation; exit status 1
if a figure is above its bound.
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
# What --record adds to what it measured: a part of it, and a constant.
MARGINS = {"instructions": (0.08, 100), "ratio": (0.1, 0.03), "WAL": (0.05, 4), "undo": (0.05, 1)}
SLACK = 0.8                     # a figure below this part of its bound means that the bound can be lowered

# Work of other processes, and code that is made at run time, would not be counted; a ROLLBACK costs
# heap nothing, and VACUUM of nothing too little.
LEFT_OUT = ("seq_parallel", "create_index_par", "seq_wide_jit", "rollback_update", "vacuum_clean")


def guarded():
    return [operation for operation in operations.OPERATIONS.values() if operation.name not in LEFT_OUT]


def measure(runner, meter, engine, operation):
    """Instructions, bytes of WAL records (without images of pages) and of undo of one operation."""
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
    """The figures of FIGURES, per row, and heap's instructions."""
    rows = operation.rows(runner.rows)
    (heap, _, _), (zheap, wal, undo) = (measure(runner, *pair, operation) for pair in zip(meters, sides))
    runner.bench.server.forget_profiles()
    return {"heap": heap / rows, "instructions": zheap / rows, "ratio": zheap / heap, "WAL": wal / rows,
            "undo": undo / rows}


def measure_all(server, chosen, rows, report):
    """Measure the operations on a fresh server; report gets each operation and its figures."""
    bench = Bench(server, types.SimpleNamespace(scale=1, clients=1, seconds=1), lambda text: None)
    sides = [Engine("heap", "heap"), Engine("zheap", "zheap")]
    server.start()
    create_databases(bench, sides)
    runner = Runner(bench, rows, server.server_file("rows.copy"))
    for side in sides:
        runner.make_sources(side, chosen[0])
        for operation in chosen:
            runner.make_table(side, operation)
    server.run_sql("postgres", "CHECKPOINT;\n")
    runner.close()
    server.count_instructions()
    meters = [WalMeter(bench, side) for side in sides]
    for operation in chosen:
        report(operation, figures_of(runner, meters, sides, operation))


def read_bounds(path):
    """{operation: {figure: bound}} of the file."""
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
    return {name: figures[name] * (1 + MARGINS[name][0]) + MARGINS[name][1] for name in FIGURES}


def shown(name, value):
    return f"{value:.2f} of heap's" if name == "ratio" else \
        f"{value:.0f} instructions" if name == "instructions" else f"{value:.1f} B of {name}"


def judge(operation, figures, bound, path):
    """("ok" or "FAILED", what to say)."""
    all_figures = ", ".join(shown(name, figures[name]) for name in FIGURES) + f" (heap: {figures['heap']:.0f})"
    if bound is None:
        return "FAILED", f"{operation.name}: {all_figures}; {path} has no bounds for it: record them with --record"
    above = [f"{shown(name, figures[name])} per row, the bound is {bound[name]:g}" for name in FIGURES
             if figures[name] > bound[name]]
    if above:
        return "FAILED", f"{operation.name} ({operation.what}): {'; '.join(above)} in {path}; now {all_figures}"
    low = [name for name in ("instructions", "ratio") if with_margin(figures)[name] < SLACK * bound[name]]
    return "ok", f"{operation.name}: {all_figures}" + (f"; lower the bound of {' and '.join(low)}" if low else "")


def main():
    parser = argparse.ArgumentParser(prog="cost.py", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--bindir", required=True, help="of the server, with zundo installed")
    parser.add_argument("--bounds", required=True, help="the file")
    parser.add_argument("--record", action="store_true", help="write what is measured there, plus a margin")
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
