#!/usr/bin/env python3
"""./zundo check: tests what can be tested about the source without running it.

Each check is a function that yields (file, line, what is wrong). Its docstring is
printed with what it finds, and says how to mend that. --fix repairs the format in
place. --layers only prints the list of the layers, --measure the figures of
tools/figures.py, --rules a table of the rules. -v shows what pending checks
find. Exit status: 0 nothing found, 1 something found, 2 wrong option.
"""

import collections
import os
import re
import subprocess
import sys

import duties
import english
import figures
import layout
import measure_source as measure
from measure_source import TOP, blank, line_of
import release
import rules
from rules import read

MAX_FILE = 1500                 # lines
MAX_FUNCTION = 200              # lines
MAX_MANY_PARAMETERS = 3         # functions with measure.MANY_PARAMETERS and more
MIN_ASSERTS = 10                # per 1,000 lines of C
MAX_STATICS = 1                 # mutable ones, per 1,000 lines of C

MAX_SUBJECT = 72                # characters of a commit's subject
SUBJECTS_SINCE = "cb6fa57"      # commits up to this one may have longer ones

# The layers, the lowest first, and what each does: a layer may include headers of
# those that come before it in this list, and of no others. Layers of one line may
# not include each other. ./zundo check --layers prints the list, and
# docs/architecture.md has a copy.
LAYERS = (
    ("common", "types, settings, WAL opcodes, differences of server versions"),
    ("tuple", "rows, deltas between versions, slots of the executor"),
    ("undo", "the undo log: its pages, records, extents and WAL"),
    ("page", "table pages: what changes their bytes, and what checks them"),
    ("change", "one change of table pages: applied, logged, decoded, replayed"),
    ("mvcc", "which version of a row a snapshot sees; who has locked it"),
    ("rollback", "undoing the changes of aborted transactions"),
    ("zbtree", "the index access method: nbtree's code, wrapped"),
    ("guard", "what others must not do to tables of zheap: refused, or answered otherwise"),
    ("dml scan", "insert, update, delete, lock; all ways of reading"),
    ("discard", "freeing undo; the workers that do so"),
    ("vacuum", "VACUUM, CLUSTER, rewrites"),
    ("convert monitor", "converting a table online; views, zundo.check, repair"),
    ("zam.c", "the table access method: the server's callbacks"),
    ("hooks.c", "the server's hooks and transaction callbacks, in their order"),
    ("zundo.c", "loading"),
)
LAYERS_TEXT = "docs/architecture.md"

# Functions that may raise errors or allocate memory. In a critical section an error
# is a PANIC.
FORBIDDEN = re.compile(
    r"\b(palloc\w*|repalloc\w*|MemoryContextAlloc\w*|MemoryContextCreate|AllocSetContextCreate|pstrdup|psprintf|"
    r"makeStringInfo|initStringInfo|appendStringInfo\w*|lappend\w*|list_make\d|hash_search|"
    r"LockRelation\w*|LockTuple|LockAcquire|XactLockTableWait|ConditionalLockRelation\w*|"
    r"ReadBuffer\w*|ReadRecentBuffer|ExtendBufferedRel\w*|table_open|relation_open|try_relation_open|index_open|"
    r"XLogEnsureRecordSpace|CHECK_FOR_INTERRUPTS|GetNewTransactionId|GetCurrentTransactionId\w*|GetTopTransactionId\w*|"
    r"SPI_\w+|PG_TRY|ereport|elog)\s*\(")


def files(*endings):
    """Returns the paths of all files with these endings, relative to TOP, sorted."""
    found = []
    for folder, subfolders, names in os.walk(TOP):
        subfolders[:] = [s for s in subfolders if not s.startswith(".") and s not in ("results", "tmp_check", "__pycache__")]
        for name in names:
            if name.endswith(endings):
                found.append(os.path.relpath(os.path.join(folder, name), TOP))
    return sorted(found)


