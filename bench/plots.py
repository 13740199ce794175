"""Draws the plots as SVG, with pygal: sizes over updates or time, bars of figures, ratios of operations.

Colours are variables of the page's style sheet, which has others for a dark screen.
"""

import html
import math
import re

import pygal
from pygal.style import Style
from pygal.util import split_title

from server import MB

INK, SOFT, LINE = "var(--ink)", "var(--soft)", "var(--line)"
COLORS = ("var(--heap)", "var(--zheap)")
FONT = "system-ui, sans-serif"
TITLE_SIZE = 16

SIZE = {"width": 480, "height": 320}            # two fit beside each other on a wide screen
SMALL = {"width": 240, "height": 290}
# heap's line is broad and drawn first, so that both can be seen where they are equal
STROKES = ({"width": 6, "linecap": "round"}, {"width": 2.5})


def style(colors=COLORS, label=13):
    """Returns the style of all plots."""
    return Style(background="transparent", plot_background="transparent", foreground=INK, foreground_strong=INK,
                 foreground_subtle=SOFT, colors=colors, opacity="1", stroke_opacity="1", opacity_hover="1", stroke_opacity_hover="1",
                 font_family=FONT, title_font_size=TITLE_SIZE, legend_font_size=14, label_font_size=label, major_label_font_size=label,
                 value_font_size=14, value_colors=(INK,) * len(colors), transition="0s")


def common(title, colors=COLORS, label=13):
    """Returns the options of all plots; colors are those of their series, one each.

    pygal makes no room for a legend with more columns than there are series.
    """
    return {"title": title, "style": style(colors, label), "js": [],
            "disable_xml_declaration": True, "show_dots": False, "margin": 10, "legend_at_bottom": True, "legend_at_bottom_columns": len(colors), "truncate_legend": -1, "legend_box_size": 14}


def text_of(chart, words, kind="wide"):
    """Returns the SVG of a chart, without scripts; words are its description for screen readers. kind: its class."""
    drawn = re.sub(r"<script.*?</script>|<!--.*?-->|<title>.*?</title>", "", chart.render(is_unicode=True), flags=re.S)
    return drawn.replace('class="pygal-chart"', f'class="{kind}"', 1).replace("<svg ", f"<svg role='img' aria-label='{html.escape(words, quote=True)}' ", 1)


def round_steps(top, most=5):
    """Returns 0 and round numbers up to the first one that is not below top."""
    unit = 10 ** math.floor(math.log10(top)) if top > 0 else 1
    step = next(unit * f for f in (0.1, 0.2, 0.25, 0.5, 1, 2, 5) if top <= unit * f * most)
    return [step * n for n in range(math.ceil(round(top / step, 6)) + 1)] if top > 0 else [0, 1]


def number(value):
    """Returns a number of an axis."""
    return f"{value:,.10g}"


def lines(title, names, series, top, x_title, shaded=None, x_labels=None, x_format=number, dots=False):
    """Returns the SVG of curves over numbers.

    series: a list of points for each engine; top: the greatest value of all plots that are compared; shaded: begin, end
    and name of a stretch of x.
    """
    colors = (LINE,) + COLORS if shaded else COLORS
    ticks = round_steps(top)
    right = max([x for points in series for x, _ in points] or [1])
    labels = x_labels or [{"value": x, "label": x_format(x)} for x in round_steps(right) if x <= right]
    chart = pygal.XY(**{**common(title, colors), **SIZE}, range=(0, ticks[-1]), margin_right=30, include_x_axis=True, x_title=x_title,
                     allow_interruptions=True)
    chart.y_labels = [{"value": y, "label": number(y)} for y in ticks]
    chart.x_labels = labels
    if shaded:
        begin, end, name = shaded
        chart.add(name, [(begin, 0), (begin, ticks[-1]), (end, ticks[-1]), (end, 0)], fill=True, stroke_style={"width": 0})
    for name, points, stroke in zip(names, series, STROKES):
        chart.add(name, points, stroke_style=stroke, show_dots=dots, dots_size=3)
    ends = ", ".join(f"{name} {points[-1][1]:.3g} at the end" for name, points in zip(names, series) if points)
    return text_of(chart, f"{title}: {ends}")


