#!/usr/bin/env python3
"""./zundo check --analyze [FILE...]: what gcc's analyzer, clang-tidy and cppcheck find in the C sources.

tools/analyze.py PG_CONFIG [FILE...]. All files of the extension without FILE. test/judged_findings has those that were
looked at and are false: a line "PROGRAM FILE CHECK", and below it the reason. Prints what is not in that list, and which
lines of it nothing has found. The list is that of Debian 12's programs. Exit status: 1 if there is a finding
that is not in the list, or a program has failed, or does not find the faults of PLANTED.
"""

import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

from measure_source import TOP, tracked

JUDGED = os.path.join(TOP, "test", "judged_findings")

# Checks of clang-tidy. The server's own idioms (memset of a struct, strcpy) are not faults.
TIDY = ("-*,clang-analyzer-core.*,clang-analyzer-deadcode.*,clang-analyzer-unix.*,bugprone-infinite-loop,"
        "bugprone-integer-division,bugprone-signed-char-misuse,bugprone-sizeof-expression,"
        "bugprone-suspicious-memset-usage,bugprone-suspicious-semicolon,bugprone-suspicious-string-compare,"
        "bugprone-too-small-loop-variable")

# What cppcheck does not report: the server's headers; that the cells of forboth() may be NULL; that >> keeps a sign, which the
# server expects as well; the order in which list_make2() makes its elements.
NOISE = ("*:*/postgresql/*", "nullPointerRedundantCheck", "shiftTooManyBitsSigned", "unknownEvaluationOrder")

# Each program must find a fault in this.
PLANTED = """
#include "postgres.h"
#include "undo/undo.h"
extern int	planted(int n);
int
planted(int n)
{
	char	   *text = malloc(8);
	int			array[4] = {0};

	free(text);
	memset(array, sizeof(array), 0);
	return text[0] + array[n & 3];
}
"""


def commands(path, includes):
    """Yields (program, command) for a file. With -O1 gcc removes some code with faults before it looks for them."""
    yield "gcc", ["gcc", "-fanalyzer", "-Og", "-c", "-o", os.devnull, *includes, path]
    yield "clang-tidy", ["clang-tidy", "--quiet", "--checks=" + TIDY, path, "--", "-O1", *includes]
    yield "cppcheck", ["cppcheck", "-q", "--enable=warning,portability", "--max-configs=1", "-D__GNUC__=12", "-D__x86_64__=1",
                       *("--suppress=" + s for s in NOISE), "--template={file}:{line}: warning: {message} [{id}]",
                       *(i for i in includes if i[:2] in ("-I", "-D")), path]


def analyze(path, includes):
    """Runs the programs on a file; returns (program, file, check, text of the line) of each finding."""
    found = []
    for program, command in commands(path, includes):
        run = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            found.append((program, path, "failed", (run.stderr or run.stdout).strip()[-500:]))
        for line in (run.stdout + run.stderr).splitlines():
            match = re.match(r"(?:\./)?(\S+?):\d+(?::\d+)?: (?:warning|error): .*\[-?([\w.,-]+)\]$", line)
            if match and (program != "gcc" or "Wanalyzer" in line):
                where = os.path.relpath(os.path.join(TOP, match.group(1)), TOP)
                # what it says of the server's headers it says of how this file uses them
                found.append((program, path if where.startswith("..") else where, match.group(2), line))
    return found


def blind(includes):
    """Returns the programs that do not find what is planted."""
    with tempfile.NamedTemporaryFile("w", suffix=".c") as source:
        source.write(PLANTED)
        source.flush()
        programs = {program for program, _ in commands(source.name, includes)}
        return sorted(programs - {program for program, _, check, _ in analyze(source.name, includes) if check != "failed"})


def judged():
    """Returns the findings of the list: sets of (program, file, check)."""
    with open(JUDGED, encoding="utf-8") as text:
        return {tuple(line.split()) for line in text if line.strip() and line[0] not in "#\t"}


def main(pg_config, *files):
    """Prints the findings; returns the exit status."""
    server = subprocess.run([pg_config, "--includedir-server"], capture_output=True, text=True, check=True).stdout.strip()
    includes = ["-I.", "-I" + server, "-D_GNU_SOURCE", "-DZUNDO_TESTING", "-std=gnu99"]
    paths = files or [p for p in tracked(".c") if not p.startswith("test/")]
    for program in (missed := blind(includes)):
        print(f"  {program} does not find the planted fault")
    found = collections.defaultdict(set)
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for some in pool.map(lambda path: analyze(path, includes), paths):
            for program, path, check, line in some:
                found[program, path, check].add(line)
    known = judged()
    new = sorted(set(found) - known)
    for finding in new:
        print("  new     " + " ".join(finding))
        for line in sorted(found[finding]):
            print("          " + line)
    if not files:
        for finding in sorted(known - set(found)):
            print("  gone    " + " ".join(finding))
    print(f"{len(paths)} files, {len(found)} findings, {len(new)} that were not judged")
    return 1 if new or missed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
