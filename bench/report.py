"""Makes tables of measured figures: medians, ratios, and whether goals are reached."""

import json
import statistics

from server import MB

MORE_IS_BETTER = {"tps", "tps_open", "tps_after", "tps_beside", "select_tps"}
NEITHER = {"jobs"}
# Forms of the figures that depend on the load of the machine.
TIMED = {"number", "ms", "us", "seconds"}
TOO_BUSY = 0.125                # share of the cores; if other processes use more, some figures are not judged


class Metric:
    """One line of the table: a key of a workload's figures, its label, and how it is shown.

    goal is its text, and a function of the figures of heap and zheap that returns whether it is reached.
    Figures without a goal are for orientation. ratio: show zheap's figure divided by heap's.
    """

    def __init__(self, key, label, form, goal=None, ratio=True):
        self.key, self.label, self.form, self.goal, self.ratio = key, label, form, goal, ratio

    def better(self):
        """Returns an arrow: up if more is better, down if less is."""
        if self.form == "yes" or self.key in NEITHER:
            return ""
        return "\u2191" if self.key in MORE_IS_BETTER else "\u2193"


def ratio_at_most(limit):
    """Returns the goal that zheap / heap is at most limit."""
    return (f"ratio <= {limit}", lambda heap, zheap: zheap / heap <= limit)


def ratio_at_least(limit):
    """Returns the goal that zheap / heap is at least limit."""
    return (f"ratio >= {limit}", lambda heap, zheap: zheap / heap >= limit)


def zheap_at_most(limit, words):
    """Returns the goal that zheap's figure is at most limit; words is the limit as text."""
    return (f"zheap <= {words}", lambda heap, zheap: zheap <= limit)


ALWAYS = ("yes", lambda heap, zheap: zheap == 1)
NO_GROWTH = ("none", lambda heap, zheap: zheap <= 0)

LATENCY = [
    Metric("latency_ms", "latency, average", "ms"),
    Metric("p50_ms", "latency, median", "ms"),
    Metric("p95_ms", "latency, 95 % are below", "ms"),
    Metric("p99_ms", "latency, 99 % are below", "ms"),
]

# Common to W2, W4 and W5.
INDEXED = LATENCY + [
    Metric("wal_per_transaction", "WAL per transaction", "bytes"),
    Metric("table_growth", "growth of the table", "percent", zheap_at_most(0.0, "0"), ratio=False),
    Metric("loaded", "on disk after loading: table, indexes and undo file", "mb"),
    Metric("disk", "on disk at the end: table, indexes and undo file", "mb"),
]

# W2s and W4s: both sides have btree indexes, so rows of zheap move.
INDEXED_STOCK = INDEXED[:-3] + [
    Metric("tps", "transactions per second", "number"),
    Metric("cpu_us", "server CPU per transaction", "us", ratio_at_most(1.05)),
    Metric("wal_without_images", "WAL per transaction without full-page images", "bytes", ratio_at_most(1.1)),
    Metric("table_growth", "growth of the table", "percent", ratio=False),
] + INDEXED[-2:]

# W2 and W2f: one of six indexes changes.
ONE_CHANGES = [
    Metric("wal_without_images", "WAL per transaction without full-page images", "bytes", ratio_at_most(0.40)),
    Metric("others_growth", "growth of the five other indexes", "percent", zheap_at_most(0.0, "0"), ratio=False),
    Metric("changed_growth", "growth of the index that changes", "percent", ratio=False),
    Metric("entries_per_row", "entries per row in the index that changes, right after", "factor", ratio=False),
    Metric("entries_quiet", "entries per row in that index after up to 60 s of quiet, without VACUUM", "factor",
           zheap_at_most(1.02, "1.02"), ratio=False),
]

