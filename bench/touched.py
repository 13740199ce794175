"""./zundo compare --touched: counts how often one transaction uses what all sessions share.

Counts, under callgrind, the calls of server functions that take locks, pin buffers,
write WAL or look up the status of a transaction, in transactions that read or change
one row by key, on heap and on zheap. Writes a table into docs/scaling.md.
"""

import os
import re

from callgrind import StoppedWorkers, calls
import operations
from ops import Runner
from workloads import create_databases

ROWS = 3000
DOCUMENT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "scaling.md")
MARK = "./zundo compare --touched"
TRANSACTIONS = (("UPDATE", "txn_update"), ("INSERT", "txn_insert_pk"), ("DELETE", "txn_delete"), ("SELECT", "txn_select"))

# Label and functions. Calls of the functions are counted, except those by functions of the same line.
FIGURES = (
    ("LWLocks taken", ("LWLockAcquire", "LWLockConditionalAcquire", "LWLockAcquireOrWait")),
    ("content locks, taken and released", ("LockBuffer", "ConditionalLockBuffer")),
    ("buffers pinned", ("ReadBuffer", "ReadBufferExtended", "ReadBufferWithoutRelcache", "ReadRecentBuffer",
                        "ExtendBufferedRel", "ExtendBufferedRelBy", "ExtendBufferedRelTo")),
    ("heavyweight locks", ("LockAcquire", "LockAcquireExtended")),
    ("WAL records", ("XLogInsert", "XLogInsertRecord")),
    ("is a transaction in progress? (ProcArray)", ("TransactionIdIsInProgress",)),
    ("did it commit? (clog page looked up)", ("SimpleLruReadPage_ReadOnly",)),
)


def counted(profile):
    """Returns {label: calls} of one profile."""
    edges = calls(profile)
    return {what: sum(times for (caller, called), times in edges.items() if called in functions and
                      caller not in functions) for what, functions in FIGURES}


def measure(runner, engine, operation):
    """Runs an operation; returns {label: calls per transaction}."""
    server, watcher = runner.bench.server, runner.watcher(engine)
    runner.settle(engine)
    with StoppedWorkers(watcher), runner.stage(engine, operation) as session:
        server.mark(session)
        runner.do(session, engine, operation, operation.run)
        profile = server.mark(session)
    return {what: times / operation.rows(runner.rows) for what, times in counted(profile).items()}


def measure_all(bench, sides, say):
    """Returns {(label, transaction): (heap's calls, zheap's)}. Needs a CallgrindServer that has been started."""
    chosen = [operations.OPERATIONS[name] for _, name in TRANSACTIONS]
    create_databases(bench, sides)
    runner = Runner(bench, ROWS)
    for side in sides:
        runner.make_sources(side, chosen[0])
        for operation in chosen:
            runner.make_table(side, operation)
    runner.close()
    bench.server.count_instructions()
    table = {}
    for (label, _), operation in zip(TRANSACTIONS, chosen):
        say(f"counting calls: {operation.what}")
        heap, zheap = (measure(runner, side, operation) for side in sides)
        table.update({(what, label): (heap[what], zheap[what]) for what, _ in FIGURES})
    return table


def markdown(table, version):
    """Returns the table for docs/scaling.md."""
    lines = [f"PostgreSQL {version}; calls per transaction, heap / zheap:", "",
             "| | " + " | ".join(label for label, _ in TRANSACTIONS) + " |", "|---" * (len(TRANSACTIONS) + 1) + "|"]
    for what, _ in FIGURES:
        cells = []
        for label, _ in TRANSACTIONS:
            heap, zheap = table[(what, label)]
            cells.append("–" if heap == zheap == 0 else f"{heap:.1f} / {zheap:.1f}")
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(mark, text):
    """Replaces the table between two marks in the document."""
    begin, end = f"<!-- begin: {mark} -->", f"<!-- end: {mark} -->"
    with open(DOCUMENT, encoding="utf-8") as document:
        old = document.read()
    new = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n{text}\n{end}", old, flags=re.S)
    with open(DOCUMENT, "w", encoding="utf-8") as document:
        document.write(new)
