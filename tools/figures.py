"""./zundo check --measure: prints figures about the readability of the source."""

import os
import re
import statistics

import rules
import way
from measure_source import (CODE_WIDTH, COMMENT_WIDTH, MANY_PARAMETERS, TOP, blank, call_graph, circles, many_parameters,
                            sources, tracked)


def asserts(source):
    """Returns the number of Asserts."""
    return len(re.findall(r"\bAssert\w*\s*\(", source.plain))


def code_lines(source):
    """Returns the number of lines that are neither blank nor only a comment."""
    return sum(1 for line in source.code.splitlines() if line.strip())


def takes_table_and_place(function):
    """Returns whether two neighbouring parameters are a table and a block, a page, a buffer or a TID."""
    kinds = ["table" if re.match(r"\s*(const\s+)?Relation\b", p) else
             "place" if re.match(r"\s*(const\s+)?(BlockNumber|Buffer|Page|ItemPointer\w*)\b", p) else ""
             for p in function.parameters]
    return any(pair == ("table", "place") for pair in zip(kinds, kinds[1:]))


# What tells the state of a transaction slot, or whether all have ended that need its undo.
SLOT_STATE = re.compile(r"\b(zslot_\w+|zslots_oldest|ZSLOT_XID)\s*\(")


def asks_slot(function):
    """Returns whether the function asks for the state of a transaction slot."""
    return SLOT_STATE.search(blank(function.body)) is not None


def reached_from(graph, path):
    """Returns the .c files whose functions are called from the file, directly or not, and the file."""
    seen, todo = set(), [path]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += graph[node]
    return seen


def words(paths):
    """Returns the number of words of the files."""
    total = 0
    for path in paths:
        with open(os.path.join(TOP, path), encoding="utf-8") as text:
            total += len(text.read().split())
    return total


def percentile(values, share):
    """Returns the value that the given share of the values does not exceed."""
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def main(arguments):
    """Prints the figures, with -v also where they come from; returns the exit status."""
    verbose = "-v" in arguments
    every = sources()
    lines = sum(len(s.lines) for s in every)
    functions = [(s, f) for s in every for f in s.functions]
    in_c = [(s, f) for s, f in functions if s.path.endswith(".c")]
    graph = call_graph(every)
    found = circles(graph)
    many = many_parameters(every)
    statics = [(s.path, n, name) for s in every for n, name in s.statics()]
    wide = [(s.path, n, kind, width) for s in every for n, kind, width in s.wide()]
    n_asserts = sum(asserts(s) for s in every)
    lengths = [f.length for _, f in functions]
    largest = max(every, key=lambda s: len(s.lines))
    longest = max(functions, key=lambda sf: sf[1].length)
    comments = {kind: sum(1 for w in wide if w[2] == kind) for kind in ("comment", "code")}

    def row(what, value):
        print(f"{what:58} {value}")

    row("files / lines of C", f"{len(every)} / {lines}")
    row("largest file", f"{len(largest.lines)} ({largest.path})")
    row("function length median / p90 / max",
        f"{statistics.median(lengths):.0f} / {percentile(lengths, 0.9)} / {longest[1].length} ({longest[1].name})")
    row("functions of more than 100 lines", sum(1 for n in lengths if n > 100))
    row("files in circles by calls", f"{sum(map(len, found))} in {len(found)} of {len(graph)} .c files")
    row(f"functions with {MANY_PARAMETERS} parameters and more", f"{len(many)} of {len(functions)}")
    row("mutable statics per 1,000 lines", f"{1000 * len(statics) / lines:.1f} ({len(statics)})")
    row("Asserts per 1,000 lines", f"{1000 * n_asserts / lines:.1f} ({n_asserts})")
    row(f"comment lines above {COMMENT_WIDTH} columns", comments["comment"])
    row(f"code lines above {CODE_WIDTH} columns", comments["code"])
    row("functions with a comment in the .c (static / extern)",
        f"{100 * sum(f.commented for _, f in in_c) / len(in_c):.0f} % "
        f"({100 * sum(f.commented for _, f in in_c if f.static) / max(1, sum(f.static for _, f in in_c)):.0f} / "
        f"{100 * sum(f.commented for _, f in in_c if not f.static) / max(1, sum(not f.static for _, f in in_c)):.0f})")
    commented = sum(1 for s in every for line, code in zip(s.lines, s.code.splitlines()) if line.strip() and not code.strip())
    row("share of comment lines", f"{100 * commented / lines:.0f} %")
    row("lines of C that are code", sum(code_lines(s) for s in every))
    row("functions with a table and a place in it side by side", sum(1 for _, f in functions if takes_table_and_place(f)))
    row("functions that ask for a slot's state", sum(1 for _, f in functions if asks_slot(f)))
    places, rooms, climbs, returns = way.way_of(every, "zheap_tuple_update", "snapshot")
    row("an UPDATE's snapshot: places, rooms, climbs, returns",
        f"{len(places)}, {len(rooms)}, {climbs}, {returns} (tools/way.py)")
    definitions, citations = rules.collect()
    passed = reached_from(graph, "dml/zupdate.c")
    cited = {name for name, places in citations.items() if any(path in passed for path, _ in places)}
    row("rules", len(definitions))
    row("rules cited in files that an UPDATE can enter", f"{len(cited)} in {len(passed)} files")
    row("words of READMEs and docs", words(tracked(".md")))

    print("\nfolder        lines  Asserts /1,000  statics  wide comments  wide code")
    for folder in sorted({s.path.split("/")[0] if "/" in s.path else "." for s in every}):
        mine = [s for s in every if (s.path.split("/")[0] if "/" in s.path else ".") == folder]
        total = sum(len(s.lines) for s in mine)
        paths = {s.path for s in mine}
        count = sum(asserts(s) for s in mine)
        print(f"{folder:12} {total:6} {count:8} {1000 * count / total:7.1f} {sum(1 for p in statics if p[0] in paths):8} "
              f"{sum(1 for w in wide if w[0] in paths and w[2] == 'comment'):14} "
              f"{sum(1 for w in wide if w[0] in paths and w[2] == 'code'):10}")
    for members in found:
        print("\ncircle: " + " ".join(members))
        for a in members:
            for b in members:
                if b in graph[a]:
                    print(f"  {a} -> {b}: {', '.join(sorted(graph[a][b]))}")
    for s, f in many:
        print(f"{s.path}:{f.first}: {f.name} has {len(f.parameters)} parameters")
    if verbose:
        for path, name in places:
            print(f"{path}: {name} is given an UPDATE's snapshot")
        for path, number, name in statics:
            print(f"{path}:{number}: static {name}")
        for path, number, kind, width in wide:
            print(f"{path}:{number}: a {kind} line of {width} columns")
        for s, f in in_c:
            if not f.commented and f.length >= 8:
                print(f"{s.path}:{f.first}: {f.name}, {f.length} lines, has no comment")
    return 0
