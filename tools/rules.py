"""./zundo check --rules: prints where each rule is defined, asserted, checked and tested.

A rule is named BOOK-number. It is defined once: in the comment at the top of the
source file that owns it, as a line that begins with a tab and the name, or in a
README, as an item that begins with the name in bold. Every other place that names it
is a citation. A letter after the number names a part of the rule.

The table has '-' for a rule that no Assert and no report of zundo.check or
zundo.check_index cites.
"""

import os
import re

from measure_source import TOP, line_of

# As many rules as a reader can know. What one function guarantees is no rule.
MAX_RULES = 200

BOOKS = {
    "ABORT": "what a transaction notes for its rollback",
    "ANY": "which version SnapshotAny finds by TID",
    "BUILD": "index builds",
    "CHAIN": "chains of undo records, as zundo.check tests them",
    "CLUSTER": "rewrites that keep old versions",
    "COMPUTED": "updates that leave the values of index expressions as they were",
    "CONVERT": "converting a table online",
    "DECODE": "logical decoding",
    "DELTA": "differences between two versions of a row",
    "DML": "insert, update, delete and row locks",
    "FROZEN": "rows that are inserted as visible to all",
    "GUARD": "xmin and ctid as tokens of applications",
    "HANDLE": "handles for the versions that triggers are shown",
    "HEADER": "row headers",
    "HEAP": "code that knows only heap",
    "INDEX": "zbtree indexes, as zundo.check_index tests them",
    "INLINE": "row locks that are kept in a page's slot",
    "LOCK": "row locks that travel with their row",
    "LOG": "the undo log, as zundo.check tests it",
    "MARK": "marks of entries of zbtree indexes",
    "OVERFLOW": "overflow pages for slots",
    "PAGE": "the bytes of a table page",
    "PRUNE": "compaction of a table page",
    "RANGE": "new rows that share an undo record",
    "RECORD": "the bytes of an undo record",
    "REQUEST": "the table of requests to workers",
    "RESOLVE": "rollback of whole transactions",
    "REWRITE": "new files of a table",
    "ROLLBACK": "rollback of one page",
    "ROOM": "the room of a row on its page",
    "ROW": "rows, as zundo.check tests them",
    "SAVED": "rows that leave their page while a snapshot may need them",
    "SCAN": "scans",
    "SPACE": "free space given back at commit",
    "TAG": "rows that are locked by one undo record",
    "TOAST": "values out of line",
    "TOKEN": "xmin as a token of applications",
    "TRAIL": "records that readers have passed over",
    "TUPLE": "the bytes of a row",
    "UNDO": "the undo log",
    "VACUUM": "VACUUM",
    "VIS": "which version a snapshot sees",
    "VMAP": "the visibility map",
    "ZBTREE": "the index access method zbtree",
}

NAME = rf"(?:{'|'.join(BOOKS)})-\d+[a-z]?"
DEFINITION = {
    ".c": re.compile(rf"^ \*\t({NAME})\t", re.M),
    ".h": re.compile(rf"^ \*\t({NAME})\t", re.M),
    ".md": re.compile(rf"^\s*- \*\*({NAME})\*\*", re.M),
}
CITATION = re.compile(rf"\b{NAME}\b")
# Anything that looks like the name of a rule.
ANY_BOOK = re.compile(r"(?<![\w-])([A-Z]{3,})-\d+[a-z]?\b(?!-)")
# Names of rules without a book. Those of the workloads of bench/ look the same.
BARE = re.compile(r"(?<![\w\-%'.\"/])(?:HD|LD|SP|VM|[A-Z])\d{1,2}[a-z]?\b(?!\.\d)")

TEXTS = (".c", ".h", ".md", ".pl", ".pm", ".spec", ".sql", ".py", ".sh", ".out", "untested_errors")
TESTS = ("t", "isolation", "specs", "sql", "test")


def read(path):
    """Returns the text of a file; the path is relative to TOP."""
    with open(os.path.join(TOP, path), encoding="utf-8") as source:
        return source.read()


