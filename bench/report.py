"""From figures to words: medians, ratios, what was asked; terminal, JSON, HTML."""

import base64
import html
import json
import os
import statistics

from server import MB


class Metric:
    """One line of the table: a key of a workload's figures and how to show it.

    asked is a pair: the words, and a test of (heap, zheap) that says whether the
    figure was reached. Figures without it are shown for orientation.
    """

    def __init__(self, key, label, form, asked=None, ratio=True):
        self.key, self.label, self.form, self.asked, self.ratio = key, label, form, asked, ratio


def ratio_at_most(limit):
    return (f"ratio <= {limit}", lambda heap, zheap: zheap / heap <= limit)


def ratio_at_least(limit):
    return (f"ratio >= {limit}", lambda heap, zheap: zheap / heap >= limit)


def zheap_at_most(limit, words):
    return (f"zheap <= {words}", lambda heap, zheap: zheap <= limit)


ALWAYS = ("yes", lambda heap, zheap: zheap == 1)


def no_growth(words="none"):
    return (words, lambda heap, zheap: zheap <= 0)


# What W2, W4 and W5 have in common.
INDEXED = [
    Metric("latency_ms", "latency", "ms"),
    Metric("wal_per_transaction", "WAL per transaction", "bytes"),
    Metric("table_growth", "growth of the table", "percent", zheap_at_most(0.0, "0"), ratio=False),
    Metric("loaded", "on disk after loading: table, indexes and undo file", "mb"),
    Metric("disk", "on disk at the end", "mb"),
]

