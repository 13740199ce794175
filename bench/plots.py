"""The pictures: sizes and speed over time, and bars of one workload's figures."""

import os
import textwrap

import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  (the backend comes first)

from server import MB  # noqa: E402

COLORS = ("#c2571a", "#1f6fb2")
SHADE = "#e9e6da"


def finish(figure, folder, name):
    path = os.path.join(folder, name)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def plain(axes, title, unit):
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)


def shade_transaction(axes, figures):
    axes.axvspan(figures["opened"], figures["closed"], color=SHADE, zorder=0, label="transaction open")


def sizes_over_time(runs, names, folder):
    """Table, index and undo of the last round, the open transaction shaded."""
    shown = [("table", "pgbench_accounts"), ("index", "its primary key")]
    if any(sample["undo"] for sample in runs[names[1]][-1]["samples"]):
        shown.append(("undo", "undo in use"))
    figure, panels = pyplot.subplots(len(shown), 1, figsize=(9, 3 * len(shown)), sharex=True)
    shade_source = runs[names[1]][-1]
    for axes, (key, title) in zip(panels, shown):
        shade_transaction(axes, shade_source)
        for name, color in zip(names, COLORS):
            samples = runs[name][-1]["samples"]
            if key == "undo" and not any(s["undo"] for s in samples):
                continue
            axes.plot([s["t"] for s in samples], [s[key] / MB for s in samples], color=color, label=name, linewidth=2)
        plain(axes, title, "MB")
    panels[0].legend(frameon=False, loc="lower right")
    panels[-1].set_xlabel("seconds")
    return finish(figure, folder, "W1-sizes.png")


def speed_over_time(runs, names, folder):
    """Transactions per second of the last round."""
    figure, axes = pyplot.subplots(figsize=(9, 3.6))
    shade_transaction(axes, runs[names[1]][-1])
    for name, color in zip(names, COLORS):
        progress = runs[name][-1]["progress"]
        axes.plot([t for t, _ in progress], [tps for _, tps in progress], color=color, label=name, linewidth=2)
    plain(axes, "transactions per second", "tps")
    axes.set_xlabel("seconds")
    axes.legend(frameon=False, loc="lower right")
    return finish(figure, folder, "W1-tps.png")


def bars(rows, names, folder, name, keys):
    """One small panel per figure, a bar per engine; returns None if none is there."""
    chosen = [row for key in keys for row in rows if row["key"] == key
              and row["values"]["heap"] is not None and row["values"]["zheap"] is not None]
    if not chosen:
        return None
    columns = min(4, len(chosen))
    lines = -(-len(chosen) // columns)
    figure, panels = pyplot.subplots(lines, columns, figsize=(2.6 * columns, 2.8 * lines), squeeze=False)
    for number, axes in enumerate(panels.flat):
        if number >= len(chosen):
            axes.axis("off")
            continue
        row = chosen[number]
        values = [row["values"]["heap"], row["values"]["zheap"]]
        drawn = axes.bar(names, values, color=COLORS, width=0.6)
        axes.bar_label(drawn, labels=[row["heap"], row["zheap"]], fontsize=8, padding=2)
        plain(axes, textwrap.fill(row["label"].strip(), 26), "")
        axes.set_ylim(top=max(values + [0]) * 1.18 or 1)
        axes.set_yticks([])
    return finish(figure, folder, name)


# Of W2, W4, W5 and W7.
INDEXED_BARS = ["tps", "cpu_us", "wal_without_images", "disk"]
BARS = {
    "W1": ("loaded_table", "loaded_index", "wal_per_transaction", "wal_without_images"),
    "W3": ("tps", "wal_per_transaction", "wal_without_images", "cpu_us"),
    "FK": ("tps", "wal_per_transaction", "cpu_us"),
    "W6": ("tps", "old_read", "wal_per_transaction", "table_growth_bytes"),
    "W8": ("copy", "loaded_table", "scan", "select_tps", "big_update", "delete", "refill", "refill_growth"),
}


def ratios(results, limit, names, folder):
    """A point for each operation at the ratio of its CPU, the dearest first; what cannot be judged is pale."""
    shown = sorted((r for r in results if r["cpu_ratio"]), key=lambda r: r["cpu_ratio"])
    if not shown:
        return None
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.19 * len(shown)))
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


def over_clients(load, title, points, names, folder):
    """Two panels: transactions per second and CPU per transaction over the number of clients."""
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.6))
    clients = list(points)
    for axes, key, label, unit in zip(panels, ("tps", "cpu_us"),
                                      (f"{title}: transactions per second", "server CPU per transaction"), ("tps", "us")):
        for name, color in zip(names, COLORS):
            values = [points[n][name][key] for n in clients]
            if None not in values:
                axes.plot(clients, values, color=color, label=name, linewidth=2, marker="o")
        plain(axes, label, unit)
        axes.set_xscale("log", base=2)
        axes.set_xticks(clients, [str(n) for n in clients])
        axes.set_xlabel("clients")
    panels[0].legend(frameon=False, loc="best")
    return finish(figure, folder, f"scaling-{load}.png")


def draw(workload, runs, rows, names, folder):
    """All pictures of one workload; returns their paths."""
    paths = []
    if workload == "W1":
        paths += [sizes_over_time(runs, names, folder), speed_over_time(runs, names, folder)]
    paths.append(bars(rows, names, folder, f"{workload}-figures.png", BARS.get(workload, INDEXED_BARS)))
    return [path for path in paths if path]
