#!/usr/bin/env python3
"""tools/coverage.py [--no-floors] MERGED INFO...: what part of the lines tests have entered.

Reads the tracefiles INFO of lcov, one for each server version, adds their counts, and
writes the sum to MERGED. Leaves out Asserts, what is compiled only with them, and the
sources of the test module. Prints the part for each folder, and compares it with
test/coverage, whose lines are "FOLDER PERCENT"; the folder "all" is the sum. Exit
status: 1 if a folder is below its floor.

tools/coverage.py --functions MERGED: prints the functions that no test has entered.
"""

import collections
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FLOORS = os.path.join(TOP, "test", "coverage")


def read_info(path, lines, functions):
    """Adds the counts of one tracefile to lines[file][line] and functions[file][name] = [line, count]."""
    name = None
    with open(path, encoding="utf-8") as info:
        for record in info:
            key, _, value = record.rstrip("\n").partition(":")
            if key == "SF":
                name = re.sub(r"^.*/build-\w+/", "", os.path.normpath(value))
                if not os.path.exists(os.path.join(TOP, name)) or name.startswith("test/"):
                    name = None
            elif name and key == "DA":
                line, count = value.split(",")[:2]
                lines[name][int(line)] += int(count)
            elif name and key == "FN":
                line, function = value.split(",")[:2]
                functions[name].setdefault(function, [int(line), 0])
            elif name and key == "FNDA":
                count, function = value.split(",")[:2]
                functions[name].setdefault(function, [0, 0])[1] += int(count)


def only_with_asserts(text):
    """Returns the numbers of the lines that belong to an Assert or to code compiled only with Asserts."""
    found = set()
    stack = []
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*#\s*if", line):
            stack.append(bool(re.match(r"\s*#\s*if(def\s+|\s+defined\W*)USE_ASSERT_CHECKING", line)))
        elif re.match(r"\s*#\s*el", line) and stack:
            stack[-1] = False
        elif re.match(r"\s*#\s*endif", line) and stack:
            stack.pop()
        if any(stack):
            found.add(number)
    for match in re.finditer(r"\bAssert\w*\s*\(", text):
        depth, at = 1, match.end()
        while depth > 0 and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        found.update(range(text.count("\n", 0, match.start()) + 1, text.count("\n", 0, at) + 2))
    return found


def merge(paths):
    """Returns (lines, functions) of all tracefiles, without what belongs to Asserts."""
    lines = collections.defaultdict(collections.Counter)
    functions = collections.defaultdict(dict)
    for path in paths:
        read_info(path, lines, functions)
    for name, counts in lines.items():
        with open(os.path.join(TOP, name), encoding="utf-8") as source:
            left_out = only_with_asserts(source.read())
        for line in left_out & set(counts):
            del counts[line]
        for function in [f for f, (line, _) in functions[name].items() if line in left_out]:
            del functions[name][function]
    return lines, functions


def write_info(path, lines, functions):
    """Writes a tracefile that genhtml reads."""
    with open(path, "w", encoding="utf-8") as out:
        for name, counts in sorted(lines.items()):
            out.write(f"TN:\nSF:{os.path.join(TOP, name)}\n")
            for function, (line, count) in functions[name].items():
                out.write(f"FN:{line},{function}\nFNDA:{count},{function}\n")
            out.writelines(f"DA:{line},{count}\n" for line, count in sorted(counts.items()))
            out.write("end_of_record\n")


def read_floors():
    """Returns {folder: percent} of test/coverage."""
    with open(FLOORS, encoding="utf-8") as floors:
        words = [line.split() for line in floors if line.strip() and not line.startswith("#")]
    return {folder: float(percent) for folder, percent in words}


def report(lines, floors):
    """Prints the table; returns whether every folder has reached its floor."""
    entered, total = collections.Counter(), collections.Counter()
    for name, counts in lines.items():
        for folder in (name.split("/")[0] if "/" in name else ".", "all"):
            entered[folder] += sum(count > 0 for count in counts.values())
            total[folder] += len(counts)
    reached = bool(total)
    print(f"  {'folder':12}{'lines':>8}{'entered':>9}{'floor':>8}")
    for folder in sorted(total, key=lambda f: (f == "all", f)):
        percent = 100 * entered[folder] / max(total[folder], 1)
        floor = floors.get(folder)
        below = floor is not None and percent < floor
        reached = reached and not below
        print(f"  {folder:12}{total[folder]:8}{percent:8.1f}%" +
              (f"{floor:7.1f}%" if floor is not None else "") + ("  too low" if below else ""))
    for folder in sorted(set(floors) - set(total)):
        reached = False
        print(f"  {folder:12} has a floor in test/coverage, but no lines")
    return reached


def main():
    """Does what the arguments ask for; returns the exit status."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--functions"]:
        _, functions = merge(arguments[1:])
        for name in sorted(functions):
            for function, (line, count) in sorted(functions[name].items(), key=lambda item: item[1]):
                if count == 0:
                    print(f"{name}:{line}: {function}")
        return 0
    floors = {} if "--no-floors" in arguments else read_floors()
    merged, *paths = [a for a in arguments if a != "--no-floors"]
    lines, functions = merge(paths)
    write_info(merged, lines, functions)
    return 0 if report(lines, floors) else 1


if __name__ == "__main__":
    sys.exit(main())
