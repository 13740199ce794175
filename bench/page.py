"""Writes the HTML page of a run: a verdict, then each workload with its goals, figures and plots."""

import base64
import html
import os

from questions import NONE, QUESTIONS

STYLE = """
:root{--ink:#1d2430;--soft:#5c6675;--line:#dfe3e8;--good:#146c43;--bad:#b3261e;--open:#7a5b00}
*{box-sizing:border-box}
body{font:16px/1.55 system-ui,sans-serif;max-width:1080px;margin:0 auto;padding:1.5em 1em 4em;color:var(--ink);background:#fff}
h1{font-size:1.5em;line-height:1.25;margin:0 0 .6em}h2{font-size:1.2em;margin:2.4em 0 .4em;padding-top:1em;border-top:2px solid var(--line)}
p{margin:.5em 0;max-width:75ch}.soft,.note{color:var(--soft);font-size:.92em}
.verdict{font-size:1.15em;background:#eef3f8;border-left:5px solid #1f6fb2;padding:.8em 1em;max-width:none;margin:1em 0}
.claim{font-weight:600}
table{border-collapse:collapse;margin:1em 0;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:.35em .6em;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
td{white-space:nowrap}td.left{white-space:normal}
th{color:var(--soft);font-weight:600;font-size:.88em}.left{text-align:left}
.reached{color:var(--good)}.missed,.MISSED,.ABOVE{color:var(--bad);font-weight:600}.too,.not{color:var(--open)}
.pictures{display:flex;flex-wrap:wrap;gap:.5em 1em;align-items:flex-start}.pictures img{max-width:100%;height:auto}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2em 1em}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
pre{background:#f5f6f8;padding:1em;overflow:auto;font-size:.85em}
@media(max-width:680px){
 body{font-size:15px;padding-top:1em}
 table,tbody,tr,td{display:block;width:100%}tr:first-child{display:none}
 tr{border-bottom:2px solid var(--line);padding:.5em 0}
 td,td.left{white-space:normal}
 td{border:0;padding:.1em 0;display:flex;justify-content:space-between;gap:1em;text-align:right}
 td::before{content:attr(data-head);color:var(--soft);text-align:left;flex:none}
 td:empty{display:none}td:first-child{font-weight:600;text-align:left}td:first-child::before{content:none}
 dl{grid-template-columns:1fr}dt{margin-top:.4em}
}"""


def html_table(table):
    """Returns the HTML of a table. Each cell names its heading, for narrow screens, which show a line as a block."""
    def cell(kind, number, text, name=""):
        """Returns the HTML of one cell."""
        classes = " ".join(c for c in ("left" if number in table.left else "", name) if c)
        head = f" data-head='{html.escape(table.headings[number])}'" if kind == "td" else ""
        content = html.escape(text).replace(" %", "&nbsp;%")
        return f"<{kind} class='{classes}'{head}>{content}</{kind}>"

    lines = ["".join(cell("th", i, text) for i, text in enumerate(table.headings))]
    for line in table.lines:
        # "MISSED" and "ABOVE 1.1" are classes by their first word
        lines.append("".join(cell("td", i, text, text.split(" ")[0] if i == table.mark else "")
                             for i, text in enumerate(line)))
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def list_of(words):
    """Returns "a, b and c"."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def count(number, what):
    """Returns a number with a noun in singular or plural."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def by_verdict(rows):
    """Returns {"reached", "MISSED" or "open": rows} of the rows that have a goal."""
    found = {"reached": [], "MISSED": [], "open": []}
    for row in rows:
        if row["asked"]:
            found[row["verdict"] if row["verdict"] in found else "open"].append(row)
    return found


def as_asked(row, name):
    """Returns a figure with its goal."""
    shown = row["ratio"] if row["asked"].startswith("ratio") else f"{name} {row['zheap']}"
    return f"{row['label']} ({shown}; asked: {row['asked'].removeprefix('ratio ')})"


def comparison(rows, names):
    """Returns a sentence with the ratios of transactions, CPU and WAL."""
    words = []
    for key, what in (("tps", "the transactions"), ("cpu_us", "the CPU"), ("wal_without_images", "the WAL"), ("wal_per_transaction", "the WAL")):
        row = next((row for row in rows if row["key"] == key and row["ratio"]), None)
        if row and not any(what in word for word in words):
            words.append(f"{row['ratio']} times {what}")
    if not words:
        return ""
    return f"{names[1]} has {list_of(words)} of {names[0]}."


def sentence(rows, names):
    """Returns sentences about the goals of one workload."""
    found, parts = by_verdict(rows), []
    number = sum(len(some) for some in found.values())
    if not number:
        return "No goal was set for this workload. " + comparison(rows, names)
    if len(found["reached"]) == number:
        parts.append("The goal is reached." if number == 1 else f"All {number} goals are reached.")
    else:
        parts.append(f"{len(found['reached'])} of {count(number, 'goal')} reached.")
    if found["MISSED"]:
        parts.append("Missed: " + list_of([as_asked(row, names[1]) for row in found["MISSED"]]) + ".")
    if found["open"]:
        parts.append("Not judged: " + list_of([row["label"] for row in found["open"]]) + ".")
    return " ".join(parts + [comparison(rows, names)])