# W2L and W2Lf: the same with data larger than shared_buffers.
ONE_CHANGES_LARGE = LATENCY + [
    Metric("wal_per_transaction", "WAL per transaction with full-page images", "bytes", ratio_at_most(0.6)),
] + INDEXED[-3:] + [
    Metric("tps", "transactions per second", "number", ratio_at_least(1.77)),
    Metric("cpu_us", "server CPU per transaction", "us"),
    Metric("others_growth", "growth of the five other indexes", "percent", zheap_at_most(0.0, "0"), ratio=False),
    Metric("changed_growth", "growth of the index that changes", "percent", ratio=False),
]

METRICS = {
    "W0": [
        Metric("table_times", "table: times its size after loading", "factor", zheap_at_most(1.005, "1.00x"), ratio=False),
        Metric("index_times", "primary key: times its size after loading", "factor", zheap_at_most(1.005, "1.00x"), ratio=False),
        Metric("ended_times", "table after the transaction's end and VACUUM: times", "factor", ratio=False),
        Metric("disk", "on disk at its largest: table, index and undo file", "mb", ratio_at_most(1.0)),
        Metric("undo_peak", "undo in use when the transaction ends", "mb", ratio=False),
        Metric("undo_back", "time until undo is under 1 MB", "seconds", zheap_at_most(3.0, "3 s"), ratio=False),
        Metric("wal_per_transaction", "WAL per update", "bytes", ratio_at_most(1.0)),
        Metric("wal_without_images", "WAL per update without full-page images", "bytes", ratio_at_most(1.0)),
        Metric("cpu_us", "server CPU per update", "us", ratio_at_most(1.0)),
        Metric("tps", "updates per second", "number"),
        *LATENCY,
        Metric("scan_before", "full scan before the updates", "seconds"),
        Metric("scan_old", "full scan by the old snapshot", "seconds"),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
        Metric("nothing_lost", "every update is there", "yes", ALWAYS, ratio=False),
    ],
    "own": [
        Metric("table_times", "table: times its size after loading", "factor", ratio=False),
        Metric("index_times", "indexes: times their size after loading", "factor", ratio=False),
        Metric("ended_times", "table after the transaction's end and VACUUM: times", "factor", ratio=False),
        Metric("disk", "on disk at its largest: table, indexes and undo file", "mb"),
        Metric("undo_peak", "undo in use when the transaction ends", "mb", ratio=False),
        Metric("undo_back", "time until undo is under 1 MB", "seconds", ratio=False),
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes"),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("tps", "transactions per second", "number"),
        *LATENCY,
        Metric("scan_before", "full scan before the transactions", "seconds"),
        Metric("scan_old", "full scan by the old snapshot", "seconds"),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
        Metric("toast_times", "TOAST table: times its size after loading", "factor", ratio=False),
        Metric("toast_index", "its index at its largest", "mb"),
    ],
    "D": [
        Metric("toast_times", "TOAST table: times its size after loading", "factor", zheap_at_most(1.01, "1.01x"), ratio=False),
        Metric("toast_index", "its index at its largest", "mb", ratio_at_most(1.02)),
        Metric("alone_times", "table: times its size after loading", "factor", zheap_at_most(1.005, "1.00x"), ratio=False),
        Metric("index_times", "primary key: times", "factor", ratio=False),
        Metric("disk", "on disk at its largest: all of these and the undo file", "mb"),
        Metric("undo_peak", "undo in use when the transaction ends", "mb", ratio=False),
        Metric("undo_back", "time until undo is under 1 MB", "seconds", zheap_at_most(2.0, "2 s"), ratio=False),
        Metric("wal_per_transaction", "WAL per change", "bytes"),
        Metric("wal_without_images", "WAL per change without full-page images", "bytes", ratio_at_most(1.02)),
        Metric("cpu_us", "server CPU per change", "us"),
        Metric("tps", "changes per second", "number"),
        *LATENCY,
        Metric("scan_before", "full scan before the changes", "seconds"),
        Metric("scan_old", "full scan by the old snapshot", "seconds"),
        Metric("snapshot_kept", "the old snapshot reads the same documents", "yes", ALWAYS, ratio=False),
        Metric("nothing_lost", "every change is there", "yes", ALWAYS, ratio=False),
    ],
    "DQ": [
        Metric("table_times", "table: times its size at first", "factor", ratio_at_most(0.36)),
        Metric("index_times", "primary key: times its size at first", "factor"),
        Metric("ended_times", "table after the transaction's end and VACUUM: times", "factor"),
        Metric("backlog", "jobs that wait at the end", "number"),
        Metric("disk", "on disk at its largest: table, index and undo file", "mb"),
        Metric("undo_peak", "undo in use when the transaction ends", "mb", ratio=False),
        Metric("undo_back", "time until undo is under 1 MB", "seconds", zheap_at_most(3.0, "3 s"), ratio=False),
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes"),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("tps", "transactions per second", "number"),
        *LATENCY,
        Metric("scan_before", "full scan at first", "seconds"),
        Metric("scan_old", "full scan by the old snapshot", "seconds"),
        Metric("snapshot_kept", "the old snapshot reads the same jobs", "yes", ALWAYS, ratio=False),
        Metric("nothing_lost", "no job is lost", "yes", ALWAYS, ratio=False),
    ],
    "W1": [
        Metric("loaded_table", "accounts table after loading", "mb", ratio_at_most(0.82)),
        Metric("loaded_index", "its primary key after loading", "mb"),
        Metric("table_growth", "growth of the table", "percent", zheap_at_most(0.01, "1 %"), ratio=False),
        Metric("index_growth", "growth of the primary key", "percent", zheap_at_most(0.01, "1 %"), ratio=False),
        Metric("disk", "on disk at its largest: table, index and undo file", "mb"),
        Metric("undo_peak", "undo in use when the transaction ends", "mb", ratio=False),
        Metric("undo_back", "time until undo is under 16 MB", "seconds", zheap_at_most(3.0, "3 s"), ratio=False),
        Metric("tps", "transactions per second", "number", ratio_at_least(1.2)),
        Metric("tps_open", "transactions per second, first half of the time", "number"),
        Metric("tps_after", "transactions per second, second half", "number"),
        *LATENCY,
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes"),
        Metric("scan_before", "full scan before the updates", "seconds"),
        Metric("scan_old", "full scan by the old snapshot", "seconds"),
        Metric("scan_slowdown", "full scan by the old snapshot: slower by", "factor", zheap_at_most(2.0, "2"), ratio=False),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
    ],
    "W3": [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.05)),
        *LATENCY,
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes", ratio_at_most(1.0)),
        Metric("undo_per_transaction", "undo per transaction", "bytes", zheap_at_most(96, "96 B"), ratio=False),
        Metric("loaded_table", "accounts table after loading", "mb", ratio_at_most(0.82)),
        Metric("ended_table", "accounts table at the end", "mb"),
    ],
    "FK": [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.0)),
        *LATENCY,
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("sums_equal", "accounts, branches, tellers and history agree", "yes", ALWAYS, ratio=False),
    ],
    "W2": INDEXED + [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.4)),
        Metric("cpu_us", "server CPU per transaction", "us", ratio_at_most(0.60)),
    ] + ONE_CHANGES,
    "W2f": INDEXED + [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.2)),
        Metric("cpu_us", "server CPU per transaction", "us", ratio_at_most(0.72)),
    ] + ONE_CHANGES,
    "K": INDEXED + [
        Metric("tps", "transactions per second", "number"),
        Metric("cpu_us", "server CPU per transaction", "us", ratio_at_most(0.95)),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes", ratio_at_most(0.60)),
        Metric("keys_distinct", "no two rows have one key", "yes", ALWAYS, ratio=False),
        *ONE_CHANGES[1:],
    ],
    "W4": INDEXED + [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.0)),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes", ratio_at_most(0.40)),
        Metric("others_growth", "growth of the three indexes", "percent", zheap_at_most(0.0, "0"), ratio=False),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
    ],
    "W2s": INDEXED_STOCK + [
        Metric("others_growth", "growth of the five other indexes", "percent", ratio=False),
        Metric("changed_growth", "growth of the index that changes", "percent", ratio=False),
    ],
    "W4s": INDEXED_STOCK + [
        Metric("others_growth", "growth of the three indexes", "percent", ratio=False),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
    ],
    "W2L": ONE_CHANGES_LARGE,
    "W2Lf": ONE_CHANGES_LARGE,
    "W4L": INDEXED + [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.3)),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("others_growth", "growth of the three indexes", "percent", zheap_at_most(0.0, "0"), ratio=False),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
    ],
    "W5": INDEXED + [
        Metric("tps", "transactions per second", "number"),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes"),
        Metric("others_growth", "growth of the two indexes", "percent", zheap_at_most(0.0, "0"), ratio=False),
    ],
    "W5s": INDEXED + [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.15)),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes"),
        Metric("others_growth", "growth of the two indexes", "percent", zheap_at_most(0.0, "0"), ratio=False),
    ],
    "W7": [
        Metric("jobs", "jobs", "number"),
        Metric("backlog", "jobs that wait at the end", "number", zheap_at_most(10, "10"), ratio=False),
        Metric("claim_latency_ms", "latency of a claim, average", "ms"),
        Metric("claim_p50_ms", "latency of a claim, median", "ms"),
        Metric("claim_p99_ms", "latency of a claim, 99 % are below", "ms"),
        Metric("cpu_us", "server CPU per job", "us"),
        Metric("wal_per_transaction", "WAL per job", "bytes"),
        Metric("table_size", "table at the end", "mb"),
        Metric("changed_size", "index (status, id) at the end", "mb"),
        Metric("disk", "more on disk: table, indexes and undo file", "mb"),
    ],
    "W7o": [
        Metric("jobs", "jobs", "number"),
        Metric("backlog", "jobs that wait at the end", "number", zheap_at_most(10, "10"), ratio=False),
        Metric("claim", "one claim at the end", "seconds", zheap_at_most(0.0005, "0.5 ms")),
        Metric("claim_latency_ms", "latency of a claim, average", "ms"),
        Metric("claim_p50_ms", "latency of a claim, median", "ms"),
        Metric("claim_p99_ms", "latency of a claim, 99 % are below", "ms"),
        Metric("cpu_us", "server CPU per job", "us"),
        Metric("wal_per_transaction", "WAL per job", "bytes"),
        Metric("table_size", "table at the end", "mb"),
        Metric("changed_size", "index (status, id) at the end", "mb"),
        Metric("disk", "more on disk: table, indexes and undo file", "mb"),
    ],
    "W6": [
        Metric("tps", "transactions per second", "number", ratio_at_least(2.0)),
        *LATENCY,
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("table_growth_bytes", "growth of the table", "kb", NO_GROWTH, ratio=False),
        Metric("index_growth_bytes", "growth of the primary key", "kb", NO_GROWTH, ratio=False),
        Metric("undo_peak", "undo in use at the end", "mb", ratio=False),
        Metric("old_read", "the old snapshot reads the 4 rows", "seconds", zheap_at_most(0.05, "0.05 s")),
        Metric("undo_back", "time until undo is under 16 MB", "seconds", ratio=False),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
        Metric("nothing_lost", "every update is there", "yes", ALWAYS, ratio=False),
    ],
    "T": [
        Metric("tps", "transactions per second, alone", "number", ratio_at_least(1.0)),
        Metric("tps_beside", "transactions per second beside the snapshot", "number", ratio_at_least(1.3)),
        *LATENCY,
        Metric("latency_ms_beside", "latency beside the snapshot, average", "ms"),
        Metric("cpu_us", "server CPU per transaction, alone", "us"),
        Metric("cpu_us_beside", "server CPU per transaction beside the snapshot", "us"),
        Metric("wal_without_images", "WAL per transaction without full-page images, alone", "bytes"),
        Metric("wal_without_images_beside", "WAL per transaction without full-page images, beside it", "bytes"),
        Metric("loaded", "tables and indexes after loading", "mb"),
        Metric("growth", "growth of tables and indexes per transaction, alone", "bytes"),
        Metric("growth_beside", "growth of tables and indexes per transaction beside it", "bytes"),
        Metric("undo_peak", "undo in use when the snapshot ends", "mb", ratio=False),
        Metric("undo_back", "time until undo is under 16 MB", "seconds", ratio=False),
        Metric("old_read", "the old snapshot reads districts and warehouses", "seconds"),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
        Metric("consistent", "TPC-C's consistency conditions hold", "yes", ALWAYS, ratio=False),
    ],
    "W8": [
        Metric("copy", "COPY", "seconds", ratio_at_most(1.0)),
        Metric("build_index", "primary key built", "seconds"),
        Metric("loaded_table", "table after COPY", "mb", ratio_at_most(0.82)),
        Metric("scan", "SELECT sum(abalance), warm", "seconds", ratio_at_most(0.95)),
        Metric("select_tps", "select-only, transactions per second", "number", ratio_at_least(0.98)),
        Metric("big_update", "UPDATE of half the rows", "seconds"),
        Metric("rollback", "ROLLBACK of it", "seconds", zheap_at_most(0.02, "20 ms"), ratio=False),
        Metric("read_after_rollback", "another session reads all rows right after", "seconds"),
        Metric("old_rows_read", "another session sees the old rows after ROLLBACK", "yes", ALWAYS, ratio=False),
        Metric("undone", "time until the pages are undone", "seconds", ratio=False),
        Metric("delete", "DELETE of every other row", "seconds"),
        Metric("refill", "INSERT of as many again", "seconds"),
        Metric("refill_growth", "growth of the table by DELETE and INSERT", "percent", ratio=False),
        Metric("all_rows_there", "all rows are there", "yes", ALWAYS, ratio=False),
    ],
}