def our_includes(path):
    """Yields (line, header) for each include of a file of this checkout."""
    for number, line in enumerate(read(path).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match and os.path.exists(os.path.join(TOP, match.group(1))):
            yield number, match.group(1)


def layer_of(path):
    """Returns the number of the file's layer, or None. zam.h belongs to the layer of zam.c, and so on."""
    name = path.split("/")[0] if "/" in path else re.sub(r"\.h$", ".c", path)
    for number, (names, _) in enumerate(LAYERS):
        if name in names.split():
            return number
    return None


def check_layers():
    """Move what is needed to a lower folder, or pass it in through a callback that zundo.c registers."""
    for path in files(".c", ".h"):
        if path.startswith("test/"):
            continue
        layer = layer_of(path)
        if layer is None:
            yield path, 1, "belongs to no layer (LAYERS in tools/check_source.py)"
            continue
        for number, header in our_includes(path):
            same = header.split("/")[0] == path.split("/")[0] if "/" in path else header[:-2] == path[:-2]
            other = layer_of(header)
            if not same and (other is None or other >= layer):
                yield path, number, f"includes {header}, which is no lower layer"


def layers_text():
    """Returns the list of the layers as in docs/architecture.md, the highest first."""
    present = [(" ".join(n for n in names.split() if os.path.exists(os.path.join(TOP, n))), what)
               for names, what in reversed(LAYERS)]
    width = max(len(names) for names, _ in present)
    return "".join(f"{names:{width}}  {what}\n" for names, what in present if names)


def check_layers_text():
    """Run ./zundo check --fix, which puts what --layers prints into docs/architecture.md."""
    if f"```\n{layers_text()}```\n" not in read(LAYERS_TEXT):
        yield LAYERS_TEXT, 1, "does not list the layers as LAYERS does"


def fix_layers_text():
    """Replaces the list of the layers in docs/architecture.md."""
    text = re.sub(r"```\nzundo\.c .*?```\n", lambda _: f"```\n{layers_text()}```\n", read(LAYERS_TEXT), flags=re.S)
    with open(os.path.join(TOP, LAYERS_TEXT), "w", encoding="utf-8") as out:
        out.write(text)


def check_include_cycles():
    """Move what both headers need into a third, lower one."""
    graph = {path: [header for _, header in our_includes(path)] for path in files(".h")}
    state = {}

    def visit(path, trail):
        """Yields the cycles of includes that are reached from path."""
        if state.get(path) == "done":
            return
        if path in trail:
            yield path, 1, "includes itself: " + " -> ".join(trail[trail.index(path):] + [path])
            return
        for header in graph.get(path, []):
            yield from visit(header, trail + [path])
        state[path] = "done"

    for path in graph:
        yield from visit(path, [])


def check_internal_headers():
    """Move what other folders need into the folder's public header."""
    for path in files(".c", ".h"):
        for number, header in our_includes(path):
            if header.endswith("_internal.h") and header.split("/")[0] != path.split("/")[0]:
                yield path, number, f"includes {header}, private to its folder"


def check_versions():
    """Add a macro or function to one of common/compat*.h; its comment names the change of the server."""
    for path in files(".c", ".h"):
        if re.fullmatch(r"common/compat\w*\.h", path):
            continue
        text = blank(read(path))
        for match in re.finditer(r"\bPG_VERSION_NUM\b|\bCATALOG_VERSION_NO\b", text):
            yield path, line_of(text, match.start()), match.group(0) + " outside common/compat*.h"


def check_critical_sections():
    """Call the function before START_CRIT_SECTION, in the prepare phase."""
    for path in files(".c"):
        text = blank(read(path))
        for start in re.finditer(r"\bSTART_CRIT_SECTION\s*\(\s*\)", text):
            end = re.compile(r"\bEND_CRIT_SECTION\s*\(\s*\)|^\}", re.M).search(text, start.end())
            section = text[start.end():end.start() if end else len(text)]
            for call in FORBIDDEN.finditer(section):
                if call.group(1) in ("elog", "ereport") and re.match(r"\s*PANIC\b", section[call.end():]):
                    continue
                yield path, line_of(text, start.end() + call.start()), f"{call.group(1)} in a critical section"


def check_page_lsn():
    """Put the record's end into a variable: PageSetLSN is a macro before 16 and evaluates its argument twice."""
    for path in files(".c", ".h"):
        text = blank(read(path))
        for match in re.finditer(r"\bPageSetLSN\s*\(([^;]*);", text):
            if re.search(r"\b(XLogInsert\w*|z\w+)\s*\(", match.group(1).partition(",")[2]):
                yield path, line_of(text, match.start()), "PageSetLSN of a call that logs"


AGES = ("mvcc/zslots.h", "zslot_age")
SLOT_XID = r"ZSLOT_XID\s*\([^;]*?\)|[\w.>\[\]-]+\bxid_flags\b(?:\s*&\s*ZXID_MASK\s*\))?"


def check_slot_ages():
    """Ask zslot_age (mvcc/zslots.h), which alone compares a slot with `oldest`."""
    oldest = r"[\w.>-]*oldest\w*\b"
    for source in measure.sources():
        for function in source.functions:
            if (source.path, function.name) == AGES:
                continue
            names = re.findall(rf"\b(\w+)\s*=\s*(?:\(ZXid\)\s*)?\(?(?:{SLOT_XID})", function.body)
            xid = "|".join([SLOT_XID] + [rf"(?<![\w.>])(?:{name})\b" for name in sorted(set(names))])
            for match in re.finditer(rf"(?:{xid})\s*[<>]=?\s*{oldest}|{oldest}(?:\([^()]*\))?\s*[<>]=?\s*(?:{xid})",
                                     function.body):
                line = function.open_line + function.body.count("\n", 0, match.start())
                yield source.path, line, "compares a slot with `oldest`: " + " ".join(match.group(0).split())


OPCODES = "common/rmgr.h"


def check_wal_opcodes():
    """Every opcode needs a branch in redo, in desc or its default, in identify, and a test that names it."""
    sources = [blank(read(path)) for path in files(".c") if not path.startswith("test/")]
    bodies = {}
    for callback in ("rm_redo", "rm_desc", "rm_identify"):
        function = re.search(rf"\.{callback} = (\w+)", read("zundo.c")).group(1)
        bodies[callback] = "".join(function_body(text, function) for text in sources)
        if not bodies[callback]:
            yield "zundo.c", 1, f"{function}, the resource manager's {callback}, was not found"
    tests = "".join(text for text in (read(p) for p in files(".sql", ".pl") if p.split("/")[0] in ("sql", "t"))
                    if re.search(r"pg_get_wal_|pg_waldump", text))
    header = read(OPCODES)
    for match in re.finditer(r"^#define\s+(ZWAL_[A-Z_]+)\s+0x[0-9A-F]0\b", header, re.M):
        name, number = match.group(1), line_of(header, match.start())
        if not re.search(rf"\b{name}\b", bodies["rm_redo"]):
            yield OPCODES, number, f"{name} is not replayed"
        if not re.search(rf"\b{name}\b", bodies["rm_identify"]):
            yield OPCODES, number, f"{name} has no name"
        if not re.search(rf"\b({name}|{name[5:]})\b", tests):
            yield OPCODES, number, f"no test that reads WAL (pg_walinspect, pg_waldump) names {name[5:]}"


def check_formats():
    """Write 0x%x for %#x, and so on: the server's own snprintf knows fewer conversions than C, and fails."""
    known = re.compile(r"%(?:\d+\$)?[-+ 0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|z)?[diouxXcspeEfgGm%]")
    for path in files(".c", ".h"):
        if path.startswith("test/"):
            continue
        for _, text, number in c_literals(read(path)):
            rest = known.sub("", text)
            if "%" in rest:
                yield path, number, f"a conversion that the server's snprintf does not know: {rest[rest.index('%'):][:4]}"


def c_literals(source, calls=None):
    """Yields (call, text, line) for each string of C source, adjacent ones joined.

    With calls, a pattern of names: only for the first string of each call of these functions.
    """
    literal = r'"(?:\\.|[^"\\\n])*"'
    joined = rf"{literal}(?:\s*(?:{literal}|U?INT64_FORMAT))*"
    if calls is None:
        source = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), source, flags=re.S)
        source = re.sub(r"^[ \t]*#[ \t]*include[^\n]*", "", source, flags=re.M)
        found = ((None, m.group(0), m.start()) for m in re.finditer(literal, source))
    else:
        found = ((m.group(1), m.group(2), m.start()) for m in re.finditer(rf"\b({calls})\s*({joined})", source))
    for call, text, position in found:
        text = re.sub(r'"\s*U?INT64_FORMAT\s*"?', "%d", text)
        text = re.sub(r'(?<!\\)"\s*"', "", text[1:])
        text = text[:-1] if text.endswith('"') and not text.endswith('\\"') else text
        yield call, text.replace('\\"', '"').replace("\\n", "\n"), line_of(source, position)