METRICS = {
    "W1": [
        Metric("loaded_table", "accounts table after loading", "mb", ratio_at_most(0.82)),
        Metric("loaded_index", "its primary key after loading", "mb"),
        Metric("table_growth", "growth of the table", "percent", zheap_at_most(0.01, "1 %"), ratio=False),
        Metric("index_growth", "growth of the primary key", "percent", zheap_at_most(0.01, "1 %"), ratio=False),
        Metric("undo_peak", "undo in use when the transaction ends", "mb", ratio=False),
        Metric("undo_back", "time until undo is under 16 MB", "seconds", zheap_at_most(3.0, "3 s"), ratio=False),
        Metric("tps", "transactions per second", "number", ratio_at_least(1.2)),
        Metric("tps_open", "  in the first half of the time", "number"),
        Metric("tps_after", "  in the second half", "number"),
        Metric("latency_ms", "latency", "ms"),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("wal_without_images", "  without full-page images", "bytes"),
        Metric("scan_before", "full scan before the updates", "seconds"),
        Metric("scan_old", "full scan by the old snapshot", "seconds"),
        Metric("scan_slowdown", "  slower by a factor of", "factor", zheap_at_most(2.0, "2"), ratio=False),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
    ],
    "W3": [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.05)),
        Metric("latency_ms", "latency", "ms"),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("wal_without_images", "  without full-page images", "bytes", ratio_at_most(1.0)),
        Metric("undo_per_transaction", "undo per transaction", "bytes", zheap_at_most(96, "96 B"), ratio=False),
        Metric("loaded_table", "accounts table after loading", "mb", ratio_at_most(0.82)),
        Metric("ended_table", "accounts table at the end", "mb"),
    ],
    "FK": [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.0)),
        Metric("latency_ms", "latency", "ms"),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("sums_equal", "accounts, branches, tellers and history agree", "yes", ALWAYS, ratio=False),
    ],
    "W2": INDEXED + [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.4)),
        Metric("cpu_us", "server CPU per transaction", "us", ratio_at_most(0.60)),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes", ratio_at_most(0.40)),
        Metric("others_growth", "growth of the five other indexes", "percent", zheap_at_most(0.0, "0"), ratio=False),
        Metric("changed_growth", "growth of the index that changes", "percent", ratio=False),
        Metric("entries_per_row", "entries per row in the index that changes, right after", "factor", ratio=False),
    ],
    "W2f": INDEXED + [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.2)),
        Metric("cpu_us", "server CPU per transaction", "us", ratio_at_most(0.72)),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes", ratio_at_most(0.40)),
        Metric("others_growth", "growth of the five other indexes", "percent", zheap_at_most(0.0, "0"), ratio=False),
        Metric("changed_growth", "growth of the index that changes", "percent", ratio=False),
        Metric("entries_per_row", "entries per row in the index that changes, right after", "factor", ratio=False),
    ],
    "W4": INDEXED + [
        Metric("tps", "transactions per second", "number", ratio_at_least(1.0)),
        Metric("cpu_us", "server CPU per transaction", "us"),
        Metric("wal_without_images", "WAL per transaction without full-page images", "bytes", ratio_at_most(0.40)),
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
        Metric("claim", "one claim at the end", "seconds", zheap_at_most(0.0005, "0.5 ms")),
        Metric("claim_latency_ms", "latency of a claim", "ms"),
        Metric("cpu_us", "server CPU per job", "us"),
        Metric("wal_per_transaction", "WAL per job", "bytes"),
        Metric("table_size", "table at the end", "mb"),
        Metric("changed_size", "index (status, id) at the end", "mb"),
        Metric("disk", "more on disk: table, indexes and undo file", "mb"),
    ],
    "W6": [
        Metric("tps", "transactions per second", "number", ratio_at_least(2.0)),
        Metric("latency_ms", "latency", "ms"),
        Metric("wal_per_transaction", "WAL per transaction", "bytes"),
        Metric("table_growth_bytes", "growth of the table", "kb", no_growth(), ratio=False),
        Metric("index_growth_bytes", "growth of the primary key", "kb", no_growth(), ratio=False),
        Metric("undo_peak", "undo in use at the end", "mb", ratio=False),
        Metric("old_read", "the old snapshot reads the 4 rows", "seconds", zheap_at_most(0.05, "0.05 s")),
        Metric("undo_back", "time until undo is under 16 MB", "seconds", ratio=False),
        Metric("snapshot_kept", "the old snapshot reads the same rows", "yes", ALWAYS, ratio=False),
        Metric("nothing_lost", "every update is there", "yes", ALWAYS, ratio=False),
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
        Metric("old_rows_read", "  and sees the old ones", "yes", ALWAYS, ratio=False),
        Metric("undone", "time until the pages are undone", "seconds", ratio=False),
        Metric("delete", "DELETE of every other row", "seconds"),
        Metric("refill", "INSERT of as many again", "seconds"),
        Metric("refill_growth", "  growth of the table by that", "percent", ratio=False),
        Metric("all_rows_there", "all rows are there", "yes", ALWAYS, ratio=False),
    ],
}


def show(value, form):
    """A figure as text."""
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
    """Median; a yes is a yes only if every round said so; None if a round has none."""
    if not values or any(v is None for v in values):
        return None
    if form == "yes":
        return min(int(v) for v in values)
    return statistics.median(values)


def spread(values):
    """Half the range around the median, in percent of it; None with one round."""
    numbers = [v for v in values if v is not None]
    if len(numbers) < 2 or not statistics.median(numbers):
        return None
    return (max(numbers) - min(numbers)) / 2 / abs(statistics.median(numbers)) * 100


def summarize(workload, runs, names):
    """Rows of the table: dicts of text, plus reached = True, False or None.

    runs maps an engine's name to its list of figures, one per round; names are
    (heap, the other).
    """
    rows = []
    for metric in METRICS[workload]:
        values = [[figures.get(metric.key) for figures in runs[name]] for name in names]
        heap, zheap = (median(v, metric.form) for v in values)
        if heap is None and zheap is None:
            continue
        ratio = zheap / heap if metric.ratio and heap and zheap is not None else None
        asked, reached = "", None
        if metric.asked:
            asked = metric.asked[0]
            if zheap is not None and not (metric.ratio and heap is None):
                reached = bool(metric.asked[1](heap, zheap))
            elif any(metric.key in figures for figures in runs[names[1]]):
                reached = False if metric.key == "undo_back" else None
        spreads = [spread(v) for v in values] if metric.form != "yes" else [None, None]
        rows.append({
            "key": metric.key, "label": metric.label, "heap": show(heap, metric.form), "zheap": show(zheap, metric.form),
            "ratio": f"{ratio:.2f}" if ratio is not None else "", "asked": asked, "reached": reached,
            "spread": " / ".join("-" if s is None else f"{s:.0f} %" for s in spreads) if any(s is not None for s in spreads) else "",
            "values": {"heap": heap, "zheap": zheap, "ratio": ratio},
        })
    return rows