def paths():
    """Yields the paths of all files in which rules may be defined or cited."""
    for folder, subfolders, names in os.walk(TOP):
        subfolders[:] = sorted(s for s in subfolders if not s.startswith(".") and
                               s not in ("results", "tmp_check", "__pycache__", "tools", "bench"))
        for name in sorted(names):
            if name.endswith(TEXTS):
                yield os.path.relpath(os.path.join(folder, name), TOP)


def collect():
    """Returns (definitions, citations), each {name: [(path, line)]}; a definition is no citation."""
    definitions, citations = {}, {}
    for path in paths():
        text = read(path)
        pattern = DEFINITION.get(os.path.splitext(path)[1])
        at = set()
        for match in pattern.finditer(text) if pattern else ():
            definitions.setdefault(match.group(1), []).append((path, line_of(text, match.start(1))))
            at.add(match.start(1))
        for match in CITATION.finditer(text):
            if match.start() not in at:
                citations.setdefault(match.group(0), []).append((path, line_of(text, match.start())))
    return definitions, citations


def faults():
    """Yields (path, line, what is wrong) for definitions and citations."""
    definitions, citations = collect()
    if len(definitions) > MAX_RULES:
        yield "tools/rules.py", 1, f"{len(definitions)} rules are defined, more than {MAX_RULES}"
    for name, places in sorted(definitions.items()):
        for path, number in places[1:]:
            yield path, number, f"{name} is defined in {places[0][0]} already"
    for name, places in sorted(citations.items()):
        if re.sub("[a-z]$", "", name) not in definitions:
            for path, number in places:
                yield path, number, f"{name} is not defined"
    for path in paths():
        if not path.endswith((".c", ".h", ".md", ".pl", ".spec", ".sql")):
            continue
        for match in ANY_BOOK.finditer(read(path)):
            if match.group(1) not in BOOKS:
                yield path, line_of(read(path), match.start()), f"{match.group(0)} has a book that is not in BOOKS"
    for path in paths():
        if not path.endswith((".c", ".h", ".md", ".pl", ".spec")):
            continue
        text = read(path)
        if path.endswith((".c", ".h")):     # comments only
            text = re.sub(r"(/\*.*?\*/)|[^\n]", lambda m: m.group(1) or " ", text, flags=re.S)
        elif path.endswith((".pl", ".spec")):
            text = re.sub(r"^[^#\n].*", "", text, flags=re.M)
        for match in BARE.finditer(text):
            if path.endswith(".md") and match.group(0).startswith("W"):
                continue                # a workload
            yield path, line_of(text, match.start()), f"{match.group(0)} has no book"


def near_assert(path, number):
    """Returns whether this line or one of the next three has an Assert, or reports a fault for zundo.check."""
    lines = read(path).split("\n")
    return bool(re.search(r"\bAssert\w*\s*\(|\bfault\(|\bFAULT\(|add_fault\(|check_safely\(", "\n".join(lines[number - 1:number + 3])))


def asserted_in(cited):
    """Returns the paths of the sources with a citation at an Assert or a check."""
    return sorted({path for path, number in cited
                   if path.endswith((".c", ".h")) and not path.startswith("test/") and near_assert(path, number)})


def table():
    """Yields (name, file that defines it, files that assert or check it, tests that cite it) for each rule."""
    definitions, citations = collect()

    def key(name):
        book, number = name.split("-")
        return book, int(re.match(r"\d+", number).group(0)), number

    for name in sorted(definitions, key=key):
        cited = citations.get(name, [])
        asserted = asserted_in(cited)
        tests = sorted({path for path, _ in cited if path.split("/")[0] in TESTS})
        yield name, definitions[name][0][0], asserted, tests


def main():
    """Prints the table of the rules; returns the exit status."""
    rows = list(table())
    book = None
    for name, where, asserted, tests in rows:
        if name.split("-")[0] != book:
            book = name.split("-")[0]
            print(f"\n{book}: {BOOKS[book]}")
        print(f"  {name:12} {where:28} {', '.join(asserted) or '-':44} {', '.join(tests) or '-'}")
    print(f"\n{len(rows)} rules, {sum(1 for r in rows if r[2])} asserted or checked; "
          f"{sum(1 for r in rows if r[3])} cited by tests")
    return 0
