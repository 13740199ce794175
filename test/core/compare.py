#!/usr/bin/env python3
"""Hold the output of one of PostgreSQL's own test suites against the accepted differences.

usage: compare.py --log FILE --output DIR --schedule FILE --accepted DIR [--only NAME...] [--moved] [--accept]

FILE is what pg_regress or pg_isolation_regress printed, DIR its output
directory. Prints one line for each test of the schedule, "ok NAME" or "fail NAME:
why", and leaves every difference found in DIR/different/NAME.diff, in the form in
which it could be accepted. See README.md for that form. With --accept the differences found
replace the accepted ones of the same tests, whose reasons stay; new ones get none yet.
--moved: no update was done in place, so none of the reasons may be that.
"""
import argparse
import pathlib
import re
import sys

RAN = re.compile(r'^(not )?ok \d+ +[-+] (\S+)')          # 16 and later
RAN_15 = re.compile(r'^(?:test| ) +(\S+) +\.\.\. (.*)$')
# Where updated rows would have been moved there is no such reason.
IN_PLACE = 'updated rows keep their place'
# Reasons that can be proved: the lines are the same, in another order.
ORDER = (f'order of rows without ORDER BY: {IN_PLACE}', 'order of rows without ORDER BY: a new row takes the place of a rolled back one')
SECTION = re.compile(r'^diff .*/results/(\S+?)\.out$')


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
            lines = found.setdefault(match[1], [])
        elif lines is None or line.startswith(('--- /', '+++ /')):
            continue
        elif line.startswith('@@'):
            lines.append('@@')
        elif line.startswith(('+', '-')):
            lines.append(line.rstrip())
    return found


def is_order_only(lines):
    """Are the lines that went the same as those that came?"""
    gone = sorted(line[1:] for line in lines if line.startswith('-'))
    come = sorted(line[1:] for line in lines if line.startswith('+'))
    return gone == come


def accepted(folder, name):
    """The accepted differences of a test: of each of NAME.diff, NAME_1.diff, ... its reason and its lines."""
    forms = []
    for path in sorted(folder.glob(f'{name}.diff')) + sorted(folder.glob(f'{name}_[0-9].diff')):
        text = path.read_text().splitlines()
        reason = ' '.join(line.lstrip('# ') for line in text if line.startswith('#'))
        forms.append((reason, [line for line in text if not line.startswith('#')]))
    return forms


def accept(folder, name, lines):
    path = folder / f'{name}.diff'
    reasons = []
    if path.exists():
        reasons = [line for line in path.read_text().splitlines() if line.startswith('#')]
    elif is_order_only(lines):
        reasons = [f'# {ORDER[0]}']
    path.write_text('\n'.join(reasons + lines) + '\n')


def verdict(name, ran, found, folder, moved):
    if name not in ran:
        return 'did not run'
    if name not in found:
        return None if ran[name] else 'failed without a difference: its process ended early'
    forms = accepted(folder, name)
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
    parser.add_argument('--only', nargs='*', default=[])
    parser.add_argument('--moved', action='store_true')
    parser.add_argument('--accept', action='store_true')
    options = parser.parse_args()

    ran = statuses(options.log)
    found = differences(options.output / 'regression.diffs')
    folder = options.output / 'different'
    folder.mkdir(exist_ok=True)
    for name, lines in found.items():
        (folder / f'{name}.diff').write_text('\n'.join(lines) + '\n')
    if options.accept:
        options.accepted.mkdir(parents=True, exist_ok=True)
        for name, lines in found.items():
            accept(options.accepted, name, lines)
    names = options.only or scheduled(options.schedule)
    for name in names:
        why = verdict(name, ran, found, options.accepted, options.moved)
        print(f'ok {name}' if why is None else f'fail {name}: {why}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
