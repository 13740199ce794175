#!/usr/bin/env python3
"""Compares the output of one of PostgreSQL's own test suites with the accepted differences.

usage: compare.py --log FILE --output DIR --schedule FILE --accepted DIR [--also DIR]
                  [--only NAME...] [--moved] [--accept]

--log is the output of pg_regress or pg_isolation_regress, --output its output
directory. Prints one line for each test of the schedule, "ok NAME" or "fail NAME: why".
Writes each difference, in the form of an accepted one (README.md), to the file
different/NAME.diff in the output directory. With --accept the differences replace the
accepted ones of the same tests. The reasons of these are kept; a new one has no reason.
--also: indexes are zbtree. Differences are compared after zbtree has been replaced by
btree and plans have been left out, since the indexes have other sizes and abilities.
The differences in this directory are accepted, too.
--moved: no update was in place, so that this may not be the reason of a difference.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

RAN = re.compile(r'^(not )?ok \d+ +[-+] (\S+)')          # 16 and later
RAN_15 = re.compile(r'^(?:test| ) +(\S+) +\.\.\. (.*)$')
# A reason that is not valid with --moved.
IN_PLACE = 'updated rows keep their place'
# Reasons for which the lines must be the same, in another order.
ORDER = (f'order of rows without ORDER BY: {IN_PLACE}', 'order of rows without ORDER BY: a new row takes the place of a rolled back one')
# The reason of differences in the figure n_dead_tup, which may have any value: updates in place take back at once what
# the end of their transaction adds, and a process that is late sends one without the other; no sum is less than 0.
DEAD_ROWS = 'figure n_dead_tup: rows updated in place leave nothing dead behind (docs/limits.md)'
SECTION = re.compile(r'^diff \S+ (\S+) (\S+/results/(\S+?)\.out)$')
PLAN = re.compile(r'^ +(QUERY PLAN|explain_\w+) *$')
PLAN_END = re.compile(r'^\(\d+ rows?\)$')


def scheduled(path):
    """Returns the names of the tests in a schedule, in order."""
    names = []
    for line in path.read_text().splitlines():
        if line.startswith('test:'):
            names += line[5:].split()
    return names


def statuses(path):
    """Returns {name: whether it passed} of the tests that ran."""
    ran = {}
    for line in path.read_text(errors='replace').splitlines():
        if match := RAN.match(line):
            ran[match[2]] = match[1] is None
        elif match := RAN_15.match(line):
            ran[match[1]] = match[2].startswith('ok')
    return ran


def differences(path):
    """Returns {name: lines} of the tests with a difference: the changed lines, and @@ at the beginning of each hunk."""
    found = {}
    if not path.exists():
        return found
    lines = None
    for line in path.read_text(errors='replace').splitlines():
        if match := SECTION.match(line):
            lines = found.setdefault(match[3], [])
        elif lines is None or line.startswith(('--- /', '+++ /')):
            continue
        elif line.startswith('@@'):
            lines.append('@@')
        elif line.startswith(('+', '-')):
            lines.append(line.rstrip())
    return found


def without_plans(path):
    """Returns the lines of a result without plans, each as plain() returns it."""
    kept, in_plan = [], False
    for line in path.read_text(errors='replace').splitlines():
        in_plan = in_plan or bool(PLAN.match(line))
        if not in_plan:
            kept.append(plain(line))
        in_plan = in_plan and not PLAN_END.match(line)
    return kept


def plain(line):
    """Returns the line with btree in place of zbtree, without the parameter access_method and the widths of columns."""
    line = line.replace(' WITH (access_method=zbtree)', '').replace('zbtree', 'btree')
    return re.sub(r'--+', '--', ' '.join(line.split()))


def differences_in_rows(path):
    """Returns {name: lines}: the changed lines of the tests whose results differ without plans."""
    found = {}
    for line in path.read_text(errors='replace').splitlines() if path.exists() else ():
        if match := SECTION.match(line):
            texts = [without_plans(pathlib.Path(name)) for name in (match[1], match[2])]
            with tempfile.TemporaryDirectory() as folder:
                names = [pathlib.Path(folder, name) for name in ('expected', 'result')]
                for name, text in zip(names, texts):
                    name.write_text('\n'.join(text) + '\n')
                out = subprocess.run(['diff', '-U0', *names], capture_output=True, text=True, check=False).stdout
            if out:
                found[match[3]] = [line for line in out.splitlines()[2:] if not line.startswith('@@')]
    return found


def is_order_only(lines):
    """Returns whether the removed lines are the same as the added ones."""
    removed = sorted(line[1:] for line in lines if line.startswith('-'))
    added = sorted(line[1:] for line in lines if line.startswith('+'))
    return removed == added


def is_dead_rows_only(lines):
    """Returns whether nothing but the seventh of eight figures differs in each changed line."""
    removed, added = ([line[1:].split('|') for line in lines if line.startswith(sign)] for sign in '-+')
    return len(removed) == len(added) and all(
        len(old) == len(new) == 8 and old[:6] + old[7:] == new[:6] + new[7:] for old, new in zip(removed, added))


def accepted(folder, name, rows_only=False):
    """Returns (reason, lines) of each accepted difference of a test: NAME.diff, NAME_1.diff and so on.

    rows_only: the lines as differences_in_rows returns them.
    """
    forms = []
    for path in sorted(folder.glob(f'{name}.diff')) + sorted(folder.glob(f'{name}_[0-9].diff')):
        text = path.read_text().splitlines()
        reason = ' '.join(line.lstrip('# ') for line in text if line.startswith('#'))
        lines = [line for line in text if not line.startswith('#')]
        if rows_only:
            lines = [line[0] + plain(line[1:]) for line in lines if line != '@@']
        forms.append((reason, lines))
    return forms


def accept(folder, name, lines):
    """Writes an accepted difference, with the reason that it had, or one that is_order_only shows to be true."""
    path = folder / f'{name}.diff'
    reasons = []
    if path.exists():
        reasons = [line for line in path.read_text().splitlines() if line.startswith('#')]
    elif is_order_only(lines):
        reasons = [f'# {ORDER[0]}']
    path.write_text('\n'.join(reasons + lines) + '\n')


def verdict(name, ran, raw, found, forms, moved):
    """Returns why a test fails, or None if it passes.

    raw, found: the differences with and without plans; forms: the accepted ones of the test.
    """
    if name not in ran:
        return 'did not run'
    if name not in found:
        return None if ran[name] or name in raw else 'failed without a difference: its process ended early'
    for reason, lines in forms:
        if lines != found[name] and not (reason == DEAD_ROWS and is_dead_rows_only(found[name])):
            continue
        if not reason:
            return 'the accepted difference has no reason'
        if reason in ORDER and not is_order_only(lines):
            return 'not only the order of lines differs'
        if moved and IN_PLACE in reason:
            return 'the reason is an update in place, but with --moved there are none'
        return None
    if forms:
        return 'differs in another way than accepted'
    return 'differs'


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument('--log', type=pathlib.Path, required=True)
    parser.add_argument('--output', type=pathlib.Path, required=True)
    parser.add_argument('--schedule', type=pathlib.Path, required=True)
    parser.add_argument('--accepted', type=pathlib.Path, required=True)
    parser.add_argument('--also', type=pathlib.Path)
    parser.add_argument('--only', nargs='*', default=[])
    parser.add_argument('--moved', action='store_true')
    parser.add_argument('--accept', action='store_true')
    options = parser.parse_args()

    ran = statuses(options.log)
    diffs = options.output / 'regression.diffs'
    raw = differences(diffs)
    found = differences_in_rows(diffs) if options.also else raw

    def forms(name):
        of_others = accepted(options.also, name, True) if options.also else []
        return accepted(options.accepted, name, bool(options.also)) + of_others

    folder = options.output / 'different'
    folder.mkdir(exist_ok=True)
    for name, lines in found.items():
        (folder / f'{name}.diff').write_text('\n'.join(lines) + '\n')
    if options.accept:
        options.accepted.mkdir(parents=True, exist_ok=True)
        for name, lines in found.items():
            if not options.also or all(lines != other for _, other in forms(name)):
                accept(options.accepted, name, lines)
    names = options.only or scheduled(options.schedule)
    for name in names:
        why = verdict(name, ran, raw, found, forms(name), options.moved)
        print(f'ok {name}' if why is None else f'fail {name}: {why}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