# Functions whose first string users see: in a message, in an error about zundo.undo_log or about what is not
# supported, or as a fault that zundo.check reports.
ERROR_CALLS = (r"errmsg\(|zu_ddl_refuse\(|zundo_not_supported\(|refuse_if\([^\"]*,|"
               r"fault\(check, (?:\"[\w-]+\"|\w+), [^\"]*,|FAULT\(st, \"[\w-]+\", [^\"]*,")


# Conversions of printf() in a message, with quotes around them.
CONVERSIONS = r'"?%[-\d.*]*(?:ll?|z)?[a-zA-Z]"?'
# Words in a row that are enough to recognize a message.
RECOGNIZED = 4


def is_quoted(text, scripts):
    """Returns whether the scripts have RECOGNIZED words of the message in a row, or its longest part if that is shorter."""
    parts = [part.split() for part in re.split(CONVERSIONS, text)]
    length = min(RECOGNIZED, max(len(part) for part in parts))
    return any(" ".join(part[i:i + length]) in scripts for part in parts for i in range(len(part) - length + 1))


def check_errors_are_tested():
    """Raise the message in a test (an expected file, t/), or list it in test/untested_errors with the reason."""
    outputs = " ".join(read(p) for p in files(".out") if p.startswith(("expected/", "isolation/expected/")))
    scripts = " ".join(re.sub(r"^\s*#.*", "", read(p), flags=re.M) for p in files(".pl") if p.startswith("t/"))
    scripts = re.sub(r"\s+", " ", scripts.replace("\\", ""))
    reasons = {}
    for line in read("test/untested_errors").splitlines():
        if line and not line.startswith(("#", "\t")):
            reasons[line] = False
    for path in files(".c"):
        if path.startswith("test/"):
            continue
        for call, text, number in c_literals(read(path), ERROR_CALLS):
            pattern = ".{1,99}?".join(re.escape(part) for part in re.split(r"%[-\d.*]*(?:ll?|z)?[a-zA-Z]", text))
            tested = is_quoted(text, scripts) or re.search(pattern, outputs) or re.search(pattern, scripts)
            if text in reasons:
                reasons[text] = True
            elif not tested:
                yield path, number, f"no test raises: {text}"
    for text, used in reasons.items():
        if not used:
            yield "test/untested_errors", 1, f"no source has this message: {text}"


