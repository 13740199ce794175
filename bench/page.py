"""Writes the HTML page of a run: a verdict, then each workload with its goals, figures and plots."""

import html

from questions import FIRST, NONE, OURS, QUESTIONS

STYLE = """
:root{--ink:#1d2430;--soft:#5c6675;--line:#dfe3e8;--good:#146c43;--bad:#b3261e;--open:#7a5b00;
 --heap:#d9691f;--zheap:#1f6fb2;--page:#fff;--box:#eef3f8;--code:#f5f6f8;color-scheme:light dark}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#a3adbb;--line:#343c48;--good:#6fcf97;--bad:#ff8a80;--open:#e2c15a;
 --heap:#f08a4b;--zheap:#6cb4f0;--page:#14181e;--box:#1e2732;--code:#1c222a}}
*{box-sizing:border-box}
body{font:16px/1.55 system-ui,sans-serif;max-width:1080px;margin:0 auto;padding:1.5em 1em 4em;color:var(--ink);background:var(--page)}
h1{font-size:1.5em;line-height:1.25;margin:0 0 .6em}h2{font-size:1.2em;margin:2.4em 0 .4em;padding-top:1em;border-top:2px solid var(--line)}
p{margin:.5em 0;max-width:75ch}.soft,.note{color:var(--soft);font-size:.92em}
.verdict{font-size:1.15em;background:var(--box);border-left:5px solid var(--zheap);padding:.8em 1em;max-width:none;margin:1em 0}
.claim{font-weight:600}
table{border-collapse:collapse;margin:1em 0;width:100%;font-variant-numeric:tabular-nums}
td,th{padding:.35em .6em;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
td{white-space:nowrap}td.left{white-space:normal;min-width:9.8em}
th{color:var(--soft);font-weight:600;font-size:.88em}.left{text-align:left}
.reached{color:var(--good)}.missed,.MISSED,.ABOVE{color:var(--bad);font-weight:600}.too,.not{color:var(--open)}
.pictures{display:flex;flex-wrap:wrap;gap:1em;align-items:flex-start;margin:1em 0}
.pictures svg{display:block;height:auto;width:100%;max-width:30em}.pictures .guide.line,.pictures .axis .line{stroke:var(--line)!important;stroke-dasharray:none!important}
.pictures .small .value{transform:translateY(-3px)}.pictures svg.small{width:calc(25% - .75em);min-width:11em}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2em 1em}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--code);padding:1em;overflow:auto;font-size:.85em}
@media(max-width:680px){
 body{font-size:15px;padding-top:1em;display:flex;flex-direction:column}.summary{order:1}.end{order:2}
 table,tbody,tr,td{display:block;width:100%}tr:first-child{display:none}
 tr{border-bottom:2px solid var(--line);padding:.5em 0}
 td,td.left{white-space:normal}
 td{border:0;padding:.1em 0;display:flex;justify-content:space-between;gap:1em;text-align:right}
 td::before{content:attr(data-head);color:var(--soft);text-align:left;flex:none}
 td:empty{display:none}td:first-child{font-weight:600;text-align:left}td:first-child::before{content:none}
 dl{grid-template-columns:1fr}dt{margin-top:.4em}
}"""


GOALS = ("A goal is a bound that zundo&#8217;s developers have set themselves for this workload; most follow from published figures. "
         "A goal is not judged where the machine was too busy, or its rounds too different, to tell whether it is reached.")


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


def judged(rows):
    """Returns (rows whose goal was reached, rows whose goal was missed)."""
    return tuple([row for row in rows if row["goal"] and row["verdict"] == verdict] for verdict in ("reached", "MISSED"))


# By workload's first figure of growth: what has grown.
GROWTH = {"toast_times": "The TOAST table", "table_times": "The table", "table_growth": "The table", "table_growth_bytes": "The table"}


def growth(rows, names):
    """Returns a sentence that says how much the table has grown; "" if that was not measured.

    Growth counts bytes: it does not depend on how fast or busy the machine is.
    """
    row = next((row for row in rows if row["key"] in GROWTH), None)
    if not row:
        return ""
    grew, unit = ("to", " times its size") if row["key"].endswith("_times") else ("by", "")
    heap, zheap = (row[side].removesuffix("x") for side in ("heap", "zheap"))
    goal = {"reached": " (the goal)", "MISSED": f" (goal: {goal_of(row)})"}.get(row["verdict"], "")
    return f"{GROWTH[row['key']]} grew {grew} {heap}{unit} with {names[0]}, {grew} {zheap}{unit} with {names[1]}{goal}. "


def goal_of(row):
    """Returns the goal of a row, as text."""
    return row["goal"].removeprefix("ratio ").removeprefix("zheap ")