def show(value, form):
    """Returns a figure as text."""
    if value is None:
        return "-"
    if form == "mb":
        return f"{value / MB:.1f} MB"
    if form == "kb":
        return f"{value / 1024:.0f} kB"
    if form == "percent":
        return f"{value * 100:+.1f} %"
    if form == "seconds":
        return f"{value * 1000:.1f} ms" if value < 0.1 else f"{value:.2f} s"
    if form == "ms":
        return f"{value:.3f} ms"
    if form == "us":
        return f"{value:.0f} us"
    if form == "bytes":
        return f"{value:.0f} B"
    if form == "factor":
        return f"{value:.2f}x"
    if form == "yes":
        return "yes" if value == 1 else "NO"
    return f"{value:,.0f}"


def median(values, form):
    """Returns the median of the rounds; of form "yes": 1 if it is true in all rounds. None if a round has no figure."""
    if not values or any(v is None for v in values):
        return None
    if form == "yes":
        return min(int(v) for v in values)
    return statistics.median(values)


def spread(values):
    """Returns half the range in percent of the median, or None with fewer than two figures."""
    numbers = [v for v in values if v is not None]
    if len(numbers) < 2 or not statistics.median(numbers):
        return None
    return (max(numbers) - min(numbers)) / 2 / abs(statistics.median(numbers)) * 100