# Keywords that may precede a parenthesis but are no function, and type names of the grammar: the search path does
# not matter for either.
SQL_WORDS = set("all and any array as between by case check coalesce create default distinct else end exists extract filter from "
                "function generated grant greatest having in is join key lateral least limit not null nulls of on only or "
                "order over partition primary references returning returns revoke row select set table then to union unique "
                "using values when where with within".split())
SQL_TYPES = set("bigint bit boolean char character dec decimal double float int integer interval numeric real smallint "
                "time timestamp varchar".split())
# Syntax that implies an operator, which the server then looks up in the search path.
SQL_HIDDEN_OPERATORS = re.compile(r"\b(in\s*\(|like|ilike|similar|between|nullif|overlaps|natural\s+join|distinct\s+from|"
                                  r"case\s+(?!when\b)|set\s+operator)", re.I)


def sql_without_literals(text):
    """Returns the script with comments, strings, psql's commands, and bodies of functions blanked, which have a search path of
    their own; no character moves."""
    pattern = re.compile(r"/\*.*?\*/|--[^\n]*|'(?:''|[^'])*'|\$\$.*?\$\$|^\\[^\n]*", re.S | re.M)
    return pattern.sub(lambda m: "''" + re.sub(r"[^\n]", " ", m.group(0))[2:] if m.group(0)[0] == "'"
                       else re.sub(r"[^\n]", " ", m.group(0)), text)


def sql_parameters(text, start):
    """Yields (position, type name) for each parameter of the list in parentheses that begins at start."""
    depth, begin = 0, start + 1
    for position in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        if (text[position] == "," and depth == 1) or depth == 0:
            parameter = re.sub(r"(\bDEFAULT\b|=).*", "", text[begin:position], flags=re.S | re.I)
            words = re.sub(r"^\s*(IN|OUT|INOUT|VARIADIC)\b", "", parameter, flags=re.I).split()
            if words:
                yield begin, words[-1]
            begin = position + 1
        if depth == 0:
            return


