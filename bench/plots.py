"""Draws the plots: sizes and speed over time or clients, bars of figures, ratios of operations."""

import os
import textwrap

import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend comes first)

from server import MB  # noqa: E402

COLORS = ("#c2571a", "#1f6fb2")
SHADE = "#e9e6da"

SIZE = (5.2, 3.2)               # of a picture in inches; two fit beside each other on a wide screen
# heap's line is broad and drawn first, so that both can be seen where they are equal
LINES = ({"color": COLORS[0], "linewidth": 5, "alpha": 0.55}, {"color": COLORS[1], "linewidth": 1.8})


def finish(figure, folder, name):
    """Writes a figure to a file; returns its path."""
    path = os.path.join(folder, name)
    figure.tight_layout()
    figure.savefig(path, dpi=96)
    pyplot.close(figure)
    return path


def plain(axes, title, unit):
    """Sets title and unit, and the style that all plots have."""
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_ylabel(unit)
    axes.margins(y=0.1)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)


def shade_transaction(axes, figures):
    """Shades the time in which the long transaction of W1 was open."""
    axes.axvspan(figures["opened"], figures["closed"], color=SHADE, zorder=0, label="transaction open")


def with_gaps(points, longest=1.5):
    """Returns lists of x and of y in which a NaN separates points that are further apart than longest.

    No line is drawn there: the load paused.
    """
    xs, ys = [], []
    for x, y in points:
        if xs and x - xs[-1] > longest:
            xs.append(x)
            ys.append(float("nan"))
        xs.append(x)
        ys.append(y)
    return xs, ys


def sizes_over_time(runs, names, folder):
    """Draws the sizes of table, index and undo, and of all on disk, in the last round of W1; returns paths."""
    shown = [("disk", "on disk: table, index and undo file"), ("table", "table pgbench_accounts"), ("index", "its primary key")]
    if any(sample["undo"] for sample in runs[names[1]][-1]["samples"]):
        shown.append(("undo", "undo in use"))
    paths = []
    for key, title in shown:
        figure, axes = pyplot.subplots(figsize=SIZE)
        shade_transaction(axes, runs[names[1]][-1])
        for name, line in zip(names, LINES):
            samples = [dict(s, disk=s["table"] + s["index"] + s["undo_file"]) for s in runs[name][-1]["samples"]]
            if key != "undo" or any(s["undo"] for s in samples):
                axes.plot([s["t"] for s in samples], [s[key] / MB for s in samples], label=name, **line)
        plain(axes, title, "MB")
        axes.legend(frameon=False, loc="lower right")
        axes.set_xlabel("seconds")
        paths.append(finish(figure, folder, f"W1-{key}.png"))
    return paths


def speed_over_time(runs, names, folder):
    """Draws transactions per second in the last round of W1; returns the path."""
    figure, axes = pyplot.subplots(figsize=SIZE)
    shade_transaction(axes, runs[names[1]][-1])
    for name, line in zip(names, LINES):
        axes.plot(*with_gaps(runs[name][-1]["progress"]), label=name, **line)
    plain(axes, "transactions per second", "tps")
    axes.set_xlabel("seconds")
    axes.legend(frameon=False, loc="lower right")
    return finish(figure, folder, "W1-tps.png")


def bars(workload, rows, names, folder, keys):
    """Draws a small picture for each of the figures, with a bar for each engine; returns paths."""
    paths = []
    for row in [row for key in keys for row in rows if row["key"] == key]:
        values = [row["values"]["heap"], row["values"]["zheap"]]
        if None in values:
            continue
        figure, axes = pyplot.subplots(figsize=(2.5, 2.9))
        drawn = axes.bar(names, values, color=COLORS, width=0.6)
        axes.bar_label(drawn, labels=[row["heap"], row["zheap"]], fontsize=8, padding=2)
        plain(axes, textwrap.fill(f"{row['label']} {row['better']}", 26), "")
        axes.set_ylim(top=max(values + [0]) * 1.18 or 1)
        axes.set_yticks([])
        paths.append(finish(figure, folder, f"{workload}-bar-{row['key']}.png"))
    return paths


# By workload: the figures drawn as bars. INDEXED_BARS: those of W2, W4, W5 and W7.
INDEXED_BARS = ["tps", "p99_ms", "cpu_us", "wal_without_images", "wal_per_transaction", "disk"]
BARS = {
    "W1": ("disk", "p99_ms", "wal_per_transaction", "wal_without_images"),
    "W3": ("tps", "wal_per_transaction", "wal_without_images", "cpu_us"),
    "FK": ("tps", "wal_per_transaction", "cpu_us"),
    "W6": ("tps", "old_read", "wal_per_transaction", "table_growth_bytes"),
    "W8": ("copy", "loaded_table", "scan", "select_tps", "big_update", "delete", "refill", "refill_growth"),
}


def ratios(results, limit, names, folder):
    """Draws a point for each operation at the ratio of its CPU, the greatest on top; returns the path, or None.

    Operations that are not judged are pale.
    """
    shown = sorted((r for r in results if r["cpu_ratio"]), key=lambda r: r["cpu_ratio"])
    if not shown:
        return None
    figure, axes = pyplot.subplots(figsize=(5.4, 1 + 0.19 * len(shown)))
    for place, result in enumerate(shown):
        color = COLORS[0] if result["verdict"] == "above" else COLORS[1]
        pairs = [b["cpu"] / a["cpu"] for a, b in zip(*(result["rounds"][name] for name in names)) if a["cpu"]]
        pale = 0.35 if result["verdict"] in ("noisy", "short") else 1
        axes.plot([min(pairs), max(pairs)], [place, place], color=color, alpha=pale, linewidth=1)
        axes.plot([result["cpu_ratio"]], [place], color=color, alpha=pale, marker="o", markersize=4)
    axes.axvline(limit, color="#999999", linewidth=1)
    axes.set_xscale("log")
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if
             shown[0]["cpu_ratio"] / 2 <= t <= shown[-1]["cpu_ratio"] * 2]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.set_xticks([], minor=True)
    axes.set_yticks(range(len(shown)), [r["name"] for r in shown], fontsize=7)
    axes.set_ylim(-1, len(shown))
    axes.set_title(f"CPU of {names[1]} / {names[0]}, median and range of the rounds", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#eeeeee")
    return finish(figure, folder, "ops-ratios.png")


def over_clients(load, points, names, folder):
    """Draws transactions per second and CPU per transaction over the number of clients; returns paths."""
    clients, paths = list(points), []
    for key, label, unit in (("tps", "transactions per second", "tps"), ("cpu_us", "server CPU per transaction", "us")):
        figure, axes = pyplot.subplots(figsize=SIZE)
        for name, line in zip(names, LINES):
            values = [points[n][name][key] for n in clients]
            if None not in values:
                axes.plot(clients, values, label=name, marker="o", **line)
        plain(axes, f"{load}: {label}", unit)
        axes.set_xscale("log", base=2)
        axes.set_xticks(clients, [str(n) for n in clients])
        axes.set_xlabel("clients")
        axes.legend(frameon=False, loc="best")
        paths.append(finish(figure, folder, f"scaling-{load}-{key}.png"))
    return paths


def draw(workload, runs, rows, names, folder):
    """Draws all pictures of one workload; returns their paths."""
    paths = []
    if workload == "W1":
        paths += sizes_over_time(runs, names, folder) + [speed_over_time(runs, names, folder)]
    return paths + bars(workload, rows, names, folder, BARS.get(workload, INDEXED_BARS))
