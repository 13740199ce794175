#!/usr/bin/env python3
"""Hold the output of one of PostgreSQL's own test suites against the accepted differences.

usage: compare.py --log FILE --output DIR --schedule FILE --accepted DIR [--also DIR]
                  [--only NAME...] [--moved] [--accept]

FILE is what pg_regress or pg_isolation_regress printed, DIR its output
directory. Prints one line for each test of the schedule, "ok NAME" or "fail NAME:
why", and leaves every difference found in DIR/different/NAME.diff, in the form in
which it could be accepted. See README.md for that form. With --accept the differences found
replace the accepted ones of the same tests, whose reasons stay; new ones get none yet.
--also: all indexes are zbtree's. Their name is taken for btree's, and plans are left
out, as the indexes have other sizes and abilities; what differs then is compared. The
accepted differences of DIR hold here too.
--moved: no update was done in place, so none of the reasons may be that.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

RAN = re.compile(r'^(not )?ok \d+ +[-+] (\S+)')          # 16 and later
RAN_15 = re.compile(r'^(?:test| ) +(\S+) +\.\.\. (.*)$')
# Where updated rows would have been moved there is no such reason.
IN_PLACE = 'updated rows keep their place'
# Reasons that can be proved: the lines are the same, in another order.
ORDER = (f'order of rows without ORDER BY: {IN_PLACE}', 'order of rows without ORDER BY: a new row takes the place of a rolled back one')
SECTION = re.compile(r'^diff \S+ (\S+) (\S+/results/(\S+?)\.out)$')
PLAN = re.compile(r'^ +(QUERY PLAN|explain_\w+) *$')
PLAN_END = re.compile(r'^\(\d+ rows?\)$')


def scheduled(path):
    """Names of the tests in a schedule, in order."""
    names = []
    for line in path.read_text().splitlines():
        if line.startswith('test:'):
            names += line[5:].split()
    return names


def statuses(path):
    """Name of each test that ran -> did it pass?"""
    ran = {}
    for line in path.read_text(errors='replace').splitlines():
        if match := RAN.match(line):
            ran[match[2]] = match[1] is None
        elif match := RAN_15.match(line):
            ran[match[1]] = match[2].startswith('ok')
    return ran


def differences(path):
    """Name of each test with a difference -> its normal form: changed lines and the ends of hunks."""
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
    """The lines of a result without plans and the widths of columns, btree for zbtree."""
    kept, in_plan = [], False
    for line in path.read_text(errors='replace').splitlines():
        in_plan = in_plan or bool(PLAN.match(line))
        if not in_plan:
            kept.append(plain(line))
        in_plan = in_plan and not PLAN_END.match(line)
    return kept


def plain(line):
    return re.sub(r'--+', '--', ' '.join(line.replace('zbtree', 'btree').split()))


def differences_in_rows(path):
    """As differences, of what without_plans leaves of each test; ends of hunks are not told."""
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
    """Are the lines that went the same as those that came?"""
    gone = sorted(line[1:] for line in lines if line.startswith('-'))
    come = sorted(line[1:] for line in lines if line.startswith('+'))
    return gone == come


def accepted(folder, name, rows_only=False):
    """The accepted differences of a test: of each of NAME.diff, NAME_1.diff, ... its reason and its lines.

    rows_only: the lines in the form of differences_in_rows.
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
    path = folder / f'{name}.diff'
    reasons = []
    if path.exists():
        reasons = [line for line in path.read_text().splitlines() if line.startswith('#')]
    elif is_order_only(lines):
        reasons = [f'# {ORDER[0]}']
    path.write_text('\n'.join(reasons + lines) + '\n')


def verdict(name, ran, raw, found, forms, moved):
    if name not in ran:
        return 'did not run'
    if name not in found:
        return None if ran[name] or name in raw else 'failed without a difference: its process ended early'
    for reason, lines in forms:
        if lines != found[name]:
            continue
        if not reason:
            return 'the accepted difference has no reason'
        if reason in ORDER and not is_order_only(lines):
            return 'not only the order of lines differs'
        if moved and IN_PLACE in reason:
            return 'no row was updated in place'
        return None
    if forms:
        return 'differs otherwise than accepted'
    return 'differs'


def main():
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