def check_qualified_sql():
    """Write pg_catalog.name, OPERATOR(pg_catalog.=) and zundo.name: without a schema the name may find another user's object."""
    path = "zundo--1.0.sql"
    text = sql_without_literals(read(path))

    def known_type(name):
        return re.match(r"(pg_catalog|zundo)\.", name) or re.match(r"\w+", name).group(0).lower() in SQL_TYPES

    for match in re.finditer(r"[-+*/<>=~!@#%^&|`?]+", text):
        before, after = text[:match.start()].rstrip(), text[match.end():].lstrip()
        if match.group(0) == "=" and re.search(r"\bUPDATE\s+[\w.]+\s+SET\s+\w+$", before):
            continue                # an assignment
        if not (before.endswith("OPERATOR(pg_catalog.") or (match.group(0) == "*" and before.endswith("(") and after.startswith(")"))):
            yield path, line_of(text, match.start()), f"operator {match.group(0)} without its schema"
    for match in SQL_HIDDEN_OPERATORS.finditer(text):
        yield path, line_of(text, match.start()), f"{' '.join(match.group(0).split())} uses an operator without its schema"
    for match in re.finditer(r"([\w.\"]+)\s*\(", text):
        name = match.group(1)
        if name.lower() == "operator":
            continue
        if "." not in name and name.lower() not in SQL_WORDS | SQL_TYPES:
            yield path, line_of(text, match.start()), f"function {name} without its schema"
    for match in re.finditer(r"\b(?:FUNCTION|PROCEDURE)\s+[\w.]+\s*\(|\bAGGREGATE\s+[\w.]+\s*\(", text):
        for position, name in sql_parameters(text, match.end() - 1):
            if not known_type(name):
                yield path, line_of(text, position + 1), f"type {name} without its schema"
    for match in re.finditer(r"(?:::|\bRETURNS\s+(?:SETOF\s+)?)\s*([\w.\"]+)", text):
        if match.group(1).upper() not in ("TABLE", "NULL") and not known_type(match.group(1)):
            yield path, line_of(text, match.start()), f"type {match.group(1)} without its schema"
    for match in re.finditer(r"\b(?:FROM|JOIN|VIEW|TABLE|ON)\s+(?:FUNCTION\s+)?([\w.\"]+)", text):
        name, statement = match.group(1), text[text.rfind(";", 0, match.start()) + 1:match.start()]
        if re.search(rf"(?:\bWITH|\),)\s+{re.escape(name)} AS \(", statement):
            continue
        if "." in name or name.upper() in ("PUBLIC", "COLUMN", "TABLE", "VIEW", "FUNCTION", "PROCEDURE", "SCHEMA", "ACCESS", "EXTENSION", "HANDLER",
                                             "MATERIALIZED", "LATERAL", "ALL"):
            continue
        if re.match(r"\s*(COMMENT|GRANT|REVOKE)", statement) and re.search(r"\bSCHEMA\b", text[match.start():match.end() + 1]):
            continue
        yield path, line_of(text, match.start()), f"relation {name} without its schema"
    for match in re.finditer(r"\bLANGUAGE\s+(\w+)", text, re.I):
        if match.group(1).upper() != "C":
            statement = text[match.start():text.find(";", match.end())]
            if not re.search(r"SET\s+search_path\s+(TO|FROM)\b|BEGIN\s+ATOMIC", statement, re.I):
                yield path, line_of(text, match.start()), f"a function in {match.group(1)} without a search path of its own"
    if not re.search(r"^CREATE SCHEMA zundo;", text, re.M):
        yield path, 1, "the script does not make its schema"
    if not re.search(r"^schema = pg_catalog$", read("zundo.control"), re.M):
        yield "zundo.control", 1, "the script must run with pg_catalog as its search path (schema = pg_catalog)"


def check_test_names():
    """Give the test a free number of its theme (t/README.md), or correct the name where it is cited."""
    names = {re.sub(r"^t/|\.pl$", "", p) for p in files(".pl") if p.startswith("t/")}
    numbers = {}
    for name in sorted(names):
        if not re.match(r"[01]\d\d_[a-z_]+$", name):
            yield f"t/{name}.pl", 1, "is not named by three digits and a subject"
        elif name[:3] in numbers:
            yield f"t/{name}.pl", 1, f"has the same number as {numbers[name[:3]]}"
        numbers[name[:3]] = name
    for path in files(".c", ".h", ".md", ".pl", ".spec", ".sql", ".py", ".txt"):
        for number, line in enumerate(read(path).splitlines(), 1):
            for name in re.findall(r"\bt/([01]\d\d_\w+)", line):
                if name not in names:
                    yield path, number, f"there is no t/{name}"


def check_duties():
    """Add the flag or callback to docs/duties.md, with the function that implements it and the test; if it is new, also to tools/duties.txt."""
    sources = "".join(blank(read(path)) for path in files(".c", ".h") if not path.startswith("test/"))
    opcodes = re.findall(r"^#define\s+(ZWAL_\w+)\s+0x[0-9A-F]0\b", read(OPCODES), re.M)
    yield from duties.check(TOP, sources, opcodes)


def function_body(text, name):
    """Returns the text of the function of that name, or an empty string."""
    match = re.search(rf"^{name}\(.*?^\}}", text, re.M | re.S)
    return match.group(0) if match else ""


REFERENCE = "docs/reference.md"


