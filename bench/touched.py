"""./zundo compare --touched: counts how often one transaction uses what all sessions share.

Counts, under callgrind, the calls of server functions that take locks, pin buffers,
write WAL or look up the status of a transaction, in transactions that read or change
one row by key, on heap and on zheap. Writes a table into docs/scaling.md, between the
lines BEGIN and END.
"""

import os
import re

from callgrind import StoppedWorkers, calls
import operations
from ops import Runner
from workloads import create_databases

ROWS = 3000
DOCUMENT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "scaling.md")
BEGIN = "<!-- begin: ./zundo compare --touched -->"
END = "<!-- end: ./zundo compare --touched -->"
TRANSACTIONS = (("UPDATE", "txn_update"), ("INSERT", "txn_insert_pk"), ("DELETE", "txn_delete"), ("SELECT", "txn_select"))

# Label and functions. Calls of the functions are counted, except those by functions of the same line.
FIGURES = (
    ("LWLocks taken", ("LWLockAcquire", "LWLockConditionalAcquire", "LWLockAcquireOrWait")),
    ("content locks, taken and released", ("LockBuffer", "ConditionalLockBuffer")),
    ("buffers pinned", ("ReadBuffer", "ReadBufferExtended", "ReadBufferWithoutRelcache", "ReadRecentBuffer",
                        "ExtendBufferedRel", "ExtendBufferedRelBy", "ExtendBufferedRelTo")),
    ("heavyweight locks", ("LockAcquire", "LockAcquireExtended")),
    ("WAL records", ("XLogInsert", "XLogInsertRecord")),
    ("snapshots taken", ("GetSnapshotData",)),
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


def write(text):
    """Replaces the table in the document."""
    with open(DOCUMENT, encoding="utf-8") as document:
        old = document.read()
    new = re.sub(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: f"{BEGIN}\n{text}\n{END}", old, flags=re.S)
    with open(DOCUMENT, "w", encoding="utf-8") as document:
        document.write(new)
