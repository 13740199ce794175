"""./zundo check: tests that docs/duties.md has a line for every flag, option, result
and callback with which the server's headers define what a table access method does.

The names are those in the headers of the installed servers, and those in
tools/duties.txt, which has the names of 15 to 19 for machines without headers.
"""

import glob
import os
import re

VERSIONS = ("15", "16", "17", "18", "19")
STORED = "tools/duties.txt"
TABLE = "docs/duties.md"

# By header: a pattern of the macros, enums and structs whose names are needed.
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
# Types and names of those parameters of callbacks that are options.
OPTION_TYPES = ("bool",)
OPTION_NAMES = ("crosscheck",)


def installed_headers():
    """Yields (version, include directory) of the installed servers of the supported versions."""
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
    """Returns the text of a C file without its comments."""
    with open(path, encoding="utf-8") as text:
        return re.sub(r"/\*.*?\*/", "", text.read(), flags=re.S)


def members(text, kind, names):
    """Yields (type name, body) of the typedefs of enums or structs whose names match."""
    for match in re.finditer(rf"typedef {kind}\s+({names})\s*\{{(.*?)\}}", text, re.S):
        yield match.group(1), match.group(2)


def callbacks(text):
    """Yields the names of TableAmRoutine's callbacks; their options as callback(parameter)."""
    for _, body in members(text, "struct", "TableAmRoutine"):
        for match in re.finditer(r"\(\*\s*(\w+)\)\s*\((.*?)\);", body, re.S):
            yield match.group(1)
            for parameter in match.group(2).split(","):
                words = parameter.replace("*", " ").split()
                if len(words) > 1 and (words[0] in OPTION_TYPES or words[-1] in OPTION_NAMES):
                    yield f"{match.group(1)}({words[-1]})"


def duties_of(directory):
    """Returns the names that the headers of one server define."""
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
    """Returns the names in tools/duties.txt."""
    with open(os.path.join(top, STORED), encoding="utf-8") as text:
        return [line.split("#")[0].strip() for line in text if line.split("#")[0].strip()]


def rows(top):
    """Yields (line, names, cell of functions, cell of tests) of the table in docs/duties.md."""
    with open(os.path.join(top, TABLE), encoding="utf-8") as text:
        for number, line in enumerate(text, 1):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            names = re.findall(r"`([^`]+)`", cells[0])
            if line.startswith("|") and len(cells) == 3 and names:
                yield number, names, cells[1], cells[2]


def exists(top, name):
    """Returns whether there is a file of this name (sql/x, isolation/specs/x, t/x, test/x, with or without ending)."""
    return bool(glob.glob(os.path.join(top, name)) or glob.glob(os.path.join(top, name + ".*")))


def check(top, sources, opcodes):
    """Yields (file, line, what is wrong).

    sources: the text of all C files; opcodes: the names of the WAL records, each of which needs a line, too.
    """
    wanted = set(stored(top))
    for version, directory in installed_headers():
        for name in sorted(duties_of(directory) - wanted):
            yield STORED, 1, f"lacks {name} of {directory} ({version})"
            wanted.add(name)
    seen = {}
    for number, names, function, test in rows(top):
        for name in names:
            if name in seen:
                yield TABLE, number, f"{name} has a line already: {seen[name]}"
            seen[name] = number
        for word in re.findall(r"`([a-z_]\w+)`", function):
            if not re.search(rf"\b{word}\b", sources):
                yield TABLE, number, f"there is no function {word}"
        if "`" not in function and not function.startswith("none"):
            yield TABLE, number, "names no function, and has no 'none: ' with a reason"
        tests = re.findall(r"`((?:sql|isolation/specs|t|test)/[\w./-]+)`", test)
        if not tests and not test.startswith("none"):
            yield TABLE, number, "names no test, and has no 'none: ' with a reason"
        for name in tests:
            if not exists(top, name):
                yield TABLE, number, f"there is no {name}"
    for name in sorted((wanted | set(opcodes)) - set(seen)):
        yield TABLE, 1, f"{name} has no line"
    for name in sorted(set(seen) - wanted - set(opcodes)):
        yield TABLE, seen[name], f"{name} is in no header"