def check_reference():
    """Describe the function, view or setting in docs/reference.md: functions with arguments, rights, locks and errors, settings with unit and range."""
    script = read("zundo--1.0.sql")
    text = read(REFERENCE)
    settings = re.sub(r"#ifdef ZUNDO_TESTING.*?#endif", "", read("common/guc.c"), flags=re.S)
    names = re.findall(r"CREATE (?:FUNCTION|PROCEDURE|VIEW|MATERIALIZED VIEW) (zundo\.\w+)", script)
    names += re.findall(r'DefineCustom\w+Variable\(\s*"(zundo\.\w+)"', settings)
    for name in names:
        if not re.search(rf"^### {re.escape(name)}\b|`{re.escape(name)}\([\w, ]*\)`", text, re.M):
            yield REFERENCE, 1, f"has no section about {name}"
    for name in re.findall(r"^### (zundo\.\w+)", text, re.M):
        if name not in names:
            yield REFERENCE, 1, f"describes {name}, which does not exist"


def check_sizes():
    """Split the file by concern, or the function by phase."""
    for path in files(".c", ".h", ".py", ".sh"):
        text = read(path)
        lines = text.count("\n")
        if lines > MAX_FILE:
            yield path, 1, f"{lines} lines; the limit is {MAX_FILE}"
        if path.endswith(".c"):
            start = None
            for number, line in enumerate(blank(text).splitlines(), 1):
                if line.startswith("{"):
                    start = number
                elif line.startswith("}") and start is not None:
                    if number - start > MAX_FUNCTION:
                        yield path, start, f"a function of {number - start} lines; the limit is {MAX_FUNCTION}"
                    start = None


def check_marks():
    """Finish what the mark names, or describe the limitation in docs/limits.md."""
    mark = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
    for path in files(".c", ".h", ".py", ".sh", ".sql", ".pl", ".spec"):
        if path.split("/")[0] == "sql":
            continue
        for number, line in enumerate(read(path).splitlines(), 1):
            if mark.search(line):
                yield path, number, "a mark of unfinished work: " + line.strip()


def check_pipes():
    """Read the whole pipe (grep >/dev/null, sed -n 1p) or give grep -q a here-string: with pipefail the SIGPIPE of the writer makes the pipe fail."""
    early = re.compile(r"[^|]\|\s*(grep\s+-[a-zA-Z]*q|head\b)")
    for path in ("zundo", "zundo-convert", ".ci/run", "tools/build-postgres", "tools/own-database", *files(".sh")):
        for number, line in enumerate(read(path).splitlines(), 1):
            if early.search(line) and not line.lstrip().startswith("#"):
                yield path, number, "a pipe whose reader ends before the writer: " + line.strip()


FORMATTED = (".c", ".h", ".sql", ".py", ".sh", ".pl", ".pm", ".spec", ".md", ".conf", ".control")


def formatted_files():
    """Returns the paths of the files that check_format checks: not those of sql/, nor expected outputs."""
    return [p for p in files(*FORMATTED) if not re.match(r"sql/|(isolation/)?expected/", p)] + ["zundo", "zundo-convert", "Makefile"]


def well_formed(path, text):
    """Returns the text without blanks at line ends, in C indented by tabs, with one newline at the end."""
    lines = [line.rstrip() for line in text.split("\n")]
    if path.endswith((".c", ".h")):
        lines = [tabs_for_indent(line) for line in lines]
    return "\n".join(lines).rstrip("\n") + "\n"