def judge(metric, values, reached, crowd):
    """Returns the verdict about a goal: "reached", "MISSED", or why it is not judged.

    values: the figures of the rounds, heap's and zheap's; reached: whether the medians reach the goal, None if unknown.
    """
    if reached is None or metric.form == "yes":
        return {True: "reached", False: "MISSED", None: "not measured"}[reached]
    if metric.form in TIMED and crowd.get("assertions"):
        return "not judged: built with assertions"
    rounds = {bool(metric.goal[1](a, b)) for a, b in zip(*values) if a is not None and b is not None and (a or not metric.ratio)}
    busy, few = (crowd.get("others") or 0) > TOO_BUSY, len(values[0]) < 3
    # Other processes slow down both sides. That can falsify a ratio, or make a figure miss a bound, but it cannot
    # make a figure reach a bound.
    feigned = few and metric.goal[0].startswith("ratio") if reached else True
    if metric.form in TIMED and (len(rounds) > 1 or busy and feigned):
        return "too noisy to judge"
    return "reached" if reached else "MISSED"


def summarize(workload, runs, names, crowd):
    """Returns the rows of a workload's table, as dicts of text and values.

    runs: {engine: figures of each round}; names: those of the engines, heap first; crowd: Crowd.figures().
    """
    rows = []
    for metric in METRICS[workload]:
        values = [[figures.get(metric.key) for figures in runs[name]] for name in names]
        heap, zheap = (median(v, metric.form) for v in values)
        if heap is None and zheap is None:
            continue
        ratio = zheap / heap if metric.ratio and heap and zheap is not None else None
        goal, verdict = "", ""
        if metric.goal:
            goal, reached = metric.goal[0], None
            if zheap is not None and (heap or not metric.ratio):
                reached = bool(metric.goal[1](heap, zheap))
            elif metric.key == "undo_back" and any(metric.key in figures for figures in runs[names[1]]):
                reached = False
            verdict = judge(metric, values, reached, crowd)
        spreads = [spread(v) for v in values] if metric.form != "yes" else [None, None]
        rows.append({
            "key": metric.key, "label": metric.label, "heap": show(heap, metric.form), "zheap": show(zheap, metric.form),
            "ratio": f"{ratio:.2f}" if ratio is not None else "", "goal": goal, "verdict": verdict, "form": metric.form,
            "better": metric.better(),
            "spread": " / ".join("-" if s is None else f"{s:.0f} %" for s in spreads) if any(s is not None for s in spreads) else "",
            "values": {"heap": heap, "zheap": zheap, "ratio": ratio},
        })
    return rows