class Table:
    """What is shown: cells of text under headings.

    left are the numbers of the columns that begin at the left, mark that of the
    one whose words are coloured, notes lines below the table.
    """

    def __init__(self, title, headings, lines, left, mark, notes=()):
        self.title, self.headings, self.lines = title, headings, lines
        self.left, self.mark, self.notes = left, mark, list(notes)


def workload_table(title, rows, names):
    """The table of one workload from what summarize() gives."""
    reached = {True: "reached", False: "MISSED", None: ""}
    lines = [(row["label"], row["heap"], row["zheap"], row["ratio"], row["asked"], reached[row["reached"]], row["spread"])
             for row in rows]
    headings = ("", names[0], names[1], f"{names[1]}/{names[0]}", "asked", "", "spread +-")
    if not any(row["spread"] for row in rows):
        headings, lines = headings[:-1], [line[:-1] for line in lines]
    return Table(title, headings, lines, left={0, 4, 5}, mark=5)


def terminal_table(table):
    """The table for a terminal, as one string."""
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
    with open(path, "w", encoding="utf-8") as out:
        json.dump(results, out, indent=1, default=str)
        out.write("\n")


STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1000px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;border-bottom:1px solid #ddd;text-align:right}
.left{text-align:left}.reached{color:#18794e}.MISSED,.ABOVE{color:#b3261e;font-weight:600}.too{color:#8a6d00}
img{max-width:100%}dl{display:grid;grid-template-columns:max-content 1fr;gap:.2em 1em}dt{color:#666}dd{margin:0}
pre{background:#f6f6f6;padding:1em;overflow:auto}"""


def html_table(table):
    def cell(kind, number, text, name=""):
        classes = [c for c in ("left" if number in table.left else "", name) if c]
        return f"<{kind} class='{' '.join(classes)}'>{html.escape(text)}</{kind}>"

    lines = ["".join(cell("th", i, text) for i, text in enumerate(table.headings))]
    for line in table.lines:
        # "MISSED" and "ABOVE 1.1" are classes by their first word
        lines.append("".join(cell("td", i, text, text.split(" ")[0] if i == table.mark else "")
                             for i, text in enumerate(line)))
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def save_html(path, results, tables, plots, names):
    """One page with everything in it: tables, pictures, conditions."""
    out = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
           f"<title>{names[0]} and {names[1]}, side by side</title><style>{STYLE}</style>",
           f"<h1>{names[0]} and {names[1]}, side by side</h1>"]
    facts = {"when": results["when"], "server": results["server"]["version"],
             "machine": "{cpu}, {cores} cores, {memory_mb} MB, Linux {kernel}".format(**results["machine"])}
    facts["command"] = results["command"]
    facts.update(results["options"])
    out.append("<dl>" + "".join(f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(str(v))}</dd>" for k, v in facts.items()) + "</dl>")
    for workload, table in tables.items():
        out.append(f"<h2>{html.escape(table.title)}</h2>" + html_table(table))
        out += [f"<p>{html.escape(note)}</p>" for note in table.notes]
        for picture in plots.get(workload, []):
            with open(picture, "rb") as image:
                data = base64.b64encode(image.read()).decode("ascii")
            out.append(f"<p><img alt='{html.escape(os.path.basename(picture))}' src='data:image/png;base64,{data}'></p>")
    settings = "\n".join(f"{k} = {v}" for k, v in sorted(results["server"]["settings"].items()))
    out.append(f"<h2>Settings of the server</h2><pre>{html.escape(settings)}</pre></html>")
    with open(path, "w", encoding="utf-8") as page:
        page.write("\n".join(out))