def with_gaps(points, longest=1.5):
    """Returns the points with a None between two that are further apart than longest.

    No line is drawn there: the load paused.
    """
    shown = []
    for point in points:
        if shown and point[0] - shown[-1][0] > longest:
            shown.append(None)
        shown.append(point)
    return [(None, None) if point is None else point for point in shown]


def on_disk(sample):
    """Returns the bytes of table, index and undo file."""
    return sample["table"] + sample["index"] + sample["undo_file"]


DISK = ("table, indexes and undo file, MB", on_disk)
UNDO = ("undo in use, MB", lambda s: s["undo"])
SIZES = (("table, MB", lambda s: s["table"]), DISK, ("its indexes, MB", lambda s: s["index"]))
# Of documents, and of what is small beside them.
DOCUMENTS = (("TOAST table, MB", lambda s: s["toast"]), DISK, UNDO)
POINTERS = (("index of the TOAST table, MB", lambda s: s["toast_index"]), ("table without its TOAST table, MB", lambda s: s["alone"]))


def sizes(runs, names, x_key, x_title, x_format, shaded=None, shown=SIZES):
    """Returns plots of the sizes in the last round, all with the same scale."""
    samples = [runs[name][-1]["samples"] for name in names]
    top = max(size(sample) for _, size in shown for side in samples for sample in side) / MB
    return [lines(title, names, [[(s[x_key], size(s) / MB) for s in side] for side in samples], top, x_title,
                  shaded=shaded, x_format=x_format) for title, size in shown]


def over_time(runs, names):
    """Returns the plots of W1: sizes and transactions per second, over time."""
    last = runs[names[1]][-1]
    shaded = (last["opened"], last["closed"], "transaction open")
    progress = [with_gaps(runs[name][-1]["progress"]) for name in names]
    top = max([tps for points in progress for _, tps in points if tps is not None] or [1])
    return sizes(runs, names, "t", "seconds", number, shaded) + [
        lines("transactions per second", names, progress, top, "seconds", shaded=shaded)]


def over_updates(runs, names, what="updates", shown=SIZES):
    """Returns the plots of W0: sizes over the number of updates."""
    return sizes(runs, names, "updates", what, lambda x: f"{x:,.0f}", shown=shown)


def over_changes(runs, names):
    """Returns the plots of D."""
    return over_updates(runs, names, "changes", DOCUMENTS) + over_updates(runs, names, "changes", POINTERS)


def over_turns(runs, names):
    """Returns the plots of DQ."""
    return over_updates(runs, names, "transactions", SIZES + (UNDO,))


def bars(rows, names, keys):
    """Returns a small plot for each of the figures, with a bar for each engine."""
    drawn = []
    found = [(row, [row["values"]["heap"], row["values"]["zheap"]]) for key in keys for row in rows if row["key"] == key]
    found = [(row, values) for row, values in found if None not in values]
    titles = [split_title(f"{row['label']}\xa0{row['better']}", SMALL["width"], TITLE_SIZE) for row, _ in found]
    # WAL with and without page images has one scale, and all titles as many lines, so that bars begin at one height
    wal = max((max(values) for row, values in found if row["key"].startswith("wal_")), default=0)
    for (row, values), title in zip(found, titles):
        title = "\n".join(title + [""] * (max(map(len, titles)) - len(title)))
        top = wal if row["key"].startswith("wal_") else max(values + [0])
        chart = pygal.Bar(**{**common(title), **SMALL}, print_values=True, print_values_position="top",
                          show_y_labels=False, show_y_guides=False, range=(0, top * 1.1 or 1), spacing=4)
        chart.x_labels = [""]
        for name, value, shown in zip(names, values, (row["heap"], row["zheap"])):
            chart.add(name, [{"value": value, "formatter": lambda _, shown=shown: shown}])
        drawn.append(text_of(chart, f"{row['label']}: {names[0]} {row['heap']}, {names[1]} {row['zheap']}", "small"))
    return drawn