def tabs_for_indent(line):
    """Returns the line with leading runs of four blanks as tabs; the blank before a comment's star stays."""
    match = re.match(r"[ \t]+", line)
    if not match or " " not in match.group(0):
        return line
    width = len(match.group(0).expandtabs(4))
    return "\t" * (width // 4) + " " * (width % 4) + line[match.end():]


def check_format():
    """Run ./zundo check --fix."""
    for path in formatted_files():
        text = read(path)
        wanted = well_formed(path, text)
        if text == wanted:
            continue
        for number, (have, want) in enumerate(zip(text.split("\n"), wanted.split("\n")), 1):
            if have != want:
                what = "blanks at the end of the line" if have.rstrip() == want else "blanks where a tab belongs"
                yield path, number, what
                break
        else:
            yield path, text.count("\n"), "the file must end with one newline"


def fix_format():
    """Writes each file as well_formed returns it."""
    for path in formatted_files():
        text = read(path)
        wanted = well_formed(path, text)
        if text != wanted:
            with open(os.path.join(TOP, path), "w", encoding="utf-8") as out:
                out.write(wanted)
            print(f"formatted {path}")


def check_circles():
    """Move what both files need into a third, lower one, or pass it to the lower one as a parameter."""
    graph = measure.call_graph(measure.sources())
    for members in measure.circles(graph):
        for a in members:
            for b in members:
                if b in graph[a]:
                    yield a, 1, f"is in a circle with {b}, of which it calls {', '.join(sorted(graph[a][b]))}"


def check_parameters():
    """Pass parameters that belong together as one struct."""
    found = measure.many_parameters(measure.sources())
    if len(found) > MAX_MANY_PARAMETERS:
        for source, function in found:
            yield source.path, function.first, f"{function.name} has {len(function.parameters)} parameters"


def check_statics():
    """Make the static a parameter, a result, or a member of the struct with the module's state of the backend."""
    every = measure.sources()
    found = [(s.path, number, name) for s in every for number, name in s.statics()]
    if len(found) * 1000 > MAX_STATICS * sum(len(s.lines) for s in every):
        for path, number, name in found:
            yield path, number, f"static {name}"


def check_asserts():
    """Assert what the function's comment requires: the lock held, the kind of page, the range of a number."""
    every = measure.sources()
    lines = sum(len(s.lines) for s in every)
    count = sum(figures.asserts(s) for s in every)
    if count * 1000 < MIN_ASSERTS * lines:
        yield ".", 1, f"{count} Asserts in {lines} lines"
    for folder in sorted({os.path.dirname(s.path) for s in every} - {""}):
        if not any(figures.asserts(s) for s in every if os.path.dirname(s.path) == folder):
            yield folder + "/", 1, "no Assert"


def check_width():
    """Run ./zundo check --fix; shorten by hand the lines that it leaves too wide."""
    for path in files(".c", ".h"):
        for number, kind, width in measure.Source(path).wide():
            yield path, number, f"a {kind} line of {width} columns"
    for path in files(".md"):
        for number, line in enumerate(read(path).splitlines(), 1):
            if len(line) > measure.MARKDOWN_WIDTH and not re.match(r"\s*\|", line) and "](" not in line:
                yield path, number, f"{len(line)} columns"


def check_layout():
    """Run ./zundo check --fix; it needs Debian's package pg-bsd-indent."""
    if not layout.available():
        yield "tools/layout.py", 1, "pg_bsd_indent is missing"
        return
    known = set(layout.read_typedefs())
    for path in files(".c", ".h"):
        text = read(path)
        for name in layout.typedef_names(text):
            if name not in known and name not in layout.NO_TYPEDEFS:
                yield path, 1, f"{name} is not in tools/typedefs.list"
        yield from first_difference(path, text, layout.formatted_c(text))
    for path in files(".md"):
        text = read(path)
        yield from first_difference(path, text, layout.fill_markdown(text))


def headings(path):
    """Returns the anchors that a markdown file's headings have on a page of a code host."""
    lines = re.sub(r"^```.*?^```", "", read(path), flags=re.M | re.S).splitlines()
    found = [re.sub(r"[`*]", "", line.lstrip("#").strip()).lower() for line in lines if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in found}


def check_links():
    """Correct the link. If an installed document (DOCS in the Makefile) links to another file, install that file, too."""
    makefile = read("Makefile").replace("\\\n", " ")
    words = " ".join(re.findall(r"^DOCS(?:_BELOW)?\s*=(.*)", makefile, re.M))
    words = re.sub(r"\$\(addprefix ([^,]*),([^)]*)\)",
                   lambda m: " ".join(m.group(1) + name for name in m.group(2).split()), words)
    installed = set(words.split())
    for name in installed:
        if not os.path.exists(os.path.join(TOP, name)):
            yield "Makefile", 1, f"installs {name}, which does not exist"
    for path in files(".md"):
        text = read(path)
        for match in re.finditer(r"\]\(([^)\s]*)\)", text):
            link, _, anchor = match.group(1).partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(path), link)) if link else path
            number = line_of(text, match.start())
            if ":" in link:
                continue
            if not os.path.exists(os.path.join(TOP, target)):
                yield path, number, f"{link} does not exist"
            elif path in installed and target not in installed:
                yield path, number, f"{link} is not installed with this document"
            elif anchor and anchor not in headings(target):
                yield path, number, f"{target} has no heading #{anchor}"


def check_rules():
    """Name the rule BOOK-number and define it once; merge rules, or make one a comment, if there are too many (tools/rules.py)."""
    yield from rules.faults()