class Table:
    """A table of text.

    left: numbers of the columns that are aligned at the left; mark: number of the column with verdicts, which are
    coloured, or None; notes: lines below the table.
    """

    def __init__(self, title, headings, lines, left, mark, notes=()):
        self.title, self.headings, self.lines = title, headings, lines
        self.left, self.mark, self.notes = left, mark, list(notes)


def workload_table(title, rows, names):
    """Returns the Table of one workload; rows are those of summarize()."""
    lines = [(row["label"], row["better"], row["heap"], row["zheap"], row["ratio"], row["goal"], row["verdict"], row["spread"])
             for row in rows]
    headings = ("", "better", names[0], names[1], f"{names[1]}/{names[0]}", "goal", "verdict", "spread +-")
    if not any(row["spread"] for row in rows):
        headings, lines = headings[:-1], [line[:-1] for line in lines]
    return Table(title, headings, lines, left={0, 5, 6}, mark=6)


def terminal_table(table):
    """Returns the table for a terminal, as one string."""
    everything = [table.headings] + table.lines
    widths = [max(len(line[i]) for line in everything) for i in range(len(table.headings))]
    lines = [table.title, ""]
    for number, line in enumerate(everything):
        lines.append("  ".join(cell.ljust(w) if i in table.left else cell.rjust(w)
                               for i, (cell, w) in enumerate(zip(line, widths))).rstrip())
        if number == 0:
            lines.append("  ".join("-" * w for w in widths))
    if table.notes:
        lines += [""] + table.notes
    return "\n".join(lines)


def save_json(path, results):
    """Writes the results to a file."""
    with open(path, "w", encoding="utf-8") as out:
        json.dump(results, out, indent=1, default=str)
        out.write("\n")