# By workload: the figures drawn as bars. INDEXED_BARS: those of W2, W4, W5 and W7.
INDEXED_BARS = ["tps", "p99_ms", "cpu_us", "wal_without_images", "wal_per_transaction", "disk"]
BARS = {
    "W0": ("ended_times", "wal_per_transaction", "wal_without_images", "cpu_us"),
    "own": ("ended_times", "wal_per_transaction", "wal_without_images", "cpu_us"),
    "D": ("wal_per_transaction", "wal_without_images", "cpu_us", "scan_old"),
    "DQ": ("wal_per_transaction", "wal_without_images", "cpu_us", "scan_old"),
    "W1": ("disk", "p99_ms", "wal_per_transaction", "wal_without_images"),
    "W3": ("tps", "wal_per_transaction", "wal_without_images", "cpu_us"),
    "FK": ("tps", "wal_per_transaction", "cpu_us"),
    "W6": ("tps", "old_read", "wal_per_transaction", "table_growth_bytes"),
    "T": ("tps", "tps_beside", "cpu_us", "cpu_us_beside", "wal_without_images", "growth_beside"),
    "W8": ("copy", "loaded_table", "scan", "select_tps", "big_update", "delete", "refill", "refill_growth"),
}


def ratios(results, limit, names):
    """Returns a plot with a point for each operation at the ratio of its CPU, the greatest on top; an empty list if there are none.

    The line through a point is the range of the rounds. Operations that are not judged are pale.
    """
    shown = sorted((r for r in results if r["cpu_ratio"]), key=lambda r: r["cpu_ratio"])
    if not shown:
        return []
    colors = {"above": COLORS[0], "noisy": SOFT, "short": SOFT}
    chart = pygal.XY(**common(f"CPU of {names[1]} / {names[0]}: median and range of the rounds",
                              (SOFT,) + tuple(colors.get(r["verdict"], COLORS[1]) for r in shown), 10),
                     width=560, height=110 + 15 * len(shown), show_legend=False, range=(-1, len(shown)))
    chart.add("limit", [(math.log10(limit), -1), (math.log10(limit), len(shown))], stroke_style={"width": 1})
    for place, result in enumerate(shown):
        pairs = [b["cpu"] / a["cpu"] for a, b in zip(*(result["rounds"][name] for name in names)) if a["cpu"]]
        points = [(math.log10(x), place) for x in (min(pairs), result["cpu_ratio"], max(pairs))]
        chart.add(result["name"], [{"value": point, "node": {"r": 4 if i == 1 else 0}} for i, point in enumerate(points)],
                  show_dots=True, stroke_style={"width": 1.5})
    low, high = shown[0]["cpu_ratio"] / 2, shown[-1]["cpu_ratio"] * 2
    chart.x_labels = [{"value": math.log10(t), "label": f"{t:g}"} for t in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if low <= t <= high]
    chart.y_labels = [{"value": place, "label": result["name"]} for place, result in enumerate(shown)]
    return [text_of(chart, f"CPU of {names[1]} divided by that of {names[0]}, for {len(shown)} operations")]


def over_clients(load, points, names):
    """Returns plots of transactions per second and of CPU per transaction over the number of clients."""
    drawn = []
    for key, title in (("tps", "transactions per second"), ("cpu_us", "server CPU per transaction, us")):
        curves = [[(math.log2(n), points[n][name][key]) for n in points if points[n][name][key] is not None] for name in names]
        top = max([value for curve in curves for _, value in curve] or [0])
        if top:
            drawn.append(lines(f"{load}: {title}", names, curves, top, "clients", dots=True,
                               x_labels=[{"value": math.log2(n), "label": str(n)} for n in points]))
    return drawn


def draw(workload, runs, rows, names):
    """Returns all plots of one workload."""
    curves = {"W0": over_updates, "own": over_updates, "D": over_changes, "DQ": over_turns, "W1": over_time}.get(workload)
    return (curves(runs, names) if curves else []) + bars(rows, names, BARS.get(workload, INDEXED_BARS))
