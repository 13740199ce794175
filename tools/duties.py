"""The duties of a table access method, for ./zundo check: every flag, option,
result and callback of the server's headers has a line in docs/duties.md.

The names come from the headers of the servers that are installed, and from
tools/duties.txt, which holds those of 15, 17, 18 and 19 for machines without them.
"""

import glob
import os
import re

VERSIONS = ("15", "17", "18", "19")
STORED = "tools/duties.txt"
TABLE = "docs/duties.md"

# What is asked of each header: a pattern for macros, and which enums and structs.
MACROS = {
    "access/tableam.h": r"TABLE_(?:INSERT|UPDATE|DELETE)_\w+|TUPLE_LOCK_FLAG_\w+",
    "commands/vacuum.h": r"VACOPT_\w+",
}
ENUMS = {
    "access/tableam.h": r"ScanOptions|TM_Result|TU_UpdateIndexes",
    "nodes/lockoptions.h": r"LockWaitPolicy|LockTupleMode",
    "utils/snapshot.h": r"SnapshotType",
    "commands/vacuum.h": r"VacOptValue",
}
STRUCTS = {
    "access/tableam.h": r"TM_FailureData|TM_IndexStatus|TM_IndexDeleteOp",
    "commands/vacuum.h": r"VacuumParams",
}
# Parameters of callbacks that ask for something; the others are what it is done to.
OPTION_TYPES = ("bool",)
OPTION_NAMES = ("crosscheck",)


def installed_headers():
    """Include directories of installed servers of our versions, as (version, directory)."""
    places = [os.path.expanduser("~/.cache/zundo/pg*/include"), "/usr/include/postgresql/*",
              os.path.join(os.environ.get("ZUNDO_WORK", "/nonexistent"), "pg*/include")]
    for place in places:
        for found in sorted(glob.glob(place)):
            for folder in ("", "server", "postgresql/server"):
                directory = os.path.join(found, folder)
                config = os.path.join(directory, "pg_config.h")
                if os.path.exists(os.path.join(directory, "access/tableam.h")) and os.path.exists(config):
                    with open(config, encoding="utf-8") as text:
                        version = re.search(r'PG_MAJORVERSION "(\d+)"', text.read())
                    if version and version.group(1) in VERSIONS:
                        yield version.group(1), directory


def without_comments(path):
    with open(path, encoding="utf-8") as text:
        return re.sub(r"/\*.*?\*/", "", text.read(), flags=re.S)


def members(text, kind, names):
    """(type name, body) of the typedefs of enums or structs."""
    for match in re.finditer(rf"typedef {kind}\s+({names})\s*\{{(.*?)\}}", text, re.S):
        yield match.group(1), match.group(2)


def callbacks(text):
    """The callbacks, and their parameters that are options, as callback(parameter)."""
    for _, body in members(text, "struct", "TableAmRoutine"):
        for match in re.finditer(r"\(\*\s*(\w+)\)\s*\((.*?)\);", body, re.S):
            yield match.group(1)
            for parameter in match.group(2).split(","):
                words = parameter.replace("*", " ").split()
                if len(words) > 1 and (words[0] in OPTION_TYPES or words[-1] in OPTION_NAMES):
                    yield f"{match.group(1)}({words[-1]})"


def duties_of(directory):
    """The names that the headers of one server define."""
    names = set()
    for header in {*MACROS, *ENUMS, *STRUCTS}:
        text = without_comments(os.path.join(directory, header))
        if header in MACROS:
            names.update(re.findall(rf"^#define\s+({MACROS[header]})\b", text, re.M))
        for _, body in members(text, "enum", ENUMS.get(header, "none")):
            names.update(re.findall(r"\b([A-Z]\w+)\b(?=\s*(?:=[^,]*)?(?:,|$))", body.strip()))
        for name, body in members(text, "struct", STRUCTS.get(header, "none")):
            names.update(f"{name}.{member}" for member in re.findall(r"(\w+)\s*;", body))
        if header == "access/tableam.h":
            names.update(callbacks(text))
    return names


def stored(top):
    with open(os.path.join(top, STORED), encoding="utf-8") as text:
        return [line.split("#")[0].strip() for line in text if line.split("#")[0].strip()]


def rows(top):
    """(line, names, function cell, test cell) of the table."""
    with open(os.path.join(top, TABLE), encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            names = re.findall(r"`([^`]+)`", cells[0])
            if line.startswith("|") and len(cells) == 3 and names:
                yield number, names, cells[1], cells[2]


def exists(top, name):
    """Is name (sql/x, isolation/specs/x, t/x, test/x, with or without its ending) a file of ours?"""
    return bool(glob.glob(os.path.join(top, name)) or glob.glob(os.path.join(top, name + ".*")))


def check(top, sources, opcodes):
    """Complaints as (file, line, text). sources: all C text of ours; opcodes: names of WAL records."""
    wanted = set(stored(top))
    for version, directory in installed_headers():
        for name in sorted(duties_of(directory) - wanted):
            yield STORED, 1, f"{name} of {directory} ({version}) is not there"
            wanted.add(name)
    seen = {}
    for number, names, function, test in rows(top):
        for name in names:
            if name in seen:
                yield TABLE, number, f"{name} stands in line {seen[name]} already"
            seen[name] = number
        for word in re.findall(r"`([a-z_]\w+)`", function):
            if not re.search(rf"\b{word}\b", sources):
                yield TABLE, number, f"{word} is no function of ours"
        if "`" not in function and not function.startswith("none"):
            yield TABLE, number, "names no function, and does not say 'none: ' and why"
        tests = re.findall(r"`((?:sql|isolation/specs|t|test)/[\w./-]+)`", test)
        if not tests and not test.startswith("none"):
            yield TABLE, number, "names no test, and does not say 'none: ' and why"
        for name in tests:
            if not exists(top, name):
                yield TABLE, number, f"there is no {name}"
    for name in sorted((wanted | set(opcodes)) - set(seen)):
        yield TABLE, 1, f"{name} has no line"
    for name in sorted(set(seen) - wanted - set(opcodes)):
        yield TABLE, seen[name], f"{name} is in no header"