def verdict(results, names):
    """Returns the verdict about all workloads, for the top of the page."""
    tables = {name: figures["table"] for name, figures in results["workloads"].items() if "table" in figures}
    if len(tables) == 1 and len(results["workloads"]) == 1:
        (name, rows), = tables.items()
        return f"{name}, {results['workloads'][name]['title']}: {sentence(rows, names)}"
    found = by_verdict([row for rows in tables.values() for row in rows])
    number = sum(len(some) for some in found.values())
    if not number:
        return f"{names[0]} and {names[1]} side by side; no goals were set."
    text = f"{names[1]} reaches {len(found['reached'])} of {number} goals in {count(len(tables), 'workload')}"
    text += f" and misses {len(found['MISSED'])}" if found["MISSED"] else ""
    text += f"; {len(found['open'])} could not be judged" if found["open"] else ""
    wrong = [name for name, rows in tables.items() for row in rows if row["form"] == "yes" and row["verdict"] == "MISSED"]
    return text + (f". Wrong results in {list_of(wrong)}." if wrong else ". All answers were right.")


class Summary:
    """The first table of a page: for each workload the published and the measured figures. Used as a Table."""

    left, mark = {0, 1, 5, 6}, 6

    def __init__(self, results, names):
        self.lines = []
        self.headings = ("", "published", f"{names[0]} here", f"{names[1]} here", "ratio", "asked", "verdict")
        for workload, figures in results["workloads"].items():
            question = QUESTIONS.get(workload)
            rows = {row["key"]: row for row in figures.get("table", [])}
            for key, published in question.published.items() if question else ():
                if key in rows:
                    row = rows[key]
                    self.lines.append((f"{workload}: {row['label']}", "" if published == NONE else published, row["heap"], row["zheap"],
                                       row["ratio"], row["asked"], row["verdict"]))


def picture(path):
    """Returns the HTML of a picture, with its data."""
    with open(path, "rb") as image:
        data = base64.b64encode(image.read()).decode("ascii")
    name = os.path.basename(path).removesuffix(".png").replace("-", " ")
    return f"<img alt='{html.escape(name)}' src='data:image/png;base64,{data}'>"


def section(workload, table, figures, pictures, names, alone):
    """Returns the lines of HTML of one workload; alone: it is the only one, so the verdict on top is about its goals."""
    question = None if "what" in figures else QUESTIONS.get(workload)
    out = [f"<h2 id='{html.escape(workload)}'>{html.escape(table.title)}</h2>"]
    if "what" in figures:
        out.append(f"<p>{html.escape(figures['what'])}</p>")
    if question:
        out += [f"<p>{html.escape(question.asked)}</p>", f"<p class=soft>From: {html.escape(question.source)}.</p>"]
    if "table" in figures and not alone:
        out.append(f"<p class=claim>{html.escape(sentence(figures['table'], names))}</p>")
    out.append(html_table(table))
    out += [f"<p class=note>{html.escape(note)}</p>" for note in table.notes]
    return out + ["<div class=pictures>" + "".join(picture(path) for path in pictures) + "</div>"]


def facts(results):
    """Returns {name: text} of the conditions of the run."""
    machine = "{cpu}, {cores} cores, {memory_mb} MB, Linux {kernel}".format(**results["machine"])
    found = {"measured": results["when"], "took": results["took"], "command": results["command"], "zundo": results["commit"],
             "server": results["server"]["version"], "machine": machine}
    return {**found, **results["options"]}


def save(path, results, tables, pictures, names):
    """Writes the page, with everything in one file."""
    title = f"{names[1]} and {names[0]}, side by side"
    out = ["<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>",
           f"<title>{title}</title><style>{STYLE}</style><h1>{title}</h1>",
           f"<p class=verdict>{html.escape(verdict(results, names))}</p>",
           f"<p class=soft>Measured {html.escape(results['when'])} on one server, {names[0]} and {names[1]} in turns. A ratio is "
           f"{names[1]}'s figure divided by {names[0]}'s; &uarr; means that more is better, &darr; that less is.</p>"]
    summary = Summary(results, names)
    if summary.lines and len(tables) > 1:
        out.append(html_table(summary))
    for workload, table in tables.items():
        out += section(workload, table, results["workloads"][workload], pictures.get(workload, []), names, len(tables) == 1)
    out.append("<h2>Conditions</h2><dl>" + "".join(f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(str(v))}</dd>"
                                                   for k, v in facts(results).items()) + "</dl>")
    settings = "\n".join(f"{k} = {v}" for k, v in sorted(results["server"]["settings"].items()))
    out.append(f"<h3>Settings of the server</h3><pre>{html.escape(settings)}</pre></html>")
    with open(path, "w", encoding="utf-8") as page:
        page.write("\n".join(out))