def with_figure(row, names):
    """Returns the label of a row and the figure that its goal is about, with the goal if that was missed."""
    if row["form"] == "yes":
        return row["label"]
    figure = f"{row['ratio']} times {names[0]}'s" if row["goal"].startswith("ratio") else row["zheap"]
    return f"{row['label']} ({figure}{'; goal: ' + goal_of(row) if row['verdict'] == 'MISSED' else ''})"


def sentence(rows, names):
    """Returns sentences about one workload: growth, then what else was judged, and nothing that was not."""
    begin = growth(rows, names)
    reached, missed = judged([row for row in rows if not begin or row["key"] not in GROWTH])
    number = len(reached) + len(missed)
    if not number:
        return begin or "No goal was set or could be judged."
    text = f"{begin}{'Also judged' if begin else 'Judged'}, {len(reached)} of {count(number, 'goal')} reached"
    if reached:
        text += ": " + "; ".join(with_figure(row, names) for row in reached)
    if missed:
        text += ". Missed: " + "; ".join(with_figure(row, names) for row in missed)
    return text + "."


def verdict(results, names):
    """Returns the verdict about all workloads, for the top of the page."""
    tables = {name: figures["table"] for name, figures in results["workloads"].items() if "table" in figures}
    if len(tables) == 1 and len(results["workloads"]) == 1:
        (name, rows), = tables.items()
        return f"{capital(results['workloads'][name]['title'])}. {sentence(rows, names)}"
    reached, missed = judged([row for rows in tables.values() for row in rows])
    number = len(reached) + len(missed)
    if not number:
        return f"{names[0]} and {names[1]} side by side; no goals were judged."
    text = "".join(f"{capital(results['workloads'][name]['title'])}. {growth(tables[name], names)}" for name in FIRST if name in tables)
    text = f"{text}{names[1]} reaches {len(reached)} of {number} goals that were judged, in {count(len(tables), 'workload')}"
    wrong = [name for name, rows in tables.items() for row in rows if row["form"] == "yes" and row["verdict"] == "MISSED"]
    return text + (f". Wrong results in {list_of(wrong)}." if wrong else ". All answers were right.")


def capital(text):
    """Returns the text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


class Summary:
    """The first table of a page, on a narrow screen the last one: for each workload the published and the measured figures.

    Left out if nothing was published. Used as a Table.
    """

    left, mark = {0, 1, 5, 6}, 6

    def __init__(self, results, names):
        self.lines, self.published = [], False
        self.headings = ("", "published", f"{names[0]} here", f"{names[1]} here", "ratio", "goal", "verdict")
        for workload, figures in results["workloads"].items():
            question = QUESTIONS.get(workload)
            rows = {row["key"]: row for row in figures.get("table", [])}
            for key, published in question.published.items() if question else ():
                if key in rows:
                    row = rows[key]
                    self.published = self.published or published != NONE
                    self.lines.append((f"{workload}: {row['label']}", "" if published == NONE else published, row["heap"], row["zheap"],
                                       row["ratio"], row["goal"], row["verdict"]))


def section(workload, table, figures, pictures, names, alone):
    """Returns the lines of HTML of one workload; alone: it is the only one, so the verdict on top is about its goals."""
    question = None if "what" in figures else QUESTIONS.get(workload)
    out = [f"<h2 id='{html.escape(workload)}'>{html.escape(table.title)}</h2>"]
    if "what" in figures:
        out.append(f"<p>{html.escape(figures['what'])}</p>")
    if question:
        out.append(f"<p>{html.escape(question.asked)}</p>")
        if question.source != OURS:
            out.append(f"<p class=soft>From: {html.escape(question.source)}.</p>")
    if "table" in figures and not alone:
        out.append(f"<p class=claim>{html.escape(sentence(figures['table'], names))}</p>")
    if pictures:
        out.append("<div class=pictures>" + "".join(pictures) + "</div>")
    if any(row["goal"] for row in figures.get("table", ())):
        out.append(f"<p class=note>{GOALS}</p>")
    out.append(html_table(table))
    return out + [f"<p class=note>{html.escape(note)}</p>" for note in table.notes]


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
    if summary.published and len(tables) > 1:
        out.append(f"<div class=summary>{html_table(summary)}</div>")
    for workload, table in tables.items():
        out += section(workload, table, results["workloads"][workload], pictures.get(workload, []), names, len(tables) == 1)
    out.append("<div class=end><h2>Conditions</h2><dl>" + "".join(f"<dt>{html.escape(str(k))}</dt><dd>{html.escape(str(v))}</dd>"
                                                   for k, v in facts(results).items()) + "</dl>")
    settings = "\n".join(f"{k} = {v}" for k, v in sorted(results["server"]["settings"].items()))
    out.append(f"<h3>Settings of the server</h3><pre>{html.escape(settings)}</pre></div></html>")
    with open(path, "w", encoding="utf-8") as page:
        page.write("\n".join(out))