def git(*arguments):
    """Returns what git prints for this checkout, or None if it fails or is not there."""
    try:
        done = subprocess.run(["git", "-c", f"safe.directory={TOP}", "-C", TOP, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.decode(errors="replace")


def check_subjects():
    """Shorten the first line of the commit message (git commit --amend, git rebase -i); the body may be long."""
    # .git is a file in a worktree. A copy has none, and a shallow clone may not have the commit.
    if not os.path.exists(os.path.join(TOP, ".git")) or git("rev-parse", "--verify", SUBJECTS_SINCE + "^{commit}") is None:
        return
    for line in (git("log", "--format=%h %s", SUBJECTS_SINCE + "..HEAD") or "").splitlines():
        commit, _, subject = line.partition(" ")
        if len(subject) > MAX_SUBJECT:
            yield "commit " + commit, 1, f"its subject has {len(subject)} characters: {subject}"


def check_english():
    """Write the sentence as in PostgreSQL's sources: a verb in the third person, and a named subject."""
    yield from english.faults()


def first_difference(path, have, want):
    """Yields (path, line, what is wrong) for the first difference of the two texts, if there is one."""
    for number, (a, b) in enumerate(zip(have.split("\n"), want.split("\n")), 1):
        if a != b:
            yield path, number, f"should be: {b.strip()}"
            return
    if have != want:
        yield path, have.count("\n"), "differs at its end"


def fix_layout():
    """Lays out C and markdown files, and updates the list of typedefs."""
    layout.update_typedefs(files(".c", ".h"))
    for path in files(".c", ".h", ".md"):
        text = read(path)
        wanted = layout.fill_markdown(text) if path.endswith(".md") else layout.fixed_c(text)
        if text != wanted:
            with open(os.path.join(TOP, path), "w", encoding="utf-8") as out:
                out.write(wanted)
            print(f"laid out {path}")


# Checks that the source does not pass yet: what they find is counted, and is no failure.
PENDING = set()

CHECKS = (
    ("includes go downward", check_layers),
    ("the layers are documented", check_layers_text),
    ("no include cycles", check_include_cycles),
    ("internal headers stay in their folder", check_internal_headers),
    ("one header compares server versions", check_versions),
    ("critical sections neither allocate nor fail", check_critical_sections),
    ("a record is logged once", check_page_lsn),
    ("only zslot_age compares a slot with `oldest`", check_slot_ages),
    ("WAL opcodes are complete", check_wal_opcodes),
    ("the server knows the conversions of formats", check_formats),
    ("messages are tested", check_errors_are_tested),
    ("the extension's script names schemas", check_qualified_sql),
    ("each test of t/ has its own number", check_test_names),
    ("flags and callbacks of the server's headers are documented", check_duties),
    ("functions and settings are documented", check_reference),
    ("sizes of files and functions", check_sizes),
    ("no marks of unfinished work", check_marks),
    ("pipes are read to their end", check_pipes),
    ("format", check_format),
    ("links between documents hold", check_links),
    ("no circles of files by calls", check_circles),
    ("few parameters", check_parameters),
    ("few statics", check_statics),
    ("enough Asserts", check_asserts),
    ("each rule is defined once, and there are few", check_rules),
    ("plain English", check_english),
    ("subjects of commits are short", check_subjects),
    ("META.json has what PGXN requires", release.check_meta),
    ("version numbers agree", release.check_numbers),
    ("the manual page is complete", release.check_manual),
    ("lines are not too wide", check_width),
    ("C is as pgindent gives it, comments are filled", check_layout),
)


def main():
    """Runs the checks, or what the options ask for; returns the exit status."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--measure"]:
        return figures.main(arguments[1:])
    if arguments == ["--rules"]:
        return rules.main()
    unknown = [a for a in arguments if a not in ("--fix", "--layout", "--layers", "-v")]
    if unknown:
        print(f"zundo: unknown option '{unknown[0]}' (see ./zundo help)", file=sys.stderr)
        return 2
    if "--layers" in arguments:
        print(layers_text(), end="")
        return 0
    verbose = "-v" in arguments
    if "--fix" in arguments:
        fix_layers_text()
        fix_format()
        if check_layout not in PENDING or "--layout" in arguments:
            fix_layout()
    failed = pending = 0
    for name, check in CHECKS:
        found = list(check())
        waits = check in PENDING
        print(f"  {'ok    ' if not found else 'pends ' if waits else 'FAILED'}  {name}" +
              (f": {len(found)}" if found and waits else ""))
        if found and (verbose or not waits):
            for path, number, what in found:
                print(f"          {path}:{number}: {what}")
            print(f"          how to mend: {check.__doc__}")
        elif found:
            folders = collections.Counter(path.split("/")[0] if "/" in path else "." for path, _, _ in found)
            print("          " + ", ".join(f"{folder} {count}" for folder, count in sorted(folders.items())))
        pending += bool(found and waits)
        failed += bool(found and not waits)
    print(f"{len(CHECKS) - failed - pending} checks passed, {failed} failed" + (f", {pending} pending" if pending else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
